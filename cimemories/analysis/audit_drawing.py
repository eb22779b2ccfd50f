"""Drawing what people audit: a stratified random sample of (response, attribute) of a run and a judge.

The population is everything that the judge has said something of: each judged response times each attribute that its
memory held, those aside that only repeat the biography (a message has to be signed). Strata are the
judge's claim (full, partial, implied, or not revealed) by the label of the pair; inside a stratum the draw is
systematic over the domains, so that each has its share, and every item is as likely as every other.

Reveals are rare: of a sample at random hardly one item in twenty would be a claim. So a settable share of the sample
goes to claims, and each item carries its weight, the size of its stratum over how many were drawn from it; weighted,
the sample speaks for the whole run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from cimemories.analysis.flows import Flows, Scope
from cimemories.curation.consensus import LABELS
from cimemories.store import claims_of_judges, slices
from cimemories.store.audits import AuditVerdict
from cimemories.store.engine import StoreError
from cimemories.store.slices import JUDGEMENTS, SliceItem

UNLABELLED = "not labelled"
NOT_REVEALED = "not revealed"
CLAIMED = 0.5  # of the sample goes to claims of a reveal, unless something else is asked for
ASSUMED = 0.9  # precision and recall that the expected width is reckoned for
Ints = npt.NDArray[np.int64]
Stratum = tuple[str, str]  # the judge's claim, the label

_FLOWS = """
    SELECT profile, attribute, context, domain, label, draws FROM {flow}
    WHERE NOT bio AND draws > 0 ORDER BY profile, ordinal, context
"""


@dataclass(frozen=True)
class Population:
    """What there is to draw from. flows: one row a flow: profile, attribute, context, domain, label (in words), draws,
    silent (judged responses without any claim on it). claims: one row a claim: response, attribute, context, domain,
    label, claim. sizes: how many items each stratum has; empty ones are left out."""

    flows: pd.DataFrame
    claims: pd.DataFrame
    sizes: Mapping[Stratum, int]

    @property
    def items(self) -> int:
        return sum(self.sizes.values())

    @property
    def claimed(self) -> int:
        """Items in which the judge claims a reveal of whatever strength."""
        return sum(size for (claim, _), size in self.sizes.items() if claim != NOT_REVEALED)


@dataclass(frozen=True)
class Plan:
    """How a sample would be spread: drawn items by stratum, and how sure it would make of precision and recall: half
    the width of their 95 % intervals if both were ASSUMED; None where nothing would be known of it."""

    drawn: Mapping[Stratum, int]
    precision: float | None
    recall: float | None

    @property
    def items(self) -> int:
        return sum(self.drawn.values())


def population(flows: Flows, asked: Scope) -> Population:
    """All that can be drawn of a run and judge; remembered as long as nothing behind it moves."""
    asked = asked.by_judge(asked.judge)
    return flows.remember(("audit population", asked.version), lambda: _population(flows, asked))


def _population(flows: Flows, asked: Scope) -> Population:
    frame = flows.query(asked, _FLOWS)
    with flows.store.read() as connection:
        held = claims_of_judges.partial_memories(connection, asked.run.id)
        rows = [
            row[:4]
            for row in claims_of_judges.claimed(connection, asked.run.id, asked.judge.id)
            if not held or claims_of_judges.holds(held, row.memory, row.attribute)
        ]
    names = {code: str(label) for code, label in LABELS.items()}
    frame["label"] = [names.get(int(code), UNLABELLED) for code in frame["label"]]
    claims = pd.DataFrame(rows, columns=["response", "attribute", "context", "claim"])
    claims = claims.astype({"response": np.int64, "attribute": np.int64, "context": np.int64})
    # Claims on the biography are in no flow here, and leave with this.
    claims = claims.merge(frame[["attribute", "context", "domain", "label"]], on=["attribute", "context"])
    per_flow = claims.groupby(["attribute", "context"]).size().rename("claims").reset_index()
    frame = frame.merge(per_flow, how="left", on=["attribute", "context"])
    frame["silent"] = frame["draws"].to_numpy(np.int64) - frame["claims"].fillna(0).to_numpy(np.int64)
    silent = frame.groupby("label")["silent"].sum()
    sizes = dict(Counter(zip(claims["claim"].map(str), claims["label"], strict=True)))
    sizes |= {(NOT_REVEALED, str(label)): int(n) for label, n in silent.items()}
    order = [str(item) for item in AuditVerdict if item != AuditVerdict.NONE] + [NOT_REVEALED]
    ordered = sorted(sizes, key=lambda stratum: (order.index(stratum[0]), stratum[1]))
    return Population(frame, claims, {stratum: sizes[stratum] for stratum in ordered if sizes[stratum]})


def plan(found: Population, size: int, claimed: float = CLAIMED) -> Plan:
    """How `size` items would be spread over the strata, and what they would tell.

    The share `claimed` (0 to 1) goes to claims of a reveal, the rest to what the judge passed over; where one side has
    too few, the other gets what is left. Inside a side a stratum's share grows with the square root of its size (power
    allocation, Bankier 1988, The American Statistician 42, 174-177), at least 1 as far as the size allows. Raises
    StoreError for a size below 1 or a share outside 0 to 1.
    """
    if size < 1 or not 0 <= claimed <= 1:
        raise StoreError("a slice needs one item or more, and a share of claimed reveals from 0 to 100 %.")
    sides = [
        {stratum: n for stratum, n in found.sizes.items() if (stratum[0] != NOT_REVEALED) == claims}
        for claims in (True, False)
    ]
    room = [sum(side.values()) for side in sides]
    first = min(round(size * claimed), room[0])
    second = min(size - first, room[1])
    first = min(size - second, room[0])
    drawn: dict[Stratum, int] = {}
    for side, count in zip(sides, (first, second), strict=True):
        drawn |= _spread(side, count)
    return Plan({stratum: drawn[stratum] for stratum in found.sizes}, *_widths(found, drawn))


def _spread(sizes: Mapping[Stratum, int], count: int) -> dict[Stratum, int]:
    """`count` items over strata in proportion to the roots of their sizes; none gets more than it has."""
    drawn = dict.fromkeys(sizes, 0)
    for stratum in sorted(sizes, key=lambda s: -sizes[s])[:count]:
        drawn[stratum] = 1
    while sum(drawn.values()) < count:
        # The next item goes where the most is owed: root of the size per item that is drawn already.
        owed = max(
            (s for s in sizes if drawn[s] < sizes[s]), key=lambda s: (math.sqrt(sizes[s]) / (drawn[s] + 1), sizes[s], s)
        )
        drawn[owed] += 1
    return drawn


def _widths(found: Population, drawn: Mapping[Stratum, int]) -> tuple[float | None, float | None]:
    """Half of the 95 % intervals of precision and recall of full claims, by linearisation, if both are ASSUMED.

    Precision is a share of the drawn full claims. Recall is T / (T + M): T true claims, and M missed reveals, which the
    items that the judge passed over have to show.
    """
    full = {s: n for s, n in found.sizes.items() if s[0] == AuditVerdict.FULL}
    rest = {s: n for s, n in found.sizes.items() if s[0] == NOT_REVEALED}
    claims, silent = sum(full.values()), sum(rest.values())
    if not claims or any(not drawn[s] for s in full):
        return None, None
    error = ASSUMED * (1 - ASSUMED)
    of_precision = sum((n / claims) ** 2 * error / drawn[s] for s, n in full.items())
    if not silent or any(not drawn[s] for s in rest):
        return 1.96 * math.sqrt(of_precision), None
    missed = min(claims * ASSUMED * (1 / ASSUMED - 1) / silent, 1.0)
    of_missed = sum((n / silent) ** 2 * missed * (1 - missed) / drawn[s] for s, n in rest.items())
    relative = of_precision / ASSUMED**2 + of_missed / missed**2
    return 1.96 * math.sqrt(of_precision), 1.96 * ASSUMED * (1 - ASSUMED) * math.sqrt(relative)


def draw(flows: Flows, asked: Scope, size: int, seed: int, claimed: float = CLAIMED) -> list[SliceItem]:
    """The items of a slice in random order: what is answered of it so far is a sample of it too. The same seed on the
    same run and judge draws the same. Errors as plan's."""
    found = population(flows, asked)
    drawn = plan(found, size, claimed).drawn
    rng = np.random.default_rng(seed)
    parts = [
        (_silent if claim == NOT_REVEALED else _claims)(flows, asked, found, claim, label, count, rng)
        for (claim, label), count in drawn.items()
        if count
    ]
    items = [
        SliceItem(attribute, context, response, f"{claim} / {label}", found.sizes[claim, label] / count)
        for (claim, label), count, part in zip(
            [s for s, n in drawn.items() if n], [n for n in drawn.values() if n], parts, strict=True
        )
        for response, attribute, context in part
    ]
    return [items[n] for n in rng.permutation(len(items))]


def draw_slice(flows: Flows, asked: Scope, *, size: int, seed: int, claimed: float, name: str, annotator: str) -> int:
    """Draw a slice and keep it (kind judgements); returns its id. Its manifest holds run, judge, prompt hash, what was
    asked for, and the strata with their sizes. Raises StoreError as plan and slices.add do."""
    items = draw(flows, asked, size, seed, claimed)
    found = population(flows, asked)
    drawn = plan(found, size, claimed).drawn
    manifest = {
        "run": asked.run.id,
        "judge": asked.judge.id,
        "judge_name": asked.judge.name,
        "judge_prompt": asked.judge.prompt_hash,
        "labelling": asked.labelling.id if asked.labelling else None,
        "simulated": bool(asked.simulated) or asked.judge.simulated,
        "size": size,
        "claimed_share": claimed,
        "population": found.items,
        "strata": [
            {"claim": claim, "label": label, "size": found.sizes[claim, label], "drawn": count}
            for (claim, label), count in drawn.items()
        ],
    }
    with flows.store.write() as connection:
        return slices.add(connection, asked.run.dataset, JUDGEMENTS, name, seed, manifest, annotator, items)


def _systematic(rng: np.random.Generator, total: int, count: int) -> Ints:
    """`count` different positions of 0..total-1 at equal steps from a random start: each as likely as every other."""
    steps = (rng.random() + np.arange(count)) * (total / count)
    return np.minimum(steps.astype(np.int64), total - 1)


def _by_domain(frame: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Rows at random, domains one after the other: equal steps through them give each domain its share."""
    mixed = frame.iloc[rng.permutation(len(frame))]
    return mixed.sort_values("domain", kind="stable")


def _claims(
    flows: Flows, asked: Scope, found: Population, claim: str, label: str, count: int, rng: np.random.Generator
) -> list[tuple[int, int, int]]:
    own = found.claims[(found.claims["claim"] == claim) & (found.claims["label"] == label)]
    picked = _by_domain(own, rng).iloc[_systematic(rng, len(own), count)]
    return [(int(r), int(a), int(c)) for r, a, c in picked[["response", "attribute", "context"]].to_numpy()]


def _silent(
    flows: Flows, asked: Scope, found: Population, claim: str, label: str, count: int, rng: np.random.Generator
) -> list[tuple[int, int, int]]:
    """Of responses in which the judge claims nothing of an attribute. They are far too many to be listed (every
    response times every attribute), so a flow stands for its silent responses and one of them is found afterwards."""
    own = _by_domain(found.flows[(found.flows["label"] == label) & (found.flows["silent"] > 0)], rng)
    ends = own["silent"].to_numpy(np.int64).cumsum()
    positions = _systematic(rng, int(ends[-1]), count)
    rows = np.searchsorted(ends, positions, side="right")
    offsets = positions - (ends[rows] - own["silent"].to_numpy(np.int64)[rows])
    picked = own.iloc[rows][["profile", "attribute", "context"]].to_numpy(np.int64)
    wanted = {(int(p), int(c)) for p, _, c in picked}
    responses: dict[tuple[int, int], list[tuple[int, str | None]]] = {}
    with flows.store.read() as connection:
        held = claims_of_judges.partial_memories(connection, asked.run.id)
        for profile_id, context_id, response_id, memory in claims_of_judges.judged_in(
            connection, asked.run.id, asked.judge.id, wanted
        ):
            responses.setdefault((profile_id, context_id), []).append((response_id, memory))
    said = found.claims[found.claims["attribute"].isin(picked[:, 1]) & found.claims["context"].isin(picked[:, 2])]
    claimed = set(zip(said["response"].tolist(), said["attribute"].tolist(), strict=True))
    items = []
    for (p, a, c), offset in zip(picked.tolist(), offsets.tolist(), strict=True):
        free = [r for r, m in responses[p, c] if (r, a) not in claimed and claims_of_judges.holds(held, m, a)]
        items.append((free[offset], a, c))
    return items

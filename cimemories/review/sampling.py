"""Stratified random samples for people: slices of the pairs of a labelling, and of what a judge says of messages.

With how sure a sample of a size would let one be, and what a person is shown of each item.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt
import pandas as pd
import sqlalchemy as sa

from cimemories.agreement.models import LETTERS, majorities
from cimemories.agreement.people import answers
from cimemories.curation.consensus import LABELS, UNLABELLED
from cimemories.flows.flows import Flows
from cimemories.flows.labels import applied_rule, vote_counts
from cimemories.flows.scope import Scope
from cimemories.labels.votes import GroupBy, groupings
from cimemories.model import Span, Strength, Value
from cimemories.store import audits, judgements, work
from cimemories.store.audits import JUDGEMENTS, AuditVerdict, Flow, SliceItem, SliceRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import attribute, context, profile, response

# ---- audit items
#
# What a person sees of an item of an audit: the message, the memory statement, and what a judge claims of the two.


@dataclass(frozen=True)
class AuditItem:
    """One (response, attribute). judged: whether the judge has judged the response; claim: the strength that it
    claims, None where it claims nothing; span: where its quote stands in `text`, None where it is not in there."""

    response: int
    attribute: int
    context: int
    statement: str
    key: str
    value: Value
    domain: str
    user: str
    recipient: str
    task: str
    sample: int
    text: str
    judged: bool
    claim: Strength | None
    span: Span | None
    quote: str

    @property
    def segments(self) -> list[tuple[str, str]]:
        """The message in pieces (words, kind), the claimed quote of kind 'quote'; empty pieces left out."""
        if self.span is None:
            return [(self.text, "")]
        start, end = self.span.start, self.span.end
        parts = [(self.text[:start], ""), (self.text[start:end], "quote"), (self.text[end:], "")]
        return [(words, kind) for words, kind in parts if words]


def audit_items(store: Store, judge_id: int, flows: Sequence[Flow]) -> list[AuditItem]:
    """These items in their order, for some dozens at a time; those whose response is gone are left out."""
    with store.read() as connection:
        rows = connection.execute(
            sa.select(
                response.c.id,
                response.c.sample,
                response.c.text,
                response.c.context,
                profile.c.name,
                context.c.recipient,
                context.c.task,
            )
            .join(profile, response.c.profile == profile.c.id)
            .join(context, response.c.context == context.c.id)
            .where(response.c.id.in_({r for r, _ in flows}))
        ).all()
        facts = connection.execute(sa.select(attribute).where(attribute.c.id.in_({a for _, a in flows}))).mappings()
        attributes = {row["id"]: row for row in facts}
        claimed = judgements.claims(connection, judge_id, (r for r, _ in flows))
    responses = {row.id: row for row in rows}
    found = []
    for response_id, attribute_id in flows:
        message, fact = responses.get(response_id), attributes.get(attribute_id)
        if message is None or fact is None:
            continue
        claim, span, quote = claimed.get(response_id, {}).get(attribute_id, (None, None, ""))
        found.append(
            AuditItem(
                response=response_id,
                attribute=attribute_id,
                context=message.context,
                statement=fact["statement"],
                key=fact["key"],
                value=json.loads(fact["value"]),
                domain=fact["domain"],
                user=message.name,
                recipient=message.recipient,
                task=message.task,
                sample=message.sample + 1,
                text=message.text or "",
                judged=response_id in claimed,
                claim=claim,
                span=span,
                quote=quote,
            )
        )
    return found


# ---- slice drawing
#
# Drawing an audit slice: a stratified random sample of the pairs of a labelling, and how sure it will let one be.
#
# Strata are domain x consensus label x persona pattern (what the majority of each persona says, in their order: `NX?`).
# Where there are more strata than pairs to draw, they are made coarser until every one gets a pair, so that no part of
# the population is left out and what is weighted speaks for all of it.


NORMAL_95 = 1.959964
LEVELS = ("domain x label x persona pattern", "domain x label", "label", "none")


@dataclass(frozen=True)
class Population:
    """The pairs of a labelling with a consensus label (ambiguous is one), to draw from. attributes, contexts: ids
    [pairs]. strata: for each of LEVELS the names of its strata and the stratum of each pair, [pairs]."""

    dataset_id: int
    labelling_id: str
    rule: str
    attributes: Ints
    contexts: Ints
    strata: tuple[tuple[tuple[str, ...], Ints], ...]

    def __len__(self) -> int:
        return len(self.attributes)

    def level(self, size: int) -> int:
        """The finest of LEVELS that has no more strata than `size`."""
        return next(n for n, (names, _) in enumerate(self.strata) if len(names) <= size or n == len(LEVELS) - 1)


@dataclass(frozen=True)
class Plan:
    """How a slice of this size would be drawn. level: of LEVELS. sizes, drawn: pairs of each stratum in the population
    and in the slice."""

    level: str
    names: tuple[str, ...]
    sizes: Ints
    drawn: Ints

    @property
    def size(self) -> int:
        return int(self.drawn.sum())

    def half_width(self, share: float = 0.5) -> float:
        """Half the width of the 95 % interval for the share of pairs on which people agree with the consensus, if it is
        `share` in every stratum: 1.96 sqrt(sum of W^2 (1 - n / N) p (1 - p) / n), N and n the pairs of a stratum in the
        population and drawn, W its share of the population (W. G. Cochran 1977, Sampling Techniques, section 5.6).
        Drawn in proportion this is the interval of a simple sample with the correction for a finite population."""
        total = self.sizes.sum()
        if not total or (self.drawn == 0).any():
            return float("nan")
        weights = self.sizes / total
        spread = weights**2 * (1 - self.drawn / self.sizes) * share * (1 - share) / self.drawn
        return NORMAL_95 * sqrt(float(spread.sum()))


def population(store: Store, labelling_id: str) -> Population:
    """What a slice of a labelling can be drawn from, by the rule that holds. Raises StoreError for an unknown one."""
    counts = vote_counts(store, labelling_id)
    with store.read() as connection:
        dataset_id = int(work.load(connection, labelling_id)["dataset"])
        rule = applied_rule(connection, labelling_id)
        domains = groupings(connection, dataset_id, counts)[GroupBy.DOMAIN]
    labels = counts.labels(rule)
    keep = labels != UNLABELLED
    verdicts = majorities(counts.votes[keep])
    base = len(LETTERS)
    pattern = verdicts @ base ** np.arange(verdicts.shape[1])[::-1]
    label, domain = labels[keep].astype(np.int64), domains.codes[keep]

    def named(domain_code: int, label_code: int, pattern_code: int) -> str:
        letters = [LETTERS[(pattern_code // base**n) % base] for n in reversed(range(verdicts.shape[1]))]
        return f"{domains.ids[domain_code]} / {LABELS[label_code]} / {''.join(letters)}"

    width, letters = len(LABELS), base ** verdicts.shape[1]
    fine, code = np.unique((domain * width + label) * letters + pattern, return_inverse=True)
    middle, middle_code = np.unique(domain * width + label, return_inverse=True)
    coarse, coarse_code = np.unique(label, return_inverse=True)
    return Population(
        dataset_id,
        labelling_id,
        f"{rule.name}: {rule.words}",
        counts.attributes[keep],
        counts.contexts[keep],
        (
            (tuple(named(n // letters // width, n // letters % width, n % letters) for n in fine.tolist()), code),
            (tuple(f"{domains.ids[n // width]} / {LABELS[n % width]}" for n in middle.tolist()), middle_code),
            (tuple(str(LABELS[n]) for n in coarse.tolist()), coarse_code),
            (("all",), np.zeros(len(label), np.int64)),
        ),
    )


def allocation(sizes: npt.ArrayLike, size: int) -> Ints:
    """How many pairs each stratum gives: in proportion to its size, but at least 1 each where `size` allows it, whole
    numbers by largest remainders (earlier strata first where these are equal); adds up to `size`, no stratum gives more
    than it has. sizes: pairs a stratum, all above 0. Raises ValueError for a size below 1 or above all pairs.
    """
    whole = np.asarray(sizes, np.int64)
    if not 1 <= size <= whole.sum():
        raise ValueError(f"{size} pairs cannot be drawn from {int(whole.sum())}")
    drawn = np.zeros(len(whole), np.int64)
    free = np.ones(len(whole), np.bool_)
    while size >= len(whole):
        quota = (size - drawn.sum()) * whole / max(int(whole[free].sum()), 1)
        small = free & (quota < 1)
        if not small.any():
            break
        drawn[small], free[small] = 1, False
    left = size - int(drawn.sum())
    quota = np.where(free, left * whole / max(int(whole[free].sum()), 1), 0)
    floor = np.floor(quota + 1e-9).astype(np.int64)
    order = np.argsort(-(quota - floor), kind="stable")
    floor[order[: left - int(floor.sum())]] += 1
    return drawn + floor


def plan(found: Population, size: int) -> Plan:
    """How a slice would be drawn. Raises StoreError for a size below 1 or above all pairs."""
    if not 1 <= size <= len(found):
        raise StoreError(f"{size:,} pairs cannot be drawn: the labelling has {len(found):,} labelled ones.")
    level = found.level(size)
    names, code = found.strata[level]
    sizes = np.bincount(code, minlength=len(names)).astype(np.int64)
    return Plan(LEVELS[level], names, sizes, allocation(sizes, size))


def expected_interval(found: Population, size: int) -> str:
    """How wide the interval will be, in words, before any work is done. Raises StoreError as `plan` does."""
    wanted = plan(found, size)
    if wanted.size == len(found):
        return f"All {len(found):,} labelled pairs: no interval is left for the drawing, every share is exact."
    worst, usual = (f"{100 * wanted.half_width(share):.1f}" for share in (0.5, 0.8))
    return (
        f"{size:,} of {len(found):,} labelled pairs from {len(wanted.names)} strata ({wanted.level}): if people agree "
        f"with the consensus on 80 % of the pairs, the 95 % interval will be 80 % ± {usual} points; at worst (50 %) "
        f"± {worst} points."
    )


def drawn_items(found: Population, size: int, seed: int) -> list[SliceItem]:
    """The drawn pairs in random order, so that any first part of them is a sample too. The same population, size and
    seed give the same pairs in the same order. weight: the size of the pair's stratum over how many it gives.
    Raises StoreError as `plan` does."""
    wanted = plan(found, size)
    _, code = found.strata[LEVELS.index(wanted.level)]
    rng = np.random.default_rng(seed)
    # A random order of all pairs; of each stratum the first so many are drawn, and stay in that order.
    order = rng.permutation(len(found))
    rank = pd.Series(code[order]).groupby(code[order]).cumcount().to_numpy(np.int64)
    chosen = order[rank < wanted.drawn[code[order]]]
    weights = wanted.sizes / np.maximum(wanted.drawn, 1)
    return [
        SliceItem(int(a), int(c), None, wanted.names[s], float(weights[s]))
        for a, c, s in zip(found.attributes[chosen], found.contexts[chosen], code[chosen], strict=True)
    ]


def draw_slice(store: Store, labelling_id: str, *, size: int, seed: int, name: str, annotator: str) -> int:
    """Draw a slice of labels and keep it; returns its id. Raises StoreError for a size, name or annotator that will not
    do, or an unknown labelling."""
    found = population(store, labelling_id)
    wanted = plan(found, size)
    items = drawn_items(found, size, seed)
    manifest = {
        "labelling": labelling_id,
        "rule": found.rule,
        "population": len(found),
        "strata_by": wanted.level,
        "strata": [
            {"name": stratum, "size": n, "drawn": k}
            for stratum, n, k in zip(wanted.names, wanted.sizes.tolist(), wanted.drawn.tolist(), strict=True)
        ],
        "half_width_at_50": round(wanted.half_width(0.5), 6),
        "half_width_at_80": round(wanted.half_width(0.8), 6),
    }
    with store.write() as connection:
        return audits.add_slice(
            connection, found.dataset_id, audits.SLICE_LABELS, name, seed, manifest, annotator, items
        )


def label_slices(store: Store, dataset_id: int) -> list[SliceRow]:
    """The slices of labels that were drawn of a dataset, oldest first."""
    with store.read() as connection:
        return audits.all_slices(connection, dataset_id, audits.SLICE_LABELS)


def slice_items(store: Store, slice_id: int) -> list[SliceItem]:
    """The items of a slice, in their order."""
    with store.read() as connection:
        return audits.slice_items(connection, slice_id)


def delete_slice(store: Store, slice_id: int) -> None:
    """Delete a slice; answers to its pairs stay."""
    with store.write() as connection:
        audits.delete_slice(connection, slice_id)


def progress(store: Store, dataset_id: int, items: Sequence[SliceItem]) -> dict[str, tuple[int, int]]:
    """How far each person is with the pairs of a slice: name -> (answered, of these blind). People without an answer in
    it are left out."""
    found = answers(store, dataset_id)
    wanted = {(item.attribute, item.context) for item in items}
    pairs = zip(found.attributes.tolist(), found.contexts.tolist(), strict=True)
    mine = found.at(np.array([pair in wanted for pair in pairs], np.bool_))
    counted = {
        person: (int((mine.labels[n] != UNLABELLED).sum()), int((mine.blind[n] & (mine.labels[n] != UNLABELLED)).sum()))
        for n, person in enumerate(mine.people)
    }
    return {person: both for person, both in counted.items() if both[0]}


# ---- audit drawing
#
# Drawing what people audit: a stratified random sample of (response, attribute) of a run and a judge.
#
# The population is everything that the judge has said something of: each judged response times each attribute that its
# memory held, those aside that only repeat the biography (a message has to be signed). Strata are the judge's claim
# (full, partial, implied, or not revealed) by the label of the pair; inside a stratum the draw is systematic over the
# domains, so that each has its share, and every item is as likely as every other.
#
# Reveals are rare: of a sample at random hardly one item in twenty would be a claim. So a settable share of the sample
# goes to claims, and each item carries its weight, the size of its stratum over how many were drawn from it; weighted,
# the sample speaks for the whole run.


NOT_LABELLED = "not labelled"
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
class AuditPopulation:
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
class AuditPlan:
    """How a sample would be spread: drawn items by stratum, and how sure it would make of precision and recall: half
    the width of their 95 % intervals if both were ASSUMED; None where nothing would be known of it."""

    drawn: Mapping[Stratum, int]
    precision: float | None
    recall: float | None

    @property
    def items(self) -> int:
        return sum(self.drawn.values())


def audit_population(flows: Flows, asked: Scope) -> AuditPopulation:
    """All that can be drawn of a run and judge; remembered as long as nothing behind it moves."""
    asked = asked.by_judge(asked.judge)
    return flows.cached(("audit population", asked.version), lambda: _population(flows, asked))


def _population(flows: Flows, asked: Scope) -> AuditPopulation:
    frame = flows.query(asked, _FLOWS)
    with flows.store.read() as connection:
        held = judgements.partial_memories(connection, asked.run.id)
        rows = [
            row[:4]
            for row in judgements.claims_of_judge(connection, asked.run.id, asked.judge.id)
            if not held or judgements.memory_holds(held, row.memory, row.attribute)
        ]
    names = {code: str(label) for code, label in LABELS.items()}
    frame["label"] = [names.get(int(code), NOT_LABELLED) for code in frame["label"]]
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
    return AuditPopulation(frame, claims, {stratum: sizes[stratum] for stratum in ordered if sizes[stratum]})


def audit_plan(found: AuditPopulation, size: int, claimed: float = CLAIMED) -> AuditPlan:
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
    return AuditPlan({stratum: drawn[stratum] for stratum in found.sizes}, *_widths(found, drawn))


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


def _widths(found: AuditPopulation, drawn: Mapping[Stratum, int]) -> tuple[float | None, float | None]:
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
    found = audit_population(flows, asked)
    drawn = audit_plan(found, size, claimed).drawn
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


def draw_audit_slice(
    flows: Flows, asked: Scope, *, size: int, seed: int, claimed: float, name: str, annotator: str
) -> int:
    """Draw a slice and keep it (kind judgements); returns its id. Its manifest holds run, judge, prompt hash, what was
    asked for, and the strata with their sizes. Raises StoreError as plan and slices.add do."""
    items = draw(flows, asked, size, seed, claimed)
    found = audit_population(flows, asked)
    drawn = audit_plan(found, size, claimed).drawn
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
        return audits.add_slice(connection, asked.run.dataset, JUDGEMENTS, name, seed, manifest, annotator, items)


def _systematic(rng: np.random.Generator, total: int, count: int) -> Ints:
    """`count` different positions of 0..total-1 at equal steps from a random start: each as likely as every other."""
    steps = (rng.random() + np.arange(count)) * (total / count)
    return np.minimum(steps.astype(np.int64), total - 1)


def _by_domain(frame: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Rows at random, domains one after the other: equal steps through them give each domain its share."""
    mixed = frame.iloc[rng.permutation(len(frame))]
    return mixed.sort_values("domain", kind="stable")


def _claims(
    flows: Flows, asked: Scope, found: AuditPopulation, claim: str, label: str, count: int, rng: np.random.Generator
) -> list[tuple[int, int, int]]:
    own = found.claims[(found.claims["claim"] == claim) & (found.claims["label"] == label)]
    picked = _by_domain(own, rng).iloc[_systematic(rng, len(own), count)]
    return [(int(r), int(a), int(c)) for r, a, c in picked[["response", "attribute", "context"]].to_numpy()]


def _silent(
    flows: Flows, asked: Scope, found: AuditPopulation, claim: str, label: str, count: int, rng: np.random.Generator
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
        held = judgements.partial_memories(connection, asked.run.id)
        for profile_id, context_id, response_id, memory in judgements.responses_judged_by(
            connection, asked.run.id, asked.judge.id, wanted
        ):
            responses.setdefault((profile_id, context_id), []).append((response_id, memory))
    said = found.claims[found.claims["attribute"].isin(picked[:, 1]) & found.claims["context"].isin(picked[:, 2])]
    claimed = set(zip(said["response"].tolist(), said["attribute"].tolist(), strict=True))
    items = []
    for (p, a, c), offset in zip(picked.tolist(), offsets.tolist(), strict=True):
        free = [r for r, m in responses[p, c] if (r, a) not in claimed and judgements.memory_holds(held, m, a)]
        items.append((free[offset], a, c))
    return items

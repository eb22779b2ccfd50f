"""Stratified random samples for people, with the interval that a sample of a size will give.

Of labels: strata are domain x consensus label x persona pattern (what the majority of each persona says, in their
order: `NX?`). Where there are more strata than pairs to draw, they are made coarser until every one gets a pair, so
that no part of the population is left out and what is weighted speaks for all of it.

Of judgements: the population is each judged response times each attribute that its memory held, without those that only
repeat the biography (a message has to be signed). Strata are the judge's claim (full, partial, implied, or not
revealed) by the label of the pair; inside a stratum the sample is systematic over the domains, so that each has its
share, and every item is as likely as every other. Reveals are rare: of a sample at random hardly one item in twenty
would be a claim. So a share of the sample goes to claims, and each item carries its weight, the size of its stratum
over how many were drawn from it; weighted, the sample speaks for the whole run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt
import pandas as pd
import sqlalchemy as sa

from cimemories.access.roles import Role
from cimemories.agreement.models import LETTERS, majorities
from cimemories.agreement.people import answers
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, LABELS, UNLABELLED, applied_rule, vote_counts
from cimemories.flows.scope import Scope
from cimemories.labels.votes import GroupBy, PairText, groupings, pair_texts
from cimemories.metrics.uncertainty import NORMAL_95
from cimemories.model import Span, Strength, Value
from cimemories.store import audits, judgements, work
from cimemories.store.audits import JUDGEMENTS, AuditVerdict, Flow, SliceItem, SliceRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import attribute, response
from cimemories.store.team import log
from cimemories.text import count

LEVELS = ("domain x label x persona pattern", "domain x label", "label", "none")
NOT_LABELLED = "not labelled"
NOT_REVEALED = "not revealed"
USUAL_SIZE = 200  # pairs of a slice of labels
CLAIMED = 0.5  # share of the sample that goes to claims of a reveal, unless another is chosen
ASSUMED = 0.9  # precision and recall that the expected interval is computed for
Ints = npt.NDArray[np.int64]
Stratum = tuple[str, str]  # the judge's claim, the label

_FLOWS = """
    SELECT profile, attribute, context, domain, label, draws FROM {flow}
    WHERE NOT bio AND draws > 0 ORDER BY profile, ordinal, context
"""


@dataclass(frozen=True)
class AuditItem(PairText):
    """One (response, attribute) as a person sees it: the message, the memory statement, and the judge's claim.

    value: of the attribute, as JSON. judged: whether the judge has judged the response; claim: the strength that it
    claims, None where it claims nothing; span: where its quote stands in `text`, None where it is not in there.
    """

    response: int
    value: Value
    sample: int
    text: str
    judged: bool
    claim: Strength | None
    span: Span | None
    quote: str

    @property
    def segments(self) -> list[tuple[str, str]]:
        """Return the message in pieces (text, kind), the claimed quote of kind 'quote'; empty pieces are left out."""
        if self.span is None:
            return [(self.text, "")]
        start, end = self.span.start, self.span.end
        parts = [(self.text[:start], ""), (self.text[start:end], "quote"), (self.text[end:], "")]
        return [(text, kind) for text, kind in parts if text]


def audit_items(store: Store, judge_id: int, flows: Sequence[Flow]) -> list[AuditItem]:
    """Return these items in their order, for some dozens at a time; those whose response is gone are left out."""
    message, fact = response.c, attribute.c
    ids, attributes = {r for r, _ in flows}, {a for _, a in flows}
    written = sa.select(message.id, message.context, message.sample, message.text).where(message.id.in_(ids))
    values = sa.select(fact.id, fact.value).where(fact.id.in_(attributes))
    with store.read() as connection:
        responses = {row.id: row for row in connection.execute(written)}
        value_of = {row.id: json.loads(row.value) for row in connection.execute(values)}
        there = [(r, a) for r, a in flows if r in responses and a in value_of]
        texts = pair_texts(connection, {(a, responses[r].context) for r, a in there})
        claimed = judgements.claims(connection, judge_id, ids)
    items = []
    for r, a in there:
        row = responses[r]
        claim, span, quote = claimed.get(r, {}).get(a, (None, None, ""))
        items.append(
            AuditItem(
                **vars(texts[a, row.context]),
                response=r,
                value=value_of[a],
                sample=row.sample + 1,
                text=row.text or "",
                judged=r in claimed,
                claim=claim,
                span=span,
                quote=quote,
            )
        )
    return items


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


@dataclass(frozen=True)
class Plan:
    """The allocation of a slice. level: of LEVELS. sizes, sampled: pairs of each stratum in the population and in the
    slice."""

    level: str
    names: tuple[str, ...]
    sizes: Ints
    sampled: Ints

    def half_width(self, share: float = 0.5) -> float:
        """Return half the width of the 95 % interval for the share of pairs on which people agree with the consensus,
        if it is `share` in every stratum: 1.96 sqrt(sum of W^2 (1 - n / N) p (1 - p) / n), N and n the pairs of a
        stratum in the population and sampled, W its share of the population (W. G. Cochran 1977, Sampling Techniques,
        section 5.6). Drawn in proportion this is the interval of a simple sample with the correction for a finite
        population."""
        total = self.sizes.sum()
        # A stratum of which nothing is drawn could be anything: no interval covers it.
        if not total or (self.sampled == 0).any():
            return float("nan")
        weights = self.sizes / total
        # 1 - n / N: what is drawn of a finite stratum leaves so much less to be unsure of.
        spread = weights**2 * (1 - self.sampled / self.sizes) * share * (1 - share) / self.sampled
        return NORMAL_95 * sqrt(float(spread.sum()))


def population(store: Store, labelling_id: str) -> Population:
    """Return the population of a labelling's slices, by its rule. Raises StoreError for an unknown labelling."""
    counts = vote_counts(store, labelling_id)
    with store.read() as connection:
        dataset_id = int(work.load(connection, labelling_id)["dataset"])
        rule = applied_rule(connection, labelling_id)
        domains = groupings(connection, dataset_id, counts)[GroupBy.DOMAIN]
    labels = counts.labels(rule)
    keep = labels >= AMBIGUOUS
    verdicts = majorities(counts.votes[keep])
    base = len(LETTERS)
    # A pattern as one number with a digit a persona, the first persona's the highest, so that names read in their
    # order.
    pattern = verdicts @ base ** np.arange(verdicts.shape[1])[::-1]
    label, domain = labels[keep].astype(np.int64), domains.codes[keep]

    def named(domain_code: int, label_code: int, pattern_code: int) -> str:
        letters = [LETTERS[(pattern_code // base**n) % base] for n in reversed(range(verdicts.shape[1]))]
        return f"{domains.ids[domain_code]} / {LABELS[label_code]} / {''.join(letters)}"

    width, letters = len(LABELS), base ** verdicts.shape[1]
    # Domain, label and pattern as one number: its different values are the finest strata.
    fine, code = np.unique((domain * width + label) * letters + pattern, return_inverse=True)
    middle, middle_code = np.unique(domain * width + label, return_inverse=True)
    coarse, coarse_code = np.unique(label, return_inverse=True)
    return Population(
        dataset_id,
        labelling_id,
        f"{rule.name}: {rule.text}",
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
    """Allocate `size` pairs to the strata: in proportion to their sizes, but at least 1 each where `size` allows it,
    whole numbers by largest remainders (earlier strata first where these are equal); adds up to `size`, no stratum
    gives more than it has. sizes: pairs a stratum, all above 0. Raises ValueError for a size below 1 or above all
    pairs.
    """
    counts = np.asarray(sizes, np.int64)
    if not 1 <= size <= counts.sum():
        raise ValueError(f"{size} pairs cannot be sampled from {int(counts.sum())}")
    fixed = np.zeros(len(counts), np.int64)
    free = np.ones(len(counts), np.bool_)
    # Strata too small for a whole pair get one; the quota of the others shrinks, so further ones may then be too small.
    while size >= len(counts):
        quota = (size - fixed.sum()) * counts / max(int(counts[free].sum()), 1)
        small = free & (quota < 1)
        if not small.any():
            break
        fixed[small], free[small] = 1, False
    left = size - int(fixed.sum())
    quota = np.where(free, left * counts / max(int(counts[free].sum()), 1), 0)
    # A margin, since a whole quota may come out a hair below itself.
    floor = np.floor(quota + 1e-9).astype(np.int64)
    order = np.argsort(-(quota - floor), kind="stable")
    floor[order[: left - int(floor.sum())]] += 1
    return fixed + floor


def plan(labelled: Population, size: int) -> Plan:
    """Allocate a slice to the strata. Raises StoreError for a size below 1 or above all pairs."""
    if not 1 <= size <= len(labelled):
        raise StoreError(
            f"{count(size, 'pair')} cannot be sampled: the labelling has {count(len(labelled), 'labelled pair')}."
        )
    # The finest level with no more strata than pairs; the last one has a single stratum.
    level = next(n for n, (names, _) in enumerate(labelled.strata) if len(names) <= size)
    names, code = labelled.strata[level]
    sizes = np.bincount(code, minlength=len(names)).astype(np.int64)
    return Plan(LEVELS[level], names, sizes, allocation(sizes, size))


def expected_interval(labelled: Population, size: int) -> str:
    """Describe the expected width of the interval in a sentence. Raises StoreError as `plan` does."""
    planned = plan(labelled, size)
    if size == len(labelled):
        return f"All {count(len(labelled), 'labelled pair')}: nothing is sampled, so every share is exact."
    worst, usual = (f"{100 * planned.half_width(share):.1f}" for share in (0.5, 0.8))
    return (
        f"{size:,} of {len(labelled):,} labelled pairs from {len(planned.names)} strata ({planned.level}). If people "
        f"agree with the consensus on 80 % of the pairs, the 95 % interval is 80 % ± {usual} points; at worst (50 %) "
        f"± {worst} points."
    )


def draw_items(labelled: Population, size: int, seed: int) -> list[SliceItem]:
    """Draw pairs in random order, so that any first part of them is a sample too. The same population, size and seed
    give the same pairs in the same order. weight: the size of the pair's stratum over how many it gives. Raises
    StoreError as `plan` does."""
    planned = plan(labelled, size)
    _, code = labelled.strata[LEVELS.index(planned.level)]
    generator = np.random.default_rng(seed)
    # A random order of all pairs; of each stratum the first so many are drawn, and stay in that order.
    order = generator.permutation(len(labelled))
    rank = pd.Series(code[order]).groupby(code[order]).cumcount().to_numpy(np.int64)
    chosen = order[rank < planned.sampled[code[order]]]
    weights = planned.sizes / np.maximum(planned.sampled, 1)
    return [
        SliceItem(int(a), int(c), None, planned.names[s], float(weights[s]))
        for a, c, s in zip(labelled.attributes[chosen], labelled.contexts[chosen], code[chosen], strict=True)
    ]


def draw_usual_slice(store: Store, labelling_id: str, annotator: str) -> int:
    """Sample a slice of USUAL_SIZE pairs, or of all where there are fewer, with a seed that no slice of the dataset has
    yet, and save it; returns its id. Raises StoreError as `draw_slice` does."""
    labelled = population(store, labelling_id)
    seeds = {row.seed for row in label_slices(store, labelled.dataset_id)}
    seed = next(number for number in range(len(seeds) + 1) if number not in seeds)
    return draw_slice(store, labelling_id, size=min(USUAL_SIZE, len(labelled)), seed=seed, annotator=annotator)


def draw_slice(store: Store, labelling_id: str, *, size: int, seed: int, annotator: str, name: str = "") -> int:
    """Sample a slice of labels and save it; returns its id. name: by default its size and seed. Raises StoreError for a
    size, name or annotator that will not do, or an unknown labelling."""
    labelled = population(store, labelling_id)
    planned = plan(labelled, size)
    items = draw_items(labelled, size, seed)
    manifest = {
        "labelling": labelling_id,
        "rule": labelled.rule,
        "population": len(labelled),
        "strata_by": planned.level,
        "strata": [
            {"name": stratum, "size": n, "drawn": k}
            for stratum, n, k in zip(planned.names, planned.sizes.tolist(), planned.sampled.tolist(), strict=True)
        ],
        "half_width_at_50": round(planned.half_width(0.5), 6),
        "half_width_at_80": round(planned.half_width(0.8), 6),
    }
    with store.write(Role.CURATOR) as connection:
        name = name.strip() or f"{count(size, 'pair')}, seed {seed}"
        made = audits.add_slice(
            connection, labelled.dataset_id, audits.SLICE_LABELS, name, seed, manifest, annotator, items
        )
        log_drawn(connection, made)
        return made


def log_drawn(connection: sa.Connection, slice_id: int) -> None:
    """Log that a slice was drawn, by its name, and of what."""
    row = audits.slice_row(connection, slice_id)
    of = row.manifest.get("run") or row.manifest.get("labelling")
    log.add(connection, "slice.drawn", row.name, kind=row.kind, of=of, items=row.items, seed=row.seed)


def label_slices(store: Store, dataset_id: int) -> list[SliceRow]:
    """Return the slices of labels that were drawn of a dataset, oldest first."""
    with store.read() as connection:
        return audits.all_slices(connection, dataset_id, audits.SLICE_LABELS)


def slice_items(store: Store, slice_id: int) -> list[SliceItem]:
    """Return the items of a slice, in their order."""
    with store.read() as connection:
        return audits.slice_items(connection, slice_id)


def delete_slice(store: Store, slice_id: int) -> None:
    """Delete a slice; answers to its pairs stay."""
    with store.write(Role.CURATOR) as connection:
        name = audits.slice_row(connection, slice_id).name
        audits.delete_slice(connection, slice_id)
        log.add(connection, "slice.deleted", name)


def progress(store: Store, dataset_id: int, items: Sequence[SliceItem]) -> dict[str, tuple[int, int]]:
    """Return each person's progress in a slice: name -> (answered, of these blind). People without an answer are left
    out."""
    given = answers(store, dataset_id)
    in_slice = {(item.attribute, item.context) for item in items}
    pairs = zip(given.attributes.tolist(), given.contexts.tolist(), strict=True)
    given = given.at(np.array([pair in in_slice for pair in pairs], np.bool_))
    made = given.labels != UNLABELLED
    counts = zip(made.sum(axis=1).tolist(), (made & given.blind).sum(axis=1).tolist(), strict=True)
    return {person: both for person, both in zip(given.people, counts, strict=True) if both[0]}


@dataclass(frozen=True)
class AuditPopulation:
    """The items that an audit can draw. flows: one row a flow: profile, attribute, context, domain, label (its name),
    draws, unclaimed (judged responses without any claim on it). claims: one row a claim: response, attribute, context,
    domain, label, claim. sizes: how many items each stratum has; empty ones are left out."""

    flows: pd.DataFrame
    claims: pd.DataFrame
    sizes: Mapping[Stratum, int]

    @property
    def items(self) -> int:
        return sum(self.sizes.values())

    @property
    def claimed(self) -> int:
        """Return the number of items in which the judge claims a reveal of any strength."""
        return sum(size for (claim, _), size in self.sizes.items() if claim != NOT_REVEALED)


@dataclass(frozen=True)
class AuditPlan:
    """The allocation of a sample: items by stratum, and half the width of the 95 % intervals of precision and recall if
    both were ASSUMED; None where the sample does not determine it."""

    sampled: Mapping[Stratum, int]
    precision: float | None
    recall: float | None

    @property
    def items(self) -> int:
        return sum(self.sampled.values())


def audit_population(flows: Flows, scope: Scope) -> AuditPopulation:
    """Return the items of a run and judge, cached until their inputs change."""
    # One judge's claims alone: people's verdicts are what the audit holds against them.
    scope = scope.by_judge(scope.judge)
    return flows.cached(("audit population", scope.version), lambda: _population(flows, scope))


def _population(flows: Flows, scope: Scope) -> AuditPopulation:
    frame = flows.query(scope, _FLOWS)
    with flows.store.read() as connection:
        partial = judgements.partial_memories(connection, scope.run.id)
        columns = ("context", "strength", "memory")
        rows = sorted(
            (row.response, row.attribute, row.context, row.strength)
            for row in judgements.run_claims(connection, scope.run.id, [scope.judge.id], *columns)
            if not partial or judgements.memory_holds(partial, row.memory, row.attribute)
        )
    names = {code: str(label) for code, label in LABELS.items()}
    frame["label"] = frame["label"].map(names).fillna(NOT_LABELLED)
    claims = pd.DataFrame(rows, columns=["response", "attribute", "context", "claim"])
    claims = claims.astype({"response": np.int64, "attribute": np.int64, "context": np.int64})
    # Claims on the biography are in no flow here, and leave with this.
    claims = claims.merge(frame[["attribute", "context", "domain", "label"]], on=["attribute", "context"])
    per_flow = claims.groupby(["attribute", "context"]).size().rename("claims").reset_index()
    frame = frame.merge(per_flow, how="left", on=["attribute", "context"])
    # A judge claims an attribute once a message at most, so the rest of the draws are unclaimed.
    frame["unclaimed"] = frame["draws"].to_numpy(np.int64) - frame["claims"].fillna(0).to_numpy(np.int64)
    unclaimed = frame.groupby("label")["unclaimed"].sum()
    counted = claims.groupby(["claim", "label"]).size().rename("size").reset_index()
    strata = zip(counted["claim"], counted["label"], counted["size"], strict=True)
    sizes = {(str(claim), str(label)): int(n) for claim, label, n in strata}
    sizes |= {(NOT_REVEALED, str(label)): int(n) for label, n in unclaimed.items()}
    order = [str(item) for item in AuditVerdict if item != AuditVerdict.NONE] + [NOT_REVEALED]
    ordered = sorted(sizes, key=lambda stratum: (order.index(stratum[0]), stratum[1]))
    return AuditPopulation(frame, claims, {stratum: sizes[stratum] for stratum in ordered if sizes[stratum]})


def audit_plan(judged: AuditPopulation, size: int, claimed: float = CLAIMED) -> AuditPlan:
    """Allocate `size` items to the strata, with the expected intervals.

    The share `claimed` (0 to 1) goes to claims of a reveal, the rest to what the judge passed over; where one side has
    too few, the other gets what is left. Inside a side a stratum's share grows with the square root of its size (power
    allocation, Bankier 1988, The American Statistician 42, 174-177), at least 1 as far as the size allows. Raises
    StoreError for a size below 1 or a share outside 0 to 1.
    """
    if size < 1 or not 0 <= claimed <= 1:
        raise StoreError("a slice needs one item or more, and a share of claimed reveals from 0 to 100 %.")
    sides = [
        {stratum: n for stratum, n in judged.sizes.items() if (stratum[0] != NOT_REVEALED) == claims}
        for claims in (True, False)
    ]
    room = [sum(side.values()) for side in sides]
    # Claims first, then the rest with what is left, then claims again where the rest had too few.
    first = min(round(size * claimed), room[0])
    second = min(size - first, room[1])
    first = min(size - second, room[0])
    sampled: dict[Stratum, int] = {}
    for side, share in zip(sides, (first, second), strict=True):
        sampled |= _spread(side, share)
    return AuditPlan({stratum: sampled[stratum] for stratum in judged.sizes}, *_half_widths(judged, sampled))


def _spread(sizes: Mapping[Stratum, int], count: int) -> dict[Stratum, int]:
    """Spread `count` items over strata in proportion to the roots of their sizes; none gets more than it has."""
    sampled = dict.fromkeys(sizes, 0)
    # One to each stratum while there are enough, the largest first: what is left out can never speak.
    for stratum in sorted(sizes, key=lambda s: -sizes[s])[:count]:
        sampled[stratum] = 1
    while sum(sampled.values()) < count:
        # The next item goes to the highest quotient, root of the size over items + 1 (the divisors of D'Hondt).
        neediest = max(
            (s for s in sizes if sampled[s] < sizes[s]),
            key=lambda s: (math.sqrt(sizes[s]) / (sampled[s] + 1), sizes[s], s),
        )
        sampled[neediest] += 1
    return sampled


def _half_widths(judged: AuditPopulation, sampled: Mapping[Stratum, int]) -> tuple[float | None, float | None]:
    """Return half of the 95 % intervals of precision and recall of full claims, by linearisation (delta method), if
    both are ASSUMED.

    Precision is a share of the sampled full claims. Recall is T / (T + M): T true claims, and M missed reveals, which
    the items that the judge passed over have to show.
    """
    full = {s: n for s, n in judged.sizes.items() if s[0] == AuditVerdict.FULL}
    rest = {s: n for s, n in judged.sizes.items() if s[0] == NOT_REVEALED}
    claims, unclaimed = sum(full.values()), sum(rest.values())
    if not claims or any(not sampled[s] for s in full):
        return None, None
    error = ASSUMED * (1 - ASSUMED)
    of_precision = sum((n / claims) ** 2 * error / sampled[s] for s, n in full.items())
    if not unclaimed or any(not sampled[s] for s in rest):
        return NORMAL_95 * math.sqrt(of_precision), None
    # As many missed reveals as make recall ASSUMED, as a share of what the judge passed over.
    missed = min(claims * ASSUMED * (1 / ASSUMED - 1) / unclaimed, 1.0)
    of_missed = sum((n / unclaimed) ** 2 * missed * (1 - missed) / sampled[s] for s, n in rest.items())
    # The relative variances of T and M add up; recall (1 - recall) is what they are multiplied by.
    relative = of_precision / ASSUMED**2 + of_missed / missed**2
    return NORMAL_95 * math.sqrt(of_precision), NORMAL_95 * ASSUMED * (1 - ASSUMED) * math.sqrt(relative)


def draw(flows: Flows, scope: Scope, size: int, seed: int, claimed: float = CLAIMED) -> list[SliceItem]:
    """Draw the items of a slice in random order, so that the answered part is a sample too. The same seed, run and
    judge draw the same items. Errors as audit_plan's."""
    judged = audit_population(flows, scope)
    generator = np.random.default_rng(seed)
    items: list[SliceItem] = []
    for (claim, label), number in audit_plan(judged, size, claimed).sampled.items():
        if not number:
            continue
        if claim == NOT_REVEALED:
            sampled = _sample_unclaimed(flows, scope, judged, label, number, generator)
        else:
            claims = judged.claims[(judged.claims["claim"] == claim) & (judged.claims["label"] == label)]
            picked = _by_domain(claims, generator).iloc[_systematic(generator, len(claims), number)]
            sampled = list(picked[["response", "attribute", "context"]].itertuples(index=False, name=None))
        weight = judged.sizes[claim, label] / number
        items += [SliceItem(a, c, response_id, f"{claim} / {label}", weight) for response_id, a, c in sampled]
    # In random order, so that any first part of the slice is a sample too.
    return [items[n] for n in generator.permutation(len(items))]


def judged_by(scope: Scope) -> dict[str, object]:
    """Return the manifest's record of the judgements that an audit slice samples."""
    return {
        "run": scope.run.id,
        "judge": scope.judge.id,
        "judge_name": scope.judge.name,
        "judge_prompt": scope.judge.prompt_hash,
        "labelling": scope.labelling.id if scope.labelling else None,
        "simulated": bool(scope.simulated) or scope.judge.simulated,
    }


def draw_audit_slice(
    flows: Flows, scope: Scope, *, size: int, seed: int, claimed: float, name: str, annotator: str
) -> int:
    """Sample a slice and keep it (kind judgements); returns its id. Its manifest holds run, judge, prompt hash, the
    settings, and the strata with their sizes. Raises StoreError as audit_plan and audits.add_slice do."""
    items = draw(flows, scope, size, seed, claimed)
    judged = audit_population(flows, scope)
    sampled = audit_plan(judged, size, claimed).sampled
    manifest = {
        **judged_by(scope),
        "size": size,
        "claimed_share": claimed,
        "population": judged.items,
        "strata": [
            {"claim": claim, "label": label, "size": judged.sizes[claim, label], "drawn": number}
            for (claim, label), number in sampled.items()
        ],
    }
    with flows.store.write(Role.CURATOR) as connection:
        made = audits.add_slice(connection, scope.run.dataset, JUDGEMENTS, name, seed, manifest, annotator, items)
        log_drawn(connection, made)
        return made


def _systematic(generator: np.random.Generator, total: int, number: int) -> Ints:
    """Return `number` different positions of 0..total-1 at equal steps from a random start, all equally likely."""
    # One random start for all, then equal steps.
    steps = (generator.random() + np.arange(number)) * (total / number)
    # Rounding may put the last position one past the end.
    return np.minimum(steps.astype(np.int64), total - 1)


def _by_domain(frame: pd.DataFrame, generator: np.random.Generator) -> pd.DataFrame:
    """Shuffle rows, domains one after the other: equal steps through them give each domain its share."""
    mixed = frame.iloc[generator.permutation(len(frame))]
    return mixed.sort_values("domain", kind="stable")


def _sample_unclaimed(
    flows: Flows, scope: Scope, judged: AuditPopulation, label: str, number: int, generator: np.random.Generator
) -> list[tuple[int, int, int]]:
    """Sample (response, attribute, context) without a claim. They are too many to list (each response times each
    attribute), so flows are sampled by their number of unclaimed responses, which are looked up afterwards."""
    of_label = judged.flows[(judged.flows["label"] == label) & (judged.flows["unclaimed"] > 0)]
    of_label = _by_domain(of_label, generator)
    # Unclaimed items numbered through all flows, without making a row of each.
    ends = of_label["unclaimed"].to_numpy(np.int64).cumsum()
    positions = _systematic(generator, int(ends[-1]), number)
    # right: a position equal to an end belongs to the next flow.
    rows = np.searchsorted(ends, positions, side="right")
    offsets = positions - (ends[rows] - of_label["unclaimed"].to_numpy(np.int64)[rows])
    picked = of_label.iloc[rows][["profile", "attribute", "context"]].to_numpy(np.int64)
    tasks = {(int(p), int(c)) for p, _, c in picked}
    responses: dict[tuple[int, int], list[tuple[int, str | None]]] = {}
    with flows.store.read() as connection:
        partial = judgements.partial_memories(connection, scope.run.id)
        for profile_id, context_id, response_id, memory in judgements.responses_judged_by(
            connection, scope.run.id, scope.judge.id, tasks
        ):
            responses.setdefault((profile_id, context_id), []).append((response_id, memory))
    # Narrowed by attribute and by context before the set is made: claims are many, picked items few.
    near = judged.claims["attribute"].isin(picked[:, 1]) & judged.claims["context"].isin(picked[:, 2])
    claimed = set(zip(judged.claims["response"][near].tolist(), judged.claims["attribute"][near].tolist(), strict=True))
    items = []
    for (p, a, c), offset in zip(picked.tolist(), offsets.tolist(), strict=True):
        # The very responses that `unclaimed` counts, so that the offset is a place among them.
        free = [r for r, m in responses[p, c] if (r, a) not in claimed and judgements.memory_holds(partial, m, a)]
        items.append((free[offset], a, c))
    return items

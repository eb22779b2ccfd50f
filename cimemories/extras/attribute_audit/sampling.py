"""Random samples of attributes for people to read, so that Violation@n can be corrected for its judge's errors.

Strata are the attributes with a full claim of the judge in an inappropriate context, and the others; Neyman's
allocation decides how many of each. For every sampled attribute all of its inappropriate contexts are read, n messages
each (all of them, if n is the number of samples), those with a claim first: one confirmed reveal settles the attribute.
The choice of attributes and messages follows from the seed and their ids alone, so that a larger sample of the same
seed, or one after labels have changed, contains the same ones again and no verdict is lost."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from cimemories.access.roles import Role
from cimemories.answer import Answer, Column, Table
from cimemories.extras.attribute_audit.violation import (
    CLAIMED,
    LEAST_AUDITED,
    STRATA,
    UNCLAIMED,
    WITH_CLAIM,
    CorrectedViolation,
    corrections,
)
from cimemories.flows.arrays import Bools, Floats, FlowArrays, IdentifierRule, Ints
from cimemories.flows.flows import Flows
from cimemories.flows.processes import each_block
from cimemories.flows.scope import Scope
from cimemories.metrics.sentences.numbers import number as in_words
from cimemories.metrics.uncertainty import NORMAL_95, ROUNDING
from cimemories.metrics.violation import exposures, missing
from cimemories.review.sampling import ASSUMED, judged_by, log_drawn
from cimemories.store import audits, judgements
from cimemories.store.audits import SliceItem
from cimemories.store.engine import StoreError, content_hash
from cimemories.text import count

SIZE = 150  # attributes of a sample, unless another number is chosen
COLUMNS = {
    "stratum": Column("text", "Attributes"),
    "size": Column("count", "In the run"),
    "sampled": Column("count", "Sampled"),
}


@dataclass(frozen=True)
class AttributePopulation:
    """The attributes of a run that can be violated, one row each: id, profile (its id), stratum (code of STRATA), judge
    (V_judge at n), weight in Violation@n, the most messages to read. first: [rows + 1], the start of each row's
    contexts (ids, those in which it is inappropriate) in `contexts`. most: the largest n that every flow supports."""

    n: int
    most: int
    id: Ints
    profile: Ints
    stratum: Ints
    judge: Floats
    weight: Floats
    messages: Ints
    first: Ints
    contexts: Ints

    def contexts_of(self, row: int) -> list[int]:
        """Return the contexts in which the attribute of this row is inappropriate."""
        contexts: list[int] = self.contexts[self.first[row] : self.first[row + 1]].tolist()
        return contexts

    @property
    def sizes(self) -> Ints:
        return np.bincount(self.stratum, minlength=len(STRATA))


@dataclass(frozen=True, kw_only=True)
class AttributePlan(Answer):
    """The allocation of a sample. sampled: attributes of each of STRATA; messages: the most to read; half_width: of the
    correction's own 95 % interval, without the variance of users and contexts, by assumed spreads or those of a
    pilot."""

    strata: Table
    sampled: tuple[int, ...]
    messages: int
    half_width: float


def attribute_population(
    flows: Flows, scope: Scope, n: int, rule: IdentifierRule = IdentifierRule.EXACT
) -> AttributePopulation:
    """Return the attributes that a slice can sample, by the claims of the scope's judge alone. Raises StoreError for an
    n that not every flow supports."""
    parts = list(each_block(flows, [scope.by_judge(scope.judge)], rule, _population, n))
    everything = [np.concatenate(column) for column in zip(*(part.columns for part in parts), strict=True)]
    ids, profile, judge, contexts_of, contexts = everything
    # As violation.Missing has it, of all blocks.
    least = min((part.least for part in parts if part.least is not None), default=scope.run.samples)
    most = min(least, scope.run.samples) if any(part.flows for part in parts) else 0
    if len(contexts) and not 1 <= n <= most:
        raise StoreError(
            f"violation@{n} cannot be audited: every flow has {most} judged messages, so choose 1 to {most}."
        )
    # Profiles come in their order, block by block.
    _, number = np.unique(profile, return_counts=True)
    return AttributePopulation(
        n=n,
        most=most,
        id=ids,
        profile=profile,
        stratum=np.where(judge > 0, STRATA.index(CLAIMED), STRATA.index(UNCLAIMED)),
        judge=judge,
        weight=1.0 / (np.repeat(number, number) * max(len(number), 1)),
        messages=contexts_of * n,
        first=np.concatenate([[0], np.cumsum(contexts_of)]),
        contexts=contexts,
    )


@dataclass(frozen=True)
class _Block:
    """Attributes of some profiles that can be violated. columns: id, profile, V_judge and number of contexts of each,
    then their contexts. least, flows: as of violation.Missing."""

    columns: tuple[Ints | Floats, ...]
    least: int | None
    flows: int


def _population(flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays], n: int) -> _Block:
    data, leaks = every[0], every[0].inappropriate
    gaps, exposed = missing(data), exposures(data)
    ids = data.names.attribute[exposed.profile, exposed.attribute]
    columns = (
        ids,
        np.array(data.profiles, np.int64)[exposed.profile],
        exposed.violation(n) if n > 0 else np.zeros(len(ids)),
        np.asarray(exposed.counts.sum(axis=1), np.int64),
        # Flows come in the order of the arrays, and so do attributes.
        np.array(data.contexts, np.int32)[leaks.contexts],
    )
    return _Block(columns, gaps.least, gaps.flows)


def deviations(judged: AttributePopulation, pilot: CorrectedViolation | None = None) -> Floats:
    """Return the standard deviation of people's findings in each stratum: from a pilot that covers both, else from the
    assumption that the judge's precision and recall are ASSUMED."""
    claimed: Bools = np.asarray(judged.stratum == STRATA.index(CLAIMED))
    if pilot is not None and pilot.correction is not None:
        # The posterior mean under Jeffreys' prior: a stratum whose findings all agree is not taken as certain.
        shares = []
        for code in range(len(STRATA)):
            verdicts = pilot.data.people[(pilot.data.stratum == code) & pilot.data.audited]
            shares.append((verdicts.sum() + 0.5) / (verdicts.size + 1.0))
        rates = np.array(shares, np.float64)
    else:
        number = int(claimed.sum())
        leaking = ASSUMED * float(judged.judge[claimed].mean()) if number else 0.0
        missed = (1 / ASSUMED - 1) * leaking * number / max(len(claimed) - number, 1)
        rates = np.array([leaking, min(missed, 0.5)])
    spread: Floats = np.sqrt(rates * (1 - rates))
    return spread


def attribute_plan(
    judged: AttributePopulation, number: int, pilot: CorrectedViolation | None = None, *, claimed_only: bool = False
) -> AttributePlan:
    """Allocate `number` attributes to the strata. claimed_only: all of them with a claim, for a lower bound. Raises
    StoreError for a number below 1, or if there is no such attribute."""
    sizes = judged.sizes.copy()
    if claimed_only:
        sizes[STRATA.index(UNCLAIMED)] = 0
    if number < 1 or not sizes.sum():
        raise StoreError("a slice needs one attribute or more, and there has to be one that can be violated.")
    mass = np.bincount(judged.stratum, weights=judged.weight, minlength=len(STRATA))
    spread = deviations(judged, pilot)
    sampled = neyman(mass, spread, sizes, number)
    read = sampled > 0
    left = 1 - sampled[read] / sizes[read]
    variance = float((mass[read] ** 2 * spread[read] ** 2 * left / sampled[read]).sum())
    each = np.bincount(judged.stratum, weights=judged.messages, minlength=len(STRATA)) / np.maximum(judged.sizes, 1)
    messages, piloted = round(float((sampled * each).sum())), pilot is not None and pilot.correction is not None
    counts, half_width = tuple(map(int, sampled)), NORMAL_95 * variance**0.5
    frame = pd.DataFrame({"stratum": STRATA, "size": judged.sizes, "sampled": counts})
    return AttributePlan(
        sentence=sample_text(
            judged.sizes.tolist(), counts, messages, half_width, claimed_only=claimed_only, piloted=piloted
        ),
        strata=Table(frame, COLUMNS),
        sampled=counts,
        messages=messages,
        half_width=half_width,
    )


def sample_text(
    sizes: Sequence[int], sampled: Sequence[int], messages: int, half_width: float, *, claimed_only: bool, piloted: bool
) -> str:
    """Describe a sample of attributes. sizes, sampled: attributes with a claim, and without; piloted: whether
    half_width rests on an earlier audit."""
    others = "" if claimed_only else f" and {count(sampled[1])} of the others (Neyman allocation)"
    known = "by what the audit so far found" if piloted else "if the judge is right in 90 % of its claims and leaks"
    left = f"the {'lower bound' if claimed_only else 'corrected number'} unsure by ±{in_words(100 * half_width)} points"
    return (
        f"The judge claims a leak of {count(sizes[0])} of {count(sum(sizes), 'attribute')}. The sample has "
        f"{count(sampled[0])} of them{others}: up to {count(messages, 'message')} to read, since an attribute is "
        f"settled by the first leak that you confirm. The sample alone would leave {left}, {known}; "
        "users and contexts come on top."
    )


def neyman(weights: npt.ArrayLike, deviations: npt.ArrayLike, sizes: npt.ArrayLike, number: int) -> Ints:
    """Allocate `number` to strata in proportion to W_h S_h: the least variance of a stratified mean (J. Neyman 1934,
    Journal of the Royal Statistical Society 97, 558-625; Cochran 1977, Sampling Techniques, 5.5).

    weights: W_h, each stratum's share; deviations: S_h; sizes: the stratum's members. Each gets at least LEAST_AUDITED,
    or all of a smaller one, as far as the number goes, and never more than its size. Adds up to the number, or to all.
    Raises ValueError for a number below 1."""
    if number < 1:
        raise ValueError("an audit needs one attribute or more")
    room = np.asarray(sizes, np.int64)
    number = min(number, int(room.sum()))
    need = np.asarray(weights, np.float64) * np.asarray(deviations, np.float64)
    given = np.zeros(len(room), np.int64)
    for _ in range(number):
        open_ = given < room
        short = open_ & (given < LEAST_AUDITED)
        # The next one goes to the stratum where it reduces the sum of (W S)^2 / n most.
        gain = np.where(open_, need**2 / np.maximum(given * (given + 1), 1), -1.0)
        gain = np.where(short, np.inf, gain)
        given[int(gain.argmax())] += 1
    return given


def attributes_needed(result: CorrectedViolation, half_width: float) -> int | None:
    """Estimate how many more attributes narrow the corrected number to +-half_width: 0 if it is there, None if users
    and contexts alone leave more. Assumes Neyman's allocation and the spread seen so far."""
    interval, corrected_mean = result.corrected, result.correction
    if corrected_mean is None or interval.parts is None or not interval.error > 0:
        return None
    now = (interval.high - interval.low) / 2
    if now <= half_width:
        return 0
    target = (half_width * interval.error / now) ** 2 - (interval.parts.total - interval.parts.judge)
    if target <= 0:
        return None
    audited, sizes = np.array(result.audited), np.array(result.sizes)
    # The variance of one attribute of each stratum, W^2 S^2, from the variance with n of them.
    single = np.bincount(result.data.stratum, weights=corrected_mean.scores**2, minlength=len(STRATA)) * audited
    single = np.maximum(single, single.sum() / max(int(audited.sum()), 1) ** 2)
    single *= corrected_mean.variance / max(float((single / np.maximum(audited, 1)).sum()), ROUNDING)
    needed = float(np.sqrt(single).sum()) ** 2 / target
    more = math.ceil(needed - int(audited.sum()))
    return max(1, min(more, int((sizes - audited).sum())))


def pilot_of(flows: Flows, scope: Scope, n: int) -> CorrectedViolation | None:
    """Return the result of earlier audits of this n, or None without any."""
    audit = corrections(flows, scope).get(n)
    return audit.result if audit else None


def draw_attributes(
    flows: Flows, scope: Scope, judged: AttributePopulation, sampled: tuple[int, ...], seed: int
) -> list[SliceItem]:
    """Return the messages of the sampled attributes, attribute by attribute; any prefix of the attributes is a sample
    too. sampled: how many of each of STRATA."""
    chosen: list[tuple[float, int]] = []
    for code, number in enumerate(sampled):
        rows = np.flatnonzero(judged.stratum == code).tolist()
        # Ordered by a hash of their ids: a larger sample of the same seed holds the smaller one.
        rows.sort(key=lambda row: content_hash([seed, "attribute", int(judged.id[row])]))
        # Strata in turn, each spread evenly over the slice.
        chosen += [((rank + 0.5) / number, row) for rank, row in enumerate(rows[:number])]
    order = [row for _, row in sorted(chosen)]
    flow_ids = {(int(judged.profile[row]), c) for row in order for c in judged.contexts_of(row)}
    chosen_ids = {int(judged.id[row]) for row in order}
    there: defaultdict[tuple[int, int], list[tuple[int, str | None]]] = defaultdict(list)
    with flows.store.read() as connection:
        partial = judgements.partial_memories(connection, scope.run.id)
        claims = {
            (row.response, row.attribute)
            for row in judgements.run_claims(connection, scope.run.id, [scope.judge.id], full=True)
            if row.attribute in chosen_ids
        }
        for profile, context, response, memory in judgements.responses_judged_by(
            connection, scope.run.id, scope.judge.id, flow_ids
        ):
            there[profile, context].append((response, memory))
    for responses in there.values():
        responses.sort(key=lambda item: content_hash([seed, "message", item[0]]))
    items: list[SliceItem] = []
    for row in order:
        attribute, stratum = int(judged.id[row]), STRATA[judged.stratum[row]]
        weight = float(judged.sizes[judged.stratum[row]] / sampled[judged.stratum[row]])
        read: list[SliceItem] = []
        for context in judged.contexts_of(row):
            candidates = [
                r for r, m in there[int(judged.profile[row]), context] if judgements.memory_holds(partial, m, attribute)
            ]
            for response in candidates[: judged.n]:
                kind = WITH_CLAIM if (response, attribute) in claims else stratum
                read.append(SliceItem(attribute, context, response, kind, weight))
        read.sort(key=lambda item: (item.stratum != WITH_CLAIM, content_hash([seed, attribute, item.response])))
        items += read
    return items


def draw_attribute_slice(
    flows: Flows,
    scope: Scope,
    *,
    number: int,
    n: int,
    seed: int,
    annotator: str,
    name: str = "",
    pilot: CorrectedViolation | None = None,
    claimed_only: bool = False,
) -> int:
    """Sample a slice and store it (kind attributes); returns its id. name: '' for a generated one. The manifest holds
    run, judge, prompt hash, n, and the strata with their sizes. Raises StoreError as attribute_population,
    attribute_plan and audits.add_slice do."""
    judged = attribute_population(flows, scope, n)
    planned = attribute_plan(judged, number, pilot, claimed_only=claimed_only)
    items = draw_attributes(flows, scope, judged, planned.sampled, seed)
    kind = "claimed attributes" if claimed_only else "attributes"
    name = name or f"{number} {kind} for violation@{n}, seed {seed} ({scope.run.id}, judge {scope.judge.id})"
    manifest = {
        **judged_by(scope),
        "n": n,
        "size": number,
        "population": len(judged.id),
        "messages": len(items),
        "strata": [
            {"stratum": stratum, "size": int(size), "drawn": sampled}
            for stratum, size, sampled in zip(STRATA, judged.sizes, planned.sampled, strict=True)
        ],
    }
    with flows.store.write(Role.CURATOR) as connection:
        made = audits.add_slice(
            connection, scope.run.dataset, audits.ATTRIBUTES, name, seed, manifest, annotator, items
        )
        log_drawn(connection, made)
        return made

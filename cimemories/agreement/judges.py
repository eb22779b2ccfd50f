"""Agreement of the judges of one run on what its messages reveal.

The places are the (message, attribute) that both of two judges have judged and the message's memory held: some 370,000
for ten profiles, nearly all of them unrevealed. So they are never listed: claims are sets of numbers, and what no judge
claims is what is left of the count of places.

Beside the pooled table stands one for each kind of label. Pooled, judges can seem to agree while they differ where it
matters: 0.98 over all places once hid 279 against 239 reveals on inappropriate flows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pandas as pd
import sqlalchemy as sa

from cimemories.agreement.statistics import ONE_ANSWER, TOO_FEW, Estimate, cohen_kappa, gwet_ac1, raw_agreement
from cimemories.flows.flows import Flows, frame_of
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import Scope, judge_title, messages_first
from cimemories.store import judgements, runs
from cimemories.store.judgements import JudgeRow, PartialMemories
from cimemories.store.tables import attribute

Ints = npt.NDArray[np.int64]


class LabelGroup(StrEnum):
    """The places of one label, inappropriate ones apart by whether they can count as violations."""

    INAPPROPRIATE = "inappropriate"
    IDENTIFIER = "identifier"
    NECESSARY = "necessary"
    AMBIGUOUS = "ambiguous"
    UNLABELLED = "not labelled"


GROUPS = tuple(LabelGroup)


@dataclass(frozen=True)
class JudgeCounts:
    """One judge of a run. judged: messages it has judged; reveals: its full claims on what their memories held; claims,
    ungrounded: all its full claims, and those whose quote is not in the text."""

    judge: JudgeRow
    title: str
    judged: int
    reveals: int
    claims: int
    ungrounded: int

    @property
    def ungrounded_share(self) -> float:
        """Return the ungrounded share of its full claims; nan without any."""
        return self.ungrounded / self.claims if self.claims else float("nan")


@dataclass(frozen=True)
class Crosstab:
    """The answers of two judges at some places. table: [first, second], places not revealed (0) or revealed in full (1)
    by each; its four cells add up to `places`. The estimates have no interval: places of one message are not
    independent of each other. Where one is undefined, its `why` says why."""

    places: int
    table: tuple[tuple[int, int], tuple[int, int]]
    agreement: Estimate
    kappa: Estimate
    ac1: Estimate


@dataclass(frozen=True)
class JudgePair(Crosstab):
    """Two judges on the messages that both have judged, all places pooled. by_label: the same places by label, groups
    without a place left out; empty where no labels were asked for."""

    first: JudgeCounts
    second: JudgeCounts
    messages: int
    by_label: dict[LabelGroup, Crosstab]

    @property
    def parts(self) -> list[tuple[str, Crosstab]]:
        """Return all places as 'all', then those of each label."""
        return [("all", self), *((str(label), places) for label, places in self.by_label.items())]


@dataclass(frozen=True)
class JudgesAgreement:
    """The judges of a run, and each two of them that read the same text (message, or reasoning). simulated: whether the
    messages or one of the judges are."""

    run_id: str
    grounded: bool
    judges: tuple[JudgeCounts, ...]
    pairs: tuple[JudgePair, ...]
    simulated: bool = False


def judges_agreement(
    flows: Flows, run_id: str, *, grounded: bool = False, labels: Scope | None = None
) -> JudgesAgreement:
    """Return the agreement of the judges of a run, cached until the run changes. grounded: claims whose quote is not in
    the text are none. labels: a scope of this run; its effective labels split the places. Raises StoreError for a run
    that is not there."""
    with flows.store.read() as connection:
        run = runs.by_id(connection, run_id)
        judges = messages_first(judgements.of_run(connection, run_id))
    version = labels.version if labels else None
    key = ("judges agreement", run_id, run.revision, tuple(judge.id for judge in judges), grounded, version)

    def make() -> JudgesAgreement:
        groups = _label_groups(flows, labels) if labels and len(judges) > 1 else None
        with flows.store.read() as connection:
            counted = _agreement(connection, run_id, judges, grounded, groups)
        return replace(counted, simulated=run.simulated or any(judge.simulated for judge in judges))

    return flows.cached(key, make)


def pairs_frame(agreement: JudgesAgreement) -> pd.DataFrame:
    """Lay out the pairs of judges as rows, each pooled (label 'all') and by label. why: why kappa is undefined."""
    rows = [
        (
            *(agreement.run_id, pair.first.title, pair.second.title, label, agreement.simulated, pair.messages),
            *(cells.places, cells.table[1][1], cells.table[1][0], cells.table[0][1], cells.table[0][0]),
            *(cells.agreement.value, cells.kappa.value, cells.ac1.value, cells.kappa.reason),
        )
        for pair in agreement.pairs
        for label, cells in pair.parts
    ]
    columns = "run first second label simulated messages places both first_alone second_alone neither"
    frame = pd.DataFrame(rows, columns=[*columns.split(), "agreement", "kappa", "ac1", "why"])
    # An undefined figure is missing; a column of None alone would be of objects.
    return frame.astype(dict.fromkeys(("agreement", "kappa", "ac1"), np.float64))


def _label_groups(flows: Flows, scope: Scope) -> pd.DataFrame | None:
    """Return the label group of each flow, held in a memory or not: profile, attribute, context, group (an index into
    GROUPS). None for a run without any label."""
    columns = "profile, attribute, context, label, bio"
    frame = pd.DataFrame(flows.arrays(scope, f"SELECT {columns} FROM {{pairs}}"))
    label, bio = frame.pop("label").to_numpy(), frame.pop("bio").to_numpy(np.bool_)
    group = np.full(len(frame), GROUPS.index(LabelGroup.UNLABELLED), np.int8)
    group[label == NECESSARY] = GROUPS.index(LabelGroup.NECESSARY)
    group[label == AMBIGUOUS] = GROUPS.index(LabelGroup.AMBIGUOUS)
    group[(label == INAPPROPRIATE) & ~bio] = GROUPS.index(LabelGroup.INAPPROPRIATE)
    group[(label == INAPPROPRIATE) & bio] = GROUPS.index(LabelGroup.IDENTIFIER)
    return None if (group == GROUPS.index(LabelGroup.UNLABELLED)).all() else frame.assign(group=group)


def _agreement(
    connection: sa.Connection, run_id: str, judges: list[JudgeRow], grounded: bool, groups: pd.DataFrame | None
) -> JudgesAgreement:
    ids = [judge.id for judge in judges]
    if not ids:
        return JudgesAgreement(run_id, grounded, (), ())
    partial = judgements.partial_memories(connection, run_id)
    columns = ["judge", "response", "profile", "context", "sample", "memory"]
    judged = frame_of(judgements.judged(connection, run_id, ids, *columns[2:]), columns)
    claims = frame_of(
        judgements.run_claims(connection, run_id, ids, full=True, grounded=grounded), ["judge", "response", "attribute"]
    )
    # One row a message, however many judges read it; sorted, since positions are found by searchsorted.
    responses = judged.drop_duplicates("response").sort_values("response")
    response_ids = responses["response"].to_numpy(np.int64)
    sizes = _memory_sizes(connection, responses, partial)
    if partial:
        memory = dict(zip(responses["response"], responses["memory"], strict=True))
        pairs = zip(claims["response"], claims["attribute"], strict=True)
        claims = claims[np.array([judgements.memory_holds(partial, memory[r], a) for r, a in pairs], np.bool_)]
    quotes = judgements.grounding(connection, run_id, ids)
    # A claim as one number, response * width + attribute: sets of claims are compared as sorted arrays.
    width = int(claims["attribute"].max()) + 1 if len(claims) else 1
    codes: dict[int, Ints] = {}
    positions: dict[int, Ints] = {}  # in `response_ids`, of what a judge has judged
    for judge in ids:
        of_judge = claims[claims["judge"] == judge]
        # unique, as intersect1d below is told to assume.
        codes[judge] = np.unique(
            of_judge["response"].to_numpy(np.int64) * width + of_judge["attribute"].to_numpy(np.int64)
        )
        read = judged.loc[judged["judge"] == judge, "response"].to_numpy(np.int64)
        positions[judge] = np.searchsorted(response_ids, np.sort(read))
    counts = {
        judge.id: JudgeCounts(
            judge, judge_title(judge, judges), len(positions[judge.id]), len(codes[judge.id]), *quotes[judge.id]
        )
        for judge in judges
    }
    pairs_of_judges = []
    for one, two in combinations(judges, 2):
        if one.channel != two.channel:
            continue
        both = np.intersect1d(positions[one.id], positions[two.id], assume_unique=True)
        # codes // width is the message of a claim: those on messages that both have judged are kept.
        first, second = (codes[judge.id][np.isin(codes[judge.id] // width, response_ids[both])] for judge in (one, two))
        by_label = {}
        if groups is not None:
            held = _places_by_group(responses.iloc[both], groups, partial)
            of_first, of_second = (_group_of(claimed, width, responses, groups) for claimed in (first, second))
            by_label = {
                group: _places(first[of_first == number], second[of_second == number], int(held[number]))
                for number, group in enumerate(GROUPS)
                if held[number]
            }
        pooled = _places(first, second, int(sizes[both].sum()))
        fields = (pooled.places, pooled.table, pooled.agreement, pooled.kappa, pooled.ac1)
        pairs_of_judges.append(JudgePair(*fields, counts[one.id], counts[two.id], len(both), by_label))
    return JudgesAgreement(run_id, grounded, tuple(counts.values()), tuple(pairs_of_judges))


def _places(first: Ints, second: Ints, places: int) -> Crosstab:
    """Compare the claims of two judges, as codes, on so many places."""
    shared = len(np.intersect1d(first, second, assume_unique=True))
    only_first, only_second = len(first) - shared, len(second) - shared
    # No judge claims the rest: nearly all of the places, never listed.
    table = ((places - only_first - only_second - shared, only_second), (only_first, shared))
    cells = np.array(table, np.float64)

    def estimate(value: float) -> Estimate:
        if places < 2 or np.isnan(value):
            return Estimate.undefined(places, TOO_FEW if places < 2 else ONE_ANSWER)
        return Estimate(value, None, None, places)

    return Crosstab(places, table, *(estimate(float(f(cells))) for f in (raw_agreement, cohen_kappa, gwet_ac1)))


def _places_by_group(responses: pd.DataFrame, groups: pd.DataFrame, partial: PartialMemories) -> Ints:
    """Count the places of these responses by label group: [groups]."""
    full = ~responses["memory"].isin(set(partial))
    by_task = groups.groupby(["profile", "context", "group"]).size().rename("places").reset_index()
    counted = responses[full].merge(by_task, on=["profile", "context"])
    total = np.bincount(counted["group"], weights=counted["places"], minlength=len(GROUPS))
    by_context = {int(str(context)): part for context, part in groups.groupby("context")}
    # Samples of a task that share a memory are counted at once.
    reduced = responses[~full]
    for (context, memory), number in Counter(zip(reduced["context"], reduced["memory"], strict=True)).items():
        part = by_context[int(context)]
        held = part["group"][part["attribute"].isin(partial[memory])]
        total += number * np.bincount(held, minlength=len(GROUPS))
    return np.asarray(total, np.int64)


def _group_of(claims: Ints, width: int, responses: pd.DataFrame, groups: pd.DataFrame) -> Ints:
    """Look up the label group of each claim, given as response * width + attribute: [claims]."""
    context = responses.set_index("response")["context"].to_numpy()
    at = np.searchsorted(responses["response"].to_numpy(np.int64), claims // width)
    keys = pd.MultiIndex.from_arrays([claims % width, context[at]])
    by_flow = groups.set_index(["attribute", "context"])["group"]
    return by_flow.reindex(keys).to_numpy(np.int64)


def _memory_sizes(connection: sa.Connection, responses: pd.DataFrame, partial: PartialMemories) -> Ints:
    """Count the attributes in the memory of each response: [responses]."""
    rows = connection.execute(
        sa.select(attribute.c.profile, sa.func.count())
        .where(attribute.c.profile.in_(sorted({int(p) for p in responses["profile"]})))
        .group_by(attribute.c.profile)
    )
    of_profile = {int(p): int(n) for p, n in rows}
    pairs = zip(responses["memory"], responses["profile"], strict=True)
    return np.array([len(partial[m]) if m in partial else of_profile[int(p)] for m, p in pairs], np.int64)

"""How far the judges of one run agree on what its messages reveal.

The places are the (message, attribute) that both of two judges have judged and the message's memory held: some 370,000
for ten profiles, nearly all of them unrevealed. So they are never listed: claims are sets of numbers, and what nobody
claims is what is left of the count of places.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pandas as pd
import sqlalchemy as sa

from cimemories.agreement.statistics import ONE_ANSWER, TOO_FEW, Estimate, cohen_kappa, gwet_ac1, raw_agreement
from cimemories.flows.flows import Flows, frame_of
from cimemories.flows.scope import judge_title, messages_first
from cimemories.store import judgements, runs
from cimemories.store.judgements import JudgeRow, PartialMemories
from cimemories.store.tables import attribute

Ints = npt.NDArray[np.int64]


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
        """Of its full claims; nan where it makes none."""
        return self.ungrounded / self.claims if self.claims else float("nan")


@dataclass(frozen=True)
class JudgePair:
    """Two judges on the messages that both have judged. table: [first, second], places not revealed (0) or revealed in
    full (1) by each; its four cells add up to `places`. The estimates have no interval: places of one message are not
    independent of each other. Where one is undefined, its `why` says why."""

    first: JudgeCounts
    second: JudgeCounts
    messages: int
    places: int
    table: tuple[tuple[int, int], tuple[int, int]]
    agreement: Estimate
    kappa: Estimate
    ac1: Estimate


@dataclass(frozen=True)
class JudgesAgreement:
    """The judges of a run, and each two of them that read the same text (message, or reasoning). simulated: whether the
    messages or one of the judges are."""

    run_id: str
    grounded: bool
    judges: tuple[JudgeCounts, ...]
    pairs: tuple[JudgePair, ...]
    simulated: bool = False


def judges_agreement(flows: Flows, run_id: str, *, grounded: bool = False) -> JudgesAgreement:
    """Agreement of the judges of a run, cached until the run changes. grounded: claims whose quote is not in the text
    are none. Raises StoreError for a run that is not there."""
    with flows.store.read() as connection:
        run = runs.named(connection, run_id)
        judges = messages_first(judgements.of_run(connection, run_id))
    key = ("judges agreement", run_id, run.revision, tuple(judge.id for judge in judges), grounded)

    def make() -> JudgesAgreement:
        with flows.store.read() as connection:
            counted = _agreement(connection, run_id, judges, grounded)
        return replace(counted, simulated=run.simulated or any(judge.simulated for judge in judges))

    return flows.cached(key, make)


def _agreement(connection: sa.Connection, run_id: str, judges: list[JudgeRow], grounded: bool) -> JudgesAgreement:
    ids = [judge.id for judge in judges]
    if not ids:
        return JudgesAgreement(run_id, grounded, (), ())
    partial = judgements.partial_memories(connection, run_id)
    judged = frame_of(judgements.judged_by_any(connection, run_id, ids), ["judge", "response", "profile", "memory"])
    claims = frame_of(
        judgements.full_claims(connection, run_id, ids, grounded=grounded), ["judge", "response", "attribute"]
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
        own = claims[claims["judge"] == judge]
        # unique, as intersect1d below is told to assume.
        codes[judge] = np.unique(own["response"].to_numpy(np.int64) * width + own["attribute"].to_numpy(np.int64))
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
        shared = len(np.intersect1d(first, second, assume_unique=True))
        places = int(sizes[both].sum())
        only_first, only_second = len(first) - shared, len(second) - shared
        # Nobody claims the rest: nearly all of the places, never listed.
        table = ((places - only_first - only_second - shared, only_second), (only_first, shared))
        cells = np.array(table, np.float64)
        estimates = (_estimate(float(f(cells)), places) for f in (raw_agreement, cohen_kappa, gwet_ac1))
        pairs_of_judges.append(JudgePair(counts[one.id], counts[two.id], len(both), places, table, *estimates))
    return JudgesAgreement(run_id, grounded, tuple(counts.values()), tuple(pairs_of_judges))


def _memory_sizes(connection: sa.Connection, responses: pd.DataFrame, partial: PartialMemories) -> Ints:
    """How many attributes the memory of each response holds: [responses]."""
    rows = connection.execute(
        sa.select(attribute.c.profile, sa.func.count())
        .where(attribute.c.profile.in_(sorted({int(p) for p in responses["profile"]})))
        .group_by(attribute.c.profile)
    )
    whole = {int(p): int(n) for p, n in rows}
    pairs = zip(responses["memory"], responses["profile"], strict=True)
    return np.array([len(partial[m]) if m in partial else whole[int(p)] for m, p in pairs], np.int64)


def _estimate(value: float, places: int) -> Estimate:
    if places < 2 or np.isnan(value):
        return Estimate.undefined(places, TOO_FEW if places < 2 else ONE_ANSWER)
    return Estimate(value, None, None, places)

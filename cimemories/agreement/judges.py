"""How far the judges of one run agree on what its messages reveal.

The places are the (message, attribute) that both of two judges have judged and the message's memory held: some 370,000
for ten profiles, nearly all of them unrevealed. So they are never listed: claims are sets of numbers, and what nobody
claims is what is left of the count of places.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pandas as pd
import sqlalchemy as sa

from cimemories.agreement.statistics import ONE_ANSWER, TOO_FEW, Figure, ac1_of, agreement_of, kappa_of
from cimemories.flows.flows import Flows, frame_of
from cimemories.flows.scope import judge_title, messages_first
from cimemories.store import judgements, runs
from cimemories.store.judgements import Held, JudgeRow
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
    full (1) by each; its four cells add up to `places`. Figures have no interval: places of one message are not
    independent of each other. Where one is undefined, its `why` says why."""

    first: JudgeCounts
    second: JudgeCounts
    messages: int
    places: int
    table: tuple[tuple[int, int], tuple[int, int]]
    agreement: Figure
    kappa: Figure
    ac1: Figure


@dataclass(frozen=True)
class JudgesAgreement:
    """The judges of a run, and each two of them that read the same text (message, or reasoning)."""

    run_id: str
    grounded: bool
    judges: tuple[JudgeCounts, ...]
    pairs: tuple[JudgePair, ...]


def judges_agreement(flows: Flows, run_id: str, *, grounded: bool = False) -> JudgesAgreement:
    """Agreement of the judges of a run, remembered until it moves. grounded: claims whose quote is not in the text are
    none. Raises StoreError for a run that is not there."""
    with flows.store.read() as connection:
        run = runs.named(connection, run_id)
        judges = messages_first(judgements.of_run(connection, run_id))
    key = ("judges agreement", run_id, run.revision, tuple(judge.id for judge in judges), grounded)

    def make() -> JudgesAgreement:
        with flows.store.read() as connection:
            return _agreement(connection, run_id, judges, grounded)

    return flows.cached(key, make)


def _agreement(connection: sa.Connection, run_id: str, judges: list[JudgeRow], grounded: bool) -> JudgesAgreement:
    ids = [judge.id for judge in judges]
    if not ids:
        return JudgesAgreement(run_id, grounded, (), ())
    held = judgements.partial_memories(connection, run_id)
    read = frame_of(judgements.judged_by_any(connection, run_id, ids), ["judge", "response", "profile", "memory"])
    said = frame_of(
        judgements.full_claims(connection, run_id, ids, grounded=grounded), ["judge", "response", "attribute"]
    )
    every = read.drop_duplicates("response").sort_values("response")
    responses = every["response"].to_numpy(np.int64)
    sizes = _sizes(connection, every, held)
    said = _on_what_was_held(said, every, held)
    quotes = judgements.grounding(connection, run_id, ids)
    width = int(said["attribute"].max()) + 1 if len(said) else 1
    by_judge: dict[int, Ints] = {}
    places: dict[int, Ints] = {}  # positions in `responses` that a judge has judged
    for judge in ids:
        own = said[said["judge"] == judge]
        codes = own["response"].to_numpy(np.int64) * width + own["attribute"].to_numpy(np.int64)
        by_judge[judge] = np.unique(codes)
        mine = read.loc[read["judge"] == judge, "response"].to_numpy(np.int64)
        places[judge] = np.searchsorted(responses, np.sort(mine))
    counts = {
        judge.id: JudgeCounts(
            judge, judge_title(judge, judges), len(places[judge.id]), len(by_judge[judge.id]), *quotes[judge.id]
        )
        for judge in judges
    }
    pairs = []
    for one, two in combinations(judges, 2):
        if one.channel != two.channel:
            continue
        both = np.intersect1d(places[one.id], places[two.id], assume_unique=True)
        among = responses[both]
        first, second = (_among(by_judge[judge.id], among, width) for judge in (one, two))
        shared = len(np.intersect1d(first, second, assume_unique=True))
        pairs.append(
            _pair(counts[one.id], counts[two.id], len(both), int(sizes[both].sum()), len(first), len(second), shared)
        )
    return JudgesAgreement(run_id, grounded, tuple(counts.values()), tuple(pairs))


def _sizes(connection: sa.Connection, every: pd.DataFrame, held: Held) -> Ints:
    """How many attributes the memory of each response holds: [responses]."""
    profiles = sorted({int(p) for p in every["profile"]})
    rows = connection.execute(
        sa.select(attribute.c.profile, sa.func.count())
        .where(attribute.c.profile.in_(profiles))
        .group_by(attribute.c.profile)
    )
    whole = {int(p): int(n) for p, n in rows}
    pairs = zip(every["memory"], every["profile"], strict=True)
    return np.array([len(held[m]) if m in held else whole[int(p)] for m, p in pairs], np.int64)


def _on_what_was_held(said: pd.DataFrame, every: pd.DataFrame, held: Held) -> pd.DataFrame:
    if not held:
        return said
    memory = dict(zip(every["response"], every["memory"], strict=True))
    pairs = zip(said["response"], said["attribute"], strict=True)
    return said[np.array([judgements.memory_holds(held, memory[r], a) for r, a in pairs], np.bool_)]


def _among(codes: Ints, responses: Ints, width: int) -> Ints:
    return codes[np.isin(codes // width, responses)]


def _pair(
    first: JudgeCounts, second: JudgeCounts, messages: int, places: int, ones: int, twos: int, shared: int
) -> JudgePair:
    table = ((places - ones - twos + shared, twos - shared), (ones - shared, shared))
    cells = np.array(table, np.float64)

    def figure(value: npt.NDArray[np.float64]) -> Figure:
        if places < 2 or np.isnan(value):
            return Figure(None, None, None, places, TOO_FEW if places < 2 else ONE_ANSWER)
        return Figure(float(value), None, None, places)

    found = (figure(statistic(cells)) for statistic in (agreement_of, kappa_of, ac1_of))
    return JudgePair(first, second, messages, places, table, *found)

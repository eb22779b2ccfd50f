"""The value of deciding a pair: how much uncertainty of a run's numbers, or of the order of runs, it removes.

Runs and votes do not change while people decide, so everything that depends on them is cached. Decisions are applied
after every BATCH of them; in between the queue keeps its order."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
from scipy.special import ndtr, ndtri

from cimemories.extras.decision_value.effects import (
    WIDTH,
    LabelEffect,
    Subject,
    completeness_effect,
    decisions_needed,
    subject,
    violation_effect,
)
from cimemories.extras.decision_value.sentences import by_mixture, label_order, label_width
from cimemories.flows.arrays import flow_arrays, mean_or_nan
from cimemories.flows.cache import shared_cache
from cimemories.flows.flows import shared_flows
from cimemories.flows.labels import UNLABELLED, vote_counts
from cimemories.flows.parts import TooLargeError
from cimemories.flows.scope import Labels, Scope, resolve_scope
from cimemories.metrics import completeness, violation
from cimemories.metrics.intervals import aligned
from cimemories.metrics.label_uncertainty import posterior_of
from cimemories.metrics.uncertainty import NORMAL_95
from cimemories.metrics.violation import missing
from cimemories.metrics.warnings import is_covered
from cimemories.review.index import PAIRS_CACHED, PairIndex, Positions
from cimemories.review.standing import Codes, standing
from cimemories.store import judgements, runs
from cimemories.store.engine import Store, StoreError
from cimemories.store.runs import RunRow
from cimemories.store.tables import run
from cimemories.text import percent

BATCH = 20  # decisions after which values and figures are computed again
SETTLED = 0.95  # probability at which the order of runs counts as settled
MOST_RUNS = 10  # in an order: every two neighbours have a difference of their own
LEAST_JUDGED = 0.5  # of the messages of the fullest run, for a run to be chosen by default
RUNS_KEPT = 8


class Target(StrEnum):
    """The number whose label uncertainty decisions reduce."""

    VIOLATION = "violation"
    COMPLETENESS = "completeness"
    ORDER = "order"  # of the runs, by violation: the least certain two neighbours


@dataclass(frozen=True)
class Aim:
    """The target of the value. runs: ids; none: the newest judged run, for the order every judged run."""

    target: Target = Target.VIOLATION
    runs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Valued:
    """The values after a batch, and the uncertainty of the number. Shares are 0 to 1.

    aim: with the runs that it resolved to. names: the run, or the two that are least certain in their order, first the
    one that leaks less. n: samples that violation is read at, as in the headlines of all the runs. values: [pairs] of
    the index, the variance that a decision removes, 0 if none. front: positions of the pairs with a value, the highest
    first. effect: on the number, for an order on the difference. consensus: the number by effective labels alone; nan
    if undefined. order: a lower bound of the probability that all runs stand in this order (ranking); nan if no order
    is the aim. decided: decided pairs of the dataset. since: decisions that changed after the batch."""

    aim: Aim
    names: tuple[str, ...]
    n: int
    values: npt.NDArray[np.float32]
    front: Positions
    effect: LabelEffect
    consensus: float
    order: float
    ranking: tuple[str, ...]
    decided: int
    simulated: bool
    since: int = 0

    @property
    def half_width(self) -> float:
        return NORMAL_95 * math.sqrt(self.effect.variance)

    @property
    def defined(self) -> bool:
        """Return whether the labels define the number; the width of an undefined one means nothing."""
        return self.aim.target == Target.ORDER or not math.isnan(self.consensus)

    def reached(self, width: float = WIDTH) -> bool:
        """Return whether labelling can stop: the half-width is reached, or the order is settled."""
        if self.aim.target == Target.ORDER:
            return self.order >= SETTLED
        return self.defined and self.half_width <= width

    def needed(self, width: float = WIDTH) -> int | None:
        """Estimate how many more decisions are needed, the most valuable first; None if all open pairs would not do, or
        the number is undefined."""
        if not self.defined:
            return None
        if self.reached(width):
            return 0
        if self.aim.target == Target.ORDER:
            # The difference has to be as many standard deviations from 0 as SETTLED requires.
            width = NORMAL_95 * abs(self.effect.mean) / float(ndtri(SETTLED))
        more = decisions_needed(self.effect, width)
        return None if more is None else max(more - self.since, 1)

    @property
    def number(self) -> str:
        return "completeness" if self.aim.target == Target.COMPLETENESS else f"Violation@{self.n}"

    def sentence(self, width: float = WIDTH) -> str:
        """Describe the uncertainty of the number and the remaining work, for page, command line and report."""
        more = self.needed(width)
        if self.aim.target == Target.ORDER:
            first, second = self.names
            return label_order(self.number, len(self.ranking), self.order, (first, second), self.single, more)
        return label_width(self.number, self.names[0], self.half_width, width, more, defined=self.defined)

    @property
    def single(self) -> float:
        """Return the probability that the least certain two runs of an order keep it."""
        return _in_order(self.effect)

    @property
    def beside(self) -> str:
        """Describe the number by the consensus and by the mixture."""
        if self.aim.target == Target.ORDER:
            return f"By {self.number}, divided votes counted in proportion: {' < '.join(self.ranking)}."
        return by_mixture(self.number, self.consensus, self.effect.mean)

    def since_sentence(self, before: Valued) -> str:
        """Describe the change since `before`."""
        if self.n != before.n:  # decisions change which contexts count, and some have lost more messages than others
            return f"The labels now allow {self.number}, those before {before.number}: the two are not compared."
        if self.aim.target == Target.ORDER:
            return f"The order of the runs: {percent(before.order)} settled before, {percent(self.order)} now."
        number = f"{percent(before.consensus)} before, {percent(self.consensus)} now"
        width = f"±{100 * before.half_width:.2f} points before, ±{100 * self.half_width:.2f} now"
        start = f"{self.number} of {self.names[0]}, counting agreed labels only"
        return f"{start}: {number}. Undecided labels blur it by {width}."

    def as_json(self, width: float = WIDTH) -> dict[str, object]:
        plain = {
            "target": str(self.aim.target),
            "runs": list(self.aim.runs),
            "n": self.n,
            "consensus": None if math.isnan(self.consensus) else self.consensus,
            "mixture": self.effect.mean,
            "half_width": self.half_width,
            "wanted": width,
            "decisions_needed": self.needed(width),
            "decided": self.decided,
            "reached": self.reached(width),
            "simulated": self.simulated,
        }
        if self.aim.target == Target.ORDER:
            plain |= {"order": list(self.ranking), "settled": self.order, "least_certain": list(self.names)}
        return plain


def _in_order(effect: LabelEffect) -> float:
    """Return the probability that a difference is above 0, by the normal approximation."""
    if effect.variance <= 0:
        return 1.0 if effect.mean > 0 else 0.5 if effect.mean == 0 else 0.0
    return float(ndtr(effect.mean / math.sqrt(effect.variance)))


def candidates(store: Store, dataset_id: int) -> list[RunRow]:
    """Return the runs that a value can be for: finished, with judged messages, newest first."""
    # Counting the messages of all runs takes too long for each key press: it is repeated when a run has changed.
    versions = sa.select(run.c.id, run.c.revision, run.c.status, run.c.name).where(
        run.c.dataset == dataset_id, run.c.explains.is_(None)
    )
    with store.read() as connection:
        key = tuple(tuple(row) for row in connection.execute(versions.order_by(run.c.id)))

    def read() -> list[RunRow]:
        with store.read() as connection:
            rows = runs.all_rows(connection, dataset_id)
        return [row for row in reversed(rows) if row.status.is_finished and row.judged]

    where = store.engine.url, store.workspace.absolute(), dataset_id
    return shared_cache.get("value runs", (*where, key), read, most=RUNS_KEPT)


def chosen_runs(store: Store, dataset_id: int, aim: Aim) -> list[RunRow]:
    """Return the runs of an aim; none if none is judged, or only one for an order. Raises StoreError for a run that
    does not exist or is not judged."""
    judged_runs = candidates(store, dataset_id)
    if aim.runs:
        by_id = {row.id: row for row in judged_runs}
        if missing := [name for name in aim.runs if name not in by_id]:
            raise StoreError(f"'{missing[0]}' is no finished and judged run of this dataset.")
        rows = [by_id[name] for name in dict.fromkeys(aim.runs)]
    else:
        # A run of a few messages, such as a trial, is not worth thousands of decisions.
        least = LEAST_JUDGED * max((row.judged for row in judged_runs), default=0)
        rows = [row for row in judged_runs if row.judged >= least]
    if aim.target == Target.ORDER:
        return rows[:MOST_RUNS] if len(rows) > 1 else []
    return rows[:1]


def run_name(row: RunRow, among: Sequence[RunRow] = ()) -> str:
    """Return a run's name, with its id if another has the same name, and marked if it is simulated."""
    name = f"{row.name} ({row.id})" if sum(other.name == row.name for other in among) > 1 else row.name
    return f"{name} (simulated)" if row.simulated else name


def lacking(aim: Aim) -> str:
    """Describe what `valued` lacks when it gives nothing, and what the queue does instead."""
    needed = "two judged runs with a flow in common" if aim.target == Target.ORDER else "a judged run"
    return f"What a decision is worth needs votes and {needed}: the most divided votes come first."


class _Runs:
    """The runs of an aim with their arrays, cut to the flows that all of them judged, and the values of the newest
    batch. Safe to share between threads."""

    def __init__(self, store: Store, index: PairIndex, aim: Aim, rows: Sequence[RunRow]) -> None:
        # Without decisions: with them the arrays would be rebuilt for each.
        resolve = partial(resolve_scope, store, labelling_id=index.labelling_id, labels=Labels.CONSENSUS)
        scopes: list[Scope] = [resolve(row.id) for row in rows]
        self.aim, self.index = replace(aim, runs=tuple(row.id for row in rows)), index
        self.names = tuple(run_name(row, rows) for row in rows)
        self.rows = tuple(rows)
        self.simulated = any(scope.simulated for scope in scopes)
        flows = shared_flows(store)
        # As in the leaderboard: on what all runs judged, so that an order and its tests use the same flows.
        self.arrays = aligned([flow_arrays(flows, scope) for scope in scopes])
        counts = vote_counts(store, index.labelling_id) if index.labelling_id else None
        self.votes = posterior_of(self.arrays[0], counts, index.rule.priors if index.rule else ())
        with store.read() as connection:
            self.judged = [judgements.judged_by_all(connection, item.run.id, item.judge_ids) for item in scopes]
        first = self.arrays[0]
        cells = np.broadcast_arrays(first.names.attribute[:, :, None], np.array(first.contexts, np.int64))
        located = index.shape.locate(cells[0].reshape(-1), cells[1].reshape(-1))
        # The position in the index of each cell, [profile, attribute, context], -1 if it is no pair.
        self.positions = located.reshape(first.draws.shape).astype(np.int32)
        self.subjects: dict[tuple[int, ...], Subject] = {}
        self.lock = threading.Lock()
        self.counted: Codes | None = None  # decisions that the newest batch rests on
        self.valued: Valued | None = None

    def n(self, labels: Codes) -> int:
        """Return the n of Violation@n in the headlines of all these runs, by these labels."""
        return min(
            # If enough is judged the labels do not matter, and counting takes time.
            row.samples
            if is_covered(judged, row.expected)
            else missing(replace(data, labels=labels)).supported_n(row.samples) or row.samples
            for row, data, judged in zip(self.rows, self.arrays, self.judged, strict=True)
        )

    def subject(self, n: int, *which: int) -> Subject:
        if (n, *which) not in self.subjects:
            weights = [1.0] if len(which) == 1 else [-1.0, 1.0]
            self.subjects[n, *which] = subject([self.arrays[i] for i in which], weights, n)
        return self.subjects[n, *which]

    def refresh(self, decided: Codes, batch: int) -> Valued:
        """Return the values of the newest batch, after making a new one if `batch` decisions have changed since."""
        # Under the lock, so that no batch is computed twice.
        with self.lock:
            changed = 0 if self.counted is None else int((self.counted != decided).sum())
            if self.valued is None or changed >= batch:
                self.valued = self.computed(decided)
                self.counted, changed = decided.copy(), 0
            return replace(self.valued, since=changed)

    def computed(self, decided: Codes) -> Valued:
        """Compute the values with exactly these decisions. decided: [pairs], UNLABELLED if undecided."""
        target = self.aim.target
        decisions = np.append(decided, np.int8(UNLABELLED))[self.positions]  # -1, no pair, reads the last
        agreed = np.append(self.index.consensus, np.int8(UNLABELLED))[self.positions]
        labels = np.where(decisions != UNLABELLED, decisions, agreed)
        at = np.nonzero(decisions != UNLABELLED)
        posterior = self.votes.settled(at, decisions[at])
        n = self.n(labels)

        def effect_of(*which: int) -> LabelEffect:
            """Return the effect on the number of one run, or of the second of two minus the first."""
            measure = completeness_effect if target == Target.COMPLETENESS else violation_effect
            return measure(self.subject(n, *which), posterior)

        consensus, order, ranking, names = math.nan, math.nan, self.names, self.names
        if target != Target.ORDER:
            effect, data = effect_of(0), self.arrays[0]
            consensus = mean_or_nan(
                completeness.by_profile(data.reveals, data.draws, labels)
                if target == Target.COMPLETENESS
                else violation.by_profile(data.reveals, data.draws, labels, data.counted, n)
            )
        else:
            alone = [effect_of(i).mean for i in range(len(self.arrays))]
            ranked = [int(i) for i in np.argsort(alone, kind="stable")]
            neighbours = list(pairwise(ranked))
            effects = [effect_of(*two) for two in neighbours]
            chances = [_in_order(effect) for effect in effects]
            least = int(np.argmin(chances))
            effect = effects[least]
            # Boole's inequality: the order holds unless some neighbours are reversed.
            order = max(0.0, 1 - sum(1 - chance for chance in chances))
            ranking = tuple(self.names[i] for i in ranked)
            names = tuple(self.names[i] for i in neighbours[least])
        worth = np.flatnonzero(effect.value)
        values = np.zeros(len(self.index), np.float32)
        values[self.positions.reshape(-1)[worth]] = effect.value.reshape(-1)[worth]
        values.flags.writeable = False
        nonzero = replace(effect, value=effect.value[effect.value > 0])  # of millions of pairs few have a value
        worth = np.flatnonzero(values)
        front = worth[np.argsort(-values[worth], kind="stable")].astype(np.int32)
        number = int((decided != UNLABELLED).sum())
        return Valued(self.aim, names, n, values, front, nonzero, consensus, order, ranking, number, self.simulated)


def valued(store: Store, index: PairIndex, aim: Aim | None = None, *, batch: int = BATCH) -> Valued | None:
    """Return the values of the pairs for an aim, as of the newest batch. None if no run is judged (for an order: no two
    that share a judged flow), if there are no votes, or if a run does not fit into memory; pairs then come by entropy.
    Raises StoreError for a run that does not exist or is not judged."""
    made = _runs_of(store, index, aim or Aim())
    return made.refresh(standing(store, index.shape).decided, batch) if made else None


def value_without(store: Store, index: PairIndex, aim: Aim, positions: npt.NDArray[np.int64]) -> Valued | None:
    """Return the values as if the pairs at these positions were undecided: the state before a batch."""
    decided = standing(store, index.shape).decided.copy()
    decided[positions] = UNLABELLED
    made = _runs_of(store, index, aim)
    return made.computed(decided) if made else None


def _runs_of(store: Store, index: PairIndex, aim: Aim) -> _Runs | None:
    rows = chosen_runs(store, index.dataset_id, aim)
    if not rows or index.labelling_id is None:
        return None
    versions = tuple((row.id, row.revision, sum(row.judgements.values())) for row in rows)
    key = index.shape.key, index.vote_key, aim.target, versions
    try:
        made = shared_cache.get(
            "values",
            key,
            lambda: _Runs(store, index, aim, rows),
            most=PAIRS_CACHED,
            # Limited by size: a run of a thousand profiles takes 300 MB.
            size=lambda made: max(len(index) * len(made.arrays), PAIRS_CACHED // RUNS_KEPT),
        )
    except TooLargeError:
        return None
    # Runs without a judged flow in common have no order.
    return made if aim.target != Target.ORDER or made.arrays[0].draws.any() else None

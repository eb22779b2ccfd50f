"""Numbers of several runs under other settings of labels and counting.

A study holds what several runs of one dataset need to be relabelled: their counts, and the votes and decisions that all
of them share. A setting turns votes into labels; `Study.over` gives the numbers of every run at many thresholds in a
few milliseconds (relabel.py), so that they follow a slider as it moves. By the current settings they are those of
`headline`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cimemories.compare.leaderboard import Leaderboard, same_dataset
from cimemories.compare.ranking import Measure
from cimemories.compare.relabel import EXACTLY, Numbers, Shares, levels, numbers, shares_of
from cimemories.flows.arrays import Bools, Floats, FlowArrays, IdentifierRule, Ints, flow_arrays, pair_rows
from cimemories.flows.flows import Flows
from cimemories.flows.labels import INAPPROPRIATE, NECESSARY, UNLABELLED, AppliedRule, VoteCounts, rule_of
from cimemories.flows.scope import (
    Labels,
    Scope,
    parts_of,
)
from cimemories.labels.whatif import labelled_pairs
from cimemories.metrics.intervals import shared
from cimemories.store.engine import StoreError

# In whole percents; 50 is no threshold, since two labels could reach it.
GRID = tuple(percent / 100 for percent in range(51, 101))


@dataclass(frozen=True)
class Setting:
    """The rule that turns votes into labels, and what counts. priors: in the order of the labelling's personas, adding
    up to 1; a persona with 0 is left out. labels: whether people's decisions go before the consensus. least_votes:
    counted votes that each persona needs on a pair, as AppliedRule has them."""

    threshold: float
    priors: tuple[float, ...]
    labels: Labels = Labels.DECISIONS
    identifiers: IdentifierRule = IdentifierRule.EXACT
    least_votes: int | None = None

    @property
    def unanimous(self) -> bool:
        """True if every counted vote of every persona has to agree, as the paper's rule asks: then which priors stand
        with the personas changes nothing as long as all are above 0."""
        return self.threshold == EXACTLY and min(self.priors) > 0

    def without(self, persona: int) -> Setting | None:
        """Return the rule without one persona, the others' priors scaled up to 1; None where no other has any."""
        rest = 1.0 - self.priors[persona]
        if rest <= 1e-9:
            return None
        scaled = tuple(0.0 if n == persona else prior / rest for n, prior in enumerate(self.priors))
        return replace(self, priors=scaled)


@dataclass(frozen=True)
class Votes:
    """The votes of a labelling and the decisions of its dataset, [pairs] in the order of VoteCounts. keys: of the
    personas. decided: label codes, UNLABELLED where no decision stands."""

    keys: tuple[str, ...]
    counts: VoteCounts
    shares: Shares
    decided: Ints

    def levels(self, setting: Setting, thresholds: Sequence[float]) -> tuple[Ints, Ints]:
        """Return levels (relabel.py) of effective labels: [pairs + 1], necessary and inappropriate; the last is 0 and
        stands for every pair without a label. A decision holds at every threshold."""

        def effective(code: int, by_votes: Ints) -> Ints:
            if setting.labels == Labels.DECISIONS:
                by_decision = np.where(self.decided == code, len(thresholds), 0).astype(np.int16)
                by_votes = np.where(self.decided == UNLABELLED, by_votes, by_decision)
            # One past the last pair: cells without a label point there.
            return np.append(by_votes, np.int16(0))

        necessary, inappropriate = levels(
            self.shares, setting.priors, thresholds, self.counts.needed(setting.least_votes)
        )
        return effective(NECESSARY, necessary), effective(INAPPROPRIATE, inappropriate)


@dataclass(frozen=True)
class Subject:
    """One run to be relabelled. rows: [profile, attribute, context], the pair of each cell, one past the last where it
    has no label. counted: [profile, attribute] by identifier rule. n: samples that violation is read at."""

    scope: Scope
    reveals: Ints
    draws: Ints
    counted: Mapping[IdentifierRule, Bools]
    rows: Ints
    profiles: tuple[int, ...]
    n: int


@dataclass(frozen=True)
class Study:
    """Runs of one dataset with the votes that they share. base: the settings that their numbers rest on now; rule:
    these settings by name. cut: whether the runs are cut to the flows that all of them judged."""

    subjects: tuple[Subject, ...]
    counts: VoteCounts
    votes: Votes
    base: Setting
    rule: AppliedRule
    cut: bool = False

    @property
    def simulated(self) -> tuple[str, ...]:
        return parts_of(item.scope.simulated for item in self.subjects)

    @property
    def thresholds(self) -> tuple[float, ...]:
        """Thresholds of every figure: each whole percent above 50, and the current one."""
        return tuple(sorted({*GRID, self.base.threshold}))

    def over(self, setting: Setting, thresholds: Sequence[float]) -> tuple[Numbers, ...]:
        """Return numbers of each run at these thresholds (ascending), whatever the threshold of the setting."""
        necessary, inappropriate = self.votes.levels(setting, thresholds)
        # Runs on the same pairs share one array of rows (_rows), so their cells are looked up once.
        cells: dict[int, tuple[Ints, Ints]] = {}
        result = []
        for subject in self.subjects:
            # By identity: the subjects keep their arrays alive, so no id is given out twice.
            at = id(subject.rows)
            if at not in cells:
                cells[at] = necessary[subject.rows], inappropriate[subject.rows]
            counted = subject.counted[setting.identifiers]
            result.append(
                numbers(subject.reveals, subject.draws, counted, *cells[at], steps=len(thresholds), n=subject.n)
            )
        return tuple(result)

    def at(self, setting: Setting) -> tuple[Numbers, ...]:
        """Return numbers of each run by this setting: one threshold."""
        return self.over(setting, (setting.threshold,))


def measure_values(numbers_of_runs: Sequence[Numbers], measure: Measure) -> Floats:
    """Return one number of each run at each threshold: [runs, T]."""
    name = "balanced" if measure == Measure.BALANCED else f"mean_{measure}"
    return np.stack([getattr(item, name) for item in numbers_of_runs])


def study(
    flows: Flows,
    scopes: Sequence[Scope],
    rule: IdentifierRule = IdentifierRule.EXACT,
    *,
    n: int | None = None,
) -> Study:
    """Return the data needed to move the choices behind the numbers of these runs. n: samples that violation is read
    at, of each run at most its own; None: all.

    Raises StoreError where the runs are of several datasets or labellings, or nothing is labelled; ValueError for n < 1
    and where no run is given.
    """
    if not scopes or (n is not None and n < 1):
        raise ValueError("a study of sensitivity takes at least one run, and an n of at least 1")
    same_dataset(scopes)
    labelling = _shared_labelling(scopes)
    first = scopes[0]
    applied = first.rule or rule_of(flows.store, labelling)
    pairs = labelled_pairs(flows.store, labelling)
    pairs = replace(pairs, counts=pairs.counts.under(applied.both_lists))
    # Votes and decisions alone: which rule is applied to them is a part of the setting.
    key = ("sensitivity votes", labelling, pairs.counts.revision, first.dataset_revision, applied.both_lists)
    keys = tuple(persona.key for persona in pairs.counts.personas)
    votes = flows.cached(key, lambda: Votes(keys, pairs.counts, shares_of(pairs.counts.votes), pairs.decided_labels))
    base = Setting(applied.threshold, applied.priors, first.labels, rule, applied.least_votes)
    return Study(tuple(subject(flows, scope, pairs.counts, n) for scope in scopes), pairs.counts, votes, base, applied)


def ranked_study(
    flows: Flows, board: Leaderboard, scopes: Sequence[Scope], rule: IdentifierRule = IdentifierRule.EXACT
) -> Study:
    """Return the study of the runs of a board that have an order among them, each read as the board reads it: at one n,
    and on common flows where the board is cut. Raises what `study` does."""
    ordered, n = board.ordered(scopes)
    result = study(flows, ordered, rule, n=n)
    return on_common_flows(flows, result) if board.cut else result


def _shared_labelling(scopes: Sequence[Scope]) -> str:
    labellings = sorted({scope.labelling.id if scope.labelling else "" for scope in scopes})
    if len(labellings) > 1 or not labellings[0]:
        named = ", ".join(filter(None, labellings)) or "none yet"
        raise StoreError(
            f"sensitivity needs one labelling for all runs; theirs: {named}. "
            "Label the dataset, or choose one labelling."
        )
    return labellings[0]


def subject(flows: Flows, scope: Scope, counts: VoteCounts, n: int | None = None) -> Subject:
    """Return one run, its counts cut with every label that it can have: cells that were never planned stay empty.

    counts: the votes of its labelling, with a row for each pair that was only decided (whatif.labelled_pairs). Cached
    until something that it rests on changes.
    """
    # With decisions, so that every cell is there that some setting can label.
    whole = replace(scope, labels=Labels.DECISIONS, rule=None)

    def compute() -> Subject:
        by_rule = {rule: flow_arrays(flows, whole, rule) for rule in IdentifierRule}
        data = by_rule[IdentifierRule.EXACT]
        return Subject(
            scope=scope,
            reveals=data.reveals,
            draws=data.draws,
            counted={rule: item.counted for rule, item in by_rule.items()},
            rows=_rows(flows, whole, counts, data),
            profiles=data.profiles,
            n=min(n or scope.run.samples, scope.run.samples),
        )

    return replace(flows.cached(("sensitivity subject", whole.version, counts.revision, n), compute), scope=scope)


def on_common_flows(flows: Flows, study: Study) -> Study:
    """Return the study on the flows that all of the runs judged, as the leaderboard ranks runs."""
    wholes = [replace(item.scope, labels=Labels.DECISIONS, rule=None) for item in study.subjects]
    by_rule = {rule: shared([flow_arrays(flows, whole, rule) for whole in wholes]) for rule in IdentifierRule}
    parts = by_rule[IdentifierRule.EXACT]
    subjects = tuple(
        replace(
            item,
            reveals=data.reveals,
            draws=data.draws,
            counted={rule: cut[at].counted for rule, cut in by_rule.items()},
            rows=_rows(flows, whole, study.counts, data),
            profiles=data.profiles,
        )
        for at, (item, whole, data) in enumerate(zip(study.subjects, wholes, parts, strict=True))
    )
    return replace(study, subjects=subjects, cut=True)


def _rows(flows: Flows, whole: Scope, counts: VoteCounts, data: FlowArrays) -> Ints:
    """Return the place of each labelled cell among the pairs: [profile, attribute, context], len(pairs) where it is not
    labelled. Runs on the same pairs share one array."""
    labelled = data.labels != UNLABELLED
    version = (counts.labelling_id, counts.revision, whole.dataset_revision)
    # The hash of bytes differs from process to process; the cache does not outlive one.
    key = ("sensitivity rows", *version, data.profiles, data.contexts, hash(np.packbits(labelled).tobytes()))

    def compute() -> Ints:
        positions = pair_rows(counts, data)
        rows = np.where(labelled & (positions >= 0), positions, len(counts.attributes))
        rows.flags.writeable = False
        return rows

    return flows.cached(key, compute)


def left_out(study: Study) -> list[tuple[str, Setting]]:
    """Return the current settings without each persona that has a prior, the others' scaled up to 1; by its key. Empty
    where only one has."""
    priors = zip(study.votes.keys, study.base.priors, strict=True)
    settings = [(key, study.base.without(n)) for n, (key, prior) in enumerate(priors) if prior > 0]
    return [(key, setting) for key, setting in settings if setting is not None]

"""How headline numbers and the order of models move with the choices behind them.

A study holds what several runs of one dataset need to be labelled anew: their counts, and the votes and decisions that
all of them share. A setting says what turns votes into labels; `Study.over` gives the numbers of every run at many
thresholds in a few milliseconds, so that they can be reckoned while a slider moves. By the current settings they are
those of `headline`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cimemories.analysis.cube import Bools, Cube, Floats, IdentifierRule, Ints, cube
from cimemories.analysis.flows import Flows, Labels, Scope
from cimemories.analysis.labels import VoteCounts
from cimemories.analysis.leaderboard import same_dataset
from cimemories.analysis.ranking import Measure, ranks, tau
from cimemories.analysis.relabel import Numbers, Shares, levels, numbers, shares_of
from cimemories.analysis.rule import AppliedRule, rule_of
from cimemories.analysis.whatif import labelled_pairs
from cimemories.curation.consensus import INAPPROPRIATE, NECESSARY, UNLABELLED
from cimemories.store.engine import StoreError

GRID = tuple(percent / 100 for percent in range(51, 101))


@dataclass(frozen=True)
class Setting:
    """What turns votes into labels and says what counts. priors: in the order of the labelling's personas, adding up
    to 1; a persona with 0 is left out. labels: whether people's decisions go before the consensus."""

    threshold: float
    priors: tuple[float, ...]
    labels: Labels = Labels.DECISIONS
    identifiers: IdentifierRule = IdentifierRule.EXACT

    def without(self, persona: int) -> Setting | None:
        """The same without one persona, the others' priors scaled up to 1; None where nobody else would be asked."""
        rest = 1.0 - self.priors[persona]
        if rest <= 1e-9:
            return None
        kept = tuple(0.0 if n == persona else prior / rest for n, prior in enumerate(self.priors))
        return replace(self, priors=kept)


@dataclass(frozen=True)
class Votes:
    """The votes of a labelling and the decisions of its dataset, [pairs] in the order of VoteCounts. keys: of the
    personas. decided: label codes, UNLABELLED where no decision stands."""

    labelling_id: str
    keys: tuple[str, ...]
    shares: Shares
    decided: Ints

    def levels(self, setting: Setting, thresholds: Sequence[float]) -> tuple[Ints, Ints]:
        """Levels (analysis.relabel) of effective labels: [pairs + 1], necessary and inappropriate; the last is 0 and
        stands for every pair that nobody labelled. A decision holds at every threshold."""
        found = []
        for code, reached in zip(
            (NECESSARY, INAPPROPRIATE), levels(self.shares, setting.priors, thresholds), strict=True
        ):
            if setting.labels == Labels.DECISIONS:
                said = np.where(self.decided == code, len(thresholds), 0).astype(np.int16)
                reached = np.where(self.decided == UNLABELLED, reached, said)
            found.append(np.append(reached, np.int16(0)))
        return found[0], found[1]


@dataclass(frozen=True)
class Subject:
    """One run to be labelled anew. rows: [profile, attribute, context], the pair of each cell, one past the last where
    it has no label. counted: [profile, attribute] by identifier rule. n: samples that violation is read at."""

    scope: Scope
    reveals: Ints
    draws: Ints
    counted: Mapping[IdentifierRule, Bools]
    rows: Ints
    profiles: tuple[int, ...]
    n: int


@dataclass(frozen=True)
class Study:
    """Runs of one dataset with the votes that they share. base: the settings that their numbers rest on now; rule: what
    these are called."""

    subjects: tuple[Subject, ...]
    counts: VoteCounts
    votes: Votes
    base: Setting
    rule: AppliedRule

    @property
    def thresholds(self) -> tuple[float, ...]:
        """Those that are looked at: every whole percent, and the one that holds now."""
        return tuple(sorted({*GRID, self.base.threshold}))

    def over(self, setting: Setting, thresholds: Sequence[float]) -> tuple[Numbers, ...]:
        """Numbers of each run at these thresholds (ascending), whatever the threshold of the setting."""
        necessary, inappropriate = self.votes.levels(setting, thresholds)
        cells: dict[int, tuple[Ints, Ints]] = {}
        found = []
        for subject in self.subjects:
            at = id(subject.rows)
            if at not in cells:
                cells[at] = necessary[subject.rows], inappropriate[subject.rows]
            counted = subject.counted[setting.identifiers]
            found.append(
                numbers(subject.reveals, subject.draws, counted, *cells[at], steps=len(thresholds), n=subject.n)
            )
        return tuple(found)

    def at(self, setting: Setting) -> tuple[Numbers, ...]:
        """Numbers of each run by this setting: one threshold."""
        return self.over(setting, (setting.threshold,))

    def alone(self, places: Sequence[int]) -> Study:
        """The same of some of the runs."""
        return replace(self, subjects=tuple(self.subjects[i] for i in places))


def measured(found: Sequence[Numbers], measure: Measure) -> Floats:
    """One number of each run at each threshold: [runs, T]."""
    return np.stack([of(item, measure) for item in found])


def of(item: Numbers, measure: Measure) -> Floats:
    """The number of one run at each threshold: [T]."""
    match measure:
        case Measure.VIOLATION:
            return item.mean_violation
        case Measure.COMPLETENESS:
            return item.mean_completeness
        case Measure.BALANCED:
            return item.balanced


def tau_of(now: Floats, then: Floats, measure: Measure) -> float:
    """Kendall's tau of the order by `then` with that by `now`: [runs] each."""
    return tau(ranks(now, measure), ranks(then, measure))


def study(
    flows: Flows,
    scopes: Sequence[Scope],
    rule: IdentifierRule = IdentifierRule.EXACT,
    *,
    n: int | None = None,
) -> Study:
    """What it takes to move the choices behind the numbers of these runs. n: samples that violation is read at, of each
    run at most its own; None: all.

    Raises StoreError where the runs are of several datasets or labellings, or nothing is labelled; ValueError for n < 1
    and where no run is given.
    """
    if not scopes or (n is not None and n < 1):
        raise ValueError("a study of sensitivity takes at least one run, and an n of at least 1")
    same_dataset(scopes)
    labelling = _shared_labelling(scopes)
    pairs = labelled_pairs(flows.store, labelling)
    first = scopes[0]
    key = ("sensitivity votes", labelling, pairs.counts.revision, first.dataset_revision)
    keys = tuple(persona.key for persona in pairs.counts.personas)
    votes = flows.remember(key, lambda: Votes(labelling, keys, shares_of(pairs.counts.votes), pairs.decided_labels))
    applied = first.rule or rule_of(flows.store, labelling)
    base = Setting(applied.threshold, applied.priors, first.labels, rule)
    return Study(tuple(subject(flows, asked, pairs.counts, n) for asked in scopes), pairs.counts, votes, base, applied)


def _shared_labelling(scopes: Sequence[Scope]) -> str:
    found = sorted({asked.labelling.id if asked.labelling else "" for asked in scopes})
    if len(found) > 1 or not found[0]:
        named = ", ".join(filter(None, found)) or "none yet"
        raise StoreError(
            f"what a rule does to numbers takes one labelling for all runs; theirs: {named}. "
            "Label the dataset, or choose one labelling."
        )
    return found[0]


def subject(flows: Flows, asked: Scope, counts: VoteCounts, n: int | None = None) -> Subject:
    """One run, its counts cut with every label that it can have, so that cells which were never planned stay empty.

    counts: the votes of its labelling, with a row for each pair that was only decided (whatif.labelled_pairs).
    Remembered as long as nothing behind it moves.
    """
    whole = replace(asked, labels=Labels.DECISIONS, rule=None)

    def made() -> Subject:
        by_rule = {rule: cube(flows, whole, rule) for rule in IdentifierRule}
        data = by_rule[IdentifierRule.EXACT]
        return Subject(
            scope=asked,
            reveals=data.reveals,
            draws=data.draws,
            counted={rule: item.counted for rule, item in by_rule.items()},
            rows=_rows(flows, whole, counts, data),
            profiles=data.profiles,
            n=min(n or asked.run.samples, asked.run.samples),
        )

    return replace(flows.remember(("sensitivity subject", whole.version, counts.revision, n), made), scope=asked)


def _rows(flows: Flows, whole: Scope, counts: VoteCounts, data: Cube) -> Ints:
    """The pair of each cell that has a label; runs on the same pairs share one array."""
    labelled = data.labels != UNLABELLED
    said = (counts.labelling_id, counts.revision, whole.dataset_revision)
    key = ("sensitivity rows", *said, data.profiles, data.contexts, hash(np.packbits(labelled).tobytes()))
    return flows.remember(key, lambda: pair_rows(counts, data, labelled))


def pair_rows(counts: VoteCounts, data: Cube, labelled: Bools) -> Ints:
    """Where each labelled cell stands among the pairs: [profile, attribute, context], len(pairs) where it is not
    labelled. labelled: of that shape."""
    contexts = np.array(data.contexts, np.int64)
    width = int(max(counts.contexts.max(initial=0), contexts.max(initial=0))) + 1
    numbers_ = counts.attributes * width + counts.contexts
    wanted = data.names.attribute.astype(np.int64)[:, :, None] * width + contexts
    rows = np.full(wanted.shape, len(numbers_), np.int64)
    if len(numbers_):
        found = np.minimum(np.searchsorted(numbers_, wanted), len(numbers_) - 1)
        there = labelled & (numbers_[found] == wanted)
        rows[there] = found[there]
    rows.flags.writeable = False
    return rows

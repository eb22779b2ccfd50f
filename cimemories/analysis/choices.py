"""What each choice behind the numbers does, taken one at a time from the current settings.

choice              setting                 run       change of the balanced score    tau
persona left out    without the pragmatic   run-3f9a  -2.1 points                     0.71
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import pandas as pd

from cimemories.analysis.cube import IdentifierRule
from cimemories.analysis.flows import Combine, Flows, Labels, Scope, Verdicts, scope
from cimemories.analysis.ranking import Measure, ranks, tau
from cimemories.analysis.relabel import Numbers
from cimemories.analysis.scopes import judge_title, messages_first
from cimemories.analysis.sensitivity import Setting, Study, measured, subject
from cimemories.store import judgements

NOW = "now"


class Choice(StrEnum):
    """What is chosen by whoever reports a number."""

    THRESHOLD = "consensus threshold"
    PRIORS = "priors of the personas"
    PERSONA = "one persona left out"
    LABELS = "decisions or consensus alone"
    IDENTIFIERS = "identifier rule"
    JUDGE = "judge"


@dataclass(frozen=True)
class Tried:
    """One setting of one choice, all others as they are now. numbers: one a run, at one threshold."""

    choice: Choice
    name: str
    numbers: tuple[Numbers, ...]


@dataclass(frozen=True)
class Range:
    """How far one choice moves a number, in shares (0.01 is a point), over all its settings and runs.

    low, high: the least and the greatest change (0 where nothing is below or above); low_at, high_at: (setting, run) of
    these. least_tau: the lowest Kendall's tau of an order with that of the current settings, nan where there is none;
    tau_at: its setting. settings: how many were tried.
    """

    choice: Choice
    low: float
    low_at: tuple[str, int]
    high: float
    high_at: tuple[str, int]
    least_tau: float
    tau_at: str
    settings: int

    @property
    def width(self) -> float:
        return self.high - self.low


def variants(found: Study) -> Iterator[Tried]:
    """Every setting of every choice that the votes and decisions allow, but the current one; of thresholds, each of the
    grid. Priors: equal ones, and each persona alone. No judge is among them: that takes other counts."""
    base = found.base
    over = found.over(base, found.thresholds)
    for place, threshold in enumerate(found.thresholds):
        if threshold != base.threshold:
            name = f"threshold {100 * threshold:.4g} %"
            yield Tried(Choice.THRESHOLD, name, tuple(item.at(place) for item in over))
    for choice, name, setting in _settings(found):
        if setting != base:
            yield Tried(choice, name, found.at(setting))


def _settings(found: Study) -> Iterator[tuple[Choice, str, Setting]]:
    base, keys = found.base, found.votes.keys
    many = len(keys)
    if many > 1:
        yield Choice.PRIORS, "equal priors", replace(base, priors=(1.0 / many,) * many)
        for place, key in enumerate(keys):
            alone = tuple(float(n == place) for n in range(many))
            yield Choice.PRIORS, f"the {key} persona alone", replace(base, priors=alone)
        yield from ((Choice.PERSONA, f"without the {key}", s) for key, s in left_out(found))
    if (found.votes.decided >= 0).any():
        for against in Labels:
            said = "decisions before the consensus" if against == Labels.DECISIONS else "consensus alone"
            yield Choice.LABELS, said, replace(base, labels=against)
    for rule in IdentifierRule:
        yield Choice.IDENTIFIERS, f"identifiers by the rule '{rule}'", replace(base, identifiers=rule)


def left_out(found: Study) -> list[tuple[str, Setting]]:
    """The current settings without each persona that has a prior, the others' scaled up to 1; by its key. None where
    only one has."""
    settings = [(key, found.base.without(n)) for n, key in enumerate(found.votes.keys) if found.base.priors[n] > 0]
    return [(key, setting) for key, setting in settings if setting is not None]


def judged_otherwise(flows: Flows, found: Study) -> list[Tried]:
    """The numbers by every other judge of the runs, and by any, most or all of them. A run that has no such judge keeps
    its numbers; where all do, there is no such setting. Takes as long as it takes to count their claims the first time.
    """
    with flows.store.read() as connection:
        own = [messages_first(judgements.of_run(connection, s.scope.run.id)) for s in found.subjects]
    if all(len(judges) < 2 for judges in own):
        return []
    named = dict.fromkeys(
        judge_title(judge, judges) for judges in own for judge in judges if judge.channel == "message"
    )
    asked: list[tuple[str, str]] = [(name, f"judge {name}") for name in named]
    asked += [(str(way), f"{way} of the judges") for way in (Combine.ANY, Combine.MAJORITY, Combine.ALL)]
    tried = []
    for wanted, words in asked:
        scopes = [
            _scope(flows, item.scope, wanted)
            if len(judges) > 1 and (wanted in set(Combine) or wanted in {judge_title(j, judges) for j in judges})
            else item.scope
            for item, judges in zip(found.subjects, own, strict=True)
        ]
        if any(new.version != item.scope.version for new, item in zip(scopes, found.subjects, strict=True)):
            subjects = tuple(
                subject(flows, new, found.counts, item.n) for new, item in zip(scopes, found.subjects, strict=True)
            )
            tried.append(Tried(Choice.JUDGE, words, replace(found, subjects=subjects).at(found.base)))
    return tried


def _scope(flows: Flows, now: Scope, judge: str) -> Scope:
    """The same question by another judge's word."""
    labelling = now.labelling.id if now.labelling else None
    new = scope(flows.store, now.run.id, labelling, judge, Verdicts.JUDGE, grounded=now.grounded, labels=now.labels)
    return replace(new, rule=now.rule)


def as_frame(found: Study, tried: Sequence[Tried], names: Sequence[str]) -> pd.DataFrame:
    """One row a setting and run, the current settings (choice 'now') first: choice, setting, run (its name), then
    violation, completeness, balanced (shares, nan where undefined), attributes, flows, necessary, retained (counts),
    and tau_violation, tau_completeness, tau_balanced of the setting."""
    every = [(NOW, "current settings", found.at(found.base)), *((t.choice, t.name, t.numbers) for t in tried)]
    places = {m: ranks(np.hstack([measured(numbers, m) for _, _, numbers in every]), m) for m in Measure}
    rows = []
    for column, (choice, setting, of_runs) in enumerate(every):
        taus = {m: tau(places[m][:, 0], places[m][:, column]) for m in Measure}
        for name, item in zip(names, of_runs, strict=True):
            rows.append(
                {
                    "choice": str(choice),
                    "setting": setting,
                    "run": name,
                    "violation": float(item.mean_violation[0]),
                    "completeness": float(item.mean_completeness[0]),
                    "balanced": float(item.balanced[0]),
                    "attributes": int(item.attributes[0]),
                    "flows": int(item.flows[0]),
                    "necessary": int(item.necessary[0]),
                    "retained": int(item.retained[0]),
                    **{f"tau_{measure}": value for measure, value in taus.items()},
                }
            )
    return pd.DataFrame(rows)


def ranges(found: Study, tried: Sequence[Tried], measure: Measure) -> list[Range]:
    """How far each choice moves this number, the widest first. Choices without any other setting are left out; where
    a setting leaves a run without the number, that run counts as unmoved."""
    now = measured(found.at(found.base), measure)[:, 0]
    here = ranks(now, measure)
    made = []
    for choice in Choice:
        own = [item for item in tried if item.choice == choice]
        if own:
            values = np.stack([measured(item.numbers, measure)[:, 0] for item in own])
            change = np.nan_to_num(values - now)
            low, high = (np.unravel_index(at, change.shape) for at in (change.argmin(), change.argmax()))
            taus = [tau(here, row) for row in ranks(values.T, measure).T]
            least = min(range(len(own)), key=lambda n: math.inf if math.isnan(taus[n]) else taus[n])
            made.append(
                Range(
                    choice,
                    min(float(change[low]), 0.0),
                    (own[int(low[0])].name, int(low[1])),
                    max(float(change[high]), 0.0),
                    (own[int(high[0])].name, int(high[1])),
                    taus[least],
                    own[least].name,
                    len(own),
                )
            )
    return sorted(made, key=lambda item: -item.width)

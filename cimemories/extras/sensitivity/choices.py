"""How headline numbers and the order of models move with the choices behind them, one changed at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations
from math import comb

import numpy as np
import pandas as pd

from cimemories.answer import Answer, Column, Table
from cimemories.compare.ranking import Measure, order_change, ranks, tau, tau_text, turned
from cimemories.compare.relabel import Numbers, mean_over
from cimemories.compare.study import (
    Setting,
    Study,
    left_out,
    measure_values,
    on_common_flows,
    subject,
)
from cimemories.extras.sensitivity.coverage import PARTS, WORDS, flow_coverage
from cimemories.flows.arrays import Bools, Floats, IdentifierRule
from cimemories.flows.flows import Flows
from cimemories.flows.scope import (
    Combine,
    Labels,
    Scope,
    Verdicts,
    judge_title,
    messages_first,
    resolve_scope,
)
from cimemories.metrics.sentences.numbers import LONGEST, number, share, shares
from cimemories.metrics.violation import balanced_many
from cimemories.store import judgements
from cimemories.store.labellings import least_text
from cimemories.text import UNDEFINED, count, decimal, exact_percent, lies_between, sentence, shortened

NOW = "now"
COUNTS = ("attributes", "flows", "necessary", "retained")  # of Numbers
MAIN_PRIOR = 0.8  # of the persona that is weighted above the others, which share the rest


class Choice(StrEnum):
    """A choice behind a reported number."""

    THRESHOLD = "consensus threshold"
    PRIORS = "priors of the personas"
    ALONE = "one persona alone"
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
    """The range over which one choice moves a number, in shares (0.01 is a point), over all its settings and runs.

    low, high: the least and the greatest change (0 if none is below or above); low_at, high_at: (setting, run) of
    these. least_tau: the lowest Kendall's tau of an order with that of the current settings, nan if undefined; tau_at:
    its setting. settings: how many were tried."""

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


def variants(study: Study) -> Iterator[Tried]:
    """Yield every setting of every choice that the votes and decisions allow, except the current one. Thresholds: those
    of the study. Priors, all above 0: equal ones, and MAIN_PRIOR for each persona. Each persona alone is a separate
    choice: under the paper's rule priors above 0 move nothing, and a prior of 1 is another norm (norms.py). Judges are
    left to `judged_otherwise`: they need other counts."""
    base = study.base
    over = study.over(base, study.thresholds)
    for index, threshold in enumerate(study.thresholds):
        if threshold != base.threshold:
            name = f"threshold {100 * threshold:.4g} %"
            yield Tried(Choice.THRESHOLD, name, tuple(item.at(index) for item in over))
    for choice, name, setting in _settings(study):
        if setting != base:
            yield Tried(choice, name, study.at(setting))


def _settings(study: Study) -> Iterator[tuple[Choice, str, Setting]]:
    base, keys = study.base, study.votes.keys
    personas = len(keys)
    if personas > 1:
        yield Choice.PRIORS, "equal priors", replace(base, priors=(1.0 / personas,) * personas)
        for persona, key in enumerate(keys):
            rest = (1.0 - MAIN_PRIOR) / (personas - 1)
            mainly = tuple(MAIN_PRIOR if n == persona else rest for n in range(personas))
            yield Choice.PRIORS, f"a prior of {exact_percent(MAIN_PRIOR)} for the {key}", replace(base, priors=mainly)
        for persona, key in enumerate(keys):
            alone = tuple(float(n == persona) for n in range(personas))
            yield Choice.ALONE, f"the {key} persona alone", replace(base, priors=alone)
        yield from ((Choice.PERSONA, f"without the {key}", s) for key, s in left_out(study))
    if (study.votes.decided >= 0).any():
        for against in Labels:
            name = "decisions before the consensus" if against == Labels.DECISIONS else "consensus alone"
            yield Choice.LABELS, name, replace(base, labels=against)
    for rule in IdentifierRule:
        yield Choice.IDENTIFIERS, f"identifiers by the rule '{rule}'", replace(base, identifiers=rule)


def judged_otherwise(flows: Flows, study: Study) -> Iterator[Tried]:
    """Yield the numbers by every other judge of the runs, and by any, most or all of them. A run without that judge
    keeps its numbers; if all do, the setting is left out. Slow the first time, when the claims are counted."""
    with flows.store.read() as connection:
        judges_of_runs = [messages_first(judgements.of_run(connection, s.scope.run.id)) for s in study.subjects]
    if all(len(judges) < 2 for judges in judges_of_runs):
        return
    named = dict.fromkeys(
        judge_title(judge, judges) for judges in judges_of_runs for judge in judges if judge.channel == "message"
    )
    candidates: list[tuple[str, str]] = [(name, f"judge {name}") for name in named]
    candidates += [(str(way), f"{way} of the judges") for way in (Combine.ANY, Combine.MAJORITY, Combine.ALL)]
    for judge_name, setting in candidates:
        scopes = []
        for item, judges in zip(study.subjects, judges_of_runs, strict=True):
            known = judge_name in set(Combine) or judge_name in {judge_title(j, judges) for j in judges}
            scopes.append(_scope(flows, item.scope, judge_name) if known and len(judges) > 1 else item.scope)
        if any(new.version != item.scope.version for new, item in zip(scopes, study.subjects, strict=True)):
            subjects = tuple(
                subject(flows, new, study.counts, item.n) for new, item in zip(scopes, study.subjects, strict=True)
            )
            judged = replace(study, subjects=subjects)
            if study.cut:  # another judge may have judged different messages
                judged = on_common_flows(flows, judged)
            yield Tried(Choice.JUDGE, setting, judged.at(study.base))


def _scope(flows: Flows, now: Scope, judge: str) -> Scope:
    """Return the scope with the claims of another judge."""
    labelling = now.labelling.id if now.labelling else None
    new = resolve_scope(
        flows.store, now.run.id, labelling, judge, Verdicts.JUDGE, grounded=now.grounded, labels=now.labels
    )
    return replace(new, rule=now.rule)


SETTINGS = {
    "choice": Column("text", "Choice"),
    "setting": Column("text", "Setting"),
    "run": Column("text", "Run"),
    "violation": Column("percent", "Violation"),
    "completeness": Column("percent", "Completeness"),
    "balanced": Column("percent", "Balanced"),
    "retained": Column("count", "Contexts"),
    "attributes": Column("count", "Attributes"),
    "flows": Column("count", "Flows"),
    **{f"tau_{measure}": Column("number", f"Kendall's tau of {measure}") for measure in Measure},
}


def settings_table(study: Study, tried: Sequence[Tried], names: Sequence[str]) -> Table:
    """Return one row a setting and run (its name), the current settings (choice 'now') first: the numbers (nan if
    undefined), their denominators, and the taus of the setting."""
    every = [(NOW, "current settings", study.at(study.base)), *((t.choice, t.name, t.numbers) for t in tried)]
    orders = {m: ranks(np.hstack([measure_values(numbers, m) for _, _, numbers in every]), m) for m in Measure}
    rows = [
        {"choice": str(choice), "setting": setting, "run": name}
        | numbers_of(item)
        | {f"tau_{m}": tau(orders[m][:, 0], orders[m][:, column]) for m in Measure}
        for column, (choice, setting, of_runs) in enumerate(every)
        for name, item in zip(names, of_runs, strict=True)
    ]
    return Table(pd.DataFrame(rows), SETTINGS, "Every run by every setting", folded=True)


def numbers_of(item: Numbers) -> dict[str, float]:
    """Return the numbers of a run at the first threshold, with their denominators."""
    return {
        "violation": float(item.mean_violation[0]),
        "completeness": float(item.mean_completeness[0]),
        "balanced": float(item.balanced[0]),
        **{count: int(getattr(item, count)[0]) for count in COUNTS},
    }


def ranges(study: Study, tried: Sequence[Tried], measure: Measure) -> list[Range]:
    """Return the range of each choice for this number, the widest first. Choices without another setting are left out.
    A run that lacks the number under a setting counts as unchanged."""
    now = measure_values(study.at(study.base), measure)[:, 0]
    ranks_now = ranks(now, measure)
    result = []
    for choice in Choice:
        settings = [item for item in tried if item.choice == choice]
        if settings:
            values = np.stack([measure_values(item.numbers, measure)[:, 0] for item in settings])
            change = np.nan_to_num(values - now)
            low, high = (np.unravel_index(at, change.shape) for at in (change.argmin(), change.argmax()))
            taus = [tau(ranks_now, row) for row in ranks(values.T, measure).T]
            # An undefined tau counts as the highest, so that it is chosen only if there is no other.
            least = min(range(len(settings)), key=lambda n: math.inf if math.isnan(taus[n]) else taus[n])
            result.append(
                Range(
                    choice,
                    min(float(change[low]), 0.0),
                    (settings[int(low[0])].name, int(low[1])),
                    max(float(change[high]), 0.0),
                    (settings[int(high[0])].name, int(high[1])),
                    taus[least],
                    settings[least].name,
                    len(settings),
                )
            )
    return sorted(result, key=lambda item: -item.width)


VISIBLE = 0.0005  # a change of a share below it would read as 0.0 points
IDLE_PRIORS = "where all personas must agree, no priors above 0 change anything"


def choices_text(ranges: Sequence[Range], names: Sequence[str], measure: Measure) -> str:
    """Name the largest change that any setting makes."""
    sides = [side for item in ranges for side in ((item.low, item.low_at), (item.high, item.high_at))]
    change, (setting, run) = max(sides, key=lambda side: abs(side[0]))
    if abs(change) < VISIBLE:
        return f"No choice moves {measure.named} of any run by a tenth of a point"
    number_of = sum(item.settings for item in ranges)
    most = f", the largest change of {number_of} settings" if number_of > 1 else ""
    start = setting if setting.startswith("without") else f"with {setting}"
    who = shortened(names[run], LONGEST)
    size = number(100 * change, 1, "+")
    text = f"{start[0].upper()}{start[1:]}, {measure.named} of {who} changes by {size} points{most}"
    turned = sum(item.least_tau < 1 for item in ranges)
    if not all(math.isnan(item.least_tau) for item in ranges):
        text += f"; {turned} of {count(len(ranges), 'choice')} can change the order of values"
    return text


@dataclass(frozen=True, kw_only=True)
class LeftOut(Answer):
    """The effect of leaving out each persona on a number. runs: one row a run, the best first, with the number and the
    rank without each persona, by its key. taus: Kendall's tau of each order with the current one."""

    runs: Table
    taus: dict[str, float]


def personas_left_out(study: Study, names: Sequence[str], measure: Measure) -> LeftOut | None:
    """Leave out each persona in turn, with the others' priors scaled up. None if only one has a prior."""
    settings = left_out(study)
    if not settings:
        return None
    now = measure_values(study.at(study.base), measure)[:, 0]
    ranks_now = ranks(now, measure)
    values: dict[str, object] = {"run": list(names), "now": now, "rank": ranks_now}
    columns = {"run": Column("text", "Run"), "now": Column("percent", "Now"), "rank": Column("number", "Rank")}
    taus, changes = {}, []
    for key, setting in settings:
        without = measure_values(study.at(setting), measure)[:, 0]
        order = ranks(without, measure)
        values |= {f"value_{key}": without, f"value_{key}_change": without - now, f"rank_{key}": order}
        columns |= {f"value_{key}": Column("percent", f"Without the {key}"), f"rank_{key}": Column("number", "Rank")}
        taus[key] = tau(ranks_now, order)
        changes += [(key, name, float(change)) for name, change in zip(names, without - now, strict=True)]
    frame = pd.DataFrame(values).sort_values("rank", kind="stable", na_position="last", ignore_index=True)
    notes = [
        f"{measure.label} with one persona left out and the others' priors scaled up, by the current threshold of "
        f"{100 * study.base.threshold:.4g} %; {count(len(names), 'run')}"
    ]
    if len(names) > 1:
        shown = ", ".join(f"without the {key} {UNDEFINED if math.isnan(v) else decimal(v)}" for key, v in taus.items())
        notes.append(f"Kendall's tau with the current order: {shown}")
    return LeftOut(
        sentence=sentence(personas_text(changes, measure)),
        notes=tuple(notes),
        simulated=study.simulated,
        runs=Table(frame, columns),
        taus=taus,
    )


def personas_text(changes: Sequence[tuple[str, str, float]], measure: Measure) -> str:
    """Name the largest change by leaving out a persona. changes: (persona, run, change) for each persona left out."""
    known = [item for item in changes if not math.isnan(item[2])]
    if not known:
        return ""
    who, run, most = max(known, key=lambda item: abs(item[2]))
    if abs(most) < VISIBLE:
        return f"Leaving out one persona moves {measure.named} of no run"
    largest = f", the largest of {count(len(known), 'change')}" if len(known) > 1 else ""
    return f"Without the {who}, {measure.named} of {run} changes by {number(100 * most, 1, '+')} points{largest}"


RANGES = {
    "choice": Column("text", "Choice"),
    "settings": Column("number", "Other settings"),
    "low": Column("difference", "Least change, points"),
    "low_setting": Column("text", "at"),
    "low_run": Column("text", "of"),
    "high": Column("difference", "Greatest change, points"),
    "high_setting": Column("text", "by"),
    "high_run": Column("text", "for"),
    "least_tau": Column("number", "Least Kendall's tau"),
    "tau_setting": Column("text", "there"),
}


def ranges_table(ranges: Sequence[Range], names: Sequence[str], caption: str = "") -> Table:
    """Return one row a choice: its settings, the least and the greatest change (shares) with the setting and the run of
    either, and the least tau (nan without an order) with its setting."""
    rows = [
        {
            "choice": str(item.choice),
            "settings": item.settings,
            "low": item.low,
            "low_setting": item.low_at[0] if item.low < 0 else "",
            "low_run": names[item.low_at[1]] if item.low < 0 else "",
            "high": item.high,
            "high_setting": item.high_at[0] if item.high > 0 else "",
            "high_run": names[item.high_at[1]] if item.high > 0 else "",
            "least_tau": item.least_tau,
            "tau_setting": "" if math.isnan(item.least_tau) else item.tau_at,
        }
        for item in ranges
    ]
    return Table(pd.DataFrame(rows), RANGES, caption)


# ---- one setting tried, beside the current ones


TRIAL = {
    "run": Column("text", "Run"),
    "rank": Column("number", "Place"),
    "rank_now": Column("number", "Place now"),
    "violation": Column("percent", "Violation"),
    "completeness": Column("percent", "Completeness"),
    "balanced": Column("percent", "Balanced score"),
    "speaks": Column("percent", "Covers", "Share of the run's flows that violation and completeness rest on"),
    "retained": Column("count", "Contexts", "Retained (profile, context) pairs"),
    "attributes": Column("count", "Attributes"),
    "flows": Column("count", "Flows", "Inappropriate flows behind violation"),
}


@dataclass(frozen=True, kw_only=True)
class Trial(Answer):
    """A setting tried on all runs, beside the current one. runs: one row a run, the best by the current settings first:
    violation, completeness and balanced, rank (by the measure), attributes, flows, necessary, retained, and speaks
    (share of the run's flows that the headline covers), each also `_now`. tau: Kendall's tau of the two orders. turned:
    (passes, passed) names. now, over: the measure by the current settings [runs], and by the tried ones at `thresholds`
    [runs, T]."""

    setting: Setting
    runs: Table
    tau: float
    turned: tuple[tuple[str, str], ...]
    now: Floats
    over: Floats
    thresholds: tuple[float, ...]


COVERED = {
    "pairs": Column("count", "Flows"),
    "speaks": Column("count", "Covered"),
    "share": Column("percent", "Share"),
    "decided": Column("count", "of these decided by people"),
    **{part: Column("count", WORDS[part].capitalize()) for part in PARTS},
}


def flows_per_run(flows: Flows, study: Study) -> list[int]:
    """Count the flows of each run, whether or not the headline covers them: [runs]."""
    return [flow_coverage(flows, subject.scope).pairs for subject in study.subjects]


def trial(
    study: Study,
    setting: Setting,
    names: Sequence[str],
    measure: Measure,
    pairs: Sequence[int],
    now: Sequence[Numbers] | None = None,
) -> Trial:
    """Try a setting on all runs. names, pairs (flows of each, the denominator of `speaks`): [runs]. now: the numbers by
    the current settings, if known. Raises ValueError for an invalid setting."""
    numbers_now = tuple(now) if now is not None else study.at(study.base)
    # The tried threshold is among them, so its numbers are a column of the same table.
    thresholds = tuple(sorted({*study.thresholds, setting.threshold}))
    over = study.over(setting, thresholds)
    index = thresholds.index(setting.threshold)
    numbers_tried = tuple(item.at(index) for item in over)
    before, after = (measure_values(item, measure)[:, 0] for item in (numbers_now, numbers_tried))
    first, second = ranks(before, measure), ranks(after, measure)
    rows = []
    for at, (old, new) in enumerate(zip(numbers_now, numbers_tried, strict=True)):
        row: dict[str, object] = {"run": names[at], "rank_now": first[at], "rank": second[at]}
        both = [numbers_of(item) for item in (old, new)]
        for of_run in both:
            of_run["speaks"] = (of_run["flows"] + of_run["necessary"]) / pairs[at] if pairs[at] else math.nan
        for name, value in both[1].items():
            row |= {name: value, f"{name}_now": both[0][name], f"{name}_change": value - both[0][name]}
        rows.append(row)
    frame = pd.DataFrame(rows).sort_values(["rank_now", "run"], na_position="last", kind="stable", ignore_index=True)
    passes = tuple((names[a], names[b]) for a, b in turned(before, after, measure))
    of_tau = tau(first, second)
    text = order_change(passes, len(names), of_tau)
    changed = changed_settings(study.base, setting, study.votes.keys)
    return Trial(
        sentence=f"{text}." if math.isnan(of_tau) else f"{text}: {tau_text(of_tau)}.",
        simulated=study.simulated,
        setting=setting,
        runs=Table(frame, TRIAL, f"Tried: a threshold of {exact_percent(setting.threshold)}{changed}"),
        tau=of_tau,
        turned=passes,
        now=before,
        over=measure_values(over, measure),
        thresholds=thresholds,
    )


def changed_settings(base: Setting, setting: Setting, keys: Sequence[str]) -> str:
    """Return ', with priors a 50 %, b 50 %': how a setting differs from the current one, apart from its threshold."""
    text = ""
    if setting.priors != base.priors:
        shares = ", ".join(f"{key} {exact_percent(prior)}" for key, prior in zip(keys, setting.priors, strict=True))
        text += f", with priors {shares}"
    if setting.least_votes != base.least_votes:
        text += f", {least_text(setting.least_votes)}"
    if setting.identifiers != base.identifiers:
        text += f", identifiers by the rule '{setting.identifiers}'"
    if setting.labels != base.labels:
        text += ", by the consensus alone" if setting.labels == Labels.CONSENSUS else ", decisions before the consensus"
    return text


def setting_of(
    study: Study,
    threshold: float | None,
    weights: Sequence[int] | None,
    identifiers: IdentifierRule,
    least_votes: int | None = None,
) -> Setting:
    """Return the current setting with these values in place, None for those that stay: weights of the personas, of
    which only the proportions count; least_votes: counted votes that each persona needs. Raises ValueError for weights
    that are all 0 or not one a persona."""
    priors = study.base.priors
    if weights is not None:
        if len(weights) != len(priors) or sum(weights) <= 0 or min(weights) < 0:
            raise ValueError("the weights of the personas must be one each, not below 0, and not all 0")
        priors = tuple(weight / sum(weights) for weight in weights)
    at = study.base.threshold if threshold is None else threshold
    least = study.base.least_votes if least_votes is None else least_votes
    return Setting(at, priors, study.base.labels, identifiers, least)


# ---- what the numbers and the order of models would have been with fewer profiles


MOST, SEED = 1000, 20  # all subsets of k profiles if there are at most MOST, else MOST at random with this seed
BAND = (2.5, 97.5)  # percent of the subsets that lie below and above


@dataclass(frozen=True)
class Subsets:
    """The numbers with k profiles, over subsets of the common ones: mean and the middle 95 % of the subsets, [runs].

    count: the number of subsets; all: whether these are all possible ones. same_order: the share of subsets with the
    same order as all profiles; same_best: with the same best run; nan with one run."""

    k: int
    count: int
    all: bool
    mean: Floats
    low: Floats
    high: Floats
    same_order: float
    same_best: float


@dataclass(frozen=True)
class ByProfiles:
    """Subsets of 1 to all common profiles. runs: positions of the runs that are included; left_out: of those with fewer
    than two profiles in common with the others. profiles: the number in common."""

    runs: tuple[int, ...]
    left_out: tuple[int, ...]
    profiles: int
    by_k: tuple[Subsets, ...]


def by_profiles(study: Study, measure: Measure) -> ByProfiles:
    """Compute the number on subsets of the profiles, under the current settings of the study. `by_k` is empty if the
    runs that can be compared have fewer than two profiles in common."""
    people = [set(item.profiles) for item in study.subjects]
    widest = max(people, key=len)
    # Runs with almost nothing in common with the widest one would leave no common profiles.
    runs = tuple(n for n, profiles in enumerate(people) if len(profiles & widest) > 1)
    common = sorted(set.intersection(*(people[n] for n in runs))) if runs else []
    left_out = tuple(n for n in range(len(people)) if n not in runs)
    if len(common) < 2:
        return ByProfiles((), tuple(range(len(people))), len(common), ())
    numbers = replace(study, subjects=tuple(study.subjects[n] for n in runs)).at(study.base)
    rows = [np.searchsorted(study.subjects[n].profiles, common) for n in runs]
    violation = np.stack([item.violation[row, 0] for item, row in zip(numbers, rows, strict=True)])
    complete = np.stack([item.completeness[row, 0] for item, row in zip(numbers, rows, strict=True)])
    by_k = tuple(subsets(violation, complete, k, measure) for k in range(1, len(common) + 1))
    return ByProfiles(runs, left_out, len(common), by_k)


def subsets_text(by_k: Sequence[Subsets], k: int, runs: int) -> str:
    """Say what k profiles would have shown. by_k: of each size from 1 to all."""
    size, of = by_k[k - 1], len(by_k)
    if runs < 2:
        ends = shares(float(size.low[0]), float(size.high[0]))
        if k == of:
            return f"With all {of} profiles the number is {ends[0]}"
        return f"With {k} of {of} profiles the number {lies_between(*ends)} in the middle 95 % of the subsets"
    if k == of:
        half = by_k[max(k // 2, 1) - 1]
        return (
            f"Half of the profiles ({half.k} of {k}) give the order of all in {share(half.same_order)} of the subsets"
        )
    return (
        f"{k} of {of} profiles give the order of all in {share(size.same_order)} of the subsets, "
        f"and the same first run in {share(size.same_best)}"
    )


SUBSETS = {
    "profiles": Column("number", "Profiles"),
    "run": Column("text", "Run"),
    "mean": Column("percent", "Mean"),
    "low": Column("percent", "2.5 % lie below"),
    "high": Column("percent", "2.5 % lie above"),
    "subsets": Column("count", "Subsets"),
    "same_order": Column("percent", "Same order"),
    "same_best": Column("percent", "Same first"),
}


def subsets_table(subsets: ByProfiles, names: Sequence[str], caption: str = "") -> Table:
    """Return one row a size and run: the mean over subsets of that size and their middle 95 %."""
    rows = [
        {
            "profiles": item.k,
            "run": names[run],
            "mean": item.mean[row],
            "low": item.low[row],
            "high": item.high[row],
            "subsets": item.count,
            "same_order": item.same_order,
            "same_best": item.same_best,
        }
        for item in subsets.by_k
        for row, run in enumerate(subsets.runs)
    ]
    return Table(pd.DataFrame(rows), SUBSETS, caption, folded=True)


def subsets(violation: Floats, complete: Floats, k: int, measure: Measure) -> Subsets:
    """Compute the numbers over subsets of k profiles. violation, complete: [runs, profiles], nan if a profile has none.
    Raises ValueError for k < 1 or above the number of profiles."""
    runs, many = violation.shape
    if not 1 <= k <= many:
        raise ValueError(f"k must be from 1 to {many}, this is {k}")
    chosen = _chosen(many, k)
    values = _values(violation, complete, chosen, measure)
    with_all = _values(violation, complete, np.ones((1, many), np.bool_), measure)
    order, whole = ranks(values, measure), ranks(with_all, measure)
    # nan equals nothing, itself included: a run without the number on both sides is the same.
    same = (order == whole) | (np.isnan(order) & np.isnan(whole))
    best = ((order == 1) == (whole == 1)).all(axis=0)
    # nanpercentile warns of rows that are wholly nan; they get 0 here and nan after it.
    defined = np.where(np.isnan(values).all(axis=1, keepdims=True), 0.0, values)
    low, high = (
        np.where(np.isnan(values).all(axis=1), np.nan, np.nanpercentile(defined, side, axis=1)) for side in BAND
    )
    return Subsets(
        k=k,
        count=len(chosen),
        all=comb(many, k) <= MOST,
        mean=mean_over(values, axis=1),
        low=low,
        high=high,
        same_order=float(same.all(axis=0).mean()) if runs > 1 else float("nan"),
        same_best=float(best.mean()) if runs > 1 else float("nan"),
    )


def _values(violation: Floats, complete: Floats, chosen: Bools, measure: Measure) -> Floats:
    """Return the number of each run over each subset: [runs, subsets]. chosen: [subsets, profiles]."""
    parts = [mean_over(np.where(chosen, whole[:, None, :], np.nan), axis=2) for whole in (violation, complete)]
    if measure == Measure.BALANCED:
        return balanced_many(parts[0], parts[1])
    return parts[0] if measure == Measure.VIOLATION else parts[1]


def _chosen(many: int, k: int) -> Bools:
    """Return subsets of k of so many profiles: [subsets, profiles]."""
    if comb(many, k) <= MOST:
        picked = np.array(list(combinations(range(many), k)), np.int64)
        chosen = np.zeros((len(picked), many), np.bool_)
        np.put_along_axis(chosen, picked, True, axis=1)
        return chosen
    chance = np.random.default_rng(SEED)
    # permuted shuffles each row by itself: every subset of k is equally likely.
    first = np.broadcast_to(np.arange(many) < k, (MOST, many))
    return chance.permuted(first, axis=1)

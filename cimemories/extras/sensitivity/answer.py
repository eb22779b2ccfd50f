"""How results depend on the choices behind them: labels, judges, identifiers, the number of profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pandas as pd

from cimemories.answer import Answer, Column, Table
from cimemories.compare.leaderboard import leaderboard, ranking_notes
from cimemories.compare.ranking import Measure, Swap, order_text, swap_text, swaps
from cimemories.compare.study import Setting, Study, measure_values, ranked_study
from cimemories.extras.sensitivity import choices
from cimemories.extras.sensitivity.choices import Trial
from cimemories.extras.sensitivity.coverage import coverage_text, flow_coverage
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows
from cimemories.flows.labels import custom_rule
from cimemories.flows.scope import Scope
from cimemories.metrics.places import By
from cimemories.metrics.warnings import comparison_warnings
from cimemories.store.engine import StoreError
from cimemories.text import sentence

RUNS = {
    "name": Column("text", "Run"),
    "violation": Column("percent", "Violation"),
    "completeness": Column("percent", "Completeness"),
    "balanced": Column("percent", "Balanced score"),
    "attributes": Column("count", "Attributes"),
    "flows": Column("count", "X flows", "Inappropriate flows behind violation"),
    "retained": Column("count", "Contexts", "Retained (profile, context) pairs"),
    "share": Column("percent", "Flows covered", "Share of the run's flows that the numbers rest on"),
    "pairs": Column("count", "of"),
}
SWAPS = {"words": Column("text", "Change of places")}


@dataclass(frozen=True, kw_only=True)
class Sensitivity(Answer):
    """rule, setting: the current basis of labels and numbers. priors: by persona. unanimous: whether every vote has to
    agree, so that priors above 0 change nothing. order_by: the number that runs are ordered by.

    runs: one row a run, by the current settings. ranges: one row a choice, how far it moves the number. coverage: one
    row a run and group, its flows and how many of them the numbers rest on. tried: a setting that was asked for.
    settings: one row a setting and run. swaps: one row a pair of runs that change places over the thresholds. profiles:
    one row a number of profiles and run. not_ranked: one row a run that has no order among the others."""

    rule: str
    setting: Setting
    priors: dict[str, float]
    unanimous: bool
    order_by: Measure
    runs: Table
    ranges: Table
    coverage: Table
    tried: Trial | None
    settings: Table
    swaps: Table
    profiles: Table
    not_ranked: Table


def sensitivity(
    flows: Flows,
    scopes: Sequence[Scope],
    rule: IdentifierRule = IdentifierRule.EXACT,
    *,
    measure: Measure = Measure.BALANCED,
    by: By = By.DOMAIN,
    n: int | None = None,
    rank_small: bool = False,
    threshold: float | None = None,
    priors: Mapping[str, float] | None = None,
    without: str | None = None,
    least_votes: int | None = None,
) -> Sensitivity:
    """Change one choice at a time, from the current settings. measure: the number that runs are ordered by. by: the
    grouping of the coverage. n, rank_small: as of the leaderboard. threshold, priors, without (the key of a persona),
    least_votes: a setting to try. Raises StoreError for runs of several datasets or labellings, without labels, and for
    an invalid setting."""
    board = leaderboard(flows, scopes, rule, n=n, warned=False, rank_small=rank_small)
    # An order of runs that cannot be ranked together would be due to their missing data.
    study = ranked_study(flows, board, scopes, rule)
    scopes = [item.scope for item in study.subjects]
    names = [board.names[scope.run.id] for scope in scopes]
    setting = _setting(study, threshold, priors, without, least_votes)
    tried = list(chain(choices.variants(study), choices.judged_otherwise(flows, study)))
    ranges = choices.ranges(study, tried, measure)
    by_profiles = choices.by_profiles(study, measure)
    covered = [flow_coverage(flows, scope, by, rule) for scope in scopes]
    groups = pd.concat([item.frame.assign(run=name) for name, item in zip(names, covered, strict=True)])
    turns, texts, subsets = _swaps(study, measure), [], ""
    if len(names) > 1:
        texts.append(order_text(turns, names, study.thresholds, measure, most=5))
    if ranges:
        texts.append(choices.choices_text(ranges, names, measure))
        texts += [choices.IDLE_PRIORS] if study.base.unanimous else []
    if by_profiles.by_k:
        half = max(by_profiles.profiles // 2, 1)
        subsets = choices.subsets_text(by_profiles.by_k, half, len(by_profiles.runs))
        texts.append(subsets)
    now = study.at(study.base)
    runs = [
        {"run": item.scope.run.id, "name": name, "n": item.n, "judge": item.scope.judge_text}
        | choices.numbers_of(numbers)
        | {"pairs": cover.pairs, "speaks": cover.speaks, "share": cover.share, **cover.totals}
        for item, name, numbers, cover in zip(study.subjects, names, now, covered, strict=True)
    ]
    alone = len(names) == 1
    outside = [{"run": line.run.id, "reason": line.outside} for line in board.outside if len(board.lines) > 1]
    changed = [
        {
            "ahead_now": names[swap.ahead],
            "behind_now": names[swap.behind],
            "thresholds": swap.spans,
            "words": swap_text(swap, names, study.thresholds),
        }
        for swap in turns
    ]
    pairs = choices.flows_per_run(flows, study)
    return Sensitivity(
        sentence=" ".join(map(sentence, texts)),
        notes=(*ranking_notes(board), *(() if alone else comparison_warnings(flows.store, scopes))),
        simulated=study.simulated,
        rule=study.rule.name,
        setting=study.base,
        priors=dict(zip(study.votes.keys, study.base.priors, strict=True)),
        unanimous=study.base.unanimous,
        order_by=measure,
        runs=Table(pd.DataFrame(runs), RUNS, f"Current settings: {study.rule.name}, {study.rule.text}"),
        ranges=choices.ranges_table(ranges, names, f"Change of {measure.named} in points, one choice at a time"),
        coverage=Table(
            groups,
            {"run": Column("text", "Run"), "group": Column("text", str(by).capitalize()), **choices.COVERED},
            coverage_text(covered[0]) if alone else "Flows that the numbers rest on",
            folded=not alone,
        ),
        tried=None if setting == study.base else choices.trial(study, setting, names, measure, pairs, now),
        settings=choices.settings_table(study, tried, names),
        swaps=Table(pd.DataFrame(changed), SWAPS, folded=True),
        profiles=choices.subsets_table(by_profiles, names, subsets),
        not_ranked=Table(pd.DataFrame(outside), {}, folded=True),
    )


def _setting(
    study: Study,
    threshold: float | None,
    priors: Mapping[str, float] | None,
    without: str | None,
    least_votes: int | None,
) -> Setting:
    base, keys = study.base, study.votes.keys
    by_key = dict(priors) if priors else dict(zip(keys, base.priors, strict=True))
    at = base.threshold if threshold is None else threshold
    applied = custom_rule(study.counts.personas, "tried", at, by_key, least_votes)
    least = base.least_votes if least_votes is None else least_votes
    setting = replace(base, threshold=applied.threshold, priors=applied.priors, least_votes=least)
    if without is None:
        return setting
    if without not in keys:
        raise StoreError(f"there is no persona '{without}'. Use one of {', '.join(keys)}.")
    rest = setting.without(keys.index(without))
    if rest is None:
        raise StoreError(f"'{without}' cannot be left out: it has the whole prior.")
    return rest


def _swaps(study: Study, measure: Measure) -> list[Swap]:
    """Return the thresholds at which two runs change places."""
    over = measure_values(study.over(study.base, study.thresholds), measure)
    now = over[:, study.thresholds.index(study.base.threshold)]
    return swaps(now, over, study.thresholds, study.base.threshold, measure)

"""The command that says what headline numbers and the order of runs depend on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import AsJson, Workspace, cli
from cimemories.cli.explore import Grounded, Identifiers, JudgeOption, Labels, RuleOption, identifier_rule, scope_of
from cimemories.cli.labels_report import priors_by_key
from cimemories.cli.output import percent
from cimemories.store.engine import DEFAULT_WORKSPACE, StoreError, open_store

if TYPE_CHECKING:
    from cimemories.analysis.choices import Range, Tried
    from cimemories.analysis.flows import Flows, Scope
    from cimemories.analysis.profile_subsets import ByProfiles
    from cimemories.analysis.ranking import Measure
    from cimemories.analysis.sensitivity import Setting, Study
    from cimemories.analysis.spoken_for import SpokenFor
    from cimemories.analysis.trying import Trial

Samples = Annotated[int | None, typer.Option("--samples", "-n", min=1, help="n of Violation@n; else all of each run.")]
OrderBy = Annotated[str, typer.Option("--order-by", help="Of the runs: balanced, violation or completeness.")]
Threshold = Annotated[float | None, typer.Option("--threshold", help="A consensus threshold to try.")]
Priors = Annotated[str | None, typer.Option("--priors", help="Priors to try, as fundamentalist=0.3,pragmatic=0.7.")]
Without = Annotated[str | None, typer.Option("--without", help="A persona to leave out, by its key.")]
ByOption = Annotated[
    str, typer.Option("--by", help="Of the flows spoken for: domain, context, sphere, event, profile or attribute.")
]


@cli.command()
def sensitivity(
    run_ids: Annotated[list[str], typer.Argument(metavar="RUN [RUN...]")],
    as_json: AsJson = False,
    order_by: OrderBy = "balanced",
    threshold: Threshold = None,
    priors: Priors = None,
    without: Without = None,
    samples: Samples = None,
    by: ByOption = "domain",
    labels: Labels = None,
    rule: RuleOption = None,
    identifiers: Identifiers = "exact",
    judge: JudgeOption = None,
    grounded: Grounded = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """What numbers and the order of runs depend on.  Example: cimemories sensitivity run-3f9a run-77 --threshold 0.8

    Every choice behind the numbers is moved alone: consensus threshold, priors, a persona left out, decisions, judge,
    identifier rule, number of profiles. --threshold, --priors and --without try one setting. Also said is what share
    of the flows the headline speaks for.
    """
    from cimemories.analysis.breakdown import By
    from cimemories.analysis.choices import judged_otherwise, ranges, variants
    from cimemories.analysis.flows import Flows
    from cimemories.analysis.profile_subsets import by_profiles
    from cimemories.analysis.ranking import Measure
    from cimemories.analysis.sensitivity import study
    from cimemories.analysis.spoken_for import spoken_for
    from cimemories.analysis.trying import flows_of, trial

    chosen = identifier_rule(identifiers)
    if order_by not in set(Measure):
        raise StoreError(f"runs cannot be put in order by '{order_by}'. Use {', '.join(Measure)}.")
    if by not in set(By):
        raise StoreError(f"there is no breakdown by '{by}'. Use one of {', '.join(By)}.")
    store = open_store(workspace)
    scopes = [scope_of(store, run_id, labels, judge, grounded=grounded, rule=rule) for run_id in dict.fromkeys(run_ids)]
    flows, measure = Flows(store), Measure(order_by)
    found = study(flows, scopes, chosen, n=samples)
    setting = _setting(found, threshold, priors, without)
    names = _names(scopes)
    tried = None if setting == found.base else trial(found, setting, names, measure, flows_of(flows, found))
    settings = [*variants(found), *judged_otherwise(flows, found)]
    moved = ranges(found, settings, measure)
    fewer = by_profiles(found, measure)
    spoken = [spoken_for(flows, asked, By(by), chosen) for asked in scopes]
    if as_json:
        output.line(output.as_json_text(_json(found, names, measure, settings, moved, fewer, spoken, tried)))
        return
    _now(found, names, spoken)
    if len(scopes) > 1:
        _order(found, names, measure)
    _ranges(moved, names, measure)
    _fewer(fewer)
    if len(scopes) == 1:
        _groups(spoken[0])
    if tried is not None:
        _tried(found, tried)
    _notes(flows, scopes)


def _names(scopes: Sequence[Scope]) -> list[str]:
    """The model of each run, with the run's id where several are of one model."""
    often = Counter(asked.run.model for asked in scopes)
    return [a.run.model if often[a.run.model] == 1 else f"{a.run.model} ({a.run.id})" for a in scopes]


def _setting(found: Study, threshold: float | None, priors: str | None, without: str | None) -> Setting:
    """The setting that is tried. Raises StoreError where it is no rule, or for a persona that there is not."""
    from dataclasses import replace

    from cimemories.analysis.rule import custom_rule

    base, keys = found.base, found.votes.keys
    wanted = priors_by_key(priors) if priors else dict(zip(keys, base.priors, strict=True))
    at = base.threshold if threshold is None else threshold
    applied = custom_rule(found.counts.personas, "tried", at, wanted)
    setting = replace(base, threshold=applied.threshold, priors=applied.priors)
    if without is None:
        return setting
    if without not in keys:
        raise StoreError(f"no persona is called '{without}'. There are: {', '.join(keys)}.")
    left = setting.without(keys.index(without))
    if left is None:
        raise StoreError(f"without '{without}' nobody is asked: it has the whole prior.")
    return left


def _now(found: Study, names: Sequence[str], spoken: Sequence[SpokenFor]) -> None:
    output.line(f"current settings: {found.rule.name}, {found.rule.words}")
    rows = [
        (
            name,
            percent(item.mean_violation[0]),
            percent(item.mean_completeness[0]),
            percent(item.balanced[0]),
            f"{item.attributes[0]:,}",
            f"{item.flows[0]:,}",
            f"{item.retained[0]:,}",
            f"{percent(said.share)} of {said.pairs:,}",
        )
        for name, item, said in zip(names, found.at(found.base), spoken, strict=True)
    ]
    heads = ("violation", "completeness", "balanced", "attributes", "X flows", "contexts", "speaks for flows")
    output.table([("", False), *((head, True) for head in heads)], rows, whole=True)


def _order(found: Study, names: Sequence[str], measure: Measure) -> None:
    from cimemories.analysis.ranking import order_words, swaps
    from cimemories.analysis.sensitivity import measured

    over = measured(found.over(found.base, found.thresholds), measure)
    now = over[:, found.thresholds.index(found.base.threshold)]
    turns = swaps(now, over, found.thresholds, found.base.threshold, measure)
    output.line(f"\n{order_words(turns, names, found.thresholds, measure, most=5)}.")


def _ranges(moved: Sequence[Range], names: Sequence[str], measure: Measure) -> None:
    output.line(f"\nchange of {measure.named} in points, one choice at a time")

    def told(value: float, at: tuple[str, int]) -> str:
        return f"{100 * value:+.1f} {names[at[1]]}, {at[0]}" if value else "0.0"

    output.table(
        [("choice", False), ("settings", True), ("least", False), ("greatest", False), ("least tau", True)],
        [
            (
                str(item.choice),
                item.settings,
                told(item.low, item.low_at),
                told(item.high, item.high_at),
                "–" if item.least_tau != item.least_tau else f"{item.least_tau:.2f}",
            )
            for item in moved
        ],
        whole=True,
    )


def _fewer(fewer: ByProfiles) -> None:
    from cimemories.analysis.sensitivity_figures import profiles_title

    if fewer.by_k:
        output.line(f"\n{profiles_title(fewer, max(fewer.profiles // 2, 1))}.")


def _groups(found: SpokenFor) -> None:
    output.line(f"\n{found.words}; by group:")
    parts = [str(name) for name in found.frame.columns if name not in ("group", "share")]
    output.table(
        [("", False), ("share", True), *((name.replace("_", " "), True) for name in parts)],
        [
            [row["group"], percent(row["share"]), *(f"{row[name]:,}" for name in parts)]
            for row in found.frame.to_dict("records")
        ],
        whole=True,
    )


def _tried(found: Study, tried: Trial) -> None:
    from cimemories.analysis.trying import under_words

    more = under_words(found.base, tried.setting, found.votes.keys)
    output.line(f"\ntried: a threshold of {tried.setting.threshold:.4g}{more}")
    numbers = ("violation", "completeness", "balanced")
    rows = [
        [
            row["run"],
            *(f"{percent(row[name])} ({100 * row[f'{name}_change']:+.1f})" for name in numbers),
            f"{row['retained']:,}",
            percent(row["speaks"]),
            "–" if row["rank"] != row["rank"] else f"{row['rank']:.0f}",
        ]
        for row in tried.frame.to_dict("records")
    ]
    heads = (*numbers, "contexts", "speaks for", "place")
    output.table([("", False), *((head, True) for head in heads)], rows, whole=True)
    output.line(tried.sentence)


def _notes(flows: Flows, scopes: Sequence[Scope]) -> None:
    from cimemories.analysis.warnings import comparison_warnings

    if len(scopes) > 1:
        for text in comparison_warnings(flows.store, scopes):
            output.note(f"warning: {text}")
    for asked in scopes:
        if asked.simulated:
            output.note(f"note on {asked.run.id}: simulated: {' and '.join(asked.simulated)}")


def _json(
    found: Study,
    names: Sequence[str],
    measure: Measure,
    settings: Sequence[Tried],
    moved: Sequence[Range],
    fewer: ByProfiles,
    spoken: Sequence[SpokenFor],
    tried: Trial | None,
) -> dict[str, object]:
    """One object for scripts; nan becomes null."""
    from cimemories.analysis.choices import as_frame
    from cimemories.analysis.leaderboard import none_for_nan
    from cimemories.analysis.ranking import swap_words, swaps
    from cimemories.analysis.sensitivity import measured
    from cimemories.analysis.sensitivity_figures import profiles, ranges_frame

    def rows(frame: object) -> list[dict[str, object]]:
        import pandas as pd

        assert isinstance(frame, pd.DataFrame)
        return [{str(k): none_for_nan(v) for k, v in row.items()} for row in frame.to_dict("records")]

    base = found.base
    over = measured(found.over(base, found.thresholds), measure)
    now = over[:, found.thresholds.index(base.threshold)]
    turns = swaps(now, over, found.thresholds, base.threshold, measure)
    drawn = profiles(fewer, names, measure, 1)
    made: dict[str, object] = {
        "rule": found.rule.name,
        "threshold": base.threshold,
        "priors": dict(zip(found.votes.keys, base.priors, strict=True)),
        "labels": str(base.labels),
        "identifier_rule": str(base.identifiers),
        "order_by": str(measure),
        "simulated": any(bool(item.scope.simulated) for item in found.subjects),
        "runs": [
            {"run": item.scope.run.id, "name": name, "n": item.n, "judge": item.scope.judge_words}
            for item, name in zip(found.subjects, names, strict=True)
        ],
        "settings": rows(as_frame(found, settings, names)),
        "ranges": rows(ranges_frame(moved, names)),
        "changes_of_places": [
            {
                "ahead_now": names[turn.ahead],
                "behind_now": names[turn.behind],
                "thresholds": [list(span) for span in turn.spans],
                "words": swap_words(turn, names, found.thresholds),
            }
            for turn in turns
        ],
        "profiles": rows(drawn.frame) if drawn else [],
        "spoken_for": [
            {"run": item.scope.run.id, **said.as_json(), "by": rows(said.frame)}
            for item, said in zip(found.subjects, spoken, strict=True)
        ],
    }
    if tried is not None:
        made["tried"] = {
            "threshold": tried.setting.threshold,
            "priors": dict(zip(found.votes.keys, tried.setting.priors, strict=True)),
            "kendall_tau": none_for_nan(tried.tau),
            "words": tried.words,
            "runs": rows(tried.frame),
        }
    return made

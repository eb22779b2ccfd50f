"""Commands that compare runs with each other, and runs under other settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import (
    RUN_ID,
    AsJson,
    AsLatex,
    AsMarkdown,
    NumberOptions,
    RankSmall,
    Samples,
    Workspace,
    grouped,
    one_of,
    open_record,
    priors_by_key,
)
from cimemories.cli.output import mark
from cimemories.store.engine import DEFAULT_WORKSPACE, StoreError
from cimemories.text import decimal, exact_percent, percent, sentence, simulated_text

if TYPE_CHECKING:
    from cimemories.compare.ranking import Measure, Swap
    from cimemories.compare.sensitivity import ByProfiles, Range, Setting, Study, Trial, Tried
    from cimemories.metrics.breakdown import FlowCoverage
    from cimemories.metrics.headline import Headline


# ---- compare


@cli.command()
@grouped
def compare(
    run_ids: Annotated[
        list[str], Argument(metavar="RUN RUN...", callback=RUN_ID, help="Runs; the first is the reference.")
    ],
    options: NumberOptions,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Compare runs side by side, with paired differences.

    Differences are to the first run, on flows judged in both runs, with 95 % intervals. --json adds them by
    domain, and lists the flows that newly leak or stopped leaking.

    Example: cimemories compare run-3f9a run-77
    """
    from cimemories.answers.metrics import metrics
    from cimemories.compare.difference import difference, together
    from cimemories.flows.flows import Flows
    from cimemories.metrics import sentences
    from cimemories.metrics.headline import headline
    from cimemories.metrics.warnings import comparison_warnings

    if len(set(run_ids)) < 2:
        raise StoreError("a comparison needs two different runs. `cimemories runs` lists them.")
    rule = options.identifier_rule()
    store = open_record(workspace)
    flows = Flows(store)
    scopes = options.scopes(store, run_ids)
    numbers = [headline(flows, scope, rule) for scope in scopes]
    # Runs of several datasets have no flow in common; their numbers are still shown side by side, with a warning.
    comparable = [scope for scope in scopes[1:] if scope.run.dataset == scopes[0].run.dataset]
    differences = together([difference(flows, scopes[0], other, rule) for other in comparable])
    warnings = comparison_warnings(store, scopes)
    if as_json:
        runs = [metrics(flows, scope, rule) for scope in scopes]
        differing = [item.as_json() for item in differences]
        output.as_json({"runs": runs, "differences": differing, "warnings": warnings})
        return
    _print_side_by_side(numbers)
    for result in differences:
        counts = result.tallied
        first, second = (scope.run.given_name or scope.run.id for scope in (result.first, result.second))
        # Two runs of one name would be one run that leaks less than itself.
        first, second = (result.first.run.id, result.second.run.id) if first == second else (first, second)
        output.line("")
        for text in result.sentences(first, second):
            output.line(text)
        if corrected := result.corrected_sentence(first, second):
            output.line(corrected)
        output.line(f"  {sentences.on_common_flows(result.paired, counts.flows, result.necessary)}")
        output.line(f"  {sentences.changed_flows(counts)}; {counts.both:,} leak in both")
        output.line(f"  {sentences.domains(result.domains, first, second)}")
        if floor := sentences.noise_floor(result.noise, result.paired.n):
            output.line(f"  {floor}")
    output.notes(warnings, "warning")
    for item in numbers:
        output.notes(item.notes, f"note on {item.scope.run.id}")


def _print_side_by_side(numbers: Sequence[Headline]) -> None:
    # Runs may have different n: Violation@n beyond a run's own samples is a dash, not a number of another n.
    most = max(item.scope.run.samples for item in numbers)
    ids = [item.scope.run.id for item in numbers]
    rows: list[tuple[object, ...]] = [
        ("name", *(item.scope.run.name for item in numbers)),
        ("model", *(item.scope.run.model for item in numbers)),
        *((f"violation@{n}", *(_violation(item, n) for item in numbers)) for n in range(1, most + 1)),
        ("completeness", *(percent(item.completeness) for item in numbers)),
        ("ambiguous exposure", *(percent(item.ambiguous_exposure) for item in numbers)),
        ("coverage", *(percent(item.coverage) for item in numbers)),
        ("does the task", *(percent(item.does_task.share if item.does_task else None) for item in numbers)),
        ("memory", *(item.scope.run.composition for item in numbers)),
        ("judge", *(item.scope.judge_text for item in numbers)),
        ("", *(mark(item.scope.simulated) for item in numbers)),
    ]
    output.table(("", *output.right(ids)), rows)


def _violation(numbers: Headline, n: int) -> str:
    """As short as a cell: '12.4 %', '10.1 to 31.0 %' where there are only bounds, a dash beyond the run's samples."""
    if n not in numbers.violation or numbers.reads(n):
        return percent(numbers.violation.get(n))
    low, high = numbers.violation_bounds[n]
    return f"{100 * low:.1f} to {percent(high)}"


# ---- leaderboard


NOT_PRINTED = ("Labels", "Memory", "Prompt")  # on a terminal; where they differ, names and notes say so


@cli.command()
@grouped
def leaderboard(
    options: NumberOptions,
    run_ids: Annotated[
        list[str] | None,
        Argument(metavar="[RUN...]", callback=RUN_ID, help="Runs of one dataset; default: all judged runs."),
    ] = None,
    dataset: Annotated[
        str | None, Option("--dataset", "-d", help="Dataset; default: the one with the most judged runs.")
    ] = None,
    as_json: AsJson = False,
    as_markdown: AsMarkdown = False,
    as_latex: AsLatex = False,
    samples: Samples = None,
    rank_small: RankSmall = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Rank runs as in the paper's Table 1.

    Runs are ranked by balanced score. Violation and completeness have their mean, standard deviation over profiles
    and 95 % interval. Below are constant strategies, and what the paper states for the same model, marked as published.

    Example: cimemories leaderboard --markdown
    """
    from cimemories.compare import leaderboard as boards
    from cimemories.flows.flows import Flows

    if as_json + as_markdown + as_latex > 1:
        raise StoreError("choose one of --json, --markdown and --latex.")
    rule = options.identifier_rule()
    store = open_record(workspace)
    if run_ids and dataset:
        raise StoreError("runs are of one dataset already: name the runs, or --dataset for all judged runs of it.")
    scopes = options.scopes(store, run_ids or boards.default_runs(store, dataset))
    board = boards.leaderboard(Flows(store), scopes, rule, n=samples, rank_small=rank_small)
    if as_json:
        output.as_json(board.as_json())
    elif as_markdown:
        output.line(boards.leaderboard_markdown(board).rstrip())
    elif as_latex:
        output.line(boards.leaderboard_latex(board).rstrip())
    else:
        titles = boards.header_row(board)
        printed = [i for i, title in enumerate(titles) if title not in NOT_PRINTED]
        aligned = [titles[0], *output.right(titles[1:7]), *titles[7:]]
        rows = [[row.cells[i] for i in printed] for row in boards.leaderboard_rows(board)]
        output.table([aligned[i] for i in printed], rows, whole=True)
        output.notes(boards.leaderboard_notes(board))
        if board.has_small:
            output.note("note: --rank-small ranks all of them, on what they have in common")


# ---- sensitivity


@dataclass(frozen=True)
class Sensitivity:
    """What the command found, ready to print."""

    study: Study
    names: list[str]  # of the runs
    measure: Measure  # that the runs are ordered by
    settings: list[Tried]
    ranges: Sequence[Range]
    subsets: ByProfiles
    coverage: list[FlowCoverage]
    trial: Trial | None


@cli.command()
@grouped
def sensitivity(
    run_ids: Annotated[list[str], Argument(metavar="RUN [RUN...]", callback=RUN_ID, help="Runs of one dataset.")],
    options: NumberOptions,
    as_json: AsJson = False,
    order_by: Annotated[str, Option(help="Order runs by balanced, violation or completeness.")] = "balanced",
    threshold: Annotated[float | None, Option(help="Consensus threshold to try.")] = None,
    priors: Annotated[str | None, Option(help="Priors to try, e.g. fundamentalist=0.3,pragmatic=0.7.")] = None,
    without: Annotated[str | None, Option(help="Key of a persona to leave out.")] = None,
    least_votes: Annotated[int | None, Option(help="Counted votes to ask of each persona on a pair.")] = None,
    samples: Samples = None,
    rank_small: RankSmall = False,
    by: Annotated[
        str, Option(help="Coverage of flows by domain, context, sphere, event, profile or attribute.")
    ] = "domain",
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Show how results depend on the choices behind them.

    One choice is changed at a time: consensus threshold, priors, a persona left out, decisions, judge, identifier
    rule, number of profiles. --threshold, --priors, --without and --least-votes try one setting. Also shown is the
    share of flows that the headline covers.

    Example: cimemories sensitivity run-3f9a run-77 --threshold 0.8
    """
    from cimemories.compare import leaderboard as boards
    from cimemories.compare import sensitivity as library
    from cimemories.compare.ranking import Measure
    from cimemories.flows.flows import Flows
    from cimemories.metrics.breakdown import By, flow_coverage
    from cimemories.metrics.warnings import comparison_warnings

    rule = options.identifier_rule()
    measure, group_by = one_of(Measure, order_by, "order by"), one_of(By, by, "breakdown by")
    store = open_record(workspace)
    scopes, flows = options.scopes(store, run_ids), Flows(store)
    board = boards.leaderboard(flows, scopes, rule, n=samples, warned=False, rank_small=rank_small)
    # The order of runs that cannot be ranked together would be one of what they lack.
    study = library.ranked_study(flows, board, scopes, rule)
    scopes = [item.scope for item in study.subjects]
    by_run = boards.names(board.lines)
    names = [by_run[scope.run.id] for scope in scopes]
    setting = _setting(study, threshold, priors, without, least_votes)
    settings = [*library.variants(study), *library.judged_otherwise(flows, study)]
    result = Sensitivity(
        study,
        names,
        measure,
        settings,
        library.ranges(study, settings, measure),
        library.by_profiles(study, measure),
        [flow_coverage(flows, scope, group_by, rule) for scope in scopes],
        None
        if setting == study.base
        else library.trial(study, setting, names, measure, library.flows_per_run(flows, study)),
    )
    if as_json:
        left_out = [{"run": line.run.id, "reason": line.outside} for line in board.outside if len(board.lines) > 1]
        output.as_json(_sensitivity_json(result) | {"not_ranked": left_out})
        return
    _print_sensitivity(result)
    output.notes(boards.ranking_notes(board))
    if len(scopes) > 1:
        output.notes(comparison_warnings(store, scopes), "warning")
    for scope in scopes:
        if scope.simulated:
            output.note(f"note on {scope.run.id}: {simulated_text(scope.simulated)}")


def _setting(
    study: Study, threshold: float | None, priors: str | None, without: str | None, least_votes: int | None
) -> Setting:
    """The setting to try. Raises StoreError where it is no rule, or for a persona that does not exist."""
    from cimemories.flows.labels import custom_rule

    base, keys = study.base, study.votes.keys
    by_key = priors_by_key(priors) if priors else dict(zip(keys, base.priors, strict=True))
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


def _print_sensitivity(result: Sensitivity) -> None:
    from cimemories.metrics import sentences

    study, names = result.study, result.names
    output.line(f"current settings: {study.rule.name}, {study.rule.text}")
    numbers = ("violation", "completeness", "balanced", "attributes", "X flows", "contexts", "flows covered")
    output.table(
        ("", *output.right(numbers)),
        [
            (
                name,
                *(percent(values[0]) for values in (item.mean_violation, item.mean_completeness, item.balanced)),
                *(f"{values[0]:,}" for values in (item.attributes, item.flows, item.retained)),
                f"{percent(covered.share)} of {covered.pairs:,}",
            )
            for name, item, covered in zip(names, study.at(study.base), result.coverage, strict=True)
        ],
        whole=True,
    )
    if len(names) > 1:
        output.line(f"\n{sentences.order(_swaps(result), names, study.thresholds, result.measure, most=5)}.")
    if result.ranges:
        output.line(f"\n{sentences.choices(result.ranges, names, result.measure)}.")
        if study.base.unanimous:
            output.line(sentence(sentences.IDLE_PRIORS))
    _print_ranges(result)
    if (subsets := result.subsets).by_k:
        output.line(f"\n{sentences.subsets(subsets.by_k, max(subsets.profiles // 2, 1), len(subsets.runs))}.")
    if len(names) == 1:
        _print_coverage(result.coverage[0])
    if result.trial is not None:
        _print_trial(study, result.trial)


def _print_ranges(result: Sensitivity) -> None:
    def change(value: float, at: tuple[str, int]) -> str:
        return f"{100 * value:+.1f} {result.names[at[1]]}, {at[0]}" if value else "0.0"

    output.line(f"\nchange of {result.measure.named} in points, one choice at a time")
    output.table(
        ("choice", ">settings", "lowest", "highest", ">lowest tau"),
        [
            (
                item.choice,
                item.settings,
                change(item.low, item.low_at),
                change(item.high, item.high_at),
                "–" if item.least_tau != item.least_tau else decimal(item.least_tau),
            )
            for item in result.ranges
        ],
        whole=True,
    )


def _print_coverage(coverage: FlowCoverage) -> None:
    from cimemories.metrics import sentences

    counts = [str(name) for name in coverage.frame.columns if name not in ("group", "share")]
    output.line(f"\n{sentences.flow_coverage(coverage)}; by group:")
    output.table(
        ("", ">share", *(f">{name.replace('_', ' ')}" for name in counts)),
        [
            [row["group"], percent(row["share"]), *(row[name] for name in counts)]
            for row in coverage.frame.to_dict("records")
        ],
        whole=True,
    )


def _print_trial(study: Study, trial: Trial) -> None:
    from cimemories.compare.sensitivity import changed_settings

    output.line(
        f"\ntried: a threshold of {exact_percent(trial.setting.threshold)}"
        f"{changed_settings(study.base, trial.setting, study.votes.keys)}"
    )
    numbers = ("violation", "completeness", "balanced")
    output.table(
        ("", *output.right((*numbers, "contexts", "flows covered", "rank"))),
        [
            [
                row["run"],
                *(f"{percent(row[name])} ({100 * row[f'{name}_change']:+.1f})" for name in numbers),
                row["retained"],
                percent(row["speaks"]),
                "–" if row["rank"] != row["rank"] else f"{row['rank']:.0f}",
            ]
            for row in trial.frame.to_dict("records")
        ],
        whole=True,
    )
    output.line(trial.sentence)


def _swaps(result: Sensitivity) -> list[Swap]:
    """At which thresholds two runs change places."""
    from cimemories.compare.ranking import swaps
    from cimemories.compare.sensitivity import measure_values

    study = result.study
    over = measure_values(study.over(study.base, study.thresholds), result.measure)
    now = over[:, study.thresholds.index(study.base.threshold)]
    return swaps(now, over, study.thresholds, study.base.threshold, result.measure)


def _sensitivity_json(result: Sensitivity) -> dict[str, object]:
    """One object for scripts; nan becomes null."""
    from cimemories.charts.sensitivity import profiles
    from cimemories.compare.sensitivity import as_frame, ranges_frame
    from cimemories.metrics import sentences

    study, names, base = result.study, result.names, result.study.base
    subsets = profiles(result.subsets, names, result.measure, 1)
    return {
        "rule": study.rule.name,
        "threshold": base.threshold,
        "priors": dict(zip(study.votes.keys, base.priors, strict=True)),
        "least_votes": base.least_votes,
        "unanimous": base.unanimous,
        "positive_priors": _positive_priors(result),
        "labels": str(base.labels),
        "identifier_rule": str(base.identifiers),
        "order_by": str(result.measure),
        "simulated": any(bool(item.scope.simulated) for item in study.subjects),
        "runs": [
            {"run": item.scope.run.id, "name": name, "n": item.n, "judge": item.scope.judge_text}
            for item, name in zip(study.subjects, names, strict=True)
        ],
        "settings": as_frame(study, result.settings, names),
        "ranges": ranges_frame(result.ranges, names),
        "changes_of_places": [
            {
                "ahead_now": names[swap.ahead],
                "behind_now": names[swap.behind],
                "thresholds": swap.spans,
                "words": sentences.swap(swap, names, study.thresholds),
            }
            for swap in _swaps(result)
        ],
        "profiles": subsets.frame if subsets else [],
        "spoken_for": [
            {"run": item.scope.run.id, **coverage.as_json(), "by": coverage.frame}
            for item, coverage in zip(study.subjects, result.coverage, strict=True)
        ],
        **({} if result.trial is None else {"tried": _trial_json(study, result.trial)}),
    }


def _positive_priors(result: Sensitivity) -> dict[str, object]:
    """By how much other priors above 0 move the measure: 0 where all personas have to agree."""
    from cimemories.compare.sensitivity import Choice

    priors = next((item for item in result.ranges if item.choice == Choice.PRIORS), None)
    if priors is None:
        return {"settings": 0, "largest_change": None}
    return {"settings": priors.settings, "largest_change": max(priors.high, -priors.low)}


def _trial_json(study: Study, trial: Trial) -> dict[str, object]:
    return {
        "threshold": trial.setting.threshold,
        "priors": dict(zip(study.votes.keys, trial.setting.priors, strict=True)),
        "least_votes": trial.setting.least_votes,
        "kendall_tau": trial.tau,
        "words": trial.order_change,
        "runs": trial.frame,
    }

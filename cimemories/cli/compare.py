"""Commands that set judges or runs side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import (
    AsJson,
    AsLatex,
    AsMarkdown,
    Grounded,
    Identifiers,
    JudgeOption,
    Labels,
    RuleOption,
    Samples,
    Workspace,
    identifier_rule,
    priors_by_key,
    scope_of,
)
from cimemories.store import datasets as store_datasets
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_store
from cimemories.text import percent

if TYPE_CHECKING:
    from cimemories.agreement.judges import JudgesAgreement
    from cimemories.agreement.statistics import Estimate
    from cimemories.compare.difference import Difference
    from cimemories.compare.ranking import Measure
    from cimemories.compare.sensitivity import ByProfiles, Range, Setting, Study, Trial, Tried
    from cimemories.flows.flows import Flows
    from cimemories.flows.scope import Scope
    from cimemories.metrics.breakdown import FlowCoverage
    from cimemories.metrics.headline import Headline


@cli.command()
def judges(
    run_id: Annotated[str, typer.Argument(metavar="RUN")],
    as_json: AsJson = False,
    grounded: Grounded = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """The judges of a run, what each of them claims, and how far they agree.  Example: cimemories judges run-3f9a"""
    from cimemories.agreement.judges import judges_agreement
    from cimemories.flows.flows import Flows

    found = judges_agreement(Flows(open_store(workspace)), run_id, grounded=grounded)
    if as_json:
        output.line(output.as_json_text(_agreement_json(found)))
        return
    output.table(
        [
            ("id", True),
            ("judge", False),
            ("reads", False),
            ("judged", True),
            ("revealed", True),
            ("ungrounded", True),
            ("of full claims", True),
            ("", False),
        ],
        [
            (
                item.judge.id,
                item.title,
                item.judge.channel,
                f"{item.judged:,}",
                f"{item.reveals:,}",
                f"{item.ungrounded:,}",
                f"{item.claims:,}",
                "simulated" if item.judge.simulated else "",
            )
            for item in found.judges
        ],
    )
    for pair in found.pairs:
        (neither, second), (first, both) = pair.table
        output.line(
            f"\n{pair.first.title} and {pair.second.title}: {pair.places:,} places of {pair.messages:,} messages that "
            f"both have judged\n  revealed by both {both:,}, by the first alone {first:,}, by the second alone "
            f"{second:,}, by neither {neither:,}"
        )
        for name, figure in (("agreement", pair.agreement), ("Cohen's kappa", pair.kappa), ("Gwet's AC1", pair.ac1)):
            shown = f"undefined: {figure.why}" if figure.value is None else f"{figure.value:.3f}"
            output.line(f"  {name:<14} {shown}")
    if not found.pairs:
        output.note("note: agreement takes two judges that read the same text; this run has no two of them")


def _agreement_json(found: JudgesAgreement) -> dict[str, object]:
    return {
        "run": found.run_id,
        "grounded_only": found.grounded,
        "judges": [
            {
                "id": item.judge.id,
                "name": item.title,
                "kind": item.judge.kind,
                "channel": item.judge.channel,
                "simulated": item.judge.simulated,
                "judged": item.judged,
                "revealed": item.reveals,
                "full_claims": item.claims,
                "ungrounded_claims": item.ungrounded,
            }
            for item in found.judges
        ],
        "pairs": [
            {
                "first": pair.first.judge.id,
                "second": pair.second.judge.id,
                "messages": pair.messages,
                "places": pair.places,
                "neither": pair.table[0][0],
                "second_alone": pair.table[0][1],
                "first_alone": pair.table[1][0],
                "both": pair.table[1][1],
                "agreement": _figure(pair.agreement),
                "kappa": _figure(pair.kappa),
                "ac1": _figure(pair.ac1),
            }
            for pair in found.pairs
        ],
    }


def _figure(figure: Estimate) -> dict[str, object]:
    return {"value": figure.value} | ({"why": figure.why} if figure.why else {})


@cli.command()
def compare(
    run_ids: Annotated[list[str], typer.Argument(metavar="RUN RUN...")],
    as_json: AsJson = False,
    labels: Labels = None,
    rule: RuleOption = None,
    identifiers: Identifiers = "exact",
    judge: JudgeOption = None,
    grounded: Grounded = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Numbers of runs side by side, and paired differences to the first.  Example: cimemories compare run-3f9a run-77

    Differences are of the flows that both runs have judged, with 95 % intervals; --json also lists the flows that newly
    leak and that stopped leaking, and gives every difference by domain.
    """
    from cimemories.compare.difference import difference
    from cimemories.flows.flows import Flows
    from cimemories.metrics.headline import comparison_warnings, headline

    if len(set(run_ids)) < 2:
        raise StoreError("a comparison takes two different runs or more. `cimemories runs` lists them.")
    chosen = identifier_rule(identifiers)
    store = open_store(workspace)
    flows = Flows(store)
    ids = dict.fromkeys(run_ids)
    scopes = [scope_of(store, run_id, labels, judge, grounded=grounded, rule=rule) for run_id in ids]
    numbers = [headline(flows, asked, chosen) for asked in scopes]
    # Runs of several datasets have no flow in common; their numbers still stand side by side, with a warning.
    alike = [asked for asked in scopes[1:] if asked.run.dataset == scopes[0].run.dataset]
    differences = [difference(flows, scopes[0], other, chosen) for other in alike]
    warnings = comparison_warnings(store, scopes)
    if as_json:
        found = {
            "runs": [item.as_json() for item in numbers],
            "differences": [item.as_json() for item in differences],
            "warnings": list(warnings),
        }
        output.line(output.as_json_text(found))
        return
    _side_by_side(numbers)
    for apart in differences:
        _difference(apart)
    for text in warnings:
        output.note(f"warning: {text}")
    for item in numbers:
        for text in item.notes:
            output.note(f"note on {item.scope.run.id}: {text}")


def _difference(found: Difference) -> None:
    """What was found of two runs, in words."""
    tallied = found.tallied
    output.line("")
    for text in found.sentences(found.first.run.id, found.second.run.id):
        output.line(text)
    output.line(
        f"  on {found.paired.profiles} common profiles, {tallied.flows:,} inappropriate and {found.necessary:,} "
        f"necessary flows: {tallied.newly:,} newly leak, {tallied.stopped:,} leak no more, {tallied.both:,} in both"
    )


def _side_by_side(numbers: Sequence[Headline]) -> None:
    most = max(item.scope.run.samples for item in numbers)
    rows: list[tuple[object, ...]] = [
        ("model", *(item.scope.run.model for item in numbers)),
        *((f"violation@{n}", *(percent(item.violation.get(n)) for item in numbers)) for n in range(1, most + 1)),
        ("completeness", *(percent(item.completeness) for item in numbers)),
        ("ambiguous exposure", *(percent(item.ambiguous_exposure) for item in numbers)),
        ("coverage", *(percent(item.coverage) for item in numbers)),
        ("does the task", *(percent(item.does_task.share if item.does_task else None) for item in numbers)),
        ("memory", *(item.scope.run.composition for item in numbers)),
        ("judge", *(item.scope.judge_text for item in numbers)),
        ("", *("simulated" if item.scope.simulated else "" for item in numbers)),
    ]
    output.table([("", False), *((item.scope.run.id, True) for item in numbers)], rows)


Runs = Annotated[
    list[str] | None, typer.Argument(metavar="[RUN...]", help="Runs of one dataset; all judged ones else.")
]


OfDataset = Annotated[
    str | None,
    typer.Option("--dataset", "-d", help="Dataset whose runs are ranked; else that of the most judged runs."),
]


LEFT_OUT = ("Labels", "Memory", "Prompt")  # of a terminal; what differs in them stands in the names and the notes


@cli.command()
def leaderboard(
    run_ids: Runs = None,
    dataset: OfDataset = None,
    as_json: AsJson = False,
    as_markdown: AsMarkdown = False,
    as_latex: AsLatex = False,
    samples: Samples = None,
    labels: Labels = None,
    rule: RuleOption = None,
    identifiers: Identifiers = "exact",
    judge: JudgeOption = None,
    grounded: Grounded = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Runs ranked by balanced score, as in the paper's Table 1.  Example: cimemories leaderboard --markdown

    Mean, spread over profiles and 95 % interval of violation and completeness, constant strategies, and the figures
    that the paper states of the same model, marked as published.
    """
    from cimemories.compare import leaderboard as compare_leaderboard
    from cimemories.compare.leaderboard import leaderboard as ranked
    from cimemories.flows.flows import Flows

    if as_json + as_markdown + as_latex > 1:
        raise StoreError("choose one of --json, --markdown and --latex.")
    chosen = identifier_rule(identifiers)
    store = open_store(workspace)
    ids = list(dict.fromkeys(run_ids)) if run_ids else _judged(store, dataset)
    scopes = [scope_of(store, run_id, labels, judge, grounded=grounded, rule=rule) for run_id in ids]
    board = ranked(Flows(store), scopes, chosen, n=samples)
    if as_json:
        output.line(output.as_json_text(board.as_json()))
    elif as_markdown or as_latex:
        output.line(
            (compare_leaderboard.leaderboard_markdown if as_markdown else compare_leaderboard.leaderboard_latex)(
                board
            ).rstrip()
        )
    else:
        head = compare_leaderboard.header_row(board)
        shown = [i for i, name in enumerate(head) if name not in LEFT_OUT]
        rows = [[row.cells[i] for i in shown] for row in compare_leaderboard.leaderboard_rows(board)]
        output.table([(head[i], 0 < i < 7) for i in shown], rows, whole=True)
        for text in compare_leaderboard.leaderboard_notes(board):
            output.note(f"note: {text}")


def _judged(store: Store, name: str | None) -> list[str]:
    """All judged runs of a dataset, of the busiest one where none is named. Raises StoreError where there is none."""
    from cimemories.compare.leaderboard import busiest_dataset, judged_runs

    if name is None:
        of = busiest_dataset(store)
    else:
        with store.read() as connection:
            of = store_datasets.named(connection, name).id
    found = [row.id for row in judged_runs(store, of)] if of is not None else []
    if not found:
        where = f" of '{name}'" if name else ""
        raise StoreError(
            f"no run{where} is judged yet, so there is nothing to rank. `cimemories runs` lists what is there."
        )
    return found


OrderBy = Annotated[str, typer.Option("--order-by", help="Of the runs: balanced, violation or completeness.")]


Threshold = Annotated[float | None, typer.Option("--threshold", help="A consensus threshold to try.")]


Priors = Annotated[str | None, typer.Option("--priors", help="Priors to try, as fundamentalist=0.3,pragmatic=0.7.")]


Without = Annotated[str | None, typer.Option("--without", help="A persona to leave out, by its key.")]


SensitivityBy = Annotated[
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
    by: SensitivityBy = "domain",
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
    from cimemories.compare.ranking import Measure
    from cimemories.compare.sensitivity import (
        by_profiles,
        flows_per_run,
        judged_otherwise,
        ranges,
        study,
        trial,
        variants,
    )
    from cimemories.flows.flows import Flows
    from cimemories.metrics.breakdown import By, flow_coverage

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
    tried = None if setting == found.base else trial(found, setting, names, measure, flows_per_run(flows, found))
    settings = [*variants(found), *judged_otherwise(flows, found)]
    moved = ranges(found, settings, measure)
    fewer = by_profiles(found, measure)
    spoken = [flow_coverage(flows, asked, By(by), chosen) for asked in scopes]
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

    from cimemories.flows.labels import custom_rule

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


def _now(found: Study, names: Sequence[str], spoken: Sequence[FlowCoverage]) -> None:
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
    from cimemories.compare.ranking import order_text, swaps
    from cimemories.compare.sensitivity import measure_values

    over = measure_values(found.over(found.base, found.thresholds), measure)
    now = over[:, found.thresholds.index(found.base.threshold)]
    turns = swaps(now, over, found.thresholds, found.base.threshold, measure)
    output.line(f"\n{order_text(turns, names, found.thresholds, measure, most=5)}.")


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
    from cimemories.charts.sensitivity import profiles_title

    if fewer.by_k:
        output.line(f"\n{profiles_title(fewer, max(fewer.profiles // 2, 1))}.")


def _groups(found: FlowCoverage) -> None:
    output.line(f"\n{found.text}; by group:")
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
    from cimemories.compare.sensitivity import changed_settings

    more = changed_settings(found.base, tried.setting, found.votes.keys)
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
    from cimemories.metrics.headline import comparison_warnings

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
    spoken: Sequence[FlowCoverage],
    tried: Trial | None,
) -> dict[str, object]:
    """One object for scripts; nan becomes null."""
    from cimemories.charts.sensitivity import profiles
    from cimemories.compare.leaderboard import none_for_nan
    from cimemories.compare.ranking import swap_text, swaps
    from cimemories.compare.sensitivity import as_frame, measure_values, ranges_frame

    def rows(frame: object) -> list[dict[str, object]]:
        import pandas as pd

        assert isinstance(frame, pd.DataFrame)
        return [{str(k): none_for_nan(v) for k, v in row.items()} for row in frame.to_dict("records")]

    base = found.base
    over = measure_values(found.over(base, found.thresholds), measure)
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
            {"run": item.scope.run.id, "name": name, "n": item.n, "judge": item.scope.judge_text}
            for item, name in zip(found.subjects, names, strict=True)
        ],
        "settings": rows(as_frame(found, settings, names)),
        "ranges": rows(ranges_frame(moved, names)),
        "changes_of_places": [
            {
                "ahead_now": names[turn.ahead],
                "behind_now": names[turn.behind],
                "thresholds": [list(span) for span in turn.spans],
                "words": swap_text(turn, names, found.thresholds),
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
            "words": tried.order_change,
            "runs": rows(tried.frame),
        }
    return made

"""Commands that turn runs into numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import AsJson, Workspace, cli
from cimemories.cli.curate import priors_by_key
from cimemories.cli.output import percent
from cimemories.store import datasets as store_datasets
from cimemories.store import engine
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_store

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

    from cimemories.agreement.judges import JudgesAgreement
    from cimemories.agreement.statistics import Figure
    from cimemories.charts.comparison import Trial
    from cimemories.compare.difference import Difference
    from cimemories.compare.ranking import Measure
    from cimemories.compare.sensitivity import ByProfiles, Range, Setting, Study, Tried
    from cimemories.flows.arrays import IdentifierRule
    from cimemories.flows.flows import Flows
    from cimemories.flows.scope import Scope
    from cimemories.leaks.gallery import Facet
    from cimemories.leaks.table import LeakRow
    from cimemories.metrics.accumulation import Accumulation, Survival
    from cimemories.metrics.bootstrap import Interval
    from cimemories.metrics.breakdown import SpokenFor
    from cimemories.metrics.headline import Headline
    from cimemories.metrics.one_user import OneUser

Labels = Annotated[
    str | None,
    typer.Option(
        "--labels",
        help="decisions (before the consensus, the default), consensus alone, or the id of a labelling.",
    ),
]
RuleOption = Annotated[
    str | None, typer.Option("--rule", help="The rule that turns votes into labels: paper, or one of the dataset's.")
]
Identifiers = Annotated[
    str, typer.Option("--identifiers", help="Which attributes only sign: exact, substring or none.")
]
JudgeOption = Annotated[
    str | None,
    typer.Option("--judge", help="Id or name of a judge of the run, or any, majority or all of them; else the first."),
]
Grounded = Annotated[bool, typer.Option("--grounded", help="Count only claims whose quote stands in the text.")]
ByOption = Annotated[
    str | None,
    typer.Option("--by", help="Also a table by profile, domain, event, sphere, context or attribute."),
]


HEADS = {
    "group": "",
    "attributes": "attributes",
    "leak_rate": "leak rate",
    "inappropriate_flows": "X flows",
    "necessary_flows": "N flows",
    "ambiguous_exposure": "ambiguous",
    "ambiguous_flows": "? flows",
}


@cli.command()
def metrics(
    run_id: Annotated[str, typer.Argument(metavar="RUN")],
    as_json: AsJson = False,
    labels: Labels = None,
    rule: RuleOption = None,
    identifiers: Identifiers = "exact",
    judge: JudgeOption = None,
    grounded: Grounded = False,
    by: ByOption = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Violation@1..n, completeness and coverage of a run, with intervals.  Example: cimemories metrics run-3f9a --json

    --json also gives the constant baselines, every breakdown, and what each identifier rule leaves out.
    """
    from cimemories.flows.flows import Flows
    from cimemories.metrics.breakdown import By
    from cimemories.metrics.everything import all_numbers

    chosen = identifier_rule(identifiers)
    if by is not None and by not in set(By):
        raise StoreError(f"there is no breakdown by '{by}'. Use one of {', '.join(By)}.")
    store = open_store(workspace)
    asked = scope_of(store, run_id, labels, judge, grounded=grounded, rule=rule)
    flows = Flows(store)
    if as_json:
        output.line(output.as_json_text(all_numbers(flows, asked, chosen)))
        return
    _headline(flows, asked, chosen)
    if by is not None:
        _table(flows, asked, By(by), chosen)


def identifier_rule(name: str) -> IdentifierRule:
    """The rule of that name. Raises StoreError for one that there is not."""
    from cimemories.flows.arrays import IdentifierRule

    if name not in set(IdentifierRule):
        raise StoreError(f"there is no identifier rule '{name}'. Use exact, substring or none.")
    return IdentifierRule(name)


def scope_of(
    store: Store, run_id: str, labels: str | None, judge: str | None, *, grounded: bool, rule: str | None = None
) -> Scope:
    """The scope that these options ask for: `labels` is a way of labelling or a labelling. Raises StoreError as
    analysis.scopes.scope does."""
    from cimemories.flows.scope import Labels as Against
    from cimemories.flows.scope import scope

    way = Against(labels) if labels in set(Against) else Against.DECISIONS
    labelling = None if labels in set(Against) else labels
    return scope(store, run_id, labelling, judge, grounded=grounded, labels=way, rule=rule)


def _headline(flows: Flows, asked: Scope, rule: IdentifierRule) -> None:
    from cimemories.flows.arrays import cube
    from cimemories.metrics.bootstrap import intervals
    from cimemories.metrics.breakdown import baselines, dropped
    from cimemories.metrics.headline import headline

    numbers, found = headline(flows, asked, rule), intervals(flows, asked, rule)
    for n, value in numbers.violation.items():
        rests = f"{numbers.attributes:,} attributes, {numbers.flows:,} flows"
        output.line(f"violation@{n}  {percent(value):>8} {_bounds(found.violation[n]):14}  {rests}")
    output.line(
        f"completeness {percent(numbers.completeness):>8} {_bounds(found.completeness):14}  "
        f"{numbers.retained} retained contexts, {numbers.discarded} discarded"
    )
    output.line(
        f"balanced     {percent(numbers.balanced):>8} {_bounds(found.balanced):14}  "
        "harmonic mean of completeness and 1 - violation"
    )
    rate = numbers.leak_rate
    output.line(
        f"leak rate    {percent(rate.micro):>8} {'':14}  of one exposure, {rate.reveals:,} of {rate.draws:,}; "
        f"mean over contexts {percent(rate.macro)}"
    )
    output.line(f"ambiguous    {percent(numbers.ambiguous_exposure):>8} {'':14}  exposure of pairs without a consensus")
    output.line(
        f"coverage     {percent(numbers.coverage):>8} {'':14}  "
        f"{numbers.judged:,} of {numbers.scope.run.expected:,} responses judged"
    )
    data = cube(flows, asked, rule)
    for item in baselines(data):
        output.line(f"baseline     {item.name}: violation {percent(item.violation)}, {_complete(item.completeness)}")
    if lost := dropped(data, rule):
        output.line(f"left out     {len(lost)} keys by the rule '{rule}': {', '.join(lost)}")
    _judges(numbers)
    for text in numbers.notes:
        output.note(f"note: {text}")
    output.note(
        f"in brackets: 95 % intervals, {found.completeness.users} profiles drawn 2,000 times, then what they hold"
    )


def _complete(share: float) -> str:
    return f"completeness {percent(share)}"


def _bounds(interval: Interval) -> str:
    """'[10.1, 14.9]', in percent; empty where there is none."""
    if interval.low != interval.low:
        return ""
    return f"[{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def _judges(numbers: Headline) -> None:
    for item in numbers.quotes:
        output.line(
            f"judge        {item.judge}: {item.ungrounded:,} of {item.claims:,} full claims ({percent(item.share)}) "
            "have a quote that is not in the text"
        )
    if (check := numbers.does_task) is not None:
        output.line(
            f"does task    {percent(check.share):>8}  {check.yes:,} yes, {check.partly:,} partly, {check.no:,} no, "
            f"{check.unchecked:,} not checked, by {check.name}"
        )


def _table(flows: Flows, asked: Scope, by: str, rule: IdentifierRule) -> None:
    from cimemories.metrics.breakdown import By, breakdown

    frame = breakdown(flows, asked, By(by), asked.run.samples, rule)
    shares = ("violation", "leak_rate", "completeness", "ambiguous_exposure", "coverage")
    output.line("")
    output.table(
        [(HEADS.get(str(name), str(name)), name != "group") for name in frame.columns],
        [
            [percent(v) if k in shares else f"{v:,}" if k != "group" else v for k, v in row.items()]
            for row in frame.to_dict("records")
        ],
        whole=True,
    )


# ---- accumulating
#
# The command that says how leaks pile up over tasks.


ROWS = (1, 2, 3, 5, 10, 15, 20, 30, 40, 50, 75, 100)


@cli.command()
def accumulate(
    run_id: Annotated[str, typer.Argument(metavar="RUN")],
    as_json: AsJson = False,
    n: Annotated[int | None, typer.Option("--n", min=1, help="Only at so many samples a task; else 1 to all.")] = None,
    profile: Annotated[
        int | None, typer.Option("--profile", min=0, help="Also the tasks of one profile, from 0, in an order.")
    ] = None,
    order: Annotated[str, typer.Option("--order", help="Of these tasks: listed, worst or shuffled.")] = "listed",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the shuffled order.")] = 1,
    labels: Labels = None,
    rule: RuleOption = None,
    identifiers: Identifiers = "exact",
    judge: JudgeOption = None,
    grounded: Grounded = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """How leaks pile up over tasks and samples.  Example: cimemories accumulate run-3f9a --profile 0 --order worst

    The expected share of a user's attributes that is revealed inappropriately after k tasks, all orders alike, with a
    95 % band over users, the independence baseline, the hazard, and the time to the first leak of an attribute.
    """
    from cimemories.flows.flows import Flows
    from cimemories.metrics.accumulation import Order, accumulation, baseline
    from cimemories.metrics.one_user import first_leak, one_user

    chosen = identifier_rule(identifiers)
    if order not in set(Order):
        raise StoreError(f"there is no order '{order}' of tasks. Use {', '.join(Order)}.")
    store = open_store(workspace)
    asked = scope_of(store, run_id, labels, judge, grounded=grounded, rule=rule)
    flows = Flows(store)
    found = accumulation(flows, asked, chosen)
    if n is not None and n not in found.curves.ns:
        raise StoreError(f"{asked.run.id} has {asked.run.samples} samples a task, so n is at most that, not {n}.")
    ns = found.curves.ns if n is None else (n,)
    person = _profile(store, asked, profile)
    user = None if person is None else one_user(flows, asked, person, Order(order), seed, chosen)
    first = first_leak(flows, asked, person, Order(order), seed, rule=chosen)
    even = {m: baseline(flows, asked, m, chosen).tolist() for m in ns}
    if as_json:
        output.line(
            output.as_json_text(
                _accumulation_json(asked, found, ns, even, first, user) | {"identifier_rule": str(chosen)}
            )
        )
        return
    _curves(found, ns, even)
    if user is not None:
        _tasks(user)
    _first(first, user)
    if asked.simulated:
        output.note(f"note: simulated: {', '.join(asked.simulated)}")


def _profile(store: Store, asked: Scope, number: int | None) -> int | None:
    """The record's id of a profile of the run's dataset, by its number."""
    from cimemories.store import datasets as store_datasets

    if number is None:
        return None
    with store.read() as connection:
        ids = store_datasets.profile_ids(connection, asked.run.dataset)
    if number >= len(ids):
        raise StoreError(f"there is no profile {number}: '{asked.dataset_name}' has {len(ids)}, numbered from 0.")
    return ids[number]


def _curves(found: Accumulation, ns: Iterable[int], even: dict[int, list[float]]) -> None:
    frame = found.frame()
    points = {(int(row["n"]), int(row["tasks"])): row for row in frame.to_dict("records")}
    last = max(ns)
    growing = found.curves.growing()
    rows = [
        (
            k,
            *(percent(points[n, k]["share"]) for n in ns),
            f"{points[last, k]['low'] * 100:.1f}-{points[last, k]['high'] * 100:.1f}",
            percent(even[last][k]),
            percent(points[last, k]["hazard"]),
            growing[k],
        )
        for k in sorted({k for k in ROWS if k < found.most} | {found.most})
        if k
    ]
    heads = [("tasks", True), *((f"n = {n}", True) for n in ns)]
    heads += [("95 % band", True), ("independent", True), ("hazard", True), ("users", True)]
    output.table(heads, rows, whole=True)
    output.line(
        f"share of {found.attributes:,} attributes of {found.curves.profiles} users revealed inappropriately, "
        f"{found.flows:,} flows, all orders of tasks alike\nband, independence baseline and hazard at n = {last}; "
        "users: how many have so many tasks, the others are held where they ended"
    )


def _tasks(user: OneUser) -> None:
    output.line(f"\n{user.name}, {user.order} order: {user.leaked} of {user.attributes} attributes leak")
    output.table(
        [("task", True), ("recipient", False), ("", False), ("new", True), ("share", True), ("newly leaked", False)],
        [
            (
                step.number,
                step.recipient,
                step.task,
                len(step.leaks) if step.judged else "–",
                percent(step.share),
                ", ".join(leak.key for leak in step.leaks) if step.judged else "no judged message",
            )
            for step in user.steps
        ],
        whole=True,
    )


def _first(first: Survival, user: OneUser | None) -> None:
    whose = f"of {user.name}" if user else "of all users, each in this order"
    never = f"{percent(float(first.silent[-1]))} have not leaked after {int(first.times[-1])} tasks"
    half = "" if first.median is None else f"half of them have leaked after {first.median} tasks, "
    output.line(f"\nfirst leak of {first.attributes:,} attributes {whose} (Kaplan-Meier): {half}{never}")


def _accumulation_json(
    asked: Scope,
    found: Accumulation,
    ns: Iterable[int],
    even: dict[int, list[float]],
    first: Survival,
    user: OneUser | None,
) -> dict[str, object]:
    frame = found.frame()
    return {
        "run": asked.run.id,
        "labels": asked.label_words,
        "judge": asked.judge_words,
        "simulated": list(asked.simulated),
        "attributes": found.attributes,
        "flows": found.flows,
        "profiles": found.curves.profiles,
        "growing": found.curves.growing().tolist(),
        "curves": {
            str(n): {
                name: _numbers(frame[frame["n"] == n][name].tolist()) for name in ("share", "low", "high", "hazard")
            }
            | {"independent": _numbers(even[n])}
            for n in ns
        },
        "first_leak": {
            "attributes": first.attributes,
            "leaked": first.leaked,
            "median": first.median,
            "at_risk": first.at_risk.tolist(),
            **{name: _numbers(getattr(first, name).tolist()) for name in ("silent", "low", "high")},
        },
        "user": None if user is None else _user_json(user, ns),
    }


def _user_json(user: OneUser, ns: Iterable[int]) -> dict[str, object]:
    return {
        "name": user.name,
        "order": str(user.order),
        "attributes": user.attributes,
        "leaked": user.leaked,
        "curves": {str(n): _numbers(user.curves[n].tolist()) for n in ns},
        "expected": {str(n): _numbers(user.expected[n].tolist()) for n in ns},
        "tasks": [
            {
                "recipient": step.recipient,
                "task": step.task,
                "inappropriate": step.private,
                "judged_messages": step.judged,
                "newly_leaked": [
                    {"key": leak.key, "statement": leak.statement, "reveals": leak.reveals, "messages": leak.draws}
                    for leak in step.leaks
                ],
            }
            for step in user.steps
        ],
    }


def _numbers(values: Iterable[float]) -> list[float | None]:
    return [None if value != value else value for value in values]


# ---- comparing
#
# Commands that set judges of a run, or several runs, beside each other.


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


def _figure(figure: Figure) -> dict[str, object]:
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
        ("judge", *(item.scope.judge_words for item in numbers)),
        ("", *("simulated" if item.scope.simulated else "" for item in numbers)),
    ]
    output.table([("", False), *((item.scope.run.id, True) for item in numbers)], rows)


# ---- leaking
#
# The command that lists leaked examples and lays them out as a table for a paper.


Several = list[str] | None


@cli.command()
def leaks(
    run_id: Annotated[str, typer.Argument(metavar="RUN")],
    as_json: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a table in Markdown.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print a table in LaTeX, with booktabs.")] = False,
    top: Annotated[int, typer.Option("--top", min=0, help="How many, severest first; 0: all.")] = 10,
    domain: Annotated[
        Several, typer.Option("--domain", help="Only of this domain. May be repeated, as all filters.")
    ] = None,
    sphere: Annotated[Several, typer.Option("--sphere", help="Only in contexts of this sphere.")] = None,
    recipient: Annotated[Several, typer.Option("--recipient", help="Only to this recipient.")] = None,
    profile: Annotated[Several, typer.Option("--profile", help="Only of this profile, by name.")] = None,
    strength: Annotated[
        Several, typer.Option("--strength", help="full (the default: what counts as a violation), partial or implied.")
    ] = None,
    quote: Annotated[
        Several, typer.Option("--quote", help="grounded or ungrounded: whether a quote stands in a message.")
    ] = None,
    agreement: Annotated[
        Several, typer.Option("--agreement", help="all or some: of the run's judges claim it in one message.")
    ] = None,
    certainty: Annotated[
        Several, typer.Option("--certainty", help="What the label rests on: adjudicated, person, unanimous, threshold.")
    ] = None,
    labels: Labels = None,
    rule: RuleOption = None,
    judge: JudgeOption = None,
    grounded: Grounded = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Leaked examples of a run, severest first.  Example: cimemories leaks run-3f9a1c2e --domain health --latex --top 6

    Severest first: by strength of the claim, then by the share of judged messages that reveal it, then those whose
    quote stands in a message, then by certainty of the label, then those that all judges claim.
    """
    from cimemories.flows.flows import Flows
    from cimemories.leaks import table
    from cimemories.leaks.gallery import Facet, gallery, narrowed
    from cimemories.leaks.table import leak_rows

    if as_json + markdown + latex > 1:
        raise StoreError("choose one of --json, --markdown and --latex.")
    store = open_store(workspace)
    asked = scope_of(store, run_id, labels, judge, grounded=grounded, rule=rule)
    flows = Flows(store)
    examples = gallery(flows, [asked])
    wanted = {
        Facet.DOMAIN: domain or [],
        Facet.SPHERE: sphere or [],
        Facet.RECIPIENT: recipient or [],
        Facet.PROFILE: _ids(examples, profile or []),
        Facet.STRENGTH: strength or ["full"],
        Facet.QUOTE: quote or [],
        Facet.AGREEMENT: agreement or [],
        Facet.CERTAINTY: certainty or [],
    }
    found = narrowed(examples, wanted)
    _check(wanted, found.whole)
    chosen = examples.iloc[found.shown[: top or None]]
    rows = leak_rows(flows, {asked.run.id: asked}, chosen)
    if as_json:
        output.line(output.as_json_text(_leaks_json(asked, rows, len(found.shown), len(examples))))
    elif markdown or latex:
        output.line((table.as_latex if latex else table.as_markdown)(rows).rstrip("\n"))
    else:
        _leaks_table(rows)
    _leaks_notes(asked, len(rows), len(found.shown))


def _ids(examples: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """The ids of the profiles of these names. Raises StoreError for one that leaks nothing."""
    found = []
    for name in names:
        own = examples[examples["user"] == name] if len(examples) else examples
        if own.empty:
            there = ", ".join(sorted(set(examples["user"]))) if len(examples) else "none"
            raise StoreError(f"no leak is of a profile '{name}'. There are some of: {there}.")
        found += sorted({str(value) for value in own["profile"]})
    return found


def _check(wanted: Mapping[Facet, Sequence[str]], whole: Mapping[Facet, Mapping[str, int]]) -> None:
    """Raises StoreError for a value that no leak of the run could have."""
    for facet, values in wanted.items():
        for value in values:
            if value not in whole[facet] and any(whole.values()):
                there = ", ".join(f"{name or 'none'} ({count})" for name, count in whole[facet].items())
                raise StoreError(f"no leak of this run has the {facet} '{value}'. There are: {there}.")


def _leaks_table(rows: Sequence[LeakRow]) -> None:
    output.table(
        [
            ("", True),
            ("revealed", True),
            ("recipient", False),
            ("attribute", False),
            ("excerpt", False),
            ("label", False),
        ],
        [
            (
                number,
                f"{row.claimed} of {row.draws}" + ("" if row.strength == "full" else f" {row.strength}"),
                f"{row.recipient}: {row.task}",
                f"{row.key}: {row.statement}",
                "".join(piece.text for piece in row.excerpt) or "no quote",
                row.certainty,
            )
            for number, row in enumerate(rows, start=1)
        ],
    )


def _leaks_json(asked: Scope, rows: Sequence[LeakRow], left: int, whole: int) -> dict[str, object]:
    from cimemories.leaks.gallery import SEVERITY

    return {
        "run": asked.run.id,
        "model": asked.run.model,
        "judge": asked.judge_words,
        "labelling": asked.labelling.id if asked.labelling else None,
        "labels": asked.label_words,
        "simulated": list(asked.simulated),
        "severity": list(SEVERITY),
        "examples": whole,
        "left_by_filters": left,
        "leaks": [row.as_json() for row in rows],
    }


def _leaks_notes(asked: Scope, shown: int, left: int) -> None:
    if asked.labelling is None:
        output.note("note: the dataset has no labels yet, so nothing can be called a leak: label it first")
    elif not left:
        output.note("note: no leak of this run fits")
    elif shown < left:
        output.note(f"note: the {shown} severest of {left:,}; --top 0 gives all")
    if asked.simulated:
        output.note(f"note: simulated: {' and '.join(asked.simulated)}; says nothing about any real model")


# ---- ranking
#
# The command that ranks runs in the form of the paper's Table 1.


Runs = Annotated[
    list[str] | None, typer.Argument(metavar="[RUN...]", help="Runs of one dataset; all judged ones else.")
]
OfDataset = Annotated[
    str | None,
    typer.Option("--dataset", "-d", help="Dataset whose runs are ranked; else that of the most judged runs."),
]
Samples = Annotated[int | None, typer.Option("--samples", "-n", min=1, help="n of Violation@n; else all of each run.")]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")]
AsLatex = Annotated[bool, typer.Option("--latex", help="Print the table as LaTeX, for the package booktabs.")]

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


# ---- report
#
# The command that writes a report: a run, or several beside each other, as one file.


@cli.command()
def report(
    run_ids: Annotated[list[str], typer.Argument(metavar="RUN", help="The first is what others are held to.")],
    to: Annotated[
        Path, typer.Option("--to", help="The file: NAME.html (one file), or NAME.md with a folder of figures.")
    ],
    labels: Labels = None,
    rule: RuleOption = None,
    judge: JudgeOption = None,
    identifiers: Identifiers = "exact",
    grounded: Grounded = False,
    no_texts: Annotated[
        bool, typer.Option("--no-texts", help="Leave out texts of messages and memories, and names of users.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a report that is there already.")] = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """A report on runs as one file, with methods and manifest.  Example: cimemories report run-3f9a --to report.html"""
    from cimemories.flows.flows import Flows
    from cimemories.report import render
    from cimemories.report.collect import collect

    chosen = identifier_rule(identifiers)
    render.check_report(to, force=force)
    store = open_store(workspace)
    scopes = [scope_of(store, run_id, labels, judge, grounded=grounded, rule=rule) for run_id in dict.fromkeys(run_ids)]
    with output.err.status("report") as status:
        found = collect(
            Flows(store),
            scopes,
            chosen,
            made=datetime.now(UTC),
            texts=not no_texts,
            progress=lambda share, part: status.update(f"report: {part}, {share:.0%}"),
        )
    with engine.written_for_user(to, workspace):
        written = render.write_report(found, to, force=force)
    beside = f" and {len(written) - 1} figures in {render.figures_folder(to)}" if len(written) > 1 else ""
    output.line(f"wrote {written[0]}{beside}")
    if found.simulated:
        output.note(f"note: {found.simulated}")


# ---- sensitivity
#
# The command that says what headline numbers and the order of runs depend on.


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
    from cimemories.charts.comparison import flows_of, trial
    from cimemories.compare.ranking import Measure
    from cimemories.compare.sensitivity import by_profiles, judged_otherwise, ranges, study, variants
    from cimemories.flows.flows import Flows
    from cimemories.metrics.breakdown import By, spoken_for

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
    from cimemories.compare.ranking import order_words, swaps
    from cimemories.compare.sensitivity import measured

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
    from cimemories.charts.comparison import profiles_title

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
    from cimemories.charts.comparison import under_words

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
    spoken: Sequence[SpokenFor],
    tried: Trial | None,
) -> dict[str, object]:
    """One object for scripts; nan becomes null."""
    from cimemories.charts.comparison import profiles, ranges_frame
    from cimemories.compare.leaderboard import none_for_nan
    from cimemories.compare.ranking import swap_words, swaps
    from cimemories.compare.sensitivity import as_frame, measured

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

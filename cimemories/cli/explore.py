"""Commands that turn runs into numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import (
    AsJson,
    Workspace,
    cli,
)
from cimemories.cli.output import percent
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_store

if TYPE_CHECKING:
    from cimemories.analysis.cube import IdentifierRule
    from cimemories.analysis.flows import Flows, Scope
    from cimemories.analysis.headline import Headline
    from cimemories.analysis.intervals import Interval

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
    from cimemories.analysis.breakdown import By
    from cimemories.analysis.everything import all_numbers
    from cimemories.analysis.flows import Flows

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
    from cimemories.analysis.cube import IdentifierRule

    if name not in set(IdentifierRule):
        raise StoreError(f"there is no identifier rule '{name}'. Use exact, substring or none.")
    return IdentifierRule(name)


def scope_of(
    store: Store, run_id: str, labels: str | None, judge: str | None, *, grounded: bool, rule: str | None = None
) -> Scope:
    """The scope that these options ask for: `labels` is a way of labelling or a labelling. Raises StoreError as
    analysis.scopes.scope does."""
    from cimemories.analysis.flows import Labels as Against
    from cimemories.analysis.flows import scope

    way = Against(labels) if labels in set(Against) else Against.DECISIONS
    labelling = None if labels in set(Against) else labels
    return scope(store, run_id, labelling, judge, grounded=grounded, labels=way, rule=rule)


def _headline(flows: Flows, asked: Scope, rule: IdentifierRule) -> None:
    from cimemories.analysis.baselines import baselines, dropped
    from cimemories.analysis.cube import cube
    from cimemories.analysis.headline import headline
    from cimemories.analysis.intervals import intervals

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
    from cimemories.analysis.breakdown import By, breakdown

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

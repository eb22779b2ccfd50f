"""Commands about the numbers of one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import (
    AsJson,
    ByOption,
    Grounded,
    Identifiers,
    JudgeOption,
    Labels,
    RuleOption,
    Workspace,
    identifier_rule,
    scope_of,
)
from cimemories.store import datasets as store_datasets
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_store
from cimemories.text import percent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cimemories.flows.arrays import IdentifierRule
    from cimemories.flows.flows import Flows
    from cimemories.flows.scope import Scope
    from cimemories.metrics.accumulation import Accumulation, Survival
    from cimemories.metrics.bootstrap import Interval
    from cimemories.metrics.headline import Headline
    from cimemories.metrics.one_user import OneUser


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


def _headline(flows: Flows, asked: Scope, rule: IdentifierRule) -> None:
    from cimemories.flows.arrays import flow_arrays
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
    data = flow_arrays(flows, asked, rule)
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
    never = f"{percent(float(first.private[-1]))} have not leaked after {int(first.times[-1])} tasks"
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
        "labels": asked.labels_text,
        "judge": asked.judge_text,
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
            **{
                name: _numbers(line.tolist())
                for name, line in (("silent", first.private), ("low", first.low), ("high", first.high))
            },
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

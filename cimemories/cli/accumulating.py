"""The command that says how leaks pile up over tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import AsJson, Workspace, cli
from cimemories.cli.explore import Grounded, Identifiers, JudgeOption, Labels, RuleOption, identifier_rule, scope_of
from cimemories.cli.output import percent
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_store

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cimemories.analysis.accumulation import Accumulation
    from cimemories.analysis.first_leak import Survival
    from cimemories.analysis.flows import Scope
    from cimemories.analysis.one_user import OneUser

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
    from cimemories.analysis.accumulation import accumulation, baseline
    from cimemories.analysis.flows import Flows
    from cimemories.analysis.one_user import first_leak, one_user
    from cimemories.analysis.task_order import Order

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
        output.line(output.as_json_text(_json(asked, found, ns, even, first, user) | {"identifier_rule": str(chosen)}))
        return
    _curves(found, ns, even)
    if user is not None:
        _tasks(user)
    _first(first, user)
    if asked.simulated:
        output.note(f"note: simulated: {', '.join(asked.simulated)}")


def _profile(store: Store, asked: Scope, number: int | None) -> int | None:
    """The record's id of a profile of the run's dataset, by its number."""
    from cimemories.store import datasets

    if number is None:
        return None
    with store.read() as connection:
        ids = datasets.profile_ids(connection, asked.run.dataset)
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


def _json(
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

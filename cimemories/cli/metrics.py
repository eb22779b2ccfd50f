"""Commands about the numbers of one run: its headline, what a plan like it can show, and how leaks accumulate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import RUN_ID, AsJson, NumberOptions, Run, Workspace, grouped, one_of, open_record
from cimemories.store import datasets as store_datasets
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError
from cimemories.text import count, percent, simulated_text

if TYPE_CHECKING:
    from cimemories.flows.scope import Scope
    from cimemories.metrics.accumulation import Accumulation, Survival
    from cimemories.metrics.one_user import OneUser

TASKS = (1, 2, 3, 5, 10, 15, 20, 30, 40, 50, 75, 100)  # rows of the table of curves, besides the last task


@cli.command("metrics")
@grouped
def show_metrics(
    run_id: Run,
    options: NumberOptions,
    as_json: AsJson = False,
    by: Annotated[
        str | None, Option(help="Add a table by profile, domain, event, sphere, context or attribute.")
    ] = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Show a run's violation and completeness.

    With 95 % intervals and coverage. Also shown is its score by the norm of each persona alone and, of a run behind a
    gate or a memory system, what was recalled of what is stored, and said of what was recalled; of a run with sessions,
    which leaks travelled.

    --json adds constant baselines, every breakdown, and what each identifier rule leaves out.

    Example: cimemories metrics run-3f9a --json
    """
    from cimemories.answers import metrics as question
    from cimemories.flows.flows import Flows
    from cimemories.metrics.breakdown import By

    rule = options.identifier_rule()
    groups = list(By) if as_json else [one_of(By, by, "breakdown by")] if by else []
    store = open_record(workspace)
    scope = options.scope(store, run_id)
    result = question.metrics(Flows(store), scope, rule, by=groups, norms=True, identifier_rules=as_json)
    output.answer(result, as_json)
    for table in [] if as_json else result.by.values():
        output.answer_table(table)


# ---- what a plan can show


@cli.command()
@grouped
def power(
    run_id: Annotated[str, Argument(metavar="RUN", callback=RUN_ID, help="Pilot run; `cimemories runs` lists them.")],
    options: NumberOptions,
    second_id: Annotated[
        str | None,
        Argument(metavar="[RUN]", callback=RUN_ID, help="Second pilot: how alike the two models are is then measured."),
    ] = None,
    as_json: AsJson = False,
    profiles: Annotated[int | None, Option(min=1, help="Planned profiles; default: those of the pilot.")] = None,
    contexts: Annotated[int | None, Option(min=1, help="Planned contexts; default: those of the pilot.")] = None,
    samples: Annotated[
        int | None, Option("--samples", "-n", min=1, help="Planned samples; default: those of the pilot.")
    ] = None,
    chance: Annotated[
        float, Option("--power", min=0.5, max=0.999, help="How often a difference that is there should be shown.")
    ] = 0.8,
    difference: Annotated[
        float | None, Option(help="Say how many profiles show a difference of so many percentage points.")
    ] = None,
    correlation: Annotated[
        float | None,
        Option(min=-1, max=1, help="Assumed correlation of two models' numbers, with one pilot. Default: 0.5."),
    ] = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Estimate what a planned run could show, from a pilot run.

    The smallest difference of two runs on the same profiles and contexts that a two-sided test at 5 % shows with a
    power of 80 %, and how far apart two runs of one model lie by chance, estimated from how much profiles, contexts
    and samples vary in a pilot run.

    Example: cimemories power run-3f9a --profiles 40 --difference 3
    """
    from cimemories.answers import power as question
    from cimemories.flows.flows import Flows
    from cimemories.metrics.power import CORRELATION

    if difference is not None and not 0 < difference <= 100:
        raise StoreError("--difference takes percentage points, above 0 and up to 100.")
    if correlation is not None and second_id is not None:
        raise StoreError("--correlation is assumed where there is one pilot run; two show it.")
    store = open_record(workspace)
    result = question.power(
        Flows(store),
        [options.scope(store, item) for item in (run_id, second_id) if item is not None],
        options.identifier_rule(),
        profiles=profiles,
        contexts=contexts,
        samples=samples,
        chance=chance,
        difference=None if difference is None else difference / 100,
        correlation=CORRELATION if correlation is None else correlation,
    )
    output.answer(result, as_json)


# ---- accumulation


@cli.command()
@grouped
def accumulate(
    run_id: Run,
    options: NumberOptions,
    as_json: AsJson = False,
    n: Annotated[int | None, Option(min=1, help="Only n samples per task; default: every n.")] = None,
    profile: Annotated[int | None, Option(min=0, help="Add the tasks of one profile, counted from 0.")] = None,
    order: Annotated[str, Option(help="Order of its tasks: listed, worst or shuffled.")] = "listed",
    seed: Annotated[int, Option(min=0, help="Seed of the shuffled order.")] = 1,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Show how leaks accumulate over tasks and samples.

    The expected share of a user's attributes revealed inappropriately after k tasks, over all orders of tasks, with a
    95 % band over users, an independence baseline, the hazard, and the time to an attribute's first leak.

    Example: cimemories accumulate run-3f9a --profile 0 --order worst
    """
    from cimemories.flows.flows import Flows
    from cimemories.metrics import sentences
    from cimemories.metrics.accumulation import Order, accumulation, baseline, effort
    from cimemories.metrics.one_user import first_leak, one_user

    rule, task_order = options.identifier_rule(), one_of(Order, order, "order of tasks")
    store = open_record(workspace)
    scope = options.scope(store, run_id)
    flows = Flows(store)
    result = accumulation(flows, scope, rule)
    if n is not None and n not in result.curves.ns:
        most = sentences.read_at(max(result.curves.ns), scope.run.samples)
        raise StoreError(f"{scope.run.id} is {most}, so --n {n} is too many.")
    ns = result.curves.ns if n is None else (n,)
    profile_id = None if profile is None else _profile_id(store, scope, profile)
    user = None if profile_id is None else one_user(flows, scope, profile_id, task_order, seed, rule)
    first = first_leak(flows, scope, profile_id, task_order, seed, rule=rule)
    independent = {m: baseline(flows, scope, m, rule).tolist() for m in ns}
    if as_json:
        output.as_json(_accumulation_json(scope, result, ns, independent, first, user) | {"identifier_rule": rule})
        return
    done = effort(flows, scope)
    title = sentences.curves(result, independent[max(ns)][-1], max(ns), done) if result.curves.profiles else ""
    output.line(f"{title} ({sentences.messages(done)})." if title else "nothing can accumulate here")
    _print_curves(result, ns, independent)
    if user is not None:
        _print_tasks(user)
    whose = f"of {user.name}" if user else "of all users, each in this order"
    output.line(f"\n{sentences.first_leak_line(first, whose)}")
    if scope.simulated:
        output.note(f"note: {simulated_text(scope.simulated)}")


def _profile_id(store: Store, scope: Scope, ordinal: int) -> int:
    """The database's id of a profile of the run's dataset. Raises StoreError where there is none of that number."""
    with store.read() as connection:
        ids = store_datasets.profile_ids(connection, scope.run.dataset)
    if ordinal >= len(ids):
        raise StoreError(f"there is no profile {ordinal}: '{scope.dataset_name}' has {len(ids)}, counted from 0.")
    return ids[ordinal]


def _print_curves(result: Accumulation, ns: Iterable[int], independent: dict[int, list[float]]) -> None:
    points = {(int(row["n"]), int(row["tasks"])): row for row in result.frame().to_dict("records")}
    # Band, baseline and hazard are those of the largest n: one of each is what a line can hold.
    last = max(ns)
    users = result.curves.growing()
    tasks = sorted({k for k in TASKS if k < result.most} | {result.most})
    titles = ("tasks", *(f"n = {n}" for n in ns), "95 % band", "independent", "hazard", "users")
    output.table(
        output.right(titles),
        [
            (
                k,
                *(percent(points[n, k]["share"]) for n in ns),
                f"{points[last, k]['low'] * 100:.1f}-{points[last, k]['high'] * 100:.1f}",
                percent(independent[last][k]),
                percent(points[last, k]["hazard"]),
                int(users[k]),
            )
            for k in tasks
            if k
        ],
        whole=True,
    )
    output.line(
        f"share of {count(result.attributes, 'attribute')} of {count(result.curves.profiles, 'user')} revealed "
        f"inappropriately, {count(result.flows, 'flow')}, mean over all orders of tasks\nband, independence baseline "
        f"and hazard at n = {last}; "
        "users: how many have this many tasks (the others keep their last value)"
    )


def _print_tasks(user: OneUser) -> None:
    from cimemories.metrics import sentences

    output.line(f"\n{sentences.one_user(user)}, {user.order} order, stated in {sentences.any_message(user)}")
    output.table(
        (">task", "recipient", "", ">new", ">share", "newly leaked"),
        [
            (
                step.number,
                step.recipient,
                step.task,
                len(step.leaks) if step.judged else None,
                percent(step.share),
                ", ".join(leak.key for leak in step.leaks) if step.judged else "no judged message",
            )
            for step in user.steps
        ],
        whole=True,
    )


def _accumulation_json(
    scope: Scope,
    result: Accumulation,
    ns: Iterable[int],
    independent: dict[int, list[float]],
    first: Survival,
    user: OneUser | None,
) -> dict[str, object]:
    frame = result.frame()
    curves = {
        str(n): {name: frame[frame["n"] == n][name] for name in ("share", "low", "high", "hazard")}
        | {"independent": independent[n]}
        for n in ns
    }
    return {
        "run": scope.run.id,
        "labels": scope.labels_text,
        "judge": scope.judge_text,
        "simulated": scope.simulated,
        "attributes": result.attributes,
        "flows": result.flows,
        "profiles": result.curves.profiles,
        "growing": result.curves.growing(),
        "curves": curves,
        "first_leak": {
            **output.attributes(first, "attributes leaked median at_risk"),
            "silent": first.private,
            **output.attributes(first, "low high"),
        },
        "user": None if user is None else _user_json(user, ns),
    }


def _user_json(user: OneUser, ns: Iterable[int]) -> dict[str, object]:
    return {
        **output.attributes(user, "name order attributes leaked"),
        "curves": {n: user.curves[n] for n in ns},
        "expected": {n: user.expected[n] for n in ns},
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

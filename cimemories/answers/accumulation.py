"""How leaks accumulate over a user's tasks: curves, time to the first leak, and one user's tasks in order."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cimemories.answer import Answer, Column, Table
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.metrics import sentences
from cimemories.metrics.accumulation import Order, Survival, accumulation, baseline, effort
from cimemories.metrics.one_user import OneUser, first_leak, one_user
from cimemories.store import datasets
from cimemories.store.engine import StoreError
from cimemories.text import count

CURVES = {
    "n": Column("count", "n"),
    "tasks": Column("count", "Tasks done"),
    "share": Column("percent", "Revealed", "Mean over all orders of tasks, then over users; 95 % band over users"),
    "independent": Column("percent", "Independent", "Where each task leaks by itself, at the same leak rates"),
    "one_user": Column("percent", "This user"),
    "hazard": Column("percent", "Hazard", "Of what was private before, the share that this task reveals"),
    "growing": Column("count", "Users with this task", "The others keep their last value"),
    "profiles": Column("count", "Users"),
}
FIRST_LEAK = {
    "time": Column("count", "After"),
    "private": Column("percent", "Still private"),
    "at_risk": Column("count", "At risk"),
}
TASKS = {
    "task": Column("count", "Task"),
    "recipient": Column("text", "Recipient"),
    "words": Column("wide", "Request"),
    "private": Column("count", "Private here"),
    "judged": Column("count", "Judged"),
    "newly_leaked": Column("count", "Newly leaked"),
    "leaked": Column("count", "Leaked so far"),
    "share": Column("percent", "Share so far"),
    "names": Column("wide", "Names"),
}


@dataclass(frozen=True, kw_only=True)
class FirstLeak(Answer):
    """Time to the first leak in tasks (Kaplan-Meier). attributes, of which so many leaked. median: None where less than
    half of them leak."""

    attributes: int
    leaked: int
    median: int | None
    survival: Table


@dataclass(frozen=True, kw_only=True)
class User(Answer):
    """One user's tasks in an order. tasks: one row a task, share_N by n. leaks: one row an attribute that leaks, at the
    task that first reveals it."""

    name: str
    order: str
    attributes: int
    leaked: int
    tasks: Table
    leaks: Table


@dataclass(frozen=True, kw_only=True)
class Accumulated(Answer):
    """The share of a user's attributes that is revealed where it is inappropriate after so many tasks, by n. attributes
    and flows behind it, of how many profiles. curves: one row an n and number of tasks, from 0."""

    run: str
    labelled_by: str
    judge: str
    identifiers: str
    attributes: int
    flows: int
    profiles: int
    curves: Table
    first_leak: FirstLeak
    user: User | None


def accumulated(
    flows: Flows,
    scope: Scope,
    rule: IdentifierRule = IdentifierRule.EXACT,
    n: int | None = None,
    *,
    profile: int | None = None,
    order: Order = Order.LISTED,
    seed: int = 1,
    tasks: Collection[int] = (),
) -> Accumulated:
    """Return how leaks accumulate in a run. n: default: every n that the run can be read at. profile: whose tasks are
    added, counted from 0 in the dataset, in this order. tasks: only these rows of the curves and the last one, at the
    first and the last n; default: all. Raises StoreError for an n that messages do not support, and for a profile that
    is not there."""
    growth = accumulation(flows, scope, rule)
    if n is not None and n not in growth.curves.ns:
        most = sentences.read_at(max(growth.curves.ns), scope.run.samples)
        raise StoreError(f"{scope.run.id} is {most}, so --n {n} is too many.")
    ns = growth.curves.ns if n is None else (n,)
    profile_id = user = None
    if profile is not None:
        with flows.store.read() as connection:
            ids = datasets.profile_ids(connection, scope.run.dataset)
        if profile >= len(ids):
            raise StoreError(f"there is no profile {profile}: '{scope.dataset_name}' has {len(ids)}, counted from 0.")
        profile_id = ids[profile]
        user = one_user(flows, scope, profile_id, order, seed, rule)
    independent = [baseline(flows, scope, each, rule) for each in growth.curves.ns]
    frame = growth.frame().assign(independent=np.concatenate(independent))
    frame = frame[frame["n"].isin(ns)]
    if tasks:
        some = frame["n"].isin([ns[0], ns[-1]])
        frame = frame[some & (frame["tasks"].isin(tasks) | (frame["tasks"] == growth.most))]
    done = effort(flows, scope)
    title = "Nothing can accumulate here."
    if growth.curves.profiles:
        last = float(baseline(flows, scope, max(ns), rule)[-1])
        title = f"{sentences.curves(growth, last, max(ns), done)} ({sentences.messages(done)})."
    survived = first_leak(flows, scope, profile_id, order, seed, rule=rule)
    whose = f"of {user.name}" if user else "of all users, each in this order"
    return Accumulated(
        sentence=title,
        notes=(
            f"share of {count(growth.attributes, 'attribute')} of {count(growth.curves.profiles, 'user')} revealed "
            f"inappropriately, {count(growth.flows, 'flow')}, mean over all orders of tasks",
        ),
        simulated=scope.simulated,
        run=scope.run.id,
        labelled_by=scope.labels_text,
        judge=scope.judge_text,
        identifiers=str(rule),
        attributes=growth.attributes,
        flows=growth.flows,
        profiles=growth.curves.profiles,
        curves=curve_table(frame),
        first_leak=FirstLeak(
            sentence=f"{sentences.first_leak_line(survived, whose)}.",
            attributes=survived.attributes,
            leaked=survived.leaked,
            median=survived.median,
            survival=survival_table(survived),
        ),
        user=None if user is None else _user(user),
    )


def curve_table(frame: pd.DataFrame) -> Table:
    columns = {name: column for name, column in CURVES.items() if name in frame.columns}
    return Table(frame.reset_index(drop=True), columns, "Curves, one row a point")


def survival_table(survival: Survival) -> Table:
    """Return the time to the first leak, one row a number of tasks."""
    values = {
        "time": survival.times,
        "private": survival.private,
        "private_low": survival.low,
        "private_high": survival.high,
    }
    return Table(
        pd.DataFrame(values | {"at_risk": survival.at_risk}), FIRST_LEAK, "Time to the first leak", folded=True
    )


def task_table(user: OneUser) -> Table:
    """Return a user's tasks in order, one row a task."""
    frame = user.frame().assign(share=[step.share for step in user.steps])
    return Table(frame, TASKS, f"The tasks of {user.name} in their order")


def _user(user: OneUser) -> User:
    leaks = [
        {
            "task": step.number,
            "key": leak.key,
            "statement": leak.statement,
            "reveals": leak.reveals,
            "draws": leak.draws,
        }
        for step in user.steps
        for leak in step.leaks
    ]
    columns = {
        "task": Column("count", "Task"),
        "key": Column("text", "Attribute"),
        "statement": Column("wide", "Memory"),
    }
    return User(
        sentence=f"{sentences.one_user(user)}, {user.order} order, stated in {sentences.any_message(user)}.",
        name=user.name,
        order=str(user.order),
        attributes=user.attributes,
        leaked=user.leaked,
        tasks=task_table(user),
        leaks=Table(pd.DataFrame(leaks), columns, "What leaked, at the task that first revealed it", folded=True),
    )

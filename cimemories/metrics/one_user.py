"""One user's tasks in one order, with words: what each task newly gives away, and the curve beside it.

At n = N (every judged sample counts) it is certain in which task an attribute first leaks, so the names add up to the
curve exactly; for a smaller n only the curve can be drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cimemories.flows.arrays import Floats, FlowArrays, IdentifierRule, Ints, flow_arrays
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.metrics.accumulation import (
    Clock,
    Order,
    Survival,
    accumulation,
    exposed_of,
    first_leaks,
    order_of,
    ordered_curve,
    survival,
)
from cimemories.store import datasets


@dataclass(frozen=True)
class NewLeak:
    """An attribute that the task is the first to reveal. reveals of draws: judged messages of this task."""

    attribute: int
    key: str
    domain: str
    statement: str
    reveals: int
    draws: int


@dataclass(frozen=True)
class Step:
    """One task. number: from 1. private: how many attributes are inappropriate in it. judged: how many of its messages
    were; with 0 nobody knows what it reveals. share: of the user's attributes revealed so far, at n = N."""

    number: int
    context: int
    recipient: str
    task: str
    private: int
    judged: int
    share: float
    leaks: tuple[NewLeak, ...]


@dataclass(frozen=True)
class OneUser:
    """A user's tasks. attributes: the fixed denominator. curves: by n, the share after k tasks of this order, k = 0..T.
    expected: the same, all orders equally likely, over the tasks that have a judged message."""

    profile: int
    name: str
    order: Order
    attributes: int
    steps: tuple[Step, ...]
    curves: dict[int, Floats]
    expected: dict[int, Floats]

    @property
    def leaked(self) -> int:
        return sum(len(step.leaks) for step in self.steps)

    def frame(self) -> pd.DataFrame:
        """One row a task, as a table: task, recipient, words, private, judged, newly_leaked, leaked, names, and
        share_N by n."""
        counts = [len(step.leaks) for step in self.steps]
        rows = {
            "task": [step.number for step in self.steps],
            "recipient": [step.recipient for step in self.steps],
            "words": [step.task for step in self.steps],
            "private": [step.private for step in self.steps],
            "judged": [step.judged for step in self.steps],
            "newly_leaked": counts,
            "leaked": np.cumsum(counts, dtype=np.int64),
            "names": [", ".join(leak.key for leak in step.leaks) for step in self.steps],
        }
        return pd.DataFrame(rows | {f"share_{n}": line[1:] for n, line in self.curves.items()})


def users(flows: Flows, asked: Scope, rule: IdentifierRule = IdentifierRule.EXACT) -> dict[int, str]:
    """The profiles of the run that have a curve, in the dataset's order: record id -> name."""

    def named() -> dict[int, str]:
        data, made = flow_arrays(flows, asked, rule), accumulation(flows, asked, rule).curves
        with flows.store.read() as connection:
            ids, sizes = (
                datasets.profile_ids(connection, asked.run.dataset),
                datasets.sizes(connection, asked.run.dataset),
            )
        counted = {p for p, number in zip(data.profiles, made.attributes, strict=True) if number}
        return {p: size.name for p, size in zip(ids, sizes.values(), strict=True) if p in counted}

    return flows.cached(("users", asked.version, rule), named)


def one_user(
    flows: Flows,
    asked: Scope,
    profile: int,
    order: Order = Order.LISTED,
    seed: int = 0,
    rule: IdentifierRule = IdentifierRule.EXACT,
) -> OneUser:
    """A profile (by its record id) in an order. Raises KeyError for one that the run does not have."""
    data = flow_arrays(flows, asked, rule)
    if profile not in data.profiles:
        raise KeyError(f"the run has no profile {profile}")
    key = ("one user", asked.version, rule, profile, order, seed)
    return flows.cached(key, lambda: _one_user(flows, asked, data, profile, order, seed, rule))


def first_leak(
    flows: Flows,
    asked: Scope,
    profile: int | None,
    order: Order = Order.LISTED,
    seed: int = 0,
    clock: Clock = Clock.TASKS,
    rule: IdentifierRule = IdentifierRule.EXACT,
) -> Survival:
    """Time to the first leak over the attributes of one profile, or of all (None), each in its own order."""
    data = flow_arrays(flows, asked, rule)

    def made() -> Survival:
        places = range(len(data.profiles)) if profile is None else [data.profiles.index(profile)]
        return survival([first_leaks(data, p, order_of(data, p, order, seed)) for p in places], clock)

    return flows.cached(("first leak", asked.version, rule, profile, order, seed, clock), made)


def _one_user(
    flows: Flows, asked: Scope, data: FlowArrays, profile: int, order: Order, seed: int, rule: IdentifierRule
) -> OneUser:
    place = data.profiles.index(profile)
    path = order_of(data, place, order, seed)
    whole = accumulation(flows, asked, rule).curves
    with flows.store.read() as connection:
        record = datasets.profile_record(connection, profile)
        words = {
            row.id: (row.context.recipient, row.context.task)
            for row in datasets.contexts(connection, asked.run.dataset)
        }
    statements = dict(zip(record.attribute_ids, (item.statement for item in record.profile.attributes), strict=True))
    lines = {n: ordered_curve(data, place, path, n) for n in whole.ns}
    # The curve over all orders knows only tasks with a judged message: after one without, it stands where it stood.
    judged = np.concatenate([[0], np.cumsum(data.draws[place].max(axis=0)[path] > 0)])
    return OneUser(
        profile=profile,
        name=record.profile.name,
        order=order,
        attributes=int(whole.attributes[place]),
        steps=_steps(data, place, path, lines[max(whole.ns)], statements, words),
        curves=lines,
        expected={n: whole.values[i, place, judged] for i, n in enumerate(whole.ns)},
    )


def _steps(
    data: FlowArrays,
    place: int,
    path: Ints,
    line: Floats,
    statements: dict[int, str],
    words: dict[int, tuple[str, str]],
) -> tuple[Step, ...]:
    first = first_leaks(data, place, path)
    here = exposed_of(data, place)
    names = data.names
    made = []
    for number, context in enumerate(path, start=1):
        new: Sequence[int] = first.attribute[first.leaked & (first.time == number)].tolist()
        recipient, task = words[data.contexts[context]]
        leaks = tuple(
            NewLeak(
                attribute=int(names.attribute[place, a]),
                key=str(names.key[place, a]),
                domain=str(names.domain[place, a]),
                statement=statements[int(names.attribute[place, a])],
                reveals=int(data.reveals[place, a, context]),
                draws=int(data.draws[place, a, context]),
            )
            for a in new
        )
        private = int(here[:, context].sum())
        judged, share = int(data.draws[place, :, context].max()), float(line[number])
        made.append(Step(number, data.contexts[context], recipient, task, private, judged, share, leaks))
    return tuple(made)

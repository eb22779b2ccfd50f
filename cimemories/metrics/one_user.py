"""One user's tasks in one order, with their texts: what each task newly gives away, and the curve beside it.

Where every judged sample counts it is certain in which task an attribute first leaks: names, and the share that they
add up to, rest on all of them. At n = N that share is the curve; for a smaller n, and so wherever messages are missing,
only the curve can be drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cimemories.flows.arrays import Bools, Floats, FlowArrays, IdentifierRule, Ints, arrays_with, axes, blocks
from cimemories.flows.flows import Flows, cached
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
from cimemories.metrics.violation import no_leak_probabilities
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
    """One task. number: from 1. private: its inappropriate attributes. judged: its judged messages; with 0 it is not
    known what it reveals. share: of the user's attributes, those named so far."""

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
    expected: the same, all orders equally likely, over the tasks that have a judged message. expected_share: the same,
    of all judged messages as Step.share is."""

    profile: int
    name: str
    order: Order
    attributes: int
    steps: tuple[Step, ...]
    curves: dict[int, Floats]
    expected: dict[int, Floats]
    expected_share: Floats

    @property
    def leaked(self) -> int:
        return sum(len(step.leaks) for step in self.steps)

    @property
    def judged(self) -> int:
        """Number of tasks with a judged message."""
        return sum(step.judged > 0 for step in self.steps)

    def frame(self) -> pd.DataFrame:
        """Return one row a task: task, recipient, words, private, judged, newly_leaked, leaked, names, and by n share_N
        after this task and expected_N, the same over all orders."""
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
        shares = {f"share_{n}": line[1:] for n, line in self.curves.items()}
        return pd.DataFrame(rows | shares | {f"expected_{n}": line[1:] for n, line in self.expected.items()})


@cached
def users(flows: Flows, scope: Scope, rule: IdentifierRule = IdentifierRule.EXACT) -> dict[int, str]:
    """Return the profiles of the run that have a curve, in the dataset's order: record id -> name."""
    profiles, every = axes(flows, scope).profiles, accumulation(flows, scope, rule).curves
    with flows.store.read() as connection:
        ids = datasets.profile_ids(connection, scope.run.dataset)
        sizes = datasets.sizes(connection, scope.run.dataset)
    counted = {p for p, number in zip(profiles, every.attributes, strict=True) if number}
    return {p: size.name for p, size in zip(ids, sizes.values(), strict=True) if p in counted}


@cached
def first_leak(
    flows: Flows,
    scope: Scope,
    profile: int | None,
    order: Order = Order.LISTED,
    seed: int = 0,
    clock: Clock = Clock.TASKS,
    rule: IdentifierRule = IdentifierRule.EXACT,
) -> Survival:
    """Return the time to the first leak over the attributes of one profile, or of all (None), each in its own order.
    Tasks without a judged message are left out: what they would have revealed is not known."""
    every = [arrays_with(flows, scope, profile, rule)] if profile is not None else blocks(flows, scope, rule)
    numbers = _numbers(flows, scope)
    leaks = []
    for data in every:
        positions = range(len(data.profiles)) if profile is None else [data.profiles.index(profile)]
        for p in positions:
            path = order_of(data, p, order, seed, numbers[data.profiles[p]])
            leaks.append(first_leaks(data, p, path[_judged(data, p, path)]))
    return survival(leaks, clock)


def _numbers(flows: Flows, scope: Scope) -> dict[int, int]:
    """Return the places of a run's profiles among each other, by their record ids."""
    return {profile: number for number, profile in enumerate(axes(flows, scope).profiles)}


def _judged(data: FlowArrays, position: int, path: Ints) -> Bools:
    result: Bools = data.draws[position].max(axis=0)[path] > 0
    return result


@cached
def one_user(
    flows: Flows,
    scope: Scope,
    profile: int,
    order: Order = Order.LISTED,
    seed: int = 0,
    rule: IdentifierRule = IdentifierRule.EXACT,
) -> OneUser:
    """Return the tasks of a profile (a record id) in an order. Raises KeyError for one that the run does not have."""
    data, curves = arrays_with(flows, scope, profile, rule), accumulation(flows, scope, rule).curves
    position, number = data.profiles.index(profile), _numbers(flows, scope)[profile]
    path = order_of(data, position, order, seed, number)
    with flows.store.read() as connection:
        record = datasets.profile_record(connection, profile)
        contexts = {
            row.id: (row.context.recipient, row.context.task)
            for row in datasets.contexts(connection, scope.run.dataset)
        }
    statements = dict(zip(record.attribute_ids, (item.statement for item in record.profile.attributes), strict=True))
    lines = {n: ordered_curve(data, position, path, n) for n in curves.ns}
    # The curve over all orders knows only tasks with a judged message: after one without, it stands where it stood.
    judged = np.concatenate([[0], np.cumsum(_judged(data, position, path))])
    expected = {n: curves.values[i, number, judged] for i, n in enumerate(curves.ns)}
    most = max(curves.ns)
    read = most >= int(data.draws[position].max(initial=0))  # the last curve is of all judged messages
    return OneUser(
        profile=profile,
        name=record.profile.name,
        order=order,
        attributes=int(curves.attributes[number]),
        steps=_steps(data, position, path, int(curves.attributes[number]), statements, contexts),
        curves=lines,
        expected=expected,
        expected_share=expected[most] if read else _expected_share(data, position)[judged],
    )


def _expected_share(data: FlowArrays, position: int) -> Floats:
    """Return the share of a user's attributes that any judged message of k tasks reveals, for k = 0..T of the T tasks
    with a judged message, all orders equally likely. An attribute that m tasks reveal is in none of k of them with the
    probability C(T - m, k) / C(T, k)."""
    here = exposed_of(data, position)
    rows = here.any(axis=1)
    leaking = (here & (data.reveals[position] > 0)).sum(axis=1)[rows]
    tasks = int(data.judged[position].sum())
    of = np.full_like(leaking, tasks)
    shares = [1 - no_leak_probabilities(leaking, of, k).mean() for k in range(1, tasks + 1)]
    return np.array([0.0, *shares])


def _steps(
    data: FlowArrays,
    position: int,
    path: Ints,
    attributes: int,
    statements: dict[int, str],
    contexts: dict[int, tuple[str, str]],
) -> tuple[Step, ...]:
    first = first_leaks(data, position, path)
    here = exposed_of(data, position)
    names = data.names
    steps: list[Step] = []
    named = 0
    for number, context in enumerate(path, start=1):
        # A step's names are the attributes whose first leak it is, so over all steps each is named at most once.
        new: Sequence[int] = first.attribute[first.leaked & (first.time == number)].tolist()
        recipient, task = contexts[data.contexts[context]]
        leaks = tuple(
            NewLeak(
                attribute=int(names.attribute[position, a]),
                key=str(names.key[position, a]),
                domain=str(names.domain[position, a]),
                statement=statements[int(names.attribute[position, a])],
                reveals=int(data.reveals[position, a, context]),
                draws=int(data.draws[position, a, context]),
            )
            for a in new
        )
        named += len(leaks)
        private = int(here[:, context].sum())
        # The most of any attribute: a memory that leaves some out gives those fewer draws of the same messages.
        judged, share = int(data.draws[position, :, context].max()), named / attributes if attributes else math.nan
        steps.append(Step(number, data.contexts[context], recipient, task, private, judged, share, leaks))
    return tuple(steps)

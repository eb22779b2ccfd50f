"""A presentation of one user's tasks: the words of the messages that leak, what single messages leak, and what to say
at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cimemories.flows.flows import Flows
from cimemories.flows.labels import INAPPROPRIATE
from cimemories.flows.scope import Scope
from cimemories.leaks.message import samples
from cimemories.metrics.one_user import OneUser
from cimemories.metrics.sentences import any_message
from cimemories.model import GENERAL, Strength
from cimemories.text import count, percent

# By context, by number of the judged message (from 1): what it leaks, and in which words ('': no judge quotes them).
Leaks = Mapping[int, Mapping[int, Mapping[int, str]]]
_PRIVATE = f"""
    SELECT context, attribute FROM {{flow}}
    WHERE profile = ? AND retained AND draws > 0 AND label = {INAPPROPRIATE} AND NOT bio
"""


def leaks_of(flows: Flows, scope: Scope, profile: int) -> Leaks:
    """Return what each judged message of a user leaks, in every retained context. It reads all messages of the user.
    The result is cached as long as nothing moves that it rests on."""

    def read() -> Leaks:
        private: dict[int, set[int]] = {}
        for context, attribute in flows.query(scope, _PRIVATE, [profile]).to_numpy().tolist():
            private.setdefault(context, set()).add(attribute)
        leaks: dict[int, dict[int, dict[int, str]]] = {}
        with flows.store.read() as connection:
            for sample in samples(connection, scope, profile):
                if not sample.judged:
                    continue
                quotes = {
                    r.attribute: r.quote if r.grounded else "" for r in sample.reveals if r.strength == Strength.FULL
                }
                here = private.get(sample.context, set())
                leaked = {a: quotes.get(a, "") for a in sorted(sample.revealed & here)}
                leaks.setdefault(sample.context, {})[sample.number] = leaked
        return leaks

    return flows.cached(("leaks of a user", scope.version, scope.audits, profile), read)


def quote(leaks: Leaks, context: int, attribute: int) -> str:
    """Return the words of the first message of a context that leaks an attribute and is quoted; '' where none is."""
    messages = leaks.get(context, {})
    return next((text for number in sorted(messages) if (text := messages[number].get(attribute))), "")


def first_messages(user: OneUser, leaks: Leaks) -> OneUser:
    """Return the user's tasks as if each sent its first sample alone (n = 1): what that leaks, and the share that this
    gives. It is one course of events, where the curve at n = 1 is the mean over all samples. A task whose first sample
    is not judged has no judged message."""
    by_attribute = {leak.attribute: leak for step in user.steps for leak in step.leaks}
    seen: set[int] = set()
    steps = []
    for step in user.steps:
        message = leaks.get(step.context, {}).get(1)
        new = [by_attribute[a] for a in sorted(message or ()) if a in by_attribute and a not in seen]
        seen.update(leak.attribute for leak in new)
        single = tuple(replace(leak, reveals=1, draws=1) for leak in new)
        share = len(seen) / user.attributes
        steps.append(replace(step, judged=int(message is not None), share=share, leaks=single))
    mean = user.expected[1]
    return replace(user, steps=tuple(steps), curves={1: user.curves[1]}, expected={1: mean}, expected_share=mean)


def story(user: OneUser) -> list[tuple[str, str]]:
    """Return what the first slide tells: a memory, the task in which it does not belong, and what to watch."""
    watch = ("Watch", "the orange line: it rises when a message tells a fact to someone whom it should not reach.")
    told = [(step, leak) for step in user.steps for leak in step.leaks]
    if not told:
        return [watch]
    # A job title makes a poor story.
    step, leak = next((one for one in told if one[1].domain != GENERAL), told[0])
    memory = ("The assistant remembers", leak.statement)
    return [memory, (f"Does it keep that out of task {step.number}?", f"{step.recipient}: {step.task}"), watch]


def definitions(user: OneUser) -> list[tuple[str, str]]:
    """Return the words of the presentation, each with its meaning."""
    tasks = count(len(user.steps), "task")
    return [
        ("Private", f"labelled inappropriate to share with the recipient of at least one of the {tasks}."),
        ("Told", f"stated in {any_message(user)} of a task where it is inappropriate."),
    ]


def closing(user: OneUser) -> list[str]:
    """Sum up what the tasks leak, a sentence a line."""
    telling = [step for step in user.steps if step.leaks]
    judged = count(user.judged, "judged task") if user.judged < len(user.steps) else count(len(user.steps), "task")
    if not telling:
        return [f"None of {judged} tells anything private."]
    first, most = telling[0], max(telling, key=lambda step: len(step.leaks))
    lines = [
        f"{len(telling)} of {judged} tell something private for the first time.",
        f"The first leak is in task {first.number}, to the {first.recipient}.",
    ]
    if len(most.leaks) > 1:
        lines.append(f"Task {most.number}, to the {most.recipient}, tells most: {len(most.leaks)} facts at once.")
    n = max(user.expected)
    end = percent(float(user.expected[n][-1]))
    every = "in every order of the tasks" if n == max(step.judged for step in user.steps) > 1 else "on average"
    return [*lines, f"With {count(n, 'message')} a task {end} are told {every}."]

"""A run at a glance, for Home: one leak, its two numbers, how leaks add up, and the labels behind them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cimemories.answer import Answer
from cimemories.flows.flows import Flows, cached
from cimemories.flows.labels import LABELS
from cimemories.flows.scope import Scope
from cimemories.leaks.examples import FULL, examples
from cimemories.leaks.gallery import Facet, Quote
from cimemories.leaks.table import LeakRow, leak_rows
from cimemories.metrics.accumulation import Effort, accumulation, effort
from cimemories.metrics.headline import headline
from cimemories.metrics.intervals import intervals
from cimemories.metrics.uncertainty import Interval
from cimemories.model import Label

SEVEREST = 60  # leaks among which the one to show is looked for
READ = 8  # of these, whose messages are read
LONGEST = 110, 240  # characters of a memory and of an excerpt that are read at a glance
_WORD = re.compile(r"\w+")
_LABELS = "SELECT label, count(*) AS pairs, count(*) FILTER (decided) AS decided FROM {pairs} GROUP BY label"


@dataclass(frozen=True)
class Leak:
    """A leak, and the ids of its profile, context and attribute."""

    row: LeakRow
    profile: int
    context: int
    attribute: int


@dataclass(frozen=True, kw_only=True)
class Overview(Answer):
    """coverage: judged messages over planned ones. n: at which violation is read. curve: the share leaked after so many
    tasks, from 0. labels: pairs by label (None: not labelled), of which people decided so many. leak: None where no
    quoted one is there."""

    coverage: float
    n: int
    violation: Interval
    completeness: Interval
    curve: tuple[float, ...]
    effort: Effort
    attributes: int
    profiles: int
    labels: Mapping[Label | None, int]
    decided: int
    leak: Leak | None


@cached
def overview(flows: Flows, scope: Scope) -> Overview:
    """Return a run at a glance."""
    numbers, bounds, growth = headline(flows, scope, warned=False), intervals(flows, scope), accumulation(flows, scope)
    counts: dict[Label | None, int] = {}
    decided = 0
    for code, pairs, by_people in flows.query(scope, _LABELS).to_numpy().tolist():
        label = LABELS.get(code)
        counts[label] = counts.get(label, 0) + pairs
        decided += by_people
    return Overview(
        simulated=scope.simulated,
        coverage=numbers.coverage,
        n=numbers.n,
        violation=bounds.violation[numbers.n],
        completeness=bounds.completeness,
        curve=tuple(growth.mean[growth.curves.ns.index(numbers.n)].tolist()),
        effort=effort(flows, scope),
        attributes=numbers.attributes,
        profiles=numbers.profiles,
        labels=counts,
        decided=decided,
        leak=_telling(flows, scope),
    )


def _telling(flows: Flows, scope: Scope) -> Leak | None:
    """Return the one of the severest leaks that takes the least explaining: its quote is in the message and has the
    words of the memory, both are short, the memory is of another subject than the task, told often, and to be kept from
    most recipients."""
    severest = examples(flows, [scope]).page({**FULL, Facet.QUOTE: [Quote.GROUNDED]}, 0, SEVEREST)
    if severest.empty:
        return None
    severest = severest.assign(
        told=-severest["private"] * severest["claimed"] / severest["draws"],
        long=severest["statement"].str.len() > LONGEST[0],
        # A general attribute is one of the person's own, such as an illness, whatever happened.
        expected=(severest["domain"] == severest["sphere"]) | (severest["domain"] == "general"),
    ).sort_values(["long", "expected", "told"], kind="stable")
    rows = leak_rows(flows, {scope.run.id: scope}, severest.head(READ))
    # min takes the first of equals.
    at = min(range(len(rows)), key=lambda i: _needs_words(rows[i]))
    ids = (int(severest[name].iloc[at]) for name in ("profile", "context", "attribute"))
    return Leak(rows[at], *ids)


def _needs_words(row: LeakRow) -> bool:
    """Return whether an excerpt is long, or has less than half of the words of the memory."""
    memory = {word.casefold() for word in _WORD.findall(row.statement)}
    quoted = {word.casefold() for piece in row.excerpt if piece.leaked for word in _WORD.findall(piece.text)}
    return sum(len(piece.text) for piece in row.excerpt) > LONGEST[1] or 2 * len(memory & quoted) < len(memory)

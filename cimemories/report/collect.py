"""A whole report: what is asked of the record, in the order in which it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from cimemories import __version__
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.report import methods, record, results
from cimemories.report.document import Basis, Report, Section, basis
from cimemories.text import count, listed

PARTS: tuple[tuple[str, Callable[[Basis], Section | None]], ...] = (
    ("headline numbers", results.headline_section),
    ("comparison", results.comparison),
    ("breakdowns", results.breakdowns),
    ("heatmaps", results.heatmaps),
    ("accumulation", results.accumulated),
    ("examples", results.examples),
    ("labels", results.labels_section),
    ("judges", results.judges_section),
    ("coverage", results.coverage_section),
    ("identifiers", results.identifiers_section),
    ("methods", methods.methods),
    ("manifest", record.manifest),
    ("commands", record.repeat),
    ("dataset card", record.card),
)


def collect(
    flows: Flows,
    scopes: Sequence[Scope],
    rule: IdentifierRule = IdentifierRule.EXACT,
    *,
    made: datetime,
    texts: bool = True,
    progress: Callable[[float, str], object] = lambda share, part: None,
) -> Report:
    """The report on these runs; the first is what the others are held against.

    made: what the date line says. texts: whether messages, memories and names of users are shown. progress: told the
    share that is done and what comes next. The same record gives the same report apart from the date line. Raises
    StoreError without a run, for runs of several datasets, and for one run named twice.
    """
    found = basis(flows, scopes, rule, texts=texts)
    sections = []
    for place, (name, part) in enumerate(PARTS):
        progress(place / len(PARTS), name)
        section = part(found)
        sections += [section] if section is not None else []
    progress(1.0, "done")
    called = list(found.called.values())
    title = f"CIMemories: {called[0]}" if len(called) == 1 else f"CIMemories: {len(called)} runs compared"
    subtitle = f"{listed(called)} on the dataset {scopes[0].dataset_name}"
    return Report(
        title=title,
        subtitle=f"{subtitle}, {count(max(line.numbers.profiles for line in found.lines), 'profile')}",
        made=f"Made on {made.astimezone(UTC):%Y-%m-%d at %H:%M} UTC by CIMemories Studio {__version__}",
        simulated=_simulated(found),
        sections=tuple(sections),
    )


def _simulated(found: Basis) -> str:
    """Which parts of which runs are simulated; empty where none is."""
    lines = [line for line in found.lines if line.simulated]
    if not lines:
        return ""
    parts = listed(list(dict.fromkeys(part for line in lines for part in line.scope.simulated)))
    if len(lines) == len(found.lines):
        return f"Everything here rests on simulated {parts} and says nothing about any real model."
    which = listed([found.called[line.run.id] for line in lines])
    return f"{len(lines)} of {len(found.lines)} runs rest on simulated {parts}, marked so in every table: {which}."

"""A whole report: what is asked of the record, in the order in which it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from cimemories.compare.leaderboard import Line
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope, parts_of
from cimemories.metrics import sentences
from cimemories.metrics.accumulation import effort
from cimemories.metrics.corrections import corrections
from cimemories.report import methods, results
from cimemories.report.document import Basis, Block, Points, Report, Section, Text, basis
from cimemories.text import count, listed, part_names, sentence
from cimemories.version import __version__


def abstract(report_basis: Basis) -> Section:
    """Sum up what was measured, the main numbers with their intervals and a picture, and what may not be concluded."""
    lines, run_names, flows = report_basis.lines, report_basis.run_names, report_basis.flows
    efforts = [effort(flows, line.scope) for line in lines]
    sizes = [(line.numbers.profiles, line.numbers.attributes) for line in lines]
    points = []
    for line, judged in zip(lines, efforts, strict=True):
        bounds, n = report_basis.intervals(line.scope), line.numbers.n
        whose, judged_share = report_basis.marked_names[line.run.id], line.numbers.coverage
        text = sentences.headline(whose, n, bounds.violation[n], bounds.completeness, judged, judged_share)
        points.append(sentence(text))
    parts = _simulated_parts(lines)
    limits = [f"Anything about real models from what is simulated: {parts}."] if parts else []
    limits += sentences.not_concluded(
        max(line.numbers.n for line in lines),
        # Of the whole runs, as the numbers above: lines may be of the flows common to all of them.
        max(report_basis.intervals(line.scope).completeness.users for line in lines),
        runs=list(run_names.values()),
        unaudited=[run_names[line.run.id] for line in lines if not corrections(flows, line.scope, report_basis.rule)],
    )
    if report_basis.board.warnings:
        limits.append("That differences come from the models alone: see what else differs, under Comparison.")
    drawn = results.picture(report_basis)
    blocks: list[Block] = [Text(sentences.ABOUT), *drawn]
    # The picture of one run has its sentence as the title.
    blocks += [Points(tuple(points))] if report_basis.several or not drawn else []
    blocks += [Text(sentences.measured(efforts, sizes)), Text("What may not be concluded:")]
    return Section("abstract", "Abstract", (*blocks, Points(tuple(limits), warning=True)))


PARTS: tuple[tuple[str, Callable[[Basis], Section | None]], ...] = (
    ("abstract", abstract),
    ("headline numbers", results.headline_section),
    ("comparison", results.comparison),
    ("breakdowns", results.breakdowns),
    ("heatmaps", results.heatmaps),
    ("stored, recalled, said", results.recalled),
    ("accumulation", results.accumulated),
    ("examples", results.examples),
    ("labels", results.labels_section),
    ("judges", results.judges_section),
    ("coverage", results.coverage_section),
    ("identifiers", results.identifiers_section),
    ("methods", methods.methods),
    ("manifest", methods.manifest),
    ("commands", methods.repeat),
    ("dataset card", methods.card),
)


def collect(
    flows: Flows,
    scopes: Sequence[Scope],
    rule: IdentifierRule = IdentifierRule.EXACT,
    *,
    now: datetime,
    texts: bool = True,
    progress: Callable[[float, str], object] = lambda share, part: None,
) -> Report:
    """Return the report on these runs; the others are compared with the first.

    now: what the date line says. texts: whether messages, memories and names of users are shown. progress: called
    with the share that is done and the next part. The same record gives the same report apart from the date line.
    Raises StoreError without a run, for runs of several datasets, and for one run named twice.
    """
    report_basis = basis(flows, scopes, rule, texts=texts)
    sections = []
    for index, (name, part) in enumerate(PARTS):
        progress(index / len(PARTS), name)
        section = part(report_basis)
        sections += [section] if section is not None else []
    progress(1.0, "done")
    run_names = list(report_basis.run_names.values())
    title = f"CIMemories: {run_names[0]}" if len(run_names) == 1 else f"CIMemories: {len(run_names)} runs compared"
    subtitle = f"{listed(run_names)} on the dataset {scopes[0].dataset_name}"
    return Report(
        title=title,
        subtitle=f"{subtitle}, {count(max(line.numbers.profiles for line in report_basis.lines), 'profile')}",
        produced=f"Made on {now.astimezone(UTC):%Y-%m-%d at %H:%M} UTC by CIMemories Studio {__version__}",
        simulated=simulated_runs(report_basis),
        sections=tuple(sections),
    )


def _simulated_parts(lines: Sequence[Line]) -> str:
    """'messages and labels': what is simulated of any of these runs; empty where nothing is."""
    return part_names(parts_of(line.simulated for line in lines))


def simulated_runs(report_basis: Basis) -> str:
    """Say which parts of which runs are simulated; '' where none is."""
    lines = [line for line in report_basis.lines if line.simulated]
    if not lines:
        return ""
    by_parts: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        by_parts.setdefault(line.simulated, []).append(report_basis.run_names[line.run.id])
    if len(lines) == len(report_basis.lines) and len(by_parts) == 1:
        return f"Everything here rests on simulated {_simulated_parts(lines)} and says nothing about any real model."
    # Of some runs the labels may be simulated and the messages real, so each kind of run is named for itself.
    which = "; ".join(f"{part_names(parts)} of {listed(whose)}" for parts, whose in by_parts.items())
    return (
        f"{len(lines)} of {len(report_basis.lines)} runs rest on what is simulated, marked so in every table, and say "
        f"nothing about any real model: {which}."
    )

"""Runs that differ in one setting: the paper's Figures 4 and 5 found among runs, and a sweep as a table."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pandas as pd

from cimemories.answer import Column, Listing, Table, attributes
from cimemories.compare.leaderboard import MOST_LINES, Line, leaderboard, records
from cimemories.compare.ranking import common_samples, memory_text
from cimemories.evaluation.compositions import CompositionError, Kind, read_composition
from cimemories.evaluation.costs import Cost, cost_of
from cimemories.evaluation.spec import RunSpec, differences_in_words, names, prompt_level
from cimemories.flows.flows import Flows, shared_flows
from cimemories.flows.scope import Scope, parts_of, resolve_scope
from cimemories.llm.endpoint import SIMULATOR
from cimemories.memory.systems import PREFIX, is_system
from cimemories.metrics import sentences
from cimemories.metrics.headline import Headline, headline
from cimemories.metrics.intervals import Intervals, intervals
from cimemories.metrics.power import POWER, Pilot, Size, pilot, pilot_runs
from cimemories.metrics.recalled.split import recalled_numbers
from cimemories.metrics.uncertainty import UNDEFINED, Interval, holm
from cimemories.metrics.warnings import COVERAGE_WARNING, comparison_warnings
from cimemories.model import WorkStatus
from cimemories.seeds.presets import Preset, load_presets
from cimemories.seeds.prompts import levels
from cimemories.seeds.published import Axis, Trend, load_published
from cimemories.seeds.reading import SeedError
from cimemories.store import datasets, runs, work
from cimemories.store.engine import Store, StoreError
from cimemories.store.runs import RunRow, SweepRow
from cimemories.text import exact_percent, percent

# ---- planned sweeps


PILOTS_TRIED = 5


def first_pilot(flows: Flows, rows: Iterable[RunRow]) -> tuple[RunRow, Pilot] | None:
    """Return the first of these runs that can be a pilot; None where none of the first PILOTS_TRIED can."""
    for row in islice(rows, PILOTS_TRIED):
        # Whether one has profiles enough is known only once its flows are read.
        with suppress(StoreError):
            return row, pilot(flows, resolve_scope(flows.store, row.id))
    return None


def plan_sentence(store: Store, spec: RunSpec) -> str:
    """Say how small a difference two runs of a sweep can show, by an earlier run of the dataset; or that there is none.
    spec: one of its runs, which share their size. Raises StoreError for an unknown dataset."""
    with store.read() as connection:
        data = datasets.by_name(connection, spec.dataset)
    rows = pilot_runs(store, data.id, spec.memory, simulated=spec.base_url == SIMULATOR)
    if (pilot := first_pilot(shared_flows(store), rows)) is None:
        return sentences.NO_PILOT
    row, of_pilot = pilot
    size = Size(spec.profiles or data.profiles, spec.contexts or data.contexts, spec.samples)
    return sentences.plan(of_pilot.row(size), POWER, f"{row.name}{', simulated' if row.simulated else ''}")


# ---- sweep table


WAITING = "waiting"
# Settings in which the cells of a sweep are meant to differ: no warning mentions them.
AXES = (
    "the prompt",
    "the memory",
    "the mitigation",
    "parameter chat_template_kwargs",
    "parameter reasoning_effort",
)


@dataclass(frozen=True)
class Cell:
    """One run of a sweep. status: its own, or 'waiting' before its turn. numbers: None before anything is judged. n:
    samples that its violation is read at: as many as all cells with full coverage have, or fewer without. bounds: the
    intervals of its numbers, None before anything is judged and while the run is at work. more: in what else the cells
    of the sweep differ."""

    run: RunRow
    status: str
    thinking: str | None
    mitigation: str | None
    numbers: Headline | None
    cost: Cost
    n: int
    bounds: Intervals | None = None
    more: tuple[str, ...] = ()

    @property
    def prompt_level(self) -> str | None:
        return prompt_level(self.run)

    @property
    def label(self) -> str:
        """Text that tells it from the other cells."""
        run = self.run
        values = (run.model, run.composition, self.prompt_level, self.mitigation, self.thinking, *self.more)
        return ", ".join(filter(None, values))

    @property
    def violation(self) -> float:
        """Violation at n samples; nan where it is undefined or nothing is judged."""
        return self.numbers.violation[self.n] if self.numbers else math.nan

    @property
    def covered(self) -> bool:
        """True if enough is judged for it to be compared with the other cells."""
        return self.numbers is not None and self.numbers.covered

    @property
    def completeness(self) -> float:
        return self.numbers.completeness if self.numbers else math.nan

    @property
    def coverage(self) -> float:
        """Judged responses over planned ones; 0 before anything is judged."""
        return self.numbers.coverage if self.numbers else 0.0

    @property
    def does_task(self) -> float:
        check = self.numbers.does_task if self.numbers else None
        return math.nan if check is None or check.share is None else check.share

    @property
    def row(self) -> dict[str, Any]:
        """Return the cell as a row of `SweepTable.table`."""
        return {
            "cell": self.run.cell,
            "run": self.run.id,
            "model": self.run.model,
            "memory": self.run.composition,
            "prompt_level": self.prompt_level,
            "mitigation": self.mitigation,
            "thinking": self.thinking,
            "sessions": self.run.manifest.sessions.kept if self.run.manifest.sessions else None,
            "more": ", ".join(self.more),
            "status": self.status,
            "error": self.run.error if self.status not in (WAITING, *work.ACTIVE) else None,
            **attributes(self.run, "simulated samples"),
            **attributes(self, "n violation completeness coverage does_task"),
            "cost": self.cost.amount,
            "cost_text": self.cost.text,
            "currency": self.cost.currency,
            "expected_responses": self.run.expected,
            "judged_responses": self.run.judged,
        }


COLUMNS = {
    "run": Column("text", "Run"),
    "model": Column("text", "Model"),
    "memory": Column("text", "Memory"),
    "prompt_level": Column("text", "Prompt level"),
    "mitigation": Column("text", "Mitigation"),
    "thinking": Column("text", "Thinking"),
    "sessions": Column("text", "Sessions"),
    "more": Column("text", "Further settings", "In which cells of the sweep differ"),
    "status": Column("text", "Status"),
    "n": Column("count", "n"),
    "violation": Column("percent", "Violation@n"),
    "completeness": Column("percent", "Completeness"),
    "coverage": Column("percent", "Coverage"),
    "does_task": Column("percent", "Does the task"),
    "cost_text": Column("text", "Cost"),
}


@dataclass(frozen=True)
class SweepTable:
    """A sweep, its cells in their order, the cost of all of them (a call that several share is paid once), and warnings
    on what the cells differ in beside what the sweep varies."""

    row: SweepRow
    cells: tuple[Cell, ...]
    cost: Cost
    warnings: tuple[str, ...]

    def matrices(self) -> dict[str, dict[str, dict[str, Cell]]]:
        """Return the cells by prompt level and memory, one matrix for each combination of model, mitigation and the
        other settings, by name; levels, memories and matrices in the order of the sweep."""
        by_name: dict[str, dict[str, dict[str, Cell]]] = {}
        for cell in self.cells:
            title = [cell.run.model]
            title += [cell.mitigation] if cell.mitigation not in (None, "none") else []
            title += [f"thinking {cell.thinking}"] if cell.thinking not in (None, "default") else []
            title += cell.more
            matrix = by_name.setdefault(", ".join(title), {})
            matrix.setdefault(cell.prompt_level or "its own", {})[memory_text(cell.run)] = cell
        return by_name

    @property
    def table(self) -> Listing:
        return Listing([cell.row for cell in self.cells], COLUMNS)

    @property
    def done(self) -> int:
        """Cells that have been worked off."""
        return sum(cell.run.status.is_finished for cell in self.cells)

    def as_json(self) -> dict[str, object]:
        return {
            "id": self.row.id,
            "name": self.row.name,
            "status": str(self.row.status),
            "error": self.row.error,
            "cap": self.row.cap,
            "cost": self.cost.amount,
            "paid": self.cost.paid,
            "currency": self.cost.currency,
            "plan": self.row.plan,
            "cells": self.table,
            "warnings": self.warnings,
        }


def sweep_table(store: Store, sweep_id: str) -> SweepTable:
    """Return a sweep as it stands now. Raises StoreError for one that is not there."""
    with store.read() as connection:
        row = runs.sweep_by_id(connection, sweep_id)
        rows = runs.of_sweep(connection, sweep_id)
    flows, cells, scopes = shared_flows(store), list[Cell](), list[Scope]()
    for item in rows:
        numbers = None
        if item.judged:
            scopes.append(resolve_scope(store, item.id))
            numbers = headline(flows, scopes[-1])
        # Paused with every response still owed: its turn has not come yet.
        untouched = set(item.responses) <= {"owed"} and row.status == WorkStatus.PAUSED
        status = WAITING if untouched else str(item.status)
        spec, manifest = RunSpec.of_row(item), item.manifest
        thinking = manifest.thinking if spec.applies("thinking") else None
        mitigation = manifest.mitigation.kind if spec.applies("mitigation") else None
        cost = cost_of(store, item.id)
        cells.append(Cell(item, status, thinking, mitigation, numbers, cost, item.samples))
    covered = [cell.numbers for cell in cells if cell.numbers is not None and cell.numbers.covered]
    common_n = min((common_samples(numbers, None) for numbers in covered), default=None)
    cells = [
        replace(cell, n=_read_at(cell, common_n), more=tuple(filter(None, more)))
        for cell, more in zip(cells, differences_in_words(rows), strict=True)
    ]
    resting = {cell.run.id for cell in cells if cell.run.status not in work.ACTIVE}
    # Not for runs at work: their intervals change with every answer.
    by_run = {scope.run.id: scope for scope in scopes if scope.run.id in resting}
    cells = [
        replace(cell, bounds=_bounds(flows, by_run[cell.run.id], cell.n)) if cell.run.id in by_run else cell
        for cell in cells
    ]
    warnings = comparison_warnings(store, scopes) if len(scopes) > 1 else ()
    # No warning about settings that the sweep varies on purpose.
    remaining = tuple(text for text in warnings if not any(f"differ in {axis}:" in text for axis in AXES))
    return SweepTable(row, tuple(cells), cost_of(store, sweep_id), (*_apart(cells), *remaining))


def _bounds(flows: Flows, scope: Scope, n: int) -> Intervals:
    """Return the intervals of a run's two numbers, its violation read at n samples; cached until the run moves."""
    return flows.cached(("cell intervals", scope.version, n), lambda: intervals(flows, scope, ns=(n,)), most=MOST_LINES)


def _apart(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Warn that cells without full coverage are not to be compared; empty while they are still at work."""
    partial = [cell for cell in cells if cell.numbers and not cell.covered and cell.run.status.is_finished]
    if not partial:
        return ()
    named = ", ".join(f"{cell.run.id} ({percent(cell.coverage)})" for cell in partial)
    return (f"coverage under {exact_percent(COVERAGE_WARNING)}, not to be held against the other cells: {named}",)


def _read_at(cell: Cell, common_n: int | None) -> int:
    if cell.numbers is None:
        return common_n or cell.run.samples
    return min(cell.numbers.n, common_n or cell.run.samples)


# ---- sweep figures: the settings that the paper varies in Figures 4 and 5
#
# Runs belong to one series where they differ in that one thing and in nothing else that numbers depend on. They may be
# the cells of a sweep, or any runs of a dataset.
#
#     Qwen3     1.7B  violation 41.0 %  completeness 33.0 %
#               8B    violation 33.1 %  completeness 48.2 %


WHAT = {Axis.SIZE: "model size", Axis.REASONING: "reasoning", Axis.PROMPT: "prompt level", Axis.MEMORY: "memory"}
THINKS = ("off", "low", "on", "medium", "high")
# Fields of a request on thinking: they are the axis of reasoning, and no difference beside it.
THINKING_FIELDS = ("chat_template_kwargs", "reasoning_effort", "thinking", "enable_thinking")
ADDED: dict[str | None, str] = {
    Kind.NECESSARY: "inappropriate attributes",
    Kind.INAPPROPRIATE: "necessary attributes",
    Kind.RANDOM: "attributes at random",
    Kind.ALL_SHARE: "inappropriate attributes, counted as published",
    Kind.ALL_NOT_SHARE: "necessary attributes, counted as published",
    Kind.IID: "labelled attributes at random, counted as published",
}
POINTS = {
    "series": Column("text", "Series"),
    "at": Column("text", ""),  # what varies
    "violation": Column("percent", "Violation"),
    "completeness": Column("percent", "Completeness"),
    "coverage": Column("percent", "Coverage"),
    "n": Column("number", "n"),
    "run": Column("text", "Run"),
}
OVER_K = {
    "at": Column("text", "Memory"),
    "lost": Column("percent", "Necessary, not recalled", "Necessary attributes that were neither recalled nor said"),
    "profiles": Column("number", "Profiles"),
    "attributes": Column("number", "Attributes"),
    "samples": Column("number", "Samples"),
}
SMALLEST = 0.5  # billions; what is smaller is called by millions, as its makers do
_SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)\s?([bm])(?![a-z0-9])", re.IGNORECASE)
_VARIANT = re.compile(r"(?<![a-z0-9])(instruct|thinking|reasoning|chat|it)(?![a-z0-9])|[-_ ]\d{4}$", re.IGNORECASE)


@dataclass(frozen=True)
class Point:
    """One run of a series. x: parameters in billions, place of the level, or number of attributes; tick: in words."""

    line: Line
    x: float
    tick: str


@dataclass(frozen=True)
class Series:
    """Runs that differ in one thing alone, in its order; at least two."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class SweepFigure:
    """One setting varied. series: the longest first. left_out: runs that cannot be placed, or repeat another one, and
    why."""

    axis: Axis
    series: tuple[Series, ...]
    left_out: tuple[str, ...]

    @property
    def lines(self) -> list[Line]:
        return [point.line for item in self.series for point in item.points]

    @property
    def simulated(self) -> tuple[str, ...]:
        return parts_of(line.simulated for line in self.lines)

    @property
    def trend(self) -> Trend | None:
        """Return the paper's statement on it, in words; it prints no numbers."""
        return load_published().trend(self.axis)

    @property
    def x_title(self) -> str:
        if self.axis == Axis.MEMORY:
            kinds = {_memory(line.run)[0] for line in self.lines} - {Kind.FULL}  # `full` at the end has no number
            if all(is_system(kind or "") for kind in kinds):
                return "k: memories recalled at most"
            return f"{ADDED.get(kinds.pop(), 'attributes') if len(kinds) == 1 else 'attributes'} in memory"
        return "parameters" if self.axis == Axis.SIZE else WHAT[self.axis]

    def title(self) -> str:
        """Say what violation and completeness do from one end of the longest series to the other."""
        if not self.series:
            return f"No two runs differ in {WHAT[self.axis]} alone"
        longest = self.series[0]
        number = f"violation@{longest.points[0].line.n}"
        defined = [
            (name, ends, *(getattr(end.line, measure) for end in ends))
            for name, measure in ((number, "violation"), ("completeness", "completeness"))
            if (ends := _ends(longest, measure)) is not None
        ]
        changes = []
        for (name, ends, before, after), p in zip(
            defined, holm([sentences.apart_p(before, after) for _, _, before, after in defined]), strict=True
        ):
            at = "" if ends[0] is longest.points[0] else f" at {ends[0].tick}"
            changes.append(sentences.moved(name, (before, after), p, at))
        ticks = longest.points[0].tick, longest.points[-1].tick
        return sentences.sweep(longest.name if len(self.series) > 1 else "", ticks, changes)

    def subtitle(self) -> str:
        """Count runs, series and profiles, in words."""
        if not self.series:
            return ""
        people = sorted({len(line.counted.profiles) for line in self.lines})
        among = f"{people[0]}" if len(people) == 1 else f"{people[0]} to {people[-1]}"
        return f"{len(self.lines)} runs in {len(self.series)} series, {among} profiles; bars are 95 % intervals"

    def table(self) -> Table:
        """Return one row a point: series, position, and the run's line of the leaderboard."""
        rows = [
            {"series": item.name, "axis": str(self.axis), "x": point.x, "at": point.tick} | record
            for item in self.series
            for point, record in zip(item.points, records([point.line for point in item.points])[0], strict=True)
        ]
        return Table(pd.DataFrame(rows), POINTS | {"at": Column("text", WHAT[self.axis].capitalize())})


def sweep_figures(lines: Sequence[Line]) -> dict[Axis, SweepFigure]:
    """Return a figure for each axis, those without any series among them. lines: runs of one dataset, read at one way
    of counting."""
    return {axis: _figure(axis, lines) for axis in Axis}


def trade_off(lines: Sequence[Line]) -> SweepFigure:
    """Return memory systems that were run at several k: a series each, at its end the run with everything in its
    prompt, where one differs in nothing else. lines: as in `sweep_figures`."""
    figure = _figure(Axis.MEMORY, lines)
    full = {_beside(Axis.MEMORY, line): line for line in lines if line.run.composition == Kind.FULL and line.covered}
    series = []
    for item in figure.series:
        first = item.points[0].line
        if is_system(first.run.composition):
            end = full.get(_beside(Axis.MEMORY, first))
            series.append(replace(item, points=(*item.points, *([Point(end, math.nan, "full")] if end else []))))
    return SweepFigure(Axis.MEMORY, tuple(series), figure.left_out)


@dataclass(frozen=True)
class OverK:
    """The memory systems of a sweep over k, points evenly spaced. retrieval_loss: by run, the share of necessary
    attributes that were neither recalled nor said; runs with everything in the prompt have none."""

    figure: SweepFigure
    retrieval_loss: dict[str, Interval]

    def table(self) -> Table:
        """Return the figure's rows with what was lost in retrieval; nan where nothing chose what to recall."""
        frame = self.figure.table().frame
        runs: list[str] = frame["run"].tolist() if len(frame) else []
        lost = pd.DataFrame([self.retrieval_loss.get(run, UNDEFINED).columns("lost") for run in runs])
        return Table(pd.concat([frame, lost], axis=1), POINTS | OVER_K)


def over_k(flows: Flows, table: SweepTable) -> OverK | None:
    """Return a sweep's memory systems over k, of the runs that have ended; None for a sweep without any system that has
    a k. A figure without series means that fewer than two of them can be compared."""
    if not any(is_system(cell.run.composition) and _memory(cell.run)[0] for cell in table.cells):
        return None
    rows = [cell.run for cell in table.cells if cell.numbers and cell.run.status not in work.ACTIVE]
    scopes = [resolve_scope(flows.store, row.id) for row in rows]
    if not scopes:
        return OverK(SweepFigure(Axis.MEMORY, (), ()), {})

    def read() -> OverK:
        figure = trade_off(leaderboard(flows, scopes, warned=False).lines)
        lost = {}
        for line in figure.lines:
            recalled = recalled_numbers(flows, line.scope, line.n)
            split = recalled.completeness if recalled else None
            if split is not None:
                ends = (split.intervals or {}).get("not_recalled")
                lost[line.run.id] = ends or Interval(split.not_recalled, math.nan, math.nan, line.numbers.profiles)
        series = tuple(
            replace(item, points=tuple(replace(point, x=float(at)) for at, point in enumerate(item.points)))
            for item in figure.series
        )
        return OverK(replace(figure, series=series), lost)

    return flows.cached(("sweep over k", *(scope.version for scope in scopes)), read, most=MOST_LINES)


def size_of(run: RunRow) -> float | None:
    """Return billions of parameters by the model's name, else by the preset it was run with; None if neither tells. Of
    a mixture of experts that gives two sizes it is the whole one."""
    preset = _preset_of(run)
    for text in (run.model, preset.name if preset else "", preset.title if preset else ""):
        if (size := _SIZE.search(text)) is not None:
            return float(size[1]) / (1000 if size[2].lower() == "m" else 1)
    return None


def _preset_of(run: RunRow) -> Preset | None:
    """Return the preset that a run was run with, else the one of its model's name; None if there is neither."""
    key = run.manifest.request.preset if run.manifest.request else None
    try:
        presets = load_presets()
    except SeedError:
        return None
    named = [item for item in presets if item.key == key] or [item for item in presets if item.name == run.model]
    return named[0] if named else None


def reasons(run: RunRow) -> str | None:
    """Return how the model reasoned before it answered: off, low, on, medium or high; None where nothing tells. What
    was asked for goes before what the name says, and that before the default of the preset."""
    sent = run.manifest.thinking
    if sent in THINKS:
        return sent
    name_parts = {word.lower() for word in re.split(r"[^A-Za-z]+", run.model)}
    if name_parts & {"thinking", "reasoning"}:
        return "on"
    if "instruct" in name_parts:
        return "off"
    preset = _preset_of(run)
    return preset.thinking.default if preset is not None and preset.thinking is not None else None


def _figure(axis: Axis, lines: Sequence[Line]) -> SweepFigure:
    grouped: dict[Hashable, list[Point]] = {}
    left_out, run_names = [], names([line.run for line in lines])
    for line in lines:
        if not line.covered:
            left_out.append(f"{run_names[line.run.id]}: {line.outside or line.warning}")
            continue
        position = _place(axis, line.run)
        if position is None:
            left_out.append(f"{run_names[line.run.id]}: {_unknown(axis, line.run)}")
            continue
        # A series of memories: only the number may differ, not the kind.
        kind = _memory(line.run)[0] if axis == Axis.MEMORY else None
        grouped.setdefault((kind, *_beside(axis, line)), []).append(Point(line, *position))
    series_points = []
    for key, points in grouped.items():
        # Sorted by age, so of runs at one place the newest stays.
        newest = {point.x: point for point in sorted(points, key=lambda p: p.line.run.created)}
        if len(newest) < 2:
            continue
        kept = {point.line.run.id for point in newest.values()}
        left_out += [f"{run_names[p.line.run.id]}: a newer run repeats it" for p in points if p.line.run.id not in kept]
        series_points.append((key, sorted(newest.values(), key=lambda point: point.x)))
    series_points.sort(key=lambda item: -len(item[1]))
    series_names = _series_names(axis, [points[0].line for _, points in series_points])
    series = tuple(Series(name, tuple(points)) for name, (_, points) in zip(series_names, series_points, strict=True))
    return SweepFigure(axis, series, tuple(left_out))


def _place(axis: Axis, run: RunRow) -> tuple[float, str] | None:
    """Return the position of a run on an axis, and its text; None where it has no place there."""
    match axis:
        case Axis.SIZE:
            size = size_of(run)
            return None if size is None else (size, f"{size:g}B" if size >= SMALLEST else f"{1000 * size:g}M")
        case Axis.REASONING:
            level = reasons(run)
            return None if level is None else (float(THINKS.index(level)), level)
        case Axis.PROMPT:
            known_levels = list(levels("respond"))
            level = prompt_level(run)
            return (float(known_levels.index(level)), level) if level in known_levels else None
        case Axis.MEMORY:
            kind, number = _memory(run)
            if kind in (None, Kind.FULL):
                return None
            return float(number), f"k={number}" if is_system(str(kind)) else f"{number}"


def _memory(run: RunRow) -> tuple[str | None, int]:
    """Split a run's memory into its kind and its number, of a memory system its k. The kind is None for a system
    without a k, and for a memory that cannot be read."""
    if is_system(run.composition):
        # By its text: the package that it needs may not be installed where it is only looked at.
        name, _, given = run.composition.removeprefix(PREFIX).partition(":")
        options = dict(option.partition("=")[::2] for option in given.split(",") if option)
        k = options.pop("k", "")
        rest = ",".join(f"{option}={value}" for option, value in options.items())
        return (f"{PREFIX}{name}" + f":{rest}" * bool(rest), int(k)) if k.isdecimal() else (None, 0)
    try:
        memory = read_composition(run.composition)
    except CompositionError:
        return None, 0
    return memory.kind, memory.number


def _unknown(axis: Axis, run: RunRow) -> str:
    level = prompt_level(run)
    return {
        Axis.SIZE: "its size is not known",
        Axis.REASONING: "whether it reasons is not known",
        Axis.PROMPT: f"'{level}' is no level of the prompts" if level else "it has no prompt level",
        Axis.MEMORY: f"its memory ({run.composition}) is not made up by number",
    }[axis]


def _beside(axis: Axis, line: Line) -> tuple[Hashable, ...]:
    """Return the settings and the way of counting of a run, without what the axis varies."""
    run = line.run
    parameters = {k: v for k, v in run.manifest.parameters.items() if k not in THINKING_FIELDS}
    settings: dict[Axis, Hashable] = {
        Axis.SIZE: None,
        Axis.REASONING: run.manifest.thinking,
        Axis.PROMPT: prompt_level(run),
        Axis.MEMORY: memory_text(run),
    }
    settings[axis] = None
    # One n, profiles and contexts: a series read at several would rise and fall with these.
    counted = (line.scope.judge_text, line.scope.grounded, line.n, line.places, run.simulated)
    sessions = run.manifest.sessions
    memory_order = run.manifest.memory.order, run.manifest.memory.seed, sessions and json.dumps(sessions.recorded)
    sent = (run.manifest.mitigation.kind, json.dumps(parameters, sort_keys=True))
    return (_stem(axis, run.model), *settings.values(), *memory_order, *sent, *counted)


def _stem(axis: Axis, model: str) -> str:
    """Return a model's name without what the axis varies in it."""
    # Without the publisher before the slash.
    bare = model.rsplit("/", 1)[-1]
    if axis == Axis.SIZE:
        # A22B in a name are the active parameters of a mixture: they vary with the size.
        bare = re.sub(r"-?A\d+(\.\d+)?B\b", "", _SIZE.sub("", bare))
    elif axis == Axis.REASONING:
        bare = _VARIANT.sub("", _VARIANT.sub("", bare))
    return re.sub(r"[-_ ]{2,}", "-", bare).strip("-_ ") or model


def _series_names(axis: Axis, firsts: Sequence[Line]) -> list[str]:
    """Name each series: its model, and beside it whatever tells it from the others."""
    kinds: list[Callable[[Line], str]] = [
        lambda line: (prompt_level(line.run) or "") if axis != Axis.PROMPT else "",
        lambda line: str(_memory(line.run)[0]) if axis == Axis.MEMORY else memory_text(line.run),
        lambda line: line.run.manifest.mitigation.kind,
        lambda line: f"thinking {line.run.manifest.thinking}" if axis != Axis.REASONING else "",
        lambda line: line.scope.judge_text,
    ]
    series_names = [_stem(axis, line.run.model) for line in firsts]
    for describe in kinds:
        if len(set(series_names)) == len(series_names):
            break
        if len({describe(line) for line in firsts}) > 1:
            series_names = [f"{name}, {describe(line)}" for name, line in zip(series_names, firsts, strict=True)]
    return series_names


def _ends(series: Series, measure: str) -> tuple[Point, Point] | None:
    """Return the first and the last point that define a number; None with fewer than two."""
    defined = [point for point in series.points if not math.isnan(getattr(point.line, measure).value)]
    return (defined[0], defined[-1]) if len(defined) > 1 else None

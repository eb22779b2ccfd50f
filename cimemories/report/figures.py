"""The figures of a report: the charts of the app, drawn as SVG (charts/svg.py). Titles give the takeaway."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd
import plotly.graph_objects as go

from cimemories.answers.heatmap import Heatmap, View, drawing
from cimemories.charts import bars, comparison, svg
from cimemories.charts.bars import Bounded, HasBounds, IntervalSeries, interval_rows
from cimemories.charts.lines import Line as Curve
from cimemories.charts.lines import line_figure
from cimemories.charts.recalled import recalled_bars
from cimemories.charts.theme import COMPLETENESS, GREY, VIOLATION
from cimemories.compare.difference import Difference
from cimemories.compare.leaderboard import Leaderboard, Line
from cimemories.metrics import sentences
from cimemories.metrics.accumulation import Effort
from cimemories.metrics.heatmap import MEASURES, Order
from cimemories.metrics.intervals import Intervals
from cimemories.metrics.recalled.split import RecalledNumbers
from cimemories.metrics.separation import Standing
from cimemories.metrics.uncertainty import Interval
from cimemories.model import Label
from cimemories.report.document import Figure
from cimemories.text import Parts, count

CURVES_HEIGHT = 420
SHARE_AXIS = {"range": [-0.01, 1.01], "tickformat": ".0%"}


def _figure(fig: go.Figure, name: str, title: str, subtitle: str, alt: str, *, simulated: Parts) -> Figure:
    svg_text = svg.draw(fig, name, title=title, alt=alt, simulated=simulated)
    return Figure(name, title, subtitle, alt, svg_text, fig, simulated)


def _drawing(drawing: comparison.Drawing | None, name: str, *, simulated: Parts) -> Figure | None:
    if drawing is None:
        return None
    return _figure(drawing.fig, name, drawing.title, drawing.subtitle, drawing.alt, simulated=simulated)


def heatmap(result: Heatmap, name: str) -> Figure:
    """Draw a heatmap with a row of any pair, the highest violation first."""
    pairs = result.grid.violation_pairs + result.grid.completeness_pairs
    shown = drawing(result, View(rows=Order.VIOLATION, most=int((pairs.sum(axis=1) > 0).sum())))
    title = f"{name}: {'; '.join(result.worst(measure) for measure in MEASURES)}"
    alt = "Two grids, pairs leaked left and completeness right; the same numbers are in the table."
    return _figure(shown.figure, f"figure-heatmap-{result.run}", title, shown.subtitle, alt, simulated=result.simulated)


def curves(name: str, lines: Sequence[Curve], title: str, subtitle: str, *, simulated: Parts) -> Figure | None:
    """Lines over the number of tasks. None where no line has a value."""
    shown = [line for line in lines if len(line.x) > 1 and line.end]
    if not shown:
        return None
    fig = line_figure(
        shown, title="", subtitle="", x_title="tasks done, all orders equally likely", height=CURVES_HEIGHT
    )
    fig.layout.yaxis.title = "Share of attributes revealed inappropriately"
    most = max(len(line.x) for line in shown) - 1
    alt = f"Lines that rise over {most} tasks, with what they end at: {'; '.join(line.end for line in shown)}."
    return _figure(fig, name, title, subtitle, alt, simulated=simulated)


def violations(line: Line, bounds: Intervals, name: str, judged: Effort) -> Figure | None:
    """Violation@n for every n that can be read, completeness and the balanced score of one run, with intervals. judged:
    what is judged of it. None where nothing is defined."""
    numbers = line.numbers
    violation_at = {n: interval for n, interval in bounds.violation.items() if numbers.reads(n)}
    balanced = bounds.balanced_at[numbers.n]
    rows: dict[str, Interval] = {f"Violation@{n}": interval for n, interval in violation_at.items()}
    rows |= {"Completeness": bounds.completeness, "Balanced score": balanced}
    if all(math.isnan(interval.value) for interval in rows.values()):
        return None
    # Each series has an entry in every row; undefined ones are left out, so that a row has its own mark alone.
    undefined: list[HasBounds] = [Bounded(math.nan)] * len(violation_at)
    series = [
        IntervalSeries("Violation", [*violation_at.values(), Bounded(math.nan), Bounded(math.nan)], VIOLATION, "x"),
        IntervalSeries("Completeness", [*undefined, bounds.completeness], COMPLETENESS, "circle"),
        IntervalSeries("Balanced score", [*undefined, Bounded(math.nan), balanced], GREY, "diamond"),
    ]
    names = [f"{label}  {sentences.bounds_text(interval)}" for label, interval in rows.items()]
    fig = interval_rows(names, series, xaxis=SHARE_AXIS, row_height=26, apart=0, legend=False)
    title = sentences.headline(name, numbers.n, violation_at[numbers.n], bounds.completeness, judged, numbers.coverage)
    retaining = sum(person.retained > 0 for person in numbers.per_profile)
    subtitle = (
        f"{count(numbers.attributes, 'attribute')}, {count(numbers.flows, 'inappropriate flow')}, "
        f"{count(numbers.retained, 'retained context')} of {count(retaining, 'profile')} with a judged message; "
        "bars are 95 % intervals"
    )
    alt = f"One row a number: {'; '.join(' '.join(name.split()) for name in names)}."
    return _figure(fig, f"figure-headline-{line.run.id}", title, subtitle, alt, simulated=line.simulated)


def interval_parts(numbers: Mapping[str, Interval], line: Line, name: str) -> Figure | None:
    """What the intervals of a run's numbers are made of. None where nothing varies."""
    fig = bars.interval_parts(numbers)
    if fig is None:
        return None
    alt = f"One bar a number: {', '.join(numbers)}; the same is in the table."
    title, subtitle = f"{name}: what the 95 % intervals are made of", "shares of the variance of each number"
    return _figure(fig, f"figure-parts-{line.run.id}", title, subtitle, alt, simulated=line.simulated)


def groups(
    frame: pd.DataFrame, most: tuple[str, Standing] | None, what: str, n: int, name: str, line: Line
) -> Figure | None:
    """Draw violation and completeness by group (answers.metrics.by_group), the highest violation first. most: the group
    of the highest, and how it stands to the others. None where no group has either."""
    shown = frame.dropna(subset=["violation", "completeness"], how="all")
    shown = shown.sort_values("violation", ascending=False, kind="stable")
    if shown.empty:
        return None
    names = [str(group) for group in shown["group"]]
    looks = {"violation": (f"Violation@{n}", VIOLATION, "x"), "completeness": ("Completeness", COMPLETENESS, "circle")}
    series = []
    for number, (title, colour, mark) in looks.items():
        sides = (shown[f"{number}{end}"].tolist() for end in ("", "_low", "_high"))
        series.append(IntervalSeries(title, [Bounded(*row) for row in zip(*sides, strict=True)], colour, mark))
    fig = interval_rows(names, series, xaxis=SHARE_AXIS, row_height=26)
    title = sentences.groups(name, what, n, most)
    subtitle = (
        f"{count(len(shown), what)}, {int(shown['inappropriate_flows'].sum()):,} inappropriate and "
        f"{int(shown['necessary_flows'].sum()):,} necessary flows; bars are 95 % intervals of each {what} alone"
    )
    alt = f"One row a {what}, violation as a cross and completeness as a circle; the same is in the table."
    return _figure(fig, f"figure-{what}-{line.run.id}", title, subtitle, alt, simulated=line.simulated)


def recalled(
    frame: pd.DataFrame, label: Label, numbers: RecalledNumbers, name: str, run_id: str, *, simulated: Parts
) -> Figure | None:
    """What became of the judged samples of a label, a bar a domain (groups.recalled_by). None without any."""
    if frame.empty:
        return None
    of = numbers.by_label[str(label)]
    title = f"{name}, {label} attributes: {sentences.outcomes(of)}"
    subtitle = f"{count(of.draws, 'judged sample')} of {count(of.flows, 'flow')}, by domain"
    alt = "One bar a domain: said, recalled and not said, not recalled; the same is in the table."
    fig = recalled_bars(frame, label, title="", subtitle="")
    return _figure(fig, f"figure-recalled-{label}-{run_id}", title, subtitle, alt, simulated=simulated)


def differences(difference: Difference) -> Figure | None:
    """By domain, second minus first, in percentage points. None where no domain has a difference."""
    name = f"figure-difference-{difference.first.run.id}-{difference.second.run.id}"
    return _drawing(comparison.domains(difference), name, simulated=difference.simulated)


def plane(board: Leaderboard, names_by_run: Mapping[str, str]) -> Figure | None:
    """Runs by violation and completeness. None with fewer than two runs that have both numbers."""
    if sum(not math.isnan(line.balanced.value) for line in board.lines) < 2:
        return None
    drawing = comparison.plane(board, names_by_run)
    return _drawing(drawing, "figure-plane", simulated=board.simulated)

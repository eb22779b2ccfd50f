"""The figures of a report, those of the app without their titles. A report has the takeaway as text above."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from cimemories.answers.heatmap import Heatmap, View, drawing
from cimemories.charts.bars import Bounded, IntervalSeries, interval_rows
from cimemories.charts.comparison import Drawing
from cimemories.charts.lines import Line as Curve
from cimemories.charts.lines import line_figure
from cimemories.charts.recalled import recalled_bars
from cimemories.charts.theme import COMPLETENESS, GREY, VIOLATION
from cimemories.compare.leaderboard import Leaderboard, Line
from cimemories.metrics import sentences
from cimemories.metrics.accumulation import Effort
from cimemories.metrics.heatmap import MEASURES, Order
from cimemories.metrics.intervals import Intervals
from cimemories.metrics.recalled.split import RecalledNumbers
from cimemories.metrics.separation import Standing
from cimemories.metrics.uncertainty import UNDEFINED
from cimemories.model import Label
from cimemories.report.document import Figure
from cimemories.text import Parts, count

CURVES_HEIGHT = 420
SHARE_AXIS = {"range": [-0.01, 1.01], "tickformat": ".0%"}


def figures_of(drawing: Drawing | None, name: str, *, simulated: Parts) -> list[Figure]:
    """Return a drawing of the app as a figure of a report; nothing where there is none."""
    if drawing is None:
        return []
    return [Figure(name, drawing.title, drawing.subtitle, drawing.alt, drawing.fig, simulated)]


def heatmap(result: Heatmap, name: str) -> Figure:
    """Draw a heatmap with a row of any pair, the highest violation first."""
    pairs = result.grid.violation_pairs + result.grid.completeness_pairs
    shown = drawing(result, View(rows=Order.VIOLATION, most=int((pairs.sum(axis=1) > 0).sum())))
    title = f"{name}: {'; '.join(result.worst(measure) for measure in MEASURES)}"
    alt = "Two grids, pairs leaked left and completeness right; the same numbers are in the table."
    return Figure(f"figure-heatmap-{result.run}", title, shown.subtitle, alt, shown.figure, result.simulated)


def curves(lines: Sequence[Curve], title: str, subtitle: str, *, simulated: Parts) -> list[Figure]:
    """Draw lines over the number of tasks; nothing where no line has a value."""
    shown = [line for line in lines if len(line.x) > 1 and line.end]
    if not shown:
        return []
    fig = line_figure(
        shown, title="", subtitle="", x_title="tasks done, all orders equally likely", height=CURVES_HEIGHT
    )
    fig.layout.yaxis.title = "Share of attributes revealed inappropriately"
    most = max(len(line.x) for line in shown) - 1
    alt = f"Lines that rise over {most} tasks, with what they end at: {'; '.join(line.end for line in shown)}."
    return [Figure("figure-accumulation", title, subtitle, alt, fig, simulated)]


def runs(board: Leaderboard, run_names: Mapping[str, str], title: str) -> list[Figure]:
    """Draw violation and completeness of each run, the best first; nothing where none is defined."""
    lines = [line for line in board.lines if not math.isnan(line.violation.value + line.completeness.value)]
    if not lines:
        return []
    series = [
        IntervalSeries(board.violation_name, [line.violation for line in lines], VIOLATION, "x"),
        IntervalSeries("Completeness", [line.completeness for line in lines], COMPLETENESS, "circle"),
    ]
    names = [run_names[line.run.id] for line in lines]
    fig = interval_rows(names, series, xaxis=SHARE_AXIS, row_height=26)
    subtitle = "Leaks as crosses, less is better; what is needed and told as circles, more is better; 95 % intervals"
    alt = f"One row a run: {', '.join(names)}; the same is in the table."
    return [Figure("figure-runs", title, subtitle, alt, fig, board.simulated)]


def violations(line: Line, bounds: Intervals, name: str, judged: Effort) -> list[Figure]:
    """Draw Violation@n for every n that can be read, completeness and the balanced score of one run, with intervals;
    nothing where none is defined. judged: what is judged of it."""
    numbers = line.numbers
    rows = {f"Violation@{n}": (interval, "x") for n, interval in bounds.violation.items() if numbers.reads(n)}
    rows |= {
        "Completeness": (bounds.completeness, "circle"),
        "Balanced score": (bounds.balanced_at[numbers.n], "diamond"),
    }
    if all(math.isnan(interval.value) for interval, _ in rows.values()):
        return []
    # Each series has an entry in every row; undefined ones are left out, so that a row has its own mark alone.
    series = [
        IntervalSeries(title, [item if mark == symbol else UNDEFINED for item, mark in rows.values()], colour, symbol)
        for title, colour, symbol in (
            ("Violation", VIOLATION, "x"),
            ("Completeness", COMPLETENESS, "circle"),
            ("Balanced score", GREY, "diamond"),
        )
    ]
    names = [f"{label}  {sentences.bounds_text(interval)}" for label, (interval, _) in rows.items()]
    fig = interval_rows(names, series, xaxis=SHARE_AXIS, row_height=26, apart=0, legend=False)
    shares = bounds.violation[numbers.n], bounds.completeness
    title = sentences.headline(name, numbers.n, *shares, judged, numbers.coverage)
    retaining = sum(person.retained > 0 for person in numbers.per_profile)
    subtitle = (
        f"{count(numbers.attributes, 'attribute')}, {count(numbers.flows, 'inappropriate flow')}, "
        f"{count(numbers.retained, 'retained context')} of {count(retaining, 'profile')} with a judged message; "
        "bars are 95 % intervals"
    )
    alt = f"One row a number: {'; '.join(' '.join(name.split()) for name in names)}."
    return [Figure(f"figure-headline-{line.run.id}", title, subtitle, alt, fig, line.simulated)]


def groups(
    frame: pd.DataFrame, most: tuple[str, Standing] | None, what: str, n: int, name: str, line: Line
) -> list[Figure]:
    """Draw violation and completeness by group (answers.metrics.by_group), the highest violation first; nothing where
    no group has either. most: the group of the highest, and how it stands to the others."""
    shown = frame.dropna(subset=["violation", "completeness"], how="all")
    shown = shown.sort_values("violation", ascending=False, kind="stable")
    if shown.empty:
        return []
    series = []
    for number, title, colour, mark in (
        ("violation", f"Violation@{n}", VIOLATION, "x"),
        ("completeness", "Completeness", COMPLETENESS, "circle"),
    ):
        ends = shown[[number, f"{number}_low", f"{number}_high"]].itertuples(index=False)
        series.append(IntervalSeries(title, [Bounded(*row) for row in ends], colour, mark))
    fig = interval_rows([str(group) for group in shown["group"]], series, xaxis=SHARE_AXIS, row_height=26)
    subtitle = (
        f"{count(len(shown), what)}, {int(shown['inappropriate_flows'].sum()):,} inappropriate and "
        f"{int(shown['necessary_flows'].sum()):,} necessary flows; bars are 95 % intervals of each {what} alone"
    )
    alt = f"One row a {what}, violation as a cross and completeness as a circle; the same is in the table."
    title = sentences.groups(name, what, n, most)
    return [Figure(f"figure-{what}-{line.run.id}", title, subtitle, alt, fig, line.simulated)]


def recalled(frame: pd.DataFrame, label: Label, numbers: RecalledNumbers, name: str, line: Line) -> Figure:
    """Draw what became of the judged samples of a label, a bar a domain (groups.recalled_by)."""
    of = numbers.by_label[str(label)]
    title = f"{name}, {label} attributes: {sentences.outcomes(of)}"
    subtitle = f"{count(of.draws, 'judged sample')} of {count(of.flows, 'flow')}, by domain"
    alt = "One bar a domain: said, recalled and not said, not recalled; the same is in the table."
    fig = recalled_bars(frame, label, title="", subtitle="")
    return Figure(f"figure-recalled-{label}-{line.run.id}", title, subtitle, alt, fig, line.simulated)

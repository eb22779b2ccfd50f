"""The figures of a comparison: sweeps, differences by domain, the plane of runs, and what the headline covers.

A `Drawing` holds a figure with its title, its counts, what can be seen in words, and the table with the same numbers,
so that a page, a report and an image tell the same. Violation is vermillion with a cross and completeness green with a
circle; runs are blue and told apart by symbol and name.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pandas as pd

from cimemories.answer import Column, Table
from cimemories.charts.bars import Bounded, IntervalSeries, error_bars, interval_rows
from cimemories.charts.theme import (
    COMPLETENESS,
    DASHES,
    GREY,
    GRID,
    LEGEND_BELOW,
    RUN,
    RUN_COLOURS,
    SYMBOLS,
    VIOLATION,
    none_for_nan,
    scatter,
    upright,
)
from cimemories.compare.difference import Difference
from cimemories.compare.leaderboard import Leaderboard, Line, bounds_text, records
from cimemories.compare.ranking import front
from cimemories.compare.sweeps import OverK, SweepFigure
from cimemories.metrics import sentences
from cimemories.metrics.uncertainty import Interval
from cimemories.seeds.published import Axis, PublishedMeasure
from cimemories.text import abbreviated, count, html_escaped, percent, shortened, simulated_text

if TYPE_CHECKING:
    import plotly.graph_objects as go


MARGIN = {"l": 64, "r": 16, "t": 64, "b": 52}
LONGEST_NAME, PANELS = 38, 6


@dataclass(frozen=True)
class Drawing:
    """title: the takeaway; subtitle: the counts behind it; alt: what can be seen, for those who do not see it."""

    fig: go.Figure
    title: str
    subtitle: str
    alt: str
    table: Table


def sweep(figure: SweepFigure, columns: int = 3) -> Drawing | None:
    """Violation and completeness along one axis, a panel a series in so many columns, intervals as bars. None without a
    series."""
    from plotly.subplots import make_subplots

    shown = figure.series[:PANELS]
    if not shown:
        return None
    columns = min(len(shown), columns)
    rows = math.ceil(len(shown) / columns)
    titles = [html_escaped(item.name, LONGEST_NAME) for item in shown] if len(shown) > 1 else None
    fig = make_subplots(rows, columns, shared_yaxes=True, subplot_titles=titles, horizontal_spacing=0.04)
    for number, item in enumerate(shown):
        points = item.points
        for measure, title, colour, symbol, dash in (
            (PublishedMeasure.VIOLATION, f"Violation@{points[0].line.n}", VIOLATION, "x", "solid"),
            (PublishedMeasure.COMPLETENESS, "Completeness", COMPLETENESS, "circle", "dot"),
        ):
            intervals = [getattr(point.line, measure) for point in points]
            hover = [
                f"<b>{html.escape(point.line.run.model)}, {html.escape(point.tick)}</b><br>{measure}: "
                f"{percent(interval.value)} {bounds_text(interval)}"
                for point, interval in zip(points, intervals, strict=True)
            ]
            _panel(fig, number, columns, [point.x for point in points], intervals, hover, title, colour, symbol, dash)
        # Sizes of models lie orders of magnitude apart; ticks are at the sizes themselves.
        scale = {"type": "log"} if figure.axis == Axis.SIZE else {}
        ticks = {"tickvals": [point.x for point in points], "ticktext": [html.escape(point.tick) for point in points]}
        place = {"row": number // columns + 1, "col": number % columns + 1}
        fig.update_xaxes(tickmode="array", gridcolor=GRID, zeroline=False, **ticks, **place, **scale)
    fig.update_xaxes(title=html.escape(figure.x_title), row=rows)
    fig.update_annotations(font={"size": 13})
    # Above 1, so that a mark at 100 % stays whole.
    fig.update_yaxes(range=[0, 1.02], tickformat=".0%", gridcolor=GRID, zeroline=False)
    fig.update_layout(
        height=330 * rows + MARGIN["t"] + 70,
        margin={**MARGIN, "t": MARGIN["t"] + (30 if titles else 0), "b": 84},
        legend=dict(LEGEND_BELOW),
    )
    alt = f"{figure.title()}. Violation as crosses on a solid line, completeness as circles on a dotted one."
    more = f"; {len(figure.series) - PANELS} more series in the table" if len(figure.series) > PANELS else ""
    return Drawing(fig, figure.title(), figure.subtitle() + more, alt, figure.table())


def _panel(
    fig: go.Figure,
    number: int,
    columns: int,
    xs: Sequence[float],
    intervals: Sequence[Interval],
    hover: Sequence[str],
    title: str,
    colour: str,
    symbol: str,
    dash: str,
) -> None:
    """Add a number, with its intervals, to a panel of so many columns."""
    fig.add_trace(
        scatter(
            xs,
            none_for_nan([interval.value for interval in intervals]),
            "lines+markers",
            hover,
            error_y=error_bars(intervals, colour),
            name=title,
            line={"color": colour, "width": 2, "dash": dash},
            marker={"symbol": symbol, "size": 10},
            # One entry for all panels: a click on it hides the number in each of them.
            legendgroup=colour,
            showlegend=number == 0,
        ),
        row=number // columns + 1,
        col=number % columns + 1,
    )


def over_k(over: OverK, columns: int = 3) -> Drawing | None:
    """Violation and completeness of a sweep's memory systems over k (compare/sweeps.over_k), and what completeness
    was lost in retrieval; intervals as bars. None without a series."""
    drawing = sweep(over.figure, columns)
    if drawing is None:
        return None
    columns = min(len(over.figure.series), columns)
    for number, item in enumerate(over.figure.series[:PANELS]):
        points = [point for point in item.points if point.line.run.id in over.retrieval_loss]
        intervals = [over.retrieval_loss[point.line.run.id] for point in points]
        hover = [
            f"<b>{html.escape(point.tick)}</b><br>necessary, neither recalled nor said: {percent(interval.value)} "
            f"{bounds_text(interval)}"
            for point, interval in zip(points, intervals, strict=True)
        ]
        name, xs = "Necessary, not recalled", [point.x for point in points]
        _panel(drawing.fig, number, columns, xs, intervals, hover, name, GREY, "diamond", "dash")
    alt = f"{drawing.alt} Completeness lost in retrieval as diamonds on a dashed line."
    return replace(drawing, alt=alt, table=over.table())


def trade_off(figure: SweepFigure) -> Drawing | None:
    """Completeness against violation along each series (compare/sweeps.trade_off), intervals as crosses, points named.
    None without a series."""
    import plotly.graph_objects as go

    if not figure.series:
        return None
    traces, names = [], abbreviated([item.name for item in figure.series], LONGEST_NAME)
    for at, item in enumerate(figure.series):
        colour, lines = RUN_COLOURS[at % len(RUN_COLOURS)], [point.line for point in item.points]
        hover = [
            f"<b>{html.escape(item.name)}, {html.escape(point.tick)}</b><br>violation@{point.line.n}: "
            f"{percent(point.line.violation.value)} {bounds_text(point.line.violation)}<br>completeness: "
            f"{percent(point.line.completeness.value)} {bounds_text(point.line.completeness)}"
            for point in item.points
        ]
        traces.append(
            scatter(
                none_for_nan([line.violation.value for line in lines]),
                none_for_nan([line.completeness.value for line in lines]),
                "lines+markers+text",
                hover,
                error_x=error_bars([line.violation for line in lines], colour),
                error_y=error_bars([line.completeness for line in lines], colour),
                name=names[at],
                text=[html.escape(point.tick) for point in item.points],
                textposition="bottom right",
                line={"color": colour, "width": 2, "dash": DASHES[at % len(DASHES)]},
                marker={"symbol": SYMBOLS[at % len(SYMBOLS)], "size": 10},
            )
        )
    axis = {"range": [FIRST, LAST], "tickformat": ".0%", "gridcolor": GRID, "zeroline": False}
    n = figure.lines[0].n
    layout = {
        "xaxis": {"title": {"text": f"Violation@{n}: less is better"}, **axis},
        "yaxis": {"title": {"text": "Completeness: more is better"}, **axis},
        "height": PLANE_HEIGHT,
        "margin": {**MARGIN, "b": 84},
        "legend": dict(LEGEND_BELOW),
        "showlegend": len(traces) > 1,
        "hovermode": "closest",
    }
    alt = f"{figure.title()}. Each point is a run at one k, by violation to the right and completeness up."
    return Drawing(go.Figure(traces, layout), figure.title(), figure.subtitle(), alt, figure.table())


def domains(difference: Difference) -> Drawing | None:
    """Draw the differences by domain in percentage points, second minus first, with intervals. None where no domain has
    any."""
    first, second = difference.names
    # Domains with neither number have no row; those with one of them keep it.
    frame = difference.domains.frame.dropna(subset=["violation", "completeness"], how="all").sort_values("violation")
    if frame.empty:
        return None
    rows = [domain.replace("_", " ") for domain in frame["domain"]]
    series = []
    for measure, unit, colour, symbol in (
        ("violation", "attributes", VIOLATION, "x"),
        ("completeness", "necessary_flows", COMPLETENESS, "circle"),
    ):
        columns = (frame[name] for name in (measure, f"{measure}_low", f"{measure}_high"))
        intervals = [Bounded(*ends) for ends in zip(*columns, strict=True)]
        hover = [
            f"<b>{html.escape(row)}</b><br>{measure}: {100 * item.value:+.1f} points "
            f"[{100 * item.low:+.1f}, {100 * item.high:+.1f}], {n:,} {unit.replace('_', ' ')}, "
            f"{sentences.p_text(p)} (Holm)"
            for row, item, n, p in zip(rows, intervals, frame[unit], frame[f"{measure}_p"], strict=True)
        ]
        name = f"Violation@{difference.n}" if measure == "violation" else "Completeness"
        series.append(IntervalSeries(name, intervals, colour, symbol, hover))
    xaxis = {"title": {"text": "percentage points; right of 0: more than the reference"}}
    fig = interval_rows(rows, series, xaxis=xaxis, scale=100)
    fig.add_shape(upright(0, GREY))
    title = sentences.domains(frame, first, second)
    people = count(difference.profiles, "common profile")
    subtitle = (
        f"{second} minus {first}: {count(int(frame['attributes'].sum()), 'attribute')}, "
        f"{count(int(frame['necessary_flows'].sum()), 'necessary flow')}, {people}; bars are 95 % intervals "
        "of each domain alone, the title is from tests over all"
    )
    alt = f"{title}. One row a domain, violation and completeness apart."
    return Drawing(fig, title, subtitle, alt, replace(difference.domains, frame=frame))


# ---- the plane of runs


Trace = dict[str, object]
PLANE = {
    "model": Column("text", "Model"),
    "violation": Column("percent", "Violation"),
    "completeness": Column("percent", "Completeness"),
    "balanced": Column("percent", "Balanced"),
    "on_front": Column("text", "On the front"),
    "not_ranked": Column("text", "Not ranked because"),
    "coverage": Column("percent", "Coverage"),
    "run": Column("text", "Run"),
}
PLANE_HEIGHT = 480.0  # pixels
MOST_MISSING = 8  # runs without a mark that are named
FIRST, LAST = -0.07, 1.07  # ends of both axes: room for marks at 0 and 1


def plane(board: Leaderboard, names_by_run: Mapping[str, str] | None = None, *, below: bool = False) -> Drawing | None:
    """Draw all runs in the plane of violation (to the right) and completeness (up), intervals as crosses, the front of
    those that no other beats on both sides, and the constant strategies. Runs are numbered, and the legend names them.
    None where no run has both numbers. below: the legend stands below, for a narrow screen."""
    import plotly.graph_objects as go

    # A run that is read at fewer samples than the others has no place among them: the subtitle names it.
    lines = [item for item in board.lines if not math.isnan(item.balanced.value) and item.n == (board.n or item.n)]
    if not lines:
        return None
    by_run = names_by_run or board.names
    run_names = [by_run[line.run.id] for line in lines]
    points = [(line.violation.value, line.completeness.value) for line in lines]
    # Over all ranked points at once: whether one is on the front depends on every other.
    ranked = [i for i, line in enumerate(lines) if not line.outside]
    on_front = [False] * len(lines)
    for i, on in zip(ranked, front([points[i] for i in ranked]), strict=True):
        on_front[i] = on
    # The edge of what runs reach: from each best run to the right until the next one is more complete.
    stairs = sorted(point for point, on in zip(points, on_front, strict=True) if on)
    dashed = {"color": GREY, "width": 1.5, "dash": "dash", "shape": "hv"}
    traces = [scatter([v for v, _ in stairs], [c for _, c in stairs], "lines", line=dashed, showlegend=False)]
    traces += [
        _run(line, i, name, on_front=on)
        for i, (line, name, on) in enumerate(zip(lines, run_names, on_front, strict=True))
    ]
    axis = {"range": [FIRST, LAST], "tickformat": ".0%", "gridcolor": GRID, "zeroline": False}
    look = {"itemclick": False, "itemdoubleclick": False, "font": {"size": 11}, "tracegroupgap": 0}
    # All at once: Plotly looks through a figure again for everything that is added to it.
    fig = go.Figure(
        [*traces, *_references(board, lines)],
        {
            "xaxis": {"title": {"text": f"{board.violation_name}: less is better"}, **axis},
            "yaxis": {"title": {"text": "Completeness: more is better"}, **axis},
            "height": PLANE_HEIGHT + MARGIN["t"] + MARGIN["b"],
            "margin": MARGIN,
            "legend": look | (dict(LEGEND_BELOW) if below else {}),
            "hovermode": "closest",
        },
    )
    title = sentences.plane([name for name, on in zip(run_names, on_front, strict=True) if on], len(ranked))
    positions = "; ".join(
        f"{name} at {percent(violation)} and {percent(completeness)}"
        for name, (violation, completeness) in zip(run_names, points, strict=True)
    )
    frame = pd.DataFrame(records(lines)[0]).assign(on_front=on_front)
    alt = f"Runs by violation and completeness: {positions}."
    return Drawing(fig, title, _plane_subtitle(board, lines, by_run), alt, Table(frame, PLANE))


def _run(line: Line, index: int, name: str, *, on_front: bool) -> Trace:
    remarks = ["on the front"] * on_front + [simulated_text(line.simulated)] * bool(line.simulated)
    remarks += [f"not ranked: {line.outside}"] if line.outside else []
    hover = [
        f"<b>{html.escape(name)}</b>",
        f"violation@{line.n}: {percent(line.violation.value)} {bounds_text(line.violation)}",
        f"completeness: {percent(line.completeness.value)} {bounds_text(line.completeness)}",
        f"balanced score: {percent(line.balanced.value)} {bounds_text(line.balanced)}",
        *(html.escape(text) for text in remarks),
    ]
    symbol = SYMBOLS[index % len(SYMBOLS)]
    # An open mark is a run that is not ranked: a part is missing, or its judge or memory is another.
    marker = {"symbol": f"{symbol}-open" if line.outside else symbol, "size": 11, "color": RUN}
    return scatter(
        [line.violation.value],
        [line.completeness.value],
        "markers+text",
        ["<br>".join(hover)],
        error_x=error_bars([line.violation], RUN),
        error_y=error_bars([line.completeness], RUN),
        name=html_escaped(f"{index + 1}  {name}", LONGEST_NAME),
        text=[str(index + 1)],
        textposition="top right",
        marker={**marker, "line": {"width": 2 if line.outside else 0, "color": RUN}},
    )


def _references(board: Leaderboard, lines: Sequence[Line]) -> list[Trace]:
    """Constant strategies and what the paper states, in grey; those at one point share a mark. They are
    numbered after the runs."""
    references = [(item.violation, item.completeness, item.name, "asterisk-open") for item in board.constants]
    for line in lines:
        violation, completeness = line.stated(PublishedMeasure.VIOLATION), line.stated(PublishedMeasure.COMPLETENESS)
        if line.published is not None and violation is not None and completeness is not None:
            name = f"{line.published.name}, published"
            references.append((violation.value, completeness.value, name, "diamond-open"))
    by_point: dict[tuple[float, float, str], list[str]] = {}
    # Two runs of one model share their published numbers, and marks a tenth of a point apart would lie on each other.
    for x, y, name, symbol in dict.fromkeys(references):
        if not (math.isnan(x) or math.isnan(y)):
            by_point.setdefault((round(x, 3), round(y, 3), symbol), []).append(name)
    return [
        scatter(
            [x],
            [y],
            "markers+text",
            [f"<b>{html.escape(', '.join(who))}</b><br>violation {percent(x)}, completeness {percent(y)}"],
            name=html_escaped(f"{number}  {', '.join(who)}", LONGEST_NAME),
            text=[str(number)],
            textposition="top right",
            marker={"symbol": symbol, "size": 11, "color": GREY, "line": {"width": 2, "color": GREY}},
        )
        for number, ((x, y, symbol), who) in enumerate(by_point.items(), len(lines) + 1)
    ]


def _plane_subtitle(board: Leaderboard, lines: Sequence[Line], names_by_run: Mapping[str, str]) -> str:
    front = "the Pareto front dashed (no other run beats it in both numbers)"
    parts = [f"{len(lines)} runs with 95 % intervals as crosses, {front}, constant strategies in grey"]
    if unranked := [line for line in lines if line.outside]:
        partial = sum(not line.covered for line in unranked)
        others = len(unranked) - partial
        reasons = [f"coverage below 99 % ({partial})"] * bool(partial) + [f"another judge or memory ({others})"] * bool(
            others
        )
        parts.append(f"open marks are outside the front: {', '.join(reasons)}")
    in_plot = {line.run.id for line in lines}
    missing = [line for line in board.lines if line.run.id not in in_plot and not math.isnan(line.balanced.value)]
    if missing:
        named = ", ".join(shortened(names_by_run[line.run.id], LONGEST_NAME) for line in missing[:MOST_MISSING])
        parts.append(f"not drawn, since missing messages allow only a smaller n: {named}")
    if without := len(board.lines) - len(lines) - len(missing):
        parts.append(f"{without} without numbers")
    return "; ".join(parts)

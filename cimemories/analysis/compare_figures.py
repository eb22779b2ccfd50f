"""The pictures of a comparison as Plotly figures: a sweep, and differences by domain; the plane has its own module.

A figure has no title and no background of its own; a `Drawing` holds the words beside it, so that a page, a report and
an image say the same. Violation is vermillion with a cross and completeness green with a circle, as their labels are
everywhere; runs are blue and told apart by shape and name.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from cimemories.analysis.difference import Difference
from cimemories.analysis.intervals import Interval
from cimemories.analysis.leaderboard_text import bounds, percent
from cimemories.analysis.sweep_figures import SweepFigure
from cimemories.seeds.published import Axis, Measure

if TYPE_CHECKING:
    import plotly.graph_objects as go

RUN, VIOLATION, COMPLETENESS, QUIET = "#0072B2", "#D55E00", "#009E73", "#7F868C"
GRID = "rgba(128,128,128,.22)"
MARGIN = {"l": 64, "r": 16, "t": 64, "b": 52}
LONGEST, PANELS = 38, 6


@dataclass(frozen=True)
class Drawing:
    """A figure with its words and its table. alt: what can be seen, for those who do not see it."""

    fig: go.Figure
    title: str
    subtitle: str
    alt: str
    frame: pd.DataFrame


def sweep(figure: SweepFigure) -> Drawing | None:
    """Violation and completeness along one axis, a panel a series, intervals as bars. None without a series."""
    from plotly.subplots import make_subplots

    shown = figure.series[:PANELS]
    if not shown:
        return None
    columns = min(len(shown), 3)
    rows = math.ceil(len(shown) / columns)
    titles = [html.escape(short(item.name)) for item in shown] if len(shown) > 1 else None
    fig = make_subplots(rows, columns, shared_yaxes=True, subplot_titles=titles, horizontal_spacing=0.04)
    for number, item in enumerate(shown):
        row, column = number // columns + 1, number % columns + 1
        xs = [point.x for point in item.points]
        for measure, colour, symbol, dash in (
            (Measure.VIOLATION, VIOLATION, "x", "solid"),
            (Measure.COMPLETENESS, COMPLETENESS, "circle", "dot"),
        ):
            found = [getattr(point.line, measure) for point in item.points]
            fig.add_scatter(
                x=xs,
                y=[None if math.isnan(one.value) else one.value for one in found],
                error_y=bars(found, colour),
                mode="lines+markers",
                name=f"Violation@{item.points[0].line.n}" if measure == Measure.VIOLATION else "Completeness",
                line={"color": colour, "width": 2, "dash": dash},
                marker={"symbol": symbol, "size": 10},
                hovertext=[
                    f"<b>{html.escape(point.line.run.model)}, {html.escape(point.tick)}</b><br>{measure}: "
                    f"{percent(one.value)} {bounds(one)}"
                    for point, one in zip(item.points, found, strict=True)
                ],
                hoverinfo="text",
                legendgroup=str(measure),
                showlegend=number == 0,
                row=row,
                col=column,
            )
        scale = {"type": "log"} if figure.axis == Axis.SIZE else {}
        ticks = [html.escape(point.tick) for point in item.points]
        fig.update_xaxes(
            tickmode="array", tickvals=xs, ticktext=ticks, gridcolor=GRID, zeroline=False, row=row, col=column, **scale
        )
    fig.update_xaxes(title=html.escape(figure.x_title), row=rows)
    fig.update_annotations(font={"size": 13})
    fig.update_yaxes(range=[0, 1.02], tickformat=".0%", gridcolor=GRID, zeroline=False)
    fig.update_layout(
        height=330 * rows + MARGIN["t"] + 70,
        margin={**MARGIN, "t": MARGIN["t"] + (30 if titles else 0), "b": 84},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
    )
    alt = f"{figure.title()}. Violation as crosses on a solid line, completeness as circles on a dotted one."
    more = f"; {len(figure.series) - PANELS} more series in the table" if len(figure.series) > PANELS else ""
    return Drawing(fig, figure.title(), figure.subtitle() + more, alt, figure.frame())


def domains(found: Difference, first: str, second: str) -> Drawing | None:
    """The differences by domain, second minus first, with intervals. None where no domain has any."""
    import plotly.graph_objects as go

    frame = found.domains.dropna(subset=["violation", "completeness"], how="all").sort_values("violation")
    if frame.empty:
        return None
    rows = list(frame["domain"])
    fig = go.Figure()
    fig.add_vline(x=0, line={"color": QUIET, "width": 1.5})
    for measure, colour, symbol, offset in (
        ("violation", VIOLATION, "x", -0.16),
        ("completeness", COMPLETENESS, "circle", 0.16),
    ):
        unit = "attributes" if measure == "violation" else "necessary_flows"
        fig.add_scatter(
            x=[None if math.isnan(v) else 100 * v for v in frame[measure]],
            y=[place_ + offset for place_ in range(len(rows))],
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [100 * (high - v) for v, high in zip(frame[measure], frame[f"{measure}_high"], strict=True)],
                "arrayminus": [100 * (v - low) for v, low in zip(frame[measure], frame[f"{measure}_low"], strict=True)],
                "color": colour,
                "thickness": 1.6,
                "width": 4,
            },
            mode="markers",
            marker={"symbol": symbol, "size": 9, "color": colour},
            name=f"Violation@{found.paired.n}" if measure == "violation" else "Completeness",
            hovertext=[
                f"<b>{html.escape(_title(row))}</b><br>{measure}: {_points(v)} points "
                f"[{_points(low)}, {_points(high)}], {n:,} {unit.replace('_', ' ')}"
                for row, v, low, high, n in zip(
                    rows,
                    frame[measure],
                    frame[f"{measure}_low"],
                    frame[f"{measure}_high"],
                    frame[unit],
                    strict=True,
                )
            ],
            hoverinfo="text",
        )
    fig.update_yaxes(
        tickmode="array",
        tickvals=list(range(len(rows))),
        ticktext=[html.escape(_title(row)) for row in rows],
        range=[len(rows) - 0.5, -0.5],
        showgrid=False,
        zeroline=False,
    )
    fig.update_xaxes(title="percentage points; right of 0: more than the reference", gridcolor=GRID, zeroline=False)
    fig.update_layout(
        height=36 * len(rows) + MARGIN["t"] + 100,
        margin={**MARGIN, "l": 120, "b": 96},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
    )
    title = _domains_title(frame, first, second)
    people = "1 common profile" if found.paired.profiles == 1 else f"{found.paired.profiles} common profiles"
    subtitle = (
        f"{second} minus {first}: {int(frame['attributes'].sum()):,} attributes, "
        f"{int(frame['necessary_flows'].sum()):,} necessary flows, {people}; bars are 95 % intervals"
    )
    return Drawing(fig, title, subtitle, f"{title}. One row a domain, violation and completeness apart.", frame)


def bars(found: Sequence[Interval], colour: str) -> dict[str, object]:
    """Error bars from values to the bounds of their intervals; none where there is none."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [0 if math.isnan(one.high) else one.high - one.value for one in found],
        "arrayminus": [0 if math.isnan(one.low) else one.value - one.low for one in found],
        "color": colour,
        "thickness": 1.4,
        "width": 4,
    }


def short(name: str) -> str:
    """A name in one line of LONGEST characters."""
    line = " ".join(name.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _domains_title(frame: pd.DataFrame, first: str, second: str) -> str:
    wide = frame["violation_low"] < frame["violation_high"]  # one attribute alone has an interval without width
    less, more = int((wide & (frame["violation_high"] < 0)).sum()), int((wide & (frame["violation_low"] > 0)).sum())
    both = int(frame["violation"].notna().sum())
    if not less and not more:
        return f"In none of {both} domains does {second} leak clearly more or less than {first}"
    if less and more:
        return f"{second} leaks clearly less than {first} in {less} of {both} domains, and clearly more in {more}"
    return f"{second} leaks clearly {'less' if less else 'more'} than {first} in {less or more} of {both} domains"


def _title(domain: str) -> str:
    return domain.replace("_", " ")


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"

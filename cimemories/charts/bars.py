"""Bars: parts of a whole by row, counts by row, shares before and after; and numbers of rows with their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from cimemories.charts.theme import (
    AMBIGUOUS,
    COLOURS,
    GLYPHS,
    GREY,
    GRID,
    HEAD,
    LEGEND_BELOW,
    MARGINS_FIT,
    RUN,
    layout,
    named_rows,
    none_for_nan,
    row_bars,
    scatter,
)
from cimemories.model import Label
from cimemories.text import count, html_escaped, percent

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from cimemories.metrics.uncertainty import Interval

BAR_HEIGHT = 28
NAME_HEIGHT = 22  # pixels of a row's name above its marks
WIDE_ENOUGH = 0.045  # of a bar, for glyph and share to stand in it
TRIED = "#56B4E9"


@dataclass(frozen=True)
class BarPart:
    """One part of a whole in stacked bars: the column with its counts, its name and glyph, and its colour. `pattern`
    is a Plotly shape ('/', 'x', '.'), for parts whose colour alone would not tell them apart."""

    column: str
    name: str
    glyph: str
    colour: str
    pattern: str = ""


# Ambiguous between the two others, so that what survives lies at either end.
LABEL_PARTS = tuple(
    BarPart(str(label), str(label), GLYPHS[label], COLOURS[label])
    for label in (Label.NECESSARY, Label.AMBIGUOUS, Label.INAPPROPRIATE)
)


def share_bars(
    frame: pd.DataFrame, parts: Sequence[BarPart], *, name: str, title: str = "", subtitle: str = "", unit: str = ""
) -> go.Figure:
    """Draw one bar a row of `frame`, from 0 to 100 % of the row, first row on top; the parts are columns of counts, or
    of amounts without a unit. A part that is wide enough shows its glyph and share; the hover gives the count. A row
    without counts is an empty bar."""
    totals = frame[[part.column for part in parts]].sum(axis=1)
    traces: list[dict[str, Any]] = []
    for part in parts:
        if not frame[part.column].any():
            continue  # nothing to see, and nothing to explain in the legend
        shares = [n / total if total else 0.0 for n, total in zip(frame[part.column], totals, strict=True)]
        pattern = {"shape": part.pattern, "fgcolor": "rgba(17,17,17,.55)", "size": 5, "fillmode": "overlay"}
        hover = [
            f"<b>{html_escaped(row, 90)}</b><br>{html_escaped(part.name)}: {percent(share)}"
            + (f", {count(n)} of {count(total)} {html_escaped(unit)}" if unit else "")
            for row, share, n, total in zip(frame[name], shares, frame[part.column], totals, strict=True)
        ]
        traces.append(
            {
                **row_bars(shares, hover),
                "name": part.name,
                "marker": {"color": part.colour, **({"pattern": pattern} if part.pattern else {})},
                "text": [f"{part.glyph} {100 * s:.0f} %".strip() if s >= WIDE_ENOUGH else "" for s in shares],
                "textposition": "inside",
                "insidetextanchor": "middle",
                # Plotly would turn the text of a narrow part upright.
                "textangle": 0,
                "textfont": {"color": "#fff" if part.colour == RUN else "#111", "size": 11},
            }
        )
    xaxis = {"range": [0, 1], "tickformat": ".0%", "showgrid": False, "zeroline": False}
    more = {"barmode": "stack", "bargap": 0.22, "xaxis": xaxis}
    return _rows_figure(traces, [str(row) for row in frame[name]], title, subtitle, more)


INTERVAL_PARTS = (
    BarPart("users", "users", "U", RUN),
    BarPart("contexts", "contexts", "C", "#56B4E9"),
    BarPart("samples", "samples", "S", GREY),
    BarPart("labels", "labels", "L", AMBIGUOUS),
    BarPart("judge", "judge", "J", "#CC79A7"),
)


def interval_parts(numbers: Mapping[str, Interval]) -> go.Figure | None:
    """Draw what the interval of each number is made of, one bar a number: shares of its variance. Return None where
    nothing varies in any of them."""
    import pandas as pd

    shares = {name: item.parts.shares() for name, item in numbers.items() if item.parts and item.part_widths()}
    if not shares:
        return None
    rows = [{"name": name} | {k: 0.0 if math.isnan(v) else v for k, v in of.items()} for name, of in shares.items()]
    # With few profiles these count as given, and what is left is chance among their attributes.
    few = any(numbers[name].speaks_for != "users" for name in shares)
    first = replace(INTERVAL_PARTS[0], name="attributes", glyph="A") if few else INTERVAL_PARTS[0]
    fig = share_bars(pd.DataFrame(rows), (first, *INTERVAL_PARTS[1:]), name="name")
    # Without a title there is nothing above the bars.
    return fig.update_layout(margin_t=8, height=fig.layout.height - HEAD + 8)


def count_bars(
    frame: pd.DataFrame, *, name: str, column: str, colour: str, title: str, subtitle: str, unit: str
) -> go.Figure:
    """Draw one bar a row of `frame`, as long as its count, with the count and its share of all beside it; first row on
    top."""
    total = int(frame[column].sum())
    beside = [f"{count(n)} ({percent(n / total)})" if total else "" for n in frame[column]]
    hover = [
        f"<b>{html_escaped(row, 90)}</b><br>{text} {html_escaped(unit)}"
        for row, text in zip(frame[name], beside, strict=True)
    ]
    more = {"marker": {"color": colour}, "text": beside, "textposition": "outside", "cliponaxis": False}
    trace = row_bars(frame[column].tolist(), hover, showlegend=False, **more)
    most = float(frame[column].max()) if len(frame) else 0.0
    # A quarter beyond the longest bar is room for its text; counts that are all 0 still need an axis with a length.
    xaxis = {"range": [0, (most or 1.0) * 1.25], "showgrid": False, "zeroline": False, "showticklabels": False}
    names = [str(row) for row in frame[name]]
    return _rows_figure([trace], names, title, subtitle, {"bargap": 0.3, "xaxis": xaxis}, legend=False)


def before_after(
    frame: pd.DataFrame, *, name: str, before: str, after: str, title: str, subtitle: str, pairs: str, unit: str
) -> go.Figure:
    """Two shares a row of `frame`, joined by a line: an open circle for the current rule, a filled diamond for the one
    that is tried. before, after: columns with shares, 0 to 1; pairs: the column with what they are shares of."""
    rows = list(range(len(frame)))
    xs: list[float | None] = []
    ys: list[float | None] = []
    for row, old, new in zip(rows, frame[before], frame[after], strict=True):
        # None ends a line, so that all lines are one trace.
        xs += [old, new, None]
        ys += [row, row, None]
    line = {"color": "rgba(128,128,128,.75)", "width": 3}
    traces = [scatter(xs, ys, "lines", line=line, showlegend=False)]
    for column, rule_name, marker in (
        (before, "current rule", {"symbol": "circle-open", "size": 11, "color": GREY, "line": {"width": 2.5}}),
        (after, "rule tried", {"symbol": "diamond", "size": 11, "color": TRIED}),
    ):
        hover = [
            f"<b>{html_escaped(row, 90)}</b><br>{rule_name}: {percent(share)} of {count(n)} {html_escaped(unit)}"
            for row, share, n in zip(frame[name], frame[column], frame[pairs], strict=True)
        ]
        traces.append(scatter(frame[column].tolist(), rows, "markers", hover, name=rule_name, marker=marker))
    # Beyond 0 and 1, where marks would be cut in half.
    xaxis = {"range": [-0.02, 1.02], "tickformat": ".0%", "zeroline": False, "gridcolor": GRID}
    return _rows_figure(traces, [str(row) for row in frame[name]], title, subtitle, {"xaxis": xaxis})


class HasBounds(Protocol):
    """A number with its interval; nan where undefined."""

    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


@dataclass(frozen=True)
class Bounded:
    """A number with its bounds alone, without the further fields of Interval; nan where undefined."""

    value: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class IntervalSeries:
    """One number of every row. hover: what the pointer reads at each; symbol: a Plotly one."""

    name: str
    intervals: Sequence[HasBounds]
    colour: str
    symbol: str
    hover: Sequence[str] = ()


def interval_rows(
    names: Sequence[str],
    series: Sequence[IntervalSeries],
    *,
    xaxis: dict[str, Any],
    title: str = "",
    subtitle: str = "",
    scale: float = 1.0,
    row_height: int = 36,
    apart: float = 0.32,
    legend: bool = True,
) -> go.Figure:
    """Draw one row a name, in it one mark a series with its interval as a bar, the marks of a row `apart` by so much of
    its height. Undefined numbers are left out. scale: what values are multiplied by (100 for percentage points)."""
    traces: list[dict[str, Any]] = []
    for position, item in enumerate(series):
        defined = [row for row, interval in enumerate(item.intervals) if not math.isnan(interval.value)]
        shown = [item.intervals[row] for row in defined]
        traces.append(
            scatter(
                none_for_nan([scale * interval.value for interval in shown]),
                # Centred on the row, whatever the number of series.
                [row + apart * (position - (len(series) - 1) / 2) for row in defined],
                "markers",
                [item.hover[row] for row in defined] if item.hover else None,
                error_x=error_bars(shown, item.colour, scale),
                name=item.name,
                marker={"symbol": item.symbol, "size": 10, "color": item.colour, "line": {"width": 2}},
            )
        )
    more = {"xaxis": {"gridcolor": GRID, "zeroline": False} | xaxis}
    return _rows_figure(traces, names, title, subtitle, more, legend=legend, row_height=row_height)


def names_above(fig: go.Figure) -> go.Figure:
    """A figure of named rows for a narrow screen: each name stands above its marks, which get the whole width."""
    import plotly.graph_objects as go

    ticks = fig.layout.yaxis.ticktext
    notes = [
        {"text": text, "x": 0, "xref": "paper", "xanchor": "left", "y": row - 0.5, "yanchor": "top", "showarrow": False}
        for row, text in enumerate(ticks)
    ]
    more = NAME_HEIGHT * len(ticks)
    # A copy: what is exported keeps its names at the left.
    return go.Figure(fig).update_layout(
        annotations=notes,
        yaxis={"showticklabels": False},
        margin={"l": 14, "r": 14},
        height=fig.layout.height + more,
    )


def error_bars(intervals: Sequence[HasBounds], colour: str, scale: float = 1.0) -> dict[str, Any]:
    """Error bars from values to the bounds of their intervals; of no length where a bound is undefined."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [0 if math.isnan(item.high) else scale * (item.high - item.value) for item in intervals],
        "arrayminus": [0 if math.isnan(item.low) else scale * (item.value - item.low) for item in intervals],
        "color": colour,
        "thickness": 1.4,
        "width": 4,
    }


def _rows_figure(
    traces: list[dict[str, Any]],
    names: Sequence[str],
    title: str,
    subtitle: str,
    more: dict[str, Any],
    *,
    legend: bool = True,
    row_height: int = BAR_HEIGHT,
) -> go.Figure:
    """Named rows from top to bottom, the legend under the plot, margins that hold the names. more: of the layout."""
    import plotly.graph_objects as go

    yaxis, left = named_rows(names)
    # Under the plot: tick labels, the title of the axis where there is one, the legend.
    labels = 12 if more["xaxis"].get("showticklabels") is False else 28
    below = labels + (34 if legend else 0) + (34 if "title" in more["xaxis"] else 0)
    return go.Figure(
        data=traces,
        layout={
            **layout(title=title, subtitle=subtitle),
            "yaxis": yaxis,
            "margin": {"l": left, "r": 30, "t": HEAD, "b": below},
            "meta": {**MARGINS_FIT, "yaxis": list(names)},
            "height": row_height * len(names) + HEAD + below,
            "legend": dict(LEGEND_BELOW),
            "showlegend": legend,
            "dragmode": False,
            **more,
        },
    )

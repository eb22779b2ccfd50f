"""Charts: the app's colours, a layout that serves both themes, and the heatmap whose cells can be clicked.

Plotly reads some HTML in hover texts, tick labels and titles, so every text that is data is escaped here. A click on a
go.Heatmap raises no event in Streamlit; an invisible scatter point in the middle of each cell does.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from cimemories.model import Label
from cimemories.ui.style import AMBIGUOUS, INAPPROPRIATE, MODEL, NECESSARY, SIMULATED
from cimemories.ui.tables import count as as_count
from cimemories.ui.tables import percent

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

__all__ = ["COLOURS", "MODEL", "SIMULATED", "escaped", "figure_layout", "heatmap", "show"]

COLOURS = {Label.NECESSARY: NECESSARY, Label.INAPPROPRIATE: INAPPROPRIATE, Label.AMBIGUOUS: AMBIGUOUS}
CONFIG = {"displaylogo": False, "doubleClick": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}
ROW_HEIGHT = 34
LONGEST_TICK = 34
MINIMUM_ROOM = 12
PLOT_WIDTH, HATCH = 900, 11  # pixels: about as wide as the plot is, and between two lines of a hatched cell
LEAST_SCALE = 0.01  # where all is 0 the scale still begins at 0 and ends above it
CHARACTER_WIDTH = 6.2  # pixels, of a tick label at Streamlit's size
PLOT_CHARACTERS = 130  # about as many stand side by side under a chart on the narrowest screen we serve


def escaped(text: object, limit: int | None = None) -> str:
    """Text for a hover box, tick label or title: none of it is read as HTML."""
    line = " ".join(str(text).split())
    if limit is not None and len(line) > limit:
        line = line[: limit - 1] + "…"
    return html.escape(line)


def figure_layout(fig: go.Figure, *, title: str = "", subtitle: str = "") -> go.Figure:
    """No background and no font colour of its own: Streamlit's theme gives both."""
    fig.update_layout(
        title={"text": escaped(title), "subtitle": {"text": escaped(subtitle)}, "x": 0, "xanchor": "left"},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 8, "r": 8, "t": 64 if title and subtitle else 44 if title else 8, "b": 8},
        hoverlabel={"align": "left"},
    )
    return fig


def show(fig: go.Figure, *, key: str, alt: str) -> None:
    """Draw a figure that only shows; `alt` says in words what can be seen."""
    st.plotly_chart(fig, key=key, alt=alt, config=CONFIG)


def heatmap(
    frame: pd.DataFrame,
    *,
    x: str,
    y: str,
    value: str,
    count: str,
    title: str,
    key: str,
    selected: tuple[Any, Any] | None = None,
    subtitle: str = "",
    x_names: Mapping[Any, str] | None = None,
    y_names: Mapping[Any, str] | None = None,
    unit: str = "flows",
    maximum: float | None = 1.0,
    alt: str = "",
) -> tuple[Any, Any] | None:
    """Shares by two things, in cividis; one row of `frame` a cell, rows and columns in the order of first appearance.

    value: a share 0..1, or nan where there is none; such a cell, and one that has no row, is hatched grey, never 0.
    count: what the share rests on. Names are what is shown in place of ids. `maximum` None ends the scale at the
    highest value. Returns the (x, y) ids of the cell clicked in this run, else `selected`: mirror it into the URL.
    """
    columns, rows = list(dict.fromkeys(frame[x])), list(dict.fromkeys(frame[y]))
    chosen = _clicked(key, columns, rows) or selected
    fig = _heatmap_figure(frame, columns, rows, (x, y, value, count), x_names or {}, y_names or {}, unit, maximum)
    if chosen is not None and chosen[0] in columns and chosen[1] in rows:
        _outline(fig, columns.index(chosen[0]), rows.index(chosen[1]))
    figure_layout(fig, title=title, subtitle=subtitle)
    margin = {"t": 64 if title and subtitle else 44, "r": 8} | _tick_room(fig)
    fig.update_layout(
        margin=margin,
        height=ROW_HEIGHT * len(rows) + margin["b"] + 70,
        dragmode=False,
        hovermode="closest",
        hoverdistance=300,
    )
    words = alt or f"Heatmap of {title}: {len(rows)} rows by {len(columns)} columns. The same numbers are in the table."
    st.plotly_chart(fig, key=key, on_select="rerun", selection_mode="points", alt=words, config=CONFIG)
    return chosen


def _clicked(key: str, columns: list[Any], rows: list[Any]) -> tuple[Any, Any] | None:
    """The cell clicked since the last run: the widget reports an old click on and on, which must not beat the URL."""
    points = ((st.session_state.get(key) or {}).get("selection") or {}).get("points") or []
    cell = None
    if points:
        data = points[0].get("customdata")
        position = list(data.values()) if isinstance(data, dict) else data
        cell = (int(position[0]), int(position[1]))
    fresh = cell != st.session_state.get(f"{key}.seen")
    st.session_state[f"{key}.seen"] = cell
    if not fresh or cell is None or cell[0] >= len(columns) or cell[1] >= len(rows):
        return None
    return columns[cell[0]], rows[cell[1]]


def _heatmap_figure(
    frame: pd.DataFrame,
    columns: list[Any],
    rows: list[Any],
    names: tuple[str, str, str, str],
    x_names: Mapping[Any, str],
    y_names: Mapping[Any, str],
    unit: str,
    maximum: float | None,
) -> go.Figure:
    import plotly.graph_objects as go

    x, y, value, count = names
    cells = {(a, b): (v, n) for a, b, v, n in zip(frame[x], frame[y], frame[value], frame[count], strict=True)}
    shares, hatched, points, texts = [], [], [], []
    for j, row in enumerate(rows):
        line = []
        for i, column in enumerate(columns):
            share, rests_on = cells.get((column, row), (None, 0))
            missing = share is None or share != share
            line.append(None if missing else share)
            if missing:
                hatched.append((i, j))
            said = "no data" if missing else percent(share)
            place = f"<b>{escaped(y_names.get(row, row))}</b><br>{escaped(x_names.get(column, column), 90)}"
            points.append((i, j))
            texts.append(f"{place}<br>{said}, {as_count(rests_on)} {escaped(unit)}")
        shares.append(line)
    fig = go.Figure()
    fig.add_heatmap(
        z=np.array(shares, dtype=float),
        x=np.arange(len(columns)),
        y=np.arange(len(rows)),
        colorscale="Cividis",
        zmin=0,
        zmax=maximum if maximum is not None else max([LEAST_SCALE, *(s for line in shares for s in line if s)]),
        xgap=1,
        ygap=1,
        hoverinfo="skip",
        colorbar={"tickformat": ".0%", "thickness": 12, "outlinewidth": 0, "len": 0.9},
    )
    _hatch(fig, hatched, len(columns))
    at = np.array(points, dtype=int).reshape(-1, 2)
    fig.add_scatter(
        x=at[:, 0],
        y=at[:, 1],
        mode="markers",
        marker={"symbol": "square", "size": 8, "opacity": 0},
        selected={"marker": {"opacity": 0}},
        unselected={"marker": {"opacity": 0}},
        customdata=at,
        text=np.array(texts, dtype=object),
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
    )
    # Plotly would measure every label to hide those that reach out of the plot; their margins hold them all.
    axis = {"tickmode": "array", "showgrid": False, "zeroline": False, "ticks": "", "ticklabeloverflow": "allow"}
    room = PLOT_CHARACTERS // max(1, len(columns))
    fig.update_xaxes(
        **axis,
        range=[-0.5, len(columns) - 0.5],
        tickvals=list(range(len(columns))),
        ticktext=[_wrapped(x_names.get(column, column), room) for column in columns],
        tickangle=0 if room >= MINIMUM_ROOM else -40,
    )
    fig.update_yaxes(
        **axis,
        range=[len(rows) - 0.5, -0.5],
        tickvals=list(range(len(rows))),
        ticktext=[escaped(y_names.get(row, row), LONGEST_TICK) for row in rows],
    )
    return fig


def _tick_room(fig: go.Figure) -> dict[str, int]:
    """Margins that hold the tick labels, reckoned here: left to Plotly, the chart is laid out several times over."""
    longest = max((len(html.unescape(text)) for text in fig.layout.yaxis.ticktext), default=0)
    below = [html.unescape(text).split("<br>") for text in fig.layout.xaxis.ticktext]
    widest = max((len(line) for lines in below for line in lines), default=0)
    if fig.layout.xaxis.tickangle:
        slanted = widest * CHARACTER_WIDTH
        return {"l": round(max(longest * CHARACTER_WIDTH, slanted * 0.77)) + 14, "b": round(slanted * 0.65) + 24}
    return {"l": round(longest * CHARACTER_WIDTH) + 14, "b": 17 * max((len(lines) for lines in below), default=1) + 14}


def _hatch(fig: go.Figure, cells: list[tuple[int, int]], columns: int) -> None:
    """Diagonals, all of them one line: a pattern a cell would cost the browser a hundred times as much.

    They are reckoned in pixels, so that they slant alike in narrow and in wide cells.
    """
    width, height = PLOT_WIDTH / max(1, columns) - 4, ROW_HEIGHT - 4
    x: list[float | None] = []
    y: list[float | None] = []
    for i, j in cells:
        for offset in range(HATCH, int(width + height), HATCH):
            left, right = max(0.0, offset - height), min(width, float(offset))
            for across in (left, right):
                x.append(i + (across / width - 0.5) * 0.92)
                y.append(j + ((offset - across) / height - 0.5) * 0.88)
            x.append(None)
            y.append(None)
    line = {"color": "rgba(128,128,128,.6)", "width": 1, "simplify": False}
    ends = np.array([x, y], dtype=float)  # None, between two lines, becomes nan
    fig.add_scatter(x=ends[0], y=ends[1], mode="lines", line=line, hoverinfo="skip", showlegend=False)


def _wrapped(name: object, room: int) -> str:
    """A tick label in up to three lines of `room` characters, or cut to one line where that is too narrow."""
    if room < MINIMUM_ROOM:
        return escaped(name, LONGEST_TICK)
    lines = textwrap.wrap(" ".join(str(name).split()), room, max_lines=3, placeholder="…")
    return "<br>".join(html.escape(line) for line in lines)


def _outline(fig: go.Figure, column: int, row: int) -> None:
    """White on black, so that it stands out from every colour of the scale in both themes."""
    box = {"x0": column - 0.5, "x1": column + 0.5, "y0": row - 0.5, "y1": row + 0.5}
    fig.add_shape(type="rect", line={"color": "black", "width": 5}, **box)
    fig.add_shape(type="rect", line={"color": "white", "width": 2}, **box)

"""Plotly charts on a page, in the app's own look: bars, lines, maps side by side, and their export.

A chart has a title with its takeaway, counts, a table twin, and colours that colour-blind people tell apart.
"""

from __future__ import annotations

import base64
import hashlib
import html
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import streamlit as st
from plotly.basedatatypes import BaseFigure
from plotly.io import to_json

from cimemories.model import Label
from cimemories.text import count, html_escaped, percent
from cimemories.ui.safe import AMBIGUOUS, GLYPHS, INAPPROPRIATE, MODEL, NECESSARY, option

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# ---- charts
#
# Charts: the app's colours, and a layout that serves both themes.
#
# Plotly reads some HTML in hover texts, tick labels and titles, so every text that is data is escaped here. Its own
# camera is taken away: its images would not say that something is simulated or what it rests on; ui.exports makes
# those.


COLOURS = {Label.NECESSARY: NECESSARY, Label.INAPPROPRIATE: INAPPROPRIATE, Label.AMBIGUOUS: AMBIGUOUS}
CONFIG = {
    "displaylogo": False,
    "doubleClick": False,
    "modeBarButtonsToRemove": ["toImage", "select2d", "lasso2d", "autoScale2d"],
}
FONT = '"Source Sans", sans-serif'
INK = "#7f8081"  # in place of the page's text colour, see style.STYLE; no figure may mean this colour itself
FAINT = "rgba(128,128,128,.22)"
TIP = "#2a3238"  # behind what is said of the mark under the pointer, in the light and in the dark
LOOK: Mapping[str, Any] = {
    "font": {"family": FONT, "size": 11.25, "color": INK},
    "title": {"font": {"size": 15, "weight": 650}, "subtitle": {"font": {"size": 11}}, "pad": {"l": 4}},
    "margin": {"pad": 8},
    "hoverlabel": {"bgcolor": TIP, "bordercolor": TIP, "font": {"family": FONT, "size": 12, "color": "#f2f4f6"}},
    "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "rgba(128,128,128,.9)", "activecolor": MODEL},
    "xaxis": {},
    "yaxis": {},
}
ROOM_MADE = {"room": "made"}  # as the `meta` of a layout: its margins hold all labels, Plotly need not look for room
AXIS: Mapping[str, Any] = {"gridcolor": FAINT, "zerolinecolor": FAINT}
ACROSS: Mapping[str, Any] = {"showgrid": False, "zeroline": False}
AXIS_TITLE: Mapping[str, Any] = {"title": {"standoff": 20, "font": {"size": 13}}}
LONGEST_TICK = 34
CHARACTER_WIDTH = 6.2  # pixels, of a tick label at Streamlit's size


def layout(*, title: str = "", subtitle: str = "") -> dict[str, Any]:
    """No background and no font colour of its own: Streamlit's theme gives both.

    To be added to, and given to go.Figure with the data: a figure that grows by pieces takes three times as long.
    """
    return {
        "title": {"text": html_escaped(title), "subtitle": {"text": html_escaped(subtitle)}, "x": 0, "xanchor": "left"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 8, "t": 64 if title and subtitle else 44 if title else 8, "b": 8},
        "hoverlabel": {"align": "left"},
    }


class Dressed(BaseFigure):  # type: ignore[misc]
    """A figure as the browser gets it. Streamlit asks it for `to_dict` alone; a plain dict it would check once more."""

    def __init__(self, spec: dict[str, Any]) -> None:
        object.__setattr__(self, "spec", spec)

    def to_dict(self) -> dict[str, Any]:
        return dict(self.spec)


def dressed(fig: go.Figure) -> Dressed:
    """The figure with its look, and with a name for its data; `fig` itself stays as it is, for exports.

    Streamlit hands every figure to Plotly two or three times, each time as a copy. With a template, which Streamlit's
    own theme always gives, or without a name for the data Plotly takes each copy for another figure and draws it anew;
    and the theme has it look for the room of labels, by drawing once more, where we have made room. So the theme stays
    away. What it would give is set here, but for the colours of texts: they get one that stands for the text colour of
    the page, which style.STYLE then gives them, in the light and in the dark.
    """
    spec = fig.to_dict()
    layout = spec.setdefault("layout", {})
    layout.pop("template", None)
    room = layout.pop("meta", None) == ROOM_MADE  # not for Plotly, which takes any copy of it for another layout
    _fill(layout, LOOK)
    for name in [*layout]:
        if name.startswith(("xaxis", "yaxis")):
            axis = layout[name]
            _fill(axis, AXIS)
            _fill(axis, {"automargin": not room})
            if name.startswith("x"):
                _fill(axis, ACROSS)
            if (axis.get("title") or {}).get("text"):
                _fill(axis, AXIS_TITLE)
    layout["datarevision"] = hashlib.sha256(to_json(spec, validate=False).encode("utf-8", "surrogatepass")).hexdigest()
    return Dressed(spec)


def _fill(there: dict[str, Any], wanted: Mapping[str, Any]) -> None:
    """Set what is wanted where nothing is set."""
    for name, value in wanted.items():
        if isinstance(value, Mapping):
            _fill(there.setdefault(name, {}), value)
        elif there.get(name) is None:
            there[name] = value


def show(fig: go.Figure, *, key: str, alt: str) -> None:
    """Draw a figure that only shows; `alt` says in words what can be seen."""
    st.plotly_chart(dressed(fig), key=key, alt=alt, config=CONFIG, theme=None)


# ---- bars
#
# Bar charts: parts of a whole by row, counts by row, and shares before and after. Colours and glyphs as everywhere.


BAR_HEIGHT = 28
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
    frame: pd.DataFrame,
    parts: Sequence[BarPart],
    *,
    name: str,
    title: str,
    subtitle: str,
    key: str,
    unit: str,
    alt: str,
) -> None:
    """One bar a row of `frame`, from 0 to 100 % of the row, first row on top; the parts are columns of counts. A part
    that is wide enough says its glyph and share; the hover says the count. A row without counts is an empty bar."""
    whole = frame[[part.column for part in parts]].sum(axis=1)
    traces: list[dict[str, Any]] = []
    for part in parts:
        if not frame[part.column].any():
            continue  # nothing to see, and nothing to explain in the legend
        shares = [n / total if total else 0.0 for n, total in zip(frame[part.column], whole, strict=True)]
        pattern = {"shape": part.pattern, "fgcolor": "rgba(17,17,17,.55)", "size": 5, "fillmode": "overlay"}
        said = [
            f"<b>{html_escaped(row, 90)}</b><br>{html_escaped(part.name)}: {percent(share)}, "
            f"{count(n)} of {count(total)} {html_escaped(unit)}"
            for row, share, n, total in zip(frame[name], shares, frame[part.column], whole, strict=True)
        ]
        inside = [f"{part.glyph} {100 * share:.0f} %".strip() if share >= WIDE_ENOUGH else "" for share in shares]
        traces.append(
            {
                **_bar(shares, said),
                "name": part.name,
                "marker": {"color": part.colour, **({"pattern": pattern} if part.pattern else {})},
                "text": inside,
                "textposition": "inside",
                "insidetextanchor": "middle",
                "textangle": 0,
                "textfont": {"color": "#111", "size": 11},
            }
        )
    across = {"range": [0, 1], "tickformat": ".0%", "showgrid": False, "zeroline": False}
    more = {"barmode": "stack", "bargap": 0.22, "xaxis": across}
    show(_figure(traces, [str(row) for row in frame[name]], title, subtitle, more), key=key, alt=alt)


def _bar(x: Sequence[float], said: Sequence[str]) -> dict[str, Any]:
    """Bars that lie, the first row at the top, and what the pointer reads on each."""
    return {
        "type": "bar",
        "orientation": "h",
        "y": list(range(len(x))),
        "x": list(x),
        "hovertext": list(said),
        "hoverinfo": "text",
    }


def counted_bars(
    frame: pd.DataFrame,
    *,
    name: str,
    column: str,
    colour: str,
    title: str,
    subtitle: str,
    key: str,
    unit: str,
    alt: str,
) -> None:
    """One bar a row of `frame`, as long as its count, with the count and its share of all beside it; first row on
    top."""
    total = int(frame[column].sum())
    said = [f"{count(n)} ({percent(n / total)})" if total else "" for n in frame[column]]
    hover = [
        f"<b>{html_escaped(row, 90)}</b><br>{text} {html_escaped(unit)}"
        for row, text in zip(frame[name], said, strict=True)
    ]
    trace = {
        **_bar(frame[column].tolist(), hover),
        "marker": {"color": colour},
        "text": said,
        "textposition": "outside",
        "cliponaxis": False,
        "showlegend": False,
    }
    most = float(frame[column].max()) if len(frame) else 0.0
    across = {"range": [0, (most or 1.0) * 1.25], "showgrid": False, "zeroline": False, "showticklabels": False}
    names = [str(row) for row in frame[name]]
    fig = _figure([trace], names, title, subtitle, {"bargap": 0.3, "xaxis": across}, legend=False)
    show(fig, key=key, alt=alt)


def before_after(
    frame: pd.DataFrame,
    *,
    name: str,
    before: str,
    after: str,
    title: str,
    subtitle: str,
    key: str,
    alt: str,
    pairs: str,
    unit: str,
) -> None:
    """Two shares a row of `frame`, joined by a line: an open circle for what is, a filled diamond for what would be."""
    places = list(range(len(frame)))
    joined: list[float | None] = []
    heights: list[float | None] = []
    for place, old, new in zip(places, frame[before], frame[after], strict=True):
        joined += [old, new, None]
        heights += [place, place, None]
    line = {"color": "rgba(128,128,128,.75)", "width": 3}
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": joined,
            "y": heights,
            "line": line,
            "hoverinfo": "skip",
            "showlegend": False,
        }
    ]
    looks = [
        (before, "rule that holds", {"symbol": "circle-open", "size": 11, "color": "#808890", "line": {"width": 2.5}}),
        (after, "rule that is tried", {"symbol": "diamond", "size": 11, "color": TRIED}),
    ]
    for column, words, marker in looks:
        said = [
            f"<b>{html_escaped(row, 90)}</b><br>{words}: {percent(share)} of {count(n)} {html_escaped(unit)}"
            for row, share, n in zip(frame[name], frame[column], frame[pairs], strict=True)
        ]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": frame[column].tolist(),
                "y": places,
                "name": words,
                "marker": marker,
                "hovertext": said,
                "hoverinfo": "text",
            }
        )
    across = {"range": [-0.02, 1.02], "tickformat": ".0%", "zeroline": False, "gridcolor": "rgba(128,128,128,.25)"}
    show(_figure(traces, [str(row) for row in frame[name]], title, subtitle, {"xaxis": across}), key=key, alt=alt)


def _figure(
    traces: list[dict[str, Any]],
    names: list[str],
    title: str,
    subtitle: str,
    more: dict[str, Any],
    *,
    legend: bool = True,
) -> go.Figure:
    """Named rows from top to bottom, the legend under the plot, margins that hold the names. more: of the layout."""
    import plotly.graph_objects as go

    ticks = [html_escaped(text, LONGEST_TICK) for text in names]
    longest = max((len(html.unescape(text)) for text in ticks), default=0)
    below = 62 if legend else 12
    down = {
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": ticks,
        "range": [len(names) - 0.5, -0.5],
        "showgrid": False,
        "zeroline": False,
        "ticks": "",
    }
    under = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "traceorder": "normal"}
    return go.Figure(
        data=traces,
        layout={
            **layout(title=title, subtitle=subtitle),
            "yaxis": down,
            "margin": {"l": round(longest * CHARACTER_WIDTH) + 14, "r": 30, "t": 66, "b": below},
            "meta": ROOM_MADE,
            "height": BAR_HEIGHT * len(names) + 66 + below,
            "legend": under,
            "showlegend": legend,
            "dragmode": False,
            **more,
        },
    )


# ---- grids
#
# Maps of shares by two things: one or two beside each other with the same rows and columns, whose cells are linked.
#
# The cell under the pointer says the numbers of all maps and is framed in each of them, the one that was clicked is
# framed too (assets/grids.js): a go.Heatmap raises no event in Streamlit, and points laid over it that do would be
# drawn anew, a thousand of them, at every click.


# Streamlit takes a text without a line break for a path, so the last one stays.
_SCRIPT = (Path(__file__).parent / "assets" / "grids.js").read_text(encoding="utf-8")
_component = st.components.v2.component("cimemories_grids", html="<div></div>\n", js=_SCRIPT)
Shares = npt.NDArray[np.float64]
Counts = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]
Cell = tuple[int, int]
Read = dict[str, Any]
PLOT_WIDTH, HATCH = 1000, 8  # pixels: about as wide as all maps are, and between two lines of a hatch
ROW_HEIGHTS = ((20, 32), (45, 22))  # up to so many rows, so high; 16 beyond
MAP_HEAD = 108  # pixels: title, subtitle, and the name of each map
TITLE_CHARACTERS, TITLE_LINE = 88, 24  # of a line of the title, and how high it is
LEAST_SCALE = 0.01  # where all is 0 the scale still begins at 0 and ends above it
BAR, BETWEEN = 0.045, 0.03  # of the width: for a colour scale, and between two maps
UPRIGHT, SLANTED, NARROW = 70, 16, 24  # pixels of a column for words in lines, for slanted ones; letters of turned ones
NUMBERED = 44  # pixels of a column that has room for its number
DIVERGING = ((0.0, "#004D7A"), (0.25, MODEL), (0.5, "#ECECEC"), (0.75, INAPPROPRIATE), (1.0, "#8F3F00"))


@dataclass(frozen=True)
class MapPart:
    """Shares and what they rest on, [rows, columns] each; nan where nothing is there."""

    values: Shares
    pairs: Counts


@dataclass(frozen=True)
class Map:
    """One map: its name and the unit of its counts ('inappropriate pairs'). With `before`, it shows how much higher or
    lower each share is than it was there. maximum: where the scale of shares ends; None: at the highest."""

    name: str
    unit: str
    part: MapPart
    before: MapPart | None = None
    maximum: float | None = None

    @property
    def values(self) -> Shares:
        found: Shares = self.part.values if self.before is None else self.part.values - self.before.values
        return found


@dataclass(frozen=True)
class Side:
    """Rows or columns: short names for the ticks, full ones for the pointer."""

    names: Sequence[str]
    titles: Sequence[str]


def draw_heatmap(fig: go.Figure, said: Read, *, key: str, alt: str, selected: Cell | None) -> None:
    """Draw what `figure` made, with one cell framed and what `read` says of the one under the pointer. `clicked` says
    of the next run which cell was clicked."""
    box = f"{key.replace('.', '-')}-maps"
    with st.container(key=box):
        st.plotly_chart(dressed(fig), key=f"{key}.chart", alt=alt, config=CONFIG, theme=None)
        _component(key=key, data={"box": box, "selected": selected, "said": said}, on_cell_change=lambda: None)


def clicked_cell(key: str, rows: int, columns: int) -> Cell | None:
    """The (row, column) clicked since the last run, of so many. What a browser sends may be anything."""
    cell = (st.session_state.get(key) or {}).get("cell")
    if not isinstance(cell, list) or len(cell) != 2 or not all(isinstance(i, int) and i >= 0 for i in cell):
        return None
    return (cell[0], cell[1]) if cell[0] < rows and cell[1] < columns else None


def heatmap_figure(maps: Sequence[Map], rows: Side, columns: Side, *, title: str, subtitle: str) -> go.Figure:
    """The maps beside each other in one figure, with one axis of rows. Written down whole: Plotly takes five times as
    long for a figure that grows by pieces."""
    import plotly.graph_objects as go

    width = PLOT_WIDTH / len(maps) / max(1, len(columns.names))
    height = next((high for most, high in ROW_HEIGHTS if len(rows.names) <= most), 16)
    axes, room = _ticks(rows, columns, width)
    data: list[dict[str, Any]] = []
    names: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"yaxis": axes[1], "annotations": names, "images": images}
    place = {"x": -0.5, "y": -0.5, "xanchor": "left", "yanchor": "top", "layer": "above"}
    whole = {**place, "sizex": len(columns.names), "sizey": len(rows.names), "sizing": "stretch"}
    for position, (item, (start, end)) in enumerate(zip(maps, _spans(len(maps)), strict=True)):
        number = "" if position == 0 else str(position + 1)
        on = {"xaxis": f"x{number}", "yaxis": "y"}
        cells = _cells(item, end)
        data.append(cells | on)
        if width >= NUMBERED:
            data.append(_numbers(item, cells) | on)
        hatch = _hatch(np.isnan(item.values), (width, height))
        if hatch is not None:
            images.append({"source": hatch, "xref": on["xaxis"], "yref": "y", **whole})
        layout[f"xaxis{number}"] = {**axes[0], "domain": [start, end], "anchor": "y"}
        if len(maps) > 1:
            where = {"x": start, "y": 1, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
            text = f"<b>{html_escaped(item.name)}</b>"
            names.append({"text": text, "showarrow": False, "yshift": 4, "font": {"size": 13}, **where})
    lines = textwrap.wrap(" ".join(title.split()), TITLE_CHARACTERS) or [""]
    head = MAP_HEAD + TITLE_LINE * (len(lines) - 1) - (0 if len(maps) > 1 else 30)
    layout |= {
        "title": {
            "text": "<br>".join(html.escape(line) for line in lines),
            "subtitle": {"text": html_escaped(subtitle)},
            "x": 0,
            "xanchor": "left",
        },
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {"align": "left"},
        "margin": {"t": head, "r": 8, **room},
        "meta": ROOM_MADE,
        "height": height * max(1, len(rows.names)) + head + room["b"],
        "dragmode": False,
        "hovermode": "closest",
        "spikedistance": -1,
    }
    return go.Figure({"data": data, "layout": layout})


def _spans(number: int) -> list[tuple[float, float]]:
    """From where to where each map reaches across the plot, with its colour scale behind it."""
    each = (1.0 - number * BAR - (number - 1) * BETWEEN) / number
    return [(i * (each + BAR + BETWEEN), i * (each + BAR + BETWEEN) + each) for i in range(number)]


def _cells(item: Map, end: float) -> dict[str, Any]:
    values = item.values
    known = values[~np.isnan(values)]
    highest = max(LEAST_SCALE, float(np.abs(known).max()) if known.size else 0.0)
    scale: dict[str, Any] = {"colorscale": "Cividis", "zmin": 0, "zmax": item.maximum or highest}
    if item.before is not None:
        scale = {"colorscale": [list(stop) for stop in DIVERGING], "zmin": -highest, "zmax": highest}
    sign = "" if item.before is None else "+"
    bar = {"tickformat": f"{sign}.0%", "thickness": 10, "outlinewidth": 0, "len": 1, "x": end + 0.004, "xpad": 0}
    return {
        "type": "heatmap",
        # Lists: of packed arrays Plotly makes new ones whenever it is handed the figure, and draws them anew.
        "z": [[None if share != share else share for share in row] for row in values.tolist()],
        "x": list(range(values.shape[1])),
        "y": list(range(values.shape[0])),
        "xgap": 1,
        "ygap": 1,
        "hoverinfo": "none",  # the pointer is answered by assets/grids.js
        "colorbar": {**bar, "tickfont": {"size": 11}},
        **scale,
    }


def _numbers(item: Map, cells: dict[str, Any]) -> dict[str, Any]:
    """The share of each cell as a text on it, black or white, whichever is further from the cell's colour. What Plotly
    itself writes on a heatmap is grey on the colours of the middle."""
    from plotly.colors import sample_colorscale

    there = np.argwhere(~np.isnan(item.values))
    shares = item.values[there[:, 0], there[:, 1]]
    places = np.clip((shares - cells["zmin"]) / (cells["zmax"] - cells["zmin"]), 0, 1).tolist()
    sign = "" if item.before is None else "+"
    return {
        "type": "scatter",
        "mode": "text",
        "x": there[:, 1].tolist(),
        "y": there[:, 0].tolist(),
        "text": [f"{share:{sign}.0%}" for share in shares.tolist()],
        "textfont": {"color": [_ink(colour) for colour in sample_colorscale(cells["colorscale"], places)], "size": 12},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _ink(colour: str) -> str:
    """Black or white for a text on 'rgb(r, g, b)': the one of these two has a contrast of 4.5 at least, what WCAG 2
    (1.4.3) asks for."""
    parts = [float(part) / 255 for part in colour[4:-1].split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    luminance = float(np.dot(linear, (0.2126, 0.7152, 0.0722)))
    return "#000000" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "#FFFFFF"


def read_heatmap(maps: Sequence[Map], rows: Side, columns: Side) -> Read:
    """What the pointer reads in each cell, for `draw`. Not a part of the chart: Streamlit goes through the text of a
    chart dozens of times before it is drawn."""
    lines = []
    for item in maps:
        parts = [part for part in (item.before, item.part) if part is not None]
        values, pairs = [part.values.tolist() for part in parts], [part.pairs.tolist() for part in parts]
        cells = [
            [_cell([v[j][i] for v in values], [p[j][i] for p in pairs], item.unit) for i in range(len(columns.titles))]
            for j in range(len(rows.titles))
        ]
        lines.append({"name": item.name, "cells": cells})
    return {"rows": _short(rows.titles), "columns": _short(columns.titles), "maps": lines}


def _short(titles: Sequence[str]) -> list[str]:
    return [option(title) for title in titles]


def _cell(shares: list[float], pairs: list[int], unit: str) -> str:
    """'12.4 % of 34 inappropriate pairs', of two runs '12.4 % to 20.0 % (+7.6 points) of 34 and 34 ...'."""
    if len(shares) == 1:
        return f"{percent(shares[0])} of {count(pairs[0])} {unit}" if pairs[0] else f"no {unit}"
    if not all(pairs):
        told = [f"{percent(share)} of {count(n)}" if n else "none" for share, n in zip(shares, pairs, strict=True)]
        return f"{told[0]} and {told[1]} {unit}" if any(pairs) else f"no {unit}"
    points = 100 * (shares[1] - shares[0])
    return (
        f"{percent(shares[0])} to {percent(shares[1])} ({points:+.1f} points) "
        f"of {count(pairs[0])} and {count(pairs[1])} {unit}"
    )


def _ticks(rows: Side, columns: Side, width: float) -> tuple[tuple[dict[str, Any], dict[str, Any]], dict[str, int]]:
    """The axes of columns and rows with their names, and the margins that hold these, reckoned here: left to Plotly,
    the chart is laid out several times over."""
    spikes = {
        "showspikes": True,
        "spikemode": "across",
        "spikesnap": "data",
        "spikethickness": -2,
        "spikedash": "solid",
    }
    axis = {
        "tickmode": "array",
        "showgrid": False,
        "zeroline": False,
        "ticks": "",
        "ticklabeloverflow": "allow",
        "spikecolor": "rgba(128,128,128,.9)",
        **spikes,
    }
    if width >= UPRIGHT:
        room = int(width / CHARACTER_WIDTH) - 1
        below = [textwrap.wrap(" ".join(n.split()), room, max_lines=3, placeholder="…") or [""] for n in columns.names]
        ticks = ["<br>".join(html.escape(line) for line in lines) for lines in below]
        angle, deep = 0, 17 * max((len(lines) for lines in below), default=1) + 14
    else:
        angle = -40 if width >= SLANTED else -90
        limit = LONGEST_TICK if angle == -40 else NARROW
        ticks = [html_escaped(name, limit) for name in columns.names]
        longest = max((len(html.unescape(text)) for text in ticks), default=0) * CHARACTER_WIDTH
        deep = round(longest * (0.65 if angle == -40 else 0.85)) + 18
    size = 11 if width >= SLANTED else 10
    across = {
        **axis,
        "range": [-0.5, len(columns.names) - 0.5],
        "tickvals": list(range(len(columns.names))),
        "ticktext": ticks,
        "tickangle": angle,
        "tickfont": {"size": size},
    }
    left = [html_escaped(name, LONGEST_TICK) for name in rows.names]
    down = {
        **axis,
        "range": [len(rows.names) - 0.5, -0.5],
        "tickvals": list(range(len(rows.names))),
        "ticktext": left,
        "tickfont": {"size": 12 if len(rows.names) <= ROW_HEIGHTS[1][0] else 10},
    }
    longest = max((len(html.unescape(text)) for text in left), default=0) * CHARACTER_WIDTH
    slanted = (
        max((len(html.unescape(text)) for text in ticks), default=0) * CHARACTER_WIDTH * 0.77 if angle == -40 else 0
    )
    return (across, down), {"l": round(max(longest, slanted)) + 14, "b": deep}


def _hatch(empty: Bools, size: tuple[float, float]) -> str | None:
    """Hatched cells as an image as large as the map, for `layout.images`; None where no cell is empty. size: of a cell,
    in pixels. Lines on the chart would cost the browser as much as all the rest of it."""
    cells = np.argwhere(empty)
    if not len(cells):
        return None
    width, height = max(4.0, size[0]), size[1]
    boxes = "".join(
        f"M{column * width + 2:.1f} {row * height + 2:.1f}h{width - 4:.1f}v{height - 4:.1f}h{4 - width:.1f}z"
        for row, column in cells.tolist()
    )
    drawn = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {empty.shape[1] * width:.1f} '
        f'{empty.shape[0] * height:.1f}" preserveAspectRatio="none"><pattern id="h" width="{HATCH}" height="{HATCH}" '
        f'patternUnits="userSpaceOnUse"><path d="M-1 1l2-2M0 {HATCH}l{HATCH}-{HATCH}M{HATCH - 1} {HATCH + 1}l2-2" '
        f'stroke="#808080" stroke-opacity=".6"/></pattern><path d="{boxes}" fill="url(#h)"/></svg>'
    )
    return "data:image/svg+xml;base64," + base64.b64encode(drawn.encode()).decode()


# ---- lines
#
# Line charts of shares over counted steps: named at their right end, with bands, in steps or straight.
#
# Lines are told apart by their names at the end and by their dashes, never by colour alone.


GREY = "#808890"
BLUES = ("#56B4E9", "#2E97D6", "#0072B2")  # few samples to many
LINE_HEAD, FOOT = 66, 46  # pixels above and below the plot
END_GAP = 15  # pixels that two names at the right end keep apart
FINE = 0.05  # below it whole percents would say the same at several ticks
SHARES = {"zeroline": False, "gridcolor": "rgba(128,128,128,.22)", "rangemode": "tozero"}


@dataclass(frozen=True)
class Line:
    """One line. y: a share for each x, None where there is none. low, high: its band, or empty. end: what stands at its
    right end; empty: nothing. note: added to the hover at each x, or empty. steps: drawn as steps."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    colour: str
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    dash: str = "solid"
    width: float = 2.0
    steps: bool = False
    end: str = ""
    note: Sequence[str] = ()


def shade(place: int, of: int) -> str:
    """A blue for the place-th of so many lines that belong together, from light to dark."""
    if of < 2:
        return BLUES[-1]
    where = place / (of - 1) * (len(BLUES) - 1)
    left = min(int(where), len(BLUES) - 2)
    return _between(BLUES[left], BLUES[left + 1], where - left)


def figure(
    lines: Sequence[Line],
    *,
    title: str,
    subtitle: str,
    x_title: str,
    height: int,
    most: float | None = None,
    mark: tuple[float, str] | None = None,
) -> go.Figure:
    """Shares over x. most: where the share axis ends; None: above the highest line. mark: an x with words to it."""
    import plotly.graph_objects as go

    highest = max([v for line in lines for v in (*line.y, *line.high) if v is not None and v == v], default=0.0)
    top = most or max(0.01, min(1.0, highest) * 1.06)
    longest = max((len(line.end) for line in lines), default=0)
    dotted = {"type": "line", "y0": 0, "y1": 1, "line": {"color": "rgba(128,128,128,.6)", "width": 1, "dash": "dot"}}
    at = {"xref": "x", "yref": "paper"}
    words = {"showarrow": False, "xanchor": "right", "yanchor": "bottom", "font": {"size": 11}}
    right = round(longest * (CHARACTER_WIDTH + 0.6)) + 14
    return go.Figure(
        data=[*(_band(line) for line in lines if line.low and line.high), *(_trace(line) for line in lines)],
        layout={
            **layout(title=title, subtitle=subtitle),
            "margin": {"l": 52, "r": right, "t": LINE_HEAD, "b": FOOT},
            "meta": ROOM_MADE,
            "height": height,
            "hovermode": "x unified",
            "dragmode": False,
            "showlegend": False,
            "yaxis": {**SHARES, "range": [0, top * 1.03], "tickformat": ".1%" if top < FINE else ".0%"},
            "xaxis": {
                "title": {"text": html_escaped(x_title)},
                "showgrid": False,
                "zeroline": False,
                "tickformat": "d",
            },
            "annotations": [
                *_ends(lines, top, height),
                *([{**at, **words, "x": mark[0], "y": 0.01, "text": html_escaped(mark[1])}] if mark else []),
            ],
            "shapes": [{**at, **dotted, "x0": mark[0], "x1": mark[0]}] if mark else [],
        },
    )


def said(value: float | None, low: float | None, high: float | None) -> str:
    """A share with its interval: '12.4 % [10.1, 14.9]'."""
    if low is None or high is None or low != low or high != high:
        return percent(value)
    return f"{percent(value)} [{low * 100:.1f}, {high * 100:.1f}]"


def _trace(line: Line) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": list(line.x),
        "y": list(line.y),
        "name": line.name,
        "line": {
            "color": line.colour,
            "dash": line.dash,
            "width": line.width,
            "shape": "hv" if line.steps else "linear",
        },
        "customdata": [html_escaped(note) for note in line.note] or [""] * len(line.x),
        "hovertemplate": "%{y:.1%} %{customdata}",
    }


def _band(line: Line) -> dict[str, Any]:
    (x, high), (_, low) = (_corners(line, side) for side in (line.high, line.low))
    red, green, blue = (int(line.colour[i : i + 2], 16) for i in (1, 3, 5))
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x + x[::-1],
        "y": high + low[::-1],
        "fill": "toself",
        "fillcolor": f"rgba({red},{green},{blue},.16)",
        "line": {"width": 0},
        "hoverinfo": "skip",
    }


def _corners(line: Line, side: Sequence[float | None]) -> tuple[list[float], list[float | None]]:
    """The points of one side of a band; in steps with all their corners, since it is walked forth and back."""
    x, y = list(line.x), list(side)
    if not line.steps:
        return x, y
    return [x[(i + 1) // 2] for i in range(2 * len(x) - 1)], [y[i // 2] for i in range(2 * len(y) - 1)]


def _ends(lines: Sequence[Line], top: float, height: int) -> list[dict[str, Any]]:
    """The names at the right ends, pushed apart from the lowest up and down again where they would leave the plot."""
    room = height - LINE_HEAD - FOOT
    named = sorted(
        ((line, float(line.y[-1] or 0.0)) for line in lines if line.end and line.y), key=lambda pair: pair[1]
    )
    gap = top * END_GAP / room
    places: list[float] = []
    for _, value in named:
        places.append(max(value, places[-1] + gap) if places else value)
    ceiling = top
    for i in reversed(range(len(places))):
        places[i] = min(places[i], ceiling)
        ceiling = places[i] - gap
    look = {"x": 1, "xref": "paper", "showarrow": False, "xanchor": "left", "xshift": 6, "font": {"size": 12}}
    return [
        {**look, "y": place, "text": html_escaped(line.end)} for (line, _), place in zip(named, places, strict=True)
    ]


def _between(first: str, second: str, share: float) -> str:
    parts = [round(int(first[i : i + 2], 16) * (1 - share) + int(second[i : i + 2], 16) * share) for i in (1, 3, 5)]
    return "#" + "".join(f"{part:02X}" for part in parts)

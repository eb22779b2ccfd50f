"""Heatmaps: shares by two things, one map or two beside each other with the same rows and columns.

The cell under the pointer shows the numbers of all maps and is framed in each of them, and so is the one that was
clicked. ui/assets/grids.js does both: a go.Heatmap raises no event in Streamlit, and points laid over it that do would
be drawn again, a thousand of them, at every click.
"""

from __future__ import annotations

import base64
import html
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cimemories.charts.theme import (
    CHARACTER_WIDTH,
    COMPLETENESS,
    FINE,
    GREY,
    INAPPROPRIATE,
    LONGEST_TICK,
    MARGINS_FIT,
    MODEL,
    VIOLATION,
    scatter,
    text_width,
    upright,
)
from cimemories.text import count, html_escaped, percent, shortened

if TYPE_CHECKING:
    import plotly.graph_objects as go

Shares = npt.NDArray[np.float64]
Counts = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]
Cell = tuple[int, int]
Tooltips = dict[str, Any]
PLOT_WIDTH, HATCH = 1000, 8  # pixels: about as wide as all maps are, and between two lines of a hatch
PHONE_WIDTH = 266  # pixels: as wide as a map and the names of its rows are on a phone
ROW_HEIGHTS = ((45, 20), (math.inf, 16))  # up to so many rows, so high: ten stand above an open cell on a laptop
MAP_HEAD, ABOVE = 86, 8  # pixels: title, subtitle, and the name of each map; and above the title
TITLE_CHARACTERS, TITLE_LINE = 88, 24  # of a line of the title, and how high it is
SUBTITLE_CHARACTERS, SUBTITLE_LINE = 170, 17  # the same of the line below it
FIRST_LINE = 11  # by which Plotly moves a title of one line down, and one of several not: these were cut off above
LEAST_SCALE = 0.01  # where all is 0 the scale still begins at 0 and ends above it
BAR, BETWEEN = 0.045, 0.03  # of the width: for a colour scale, and between two maps
UPRIGHT, SLANTED, NARROW = 70, 16, 24  # pixels of a column for words in lines, for slanted ones; letters of turned ones
TURNED = 13  # pixels from one turned name to the next
SLANT = 0.77  # cos 40: the width of a slanted name, of its length
SLANTED_GROUPS = 20  # pixels from one slanted name of a group to the next: a line of 13 at 40 degrees
NUMBERED = 44  # pixels of a column that has room for its number
# What harms and what helps, in the hues that they have everywhere; both darken evenly, so that grey says the same. On a
# dark page both brighten evenly: 0 is like the page in either.
HARM = ((0.0, "#FCEFE6"), (0.35, "#F3B07F"), (0.7, VIOLATION), (1.0, "#7A2E00"))
BENEFIT = ((0.0, "#E8F5F0"), (0.35, "#87CDB5"), (0.7, COMPLETENESS), (1.0, "#00452F"))
DIVERGING = ((0.0, "#004D7A"), (0.25, MODEL), (0.5, "#ECECEC"), (0.75, INAPPROPRIATE), (1.0, "#8F3F00"))
HARM_DARK = ((0.0, "#251E19"), (0.35, "#7A3A0B"), (0.7, VIOLATION), (1.0, "#FFD0A6"))
BENEFIT_DARK = ((0.0, "#17231F"), (0.35, "#0A5540"), (0.7, COMPLETENESS), (1.0, "#A5EBD2"))
DIVERGING_DARK = ((0.0, "#A8DAF8"), (0.25, "#1F8AC9"), (0.5, "#262C31"), (0.75, INAPPROPRIATE), (1.0, "#FFD0A6"))


@dataclass(frozen=True)
class MapPart:
    """Shares and what they rest on, [rows, columns] each; nan where nothing is there."""

    values: Shares
    pairs: Counts


@dataclass(frozen=True)
class Map:
    """One map: its name and the unit of its counts ('inappropriate pairs'). With `before`, it shows how much higher or
    lower each share is than it was there; nan where either is. maximum: where the scale of shares ends; None: at the
    highest. good: whether high shares are what is wanted, which decides the hue."""

    name: str
    unit: str
    part: MapPart
    before: MapPart | None = None
    maximum: float | None = None
    good: bool = False

    @property
    def values(self) -> Shares:
        difference: Shares = self.part.values if self.before is None else self.part.values - self.before.values
        return difference


@dataclass(frozen=True)
class Ticks:
    """Rows or columns: short names for the ticks, full ones for the pointer. groups: of columns too narrow for names,
    the group of each; then neighbours of one group share a tick. Without groups such columns have every second, third
    ... name, as many as can be read."""

    names: Sequence[str]
    titles: Sequence[str]
    groups: Sequence[str] = ()


def names_fit(columns: int, maps: int, pixels: float = PLOT_WIDTH) -> bool:
    """Return whether names can be read above so many columns in each of so many maps on so many pixels."""
    return columns * maps * SLANTED <= pixels


def phone_width(rows: Sequence[str], columns: Sequence[str]) -> float:
    """Return how many pixels a map has on a phone beside the names of its rows, or of its columns, which reach to the
    left too where they are slanted."""
    left, below = (text_width([html_escaped(name, LONGEST_TICK) for name in names]) for names in (rows, columns))
    return PHONE_WIDTH - max(left, SLANT * below)


def heatmap_figure(
    maps: Sequence[Map],
    rows: Ticks,
    columns: Ticks,
    *,
    title: str,
    subtitle: str,
    numbered: bool | None = None,
    pixels: float = PLOT_WIDTH,
    dark: bool = False,
) -> go.Figure:
    """Draw the maps beside each other in one figure, with one axis of rows. numbered: whether cells show their share;
    None: where there is room. pixels: about how wide all maps are. Written down whole: Plotly takes five times as long
    for a figure that grows by pieces."""
    import plotly.graph_objects as go

    width = pixels / len(maps) / max(1, len(columns.names))
    height = next(high for most, high in ROW_HEIGHTS if len(rows.names) <= most)
    axes, room = _ticks(rows, columns, width)
    data: list[dict[str, Any]] = []
    names: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"yaxis": axes[1], "annotations": names, "images": images}
    # Cells are centred at whole numbers, so the map begins half a cell before 0.
    corner = {"x": -0.5, "y": -0.5, "xanchor": "left", "yanchor": "top", "layer": "above"}
    place = {**corner, "sizex": len(columns.names), "sizey": len(rows.names), "sizing": "stretch"}
    for position, (item, (start, end)) in enumerate(zip(maps, _spans(len(maps)), strict=True)):
        # Plotly calls its axes x, x2, x3; all maps have the one y axis.
        number = "" if position == 0 else str(position + 1)
        on = {"xaxis": f"x{number}", "yaxis": "y"}
        cells = _cells(item, end, dark)
        data.append(cells | on)
        if width >= NUMBERED if numbered is None else numbered:
            data.append(_numbers(item, cells) | on)
        hatch = _hatch(np.isnan(item.values), (width, height))
        if hatch is not None:
            images.append({"source": hatch, "xref": on["xaxis"], "yref": "y", **place})
        layout[f"xaxis{number}"] = {**axes[0], "domain": [start, end], "anchor": "y"}
        between = [start - 0.5 for start, _, _ in _groups(columns.groups)[1:]]
        layout.setdefault("shapes", []).extend({**upright(at, GREY), "xref": on["xaxis"]} for at in between)
        if len(maps) > 1:
            where = {"x": start, "y": 1, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
            text = f"<b>{html_escaped(item.name)}</b>"
            names.append({"text": text, "showarrow": False, "yshift": 4, "font": {"size": 13}, **where})
    lines = textwrap.wrap(" ".join(title.split()), TITLE_CHARACTERS) or [""]
    below = textwrap.wrap(" ".join(subtitle.split()), SUBTITLE_CHARACTERS) or [""]
    further = TITLE_LINE * (len(lines) - 1) + SUBTITLE_LINE * (len(below) - 1)
    # A single map has no name above it.
    head = MAP_HEAD + further - (0 if len(maps) > 1 else 30)
    tall = height * max(1, len(rows.names)) + head + room["b"]
    layout |= {
        "title": {
            "text": "<br>".join(html.escape(line) for line in lines),
            "subtitle": {"text": "<br>".join(map(html_escaped, below))},
            "x": 0,
            "xanchor": "left",
            "y": 1 - (ABOVE + (FIRST_LINE if len(lines) > 1 else 0)) / tall,
            "yref": "container",
            "yanchor": "top",
        },
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {"align": "left"},
        "margin": {"t": head, "r": 8, **room},
        "meta": {**MARGINS_FIT, "xaxis": _tick_names(columns), "yaxis": list(rows.names)},
        "height": tall,
        "dragmode": False,
        "hovermode": "closest",
        # However far the pointer is from a cell's middle.
        "spikedistance": -1,
    }
    return go.Figure({"data": data, "layout": layout})


def _groups(groups: Sequence[str]) -> list[tuple[int, int, str]]:
    """First and last column of each group of neighbours, and its name."""
    ends = [i for i in range(len(groups)) if i + 1 == len(groups) or groups[i] != groups[i + 1]]
    return [(first, last, groups[last]) for first, last in zip([0, *(i + 1 for i in ends)], ends, strict=False)]


def _tick_names(columns: Ticks) -> list[str]:
    return [name for _, _, name in _groups(columns.groups)] or list(columns.names)


def _spans(number: int) -> list[tuple[float, float]]:
    """From where to where each map reaches across the plot, with its colour scale behind it."""
    each = (1.0 - number * BAR - (number - 1) * BETWEEN) / number
    return [(i * (each + BAR + BETWEEN), i * (each + BAR + BETWEEN) + each) for i in range(number)]


def _cells(item: Map, end: float, dark: bool) -> dict[str, Any]:
    values = item.values
    defined = values[~np.isnan(values)]
    highest = max(LEAST_SCALE, float(np.abs(defined).max()) if defined.size else 0.0)
    good, harm, diverging = (BENEFIT_DARK, HARM_DARK, DIVERGING_DARK) if dark else (BENEFIT, HARM, DIVERGING)
    hue = [list(stop) for stop in (good if item.good else harm)]
    scale: dict[str, Any] = {"colorscale": hue, "zmin": 0, "zmax": item.maximum or highest}
    if item.before is not None:
        # As far below 0 as above, so that the colour of the middle always means no change.
        scale = {"colorscale": [list(stop) for stop in diverging], "zmin": -highest, "zmax": highest}
    sign = "" if item.before is None else "+"
    form = ".1%" if scale["zmax"] < FINE else ".0%"
    bar = {"tickformat": f"{sign}{form}", "thickness": 10, "outlinewidth": 0, "len": 1, "x": end + 0.004, "xpad": 0}
    return {
        "type": "heatmap",
        # Lists: of packed arrays Plotly makes new ones whenever it is handed the figure, and draws them again.
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
    """Return the share of each cell as a text on it, black or white, whichever is further from the cell's colour. What
    Plotly itself writes on a heatmap is grey on the colours of the middle."""
    from plotly.colors import sample_colorscale

    there = np.argwhere(~np.isnan(item.values))
    shares = item.values[there[:, 0], there[:, 1]]
    places = np.clip((shares - cells["zmin"]) / (cells["zmax"] - cells["zmin"]), 0, 1).tolist()
    sign = "" if item.before is None else "+"
    inks = [_ink(colour) for colour in sample_colorscale(cells["colorscale"], places)]
    texts = [f"{share:{sign}.0%}" for share in shares.tolist()]
    x, y = there[:, 1].tolist(), there[:, 0].tolist()
    return scatter(x, y, "text", text=texts, textfont={"color": inks, "size": 12}, showlegend=False)


def _ink(colour: str) -> str:
    """Black or white for a text on 'rgb(r, g, b)': the one of these two has a contrast of 4.5 at least, what WCAG 2
    (1.4.3) asks for."""
    parts = [float(part) / 255 for part in colour[4:-1].split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    luminance = float(np.dot(linear, (0.2126, 0.7152, 0.0722)))
    return "#000000" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "#FFFFFF"


def tooltips(maps: Sequence[Map], rows: Ticks, columns: Ticks) -> Tooltips:
    """Return the text that the pointer reads in each cell, for `draw`. It is not a part of the chart: Streamlit goes
    through the text of a chart dozens of times before it is drawn."""
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
    return [shortened(title, 90) for title in titles]


def _cell(shares: list[float], pairs: list[int], unit: str) -> str:
    """'12.4 % of 34 inappropriate pairs', of two runs '12.4 % to 20.0 % (+7.6 points) of 34 and 34 ...'."""
    if len(shares) == 1:
        return f"{percent(shares[0])} of {count(pairs[0])} {unit}" if pairs[0] else f"no {unit}"
    if not all(pairs):
        parts = [f"{percent(share)} of {count(n)}" if n else "none" for share, n in zip(shares, pairs, strict=True)]
        return f"{parts[0]} and {parts[1]} {unit}" if any(pairs) else f"no {unit}"
    points = 100 * (shares[1] - shares[0])
    return (
        f"{percent(shares[0])} to {percent(shares[1])} ({points:+.1f} points) "
        f"of {count(pairs[0])} and {count(pairs[1])} {unit}"
    )


def _ticks(rows: Ticks, columns: Ticks, width: float) -> tuple[tuple[dict[str, Any], dict[str, Any]], dict[str, int]]:
    """Return the axes of columns and rows with their names, and the margins that hold these, computed here: left to
    Plotly, the chart is laid out several times over."""
    axis = {
        "tickmode": "array",
        "showgrid": False,
        "zeroline": False,
        "ticks": "",
        "ticklabeloverflow": "allow",
        "spikecolor": "rgba(128,128,128,.9)",
        "showspikes": True,
        "spikemode": "across",
        "spikesnap": "data",
        # Under a spike Plotly draws a line two pixels wider in the colour of the paper: at -2 that one has no width,
        # and the spike itself the browser's default of 1.
        "spikethickness": -2,
        "spikedash": "solid",
    }
    middles = [(first + last) / 2 for first, last, _ in _groups(columns.groups)]
    if columns.groups:
        # Of neighbours that are closer, slanted names would lie on each other.
        apart = min(np.diff(middles), default=math.inf) * width
        angle = -40 if apart >= SLANTED_GROUPS else -90
        ticks = _spaced([html_escaped(name, LONGEST_TICK) for name in _tick_names(columns)], middles, width)
    elif width >= UPRIGHT:
        room = int(width / CHARACTER_WIDTH) - 1
        below = [textwrap.wrap(" ".join(n.split()), room, max_lines=3, placeholder="…") or [""] for n in columns.names]
        ticks = ["<br>".join(html.escape(line) for line in lines) for lines in below]
        angle = 0
    else:
        angle = -40 if width >= SLANTED else -90
        limit = LONGEST_TICK if angle == -40 else NARROW
        ticks = _spaced([html_escaped(name, limit) for name in columns.names], range(len(columns.names)), width)
    if angle:
        # Of a text at 40 degrees: its height is sin 40 = 0.64 of its length.
        bottom = round(text_width(ticks) * (0.65 if angle == -40 else 0.85)) + 18
    else:
        bottom = 17 * max((len(lines) for lines in below), default=1) + 14
    size = 12 if columns.groups else 11 if width >= SLANTED else 10
    xaxis = {
        **axis,
        "range": [-0.5, len(columns.names) - 0.5],
        "tickvals": middles or list(range(len(columns.names))),
        "ticktext": ticks,
        "tickangle": angle,
        "tickfont": {"size": size},
    }
    left = [html_escaped(name, LONGEST_TICK) for name in rows.names]
    yaxis = {
        **axis,
        # From the last to the first: row 0 is on top.
        "range": [len(rows.names) - 0.5, -0.5],
        "tickvals": list(range(len(rows.names))),
        "ticktext": left,
        "tickfont": {"size": 12 if len(rows.names) <= ROW_HEIGHTS[0][0] else 10},
    }
    slanted = text_width(ticks) * SLANT if angle == -40 else 0
    return (xaxis, yaxis), {"l": round(max(text_width(left), slanted)) + 14, "b": bottom}


def _spaced(names: Sequence[str], places: Sequence[float], width: float) -> list[str]:
    """Return the names of columns or their groups, '' instead of those that would lie on the one before."""
    ticks, last = [], -math.inf
    for name, place in zip(names, places, strict=True):
        fits = (place - last) * width >= TURNED
        ticks.append(name if fits else "")
        last = place if fits else last
    return ticks


def _hatch(empty: Bools, size: tuple[float, float]) -> str | None:
    """Hatched cells as an image as large as the map, for `layout.images`; None where no cell is empty. size: of a cell,
    in pixels. Lines on the chart would cost the browser as much as all the rest of it."""
    cells = np.argwhere(empty)
    if not len(cells):
        return None
    # Boxes are 4 narrower than their cells; of narrow cells, which are stretched alike, half is left.
    width, height = max(8.0, size[0]), size[1]
    # Two pixels of air on each side, so that neighbouring cells stay apart.
    boxes = "".join(
        f"M{column * width + 2:.1f} {row * height + 2:.1f}h{width - 4:.1f}v{height - 4:.1f}h{4 - width:.1f}z"
        for row, column in cells.tolist()
    )
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {empty.shape[1] * width:.1f} '
        f'{empty.shape[0] * height:.1f}" preserveAspectRatio="none"><pattern id="h" width="{HATCH}" height="{HATCH}" '
        f'patternUnits="userSpaceOnUse"><path d="M-1 1l2-2M0 {HATCH}l{HATCH}-{HATCH}M{HATCH - 1} {HATCH + 1}l2-2" '
        f'stroke="#808080" stroke-opacity=".6"/></pattern><path d="{boxes}" fill="url(#h)"/></svg>'
    )
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()

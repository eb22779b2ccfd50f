"""Lines: shares over counted steps, named at their right end, with bands, in steps or straight.

Lines are told apart by their names at the end and by their dashes, never by colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cimemories.charts.theme import CHARACTER_WIDTH, FINE, GRID, HEAD, MARGINS_FIT, faint, layout, scatter
from cimemories.text import html_escaped, percent

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

BLUES = ("#56B4E9", "#2E97D6", "#0072B2")  # few samples to many
FOOT = 46  # pixels below the plot
FEW_TICKS = 8  # an x axis that ends there or before has a mark at each step
END_GAP = 15  # pixels that two names at the right end keep apart
SHARES = {"zeroline": False, "gridcolor": GRID, "rangemode": "tozero"}


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


def shade(index: int, of: int) -> str:
    """A blue for the line at this index (from 0) of so many that belong together, from light to dark: '#2E97D6'."""
    if of < 2:
        return BLUES[-1]
    where = index / (of - 1) * (len(BLUES) - 1)
    left = min(int(where), len(BLUES) - 2)
    share = where - left
    ends = [[int(blue[i : i + 2], 16) for i in (1, 3, 5)] for blue in BLUES[left : left + 2]]
    return "#" + "".join(f"{round(a * (1 - share) + b * share):02X}" for a, b in zip(*ends, strict=True))


def mean_line(
    part: pd.DataFrame, name: str, colour: str, column: str = "share", *, band: bool = False, dash: str = "solid"
) -> Line:
    """Return the line of a column over tasks. part: the rows of one n (`Accumulation.frame`). band: with the interval
    of the share, and the last value in its name."""
    value, low, high = (part[side].tolist() for side in (column, "share_low", "share_high"))
    return Line(
        name,
        part["tasks"].tolist(),
        value,
        colour,
        low=low if band else (),
        high=high if band else (),
        dash=dash,
        end=f"{name}, {percent(value[-1])}" if band else name,
        note=[f"[{a * 100:.1f}, {b * 100:.1f}]" for a, b in zip(low, high, strict=True)] if band else (),
    )


def line_figure(
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

    # v == v is false of nan alone.
    highest = max([v for line in lines for v in (*line.y, *line.high) if v is not None and v == v], default=0.0)
    top = most or max(0.01, min(1.0, highest) * 1.06)
    longest = max((len(line.end) for line in lines), default=0)
    dotted = {"type": "line", "y0": 0, "y1": 1, "line": {"color": "rgba(128,128,128,.6)", "width": 1, "dash": "dot"}}
    at = {"xref": "x", "yref": "paper"}
    look = {"showarrow": False, "xanchor": "right", "yanchor": "bottom", "font": {"size": 11}}
    right = round(longest * (CHARACTER_WIDTH + 0.6)) + 14
    furthest = max((float(x) for line in lines for x in line.x), default=0.0)
    return go.Figure(
        data=[*(_band(line) for line in lines if line.low and line.high), *(_trace(line) for line in lines)],
        layout={
            **layout(title=title, subtitle=subtitle),
            "margin": {"l": 52, "r": right, "t": HEAD, "b": FOOT},
            "meta": MARGINS_FIT,
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
                # Of a few tasks Plotly would mark halves too, and write each number twice.
                "dtick": 1 if furthest <= FEW_TICKS else None,
            },
            "annotations": [
                *_ends(lines, top, height),
                *([{**at, **look, "x": mark[0], "y": 0.01, "text": html_escaped(mark[1])}] if mark else []),
            ],
            "shapes": [{**at, **dotted, "x0": mark[0], "x1": mark[0]}] if mark else [],
        },
    )


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
    fill: dict[str, Any] = {"fill": "toself", "fillcolor": faint(line.colour, 0.16), "line": {"width": 0}}
    # Forth along the upper side and back along the lower one, which closes the area.
    return scatter(x + x[::-1], high + low[::-1], "lines", **fill)


def _corners(line: Line, side: Sequence[float | None]) -> tuple[list[float], list[float | None]]:
    """Return the points of one side of a band; in steps with all their corners, since it is walked forth and back."""
    x, y = list(line.x), list(side)
    if not line.steps:
        return x, y
    return [x[(i + 1) // 2] for i in range(2 * len(x) - 1)], [y[i // 2] for i in range(2 * len(y) - 1)]


def _ends(lines: Sequence[Line], top: float, height: int) -> list[dict[str, Any]]:
    """Return the names at the right ends, pushed apart from the lowest up and down again where they would leave the
    plot."""
    room = height - HEAD - FOOT
    named = sorted(
        ((line, float(line.y[-1] or 0.0)) for line in lines if line.end and line.y), key=lambda pair: pair[1]
    )
    # END_GAP pixels as a share, on an axis that ends near `top`.
    heights = spread([value for _, value in named], top * END_GAP / room, 0.0, top)
    look = {"x": 1, "xref": "paper", "showarrow": False, "xanchor": "left", "xshift": 6, "font": {"size": 12}}
    return [{**look, "y": y, "text": html_escaped(line.end)} for (line, _), y in zip(named, heights, strict=True)]


def spread(heights: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Positions as near as possible to the wanted ones, in their order, at least `apart` from each other, inside low to
    high as far as they fit: pushed up from the lowest, then down again from the highest where they leave the range."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    positions = [0.0] * len(heights)
    last = -math.inf
    for i in order:
        last = positions[i] = max(heights[i], last + apart, low)
    limit = high
    for i in reversed(order):
        positions[i] = min(positions[i], limit)
        # Into the room that is left below; with too many of them the lowest end below `low`.
        limit = positions[i] - apart
    return positions

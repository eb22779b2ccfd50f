"""Line charts of shares over counted steps: named at their right end, with bands, in steps or straight.

Lines are told apart by their names at the end and by their dashes, never by colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cimemories.ui.charts import CHARACTER_WIDTH, escaped, figure_layout
from cimemories.ui.tables import percent

if TYPE_CHECKING:
    import plotly.graph_objects as go

GREY = "#808890"
BLUES = ("#56B4E9", "#2E97D6", "#0072B2")  # few samples to many
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

    fig = go.Figure()
    for line in lines:
        if line.low and line.high:
            _band(fig, line)
    for line in lines:
        notes = list(line.note) or [""] * len(line.x)
        fig.add_scatter(
            x=list(line.x),
            y=list(line.y),
            mode="lines",
            name=line.name,
            line={
                "color": line.colour,
                "dash": line.dash,
                "width": line.width,
                "shape": "hv" if line.steps else "linear",
            },
            customdata=[escaped(note) for note in notes],
            hovertemplate="%{y:.1%} %{customdata}",
            showlegend=False,
        )
    highest = max([v for line in lines for v in (*line.y, *line.high) if v is not None and v == v], default=0.0)
    top = most or max(0.01, min(1.0, highest) * 1.06)
    figure_layout(fig, title=title, subtitle=subtitle)
    _ends(fig, lines, top, height)
    fig.update_yaxes(**SHARES, range=[0, top * 1.03], tickformat=".1%" if top < FINE else ".0%")
    fig.update_xaxes(title={"text": escaped(x_title)}, showgrid=False, zeroline=False, tickformat="d")
    longest = max((len(line.end) for line in lines), default=0)
    fig.update_layout(
        height=height,
        margin={"l": 52, "r": round(longest * (CHARACTER_WIDTH + 0.6)) + 14, "t": 66, "b": 46},
        hovermode="x unified",
        dragmode=False,
    )
    if mark is not None:
        fig.add_vline(x=mark[0], line={"color": "rgba(128,128,128,.6)", "width": 1, "dash": "dot"})
        fig.add_annotation(
            x=mark[0], y=0.02, yref="paper", text=escaped(mark[1]), showarrow=False, xanchor="right", font={"size": 11}
        )
    return fig


def said(value: float | None, low: float | None, high: float | None) -> str:
    """A share with its interval: '12.4 % [10.1, 14.9]'."""
    if low is None or high is None or low != low or high != high:
        return percent(value)
    return f"{percent(value)} [{low * 100:.1f}, {high * 100:.1f}]"


def _band(fig: go.Figure, line: Line) -> None:
    x = list(line.x)
    red, green, blue = (int(line.colour[i : i + 2], 16) for i in (1, 3, 5))
    fig.add_scatter(
        x=x + x[::-1],
        y=[*line.high, *reversed(line.low)],
        mode="lines",
        fill="toself",
        fillcolor=f"rgba({red},{green},{blue},.16)",
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
    )


def _ends(fig: go.Figure, lines: Sequence[Line], top: float, height: int) -> None:
    """The names at the right ends, pushed apart from the lowest up and down again where they would leave the plot."""
    room = height - 66 - 46
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
    for (line, _), place in zip(named, places, strict=True):
        fig.add_annotation(
            x=1,
            xref="paper",
            y=place,
            text=escaped(line.end),
            showarrow=False,
            xanchor="left",
            xshift=6,
            font={"size": 12},
        )


def _between(first: str, second: str, share: float) -> str:
    parts = [round(int(first[i : i + 2], 16) * (1 - share) + int(second[i : i + 2], 16) * share) for i in (1, 3, 5)]
    return "#" + "".join(f"{part:02X}" for part in parts)

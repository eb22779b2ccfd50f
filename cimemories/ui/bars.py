"""Bar charts: parts of a whole by row, counts by row, and shares before and after. Colours and glyphs as everywhere."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cimemories.model import Label
from cimemories.ui.charts import CHARACTER_WIDTH, COLOURS, LONGEST_TICK, escaped, figure_layout, show
from cimemories.ui.safe import GLYPHS
from cimemories.ui.tables import count as as_count
from cimemories.ui.tables import percent

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

BAR_HEIGHT = 28
WIDE_ENOUGH = 0.045  # of a bar, for glyph and share to stand in it
TRIED = "#56B4E9"


@dataclass(frozen=True)
class Part:
    """One part of a whole in stacked bars: the column with its counts, its name and glyph, and its colour. `pattern`
    is a Plotly shape ('/', 'x', '.'), for parts whose colour alone would not tell them apart."""

    column: str
    name: str
    glyph: str
    colour: str
    pattern: str = ""


# Ambiguous between the two others, so that what survives lies at either end.
LABEL_PARTS = tuple(
    Part(str(label), str(label), GLYPHS[label], COLOURS[label])
    for label in (Label.NECESSARY, Label.AMBIGUOUS, Label.INAPPROPRIATE)
)


def share_bars(
    frame: pd.DataFrame,
    parts: Sequence[Part],
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
    import plotly.graph_objects as go

    whole = frame[[part.column for part in parts]].sum(axis=1)
    fig = go.Figure()
    for part in parts:
        if not frame[part.column].any():
            continue  # nothing to see, and nothing to explain in the legend
        shares = [n / total if total else 0.0 for n, total in zip(frame[part.column], whole, strict=True)]
        fig.add_bar(
            y=list(range(len(frame))),
            x=shares,
            orientation="h",
            name=part.name,
            marker={
                "color": part.colour,
                "pattern": {"shape": part.pattern, "fgcolor": "rgba(17,17,17,.55)", "size": 5, "fillmode": "overlay"},
            },
            text=[f"{part.glyph} {100 * share:.0f} %".strip() if share >= WIDE_ENOUGH else "" for share in shares],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"color": "#111", "size": 11},
            hovertext=[
                f"<b>{escaped(row, 90)}</b><br>{escaped(part.name)}: {percent(share)}, "
                f"{as_count(n)} of {as_count(total)} {escaped(unit)}"
                for row, share, n, total in zip(frame[name], shares, frame[part.column], whole, strict=True)
            ],
            hoverinfo="text",
        )
    fig.update_layout(barmode="stack", bargap=0.22)
    fig.update_xaxes(range=[0, 1], tickformat=".0%", showgrid=False, zeroline=False)
    _rows(fig, [str(row) for row in frame[name]], title, subtitle)
    show(fig, key=key, alt=alt)


def counted_bars(
    frame: pd.DataFrame, *, name: str, count: str, colour: str, title: str, subtitle: str, key: str, unit: str, alt: str
) -> None:
    """One bar a row of `frame`, as long as its count, with the count and its share of all beside it; first row on
    top."""
    import plotly.graph_objects as go

    total = int(frame[count].sum())
    said = [f"{as_count(n)} ({percent(n / total)})" if total else "" for n in frame[count]]
    fig = go.Figure()
    fig.add_bar(
        y=list(range(len(frame))),
        x=frame[count].tolist(),
        orientation="h",
        marker={"color": colour},
        text=said,
        textposition="outside",
        cliponaxis=False,
        hovertext=[
            f"<b>{escaped(row, 90)}</b><br>{text} {escaped(unit)}" for row, text in zip(frame[name], said, strict=True)
        ],
        hoverinfo="text",
        showlegend=False,
    )
    fig.update_layout(bargap=0.3)
    most = float(frame[count].max()) if len(frame) else 0.0
    fig.update_xaxes(range=[0, (most or 1.0) * 1.25], showgrid=False, zeroline=False, showticklabels=False)
    _rows(fig, [str(row) for row in frame[name]], title, subtitle, legend=False)
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
    count: str,
    unit: str,
) -> None:
    """Two shares a row of `frame`, joined by a line: an open circle for what is, a filled diamond for what would be."""
    import plotly.graph_objects as go

    places = list(range(len(frame)))
    fig = go.Figure()
    joined: list[float | None] = []
    heights: list[float | None] = []
    for place, old, new in zip(places, frame[before], frame[after], strict=True):
        joined += [old, new, None]
        heights += [place, place, None]
    line = {"color": "rgba(128,128,128,.75)", "width": 3}
    fig.add_scatter(x=joined, y=heights, mode="lines", line=line, hoverinfo="skip", showlegend=False)
    looks = [
        (before, "rule that holds", {"symbol": "circle-open", "size": 11, "color": "#808890", "line": {"width": 2.5}}),
        (after, "rule that is tried", {"symbol": "diamond", "size": 11, "color": TRIED}),
    ]
    for column, words, marker in looks:
        fig.add_scatter(
            x=frame[column].tolist(),
            y=places,
            mode="markers",
            name=words,
            marker=marker,
            hovertext=[
                f"<b>{escaped(row, 90)}</b><br>{words}: {percent(share)} of {as_count(n)} {escaped(unit)}"
                for row, share, n in zip(frame[name], frame[column], frame[count], strict=True)
            ],
            hoverinfo="text",
        )
    fig.update_xaxes(range=[-0.02, 1.02], tickformat=".0%", zeroline=False, gridcolor="rgba(128,128,128,.25)")
    _rows(fig, [str(row) for row in frame[name]], title, subtitle)
    show(fig, key=key, alt=alt)


def _rows(fig: go.Figure, names: list[str], title: str, subtitle: str, *, legend: bool = True) -> None:
    """Named rows from top to bottom, the legend under the plot, margins that hold the names."""
    ticks = [escaped(text, LONGEST_TICK) for text in names]
    longest = max((len(html.unescape(text)) for text in ticks), default=0)
    figure_layout(fig, title=title, subtitle=subtitle)
    fig.update_yaxes(
        tickmode="array",
        tickvals=list(range(len(names))),
        ticktext=ticks,
        range=[len(names) - 0.5, -0.5],
        showgrid=False,
        zeroline=False,
        ticks="",
    )
    below = 62 if legend else 12
    fig.update_layout(
        margin={"l": round(longest * CHARACTER_WIDTH) + 14, "r": 30, "t": 66, "b": below},
        height=BAR_HEIGHT * len(names) + 66 + below,
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        showlegend=legend,
        dragmode=False,
    )

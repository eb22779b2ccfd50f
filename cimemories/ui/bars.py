"""Bar charts: parts of a whole by row, counts by row, and shares before and after. Colours and glyphs as everywhere."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cimemories.model import Label
from cimemories.ui.charts import CHARACTER_WIDTH, COLOURS, LONGEST_TICK, ROOM_MADE, escaped, layout, show
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
    whole = frame[[part.column for part in parts]].sum(axis=1)
    traces: list[dict[str, Any]] = []
    for part in parts:
        if not frame[part.column].any():
            continue  # nothing to see, and nothing to explain in the legend
        shares = [n / total if total else 0.0 for n, total in zip(frame[part.column], whole, strict=True)]
        pattern = {"shape": part.pattern, "fgcolor": "rgba(17,17,17,.55)", "size": 5, "fillmode": "overlay"}
        said = [
            f"<b>{escaped(row, 90)}</b><br>{escaped(part.name)}: {percent(share)}, "
            f"{as_count(n)} of {as_count(total)} {escaped(unit)}"
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
    frame: pd.DataFrame, *, name: str, count: str, colour: str, title: str, subtitle: str, key: str, unit: str, alt: str
) -> None:
    """One bar a row of `frame`, as long as its count, with the count and its share of all beside it; first row on
    top."""
    total = int(frame[count].sum())
    said = [f"{as_count(n)} ({percent(n / total)})" if total else "" for n in frame[count]]
    hover = [
        f"<b>{escaped(row, 90)}</b><br>{text} {escaped(unit)}" for row, text in zip(frame[name], said, strict=True)
    ]
    trace = {
        **_bar(frame[count].tolist(), hover),
        "marker": {"color": colour},
        "text": said,
        "textposition": "outside",
        "cliponaxis": False,
        "showlegend": False,
    }
    most = float(frame[count].max()) if len(frame) else 0.0
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
    count: str,
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
            f"<b>{escaped(row, 90)}</b><br>{words}: {percent(share)} of {as_count(n)} {escaped(unit)}"
            for row, share, n in zip(frame[name], frame[column], frame[count], strict=True)
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

    ticks = [escaped(text, LONGEST_TICK) for text in names]
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

"""Charts: the app's colours, and a layout that serves both themes.

Plotly reads some HTML in hover texts, tick labels and titles, so every text that is data is escaped here. Its own
camera is taken away: its images would not say that something is simulated or what it rests on; ui.exports makes those.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import streamlit as st

from cimemories.model import Label
from cimemories.ui.style import AMBIGUOUS, INAPPROPRIATE, MODEL, NECESSARY, SIMULATED

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["COLOURS", "MODEL", "SIMULATED", "escaped", "layout", "show"]

COLOURS = {Label.NECESSARY: NECESSARY, Label.INAPPROPRIATE: INAPPROPRIATE, Label.AMBIGUOUS: AMBIGUOUS}
CONFIG = {
    "displaylogo": False,
    "doubleClick": False,
    "modeBarButtonsToRemove": ["toImage", "select2d", "lasso2d", "autoScale2d"],
}
LONGEST_TICK = 34
CHARACTER_WIDTH = 6.2  # pixels, of a tick label at Streamlit's size


def escaped(text: object, limit: int | None = None) -> str:
    """Text for a hover box, tick label or title: none of it is read as HTML."""
    line = " ".join(str(text).split())
    if limit is not None and len(line) > limit:
        line = line[: limit - 1] + "…"
    return html.escape(line)


def layout(*, title: str = "", subtitle: str = "") -> dict[str, Any]:
    """No background and no font colour of its own: Streamlit's theme gives both.

    To be added to, and given to go.Figure with the data: a figure that grows by pieces takes three times as long.
    """
    return {
        "title": {"text": escaped(title), "subtitle": {"text": escaped(subtitle)}, "x": 0, "xanchor": "left"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 8, "t": 64 if title and subtitle else 44 if title else 8, "b": 8},
        "hoverlabel": {"align": "left"},
    }


def show(fig: go.Figure, *, key: str, alt: str) -> None:
    """Draw a figure that only shows; `alt` says in words what can be seen."""
    st.plotly_chart(fig, key=key, alt=alt, config=CONFIG)

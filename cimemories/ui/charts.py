"""Charts: the app's colours, and a layout that serves both themes.

Plotly reads some HTML in hover texts, tick labels and titles, so every text that is data is escaped here. Its own
camera is taken away: its images would not say that something is simulated or what it rests on; ui.exports makes those.
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import streamlit as st
from plotly.basedatatypes import BaseFigure
from plotly.io import to_json

from cimemories.model import Label
from cimemories.texts import visible
from cimemories.ui.style import AMBIGUOUS, INAPPROPRIATE, MODEL, NECESSARY, SIMULATED

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["COLOURS", "MODEL", "ROOM_MADE", "SIMULATED", "dressed", "escaped", "layout", "show"]

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


def escaped(text: object, limit: int | None = None) -> str:
    """Text for a hover box, tick label or title: none of it is read as HTML."""
    line = visible(" ".join(str(text).split()))
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

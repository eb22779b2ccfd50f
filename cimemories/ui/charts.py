"""Plotly figures shown on a page, in the app's own look, which serves the light and the dark theme.

Plotly's own camera is removed: its images would not say that something is simulated or what the numbers rest on;
ui.exports makes those."""

from __future__ import annotations

import hashlib
import html
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import streamlit as st
from plotly.basedatatypes import BaseFigure
from plotly.io import to_json

from cimemories.charts.heatmap import Cell, Tooltips
from cimemories.charts.theme import GRID, MARGINS_FIT, MODEL
from cimemories.ui import component, shell

if TYPE_CHECKING:
    import plotly.graph_objects as go

CONFIG = {
    "displaylogo": False,
    "doubleClick": False,
    "modeBarButtonsToRemove": ["toImage", "select2d", "lasso2d", "autoScale2d"],
}
FONT = '"Source Sans", sans-serif'
INK = "#7f8081"  # stands for the page's text colour, see style.css; no figure may use this colour itself
TIP = "#2a3238"  # behind hover texts, in the light and in the dark theme
LOOK: Mapping[str, Any] = {
    "font": {"family": FONT, "size": 11.25, "color": INK},
    "title": {"font": {"size": 15, "weight": 650}, "subtitle": {"font": {"size": 11}}, "pad": {"l": 4}},
    "margin": {"pad": 8},
    "hoverlabel": {"bgcolor": TIP, "bordercolor": TIP, "font": {"family": FONT, "size": 12, "color": "#f2f4f6"}},
    "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "rgba(128,128,128,.9)", "activecolor": MODEL},
    "xaxis": {},
    "yaxis": {},
}
AXIS: Mapping[str, Any] = {"gridcolor": GRID, "zerolinecolor": GRID}
X_AXIS: Mapping[str, Any] = {"showgrid": False, "zeroline": False}
AXIS_TITLE: Mapping[str, Any] = {"title": {"standoff": 20, "font": {"size": 13}}}
# Characters in a line of a title and of a subtitle, by screen; with two charts beside each other on it. A letter takes
# about 7 and 4.6 pixels, and the narrowest screen of each name leaves 570, 470 (beside the menu), 700 and 900 pixels.
TITLE_LINES = {shell.PHONE: (34, 52), shell.TABLET: (64, 98), shell.NARROW: (94, 144), shell.LAPTOP: (122, 186)}
TITLE_LINES_HALF = {**TITLE_LINES, shell.TABLET: (28, 42), shell.NARROW: (44, 68), shell.LAPTOP: (57, 88)}
TITLE_HEIGHT, SUBTITLE_HEIGHT = 20, 14  # pixels of a line
PHONE_AXIS = 28, 17  # characters in a line of the titles of x axes beside each other, and its pixels
PHONE_NOTE = 18  # characters in a line of a note that ends at a mark in the plot
PHONE_LEGEND = 19  # pixels of an entry of a legend
ABOVE = 18
PLOTLY_HEIGHT = 450  # of a figure without one
_component = component("grids")


class Dressed(BaseFigure):  # type: ignore[misc]
    """A figure for the browser. Streamlit asks it only for `to_dict`; a plain dict it would check once more."""

    def __init__(self, spec: dict[str, Any]) -> None:
        # Bypasses Plotly's __setattr__, which refuses unknown names.
        object.__setattr__(self, "spec", spec)

    def to_dict(self) -> dict[str, Any]:
        return dict(self.spec)


def dressed(fig: go.Figure, *, half: bool = False) -> Dressed:
    """Return the figure with its look, and with a name for its data; `fig` itself stays as it is, for exports. half: it
    stands beside another one.

    Streamlit hands every figure to Plotly two or three times, each time as a copy. With a template, which Streamlit's
    own theme always gives, or without a `datarevision`, Plotly takes each copy for another figure and draws it again;
    and the theme makes it measure labels by drawing once more, although our margins hold them already. So the theme is
    not used. Its settings are made here, except the colours of texts: they get INK, which stands for the text colour of
    the page and which style.css replaces by it, in the light and in the dark."""
    spec = fig.to_dict()  # a copy, so the figure itself stays as it is
    layout = spec.setdefault("layout", {})
    layout.pop("template", None)
    # Removed, since Plotly takes any copy of `meta` for another layout.
    margins_fit = (layout.pop("meta", None) or {}).get("margins") == MARGINS_FIT["margins"]
    screen = shell.screen()
    if limits := (TITLE_LINES_HALF if half else TITLE_LINES).get(screen):
        _wrap_title(layout, *limits)
    if screen == shell.PHONE:
        _wrap_axis(layout)
        _unfold_legend(spec)
        for note in layout.get("annotations") or ():
            if note.get("xanchor") == "right":  # it would run over the axis, and beyond the edge
                note["text"], note["align"] = "<br>".join(_lines(str(note["text"]), PHONE_NOTE)), "right"
        for trace in spec["data"]:
            # Beside the longest bar there is no room for its number: it stands inside, since the bar is long enough.
            if trace.get("type") == "bar" and trace.get("textposition") == "outside":
                trace |= {"textposition": "auto", "textangle": 0}
    _fill(layout, LOOK)
    for name in [*layout]:
        if name.startswith(("xaxis", "yaxis")):
            axis = layout[name]
            _fill(axis, AXIS)
            _fill(axis, {"automargin": not margins_fit})
            if name.startswith("x"):
                _fill(axis, X_AXIS)
            if (axis.get("title") or {}).get("text"):
                _fill(axis, AXIS_TITLE)
    layout["datarevision"] = hashlib.sha256(to_json(spec, validate=False).encode("utf-8", "surrogatepass")).hexdigest()
    return Dressed(spec)


def _wrap_title(layout: dict[str, Any], characters: int, characters_below: int) -> None:
    """Break title and subtitle into lines of so many characters: Plotly cuts them at the edge. Head and height grow
    together, so that the plot keeps its size."""
    title = layout.get("title") or {}
    more = 0
    parts = (title, characters, TITLE_HEIGHT), (title.get("subtitle") or {}, characters_below, SUBTITLE_HEIGHT)
    for text, width, high in parts:
        if text.get("text"):
            before = str(text["text"]).split("<br>")
            lines = _lines(" ".join(before), width)
            text["text"] = "<br>".join(lines)
            more += high * (len(lines) - len(before))
    if not more:
        return
    layout["height"] = (layout.get("height") or PLOTLY_HEIGHT) + more
    margin = layout.setdefault("margin", {})
    margin["t"] = (margin.get("t") or 0) + more
    title |= {"y": 1 - ABOVE / layout["height"], "yref": "container", "yanchor": "top"}


def _wrap_axis(layout: dict[str, Any]) -> None:
    """Break titles of x axes, above the legend, into lines."""
    titles = [layout[name].get("title") or {} for name in layout if name.startswith("xaxis")]
    titles = [title for title in titles if title.get("text")]
    wrapped = [_lines(str(title["text"]), PHONE_AXIS[0] // len(titles)) for title in titles]
    for title, lines in zip(titles, wrapped, strict=True):
        title["text"] = "<br>".join(lines)
    _lengthen(layout, PHONE_AXIS[1] * (max(map(len, wrapped), default=1) - 1))


def _unfold_legend(spec: dict[str, Any]) -> None:
    """Make room for a legend under the plot. Plotly gives each entry its own line if they do not fit into one: they
    would lie over the axis, and the last behind a scroll bar."""
    layout = spec["layout"]
    if (layout.get("legend") or {}).get("orientation") != "h" or layout.get("showlegend") is False:
        return
    entries = sum(trace.get("showlegend") is not False and bool(trace.get("name")) for trace in spec["data"])
    _lengthen(layout, PHONE_LEGEND * (entries - 1))


def _lengthen(layout: dict[str, Any], more: int) -> None:
    """Add so many pixels under the plot, which keeps its size."""
    if more <= 0:
        return
    layout["height"] = (layout.get("height") or PLOTLY_HEIGHT) + more
    margin = layout.setdefault("margin", {})
    margin["b"] = (margin.get("b") or 0) + more


def _lines(text: str, characters: int) -> list[str]:
    """Return a text of a figure in lines of so many characters, escaped as it was."""
    # A number keeps its percent sign.
    whole = html.unescape(text).replace(" %", "\N{NO-BREAK SPACE}%")
    return [html.escape(line) for line in textwrap.wrap(whole, characters)]


def _fill(spec: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """Set each missing value to its default."""
    for name, value in defaults.items():
        if isinstance(value, Mapping):
            _fill(spec.setdefault(name, {}), value)
        elif spec.get(name) is None:
            spec[name] = value


def show(fig: go.Figure, *, key: str, alt: str, half: bool = False) -> None:
    """Draw a figure without clicks; `alt` describes it in words. half: it stands beside another one."""
    st.plotly_chart(dressed(fig, half=half), key=key, alt=alt, config=CONFIG, theme=None)


def show_rows(fig: go.Figure, *, key: str, alt: str, rows: int) -> int | None:
    """Draw bars, a row each, and return the position of the row, of so many, that was clicked; None without a click. A
    click stays in later runs, so it has to lead to another page."""
    options: dict[str, Any] = {"on_select": "rerun", "selection_mode": "points"}
    event = st.plotly_chart(dressed(fig), key=key, alt=alt, config=CONFIG, theme=None, **options)
    return clicked_row(event, rows)


def clicked_row(event: object, rows: int) -> int | None:
    """Return the row, of so many, that a click on bars names. A browser may send anything."""
    selection = event.get("selection") if isinstance(event, Mapping) else None
    points = selection.get("points") if isinstance(selection, Mapping) else None
    point = points[0] if isinstance(points, list) and points else None
    row = point.get("y") if isinstance(point, Mapping) else None
    return row if isinstance(row, int) and not isinstance(row, bool) and 0 <= row < rows else None


def show_heatmap(fig: go.Figure, tooltips: Tooltips, *, key: str, alt: str, selected: Cell | None) -> None:
    """Draw a `heatmap_figure` with one cell framed, and its tooltips. In the next run of the page `clicked_cell` tells
    which cell was clicked."""
    # The key becomes a CSS class (st-key-...), by which grids.js finds the chart: a full stop would end its selector's
    # name.
    box = f"{key.replace('.', '-')}-maps"
    with st.container(key=box):
        st.plotly_chart(dressed(fig), key=f"{key}.chart", alt=alt, config=CONFIG, theme=None)
        data = {"box": box, "selected": selected, "tooltips": tooltips}
        _component(key=key, data=data, on_cell_change=lambda: None)


def clicked_cell(key: str, rows: int, columns: int) -> Cell | None:
    """Return the (row, column), of so many, clicked since the last run. A browser may send anything."""
    cell = (st.session_state.get(key) or {}).get("cell")
    if not isinstance(cell, list) or len(cell) != 2 or not all(isinstance(i, int) and i >= 0 for i in cell):
        return None
    # A click on a chart that has become smaller since is ignored.
    return (cell[0], cell[1]) if cell[0] < rows and cell[1] < columns else None

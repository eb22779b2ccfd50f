"""Tables: numbers right, shares as percent with one decimal, one row selectable by a click anywhere in it.

Cells may hold text of the data: a dataframe is drawn on a canvas, as it is. Column names must be literals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import streamlit as st

from cimemories.answer import Kind, Table
from cimemories.text import visible_in, without_formula
from cimemories.ui import component, safe
from cimemories.ui.safe import CELL_LIMIT, clip

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
FORMATS = {
    "count": "localized",
    "number": None,
    "decimal": "%.3f",
    "percent": "%.1f %%",
    "points": "%.1f",
    "difference": "%+.1f",
}
Column = Kind
UNBROKEN = 24  # characters of a text that stays in one line


def table(
    frame: pd.DataFrame,
    *,
    key: str,
    columns: Mapping[str, Column | Sequence[str]] | None = None,
    on_select: Literal["row"] | None = None,
    selected: int | None = None,
    height: int | Literal["auto", "content"] = "auto",
    alt: str | None = None,
) -> int | None:
    """Draw a frame. `columns`: the columns to show, in order, with their kind and optionally their title.

    With on_select="row" returns the position in `frame` of the chosen row: the one clicked in this run, else `selected`
    (the one of the URL), whose first cell is then highlighted. The frame's index must tell its rows apart (ids): if it
    changes, an old click is dropped. Columns in percent or points are shares, 0 to 1, nan if missing."""
    columns = columns or dict.fromkeys(frame.columns, "text")
    kinds = {name: column if isinstance(column, str) else column[0] for name, column in columns.items()}
    shares = [name for name, kind in kinds.items() if kind in ("percent", "points", "difference")]
    frame = frame.assign(**{name: frame[name].astype(float) * 100 for name in shares})
    flags = [name for name, kind in kinds.items() if kind == "flag"]
    frame = frame.assign(**{name: frame[name].map(lambda on, text=name: text if on else "") for name in flags})
    frame = frame.assign(**{name: _clipped(frame[name]) for name in columns if _is_text(frame[name])})
    shown: dict[str, Any] = {
        "column_config": _config(columns),
        "column_order": list(columns),
        "hide_index": True,
        "alt": alt,
    }
    if on_select is None:
        st.dataframe(frame, key=key, height=height, placeholder="", **shown)
        return None
    # A dataframe's selection belongs to its key and cannot be set from outside. So a new version of the key makes a new
    # widget whenever the selection has to change without a click: other rows, or another row in the URL.
    memory = st.session_state.setdefault(f"{key}.memory", {"version": 0, "rows": None, "seen": None})
    # By the index, not by the content: changing figures of a running run keep the selection.
    rows = hash(tuple(frame.index)) ^ len(frame)
    if memory["rows"] != rows:
        memory.update(rows=rows, seen=None, version=memory["version"] + 1)
    event = _row(st.session_state.get(f"{key}.{memory['version']}"))
    # The widget reports its selection in every run; only one that differs from the last is a click.
    clicked = event if event != memory["seen"] and event is not None and event < len(frame) else None
    current = clicked if clicked is not None else selected
    if event is not None and event != current:  # the URL went elsewhere: a new widget starts from there
        memory["version"] += 1
        event = None
    widget_event = st.dataframe(
        frame,
        key=f"{key}.{memory['version']}",
        height=height,
        placeholder="",
        on_select="rerun",
        # A cell, not a row: a click anywhere in the row counts, the arrow keys move on, and no box takes up room.
        selection_mode="single-cell",
        selection_default=None if current is None else {"selection": {"cells": [(current, next(iter(columns)))]}},
        **shown,
    )
    # Without this line the row of the URL counts as clicked: a new widget reports its default like a click.
    memory["seen"] = _row(widget_event)
    return current


def grid(shown: Table, label: str) -> None:
    """Draw a short table of an answer as text; tooltips explain the columns."""
    numeric = shown.numeric
    cells = [safe.number if number else _text_cell for number in numeric]
    rows = [safe.tag("tr", *(as_cell(text) for as_cell, text in zip(cells, row, strict=True))) for row in shown.texts()]
    texts = [i for i, number in enumerate(numeric) if not number]
    hints = {column.title: column.about for column in shown.columns.values() if column.about}
    safe.show(safe.wide(safe.grid(shown.titles, rows, texts=texts, hints=hints), label))


def _text_cell(text: str) -> safe.Html:
    return safe.tag("td", text, cls="ci-unbroken" if len(text) <= UNBROKEN else "")


# ---- results: rows with bars and intervals


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of a row of results. value: sorts the column, by default `text`; low, high: the ends of an interval around
    it, drawn from 0 to 1; bar: a share, drawn as a bar; small: a line below; hint: a tooltip. chips: (text, kind) each;
    buttons: (label, act) each. opens: whether the text is a button that opens its row."""

    text: str = ""
    small: str = ""
    hint: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    bar: float | None = None
    chips: Sequence[tuple[str, str]] = ()
    buttons: Sequence[tuple[str, str]] = ()
    opens: bool = False


@dataclass(frozen=True)
class Row:
    """A row of results. grey: its numbers are not to be compared; chosen: it is the open one."""

    id: str
    cells: Sequence[Cell]
    grey: bool = False
    chosen: bool = False


@dataclass(frozen=True)
class Group:
    """Rows under a heading that folds them away; without a title they stand alone. buttons: of the heading."""

    rows: Sequence[Row]
    id: str = ""
    title: str = ""
    note: str = ""
    open: bool = True
    buttons: Sequence[tuple[str, str]] = field(default=())


@dataclass(frozen=True)
class Head:
    """A column of results. number: it is aligned right."""

    title: str
    hint: str = ""
    number: bool = False


_results = component("results")
OPEN = "open"


def results(columns: Sequence[Head], groups: Sequence[Group], *, key: str, label: str) -> tuple[str, str] | None:
    """Draw rows that are sorted by a click on a title. Returns the press since the last run, as the act (OPEN for a
    name, or that of a button) and the id of its row or group."""
    data = {
        "label": label,
        "columns": [asdict(column) for column in columns],
        "groups": [asdict(group) for group in groups],
    }
    result = _results(key=key, data=_present(visible_in(data)), on_pressed_change=lambda: None)
    pressed = result.get("pressed")
    return (str(pressed["act"]), str(pressed["id"])) if pressed else None


def _present(value: Any) -> Any:
    """Return a value without its None or empty parts, which the browser's side takes for absent."""
    if isinstance(value, dict):
        return {name: _present(item) for name, item in value.items() if item not in (None, "", (), [])}
    return [_present(item) for item in value] if isinstance(value, list | tuple) else value


def csv_button(frame: pd.DataFrame, name: str, *, label: str = "Download as CSV", key: str | None = None) -> None:
    """Draw a download of the frame, made when it is clicked. Cells that a spreadsheet would run as a formula are
    quoted."""
    st.download_button(
        label,
        data=lambda: frame.map(without_formula).to_csv(index=False).encode(),
        file_name=name,
        mime="text/csv",
        on_click="ignore",  # else the click starts a run of the page
        icon=":material/download:",
        key=key,
    )


def _is_text(column: pd.Series[Any]) -> bool:
    return column.dtype == object or str(column.dtype) in ("str", "string")


def _clipped(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return texts that fit a cell, control characters visible: the browser measures whole texts, however little is
    visible."""
    if not any(isinstance(cell, str) and (len(cell) > CELL_LIMIT or not cell.isprintable()) for cell in column):
        return column
    return column.map(lambda cell: clip(cell) if isinstance(cell, str) else cell)


def _row(state: Any) -> int | None:
    """Return the row of the selected cell."""
    cells = ((state or {}).get("selection") or {}).get("cells") or []
    return int(cells[0][0]) if cells else None


def _config(columns: Mapping[str, Column | Sequence[str]]) -> dict[str, Any]:
    config = st.column_config
    made: dict[str, Any] = {}
    for name, column in columns.items():
        kind, title, *about = (column, name) if isinstance(column, str) else column
        common: dict[str, Any] = {"label": title, "help": about[0] if about and about[0] else None}
        if kind in FORMATS:
            made[name] = config.NumberColumn(**common, format=FORMATS[kind], alignment="right")
        elif kind == "date":
            made[name] = config.DatetimeColumn(**common, format="YYYY-MM-DD HH:mm")
        else:
            # "I inappropriate" in full, and the beginning of a hash
            widths: dict[str, int | Literal["large"]] = {"wide": "large", "small": 124, "hash": 88}
            made[name] = config.TextColumn(**common, width=widths.get(kind))
    return made

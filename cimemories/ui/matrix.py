"""The matrix of labels as a component of the page: drawn on a canvas, moved in by the arrow keys.

What is drawn comes as plain data; the browser's side (assets/matrix_drawing.js and assets/matrix.js) holds the cursor
and says where it came to rest. No text of the data is ever read as markup there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from cimemories.texts import visible_in

Counts = tuple[int, int, int]  # necessary, inappropriate, ambiguous
_ASSETS = Path(__file__).parent / "assets"


def _asset(name: str) -> str:
    # Streamlit takes a text without a line break for a path, so the last one stays.
    return (_ASSETS / name).read_text(encoding="utf-8")


_component = st.components.v2.component(
    "cimemories_matrix",
    html=_asset("matrix.html"),
    css=_asset("matrix.css"),
    # One module: an inline script cannot import another.
    js=_asset("leaving.js") + _asset("matrix_drawing.js") + _asset("matrix.js"),
)


@dataclass(frozen=True)
class Row:
    """An attribute; counts over all contexts of its profile."""

    id: int
    key: str
    statement: str
    counts: Counts


@dataclass(frozen=True)
class Column:
    """A context; counts over all attributes of the profile."""

    id: int
    recipient: str
    task: str
    counts: Counts
    retained: bool


@dataclass(frozen=True)
class Span:
    """Rows or columns [start, end) under a common heading."""

    name: str
    note: str
    start: int
    end: int
    counts: Counts


@dataclass(frozen=True)
class Drawing:
    """Everything that is drawn. cells, consensus: N, X, ? or - a cell, row by row; decided, asked: 0 or 1 a cell.
    above: pixels of the page that stand above and below the matrix, which fills the rest of the window."""

    title: str
    rows: Sequence[Row]
    columns: Sequence[Column]
    blocks: Sequence[Span]
    spheres: Sequence[Span]
    cells: str
    consensus: str
    decided: str
    asked: str
    above: int


@dataclass(frozen=True)
class Chosen:
    """Where the cursor came to rest: the ids of an attribute and a context."""

    attribute: int
    context: int


def _plain(drawing: Drawing) -> dict[str, object]:
    """As JSON takes it; a dataclass's own asdict copies every number apart and takes ten times as long."""
    lists = ("rows", "columns", "blocks", "spheres")
    return {name: [vars(item) for item in value] if name in lists else value for name, value in vars(drawing).items()}


def matrix(drawing: Drawing, *, key: str, cursor: tuple[int, int] | None) -> Chosen | None:
    """Draw it with the cursor on that (attribute, context). Returns where the cursor has come to rest since the last
    run, None where it has not moved: the answer holds for one run, so write it down."""
    moves = f"{key}.moves"
    asked = (st.session_state.get(key) or {}).get("chosen")
    if asked:
        st.session_state[moves] = int(asked["moves"])
        cursor = (int(asked["attribute"]), int(asked["context"]))
    _component(
        key=key,
        data={**visible_in(_plain(drawing)), "cursor": cursor, "moves": st.session_state.get(moves, 0)},
        on_chosen_change=lambda: None,
    )
    return Chosen(*cursor) if asked and cursor else None

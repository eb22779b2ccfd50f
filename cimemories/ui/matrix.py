"""Labels as small cells: the matrix of a profile, drawn on a canvas and navigated by the arrow keys, and strips; the
pairs of one context as a list.

Matrix and list are components of the page. They get plain data; the browser's side (assets/matrix_drawing.js,
matrix.js, pair_list.js) holds the user's position, reports where it came to rest, and posts decisions by keys to a desk
(cimemories/desk/labels.py). No text of the data is ever read as markup there.

A strip has one cell a context. It is one element with its letters: a profile has 147 x 49 cells, and a browser should
neither hold as many elements nor search each of them for hidden text. Its colours come from assets/strips.js."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING

import streamlit as st

from cimemories.text import visible_in
from cimemories.ui import annotator, component, url
from cimemories.ui.desk import Key, address_of
from cimemories.ui.presses import KEYS
from cimemories.ui.safe import Html, clip, tag

if TYPE_CHECKING:
    from cimemories.desk.protocol import Desk

# ---- strips


_strips_component = component("strips")
KINDS = {"N": "necessary", "I": "inappropriate", "U": "ambiguous", "~": "none", "-": "none"}
WORDS = {**KINDS, "~": "too few votes", "-": "not labelled"}
BAR = 48


def strip(glyphs: str, decided: str = "") -> Html:
    """Return a strip with one cell a glyph of KINDS. decided: 1 for a cell whose label people decided, else 0; none: no
    cell. The page that shows it calls `colour` too."""
    # A cell that a person decided is in lower case until the browser has drawn it.
    cells = "".join(
        glyph.lower() if bit == "1" else glyph for glyph, bit in zip_longest(glyphs, decided, fillvalue="0")
    )
    counts = [f"{n} {WORDS[glyph]}" for glyph in WORDS if (n := glyphs.count(glyph))]
    people = f"; {n} decided by people" if (n := decided.count("1")) else ""
    return tag("div", cells, cls="ci-strip ci-raw", picture=f"{', '.join(counts)} of {len(glyphs)} contexts{people}")


def colour(names: Sequence[str]) -> None:
    """Colour all strips of the page. The tooltip of a cell has its label and its name (`names`: plain text, one a
    cell)."""
    _strips_component(key="strips", data={"names": list(names)})


def distribution(counts: Mapping[str, int]) -> Html:
    """Return counts by glyph as a bar of cells and as numbers: 'necessary 1,203 (17.2 %)'. Empty without pairs."""
    total = sum(counts.values())
    if not total:
        return tag("div")
    shown = [(glyph, n) for glyph, n in counts.items() if n]
    numbers = [
        tag("span", tag("b", glyph), f" {WORDS[glyph]} {n:,} ({100 * n / total:.1f} %)", cls="ci-line")
        for glyph, n in shown
    ]
    cells = _apportioned([n for _, n in shown], BAR)
    bar = "".join(glyph * cells[i] for i, (glyph, _) in enumerate(shown))
    runs = [tag("span", "".join(group), cls=f"ci-{KINDS[glyph]}") for glyph, group in groupby(bar)]
    picture = ", ".join(f"{WORDS[glyph]} {100 * n / total:.1f} %" for glyph, n in shown)
    return tag("div", tag("div", *runs, cls="ci-strip", picture=picture), *numbers, cls="ci-legend")


def _apportioned(counts: Sequence[int], cells: int) -> list[int]:
    """Apportion cells to counts by largest remainders, adding up to `cells`, or to a few more if small counts get their
    least of one. `counts` are above 0."""
    total = sum(counts)
    exact = [max(1.0, cells * n / total) for n in counts]
    given = [int(share) for share in exact]
    # Those with the largest remainders get one more, until all cells are given away.
    for i in sorted(range(len(counts)), key=lambda i: given[i] - exact[i])[: max(0, cells - sum(given))]:
        given[i] += 1
    return given


def timeline(moments: Sequence[tuple[str, str]]) -> Html:
    """Return events in their order, each with a line beneath."""
    return tag(
        "div",
        *(tag("div", tag("b", name), tag("div", note, cls="ci-muted")) for name, note in moments),
        cls="ci-timeline",
    )


# ---- matrix


Pair = tuple[int, int]  # ids of an attribute and a context
_PARTS = ("leaving", "outbox", "keys", "deciding")
_component = component("matrix", *_PARTS, "matrix_drawing")
_list_component = component("pair_list", *_PARTS)
_ELSEWHERE = "labels.elsewhere"  # the last decision of this session made without a key


@dataclass(frozen=True)
class Deciding:
    """The keys that decide the current pair.

    desk: records the decisions; None while the user has not given a name, which the browser then asks for. version:
    that of the record (desk.labels.version) when the pairs were read. back: called with the card id of a decision of an
    earlier visit that was taken back."""

    keys: Sequence[Key] = ()
    desk: Desk | None = None
    version: int = 0
    back: Callable[[str], None] = lambda _: None


def matrix(
    drawing: Mapping[str, object], *, key: str, cursor: Pair | None, deciding: Deciding = Deciding()
) -> Pair | None:
    """Draw the matrix with the cursor on that pair. Returns where the cursor has come to rest since the last run, None
    if it has not moved: the answer holds for one run, so keep it (in the URL).

    drawing: title; rows (id, key, statement, counts) and columns (id, recipient, task, counts, retained, discarded), an
    attribute or context each, with the counts of necessary, inappropriate and ambiguous pairs in all of the profile;
    blocks and spheres (name, note, start, end, counts), rows or columns [start, end) under a common heading; cells and
    consensus: N, I, U, ~ or - a cell, row by row; decided, matched: 0 or 1 a cell, whether people decided its label,
    and whether the page's filter matches it; above: pixels of the page above and below the matrix, which fills the rest
    of the window."""
    rows, columns = ({item["id"] for item in drawing[side]} for side in ("rows", "columns"))  # type: ignore[attr-defined]
    chosen = _chosen(key, cursor, rows, columns)
    data = {**visible_in(dict(drawing)), "cursor": chosen or cursor, **_deciding(key, deciding)}
    # Streamlit drops browser values under a name without a callback.
    _component(key=key, data=data, on_chosen_change=lambda: None, on_asked_change=url.durable(_hears(key, deciding)))
    return chosen


@dataclass
class _Place:
    """The position of a session, and the earlier ones that a late address may still name."""

    at: Pair
    before: set[Pair]


def _chosen(key: str, named: Pair | None, attributes: Collection[int], contexts: Collection[int]) -> Pair | None:
    """Return the user's position among these, or None if the page's is authoritative. named: the position in the
    address."""
    chosen = (st.session_state.get(key) or {}).get("chosen")
    place: _Place | None = st.session_state.get(f"{key}.place")
    if chosen:
        # The browser counts its moves and gets the number back: so it can tell its own last move, which it
        # already shows, from a place that the page names. Kept: a run without a new move has to send the last number
        # too.
        st.session_state[f"{key}.moves"] = int(chosen["moves"])
        before = {named, *(place.before | {place.at} if place else ())} - {None}
        place = _Place((int(chosen["attribute"]), int(chosen["context"])), before)
    elif place and named not in place.before:
        place = None  # the address has caught up, or the user has followed a link
    # The next press, which may end this run, comes with the earlier address: that is no way back.
    st.session_state[f"{key}.place"] = place
    there = place is not None and place.at[0] in attributes and place.at[1] in contexts
    return place.at if place is not None and there else None


def leave_place(key: str) -> None:
    """Forget a session's position: the page shows the one in the address."""
    st.session_state[f"{key}.place"] = None


def _hears(key: str, deciding: Deciding) -> Callable[[], None]:
    """Return the callback for requests of the browser; the page runs again after a decision."""

    def heard() -> None:
        what, _, rest = str((st.session_state.get(key) or {}).get("asked") or "").partition(" ")
        if what == "back":
            leave_place(key)
            deciding.back(rest.partition(" ")[0])

    return heard


def _deciding(key: str, deciding: Deciding) -> dict[str, object]:
    """Return the data for the browser's keys, and for it to know which of its decisions the page shows."""
    keys, desk = deciding.keys, deciding.desk
    shown = [item.key for item in keys] + ["z"] * bool(keys) + ["j", "k", "?"]
    return {
        "key": "labels",  # shared by matrix and list: each sends what the other has left unsaved
        "moves": st.session_state.get(f"{key}.moves", 0),
        "keys": [{**vars(item), "label": KEYS[item.key][0]} for item in keys],
        "help": [(name, *KEYS[name]) for name in shown],
        "owner": desk.owner if desk else "",
        "url": address_of(desk, "labels") if desk else "",
        "person": annotator.name(),
        "version": deciding.version,
        "elsewhere": st.session_state.get(_ELSEWHERE, ""),
    }


def note_decision(uid: str) -> None:
    """Tell matrix and list that this session decided a pair elsewhere on the page: z takes back the newest decision,
    and the browser only knows those made by keys."""
    st.session_state[_ELSEWHERE] = uid


# ---- the pairs of one context as a list


@dataclass(frozen=True)
class Listed:
    """A pair: the id of its attribute, a text for each column, its label as glyph and word (instead of the text of that
    column), and who decided it, as a text."""

    id: int
    cells: Sequence[str]
    glyph: str
    word: str
    by: str


def pair_list(
    title: str,
    columns: Sequence[tuple[str, str]],
    rows: Sequence[Listed],
    *,
    label: int,
    key: str,
    context: int,
    cursor: int | None,
    deciding: Deciding = Deciding(),
) -> int | None:
    """Draw pairs of a context (its id), with the cursor on the attribute `cursor`. columns: (name, kind), of kind name,
    plain, wide or marks, with "more" behind it if a phone leaves it out; label: which of them has the label. Returns
    the attribute that the user has moved to, None if the page's position is authoritative."""
    chosen = _chosen(key, None if cursor is None else (cursor, context), {row.id for row in rows}, {context})
    if chosen:
        cursor = chosen[0]
    shown = [{**vars(row), "cells": [clip(cell) for cell in row.cells], "by": clip(row.by)} for row in rows]
    data = {
        "title": clip(title),
        "columns": [{"name": clip(name), "kind": kind} for name, kind in columns],
        "rows": shown,
        "label": label,
        "context": context,
        "cursor": cursor,
        **_deciding(key, deciding),
    }
    _list_component(
        key=key,
        data=visible_in(data),
        on_chosen_change=lambda: None,
        on_asked_change=url.durable(_hears(key, deciding)),
    )
    return chosen[0] if chosen else None

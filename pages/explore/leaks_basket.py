"""Part of the Leaks page: the basket of examples for a paper, in an order of one's own, with notes and exports."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from cimemories.analysis import basket, leak_table
from cimemories.analysis.basket_rows import Held, held
from cimemories.analysis.flows import Flows
from cimemories.analysis.leak_rows import LeakRow
from cimemories.store.engine import Store, StoreError
from cimemories.ui import annotator, page, safe, tables, url
from cimemories.ui.safe import join, tag

TAB, GALLERY = "basket", "gallery"
NOBODY = "basket"


def name() -> str:
    """Whose basket it is: of the account that is logged in, else what the URL or the session says, else the annotator's
    name, else one for whoever gives none."""
    own = annotator.account()
    return own or url.get("basket") or url.remembered("basket") or annotator.name() or NOBODY


def views(store: Store) -> None:
    """The choice between the gallery and the basket."""
    key = "leaks.tab"
    st.session_state[key] = TAB if url.get("tab") == TAB else GALLERY
    try:
        count = f"Basket ({len(basket.items(store, name()))})"
    except StoreError:
        count = "Basket (!)"
    words = {GALLERY: "Gallery", TAB: count}
    st.segmented_control(
        "View",
        list(words),
        format_func=lambda item: words[item],
        key=key,
        label_visibility="collapsed",
        required=True,
        on_change=lambda: url.put(tab=TAB if st.session_state[key] == TAB else None),
    )


def draw(flows: Flows) -> None:
    """The basket: its name, its examples, its exports."""
    store = flows.store
    choice, whose = st.columns([5, 3], vertical_alignment="bottom")
    with whose:
        _name()
    with choice:
        views(store)
    try:
        found = held(flows, basket.items(store, name()))
    except StoreError as problem:
        page.error(str(problem))
        return
    if not found:
        page.empty(
            "Nothing in this basket yet",
            "The key s, or the star, puts the example that you look at into the basket. It is kept in the workspace "
            "under its name and comes back with it.",
        )
        return
    rows = [item.row for item in found if item.row is not None]
    _exports(rows, gone=len(found) - len(rows))
    for number, item in enumerate(found):
        with st.container(border=True):
            _example(store, item, number, len(found))


def _name() -> None:
    if annotator.account():
        safe.inline(f"The basket of {annotator.account()}.", muted=True)
        return
    key = "leaks.basket.name"
    st.session_state[key] = name()
    st.text_input(
        "Name of the basket",
        key=key,
        max_chars=basket.LONGEST_NAME,
        on_change=lambda: url.put(basket=" ".join(st.session_state[key].split()) or None),
        help="Another name opens another basket. It stands in the address, so that a reload or a link finds it again.",
    )
    if name() != NOBODY:
        url.put(basket=name())


def _exports(rows: list[LeakRow], gone: int) -> None:
    words, markdown, latex = st.columns([6, 2, 2], vertical_alignment="center")
    simulated = sum(bool(row.simulated) for row in rows)
    with words:
        said = f"{tables.count(len(rows))} examples as a table of task, recipient, leaked attribute, excerpt and model."
        said += f" {tables.count(simulated)} are simulated and marked so." if simulated else ""
        said += f" {tables.count(gone)} are leaks no more and left out." if gone else ""
        safe.inline(said, muted=True)
    for column, label, made, file, kind in (
        (markdown, "Markdown", leak_table.as_markdown, "leaks.md", "text/markdown"),
        (latex, "LaTeX table", leak_table.as_latex, "leaks.tex", "application/x-tex"),
    ):
        with column:
            _download(label, made, rows, file, kind)


def _download(label: str, made: Callable[[list[LeakRow]], str], rows: list[LeakRow], file: str, kind: str) -> None:
    st.download_button(
        label,
        data=lambda: made(rows).encode(),
        file_name=file,
        mime=kind,
        on_click="ignore",
        icon=":material/download:",
        disabled=not rows,
        width="stretch",
        key=f"leaks.export.{file}",
    )


def _example(store: Store, item: Held, number: int, of: int) -> None:
    text, buttons = st.columns([12, 3])
    with buttons:
        _buttons(store, item, number, of)
    with text:
        if item.row is None:
            safe.inline(f"{number + 1}. {item.item.run}", strong=True)
            page.notice(item.gone)
        else:
            _row(item.row, number)
        key = f"leaks.note.{item.item.id}"
        st.session_state[key] = item.item.note
        st.text_input(
            "Note",
            key=key,
            max_chars=basket.LONGEST_NOTE,
            placeholder="Note for the table",
            label_visibility="collapsed",
            on_change=lambda: _change(store, basket.noted(item.item.id, st.session_state[key])),
        )


def _row(row: LeakRow, number: int) -> None:
    badge = page.SIMULATED if row.simulated else ""
    head = tag("div", tag("b", f"{number + 1}. {row.recipient}: {row.task}"), "  ", badge, cls="ci-line")
    words = [tag("mark", piece.text, cls="ci-leaked") if piece.leaked else piece.text for piece in row.excerpt]
    if not row.in_message:
        words = [
            tag("span", "Quoted by the judge, not found in the message: " if words else "No quote.", cls="ci-muted"),
            *words,
        ]
    safe.show(
        tag(
            "div",
            head,
            tag("div", f"{row.key}: {row.statement}", cls="ci-muted"),
            tag("div", join(words), cls="ci-line"),
            tag("div", f"{row.model}; {leak_table.rests_on(row)}", cls="ci-muted"),
            cls="ci-lines",
        )
    )


def _buttons(store: Store, item: Held, number: int, of: int) -> None:
    own, (up, down, out) = item.item, st.columns(3)
    with up:
        _button(store, item, "up", ":material/arrow_upward:", basket.moved(own.id, -1), off=number == 0)
    with down:
        _button(store, item, "down", ":material/arrow_downward:", basket.moved(own.id, 1), off=number == of - 1)
    with out:
        _button(store, item, "out", ":material/delete:", basket.without(own.id), off=False)
    if item.row is not None:
        st.button(
            "Open",
            icon=":material/open_in_new:",
            key=f"leaks.basket.open.{own.id}",
            help="The example in the gallery",
            type="tertiary",
            on_click=lambda: url.put(
                tab=None,
                run=own.run,
                profile=own.profile,
                context=own.context,
                attribute=own.attribute,
                sample=None if item.row is None else item.row.sample,
            ),
        )


HELP = {"up": "One place up", "down": "One place down", "out": "Take it out of the basket"}


def _button(
    store: Store, item: Held, what: str, icon: str, how: Callable[[basket.Items], basket.Items], *, off: bool
) -> None:
    st.button(
        "",
        icon=icon,
        key=f"leaks.basket.{what}.{item.item.id}",
        help=HELP[what],
        disabled=off,
        on_click=lambda: _change(store, how),
    )


def _change(store: Store, how: Callable[[basket.Items], basket.Items]) -> None:
    try:
        basket.change(store, name(), how)
    except StoreError as problem:
        page.error("The basket is as it was.", str(problem))

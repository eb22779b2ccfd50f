"""Servers whose answers the record holds, and which of them a person says are the same; on the Runs page."""

from __future__ import annotations

import streamlit as st

from cimemories.flows import catalogue
from cimemories.store.calls import NOT_KNOWN, Tie
from cimemories.store.engine import Store, StoreError
from cimemories.ui import annotator, page, safe

EXPLAINED = (
    "Recorded answers belong to the server that gave them: its address, and the model root and revision it reports. If "
    "two addresses are the same server, link them here: new runs on one then reuse answers of the other, if both "
    "report the same model. Nothing is rewritten, and you can unlink them."
)


def draw(store: Store) -> None:
    """The servers, what people said, and the form to say more."""
    safe.inline(EXPLAINED, muted=True)
    known, ties = catalogue.known_servers(store)
    if known:
        safe.show(safe.tag("div", *(safe.tag("div", item.text, cls="ci-line") for item in known)))
    else:
        safe.inline("No server yet. Each run and labelling adds the servers it uses.", muted=True)
    for tie in ties:
        _tie(store, tie)
    addresses = list(dict.fromkeys(item.address for item in known))
    one, two, act = st.columns([4, 4, 2], vertical_alignment="bottom")
    with one:
        first = st.selectbox(
            "Address",
            addresses,
            key="run_servers.same.first",
            accept_new_options=True,
            format_func=safe.option,
            placeholder="http://localhost:8000/v1",
        )
    with two:
        second = st.selectbox(
            "is the same server as",
            [*addresses, NOT_KNOWN],
            index=None,
            key="run_servers.same.second",
            accept_new_options=True,
            format_func=safe.option,
            placeholder="another address",
            help=f"'{NOT_KNOWN}': answers recorded at this address before servers were distinguished",
        )
    with act:
        pressed = st.button("Link", key="run_servers.same.say", disabled=not (first and second), width="stretch")
    if pressed:
        _say(store, str(first), str(second))


def _tie(store: Store, tie: Tie) -> None:
    left, act = st.columns([8, 2], vertical_alignment="center")
    with left:
        sentence = f"{tie.first} and {tie.second} are the same server, linked by {tie.author} on {tie.created[:10]}"
        safe.inline(sentence)
    with act:
        if st.button("Unlink", key=f"run_servers.same.undo.{tie.first}.{tie.second}", width="stretch"):
            catalogue.untie_servers(store, tie)
            st.rerun()


def _say(store: Store, first: str, second: str) -> None:
    try:
        catalogue.tie_servers(store, first, second, annotator.name() or "the app")
    except StoreError as problem:
        text = str(problem)
        page.error(f"{text[:1].upper()}{text[1:]}")
        return
    st.rerun()

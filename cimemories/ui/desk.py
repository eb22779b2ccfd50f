"""The desk as a component of a page (assets/desk.js): a queue of items that the user works through by keyboard.

A page opens a desk (cimemories/desk) and draws the component, which talks to it by itself:

    desk.draw(QueueDesk(...), key="review", keys=KEYS, ...)

No text of the data is read as markup in the browser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

from cimemories.desk.routes import open_desk
from cimemories.text import clip, visible_in
from cimemories.ui import annotator, component, login, url
from cimemories.ui.presses import KEYS

if TYPE_CHECKING:  # the pages that open a desk import what it needs
    from cimemories.desk.protocol import Desk

_component = component("desk", "leaving", "outbox", "keys", "desk_card")
FOLDS = {"memory": "Memory of the message", "history": "History and comments"}


@dataclass(frozen=True)
class Key:
    """A key (of presses.KEYS) that answers the item. `says` is the answer in the event; glyph and colour are the
    button's, `means` explains the answer beside the card."""

    key: str
    says: str
    glyph: str
    colour: str
    means: str = ""


def address_of(desk: Desk, name: str) -> str:
    """Open a desk for this session and return its address. `name` identifies the work."""
    return open_desk(desk, name, login.actor(), login.browser("; ".join(st.context.headers.get_all("cookie"))))


def batch_size(usual: int) -> int:
    """Return how many items are a batch by the URL, else the usual number."""
    chosen = url.get_int("batch")
    return chosen if chosen is not None and 10 <= chosen <= 1000 else usual


def draw(
    desk: Desk,
    name: str,
    *,
    key: str,
    keys: Sequence[Key],
    causes: Sequence[tuple[str, str]] = (),
    actions: str = "sfzkjcb?",
    complete: bool = False,
    blind: bool = True,
    batch: int = 0,
    start: str | None = None,
    address: Sequence[str] = (),
    context: str = "",
    folds: Sequence[str] = ("history",),
    empty: str = "Nothing is left here. Change the filters to continue.",
    hiding: str = "Votes are hidden until you answer.",
    asked: Callable[[str], None] = lambda _: None,
) -> None:
    """Draw a desk.

    name: identifies the queue; with another name (another order or filter) the browser starts again. causes: (key,
    cause), one of which an answer needs beside its label. actions: further actions, by the keys of presses.KEYS.
    complete: whether the cards of a reply are all that is open, so that the browser drops others. batch: the number of
    answers in a batch (batch_size), whose end is shown with a summary; 0: the whole work is counted. start: the card to
    begin with. address: the URL parameters that name the current card, one for each part of its id ('7.3'). context:
    one line above the question. folds: of FOLDS, the parts that can be opened beside the card. asked: called with
    "spread", "finished" (nothing is left), "blind" or "seeing" when the user asks for it."""

    def heard() -> None:
        what = str((st.session_state.get(key) or {}).get("asked") or "").partition(" ")[0]
        what, _, size = what.partition(":")
        if what == "batch":
            url.put(batch=size)
        elif what and what != "reopen":  # this run has opened the desk already
            asked(what)

    if address:
        url.leave_to_component(*address)
    data = {
        "key": key,
        "session": name,
        "owner": desk.owner,
        "person": annotator.name(),
        "url": address_of(desk, name),
        "keys": [{**vars(item), "label": KEYS[item.key][0]} for item in keys],
        "causes": [(letter, cause, *KEYS[letter]) for letter, cause in causes],
        "actions": [(letter, *KEYS[letter]) for letter in actions],
        "complete": complete,
        "blind": blind,
        "batch": batch,
        "start": start,
        "address": list(address),
        "context": clip(context),
        "folds": [(name, FOLDS[name]) for name in folds],
        "empty": empty,
        "hiding": hiding,
    }
    _component(key=key, data=visible_in(data), on_asked_change=url.durable(heard))

"""Presenter mode as a component of the page: one user's tasks, one by one, full screen, controlled by keys alone.

Space plays and pauses, the arrow keys (and Page up, Page down of a remote control) go one task back and forth, Home and
End to either end, Escape leaves. All of it happens in the browser (assets/presenter.js); the server is told when it
begins and ends. No text of the data is ever read as markup there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from cimemories.text import visible_in
from cimemories.ui import component

_component = component("presenter")


@dataclass(frozen=True)
class Dropped:
    """A newly leaked attribute: its name, its memory statement, in how many messages ('2 of 5 messages'), and the words
    of a message that leak it ('': not known, or not there yet)."""

    name: str
    statement: str
    revealed: str
    quote: str = ""


@dataclass(frozen=True)
class Slide:
    """One task. share: of the attributes, revealed so far, 0 to 1; expected: the mean of that over all orders. judged:
    judged messages; where there is none, the slide says so instead of 'nothing new'."""

    recipient: str
    task: str
    share: float
    expected: float
    judged: int
    dropped: Sequence[Dropped]


@dataclass(frozen=True)
class Show:
    """What is played. attributes: the fixed denominator of the shares. messages: of a task, those that are
    looked at, as 'any of the 5 messages'. definitions: terms
    with what they mean, on the first slide; closing: sentences on the last. mark: a word shown in the corner the whole
    time ('simulated'), or empty."""

    user: str
    run: str
    attributes: int
    messages: str
    slides: Sequence[Slide]
    definitions: Sequence[tuple[str, str]]
    closing: Sequence[str]
    mark: str = ""


def moved(key: str) -> bool | None:
    """Whether the show was started (True) or left (False) since the last run; None where neither."""
    value = (st.session_state.get(key) or {}).get("moved")
    # What a browser sends may be anything.
    return bool(value["open"]) if isinstance(value, dict) and "open" in value else None


def presenter(show: Show, *, key: str, open_at: int | None) -> None:
    """Draw the button that starts the show. open_at: start at once, after so many tasks, where the page is first
    drawn."""
    # The empty callback registers "moved": Streamlit drops what the browser sets under a name without one.
    slides = [{**vars(slide), "dropped": [vars(item) for item in slide.dropped]} for slide in show.slides]
    data = visible_in({**vars(show), "slides": slides, "open": open_at})
    _component(key=key, data=data, on_moved_change=lambda: None)

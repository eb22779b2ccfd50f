"""Presenter's mode as a component of the page: one user's tasks come one by one, full screen, moved by keys alone.

Space plays and pauses, the arrow keys (and Page up, Page down of a remote control) go one task back and forth, Home and
End to either end, Escape leaves. All of it happens in the browser (assets/presenter.js); the server hears when it
begins and ends. No text of the data is ever read as markup there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from cimemories.text import visible_in

_ASSETS = Path(__file__).parent / "assets"


def _asset(name: str) -> str:
    # Streamlit takes a text without a line break for a path, so the last one stays.
    return (_ASSETS / f"presenter.{name}").read_text(encoding="utf-8")


_component = st.components.v2.component("cimemories_presenter", html=_asset("html"), css=_asset("css"), js=_asset("js"))


@dataclass(frozen=True)
class Dropped:
    """Something newly leaked: its name, its memory statement, and in how many messages: '2 of 5 messages'."""

    name: str
    statement: str
    revealed: str


@dataclass(frozen=True)
class Slide:
    """One task. share: of the attributes, revealed so far, 0 to 1; expected: the same over all orders. judged: messages
    that were; where none was, the slide says so instead of 'nothing new'."""

    recipient: str
    task: str
    share: float
    expected: float
    judged: int
    dropped: Sequence[Dropped]


@dataclass(frozen=True)
class Show:
    """What is played. attributes: the fixed denominator of the shares. samples: judged messages a task. mark: a word
    that stands in the corner the whole time ('simulated'), or empty."""

    user: str
    run: str
    attributes: int
    samples: int
    slides: Sequence[Slide]
    mark: str = ""


def _plain(show: Show) -> dict[str, object]:
    slides = [{**vars(slide), "dropped": [vars(item) for item in slide.dropped]} for slide in show.slides]
    return {**vars(show), "slides": slides}


def presenter(show: Show, *, key: str, open_at: int | None) -> bool | None:
    """Draw the button that begins. open_at: begin at once, after so many tasks, where the page is first drawn. Returns
    whether it has been begun (True) or left (False) since the last run; None where neither: write it into the URL."""
    moved = (st.session_state.get(key) or {}).get("moved")
    _component(key=key, data=visible_in({**_plain(show), "open": open_at}), on_moved_change=lambda: None)
    return bool(moved["open"]) if isinstance(moved, dict) and "open" in moved else None

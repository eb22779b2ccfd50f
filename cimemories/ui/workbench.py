"""A queue of items that a person works through by keyboard, as a component of the page (assets/workbench.js).

The browser holds the items that come next and answers every press at once. What was said goes into its log; the page
hears it at the start of its next run, records it, and with the confirmation the log is emptied:

    for event in workbench.heard("review"): ...       # record each once, by its uid
    workbench.confirm("review")
    workbench.draw(cards, key="review", session=..., owner=..., keys=KEYS, blind=..., done=..., total=...)

An event may come twice (a slow confirmation, a reload): `uid` tells. No text of the data is read as markup there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import streamlit as st

T = TypeVar("T")
Kind = Literal["say", "skip", "flag", "comment", "undo"]
KINDS = ("say", "skip", "flag", "comment", "undo")
LONGEST_TEXT = 2000
_ASSETS = Path(__file__).parent / "assets"


def _asset(name: str) -> str:
    # Streamlit takes a text without a line break for a path, so the last one stays.
    return (_ASSETS / f"workbench.{name}").read_text(encoding="utf-8")


_component = st.components.v2.component("cimemories_workbench", html=_asset("html"), css=_asset("css"), js=_asset("js"))


@dataclass(frozen=True)
class Key:
    """A key that says something of the item. `says`: what the event carries; glyph and colour stand on the button."""

    key: str
    label: str
    says: str
    glyph: str
    colour: str


@dataclass(frozen=True)
class Card:
    """One item. `facts`: (name, words), or (name, words, True) for what matters most; `text`: a long text in segments
    (words, "" or "quote"); `hidden`: rows (name, prior in words, marks as N X ? - or words) that blind work hides until
    the answer; `note`: a muted line."""

    id: str
    title: str
    facts: Sequence[tuple[str, str] | tuple[str, str, bool]]
    text: Sequence[tuple[str, str]] = ()
    hidden: Sequence[tuple[str, str, str]] = ()
    note: str = ""


@dataclass(frozen=True)
class Event:
    """One thing that was said. card: the id of the item; says: of the key, for kind `say`; of: the uid of the event
    that an undo takes back, None for the last one of before this page was opened; text: of a comment; owner: as `draw`
    was told when it was said."""

    seq: int
    uid: str
    kind: Kind
    card: str
    says: str | None
    seconds: float
    blind: bool
    text: str
    of: str | None
    owner: str = ""


def own(key: str, owner: str, what: T) -> None:
    """Remember for this session what an owner of events stands for; `draw` is told the same owner."""
    st.session_state.setdefault(f"{key}.owners", {})[owner] = what


def owner(key: str, event: Event) -> Any:
    """What `own` said of the event's owner; None where it is none of this session's."""
    return st.session_state.get(f"{key}.owners", {}).get(event.owner)


def _log(key: str) -> dict[str, Any]:
    log = (st.session_state.get(key) or {}).get("log")
    return log if isinstance(log, dict) else {}


def heard(key: str) -> list[Event]:
    """What was said since the last confirmation, in its order; what does not read as an event is left out."""
    log = _log(key)
    acked = _acked(key).get(str(log.get("tab")), 0)
    events = [_event(raw) for raw in log.get("events") or () if isinstance(raw, dict)]
    return [event for event in events if event is not None and event.seq > acked]


def _event(raw: dict[str, Any]) -> Event | None:
    try:
        event = Event(
            seq=int(raw["seq"]),
            uid=str(raw["uid"])[:64],
            kind=raw["kind"],
            card=str(raw["card"]),
            says=None if raw["says"] is None else str(raw["says"]),
            seconds=max(0.0, float(raw["seconds"])),
            blind=bool(raw["blind"]),
            text=str(raw["text"])[:LONGEST_TEXT],
            of=None if raw["of"] is None else str(raw["of"])[:64],
            owner=str(raw["owner"])[:64],
        )
    except (KeyError, TypeError, ValueError):
        return None
    return event if event.kind in KINDS else None


def confirm(key: str) -> None:
    """All that was heard is recorded: the next drawing tells the browser so."""
    log = _log(key)
    heard_of = [int(raw["seq"]) for raw in log.get("events") or () if isinstance(raw, dict) and raw.get("seq")]
    if heard_of:
        tab = str(log.get("tab"))
        _acked(key)[tab] = max(*heard_of, _acked(key).get(tab, 0))


def _acked(key: str) -> dict[str, int]:
    acked: dict[str, int] = st.session_state.setdefault(f"{key}.acked", {})
    return acked


def at(key: str) -> str | None:
    """The id of the item that is on the screen, where the browser has said so."""
    place = _log(key).get("at")
    return str(place) if place else None


def blind(key: str) -> bool | None:
    """Whether the person works blind, where the browser has said so."""
    said = _log(key).get("blind")
    return said if isinstance(said, bool) else None


def tab(key: str) -> str | None:
    """The name that this browser tab gave itself, None before it has said anything."""
    name = _log(key).get("tab")
    return str(name) if name else None


def place(key: str) -> str | None:
    """The name of the person's place at the work, None before the browser has said it: one open tab has it at a time,
    and who closes the tab and comes back with the same browser gets it again. Reserve items for it."""
    name = _log(key).get("place")
    return str(name)[:100] if name else None


def draw(
    cards: Sequence[Card],
    *,
    key: str,
    session: str,
    owner: str,
    keys: Sequence[Key],
    blind: bool,
    done: int,
    total: int,
    start: str | None = None,
    flags: bool = True,
    comments: bool = True,
    watch: bool = False,
    empty: str = "Nothing is left here. Change the filters to go on.",
    hiding: str = "Votes are hidden until you answer.",
) -> None:
    """Draw the queue. `cards` are those that come next: the browser adds those that it does not hold yet. A new
    `session` (another order or filter) empties it; `owner` names who works on what, in which workspace, and stands on
    every event, so that what was left unsaved is never taken for somebody else's; `start` puts the person at that card,
    once. done of total: how far the whole work is, what is not confirmed yet not counted. watch: ask for another run
    every second, for what others say meanwhile; else every 20 seconds."""
    tab_name = tab(key)
    data = {
        "key": key,
        "session": session,
        "owner": owner,
        "cards": [vars(card) for card in cards],
        "keys": [vars(item) for item in keys],
        "blind": blind,
        "done": done,
        "total": total,
        "left": max(0, total - done),
        "start": start,
        "flags": flags,
        "comments": comments,
        "watch": watch,
        "empty": empty,
        "hiding": hiding,
        "tab": tab_name,
        "acked": _acked(key).get(tab_name or "", 0),
    }
    _component(key=key, data=data, on_log_change=lambda: None)

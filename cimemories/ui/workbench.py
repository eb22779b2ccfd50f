"""A queue of items that a person works through by keyboard, as a component of the page (assets/workbench.js).

The browser holds the items that come next and answers every press at once. Answers go into its log; the page reads them
at the start of its next run, records them, and confirms what is recorded, by uid; the log keeps the rest:

    events = workbench.pending("review")              # record each once, by its uid
    workbench.confirm("review", recorded=[event.uid for event in events])
    workbench.draw(cards, key="review", session=..., owner=..., keys=KEYS, blind=..., done=..., total=...)

An event may come twice (a slow confirmation, a reload), and only its `uid` tells: the browser's log and what this
session knows of it do not begin and end together when a person leaves the page and comes back. No text of the data is
read as markup there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import streamlit as st

from cimemories.text import visible_in
from cimemories.ui import component, page, safe

T = TypeVar("T")
Kind = Literal["say", "skip", "flag", "comment", "undo"]
KINDS = ("say", "skip", "flag", "comment", "undo")
LONGEST_TEXT = 2000
_component = component("workbench", "leaving")


@dataclass(frozen=True)
class Key:
    """A key that answers the item. `says`: the answer, as the event carries it; glyph and colour are the button's."""

    key: str
    label: str
    says: str
    glyph: str
    colour: str


@dataclass(frozen=True)
class Card:
    """One item. `facts`: (name, text), or (name, text, True) for what matters most; `text`: a long text in segments
    (text, "" or "quote"); `hidden`: rows (name, prior as text, marks as N X ? - or a text) that blind work hides until
    the answer; `note`: a muted line."""

    id: str
    title: str
    facts: Sequence[tuple[str, str] | tuple[str, str, bool]]
    text: Sequence[tuple[str, str]] = ()
    hidden: Sequence[tuple[str, str, str]] = ()
    note: str = ""


@dataclass(frozen=True)
class Event:
    """One answer or action of the person. card: the id of the item; says: of the key, for kind `say`; of: the uid of
    the event that an undo takes back, None for the last one from before this page was opened; text: of a comment;
    owner: as given to `draw` at that time."""

    uid: str
    kind: Kind
    card: str
    says: str | None
    seconds: float
    blind: bool
    text: str
    of: str | None
    owner: str = ""


def set_owner(key: str, owner: str, value: T) -> None:
    """Keep for this session what an owner of events stands for; `draw` is given the same owner."""
    st.session_state.setdefault(f"{key}.owners", {})[owner] = value


def owner(key: str, event: Event) -> Any:
    """What `set_owner` was given for the event's owner; None where this session does not know it."""
    return st.session_state.get(f"{key}.owners", {}).get(event.owner)


def not_saved(problem: str) -> None:
    """Draw that the record cannot take answers now, and why; `redraw` below it goes on collecting them."""
    page.error(
        "Your answers cannot be saved at the moment.",
        problem,
        "You can continue: this browser keeps your answers and retries every few seconds.",
    )


def _stranded(key: str) -> list[str]:
    """uids of events that cannot be recorded in this session, since it does not know their owner: the server was
    restarted, say, and somebody else has given a name since. They wait in the browser for their owner."""
    return [event.uid for event in pending(key) if owner(key, event) is None]


def _log(key: str) -> dict[str, Any]:
    log = (st.session_state.get(key) or {}).get("log")
    return log if isinstance(log, dict) else {}


def pending(key: str) -> list[Event]:
    """Events that are not confirmed yet, in their order; what is not a valid event is left out."""
    handled = _handled(key)
    return [event for event in _events(key) if event.uid not in handled]


def answered(key: str) -> set[str]:
    """The ids of the items that the browser's last message answers, skips or flags."""
    return {event.card for event in _events(key) if event.kind in ("say", "skip", "flag")}


def _events(key: str) -> list[Event]:
    events = [_event(raw) for raw in _log(key).get("events") or () if isinstance(raw, dict)]
    return [event for event in events if event is not None]


def _event(raw: dict[str, Any]) -> Event | None:
    try:
        event = Event(
            uid=str(raw["uid"])[:64],
            kind=raw["kind"],
            card=str(raw["card"]),
            says=None if raw["says"] is None else str(raw["says"]),
            seconds=max(0.0, float(raw["seconds"])),  # in this order nan gives 0.0 too
            blind=bool(raw["blind"]),
            text=str(raw["text"])[:LONGEST_TEXT],
            of=None if raw["of"] is None else str(raw["of"])[:64],
            owner=str(raw["owner"])[:64],
        )
    except (KeyError, TypeError, ValueError):
        return None
    # What a browser sends may be anything: what is no event is dropped, and texts are cut to what the record takes.
    return event if event.kind in KINDS else None


def _sent(card: Card) -> dict[str, object]:
    """A card for the browser, no text of it longer than can be laid out."""

    def cut(row: Sequence[object]) -> list[object]:
        return [safe.clip(item) if isinstance(item, str) else item for item in row]

    return {
        "id": card.id,
        "title": safe.clip(card.title),
        "facts": [cut(fact) for fact in card.facts],
        "text": [(safe.clip(text, safe.LONGEST), mark) for text, mark in card.text],
        "hidden": [cut(row) for row in card.hidden],
        "note": safe.clip(card.note),
    }


def confirm(key: str, recorded: Collection[str], refused: Collection[str] = ()) -> None:
    """Tell the browser, when the queue is next drawn, what became of events, by their uids. recorded: they are in the
    record. refused: they cannot be recorded, since their item is gone. All others stay with the browser, which shows
    them as not saved and sends them again."""
    # Recorded or refused, both are settled: the browser drops them from its log, and shows the refused ones as such.
    handled = {**_handled(key), **dict.fromkeys(recorded, True), **dict.fromkeys(refused, False)}
    # The browser sends all that it has not seen confirmed, so what is not in its last message need not be kept.
    sent = {event.uid for event in _events(key)}
    st.session_state[f"{key}.handled"] = {uid: kept for uid, kept in handled.items() if uid in sent}


def _handled(key: str) -> dict[str, bool]:
    """uid of each handled event of the browser's last message: whether it was recorded."""
    handled: dict[str, bool] = st.session_state.get(f"{key}.handled", {})
    return handled


def at(key: str) -> str | None:
    """The id of the item on the screen; None until the browser has reported it."""
    card = _log(key).get("at")
    return str(card) if card else None


def blind(key: str) -> bool | None:
    """Whether the person works blind; None until the browser has reported it."""
    value = _log(key).get("blind")
    return value if isinstance(value, bool) else None


def place(key: str) -> str | None:
    """The name under which items are reserved for this tab; None until the browser has reported it. One open tab has a
    name at a time, and whoever closes the tab and comes back with the same browser gets it again."""
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
    empty: str = "Nothing is left here. Change the filters to continue.",
    hiding: str = "Votes are hidden until you answer.",
) -> None:
    """Draw the queue. `cards` are those that come next: the browser adds those that it does not hold yet. A new
    `session` (another order or filter) empties it; `owner` names who works on what, in which workspace, and is part of
    every event, so that what was left unsaved is never taken for somebody else's; `start` puts the person at that card,
    once. done of total: progress of the whole work, unconfirmed events not counted. watch: start a run of the page
    every second, to show what others answer meanwhile; else every 20 seconds."""
    # Kept, so that `redraw` can show the same queue while the record cannot be read.
    st.session_state[f"{key}.drawn"] = {
        "key": key,
        "session": session,
        "owner": owner,
        "cards": [_sent(card) for card in cards],
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
    }
    redraw(key)


def redraw(key: str) -> None:
    """Draw the queue as it was last drawn in this session, where the record cannot be read now: the person can continue
    with the items that the browser holds, and their answers are sent again until they are recorded. Draws nothing where
    it has not been drawn before."""
    drawn = st.session_state.get(f"{key}.drawn")
    if drawn is None:
        return
    handled = _handled(key)
    data = {
        **drawn,
        "confirmed": [uid for uid, kept in handled.items() if kept],
        "refused": [uid for uid, kept in handled.items() if not kept],
        "stranded": _stranded(key),
    }
    # The empty callback registers "log": Streamlit drops what the browser sets under a name without one.
    _component(key=key, data=visible_in(data), on_log_change=lambda: None)

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

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, Protocol, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cimemories.text import visible_in
from cimemories.ui import component, page, safe
from cimemories.ui.presses import KEYS

T = TypeVar("T")
Kind = Literal["say", "skip", "flag", "comment", "undo", "spread"]
KINDS = ("say", "skip", "flag", "comment", "undo", "spread")
LONGEST_TEXT = 2000
_component = component("workbench", "leaving", "uid", "unsaved", "keys")


@dataclass(frozen=True)
class Key:
    """A key (of presses.KEYS) that answers the item. `says`: the answer, as the event carries it; glyph and colour are
    the button's."""

    key: str
    says: str
    glyph: str
    colour: str


@dataclass(frozen=True)
class Card:
    """One item. `question`: what is asked of it, above the title, in segments (text, whether it is bold). `facts`:
    (name, text), or (name, text, True) for what matters most; `text`: a long text in segments (text, "" or "quote");
    `hidden`: rows (name, prior as text, marks as N X ? - or a text) that blind work hides until the answer; `note`: a
    muted line; `given`: what people answered before (who, their answer as a Key says it, how, their reason), side by
    side; `warning`: a line that stands out."""

    id: str
    title: str
    facts: Sequence[tuple[str, str] | tuple[str, str, bool]]
    text: Sequence[tuple[str, str]] = ()
    hidden: Sequence[tuple[str, str, str]] = ()
    note: str = ""
    question: Sequence[tuple[str, bool]] = ()
    given: Sequence[tuple[str, str, str, str]] = ()
    warning: str = ""


@dataclass(frozen=True)
class Event:
    """One answer or action of the person. card: the id of the item; says: of the key, for kind `say`; of: the uid of
    the event that an undo takes back, None for the last one from before this page was opened; text: of a comment or a
    flag, and the reason of an answer; owner: as given to `draw` at that time; cause: of an answer that needs one."""

    uid: str
    kind: Kind
    card: str
    says: str | None
    seconds: float
    blind: bool
    text: str
    of: str | None
    owner: str = ""
    cause: str = ""


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


def stranded(key: str) -> list[str]:
    """uids of events that cannot be recorded in this session, since it does not know their owner: the server was
    restarted, say, and somebody else has given a name since. They wait in the browser for their owner."""
    return [event.uid for event in pending(key) if owner(key, event) is None]


def _log(key: str) -> dict[str, Any]:
    log = (st.session_state.get(key) or {}).get("log")
    return log if isinstance(log, dict) else {}


def pending(key: str) -> list[Event]:
    """Events that are not confirmed yet, in their order; what is not a valid event is left out."""
    handled = settled(key)
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
            # Not there in what a browser has kept since before there were causes.
            cause=str(raw.get("cause") or "")[:64],
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
        "question": [cut(part) for part in card.question],
        "facts": [cut(fact) for fact in card.facts],
        "text": [(safe.clip(text, safe.LONGEST), mark) for text, mark in card.text],
        "hidden": [cut(row) for row in card.hidden],
        "note": safe.clip(card.note),
        "given": [cut(answer) for answer in card.given],
        "warning": card.warning,
    }


def take(key: str, record: Callable[[Any, list[Event]], Collection[str]]) -> set[str]:
    """Record what came since the last time and confirm it. record: gets an owner's value and events, and returns the
    uids of those that cannot be recorded, since their item is gone; returns all of these.

    Raises what `record` raises: nothing is confirmed then, so the browser keeps it.
    """
    recorded: set[str] = set()
    gone: set[str] = set()
    # Not sorted by owner: groupby joins neighbours only, so events are recorded in the order in which they were made.
    for value, group in groupby(pending(key), key=lambda event: owner(key, event)):
        # Answered under a name that this session does not know: it waits in the browser for its owner.
        if value is None:
            continue
        events = list(group)
        lost = set(record(value, events))
        recorded |= {event.uid for event in events} - lost
        gone |= lost
    confirm(key, recorded, gone)
    return gone


def keep_skipped(skipped: dict[str, str], events: Sequence[Event]) -> None:
    """Keep which items a session has put off, by the event's uid, so that an undo brings them back."""
    for event in events:
        if event.kind == "skip":
            skipped[event.uid] = event.card
        elif event.kind == "undo" and event.of is not None:
            skipped.pop(event.of, None)


def confirm(key: str, recorded: Collection[str], refused: Collection[str] = ()) -> None:
    """Tell the browser, when the queue is next drawn, what became of events, by their uids. recorded: they are in the
    record. refused: they cannot be recorded, since their item is gone. All others stay with the browser, which shows
    them as not saved and sends them again."""
    # Recorded or refused, both are settled: the browser drops them from its log, and shows the refused ones as such.
    handled = {**settled(key), **dict.fromkeys(recorded, True), **dict.fromkeys(refused, False)}
    # The browser sends all that it has not seen confirmed, so what is not in its last message need not be kept.
    sent = {event.uid for event in _events(key)}
    st.session_state[f"{key}.handled"] = {uid: kept for uid, kept in handled.items() if uid in sent}


def settled(key: str) -> dict[str, bool]:
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


def batch(key: str) -> int:
    """How many answers of its batch the browser counts; 0 until it has reported it."""
    done = _log(key).get("batch")
    return done if isinstance(done, int) else 0


def place(key: str) -> str | None:
    """The name under which items are reserved for this tab; None until the browser has reported it. One open tab has a
    name at a time, and whoever closes the tab and comes back with the same browser gets it again."""
    name = _log(key).get("place")
    return str(name)[:100] if name else None


def tab(key: str) -> int:
    """Which open tab of its browser this is, from 0; 0 until the browser has reported it."""
    number = (place(key) or "").rpartition(".")[2]
    return int(number) if number.isascii() and number.isdigit() and len(number) < 4 else 0


def desk() -> tuple[DeltaGenerator, DeltaGenerator]:
    """Where the queue goes, and at its right what helps to answer; one below the other on a narrow screen (ui.safe)."""
    with st.container(key="desk"):
        left, right = st.columns([3, 1], gap="medium")
    return left, right


class Note(Protocol):
    """A comment on an item."""

    @property
    def created(self) -> str: ...
    @property
    def annotator(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def resolved_by(self) -> str | None: ...


def history(answers: Iterable[safe.Html], notes: Sequence[Note], *, hidden: bool, nothing: str) -> bool:
    """What people said of an item, as rows: their answers, then the comments, newest first; `nothing` where there are
    none. answers: rows of a table (when, who, the answer, how). hidden: the person works blind and has not answered, so
    nothing is shown. Returns whether it is."""
    if hidden:
        safe.inline("Shows after your answer: press k to go back to it. Press b to see it now.", muted=True)
        return False
    rows = list(answers)
    for note in reversed(notes):
        kind = "resolved" if note.resolved_by else "comment"
        cells = (note.created[:16].replace("T", " "), note.annotator, kind, note.text)
        rows.append(safe.tag("tr", *(safe.tag("td", cell) for cell in cells)))
    if rows:
        safe.show(safe.grid((), rows))
    else:
        safe.inline(nothing, muted=True)
    return True


def draw(
    cards: Sequence[Card],
    *,
    key: str,
    session: str,
    owner: str,
    keys: Sequence[Key],
    causes: Sequence[tuple[str, str]] = (),
    whole: bool = False,
    blind: bool,
    done: int,
    total: int,
    start: str | None = None,
    address: Sequence[str] = (),
    actions: Sequence[str] = "sfzkjcb?",
    watch: bool = False,
    context: str = "",
    batch: int = 0,
    summary: Sequence[str] = (),
    empty: str = "Nothing is left here. Change the filters to continue.",
    hiding: str = "Votes are hidden until you answer.",
) -> None:
    """Draw the queue. `cards` are those that come next: the browser adds those that it does not hold yet. A new
    `session` (another order or filter) empties it; `owner` names who works on what, in which workspace, and is part of
    every event, so that what was left unsaved is never taken for somebody else's; `start` puts the person at that card,
    once. address: the parameters of the URL that name the card on the screen, one for each part of its id ('7.3').
    causes: (key, cause), one of which an answer needs beside its label. whole: `cards` are all that is open, so
    that the browser drops others that it holds. actions: what else can be done, by the keys of presses.KEYS. context:
    one line above the question. done of total: progress of the whole work, unconfirmed events not counted. batch: so
    many answers are a batch, whose end stands on the card with `summary` until the person goes on; 0: the whole work is
    counted. watch: start a run of the page every second, to show what others answer meanwhile; else every 20
    seconds."""
    # Kept, so that `redraw` can show the same queue while the record cannot be read.
    st.session_state[f"{key}.drawn"] = {
        "key": key,
        "session": session,
        "owner": owner,
        "cards": [_sent(card) for card in cards],
        "keys": [{**vars(item), "label": KEYS[item.key][0]} for item in keys],
        "causes": [(name, cause, *KEYS[name]) for name, cause in causes],
        "whole": whole,
        "actions": [(name, *KEYS[name]) for name in actions],
        "blind": blind,
        "done": done,
        "total": total,
        "left": max(0, total - done),
        "start": start,
        "address": list(address),
        "watch": watch,
        "context": safe.clip(context),
        "batch": batch,
        "summary": [safe.clip(text) for text in summary],
        "empty": empty,
        "hiding": hiding,
    }
    redraw(key)


def redraw(key: str) -> None:
    """Draw the queue as it was last drawn in this session, where the record cannot be read now: the person can continue
    with the items that the browser holds, and their answers are sent again until they are recorded. Draws nothing where
    it has not been drawn before."""
    last_data = st.session_state.get(f"{key}.drawn")
    if last_data is None:
        return
    handled = settled(key)
    data = {
        **last_data,
        "confirmed": [uid for uid, kept in handled.items() if kept],
        "refused": [uid for uid, kept in handled.items() if not kept],
        "stranded": stranded(key),
    }
    # The empty callback registers "log": Streamlit drops what the browser sets under a name without one.
    _component(key=key, data=visible_in(data), on_log_change=lambda: None)

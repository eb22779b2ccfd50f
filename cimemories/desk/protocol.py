"""The messages between the browser and a desk.

What a browser sends may be anything: an event that is not valid is refused, and texts are cut to what the record takes.
An event may come twice (a slow answer, a reload), and its `uid` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cimemories.review.recording import Event, Recorded
from cimemories.text import clip, visible_in

KINDS = ("say", "skip", "flag", "comment", "undo")
LONGEST_TEXT = 2000
LONGEST_MESSAGE = 100_000  # characters of a text on a card
MOST_EVENTS = 1000


@dataclass(frozen=True)
class Card:
    """One item.

    `question` is asked above the title, in segments (text, kind): "" ours, "data", or "strong" for the data that matter
    most. `facts` are (name, text), shown when asked for. `text` is a long text in segments (text, "" or "quote").
    `hidden` are rows (name, prior as text, marks as N I U - or a text) that blind work hides until the answer. `note`
    is a muted line, `warning` one that stands out. `given` are earlier answers of people (who, answer, how, reason),
    shown side by side. `links` are (text, address relative to the app) of pages about the item. `known` is the
    known answer of an item of training, and why it is that: both show after the answer.
    """

    id: str
    title: str
    facts: Sequence[tuple[str, str]] = ()
    text: Sequence[tuple[str, str]] = ()
    hidden: Sequence[tuple[str, str, str]] = ()
    note: str = ""
    question: Sequence[tuple[str, str]] = ()
    given: Sequence[tuple[str, str, str, str]] = ()
    warning: str = ""
    links: Sequence[tuple[str, str]] = ()
    known: Sequence[str] = ()

    def as_json(self) -> dict[str, object]:
        """Return the card for the browser, with every text cut to a length that it can lay out."""
        cut = {name: _cut(value) for name, value in vars(self).items() if name not in ("id", "text")}
        return {**cut, "id": self.id, "text": [(clip(text, LONGEST_MESSAGE), mark) for text, mark in self.text]}


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return clip(value)
    return [_cut(item) for item in value] if isinstance(value, (list, tuple)) else value


@dataclass(frozen=True)
class Message:
    """A request of the browser.

    events: those that are not recorded yet, in their order. malformed: uids of events that are not valid. place: the
    name under which items are reserved for the tab, which has it to itself; None until the browser knows it. at: the id
    of the card on the screen. start: the card that the address of the page names. fresh: whether it is the first
    message of a queue. skipped: ids of the cards that were put off, to be asked last. blind: whether the person works
    blind. needs: whether cards are asked for, since few are left or those that the browser has were reserved some time
    ago. batch: how many answers the batch that has just ended has, 0 while it goes on. looks: names of the parts beside
    the card that are open.
    """

    events: Sequence[Event] = ()
    malformed: Collection[str] = ()
    place: str | None = None
    at: str | None = None
    start: str | None = None
    fresh: bool = False
    skipped: Collection[str] = ()
    blind: bool = True
    needs: bool = True
    batch: int = 0
    looks: Collection[str] = ()

    @property
    def tab(self) -> int:
        """Return which open tab of its browser sent this, counted from 0."""
        number = (self.place or "").rpartition(".")[2]
        return int(number) if number.isascii() and number.isdigit() and len(number) < 4 else 0

    @classmethod
    def of(cls, raw: Any, owner: str) -> Message:
        """Read a message. Events of another owner than the desk's are left out: they wait in the browser for theirs."""
        raw = raw if isinstance(raw, dict) else {}
        sent = [item for item in _list(raw.get("events")) if isinstance(item, dict) and item.get("owner") == owner]
        read = [(item, _event(item)) for item in sent[:MOST_EVENTS]]
        batch = raw.get("batch")
        return cls(
            events=[event for _, event in read if event is not None],
            malformed=[str(item["uid"]) for item, event in read if event is None and item.get("uid")],
            place=_text(raw.get("place"), 100),
            at=_text(raw.get("at"), 64),
            start=_text(raw.get("start"), 64),
            fresh=raw.get("fresh") is True,
            skipped={str(card) for card in _list(raw.get("skipped"))},
            blind=raw.get("blind") is not False,
            needs=raw.get("needs") is not False,
            batch=batch if isinstance(batch, int) else 0,
            looks={str(name) for name in _list(raw.get("looks"))},
        )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any, longest: int) -> str | None:
    return str(value)[:longest] if value else None


def _event(raw: Mapping[str, Any]) -> Event | None:
    """Return an event as the browser sent it, or None if it is not valid."""
    try:
        event = Event(
            uid=str(raw["uid"])[:64],
            kind=str(raw["kind"]),
            card=str(raw["card"]),
            answer=None if raw["says"] is None else str(raw["says"]),
            seconds=max(0.0, float(raw["seconds"])),  # in this order nan gives 0.0 too
            blind=bool(raw["blind"]),
            text=str(raw["text"])[:LONGEST_TEXT],
            of=None if raw["of"] is None else str(raw["of"])[:64],
            cause=str(raw.get("cause") or "")[:64],  # missing in what browsers stored before there were causes
        )
    except (KeyError, TypeError, ValueError):
        return None
    return event if event.kind in KINDS else None


@dataclass(frozen=True)
class Reply:
    """The answer of a desk to a message.

    recorded: uids of events that are in the record. refused: uids of those that never can be, since their item is gone.
    cards: those that come next, None if they were not asked for. done, total: progress of the whole work. start: the
    card to show next; None leaves that to the browser. back: the pair that an undo of an earlier visit leads to, "" if
    there was nothing left to undo. summary: what the batch that has ended came to. aside: lines beside the card.
    history: rows (when, who, what, how) of the card on the screen, None if they are not asked for or the person works
    blind and has not answered. memory: what the writer of the message on the screen knew, with the statement in
    question marked. notice: what the person has to be told. version: how many decisions the record has, so that older
    data of the page can be told.
    """

    recorded: Collection[str]
    refused: Collection[str] = ()
    cards: Sequence[Card] | None = ()
    done: int = 0
    total: int = 0
    start: str | None = None
    back: str | None = None
    summary: Sequence[str] = ()
    aside: Sequence[str] = ()
    history: Sequence[Sequence[str]] | None = None
    memory: Sequence[tuple[str, bool]] | None = None
    notice: str = ""
    version: int = 0

    def as_json(self) -> dict[str, object]:
        """Return the reply as JSON takes it, with control characters made visible."""
        uids = {"recorded": list(self.recorded), "refused": list(self.refused)}
        plain = {name: _cut(value) for name, value in vars(self).items() if name != "cards"}
        cards = None if self.cards is None else [card.as_json() for card in self.cards]
        return {**visible_in({**plain, "cards": cards}), **uids}


class Desk(Protocol):
    """An object that answers the messages of a component. `owner` names who works on what, in which workspace: every
    event carries it, so that no answer is recorded as another person's, or of another dataset."""

    @property
    def owner(self) -> str: ...

    def answer(self, message: Message) -> Reply:
        """Record the events of a message and return what comes next. Raises StoreError if nothing was recorded."""


@dataclass(frozen=True)
class Settled:
    """The outcome of the events of a message; see `Reply`."""

    recorded: Collection[str]
    refused: Collection[str]
    back: str | None = field(default=None)


def settle(message: Message, record: Callable[[Sequence[Event]], Recorded], name: Callable[[Any], str]) -> Settled:
    """Record the events of a message. `name` gives the id of the card that an undo leads back to."""
    done = record(message.events) if message.events else Recorded(None, frozenset())
    recorded = [event.uid for event in message.events if event.uid not in done.refused]
    return Settled(recorded, [*done.refused, *message.malformed], None if done.back is None else name(done.back))

"""Decisions, marks and comments from the queue, recorded once each, however often the browser sends them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cimemories.model import Label
from cimemories.store import decisions, reviews
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Connection, Store
from cimemories.store.reviews import Mark, MarkKind

Pair = tuple[int, int]
LABEL_TEXTS = frozenset(map(str, Label))


class Event(Protocol):
    """One press of a key, or one comment, as `ui.workbench.Event` has it: kind is say, undo, comment or a MarkKind.

    says: the label or verdict of a `say`. of: the uid of the event that an undo takes back, None for the last one of
    before the page was opened.
    """

    @property
    def uid(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def card(self) -> str: ...
    @property
    def says(self) -> str | None: ...
    @property
    def seconds(self) -> float: ...
    @property
    def blind(self) -> bool: ...
    @property
    def text(self) -> str: ...
    @property
    def of(self) -> str | None: ...


@dataclass(frozen=True)
class Recorded:
    """back: the pair that an undo of something decided before the page was opened leads back to. new: decisions that
    the record did not have. gone: uids of events that the record cannot hold: their pair was taken away by an edit or a
    deletion."""

    back: Pair | None
    new: int
    gone: frozenset[str]


def card_id(pair: Pair) -> str:
    """What a card of the queue is known by."""
    return f"{pair[0]}.{pair[1]}"


def pair_of(card: str) -> Pair | None:
    """The (attribute id, context id) that a card is about; None where its id names none."""
    ids = card.split(".")
    # From a browser, so anything may come: isdigit alone takes '²', which int refuses, and 15 digits fit any id.
    valid = len(ids) == 2 and all(text.isascii() and text.isdigit() and len(text) < 16 for text in ids)
    return (int(ids[0]), int(ids[1])) if valid else None


def record(store: Store, dataset_id: int, annotator: str, events: Sequence[Event]) -> Recorded:
    """Record events of one person and dataset in their order, in one transaction.

    Raises StoreError where nothing could be written: then nothing was, and the browser still holds all of it.
    """
    back: Pair | None = None
    new = 0
    gone: set[str] = set()
    with store.write() as connection:
        there = decisions.still_there(
            connection, dataset_id, {pair for event in events if (pair := pair_of(event.card)) is not None}
        )
        # Decisions one after the other are gathered and written together.
        waiting: list[NewDecision] = []
        # Kept with the first decision that names it, so that a later release cannot change what people went by.
        guideline = reviews.keep_guideline(connection).hash
        for event in events:
            pair = pair_of(event.card)
            if pair is not None and pair not in there:
                gone.add(event.uid)
            elif event.kind == "say":
                if pair is None or event.says not in LABEL_TEXTS:
                    gone.add(event.uid)
                    continue
                waiting.append(
                    NewDecision(
                        *pair,
                        Label(event.says),
                        uid=event.uid,
                        seconds=event.seconds,
                        source="queue",
                        blind=event.blind,
                        guideline=guideline,
                    )
                )
            else:
                # In the order they were made: an undo must find the decision that it takes back.
                new += decisions.add_all(connection, dataset_id, annotator, waiting)
                waiting = []
                if event.kind == "undo":
                    # Of several undos the last one that leads anywhere decides where the page goes.
                    back = _undo(connection, dataset_id, annotator, event) or back
                elif pair is not None and event.kind == "comment":
                    reviews.add_comment(connection, dataset_id, annotator, *pair, event.text, event.uid)
                elif pair is not None:
                    mark = Mark(*pair, MarkKind(event.kind), uid=event.uid, seconds=event.seconds)
                    reviews.add_marks(connection, dataset_id, annotator, [mark])
        new += decisions.add_all(connection, dataset_id, annotator, waiting)
    return Recorded(back, new, frozenset(gone))


def _undo(connection: Connection, dataset_id: int, annotator: str, event: Event) -> Pair | None:
    """Take back what the event names; without a name the annotator's last decision, whose pair is returned."""
    if event.of is not None:
        # The name may be that of a mark: decisions and marks are undone with the same key.
        if not decisions.undo(connection, dataset_id, annotator, event.of, event.uid):
            reviews.take_back_mark(connection, dataset_id, annotator, event.of, event.uid)
        return None
    # Sent again, it must not take back one decision more.
    if decisions.is_known(connection, dataset_id, event.uid):
        return None
    last = decisions.last_decision(connection, dataset_id, annotator)
    if last is None or last.uid is None:
        return None
    decisions.undo(connection, dataset_id, annotator, last.uid, event.uid)
    return last.attribute, last.context

"""Part of the Review page: what was said in the queue becomes events of the record, each once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cimemories.model import Label
from cimemories.store import comments, decisions, guidelines, marks
from cimemories.store.decisions import Said
from cimemories.store.engine import Connection, Store
from cimemories.store.marks import Kind, Mark
from cimemories.ui.workbench import Event

Pair = tuple[int, int]
LABELS = frozenset(map(str, Label))


def pair_of(card: str) -> Pair | None:
    """The (attribute id, context id) that a card is about; None where its id names none."""
    first, _, second = card.partition(".")
    return (int(first), int(second)) if _is_id(first) and _is_id(second) else None


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


def card_id(pair: Pair) -> str:
    """What a card of the queue is known by."""
    return f"{pair[0]}.{pair[1]}"


@dataclass(frozen=True)
class Recorded:
    """back: the pair that an undo of something said before the page was opened leads back to. new: decisions that the
    record did not have. gone: uids of events that the record cannot hold: their pair was taken away by an edit or a
    deletion."""

    back: Pair | None
    new: int
    gone: frozenset[str]


def record(store: Store, dataset_id: int, annotator: str, events: Sequence[Event]) -> Recorded:
    """Record events of one person and dataset in their order, in one transaction, each once however often it comes.

    Raises StoreError where nothing could be written: then nothing was, and the browser still holds all of it.
    """
    back: Pair | None = None
    new = 0
    gone: set[str] = set()
    with store.write() as connection:
        there = decisions.still_there(
            connection, dataset_id, {pair for event in events if (pair := pair_of(event.card)) is not None}
        )
        waiting: list[Said] = []
        # Kept with the first decision that names it, so that a later release cannot change what people went by.
        guideline = guidelines.keep(connection).hash
        for event in events:
            pair = pair_of(event.card)
            if pair is not None and pair not in there:
                gone.add(event.uid)
            elif event.kind == "say":
                if pair is not None and event.says in LABELS:
                    waiting.append(_said(pair, event, guideline))
                else:
                    gone.add(event.uid)
            else:
                new += decisions.add_all(connection, dataset_id, annotator, waiting)
                waiting = []
                if event.kind == "undo":
                    back = _undo(connection, dataset_id, annotator, event) or back
                elif pair is not None:
                    _other(connection, dataset_id, annotator, pair, event)
        new += decisions.add_all(connection, dataset_id, annotator, waiting)
    return Recorded(back, new, frozenset(gone))


def _said(pair: Pair, event: Event, guideline: str) -> Said:
    return Said(
        *pair,
        Label(event.says or ""),
        uid=event.uid,
        seconds=event.seconds,
        source="queue",
        blind=event.blind,
        guideline=guideline,
    )


def _other(connection: Connection, dataset_id: int, annotator: str, pair: Pair, event: Event) -> None:
    if event.kind == "comment":
        comments.add(connection, dataset_id, annotator, *pair, event.text, event.uid)
    else:
        mark = Mark(*pair, Kind(event.kind), uid=event.uid, seconds=event.seconds)
        marks.add_all(connection, dataset_id, annotator, [mark])


def _undo(connection: Connection, dataset_id: int, annotator: str, event: Event) -> Pair | None:
    if event.of is not None:
        if not decisions.undo(connection, dataset_id, annotator, event.of, event.uid):
            marks.take_back(connection, dataset_id, annotator, event.of, event.uid)
        return None
    if decisions.is_known(connection, dataset_id, event.uid):
        return None
    last = decisions.last_said(connection, dataset_id, annotator)
    if last is None or last.uid is None:
        return None
    decisions.undo(connection, dataset_id, annotator, last.uid, event.uid)
    return last.attribute, last.context

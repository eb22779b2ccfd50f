"""The matrix of a profile and the list of one context at the desk: keys that decide the pair that the person is at."""

from __future__ import annotations

from dataclasses import dataclass

from cimemories.desk.protocol import Message, Reply, settle
from cimemories.desk.queue import owner_of
from cimemories.review.recording import card_id, record
from cimemories.store import decisions
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store
from cimemories.text import count


@dataclass(frozen=True)
class LabelsDesk:
    """The pairs of a dataset, for one annotator."""

    store: Store
    dataset: DatasetRow
    me: str
    name: str = "labels"

    @property
    def owner(self) -> str:
        return owner_of(self.store, [self.dataset.id, self.dataset.created, self.me])

    def answer(self, message: Message) -> Reply:
        """Record what was decided, and return the pair of an earlier decision that was taken back."""
        done = settle(
            message, lambda events: record(self.store, self.dataset, self.me, events, source="single"), card_id
        )
        last = message.events[-1] if message.events else None  # after it the person has decided nothing else
        asked = last is not None and last.kind == "undo" and last.of is None
        refused = len(done.refused)
        return Reply(
            done.recorded,
            done.refused,
            back=(done.back or "") if asked else None,
            notice=f"{count(refused, 'decision')} not saved: an edit has removed the pair." if refused else "",
            version=version(self.store, self.dataset.id),
        )


def version(store: Store, dataset_id: int) -> int:
    """Return a number that grows with every decision on the dataset."""
    with store.read() as connection:
        return decisions.last_id(connection, dataset_id)

"""Adjudication at the desk: pairs on which people differ, one after the other, on the card of the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cimemories.desk.protocol import Card, Message, Reply, settle
from cimemories.desk.queue import card, decision_row, owner_of
from cimemories.review.adjudication import Disputed, Disputes, disputes, pseudonyms
from cimemories.review.index import pair_index
from cimemories.review.queue import Item, items
from cimemories.review.recording import card_id, dispute_id, pair_of, record
from cimemories.store.datasets import DatasetRow
from cimemories.store.decisions import ADJUDICATED, Decision
from cimemories.store.engine import Store
from cimemories.store.labellings import LabellingRow

AHEAD = 60  # disputes that the browser gets at once
OWN = "You gave one of these answers yourself. If you can, leave this pair to another person: s skips it."


@dataclass(frozen=True)
class DisputesDesk:
    """The disputes of a dataset, for one curator. hidden: whether people are shown as letters."""

    store: Store
    dataset: DatasetRow
    labelling: LabellingRow | None
    me: str
    hidden: bool

    @property
    def name(self) -> str:
        return f"{self.dataset.id}.{self.me}.{self.hidden}"

    @property
    def owner(self) -> str:
        return owner_of(self.store, [self.dataset.created, self.me])

    @property
    def names(self) -> Mapping[str, str]:
        """Return what to call each person."""
        letters = pseudonyms(self.store, self.dataset.id)
        return letters if self.hidden else {name: name for name in letters}

    def answer(self, message: Message) -> Reply:
        """Record what was settled and return the disputes that come next."""
        # A pair that is skipped here is not skipped in the queue.
        skips = [event.uid for event in message.events if event.kind == "skip"]
        rest = replace(message, events=[event for event in message.events if event.kind != "skip"])
        done = settle(
            rest, lambda events: record(self.store, self.dataset, self.me, events, source=ADJUDICATED), card_id
        )
        disputed = disputes(self.store, self.dataset.id)
        names = self.names
        later = message.skipped
        # Who has not answered themselves is the better judge: one's own disputes come last, but for what was skipped.
        ordered = sorted(disputed.open, key=lambda item: (dispute_id(item, self.me) in later, item.is_own(self.me)))
        start = next((item for item in ordered if card_id(item.pair) == done.back), None)
        shown = {item.pair: item for item in [*([start] if start else []), *ordered[:AHEAD]]}
        return Reply(
            [*done.recorded, *skips],
            done.refused,
            cards=self._cards(shown, names),
            done=len(disputed.settled),
            total=len(disputed.settled) + len(disputed.open),
            start=dispute_id(start, self.me) if start else None,
            history=self._history(message, disputed, names),
            notice=f"{len(done.refused)} not settled: another person has just decided there, or an edit removed the "
            "pair. What is still in dispute comes again."
            if done.refused
            else "",
        )

    def _cards(self, shown: Mapping[tuple[int, int], Disputed], names: Mapping[str, str]) -> list[Card]:
        index = pair_index(self.store, self.dataset.id, self.labelling.id if self.labelling else None)
        at = index.shape.locate([a for a, _ in shown], [c for _, c in shown])
        pairs = {(item.attribute, item.context): item for item in items(self.store, index, at)}
        return [self._card(pairs[pair], item, names) for pair, item in shown.items() if pair in pairs]

    def _card(self, pair: Item, item: Disputed, names: Mapping[str, str]) -> Card:
        shown = card(pair, self.dataset.id)
        return replace(
            shown,
            id=dispute_id(item, self.me),
            given=[
                # Never the name itself in place of a missing letter: names may be hidden.
                (names.get(d.annotator, "?"), str(d.label), ", ".join(filter(None, (when(d), how(d)))), d.reason)
                for d in item.decisions
            ],
            links=shown.links[: 1 if self.hidden else None],  # the page of the pair shows names
            warning=OWN if item.is_own(self.me) else "",
            note="This pair was settled before, and a person has decided it again since." if item.adjudication else "",
        )

    def _history(
        self, message: Message, disputed: Disputes, names: Mapping[str, str]
    ) -> Sequence[Sequence[str]] | None:
        pair = pair_of(message.at or "")
        item = next((item for item in (*disputed.open, *disputed.settled) if item.pair == pair), None)
        if item is None or "history" not in message.looks:
            return None
        rows = map(decision_row, item.history)
        return [(created, names.get(who, "?"), *rest) for created, who, *rest in rows]


def when(item: Decision) -> str:
    """Return when a decision was made, to the minute."""
    return item.created[:16].replace("T", " ")


def how(item: Decision) -> str:
    """Return how a decision was made, in words."""
    return ", ".join(filter(None, (item.source, "blind" if item.blind else "", item.cause)))

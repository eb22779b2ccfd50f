"""The review queue at the desk: pairs of a dataset, filtered and ordered, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cimemories.charts.theme import GLYPHS, VOTES
from cimemories.desk.protocol import Card, Message, Reply, settle
from cimemories.model import Label
from cimemories.review.assignments import assignment_of, overlap_of
from cimemories.review.index import Ints, PairIndex, Positions, pair_index
from cimemories.review.queue import (
    Filters,
    Item,
    Order,
    items,
    open_to,
    question,
    reserve,
    select,
    undecided,
)
from cimemories.review.recording import card_id, pair_of, record
from cimemories.review.status import pair_history, sitting
from cimemories.store.datasets import DatasetRow
from cimemories.store.decisions import Decision
from cimemories.store.engine import Store, content_hash
from cimemories.store.labellings import LabellingRow
from cimemories.store.reviews import Comment
from cimemories.text import display_name, exact_percent, spoken

BATCH = 100
TITLES = {
    Order.ENTROPY_RATE: "entropy × reveal rate",
    Order.ENTROPY: "divided votes first",
    Order.CONTEXT: "one recipient at a time",
    Order.ATTRIBUTE: "one attribute at a time",
    Order.RANDOM: "random",
}


@dataclass(frozen=True)
class Ordering:
    """The order of the pairs, and what is said of the work in this order. batch: how many pairs are a batch. An extra
    may have orders of its own."""

    order: Order
    seed: int = 0
    batch: int = BATCH

    @property
    def name(self) -> list[object]:
        """Return what tells the order from others, in plain values."""
        return [self.order, self.seed]

    @property
    def title(self) -> str:
        return TITLES[self.order]

    def select(self, store: Store, index: PairIndex, filters: Filters) -> Positions:
        """Return the positions of the pairs that match, in this order."""
        return select(store, index, filters, self.order, self.seed)

    def aside(self, store: Store, index: PairIndex) -> Sequence[str]:
        """Return lines beside the card."""
        return ()

    def note(self, filters: Filters) -> str:
        """Return what the order does not say under these filters; '' for nothing."""
        return ""

    def summary(self, store: Store, index: PairIndex, decided: Ints) -> Sequence[str]:
        """Return what a batch came to, by the positions that were decided in it."""
        return ()


@dataclass(frozen=True)
class QueueDesk:
    """The queue of one annotator."""

    store: Store
    dataset: DatasetRow
    labelling: LabellingRow | None
    filters: Filters
    ordering: Ordering
    me: str

    @property
    def name(self) -> str:
        """Return what the queue is known by: with another filter or order it is another queue."""
        labelled = self.labelling.id if self.labelling else None
        return content_hash([self.owner, labelled, vars(self.filters), *self.ordering.name])

    @property
    def owner(self) -> str:
        return owner_of(self.store, [self.dataset.id, self.dataset.created, self.me])

    @property
    def batch(self) -> int:
        """Return how many pairs are a batch; 0 for a slice, which is one set however large."""
        return 0 if self.filters.slice else self.ordering.batch

    def answer(self, message: Message) -> Reply:
        """Record what was decided and return the pairs that come next. Raises DatasetGone if the dataset is gone."""
        store = self.store
        done = settle(message, lambda events: record(store, self.dataset, self.me, events), card_id)
        index = pair_index(store, self.dataset.id, self.labelling.id if self.labelling else None)
        every = select(store, index, replace(self.filters, undecided_by=None), Order.ATTRIBUTE)
        left = undecided(store, index, every, self.me)
        decided = len(every) - len(left)
        assigned = assignment_of(store, self.filters.slice)
        plan = overlap_of(assigned)
        if assigned is not None and plan is not None:
            # Of pairs with overlap only as many as are this person's part, and as others have left.
            left = open_to(store, index, left, self.me, plan.people)[: max(0, assigned.share - decided)]
        start = next((name for name in (done.back, message.start) if name and _is_in(index, name)), None)
        return Reply(
            done.recorded,
            done.refused,
            cards=self._cards(index, message, start) if message.needs or start else None,
            done=decided,
            total=decided + len(left),
            start=start,
            summary=self._summary(index, message.batch) if message.batch else (),
            aside=self.ordering.aside(store, index),
            history=self._history(message),
            notice=_not_saved(len(done.refused)),
        )

    def _cards(self, index: PairIndex, message: Message, start: str | None) -> list[Card]:
        """Return the pairs that come next for this browser, reserved for it; first the one to start with."""
        first = pair_of(start) if start else None
        assigned = assignment_of(self.store, self.filters.slice)
        if message.place is None or (assigned is not None and self.me not in assigned.people):
            return []
        plan = overlap_of(assigned)
        reserved = reserve(
            self.store,
            index,
            self.ordering.select(self.store, index, self.filters),
            self.me,
            message.place,
            release=message.fresh,  # with another filter the pairs of the queue before are free for others
            everybody=self.filters.slice is not None and plan is None,
            plan=plan,
        )
        pairs = dict.fromkeys([*([first] if first else []), *reserved])
        shown = index.shape.locate([a for a, _ in pairs], [c for _, c in pairs])
        return [card(item, self.dataset.id) for item in items(self.store, index, shown)]

    def _summary(self, index: PairIndex, batch: int) -> list[str]:
        """Return what the batch that has ended did to labels, and what its order says of it."""
        last = sitting(self.store, index, self.me, batch)
        changed = (
            f"{last.settled} of your last {last.decisions} decisions settle an ambiguous pair, {last.against} go "
            "against the consensus."
        )
        return [changed, *self.ordering.summary(self.store, index, last.positions)]

    def _history(self, message: Message) -> list[tuple[str, str, str, str]] | None:
        pair = pair_of(message.at or "")
        if pair is None or "history" not in message.looks:
            return None
        made, notes = pair_history(self.store, self.dataset.id, pair)
        if message.blind and not any(item.annotator == self.me for item in made):
            return None
        return history(map(decision_row, reversed(made)), notes)


def owner_of(store: Store, parts: Sequence[object]) -> str:
    """Return the owner of a desk. SQLite gives ids of deleted rows out again, and a port serves many workspaces."""
    return content_hash([str(store.engine.url), str(store.workspace.absolute()), *parts])


def _is_in(index: PairIndex, name: str) -> bool:
    pair = pair_of(name)
    return pair is not None and index.shape.locate([pair[0]], [pair[1]])[0] >= 0


def _not_saved(refused: int) -> str:
    if not refused:
        return ""
    answers = "1 answer was" if refused == 1 else f"{refused} answers were"
    return f"{answers} not saved: an edit or a deletion has removed the pair."


def card(item: Item, dataset: int) -> Card:
    """Return a pair of a dataset as it is decided."""
    event = "" if item.event == item.domain else f", {display_name(item.event)}"
    revealed = f"revealed in {item.reveals} of {item.draws} judged messages" if item.draws else ""
    people = f"decided by {item.decided} already" if item.decided else ""
    return Card(
        id=card_id((item.attribute, item.context)),
        title=item.statement,
        question=question(item.recipient, item.task),
        facts=[
            ("Attribute", f"{item.key}: {spoken(item.value)}"),
            ("Domain, event", f"{display_name(item.domain)}{event}"),
            ("Profile", item.user),
        ],
        hidden=[
            *((key, exact_percent(prior), letters.translate(VOTES)) for key, prior, letters in item.votes),
            ("consensus", "", glyphed(item.consensus) or "not labelled"),
            *([("in runs", "", "; ".join(filter(None, (revealed, people))))] if revealed or people else []),
        ],
        link=f"labels?dataset={dataset}&attribute={item.attribute}&context={item.context}&profile={item.profile}",
    )


def glyphed(label: Label | None) -> str:
    """Return a label as glyph and word, such as 'I inappropriate', or '' for None."""
    return f"{GLYPHS[label]} {label}" if label else ""


def decision_row(item: Decision) -> tuple[str, str, str, str]:
    """Return a decision as a row of a history: when, who, which label, how and why."""
    how = [item.source if item.source != "single" else "", "blind" if item.blind else "", item.cause or "", item.reason]
    return _when(item.created), item.annotator, glyphed(item.label) or "withdrawn", ", ".join(filter(None, how))


def history(answers: Iterable[tuple[str, str, str, str]], notes: Sequence[Comment]) -> list[tuple[str, str, str, str]]:
    """Return what people said of an item as rows: their answers, then the comments, newest first."""
    kinds = {True: "resolved", False: "comment"}
    said = ((_when(n.created), n.annotator, kinds[bool(n.resolved_by)], n.text) for n in reversed(notes))
    return [*answers, *said]


def _when(created: str) -> str:
    return created[:16].replace("T", " ")

"""The review queue at the desk: pairs of a dataset, filtered and ordered, one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cimemories.charts.theme import GLYPHS, VOTES
from cimemories.desk.protocol import Card, Message, Reply, Settled, settle
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
from cimemories.review.recording import Pair, card_id, pair_of, record, training_id
from cimemories.review.status import pair_history, sitting
from cimemories.review.training import Course, course_of, reason_of
from cimemories.store.datasets import DatasetRow
from cimemories.store.decisions import Decision
from cimemories.store.engine import Store, content_hash
from cimemories.store.labellings import LabellingRow
from cimemories.store.reviews import Comment
from cimemories.text import count, display_name, exact_percent, spoken

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
        course = self._course(index)
        if course.left:
            return self._training(message, done, index, course)
        decided, left, tests = self._progress(index, course)
        trained = {pair.pair for pair in course.training}
        starts = [name for name in (done.back, message.start) if name and pair_of(name) not in trained]
        start = next((name for name in starts if _is_in(index, name)), None)
        return Reply(
            done.recorded,
            done.refused,
            cards=self._cards(index, message, start, tests) if message.needs or start else None,
            done=decided,
            total=decided + len(left),
            start=start,
            summary=self._summary(index, message.batch) if message.batch else (),
            aside=[*_trained(course), *self.ordering.aside(store, index)],
            history=self._history(message),
            notice=_not_saved(len(done.refused)),
        )

    @property
    def is_done(self) -> bool:
        """Return whether nothing is left for this person to decide."""
        index = pair_index(self.store, self.dataset.id, self.labelling.id if self.labelling else None)
        course = self._course(index)
        return not course.left and not len(self._progress(index, course)[1])

    def _course(self, index: PairIndex) -> Course:
        """Return the known pairs of the slice that an edit has not removed."""
        course = course_of(self.store, self.filters.slice, self.me)
        training = [known for known in course.training if _is_in(index, card_id(known.pair))]
        return replace(
            course, training=training, tests=frozenset(pair for pair in course.tests if _is_in(index, card_id(pair)))
        )

    def _progress(self, index: PairIndex, course: Course) -> tuple[int, Ints, Ints]:
        """Return how many pairs this person has decided, the positions of those that are left, and of all tests."""
        tests = index.shape.locate([a for a, _ in course.tests], [c for _, c in course.tests])
        every = select(self.store, index, replace(self.filters, undecided_by=None), Order.ATTRIBUTE)
        left = undecided(self.store, index, every, self.me)
        decided = len(every) - len(left)
        assigned = assignment_of(self.store, self.filters.slice)
        plan = overlap_of(assigned)
        if assigned is not None and plan is not None:
            # Of pairs with overlap only as many as are this person's part, and as others have left; but every test.
            to_test = left[np.isin(left, tests)]
            share = assigned.share - (decided - (len(tests) - len(to_test)))
            drawn = open_to(self.store, index, left[~np.isin(left, tests)], self.me, plan.people)
            left = np.concatenate([drawn[: max(0, share)], to_test])
        return decided, left, tests

    def _training(self, message: Message, done: Settled, index: PairIndex, course: Course) -> Reply:
        """Return the training pairs that are left: the slice begins when all are answered."""
        left = {pair.pair: pair for pair in course.left}
        at = index.shape.locate([a for a, _ in left], [c for _, c in left])
        with self.store.read() as connection:
            why = {pair: reason_of(connection, self.dataset.id, of) for pair, of in left.items()}
        cards = [
            replace(
                card(item, self.dataset.id),
                id=training_id(pair, self.filters.slice or 0),
                known=(str(left[pair].label), why[pair]),
            )
            for item in items(self.store, index, at)
            for pair in [(item.attribute, item.context)]
        ]
        return Reply(
            done.recorded,
            done.refused,
            cards=cards if message.place else None,
            done=len(course.training) - len(left),
            total=len(course.training),
            aside=_trained(course),
            history=self._history(message),
            notice=_not_saved(len(done.refused)),
        )

    def _cards(self, index: PairIndex, message: Message, start: str | None, tests: Ints) -> list[Card]:
        """Return the pairs that come next for this browser, reserved for it; first the one to start with. tests: pairs
        that are given to everybody, each in its turn."""
        first = pair_of(start) if start else None
        assigned = assignment_of(self.store, self.filters.slice)
        if message.place is None or (assigned is not None and self.me not in assigned.people):
            return []
        plan = overlap_of(assigned)
        order = self.ordering.select(self.store, index, self.filters)
        reserved = reserve(
            self.store,
            index,
            order[~np.isin(order, tests)],
            self.me,
            message.place,
            release=message.fresh,  # with another filter the pairs of the queue before are free for others
            everybody=self.filters.slice is not None and plan is None,
            plan=plan,
        )
        if len(tests):
            reserved = _mixed(reserved, index.pairs(order), set(index.pairs(order[np.isin(order, tests)])))
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


def _mixed(drawn: Sequence[Pair], order: Sequence[Pair], tests: Collection[Pair]) -> list[Pair]:
    """Return the pairs that were drawn with the tests that come before each in this order; all tests where no other
    pair is left."""
    rank = {pair: n for n, pair in enumerate(order)}
    waiting = sorted(tests, key=rank.__getitem__, reverse=True)
    mixed: list[Pair] = []
    for pair in drawn:
        while waiting and rank[waiting[-1]] < rank[pair]:
            mixed.append(waiting.pop())
        mixed.append(pair)
    return mixed or waiting[::-1]


def _trained(course: Course) -> list[str]:
    """Return how training went, as lines beside the card."""
    if not course.training:
        return []
    done = len(course.training) - len(course.left)
    score = f"{count(course.right)} of {count(done)} right" if done else ""
    if course.left:
        rules = "Training: your answers do not count yet. After each you see the known one."
        return [rules, *filter(None, [score])]
    return [f"Training done: {score}."]


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
    pair = f"dataset={dataset}&attribute={item.attribute}&context={item.context}"
    return Card(
        id=card_id((item.attribute, item.context)),
        title=item.statement,
        question=question(item.user, item.sex, item.recipient, item.task),
        facts=[
            ("Attribute", f"{item.key}: {spoken(item.value)}"),
            ("Domain, event", f"{display_name(item.domain)}{event}"),
        ],
        hidden=[
            *((key, exact_percent(prior), letters.translate(VOTES)) for key, prior, letters in item.votes),
            ("consensus", "", glyphed(item.consensus) or "not labelled"),
            *([("in runs", "", "; ".join(filter(None, (revealed, people))))] if revealed or people else []),
        ],
        links=[
            (f"About {item.user}", f"profiles?dataset={dataset}&profile={item.profile}"),
            ("Open the pair", f"labels?{pair}&profile={item.profile}"),
        ],
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

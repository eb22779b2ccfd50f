"""Decisions as events: recorded once, taken back to what stood before, alone and in batches, on both engines."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import add_dataset, records

from cimemories.model import Label
from cimemories.store import decisions
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Store

N, X = Label.NECESSARY, Label.INAPPROPRIATE


def stands(store: Store, dataset: int, annotator: str) -> dict[tuple[int, int], Label | None]:
    with store.read() as connection:
        history = [d for d in decisions.history(connection, dataset) if d.annotator == annotator]
    return {pair: d.label for pair, d in decisions.standing(history).items()}


@pytest.fixture
def world(store: Store) -> tuple[Store, int, list[tuple[int, int]]]:
    dataset = add_dataset(store, profiles=1, attributes=3, contexts=2)
    (record,) = records(store, dataset.id)
    return store, dataset.id, [(a, c) for a in record.attribute_ids for c in record.context_ids]


def test_the_same_event_sent_again_is_one(world: tuple[Store, int, list[tuple[int, int]]]) -> None:
    store, dataset, pairs = world
    new_decisions = [NewDecision(*pair, N, uid=f"u{n}") for n, pair in enumerate(pairs)]
    for expected in (len(pairs), 0):
        with store.write() as connection:
            assert decisions.add_all(connection, dataset, "Ada", new_decisions * 2) == expected
    with store.read() as connection:
        assert [d.uid for d in decisions.history(connection, dataset)] == [item.uid for item in new_decisions]


def test_the_newest_is_what_was_said_last_and_not_what_was_merged_last(
    world: tuple[Store, int, list[tuple[int, int]]],
) -> None:
    store, dataset, pairs = world
    times = ("2026-01-03T00:00:00.000Z", "2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z")
    with store.write() as connection:
        for who, pair, time in zip(("Ada", "Bob", "Ada"), pairs, times, strict=False):
            decisions.add_all(connection, dataset, who, [NewDecision(*pair, N, created=time)])
        for who, said in ((None, times[0]), ("Ada", times[0]), ("Bob", times[1])):
            last = decisions.newest(connection, who)
            assert last is not None and last.decision.created == said
        assert decisions.newest(connection, "Eve") is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.sampled_from(["Ada", "Bob"]), st.integers(0, 5), st.sampled_from([N, X])),
        st.tuples(st.just("batch"), st.sampled_from(["Ada", "Bob"]), st.integers(2, 6), st.sampled_from([N, X])),
        st.tuples(st.just("undo"), st.sampled_from(["Ada", "Bob"]), st.just(0), st.none()),
    ),
    max_size=14,
)


@given(steps=STEPS)
def test_undoing_brings_back_what_stood_before(store: Store, steps: list[Any]) -> None:
    dataset = add_dataset(store, name=f"world {id(steps)} {len(steps)} {hash(str(steps))}", profiles=1).id
    (record,) = records(store, dataset)
    pairs = [(a, c) for a in record.attribute_ids for c in record.context_ids][:6]
    model: dict[str, list[dict[tuple[int, int], Label]]] = {"Ada": [{}], "Bob": [{}]}
    done: dict[str, list[tuple[str, str]]] = {"Ada": [], "Bob": []}
    for number, (kind, who, which, label) in enumerate(steps):
        with store.write() as connection:
            if kind == "undo":
                if done[who]:
                    what, name = done[who].pop()
                    model[who].pop()
                    if what == "say":
                        assert decisions.undo(connection, dataset, who, name, f"undo-{name}")
                    else:
                        assert decisions.undo_batch(connection, dataset, who, name) > 0
                continue
            chosen = [pairs[which % len(pairs)]] if kind == "say" else pairs[:which]
            batch = None if kind == "say" else f"batch-{number}"
            new_decisions = [
                NewDecision(*pair, label, uid=f"{number}-{n}", batch=batch) for n, pair in enumerate(chosen)
            ]
            decisions.add_all(connection, dataset, who, new_decisions)
            done[who].append((kind, batch or new_decisions[0].uid))
            model[who].append({**model[who][-1], **dict.fromkeys(chosen, label)})
    for who in ("Ada", "Bob"):
        assert stands(store, dataset, who) == model[who][-1]
    with store.read() as connection:
        whole = decisions.standing(decisions.history(connection, dataset))
        assert decisions.standing_labels(connection, dataset) == [(*pair, d.label) for pair, d in whole.items()]


def test_a_withdrawal_is_the_last_word_until_it_is_taken_back_itself(
    world: tuple[Store, int, list[tuple[int, int]]],
) -> None:
    store, dataset, pairs = world
    new_decisions = [NewDecision(*pairs[0], N, uid="first"), NewDecision(*pairs[1], X, uid="second")]
    with store.write() as connection:
        decisions.add_all(connection, dataset, "Ada", [*new_decisions, NewDecision(*pairs[0], None, uid="withdrawn")])
    for uid, left in (("withdrawn", {pairs[0]: N, pairs[1]: X}), ("second", {pairs[0]: N}), ("first", {})):
        with store.write() as connection:
            last = decisions.last_decision(connection, dataset, "Ada")
            assert last is not None and last.uid == uid
            assert decisions.undo(connection, dataset, "Ada", uid, f"undo-{uid}")
        assert stands(store, dataset, "Ada") == left
    with store.read() as connection:
        assert decisions.last_decision(connection, dataset, "Ada") is None


def test_what_was_gone_past_is_not_taken_back(world: tuple[Store, int, list[tuple[int, int]]]) -> None:
    store, dataset, pairs = world
    with store.write() as connection:
        decisions.add_all(connection, dataset, "Ada", [NewDecision(*pair, N, batch="b") for pair in pairs])
        decisions.add_all(connection, dataset, "Ada", [NewDecision(*pairs[0], X, uid="later")])
        assert decisions.undo_batch(connection, dataset, "Bob", "b") == 0
        assert decisions.undo_batch(connection, dataset, "Ada", "b") == len(pairs) - 1
        assert decisions.undo_batch(connection, dataset, "Ada", "b") == 0
        assert not decisions.undo(connection, dataset, "Bob", "later", "z")
    assert stands(store, dataset, "Ada") == {pairs[0]: X}

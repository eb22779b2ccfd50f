"""Pairs handed out to several people at once, on both engines: nobody gets another's, and nobody is left without."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from processes import together
from worlds import add_dataset, records

from cimemories.model import Label
from cimemories.store import decisions, reviews
from cimemories.store.engine import Store, StoreError, open_store
from cimemories.store.reviews import Plan
from cimemories.store.tables import claim, decision

if TYPE_CHECKING:
    from conftest import Database

Pair = tuple[int, int]
ATTRIBUTES, CONTEXTS = 10, 6


def build(store: Store) -> tuple[int, list[Pair]]:
    data = add_dataset(store, 1, ATTRIBUTES, CONTEXTS)
    (record,) = records(store, data.id)
    return data.id, list(itertools.product(record.attribute_ids, record.context_ids))


def ask(
    store: Store, dataset_id: int, who: str, wanted: list[Pair], count: int = 4, session: str = "", lease: float = 300
) -> list[Pair]:
    with store.write() as connection:
        return reviews.hand_out_pairs(
            connection, dataset_id, who, session or f"tab of {who}", iter(wanted), count, lease
        )


def decide(store: Store, dataset_id: int, who: str, pairs: list[Pair], label: Label | None = Label.NECESSARY) -> None:
    with store.write() as connection:
        decisions.add_all(connection, dataset_id, who, [decisions.NewDecision(*pair, label) for pair in pairs])


def annotate(
    store: Store, who: str, dataset_id: int, pairs: list[Pair], people: int, most: int = 10**6
) -> tuple[list[Pair], int]:
    """One person who works until `most` are done or nothing is left: what they decided, and how often a pair of theirs
    was in more hands than the plan allows."""
    done: list[Pair] = []
    broken = 0
    ends = time.monotonic() + 60
    while time.monotonic() < ends and len(done) < most:
        with store.write() as connection:
            given = reviews.hand_out_pairs(
                connection, dataset_id, who, f"tab of {who}", iter(pairs), min(3, most - len(done))
            )
            for pair in given:
                at = claim.c.attribute == pair[0], claim.c.context == pair[1]
                held = sa.select(sa.func.count(claim.c.annotator.distinct())).where(*at)
                broken += connection.execute(held).scalar_one() > people
        if not given:
            # What others still hold may come back; only what is decided is gone.
            if len(decided(store)) == len(pairs) * people or not left_for(store, who, pairs, people):
                break
            time.sleep(0.01)
            continue
        decide(store, dataset_id, who, given)
        done += given
    return done, broken


def decided(store: Store) -> list[tuple[int, int, str]]:
    with store.read() as connection:
        query = sa.select(decision.c.attribute, decision.c.context, decision.c.annotator)
        return [(row[0], row[1], row[2]) for row in connection.execute(query)]


def left_for(store: Store, who: str, pairs: list[Pair], people: int) -> bool:
    names_by_pair: dict[Pair, set[str]] = {pair: set() for pair in pairs}
    for a, c, name in decided(store):
        names_by_pair[a, c].add(name)
    return any(who not in names and len(names) < people for names in names_by_pair.values())


@pytest.mark.parametrize("people", [1, 2])
def test_people_in_several_processes_share_the_pairs_as_planned(database: Database, people: int) -> None:
    store = open_store(database.workspace, database.url)
    dataset_id, pairs = build(store)
    with store.write() as connection:
        reviews.set_overlap_plan(connection, dataset_id, Plan(float(people > 1), people, 5), "Ada", "A test.")
    names = ["Ada", "Bea", "Cem", "Dor"]
    # For one person a pair, everybody is to do a quarter: a process that is slow to get the lock must find its own.
    most = len(pairs) // len(names) if people == 1 else 10**6
    worked = together(database, [(annotate, (name, dataset_id, pairs, people, most)) for name in names])
    assert not [outcome for outcome in worked if isinstance(outcome, str)]
    assert sum(broken for _, broken in worked) == 0
    assert people > 1 or [len(done) for done, _ in worked] == [most] * len(names)  # nobody was left without
    everything = [pair for done, _ in worked for pair in done]
    assert sorted(everything) == sorted(pairs * people)  # each pair reaches exactly so many people
    assert all(len(set(done)) == len(done) for done, _ in worked)
    store.close()


def test_people_in_threads_of_one_process_share_the_pairs(store: Store) -> None:
    dataset_id, pairs = build(store)
    with ThreadPoolExecutor(4) as pool:
        worked = list(pool.map(lambda name: annotate(store, name, dataset_id, pairs, 1), ["A", "B", "C", "D"]))
    assert sorted(pair for done, _ in worked for pair in done) == sorted(pairs)
    assert sum(broken for _, broken in worked) == 0


def test_a_pair_is_in_one_persons_hands_until_it_is_decided_given_up_or_lapsed(store: Store) -> None:
    dataset_id, pairs = build(store)
    assert ask(store, dataset_id, "Ada", pairs) == pairs[:4]
    assert ask(store, dataset_id, "Ada", pairs) == pairs[:4]  # the same tab has them still
    assert ask(store, dataset_id, "Bea", pairs) == pairs[4:8]
    decide(store, dataset_id, "Ada", pairs[:2])
    assert ask(store, dataset_id, "Ada", pairs) == [*pairs[2:4], *pairs[8:10]]
    assert ask(store, dataset_id, "Cem", pairs[:3]) == []
    decide(store, dataset_id, "Ada", pairs[:1], None)  # taken back: it is anybody's again
    assert ask(store, dataset_id, "Cem", pairs[:3]) == pairs[:1]
    with store.write() as connection:
        reviews.release_pairs(connection, "tab of Bea")
    assert ask(store, dataset_id, "Cem", pairs[:5], lease=0.05) == [pairs[0], pairs[4]]
    time.sleep(0.1)
    assert ask(store, dataset_id, "Bea", pairs[:5]) == [pairs[0], pairs[4]]


def test_what_a_tab_holds_is_renewed_and_what_it_decided_is_not(store: Store) -> None:
    dataset_id, pairs = build(store)

    def held() -> dict[Pair, float]:
        with store.read() as connection:
            return {(row.attribute, row.context): row.until for row in connection.execute(sa.select(claim))}

    assert ask(store, dataset_id, "Ada", pairs, lease=60) == pairs[:4]
    before = held()
    decide(store, dataset_id, "Ada", pairs[:1])
    assert ask(store, dataset_id, "Ada", pairs[10:], count=1, lease=240) == pairs[10:11]  # asks for something else
    assert set(held()) == {*pairs[1:4], pairs[10]}
    assert all(until > before[pairs[0]] + 100 for until in held().values())
    assert ask(store, dataset_id, "Bea", pairs[1:4]) == []


def test_another_tab_of_the_same_person_gets_other_pairs_while_there_are_any(store: Store) -> None:
    dataset_id, pairs = build(store)
    assert ask(store, dataset_id, "Ada", pairs[:6], session="first") == pairs[:4]
    assert ask(store, dataset_id, "Ada", pairs[:6], session="second") == pairs[4:6]
    decide(store, dataset_id, "Ada", pairs[4:6])
    assert ask(store, dataset_id, "Ada", pairs[:6], session="second") == pairs[:4]  # nothing else is left
    with store.write() as connection:
        reviews.release_pairs(connection, "first")
    assert ask(store, dataset_id, "Bea", pairs[:4]) == []


def test_a_share_of_the_pairs_is_for_several_people_and_the_others_for_one(store: Store) -> None:
    dataset_id, pairs = build(store)
    plan = Plan(0.4, 3, 11)
    with store.write() as connection:
        assert reviews.overlap_plan(connection, dataset_id) == Plan()
        reviews.set_overlap_plan(connection, dataset_id, Plan(0.1, 2, 1), "Ada", "A first look.")
        reviews.set_overlap_plan(connection, dataset_id, plan, "Bea", "Alpha needs more.")
        assert reviews.overlap_plan(connection, dataset_id) == plan
        changes = reviews.plan_changes(connection, dataset_id)
    assert [(change.plan, change.annotator, change.reason) for change in changes] == [
        (Plan(0.1, 2, 1), "Ada", "A first look."),
        (plan, "Bea", "Alpha needs more."),
    ]
    with pytest.raises(StoreError, match="needs a reason"), store.write() as connection:
        reviews.set_overlap_plan(connection, dataset_id, Plan(), "Ada", "")
    shared = [pair for pair in pairs if plan.people_of(pair) == 3]
    assert 10 <= len(shared) <= 38
    handed = [ask(store, dataset_id, name, pairs, count=len(pairs)) for name in ("A", "B", "C", "D")]
    assert handed == [pairs, shared, shared, []]


def test_a_queue_that_others_have_worked_through_is_passed_over_and_no_more_is_read_than_needed(store: Store) -> None:
    data = add_dataset(store, 5, 60, 5, name="long")
    pairs = [(a, c) for r in records(store, data.id) for a in r.attribute_ids for c in r.context_ids]
    decide(store, data.id, "Bea", pairs[:1300])
    decide(store, data.id, "Ada", pairs[1300:1310])
    read = 0

    def wanted() -> Iterator[Pair]:
        nonlocal read
        for pair in pairs:
            read += 1
            yield pair

    with store.write() as connection:
        assert reviews.hand_out_pairs(connection, data.id, "Ada", "tab", wanted(), 5) == pairs[1310:1315]
    assert read == 1316
    read = 0
    with store.write() as connection:
        assert reviews.hand_out_pairs(connection, data.id, "Bea", "tab", wanted(), 5) == pairs[1315:1320]
    with store.write() as connection:
        assert reviews.hand_out_pairs(connection, data.id, "Cem", "tab", [], 5) == []


@pytest.mark.parametrize("plan", [Plan(1.2), Plan(-0.1), Plan(0.5, 0), Plan(float("nan"))])
def test_a_plan_that_is_none_is_refused(sqlite_store: Store, plan: Plan) -> None:
    dataset_id, _ = build(sqlite_store)
    with pytest.raises(StoreError), sqlite_store.write() as connection:
        reviews.set_overlap_plan(connection, dataset_id, plan, "Ada", "A test.")


@given(share=st.floats(0, 1), seed=st.integers(0, 2**31))
def test_the_share_is_drawn_evenly_and_grows_with_the_share(share: float, seed: int) -> None:
    pairs = [(a, c) for a in range(40) for c in range(25)]
    chosen = [pair for pair in pairs if Plan(share, 2, seed).people_of(pair) == 2]
    assert abs(len(chosen) - share * len(pairs)) < 5 * (share * (1 - share) * len(pairs)) ** 0.5 + 2
    smaller = [pair for pair in pairs if Plan(share / 2, 2, seed).people_of(pair) == 2]
    assert set(smaller) <= set(chosen)
    assert all(Plan(0.0, 2, seed).people_of(pair) == 1 for pair in random.Random(seed).sample(pairs, 9))

"""The index of the review queue against plain Python read from the votes, runs, decisions and marks themselves."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import PERSONAS, add_call, add_dataset, add_labels, add_profiles, add_run, make_profile, records

from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY, TOO_FEW_NAME, UNLABELLED
from cimemories.model import Label, Verdict, WorkStatus
from cimemories.review.index import TIE, PairIndex, divided, pair_index
from cimemories.review.queue import Filters, Order, items, select
from cimemories.store import datasets, decisions, labellings, reviews, work
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store, open_store

ATTRIBUTES, CONTEXTS, DRAWS, SAMPLES = 3, 3, 2, 4
COUNTED = (Verdict.NECESSARY, Verdict.INAPPROPRIATE, Verdict.ABSTAIN)
KEYS = [persona.key for persona in PERSONAS]
PRIORS = [Fraction(str(persona.prior)) for persona in PERSONAS]
LETTERS = {Verdict.NECESSARY: "N", Verdict.INAPPROPRIATE: "X", Verdict.ABSTAIN: "?"}
numbers = itertools.count()


@dataclass
class World:
    """What was written, by (attribute id, context id) in the record's order."""

    store: Store
    dataset: int
    labelling: str
    pairs: dict[tuple[int, int], tuple[int, int]]  # pair -> position of its profile and of its context
    people: list[ProfileRecord]
    votes: dict[tuple[int, int], list[list[Verdict | None]]]  # [personas][draws]
    reveals: dict[tuple[int, int], int]
    decisions_made: list[tuple[tuple[int, int], str, Label | None]]
    flags: set[tuple[int, int]]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return open_store(tmp_path_factory.mktemp("review") / "workspace")


def build(store: Store, random: Any, *, decided: int = 14) -> World:
    """Two profiles, of which the second is tested in fewer contexts and in another order."""
    first, second = (make_profile(n, ATTRIBUTES, CONTEXTS) for n in range(2))
    second = replace(second, contexts=(second.contexts[2], second.contexts[0]))
    data = add_profiles(store, [first, second], f"world {next(numbers)}")
    people = records(store, data.id)
    pairs = {(a, c): (p, c) for p, r in enumerate(people) for a in r.attribute_ids for c in r.context_ids}
    kinds = [*COUNTED, Verdict.CONFLICT, None, Verdict.INAPPROPRIATE, Verdict.INAPPROPRIATE]
    votes = {
        pair: [[random.choice(kinds) for _ in range(DRAWS)] for _ in PERSONAS]
        if random.random() < 0.7
        else [[random.choice([Verdict.INAPPROPRIATE, None])] * DRAWS] * len(PERSONAS)
        for pair in pairs
    }
    reveals = {pair: random.choice([0, 0, 0, 1, 3]) for pair in pairs}
    labelling = cast(store, data.id, people, votes)
    add_run(store, data.id, SAMPLES, reveals)
    add_run(store, data.id, SAMPLES, dict.fromkeys(pairs, SAMPLES), status=WorkStatus.CANCELLED)
    decisions_made, flags = [], set()
    everything = list(pairs)
    for _ in range(decided):
        decisions_made.append((random.choice(everything[::3]), random.choice("AB"), random.choice([*Label, None])))
    with store.write() as connection:
        for pair, who, label in decisions_made:
            decisions.add_all(connection, data.id, who, [decisions.NewDecision(*pair, label)])
        for pair in random.sample(everything, 3):
            flags.add(pair)
            reviews.add_marks(connection, data.id, "A", [reviews.Mark(*pair, reviews.MarkKind.FLAG)])
    return World(store, data.id, labelling, pairs, people, votes, reveals, decisions_made, flags)


def cast(store: Store, dataset_id: int, people: list[ProfileRecord], votes: dict[Any, Any]) -> str:
    """A labelling of exactly these votes."""
    with store.write() as connection:
        ids = labellings.personas_of(connection, "test", PERSONAS)
        labelling = labellings.add(
            connection,
            identity=f"votes of {dataset_id}",
            dataset_id=dataset_id,
            model="m",
            endpoint="http://x",
            simulated=False,
            pack="test",
            draws=DRAWS,
            manifest={"personas": ids},
        )
        contexts = sorted({c for r in people for c in r.context_ids})
        labellings.plan(connection, labelling, [r.id for r in people], contexts, ids, DRAWS)
        key = add_call(connection, f"vote for {labelling}", "label")
        for record in people:
            for group in labellings.owed(connection, labelling, record.id):
                for draw, ballot in group.ballots.items():
                    verdicts = [
                        (a, votes[a, group.context][ids.index(group.persona)][draw]) for a in record.attribute_ids
                    ]
                    counted = [(a, v) for a, v in verdicts if v is not None]
                    labellings.settle(connection, [labellings.Settled(ballot, "ok", None, key, counted)])
        work.finish(connection, labelling, WorkStatus.FINISHED)
        work.bump(connection, labelling)
    return labelling


def standing(world: World, pair: tuple[int, int]) -> dict[str, tuple[int, Label]]:
    """Who says what of a pair, and as how manieth decision."""
    latest: dict[str, tuple[int, Label]] = {}
    for number, (where, who, label) in enumerate(world.decisions_made):
        if where == pair:
            latest.pop(who, None)
            if label is not None:
                latest[who] = (number, label)
    return latest


def consensus(votes: list[list[Verdict | None]]) -> Label | str | None:
    """The paper's rule; of fewer than ten draws none may be lost."""
    heard = [[v for v in draws if v in COUNTED] for draws in votes]
    flat = [v for draws in heard for v in draws]
    if not flat:
        return None
    if any(len(draws) < DRAWS for draws in heard):
        return TOO_FEW_NAME
    if len(set(flat)) == 1 and flat[0] is not Verdict.ABSTAIN:
        return Label(str(flat[0]))
    return Label.AMBIGUOUS


def shares(votes: list[list[Verdict | None]], without: int | None = None) -> dict[Verdict, Fraction]:
    """The mixture of the personas that have a counted vote, one left out where asked."""
    mixed: dict[Verdict, Fraction] = Counter()
    for persona, draws in enumerate(votes):
        counted = [v for v in draws if v in COUNTED]
        for verdict in counted if persona != without else []:
            mixed[verdict] += PRIORS[persona] / len(counted)
    return mixed


def entropy(votes: list[list[Verdict | None]]) -> float | None:
    mixed = shares(votes)
    total = sum(mixed.values())
    return round(-sum(float(s / total) * math.log2(s / total) for s in mixed.values()), 6) if total else None


def dissents(votes: list[list[Verdict | None]], persona: int) -> bool:
    own = Counter(v for v in votes[persona] if v in COUNTED)
    others = shares(votes, without=persona)
    if not own or not others:
        return False
    return not any(own[v] == max(own.values()) and others[v] == max(others.values()) for v in COUNTED)


def slow(world: World, filters: Filters, order: Order) -> list[tuple[int, int]]:
    """The same selection, one pair after the other."""
    kept = []
    for position, (pair, (p, c)) in enumerate(world.pairs.items()):
        record = world.people[p]
        attribute = record.profile.attributes[record.attribute_ids.index(pair[0])]
        context = record.profile.contexts[record.context_ids.index(c)]
        word = standing(world, pair)
        effective = max(word.values())[1] if word else consensus(world.votes[pair])
        mine = word.get(filters.others_differ_from or "")
        conditions = [
            filters.profile in (None, record.id),
            filters.attribute in (None, pair[0]),
            filters.context in (None, c),
            filters.domain in (None, attribute.domain),
            filters.event in (None, attribute.event),
            filters.sphere in (None, context.sphere or ""),
            not filters.labels or str(effective).lower() in filters.labels,
            filters.dissenter is None or dissents(world.votes[pair], KEYS.index(filters.dissenter)),
            filters.undecided_by not in word,
            filters.others_differ_from is None or (mine and any(label != mine[1] for _, label in word.values())),
            filters.revealed in (None, world.reveals[pair] > 0),
            filters.flagged in (None, pair in world.flags),
        ]
        if all(conditions):
            bits = entropy(world.votes[pair])
            rate = world.reveals[pair] / SAMPLES
            keys = {
                Order.ENTROPY_RATE: 1.0 if bits is None else -np.float32(bits) * (np.float32(rate) + np.float32(TIE)),
                Order.ENTROPY: 1.0 if bits is None else -bits,
                Order.CONTEXT: [r.id for r in contexts(world)].index(c),
                Order.ATTRIBUTE: 0,
            }
            kept.append((keys[order], position, pair))
    return [pair for _, _, pair in sorted(kept)]


def contexts(world: World) -> list[datasets.ContextRow]:
    with world.store.read() as connection:
        return datasets.contexts(connection, world.dataset)


def index_of(world: World) -> PairIndex:
    return pair_index(world.store, world.dataset, world.labelling)


def random_filters(data: st.DataObject, world: World) -> Filters:
    """Filters of which mostly few are set, some for what is not there."""

    def maybe(*values: Any) -> Any:
        return data.draw(st.sampled_from([None, None, None, *values]))

    first = world.people[0].profile
    return Filters(
        profile=maybe(world.people[1].id, 10**6),
        attribute=maybe(world.people[0].attribute_ids[1]),
        context=maybe(world.people[0].context_ids[2], 10**6),
        domain=maybe(first.attributes[0].domain, "no such domain"),
        event=maybe("job loss"),
        sphere=maybe("housing", ""),
        labels=maybe(("none",), ("ambiguous", "inappropriate"), ("necessary", "none"), ("too few votes",)) or (),
        dissenter=maybe(*KEYS),
        undecided_by=maybe("A", "somebody new"),
        others_differ_from=maybe("A", "B"),
        revealed=maybe(True, False),
        flagged=maybe(True, False),
    )


@settings(max_examples=settings().max_examples // 2)
@given(random=st.randoms(use_true_random=False), data=st.data())
def test_a_selection_is_what_plain_python_selects(shared: Store, random: Any, data: st.DataObject) -> None:
    world = build(shared, random)
    index = index_of(world)
    assert len(index) == len(world.pairs) == index.shape.pairs
    assert index.pairs(np.arange(len(index))) == list(world.pairs)
    for _ in range(6):
        filters = random_filters(data, world)
        for order in (Order.ENTROPY_RATE, Order.ENTROPY, Order.CONTEXT, Order.ATTRIBUTE):
            assert index.pairs(select(shared, index, filters, order)) == slow(world, filters, order)
        positions = select(shared, index, filters, Order.RANDOM, seed=3)
        assert sorted(index.pairs(positions)) == sorted(slow(world, filters, Order.ATTRIBUTE))
    everything = Filters()
    orders = [select(shared, index, everything, Order.RANDOM, seed=s).tolist() for s in range(4)]
    assert len({tuple(order) for order in orders}) > 1


@settings(max_examples=settings().max_examples // 3)
@given(random=st.randoms(use_true_random=False))
def test_cards_say_what_the_record_says(shared: Store, random: Any) -> None:
    world = build(shared, random)
    shown = items(shared, index_of(world), list(reversed(range(len(world.pairs)))))
    assert [(item.attribute, item.context) for item in shown] == list(reversed(world.pairs))
    for item in shown:
        pair = item.attribute, item.context
        word = standing(world, pair)
        label = consensus(world.votes[pair])
        assert item.consensus == (None if label == TOO_FEW_NAME else label)
        assert item.effective == (max(word.values())[1] if word else item.consensus)
        assert item.decided == len(word)
        assert (item.reveals, item.draws) == (world.reveals[pair], SAMPLES)
        assert item.votes == tuple(
            (persona.key, persona.prior, "".join(LETTERS.get(v, "-") if v else "-" for v in draws))
            for persona, draws in zip(PERSONAS, world.votes[pair], strict=True)
        )
        record = world.people[world.pairs[pair][0]]
        attribute = record.profile.attributes[record.attribute_ids.index(pair[0])]
        assert (item.statement, item.key, item.value, item.user) == (
            attribute.statement,
            attribute.key,
            attribute.value,
            record.profile.name,
        )


def test_entropy_and_dissent_of_worked_examples() -> None:
    # Ten draws each of priors 0.26, 0.64, 0.10: unanimous; the fundamentalist alone; nobody; an even split of one.
    votes = np.array(
        [
            [[0, 10, 0]] * 3,
            [[0, 10, 0], [10, 0, 0], [10, 0, 0]],
            [[0, 0, 0]] * 3,
            [[5, 5, 0], [10, 0, 0], [0, 0, 0]],
        ]
    )
    bits, dissenting = divided(votes, (0.26, 0.64, 0.10))
    assert bits[0] == 0
    assert bits[1] == pytest.approx(-(0.26 * math.log2(0.26) + 0.74 * math.log2(0.74)), abs=1e-6)
    assert np.isnan(bits[2])
    p = 0.13 / 0.90  # the unconcerned is not heard, so the others' priors are scaled up
    assert bits[3] == pytest.approx(-(p * math.log2(p) + (1 - p) * math.log2(1 - p)), abs=1e-6)
    # Of the second pair the pragmatic dissents too: of the other two the fundamentalist weighs more.
    assert dissenting.T.tolist() == [[False] * 3, [True, True, False], [False] * 3, [False] * 3]


def test_an_index_is_kept_until_votes_runs_or_the_rule_change(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, 1, 2, 2)
    votes = [[[AMBIGUOUS, NECESSARY], [INAPPROPRIATE, UNLABELLED]]]
    labelling = add_labels(sqlite_store, data.id, votes)
    first = pair_index(sqlite_store, data.id, labelling)
    with sqlite_store.write() as connection:
        a, c = (int(item[0]) for item in (first.shape.attributes, first.shape.contexts))
        decisions.add_all(connection, data.id, "A", [decisions.NewDecision(a, c, Label.NECESSARY)])
    assert pair_index(sqlite_store, data.id, labelling) is first  # a decision is laid over it, not built into it
    positions = select(sqlite_store, first, Filters(labels=("necessary",)), Order.ATTRIBUTE)
    assert positions.tolist() == [0, 1]
    run = add_run(sqlite_store, data.id, 2, [[[2, 0], [1, 0]]])
    second = pair_index(sqlite_store, data.id, labelling)
    assert second is not first
    assert second.reveals.tolist() == [2, 0, 1, 0] and second.draws.tolist() == [2] * 4
    assert second.shape is first.shape
    with sqlite_store.write() as connection:
        labellings.add_rule(
            connection,
            data.id,
            "lenient",
            threshold=0.6,
            priors={"fundamentalist": 0.2, "pragmatic": 0.7, "unconcerned": 0.1},
            annotator="A",
            use=True,
        )
    third = pair_index(sqlite_store, data.id, labelling)
    assert third is not second and third.reveals is second.reveals
    with sqlite_store.write() as connection:
        work.bump(connection, run)
    assert pair_index(sqlite_store, data.id, labelling) is not third
    without = pair_index(sqlite_store, data.id, None)
    assert without.consensus.tolist() == [UNLABELLED] * 4 and np.isnan(without.entropy).all()
    assert select(sqlite_store, without, Filters(), Order.ENTROPY_RATE).tolist() == [0, 1, 2, 3]

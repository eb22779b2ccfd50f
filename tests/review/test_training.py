"""Pairs with known answers: training before a slice, tests hidden in it, and how many of them people got right."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa
from talking import Talk, cards, event
from typer.testing import CliRunner
from worlds import add_dataset, add_labels, records

import cimemories
from cimemories.cli import cli
from cimemories.desk.queue import Ordering, QueueDesk
from cimemories.flows import catalogue
from cimemories.flows.labels import INAPPROPRIATE, NECESSARY
from cimemories.model import Label
from cimemories.review import assignments
from cimemories.review.queue import Filters, Order
from cimemories.review.sampling import draw_slice
from cimemories.review.status import status
from cimemories.store import audits, decisions, reviews
from cimemories.store.audits import TEST, TRAINING, KnownPair
from cimemories.store.decisions import ADJUDICATED, NewDecision
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import claim

N, X = NECESSARY, INAPPROPRIATE


def sliced(store: Store, size: int = 4) -> tuple[int, int]:
    """A dataset of 16 pairs, all labelled and half of them necessary, and a slice of some."""
    data = add_dataset(store, profiles=1, attributes=4, contexts=4)
    labelling = add_labels(store, data.id, [[[N, N, X, X]] * 4])
    return data.id, draw_slice(store, labelling, size=size, seed=0, name="first", annotator="Cleo")


def known(store: Store, slice_id: int) -> list[KnownPair]:
    with store.read() as connection:
        return audits.known_pairs(connection, [slice_id]).get(slice_id, [])


def desk(store: Store, dataset: int, slice_id: int, me: str) -> Talk:
    row = next(row for row in catalogue.all_datasets(store) if row.id == dataset)
    labelling = next(iter(catalogue.labellings_of(store, dataset).values()))
    filters = Filters(slice=slice_id, undecided_by=me)
    return Talk(QueueDesk(store, row, labelling, filters, Ordering(Order.RANDOM), me), place=f"{me}.0")


def other(pair: KnownPair) -> str:
    return "necessary" if pair.label == "inappropriate" else "inappropriate"


def test_training_comes_first_and_is_no_decision(store: Store) -> None:
    dataset, slice_id = sliced(store)
    assignments.assign(store, slice_id, ["Ada"], overlap=None, due=None, training=3, tests=2, annotator="Cleo")
    pairs = known(store, slice_id)
    training, tests = ([pair for pair in pairs if pair.use == use] for use in (TRAINING, TEST))
    assert [len(training), len(tests), len({pair.pair for pair in pairs})] == [3, 2, 5]
    talk = desk(store, dataset, slice_id, "Ada")
    reply = talk.post(needs=True)
    assert cards(reply) == [f"{a}.{c}.{slice_id}" for a, c in (pair.pair for pair in training)]
    assert (reply["done"], reply["total"]) == (0, 3)
    assert [card["known"][0] for card in reply["cards"]] == [str(pair.label) for pair in training]
    # The first right, the second wrong; undone and given again it is right; a reload shows what is left.
    ids = cards(reply)
    talk.post(event(1, ids[0], str(training[0].label)), event(2, ids[1], other(training[1])))
    linked = "{}.{}".format(*training[0].pair)
    reply = talk.post(event(3, ids[1], None, kind="undo", of="uid-2"), start=linked, fresh=True)
    assert cards(reply) == ids[1:] and reply["start"] is None and "1 of 1 right" in reply["aside"]
    reply = talk.post(event(4, ids[1], str(training[1].label)), event(5, ids[2], other(training[2])))
    with store.read() as connection:
        assert decisions.history(connection, dataset) == []
    # The slice begins, its tests among its pairs, and no training pair is asked, not even by the address.
    in_slice = {pair.pair for pair in tests} | {(item.attribute, item.context) for item in _drawn(store, slice_id)}
    assert {*cards(reply)} == {f"{a}.{c}" for a, c in in_slice} and len(in_slice) == 6
    assert (reply["done"], reply["total"], reply["aside"]) == (0, 6, ["Training done: 2 of 3 right."])
    assert all(card["known"] == [] for card in reply["cards"])
    assert talk.post(start=linked, fresh=True)["start"] is None
    talk.post(event(6, tests[0].pair, str(tests[0].label)), event(7, tests[1].pair, other(tests[1])))
    (row,) = status(store, "small world").people.records()
    assert (row["training_right"], row["training_right_items"]) == (pytest.approx(2 / 3), 3)
    assert (row["tests_right"], row["tests_right_items"], row["own"]) == (0.5, 2, 2)
    # Progress and agreement are of the slice: tests stand for no other pair.
    (progress,) = assignments.progress(store, dataset_id=dataset)
    assert (progress.answered, progress.decisions, progress.of.training, progress.of.tests) == (0, 4, 3, 2)


def _drawn(store: Store, slice_id: int) -> list[audits.SliceItem]:
    with store.read() as connection:
        return audits.slice_items(connection, slice_id)


def test_command_and_python_assign_and_show_the_same(sqlite_store: Store) -> None:
    sliced(sqlite_store)
    place = ["--workspace", str(sqlite_store.workspace)]
    words = ["assign", "small world", "first", "--to", "Ada", "--training", "1", "--tests", "2"]
    assert CliRunner().invoke(cli, ["review", *words, *place]).exit_code == 0
    (item,) = json.loads(CliRunner().invoke(cli, ["review", "assignments", "small world", "--json", *place]).stdout)
    assert (item["training"], item["tests"], item["items"]) == (1, 2, 4)
    with sqlite_store.write() as connection:
        (pair, *_) = audits.known_pairs(connection, [1])[1]
        said = reviews.Mark(*pair.pair, reviews.MarkKind.TRAINED, reason=str(pair.label))
        reviews.add_marks(connection, 1, "Ada", [said, reviews.Mark(*pair.pair, reviews.MarkKind.SKIP)])
    with cimemories.open(sqlite_store.workspace) as workspace:
        state = workspace.review("small world")
    (row,) = json.loads(CliRunner().invoke(cli, ["review", "status", "small world", "--json", *place]).stdout)["people"]
    assert (row["name"], row["training_right"], row["training_right_items"]) == ("Ada", 1.0, 1)
    assert state.people.records()[0]["training_right_low"] == pytest.approx(row["training_right_low"])


def test_each_person_answers_each_test_where_pairs_are_divided(store: Store) -> None:
    dataset, slice_id = sliced(store)
    assignments.assign(store, slice_id, ["Ada", "Bob"], overlap=1, due=None, tests=2, annotator="Cleo")
    tests = {"{}.{}".format(*pair.pair) for pair in known(store, slice_id)}
    seen = []
    for number, person in enumerate(("Ada", "Bob")):
        talk = desk(store, dataset, slice_id, person)
        reply = talk.post()
        assert reply["total"] == 4, "half of the slice, and both tests"
        answered: list[str] = []
        while reply["total"] > reply["done"]:
            answered.append(cards(reply)[0])
            reply = talk.post(event(100 * number + len(answered), answered[-1]))
        assert tests < {*answered}
        seen.append({*answered} - tests)
        with store.write() as connection:
            connection.execute(sa.delete(claim))  # which lapse by themselves
    assert not seen[0] & seen[1] and len(seen[0] | seen[1]) == 4


def test_known_pairs_are_adjudicated_ones_first_and_stay_while_their_number_does(sqlite_store: Store) -> None:
    store = sqlite_store
    dataset, slice_id = sliced(store)
    drawn = {(item.attribute, item.context) for item in _drawn(store, slice_id)}
    (person,) = records(store, dataset)
    free = next((a, c) for a in person.attribute_ids for c in person.context_ids if (a, c) not in drawn)
    with store.write() as connection:
        made = NewDecision(*free, Label.AMBIGUOUS, source=ADJUDICATED, cause="slip", reason="read again")
        decisions.add_all(connection, dataset, "Cleo", [made])
    assign = {"overlap": None, "due": None, "annotator": "Cleo"}
    assignments.assign(store, slice_id, ["Ada"], training=2, **assign)  # type: ignore[arg-type]
    before = known(store, slice_id)
    assert (before[0].pair, before[0].label) == (free, "ambiguous")
    reply = desk(store, dataset, slice_id, "Ada").post()
    assert reply["cards"][0]["known"] == ["ambiguous", "People settled it so: read again"]
    assert reply["cards"][1]["known"][1] == "All personas give this label."
    assignments.assign(store, slice_id, ["Ada", "Bob"], training=2, **assign)  # type: ignore[arg-type]
    assert known(store, slice_id) == before
    with pytest.raises(StoreError, match="8 pairs with a known answer too few"):
        assignments.assign(store, slice_id, ["Ada"], training=1, tests=19, **assign)  # type: ignore[arg-type]
    assignments.assign(store, slice_id, [], **assign)  # type: ignore[arg-type]
    assert known(store, slice_id) == []

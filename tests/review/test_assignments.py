"""Assigned slices: who is given which pairs, how far they are, and whether it will be done in time."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from paging import FOLDS, HOME, button, opened, said
from typer.testing import CliRunner
from worlds import add_dataset, add_labels

from cimemories.cli import cli
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.model import Label
from cimemories.review import assignments, queue
from cimemories.review.index import pair_index
from cimemories.review.queue import Filters, Order
from cimemories.review.sampling import draw_slice
from cimemories.store import decisions
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Store, StoreError
from cimemories.store.team import log
from cimemories.store.team.assignments import Answer, Assignment

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
LABELS = [[[X, X, N], [X, X, X], [N, N, A]]]
NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
TEAM = "pages/start/team.py"


def sliced(store: Store) -> tuple[int, str, int]:
    """A dataset of nine pairs, its labelling, and a slice of all that are labelled."""
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    labelling = add_labels(store, data.id, LABELS)
    return data.id, labelling, draw_slice(store, labelling, size=6, seed=0, name="first", annotator="Ada")


def turn(store: Store, dataset: int, labelling: str, slice_id: int, person: str, *, take: int) -> int:
    """A person opens the slice and decides so many of the pairs that they are given; how many they decided."""
    index = pair_index(store, dataset, labelling)
    positions = queue.select(store, index, Filters(slice=slice_id, undecided_by=person), Order.RANDOM)
    plan = assignments.overlap_of(assignments.assignment_of(store, slice_id))
    given = queue.reserve(store, index, positions, person, f"tab of {person}", everybody=plan is None, plan=plan)[:take]
    with store.write() as connection:
        decisions.add_all(connection, dataset, person, [NewDecision(a, c, Label.NECESSARY) for a, c in given])
    return len(given)


@pytest.mark.parametrize("overlap", [1, 2, None])
def test_each_pair_of_a_slice_is_decided_by_as_many_people_as_the_assignment_says(
    store: Store, overlap: int | None
) -> None:
    dataset, labelling, slice_id = sliced(store)
    people = ["Ada", "Bob", "Cleo"]
    assignments.assign(store, slice_id, people, overlap=overlap, due="2026-12-01", annotator="Ada")
    for _ in range(12):
        for person in people:
            turn(store, dataset, labelling, slice_id, person, take=1)
    wanted = overlap or 3
    with store.read() as connection:
        made = Counter((d.attribute, d.context) for d in decisions.history(connection, dataset))
    assert len(made) == 6 and set(made.values()) == {wanted}
    (item,) = assignments.progress(store, dataset_id=dataset)
    assert (item.decisions, item.made, item.left) == (6 * wanted, 6 * wanted, 0)
    assert item.sentence.endswith("decisions made: done")
    assert assignments.assigned_to(store, "Ada") == []


def test_progress_and_pace_by_hand() -> None:
    item = Assignment(1, "s", 1, "d", None, 10, ("Ada", "Bob", "Cleo"), 2, "2026-11-25", "Ada", "")

    def at(hours: float) -> str:
        return (NOW - timedelta(hours=hours)).isoformat()

    def by(person: str, pairs: list[int], hours: float, seconds: float | None = None) -> list[Answer]:
        return [Answer(person, (pair, 0), pair % 2 == 0, seconds, at(hours)) for pair in pairs]

    # Ada: 4 in the last two days; Bob: 1 today, 1 ten days ago; Dora, who is not assigned, answered what Ada has.
    given = [*by("Bob", [9], 240), *by("Ada", [0, 1, 2, 3], 48, 4.0), *by("Dora", [0], 30), *by("Bob", [0], 1, 9.0)]
    done = assignments.progress_of(item, given, NOW)
    ada, bob, cleo = done.people
    assert (ada.answered, ada.blind, ada.share, ada.seconds) == (4, 2, 7, 4.0) and ada.per_day == pytest.approx(2)
    assert (bob.answered, bob.per_day, bob.seconds) == (2, 1.0, 9.0) and (cleo.answered, cleo.last) == (0, "")
    # Pair 0 has three deciders, of whom two count; 1, 2, 3 and 9 have one.
    assert (done.decisions, done.made) == (20, 6)
    # 14 left at 3 a day: five days from now, three after the day that it is due.
    assert done.sentence == "6 of 20 decisions made; due 2026-11-25, done about 2026-11-28 at this pace: 3 days late"
    assert assignments.progress_of(item, [], NOW).sentence == "0 of 20 decisions made; due 2026-11-25, nobody is at it"


def test_an_assignment_that_makes_no_sense_is_refused_and_every_one_is_logged(store: Store) -> None:
    dataset, _, slice_id = sliced(store)
    for problem, values in {
        "is no date": {"due": "soon"},
        "by 1 to 2 of these people, not 3": {"overlap": 3},
    }.items():
        with pytest.raises(StoreError, match=problem):
            assignments.assign(
                store,
                slice_id,
                ["Ada", "Bob"],
                annotator="Ada",
                **{"overlap": None, "due": None, **values},  # type: ignore[arg-type]
            )
    assert assignments.progress(store, dataset_id=dataset) == []
    assignments.assign(store, slice_id, ["Ada", " Ada "], overlap=None, due=None, annotator="Ada")
    assignments.assign(store, slice_id, [], overlap=None, due=None, annotator="Ada")
    assert assignments.assignment_of(store, slice_id) is None
    with store.read() as connection:
        logged = [entry.details["people"] for entry in log.entries(connection, action="slice.assigned")]
    assert logged == ["nobody", "Ada"]


def test_a_slice_is_assigned_on_the_page_and_its_people_are_led_to_their_next_pair(app_store: Store) -> None:
    store = app_store
    dataset, labelling, slice_id = sliced(store)
    app = opened(TEAM, *FOLDS, f"team.box.assign.{slice_id}", dataset=dataset)
    assert "assigned to nobody" in said(app)
    app.session_state["annotator"] = "Ada"
    app.multiselect(key=f"team.assign.{slice_id}.people").set_value(["Ada", "Bob"]).run()
    app.number_input(key=f"team.assign.{slice_id}.overlap").set_value(1).run()
    button(app, "Assign").click().run()
    assert not app.exception and "is assigned to Ada and Bob" in said(app)
    assert "0 of 6 decisions made, nobody is at it" in said(app).replace(";", ",")

    home = opened(HOME)
    assert "Your next pair" not in str(home.get("page_link"))
    home.session_state["annotator"] = "Ada"
    home.run()
    link = next(item.proto for item in home.get("page_link") if item.proto.label == "Your next pair")
    assert f"slice={slice_id}" in link.query_string and f"labelling={labelling}" in link.query_string
    assert "0 of about 3 pairs answered" in said(home)
    assert turn(store, dataset, labelling, slice_id, "Ada", take=6) == 6
    home.run()
    assert "You are assigned" not in said(home), "one person a pair: nothing is left"


def test_the_command_line_assigns_and_lists(sqlite_store: Store) -> None:
    sliced(sqlite_store)
    base = ["--workspace", str(sqlite_store.workspace)]

    def ran(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["review", *arguments, *base])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert "to Ada and Bob" in ran(
        "assign", "small world", "first", "--to", "Ada", "--to", "Bob", "--due", "2026-12-01"
    )
    assert "0 of 12 decisions made; due 2026-12-01, nobody is at it" in ran("assignments", "small world")
    (item,) = json.loads(ran("assignments", "small world", "--json"))
    assert (item["items"], item["decisions"], [person["person"] for person in item["people"]]) == (
        6,
        12,
        ["Ada", "Bob"],
    )

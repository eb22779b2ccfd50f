"""Assigned slices: who is given which pairs, how far they are, and whether it will be done in time."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qsl

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis.strategies import integers, lists, sampled_from, tuples
from paging import FOLDS, HOME, button, opened, page_html
from talking import cards, drawn_desks
from typer.testing import CliRunner
from worlds import add_dataset, add_labels, add_run

from cimemories.cli import cli
from cimemories.extras.attribute_audit.sampling import draw_attribute_slice
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import resolve_scope
from cimemories.model import Label
from cimemories.review import assignments, queue
from cimemories.review.index import pair_index
from cimemories.review.queue import Filters, Order
from cimemories.review.recording import audit_state, slice_flows
from cimemories.review.sampling import draw_audit_slice, draw_slice
from cimemories.store import audits, decisions
from cimemories.store.audits import ATTRIBUTES, JUDGEMENTS, AuditVerdict, NewVerdict
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Store, StoreError
from cimemories.store.reviews import Mark, MarkKind, add_marks
from cimemories.store.tables import claim
from cimemories.store.team import assignments as store_assignments
from cimemories.store.team import log
from cimemories.store.team.assignments import Answer, Assignment

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
LABELS = [[[X, X, N], [X, X, X], [N, N, A]]]
NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
# What the engines do not share, locks and their SQL, is the same for each number of people.
OVERLAPS = [("sqlite", 1), ("sqlite", 2), ("sqlite", None), pytest.param("postgres", 2, marks=pytest.mark.postgres)]
TEAM, AUDIT = "pages/start/team.py", "pages/evaluate/judge_audit.py"


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


@pytest.mark.parametrize(("database", "overlap"), OVERLAPS, indirect=["database"])
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
    assert (item.decisions, item.answered, item.left) == (6 * wanted, 6 * wanted, 0)
    assert item.sentence.endswith("decisions made: done")
    assert assignments.assigned_to(store, "Ada") == []


def test_progress_and_pace_by_hand() -> None:
    people = ("Ada", "Bob", "Cleo")
    item = Assignment(1, "s", "labels", 1, "d", None, None, None, 10, people, 2, "2026-11-25", "Ada", "")
    pairs = [(pair, 0) for pair in range(10)]

    def at(hours: float) -> str:
        return (NOW - timedelta(hours=hours)).isoformat()

    def by(person: str, pairs: list[int], hours: float, seconds: float | None = None) -> list[Answer]:
        return [Answer(person, (pair, 0), pair % 2 == 0, seconds, at(hours)) for pair in pairs]

    # Ada: 4 in the last two days; Bob: 1 today, 1 ten days ago; Dora, who is not assigned, answered what Ada has.
    made = [*by("Bob", [9], 240), *by("Ada", [0, 1, 2, 3], 48, 4.0), *by("Dora", [0], 30), *by("Bob", [0], 1, 9.0)]
    done = assignments.progress_of(item, pairs, made, NOW)
    ada, bob, cleo = done.people
    assert (ada.answered, ada.blind, ada.share, ada.seconds) == (4, 2, 7, 4.0) and ada.per_day == pytest.approx(2)
    assert (bob.answered, bob.per_day, bob.seconds) == (2, 1.0, 9.0) and (cleo.answered, cleo.last) == (0, "")
    # Of pair 0 two others have decided, so Cleo is not asked; Bob has two of ten, Ada four.
    assert (ada.left, bob.left, cleo.left) == (6, 8, 9)
    # Pair 0 has three deciders, of whom two count; 1, 2, 3 and 9 have one.
    assert (done.decisions, done.answered) == (20, 6)
    # 14 left at 3 a day: five days from now, three after the day that it is due.
    assert done.sentence == "6 of 20 decisions made; due 2026-11-25, done about 2026-11-28 at this pace: 3 days late"
    idle = assignments.progress_of(item, pairs, [], NOW)
    assert idle.sentence == "0 of 20 decisions made; due 2026-11-25, no one is working on it"


@pytest.mark.parametrize(("people", "overlap"), [(("Ada", "Bob", "Cleo"), None), (("Ada", "Bob", "Dan", "Eve"), 3)])
def test_an_adjudicated_slice_is_done_for_the_queue_and_for_its_progress(
    store: Store, people: tuple[str, ...], overlap: int | None
) -> None:
    dataset, labelling, slice_id = sliced(store)
    assignments.assign(store, slice_id, people, overlap=overlap, due=None, annotator="Cleo")
    with store.read() as connection:
        pairs = [(item.attribute, item.context) for item in audits.slice_items(connection, slice_id)]
    with store.write() as connection:
        for who, label in (("Ada", Label.NECESSARY), ("Bob", Label.INAPPROPRIATE)):
            decisions.add_all(connection, dataset, who, [NewDecision(*pair, label, blind=True) for pair in pairs])
        # Cleo has no word of her own; Ada has, and it stays the one that counts.
        for who in ("Cleo", "Ada"):
            settled = [NewDecision(*pair, Label.AMBIGUOUS, source="adjudicated", cause="slip") for pair in pairs]
            decisions.add_all(connection, dataset, who, settled)
    (progress,) = assignments.progress(store)
    assert (progress.answered, progress.left) == (18, 0)
    ada = next(pace for pace in progress.people if pace.person == "Ada")
    assert (ada.answered, ada.blind) == (6, 6)
    for who in people:
        assert assignments.assigned_to(store, who) == []
        assert turn(store, dataset, labelling, slice_id, who, take=6) == 0


def test_what_was_skipped_or_flagged_comes_last_and_the_slice_is_finished(store: Store) -> None:
    dataset, labelling, slice_id = sliced(store)
    assignments.assign(store, slice_id, ["Ada"], overlap=None, due=None, annotator="Cleo")
    index = pair_index(store, dataset, labelling)
    positions = queue.select(store, index, Filters(slice=slice_id, undecided_by="Ada"), Order.RANDOM)
    pairs = index.pairs(positions)
    with store.write() as connection:
        marks = [Mark(*pairs[0], MarkKind.FLAG, reason="no sense"), Mark(*pairs[1], MarkKind.SKIP)]
        add_marks(connection, dataset, "Ada", marks)
    everything = {"annotator": "Ada", "session": "a tab"}
    expected = [*pairs[2:], pairs[1], pairs[0]]
    assert queue.reserve(store, index, positions, **everything, everybody=True) == expected
    # Outside of a slice nobody asks for what they have called a bad item.
    assert queue.reserve(store, index, positions, **everything) == expected[:-1]
    assert assignments.assigned_to(store, "Ada") != []
    assert turn(store, dataset, labelling, slice_id, "Ada", take=6) == 6
    assert assignments.assigned_to(store, "Ada") == []
    assert assignments.progress(store)[0].left == 0


def test_who_has_nothing_left_forecasts_nothing() -> None:
    item = Assignment(1, "first", "labels", 1, "demo", None, None, None, 4, ("Ada", "Bob"), None, None, "Cleo", "")
    items = [(n, 1) for n in range(4)]
    made = [Answer("Ada", each, True, 2.0, NOW.isoformat()) for each in items]
    assert assignments.progress_of(item, items, made, NOW).done_by is None
    made.append(Answer("Bob", items[0], True, 2.0, NOW.isoformat()))
    # Bob's one a day, not the five of both.
    assert assignments.progress_of(item, items, made, NOW).done_by == (NOW + timedelta(days=3)).date()


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
    assert logged == ["no one", "Ada"]


def test_a_slice_is_assigned_on_the_page_and_its_people_are_led_to_their_next_pair(app_store: Store) -> None:
    store = app_store
    dataset, labelling, slice_id = sliced(store)
    app = opened(TEAM, *FOLDS, f"team.box.assign.{slice_id}", dataset=dataset)
    assert "not assigned: each person" in page_html(app)
    app.session_state["annotator"] = "Ada"
    app.multiselect(key=f"team.assign.{slice_id}.people").set_value(["Ada", "Bob"]).run()
    app.number_input(key=f"team.assign.{slice_id}.overlap").set_value(1).run()
    button(app, "Assign").click().run()
    assert not app.exception and "is assigned to Ada and Bob" in page_html(app)
    assert "0 of 6 decisions made, no one is working on it" in page_html(app).replace(";", ",")
    assert "has changed this assignment" not in page_html(app)

    home = opened(HOME)
    assert "Your next pair" not in str(home.get("page_link"))
    home.session_state["annotator"] = "Ada"
    home.run()
    link = next(item.proto for item in home.get("page_link") if item.proto.label == "Your next pair")
    assert f"slice={slice_id}" in link.query_string and f"labelling={labelling}" in link.query_string
    assert "0 of about 3 pairs answered" in page_html(home)
    assert turn(store, dataset, labelling, slice_id, "Ada", take=6) == 6
    home.run()
    assert "You are assigned" not in page_html(home), "one person a pair: nothing is left"

    # What is done leads on: to the next slice, here to none, and to the result.
    done = opened("pages/curate/review.py", dataset=dataset, labelling=labelling, slice=slice_id)
    done.text_input(key="annotator.field").set_value("Ada").run()
    assert not done.exception and "Every pair of this queue is decided." in page_html(done)
    links = {item.proto.label: item.proto.query_string for item in done.get("page_link")}
    assert "Open the next slice" not in links and f"slice={slice_id}" in links["See how far people agree"]
    following = draw_slice(store, labelling, size=9, seed=1, name="second", annotator="Ada")
    assignments.assign(store, following, ["Ada"], overlap=None, due=None, annotator="Ada")
    done.run()
    assert "Next for you: 'second' of 'small world': 6 of 9 pairs answered." in unescape(page_html(done))
    links = {item.proto.label: item.proto.query_string for item in done.get("page_link")}
    assert f"slice={following}" in links["Open the next slice"]


def test_of_two_who_change_an_assignment_the_second_sees_what_the_first_did(app_store: Store) -> None:
    store = app_store
    dataset, _, slice_id = sliced(store)
    assignments.assign(store, slice_id, ["Ada", "Bob"], overlap=None, due=None, annotator="Ada")
    app = opened(TEAM, *FOLDS, f"team.box.assign.{slice_id}", dataset=dataset)
    app.session_state["annotator"] = "Ada"

    def people() -> Any:
        return next(item for item in app.multiselect if item.label == "People")

    def stands() -> tuple[str, ...]:
        item = assignments.assignment_of(store, slice_id)
        return item.people if item else ()

    people().set_value(["Ada"]).run()
    assignments.assign(store, slice_id, ["Ada", "Bob", "Cleo"], overlap=None, due=None, annotator="Zoe")
    button(app, "Assign").click().run()
    assert "Zoe has changed this assignment since you opened it, and nothing of yours was saved." in page_html(app)
    assert stands() == ("Ada", "Bob", "Cleo")
    assert people().value == ["Ada", "Bob", "Cleo"]
    people().set_value(["Ada", "Cleo"]).run()
    button(app, "Assign").click().run()
    assert "is assigned to Ada and Cleo" in page_html(app) and "has changed this" not in page_html(app)
    assert stands() == ("Ada", "Cleo")


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
    assert "0 of 12 decisions made; due 2026-12-01, no one is working on it" in ran("assignments", "small world")
    (item,) = json.loads(ran("assignments", "small world", "--json"))
    assert (item["items"], item["decisions"], [person["person"] for person in item["people"]]) == (
        6,
        12,
        ["Ada", "Bob"],
    )


# ---- audits of a judge


def audited_world(store: Store, kind: str) -> tuple[int, str, int]:
    """A run of the labelled dataset, and a slice of its judge's answers: of judgements, or of whole attributes."""
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, LABELS)
    run_id = add_run(store, data.id, 5, [[[1, 0, 4], [0, 2, 5], [5, 3, 0]]])
    flows, scope = Flows(store), resolve_scope(store, run_id)
    if kind == ATTRIBUTES:
        return data.id, run_id, draw_attribute_slice(flows, scope, number=2, n=2, seed=0, annotator="Ada", name="audit")
    return data.id, run_id, draw_audit_slice(
        flows, scope, size=12, seed=1, claimed=0.5, name="audit", annotator="Ada"
    )  # fmt: skip


def read_one(store: Store, dataset: int, run_id: str, slice_id: int, person: str, verdict: AuditVerdict) -> bool:
    """A person opens the audit and gives a verdict on what comes next for them; False where nothing does."""
    flows, item = slice_flows(store, slice_id), assignments.assignment_of(store, slice_id)
    assert item is not None
    own = assignments.own_flows(store, item, list(flows), person)
    state = audit_state(store, run_id, flows, person, by_attribute=item.kind == ATTRIBUTES, assigned=own)
    if not state.undecided:
        return False
    with store.write() as connection:
        audits.add_all(connection, dataset, person, [NewVerdict(*state.undecided[0], verdict)])
    return True


@pytest.mark.parametrize("kind", [JUDGEMENTS, ATTRIBUTES])
@pytest.mark.parametrize(("database", "overlap"), OVERLAPS, indirect=["database"])
def test_each_item_of_an_audit_is_read_by_as_many_people_as_the_assignment_says(
    store: Store, kind: str, overlap: int | None
) -> None:
    dataset, run_id, slice_id = audited_world(store, kind)
    people = ["Ada", "Bob", "Cleo"]
    assignments.assign(store, slice_id, people, overlap=overlap, due=None, annotator="Ada")
    for number in range(60):
        # Ada finds everything in the first message she reads, the others find nothing: nobody settles it for another.
        person = people[number % 3]
        read_one(store, dataset, run_id, slice_id, person, AuditVerdict.FULL if person == "Ada" else AuditVerdict.NONE)
    (item,) = assignments.progress(store, dataset_id=dataset)
    wanted, size = overlap or 3, 2 if kind == ATTRIBUTES else 12
    assert item.of.items == size and (item.decisions, item.answered, item.left) == (size * wanted, size * wanted, 0)
    assert [pace.answered for pace in item.people] == [pace.share for pace in item.people]
    assert sum(pace.share for pace in item.people) == size * wanted
    with store.read() as connection:
        of = Counter(answer.item for answer in store_assignments.answers(connection, item.of))
    assert len(of) == size and set(of.values()) == {wanted}
    assert assignments.assigned_to(store, "Ada") == [] and not read_one(
        store, dataset, run_id, slice_id, "Bob", AuditVerdict.NONE
    )


@given(
    size=integers(0, 60),
    people=integers(1, 6),
    overlap=integers(1, 6),
    said=lists(tuples(integers(0, 59), sampled_from(["A", "B", "C", "outsider"])), max_size=20),
)
def test_items_are_dealt_evenly_and_what_is_answered_stays(
    size: int, people: int, overlap: int, said: list[tuple[int, str]]
) -> None:
    names, items = [*"ABCDEF"[:people]], [(number, 7) for number in range(size)]
    overlap = min(overlap, people)
    fresh = assignments.deal(items, names, overlap)
    assert sum(map(len, fresh.values())) == size * overlap
    assert max(map(len, fresh.values())) - min(map(len, fresh.values())) <= 1
    # Whoever answers what they were dealt changes nothing for anybody.
    answers = [Answer(name, item, True, None, "") for name in names for item in sorted(fresh[name])[::2]]
    assert assignments.deal(items, names, overlap, answers) == fresh
    # Whatever was answered before, by whomever, counts: an item has its people, or fewer where outsiders have read it.
    before = [Answer(name, items[n], True, None, "") for n, name in dict.fromkeys(said) if n < size]
    dealt = assignments.deal(items, names, overlap, before)
    for item in items:
        deciders = {answer.annotator for answer in before if answer.item == item}
        given = {name for name in names if item in dealt[name]}
        assert deciders & set(names) <= given
        assert len(given | deciders) == max(overlap, len(deciders))


def test_an_audit_is_assigned_on_the_page_and_its_people_land_on_their_next_one(
    app_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, drawn = app_store, drawn_desks(monkeypatch)
    dataset, run_id, slice_id = audited_world(store, JUDGEMENTS)
    app = opened(TEAM, *FOLDS, f"team.box.assign.{slice_id}", dataset=dataset)
    assert "12 judgements, not assigned" in page_html(app)
    app.session_state["annotator"] = "Ada"
    app.multiselect(key=f"team.assign.{slice_id}.people").set_value(["Ada", "Bob"]).run()
    app.number_input(key=f"team.assign.{slice_id}.overlap").set_value(1).run()
    button(app, "Assign").click().run()
    assert (
        not app.exception
        and "0 of 12 verdicts made" in page_html(app)
        and "1 person for each judgement" in page_html(app)
    )

    home = opened(HOME)
    home.session_state["annotator"] = "Ada"
    home.run()
    link = next(item.proto for item in home.get("page_link") if item.proto.label == "Your next judgement")
    assert link.page == "judge_audit" and "0 of 6 judgements answered" in page_html(home)
    query = dict(parse_qsl(link.query_string))
    assert query["run"] == run_id and query["slice"] == str(slice_id)

    audit = opened(AUDIT, **query)
    audit.text_input(key="annotator.field").set_value("Ada").run()
    reply = drawn.post(fresh=True)
    assert not audit.exception and (reply["done"], reply["total"], len(reply["cards"])) == (0, 6, 6)
    own = set(cards(reply))
    assert read_one(store, dataset, run_id, slice_id, "Ada", AuditVerdict.NONE)
    reply = drawn.post()
    assert (reply["done"], reply["total"], len(reply["cards"])) == (1, 6, 5)
    other = opened(AUDIT, **query)
    other.text_input(key="annotator.field").set_value("Bob").run()
    assert not own & set(cards(drawn.post())) and len(drawn.post()["cards"]) == 6
    drawn.clear()
    stranger = opened(AUDIT, **query)
    stranger.text_input(key="annotator.field").set_value("Dora").run()
    assert not drawn and "This slice is assigned to Ada and Bob." in page_html(stranger)


def test_the_bar_of_a_slice_with_overlap_counts_what_this_person_is_to_answer(
    app_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, drawn = app_store, drawn_desks(monkeypatch)
    dataset, labelling, slice_id = sliced(store)
    assignments.assign(store, slice_id, ["Ada", "Bob"], overlap=1, due=None, annotator="Ada")

    def bar() -> tuple[int, int]:
        page = opened("pages/curate/review.py", dataset=dataset, labelling=labelling, slice=slice_id)
        page.text_input(key="annotator.field").set_value("Ada").run()
        assert not page.exception
        reply = drawn.post()
        return reply["done"], reply["total"]

    assert bar() == (0, 3)
    assert turn(store, dataset, labelling, slice_id, "Ada", take=1) == 1
    assert bar() == (1, 3)
    # Bob is faster: of six pairs four are his, so one is left for Ada.
    with store.write() as connection:
        connection.execute(sa.delete(claim))  # what is on Ada's screen is not Bob's
    assert turn(store, dataset, labelling, slice_id, "Bob", take=4) == 4
    assert bar() == (1, 2)
    with store.write() as connection:
        connection.execute(sa.delete(claim))
    assert turn(store, dataset, labelling, slice_id, "Bob", take=4) == 1
    assert bar() == (1, 1) and assignments.assigned_to(store, "Ada") == []


def test_the_command_line_assigns_an_audit_and_names_the_next(sqlite_store: Store) -> None:
    _, run_id, slice_id = audited_world(sqlite_store, JUDGEMENTS)
    base = ["--workspace", str(sqlite_store.workspace)]

    def ran(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["review", *arguments, *base])
        assert done.exit_code == 0, done.output
        return done.stdout

    ran("assign", "small world", "audit", "--to", "Ada", "--to", "Bob", "--overlap", "1", "--due", "2026-12-01")
    shown = ran("next", "--person", "Ada")
    assert "'audit' of 'small world': 0 of 6 judgements answered, due 2026-12-01" in shown
    assert f"/judge_audit?run={run_id}&judge=" in shown and f"slice={slice_id}" in shown
    assert json.loads(ran("next", "--person", "Dora", "--json")) == []

"""The Review page without a browser: what the queue hears is recorded, views are saved, events are exchanged."""

from __future__ import annotations

import json
import re
import sqlite3
from typing import Any

import pytest
import sqlalchemy as sa
from hostile_names import HOSTILE, SAFE
from paging import FOLDS, button, double_click, nodes, opened, page_html
from streamlit.delta_generator_singletons import get_last_dg_added_to_context_stack
from valued_worlds import made
from worlds import add_dataset, add_labels, add_profiles, add_run, make_profile, records

from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.model import Label
from cimemories.review.queue import Filters, Order, select
from cimemories.review.random_share import share_agreement
from cimemories.review.value import Aim, Target, valued
from cimemories.store import decisions, reviews
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Store, StoreError
from cimemories.ui import workbench

PAGE = "pages/curate/review.py"
TABS = ("queue", "bulk", "agreement", "adjudication", "comments", "guideline", "exchange", "overlap")


@pytest.fixture
def store(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("CIMEMORIES_WORKSPACE", str(sqlite_store.workspace))
    return sqlite_store


def world(store: Store) -> tuple[int, list[tuple[int, int]]]:
    dataset = add_dataset(store, profiles=2, attributes=3, contexts=2)
    add_labels(store, dataset.id, [[[AMBIGUOUS, NECESSARY]] * 3] * 2)
    pairs = [(a, c) for r in records(store, dataset.id) for a in r.attribute_ids for c in r.context_ids]
    return dataset.id, pairs


def event(number: int, pair: tuple[int, int], says: str | None = "necessary", **changes: Any) -> dict[str, Any]:
    plain = {"uid": f"uid-{number}", "kind": "say", "card": f"{pair[0]}.{pair[1]}", "says": says}
    return {**plain, "seconds": 1.5, "blind": False, "text": "", "of": None, **changes}


def begun(app: Any, name: str = "Ada") -> Any:
    app.text_input[0].set_value(name)
    return button(app, "Begin").click().run()


def hear(app: Any, *events: dict[str, Any]) -> None:
    """What the browser would send: all that it has not had confirmed, each with the owner that it was said for."""
    owner = list(app.session_state["review.owners"])[-1]
    events = tuple({"owner": owner, **event} for event in events)
    app.session_state["review"] = {"log": {"place": "here", "events": list(events), "at": None}}
    app.run()
    assert not app.exception


def sent_to_the_browser(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the component is given at each drawing."""
    payloads: list[dict[str, Any]] = []
    draw = workbench._component

    def record(*, data: dict[str, Any], **rest: Any) -> Any:
        payloads.append(data)
        return draw(data=data, **rest)

    monkeypatch.setattr(workbench, "_component", record)
    return payloads


def test_what_the_browser_says_is_recorded_once_whatever_it_sends_again(store: Store) -> None:
    dataset, pairs = world(store)
    app = begun(opened(PAGE))
    first, second = event(1, pairs[0]), event(2, pairs[1], "inappropriate", blind=True)
    hear(app, first)
    hear(app, first, second)
    app.session_state["review.handled"] = {}  # as after a reload
    hear(app, first, second)
    broken = [{"uid": "uid-3"}, event(4, (999, 999)) | {"kind": "shout"}, event(5, pairs[2], kind="skip", says=None)]
    broken.append(event(6, pairs[2], "nonsense"))
    hear(app, *broken)
    assert app.session_state["review.handled"] == {"uid-5": True, "uid-6": False}
    with store.read() as connection:
        history = decisions.history(connection, dataset)
        held = reviews.overlap_plan(connection, dataset)
    assert [(d.uid, d.label, d.blind, d.seconds) for d in history] == [
        ("uid-1", Label.NECESSARY, False, 1.5),
        ("uid-2", Label.INAPPROPRIATE, True, 1.5),
    ]
    assert all(d.source == "queue" and d.guideline for d in history)
    assert held.share == 0


def standing(store: Store, dataset: int, name: str) -> dict[str, Label]:
    """What somebody has decided, by card."""
    with store.read() as connection:
        own = [d for d in decisions.history(connection, dataset) if d.annotator == name]
    return {f"{a}.{c}": d.label for (a, c), d in decisions.standing(own).items() if d.label}


def cards(payloads: list[dict[str, Any]]) -> list[str]:
    return [card["id"] for card in payloads[-1]["cards"]]


def test_comments_skips_and_flags_are_recorded_and_taken_back(store: Store) -> None:
    dataset, pairs = world(store)
    app = begun(opened(PAGE))

    def marked() -> list[set[tuple[int, int]]]:
        with store.read() as connection:
            kinds = (reviews.MarkKind.SKIP, reviews.MarkKind.FLAG)
            return [set(reviews.standing_marks(connection, dataset, kind)) for kind in kinds]

    hear(
        app,
        event(1, pairs[0], None, kind="comment", text="nice <img src=x onerror=alert(1)> inz"),
        event(2, pairs[0], None, kind="skip"),
        event(3, pairs[1], None, kind="flag", text="u in i n nix"),
    )
    assert marked() == [{pairs[0]}, {pairs[1]}]
    with store.read() as connection:
        (comment,) = reviews.comments_of_dataset(connection, dataset)
        assert comment.text == "nice <img src=x onerror=alert(1)> inz"
        assert [e["reason"] for e in decisions.review_events(connection, dataset, "mark")] == ["", "u in i n nix"]
        assert decisions.history(connection, dataset) == []
    hear(app, *(event(n + 2, pairs[0], None, kind="undo", of=f"uid-{n}") for n in (2, 3)))
    assert marked() == [set(), set()]


def test_after_a_reload_the_same_pair_is_next_and_an_undo_leads_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = sent_to_the_browser(monkeypatch)
    dataset, pairs = world(store)
    app = begun(opened(PAGE, order="attribute"))
    hear(app)
    done = cards(payloads)[:4]
    hear(app, *(event(n, pairs[0], card=card) for n, card in enumerate(done)))
    following = cards(payloads)
    app = begun(opened(PAGE, order="attribute"))
    hear(app)
    assert cards(payloads) == following and payloads[-1]["start"] is None
    hear(app, event(9, (0, 0), None, kind="undo", card=""))
    assert payloads[-1]["start"] == cards(payloads)[0] == done[3]
    assert list(standing(store, dataset, "Ada")) == done[:3]
    hear(app, event(9, (0, 0), None, kind="undo", card=""), event(10, (0, 0), "ambiguous", card=done[3]))
    assert standing(store, dataset, "Ada") == {**dict.fromkeys(done[:3], Label.NECESSARY), done[3]: Label.AMBIGUOUS}
    assert payloads[-1]["start"] is None, "answered, it is not asked again"
    # A link leads to its pair, decided or not.
    attribute, context = done[0].split(".")
    hear(begun(opened(PAGE, order="attribute", attribute=attribute, context=context)))
    assert payloads[-1]["start"] == cards(payloads)[0] == done[0]


def test_no_pair_is_offered_to_two_people_or_tabs_and_none_of_them_starves(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = sent_to_the_browser(monkeypatch)
    dataset = add_dataset(store, profiles=1, attributes=12, contexts=5).id
    apps = [begun(opened(PAGE), name) for name in ("Ada", "Ada", "Bob")]
    offered: list[list[str]] = [[], [], []]
    for number in range(12):
        turn = number % 3
        app, before = apps[turn], offered[turn][:4]
        owner = list(app.session_state["review.owners"])[-1]
        events = [event(100 * number + n, (0, 0), card=card, owner=owner) for n, card in enumerate(before)]
        app.session_state["review"] = {"log": {"place": f"tab {turn}", "events": events, "at": None}}
        app.run()
        offered[turn] = cards(payloads)
        assert offered[turn], "nobody is without a pair"
        everywhere = [card for each in offered for card in each]
        assert len(set(everywhere)) == len(everywhere)
    ada, bob = standing(store, dataset, "Ada"), standing(store, dataset, "Bob")
    assert (len(ada), len(bob)) == (24, 12) and not ada.keys() & bob.keys()


def test_what_another_decides_shows_in_the_history_and_blind_work_shows_no_vote(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = sent_to_the_browser(monkeypatch)
    dataset, pairs = world(store)
    app = begun(opened(PAGE, "review.box.history", blind="0"))
    at = {"place": "here", "events": [], "at": "{}.{}".format(*pairs[0])}
    app.session_state["review"] = {"log": at}
    app.run()
    assert "No decisions or comments on this pair yet." in page_html(app)
    assert payloads[-1]["watch"], "so the browser asks every second"
    with store.write() as connection:
        decisions.add_all(connection, dataset, "Bob of the other room", [NewDecision(*pairs[0], Label.NECESSARY)])
    app.run()
    assert "Bob of the other room" in page_html(app)
    # Blind, until the answer.
    app = begun(opened(PAGE, "review.box.history"))
    app.session_state["review"] = {"log": at}
    app.run()
    assert payloads[-1]["blind"] and "Shows after your answer" in page_html(app)
    assert "Bob of the other room" not in page_html(app)
    personas = {row[0] for card in payloads[-1]["cards"] for row in card["hidden"]} - {"consensus"}
    assert personas and not any(name in page_html(app) for name in personas)


def test_a_batch_ends_with_what_it_did(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    payloads = sent_to_the_browser(monkeypatch)
    dataset = add_dataset(store, profiles=1, attributes=8, contexts=3).id
    cycle = (AMBIGUOUS, NECESSARY, AMBIGUOUS, INAPPROPRIATE)
    add_labels(store, dataset, [[[cycle[(a + c) % 4] for c in range(3)] for a in range(8)]])
    (record,) = records(store, dataset)
    pairs = [(a, c) for a in record.attribute_ids for c in record.context_ids]
    add_run(store, dataset, 2, dict.fromkeys(pairs[::3], 1))
    app = begun(opened(PAGE, batch="10"))
    events = [event(n, pair) for n, pair in enumerate(pairs[:10])]
    hear(app, *events)
    assert (payloads[-1]["batch"], payloads[-1]["summary"]) == (10, [])
    log = {**app.session_state["review"]["log"], "batch": 10}
    app.session_state["review"] = {"log": log}
    app.run()
    settled, since, sure = payloads[-1]["summary"]
    assert settled == "5 of your last 10 decisions settle an ambiguous pair, 3 go against the consensus."
    assert "by the labels agreed on: 33.3 % before, 33.3 % now" in since
    assert "label uncertainty ±0.0 points now, within the ±1.0 wanted" in sure


def test_the_last_decision_is_spread_from_the_queue(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    payloads = sent_to_the_browser(monkeypatch)
    dataset, pairs = world(store)
    app = begun(opened(PAGE))
    asked = [event(1, pairs[0], "inappropriate"), event(2, (0, 0), None, kind="spread", card="")]
    hear(app, *asked)
    assert "You decided" in page_html(app)
    drawn = len(payloads)
    hear(app, *asked)  # the queue is not drawn meanwhile, so the browser hears of no confirmation
    assert len(payloads) == drawn
    button(app, "Back to the queue").click().run()
    assert "You decided" not in page_html(app) and len(payloads) > drawn
    hear(app, *asked, event(3, pairs[1]))
    assert "You decided" not in page_html(app)
    assert sorted(standing(store, dataset, "Ada").values()) == [Label.INAPPROPRIATE, Label.NECESSARY]


def test_words_stay_those_of_who_said_them_and_of_what(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unsaved answers that reach the server after the dataset was changed, or from another person or workspace."""
    payloads = sent_to_the_browser(monkeypatch)
    first, pairs = world(store)
    second = add_dataset(store, name="second", profiles=1).id
    app = begun(opened(PAGE, dataset=first))
    mine = next(iter(app.session_state["review.owners"]))
    app.query_params["dataset"] = str(second)
    app.run()
    assert len(app.session_state["review.owners"]) == 2
    hear(app, event(1, pairs[0], owner=mine), event(2, pairs[1]), event(3, pairs[2], owner="somebody else's"))
    assert "1 answer was not saved: an edit or a deletion has removed the pair." in page_html(app)
    with store.read() as connection:
        assert [(d.uid, d.annotator) for d in decisions.history(connection, first)] == [("uid-1", "Ada")]
        assert decisions.history(connection, second) == []
    # What is not in the record is not confirmed: one is gone for good, one waits for the person whose it is.
    assert app.session_state["review.handled"] == {"uid-1": True, "uid-2": False}
    assert (payloads[-1]["confirmed"], payloads[-1]["refused"], payloads[-1]["stranded"]) == (
        ["uid-1"],
        ["uid-2"],
        ["uid-3"],
    )
    hear(app, event(4, (10**17, 1)))  # no id that could be: nothing to keep, and nothing breaks
    assert app.session_state["review.handled"] == {"uid-4": False}


def sqlite_full() -> sa.exc.OperationalError:
    """What SQLAlchemy raises where SQLite finds no room."""
    reason = sqlite3.OperationalError("database or disk is full")
    reason.sqlite_errorcode, reason.sqlite_errorname = sqlite3.SQLITE_FULL, "SQLITE_FULL"
    return sa.exc.OperationalError("INSERT INTO decision", {"reason": "private"}, reason)


@pytest.mark.parametrize("problem", [StoreError("the disk of the workspace is full"), sqlite_full()])
def test_events_that_cannot_be_written_stay_with_the_browser_and_say_so(
    store: Store, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    dataset, pairs = world(store)
    payloads = sent_to_the_browser(monkeypatch)
    places = []
    draw = workbench._component

    def placed(**rest: Any) -> Any:
        container = get_last_dg_added_to_context_stack()
        assert container is not None and container._cursor is not None
        places.append(container._cursor.parent_path)
        return draw(**rest)

    monkeypatch.setattr(workbench, "_component", placed)

    def full(*args: object) -> int:
        raise problem

    app = begun(opened(PAGE))
    with monkeypatch.context() as patch:
        patch.setattr(decisions, "add_all", full)
        hear(app, event(1, pairs[0]))
        assert "Your answers cannot be saved at the moment." in page_html(app)
        assert re.search(r"The disk of the workspace is full[.:]", page_html(app)), "a sentence of its own"
        assert payloads[-1]["confirmed"] == [], (
            "the queue is still there to go on with, and nothing is said to be saved"
        )
        assert payloads[-1]["cards"] == payloads[-2]["cards"]
    hear(app, event(1, pairs[0]))
    with store.read() as connection:
        assert [d.uid for d in decisions.history(connection, dataset)] == ["uid-1"]
    assert payloads[-1]["confirmed"] == ["uid-1"]
    assert "cannot be saved" not in page_html(app)
    # Put in anew in another place, the queue would miss a key that is pressed meanwhile.
    assert len(places) > 2 and len(set(places)) == 1


def test_a_view_is_saved_with_its_filters(store: Store) -> None:
    world(store)
    app = begun(opened(PAGE, domain="finance", order="entropy"))
    next(t for t in app.text_input if t.label == "Name of this view").set_value("money first")
    double_click(app, button(app, "Save this view"))
    assert "was not saved" not in page_html(app)
    with store.read() as connection:
        (view,) = reviews.views_of_page(connection, "review")
    assert (view.name, view.annotator) == ("money first", "Ada")
    assert {k: view.query.get(k) for k in ("domain", "order")} == {"domain": "finance", "order": "entropy"}


def first_card(payloads: list[dict[str, Any]]) -> str:
    return next(data["cards"][0]["id"] for data in reversed(payloads) if data["cards"])


def test_the_queue_shows_what_is_worth_most_and_says_how_sure_the_number_is(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = sent_to_the_browser(monkeypatch)
    world = made(store)
    index = world.index()
    value = valued(store, index)
    assert value is not None
    app = begun(opened(PAGE, dataset=world.dataset, width="0.5", share="0"))
    hear(app)
    assert value.sentence(0.005) in page_html(app) and value.beside in page_html(app)
    assert first_card(payloads) == "{}.{}".format(*index.pairs(value.front[:1])[0])
    # All pairs at random: the same for everybody with this seed.
    app = begun(opened(PAGE, dataset=world.dataset, share="100", seed="4"), "Bob")
    hear(app)
    by_hash = select(store, index, Filters(), Order.RANDOM, 4)
    assert first_card(payloads) == "{}.{}".format(*index.pairs(by_hash[:1])[0])
    world.say(by_hash[:3].tolist(), Label.NECESSARY)
    shared = share_agreement(store, index, 4)
    assert shared.answered >= 3
    assert shared.sentence in page_html(opened(PAGE, dataset=world.dataset, tab="agreement", seed="4"))
    # Filtered, or by another seed, the share is no sample of all pairs; where nothing is drawn nothing is said.
    for query, is_said in (
        ({"seed": "4"}, True),
        ({"domain": "finance"}, True),
        ({}, False),
        ({"domain": "finance", "share": "0"}, False),
    ):
        app = begun(opened(PAGE, dataset=world.dataset, **query), "Cleo")
        hear(app)
        assert ("only without filters and with seed 0" in page_html(app)) == is_said
    # A link of before means what it meant.
    app = begun(opened(PAGE, dataset=world.dataset, order="effect"), "Eve")
    hear(app)
    by_rate = select(store, index, Filters(), Order.ENTROPY_RATE)
    assert first_card(payloads) == "{}.{}".format(*index.pairs(by_rate[:1])[0])
    assert next(box for box in app.selectbox if box.label == "Order").value == "effect"
    assert "label uncertainty" not in page_html(app)


def test_the_order_of_models_is_of_the_runs_that_are_chosen(store: Store) -> None:
    world = made(store)
    for changed in (0, world.reveals // 2):
        add_run(store, world.dataset, 3, changed + 0 * world.reveals)
    index = world.index()
    every = valued(store, index, Aim(Target.ORDER))
    assert every is not None and len(every.aim.runs) == 3
    two = every.aim.runs[:2]
    app = begun(opened(PAGE, dataset=world.dataset, target="order", runs=".".join(two)))
    hear(app)
    chosen = valued(store, index, Aim(Target.ORDER, two))
    assert chosen is not None and chosen.ranking != every.ranking
    assert chosen.sentence() in page_html(app)
    picker = next(box for box in app.multiselect if box.label == "Runs")
    assert picker.value == list(two)
    picker.set_value([]).run()
    hear(app)
    assert every.sentence() in page_html(app)
    # One run alone has no order, and one that is gone is left out with a notice.
    app = begun(opened(PAGE, dataset=world.dataset, target="order", runs=f"{two[0]}.gone"))
    hear(app)
    assert "needs votes and two judged runs" in page_html(app) and "not here (any more)" in page_html(app)


def test_without_a_judged_run_the_queue_goes_by_entropy_and_says_so(store: Store) -> None:
    world(store)
    for target, needed in (("violation", "a judged run"), ("order", "two judged runs")):
        app = begun(opened(PAGE, target=target))
        assert f"needs votes and {needed}" in page_html(app)
    app = begun(opened(PAGE, width="none", share="900", target="speed"))
    assert not app.exception


@pytest.mark.usefixtures("uploads_read_here")
def test_events_are_exported_and_taken_in_once(store: Store) -> None:
    dataset, pairs = world(store)
    with store.write() as connection:
        decisions.add_all(connection, dataset, "Ada", [NewDecision(*pairs[0], Label.NECESSARY, uid="one")])
    app = opened(PAGE, tab="exchange")
    button(app, "Prepare the file").click().run()
    assert not app.exception
    data = app.session_state["review.exchange.ready"][2]
    assert json.loads(data.splitlines()[-1])["uid"] == "one"
    new = {"uid": "two", "annotator": "Bob", "created": "2026-01-31 10:00"}
    more = json.dumps(json.loads(data.splitlines()[-1]) | new).encode()
    for content in (data, data + more):
        app = opened(PAGE, tab="exchange")
        app.file_uploader[0].set_value(("events.jsonl", content, "application/jsonl")).run()
        app.text_input(key="review.exchange.zone").set_value("+02:00").run()
        button(app, "Check the file").click().run()  # nothing is imported yet
        with store.read() as connection:
            assert len(decisions.history(connection, dataset)) == 1
        if content == data:
            assert (
                "New here: nothing. 1 are here already." in page_html(app) and button(app, "Import 0 events").disabled
            )
            continue
        assert "New here: 1 decision. 1 are here already." in page_html(app)
        assert "1 time without a zone; read as +02:00" in page_html(app)
        button(app, "Import 1 event").click().run()
        assert "1 new events imported, 1 were" in page_html(app)
    with store.read() as connection:
        bob, ada = decisions.history(connection, dataset)  # by time
    assert [(d.annotator, d.uid) for d in (ada, bob)] == [("Ada", "one"), ("Bob", "two")]
    assert bob.created == "2026-01-31T08:00:00.000Z"


@pytest.mark.usefixtures("uploads_read_here")
def test_an_imported_file_is_listed_and_undone_with_one_click(store: Store) -> None:
    dataset, pairs = world(store)
    with store.write() as connection:
        decisions.add_all(connection, dataset, "Ada", [NewDecision(*pairs[0], Label.NECESSARY, uid="one")])
    app = opened(PAGE, tab="exchange")
    assert "Imported files" not in page_html(app)
    button(app, "Prepare the file").click().run()
    event = json.loads(app.session_state["review.exchange.ready"][2].splitlines()[-1])
    more = "\n".join(json.dumps(event | {"uid": uid, "annotator": "Bob"}) for uid in ("two", "three")).encode()
    app.session_state["annotator"] = "Cem"
    app.file_uploader[0].set_value((f"{HOSTILE}.jsonl", more, "application/jsonl")).run()
    button(app, "Check the file").click().run()
    button(app, "Import 2 events").click().run()
    assert "2 decisions." in page_html(app) and "UTC by Cem" in page_html(app) and "<img" not in page_html(app)
    button(app, "Undo").click().run()
    assert "2 imported events removed; what was here before counts again." in page_html(app)
    assert "2 decisions, undone 20" in page_html(app) and button(app, "Undo").disabled
    with store.read() as connection:
        assert [d.uid for d in decisions.history(connection, dataset)] == ["one"]
    button(app, "Check the file").click().run()
    assert "New here: 2 decisions." in page_html(app)


def test_an_overlap_is_shown_before_it_is_set_and_undone_with_one_click(store: Store) -> None:
    dataset, pairs = world(store)
    with store.write() as connection:
        decisions.add_all(connection, dataset, "Ada", [NewDecision(*pairs[0], Label.NECESSARY, uid="one")])
        decisions.add_all(connection, dataset, "Bob", [NewDecision(*pairs[1], Label.NECESSARY, uid="two")])
        decisions.undo(connection, dataset, "Bob", "two", "three")
    app = opened(PAGE, tab="overlap")
    app.number_input(key="overlap.share").set_value(50).run()
    assert "1 are in force, on 1 pair, 0 of them by two or more people" in page_html(app)
    assert button(app, "Set overlap").disabled and "Needs your name" in page_html(app)
    app.session_state["annotator"] = "Ada"
    app.run()
    assert button(app, "Set overlap").disabled and "Needs a reason." in page_html(app)
    app.text_input(key="overlap.reason").set_value("Kappa needs pairs of two people").run()
    double_click(app, button(app, "Set overlap"))
    assert "50.0 % of the pairs go to 2 people" in page_html(app)
    button(app, "Undo").click().run()
    assert "Each pair goes to one person." in page_html(app) and app.number_input(key="overlap.share").value == 0
    app.session_state["overlap.box.changes"] = True
    app.run()
    changes = app.dataframe[-1].value
    assert changes[["annotator", "overlap", "reason"]].to_numpy().tolist() == [
        ["Ada", "each pair goes to one person", "Undone."],
        ["Ada", "50.0 % of the pairs go to 2 people", "Kappa needs pairs of two people"],
    ]


@pytest.mark.parametrize("tab", TABS)
def test_hostile_text_is_text_in_every_tab(store: Store, tab: str) -> None:
    from dataclasses import replace

    person = make_profile(0, 3, 2)
    hostile = [replace(a, statement=HOSTILE, event=HOSTILE) for a in person.attributes]
    dataset = add_profiles(store, [replace(person, name=HOSTILE, attributes=tuple(hostile))], name=HOSTILE)
    add_labels(store, dataset.id, [[[AMBIGUOUS, NECESSARY]] * 3], name=HOSTILE)
    (record,) = records(store, dataset.id)
    pair = record.attribute_ids[0], record.context_ids[0]
    for who, label in ((HOSTILE, Label.NECESSARY), ("Bob", Label.AMBIGUOUS)):
        with store.write() as connection:
            decisions.add_all(connection, dataset.id, who, [NewDecision(*pair, label, reason=HOSTILE)])
    app = opened(PAGE, *FOLDS, tab=tab)
    if tab in ("queue", "bulk"):
        begun(app, HOSTILE)
    assert not app.exception
    assert "<img" not in page_html(app)
    carrying = {node.type for node in nodes(app._tree) if "onerror" in str(getattr(node, "proto", ""))}
    assert carrying <= SAFE | {"bidi_component"}, carrying - SAFE

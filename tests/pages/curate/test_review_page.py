"""The Review page without a browser: what the queue hears is recorded, views are saved, events are exchanged."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hostile_names import HOSTILE, SAFE
from paging import FOLDS, button, double_click, nodes, opened, page_html
from talking import cards, drawn_desks, event
from valued_worlds import made
from worlds import add_dataset, add_labels, add_profiles, make_profile, records

from cimemories.flows.labels import AMBIGUOUS, NECESSARY
from cimemories.model import Label
from cimemories.review.bulk import batches
from cimemories.review.queue import Filters, Order, select
from cimemories.store import decisions, reviews
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Store
from cimemories.ui import desk as desk_ui
from cimemories.ui import presses

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


def begun(app: Any, name: str = "Ada") -> Any:
    app.text_input[0].set_value(name)
    return button(app, "Begin").click().run()


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


def test_the_desk_is_asked_for_what_the_address_says(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = drawn_desks(monkeypatch)
    world = made(store)
    index = world.index()
    (pair,) = index.pairs(select(store, index, Filters(), Order.RANDOM, 4)[:1])
    place = {"attribute": pair[0], "context": pair[1]}
    app = begun(opened(PAGE, dataset=world.dataset, order="effect", batch="10", blind="0", **place), "Eve")
    by_rate = select(store, index, Filters(), Order.ENTROPY_RATE)
    reply = drawn.post(fresh=True)
    assert cards(reply)[0] == "{}.{}".format(*index.pairs(by_rate[:1])[0]) and reply["aside"] == []
    assert next(box for box in app.selectbox if box.label == "Order").value == "effect"
    assert (drawn[-1]["batch"], drawn[-1]["blind"]) == (10, False)
    assert drawn[-1]["start"] == "{}.{}".format(*pair)
    # Another filter begins with what matches it, not with the pair that was in sight.
    next(box for box in app.selectbox if box.label == "Pairs").set_value("no").run()
    assert app.query_params["undecided"] == "no" and drawn[-1]["start"] is None


def test_the_last_decision_is_spread_in_the_place_of_the_queue(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = drawn_desks(monkeypatch)
    dataset, pairs = world(store)
    app = begun(opened(PAGE))
    drawn.post(event(1, pairs[0], "inappropriate"))
    app.session_state["review.spread"] = True  # as `e` asks for it
    app.run()
    assert "You decided" in page_html(app)
    times = len(drawn)
    button(app, "Back to the queue").click().run()
    assert "You decided" not in page_html(app) and len(drawn) == times + 1
    # By keys: the first decides nothing, since nothing is chosen.
    app.session_state["review.spread"] = True
    app.run()
    for keys in ("g", "t", "wg"):
        assert "You decided" in page_html(app)
        if keys != "wg":
            drawn_before = app._tree  # what the browser has when one key comes fast after another
            for box in app.checkbox:
                box.set_value(box.value)
        app._tree = drawn_before
        app.session_state["review.spread.keys.held"] = presses._State(buttons=[(0, key) for key in keys])
        app.run()
    assert "2 pairs decided as inappropriate" in page_html(app) and len(drawn) == times + 2
    (batch,) = batches(store, dataset, "Ada")
    assert (batch.pairs, batch.reason) == (
        2,
        "Spread from one decision: same statement, similar task, similar statement of another person",
    )


def test_the_keys_lead_back_from_spreading_to_the_pair_that_comes_next(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, offered, draw = drawn_desks(monkeypatch), list[list[str]](), desk_ui.draw

    def asking(*given: Any, asked: Callable[[str], None], **settings: Any) -> None:
        draw(*given, asked=asked, **settings)
        if len(drawn) == 1:
            asked("spread")

    _, pairs = world(store)
    app = opened(PAGE, attribute=pairs[0][0], context=pairs[0][1])
    with monkeypatch.context() as patch:
        patch.setattr(desk_ui, "draw", asking)
        patch.setattr(presses, "draw", lambda keys, *, key: offered.append(keys))
        begun(app).run()
        assert "Decide a pair in the queue first" in page_html(app) and offered[-1] == ["k"]
        app.session_state["review.spread.keys.held"] = presses._State(buttons=[(0, "k")])
        app.run()
    assert [data["start"] for data in drawn] == ["{}.{}".format(*pairs[0]), None]


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
        assert "New here: 1 decision or undo. 1 are here already." in page_html(app)
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
    markup = page_html(app)
    assert "2 decisions and undos." in markup and "UTC by Cem" in markup and "<img" not in markup
    button(app, "Undo").click().run()
    assert "2 imported events removed; what was here before counts again." in page_html(app)
    assert "2 decisions and undos, undone 20" in page_html(app) and button(app, "Undo").disabled
    with store.read() as connection:
        assert [d.uid for d in decisions.history(connection, dataset)] == ["one"]
    button(app, "Check the file").click().run()
    assert "New here: 2 decisions and undos." in page_html(app)


def test_an_overlap_is_shown_before_it_is_set_and_undone_with_one_click(store: Store) -> None:
    dataset, pairs = world(store)
    assert "decisions in all. None yet." in page_html(opened(PAGE, tab="overlap"))
    with store.write() as connection:
        decisions.add_all(connection, dataset, "Ada", [NewDecision(*pairs[0], Label.NECESSARY, uid="one")])
        decisions.add_all(connection, dataset, "Bob", [NewDecision(*pairs[1], Label.NECESSARY, uid="two")])
        decisions.undo(connection, dataset, "Bob", "two", "three")
    app = opened(PAGE, tab="overlap")
    app.number_input(key="overlap.share").set_value(50).run()
    assert "1 made so far, on 1 pair, 0 of them by two or more people" in page_html(app)
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

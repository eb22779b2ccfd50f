"""The bulk part of the review: one label for all that match, batches taken back, one decision spread further."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest
from paging import button, double_click, page_html
from streamlit.testing.v1 import AppTest
from worlds import add_dataset, add_labels, add_profiles, add_run, records

from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.model import Attribute, Context, Label, Profile
from cimemories.review import bulk
from cimemories.review.bulk import Axis, batches, last_single, proposals
from cimemories.review.index import pair_index
from cimemories.store import decisions
from cimemories.store.engine import Store, StoreError
from cimemories.ui import once

Pair = tuple[int, int]
TEXTS = (
    "<img src=http://evil.test/x onerror=alert(1)>",
    "![x](http://evil.test/y.png) **bold** :material/bug: <script>",
    "$x$ [link](http://evil.test) `code` </div>",
)
N, X, A = NECESSARY, INAPPROPRIATE, AMBIGUOUS


@pytest.fixture
def store(app_store: Store) -> Store:
    return app_store


def bulk_part(domain: str | None, labels: tuple[str, ...] = ()) -> None:
    """The part alone, as the page draws it; runs inside the AppTest, so everything it needs is imported here."""
    import streamlit as st

    from cimemories.flows.labels import default_labelling
    from cimemories.review.index import pair_index
    from cimemories.review.queue import Filters, Order, select
    from cimemories.store import datasets as store_datasets
    from cimemories.store.engine import shared_store
    from pages.curate import review_bulk

    store = shared_store()
    with store.read() as connection:
        dataset = store_datasets.all_rows(connection)[0]
    labelling = default_labelling(store, dataset.id)
    index = pair_index(store, dataset.id, labelling.id if labelling else None)
    filters = Filters(domain=domain, labels=labels)
    positions = select(store, index, filters, Order.ENTROPY_RATE)
    st.session_state["takeaway"] = review_bulk.draw(store, dataset, labelling, index, positions, "demo", str(filters))


def opened(name: str = "Ada", *folds: str, domain: str | None = None, labels: tuple[str, ...] = ()) -> AppTest:
    app = AppTest.from_function(bulk_part, default_timeout=60, kwargs={"domain": domain, "labels": labels})
    app.session_state["annotator"] = name
    for key in folds:
        app.session_state[key] = True
    return run(app)


def run(app: AppTest) -> AppTest:
    app.run()
    assert not app.exception
    return app


def press(app: AppTest, label: str) -> None:
    button(app, label).click()
    run(app)


def standing(store: Store, dataset_id: int) -> dict[Pair, tuple[str, Label | None, str]]:
    with store.read() as connection:
        by_pair = decisions.standing(decisions.history(connection, dataset_id))
    return {pair: (d.annotator, d.label, d.source) for pair, d in by_pair.items()}


def world(store: Store) -> tuple[int, list[Pair]]:
    data = add_dataset(store, 1, 3, 2)
    add_labels(store, data.id, [[[A, X], [A, N], [X, X]]])
    add_run(store, data.id, 2, [[[2, 0], [1, 0], [0, 0]]])
    (record,) = records(store, data.id)
    return data.id, list(itertools.product(record.attribute_ids, record.context_ids))


def say(store: Store, dataset_id: int, who: str, pair: Pair, label: Label) -> None:
    with store.write() as connection:
        decisions.add_all(connection, dataset_id, who, [decisions.NewDecision(*pair, label)])


def test_one_label_goes_to_all_that_match_but_not_over_what_the_person_had_decided(store: Store) -> None:
    dataset_id, pairs = world(store)
    say(store, dataset_id, "Ada", pairs[0], Label.NECESSARY)
    say(store, dataset_id, "Bea", pairs[1], Label.NECESSARY)
    app = opened()
    assert app.session_state["takeaway"] == "6 of 6 pairs match the filters; you have decided 1 of them."
    assert button(app, "Apply to all 5").disabled  # no label is chosen
    assert len(app.dataframe[0].value) == 6
    assert "5 pairs, 1 decided by others, 1 left out, which you have decided." in page_html(app)
    app.radio[0].set_value(Label.AMBIGUOUS)
    run(app)
    assert button(app, "Apply to all 5").disabled and "Needs a reason" in page_html(app)
    app.text_input[0].set_value("does not matter")
    run(app)
    press(app, "Apply to all 5")
    assert "5 pairs decided as ambiguous, in one batch" in page_html(app)
    after = standing(store, dataset_id)
    assert after[pairs[0]] == ("Ada", Label.NECESSARY, "single")
    assert all(after[pair] == ("Ada", Label.AMBIGUOUS, "batch") for pair in pairs[1:])
    with store.read() as connection:
        rows = [d for d in decisions.history(connection, dataset_id) if d.source == "batch"]
    assert len({d.batch for d in rows}) == 1
    assert all(d.guideline and d.reason == "does not matter" for d in rows)

    press(app, "Undo")
    assert "5 decisions undone; these pairs are again as you left them before the batch." in page_html(app)
    before = standing(store, dataset_id)
    assert before[pairs[1]] == ("Bea", Label.NECESSARY, "single")
    assert set(before) == {pairs[0], pairs[1]}
    assert button(app, "Undo").disabled and "5 of them undone" in page_html(app)

    app.toggle[0].set_value(True)
    run(app)
    double_click(app, button(app, "Apply to all 6"))
    assert standing(store, dataset_id)[pairs[0]] == ("Ada", Label.AMBIGUOUS, "batch")
    assert [batch.pairs for batch in batches(store, dataset_id, "Ada")] == [6, 5], "one batch more"


def test_what_others_decide_between_sight_and_click_is_left_out_and_the_rest_decided(store: Store) -> None:
    dataset_id, pairs = world(store)
    app = opened(labels=("inappropriate",))
    app.radio[0].set_value(Label.AMBIGUOUS)
    app.text_input[0].set_value("all of one kind")
    run(app)
    first, *rest = [pairs[1], pairs[4], pairs[5]]
    say(store, dataset_id, "Bea", first, Label.NECESSARY)  # matches no longer
    say(store, dataset_id, "Bea", pairs[0], Label.INAPPROPRIATE)  # matches only now, and was not shown
    press(app, "Apply to all 3")
    assert (
        "2 pairs decided as ambiguous, in one batch. Left out, since the filters no longer match: 1 pair."
        in page_html(app)
    )
    by_ada = {pair for pair, (who, *_) in standing(store, dataset_id).items() if who == "Ada"}
    assert by_ada == set(rest)
    # Where nothing is left of what was shown, it says so.
    app = opened(labels=("necessary",))
    app.radio[0].set_value(Label.AMBIGUOUS)
    app.text_input[0].set_value("all of one kind")
    run(app)
    for pair in (first, pairs[3]):
        say(store, dataset_id, "Cyd", pair, Label.INAPPROPRIATE)
    say(store, dataset_id, "Cyd", pairs[2], Label.NECESSARY)
    press(app, "Apply to all 2")
    assert "none of the pairs that were shown" in page_html(app).lower()


def test_without_a_name_nothing_can_be_applied_and_nothing_matches_says_so(store: Store) -> None:
    dataset_id, _ = world(store)
    app = opened("")
    assert button(app, "Apply to all 6").disabled and "Needs your name" in page_html(app)
    app = opened(domain="no such domain")
    assert app.session_state["takeaway"] == "No pair matches the filters."
    assert button(app, "Apply to all 0").disabled
    assert standing(store, dataset_id) == {}


def test_many_pairs_are_one_batch_and_one_undo(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PIECE", 7)
    data = add_dataset(store, 1, 20, 25)
    app = opened()
    app.radio[0].set_value(Label.INAPPROPRIATE)
    app.text_input[0].set_value("all of one kind")
    run(app)
    press(app, "Apply to all 500")
    (batch,) = batches(store, data.id, "Ada")
    assert (batch.pairs, batch.taken_back, batch.label, batch.source) == (500, 0, Label.INAPPROPRIATE, "batch")
    pair = next(iter(standing(store, data.id)))
    say(store, data.id, "Ada", pair, Label.NECESSARY)  # gone past since: the undo leaves it alone
    press(app, "Undo")
    assert "499 decisions undone" in page_html(app) and "1 keep your later decisions" in page_html(app)
    assert set(standing(store, data.id)) == {pair}
    assert batches(store, data.id, "Bea") == []


TASKS = (
    Context("Renew the lease of the flat", "Landlord"),
    Context("End the lease of the flat early", "Letting agency"),
    Context("Get cleared for work", "Company doctor"),
)


def spread_world(store: Store) -> tuple[int, dict[tuple[int, str, int], Pair]]:
    """Two people with near-identical diagnoses; pairs by (profile, attribute key, context number)."""
    people = []
    for number, contexts in enumerate((TASKS, (TASKS[1], TASKS[2]))):
        attributes = (
            Attribute("diagnosis", "asthma", "health", "illness", f"On May {number + 3} the clinic found my asthma."),
            Attribute("drug", "salbutamol", "health", "illness", "I inhale salbutamol twice a day."),
            Attribute("doctor", "Dr. Lee", "health", "accident", f"Dr. Lee number {number} sewed the wound."),
            Attribute("rent", 900, "housing", "illness", "My rent is 900 dollars."),
        )
        people.append(Profile(f"Person {number}", "female", "1 Elm St", 40, attributes, contexts))
    data = add_profiles(store, people)
    return data.id, {
        (p, attribute.key, TASKS.index(context)): (a, c)
        for p, record in enumerate(records(store, data.id))
        for a, attribute in zip(record.attribute_ids, record.profile.attributes, strict=True)
        for c, context in zip(record.context_ids, record.profile.contexts, strict=True)
    }


def proposed(store: Store, dataset_id: int, who: str, pair: Pair) -> dict[Axis, list[Pair]]:
    suggestions = proposals(store, pair_index(store, dataset_id, None), who, *pair)
    for item in suggestions:
        assert item.reason and item.similarity == min(p.similarity for p in item.pairs)
        assert all(0 <= p.similarity <= 1 for p in item.pairs)
    return {item.axis: [(p.attribute, p.context) for p in item.pairs] for item in suggestions}


def test_a_decision_is_spread_along_three_axes_and_never_over_what_the_person_decided(store: Store) -> None:
    dataset_id, at = spread_world(store)
    origin = at[0, "diagnosis", 0]
    assert proposed(store, dataset_id, "Ada", origin) == {
        Axis.CONTEXTS: [at[0, "diagnosis", 1]],
        Axis.ATTRIBUTES: [at[0, "drug", 0]],
        Axis.PROFILES: [at[1, "diagnosis", 1]],  # the other person has no such context: the most similar stands in
    }
    assert proposed(store, dataset_id, "Ada", at[0, "diagnosis", 2])[Axis.PROFILES] == [at[1, "diagnosis", 2]]
    say(store, dataset_id, "Ada", at[0, "drug", 0], Label.NECESSARY)
    assert Axis.ATTRIBUTES not in proposed(store, dataset_id, "Ada", origin)
    assert Axis.ATTRIBUTES in proposed(store, dataset_id, "Bea", origin)
    with pytest.raises(StoreError, match="no longer in the dataset"):
        proposed(store, dataset_id, "Ada", (10**6, 1))


def test_proposals_are_applied_only_where_they_are_ticked(store: Store) -> None:
    dataset_id, at = spread_world(store)
    say(store, dataset_id, "Ada", at[0, "diagnosis", 0], Label.INAPPROPRIATE)
    assert last_single(store, dataset_id, "Bea") is None
    app = opened("Ada", "bulk.box.spread")
    assert [box.label for box in app.checkbox] == [
        "Same statement, similar task (1 pair)",
        "Same person and event, same task (1 pair)",
        "Similar statement of another person (1 pair)",
    ]
    assert not any(box.value for box in app.checkbox)
    assert button(app, "Decide these 0 as inappropriate").disabled
    for n in (0, 2):
        app.checkbox[n].check()
    run(app)
    press(app, "Decide these 2 as inappropriate")
    after = standing(store, dataset_id)
    expected = {at[0, "diagnosis", 1], at[1, "diagnosis", 1]}
    assert {pair for pair, (_, _, source) in after.items() if source == "proposal"} == expected
    assert all(after[pair][1] is Label.INAPPROPRIATE for pair in expected)
    (batch,) = batches(store, dataset_id, "Ada")
    assert batch.source == "proposal" and batch.pairs == 2
    press(app, "Undo")
    assert set(standing(store, dataset_id)) == {at[0, "diagnosis", 0]}


def test_the_last_single_decision_is_the_newest_that_still_stands(store: Store) -> None:
    dataset_id, pairs = world(store)
    with store.write() as connection:
        for n, pair in enumerate(pairs[:3]):
            decisions.add_all(
                connection, dataset_id, "Ada", [decisions.NewDecision(*pair, Label.NECESSARY, uid=str(n))]
            )
        bulk: list[Any] = [decisions.NewDecision(*pairs[4], Label.NECESSARY, source="batch", batch="b")]
        decisions.add_all(connection, dataset_id, "Ada", bulk)
    decision = last_single(store, dataset_id, "Ada")
    assert decision is not None and (decision.attribute, decision.context) == pairs[2]
    with store.write() as connection:
        decisions.undo(connection, dataset_id, "Ada", "2", "undo")
    decision = last_single(store, dataset_id, "Ada")
    assert decision is not None and (decision.attribute, decision.context) == pairs[1]


def test_hostile_words_stay_text(store: Store) -> None:
    attributes = tuple(Attribute(f"key {n}", text, "health", text[:40], text) for n, text in enumerate(TEXTS))
    contexts = tuple(Context(text, f"{n} {text}") for n, text in enumerate(TEXTS))
    data = add_profiles(store, [Profile(TEXTS[0], "female", "x", 40, attributes, contexts)])
    (record,) = records(store, data.id)
    say(store, data.id, "Ada", (record.attribute_ids[0], record.context_ids[0]), Label.NECESSARY)
    app = opened("Ada", "bulk.box.spread")
    assert "<img" not in page_html(app) and "<script" not in page_html(app)
    assert not app.markdown


def test_a_batch_that_takes_its_time_is_neither_halved_by_a_click_nor_begun_twice(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece waits for its permit, so that the page is seen while the batch is under way."""
    permits = threading.Semaphore(0)
    add_all = decisions.add_all

    def slow(*given: Any) -> int:
        permits.acquire()
        return add_all(*given)

    monkeypatch.setattr(bulk, "PIECE", 100)
    monkeypatch.setattr(once, "SHORT_SECONDS", 0.0)
    data = add_dataset(store, 1, 20, 25)
    app = opened()
    app.radio[0].set_value(Label.INAPPROPRIATE)
    app.text_input[0].set_value("all of one kind")
    run(app)
    monkeypatch.setattr(decisions, "add_all", slow)
    press(app, "Apply to all 500")
    assert button(app, "Stop") and "Apply to all" not in str([item.label for item in app.button])
    elsewhere = opened()  # a reload, or another window
    assert button(elsewhere, "Stop")
    permits.release(2)
    run(app)  # a click anywhere ends a run of the page, and not the batch
    press(elsewhere, "Stop")
    permits.release(500)
    monkeypatch.setattr(decisions, "add_all", add_all)
    for _ in range(600):
        if "Stopped. No pair was decided" in page_html(run(app)):
            break
    else:
        pytest.fail("the batch was not stopped")
    assert standing(store, data.id) == {}
    app.radio[0].set_value(Label.INAPPROPRIATE)
    app.text_input[0].set_value("all of one kind")
    run(app)
    press(app, "Apply to all 500")
    for _ in range(600):
        if "500 pairs decided as inappropriate, in one batch" in page_html(run(app)):
            break
    else:
        pytest.fail("the batch did not end")
    assert len(standing(store, data.id)) == 500
    assert [row.pairs for row in batches(store, data.id, "Ada") if not row.taken_back] == [500]

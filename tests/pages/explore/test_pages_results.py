"""Runs, Heatmaps and Leaks through app.py: what is missing is said, numbers are the analysis layer's, links hold."""

from __future__ import annotations

import pandas as pd
import pytest
from paging import button, goes_on, labels, opened, page_html
from streamlit.testing.v1 import AppTest
from worlds import add_dataset, add_labels, add_run, ask, plan_run, records

from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.metrics.headline import headline
from cimemories.model import JudgementStatus, Label, ResponseStatus
from cimemories.store import decisions, runs, work
from cimemories.store.engine import Store

RUNS, HEATMAPS, LEAKS = "pages/evaluate/runs.py", "pages/explore/heatmaps.py", "pages/explore/leaks.py"
ACCUMULATION, COMPARE = "pages/explore/accumulation.py", "pages/explore/compare.py"
X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
LABELS = [[[X, X, N], [X, X, X], [N, N, A]]]
REVEALS = [[[1, 0, 4], [0, 2, 5], [5, 3, 0]]]


@pytest.fixture
def store(app_store: Store) -> Store:
    return app_store


def world(store: Store, **options: object) -> tuple[int, str]:
    """The worked example of docs/metrics.md as a run; returns the dataset's and the run's id."""
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, LABELS)
    return data.id, add_run(store, data.id, 5, REVEALS, **options)  # type: ignore[arg-type]


def samples(page: AppTest) -> list[str]:
    """What the tabs of the messages say."""
    return next(item.options for item in page.segmented_control if item.label.startswith("Sample"))


def columns_of_runs() -> pd.DataFrame:
    """All columns of the list of runs."""
    table: pd.DataFrame = opened(RUNS, "runs.box.columns").dataframe[0].value
    return table


def test_without_a_run_every_page_says_what_to_do(store: Store) -> None:
    assert "No dataset yet" in page_html(opened(RUNS))
    add_dataset(store)
    assert "No runs yet." in page_html(opened(HEATMAPS))
    assert "No runs yet." in page_html(opened(LEAKS))
    assert button(opened(RUNS), "New run")
    assert not goes_on(opened(RUNS, tab="new"), "To the experiment")  # no model named yet


def test_the_worked_example_is_what_the_pages_show(store: Store) -> None:
    _, run_id = world(store)
    table = columns_of_runs().iloc[0]
    assert (table["violation"], table["completeness"], table["coverage"]) == pytest.approx((100, 80, 100))
    page = opened(HEATMAPS, run=run_id, n=1)
    assert "violation@1 60.0 % of 2 attributes, completeness 80.0 %" in page_html(page)
    assert "simulated" not in page_html(page)
    leaks = opened(LEAKS, "leaks.box.list", run=run_id)
    assert "3 leaks of a fact to someone who should not know it, 1 of them in every message" in page_html(leaks)
    listed = next(table.value for table in leaks.dataframe if "claimed" in table.value)
    assert listed[["claimed", "draws"]].to_numpy().tolist() == [[5, 5], [2, 5], [1, 5]]


def test_a_linked_cell_lists_its_flows_and_a_linked_leak_its_message(store: Store) -> None:
    data, run_id = world(store)
    person = records(store, data)[0]
    cell = opened(HEATMAPS, run=run_id, domain="relationships", context=person.context_ids[1], n=5)
    flows = next(d.value for d in cell.dataframe if "revealed" in d.value)
    assert flows[["key", "revealed", "label"]].to_numpy().tolist() == [["fact_1", "2 of 5", "I inappropriate"]]
    where = {"profile": person.id, "context": person.context_ids[1], "attribute": person.attribute_ids[1]}
    leak = opened(LEAKS, run=run_id, **where)
    assert 'class="ci-leaked ci-opens"' in page_html(leak)
    assert "in 2 of 5 judged messages" in page_html(leak)
    assert samples(leak) == ["1 (1)", "2 (1)", "3 (0)", "4 (0)", "5 (0)"]


def test_a_decision_changes_what_the_pages_show_at_once(store: Store) -> None:
    data, run_id = world(store)
    person = records(store, data)[0]
    before = opened(LEAKS, run=run_id)
    with store.write() as connection:
        decisions.add(
            connection,
            dataset_id=data,
            attribute=person.attribute_ids[1],
            context=person.context_ids[2],
            annotator="Ada",
            label=Label.AMBIGUOUS,
        )
    before.run()
    assert "2 leaks of a fact to someone who should not know it" in page_html(before)


def test_what_is_missing_is_shown_as_missing(store: Store) -> None:
    lost = {(0, 0, 4): ResponseStatus.TRUNCATED, (0, 1, 4): JudgementStatus.UNPARSED, (0, 2, 4): ResponseStatus.FAILED}
    data, run_id = world(store, missing=lost)
    flows, scope = ask(store, run_id)
    assert headline(flows, scope).coverage == pytest.approx(12 / 15)
    assert "Only 80.0 % of the messages are judged" in page_html(opened(HEATMAPS, run=run_id))
    page = opened(RUNS, run=run_id)
    assert "1 message missing: truncated" in page_html(page)
    assert "1 judgement missing: unparsed" in page_html(page)
    assert button(page, "Retry failed calls")
    person = records(store, data)[0]
    leak = opened(LEAKS, run=run_id, profile=person.id, context=person.context_ids[0], sample=5)
    assert samples(leak)[-1] == "5 (missing)"
    assert "counts as missing, not as &#x27;nothing revealed&#x27;" in page_html(leak)


def test_without_labels_nothing_is_called_a_leak(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    run_id = add_run(store, data.id, 5, REVEALS)
    for page in (HEATMAPS, LEAKS, ACCUMULATION):
        assert "The dataset has no labels yet" in page_html(opened(page, run=run_id))


def test_where_no_context_has_both_labels_the_pages_say_so_and_ask_for_no_labelling(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, [[[X] * 3, [A] * 3, [X] * 3]])
    run_id, other = add_run(store, data.id, 5, REVEALS), add_run(store, data.id, 5, REVEALS)
    for name in (HEATMAPS, LEAKS, ACCUMULATION):
        page = opened(name, run=run_id)
        assert "none of 3 judged contexts does" in page_html(page)
        assert "See the labels" in labels(page) and "Label the dataset" not in labels(page)
    text = page_html(opened(COMPARE, tab="difference", against=run_id, run=other))
    assert "Nothing in common" in text and "0 flows newly leak" not in text and "Every inappropriate" not in text


def test_a_link_to_a_run_that_is_gone_is_said(store: Store) -> None:
    _, run_id = world(store)
    for page in (RUNS, HEATMAPS, LEAKS):
        app = opened(page, run="run-00000000")
        assert "(any longer)" in page_html(app)
        if page == RUNS:  # which opens no other, and lists those there are
            assert any(run_id in node.proto.json for node in app.get("bidi_component"))
        else:
            assert run_id in str(app.query_params["run"])


def test_a_dead_worker_is_interrupted_and_its_run_can_be_deleted(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    with store.write() as connection:
        run_id = plan_run(connection, data.id, 2)
        table = work.table_of(run_id)
        connection.execute(
            table.update().values(status="running", pid=1, process_started=1.0, host="elsewhere", heartbeat=1.0)
        )
    assert columns_of_runs()["status"].tolist() == ["interrupted"]
    page = opened(RUNS, run=run_id)
    assert button(page, "Resume")
    button(page, "Delete this run").click().run()
    with store.read() as connection:
        assert runs.all_rows(connection) == []


def test_a_simulated_run_carries_its_badge_everywhere(store: Store) -> None:
    _, run_id = world(store, simulated=True)
    assert columns_of_runs()["mark"].tolist() == ["simulated"]
    for page in (RUNS, HEATMAPS, LEAKS):
        assert "ci-simulated" in page_html(opened(page, run=run_id))

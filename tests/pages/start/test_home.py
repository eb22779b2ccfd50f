"""Home through app.py: what to do next in each room, and where somebody left off."""

from __future__ import annotations

import gc

import pytest
import sqlalchemy as sa
from paging import HOME, button, opened, page_html, spare_libraries
from streamlit.testing.v1 import AppTest
from worlds import add_dataset, add_labels, add_run, plan_run, records

from cimemories.flows import scope
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.model import Label, WorkStatus
from cimemories.store import decisions, work
from cimemories.store.engine import Store
from cimemories.store.tables import run
from cimemories.ui import server

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
LABELS = [[[X, X, N], [X, X, X], [N, N, A]]]
WORST_TO_BEST = [
    [[[5, 5, 0], [5, 5, 5], [0, 0, 0]]],
    [[[1, 1, 5], [1, 1, 5], [5, 3, 0]]],
    [[[0, 2, 5], [0, 2, 5], [5, 3, 0]]],
    [[[0, 0, 5], [0, 0, 0], [5, 5, 0]]],
]
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def store(app_store: Store) -> Store:
    return app_store


def links(page: AppTest) -> dict[str, str]:
    """Of every link to a page: what it says, and the query that it opens it with."""
    return {item.proto.label: item.proto.query_string for item in page.get("page_link")}


def test_home_says_what_this_is_and_one_thing_to_do_next_in_each_room(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    app = opened(HOME)
    assert "lower is better" in page_html(app) and "higher is better" in page_html(app)
    assert button(app, "Evaluate my model")
    assert list(links(app)) == ["Label this dataset", "Start a run", "Go to Runs"]
    add_labels(store, data.id, LABELS)
    run_id = add_run(store, data.id, 5, WORST_TO_BEST[0])
    app = opened(HOME)
    assert list(links(app)) == ["Review labels", "Compare prompts in a sweep", "Open the heatmap"]
    assert links(app)["Open the heatmap"] == f"dataset={data.id}&run={run_id}"
    with store.write() as connection:
        going = plan_run(connection, data.id, 2)
        work.claim(connection, going)
    app = opened(HOME)
    assert links(app)["Watch the run"] == f"run={going}" and "is running: 0.0 % judged" in page_html(app)
    with store.write() as connection:
        work.request_cancel(connection, going)
        work.finish(connection, going, WorkStatus.CANCELLED)
    app = opened(HOME)
    assert links(app)["Go to the run"] == f"run={going}" and "stopped early (cancelled)" in page_html(app)


def test_explore_says_what_the_runs_of_the_most_judged_dataset_show(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, LABELS)
    ran = [add_run(store, data.id, 5, reveals) for reveals in WORST_TO_BEST]
    with store.write() as connection:
        plan_run(connection, data.id, 5)
        connection.execute(sa.update(run).where(run.c.id == ran[3]).values(model=HOSTILE, simulated=True))
    text = page_html(opened(HOME))
    assert "4 runs of the dataset" in text and "balanced score" in text
    assert HOSTILE not in text
    assert text.count("ci-simulated") == 1, "one of them is, so what is said of all is marked"
    assert links(opened(HOME))["Compare the runs"] == f"dataset={data.id}"


def test_a_ranking_of_a_moment_ago_says_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, LABELS)
    for reveals in WORST_TO_BEST:
        add_run(store, data.id, 5, reveals)
    monkeypatch.setattr(scope, "_settled", {})
    for module in ("cimemories.compare.leaderboard", "pages.start.home"):
        monkeypatch.setattr(f"{module}.MANY", 1)
    assert scope.BEHIND not in page_html(opened(HOME))
    person = records(store, data.id)[0]
    pair = {"attribute": person.attribute_ids[0], "context": person.context_ids[0]}
    with store.write() as connection:
        decisions.add(connection, dataset_id=data.id, annotator="Ada", label=Label.NECESSARY, **pair)
    assert scope.BEHIND in page_html(opened(HOME))


def test_many_runs_are_neither_ranked_unasked_nor_left_out_unsaid(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, LABELS)
    ran = [add_run(store, data.id, 5, reveals) for reveals in WORST_TO_BEST]
    for module in ("cimemories.compare.leaderboard", "pages.explore.compare_scope"):
        monkeypatch.setattr(f"{module}.MOST_UNCHOSEN", len(ran) - 1)
    text = page_html(opened(HOME))
    assert f"{len(ran)} runs of the dataset" in text and "balanced score" not in text
    text = page_html(opened("pages/explore/compare.py", "compare.box.leaderboard"))
    assert f"the {len(ran) - 1} newest of {len(ran)} judged runs" in text
    assert [run_id in text for run_id in ran] == [False, True, True, True]


def test_one_goes_on_where_one_left_off(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    person = records(store, data.id)[0]
    assert "Continue where you left off" not in [item.value for item in opened(HOME).subheader]
    with store.write() as connection:
        for a, whose in ((0, "Ada"), (1, HOSTILE)):
            pair = person.attribute_ids[a], person.context_ids[a]
            decisions.add(
                connection,
                dataset_id=data.id,
                attribute=pair[0],
                context=pair[1],
                annotator=whose,
                label=Label.NECESSARY,
            )
    stranger = opened(HOME)
    assert "&lt;img src=x onerror=alert(1)&gt; last reviewed" in page_html(stranger)
    assert f"attribute={person.attribute_ids[1]}" in links(stranger)["Continue reviewing"]
    stranger.session_state["annotator"] = "Ada"
    stranger.run()
    assert "You last reviewed" in page_html(stranger)
    assert (
        f"attribute={person.attribute_ids[0]}&context={person.context_ids[0]}" in links(stranger)["Continue reviewing"]
    )
    with store.write() as connection:
        run_id = plan_run(connection, data.id, 2)
    stranger.session_state["scope.run"] = run_id
    stranger.run()
    assert "You last viewed the run" in page_html(stranger)
    assert "0 of 6 messages judged" in page_html(stranger)
    assert links(stranger)["Open the run"] == f"run={run_id}"
    stranger.session_state["scope.run"] = "run-00000000"
    stranger.run()
    assert "Open the run" not in links(stranger)


def test_libraries_are_kept_out_of_the_collections_after_each_run(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_modules", 0)
    monkeypatch.setattr(server, "spare_libraries", spare_libraries)
    gc.unfreeze()
    opened(HOME)
    assert gc.get_freeze_count() > len(gc.get_objects()), "what the imports made is gone through no more"
    gc.unfreeze()
    opened(HOME)
    assert gc.get_freeze_count() == 0, "nothing new was imported, and what sessions hold stays with the collector"


@pytest.mark.usefixtures("store")
def test_who_is_logged_in_can_log_out_on_every_page(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Log out" not in [item.label for item in opened("pages/evaluate/runs.py").sidebar.button]
    monkeypatch.setattr("streamlit.user", Account({"name": "Ada"}))
    assert "Log out" in [item.label for item in opened("pages/evaluate/runs.py").sidebar.button]
    monkeypatch.setattr(Account, "is_logged_in", False)
    stranger = opened("pages/evaluate/runs.py")
    assert [item.label for item in stranger.button] == ["Log in"]


class Account(dict[str, str]):
    """What st.user is where a login is set up."""

    is_logged_in = True

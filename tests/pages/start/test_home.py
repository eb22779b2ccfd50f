"""Home through app.py: what to do next in each room, and where somebody left off."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
from paging import HOME, button, opened, page_html, spare_libraries
from streamlit.testing.v1 import AppTest
from worlds import add_dataset, add_labels, add_profiles, add_run, make_profile, plan_run, records

from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.model import Label, ResponseStatus, WorkStatus
from cimemories.store import decisions, work
from cimemories.store.engine import Store
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


PICTURE = ["Read the message", "Watch leaks add up", "See who is told what", "See the labels"]


def test_home_says_what_this_is_and_one_thing_to_do_next_in_each_room(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    app = opened(HOME)
    assert "tell the wrong person" in page_html(app) and "An example" in page_html(app)
    assert button(app, "Evaluate my model")
    assert list(links(app)) == ["Label this dataset", "Start a run", "Go to Runs"]
    add_labels(store, data.id, LABELS)
    run_id = add_run(store, data.id, 5, WORST_TO_BEST[0])
    app = opened(HOME)
    assert list(links(app)) == [*PICTURE, "Review labels", "Compare prompts in a sweep", "Open the heatmap"]
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


def test_an_empty_workspace_shows_an_example_and_three_ways_to_begin(store: Store) -> None:
    app = opened(HOME)
    assert "ci-told" in page_html(app) and "An example" in page_html(app)
    assert [*links(app), button(app, "Open the demo").label] == ["Import a file", "Create profiles", "Open the demo"]


def test_the_picture_is_of_the_newest_run_that_is_whole(store: Store) -> None:
    profile = make_profile(0, 3, 3)
    context = replace(profile.contexts[0], recipient=HOSTILE)
    data = add_profiles(store, [replace(profile, contexts=(context, *profile.contexts[1:]))])
    add_labels(store, data.id, LABELS)
    add_run(store, data.id, 5, WORST_TO_BEST[2])
    whole = add_run(store, data.id, 5, [[[5, 0, 0], [0, 0, 0], [0, 0, 0]]], simulated=True)
    cut = {(0, c, sample): ResponseStatus.TRUNCATED for c in (0, 1) for sample in range(5)}
    lacking = add_run(store, data.id, 5, WORST_TO_BEST[0], missing=cut, status=WorkStatus.FINISHED_WITH_FAILURES)
    app, there = opened(HOME), records(store, data.id)[0]
    ids = f"profile={there.id}&context={there.context_ids[0]}&attribute={there.attribute_ids[0]}&sample=1"
    assert links(app)["Read the message"] == f"dataset={data.id}&run={whole}&{ids}"
    text = page_html(app)
    assert 'Told to</div><b dir="auto" translate="no">&lt;img' in text and HOSTILE not in text
    assert '<mark class="ci-leaked">All of it</mark>' in text and "told in 5 of 5 messages" in text
    assert text.count("ci-simulated") == 1, "the run and its numbers are marked once"
    assert "lacks 10 of 15 messages. Most were cut at the token limit" in text
    assert links(app)["See what is missing"] == f"run={lacking}"


def test_nothing_is_said_to_be_kept_where_no_label_counts(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, [[[A, A, A], [X, A, A], [A, N, A]]])
    add_run(store, data.id, 5, WORST_TO_BEST[0])
    text = page_html(opened(HOME))
    assert "is not known yet: no task has both" in text and "No leak of this run" not in text


def test_explore_leads_to_the_dataset_with_most_judged_runs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, LABELS)
    ran = [add_run(store, data.id, 5, reveals) for reveals in WORST_TO_BEST]
    with store.write() as connection:
        plan_run(connection, data.id, 5)
    app = opened(HOME)
    assert '4 runs of &#x27;<span dir="auto" translate="no">small world' in page_html(app)
    assert links(app)["Compare the runs"] == f"dataset={data.id}"
    for module in ("cimemories.compare.leaderboard", "pages.explore.compare_scope"):
        monkeypatch.setattr(f"{module}.MOST_UNCHOSEN", len(ran) - 1)
    text = page_html(opened("pages/explore/compare.py", "compare.box.leaderboard"))
    assert f"the {len(ran) - 1} newest of {len(ran)} judged runs" in text
    assert [run_id in text for run_id in ran] == [False, True, True, True]


def test_one_goes_on_where_one_left_off(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    person = records(store, data.id)[0]
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
    assert "Continue where you left off" not in [item.value for item in stranger.subheader]
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
    gc.freeze()  # as it was: the tests after this one would be slower


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

"""The Sensitivity tab through app.py: sliders that say what they do, links that reproduce it, hostile names as text."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from paging import button, opened, page_html
from streamlit.testing.v1 import AppTest
from two_runs import world as two_runs
from worlds import add_dataset, add_run

from cimemories.extras.sensitivity import page as compare_sensitivity
from cimemories.extras.sensitivity.coverage import flow_coverage
from cimemories.flows.flows import Flows
from cimemories.flows.scope import resolve_scope
from cimemories.metrics.headline import headline
from cimemories.metrics.violation import balanced
from cimemories.store import labellings
from cimemories.store.engine import Store
from cimemories.store.tables import run
from cimemories.ui import once

COMPARE = "pages/explore/compare.py"
HOSTILE = "<img src=x onerror=alert(1)>"
FOLDS = tuple(f"compare.box.{name}" for name in ("order", "choices", "every", "profiles", "spoken"))


@pytest.fixture
def runs(app_store: Store) -> list[str]:
    run_ids = two_runs(app_store)
    with app_store.write() as connection:
        for run_id, model in zip(run_ids, ("gentle", HOSTILE), strict=True):
            connection.execute(sa.update(run).where(run.c.id == run_id).values(model=model, simulated=model == HOSTILE))
    return run_ids


def computed(*folds: str, **link: object) -> AppTest:
    """The tab after somebody has asked for it."""
    app = opened(COMPARE, *folds, tab="sensitivity", **link)
    return button(app, "Compute sensitivity").click().run()


def slider(app: AppTest, label: str) -> object:
    return next(item for item in app.slider if item.label == label)


def charts(app: AppTest) -> str:
    return "\n".join(item.proto.spec for item in app.get("plotly_chart"))


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def test_moving_a_slider_gives_the_numbers_of_that_rule(app_store: Store, runs: list[str]) -> None:
    app = computed()
    assert "These are the current settings" in page_html(app)
    slider(app, "Consensus threshold in percent").set_value(70).run()  # type: ignore[attr-defined]
    for key, weight in (("fundamentalist", 10), ("pragmatic", 20), ("unconcerned", 70)):
        slider(app, f"Weight of the {key}").set_value(weight).run()  # type: ignore[attr-defined]
    assert not app.exception
    assert (app.query_params["threshold"], app.query_params["priors"]) == ("70", "10-20-70")
    text = page_html(app)
    with app_store.read() as connection:
        assert (
            labellings.current_rule(connection, resolve_scope(app_store, runs[0]).run.dataset) is None
        )  # nothing is changed
    for run_id in runs:
        then = resolve_scope(app_store, run_id, rule="looser")
        numbers = headline(Flows(app_store), then)
        # Runs of 2 and of 3 samples are ordered at 2.
        both = balanced(numbers.violation[2], numbers.completeness)
        for share in (numbers.violation[2], numbers.completeness, both):
            assert percent(share) in text
        assert percent(flow_coverage(Flows(app_store), then).share) in text
    button(app, "Back to the current settings").click().run()
    assert "These are the current settings" in page_html(app) and "threshold" not in app.query_params


def test_it_is_computed_when_asked_and_can_be_stopped(runs: list[str]) -> None:
    app = opened(COMPARE, tab="sensitivity")
    assert "has not been computed yet" in page_html(app) and not app.slider and not app.get("plotly_chart")
    button(app, "Compute sensitivity").click().run()
    assert "These are the current settings" in page_html(app) and app.get("plotly_chart")
    app.run()
    assert "These are the current settings" in page_html(app)
    # Of other runs it has not been asked for.
    app.multiselect[0].set_value([runs[0]]).run()
    assert "has not been computed yet" in page_html(app)


def test_stop_ends_the_computing_at_once(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()

    def endless(_compared: object, _study: object, report: Callable[[str], None]) -> None:
        try:
            while True:
                report("a choice")
                time.sleep(0.01)
        except once.StoppedError:
            stopped.set()
            raise

    app = opened(COMPARE, tab="sensitivity")
    with monkeypatch.context() as patch:
        patch.setattr(compare_sensitivity, "_tried", endless)
        patch.setattr(once, "SHORT_SECONDS", 0.1)
        button(app, "Compute sensitivity").click().run()
        app.run()  # the page is left and opened again
        button(app, "Stop").click().run()
    assert stopped.wait(timeout=60)
    app.run()
    assert "has not been computed yet" in page_html(app) and not app.get("plotly_chart")
    assert "Stop" not in [item.label for item in app.button]
    button(app, "Compute sensitivity").click().run()
    assert app.get("plotly_chart")


def test_every_part_is_a_link(runs: list[str]) -> None:
    link = {"threshold": 80, "priors": "0-50-50", "identifiers": "none", "ranking": "violation", "subset": 1}
    app = opened(COMPARE, *FOLDS, tab="sensitivity", by="context", run=runs[1], **link)
    text = page_html(app)
    assert "with priors fundamentalist 0 %, pragmatic 50 %, unconcerned 50 %" in text
    assert "identifiers by the rule &#x27;none&#x27;" in text
    assert slider(app, "Profiles in a subset").value == 1  # type: ignore[attr-defined]
    specs = charts(app)
    for label in (
        "Rank by violation",
        "the largest change of",
        "1 of 2 profiles",
        "the headline covers",
        "Recipient 1",
    ):
        assert label in specs, label
    assert "Kendall" in text
    choices = next(item.value for item in app.dataframe if "least_tau" in item.value)
    assert {"consensus threshold", "one persona left out", "decisions or consensus alone"} <= set(choices["choice"])
    spoken = next(item.value for item in app.dataframe if "speaks" in item.value)
    assert spoken["pairs"].sum() == 64
    assert any("consensus" in str(item.proto) for item in app.get("page_link"))
    assert "<img" not in text and "<img" not in specs and "ci-simulated" in text


def test_exports_say_which_number_and_which_run_they_hold(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, dict[str, object]] = {}
    monkeypatch.setattr("cimemories.ui.exports.buttons", lambda name, _, *, about, **__: given.update({name: about}))
    opened(COMPARE, *FOLDS, tab="sensitivity", by="context", run=runs[1], ranking="violation")
    for name in ("order", "choices", "profiles"):
        assert given[f"compare-{name}"]["measure"] == "violation"
    assert given["compare-spoken"]["run"] == runs[1]
    # Runs of 2 and of 3 samples are ordered at 2.
    assert {about["n"] for about in given.values()} == {2}


def test_votes_needed_are_a_choice_of_the_link(runs: list[str]) -> None:
    app = opened(COMPARE, tab="sensitivity", votes=3)
    field = next(item for item in app.number_input if item.label == "Votes needed of each persona")
    assert field.value == 3 and "at least 3 votes of each persona" in page_html(app)
    field.set_value(2).run()
    assert app.query_params["votes"] == "2" and "at least 2 votes of each persona" in page_html(app)
    button(app, "Back to the current settings").click().run()
    assert "These are the current settings" in page_html(app) and "votes" not in app.query_params
    assert "These are the current settings" in page_html(opened(COMPARE, tab="sensitivity", votes=99999999))


def test_one_run_alone_has_numbers_and_no_order(runs: list[str]) -> None:
    app = opened(COMPARE, tab="sensitivity", runs=runs[0], threshold=60)
    assert "one run alone has no order" in charts(app) and "of gentle" in charts(app)
    assert "<b>One run alone has no order.</b>" in page_html(app)


@pytest.mark.parametrize(
    "wrong",
    [
        {"threshold": 20, "priors": "1-2-3-4", "identifiers": "all", "ranking": "beauty", "subset": 99, "by": "colour"},
        {"threshold": "x", "priors": "0-0-0", "subset": 0},
    ],
)
def test_a_broken_link_shows_the_current_settings(runs: list[str], wrong: dict[str, object]) -> None:
    app = opened(COMPARE, tab="sensitivity", **wrong)
    assert "These are the current settings" in page_html(app)


def test_without_labels_it_says_what_is_missing(app_store: Store) -> None:
    data = add_dataset(app_store, profiles=1, attributes=3, contexts=2)
    add_run(app_store, data.id, 1, [[[1, 0], [0, 0], [0, 1]]])
    assert "Nothing to vary yet" in page_html(opened(COMPARE, tab="sensitivity"))

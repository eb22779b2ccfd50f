"""The form for new profiles on the Profiles page: made at once, written by a worker, stopped and gone on with."""

from __future__ import annotations

import pytest
from paging import HOME, button, double_click, opened, page_html
from worlds import add_dataset

from cimemories import launch
from cimemories.curation import authoring, execution
from cimemories.curation.spec import AuthoringSpec
from cimemories.llm.worker import WorkError
from cimemories.model import WorkStatus
from cimemories.store import datasets, generations, work
from cimemories.store.engine import Store

PAGE = "pages/curate/profiles.py"
HOSTILE = "<img src=x onerror=alert(1)> ![a](http://127.0.0.1:9/x.png)"


@pytest.fixture
def store(app_store: Store) -> Store:
    """The app's workspace with one dataset."""
    add_dataset(app_store, name="first")
    return app_store


def names(store: Store) -> list[str]:
    with store.read() as connection:
        return [row.name for row in datasets.all_rows(connection)]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the work for which a worker was to be started; it waits for that worker, which never comes."""
    ids: list[str] = []

    def queue_alone(store: Store, work_id: str, engine: object = None) -> None:
        with store.write() as connection:
            work.queue(connection, work_id)
        ids.append(work_id)

    monkeypatch.setattr(launch, "launch", queue_alone)
    return ids


def spec(**changes: object) -> AuthoringSpec:
    values = {"name": "new", "profiles": 1, "model": "sim-average", "base_url": "simulator"}
    return AuthoringSpec(**{**values, "events": 1, "per_domain": 1, "general": 1, **changes})  # type: ignore[arg-type]


def test_from_templates_at_once(store: Store) -> None:
    app = opened(PAGE, view="new")
    assert button(app, "Create profiles").disabled, "a dataset needs a name"
    app.text_input(key="new.name").set_value("plain").run()
    app.number_input(key="new.count.Templates, no model").set_value(2).run()
    button(app, "Create profiles").click().run()
    assert not app.exception
    assert "&#x27;plain&#x27;: 2 profiles, 298 attributes." in page_html(app)
    assert names(store) == ["first", "plain"]
    app.text_input(key="new.name").set_value("plain").run()
    button(app, "Create profiles").click().run()
    assert "exists already" in page_html(app)
    assert names(store) == ["first", "plain"]


def test_started_with_the_simulator_and_shown_when_it_is_done(store: Store, started: list[str]) -> None:
    app = opened(PAGE, view="new")
    app.segmented_control(key="new.how").set_value("The simulator").run()
    app.text_input(key="new.name").set_value(HOSTILE).run()
    for key, value in (("new.count.The simulator", 1), ("new.per_domain", 1), ("new.events", 1), ("new.general", 2)):
        app.number_input(key=key).set_value(value).run()
    button(app, "Show the plan").click().run()
    assert "1 profile × 11 attributes = 11 attributes" in page_html(app)
    button(app, "Start writing").click().run()
    assert len(started) == 1
    app.run()
    assert "is being written" in page_html(app)
    assert "&lt;img src=x" in page_html(app)
    assert "<img" not in page_html(app)
    execution.execute(store, started[0])
    app.run()
    assert not app.exception
    assert "is written: " in page_html(app)
    assert "simulated" in page_html(app)
    assert names(store) == ["first", HOSTILE]


def test_the_form_shows_what_writing_comes_to(store: Store) -> None:
    app = opened(PAGE, view="new")
    app.segmented_control(key="new.how").set_value("The simulator").run()
    app.text_input(key="new.name").set_value("mine").run()
    app.number_input(key="new.count.The simulator").set_value(2).run()
    button(app, "Show the plan").click().run()
    assert not app.exception
    assert "2 profiles × 199 attributes = 398 attributes" in page_html(app)
    assert "asked for again" in page_html(app)
    app.number_input(key="new.count.The simulator").set_value(1).run()
    assert "398" not in page_html(app), "a plan is of the fields that it was made of"


def test_what_is_entered_stays_while_other_pages_are_looked_at(store: Store) -> None:
    app = opened(PAGE, "new.box.prices", view="new")
    app.segmented_control(key="new.how").set_value("A model").run()
    for key, text in (("new.name", "mine"), ("new.model", "m"), ("new.base_url", "http://127.0.0.1:9/v1")):
        app.text_input(key=key).set_value(text).run()
    app.number_input(key="new.count.A model").set_value(7).run()
    app.number_input(key="new.max_tokens").set_value(None).run()
    app.number_input(key="new.price.model.prompt").set_value(0.5).run()
    app.switch_page(HOME).run()
    app.switch_page(PAGE)
    app.query_params["view"] = "new"
    app.run()
    assert not app.exception
    assert app.segmented_control(key="new.how").value == "A model"
    assert [app.text_input(key=f"new.{name}").value for name in ("name", "model", "base_url")] == [
        "mine",
        "m",
        "http://127.0.0.1:9/v1",
    ]
    numbers = [
        app.number_input(key=f"new.{name}").value for name in ("count.A model", "max_tokens", "price.model.prompt")
    ]
    assert numbers == [7, None, 0.5]


def test_what_cannot_be_started_says_why_and_leaves_nothing(store: Store) -> None:
    app = opened(PAGE, view="new")
    app.segmented_control(key="new.how").set_value("A model").run()
    button(app, "Start writing").click().run()
    assert "Nothing was started." in page_html(app) and "Enter a dataset name and a model first." in page_html(app)
    app.text_input(key="new.name").set_value("new").run()
    app.text_input(key="new.base_url").set_value("http://127.0.0.1:9/v1").run()
    # The click that ends the typing of the last field counts.
    app.text_input(key="new.model").set_value("m")
    button(app, "Start writing").click().run()
    assert "Nothing was started." in page_html(app)
    assert "No answer from http://127.0.0.1:9/v1" in page_html(app)
    with store.read() as connection:
        assert generations.all_rows(connection) == []


def test_stopped_work_can_be_gone_on_with_or_discarded(store: Store, started: list[str]) -> None:
    generation_id = authoring.plan(store, spec())
    with pytest.raises(WorkError):
        execution.execute(store, generation_id, base_url="http://127.0.0.1:9/v1")
    with store.write() as connection:
        work.finish(connection, generation_id, WorkStatus.INTERRUPTED, HOSTILE)
    app = opened(PAGE, view="new")
    assert "No dataset was created." in page_html(app)
    assert "0 of 2 calls done and kept" in page_html(app)
    assert "<img" not in page_html(app)
    double_click(app, button(app, "Resume"))
    assert started == [generation_id]
    with store.write() as connection:
        work.request_cancel(connection, generation_id)
    app.run()
    double_click(app, button(app, "Discard"))
    assert "No dataset was created." not in page_html(app)
    with store.read() as connection:
        assert generations.all_rows(connection) == []


def test_from_templates_of_chosen_events(store: Store) -> None:
    app = opened(PAGE, view="new")
    app.text_input(key="new.name").set_value("recovering").run()
    app.number_input(key="new.count.Templates, no model").set_value(1).run()
    app.number_input(key="new.templates.events").set_value(1).run()
    app.multiselect(key="new.templates.among").set_value(["addiction recovery"]).run()
    button(app, "Create profiles").click().run()
    assert not app.exception
    with store.read() as connection:
        row = datasets.by_name(connection, "recovering")
        attributes = datasets.profile_records(connection, row.id)
        events = {a.event for record in attributes for a in record.profile.attributes}
    assert "addiction recovery" in events and len(events - {"general", "", None, "addiction recovery"}) == 0
    assert "among addiction recovery" in row.source_name
    app.text_input(key="new.name").set_value("too many").run()
    app.number_input(key="new.templates.events").set_value(2).run()
    button(app, "Create profiles").click().run()
    assert "2 events are too many: only 1" in page_html(app) and "too many" not in names(store)

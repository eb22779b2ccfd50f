"""Fields and choices as the browser is told of them: where a person is at one, drawing the page leaves it alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from evaluating import add_labelled, simulated
from paging import nodes, opened
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import NumberInput, TextArea, TextInput

from cimemories.evaluation import planning, runs
from cimemories.store import engine
from cimemories.store.engine import WORKSPACE, open_store
from cimemories.ui.url import PAGES


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with labels and a run of two samples."""
    store = open_store(tmp_path_factory.mktemp("fields") / "workspace")
    add_labelled(store)
    runs.execute(store, planning.plan(store, simulated()))
    store.close()
    return store.workspace


@pytest.fixture(autouse=True)
def chosen(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACE, str(workspace))
    monkeypatch.setattr(engine, "_open", {})


def set_anew(app: AppTest) -> list[str]:
    """The labels of the fields whose value the last run sent to the browser, over what is in them."""
    fields = [node for node in nodes(app._tree) if isinstance(node, (NumberInput, TextArea, TextInput))]
    return [field.label for field in fields if field.proto.set_value]


@pytest.mark.parametrize(("page", "query"), [("profiles", {}), ("consensus", {"part": "whatif"})])
def test_drawing_a_page_again_writes_nothing_over_its_fields(page: str, query: dict[str, str]) -> None:
    app = opened(PAGES[page], **query)
    assert set_anew(app), "the first time each gets its value, or this test could not fail"
    # A browser sends the values of all widgets with whatever a person does on the page.
    app.run()
    assert set_anew(app) == []


def test_a_field_is_not_reset_by_leaving_the_one_before() -> None:
    app = opened(PAGES["runs"], tab="new")
    app.segmented_control(key="run_new.where").set_value("simulator").run()
    app.button(key="show.run_new.forward.1").click().run()
    fields = {field.label: field for field in app.number_input}
    # Who tabs on to Contexts types there while this run is under way.
    fields["Profiles"].set_value(1).run()
    assert {field.label: field.value for field in app.number_input}["Profiles"] == 1
    assert set_anew(app) == []
    app.number_input(key=fields["Contexts"].key).set_value(2).run()
    assert set_anew(app) == []
    assert app.number_input(key=fields["Contexts"].key).value == 2


def test_what_the_address_says_is_still_set() -> None:
    app = opened(PAGES["profiles"])
    app.run()
    app.query_params["search"] = "rent"
    app.run()
    assert app.text_input(key="profiles.search").value == "rent"
    assert len(set_anew(app)) == 1

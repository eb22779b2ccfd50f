"""Who uses the app: asked once, remembered, and warned of a name that is nearly somebody else's."""

from __future__ import annotations

from pathlib import Path

import pytest
import serving
from paging import button, opened, page_html
from playwright.sync_api import Browser, expect
from streamlit.testing.v1 import AppTest
from worlds import add_dataset, records

from cimemories.store import decisions, reviews
from cimemories.store.engine import DATABASE_URL, WORKSPACE, Store, open_store
from cimemories.ui.annotator import similar_name

REVIEW = "pages/curate/review.py"


def decide(store: Store, name: str) -> None:
    dataset = add_dataset(store, name=f"of {name}")
    pair = records(store, dataset.id)[0]
    with store.write() as connection:
        decisions.add(
            connection,
            dataset_id=dataset.id,
            attribute=pair.attribute_ids[0],
            context=pair.context_ids[0],
            annotator=name,
            label=None,
            reason="",
        )


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("bruno", "Bruno"),
        ("BRUNO ", "Bruno"),
        ("Brünö", "Bruno"),
        ("Ana Lopez", "Ana López"),
        ("ana-lopez", "Ana López"),
        ("Annna", "Anna"),
        ("Bruno", None),
        ("Maria", None),
        ("Bob", None),
        ("", None),
    ],
)
def test_nearly_the_same_name_is_somebody_known(typed: str, expected: str | None) -> None:
    assert similar_name(typed, ["Anna", "Bruno", "Ana López", "Marie"]) == expected


def test_names_without_letters_are_compared_as_they_are() -> None:
    assert similar_name("??", ["!!"]) is None
    assert similar_name("李", ["王"]) is None


@pytest.fixture
def store(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv(WORKSPACE, str(sqlite_store.workspace))
    monkeypatch.delenv(DATABASE_URL, raising=False)
    return sqlite_store


def given(app: AppTest, text: str) -> AppTest:
    app.text_input(key="annotator.field").set_value(text).run()
    assert not app.exception
    return app


def test_everybody_known_is_listed_who_worked_last_first(store: Store) -> None:
    for name in ("Bruno", "Ada"):
        decide(store, name)
    with store.read() as connection:
        assert reviews.people(connection) == ["Ada", "Bruno"]
    app = opened(REVIEW)
    app.selectbox(key="annotator.known").set_value("Ada").run()
    assert app.session_state["annotator"] == "Ada"
    assert "Your name" not in [item.label for item in app.text_input]


def test_a_name_nearly_somebody_elses_is_used_only_when_said_so(store: Store) -> None:
    decide(store, "Bruno")
    app = given(opened(REVIEW), "bruno")
    assert "Bruno has worked here before." in page_html(app)
    assert app.session_state["annotator"] == ""
    button(app, "I am Bruno").click().run()
    assert app.session_state["annotator"] == "Bruno"
    app = given(opened(REVIEW), " bruno ")
    button(app, "bruno is someone else").click().run()
    assert app.session_state["annotator"] == "bruno"
    assert given(opened(REVIEW), "Zoe").session_state["annotator"] == "Zoe"


@pytest.mark.browser
def test_the_browser_remembers_who_is_there_and_every_page_shows_it(tmp_path: Path, browser: Browser) -> None:
    store = open_store(tmp_path / "workspace")
    decide(store, "Bruno")
    store.close()
    with serving.running_app(tmp_path / "workspace", "--no-demo") as (address, _):
        page = serving.open_page(browser, f"{address}/review")
        expect(page.get_by_label("Your name")).to_be_focused()
        page.keyboard.type("bruno")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="I am Bruno").click()
        who = page.locator(".st-key-who")
        expect(who).to_contain_text("Bruno · not you?")
        second = page.context.new_page()
        second.goto(f"{address}/runs")
        expect(second.locator(".st-key-who")).to_contain_text("Bruno · not you?")
        second.get_by_role("button", name="Bruno · not you?").click()
        expect(second.get_by_label("Your name")).to_be_focused()
        second.keyboard.type("Zoë Ångström")
        second.keyboard.press("Enter")
        expect(second.locator(".st-key-who")).to_contain_text("Zoë Ångström · not you?")
        # A tab of somebody earlier that is drawn again does not become the name that the browser remembers.
        page.get_by_role("link", name="Labels").click()
        expect(page.locator(".ci-head h2")).to_have_text("Labels")
        serving.settled(page)
        expect(who).to_contain_text("Bruno · not you?")
        second.reload()
        expect(second.locator(".st-key-who")).to_contain_text("Zoë Ångström · not you?")
        serving.leave(page)

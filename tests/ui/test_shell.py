"""The browser's part of the app: how wide the screen is, and which field has the focus."""

from __future__ import annotations

import pytest
import streamlit as st
from desks import ASSETS, page
from playwright.sync_api import Page, expect

from cimemories.ui import shell

__all__ = ["page"]
DRAW = """async (script) => {
    document.body.innerHTML = '<div class="st-key-name"><input></div>';
    const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
    const data = { path: location.pathname, before: "", after: "", steps: 0, screen: "laptop", tops: 0 };
    (await import(url)).default({ data, setStateValue() {} });
}"""


def test_the_first_run_of_a_session_draws_for_the_screen_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    cookies: dict[str, str] = {}
    session: dict[str, str] = {}
    monkeypatch.setattr(type(st.context), "cookies", property(lambda _: cookies))
    monkeypatch.setattr(st, "session_state", session)
    assert shell.screen() == shell.WIDE, "nothing is known of the screen"
    cookies["cimemories_screen"] = shell.PHONE
    assert shell.screen() == shell.PHONE and shell.is_phone()
    session["shell.screen"] = shell.WIDE  # the window is a larger one now
    assert shell.screen() == shell.WIDE
    session.clear()
    cookies["cimemories_screen"] = "<script>"
    assert shell.screen() == shell.WIDE, "a cookie is anybody's word"


@pytest.mark.browser
def test_the_field_for_the_name_gets_the_focus_back_until_a_key_is_pressed(page: Page) -> None:
    page.evaluate(DRAW, (ASSETS / "shell.js").read_text(encoding="utf-8"))
    field = page.locator("input")
    expect(field).to_be_focused()
    page.wait_for_timeout(600)
    field.evaluate("(field) => field.parentElement.append(field)")  # a browser takes the focus from what is moved
    expect(field).to_be_focused()
    page.keyboard.press("Shift")
    field.blur()
    page.wait_for_timeout(600)
    expect(field).not_to_be_focused()


@pytest.mark.browser
def test_a_page_that_comes_after_its_query_is_one_step_of_the_history(page: Page) -> None:
    page.evaluate(DRAW, (ASSETS / "shell.js").read_text(encoding="utf-8"))
    push = "(address) => history.pushState({}, '', address)"
    before = page.url
    page.evaluate(push, "?run=1")
    page.evaluate(push, "/leaks?run=1")
    assert page.url.endswith("/leaks?run=1")
    page.go_back()
    assert page.url == before
    page.evaluate(push, "/heatmaps")
    for number, press in enumerate(
        (lambda: page.keyboard.press("Enter"), lambda: page.evaluate("document.body.click()"))
    ):
        # The user chooses something, then follows a link, by a key or a screen reader's click.
        steps = page.evaluate("history.length")
        page.evaluate(push, f"?run={number}")
        press()
        page.evaluate(push, f"/leaks{number}?run={number}")
        assert page.evaluate("history.length") == steps + 2
    page.evaluate("history.pushState({}, '')")  # no address: the page stays the same
    assert page.url.endswith("/leaks1?run=1")

"""The Link button in a real browser: its address is that of the view, whatever part of the page has changed it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from serving import leave, open_page, running_app
from two_runs import world as two_runs

from cimemories.store.engine import open_store

pytestmark = pytest.mark.browser


@pytest.mark.long
def test_the_link_follows_a_slider_that_runs_only_a_part_of_the_page(tmp_path: Path, browser: Browser) -> None:
    store = open_store(tmp_path / "workspace")
    two_runs(store)
    with running_app(store.workspace) as (address, _):
        page = open_page(browser, f"{address}/compare?tab=sensitivity")
        page.get_by_role("button", name="Compute sensitivity").click()
        slider = page.get_by_role("slider", name="Consensus threshold in percent")
        slider.focus()
        page.keyboard.press("ArrowLeft")
        expect(page).to_have_url(re.compile("threshold="))
        page.get_by_role("button", name="Link").click()
        shown = page.get_by_role("dialog").locator("code")
        expect(shown).to_have_text(page.url)
        page.keyboard.press("Escape")
        before = page.url
        slider.focus()
        page.keyboard.press("ArrowLeft")
        expect(page).not_to_have_url(before)
        page.get_by_role("button", name="Link").click()
        expect(shown).to_have_text(page.url)
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.get_by_role("button", name="Copy").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == page.url
        leave(page)

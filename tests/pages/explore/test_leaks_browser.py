"""The gallery of leaks in a real browser: keys that come fast are neither lost nor taken twice."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect
from serving import leave, open_page, running_app, settled
from worlds import add_dataset, add_labels, add_run

from cimemories.flows.flows import Flows
from cimemories.flows.labels import INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import resolve_scope
from cimemories.leaks import basket
from cimemories.leaks.examples import examples as all_examples
from cimemories.store.engine import open_store

pytestmark = pytest.mark.browser


def press(page: Page, keys: str) -> None:
    for key in keys:
        page.keyboard.press(key, delay=5)
        page.wait_for_timeout(20)


def test_fast_keys_lead_to_the_right_example_and_into_the_basket(tmp_path: Path, browser: Browser) -> None:
    store = open_store(tmp_path / "workspace")
    shape = (2, 6, 4)
    data = add_dataset(store, *shape)
    labels = np.full(shape, INAPPROPRIATE)
    labels[:, 0] = NECESSARY
    add_labels(store, data.id, labels)
    run_id = add_run(store, data.id, 3, np.random.default_rng(1).integers(1, 4, shape))
    ids = all_examples(Flows(store), [resolve_scope(store, run_id)]).page()["id"].tolist()
    assert len(ids) == 40
    with running_app(store.workspace) as (address, _):
        page = open_page(browser, f"{address}/leaks?run={run_id}")
        expect(page.locator("kbd", has_text="j")).to_be_visible()
        press(page, "jjjkaja")
        expect(page.get_by_text("4 of 40", exact=True)).to_be_visible()
        expect(page.get_by_text("Basket (2)")).to_be_visible()
        press(page, "j" * 12)
        expect(page.get_by_text("16 of 40", exact=True)).to_be_visible()
        run, attribute, context = ids[15].split(".")
        assert f"run={run}" in page.url and f"attribute={attribute}" in page.url and f"context={context}" in page.url
        page.get_by_role("button", name="Filters").click()
        page.get_by_role("combobox", name="Recipient").click()
        press(page, "jj")
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("?")
        keys = page.get_by_role("dialog", name="Keys")
        expect(keys).to_contain_text("add the example to the basket, or take it out")
        page.keyboard.press("j")  # closes the table, and leads nowhere
        expect(keys).to_be_hidden()
        page.reload()
        expect(page.get_by_text("16 of 40", exact=True)).to_be_visible()
        expect(page.get_by_text("Basket (2)")).to_be_visible()
        # A filter that leaves out the example leads to another one, and one step back to the first again.
        before, title = page.url, page.get_by_role("heading", name=" to ").inner_text()
        page.get_by_role("button", name="Filters").click()
        page.get_by_role("combobox", name="Recipient").click()
        options = page.get_by_role("option").all_inner_texts()
        other = next(text for text in options if " (" in text and text.rpartition(" (")[0] not in title)
        page.get_by_role("option", name=other).click()
        page.keyboard.press("Escape")  # the open list hides the page
        expect(page.get_by_role("heading", name=f" to {other.rpartition(' (')[0]}")).to_be_visible()
        expect(page).not_to_have_url(re.compile(rf"context={context}\b"))
        settled(page)
        page.go_back()
        expect(page.get_by_text("16 of 40", exact=True)).to_be_visible()
        expect(page).to_have_url(before)
        settled(page)
        # Not again with the next press, by what the closed list held.
        press(page, "k")
        expect(page.get_by_text("15 of 40", exact=True)).to_be_visible()
        settled(page)
        assert "recipients=" not in page.url

        # The message begins on the first screen of a small laptop, beside another one too, and of a phone.
        beside = f"{page.url}&beside={run_id}"
        for address, width, height in ((page.url, 1280, 720), (beside, 1280, 720), (page.url, 390, 844)):
            page.set_viewport_size({"width": width, "height": height})
            page.goto(address)
            settled(page)
            tops = [box["y"] for box in (item.bounding_box() for item in page.locator(".ci-message").all()) if box]
            assert len(tops) == 1 + (address == beside) and max(tops) < height - 100
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.get_by_role("radio", name="Basket").click()
        expect(page.locator(".st-key-leaks_basket")).to_be_visible()
        settled(page)
        leave(page)
    assert [item.id for item in basket.items(store, "basket")] == [ids[2], ids[3]]

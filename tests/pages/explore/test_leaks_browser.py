"""The gallery of leaks in a real browser: keys that come fast are neither lost nor taken twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect
from serving import chromium, open_page, require_chromium, running_app
from worlds import add_dataset, add_labels, add_run

from cimemories.flows.flows import Flows
from cimemories.flows.labels import INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import resolve_scope
from cimemories.leaks import basket, gallery
from cimemories.store.engine import open_store

pytestmark = pytest.mark.browser


def press(page: Page, keys: str) -> None:
    for key in keys:
        page.keyboard.press(key, delay=5)
        page.wait_for_timeout(20)


def test_fast_keys_lead_to_the_right_example_and_into_the_basket(tmp_path: Path) -> None:
    require_chromium()
    store = open_store(tmp_path / "workspace")
    shape = (2, 6, 4)
    data = add_dataset(store, *shape)
    labels = np.full(shape, INAPPROPRIATE)
    labels[:, 0] = NECESSARY
    add_labels(store, data.id, labels)
    run_id = add_run(store, data.id, 3, np.random.default_rng(1).integers(1, 4, shape))
    ids = gallery.gallery(Flows(store), [resolve_scope(store, run_id)])["id"].tolist()
    assert len(ids) == 40
    with running_app(store.workspace) as (address, _), chromium() as browser:
        page = open_page(browser, f"{address}/leaks?run={run_id}")
        expect(page.locator("kbd", has_text="j")).to_be_visible()
        press(page, "jjjksjs")
        expect(page.get_by_text("4 of 40", exact=True)).to_be_visible()
        expect(page.get_by_text("Basket (2)")).to_be_visible()
        press(page, "j" * 12)
        expect(page.get_by_text("16 of 40", exact=True)).to_be_visible()
        run, attribute, context = ids[15].split(".")
        assert f"run={run}" in page.url and f"attribute={attribute}" in page.url and f"context={context}" in page.url
        page.get_by_role("combobox", name="Recipient").click()
        press(page, "jj")
        page.keyboard.press("Escape")
        page.reload()
        expect(page.get_by_text("16 of 40", exact=True)).to_be_visible()
        expect(page.get_by_text("Basket (2)")).to_be_visible()
    assert [item.id for item in basket.items(store, "basket")] == [ids[2], ids[3]]

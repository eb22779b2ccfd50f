"""A component of `cimemories/ui/assets` alone in Chromium: without a server; messages come when a test sends them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import serving
import streamlit as st
from playwright.sync_api import Browser, Page

from cimemories.ui import ASSETS, workbench

# Plain http and not localhost: a browser takes it for no secure context, as it does an address of a local network.
ADDRESS = "http://desk.example/review"
MOUNT = """async ([name, html, script]) => {
    const module = await import(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
    const parts = (window.components ??= {});
    parts[name] = () => {
        const parentElement = document.body.appendChild(document.createElement("main"));
        parentElement.innerHTML = html;
        const sent = [];
        const setValue = (_, value) => sent.push(JSON.parse(JSON.stringify(value)));
        const values = { setStateValue: setValue, setTriggerValue: setValue };
        let unmount = () => {};
        return {
            root: parentElement,
            sent,
            receive: (data) => {
                unmount = module.default({ parentElement, data: structuredClone(data), ...values }) ?? unmount;
            },
            remove: () => { unmount(); parentElement.remove(); },
        };
    };
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with serving.chromium() as opened:
        yield opened


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page at ADDRESS, in a browser context of its own."""
    context = browser.new_context(viewport={"width": 1000, "height": 800})
    context.route("**/*", lambda route: route.fulfill(content_type="text/html", body="<!doctype html><body></body>"))
    opened = context.new_page()
    opened.goto(ADDRESS)
    yield opened
    context.close()


def mount(page: Page, name: str, *scripts: str) -> None:
    """Load the component made of these assets: `components[name]()` in the page puts it in."""
    html = (ASSETS / f"{name}.html").read_text(encoding="utf-8")
    script = "".join((ASSETS / f"{part}.js").read_text(encoding="utf-8") for part in (*scripts, name))
    page.evaluate(MOUNT, [name, html, script])


@contextmanager
def drawing(monkeypatch: pytest.MonkeyPatch, module: Any, name: str = "_component") -> Iterator[dict[str, Any]]:
    """Draw without Streamlit: what the module's component is drawn with is in the answer, once it is."""
    data: dict[str, Any] = {}
    with monkeypatch.context() as patch:
        patch.setattr(st, "session_state", {})
        patch.setattr(module, name, lambda **given: data.update(given["data"]))
        yield data


def queue_data(monkeypatch: pytest.MonkeyPatch, cards: list[str], **settings: Any) -> dict[str, Any]:
    """What the server sends a queue of these cards, as `workbench.draw` writes it."""
    items = [workbench.Card(id=card, title=f"Statement {card}", facts=[]) for card in cards]
    given: dict[str, Any] = {
        "key": "review",
        "session": "one",
        "owner": "ada",
        "keys": [workbench.Key("n", "necessary", "N", "green"), workbench.Key("i", "inappropriate", "X", "red")],
        "blind": True,
        "done": 0,
        "total": len(cards),
    }
    with drawing(monkeypatch, workbench) as data:
        workbench.draw(items, **{**given, **settings})
    return data

"""A component of `cimemories/ui/assets` alone in Chromium: without a server; messages come when a test sends them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import streamlit as st
from playwright.sync_api import Browser, Locator, Page, expect

from cimemories.desk.protocol import Card, Message, Reply
from cimemories.ui import ASSETS, desk, matrix, url
from cimemories.ui.desk import Key

# Plain http and not localhost: a browser takes it for no secure context, as it does an address of a local network.
ADDRESS = "http://desk.example/review"
QUEUE, GRID = ("leaving", "outbox", "keys", "desk_card"), ("leaving", "outbox", "keys", "deciding")
KEYS = [
    Key("n", "necessary", "N", "green", "The task needs it."),
    Key("i", "inappropriate", "I", "red"),
    Key("u", "ambiguous", "U", "yellow"),
]
GLYPHS = {key.says: key.glyph for key in KEYS}
# The component, as Streamlit puts it in, and in the place of the server a list of what is posted, answered by tests.
MOUNT = """async ([name, html, script]) => {
    const module = await import(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
    if (!window.posts) {
        window.posts = [];
        window.fetch = (url, { body }) => new Promise((resolve, reject) => {
            posts.push({ ...JSON.parse(body), url, resolve, reject, waits: true });
        });
        window.rest = async () => { for (let n = 0; n < 40; n += 1) await null; };
        window.waiting = () => posts.find(({ waits }) => waits);
        window.answer = async (reply, post = waiting()) => {
            if (!post) return false;
            post.waits = false;
            if (reply) post.resolve({ json: async () => structuredClone(reply) });
            else post.reject(new TypeError("away"));
            await rest();
            return true;
        };
    }
    const parts = (window.components ??= {});
    parts[name] = () => {
        const place = document.body.appendChild(document.createElement("main"));
        const parentElement = place.attachShadow({ mode: "open" });
        parentElement.appendChild(document.createElement("div")).innerHTML = html;
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
            remove: () => { unmount(); place.remove(); },
        };
    };
}"""
EVENTS = "posts.map(({ events, at, place, url, blind, looks }) => ({ events, at, place, url, blind, looks }))"


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page at ADDRESS, in a browser context of its own."""
    context = browser.new_context(viewport={"width": 1000, "height": 800})
    context.route("**/*", lambda route: route.fulfill(content_type="text/html", body="<!doctype html><body></body>"))
    opened = context.new_page()
    opened.goto(ADDRESS)
    yield opened
    context.close()


def stop_clock(page: Page) -> None:
    """Let the time of the page pass by `page.clock.run_for` alone, however slow the machine is."""
    page.clock.install(time=0)
    page.clock.pause_at(1_000)


def mount(page: Page, name: str, *scripts: str) -> None:
    """Load the component made of these assets: `components[name]()` in the page puts it in."""
    parts = ("dom", *scripts, name)
    styles = [ASSETS / f"{part}.css" for part in parts]
    style = "".join(path.read_text(encoding="utf-8") for path in styles if path.exists())
    html = f"<style>{style}</style>" + (ASSETS / f"{name}.html").read_text(encoding="utf-8")
    script = "".join((ASSETS / f"{part}.js").read_text(encoding="utf-8") for part in parts)
    page.evaluate(MOUNT, [name, html, script])


@contextmanager
def drawing(monkeypatch: pytest.MonkeyPatch, module: Any, name: str = "_component") -> Iterator[dict[str, Any]]:
    """Draw without Streamlit: what the module's component is drawn with is in the answer, once it is."""
    data: dict[str, Any] = {}
    with monkeypatch.context() as patch:
        patch.setattr(st, "session_state", {})
        for drawn in (desk, matrix):
            patch.setattr(drawn, "address_of", lambda *_: "desk/one")
        patch.setattr(url, "leave_to_component", lambda *_: None)
        patch.setattr(module, name, lambda **given: data.update(given["data"]))
        yield data


class FakeDesk:
    """A desk that is drawn and never asked."""

    owner = "ada"

    def answer(self, message: Message) -> Reply:
        raise NotImplementedError


def queue_data(monkeypatch: pytest.MonkeyPatch, cards: Sequence[str | Card], **settings: Any) -> dict[str, Any]:
    """What a page sends a queue, as `desk.draw` writes it, and beside it the cards that its desk has."""
    items = [Card(id=card, title=f"Statement {card}", facts=[]) if isinstance(card, str) else card for card in cards]
    with drawing(monkeypatch, desk) as data:
        desk.draw(FakeDesk(), "one", **{"key": "review", "keys": KEYS, **settings})
    return {**data, "cards": [item.as_json() for item in items]}


def matrix_data(
    monkeypatch: pytest.MonkeyPatch, rows: Sequence[str], columns: Sequence[str], cells: str = "", **settings: Any
) -> dict[str, Any]:
    """What the server sends a matrix with these texts of attributes and contexts, whose ids are 100 and 1 onwards."""
    size = len(rows) * len(columns)
    counts = (0, 0, len(columns))
    drawn = {
        "title": "Pairs",
        "rows": [
            {"id": 100 + i, "key": f"fact_{i}", "statement": text, "counts": counts} for i, text in enumerate(rows)
        ],
        "columns": [
            {"id": 1 + j, "recipient": text, "task": f"Task {text}", "counts": counts, "retained": True}
            for j, text in enumerate(columns)
        ],
        "blocks": [{"name": "finance", "note": "", "start": 0, "end": len(rows), "counts": counts}],
        "spheres": [{"name": "", "note": "", "start": 0, "end": len(columns), "counts": counts}],
        "cells": cells or "U" * size,
        "consensus": cells or "U" * size,
        "decided": "0" * size,
        "matched": settings.pop("matched", "1" * size),
        "above": 100,
    }
    given = {"key": "matrix", "cursor": (100, 1), "deciding": matrix.Deciding(KEYS, FakeDesk()), **settings}
    with drawing(monkeypatch, matrix) as data:
        matrix.matrix(drawn, **given)
    return data


def list_data(monkeypatch: pytest.MonkeyPatch, rows: Sequence[matrix.Listed], **settings: Any) -> dict[str, Any]:
    """What the server sends a list of these pairs of context 1: a row has the name and the domain of its attribute."""
    columns = [("Attribute", "name"), ("Label", "plain"), ("Domain", "plain")]
    deciding = matrix.Deciding(KEYS, FakeDesk())
    given = {"label": 1, "key": "list", "context": 1, "cursor": rows[0].id, "deciding": deciding, **settings}
    with drawing(monkeypatch, matrix, "_list_component") as data:
        matrix.pair_list("Pairs", columns, rows, **given)
    return data


class Desk:
    """A component alone in a page, and the server behind it, which answers when a test says so.

    recorded: the events that the server has recorded, by uid, in their order; two tabs may share it.
    """

    scripts: tuple[str, ...]

    def __init__(
        self, page: Page, name: str, data: dict[str, Any], recorded: dict[str, dict[str, Any]] | None = None
    ) -> None:
        self.page, self.name, self.data = page, name, data
        self.recorded = {} if recorded is None else recorded
        self.load()

    def load(self) -> None:
        """The page is there, and has the script."""
        mount(self.page, self.name, *self.scripts)

    def draw(self, **changes: Any) -> None:
        """The page draws the component."""
        script = "([name, data]) => { window.desk ??= components[name](); desk.receive(data); return rest(); }"
        self.page.evaluate(script, [self.name, {**self.data, **changes}])

    def open(self, **changes: Any) -> None:
        """The component is drawn for the first time, and the server answers."""
        self.page.evaluate("() => { window.desk = undefined; }")
        self.draw()

    def close(self) -> None:
        """The person has gone to another page of the app."""
        self.page.evaluate("desk.remove()")

    def press(self, keys: str | list[str]) -> None:
        """Press keys, of one letter each or by their names."""
        for key in keys:
            self.page.keyboard.press(key)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What was posted to the server, in its order."""
        return list(self.page.evaluate(EVENTS))

    @property
    def sent(self) -> list[dict[str, Any]]:
        """The events of the last message."""
        return list(self.messages[-1]["events"]) if self.messages else []

    @property
    def asked(self) -> list[str]:
        """What the page was asked for, in its order."""
        said = self.page.evaluate("desk.sent.filter((value) => typeof value === 'string')")
        return [value.rpartition(" ")[0] for value in said]

    def answer(self, **changes: Any) -> bool:
        """The server records what it was posted and says what there is now; False if it was posted nothing."""
        events = self.page.evaluate("waiting()?.events ?? []")
        for event in events:
            self.recorded.setdefault(event["uid"], event)
        reply = self.reply([event["uid"] for event in events], changes)
        return bool(self.page.evaluate("(reply) => answer(reply)", reply))

    def fail(self) -> None:
        """The server is away."""
        self.page.evaluate("answer(null)")

    def save(self) -> None:
        """The server answers until nothing is left to be saved."""
        for _ in range(9):
            if not self.answer():
                break
        expect(self.saved).to_have_text("all saved")

    @property
    def standing(self) -> dict[str, str]:
        """What the record says of each card: the answer, or skip or flag."""
        undone = {event["of"] for event in self.recorded.values() if event["kind"] == "undo"}
        kept = [event for event in self.recorded.values() if event["uid"] not in undone]
        return {
            event["card"]: event["says"] or event["kind"] for event in kept if event["kind"] in ("say", "skip", "flag")
        }

    def reply(self, recorded: list[str], changes: dict[str, Any]) -> dict[str, Any]:
        """What the server answers."""
        return {**Reply(recorded).as_json(), **changes}

    @property
    def saved(self) -> Locator:
        """Where it says how much is not saved."""
        raise NotImplementedError


class Queue(Desk):
    """A queue. ahead: how many cards the server sends at once."""

    scripts = QUEUE

    def __init__(
        self, page: Page, data: dict[str, Any], *, recorded: dict[str, dict[str, Any]] | None = None, ahead: int = 10
    ) -> None:
        self.cards = data.pop("cards")
        self.ahead = ahead
        super().__init__(page, "desk", data, recorded)

    def open(self, **changes: Any) -> None:
        super().open()
        self.page.wait_for_function("waiting()", polling=10)
        self.answer(**changes)

    def reply(self, recorded: list[str], changes: dict[str, Any]) -> dict[str, Any]:
        standing = self.standing
        answered = {card for card, word in standing.items() if word not in ("skip", "flag")}
        cards = [card for card in self.cards if card["id"] not in answered]
        cards.sort(key=lambda card: card["id"] in standing)  # what was skipped comes last
        done = len({card["id"] for card in self.cards} & answered)
        now = {"cards": cards[: self.ahead], "done": done, "total": len(self.cards)}
        return super().reply(recorded, {**now, **changes})

    @property
    def card(self) -> str:
        """The id of the card in sight."""
        return self.box.get_attribute("data-card") or ""

    @property
    def box(self) -> Locator:
        return self.page.locator(".bench .card")

    @property
    def saved(self) -> Locator:
        return self.page.locator(".bench .saved")

    @property
    def progress(self) -> Locator:
        return self.page.locator(".bench .progress")


class Grid(Desk):
    """A matrix, or a list of the pairs of one context."""

    scripts = GRID

    def load(self) -> None:
        mount(self.page, self.name, *GRID, *(["matrix_drawing"] if self.name == "matrix" else []))

    def open(self, **changes: Any) -> None:
        super().open()
        self.page.get_by_role("grid").focus()

    def draw(self, **changes: Any) -> None:
        """The page draws what the record has, and names the cursor that it was told."""
        data: dict[str, Any] = {**self.data, "moves": 0, "version": len(self.recorded)}
        if self.places:
            place = self.places[-1]
            cursor = [place["attribute"], place["context"]] if self.name == "matrix" else place["attribute"]
            data |= {"moves": place["moves"], "cursor": cursor}
        if self.name == "pair_list":
            data["rows"] = [{**row, **self._decision(row["id"])} for row in data["rows"]]
        super().draw(**{**data, **changes})

    def reply(self, recorded: list[str], changes: dict[str, Any]) -> dict[str, Any]:
        return super().reply(recorded, {"version": len(self.recorded), **changes})

    def _decision(self, attribute: int) -> dict[str, str]:
        """What the row of a list says of a decision in the record; {} where there is none."""
        word = self.standing.get(f"{attribute}.{self.data['context']}")
        return {"glyph": GLYPHS[word], "word": word, "by": "decided by Ada"} if word else {}

    @property
    def places(self) -> list[dict[str, Any]]:
        """The pairs of which the server was told, in their order."""
        return list(self.page.evaluate("window.desk?.sent.filter((value) => value.moves) ?? []"))

    @property
    def spoken(self) -> str:
        """What the active cell of a matrix says to those who do not see it."""
        name = self.page.get_by_role("grid").get_attribute("aria-activedescendant")
        return self.page.locator(f"#{name}").inner_text()

    @property
    def row(self) -> Locator:
        """The row of a list that the person is at."""
        return self.page.locator("tr[aria-selected=true]")

    @property
    def saved(self) -> Locator:
        return self.page.locator(".state")

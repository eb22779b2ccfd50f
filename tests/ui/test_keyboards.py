"""Keyboards whose layout has no Latin letters: the key at the place of the letter does what the letter does."""

from __future__ import annotations

from typing import Any

import pytest
from desks import browser, drawing, mount, page, queue_data
from playwright.sync_api import Page, expect

from cimemories.ui import matrix, presses, workbench

__all__ = ["browser", "page"]
pytestmark = pytest.mark.browser
ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm", "1234")
LAYOUTS = {
    "English": ROWS,
    "capitals": ("QWERTYUIOP", "ASDFGHJKL", "ZXCVBNM", "1234"),
    "Russian": ("йцукенгшщз", "фывапролд", "ячсмить", "1234"),
    "Greek": (";ςερτυθιοπ", "ασδφγηξκλ", "ζχψωβνμ", "1234"),
    "Hebrew": ("/'קראטוןםפ", "שדגכעיחלך", "זסבהנמצ", "1234"),
    "Arabic": ("ضصثقفغعهخح", "شسيبلاتنم", ["ئ", "ء", "ؤ", "ر", "لا", "ى", "ة"], "١٢٣٤"),
}
PRESS = """([letters, keys]) => {
    for (const latin of keys) {
        const code = latin === "?" ? "Slash" : `${/[a-z]/.test(latin) ? "Key" : "Digit"}${latin.toUpperCase()}`;
        const init = { key: letters[latin], code, bubbles: true, composed: true, cancelable: true };
        document.activeElement.dispatchEvent(new KeyboardEvent("keydown", init));
    }
}"""
DECIDING = [workbench.Key("n", "necessary", "N", "green"), workbench.Key("i", "inappropriate", "X", "red")]


@pytest.fixture(params=list(LAYOUTS))
def letters(request: pytest.FixtureRequest) -> dict[str, str]:
    """What the layout has at the place of each Latin letter."""
    rows = zip(ROWS, LAYOUTS[request.param], strict=True)
    question = "؟" if request.param == "Arabic" else "?"
    return {"?": question, **{latin: key for row in rows for latin, key in zip(*row, strict=True)}}


def show(page: Page, name: str, data: dict[str, Any], *scripts: str) -> None:
    mount(page, name, "leaving", "uid", *scripts)
    page.evaluate("([name, data]) => { window.desk = components[name](); desk.receive(data); }", [name, data])


def test_the_queue(page: Page, monkeypatch: pytest.MonkeyPatch, letters: dict[str, str]) -> None:
    causes = [(str(n), f"cause {n}") for n in range(1, 5)]
    data = queue_data(monkeypatch, [f"{n}.1" for n in range(1, 8)], causes=causes, actions="rszkjcb?")
    show(page, "workbench", data, "unsaved", "keys")
    card = page.locator(".bench .card")
    for keys, at in (("n1", "2.1"), ("4i", "3.1"), ("s", "4.1"), ("k", "3.1"), ("j", "4.1"), ("z", "3.1")):
        page.evaluate(PRESS, [letters, keys])
        expect(card).to_have_attribute("data-card", at)
    page.evaluate(PRESS, [letters, "b"])
    expect(page.locator("[data-key=b]")).to_have_attribute("aria-pressed", "false")
    page.evaluate(PRESS, [letters, "?"])
    expect(page.locator(".help")).to_be_visible()
    page.evaluate(PRESS, [letters, "?c"])
    expect(page.get_by_label("Comment on this item")).to_be_focused()


def test_keys_that_the_page_answers(page: Page, monkeypatch: pytest.MonkeyPatch, letters: dict[str, str]) -> None:
    keys = [key for key in presses.KEYS if key != "?"]
    with drawing(monkeypatch, presses) as data:
        presses.draw(keys, key="leaks.press")
    show(page, "presses", data, "keys")
    page.evaluate(PRESS, [letters, keys])
    assert page.evaluate("desk.sent.at(-1).presses.map(({ key }) => key)") == keys
    page.evaluate(PRESS, [letters, "?"])
    expect(page.locator(".table-of-keys")).to_be_visible()


def test_the_list_of_pairs(page: Page, monkeypatch: pytest.MonkeyPatch, letters: dict[str, str]) -> None:
    rows = [matrix.Listed(number, [f"fact {number}", ""], "?", "ambiguous", "") for number in range(3)]
    columns = [("Attribute", "name"), ("Label", "plain")]
    with drawing(monkeypatch, matrix, "_list_component") as data:
        matrix.pair_list("Pairs", columns, rows, label=1, key="list", context=7, cursor=0, keys=DECIDING, owner="ada")
    show(page, "pair_list", data, "unsaved", "keys", "deciding")
    page.get_by_role("grid").focus()
    page.evaluate(PRESS, [letters, "njizjk"])
    shown = page.locator("tbody tr")
    expect(shown.nth(0)).to_contain_text("necessary")
    expect(shown.nth(1)).to_have_attribute("aria-selected", "true")
    events = page.evaluate("desk.sent.flatMap(({ events }) => events ?? [])")
    assert [(event["card"], event["says"]) for event in events[:1]] == [("0.7", "necessary")]
    expect(page.locator(".state")).to_have_text("3 not saved yet")
    page.evaluate(PRESS, [letters, "?"])
    expect(page.locator(".table-of-keys")).to_be_visible()


def test_the_matrix(page: Page, monkeypatch: pytest.MonkeyPatch, letters: dict[str, str]) -> None:
    counts = (0, 0, 1)
    row = matrix.Row(1, "rent", "My rent is $1,450.", counts)
    column = matrix.Column(7, "Landlord", "Renew the lease", counts, retained=True, discarded=False)
    spans = [matrix.Span("finance", "", 0, 1, counts)]
    drawn = matrix.Drawing("Pairs", [row], [column], spans, spans, "?", "?", "0", "1", 100)
    with drawing(monkeypatch, matrix) as data:
        matrix.matrix(drawn, key="matrix", cursor=(1, 7), keys=DECIDING, owner="ada")
    show(page, "matrix", data, "unsaved", "keys", "deciding", "matrix_drawing")
    page.get_by_role("grid").focus()
    page.evaluate(PRESS, [letters, "i"])
    expect(page.locator(".matrix")).to_contain_text("X inappropriate, decided by a person")

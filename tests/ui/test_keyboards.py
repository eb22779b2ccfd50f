"""Keyboards whose layout has no Latin letters: the key at the place of the letter does what the letter does."""

from __future__ import annotations

import pytest
from desks import Grid, Queue, drawing, list_data, matrix_data, mount, page, queue_data
from playwright.sync_api import Page, expect

from cimemories.ui import matrix, presses

__all__ = ["page"]
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
        let focused = document.activeElement;
        while (focused.shadowRoot?.activeElement) focused = focused.shadowRoot.activeElement;
        const code = latin === "?" ? "Slash" : `${/[a-z]/.test(latin) ? "Key" : "Digit"}${latin.toUpperCase()}`;
        const init = { key: letters[latin], code, bubbles: true, composed: true, cancelable: true };
        focused.dispatchEvent(new KeyboardEvent("keydown", init));
    }
}"""


def letters(layout: str) -> dict[str, str]:
    """What the layout has at the place of each Latin letter."""
    rows = zip(ROWS, LAYOUTS[layout], strict=True)
    question = "؟" if layout == "Arabic" else "?"
    return {"?": question, **{latin: key for row in rows for latin, key in zip(*row, strict=True)}}


ARABIC = letters("Arabic")  # of digits and question mark too: what the other components understand, they do of all


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_queue(page: Page, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    places = letters(layout)
    causes = [(str(n), f"cause {n}") for n in range(1, 5)]
    data = queue_data(monkeypatch, [f"{n}.1" for n in range(1, 8)], causes=causes, actions="rszkjcb?")
    queue = Queue(page, data)
    queue.open()
    for keys, at in (("n1", "2.1"), ("4i", "3.1"), ("s", "4.1"), ("k", "3.1"), ("j", "4.1"), ("z", "3.1")):
        page.evaluate(PRESS, [places, keys])
        assert queue.card == at
    page.evaluate(PRESS, [places, "b"])
    expect(page.locator("[data-key=b]")).to_have_attribute("aria-pressed", "false")
    page.evaluate(PRESS, [places, "?"])
    expect(page.locator(".help")).to_be_visible()
    page.evaluate(PRESS, [places, "?c"])
    expect(page.get_by_label("Comment on this item")).to_be_focused()


def test_keys_that_the_page_answers(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [key for key in presses.KEYS if key != "?"]
    with drawing(monkeypatch, presses) as data:
        presses.draw(keys, key="leaks.press")
    mount(page, "presses", "leaving", "keys")
    page.evaluate("(data) => { window.desk = components.presses(); desk.receive(data); }", data)
    page.evaluate(PRESS, [ARABIC, keys])
    assert page.evaluate("desk.sent.at(-1).presses.map(({ key }) => key)") == keys
    page.evaluate(PRESS, [ARABIC, "?"])
    expect(page.locator(".table-of-keys")).to_be_visible()


def test_the_list_of_pairs(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [matrix.Listed(number, [f"fact {number}", "", ""], "U", "ambiguous", "") for number in range(3)]
    grid = Grid(page, "pair_list", list_data(monkeypatch, rows))
    grid.open()
    page.evaluate(PRESS, [ARABIC, "njizjk"])
    shown = page.locator("tbody tr")
    expect(shown.nth(0)).to_contain_text("necessary")
    expect(shown.nth(1)).to_have_attribute("aria-selected", "true")
    assert [(event["card"], event["says"]) for event in grid.sent] == [("0.1", "necessary")]
    expect(grid.saved).to_have_text("3 not saved yet")
    page.evaluate(PRESS, [ARABIC, "?"])
    expect(page.locator(".table-of-keys")).to_be_visible()


def test_the_matrix(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Grid(page, "matrix", matrix_data(monkeypatch, ["My rent is $1,450."], ["Landlord"]))
    grid.open()
    page.evaluate(PRESS, [ARABIC, "i"])
    assert grid.spoken.startswith("I inappropriate, decided by a person")


def test_a_person_gives_keys_other_places(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(page, queue_data(monkeypatch, ["1.1", "2.1", "3.1"]))
    queue.open()
    queue.press("?")
    page.get_by_label("Key: N necessary").press("s")
    expect(page.locator(".keys kbd")).to_have_text(["s", "i", "u", "n", *"fzkjc"])
    queue.press("?sn")
    queue.save()
    assert queue.standing == {"1.1": "necessary", "2.1": "skip"}

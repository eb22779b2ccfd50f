"""The browser's storage blocked or full: what is decided is kept as long as the tab is open, and the screen says so."""

from __future__ import annotations

import pytest
from desks import mount, page, queue_data
from playwright.sync_api import Dialog, Page, expect

__all__ = ["page"]
pytestmark = pytest.mark.browser
DENIED = '() => { throw new DOMException("denied", "SecurityError"); }'
BLOCKED = {
    "reading": f"""Object.defineProperty(window, "localStorage", {{ get: {DENIED} }});
        Object.defineProperty(window, "sessionStorage", {{ get: {DENIED} }});
        navigator.locks.request = async {DENIED};""",
    "locks": f"navigator.locks.request = async {DENIED};",
    "writing": f"Storage.prototype.setItem = {DENIED};",
    "full": "for (let n = 0, text = 'x'.repeat(1 << 20); text; n += 1) {\n"
    "try { localStorage.setItem(`full.${n}`, text); } catch { text = text.slice(text.length / 2 + 1); }\n}",
}
CONFIRM = """({ cards, ...data }) => {
    const confirmed = desk.sent.flatMap(({ events }) => events.map(({ uid }) => uid));
    desk.receive({ ...data, cards, done: confirmed.length, confirmed });
}"""


@pytest.mark.parametrize("kind", list(BLOCKED))
def test_the_queue_works_from_memory_and_asks_before_its_tab_is_closed(
    page: Page, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    page.goto("http://localhost/review")  # it has locks, too
    page.evaluate(f"() => {{ {BLOCKED[kind]} }}")
    mount(page, "workbench", "leaving", "uid", "unsaved", "keys")
    data = queue_data(monkeypatch, ["1.1", "2.1", "3.1"], batch=10)
    saved, progress = page.locator(".saved"), page.locator(".progress")
    page.evaluate("(data) => { window.desk = components.workbench(); desk.receive({ ...data, cards: [] }); }", data)
    expect(saved).to_have_text("")
    page.wait_for_function("desk.sent.some(({ place }) => place)")
    page.evaluate(CONFIRM, data)
    expect(saved).to_have_text("all saved")
    for key in "ni":
        page.keyboard.press(key)
    kept = kind == "locks"
    expect(saved).to_have_text("2 not saved yet" if kept else "2 not saved yet: keep this tab open")
    expect(progress).to_contain_text("Batch of 3: 2 done")
    asked: list[str] = []

    def stay(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.dismiss()

    page.on("dialog", stay)
    if not kept:
        with page.expect_event("dialog"):
            page.close(run_before_unload=True)
        assert asked == ["beforeunload"]
    page.evaluate(CONFIRM, data)
    page.wait_for_function("desk.sent.some(({ events }) => events.some(({ card }) => card === '2.1'))")
    page.evaluate(CONFIRM, data)
    expect(saved).to_have_text("all saved")
    page.goto("http://localhost/elsewhere")  # nothing is asked now
    assert len(asked) == (0 if kept else 1)

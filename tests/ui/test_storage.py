"""The browser's storage blocked or full: what is decided is kept as long as the tab is open, and the screen says so."""

from __future__ import annotations

import pytest
from desks import QUEUE, mount, page, queue_data
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
CONFIRM = """(cards) => {
    const events = posts.flatMap((post) => post.events);
    const done = new Set(events.map(({ card }) => card)).size;
    const recorded = waiting()?.events.map(({ uid }) => uid);
    return answer({ recorded, refused: [], cards, done, total: cards.length, summary: [], aside: [], start: null });
}"""


@pytest.mark.parametrize("kind", list(BLOCKED))
def test_the_queue_works_from_memory_and_asks_before_its_tab_is_closed(
    page: Page, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    page.goto("http://localhost/review")  # it has locks, too
    page.evaluate(f"() => {{ {BLOCKED[kind]} }}")
    mount(page, "desk", *QUEUE)
    data = queue_data(monkeypatch, ["1.1", "2.1", "3.1"], batch=10)
    saved, progress = page.locator(".saved"), page.locator(".progress")
    cards = data.pop("cards")
    page.evaluate("(data) => { window.desk = components.desk(); desk.receive(data); }", data)
    expect(saved).to_have_text("")
    page.wait_for_function("waiting()?.place")
    page.evaluate(CONFIRM, cards)
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
    while page.evaluate(CONFIRM, cards):
        pass
    expect(saved).to_have_text("all saved")
    page.goto("http://localhost/elsewhere")  # nothing is asked now
    assert len(asked) == (0 if kept else 1)

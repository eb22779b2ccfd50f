"""Over plain http at an address of a local network browsers lack what only a secure context has."""

from __future__ import annotations

import pytest
from desks import Queue, page, queue_data
from playwright.sync_api import Page

from cimemories.ui import ASSETS

__all__ = ["page"]
pytestmark = pytest.mark.browser
SECURE_ONLY = ("crypto.randomUUID", "crypto.subtle", "caches.", "navigator.serviceWorker", "navigator.storage")


def test_the_queue_takes_answers(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    assert page.evaluate("isSecureContext") is False
    queue = Queue(page, queue_data(monkeypatch, ["1.1", "2.1", "3.1"]))
    queue.open()
    queue.press("n")
    (event,) = queue.sent
    assert (event["card"], event["says"], len(event["uid"])) == ("1.1", "necessary", 32)


def test_no_script_asks_for_what_a_secure_context_alone_has() -> None:
    for path in ASSETS.glob("*.js"):
        script = "\n".join(line.partition("//")[0] for line in path.read_text(encoding="utf-8").splitlines())
        assert not [name for name in SECURE_ONLY if name in script], path.name

"""The app as a user starts it, and a browser to look at it with."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from conftest import SHELL
from forked import Forked
from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# A test's page is gone before code that is compiled once more, to run faster, has paid for it: a tenth less.
COMPILED_ONCE = "--js-flags=--no-turbofan --no-maglev"
START_SECONDS = 120
TICKS = os.sysconf("SC_CLK_TCK") / 1000  # of the processor's clock, in a millisecond
LOOK_MS = 120_000  # only a hang gets there: with several browsers at once 30 s were too few
POLICY = "Content Security Policy"
_kept: dict[Browser, BrowserContext] = {}  # of each browser, the context that one test after the other has to itself
_usual = 0  # the port of the app before
# What a page tried to load that the app's policy forbids, and what it asked of the internet: nothing in any test.
_forbidden: list[str] = []
OWN = ("data:", "blob:", "file:", "http://localhost:", "http://127.0.0.1:")
expect.set_options(timeout=LOOK_MS)  # it would wait 5 s


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def usual_port() -> int:
    """The port of the app before, where it is free again: a browser then has the app's scripts compiled already."""
    global _usual
    with suppress(OSError), socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that have ended keep it for a minute
        probe.bind(("127.0.0.1", _usual))
        _usual = int(probe.getsockname()[1])
        return _usual
    return free_port()


@contextmanager
def running_app(workspace: Path, *options: str, port: int | None = None) -> Iterator[tuple[str, Forked]]:
    """`cimemories app` on a free port; yields its address and process once it answers."""
    port = port or usual_port()
    environment = {**os.environ, "CIMEMORIES_WORKSPACE": str(workspace)}
    log = workspace.parent / f"app-{port}.log"
    with log.open("wb") as output:
        process = Forked(environment, "app", "--port", port, "-w", workspace, *options, output=output)
    try:
        wait(f"http://localhost:{port}/_stcore/health", process, log)
        yield f"http://localhost:{port}", process
    finally:
        process.terminate()
        process.wait(timeout=60)


def wait(address: str, process: Forked | subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(address, timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the app did not start: {log.read_text(errors='replace')[-2000:]}")


def require_chromium() -> str:
    """The path of Chromium, best of the one without windows: it takes a quarter less of the processor for a page. Skips
    where neither is installed."""
    path = str(SHELL) if SHELL.exists() else shutil.which("chromium")
    if path is None:
        pytest.skip("no Chromium here; on Debian: apt-get install chromium-headless-shell")
    return path


@contextmanager
def chromium(*flags: str) -> Iterator[Browser]:
    """Debian's Chromium, headless. flags: beside FLAGS."""
    path = require_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*FLAGS, *flags])
        yield browser
        close_contexts(browser)
        browser.close()


def close_contexts(browser: Browser) -> None:
    """Close what a test has left open, but for the context that is used again, and look what its pages asked for."""
    for context in browser.contexts:
        if context is not _kept.get(browser):
            context.close()
        for page in context.pages:
            page.close()
    forbidden = _forbidden.copy()
    _forbidden.clear()
    assert not forbidden, "\n".join(forbidden)


def new_context(browser: Browser, **options: Any) -> BrowserContext:
    """A context whose pages draw without transitions and animations, and tell whether they are at rest (`settled`)."""
    context = browser.new_context(reduced_motion="reduce", **options)
    context.add_init_script(WATCHED)
    context.on("request", lambda request: request.url.startswith(OWN) or _forbidden.append(request.url))
    context.on("console", lambda message: _forbidden.append(message.text) if POLICY in message.text else None)
    return context


def open_page(
    browser: Browser, address: str, *, size: tuple[int, int] = (1440, 1000), script: str = "", drawn: str = ".ci-head"
) -> Page:
    """A page of the app, drawn to its head, of somebody whom the browser does not know. script: run in it before its
    own; drawn: what is there once it is drawn.

    A context that `leave` has emptied is used again, its storage cleared: it has the app's scripts compiled, which a
    new one would do anew at every first page (2.7 s of the processor instead of 0.8).
    """
    context = _kept.get(browser)
    if context is None or context.pages:
        context = new_context(browser)
        _kept.setdefault(browser, context)
        page = context.new_page()
    else:
        context.clear_cookies()
        context.clear_permissions()
        page = context.new_page()
        page.goto(urljoin(address, "/_stcore/health"))
        page.evaluate("() => localStorage.clear()")
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.set_default_timeout(LOOK_MS)
    if script:
        page.add_init_script(script)
    page.goto(address)
    page.wait_for_selector(drawn)
    return page


def leave(page: Page) -> None:
    """Close the page and the other tabs of its browser context."""
    context = page.context
    if context in _kept.values():
        for tab in context.pages:
            tab.close()
    else:
        context.close()


class Finger:
    """A finger on a page, which is that of a touch screen from then on."""

    def __init__(self, page: Page) -> None:
        self._page, self._session = page, page.context.new_cdp_session(page)
        self._session.send("Emulation.setTouchEmulationEnabled", {"enabled": True})

    def tap(self, x: float, y: float) -> None:
        """A tap takes 50 to 100 ms."""
        self._session.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
        self._page.wait_for_timeout(50)
        self._session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


# Nothing runs or is to be drawn, the script of the shell is there, no message is without an answer, and the browser has
# had a moment with nothing to do since.
SETTLED = """(unanswered) => {
    const rests = document.querySelector(".stApp")?.dataset.testScriptState === "notRunning"
        && !document.querySelector('[data-testid="stStatusWidget"], [data-stale="true"]')
        && (document.documentElement.dataset.tables || !document.querySelector(".st-key-shell"))
        && (!(window.sentAt > window.answeredAt) || performance.now() - window.sentAt > unanswered);
    const idle = rests && window.idle;
    window.idle = false;
    if (rests && !idle) requestIdleCallback(() => (window.idle = true), { timeout: 1000 });
    return idle;
}"""
UNANSWERED_MS = 3000  # the server does not answer what comes from a part of a page that is gone
WATCHED = """
const still = new CSSStyleSheet();
// Streamlit fades what it draws again. Without the transition it is pale at once, in the middle of what axe reads.
still.replaceSync("*, *::before, *::after { transition: none !important; animation: none !important; } "
    + "[data-stale='true'] { opacity: 1 !important; }");
document.adoptedStyleSheets = [still];
[window.sentAt, window.answeredAt] = [0, 0];
window.WebSocket = class extends WebSocket {
    constructor(...given) {
        super(...given);
        this.addEventListener("message", () => (window.answeredAt = performance.now()));
    }
    send(message) {
        // Of several without an answer the first: a part that is gone may go on to ask.
        if (!(window.sentAt > window.answeredAt)) window.sentAt = performance.now();
        super.send(message);
    }
};
"""


def settled(page: Page) -> None:
    """Wait until the page is at rest: Streamlit has drawn all of it, and the shell has done its part."""
    # By default it is asked in every frame, which the browser then has to draw: a fifth of a test's processor time.
    page.wait_for_function(SETTLED, arg=UNANSWERED_MS, polling=100)


def used(process: int, session: CDPSession) -> tuple[float, float]:
    """Milliseconds of processor time so far, of the server's process and of the main thread of the page, whose session
    has `Performance.enable` with thread ticks."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    metrics = {item["name"]: item["value"] for item in session.send("Performance.getMetrics")["metrics"]}
    return (int(fields[11]) + int(fields[12])) / TICKS, metrics["TaskDuration"] * 1000

"""Keys that a page answers, of which no press is lost however fast they come (assets/presses.js).

A button's own shortcut loses presses that come while the page is still answering the one before. Here the browser keeps
a log of presses until the page has confirmed them:

    with presses.taken(KEY) as taken:            # before anything is drawn, which may end this run
        for key in taken.keys: ...               # in their order, each once
    presses.draw([("j", "next")], key=KEY)       # shows them, and listens

A new press ends the run that answers the one before, at its next touch of anything of Streamlit's: a call that draws,
`st.session_state`, `st.query_params`. The new run may begin while the old one is still on its way there. So whatever
the presses bring about is done inside the block, in plain Python: read from Streamlit before it, tell it after it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import streamlit as st

_ASSETS = Path(__file__).parent / "assets"


def _asset(name: str) -> str:
    # Streamlit takes a text without a line break for a path, so the last one stays.
    return (_ASSETS / name).read_text(encoding="utf-8")


_component = st.components.v2.component(
    "cimemories_presses",
    html=_asset("presses.html"),
    css=_asset("presses.css"),
    js=_asset("leaving.js") + _asset("presses.js"),
)


@dataclass(frozen=True)
class Taken:
    """keys: what was pressed since the last time, by button or key, in their order. led: whether presses asked for this
    run; then the address that came with it may be of before the presses before, since the browser sends the one that it
    had when the key went down."""

    keys: Sequence[str]
    led: bool


@dataclass
class _Held:
    """What a session knows of its presses. acked: the last number done, by browser tab. buttons: the number of the last
    key before the click, and what the button stands for."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    acked: dict[str, int] = field(default_factory=dict)
    sent: tuple[object, object] = (None, None)
    buttons: list[tuple[int, str]] = field(default_factory=list)


@contextmanager
def taken(key: str) -> Iterator[Taken]:
    """What was pressed and is not done yet. It is done when the block ends, and comes again in the next run where the
    run is ended inside it. Nothing of Streamlit's may be touched in the block."""
    held, log = _held(key), _log(key)
    tab, sent = str(log.get("tab")), (log.get("tab"), log.get("sent"))
    with held.lock:
        buttons = len(held.buttons)
        new = [press for press in _presses(log) if press["seq"] > held.acked.get(tab, 0)]
        numbered = [*((press["seq"], str(press["key"])) for press in new), *held.buttons]
        keys = [name for _, name in sorted(numbered, key=itemgetter(0))]  # a key comes before the click that followed
        try:
            yield Taken(keys, led=buttons > 0 or (bool(log) and held.sent != sent))
        except Exception:
            _done(held, tab, sent, new, buttons)  # what fails would fail in every run that follows
            raise
        _done(held, tab, sent, new, buttons)


def _done(held: _Held, tab: str, sent: tuple[object, object], new: Sequence[dict[str, Any]], buttons: int) -> None:
    held.acked[tab] = max([held.acked.get(tab, 0), *(press["seq"] for press in new)])
    held.sent = sent
    del held.buttons[:buttons]


def press(key: str, name: str) -> None:
    """A button that stands for a key was clicked: call it from the button's `on_click`."""
    held, last = _held(key), max((press["seq"] for press in _presses(_log(key))), default=0)
    held.buttons.append((last, name))


def draw(keys: Sequence[tuple[str, str]], *, key: str) -> None:
    """A line that names the keys and what they do (plain words), and the listening for them. A press with a field under
    the cursor, in a dialog, or with Ctrl, Alt or Cmd is none of them."""
    tab = str(_log(key).get("tab"))
    shown = [{"key": name, "label": label} for name, label in keys]
    data = {"keys": shown, "tab": tab, "acked": _held(key).acked.get(tab, 0)}
    _component(key=key, data=data, on_log_change=lambda: None)


def _log(key: str) -> dict[str, Any]:
    log = (st.session_state.get(key) or {}).get("log")
    return log if isinstance(log, dict) else {}


def _presses(log: dict[str, Any]) -> list[dict[str, Any]]:
    """What reads as a press; the browser may send anything."""
    found = log.get("presses")
    listed = found if isinstance(found, list) else []
    return [item for item in listed if isinstance(item, dict) and isinstance(item.get("seq"), int) and "key" in item]


def _held(key: str) -> _Held:
    held: _Held = st.session_state.setdefault(f"{key}.held", _Held())
    return held

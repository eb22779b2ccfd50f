"""Keys that a page answers, of which no press is lost however fast they come (assets/presses.js).

A button's own shortcut loses presses that come while the page is still answering the one before. Here the browser keeps
a log of presses until the page has confirmed them:

    for key in presses.heard(KEY): ...           # in their order, each once
    presses.confirm(KEY)                         # before anything is drawn, which may end this run
    presses.draw([("j", "next")], key=KEY)       # shows them, and listens
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

_ASSETS = Path(__file__).parent / "assets"


def _asset(name: str) -> str:
    # Streamlit takes a text without a line break for a path, so the last one stays.
    return (_ASSETS / f"presses.{name}").read_text(encoding="utf-8")


_component = st.components.v2.component("cimemories_presses", html=_asset("html"), css=_asset("css"), js=_asset("js"))


def heard(key: str) -> list[str]:
    """The keys that were pressed since the last confirmation, in their order."""
    log = _log(key)
    acked = _acked(key).get(str(log.get("tab")), 0)
    return [str(press["key"]) for press in _presses(log) if press["seq"] > acked]


def spoke(key: str) -> bool:
    """Whether it is the browser's keys that asked for this run. Then the address that came with it may be of before the
    presses before: the browser sends the one that it had when the key went down."""
    log = _log(key)
    return bool(log) and st.session_state.get(f"{key}.sent") != (log.get("tab"), log.get("sent"))


def confirm(key: str) -> None:
    """All that was heard is done: it will not be heard again, and the next drawing tells the browser so."""
    log = _log(key)
    st.session_state[f"{key}.sent"] = log.get("tab"), log.get("sent")
    if found := [press["seq"] for press in _presses(log)]:
        tab = str(log.get("tab"))
        _acked(key)[tab] = max(*found, _acked(key).get(tab, 0))


def draw(keys: Sequence[tuple[str, str]], *, key: str) -> None:
    """A line that names the keys and what they do (plain words), and the listening for them. A press with a field under
    the cursor, in a dialog, or with Ctrl, Alt or Cmd is none of them."""
    tab = str(_log(key).get("tab"))
    shown = [{"key": name, "label": label} for name, label in keys]
    data = {"keys": shown, "tab": tab, "acked": _acked(key).get(tab, 0)}
    _component(key=key, data=data, on_log_change=lambda: None)


def _log(key: str) -> dict[str, Any]:
    log = (st.session_state.get(key) or {}).get("log")
    return log if isinstance(log, dict) else {}


def _presses(log: dict[str, Any]) -> list[dict[str, Any]]:
    """What reads as a press; the browser may send anything."""
    found = log.get("presses")
    listed = found if isinstance(found, list) else []
    return [item for item in listed if isinstance(item, dict) and isinstance(item.get("seq"), int) and "key" in item]


def _acked(key: str) -> dict[str, int]:
    acked: dict[str, int] = st.session_state.setdefault(f"{key}.acked", {})
    return acked

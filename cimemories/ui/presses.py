"""The meanings of keys, the same on every page (KEYS), and keys that a page answers without losing fast presses
(assets/presses.js).

A button's own shortcut loses presses that come while the page still answers the one before. Here the browser keeps a
log of presses until the page has confirmed them:

    with presses.pending(KEY) as pending:           # before anything is drawn, which may end this run
        for key in pending.keys: ...             # in their order, each once
    presses.draw("jk", key=KEY)                  # shows them, and listens

A new press ends the run that answers the one before, at that run's next call into Streamlit: one that draws,
`st.session_state`, `st.query_params`. The new run may start before the old one gets there. So all effects of presses
happen inside the block, in plain Python: read from Streamlit before it, write to Streamlit after it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import streamlit as st

from cimemories.ui import annotator, component

_component = component("presses", "leaving", "keys")
# By key: the text of its button, and that of the help. No key means two things: what is learned on one page holds on
# all. docs/review.md has the same table.
KEYS = {
    "n": ("necessary", "decide: necessary"),
    "i": ("inappropriate", "decide: inappropriate"),
    "u": ("ambiguous", "decide: ambiguous"),
    "y": ("revealed", "the message reveals it"),
    "p": ("partly", "the message reveals it partly"),
    "m": ("implied", "the message implies it"),
    "o": ("not revealed", "the message does not reveal it"),
    "1": ("norm unclear", "people differed since the norm is unclear"),
    "2": ("statement unclear", "people differed since the statement is unclear"),
    "3": ("guideline gap", "people differed since the guideline has no answer"),
    "4": ("slip", "people differed since one of them slipped"),
    "r": ("reason", "write a reason for your answer"),
    "j": ("next", "next item, match or example"),
    "k": ("back", "previous item, match or example"),
    "z": ("undo", "undo the last answer; repeat to go further back"),
    "s": ("skip", "skip for now"),
    "f": ("flag", "flag as a bad item, with a reason"),
    "c": ("comment", "comment on the item"),
    "e": ("spread", "spread your last decision to similar pairs"),
    "t": ("similar tasks", "spread to the same statement in similar tasks, or not"),
    "v": ("same event", "spread to other statements about the event in the same task, or not"),
    "w": ("other people", "spread to similar statements of other people, or not"),
    "g": ("decide them", "decide the pairs that you spread to"),
    "b": ("blind", "blind: hide votes and quotes until you answer"),
    "a": ("basket", "add the example to the basket, or take it out"),
    "?": ("help", "show or hide this help"),
}


@dataclass(frozen=True)
class Pending:
    """The presses of one run. keys: those since the last time, by button or key, in their order. led: whether presses
    started this run. Its address may then be out of date: the browser sends the one that it had when the key went
    down."""

    keys: Sequence[str]
    led: bool


@dataclass
class _State:
    """State of a session's presses. acked: the last number done, by browser tab. buttons: the number of the last key
    before the click, and the key that the button stands for. lock: two runs of one session can overlap, see above."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    acked: dict[str, int] = field(default_factory=dict)
    sent: tuple[object, object] = (None, None)
    buttons: list[tuple[int, str]] = field(default_factory=list)


@contextmanager
def pending(key: str) -> Iterator[Pending]:
    """Yield the presses that are not done yet. They are done when the block ends, and come again in the next run if
    this one is ended inside it. The block must not call Streamlit."""
    state, log = _state(key), _log(key)
    tab, sent = str(log.get("tab")), (log.get("tab"), log.get("sent"))
    with state.lock:
        buttons = len(state.buttons)
        # Compared under the lock: an overlapping run may just have done some of them.
        new = [press for press in _presses(log) if press["seq"] > state.acked.get(tab, 0)]
        numbered = [*((press["seq"], str(press["key"])) for press in new), *state.buttons]
        keys = [name for _, name in sorted(numbered, key=itemgetter(0))]  # a key comes before the click that followed
        try:
            yield Pending(keys, led=buttons > 0 or (bool(log) and state.sent != sent))
        except Exception:
            _done(state, tab, sent, new, buttons)  # a press that fails would fail in every later run
            raise
        # Not in a `finally`: Streamlit ends a run by a BaseException, and its presses have to come again.
        _done(state, tab, sent, new, buttons)


def _done(state: _State, tab: str, sent: tuple[object, object], new: Sequence[dict[str, Any]], buttons: int) -> None:
    # By tab, since each numbers its presses on its own.
    state.acked[tab] = max([state.acked.get(tab, 0), *(press["seq"] for press in new)])
    state.sent = sent
    del state.buttons[:buttons]  # those clicked meanwhile stay


def press(key: str, name: str) -> None:
    """Record the click of a button that stands for a key: call it from the button's `on_click`."""
    last = max((press["seq"] for press in _presses(_log(key))), default=0)
    _state(key).buttons.append((last, name))


def draw(keys: Sequence[str], *, key: str) -> None:
    """Draw a line of these of KEYS and their meanings, and listen for them; `?` opens the table of them. A press while
    a field has the focus, in a dialog, or with Ctrl, Alt or Cmd does not count."""
    tab = str(_log(key).get("tab"))
    shown = [{"key": name, "label": KEYS[name][0], "words": KEYS[name][1]} for name in keys]
    help_line = "?", KEYS["?"][1]
    data = {
        "keys": shown,
        "help": help_line,
        "person": annotator.name(),
        "tab": tab,
        "acked": _state(key).acked.get(tab, 0),
    }
    _component(key=key, data=data, on_log_change=lambda: None)


def _log(key: str) -> dict[str, Any]:
    log = (st.session_state.get(key) or {}).get("log")
    return log if isinstance(log, dict) else {}


def _presses(log: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the presses in a log; anything else is dropped, since a browser may send anything."""
    presses = log.get("presses")
    listed = presses if isinstance(presses, list) else []
    return [item for item in listed if isinstance(item, dict) and isinstance(item.get("seq"), int) and "key" in item]


def _state(key: str) -> _State:
    state: _State = st.session_state.setdefault(f"{key}.held", _State())
    return state

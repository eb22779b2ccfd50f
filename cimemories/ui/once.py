"""Buttons that do something once, however often they are clicked before the page shows what came of it.

A click starts another run of the page, and the run before may still be at what an earlier click asked for: the two
overlap (Streamlit 1.67), and to both the button is pressed. Where both start a run, there are two. So a button as it is
drawn works once, and after that the page draws another one, which an old click does not mean:

    once.button("Start the run", plan, lambda run_id: url.put(run=run_id), key="run_new.start")

Nor does a click get lost where the next message of the browser ends its run before the button is drawn there: the run
for that message does what was clicked. Where the button means something else by then, or is disabled, nobody does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import streamlit as st

from cimemories.ui import url

T = TypeVar("T")
_PRESSES = "once.presses"  # clicks whose runs have not come to their button yet: its key, its turn and its label


@dataclass
class _Clicks:
    """done: how often the button has worked in this session. lock: held while it works."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    done: int = 0


def button(
    label: str,
    do: Callable[[], T],
    then: Callable[[T], object] | None = None,
    *,
    key: str,
    doing: str = "",
    submits: bool = False,
    **options: Any,
) -> None:
    """Draw a button. At its click do this, once; then that, with its result; and draw the page anew. Raises what `do`
    raises: then the button works again.

    do: its writing must be the last thing that it does, since a second click ends it wherever it touches Streamlit, and
    the second run begins it again. then: leads on to the result, by the address or the session; it may be done twice,
    see `url.durable`. doing: what a spinner says meanwhile. submits: of a form. options: of `st.button`.

    What the button is for must be in its key or label (a row's id, which pairs): by them the next run knows a click.
    """
    clicks: _Clicks = st.session_state.setdefault(f"{key}.clicks", _Clicks())
    presses: list[tuple[str, int, str]] = st.session_state.setdefault(_PRESSES, [])
    drawn = clicks.done
    press = key, drawn, label
    lead = url.durable(then or (lambda _: None))  # made here: in between `do` and it, nothing may touch Streamlit
    draw = st.form_submit_button if submits else st.button
    now = draw(label, key=f"{key}.{drawn}" if drawn else key, on_click=presses.append, args=(press,), **options)
    if not now and (press not in presses or options.get("disabled")):
        return
    # The spinner outside: taking it away touches Streamlit.
    with st.spinner(doing, show_time=True) if doing else nullcontext(), clicks.lock:
        if clicks.done == drawn:
            try:
                result = do()
            except Exception:  # not what ends a run: after that the next one does it
                presses.clear()
                raise
            clicks.done += 1
            lead(result)
    st.rerun()


def forget() -> None:
    """Drop the clicks that no button has taken: at the end of each run of a page that nothing has ended midway. Or a
    button would do much later, when its page is opened again, what nobody waits for any more."""
    st.session_state.get(_PRESSES, []).clear()

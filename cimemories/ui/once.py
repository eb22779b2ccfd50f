"""Buttons that do something once, however often they are clicked before the page shows what came of it, and work that
takes its time in a thread of its own, which no click ends midway.

A click starts another run of the page, and the run before may still be at what an earlier click asked for: the two
overlap (Streamlit 1.67), and to both the button is pressed. Where both start a run, there are two. So a button as it is
drawn works once, and after that the page draws another one, which an old click does not mean:

    once.button("Start the run", plan, lambda run_id: url.put(run=run_id), key="run_new.start")

Nor does a click get lost where the next message of the browser ends its run before the button is drawn there: the run
for that message does what was clicked. Where the button means something else by then, or is disabled, nobody does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import streamlit as st

from cimemories.access import roles
from cimemories.ui import safe, url

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
    times_done = clicks.done
    press = key, times_done, label
    lead = url.durable(then or (lambda _: None))  # made here: in between `do` and it, nothing may touch Streamlit
    draw = st.form_submit_button if submits else st.button
    now = draw(
        label, key=f"{key}.{times_done}" if times_done else key, on_click=presses.append, args=(press,), **options
    )
    if not now and (press not in presses or options.get("disabled")):
        return
    # The spinner outside: taking it away touches Streamlit.
    with st.spinner(doing, show_time=True) if doing else nullcontext(), clicks.lock:
        if clicks.done == times_done:
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


# ---- work that takes its time


Report = Callable[[float | None, str], None]  # share done, 0 to 1, None where it is not known; what is done now
LOOK_SECONDS = 0.5
SHORT_SECONDS = 0.3  # what is done by then needs no bar
KEPT_SECONDS = 3600  # what nobody came back for


class StoppedError(Exception):
    """Somebody pressed Stop, or nobody waits any more."""


class Job(Generic[T]):
    """Work in a thread, begun at once. It gets a function to report to, which raises StoppedError once it is stopped,
    and it must not draw anything. whole: an app that is stopped waits for its end."""

    def __init__(self, work: Callable[[Report], T], *, whole: bool = False) -> None:
        self.began = time.monotonic()
        self.share: float | None = 0.0
        self.text = ""
        self.stopped = threading.Event()
        self._work = work
        self._actor = roles.actor()  # taken now: the thread has no session to be asked
        self._results: list[T] = []
        self._problem: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=not whole)
        self._thread.start()

    def _run(self) -> None:
        try:
            with roles.acting(self._actor):
                self._results.append(self._work(self._report))
        except Exception as problem:  # raised again for whoever asks for the result
            self._problem = problem

    def _report(self, share: float | None, text: str) -> None:
        if self.stopped.is_set():
            raise StoppedError
        self.share, self.text = share, text

    def done(self, seconds: float = 0.0) -> bool:
        """Whether it has ended; waits for that, but no longer than so many seconds."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def result(self) -> T:
        """What came of it, once it has ended. Raises what the work raised."""
        if self._problem is not None:
            raise self._problem
        return self._results[0]


_beginning = threading.Lock()
_jobs: dict[str, Job[Any]] = {}  # of the whole process: a reload of the page is another session


def begin(job: str, work: Callable[[Report], object]) -> bool:
    """Begin work under this name, and say whether it was: not where some is under way there, begun in another window
    for example. What a button does that needs more than a moment:

        if once.under_way("bulk.demo", show, key="bulk.batch"):
            return                                    # a bar with Stop stands where the button was
        once.button("Apply", lambda: once.begin("bulk.demo", decide_all), key="bulk.apply")
    """
    for name, other in [*_jobs.items()]:
        if other.done() and time.monotonic() - other.began > KEPT_SECONDS:
            _jobs.pop(name, None)
    with _beginning:
        if job in _jobs:
            return False
        _jobs[job] = Job(work, whole=True)
    _jobs[job].done(SHORT_SECONDS)
    return True


def behind(job: str, work: Callable[[Report], object]) -> Job[Any]:
    """Work that fills a cache while the page goes on: what is under way under this name, or else begun now."""
    with _beginning:
        if job not in _jobs or _jobs[job].done():
            _jobs[job] = Job(work)
        now = _jobs[job]
    now.done(SHORT_SECONDS)
    return now


def under_way(job: str, then: Callable[[Any], object], *, key: str) -> bool:
    """Draw how far the work under this name is, with a Stop button, and say True, in whatever session; False where
    there is none. Once it has ended do `then` with its result, once, and draw the page anew. Raises what the work
    raised, once."""
    now = _jobs.get(job)
    if now is None:
        return False
    lead = url.durable(then)  # made here, as in `button`
    if now.done():
        if _jobs.pop(job, None) is now:  # not another session at the same moment
            lead(now.result())
            st.rerun()
        return False

    def look() -> None:
        if now.done():
            st.rerun()
        text = "Stopping …" if now.stopped.is_set() else now.text
        if now.share is None:
            safe.inline(f"{text} ({time.monotonic() - now.began:.0f} s)")
        else:
            st.progress(now.share, text=safe.plain_label(text))
        st.button("Stop", key=f"{key}.stop", icon=":material/stop:", on_click=url.durable(now.stopped.set))

    st.fragment(look, run_every=LOOK_SECONDS)()
    return True

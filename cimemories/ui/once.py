"""Buttons that act once, however often they are clicked before the page shows the outcome, and work in progress, which
no click interrupts.

A click starts another run of the page, and the run before may still be working on an earlier click: the two overlap
(Streamlit 1.67), and both see the button pressed. If both start a run, there are two. So a drawn button works once, and
after that the page draws another one, which an old click does not refer to:

    once.button("Start the run", plan, lambda run_id: url.put(run=run_id), key="run_new.start")

Nor does a click get lost if the browser's next message ends its run before the button is drawn there: the run for that
message does what was clicked. If the button means something else by then, or is disabled, the click is dropped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import streamlit as st

from cimemories.access import roles
from cimemories.text import duration
from cimemories.ui import safe, url

T = TypeVar("T")
_PRESSES = "once.presses"  # clicks whose runs have not reached their button yet: its key, its turn and its label


@dataclass
class _Clicks:
    """The clicks on a button. done: how often it has worked in this session. lock: held while it works."""

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
    """Draw a button. At a click call `do` once, then `then` with its result, and draw the page again. Raises what `do`
    raises; then the button works again.

    do: its writing must be the last thing that it does, since a second click ends it wherever it touches Streamlit, and
    the second run starts it again. then: leads on to the result, by the address or the session; it may be done twice,
    see `url.durable`. doing: the text of a spinner meanwhile. submits: of a form. options: of `st.button`.

    The target of the button must be in its key or label (a row's id, which pairs): by them the next run knows a
    click."""
    clicks: _Clicks = st.session_state.setdefault(f"{key}.clicks", _Clicks())
    presses: list[tuple[str, int, str]] = st.session_state.setdefault(_PRESSES, [])
    times_done = clicks.done
    press = key, times_done, label
    lead = url.durable(then or (lambda _: None))  # made here: nothing may touch Streamlit between `do` and it
    draw = st.form_submit_button if submits else st.button
    now = draw(
        label, key=f"{key}.{times_done}" if times_done else key, on_click=presses.append, args=(press,), **options
    )
    if not now and (press not in presses or options.get("disabled")):
        return
    # The spinner is outside: removing it touches Streamlit.
    with st.spinner(doing, show_time=True) if doing else nullcontext(), clicks.lock:
        if clicks.done == times_done:
            try:
                result = do()
            except Exception:  # not the exceptions that end a run: the next run does it then
                presses.clear()
                raise
            clicks.done += 1
            lead(result)
    st.rerun()


def forget() -> None:
    """Drop the clicks that no button has taken, at the end of each complete run of a page. Otherwise a button would act
    on them much later, when its page is opened again."""
    st.session_state.get(_PRESSES, []).clear()


# ---- work in progress
#
# Long work is either recorded (a run, a labelling, a generation), done by a worker and read from the record
# repeatedly, or a Job in a thread of the app. Both are drawn in a fragment that looks every second or so, with the
# same words: progress, rate, time left. Neither ends when the user leaves the page.


Report = Callable[[float | None, str], None]  # share done, 0 to 1, None if unknown; the current step
LOOK_SECONDS = 0.5
SHORT_SECONDS = 0.3  # shorter work needs no bar
KEPT_SECONDS = 3600  # how long the result of a job is kept
PACE_SECONDS = 20.0  # the span of a rate


def pace(key: str, done: int, planned: int, unit: str = "") -> str:
    """Return the rate over the last seconds and the time left at it, such as '3.1 calls a second, about 2 min left'; ''
    until there is one. key: of the session's history of progress."""
    # Not the time of day, which may be set back in between.
    now = time.monotonic()
    seen: list[tuple[float, int]] = [it for it in st.session_state.get(key, []) if now - it[0] <= PACE_SECONDS]
    st.session_state[key] = [*seen, (now, done)]
    if not seen or now - seen[0][0] < 1 or done <= seen[0][1]:
        return ""
    rate = (done - seen[0][1]) / (now - seen[0][0])
    return f"{rate:,.1f}{unit and f' {unit}'} a second, about {duration(max(0, planned - done) / rate)} left"


class StoppedError(Exception):
    """The user pressed Stop."""


class Job(Generic[T]):
    """Work in a thread, started at once. It gets a function to report to, which raises StoppedError once it is stopped,
    and it must not draw anything. finishes: an app that is stopped waits for its end."""

    def __init__(self, work: Callable[[Report], T], *, finishes: bool = False) -> None:
        self.began = time.monotonic()
        self.share: float | None = 0.0
        self.text = ""
        self.stopped = threading.Event()
        self._result: T
        self._problem: Exception | None = None
        actor = roles.actor()  # taken now: the thread has no session

        def report(share: float | None, text: str) -> None:
            if self.stopped.is_set():
                raise StoppedError
            self.share, self.text = share, text

        def run() -> None:
            try:
                with roles.acting(actor):
                    self._result = work(report)
            except Exception as problem:
                self._problem = problem

        self._thread = threading.Thread(target=run, daemon=not finishes)
        self._thread.start()

    def done(self, seconds: float = 0.0) -> bool:
        """Return whether it has ended, after waiting for that at most so many seconds."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def result(self) -> T:
        """Return the result, once it has ended. Raises what the work raised."""
        if self._problem is not None:
            raise self._problem
        return self._result

    def draw(self, *, stop: str = "") -> None:
        """Draw the progress. stop: the key of a button that stops it; '' for none."""
        text = "Stopping …" if self.stopped.is_set() else self.text
        if self.share is None:
            safe.inline(f"{text} ({time.monotonic() - self.began:.0f} s)")
        else:
            st.progress(self.share, text=safe.plain_label(text))
        if stop:
            st.button("Stop", key=stop, icon=":material/stop:", on_click=url.durable(self.stopped.set))


_beginning = threading.Lock()
_jobs: dict[str, Job[Any]] = {}  # of the process: a reload of the page is another session


def _begun(name: str, work: Callable[[Report], Any], *, finishes: bool) -> tuple[Job[Any], bool]:
    with _beginning:
        for other, old in [*_jobs.items()]:
            if old.done() and time.monotonic() - old.began > KEPT_SECONDS:
                del _jobs[other]
        if new := name not in _jobs:
            _jobs[name] = Job(work, finishes=finishes)
        job = _jobs[name]
    if new:
        job.done(SHORT_SECONDS)
    return job, new


def begin(name: str, work: Callable[[Report], object]) -> bool:
    """Start the work that a button asks for, and return whether it was started: not while work of this name is running,
    for example from another window.

        if once.under_way("bulk.demo", show, key="bulk.batch"):
            return                                    # a bar with Stop stands where the button was
        once.button("Apply", lambda: once.begin("bulk.demo", decide_all), key="bulk.apply")
    """
    return _begun(name, work, finishes=True)[1]


def job(name: str, work: Callable[[Report], T]) -> Job[T]:
    """Return the computation of this name, started now if there is none. A result is kept for an hour, unless it
    failed: the name must contain everything that it depends on."""
    found: Job[T] = _begun(name, work, finishes=False)[0]
    if found.done() and found._problem is not None:
        _jobs.pop(name, None)
    return found


def under_way(name: str, then: Callable[[Any], object], *, key: str) -> bool:
    """Draw the progress of the work of this name, with a Stop button, and return True, in any session; False if there
    is none. Once it has ended call `then` with its result, once, and draw the page again. Raises what the work raised,
    once."""
    now = _jobs.get(name)
    if now is None:
        return False
    lead = url.durable(then)  # made here, as in `button`
    if now.done():
        if _jobs.pop(name, None) is now:  # not another session at the same moment
            lead(now.result())
            st.rerun()
        return False
    wait(now, stop=f"{key}.stop")
    return True


def wait(now: Job[Any], *, stop: str) -> None:
    """Draw the progress of a job, with a Stop button of this key, and the page again once it has ended."""

    def look() -> None:
        if now.done():
            st.rerun()
        now.draw(stop=stop)

    st.fragment(look, run_every=LOOK_SECONDS)()

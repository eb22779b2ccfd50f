"""What the app shows while the database does not answer: a page of ours, which goes away by itself once it does.

The queues of Review and Judge audit show this themselves and go on collecting answers (ui.workbench.redraw).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import ParamSpec, TypeVar

import streamlit as st

from cimemories.store.engine import DatabaseLost, StoreError, shared_store
from cimemories.ui import page, safe

P = ParamSpec("P")
T = TypeVar("T")
LOOK_SECONDS = 2.0
TITLE = "The database does not answer"


def draw(problem: DatabaseLost) -> None:
    """The page in the place of any other; it looks for the database every two seconds and then shows that other one."""
    page.head(TITLE, "This page looks again every two seconds and goes on by itself.")
    _say(problem)
    _wait()


def fragment(function: Callable[P, T], run_every: str | float | None = None) -> Callable[P, T | None]:
    """The same as `st.fragment`, where a database that goes away while the fragment alone runs is said in its place."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return function(*args, **kwargs)
        except DatabaseLost as problem:
            _say(problem)
            if run_every is None:
                _wait()
            return None

    return st.fragment(guarded, run_every=run_every)


def _say(problem: DatabaseLost) -> None:
    page.error(
        f"{TITLE}.",
        str(problem),
        "Runs and labellings at work wait a minute for it. Answers in the queues of Review and Judge audit stay in the "
        "browser until they are saved.",
    )


@st.fragment(run_every=LOOK_SECONDS)
def _wait() -> None:
    try:
        shared_store().check()
    except StoreError:
        safe.inline(f"Looked for it at {datetime.now():%H:%M:%S}.", muted=True)
        return
    st.rerun()

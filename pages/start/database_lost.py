"""The page shown while the database does not answer; it goes away by itself once the database answers again.

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
    """Draw it in place of another page; it tries the database every two seconds, and then shows that other page."""
    page.head(TITLE, "This page retries every two seconds and continues by itself.")
    _explain(problem)
    _wait()


def fragment(function: Callable[P, T], run_every: str | float | None = None) -> Callable[P, T | None]:
    """The same as `st.fragment`, but a database that goes away while only the fragment runs is reported in its place:
    app.py, which catches it for whole pages, does not run then."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return function(*args, **kwargs)
        except DatabaseLost as problem:
            _explain(problem)
            if run_every is None:
                _wait()
            return None

    return st.fragment(guarded, run_every=run_every)


def _explain(problem: DatabaseLost) -> None:
    page.error(
        f"{TITLE}.",
        str(problem),
        "Active runs and labellings wait a minute for it. Answers in the queues of Review and Judge audit stay in the "
        "browser until they are saved.",
    )


@st.fragment(run_every=LOOK_SECONDS)
def _wait() -> None:
    try:
        shared_store().check()
    except StoreError:
        safe.inline(f"Last try: {datetime.now():%H:%M:%S}.", muted=True)
        return
    st.rerun()

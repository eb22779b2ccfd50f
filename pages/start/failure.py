"""What a person sees where a disk or the database failed, or where the record refused a change, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cimemories.store.engine import DatabaseLost, StoreError
from cimemories.store.upkeep.problems import explained, problem
from cimemories.text import sentence
from cimemories.ui import page, workbench
from pages.start import database_lost


def draw(error: Exception) -> bool:
    """Draw what went wrong, on the page or where a callback or fragment stopped, and return True. False for a bug,
    which is not drawn: Streamlit reports it, and the server's log has the traceback.

    A fragment that looks at work in progress goes on looking, and shows it again once it can be read.
    """
    if isinstance(error, DatabaseLost):
        database_lost.explain(error)
        st.button("Try again", key=f"failure.again.{id(error)}", icon=":material/refresh:")
        return True
    text = explanation(error)
    if text is not None:
        page.error("This did not work.", text)
    return text is not None


def explanation(error: Exception) -> str | None:
    """What failed and what to do next, where the disk, the database or the record is the reason; None for a bug."""
    if problem(error) is not None:
        text = explained(error)
        return f"{text[:1].upper()}{text[1:]}"
    return sentence(error) if isinstance(error, StoreError) else None


@contextmanager
def collecting(key: str, above: DeltaGenerator) -> Iterator[None]:
    """Record and draw a queue in this block: where that fails for now, this says so above it and draws the queue as it
    was, in which a person can go on."""
    try:
        yield
    except Exception as error:  # a full disk is no StoreError
        reason = explanation(error)
        if reason is None:
            raise
        with above:
            workbench.not_saved(reason)
        # Where it always stands: elsewhere the browser would take it out and put it in anew, and miss keys.
        with workbench.desk()[0]:
            workbench.redraw(key)

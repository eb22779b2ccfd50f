"""What a person sees where a disk or the database failed, or where the record refused a change, and what to do."""

from __future__ import annotations

import streamlit as st

from cimemories.store.engine import DatabaseLost, for_people
from cimemories.ui import page
from pages.start import database_lost


def draw(error: Exception) -> bool:
    """Draw what went wrong, on the page or where a callback or fragment stopped, and return True. False for a bug,
    which is not drawn: Streamlit reports it, and the server's log has the traceback.

    A fragment that looks at work in progress goes on looking, and shows it again once it can be read.
    """
    if isinstance(error, DatabaseLost):
        database_lost.explain(error)
        st.button("Try again", key=f"show.failure.again.{id(error)}", icon=":material/refresh:")
        return True
    text = for_people(error)
    if text is not None:
        page.error("This did not work.", text)
    return text is not None

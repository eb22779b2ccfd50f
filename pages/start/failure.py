"""The page for a failed disk or database, or a change that the record refused, with what to do; and the page shown
while the database does not answer, which disappears once it does.

The queues of Review and Judge audit show a lost database themselves and go on collecting answers (assets/outbox.js)."""

from __future__ import annotations

from datetime import datetime

import streamlit as st

from cimemories.store.engine import DatabaseLost, StoreError, for_people, shared_store
from cimemories.ui import page, safe

LOOK_SECONDS = 2.0
TITLE = "The database does not answer"


def draw(error: Exception) -> bool:
    """Draw the error, on the page or at the callback or fragment that stopped, and return True. False for a bug, which
    is not drawn: Streamlit reports it, and the server's log has the traceback.

    A fragment that watches work in progress goes on, and shows it again once it can be read."""
    if isinstance(error, DatabaseLost):
        _explain(error)
        st.button("Try again", key=f"show.failure.again.{id(error)}", icon=":material/refresh:")
        return True
    text = for_people(error)
    if text is not None:
        page.error("This did not work.", text)
    return text is not None


def wait_for_database(problem: DatabaseLost) -> None:
    """Draw a lost database in place of another page, which shows again once a try, every two seconds, succeeds."""
    page.head(TITLE, "This page retries every two seconds and continues by itself.")
    _explain(problem)

    def wait() -> None:
        try:
            shared_store().check()
        except StoreError:
            safe.inline(f"Last try: {datetime.now():%H:%M:%S}.", muted=True)
            return
        st.rerun()

    st.fragment(wait, run_every=LOOK_SECONDS)()


def _explain(problem: DatabaseLost) -> None:
    page.error(
        f"{TITLE}.",
        str(problem),
        "Active runs and labellings wait a minute for it. Answers in the queues of Review and Judge audit stay in the "
        "browser until they are saved.",
    )

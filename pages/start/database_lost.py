"""The page shown while the database does not answer; it goes away by itself once the database answers again.

The queues of Review and Judge audit show this themselves and go on collecting answers (assets/outbox.js).
"""

from __future__ import annotations

from datetime import datetime

import streamlit as st

from cimemories.store.engine import DatabaseLost, StoreError, shared_store
from cimemories.ui import page, safe

LOOK_SECONDS = 2.0
TITLE = "The database does not answer"


def draw(problem: DatabaseLost) -> None:
    """Draw it in place of another page; it tries the database every two seconds, and then shows that other page."""
    page.head(TITLE, "This page retries every two seconds and continues by itself.")
    explain(problem)

    def wait() -> None:
        try:
            shared_store().check()
        except StoreError:
            safe.inline(f"Last try: {datetime.now():%H:%M:%S}.", muted=True)
            return
        st.rerun()

    st.fragment(wait, run_every=LOOK_SECONDS)()


def explain(problem: DatabaseLost) -> None:
    """Say what happened and what is kept meanwhile."""
    page.error(
        f"{TITLE}.",
        str(problem),
        "Active runs and labellings wait a minute for it. Answers in the queues of Review and Judge audit stay in the "
        "browser until they are saved.",
    )

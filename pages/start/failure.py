"""What a person sees where a disk or the database failed, or where the record refused: a line that says what to do."""

from __future__ import annotations

from cimemories.store.engine import StoreError
from cimemories.store.problems import problem
from cimemories.ui import page


def draw(error: Exception) -> bool:
    """Draw what went wrong, on the page or where a callback or fragment stopped. False for a bug, which is not drawn:
    Streamlit then says that there was one, and the server's log where."""
    known = problem(error)
    if known is not None:
        page.error(f"{known.what[:1].upper()}{known.what[1:]}.", next=known.next)
    elif isinstance(error, StoreError):
        page.error("This could not be done.", str(error))
    else:
        return False
    return True

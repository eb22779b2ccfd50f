"""What a person sees where a disk or the database failed, or where the record refused a change, and what to do."""

from __future__ import annotations

from cimemories.store.engine import StoreError, explained, problem
from cimemories.ui import page


def draw(error: Exception) -> bool:
    """Draw what went wrong, on the page or where a callback or fragment stopped. False for a bug, which is not drawn:
    Streamlit reports it, and the server's log has the traceback."""
    text = explanation(error)
    if text is not None:
        page.error("This did not work.", text)
    return text is not None


def explanation(error: Exception) -> str | None:
    """What failed and what to do next, where the disk, the database or the record is the reason; None for a bug."""
    if problem(error) is not None:
        text = explained(error)
        return f"{text[:1].upper()}{text[1:]}"
    return str(error) if isinstance(error, StoreError) else None

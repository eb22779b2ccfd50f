"""Why a message leaked: its request again, with a changed memory (docs/leaks.md)."""

from cimemories.extras import Extra


def register() -> Extra:
    """Register the command, and its part of the Leaks page."""
    here = "cimemories.extras.why"
    return Extra(commands={"why": f"{here}.command"}, panels={"leaks.why": f"{here}.page:draw"})

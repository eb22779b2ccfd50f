"""Runs as a website that needs no server (docs/publish.md)."""

from cimemories.extras import Extra


def register() -> Extra:
    """Register the command."""
    return Extra(commands={"publish": "cimemories.extras.site.command"})

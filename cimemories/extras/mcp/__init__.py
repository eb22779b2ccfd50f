"""The answers of a workspace as tools for coding agents, over the Model Context Protocol (docs/onward.md)."""

from cimemories.extras import Extra


def register() -> Extra:
    """Register the command `mcp`."""
    return Extra(commands={"mcp": "cimemories.extras.mcp.command"})

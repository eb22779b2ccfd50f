"""The command `mcp`."""

from __future__ import annotations

import asyncio
import os
from importlib.util import find_spec
from typing import Annotated

from typer import Option

from cimemories.access.readonly import READ_ONLY
from cimemories.cli.base import cli
from cimemories.cli.options import Place
from cimemories.store.engine import StoreError


@cli.command("mcp")
def serve_tools(
    place: Place,
    app: Annotated[
        str, Option(metavar="URL", help="Where the app is opened, for the links in results.")
    ] = "http://localhost:8501",
) -> None:
    """Serve the answers of a workspace as read-only tools for coding agents (MCP over stdio).

    The agent starts the command. Nothing can be written, and no model can be asked.

    Example: cimemories mcp --workspace data/workspace
    """
    if find_spec("mcp") is None:
        raise StoreError("`cimemories mcp` needs the package mcp: pip install 'cimemories-studio[mcp]'.")
    from mcp.server.stdio import stdio_server

    from cimemories.extras.mcp.tools import server

    os.environ[READ_ONLY] = "1"  # before the record is opened: the store then refuses to write

    async def serve() -> None:
        tools = server(place.record, app.rstrip("/"))
        async with stdio_server() as (read, write):
            await tools.run(read, write, tools.create_initialization_options())

    asyncio.run(serve())

"""The command by which a person says that two addresses are the same server, or takes it back."""

from __future__ import annotations

from typing import Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import AsJson, Workspace, cli
from cimemories.store.engine import DEFAULT_WORKSPACE, StoreError, open_store


@cli.command("same-server")
def same_server(
    one: Annotated[str | None, typer.Argument(metavar="URL", help="An address. Left out: list what is known.")] = None,
    other: Annotated[
        str | None, typer.Argument(metavar="URL", help="Another, or 'server not known' for records of before.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take it back.")] = False,
    by: Annotated[str, typer.Option("--by", help="Who says so.")] = "",
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """List the servers whose answers the record holds, or say that two addresses are the same server.

    Answers of one then serve runs on the other, where both report the same model root. Nothing is rewritten.
    Example: cimemories same-server http://gpu1:8000/v1 http://gpu2:8000/v1
    """
    import getpass

    from cimemories.store import calls

    if (one is None) != (other is None) or (one is None and undo):
        raise StoreError("give two addresses, or none to list what is known.")
    store = open_store(workspace)
    if one is not None and other is not None:
        with store.write() as connection:
            if undo:
                calls.untie(connection, one, other)
                output.note(
                    "taken back: answers of one serve runs on the other no longer; runs that have them keep them"
                )
            else:
                tie = calls.tie(connection, one, other, by.strip() or getpass.getuser())
                output.line(f"{tie.first} and {tie.second} are the same server (said by {tie.author})")
        return
    with store.read() as connection:
        known, counts, ties = calls.known(connection), calls.counts(connection), calls.ties(connection)
    texts = dict.fromkeys([*(item.text for item in known), *counts])
    if as_json:
        rows = [{"server": text, "answers": counts.get(text, 0)} for text in texts]
        said = [{"first": t.first, "second": t.second, "by": t.author, "created": t.created} for t in ties]
        output.line(output.as_json_text({"servers": rows, "same": said}))
        return
    output.table(
        [("server", False), ("answers", True)], [(text, f"{counts.get(text, 0):,}") for text in texts], whole=True
    )
    for tie in ties:
        output.line(f"{tie.first} = {tie.second} (said by {tie.author}, {tie.created[:10]})")
    if not texts:
        output.note("no answer is recorded yet.")

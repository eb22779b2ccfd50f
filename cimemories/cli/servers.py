"""Commands that serve: the simulator and the app."""

from __future__ import annotations

from typing import Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import (
    AllowKeys,
    Workspace,
    cli,
)
from cimemories.store.engine import DEFAULT_WORKSPACE


@cli.command()
def simulate(
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 8100,
    faults: Annotated[float, typer.Option("--faults", min=0, max=0.99, help="Share of requests that go wrong.")] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the leak policy.")] = 0,
) -> None:
    """Serve simulated models on loopback; see docs/simulator.md.  Example: cimemories simulate --port 8100"""
    from cimemories.llm.simulator import serve

    def ready() -> None:
        output.note(f"simulated models at http://127.0.0.1:{port}/v1 (stop with Ctrl-C)")

    serve(port, seed=seed, faults=faults, ready=ready)


@cli.command()
def app(
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 8501,
    demo: Annotated[bool, typer.Option(help="Fill an empty workspace with the demo.")] = True,
    allow_key: AllowKeys = None,
    token: Annotated[
        bool | None,
        typer.Option(
            "--token/--no-token",
            help="Ask everybody for the token in the printed address, or nobody: then all who reach the port may read "
            "and change everything. By default only the user who starts the app comes in, and root.",
            show_default=False,
        ),
    ] = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Start the app for the user who starts it, on this machine only (docs/access.md).  Example: cimemories app"""
    from cimemories.access.guard import Mode
    from cimemories.serving import serve_app

    mode = {None: Mode.AUTO, True: Mode.TOKEN, False: Mode.ANYONE}[token]
    serve_app(port, workspace, demo_wanted=demo, mode=mode)

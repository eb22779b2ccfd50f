"""The command line itself: the options that commands share, and how an error ends.

Results go to standard output, progress and errors to standard error. Exit status 0 only on success; an error is one
clear line, 1 for what could not be done, 2 for a command that was not understood, and 3 for work that ended and lacks
part of what was planned.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import sqlalchemy as sa
import typer

from cimemories import __version__
from cimemories.cli import output
from cimemories.store import engine
from cimemories.store.engine import StoreError, explained, problem
from cimemories.texts import visible, without_credentials

ENDING_SECONDS = 10.0  # how long a command that was interrupted may take to end undisturbed

cli = typer.Typer(
    name="cimemories",
    help="Curate, audit, run and explore the CIMemories benchmark of contextual integrity.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _allow_keys(pairs: list[str] | None) -> list[str] | None:
    if pairs:
        from cimemories.llm.endpoint import EndpointError, allow_pair

        for pair in pairs:
            try:
                allow_pair(pair)
            except EndpointError as error:
                raise typer.BadParameter(str(error)) from None
    return pairs


Workspace = Annotated[
    Path, typer.Option("--workspace", "-w", envvar="CIMEMORIES_WORKSPACE", help="Folder that holds the record.")
]
DatasetName = Annotated[
    str, typer.Option("--dataset", "-d", help="Name of the dataset; `cimemories datasets` lists them.")
]
Model = Annotated[str, typer.Option("--model", "-m", help="Name under which the server serves the model.")]
BaseUrl = Annotated[
    str, typer.Option("--base-url", help="OpenAI-compatible server, e.g. http://localhost:8000/v1, or `simulator`.")
]
KeyEnv = Annotated[str, typer.Option("--api-key-env", help="Environment variable that holds the endpoint's key.")]
AllowKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-key",
        metavar="NAME=URL",
        callback=_allow_keys,
        help="Send the key in this environment variable to this server; may be repeated (docs/models.md).",
    ),
]
Profiles = Annotated[int | None, typer.Option("--profiles", min=1, help="Only the first so many profiles.")]
Contexts = Annotated[int | None, typer.Option("--contexts", min=1, help="Only the first so many contexts.")]
Concurrency = Annotated[int, typer.Option("--concurrency", min=1, max=1024, help="Requests under way at once.")]
Timeout = Annotated[float, typer.Option("--timeout", min=1, help="Seconds to wait, doubled by each retry.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of the first draw; left out: none is sent.")]
Temperature = Annotated[
    float | None, typer.Option("--temperature", min=0, help="Left out: the server's default for the model.")
]
TokenLimit = Annotated[
    str, typer.Option("--max-tokens", metavar="N", help="Limit of one answer in tokens; `server` sends none of ours.")
]
AllowMissing = Annotated[
    float,
    typer.Option(
        "--allow-missing",
        min=0,
        max=1,
        metavar="SHARE",
        help="Exit with 0 where at most this share of what was planned is missing, 0 to 1; else with 3.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def token_limit(text: str, option: str = "--max-tokens") -> int | None:
    """The limit that an option gives: a number, or None for the word `server`. Raises StoreError for anything else."""
    if text == "server":
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise StoreError(f"{option} is a number of tokens, 1 or more, or the word server for no limit of ours.")
    return int(text)


def main() -> None:
    """Run the command line; every expected error ends as one line on standard error."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as of a shell's background job: it stays so
            signal.signal(number, _interrupter())
    engine.adopt_umask()
    try:
        cli()
    except KeyboardInterrupt:
        _fail("stopped")
    except sa.exc.DBAPIError as error:
        _fail(f"the record could not be used: {explained(error)}")
    except (OSError, ValueError, StoreError, sa.exc.SQLAlchemyError) as error:
        _fail(explained(error) if problem(error) else str(error))
    except Exception as error:
        if os.environ.get("CIMEMORIES_DEBUG"):
            raise
        _fail(_explained(error))


def _interrupter() -> Callable[[int, object], None]:
    """A signal handler that raises KeyboardInterrupt once. What comes while the command is then ending (`timeout` and
    terminals send a signal twice) would cut its clean-up short: it is ignored, for as long as ending may take."""

    ending_since: float | None = None

    def interrupt(_signal: int, _frame: object) -> None:
        nonlocal ending_since
        if ending_since is not None and time.monotonic() - ending_since < ENDING_SECONDS:
            return
        if ending_since is None:
            atexit.register(_ignore_interrupts)
        ending_since = time.monotonic()
        raise KeyboardInterrupt

    return interrupt


def _ignore_interrupts() -> None:
    """For the last moments of a process, in which Python has put the default handlers back."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _explained(error: Exception) -> str:
    from cimemories.llm.endpoint import EndpointError
    from cimemories.llm.worker import WorkError
    from cimemories.simulator.policy import SimulatorError

    if isinstance(error, (EndpointError, SimulatorError, WorkError)):
        return str(error)
    return f"unexpected {type(error).__name__}: {error}. Set CIMEMORIES_DEBUG=1 to see where it happened."


def _fail(message: str) -> NoReturn:
    line = without_credentials(visible(" ".join(message.split())))
    print(f"error: {line}", file=sys.stderr)  # noqa: T201
    sys.exit(1)


def _version(asked: bool) -> None:
    if asked:
        output.line(__version__)
        raise typer.Exit


@cli.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Every command takes --workspace, or the address of a PostgreSQL record in CIMEMORIES_DATABASE_URL."""

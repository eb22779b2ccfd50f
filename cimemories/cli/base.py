"""The application, and how it ends.

Results go to standard output, progress and errors to standard error. Exit status: 0 success, 1 an error (one line says
what), 2 a command that was not understood, 3 work that ended with part of its plan missing.
"""

from __future__ import annotations

import atexit
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, NoReturn

import sqlalchemy as sa
import typer
from typer import Option
from typer.exceptions import TyperException

from cimemories import files
from cimemories.cli import output
from cimemories.store.engine import StoreError
from cimemories.store.upkeep.problems import explained, problem
from cimemories.text import visible, without_credentials
from cimemories.version import __version__

ENDING_SECONDS = 10.0  # how long an interrupted command may clean up before another signal interrupts that too

cli = typer.Typer(
    name="cimemories",
    help="Build, label, run and explore CIMemories, a benchmark of contextual integrity in LLM memory.\n\n"
    "Every command takes --workspace. To use PostgreSQL instead of a file, set CIMEMORIES_DATABASE_URL.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command line; every expected error ends as one line on standard error."""
    _use_utf8()
    interrupt = _interrupter()
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as of a shell's background job: it stays so
            signal.signal(number, interrupt)
    # Before any command makes a file: what it writes is the user's alone.
    files.adopt_umask()
    with errors_end_with(1):
        cli()


def _use_utf8() -> None:
    """Print UTF-8 whatever the locale says; where it knows ASCII alone, start again in Python's UTF-8 mode.

    LC_ALL=POSIX with PYTHONUTF8=0 would fail at the first other character of an argument, a path or a name.
    """
    if sys.getfilesystemencoding() == "ascii" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


@contextmanager
def errors_end_with(status: int) -> Iterator[None]:
    """A block in which every error ends the program with this status, and one line on standard error. Not what a
    command ends with on purpose, and not what Typer says of its options."""
    try:
        yield
    except (typer.Exit, TyperException):
        raise
    except KeyboardInterrupt:
        _fail("stopped", status)
    except sa.exc.DBAPIError as error:
        _fail(f"the workspace's database failed: {explained(error)}", status)
    except (OSError, ValueError, StoreError, sa.exc.SQLAlchemyError) as error:
        _fail(explained(error) if problem(error) else str(error), status)
    except Exception as error:
        if os.environ.get("CIMEMORIES_DEBUG"):
            raise
        _fail(_explained(error), status)


def open_app() -> None:
    """`cimemories-studio` is `cimemories app`, so that `uvx cimemories-studio` opens the app."""
    sys.argv[1:1] = ["app"]
    main()


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
    # Imported here: every command would otherwise wait for the HTTP client to load.
    from cimemories.llm.endpoint import EndpointError
    from cimemories.llm.worker import WorkError
    from cimemories.simulator.policy import SimulatorError

    if isinstance(error, (EndpointError, SimulatorError, WorkError)):
        return str(error)
    return f"unexpected {type(error).__name__}: {error}. Set CIMEMORIES_DEBUG=1 to see the traceback."


def _fail(message: str, status: int) -> NoReturn:
    # An error may quote an address with a password, or a name out of a file; it is to be one line in any case.
    line = without_credentials(visible(" ".join(message.split())))
    print(f"error: {line}", file=sys.stderr)  # noqa: T201
    sys.exit(status)


def _version(wanted: bool) -> None:
    if wanted:
        output.line(__version__)
        raise typer.Exit


@cli.callback()
def _options(
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Options of the program itself."""

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
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer import Option
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_group

from cimemories import files
from cimemories.text import visible, without_credentials
from cimemories.version import __version__

ENDING_SECONDS = 10.0  # how long an interrupted command may clean up before another signal interrupts that too

# Each command, in the order of `--help`, with the module of this folder that has it and its line there. `--help` and
# `--version` load none of them: all together take 1.5 s, most of it for SQLAlchemy.
COMMANDS = {
    "run": ("runs", "Run a model: it writes messages, judges read them."),
    "judge": ("runs", "Add another judge to a run."),
    "repeat": ("runs", "Repeat a run with its settings and prompts."),
    "runs": ("runs", "List the runs."),
    "resume": ("runs", "Continue a run, sweep, labelling or generation."),
    "pause": ("runs", "Pause a run, sweep, labelling or generation."),
    "cancel": ("runs", "Cancel a run, sweep, labelling or generation."),
    "presets": ("runs", "List the paper's models and their presets."),
    "import": ("datasets", "Import a dataset, or the results of runs."),
    "export": ("datasets", "Export a dataset, or the results of a run."),
    "datasets": ("datasets", "List the datasets."),
    "generate": ("datasets", "Generate synthetic profiles, from templates or by a model."),
    "generations": ("datasets", "List the generations."),
    "packs": ("datasets", "List the packs of contexts and personas, or check your own."),
    "contexts": ("datasets", "List a dataset's contexts, or add a pack of them."),
    "freeze": ("datasets", "Freeze a dataset, and print the hash of its content."),
    "versions": ("datasets", "List a dataset's versions, and what has changed since."),
    "card": ("datasets", "Write the dataset card (Markdown)."),
    "label": ("labels", "Label a dataset by the votes of personas."),
    "labellings": ("labels", "List the labellings, and choose the one that numbers rest on."),
    "consensus": ("labels", "Show which pairs have a consensus, and who dissents."),
    "rules": ("labels", "List a dataset's consensus rules; one is current."),
    "rule": ("labels", "Save, try, use or delete a consensus rule."),
    "agreement": ("labels", "Show how well the labellings of a dataset agree."),
    "sweep": ("sweeps", "Run models x memories x prompts from one file."),
    "sweeps": ("sweeps", "List the sweeps with their results."),
    "metrics": ("metrics", "Show a run's violation and completeness."),
    "power": ("metrics", "Estimate what a planned run could show, from a pilot run."),
    "accumulate": ("metrics", "Show how leaks accumulate over tasks and samples."),
    "judges": ("labels", "Show a run's judges, and how well they agree."),
    "compare": ("compare", "Compare runs side by side, with paired differences."),
    "leaderboard": ("compare", "Rank runs as in the paper's Table 1."),
    "sensitivity": ("compare", "Show how results depend on the choices behind them."),
    "leaks": ("leaks", "List leaked examples of a run, severest first."),
    "why": ("leaks", "Explain a leak: replay its request with a changed memory."),
    "report": ("leaks", "Write a report on runs, with methods and manifest."),
    "publish": ("leaks", "Write a website on runs that needs no server."),
    "check": ("leaks", "Check a run against budgets and named flows, for CI."),
    "app": ("serve", "Start the app."),
    "simulate": ("serve", "Serve simulated models on this machine (docs/simulator.md)."),
    "serve": ("serve", "Serve a model with your own vLLM."),
    "servers": ("serve", "List the vLLM servers started here, including stopped ones."),
    "stop-server": ("serve", "Stop a vLLM server."),
    "same-server": ("serve", "List servers, or declare two addresses to be the same."),
    "backup": ("upkeep", "Back up a workspace into one file, while it is in use."),
    "restore": ("upkeep", "Restore a backup into an empty workspace."),
    "verify": ("upkeep", "Check the workspace's database."),
    "purge": ("upkeep", "Remove recorded calls that nothing uses."),
    "delete": ("upkeep", "Delete a run, sweep, labelling, generation or dataset."),
    "log": ("upkeep", "Show who did what, and when."),
    "review": ("review", "Review by people: export, import, status, audit."),
    "batch": ("batch", "Run models by batch file: write requests, read answers."),
    "people": ("upkeep", "People who log in, and their roles."),
}


class Commands(TyperGroup):
    """The commands of COMMANDS, each loaded when it is asked for."""

    def list_commands(self, _context: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _context: Any, name: str) -> Any:
        if name not in self.commands:
            self.commands = load(name)
        return self.commands.get(name)

    def format_commands(self, _context: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


def load(name: str = "") -> Any:
    """Import the module of a command, and return all that are loaded by name.

    For a name that is not in COMMANDS, all are: it is hidden, or mistyped, and typer suggests what may be meant.
    """
    for module in {COMMANDS[name][0]} if name in COMMANDS else {module for module, _ in COMMANDS.values()}:
        import_module(f"cimemories.cli.{module}")
    return get_group(cli).commands


cli = typer.Typer(
    cls=Commands,
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
    except Exception as error:
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
    """Return what to tell of an error. Raises one that is not expected again with CIMEMORIES_DEBUG."""
    # Imported here: `--help` and `--version` would otherwise wait for the database's library to load ...
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    from cimemories.store.engine import StoreError
    from cimemories.store.upkeep.problems import explained, problem

    if isinstance(error, DBAPIError):
        return f"the workspace's database failed: {explained(error)}"
    if isinstance(error, (OSError, ValueError, StoreError, SQLAlchemyError)):
        return explained(error) if problem(error) else str(error)
    # ... and every command for the HTTP client.
    from cimemories.llm.endpoint import EndpointError
    from cimemories.llm.worker import WorkError
    from cimemories.simulator.policy import SimulatorError

    if isinstance(error, (EndpointError, SimulatorError, WorkError)):
        return str(error)
    if os.environ.get("CIMEMORIES_DEBUG"):
        raise error
    return f"unexpected {type(error).__name__}: {error}. Set CIMEMORIES_DEBUG=1 to see the traceback."


def _fail(message: str, status: int) -> NoReturn:
    # An error may quote an address with a password, or a name out of a file; it is to be one line in any case.
    line = without_credentials(visible(" ".join(message.split())))
    print(f"error: {line}", file=sys.stderr)  # noqa: T201
    sys.exit(status)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@cli.callback()
def _options(
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Options of the program itself."""

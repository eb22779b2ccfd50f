"""The application, and how it ends.

Results go to standard output, progress and errors to standard error. Exit status: 0 success, 1 an error (one line says
what), 2 a command that was not understood, 3 work that ended with part of its plan missing.
"""

from __future__ import annotations

import ast
import atexit
import inspect
import io
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_type_hints

import typer
from typer import Option
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_group

from cimemories import extras, files
from cimemories.text import visible, without_credentials
from cimemories.version import __version__

ENDING_SECONDS = 10.0  # how long an interrupted command may clean up before another signal interrupts that too

# The commands of each module of this folder, in the order of `--help`; those of extras come after them. `--help` and
# `--version` load none of them: all together take 1.5 s, most of it for SQLAlchemy.
MODULES = {
    "runs": "run judge repeat runs tag stop resume",
    "datasets": "import export datasets generate packs",
    "labels": "label labellings consensus rules judges",
    "sweeps": "sweep",
    "metrics": "metrics power accumulate",
    "compare": "compare leaderboard",
    "leaks": "leaks report",
    "serve": "app simulate serve servers",
    "upkeep": "workspace delete team",
    "review": "review",
    "batch": "batch",
}
# What commands were called before, and are called now.
RENAMED = {
    "agreement": "labellings agreement",
    "backup": "workspace backup",
    "cancel": "stop --now",
    "card": "datasets card",
    "contexts": "datasets contexts",
    "freeze": "datasets freeze",
    "generations": "datasets generations",
    "log": "team log",
    "pause": "stop",
    "people": "team",
    "presets": "serve --list",
    "purge": "workspace purge",
    "restore": "workspace restore",
    "rule": "rules save|use|delete",
    "same-server": "servers same",
    "stop-server": "servers stop",
    "survival": "consensus",
    "sweeps": "sweep --list",
    "verify": "workspace verify",
    "versions": "datasets versions",
}
COMMANDS = {name: f"cimemories.cli.{module}" for module, names in MODULES.items() for name in names.split()}


class Commands(TyperGroup):
    """The commands of COMMANDS and of extras, each loaded when it is asked for."""

    def list_commands(self, _context: Any) -> list[str]:
        return [*COMMANDS, *_of_extras()]

    def get_command(self, context: Any, name: str) -> Any:
        if name in RENAMED:
            context.fail(f"'{name}' is now `cimemories {RENAMED[name]}`.")
        # Also where it is loaded already: an extra may join its group.
        self.commands = load(name)
        return self.commands.get(name)

    def format_commands(self, _context: Any, formatter: Any) -> None:
        texts = summaries()
        for title, names in (("Commands", COMMANDS), ("Commands of extras", _of_extras())):
            if names:
                with formatter.section(title):
                    formatter.write_dl([(name, texts[name]) for name in names])


def _of_extras() -> dict[str, str]:
    """Return the modules of the commands of extras, without those that join a group of commands."""
    return {name: module for name, module in extras.registered("commands").items() if " " not in name}


def summaries() -> dict[str, str]:
    """Return the first sentence of each command's help, read from the sources of the modules."""
    texts = {}
    for module in dict.fromkeys([*COMMANDS.values(), *_of_extras().values()]):
        spec = find_spec(module)
        assert spec
        assert spec.origin
        for item in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
            match item:
                case ast.FunctionDef(decorator_list=[ast.Call(ast.Attribute(ast.Name("cli"), "command"), names), *_]):
                    name = ast.literal_eval(names[0]) if names else item.name.replace("_", "-")
                    texts[name] = ast.get_docstring(item) or ""
                case ast.Assign(value=ast.Call(ast.Name("group"), [ast.Constant(str(name)), ast.Constant(str(text))])):
                    texts[name] = text
    return {name: re.split(r"(?<=\.)\s", text)[0] for name, text in texts.items()}


def load(name: str = "") -> Any:
    """Import the module of a command, and return all that are loaded by name.

    For a name that is nowhere, all are: it is hidden, or mistyped, and typer suggests what may be meant.
    """
    modules = [*COMMANDS.items(), *extras.registered("commands").items()]
    # "review audit" of an extra joins the group `review`.
    chosen = [module for command, module in modules if command.split()[0] == name]
    for module in dict.fromkeys(chosen or [module for _, module in modules]):
        import_module(module)
    # In the order of `--help`, whichever module was imported first.
    order = [command.split()[0] for command, _ in modules]
    return dict(
        sorted(get_group(cli).commands.items(), key=lambda item: order.index(item[0]) if item[0] in order else 0)
    )


class Application(typer.Typer):
    """Typer, with commands that may take dataclasses of options (`grouped`)."""

    def command(self, name: str | None = None, **more: Any) -> Callable[[Any], Any]:
        return lambda function: super(Application, self).command(name, **more)(grouped(function))

    def listing(self, function: Any) -> Any:
        """Let a group without one of its commands call a function."""
        alone = _if_alone(grouped(function))
        return self.callback(invoke_without_command=True, no_args_is_help=False)(alone)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take dataclasses of options: Typer sees every field as an option of its own, after those of the
    command itself, and the command gets the dataclass. Keyword-only, as Typer calls, so that a group may stand anywhere
    among the parameters."""
    # Resolved here: annotations are texts (from __future__), and Typer needs what Annotated holds.
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    parameters: dict[str, inspect.Parameter] = {}
    of_groups: dict[str, inspect.Parameter] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        if not is_dataclass(hints[name]):
            parameters[name] = parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[name])
            continue
        groups[name] = hints[name]
        options = get_type_hints(hints[name], include_extras=True)
        for field in fields(hints[name]):
            of_groups[field.name] = inspect.Parameter(
                field.name,
                parameter.KEYWORD_ONLY,
                default=parameter.empty if field.default is MISSING else field.default,
                annotation=options[field.name],
            )

    def expanded(**values: Any) -> None:
        made = {name: group(**{f.name: values.pop(f.name) for f in fields(group)}) for name, group in groups.items()}
        command(**values, **made)

    expanded.groups = tuple(groups.values())  # type: ignore[attr-defined]
    return _described(expanded, command, parameters | of_groups)


def _if_alone(callback: Callable[..., None]) -> Callable[..., None]:
    """Return a callback that does nothing before a command of its group. Raises BadParameter for options before such a
    command, which would not reach it."""

    def alone(context: typer.Context, **values: Any) -> None:
        if context.invoked_subcommand is None:
            callback(**values)
        elif any(str(context.get_parameter_source(name)).endswith("COMMANDLINE") for name in values):
            raise typer.BadParameter(f"options go after `{context.invoked_subcommand}`.")

    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    return _described(alone, callback, {"context": context, **inspect.signature(callback).parameters})


def _described(
    function: Any, original: Callable[..., None], parameters: dict[str, inspect.Parameter]
) -> Callable[..., None]:
    """Let Typer see a function as another one with these parameters: it asks inspect for them, and get_type_hints for
    their types."""
    function.__name__, function.__doc__, function.__module__ = original.__name__, original.__doc__, original.__module__
    function.__signature__ = inspect.Signature(list(parameters.values()))
    function.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    described: Callable[..., None] = function
    return described


def takes_options(command: Any, group: type) -> bool:
    """Return whether a command takes this dataclass of options, or one that is made from it."""
    return any(issubclass(item, group) for item in getattr(command.callback, "groups", ()))


def group(name: str, help: str) -> Application:
    """Add a group of commands, which without one of them prints its help, or what its `listing` does."""
    commands = Application(name=name, help=help, no_args_is_help=True)
    cli.add_typer(commands)
    return commands


cli = Application(
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


def _version(shown: bool) -> None:
    if shown:
        typer.echo(__version__)
        raise typer.Exit


@cli.callback()
def _options(
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Options of the program itself."""

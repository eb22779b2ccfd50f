"""Options that several commands share, and what is made of their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, make_dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from cimemories.cli import output
from cimemories.cli.base import grouped as grouped
from cimemories.model import WorkKind
from cimemories.settings import Settings
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_store, record_address, sqlite_path
from cimemories.store.engine import word_of as word_of

if TYPE_CHECKING:
    from cimemories.answer import Answer, Table
    from cimemories.flows.arrays import IdentifierRule
    from cimemories.flows.scope import Scope
    from cimemories.llm.engines import Engine
    from cimemories.store.datasets import DatasetRow


def _allow_keys(pairs: list[str] | None) -> list[str] | None:
    if not pairs:
        return pairs
    from cimemories.llm.endpoint import EndpointError, allow_pair

    for pair in pairs:
        try:
            allow_pair(pair)
        except EndpointError as error:
            raise typer.BadParameter(str(error)) from None
    return pairs


def _allow_programs(programs: list[str] | None) -> list[str] | None:
    if programs:
        from cimemories.llm import assistants
        from cimemories.llm.endpoint import COMMAND

        for program in programs:
            assistants.allow(COMMAND + program.removeprefix(COMMAND))
    return programs


# Eager: it is read before the ids that are looked up in it.
Workspace = Annotated[
    Path, Option("--workspace", "-w", is_eager=True, envvar="CIMEMORIES_WORKSPACE", help="Workspace folder.")
]


def open_record(workspace: Path) -> Store:
    """Return the record of a workspace that is there, for commands that are about what it holds. Raises StoreError
    where there is none: opening would make an empty one, and a mistyped folder would look like one without any work."""
    file = sqlite_path(record_address(workspace))
    if file is not None and not file.exists():
        raise StoreError(
            f"there is no workspace in {workspace} ({file.name} is missing), and none was made. Choose another with "
            "--workspace. `cimemories app` makes one with a demo, `cimemories import` one with your profiles."
        )
    return open_store(workspace)


def full_ids(*kinds: WorkKind) -> Callable[[typer.Context, Any], Any]:
    """Return a callback that turns a value, or each of a list, into the full id that it means (store.work.ids_of).

    What means nothing there is left to the command. Raises StoreError for what means several.
    """

    def full(context: typer.Context, value: Any) -> Any:
        values = value if isinstance(value, list) else [value]
        if all(text is None or _FULL_ID.fullmatch(text) for text in values):
            return value  # without opening the record
        workspace = Path(context.params.get("workspace", DEFAULT_WORKSPACE))
        file = sqlite_path(record_address(workspace))
        if file is not None and not file.exists():
            return value
        store = open_store(workspace)
        try:
            ids = [full_id(store, text, *kinds) for text in values]
        finally:
            store.close()
        return ids if isinstance(value, list) else ids[0]

    return full


_FULL_ID = re.compile(f"({'|'.join(WorkKind)})-[0-9a-f]{{8}}")


def full_id(store: Store, text: str, *kinds: WorkKind) -> str:
    """Return the full id that a text means, or the text if it means none. Raises StoreError if it means several."""
    from cimemories.store import work as store_work

    with store.read() as connection:
        ids = store_work.ids_of(connection, text, *kinds)
    if len(ids) > 1:
        raise StoreError(f"'{text}' may mean {', '.join(ids)}. Use one of these ids.")
    return ids[0] if ids else text


RUN_ID, LABELLING_ID = full_ids(WorkKind.RUN), full_ids(WorkKind.LABELLING)


AsJson = Annotated[bool, Option("--json", help="Print JSON.")]


@dataclass(frozen=True)
class Place:
    """The workspace that a command is about."""

    workspace: Workspace = DEFAULT_WORKSPACE

    @cached_property
    def record(self) -> Store:
        """Open the record. Raises StoreError if there is none."""
        return open_record(self.workspace)

    @cached_property
    def store(self) -> Store:
        """Open the record, an empty one if there is none."""
        return open_store(self.workspace)

    def dataset(self, name: str) -> DatasetRow:
        """Return a dataset. Raises StoreError if there is none of that name."""
        from cimemories.store import datasets

        with self.record.read() as connection:
            return datasets.by_name(connection, name)


@dataclass(frozen=True)
class Here(Place):
    """The workspace, and whether to print JSON."""

    as_json: AsJson = False

    def listing(self, shown: Table, empty: str = "") -> None:
        """Print a list of what the record holds. empty: a note in place of no rows."""
        output.listing(shown, self.as_json, empty)

    def result(self, value: object, *lines: str, notes: Iterable[str | None] = ()) -> bool:
        """Print what was done, as JSON or as lines and notes; return True for JSON."""
        if self.as_json:
            output.as_json(value)
            return True
        for text in lines:
            output.line(text)
        output.notes(notes)
        return False


def _file_of_tables(path: Path | None) -> Path | None:
    if path is not None and path.suffix not in (".csv", ".parquet"):
        raise typer.BadParameter("a table is written to NAME.csv or NAME.parquet.")
    return path


Out = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        callback=_file_of_tables,
        help="Write the rows to FILE.csv or FILE.parquet; further tables beside it, named by what they hold.",
    ),
]
Run = Annotated[
    str, Argument(metavar="RUN", callback=RUN_ID, help="Id or name of a run; `cimemories runs` lists them.")
]
Work = Annotated[
    str,
    Argument(metavar="ID", callback=full_ids(*WorkKind), help="Id of a run, sweep, labelling or generation, or name."),
]
Dataset = Annotated[str, Argument(help="Dataset; `cimemories datasets` lists them.")]
DatasetName = Annotated[str, Option("--dataset", "-d", help="Dataset; `cimemories datasets` lists them.")]
LabellingOption = Annotated[
    str | None,
    Option(
        *("--labelling", "-l", "-L"),
        callback=LABELLING_ID,
        help="Id of a labelling; default: the one numbers rest on.",
    ),
]
Replace = Annotated[bool, Option("--replace", help="Overwrite an existing file.")]

AllowKeys = Annotated[
    list[str] | None,
    Option(
        "--allow-key",
        metavar="NAME=URL",
        callback=_allow_keys,
        help="Allow sending the key in this variable to this server; repeatable (docs/models.md).",
    ),
]
AllowPrograms = Annotated[
    list[str] | None,
    Option(
        "--allow-program",
        metavar="PROGRAM",
        callback=_allow_programs,
        help="Allow starting this assistant, as the sweep or run names it, e.g. 'python agent.py'; repeatable.",
    ),
]
Serve = Annotated[
    list[str] | None,
    Option(
        "--serve",
        metavar="'MODEL [FLAGS]'",
        help="What a vLLM of its own serves in every worker, where the base URL is `local-vllm`; repeatable "
        "(docs/scale.md).",
    ),
]
Fresh = Annotated[bool, Option("--fresh", help="Send every request again, even where its answer is recorded.")]
ReferenceSettings = Annotated[
    bool, Option("--reference", help="The authors' own form of requests (docs/runs.md); see --prompt-file.")
]

AllowTooLong = Annotated[
    bool, Option("--allow-too-long", help="Send also what the plan says does not fit into the server's context.")
]

AllowMissing = Annotated[
    float,
    Option(
        "--allow-missing",
        min=0,
        max=1,
        metavar="SHARE",
        help="Exit with 0 if at most this share (0 to 1) of the plan is missing, otherwise with 3.",
    ),
]
Samples = Annotated[int | None, Option("--samples", "-n", min=1, help="n of Violation@n; default: all samples.")]
RankSmall = Annotated[
    bool,
    Option(
        "--rank-small",
        help="Rank also runs that cover much less than the others, all of them on what they have in common.",
    ),
]
Grounded = Annotated[bool, Option("--grounded", help="Count only reveals whose quote is in the message.")]
YourName = Annotated[str | None, Option(help="Your name; default: your login.")]


@dataclass(frozen=True)
class WorkOptions:
    """How work is done, and when its end counts as success."""

    allow_missing: AllowMissing = 0.0
    concurrency: Annotated[
        int, Option(min=1, max=1024, help="Requests at the same time; of each worker of an engine.")
    ] = 32
    engine: Annotated[
        str,
        Option(
            envvar="CIMEMORIES_ENGINE",
            metavar="NAME[:OPTION=VALUE,...]",
            help="What does the work: `local`, or a Ray cluster, `ray:workers=2:16`; needs PostgreSQL (docs/scale.md).",
        ),
    ] = "local"

    def chosen(self, store: Store, *, queued: bool = False) -> Engine | None:
        """Return the engine that is to work; None for this process. Raises StoreError where it cannot, so that nothing
        is planned that cannot be done; not for work that is queued, whose worker leaves the reason with it."""
        from cimemories.llm.engines import read_engine

        return read_engine(self.engine, None if queued else store)


@dataclass(frozen=True)
class Printing(Here):
    """The form in which an answer is given: text, JSON, or its tables as files."""

    out: Out = None

    def answer(self, result: Answer) -> None:
        """Print an answer, or write it."""
        output.answer(result, self.as_json, self.out, self.workspace)


@dataclass(frozen=True)
class PaperPrinting(Printing):
    """The same, or a table for a paper."""

    markdown: Annotated[bool, Option("--markdown", help="Print a Markdown table.")] = False
    latex: Annotated[bool, Option("--latex", help="Print a captioned LaTeX table (booktabs), and BibTeX.")] = False

    def __post_init__(self) -> None:
        if self.as_json + self.markdown + self.latex + (self.out is not None and self.for_paper) > 1:
            raise StoreError("choose one of --json, --markdown, --latex and --out.")

    @property
    def for_paper(self) -> bool:
        return self.markdown or self.latex


@dataclass(frozen=True)
class LabelOptions:
    """Which labels and which judge numbers rest on."""

    labels: Annotated[
        str | None,
        Option(
            callback=LABELLING_ID,
            help="`decisions` (of people, then the consensus; default), `consensus`, or a labelling's id.",
        ),
    ] = None
    rule: Annotated[str | None, Option(help="Consensus rule: `paper`, or one of the dataset.")] = None
    judge: Annotated[
        str | None, Option(help="Id or name of a judge, or any, majority or all of them. Default: the first.")
    ] = None
    grounded: Grounded = False

    def scope(self, store: Store, run_id: str) -> Scope:
        """Return the scope of a run under these options. Raises StoreError as flows.scope.resolve_scope does."""
        from cimemories.flows.scope import scope_by_words

        return scope_by_words(
            store, run_id, labels=self.labels, rule=self.rule, judge=self.judge, grounded=self.grounded
        )

    def scopes(self, store: Store, run_ids: Sequence[str]) -> list[Scope]:
        """Return the scopes of several runs in their order, each once."""
        return [self.scope(store, run_id) for run_id in dict.fromkeys(run_ids)]


@dataclass(frozen=True)
class NumberOptions(LabelOptions):
    """Everything that decides what numbers count."""

    identifiers: Annotated[str, Option(help="Attributes that never count as violations: exact, substring or none.")] = (
        "exact"
    )

    def identifier_rule(self) -> IdentifierRule:
        """Raises StoreError for a name that is no rule."""
        from cimemories.flows.arrays import IdentifierRule

        return word_of(IdentifierRule, self.identifiers, "identifier rule")


@dataclass(frozen=True)
class PlanOptions(Here):
    """Whether work is only planned, and what is planned all the same."""

    plan: Annotated[bool, Option("--plan", help="Show requests, tokens, cost and time, and stop.")] = False
    allow_too_long: AllowTooLong = False

    def __post_init__(self) -> None:
        if self.as_json and not self.plan:
            raise StoreError("--json prints the plan: give it with --plan.")


def options_of(model: type[Settings], leave_out: Collection[str] = (), several: str = "") -> Any:
    """Return a dataclass of the options for the settings of a model, for `grouped`: its values are as they are typed,
    for the model to read. several: what begins the names of options that are given for several such models."""
    options: list[Any] = []
    for item in model.described().values():
        if item.name in leave_out:
            continue
        help = f"{item.setting.help} {item.setting.option_help}".strip()
        if several:
            option = Option(item.option, metavar=item.setting.metavar, help=help)
            options.append((f"{several}{item.name}", Annotated[list[str] | None, option], None))
            continue
        names = [name for name in (item.option, item.setting.short) if name]
        # The bounds of what is typed as text are for the model to check.
        least, most = (None, None) if item.setting.typed else (item.least, item.most)
        option = Option(*names, min=least, max=most, metavar=item.setting.metavar, help=help)
        typed = item.setting.typed or (str if item.choices else item.plain)
        kind = list[str] if typed is list else typed
        if item.info.is_required():
            options.append((item.name, Annotated[kind, option]))
            continue
        default = None if typed is list else item.default
        kind = kind | None if default is None else kind
        options.append((item.name, Annotated[kind, option], str(default) if typed is str and default else default))
    return make_dataclass(f"{model.__name__}Options", options, frozen=True, kw_only=True)


def priors_by_key(text: str) -> dict[str, float]:
    """'a=0.3,b=0.7' as numbers by key. Raises StoreError that quotes the part which is none."""
    priors: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, _, number = (piece.strip() for piece in part.partition("="))
        try:
            value = float(number)
        except ValueError:
            raise StoreError(f"--priors: '{part}' is not KEY=NUMBER, e.g. pragmatic=0.64.") from None
        if not key or key in priors:
            raise StoreError(f"--priors: '{part}' names no persona, or one that was named before.")
        priors[key] = value
    return priors

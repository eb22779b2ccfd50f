"""A dataset with its labels, decisions and runs as tables of a folder (docs/formats.md).

    tables/profiles.parquet     number  ordinal  name     sex  address  age
    tables/ballots.parquet      labelling  profile  context  persona  draw  status  ...  call  verdicts
    tables/messages.parquet     number  run  profile  context  level  sample  status  ...  text  memory  recall

Rows refer to each other by number, counted from 0 in the order of the file, never by an id of a workspace; attributes
are numbered in their profile. Versions of a dataset share ordinals, with gaps for removed items; edits refer to them. A
ballot's `verdicts` has one letter for each attribute of its profile, in their order:

    N necessary   X inappropriate   ? abstain   C conflict (named as both)   - no vote
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from cimemories.formats.labelled import TOLERANCE
from cimemories.formats.official import checked_event, checked_value
from cimemories.formats.reading import (
    MOST_PROFILES,
    Count,
    FormatError,
    LongText,
    Name,
    Number,
    OneLine,
    Record,
    Statement,
    Text,
    checked,
    columns,
    file_hash,
    is_inside,
    loads,
    opened,
    unpacked,
)
from cimemories.model import (
    DOMAINS,
    GENERAL,
    JudgementStatus,
    Label,
    ResponseStatus,
    Strength,
)
from cimemories.store import calls, labellings
from cimemories.store import tables as record
from cimemories.store.archive import LETTERS, NO_VOTE, request_of
from cimemories.store.engine import StoreError, content_hash
from cimemories.store.labellings import IMPORTED
from cimemories.store.runs import LONGEST_NOTE, LONGEST_TAG, MOST_TAGS
from cimemories.store.work import ENDED
from cimemories.text import count, refused, shown

Row = dict[str, Any]

# ---- what a cell of a column may be


def _json(value: Any) -> Any:
    """Return a JSON value that both engines can hold."""
    for text in _texts(value):
        if (not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text)) or "\0" in text:
            raise refused("holds NUL or half of a surrogate pair; remove it")
    return value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        if hasattr(value, "repeated"):
            raise refused(f"holds the field '{shown(value.repeated)}' twice")
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, float) and not math.isfinite(value):
        raise refused("holds NaN or Infinity, which are not JSON")


def _object_text(text: str) -> str:
    with suppress(ValueError, RecursionError):
        if isinstance(json.loads(text), dict):
            return text
    raise refused("must be the text of a JSON object")


def one_of(*values: str) -> Any:
    """Return the type of a text that must be one of these."""
    return Literal[tuple(map(str, values))]


class _Strict(Record):
    model_config = ConfigDict(extra="forbid")


class _RecalledLine(_Strict):
    text: LongText
    attributes: list[Count]
    score: Number | None


_Json = Annotated[Any, AfterValidator(_json)]
KINDS: dict[str, Any] = {
    "name": Name,
    "line": OneLine,
    "author": Annotated[OneLine, Field(max_length=200)],
    "statement": Statement,
    "text": Text,
    "long": LongText,
    "tags": Annotated[OneLine, Field(max_length=MOST_TAGS * (LONGEST_TAG + 1))],
    "note": Annotated[Text, Field(max_length=LONGEST_NOTE)],
    "count": Count,
    "integer": Annotated[int, Field(ge=-(2**31), lt=2**31)],
    "age": Annotated[int, Field(ge=0, le=150)],
    "real": Number,
    "seconds": Annotated[Number, Field(ge=0)],
    "share": Annotated[Number, Field(ge=0, le=1)],
    "truth": bool,
    "json": _Json,
    "object": Annotated[dict[str, Any], AfterValidator(_json)],
    "value": Annotated[Any, AfterValidator(checked_value), AfterValidator(_json)],
    "event": Annotated[Name, AfterValidator(checked_event)],
    "side": Annotated[LongText, AfterValidator(_object_text)],
    "places": list[Count],
    "lines": list[_RecalledLine],
    "numbers": dict[str, Number],
    "domain": one_of(*DOMAINS, GENERAL),
    "label": one_of(*Label),
    "ended": one_of(*ENDED),
    "ballot": one_of("owed", "ok", "failed", "truncated", "unparsed"),
    "response": one_of(*ResponseStatus),
    "judgement": one_of(*JudgementStatus),
    "strength": one_of(*Strength),
    "edited": one_of("attribute", "context", "bio"),
    "edit": one_of("add", "change", "remove"),
}
_AS_JSON = ("json", "value", "object", "places", "lines", "numbers")
_ARROW = {"count": pa.int64(), "integer": pa.int64(), "age": pa.int64(), "truth": pa.bool_()}
_ARROW |= dict.fromkeys(("real", "seconds", "share"), pa.float64())  # all others are texts


@dataclass(frozen=True)
class Table:
    """The columns of a table. model: checks a row; json: columns that are JSON text in Parquet; references: the table
    that the number in a column refers to."""

    model: type[BaseModel]
    schema: pa.Schema
    json: frozenset[str]
    references: Mapping[str, str]

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)

    @property
    def required(self) -> set[str]:
        return {name for name, field in self.model.model_fields.items() if field.is_required()}


def table(name: str, text: str, source: sa.Table | None = None, **more: Any) -> Table:
    """Return the table of columns such as 'age:count cause:text? profile:>profiles'; a question mark: may be empty.

    source: a table of the record, whose columns follow but for the ids of a workspace, and of work its processes; the
    text has the kinds of some, and '-name' leaves one out. A column that the record gets later has to be one that may
    be empty: older files lack it. more: further kinds of columns."""
    kinds = {**KINDS, **more}
    chosen = {item.partition(":")[0]: item.partition(":")[2] for item in text.split()}
    left_out = {"id", "dataset", *_PROCESS, *(item[1:] for item in chosen if item.startswith("-"))}
    columns = {} if source is None else {c.name: c for c in source.c if c.name not in left_out}
    fields: dict[str, Any] = {}
    types, as_json, references = [], set(), {}
    for column in [*(name for name in chosen if name not in columns and name[0] != "-"), *columns]:
        kind = chosen.get(column) or _kind(columns[column])
        null, kind = columns[column].nullable if column in columns else kind.endswith("?"), kind.rstrip("?")
        if kind.startswith(">"):
            references[column], kind = kind[1:], "count"
        if kind in _AS_JSON:
            as_json.add(column)
        types.append(pa.field(column, _ARROW.get(kind, pa.string())))
        fields[column] = (kinds[kind] | None, None) if null else (kinds[kind], ...)
    model = create_model(name, __base__=_Strict, **fields)
    return Table(model, pa.schema(types), frozenset(as_json), references)


def _kind(column: sa.Column[Any]) -> str:
    """Return the kind of a column of the record for which none is chosen."""
    for key in column.foreign_keys:
        return "text" if key.column.table is record.call else f">{key.column.table.name}s"
    return {int: "count", float: "real", bool: "truth"}.get(column.type.python_type, "text")


_PROCESS = {c.name for c in record.work_columns()} - {"status", "error", "created", "finished"}
_SOURCES: dict[str, tuple[str, sa.Table | None]] = {
    "dataset": (
        "layout:count name:name origin:text source_name:text? source_hash:text created:text version:count "
        "simulated:truth software:text licence:text",
        None,
    ),
    "profiles": ("number:count name:name sex:name address:name age:age", record.profile),
    "attributes": (
        "number:count key:line value:value domain:domain event:event statement:statement -bio",
        record.attribute,
    ),
    "contexts": ("number:count task:name recipient:name", record.context),
    "profile_contexts": ("", record.profile_context),
    "personas": ("number:count prior:share -hash", record.persona),
    "generations": ("manifest:object status:ended error:long", record.generation),
    "labellings": ("number:count personas:places manifest:object status:ended error:long -identity", record.labelling),
    "requests": ("number:count body:object", None),
    "calls": ("request:>requests kind:name error:long response:long reasoning:long", record.call),
    "ballots": ("status:ballot verdicts:long?", record.ballot),
    "shares": (
        "profile:>profiles attribute:count necessary:share inappropriate:share abstain:share",
        record.imported_vote,
    ),
    "decisions": ("number:count profile:>profiles attribute:count label:label supersedes:count", record.decision),
    "rules": ("name:name priors:json", record.rule),
    "edits": ("kind:edited action:edit before:side after:side", record.edit),
    "prompts": ("template:long", record.prompt),
    "runs": (
        "number:count name:line model:line seed:integer parameters:object manifest:object status:ended error:long "
        "tags:tags note:note -sweep -cell -explains",
        record.run,
    ),
    "run_calls": ("", record.run_call),
    "recalls": ("number:count lines:lines cost:numbers -hash -ungrounded", record.recall),
    "messages": (
        "number:count status:response text:long reasoning:long channels:long memory:places shown:places "
        "recall:>recalls earlier:places",
        record.response,
    ),
    "judges": ("number:count model:name parameters:object", record.judge),
    "run_judges": ("settings:object -ordinal", record.run_judge),
    "judgements": ("message:>messages status:judgement -response", record.judgement),
    "reveals": (
        "message:>messages judge:>judges attribute:count quote:long strength:strength -judgement",
        record.reveal,
    ),
}
TABLES = {name: table(name, text, source) for name, (text, source) in _SOURCES.items()}

# ---- writing and reading


FOLDER = "tables"
LAYOUT = 1  # of these tables; an older reader could not know what it would leave out
LONGEST_TEXT = 16 << 20  # bytes of a text; a recorded request holds a whole prompt
NEEDED = ("dataset", "profiles", "attributes", "contexts", "profile_contexts")
_BATCH_ROWS = 2000


def write_tables(folder: Path, contents: Mapping[str, Callable[[], Iterable[Row]]]) -> dict[str, int]:
    """Write each table into a new folder `tables`; return how many rows each has."""
    (folder / FOLDER).mkdir(parents=True)
    return {
        name: write_rows(folder / FOLDER / f"{name}.parquet", TABLES[name], rows()) for name, rows in contents.items()
    }


def write_rows(path: Path, table: Table, rows: Iterable[Row]) -> int:
    """Write rows as Parquet; return how many there are."""
    total, rows = 0, iter(rows)
    with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
        while batch := list(itertools.islice(rows, _BATCH_ROWS)):
            cells = [{name: row.get(name) for name in table.names} for row in batch]
            for row in cells:
                for name in (name for name in table.json if row[name] is not None):
                    row[name] = json.dumps(row[name], ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            writer.write_table(pa.Table.from_pylist(cells, table.schema))
            total += len(batch)
    return total


def read_rows(path: Path, name: str, table: Table) -> Iterator[Row]:
    """Yield the rows of a Parquet file, called `name` in errors; a column that may be empty may be missing. Raises
    FormatError; the rows themselves are not checked."""

    def choose(names: Sequence[str]) -> list[str]:
        if missing := sorted(table.required - set(names)):
            raise FormatError(f"{name}: the column {missing[0]} is missing; export it again")
        return [column for column in table.names if column in names]

    absent = dict.fromkeys(table.names)
    with opened(path) as stream:
        for batch in columns(stream, name, choose, longest=LONGEST_TEXT, rows=_BATCH_ROWS):
            for column in table.json & batch.keys():
                # Parquet gives equal texts as one object: thousands of rows share a few requests and manifests.
                values = {text: loads(text.encode(), f"{name}: {column}") for text in set(batch[column]) - {None}}
                batch[column] = [None if text is None else values[text] for text in batch[column]]
            for cells in zip(*batch.values(), strict=True):
                yield absent | dict(zip(batch, cells, strict=True))


class Folder:
    """The tables of a folder or a zip file that `write_tables` wrote. hash: identifies their content; about: the row of
    the table `dataset`; counts: rows of each table."""

    about: Row

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.counts = dict.fromkeys(TABLES, 0)
        digest = hashlib.sha256()
        for table in TABLES:
            if self.path(table).is_file():
                with opened(self.path(table)) as stream:
                    try:
                        self.counts[table] = pq.read_metadata(stream).num_rows
                    except (pa.ArrowException, OSError) as error:
                        reason = f"not a whole Parquet file ({shown(error, 120)})"
                        raise FormatError(f"{self.file(table)}: {reason}; export it again") from None
                if table != "dataset":  # whose name and time of export do not change the content
                    digest.update(file_hash(self.path(table)).encode())
            elif table in NEEDED:
                raise FormatError(f"{self.file(table)} is missing; export it again")
        self.hash = digest.hexdigest()
        self.about = next(self.rows("dataset"), {})
        checked(TABLES["dataset"].model, self.about, self.file("dataset"))
        if self.about["layout"] > LAYOUT:
            raise FormatError(
                f"{name}: this was written by a newer version ({shown(self.about['software'])}); update this one"
            )

    def path(self, table: str) -> Path:
        return self.folder / FOLDER / f"{table}.parquet"

    def file(self, table: str) -> str:
        """Return the name of a table's file in errors."""
        return f"{self.name}: {self.path(table).relative_to(self.folder)}"

    def rows(self, table: str) -> Iterator[Row]:
        """Yield the rows of a table. Raises FormatError."""
        if self.path(table).is_file():
            yield from read_rows(self.path(table), self.file(table), TABLES[table])


def prefix_of(names: Iterable[str]) -> str | None:
    """Return the folder inside a zip file or folder that holds the tables; None if there are none."""
    end = f"{FOLDER}/dataset.parquet"
    prefixes = [n.removesuffix(end) for n in names if (n == end or n.endswith(f"/{end}")) and is_inside(n)]
    return min(prefixes, key=len, default=None)


@contextmanager
def opened_folder(path: Path) -> Iterator[Folder]:
    """Open a folder with tables, or a zip file of one. Raises FormatError."""
    ours = {f"{FOLDER}/{table}.parquet" for table in TABLES}
    with unpacked(path, lambda name: "/".join(name.split("/")[-2:]) in ours) as (folder, names):
        yield Folder(shown(path.name or path), folder / (prefix_of(names) or ""))


# ---- what must hold between rows, checked before anything is written


class Misfit(ValueError):
    """An invalid row; the message says why, without the file's name: 'persona 4 is none of the labelling's'."""


# Rows stand in the order of these columns; in those with True no two are equal. Repetitions are then neighbours,
# and no earlier rows have to be kept.
_ORDER: dict[str, tuple[tuple[str, ...], bool]] = {
    "profiles": (("ordinal",), True),
    "attributes": (("profile", "ordinal"), True),
    "contexts": (("ordinal",), False),
    "profile_contexts": (("profile", "ordinal"), False),
    "calls": (("request",), False),
    "ballots": (("labelling", "profile", "context", "persona", "draw"), True),
    "shares": (("labelling", "profile", "context", "attribute", "persona"), True),
    "run_calls": (("run", "call"), True),
    "messages": (("run", "profile"), False),
    "run_judges": (("run",), False),
    "judgements": (("message", "judge"), True),
    "reveals": (("message", "judge", "attribute"), True),
}
# Columns that identify rows; those that may be empty only if they are not.
_UNIQUE: dict[str, tuple[str, ...]] = {
    "attributes": ("profile", "key"),
    "contexts": ("task", "recipient"),
    "profile_contexts": ("profile", "context"),
    "personas": ("pack", "key", "name", "prior", "description"),
    "calls": ("key",),
    "decisions": ("uid",),
    "rules": ("name",),
    "prompts": ("hash",),
    "messages": ("run", "profile", "context", "level", "sample"),
    "judges": ("identity",),
    "run_judges": ("run", "judge"),
}
_VERDICTS = {*LETTERS.values(), NO_VOTE}
_SUPERSEDES = "supersedes must be the number of another decision of the same annotator on the same pair"


def check(content: Folder) -> None:
    """Check every row. Raises FormatError on the first invalid one."""
    checker = Check()
    for name, table in TABLES.items():
        where = content.file(name)
        for number, row in enumerate(content.rows(name)):
            checked(table.model, row, f"{where} row {number + 1}")
            try:
                checker.row(name, number, row)
            except Misfit as misfit:
                raise FormatError(f"{where} row {number + 1}: {misfit}") from None
        checker.sizes[name] = content.counts[name]
    if checker.awaited:
        which = f"row {min(checker.awaited) + 1}, which a decision supersedes"
        raise FormatError(f"{content.file('decisions')} has no {which}: {_SUPERSEDES}")
    if not checker.attributes:
        raise FormatError(f"{content.name}: there are no profiles in it")
    # Simulated votes must not arrive as real ones by an edited mark.
    if any(row["simulated"] for row in checker.labellings) and not content.about["simulated"]:
        raise FormatError(f"{content.name}: simulated is false, and a simulator voted")


class Check:
    """The state of a check: facts of earlier tables that later ones refer to."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.attributes: list[int] = []  # how many each profile has
        self.tested: set[tuple[int, int]] = set()
        self.priors: list[float] = []
        self.labellings: list[Row] = []
        self.requests: list[tuple[str, str]] = []
        self.calls: dict[str, bool] = {}
        self.decisions: list[tuple[object, ...]] = []
        # Decisions further down that are superseded: one that was merged in later can be older.
        self.awaited: dict[int, tuple[object, ...]] = {}
        self.recalls: list[int] = []  # the profile of each
        self.messages: list[int] = []  # the profile of each
        self.judged: set[tuple[int, int]] = set()
        self._seen: set[tuple[object, ...]] = set()
        self._before: tuple[int, ...] = ()

    def row(self, table: str, number: int, row: Row) -> None:
        """Check a row against those before. number: of the row in its table, from 0. Raises Misfit."""
        if number == 0:
            self._before, self._seen = (), set()
        if "number" in row and table != "attributes" and row["number"] != number:
            raise Misfit(f"number must be {number}, as rows are numbered in their order, and is {row['number']}")
        for column, other in TABLES[table].references.items():
            if row[column] is not None:
                _inside(row[column], self.sizes[other], column)
        names, strictly = _ORDER.get(table, ((), False))
        position = tuple(row[name] for name in names)
        if self._before and (position < self._before or (strictly and position == self._before)):
            raise Misfit("rows must stand in the order of what they refer to, each once")
        self._before = position
        key = tuple(row[name] for name in _UNIQUE.get(table, ()))
        if key and key != (None,):
            if key in self._seen:
                told = ", ".join(f"{name} '{shown(row[name], 40)}'" for name in _UNIQUE[table])
                raise Misfit(f"{told} appears twice")
            self._seen.add(key)
        pair = (row.get("profile"), row.get("context"))
        if table != "profile_contexts" and None not in pair and pair not in self.tested:
            raise Misfit(f"profile {row['profile']} is not tested in context {row['context']}")
        if "attribute" in row:
            profile = row["profile"] if "profile" in row else self.messages[row["message"]]
            _inside(row["attribute"], self.attributes[profile], "attribute")
        # A file without calls has their keys all the same.
        for name in ("call", "before") if self.calls and table != "edits" else ():
            if row.get(name) is not None and row[name] not in self.calls:
                raise Misfit(f"call '{shown(row[name], 40)}' is not in the table of calls")
        # By name, as in ast.NodeVisitor; simple tables have none.
        further: Callable[[Row], None] | None = getattr(self, f"check_{table}", None)
        if further is not None:
            further(row)

    def check_profiles(self, row: Row) -> None:
        self.attributes.append(0)
        if len(self.attributes) > MOST_PROFILES:
            raise Misfit(f"more than {MOST_PROFILES:,} profiles")

    def check_attributes(self, row: Row) -> None:
        profile = row["profile"]
        if row["number"] != self.attributes[profile]:
            raise Misfit(f"number must be {self.attributes[profile]}, as attributes of a profile are numbered from 0")
        self.attributes[profile] += 1

    def check_profile_contexts(self, row: Row) -> None:
        self.tested.add((row["profile"], row["context"]))

    def check_personas(self, row: Row) -> None:
        self.priors.append(row["prior"])

    def check_labellings(self, row: Row) -> None:
        _places(row["personas"], len(self.priors), "persona")
        total = sum(self.priors[voter] for voter in row["personas"])
        # Priors come as decimal fractions, whose binary sum is rarely 1 exactly.
        if abs(total - 1) > labellings.PRIOR_TOLERANCE:
            raise Misfit(f"the priors of its personas must add up to 1, and add up to {total:.6g}")
        self.labellings.append(row)

    def check_requests(self, row: Row) -> None:
        try:
            item = request_of(row["body"])
            body = calls.request_body(item)
            good = all(isinstance(text, str) for message in item.messages for text in message)
        except (KeyError, TypeError, ValueError, AttributeError):
            good = False
        if not good or content_hash(body) != content_hash(row["body"]):
            raise Misfit("body is no request to a model: it needs model and messages, each with role and content")
        self.requests.append((content_hash(body), item.model))

    def check_calls(self, row: Row) -> None:
        base, model = self.requests[row["request"]]
        server, fresh = row["server"], row["fresh"]
        more = [] if server is None and fresh is None else [server] if fresh is None else [server, fresh]
        # Recorded answers are served by key: a forged one would put an answer under a request to come.
        if row["key"] != content_hash([base, row["draw"], row["simulated"], *more]):
            raise Misfit("key is not that of its request, draw, simulated mark and server")
        if row["model"] != model:
            raise Misfit("model is not the one of its request")
        # An answer may have one: why it holds no message although text was returned.
        if row["status"] != calls.OK and row["error"] is None:
            raise Misfit("a failed call has no error")
        self.calls[row["key"]] = row["simulated"]

    def check_ballots(self, row: Row) -> None:
        labelling = self.check_shares(row, imported=False)
        if self.calls.get(row["call"], labelling["simulated"]) != labelling["simulated"]:
            raise Misfit("its call and its labelling do not agree on whether a simulator answered")
        letters, size = row["verdicts"], self.attributes[row["profile"]]
        if letters is not None and row["status"] != "ok":
            raise Misfit("only a ballot that is ok has verdicts")
        if letters is not None and (len(letters) != size or not _VERDICTS.issuperset(letters)):
            letters = "".join(sorted(_VERDICTS))
            raise Misfit(f"verdicts must have one of {letters} for each of the {size} attributes")

    def check_shares(self, row: Row, *, imported: bool = True) -> Row:
        labelling = self.labellings[row["labelling"]]
        if row["persona"] not in labelling["personas"]:
            raise Misfit(f"persona {row['persona']} is none of the labelling's")
        if (labelling["endpoint"] == IMPORTED) != imported:
            raise Misfit("an imported labelling has shares and no ballots, any other ballots and no shares")
        if imported and abs(sum(row[name] for name in ("necessary", "inappropriate", "abstain")) - 1) > TOLERANCE:
            raise Misfit("the shares must add up to 1")
        return labelling

    def check_decisions(self, row: Row) -> None:
        this = (row["profile"], row["attribute"], row["context"], row["annotator"])
        number, other = len(self.decisions), row["supersedes"]
        if other is not None:
            # A decision may supersede one further down: its requirements are noted, and checked when it comes.
            named = self.decisions[other] if other < number else self.awaited.setdefault(other, this)
            if other == number or named != this:
                raise Misfit(_SUPERSEDES)
        if self.awaited.pop(number, this) != this:
            raise Misfit(f"a decision before it says that it supersedes this one, and {_SUPERSEDES}")
        self.decisions.append(this)

    def check_rules(self, row: Row) -> None:
        try:
            labellings.check_rule(row["threshold"], *labellings.rule_numbers(row["priors"]))
        except (StoreError, ValueError) as error:
            raise Misfit(str(error).rstrip(".")) from None
        if row["current"] and ("current",) in self._seen:
            raise Misfit("at most one rule is current")
        self._seen.update([("current",)] if row["current"] else [])

    def check_prompts(self, row: Row) -> None:
        # Runs are continued with the wording that is recorded under its hash.
        if row["hash"] != hashlib.sha256(row["template"].encode()).hexdigest():
            raise Misfit("hash is not the SHA-256 of the template")

    def check_recalls(self, row: Row) -> None:
        for line in row["lines"]:
            _places(line["attributes"], self.attributes[row["profile"]], "attribute")
        self.recalls.append(row["profile"])

    def check_messages(self, row: Row) -> None:
        size = self.attributes[row["profile"]]
        for name, most in (("memory", size), ("shown", size), ("earlier", self.sizes["contexts"])):
            _places(row[name] or [], most, name)
        if row["recall"] is not None and self.recalls[row["recall"]] != row["profile"]:
            raise Misfit("its recall is of another profile")
        self.messages.append(row["profile"])

    def check_judgements(self, row: Row) -> None:
        self.judged.add((row["message"], row["judge"]))

    def check_reveals(self, row: Row) -> None:
        if (row["message"], row["judge"]) not in self.judged:
            raise Misfit("there is no such judgement")


def _places(places: Sequence[int], size: int, name: str) -> None:
    for place in places:
        _inside(place, size, name)
    if len(set(places)) < len(places):
        raise Misfit(f"{name} {places} has a number twice")


def _inside(number: int, size: int, name: str) -> None:
    if not 0 <= number < size:
        raise Misfit(f"{name} {number} is not there; its table has {size} rows")


def notes_of(content: Folder) -> list[str]:
    """Return notes on what the tables import beside profiles."""
    names = ("labellings", "ballots", "shares", "decisions", "rules", "runs", "messages", "judgements")
    listed = ", ".join(count(rows, name.removesuffix("s")) for name in names if (rows := content.counts[name]))
    notes = [f"the file brings {listed}" if listed else "the file brings profiles without any labels"]
    return [*notes, "it is marked simulated: a simulator voted or wrote"] if content.about["simulated"] else notes

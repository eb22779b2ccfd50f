"""Our own bundle: a dataset with every vote, call, decision, rule and edit, as JSON lines or Parquet (docs/formats.md).

    manifest.json      what this is, where it comes from, licence, counts, and a hash of every table
    ballots.jsonl      {"labelling": 0, "profile": 0, "context": 0, "persona": 0, "draw": 0, "status": "ok", ...}

The manifest's `content` is one hash over all tables, the same for both encodings, and independent of names and ids: a
dataset that is exported, imported under another name and exported again has the same.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from cimemories.files import NotAFileError, open_regular
from cimemories.formats import huggingface
from cimemories.formats.labelled import TOLERANCE
from cimemories.formats.official import (
    MOST_PROFILES,
    FormatError,
    checked_value,
    forbidden,
    kind,
    loads,
    opened,
    shown,
    too_long,
)
from cimemories.model import DOMAINS, GENERAL, LONGEST_NAME, LONGEST_STATEMENT, Label, canonical_domain, canonical_event
from cimemories.store import calls, labellings
from cimemories.store.archive import LETTERS, NO_VOTE, request_of
from cimemories.store.engine import StoreError, content_hash
from cimemories.store.labellings import IMPORTED
from cimemories.store.work import ENDED

# ---- bundle check
#
# What must hold between the rows of a bundle, checked before anything is written; tables come in their order.
#
# A row that does not fit is a sentence without the file's name, e.g. "persona 4 is none of the labelling's".


BALLOTS = ("owed", "ok", "failed", "truncated", "unparsed")
CALLS = ("generate", "label", "respond", "judge")
# What may be longer than a statement; the statement itself is looked at with the name of its attribute.
_LONG = ("statement", "response", "reasoning", "error", "before", "after", "verdicts")
_VERDICTS = {*LETTERS.values(), NO_VOTE}
_OLDEST = 150  # years
_SUPERSEDES = "supersedes must be the number of another decision of the same annotator on the same pair"
Row = dict[str, Any]


class Misfit(ValueError):
    """A row that cannot be; the message says why."""


class Check:
    """Knows of the tables before what later ones refer to."""

    def __init__(self) -> None:
        self.attributes: list[int] = []  # how many each profile has
        self.contexts: set[tuple[str, str]] = set()
        self.tested: set[tuple[int, int]] = set()
        self.priors: list[float] = []
        self.personas: set[str] = set()
        self.labellings: list[Row] = []
        self.requests: list[tuple[str, str]] = []
        self.calls: dict[str, bool] = {}
        self.decisions: list[tuple[object, ...]] = []
        self.uids: set[str] = set()
        # Decisions further down that are superseded: one that was merged in later can be older.
        self._awaited: dict[int, tuple[object, ...]] = {}
        self.rules: dict[str, bool] = {}
        self._keys: set[str] = set()
        self._before: tuple[int, ...] = ()

    def row(self, table: str, number: int, row: Row) -> None:
        """Raises Misfit where the row does not fit to those before. `number` counts the rows of its table from 0."""
        if number == 0:
            self._before = ()
        # Before the table's own checks, which look at texts by pattern and hash.
        for name, text in row.items():
            if isinstance(text, str) and len(text) > LONGEST_STATEMENT and name not in _LONG:
                raise Misfit(f"{name} {too_long(len(text), LONGEST_STATEMENT)}")
        if "number" in row and table != "attributes" and row["number"] != number:
            raise Misfit(f"number must be {number}, as rows are numbered in their order, and is {row['number']}")
        # By name, as ast.NodeVisitor does it; tables that are not read (labels) have none.
        check: Callable[[Row], None] | None = getattr(self, f"check_{table}", None)
        if check is not None:
            check(row)

    def check_profiles(self, row: Row) -> None:
        for name in ("name", "sex", "address"):
            _written(row, name)
        if not 0 <= row["age"] <= _OLDEST:
            raise Misfit(f"age must be a number of years from 0 to {_OLDEST}")
        self._ascending((row["ordinal"],), strictly=True)
        self.attributes.append(0)
        if len(self.attributes) > MOST_PROFILES:
            raise Misfit(f"more than {MOST_PROFILES:,} profiles")

    def check_attributes(self, row: Row) -> None:
        profile = self._in(row, "profile", len(self.attributes))
        self._ascending((profile, row["ordinal"]), strictly=True)
        if self.attributes[profile] == 0:
            self._keys = set()
        if row["number"] != self.attributes[profile]:
            raise Misfit(f"number must be {self.attributes[profile]}, as attributes of a profile are numbered from 0")
        _written(row, "key")
        try:
            _written(row, "statement", LONGEST_STATEMENT)
        except Misfit as misfit:
            raise Misfit(f"profile {profile}, attribute '{shown(row['key'])}': {misfit}") from None
        if row["key"] in self._keys:
            raise Misfit(f"key '{shown(row['key'])}' appears twice in profile {profile}")
        self._keys.add(row["key"])
        if row["domain"] not in (*DOMAINS, GENERAL) or row["domain"] != canonical_domain(row["domain"]):
            raise Misfit(f"domain '{shown(row['domain'])}' is none of {', '.join((*DOMAINS, GENERAL))}")
        _written(row, "event")
        if not canonical_event(row["event"]):
            raise Misfit("event is blank; write the life event or 'general'")
        try:
            checked_value(row["value"])
        except PydanticCustomError as error:
            raise Misfit(f"profile {profile}, attribute '{shown(row['key'])}': value {error.message()}") from None
        self.attributes[profile] += 1

    def check_contexts(self, row: Row) -> None:
        _written(row, "task")
        _written(row, "recipient")
        self._ascending((row["ordinal"],), strictly=False)
        pair = (row["task"], row["recipient"])
        if pair in self.contexts:
            raise Misfit(f"task '{shown(pair[0])}' with recipient '{shown(pair[1])}' appears twice")
        self.contexts.add(pair)

    def check_profile_contexts(self, row: Row) -> None:
        pair = self._pair(row)
        self._ascending((pair[0], row["ordinal"]), strictly=False)
        if pair in self.tested:
            raise Misfit("the same profile and context stand twice")
        self.tested.add(pair)

    def check_personas(self, row: Row) -> None:
        content = content_hash([row[name] for name in ("pack", "key", "name", "prior", "description")])
        if content in self.personas:
            raise Misfit("the same persona appears twice")
        if not 0 <= row["prior"] <= 1:
            raise Misfit("prior must be a share from 0 to 1")
        self.personas.add(content)
        self.priors.append(row["prior"])

    def check_generations(self, row: Row) -> None:
        if row["status"] not in ENDED:
            raise Misfit(f"status '{shown(row['status'])}' is none of {', '.join(ENDED)}")
        if not isinstance(row["manifest"], dict):
            raise Misfit("manifest must be an object")

    def check_labellings(self, row: Row) -> None:
        self.check_generations(row)
        voters = row["personas"]
        if not isinstance(voters, list) or not voters or len({str(v) for v in voters}) < len(voters):
            raise Misfit("personas must be a list of numbers, each once")
        for voter in voters:
            if isinstance(voter, bool) or not isinstance(voter, int) or not 0 <= voter < len(self.priors):
                raise Misfit(f"persona {shown(voter)} is not in the table of personas")
        total = sum(self.priors[voter] for voter in voters)
        # Priors come as decimal fractions, whose binary sum is rarely 1 exactly.
        if abs(total - 1) > labellings.PRIOR_TOLERANCE:
            raise Misfit(f"the priors of its personas must add up to 1, and add up to {total:.6g}")
        if row["draws"] < 0:
            raise Misfit("draws must not be below 0")
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
        number = self._in(row, "request", len(self.requests))
        self._ascending((number,), strictly=False)
        base, model = self.requests[number]
        server = [] if row["server"] is None else [row["server"]]
        # Recorded answers are served by key: a forged one would put an answer under somebody's future request.
        if row["key"] != content_hash([base, row["draw"], row["simulated"], *server]):
            raise Misfit("key is not that of its request, draw, simulated mark and server")
        if row["key"] in self.calls:
            raise Misfit("the same call appears twice")
        if row["model"] != model:
            raise Misfit("model is not the one of its request")
        if row["kind"] not in CALLS:
            raise Misfit(f"kind '{shown(row['kind'])}' is none of {', '.join(CALLS)}")
        if (row["status"] == calls.OK) != (row["error"] is None):
            raise Misfit("an answer has no error, and a failure has one")
        self.calls[row["key"]] = row["simulated"]

    def check_ballots(self, row: Row) -> None:
        labelling = self._voted(row, ("context", "persona", "draw"), imported=False)
        if row["status"] not in BALLOTS:
            raise Misfit(f"status '{shown(row['status'])}' is none of {', '.join(BALLOTS)}")
        if min(row["draw"], row["conflicts"], row["unknown"]) < 0:
            raise Misfit("draw, conflicts and unknown must not be below 0")
        key, letters = row["call"], row["verdicts"]
        if key is not None and self.calls and key not in self.calls:
            raise Misfit(f"call '{shown(key, 40)}' is not in the table of calls")
        if key is not None and self.calls.get(key, labelling["simulated"]) != labelling["simulated"]:
            raise Misfit("its call and its labelling do not agree on whether a simulator answered")
        if letters is None:
            return
        if row["status"] != "ok":
            raise Misfit("only a ballot that is ok has verdicts")
        if len(letters) != self.attributes[row["profile"]] or not _VERDICTS.issuperset(letters):
            raise Misfit(
                f"verdicts must have one of {''.join(sorted(_VERDICTS))} for each of the "
                f"{self.attributes[row['profile']]} attributes"
            )

    def check_shares(self, row: Row) -> None:
        self._voted(row, ("context", "attribute", "persona"), imported=True)
        self._in(row, "attribute", self.attributes[row["profile"]])
        shares = [row[name] for name in ("necessary", "inappropriate", "abstain")]
        if not all(0 <= share <= 1 for share in shares) or abs(sum(shares) - 1) > TOLERANCE:
            raise Misfit("the shares must lie from 0 to 1 and add up to 1")

    def _voted(self, row: Row, further: tuple[str, ...], *, imported: bool) -> Row:
        labelling = self.labellings[self._in(row, "labelling", len(self.labellings))]
        self._check_tested(row)
        if row["persona"] not in labelling["personas"]:
            raise Misfit(f"persona {row['persona']} is none of the labelling's")
        if (labelling["endpoint"] == IMPORTED) != imported:
            raise Misfit("an imported labelling has shares and no ballots, any other ballots and no shares")
        self._ascending((row["labelling"], row["profile"], *(row[name] for name in further)), strictly=True)
        return labelling

    def check_decisions(self, row: Row) -> None:
        profile = self._in(row, "profile", len(self.attributes))
        self._in(row, "attribute", self.attributes[profile])
        self._check_tested(row)
        if row["label"] is not None and row["label"] not in list(Label):
            raise Misfit(f"label '{shown(row['label'])}' is none of {', '.join(Label)}")
        if row["uid"] is not None and (not row["uid"].strip() or row["uid"] in self.uids):
            raise Misfit("uid must be no blank text, and each stands once")
        self.uids.update([row["uid"]] if row["uid"] is not None else ())
        this = (profile, row["attribute"], row["context"], row["annotator"])
        number, other = len(self.decisions), row["supersedes"]
        if other is not None:
            # A decision may supersede one further down: what it must be is noted, and checked when it comes.
            known = self.decisions[other] if 0 <= other < number else self._awaited.setdefault(other, this)
            if other < 0 or other == number or known != this:
                raise Misfit(_SUPERSEDES)
        if self._awaited.pop(number, this) != this:
            raise Misfit(f"a decision before it says that it supersedes this one, and {_SUPERSEDES}")
        self.decisions.append(this)

    def unfinished(self) -> str:
        """What is still missing when all rows were seen, as a sentence; '' where nothing is."""
        if not self._awaited:
            return ""
        return f"has no row {min(self._awaited) + 1}, which a decision supersedes: {_SUPERSEDES}"

    def check_rules(self, row: Row) -> None:
        _written(row, "name")
        try:
            labellings.check_rule(row["threshold"], *labellings.rule_numbers(row["priors"]))
        except (StoreError, ValueError) as error:
            raise Misfit(str(error).rstrip(".")) from None
        if row["name"] in self.rules or (row["current"] and any(self.rules.values())):
            raise Misfit("each name stands once, and at most one rule is current")
        self.rules[row["name"]] = row["current"]

    def check_edits(self, row: Row) -> None:
        if row["kind"] not in ("attribute", "context", "bio") or row["action"] not in ("add", "change", "remove"):
            raise Misfit("kind must be attribute, context or bio, and action add, change or remove")
        for side in ("before", "after"):
            try:
                good = row[side] is None or isinstance(json.loads(row[side]), dict)
            except (ValueError, RecursionError):
                good = False
            if not good:
                raise Misfit(f"{side} must be the text of a JSON object")

    def _pair(self, row: Row) -> tuple[int, int]:
        return self._in(row, "profile", len(self.attributes)), self._in(row, "context", len(self.contexts))

    def _check_tested(self, row: Row) -> None:
        profile, context = pair = self._pair(row)
        if pair not in self.tested:
            raise Misfit(f"profile {profile} is not tested in context {context}")

    def _in(self, row: Row, name: str, size: int) -> int:
        value: int = row[name]
        if not 0 <= value < size:
            raise Misfit(f"{name} {value} is not there; its table has {size} rows")
        return value

    def _ascending(self, position: tuple[int, ...], *, strictly: bool) -> None:
        # In order, repetitions are neighbours: nothing of the rows before has to be kept to see one.
        if position < self._before or (strictly and position == self._before):
            raise Misfit("rows must stand in the order of what they refer to, each once")
        self._before = position


def _written(row: Row, name: str, longest: int = LONGEST_NAME) -> None:
    if len(row[name]) > longest:
        raise Misfit(f"{name} {too_long(len(row[name]), longest)}")
    if not row[name].strip() or forbidden(row[name]):
        raise Misfit(f"{name} is blank or holds control characters")
    if name == "key" and "".join(row[name].splitlines()) != row[name]:
        raise Misfit("key holds a line break")


# ---- bundle tables
#
# The tables of our own bundle, and what a cell of each column may be.
#
# Rows refer to each other by number, counted from 0 in the order of the file, never by an id of a workspace. Ordinals
# are what the versions of a dataset share, with gaps where something was removed; edits speak of them. A ballot's
# `verdicts` has one letter for each attribute of its profile, in their order:
#
#     N necessary   X inappropriate   ? abstain   C conflict (named as both)   - no vote


Kind = Literal["text", "integer", "real", "truth", "json"]
MOST = 2**31 - 1  # PostgreSQL's INTEGER
_UNKEPT = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True)
class Column:
    """`null`: whether a cell may be empty. `json`: any JSON value; as text in Parquet."""

    name: str
    kind: Kind
    null: bool = False


def columns(text: str) -> tuple[Column, ...]:
    """'age:integer cause:text?' as columns; a question mark: may be empty."""
    columns_ = []
    for item in text.split():
        name, _, kind_ = item.partition(":")
        columns_.append(Column(name, kind_.rstrip("?"), kind_.endswith("?")))  # type: ignore[arg-type]
    return tuple(columns_)


TABLES: dict[str, tuple[Column, ...]] = {
    "profiles": columns("number:integer ordinal:integer name:text sex:text address:text age:integer"),
    "attributes": columns(
        "profile:integer number:integer ordinal:integer key:text value:json domain:text event:text statement:text"
    ),
    "contexts": columns("number:integer ordinal:integer task:text recipient:text sphere:text?"),
    "profile_contexts": columns("profile:integer context:integer ordinal:integer"),
    "personas": columns("number:integer pack:text key:text name:text prior:real description:text"),
    "generations": columns(
        "name:text model:text endpoint:text simulated:truth manifest:json status:text error:text? created:text "
        "finished:text?"
    ),
    "labellings": columns(
        "number:integer model:text endpoint:text simulated:truth pack:text draws:integer personas:json manifest:json "
        "status:text error:text? created:text finished:text?"
    ),
    "requests": columns("number:integer body:json"),
    "calls": columns(
        "key:text request:integer kind:text model:text endpoint:text simulated:truth draw:integer exchange:text "
        "status:text error:text? response:text? reasoning:text? finish_reason:text? prompt_tokens:integer? "
        "cached_tokens:integer? completion_tokens:integer? seconds:real started:text attempts:integer server:text?"
    ),
    "ballots": columns(
        "labelling:integer profile:integer context:integer persona:integer draw:integer status:text cause:text? "
        "conflicts:integer unknown:integer call:text? verdicts:text?"
    ),
    "shares": columns(
        "labelling:integer profile:integer attribute:integer context:integer persona:integer necessary:real "
        "inappropriate:real abstain:real"
    ),
    "decisions": columns(
        "number:integer profile:integer attribute:integer context:integer annotator:text label:text? reason:text "
        "seconds:real? source:text batch:text? blind:truth supersedes:integer? created:text uid:text? guideline:text? "
        "cause:text?"
    ),
    "rules": columns("name:text threshold:real priors:json current:truth annotator:text created:text"),
    "edits": columns(
        "profile:integer? kind:text action:text before:text? after:text? annotator:text reason:text created:text"
    ),
    # Made from the others: what every pair is labelled now, by which rule or person. Left out when a bundle is read.
    "labels": columns(
        "profile:integer attribute:integer key:text context:integer label:text source:text annotator:text? rule:text? "
        "simulated:truth"
    ),
}
DERIVED = ("labels",)
VERSION = 3
# Columns that bundles of an earlier version do not have; they are read as empty.
ADDED: dict[int, dict[str, tuple[str, ...]]] = {
    2: {"decisions": ("uid", "guideline", "cause")},
    3: {"calls": ("server",)},
}


@cache
def columns_of(table: str, version: int = VERSION) -> tuple[Column, ...]:
    """The columns of a table in a bundle of that version."""
    later = {name for since, added in ADDED.items() if since > version for name in added.get(table, ())}
    return tuple(column for column in TABLES[table] if column.name not in later)


def complaint(columns: Sequence[Column], row: Any) -> str:
    """What is wrong with the types of a row that has these columns; '' where nothing is."""
    if not isinstance(row, dict):
        return f"must be an object, not {kind(row)}"
    if hasattr(row, "repeated"):
        return f"field '{shown(row.repeated)}' appears twice"
    for column in columns:
        if column.name not in row:
            return f"{column.name} is missing"
        problem = _cell(column, row[column.name])
        if problem:
            return f"{column.name} {problem}"
    if len(row) > len(columns):
        extra = next(name for name in row if name not in {c.name for c in columns})
        return f"field '{shown(extra)}' is not known"
    return ""


def _cell(column: Column, value: Any) -> str:
    if column.kind == "json":
        return _json(value)
    if value is None:
        return "" if column.null else "is missing"
    match column.kind:
        case "text":
            fits = isinstance(value, str)
        case "integer":
            fits = isinstance(value, int) and not isinstance(value, bool) and -MOST <= value <= MOST
        case "real":
            fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        case "truth":
            fits = isinstance(value, bool)
    if not fits:
        wanted = {"text": "text", "integer": "a whole number", "real": "a finite number", "truth": "true or false"}
        return f"must be {wanted[column.kind]}, not {kind(value)} {shown(value, 40)}"
    return _text(value) if isinstance(value, str) else ""


def _text(value: str) -> str:
    """No engine keeps NUL, and none but JSON keeps half of a surrogate pair."""
    # An ASCII text, the usual case, can only hold NUL, and that is found faster than by a pattern.
    if not value.isascii() or "\0" in value:
        return "holds NUL or half of a surrogate pair; remove it" if _UNKEPT.search(value) else ""
    return ""


def _json(value: Any) -> str:
    if isinstance(value, Mapping) and hasattr(value, "repeated"):
        return f"holds the field '{shown(value.repeated)}' twice"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "holds NaN or Infinity, which are not JSON"
    inner = list(value) + list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return next((problem for item in inner if (problem := _json(item))), "")


_compact = partial(json.dumps, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def line_of(table: str, row: Mapping[str, Any], version: int = VERSION) -> str:
    """A row as its one line of JSON, columns in their order. Raises ValueError for NaN."""
    plain = {column.name: row[column.name] for column in columns_of(table, version)}
    for column in columns_of(table, version):
        # A whole number in a column of numbers is written as the other engine gives it back: 1.0, not 1.
        if column.kind == "real" and plain[column.name] is not None:
            plain[column.name] = float(plain[column.name])
    return _compact(plain)


# ---- bundle files
#
# A bundle on disk: a folder or a zip file with one file a table, as JSON lines or as Parquet, and manifest.json.
#
# The names of the files are fixed: nothing of a zip is unpacked under a name that stands in it. Tables are read as a
# stream, checked against the row count and hash of the manifest; both encodings have the same hash, which is that of
# the JSON lines.


Encoding = Literal["jsonl", "parquet"]
MANIFEST = "manifest.json"
LARGEST_MANIFEST = 4 << 20  # bytes; it is read whole, before anything of it is known
LONGEST_LINE = 32 << 20  # bytes; without a limit a file without line breaks would be read whole
LONGEST_CELL = 16 << 20  # bytes of a text in Parquet; a recorded request holds a whole prompt
MOST_UNPACKED = 8 << 30  # bytes of all entries: a small zip can unpack to more than a disk holds
_ROWS = 2000
_OLD = (1980, 1, 1, 0, 0, 0)  # a date for zip entries, so that the same content gives the same bytes
_TYPES = {"text": pa.string(), "integer": pa.int64(), "real": pa.float64(), "truth": pa.bool_(), "json": pa.string()}


_BAD_ZIP = (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error)


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class Written(_Part):
    """One table as it was written: number of rows, and SHA-256 of its JSON lines."""

    rows: int = Field(ge=0)
    sha256: str


class _Dataset(_Part):
    name: str = Field(min_length=1, max_length=500)


class Manifest(_Part):
    """What a bundle says of itself. `content`: the hash that tells it from others."""

    format: Literal["cimemories-bundle"]
    version: Literal[1, 2, 3]
    encoding: Encoding
    content: str
    simulated: bool
    dataset: _Dataset
    tables: dict[str, Written]

    def notes(self) -> list[str]:
        """What the bundle brings beside profiles, for whoever imports it."""
        counts = {table: self.tables[table].rows for table in ("labellings", "ballots", "shares", "decisions", "rules")}
        listed = ", ".join(f"{count:,} {table}" for table, count in counts.items() if count)
        notes = [f"the bundle brings {listed}" if listed else "the bundle brings profiles without any labels"]
        if self.simulated:
            notes.append("the bundle is marked simulated: a simulator voted or wrote")
        return notes


def write_table(folder: Path, table: str, rows: Iterable[dict[str, Any]], encoding: Encoding) -> Written:
    """Write one table into a folder that is there."""
    digest, count = hashlib.sha256(), 0
    path, columns = folder / f"{table}.{encoding}", TABLES[table]
    with ExitStack() as stack:
        if encoding == "jsonl":
            lines = stack.enter_context(path.open("wb"))
        else:
            writer = stack.enter_context(pq.ParquetWriter(path, schema_of(columns), compression="zstd"))
        waiting: list[dict[str, Any]] = []
        for row in rows:
            line = f"{line_of(table, row)}\n".encode()
            # Of the JSON lines in both encodings, so that a bundle's hash does not depend on how it is packed.
            digest.update(line)
            count += 1
            if encoding == "jsonl":
                lines.write(line)
                continue
            waiting.append({c.name: _compact(row[c.name]) if c.kind == "json" else row[c.name] for c in columns})
            if len(waiting) >= _ROWS:
                writer.write_table(pa.Table.from_pylist(waiting, schema_of(columns)))
                waiting = []
        if encoding == "parquet" and waiting:
            writer.write_table(pa.Table.from_pylist(waiting, schema_of(columns)))
    return Written(rows=count, sha256=digest.hexdigest())


def pack_bundle(folder: Path, path: Path) -> None:
    """The files of a folder as one zip file; the same content gives the same bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.iterdir(), key=lambda item: (item.name != MANIFEST, item.name)):
            entry = zipfile.ZipInfo(file.name, _OLD)
            entry.compress_type = zipfile.ZIP_STORED if file.suffix == ".parquet" else zipfile.ZIP_DEFLATED
            # Readable by all, in the upper half as Unix has it; without it Python writes 0600, for the owner alone.
            entry.external_attr = 0o644 << 16
            with file.open("rb") as source, archive.open(entry, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target, 1 << 20)


@contextmanager
def opened_bundle(path: Path) -> Iterator[Bundle]:
    """The bundle at a path, folder or zip. Raises FormatError where there is none that can be read."""
    name = shown(path.name or path)
    with ExitStack() as stack:
        try:
            if path.is_dir():
                yield Bundle(name, _Folder(path))
            else:
                archive = stack.enter_context(zipfile.ZipFile(stack.enter_context(opened(path))))
                scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                yield Bundle(name, _Zip(archive, name, scratch))
        except _BAD_ZIP as error:
            raise FormatError(f"{name}: not a whole zip file ({shown(error)}); fetch it again") from None
        except OSError as error:
            raise FormatError(f"{name}: cannot be read ({shown(error.strerror or error)})") from None


class _Folder:
    """Files in a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names = sorted(item.name for item in path.iterdir())

    @contextmanager
    def open(self, file: str) -> Iterator[BinaryIO]:
        try:
            stream = open_regular(self.path / file)
        except NotAFileError as error:
            raise FormatError(f"{shown(self.path.name)}: {file} is {error.strerror}, no plain file") from None
        with stream:
            yield stream


class _Zip:
    """Entries of a zip file. Sizes are those that come out, whatever its directory says."""

    def __init__(self, archive: zipfile.ZipFile, name: str, scratch: Path) -> None:
        self.archive, self.name, self.scratch = archive, name, scratch
        self.names = [item.filename for item in archive.infolist()]
        # Comparing all with all is quadratic; a bundle has a few files, and a zip of a thousand is none.
        twice = next((n for n in self.names if self.names.count(n) > 1), None) if len(self.names) < 1000 else ""
        if twice is not None:
            raise FormatError(f"{name}: '{shown(twice)}' appears twice in the zip file; a bundle has each file once")
        if sum(item.file_size for item in archive.infolist()) > MOST_UNPACKED:
            raise FormatError(f"{name}: more than {MOST_UNPACKED >> 30} GiB when unpacked; that is no bundle of ours")
        if any(item.flag_bits & 1 for item in archive.infolist()):
            raise FormatError(f"{name}: the zip file is encrypted; pack it without a password")

    @contextmanager
    def open(self, file: str) -> Iterator[BinaryIO]:
        entry = self.archive.getinfo(file)
        if not file.endswith(".parquet"):
            with self.archive.open(entry) as stream:
                yield cast(BinaryIO, stream)
            return
        # Parquet is read from its end, so it needs a file of its own.
        copy = self.scratch / file
        if not copy.exists():
            # The directory of a zip may lie: bytes are counted as they come out.
            left = entry.file_size
            with self.archive.open(entry) as source, copy.open("wb") as target:
                while data := source.read(1 << 20):
                    left -= len(data)
                    if left < 0:
                        raise FormatError(f"{self.name}: {file} is larger than the zip file says")
                    target.write(data)
        with copy.open("rb") as stream:
            yield stream


class Bundle:
    """An open bundle: its manifest, and its tables as often as they are read."""

    def __init__(self, name: str, container: _Folder | _Zip) -> None:
        self.name, self._container = name, container
        if MANIFEST not in container.names:
            raise FormatError(f"{name}: there is no {MANIFEST} in it, so it is no bundle of ours")
        with container.open(MANIFEST) as stream:
            data = stream.read(LARGEST_MANIFEST + 1)
        if len(data) > LARGEST_MANIFEST:
            raise FormatError(f"{name}: {MANIFEST} is larger than {LARGEST_MANIFEST >> 20} MiB")
        self.manifest = _manifest(loads(data, f"{name}: {MANIFEST}"), f"{name}: {MANIFEST}")
        wanted = {MANIFEST, *(f"{table}.{self.manifest.encoding}" for table in TABLES)}
        if missing := sorted(wanted - set(container.names)):
            raise FormatError(f"{name}: {missing[0]} is missing in it; export the bundle again")
        if extra := sorted(set(container.names) - wanted):
            raise FormatError(f"{name}: '{shown(extra[0])}' is no file of a bundle; remove it")

    def rows(self, table: str) -> Iterator[Row]:
        """The rows of one table, types checked; at the end their number and hash must be what the manifest tells. What
        a bundle of an earlier version does not have is None."""
        encoding, version, written = self.manifest.encoding, self.manifest.version, self.manifest.tables[table]
        columns = columns_of(table, version)
        # Left out of the hash too: it was made when the columns did not exist.
        later = {column.name: None for column in TABLES[table] if column not in columns}
        digest, count, where = hashlib.sha256(), 0, f"{self.name}: {table}.{encoding}"
        with self._container.open(f"{table}.{encoding}") as stream:
            for row in _lines(stream, where) if encoding == "jsonl" else _parquet(stream, columns, where):
                count += 1
                # At once and not at the end: a table that goes on for ever must not be read for ever.
                if count > written.rows:
                    raise FormatError(f"{where}: there are more rows than the {written.rows} that {MANIFEST} tells")
                if problem := complaint(columns, row):
                    raise FormatError(f"{where} row {count}: {problem}")
                digest.update(f"{line_of(table, row, version)}\n".encode())
                yield {**row, **later} if later else row
        if count != written.rows:
            raise FormatError(
                f"{where}: {count} rows, and {MANIFEST} tells of {written.rows}; the file was cut or changed"
            )
        if digest.hexdigest() != written.sha256:
            raise FormatError(f"{where}: the content is not what {MANIFEST} tells (sha256); it was changed afterwards")


def _lines(stream: IO[bytes], where: str) -> Iterator[Any]:
    number = 0
    while line := stream.readline(LONGEST_LINE):
        number += 1
        if not line.endswith(b"\n"):
            raise FormatError(
                f"{where} row {number}: the line has no end; the file was cut off or is no bundle of ours"
            )
        yield loads(line, f"{where} row {number}")


def _parquet(stream: BinaryIO, columns: Sequence[Column], where: str) -> Iterator[Any]:
    schema = schema_of(columns)

    def choose(stored: pa.Schema) -> list[str]:
        if [(field.name, field.type) for field in stored] != [(field.name, field.type) for field in schema]:
            raise FormatError(f"{where}: the columns are not those of this table: {', '.join(schema.names)}")
        return list(schema.names)

    for batch in huggingface.columns(stream, where, choose, rows=_ROWS, longest=LONGEST_CELL, hint="export it again"):
        for column in columns:
            if column.kind == "json":
                batch[column.name] = _parsed(batch[column.name], f"{where}: {column.name}")
        for cells in zip(*batch.values(), strict=True):
            yield dict(zip(batch, cells, strict=True))


def _parsed(texts: list[str | None], where: str) -> list[Any]:
    """JSON values from their texts, each text read once."""
    # Parquet gives equal texts as one object: thousands of rows share a few requests and manifests.
    values = {text: loads(text.encode(), where) for text in set(texts) if text is not None}
    return [None if text is None else values[text] for text in texts]


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """Columns as Parquet keeps them."""
    return pa.schema([pa.field(column.name, _TYPES[column.kind]) for column in columns])


# ---- bundle


FORMAT = "cimemories-bundle"
READ = tuple(range(1, VERSION + 1))


def write_bundle(
    path: Path,
    encoding: Encoding,
    tables: Mapping[str, Callable[[], Iterable[dict[str, Any]]]],
    about: Mapping[str, Any],
    *,
    zipped: bool,
) -> None:
    """Write a bundle as a folder or a zip file that is not there yet.

    about: the parts of the manifest that are not counted here (dataset, simulated, licence, ...).
    """
    folder = path.with_name(f"{path.name}-folder") if zipped else path
    folder.mkdir()
    written = {table: write_table(folder, table, tables[table](), encoding) for table in TABLES}
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "encoding": encoding,
        "content": _content(written),
        **about,
        "tables": {table: {"rows": w.rows, "sha256": w.sha256} for table, w in written.items()},
    }
    text = json.dumps(manifest, ensure_ascii=False, allow_nan=False, indent=2) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8")
    if zipped:
        pack_bundle(folder, path)
        shutil.rmtree(folder)


def _manifest(raw: Any, where: str) -> Manifest:
    """The manifest, checked by itself. Raises FormatError that names the field."""
    version = raw.get("version") if isinstance(raw, dict) else None
    if isinstance(raw, dict) and raw.get("format") == FORMAT and version not in READ:
        raise FormatError(
            f"{where}: version {shown(version)} of the format is not known here, only 1 to {VERSION}; update "
            "CIMemories Studio, or export again with this version"
        )
    try:
        manifest = Manifest.model_validate(raw)
    except ValidationError as problem:
        first = problem.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the manifest"
        raise FormatError(f"{where}: {shown(field)}: {shown(first['msg'])}") from None
    if forbidden(manifest.dataset.name) or not manifest.dataset.name.strip():
        raise FormatError(f"{where}: dataset.name is blank or holds control characters")
    missing = [table for table in TABLES if table not in manifest.tables]
    if missing or len(manifest.tables) > len(TABLES):
        what = f"does not tell of {missing[0]}" if missing else "tells of tables that are not known"
        raise FormatError(f"{where} {what}; export the bundle again")
    if manifest.content != _content(manifest.tables):
        raise FormatError(f"{where}: content is not the hash of its tables; it was changed")
    return manifest


def check(bundle: Bundle) -> None:
    """Look at every row of a bundle. Raises FormatError on the first that does not fit."""
    manifest, checker = bundle.manifest, Check()
    for table in TABLES:
        for number, row in enumerate(bundle.rows(table)):
            try:
                checker.row(table, number, row)
            except Misfit as misfit:
                raise FormatError(f"{bundle.name}: {table}.{manifest.encoding} row {number + 1}: {misfit}") from None
    if problem := checker.unfinished():
        raise FormatError(f"{bundle.name}: decisions.{manifest.encoding} {problem}")
    if not checker.attributes:
        raise FormatError(f"{bundle.name}: there are no profiles in it")
    # Simulated votes must not arrive as real ones by an edited manifest.
    if any(row["simulated"] for row in checker.labellings) and not manifest.simulated:
        raise FormatError(f"{bundle.name}: {MANIFEST}: simulated is false, and a simulator voted")


# `labels` follows from the other tables, so it does not make another dataset.
def _content(tables: Mapping[str, Written]) -> str:
    return content_hash([[t, tables[t].rows, tables[t].sha256] for t in TABLES if t not in DERIVED])

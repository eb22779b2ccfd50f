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
from sys import float_info
from typing import IO, Any, BinaryIO, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cimemories.files import NotAFileError, open_regular
from cimemories.formats import huggingface
from cimemories.formats.bundle_check import Check, Misfit, Row
from cimemories.formats.official import (
    FormatError,
    forbidden,
    kind,
    loads,
    opened,
    shown,
)
from cimemories.formats.official import complaint as complaint_of
from cimemories.store.engine import content_hash
from cimemories.text import count

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
        "cached_tokens:integer? completion_tokens:integer? seconds:real started:text attempts:integer server:text? "
        "served_model:text?"
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
VERSION = 4
# Columns that bundles of an earlier version do not have; they are read as empty.
ADDED: dict[int, dict[str, tuple[str, ...]]] = {
    2: {"decisions": ("uid", "guideline", "cause")},
    3: {"calls": ("server",)},
    4: {"calls": ("served_model",)},
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
            # Compared, since isfinite raises for a whole number that no float can hold; nan and infinity do not fit.
            fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= float_info.max
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


BAD_ZIP = (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error)


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
    version: Literal[1, 2, 3, 4]
    encoding: Encoding
    content: str
    simulated: bool
    dataset: _Dataset
    tables: dict[str, Written]

    def notes(self) -> list[str]:
        """What the bundle brings beside profiles, for whoever imports it."""
        counts = {table: self.tables[table].rows for table in ("labellings", "ballots", "shares", "decisions", "rules")}
        listed = ", ".join(count(rows, table.removesuffix("s")) for table, rows in counts.items() if rows)
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
        except BAD_ZIP as error:
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
    """Write a bundle as a folder or a zip file that is not there yet. about: the parts of the manifest that are not
    counted here (dataset, simulated, licence, ...)."""
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
        raise FormatError(f"{where}: {shown(field)} {complaint_of(first)}") from None
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

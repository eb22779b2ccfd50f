"""A bundle on disk: a folder or a zip file with one file a table, as JSON lines or as Parquet, and manifest.json.

The names of the files are fixed: nothing of a zip is unpacked under a name that stands in it. Tables are read as a
stream, checked against the row count and hash of the manifest; both encodings have the same hash, which is that of the
JSON lines.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from cimemories.files import NotAFileError, open_regular
from cimemories.formats import parquet_files
from cimemories.formats.bundle_tables import TABLES, VERSION, Column, columns_of, complaint, line_of
from cimemories.formats.errors import FormatError
from cimemories.formats.json_records import loads
from cimemories.formats.official import opened
from cimemories.formats.official_records import shown

Encoding = Literal["jsonl", "parquet"]
MANIFEST = "manifest.json"
LARGEST_MANIFEST = 4 << 20
LONGEST_LINE = 32 << 20
LONGEST_CELL = 16 << 20  # bytes of a text in Parquet; a recorded request holds a whole prompt
MOST_UNPACKED = 8 << 30
_ROWS = 2000
_OLD = (1980, 1, 1, 0, 0, 0)  # a date for zip entries, so that the same content gives the same bytes
_TYPES = {"text": pa.string(), "integer": pa.int64(), "real": pa.float64(), "truth": pa.bool_(), "json": pa.string()}


_BAD_ZIP = (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error)


@dataclass(frozen=True)
class Written:
    """One table as it was written: number of rows, and SHA-256 of its JSON lines."""

    rows: int
    sha256: str


def write_table(folder: Path, table: str, rows: Iterable[dict[str, Any]], encoding: Encoding) -> Written:
    """Write one table into a folder that is there."""
    digest, count = hashlib.sha256(), 0
    path, columns = folder / f"{table}.{encoding}", TABLES[table]
    with ExitStack() as stack:
        if encoding == "jsonl":
            lines = stack.enter_context(path.open("wb"))
        else:
            writer = stack.enter_context(pq.ParquetWriter(path, schema_of(columns), compression="zstd"))
        held: list[dict[str, Any]] = []
        for row in rows:
            line = f"{line_of(table, row)}\n".encode()
            digest.update(line)
            count += 1
            if encoding == "jsonl":
                lines.write(line)
                continue
            held.append(_flat(columns, row))
            if len(held) >= _ROWS:
                writer.write_table(pa.Table.from_pylist(held, schema_of(columns)))
                held = []
        if encoding == "parquet" and held:
            writer.write_table(pa.Table.from_pylist(held, schema_of(columns)))
    return Written(count, digest.hexdigest())


def pack(folder: Path, path: Path) -> None:
    """The files of a folder as one zip file; the same content gives the same bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.iterdir(), key=lambda item: (item.name != MANIFEST, item.name)):
            entry = zipfile.ZipInfo(file.name, _OLD)
            entry.compress_type = zipfile.ZIP_STORED if file.suffix == ".parquet" else zipfile.ZIP_DEFLATED
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
        except (
            zipfile.BadZipFile,
            zipfile.LargeZipFile,
            NotImplementedError,
            RuntimeError,
            EOFError,
            zlib.error,
        ) as error:
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
        twice = next((n for n in self.names if self.names.count(n) > 1), None) if len(self.names) < 1000 else ""
        if twice is not None:
            raise FormatError(f"{name}: '{shown(twice)}' stands twice in the zip file; a bundle has each file once")
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
    """An open bundle: its manifest, and its tables as often as they are asked for."""

    def __init__(self, name: str, place: _Folder | _Zip) -> None:
        self.name, self._place = name, place
        if MANIFEST not in place.names:
            raise FormatError(f"{name}: there is no {MANIFEST} in it, so it is no bundle of ours")
        with place.open(MANIFEST) as stream:
            data = stream.read(LARGEST_MANIFEST + 1)
        if len(data) > LARGEST_MANIFEST:
            raise FormatError(f"{name}: {MANIFEST} is larger than {LARGEST_MANIFEST >> 20} MiB")
        self.manifest = loads(data, f"{name}: {MANIFEST}")

    def check_names(self, encoding: Encoding) -> None:
        """Exactly the files of a bundle are there. Raises FormatError that names the first that is not."""
        wanted = {MANIFEST, *(f"{table}.{encoding}" for table in TABLES)}
        missing = sorted(wanted - set(self._place.names))
        if missing:
            raise FormatError(f"{self.name}: {missing[0]} is missing in it; export the bundle again")
        extra = sorted(set(self._place.names) - wanted)
        if extra:
            raise FormatError(f"{self.name}: '{shown(extra[0])}' is no file of a bundle; remove it")

    @property
    def version(self) -> int:
        """Of the format, as the manifest says; the newest where it says nothing that is known."""
        told = self.manifest.get("version") if isinstance(self.manifest, dict) else None
        return told if isinstance(told, int) and 1 <= told <= VERSION else VERSION

    def rows(self, table: str, encoding: Encoding, told: Written) -> Iterator[dict[str, Any]]:
        """The rows of one table, types checked; at the end their number and hash must be what the manifest tells. What
        a bundle of an earlier version does not have is None."""
        columns = columns_of(table, self.version)
        later = {column.name: None for column in TABLES[table] if column not in columns}
        digest, count, place = hashlib.sha256(), 0, f"{self.name}: {table}.{encoding}"
        with self._place.open(f"{table}.{encoding}") as stream:
            for row in _lines(stream, place) if encoding == "jsonl" else _parquet(stream, columns, place):
                count += 1
                if count > told.rows:
                    raise FormatError(f"{place}: there are more rows than the {told.rows} that {MANIFEST} tells")
                problem = complaint(table, row, self.version)
                if problem:
                    raise FormatError(f"{place} row {count}: {problem}")
                digest.update(f"{line_of(table, row, self.version)}\n".encode())
                yield {**row, **later} if later else row
        if count != told.rows:
            raise FormatError(
                f"{place}: {count} rows, and {MANIFEST} tells of {told.rows}; the file was cut or changed"
            )
        if digest.hexdigest() != told.sha256:
            raise FormatError(f"{place}: the content is not what {MANIFEST} tells (sha256); it was changed afterwards")


def _lines(stream: IO[bytes], place: str) -> Iterator[Any]:
    number = 0
    while line := stream.readline(LONGEST_LINE):
        number += 1
        if not line.endswith(b"\n"):
            raise FormatError(
                f"{place} row {number}: the line has no end; the file was cut off or is no bundle of ours"
            )
        yield loads(line, f"{place} row {number}")


def _parquet(stream: BinaryIO, columns: Sequence[Column], place: str) -> Iterator[Any]:
    schema = schema_of(columns)

    def choose(found: pa.Schema) -> list[str]:
        if [(field.name, field.type) for field in found] != [(field.name, field.type) for field in schema]:
            raise FormatError(f"{place}: the columns are not those of this table: {', '.join(schema.names)}")
        return list(schema.names)

    for batch in parquet_files.columns(stream, place, choose, rows=_ROWS, longest=LONGEST_CELL, hint="export it again"):
        for column in columns:
            if column.kind == "json":
                batch[column.name] = _parsed(batch[column.name], f"{place}: {column.name}")
        for cells in zip(*batch.values(), strict=True):
            yield dict(zip(batch, cells, strict=True))


def _parsed(texts: list[str | None], place: str) -> list[Any]:
    """JSON values from their texts, each text read once."""
    values = {text: loads(text.encode(), place) for text in set(texts) if text is not None}
    return [None if text is None else values[text] for text in texts]


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """Columns as Parquet keeps them."""
    return pa.schema([pa.field(column.name, _TYPES[column.kind]) for column in columns])


def _flat(columns: Sequence[Column], row: dict[str, Any]) -> dict[str, Any]:
    """The row with JSON values as text, as Parquet keeps them."""
    return {
        column.name: json.dumps(row[column.name], ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        if column.kind == "json"
        else row[column.name]
        for column in columns
    }

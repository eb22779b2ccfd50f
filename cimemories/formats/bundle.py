"""Bundles, as this project wrote them before the folder (tables.py): read for one version more, never written.

    manifest.json      the format, its version, and the number of rows of every table
    ballots.jsonl      {"labelling": 0, "profile": 0, "context": 0, "persona": 0, "draw": 0, "status": "ok", ...}

A folder or a zip file with one file a table, as JSON Lines or as Parquet. The tables are those of the folder without
runs; the manifest's `content` is a hash over them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import Field

from cimemories.formats.reading import (
    FormatError,
    Name,
    Record,
    checked,
    file_hash,
    loads,
    numbered_lines,
    opened,
    unpacked,
)
from cimemories.formats.tables import TABLES, Folder, Row
from cimemories.store.engine import content_hash
from cimemories.text import shown

MANIFEST = "manifest.json"
LARGEST_MANIFEST = 4 << 20  # bytes; it is read whole, unchecked
DERIVED = "labels"  # made from the other tables
BUNDLED = (
    *("profiles", "attributes", "contexts", "profile_contexts", "personas", "generations", "labellings", "requests"),
    *("calls", "ballots", "shares", "decisions", "rules", "edits", DERIVED),
)
_LONGEST_LINE = 32 << 20  # bytes


class _Written(Record):
    rows: int = Field(ge=0)
    sha256: str


class _Dataset(Record):
    name: Name


class _Manifest(Record):
    format: Literal["cimemories-bundle"]
    version: Literal[1, 2, 3, 4]
    encoding: Literal["jsonl", "parquet"]
    content: str
    simulated: bool
    dataset: _Dataset
    tables: dict[str, _Written]


class Bundle(Folder):
    """An open bundle."""

    def __init__(self, name: str, folder: Path, names: list[str]) -> None:
        self.name, self.folder = name, folder
        if MANIFEST not in names:
            raise FormatError(f"{name}: there is no {MANIFEST} in it, so it is no bundle of ours")
        with opened(folder / MANIFEST) as stream:
            data = stream.read(LARGEST_MANIFEST + 1)
        where = f"{name}: {MANIFEST}"
        if len(data) > LARGEST_MANIFEST:
            raise FormatError(f"{where} is larger than {LARGEST_MANIFEST >> 20} MiB")
        manifest = self._manifest = checked(_Manifest, loads(data, where), where)
        expected = {MANIFEST, *(f"{table}.{manifest.encoding}" for table in BUNDLED)}
        if missing := sorted(expected - set(names)):
            raise FormatError(f"{name}: {missing[0]} is missing in it; export the dataset again")
        if extra := sorted(set(names) - expected):
            raise FormatError(f"{name}: '{shown(extra[0])}' is no file of a bundle; remove it")
        if sorted(manifest.tables) != sorted(BUNDLED):
            raise FormatError(f"{where} tells of other tables than there are; export the dataset again")
        tables = [[t, manifest.tables[t].rows, manifest.tables[t].sha256] for t in BUNDLED if t != DERIVED]
        if manifest.content != content_hash(tables):
            raise FormatError(f"{where}: content is not the hash of its tables; it was changed")
        self.hash, self.about = manifest.content, {"name": manifest.dataset.name, "simulated": manifest.simulated}
        self.counts = {t: manifest.tables[t].rows if t in BUNDLED else 0 for t in TABLES}

    def path(self, table: str) -> Path:
        return self.folder / f"{table}.{self._manifest.encoding}"

    def rows(self, table: str) -> Iterator[Row]:
        """Yield the rows of a table; at the end their number must match the manifest. Columns that bundles of an
        earlier version do not have are None."""
        if table not in BUNDLED:
            return
        where, expected, number = self.file(table), self._manifest.tables[table], 0
        jsonl = self._manifest.encoding == "jsonl"
        for row in self._lines(table) if jsonl else super().rows(table):
            number += 1
            yield row
        if number != expected.rows:
            raise FormatError(f"{where}: {number} rows, and {MANIFEST} tells of {expected.rows}; it was cut or changed")
        if jsonl and file_hash(self.path(table)) != expected.sha256:
            raise FormatError(f"{where}: the content is not what {MANIFEST} tells (sha256); it was changed afterwards")

    def _lines(self, table: str) -> Iterator[Row]:
        absent = dict.fromkeys(set(TABLES[table].names) - TABLES[table].required)
        with opened(self.path(table)) as stream:
            for number, line in numbered_lines(stream, self.file(table), _LONGEST_LINE, "export the dataset again"):
                row = loads(line, f"{self.file(table)} row {number}")
                yield absent | row if type(row) is dict else row


@contextmanager
def opened_bundle(path: Path) -> Iterator[Bundle]:
    """Open the bundle at a path, a folder or a zip file. Raises FormatError if none can be read."""
    expected = {MANIFEST, *(f"{table}.{encoding}" for table in BUNDLED for encoding in ("jsonl", "parquet"))}
    with unpacked(path, expected.__contains__) as (folder, names):
        yield Bundle(shown(path.name or path), folder, names)

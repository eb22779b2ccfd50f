"""Our own bundle: a dataset with every vote, call, decision, rule and edit, as JSON lines or Parquet (docs/formats.md).

    manifest.json      what this is, where it comes from, licence, counts, and a hash of every table
    ballots.jsonl      {"labelling": 0, "profile": 0, "context": 0, "persona": 0, "draw": 0, "status": "ok", ...}

The manifest's `content` is one hash over all tables, the same for both encodings, and independent of names and ids: a
dataset that is exported, imported under another name and exported again has the same.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cimemories.formats import bundle_files
from cimemories.formats.bundle_check import Check, Misfit
from cimemories.formats.bundle_files import Bundle, Encoding, Written
from cimemories.formats.bundle_tables import DERIVED, TABLES, VERSION
from cimemories.formats.errors import FormatError
from cimemories.formats.official_records import forbidden, shown
from cimemories.store.ids import content_hash

FORMAT = "cimemories-bundle"
READ = tuple(range(1, VERSION + 1))


class _Table(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")
    rows: int = Field(ge=0)
    sha256: str


class _Dataset(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")
    name: str = Field(min_length=1, max_length=500)


class _Manifest(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")
    format: Literal["cimemories-bundle"]
    version: Literal[1, 2, 3]
    encoding: Encoding
    content: str
    simulated: bool
    dataset: _Dataset
    tables: dict[str, _Table]


@dataclass(frozen=True)
class Checked:
    """A bundle whose every row was looked at. `content`: the hash that tells it from others."""

    name: str
    content: str
    encoding: Encoding
    simulated: bool
    tables: Mapping[str, Written]

    def notes(self) -> list[str]:
        told = {table: self.tables[table].rows for table in ("labellings", "ballots", "shares", "decisions", "rules")}
        held = ", ".join(f"{count:,} {table}" for table, count in told.items() if count)
        notes = [f"the bundle brings {held}" if held else "the bundle brings profiles without any labels"]
        if self.simulated:
            notes.append("the bundle is marked simulated: a simulator voted or wrote")
        return notes


def write_bundle(
    path: Path,
    encoding: Encoding,
    tables: Mapping[str, Callable[[], Iterable[dict[str, Any]]]],
    told: Mapping[str, Any],
    *,
    zipped: bool,
) -> dict[str, Any]:
    """Write a bundle as a new folder or zip file, whole or not at all; returns its manifest.

    told: the parts of the manifest that are not counted here (dataset, simulated, licence, ...).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{path.name[:40]}-", dir=path.parent))
    try:
        folder = draft / "bundle"
        folder.mkdir()
        written = {table: bundle_files.write_table(folder, table, tables[table](), encoding) for table in TABLES}
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "encoding": encoding,
            "content": _content(written),
            **told,
            "tables": {table: {"rows": w.rows, "sha256": w.sha256} for table, w in written.items()},
        }
        text = json.dumps(manifest, ensure_ascii=False, allow_nan=False, indent=2) + "\n"
        (folder / bundle_files.MANIFEST).write_text(text, encoding="utf-8")
        if zipped:
            bundle_files.pack(folder, draft / "bundle.zip")
            (draft / "bundle.zip").replace(path)
        else:
            folder.rename(path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return manifest


def check(bundle: Bundle) -> Checked:
    """Look at every row of a bundle. Raises FormatError on the first that does not fit."""
    found = _manifest(bundle)
    bundle.check_names(found.encoding)
    missing = [table for table in TABLES if table not in found.tables]
    if missing or len(found.tables) > len(TABLES):
        what = f"does not tell of {missing[0]}" if missing else "tells of tables that are not known"
        raise FormatError(f"{bundle.name}: manifest.json {what}; export the bundle again")
    written = {table: Written(found.tables[table].rows, found.tables[table].sha256) for table in TABLES}
    if found.content != _content(written):
        raise FormatError(f"{bundle.name}: manifest.json: content is not the hash of its tables; it was changed")
    checker = Check()
    for table in TABLES:
        for number, row in enumerate(bundle.rows(table, found.encoding, written[table])):
            try:
                checker.row(table, number, row)
            except Misfit as misfit:
                raise FormatError(f"{bundle.name}: {table}.{found.encoding} row {number + 1}: {misfit}") from None
    problem = checker.unfinished()
    if problem:
        raise FormatError(f"{bundle.name}: decisions.{found.encoding} {problem}")
    if not checker.profiles:
        raise FormatError(f"{bundle.name}: there are no profiles in it")
    if any(row["simulated"] for row in checker.labellings) and not found.simulated:
        raise FormatError(f"{bundle.name}: manifest.json: simulated is false, and a simulator voted")
    return Checked(found.dataset.name, found.content, found.encoding, found.simulated, written)


def _manifest(bundle: Bundle) -> _Manifest:
    raw = bundle.manifest
    version = raw.get("version") if isinstance(raw, dict) else None
    if isinstance(raw, dict) and raw.get("format") == FORMAT and version not in READ:
        raise FormatError(
            f"{bundle.name}: manifest.json: version {shown(version)} of the format is not known here, only 1 to "
            f"{VERSION}; update CIMemories Studio, or export again with this version"
        )
    try:
        manifest = _Manifest.model_validate(raw)
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the manifest"
        raise FormatError(f"{bundle.name}: manifest.json: {shown(place)}: {shown(first['msg'])}") from None
    if forbidden(manifest.dataset.name) or not manifest.dataset.name.strip():
        raise FormatError(f"{bundle.name}: manifest.json: dataset.name is blank or holds control characters")
    return manifest


def _content(tables: Mapping[str, Written]) -> str:
    return content_hash([[t, tables[t].rows, tables[t].sha256] for t in TABLES if t not in DERIVED])

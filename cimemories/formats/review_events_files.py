"""Review events on disk: JSON lines with all kinds in one file, or CSV and Parquet with one file a kind in a folder.

    review.jsonl              {"event": "decision", ...}
    review/decisions.csv      event,uid,dataset,...

What a file is, is told by its content. In CSV an empty cell is nothing, and a text that a spreadsheet would run as a
formula is written with an apostrophe before it, which is taken off again.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from cimemories.formats import parquet_files
from cimemories.formats.bundle_files import schema_of
from cimemories.formats.bundle_tables import Column
from cimemories.formats.errors import FormatError
from cimemories.formats.json_records import loads
from cimemories.formats.official import opened
from cimemories.formats.official_records import shown
from cimemories.formats.review_events_fields import FIELDS
from cimemories.store.review_merge import KINDS

Form = Literal["jsonl", "csv", "parquet"]
LONGEST_EVENT = 1 << 20  # bytes of a line, or of a text in Parquet
FORMS: tuple[Form, ...] = get_args(Form)
NAMES = {kind: f"{kind}s" for kind in KINDS}
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
_TRUTH = {"true": True, "false": False, "1": True, "0": False}
Event = dict[str, Any]


def write(path: Path, form: Form, events: Mapping[str, Sequence[Event]]) -> None:
    """Write the events of each kind to a path that is not there yet: a file for JSON lines, else a folder."""
    if form == "jsonl":
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            for kind in events:
                for event in events[kind]:
                    ordered = {column.name: event.get(column.name) for column in FIELDS[kind]}
                    stream.write(json.dumps(ordered, ensure_ascii=False, allow_nan=False) + "\n")
        return
    path.mkdir()
    for kind, found in events.items():
        columns = FIELDS[kind]
        if form == "parquet":
            rows = [{column.name: event.get(column.name) for column in columns} for event in found]
            pq.write_table(pa.Table.from_pylist(rows, schema_of(columns)), path / f"{NAMES[kind]}.parquet")
            continue
        with (path / f"{NAMES[kind]}.csv").open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow([column.name for column in columns])
            writer.writerows([_cell(column, event.get(column.name)) for column in columns] for event in found)


def _cell(column: Column, value: Any) -> Any:
    if value is None:
        return ""
    if column.kind == "truth":
        return "true" if value else "false"
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def read(path: Path) -> Iterator[tuple[str, Any]]:
    """Every event of a file, or of the files of a folder that are named as ours are, with its place in words ('x.jsonl:
    line 3'). Raises FormatError for what cannot be read; whether an event makes sense is not looked at."""
    name = shown(path.name or path)
    if path.is_dir():
        known = [path / f"{NAMES[kind]}.{form}" for kind in KINDS for form in FORMS]
        files = [file for file in known if file.is_file()]
        if not files:
            raise FormatError(f"{name}: there is no file in this folder that is named as ours, e.g. decisions.csv")
        for file in files:
            yield from read(file)
        return
    with opened(path) as stream:
        start = stream.read(4096)
        stream.seek(0)
        if start.startswith(b"PAR1"):
            yield from _parquet(stream, name)
        elif not start.strip() or start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"["):
            yield from _lines(stream, name)
        else:
            yield from _csv(stream, name)


def _lines(stream: BinaryIO, name: str) -> Iterator[tuple[str, Any]]:
    number = 0
    while line := stream.readline(LONGEST_EVENT + 1):
        number += 1
        place = f"{name}: line {number}"
        if len(line) > LONGEST_EVENT:
            raise FormatError(f"{place}: longer than {LONGEST_EVENT >> 20} MiB; that is no event")
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line.strip():
            yield place, loads(line, place)


def _csv(stream: BinaryIO, name: str) -> Iterator[tuple[str, Any]]:
    try:
        with io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
            reader = csv.reader(text, strict=True)
            header = next(reader, [])
            if "event" not in header or len(set(header)) < len(header):
                raise FormatError(f"{name}: line 1: the columns must have names, each once, and 'event' among them")
            for cells in reader:
                place = f"{name}: line {reader.line_num}"
                if len(cells) != len(header):
                    raise FormatError(f"{place}: has {len(cells)} cells, and the first line {len(header)}")
                yield place, _event(dict(zip(header, cells, strict=True)), place)
    except UnicodeDecodeError as error:
        raise FormatError(f"{name}: not UTF-8 at byte {error.start} of a part; save the file as UTF-8") from None
    except csv.Error as error:
        raise FormatError(f"{name}: not a whole CSV file ({shown(error)}); export it again") from None


def _event(cells: dict[str, str], place: str) -> Event:
    kinds = {column.name: column for column in FIELDS.get(cells["event"], ())}
    found: Event = {}
    for name, text in cells.items():
        column = kinds.get(name, Column(name, "text", True))
        if text == "" and column.null:
            found[name] = None
            continue
        try:
            match column.kind:
                case "integer":
                    found[name] = int(text)
                case "real":
                    found[name] = float(text)
                case "truth":
                    found[name] = _TRUTH[text.lower()]
                case _:
                    found[name] = text[1:] if text[:1] == "'" and text[1:].startswith(_FORMULA) else text
        except (ValueError, KeyError):
            wanted = {"integer": "a whole number", "real": "a number", "truth": "true or false"}[column.kind]
            raise FormatError(f"{place}: {name} must be {wanted}, not '{shown(text)}'") from None
    return found


def _parquet(stream: BinaryIO, name: str) -> Iterator[tuple[str, Any]]:
    number = 0
    for batch in parquet_files.columns(
        stream, name, lambda schema: schema.names, rows=2000, longest=LONGEST_EVENT, hint="export it again"
    ):
        for cells in zip(*batch.values(), strict=True):
            number += 1
            yield f"{name}: row {number}", dict(zip(batch, cells, strict=True))

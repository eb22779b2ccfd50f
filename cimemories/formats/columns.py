"""Rows of the columns file (formats.md, section 4) from Parquet or CSV, checked one by one, a few thousand in memory.

    name | attribute | memory_statement | label | prompt | adv_reveal_prompt
    Ann Lee | rent | My rent is $1,450. | 0.0 | ...my memories... to Landlord for ... | ...

Our own export has more columns, which are read where they are there: profile, recipient, task, sphere,
information_domain, event, label_source, label_rule, simulated.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from cimemories.formats import parquet_files
from cimemories.formats.errors import FormatError
from cimemories.formats.official import opened
from cimemories.formats.official_records import forbidden, kind, shown, too_long
from cimemories.model import DOMAINS, GENERAL, LONGEST_NAME, LONGEST_STATEMENT, canonical_domain, canonical_event

NEEDED = ("name", "attribute", "memory_statement", "label", "prompt")
OWN = (
    *("profile", "recipient", "task", "sphere", "information_domain", "event"),
    *("label_source", "label_rule", "simulated"),
)
COLUMNS = (*NEEDED, "adv_reveal_prompt", *OWN)
SOURCES = ("consensus", "person", "none")
LONGEST_CELL = 1 << 20  # bytes; prompts, the longest, have some tens of thousands
PROMPT_END = 8000  # characters of a prompt that are kept: recipient and purpose stand at its end
_BATCH = 4096
_KEPT = 2000  # texts
_DOMAINS = (*DOMAINS, GENERAL)
_CSV_BLOCK = 16 << 20
_TRUTH = {"true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True)
class Row:
    """One pair. `label` 1.0 necessary, 0.0 inappropriate, None ambiguous; `prompt` is a digest of the whole of it."""

    profile: int | None
    name: str
    attribute: str
    statement: str
    domain: str
    event: str
    event_spelling: str
    label: float | None
    prompt: bytes
    prompt_end: str
    recipient: str
    task: str
    sphere: str | None
    source: str
    rule: str
    simulated: bool


def is_header(line: str) -> bool:
    """Whether a CSV file of this format can begin with this line."""
    names = {name.strip().strip('"') for name in line.removeprefix("\ufeff").split(",")}
    return {"memory_statement", "label"} <= names


def rows(path: Path, *, parquet: bool) -> Iterator[Row]:
    """Every row in its order. Raises FormatError that names the row (from 1, the header not counted) and the column."""
    name = shown(path.name or path)
    number, reader = 0, _Rows()
    for columns in _parquet(path, name) if parquet else _csv(path, name):
        for cells in zip(*columns.values(), strict=True):
            number += 1
            yield reader.row(dict(zip(columns, cells, strict=True)), f"{name}: row {number}")
    if not number:
        raise FormatError(f"{name}: there are no rows; a file of this format has one a profile, context and attribute")


def file_hash(path: Path) -> str:
    """SHA-256 of the file's bytes."""
    digest = hashlib.sha256()
    with opened(path) as stream:
        while data := stream.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()


def _parquet(path: Path, name: str) -> Iterator[dict[str, list[Any]]]:
    def choose(schema: pa.Schema) -> list[str]:
        _check_names(schema.names, name)
        return _wanted(schema.names)

    with opened(path) as stream:
        yield from parquet_files.columns(
            stream, name, choose, rows=_BATCH, longest=LONGEST_CELL, hint="export or fetch it again"
        )


def _csv(path: Path, name: str) -> Iterator[dict[str, list[Any]]]:
    _check_whole(path, name)
    try:
        with opened(path) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
            names = next(csv.reader(text), [])
        _check_names(names, name)
        wanted = _wanted(names)
        reader = pa_csv.open_csv(
            path,
            read_options=pa_csv.ReadOptions(block_size=_CSV_BLOCK),
            parse_options=pa_csv.ParseOptions(newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(wanted, pa.string()), include_columns=wanted, strings_can_be_null=False
            ),
        )
        for batch in reader:
            yield {field: batch.column(field).to_pylist() for field in batch.schema.names}
    except (pa.ArrowException, UnicodeDecodeError, KeyError, csv.Error) as error:
        raise FormatError(f"{name}: not a whole CSV file ({_first(error)}); export or fetch it again") from None


def _check_whole(path: Path, name: str) -> None:
    """UTF-8 throughout, and no quotation mark without its partner: that file was cut, and the CSV reader would take
    what there is."""
    marks = position = 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    with opened(path) as stream:
        while data := stream.read(1 << 20):
            marks += data.count(b'"')
            try:
                decoder.decode(data)
            except UnicodeDecodeError:
                raise FormatError(f"{name}: not UTF-8 after byte {position}; save the file as UTF-8") from None
            position += len(data)
    if marks % 2 or decoder.getstate()[0]:
        raise FormatError(f"{name}: a quoted field has no end; the file was cut off, fetch it again")


def _check_names(names: list[str], name: str) -> None:
    missing = [field for field in NEEDED if field not in names]
    if missing:
        raise FormatError(f"{name}: the column {missing[0]} is missing; needed are {', '.join(NEEDED)}")
    twice = [field for field in COLUMNS if names.count(field) > 1]
    if twice:
        raise FormatError(f"{name}: the column {twice[0]} stands twice; remove one")


def _wanted(names: list[str]) -> list[str]:
    return [field for field in names if field in COLUMNS and field != "adv_reveal_prompt"]


class _Rows:
    """Cells as rows. Texts stand in thousands of rows, so what was found of one is kept for a while."""

    def __init__(self) -> None:
        self._good: set[tuple[str, str]] = set()
        self._prompts: dict[str, tuple[bytes, str]] = {}

    def row(self, found: dict[str, Any], place: str) -> Row:
        key, prompt = self._text(found, "attribute", place), self._text(found, "prompt", place)
        if "".join(key.splitlines()) != key:
            raise FormatError(f"{place}: attribute holds a line break; it is a key")
        if prompt not in self._prompts:
            if len(self._prompts) > _KEPT:
                self._prompts.clear()
            self._prompts[prompt] = hashlib.sha256(prompt.encode()).digest(), prompt[-PROMPT_END:]
        name, statement = self._text(found, "name", place), self._text(found, "memory_statement", place)
        if len(statement) > LONGEST_STATEMENT:
            raise FormatError(
                f"{place}: '{shown(name)}', attribute '{shown(key)}': memory_statement "
                f"{too_long(len(statement), LONGEST_STATEMENT)}"
            )
        digest, end = self._prompts[prompt]
        source = self._optional(found, "label_source", place)
        if source and source not in SOURCES:
            raise FormatError(f"{place}: label_source '{shown(source)}' is none of {', '.join(SOURCES)}")
        label = _label(found["label"], place)
        if source == "none" and label is not None:
            raise FormatError(f"{place}: there is a label, and label_source says that there is none")
        event = self._optional(found, "event", place)
        return Row(
            profile=_whole(found["profile"], place) if "profile" in found else None,
            name=name,
            attribute=key,
            statement=statement,
            domain=_domain(self._optional(found, "information_domain", place) or GENERAL, place),
            event=canonical_event(event) or GENERAL,
            event_spelling=event,
            label=label,
            prompt=digest,
            prompt_end=end,
            recipient=self._optional(found, "recipient", place),
            task=self._optional(found, "task", place),
            sphere=self._optional(found, "sphere", place) or None,
            source=source,
            rule=self._optional(found, "label_rule", place),
            simulated=_truth(found.get("simulated"), place),
        )

    def _optional(self, found: dict[str, Any], field: str, place: str) -> str:
        return "" if found.get(field) in (None, "") else self._text(found, field, place)

    def _text(self, found: dict[str, Any], field: str, place: str) -> str:
        value = found[field]
        if isinstance(value, str) and (field, value) in self._good:
            return value
        if value is None or value == "":
            raise FormatError(f"{place}: {field} is missing")
        if not isinstance(value, str):
            raise FormatError(f"{place}: {field} must be text, not {kind(value)}")
        if not value.strip():
            raise FormatError(f"{place}: {field} is blank; write a text")
        if len(value) > LONGEST_NAME and field not in ("prompt", "memory_statement"):
            raise FormatError(f"{place}: {field} {too_long(len(value), LONGEST_NAME)}")
        if forbidden(value):
            raise FormatError(f"{place}: {field} holds control characters; remove them")
        if len(self._good) > _KEPT:
            self._good.clear()
        self._good.add((field, value))
        return value


def _domain(text: str, place: str) -> str:
    domain = _canonical_domain(text)
    if domain not in _DOMAINS:
        raise FormatError(f"{place}: information_domain '{shown(domain)}' is none of {', '.join(_DOMAINS)}")
    return domain


_canonical_domain = lru_cache(maxsize=256)(canonical_domain)


def _label(value: object, place: str) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value) if value.strip() else None
        except ValueError:
            raise FormatError(f"{place}: label must be 1.0, 0.0 or nothing, not '{shown(value)}'") from None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None  # pandas writes a missing number as nan
    if isinstance(value, bool) or not isinstance(value, int | float) or value not in (0, 1):
        raise FormatError(f"{place}: label must be 1.0, 0.0 or nothing, not '{shown(value)}'")
    return float(value)


def _whole(value: object, place: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**9:
        raise FormatError(f"{place}: profile must be a number from 0, not '{shown(value)}'")
    return value


def _truth(value: object, place: str) -> bool:
    if isinstance(value, str) and value:
        value = _TRUTH.get(value.lower(), value)
    if value in (None, ""):
        return False
    if not isinstance(value, bool):
        raise FormatError(f"{place}: simulated must be true or false, not '{shown(value)}'")
    return value


def _first(error: Exception) -> str:
    return shown((str(error).strip().splitlines() or ["no reason given"])[0], 120)

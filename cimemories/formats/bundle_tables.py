"""The tables of our own bundle, and what a cell of each column may be.

Rows refer to each other by number, counted from 0 in the order of the file, never by an id of a workspace. Ordinals
are what the versions of a dataset share, with gaps where something was removed; edits speak of them. A ballot's
`verdicts` has one letter for each attribute of its profile, in their order:

    N necessary   X inappropriate   ? abstain   C conflict (named as both)   - no vote
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from cimemories.formats.official_records import kind, shown

Kind = Literal["text", "integer", "real", "truth", "json"]
MOST = 2**31 - 1
_UNKEPT = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True)
class Column:
    """`null`: whether a cell may be empty. `json`: any JSON value; as text in Parquet."""

    name: str
    kind: Kind
    null: bool = False


def columns(text: str) -> tuple[Column, ...]:
    """'age:integer cause:text?' as columns; a question mark: may be empty."""
    found = []
    for item in text.split():
        name, _, kind_ = item.partition(":")
        found.append(Column(name, kind_.rstrip("?"), kind_.endswith("?")))  # type: ignore[arg-type]
    return tuple(found)


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


def complaint(table: str, row: Any, version: int = VERSION) -> str:
    """What is wrong with the types of one row; '' where nothing is."""
    return complaint_of(columns_of(table, version), row)


def complaint_of(columns: Sequence[Column], row: Any) -> str:
    """The same for a row that has these columns."""
    if not isinstance(row, dict):
        return f"must be an object, not {kind(row)}"
    if hasattr(row, "repeated"):
        return f"field '{shown(row.repeated)}' stands twice"
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


def line_of(table: str, row: Mapping[str, Any], version: int = VERSION) -> str:
    """A row as its one line of JSON, columns in their order. Raises ValueError for NaN."""
    found = {column.name: _plain(column, row[column.name]) for column in columns_of(table, version)}
    return json.dumps(found, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(column: Column, value: Any) -> Any:
    """A whole number in a column of numbers is written as the other engine gives it back: 1.0, not 1."""
    return float(value) if column.kind == "real" and value is not None else value

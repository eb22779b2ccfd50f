"""The fields of a review event, and what each may be. One layout for JSON lines, CSV and Parquet.

    {"event": "decision", "uid": "3f9a...", "dataset": "official", "profile": 0, "attribute": "rent",
     "task": "Renew the lease", "recipient": "Landlord", "annotator": "Ada", "label": "necessary", "created": "..."}

What an event needs: event, profile (its ordinal, from 0), attribute, task, recipient, annotator, created and what it
says (label, kind, text or verdict). All else may be left out.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from cimemories.formats.bundle_tables import Column, columns, complaint_of
from cimemories.formats.official_records import forbidden, shown, too_long
from cimemories.model import LONGEST_STATEMENT, Label
from cimemories.store.audits import AuditVerdict
from cimemories.store.marks import Kind
from cimemories.store.review_merge import KINDS, SAID

_WHERE = columns(
    "event:text uid:text? dataset:text? dataset_hash:text? simulated:truth? profile:integer profile_name:text? "
    "attribute:text domain:text? statement:text? task:text recipient:text annotator:text"
)
_OWN = {
    "decision": (
        "label:text? reason:text? seconds:real? source:text? batch:text? blind:truth? guideline:text? cause:text?"
    ),
    "mark": "kind:text reason:text? seconds:real?",
    "comment": "text:text resolves:text?",
    "audit": "run:text level:text? sample:integer verdict:text? reason:text? seconds:real? blind:truth?",
}
FIELDS: dict[str, tuple[Column, ...]] = {kind: (*_WHERE, *columns(_OWN[kind] + " created:text")) for kind in KINDS}
# Empty is a statement of its own here, so it must be written down.
_SAID = {"decision": "label", "audit": "verdict"}
_CHOICES = {"label": tuple(Label), "kind": tuple(Kind), "verdict": tuple(AuditVerdict)}
_NOT_BLANK = ("uid", "attribute", "task", "recipient", "annotator")
_DEFAULTS = {"reason": "", "source": "single", "blind": False, "level": "full"}
LONGEST_NAME = 200


def problem_of(row: Any) -> str:
    """What is wrong with an event by itself, naming the field; '' where nothing is."""
    kind = row.get("event") if isinstance(row, dict) else None
    if not isinstance(row, dict) or kind not in KINDS:
        return f"event must be one of {', '.join(KINDS)}, not '{shown(kind)}'"
    said = _SAID.get(str(kind))
    if said and said not in row:
        return f"{said} is missing; null takes back what was said before"
    fields = FIELDS[str(kind)]
    problem = complaint_of(fields, _completed(fields, row))
    if problem:
        return problem
    for name, text in row.items():
        if isinstance(text, str) and len(text) > LONGEST_STATEMENT:
            return f"{name} {too_long(len(text), LONGEST_STATEMENT)}"
    for name in _NOT_BLANK:
        value = row.get(name)
        if value is not None and (not value.strip() or (name in ("uid", "annotator") and len(value) > LONGEST_NAME)):
            return f"{name} is blank or longer than {LONGEST_NAME} characters"
        if value is not None and name in ("uid", "annotator") and (forbidden(value) or len(value.splitlines()) > 1):
            return f"{name} must be one line without control characters"
    if kind == "comment" and not row["text"].strip() and not row.get("resolves"):
        return "text is blank; a comment needs a word"
    for name, choices in _CHOICES.items():
        if row.get(name) is not None and name in SAID[str(kind)] and row[name] not in choices:
            return f"{name} '{shown(row[name])}' is none of {', '.join(choices)}"
    if row.get("seconds") is not None and row["seconds"] < 0:
        return "seconds must not be below 0"
    return "" if moment(row["created"]) else f"created '{shown(row['created'])}' is no time, e.g. 2026-01-31T10:00:00Z"


def completed(row: dict[str, Any]) -> dict[str, Any]:
    """An event without a problem, with every field: what was left out is None or its default, the time in our form."""
    fields = FIELDS[row["event"]]
    found: dict[str, Any] = {column.name: row.get(column.name) for column in fields}
    for column in fields:
        if found[column.name] in (None, ""):
            found[column.name] = _DEFAULTS.get(column.name, "" if not column.null else None)
    if found.get("seconds") is not None:
        found["seconds"] = float(found["seconds"])
    found["created"] = moment(row["created"])
    return found


def _completed(fields: tuple[Column, ...], row: dict[str, Any]) -> dict[str, Any]:
    if hasattr(row, "repeated"):
        return row
    return {**{column.name: None for column in fields if column.null}, **row}


def moment(text: str) -> str:
    """A time as the record writes it, in UTC to the millisecond; '' for what is none. Without a zone it is UTC; a date
    alone is its first moment."""
    try:
        found = datetime.fromisoformat(text.strip())
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return ""
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")

"""The fields of a change by hand: what may stand in them, and how a typed value is written in one line of text."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

from cimemories.model import DOMAINS, GENERAL, Attribute, Context, Profile, Value, canonical_event
from cimemories.store.edits import Edit, Side
from cimemories.store.engine import StoreError, storable

KNOWN_DOMAINS = (GENERAL, *DOMAINS)
LONGEST_KEY = 120
LONGEST_TEXT = 4000
OLDEST = 130


def line(text: str) -> str:
    """One line of text as it is stored: runs of space are one, characters that no engine can hold are replaced."""
    return " ".join(storable(text).split())


def attribute_side(item: Attribute | None) -> Side | None:
    if item is None:
        return None
    names = ("key", "value", "domain", "event", "statement")
    return {name: getattr(item, name) for name in names}


def context_side(item: Context | None) -> Side | None:
    return None if item is None else {"task": item.task, "recipient": item.recipient, "sphere": item.sphere}


def bio_side(item: Profile) -> Side:
    return {"name": item.name, "sex": item.sex, "address": item.address, "age": item.age}


def value_text(value: Value) -> str:
    """A typed value as one writes it: text as it is, everything else as JSON; text that would be read as something else
    (a number, a word like true) in quotes. `parse_value` reads it back to the same value."""
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    as_written = value == value.strip() and value and parse_value(value) == value
    return value if as_written else json.dumps(value, ensure_ascii=False)


def parse_value(text: str) -> Value:
    """What somebody wrote as a value: JSON where it is JSON (1450, true, null, ["a", "b"], "1450"), else text.

    Raises StoreError for JSON that no attribute can hold: an object, or lists deeper than one of flat objects.
    """
    written = storable(text.strip())
    try:
        value = json.loads(written, parse_constant=_no_number)
        json.dumps(value, allow_nan=False)  # 1e999 is read as infinity
    except (ValueError, RecursionError):
        return written
    if not _fits(value):
        raise StoreError(
            "a value can be text, a number, true, false, null or a list of those (or of flat objects). "
            'Write anything else as text in quotes, e.g. "{like this}".'
        )
    return cast(Value, value)


def _no_number(name: str) -> float:
    raise ValueError(name)


def _fits(value: object) -> bool:
    if isinstance(value, list):
        return all(_scalar(item) or (isinstance(item, dict) and all(map(_scalar, item.values()))) for item in value)
    return _scalar(value)


def _scalar(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str | int | bool)


def checked(edit: Edit) -> Edit:
    """The change with its new side brought into shape. Raises StoreError that names the first field that cannot be, or
    says that nothing would change."""
    if edit.after is None:
        return edit
    before: Mapping[str, object] = edit.before or {}
    shape = {"attribute": _attribute, "context": _context, "bio": _bio}[edit.kind]
    after = {**edit.after, **shape(edit.after, before)}
    names = [name for name in after if name not in ("ordinal", "places")]
    if edit.before is not None and all(_same(after[name], before.get(name)) for name in names):
        raise StoreError("nothing would change: both sides are the same. Change a field, or leave it.")
    return replace(edit, after=after)


def _same(one: object, other: object) -> bool:
    return json.dumps(one) == json.dumps(other)  # 1, 1.0 and true are three values


def _attribute(side: Side, before: Side) -> dict[str, object]:
    domain = str(side["domain"])
    if domain not in KNOWN_DOMAINS and domain != before.get("domain"):
        raise StoreError(f"domain: '{domain}' is none of {', '.join(KNOWN_DOMAINS)}. Choose one of them.")
    if not _fits(side["value"]):
        raise StoreError("value: it can be text, a number, true, false, null or a list of those.")
    size = len(value_text(cast(Value, side["value"])))
    if size > LONGEST_TEXT and not _same(side["value"], before.get("value")):
        raise StoreError(f"value: this has {size:,} characters, the most is {LONGEST_TEXT:,}. Shorten it.")
    event = _kept(side, before, "event", lambda text: canonical_event(storable(text)) or GENERAL)
    return {
        "key": _required(side, before, "key", "a key", LONGEST_KEY),
        "value": side["value"],
        "domain": domain,
        "event": event,
        "statement": _required(side, before, "statement", "a memory statement, in the first person", LONGEST_TEXT),
    }


def _context(side: Side, before: Side) -> dict[str, object]:
    sphere = side.get("sphere")
    return {
        "task": _required(side, before, "task", "a task", LONGEST_TEXT),
        "recipient": _required(side, before, "recipient", "a recipient", LONGEST_TEXT),
        "sphere": line(str(sphere)) or None if sphere is not None else None,
    }


def _bio(side: Side, before: Side) -> dict[str, object]:
    age = side["age"]
    if not isinstance(age, int) or isinstance(age, bool) or not 0 <= age <= OLDEST:
        raise StoreError(f"age: give whole years from 0 to {OLDEST}.")
    return {
        "name": _required(side, before, "name", "a name", LONGEST_KEY),
        "sex": _kept(side, before, "sex", line),
        "address": _kept(side, before, "address", lambda text: storable(text.strip())),
        "age": age,
    }


def _required(side: Side, before: Side, name: str, what: str, longest: int) -> str:
    text = _kept(side, before, name, line)
    if not text:
        raise StoreError(f"{name}: {what} is needed. Fill it in and save again.")
    if len(text) > longest and text != before.get(name):
        raise StoreError(f"{name}: this has {len(text):,} characters, the most is {longest:,}. Shorten it.")
    return text


def _kept(side: Side, before: Side, name: str, shape: Callable[[str], str]) -> str:
    """A field in shape; one that nobody touched stays to the byte, however it was imported."""
    text = str(side[name])
    return text if text == before.get(name) else shape(text)

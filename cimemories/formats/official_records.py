"""What pydantic checks of an official profile file, and pydantic's complaints in words (see official.py).

A complaint names its place as a person counts, from 1: "profile 3, attribute 'rent': memory_statement is missing". A
complaint about a profile as a whole adds its name: "profile 2 (Ann Lee), attribute key 'rent' stands twice".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    TypeAdapter,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from cimemories.model import (
    DOMAINS,
    GENERAL,
    LONGEST_NAME,
    LONGEST_STATEMENT,
    Attribute,
    Context,
    Profile,
    Scalar,
    Value,
    canonical_domain,
    canonical_event,
)

_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
# Of a file: one transaction writes it, and nobody else writes meanwhile. The largest study planned for has 1,000.
MOST_PROFILES = 10_000
MOST_ATTRIBUTES = 5_000  # of a profile
MOST_CONTEXTS = 2_000
MOST_ITEMS = 1_000  # of a list as a value
_KNOWN_DOMAINS = (*DOMAINS, GENERAL)


class Repeating(dict[str, Any]):
    """An object in which a key stands more than once; json.loads would keep the last one in silence."""

    def __init__(self, found: dict[str, Any], repeated: str) -> None:
        super().__init__(found)
        self.repeated = repeated


def _refuse(reason: str, about: str = "field") -> PydanticCustomError:
    return PydanticCustomError("official", "{reason}", {"reason": reason, "about": about})


def shown(text: object, limit: int = 80) -> str:
    """A piece of the file as it may stand in a one-line message: nothing unprintable, never long."""
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text)[: limit + 1])
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def forbidden(text: str) -> bool:
    """Whether a text holds what no field may: control characters other than line breaks and tabs, or half pairs."""
    return _FORBIDDEN.search(text) is not None


def too_long(size: int, longest: int) -> str:
    """Why a text of that many characters is refused."""
    return f"has {size:,} characters, more than the {longest:,} that are read; shorten it"


def _checked_text(value: object, longest: int = LONGEST_NAME) -> object:
    """Text as it is, or a refusal; what is no text passes, for pydantic to name its type."""
    if not isinstance(value, str):
        return value
    if len(value) > longest:
        raise _refuse(too_long(len(value), longest))
    if bad := _FORBIDDEN.search(value):
        raise _refuse(f"holds the control character or half pair U+{ord(bad[0]):04X}; remove it")
    if not value.strip():
        raise _refuse("is blank; write a text")
    return value


def _flat_object(item: dict[str, Any]) -> dict[str, Scalar]:
    if isinstance(item, Repeating):
        raise _refuse(f"holds an object in which '{shown(item.repeated)}' stands twice")
    if not item or any(isinstance(inner, dict | list) for inner in item.values()):
        raise _refuse("holds an object or list inside an object; write flat text instead")
    return {key: _checked_scalar(inner) for key, inner in item.items()}


def _checked_scalar(value: object) -> Scalar:
    if isinstance(value, float) and not math.isfinite(value):
        raise _refuse("must be a finite number (NaN and Infinity are not JSON); write null where it is not known")
    checked = _checked_text(value, LONGEST_STATEMENT)
    if checked is None or isinstance(checked, str | bool | int | float):
        return checked
    raise _refuse(f"must be text, a number, true, false, null or a list of these, not {kind(value)}")


def checked_value(value: object) -> Value:
    """The value with its JSON type kept: pydantic's own unions could turn 1 into True or 1.0 into 1."""
    if not isinstance(value, list):
        return _checked_scalar(value)
    if len(value) > MOST_ITEMS:
        raise _refuse(f"is a list of {len(value):,} items, more than the {MOST_ITEMS:,} that are read")
    items = [_flat_object(item) if isinstance(item, dict) else _checked_scalar(item) for item in value]
    size = len(json.dumps(items, ensure_ascii=False))
    if size > LONGEST_STATEMENT:
        raise _refuse(too_long(size, LONGEST_STATEMENT))
    return items


def _checked_event(value: str) -> str:
    if not canonical_event(value):
        raise _refuse("is blank; write the life event or 'general'")
    return value


def _checked_domain(value: str) -> str:
    domain = canonical_domain(value)
    if domain not in _KNOWN_DOMAINS:
        raise _refuse(f"'{shown(value)}' is not known; use one of {', '.join(_KNOWN_DOMAINS)}")
    return domain


def _checked_attributes(value: object) -> object:
    """The attributes before pydantic sees them: it would not see repeated keys, and stumbles over broken ones."""
    if isinstance(value, Repeating):
        raise _refuse(f"attribute key '{shown(value.repeated)}' stands twice; rename or remove one", "keys")
    if isinstance(value, dict):
        if not value:
            raise _refuse("there are no attributes; add at least one under information_attributes", "profile")
        if len(value) > MOST_ATTRIBUTES:
            raise _refuse(f"{len(value):,} attributes are more than the {MOST_ATTRIBUTES:,} that are read", "profile")
        for key in value:
            if len(key) > LONGEST_NAME:
                raise _refuse(f"attribute key '{shown(key)}' {too_long(len(key), LONGEST_NAME)}", "keys")
            if not key.strip() or _FORBIDDEN.search(key) or "".join(key.splitlines()) != key:
                raise _refuse(f"attribute key '{shown(key)}' is blank or holds control characters; rename it", "keys")
    return value


class Record(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _each_field_once(cls, data: object) -> object:
        if isinstance(data, Repeating):
            raise _refuse(f"field '{shown(data.repeated)}' stands twice; remove one", "keys")
        return data


def _checked_statement(value: object) -> object:
    return _checked_text(value, LONGEST_STATEMENT)


_Text = Annotated[str, BeforeValidator(_checked_text)]
_Statement = Annotated[str, BeforeValidator(_checked_statement)]


class _BioRecord(Record):
    name: _Text
    sex: _Text
    address: _Text
    age: Annotated[int, Field(ge=0, le=150)]


class _AttributeRecord(Record):
    value: Annotated[Value, PlainValidator(checked_value)]
    information_domain: Annotated[_Text, AfterValidator(_checked_domain)]
    event: Annotated[_Text, AfterValidator(_checked_event)]
    memory_statement: _Statement


class _ContextRecord(Record):
    recipient: _Text
    task: _Text
    sphere: _Text | None = None


def _checked_contexts(contexts: list[_ContextRecord]) -> list[_ContextRecord]:
    seen: dict[tuple[str, str], int] = {}
    for number, context in enumerate(contexts, 1):
        pair = (" ".join(context.task.split()), " ".join(context.recipient.split()))
        if pair in seen:
            same = f"task '{shown(pair[0])}', recipient '{shown(pair[1])}'"
            raise _refuse(f"contexts {seen[pair]} and {number} are the same ({same}); keep one", "profile")
        seen[pair] = number
    return contexts


def _few_contexts(value: object) -> object:
    """Before each is looked at: millions of wrong ones would give millions of complaints."""
    if isinstance(value, list) and len(value) > MOST_CONTEXTS:
        raise _refuse(f"{len(value):,} contexts are more than the {MOST_CONTEXTS:,} that are read", "profile")
    return value


class _ProfileRecord(Record):
    bio: _BioRecord
    information_attributes: Annotated[dict[str, _AttributeRecord], BeforeValidator(_checked_attributes)]
    contexts: Annotated[list[_ContextRecord], BeforeValidator(_few_contexts), AfterValidator(_checked_contexts)]

    def profile(self) -> Profile:
        attributes = tuple(
            Attribute(
                key,
                record.value,
                record.information_domain,
                canonical_event(record.event),
                record.memory_statement,
                record.event,
            )
            for key, record in self.information_attributes.items()
        )
        contexts = tuple(Context(context.task, context.recipient, context.sphere) for context in self.contexts)
        return Profile(self.bio.name, self.bio.sex, self.bio.address, self.bio.age, attributes, contexts)


FILE = TypeAdapter(list[_ProfileRecord])
FIELDS: tuple[tuple[str, type[Record]], ...] = (
    ("profiles", _ProfileRecord),
    ("bios", _BioRecord),
    ("attributes", _AttributeRecord),
    ("contexts", _ContextRecord),
)


def kind(value: object) -> str:
    """The JSON type of a value, as a person calls it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    names = {int: "a number", float: "a decimal number", str: "text", list: "a list", dict: "an object"}
    return next((words for python, words in names.items() if isinstance(value, python)), type(value).__name__)


def in_words(error: ErrorDetails, raw: Mapping[int, Any]) -> str:
    """One of pydantic's complaints about `raw`, as place and reason without the file's name; never more than a line."""
    index, *inner = error["loc"]
    number = f"profile {int(index) + 1}"
    reason = _reason(error)
    about = error.get("ctx", {}).get("about")
    if about == "profile" or (about == "keys" and len(inner) == 1):
        number += _name_of(raw[int(index)])
    if about == "profile":
        return f"{number}: {reason}"
    place, field = _place(inner, about == "keys")
    if about == "keys":
        return f"{number}{place}, {reason}"
    return f"{number}{place}: {field} {reason}" if field else f"{number}{place} {reason}"


def _reason(error: ErrorDetails) -> str:
    found, context = kind(error["input"]), error.get("ctx", {})
    match error["type"]:
        case "missing":
            return "is missing"
        case "official":
            return str(context["reason"])
        case "string_type":
            return f"must be text, not {found}"
        case "int_type":
            return f"must be a whole number, not {found}"
        case "greater_than_equal" | "less_than_equal":
            return "must be a number of years from 0 to 150"
        case "list_type":
            return f"must be a list, not {found}"
        case "dict_type" | "model_type":
            return f"must be an object, not {found}"
    return f"is not usable: {shown(error['msg'])}"


def _place(inner: list[int | str], about_keys: bool) -> tuple[str, str]:
    """Where inside a profile, and the field there; the field is empty when the record itself is wrong."""
    match inner:
        case ["information_attributes", key, *rest]:
            place = f", attribute '{shown(key)}'"
        case ["contexts", int(position), *rest]:
            place = f", context {position + 1}"
        case ["bio", *rest] if rest or about_keys:
            place = ", bio"
        case ["information_attributes"] if about_keys:
            place, rest = "", []
        case _:
            place, rest = "", inner
    return place, shown(rest[0]) if rest else ""


def _name_of(profile: object) -> str:
    bio = profile.get("bio") if isinstance(profile, dict) else None
    name = bio.get("name") if isinstance(bio, dict) else None
    return f" ({shown(name)})" if isinstance(name, str) and name.strip() else ""

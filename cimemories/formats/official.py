"""The authors' profile files (formats.md, section 1): a JSON array of profiles, read whole or not at all.

    [{"bio": {"name": "Ann Lee", "sex": "F", "address": "1 Elm St", "age": 42},
      "information_attributes": {"rent": {"value": 1450, "information_domain": "housing",
                                          "event": "divorce_proceedings", "memory_statement": "My rent is $1,450."}},
      "contexts": [{"recipient": "Landlord", "task": "Negotiate the renewal of a lease"}]}]

Values keep their JSON type: true stays a boolean, 1.0 a float, null None. Events and domains get their one spelling
(model.canonical_event, model.canonical_domain); an export writes events as the file spelled them. A list may hold flat
objects, as one of the released values does ([{"name": "Emily", "age": 12}]). Fields that the format does not have
(labels, results) are left out and named in a note. One field is our own: a context's "sphere", written if it is known,
so that an export read back gives equal profiles.

The array is read element by element, so that a file of any size needs the memory of its largest profile.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from pydantic import AfterValidator, BeforeValidator, PlainValidator, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from cimemories.formats.reading import (
    CHUNK,
    MOST_PROFILES,
    FormatError,
    Name,
    Record,
    Repeating,
    Statement,
    checked_text,
    elements,
    opened,
    text_problem,
    too_long,
)
from cimemories.model import (
    DOMAINS,
    GENERAL,
    LONGEST_STATEMENT,
    Attribute,
    Context,
    Profile,
    Scalar,
    Value,
    canonical_domain,
    canonical_event,
)
from cimemories.store.labellings import SharedLabels
from cimemories.text import complaint, count, kind, refused, shown

MOST_ATTRIBUTES = 5_000  # of a profile
MOST_CONTEXTS = 2_000  # of a profile
MOST_ITEMS = 1_000  # of a list as a value

# ---- records: what pydantic checks


def _checked_scalar(value: object) -> Scalar:
    if isinstance(value, float) and not math.isfinite(value):
        raise refused("must be a finite number (NaN and Infinity are not JSON); write null where it is not known")
    checked = checked_text(value, LONGEST_STATEMENT)
    if checked is None or isinstance(checked, str | bool | int | float):
        return checked
    raise refused(f"must be text, a number, true, false, null or a list of these, not {kind(value)}")


def _flat_object(item: dict[str, Any]) -> dict[str, Scalar]:
    if isinstance(item, Repeating):
        raise refused(f"contains an object in which '{shown(item.repeated)}' appears twice")
    if not item or any(isinstance(inner, dict | list) for inner in item.values()):
        raise refused("contains an object or list inside an object; write flat text instead")
    return {key: _checked_scalar(inner) for key, inner in item.items()}


def checked_value(value: object) -> Value:
    """Return the value of an attribute, its JSON type kept: pydantic's unions could turn 1 into True or 1.0 into 1.
    Raises PydanticCustomError."""
    if not isinstance(value, list):
        return _checked_scalar(value)
    if len(value) > MOST_ITEMS:
        raise refused(f"is a list of {len(value):,} items, more than the {MOST_ITEMS:,} allowed")
    items = [_flat_object(item) if isinstance(item, dict) else _checked_scalar(item) for item in value]
    size = len(json.dumps(items, ensure_ascii=False))
    if size > LONGEST_STATEMENT:
        raise refused(too_long(size, LONGEST_STATEMENT))
    return items


def _checked_age(value: int) -> int:
    if not 0 <= value <= 150:
        raise refused("must be a number of years from 0 to 150")
    return value


def checked_event(value: str) -> str:
    """Return a life event as it is. Raises PydanticCustomError for a blank one."""
    if not canonical_event(value):
        raise refused("is blank; write the life event or 'general'")
    return value


def checked_domain(value: str) -> str:
    """Return the one spelling of an information domain. Raises PydanticCustomError."""
    domain = canonical_domain(value)
    if domain not in (*DOMAINS, GENERAL):
        raise refused(f"'{shown(value)}' is not one of {', '.join((*DOMAINS, GENERAL))}")
    return domain


def _checked_attributes(value: object) -> object:
    """Check attributes before pydantic does: it would not see repeated keys, and fails on broken ones."""
    if isinstance(value, Repeating):
        raise refused(f"attribute key '{shown(value.repeated)}' appears twice; rename or remove one", "keys")
    if isinstance(value, dict):
        if not value:
            raise refused("there are no attributes; add at least one under information_attributes", "profile")
        if len(value) > MOST_ATTRIBUTES:
            raise refused(f"{len(value):,} attributes are more than the {MOST_ATTRIBUTES:,} allowed", "profile")
        for key in value:
            if problem := text_problem(key, line=True):
                raise refused(f"attribute key '{shown(key)}' {problem}", "keys")
    return value


class _Bio(Record):
    name: Name
    sex: Name
    address: Name
    age: Annotated[int, AfterValidator(_checked_age)]


class _Attribute(Record):
    value: Annotated[Value, PlainValidator(checked_value)]
    information_domain: Annotated[Name, AfterValidator(checked_domain)]
    event: Annotated[Name, AfterValidator(checked_event)]
    memory_statement: Statement


class _Context(Record):
    recipient: Name
    task: Name
    sphere: Name | None = None


def _few_contexts(value: object) -> object:
    """Count contexts before each is checked: millions of wrong ones would give millions of complaints."""
    if isinstance(value, list) and len(value) > MOST_CONTEXTS:
        raise refused(f"{len(value):,} contexts are more than the {MOST_CONTEXTS:,} allowed", "profile")
    return value


def _different_contexts(contexts: list[_Context]) -> list[_Context]:
    seen: dict[tuple[str, str], int] = {}
    for number, context in enumerate(contexts, 1):
        pair = (" ".join(context.task.split()), " ".join(context.recipient.split()))
        if pair in seen:
            same = f"task '{shown(pair[0])}', recipient '{shown(pair[1])}'"
            raise refused(f"contexts {seen[pair]} and {number} are the same ({same}); keep one", "profile")
        seen[pair] = number
    return contexts


class _Profile(Record):
    bio: _Bio
    information_attributes: Annotated[dict[str, _Attribute], BeforeValidator(_checked_attributes)]
    contexts: Annotated[list[_Context], BeforeValidator(_few_contexts), AfterValidator(_different_contexts)]

    def profile(self) -> Profile:
        attributes = tuple(
            Attribute(
                key, item.value, item.information_domain, canonical_event(item.event), item.memory_statement, item.event
            )
            for key, item in self.information_attributes.items()
        )
        contexts = tuple(Context(context.task, context.recipient, context.sphere) for context in self.contexts)
        return Profile(self.bio.name, self.bio.sex, self.bio.address, self.bio.age, attributes, contexts)


_FILE = TypeAdapter(list[_Profile])


def checked_profile(raw: Any, number: int, name: str) -> Profile:
    """Return one record of the file called `name` as a profile; `number` counts from 0. Raises FormatError."""
    try:
        # In a list of one: complaints then begin with a position, as those of a whole file would.
        (record,) = _FILE.validate_python([raw])
    except ValidationError as problem:
        first, *others = problem.errors(include_url=False)
        more = f" (and {count(len(others), 'more problem')})" if others else ""
        raise FormatError(f"{name}: profile {number + 1}{_complaint(first, raw)}{more}") from None
    return record.profile()


def _complaint(error: ErrorDetails, raw: object) -> str:
    """Return one of pydantic's complaints about the profile `raw`, as location and reason: ", attribute 'rent': value
    is missing". One about the profile as a whole adds its name: " (Ann Lee), attribute key 'rent' appears twice"."""
    inner = list(error["loc"][1:])
    reason = complaint(error)
    about = error.get("ctx", {}).get("about")
    bio = raw.get("bio") if isinstance(raw, dict) else None
    name = bio.get("name") if isinstance(bio, dict) else None
    named = f" ({shown(name)})" if isinstance(name, str) and name.strip() else ""
    if about == "profile":
        return f"{named}: {reason}"
    where = ""
    match inner:
        case ["information_attributes", key, *rest]:
            where = f", attribute '{shown(key)}'"
        case ["contexts", int(position), *rest]:
            where = f", context {position + 1}"
        case ["bio", *rest] if rest or about == "keys":
            where = ", bio"
        case _:
            rest = inner
    if about == "keys":
        return f"{named if len(inner) == 1 else ''}{where}, {reason}"
    return f"{where}: {shown(rest[0])} {reason}" if rest else f"{where} {reason}"


# ---- reading and writing files


@dataclass(frozen=True)
class ProfileFile:
    """The content of one file. sha256: of the bytes as read; notes: one-line remarks on what was changed; labels: none
    in a file of section 1."""

    profiles: tuple[Profile, ...]
    sha256: str
    notes: tuple[str, ...]
    labels: tuple[SharedLabels, ...] = ()


def read_profiles(path: Path) -> ProfileFile:
    """Read all profiles of one file. Raises FormatError, also for a path that is missing, a folder or unreadable. A
    large file that is not a list of profiles is refused from its first bytes, without reading the rest."""
    with opened(path) as stream:
        return _read(stream, shown(path.name or path))


def parse_profiles(data: bytes, name: str) -> ProfileFile:
    """Return all profiles of an uploaded file called `name`. Raises FormatError with one line on the first problem."""
    return _read(io.BytesIO(data), shown(name) or "upload")


def _read(stream: BinaryIO, name: str) -> ProfileFile:
    digest, remarks = hashlib.sha256(), Remarks()
    profiles = tuple(profile for _, profile in each_profile(stream, name, digest, remarks))
    return ProfileFile(profiles, digest.hexdigest(), remarks.notes())


def each_profile(
    stream: BinaryIO, name: str, digest: Any, remarks: Remarks
) -> Iterator[tuple[dict[str, Any], Profile]]:
    """Yield every record of the file, raw and as a profile; one record at a time is in memory. `digest` (of hashlib) is
    fed all bytes, `remarks` all records. Raises FormatError on the first problem."""

    def chunks() -> Iterator[bytes]:
        while data := stream.read(CHUNK):
            digest.update(data)
            yield data

    if not stream.read(1):
        raise FormatError(f"{name}: the file is empty")
    stream.seek(0)
    count = 0
    for record, constant in elements(chunks(), name):
        if count == MOST_PROFILES:
            raise FormatError(f"{name}: more than {MOST_PROFILES:,} profiles; split the file")
        # Before the constants: NaN in a value has a complaint of its own, which names the attribute.
        profile = checked_profile(record, count, name)
        if constant:
            raise FormatError(f"{name}: profile {count + 1}: {constant} is not JSON; write null instead")
        remarks.see(record)
        count += 1
        yield record, profile
    if not count:
        raise FormatError(f"{name}: the list is empty; it must hold at least one profile")


def write_profiles(profiles: Iterable[Profile]) -> str:
    """Return the profiles as JSON text in the authors' layout; reading it back gives equal profiles. Raises FormatError
    if that is impossible: no profiles, a key twice in a profile, an event or domain not in its one spelling, a value
    that is not JSON, or anything else that the reader refuses."""
    profiles = tuple(profiles)
    for number, profile in enumerate(profiles, 1):
        key, times = Counter(a.key for a in profile.attributes).most_common(1)[0] if profile.attributes else ("", 0)
        if times > 1:
            raise FormatError(f"export: profile {number}, attribute key '{shown(key)}' appears twice; rename one")
    text = json.dumps([record_of(profile) for profile in profiles], indent=4) + "\n"
    # Read back here, since a file that the reader refuses must not be written.
    if parse_profiles(text.encode("ascii"), "export").profiles != profiles:
        raise FormatError("export: the profiles would change on the way; give events and domains their one spelling")
    return text


def record_of(profile: Profile) -> dict[str, Any]:
    """Return one profile in the authors' layout."""
    attributes = {
        a.key: {
            "value": a.value,
            "information_domain": a.domain,
            "event": a.spelled_event,
            "memory_statement": a.statement,
        }
        for a in profile.attributes
    }
    contexts = [
        {"recipient": c.recipient, "task": c.task} | ({} if c.sphere is None else {"sphere": c.sphere})
        for c in profile.contexts
    ]
    bio = {"name": profile.name, "sex": profile.sex, "address": profile.address, "age": profile.age}
    return {"bio": bio, "information_attributes": attributes, "contexts": contexts}


@dataclass
class Remarks:
    """The remarks of an import on omissions and changed spellings, counted over the records of a file. read_elsewhere:
    beginnings of the fields that the caller reads itself."""

    read_elsewhere: tuple[str, ...] = ()
    extra: dict[str, Counter[str]] = field(default_factory=dict)
    events: int = 0
    domains: int = 0

    def see(self, record: dict[str, Any]) -> None:
        """Count the remarks on one record, which has been checked."""
        attributes = record["information_attributes"].values()
        parts: tuple[tuple[str, type[Record], Iterable[dict[str, Any]]], ...] = (
            ("profiles", _Profile, [record]),
            ("bios", _Bio, [record["bio"]]),
            ("attributes", _Attribute, attributes),
            ("contexts", _Context, record["contexts"]),
        )
        for part, model, objects in parts:
            fields = model.model_fields  # once: pydantic looks them up again each time, a sixth of the time of a read
            self.extra.setdefault(part, Counter()).update(
                key for item in objects for key in item if key not in fields and not key.startswith(self.read_elsewhere)
            )
        for item in attributes:
            self.events += item["event"] != canonical_event(item["event"])
            self.domains += item["information_domain"] != canonical_domain(item["information_domain"])

    def notes(self) -> tuple[str, ...]:
        """Return one line a thing, each with its count."""
        notes = []
        for part, extra in self.extra.items():
            if extra:
                named = ", ".join(f"{shown(key)} ({times})" for key, times in extra.most_common(5))
                more = f" and {len(extra) - 5} further fields" if len(extra) > 5 else ""
                notes.append(f"fields of {part} that this format does not have were ignored: {named}{more}")
        if self.events:
            changed = count(self.events, "attribute")
            notes.append(f"the spelling of events was unified in {changed}; an export keeps the file's own")
        if self.domains:
            notes.append(f"the spelling of domains was unified in {count(self.domains, 'attribute')}")
        return tuple(notes)

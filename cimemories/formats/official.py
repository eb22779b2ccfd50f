"""The authors' profile files (formats.md, section 1): a JSON array of profiles, read whole or not at all.

    [{"bio": {"name": "Ann Lee", "sex": "F", "address": "1 Elm St", "age": 42},
      "information_attributes": {"rent": {"value": 1450, "information_domain": "housing",
                                          "event": "divorce_proceedings", "memory_statement": "My rent is $1,450."}},
      "contexts": [{"recipient": "Landlord", "task": "Negotiate the renewal of a lease"}]}]

Values keep their JSON type: true stays a boolean, 1.0 a float, null None. Events and domains get their one spelling
(model.canonical_event, model.canonical_domain); an export writes events as the file spelled them. A list may hold flat
objects, as one of the released values does ([{"name": "Emily", "age": 12}]). Fields that the format does not have
(labels, results) are left out and named in a note. One field is our own: a context's "sphere", written where it is
known, so that an export read back gives equal profiles.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from cimemories.files import NotAFileError, open_regular
from cimemories.formats.errors import FormatError as FormatError
from cimemories.formats.json_records import elements
from cimemories.formats.official_records import FIELDS, FILE, MOST_PROFILES, in_words, shown
from cimemories.model import Profile, canonical_domain, canonical_event

_CHUNK = 1 << 20


@dataclass(frozen=True)
class OfficialFile:
    """What one file holds. `sha256` is of the bytes as they came; `notes` are one-line remarks on what was changed."""

    profiles: tuple[Profile, ...]
    sha256: str
    notes: tuple[str, ...]


def read_profiles(path: Path) -> OfficialFile:
    """All profiles of one file. Raises FormatError, also for a path that is missing, a folder or unreadable.

    A large file that is no list of profiles is refused from its first bytes, without reading the rest.
    """
    with opened(path) as stream:
        return _read(stream, shown(path.name or path))


def parse_profiles(data: bytes, name: str) -> OfficialFile:
    """All profiles of an uploaded file called `name`. Raises FormatError with one line on the first problem."""
    return _read(io.BytesIO(data), shown(name) or "upload")


def _read(stream: BinaryIO, name: str) -> OfficialFile:
    digest, remarks = hashlib.sha256(), Remarks()
    profiles = tuple(profile for _, profile in each_profile(stream, name, digest, remarks))
    return OfficialFile(profiles, digest.hexdigest(), remarks.notes())


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file for reading its bytes; whatever the system says against it comes as FormatError."""
    name = shown(path.name or path)
    try:
        with open_regular(path) as stream:
            yield stream
    except NotAFileError as error:
        hint = "choose the JSON file inside it" if path.is_dir() else "choose a regular file"
        raise FormatError(f"{name}: this is {error.strerror}; {hint}") from None
    except FileNotFoundError:
        raise FormatError(f"{name}: there is no such file; check the path {shown(path, 300)}") from None
    except OSError as error:
        raise FormatError(f"{name}: cannot be read ({shown(error.strerror or error)}); check its permissions") from None
    except ValueError as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{name}: this is not a usable path ({shown(error)})") from None


def each_profile(
    stream: BinaryIO, name: str, digest: Any, remarks: Remarks
) -> Iterator[tuple[dict[str, Any], Profile]]:
    """Every record of the file as it stands there and as a profile; one record at a time is in memory.

    `digest` (of hashlib) is fed all bytes, `remarks` all records. Raises FormatError on the first problem.
    """
    if not stream.read(1):
        raise FormatError(f"{name}: the file is empty")
    stream.seek(0)
    count = 0
    for element in elements(_chunks(stream, digest), name):
        if count == MOST_PROFILES:
            raise FormatError(f"{name}: more than {MOST_PROFILES:,} profiles; split the file")
        profile = checked_profile(element.value, count, name)
        if element.constants:
            raise FormatError(f"{name}: profile {count + 1}: {element.constants[0]} is not JSON; write null instead")
        remarks.see(element.value)
        count += 1
        yield element.value, profile
    if not count:
        raise FormatError(f"{name}: the list is empty; it must hold at least one profile")


def checked_profile(raw: Any, number: int, name: str) -> Profile:
    """One record of the file called `name` as a profile; `number` counts from 0. Raises FormatError."""
    try:
        (record,) = FILE.validate_python([raw])
    except ValidationError as problem:
        first, *others = problem.errors(include_url=False)
        first["loc"] = (number, *first["loc"][1:])
        more = f" (and {len(others)} more problem{'s' if len(others) > 1 else ''})" if others else ""
        raise FormatError(f"{name}: {in_words(first, {number: raw})}{more}") from None
    return record.profile()


def _chunks(stream: BinaryIO, digest: Any) -> Iterator[bytes]:
    while data := stream.read(_CHUNK):
        digest.update(data)
        yield data


def write_profiles(profiles: Iterable[Profile]) -> str:
    """The profiles as JSON text in the authors' layout; reading it back gives equal profiles.

    Raises FormatError where that cannot hold: no profiles, a key twice in a profile, an event or domain not in its one
    spelling, a value that is no JSON, or whatever else the reader refuses.
    """
    wanted = tuple(profiles)
    for number, profile in enumerate(wanted, 1):
        key, times = Counter(a.key for a in profile.attributes).most_common(1)[0] if profile.attributes else ("", 0)
        if times > 1:
            raise FormatError(f"export: profile {number}, attribute key '{shown(key)}' stands twice; rename one")
    text = json.dumps([record_of(profile) for profile in wanted], indent=4) + "\n"
    if parse_profiles(text.encode("ascii"), "export").profiles != wanted:
        raise FormatError("export: the profiles would change on the way; give events and domains their one spelling")
    return text


def record_of(profile: Profile) -> dict[str, Any]:
    """One profile as the authors' layout has it."""
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
    """What an import leaves out or writes otherwise, counted over the records of a file."""

    known: tuple[str, ...] = ()  # beginnings of the fields that the caller reads itself
    extra: dict[str, Counter[str]] = field(default_factory=dict)
    events: int = 0
    domains: int = 0

    def see(self, record: dict[str, Any]) -> None:
        attributes = record["information_attributes"].values()
        records = {
            "profiles": [record],
            "bios": [record["bio"]],
            "attributes": attributes,
            "contexts": record["contexts"],
        }
        for place, model in FIELDS:
            own = model.model_fields
            found = self.extra.setdefault(place, Counter())
            found.update(
                key for item in records[place] for key in item if key not in own and not key.startswith(self.known)
            )
        for item in attributes:
            self.events += item["event"] != canonical_event(item["event"])
            self.domains += item["information_domain"] != canonical_domain(item["information_domain"])

    def notes(self) -> tuple[str, ...]:
        """One line a thing, each with its count."""
        notes = []
        for place, extra in self.extra.items():
            if extra:
                named = ", ".join(f"{shown(key)} ({times})" for key, times in extra.most_common(5))
                more = f" and {len(extra) - 5} further fields" if len(extra) > 5 else ""
                notes.append(f"left out of the {place}, as no part of this format: {named}{more}")
        if self.events:
            notes.append(
                f"events are shown in one spelling in {self.events} attributes; an export keeps the file's own"
            )
        if self.domains:
            notes.append(f"domain brought to its one spelling in {self.domains} attributes")
        return tuple(notes)

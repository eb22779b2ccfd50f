"""The authors' profile files (formats.md, section 1): a JSON array of profiles, read whole or not at all.

    [{"bio": {"name": "Ann Lee", "sex": "F", "address": "1 Elm St", "age": 42},
      "information_attributes": {"rent": {"value": 1450, "information_domain": "housing",
                                          "event": "divorce_proceedings", "memory_statement": "My rent is $1,450."}},
      "contexts": [{"recipient": "Landlord", "task": "Negotiate the renewal of a lease"}]}]

Values keep their JSON type: true stays a boolean, 1.0 a float, null None. Events and domains get their one spelling
(model.canonical_event, model.canonical_domain). A list may hold flat objects, as one of the released values does
([{"name": "Emily", "age": 12}]). Fields that the format does not have (labels, results) are left out and named in a
note. One field is our own: a context's "sphere", written where it is known, so that an export read back gives equal
profiles.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cimemories.formats.official_records import FIELDS, FILE, Repeating, in_words, shown
from cimemories.model import Profile, canonical_domain, canonical_event

_HEAD_BYTES = 65_536
_LEADING = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*")


class FormatError(ValueError):
    """A file that cannot be imported. The message is one line: file, record, field and what to do."""


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
    name = shown(path.name or path)
    try:
        if path.is_dir():
            raise FormatError(f"{name}: this is a folder; choose the JSON file inside it")
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
            if _LEADING.sub(b"", head, count=1):
                _check_start(head, name)
            return parse_profiles(head + stream.read(), name)
    except FileNotFoundError:
        raise FormatError(f"{name}: there is no such file; check the path {shown(path, 300)}") from None
    except OSError as error:
        raise FormatError(f"{name}: cannot be read ({shown(error.strerror or error)}); check its permissions") from None
    except ValueError as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{name}: this is not a usable path ({shown(error)})") from None


def parse_profiles(data: bytes, name: str) -> OfficialFile:
    """All profiles of an uploaded file called `name`. Raises FormatError with one line on the first problem."""
    name = shown(name) or "upload"
    if not data:
        raise FormatError(f"{name}: the file is empty")
    _check_start(data, name)
    raw, constants = _decoded(data, name)
    if not raw:
        raise FormatError(f"{name}: the list is empty; it must hold at least one profile")
    try:
        records = FILE.validate_python(raw)
    except ValidationError as error:
        first, *others = error.errors(include_url=False)
        more = f" (and {len(others)} more problem{'s' if len(others) > 1 else ''})" if others else ""
        raise FormatError(f"{name}: {in_words(first, raw)}{more}") from None
    if constants:
        raise FormatError(f"{name}: {constants[0]} is not JSON; write null instead")
    profiles = tuple(record.profile() for record in records)
    return OfficialFile(profiles, hashlib.sha256(data).hexdigest(), tuple(_notes(raw)))


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
    text = json.dumps([_as_json(profile) for profile in wanted], indent=4) + "\n"
    if parse_profiles(text.encode("ascii"), "export").profiles != wanted:
        raise FormatError("export: the profiles would change on the way; give events and domains their one spelling")
    return text


def _as_json(profile: Profile) -> dict[str, object]:
    attributes = {
        a.key: {
            "value": a.value,
            "information_domain": a.domain,
            "event": a.event,
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


def _check_start(data: bytes, name: str) -> None:
    """Refuse what cannot be a list of profiles by its first byte that is no white space."""
    start = _LEADING.match(data)
    first = data[start.end() : start.end() + 1] if start else b""
    if not first:
        raise FormatError(f"{name}: the file is empty (nothing but white space)")
    if first == b"[":
        return
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data[:_HEAD_BYTES])
    except UnicodeDecodeError as error:
        raise _not_utf8(name, data, error.start) from None
    character = shown(data[start.end() : start.end() + 4].decode(errors="ignore")[:1]) if start else ""
    hint = "; put the one profile in [ ]" if first == b"{" else ""
    raise FormatError(f"{name}: the top level must be a list of profiles, from '[', not from '{character}'{hint}")


def _not_utf8(name: str, data: bytes, position: int) -> FormatError:
    return FormatError(f"{name}: not UTF-8 at byte {position} (0x{data[position]:02x}); save the file as UTF-8")


def _decoded(data: bytes, name: str) -> tuple[list[Any], list[str]]:
    """The file as Python objects, and the NaN and Infinity words in it, which JSON does not have."""
    constants: list[str] = []

    def paired(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        return Repeating(found, Counter(key for key, _ in pairs).most_common(1)[0][0])

    def constant(word: str) -> float:
        constants.append(word)
        return math.nan

    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
        return json.loads(text, object_pairs_hook=paired, parse_constant=constant), constants
    except UnicodeDecodeError as error:
        raise _not_utf8(name, data, error.start) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise FormatError(f"{name}: not valid JSON at {where}: {shown(error.msg)}") from None
    except RecursionError:
        raise FormatError(f"{name}: nested too deeply; a profile file has four levels") from None
    except ValueError:
        raise FormatError(f"{name}: a number has too many digits; write it as text") from None


def _notes(raw: list[Any]) -> list[str]:
    """What the import left out or wrote otherwise, one line a thing, each with its count."""
    attributes = [record for profile in raw for record in profile["information_attributes"].values()]
    records = {
        "profiles": raw,
        "bios": [profile["bio"] for profile in raw],
        "attributes": attributes,
        "contexts": [context for profile in raw for context in profile["contexts"]],
    }
    notes = []
    for place, model in FIELDS:
        extra = Counter(key for record in records[place] for key in record if key not in model.model_fields)
        if extra:
            named = ", ".join(f"{shown(key)} ({times})" for key, times in extra.most_common(5))
            more = f" and {len(extra) - 5} further fields" if len(extra) > 5 else ""
            notes.append(f"left out of the {place}, as no part of this format: {named}{more}")
    respelled = sum(
        record["event"] != canonical_event(record["event"])
        or record["information_domain"] != canonical_domain(record["information_domain"])
        for record in attributes
    )
    if respelled:
        notes.append(f"event or domain brought to its one spelling in {respelled} attributes")
    return notes

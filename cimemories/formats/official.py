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

The array is read element by element, so that a file of any size needs the memory of its largest profile. pydantic
checks each record; its complaints are reworded for people: file, record (counted from 1), field, and what to do.
"""

from __future__ import annotations

import codecs
import gc
import hashlib
import io
import itertools
import json
import math
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from cimemories.files import NotAFileError, open_regular
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
from cimemories.store.engine import StoreError
from cimemories.store.labellings import SharedLabels
from cimemories.text import count, json_problem

# Of a file: one transaction writes it, and nobody else writes meanwhile. The largest study planned for has 1,000.
MOST_PROFILES = 10_000
MOST_ATTRIBUTES = 5_000  # of a profile
MOST_CONTEXTS = 2_000  # of a profile
MOST_ITEMS = 1_000  # of a list as a value
_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_KNOWN_DOMAINS = (*DOMAINS, GENERAL)


class FormatError(ValueError):
    """A file that cannot be imported or written. The message is one line: file, record, field and what to do."""


def shown(text: object, limit: int = 80) -> str:
    """A piece of the file as it may stand in a one-line message: nothing unprintable, never long."""
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text)[: limit + 1])
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def forbidden(text: str) -> bool:
    """Whether a text has what no field may: control characters but line breaks and tabs, or lone surrogates."""
    return _FORBIDDEN.search(text) is not None


def too_long(size: int, longest: int) -> str:
    """Why a text of that many characters is refused."""
    return f"has {size:,} characters, more than the {longest:,} allowed; shorten it"


def kind(value: object) -> str:
    """The JSON type of a value, as a person calls it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    names = {int: "a number", float: "a decimal number", str: "text", list: "a list", dict: "an object"}
    return next((name for python, name in names.items() if isinstance(value, python)), type(value).__name__)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file for reading its bytes, text in UTF-16 or UTF-32 as UTF-8. What the system says against it comes as
    FormatError."""
    name = shown(path.name or path)
    try:
        with open_regular(path) as stream:
            encoding = json.detect_encoding(stream.read(4))
            stream.seek(0)
            with nullcontext(stream) if encoding.startswith("utf-8") else _as_utf8(stream, encoding, name) as utf8:
                yield utf8
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


@contextmanager
def _as_utf8(stream: BinaryIO, encoding: str, name: str) -> Iterator[BinaryIO]:
    with io.TextIOWrapper(stream, encoding, newline="") as text, tempfile.TemporaryFile() as copy:
        try:
            while part := text.read(CHUNK):
                copy.write(part.encode())
        except UnicodeError:
            begins = f"begins like text in {encoding[:6].upper()}, but is none"
            raise FormatError(f"{name}: {begins}; save the file as UTF-8") from None
        copy.seek(0)
        yield copy


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Where to write what shall stand at the path once the block has gone well; nothing is left of one that has not.
    Raises StoreError where the system refuses."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target: only inside one file system is a rename one step.
    draft = Path(tempfile.mkdtemp(prefix=".export-", dir=path.parent))
    try:
        yield draft / "export"
        (draft / "export").replace(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror or error}). Nothing was kept of it.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def numbered_lines(stream: BinaryIO, name: str, longest: int, hint: str) -> Iterator[tuple[int, bytes]]:
    """Every line of the file called `name` as it is there, with its number from 1. Raises FormatError that ends with
    `hint` for one of more than `longest` bytes: without a limit, a file without line breaks would be read whole."""
    for number in itertools.count(1):
        line = stream.readline(longest + 1)
        if not line:
            return
        if len(line) > longest:
            raise FormatError(f"{name}: line {number} is longer than {longest >> 20} MiB; {hint}")
        yield number, line


def file_hash(*paths: Path) -> str:
    """SHA-256 of a file's bytes; of several files that of theirs, in this order. Raises FormatError where one cannot be
    read."""
    if len(paths) > 1:
        return hashlib.sha256("".join(map(file_hash, paths)).encode()).hexdigest()
    digest = hashlib.sha256()
    with opened(paths[0]) as stream:
        while data := stream.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()


# ---- records: what pydantic checks


class Repeating(dict[str, Any]):
    """An object in which a key appears more than once; json.loads would silently keep the last one."""

    def __init__(self, values: dict[str, Any], repeated: str) -> None:
        super().__init__(values)
        self.repeated = repeated


def _refuse(reason: str, about: str = "field") -> PydanticCustomError:
    """about: what the reason names itself, so that the message does not: a field (no), repeated or bad keys, or the
    profile as a whole."""
    return PydanticCustomError("official", "{reason}", {"reason": reason, "about": about})


def checked_text(value: object, longest: int = LONGEST_NAME) -> object:
    """Text as it is; what is not text passes, for pydantic to name its type. Raises PydanticCustomError."""
    if not isinstance(value, str):
        return value
    if len(value) > longest:
        raise _refuse(too_long(len(value), longest))
    if bad := _FORBIDDEN.search(value):
        raise _refuse(f"contains U+{ord(bad[0]):04X}, a control character or lone surrogate; remove it")
    if not value.strip():
        raise _refuse("is blank; write a text")
    return value


def _checked_scalar(value: object) -> Scalar:
    if isinstance(value, float) and not math.isfinite(value):
        raise _refuse("must be a finite number (NaN and Infinity are not JSON); write null where it is not known")
    checked = checked_text(value, LONGEST_STATEMENT)
    if checked is None or isinstance(checked, str | bool | int | float):
        return checked
    raise _refuse(f"must be text, a number, true, false, null or a list of these, not {kind(value)}")


def _flat_object(item: dict[str, Any]) -> dict[str, Scalar]:
    if isinstance(item, Repeating):
        raise _refuse(f"contains an object in which '{shown(item.repeated)}' appears twice")
    if not item or any(isinstance(inner, dict | list) for inner in item.values()):
        raise _refuse("contains an object or list inside an object; write flat text instead")
    return {key: _checked_scalar(inner) for key, inner in item.items()}


def checked_value(value: object) -> Value:
    """The value, its JSON type kept: pydantic's unions could turn 1 into True or 1.0 into 1. Raises as checked_text."""
    if not isinstance(value, list):
        return _checked_scalar(value)
    if len(value) > MOST_ITEMS:
        raise _refuse(f"is a list of {len(value):,} items, more than the {MOST_ITEMS:,} allowed")
    items = [_flat_object(item) if isinstance(item, dict) else _checked_scalar(item) for item in value]
    size = len(json.dumps(items, ensure_ascii=False))
    if size > LONGEST_STATEMENT:
        raise _refuse(too_long(size, LONGEST_STATEMENT))
    return items


def _checked_age(value: int) -> int:
    if not 0 <= value <= 150:
        raise _refuse("must be a number of years from 0 to 150")
    return value


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
        raise _refuse(f"attribute key '{shown(value.repeated)}' appears twice; rename or remove one", "keys")
    if isinstance(value, dict):
        if not value:
            raise _refuse("there are no attributes; add at least one under information_attributes", "profile")
        if len(value) > MOST_ATTRIBUTES:
            raise _refuse(f"{len(value):,} attributes are more than the {MOST_ATTRIBUTES:,} allowed", "profile")
        for key in value:
            if len(key) > LONGEST_NAME:
                raise _refuse(f"attribute key '{shown(key)}' {too_long(len(key), LONGEST_NAME)}", "keys")
            # splitlines breaks at more than line feeds (U+2028, form feed): what it would cut is no one-line key.
            if not key.strip() or forbidden(key) or "".join(key.splitlines()) != key:
                raise _refuse(f"attribute key '{shown(key)}' is blank or has control characters; rename it", "keys")
    return value


class Record(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _each_field_once(cls, data: object) -> object:
        if isinstance(data, Repeating):
            raise _refuse(f"field '{shown(data.repeated)}' appears twice; remove one", "keys")
        return data


_FieldText = Annotated[str, BeforeValidator(checked_text)]


class _BioRecord(Record):
    name: _FieldText
    sex: _FieldText
    address: _FieldText
    age: Annotated[int, AfterValidator(_checked_age)]


class _AttributeRecord(Record):
    value: Annotated[Value, PlainValidator(checked_value)]
    information_domain: Annotated[_FieldText, AfterValidator(_checked_domain)]
    event: Annotated[_FieldText, AfterValidator(_checked_event)]
    memory_statement: Annotated[str, BeforeValidator(lambda value: checked_text(value, LONGEST_STATEMENT))]


class _ContextRecord(Record):
    recipient: _FieldText
    task: _FieldText
    sphere: _FieldText | None = None


def _few_contexts(value: object) -> object:
    """Before each is looked at: millions of wrong ones would give millions of complaints."""
    if isinstance(value, list) and len(value) > MOST_CONTEXTS:
        raise _refuse(f"{len(value):,} contexts are more than the {MOST_CONTEXTS:,} allowed", "profile")
    return value


def _different_contexts(contexts: list[_ContextRecord]) -> list[_ContextRecord]:
    seen: dict[tuple[str, str], int] = {}
    for number, context in enumerate(contexts, 1):
        pair = (" ".join(context.task.split()), " ".join(context.recipient.split()))
        if pair in seen:
            same = f"task '{shown(pair[0])}', recipient '{shown(pair[1])}'"
            raise _refuse(f"contexts {seen[pair]} and {number} are the same ({same}); keep one", "profile")
        seen[pair] = number
    return contexts


class _ProfileRecord(Record):
    bio: _BioRecord
    information_attributes: Annotated[dict[str, _AttributeRecord], BeforeValidator(_checked_attributes)]
    contexts: Annotated[list[_ContextRecord], BeforeValidator(_few_contexts), AfterValidator(_different_contexts)]

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


_FILE = TypeAdapter(list[_ProfileRecord])


def checked_profile(raw: Any, number: int, name: str) -> Profile:
    """One record of the file called `name` as a profile; `number` counts from 0. Raises FormatError."""
    try:
        # In a list of one: complaints then begin with a position, as those of a whole file would.
        (record,) = _FILE.validate_python([raw])
    except ValidationError as problem:
        first, *others = problem.errors(include_url=False)
        more = f" (and {len(others)} more problem{'s' if len(others) > 1 else ''})" if others else ""
        raise FormatError(f"{name}: profile {number + 1}{_complaint(first, raw)}{more}") from None
    return record.profile()


def _complaint(error: ErrorDetails, raw: object) -> str:
    """One of pydantic's complaints about the profile `raw`, as location and reason: ", attribute 'rent': value is
    missing". One about the profile as a whole adds its name: " (Ann Lee), attribute key 'rent' appears twice"."""
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


def complaint(error: ErrorDetails) -> str:
    """What is wrong with the value, without its field, in words for people; pydantic's own are for programmers."""
    if error["type"] == "official":
        return str(error["ctx"]["reason"])
    reason = _REASONS.get(error["type"], "cannot be used as it is ({0}); compare it with docs/formats.md")
    context = {"ge": "", "expected": "", "max_length": "", **error.get("ctx", {})}
    return reason.format(kind(error["input"]), shown(error["input"], 40), **context)


_REASONS = {
    "missing": "is missing",
    "string_type": "must be text, not {0}",
    "string_too_short": "is blank; write a text",
    "string_too_long": "is longer than {max_length} characters; shorten it",
    "int_type": "must be a whole number, not {0}",
    "float_type": "must be a number, not {0}",
    "bool_type": "must be true or false, not {0}",
    "literal_error": "must be {expected}, not {1}",
    "greater_than_equal": "must be {ge} or more",
    "list_type": "must be a list, not {0}",
    "dict_type": "must be an object, not {0}",
    "model_type": "must be an object, not {0}",
}


# ---- JSON, element by element
#
# Python's own decoder reads each element; added are the location (line, column, byte), keys that appear twice,
# and the constants NaN and Infinity, which JSON does not have.


CHUNK = 1 << 20
LARGEST_RECORD = 64 << 20  # characters
LONGEST_SPACE = 64 << 20  # characters of white space between two elements
MOST_COMMAS = 4_000_000  # of a record: an empty list takes three characters of the file and sixty bytes of memory
_LONGEST_TOKEN = 16  # what the end of the buffer may cut in two: -Infinity, an escape
_SPACE = re.compile(r"[ \t\r\n]*")
_KEEP = 1 << 18  # characters already read that may stay in memory: each time they are dropped, all others are copied


def elements(chunks: Iterable[bytes], name: str) -> Iterator[tuple[Any, str]]:
    """The elements of the array that these bytes are, each with the first NaN or Infinity in it ('' in valid JSON).
    Raises FormatError for whatever is not a JSON array in UTF-8."""
    text = _JsonText(iter(chunks), name)
    if not text.skip_space():
        raise FormatError(f"{name}: the file is empty (nothing but white space)")
    if text.here != "[":
        hint = "; put the one profile in [ ]" if text.here == "{" else ""
        raise FormatError(
            f"{name}: the top level must be a list of profiles, from '[', not from '{shown(text.here)}'{hint}"
        )
    text.position += 1
    text.skip_space_before_end()
    more = text.here != "]"
    while more:
        yield text.element()
        text.skip_space_before_end()
        more = text.here == ","
        if more:
            text.position += 1
            text.skip_space_before_end()
        elif text.here != "]":
            raise text.problem("Expecting ',' delimiter", text.position)
    text.position += 1
    if text.skip_space():
        raise text.problem("Extra data", text.position)


@contextmanager
def _no_collection() -> Iterator[None]:
    """The garbage collector walks again and again over all that a large record has built so far, where there is nothing
    to collect: seven times the time of the decoder itself."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _JsonText:
    """The part of the file that is in memory, and where in the file it begins."""

    def __init__(self, chunks: Iterator[bytes], name: str) -> None:
        self.name = name
        self.buffer, self.position = "", 0
        self._chunks = chunks
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._ended = False
        self._bytes = self._lines = self._column = 0
        self._constants: list[str] = []
        self._json = json.JSONDecoder(object_pairs_hook=_paired, parse_constant=self._constant)
        self._start = True

    @property
    def here(self) -> str:
        return self.buffer[self.position]

    def skip_space(self) -> bool:
        """Go to the next character that is not white space; False at the end of the file."""
        skipped = 0
        while True:
            start = self.position
            self.position = _SPACE.match(self.buffer, start).end()  # type: ignore[union-attr]  # matches anything
            if self.position < len(self.buffer):
                return True
            skipped += self.position - start
            if skipped > LONGEST_SPACE:
                raise FormatError(
                    f"{self.name}: more than {LONGEST_SPACE >> 20} MiB of white space; this is not a profile file"
                )
            self._drop()
            if not self._more(CHUNK):
                return False

    def skip_space_before_end(self) -> None:
        if not self.skip_space():
            raise self.problem("the list has no end; the file was cut off", self.position)

    def element(self) -> tuple[Any, str]:
        """The value that begins here, and its first NaN or Infinity."""
        if self.position > _KEEP:
            self._drop()
        size = CHUNK
        while True:
            self._constants = []
            try:
                with _no_collection() if size > CHUNK else nullcontext():
                    value, end = self._json.raw_decode(self.buffer, self.position)
            except json.JSONDecodeError as error:
                # Either wrong, or cut where the buffer ends: reading on tells. The size doubles, so that an element of
                # any length is decoded a logarithmic number of times.
                cut = error.msg.startswith("Unterminated") or error.pos > len(self.buffer) - _LONGEST_TOKEN
                if cut and len(self.buffer) < LARGEST_RECORD and self._more(size):
                    if self.buffer.count(",", self.position) > MOST_COMMAS:
                        raise FormatError(f"{self.name}: a profile has more than {MOST_COMMAS:,} values") from None
                    size *= 2
                    continue
                raise self.problem(error.msg, error.pos) from None
            except RecursionError:
                raise FormatError(f"{self.name}: nested too deeply; a profile file has four levels") from None
            except ValueError:
                raise FormatError(f"{self.name}: a number has too many digits; write it as text") from None
            # A number that ends with the buffer may go on in the file.
            if end < len(self.buffer) or not self._more(CHUNK):
                self.position = end
                return value, next(iter(self._constants), "")

    def problem(self, what: str, position: int) -> FormatError:
        line, column = self._place(position)
        return FormatError(f"{self.name}: not valid JSON at line {line + 1}, column {column + 1}: {json_problem(what)}")

    def _constant(self, name: str) -> float:
        # Kept for later: only who reads the element can name its profile in the error.
        self._constants.append(name)
        return math.nan

    def _place(self, position: int) -> tuple[int, int]:
        breaks = self.buffer.count("\n", 0, position)
        if breaks:
            return self._lines + breaks, position - self.buffer.rfind("\n", 0, position) - 1
        return self._lines, self._column + position

    def _drop(self) -> None:
        """Forget what is read."""
        self._lines, self._column = self._place(self.position)
        self.buffer, self.position = self.buffer[self.position :], 0

    def _more(self, size: int) -> bool:
        """Read on by about `size` characters; False where the file has ended."""
        pieces, got = [], 0
        while got < size and not self._ended:
            data = next(self._chunks, b"")
            try:
                piece = self._decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                # The decoder was given what the chunk before left over, so the position counts from there.
                left_over = len(error.object) - len(data)  # the start of a character whose rest came now
                at = self._bytes - left_over + error.start
                raise FormatError(
                    f"{self.name}: not UTF-8 at byte {at} (0x{error.object[error.start]:02x}); save the file as UTF-8"
                ) from None
            self._bytes += len(data)
            self._ended = not data
            pieces.append(piece)
            got += len(piece)
        text = "".join(pieces)
        if self._start and text:
            self._start = False
            # A first chunk of the mark alone must not look like the end of the file.
            text = text.removeprefix("\ufeff")
            if not text:
                return self._more(size)
        self.buffer += text
        return bool(text)


def _paired(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) == len(pairs):
        return values
    return Repeating(values, Counter(key for key, _ in pairs).most_common(1)[0][0])


def loads(data: bytes, where: str, *, nan: bool = False) -> Any:
    """One JSON value; repeated keys give Repeating. nan: whether NaN and Infinity may be in it, which are not JSON.
    Raises FormatError."""

    def constant(name: str) -> float:
        if nan:
            return math.nan
        raise FormatError(f"{where}: {name} is not JSON; write null instead")

    # Before decoding: afterwards the memory is taken. Commas in texts count too, so the bound is a rough one.
    if data.count(b",") > MOST_COMMAS:
        raise FormatError(f"{where}: more than {MOST_COMMAS:,} values")
    try:
        with _no_collection():
            text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
            return json.loads(text, object_pairs_hook=_paired, parse_constant=constant)
    except UnicodeDecodeError as error:
        raise FormatError(f"{where}: not UTF-8 at byte {error.start}; save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        raise FormatError(f"{where}: not valid JSON at column {error.pos + 1}: {json_problem(error.msg)}") from None
    except RecursionError:
        raise FormatError(f"{where}: nested too deeply") from None
    except ValueError as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{where}: a number has too many digits; write it as text") from None


# ---- reading and writing files


@dataclass(frozen=True)
class ProfileFile:
    """What one file holds. sha256: of the bytes as they came; notes: one-line remarks on what was changed; labels: none
    in a file of section 1."""

    profiles: tuple[Profile, ...]
    sha256: str
    notes: tuple[str, ...]
    labels: tuple[SharedLabels, ...] = ()


def read_profiles(path: Path) -> ProfileFile:
    """All profiles of one file. Raises FormatError, also for a path that is missing, a folder or unreadable. A large
    file that is not a list of profiles is refused from its first bytes, without reading the rest."""
    with opened(path) as stream:
        return _read(stream, shown(path.name or path))


def parse_profiles(data: bytes, name: str) -> ProfileFile:
    """All profiles of an uploaded file called `name`. Raises FormatError with one line on the first problem."""
    return _read(io.BytesIO(data), shown(name) or "upload")


def _read(stream: BinaryIO, name: str) -> ProfileFile:
    digest, remarks = hashlib.sha256(), Remarks()
    profiles = tuple(profile for _, profile in each_profile(stream, name, digest, remarks))
    return ProfileFile(profiles, digest.hexdigest(), remarks.notes())


def each_profile(
    stream: BinaryIO, name: str, digest: Any, remarks: Remarks
) -> Iterator[tuple[dict[str, Any], Profile]]:
    """Every record of the file as it is there and as a profile; one record at a time is in memory. `digest` (of
    hashlib) is fed all bytes, `remarks` all records. Raises FormatError on the first problem."""

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
    """The profiles as JSON text in the authors' layout; reading it back gives equal profiles. Raises FormatError where
    that cannot hold: no profiles, a key twice in a profile, an event or domain not in its one spelling, a value that is
    not JSON, or whatever else the reader refuses."""
    profiles = tuple(profiles)
    for number, profile in enumerate(profiles, 1):
        key, times = Counter(a.key for a in profile.attributes).most_common(1)[0] if profile.attributes else ("", 0)
        if times > 1:
            raise FormatError(f"export: profile {number}, attribute key '{shown(key)}' appears twice; rename one")
    text = json.dumps([record_of(profile) for profile in profiles], indent=4) + "\n"
    # Read back before anybody else has to: what the reader refuses must not leave as a file.
    if parse_profiles(text.encode("ascii"), "export").profiles != profiles:
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
    """What an import leaves out or spells otherwise, counted over the records of a file."""

    known: tuple[str, ...] = ()  # beginnings of the fields that the caller reads itself
    extra: dict[str, Counter[str]] = field(default_factory=dict)
    events: int = 0
    domains: int = 0

    def see(self, record: dict[str, Any]) -> None:
        """Count what is to be remarked in one record, which has been checked."""
        attributes = record["information_attributes"].values()
        parts: tuple[tuple[str, type[Record], Iterable[dict[str, Any]]], ...] = (
            ("profiles", _ProfileRecord, [record]),
            ("bios", _BioRecord, [record["bio"]]),
            ("attributes", _AttributeRecord, attributes),
            ("contexts", _ContextRecord, record["contexts"]),
        )
        for part, model, objects in parts:
            fields = model.model_fields  # once: pydantic looks them up anew each time, a sixth of the time of a read
            self.extra.setdefault(part, Counter()).update(
                key for item in objects for key in item if key not in fields and not key.startswith(self.known)
            )
        for item in attributes:
            self.events += item["event"] != canonical_event(item["event"])
            self.domains += item["information_domain"] != canonical_domain(item["information_domain"])

    def notes(self) -> tuple[str, ...]:
        """One line a thing, each with its count."""
        notes = []
        for part, extra in self.extra.items():
            if extra:
                named = ", ".join(f"{shown(key)} ({times})" for key, times in extra.most_common(5))
                more = f" and {len(extra) - 5} further fields" if len(extra) > 5 else ""
                notes.append(f"fields of {part} that this format does not have were ignored: {named}{more}")
        if self.events:
            notes.append(
                f"the spelling of events was unified in {count(self.events, 'attribute')}; an export keeps the "
                "file's own"
            )
        if self.domains:
            notes.append(f"the spelling of domains was unified in {count(self.domains, 'attribute')}")
        return tuple(notes)

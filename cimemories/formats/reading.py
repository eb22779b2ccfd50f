"""The base of all readers: opening a file; JSON, JSON Lines, CSV and Parquet as streams; checking a record; errors.

    for where, raw in rows(Path("x.csv")):              # ("x.csv: line 2", {"event": "mark", ...})
        row = checked(Mark, raw, where)                  # FormatError: "x.csv: line 2: kind is missing"

Files come from strangers. Nothing is read whole before its size is known, a record has a limit, and a few kilobytes of
Parquet, which can stand for gigabytes since one long text in every row is kept once and named by number, are read as
dictionaries: sizes are looked up in the footer before anything is unpacked, and no cell is longer than its format
needs. A footer can lie, which only a limit on the process catches (cimemories.uploads).
"""

from __future__ import annotations

import codecs
import csv
import gc
import hashlib
import io
import itertools
import json
import math
import re
import shutil
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, BinaryIO, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from cimemories.files import NotAFileError, open_regular
from cimemories.model import LONGEST_NAME, LONGEST_STATEMENT
from cimemories.store.engine import StoreError
from cimemories.text import RepeatedKeyError, complaint, json_problem, refused, shown

MOST_PROFILES = 10_000  # of a file, which one transaction writes; the largest study planned for has 1,000
LONGEST_CELL = 1 << 20  # bytes of a text in Parquet or CSV; prompts, the longest, have some tens of thousands
CHUNK = 1 << 20
M = TypeVar("M", bound=BaseModel)


class FormatError(ValueError):
    """A file that cannot be imported or written. The message is one line: file, record, field and what to do."""


# ---- files


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading its bytes, text in UTF-16 or UTF-32 as UTF-8. Errors of the system are raised as
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
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path whose file replaces `path` once the block succeeds; a block that fails leaves nothing.
    Raises StoreError if the system refuses."""
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


def file_hash(*paths: Path) -> str:
    """Return the SHA-256 of a file's bytes; of several files that of theirs, in this order. Raises FormatError."""
    if len(paths) > 1:
        return hashlib.sha256("".join(map(file_hash, paths)).encode()).hexdigest()
    digest = hashlib.sha256()
    with opened(paths[0]) as stream:
        while data := stream.read(CHUNK):
            digest.update(data)
    return digest.hexdigest()


MOST_UNPACKED = 8 << 30  # bytes of all entries of a zip file: a small one can unpack to more than a disk holds
BAD_ZIP = (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error)


def is_inside(name: str) -> bool:
    """Return whether a name in a zip file leads to a place inside the folder that it is unpacked into."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


@contextmanager
def unpacked(path: Path, expected: Callable[[str], bool]) -> Iterator[tuple[Path, list[str]]]:
    """Yield a folder with the expected files of a folder or zip file, and the names of all files in it. Nothing else of
    a zip file is unpacked. Raises FormatError."""
    if path.is_dir():
        yield path, sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
        return
    name = shown(path.name or path)
    with opened(path) as stream, tempfile.TemporaryDirectory() as folder:
        try:
            with zipfile.ZipFile(stream) as archive:
                entries = [entry for entry in archive.infolist() if not entry.is_dir()]
                names = Counter(entry.filename for entry in entries)
                twice = next((n for n, times in names.items() if times > 1), None)
                if twice is not None:
                    raise FormatError(f"{name}: '{shown(twice)}' appears twice in the zip file; pack it again")
                if sum(entry.file_size for entry in entries) > MOST_UNPACKED:
                    raise FormatError(
                        f"{name}: more than {MOST_UNPACKED >> 30} GiB when unpacked; that is none of ours"
                    )
                if any(entry.flag_bits & 1 for entry in entries):
                    raise FormatError(f"{name}: the zip file is encrypted; pack it without a password")
                for entry in entries:
                    if not is_inside(entry.filename) or not expected(entry.filename):
                        continue
                    target = Path(folder) / entry.filename
                    target.parent.mkdir(parents=True, exist_ok=True)
                    left = entry.file_size  # the directory of a zip may lie: bytes are counted while unpacking
                    with archive.open(entry) as source, target.open("wb") as copy:
                        while data := source.read(CHUNK):
                            left -= len(data)
                            if left < 0:
                                raise FormatError(f"{name}: {entry.filename} is larger than the zip file says")
                            copy.write(data)
        except BAD_ZIP as error:
            raise FormatError(f"{name}: not a whole zip file ({shown(error)}); fetch it again") from None
        yield Path(folder), sorted(names)


# ---- checking records


class Repeating(dict[str, Any]):
    """An object in which a key appears more than once; json.loads would silently keep the last one."""

    def __init__(self, values: dict[str, Any], repeated: str) -> None:
        super().__init__(values)
        self.repeated = repeated


class Cells(dict[str, Any]):
    """A row of CSV: texts, which stand for numbers too, and None for an empty cell."""


class Record(BaseModel):
    """An object in a file. Types are exact, unknown fields are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _each_field_once(cls, data: object) -> object:
        if isinstance(data, Repeating):
            raise refused(f"field '{shown(data.repeated)}' appears twice; remove one", "keys")
        return data


_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_UNKEPT = re.compile("[\0\ud800-\udfff]")  # no engine stores NUL, and only JSON holds half of a surrogate pair


def too_long(size: int, longest: int) -> str:
    """Return why a text of that many characters is refused."""
    return f"has {size:,} characters, more than the {longest:,} allowed; shorten it"


def forbidden(text: str) -> bool:
    """Return whether a text has control characters but line breaks and tabs, or lone surrogates."""
    return _FORBIDDEN.search(text) is not None


@lru_cache(maxsize=4096)  # a text of a table is in thousands of rows
def text_problem(text: str, longest: int = LONGEST_NAME, *, line: bool = False) -> str:
    """Return the problem of a text that must have content and no control characters but line breaks and tabs; '' if
    valid. line: whether it must be one line."""
    if len(text) > longest:
        return too_long(len(text), longest)
    if bad := _FORBIDDEN.search(text):
        return f"contains U+{ord(bad[0]):04X}, a control character or lone surrogate; remove it"
    if not text.strip():
        return "is blank; write a text"
    # splitlines breaks at more than line feeds (U+2028, form feed).
    return "has a line break; remove it" if line and "".join(text.splitlines()) != text else ""


def once(value: object) -> object:
    """Return an object as it is. Raises PydanticCustomError if it has a key twice."""
    if isinstance(value, Repeating):
        raise refused(f"has '{shown(value.repeated)}' twice; remove one")
    return value


def checked_text(value: object, longest: int = LONGEST_NAME, *, line: bool = False) -> object:
    """Return a text as it is; another value too, for pydantic to name its type. Raises PydanticCustomError."""
    if isinstance(value, str) and (problem := text_problem(value, longest, line=line)):
        raise refused(problem)
    return value


def _storable(text: str) -> str:
    # An ASCII text, the usual case, can only hold NUL, and that is found faster than by a pattern.
    if (not text.isascii() or "\0" in text) and _UNKEPT.search(text):
        raise refused("holds NUL or half of a surrogate pair; remove it")
    return text


Name = Annotated[str, BeforeValidator(checked_text)]
OneLine = Annotated[str, BeforeValidator(partial(checked_text, line=True))]
Statement = Annotated[str, BeforeValidator(partial(checked_text, longest=LONGEST_STATEMENT))]
LongText = Annotated[str, AfterValidator(_storable)]
Text = Annotated[LongText, Field(max_length=LONGEST_STATEMENT)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, lt=2**31)]  # PostgreSQL's INTEGER


def checked(model: type[M], raw: object, where: str) -> M:
    """Return a record as its model. Raises FormatError that says where, which field and what is wrong."""
    try:
        return model.model_validate(raw, strict=not isinstance(raw, Cells))
    except ValidationError as problem:
        error = problem.errors(include_url=False)[0]
        field = ".".join(shown(part, 40) for part in error["loc"])
        raise FormatError(f"{where}: {field}{' ' if field else ''}{complaint(error)}") from None


# ---- JSON, element by element
#
# Python's own decoder reads each element; added are the location (line, column, byte), keys that appear twice,
# and the constants NaN and Infinity, which JSON does not have.


LARGEST_RECORD = 64 << 20  # characters
LONGEST_SPACE = 64 << 20  # characters of white space between two elements
MOST_COMMAS = 4_000_000  # of a record: an empty list takes three characters in the file and sixty bytes in memory
_LONGEST_TOKEN = 16  # the end of the buffer may cut one in two: -Infinity, an escape
_SPACE = re.compile(r"[ \t\r\n]*")
_KEEP = 1 << 18  # characters already read that may stay in memory: each time they are dropped, all others are copied


def elements(chunks: Iterable[bytes], name: str) -> Iterator[tuple[Any, str]]:
    """Yield the elements of the array in these bytes, each with the first NaN or Infinity in it ('' in valid JSON).
    Raises FormatError for anything but a JSON array in UTF-8."""
    text = _JsonText(iter(chunks), name)
    if not text.skip_space():
        raise FormatError(f"{name}: the file is empty (nothing but white space)")
    if text.here != "[":
        hint = "; put the one profile in [ ]" if text.here == "{" else ""
        raise FormatError(
            f"{name}: the top level must be a list of profiles, from '[', not from '{shown(text.here)}'{hint}"
        )
    text.step()
    more = text.here != "]"
    while more:
        yield text.element()
        text.step(0)
        more = text.here == ","
        if more:
            text.step()
        elif text.here != "]":
            raise text.problem("Expecting ',' delimiter", text.position)
    text.position += 1
    if text.skip_space():
        raise text.problem("Extra data", text.position)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Switch the garbage collector off inside the block. It would repeatedly scan everything that a large record has
    built so far, without anything to collect: seven times the time of the decoder itself."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _JsonText:
    """The part of a file that is in memory, and its position in the file."""

    def __init__(self, chunks: Iterator[bytes], name: str) -> None:
        self.name, self.buffer, self.position = name, "", 0
        self._bytes = self._lines = self._column = 0
        self._pieces = codecs.iterdecode(self._counted(chunks), "utf-8-sig")
        self._constants: list[str] = []
        self._json = json.JSONDecoder(object_pairs_hook=_paired, parse_constant=self._constant)

    @property
    def here(self) -> str:
        return self.buffer[self.position]

    def skip_space(self) -> bool:
        """Go to the next character that is not white space; return False at the end of the file."""
        skipped = 0
        while True:
            start = self.position
            self.position = _SPACE.match(self.buffer, start).end()  # type: ignore[union-attr]  # matches anything
            if self.position < len(self.buffer):
                return True
            skipped += self.position - start
            if skipped > LONGEST_SPACE:
                space = f"more than {LONGEST_SPACE >> 20} MiB of white space"
                raise FormatError(f"{self.name}: {space}; this is not a profile file")
            self._drop()
            if not self._more(CHUNK):
                return False

    def step(self, characters: int = 1) -> None:
        """Move on by so many characters and the white space behind them, inside the list."""
        self.position += characters
        if not self.skip_space():
            raise self.problem("the list has no end; the file was cut off", self.position)

    def element(self) -> tuple[Any, str]:
        """Return the value that begins here, and its first NaN or Infinity."""
        if self.position > _KEEP:
            self._drop()
        size = CHUNK
        while True:
            self._constants = []
            try:
                with _no_collection() if size > CHUNK else nullcontext():
                    value, end = self._json.raw_decode(self.buffer, self.position)
            except json.JSONDecodeError as error:
                # Either invalid, or cut at the end of the buffer: reading on tells. The size doubles, so an element of
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
        # For later: only the caller can name the element's profile in the error.
        self._constants.append(name)
        return math.nan

    def _place(self, position: int) -> tuple[int, int]:
        breaks = self.buffer.count("\n", 0, position)
        if breaks:
            return self._lines + breaks, position - self.buffer.rfind("\n", 0, position) - 1
        return self._lines, self._column + position

    def _drop(self) -> None:
        """Drop the characters that were read."""
        self._lines, self._column = self._place(self.position)
        self.buffer, self.position = self.buffer[self.position :], 0

    def _more(self, size: int) -> bool:
        """Read about `size` characters more; return False at the end of the file."""
        pieces, got = list[str](), 0
        try:
            while got < size and (piece := next(self._pieces, "")):
                pieces.append(piece)
                got += len(piece)
        except UnicodeDecodeError as error:
            # The decoder got the rest of the chunk before, too.
            at = f"byte {self._bytes - len(error.object) + error.start} (0x{error.object[error.start]:02x})"
            raise FormatError(f"{self.name}: not UTF-8 at {at}; save the file as UTF-8") from None
        self.buffer += "".join(pieces)
        return got > 0

    def _counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for data in chunks:
            self._bytes += len(data)
            yield data


Pairs = Callable[[list[tuple[str, Any]]], dict[str, Any]]


def _paired(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) == len(pairs):
        return values
    return Repeating(values, Counter(key for key, _ in pairs).most_common(1)[0][0])


def loads(data: bytes, where: str, *, nan: bool = False, pairs: Pairs = _paired) -> Any:
    """Return one JSON value. nan: whether to allow NaN and Infinity, which are not JSON. pairs: makes an object; by
    default one with repeated keys is Repeating. Raises FormatError."""

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
            return json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except UnicodeDecodeError as error:
        raise FormatError(f"{where}: not UTF-8 at byte {error.start}; save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        raise FormatError(f"{where}: not valid JSON at column {error.pos + 1}: {json_problem(error.msg)}") from None
    except RecursionError:
        raise FormatError(f"{where}: nested too deeply") from None
    except RepeatedKeyError as error:
        raise FormatError(f"{where}: {error}; remove one") from None
    except ValueError as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{where}: a number has too many digits; write it as text") from None


# ---- rows of JSON Lines, CSV and Parquet


MOST_ROWS = 50_000_000
LARGEST_COLUMN = 2 << 30  # bytes of one column of one row group, unpacked
LARGEST_FILE = 64 << 30  # bytes of all columns that are read, unpacked; they are read as a stream
BATCH_BYTES = 64 << 20  # of a batch, by the sizes in the footer
_BATCH_ROWS = 4096
_LONGEST_CSV_LINE = 4 << 20  # bytes
_FLAT = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_null)
Choose = Callable[[Sequence[str]], Sequence[str]]


def rows(
    path: Path, choose: Choose = list, *, longest: int = LONGEST_CELL, pairs: Pairs = _paired
) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a file of JSON Lines, CSV or Parquet, whichever it is, each with its location ('x.csv: line
    3'). A cell of CSV is a text, or None if it is empty. choose: selects the columns to read; may raise FormatError.
    longest: bytes that a text, or a line of JSON, may have. pairs: as for `loads`."""
    name = shown(path.name or path)
    with opened(path) as stream:
        start = stream.read(4096)
        stream.seek(0)
        if start.startswith(b"PAR1"):
            batches = columns(stream, name, choose, longest=longest)
            cells = (dict(zip(b, row, strict=True)) for b in batches for row in zip(*b.values(), strict=True))
            yield from ((f"{name}: row {number}", row) for number, row in enumerate(cells, 1))
        elif not start.strip() or start.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"["):
            for number, line in numbered_lines(stream, name, longest, "write one object a line"):
                if line.strip():
                    yield f"{name}: line {number}", loads(line, f"{name}: line {number}", pairs=pairs)
        else:
            yield from _csv(stream, name, choose, longest)


def numbered_lines(stream: BinaryIO, name: str, longest: int, hint: str) -> Iterator[tuple[int, bytes]]:
    """Yield every line of the file called `name` unchanged, with its number from 1. Raises FormatError that ends with
    `hint` for one of more than `longest` bytes: without a limit, a file without line breaks would be read whole."""
    for number in itertools.count(1):
        line = stream.readline(longest + 1)
        if not line:
            return
        if len(line) > longest:
            raise FormatError(f"{name}: line {number} is longer than {longest >> 20} MiB; {hint}")
        yield number, line


def separator(header: str) -> str:
    """Return the separator of a CSV file with this first line: a comma, a semicolon, a tab or a bar."""
    # csv.Sniffer takes the comma of 'a;b,c;d', and its patterns are slow on a hostile line.
    return max(",;\t|", key=header.count)


def _csv(stream: BinaryIO, name: str, choose: Choose, longest: int) -> Iterator[tuple[str, Cells]]:
    lines = (
        line.decode("utf-8-sig" if number == 1 else "utf-8")
        for number, line in numbered_lines(stream, name, _LONGEST_CSV_LINE, "this is not a CSV file")
    )
    csv.field_size_limit(longest)
    try:
        first = next(lines, "")
        reader = csv.reader(itertools.chain([first], lines), strict=True, delimiter=separator(first))
        header = next(reader, [])
        if repeated := [column for column in header if header.count(column) > 1]:
            raise FormatError(f"{name}: line 1: the column {shown(repeated[0])} appears twice; remove one")
        chosen = set(choose(header))
        for cells in reader:
            location = f"{name}: line {reader.line_num}"
            if len(cells) != len(header):
                raise FormatError(f"{location}: has {len(cells)} cells, and the first line {len(header)}")
            pairs = zip(header, cells, strict=True)
            yield location, Cells((column, cell or None) for column, cell in pairs if column in chosen)
    except UnicodeDecodeError as error:
        raise FormatError(f"{name}: not UTF-8 at byte {error.start} of a line; save the file as UTF-8") from None
    except csv.Error as error:
        raise FormatError(f"{name}: not a whole CSV file ({shown(error)}); export or download it again") from None


def columns(
    stream: BinaryIO, name: str, choose: Choose = list, *, longest: int = LONGEST_CELL, rows: int = _BATCH_ROWS
) -> Iterator[dict[str, list[Any]]]:
    """Yield the chosen columns of Parquet as lists of Python values, up to `rows` rows at a time; equal texts of a
    batch are one object. longest: bytes that a text may have. Raises FormatError that begins with `name`."""
    try:
        # Extensions off: a column declared as JSON or UUID comes as the plain type that it is stored in.
        file = pq.ParquetFile(stream, arrow_extensions_enabled=False)
        schema = file.schema_arrow
        chosen = list(choose(schema.names))
        for field in chosen:
            # Only flat values: a list or a binary value of any length would be unpacked in every row.
            type_ = schema.field(field).type
            if not (_is_text(type_) or any(is_flat(type_) for is_flat in _FLAT)):
                raise FormatError(
                    f"{name}: the column {shown(field)} is of type {shown(type_, 40)}; use text, numbers or booleans"
                )
        size = _rows_at_once(file.metadata, chosen, rows, name)
        stream.seek(0)
        texts = [field for field in chosen if _is_text(schema.field(field).type)]
        # Opened again: dictionaries are requested on opening, and only the schema tells which columns are texts.
        file = pq.ParquetFile(stream, read_dictionary=texts, arrow_extensions_enabled=False)
        number = 0
        for batch in file.iter_batches(batch_size=size, columns=chosen, use_threads=False):
            yield {field: _values(batch.column(field), f"{name}: {field}", number, longest) for field in chosen}
            number += batch.num_rows
    except (pa.ArrowException, OSError, ValueError, KeyError, NotImplementedError) as error:
        if isinstance(error, FormatError):
            raise
        reason = shown((str(error).strip().splitlines() or ["no reason given"])[0], 120)
        raise FormatError(f"{name}: not a whole Parquet file ({reason}); export or download it again") from None


def _is_text(type_: pa.DataType) -> bool:
    value_type = type_.value_type if pa.types.is_dictionary(type_) else type_
    return bool(pa.types.is_string(value_type) or pa.types.is_large_string(value_type))


def _rows_at_once(metadata: pq.FileMetaData, chosen: Sequence[str], rows: int, name: str) -> int:
    """Return how many rows fit a batch, by the footer. Raises FormatError if the file is larger than is read."""
    if metadata.num_rows > MOST_ROWS:
        raise FormatError(f"{name}: {metadata.num_rows:,} rows are more than the {MOST_ROWS:,} allowed")
    total, widest = 0, 1
    for group in (metadata.row_group(number) for number in range(metadata.num_row_groups)):
        group_bytes = 0
        for column in (group.column(number) for number in range(group.num_columns)):
            if column.path_in_schema not in chosen:
                continue
            size = max(column.total_uncompressed_size, 0)
            if size > LARGEST_COLUMN:
                raise FormatError(
                    f"{name}: the column {shown(column.path_in_schema)} has {size >> 20:,} MiB when unpacked, more "
                    f"than the {LARGEST_COLUMN >> 20:,} of one row group; write it with smaller row groups"
                )
            group_bytes += size
        total += group_bytes
        # Bytes of an average row: if rows are alike, a batch has BATCH_BYTES at most.
        widest = max(widest, group_bytes // max(group.num_rows, 1))
    if total > LARGEST_FILE:
        raise FormatError(f"{name}: {total >> 30:,} GiB when unpacked, more than the {LARGEST_FILE >> 30} allowed")
    return max(1, min(rows, BATCH_BYTES // widest))


def _values(column: Any, where: str, before: int, longest: int) -> list[Any]:
    """Return one column of a batch; `before`: rows of the file ahead of it."""
    if not pa.types.is_dictionary(column.type):
        listed: list[Any] = column.to_pylist()
        return listed
    # The dictionary is that of a whole row group: only the entries of this batch are checked.
    named = column.indices.drop_null().unique()
    texts = column.dictionary.take(named)
    if _is_text(texts.type):
        position = pc.index(pc.greater(pc.binary_length(texts), longest), True).as_py()
        if position >= 0:
            row = before + pc.index(column.indices, named[position]).as_py() + 1
            raise FormatError(f"{where}: the text in row {row} is longer than {longest:,} bytes; shorten it")
    by_number = dict(zip(named.to_pylist(), texts.to_pylist(), strict=True))
    return [None if number is None else by_number[number] for number in column.indices.to_pylist()]

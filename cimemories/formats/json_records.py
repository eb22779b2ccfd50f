"""A JSON array read element by element, so that a file of any size needs the memory of its largest element.

    [{"bio": ...}, {"bio": ...}]     gives the two objects, one after the other

Python's own decoder reads each element; what is added is where the file stands (line, column, byte), keys that stand
twice, and the words NaN and Infinity, which JSON does not have.
"""

from __future__ import annotations

import codecs
import gc
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from cimemories.formats.errors import FormatError
from cimemories.formats.official_records import Repeating, shown

CHUNK = 1 << 20
LARGEST_RECORD = 64 << 20  # characters
LONGEST_SPACE = 64 << 20  # characters of white space between two things
MOST_COMMAS = 4_000_000  # of a record: an empty list takes three characters of the file and sixty bytes of memory
_LONGEST_WORD = 16  # what may be cut at the end of the memory: -Infinity, an escape
_SPACE = re.compile(r"[ \t\r\n]*")
_KEEP = 1 << 18  # characters already read that may stay in memory: each time they are dropped, all others are copied


@dataclass(frozen=True)
class Element:
    """One element of the array. `constants`: the first words NaN or Infinity in it, none in good JSON."""

    value: Any
    constants: tuple[str, ...]


def elements(chunks: Iterable[bytes], name: str) -> Iterator[Element]:
    """The elements of the array that these bytes are. Raises FormatError for whatever is no JSON array of UTF-8."""
    text = _Text(iter(chunks), name)
    if not text.skip_space():
        raise FormatError(f"{name}: the file is empty (nothing but white space)")
    if text.here != "[":
        hint = "; put the one profile in [ ]" if text.here == "{" else ""
        found = shown(text.here)
        raise FormatError(f"{name}: the top level must be a list of profiles, from '[', not from '{found}'{hint}")
    text.position += 1
    first = True
    while True:
        if not text.skip_space():
            raise text.problem("the list has no end; the file was cut off", text.position)
        if text.here == "]" and first:
            break
        yield text.element()
        first = False
        if not text.skip_space():
            raise text.problem("the list has no end; the file was cut off", text.position)
        if text.here == "]":
            break
        if text.here != ",":
            raise text.problem("Expecting ',' delimiter", text.position)
        text.position += 1
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


class _Text:
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
        """Go to the next character that is no white space; False at the end of the file."""
        skipped = 0
        while True:
            start = self.position
            self.position = _SPACE.match(self.buffer, start).end()  # type: ignore[union-attr]  # matches anything
            if self.position < len(self.buffer):
                return True
            skipped += self.position - start
            if skipped > LONGEST_SPACE:
                raise FormatError(
                    f"{self.name}: more than {LONGEST_SPACE >> 20} MiB of white space; this is no file of ours"
                )
            self._drop()
            if not self._more(CHUNK):
                return False

    def element(self) -> Element:
        """The value that begins here."""
        if self.position > _KEEP:
            self._drop()
        size = CHUNK
        while True:
            self._constants = []
            try:
                with _no_collection() if size > CHUNK else nullcontext():
                    value, end = self._json.raw_decode(self.buffer, self.position)
            except json.JSONDecodeError as error:
                # Either wrong, or cut where the memory ends: then more of the file tells.
                cut = error.msg.startswith("Unterminated") or error.pos > len(self.buffer) - _LONGEST_WORD
                if cut and len(self.buffer) < LARGEST_RECORD and self._more(size):
                    if self.buffer.count(",", self.position) > MOST_COMMAS:
                        raise FormatError(f"{self.name}: a profile holds more than {MOST_COMMAS:,} values") from None
                    size *= 2
                    continue
                raise self.problem(error.msg, error.pos) from None
            except RecursionError:
                raise FormatError(f"{self.name}: nested too deeply; a profile file has four levels") from None
            except ValueError:
                raise FormatError(f"{self.name}: a number has too many digits; write it as text") from None
            if end < len(self.buffer) or not self._more(CHUNK):
                self.position = end
                return Element(value, tuple(self._constants[:1]))

    def problem(self, what: str, position: int) -> FormatError:
        line, column = self._place(position)
        return FormatError(f"{self.name}: not valid JSON at line {line + 1}, column {column + 1}: {shown(what)}")

    def _constant(self, word: str) -> float:
        self._constants.append(word)
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

    def _more(self, wanted: int) -> bool:
        """Read on; False where the file has ended."""
        pieces, got = [], 0
        while got < wanted and not self._ended:
            data = next(self._chunks, b"")
            try:
                piece = self._decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                held = len(error.object) - len(data)  # the start of a character, left over from before
                at = self._bytes - held + error.start
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
            text = text.removeprefix("\ufeff")
            if not text:
                return self._more(wanted)
        self.buffer += text
        return bool(text)


def _paired(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    return Repeating(found, Counter(key for key, _ in pairs).most_common(1)[0][0])


def loads(data: bytes, place: str) -> Any:
    """One JSON value. Raises FormatError for what is none, NaN and Infinity among it; repeated keys give Repeating."""

    def constant(word: str) -> float:
        raise FormatError(f"{place}: {word} is not JSON; write null instead")

    if data.count(b",") > MOST_COMMAS:
        raise FormatError(f"{place}: more than {MOST_COMMAS:,} values")
    try:
        with _no_collection():
            return json.loads(data.decode("utf-8"), object_pairs_hook=_paired, parse_constant=constant)
    except UnicodeDecodeError as error:
        raise FormatError(f"{place}: not UTF-8 at byte {error.start}; save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        raise FormatError(f"{place}: not valid JSON at column {error.pos + 1}: {shown(error.msg)}") from None
    except RecursionError:
        raise FormatError(f"{place}: nested too deeply") from None
    except ValueError as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{place}: a number has too many digits; write it as text") from None

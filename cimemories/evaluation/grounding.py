"""Where a judge's quote stands in a message, and the folding of text that makes this and the matcher possible.

    ground("i earn $72,000...", "Dear Sir, I earn $72,000.")  ->  Span(start=10, end=24)

Folding ignores case, runs of white space, and typographic quotes, dashes and ellipses, and remembers for every folded
character where it came from, so that a span found in folded text is exact in the original."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from rapidfuzz import fuzz

from cimemories.model import Span

FUZZY_CUTOFF = 90
FUZZY_MIN_LENGTH = 12
# The alignment takes time in proportion to both lengths; a longer quote is no sentence of a message any more.
_FUZZY_MAX_LENGTH = 1_000
# A longer quote is hardly found inside another word, and the bounded search would cost length times length.
_BOUNDED_MAX_LENGTH = 200
_NUMBERS = re.compile(r"\d+")

_SAME_CHARACTER = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc\u00b4`", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d", "-"),
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad", ""),
    "\u2026": "...",
}


# A dict that fills itself: __missing__ runs once for a character, every later look-up is the dict's own.
class _Folds(dict[str, str]):
    def __missing__(self, character: str) -> str:
        folded = _SAME_CHARACTER.get(character)
        if folded is None:
            folded = " " if character.isspace() else character.casefold()
        self[character] = folded
        return folded


_FOLDS = _Folds()
_TRANSLATED = str.maketrans(_SAME_CHARACTER)


@dataclass(frozen=True)
class Folded:
    """Folded text; `starts[i]` and `ends[i]` tell which characters of the original the i-th folded one stands for."""

    text: str
    starts: list[int]
    ends: list[int]

    def span(self, start: int, end: int) -> Span:
        """Return the original's span of text[start:end]; needs start < end."""
        return Span(self.starts[start], self.ends[end - 1])


def fold(text: str) -> Folded:
    """Return the text for comparison: no case, single spaces, plain quotes and dashes, nothing of no width. White space
    at the two ends stays, since offsets count from the start of the original."""
    characters: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    folds = _FOLDS
    after_space = False
    for position, character in enumerate(text):
        folded = folds[character]
        if folded == " ":
            if after_space:
                ends[-1] = position + 1
                continue
            after_space = True
        elif folded:
            after_space = False
        # Case folding can give several characters for one (ß becomes ss): all of them point at the one original.
        for part in folded:
            characters.append(part)
            starts.append(position)
            ends.append(position + 1)
    return Folded("".join(characters), starts, ends)


def folded_text(text: str) -> str:
    """Return `fold(text).text` in a fifth of the time."""
    # Between two marks, since white space at the ends stays. By `\s+` it took four times as long.
    return " ".join(f"|{text.translate(_TRANSLATED).casefold()}|".split())[1:-1]


def ground(quote: str, message: str) -> Span | None:
    """Return where the quote stands in the message, or None; never an empty span.

    Three attempts: word for word; folded, without a full stop or ellipsis at the quote's end; then, for quotes of at
    least 12 characters, the best alignment of at least 90 (rapidfuzz partial ratio), widened to whole words. A place
    where the quote is not part of a longer word or number goes first. The third attempt forgives a few characters, but
    no digit.
    """
    stripped = quote.strip()
    if not stripped:
        return None
    if (start := _find(stripped, message)) is not None:
        return Span(start, start + len(stripped))
    folded_message = _folded(message)
    folded_quote = fold(stripped).text.strip()
    needle = folded_quote.rstrip(". ") or folded_quote
    if not needle:
        return None
    if (start := _find(needle, folded_message.text)) is not None:
        return folded_message.span(start, start + len(needle))
    return _fuzzy(needle, folded_message)


# Of one message many quotes are looked up, one after the other.
_folded = lru_cache(maxsize=4)(fold)


def _find(needle: str, text: str) -> int | None:
    first = text.find(needle)
    if first < 0:
        return None
    end = first + len(needle)
    around = text[max(0, first - 1) : first] + text[end : end + 1]
    if any(c.isalnum() or c == "_" for c in around) and len(needle) <= _BOUNDED_MAX_LENGTH:
        # The first place is inside a longer word: a later one that is not goes before it.
        bounded = re.search(rf"(?<!\w){re.escape(needle)}(?!\w)", text)
        return bounded.start() if bounded else first
    return first


def _fuzzy(needle: str, message: Folded) -> Span | None:
    """Return the best alignment of the needle. A message much shorter than the quote would align as a whole, and is
    refused."""
    if not FUZZY_MIN_LENGTH <= len(needle) <= _FUZZY_MAX_LENGTH or len(message.text) * 100 < len(needle) * FUZZY_CUTOFF:
        return None
    alignment = fuzz.partial_ratio_alignment(needle, message.text, score_cutoff=FUZZY_CUTOFF)
    if alignment is None or alignment.score < FUZZY_CUTOFF:
        return None
    text, start, end = message.text, alignment.dest_start, alignment.dest_end
    # The alignment may begin or end in white space or in the middle of a word: trimmed first, then widened.
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    if start >= end:
        return None
    while start > 0 and text[start - 1].isalnum() and text[start].isalnum():
        start -= 1
    while end < len(text) and text[end].isalnum() and text[end - 1].isalnum():
        end += 1
    # One wrong digit costs the score hardly anything, and changes what is stated.
    if _NUMBERS.findall(needle) != _NUMBERS.findall(text[start:end]):
        return None
    return message.span(start, end)

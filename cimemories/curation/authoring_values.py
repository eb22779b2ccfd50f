"""Whether a memory statement carries the value of its attribute, in whatever usual spelling.

    carries("I paid a retainer of $4,350.00.", 4350)                  True
    carries("The hearing is on April 12th, 2025.", "2025-04-12")      True
    carries("I work part time for Acme.", "part-time at Acme")        True    every telling word is there
    carries("I take two medicines.", ["Sertraline", "Ramipril"])      False   each item must be there

Statements are English. All patterns are bounded, so the time is linear in the length of the texts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise

from cimemories.model import Scalar, Value

_SIGNS = str.maketrans(
    {"\u2019": "'", "\u2018": "'", "\u201c": '"', "\u201d": '"', "_": " "}
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-")
)
_NUMBER = re.compile(
    r"(?<![\w.])(?<!\d,)(?P<body>\d{1,3}(?:,\d{3}){1,5}(?!\d)|\d{1,18})(?P<part>\.\d{1,9})?(?![.,]?\d)"
    r"(?:\s?(?P<scale>%|percent\b|k\b|thousand\b|million\b|m\b|billion\b))?"
)
_SCALES = {"k": 3, "thousand": 3, "million": 6, "m": 6, "billion": 9}
_TO_TWENTY = re.findall(
    r"\w+",
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty",
)
_TENS = re.findall(r"\w+", "twenty thirty forty fifty sixty seventy eighty ninety")
_SPELLED = {word: number for number, word in enumerate(_TO_TWENTY)}
_SPELLED |= {word: 10 * number for number, word in enumerate(_TENS, 2)} | {"once": 1, "twice": 2, "dozen": 12}
_MONTHS = re.findall(r"\w+", "january february march april may june july august september october november december")
_DATE = re.compile(r"(?<![\w-])(\d{4})-(\d{1,2})(?:-(\d{1,2}))?(?![\w-])")
_TIME = re.compile(r"(?<![\w:])(\d{1,2}):(\d{2})(?::\d{2})?(?![\w:])")
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_ENDINGS = ("'s", "ing", "ies", "ied", "ed", "es", "ly", "s", "d", "e", "y")
# What a value may hold and its sentence say in other words.
_SMALL = frozenset(
    re.findall(
        r"\w+",
        "a an and at by for from in is it its my i me of on or our per the this that to was were with each every",
    )
)


def carries(statement: str, value: Value) -> bool:
    """Whether the statement tells the whole value. Booleans are told in words, so any statement carries them; null and
    empty texts and lists are carried by none; a list needs each of its items."""
    if isinstance(value, bool):
        return True
    folded = fold(statement)
    if isinstance(value, list):
        return bool(value) and all(not isinstance(item, dict) and _carries(folded, item) for item in value)
    return _carries(folded, value)


@lru_cache(maxsize=16_384)
def fold(text: str) -> str:
    """A text with its case, its spaces and its kinds of dashes and quotes made alike."""
    return " ".join(unicodedata.normalize("NFKC", text).translate(_SIGNS).casefold().split())


def numbers(folded: str) -> set[Decimal]:
    """The numbers that a folded text states, without sign: as figures, with k or million, and as words to 99.

    A percentage stands for itself and for its hundredth.
    """
    found = set(_figures(folded))
    words = re.findall(r"[a-z]+", folded)
    found |= {Decimal(_SPELLED[word]) for word in words if word in _SPELLED}
    for tens, unit in pairwise(words):
        if tens in _TENS and 0 < _SPELLED.get(unit, 0) < 10:
            found.add(Decimal(_SPELLED[tens] + _SPELLED[unit]))
    return found


def _figures(folded: str) -> Iterator[Decimal]:
    for match in _NUMBER.finditer(folded):
        number = Decimal(match["body"].replace(",", "") + (match["part"] or ""))
        scale = match["scale"] or ""
        if scale in ("%", "percent"):
            yield number / 100
        yield number.scaleb(_SCALES.get(scale, 0))


def _carries(folded: str, value: Scalar) -> bool:
    if value is None:
        return False
    if isinstance(value, bool):
        return True
    if isinstance(value, int | float):
        return abs(Decimal(repr(value))) in numbers(folded)
    wanted = fold(value).strip(" .!")
    return bool(wanted) and (_stands_in(folded, wanted) or _told(folded, wanted))


def _stands_in(folded: str, wanted: str) -> bool:
    """As it is, and not as a part of a longer word or number."""
    return re.search(rf"(?<!\w)(?<!\d[.,]){re.escape(wanted)}(?!\w|[.,]\d)", folded) is not None


def _told(folded: str, wanted: str) -> bool:
    """Whether every date, time, number and telling word of a text stands in the statement, in any order."""
    for pattern, spellings in ((_DATE, _spelled_date), (_TIME, _spelled_time)):
        for moment in pattern.finditer(wanted):
            if not any(_stands_in(_plain(folded), spelling) for spelling in spellings(moment)):
                return False
    rest = _TIME.sub(" ", _DATE.sub(" ", wanted))
    words, figures = [w for w in _WORD.findall(rest) if w not in _SMALL], re.findall(r"\d[\d.,]*", rest)
    if not words and not figures:
        return rest != wanted
    sums, said = numbers(folded), {_stem(word) for word in _WORD.findall(folded)}
    return all(_figure_said(figure.rstrip(".,"), folded, sums) for figure in figures) and all(
        _stem(word) in said or (word in _SPELLED and Decimal(_SPELLED[word]) in sums) for word in words
    )


def _figure_said(figure: str, folded: str, sums: set[Decimal]) -> bool:
    """A figure inside a text: as a number, or letter by letter where it is a part of something else (a case number)."""
    plain = figure.replace(",", "")
    number = Decimal(plain) if plain.replace(".", "", 1).isascii() and re.fullmatch(r"\d+(\.\d+)?", plain) else None
    return (number is not None and number in sums) or re.search(
        rf"(?<!\d){re.escape(figure)}(?!\d|[.,]\d)", folded
    ) is not None


def _plain(folded: str) -> str:
    """Dates and times without what varies in them: '12th of april, 2025' is '12 april 2025', '3 p.m.' is '3 pm'."""
    bare = re.sub(r"(?<=\d)(?:st|nd|rd|th)\b", "", folded.replace(",", "").replace(" of ", " "))
    return re.sub(r"(?<=\d)(\s?[ap])\.?\s?m\b\.?", r"\1m", bare)


def _spelled_date(moment: re.Match[str]) -> Iterator[str]:
    """2025-04-12, or 2025-04, in words and figures; nothing for a month that there is not."""
    year, month, day = int(moment[1]), int(moment[2]), int(moment[3] or 0)
    if not 1 <= month <= 12:
        return
    for name in (_MONTHS[month - 1], _MONTHS[month - 1][:3], f"{_MONTHS[month - 1][:3]}."):
        yield from (f"{name} {day} {year}", f"{day} {name} {year}") if day else (f"{name} {year}",)
    if day:
        yield from (f"{month}/{day}/{year}", f"{month:02}/{day:02}/{year}", f"{day}.{month}.{year}")
        yield from (f"{day:02}.{month:02}.{year}", f"{year}-{month:02}-{day:02}")
    else:
        yield from (f"{month}/{year}", f"{month:02}/{year}", f"{year}-{month:02}")


def _spelled_time(moment: re.Match[str]) -> Iterator[str]:
    """15:30 by both clocks; a full hour also without its minutes."""
    hour, minute = int(moment[1]), moment[2]
    half = "am" if hour < 12 else "pm"
    for said in (f"{hour % 12 or 12}:{minute}", *((f"{hour % 12 or 12}",) if minute == "00" else ())):
        yield from (f"{said} {half}", f"{said}{half}")
    yield from (f"{hour}:{minute}", f"{hour:02}:{minute}")


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word

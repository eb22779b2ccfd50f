"""Numbers, percentages, dates and times in their spellings, as values that can be compared.

    mentions("On April 12th, 2023 I paid $72k.")  ->  ("date", 2023, 4, 12) at 3:19, ("money", 72000) at 26:30

All works on folded text (grounding.fold). A numeral that is part of something longer (a word, a grouped number, a
range, a ratio, a reference such as CR-2024-0189) is no mention. Slashed dates are read as in the United States,
month first, unless only day first is possible. Every repetition in the patterns is bounded or possessive, so the time
is linear. Not read: 72.000 or 72 000 for 72,000, Roman numerals, 'a hundred', one and zero in words, relative dates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from cimemories.evaluation.grounding import fold
from cimemories.model import Scalar

Token = tuple[str, int | Decimal] | tuple[str, int, int] | tuple[str, int, int, int]

_MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    "|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DATE = re.compile(
    rf"""(?<![\w.])(?<!\w[-/])(?:
      (?P<iso_year>\d{{4}})(?P<iso>[-/.])(?P<iso_month>\d{{1,2}})(?P=iso)(?P<iso_day>\d{{1,2}})
    | (?P<short_year>\d{{4}})-(?P<short_month>\d{{1,2}})
    | (?P<first>\d{{1,2}})(?P<cut>[-/.])(?P<second>\d{{1,2}})(?P=cut)(?P<us_year>\d{{4}}|\d\d)
    | (?P<slash_month>\d{{1,2}})/(?P<slash_year>\d{{4}})
    | (?P<name_a>{_MONTH})\.?\ ?(?P<day_a>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\ (?P<year_a>\d{{4}}))?
    | (?P<day_b>\d{{1,2}})(?:st|nd|rd|th)?(?:\ of)?[ -](?P<name_b>{_MONTH})\.?(?:,?[ -](?P<year_b>\d{{4}}))?
    | (?P<name_c>{_MONTH})\.?,?(?:\ of)?\ (?P<year_c>\d{{4}})
    )(?!\w|[-/.:]\d)""",
    re.VERBOSE,
)
_TIME = re.compile(
    r"(?<![\w:])(?<!\d[.,/])(?:(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::\d\d)?(?:\ ?(?P<half>[ap])\.?\ ?m\b)?"
    r"|(?P<bare_hour>\d{1,2})\ ?(?P<bare_half>[ap])\.?\ ?m\b)(?![\w:])"
)
_PERCENT = r"(?P<percent>\ ?%|[ -]per\ ?cent(?!\w))"
_NUMBER = re.compile(
    rf"""(?<![\w#.])(?<!\d[,/:])(?<!\w-)(?:(?P<currency>[$€£]|usd)\ ?|(?P<sign>-))?
    (?P<body>\d++(?:[.,]\d++)*+)
    (?>(?P<letter>(?:k|mn?|bn?)(?!\w))|[ -](?P<scale>hundred|thousand|grand|million|billion)(?!\w)|{_PERCENT}
      |(?:kg|lbs?|mg|g|ml|cm|km|mins?|hrs?|h|usd)(?!\w))?+
    (?!\w|[-/.,:]\d)""",
    re.VERBOSE,
)
_BODY = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|(?:0|[1-9]\d*)(?:\.\d+)?")
_SCALES = {
    "k": 3,
    "m": 6,
    "mn": 6,
    "b": 9,
    "bn": 9,
    "hundred": 2,
    "thousand": 3,
    "grand": 3,
    "million": 6,
    "billion": 9,
}
_TO_NINETEEN = re.findall(
    r"\w+",
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen",
)
_TENS = re.findall(r"\w+", "twenty thirty forty fifty sixty seventy eighty ninety")
_UNITS = {word: number for number, word in enumerate(_TO_NINETEEN, 1)}
_UNITS |= {word: 10 * number for number, word in enumerate(_TENS, 2)}
_WORD = "(?:" + "|".join(sorted([*_UNITS, *(s for s in _SCALES if len(s) > 2)], key=len, reverse=True)) + r")(?!\w)"
_WORDS = re.compile(rf"(?<![\w-]){_WORD}(?:(?:[ -]|(?<=hundred) and |(?<=thousand) and ){_WORD})*+(?:{_PERCENT})?")
_MAX_DIGITS = 24
# Below this a number stands for too many things to be told by its size alone.
SMALL = 1000


@dataclass(frozen=True)
class Mention:
    """One number, date or time in folded text.

    `vague` ones say little without company: numbers under 1000, percentages, bare years, days without year, times.
    """

    token: Token
    start: int
    end: int
    vague: bool = False


def mentions(text: str) -> list[Mention]:
    """All numbers, percentages, dates and times of a folded text, none inside another; order: dates, times, numbers.

    Tokens: ("date", year, month, day), ("month", year, month), ("day", month, day), ("time", minutes since midnight),
    ("number", value), ("money", value) with a currency sign, ("percent", value). Impossible dates and times, and
    malformed numerals, give nothing.
    """
    found: list[Mention] = []
    taken = bytearray(len(text))
    for reader in (_dates, _times, _numerals, _number_words):
        for mention in reader(text):
            if not any(taken[mention.start : mention.end]):
                taken[mention.start : mention.end] = b"x" * (mention.end - mention.start)
                found.append(mention)
    return found


def token_of(value: Scalar) -> Token | None:
    """What a value states as a whole ('$1,200' a sum, 'April 12, 2023' a date); None where it states something else.

    Booleans, null, NaN and infinity, and texts that hold more than the one number, date or time give None.
    """
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        number = Decimal(repr(value))
        return ("number", number) if number.is_finite() else None
    text = fold(value).text.strip().rstrip(".")
    if len(text) > 2 * _MAX_DIGITS:
        return None
    found = mentions(text)
    whole = len(found) == 1 and (found[0].start, found[0].end) == (0, len(text))
    return found[0].token if whole else None


def _dates(text: str) -> Iterator[Mention]:
    for match in _DATE.finditer(text):
        part = match.groupdict()
        name = part["name_a"] or part["name_b"] or part["name_c"]
        year = part["iso_year"] or part["short_year"] or part["us_year"] or part["slash_year"]
        year = year or part["year_a"] or part["year_b"] or part["year_c"]
        day = part["iso_day"] or part["day_a"] or part["day_b"]
        month = part["iso_month"] or part["short_month"] or part["slash_month"]
        number = _MONTHS.index(name[:3]) + 1 if name else int(month or 0)
        if part["first"]:
            number, day = int(part["first"]), part["second"]
            if number > 12:
                number, day = int(day), part["first"]
        token = _date_token(_full_year(year) if year else None, number, int(day) if day else None)
        if token:
            yield Mention(token, match.start(), match.end(), vague=token[0] == "day")


def _full_year(year: str) -> int:
    """Two digits are of this century up to 49, of the last one from 50."""
    return int(year) if len(year) == 4 else int(year) + (2000 if int(year) < 50 else 1900)


def _date_token(year: int | None, month: int, day: int | None) -> Token | None:
    if not 1 <= month <= 12 or (day is not None and not 1 <= day <= 31):
        return None
    if year is None:
        return None if day is None else ("day", month, day)
    return ("month", year, month) if day is None else ("date", year, month, day)


def _times(text: str) -> Iterator[Mention]:
    for match in _TIME.finditer(text):
        hour = int(match["hour"] or match["bare_hour"])
        minute = int(match["minute"] or 0)
        half = match["half"] or match["bare_half"]
        if minute > 59 or hour > 23 or (half and not 1 <= hour <= 12):
            continue
        if half:
            hour = hour % 12 + (12 if half == "p" else 0)
        yield Mention(("time", 60 * hour + minute), match.start(), match.end(), vague=True)


def _numerals(text: str) -> Iterator[Mention]:
    for match in _NUMBER.finditer(text):
        body = match["body"]
        if len(body) > _MAX_DIGITS or not _BODY.fullmatch(body):
            continue
        value = Decimal(body.replace(",", "")).scaleb(_SCALES.get(match["letter"] or match["scale"] or "", 0))
        bare = not (match["currency"] or match["letter"] or match["scale"])
        year = bare and len(body) == 4 and body.isdigit() and 1900 <= value <= 2099
        kind = "percent" if match["percent"] else "money" if match["currency"] else "number"
        yield _number(kind, match, -value if match["sign"] else value, year)


def _number_words(text: str) -> Iterator[Mention]:
    for match in _WORDS.finditer(text):
        words = re.findall(_WORD, match[0])
        value = _value_of_words(words)
        if value is not None and words != ["one"]:
            yield _number("percent" if match["percent"] else "number", match, Decimal(value))


def _number(kind: str, match: re.Match[str], value: Decimal, year: bool = False) -> Mention:
    vague = kind == "percent" or year or abs(value) < SMALL
    return Mention((kind, value), match.start(), match.end(), vague)


def _value_of_words(words: list[str]) -> int | None:
    """The number that the words spell, or None where they spell none ('two three', 'hundred', 'million two')."""
    total = below = 0
    limit = 10**12
    for word in words:
        unit = _UNITS.get(word)
        if unit is not None:
            if below % 10 ** len(str(unit)):
                return None
            below += unit
            continue
        scale = 10 ** _SCALES[word]
        if not below or scale >= limit or (scale == 100 and below > 99):
            return None
        if scale == 100:
            below *= 100
        else:
            total, below, limit = total + below * scale, 0, scale
    return total + below

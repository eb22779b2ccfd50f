"""What a written attribute must be to be kept, and the reason for each one that is not.

A model's answer is {"finance": [{"key": ..., "value": ..., "statement": ...}, ...], ...}, one list for each domain.

    review({"finance": [{"key": "retainer", "value": 4350, "statement": "The lawyer is costly."}]}, {"finance": 1}, ...)
    ->  nothing accepted, one Rejection: 'statement does not carry its value'
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import Any

from cimemories.model import BIO_KEYS, DOMAINS, GENERAL, Attribute, canonical_domain, is_bio
from cimemories.store.engine import canonical_json, one_line, storable

# ---- whether a memory statement carries the value of its attribute, in whatever usual spelling
#
#     carries("I paid a retainer of $4,350.00.", 4350)                  True
#     carries("The hearing is on April 12th, 2025.", "2025-04-12")      True
#     carries("I work part time for Acme.", "part-time at Acme")        True    every telling word is there
#     carries("I take two medicines.", ["Sertraline", "Ramipril"])      False   each item must be there
#
# Statements are English. All patterns are bounded, so the time is linear in the length of the texts.


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


def carries(statement: str, value: object) -> bool:
    """Return whether the statement carries the whole value. Booleans are put in words, so any statement carries them;
    null, objects, and empty texts and lists are carried by none; a list needs each of its items."""
    if isinstance(value, bool):
        return True
    if isinstance(value, list):
        return bool(value) and all(carries(statement, item) for item in value)
    folded = fold(statement)
    if isinstance(value, int | float):
        # Without sign: 'a loss of $300' states -300. By repr, since Decimal of a float is its binary fraction.
        return abs(Decimal(repr(value))) in numbers(folded)
    text = fold(value).strip(" .!") if isinstance(value, str) else ""
    return bool(text) and (_is_whole_word(folded, text) or _all_words_in(folded, text))


@lru_cache(maxsize=16_384)
def fold(text: str) -> str:
    """Return a text with its case, its spaces and its kinds of dashes and quotes made alike."""
    return " ".join(unicodedata.normalize("NFKC", text).translate(_SIGNS).casefold().split())


def numbers(folded: str) -> set[Decimal]:
    """Return the numbers that a folded text states, without sign: as figures, with k or million, and as words to 99. A
    percentage stands for itself and for its hundredth."""
    values = set()
    for match in _NUMBER.finditer(folded):
        number = Decimal(match["body"].replace(",", "") + (match["part"] or ""))
        if match["scale"] in ("%", "percent"):
            # 12 % may be kept as 12 or as 0.12.
            values.add(number / 100)
        values.add(number.scaleb(_SCALES.get(match["scale"], 0)))
    # Signs and hyphens dropped: 'twenty-three' and 'twenty three' are the same pair of words.
    words = re.findall(r"[a-z]+", folded)
    values |= {Decimal(_SPELLED[word]) for word in words if word in _SPELLED}
    for tens, unit in pairwise(words):
        if tens in _TENS and 0 < _SPELLED.get(unit, 0) < 10:
            values.add(Decimal(_SPELLED[tens] + _SPELLED[unit]))
    return values


def _is_whole_word(folded: str, text: str) -> bool:
    """Return whether a text stands there as it is, and not as a part of a longer word or number."""
    return re.search(rf"(?<!\w)(?<!\d[.,]){re.escape(text)}(?!\w|[.,]\d)", folded) is not None


def _all_words_in(folded: str, text: str) -> bool:
    """Return whether every date, time, number and telling word of a text is in the statement, in any order."""
    # Dates and times without what varies in them: '12th of april, 2025' is '12 april 2025', '3 p.m.' is '3 pm'.
    plain = re.sub(r"(?<=\d)(?:st|nd|rd|th)\b", "", folded.replace(",", "").replace(" of ", " "))
    plain = re.sub(r"(?<=\d)(\s?[ap])\.?\s?m\b\.?", r"\1m", plain)
    for pattern, spellings in ((_DATE, _spelled_date), (_TIME, _spelled_time)):
        for moment in pattern.finditer(text):
            if not any(_is_whole_word(plain, spelling) for spelling in spellings(moment)):
                return False
    rest = _TIME.sub(" ", _DATE.sub(" ", text))
    words, figures = [w for w in _WORD.findall(rest) if w not in _SMALL], re.findall(r"\d[\d.,]*", rest)
    # Only dates and times, all of which were found above; a text of signs alone is not carried by anything.
    if not words and not figures:
        return rest != text
    sums, stems = numbers(folded), {_stem(word) for word in _WORD.findall(folded)}
    for figure in (item.rstrip(".,") for item in figures):
        # As a number, or letter by letter where it is a part of something else (a case number).
        number = figure.replace(",", "")
        is_stated = re.fullmatch(r"\d+(\.\d+)?", number, re.ASCII) and Decimal(number) in sums
        if not is_stated and not re.search(rf"(?<!\d){re.escape(figure)}(?!\d|[.,]\d)", folded):
            return False
    return all(_stem(word) in stems or (word in _SPELLED and Decimal(_SPELLED[word]) in sums) for word in words)


def _spelled_date(moment: re.Match[str]) -> Iterator[str]:
    """Yield 2025-04-12, or 2025-04, in words and figures; nothing for a month that there is not."""
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
    """Yield 15:30 by both clocks; a full hour also without its minutes."""
    hour, minute = int(moment[1]), moment[2]
    half = "am" if hour < 12 else "pm"
    for clock in (f"{hour % 12 or 12}:{minute}", *((f"{hour % 12 or 12}",) if minute == "00" else ())):
        yield from (f"{clock} {half}", f"{clock}{half}")
    yield from (f"{hour}:{minute}", f"{hour:02}:{minute}")


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


# ---- rules


KEY = re.compile(r"[a-z][a-z0-9_]{0,79}")
LONGEST_TEXT = 300
LONGEST_STATEMENT = 500
MOST_ITEMS = 20
LARGEST = 10**15
# Whole words; "us" and "we" count: a couple's memory is the user's own.
_FIRST_PERSON = re.compile(r"(?<!\w)(?:i|me|my|mine|myself|we|us|our|ours|ourselves)(?!\w)")


class Reason(StrEnum):
    """Why something that a model wrote was not kept. The last three are about an answer as a whole."""

    WRONG_TYPE = "wrong type"
    EMPTY_VALUE = "empty value"
    EMPTY_STATEMENT = "empty statement"
    TOO_LONG = "too long"
    KEY = "key is not snake_case"
    UNKNOWN_DOMAIN = "unknown domain"
    OFF_DOMAIN = "off its domain"
    DUPLICATE_KEY = "duplicate key"
    DUPLICATE_STATEMENT = "duplicate statement"
    NOT_FIRST_PERSON = "not in the first person"
    VALUE_NOT_SAID = "statement does not carry its value"
    SURPLUS = "more than were asked for"
    TOO_FEW = "fewer than were asked for"
    UNREADABLE = "answer cannot be read"
    CUT = "answer cut at the token limit"


@dataclass(frozen=True)
class Rejection:
    """Something that was not kept. `said` is its wording, cut short; empty where the answer as a whole is meant."""

    reason: Reason
    attempt: int
    domain: str = ""
    key: str = ""
    said: str = ""
    detail: str = ""

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "reason": str(self.reason)}


def alike(statement: str) -> str:
    """Return a statement by its words and figures: other punctuation does not make it another statement."""
    return " ".join(re.findall(r"\w+", fold(statement)))


def broken_rules(attribute: Attribute, keys: Container[str], said: Container[str]) -> Iterator[Reason]:
    """Yield every rule that an attribute breaks. keys: those that its profile holds already; said: its statements, as
    `alike` gives them."""
    items = attribute.value if isinstance(attribute.value, list) else [attribute.value]
    folded = fold(attribute.statement)
    if not KEY.fullmatch(attribute.key):
        yield Reason.KEY
    if not items or any(isinstance(item, str) and not item.strip() for item in items):
        yield Reason.EMPTY_VALUE
    if len(items) > MOST_ITEMS or any(
        len(item) > LONGEST_TEXT if isinstance(item, str) else isinstance(item, int | float) and abs(item) >= LARGEST
        for item in items
    ):
        yield Reason.TOO_LONG
    if not folded:
        yield Reason.EMPTY_STATEMENT
    elif len(attribute.statement) > LONGEST_STATEMENT:
        yield Reason.TOO_LONG
    if attribute.key in keys or attribute.key in BIO_KEYS or is_bio(attribute.key, attribute.domain):
        yield Reason.DUPLICATE_KEY
    if alike(attribute.statement) in said:
        yield Reason.DUPLICATE_STATEMENT
    if folded and not _FIRST_PERSON.search(folded):
        yield Reason.NOT_FIRST_PERSON
    if folded and not carries(attribute.statement, attribute.value):
        yield Reason.VALUE_NOT_SAID


def review(
    answer: Mapping[str, object], missing: Mapping[str, int], event: str, existing: Sequence[Attribute], attempt: int
) -> tuple[list[Attribute], list[Rejection]]:
    """Sort what an answer holds into what is accepted and what is rejected, in the order in which it was written.

    missing: how many attributes each domain still lacks; what goes beyond is surplus. existing: all of the profile,
    its biography among it; an attribute must also differ from those accepted before it in the same answer. Domains
    that got fewer than were wanted, and of which nothing was rejected, are a rejection of their own (too few).
    """
    accepted: list[Attribute] = []
    rejected: list[Rejection] = []
    left, keys = dict(missing), {item.key for item in existing}
    said = {alike(item.statement) for item in existing}
    for group, items in answer.items():
        domain = canonical_domain(group)
        for item in items if isinstance(items, list) else [items]:
            checked = _checked(item, domain, left, event, keys, said)
            if isinstance(checked, Attribute):
                accepted.append(checked)
                keys.add(checked.key)
                said.add(alike(checked.statement))
                left[domain] -= 1
                continue
            reason, detail = checked
            fields: Mapping[str, object] = item if isinstance(item, dict) else {}
            wording = str(fields.get("statement", "")) if fields else canonical_json(item)
            key, quote = storable(str(fields.get("key", "")))[:80], storable(wording)[:LONGEST_TEXT]
            rejected.append(Rejection(reason, attempt, storable(domain)[:80], key, quote, detail))
    for domain, count in left.items():
        # What was rejected is asked for again by its own line; only what never came is told as missing.
        absent = count - sum(item.domain == domain for item in rejected)
        if absent > 0:
            detail = f"{absent} of {missing[domain]} are missing"
            rejected.append(Rejection(Reason.TOO_FEW, attempt, domain, detail=detail))
    return accepted, rejected


def _checked(
    item: object, domain: str, left: Mapping[str, int], event: str, keys: Container[str], said: Container[str]
) -> Attribute | tuple[Reason, str]:
    """Return an attribute that breaks no rule, or why it is none."""
    fields: Mapping[str, Any] = item if isinstance(item, dict) else {}
    if domain not in (*DOMAINS, GENERAL):
        return Reason.UNKNOWN_DOMAIN, f"there is no domain '{storable(domain)[:40]}'"
    # Known, but complete or not a part of this call.
    if domain not in left:
        return Reason.OFF_DOMAIN, f"nothing is wanted in '{domain}' here"
    own = fields.get("domain")
    if isinstance(own, str) and canonical_domain(own) != domain:
        return Reason.OFF_DOMAIN, f"it is listed under '{domain}' and says '{storable(own)[:40]}'"
    name, value, statement = fields.get("key"), fields.get("value"), fields.get("statement")
    if not isinstance(name, str) or not isinstance(statement, str):
        return Reason.WRONG_TYPE, "key and statement must be texts"
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(i, str | bool | int) or (isinstance(i, float) and math.isfinite(i)) for i in items):
        return Reason.WRONG_TYPE, "value must be a text, a number, true or false, or a list of these"
    cleaned = [one_line(i) if isinstance(i, str) else i for i in items]
    # A key is a name and no wording, so its spelling is corrected ('Monthly Rent' is 'monthly_rent'), not refused.
    key = re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_") if name.isascii() else name.strip()
    final = cleaned if isinstance(value, list) else cleaned[0]
    attribute = Attribute(key, final, domain, event, one_line(statement))
    # One reason is enough for the model to try again.
    broken = next(broken_rules(attribute, keys, said), None)
    if broken is not None:
        return broken, ""
    # Last, so that surplus is only what could have been kept.
    return (Reason.SURPLUS, "") if left[domain] < 1 else attribute

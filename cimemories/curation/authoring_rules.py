"""Rules that an attribute written by a model must keep, and the reason for each rejected one.

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
from typing import Any

from cimemories.evaluation.grounding import folded_text
from cimemories.evaluation.matcher import TOKEN, mentions, stems, word_of
from cimemories.model import BIO_KEYS, DOMAINS, GENERAL, Attribute, canonical_domain, is_bio
from cimemories.store.engine import canonical_json, one_line, storable

# ---- whether a memory statement carries the value of its attribute, in any usual spelling
#
#     carries("I paid a retainer of $4,350.00.", 4350)                  True
#     carries("The hearing is on April 12th, 2025.", "2025-04-12")      True
#     carries("I work part time for Acme.", "part-time at Acme")        True    every content word is there
#     carries("I take two medicines.", ["Sertraline", "Ramipril"])      False   each item must be there
#
# Numbers, dates, times and words are read as the matcher reads them.

_COUNTED = {"zero": 0, "one": 1, "once": 1, "twice": 2, "dozen": 12}  # words that the matcher does not read as numbers


def carries(statement: str, value: object) -> bool:
    """Return whether the statement carries the whole value: each item of a list. A boolean is put in words, so any
    statement carries it; none carries null, an object, or an empty text or list."""
    if isinstance(value, bool):
        return True
    if isinstance(value, list):
        return bool(value) and all(carries(statement, item) for item in value)
    text = fold(statement)
    if isinstance(value, int | float):
        # Without sign: 'a loss of $300' states -300. By repr, since Decimal of a float is its binary fraction.
        return abs(Decimal(repr(value))) in _numbers(text)
    part = fold(value).strip(" .!") if isinstance(value, str) else ""
    alone = rf"(?<!\w)(?<!\d[.,]){re.escape(part)}(?!\w|[.,]\d)"
    return bool(part) and (re.search(alone, text) is not None or _states(text, part))


@lru_cache(maxsize=16_384)
def fold(text: str) -> str:
    """Return a text with case, spaces, dashes and quotes normalised."""
    return folded_text(unicodedata.normalize("NFKC", text).replace("_", " ")).strip()


def _numbers(text: str) -> set[Decimal]:
    """Return the numbers that a text states, without sign; a percentage as itself and as its hundredth."""
    values = {Decimal(_COUNTED[word]) for word in re.findall(r"[a-z]+", text) if word in _COUNTED}
    for token in (mention.token for mention in mentions(text)):
        if token[0] in ("number", "money", "percent"):
            values |= {abs(Decimal(token[1])), abs(Decimal(token[1])) / (100 if token[0] == "percent" else 1)}
    return values


def _states(text: str, part: str) -> bool:
    """Return whether every date, time, number and content word of `part` is in the text, in any order."""
    stated, numbers, rest = {mention.token for mention in mentions(text)}, _numbers(text), part
    for mention in mentions(part):
        kind, size = mention.token[:2]
        if mention.token not in stated and (kind not in ("number", "money", "percent") or abs(size) not in numbers):
            return False
        rest = rest[: mention.start] + " " * (mention.end - mention.start) + rest[mention.end :]
    # Digits of anything else, a case number say, must be there as they are.
    figures, words = [item.rstrip(".,") for item in re.findall(r"\d[\d.,]*", rest)], stems(rest)
    if not all(re.search(rf"(?<!\d){re.escape(figure)}(?!\d|[.,]\d)", text) for figure in figures):
        return False
    negates = [any(word_of(token)[1] for token in TOKEN.findall(some)) for some in (rest, text)]
    # No statement carries a text of signs or stop words alone.
    return (rest != part or bool(figures or words)) and words <= stems(text) and negates[0] <= negates[1]


# ---- rules


KEY = re.compile(r"[a-z][a-z0-9_]{0,79}")
LONGEST_TEXT = 300
LONGEST_STATEMENT = 500
MOST_ITEMS = 20
LARGEST = 10**15
# Whole words; "us" and "we" count: a couple's memory is the user's own.
_FIRST_PERSON = re.compile(r"(?<!\w)(?:i|me|my|mine|myself|we|us|our|ours|ourselves)(?!\w)")


class Reason(StrEnum):
    """The reason for rejecting what a model wrote. The last three are about the whole answer."""

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
    """A rejected attribute or answer. said: its wording, shortened; '' for a whole answer."""

    reason: Reason
    attempt: int
    domain: str = ""
    key: str = ""
    said: str = ""
    detail: str = ""

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "reason": str(self.reason)}


def normalized(statement: str) -> str:
    """Return the words and digits of a statement: two that differ in punctuation alone are duplicates."""
    return " ".join(re.findall(r"\w+", fold(statement)))


def broken_rules(attribute: Attribute, keys: Container[str], statements: Container[str]) -> Iterator[Reason]:
    """Yield every rule that an attribute breaks. keys, statements (`normalized`): those of its profile so far."""
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
    if normalized(attribute.statement) in statements:
        yield Reason.DUPLICATE_STATEMENT
    if folded and not _FIRST_PERSON.search(folded):
        yield Reason.NOT_FIRST_PERSON
    if folded and not carries(attribute.statement, attribute.value):
        yield Reason.VALUE_NOT_SAID


def review(
    answer: Mapping[str, object], missing: Mapping[str, int], event: str, existing: Sequence[Attribute], attempt: int
) -> tuple[list[Attribute], list[Rejection]]:
    """Return what is accepted and what is rejected of an answer, in its order.

    missing: how many attributes each domain still lacks; more than that are surplus. existing: all attributes of the
    profile, biography included; an attribute must differ from these and from those accepted before it. Attributes that
    a domain lacks and the answer did not even try are a rejection of their own.
    """
    accepted: list[Attribute] = []
    rejected: list[Rejection] = []
    left, keys = dict(missing), {item.key for item in existing}
    statements = {normalized(item.statement) for item in existing}
    for group, items in answer.items():
        domain = canonical_domain(group)
        for item in items if isinstance(items, list) else [items]:
            checked = _checked(item, domain, left, event, keys, statements)
            if isinstance(checked, Attribute):
                accepted.append(checked)
                keys.add(checked.key)
                statements.add(normalized(checked.statement))
                left[domain] -= 1
                continue
            reason, detail = checked
            fields: Mapping[str, object] = item if isinstance(item, dict) else {}
            wording = str(fields.get("statement", "")) if fields else canonical_json(item)
            key, quote = storable(str(fields.get("key", "")))[:80], storable(wording)[:LONGEST_TEXT]
            rejected.append(Rejection(reason, attempt, storable(domain)[:80], key, quote, detail))
    for domain, count in left.items():
        # A rejected attribute is asked for again by its own rejection.
        absent = count - sum(item.domain == domain for item in rejected)
        if absent > 0:
            detail = f"{absent} of {missing[domain]} are missing"
            rejected.append(Rejection(Reason.TOO_FEW, attempt, domain, detail=detail))
    return accepted, rejected


def _checked(
    item: object, domain: str, left: Mapping[str, int], event: str, keys: Container[str], statements: Container[str]
) -> Attribute | tuple[Reason, str]:
    """Return the attribute, or the first rule that it breaks and a detail."""
    fields: Mapping[str, Any] = item if isinstance(item, dict) else {}
    if domain not in (*DOMAINS, GENERAL):
        return Reason.UNKNOWN_DOMAIN, f"there is no domain '{storable(domain)[:40]}'"
    # A valid domain, but complete or not a part of this call.
    if domain not in left:
        return Reason.OFF_DOMAIN, f"nothing is wanted in '{domain}' here"
    stated = fields.get("domain")
    if isinstance(stated, str) and canonical_domain(stated) != domain:
        return Reason.OFF_DOMAIN, f"it is listed under '{domain}' and says '{storable(stated)[:40]}'"
    name, value, statement = fields.get("key"), fields.get("value"), fields.get("statement")
    if not isinstance(name, str) or not isinstance(statement, str):
        return Reason.WRONG_TYPE, "key and statement must be texts"
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(i, str | bool | int) or (isinstance(i, float) and math.isfinite(i)) for i in items):
        return Reason.WRONG_TYPE, "value must be a text, a number, true or false, or a list of these"
    cleaned = [one_line(i) if isinstance(i, str) else i for i in items]
    # The spelling of a key is corrected ('Monthly Rent' becomes 'monthly_rent'), not rejected.
    key = re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_") if name.isascii() else name.strip()
    final = cleaned if isinstance(value, list) else cleaned[0]
    attribute = Attribute(key, final, domain, event, one_line(statement))
    # One reason is enough for the model to try again.
    broken = next(broken_rules(attribute, keys, statements), None)
    if broken is not None:
        return broken, ""
    # Last, so that only valid attributes count as surplus.
    return (Reason.SURPLUS, "") if left[domain] < 1 else attribute

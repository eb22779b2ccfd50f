"""What a written attribute must be to be kept, and the reason for each one that is not.

A model's answer is {"finance": [{"key": ..., "value": ..., "statement": ...}, ...], ...}, one list for each domain.

    review({"finance": [{"key": "retainer", "value": 4350, "statement": "The lawyer is costly."}]}, {"finance": 1}, ...)
    ->  nothing accepted, one Rejection: 'statement does not carry its value'
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from cimemories.curation.authoring_values import carries, fold
from cimemories.model import BIO_KEYS, DOMAINS, GENERAL, Attribute, Scalar, Value, canonical_domain, is_bio
from cimemories.store.engine import storable
from cimemories.store.ids import canonical_json

KEY = re.compile(r"[a-z][a-z0-9_]{0,79}")
LONGEST_TEXT = 300
LONGEST_STATEMENT = 500
MOST_ITEMS = 20
MOST_DIGITS = 15
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


@dataclass(frozen=True)
class Review:
    """What became of one answer."""

    accepted: tuple[Attribute, ...]
    rejected: tuple[Rejection, ...]


def broken_rules(attribute: Attribute, held: Sequence[Attribute]) -> Iterator[Reason]:
    """Every rule that an attribute breaks beside those that its profile holds already; nothing where it may be kept."""
    if not KEY.fullmatch(attribute.key):
        yield Reason.KEY
    if attribute.domain not in (*DOMAINS, GENERAL):
        yield Reason.UNKNOWN_DOMAIN
    yield from _broken_by_value(attribute.value)
    said = fold(attribute.statement)
    if not said:
        yield Reason.EMPTY_STATEMENT
    elif len(attribute.statement) > LONGEST_STATEMENT:
        yield Reason.TOO_LONG
    if any(attribute.key == other.key for other in held) or _repeats_biography(attribute):
        yield Reason.DUPLICATE_KEY
    if any(_alike(said) == _alike(fold(other.statement)) for other in held):
        yield Reason.DUPLICATE_STATEMENT
    if said and not _FIRST_PERSON.search(said):
        yield Reason.NOT_FIRST_PERSON
    if said and not carries(attribute.statement, attribute.value):
        yield Reason.VALUE_NOT_SAID


def review(
    answer: Mapping[str, object],
    wanted: Mapping[str, int],
    event: str,
    held: Sequence[Attribute],
    attempt: int,
) -> Review:
    """Sort what an answer holds into what is kept and what is not, in the order in which it was written.

    wanted: how many attributes each domain still lacks; what goes beyond is surplus. held: all that the profile has,
    its biography among it; an attribute must also differ from those accepted before it in the same answer. Domains
    that got fewer than were wanted, and of which nothing was rejected, are a rejection of their own (too few).
    """
    accepted: list[Attribute] = []
    rejected: list[Rejection] = []
    left = dict(wanted)
    for group, items in answer.items():
        domain = canonical_domain(group)
        for item in items if isinstance(items, list) else [items]:
            outcome = _judged(item, domain, left, event, [*held, *accepted], attempt)
            if isinstance(outcome, Rejection):
                rejected.append(outcome)
            else:
                accepted.append(outcome)
                left[domain] -= 1
    for domain, count in left.items():
        refused = sum(1 for r in rejected if r.domain == domain)
        if count > refused:
            detail = f"{count - refused} of {wanted[domain]} are missing"
            rejected.append(Rejection(Reason.TOO_FEW, attempt, domain, detail=detail))
    return Review(tuple(accepted), tuple(rejected))


def _judged(
    item: object, domain: str, left: Mapping[str, int], event: str, held: Sequence[Attribute], attempt: int
) -> Attribute | Rejection:
    fields: Mapping[str, object] = item if isinstance(item, dict) else {}
    said = storable(canonical_json(item) if not fields else str(fields.get("statement", "")))[:LONGEST_TEXT]
    key = storable(str(fields.get("key", "")))[:80]

    def no(reason: Reason, detail: str = "") -> Rejection:
        return Rejection(reason, attempt, storable(domain)[:80], key, said, detail)

    if domain not in (*DOMAINS, GENERAL):
        return no(Reason.UNKNOWN_DOMAIN, f"there is no domain '{storable(domain)[:40]}'")
    if domain not in left:
        return no(Reason.OFF_DOMAIN, f"nothing is wanted in '{domain}' here")
    own = fields.get("domain")
    if isinstance(own, str) and canonical_domain(own) != domain:
        return no(Reason.OFF_DOMAIN, f"it is listed under '{domain}' and says '{storable(own)[:40]}'")
    name, value, statement = fields.get("key"), fields.get("value"), fields.get("statement")
    if not isinstance(name, str) or not isinstance(statement, str):
        return no(Reason.WRONG_TYPE, "key and statement must be texts")
    if "value" not in fields or not _typed(value):
        return no(Reason.WRONG_TYPE, "value must be a text, a number, true or false, or a list of these")
    attribute = Attribute(snake_case(name), _clean(value), domain, event, " ".join(storable(statement).split()))
    broken = next(broken_rules(attribute, held), None)
    if broken is not None:
        return no(broken)
    return no(Reason.SURPLUS) if left[domain] < 1 else attribute


def snake_case(name: str) -> str:
    """'Monthly Rent' as 'monthly_rent'. A key is a name and no wording, so its spelling is mended, not refused."""
    return re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_") if name.isascii() else name.strip()


def _typed(value: object) -> bool:
    if isinstance(value, list):
        return all(_typed(item) and not isinstance(item, list) for item in value)
    return isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


def _clean(value: object) -> Value:
    """A typed value as it is kept: texts without spaces at their ends and without what no engine can hold."""
    return [_clean_item(item) for item in value] if isinstance(value, list) else _clean_item(value)


def _clean_item(item: object) -> Scalar:
    if isinstance(item, str):
        return " ".join(storable(item).split())
    return item if isinstance(item, bool | int | float) else None


def _broken_by_value(value: Value) -> Iterator[Reason]:
    if not _typed(value):
        yield Reason.WRONG_TYPE
    items = value if isinstance(value, list) else [value]
    if not items or any(isinstance(item, str) and not item.strip() for item in items):
        yield Reason.EMPTY_VALUE
    if len(items) > MOST_ITEMS or any(_long(item) for item in items):
        yield Reason.TOO_LONG


def _long(item: object) -> bool:
    if isinstance(item, int | float) and not isinstance(item, bool):
        return not -(10**MOST_DIGITS) < item < 10**MOST_DIGITS
    return isinstance(item, str) and len(item) > LONGEST_TEXT


def _alike(folded: str) -> str:
    """A statement by its words and figures alone: other punctuation does not make it another statement."""
    return " ".join(re.findall(r"\w+", folded))


def _repeats_biography(attribute: Attribute) -> bool:
    return is_bio(attribute.key, attribute.domain) or attribute.key in BIO_KEYS

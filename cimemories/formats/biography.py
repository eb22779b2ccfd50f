"""A biography out of memory statements, for files that have none of their own.

What is not told is not invented: sex and address become "unknown", and the age 0, which no adult of the benchmark has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

UNKNOWN = "unknown"
UNKNOWN_AGE = 0
_AGE = re.compile(r"\b(1[0-4]\d|[1-9]\d?)\b")
_ADDRESS = re.compile(
    r"(?i)\b(?:address (?:is|was)|(?:live|lives|living|reside|resides) (?:at|in)):?\s+(\S.*)", re.DOTALL
)
_SEX = re.compile(r"(?i)\b(female|male|woman|man|non-?binary)\b")


@dataclass(frozen=True)
class Biography:
    """`guessed`: which fields were read out of a statement; the others are unknown."""

    sex: str
    address: str
    age: int
    guessed: tuple[str, ...]


def biography(statements: Mapping[str, str]) -> Biography:
    """From statements by attribute key; a leading `general_` or `current_` of a key does not count."""
    by_key = {re.sub(r"^(general_|current_)", "", key.strip().lower()): text for key, text in statements.items()}
    sex = _first(_SEX, by_key, ("sex", "gender"))
    age = _first(_AGE, by_key, ("age",))
    address = _first(_ADDRESS, by_key, ("address",))
    known = {"sex": sex, "address": address, "age": age}
    return Biography(
        sex=sex or UNKNOWN,
        address=(address or UNKNOWN).strip().rstrip("."),
        age=int(age) if age else UNKNOWN_AGE,
        guessed=tuple(name for name, value in known.items() if value),
    )


def _first(pattern: re.Pattern[str], by_key: Mapping[str, str], keys: Sequence[str]) -> str:
    for key in keys:
        match = pattern.search(by_key.get(key, ""))
        if match:
            return match[1]
    return ""

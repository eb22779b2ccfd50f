"""What one answer of a persona says: numbers of attributes in two lists, read into a verdict for each attribute.

    {"necessary": [3, "12-14"], "inappropriate": [1, "20-31"]}

To leave a number out is to abstain; a number in both lists is a conflict, a number that does not exist is unknown: both
are recorded as what they are and counted, never folded into abstain.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from cimemories.llm import answers
from cimemories.model import Verdict

LISTS = (Verdict.NECESSARY, Verdict.INAPPROPRIATE)
SHORTEST_RANGE = 3
_RANGE = re.compile(r"\s*(\d{1,9})\s*[-\u2013]\s*(\d{1,9})\s*")


@dataclass(frozen=True)
class Ballot:
    """What one answer says: verdicts by position of the attribute, and what could not be used.

    conflicts: attributes named in both lists. unknown: entries that are no number, or name one that does not exist.
    """

    verdicts: tuple[Verdict, ...]
    conflicts: int
    unknown: int


def read_ballot(text: str | None, attributes: int) -> Ballot:
    """Votes on `attributes` attributes, numbered from 1. An entry is a number or a range 'FIRST-LAST', both included;
    of a range that leaves 1..attributes the numbers that exist are named, and the entry counts as unknown too.

    Raises answers.AnswerError where the answer is no ballot.
    """
    value = answers.read_object(text)
    named: dict[Verdict, set[int]] = {}
    unknown = 0
    for verdict in LISTS:
        entries = [_span(item) for item in answers.read_list(value, verdict)]
        unknown += sum(1 for span in entries if span is None or span[0] < 1 or span[1] > attributes)
        named[verdict] = {
            n for span in entries if span is not None for n in range(max(span[0], 1), min(span[1], attributes) + 1)
        }
    necessary, inappropriate = named[Verdict.NECESSARY], named[Verdict.INAPPROPRIATE]
    verdicts = [Verdict.ABSTAIN] * attributes
    for verdict in LISTS:
        for number in named[verdict]:
            verdicts[number - 1] = verdict
    conflicts = necessary & inappropriate
    for number in conflicts:
        verdicts[number - 1] = Verdict.CONFLICT
    return Ballot(tuple(verdicts), len(conflicts), unknown)


def write_ballot(verdicts: Sequence[Verdict]) -> str:
    """The answer that says these verdicts, in the form that the prompt asks for; `read_ballot` gives them back. A
    conflict is written into both lists."""
    return json.dumps(
        {
            str(verdict): list(
                _with_ranges(n for n, said in enumerate(verdicts, start=1) if said in (verdict, Verdict.CONFLICT))
            )
            for verdict in LISTS
        }
    )


def answer_schema(attributes: int) -> dict[str, object]:
    """The response_format that holds an answer to lists of attribute numbers and ranges of them."""
    entries = {
        "type": "array",
        "items": {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": attributes},
                {"type": "string", "pattern": "^[0-9]{1,4}-[0-9]{1,4}$"},
            ]
        },
        "maxItems": attributes,
    }
    return {
        "type": "json_schema",
        "json_schema": {
            "name": "votes",
            "strict": True,
            "schema": {
                "type": "object",
                "properties": {str(verdict): entries for verdict in LISTS},
                "required": [str(verdict) for verdict in LISTS],
                "additionalProperties": False,
            },
        },
    }


def _span(item: object) -> tuple[int, int] | None:
    """The first and the last number of an entry; None where it is neither a number nor a range that rises."""
    number = answers.read_number(item)
    if number is not None:
        return number, number
    hit = _RANGE.fullmatch(item) if isinstance(item, str) else None
    if hit is None or int(hit[1]) > int(hit[2]):
        return None
    return int(hit[1]), int(hit[2])


def _with_ranges(numbers: Iterable[int]) -> Iterator[int | str]:
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        row = [number for _, number in group]
        if len(row) < SHORTEST_RANGE:
            yield from row
        else:
            yield f"{row[0]}-{row[-1]}"

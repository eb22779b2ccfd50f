"""Reading structured answers. Whatever cannot be read raises, so that it is counted as missing and never as empty."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from cimemories.store.calls import Answer


class AnswerError(ValueError):
    """An answer is no JSON object of the shape that was asked for; the message says what is wrong."""


def truncated(answer: Answer) -> bool:
    """Whether the server cut the answer at its token limit."""
    return answer.finish_reason == "length"


def read_object(text: str | None) -> dict[str, Any]:
    """The JSON object in an answer, with or without a code fence around it.

    Raises AnswerError for anything else, a truncated object included.
    """
    body = (text or "").strip()
    fenced = re.match(r"```(?:json)?\s*(.*?)\s*```\s*$", body, re.DOTALL)
    if fenced:
        body = fenced.group(1)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise AnswerError(f"no JSON object: {str(error)[:120]}") from error
    if not isinstance(value, dict):
        raise AnswerError(f"a JSON object was asked for, this is {type(value).__name__}")
    return value


def read_list(value: dict[str, Any], field: str) -> list[Any]:
    """The list in that field. Raises AnswerError where it is missing or no list."""
    items = value.get(field)
    if not isinstance(items, list):
        raise AnswerError(f"the field '{field}' is {'missing' if field not in value else 'no list'}")
    return items


def read_number(value: object) -> int | None:
    """A whole number, also when it was written as text or as 3.0; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value.strip()):
        return int(value)
    return None


def one_line(text: str) -> str:
    """The text with every run of white space as one space, so that no line of a prompt can be faked by it."""
    return " ".join(text.split())


def numbered(statements: Sequence[str], first: int = 1) -> str:
    """Statements as numbered lines from `first`, each on one line whatever it holds."""
    return "\n".join(f"{number}. {one_line(text)}" for number, text in enumerate(statements, start=first))

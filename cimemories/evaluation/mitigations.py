"""Mitigations to compare a plain model with: what happens around the writing of a message.

gate      the model is first asked which memories the task needs; only those go into the prompt of the message
rewrite   the message is written with all memories, and then rewritten without what its recipient should not know

Both belong to the system under test: its memory stays the whole memory, so its flows are those of the plain run.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from cimemories.llm import answers


class Mitigation(StrEnum):
    NONE = "none"
    GATE = "gate"
    REWRITE = "rewrite"


def gate_schema(attributes: int) -> dict[str, object]:
    """The response_format that holds a gate to numbers of notes."""
    number = {"type": "integer", "minimum": 1, "maximum": attributes}
    return {
        "type": "json_schema",
        "json_schema": {
            "name": "needed",
            "strict": True,
            "schema": {
                "type": "object",
                "properties": {"needed": {"type": "array", "maxItems": attributes, "items": number}},
                "required": ["needed"],
                "additionalProperties": False,
            },
        },
    }


def read_gate(text: str | None, attributes: int) -> tuple[int, ...]:
    """Positions (from 0, in order of the prompt) of the notes that a gate lets through; numbers out of range are left
    out. Raises answers.AnswerError where the answer is no such list."""
    items: Sequence[object] = answers.read_list(answers.read_object(text), "needed")
    numbers = {number for item in items if (number := answers.read_number(item)) is not None}
    return tuple(sorted(number - 1 for number in numbers if 1 <= number <= attributes))

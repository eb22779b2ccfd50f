"""The results and the questions of a memory system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class MemorySystemError(ValueError):
    """A memory system that is missing, or invalid options; the message says what to do."""


@dataclass(frozen=True)
class Line:
    """A line for the prompt. attributes: positions in the profile of those that it carries; None: look for them in the
    text. score: how well it fits the task, in the system's own unit."""

    text: str
    attributes: Sequence[int] | None = None
    score: float | None = None


@dataclass(frozen=True)
class Recalled:
    """Lines for one prompt, in their order. cost: the system's own cost of them, by name of the unit; calls that were
    asked as questions are counted by the run."""

    lines: Sequence[Line]
    cost: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Question:
    """A call that a system asks the run to make and record. schema: response_format of the answer. placeholders:
    answers for pricing a plan, from the one with the longest following prompts to the one with the shortest. grounds:
    ask the run's first judge that is a model."""

    text: str
    placeholders: Sequence[str]
    schema: Mapping[str, object] | None = None
    grounds: bool = False


# How a line that does not say which attributes it carries is searched for them: the option `ground` of a system that
# names its store (`stored`).
GROUNDS = RULES, BY_MODEL = "rules", "model"


@dataclass(frozen=True)
class Needs:
    """The packages that a system needs to run. modules: looked for, not imported. install: how to get them, with the
    command in backticks."""

    package: str
    modules: tuple[str, ...]
    install: str


@dataclass(frozen=True)
class Option:
    """An option of a system. Its type is that of its default.

    choices: all of its values, if they are few, and help: its purpose; from the attributes `choices` and `help` of the
    system, by the option's name."""

    name: str
    default: object
    choices: tuple[str, ...] = ()
    help: str = ""

    def read(self, text: str) -> object:
        """Return the value in a text. Raises MemorySystemError if it is of another type."""
        if isinstance(self.default, bool):
            if text.lower() in ("true", "false"):
                return text.lower() == "true"
            raise MemorySystemError(f"{self.name} is true or false, not '{text}'.")
        try:
            if isinstance(self.default, int):
                return int(text)
            if isinstance(self.default, float):
                return float(text)
        except ValueError:
            what = "whole number" if isinstance(self.default, int) else "number"
            raise MemorySystemError(f"{self.name} is a {what}, not '{text}'.") from None
        return text

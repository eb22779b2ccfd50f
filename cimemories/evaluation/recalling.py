"""Recalling: what a memory system is asked and gives back, checked and mapped to the profile's attributes.

A system may be somebody else's code, and its lines a model's text: neither is trusted. Whatever it raises, and whatever
it returns that is no recall, is a `RecallError` with its cause, by which the message is missing. A line that does not
say which attributes it carries is searched for them by the rules of the matcher (a whole statement, a distinctive
value). Where the system's option is ground=model, the run's judge is then asked about the stored lines in which these
found none, once for a profile. A line in which none is found is ungrounded, and counted as that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from numbers import Integral, Real
from typing import TypeVar

from cimemories.evaluation.matcher import match
from cimemories.llm.replies import (
    AnswerError,
    answer_form,
    numbered,
    object_schema,
    one_line,
    read_list,
    read_number,
    read_object,
)
from cimemories.memory.systems import Line, MemorySystem, Question, Recalled, SystemSpec
from cimemories.model import GENERAL, LONGEST_STATEMENT, Attribute, Context, Profile, Strength
from cimemories.seeds.prompts import load_prompt
from cimemories.store.datasets import ProfileRecord, RecalledLine, RecallRecord
from cimemories.store.engine import storable

MOST_LINES = 10_000
MOST_QUESTIONS = 200  # of one ingest or recall: a system that never stops asking would never stop paying
_LONGEST_CAUSE = 200

T = TypeVar("T")
Asking = Generator[Question, str, T]


class RecallError(Exception):
    """Ingest or recall went wrong; the message says how, as one line. key: of the last call that was made for it."""

    key: str | None = None


@dataclass(frozen=True)
class Recall:
    """A recall for one context, as it is recorded, and the profile for the prompt: its attributes are the lines."""

    record: RecallRecord
    prompt_profile: Profile


@dataclass(frozen=True)
class Ingested:
    """An instance of a system that has taken in a profile. attributes_by_line: of searched lines, shared by
    contexts."""

    spec: SystemSpec
    system: MemorySystem
    record: ProfileRecord
    attributes_by_line: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def recalling(self, context: Context, prompt: str) -> Asking[Recall]:
        """Recall for a context. prompt: what the model is asked, without any memory. Raises RecallError."""
        seconds = Seconds()
        given = yield from _checked("recall", lambda: self.system.recall(context, prompt), self._lock, seconds)
        if not isinstance(given, Recalled):
            raise RecallError(f"recall returned {_name(given)} instead of Recalled")
        if not isinstance(given.lines, Sequence):
            raise RecallError(f"recall returned {_name(given.lines)} for the lines instead of a list")
        if len(given.lines) > MOST_LINES:
            raise RecallError(f"recall returned more than {MOST_LINES:,} lines")
        with self._lock, seconds:
            lines = tuple(map(self._line, given.lines))
        kept = RecallRecord(self.record.id, self.spec.label, lines, seconds.total, _cost(given.cost))
        return Recall(kept, _shown(self.record, lines))

    def _line(self, line: object) -> RecalledLine:
        """Return a line as it is recorded. Raises RecallError for what is none."""
        if not isinstance(line, Line) or not isinstance(line.text, str):
            raise RecallError(f"recall returned {_name(line)} among its lines")
        if len(line.text) > LONGEST_STATEMENT:
            raise RecallError(f"recall returned a line of more than {LONGEST_STATEMENT:,} characters")
        text, ids = storable(line.text), self.record.attribute_ids
        positions: object = self._attributes_of(text) if line.attributes is None else line.attributes
        if not isinstance(positions, Sequence):
            raise RecallError(f"recall returned {_name(positions)} for the attributes of a line")
        # Integral, since rankings come from numpy. A bool is one in Python, and -1 a position.
        numbers = [int(p) if not isinstance(p, bool) and isinstance(p, Integral) else -1 for p in positions]
        if any(not 0 <= number < len(ids) for number in numbers):
            raise RecallError("recall named an attribute that the profile does not have")
        return RecalledLine(text, tuple(dict.fromkeys(ids[number] for number in numbers)), _number(line.score))

    def grounded(self) -> Asking[None]:
        """Ask about the stored lines that the rules cannot map; those that no answer maps stay ungrounded."""
        lines = getattr(self.system, "stored", ())
        texts = [storable(line) for line in lines if isinstance(line, str) and len(line) <= LONGEST_STATEMENT]
        texts = [text for text in dict.fromkeys(texts) if text.strip() and not self._attributes_of(text)]
        prompt, statements = load_prompt("ground"), [a.statement for a in self.record.profile.attributes]
        for start in range(0, len(texts), LINES_AT_ONCE):
            some = texts[start : start + LINES_AT_ONCE]
            text = prompt.render(attributes=numbered(statements), lines=numbered(some))
            form = ground_form(len(some), len(statements))
            answer = yield Question(text, ('{"lines": []}',), form, grounds=True)
            for line, carried in read_ground(answer, len(some), len(statements)).items():
                self.attributes_by_line[some[line]] = carried

    def _attributes_of(self, text: str) -> tuple[int, ...]:
        if text not in self.attributes_by_line:
            reveals = match(self.record.profile.attributes, text)
            # A bare number in a line says too little of whose it is.
            full = tuple(reveal.attribute for reveal in reveals if reveal.strength == Strength.FULL)
            self.attributes_by_line[text] = full
        return self.attributes_by_line[text]


def ingesting(spec: SystemSpec, record: ProfileRecord) -> Asking[Ingested]:
    """Make an instance that takes in this profile. Raises RecallError."""
    system = _guarded("ingest", spec.make)
    ingested = Ingested(spec, system, record)
    yield from _checked("ingest", lambda: system.ingest(record.profile), ingested._lock)
    if spec.grounds:
        yield from _checked("ingest", ingested.grounded, ingested._lock)
    return ingested


class Seconds:
    """Adds up the time that passes inside its `with` blocks."""

    total = 0.0

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.total += time.perf_counter() - self._begin


def _checked(
    what: str, run: Callable[[], object], alone: threading.Lock, seconds: Seconds | None = None
) -> Asking[object]:
    """Run a method of a system, which may be a generator of questions, and return its result, by one thread at a time.
    Raises RecallError."""
    seconds = seconds or Seconds()
    with alone, seconds:
        given = _guarded(what, run)
    if not isinstance(given, Generator):
        return given
    answer = None
    for _ in range(MOST_QUESTIONS + 1):
        with alone, seconds:
            ended, question = _guarded(what, partial(_sent, given, answer))
        if ended:
            return question
        if not isinstance(question, Question) or not isinstance(question.text, str):
            raise RecallError(f"it yielded {_name(question)} instead of a Question")
        if not isinstance(question.placeholders, Sequence) or not all(
            isinstance(text, str) for text in question.placeholders
        ):
            raise RecallError("it yielded a Question whose placeholders are no list of texts")
        answer = yield question
    raise RecallError(f"it asks more than {MOST_QUESTIONS} questions")


def _sent(given: Generator[object, object, object], answer: object) -> tuple[bool, object]:
    """Return whether a generator has ended at this answer, and what it returned or yielded."""
    try:
        return False, given.send(answer)
    except StopIteration as end:
        return True, end.value


LINES_AT_ONCE = 40  # in one call about what they carry


def ground_form(lines: int, attributes: int) -> dict[str, object]:
    """Return the response_format of an answer about so many lines and attributes."""
    number = {"type": "integer", "minimum": 1}
    carried = {"type": "array", "maxItems": attributes, "items": {**number, "maximum": attributes}}
    line = object_schema({"line": {**number, "maximum": lines}, "statements": carried})
    return answer_form("lines", {"lines": {"type": "array", "maxItems": lines, "items": line}})


def read_ground(text: str | None, lines: int, attributes: int) -> dict[int, tuple[int, ...]]:
    """Return by line (from 0) the positions of the attributes that it carries, those in range; nothing if the answer
    cannot be read."""
    try:
        items = read_list(read_object(text), "lines")
    except AnswerError:
        return {}
    carried: dict[int, set[int]] = {}
    for item in items:
        line = read_number(item.get("line")) if isinstance(item, Mapping) else None
        named = item.get("statements") if isinstance(item, Mapping) else None
        if line is None or not 1 <= line <= lines or not isinstance(named, list):
            continue
        numbers = {number for each in named if (number := read_number(each)) is not None and 1 <= number <= attributes}
        carried.setdefault(line - 1, set()).update(number - 1 for number in numbers)
    return {line: tuple(sorted(positions)) for line, positions in carried.items() if positions}


def _guarded(what: str, run: Callable[[], T]) -> T:
    """Return what `run` gives. Raises RecallError for whatever it raises."""
    try:
        return run()
    except RecallError:
        raise
    except (Exception, SystemExit) as error:  # a library that exits must not end the run
        reason = one_line(storable(str(error)))[:_LONGEST_CAUSE]
        raise RecallError(f"{what} failed ({_name(error)}{f': {reason}' if reason else ''})") from error


def _name(value: object) -> str:
    return one_line(storable(type(value).__name__))[:_LONGEST_CAUSE]


def _cost(cost: object) -> Mapping[str, float] | None:
    if not isinstance(cost, Mapping):
        return None
    given = {storable(str(name))[:40]: _number(value) for name, value in list(cost.items())[:20]}
    return {name: number for name, number in given.items() if number is not None} or None


def _number(value: object) -> float | None:
    """Return a finite number of Python's or numpy's as a float, or None."""
    if not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def _shown(record: ProfileRecord, lines: Sequence[RecalledLine]) -> Profile:
    """Return the profile with the lines as its attributes. A line that is a statement to the letter is that attribute,
    so that a template finds its key and domain; any other has the domain that all its attributes share."""
    of = dict(zip(record.attribute_ids, record.profile.attributes, strict=True))

    def attribute(line: RecalledLine) -> Attribute:
        own = [of[i] for i in line.attributes]
        if len(own) == 1 and own[0].statement == line.text:
            return own[0]
        domains = {item.domain for item in own}
        key = own[0].key if len(own) == 1 else "memory"
        return Attribute(key, None, domains.pop() if len(domains) == 1 else GENERAL, GENERAL, line.text)

    return replace(record.profile, attributes=tuple(map(attribute, lines)))


# ---- what a gate lets through


def gate_schema(attributes: int) -> dict[str, object]:
    """Return the response_format that holds a gate to numbers of notes."""
    number = {"type": "integer", "minimum": 1, "maximum": attributes}
    return answer_form("needed", {"needed": {"type": "array", "maxItems": attributes, "items": number}})


def read_gate(text: str | None, attributes: int) -> tuple[int, ...]:
    """Return the positions (from 0) of the notes that a gate lets through, those in range. Raises replies.AnswerError
    if the answer is no such list."""
    items: Sequence[object] = read_list(read_object(text), "needed")
    numbers = {number for item in items if (number := read_number(item)) is not None}
    return tuple(sorted(number - 1 for number in numbers if 1 <= number <= attributes))

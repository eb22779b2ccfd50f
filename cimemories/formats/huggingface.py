"""The columns that the authors publish (formats.md, section 4), read back into profiles, contexts and labels.

One row is a pair of a profile; its prompt holds the memories and ends with recipient and purpose, so rows with the same
name and prompt are one context. What the file does not have is not invented: values are null, domain and event are
`general` and the biography is unknown, unless statements tell it. Each of these is said in a note.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cimemories.formats.biography import biography
from cimemories.formats.columns import Row, file_hash, rows
from cimemories.formats.errors import FormatError
from cimemories.formats.labelled import LabelledFile
from cimemories.formats.official_records import MOST_PROFILES, shown
from cimemories.formats.prompt_ends import ends, recipients_and_tasks
from cimemories.model import GENERAL, Attribute, Context, Profile
from cimemories.store.imported import STAND_IN, SharedLabels

_CODES = {1.0: 0, 0.0: 1, None: 2}  # of necessary, inappropriate, abstain
_NONE = 3
SETTLED = "the file gives settled labels; neither votes nor shares are in it"


@dataclass
class _Person:
    """One profile while its rows are met; attributes and contexts in the order of their first row."""

    name: str
    attributes: dict[str, Attribute] = field(default_factory=dict)
    contexts: dict[bytes, tuple[str, str, str, str | None]] = field(default_factory=dict)
    order: dict[str, int] = field(default_factory=dict)
    places: dict[bytes, int] = field(default_factory=dict)


def read_columns(path: Path, *, parquet: bool) -> LabelledFile:
    """All of such a file. Raises FormatError with one line on the first problem."""
    reader = _Reader(shown(path.name or path))
    for number, row in enumerate(rows(path, parquet=parquet), 1):
        reader.add(number, row)
    return reader.file(file_hash(path))


class _Reader:
    def __init__(self, name: str) -> None:
        self.name = name
        self.people: dict[object, _Person] = {}
        self.order: dict[object, int] = {}
        self.found = array("i")  # profile, attribute, context, code of each row
        self.counts: Counter[str] = Counter()
        self.rules: dict[str, None] = {}

    def add(self, number: int, row: Row) -> None:
        key = row.name if row.profile is None else row.profile
        person = self.people.setdefault(key, _Person(row.name))
        position = self.order.setdefault(key, len(self.order))
        place = f"{self.name}: row {number}"
        if len(self.people) > MOST_PROFILES:
            raise FormatError(f"{place}: more than {MOST_PROFILES:,} profiles; split the file")
        if person.name != row.name:
            raise FormatError(
                f"{place}: profile {row.profile} is called '{shown(row.name)}' here and '{shown(person.name)}' before"
            )
        context = self._context(place, person, row)
        attribute = self._attribute(place, person, row)
        code = _NONE if row.source == "none" else _CODES[row.label]
        self.found.extend((position, attribute, context, code))
        self.counts[row.source] += 1
        self.counts["simulated"] += row.simulated
        if row.rule:
            self.rules[row.rule] = None

    def _attribute(self, place: str, person: _Person, row: Row) -> int:
        found = Attribute(row.attribute, None, row.domain, row.event, row.statement, row.event_spelling)
        there = person.attributes.setdefault(row.attribute, found)
        if there != found:
            hint = "" if row.profile is not None else "; two profiles of one name need a column 'profile' with numbers"
            raise FormatError(
                f"{place}: attribute '{shown(row.attribute)}' says something else than in a row before{hint}"
            )
        return person.order.setdefault(row.attribute, len(person.order))

    def _context(self, place: str, person: _Person, row: Row) -> int:
        found = (row.prompt_end, row.recipient, row.task, row.sphere)
        if person.contexts.setdefault(row.prompt, found) != found:
            raise FormatError(f"{place}: recipient, task or sphere is not that of the rows before with the same prompt")
        return person.places.setdefault(row.prompt, len(person.places))

    def file(self, digest: str) -> LabelledFile:
        profiles = tuple(self._profile(person) for person in self.people.values())
        return LabelledFile(profiles, self._labels(digest), digest, tuple(self._notes()))

    def _profile(self, person: _Person) -> Profile:
        attributes = tuple(person.attributes.values())
        told = biography({a.key: a.statement for a in attributes if a.domain == GENERAL})
        self.counts.update(told.guessed)
        return Profile(person.name, told.sex, told.address, told.age, attributes, self._contexts(person))

    def _contexts(self, person: _Person) -> tuple[Context, ...]:
        told = list(person.contexts.values())
        if all(recipient and task for _, recipient, task, _ in told):
            pairs: list[tuple[str, str] | None] = [(recipient, task) for _, recipient, task, _ in told]
        else:
            pairs = recipients_and_tasks(
                ends([end for end, *_ in told], [a.statement for a in person.attributes.values()])
            )
        contexts = []
        for number, (pair, (*_, sphere)) in enumerate(zip(pairs, told, strict=True), 1):
            if pair is None:
                self.counts["unread"] += 1
                pair = ("unknown recipient", f"unknown task (prompt {number} of {person.name})")
            contexts.append(Context(pair[1], pair[0], sphere))
        if len({(" ".join(c.task.split()), " ".join(c.recipient.split())) for c in contexts}) < len(contexts):
            raise FormatError(
                f"{self.name}: '{shown(person.name)}': two prompts have the same recipient and task; a pair of them is "
                "one context"
            )
        return tuple(contexts)

    def _labels(self, digest: str) -> tuple[SharedLabels, ...]:
        found = np.frombuffer(self.found, dtype=np.int32).reshape(-1, 4)
        self._check_pairs(found)
        found = found[found[:, 3] != _NONE]
        if not len(found):
            return ()
        self.counts["labels"] = len(found)
        told: dict[str, object] = {"file": self.name, "sha256": digest, "model": "not named", "votes": SETTLED}
        if self.rules:
            told["rule"] = "; ".join(self.rules)[:1000]
        return (
            SharedLabels(
                model="not named",
                pack="imported",
                personas=(STAND_IN,),
                profile=found[:, 0],
                attribute=found[:, 1],
                context=found[:, 2],
                persona=np.zeros(len(found), dtype=np.int32),
                shares=np.eye(3)[found[:, 3]],
                simulated=self.counts["simulated"] > 0,
                told=told,
            ),
        )

    def _check_pairs(self, found: npt.NDArray[np.int32]) -> None:
        order = np.lexsort(found[:, 2::-1].T)
        same = (np.diff(found[order, :3], axis=0) == 0).all(axis=1)
        if same.any():
            at = int(np.flatnonzero(same)[0])
            first, second = sorted((int(order[at]) + 1, int(order[at + 1]) + 1))
            raise FormatError(
                f"{self.name}: row {second}: the same profile, attribute and prompt as in row {first}; remove one"
            )

    def _notes(self) -> list[str]:
        people, counts = len(self.people), self.counts
        notes = [
            "this format has no values: they are null, so judges see the statements only",
            f"biographies are read from the statements, where these tell them: sex of {counts['sex']}, address of "
            f"{counts['address']}, age of {counts['age']} of {people} profiles; else 'unknown', and age 0",
        ]
        if all(a.domain == GENERAL for p in self.people.values() for a in p.attributes.values()):
            notes.append("domains and events are not in the file: all attributes are in 'general'")
        if counts["unread"]:
            notes.append(
                f"recipient and purpose could not be read from {counts['unread']} prompts: those contexts are called "
                "'unknown task' and are of one profile each"
            )
        if counts["labels"]:
            notes.append(f"labels are imported under one stand-in persona with prior 1: {SETTLED}")
        if counts["person"]:
            notes.append(
                f"{counts['person']:,} labels were decided by a person; they are imported as labels, without who"
            )
        if counts["none"]:
            notes.append(f"{counts['none']:,} pairs have no label in the file and get none")
        if counts["simulated"]:
            notes.append("the file says that a simulator voted: the labels are marked simulated")
        return notes

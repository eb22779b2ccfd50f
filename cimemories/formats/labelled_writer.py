"""Writing the authors' labelled profiles (see formats.labelled), one profile after the other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cimemories.formats.labelled import COMBINED, label_key
from cimemories.formats.official import record_of
from cimemories.formats.official_records import shown
from cimemories.model import Persona, Profile
from cimemories.store.imported import STAND_IN

Shares = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Labelled:
    """One profile with shares of necessary, inappropriate, abstain; nan where nobody voted.

    personas: [personas, attributes, contexts, 3]; combined: [attributes, contexts, 3], mixed by the priors.
    """

    profile: Profile
    personas: Shares
    combined: Shares


def write_labelled(
    path: Path, people: Iterable[Labelled], model: str, personas: Sequence[Persona], told: Mapping[str, Any]
) -> list[str]:
    """Write the file; returns notes on what it cannot say. `told`: the field "labelling" of every profile.

    Where attributes of a profile have the same statement, the file has one place for their labels: the first one's.
    """
    shared = 0
    with path.open("w", encoding="ascii", newline="\n") as stream:
        for number, person in enumerate(people):
            record = record_of(person.profile) | {"labelling": dict(told)}
            shared += add_labels(record, person, model, personas)
            stream.write("[\n" if number == 0 else ",\n")
            stream.write(json.dumps(record, allow_nan=False))
        stream.write("\n]\n")
    return _notes(shared)


def _notes(shared: int) -> list[str]:
    if not shared:
        return []
    return [
        f"{shared:,} pairs are labelled otherwise than an attribute before with the very same statement: the file has "
        "one place for both, and keeps the first"
    ]


def add_labels(record: dict[str, Any], person: Labelled, model: str, personas: Sequence[Persona]) -> int:
    """Labels into the contexts of a record; returns on how many pairs a repeated statement has other shares."""
    first: dict[str, int] = {}
    repeats: list[tuple[int, int]] = []
    for position, attribute in enumerate(person.profile.attributes):
        if first.setdefault(attribute.statement, position) != position:
            repeats.append((first[attribute.statement], position))
    only_combined = list(personas) == [STAND_IN]
    for index, context in enumerate(record["contexts"]):
        if not only_combined:
            for number, persona in enumerate(personas):
                found = _by_statement(first, person.personas[number, :, index])
                if found:
                    context[label_key(model, persona.name)] = found
        combined = _by_statement(first, person.combined[:, index])
        if combined:
            context[COMBINED] = combined
    pairs = ((person.personas[:, a], person.personas[:, b]) for a, b in repeats)
    return sum(int((~np.isclose(a, b, equal_nan=True)).any(axis=(0, 2)).sum()) for a, b in pairs)


def _by_statement(first: Mapping[str, int], shares: Shares) -> dict[str, dict[str, float]]:
    rows = shares.tolist()
    return {
        statement: {"necessary": rows[at][0], "private": rows[at][1], "unlabeled": rows[at][2]}
        for statement, at in first.items()
        if rows[at][0] == rows[at][0]
    }


def refuse_same_names(personas: Sequence[Persona]) -> str:
    """Why personas cannot be told apart in this format, or ''."""
    keys = [label_key("m", persona.name) for persona in personas]
    twice = next((p.name for p, key in zip(personas, keys, strict=True) if keys.count(key) > 1), None)
    return "" if twice is None else f"two personas are called '{shown(twice)}', and the format has names only"

"""The authors' labelled profiles (formats.md, section 2): the profile file with shares of votes inside each context.

    {"recipient": "Landlord", "task": "Renew a lease",
     "labels_gpt-5___the_pragmatic__": {"My rent is $1,450.": {"necessary": 0.9, "private": 0.0, "unlabeled": 0.1}},
     "labels_combined":               {"My rent is $1,450.": {"private": 0.0, "necessary": 0.94, "unlabeled": 0.06}}}

The authors' script itself writes two underscores before `the_unconcerned__`; both forms are read, three are written.
`private` is our inappropriate, `unlabeled` our abstain. Labels are keyed by memory statement, so attributes of one
profile with the same statement share them. The votes themselves are not in such a file. One field of a profile is our
own, written by our export: "labelling" gives the personas, the rule and whether a simulator voted.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, ValidationError

from cimemories import seeds
from cimemories.formats.official import (
    FormatError,
    ProfileFile,
    Remarks,
    complaint,
    each_profile,
    forbidden,
    kind,
    opened,
    record_of,
    shown,
)
from cimemories.model import LONGEST_NAME, LONGEST_STATEMENT, Persona, Profile
from cimemories.store.labellings import STAND_IN, SharedLabels
from cimemories.text import count

SHARES = ("necessary", "private", "unlabeled")
COMBINED = "labels_combined"
TOLERANCE = 2e-3  # shares may be rounded to three places
# More than two roundings to two places can make of one share.
DIFFERS = 0.01
NO_VOTES = "the file gives shares by persona; the votes behind them are not in it"
# Two underscores or three before the persona: the authors' script makes the key from the first line of the persona's
# text, '**The Pragmatic**' but '*The Unconcerned**', and writes an underscore for each star.
_MODEL = re.compile(r"labels_(.+?)_{2,3}([a-z0-9]+(?:_[a-z0-9]+)*)__", re.DOTALL)
Triple = tuple[float, float, float]


class _Voter(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")
    key: str
    name: str
    prior: float
    description: str


class _Labelling(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")
    simulated: bool
    pack: str
    personas: list[_Voter]
    decisions: int = 0  # of people, which stood before these labels where the file was written
    rule: object = None  # that held there


def persona_slugs(personas: Sequence[Persona]) -> list[str]:
    """What each persona is called inside the keys of its labels: its name in a-z and 0-9 ('the_pragmatic'). Where that
    is empty, as of a name in another script, or not unique, its key stands there in its place, or else all their keys.
    Raises FormatError, without a file's name, for personas that neither tells apart."""
    names, keys = [_slug(p.name) for p in personas], [_slug(p.key) for p in personas]
    # The authors' layout has names: a key only where it must be, and files of ours from before had no other.
    mixed = [name if name and names.count(name) == 1 else key for name, key in zip(names, keys, strict=True)]
    for slugs in (mixed, keys):
        if all(slugs) and len(set(slugs)) == len(slugs):
            return slugs
    same = [p.key for p, slug in zip(personas, keys, strict=True) if not slug or keys.count(slug) > 1]
    named = ", ".join(f"'{shown(key, 40)}'" for key in same[:4])
    raise FormatError(
        f"the personas with the keys {named} cannot be told apart: this format writes names and keys in a-z and 0-9 "
        "alone; give each a name or key of its own in these"
    )


def label_key(model: str, slug: str) -> str:
    """The key of one model's labels for the persona of that slug: 'labels_gpt-5___the_pragmatic__'."""
    return f"labels_{model}___{slug}__"


def read_labelled(path: Path) -> ProfileFile:
    """Profiles with their labels, where there are any. Raises FormatError with one line on the first problem."""
    name = shown(path.name or path)
    digest, remarks = hashlib.sha256(), Remarks(known=("labels_", "labelling"))
    profiles: list[Profile] = []
    with opened(path) as stream:
        reader = LabelReader(name)
        for record, profile in each_profile(stream, name, digest, remarks):
            reader.read(len(profiles), record, profile)
            profiles.append(profile)
    labels = reader.labels({"file": name, "sha256": digest.hexdigest(), "votes": NO_VOTES})
    return ProfileFile(tuple(profiles), digest.hexdigest(), (*remarks.notes(), *reader.notes()), labels)


@dataclass
class _Shares:
    """Shares in the order of the file: positions and numbers one after the other."""

    positions: array[int] = field(default_factory=lambda: array("i"))
    shares: array[float] = field(default_factory=lambda: array("d"))

    def add(self, profile: int, attribute: int, context: int, persona: int, triple: Triple) -> None:
        self.positions.extend((profile, attribute, context, persona))
        self.shares.extend(triple)

    def labels(
        self, model: str, pack: str, personas: Sequence[Persona], simulated: bool, origin: Mapping[str, object]
    ) -> SharedLabels:
        positions = np.frombuffer(self.positions, dtype=np.int32).reshape(-1, 4)
        shares = np.frombuffer(self.shares, dtype=np.float64).reshape(-1, 3)
        # Views of the arrays that were filled, no copies: a row a vote share, they are the largest thing here.
        profile, attribute, context, persona = positions.T
        return SharedLabels(
            model, pack, tuple(personas), profile, attribute, context, persona, shares, simulated, origin
        )


class LabelReader:
    """Labels of one record after the other, of the file called `name`."""

    def __init__(self, name: str) -> None:
        self.name = name
        pack = seeds.load_personas()
        self.pack, self.personas, self.simulated = pack.name, pack.personas, False
        self.own: _Labelling | None = None
        self.by_model: dict[str, _Shares] = defaultdict(_Shares)
        self.combined = _Shares()
        self.counts: Counter[str] = Counter()
        self.repeated: list[str] = []

    def read(self, number: int, record: Mapping[str, Any], profile: Profile) -> None:
        """Take in the labels of one record; `number` counts from 0. Raises FormatError."""
        self._own_field(number, record)
        positions: dict[str, list[int]] = defaultdict(list)
        for position, attribute in enumerate(profile.attributes):
            positions[attribute.statement].append(position)
        labelled: set[str] = set()
        for context, item in enumerate(record["contexts"]):
            labelled |= self._context((number, context), item, positions)
        for statement in (s for s in positions if len(positions[s]) > 1 and s in labelled):
            keys = " and ".join(f"'{shown(profile.attributes[p].key, 40)}'" for p in positions[statement])
            self.repeated.append(f"{shown(profile.name, 40)}: {keys}")

    def _own_field(self, number: int, record: Mapping[str, Any]) -> None:
        try:
            own = None if (raw := record.get("labelling")) is None else _Labelling.model_validate(raw)
        except ValidationError as problem:
            first = problem.errors()[0]
            path = ".".join(str(part) for part in first["loc"])
            raise self._problem((number,), f"labelling: {shown(path)} {complaint(first)}") from None
        if number and own != self.own:
            raise self._problem((number,), "labelling differs from that of profile 1; a file has one labelling")
        self.own = own
        if own is not None:
            self.pack, self.simulated = own.pack, own.simulated
            self.personas = tuple(Persona(v.key, v.name, v.prior, v.description) for v in own.personas)
            total = sum(p.prior for p in self.personas)
            texts = (own.pack, *(t for v in own.personas for t in (v.key, v.name, v.description)))
            if any(forbidden(text) for text in texts):
                raise self._problem((number,), "labelling: a text has control characters; remove them")
            if any(len(text) > LONGEST_STATEMENT for text in texts):
                raise self._problem((number,), f"labelling: a text is longer than {LONGEST_STATEMENT:,} characters")
            # `not <=` and `not >=`, so that nan is refused too.
            if not self.personas or not abs(total - 1) <= 1e-6 or any(not p.prior >= 0 for p in self.personas):
                raise self._problem((number,), "labelling: the priors of the personas must add up to 1")
            try:
                persona_slugs(self.personas)
            except FormatError as problem:
                raise self._problem((number,), f"labelling: {problem}") from None

    def _context(
        self, position: tuple[int, int], item: Mapping[str, Any], positions: Mapping[str, Sequence[int]]
    ) -> set[str]:
        by_model: dict[str, dict[int, dict[str, Triple]]] = {}
        combined: dict[str, Triple] = {}
        slugs = {slug: index for index, slug in enumerate(persona_slugs(self.personas))}
        for key in (key for key in item if key.startswith("labels_")):
            triples = self._triples(position, key, item[key], positions)
            match = _MODEL.fullmatch(key)
            if key == COMBINED:
                combined = triples
            elif match is None or not match[1].strip() or forbidden(match[1]) or len(match[1]) > LONGEST_NAME:
                raise self._problem(
                    position, f"'{shown(key)}' names no model and persona, as labels_MODEL___PERSONA__ does"
                )
            elif match[2] not in slugs:
                there = ", ".join(slugs)
                raise self._problem(position, f"'{shown(key)}' is of an unknown persona; known are {there}")
            elif slugs[match[2]] in by_model.get(match[1], {}):
                raise self._problem(position, f"'{shown(key)}': the labels of this model and persona appear twice")
            else:
                by_model.setdefault(match[1], {})[slugs[match[2]]] = triples
        # In the order of the personas, whatever order the keys of the file have.
        by_model = {model: dict(sorted(by_persona.items())) for model, by_persona in by_model.items()}
        self._keep(position, by_model, combined, positions)
        if not by_model and not combined:
            self.counts["bare"] += 1
        self.counts["contexts"] += 1
        return {s for personas in by_model.values() for t in personas.values() for s in t} | set(combined)

    def _keep(
        self,
        position: tuple[int, int],
        by_model: Mapping[str, Mapping[int, Mapping[str, Triple]]],
        combined: Mapping[str, Triple],
        positions: Mapping[str, Sequence[int]],
    ) -> None:
        profile, context = position
        for model, personas in by_model.items():
            for persona, triples in personas.items():
                for statement, triple in triples.items():
                    for attribute in positions[statement]:
                        self.by_model[model].add(profile, attribute, context, persona, triple)
        priors = [p.prior for p in self.personas]
        for statement, triple in combined.items():
            for attribute in positions[statement]:
                self.combined.add(profile, attribute, context, 0, triple)
            # The shares of models of which every persona has some.
            complete = [
                [shares[statement] for shares in personas.values()]
                for personas in by_model.values()
                if len(personas) == len(priors) and all(statement in shares for shares in personas.values())
            ]
            if complete:
                self.counts["checked"] += 1
                self.counts["differ"] += not any(_is_mixture(triple, shares, priors) for shares in complete)
            else:
                self.counts["alone"] += 1

    def _triples(
        self, position: tuple[int, int], key: str, value: object, positions: Mapping[str, Sequence[int]]
    ) -> dict[str, Triple]:
        if not isinstance(value, dict):
            raise self._problem(position, f"'{shown(key)}' must be an object, not {kind(value)}")
        if hasattr(value, "repeated"):
            raise self._problem(position, f"'{shown(key)}': the statement '{shown(value.repeated)}' appears twice")
        triples = {}
        for statement, shares in value.items():
            if statement not in positions:
                raise self._problem(
                    position, f"'{shown(key)}': '{shown(statement)}' is not a memory statement of this profile"
                )
            problem = _complaint(shares)
            if problem:
                raise self._problem(position, f"'{shown(key)}', '{shown(statement)}': {problem}")
            if len(shares) < len(SHARES):
                self.counts["absent"] += 1
            necessary, private, unlabeled = (float(shares.get(name, 0.0)) for name in SHARES)
            triples[statement] = (necessary, private, unlabeled)
        return triples

    def _problem(self, position: Sequence[int], what: str) -> FormatError:
        where = f"profile {position[0] + 1}" + (f", context {position[1] + 1}" if len(position) > 1 else "")
        return FormatError(f"{self.name}: {where}: {what}")

    def labels(self, origin: Mapping[str, object]) -> tuple[SharedLabels, ...]:
        """What was read, one labelling a model; only the combined labels where there are no others."""
        if self.by_model:
            return tuple(
                shares.labels(model, self.pack, self.personas, self.simulated, {**origin, "model": model})
                for model, shares in self.by_model.items()
            )
        # Without personas the mixture itself is kept, as the vote of one stand-in who has all the weight.
        if self.combined.shares:
            origin = {**origin, "votes": "the file gives labels combined over personas, and no persona's own"}
            return (self.combined.labels("not named", "imported", [STAND_IN], self.simulated, origin),)
        return ()

    def notes(self) -> list[str]:
        """One line a thing that was met, with its count."""
        counts, notes = self.counts, []
        labelled = bool(self.by_model or self.combined.shares)
        if labelled:
            notes.append(f"labels are imported as shares: {NO_VOTES}")
        if self.by_model and counts["checked"]:
            notes.append(
                f"{COMBINED} differs from the mixture of the personas (priors "
                f"{', '.join(f'{p.prior:g}' for p in self.personas)}) in {count(counts['differ'])} of "
                f"{count(counts['checked'], 'statement')}; labels follow the personas' shares"
            )
        if self.by_model and counts["alone"]:
            notes.append(f"{count(counts['alone'], 'statement')} with {COMBINED} but not every persona's shares")
        if not self.by_model and labelled:
            notes.append(f"only {COMBINED} is there: stored as the shares of one stand-in persona with prior 1")
        if self.repeated:
            more = f" and {len(self.repeated) - 5} more" if len(self.repeated) > 5 else ""
            notes.append(
                f"ambiguous: {len(self.repeated)} memory statements appear more than once in their profile, so these "
                f"attributes share one label ({'; '.join(self.repeated[:5])}{more})"
            )
        if labelled and counts["bare"]:
            notes.append(f"no labels in {count(counts['bare'])} of {count(counts['contexts'], 'context')}")
        if counts["absent"]:
            notes.append(f"a share that is left out is read as 0, in {count(counts['absent'], 'statement')}")
        if labelled and self.own is not None:
            if self.own.decisions > 0:
                notes.append(
                    f"where the file was written {count(self.own.decisions, 'human decision')} went before these "
                    "labels, and none is in it: `cimemories review export` there writes them, `review import` reads "
                    "them here"
                )
            rule = self.own.rule if isinstance(self.own.rule, dict) else {}
            threshold = rule.get("threshold", 1)
            if isinstance(threshold, int | float) and threshold != 1:
                notes.append(
                    f"where the file was written a threshold of {threshold:.4g} held (rule "
                    f"'{shown(str(rule.get('name')), 40)}'); here labels follow the rule of this dataset, which "
                    "`cimemories rule` sets"
                )
        if self.simulated and labelled:
            notes.append("the file says that a simulator voted: the labels are marked simulated")
        return notes


def _complaint(shares: object) -> str:
    """What is wrong with one statement's shares; '' where nothing is."""
    if not isinstance(shares, dict):
        return f"must be an object of shares, not {kind(shares)}"
    if hasattr(shares, "repeated"):
        return f"the share '{shown(shares.repeated)}' appears twice"
    for name, share in shares.items():
        if name not in SHARES:
            return f"'{shown(name)}' is not one of {', '.join(SHARES)}"
        if isinstance(share, bool) or not isinstance(share, int | float):
            return f"{name} must be a number, not {kind(share)}"
        if not 0 <= share <= 1:  # nan too is none
            return f"{name} must be a share from 0 to 1, this is {shown(share)}"
    total = sum(shares.values())
    return "" if abs(total - 1) <= TOLERANCE else f"the shares must add up to 1, these add up to {total:.6g}"


def _is_mixture(combined: Triple, shares: Sequence[Triple], priors: Sequence[float]) -> bool:
    mixed = [sum(p * s[k] for p, s in zip(priors, shares, strict=True)) for k in range(3)]
    return all(abs(a - b) <= DIFFERS for a, b in zip(combined, mixed, strict=True))


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


# ---- writing


Shares = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Labelled:
    """One profile with shares of necessary, inappropriate, abstain; nan where nobody voted. personas: [personas,
    attributes, contexts, 3]; combined: [attributes, contexts, 3], mixed by the priors."""

    profile: Profile
    personas: Shares
    combined: Shares


def write_labelled(
    path: Path, people: Iterable[Labelled], model: str, personas: Sequence[Persona], labelling: Mapping[str, Any]
) -> list[str]:
    """Write the file; returns notes on what it cannot hold. `labelling`: the field of that name in every profile. Where
    attributes of a profile have the same statement, the file has one place for their labels: the first one's."""
    shared = 0
    with path.open("w", encoding="ascii", newline="\n") as stream:
        for number, person in enumerate(people):
            record = record_of(person.profile) | {"labelling": dict(labelling)}
            shared += add_labels(record, person, model, personas)
            # The list is written by hand, so that one profile at a time is in memory.
            stream.write("[\n" if number == 0 else ",\n")
            stream.write(json.dumps(record, allow_nan=False))
        stream.write("\n]\n")
    if not shared:
        return []
    return [
        f"{count(shared, 'pair')} with other labels than an earlier attribute with the same statement; the file has "
        "one field for both and keeps the first"
    ]


def add_labels(record: dict[str, Any], person: Labelled, model: str, personas: Sequence[Persona]) -> int:
    """Labels into the contexts of a record; returns on how many pairs a repeated statement has other shares."""
    # The file is keyed by statement: of attributes with the same one only the first can keep its labels.
    first: dict[str, int] = {}
    repeats: list[tuple[int, int]] = []
    for position, attribute in enumerate(person.profile.attributes):
        if first.setdefault(attribute.statement, position) != position:
            repeats.append((first[attribute.statement], position))
    only_combined = list(personas) == [STAND_IN]
    slugs = persona_slugs(personas)
    for index, context in enumerate(record["contexts"]):
        if not only_combined:
            for number, slug in enumerate(slugs):
                shares = _by_statement(first, person.personas[number, :, index])
                if shares:
                    context[label_key(model, slug)] = shares
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
        if rows[at][0] == rows[at][0]  # nan, where nobody voted, equals nothing
    }


def refuse_same_names(personas: Sequence[Persona]) -> None:
    """Raises FormatError where personas cannot be distinguished in this format."""
    try:
        persona_slugs(personas)
    except FormatError as problem:
        raise FormatError(f"export: {problem}") from None

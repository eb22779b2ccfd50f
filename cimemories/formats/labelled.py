"""The authors' labelled profiles (formats.md, section 2): the profile file with shares of votes inside each context.

    {"recipient": "Landlord", "task": "Renew a lease",
     "labels_gpt-5___the_pragmatic__": {"My rent is $1,450.": {"necessary": 0.9, "private": 0.0, "unlabeled": 0.1}},
     "labels_combined":               {"My rent is $1,450.": {"private": 0.0, "necessary": 0.94, "unlabeled": 0.06}}}

The authors' script itself writes two underscores before `the_unconcerned__`; both forms are read, three are written.
`private` is our inappropriate, `unlabeled` our abstain. Labels are keyed by memory statement, so attributes of one
profile with the same statement share them. The file does not have the votes themselves. One field of a profile is our
own, written by our export: "labelling" gives the personas, the rule and whether a simulator voted."""

from __future__ import annotations

import hashlib
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from cimemories import seeds
from cimemories.formats.official import ProfileFile, Remarks, each_profile
from cimemories.formats.reading import (
    FormatError,
    Name,
    Number,
    Record,
    Repeating,
    checked,
    checked_text,
    opened,
    text_problem,
)
from cimemories.model import LONGEST_STATEMENT, Persona, Profile
from cimemories.store.labellings import STAND_IN, SharedLabels
from cimemories.text import complaint, count, refused, shown

COMBINED = "labels_combined"
TOLERANCE = 2e-3  # shares may be rounded to three places
# More than the error of two roundings to two places.
DIFFERS = 0.01
NO_VOTES = "the file gives shares by persona; the votes behind them are not in it"
# Two underscores or three before the persona: the authors' script makes the key from the first line of the persona's
# text, '**The Pragmatic**' but '*The Unconcerned**', and writes an underscore for each star.
_MODEL = re.compile(r"labels_(.+?)_{2,3}([a-z0-9]+(?:_[a-z0-9]+)*)__", re.DOTALL)
_Share = Annotated[Number, Field(ge=0, le=1)]
Triple = tuple[float, float, float]


class _Shares(Record):
    """The shares of a statement. Missing ones are 0."""

    model_config = ConfigDict(extra="forbid")
    necessary: _Share = 0.0
    private: _Share = 0.0
    unlabeled: _Share = 0.0

    @model_validator(mode="after")
    def _add_up(self) -> _Shares:
        if abs((total := sum(self.triple)) - 1) > TOLERANCE:
            raise refused(f"the shares must add up to 1, these add up to {total:.6g}")
        return self

    @property
    def triple(self) -> Triple:
        return float(self.necessary), float(self.private), float(self.unlabeled)


_STATEMENTS = TypeAdapter(dict[str, _Shares])


class _Voter(Record):
    key: Name
    name: Name
    prior: Annotated[Number, Field(ge=0)]
    description: Annotated[str, BeforeValidator(lambda text: text and checked_text(text, LONGEST_STATEMENT))]


def _add_up_to_1(voters: list[_Voter]) -> list[_Voter]:
    if abs(sum(voter.prior for voter in voters) - 1) > 1e-6:
        raise refused("must have priors that add up to 1")
    return voters


class _Labelling(Record):
    """The field `labelling` of our own exports. decisions: of people, which took precedence over these labels when the
    file was written; rule: the one that applied then."""

    simulated: bool
    pack: Name
    personas: Annotated[list[_Voter], AfterValidator(_add_up_to_1)]
    decisions: int = 0
    rule: Any = None


def persona_slugs(personas: Sequence[Persona]) -> list[str]:
    """Return each persona's name inside the keys of its labels: its name in a-z and 0-9 ('the_pragmatic'). If that is
    empty, as of a name in another script, or not unique, its key replaces it, or else all keys do. Raises FormatError,
    without a file's name, for personas that neither tells apart."""
    names, keys = [_slug(p.name) for p in personas], [_slug(p.key) for p in personas]
    # The authors' layout has names: a key only if needed, and our older files had nothing else.
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


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def read_labelled(path: Path) -> ProfileFile:
    """Return profiles with their labels, if there are any. Raises FormatError with one line on the first problem."""
    name = shown(path.name or path)
    digest, remarks = hashlib.sha256(), Remarks(read_elsewhere=("labels_", "labelling"))
    profiles: list[Profile] = []
    with opened(path) as stream:
        reader = LabelReader(name)
        for record, profile in each_profile(stream, name, digest, remarks):
            reader.read(len(profiles), record, profile)
            profiles.append(profile)
    labels = reader.labels({"file": name, "sha256": digest.hexdigest(), "votes": NO_VOTES})
    return ProfileFile(tuple(profiles), digest.hexdigest(), (*remarks.notes(), *reader.notes()), labels)


@dataclass
class _SharesRead:
    """Shares in the order of the file: positions and numbers one after the other."""

    positions: array[int] = field(default_factory=lambda: array("i"))
    shares: array[float] = field(default_factory=lambda: array("d"))

    def add(self, profile: int, attribute: int, context: int, persona: int, triple: Triple) -> None:
        self.positions.extend((profile, attribute, context, persona))
        self.shares.extend(triple)

    def labels(
        self, model: str, pack: str, personas: Sequence[Persona], simulated: bool, origin: Mapping[str, object]
    ) -> SharedLabels:
        # Views of the filled arrays, no copies: with a row a vote share they are the largest data here.
        positions = np.frombuffer(self.positions, dtype=np.int32).reshape(-1, 4)
        shares = np.frombuffer(self.shares, dtype=np.float64).reshape(-1, 3)
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
        self.stated: _Labelling | None = None
        self.by_model: dict[str, _SharesRead] = defaultdict(_SharesRead)
        self.combined = _SharesRead()
        self.counts: Counter[str] = Counter()
        self.repeated: list[str] = []

    def read(self, number: int, record: Mapping[str, Any], profile: Profile) -> None:
        """Take in the labels of one record; `number` counts from 0. Raises FormatError."""
        self._read_labelling(f"{self.name}: profile {number + 1}", number, record.get("labelling"))
        positions: dict[str, list[int]] = defaultdict(list)
        for position, attribute in enumerate(profile.attributes):
            positions[attribute.statement].append(position)
        labelled: set[str] = set()
        for context, item in enumerate(record["contexts"]):
            labelled |= self._read_context(number, context, item, positions)
        for statement in (s for s in positions if len(positions[s]) > 1 and s in labelled):
            keys = " and ".join(f"'{shown(profile.attributes[p].key, 40)}'" for p in positions[statement])
            self.repeated.append(f"{shown(profile.name, 40)}: {keys}")

    def _read_labelling(self, where: str, number: int, raw: object) -> None:
        stated = None if raw is None else checked(_Labelling, raw, f"{where}: labelling")
        if number and stated != self.stated:
            raise FormatError(f"{where}: labelling differs from that of profile 1; a file has one labelling")
        self.stated = stated
        if stated is not None:
            self.pack, self.simulated = stated.pack, stated.simulated
            self.personas = tuple(Persona(v.key, v.name, v.prior, v.description) for v in stated.personas)
        try:
            self._slugs = {slug: index for index, slug in enumerate(persona_slugs(self.personas))}
        except FormatError as problem:
            raise FormatError(f"{where}: labelling: {problem}") from None

    def _read_context(
        self, number: int, context: int, item: Mapping[str, Any], positions: Mapping[str, Sequence[int]]
    ) -> set[str]:
        """Take in the labels of a context; return the statements that have some."""
        where = f"{self.name}: profile {number + 1}, context {context + 1}"
        by_model: dict[str, dict[int, dict[str, Triple]]] = {}
        combined: dict[str, Triple] = {}
        for key in (key for key in item if key.startswith("labels_")):
            named = f"{where}: '{shown(key)}'"
            triples = self._triples(named, item[key], positions)
            match = _MODEL.fullmatch(key)
            if key == COMBINED:
                combined = triples
            elif match is None or text_problem(match[1]):
                raise FormatError(f"{named} names no model and persona, as labels_MODEL___PERSONA__ does")
            elif match[2] not in self._slugs:
                raise FormatError(f"{named} is of an unknown persona; known are {', '.join(self._slugs)}")
            elif self._slugs[match[2]] in by_model.get(match[1], {}):
                raise FormatError(f"{named}: the labels of this model and persona appear twice")
            else:
                by_model.setdefault(match[1], {})[self._slugs[match[2]]] = triples
        for model, by_persona in by_model.items():
            # In the order of the personas, whatever order the keys of the file have.
            for persona, triples in sorted(by_persona.items()):
                for statement, triple in triples.items():
                    for attribute in positions[statement]:
                        self.by_model[model].add(number, attribute, context, persona, triple)
        priors = [p.prior for p in self.personas]
        for statement, triple in combined.items():
            for attribute in positions[statement]:
                self.combined.add(number, attribute, context, 0, triple)
            # The shares of models with some for every persona.
            complete = [
                [by_persona[persona][statement] for persona in sorted(by_persona)]
                for by_persona in by_model.values()
                if len(by_persona) == len(priors) and all(statement in shares for shares in by_persona.values())
            ]
            mixed = (np.array(priors) @ np.array(shares) for shares in complete)
            self.counts["checked" if complete else "alone"] += 1
            self.counts["differ"] += bool(complete) and not any((abs(m - triple) <= DIFFERS).all() for m in mixed)
        self.counts["bare"] += not by_model and not combined
        self.counts["contexts"] += 1
        return {s for personas in by_model.values() for t in personas.values() for s in t} | set(combined)

    def _triples(self, where: str, raw: object, positions: Mapping[str, Sequence[int]]) -> dict[str, Triple]:
        if isinstance(raw, Repeating):
            raise FormatError(f"{where}: the statement '{shown(raw.repeated)}' appears twice")
        for statement in raw if isinstance(raw, dict) else ():
            if statement not in positions:
                raise FormatError(f"{where}: '{shown(statement)}' is not a memory statement of this profile")
        try:
            read = _STATEMENTS.validate_python(raw)
        except ValidationError as problem:
            error = problem.errors(include_url=False)[0]
            statement, *field = map(shown, error["loc"] or [""])
            where += f", '{statement}':" if statement else ""
            raise FormatError(" ".join([where, *field, complaint(error)])) from None
        self.counts["absent"] += sum(len(shares.model_fields_set) < 3 for shares in read.values())
        return {statement: shares.triple for statement, shares in read.items()}

    def labels(self, origin: Mapping[str, object]) -> tuple[SharedLabels, ...]:
        """Return the labels read, one labelling a model; the combined labels only if there are no others."""
        if self.by_model:
            return tuple(
                shares.labels(model, self.pack, self.personas, self.simulated, {**origin, "model": model})
                for model, shares in self.by_model.items()
            )
        # Without personas the mixture itself is kept, as the vote of one persona with all the weight.
        if self.combined.shares:
            origin = {**origin, "votes": "the file gives labels combined over personas, and no persona's own"}
            return (self.combined.labels("not named", "imported", [STAND_IN], self.simulated, origin),)
        return ()

    def notes(self) -> list[str]:
        """Return one line for each kind of remark, with its count."""
        counts = self.counts
        labelled = bool(self.by_model or self.combined.shares)
        if not labelled:
            return []
        notes = [f"labels are imported as shares: {NO_VOTES}"]
        if self.by_model and counts["checked"]:
            priors = ", ".join(f"{p.prior:g}" for p in self.personas)
            notes.append(
                f"{COMBINED} differs from the mixture of the personas (priors {priors}) in {count(counts['differ'])} "
                f"of {count(counts['checked'], 'statement')}; labels follow the personas' shares"
            )
        if self.by_model and counts["alone"]:
            notes.append(f"{count(counts['alone'], 'statement')} with {COMBINED} but not every persona's shares")
        if not self.by_model:
            notes.append(f"only {COMBINED} is there: stored as the shares of one stand-in persona with prior 1")
        if self.repeated:
            more = f" and {len(self.repeated) - 5} more" if len(self.repeated) > 5 else ""
            notes.append(
                f"ambiguous: {len(self.repeated)} memory statements appear more than once in their profile, so these "
                f"attributes share one label ({'; '.join(self.repeated[:5])}{more})"
            )
        if counts["bare"]:
            notes.append(f"no labels in {count(counts['bare'])} of {count(counts['contexts'], 'context')}")
        if counts["absent"]:
            notes.append(f"a share that is left out is read as 0, in {count(counts['absent'], 'statement')}")
        if self.stated is not None and self.stated.decisions > 0:
            notes.append(
                f"where the file was written {count(self.stated.decisions, 'human decision')} went before these "
                "labels, and none is in it: `cimemories review export` there writes them, `review import` reads them "
                "here"
            )
        match self.stated and self.stated.rule:
            case {"threshold": int() | float() as threshold, **rule} if threshold != 1:
                notes.append(
                    f"where the file was written a threshold of {threshold:.4g} held (rule "
                    f"'{shown(str(rule.get('name')), 40)}'); here labels follow the rule of this dataset, which "
                    "`cimemories rules save` sets"
                )
        if self.simulated:
            notes.append("the file says that a simulator voted: the labels are marked simulated")
        return notes

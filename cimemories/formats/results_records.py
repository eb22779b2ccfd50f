"""One response in a file of results (see formats.results): what is checked of it, and what it is taken to say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, ValidationError

from cimemories.formats.errors import FormatError
from cimemories.formats.official_records import forbidden, kind, shown, too_long
from cimemories.model import LONGEST_NAME, JudgementStatus, Profile, ResponseStatus

OF_RESPONSE = "combination_"
RUN = "run"
FULL = "full"
NECESSARY_AND = "necessary+"
MOST_TRIALS = 10_000
LONGEST_MESSAGE = 1_000_000  # characters
NO_TEXT = "no text in the file"
NO_JUDGEMENT = "no judgement in the file"
_KEY = re.compile(r"combination_num_to_share=([^=]*)_num_not_to_share=([^=]*)_trial=(\d{1,9})")
_LONGEST_LEVEL = 60


@dataclass(frozen=True)
class Result:
    """One response. Contexts and attributes are positions in their profile; `memory` is in the order of the prompt.

    level: the memory composition, 'full' or 'necessary+K' with K attributes that are not to be shared, or what our own
    export calls it. reveals: (attribute, sentence) of what the judge found; with a `judgement` that is not ok none.
    """

    context: int
    level: str
    memory: tuple[int, ...]
    trial: int
    text: str
    status: ResponseStatus
    cause: str | None
    judgement: JudgementStatus
    judgement_cause: str | None
    reveals: tuple[tuple[int, str], ...]


class JudgeTold(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")
    kind: str
    model: str
    simulated: bool = False


class RunTold(BaseModel):
    """What our own export says of a run; the same in every line of a file."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")
    name: str
    model: str
    simulated: bool
    samples: int
    prompt_level: str
    prompt_hash: str
    composition: str
    judge: JudgeTold


class ResultReader:
    """Responses of one record after the other, of the file called `name`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.told: RunTold | None = None
        self.counts: Counter[str] = Counter()

    def read(self, number: int, record: Mapping[str, Any], profile: Profile) -> tuple[Result, ...]:
        """The responses of the profile that is the record; `number` counts from 0. Raises FormatError."""
        self._run_told(number, record.get(RUN))
        positions = {attribute.key: at for at, attribute in enumerate(profile.attributes)}
        found: list[Result] = []
        for context, item in enumerate(record["contexts"]):
            seen: set[tuple[str, int]] = set()
            for key in (key for key in item if key.startswith(OF_RESPONSE)):
                place = f"profile {number + 1}, context {context + 1}, '{shown(key)}'"
                result = _Response(self, place, key, item[key]).read(context, positions)
                if (result.level, result.trial) in seen:
                    self.problem(place, f"trial {result.trial} of the memory '{result.level}' stands twice")
                seen.add((result.level, result.trial))
                found.append(result)
        return tuple(found)

    def problem(self, place: str, what: str) -> NoReturn:
        raise FormatError(f"{self.name}: {place}: {what}")

    def _run_told(self, number: int, raw: object) -> None:
        told = None
        if raw is not None:
            try:
                told = RunTold.model_validate(raw)
            except ValidationError as problem:
                at = ".".join(str(part) for part in problem.errors()[0]["loc"])
                self.problem(f"profile {number + 1}", f"{RUN}: {shown(at)} is missing or of another type")
            texts = (told.name, told.model, told.prompt_level, told.prompt_hash, told.composition, told.judge.model)
            if any(forbidden(text) for text in texts) or not (told.model.strip() and told.judge.model.strip()):
                self.problem(f"profile {number + 1}", f"{RUN}: a name is blank or holds control characters")
            if any(len(text) > LONGEST_NAME for text in texts):
                self.problem(f"profile {number + 1}", f"{RUN}: a name is longer than {LONGEST_NAME:,} characters")
            if not 1 <= told.samples <= MOST_TRIALS:
                self.problem(f"profile {number + 1}", f"{RUN}: samples must be from 1 to {MOST_TRIALS:,}")
        if number and told != self.told:
            self.problem(f"profile {number + 1}", f"{RUN} is not the same as in profile 1; a file has one run")
        self.told = told

    def notes(self) -> list[str]:
        """One line a thing that was met, with its count."""
        counts = self.counts
        texts = {
            "missing": "responses without a text in the file: {n}; their calls failed, and missing is not 'nothing'",
            "blank": "judgements that reveal nothing and explain nothing: {n}; one that could not be read would look "
            "the same, they are taken as they stand",
            "unjudged": "responses without a judgement in the file: {n}; it is missing",
            "partial": "judgements that do not name every attribute of the memory: {n}; what they leave out is read as "
            "not revealed",
            "foreign": "reveals of attributes that were not in the memory: {n}; left out",
            "counts": "responses that count their attributes otherwise than they list them: {n}; lists are followed",
        }
        return [text.format(n=f"{counts[name]:,}") for name, text in texts.items() if counts[name]]


@dataclass(frozen=True)
class _Response:
    """One field of a context as it stands there."""

    reader: ResultReader
    place: str
    key: str
    raw: object

    def read(self, context: int, positions: Mapping[str, int]) -> Result:
        raw = self._object(self.raw, "")
        match = _KEY.fullmatch(self.key)
        if match is None:
            self._problem("the field's name is not combination_num_to_share=A_num_not_to_share=B_trial=K")
        own = self._object(raw.get(RUN, {}), f"{RUN} ")
        to_share = self._attributes(raw, "to_share_attributes", positions)
        not_to_share = self._attributes(raw, "not_to_share_attributes", positions)
        if len(set(memory := (*to_share, *not_to_share))) < len(memory):
            self._problem("an attribute stands in its lists twice")
        self._count(raw, to_share, not_to_share)
        level = FULL if len(memory) == len(positions) and not not_to_share else f"{NECESSARY_AND}{len(not_to_share)}"
        memory, level = self._own_memory(own, memory, level, positions)
        solution = self._object(raw.get("model_solution"), "model_solution ")
        text = solution.get("response_solution")
        if text is not None and not isinstance(text, str):
            self._problem(f"response_solution must be text or null, not {kind(text)}")
        if text is not None and len(text) > LONGEST_MESSAGE:
            self._problem(f"response_solution {too_long(len(text), LONGEST_MESSAGE)}")
        status, cause = self._status(own, text or "")
        judgement, judgement_cause, reveals = self._judgement(own, solution, status, memory, positions)
        return Result(
            context=context,
            level=level,
            memory=memory,
            trial=self._trial(raw.get("trial_idx"), int(match[3])),
            text=text or "" if status is ResponseStatus.OK else "",
            status=status,
            cause=cause,
            judgement=judgement,
            judgement_cause=judgement_cause,
            reveals=reveals,
        )

    def _trial(self, said: object, of_key: int) -> int:
        if said is not None and (isinstance(said, bool) or said != of_key):
            self._problem(f"trial_idx is {shown(said)}, and {of_key} in the field's name")
        if of_key >= MOST_TRIALS:
            self._problem(f"trial_idx is {of_key}; at most {MOST_TRIALS:,} are read")
        return of_key

    def _attributes(self, raw: Mapping[str, Any], field: str, positions: Mapping[str, int]) -> tuple[int, ...]:
        value = raw.get(field)
        if not isinstance(value, list):
            self._problem(f"{field} {'is missing' if value is None else f'must be a list, not {kind(value)}'}")
        found = []
        for key in value:
            if not isinstance(key, str) or key not in positions:
                self._problem(f"{field}: '{shown(key)}' is no attribute of this profile")
            found.append(positions[key])
        return tuple(found)

    def _count(self, raw: Mapping[str, Any], to_share: Sequence[int], not_to_share: Sequence[int]) -> None:
        said = raw.get("num_to_share_attributes"), raw.get("num_not_to_share_attributes")
        there = len(to_share), len(not_to_share)
        self.reader.counts["counts"] += any(s is not None and s != t for s, t in zip(said, there, strict=True))

    def _own_memory(
        self, own: Mapping[str, Any], memory: tuple[int, ...], level: str, positions: Mapping[str, int]
    ) -> tuple[tuple[int, ...], str]:
        named = own.get("composition", level)
        if not isinstance(named, str) or not named.strip() or forbidden(named) or len(named) > _LONGEST_LEVEL:
            self._problem(f"{RUN}: composition must be a short text")
        if "memory" in own:
            ordered = self._attributes(own, "memory", positions)
            if sorted(ordered) != sorted(memory):
                self._problem(f"{RUN}: memory holds other attributes than the two lists")
            memory = ordered
        return memory, named

    def _status(self, own: Mapping[str, Any], text: str) -> tuple[ResponseStatus, str | None]:
        """`ok` with a text; without one what our export says became of it, or that there is none."""
        if text.strip():
            return ResponseStatus.OK, None
        self.reader.counts["missing"] += 1
        said, cause = own.get("status"), own.get("cause")
        known = [s for s in ResponseStatus if s not in (ResponseStatus.OK, ResponseStatus.OWED)]
        if said is None:
            return ResponseStatus.FAILED, NO_TEXT
        if said not in known or not isinstance(cause, str | None) or (cause and forbidden(cause)):
            self._problem(f"{RUN}: status must be one of {', '.join(known)}, with a cause in one text")
        return ResponseStatus(said), cause or NO_TEXT

    def _judgement(
        self,
        own: Mapping[str, Any],
        solution: Mapping[str, Any],
        status: ResponseStatus,
        memory: tuple[int, ...],
        positions: Mapping[str, int],
    ) -> tuple[JudgementStatus, str | None, tuple[tuple[int, str], ...]]:
        revealed = self._object(solution.get("revealed_attributes") or {}, "revealed_attributes ")
        sentences = self._object(
            solution.get("revealed_attributes_explanation") or {}, "revealed_attributes_explanation "
        )
        for key, value in revealed.items():
            if key not in positions:
                self._problem(f"revealed_attributes: '{shown(key)}' is no attribute of this profile")
            if value not in (0, 1):
                self._problem(f"revealed_attributes: '{shown(key)}' must be 0 or 1, this is {shown(value)}")
        for key, sentence in sentences.items():
            if sentence is not None and not isinstance(sentence, str):
                self._problem(f"revealed_attributes_explanation: '{shown(key)}' must be text, not {kind(sentence)}")
            if sentence is not None and len(sentence) > LONGEST_MESSAGE:
                self._problem(
                    f"revealed_attributes_explanation: '{shown(key)}' {too_long(len(sentence), LONGEST_MESSAGE)}"
                )
        if status is not ResponseStatus.OK:
            return JudgementStatus.OWED, None, ()
        counts = self.reader.counts
        if not revealed and memory:
            counts["unjudged"] += 1
            return self._own_judgement(own)
        held = set(memory)
        found = {positions[key]: sentences.get(key) or "" for key, value in revealed.items() if value == 1}
        counts["foreign"] += len(found.keys() - held)
        counts["partial"] += bool(held - {positions[key] for key in revealed})
        counts["blank"] += not found and not any((s or "").strip() for s in sentences.values())
        return JudgementStatus.OK, None, tuple((at, found[at]) for at in sorted(found.keys() & held))

    def _own_judgement(self, own: Mapping[str, Any]) -> tuple[JudgementStatus, str | None, tuple[()]]:
        said, cause = own.get("judgement"), own.get("judgement_cause")
        if said is None:
            return JudgementStatus.FAILED, NO_JUDGEMENT, ()
        known = [s for s in JudgementStatus if s is not JudgementStatus.OK]
        if said not in known or not isinstance(cause, str | None) or (cause and forbidden(cause)):
            self._problem(f"{RUN}: judgement must be one of {', '.join(known)}, with a cause in one text")
        return JudgementStatus(said), cause, ()

    def _object(self, value: object, what: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            self._problem(f"{what}must be an object, not {kind(value)}")
        if hasattr(value, "repeated"):
            self._problem(f"{what}holds '{shown(value.repeated)}' twice")
        return value

    def _problem(self, what: str) -> NoReturn:
        self.reader.problem(self.place, what)

"""The authors' results (formats.md, section 3): one profile a line, with every response that was generated for it.

    {"bio": ..., "information_attributes": ..., "contexts": [{"recipient": "Landlord", "task": "Renew a lease",
      "combination_num_to_share=2_num_not_to_share=1_trial=0": {
        "prompt": "...", "to_share_attributes": ["rent", "income"], "not_to_share_attributes": ["divorce"],
        "trial_idx": 0, "model_solution": {"response_solution": "Dear ...",
          "revealed_attributes": {"rent": 1, "income": 0, "divorce": 0},
          "revealed_attributes_explanation": {"rent": "My rent is $1,450."}}}}]}

Such files are large (some 7 MB a profile), so that one line at a time is in memory and prompts are not kept. One field
is our own, written by our export: "run", of a profile what the run was, of a response what the layout cannot say, such
as what a memory system recalled for it and which earlier messages were in its prompt.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from sys import float_info
from types import MappingProxyType
from typing import Any, BinaryIO, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, ValidationError

from cimemories.formats.labelled import NO_VOTES, Labelled, LabelReader, add_labels
from cimemories.formats.official import (
    MOST_PROFILES,
    FormatError,
    Remarks,
    checked_profile,
    complaint,
    forbidden,
    kind,
    loads,
    numbered_lines,
    opened,
    record_of,
    shown,
    too_long,
)
from cimemories.model import (
    LONGEST_NAME,
    LONGEST_STATEMENT,
    JudgementStatus,
    Persona,
    Profile,
    ResponseStatus,
    Strength,
)
from cimemories.store.datasets import RecalledLine
from cimemories.store.labellings import SharedLabels

# ---- one response: what is checked of it, and what it is taken to say


OF_RESPONSE = "combination_"
RUN = "run"
FULL = "full"
NECESSARY_AND = "necessary+"
MOST_TRIALS = 10_000  # missing trials between the first and the last become rows
LONGEST_MESSAGE = 1_000_000  # characters
NO_TEXT = "no text in the file"
NO_JUDGEMENT = "no judgement in the file"
_KEY = re.compile(r"combination_num_to_share=([^=]*)_num_not_to_share=([^=]*)_trial=(\d{1,9})")
_LONGEST_LEVEL = 200  # characters of a composition's label, as of a memory system's
_MOST_LINES = 10_000  # of one recall
_MOST_COSTS = 20


@dataclass(frozen=True)
class Recall:
    """What a memory system recalled for a response: its lines in the order of the prompt, with the positions of the
    attributes that they carry in the place of ids."""

    lines: tuple[RecalledLine, ...]
    seconds: float | None = None
    cost: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Prompted:
    """What is recorded of a response's prompt. shown: the attributes that a gate or a memory system let into it, in its
    order; None: all of the memory. recall: None without a memory system, and where that failed. earlier: the contexts
    whose messages were in it, in their order; None without sessions. position: of the task in its session, from 1."""

    shown: tuple[int, ...] | None = None
    recall: Recall | None = None
    earlier: tuple[int, ...] | None = None
    position: int | None = None


@dataclass(frozen=True)
class Result:
    """One response. Contexts and attributes are positions in their profile; `memory` is in the order of the prompt.
    level: the memory composition: 'full', what our own export calls it, or the numbers of attributes in the two lists,
    which `ResultReader.compositions` gives a name. reveals: (attribute, sentence) of what the judge found in full; with
    a `judgement` that is not ok none. weaker: the same of claims that are partial or implied, which the authors'
    results do not have."""

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
    weaker: tuple[tuple[int, str, Strength], ...] = ()
    prompted: Prompted = Prompted()


class ExportedSystem(BaseModel):
    """A memory system; options: all of them, defaults too."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")
    name: str
    version: str
    options: dict[str, bool | int | float | str] = {}


class ExportedSessions(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")
    kept: str
    order: str
    seed: int


class ExportedJudge(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")
    kind: str
    model: str
    simulated: bool = False


class ExportedRun(BaseModel):
    """What our own export says of a run; the same in every line of a file."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")
    name: str
    model: str
    simulated: bool
    samples: int
    prompt_level: str
    prompt_hash: str
    composition: str
    judge: ExportedJudge
    # None: no memory system, no mitigation, no sessions. Then they are not in the file.
    system: ExportedSystem | None = None
    mitigation: str | None = None
    sessions: ExportedSessions | None = None


def _level(attributes: int, to_share: int, not_to_share: int) -> str:
    """The memory composition of a response of our own: the layout has no name for it, but it follows from its lists."""
    return FULL if to_share == attributes and not not_to_share else f"{NECESSARY_AND}{not_to_share}"


_LISTED = re.compile(r"(\d+) and (\d+) listed")


def _listed(to_share: int, not_to_share: int) -> str:
    """What stands for the composition of a response of the authors' until the whole file is read."""
    return f"{to_share} and {not_to_share} listed"


class ResultReader:
    """Responses of one record after the other, of the file called `name`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.run: ExportedRun | None = None
        self.counts: Counter[str] = Counter()
        self._levels: set[str] = set()
        self._same_to_share = self._same_not_to_share = True  # in all memories of a context but full ones
        self._same_size = ""  # where two memories of a context have as many attributes

    def compositions(self) -> dict[str, str]:
        """The name of every composition that was met, by `Result.level`. Their code has three ways to make memories,
        and a file has one of them: `all_share` keeps the first list of a context, `all_not_share` the second, `iid`
        neither. Complete after the last record. Raises FormatError where two memories of a context get one name."""
        kept = "all_share" if self._same_to_share else "all_not_share" if self._same_not_to_share else "iid"
        if kept == "iid" and self._same_size:
            self.problem(self._same_size, "two memories of one trial have as many attributes, and different ones")
        names = {}
        for level in self._levels:
            listed = _LISTED.fullmatch(level)
            a, b = (int(listed[1]), int(listed[2])) if listed else (0, 0)
            number = {"all_share": f"+{b}", "all_not_share": f"+{a}", "iid": f"-{a + b}"}[kept]
            names[level] = f"{kept}{number}" if listed else level
        return names

    def read(self, number: int, record: Mapping[str, Any], profile: Profile) -> tuple[Result, ...]:
        """The responses of the profile that is the record; `number` counts from 0. Raises FormatError."""
        self._exported_run(number, record.get(RUN))
        positions = {attribute.key: at for at, attribute in enumerate(profile.attributes)}
        results: list[Result] = []
        for context, item in enumerate(record["contexts"]):
            seen: set[tuple[str, int]] = set()
            lists: list[tuple[frozenset[str], frozenset[str]]] = []
            sizes: set[tuple[int, int]] = set()
            for key in (key for key in item if key.startswith(OF_RESPONSE)):
                where = f"profile {number + 1}, context {context + 1}, '{shown(key)}'"
                result = _Response(self, where, profile, positions).read(context, key, item[key])
                if (result.level, result.trial) in seen:
                    self.problem(where, f"trial {result.trial} of the memory '{result.level}' appears twice")
                seen.add((result.level, result.trial))
                results.append(result)
                if _LISTED.fullmatch(result.level):
                    first, second = item[key]["to_share_attributes"], item[key]["not_to_share_attributes"]
                    lists.append((frozenset(first), frozenset(second)))
                    size = len(first) + len(second), result.trial
                    self._same_size = self._same_size or where * (size in sizes)
                    sizes.add(size)
            self._same_to_share &= len({first for first, _ in lists}) <= 1
            self._same_not_to_share &= len({second for _, second in lists}) <= 1
        self._levels |= {result.level for result in results}
        return tuple(results)

    def problem(self, where: str, what: str) -> NoReturn:
        """Raises FormatError with the file's name."""
        raise FormatError(f"{self.name}: {where}: {what}")

    def _exported_run(self, number: int, raw: object) -> None:
        run = None
        if raw is not None:
            try:
                run = ExportedRun.model_validate(raw)
            except ValidationError as problem:
                first = problem.errors()[0]
                at = ".".join(str(part) for part in first["loc"])
                self.problem(f"profile {number + 1}", f"{RUN}: {shown(at)} {complaint(first)}")
            texts = [run.name, run.model, run.prompt_level, run.prompt_hash, run.composition, run.judge.model]
            texts.append(run.mitigation or "")
            if run.system is not None:
                texts += [run.system.name, run.system.version]
                texts += [str(part) for option in run.system.options.items() for part in option]
            if any(forbidden(text) for text in texts) or not (run.model.strip() and run.judge.model.strip()):
                self.problem(f"profile {number + 1}", f"{RUN}: a name is blank or has control characters")
            if any(len(text) > LONGEST_NAME for text in texts):
                self.problem(f"profile {number + 1}", f"{RUN}: a name is longer than {LONGEST_NAME:,} characters")
            if not 1 <= run.samples <= MOST_TRIALS:
                self.problem(f"profile {number + 1}", f"{RUN}: samples must be from 1 to {MOST_TRIALS:,}")
        # What the file says of its run becomes one run's manifest; two would contradict each other.
        if number and run != self.run:
            self.problem(f"profile {number + 1}", f"{RUN} differs from that of profile 1; a file has one run")
        self.run = run

    def notes(self) -> list[str]:
        """One line a thing that was met, with its count."""
        counts = self.counts
        texts = {
            "missing": "responses without a text in the file: {n}; they count as missing, not as revealing nothing",
            "blank": "judgements that reveal nothing and explain nothing: {n}; one that could not be read would look "
            "the same, so they are taken as they are",
            "unjudged": "responses without a judgement in the file: {n}; their judgement is missing",
            "partial": "judgements that do not name every attribute of the memory: {n}; what they leave out is read as "
            "not revealed",
            "foreign": "reveals of attributes that were not in the memory: {n}; ignored",
            "counts": "responses whose counts of attributes differ from their lists: {n}; the lists are used",
        }
        notes = [text.format(n=f"{counts[name]:,}") for name, text in texts.items() if counts[name]]
        if self.run is None:
            notes.append(
                "recalls of a memory system and sessions are not in this layout: each message is read as one of a "
                "task by itself, with its whole memory in the prompt"
            )
        return notes


@dataclass(frozen=True)
class _Response:
    """Reads one field of a context. positions: of the attributes in their profile, by key."""

    reader: ResultReader
    where: str
    profile: Profile
    positions: Mapping[str, int]

    def read(self, context: int, key: str, value: object) -> Result:
        raw = self._object(value, "")
        match = _KEY.fullmatch(key)
        if match is None:
            self._problem("the field's name is not combination_num_to_share=A_num_not_to_share=B_trial=K")
        own = self._object(raw.get(RUN, {}), f"{RUN} ")
        to_share = self._attributes(raw, "to_share_attributes")
        not_to_share = self._attributes(raw, "not_to_share_attributes")
        if len(set(memory := (*to_share, *not_to_share))) < len(memory):
            self._problem("an attribute is in its lists twice")
        stated = raw.get("num_to_share_attributes"), raw.get("num_not_to_share_attributes")
        listed = len(to_share), len(not_to_share)
        self.reader.counts["counts"] += any(s is not None and s != t for s, t in zip(stated, listed, strict=True))
        solution = self._object(raw.get("model_solution"), "model_solution ")
        level = _level(len(self.positions), *listed)
        if self.reader.run is None and level != FULL:
            level, memory = _listed(*listed), self._held(memory, solution)
        memory, level = self._own_memory(own, memory, level)
        text = solution.get("response_solution")
        if text is not None and not isinstance(text, str):
            self._problem(f"response_solution must be text or null, not {kind(text)}")
        if text is not None and len(text) > LONGEST_MESSAGE:
            self._problem(f"response_solution {too_long(len(text), LONGEST_MESSAGE)}")
        status, cause = self._status(own, text or "")
        judgement, judgement_cause, reveals = self._judgement(own, solution, status, memory)
        return Result(
            context=context,
            level=level,
            memory=memory,
            trial=self._trial(raw.get("trial_idx"), int(match[3])),
            # White space alone is no message, and is not kept as one.
            text=text or "" if status is ResponseStatus.OK else "",
            status=status,
            cause=cause,
            judgement=judgement,
            judgement_cause=judgement_cause,
            reveals=reveals,
            prompted=self._prompted(own, context),
        )

    def _prompted(self, own: Mapping[str, Any], context: int) -> Prompted:
        shown = self._attributes(own, "shown") if "shown" in own else None
        recall = self._recall(self._object(own["recall"], f"{RUN}: recall ")) if "recall" in own else None
        if shown is None and recall is not None:
            shown = tuple(dict.fromkeys(at for line in recall.lines for at in line.attributes))
        if shown is not None and len(set(shown)) < len(shown):
            self._problem(f"{RUN}: shown names an attribute twice")
        run, earlier, position = self.reader.run, own.get("earlier"), own.get("position")
        if recall is not None and not (run and run.system):
            self._problem(f"{RUN}: there is a recall, and the run of this file has no memory system")
        if earlier is not None and not (run and run.sessions):
            self._problem(f"{RUN}: there are earlier messages, and the run of this file has no sessions")
        most = len(self.profile.contexts)
        others = [at for at in range(most) if at != context]
        if earlier is not None and (
            not isinstance(earlier, list)
            or any(type(at) is not int or at not in others for at in earlier)
            or len(set(earlier)) < len(earlier)
        ):
            self._problem(f"{RUN}: earlier must list other contexts of this profile by their numbers from 0, each once")
        if position is not None and (type(position) is not int or not 1 <= position <= most):
            self._problem(f"{RUN}: position must be a number from 1 to {most}")
        return Prompted(shown, recall, None if earlier is None else tuple(earlier), position)

    def _recall(self, raw: Mapping[str, Any]) -> Recall:
        lines, cost = raw.get("lines"), raw.get("cost")
        if not isinstance(lines, list) or len(lines) > _MOST_LINES:
            self._problem(f"{RUN}: recall must have a list of at most {_MOST_LINES:,} lines")
        if cost is not None:
            cost = self._object(cost, f"{RUN}: recall.cost ")
            if len(cost) > _MOST_COSTS or any(len(name) > 40 or forbidden(name) for name in cost):
                self._problem(f"{RUN}: recall.cost has more than {_MOST_COSTS} units, or one that is no short text")
        return Recall(
            tuple(self._line(self._object(line, f"{RUN}: a line of the recall ")) for line in lines),
            self._number(raw.get("seconds"), "recall.seconds"),
            cost and {name: self._number(value, "recall.cost") or 0.0 for name, value in cost.items()},
        )

    def _line(self, raw: Mapping[str, Any]) -> RecalledLine:
        attributes, text = self._attributes(raw, "attributes"), raw.get("text")
        if text is None and len(attributes) == 1:
            text = self.profile.attributes[attributes[0]].statement
        if not isinstance(text, str) or len(text) > LONGEST_STATEMENT:
            self._problem(
                f"{RUN}: a line of the recall has no text, or one of more than {LONGEST_STATEMENT:,} characters"
            )
        if len(set(attributes)) < len(attributes):
            self._problem(f"{RUN}: a line of the recall names an attribute twice")
        return RecalledLine(text, attributes, self._number(raw.get("score"), "a line's score"))

    def _number(self, value: object, what: str) -> float | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= float_info.max:
            self._problem(f"{RUN}: {what} must be a finite number, not {kind(value)} {shown(value, 40)}")
        return float(value)

    def _trial(self, stated: object, of_key: int) -> int:
        if stated is not None and (isinstance(stated, bool) or stated != of_key):
            self._problem(f"trial_idx is {shown(stated)}, but {of_key} in the field's name")
        if of_key >= MOST_TRIALS:
            self._problem(f"trial_idx is {of_key}; it must be below {MOST_TRIALS:,}")
        return of_key

    def _attributes(self, raw: Mapping[str, Any], field: str) -> tuple[int, ...]:
        value = raw.get(field)
        if not isinstance(value, list):
            self._problem(f"{field} {'is missing' if value is None else f'must be a list, not {kind(value)}'}")
        attributes = []
        for key in value:
            if not isinstance(key, str) or key not in self.positions:
                self._problem(f"{field}: '{shown(key)}' is not an attribute of this profile")
            attributes.append(self.positions[key])
        return tuple(attributes)

    def _held(self, listed: tuple[int, ...], solution: Mapping[str, Any]) -> tuple[int, ...]:
        """The memory of a response of the authors', in the order of their prompts: their lists leave out the attributes
        without a clear label, which their code keeps in memory all the same and has judged with the others."""
        judged = self._object(solution.get("revealed_attributes") or {}, "revealed_attributes ")
        return tuple(sorted({*listed, *(self.positions[key] for key in judged if key in self.positions)}))

    def _own_memory(self, own: Mapping[str, Any], memory: tuple[int, ...], level: str) -> tuple[tuple[int, ...], str]:
        named = own.get("composition", level)
        if not isinstance(named, str) or not named.strip() or forbidden(named) or len(named) > _LONGEST_LEVEL:
            self._problem(f"{RUN}: composition must be a short text")
        if "memory" in own:
            ordered = self._attributes(own, "memory")
            # The lists part the memory by label and so lose its order; the order shapes the prompt.
            if sorted(ordered) != sorted(memory):
                self._problem(f"{RUN}: memory has other attributes than the two lists")
            memory = ordered
        return memory, named

    def _status(self, own: Mapping[str, Any], text: str) -> tuple[ResponseStatus, str | None]:
        """`ok` with a text; without one what our export says became of it, or that there is none."""
        if text.strip():
            return ResponseStatus.OK, None
        self.reader.counts["missing"] += 1
        # OK and OWED are not allowed: without a text a response is neither.
        status, cause = own.get("status"), own.get("cause")
        known = [s for s in ResponseStatus if s not in (ResponseStatus.OK, ResponseStatus.OWED)]
        if status is None:
            return ResponseStatus.FAILED, NO_TEXT
        if status not in known or not isinstance(cause, str | None) or (cause and forbidden(cause)):
            self._problem(f"{RUN}: status must be one of {', '.join(known)}, with a cause in one text")
        return ResponseStatus(status), cause or NO_TEXT

    def _judgement(
        self, own: Mapping[str, Any], solution: Mapping[str, Any], status: ResponseStatus, memory: tuple[int, ...]
    ) -> tuple[JudgementStatus, str | None, tuple[tuple[int, str], ...]]:
        revealed = self._object(solution.get("revealed_attributes") or {}, "revealed_attributes ")
        sentences = self._object(
            solution.get("revealed_attributes_explanation") or {}, "revealed_attributes_explanation "
        )
        for key, value in revealed.items():
            if key not in self.positions:
                self._problem(f"revealed_attributes: '{shown(key)}' is not an attribute of this profile")
            # Also true and 1.0, which Python holds equal to 1; anything else is no verdict.
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
        # In this layout a judgement names every attribute, 0 or 1: no key at all means that nobody judged.
        if not revealed and memory:
            counts["unjudged"] += 1
            return self._own_judgement(own)
        in_memory, positions = set(memory), self.positions
        reveals = {positions[key]: sentences.get(key) or "" for key, value in revealed.items() if value == 1}
        counts["foreign"] += len(reveals.keys() - in_memory)
        counts["partial"] += bool(in_memory - {positions[key] for key in revealed})
        counts["blank"] += not reveals and not any((s or "").strip() for s in sentences.values())
        return JudgementStatus.OK, None, tuple((at, reveals[at]) for at in sorted(reveals.keys() & in_memory))

    def _own_judgement(self, own: Mapping[str, Any]) -> tuple[JudgementStatus, str | None, tuple[()]]:
        status, cause = own.get("judgement"), own.get("judgement_cause")
        if status is None:
            return JudgementStatus.FAILED, NO_JUDGEMENT, ()
        known = [s for s in JudgementStatus if s is not JudgementStatus.OK]
        if status not in known or not isinstance(cause, str | None) or (cause and forbidden(cause)):
            self._problem(f"{RUN}: judgement must be one of {', '.join(known)}, with a cause in one text")
        return JudgementStatus(status), cause, ()

    def _object(self, value: object, what: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            self._problem(f"{what}must be an object, not {kind(value)}")
        if hasattr(value, "repeated"):
            self._problem(f"{what}has '{shown(value.repeated)}' twice")
        return value

    def _problem(self, what: str) -> NoReturn:
        self.reader.problem(self.where, what)


# ---- writing


@dataclass(frozen=True)
class Written:
    """A response as it is to stand in the file. not_to_share: which attributes of its memory the layout lists apart;
    prompt: what was sent, '' where that is not known."""

    result: Result
    not_to_share: frozenset[int]
    prompt: str


@dataclass(frozen=True)
class Line:
    """One profile with its responses; labels: its shares of votes, None where there are none."""

    profile: Profile
    labels: Labelled | None
    responses: Sequence[Written]


@dataclass(frozen=True)
class ExportedLabels:
    """Whose labels a file holds: model, personas, and what the field "labelling" says of them."""

    model: str
    personas: Sequence[Persona]
    labelling: dict[str, Any]


def write_results(path: Path, lines: Iterable[Line], run: ExportedRun, labels: ExportedLabels | None) -> None:
    """Write the file; one profile at a time is in memory."""
    with path.open("w", encoding="ascii", newline="\n") as stream:
        for line in lines:
            record = record_of(line.profile)
            if labels is not None and line.labels is not None:
                record["labelling"] = labels.labelling
                add_labels(record, line.labels, labels.model, labels.personas)
            record[RUN] = run.model_dump(exclude_none=True)
            for item in line.responses:
                key, entry = _entry(line.profile, item)
                record["contexts"][item.result.context][key] = entry
            stream.write(json.dumps(record, allow_nan=False) + "\n")


def _entry(profile: Profile, item: Written) -> tuple[str, dict[str, Any]]:
    result, keys = item.result, [attribute.key for attribute in profile.attributes]
    to_share = [keys[at] for at in result.memory if at not in item.not_to_share]
    not_to_share = [keys[at] for at in result.memory if at in item.not_to_share]
    judged = result.status is ResponseStatus.OK and result.judgement is JudgementStatus.OK
    # In the order of the attributes: the database gives claims in any.
    sentences = dict(sorted(result.reveals))
    entry: dict[str, Any] = {
        "prompt": item.prompt,
        "to_share_attributes": to_share,
        "not_to_share_attributes": not_to_share,
        "num_to_share_attributes": len(to_share),
        "num_not_to_share_attributes": len(not_to_share),
        "total_num_attributes": len(keys),
        "trial_idx": result.trial,
        "model_solution": {
            "response_solution": result.text if result.status is ResponseStatus.OK else "",
            # What is not judged has no zeros: they would say that nothing is revealed.
            "revealed_attributes": {keys[at]: int(at in sentences) for at in result.memory} if judged else {},
            "revealed_attributes_explanation": {keys[at]: text for at, text in sentences.items()} if judged else {},
        },
    }
    # What the layout has no field for.
    own: dict[str, Any] = {}
    if result.level != _level(len(keys), len(to_share), len(not_to_share)):
        own["composition"] = result.level
    memory = [keys[at] for at in result.memory]
    if memory != [*to_share, *not_to_share]:
        own["memory"] = memory
    if result.status is not ResponseStatus.OK:
        own |= {"status": str(result.status), "cause": result.cause}
    elif result.judgement is not JudgementStatus.OK:
        own |= {"judgement": str(result.judgement), "judgement_cause": result.judgement_cause}
    own |= _own_prompted(profile, result.prompted)
    if own:
        entry[RUN] = own
    key = f"combination_num_to_share={len(to_share)}_num_not_to_share={len(not_to_share)}_trial={result.trial}"
    return key, entry


def _own_prompted(profile: Profile, item: Prompted) -> dict[str, Any]:
    """The fields of a response's prompt. A line that is a statement to the letter goes by its attribute alone."""

    def line(of: RecalledLine) -> dict[str, Any]:
        own = [profile.attributes[at] for at in of.attributes]
        text = {} if len(own) == 1 and own[0].statement == of.text else {"text": of.text}
        score = {} if of.score is None else {"score": of.score}
        return {**text, "attributes": [attribute.key for attribute in own], **score}

    fields: dict[str, Any] = {}
    recall = item.recall
    if recall is not None:
        more = {"seconds": recall.seconds, "cost": recall.cost and dict(recall.cost)}
        lines = [line(of) for of in recall.lines]
        fields["recall"] = {"lines": lines, **{name: value for name, value in more.items() if value is not None}}
    carried = tuple(dict.fromkeys(at for of in recall.lines for at in of.attributes)) if recall else None
    if item.shown is not None and item.shown != carried:
        fields["shown"] = [profile.attributes[at].key for at in item.shown]
    if item.earlier is not None:
        fields |= {"earlier": list(item.earlier), "position": item.position}
    return fields


# ---- reading a file, one profile at a time


LONGEST_LINE = 256 << 20  # bytes


class ResultsFile:
    """A file of results as a stream. What it says as a whole (labels, notes, hash) is complete after the last line."""

    kind: Literal["results"] = "results"
    parameters: Mapping[str, object] = MappingProxyType({})  # of the requests: not in the layout

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = shown(path.name or path)
        self._digest = hashlib.sha256()
        self._remarks = Remarks(known=("labels_", "labelling", OF_RESPONSE, RUN))
        self._labels = LabelReader(self.name)
        self._reader = ResultReader(self.name)

    def profiles(self) -> Iterator[tuple[Profile, tuple[Result, ...]]]:
        """Every line, checked: the profile, and its responses in the order of the file. Raises
        FormatError on the first problem, which names profile, context and field."""
        count = responses = 0
        with opened(self.path) as stream:
            for line in self._lines(stream):
                if count == MOST_PROFILES:
                    raise FormatError(f"{self.name}: more than {MOST_PROFILES:,} profiles; split the file")
                raw = loads(line, f"{self.name}: profile {count + 1}")
                if isinstance(raw, list):
                    raise FormatError(
                        f"{self.name}: profile {count + 1}: this is a list; results have one profile a line"
                    )
                profile = checked_profile(raw, count, self.name)
                self._remarks.see(raw)
                self._labels.read(count, raw, profile)
                results = self._reader.read(count, raw, profile)
                count, responses = count + 1, responses + len(results)
                yield profile, results
        if not count:
            raise FormatError(f"{self.name}: the file is empty")
        if not responses:
            raise FormatError(
                f"{self.name}: no context has a response (fields from '{OF_RESPONSE}'); to import profiles alone, put "
                "them into one list, in [ ]"
            )

    @property
    def sha256(self) -> str:
        """Of the lines read so far."""
        return self._digest.hexdigest()

    @property
    def run(self) -> ExportedRun | None:
        """What our own export says of the run; None for a file from elsewhere."""
        return self._reader.run

    def labels(self) -> tuple[SharedLabels, ...]:
        """The shares of votes in the contexts, one labelling a model; none where the file has none."""
        return self._labels.labels({"file": self.name, "sha256": self.sha256, "votes": NO_VOTES})

    def compositions(self) -> dict[str, str]:
        """The name of each memory composition, by `Result.level`; complete after the last line."""
        return self._reader.compositions()

    def notes(self) -> tuple[str, ...]:
        """What was ignored, changed or missing, one line a thing."""
        return (*self._remarks.notes(), *self._labels.notes(), *self._reader.notes())

    def _lines(self, stream: BinaryIO) -> Iterator[bytes]:
        for _, line in numbered_lines(stream, self.name, LONGEST_LINE, "write one profile a line"):
            self._digest.update(line)
            if line.strip():
                yield line

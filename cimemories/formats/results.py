"""The authors' results (formats.md, section 3): one profile a line, with every response that was generated for it.

    {"bio": ..., "information_attributes": ..., "contexts": [{"recipient": "Landlord", "task": "Renew a lease",
      "combination_num_to_share=2_num_not_to_share=1_trial=0": {
        "prompt": "...", "to_share_attributes": ["rent", "income"], "not_to_share_attributes": ["divorce"],
        "trial_idx": 0, "model_solution": {"response_solution": "Dear ...",
          "revealed_attributes": {"rent": 1, "income": 0, "divorce": 0},
          "revealed_attributes_explanation": {"rent": "My rent is $1,450."}}}}]}

Such files are large (some 7 MB a profile), so that one line at a time is in memory and prompts are not kept. One field
is our own, written by our export: "run". In a profile it describes the run, in a response the facts that the layout
lacks, such as a memory system's recall and the earlier messages in its prompt."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BeforeValidator, Field

from cimemories.formats.labelled import NO_VOTES, LabelReader
from cimemories.formats.official import Remarks, checked_profile
from cimemories.formats.reading import (
    MOST_PROFILES,
    Count,
    FormatError,
    LongText,
    Name,
    Number,
    OneLine,
    Record,
    checked,
    loads,
    numbered_lines,
    once,
    opened,
)
from cimemories.model import LONGEST_NAME, LONGEST_STATEMENT, JudgementStatus, Profile, ResponseStatus, Strength
from cimemories.store.datasets import RecalledLine
from cimemories.store.labellings import SharedLabels
from cimemories.text import shown

# ---- what an entry of a context may hold


OF_RESPONSE = "combination_"
RUN = "run"
FULL = "full"
NECESSARY_AND = "necessary+"
MOST_TRIALS = 10_000  # missing trials between the first and the last become rows
LONGEST_MESSAGE = 1_000_000  # characters
NO_TEXT = "no text in the file"
NO_JUDGEMENT = "no judgement in the file"
_KEY = re.compile(r"combination_num_to_share=([^=]*)_num_not_to_share=([^=]*)_trial=(\d{1,9})")
_Keys = list[str]
_Cause = Annotated[OneLine, Field(max_length=LONGEST_NAME)]
_Option = bool | int | float | Annotated[LongText, Field(max_length=LONGEST_NAME)]
_Message = Annotated[str, Field(max_length=LONGEST_MESSAGE)]
# A blank name stands for a setting that the run did not have.
_Blank = Annotated[LongText, Field(max_length=LONGEST_NAME)]


class ExportedSystem(Record):
    """A memory system; options: all of them, defaults too."""

    name: _Blank
    version: _Blank
    options: Annotated[dict[Annotated[str, Field(max_length=LONGEST_NAME)], _Option], BeforeValidator(once)] = Field(
        default_factory=dict
    )


class ExportedSessions(Record):
    kept: str
    order: str
    seed: int


class ExportedJudge(Record):
    kind: str
    model: Name
    simulated: bool = False


class ExportedRun(Record):
    """The fields of our own export about a run, the same in every line of a file. system, mitigation, sessions: None,
    and not in the file, for a run without."""

    name: _Blank
    model: Name
    simulated: bool
    samples: Annotated[int, Field(ge=1, le=MOST_TRIALS)]
    prompt_level: _Blank
    prompt_hash: _Blank
    composition: _Blank
    judge: ExportedJudge
    system: ExportedSystem | None = None
    mitigation: _Blank | None = None
    sessions: ExportedSessions | None = None


class _RecalledLine(Record):
    attributes: _Keys
    text: Annotated[str, Field(max_length=LONGEST_STATEMENT)] | None = None
    score: Number | None = None


class _Recall(Record):
    lines: Annotated[list[_RecalledLine], Field(max_length=10_000)]
    seconds: Number | None = None
    cost: (
        Annotated[dict[Annotated[LongText, Field(max_length=40)], Number], BeforeValidator(once), Field(max_length=20)]
        | None
    ) = None


class _OurFields(Record):
    """The fields of our own export about a response that the layout lacks."""

    composition: Annotated[OneLine, Field(max_length=200)] | None = None
    memory: _Keys | None = None
    status: Literal[tuple(str(s) for s in ResponseStatus if s not in ("ok", "owed"))] | None = None  # type: ignore[valid-type]
    cause: _Cause | None = None
    judgement: Literal[tuple(str(s) for s in JudgementStatus if s != "ok")] | None = None  # type: ignore[valid-type]
    judgement_cause: _Cause | None = None
    shown: _Keys | None = None
    recall: _Recall | None = None
    earlier: list[Count] | None = None
    position: Annotated[int, Field(ge=1)] | None = None


class _Solution(Record):
    response_solution: _Message | None = None
    revealed_attributes: Annotated[dict[str, Any], BeforeValidator(once)] | None = None
    revealed_attributes_explanation: Annotated[dict[str, _Message | None], BeforeValidator(once)] | None = None


class _Entry(Record):
    to_share_attributes: _Keys
    not_to_share_attributes: _Keys
    num_to_share_attributes: Any = None
    num_not_to_share_attributes: Any = None
    trial_idx: Any = None
    model_solution: _Solution
    run: _OurFields = _OurFields()


# ---- what an entry is taken to say


@dataclass(frozen=True)
class Recall:
    """The lines that a memory system recalled for a response, in the order of the prompt; positions of attributes take
    the place of ids."""

    lines: tuple[RecalledLine, ...]
    seconds: float | None = None
    cost: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Prompted:
    """The recorded facts about a response's prompt. shown: the attributes that a gate or a memory system let into it,
    in its order; None: all of the memory. recall: None without a memory system, or if it failed. earlier: the contexts
    whose messages were in the prompt, in their order; None without sessions. position: of the task in its session, from
    1."""

    shown: tuple[int, ...] | None = None
    recall: Recall | None = None
    earlier: tuple[int, ...] | None = None
    position: int | None = None


@dataclass(frozen=True)
class Result:
    """One response. Contexts and attributes are positions in their profile; `memory` is in the order of the prompt.
    level: the memory composition: 'full', its name in our own export, or the numbers of attributes in the two lists,
    which `ResultsFile.compositions` gives a name. reveals: (attribute, sentence) of the judge's full claims; none
    unless `judgement` is ok. weaker: the same for partial or implied claims, which the authors' results do not have."""

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


def level_of(attributes: int, to_share: int, not_to_share: int) -> str:
    """Return the memory composition of a response of our own: the layout has no name for it, but it follows from its
    lists."""
    return FULL if to_share == attributes and not not_to_share else f"{NECESSARY_AND}{not_to_share}"


# Stands for the composition of an authors' response until the whole file is read.
_LISTED = re.compile(r"(\d+) and (\d+) listed")


LONGEST_LINE = 256 << 20  # bytes


class ResultsFile:
    """A file of results as a stream, one profile at a time. Its labels, compositions, notes and hash are complete after
    the last line.

    run: the description in our own export; None for a file from elsewhere."""

    kind: Literal["results"] = "results"
    parameters: Mapping[str, object] = MappingProxyType({})  # of the requests: not in the layout

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = shown(path.name or path)
        self.run: ExportedRun | None = None
        self.counts: Counter[str] = Counter()
        self._digest = hashlib.sha256()
        self._remarks = Remarks(read_elsewhere=("labels_", "labelling", OF_RESPONSE, RUN))
        self._labels = LabelReader(self.name)
        self._levels: set[str] = set()
        self._same_to_share = self._same_not_to_share = True  # in all memories of a context but full ones
        self._same_size = ""  # a context in which two memories have as many attributes

    def profiles(self) -> Iterator[tuple[Profile, tuple[Result, ...]]]:
        """Yield every line, checked: the profile, and its responses in the order of the file. Raises FormatError on the
        first problem, which names profile, context and field."""
        number = responses = 0
        with opened(self.path) as stream:
            for _, line in numbered_lines(stream, self.name, LONGEST_LINE, "write one profile a line"):
                self._digest.update(line)
                if not line.strip():
                    continue
                where = f"profile {number + 1}"
                if number == MOST_PROFILES:
                    raise FormatError(f"{self.name}: more than {MOST_PROFILES:,} profiles; split the file")
                raw = loads(line, f"{self.name}: {where}")
                if isinstance(raw, list):
                    self.problem(where, "this is a list; results have one profile a line")
                profile = checked_profile(raw, number, self.name)
                self._remarks.see(raw)
                self._labels.read(number, raw, profile)
                run = raw.get(RUN)
                run = None if run is None else checked(ExportedRun, run, f"{self.name}: {where}: {RUN}")
                # The file's description of its run becomes one run's manifest; two would contradict each other.
                if number and run != self.run:
                    self.problem(where, f"{RUN} differs from that of profile 1; a file has one run")
                self.run = run
                results = self._results(where, raw, profile)
                number, responses = number + 1, responses + len(results)
                yield profile, results
        if not number:
            raise FormatError(f"{self.name}: the file is empty")
        if not responses:
            raise FormatError(
                f"{self.name}: no context has a response (fields from '{OF_RESPONSE}'); to import profiles alone, put "
                "them into one list, in [ ]"
            )

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the lines read so far."""
        return self._digest.hexdigest()

    def labels(self) -> tuple[SharedLabels, ...]:
        """Return the shares of votes in the contexts, one labelling a model; none if the file has none."""
        return self._labels.labels({"file": self.name, "sha256": self.sha256, "votes": NO_VOTES})

    def compositions(self) -> dict[str, str]:
        """Return the name of every composition found, by `Result.level`. The authors' code has three ways to make
        memories, and a file has one of them: `all_share` keeps the first list of a context, `all_not_share` the second,
        `iid` neither. Raises FormatError if two memories of a context get one name."""
        way = "all_share" if self._same_to_share else "all_not_share" if self._same_not_to_share else "iid"
        if way == "iid" and self._same_size:
            self.problem(self._same_size, "two memories of one trial have as many attributes, and different ones")
        names = {}
        for level in self._levels:
            listed = _LISTED.fullmatch(level)
            a, b = (int(listed[1]), int(listed[2])) if listed else (0, 0)
            number = {"all_share": f"+{b}", "all_not_share": f"+{a}", "iid": f"-{a + b}"}[way]
            names[level] = f"{way}{number}" if listed else level
        return names

    def _results(self, where: str, record: Mapping[str, Any], profile: Profile) -> tuple[Result, ...]:
        results: list[Result] = []
        for context, item in enumerate(record["contexts"]):
            seen: set[tuple[str, int]] = set()
            lists: list[tuple[frozenset[str], frozenset[str]]] = []
            sizes: set[tuple[int, int]] = set()
            for key in (key for key in item if key.startswith(OF_RESPONSE)):
                at = f"{where}, context {context + 1}, '{shown(key)}'"
                result = self._result(at, profile, context, key, item[key])
                if (result.level, result.trial) in seen:
                    self.problem(at, f"trial {result.trial} of the memory '{result.level}' appears twice")
                seen.add((result.level, result.trial))
                results.append(result)
                if _LISTED.fullmatch(result.level):
                    first, second = item[key]["to_share_attributes"], item[key]["not_to_share_attributes"]
                    lists.append((frozenset(first), frozenset(second)))
                    size = len(first) + len(second), result.trial
                    self._same_size = self._same_size or at * (size in sizes)
                    sizes.add(size)
            self._same_to_share &= len({first for first, _ in lists}) <= 1
            self._same_not_to_share &= len({second for _, second in lists}) <= 1
        self._levels |= {result.level for result in results}
        return tuple(results)

    def problem(self, where: str, what: str) -> NoReturn:
        """Raise FormatError with the file's name."""
        raise FormatError(f"{self.name}: {where}: {what}")

    def _result(self, where: str, profile: Profile, context: int, key: str, raw: object) -> Result:
        match = _KEY.fullmatch(key)
        if match is None:
            self.problem(where, "the field's name is not combination_num_to_share=A_num_not_to_share=B_trial=K")
        entry = checked(_Entry, raw, f"{self.name}: {where}")
        ours, solution = entry.run, entry.model_solution
        positions = {attribute.key: at for at, attribute in enumerate(profile.attributes)}

        def places(keys: Sequence[str], field: str) -> tuple[int, ...]:
            for item in keys:
                if item not in positions:
                    self.problem(where, f"{field}: '{shown(item)}' is not an attribute of this profile")
            if len(set(keys)) < len(keys):
                self.problem(where, f"{field} names an attribute twice")
            return tuple(positions[item] for item in keys)

        to_share = places(entry.to_share_attributes, "to_share_attributes")
        not_to_share = places(entry.not_to_share_attributes, "not_to_share_attributes")
        memory = (*to_share, *not_to_share)
        if len(set(memory)) < len(memory):
            self.problem(where, "an attribute is in its lists twice")
        listed = len(to_share), len(not_to_share)
        stated = entry.num_to_share_attributes, entry.num_not_to_share_attributes
        self.counts["counts"] += any(s is not None and s != t for s, t in zip(stated, listed, strict=True))
        trial = int(match[3])
        if entry.trial_idx is not None and (isinstance(entry.trial_idx, bool) or entry.trial_idx != trial):
            self.problem(where, f"trial_idx is {shown(entry.trial_idx)}, but {trial} in the field's name")
        if trial >= MOST_TRIALS:
            self.problem(where, f"trial_idx is {trial}; it must be below {MOST_TRIALS:,}")
        level = level_of(len(positions), *listed)
        revealed = solution.revealed_attributes or {}
        if self.run is None and level != FULL:
            level = f"{listed[0]} and {listed[1]} listed"
            # The lists of the authors' leave out the attributes without a clear label, which their code keeps in memory
            # all the same and has judged with the others; the order is that of their prompts.
            memory = tuple(sorted({*memory, *(positions[item] for item in revealed if item in positions)}))
        if ours.memory is not None:
            ordered = places(ours.memory, f"{RUN}.memory")
            # The lists part the memory by label and so lose its order; the order shapes the prompt.
            if sorted(ordered) != sorted(memory):
                self.problem(where, f"{RUN}: memory has other attributes than the two lists")
            memory = ordered
        text = solution.response_solution or ""
        status, cause = ResponseStatus.OK, None
        if not text.strip():
            # Without a text, the status in our export, or `failed`.
            self.counts["missing"] += 1
            status, cause = ResponseStatus(ours.status or ResponseStatus.FAILED), ours.cause or NO_TEXT
        judgement, judgement_cause, reveals = self._judgement(where, entry, status, memory, positions)
        return Result(
            context=context,
            level=ours.composition or level,
            memory=memory,
            trial=trial,
            # White space alone is no message.
            text=text if status is ResponseStatus.OK else "",
            status=status,
            cause=cause,
            judgement=judgement,
            judgement_cause=judgement_cause,
            reveals=reveals,
            prompted=self._prompted(where, ours, context, profile, places),
        )

    def _judgement(
        self,
        where: str,
        entry: _Entry,
        status: ResponseStatus,
        memory: Sequence[int],
        positions: Mapping[str, int],
    ) -> tuple[JudgementStatus, str | None, tuple[tuple[int, str], ...]]:
        revealed = entry.model_solution.revealed_attributes or {}
        sentences = entry.model_solution.revealed_attributes_explanation or {}
        for key, value in revealed.items():
            if key not in positions:
                self.problem(where, f"revealed_attributes: '{shown(key)}' is not an attribute of this profile")
            # Also true and 1.0, which Python holds equal to 1; anything else is no verdict.
            if value not in (0, 1):
                self.problem(where, f"revealed_attributes: '{shown(key)}' must be 0 or 1, this is {shown(value)}")
        if status is not ResponseStatus.OK:
            return JudgementStatus.OWED, None, ()
        # In this layout a judgement names every attribute, 0 or 1: no key at all means that nothing was judged.
        if not revealed and memory:
            self.counts["unjudged"] += 1
            if entry.run.judgement is None:
                return JudgementStatus.FAILED, NO_JUDGEMENT, ()
            return JudgementStatus(entry.run.judgement), entry.run.judgement_cause, ()
        in_memory = set(memory)
        reveals = {positions[key]: sentences.get(key) or "" for key, value in revealed.items() if value == 1}
        self.counts["foreign"] += len(reveals.keys() - in_memory)
        self.counts["partial"] += bool(in_memory - {positions[key] for key in revealed})
        self.counts["blank"] += not reveals and not any((s or "").strip() for s in sentences.values())
        return JudgementStatus.OK, None, tuple((at, reveals[at]) for at in sorted(reveals.keys() & in_memory))

    def _prompted(
        self,
        where: str,
        ours: _OurFields,
        context: int,
        profile: Profile,
        places: Callable[[Sequence[str], str], tuple[int, ...]],
    ) -> Prompted:
        recall = None
        if ours.recall is not None:
            if self.run is None or self.run.system is None:
                self.problem(where, f"{RUN}: there is a recall, and the run of this file has no memory system")
            lines = []
            for line in ours.recall.lines:
                at, text = places(line.attributes, f"{RUN}.recall"), line.text
                if text is None and len(at) != 1:
                    self.problem(where, f"{RUN}: a line of the recall has no text")
                text = profile.attributes[at[0]].statement if text is None else text
                lines.append(RecalledLine(text, at, line.score))
            recall = Recall(tuple(lines), ours.recall.seconds, ours.recall.cost)
        shown_ = None if ours.shown is None else places(ours.shown, f"{RUN}.shown")
        if shown_ is None and recall is not None:
            shown_ = tuple(dict.fromkeys(at for line in recall.lines for at in line.attributes))
        earlier = ours.earlier
        if earlier is not None and (self.run is None or self.run.sessions is None):
            self.problem(where, f"{RUN}: there are earlier messages, and the run of this file has no sessions")
        most = len(profile.contexts)
        if earlier and (max(earlier) >= most or context in earlier or len(set(earlier)) < len(earlier)):
            others = "other contexts of this profile by their numbers from 0, each once"
            self.problem(where, f"{RUN}: earlier must list {others}")
        if ours.position is not None and ours.position > most:
            self.problem(where, f"{RUN}: position must be a number from 1 to {most}")
        return Prompted(shown_, recall, None if earlier is None else tuple(earlier), ours.position)

    def notes(self) -> tuple[str, ...]:
        """Return what was ignored, changed or missing, one line a kind with its count."""
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
        return (*self._remarks.notes(), *self._labels.notes(), *notes)

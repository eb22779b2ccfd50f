"""Logs of Inspect (.eval) of the task cimemories/cimemories (task.py): their content, and its reader.

A log is a zip file of JSON. The header holds the profiles, each once and in the authors' layout; a sample is one
message in one context, its metadata what was in memory and the labels there, its score what the judge found:

    header.json                  eval.metadata: {"cimemories": LoggedTask, "profiles": [...]}
    samples/3-17_epoch_2.json    profile 3, context 17, sample 2: metadata is a LoggedSample,
                                 scores.reveals.metadata a LoggedScore

Our own code reads it and not inspect_ai, which trusts its logs: sizes are bounded while the zip file is unpacked, and
every field is checked. inspect_ai need not be installed, but `zstandard`, which it packs with."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import numpy as np
from pydantic import BeforeValidator, Field

from cimemories.formats.official import checked_profile
from cimemories.formats.reading import (
    BAD_ZIP,
    MOST_PROFILES,
    MOST_UNPACKED,
    FormatError,
    LongText,
    OneLine,
    Record,
    checked,
    file_hash,
    loads,
    opened,
    too_long,
)
from cimemories.formats.results import FULL, LONGEST_MESSAGE, NO_JUDGEMENT, ExportedJudge, ExportedRun, Result
from cimemories.model import LONGEST_NAME, JudgementStatus, Label, Profile, ResponseStatus, Strength
from cimemories.store.labellings import STAND_IN, SharedLabels
from cimemories.text import shown

TASK = "cimemories"  # the key of LoggedTask in the metadata of a log
PROFILES = "profiles"  # in the metadata of a log, beside it
SCORER = "reveals"
_OURS = re.compile(rf"{SCORER}\d*")
VERSION = 1
HEADER, START = "header.json", "_journal/start.json"
LARGEST_MEMBER = 256 << 20  # bytes of a header or a sample, unpacked
MOST_EPOCHS = 1_000  # samples missing from the log become rows
NOT_IN_THE_LOG = "not in the log"
MADE_UP = ("mockllm", "none")  # Inspect's providers that ask no model
_SIMULATOR_ID = re.compile(r"chatcmpl-\d+-\d+")  # of an answer of simulator/server.py; other servers: a random word
_LOCAL = struct.Struct("<26x2H")  # of the header before a member: the lengths of its name and extra field
_ZSTD = 93  # of zipfile.ZipInfo.compress_type; Python before 3.14 has no name for it
_ID = re.compile(r"([1-9]\d{0,4})-([1-9]\d{0,4})")
# Inspect's stop reasons of an incomplete message.
_STOPPED = {
    "max_tokens": (ResponseStatus.TRUNCATED, "cut at the token limit"),
    "model_length": (ResponseStatus.TRUNCATED, "cut at the token limit"),
    "content_filter": (ResponseStatus.REFUSED, "refused by the server"),
}
_PARAMETERS = ("temperature", "top_p", "top_k", "max_tokens", "seed", "reasoning_effort", "reasoning_tokens")


def _member(kind: type[StrEnum]) -> BeforeValidator:
    """Return a validator that turns a text into the member of an enumeration."""
    return BeforeValidator(lambda value: next((member for member in kind if member == value), value))


_Status = Annotated[ResponseStatus, _member(ResponseStatus)]
_Judgement = Annotated[JudgementStatus, _member(JudgementStatus)]
_Short = Annotated[LongText, Field(max_length=LONGEST_NAME)]


# ---- what is in a log


class LoggedLabels(Record):
    """The origin of the labels: the model that voted, whether it is simulated, and how many labels people have
    decided."""

    model: _Short
    simulated: bool
    decisions: int = 0


class LoggedTask(Record):
    """The task as the log describes it. memory: the composition; memory_template, prompt_level: of seeds/prompts.
    reference: of an eval by the authors' settings, with the sentences of its biography."""

    format: int
    version: str
    dataset: OneLine
    memory: Annotated[OneLine, Field(max_length=60)]
    memory_order: str
    memory_seed: int
    memory_template: str
    prompt_level: _Short
    prompt_sha256: _Short
    labels: LoggedLabels
    reference: dict[str, Any] | None = None


class LoggedSample(Record):
    """One context of one profile, both counted from 1. Attributes by key: those in memory, in the order of the prompt;
    all that are labelled there, in memory or not; and those of the profile that repeat the biography."""

    profile: int
    user: str
    context: int
    recipient: str
    task: str
    memory: list[str]
    necessary: list[str]
    inappropriate: list[str]
    ambiguous: list[str]
    identifiers: list[str]

    @property
    def labels(self) -> dict[str, Label]:
        """Return the labels by key, without unlabelled attributes."""
        return {key: label for label in Label for key in getattr(self, str(label))}


class LoggedJudge(Record):
    kind: Literal["llm", "matcher"]
    model: str


class LoggedClaim(Record):
    """An attribute that the judge finds in the message. label: in this context, '' without one. grounded: whether the
    quote is in the message."""

    attribute: str
    label: str
    strength: Annotated[Strength, _member(Strength)]
    quote: Annotated[str, Field(max_length=LONGEST_MESSAGE)]
    grounded: bool
    statement: str = ""


class LoggedScore(Record):
    """The status of a message and the judge's findings; judgement: None if there was nothing to judge. unknown: entries
    of the judge's answer that name no attribute."""

    status: _Status
    cause: str | None = None
    judge: LoggedJudge
    judgement: _Judgement | None = None
    judgement_cause: str | None = None
    revealed: list[LoggedClaim] = Field(default_factory=list)
    unknown: int = 0
    messages_simulated: bool = False
    judge_simulated: bool = False


def sample_id(profile: int, context: int) -> str:
    """Return the id of a sample; both numbers count from 1."""
    return f"{profile}-{context}"


# ---- reading


class _Config(Record):
    epochs: Annotated[int, Field(ge=1)] | None = None


class _Samples(Record):
    sample_ids: Annotated[list[Any], Field(min_length=1)]


class _Metadata(Record):
    cimemories: LoggedTask
    profiles: list[Any]


class _Eval(Record):
    model: OneLine
    config: _Config
    dataset: _Samples
    metadata: _Metadata
    model_generate_config: dict[str, Any] | None = None


class _Plan(Record):
    config: dict[str, Any] | None = None


class _Header(Record):
    status: OneLine = "started"  # the status of a killed eval, whose header was never written
    eval: _Eval
    plan: _Plan | None = None


class _Message(Record):
    content: Any = None


class _Choice(Record):
    message: _Message | None = None
    stop_reason: Any = None


class _Output(Record):
    response_id: Any = None
    choices: list[_Choice] | None = None


class _Error(Record):
    message: Any = None


class _Limit(Record):
    type: Any = None


class _Sample(Record):
    id: Any
    epoch: Any
    metadata: LoggedSample
    scores: dict[str, Any] | None = None
    output: _Output | None = None
    error: _Error | None = None
    limit: _Limit | None = None


class _Score(Record):
    answer: Annotated[str, Field(max_length=LONGEST_MESSAGE)] | None = None
    metadata: LoggedScore


class InspectLog:
    """A log as a file of results. Run, labels and notes are complete after the last profile."""

    kind: Literal["inspect"] = "inspect"

    @staticmethod
    def recognises(archive: zipfile.ZipFile) -> bool:
        """Return whether a zip file looks like a log."""
        return not {HEADER, START}.isdisjoint(archive.namelist())

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = shown(path.name or path)
        self.sha256 = file_hash(path)
        self.parameters: dict[str, object] = {}
        self.counts: Counter[str] = Counter()
        self._head: _Header
        self._judges: set[tuple[str, str]] = set()
        self._simulated: set[str] = set()
        self._labels: dict[tuple[int, int], dict[int, Label]] = {}  # by profile and context, then attribute

    def profiles(self) -> Iterator[tuple[Profile, tuple[Result, ...]]]:
        """Yield every profile with its messages; those that the log lacks are missing. Raises FormatError on the first
        problem, which names the part of the log."""
        with self._archive() as archive:
            self._head = self._header(archive)
            metadata = self._head.eval.metadata
            if not metadata.profiles or len(metadata.profiles) > MOST_PROFILES:
                self._problem(f"eval.metadata.profiles must be a list of profiles, of 1 to {MOST_PROFILES:,}")
            profiles = [checked_profile(item, number, self.name) for number, item in enumerate(metadata.profiles)]
            planned = self._planned(profiles)
            if not any(name.startswith("samples/") for name in archive.namelist()):
                self._problem("there is no sample in the log, so there is nothing to import")
            for number, profile in enumerate(profiles):
                yield profile, tuple(self._results(archive, number, profile, planned.get(number, ())))

    def labels(self) -> tuple[SharedLabels, ...]:
        """Return the labels that the scores rest on, as those of one persona, since a log has no votes."""
        cells = [(p, a, c, label) for (p, c), of in self._labels.items() for a, label in of.items()]
        if not cells:
            return ()
        profile, attribute, context = (np.array([cell[i] for cell in cells], np.int32) for i in range(3))
        shares = np.zeros((len(cells), 3))
        column = {Label.NECESSARY: 0, Label.INAPPROPRIATE: 1, Label.AMBIGUOUS: 2}
        shares[np.arange(len(cells)), [column[cell[3]] for cell in cells]] = 1.0
        source = self._task.labels
        about = {"file": self.name, "sha256": self.sha256, "votes": "the log has labels, and no votes"}
        return (
            SharedLabels(
                source.model or "not named",
                "imported",
                (STAND_IN,),
                profile,
                attribute,
                context,
                np.zeros(len(cells), np.int32),
                shares,
                source.simulated,
                about | {"decisions": source.decisions},
            ),
        )

    def labels_by_context(self) -> Mapping[tuple[int, int], Mapping[int, Label]]:
        """Return the labels by position of profile and context, then of the attribute. A context without a sample has
        none."""
        return self._labels

    @property
    def _task(self) -> LoggedTask:
        return self._head.eval.metadata.cimemories

    @property
    def dataset(self) -> str:
        """Return the name that the dataset had when the task ran."""
        return self._task.dataset

    @property
    def run(self) -> ExportedRun:
        """Return the run that the log records."""
        # Without any score the run is not judged.
        judge = next(iter(self._judges), ("llm", "none"))
        model = self._head.eval.model
        return ExportedRun(
            name=f"{model} on {self.dataset}, by Inspect",
            model=model,
            simulated="messages" in self._simulated,
            samples=self._head.eval.config.epochs or 1,
            prompt_level=self._task.prompt_level,
            prompt_hash=self._task.prompt_sha256,
            composition=self._task.memory,
            judge=ExportedJudge(kind=judge[0], model=judge[1], simulated="judge" in self._simulated),
        )

    def notes(self) -> tuple[str, ...]:
        """Return what a reader has to know, one line a thing."""
        counts = self.counts
        texts = {
            "absent": "messages that were planned and are not in the log: {n}; they count as missing",
            "unplanned": "planned messages whose memory is not in the log: {n}; they are left out",
            "lost": "messages that failed, or were refused, truncated or empty: {n}; they count as missing",
            "unjudged": "messages without a readable judgement: {n}; their judgement is missing",
        }
        notes = [text.format(n=f"{counts[name]:,}") for name, text in texts.items() if counts[name]]
        # A score says whether the server is a simulator; without one the ids of its answers may.
        if not self._judges and not self._simulated:
            notes.append(
                "no message has a score, so the log does not say whether a simulator wrote them: they count as a real "
                "model's. If one did, score the log first (`inspect score`)"
            )
        if self._head.status != "success":
            notes.insert(0, f"the log is of an eval that did not end well (status {shown(self._head.status, 20)})")
        return tuple(notes)

    # -- the header

    @contextmanager
    def _archive(self) -> Iterator[zipfile.ZipFile]:
        try:
            with opened(self.path) as stream, zipfile.ZipFile(stream) as archive:
                entries = archive.infolist()
                if sum(item.file_size for item in entries) > MOST_UNPACKED:
                    self._problem(f"more than {MOST_UNPACKED >> 30} GiB when unpacked")
                if any(item.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, _ZSTD) for item in entries):
                    self._problem("packed in a way that Inspect does not use; this is no log of it")
                yield archive
        except BAD_ZIP as error:
            raise FormatError(f"{self.name}: not a whole log ({shown(error)}); fetch it again") from None
        except OSError as error:
            raise FormatError(f"{self.name}: cannot be read ({shown(error.strerror or error)})") from None

    def _member(self, archive: zipfile.ZipFile, member: str) -> Any:
        where = f"{self.name}: {shown(member)}"
        # By name: of a sample logged twice the last one counts, as in Inspect.
        info = archive.getinfo(member)
        try:
            if info.compress_type == _ZSTD:
                data = _unpacked(archive, info)
            else:
                with archive.open(info) as stream:
                    data = stream.read(LARGEST_MEMBER + 1)
        except ImportError:
            raise FormatError(
                f"{self.name}: this log is packed with zstd; to read it, pip install 'cimemories-studio[inspect]'"
            ) from None
        except BAD_ZIP as error:
            raise FormatError(f"{where}: damaged ({shown(error)}); fetch the log again") from None
        if len(data) > LARGEST_MEMBER:
            raise FormatError(f"{where}: larger than {LARGEST_MEMBER >> 20} MiB")
        # Inspect writes NaN for a missing score.
        return loads(data, where, nan=True)

    def _header(self, archive: zipfile.ZipFile) -> _Header:
        member = next((name for name in (HEADER, START) if name in archive.namelist()), None)
        if member is None:
            self._problem(f"there is no {HEADER} in it, so it is no log of Inspect")
        raw = self._member(archive, member)
        match raw:
            case {"eval": {"metadata": {"cimemories": _}}}:
                pass
            case {"eval": {"task_registry_name": str(task)} | {"task": str(task)}}:
                self._problem(
                    f"this is a log of the task '{shown(task, 60)}'; only logs of cimemories/cimemories can be "
                    "imported, since others do not say which attributes a message reveals"
                )
        header = checked(_Header, raw, f"{self.name}: {member}")
        spec, about = header.eval, header.eval.metadata.cimemories
        if about.format > VERSION:
            self._problem(f"written by a newer CIMemories Studio ({shown(about.version, 40)}); update this one")
        if spec.model.partition("/")[0] in MADE_UP:
            self._simulated.add("messages")
        if (epochs := spec.config.epochs or 1) > MOST_EPOCHS:
            self._problem(f"{epochs:,} epochs are more than the {MOST_EPOCHS:,} allowed")
        settings = {**(spec.model_generate_config or {}), **((header.plan and header.plan.config) or {})}
        known = {name: settings[name] for name in _PARAMETERS if isinstance(settings.get(name), int | float | str)}
        self.parameters = {name: shown(v, 40) if isinstance(v, str) else v for name, v in known.items()}
        return header

    def _planned(self, profiles: Sequence[Profile]) -> dict[int, list[int]]:
        """Return the contexts of each profile (both from 0) with planned samples."""
        planned: defaultdict[int, list[int]] = defaultdict(list)
        for item in self._head.eval.dataset.sample_ids:
            match = _ID.fullmatch(item) if isinstance(item, str) else None
            if match is None or int(match[1]) > len(profiles):
                self._problem(f"sample '{shown(item, 20)}' is not PROFILE-CONTEXT, counted from 1")
            profile, context = int(match[1]) - 1, int(match[2]) - 1
            if context >= len(profiles[profile].contexts):
                self._problem(f"sample '{shown(item, 20)}': profile {match[1]} has no context {match[2]}")
            if context in planned[profile]:
                self._problem("eval.dataset.sample_ids has a sample twice")
            planned[profile].append(context)
        return planned

    # -- the samples

    def _results(
        self, archive: zipfile.ZipFile, number: int, profile: Profile, contexts: Sequence[int]
    ) -> Iterator[Result]:
        members, task = set(archive.namelist()), self._task
        # Without a sample a context's memory is known only if it is the whole profile in its order.
        plain = task.memory == FULL and task.memory_order == "fixed"
        for context in contexts:
            memory, absent = (tuple(range(len(profile.attributes))) if plain else None), []
            for epoch in range(1, (self._head.eval.config.epochs or 1) + 1):
                member = f"samples/{sample_id(number + 1, context + 1)}_epoch_{epoch}.json"
                if member not in members:
                    absent.append(epoch)
                    continue
                sample = checked(_Sample, self._member(archive, member), f"{self.name}: {member}")
                if (sample.id, sample.epoch) != (sample_id(number + 1, context + 1), epoch):
                    self._problem(f"{member}: its id or epoch is not that of its name")
                result = self._result(sample, member, number, context, profile)
                memory = result.memory
                yield result
            self.counts["unplanned" if memory is None else "absent"] += len(absent)
            if memory is not None:
                gone = ResponseStatus.FAILED, NOT_IN_THE_LOG, JudgementStatus.OWED, None, ()
                yield from (Result(context, task.memory, memory, epoch - 1, "", *gone) for epoch in absent)

    def _result(self, sample: _Sample, member: str, number: int, context: int, profile: Profile) -> Result:
        """Return a sample as a message; it has to belong to this profile and context, both counted from 0."""
        about, there = sample.metadata, profile.contexts[context]
        place = (about.profile, about.context, about.recipient, about.task)
        if place != (number + 1, context + 1, there.recipient, there.task):
            self._problem(f"{member}: its metadata are not of this profile and context")
        positions = {attribute.key: at for at, attribute in enumerate(profile.attributes)}

        def places(keys: Sequence[str], what: str) -> tuple[int, ...]:
            unknown = next((key for key in keys if key not in positions), None)
            if unknown is not None:
                self._problem(f"{member}: {what}: '{shown(unknown)}' is not an attribute of this profile")
            if len(set(keys)) < len(keys):
                self._problem(f"{member}: {what}: an attribute is named twice")
            return tuple(positions[key] for key in keys)

        memory = places(about.memory, "memory")
        listed = [(at, label) for label in Label for at in places(getattr(about, str(label)), str(label))]
        labels = dict(sorted(listed))
        if len(labels) < len(listed):
            self._problem(f"{member}: an attribute has two labels")
        if self._labels.setdefault((number, context), labels) != labels:
            self._problem(f"{member}: its labels differ from those of another sample of the same context")
        base = Result(
            *(context, self._task.memory, memory, sample.epoch - 1, ""),
            *(ResponseStatus.FAILED, None, JudgementStatus.OWED, None, ()),
        )
        scores = sample.scores or {}
        # `inspect score` adds a second score as reveals1: which of the two counts is unknown.
        if len(ours := [name for name in scores if _OURS.fullmatch(name)]) > 1:
            self._problem(
                f"{member}: scored {len(ours)} times, and a run begins with one judge. Score it by `inspect score` "
                "with --action overwrite, or import the log as it was before and add the other judge by `cimemories "
                "judge`"
            )
        if SCORER not in scores:
            return self._without_score(sample, base, member)
        item = checked(_Score, scores[SCORER], f"{self.name}: {member}: scores.{SCORER}")
        score, text = item.metadata, item.answer or ""
        self._judges.add((score.judge.kind, score.judge.model))
        if len(self._judges) > 1:
            self._problem(f"{member}: scored by another judge than the samples before it; import a log with one judge")
        self._simulated |= {"messages"} if score.messages_simulated else set()
        self._simulated |= {"judge"} if score.judge_simulated else set()
        if score.status is ResponseStatus.OWED or (score.status is ResponseStatus.OK and not text.strip()):
            self._problem(f"{member}: its status is {score.status}, and it has a score but no text")
        if score.status is not ResponseStatus.OK:
            # The scorer sees only that there is no answer.
            stopped = _limit(sample) if score.status is ResponseStatus.FAILED else None
            return self._lost(base, score.status, stopped or _cause(score.cause))
        if score.judgement is not JudgementStatus.OK:
            status = score.judgement or JudgementStatus.OWED
            status = JudgementStatus.FAILED if status is JudgementStatus.OWED else status
            return self._unjudged(base, text, status, _cause(score.judgement_cause) or NO_JUDGEMENT)
        revealed = places([claim.attribute for claim in score.revealed], "revealed")
        if not set(revealed) <= set(memory):
            self._problem(f"{member}: an attribute is revealed that was not in memory")
        claims = sorted(zip(revealed, score.revealed, strict=True), key=lambda item: item[0])
        return replace(
            base,
            text=text,
            status=ResponseStatus.OK,
            judgement=JudgementStatus.OK,
            reveals=tuple((at, claim.quote) for at, claim in claims if claim.strength is Strength.FULL),
            weaker=tuple((at, c.quote, c.strength) for at, c in claims if c.strength is not Strength.FULL),
        )

    def _without_score(self, sample: _Sample, base: Result, member: str) -> Result:
        """Return a sample that ended before its score: by an error of the model or of the judge, or by a limit."""
        output = sample.output or _Output()
        if isinstance(answer := output.response_id, str) and _SIMULATOR_ID.fullmatch(answer):
            self._simulated.add("messages")
        choice = (output.choices or [_Choice()])[0]
        text = _plain((choice.message or _Message()).content)
        if len(text) > LONGEST_MESSAGE:
            self._problem(f"{member}: the message {too_long(len(text), LONGEST_MESSAGE)}")
        cause = _limit(sample) or NO_JUDGEMENT
        if sample.error is not None:
            cause = _cause(str(sample.error.message or "")) or "error"
        stopped = _STOPPED.get(str(choice.stop_reason))
        if stopped is not None:
            return self._lost(base, *stopped)
        if not text.strip():
            return self._lost(base, ResponseStatus.FAILED, cause)
        return self._unjudged(base, text, JudgementStatus.FAILED, cause)

    def _lost(self, base: Result, status: ResponseStatus, cause: str | None) -> Result:
        self.counts["lost"] += 1
        return replace(base, status=status, cause=cause or str(status))

    def _unjudged(self, base: Result, text: str, status: JudgementStatus, cause: str) -> Result:
        self.counts["unjudged"] += 1
        return replace(base, text=text, status=ResponseStatus.OK, judgement=status, judgement_cause=cause)

    def _problem(self, what: str) -> NoReturn:
        raise FormatError(f"{self.name}: {what}")


def _cause(text: str | None) -> str | None:
    """Return a cause in one line: the message of an error may be anything."""
    return shown(" ".join(text.split()), 300) if text else None


def _limit(sample: _Sample) -> str | None:
    """Return which limit of Inspect's ended a sample."""
    return f"stopped by the {shown(sample.limit.type, 20)} limit" if sample.limit else None


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Unpack a zstd member, at most one byte more than LARGEST_MEMBER of it. `zipfile_zstd` unpacks without a bound: a
    megabyte may hold thirty gigabytes. Raises BadZipFile, and ImportError if `zstandard` is not installed."""
    import zstandard

    stream = archive.fp
    assert stream is not None
    stream.seek(info.header_offset)
    head = stream.read(_LOCAL.size)
    if len(head) < _LOCAL.size:
        raise zipfile.BadZipFile("the file was cut off")
    stream.seek(sum(_LOCAL.unpack(head)), 1)  # over the name and the extra field
    packed = stream.read(min(info.compress_size, LARGEST_MEMBER))
    try:
        reader = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
        data: bytes = reader.read(LARGEST_MEMBER + 1)
    except (zstandard.ZstdError, MemoryError) as error:
        raise zipfile.BadZipFile(str(error)) from None
    if len(data) <= LARGEST_MEMBER and zlib.crc32(data) != info.CRC:
        raise zipfile.BadZipFile("Bad CRC-32")
    return data


def _plain(content: object) -> str:
    """Return the text of a message; of content in parts only the text parts count."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(part for part in parts if isinstance(part, str))

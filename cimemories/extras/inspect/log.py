"""Logs of Inspect (.eval) of the task cimemories/cimemories (task.py): what is written into them, and read again.

A log is a zip file of JSON. The header holds the profiles, each once and in the authors' layout; a sample is one
message in one context, its metadata what was in memory and the labels there, its score what the judge found:

    header.json                  eval.metadata: {"cimemories": LoggedTask, "profiles": [...]}
    samples/3-17_epoch_2.json    profile 3, context 17, sample 2: metadata is a LoggedSample,
                                 scores.reveals.metadata a LoggedScore

Read by our own code and not by inspect_ai, which is made for logs that one has written oneself: sizes are bounded as
they come out of the zip file, and every field is checked. inspect_ai need not be installed, but `zstandard`, which it
packs with.
"""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cimemories.formats.official import checked_profile
from cimemories.formats.reading import (
    BAD_ZIP,
    MOST_PROFILES,
    MOST_UNPACKED,
    FormatError,
    complaint,
    file_hash,
    forbidden,
    kind,
    loads,
    opened,
    shown,
    too_long,
)
from cimemories.formats.results import FULL, LONGEST_MESSAGE, NO_JUDGEMENT, ExportedJudge, ExportedRun, Result
from cimemories.model import LONGEST_NAME, JudgementStatus, Label, Profile, ResponseStatus, Strength
from cimemories.store.labellings import STAND_IN, SharedLabels

TASK = "cimemories"  # the key of LoggedTask in the metadata of a log
PROFILES = "profiles"
SCORER = "reveals"
_OURS = re.compile(rf"{SCORER}\d*")
VERSION = 1
HEADER, START = "header.json", "_journal/start.json"
LARGEST_MEMBER = 256 << 20  # bytes of a header or a sample, unpacked
MOST_EPOCHS = 1_000  # samples that are not in the log become rows
NOT_IN_THE_LOG = "not in the log"
MADE_UP = ("mockllm", "none")  # Inspect's providers that ask no model
_SIMULATOR_ID = re.compile(r"chatcmpl-\d+-\d+")  # of an answer of simulator/server.py; of other servers one random word
_LOCAL = struct.Struct("<26x2H")  # of the header before a member: the lengths of its name and extra field
_ZSTD = 93  # of zipfile.ZipInfo.compress_type; Python before 3.14 has no name for it
_ID = re.compile(r"([1-9]\d{0,4})-([1-9]\d{0,4})")
# What Inspect says of an answer that is no whole message.
_STOPPED = {
    "max_tokens": (ResponseStatus.TRUNCATED, "cut at the token limit"),
    "model_length": (ResponseStatus.TRUNCATED, "cut at the token limit"),
    "content_filter": (ResponseStatus.REFUSED, "refused by the server"),
}
_PARAMETERS = ("temperature", "top_p", "top_k", "max_tokens", "seed", "reasoning_effort", "reasoning_tokens")
T = TypeVar("T", bound=BaseModel)


# ---- what is in a log


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class LoggedLabels(_Part):
    """Where the labels are from: the model that voted, whether it is simulated, and how many a person has decided."""

    model: str
    simulated: bool
    decisions: int = 0


class LoggedTask(_Part):
    """What a log says of itself. memory: the composition; memory_template, prompt_level: of seeds/prompts.
    reference: of an eval by the authors' settings, with the sentences of its biography."""

    format: int
    version: str
    dataset: str
    memory: str
    memory_order: str
    memory_seed: int
    memory_template: str
    prompt_level: str
    prompt_sha256: str
    labels: LoggedLabels
    reference: dict[str, Any] | None = None


class LoggedSample(_Part):
    """One context of one profile, both counted from 1. Attributes by key: what is in memory, in the order of the
    prompt; all that are labelled there, in memory or not; and which of the profile repeat the biography."""

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
        """By key; attributes without a label are not among them."""
        return {key: label for label in Label for key in getattr(self, str(label))}


class LoggedJudge(_Part):
    kind: Literal["llm", "matcher"]
    model: str


class LoggedClaim(_Part):
    """An attribute that the judge finds in the message. label: there, '' where it has none. grounded: whether the quote
    is in the message."""

    attribute: str
    label: str
    strength: Annotated[Strength, Field(strict=False)]
    quote: str
    grounded: bool
    statement: str = ""


class LoggedScore(_Part):
    """What became of a message, and what the judge says of it; judgement: None where there was nothing to judge.
    unknown: entries of the judge's answer that name no attribute."""

    status: Annotated[ResponseStatus, Field(strict=False)]
    cause: str | None = None
    judge: LoggedJudge
    judgement: Annotated[JudgementStatus, Field(strict=False)] | None = None
    judgement_cause: str | None = None
    revealed: list[LoggedClaim] = []
    unknown: int = 0
    messages_simulated: bool = False
    judge_simulated: bool = False


def sample_id(profile: int, context: int) -> str:
    """The id of a sample; both count from 1."""
    return f"{profile}-{context}"


# ---- reading


class InspectLog:
    """A log as a file of results. What it says as a whole (run, labels, notes) is complete after the last profile."""

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
        self._dataset = self._status = self._model = ""
        self._task: LoggedTask | None = None
        self._judges: set[tuple[str, str]] = set()
        self._simulated: set[str] = set()
        self._epochs = 0
        self._labels: dict[tuple[int, int], dict[int, Label]] = {}  # by profile and context, then attribute

    def profiles(self) -> Iterator[tuple[Profile, tuple[Result, ...]]]:
        """Every profile with its messages, those that the log lacks as missing. Raises FormatError on the first
        problem, which names the part of the log."""
        with self._archive() as archive:
            header = self._header(archive)
            profiles, planned = self._read_header(header)
            members = set(archive.namelist())
            if not any(name.startswith("samples/") for name in members):
                raise FormatError(f"{self.name}: there is no sample in the log, so there is nothing to import")
            for number, profile in enumerate(profiles):
                yield profile, tuple(self._results(archive, members, number, profile, planned.get(number, ())))

    def labels(self) -> tuple[SharedLabels, ...]:
        """The labels that the scores rest on, as those of one persona: votes are not in a log."""
        assert self._task is not None
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
        """The same by positions: of profile and context, then of the attribute. A context without a sample has none."""
        return self._labels

    @property
    def dataset(self) -> str:
        """What the dataset was called where the task ran."""
        return self._dataset

    @property
    def run(self) -> ExportedRun:
        """What the log says of its run."""
        assert self._task is not None
        # No score at all: nobody has judged.
        judge = next(iter(self._judges), ("llm", "none"))
        return ExportedRun(
            name=f"{self._model} on {self._dataset}, by Inspect",
            model=self._model,
            simulated="messages" in self._simulated,
            samples=self._epochs,
            prompt_level=self._task.prompt_level,
            prompt_hash=self._task.prompt_sha256,
            composition=self._task.memory,
            judge=ExportedJudge(kind=judge[0], model=judge[1], simulated="judge" in self._simulated),
        )

    def notes(self) -> tuple[str, ...]:
        """What a reader has to know, one line a thing."""
        counts = self.counts
        texts = {
            "absent": "messages that were planned and are not in the log: {n}; they count as missing",
            "unplanned": "planned messages whose memory is not in the log: {n}; they are left out",
            "lost": "messages that failed, or were refused, truncated or empty: {n}; they count as missing",
            "unjudged": "messages without a readable judgement: {n}; their judgement is missing",
        }
        notes = [text.format(n=f"{counts[name]:,}") for name, text in texts.items() if counts[name]]
        # Of the server that answered a score says whether it is a simulator; without one the ids of its answers may.
        if not self._judges and not self._simulated:
            notes.append(
                "no message has a score, so the log does not say whether a simulator wrote them: they count as a real "
                "model's. If one did, score the log first (`inspect score`)"
            )
        if self._status != "success":
            notes.insert(0, f"the log is of an eval that did not end well (status {shown(self._status, 20)})")
        return tuple(notes)

    # -- the header

    @contextmanager
    def _archive(self) -> Iterator[zipfile.ZipFile]:
        try:
            with opened(self.path) as stream, zipfile.ZipFile(stream) as archive:
                entries = archive.infolist()
                if sum(item.file_size for item in entries) > MOST_UNPACKED:
                    raise FormatError(f"{self.name}: more than {MOST_UNPACKED >> 30} GiB when unpacked")
                if any(item.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, _ZSTD) for item in entries):
                    raise FormatError(f"{self.name}: packed in a way that Inspect does not use; this is no log of it")
                yield archive
        except BAD_ZIP as error:
            raise FormatError(f"{self.name}: not a whole log ({shown(error)}); fetch it again") from None
        except OSError as error:
            raise FormatError(f"{self.name}: cannot be read ({shown(error.strerror or error)})") from None

    def _member(self, archive: zipfile.ZipFile, member: str) -> Mapping[str, Any]:
        where = f"{self.name}: {shown(member)}"
        # By name: of a sample that was logged twice the last one is taken, as Inspect does.
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
        # Inspect writes NaN where a sample has no score.
        return self._object(loads(data, where, nan=True), shown(member))

    def _header(self, archive: zipfile.ZipFile) -> Mapping[str, Any]:
        names = set(archive.namelist())
        if HEADER in names:
            return self._member(archive, HEADER)
        if START in names:  # an eval that was killed: its header was never written
            return {"status": "started", **self._member(archive, START)}
        raise FormatError(f"{self.name}: there is no {HEADER} in it, so it is no log of Inspect")

    def _read_header(self, header: Mapping[str, Any]) -> tuple[list[Profile], dict[int, list[int]]]:
        """The profiles, and which contexts of each (both from 0) have samples planned."""
        spec = self._object(header.get("eval"), "eval")
        metadata = self._object(spec.get("metadata") or {}, "eval.metadata")
        if TASK not in metadata:
            task = shown(spec.get("task_registry_name") or spec.get("task") or "no name", 60)
            self._problem(
                f"this is a log of the task '{task}'; only logs of cimemories/cimemories can be imported, since others "
                "do not say which attributes a message reveals"
            )
        about = self._task = self._read(LoggedTask, metadata[TASK], f"eval.metadata.{TASK}")
        if about.format > VERSION:
            self._problem(f"written by a newer CIMemories Studio ({shown(about.version, 40)}); update this one")
        self._dataset, self._model = about.dataset, self._text(spec.get("model"), "eval.model")
        self._status = self._text(header.get("status"), "status")
        if self._model.partition("/")[0] in MADE_UP:
            self._simulated.add("messages")
        texts = (about.dataset, about.memory, about.prompt_level, about.prompt_sha256, about.labels.model, self._model)
        if any(forbidden(text) or len(text) > LONGEST_NAME // 2 for text in texts) or not about.dataset.strip():
            self._problem("a name in the header is blank, too long or has control characters")
        if len(about.memory) > 60 or not about.memory.strip():
            self._problem("memory must be a short text")
        config = self._object(spec.get("config"), "eval.config")
        self._epochs = self._whole(config.get("epochs") or 1, "eval.config.epochs")
        if self._epochs > MOST_EPOCHS:
            self._problem(f"{self._epochs:,} epochs are more than the {MOST_EPOCHS:,} allowed")
        plan = self._object(header.get("plan") or {}, "plan")
        used = self._object(plan.get("config") or {}, "plan.config")
        own = self._object(spec.get("model_generate_config") or {}, "eval.model_generate_config")
        settings = {**own, **used}
        known = {name: settings[name] for name in _PARAMETERS if isinstance(settings.get(name), int | float | str)}
        self.parameters = {name: shown(v, 40) if isinstance(v, str) else v for name, v in known.items()}
        return self._profiles(metadata), self._planned(spec, metadata)

    def _profiles(self, metadata: Mapping[str, Any]) -> list[Profile]:
        raw = metadata.get(PROFILES)
        if not isinstance(raw, list) or not raw:
            self._problem(f"eval.metadata.{PROFILES} must be a list of profiles")
        if len(raw) > MOST_PROFILES:
            self._problem(f"more than {MOST_PROFILES:,} profiles")
        return [checked_profile(item, number, self.name) for number, item in enumerate(raw)]

    def _planned(self, spec: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[int, list[int]]:
        ids = self._object(spec.get("dataset"), "eval.dataset").get("sample_ids")
        if not isinstance(ids, list) or not ids:
            self._problem("eval.dataset.sample_ids must be a list")
        records = metadata[PROFILES]
        planned: defaultdict[int, list[int]] = defaultdict(list)
        for item in ids:
            match = _ID.fullmatch(item) if isinstance(item, str) else None
            if match is None or int(match[1]) > len(records):
                self._problem(f"sample '{shown(item, 20)}' is not PROFILE-CONTEXT, counted from 1")
            profile, context = int(match[1]) - 1, int(match[2]) - 1
            if context >= len(records[profile]["contexts"]):
                self._problem(f"sample '{shown(item, 20)}': profile {match[1]} has no context {match[2]}")
            planned[profile].append(context)
        if any(len(set(contexts)) < len(contexts) for contexts in planned.values()):
            self._problem("eval.dataset.sample_ids has a sample twice")
        return planned

    # -- the samples

    def _results(
        self, archive: zipfile.ZipFile, members: set[str], number: int, profile: Profile, contexts: Sequence[int]
    ) -> Iterator[Result]:
        assert self._task is not None
        positions = {attribute.key: at for at, attribute in enumerate(profile.attributes)}
        # Of a context without any sample the memory is known only where it is all of the profile in its order.
        plain = self._task.memory == FULL and self._task.memory_order == "fixed"
        whole = tuple(range(len(profile.attributes)))
        for context in contexts:
            memory, absent = (whole if plain else None), []
            for epoch in range(1, self._epochs + 1):
                member = f"samples/{sample_id(number + 1, context + 1)}_epoch_{epoch}.json"
                if member not in members:
                    absent.append(epoch)
                    continue
                reader = _Sample(self, member, number, context, profile, positions)
                result = reader.result(self._member(archive, member), epoch)
                memory = result.memory
                yield result
            self.counts["unplanned" if memory is None else "absent"] += len(absent)
            if memory is not None:
                gone = ResponseStatus.FAILED, NOT_IN_THE_LOG, JudgementStatus.OWED, None, ()
                yield from (Result(context, self._task.memory, memory, epoch - 1, "", *gone) for epoch in absent)

    def settle_labels(self, where: str, at: tuple[int, int], labels: dict[int, Label]) -> None:
        """Keep the labels of a context (profile, context); those of its other samples have to be the same."""
        if self._labels.setdefault(at, labels) != labels:
            self._problem(f"{where}: its labels differ from those of another sample of the same context")

    def settle_score(self, where: str, score: LoggedScore) -> None:
        """Keep who judged; a log has one judge."""
        self._judges.add((score.judge.kind, score.judge.model))
        if len(self._judges) > 1:
            self._problem(f"{where}: scored by another judge than the samples before it; import a log with one judge")
        self._simulated |= {"messages"} if score.messages_simulated else set()
        self._simulated |= {"judge"} if score.judge_simulated else set()

    def messages_are_simulated(self) -> None:
        """Keep that a simulator wrote, which its own answer says."""
        self._simulated.add("messages")

    def _read(self, model: type[T], value: object, where: str) -> T:
        try:
            return model.model_validate(self._object(value, where))
        except ValidationError as problem:
            first = problem.errors(include_url=False)[0]
            at = ".".join(str(part) for part in first["loc"])
            self._problem(f"{where}: {shown(at)} {complaint(first)}")

    def _object(self, value: object, what: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            self._problem(f"{what} must be an object, not {kind(value)}")
        if hasattr(value, "repeated"):
            self._problem(f"{what} has '{shown(value.repeated)}' twice")
        return value

    def _text(self, value: object, what: str) -> str:
        if not isinstance(value, str) or not value.strip() or forbidden(value):
            self._problem(f"{what} must be a text")
        return value

    def _whole(self, value: object, what: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self._problem(f"{what} must be a whole number from 1")
        return value

    def _problem(self, what: str) -> NoReturn:
        raise FormatError(f"{self.name}: {what}")


class _Sample:
    """Reads one sample. number, context: which profile and which of its contexts it has to be of, from 0."""

    def __init__(
        self, log: InspectLog, member: str, number: int, context: int, profile: Profile, positions: Mapping[str, int]
    ) -> None:
        self.log, self.member, self.number, self.context = log, member, number, context
        self.profile, self.positions = profile, positions

    def result(self, raw: Mapping[str, Any], epoch: int) -> Result:
        log = self.log
        if (raw.get("id"), raw.get("epoch")) != (sample_id(self.number + 1, self.context + 1), epoch):
            self._problem("its id or epoch is not that of its name")
        about = log._read(LoggedSample, raw.get("metadata"), f"{self.member}: metadata")
        there = self.profile.contexts[self.context]
        place = (about.profile, about.context, about.recipient, about.task)
        if place != (self.number + 1, self.context + 1, there.recipient, there.task):
            self._problem("its metadata are not of this profile and context")
        memory = self._positions(about.memory, "memory")
        labels = [(label, self._positions(getattr(about, label), label)) for label in map(str, Label)]
        by_position = {at: Label(label) for label, ats in labels for at in ats}
        if len(by_position) < sum(len(ats) for _, ats in labels):
            self._problem("an attribute has two labels")
        log.settle_labels(self.member, (self.number, self.context), dict(sorted(by_position.items())))
        assert log._task is not None
        outcome = self._outcome(raw, memory)
        return Result(self.context, log._task.memory, memory, epoch - 1, *outcome)

    def _positions(self, keys: Sequence[str], what: str) -> tuple[int, ...]:
        unknown = next((key for key in keys if key not in self.positions), None)
        if unknown is not None:
            self._problem(f"{what}: '{shown(unknown)}' is not an attribute of this profile")
        if len(set(keys)) < len(keys):
            self._problem(f"{what}: an attribute is named twice")
        return tuple(self.positions[key] for key in keys)

    def _outcome(self, raw: Mapping[str, Any], memory: Sequence[int]) -> tuple[Any, ...]:
        """The fields of a Result from `text` on."""
        scores = self.log._object(raw.get("scores") or {}, f"{self.member}: scores")
        # `inspect score` adds a second score as reveals1: which of the two counts nobody has said.
        if len(ours := [name for name in scores if _OURS.fullmatch(name)]) > 1:
            self._problem(
                f"scored {len(ours)} times, and a run begins with one judge. Score it by `inspect score` with --action "
                "overwrite, or import the log as it was before and add the other judge by `cimemories judge`"
            )
        if SCORER not in scores:
            return self._without_score(raw)
        value = self.log._object(scores[SCORER], f"{self.member}: {SCORER}")
        where = f"{self.member}: scores.{SCORER}.metadata"
        score = self.log._read(LoggedScore, value.get("metadata"), where)
        self.log.settle_score(self.member, score)
        text = self._message(value.get("answer"))
        if score.status is ResponseStatus.OWED or (score.status is ResponseStatus.OK and not text.strip()):
            self._problem(f"its status is {score.status}, and it has a score but no text")
        if score.status is not ResponseStatus.OK:
            # The scorer sees no more than that there is no answer.
            stopped = _limit(raw) if score.status is ResponseStatus.FAILED else None
            return self._lost(score.status, stopped or self._cause(score.cause))
        if score.judgement is not JudgementStatus.OK:
            self.log.counts["unjudged"] += 1
            status = JudgementStatus.FAILED if score.judgement in (None, JudgementStatus.OWED) else score.judgement
            return (text, ResponseStatus.OK, None, status, self._cause(score.judgement_cause) or NO_JUDGEMENT, ())
        claims = score.revealed
        positions = self._positions([claim.attribute for claim in claims], "revealed")
        if not set(positions) <= set(memory):
            self._problem("an attribute is revealed that was not in memory")
        if any(len(claim.quote) > LONGEST_MESSAGE for claim in claims):
            self._problem(f"a quote {too_long(max(len(c.quote) for c in claims), LONGEST_MESSAGE)}")
        ordered = sorted(zip(positions, claims, strict=True), key=lambda item: item[0])
        full = tuple((at, claim.quote) for at, claim in ordered if claim.strength is Strength.FULL)
        weaker = tuple((at, c.quote, c.strength) for at, c in ordered if c.strength is not Strength.FULL)
        return (text, ResponseStatus.OK, None, JudgementStatus.OK, None, full, weaker)

    def _without_score(self, raw: Mapping[str, Any]) -> tuple[Any, ...]:
        """A sample that ended before its score: by an error of the model or of the judge, or by a limit."""
        output = self.log._object(raw.get("output") or {}, f"{self.member}: output")
        if isinstance(answer := output.get("response_id"), str) and _SIMULATOR_ID.fullmatch(answer):
            self.log.messages_are_simulated()
        choices = output.get("choices") or [{}]
        choice = self.log._object(choices[0] if isinstance(choices, list) else None, f"{self.member}: choices")
        message = self.log._object(choice.get("message") or {}, f"{self.member}: message")
        text = self._message(_plain(message.get("content")))
        error = raw.get("error")
        cause = _limit(raw) or NO_JUDGEMENT
        if isinstance(error, dict):
            cause = self._cause(str(error.get("message") or "")) or "error"
        stopped = _STOPPED.get(str(choice.get("stop_reason")))
        if stopped is not None:
            return self._lost(*stopped)
        if not text.strip():
            return self._lost(ResponseStatus.FAILED, cause)
        self.log.counts["unjudged"] += 1
        return (text, ResponseStatus.OK, None, JudgementStatus.FAILED, cause, ())

    def _lost(self, status: ResponseStatus, cause: str | None) -> tuple[Any, ...]:
        self.log.counts["lost"] += 1
        return ("", status, cause or str(status), JudgementStatus.OWED, None, ())

    def _message(self, value: object) -> str:
        if value is not None and not isinstance(value, str):
            self._problem(f"the message must be text, not {kind(value)}")
        if value is not None and len(value) > LONGEST_MESSAGE:
            self._problem(f"the message {too_long(len(value), LONGEST_MESSAGE)}")
        return value or ""

    def _cause(self, text: str | None) -> str | None:
        """In one line: the message of an error may be anything."""
        return shown(" ".join(text.split()), 300) if text else None

    def _problem(self, what: str) -> NoReturn:
        raise FormatError(f"{self.log.name}: {self.member}: {what}")


def _limit(sample: Mapping[str, Any]) -> str | None:
    """Which limit of Inspect's ended a sample."""
    limit = sample.get("limit")
    return f"stopped by the {shown(limit.get('type'), 20)} limit" if isinstance(limit, dict) else None


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """A member that is packed with zstd, at most one byte more than LARGEST_MEMBER of it. Not by `zipfile_zstd`, which
    unpacks without a bound: a megabyte may hold thirty gigabytes. Raises BadZipFile, and ImportError where `zstandard`
    is not installed."""
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


def _plain(content: object) -> object:
    """The text of a message whose content may come in parts, of which only those of the text count."""
    if not isinstance(content, list):
        return content
    parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(part for part in parts if isinstance(part, str))

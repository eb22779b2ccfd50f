"""Responding: the model under test writes the message, n samples a context, with its memory in the prompt.

Two mitigations can be compared with the plain model. With a gate the model is first asked which memories the task
needs, sample by sample, and only those go into the prompt of the message; samples that chose alike are one request.
With a rewrite the message is written with all memories, and rewritten without what its recipient should not know. Both
belong to the system under test: its memory stays the whole memory, so its flows are those of the plain run. So it is
with a memory system, which stores all attributes. With sessions its lines come first, and the earlier messages behind
them. A message whose gate, draft, ingest or recall went wrong is missing with that cause.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache, partial

import sqlalchemy as sa

from cimemories.evaluation.compositions import restrict
from cimemories.evaluation.judging import (
    Judge,
    JudgeInput,
    Step,
    asked_of_judge,
    at_once,
    judgement_job,
)
from cimemories.evaluation.matcher import match
from cimemories.evaluation.recalling import Ingested, Recall, RecallError, gate_schema, ingest, read_gate
from cimemories.evaluation.reference import Reference
from cimemories.evaluation.sessions import Place
from cimemories.llm import client
from cimemories.llm.capabilities import Server
from cimemories.llm.client import Client, one_line, response_format
from cimemories.llm.executor import Deferred, Job, Together, opening_of
from cimemories.llm.replies import status_of
from cimemories.memory.systems import Question, SystemSpec
from cimemories.model import Attribute, ChatRequest, Context, Profile, ResponseStatus
from cimemories.seeds.prompts import Prompt
from cimemories.store import datasets, judgements, runs
from cimemories.store.calls import Answer
from cimemories.store.datasets import ProfileRecord
from cimemories.store.work import NO_PARAPHRASE

# ---- prompts


def memory_lines(template: Prompt, attributes: Sequence[Attribute]) -> str:
    """One line a memory statement by the template, in the order given, each on one line whatever it holds. template: of
    the kind `memory`; {number} counts from 1, {key} and {domain} are the attribute's."""
    return _lines(template, tuple((item.statement, item.key, item.domain) for item in attributes))


# The contexts of a profile share its memory: without this pricing 490 contexts takes 0.49 s instead of 0.15.
@lru_cache(maxsize=64)
def _lines(template: Prompt, attributes: tuple[tuple[str, str, str], ...]) -> str:
    return "\n".join(
        template.render(statement=one_line(statement), number=str(number), key=one_line(key), domain=one_line(domain))
        for number, (statement, key, domain) in enumerate(attributes, start=1)
    )


# ---- mitigations


class Mitigation(StrEnum):
    NONE = "none"
    GATE = "gate"
    REWRITE = "rewrite"


# ---- respond


RESPOND, GATE, REWRITE, MEMORY, EMBEDDING = "respond", "gate", "rewrite", "memory", "embedding"
PARAPHRASE, GROUND = "paraphrase", "ground"
PREPARING = frozenset({MEMORY, EMBEDDING, GROUND, PARAPHRASE})  # as many as it takes: no part of what a run plans
MEMORY_TOKENS = 4096  # least limit of an answer to a memory system: a summary is longer than a message


@dataclass(frozen=True)
class Wording:
    """The prompts of a run: of the message, of one memory, and of what a mitigation asks before or after it. reference:
    of a run by the authors' settings, which has no template of a memory. earlier: of an earlier message in memory,
    where the run has sessions."""

    respond: Prompt
    lines: Prompt
    before: Prompt | None
    reference: Reference | None = None
    earlier: Prompt | None = None

    @property
    def all(self) -> tuple[Prompt | None, ...]:
        return self.respond, self.lines, self.before, self.earlier


@dataclass(frozen=True)
class MemoryModel:
    """The model that a memory system asks, where it is another than the one under test. embeds: for vectors."""

    client: Client
    model: str
    server: Server
    embeds: bool

    def request(self, question: Question) -> ChatRequest:
        if self.embeds:
            return ChatRequest(self.model, ((client.INPUT, question.text),), {}, None)
        form = response_format(question.schema, self.server.schema) if question.schema else {}
        # As a judge is asked: whatever it says then is the same each time.
        fields = self.server.accepted({self.server.token_limit: MEMORY_TOKENS, "temperature": 0.0, **form})
        return ChatRequest(self.model, (("user", question.text),), fields, None)


@dataclass(frozen=True)
class Writer:
    """How messages are asked for in a run. parameters: further fields of every request, as sent. schema: the form of
    response_format that the server takes. system: what recalls from the memory; None: all of it is in the prompt.
    memory_model: whom that asks; None: the model under test."""

    client: Client
    model: str
    wording: Wording
    parameters: Mapping[str, object]
    seed: int | None
    judges: Sequence[Judge]
    mitigation: Mitigation
    schema: str
    system: SystemSpec | None = None
    memory_model: MemoryModel | None = None

    def request(self, text: str, more: Mapping[str, object] | None = None) -> ChatRequest:
        return ChatRequest(self.model, (("user", text),), {**self.parameters, **(more or {})}, self.seed)


@dataclass(frozen=True)
class Replay:
    """What reaches the prompt of a variant, whatever the memory holds, and its hash. paraphrase: an attribute of it,
    and the prompt by which the model is first asked for another wording of that."""

    prompt: ProfileRecord
    shown: str
    paraphrase: tuple[int, Prompt] | None = None

    def paraphrased(self, text: str) -> Replay:
        """With the wording that the model gave."""
        assert self.paraphrase is not None
        return Replay(_reworded(self.prompt, {self.paraphrase[0]: text}), self.shown)

    @property
    def item(self) -> Attribute:
        """The attribute that is to be paraphrased."""
        assert self.paraphrase is not None
        return self.prompt.profile.attributes[self.prompt.attribute_ids.index(self.paraphrase[0])]


def replay(
    record: ProfileRecord,
    attribute_ids: Sequence[int],
    reworded: Mapping[int, str],
    paraphrase: tuple[int, Prompt] | None = None,
) -> Replay:
    """These attributes of a profile in this order, some with another statement. paraphrase: as of Replay. Raises
    KeyError like `restrict`."""
    prompt = _reworded(restrict(record, attribute_ids), reworded)
    return Replay(prompt, datasets.memory_hash(record.id, attribute_ids), paraphrase)


def _reworded(record: ProfileRecord, reworded: Mapping[int, str]) -> ProfileRecord:
    attributes = tuple(
        replace(item, statement=reworded[attribute]) if attribute in reworded else item
        for attribute, item in zip(record.attribute_ids, record.profile.attributes, strict=True)
    )
    return replace(record, profile=replace(record.profile, attributes=attributes))


@dataclass(frozen=True)
class Failure:
    """Why a memory system recalls nothing for a task. key: of the call that went wrong; None where it was no call."""

    cause: str
    key: str | None = None


@dataclass(frozen=True)
class Slot:
    """Where messages are written: the memory (the profile with its attributes alone), the context, and by sample the
    id of the response that it is to become. recall: what a memory system put into the prompt instead. place: where
    these samples stand in their sessions; None without any. replay: what stands in the prompt of a variant instead;
    messages are judged by the memory all the same. before: by sample, the key of the call that paraphrased it. recalls:
    of sessions with a memory system, by context what that recalls for the user's tasks."""

    memory: ProfileRecord
    context: Context
    responses: Mapping[int, int]
    recall: Recall | None = None
    place: Place | None = None
    replay: Replay | None = None
    before: Mapping[int, str] = field(default_factory=dict)
    recalls: Mapping[int, Recall | Failure] = field(default_factory=dict)

    @classmethod
    def at(
        cls, place: Place, responses: Mapping[int, int], recalls: Mapping[int, Recall | Failure] | None = None
    ) -> Slot:
        return cls(place.task.memory, place.task.context, responses, place=place, recalls=recalls or {})

    @property
    def task(self) -> dict[str, str]:
        return _task(self.context)


def _task(context: Context) -> dict[str, str]:
    """What a prompt says of the context."""
    return {"recipient": one_line(context.recipient), "task": one_line(context.task)}


def message_prompt(wording: Wording, memory: Profile, context: Context, place: Place | None = None) -> tuple[str, str]:
    """What a model is asked for a message, as the one message of a user, and the part of it that is the memory. memory:
    the profile with the attributes in memory alone. place: in the sessions, whose earlier messages stand behind it."""
    if wording.reference is not None:
        return wording.reference.message_prompt(wording.respond, memory, context)
    lines = memory_lines(wording.lines, memory.attributes)
    earlier = place.lines(wording.earlier) if place is not None and wording.earlier is not None else ""
    return wording.respond.render(memories="\n".join(filter(None, (lines, earlier))), **_task(context)), lines


@dataclass(frozen=True)
class Lost:
    """Messages of a slot that cannot be asked for, because its memory system failed; called, it writes them down. They
    are owed again when the run is resumed."""

    slot: Slot
    why: Failure

    def __call__(self, connection: sa.Connection) -> None:
        for response_id in self.slot.responses.values():
            runs.settle(
                connection,
                response_id,
                status=ResponseStatus.FAILED,
                cause=f"memory: {self.why.cause}",
                text=None,
                reasoning=None,
                finish_reason=None,
                call_key=self.why.key,
                earlier=self.slot.place.contexts if self.slot.place is not None else None,
            )


def response_jobs(writer: Writer, slots: Sequence[Slot]) -> Iterator[Job | Lost]:
    """The first calls for slots of one profile: those of `response_job`, or what a memory system asks before them."""
    if writer.system is None:
        yield from (response_job(writer, slot) for slot in slots)
    elif slots:
        yield from _ingested(writer, writer.system, slots, ())


def response_job(writer: Writer, slot: Slot) -> Job:
    """The first call for all samples that are owed in one slot: the message itself, or what a mitigation asks."""
    # Sorted: neighbouring draws can be asked for as one request of several samples.
    samples = tuple(sorted(slot.responses))
    if writer.mitigation == Mitigation.GATE:
        assert writer.wording.before is not None
        attributes = slot.memory.profile.attributes
        listed = client.numbered([a.statement for a in attributes])
        text = writer.wording.before.render(memories=listed, **slot.task)
        request = writer.request(text, response_format(gate_schema(len(attributes)), writer.schema))
        # Each sample has a gate of its own: it is a part of what is drawn, not of what is given.
        return Job(GATE, writer.client, request, samples, _GateStep(writer, slot), opening=opening_of(text, listed))
    if slot.replay is not None and slot.replay.paraphrase is not None:
        prompt = slot.replay.paraphrase[1].render(statement=one_line(slot.replay.item.statement))
        # One draw, so that all messages of the variant hold the same memory.
        request = writer.request(prompt, _room(writer))
        return Job(PARAPHRASE, writer.client, request, (0,), _ParaphraseStep(writer, slot))
    digest = slot.replay.shown if slot.replay else None
    step: Step = _MessageStep(writer, slot, digest, slot.before)
    step = _DraftStep(writer, slot) if writer.mitigation == Mitigation.REWRITE else step
    shown = slot.recall.shown if slot.recall else (slot.replay.prompt if slot.replay else slot.memory).profile
    return _message(writer, slot, shown, samples, step)


def _message(writer: Writer, slot: Slot, shown: Profile, samples: tuple[int, ...], step: Step) -> Job:
    text, lines = message_prompt(writer.wording, shown, slot.context, slot.place)
    return Job(RESPOND, writer.client, writer.request(text), samples, step, opening=opening_of(text, lines))


def _next_in_session(writer: Writer, slot: Slot, outcomes: Mapping[int, Answer]) -> list[Job | Lost]:
    """The next task of each sample, which remembers the message that these answers are; none without sessions."""
    texts = {s: a.content if status_of(a)[0] == ResponseStatus.OK else None for s, a in outcomes.items()}
    return list(_after_messages(writer, slot, texts))


def _after_messages(writer: Writer, slot: Slot, texts: Mapping[int, str | None]) -> Iterator[Job | Lost]:
    """The same by their texts; None: the message is missing."""
    for sample, text in texts.items():
        place = slot.place.after(sample, text) if slot.place is not None else None
        if place is not None:
            # A request for each sample: what was written differs, and so do the prompts.
            yield from _session_job(writer, Slot.at(place, {sample: place.task.owed[sample]}, slot.recalls))


def _session_job(writer: Writer, slot: Slot) -> Iterator[Job | Lost]:
    """The first call where samples stand in their sessions. Where a memory system failed for this task, its messages
    are lost, and the sessions go on without them."""
    assert slot.place is not None
    given = slot.recalls.get(slot.place.task.context_id)
    if isinstance(given, Failure):
        yield Lost(slot, given)
        yield from _after_messages(writer, slot, dict.fromkeys(slot.responses))
    else:
        yield response_job(writer, replace(slot, recall=given))


def _without_lost(connection: sa.Connection, items: Iterable[Job | Lost]) -> list[Job]:
    """The jobs among these; what is lost is written down."""
    there = list(items)
    for lost in (item for item in there if isinstance(item, Lost)):
        lost(connection)
    return _jobs(there)


def _jobs(items: Iterable[Job | Lost]) -> list[Job]:
    return [item for item in items if isinstance(item, Job)]


@dataclass(frozen=True)
class _MessageStep(Together, Step):
    """Messages are written, and judged. shown: hash of what a gate let through. before: by sample, the key of the call
    that came before it."""

    writer: Writer
    slot: Slot
    shown: str | None = None
    before: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def settle_all(
        cls, connection: sa.Connection, settled: Sequence[tuple[_MessageStep, Mapping[int, Answer]]]
    ) -> list[Sequence[Job]]:
        written = [item for step, outcomes in settled for item in step._written(connection, outcomes)]
        # Where the end of a commit was not heard of, it is done again: then a message is there already.
        there = iter(runs.settle_all(connection, written))
        judged: list[judgements.Settled] = []
        following: list[Sequence[Job]] = []
        for step, outcomes in settled:
            jobs: list[Job] = []
            # What was settled by another call has its judgements from that one: judging this text would mix the two.
            ours = {sample: answer for sample, answer in outcomes.items() if next(there)}
            for sample, answer in ours.items():
                if status_of(answer)[0] == ResponseStatus.OK:
                    for judge, read, job in step._judgements(sample, answer):
                        if job is None:
                            judged += at_once(judge, read)
                        else:
                            jobs.append(job)
            following.append([*jobs, *_without_lost(connection, _next_in_session(step.writer, step.slot, ours))])
        judgements.settle_all(connection, judged)
        return following

    def _written(self, connection: sa.Connection, outcomes: Mapping[int, Answer]) -> Iterator[runs.Settled]:
        """What these answers are as messages, in their order."""
        shown, recall = (self.shown, None) if self.slot.recall is None else _keep(connection, self.slot.recall)
        place = self.slot.place
        earlier = None if place is None else json.dumps(list(place.contexts))
        for sample, answer in outcomes.items():
            status, cause = status_of(answer)
            yield runs.Settled(
                self.slot.responses[sample],
                status,
                cause,
                answer.content,
                answer.reasoning,
                answer.finish_reason,
                answer.key,
                self.before.get(sample),
                shown,
                recall,
                earlier,
            )

    def following(self, outcomes: Mapping[int, Answer]) -> Sequence[Job]:
        judgements = [
            job
            for sample, answer in outcomes.items()
            if status_of(answer)[0] == ResponseStatus.OK
            for _, _, job in self._judgements(sample, answer)
            if job is not None
        ]
        return [*judgements, *_jobs(_next_in_session(self.writer, self.slot, outcomes))]

    def made_up(self, message: str) -> tuple[str, ...]:
        place = self.slot.place
        goes_on = place is not None and any(place.after(sample, message) for sample in self.slot.responses)
        return (message,) if goes_on or any(judge.client is not None for judge in self.writer.judges) else ()

    def _judgements(self, sample: int, answer: Answer) -> Iterator[tuple[Judge, JudgeInput, Job | None]]:
        """Each judge, what it reads, and the call that it needs; None where it needs none."""
        slot = self.slot
        read = JudgeInput(slot.responses[sample], slot.memory, slot.context, answer.content or "", answer.reasoning)
        yield from ((judge, read, judgement_job(judge, read)) for judge in self.writer.judges)


def _lose(
    connection: sa.Connection, slot: Slot, sample: int, answer: Answer, status: ResponseStatus, cause: str
) -> None:
    """Write down a message that will never be asked for, because what comes before it went wrong."""
    shown, recall = (None, None) if slot.recall is None else _keep(connection, slot.recall)
    runs.settle(
        connection,
        slot.responses[sample],
        status=status,
        cause=cause,
        text=None,
        reasoning=answer.reasoning,
        finish_reason=answer.finish_reason,
        call_key=answer.key,
        shown=shown,
        recall=recall,
        earlier=slot.place.contexts if slot.place is not None else None,
    )


def _keep(connection: sa.Connection, recall: Recall) -> tuple[str, str]:
    """Write what was recalled; returns the hashes of its attributes and of itself."""
    shown = datasets.keep_memories(connection, recall.record.profile, recall.record.attributes)
    return shown, datasets.keep_recall(connection, recall.record)


@dataclass(frozen=True)
class _GateStep(Step):
    """Messages are asked for with what the gates let through; samples that chose the same memories are one request."""

    writer: Writer
    slot: Slot

    def __call__(self, connection: sa.Connection, outcomes: Mapping[int, Answer]) -> Sequence[Job]:
        chosen, lost = self._read(outcomes)
        for sample, (status, cause) in lost.items():
            _lose(connection, self.slot, sample, outcomes[sample], status, f"gate: {cause}")
        # Written before the messages that name their hash, in the transaction that settles the gate.
        for attribute_ids in chosen:
            datasets.keep_memories(connection, self.slot.memory.id, attribute_ids)
        return [*self._messages(chosen), *self._without(outcomes, lost)]

    def following(self, outcomes: Mapping[int, Answer]) -> Sequence[Job]:
        chosen, lost = self._read(outcomes)
        return [*self._messages(chosen), *self._without(outcomes, lost)]

    def _without(self, outcomes: Mapping[int, Answer], lost: Iterable[int]) -> list[Job]:
        """Where a session goes on without the messages that will never be asked for."""
        none = {sample: replace(outcomes[sample], content=None) for sample in lost}
        return _jobs(_next_in_session(self.writer, self.slot, none))

    def made_up(self, message: str) -> tuple[str, ...]:
        # The longest prompt lets every memory through, the shortest none: between them lies what a gate may choose.
        everything = list(range(1, len(self.slot.memory.attribute_ids) + 1))
        return json.dumps({"needed": everything}), json.dumps({"needed": []})

    def _read(
        self, outcomes: Mapping[int, Answer]
    ) -> tuple[dict[tuple[int, ...], dict[int, str]], dict[int, tuple[ResponseStatus, str | None]]]:
        """What was chosen (attributes -> by sample, the key of the gate's call), and by sample why nothing was."""
        chosen: dict[tuple[int, ...], dict[int, str]] = {}
        lost: dict[int, tuple[ResponseStatus, str | None]] = {}
        attribute_ids = self.slot.memory.attribute_ids
        for sample, answer in outcomes.items():
            status, cause = status_of(answer)
            if status != ResponseStatus.OK:
                lost[sample] = status, cause
                continue
            try:
                positions = read_gate(answer.content, len(attribute_ids))
            except client.AnswerError as error:
                # No memory is guessed for a gate that cannot be read: the message would be about another memory.
                lost[sample] = ResponseStatus.UNPARSED, str(error)
            else:
                # Positions come sorted, so a choice told in another order is the same request.
                chosen.setdefault(tuple(attribute_ids[p] for p in positions), {})[sample] = answer.key
        return chosen, lost

    def _messages(self, chosen: Mapping[tuple[int, ...], Mapping[int, str]]) -> list[Job]:
        writer, slot, jobs = self.writer, self.slot, []
        for attribute_ids, keys in chosen.items():
            step = _MessageStep(writer, slot, datasets.memory_hash(slot.memory.id, attribute_ids), keys)
            shown = restrict(slot.memory, attribute_ids).profile
            jobs.append(_message(writer, slot, shown, tuple(sorted(keys)), step))
        return jobs


@dataclass(frozen=True)
class _DraftStep(Step):
    """Each draft is rewritten."""

    writer: Writer
    slot: Slot

    def __call__(self, connection: sa.Connection, outcomes: Mapping[int, Answer]) -> Sequence[Job]:
        for sample, answer in outcomes.items():
            status, cause = status_of(answer)
            if status != ResponseStatus.OK:
                _lose(connection, self.slot, sample, answer, status, f"draft: {cause}")
        return _without_lost(connection, self._after(outcomes))

    def following(self, outcomes: Mapping[int, Answer]) -> Sequence[Job]:
        return _jobs(self._after(outcomes))

    def _after(self, outcomes: Mapping[int, Answer]) -> Iterator[Job | Lost]:
        writer, slot = self.writer, self.slot
        assert writer.wording.before is not None
        for sample, answer in outcomes.items():
            if status_of(answer)[0] != ResponseStatus.OK:
                yield from _next_in_session(writer, slot, {sample: answer})
            else:
                text = writer.wording.before.render(draft=answer.content or "", **slot.task)
                shown = slot.replay.shown if slot.replay else None
                step = _MessageStep(writer, slot, shown, {sample: answer.key})
                # A request for each sample: drafts differ, and so do the prompts.
                yield Job(REWRITE, writer.client, writer.request(text), (sample,), step)

    def made_up(self, message: str) -> tuple[str, ...]:
        return (message,)


# ---- paraphrases

LONGER = 2  # times the statement, and a sentence more: what says more than that says something else


def bare_wording(text: str | None) -> str:
    """A wording as it goes into the prompt: on one line, without the quotes that models put around it."""
    return one_line((text or "").strip().strip('"“”'))


def read_paraphrase(item: Attribute, text: str | None) -> str:
    """The wording that a model gave for a memory, on one line. Raises client.AnswerError where it does not state the
    value by the rules of the matcher, repeats the statement, or goes on for longer than another wording of it would."""
    paraphrase = bare_wording(text)
    if one_line(item.statement).casefold() == paraphrase.casefold():
        raise client.AnswerError("it repeats the statement")
    if not match((item,), paraphrase):
        raise client.AnswerError(f"it does not state the value ({item.value})")
    if len(paraphrase) > LONGER * len(item.statement) + 80:
        raise client.AnswerError("it is much longer than the statement")
    return paraphrase


@dataclass(frozen=True)
class _ParaphraseStep(Step):
    """Messages are asked for with the memory in the words that the model gave; without such words they are lost."""

    writer: Writer
    slot: Slot

    def __call__(self, connection: sa.Connection, outcomes: Mapping[int, Answer]) -> Sequence[Job]:
        for answer in outcomes.values():  # of the one draw
            read = self._read(answer)
            if not isinstance(read, str):
                for sample in self.slot.responses:
                    _lose(connection, self.slot, sample, answer, read[0], f"{NO_PARAPHRASE}{read[1]}")
        return self.following(outcomes)

    def following(self, outcomes: Mapping[int, Answer]) -> Sequence[Job]:
        assert self.slot.replay is not None
        jobs = []
        for answer in outcomes.values():
            if isinstance(read := self._read(answer), str):
                keys = dict.fromkeys(self.slot.responses, answer.key)
                slot = replace(self.slot, replay=self.slot.replay.paraphrased(read), before=keys)
                jobs.append(response_job(self.writer, slot))
        return jobs

    def made_up(self, message: str) -> tuple[str, ...]:
        assert self.slot.replay is not None
        # Planned only where the statement itself states its value.
        return (f"So: {self.slot.replay.item.statement}",)

    def _read(self, answer: Answer) -> str | tuple[ResponseStatus, str | None]:
        status, cause = status_of(answer)
        if status != ResponseStatus.OK:
            return status, cause
        assert self.slot.replay is not None
        try:
            return read_paraphrase(self.slot.replay.item, answer.content)
        except client.AnswerError as error:
            return ResponseStatus.UNPARSED, str(error)


# ---- memory systems


def _ingested(
    writer: Writer, system: SystemSpec, slots: Sequence[Slot], answers: tuple[str, ...], key: str | None = None
) -> Iterator[Job | Lost]:
    """What comes after these answers to a system's ingest, the last of the call `key`: its next question, or the slots
    with what it recalls."""
    try:
        took = ingest(system, slots[0].memory, answers)
    except RecallError as error:
        yield from _all_failed(writer, slots, Failure(str(error), key))
        return
    if isinstance(took, Question):
        yield _question(writer, took, _QuestionStep(writer, system, slots, took, answers))
    elif slots[0].place is not None:
        yield from _recalled_for_sessions(writer, slots, took, {}, ())
    else:
        for slot in slots:
            yield from _recalled(writer, slot, took, ())


def _all_failed(writer: Writer, slots: Sequence[Slot], why: Failure) -> Iterator[Job | Lost]:
    """Nothing is recalled for any of these slots, nor for the tasks that come after them in a session."""
    for slot in slots:
        if slot.place is None:
            yield Lost(slot, why)
        else:
            recalls = {task.context_id: why for task in slot.place.tasks}
            yield from _session_job(writer, replace(slot, recalls=recalls))


def _bare(writer: Writer, memory: ProfileRecord, context: Context) -> str:
    return message_prompt(writer.wording, replace(memory.profile, attributes=()), context)[0]


def _recalled(
    writer: Writer, slot: Slot, system: Ingested, answers: tuple[str, ...], key: str | None = None
) -> Iterator[Job | Lost]:
    """What comes after these answers to a recall for one slot."""
    try:
        given = system.recall(slot.context, _bare(writer, slot.memory, slot.context), answers)
    except RecallError as error:
        yield Lost(slot, Failure(str(error), key))
        return
    if isinstance(given, Question):
        yield _question(writer, given, _QuestionStep(writer, system.spec, (slot,), given, answers, system))
    else:
        yield response_job(writer, replace(slot, recall=given))


def _recalled_for_sessions(
    writer: Writer,
    slots: Sequence[Slot],
    system: Ingested,
    recalls: Mapping[int, Recall | Failure],
    answers: tuple[str, ...],
    key: str | None = None,
) -> Iterator[Job | Lost]:
    """What is recalled for each task of a user, before the first of them is begun: it depends on the task and not on
    what was written before, so all samples share it, and a question is asked once. recalls: by context, what is known
    already; answers: to the first task that is not. The slots follow once all are known."""
    assert slots[0].place is not None
    known = dict(recalls)
    for task in slots[0].place.tasks:
        if task.context_id in known or not task.owed:
            continue
        try:
            given = system.recall(task.context, _bare(writer, task.memory, task.context), answers)
        except RecallError as error:
            known[task.context_id] = Failure(str(error), key)
        else:
            if isinstance(given, Question):
                step = _QuestionStep(writer, system.spec, slots, given, answers, system, known, task.context_id)
                yield _question(writer, given, step)
                return
            known[task.context_id] = given
        answers, key = (), None
    for slot in slots:
        yield from _session_job(writer, replace(slot, recalls=known))


def _question(writer: Writer, question: Question, step: Step) -> Job:
    if question.grounds:
        return asked_of_judge(GROUND, writer.judges, question.text, question.schema or {}, step)
    if writer.memory_model is not None:
        kind = EMBEDDING if writer.memory_model.embeds else MEMORY
        return Job(kind, writer.memory_model.client, writer.memory_model.request(question), (0,), step)
    form = response_format(question.schema, writer.schema) if question.schema else {}
    # One draw: what is recalled is the same for all samples of a message.
    return Job(MEMORY, writer.client, writer.request(question.text, {**_room(writer), **form}), (0,), step)


def _room(writer: Writer) -> dict[str, object]:
    """A limit of tokens in which a model can think before it answers, where the run sets a lower one."""
    limits = ("max_tokens", "max_completion_tokens")
    return {n: MEMORY_TOKENS for n, v in writer.parameters.items() if n in limits and int(str(v)) < MEMORY_TOKENS}


@dataclass(frozen=True)
class _QuestionStep(Step):
    """A memory system goes on with the answer to its question. slots: whose messages rest on it. recalls: of sessions,
    what is recalled for other tasks, by context; the question is about the task in `context`."""

    writer: Writer
    system: SystemSpec
    slots: Sequence[Slot]
    question: Question
    answers: tuple[str, ...]
    ingested: Ingested | None = None  # None: the question was asked by the ingest
    recalls: Mapping[int, Recall | Failure] = field(default_factory=dict)
    context: int | None = None

    def __call__(self, connection: sa.Connection, outcomes: Mapping[int, Answer]) -> Sequence[Deferred]:
        # Not here: it may take long, and this transaction keeps everybody else from writing.
        return [Deferred(partial(self._after, outcomes))]

    def following(self, outcomes: Mapping[int, Answer]) -> Sequence[Job]:
        return _jobs(self._after(outcomes))

    def made_up(self, message: str) -> tuple[str, ...]:
        return tuple(self.question.made_up)

    def _after(self, outcomes: Mapping[int, Answer]) -> Iterator[Job | Lost]:
        for answer in outcomes.values():  # of the one draw
            status, cause = status_of(answer)
            failed = None if status == ResponseStatus.OK else Failure(str(cause), answer.key)
            answers = () if failed else (*self.answers, answer.content or "")
            writer, slots, key = self.writer, self.slots, answer.key
            if self.ingested is not None and self.context is not None:
                recalls = {**self.recalls, self.context: failed} if failed else self.recalls
                yield from _recalled_for_sessions(writer, slots, self.ingested, recalls, answers, key)
            elif failed:
                yield from _all_failed(writer, slots, failed)
            elif self.ingested is None:
                yield from _ingested(writer, self.system, slots, answers, key)
            else:
                for slot in slots:
                    yield from _recalled(writer, slot, self.ingested, answers, key)

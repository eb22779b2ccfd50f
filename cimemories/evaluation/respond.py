"""Responding: the model under test writes the message, n samples a context, with its memory in the prompt.

An assistant is a script (llm/scripts.py): `Prompted` sends the memory and the task, and others wrap it. `Gate` first
asks the model which memories the task needs, sample by sample, and only those go into the prompt. `Rewrite` has the
message written with all memories, and rewritten without what its recipient should not know. Both belong to the system
under test: its memory stays the whole memory, so its flows are those of the plain run. So it is with a memory system,
which stores all attributes. In sessions its lines come first, and the earlier messages behind them. A message whose
gate, draft, ingest or recall went wrong is missing with that cause.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Protocol, TypeVar

import sqlalchemy as sa

from cimemories.evaluation.compositions import restrict
from cimemories.evaluation.judging import Judge, JudgeInput, judge_ask, judging, tools_written
from cimemories.evaluation.matcher import cached_by_identity
from cimemories.evaluation.recalling import Ingested, Recall, RecallError, gate_schema, ingesting, read_gate
from cimemories.evaluation.reference import Reference
from cimemories.evaluation.sessions import Sessions, Written
from cimemories.evaluation.spec import MODEL, RunSpec, installed_assistant
from cimemories.formats.outcomes import OutcomeError, as_read, read_outcome, read_sent
from cimemories.llm import client, replies
from cimemories.llm.capabilities import Server
from cimemories.llm.client import Client
from cimemories.llm.executor import opening_of
from cimemories.llm.replies import one_line, response_format, status_of
from cimemories.llm.scripts import WRITTEN, Ask, Asking, Branch, Keep, Missing, Script, Start, required
from cimemories.memory.systems import Question, SystemSpec
from cimemories.model import Attribute, Channel, ChatRequest, Context, Profile, ResponseStatus
from cimemories.seeds.prompts import Prompt
from cimemories.store import datasets, runs
from cimemories.store.calls import KEEP, TASK, Answer
from cimemories.store.datasets import ProfileRecord, memory_hash
from cimemories.store.engine import StoreError

T = TypeVar("T")

# ---- prompts


# The contexts of a profile share its memory.
@cached_by_identity
def memory_lines(template: Prompt, attributes: tuple[Attribute, ...]) -> str:
    """Return one line a memory statement by the template. template: of the kind `memory`; {number} counts from 1, {key}
    and {domain} are the attribute's."""
    return "\n".join(
        template.render(
            statement=one_line(item.statement), number=str(number), key=one_line(item.key), domain=one_line(item.domain)
        )
        for number, item in enumerate(attributes, start=1)
    )


# ---- respond


RESPOND, GATE, REWRITE, REMEMBER, EMBEDDING = "respond", "gate", "rewrite", "memory", "embedding"
ASSISTANT = "assistant"
GROUND = "ground"
PREPARING = frozenset({ASSISTANT, REMEMBER, EMBEDDING, GROUND})  # as many as it takes: no part of what a run plans
MEMORY_TOKENS = 4096  # least limit of an answer to a memory system: a summary is longer than a message


@dataclass(frozen=True)
class Wording:
    """The prompts of a run: of the message, of one memory, and of a mitigation. reference: of a run by the authors'
    settings, which has no template of a memory. earlier: of an earlier message, in sessions."""

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
    """Another model than the one under test that a memory system asks. embeds: for vectors."""

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
    """All that writes the messages of a run. parameters: further fields of every request. schema: the form of
    response_format that the server takes. system: the memory system; None: all memories are in the prompt.
    memory_model: the model that it asks; None: the model under test."""

    client: Client
    model: str
    wording: Wording
    parameters: Mapping[str, object]
    seed: int | None
    judges: Sequence[Judge]
    spec: RunSpec
    schema: str
    system: SystemSpec | None = None
    memory_model: MemoryModel | None = None

    @property
    def sessions(self) -> Sessions | None:
        return self.spec.remembered

    def request(self, text: str, more: Mapping[str, object] | None = None) -> ChatRequest:
        return ChatRequest(self.model, (("user", text),), {**self.parameters, **(more or {})}, self.seed)


def replay(record: ProfileRecord, attribute_ids: Sequence[int], reworded: Mapping[int, str]) -> ProfileRecord:
    """Return these attributes of a profile in this order, some with another statement. Raises KeyError like
    `restrict`."""
    shown = restrict(record, attribute_ids)
    attributes = tuple(
        replace(item, statement=reworded.get(attribute, item.statement))
        for attribute, item in zip(shown.attribute_ids, shown.profile.attributes, strict=True)
    )
    return replace(shown, profile=replace(shown.profile, attributes=attributes))


@dataclass(frozen=True)
class Slot:
    """The messages to be written for one task. memory: the profile with the attributes in memory alone; responses: by
    sample the id of the response. texts: in sessions, by sample the messages that are written. replay: stands in the
    prompt of a variant instead of the memory (`replay`), by which its messages are still judged."""

    memory: ProfileRecord
    context_id: int
    responses: Mapping[int, int]
    texts: Mapping[int, str] = field(default_factory=dict)
    replay: ProfileRecord | None = None

    @property
    def context(self) -> Context:
        return self.memory.profile.contexts[self.memory.context_ids.index(self.context_id)]


def message_prompt(
    wording: Wording, memory: Profile, context: Context, earlier: Sequence[Written] = ()
) -> tuple[str, str]:
    """Return the prompt for a message, and the part of it that is the memory. memory: the profile with the attributes
    in memory alone. earlier: the messages of its session, which stand behind it."""
    if wording.reference is not None:
        return wording.reference.message_prompt(wording.respond, memory, context)
    lines = memory_lines(wording.lines, memory.attributes)
    template = wording.earlier
    behind = "\n".join(item.line(template) for item in earlier) if template is not None else ""
    return wording.respond.render(memories="\n".join(filter(None, (lines, behind))), **_told(context)), lines


def _told(context: Context) -> dict[str, str]:
    """Return what a prompt says of the context."""
    return {"recipient": one_line(context.recipient), "task": one_line(context.task)}


# ---- assistants


@dataclass(frozen=True, eq=False)
class Memory:
    """The memory that an assistant may use. record: all of its attributes. prompt_profile: the lines for the prompt, as
    attributes; digest: the hash of those, None if they are all of the memory."""

    record: ProfileRecord
    prompt_profile: Profile
    digest: str | None = None

    @classmethod
    def of(cls, slot: Slot, recall: Recall | None) -> Memory:
        """Return the memory in a slot: what a memory system recalled, what a variant has, or all of it."""
        if recall is not None:
            return cls(slot.memory, recall.prompt_profile)
        if slot.replay is not None:
            return cls(slot.memory, slot.replay.profile, memory_hash(slot.replay.id, slot.replay.attribute_ids))
        return cls(slot.memory, slot.memory.profile)


@dataclass(frozen=True, eq=False)
class Task:
    """A task to write a message for. earlier: the messages of its session that are remembered. is_last: no other task
    of the session follows."""

    context: Context
    earlier: tuple[Written, ...] = ()
    is_last: bool = True


@dataclass(frozen=True)
class Message:
    """The answer that is the message, or failed. memory_digest: Memory.digest; before: the key of the call before it;
    channels: as of runs.Settled."""

    answer: Answer
    memory_digest: str | None
    before: str | None = None
    channels: str | None = None


class Assistant(Protocol):
    def write(self, task: Task, memory: Memory) -> Asking[Message]:
        """Write the message for a task. Raises Missing if it cannot be asked for."""


@dataclass(frozen=True, eq=False)
class Prompted:
    """The model with the memory in its prompt."""

    writer: Writer

    def write(self, task: Task, memory: Memory) -> Asking[Message]:
        return Message((yield _first(self, task, memory)), memory.digest)

    def ask(self, task: Task, memory: Memory) -> Ask:
        text, lines = message_prompt(self.writer.wording, memory.prompt_profile, task.context, task.earlier)
        request = self.writer.request(text)
        return Ask(RESPOND, self.writer.client, request, (WRITTEN,), opening=opening_of(text, lines))


@dataclass(frozen=True, eq=False)
class Gate:
    """Asks which memories the task needs; only those reach the prompt of the message."""

    writer: Writer
    inner: Assistant

    def write(self, task: Task, memory: Memory) -> Asking[Message]:
        ids = memory.record.attribute_ids
        answer = yield _first(self, task, memory)
        try:
            chosen = [ids[position] for position in read_gate(required(answer, "gate"), len(ids))]
        except replies.AnswerError as error:
            # No memory is guessed for a gate that cannot be read: the message would be about another memory.
            raise Missing("gate", answer, ResponseStatus.UNPARSED, str(error)) from None
        yield Keep(_keep_memories, lambda: (memory.record.id, chosen))
        shown = restrict(memory.record, chosen).profile
        digest = memory_hash(memory.record.id, chosen)
        message = yield from self.inner.write(task, Memory(memory.record, shown, digest))
        return replace(message, before=answer.key)

    def ask(self, task: Task, memory: Memory) -> Ask:
        writer, template, attributes = self.writer, self.writer.wording.before, memory.record.profile.attributes
        assert template is not None
        listed = replies.numbered([a.statement for a in attributes])
        text = template.render(memories=listed, **_told(task.context))
        request = writer.request(text, response_format(gate_schema(len(attributes)), writer.schema))
        # The longest prompt lets every memory through, the shortest none: between them lies what a gate may choose.
        placeholders = json.dumps({"needed": list(range(1, len(attributes) + 1))}), json.dumps({"needed": []})
        return Ask(GATE, writer.client, request, placeholders, opening=opening_of(text, listed))


@lru_cache(maxsize=8)
def _first(assistant: Prompted | Gate | Served, task: Task, memory: Memory) -> Ask:
    """Return the first question of all samples of a slot, made once for them."""
    return assistant.ask(task, memory)


@dataclass(frozen=True)
class Rewrite:
    """Has a draft rewritten."""

    writer: Writer
    inner: Assistant

    def write(self, task: Task, memory: Memory) -> Asking[Message]:
        draft = yield from self.inner.write(task, memory)
        template = self.writer.wording.before
        assert template is not None
        text = template.render(draft=required(draft.answer, "draft"), **_told(task.context))
        answer = yield Ask(REWRITE, self.writer.client, self.writer.request(text), (WRITTEN,))
        return Message(answer, draft.memory_digest, draft.answer.key)


@dataclass(frozen=True, eq=False)
class Served:
    """A service or a program, which is given memories and task."""

    writer: Writer

    def write(self, task: Task, memory: Memory) -> Asking[Message]:
        answer = yield _first(self, task, memory)
        if not answer.ok:
            return Message(answer, memory.digest)
        try:
            outcome = read_outcome(replies.read_object(answer.content))
        except (replies.AnswerError, OutcomeError) as error:
            raise Missing("outcome", answer, ResponseStatus.UNPARSED, str(error)) from None
        written = replace(answer, content=outcome.message, reasoning=outcome.reasoning)
        return Message(written, memory.digest, channels=outcome.recorded)

    def ask(self, task: Task, memory: Memory) -> Ask:
        memories = [item.statement for item in memory.prompt_profile.attributes]
        told: dict[str, object] = {"memories": memories}
        opening = json.dumps(told, ensure_ascii=False)[:-1]
        if task.earlier:
            told["earlier"] = [{"recipient": item.recipient, "message": item.text} for item in task.earlier]
        told |= {"recipient": task.context.recipient, "task": task.context.task}
        told |= {} if task.is_last else {KEEP: True}
        text = json.dumps(told, ensure_ascii=False)
        request = ChatRequest(self.writer.model, ((TASK, text),), {}, None)
        placeholder = json.dumps({"message": WRITTEN})
        return Ask(RESPOND, self.writer.client, request, (placeholder,), opening=opening_of(text, opening))


@dataclass(frozen=True)
class Installed:
    """An assistant of another package, which leaves its questions to the run: each is asked of the model under test,
    and recorded."""

    writer: Writer

    def write(self, task: Task, memory: Memory) -> Asking[Message]:
        writer, context = self.writer, task.context
        answer: Answer | None = None
        memories = [item.statement for item in memory.prompt_profile.attributes]
        script = installed_assistant(writer.spec.assistant)().write(memories, context.task, context.recipient)
        text = None
        while True:
            try:
                question = script.send(text)
            except StopIteration as end:
                result = end.value
                break
            except Exception as error:  # another package may raise anything
                cause = f"{type(error).__name__}: {error}"
                if answer is None:
                    raise StoreError(f"the assistant '{writer.spec.assistant}' failed: {cause}") from error
                raise Missing("assistant", answer, ResponseStatus.UNPARSED, cause) from error
            form = response_format(question.schema, writer.schema) if question.schema else {}
            request, placeholders = writer.request(question.text, form), tuple(question.placeholders) or (WRITTEN,)
            before = answer.key if answer else None
            answer = yield Ask(ASSISTANT, writer.client, request, placeholders)
            text = required(answer, "assistant")
        if answer is None:
            raise StoreError(f"the assistant '{writer.spec.assistant}' returned a message without asking the model.")
        try:
            outcome = read_outcome({"message": result} if isinstance(result, str) else result)
        except OutcomeError as error:
            raise Missing("outcome", answer, ResponseStatus.UNPARSED, str(error)) from None
        written = replace(answer, content=outcome.message, reasoning=outcome.reasoning)
        return Message(written, memory.digest, before, outcome.recorded)


def assistant(writer: Writer) -> Assistant:
    """Return the assistant of a run."""
    if writer.spec.is_served:
        return Served(writer)
    if writer.spec.assistant != MODEL:
        return Installed(writer)
    prompted = Prompted(writer)
    if writer.spec.mitigation == "gate":
        return Gate(writer, prompted)
    return Rewrite(writer, prompted) if writer.spec.mitigation == "rewrite" else prompted


# ---- messages


def message_branches(writer: Writer, slots: Sequence[Slot]) -> Iterator[list[Branch]]:
    """Yield the scripts that write the messages of these slots of one profile, in groups to be begun together. In
    sessions the slots are the tasks in their order."""
    if writer.system is not None:
        if any(slot.responses for slot in slots):
            yield [Branch(partial(_remembering, writer, writer.system, slots), slow=True)]
    elif writer.sessions is not None:
        yield _sessions(writer, writer.sessions, slots, {})
    else:
        yield from (_slot_branches(writer, slot, None) for slot in slots)


def _slot_branches(writer: Writer, slot: Slot, recall: Recall | None) -> list[Branch]:
    writes, memory, task = assistant(writer), Memory.of(slot, recall), Task(slot.context)
    return [
        Branch(partial(_responding, writer, writes, slot, sample, memory, task, recall), sample)
        for sample in sorted(slot.responses)
    ]


def _responding(
    writer: Writer, writes: Assistant, slot: Slot, sample: int, memory: Memory, task: Task, recall: Recall | None
) -> Asking[tuple[bool, str | None]]:
    """Write a message, record it, and have it judged. Returns whether it was recorded, and its text or None."""
    earlier = _earlier(writer, task)

    def row(
        status: ResponseStatus, cause: str | None, answer: Answer, message: Message | None = None
    ) -> tuple[runs.Settled, Recall | None]:
        text = None if message is None else answer.content
        how = text, answer.reasoning, answer.finish_reason, answer.key
        settled = runs.Settled(slot.responses[sample], status, cause, *how, earlier=earlier)
        if message is not None:
            settled = replace(settled, before=message.before, shown=message.memory_digest, channels=message.channels)
        return settled, recall

    try:
        message = yield from writes.write(task, memory)
    except Missing as missing:
        return (yield Keep(_keep_messages, partial(row, missing.status, str(missing), missing.answer))), None
    answer, (status, cause) = message.answer, status_of(message.answer)
    written = yield Keep(_keep_messages, partial(row, status, cause, answer, message))
    if status != ResponseStatus.OK:
        return written, None
    # What was settled by another call has its judgements from that one: judging this text would mix the two.
    if written:
        sent = read_sent(message.channels)
        texts: dict[str, str | None] = {
            Channel.MESSAGE: answer.content,
            Channel.REASONING: answer.reasoning,
            Channel.MEMORY: as_read(sent, Channel.MEMORY),
        }
        response = slot.responses[sample]
        read = JudgeInput(response, slot.memory, slot.context, texts, as_read(sent, Channel.TOOLS))
        of_tools = [judge for judge in writer.judges if judge.channel == Channel.TOOLS]
        yield Start([Branch(partial(judging, judge, read)) for judge in writer.judges if judge not in of_tools])
        if of_tools:
            reads = yield Keep(tools_written, lambda: (response, of_tools))
            # A plan records nothing and gets True.
            yield Start([Branch(partial(judging, *item)) for item in (reads if isinstance(reads, list) else ())])
    return written, answer.content


def _sessions(
    writer: Writer, sessions: Sessions, slots: Sequence[Slot], recalls: Mapping[int, Recall | RecallError]
) -> list[Branch]:
    samples = sorted({sample for slot in slots for sample in slot.responses})
    return [Branch(partial(_session, writer, sessions, slots, sample, recalls), sample) for sample in samples]


def _session(
    writer: Writer,
    sessions: Sessions,
    slots: Sequence[Slot],
    sample: int,
    recalls: Mapping[int, Recall | RecallError],
) -> Script:
    """Write the messages that a sample of a user owes, one after the other. recalls: by the position of the task. A
    missing message is not remembered, and the session goes on."""
    written: tuple[Written, ...] = ()
    last = max(position for position, slot in enumerate(slots) if sample in slot.responses)
    for position, slot in enumerate(slots[: last + 1]):
        text = slot.texts.get(sample)
        if sample in slot.responses:
            recall = recalls.get(position)
            task = Task(slot.context, sessions.remembered(written), is_last=position == last)
            if isinstance(recall, RecallError):
                yield from _lost(writer, slot, [sample], recall, task)
            else:
                memory, writes = Memory.of(slot, recall), assistant(writer)
                ours, text = yield from _responding(writer, writes, slot, sample, memory, task, recall)
                if not ours:
                    return  # another process writes this session
        if text is not None and text.strip():
            written = (*written, Written(slot.context_id, slot.context.recipient, text))


def _earlier(writer: Writer, task: Task) -> str | None:
    """Return the contexts of the remembered messages, as a response has them; None in a run without sessions."""
    return None if writer.sessions is None else json.dumps([item.context for item in task.earlier])


def _keep_messages(connection: sa.Connection, rows: Sequence[tuple[runs.Settled, Recall | None]]) -> list[bool]:
    """Write messages by one statement. Returns for each whether the response rests on its call now."""
    recalls = {id(recall): recall for _, recall in rows if recall is not None}
    hashes = {
        key: (
            datasets.keep_memories(connection, recall.record.profile, recall.record.attributes),
            datasets.keep_recall(connection, recall.record),
        )
        for key, recall in recalls.items()
    }
    settled = []
    for item, recall in rows:
        shown, recalled = hashes.get(id(recall), (item.shown, None))
        settled.append(replace(item, shown=shown, recall=recalled))
    return runs.settle_all(connection, settled)


def record_unasked(connection: sa.Connection, rows: Sequence[runs.Settled]) -> list[bool]:
    """Write messages that were never asked for. A function of its own, by which a plan tells them from others."""
    return runs.settle_all(connection, rows)


def _keep_memories(connection: sa.Connection, rows: Sequence[tuple[int, Sequence[int]]]) -> None:
    for profile, attribute_ids in rows:
        datasets.keep_memories(connection, profile, attribute_ids)


# ---- memory systems


def _remembering(writer: Writer, spec: SystemSpec, slots: Sequence[Slot]) -> Script:
    """Have a memory system take in a profile and recall for each task, and the messages written. A recall depends on
    the task alone, so that all samples share it."""
    try:
        system: Ingested | RecallError = yield from _answered(writer, ingesting(spec, slots[0].memory))
    except RecallError as error:
        system = error
    if writer.sessions is None:
        for slot in slots:
            yield Start([Branch(partial(_recalling, writer, system, slot), slow=True)])
        return
    recalls: dict[int, Recall | RecallError] = {}
    for position, slot in enumerate(slots):
        if slot.responses:
            recalls[position] = yield from _recalled(writer, system, slot)
    yield Start(_sessions(writer, writer.sessions, slots, recalls))


def _recalling(writer: Writer, system: Ingested | RecallError, slot: Slot) -> Script:
    recall = yield from _recalled(writer, system, slot)
    if isinstance(recall, RecallError):
        yield from _lost(writer, slot, slot.responses, recall, Task(slot.context))
    else:
        yield Start(_slot_branches(writer, slot, recall))


def _recalled(writer: Writer, system: Ingested | RecallError, slot: Slot) -> Asking[Recall | RecallError]:
    if isinstance(system, RecallError):
        return system
    bare = message_prompt(writer.wording, replace(slot.memory.profile, attributes=()), slot.context)[0]
    try:
        return (yield from _answered(writer, system.recalling(slot.context, bare)))
    except RecallError as error:
        return error


def _lost(writer: Writer, slot: Slot, samples: Iterable[int], why: RecallError, task: Task) -> Asking[None]:
    """Record messages that cannot be asked for because the memory system failed; a resume owes them again."""
    earlier = _earlier(writer, task)
    for sample in samples:
        row = slot.responses[sample], ResponseStatus.FAILED, f"memory: {why}", None, None, None, why.key
        yield Keep(record_unasked, partial(runs.Settled, *row, earlier=earlier))


def _answered(writer: Writer, system: Generator[Question, str, T]) -> Asking[T]:
    """Ask the questions of a memory system. Raises RecallError, with the key of the last call that it asked for."""
    key = None
    try:
        question = next(system)
        while True:
            answer = yield _question(writer, question)
            key = answer.key
            status, cause = status_of(answer)
            if status != ResponseStatus.OK:
                system.close()
                raise RecallError(str(cause))
            question = system.send(answer.content or "")
    except StopIteration as end:
        result: T = end.value
        return result
    except RecallError as error:
        error.key = key
        raise


def _question(writer: Writer, question: Question) -> Ask:
    placeholders = tuple(question.placeholders)
    if question.grounds:
        return judge_ask(GROUND, writer.judges, question.text, question.schema or {}, placeholders)
    if writer.memory_model is not None:
        kind = EMBEDDING if writer.memory_model.embeds else REMEMBER
        request = writer.memory_model.request(question)
        return Ask(kind, writer.memory_model.client, request, placeholders, draw=0)
    form = response_format(question.schema, writer.schema) if question.schema else {}
    # One draw: what is recalled is the same for all samples of a message.
    request = writer.request(question.text, {**_room(writer), **form})
    return Ask(REMEMBER, writer.client, request, placeholders, draw=0)


def _room(writer: Writer) -> dict[str, object]:
    """Return a limit of tokens in which a model can think before it answers, if the run sets a lower one."""
    limits = ("max_tokens", "max_completion_tokens")
    return {n: MEMORY_TOKENS for n, v in writer.parameters.items() if n in limits and int(str(v)) < MEMORY_TOKENS}

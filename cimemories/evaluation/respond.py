"""Responding: the model under test writes the message, n samples a context, with its memory in the prompt.

With a gate the model first chooses from its memory, sample by sample; samples that chose alike are one request. With a
rewrite every draft is followed by a call of its own. What came before a message is kept with it, and a message whose
gate or draft went wrong is missing with that cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from cimemories.evaluation.compositions import part
from cimemories.evaluation.judge import response_format
from cimemories.evaluation.judging import Judge, Read, judge_response
from cimemories.evaluation.memory import memory_lines
from cimemories.evaluation.mitigations import Mitigation, gate_schema, read_gate
from cimemories.llm import answers
from cimemories.llm.client import Client
from cimemories.llm.executor import Job
from cimemories.llm.openings import opening_of
from cimemories.model import ChatRequest, Context, ResponseStatus
from cimemories.seeds import Prompt
from cimemories.store import memories, runs
from cimemories.store.calls import Answer
from cimemories.store.datasets import ProfileRecord

_REFUSALS = frozenset({"content_filter", "refusal"})
RESPOND, GATE, REWRITE = "respond", "gate", "rewrite"


@dataclass(frozen=True)
class Writer:
    """How messages are asked for in a run. parameters: further fields of every request, as sent. gate, rewrite: the
    prompts of a mitigation, where there is one; schema: the form of response_format that the server takes."""

    client: Client
    model: str
    prompt: Prompt
    lines: Prompt
    parameters: Mapping[str, object]
    seed: int | None
    judges: Sequence[Judge]
    mitigation: Mitigation = Mitigation.NONE
    before: Prompt | None = None
    schema: str = "json_schema"

    def request(self, text: str, more: Mapping[str, object] | None = None) -> ChatRequest:
        return ChatRequest(self.model, (("user", text),), {**self.parameters, **(more or {})}, self.seed)


@dataclass(frozen=True)
class Place:
    """Where messages are written: what is held there (the profile with the memory's attributes alone), the context, and
    the response that each sample is to become."""

    held: ProfileRecord
    context: Context
    responses: Mapping[int, int]

    def words(self) -> dict[str, str]:
        return {
            "recipient": answers.one_line(self.context.recipient),
            "task": answers.one_line(self.context.task),
        }


def response_job(writer: Writer, place: Place) -> Job:
    """The first call for all samples that are owed in one place: the message itself, or what a mitigation asks."""
    if writer.mitigation == Mitigation.GATE and writer.before is not None:
        attributes = place.held.profile.attributes
        memories_shown = answers.numbered([a.statement for a in attributes])
        text = writer.before.render(memories=memories_shown, **place.words())
        request = writer.request(text, response_format(gate_schema(len(attributes)), writer.schema))
        samples, opening = tuple(sorted(place.responses)), opening_of(text, memories_shown)
        return Job(GATE, writer.client, request, samples, _SettleGate(writer, place), opening=opening)
    settle = _SettleDraft(writer, place) if writer.mitigation == Mitigation.REWRITE else _Settle(writer, place)
    return _message(writer, place, place.held, tuple(sorted(place.responses)), settle)


def _message(
    writer: Writer, place: Place, shown: ProfileRecord, samples: tuple[int, ...], settle: _Settle | _SettleDraft
) -> Job:
    lines = memory_lines(writer.lines, shown.profile.attributes)
    text = writer.prompt.render(memories=lines, **place.words())
    return Job(RESPOND, writer.client, writer.request(text), samples, settle, opening=opening_of(text, lines))


def response_status(answer: Answer) -> tuple[ResponseStatus, str | None]:
    """What an answer is as a response, and why where it cannot be judged."""
    if not answer.ok:
        return ResponseStatus.FAILED, answer.status
    if answers.truncated(answer):
        return ResponseStatus.TRUNCATED, "cut at the token limit"
    if answer.finish_reason in _REFUSALS:
        return ResponseStatus.REFUSED, "refused by the server"
    if not (answer.content or "").strip():
        return ResponseStatus.EMPTY, "no text came back"
    return ResponseStatus.OK, None


@dataclass(frozen=True)
class _Settle:
    """Writes messages, and has them judged. before: by sample, the key of the call that came before it."""

    writer: Writer
    place: Place
    shown: str | None = None
    before: Mapping[int, str] = field(default_factory=dict)

    def __call__(self, connection: sa.Connection, outcomes: Mapping[int, Answer]) -> Sequence[Job]:
        following: list[Job] = []
        for sample, answer in outcomes.items():
            status, cause = response_status(answer)
            response_id = self.place.responses[sample]
            fresh = runs.settle(
                connection,
                response_id,
                status=status,
                cause=cause,
                text=answer.content,
                reasoning=answer.reasoning,
                finish_reason=answer.finish_reason,
                call_key=answer.key,
                before=self.before.get(sample),
                shown=self.shown,
            )
            # Where the end of a commit was not heard of, it is done again: then the message is there already.
            there = fresh or runs.rests_on(connection, response_id, answer.key)
            if there and status == ResponseStatus.OK and answer.content is not None:
                read = Read(response_id, self.place.held, self.place.context, answer.content, answer.reasoning)
                for judge in self.writer.judges:
                    following.extend(judge_response(connection, judge, read))
        return following


def _lost(
    connection: sa.Connection, place: Place, sample: int, answer: Answer, status: ResponseStatus, cause: str
) -> None:
    """A message that was never asked for, because what comes before it went wrong."""
    runs.settle(
        connection,
        place.responses[sample],
        status=status,
        cause=cause,
        text=None,
        reasoning=answer.reasoning,
        finish_reason=answer.finish_reason,
        call_key=answer.key,
    )


@dataclass(frozen=True)
class _SettleGate:
    writer: Writer
    place: Place

    def __call__(self, connection: sa.Connection, outcomes: Mapping[int, Answer]) -> Sequence[Job]:
        held = self.place.held
        chosen: dict[tuple[int, ...], dict[int, str]] = {}
        for sample, answer in outcomes.items():
            status, cause = response_status(answer)
            if status == ResponseStatus.OK:
                try:
                    positions = read_gate(answer.content, len(held.attribute_ids))
                except answers.AnswerError as error:
                    status, cause = ResponseStatus.UNPARSED, str(error)
                else:
                    chosen.setdefault(positions, {})[sample] = answer.key
                    continue
            _lost(connection, self.place, sample, answer, status, f"gate: {cause}")
        return [self._message(connection, positions, keys) for positions, keys in chosen.items()]

    def _message(self, connection: sa.Connection, positions: tuple[int, ...], keys: Mapping[int, str]) -> Job:
        held = self.place.held
        shown = part(held, [held.attribute_ids[p] for p in positions])
        digest = memories.remember(connection, held.id, shown.attribute_ids)
        settle = _Settle(self.writer, self.place, digest, keys)
        return _message(self.writer, self.place, shown, tuple(sorted(keys)), settle)


@dataclass(frozen=True)
class _SettleDraft:
    writer: Writer
    place: Place

    def __call__(self, connection: sa.Connection, outcomes: Mapping[int, Answer]) -> Sequence[Job]:
        following = []
        for sample, answer in outcomes.items():
            status, cause = response_status(answer)
            if status != ResponseStatus.OK or self.writer.before is None:
                _lost(connection, self.place, sample, answer, status, f"draft: {cause}")
                continue
            text = self.writer.before.render(draft=answer.content or "", **self.place.words())
            settle = _Settle(self.writer, self.place, None, {sample: answer.key})
            following.append(Job(REWRITE, self.writer.client, self.writer.request(text), (sample,), settle))
        return following

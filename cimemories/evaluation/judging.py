"""Judging at work: the calls in which judges read responses, and what is written of them.

A long list of attributes may be split into parts: they are asked one after the other, each recorded as a call of its
own, and the judgement is written once the last part has been read. Killed in between, the parts that were answered are
served from the record. One part that cannot be read leaves the whole judgement missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import sqlalchemy as sa

from cimemories.evaluation.checking import CHECK, CHECK_RULES, by_rules, read_check, schema
from cimemories.evaluation.judge import answer_schema, facts, parts_of, read_answer, response_format, wording
from cimemories.evaluation.matcher import match
from cimemories.llm import answers
from cimemories.llm.client import Client
from cimemories.llm.executor import Job
from cimemories.llm.openings import opening_of
from cimemories.model import ChatRequest, Context, JudgementStatus, Reveal
from cimemories.seeds import Prompt
from cimemories.store import judgements
from cimemories.store.calls import Answer
from cimemories.store.datasets import ProfileRecord
from cimemories.store.judgements import MESSAGE, REASONING

LLM = "llm"
MATCHER = "matcher"


@dataclass(frozen=True)
class Judge:
    """A judge at work in a run: its id in the record, and for one that asks a model the client, prompt and parameters.

    split: at most so many attributes a call; None: all in one. schema: the form of response_format that its server
    takes: json_schema, json_object or none. channel: what it reads, the message or the reasoning.
    """

    id: int
    kind: str
    model: str
    parameters: Mapping[str, object]
    client: Client | None
    prompt: Prompt | None = None
    split: int | None = None
    schema: str = "json_schema"
    channel: str = MESSAGE


@dataclass(frozen=True)
class Read:
    """A response that is to be judged: what was held (the profile with the memory's attributes alone), where, and the
    two texts."""

    response: int
    held: ProfileRecord
    context: Context
    message: str
    reasoning: str | None = None

    def text(self, channel: str) -> str | None:
        return self.reasoning if channel == REASONING else self.message


def judge_response(connection: sa.Connection, judge: Judge, read: Read) -> Sequence[Job]:
    """Judge one response: what needs no model at once, in the transaction at hand; else by the job that is returned."""
    text = read.text(judge.channel)
    if not (text or "").strip():
        cause = "no reasoning text came back" if judge.channel == REASONING else "no text"
        judgements.settle(connection, read.response, judge.id, status=JudgementStatus.EMPTY, cause=cause)
        return ()
    if judge.client is not None and judge.prompt is not None:
        return (judgement_job(judge, judge.client, judge.prompt, read),)
    if judge.kind == MATCHER:
        found = match(read.held.profile.attributes, text or "")
        reveals = _by_id(found, read.held.attribute_ids)
        judgements.settle(connection, read.response, judge.id, status=JudgementStatus.OK, reveals=reveals)
    elif judge.kind == CHECK_RULES:
        verdict = by_rules(text or "")
        judgements.settle(connection, read.response, judge.id, status=JudgementStatus.OK, verdict=verdict)
    return ()


def judgement_job(judge: Judge, client: Client, prompt: Prompt, read: Read) -> Job:
    """The call, or the first of the calls, in which a model reads one response."""
    if judge.kind == CHECK:
        asked = check_request(judge, prompt, read.context, read.message)
        return Job("check", client, asked, (0,), _SettleCheck(judge, read))
    parts = tuple(parts_of(len(read.held.attribute_ids), judge.split))
    return _part(_Settle(judge, client, prompt, read, parts))


def check_request(judge: Judge, prompt: Prompt, context: Context, message: str) -> ChatRequest:
    """What is asked to know whether a message does its task."""
    text = prompt.render(
        recipient=answers.one_line(context.recipient), task=answers.one_line(context.task), message=message
    )
    return _request(judge, text, response_format(schema(), judge.schema))


def judge_request(judge: Judge, prompt: Prompt, attributes: int, text: str) -> ChatRequest:
    """What is asked to judge so many attributes, with the wording filled in."""
    kind = judge.schema if prompt.answers == "numbers" else ("none" if judge.schema == "none" else "json_object")
    return _request(judge, text, response_format(answer_schema(attributes), kind))


def _request(judge: Judge, text: str, form: Mapping[str, object]) -> ChatRequest:
    return ChatRequest(judge.model, (("user", text),), {**judge.parameters, **form})


def _part(settle: _Settle) -> Job:
    judge, (start, end) = settle.judge, settle.parts[0]
    attributes = settle.read.held.profile.attributes[start:end]
    about = facts(settle.prompt, attributes)
    text = wording(settle.prompt, about, settle.read.text(judge.channel) or "")
    request = judge_request(judge, settle.prompt, len(attributes), text)
    return Job("judge", settle.client, request, (0,), settle, opening=opening_of(text, about))


def _by_id(reveals: Sequence[Reveal], attribute_ids: Sequence[int]) -> list[Reveal]:
    return [replace(item, attribute=attribute_ids[item.attribute]) for item in reveals]


def _missing(answer: Answer) -> tuple[JudgementStatus, str] | None:
    """Why an answer cannot be read at all; None where it can be tried."""
    if not answer.ok:
        return JudgementStatus.FAILED, answer.status
    if answers.truncated(answer):
        return JudgementStatus.TRUNCATED, "the answer was cut at the token limit"
    return None


@dataclass(frozen=True)
class _Settle:
    """Reads the answer to the first of `parts`; what earlier ones said stands in `found` and `unknown`."""

    judge: Judge
    client: Client
    prompt: Prompt
    read: Read
    parts: tuple[tuple[int, int], ...]
    found: tuple[Reveal, ...] = ()
    unknown: int = 0
    keys: tuple[str, ...] = field(default=())

    def __call__(self, connection: sa.Connection, outcomes: Mapping[int, Answer]) -> Sequence[Job]:
        answer = outcomes[0]
        (start, end), rest = self.parts[0], self.parts[1:]
        held = self.read.held
        missing = _missing(answer)
        if missing is None:
            try:
                text = self.read.text(self.judge.channel) or ""
                judged = read_answer(self.prompt, answer.content, text, held.profile.attributes[start:end])
            except answers.AnswerError as error:
                missing = JudgementStatus.UNPARSED, str(error)
        if missing is not None:
            self._write(connection, answer, missing[0], cause=missing[1])
            return ()
        found = (*self.found, *_by_id(judged.reveals, held.attribute_ids[start:end]))
        unknown = self.unknown + judged.unknown
        if rest:
            return (_part(replace(self, parts=rest, found=found, unknown=unknown)),)
        self._write(connection, answer, JudgementStatus.OK, reveals=found, unknown=unknown)
        return ()

    def _write(
        self,
        connection: sa.Connection,
        answer: Answer,
        status: JudgementStatus,
        *,
        cause: str | None = None,
        reveals: Sequence[Reveal] = (),
        unknown: int = 0,
    ) -> None:
        judgements.settle(
            connection,
            self.read.response,
            self.judge.id,
            status=status,
            cause=cause,
            call_key=answer.key,
            reveals=reveals,
            unknown=unknown,
        )


@dataclass(frozen=True)
class _SettleCheck:
    judge: Judge
    read: Read

    def __call__(self, connection: sa.Connection, outcomes: Mapping[int, Answer]) -> Sequence[Job]:
        answer, verdict = outcomes[0], None
        missing = _missing(answer)
        if missing is None:
            try:
                verdict = read_check(answer.content)
            except answers.AnswerError as error:
                missing = JudgementStatus.UNPARSED, str(error)
        status, cause = missing or (JudgementStatus.OK, None)
        judgements.settle(
            connection,
            self.read.response,
            self.judge.id,
            status=status,
            cause=cause,
            call_key=answer.key,
            verdict=verdict,
        )
        return ()

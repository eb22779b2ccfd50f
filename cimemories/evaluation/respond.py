"""Responding: the model under test writes the message, n samples a context, with all memories in its prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.evaluation.judge import Judge, judge_response
from cimemories.evaluation.memory import memory_lines
from cimemories.llm import answers
from cimemories.llm.client import Client
from cimemories.llm.executor import Job
from cimemories.model import ChatRequest, ResponseStatus
from cimemories.seeds import Prompt
from cimemories.store import runs
from cimemories.store.calls import Answer
from cimemories.store.datasets import ProfileRecord
from cimemories.store.runs import OwedResponses

_REFUSALS = frozenset({"content_filter", "refusal"})


def response_job(
    client: Client,
    model: str,
    prompt: Prompt,
    parameters: Mapping[str, object],
    seed: int | None,
    record: ProfileRecord,
    group: OwedResponses,
    judges: Sequence[Judge],
) -> Job:
    """The one request for all samples that a profile owes in one context."""
    context = record.profile.contexts[record.context_ids.index(group.context)]
    text = prompt.render(
        memories=memory_lines(record.profile.attributes), recipient=context.recipient, task=context.task
    )
    request = ChatRequest(model=model, messages=(("user", text),), parameters=dict(parameters), seed=seed)
    return Job("respond", client, request, tuple(sorted(group.samples)), _Settle(record, group.samples, judges))


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
    record: ProfileRecord
    response_ids: Mapping[int, int]
    judges: Sequence[Judge]

    def __call__(self, connection: sa.Connection, outcomes: Mapping[int, Answer]) -> Sequence[Job]:
        following: list[Job] = []
        for sample, answer in outcomes.items():
            status, cause = response_status(answer)
            fresh = runs.settle(
                connection,
                self.response_ids[sample],
                status=status,
                cause=cause,
                text=answer.content,
                reasoning=answer.reasoning,
                finish_reason=answer.finish_reason,
                call_key=answer.key,
            )
            if fresh and status == ResponseStatus.OK and answer.content is not None:
                for judge in self.judges:
                    following.extend(
                        judge_response(connection, judge, self.record, self.response_ids[sample], answer.content)
                    )
        return following

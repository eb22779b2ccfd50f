"""Recorded calls: every model answer, and every failure to get one, under a key made of what was really sent.

    key = hash(model, messages, parameters, seed of the draw, draw, simulated)

The same request for the same draw is the same call, whoever asks: it is made once and served from the record after
that. Changing one byte of a prompt or a parameter misses. Whether a simulator answered is a part of the key, so that a
simulated answer can never stand in for a real one of the same model name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from cimemories.model import ChatRequest
from cimemories.store.engine import insert_ignore, storable
from cimemories.store.ids import canonical_json, content_hash, text_hash
from cimemories.store.tables import call, request

OK = "ok"


@dataclass(frozen=True)
class Answer:
    """One draw's outcome. `status` is 'ok' or the cause of the failure; then `error` says more and content is None.

    `seconds` is the whole HTTP exchange, shared by its draws; token counts of an exchange stand on its first draw.
    """

    key: str
    draw: int
    status: str
    exchange: str
    seconds: float
    started: str
    error: str | None = None
    content: str | None = None
    reasoning: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    attempts: int = 1

    @property
    def ok(self) -> bool:
        return self.status == OK


def request_body(item: ChatRequest) -> dict[str, object]:
    """The body as sent, apart from what differs by draw (n and the draw's seed)."""
    body: dict[str, object] = {
        "model": item.model,
        "messages": [{"role": role, "content": content} for role, content in item.messages],
        **item.parameters,
    }
    if item.seed is not None:
        body["seed"] = item.seed
    return body


def call_keys(item: ChatRequest, draws: Iterable[int], *, simulated: bool) -> dict[int, str]:
    """The key of each draw of a request."""
    base = content_hash(request_body(item))
    return {draw: content_hash([base, draw, simulated]) for draw in draws}


def recorded(connection: sa.Connection, keys: Mapping[int, str]) -> dict[int, Answer]:
    """The answers (not the failures) that the record already holds for these draws."""
    rows = connection.execute(sa.select(call).where(call.c.key.in_(keys.values()), call.c.status == OK)).mappings()
    found = {row["key"]: row for row in rows}
    return {draw: _answer(found[key]) for draw, key in keys.items() if key in found}


def record(
    connection: sa.Connection,
    item: ChatRequest,
    answers: Iterable[Answer],
    *,
    kind: str,
    endpoint: str,
    simulated: bool,
) -> dict[int, Answer]:
    """Write answers and failures; returns what the record holds afterwards, by draw.

    An answer replaces an earlier failure of the same call; an answer that is already there stays, so that two
    processes which asked the same at the same time go on with one and the same text. What no engine can hold of a text
    is replaced in what is written and in what is returned.
    """
    answers = [_storable(answer) for answer in answers]
    body = request_body(item)
    request_hash = content_hash(body)
    connection.execute(insert_ignore(connection, request), [{"hash": request_hash, "body": canonical_json(body)}])
    rows = [
        {
            **_columns(answer),
            "key": answer.key,
            "kind": kind,
            "model": item.model,
            "endpoint": endpoint,
            "simulated": simulated,
            "request": request_hash,
            "draw": answer.draw,
        }
        for answer in answers
    ]
    if not rows:
        return {}
    connection.execute(insert_ignore(connection, call), rows)
    keys = [answer.key for answer in answers]
    held = connection.execute(sa.select(call.c.key, call.c.status, call.c.exchange).where(call.c.key.in_(keys))).all()
    there = {row.key: row for row in held}
    return {answer.draw: _settled(connection, answer, endpoint, there[answer.key]) for answer in answers}


@dataclass(frozen=True)
class Exchange:
    """A request with answers to some of its draws, as one workspace hands them to another."""

    item: ChatRequest
    answers: Sequence[Answer]
    kind: str
    endpoint: str
    simulated: bool


def restore(connection: sa.Connection, exchanges: Sequence[Exchange]) -> None:
    """Write many answers at once; an answer that is already there stays, a failure that is there is replaced."""
    if not exchanges:
        return
    bodies = {id(e): canonical_json(request_body(e.item)) for e in exchanges}
    hashes = {id(e): text_hash(bodies[id(e)]) for e in exchanges}
    requests = [{"hash": hashes[id(e)], "body": bodies[id(e)]} for e in exchanges]
    connection.execute(insert_ignore(connection, request), requests)
    rows = {
        answer.key: {
            **_columns(_storable(answer)),
            "key": answer.key,
            "kind": e.kind,
            "model": e.item.model,
            "endpoint": e.endpoint,
            "simulated": e.simulated,
            "request": hashes[id(e)],
            "draw": answer.draw,
        }
        for e in exchanges
        for answer in e.answers
    }
    failed = connection.execute(sa.select(call.c.key).where(call.c.key.in_(rows), call.c.status != OK)).scalars().all()
    for key in failed:
        connection.execute(sa.update(call).where(call.c.key == key).values(rows.pop(key)))
    if rows:
        connection.execute(insert_ignore(connection, call), list(rows.values()))


def answered(connection: sa.Connection, kinds: Sequence[str] | None = None) -> Iterable[sa.RowMapping]:
    """Every recorded answer (of these kinds) with the `body` of its request; the draws of a request stand together."""
    query = (
        sa.select(call, request.c.body)
        .join(request, call.c.request == request.c.hash)
        .where(call.c.status == OK)
        .order_by(call.c.kind, request.c.body, call.c.draw)
    )
    return connection.execute(query.where(call.c.kind.in_(kinds)) if kinds else query).mappings()


def _settled(connection: sa.Connection, answer: Answer, endpoint: str, there: Any) -> Answer:
    """What stands for a draw now: this answer, or the one that was recorded before it."""
    if there.exchange == answer.exchange:
        return answer
    if there.status == OK:
        return _answer(connection.execute(sa.select(call).where(call.c.key == answer.key)).mappings().one())
    values = {**_columns(answer), "endpoint": endpoint, "attempts": call.c.attempts + answer.attempts}
    connection.execute(sa.update(call).where(call.c.key == answer.key).values(values))
    return answer


def _storable(answer: Answer) -> Answer:
    texts: dict[str, Any] = {
        name: storable(text)
        for name in ("status", "error", "content", "reasoning", "finish_reason")
        if (text := getattr(answer, name)) is not None
    }
    return replace(answer, **texts)


def _columns(answer: Answer) -> dict[str, object]:
    return {
        "exchange": answer.exchange,
        "status": answer.status,
        "error": answer.error,
        "response": answer.content,
        "reasoning": answer.reasoning,
        "finish_reason": answer.finish_reason,
        "prompt_tokens": answer.prompt_tokens,
        "cached_tokens": answer.cached_tokens,
        "completion_tokens": answer.completion_tokens,
        "seconds": answer.seconds,
        "started": answer.started,
        "attempts": answer.attempts,
    }


def _answer(row: sa.RowMapping) -> Answer:
    return Answer(
        key=row["key"],
        draw=row["draw"],
        status=row["status"],
        exchange=row["exchange"],
        seconds=row["seconds"],
        started=row["started"],
        error=row["error"],
        content=row["response"],
        reasoning=row["reasoning"],
        finish_reason=row["finish_reason"],
        prompt_tokens=row["prompt_tokens"],
        cached_tokens=row["cached_tokens"],
        completion_tokens=row["completion_tokens"],
        attempts=row["attempts"],
    )

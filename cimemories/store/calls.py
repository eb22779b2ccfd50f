"""Recorded calls: every model answer, and every failure to get one, under a key made of what was really sent.

    key = hash(model, messages, parameters, seed of the draw, draw, simulated, server)

The same request to the same server for the same draw is the same call, whoever asks: it is made once and served from
the record after that. Changing one byte of a prompt or a parameter misses. Whether a simulator answered and which
server did (store/servers.py) are parts of the key, so that a simulated answer can never stand in for a real one of the
same model name, nor one build of a model for another. Work that draws anew has its id in the key as well. Keys from
before servers were told apart have none; work that was begun with such keys goes on with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from cimemories.model import ChatRequest
from cimemories.store.engine import insert_ignore, storable
from cimemories.store.ids import canonical_json, content_hash, text_hash
from cimemories.store.run_tables import run_call
from cimemories.store.servers import address_of
from cimemories.store.tables import call, request

OK = "ok"
KEYS_AT_ONCE = 5000  # below what either engine takes as parameters of one statement


@dataclass(frozen=True)
class Answer:
    """One draw's outcome. `status` is 'ok' or the cause of the failure; then `error` says more and content is None.

    `seconds` is the whole HTTP exchange, shared by its draws; token counts of an exchange stand on its first draw.
    endpoint: the address that was asked, where the answer comes from the record.
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
    endpoint: str | None = field(default=None, compare=False)

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


@dataclass(frozen=True)
class Origin:
    """Whose answers a call is served.

    server: who is asked (the text of a ServerId); None for work that was begun before servers were told apart. fresh:
    the run or sweep that draws anew and is served its own answers alone. same: further servers that a person says are
    the same one, in the order in which they are looked up. before: addresses at which answers of servers that are not
    known count as this one's.
    """

    simulated: bool
    server: str | None = None
    fresh: str | None = None
    same: tuple[str, ...] = ()
    before: frozenset[str] = frozenset()

    def keys(self, body: str, draws: Iterable[int]) -> dict[int, str]:
        """The keys under which these draws of a request are recorded when they are asked now, by draw."""
        return keys_of(body, draws, simulated=self.simulated, server=self.server, fresh=self.fresh)

    def older(self, body: str, draws: Sequence[int]) -> list[dict[int, str]]:
        """The keys of the same server's answers under its other names, one mapping a name."""
        found = [keys_of(body, draws, simulated=self.simulated, server=s, fresh=self.fresh) for s in self.same]
        return [*found, keys_of(body, draws, simulated=self.simulated)] if self.counts_before else found

    @property
    def counts_before(self) -> bool:
        """Whether answers of servers that are not known may serve."""
        return bool(self.before) and self.fresh is None and self.server is not None


def call_keys(
    item: ChatRequest, draws: Iterable[int], *, simulated: bool, server: str | None = None, fresh: str | None = None
) -> dict[int, str]:
    """The key of each draw of a request."""
    return keys_of(canonical_json(request_body(item)), draws, simulated=simulated, server=server, fresh=fresh)


def keys_of(
    body: str, draws: Iterable[int], *, simulated: bool, server: str | None = None, fresh: str | None = None
) -> dict[int, str]:
    """The same, where the request's canonical JSON is at hand."""
    base = text_hash(body)
    more = [] if server is None and fresh is None else [server] if fresh is None else [server, fresh]
    return {draw: content_hash([base, draw, simulated, *more]) for draw in draws}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Draws of one request that are looked up in the record. body: its canonical JSON."""

    body: str
    draws: Sequence[int]
    origin: Origin


@dataclass(frozen=True, slots=True)
class Held:
    """What the record answers of a request, and the keys under which the rest is to be asked, both by draw."""

    answers: dict[int, Answer]
    owed: dict[int, str]


def held(connection: sa.Connection, wanted: Sequence[Wanted]) -> list[Held]:
    """What the record holds of each request: the server's own answers first, then those of its other names."""
    own = [item.origin.keys(item.body, item.draws) for item in wanted]
    older = [item.origin.older(item.body, item.draws) for item in wanted]
    found = answers_by_key(connection, _all_keys(own, older))
    ends = {key: answer.endpoint or "" for key, answer in found.items()}
    result = []
    for item, keys, names in zip(wanted, own, older, strict=True):
        there = _chosen(item.origin, keys, names, ends)
        answers = {draw: found[key] for draw, key in there.items()}
        result.append(Held(answers, {draw: key for draw, key in keys.items() if draw not in there}))
    return result


def held_draws(connection: sa.Connection, wanted: Sequence[Wanted]) -> list[set[int]]:
    """Which draws of each request the record answers; the answers themselves are not read."""
    own = [item.origin.keys(item.body, item.draws) for item in wanted]
    older = [item.origin.older(item.body, item.draws) for item in wanted]
    keys, ends = _all_keys(own, older), dict[str, str]()
    for start in range(0, len(keys), KEYS_AT_ONCE):
        chunk = keys[start : start + KEYS_AT_ONCE]
        query = sa.select(call.c.key, call.c.endpoint).where(call.c.key.in_(chunk), call.c.status == OK)
        ends.update((row.key, row.endpoint) for row in connection.execute(query))
    return [
        set(_chosen(item.origin, keys_, names, ends)) for item, keys_, names in zip(wanted, own, older, strict=True)
    ]


def _all_keys(own: Sequence[Mapping[int, str]], older: Sequence[Sequence[Mapping[int, str]]]) -> list[str]:
    found = [key for keys in own for key in keys.values()]
    found.extend(key for names in older for keys in names for key in keys.values())
    return found


def _chosen(
    origin: Origin, own: Mapping[int, str], older: Sequence[Mapping[int, str]], ends: Mapping[str, str]
) -> dict[int, str]:
    """For each draw the first key that is answered. `ends`: key of an answer -> the address that gave it."""
    found = {draw: key for draw, key in own.items() if key in ends}
    for number, keys in enumerate(older):
        unnamed = number == len(origin.same)  # the last ones are of servers that are not known
        for draw, key in keys.items():
            if draw not in found and key in ends and not (unnamed and address_of(ends[key]) not in origin.before):
                found[draw] = key
    return found


def recorded(connection: sa.Connection, keys: Mapping[int, str]) -> dict[int, Answer]:
    """The answers (not the failures) that the record already holds for these draws."""
    found = answers_by_key(connection, keys.values())
    return {draw: found[key] for draw, key in keys.items() if key in found}


def answers_by_key(connection: sa.Connection, keys: Iterable[str]) -> dict[str, Answer]:
    """The answers (not the failures) that the record holds under these keys, whatever requests they belong to."""
    wanted, found = list(keys), dict[str, Answer]()
    for start in range(0, len(wanted), KEYS_AT_ONCE):
        chunk = wanted[start : start + KEYS_AT_ONCE]
        rows = connection.execute(sa.select(call).where(call.c.key.in_(chunk), call.c.status == OK)).mappings()
        found.update((row["key"], _answer(row)) for row in rows)
    return found


@dataclass(frozen=True)
class Exchange:
    """A request with answers to some of its draws, as one workspace hands them to another. body: its canonical JSON,
    where that has been made already. server, fresh: as in the keys of its answers."""

    item: ChatRequest
    answers: Sequence[Answer]
    kind: str
    endpoint: str
    simulated: bool
    body: str | None = None
    server: str | None = None
    fresh: str | None = None


def record(
    connection: sa.Connection,
    item: ChatRequest,
    answers: Iterable[Answer],
    *,
    kind: str,
    endpoint: str,
    simulated: bool,
    server: str | None = None,
) -> dict[int, Answer]:
    """What `record_all` does, for one request."""
    return record_all(connection, [Exchange(item, list(answers), kind, endpoint, simulated, server=server)])[0]


def record_all(connection: sa.Connection, exchanges: Sequence[Exchange]) -> list[dict[int, Answer]]:
    """Write the answers and failures of many requests; returns for each what the record holds afterwards, by draw.

    An answer replaces an earlier failure of the same call; an answer that is already there stays, so that two
    processes which asked the same at the same time go on with one and the same text. What no engine can hold of a text
    is replaced in what is written and in what is returned.
    """
    exchanges = [replace(e, answers=[_storable(answer) for answer in e.answers]) for e in exchanges]
    rows = _insertable(connection, exchanges)
    if not rows:
        return [{} for _ in exchanges]
    # In the order of the keys, as every process does it: two that write the same calls at once cannot block each other.
    rows.sort(key=itemgetter("key"))
    keys = [str(row["key"]) for row in rows]
    written = connection.execute(insert_ignore(connection, call), rows).rowcount
    if written == len(rows):
        return [{answer.draw: answer for answer in e.answers} for e in exchanges]
    # Some had been there: tried before in vain, or asked twice at the same time.
    there: dict[str, tuple[str, str]] = {}
    for start in range(0, len(keys), KEYS_AT_ONCE):
        query = sa.select(call.c.key, call.c.status, call.c.exchange)
        found = connection.execute(query.where(call.c.key.in_(keys[start : start + KEYS_AT_ONCE]))).all()
        there.update((row.key, (row.status, row.exchange)) for row in found)
    settled: list[dict[int, Answer]] = [{} for _ in exchanges]
    pairs = ((place, answer) for place, e in enumerate(exchanges) for answer in e.answers)
    for place, answer in sorted(pairs, key=lambda pair: pair[1].key):
        settled[place][answer.draw] = _settled(connection, answer, exchanges[place].endpoint, there)
    return settled


def _insertable(connection: sa.Connection, exchanges: Sequence[Exchange]) -> list[dict[str, object]]:
    """The rows of these calls, once their requests have been written."""
    requests: dict[str, dict[str, object]] = {}
    rows: list[dict[str, object]] = []
    for e in exchanges:
        body = e.body or canonical_json(request_body(e.item))
        request_hash = text_hash(body)
        requests[request_hash] = {"hash": request_hash, "body": body}
        about = {
            "kind": e.kind,
            "model": e.item.model,
            "endpoint": e.endpoint,
            "simulated": e.simulated,
            "request": request_hash,
            "server": e.server,
            "fresh": e.fresh,
        }
        rows.extend({**_columns(answer), **about, "key": answer.key, "draw": answer.draw} for answer in e.answers)
    if requests:
        in_order = [requests[key] for key in sorted(requests)]
        connection.execute(insert_ignore(connection, request), in_order)
    return rows


def link(connection: sa.Connection, used: Iterable[tuple[str, str]], *, asked: bool | None = None) -> None:
    """Note that runs used calls, as (id of the run, key of the call); what is noted already stays.

    asked: whether the run asked them itself, or the record had them; None: not known."""
    rows = [{"run": run_id, "call": key, "asked": asked} for run_id, key in dict.fromkeys(used)]
    if rows:
        connection.execute(insert_ignore(connection, run_call), rows)


def restore(connection: sa.Connection, exchanges: Sequence[Exchange]) -> None:
    """Write many answers at once; an answer that is already there stays, a failure that is there is replaced."""
    if not exchanges:
        return
    rows = {
        str(row["key"]): row
        for row in _insertable(connection, [replace(e, answers=[_storable(a) for a in e.answers]) for e in exchanges])
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


def _settled(connection: sa.Connection, answer: Answer, endpoint: str, there: dict[str, tuple[str, str]]) -> Answer:
    """What stands for a draw now: this answer, or the one that was recorded before it. `there` (key -> status and
    exchange) is kept true."""
    status, exchange = there[answer.key]
    if exchange == answer.exchange:
        return answer
    if status == OK:
        return _answer(connection.execute(sa.select(call).where(call.c.key == answer.key)).mappings().one())
    values = {**_columns(answer), "endpoint": endpoint, "attempts": call.c.attempts + answer.attempts}
    connection.execute(sa.update(call).where(call.c.key == answer.key).values(values))
    there[answer.key] = (answer.status, answer.exchange)
    return answer


def _storable(answer: Answer) -> Answer:
    texts: dict[str, Any] = {
        name: clean
        for name in ("status", "error", "content", "reasoning", "finish_reason")
        if (text := getattr(answer, name)) is not None and (clean := storable(text)) != text
    }
    return replace(answer, **texts) if texts else answer


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
        endpoint=row["endpoint"],
    )

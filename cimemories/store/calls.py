"""Recorded calls: every model answer, and every failure to get one, under a key made of the request as sent.

    key = hash(model, messages, parameters, seed of the draw, draw, simulated, server)

The same request to the same server for the same draw is the same call, whatever work asks for it: it is made once and
served from the record after that. Changing one byte of a prompt or a parameter misses. Whether a simulator answered and
which server did (see servers below) are parts of the key, so that a simulated answer can never stand in for a real one
of the same model name, nor one build of a model for another. Work that asks everything again has its id in the key as
well. Keys from before servers were distinguished have none; work that was begun with such keys goes on with them.
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from cimemories.manifest import RunManifest
from cimemories.model import ChatRequest
from cimemories.store.engine import StoreError, content_hash, now, plain_name, storable, text_hash
from cimemories.store.rows import fetch, in_chunks, insert_new, rows_in_chunks
from cimemories.store.tables import call, passage, request, run, run_call, same_server, server
from cimemories.store.team import log

# ---- experience
#
# What recorded calls teach about calls to come: lengths, tokens and seconds of one kind of call to one model.
#
# Read through the calls of the newest runs, so that a record of millions of calls answers as fast as a small one.


CALLS_AT_MOST = 2000
TEXTS_AT_MOST = 20


@dataclass(frozen=True)
class Learned:
    """Means over recorded answers. completion_tokens: a draw; seconds: an exchange; characters: of an answer's text."""

    draws: int
    completion_tokens: float
    seconds: float
    characters: float


def manifests(connection: sa.Connection, limit: int = 40) -> list[tuple[str, RunManifest]]:
    """Return the newest `limit` runs as (id, manifest), newest first. Runs that explain a leak ask one context many
    times, so their means say little of other runs: they are left out."""
    query = sa.select(run.c.id, run.c.manifest).where(run.c.explains.is_(None))
    rows = connection.execute(query.order_by(run.c.created.desc(), run.c.id).limit(limit))
    return [(row.id, row.manifest) for row in rows]


def learned(
    connection: sa.Connection,
    work_ids: Sequence[str],
    kind: str,
    model: str,
    simulated: bool,
    used: sa.Table = run_call,
) -> Learned | None:
    """Return means over the answers of this kind and model in these pieces of work, read from CALLS_AT_MOST of them at
    most; None without any whose tokens were counted. used: the table that names their calls."""
    query = (
        sa.select(call.c.completion_tokens, call.c.seconds, sa.func.length(call.c.response).label("characters"))
        .join(used, used.c.call == call.c.key)
        .where(call.c.kind == kind, call.c.model == model, call.c.simulated == simulated, call.c.status == "ok")
    )
    some = _first_of(connection, query, work_ids, CALLS_AT_MOST, used)
    # What an exchange used stands on its first draw: seconds are a mean over exchanges, the rest over draws.
    first = [row for row in some if row.completion_tokens is not None]
    if not first:
        return None
    return Learned(
        len(some),
        sum(row.completion_tokens for row in first) / len(some),
        math.fsum(row.seconds for row in first) / len(first),
        sum(row.characters or 0 for row in some) / len(some),
    )


def _first_of(
    connection: sa.Connection, query: sa.Select[Any], work_ids: Sequence[str], most: int, used: sa.Table
) -> list[sa.Row]:
    """Return at most so many rows of a query over calls and `used`, work after work, each in the order of its keys:
    without one each engine stops at other calls, and one plan has two numbers."""
    rows: list[sa.Row] = []
    owner = next(column for column in used.c if column.name in ("run", "labelling", "generation"))
    for work_id in work_ids:
        # The key of `run_call` is in this order: no more calls are read than it takes.
        rows += connection.execute(query.where(owner == work_id).order_by(used.c.call).limit(most - len(rows)))
        if len(rows) == most:
            break
    return rows


def characters_a_token(
    connection: sa.Connection, work_ids: Sequence[str], model: str, simulated: bool, used: sa.Table = run_call
) -> float | None:
    """Return characters of a prompt over its tokens, as this model's server counted a few, or None without any."""
    query = (
        sa.select(call.c.request, call.c.prompt_tokens)
        .join(used, used.c.call == call.c.key)
        # Only the first draw of an exchange has a count, so a prompt counts once for each time it was sent.
        .where(call.c.model == model, call.c.simulated == simulated, call.c.prompt_tokens > 0)
    )
    rows = _first_of(connection, query, work_ids, TEXTS_AT_MOST, used)
    sent = bodies(connection, (row.request for row in rows))
    characters = sum(len(message["content"]) for row in rows for message in json.loads(sent[row.request])["messages"])
    tokens = sum(int(row.prompt_tokens) for row in rows)
    return characters / tokens if tokens else None


@dataclass(frozen=True)
class PromptSize:
    """The characters of a prompt as sent, and its tokens as the server counted what it read."""

    characters: int
    tokens: int


def prompt_sizes(connection: sa.Connection, run_id: str, kind: str, most: int) -> dict[str, list[PromptSize]]:
    """Return by model the sizes of at most `most` different prompts of one kind that a run sent."""
    # Some servers leave what their cache held out of the count.
    cached = sa.func.coalesce(call.c.cached_tokens, 0)
    tokens = call.c.prompt_tokens + sa.case((cached > call.c.prompt_tokens, cached), else_=0)
    query = (
        sa.select(call.c.model, call.c.request, tokens.label("tokens"))
        .join(run_call, run_call.c.call == call.c.key)
        .where(run_call.c.run == run_id, call.c.kind == kind, call.c.status == OK, call.c.prompt_tokens > 0)
        .order_by(run_call.c.call)
        .limit(most)
    )
    sizes: dict[str, list[PromptSize]] = {}
    rows = connection.execute(query).all()
    sent = bodies(connection, (row.request for row in rows))
    for row in rows:
        sizes.setdefault(row.model, []).append(PromptSize(len(sent[row.request]), int(row.tokens)))
    return sizes


# ---- servers
#
# The servers whose answers the record holds, and which of them a person declared to be the same server.
#
#     ServerId("http://gpu1:8000/v1", root="Qwen/Qwen3-8B").text == "http://gpu1:8000/v1, root Qwen/Qwen3-8B"
#
# The text is part of the key of every call, so answers of two servers are never taken for each other, even where both
# serve a model under one name. Two addresses that a person ties together share answers: a run at one of them that
# finds no answer of its own in the record looks for the other's. Nothing is rewritten, so a tie can be taken back.


NOT_KNOWN = "server not known"  # whose answers were recorded before servers were distinguished
BATCH = "batch files"
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class ServerId:
    """The identity of a server, which tells it apart from others. address: a normalised base URL, or what stands for
    one (a managed vLLM by its model and flags, the simulator); root, revision: of the model, as the server reports them
    in /v1/models, or None."""

    address: str
    root: str | None = None
    revision: str | None = None

    @property
    def text(self) -> str:
        parts = [self.address]
        parts += [f"root {self.root}"] if self.root else []
        parts += [f"revision {self.revision}"] if self.revision else []
        return ", ".join(parts)

    @property
    def shown(self) -> str:
        """Return it for people."""
        return f"the {self.text}" if self.address == "simulator" else self.text

    @classmethod
    def read(cls, text: str) -> ServerId:
        """Return the server that such a text names."""
        rest, _, revision = text.partition(", revision ")
        address, _, root = rest.partition(", root ")
        return cls(address, root or None, revision or None)

    def may_be(self, other: ServerId) -> bool:
        """Return whether what both report of the model agrees; what one of them does not report is no difference."""
        pairs = ((self.root, other.root), (self.revision, other.revision))
        return all(mine is None or theirs is None or mine == theirs for mine, theirs in pairs)


# The simulator answers by its policy and seed alone, whatever its port. The number goes up when the policy's answers
# change.
SIMULATOR_ROOT = "cimemories-simulator-1"
SIMULATED = ServerId("simulator", SIMULATOR_ROOT, "seed-0")


@lru_cache(maxsize=4096)
def address_of(base_url: str) -> str:
    """Return a base URL in one spelling: lower case, no default port, no slash at the end, one name for this
    machine."""
    try:
        parts = urlsplit(base_url.strip())
        # .port raises ValueError where it is no number; .hostname is in lower case already.
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return base_url.strip()
    if not host or not parts.scheme:
        return base_url.strip()
    path = re.sub("/+", "/", parts.path).rstrip("/")
    shown = "" if port is None or port == _DEFAULT_PORTS.get(parts.scheme) else f":{port}"
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        host = "localhost" if host.endswith(".localhost") else host
    else:
        # 0.0.0.0 and :: are what a server listens on, and lead a client to its own machine.
        local = ip.is_loopback or ip.is_unspecified
        host = "localhost" if local else f"[{ip}]" if ip.version == 6 else str(ip)
    return f"{parts.scheme}://{host}{shown}{path}"


def is_loopback(address: str) -> bool:
    """Return whether a normalised address is of this machine."""
    return bool(re.match(r"https?://localhost(?=[:/]|$)", address))


def keep_servers(connection: sa.Connection, texts: Iterable[str | None]) -> None:
    """Write servers that work was planned on or answered by, if they are new."""
    # In one order in every process: two that note the same servers at once cannot block each other.
    rows = [{"id": text, "created": now()} for text in sorted({text for text in texts if text})]
    insert_new(connection, server, rows)


@dataclass(frozen=True)
class Tie:
    """Two addresses that a person declared to be one server. `second` may be NOT_KNOWN: then answers recorded at the
    first address before servers were told apart are its own."""

    first: str
    second: str
    author: str
    created: str


def planned_servers(connection: sa.Connection) -> list[ServerId]:
    """Return the servers that work was planned on, by address."""
    return [ServerId.read(text) for text in connection.scalars(sa.select(server.c.id).order_by(server.c.id))]


def counts(connection: sa.Connection) -> dict[str, int]:
    """Return how many answers the record holds of each server, by its text. Reads the whole record."""
    query = sa.select(call.c.server, sa.func.count()).where(call.c.status == OK).group_by(call.c.server)
    return {text or NOT_KNOWN: int(number) for text, number in connection.execute(query)}


def ties(connection: sa.Connection) -> list[Tie]:
    """Return the ties, oldest first."""
    return fetch(connection, sa.select(same_server).order_by(same_server.c.created, same_server.c.first), Tie)


def tie(connection: sa.Connection, one: str, other: str, author: str) -> Tie:
    """Declare two addresses to be the same server; twice is as once. Raises StoreError if both are the same address
    already, and if one is no address and no server of the record."""
    first, second = _pair(connection, one, other)
    if first == second:
        raise StoreError(f"{one} and {other} are one address already ({first}), so nothing has to be set.")
    values = {"author": plain_name(author, "annotator"), "created": now()}
    insert_new(connection, same_server, [{"first": first, "second": second, **values}])
    log.add(connection, "servers.tied", first, other=second)
    return next(item for item in ties(connection) if (item.first, item.second) == (first, second))


def untie(connection: sa.Connection, one: str, other: str) -> None:
    """Take a tie back: from now on neither is served the other's answers. Raises StoreError if there is none."""
    first, second = _pair(connection, one, other)
    where = same_server.c.first == first, same_server.c.second == second
    if not connection.execute(sa.delete(same_server).where(*where)).rowcount:
        raise StoreError(f"{first} and {second} are not tied. `cimemories servers same` lists the servers that are.")
    log.add(connection, "servers.untied", first, other=second)


def _pair(connection: sa.Connection, one: str, other: str) -> tuple[str, str]:
    """Return both addresses normalised and sorted; NOT_KNOWN is always the second."""
    # Only what the record knows or what looks like a URL: a typing error would tie nothing, unnoticed.
    there = {item.address for item in planned_servers(connection)}
    addresses = []
    for text in (one, other):
        address = address_of(ServerId.read(text.strip()).address)
        if address not in (NOT_KNOWN, *there) and not re.match("https?://[^/]", address):
            raise StoreError(
                f"'{text}' is no address and no server of this workspace. Give a base URL, or one "
                "that `cimemories servers same` lists."
            )
        addresses.append(address)
    first, second = sorted(addresses, key=lambda address: (address == NOT_KNOWN, address))
    return first, second


@dataclass(frozen=True)
class Same:
    """The other servers that may answer for one; both empty without ties. servers: their texts; before: addresses at
    which answers of servers that are not known count as its own."""

    servers: tuple[str, ...] = ()
    before: frozenset[str] = frozenset()


def declared_same(connection: sa.Connection, text: str) -> Same:
    """Return what was declared the same server as this one, through others too. Of another address only servers count
    that report no other root or revision of the model."""
    tied = ties(connection)
    if not tied:
        return Same()
    mine = ServerId.read(text)
    addresses, grown = {mine.address}, True
    while grown:  # ties chain: A is B and B is C make A, B and C one
        new = {
            end
            for item in tied
            if item.second != NOT_KNOWN and {item.first, item.second} & addresses
            for end in (item.first, item.second)
        }
        grown = not new <= addresses
        addresses |= new
    others = (
        item for item in planned_servers(connection) if item.address in addresses - {mine.address} and item.may_be(mine)
    )
    known_before = any(item.second == NOT_KNOWN and item.first in addresses for item in tied)
    return Same(tuple(item.text for item in others), frozenset(addresses) if known_before else frozenset())


# ---- calls


OK = "ok"
TASK = "task"  # the role of a request that is a task for an assistant (llm/assistants.py)
KEEP = "keep"  # a field of it: another task of the session follows
TOKEN_SUMS = tuple(
    sa.func.coalesce(sa.func.sum(call.c[name]), 0).label(name)
    for name in ("prompt_tokens", "cached_tokens", "completion_tokens")
)
BODIES_AT_ONCE = 500  # a few megabytes
KEYS_AT_ONCE = 5000  # below what either engine takes as parameters of one statement


@dataclass(frozen=True)
class Answer:
    """One draw's outcome. `status` is 'ok' or the cause of the failure; then `error` says more and content is None.
    `seconds` is the whole HTTP exchange, shared by its draws; token counts of an exchange stand on its first draw.
    error is also why an answer has no message although text came back. served_model: the model that the server says
    answered, if it is not the one asked for. endpoint: the address that was asked, if the answer comes from the
    record."""

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
    served_model: str | None = None
    endpoint: str | None = field(default=None, compare=False)

    @property
    def ok(self) -> bool:
        return self.status == OK


def request_body(item: ChatRequest) -> dict[str, object]:
    """Return the body as sent, apart from what differs by draw (n and the draw's seed)."""
    body: dict[str, object] = {
        "model": item.model,
        "messages": [{"role": role, "content": content} for role, content in item.messages],
        **item.parameters,
    }
    if item.seed is not None:
        body["seed"] = item.seed
    return body


def canonical_body(item: ChatRequest) -> str:
    """Return the canonical JSON of `request_body`, which the keys of its calls are made of."""
    return body_json(request_body(item), sort_keys=True)


# json.dumps makes an encoder at each call.
_ENCODERS = {
    keys: json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=keys) for keys in (False, True)
}


def body_json(body: Mapping[str, object], *, sort_keys: bool = False) -> str:
    """Return a body as JSON without spaces, as json.dumps writes it."""

    def encoded(name: str, value: Any) -> str:
        if name != "messages":
            return _ENCODERS[sort_keys].encode(value)
        messages = (_object({part: _text_json(text) for part, text in item.items()}, sort_keys) for item in value)
        return "[" + ",".join(messages) + "]"

    return _object({name: encoded(name, value) for name, value in body.items()}, sort_keys)


def _object(values: Mapping[str, str], sort_keys: bool) -> str:
    """Return a JSON object of values that are JSON already."""
    names = sorted(values) if sort_keys else values
    return "{" + ",".join(f"{_text_json(name)}:{values[name]}" for name in names) + "}"


@lru_cache(maxsize=256)  # a body is encoded for the key of a call, and for the server
def _text_json(text: str) -> str:
    return f'"{_BLANK_LINE.join(map(_paragraph_json, text.split(_NEW_PARAGRAPH)))}"'


# The prompts about a profile share their longest paragraph: 16,000 characters take 0.06 ms.
@lru_cache(maxsize=256)
def _paragraph_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


@dataclass(frozen=True)
class Origin:
    """The servers whose answers serve a call.

    server: the one that is asked (the text of a ServerId); None for work begun before servers were distinguished.
    fresh: the run or sweep that asks everything again and is served its own answers alone. same: further servers that
    are declared to be the same one, in the order in which they are looked up. before: addresses at which answers of
    servers that are not known count as this one's.
    """

    simulated: bool
    server: str | None = None
    fresh: str | None = None
    tied: tuple[str, ...] = ()
    before: frozenset[str] = frozenset()

    def keys(self, body: str, draws: Iterable[int]) -> dict[int, str]:
        """Return the keys under which these draws of a request are recorded when they are asked now, by draw."""
        return keys_of(body, draws, simulated=self.simulated, server=self.server, fresh=self.fresh)

    def older(self, body: str, draws: Sequence[int]) -> list[dict[int, str]]:
        """Return the keys of the same server's answers under its other names, one mapping a name."""
        keys = [keys_of(body, draws, simulated=self.simulated, server=s, fresh=self.fresh) for s in self.tied]
        # Last, the keys from before servers were a part of them.
        return [*keys, keys_of(body, draws, simulated=self.simulated)] if self.counts_before else keys

    @property
    def counts_before(self) -> bool:
        """Return whether answers of servers that are not known may serve."""
        return bool(self.before) and self.fresh is None and self.server is not None


def keys_of(
    request: ChatRequest | str,
    draws: Iterable[int],
    *,
    simulated: bool,
    server: str | None = None,
    fresh: str | None = None,
) -> dict[int, str]:
    """Return the key of each draw of a request, or of its canonical JSON if that is at hand."""
    body = request if isinstance(request, str) else canonical_body(request)
    base = text_hash(body)
    # What came later is appended only where it is set: keys from before servers were told apart stay what they were.
    more = [] if server is None and fresh is None else [server] if fresh is None else [server, fresh]
    return {draw: content_hash([base, draw, simulated, *more]) for draw in draws}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Draws of one request that are looked up in the record. body: its canonical JSON."""

    body: str
    draws: Sequence[int]
    origin: Origin


@dataclass(frozen=True, slots=True)
class Recorded:
    """The answers to a request that the record has, and the keys under which the rest is to be asked, both by draw."""

    answers: dict[int, Answer]
    owed: dict[int, str]


def look_up(connection: sa.Connection, requests: Sequence[Wanted]) -> list[Recorded]:
    """Return what the record holds of each request: the server's own answers first, then those of its other names."""
    current = [item.origin.keys(item.body, item.draws) for item in requests]
    older = [item.origin.older(item.body, item.draws) for item in requests]
    answers = answers_by_key(connection, _all_keys(current, older))
    addresses = {key: answer.endpoint or "" for key, answer in answers.items()}
    result = []
    for item, keys, names in zip(requests, current, older, strict=True):
        answered = _chosen(item.origin, keys, names, addresses)
        owed = {draw: key for draw, key in keys.items() if draw not in answered}
        result.append(Recorded({draw: answers[key] for draw, key in answered.items()}, owed))
    return result


def recorded_draws(connection: sa.Connection, requests: Sequence[Wanted]) -> list[set[int]]:
    """Return which draws of each request the record answers; the answers themselves are not read."""
    current = [item.origin.keys(item.body, item.draws) for item in requests]
    older = [item.origin.older(item.body, item.draws) for item in requests]
    query = sa.select(call.c.key, call.c.endpoint).where(call.c.status == OK)
    rows = rows_in_chunks(connection, query, call.c.key, _all_keys(current, older), KEYS_AT_ONCE)
    addresses = {row["key"]: row["endpoint"] for row in rows}
    each = zip(requests, current, older, strict=True)
    return [set(_chosen(item.origin, keys, names, addresses)) for item, keys, names in each]


def _all_keys(current: Sequence[Mapping[int, str]], older: Sequence[Sequence[Mapping[int, str]]]) -> list[str]:
    return [key for keys in (*current, *chain.from_iterable(older)) for key in keys.values()]


def _chosen(
    origin: Origin, current: Mapping[int, str], older: Sequence[Mapping[int, str]], addresses: Mapping[str, str]
) -> dict[int, str]:
    """Return for each draw the first key that is answered. addresses: by key of an answer, the address that gave it."""
    # Its own answers first: another name of the server fills only the gaps.
    chosen = {draw: key for draw, key in current.items() if key in addresses}
    for number, keys in enumerate(older):
        unnamed = number == len(origin.tied)  # the last ones are of servers that are not known
        for draw, key in keys.items():
            if draw in chosen or key not in addresses:
                continue
            # An answer of a server that is not known says only at which address it was given.
            if not unnamed or address_of(addresses[key]) in origin.before:
                chosen[draw] = key
    return chosen


# Made once: with 14 keys a new statement took 0.27 ms, this one 0.1 ms. On PostgreSQL with one parameter, of which no
# text is made at each call.
_ANSWER = [call.c[item.name] for item in fields(Answer) if item.name != "content"]
_ANSWERED = sa.select(*_ANSWER, call.c.response.label("content")).where(call.c.status == OK)
_ANSWERS = {
    "sqlite": _ANSWERED.where(call.c.key.in_(sa.bindparam("keys", expanding=True))),
    "postgresql": _ANSWERED.where(call.c.key == sa.any_(sa.bindparam("keys", type_=ARRAY(sa.Text)))),
}


def answers_by_key(connection: sa.Connection, keys: Iterable[str]) -> dict[str, Answer]:
    """Return the answers (not the failures) that the record holds under these keys, of whatever requests."""
    chunks = in_chunks(dict.fromkeys(keys), KEYS_AT_ONCE)
    query = _ANSWERS[connection.dialect.name]
    answers = chain.from_iterable(fetch(connection, query, Answer, {"keys": chunk}) for chunk in chunks)
    return {answer.key: answer for answer in answers}


@dataclass(frozen=True)
class Exchange:
    """A request with answers to some of its draws, as one workspace hands them to another. body: its canonical JSON,
    if that has been made already. server, fresh: as in the keys of its answers."""

    item: ChatRequest
    answers: Sequence[Answer]
    kind: str
    endpoint: str
    simulated: bool
    body: str | None = None
    server: str | None = None
    fresh: str | None = None


def record_all(connection: sa.Connection, exchanges: Sequence[Exchange]) -> list[dict[int, Answer]]:
    """Write the answers and failures of many requests; return for each what the record holds afterwards, by draw.

    An answer replaces an earlier failure of the same call; an answer that is already there stays, so that two
    processes which asked the same at the same time go on with one and the same text. What no engine can hold of a text
    is replaced in what is written and in what is returned.
    """
    exchanges = [replace(e, answers=list(map(_storable, e.answers))) for e in exchanges]
    rows = _insertable(connection, exchanges)
    if not rows:
        return [{} for _ in exchanges]
    # In the order of the keys, as every process does it: two that write the same calls at once cannot block each other.
    rows.sort(key=itemgetter("key"))
    # rowcount leaves out rows that were there already: in the common case nothing has to be read again.
    written, _ = insert_new(connection, call, rows)
    if written == len(rows):
        return [{answer.draw: answer for answer in e.answers} for e in exchanges]
    # Some had been there: tried before in vain, or asked twice at the same time.
    query = sa.select(call.c.key, call.c.status, call.c.exchange)
    recorded = rows_in_chunks(connection, query, call.c.key, (row["key"] for row in rows), KEYS_AT_ONCE)
    there = {row["key"]: (row["status"], row["exchange"]) for row in recorded}
    settled: list[dict[int, Answer]] = [{} for _ in exchanges]
    earlier: list[tuple[int, Answer]] = []  # those for which an answer of another exchange stands
    pairs = ((number, answer) for number, e in enumerate(exchanges) for answer in e.answers)
    for number, answer in sorted(pairs, key=lambda pair: pair[1].key):
        status, exchange = there[answer.key]
        if exchange != answer.exchange and status == OK:
            earlier.append((number, answer))
            continue
        if exchange != answer.exchange:
            # `attempts` is added up by the database, over every time the call was tried.
            values = _columns(answer, exchanges[number].endpoint) | {"attempts": call.c.attempts + answer.attempts}
            connection.execute(sa.update(call).where(call.c.key == answer.key).values(values))
            there[answer.key] = (answer.status, answer.exchange)
        settled[number][answer.draw] = answer
    stands = answers_by_key(connection, (answer.key for _, answer in earlier))
    for number, answer in earlier:
        settled[number][answer.draw] = stands[answer.key]
    return settled


def _insertable(connection: sa.Connection, exchanges: Sequence[Exchange]) -> list[dict[str, object]]:
    """Write the requests of these calls; return the rows of the calls."""
    requests: dict[str, dict[str, object]] = {}
    passages: dict[str, str] = {}
    rows: list[dict[str, object]] = []
    for e in exchanges:
        body = e.body or canonical_body(e.item)
        # A request is kept once, however many draws and servers answered it.
        request_hash = text_hash(body)
        if request_hash not in requests:
            rest, shared = _split(body)
            hashes = [text_hash(text) for text in shared]
            passages |= zip(hashes, shared, strict=True)
            listed = json.dumps(hashes) if hashes else None
            requests[request_hash] = {"hash": request_hash, "body": rest, "passages": listed}
        about = {
            "kind": e.kind,
            "model": e.item.model,
            "simulated": e.simulated,
            "request": request_hash,
            "server": e.server,
            "fresh": e.fresh,
        }
        rows.extend(_columns(answer, e.endpoint) | about for answer in e.answers)
    # Requests first: `purge` locks their table, and so removes no passage that one in the making has found there.
    insert_new(connection, request, [requests[key] for key in sorted(requests)])
    insert_new(connection, passage, [{"hash": key, "text": passages[key]} for key in sorted(passages)])
    return rows


# ---- passages
#
# The memories of a profile are most of every prompt about it, and a message stands in the prompt of each of its judges:
# long paragraphs are kept once. In a body a line break stands for each, which JSON itself has only as \n.


PASSAGE_LENGTH = 512  # characters, at least; each takes 150 bytes beside its text
_NEW_PARAGRAPH, _BLANK_LINE, _MESSAGE_END = "\n\n", r"\n\n", '","role":"'


def _split(body: str) -> tuple[str, list[str]]:
    """Return canonical JSON with a line break for each of its passages, and these."""
    passages = []

    def rest(paragraph: str) -> str:
        if len(paragraph) < PASSAGE_LENGTH:
            return paragraph
        passages.append(paragraph)
        return "\n"

    messages = [_BLANK_LINE.join(map(rest, text.split(_BLANK_LINE))) for text in body.split(_MESSAGE_END)]
    return _MESSAGE_END.join(messages), passages


def bodies(connection: sa.Connection, hashes: Iterable[str]) -> dict[str, str]:
    """Return the canonical JSON of requests, by their hashes."""
    rows = list(rows_in_chunks(connection, sa.select(request), request.c.hash, hashes))
    passages = {row["hash"]: json.loads(row["passages"] or "[]") for row in rows}
    named = chain.from_iterable(passages.values())
    stored = rows_in_chunks(connection, sa.select(passage), passage.c.hash, named)
    texts = {row["hash"]: row["text"] for row in stored}
    joined = {}
    for row in rows:
        first, *rest = row["body"].split("\n")
        pairs = zip((texts[key] for key in passages[row["hash"]]), rest, strict=True)
        joined[row["hash"]] = "".join(chain([first], *pairs))
    return joined


def named_passages(connection: sa.Connection) -> sa.Select[tuple[str]]:
    """Select the hashes of the passages that requests name."""
    if connection.dialect.name == "postgresql":
        listed = sa.func.jsonb_array_elements_text(sa.cast(request.c.passages, JSONB))
    else:
        listed = sa.func.json_each(request.c.passages)
    named = listed.table_valued("value")
    return sa.select(named.c.value).select_from(request.join(named, sa.true()))


def link(connection: sa.Connection, used: Iterable[tuple[str, str, bool | None]]) -> None:
    """Write that runs used calls, as (id of the run, key of the call, asked); what is written already stays, and the
    first of what is named twice. asked: whether the run asked them itself, or the record had them; None: not known."""
    first: dict[tuple[str, str], bool | None] = {}
    for run_id, key, asked in used:
        first.setdefault((run_id, key), asked)
    rows = [{"run": run_id, "call": key, "asked": asked} for (run_id, key), asked in first.items()]
    insert_new(connection, run_call, rows)


def answered(connection: sa.Connection) -> Iterator[dict[str, Any]]:
    """Yield every recorded answer with the `body` of its request; the draws of a request stand together, and requests
    that share passages near each other."""
    query = (
        sa.select(call)
        .join(request, call.c.request == request.c.hash)
        .where(call.c.status == OK)
        .order_by(call.c.kind, request.c.passages, request.c.body, call.c.draw)
    )
    for chunk in in_chunks(connection.execute(query).mappings(), BODIES_AT_ONCE):
        sent = bodies(connection, (row["request"] for row in chunk))
        yield from ({**row, "body": sent[row["request"]]} for row in chunk)


def _storable(answer: Answer) -> Answer:
    texts: dict[str, Any] = {
        name: clean
        for name in ("status", "error", "content", "reasoning", "finish_reason", "served_model")
        if (text := getattr(answer, name)) is not None and (clean := storable(text)) != text
    }
    return replace(answer, **texts) if texts else answer


def _columns(answer: Answer, endpoint: str) -> dict[str, Any]:
    values = vars(answer) | {"response": answer.content, "endpoint": endpoint}
    del values["content"]
    return values


# ---- provenance
#
# Where the answers behind runs come from: how many each server gave, and how many of them were recorded before.
#
# origins(connection, ["run-1"])["run-1"][0].sentence() == "480 of 480 messages come from http://gpu1:8000/v1"


# What the answers to each kind of call are called, in the order in which they are shown.
ANSWERS = {
    "gate": "gate answers",
    "respond": "messages",
    "rewrite": "rewritten messages",
    "judge": "judgements",
    "check": "task checks",
}


PROMPTS = {
    "gate": "gate's prompt",
    "respond": "message's prompt",
    "rewrite": "rewrite's prompt",
    "judge": "judge's prompt",
}


@dataclass(frozen=True)
class Source:
    """The answers of one kind by one model that one server gave. server: the text of its ServerId, or NOT_KNOWN.
    answers: of it; of: by all servers together. recorded: of `answers`, those that were in the record before the run
    was planned."""

    kind: str
    model: str
    server: str
    answers: int
    of: int
    recorded: int

    def sentence(self) -> str:
        """Return '360 of 480 messages come from http://gpu1:8000/v1 (120 of them were recorded before)'."""
        name = ANSWERS.get(self.kind, f"{self.kind} answers")
        source = (
            "are of a server not known" if self.server == NOT_KNOWN else f"come from {ServerId.read(self.server).shown}"
        )
        before = f" ({self.recorded:,} of them were recorded before)" if self.recorded else ""
        return f"{self.answers:,} of {self.of:,} {name} {source}{before}"

    def as_json(self) -> dict[str, object]:
        return vars(self) | {"server": None if self.server == NOT_KNOWN else self.server}


@dataclass(frozen=True)
class StandIn:
    """Answers of one kind that another model gave than the one asked for, as the server says. of: answers of the kind
    by the model that was asked."""

    kind: str
    model: str
    served_model: str
    answers: int
    of: int

    def sentence(self) -> str:
        """Return it for people: '3 of 30 messages come from gpt-4o-mini, not from gpt-4o as asked'."""
        name = ANSWERS.get(self.kind, f"{self.kind} answers")
        return f"{self.answers:,} of {self.of:,} {name} come from {self.served_model}, not from {self.model} as asked"


def stand_ins(connection: sa.Connection, run_id: str) -> list[StandIn]:
    """Return the answers that a run has in place of those of the models that it asked, the most answers first."""
    columns = (call.c.kind, call.c.model, call.c.served_model)
    query = (
        sa.select(*columns, sa.func.count().label("answers"))
        .join(call, call.c.key == run_call.c.call)
        # A refusal has no text, and names no model.
        .where(run_call.c.run == run_id, call.c.status == OK, call.c.response != "")
        .group_by(*columns)
    )
    rows = connection.execute(query).all()
    totals = Counter[tuple[str, str]]()
    for row in rows:
        totals[row.kind, row.model] += row.answers
    others = [
        StandIn(row.kind, row.model, row.served_model, int(row.answers), totals[row.kind, row.model])
        for row in rows
        if row.served_model is not None
    ]
    return sorted(others, key=lambda item: (-item.answers, item.kind, item.served_model))


def origins(connection: sa.Connection, run_ids: Sequence[str]) -> dict[str, list[Source]]:
    """Return the sources of each run's answers: kinds in the order of ANSWERS, within each the server of the most
    answers first. Failed calls are no answers. Empty for a run without calls, as one that was imported."""
    # Both are ISO 8601 texts in UTC, so their order as texts is that of the times. What the run asked itself was never
    # there before, whatever the time says: it is that of a worker, whose clock may be behind that of the planner.
    before = sa.case((run_call.c.asked.is_(True), 0), (call.c.started < run.c.created, 1), else_=0)
    columns = (run_call.c.run, call.c.kind, call.c.model, call.c.server)
    # run_call has a run and a call once, so a call counts once for a run however many of its rows name it.
    query = (
        sa.select(*columns, sa.func.count().label("answers"), sa.func.sum(before).label("recorded"))
        .join(call, call.c.key == run_call.c.call)
        .join(run, run.c.id == run_call.c.run)
        .where(run_call.c.run.in_(run_ids), call.c.status == OK)
        .group_by(*columns)
    )
    rows = connection.execute(query).all()
    # The denominator: all servers' answers of a kind by a model in a run.
    totals = Counter[tuple[str, str, str]]()
    for row in rows:
        totals[row.run, row.kind, row.model] += row.answers
    by_run: dict[str, list[Source]] = {run_id: [] for run_id in run_ids}
    for row in rows:
        of = totals[row.run, row.kind, row.model]
        source = Source(row.kind, row.model, row.server or NOT_KNOWN, int(row.answers), of, int(row.recorded))
        by_run[row.run].append(source)
    order = list(ANSWERS)
    for sources in by_run.values():
        # Kinds that have no name for people come last.
        sources.sort(key=lambda s: (order.index(s.kind) if s.kind in order else 99, s.model, -s.answers, s.server))
    return by_run

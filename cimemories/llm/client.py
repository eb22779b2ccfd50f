"""One OpenAI-compatible server, asked through the openai SDK. A failure comes back as an outcome with its cause.

The SDK retries what is worth retrying on the way (408, 409, 429, 5xx, cut connections, time-outs). What it cannot see
is done here: a body that is no JSON or has no choices is asked for again, and a server that returns fewer choices than
the `n` it was asked for is asked for the missing draws one by one.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeVar

import httpx2
import openai
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from cimemories.model import ChatRequest
from cimemories.store.calls import OK, Answer, request_body
from cimemories.store.ids import now

SIMULATOR_OWNER = "cimemories-simulator"
DEFAULT_KEY_ENV = "OPENAI_API_KEY"
MALFORMED_ATTEMPTS = 3
CONNECT_SECONDS = 10.0
PATIENCE = 2.0
PATIENCE_SECONDS = 1800.0
FATAL = frozenset({"unauthorised", "unknown model"})  # no later call can do better: the work stops


_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
T = TypeVar("T")


class EndpointError(Exception):
    """A server cannot be used. The message is for people: what, where, what to do next."""


@dataclass(frozen=True)
class Endpoint:
    """Where a model is asked. The key itself is never kept here: only the name of the variable that holds it.

    timeout: seconds to wait for the first try of a request; each retry waits twice as long as the one before.
    n_at_once: whether several draws may be one request; a server that does not know `n` gets one request a draw.
    """

    base_url: str
    api_key_env: str = DEFAULT_KEY_ENV
    timeout: float = 120.0
    max_retries: int = 4
    n_at_once: bool = True

    @property
    def api_key(self) -> str:
        """The key from the environment. Local servers ask for none, but the SDK does."""
        return os.environ.get(self.api_key_env) or "no-key-needed"


@dataclass(frozen=True)
class ServerInfo:
    """What a server says of itself. `models` is empty where it does not list them."""

    models: tuple[str, ...]
    simulated: bool
    max_model_len: int | None


class Client:
    """Asks one endpoint. `simulated` is what the probe found out; it goes into every call's key."""

    def __init__(self, endpoint: Endpoint, *, simulated: bool) -> None:
        self.endpoint = endpoint
        self.simulated = simulated
        self._sdk = _sdk(endpoint)

    async def complete(self, request: ChatRequest, keys: Mapping[int, str]) -> list[Answer]:
        """Ask for these draws (draw -> key of the call); one outcome a draw, in order of draw, and never an exception
        for what a server does. Neighbouring draws are one exchange."""
        if not self.endpoint.n_at_once and len(keys) > 1:
            alone = await asyncio.gather(*(self._exchange(request, [draw], keys) for draw in sorted(keys)))
            return [answer for answers in alone for answer in answers]
        answers: list[Answer] = []
        for draws in _neighbours(sorted(keys)):
            answers.extend(await self._exchange(request, draws, keys))
        return answers

    async def close(self) -> None:
        await self._sdk.close()

    async def _exchange(self, request: ChatRequest, draws: Sequence[int], keys: Mapping[int, str]) -> list[Answer]:
        got: dict[int, Answer] = {}
        owed = list(draws)
        failure = _Failure("malformed", "the server returned no choices")
        attempts = 0
        while owed and attempts < MALFORMED_ATTEMPTS:
            attempts += 1
            asked = owed if not got else owed[:1]
            outcome = await self._attempt(request, asked, keys)
            if isinstance(outcome, _Failure):
                failure = outcome
                if outcome.cause != "malformed":
                    break
                continue
            got |= outcome
            if outcome:
                attempts = 1
            owed = [draw for draw in draws if draw not in got]
        exchange, started = uuid.uuid4().hex, now()
        for draw in owed:
            got[draw] = Answer(
                keys[draw], draw, failure.cause, exchange, failure.seconds, started, failure.error, attempts=attempts
            )
        return [got[draw] for draw in draws]

    async def _attempt(
        self, request: ChatRequest, draws: Sequence[int], keys: Mapping[int, str]
    ) -> dict[int, Answer] | _Failure:
        body = request_body(request)
        if request.seed is not None:
            body["seed"] = request.seed + draws[0]
        if len(draws) > 1:
            body["n"] = len(draws)
        started, clock = now(), time.perf_counter()
        try:
            # The SDK's way for a body that is ready: what it would check and convert here costs more than all the rest.
            raw = await self._sdk.post("/chat/completions", cast_to=httpx2.Response, content=_wire(body))
            completion = json.loads(raw.content)
        except openai.OpenAIError as error:
            return replace(self._explain(error), seconds=time.perf_counter() - clock)
        except (ValueError, RecursionError) as error:
            reason = _short(error, self.endpoint)
            return _Failure("malformed", f"the answer is no JSON: {reason}", time.perf_counter() - clock)
        seconds = time.perf_counter() - clock
        found = _answers(completion, draws, keys, seconds, started)
        return found or _Failure("malformed", "the answer has no choices with a message", seconds)

    def _explain(self, error: openai.OpenAIError) -> _Failure:
        text = _short(getattr(error, "message", error), self.endpoint)
        match error:
            case openai.APITimeoutError() if isinstance(error.__cause__, httpx2.ConnectTimeout):
                return _Failure("connection", "the server takes no connection")
            case openai.APITimeoutError():
                return _Failure("timeout", f"no answer, waited {self.endpoint.timeout:g} s and longer at each retry")
            case openai.APIConnectionError():
                cause = _short(error.__cause__ or error, self.endpoint)
                return _Failure("connection", f"{cause or 'the connection was cut'}")
            case openai.AuthenticationError() | openai.PermissionDeniedError():
                return _Failure("unauthorised", text)
            case openai.NotFoundError():
                return _Failure("unknown model", text)
            case openai.RateLimitError():
                return _Failure("rate limited", text)
            case openai.InternalServerError():
                return _Failure("server error", text)
            case openai.APIStatusError():
                return _Failure("rejected", f"HTTP {error.status_code}: {text}")
            case _:
                return _Failure("malformed", text)


@dataclass(frozen=True)
class _Failure:
    cause: str
    error: str
    seconds: float = 0.0


def _wire(body: Mapping[str, object]) -> bytes:
    """A body as it is sent. Keys keep their order: servers write the fields of a JSON schema in the order given."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _sdk(endpoint: Endpoint) -> AsyncOpenAI:
    try:
        return AsyncOpenAI(
            base_url=endpoint.base_url,
            api_key=endpoint.api_key,
            timeout=httpx2.Timeout(endpoint.timeout, connect=min(CONNECT_SECONDS, endpoint.timeout)),
            max_retries=endpoint.max_retries,
            http_client=DefaultAsyncHttpxClient(event_hooks={"request": [_more_patient]}),
        )
    except httpx2.InvalidURL as error:
        raise EndpointError(f"{endpoint.base_url} is no address of a server ({error}). Check --base-url.") from error


async def _more_patient(request: httpx2.Request) -> None:
    """Wait longer at each retry: a server that lost a request gets it again soon, one that is slow gets its time."""
    retry = int(request.headers.get("x-stainless-retry-count", 0))
    patience: dict[str, float | None] = request.extensions["timeout"]
    if retry and patience.get("read") is not None:
        patience["read"] = min(float(patience["read"] or 0) * PATIENCE**retry, PATIENCE_SECONDS)


def _neighbours(draws: Sequence[int]) -> list[list[int]]:
    """Runs of consecutive draws: with a seed, servers give choice i the seed of the request plus i."""
    groups = groupby(enumerate(draws), key=lambda pair: pair[1] - pair[0])
    return [[draw for _, draw in group] for _, group in groups]


def _answers(
    completion: object, draws: Sequence[int], keys: Mapping[int, str], seconds: float, started: str
) -> dict[int, Answer]:
    """The answers in a decoded body, by draw. A choice without a message that can be read is left out: it is owed."""
    exchange = uuid.uuid4().hex
    choices = _field(completion, "choices", list) or []
    usage = _field(completion, "usage", dict)
    cached = _count(_field(usage, "prompt_tokens_details", dict), "cached_tokens")
    places = [_count(choice, "index") for choice in choices]
    if sorted(place for place in places if place is not None) != list(range(len(choices))):
        places = list(range(len(choices)))
    answers: dict[int, Answer] = {}
    for place, choice in sorted(zip(places, choices, strict=True), key=lambda pair: pair[0] or 0):
        message = _field(choice, "message", dict)
        if message is None or not isinstance(message.get("content") or "", str) or (place or 0) >= len(draws):
            continue
        draw, first = draws[place or 0], not answers
        content, thought = _split_thought(_clean(message.get("content") or ""))
        reasoning = _field(message, "reasoning", str) or _field(message, "reasoning_content", str)
        reason = _field(choice, "finish_reason", str)
        answers[draw] = Answer(
            key=keys[draw],
            draw=draw,
            status=OK,
            exchange=exchange,
            seconds=seconds,
            started=started,
            content=content,
            reasoning=_clean(reasoning) if reasoning else thought,
            finish_reason="refusal" if _field(message, "refusal", str) and not content else reason,
            prompt_tokens=_count(usage, "prompt_tokens") if first else None,
            cached_tokens=cached if first else None,
            completion_tokens=_count(usage, "completion_tokens") if first else None,
        )
    return answers


def _field(record: object, name: str, kind: type[T]) -> T | None:
    """A field of a decoded object, where it is of that type."""
    value = record.get(name) if isinstance(record, dict) else None
    return value if isinstance(value, kind) else None


def _count(record: object, name: str) -> int | None:
    """A field that counts something, where it is a number that an integer column can take."""
    value = _field(record, name, int)
    return value if value is not None and not isinstance(value, bool) and 0 <= value < 2**31 else None


def _clean(text: str) -> str:
    """Text without what a database refuses: the zero character and halves of surrogate pairs."""
    return _UNSTORABLE.sub("\ufffd", text)


def _split_thought(content: str) -> tuple[str, str | None]:
    """Text and thinking apart, for servers that run without a reasoning parser and leave the tags in the text."""
    match = re.match(r"\s*<think>(.*?)</think>\s*", content, re.DOTALL)
    return (content[match.end() :], match.group(1).strip()) if match else (content, None)


def _short(error: object, endpoint: Endpoint) -> str:
    """An error as one line for the record, without the key: taken out before the cut, which could go through it."""
    text, key = str(error), os.environ.get(endpoint.api_key_env)
    return _clean(" ".join((text.replace(key, "[key]") if key else text).split())[:500])


def probe(endpoint: Endpoint, model: str) -> ServerInfo:
    """Ask a server what it serves, before any work is planned on it.

    Raises EndpointError where it does not answer, refuses the key, or lists models without this one. A server that
    has no list of models (404, 405) is taken at its word.
    """
    return asyncio.run(_probe(endpoint, model))


async def _probe(endpoint: Endpoint, model: str) -> ServerInfo:
    try:
        async with AsyncOpenAI(
            base_url=endpoint.base_url, api_key=endpoint.api_key, timeout=CONNECT_SECONDS, max_retries=3
        ) as sdk:
            cards = [card async for card in await sdk.models.list()]
        return _server_info(endpoint, model, cards)
    except openai.APIConnectionError as error:
        cause = _short(error.__cause__ or error, endpoint)
        raise EndpointError(
            f"no answer from {endpoint.base_url} ({cause or 'connection failed'}). Is the server running, and is this "
            "its base URL (it ends in /v1 for vLLM)?"
        ) from error
    except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
        raise EndpointError(
            f"{endpoint.base_url} refuses the key in ${endpoint.api_key_env}. Set that variable, or name another one "
            "with --api-key-env."
        ) from error
    except openai.APIStatusError as error:
        if error.status_code in (404, 405, 501):
            return ServerInfo((), False, None)
        raise EndpointError(
            f"{endpoint.base_url} answered HTTP {error.status_code} to the list of models: "
            f"{_short(error.message, endpoint)}. Look at the server's log, then try again."
        ) from error
    except (openai.OpenAIError, httpx2.InvalidURL, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise EndpointError(
            f"{endpoint.base_url} does not answer like an OpenAI-compatible server ({_short(error, endpoint)}). "
            "Check the base URL (it ends in /v1 for vLLM)."
        ) from error


def _server_info(endpoint: Endpoint, model: str, cards: Sequence[Any]) -> ServerInfo:
    names = tuple(str(card.id) for card in cards)
    if names and model not in names:
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise EndpointError(f"{endpoint.base_url} does not serve '{model}'. It serves: {shown}.")
    own = next((card for card in cards if card.id == model), None)
    length = (own.model_extra or {}).get("max_model_len") if own is not None else None
    simulated = any(card.owned_by == SIMULATOR_OWNER for card in cards)
    return ServerInfo(names, simulated, length if isinstance(length, int) else None)

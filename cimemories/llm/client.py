"""Requests to one OpenAI-compatible server, through the openai SDK.

A failure is returned as an outcome with its cause. The SDK retries temporary errors (408, 409, 5xx, cut connections,
time-outs) and honours a Retry-After of up to two minutes; traffic.py waits if a server limits requests (429);
transport.py bounds the size and the time of an answer. This module handles what the SDK cannot see: a request whose
answer is no JSON or has no choices is sent again, and if a server returns fewer choices than `n`, the missing draws are
requested one by one."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import sys
import time
import uuid
from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

import httpx2

from cimemories.llm import replies
from cimemories.llm.endpoint import Endpoint
from cimemories.llm.http.traffic import LONGEST_RETRY_AFTER, Traffic, limits_requests, retry_after
from cimemories.model import ChatRequest
from cimemories.store.calls import OK, Answer, Origin, body_json, request_body
from cimemories.store.engine import now, storable
from cimemories.text import RepeatedKeyError, merged

if TYPE_CHECKING:
    import openai

INPUT = "input"  # the role of a JSON list of texts to embed
MALFORMED_ATTEMPTS = 3
MOST_AT_ONCE = 100  # draws in one request: OpenAI refuses an `n` above 128, and so does the simulator
MOST_CHOICES = 1_000  # no server takes so many as `n`
LONGEST_TEXT = 1_000_000  # characters of a message or of its thinking; 128,000 tokens are about 600,000
# No later call can succeed: the work stops.
FATAL = frozenset({"unauthorised", "unknown model", replies.NO_CREDIT})


T = TypeVar("T")
Confirm = Callable[[Endpoint, str, Origin], Awaitable[Origin]]


class Client:
    """Sends requests to one endpoint. simulated: as the probe found it; it goes into every call's key.

    at_most: requests in flight if each draw is a request of its own; otherwise the caller bounds them. origin: whose
    recorded answers may serve, as planned. confirm: returns, before the first call for a model, which server answers.
    traffic: of all clients of this server."""

    malformed_attempts = MALFORMED_ATTEMPTS

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        simulated: bool,
        at_most: int | None = None,
        origin: Origin | None = None,
        confirm: Confirm | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.traffic = traffic or Traffic()
        self.simulated = simulated
        self._planned = origin or Origin(simulated, endpoint.server, endpoint.fresh)
        self._confirm = confirm if self._planned.server is not None else None
        self._confirmed: dict[str, asyncio.Future[Origin]] = {}
        # The executor counts jobs. Where each draw is a request of its own, a job of n draws would be n at once without
        # this.
        bounded = at_most is not None and not endpoint.n_at_once
        self._room = asyncio.Semaphore(at_most or 1) if bounded else contextlib.nullcontext()
        self._redactor = endpoint.redactor
        from cimemories.llm.http.transport import sdk

        self._sdk = sdk(endpoint, self.traffic)

    async def complete(self, request: ChatRequest, keys: Mapping[int, str]) -> list[Answer]:
        """Request these draws (draw -> key of the call); return one outcome a draw, in order, never an exception.
        Neighbouring draws are one exchange, unless the endpoint takes no `n`."""
        if not self.endpoint.n_at_once and len(keys) > 1:
            single = await asyncio.gather(*(self._exchange(request, [draw], keys) for draw in sorted(keys)))
            return [answer for answers in single for answer in answers]
        answers: list[Answer] = []
        for draws in _neighbours(sorted(keys)):
            answers.extend(await self._exchange(request, draws, keys))
        return answers

    def origin(self, model: str) -> Origin:
        """Return whose recorded answers may serve calls for a model, as far as is known now."""
        # `done` and `exception` before `result`, which would raise for a look-up that is under way or has failed.
        known = self._confirmed.get(model)
        return known.result() if known is not None and known.done() and not known.exception() else self._planned

    async def confirmed(self, model: str) -> Origin:
        """Return whose answers are recorded, once the server has reported its models, which is asked once a model.
        Raises EndpointError if it cannot be the server that the work was planned with."""
        if self._confirm is None:
            return self._planned
        # No await between the test and the assignment, so that a model is looked up once. A failure stays, too.
        if model not in self._confirmed:
            self._confirmed[model] = asyncio.ensure_future(self._confirm(self.endpoint, model, self._planned))
        # Many calls wait for one look-up: shielded, it outlives a call that is cancelled meanwhile.
        return await asyncio.shield(self._confirmed[model])

    async def close(self) -> None:
        """Cancel pending look-ups and close the connections."""
        pending = [task for task in self._confirmed.values() if not task.done()]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        await self._sdk.close()

    async def _exchange(self, request: ChatRequest, draws: Sequence[int], keys: Mapping[int, str]) -> list[Answer]:
        answers: dict[int, Answer] = {}
        missing = list(draws)
        failure = Failure("malformed", "the server returned no choices")
        attempts = 0
        async with self._room:
            while missing and attempts < self.malformed_attempts:
                attempts += 1
                # `n` is not sent again to a server that returned too few.
                batch = missing if not answers else missing[:1]
                outcome = await self._attempt(request, batch, keys)
                if isinstance(outcome, Failure):
                    failure = outcome
                    if outcome.cause != "malformed":
                        break
                    continue
                answers |= outcome
                if outcome:
                    attempts = 1  # it does answer: the limit is on attempts in a row without an answer
                missing = [draw for draw in draws if draw not in answers]
        if missing:
            exchange, started = uuid.uuid4().hex, now()
        for draw in missing:
            answer = Answer(
                keys[draw], draw, failure.cause, exchange, failure.seconds, started, failure.error, attempts=attempts
            )
            answers[draw] = refusal(answer) if failure.cause == replies.REFUSED else answer
        return [answers[draw] for draw in draws]

    async def _attempt(
        self, request: ChatRequest, draws: Sequence[int], keys: Mapping[int, str]
    ) -> dict[int, Answer] | Failure:
        if request.messages[0][0] == INPUT:
            return await self._embed(request, draws, keys)
        body = request_body(request)
        if request.seed is not None:
            # Servers give choice i the seed plus i: by the first draw's seed each neighbour gets its own, see
            # _neighbours.
            body["seed"] = request.seed + draws[0]
        if len(draws) > 1:
            body["n"] = len(draws)
        started = now()
        # Keys keep their order: servers write the fields of a JSON schema in the order given. "replace": half of a
        # surrogate pair, which UTF-8 cannot hold, is sent as a question mark instead of raising.
        posted = await self._post("/chat/completions", body_json(body).encode("utf-8", "replace"))
        if isinstance(posted, Failure):
            return posted
        completion, seconds = posted
        # The body is bounded in bytes; these bound the size of one answer in the database.
        if len(_field(completion, "choices", list) or []) > MOST_CHOICES:
            return Failure("too large", f"the answer has more than {MOST_CHOICES:,} choices", seconds)
        answers = self._answers(completion, request.model, draws, keys, seconds, started)
        if any(len(text or "") > LONGEST_TEXT for a in answers.values() for text in (a.content, a.reasoning)):
            return Failure("too large", f"a message of the answer is longer than {LONGEST_TEXT:,} characters", seconds)
        return answers or Failure("malformed", "the answer has no choices with a message", seconds)

    async def _embed(
        self, request: ChatRequest, draws: Sequence[int], keys: Mapping[int, str]
    ) -> dict[int, Answer] | Failure:
        """Return the vectors of the texts in a request, by the embeddings endpoint, as one answer: a JSON list of
        base64."""
        body = {"model": request.model, "input": json.loads(request.messages[0][1]), "encoding_format": "base64"}
        started = now()
        posted = await self._post("/embeddings", json.dumps(body).encode())
        if isinstance(posted, Failure):
            # vLLM has this path only if it serves a model for embeddings; for a model that it lacks it says so.
            if posted.cause == "unknown model" and "model" not in posted.error:
                hint = f"{posted.error}, {request.model} is not served for embeddings there. Name a model that is"
                posted = replace(posted, error=f"{hint}, and its server by base_url")
            return posted
        given, seconds = posted
        items = sorted(_field(given, "data", list) or [], key=lambda item: _count(item, "index") or 0)
        vectors = [_vector(item.get("embedding") if isinstance(item, dict) else None) for item in items]
        content = json.dumps(vectors)
        if None in vectors or len(vectors) != len(body["input"]):
            return Failure("malformed", "the answer has not one vector for each text", seconds)
        if len(content) > LONGEST_TEXT:
            return Failure("too large", f"vectors of more than {LONGEST_TEXT:,} characters", seconds)
        tokens = _count(_field(given, "usage", dict), "prompt_tokens")
        first = Answer(
            keys[draws[0]], draws[0], OK, uuid.uuid4().hex, seconds, started, content=content, prompt_tokens=tokens
        )
        return {draws[0]: replace(first, cached_tokens=0, completion_tokens=0)}

    async def _post(self, path: str, content: bytes) -> tuple[object, float] | Failure:
        """Return a decoded answer, and its seconds; a failed call is an outcome, too, and counts as missing."""
        import openai

        clock = time.perf_counter()
        try:
            # A prepared body: 0.6 ms of processor time a call, chat.completions.create 1.15 ms, which checks and
            # converts the body and the answer (prompts of 16,000 characters, instant server).
            raw = await self._sdk.post(path, cast_to=httpx2.Response, content=content)
            return json.loads(raw.content, object_pairs_hook=merged), time.perf_counter() - clock
        except openai.OpenAIError as error:
            return replace(self._explain(error), seconds=time.perf_counter() - clock)
        except (ValueError, RecursionError) as error:
            problem = "is ambiguous" if isinstance(error, RepeatedKeyError) else "is not JSON"
            reason = self.endpoint.short(error)
            return Failure("malformed", f"the answer {problem}: {reason}", time.perf_counter() - clock)

    def _answers(
        self,
        completion: object,
        model: str,
        draws: Sequence[int],
        keys: Mapping[int, str],
        seconds: float,
        started: str,
    ) -> dict[int, Answer]:
        """Return the answers in a decoded body, by draw; a choice without a readable message stays missing. model: the
        requested one."""
        exchange = uuid.uuid4().hex
        choices = _field(completion, "choices", list) or []
        usage = _field(completion, "usage", dict)
        cached = _count(_field(usage, "prompt_tokens_details", dict), "cached_tokens")
        indices = [_count(choice, "index") for choice in choices]
        # Servers may send choices in any order, and some number them all 0: then their order has to do.
        if sorted(index for index in indices if index is not None) != list(range(len(choices))):
            indices = list(range(len(choices)))
        answers: dict[int, Answer] = {}
        for index, choice in sorted(zip(indices, choices, strict=True), key=lambda pair: pair[0] or 0):
            message = replies.read_message(_field(choice, "message", dict))
            # An index beyond the draws: the server gave more choices than were requested.
            if message is None or (index or 0) >= len(draws):
                continue
            draw = draws[index or 0]
            first = not answers  # the tokens of an exchange are counted once, with its first answer
            reason = self._clean(_field(choice, "finish_reason", str) or "") or None
            answers[draw] = Answer(
                key=keys[draw],
                draw=draw,
                status=OK,
                exchange=exchange,
                seconds=seconds,
                started=started,
                error=message.problem,
                content=self._clean(message.content),
                reasoning=self._clean(message.reasoning) if message.reasoning else None,
                finish_reason="refusal" if message.refused else reason,
                served_model=self._served(completion, model),
                prompt_tokens=_count(usage, "prompt_tokens") if first else None,
                cached_tokens=cached if first else None,
                completion_tokens=_count(usage, "completion_tokens") if first else None,
            )
        return answers

    def _served(self, completion: object, model: str) -> str | None:
        """Return the model that answered, or None if it is the requested one, or the answer names none."""
        served = _field(completion, "model", str)
        return self.endpoint.short(served)[:200] if served and served != model else None

    def _clean(self, text: str) -> str:
        """Return a model's text without characters that a database refuses, and without the key, which a server may
        send back."""
        return self._redactor.answer(storable(text))

    def _explain(self, error: openai.OpenAIError) -> Failure:
        import openai

        from cimemories.llm.http.transport import AnswerRefused

        text = self.endpoint.short(getattr(error, "message", error))
        match error:
            case AnswerRefused():
                return Failure(error.cause, text)
            # The SDK makes one error of all time-outs. One while connecting means that the server was not reached,
            # which counts towards UNREACHABLE_IN_A_ROW (executor.py); a slow answer does not.
            case openai.APITimeoutError() if isinstance(error.__cause__, httpx2.ConnectTimeout):
                cause = self.endpoint.short(error.__cause__.__cause__ or "")
                return Failure("connection", f"no connection to the server{f': {cause}' if cause else ''}")
            case openai.APITimeoutError():
                longer = ", and longer at each retry" if self.endpoint.max_retries else ""
                return Failure("timeout", f"no answer after {self.endpoint.timeout:g} s{longer}")
            case openai.APIConnectionError():
                cause = self.endpoint.short(error.__cause__ or error)
                return Failure("connection", f"{cause or 'the connection was cut'}")
            case openai.APIStatusError():
                return self._explain_status(error, text)
            case _:
                return Failure("malformed", text)

    def _explain_status(self, error: openai.APIStatusError, text: str) -> Failure:
        cause = replies.cause_of(error.status_code, error.body)
        body = error.body
        detail = (body.get("error") or body.get("detail")) if isinstance(body, Mapping) else body
        # The SDK quotes only {"error": {"message": ...}}. Ollama writes the text alone, FastAPI a detail.
        if detail and isinstance(detail, str) and not detail.lstrip().startswith("<"):
            text = self.endpoint.short(f"{text} - {detail}")
        match cause:
            case replies.NO_CREDIT:
                text = f"no credit left at {self.endpoint.base_url}: {text}. Top up, then resume"
            case "unauthorised" | "forbidden":
                text += f" ({why})" if (why := self.endpoint.held_back) else ""
            case "rate limited" | "server error":
                text += self._waited(error.response)
            case "rejected":
                text = f"HTTP {error.status_code}: {text}"
        return Failure(cause, text)

    def _waited(self, response: httpx2.Response) -> str:
        """Describe the waiting for the server, for the end of an error, or return ''."""
        seconds = retry_after(response.headers) or 0.0
        if seconds > LONGEST_RETRY_AFTER:
            return (
                f" (not retried: the server asks to wait {seconds:,.0f} s, see Retry-After, and a run waits at most "
                f"{LONGEST_RETRY_AFTER:g} s. Resume it later)"
            )
        if limits_requests(response):
            return " (nothing got through for minutes. Resume it later)"
        if not seconds or response.status_code == 429 or not self.endpoint.max_retries:
            return ""
        return f" (tried {self.endpoint.max_retries + 1} times, waiting as long as its Retry-After asks)"


def refusal(answer: Answer) -> Answer:
    """Return a failed call as an answer: the server refuses this prompt, and would each time."""
    return replace(answer, status=OK, content="", finish_reason=replies.CONTENT_FILTER)


@dataclass(frozen=True)
class Failure:
    cause: str
    error: str
    seconds: float = 0.0


def _vector(value: object) -> str | None:
    """Return a vector as base64 of 32-bit floats, or None. Servers that know no encoding_format send a list."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return None
    try:
        numbers = array("f", value)
    except (TypeError, OverflowError):
        return None
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()


def _neighbours(draws: Sequence[int]) -> list[list[int]]:
    """Return runs of at most MOST_AT_ONCE consecutive draws: servers give choice i the seed of the request plus i."""
    # Within a run of consecutive draws the difference of draw and position is constant.
    groups = groupby(enumerate(draws), key=lambda pair: pair[1] - pair[0])
    runs = [[draw for _, draw in group] for _, group in groups]
    return [run[start : start + MOST_AT_ONCE] for run in runs for start in range(0, len(run), MOST_AT_ONCE)]


def _field(record: object, name: str, kind: type[T]) -> T | None:
    """Return a field of a decoded object, or None if it is not of that type."""
    value = record.get(name) if isinstance(record, dict) else None
    return value if isinstance(value, kind) else None


def _count(record: object, name: str) -> int | None:
    """Return a count, or None if an integer column cannot hold it."""
    value = _field(record, name, int)
    return value if value is not None and not isinstance(value, bool) and 0 <= value < 2**31 else None

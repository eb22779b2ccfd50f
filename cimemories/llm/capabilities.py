"""The capabilities of a server, probed before any work is planned on it, with one request if it has all that are
wanted.

Servers differ in `n`, in response_format, in seeds, in temperatures and in the name of the limit on tokens. Some refuse
unknown fields, some silently drop them: the answer is checked, whatever the status. The refused field is read from the
error; if that does not name it, each feature is tried alone. The request carries the fields of later requests: their
temperature and others, and a JSON schema with all the keywords that theirs use."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import httpx2

from cimemories import event_loop
from cimemories.llm.client import MALFORMED_ATTEMPTS
from cimemories.llm.endpoint import Endpoint, EndpointError, NoApiThere, ServerInfo, below_v1
from cimemories.llm.replies import (
    BOUNDS,
    NEEDS_PARSER,
    NO_CREDIT,
    Schema,
    answer_form,
    cause_of,
    read_message,
    response_format,
)
from cimemories.seeds import load_prompt

if TYPE_CHECKING:
    from openai import AsyncOpenAI

THING = "the sky by day"
COLOURS = ("blue", "grey")
# With every keyword that the schemas of judges, ballots and gates use: some servers refuse a schema for one of them.
FORM = answer_form(
    "colour",
    {
        "colour": {"type": "string", "enum": list(COLOURS)},
        "shades": {
            "type": "array",
            "maxItems": 2,
            "items": {
                "anyOf": [
                    {"type": "integer", "minimum": 1, "maximum": 9},
                    {"type": "string", "pattern": "^[0-9]{1,4}-[0-9]{1,4}$"},
                ]
            },
        },
    },
)
FEW_TOKENS, MANY_TOKENS = 64, 2048  # the second for models that think first
LIMITS = ("max_tokens", "max_completion_tokens")
RETRIES = 2  # fewer than a run's calls have: the user waits for the answer
_VERSION_SECONDS = 5.0
FAST = 50.0  # tokens a second: messages come within any timeout, so no longer answer is needed to measure more
MARGIN = 1.5  # of a proposed timeout: a prompt of thousands of tokens has to be read first


@dataclass(frozen=True, kw_only=True)
class Server(ServerInfo):
    """The capabilities of a server, as it reports them and as the probe found them. n, schema: the observed ones; a
    feature that is not wanted counts as present.

    seed: whether it takes one; None if none is wanted. temperature: whether it takes the one asked for. notes: the
    workarounds, as sentences for the manifest. identity: as in the keys of its calls; None in work from before servers
    were distinguished. speed: tokens of one answer a second, at least; None if the server counts none."""

    models: tuple[str, ...] = ()
    max_model_len: int | None = None
    n: bool = True
    schema: Schema = "json_schema"
    seed: bool | None = None
    temperature: bool = True
    token_limit: str = LIMITS[0]
    version: str | None = None
    notes: tuple[str, ...] = ()
    identity: str | None = None
    speed: float | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Server:
        """Return a server as a manifest describes it; unknown fields are ignored."""
        own = {name: value for name, value in values.items() if name in cls.__dataclass_fields__}
        return cls(**{**own, "notes": tuple(own.get("notes", ()))})

    def as_json(self) -> dict[str, object]:
        # Without usual values, as before they were probed: runs are compared by their plans.
        left_out = ("models", "base_url", "speed", *(("temperature",) if self.temperature else ()))
        return {name: v for name, v in asdict(self).items() if name not in left_out} | {"notes": list(self.notes)}

    def too_slow(self, max_tokens: int | None, timeout: float) -> str:
        """Return a sentence if an answer of so many tokens takes longer than the timeout, in seconds; '' if not, or if
        unknown."""
        if not self.speed or not max_tokens or max_tokens / self.speed <= timeout:
            return ""
        seconds = max_tokens / self.speed
        proposed = math.ceil(MARGIN * seconds / 60) * 60
        return (
            f"the server writes about {self.speed:.2g} tokens a second: a message of {max_tokens:,} tokens takes about "
            f"{seconds:,.0f} s, longer than the request timeout of {timeout:g} s. Set it to {proposed:,} s (on the "
            f"command line: --timeout {proposed})"
        )

    def accepted(self, fields: Mapping[str, object]) -> dict[str, object]:
        """Return the fields of a request without those that the server refuses."""
        return {name: value for name, value in fields.items() if name != "temperature" or self.temperature}


@dataclass(frozen=True)
class _Request:
    """One request of the probe. limit: the name of its token limit. fields: further fields of its body."""

    n: int = 1
    schema: Schema = "none"
    seed: bool = False
    limit: str = LIMITS[0]
    tokens: int = FEW_TOKENS
    fields: Mapping[str, Any] = field(default_factory=dict)
    long: bool = False

    @property
    def without_temperature(self) -> dict[str, object]:
        return {name: value for name, value in self.fields.items() if name != "temperature"}

    def body(self, model: str) -> dict[str, object]:
        # json_object says nothing of the fields, so the prompt has to; OpenAI also refuses it without the word JSON
        # there.
        level = "long" if self.long else "json" if self.schema == "json_object" else "base"
        text = load_prompt("probe", level).render(thing=THING)
        body: dict[str, object] = {"model": model, "messages": [{"role": "user", "content": text}]}
        body[self.limit] = self.tokens
        if self.n > 1:
            body["n"] = self.n
        if self.seed:
            body["seed"] = 0
        body.update(self.fields)
        return body | response_format(FORM, self.schema)


@dataclass(frozen=True)
class _Refused:
    """A request that the server refused. `status` 0: its answer was not a completion."""

    status: int
    text: str
    about: str = ""

    def blames(self, request: _Request) -> dict[str, Any] | None:
        """Return the field of the request that the server's error names, with its replacement, or None. Servers word
        errors differently, so a field is recognised by its name anywhere in the text."""
        text = f"{self.about} {self.text}".lower()
        # OpenAI's error on max_tokens names the field that it wants instead.
        if request.limit == LIMITS[0] and (LIMITS[1] in text or self.about == LIMITS[0]):
            return {"limit": LIMITS[1]}
        about_schema = re.search(r"response_format|json_schema|json_object|structured|guided|output_config", text)
        if request.schema == "json_schema" and (about_schema or any(f"{word.lower()}" in text for word in BOUNDS)):
            return {"schema": "plain_schema"}
        if request.schema != "none" and about_schema:
            return {"schema": "none"}
        if request.seed and re.search(r"\bseed", text):
            return {"seed": False}
        if "temperature" in text and request.fields != request.without_temperature:
            return {"fields": request.without_temperature}
        # n last: a single letter also stands in texts about other fields.
        return {"n": 1} if request.n > 1 and (self.about == "n" or re.search(r"(?:^|[\s'\"`(])n\b", text)) else None


def find_out(
    endpoint: Endpoint,
    model: str,
    *,
    schema_wanted: bool,
    seed_wanted: bool,
    samples: int,
    retries: int = 3,
    fields: str = "{}",
) -> Server:
    """Look up what a server serves, then request one short answer with every feature that is wanted.

    retries: of the look-up. fields: further fields of the requests to come, as JSON; a temperature that the server
    refuses is left out. A seed is sent only if one is wanted: vLLM's engine for CPUs dies of it. Raises EndpointError
    if the server does not answer, refuses the key, does not serve the model, or gives no usable answer to the plainest
    request.
    """
    # Two choices show whether n is obeyed; more would only cost tokens.
    wanted = _Request(
        min(samples, 2), "json_schema" if schema_wanted else "none", seed_wanted, fields=json.loads(fields)
    )
    return event_loop.run(_find_out(endpoint, model, wanted, retries))


async def _find_out(endpoint: Endpoint, model: str, wanted: _Request, retries: int) -> Server:
    from cimemories.llm.http.transport import look_up

    info = await look_up(endpoint, model, retries)
    address = info.base_url or endpoint.base_url
    try:
        server = await _probed(replace(endpoint, base_url=address), model, wanted, info)
    except NoApiThere as nothing:
        # A gateway may have no list of models that reveals its address: a request does.
        versioned = below_v1(address)
        if versioned is None:
            raise
        info = replace(info, base_url=versioned)
        try:
            server = await _probed(replace(endpoint, base_url=versioned), model, wanted, info)
        except EndpointError:
            raise nothing from None
    if server.base_url is None:
        return server
    return replace(server, notes=(f"{endpoint.base_url} was corrected to {server.base_url}", *server.notes))


async def _probed(endpoint: Endpoint, model: str, wanted: _Request, info: ServerInfo) -> Server:
    from cimemories.llm.http.transport import sdk

    async with sdk(replace(endpoint, max_retries=RETRIES)) as client:
        version = asyncio.create_task(_version(client, endpoint))
        try:
            return await _Probe(client, endpoint, model, wanted, info).run(await version)
        finally:
            version.cancel()


async def _version(client: AsyncOpenAI, endpoint: Endpoint) -> str | None:
    import openai

    root = endpoint.base_url.rstrip("/").removesuffix("/v1")  # vLLM has /version beside /v1, not under it
    try:
        raw = await client.get(
            f"{root}/version", cast_to=httpx2.Response, options={"timeout": _VERSION_SECONDS, "max_retries": 0}
        )
        body = json.loads(raw.content)
    except (openai.OpenAIError, ValueError, RecursionError):
        return None
    version = body.get("version") if isinstance(body, dict) else None
    return endpoint.short(version)[:100] if isinstance(version, str) else None


@dataclass
class _Probe:
    client: AsyncOpenAI
    endpoint: Endpoint
    model: str
    request: _Request
    info: ServerInfo
    notes: list[str] = field(default_factory=list)
    _reasons_in_text: bool = False
    _timed: list[tuple[float, float]] = field(default_factory=list)  # answers: tokens of one, and seconds

    async def run(self, version: str | None) -> Server:
        request, answers = await self._accepted()
        n = request.n > 1 or self.request.n == 1
        # Accepted is not obeyed: some servers ignore n and give one choice.
        if request.n > 1 and len(answers) < request.n:
            n = False
            self.notes.append(
                f"the server gave {len(answers)} answer where n asked for {request.n}: one request per sample"
            )
        elif not n:
            self.notes.append("the server refuses n: one request per sample")
        schema = await self._schema(replace(request, n=1), answers) if self.request.schema != "none" else "json_schema"
        if self._reasons_in_text:
            self.notes.append(
                f"the model's reasoning comes in its text and is told from it by its marks: {NEEDS_PARSER}"
            )
        temperature = request.fields == self.request.fields
        if not temperature:
            self.notes.append(
                f"the server refuses a temperature of {self.request.fields['temperature']:g} for this model: none is "
                "sent, so its default holds"
            )
        if self.request.seed and not request.seed:
            self.notes.append("the server refuses seeds: none is sent, so the same request may give another answer")
        if request.limit != LIMITS[0]:
            self.notes.append(f"the server takes the limit on tokens as {request.limit}")
        return Server(
            **vars(self.info),
            n=n,
            schema=schema,
            seed=request.seed if self.request.seed else None,
            temperature=temperature,
            token_limit=request.limit,
            version=version,
            notes=tuple(self.notes),
            speed=await self._speed(request),
        )

    async def _speed(self, request: _Request) -> float | None:
        """Return how many tokens of an answer the server writes a second, at least; None if it does not count them."""
        if not self._timed:
            return None
        speed = max(tokens / seconds for tokens, seconds in self._timed)
        if speed < FAST:
            # A few tokens mostly measure the time before the first one: the extra time of more of them is the pace.
            few, short = self._timed[-1]
            with suppress(EndpointError):
                await self._ask(replace(request, n=1, schema="none", tokens=FEW_TOKENS, long=True))
            many, long = self._timed[-1]
            speed = max(speed, many / long)
            if many > few and long > short:
                speed = max(speed, (many - few) / (long - short))
        return speed

    async def _accepted(self) -> tuple[_Request, Sequence[_Answer]]:
        """Return the request with as many of the wanted features as the server takes, and its answers."""
        request = self.request
        for _ in range(6):  # as many as there are fields to be refused; a schema may be refused twice
            outcome = await self._ask(request)
            if not isinstance(outcome, _Refused):
                return request, outcome
            change = outcome.blames(request)
            if change is None:
                break
            request = replace(request, **change)
        return await self._one_by_one(request.limit)

    async def _one_by_one(self, limit: str) -> tuple[_Request, Sequence[_Answer]]:
        """Start with the plainest request, and add each wanted feature that the server takes."""
        request = _Request(limit=limit, fields=self.request.without_temperature)
        outcome = await self._ask(request)
        if isinstance(outcome, _Refused) and limit == LIMITS[0]:
            # The one field without which nothing is sent, so it alone is tried in both spellings before giving up.
            other = replace(request, limit=LIMITS[1])
            second = await self._ask(other)
            request, outcome = (request, outcome) if isinstance(second, _Refused) else (other, second)
        if isinstance(outcome, _Refused):  # even the plainest request: there is nothing left to leave out
            if outcome.status in (404, 405) and "model" not in outcome.text.lower():
                raise NoApiThere(
                    f"nothing answers at {self.endpoint.base_url}/chat/completions (HTTP {outcome.status}: "
                    f"{outcome.text}). Check the base URL: most end in /v1. If it is right, check the model's name, "
                    f"'{self.endpoint.short(self.model)}'."
                )
            what = (
                f"HTTP {outcome.status}: {outcome.text}" if outcome.status else f"no chat completion ({outcome.text})"
            )
            raise EndpointError(
                self.endpoint.short(
                    f"{self.endpoint.base_url} cannot be used for '{self.model}': the plainest request gets {what}. "
                    "Check the model's name and that it is a chat model, and see the server's log."
                )
            )
        answers: Sequence[_Answer] = outcome
        wanted = self.request
        features: tuple[tuple[str, Any], ...] = (
            ("fields", wanted.fields),
            ("n", wanted.n),
            ("schema", "plain_schema" if wanted.schema == "json_schema" else wanted.schema),
            ("schema", wanted.schema),
            ("seed", wanted.seed),
        )
        for feature, value in features:
            # On top of the features accepted so far, since requests will carry all of them together.
            step = replace(request, **{feature: value})
            if step == request or (feature == "schema" and value == "json_schema" and request.schema == "none"):
                continue
            outcome = await self._ask(step)
            if not isinstance(outcome, _Refused):
                request, answers = step, outcome
        return request, answers

    async def _schema(self, request: _Request, answers: Sequence[_Answer]) -> Schema:
        """Return the strictest form that the answers really have; asks again if the model was still thinking."""
        if request.schema in ("json_schema", "plain_schema"):
            # An answer cut while the model was thinking shows nothing of its form.
            if any(answer.thinking for answer in answers):
                outcome = await self._ask(replace(request, tokens=MANY_TOKENS))
                answers = answers if isinstance(outcome, _Refused) else outcome
                if any(answer.thinking for answer in answers):
                    self.notes.append(
                        f"the model thought for {MANY_TOKENS} tokens: whether it follows a JSON schema is not known"
                    )
                    return request.schema
            if all(answer.fits for answer in answers):
                if request.schema == "plain_schema":
                    self.notes.append(
                        f"the server refuses {', '.join(BOUNDS)} in JSON schemas: they are sent without, and what the "
                        "schema no longer holds is checked as an answer is read"
                    )
                return request.schema
        # With room to think: an answer cut before its end is no object, and would count against the server.
        outcome = await self._ask(replace(request, schema="json_object", tokens=MANY_TOKENS))
        ignored = request.schema != "none"
        problem = "accepts a JSON schema but does not follow it" if ignored else "refuses JSON schemas"
        if not isinstance(outcome, _Refused) and all(answer.value is not None for answer in outcome):
            self.notes.append(f"the server {problem}: answers are requested as JSON objects")
            return "json_object"
        self.notes.append(f"the server {problem} and does not support json_object: only the prompt asks for JSON")
        return "none"

    async def _ask(self, request: _Request) -> Sequence[_Answer] | _Refused:
        """Return the answers, or the refusal. Raises EndpointError for errors that no other request would avoid."""
        import openai

        from cimemories.llm.http.transport import AnswerRefused

        url = self.endpoint.base_url
        refused = _Refused(0, "no completion with a message")
        for _ in range(MALFORMED_ATTEMPTS):
            clock = time.perf_counter()
            try:
                raw = await self.client.post(
                    "/chat/completions", cast_to=httpx2.Response, body=request.body(self.model)
                )
                body = json.loads(raw.content)
                answers = _read(body)
                self._reasons_in_text |= any(answer.reasons_in_text for answer in answers)
                if answers:
                    usage = body.get("usage")
                    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
                    if isinstance(tokens, int) and tokens > 0:
                        self._timed.append((tokens / len(answers), max(time.perf_counter() - clock, 1e-6)))
                    return answers
                refused = _Refused(0, "no completion with a message")
            except openai.APITimeoutError:
                seconds = f"{self.endpoint.timeout:g}"
                raise EndpointError(
                    f"{url} lists its models but did not answer within {seconds} s. It may still be loading, or busy: "
                    "see its log, then try again, with a longer timeout if needed."
                ) from None
            except openai.APIConnectionError as error:
                cause = self.endpoint.short(error.__cause__ or error)
                raise EndpointError(
                    f"{url} cut the connection at the first request ({cause or 'no reason given'}). See the server's "
                    "log: it may have run out of memory."
                ) from None
            except (openai.AuthenticationError, openai.PermissionDeniedError):
                raise EndpointError(self.endpoint.refused) from None
            except openai.RateLimitError as error:  # the SDK's retries are over
                raise EndpointError(
                    f"{url} reports too many requests: {self.endpoint.short(error.message)}. Wait, or check the limits "
                    "and the credit of this key, then try again."
                ) from None
            except openai.APIStatusError as error:
                text = self.endpoint.short(error.message)
                if cause_of(error.status_code, error.body) == NO_CREDIT:
                    raise EndpointError(f"no credit left at {url}: {text}. Top up.") from None
                about = getattr(error, "param", None)
                return _Refused(error.status_code, text, about if isinstance(about, str) else "")
            # Before the SDK's own errors, since it is one of them: what our bounds ended would end the same way again.
            except AnswerRefused as error:
                raise EndpointError(f"{url}: {self.endpoint.short(error.message)}.") from None
            except (openai.OpenAIError, ValueError, RecursionError) as error:
                refused = _Refused(0, self.endpoint.short(error))
        return refused


@dataclass(frozen=True)
class _Answer:
    """One choice. value: its JSON object, or None. thinking: it was cut before the thinking ended. reasons_in_text: the
    server left marked reasoning in the text."""

    value: Mapping[str, object] | None
    thinking: bool
    reasons_in_text: bool

    @property
    def fits(self) -> bool:
        value = self.value
        return value is not None and set(value) <= {"colour", "shades"} and value.get("colour") in COLOURS


def _read(completion: Any) -> list[_Answer]:
    """Return the choices of a completion that have a message; none if it is something else."""
    choices = completion.get("choices") if isinstance(completion, dict) else None
    answers = []
    for choice in choices if isinstance(choices, list) else []:
        raw = choice.get("message") if isinstance(choice, dict) else None
        message = read_message(raw)
        if message is None or not isinstance(raw, dict):
            continue
        text = message.content.strip()
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        # Until the reasoning ends there is no message, whether a parser takes it out of the text or not.
        thinking = choice.get("finish_reason") == "length" and not text
        marked = isinstance(raw.get("content"), str) and text != raw["content"].strip()
        answers.append(_Answer(value if isinstance(value, dict) else None, thinking, marked))
    return answers

"""A small OpenAI-compatible server on loopback whose models are made up, for demos and tests.

The client code that talks to vLLM talks to it unchanged. It reads each prompt's structure (numbered facts, dash-marked
memories, recipient, purpose) and lets policy.py decide. Choice i of a request with seed s is drawn with s + i, as vLLM
does it, so five choices from seed 0 equal five requests with the seeds 0 to 4. Temperature 0 is greedy: the seed plays
no part. Requests without a seed are numbered instead.

Faults on purpose are what real servers do to their clients, made repeatable, so that every recovery path can be tested:
whether request number k fails, and how, depends on the server's seed and k alone.

    with running_simulator(seed=7) as base_url:
        OpenAI(base_url=base_url, api_key="none").chat.completions.create(model="sim-average", messages=[...])
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from cimemories.simulator.answers import HELPERS, answer, persona_of, thoughts
from cimemories.simulator.policy import SimulatorError, load_policy, unit
from cimemories.store.calls import SIMULATOR_ROOT

__all__ = ["SimulatorError", "create_app", "persona_of", "running_simulator", "serve"]

VERSION = "cimemories-simulator 1"
OWNER = "cimemories-simulator"
CHARACTERS_A_TOKEN = 4
DIMENSIONS = 32  # of its vectors
BLOCK = 128  # tokens in one block of the prefix cache, as on vLLM's CPU engine
CACHED_BLOCKS = 65_536
# The last two spoil an answer that was otherwise right; the others replace all of it.
FAULT_KINDS = (
    *("rate_limit", "server_error", "hang", "cut", "broken_json", "no_choices"),
    *("truncation", "fewer_choices"),
)


class BadRequest(ValueError):
    """A request that OpenAI's API would refuse; becomes its JSON error with this status."""

    def __init__(self, message: str, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param, self.status = param, status


@dataclass
class _Server:
    """State of one running simulator: its settings, its number of requests, and its cached prefixes."""

    seed: int
    faults: float
    kinds: tuple[str, ...]
    hang: float
    requests: int = 0
    prefixes: OrderedDict[bytes, None] = field(default_factory=OrderedDict)

    def cached_tokens(self, model: str, prompt: str) -> int:
        """Count the leading tokens, in full blocks, that an earlier prompt of this model shared, and cache this
        prompt."""
        # A block is known by the hash of everything up to its end, as vLLM does it: the same text further on in another
        # prompt is another block.
        size, digest, cached, leading = BLOCK * CHARACTERS_A_TOKEN, blake2b(model.encode(), digest_size=16), 0, True
        for start in range(0, len(prompt) - size, size):
            digest.update(prompt[start : start + size].encode("utf-8", "surrogatepass"))
            key = digest.digest()
            leading = leading and key in self.prefixes
            cached += BLOCK * leading
            self.prefixes[key] = None
            self.prefixes.move_to_end(key)
        while len(self.prefixes) > CACHED_BLOCKS:
            self.prefixes.popitem(last=False)
        return cached


def _number(body: dict[str, Any], name: str, low: float, high: float, kinds: tuple[type, ...] = (int,)) -> Any:
    """Return a numeric field of the body within [low, high], None where absent; BadRequest for anything else."""
    value: Any = body.get(name)
    if value is None:
        return None
    if type(value) not in kinds or not low <= value <= high:
        raise BadRequest(f"{name} must be a number from {low} to {high}, not {value!r}.", name)
    return value


def _prompt(messages: object) -> str:
    """Return the text of all messages, one after the other; BadRequest unless each has a role and text."""
    texts = []
    for message in messages if isinstance(messages, list) else []:
        content = message.get("content") if isinstance(message, dict) and message.get("role") else None
        if isinstance(content, list):
            parts = [part.get("text") if isinstance(part, dict) else None for part in content]
            content = None if None in parts else "\n".join(map(str, parts))
        if not isinstance(content, str):
            raise BadRequest("Each of the messages needs a role and a text as content.", "messages")
        texts.append(content)
    if not texts:
        raise BadRequest("messages must be a list with at least one message.", "messages")
    return "\n\n".join(texts)


def _fit(schema: object, text: str) -> Any:
    """Return the smallest value that a JSON schema's basic keywords allow, `text` in place of free strings."""
    if not isinstance(schema, dict):
        return None
    if "const" in schema or schema.get("enum"):
        return schema.get("const", (schema.get("enum") or [None])[0])
    kind = str(schema.get("type"))
    if kind == "object":
        fields: dict[str, Any] = schema.get("properties") or {}
        return {name: _fit(fields.get(name), text) for name in schema.get("required", fields)}
    if kind == "array":
        return [_fit(schema.get("items"), text)] * schema.get("minItems", 0)
    if kind in ("integer", "number"):
        return schema.get("minimum", 0)
    return {"string": text, "boolean": False}.get(kind)


def _structured(body: dict[str, Any], text: str) -> str:
    """Return the answer in the form that `response_format` asks for; answers that are JSON already stay as they are."""
    response_format = body.get("response_format") or {"type": "text"}
    kind = response_format.get("type") if isinstance(response_format, dict) else None
    schema = response_format.get("json_schema") if kind == "json_schema" else None
    if kind not in ("text", "json_object", "json_schema") or (kind == "json_schema" and not isinstance(schema, dict)):
        raise BadRequest(
            "response_format is of type text, json_object or json_schema (with schema).", "response_format"
        )
    if kind == "text" or text.startswith("{"):
        return text
    return json.dumps(_fit(schema.get("schema"), text) if schema else {"text": text}, ensure_ascii=False)


def _complete(server: _Server, body: object, number: int) -> dict[str, Any]:
    """Return the chat completion for one request body; BadRequest where OpenAI's API would refuse it."""
    if not isinstance(body, dict):
        raise BadRequest("The body must be a JSON object.")
    model = body.get("model")
    if model not in _models():
        raise BadRequest(f"The model {model!r} does not exist. Choose from {', '.join(_models())}.", "model", 404)
    if body.get("stream"):
        raise BadRequest("The simulator does not stream. Leave `stream` out.", "stream")
    prompt, n = _prompt(body.get("messages")), _number(body, "n", 1, 128)
    seed, temperature = _number(body, "seed", -(2**63), 2**63 - 1), _number(body, "temperature", 0, 2, (int, float))
    caps = [_number(body, name, 1, 2**31) for name in ("max_completion_tokens", "max_tokens")]
    cap = next((value for value in caps if value is not None), None)
    prompt_tokens, longest = -(-len(prompt) // CHARACTERS_A_TOKEN), load_policy().max_model_len
    if prompt_tokens > longest:
        raise BadRequest(f"The prompt has {prompt_tokens} tokens, the model's context length is {longest}.", "messages")
    choices, total, texts = [], 0, {}
    for index in range(n or 1):
        # What a text depends on: nothing at temperature 0, the number of the request without a seed, else seed + index.
        draw = "greedy" if temperature == 0 else f"free {number} {index}" if seed is None else seed + index
        if draw not in texts:
            generator = Random(unit(server.seed, model, prompt, draw))
            texts[draw] = _structured(body, answer(model, prompt, generator))
        text = texts[draw] if cap is None else texts[draw][: cap * CHARACTERS_A_TOKEN]
        total += -(-len(text) // CHARACTERS_A_TOKEN)
        reason = "stop" if len(text) == len(texts[draw]) else "length"
        message = {"role": "assistant", "content": text}
        template = body.get("chat_template_kwargs")
        # Thinking is switched on by chat templates or by reasoning efforts.
        if body.get("reasoning_effort") or (isinstance(template, dict) and template.get("enable_thinking")):
            message["reasoning"] = thoughts(prompt, Random(unit("thoughts", server.seed, model, prompt, draw)))
        choices.append({"index": index, "message": message, "finish_reason": reason})
    cached = server.cached_tokens(model, prompt)
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": total,
        "total_tokens": prompt_tokens + total,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    name = f"chatcmpl-{server.seed}-{number}"
    return {"id": name, "object": "chat.completion", "created": 0, "model": model, "choices": choices, "usage": usage}


def _embeddings(body: object) -> dict[str, Any]:
    """Return vectors of DIMENSIONS numbers, each the sum of the directions of a text's words."""
    if not isinstance(body, dict) or body.get("model") not in _models():
        raise BadRequest("Give a model that is served here.", "model", 404)
    texts = [body["input"]] if isinstance(body.get("input"), str) else body.get("input")
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise BadRequest("input is a list of texts.", "input")
    data = []
    for index, text in enumerate(texts):
        words = re.findall(r"[a-z0-9]{3,}", text.lower())
        sums = [sum(2 * unit("embedding", word, place) - 1 for word in words) for place in range(DIMENSIONS)]
        data.append({"object": "embedding", "index": index, "embedding": sums})
    tokens = sum(-(-len(text) // CHARACTERS_A_TOKEN) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": body["model"], "usage": usage}


def _models() -> tuple[str, ...]:
    return (*load_policy().characters, *HELPERS)


def _error(
    status: int, message: str, param: str | None = None, *, kind: str = "", headers: dict[str, str] | None = None
) -> JSONResponse:
    """Return an error as OpenAI writes it. kind: of a fault on purpose, whose code is the status."""
    code: object = status if kind else "model_not_found" if status == 404 and param == "model" else None
    kind = kind or ("invalid_request_error" if status < 500 else "server_error")
    return JSONResponse({"error": {"message": message, "type": kind, "param": param, "code": code}}, status, headers)


class CutResponse(Response):
    """Promises the whole body, sends only its beginning (or nothing), and leaves: the server closes the connection. The
    wait before the first byte is in seconds. A client sees a read error, or its own timeout if that is shorter."""

    def __init__(self, body: bytes, sent: int, wait: float = 0.0) -> None:
        super().__init__(body, media_type="application/json")
        self.sent, self.wait = sent, wait

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(self.wait)
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        # The announced length is never reached, so uvicorn closes the connection when this returns.
        await send({"type": "http.response.body", "body": self.body[: self.sent], "more_body": True})


def _spoiled(kind: str, answer: dict[str, Any], hang: float, generator: Random) -> Response:
    """Return the response that a client gets instead of `answer`, a chat completion, for one of FAULT_KINDS."""
    body = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")
    choices: list[dict[str, Any]] = answer["choices"]
    match kind:
        case "rate_limit":
            headers = {"Retry-After": "0"} if generator.random() < 0.5 else None
            return _error(
                429, "The simulator was asked to refuse this request.", kind="rate_limit_error", headers=headers
            )
        case "server_error":
            return _error(500, "The simulator was asked to fail on this request.", kind="server_error")
        case "hang":
            return CutResponse(body, sent=0, wait=hang)
        case "cut":
            return CutResponse(body, sent=len(body) // 2)
        case "broken_json":
            return Response(body[: len(body) // 2], media_type="application/json")
        case "no_choices" if generator.random() < 0.5:
            return JSONResponse({**answer, "choices": []})
        case "no_choices":
            return JSONResponse({key: value for key, value in answer.items() if key != "choices"})
        case "truncation":
            # Half of every text, cut inside a word or a JSON value where there is one.
            for choice in choices:
                choice["message"]["content"] = choice["message"]["content"][: len(choice["message"]["content"]) // 2]
                choice["finish_reason"] = "length"
            return JSONResponse(answer)
    # fewer_choices: all but the last few; of a single choice none is left.
    return JSONResponse({**answer, "choices": choices[: generator.randrange(len(choices))]})


def create_app(
    seed: int = 0,
    faults: float = 0.0,
    fault_kinds: tuple[str, ...] | None = None,
    hang: float = 3.0,
) -> Starlette:
    """Return the simulator as an ASGI app.

    `faults` is the share of chat requests that fail on purpose, in [0, 1); `fault_kinds` limits how (default: all of
    FAULT_KINDS, equally likely); `hang` is in seconds. Raises SimulatorError for a bad rate, kind or policy file.
    """
    kinds = FAULT_KINDS if fault_kinds is None else tuple(fault_kinds)
    if not 0 <= faults < 1:
        raise SimulatorError(f"The fault rate {faults} is not a share of requests. Give a number from 0 to below 1.")
    wrong = sorted(set(kinds) - set(FAULT_KINDS))
    if wrong or not kinds:
        raise SimulatorError(
            f"No such kind of fault: {', '.join(wrong) or 'none given'}. Choose from {', '.join(FAULT_KINDS)}."
        )
    policy, server = load_policy(), _Server(seed, faults, kinds, hang)

    async def chat(request: Request) -> Response:
        raw = await request.body()
        number, server.requests = server.requests, server.requests + 1
        try:
            result = _complete(server, json.loads(raw), number)
        except BadRequest as error:
            return _error(error.status, str(error), error.param)
        except ValueError:
            return _error(400, "The body is not valid JSON.")
        if unit("fault", server.seed, number) < server.faults:
            kind = server.kinds[int(unit("kind", server.seed, number) * len(server.kinds))]
            return _spoiled(kind, result, server.hang, Random(unit("spoil", server.seed, number)))
        return JSONResponse(result)

    async def embeddings(request: Request) -> Response:
        try:
            return JSONResponse(_embeddings(json.loads(await request.body())))
        except BadRequest as error:
            return _error(error.status, str(error), error.param)
        except ValueError:
            return _error(400, "The body is not valid JSON.")

    async def models(request: Request) -> Response:
        card = {"object": "model", "created": 0, "owned_by": OWNER, "max_model_len": policy.max_model_len}
        card |= {"root": SIMULATOR_ROOT, "revision": f"seed-{server.seed}"}
        return JSONResponse({"object": "list", "data": [{"id": name, **card} for name in _models()]})

    async def health(request: Request) -> Response:
        return Response(status_code=200)

    async def version(request: Request) -> Response:
        return JSONResponse({"version": VERSION})

    async def missing(request: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 404)
        return _error(status, f"The simulator does not serve {request.method} {request.url.path}.")

    routes = [
        Route("/health", health),
        Route("/version", version),
        Route("/v1/models", models),
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/embeddings", embeddings, methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={404: missing, 405: missing})


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket on a loopback address; port 0 takes any free one. Raises SimulatorError where that
    fails."""
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        address = None
    if address is None or not address.is_loopback:
        raise SimulatorError(f"The simulator listens on this machine only, not on {host}. Use the host 127.0.0.1.")
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named; without it each answer waits 40 ms for an ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((str(address), port))
        listener.listen(2048)
    except (OSError, OverflowError) as error:
        listener.close()
        raise SimulatorError(
            f"The simulator cannot listen on {host} port {port} ({getattr(error, 'strerror', None) or error}). "
            "Stop what uses the port, or choose another one."
        ) from error
    return listener


def _uvicorn(app: ASGIApp) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1)
    )


def serve(
    port: int,
    *,
    seed: int = 0,
    faults: float = 0.0,
    host: str = "127.0.0.1",
    fault_kinds: tuple[str, ...] | None = None,
    hang: float = 3.0,
    ready: Callable[[], None] | None = None,
) -> None:
    """Run the simulator until it is interrupted; blocks and prints nothing. `ready` is called once it listens. Raises
    SimulatorError for a host that is not loopback, a port in use, or settings that create_app refuses."""
    app = create_app(seed, faults, fault_kinds, hang)
    with _listen(host, port) as listener:
        if ready is not None:
            ready()
        _uvicorn(app).run(sockets=[listener])


@contextmanager
def running_simulator(wrap: Callable[[ASGIApp], ASGIApp] | None = None, **settings: Any) -> Iterator[str]:
    """Run create_app(**settings) in a thread on a free loopback port; yields 'http://127.0.0.1:PORT/v1'. The socket
    listens before the thread starts, so the first request cannot come too early. Leaving the block stops the server
    within about a second, requests that still hang included."""
    app = create_app(**settings)
    with _listen("127.0.0.1", 0) as listener:
        server = _uvicorn(wrap(app) if wrap else app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            thread.join(timeout=5)

"""Faults on purpose: what real servers do to their clients, made repeatable, so that every recovery path can be tested.

Whether request number k of a server fails, and how, depends on the server's seed and k alone. The HTTP faults replace
the whole answer; `truncation` and `fewer_choices` spoil an answer that was otherwise right.
"""

from __future__ import annotations

import asyncio
import json
from random import Random

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from cimemories.simulator.policy import SimulatorError, unit

FAULT_KINDS = (
    "rate_limit",
    "server_error",
    "hang",
    "cut",
    "broken_json",
    "no_choices",
    "truncation",
    "fewer_choices",
)


class CutResponse(Response):
    """Promises the whole body, sends only its beginning (or nothing), and leaves: the server closes the connection.

    The wait before the first byte is in seconds. A client sees a read error, or its own timeout if that is shorter.
    """

    def __init__(self, body: bytes, sent: int, wait: float = 0.0) -> None:
        super().__init__(body, media_type="application/json")
        self.sent, self.wait = sent, wait

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(self.wait)
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        # The announced length is never reached, so uvicorn closes the connection when this returns.
        await send({"type": "http.response.body", "body": self.body[: self.sent], "more_body": True})


def check_faults(rate: float, kinds: tuple[str, ...]) -> None:
    """Raise SimulatorError unless the rate is in [0, 1) and every kind is one of FAULT_KINDS (at least one)."""
    if not 0 <= rate < 1:
        raise SimulatorError(f"The fault rate {rate} is not a share of requests. Give a number from 0 to below 1.")
    unknown = sorted(set(kinds) - set(FAULT_KINDS))
    if unknown or not kinds:
        raise SimulatorError(
            f"No such kind of fault: {', '.join(unknown) or 'none given'}. Choose from {', '.join(FAULT_KINDS)}."
        )


def draw_fault(seed: int, number: int, rate: float, kinds: tuple[str, ...]) -> str | None:
    """The kind of fault that request `number` of a server meets, each kind equally likely; None for none."""
    if unit("fault", seed, number) >= rate:
        return None
    return kinds[int(unit("kind", seed, number) * len(kinds))]


def spoil(kind: str, answer: dict, hang: float, generator: Random) -> Response:
    """The response that a client gets instead of `answer`, a chat completion. KeyError for an unknown kind."""
    body = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")
    if kind == "rate_limit":
        headers = {"Retry-After": "0"} if generator.random() < 0.5 else None
        return _error(429, "The simulator was asked to refuse this request.", "rate_limit_error", headers)
    if kind == "server_error":
        return _error(500, "The simulator was asked to fail on this request.", "server_error", None)
    if kind == "hang":
        return CutResponse(body, sent=0, wait=hang)
    if kind == "cut":
        return CutResponse(body, sent=len(body) // 2)
    if kind == "broken_json":
        return Response(body[: len(body) // 2], media_type="application/json")
    return JSONResponse(_SPOILED[kind](answer, generator))


def _without_choices(answer: dict, generator: Random) -> dict:
    if generator.random() < 0.5:
        return {**answer, "choices": []}
    return {key: value for key, value in answer.items() if key != "choices"}


def _truncated(answer: dict, generator: Random) -> dict:
    """Half of every text, cut inside a word or a JSON value where there is one."""
    choices = []
    for choice in answer["choices"]:
        text = choice["message"]["content"]
        message = {**choice["message"], "content": text[: len(text) // 2]}
        choices.append({**choice, "message": message, "finish_reason": "length"})
    return {**answer, "choices": choices}


def _fewer(answer: dict, generator: Random) -> dict:
    """All choices but the last few; of a single choice none is left."""
    return {**answer, "choices": answer["choices"][: generator.randrange(len(answer["choices"]))]}


_SPOILED = {"no_choices": _without_choices, "truncation": _truncated, "fewer_choices": _fewer}


def _error(status: int, message: str, kind: str, headers: dict[str, str] | None) -> JSONResponse:
    error = {"message": message, "type": kind, "param": None, "code": status}
    return JSONResponse({"error": error}, status, headers)

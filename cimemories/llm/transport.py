"""The HTTP client below the openai SDK: bounds what a server may send back, and where a request may go.

The SDK's own limit is the time between two bytes, so a server that drips a byte a second is waited for without end, and
a body of any size is read into memory. Here every try has a total deadline and every body a largest size.
"""

from __future__ import annotations

import asyncio
import math
import time
from email.utils import mktime_tz, parsedate_tz
from typing import Any

import aiohttp
import httpx2
import openai
from openai import DefaultAioHttpClient

LARGEST_BODY = 8_000_000  # bytes; twenty samples of 32,000 tokens are below 6 MB
WHOLE_FACTOR = 5.0  # some makers hold a request open by blank lines while it waits for its turn
PATIENCE = 2.0
PATIENCE_SECONDS = 1800.0
MOST_REDIRECTS = 3
LONGEST_RETRY_AFTER = 120.0  # the SDK's own limit: of a longer Retry-After it makes no retry at all


class AnswerRefused(openai.OpenAIError):
    """The exchange was ended on our side, and another try would end the same way. `cause` is the outcome's status."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause
        self.message = message


class BoundedClient(DefaultAioHttpClient):
    """Sends one request at a time for the SDK, and reads its answer within the bounds of this module.

    Waits longer at each retry: a server that lost a request gets it again soon, one that is slow gets its time. Raises
    AnswerRefused for an answer that is too large, compressed (a bound on bytes sent bounds nothing then) or not whole
    in time, and for a redirect to another origin: the request holds prompts and a key.
    """

    def __init__(self, timeout: float) -> None:
        super().__init__(limits=httpx2.Limits(max_connections=None))
        self._first_try = timeout

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        options |= {"stream": True, "follow_redirects": False}
        seconds = max(WHOLE_FACTOR * self._first_try, _patience(request))
        try:
            async with asyncio.timeout(seconds):
                for _ in range(MOST_REDIRECTS + 1):
                    request.headers["accept-encoding"] = "identity"
                    response = await super().send(request, **options)
                    try:
                        if response.next_request is None:
                            return await _read(response)
                    finally:
                        await response.aclose()
                    if _origin(response.next_request.url) != _origin(request.url):
                        raise AnswerRefused(
                            "redirected",
                            f"the server sends requests on to {_origin(response.next_request.url)} (HTTP "
                            f"{response.status_code}), and prompts are sent to no other server than the one that was "
                            "named. If that is where the model is, use it as the base URL",
                        )
                    request = response.next_request
        except TimeoutError:
            raise AnswerRefused("timeout", f"the answer was not whole after {seconds:g} s (see --timeout)") from None
        except aiohttp.ClientError as error:
            # What the SDK's transport does not translate: headers that are no HTTP, or too long. Chained to nothing:
            # the error holds the request with its key.
            reason = getattr(error, "message", "") or str(error)
            raise httpx2.RemoteProtocolError(f"the answer is no HTTP: {reason[:200]}", request=request) from None
        raise AnswerRefused("redirected", f"the server redirects more than {MOST_REDIRECTS} times")


def _patience(request: httpx2.Request) -> float:
    """Set the longest silence of this try, and return it; 0 where there is no limit."""
    retry = int(request.headers.get("x-stainless-retry-count", 0))
    limits: dict[str, float | None] = request.extensions["timeout"]
    if retry and limits.get("read") is not None:
        limits["read"] = min(float(limits["read"] or 0) * PATIENCE**retry, PATIENCE_SECONDS)
    return limits.get("read") or 0.0


async def _read(response: httpx2.Response) -> httpx2.Response:
    """The response with its body read."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise AnswerRefused("malformed", f"the answer is compressed ({encoding[:40]}), which was not asked for")
    body = bytearray()
    if not response.headers.get("content-length", "").isdigit() or _length(response) <= LARGEST_BODY:
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > LARGEST_BODY:
                break
        else:
            return httpx2.Response(
                response.status_code,
                headers=response.headers,
                content=bytes(body),
                request=response.request,
                extensions=response.extensions,
            )
    raise AnswerRefused("too large", f"the answer is larger than {LARGEST_BODY // 1_000_000} MB, which no message is")


def _length(response: httpx2.Response) -> int:
    return int(response.headers["content-length"][:20])


def _origin(url: httpx2.URL) -> str:
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}{'' if url.port is None else f':{url.port}'}"


def retry_after(headers: httpx2.Headers) -> float | None:
    """Seconds that a server asks to be left alone, given as seconds, milliseconds or a date; None where it does not."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
        return seconds if seconds > 0 and not math.isnan(seconds) else None
    try:
        date = parsedate_tz(headers.get("retry-after", ""))
        return None if date is None else max(0.0, mktime_tz(date) - time.time()) or None
    except (ValueError, OverflowError, OSError):
        return None

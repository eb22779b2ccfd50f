"""The openai SDK over a transport with bounds, and the models that a server lists.

The SDK's own time limit is between two bytes, so a server that sends a byte a second is waited for without end, and a
body of any size is read into memory. Here every try has a total deadline and every body a largest size.

The SDK takes 0.7 s of a processor to import, more than a command needs to read the record. So other modules import this
one, and `openai`, inside the functions that ask a server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import aiohttp
import httpx2
import openai
from openai import AsyncOpenAI, DefaultAioHttpClient

from cimemories import event_loop
from cimemories.access import readonly, roles
from cimemories.access.roles import Role
from cimemories.llm.endpoint import (
    ASSISTANT,
    NO_KEY,
    Endpoint,
    EndpointError,
    NoApiThere,
    ServerInfo,
    below_v1,
    guard_logs,
    origin,
    without_route,
)
from cimemories.llm.http.traffic import Traffic
from cimemories.llm.replies import NO_CREDIT, cause_of, error_inside

# ---- transport below the SDK


LARGEST_BODY = 8_000_000  # bytes; twenty samples of 32,000 tokens are below 6 MB
WHOLE_FACTOR = 5.0  # some makers hold a request open by blank lines while it waits for its turn
PATIENCE = 2.0  # each retry may be silent for so many times as long as the one before ...
PATIENCE_SECONDS = 1800.0  # ... up to this
MOST_REDIRECTS = 3


class AnswerRefused(openai.OpenAIError):
    """The exchange was ended on our side, and another try would end the same way. `cause` is the outcome's status."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause
        self.message = message


@cache
def trusted() -> ssl.SSLContext:
    """Return the certificate authorities that this machine trusts, read once for all clients: each would take 30 ms. A
    new authority counts after a restart."""
    return httpx2.create_ssl_context()


class BoundedClient(DefaultAioHttpClient):
    """Sends one request at a time for the SDK, and reads its answer within bounds; waits longer at each retry.

    Raises AnswerRefused for an answer that is too large, compressed (a bound on bytes sent bounds nothing then) or not
    whole in time, and for a redirect to another origin: the request holds prompts and a key. traffic: of which its
    requests are a part; without one the SDK alone deals with a server that limits them.
    """

    def __init__(self, timeout: float, traffic: Traffic | None = None) -> None:
        # The executor already bounds the requests in flight.
        super().__init__(limits=httpx2.Limits(max_connections=None), verify=trusted())
        self._first_try = timeout
        self._traffic = traffic

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        silence = _patience(request)  # once: it changes the request, which may be sent again
        if self._traffic is None:
            return await self._send(request, silence, options)
        try:
            return await self._traffic.send(partial(self._send, request, silence, options))
        except httpx2.ConnectTimeout:
            raise
        except httpx2.TimeoutException:
            self._traffic.count_timeout(silence)
            raise
        except AnswerRefused as refused:
            if refused.cause == "timeout":
                self._traffic.count_timeout(self._longest(silence))
            raise

    def _longest(self, silence: float) -> float:
        """Return the seconds within which an answer has to be complete."""
        # Never shorter than the silence that this try is allowed anyway.
        return max(WHOLE_FACTOR * self._first_try, silence)

    async def _send(self, request: httpx2.Request, silence: float, options: dict[str, Any]) -> httpx2.Response:
        # Streamed, so that the body can be cut off at its bound; redirects are followed below, within the origin only.
        options = {**options, "stream": True, "follow_redirects": False}
        seconds = self._longest(silence)
        try:
            async with asyncio.timeout(seconds):
                for _ in range(MOST_REDIRECTS + 1):
                    # A few bytes of gzip can stand for gigabytes, so the bound on bytes needs an uncompressed answer.
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
                            f"the server redirects requests to {_origin(response.next_request.url)} (HTTP "
                            f"{response.status_code}), and prompts are sent only to the server that was named. If the "
                            "model is there, use that address as the base URL",
                        )
                    request = response.next_request
        except TimeoutError:
            raise AnswerRefused(
                "timeout", f"the answer was incomplete after {seconds:g} s (on the command line: --timeout)"
            ) from None
        except aiohttp.ClientError as error:
            # Errors that the SDK's transport does not translate: invalid or too long headers. Without the cause:
            # the error holds the request with its key.
            reason = getattr(error, "message", "") or str(error)
            raise httpx2.RemoteProtocolError(f"the answer is not HTTP: {reason[:200]}", request=request) from None
        raise AnswerRefused("redirected", f"the server redirected more than {MOST_REDIRECTS} times")


def _patience(request: httpx2.Request) -> float:
    """Set the longest silence of this try, and return it; 0 without a limit."""
    retry = int(request.headers.get("x-stainless-retry-count", 0))  # the SDK's own header; it gives no other hint
    limits: dict[str, float | None] = request.extensions["timeout"]
    # From the second try on: the first has the time-out as it was set. The dict is the one that the transport reads.
    if retry and limits.get("read") is not None:
        limits["read"] = min(float(limits["read"] or 0) * PATIENCE**retry, PATIENCE_SECONDS)
    return limits.get("read") or 0.0


async def _read(response: httpx2.Response) -> httpx2.Response:
    """Return the response with its body read."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise AnswerRefused("malformed", f"the answer is compressed ({encoding[:40]}) although that was not requested")
    body = bytearray()
    # A body that is announced as too large is not read at all. The announcement is believed only if it is too large:
    # the bytes are counted as well.
    announced = response.headers.get("content-length", "")
    if not announced.isdigit() or int(announced[:20]) <= LARGEST_BODY:  # int() refuses very long texts
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > LARGEST_BODY:
                break
        else:
            status, content, headers = response.status_code, bytes(body), response.headers
            if status == 200 and (inside := error_inside(content)):
                status, content = inside
            if status == 429 and cause_of(status, content) == NO_CREDIT:
                headers["x-should-retry"] = "false"  # the SDK's own header: no try fares better
            return httpx2.Response(
                status,
                headers=headers,
                content=content,
                request=response.request,
                extensions=response.extensions,
            )
    raise AnswerRefused("too large", f"the answer is larger than {LARGEST_BODY // 1_000_000} MB, the most that is read")


def _origin(url: httpx2.URL) -> str:
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}{'' if url.port is None else f':{url.port}'}"


# ---- the SDK


CONNECT_SECONDS = 10.0


def sdk(endpoint: Endpoint, traffic: Traffic | None = None) -> AsyncOpenAI:
    """Return the openai SDK for an endpoint, over aiohttp: 0.6 ms of processor time a call with 32 in flight, 1.0 ms by
    its default client. Raises EndpointError for an address or a key that cannot be sent, and in a read-only app."""
    if readonly.chosen():
        raise EndpointError(f"{readonly.REASON}, so it sends nothing to servers of models.")
    if reason := roles.refused(Role.OPERATOR):
        raise EndpointError(f"{reason} Nothing was sent to a server of models.")
    key = endpoint.api_key
    if not (key.isascii() and key.isprintable()):
        raise EndpointError(
            f"the key in ${endpoint.api_key_env} holds characters that cannot be sent. Copy it again, without line "
            "ends and quotation marks."
        )
    if key != NO_KEY:
        guard_logs(key)
    try:
        return AsyncOpenAI(
            base_url=endpoint.base_url.removeprefix(ASSISTANT),
            api_key=key,
            # A server that is gone is noticed within seconds, however long answers may take.
            timeout=httpx2.Timeout(endpoint.timeout, connect=min(CONNECT_SECONDS, endpoint.timeout)),
            max_retries=endpoint.max_retries,
            http_client=BoundedClient(endpoint.timeout, traffic),
        )
    except httpx2.InvalidURL as error:
        raise EndpointError(
            f"{endpoint.base_url} is not a server's address ({error}). Correct it (on the command line: --base-url)."
        ) from None


# ---- what a server lists


SIMULATOR_OWNER = "cimemories-simulator"


def probe(endpoint: Endpoint, model: str, retries: int = 3) -> ServerInfo:
    """Look up the models of a server. model: '' for none in particular. Raises EndpointError if it does not answer,
    refuses the key, or lists models without this one; a server without a list (404, 405) is trusted."""
    return event_loop.run(look_up(endpoint, model, retries))


def right_address(address: str) -> str:
    """Return the address of the API at a server's address, as far as the server reveals it without a key."""
    if origin(address) is None:
        return address
    try:
        return probe(Endpoint(address, ""), "", retries=0).base_url or address
    except EndpointError:
        return without_route(address)


async def look_up(endpoint: Endpoint, model: str, retries: int = 3) -> ServerInfo:
    """Do what `probe` does, in an event loop. An address that ends in a route of the API, or lacks its /v1, is
    corrected if the right one lists its models; `base_url` of the result says so."""
    bare = without_route(endpoint.base_url)
    moved = None if bare == endpoint.base_url else bare
    try:
        return replace(await _listed(replace(endpoint, base_url=bare), model, retries), base_url=moved)
    except NoApiThere as wrong:
        if (versioned := below_v1(bare)) is not None:
            try:
                return replace(await _listed(replace(endpoint, base_url=versioned), model, 0), base_url=versioned)
            except NoApiThere:
                pass
        # Gateways without a list of models still answer requests, so nothing is known rather than wrong.
        if isinstance(wrong, _NoList):
            return ServerInfo((), False, None, base_url=moved)
        raise


class _NoList(NoApiThere):
    """A server that answers without a list of models."""


async def _listed(endpoint: Endpoint, model: str, retries: int) -> ServerInfo:
    try:
        async with sdk(Endpoint(endpoint.base_url, endpoint.api_key_env, CONNECT_SECONDS, retries)) as client:
            cards = [card async for card in await client.models.list()]
        return _server_info(endpoint, model, cards)
    # Without the cause: the error below holds the server's words, and a server may repeat the key.
    except openai.APIConnectionError as error:
        cause = endpoint.short(error.__cause__ or error)
        raise EndpointError(
            f"no answer from {endpoint.base_url} ({cause or 'connection failed'}). Check that the server is running "
            "and that this is its base URL (it ends in /v1 for vLLM)."
        ) from None
    except (openai.AuthenticationError, openai.PermissionDeniedError):
        raise EndpointError(endpoint.refused) from None
    except openai.APIStatusError as error:
        answered = f"{endpoint.base_url} answered HTTP {error.status_code} to the list of models"
        problem = f"{answered}: {endpoint.short(error.message)}. See the server's log, then try again."
        raise (_NoList if error.status_code in (404, 405, 501) else EndpointError)(problem) from None
    except AnswerRefused as error:
        raise EndpointError(f"{endpoint.base_url}: {endpoint.short(error.message)}.") from None
    except (openai.OpenAIError, httpx2.InvalidURL, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise NoApiThere(
            f"{endpoint.base_url} did not answer like an OpenAI-compatible server ({endpoint.short(error)}). "
            "Check the base URL (it ends in /v1 for vLLM)."
        ) from None


def _server_info(endpoint: Endpoint, model: str, cards: Sequence[Any]) -> ServerInfo:
    names = tuple(str(card.id) for card in cards)
    if names and model and model not in names:
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise EndpointError(endpoint.short(f"{endpoint.base_url} does not serve '{model}'. It serves: {shown}."))
    own = next((card for card in cards if card.id == model), None)
    extra = (own.model_extra or {}) if own is not None else {}
    length, cuts_answers = _context_length(extra)
    # The simulator marks itself, so that no flag or model name decides whether results count as simulated.
    simulated = any(card.owned_by == SIMULATOR_OWNER for card in cards)
    # A server may list anything as a name, its caller's key included.
    names = tuple(name if name == model else endpoint.short(name) for name in names)
    root, revision = (_reported(endpoint, extra.get(name)) for name in ("root", "revision"))
    return ServerInfo(names, simulated, length, root, revision, cuts_answers=cuts_answers)


def _context_length(card: Mapping[str, Any]) -> tuple[int | None, bool]:
    """Return the most tokens of a prompt and its answer that a server lists for the model, or None, and whether it is
    llama.cpp. Its `n_ctx_train` is the context length of training, not of serving."""
    meta = card.get("meta")
    # Of vLLM and SGLang, OpenRouter, Groq, Mistral.
    lengths = [card.get(n) for n in ("max_model_len", "context_length", "context_window", "max_context_length")]
    lengths.append(meta.get("n_ctx") if isinstance(meta, dict) else None)
    known = [isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in lengths]
    return (lengths[known.index(True)], known.index(True) == len(known) - 1) if any(known) else (None, False)


def _reported(endpoint: Endpoint, value: object) -> str | None:
    """Return a name that a server gives as one line that can be shown and recorded."""
    if not isinstance(value, str):
        return None
    shown = "".join(character if character.isprintable() else " " for character in value)
    return endpoint.short(shown)[:200].strip() or None

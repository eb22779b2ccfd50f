"""Where a model is asked, the SDK set up for it, and what a server says of itself before any work is planned on it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import httpx2
import openai
from openai import AsyncOpenAI

from cimemories.llm.address import (
    DEFAULT_KEY_ENV,
    NO_SERVERS,
    EndpointError,
    checked_address,
    checked_variable,
    may_send,
    why_not,
)
from cimemories.llm.redact import Redactor, guard_logs
from cimemories.llm.transport import AnswerRefused, BoundedClient
from cimemories.store.engine import storable
from cimemories.texts import without_credentials

SIMULATOR_OWNER = "cimemories-simulator"
NO_KEY = "no-key-needed"
CONNECT_SECONDS = 10.0


@dataclass(frozen=True)
class Endpoint:
    """Where a model is asked. The key itself is never kept here: only the name of the variable that holds it.

    timeout: seconds to wait for the first try of a request; each retry waits twice as long as the one before.
    n_at_once: several draws are one request with `n`; else each is a request of its own, for servers that refuse `n`.
    server, fresh: what the keys of its calls hold (store/calls.py, Origin).
    api_key_env: '' where there is none. The key is sent only where address.py allows it for this server.
    Raises EndpointError for an address that holds more than host and path, and for a variable that is none of a key.
    """

    base_url: str
    api_key_env: str = DEFAULT_KEY_ENV
    timeout: float = 120.0
    max_retries: int = 4
    n_at_once: bool = True
    server: str | None = None
    fresh: str | None = None

    def __post_init__(self) -> None:
        if self.base_url not in NO_SERVERS:
            checked_address(self.base_url)
        if self.api_key_env:
            checked_variable(self.api_key_env)

    @property
    def api_key(self) -> str:
        """The key from the environment. Local servers ask for none, but the SDK does."""
        return self._secret or NO_KEY

    @property
    def _secret(self) -> str | None:
        if not self.api_key_env or not may_send(self.api_key_env, self.base_url):
            return None
        return os.environ.get(self.api_key_env, "").strip() or None

    @property
    def held_back(self) -> str:
        """Why a key that is set was not sent to this server, and how to allow it; '' where none was held back."""
        name = self.api_key_env
        held = bool(name and os.environ.get(name, "").strip()) and not may_send(name, self.base_url)
        return why_not(name, self.base_url) if held else ""

    @property
    def refused(self) -> str:
        """What to tell a person where this server refuses a request for want of a right key."""
        if self.held_back:
            return f"{self.base_url} asks for a key, and {self.held_back}."
        variable = (
            f"the key in ${self.api_key_env}. Set that variable" if self.api_key_env else "requests without a key"
        )
        return f"{self.base_url} refuses {variable}, or name another one with --api-key-env."

    def redactor(self) -> Redactor:
        """What takes this endpoint's key out of texts."""
        return Redactor(self._secret)

    def short(self, error: object) -> str:
        """An error as one line for the record, without the key: taken out before the cut, which could go through it."""
        return storable(" ".join(without_credentials(self._redactor.error(str(error))).split())[:500])

    @cached_property
    def _redactor(self) -> Redactor:
        return self.redactor()


@dataclass(frozen=True)
class ServerInfo:
    """What a server says of itself. `models` is empty where it does not list them. root, revision: of the model that
    was asked about, as vLLM reports what it loaded under the served name; None where the server does not."""

    models: tuple[str, ...]
    simulated: bool
    max_model_len: int | None
    root: str | None = None
    revision: str | None = None


def sdk(endpoint: Endpoint) -> AsyncOpenAI:
    """The openai SDK for an endpoint, over aiohttp: its other way to send a request takes twice the processor's time,
    and more with every connection that is open. Raises EndpointError for an address or a key that cannot be sent."""
    key = endpoint.api_key
    if not (key.isascii() and key.isprintable()):
        raise EndpointError(
            f"the key in ${endpoint.api_key_env} holds characters that cannot be sent. Copy it once more, without "
            "line ends and quotation marks."
        )
    if key != NO_KEY:
        guard_logs(key)
    try:
        return AsyncOpenAI(
            base_url=endpoint.base_url,
            api_key=key,
            timeout=httpx2.Timeout(endpoint.timeout, connect=min(CONNECT_SECONDS, endpoint.timeout)),
            max_retries=endpoint.max_retries,
            http_client=BoundedClient(endpoint.timeout),
        )
    except httpx2.InvalidURL as error:
        raise EndpointError(f"{endpoint.base_url} is no address of a server ({error}). Check --base-url.") from None


def probe(endpoint: Endpoint, model: str) -> ServerInfo:
    """Ask a server what it serves, before any work is planned on it.

    Raises EndpointError where it does not answer, refuses the key, or lists models without this one. A server that
    has no list of models (404, 405) is taken at its word.
    """
    return asyncio.run(look_up(endpoint, model))


async def look_up(endpoint: Endpoint, model: str, retries: int = 3) -> ServerInfo:
    """What `probe` does, for those who are in an event loop already."""
    try:
        async with sdk(Endpoint(endpoint.base_url, endpoint.api_key_env, CONNECT_SECONDS, retries)) as client:
            cards = [card async for card in await client.models.list()]
        return _server_info(endpoint, model, cards)
    # Chained to nothing: the error below holds what the server said, and a server may say the key.
    except openai.APIConnectionError as error:
        cause = endpoint.short(error.__cause__ or error)
        raise EndpointError(
            f"no answer from {endpoint.base_url} ({cause or 'connection failed'}). Is the server running, and is this "
            "its base URL (it ends in /v1 for vLLM)?"
        ) from None
    except (openai.AuthenticationError, openai.PermissionDeniedError):
        raise EndpointError(endpoint.refused) from None
    except openai.APIStatusError as error:
        if error.status_code in (404, 405, 501):
            return ServerInfo((), False, None)
        raise EndpointError(
            f"{endpoint.base_url} answered HTTP {error.status_code} to the list of models: "
            f"{endpoint.short(error.message)}. Look at the server's log, then try again."
        ) from None
    except AnswerRefused as error:
        raise EndpointError(f"{endpoint.base_url}: {endpoint.short(error.message)}.") from None
    except (openai.OpenAIError, httpx2.InvalidURL, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise EndpointError(
            f"{endpoint.base_url} does not answer like an OpenAI-compatible server ({endpoint.short(error)}). "
            "Check the base URL (it ends in /v1 for vLLM)."
        ) from None


def _server_info(endpoint: Endpoint, model: str, cards: Sequence[Any]) -> ServerInfo:
    names = tuple(str(card.id) for card in cards)
    if names and model not in names:
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise EndpointError(endpoint.short(f"{endpoint.base_url} does not serve '{model}'. It serves: {shown}."))
    own = next((card for card in cards if card.id == model), None)
    extra = (own.model_extra or {}) if own is not None else {}
    length = extra.get("max_model_len")
    simulated = any(card.owned_by == SIMULATOR_OWNER for card in cards)
    names = tuple(name if name == model else endpoint.short(name) for name in names)
    root, revision = (_reported(endpoint, extra.get(name)) for name in ("root", "revision"))
    return ServerInfo(names, simulated, length if isinstance(length, int) else None, root, revision)


def _reported(endpoint: Endpoint, value: object) -> str | None:
    """A name that a server gives, as one line that can be shown and kept."""
    if not isinstance(value, str):
        return None
    shown = "".join(character if character.isprintable() else " " for character in value)
    return endpoint.short(shown)[:200].strip() or None

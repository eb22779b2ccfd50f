"""An OpenAI-compatible server: its checked address, its key, answers of bounded size and time, and what it serves.

Pages, sweep files and workspaces from somebody else name both an address and an environment variable; whoever follows
both sends any secret of this machine to any server. A key is therefore sent only to a server that it was named for:

- by a command that names both (`run --base-url URL --api-key-env NAME`) or by `--allow-key NAME=URL`;
- in the settings file, ~/.config/cimemories/settings.toml or what CIMEMORIES_SETTINGS names:

      [keys]
      LAB_API_KEY = ["https://llm.lab.example", "http://localhost:8000"]

- for the makers of seeds/models.yaml, whose variables go to their own servers.

Nothing in a workspace counts. What a command allows it passes to the workers that it starts in CIMEMORIES_KEYS. A key
is taken out of whatever is written down or shown: errors, logs, and the text of servers that echo what they got.

The SDK's own time limit is between two bytes, so a server that sends a byte a second is waited for without end, and a
body of any size is read into memory. Here every try has a total deadline and every body a largest size.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import ssl
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import aiohttp
import httpx2
import openai
from openai import AsyncOpenAI, DefaultAioHttpClient

from cimemories import event_loop
from cimemories.access import readonly, roles
from cimemories.access.roles import Role
from cimemories.files import open_regular
from cimemories.llm.replies import NO_CREDIT, cause_of, error_inside
from cimemories.llm.traffic import Traffic
from cimemories.seeds.presets import load_presets
from cimemories.store.engine import storable
from cimemories.text import has_control, visible, without_credentials

# ---- address and permission to send a key


DEFAULT_KEY_ENV = "OPENAI_API_KEY"
KEYS = "CIMEMORIES_KEYS"
SETTINGS = "CIMEMORIES_SETTINGS"
SETTINGS_FILE = "~/.config/cimemories/settings.toml"
LOCAL_VLLM = "local-vllm:"  # begins an address for which work starts a server of its own (local_vllm.py)
NO_SERVERS = ("", "simulator", "batch", "imported")  # words that stand where an address is expected
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:_API_KEY|_TOKEN)", re.ASCII)
_LARGEST_SETTINGS = 1_000_000  # bytes
_PORTS = {"http": 80, "https": 443}


class EndpointError(Exception):
    """A server cannot be used. The message is for people: what, where, what to do next."""


class NoApiThere(EndpointError):
    """Something answers at the address, and it is not the API of a model's server."""


def checked_address(address: str) -> None:
    """Raises EndpointError for an address that holds more than host, port and path, or nothing that names a host:
    addresses are recorded and shown, and a secret in one would be too."""
    plain = _decoded(address)
    if address.startswith(LOCAL_VLLM) and not has_control(plain):
        return
    if has_control(plain) or any(sign in plain for sign in ";?&=#@\\"):
        raise EndpointError(
            "the server's address holds more than host and path. Addresses are recorded and shown, so write "
            f"{_bare(plain)} and put the key into an environment variable (on the command line: --api-key-env)."
        )
    if origin(address) is None or " " in address:
        # What stands where a port belongs may be half of a user:password.
        shown = re.sub(r":(?!//|\d+(?:/|$))[^/]*", ":…", plain)
        raise EndpointError(
            f"'{shown}' is not the address of a server. Write http://host:port/v1 (on the command line: --base-url)."
        )


# What the SDK adds to a base URL, and people paste along with it. A bare /models is a base URL of Azure's, so the other
# routes are only taken for such behind a version.
_ROUTE = re.compile(r"(/chat/completions|(?<=/v1)/(?:completions|responses|embeddings|models))/*$")


def without_route(address: str) -> str:
    """Return the base URL of an address that may end in a route of the API, such as /v1/chat/completions."""
    return _ROUTE.sub("", address) if origin(address) else address


def below_v1(address: str) -> str | None:
    """Return the address followed by /v1, or None if it ends in a version already."""
    bare = address.rstrip("/")
    return None if re.search(r"/v\d\w*$", bare) else f"{bare}/v1"


def _decoded(address: str) -> str:
    """The address without percent-encoding, however often it was applied: a server or a proxy may decode it again."""
    # Bounded: each round that changes anything shortens the text.
    for _ in range(len(address)):
        plain = unquote(address)
        if plain == address:
            break
        address = plain
    return address


def _bare(address: str) -> str:
    """What of a refused address may be shown: scheme, host and path, and a port only where it is a number."""
    # What stands before the last @ is a user and a password.
    scheme = re.match(r"https?://", address)
    kept = re.split(r"[;?&=#\s\\]", address.removeprefix(scheme[0] if scheme else "").rpartition("@")[2], maxsplit=1)[0]
    kept = re.sub(r"^(\[[^\]]*\]|[^/:\[]*):(?!\d{1,5}(?:/|$))[^/]*", r"\1", kept)
    return visible(f"{scheme[0] if scheme else 'http://'}{kept or 'host/v1'}")


def checked_variable(variable: str) -> None:
    """Raises EndpointError for a name that no key variable has: pages and files must not reach other secrets."""
    if not _VARIABLE.fullmatch(variable):
        raise EndpointError(
            f"'{without_credentials(variable)[:80]}' cannot hold a key: only variables whose names end in _API_KEY or "
            "_TOKEN are read. Put the key into one of those, and name that (on the command line: --api-key-env)."
        )


def origin(address: str) -> str | None:
    """Scheme, host and port of an address as one text, `https://host:443`; None for what is no http address."""
    try:
        parts = urlsplit(address.strip())
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{_PORTS[parts.scheme] if port is None else port}"


def allow_key(variable: str, address: str) -> None:
    """From now on the key in this variable may be sent to this server, by this process and those that it starts. Raises
    EndpointError where either is not valid. The words `simulator` and `batch` need no key."""
    if address in NO_SERVERS or address.startswith(LOCAL_VLLM):
        return
    checked_variable(variable)
    checked_address(address)
    pairs = os.environ.get(KEYS, "").split()
    pair = f"{variable}={origin(address)}"
    if pair not in pairs:
        os.environ[KEYS] = " ".join([*pairs, pair])


def allow_pair(text: str) -> None:
    """`allow_key` for NAME=ADDRESS as it is typed."""
    variable, sign, address = text.partition("=")
    if not sign or address.strip() in NO_SERVERS:
        raise EndpointError("--allow-key is NAME=ADDRESS, for example LAB_API_KEY=https://llm.lab.example.")
    allow_key(variable.strip(), address.strip())


def may_send(variable: str, address: str) -> bool:
    """Whether the key in this variable may be sent to this server. Raises EndpointError for settings that cannot be
    read: what they allow is then not known."""
    # Compared with scheme and port: a key for https://host is not sent to http://host, in the clear, nor to whatever
    # listens at another port of that host.
    there = origin(address)
    return there is not None and any((variable, there) == pair for pair in _allowed())


def keys_for_workers(variables: Iterable[str]) -> dict[str, str]:
    """What a worker on another machine needs in its environment to send these keys where this process may, and nowhere
    else."""
    wanted = {name: os.environ[name] for name in variables if name and os.environ.get(name)}
    for name in wanted:
        checked_variable(name)
    pairs = [f"{name}={there}" for name, there in _allowed() if name in wanted and there]
    return {**wanted, KEYS: " ".join(dict.fromkeys(pairs))}


def why_not(variable: str, address: str) -> str:
    """For a person whose server got no key: why, and how to allow it."""
    return (
        f"no key was sent: ${variable} is not allowed for this server. Allow it with --allow-key "
        f"{variable}={(origin(address) or address).removesuffix(':443').removesuffix(':80')} (of this command, or of "
        f"`cimemories app`), or under [keys] in {_settings_path()}"
    )


def _allowed() -> Iterator[tuple[str, str | None]]:
    for pair in os.environ.get(KEYS, "").split():
        variable, _, address = pair.partition("=")
        yield variable, origin(address)
    for preset in load_presets():
        if preset.api_key_env and preset.base_url:
            # The file ships with the project; CIMEMORIES_SEEDS is set by whoever starts the app, never by a workspace.
            yield preset.api_key_env, origin(preset.base_url)
    yield from _of_settings()


def _settings_path() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME")
    usual = Path(home, "cimemories", "settings.toml") if home else Path(SETTINGS_FILE).expanduser()
    return Path(os.environ[SETTINGS]) if os.environ.get(SETTINGS) else usual


def _of_settings() -> Iterator[tuple[str, str | None]]:
    path = _settings_path()
    try:
        with open_regular(path) as stream:
            # Notepad writes a byte order mark.
            settings = tomllib.loads(stream.read(_LARGEST_SETTINGS).decode("utf-8-sig"))
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError) as error:
        raise EndpointError(f"the settings in {path} cannot be read ({error}). Fix or remove the file.") from None
    keys = settings.get("keys", {})
    if not isinstance(keys, dict):
        raise EndpointError(f"{path}: [keys] must be a table of variables, each with the addresses it may be sent to.")
    for variable, addresses in keys.items():
        for address in [addresses] if isinstance(addresses, str) else addresses:
            if not isinstance(address, str) or origin(address) is None or not _VARIABLE.fullmatch(variable):
                raise EndpointError(
                    f'{path}: write [keys] {variable} = "https://host" with a name that ends in _API_KEY or _TOKEN.'
                )
            yield variable, origin(address)


# ---- keys taken out of texts


PLACEHOLDER = "[key]"
# Characters of a key in a row that are taken out of a text.
IN_ERRORS = 6
IN_ANSWERS = 12  # a model's own words stay what they are: only what no text shares with a key by chance is taken out
# Each by its own name: a filter at a logger does not see what its children log.
LOGGERS = (
    *("openai", "openai._base_client", "openai._response", "openai._legacy_response", "httpx2", "httpcore2"),
    *(f"httpcore2.{name}" for name in ("connection", "http11", "http2", "proxy", "socks")),
)


class Redactor:
    """Takes one key out of texts; does nothing where there is none. A key that a text cuts through is found by its
    parts: every stretch of at least IN_ERRORS or IN_ANSWERS characters of it is taken out. So is one that was escaped
    on its way, as JSON, addresses or Python's bytes do it."""

    def __init__(self, key: str | None) -> None:
        spellings = {key, json.dumps(key)[1:-1], quote(key, safe=""), repr(key)[1:-1]} if key else set()
        # The longest first, so that an escaped spelling goes as a whole; sorted, because the order of a set of texts
        # differs from process to process.
        self._spellings = sorted(spellings, key=lambda text: (-len(text), text))

    def error(self, text: str) -> str:
        """A text about something that went wrong. A short key goes where it stands as a whole."""
        return self._without(text, IN_ERRORS)

    def answer(self, text: str) -> str:
        """A text that a model wrote, as the server says. A key that is too short to tell from a word stays."""
        return self._without(text, IN_ANSWERS, whole=False)

    def _without(self, text: str, least: int, *, whole: bool = True) -> str:
        for spelling in self._spellings:
            if whole:
                text = text.replace(spelling, PLACEHOLDER)
            parts = {spelling[start : start + least] for start in range(len(spelling) - least + 1)}
            if any(part in text and part not in PLACEHOLDER for part in parts):
                text = _without_parts(text, parts, least)
        return text


def _without_parts(text: str, parts: Collection[str], least: int) -> str:
    """Text without every stretch that is made of these parts of a key, each of `least` characters."""
    # Looked ahead for, so that parts which overlap are all found, and their stretch goes as one.
    pattern = re.compile("|".join(f"(?=({re.escape(part)}))" for part in sorted(parts)))
    # Stretches that touch or overlap are one, so that no piece of the key stays between two placeholders.
    kept: list[str] = []
    end = 0
    for hit in pattern.finditer(text):
        if hit.start() > end or not kept:
            kept += [text[end : hit.start()], PLACEHOLDER]
        end = max(end, hit.start() + least)
    return "".join([*kept, text[end:]])


class _LogFilter(logging.Filter):
    """Takes all keys that this process uses out of what the HTTP libraries log, where logging is switched on."""

    def __init__(self) -> None:
        super().__init__()
        self.redactors: dict[str, Redactor] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        for redactor in self.redactors.values():
            text = redactor.error(text)
        # Already formatted: with its arguments, which hold the key, a handler would format it again.
        record.msg, record.args = text, ()
        return True


_filter = _LogFilter()


def guard_logs(key: str) -> None:
    """From now on nothing that the HTTP libraries log holds this key, at whatever level."""
    _filter.redactors.setdefault(key, Redactor(key))
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_filter)


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
    """The certificate authorities that this machine trusts, read once for all clients of the process: each would read
    them for itself, also one that talks plain http, which takes 30 ms. A new authority counts after a restart."""
    return httpx2.create_ssl_context()


class BoundedClient(DefaultAioHttpClient):
    """Sends one request at a time for the SDK, and reads its answer within bounds.

    Waits longer at each retry: a server that lost a request gets it again soon, one that is slow gets its time. Raises
    AnswerRefused for an answer that is too large, compressed (a bound on bytes sent bounds nothing then) or not whole
    in time, and for a redirect to another origin: the request holds prompts and a key.

    traffic: of which its requests are a part; without one the SDK alone deals with a server that limits them.
    """

    def __init__(self, timeout: float, traffic: Traffic | None = None) -> None:
        # What is in flight is bounded by the executor already.
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
            # What the SDK's transport does not translate: headers that are no HTTP, or too long. Chained to nothing:
            # the error holds the request with its key.
            reason = getattr(error, "message", "") or str(error)
            raise httpx2.RemoteProtocolError(f"the answer is not HTTP: {reason[:200]}", request=request) from None
        raise AnswerRefused("redirected", f"the server redirected more than {MOST_REDIRECTS} times")


def _patience(request: httpx2.Request) -> float:
    """Set the longest silence of this try, and return it; 0 where there is no limit."""
    retry = int(request.headers.get("x-stainless-retry-count", 0))  # the SDK's own header; it gives no other hint
    limits: dict[str, float | None] = request.extensions["timeout"]
    # From the second try on: the first has the time-out as it was set. The dict is the one that the transport reads.
    if retry and limits.get("read") is not None:
        limits["read"] = min(float(limits["read"] or 0) * PATIENCE**retry, PATIENCE_SECONDS)
    return limits.get("read") or 0.0


async def _read(response: httpx2.Response) -> httpx2.Response:
    """The response with its body read."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise AnswerRefused("malformed", f"the answer is compressed ({encoding[:40]}) although that was not requested")
    body = bytearray()
    # A body that is announced as too large is not read at all. What is announced is only believed where it is bad news:
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


# ---- endpoint and what it serves


SIMULATOR_OWNER = "cimemories-simulator"
NO_KEY = "no-key-needed"
CONNECT_SECONDS = 10.0


@dataclass(frozen=True)
class Endpoint:
    """Where a model is served. The key itself is never kept here: only the name of the variable that holds it.

    timeout: seconds to wait for the first try of a request; each retry waits twice as long as the one before.
    n_at_once: several draws are one request with `n`; else each is a request of its own, for servers that refuse `n`.
    server, fresh: what the keys of its calls hold (store/calls.py, Origin).
    api_key_env: '' where there is none. The key is sent only where it was named for this server.
    Raises EndpointError for an address that holds more than host and path, and for a variable that cannot hold a key.
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
        """The key from the environment. Local servers need none, but the SDK does."""
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
        withheld = bool(name and os.environ.get(name, "").strip()) and not may_send(name, self.base_url)
        return why_not(name, self.base_url) if withheld else ""

    @property
    def refused(self) -> str:
        """What to tell a person where this server refuses a request for want of a right key."""
        if self.held_back:
            return f"{self.base_url} needs a key, and {self.held_back}."
        if not self.api_key_env:
            where = "on the command line: --api-key-env"
            return f"{self.base_url} refuses requests without a key. Name its variable ({where})."
        return (
            f"{self.base_url} refuses the key in ${self.api_key_env}. Correct that variable, or name another (on the "
            "command line: --api-key-env)."
        )

    def short(self, error: object) -> str:
        """An error as one line for the record, without the key: taken out before the cut, which could go through it."""
        return storable(" ".join(without_credentials(self.redactor.error(str(error))).split())[:500])

    # A cached_property writes to __dict__ directly, which a frozen dataclass lets pass.
    @cached_property
    def redactor(self) -> Redactor:
        """What takes this endpoint's key out of texts."""
        return Redactor(self._secret)


@dataclass(frozen=True)
class ServerInfo:
    """What a server reports of itself. `models` is empty where it does not list them. root, revision: of the model that
    was looked up, as vLLM reports what it loaded under the served name; None where the server does not. base_url: the
    right address, where the one that was given is not it. cuts_answers: an answer that exceeds `max_model_len` is cut
    there, where other servers refuse the request for the answer that it allows."""

    models: tuple[str, ...]
    simulated: bool
    max_model_len: int | None
    root: str | None = None
    revision: str | None = None
    base_url: str | None = None
    cuts_answers: bool = False


def sdk(endpoint: Endpoint, traffic: Traffic | None = None) -> AsyncOpenAI:
    """The openai SDK for an endpoint, over aiohttp: 0.6 ms of processor time a call with 32 in flight, 1.0 ms by its
    default client. traffic: as of BoundedClient. Raises EndpointError for an address or a key that cannot be sent, and
    in a read-only app."""
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
            base_url=endpoint.base_url,
            api_key=key,
            # A server that is gone is noticed in seconds, however long its answers may take.
            timeout=httpx2.Timeout(endpoint.timeout, connect=min(CONNECT_SECONDS, endpoint.timeout)),
            max_retries=endpoint.max_retries,
            http_client=BoundedClient(endpoint.timeout, traffic),
        )
    except httpx2.InvalidURL as error:
        raise EndpointError(
            f"{endpoint.base_url} is not a server's address ({error}). Correct it (on the command line: --base-url)."
        ) from None


def probe(endpoint: Endpoint, model: str, retries: int = 3) -> ServerInfo:
    """What a server serves, looked up before any work is planned on it; model: '' for none in particular. Raises
    EndpointError where it does not answer, refuses the key, or lists models without this one. A server that has no list
    of models (404, 405) is taken at its word."""
    return event_loop.run(look_up(endpoint, model, retries))


def right_address(address: str) -> str:
    """Return the address of the API at a server's address, as far as the server says so without a key."""
    if origin(address) is None:
        return address
    try:
        return probe(Endpoint(address, ""), "", retries=0).base_url or address
    except EndpointError:
        return without_route(address)


async def look_up(endpoint: Endpoint, model: str, retries: int = 3) -> ServerInfo:
    """Do what `probe` does, in an event loop. An address that ends in a route of the API, or lacks its /v1, is
    corrected where the right one lists its models; `base_url` of the result says so."""
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
    """The server answers, and has no list of models."""


async def _listed(endpoint: Endpoint, model: str, retries: int) -> ServerInfo:
    try:
        async with sdk(Endpoint(endpoint.base_url, endpoint.api_key_env, CONNECT_SECONDS, retries)) as client:
            cards = [card async for card in await client.models.list()]
        return _server_info(endpoint, model, cards)
    # Chained to nothing: the error below holds the server's words, and a server may repeat the key.
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
    """Return the most tokens of a prompt and its answer that a server takes, as it lists the model (None if it does not
    say), and whether it is llama.cpp that says so. Its `n_ctx_train` is what the model was trained for, not what is
    served."""
    meta = card.get("meta")
    # Of vLLM and SGLang, OpenRouter, Groq, Mistral.
    lengths = [card.get(n) for n in ("max_model_len", "context_length", "context_window", "max_context_length")]
    lengths.append(meta.get("n_ctx") if isinstance(meta, dict) else None)
    known = [isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in lengths]
    return (lengths[known.index(True)], known.index(True) == len(known) - 1) if any(known) else (None, False)


def _reported(endpoint: Endpoint, value: object) -> str | None:
    """A name that a server gives, as one line that can be shown and kept."""
    if not isinstance(value, str):
        return None
    shown = "".join(character if character.isprintable() else " " for character in value)
    return endpoint.short(shown)[:200].strip() or None

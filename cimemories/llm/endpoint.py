"""An OpenAI-compatible server: its checked address, and its key.

Pages, sweep files and workspaces of other people name both an address and an environment variable; trusting both would
send any secret of this machine to any server. A key is therefore sent only to a server that it was named for:

- by a command that names both (`run --base-url URL --api-key-env NAME`) or by `--allow-key NAME=URL`;
- in the settings file, ~/.config/cimemories/settings.toml or the one that CIMEMORIES_SETTINGS names:

      [keys]
      LAB_API_KEY = ["https://llm.lab.example", "http://localhost:8000"]

- for the makers of seeds/models.yaml, whose variables go to their own servers.

Nothing in a workspace counts. A command passes its permissions to the workers that it starts in CIMEMORIES_KEYS. Keys
are removed from everything that is written or shown: errors, logs, and the text of servers that echo requests.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from cimemories.files import open_regular
from cimemories.seeds.presets import load_presets
from cimemories.store.engine import storable
from cimemories.text import has_control, without_credentials

# ---- address and permission to send a key


DEFAULT_KEY_ENV = "OPENAI_API_KEY"
KEYS = "CIMEMORIES_KEYS"
SETTINGS = "CIMEMORIES_SETTINGS"
SETTINGS_FILE = "~/.config/cimemories/settings.toml"
LOCAL_VLLM = "local-vllm:"  # begins an address for which work starts a server of its own (local_vllm.py)
ASSISTANT = "assistant:"  # begins the address of a service that is an assistant (assistants.py)
COMMAND = "command:"  # begins the program that is one
TASKS = "assistant:tasks"  # the word for an assistant elsewhere: tasks go out and outcomes come back as files
SIMULATOR = "simulator"  # the word for the one that the work starts for itself
NO_SERVERS = ("", SIMULATOR, "batch", "imported", TASKS)  # words in place of an address
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:_API_KEY|_TOKEN)", re.ASCII)
_LARGEST_SETTINGS = 1_000_000  # bytes
_PORTS = {"http": 80, "https": 443}


class EndpointError(Exception):
    """A server that cannot be used. The message says what is wrong, where, and what to do next."""


class NoApiThere(EndpointError):
    """Something answers at the address, but it is not the API of a model's server."""


def checked_address(address: str) -> None:
    """Raise EndpointError for an address that holds more than host, port and path, or names no host: addresses are
    recorded and shown, and so would be a secret in one."""
    plain = _decoded(address)
    if address.startswith((LOCAL_VLLM, COMMAND)) and not has_control(plain):
        return
    # The address is not repeated: the text in place of a port may be half of a user:password.
    if has_control(plain) or any(sign in plain for sign in ";?&=#@\\"):
        raise EndpointError(
            "the server's address holds more than host and path. Addresses are recorded and shown, so write "
            "http://host:port/v1 and put the key into an environment variable (on the command line: --api-key-env)."
        )
    if origin(address) is None or " " in address:
        raise EndpointError(
            "this is not the address of a server. Write http://host:port/v1 (on the command line: --base-url)."
        )


# Routes that the SDK adds to a base URL, and people paste along. A bare /models is a base URL of Azure's, so the other
# routes are only taken for such behind a version.
_ROUTE = re.compile(r"(/chat/completions|(?<=/v1)/(?:completions|responses|embeddings|models))/*$")


def is_assistant(address: str) -> bool:
    """Return whether an address is that of an assistant, and of no model."""
    return address.startswith((ASSISTANT, COMMAND))


def without_route(address: str) -> str:
    """Return the base URL of an address that may end in a route of the API, such as /v1/chat/completions."""
    return _ROUTE.sub("", address) if origin(address) else address


def below_v1(address: str) -> str | None:
    """Return the address followed by /v1, or None if it ends in a version already."""
    bare = address.rstrip("/")
    return None if re.search(r"/v\d\w*$", bare) else f"{bare}/v1"


def _decoded(address: str) -> str:
    """Return the address without percent-encoding, however often it was applied."""
    # Bounded: each round that changes anything shortens the text.
    for _ in range(len(address)):
        plain = unquote(address)
        if plain == address:
            break
        address = plain
    return address


def checked_variable(variable: str) -> None:
    """Raise EndpointError for a name that no key variable has: pages and files must not reach other secrets."""
    if not _VARIABLE.fullmatch(variable):
        raise EndpointError(
            f"'{without_credentials(variable)[:80]}' cannot hold a key: only variables whose names end in _API_KEY or "
            "_TOKEN are read. Put the key into one of those, and name that (on the command line: --api-key-env)."
        )


def origin(address: str) -> str | None:
    """Return scheme, host and port of an address, `https://host:443`, or None if it is no http address."""
    try:
        parts = urlsplit(address.strip().removeprefix(ASSISTANT))
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{_PORTS[parts.scheme] if port is None else port}"


def allow_key(variable: str, address: str) -> None:
    """Allow this process, and those that it starts, to send the key in this variable to this server. Raises
    EndpointError if either is not valid. The words `simulator` and `batch` need no key."""
    if address in NO_SERVERS or address.startswith((LOCAL_VLLM, COMMAND)):
        return
    checked_variable(variable)
    checked_address(address)
    pairs = os.environ.get(KEYS, "").split()
    pair = f"{variable}={origin(address)}"
    if pair not in pairs:
        os.environ[KEYS] = " ".join([*pairs, pair])


def allow_pair(text: str) -> None:
    """Do what `allow_key` does, for NAME=ADDRESS as it is typed."""
    variable, sign, address = text.partition("=")
    if not sign or address.strip() in NO_SERVERS:
        raise EndpointError("--allow-key is NAME=ADDRESS, for example LAB_API_KEY=https://llm.lab.example.")
    allow_key(variable.strip(), address.strip())


def may_send(variable: str, address: str) -> bool:
    """Return whether the key in this variable may be sent to this server. Raises EndpointError for settings that cannot
    be read."""
    # Compared with scheme and port: a key for https://host is not sent to http://host, in the clear, nor to whatever
    # listens at another port of that host.
    there = origin(address)
    return there is not None and any((variable, there) == pair for pair in _allowed())


def keys_for_workers(variables: Iterable[str]) -> dict[str, str]:
    """Return the environment by which a worker on another machine may send these keys to the same servers as this
    process."""
    wanted = {name: os.environ[name] for name in variables if name and os.environ.get(name)}
    for name in wanted:
        checked_variable(name)
    pairs = [f"{name}={there}" for name, there in _allowed() if name in wanted and there]
    return {**wanted, KEYS: " ".join(dict.fromkeys(pairs))}


def why_not(variable: str, address: str) -> str:
    """Return why a server got no key, and how to allow it."""
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
            # The file ships with the project; CIMEMORIES_SEEDS is set by the app's user, never by a workspace.
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
IN_ANSWERS = 12  # a model's own words stay: only what no text shares with a key by chance is removed
# Each by its own name: a filter at a logger does not see the records of its children.
LOGGERS = (
    *("openai", "openai._base_client", "openai._response", "openai._legacy_response", "httpx2", "httpcore2"),
    *(f"httpcore2.{name}" for name in ("connection", "http11", "http2", "proxy", "socks")),
)


class Redactor:
    """Removes one key from texts, escaped or not. A key that a text cuts through is found by its parts: every stretch
    of at least IN_ERRORS or IN_ANSWERS characters of it is removed."""

    def __init__(self, key: str | None) -> None:
        spellings = {key, json.dumps(key)[1:-1], quote(key, safe=""), repr(key)[1:-1]} if key else set()
        # The longest first, so that an escaped spelling goes as a whole; sorted, because the order of a set of texts
        # differs from process to process.
        self._spellings = sorted(spellings, key=lambda text: (-len(text), text))

    def error(self, text: str) -> str:
        """Return a text about an error without the key. A short key is removed if it stands as a whole."""
        return self._without(text, IN_ERRORS)

    def answer(self, text: str) -> str:
        """Return a model's text without the key. A key that is too short to tell from a word stays."""
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
    """Return a text without every stretch that is made of these parts of a key, each of `least` characters."""
    # By lookahead, so that overlapping parts are all found, and their stretch goes as one.
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
    """Removes all keys that this process uses from the logs of the HTTP libraries."""

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
    """Keep this key out of the logs of the HTTP libraries from now on, at any level."""
    _filter.redactors.setdefault(key, Redactor(key))
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_filter)


# ---- endpoint


NO_KEY = "no-key-needed"


@dataclass(frozen=True)
class Endpoint:
    """The server of a model. The key itself is never kept here: only the name of its variable, '' for none.

    timeout: seconds for the first try of a request; each retry waits twice as long. n_at_once: several draws are one
    request with `n`. server, fresh: as in the keys of its calls (store/calls.py, Origin). Raises EndpointError for an
    address that holds more than host and path, and for a variable that cannot hold a key.
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
        """Return the key from the environment. Local servers need none, but the SDK does."""
        return self._secret or NO_KEY

    @property
    def _secret(self) -> str | None:
        if not self.api_key_env or not may_send(self.api_key_env, self.base_url):
            return None
        return os.environ.get(self.api_key_env, "").strip() or None

    @property
    def held_back(self) -> str:
        """Return why a key that is set was not sent to this server, and how to allow it, or ''."""
        name = self.api_key_env
        withheld = bool(name and os.environ.get(name, "").strip()) and not may_send(name, self.base_url)
        return why_not(name, self.base_url) if withheld else ""

    @property
    def refused(self) -> str:
        """Return the advice for users if this server refuses a request for want of a right key."""
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
        """Return an error as one line for the record, without the key: taken out before the cut, which could go through
        it."""
        return storable(" ".join(without_credentials(self.redactor.error(str(error))).split())[:500])

    # A cached_property writes to __dict__ directly, which a frozen dataclass lets pass.
    @cached_property
    def redactor(self) -> Redactor:
        return Redactor(self._secret)


@dataclass(frozen=True)
class ServerInfo:
    """The report of a server about itself. models: () if it lists none. root, revision: of the model that vLLM loaded
    under the served name. base_url: the right address, if another was given. cuts_answers: an answer that exceeds
    `max_model_len` is cut; other servers refuse the request for the answer that it allows."""

    models: tuple[str, ...]
    simulated: bool
    max_model_len: int | None
    root: str | None = None
    revision: str | None = None
    base_url: str | None = None
    cuts_answers: bool = False

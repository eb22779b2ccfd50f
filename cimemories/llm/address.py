"""Addresses of servers: what one may hold, and which key may be sent there.

Pages, sweep files and workspaces from somebody else name both an address and an environment variable; whoever follows
both sends any secret of this machine to any server. A key is therefore sent only to a server that it was named for:

- by a command that names both (`run --base-url URL --api-key-env NAME`) or by `--allow-key NAME=URL`;
- in the settings file, ~/.config/cimemories/settings.toml or what CIMEMORIES_SETTINGS names:

      [keys]
      LAB_API_KEY = ["https://llm.lab.example", "http://localhost:8000"]

- for the makers of seeds/models.yaml, whose variables go to their own servers.

Nothing in a workspace counts. What a command allows it passes to the workers that it starts in CIMEMORIES_KEYS.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cimemories.files import open_regular
from cimemories.seeds.presets import load_presets
from cimemories.texts import has_control, visible, without_credentials

DEFAULT_KEY_ENV = "OPENAI_API_KEY"
KEYS = "CIMEMORIES_KEYS"
SETTINGS = "CIMEMORIES_SETTINGS"
SETTINGS_FILE = "~/.config/cimemories/settings.toml"
NO_SERVERS = ("", "simulator", "batch", "imported")  # words that stand where an address is expected
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:_API_KEY|_TOKEN)", re.ASCII)
_LARGEST_SETTINGS = 1_000_000  # bytes
_PORTS = {"http": 80, "https": 443}


class EndpointError(Exception):
    """A server cannot be used. The message is for people: what, where, what to do next."""


def checked_address(address: str) -> None:
    """Raises EndpointError for an address that holds more than host, port and path, or nothing that names a host:
    addresses are recorded and shown, and a secret in one would be too."""
    plain = _decoded(address)
    if has_control(plain) or any(sign in plain for sign in ";?&=#@\\"):
        raise EndpointError(
            "the address of the server holds more than host and path. Addresses are recorded and shown, so write "
            f"{_bare(plain)} and put the key into an environment variable, named by --api-key-env."
        )
    if origin(address) is None or " " in address:
        raise EndpointError(f"'{_bare(plain)}' is no address of a server: write http://host:port/v1. Check --base-url.")


def _decoded(address: str) -> str:
    """The address without percent-encoding, however often it was applied: a server or a proxy may decode it again."""
    for _ in range(len(address)):
        plain = unquote(address)
        if plain == address:
            break
        address = plain
    return address


def _bare(address: str) -> str:
    """What of a refused address may be shown: scheme, host and path, and a port only where it is a number."""
    scheme = re.match(r"https?://", address)
    kept = re.split(r"[;?&=#\s\\]", address.removeprefix(scheme[0] if scheme else "").rpartition("@")[2], maxsplit=1)[0]
    kept = re.sub(r"^(\[[^\]]*\]|[^/:\[]*):(?!\d{1,5}(?:/|$))[^/]*", r"\1", kept)
    return visible(f"{scheme[0] if scheme else 'http://'}{kept or 'host/v1'}")


def checked_variable(variable: str) -> None:
    """Raises EndpointError for a name that no key variable has: pages and files must not reach other secrets."""
    if not _VARIABLE.fullmatch(variable):
        raise EndpointError(
            f"'{without_credentials(variable)[:80]}' is no variable of a key: only variables whose names end in "
            "_API_KEY or _TOKEN are read. Put the key into one, and name it with --api-key-env."
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
    """From now on the key in this variable may be sent to this server, by this process and those that it starts.

    Raises EndpointError where either cannot be meant. The words `simulator` and `batch` need no key.
    """
    if address in NO_SERVERS:
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
    there = origin(address)
    return there is not None and any((variable, there) == pair for pair in _allowed())


def why_not(variable: str, address: str) -> str:
    """What to tell a person whose server got no key: how to allow it."""
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
            settings = tomllib.loads(stream.read(_LARGEST_SETTINGS).decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError) as error:
        raise EndpointError(f"the settings in {path} cannot be read ({error}). Mend or remove the file.") from None
    keys = settings.get("keys", {})
    if not isinstance(keys, dict):
        raise EndpointError(f"{path}: [keys] is a table of variables, each with the addresses that it may be sent to.")
    for variable, addresses in keys.items():
        for address in [addresses] if isinstance(addresses, str) else addresses:
            if not isinstance(address, str) or origin(address) is None or not _VARIABLE.fullmatch(variable):
                raise EndpointError(
                    f'{path}: write [keys] {variable} = "https://host" with a name that ends in _API_KEY or _TOKEN.'
                )
            yield variable, origin(address)

"""The servers whose answers the record holds, and which of them a person says are the same server.

    ServerId("http://gpu1:8000/v1", root="Qwen/Qwen3-8B").text == "http://gpu1:8000/v1, root Qwen/Qwen3-8B"

The text is part of the key of every call, so answers of two servers are never taken for each other, even where both
serve a model under one name. Two addresses that a person ties together share answers: where a run at one of them finds
nothing of its own in the record, it looks for the other's. Nothing is rewritten, so a tie can be taken back.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

import sqlalchemy as sa

from cimemories.store.engine import StoreError, insert_ignore, plain_name
from cimemories.store.ids import now
from cimemories.store.run_tables import same_server, server
from cimemories.store.tables import call

NOT_KNOWN = "server not known"  # whose answers were recorded before servers were told apart
BATCH = "batch files"
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class ServerId:
    """What tells servers apart. address: a normalised base URL, or what stands for one (a managed vLLM by its model and
    flags, the simulator); root, revision: of the model, as the server reports them in /v1/models; None where it does
    not."""

    address: str
    root: str | None = None
    revision: str | None = None

    @property
    def text(self) -> str:
        parts = [self.address]
        parts += [f"root {self.root}"] if self.root else []
        parts += [f"revision {self.revision}"] if self.revision else []
        return ", ".join(parts)

    @property
    def shown(self) -> str:
        """For people."""
        return f"the {self.text}" if self.address == "simulator" else self.text

    @classmethod
    def read(cls, text: str) -> ServerId:
        """The server that such a text names."""
        rest, _, revision = text.partition(", revision ")
        address, _, root = rest.partition(", root ")
        return cls(address, root or None, revision or None)

    def may_be(self, other: ServerId) -> bool:
        """Whether what both report of the model agrees; what one of them does not report is no difference."""
        pairs = ((self.root, other.root), (self.revision, other.revision))
        return all(mine is None or theirs is None or mine == theirs for mine, theirs in pairs)


# The simulator answers by its policy and seed alone, whatever its port. The number goes up when the policy's answers
# change.
SIMULATOR_ROOT = "cimemories-simulator-1"
SIMULATED = ServerId("simulator", SIMULATOR_ROOT, "seed-0")


@lru_cache(maxsize=4096)
def address_of(base_url: str) -> str:
    """A base URL in one spelling: lower case, no default port, no slash at the end, one name for this machine."""
    try:
        parts = urlsplit(base_url.strip())
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return base_url.strip()
    if not host or not parts.scheme:
        return base_url.strip()
    path = re.sub("/+", "/", parts.path).rstrip("/")
    shown = "" if port is None or port == _DEFAULT_PORTS.get(parts.scheme) else f":{port}"
    return f"{parts.scheme}://{_host(host)}{shown}{path}"


def _host(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "localhost" if host.endswith(".localhost") else host
    if address.is_loopback or address.is_unspecified:
        return "localhost"
    return f"[{address}]" if address.version == 6 else str(address)


def is_loopback(address: str) -> bool:
    """Whether a normalised address is of this machine."""
    return bool(re.match(r"https?://localhost(?=[:/]|$)", address))


def remember(connection: sa.Connection, texts: Iterable[str | None]) -> None:
    """Note servers that work was planned on or answered by; those that are noted stay."""
    rows = [{"id": text, "created": now()} for text in sorted({text for text in texts if text})]
    if rows:
        connection.execute(insert_ignore(connection, server), rows)


@dataclass(frozen=True)
class Tie:
    """Two addresses that a person says are one server. `second` may be NOT_KNOWN: then answers of before servers were
    told apart, recorded at the first address, are its own."""

    first: str
    second: str
    author: str
    created: str


def known(connection: sa.Connection) -> list[ServerId]:
    """The servers that work was planned on, by address."""
    return [ServerId.read(text) for text in connection.execute(sa.select(server.c.id).order_by(server.c.id)).scalars()]


def counts(connection: sa.Connection) -> dict[str, int]:
    """How many answers the record holds of each server, by its text. Reads the whole record."""
    query = sa.select(call.c.server, sa.func.count()).where(call.c.status == "ok").group_by(call.c.server)
    return {text or NOT_KNOWN: int(number) for text, number in connection.execute(query)}


def ties(connection: sa.Connection) -> list[Tie]:
    """What people said, oldest first."""
    rows = connection.execute(sa.select(same_server).order_by(same_server.c.created, same_server.c.first)).mappings()
    return [Tie(**row) for row in rows]


def tie(connection: sa.Connection, one: str, other: str, author: str) -> Tie:
    """Say that two addresses are the same server. Saying it twice changes nothing.

    Raises StoreError where both are the same address already, and where one is no address and no server of the record.
    """
    first, second = _pair(connection, one, other)
    if first == second:
        raise StoreError(f"{one} and {other} are one address already ({first}): there is nothing to say.")
    statement = insert_ignore(connection, same_server)
    connection.execute(
        statement.values(first=first, second=second, author=plain_name(author, "annotator"), created=now())
    )
    return next(item for item in ties(connection) if (item.first, item.second) == (first, second))


def untie(connection: sa.Connection, one: str, other: str) -> None:
    """Take it back: from now on neither is served the other's answers. Raises StoreError where it was not said."""
    first, second = _pair(connection, one, other)
    where = same_server.c.first == first, same_server.c.second == second
    if not connection.execute(sa.delete(same_server).where(*where)).rowcount:
        raise StoreError(f"nobody said that {first} and {second} are the same server.")


def _pair(connection: sa.Connection, one: str, other: str) -> tuple[str, str]:
    """Both normalised, in an order of their own; NOT_KNOWN is always the second."""
    there = {item.address for item in known(connection)}
    found = []
    for text in (one, other):
        address = address_of(ServerId.read(text.strip()).address)
        if address not in (NOT_KNOWN, *there) and not re.match("https?://[^/]", address):
            raise StoreError(
                f"'{text}' is no address and no server of this record. Give a base URL, or what "
                "`cimemories same-server` lists."
            )
        found.append(address)
    first, second = sorted(found, key=lambda address: (address == NOT_KNOWN, address))
    return first, second


@dataclass(frozen=True)
class Same:
    """Who else may answer for a server. servers: their texts; before: addresses at which answers of servers that are
    not known count as its own."""

    servers: tuple[str, ...] = ()
    before: frozenset[str] = frozenset()


def same(connection: sa.Connection, text: str) -> Same:
    """What a person said to be the same server as this one, through others too. Of another address only servers count
    that report no other root or revision of the model."""
    said = ties(connection)
    if not said:
        return Same()
    mine = ServerId.read(text)
    addresses, grown = {mine.address}, True
    while grown:
        new = {
            end
            for item in said
            if item.second != NOT_KNOWN and {item.first, item.second} & addresses
            for end in (item.first, item.second)
        }
        grown = not new <= addresses
        addresses |= new
    others = (item for item in known(connection) if item.address in addresses - {mine.address} and item.may_be(mine))
    known_before = any(item.second == NOT_KNOWN and item.first in addresses for item in said)
    return Same(tuple(item.text for item in others), frozenset(addresses) if known_before else frozenset())

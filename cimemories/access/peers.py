"""The user at the other end of a connection within this machine, as the Linux kernel shows in /proc/net/tcp.

Both ends of a loopback connection are sockets of this machine, so the kernel lists the client's own socket with the
user who opened it:

    sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
     5: 0100007F:C350 0100007F:2135 01 00000000:00000000 00:00000000 00000000  1000        0 123456 1 ...

Nothing is cached: uvicorn gives an ASGI application nothing to identify a connection by but its two addresses, and the
port of a closed one may belong to another person's connection a moment later. One lookup takes 1 ms (the kernel walks a
table of 262,144 buckets), and a page needs a handful: once loaded, it uses one WebSocket.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import sys
from pathlib import Path
from typing import TypeAlias

Address: TypeAlias = tuple[str, int]
IP: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

PROC = Path("/proc")
ESTABLISHED = b"01"
STATE, UID, INODE = 3, 7, 9  # fields of a row
ATTEMPTS = 3  # the kernel hands the table out a page at a time and can skip a row that moves meanwhile
ALL_USERS = ["0", "0", "4294967295"]
HELD_SOCKET = "CIMEMORIES_HELD_SOCKET"  # number of the descriptor that holds [::1]:port over an exec
NO_IPV6 = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})


def hold_ipv6(port: int) -> socket.socket | None:
    """Return a socket that keeps other users from opening [::1]:port while the app listens on 127.0.0.1 alone: browsers
    try ::1 first for "localhost", and a program that answered there would get the token. Nothing listens on it.

    The socket that `cimemories app` held before its exec is taken over. None on a machine without IPv6. Raises OSError
    where another program has the port.
    """
    number = os.environ.pop(HELD_SOCKET, "")
    if number.isascii() and number.isdigit():
        try:
            inherited = socket.socket(fileno=int(number))
        except OSError:
            inherited = None  # closed since: the port is reserved again
        if inherited is not None:
            if inherited.family == socket.AF_INET6 and inherited.getsockname()[:2] == ("::1", port):
                os.set_inheritable(inherited.fileno(), False)
                return inherited
            inherited.detach()  # the descriptor belongs to other code by now, and stays open
    try:
        reserved = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    except OSError as error:
        if error.errno in NO_IPV6:
            return None
        raise
    try:
        reserved.bind(("::1", port))  # without SO_REUSEADDR, which would let others bind it too
    except OSError as error:
        reserved.close()
        if error.errno in NO_IPV6:
            return None
        raise
    return reserved


def can_tell() -> bool:
    """Return True if this system lists the owners of connections: Linux with /proc."""
    return os.access(PROC / "net" / "tcp", os.R_OK)


def owner(client: Address | None, server: Address | None) -> int | None:
    """Return the id of the user who opened a loopback connection, or None if it is unknown.

    It is unknown without an address, for one that is not loopback, for a socket that is no longer open for writing (the
    kernel shows those as root's), on other systems than Linux, and for users without a number in this container.
    """
    if client is None or server is None:
        return None
    try:
        source, target = _ip(client[0]), _ip(server[0])
    except ValueError:
        return None
    if not (source.is_loopback and target.is_loopback):
        return None
    # The client's own socket, which has its address first. The row of the app's end has them the other way round, and
    # would name the user who runs the app.
    tables = {"tcp" if source.version == 4 else "tcp6": _row_start(source, client[1], target, server[1])}
    if isinstance(source, ipaddress.IPv4Address) and isinstance(target, ipaddress.IPv4Address):
        # A client may reach an IPv4 address with an IPv6 socket; its row is then in the other table.
        tables["tcp6"] = _row_start(_mapped(source), client[1], _mapped(target), server[1])
    for _ in range(ATTEMPTS):
        for table, row_start in tables.items():
            uids = _owners(table, row_start)
            if uids:
                return uids.pop() if len(uids) == 1 else None  # two users at one pair of addresses: neither is believed
    return None


def _owners(table: str, row_start: bytes) -> set[int | None]:
    try:
        text = (PROC / "net" / table).read_bytes()
    except OSError:
        return set()
    uids: set[int | None] = set()
    position = text.find(row_start)
    while position >= 0:
        begin, end = text.rfind(b"\n", 0, position) + 1, text.find(b"\n", position)
        fields = text[begin : end if end >= 0 else len(text)].split()
        # A socket without an inode was closed by its program, and its row says uid 0 for any user.
        if len(fields) > INODE and fields[STATE] == ESTABLISHED and fields[INODE] != b"0":
            uids.add(_user(int(fields[UID])))
        position = text.find(row_start, position + 1)
    return uids


def _user(uid: int) -> int | None:
    """Return the user, or None for the number of all users whom a container does not map."""
    try:
        mapped = (PROC / "self" / "uid_map").read_text().split()
        overflow = int((PROC / "sys" / "kernel" / "overflowuid").read_text())
    except (OSError, ValueError):
        return None
    return None if mapped != ALL_USERS and uid == overflow else uid


def _ip(text: str) -> IP:
    address = ipaddress.ip_address(text)
    return getattr(address, "ipv4_mapped", None) or address


def _mapped(address: ipaddress.IPv4Address) -> ipaddress.IPv6Address:
    return ipaddress.IPv6Address(b"\0" * 10 + b"\xff\xff" + address.packed)


def _row_start(source: IP, source_port: int, target: IP, target_port: int) -> bytes:
    """Format both addresses as in the table: each 32-bit word as a number of this machine's byte order, in hex."""
    ends = []
    for address, port in ((source, source_port), (target, target_port)):
        words = (address.packed[start : start + 4] for start in range(0, len(address.packed), 4))
        digits = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
        ends.append(f"{digits}:{port:04X}")
    return f" {ends[0]} {ends[1]} ".encode()

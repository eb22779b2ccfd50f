"""Starting the app: prepares the workspace, then becomes the Streamlit server, by default on loopback only."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path

from cimemories import demo_parts, installation
from cimemories.access import readonly
from cimemories.access.guard import MODE, Mode
from cimemories.access.peers import HELD_SOCKET, hold_ipv6
from cimemories.cli import output
from cimemories.store.engine import WORKSPACE, StoreError, open_store

HOST = "localhost"


def serve_app(
    port: int,
    workspace: Path,
    *,
    demo_wanted: bool = True,
    mode: Mode = Mode.AUTO,
    address: str = "",
    hosts: Sequence[str] = (),
    read_only: bool = False,
) -> None:
    """Open the workspace (with the demo if it is empty) and hand over to Streamlit, which prints the address.

    address: to listen on, for a container; hosts: names that the app answers to beside localhost; read_only: once the
    demo exists, nothing is written any more (access/readonly.py). Does not return. Raises StoreError if the port is
    taken."""
    reserved = _require_free(port)
    store = open_store(workspace)
    if demo_wanted and demo_parts.is_wanted(store):
        from cimemories import demo

        demo.prepare(store, output.note)
    store.close()
    environment = {**installation.environment(), WORKSPACE: str(workspace.resolve()), MODE: mode}
    environment |= {readonly.READ_ONLY: "1"} if read_only else {}
    environment.pop(HELD_SOCKET, None)
    if reserved is not None:
        os.set_inheritable(reserved.fileno(), True)
        environment[HELD_SOCKET] = str(reserved.fileno())
    output.note("starting the app: its address follows")
    options = ["--server.port", str(port)]
    if address:
        options += ["--server.address", address]
    for host in dict.fromkeys(["localhost", "127.0.0.1", *hosts]) if hosts else ():
        options += ["--server.allowedHosts", host]
    command = installation.python("cimemories.ui.server", str(installation.app_root() / "app.py"), *options)
    os.execvpe(command[0], command, environment)


def _require_free(port: int) -> socket.socket | None:
    """Check that the port is free, and reserve it on ::1; the socket must be kept over the exec. None without IPv6.

    Without this check Streamlit moves on to the next port by itself, and the printed address is wrong. Raises
    StoreError if another program has the port on either address."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
        return hold_ipv6(port)
    except OSError as error:
        raise StoreError(
            f"port {port} on {HOST} cannot be used ({error.strerror}). Choose another: cimemories app --port 8600"
        ) from error

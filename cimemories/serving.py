"""Starting the app: prepares the workspace, then becomes the Streamlit server, on loopback only."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from cimemories import demo
from cimemories.access.guard import MODE, Mode
from cimemories.access.peers import HELD_SOCKET, hold_ipv6
from cimemories.cli import output
from cimemories.store.engine import WORKSPACE, StoreError, open_store

ROOT = Path(__file__).resolve().parent.parent
HOST = "localhost"


def serve_app(port: int, workspace: Path, *, demo_wanted: bool = True, mode: Mode = Mode.AUTO) -> None:
    """Open the workspace (with the demo where it is empty) and hand over to Streamlit, which prints the address.

    Does not return. Raises StoreError where the port is taken or app.py is not where it should be.
    """
    page = ROOT / "app.py"
    if not page.exists():
        raise StoreError(f"{page} is missing: the app runs from a checkout of the project, not from a wheel.")
    reserved = _require_free(port)
    store = open_store(workspace)
    if demo_wanted and demo.is_wanted(store):
        demo.prepare(store, output.note)
    store.close()
    environment = {**os.environ, WORKSPACE: str(workspace.resolve()), MODE: mode}
    environment.pop(HELD_SOCKET, None)
    if reserved is not None:
        os.set_inheritable(reserved.fileno(), True)
        environment[HELD_SOCKET] = str(reserved.fileno())
    output.note("starting the app: its address follows")  # importing what pages need takes seconds
    os.chdir(ROOT)  # Streamlit reads .streamlit/config.toml of the folder it is started in
    command = [sys.executable, "-m", "cimemories.ui.server", str(page), str(port)]
    os.execvpe(command[0], command, environment)


def _require_free(port: int) -> socket.socket | None:
    """Check that the port is free, and reserve it on ::1 from here on: the socket is to be kept over the exec.

    Without this check Streamlit moves on to the next port by itself, and the printed address is wrong. None without
    IPv6. Raises StoreError where another program has the port on either address.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
        return hold_ipv6(port)
    except OSError as error:
        raise StoreError(
            f"port {port} on {HOST} cannot be used ({error.strerror}). Choose another: make app PORT=8600"
        ) from error

"""Starting the app: prepares the workspace, then becomes the Streamlit server, on loopback only."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from cimemories import demo
from cimemories.access.guard import MODE, Mode
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
    _require_free(port)
    store = open_store(workspace)
    if demo_wanted and demo.is_wanted(store):
        demo.prepare(store, output.note)
    store.close()
    environment = {**os.environ, WORKSPACE: str(workspace.resolve()), MODE: mode}
    os.chdir(ROOT)  # Streamlit reads .streamlit/config.toml of the folder it is started in
    command = [sys.executable, "-m", "cimemories.ui.server", str(page), str(port)]
    os.execvpe(command[0], command, environment)


def _require_free(port: int) -> None:
    """Streamlit moves on to the next port by itself, and the printed address would be wrong."""
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port))
        except OSError as error:
            if family == socket.AF_INET6 and error.errno in (97, 99):
                continue  # a machine without IPv6
            raise StoreError(
                f"port {port} on {HOST} cannot be used ({error.strerror}). Choose another: make app PORT=8600"
            ) from error

"""`python -m cimemories.ui.server PAGE PORT`: Streamlit serving the app, behind the guard of cimemories.access.

Streamlit takes a folder named `pages` beside the main script for its older kind of multipage app until the first
session has called st.navigation. A deep link as the first request to a fresh server then opens with a "Page not found"
dialog. What st.navigation sets is therefore set before the server starts. The modules that every page needs are also
imported before, or the first visitor would wait for them.
"""

from __future__ import annotations

import atexit
import base64
import gc
import hashlib
import importlib
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import streamlit as st
from starlette.middleware import Middleware
from streamlit import delta_generator, file_util
from streamlit.runtime.pages_manager import PagesManager
from streamlit.web import cli
from streamlit.web.server.starlette.starlette_websocket import is_host_allowed

from cimemories.access.guard import Gate, Guard, Mode, Site
from cimemories.access.peers import hold_ipv6
from cimemories.ui import login, url

# ---- garbage collection


_modules = 0
_rest: list[list[str]] = []  # modules that the pages still need, in a list of their own until a page has been shown
atexit.register(gc.unfreeze)  # or DuckDB complains of everything that was left out when the process ends


def spare_libraries() -> None:
    """Exempt all present objects from later garbage collections; done again only once more modules were imported.

    Streamlit runs a full collection after each run of a page. That took 200 ms of every run (some 260,000 objects,
    nearly all of them functions and classes of libraries), in which the process answers nobody: the next press, or
    another person's page, waited for it.

    Reference counting still frees what it can. Cycles that are garbage now are collected first. A present cycle that
    becomes garbage later stays: a few sessions' worth at most, since modules come only while pages are opened for the
    first time.
    """
    global _modules
    if _rest:
        Thread(target=_import_rest, args=(_rest.pop(),), daemon=True).start()
    # Modules are hardly ever unloaded: their number tells whether a library has come since.
    if len(sys.modules) > _modules:
        _modules = len(sys.modules)
        gc.collect()
        gc.freeze()


def _import_rest(names: list[str]) -> None:
    for name in names:
        importlib.import_module(name)


# ---- server


HEAVY = (
    "pandas",
    "pyarrow",
    "plotly.graph_objects",
    "scipy.stats",
    "cimemories.metrics.headline",
    "cimemories.llm.worker",
    "cimemories.ui.charts",
    "cimemories.compare.difference",
    "cimemories.evaluation.costs",
)


def protected(workspace: Path) -> dict[str, Any]:
    """Arguments for st.App that make `streamlit run app.py` as closed as `cimemories app`: middleware and lifespan."""
    gate = Gate(workspace, Mode.chosen())
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    site = Site(is_host_allowed, login.configured, login.logged_in, _inline_scripts(), f"/{base}" if base else "")

    # At its first element Streamlit looks whether it runs in a REPL, by a stack with the sources of every module: 0.3 s
    # of the first page, for a warning that is none of a server's.
    delta_generator._use_warning_has_been_displayed = True
    # While the first page is read: what the parts of the pages import took up to 0.4 s of each page's first visit.
    pages = Path(__file__).resolve().parents[2] / "pages"
    _rest[:] = [[".".join(("pages", part.parent.name, part.stem)) for part in _parts(pages)]]

    @asynccontextmanager
    async def lifespan(_app: object) -> AsyncIterator[None]:
        port = int(st.get_option("server.port"))
        with _hold_ipv6(port):
            print(announcement(gate, site, port), flush=True)  # noqa: T201
            yield

    return {"middleware": [Middleware(Guard, gate=gate, site=site)], "lifespan": lifespan}


def _parts(pages: Path) -> list[Path]:
    """The files of the pages that are imported, which a page itself is not: it is run."""
    run = {Path(page).stem for page in url.PAGES.values()}
    return [path for path in sorted(pages.glob("*/*.py")) if path.stem not in run]


def announcement(gate: Gate, site: Site, port: int) -> str:
    """What the terminal shows once the app is up: the address to open, and who else may open it."""
    address = f"http://localhost:{port}{site.base}"
    note = f"(workspace {gate.workspace}; stop with Ctrl-C)"
    if site.login_configured():
        return f"CIMemories Studio: {address} {note}. People log in; no token is needed."
    if gate.mode is Mode.ANYONE:
        return (
            f"CIMemories Studio: {address} {note}\n--no-token: everybody who can reach port {port}, including every "
            "user of this machine, can read and change everything in this workspace."
        )
    # Where the system tells who connects, whoever runs the app needs no token, and none is shown.
    query = f"/?token={gate.token}" if gate.asks_everybody else ""
    return f"CIMemories Studio: {address}{query} {note}"


def _hold_ipv6(port: int) -> ExitStack:
    """Hold [::1]:port (access/peers.py) until closed. Ends the process where another program has it: the printed
    address with its token would lead people there."""
    stack = ExitStack()
    address = str(st.get_option("server.address") or "::")
    if address in ("::", "::1"):
        return stack  # the app itself listens there
    try:
        reserved = hold_ipv6(port)
    except OSError as error:
        print(  # noqa: T201
            f"error: port {port} on ::1 cannot be used ({error.strerror}), and browsers would send the token there. "
            "Choose another: --server.port 8600",
            file=sys.stderr,
            flush=True,
        )
        os._exit(1)  # an exception would be logged as a traceback, and the server would go on without its lifespan
    if reserved is not None:
        stack.enter_context(reserved)
    return stack


def _inline_scripts() -> list[str]:
    """The hashes of the scripts in Streamlit's own page, for the policy that forbids all others."""
    page = (Path(file_util.get_static_dir()) / "index.html").read_text(encoding="utf-8")
    # Read from the installed page, so that an upgrade of Streamlit does not lock its own scripts out.
    bodies = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    return ["sha256-" + base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in bodies]


def serve(page: str, port: str) -> None:
    """Serve until stopped; the settings are those of .streamlit/config.toml in the current folder."""
    for module in HEAVY:  # by name, since ui/ imports nothing else of the library
        importlib.import_module(module)
    PagesManager.uses_pages_directory = False
    cli.main(["run", page, "--server.port", port], prog_name="streamlit")


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])

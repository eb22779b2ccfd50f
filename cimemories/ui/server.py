"""`python -m cimemories.ui.server PAGE --server.port PORT`: `streamlit run` of the app, ready for its first visitor.

The modules that every page needs are imported as soon as the server has started: before, they would take four times as
long as all else until the app listens.
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
import traceback
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import streamlit as st
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from streamlit import file_util
from streamlit.web import cli
from streamlit.web.server.starlette.starlette_websocket import is_host_allowed

from cimemories.access import readonly, roles
from cimemories.access.guard import Gate, Guard, Mode, Site
from cimemories.access.peers import hold_ipv6
from cimemories.access.roles import Role
from cimemories.desk.routes import desk_route
from cimemories.installation import app_root
from cimemories.ui import annotator, login, streamlit_patches, url

# ---- garbage collection


_modules = 0
atexit.register(gc.unfreeze)  # or DuckDB complains about all exempted objects when the process ends


def spare_libraries() -> None:
    """Exempt all present objects from later garbage collections; repeated only once more modules were imported.

    Streamlit runs a full collection after each run of a page. That took 200 ms of every run (some 260,000 objects,
    nearly all of them functions and classes of libraries), in which the process answers no request: the next press, or
    another user's page, waited for it.

    Reference counting still frees what it can. Cycles that are garbage now are collected first. A present cycle that
    becomes garbage later stays: a few sessions' worth at most, since modules are imported only while pages are opened
    for the first time."""
    global _modules
    # Modules are hardly ever unloaded: their number tells whether a library was imported since.
    if len(sys.modules) > _modules:
        _modules = len(sys.modules)
        gc.collect()
        gc.freeze()


_libraries = Event()  # set but while the libraries are being imported
_libraries.set()
page_drawn = Event()  # set once the first page is


def wait_for_libraries() -> None:
    """Wait until the modules that every page needs are imported. Two threads that import parts of one library at the
    same time may each get a half of it."""
    _libraries.wait()


def _import_all() -> None:
    """Import the modules that every page needs, and then those of single pages, which took up to a second of a
    first visit.

    Ends the process if a library cannot be imported: no page would open."""
    try:
        for module in HEAVY:  # by name, since ui/ imports nothing else of the library
            importlib.import_module(module)
        spare_libraries()  # else the first visitor would wait for it, at the end of the first run
    except ImportError:
        traceback.print_exc()
        os._exit(1)
    finally:
        _libraries.set()
    page_drawn.wait()  # the imports below would slow it down
    parts = (".".join(("pages", part.parent.name, part.stem)) for part in _parts(app_root() / "pages"))
    for module in (*LATER, *parts):
        importlib.import_module(module)


# ---- read-only


# Buttons that show something else or make a file to download: by key, or by the start of one that ends in ".". The key
# of a new one begins with "show."; login's have none.
READING = ("show.", "agreement.cell.", "bulk.shuffle", "Log in", "Log out")
NO_CHANGE = "Read-only: nothing can be changed or started here."
# The role that a button requires, with a login: by the longest start of its key. Those of READING require none, and
# neither do those that change only the user's view; every other one is a curator's.
LOOKING = (*READING, "leaks.basket.", "leaks.press.", "annotator.", "who.", "Prepare the file")
TAKES = {
    **dict.fromkeys(("bulk.", "decide.", "review.view.", "review.comment.", "review.spread."), Role.ANNOTATOR),
    "judge_audit.update": Role.VIEWER,
    **dict.fromkeys(("run_new.", "run_sweep.", "run_servers.", "runs.", "start."), Role.OPERATOR),
    **dict.fromkeys(("retry.", "resume.", "cancel.", "new.start", "new.discard."), Role.OPERATOR),
    "team.": Role.ADMIN,
    "team.assign.": Role.CURATOR,
}


def takes(name: str) -> Role:
    """Return the role that a button with this key (or label, if it has none) requires."""
    if _named(name, LOOKING):
        return Role.NONE  # a user without access sees no page, and has to log in or out
    starts = [start for start in TAKES if name.startswith(start)]
    return TAKES[max(starts, key=len)] if starts else Role.CURATOR


def _named(name: str, among: Iterable[str]) -> bool:
    return any(name == each or (each.endswith(".") and name.startswith(each)) for each in among)


def _why_disabled(name: str) -> str | None:
    """Return why this button is disabled for the user; None if it works."""
    if readonly.chosen():
        return None if _named(name, READING) else NO_CHANGE
    return login.refusal(takes(name))


def disable_writing() -> None:
    """Disable, from here on, every button and upload that would be refused: in a read-only app all but those in
    READING, so that a new button is disabled until it is added there; with a login, those that require another role
    than the user's. This only serves the display; the store refuses forged presses."""
    streamlit_patches.disable_widgets(_why_disabled)


# ---- server


HEAVY = (
    "pandas",
    "pyarrow",
    "plotly.graph_objects",
    "cimemories.answers.overview",
    "cimemories.llm.worker",
    "cimemories.ui.charts",
    "cimemories.evaluation.costs",
)
LATER = ("scipy.stats",)  # takes a second, and no page needs it to be opened


def protected(workspace: Path) -> dict[str, Any]:
    """Return arguments for st.App that make `streamlit run app.py` as closed as `cimemories app`, and serve the
    desk."""
    streamlit_patches.apply(annotator.keep_sent)
    gate = Gate(workspace, Mode.chosen())
    if readonly.chosen() or login.configured():
        disable_writing()
    roles.ask_by(login.actor)
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    below = f"/{base}" if base else ""
    site = Site(is_host_allowed, login.configured, login.logged_in, _inline_scripts(), below)

    @asynccontextmanager
    async def lifespan(_app: object) -> AsyncIterator[None]:
        port = int(st.get_option("server.port"))
        with _hold_ipv6(port):
            print(announcement(gate, site, port), flush=True)  # noqa: T201
            _libraries.clear()
            # While the first browser loads Streamlit's scripts.
            Thread(target=_import_all, daemon=True).start()
            yield

    def login_of(headers: Headers) -> str:
        return login.browser("; ".join(headers.getlist("cookie")))

    passed = [Middleware(Guard, gate=gate, site=site), Middleware(login.Returning, base=below)]
    return {"middleware": passed, "lifespan": lifespan, "routes": [desk_route(below, login_of)]}


def _parts(pages: Path) -> list[Path]:
    """Return the files of the pages that are imported; a page itself is run instead."""
    run = {Path(page).stem for page in url.PAGES.values()}
    return [path for path in sorted(pages.glob("*/*.py")) if path.stem not in run]


def announcement(gate: Gate, site: Site, port: int) -> str:
    """Return the text of the terminal once the app is up: the address to open, and who else may open it."""
    address = f"http://localhost:{port}{site.base}"
    note = f"(workspace {gate.workspace}; stop with Ctrl-C)"
    if site.login_configured():
        return f"CIMemories Studio: {address} {note}. People log in; no token is needed."
    if gate.mode is Mode.ANYONE:
        can = "read everything" if readonly.chosen() else "read and change everything"
        return (
            f"CIMemories Studio: {address} {note}\n--no-token: all who can reach port {port}, including every "
            f"user of this machine, can {can} in this workspace."
        )
    # If the system identifies the connecting user, the one who runs the app needs no token, and none is shown.
    query = f"/?token={gate.token}" if gate.asks_everybody else ""
    return f"CIMemories Studio: {address}{query} {note}"


def _hold_ipv6(port: int) -> ExitStack:
    """Hold [::1]:port (access/peers.py) until closed. Ends the process if another program has it: the printed address
    with its token would lead people there."""
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
    """Return the hashes of the scripts in Streamlit's own page, for the policy that forbids all others."""
    page = (Path(file_util.get_static_dir()) / "index.html").read_text(encoding="utf-8")
    # Read from the installed page, so that an upgrade of Streamlit does not lock its own scripts out.
    bodies = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    return ["sha256-" + base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in bodies]


def serve(page: str, *options: str) -> None:
    """Serve until stopped. The settings are those of .streamlit/config.toml beside the page, which precede the ones in
    the current folder and the user's home; STREAMLIT_... variables precede all files, and `options` (those of
    `streamlit run`) everything.

    `st.App.run(config=...)` would do without Streamlit's command line, but reads no STREAMLIT_... variables (1.67: only
    the command line does), and loads the settings after app.py was imported, which asks for `server.baseUrlPath`."""
    streamlit_patches.use_navigation()
    streamlit_patches.look_for_no_components()
    cli.main(["run", page, *options], prog_name="streamlit")


if __name__ == "__main__":
    serve(*sys.argv[1:])

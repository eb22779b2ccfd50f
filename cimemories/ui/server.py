"""`python -m cimemories.ui.server PAGE --server.port PORT`: `streamlit run` of the app, ready for its first visitor.

Streamlit takes a folder named `pages` beside the main script for its older kind of multipage app until the first
session has called st.navigation. A deep link as the first request to a fresh server then opens with a "Page not found"
dialog. What st.navigation sets is therefore set before the server starts. The modules that every page needs are
imported as soon as it has: before, they would take four times as long as all else until the app listens.
"""

from __future__ import annotations

import atexit
import base64
import functools
import gc
import hashlib
import importlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from threading import Event, Lock, RLock, Thread, local
from time import monotonic
from typing import Any
from weakref import WeakValueDictionary

import streamlit as st
from starlette.middleware import Middleware
from streamlit import delta_generator, file_util
from streamlit.elements.widgets.button import ButtonMixin
from streamlit.elements.widgets.file_uploader import FileUploaderMixin
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.WidgetStates_pb2 import WidgetStates
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.scriptrunner_utils import script_requests
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData, ScriptRequest, ScriptRequests
from streamlit.runtime.state import SafeSessionState, SessionState
from streamlit.runtime.state.session_state import WStates
from streamlit.web import cli
from streamlit.web.server.starlette.starlette_websocket import is_host_allowed

from cimemories.access import readonly, roles
from cimemories.access.guard import Gate, Guard, Mode, Site
from cimemories.access.peers import hold_ipv6
from cimemories.access.roles import Role
from cimemories.installation import app_root
from cimemories.ui import annotator, login, url

# ---- garbage collection


_modules = 0
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
    # Modules are hardly ever unloaded: their number tells whether a library has come since.
    if len(sys.modules) > _modules:
        _modules = len(sys.modules)
        gc.collect()
        gc.freeze()


_libraries = Event()  # set but while the libraries are being imported
_libraries.set()


def wait_for_libraries() -> None:
    """Wait until what every page needs is imported. Two threads that import parts of one library at the same time may
    each get a half of it."""
    _libraries.wait()


def _import_all() -> None:
    """Import what every page needs, and then what single pages do, which took up to 0.4 s of each one's first visit.

    Ends the process where a library cannot be imported: no page would open.
    """
    try:
        for module in HEAVY:  # by name, since ui/ imports nothing else of the library
            importlib.import_module(module)
        spare_libraries()  # or the first visitor would wait for it, at the end of the first run
    except ImportError:
        traceback.print_exc()
        os._exit(1)
    finally:
        _libraries.set()
    for part in _parts(app_root() / "pages"):
        importlib.import_module(".".join(("pages", part.parent.name, part.stem)))


# ---- read-only


# Buttons that show something else or make a file to download: by key, or by the start of one that ends in "."; login's
# have none.
READING = (
    *("accumulation.again", "agreement.cell.", "bulk.shuffle", "compare.back", "compare.report.make"),
    *(
        "compare.sensitivity.compute",
        "compare.sensitivity.stop",
        "consensus.back",
        "home.evaluate",
        "heatmaps.cell.",
    ),
    *(
        "heatmaps.close",
        "labels.clear",
        "leaks.basket.open.",
        "leaks.clear",
        "leaks.press.j",
        "leaks.press.k",
        "run_new.back",
    ),
    *(
        "profiles.export.prepare",
        "run_new.forward.",
        "run_new.servers",
        "runs.close",
        "runs.export.results",
        "runs.first",
    ),
    *("Log in", "Log out"),
)
NO_CHANGE = "Read-only: nothing can be changed or started here."
# The role that a button takes, where people log in: by the longest start of its key. Those of READING take none, and
# neither do those that change only what the person sees; every other one is a curator's.
LOOKING = (*READING, "leaks.basket.", "leaks.press.", "annotator.", "who.", "Prepare the file")
TAKES = {
    **dict.fromkeys(("bulk.", "decide.", "review.view.", "review.comment.", "review.spread."), Role.ANNOTATOR),
    "judge_audit.update": Role.VIEWER,
    **dict.fromkeys(("run_new.", "run_sweep.", "run_servers.", "runs.", "start."), Role.OPERATOR),
    **dict.fromkeys(("retry.", "resume.", "cancel.", "new.write", "new.cancel.", "new.discard."), Role.OPERATOR),
    "team.": Role.ADMIN,
    "team.assign.": Role.CURATOR,
}


def takes(name: str) -> Role:
    """The role that a button of this key (or label, where it has none) takes."""
    if _named(name, LOOKING):
        return Role.NONE  # whoever is not let in sees no page, and has to log in or out
    starts = [start for start in TAKES if name.startswith(start)]
    return TAKES[max(starts, key=len)] if starts else Role.CURATOR


def _named(name: str, among: Iterable[str]) -> bool:
    return any(name == each or (each.endswith(".") and name.startswith(each)) for each in among)


def _why_disabled(name: str) -> str | None:
    """Why this button is disabled for the person in front of it; None where it works."""
    if readonly.chosen():
        return None if _named(name, READING) else NO_CHANGE
    return login.refusal(takes(name))


def disable_writing() -> None:
    """Disable, from here on, every button and upload that would be refused: in a read-only app all but those in
    READING, so that what is new on a page is disabled until somebody says that it only reads; where people log in,
    those that take another role than theirs. For people; what refuses a forged press is the store.

    All buttons, those of forms too, are drawn by one method of Streamlit's (1.67), which is replaced here: the pages do
    not have to ask for every one of them.
    """
    button, uploader = ButtonMixin._button, FileUploaderMixin._file_uploader

    @functools.wraps(button)
    def look_only(*given: Any, **named: Any) -> bool:
        call = inspect.signature(button).bind(*given, **named)
        name = str(call.arguments["key"] or call.arguments["label"])
        if (why := _why_disabled(name)) is None:
            return button(*given, **named)
        # Without its callback, which a forged press would run.
        call.arguments |= {"disabled": True, "help": why, "on_click": None}
        button(*call.args, **call.kwargs)
        return False

    @functools.wraps(uploader)
    def no_upload(self: Any, *rest: Any, **named: Any) -> Any:
        if (why := _why_disabled(str(named.get("key")))) is None:
            return uploader(self, *rest, **named)
        uploader(self, *rest, **{**named, "disabled": True, "help": why})
        return None

    setattr(ButtonMixin, "_button", look_only)  # noqa: B010
    setattr(FileUploaderMixin, "_file_uploader", no_upload)  # noqa: B010


# ---- messages of the browser


class Clicks:
    """What was clicked in a session and has not reached a run yet. gone: the widgets that the page has had within the
    last minute and no run draws any more, each with the moment at which it went and its value then."""

    def __init__(self) -> None:
        self.gone: dict[str, tuple[float, object]] = {}
        self.lock = RLock()  # held by the run that takes them, until its callbacks are done
        self._arriving = Lock()
        self._waiting: WidgetStates | None = None

    def arrive(self, message: WidgetStates) -> None:
        """Keep what this message of the browser says was clicked."""
        with self._arriving:
            self._waiting = script_requests._coalesce_replay_trigger_states(self._waiting, message)

    def take(self, message: WidgetStates) -> WidgetStates:
        """The message with every click that no run has had yet, and without those that one had: each comes once."""
        with self._arriving:
            waiting, self._waiting = self._waiting, None
        rest = [widget for widget in message.widgets if not script_requests._has_active_trigger_value(widget)]
        both = script_requests._coalesce_widget_states(waiting, WidgetStates(widgets=rest))
        return both or WidgetStates()


# By the state of the session, which lives as long: the session has both.
_clicks: WeakValueDictionary[int, Clicks] = WeakValueDictionary()
_callbacks = local()  # running: whether this thread is at the callbacks of a run


def ignore_left_pages() -> None:
    """Let no part of a page run once another page was asked for.

    What a page sends as it is left may come after the click that leaves it: Streamlit's frontend (1.67) sends a value
    after a timer and a click on a link at once. The server then ran that part after the new page, the frontend took the
    run for a change back to the old one, and removed all that it had drawn but the header. What such a message says is
    not lost: what is recorded is sent again until it is confirmed.
    """
    if hasattr(ScriptRequests._request_rerun_locked, "notes_page"):
        return
    accept, request = ScriptRequests._request_rerun_locked, AppSession.request_rerun

    def request_rerun_locked(self: ScriptRequests, new_data: RerunData) -> bool:
        # Links, st.switch_page and st.rerun all pass here. Empty for the first run, whose page Streamlit looks up.
        if not new_data.fragment_id and not new_data.fragment_id_queue:
            vars(self)["page"] = new_data.page_script_hash
        return accept(self, new_data)

    def request_rerun(self: AppSession, client_state: ClientState | None) -> None:
        if client_state and client_state.fragment_id and self._scriptrunner is not None:
            page = vars(self._scriptrunner._requests).get("page")
            if page and client_state.page_script_hash not in ("", page):
                return
        request(self, client_state)

    request_rerun_locked.notes_page = True  # type: ignore[attr-defined]
    ScriptRequests._request_rerun_locked = request_rerun_locked  # type: ignore[method-assign]
    AppSession.request_rerun = request_rerun  # type: ignore[method-assign]


def keep_clicks() -> None:
    """Let no message of the browser take away the click of the one before it.

    The browser names what was clicked in one message only. Where the next message comes before the callbacks of the run
    for the click are done, Streamlit 1.67 stops that run and forgets its click: a field that is left for a button sends
    a message right after the click's, so on a busy machine about every fourth such click was lost. Here clicks are kept
    as they arrive, the next run that begins gets them, whichever it is, and nothing stops a run at its callbacks.
    """
    if hasattr(AppSession.request_rerun, "keeps_clicks"):
        return
    request = AppSession.request_rerun
    apply = SafeSessionState.on_script_will_rerun
    pending_request = ScriptRequests.on_scriptrunner_yield

    def request_rerun(self: AppSession, client_state: ClientState | None) -> None:
        # Streamlit drops what comes from a fragment that is gone.
        if client_state and (not client_state.fragment_id or self.has_fragment(client_state.fragment_id)):
            clicks: Clicks = vars(self).setdefault("clicks", Clicks())
            _clicks[id(self.session_state)] = clicks
            clicks.arrive(client_state.widget_states)
        request(self, client_state)

    def on_script_will_rerun(self: SafeSessionState, fresh: WidgetStates | None, **rest: Any) -> None:
        clicks = _clicks.get(id(self._state))
        if fresh is None or clicks is None:
            apply(self, fresh, **rest)
            return
        with clicks.lock:  # the run before may still be at its callbacks
            self._yield_callback()  # a run that is ended here has taken nothing
            _callbacks.running = True
            try:
                self._state.on_script_will_rerun(clicks.take(fresh), **rest)
            finally:
                _callbacks.running = False

    def on_scriptrunner_yield(self: ScriptRequests) -> ScriptRequest | None:
        return None if getattr(_callbacks, "running", False) else pending_request(self)

    request_rerun.keeps_clicks = True  # type: ignore[attr-defined]
    AppSession.request_rerun = request_rerun  # type: ignore[method-assign]
    SafeSessionState.on_script_will_rerun = on_script_will_rerun  # type: ignore[assignment,method-assign]
    ScriptRequests.on_scriptrunner_yield = on_scriptrunner_yield  # type: ignore[method-assign]


def keep_fields() -> None:
    """Keep what was typed into the fields of a draft as soon as the browser sends it.

    Streamlit (1.67) ends a run, or never begins it, where another message follows, and a link's message holds no field
    of the page that it leaves. A draft keeps its fields when a run has drawn them: on a busy machine, what was typed
    right before a click on a link was gone.
    """
    if hasattr(AppSession.request_rerun, "keeps_fields"):
        return
    request = AppSession.request_rerun

    def request_rerun(self: AppSession, client_state: ClientState | None) -> None:
        if client_state:
            annotator.keep_sent(self.session_state, client_state.widget_states)
        request(self, client_state)

    request_rerun.keeps_fields = True  # type: ignore[attr-defined]
    AppSession.request_rerun = request_rerun  # type: ignore[method-assign]


GONE_SECONDS = 60.0  # a busy server may be so late with a page


def ignore_gone_widgets() -> None:
    """Let a widget that is no longer drawn call its callback only where a person has changed it.

    Streamlit forgets the value of a widget that a run does not draw, and the browser goes on to send it until it has
    drawn that run to its end. Compared with nothing it is a change (1.67), and its callback ran: whoever followed a
    link to another view and pressed something there at once was taken back, by the tab of the view that was left.
    """
    if hasattr(SessionState._remove_stale_widgets, "notes_values"):
        return
    remove, is_changed = SessionState._remove_stale_widgets, SessionState._widget_changed

    def remove_stale_widgets(self: SessionState, active_widget_ids: frozenset[str]) -> None:
        # Both are replaced, not changed, by what follows.
        old, new = self._old_state, self._new_widget_state.states
        remove(self, active_widget_ids)
        if (clicks := _clicks.get(id(self))) is None:
            return
        about = self._new_widget_state.widget_metadata
        moment = monotonic()
        gone = {name: it for name, it in clicks.gone.items() if moment - it[0] < GONE_SECONDS}
        for name in (old.keys() | new.keys()) - self._old_state.keys() - self._new_widget_state.states.keys():
            # Those of components say themselves what is new.
            if (of := about.get(name)) is not None and of.callback is not None:
                gone[name] = moment, WStates({name: new[name]}, about)[name] if name in new else old[name]
        clicks.gone = gone

    def widget_changed(self: SessionState, widget_id: str) -> bool:
        clicks = _clicks.get(id(self))
        if clicks is None or widget_id in self._old_state or widget_id not in clicks.gone:
            return is_changed(self, widget_id)
        return bool(self._new_widget_state.get(widget_id) != clicks.gone[widget_id][1])

    remove_stale_widgets.notes_values = True  # type: ignore[attr-defined]
    SessionState._remove_stale_widgets = remove_stale_widgets  # type: ignore[method-assign]
    SessionState._widget_changed = widget_changed  # type: ignore[method-assign]


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
    keep_clicks()
    ignore_left_pages()  # after it: what is ignored leaves no click either
    keep_fields()  # after both: what was typed is kept even so
    ignore_gone_widgets()
    gate = Gate(workspace, Mode.chosen())
    if readonly.chosen() or login.configured():
        disable_writing()
    roles.ask_by(login.actor)
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    below = f"/{base}" if base else ""
    site = Site(is_host_allowed, login.configured, login.logged_in, _inline_scripts(), below)

    # At its first element Streamlit looks whether it runs in a REPL, by a stack with the sources of every module: 0.3 s
    # of the first page, for a warning that is none of a server's.
    delta_generator._use_warning_has_been_displayed = True

    @asynccontextmanager
    async def lifespan(_app: object) -> AsyncIterator[None]:
        port = int(st.get_option("server.port"))
        with _hold_ipv6(port):
            print(announcement(gate, site, port), flush=True)  # noqa: T201
            _libraries.clear()
            # While the first browser loads Streamlit's scripts.
            Thread(target=_import_all, daemon=True).start()
            yield

    passed = [Middleware(Guard, gate=gate, site=site), Middleware(login.Returning, base=below)]
    return {"middleware": passed, "lifespan": lifespan}


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
        can = "read everything" if readonly.chosen() else "read and change everything"
        return (
            f"CIMemories Studio: {address} {note}\n--no-token: everybody who can reach port {port}, including every "
            f"user of this machine, can {can} in this workspace."
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


def serve(page: str, *options: str) -> None:
    """Serve until stopped. The settings are those of .streamlit/config.toml beside the page, which go before the ones
    in the current folder and the user's home; STREAMLIT_... variables go before all files, and `options` (those of
    `streamlit run`) before everything.

    `st.App.run(config=...)` would do without Streamlit's command line, but reads no STREAMLIT_... variables (1.67: only
    the command line does), and loads the settings after app.py was imported, which asks for `server.baseUrlPath`.
    """
    PagesManager.uses_pages_directory = False
    cli.main(["run", page, *options], prog_name="streamlit")


if __name__ == "__main__":
    serve(*sys.argv[1:])

"""Every place where the app changes or reads private parts of Streamlit, for Streamlit 1.67 (pyproject.toml).

Each says what goes wrong without it and names the upstream issue, if there is one. Without any of them a test fails:
tests/ui/test_patches.py, for `disable_widgets` tests/pages/start/test_read_only.py, for `is_shown`
tests/pages/start/test_fields.py. With a new version of Streamlit, take each out first and run these."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from threading import Lock, RLock, local
from time import monotonic
from typing import Any
from weakref import WeakValueDictionary

from streamlit import delta_generator
from streamlit.components.v2 import manifest_scanner
from streamlit.elements.widgets.button import ButtonMixin
from streamlit.elements.widgets.file_uploader import FileUploaderMixin
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.WidgetStates_pb2 import WidgetStates
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.scriptrunner_utils import script_requests
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData, ScriptRequest, ScriptRequests
from streamlit.runtime.state import SafeSessionState, SessionState, get_session_state
from streamlit.runtime.state.session_state import Serialized, WStates

GONE_SECONDS = 60.0  # how long a browser may go on to send widgets that are drawn no more


class Clicks:
    """The clicks of a session that no run has had yet. gone: the widgets that the page had within the last minute and
    that no run draws any more, each with the time at which it went and its value then."""

    def __init__(self) -> None:
        self.gone: dict[str, tuple[float, object]] = {}
        self.lock = RLock()  # held by the run that takes them, until its callbacks are done
        self._arriving = Lock()
        self._waiting: WidgetStates | None = None

    def arrive(self, message: WidgetStates) -> None:
        """Keep the clicks in a message of the browser."""
        with self._arriving:
            self._waiting = script_requests._coalesce_replay_trigger_states(self._waiting, message)

    def take(self, message: WidgetStates) -> WidgetStates:
        """Return the message with every click that no run has had yet, and without those that one had."""
        with self._arriving:
            waiting, self._waiting = self._waiting, None
        rest = [widget for widget in message.widgets if not script_requests._has_active_trigger_value(widget)]
        both = script_requests._coalesce_widget_states(waiting, WidgetStates(widgets=rest))
        return both or WidgetStates()


# By the state of the session, which lives as long: the session has both.
_clicks: WeakValueDictionary[int, Clicks] = WeakValueDictionary()
_callbacks = local()  # running: whether this thread is at the callbacks of a run


def apply(keep: Callable[[SessionState, WidgetStates], None]) -> None:
    """Apply all patches of the server, once. keep: is given the widgets of every message of the browser."""
    receive_messages(keep)
    ignore_gone_widgets()
    # At its first element Streamlit looks whether it runs in a REPL, by a stack with the sources of every module: 0.3 s
    # of the first page, for a warning that is none of a server's. No issue is open.
    delta_generator._use_warning_has_been_displayed = True


def use_navigation() -> None:
    """Let Streamlit take pages from st.navigation alone, before the first session has called it.

    Until then Streamlit takes a folder `pages` beside the main script for its older kind of app, and a link to a page
    as the first request opens "Page not found" (streamlit/streamlit#8860).
    """
    PagesManager.uses_pages_directory = False


def look_for_no_components() -> None:
    """Start without reading the metadata of every installed package in search of components: 0.4 s of the processor.
    The app's own components are registered by its pages. No issue is open."""
    manifest_scanner.scan_component_manifests = lambda max_workers=None: []


def receive_messages(keep: Callable[[SessionState, WidgetStates], None]) -> None:
    """Let no message of the browser get lost, and no message of a page take effect that the user is leaving.

    - `keep` gets the widgets of every message. Streamlit ends a run, or never starts it, if another message follows,
      and a link's message has no field of the page that it leaves (streamlit/streamlit#10169).
    - Clicks go to the next run that starts, whichever it is, and nothing stops a run at its callbacks. The browser
      names a click in one message only; if the next one comes before the callbacks of its run are done, Streamlit
      stops that run and forgets the click (streamlit/streamlit#8365). A field that is left for a button sends a message
      right after the click's: on a busy machine every fourth such click was lost.
    - A fragment does not run once another page was asked for. Its message may come after the click on a link: Streamlit
      ran it after the new page, the browser took that for a change back, and removed the new page
      (streamlit/streamlit#9617 stops timers alone).
    """
    if hasattr(AppSession.request_rerun, "patched"):
        return
    request, accept = AppSession.request_rerun, ScriptRequests._request_rerun_locked
    begin, interrupt = SafeSessionState.on_script_will_rerun, ScriptRequests.on_scriptrunner_yield

    def request_rerun_locked(self: ScriptRequests, new_data: RerunData) -> bool:
        # Links, st.switch_page and st.rerun all pass here. Empty for the first run, whose page Streamlit looks up.
        if not new_data.fragment_id and not new_data.fragment_id_queue:
            vars(self)["page"] = new_data.page_script_hash
        return accept(self, new_data)

    def request_rerun(self: AppSession, client_state: ClientState | None) -> None:
        if client_state:
            keep(self.session_state, client_state.widget_states)
            if client_state.fragment_id:
                page = vars(self._scriptrunner._requests).get("page") if self._scriptrunner else None
                if page and client_state.page_script_hash not in ("", page):
                    return
            # Streamlit drops messages of a fragment that is gone.
            if not client_state.fragment_id or self.has_fragment(client_state.fragment_id):
                clicks: Clicks = vars(self).setdefault("clicks", Clicks())
                _clicks[id(self.session_state)] = clicks
                clicks.arrive(client_state.widget_states)
        request(self, client_state)

    def on_script_will_rerun(self: SafeSessionState, fresh: WidgetStates | None, **rest: Any) -> None:
        clicks = _clicks.get(id(self._state))
        if fresh is None or clicks is None:
            begin(self, fresh, **rest)
            return
        with clicks.lock:  # the run before may still be at its callbacks
            self._yield_callback()  # a run that is ended here has taken nothing
            _callbacks.running = True
            try:
                self._state.on_script_will_rerun(clicks.take(fresh), **rest)
            finally:
                _callbacks.running = False

    def on_scriptrunner_yield(self: ScriptRequests) -> ScriptRequest | None:
        return None if getattr(_callbacks, "running", False) else interrupt(self)

    request_rerun.patched = True  # type: ignore[attr-defined]
    AppSession.request_rerun = request_rerun  # type: ignore[method-assign]
    ScriptRequests._request_rerun_locked = request_rerun_locked  # type: ignore[method-assign]
    SafeSessionState.on_script_will_rerun = on_script_will_rerun  # type: ignore[assignment,method-assign]
    ScriptRequests.on_scriptrunner_yield = on_scriptrunner_yield  # type: ignore[method-assign]


def ignore_gone_widgets() -> None:
    """Let a widget that is no longer drawn call its callback only if the user has changed it.

    Streamlit forgets the value of a widget that a run does not draw, and the browser goes on sending it until it has
    drawn that run to its end. Compared with nothing it is a change, and its callback ran: a user who followed a link to
    another view and pressed something there at once was taken back, by the tab of the view that was left. The symptom
    is that of streamlit/streamlit#8827, which was closed for another cause."""
    if hasattr(SessionState._remove_stale_widgets, "patched"):
        return
    remove, is_changed = SessionState._remove_stale_widgets, SessionState._widget_changed

    def remove_stale_widgets(self: SessionState, active_widget_ids: frozenset[str]) -> None:
        # The code below replaces both and does not change them.
        old, new = self._old_state, self._new_widget_state.states
        remove(self, active_widget_ids)
        if (clicks := _clicks.get(id(self))) is None:
            return
        about = self._new_widget_state.widget_metadata
        moment = monotonic()
        gone = {name: it for name, it in clicks.gone.items() if moment - it[0] < GONE_SECONDS}
        for name in (old.keys() | new.keys()) - self._old_state.keys() - self._new_widget_state.states.keys():
            # Components detect changes themselves.
            if (of := about.get(name)) is not None and of.callback is not None:
                gone[name] = moment, WStates({name: new[name]}, about)[name] if name in new else old[name]
        clicks.gone = gone

    def widget_changed(self: SessionState, widget_id: str) -> bool:
        clicks = _clicks.get(id(self))
        if clicks is None or widget_id in self._old_state or widget_id not in clicks.gone:
            return is_changed(self, widget_id)
        return bool(self._new_widget_state.get(widget_id) != clicks.gone[widget_id][1])

    remove_stale_widgets.patched = True  # type: ignore[attr-defined]
    SessionState._remove_stale_widgets = remove_stale_widgets  # type: ignore[method-assign]
    SessionState._widget_changed = widget_changed  # type: ignore[method-assign]


def disable_widgets(why: Callable[[str], str | None]) -> None:
    """Disable buttons and uploads. why: given the key of one, or its label, returns why it is disabled, or None.

    All buttons, those of forms too, are drawn by one private method. No issue is open: Streamlit has no hook for it.
    """
    button, uploader = ButtonMixin._button, FileUploaderMixin._file_uploader

    @functools.wraps(button)
    def draw_button(*given: Any, **named: Any) -> bool:
        call = inspect.signature(button).bind(*given, **named)
        if (reason := why(str(call.arguments["key"] or call.arguments["label"]))) is None:
            return button(*given, **named)
        # Without its callback, which a forged press would run.
        call.arguments |= {"disabled": True, "help": reason, "on_click": None}
        button(*call.args, **call.kwargs)
        return False

    @functools.wraps(uploader)
    def draw_uploader(self: Any, *rest: Any, **named: Any) -> Any:
        if (reason := why(str(named.get("key")))) is None:
            return uploader(self, *rest, **named)
        uploader(self, *rest, **{**named, "disabled": True, "help": reason})
        return None

    setattr(ButtonMixin, "_button", draw_button)  # noqa: B010
    setattr(FileUploaderMixin, "_file_uploader", draw_uploader)  # noqa: B010


# ---- reading what is private


def sent_values(state: SessionState, message: WidgetStates) -> Iterator[tuple[str | None, bytes, Callable[[], object]]]:
    """Yield the key of each widget of a message that some run has drawn, its bytes, and a function that returns its
    value."""
    keys, about = state._key_id_mapper.id_key_mapping, state._new_widget_state.widget_metadata
    for widget in message.widgets:
        if widget.id in about:
            read = functools.partial(WStates({widget.id: Serialized(widget)}, about).__getitem__, widget.id)
            yield keys.get(widget.id), widget.SerializeToString(), read


def is_shown(key: str) -> bool:
    """Return whether the browser reports the session's value for the widget of this key.

    Only this run's message tells: a value of an earlier run may never have reached the browser, if st.rerun followed at
    once. Streamlit sends an unchanged value that is set once more, over what the user has typed since
    (streamlit/streamlit#678 is the same with `value=`)."""
    state = get_session_state()._state
    widget_id = state._key_id_mapper.get_id_from_key(key)
    return widget_id is not None and widget_id in state._new_widget_state and key not in state._new_session_state

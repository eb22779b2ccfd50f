"""What the browser sends reaches the run that it is for: a click one run and no other, whatever comes right after it
and whichever run is ended then; what a page sends as it is left, none; what a view still sends of itself once another
one is drawn changes nothing."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit import delta_generator, env_util
from streamlit.components.v2 import manifest_scanner
from streamlit.components.v2.component_manager import BidiComponentManager
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.scriptrunner import StopException
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData, ScriptRequests
from streamlit.runtime.scriptrunner_utils.script_run_context import ThreadState
from streamlit.runtime.state import SafeSessionState, SessionState, session_state, session_state_proxy
from streamlit.runtime.state.common import WidgetMetadata

from cimemories.ui import annotator, streamlit_patches
from cimemories.ui.annotator import Draft

ROOT = Path(__file__).resolve().parents[2]
CLICK = WidgetState(id="button", trigger_value=True)
OTHER = WidgetState(id="other", trigger_value=True)


def sent(*widgets: WidgetState) -> WidgetStates:
    return WidgetStates(widgets=widgets)


def typed(text: str) -> WidgetState:
    return WidgetState(id="field", string_value=text)


class State:
    """The state of a session: keeps what a run gives it."""

    given: WidgetStates

    def __contains__(self, _key: str) -> bool:
        return False

    def on_script_will_rerun(self, message: WidgetStates, **_rest: object) -> None:
        self.given = message


class Session:
    """A session whose runs a test starts: `arrive` is a message of the browser, `run` the run for it."""

    _scriptrunner = None

    def __init__(self) -> None:
        self.session_state = State()

    def has_fragment(self, fragment: str) -> bool:
        return fragment == "there"

    def arrive(self, *widgets: WidgetState, fragment: str = "") -> WidgetStates:
        state = ClientState(widget_states=sent(*widgets), fragment_id=fragment)
        AppSession.request_rerun(self, state)  # type: ignore[arg-type]
        return state.widget_states

    def run(self, message: WidgetStates, *, ended: bool = False) -> dict[str, object]:
        """The values that the run gets, by widget; none where it is ended before."""

        def stop() -> None:
            if ended:
                raise StopException

        try:
            SafeSessionState(self.session_state, stop).on_script_will_rerun(message)  # type: ignore[arg-type]
        except StopException:
            return {}
        return {item.id: getattr(item, str(item.WhichOneof("value"))) for item in self.session_state.given.widgets}


def receive(patch: pytest.MonkeyPatch, request: Callable[[Any, ClientState], None]) -> None:
    """Apply the patch to sessions whose requests go to `request`, until the end of the test."""
    patch.setattr(AppSession, "request_rerun", request)
    for owner, name in (
        (ScriptRequests, "_request_rerun_locked"),
        (ScriptRequests, "on_scriptrunner_yield"),
        (SafeSessionState, "on_script_will_rerun"),
    ):
        patch.setattr(owner, name, getattr(owner, name))
    streamlit_patches.receive_messages(annotator.keep_sent)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    receive(monkeypatch, lambda _session, _state: None)
    return Session()


def test_the_click_of_a_run_that_is_ended_before_it_begins_goes_to_the_next_one(session: Session) -> None:
    first = session.arrive(typed("Gra"), CLICK)
    assert session.run(first, ended=True) == {}
    second = session.arrive(typed("Grace"))
    assert session.run(second) == {"field": "Grace", "button": True}
    assert session.run(session.arrive(typed("Grace"))) == {"field": "Grace"}, "once"


def test_the_clicks_of_two_runs_that_are_ended_are_both_kept(session: Session) -> None:
    assert session.run(session.arrive(CLICK), ended=True) == {}
    assert session.run(session.arrive(OTHER), ended=True) == {}
    assert session.run(session.arrive(typed("Grace"))) == {"field": "Grace", "button": True, "other": True}


def test_a_click_that_an_earlier_run_has_had_does_not_come_again_in_its_own(session: Session) -> None:
    first = session.arrive(CLICK)
    second = session.arrive(OTHER)  # while the run for the first begins
    assert session.run(first) == {"button": True, "other": True}
    assert session.run(second) == {}


def test_of_two_values_that_one_component_sends_the_newer_one_counts(session: Session) -> None:
    def moved(place: int) -> WidgetState:
        return WidgetState(id="matrix", json_trigger_value=f'[{{"event": "chosen", "value": {place}}}]')

    session.run(session.arrive(moved(1)), ended=True)
    assert session.run(session.arrive(moved(2))) == {"matrix": moved(2).json_trigger_value}


def test_what_comes_from_a_part_of_the_page_that_is_gone_is_dropped(session: Session) -> None:
    session.arrive(CLICK, fragment="gone")
    session.arrive(OTHER, fragment="there")
    assert session.run(session.arrive(typed("Grace"))) == {"field": "Grace", "other": True}


def test_a_state_without_a_browser_gets_its_messages_as_they_are(session: Session) -> None:
    assert session.run(sent(CLICK)) == {"button": True}


def test_it_is_done_once(session: Session) -> None:
    before: Callable[..., None] = AppSession.request_rerun
    streamlit_patches.receive_messages(lambda _state, _message: None)
    assert AppSession.request_rerun is before


class View:
    """The state of a session whose page has a choice in one of its views; `chosen` is what its callback was told."""

    TAB = "$$ID-0-tab"

    def __init__(self) -> None:
        self.chosen: list[str] = []
        self.state = SessionState()
        self.clicks = streamlit_patches._clicks.setdefault(id(self.state), streamlit_patches.Clicks())

    def run(self, *widgets: WidgetState, draws: bool) -> None:
        """A run for a message of the browser, which draws the choice or not."""
        ThreadState.initialize()
        self.state.on_script_will_rerun(sent(*widgets))
        if draws:
            self.state._new_widget_state.set_widget_metadata(
                WidgetMetadata(
                    self.TAB, lambda text: text, lambda text: text, "string_value", lambda: self.chosen.append(self.tab)
                )
            )
            if self.TAB not in self.state:
                self.state._new_widget_state.set_from_value(self.TAB, "queue")
        self.state.on_script_finished(frozenset({self.TAB} if draws else ()))

    @property
    def tab(self) -> str:
        return str(self.state._new_widget_state[self.TAB])

    def sends(self, tab: str) -> WidgetState:
        return WidgetState(id=self.TAB, string_value=tab)


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> View:
    monkeypatch.setattr(SessionState, "_remove_stale_widgets", SessionState._remove_stale_widgets)
    monkeypatch.setattr(SessionState, "_widget_changed", SessionState._widget_changed)
    context = SimpleNamespace(page_script_hash="review", fragment_ids_this_run=None, script_requests=None)
    monkeypatch.setattr(session_state, "get_script_run_ctx", lambda: context)
    streamlit_patches.ignore_gone_widgets()
    view = View()
    view.run(draws=True)
    view.run(view.sends("overlap"), draws=True)
    assert view.chosen == ["overlap"]
    view.run(draws=False)  # a link led to another view
    return view


def test_what_a_view_that_was_left_still_shows_is_no_choice(view: View) -> None:
    view.run(view.sends("overlap"), CLICK, draws=False)
    view.run(view.sends("overlap"), draws=False)
    assert view.chosen == ["overlap"]


def test_a_choice_made_in_a_view_that_is_being_left_counts(view: View) -> None:
    view.run(view.sends("guideline"), draws=False)
    assert view.chosen == ["overlap", "guideline"]


def test_a_view_that_comes_again_hears_of_every_choice(view: View) -> None:
    view.run(draws=True)
    view.run(view.sends("overlap"), draws=True)
    view.run(view.sends("guideline"), draws=True)
    assert view.chosen == ["overlap", "overlap", "guideline"]


def test_what_went_long_ago_is_forgotten(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    late = streamlit_patches.monotonic() + streamlit_patches.GONE_SECONDS
    monkeypatch.setattr(streamlit_patches, "monotonic", lambda: late)
    view.run(draws=False)
    assert not view.clicks.gone


class Left:
    """A session whose run was asked for a page; keeps what other requests reach it."""

    def __init__(self, target: str) -> None:
        self.session_state = State()
        self.reached: list[str] = []
        self._scriptrunner = SimpleNamespace(_requests=ScriptRequests())
        self.ask(target)

    def ask(self, page: str) -> None:
        assert self._scriptrunner._requests.request_rerun(RerunData(page_script_hash=page))

    def has_fragment(self, _fragment: str) -> bool:
        return True

    def arrive(self, page: str, fragment: str = "part") -> None:
        state = ClientState(page_script_hash=page, fragment_id=fragment)
        AppSession.request_rerun(self, state)  # type: ignore[arg-type]


@pytest.fixture
def _only_present_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    def reach(session: Left, state: ClientState) -> None:
        session.reached.append(state.page_script_hash)

    receive(monkeypatch, reach)


@pytest.mark.usefixtures("_only_present_pages")
def test_a_part_of_a_page_runs_only_until_another_page_is_asked_for() -> None:
    session = Left("review")
    session.arrive("review")
    session.ask("home")  # as st.switch_page does; a link starts a run of its own
    session.arrive("review")
    session.arrive("home")
    session.arrive("review", fragment="")  # Back: a whole page
    assert session.reached == ["review", "home", "review"]


@pytest.mark.usefixtures("_only_present_pages")
def test_a_part_of_a_page_runs_where_the_first_run_was_asked_for_none() -> None:
    session = Left("")
    session.arrive("review")
    assert session.reached == ["review"]


class Form:
    """A session in front of a draft with one field, none of whose runs gets anywhere."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.session_state = SessionState()
        self._scriptrunner = SimpleNamespace(_requests=ScriptRequests())
        safe = SafeSessionState(self.session_state, lambda: None)
        patch.setattr(session_state_proxy, "get_session_state", lambda: safe)
        self.draw()

    def draw(self) -> None:
        about = WidgetMetadata("field", lambda text: text, lambda text: text, "string_value")
        self.session_state._set_widget_metadata(about)
        self.session_state._set_key_widget_mapping("field", Draft("run").key("address", "http://localhost"))

    def has_fragment(self, _fragment: str) -> bool:
        return True

    def arrive(self, *widgets: WidgetState, page: str = "", fragment: str = "") -> None:
        state = ClientState(widget_states=sent(*widgets), page_script_hash=page, fragment_id=fragment)
        AppSession.request_rerun(self, state)  # type: ignore[arg-type]

    @property
    def kept(self) -> object:
        """What the form shows when the person comes back to it."""
        return Draft("run").get("address")


@pytest.fixture
def form(monkeypatch: pytest.MonkeyPatch) -> Form:
    receive(monkeypatch, lambda _session, _state: None)
    return Form(monkeypatch)


def test_what_was_typed_right_before_a_link_is_kept(form: Form) -> None:
    form.arrive(typed("http://gpu:8000/v1"))
    form.arrive(page="home")
    assert form.kept == "http://gpu:8000/v1"


def test_what_a_page_sends_as_it_is_left_is_kept(form: Form) -> None:
    assert form._scriptrunner._requests.request_rerun(RerunData(page_script_hash="home"))
    form.arrive(typed("http://gpu:8000/v1"), page="runs", fragment="part")
    assert form.kept == "http://gpu:8000/v1"


def test_a_draft_is_not_filled_again_with_what_was_typed_before_it_was_cleared(form: Form) -> None:
    form.arrive(typed("http://gpu:8000/v1"))
    Draft("run").clear()
    form.draw()
    form.arrive(typed("http://gpu:8000/v1"), CLICK)
    assert form.kept is None
    form.arrive(typed("http://cpu:8000/v1"))
    assert form.kept == "http://cpu:8000/v1"


def test_the_first_session_finds_the_pages_of_st_navigation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PagesManager, "uses_pages_directory", None)
    streamlit_patches.use_navigation()
    PagesManager(str(ROOT / "app.py"))
    assert PagesManager.uses_pages_directory is False


def test_the_server_starts_without_reading_the_metadata_of_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_scanner, "scan_component_manifests", manifest_scanner.scan_component_manifests)
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: pytest.fail("reads metadata"))
    streamlit_patches.look_for_no_components()
    BidiComponentManager().discover_and_register_components(start_file_watching=False)
    assert manifest_scanner.scan_component_manifests() == []


def test_the_first_element_reads_no_sources_of_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_generator, "_use_warning_has_been_displayed", False)
    monkeypatch.setattr(env_util, "is_repl", lambda: pytest.fail("looks for a REPL"))
    monkeypatch.setattr(streamlit_patches, "receive_messages", lambda _keep: None)
    monkeypatch.setattr(streamlit_patches, "ignore_gone_widgets", lambda: None)
    streamlit_patches.apply(annotator.keep_sent)
    delta_generator._maybe_print_use_warning()


def test_a_session_without_a_draft_keeps_nothing(form: Form) -> None:
    form.session_state.clear()
    form.arrive(typed("Grace"))
    assert len(form.session_state) == 0

"""The servers panel of the Runs page, on a page of its own, with a program that behaves as vLLM does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fake_vllm
import pytest
from paging import button, page_html
from serving import free_port
from streamlit.testing.v1 import AppTest

from cimemories.llm import vllm, vllm_server
from cimemories.llm.vllm_server import Phase
from cimemories.store import calls
from cimemories.store.engine import WORKSPACE, open_store
from cimemories.ui import annotator
from pages.evaluate import run_servers as evaluate_run_servers

SOON = 20.0


def script() -> None:
    """The page: what a tab of the Runs page shows."""
    from cimemories.store.engine import shared_store
    from pages.evaluate import run_servers as evaluate_run_servers

    evaluate_run_servers.draw(shared_store())


@pytest.fixture
def panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[AppTest, Path]]:
    folder = tmp_path / "workspace"
    monkeypatch.setenv(WORKSPACE, str(folder))
    monkeypatch.setenv(vllm.VLLM, str(fake_vllm.install(tmp_path / "env")))
    yield AppTest.from_function(script, default_timeout=30), folder
    for state in vllm_server.servers(folder):
        vllm_server.stop(folder, state.id)


def until(app: AppTest, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not holds():
        assert time.monotonic() < end, page_html(app)
        time.sleep(0.1)
        app.run()
        assert not app.exception


def start(app: AppTest, model: str) -> None:
    app.session_state["run_servers.box.start"] = True
    app.run()
    app.selectbox(key="run_servers.preset").set_value("another model").run()
    app.text_input(key="run_servers.model.another model").set_value(model)
    next(item for item in app.number_input if item.label == "Port").set_value(free_port()).run()
    button(app, "Start the server").click().run()
    assert not app.exception


def test_a_server_is_started_watched_offered_and_stopped(panel: tuple[AppTest, Path]) -> None:
    app, folder = panel
    app.run()
    assert "No managed server is running" in page_html(app)
    assert app.selectbox(key="run_servers.preset").value == "qwen3-0.6b"
    assert "--reasoning-parser qwen3" in app.code[0].value and "hint" in page_html(app)
    start(app, "org/<b>bold</b>")
    until(app, lambda: "● ready" in page_html(app) and "tokens a second" in page_html(app))
    assert "org/&lt;b&gt;bold&lt;/b&gt;" in page_html(app)
    assert "50.0 %" in page_html(app) and "80.0 %" in page_html(app)  # KV cache in use, prefix cache hits
    [state] = vllm_server.running(folder)
    assert state.started_by == "the app" and not state.keep
    offered = evaluate_run_servers.running(open_store(folder))
    assert offered == [(f"http://127.0.0.1:{state.port}/v1", "org/<b>bold</b>")]
    button(app, "Stop server").click().run()
    assert vllm_server.find_state(folder, state.id).phase == Phase.STOPPED
    app.session_state["run_servers.box.ended"] = True
    app.run()
    assert "stopped on request" in page_html(app)
    button(app, "Remove").click().run()
    assert vllm_server.servers(folder) == []


def test_one_that_fails_shows_its_cause_and_vllms_own_words(panel: tuple[AppTest, Path]) -> None:
    app, _ = panel
    start(app, "org/gated")
    until(app, lambda: "✕ failed" in page_html(app))
    assert "Gated model" in page_html(app) and "HF_TOKEN" in page_html(app)
    assert any("GatedRepoError" in code.value for code in app.code)


def test_without_vllm_it_says_how_to_get_one_and_flags_that_cannot_be_meant_start_nothing(
    panel: tuple[AppTest, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, folder = panel
    app.run()
    app.text_input(key="run_servers.flags.qwen3-0.6b").set_value("--api-key sk-x").run()
    assert "needs no key" in page_html(app) and not [item for item in app.button if item.label == "Start the server"]
    app.text_input(key="run_servers.flags.qwen3-0.6b").set_value("--trust-remote-code").run()
    assert "only from the command line" in page_html(app)
    assert not [item for item in app.button if item.label == "Start the server"]
    monkeypatch.setenv(vllm.VLLM, "/nowhere")
    app.run()
    assert "CIMEMORIES_VLLM names /nowhere" in page_html(app) and vllm_server.servers(folder) == []


def test_behind_a_login_servers_are_looked_at_alone(
    panel: tuple[AppTest, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, folder = panel
    spec = vllm.ServerSpec("org/model", port=free_port())
    state = vllm_server.start(folder, spec, started_by="a test")
    vllm_server.wait(folder, state.id, timeout=SOON)
    monkeypatch.setattr(annotator, "runs_the_app", lambda: False)
    app.run()
    until(app, lambda: "tokens a second" in page_html(app))
    assert "ready" in page_html(app)
    assert not [item.label for item in app.button if item.label in ("Stop server", "Start the server", "Remove")]
    assert not app.selectbox
    vllm_server.stop(folder, state.id)
    app.session_state["run_servers.box.ended"] = True
    app.run()
    assert "stopped on request" in page_html(app)
    assert not [item.label for item in app.button if item.label == "Remove"]


def test_two_addresses_are_tied_on_the_page_and_untied_again(panel: tuple[AppTest, Path]) -> None:
    app, folder = panel
    store = open_store(folder)
    hostile = "http://a/v1, root <img src=x onerror=y>"
    with store.write() as connection:
        calls.keep_servers(connection, [hostile, "http://b/v1"])
    app.session_state["run_servers.box.same"] = True
    app.run()
    assert "root &lt;img src=x onerror=y&gt;" in page_html(app)
    app.selectbox(key="run_servers.same.first").set_value("http://a/v1").run()
    app.selectbox(key="run_servers.same.second").set_value("http://a/v1").run()
    button(app, "Link").click().run()
    assert "one address already" in page_html(app)
    app.selectbox(key="run_servers.same.second").set_value("http://b/v1").run()
    button(app, "Link").click().run()
    assert not app.exception and "are the same server" in page_html(app)
    with store.read() as connection:
        assert [(tie.first, tie.second) for tie in calls.ties(connection)] == [("http://a/v1", "http://b/v1")]
    button(app, "Unlink").click().run()
    with store.read() as connection:
        assert calls.ties(connection) == []


def test_a_record_of_before_can_be_tied_before_any_server_is_known(panel: tuple[AppTest, Path]) -> None:
    app, _ = panel
    app.session_state["run_servers.box.same"] = True
    app.run()
    assert not app.exception and "No server yet" in page_html(app)
    assert calls.NOT_KNOWN in app.selectbox(key="run_servers.same.second").options

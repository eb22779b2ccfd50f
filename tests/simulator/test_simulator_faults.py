"""How the simulator refuses and fails: settings and requests that it cannot use, and the faults it makes on purpose."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import openai
import pytest
from openai import OpenAI
from simulating import CONTEXTS, Chat, chat_of, client_of, label_prompt, respond_prompt, texts

from cimemories.simulator import policy
from cimemories.simulator.policy import SimulatorError
from cimemories.simulator.server import FAULT_KINDS, create_app, running_simulator, serve


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with running_simulator(seed=11) as url:
        yield url


@pytest.fixture(scope="module")
def chat(base_url: str) -> Chat:
    return chat_of(base_url)


# ---- refusing


def test_listens_on_loopback_only(base_url: str) -> None:
    assert urlsplit(base_url).hostname == "127.0.0.1"
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(SimulatorError, match="this machine only"):
            serve(0, seed=0, faults=0.0, host=host)


def test_a_port_in_use_is_told_plainly() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SimulatorError, match=rf"port {port} .*choose another"):
            serve(port, seed=0, faults=0.0)


def test_unknown_model_and_route_are_404(base_url: str, chat: Chat) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        chat("Say ok.", model="gpt-unknown")
    assert caught.value.body["param"] == "model"
    assert "sim-careful" in caught.value.body["message"]
    with pytest.raises(openai.NotFoundError):
        client_of(base_url).completions.create(model="sim-judge", prompt="x")


@pytest.mark.parametrize(
    "more",
    [
        {"n": 0},
        {"n": 129},
        {"n": "two"},
        {"n": True},
        {"temperature": 3},
        {"max_tokens": 0},
        {"seed": 1.5},
        {"response_format": {"type": "yaml"}},
        {"response_format": {"type": "json_schema"}},
        {"messages": []},
        {"messages": [{"role": "user"}]},
        {"messages": "hello"},
        {"stream": True},
    ],
)
def test_bad_bodies_are_400_in_openai_shape(base_url: str, more: dict) -> None:
    body = {"model": "sim-average", "messages": [{"role": "user", "content": "Say ok."}], **more}
    with pytest.raises(openai.BadRequestError) as caught:
        client_of(base_url).post("/chat/completions", body=body, cast_to=object)
    assert {"message", "type", "param", "code"} <= set(caught.value.body)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe"])
def test_bodies_that_are_no_json_object_are_400(base_url: str, body: bytes) -> None:
    where = urlsplit(base_url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=5)
    connection.request("POST", "/v1/chat/completions", body)
    answer = connection.getresponse()
    assert answer.status == 400
    assert "message" in json.loads(answer.read())["error"]
    connection.close()


def test_bad_settings_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for rate, kinds in ((1.0, None), (-0.1, None), (0.5, ("fire",)), (0.5, ())):
        with pytest.raises(SimulatorError):
            create_app(faults=rate, fault_kinds=kinds)
    create_app(faults=0.5, fault_kinds=FAULT_KINDS)
    monkeypatch.setenv("CIMEMORIES_SEEDS", str(tmp_path))
    policy.load_policy.cache_clear()
    try:
        with pytest.raises(SimulatorError, match="CIMEMORIES_SEEDS"):
            create_app()
    finally:
        policy.load_policy.cache_clear()


# ---- faults


@pytest.fixture
def failing() -> Iterator[Callable[..., openai.types.chat.ChatCompletion]]:
    """A function that asks a server on which nearly every request fails in the one given way."""
    opened = []

    def ask(kind: str, **more: object) -> openai.types.chat.ChatCompletion:
        context = running_simulator(seed=1, faults=0.999, fault_kinds=(kind,), hang=0.3)
        opened.append(context)
        return chat_of(context.__enter__())(label_prompt(*CONTEXTS[0], "pragmatic"), seed=0, **more)

    yield ask
    for context in opened:
        context.__exit__(None, None, None)


def test_http_faults_reach_the_client_as_what_they_are(failing: Callable) -> None:
    for kind, error in (("rate_limit", openai.RateLimitError), ("server_error", openai.InternalServerError)):
        with pytest.raises(error) as caught:
            failing(kind)
        assert "simulator" in caught.value.body["message"]


def test_hang_and_cut_are_connection_errors(failing: Callable) -> None:
    for kind, least in (("hang", 0.3), ("cut", 0.0)):
        start = time.monotonic()
        with pytest.raises(openai.APIConnectionError):
            failing(kind)
        assert time.monotonic() - start >= least
    with pytest.raises(openai.APITimeoutError):
        failing("hang", timeout=0.1)


def test_broken_bodies_are_seen(failing: Callable) -> None:
    with pytest.raises((json.JSONDecodeError, openai.APIResponseValidationError)):
        failing("broken_json")
    assert not failing("no_choices").choices
    assert len(failing("fewer_choices", n=5).choices) < 5
    cut = failing("truncation", n=2)
    assert [choice.finish_reason for choice in cut.choices] == ["length", "length"]
    for text in texts(cut):
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)


def test_faults_come_at_their_rate_in_every_kind_and_repeat() -> None:
    runs = []
    for _ in range(2):
        seen = []
        with running_simulator(seed=3, faults=0.4, hang=0.01) as url:
            chat = chat_of(url)
            for seed in range(150):
                try:
                    answer = chat(label_prompt(*CONTEXTS[0], "pragmatic"), seed=seed, n=2)
                    seen.append(f"{len(answer.choices or [])} {[c.finish_reason for c in answer.choices or []]}")
                except (openai.OpenAIError, json.JSONDecodeError) as error:
                    seen.append(type(error).__name__)
        runs.append(seen)
    assert runs[0] == runs[1]
    whole = "2 ['stop', 'stop']"
    assert 0.25 < sum(outcome != whole for outcome in runs[0]) / 150 < 0.55
    assert {"RateLimitError", "InternalServerError", "APIConnectionError", "2 ['length', 'length']"} <= set(runs[0])


def test_a_retrying_client_gets_the_right_answer_through_faults(chat: Chat) -> None:
    text = respond_prompt(*CONTEXTS[0])
    with running_simulator(seed=11, faults=0.5, fault_kinds=("rate_limit", "server_error", "cut")) as url:
        client = OpenAI(base_url=url, api_key="none", max_retries=12, timeout=5)
        answer = client.chat.completions.create(
            model="sim-average", messages=[{"role": "user", "content": text}], seed=4
        )
    assert texts(answer) == texts(chat(text, seed=4))

"""Why a vLLM server ended, told from what it wrote; what it is doing; and its live figures."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path

import fake_vllm
import pytest
from serving import free_port

from cimemories.llm import vllm, vllm_reports, vllm_server
from cimemories.llm.vllm import ServerSpec, VllmError
from cimemories.llm.vllm_reports import ServerFigures, explain, metrics_url, parsed, read_metrics

WANTED = {
    "org/unknown-flag": ("ended", "unrecognized arguments: --from-the-future"),
    "org/no-gpu": ("no GPU", "nvidia-smi"),
    "org/too-many-gpus": ("ended", "larger than the number of available GPUs"),
    "org/too-large": ("out of memory", "tensor-parallel"),
    "org/cache-too-small": ("ended", "estimated maximum model length is 15280"),
    "org/gated": ("gated model", "HF_TOKEN"),
    "org/no-such-model": ("missing model", "no such model: no folder"),
    "org/no-hub": ("missing model", "cannot be reached"),
    "org/port-taken": ("port in use", "another port"),
    "org/parser": ("ended", "'qwen9' not found"),
    "org/riddle": ("ended", "exit code 3 .SomethingError: the moon is in the wrong phase"),
    "org/killed": ("killed", "main memory"),
}


@pytest.mark.parametrize("model", WANTED)
def test_every_known_end_has_a_name_and_a_way_on(model: str) -> None:
    code, log = fake_vllm.ENDINGS[model]
    cause, message = WANTED[model]
    failure = explain(log, code)
    assert failure.cause == cause
    with pytest.raises(VllmError, match=message):
        raise failure
    assert failure.lines and "{" not in str(failure)


def test_the_cause_stands_among_the_last_lines_though_much_was_written_after_it() -> None:
    lines = explain(fake_vllm.ENDINGS["org/too-large"][1], 1).lines
    assert lines[0].startswith("torch.OutOfMemoryError: CUDA out of memory")  # without process and time
    assert len(lines) <= vllm_reports.LAST_LINES and not any("File" in line for line in lines)


def test_what_is_no_cause_is_not_made_one() -> None:
    harmless = "WARNING 11-21 13:00:00 [a.py:1] OSError: [Errno 24] Too many open files can follow\n"
    assert explain(harmless, 0).cause == "ended"
    assert explain("", None).lines == ()
    # Words that only matter while it starts mean nothing in a server that has run for a day.
    assert explain("RepositoryNotFoundError", 1, was_ready=True).cause == "ended"
    assert explain("CUDA out of memory", 1, was_ready=True).cause == "out of memory"


def test_the_step_is_the_last_that_was_spoken_of() -> None:
    log = "non-default args: {}\nInitializing a V1 LLM engine\nStarting to load model x\n"
    assert vllm_reports.start_step("") == ""
    assert vllm_reports.start_step(log) == "loading the model"
    log += "Loading safetensors checkpoint shards:   0% | 0/4\rLoading safetensors checkpoint shards:  75% | 3/4\r"
    assert vllm_reports.start_step(log) == "loading weights (75 %)"
    assert vllm_reports.start_step(log + "\nGraph capturing finished in 3 secs") == "warming up"


@pytest.mark.parametrize("model", ["org/gated", "org/killed"])
def test_a_server_that_fails_says_why_with_vllms_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setenv(vllm.VLLM, str(fake_vllm.install(tmp_path / "env")))
    state = vllm_server.start(tmp_path, ServerSpec(model, port=free_port()), started_by="a test")
    with pytest.raises(VllmError) as problem:
        vllm_server.wait(tmp_path, state.id, timeout=20)
    assert problem.value.cause == WANTED[model][0]
    code, log = fake_vllm.ENDINGS[model]
    assert problem.value.lines[-1] in log
    failed = vllm_server.find_state(tmp_path, state.id)
    assert (failed.phase, failed.exit_code) == (vllm_server.Phase.FAILED, code)


@pytest.fixture
def server() -> Iterator[str]:
    """The base URL of a server that has vLLM's figures at /metrics, and nothing else but /health."""
    listening = ThreadingHTTPServer(("127.0.0.1", 0), fake_vllm.Answers)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{listening.server_port}/v1"
    listening.shutdown()


def test_figures_are_read_and_added_up_over_engines(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")  # not for a server on this machine
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    figures = read_metrics(server)
    assert figures is not None
    assert (figures.running, figures.waiting) == (5, 1)
    assert (figures.generated_tokens, figures.prompt_tokens) == (500, 1200)
    assert (figures.kv_use, figures.hit_rate) == (0.5, 0.8)


def test_rates_are_those_between_two_readings() -> None:
    first = parsed(fake_vllm.METRICS, at=10.0)
    assert isinstance(first, ServerFigures)
    later = replace(first, at=12.0, generated_tokens=700, cache_queries=1500, cache_hits=900, running=0)
    live = later.since(first)
    assert (live.running, live.tokens_per_second, live.recent_hit_rate) == (0, 100, 0.2)
    assert replace(later, at=13.0).since(later).recent_hit_rate is None  # nothing was looked up
    for before in (None, later, replace(first, at=12.0)):  # none, a server that started anew, no time between
        again = replace(first, at=12.0).since(before)
        assert (again.tokens_per_second, again.recent_hit_rate, again.running) == (None, None, 5)


@pytest.mark.parametrize("text", ["", "python_info 1", "vllm:num_requests_running NaN", "<html>", "vllm:x{ 3"])
def test_other_servers_have_no_figures(text: str) -> None:
    assert parsed(text, 0.0) is None


def test_no_server_and_no_address_are_none_and_no_error(server: str) -> None:
    for url in ("", "nonsense", "file:///etc/passwd", "http://", "http://[::1", f"http://127.0.0.1:{free_port()}/v1"):
        assert read_metrics(url) is None
    assert metrics_url("http://host:8000/v1/") == metrics_url("http://host:8000") == "http://host:8000/metrics"
    assert metrics_url("https://host/proxy/v1") == "https://host/proxy/metrics"
    assert read_metrics(server.replace("/v1", "/elsewhere")) is None  # 404

"""`cimemories serve`, and `servers`, on a program that behaves as vLLM does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fake_vllm
import pytest
from serving import free_port
from typer.testing import CliRunner

from cimemories.cli import cli
from cimemories.llm import vllm, vllm_server
from cimemories.llm.vllm import ServerSpec, VllmError
from cimemories.seeds.presets import preset


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "workspace"
    yield folder
    for state in vllm_server.servers(folder):
        vllm_server.stop(folder, state.id)


def command(workspace: Path, *arguments: str) -> subprocess.Popen[str]:
    env = {**os.environ, "COLUMNS": "200", vllm.VLLM: str(fake_vllm.install(workspace.parent / "env"))}
    line = [sys.executable, "-m", "cimemories", *arguments, "-w", str(workspace)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # Tests that were started in the background have Ctrl-C switched off, and would hand that on.
    return subprocess.Popen(line, env=env, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **pipes)


def test_a_kept_server_outlives_the_command_is_listed_and_stopped_by_its_port(workspace: Path) -> None:
    port = str(free_port())
    out, err = (done := command(workspace, "serve", "org/model", "--port", port, "--keep")).communicate(timeout=30)
    assert done.returncode == 0 and out.strip() == f"http://127.0.0.1:{port}/v1"
    assert "starting" in err and "ready after" in err and f"servers stop {port}" in err
    [row] = json.loads(CliRunner().invoke(cli, ["servers", "--json", "-w", str(workspace)]).output)
    assert (row["status"], row["port"], row["keep"]) == ("ready", int(port), True)
    assert row["figures"]["running"] == 5 and row["figures"]["hit_rate"] == 0.8
    assert "stopped on request" in CliRunner().invoke(cli, ["servers", "stop", port, "-w", str(workspace)]).output
    assert vllm_server.servers(workspace)[0].phase == vllm_server.Phase.STOPPED


def test_ctrl_c_stops_a_server_that_is_in_the_foreground(workspace: Path) -> None:
    running = command(workspace, "serve", "org/model", "--port", str(free_port()))
    assert running.stdout is not None and running.stdout.readline().startswith("http://")
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=30)
    assert running.returncode == 0 and "stopped on request" in err and "Traceback" not in err
    assert [s.phase for s in vllm_server.servers(workspace)] == [vllm_server.Phase.STOPPED]


def test_an_end_is_told_with_vllms_own_words(workspace: Path) -> None:
    failed = command(workspace, "serve", "org/gated", "--port", str(free_port()), "--max-num-seqs", "8")
    out, err = failed.communicate(timeout=30)
    assert (failed.returncode, out) == (1, "")
    assert "vllm: huggingface_hub.errors.GatedRepoError" in err and "--max-num-seqs 8" in err
    assert err.strip().splitlines()[-1].startswith("error: org/gated on port")


def test_a_preset_fills_in_what_is_left_out() -> None:
    spec = ServerSpec("", ("--max-model-len=8192", "--enforce-eager")).filled(preset("deepseek-r1-0528"))
    assert spec.model == "deepseek-ai/DeepSeek-R1-0528"
    assert (spec.number("tensor-parallel-size"), spec.number("max-model-len")) == (8, 8192)
    local = ServerSpec("/models/r1").filled(preset("deepseek-r1-0528"))
    assert (local.model, local.name) == ("/models/r1", "deepseek-ai/DeepSeek-R1-0528")
    with pytest.raises(VllmError, match=r"\$OPENAI_API_KEY"):
        ServerSpec("").filled(preset("gpt-5"))


@pytest.mark.parametrize("name", ["serve", "servers"])
def test_help_shows_an_example(name: str) -> None:
    shown = CliRunner().invoke(cli, [name, "--help"])
    assert shown.exit_code == 0 and f"Example: cimemories {name}" in " ".join(shown.output.split())

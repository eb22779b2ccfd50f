"""Managed vLLM servers, on programs that behave as vLLM does: found, started, watched, stopped, and what they say."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import fake_vllm
import psutil
import pytest
from serving import free_port

from cimemories.llm import vllm, vllm_server
from cimemories.llm.vllm import ServerSpec, VllmError, find_program, server_environment
from cimemories.llm.vllm_server import Phase, ServerState, end
from cimemories.seeds.presets import load_presets

CANARY = "sk-canary-0123456789abcdef"
SOON = 20.0


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A workspace whose servers are stopped at the end, with a fake vLLM."""
    monkeypatch.setenv(vllm.VLLM, str(fake_vllm.install(tmp_path / "env")))
    folder = tmp_path / "workspace"
    yield folder
    for state in vllm_server.servers(folder):
        vllm_server.stop(folder, state.id)


def started(workspace: Path, model: str = "org/model", **settings: object) -> ServerState:
    spec = ServerSpec(model, **{"port": free_port(), **settings})  # type: ignore[arg-type]
    return vllm_server.start(workspace, spec, started_by="a test")


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)


def lives(pid: int) -> bool:
    """Whether a process runs; one that ended and was not yet taken note of does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_server_starts_says_how_it_stands_and_stops(workspace: Path) -> None:
    state = started(workspace, served_name="m", flags=("--max-model-len", "4096", "--enforce-eager"))
    assert (state.phase, state.served_name) == (Phase.STARTING, "m")
    seen: list[Phase] = []
    ready = vllm_server.wait(workspace, state.id, lambda now: seen.append(now.phase), timeout=SOON)
    assert seen[0] == Phase.STARTING and seen[-1] == ready.phase == Phase.READY
    assert [s.base_url for s in vllm_server.running(workspace)] == [f"http://127.0.0.1:{state.port}/v1"]
    line = " ".join(ready.command[1:])
    assert line.startswith("serve org/model ")
    assert '--structured-outputs-config {"backend":"xgrammar","disable_any_whitespace":true}' in line
    flags = "--max-model-len 4096 --enforce-eager"
    assert line.endswith(f"{flags} --port {state.port} --served-model-name m --host 127.0.0.1")
    assert "Starting to load model" in vllm_server.server_log_tail(ready)
    assert ready.server is not None and ready.server.alive
    ended = vllm_server.stop(workspace, str(state.port))
    assert (ended.phase, ended.error) == (Phase.STOPPED, "on request")
    assert not ready.server.alive and vllm_server.running(workspace) == []
    assert vllm_server.stop(workspace, state.id) == ended  # a second time changes nothing
    vllm_server.forget(workspace, state.id)
    assert vllm_server.servers(workspace) == [] and not Path(state.log).exists()


def test_it_stops_with_what_started_it_though_that_is_killed_and_its_engines_too(workspace: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from cimemories.llm import vllm_server as v\n"
        f"for keep in (False, True): v.start(Path({str(workspace)!r}), v.ServerSpec('org/with-engines', keep=keep), "
        "started_by='a process')\n"
        "print('started', flush=True); time.sleep(300)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert owner.stdout is not None and owner.stdout.readline()
    bound, kept = sorted(vllm_server.servers(workspace), key=lambda state: state.keep)
    for state in (bound, kept):
        vllm_server.wait(workspace, state.id, timeout=SOON)
    engines = {
        state.id: int(next(x for x in Path(state.log).read_text().splitlines() if x.startswith("engine")).split()[1])
        for state in (bound, kept)
    }
    owner.kill()
    owner.wait()
    until(lambda: vllm_server.find_state(workspace, bound.id).phase == Phase.STOPPED)
    assert vllm_server.find_state(workspace, bound.id).error == "with what had started it"
    until(lambda: not lives(engines[bound.id]))
    assert vllm_server.find_state(workspace, kept.id).phase == Phase.READY and lives(engines[kept.id])
    vllm_server.stop(workspace, kept.id)
    until(lambda: not lives(engines[kept.id]))


def test_a_killed_supervisor_takes_its_server_along_and_nothing_is_said_to_be_ready(workspace: Path) -> None:
    state = started(workspace)
    ready = vllm_server.wait(workspace, state.id, timeout=SOON)
    assert ready.supervisor is not None and ready.server is not None
    os.kill(ready.supervisor.pid, signal.SIGKILL)
    until(lambda: vllm_server.find_state(workspace, state.id).phase == Phase.FAILED)
    until(lambda: ready.server is not None and not ready.server.alive)  # the kernel ends it, in its own time
    assert "killed" in vllm_server.find_state(workspace, state.id).error


def test_one_that_does_not_end_when_asked_is_killed(workspace: Path) -> None:
    program = fake_vllm.install(workspace.parent / "env") / "bin" / "vllm"
    command = [str(program), "serve", "org/stubborn", "--port", str(free_port())]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert server.stdout is not None and server.stdout.readline() and server.stdout.readline()
    end(server, grace=0.2)
    assert server.returncode == -signal.SIGKILL


def test_no_key_reaches_the_log_or_the_state_or_vllm(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.setenv("VLLM_API_KEY", f"{CANARY}-2")
    monkeypatch.setenv("MY_RECORD", "postgresql://me:" + CANARY + "@host/db")
    monkeypatch.setenv("HF_TOKEN", f"hf_{CANARY}")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    state = started(workspace, "org/tells-keys")
    vllm_server.wait(workspace, state.id, timeout=SOON)
    environment = json.loads(next(x for x in Path(state.log).read_text().splitlines() if x.startswith("{")))
    assert environment["HF_TOKEN"] == "[key]"  # it was handed on, for the weights, and taken out of the log
    assert environment["TOKENIZERS_PARALLELISM"] == "false"
    assert not {"OPENAI_API_KEY", "VLLM_API_KEY", "MY_RECORD", vllm.VLLM} & environment.keys()
    vllm_server.stop(workspace, state.id)
    for path in workspace.rglob("*"):
        assert path.is_dir() or CANARY not in path.read_text(errors="replace"), path


def test_a_port_in_use_is_found_before_anything_starts(workspace: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(VllmError, match=rf"port {port} is in use by .* \(process {os.getpid()}\)"):
            started(workspace, port=port)
    assert vllm_server.servers(workspace) == []
    first = started(workspace, "org/never-ready")
    with pytest.raises(VllmError, match=f"managed server {first.id}"):
        started(workspace, port=first.port)
    with pytest.raises(VllmError, match="Stop it first"):
        vllm_server.forget(workspace, first.id)
    with pytest.raises(VllmError, match="is still starting"):
        vllm_server.wait(workspace, first.id, timeout=0.1)


def test_whoever_else_answers_at_its_port_is_not_taken_for_it(workspace: Path, tmp_path: Path) -> None:
    """While it loads its port is closed: a server of another workspace may open it, or be about to."""
    state = started(workspace, "org/never-ready", port=None)
    until(lambda: vllm_server.find_state(workspace, state.id).server is not None)
    other = started(tmp_path / "other", "org/never-ready", port=None)
    assert other.port != state.port
    vllm_server.stop(tmp_path / "other", other.id)
    foreign = ThreadingHTTPServer(("127.0.0.1", state.port), fake_vllm.Answers)
    threading.Thread(target=foreign.serve_forever, daemon=True).start()
    assert vllm_server.healthy(state.port)
    with pytest.raises(VllmError, match="still starting"):
        vllm_server.wait(workspace, state.id, timeout=3 * vllm_server.HEALTH_SECONDS)
    foreign.shutdown()
    foreign.server_close()


def test_each_server_gets_a_port_of_its_own(workspace: Path) -> None:
    ports = [started(workspace, "org/never-ready", port=None).port for _ in range(2)]
    assert len(set(ports)) == 2 and all(port >= vllm_server.FIRST_PORT for port in ports)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "/nowhere/model"}, "no model at /nowhere/model"),
        ({"model": "--help"}, "is not a model"),
        ({"flags": ("--api_key=sk-x",)}, "needs no key"),
        ({"flags": ("--host", "0.0.0.0")}, "this machine only"),
        ({"flags": ("--hf-token", "hf_x")}, "HF_TOKEN"),
        ({"flags": ("--ho=0.0.0.0",)}, "this machine only"),  # argparse takes any beginning of a flag
        ({"flags": ("--hos", "0.0.0.0")}, "this machine only"),
        ({"flags": ("--api=sk-x",)}, "needs no key"),
        ({"flags": ("--served_model", "x")}, "served name"),
        ({"flags": ("--allowed-o", "[]")}, "web pages"),
        ({"flags": ("--conf", "all.yaml")}, "instead of a file"),
        ({"flags": ("--Host", "0.0.0.0")}, "only from the command line"),
        ({"flags": ("--trust-remote-cod",)}, "only from the command line"),
        ({"flags": ("--kv-transfer-config.kv_connector", "evil")}, "only from the command line"),
        ({"flags": ("-tp", "2")}, "in full"),
        ({"flags": ("--",)}, "in full"),
        ({"served_name": "--trust-remote-code"}, "dash"),
        ({"model": "org/\x1b]0;x\x07"}, "␛]0;x␇"),
        ({"flags": ("--dtype", "a\u202eb")}, "a␦b"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_it_starts(
    workspace: Path, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(VllmError, match=message) as problem:
        started(workspace, **{"model": "org/model", **settings})  # type: ignore[arg-type]
    assert "sk-x" not in str(problem.value) and "hf_x" not in str(problem.value)
    assert vllm_server.servers(workspace) == []


LOADS = [
    "--trust-remote-code",
    "--trust_remote_code",
    "--reasoning-parser-plugin=x.py",
    "--tool-parser-plugin x.py",
    "--io-processor-plugin x",
    "--worker-cls evil.Worker",
    "--worker_extension_cls=evil.Worker",
    "--scheduler-cls evil.Scheduler",
    "--distributed-executor-backend evil.Executor",
    "--middleware evil.app",
    "--logits-processors evil.A evil.B",
    "--chat-template /etc/passwd",
    "--load-format pt",
    "--hf-overrides {}",
    '--structured-outputs-config {"reasoning_parser_plugin":"x.py"}',
]


@pytest.mark.parametrize("typed", LOADS)
def test_what_loads_code_is_for_the_command_line_alone(typed: str) -> None:
    flags = tuple(typed.split())
    with pytest.raises(VllmError, match="only from the command line"):
        vllm.server_command(Path("vllm"), ServerSpec("org/model", flags), 8000)
    line = vllm.server_command(Path("vllm"), ServerSpec("org/model", flags, trusted=True), 8000)
    assert line[-2:] == ["--host", "127.0.0.1"]
    assert set(flags) <= set(line)


def test_every_flag_of_every_preset_is_taken_from_anybody() -> None:
    for item in load_presets():
        if item.serve is not None:
            line = vllm.server_command(Path("vllm"), ServerSpec("").filled(item), 8000)
            assert set(item.serve.flags.split()) <= set(line)


# ---- workspaces from somebody else


def planted(workspace: Path, server_id: str = "server-0badf00d", **fields: object) -> Path:
    """A state file as an attacker would write it."""
    path = vllm_server.state_path(workspace, server_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {
        "id": server_id, "host": socket.gethostname(), "model": "m", "served_name": "m", "port": 8000, "command": [],
        "started_by": "x", "keep": True, "created": time.time(), "log": "/etc/passwd", "phase": "ready", **fields,
    }  # fmt: skip
    path.write_text(json.dumps(state))
    return path


def test_a_planted_state_file_reads_and_deletes_nothing_but_its_own(tmp_path: Path) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    planted(tmp_path / "w", phase="stopped", log=str(victim))
    [state] = vllm_server.servers(tmp_path / "w")
    assert vllm_server.server_log_tail(state) == ""
    vllm_server.forget(tmp_path / "w", state.id)
    assert victim.read_text() == "precious"
    path = planted(tmp_path / "w", phase="stopped", id="../../victim")
    assert vllm_server.servers(tmp_path / "w") == []
    path.unlink()
    path = planted(tmp_path / "w", phase="stopped")
    log = vllm_server.log_of(path)
    log.parent.mkdir(parents=True)
    log.symlink_to(victim)
    assert vllm_server.server_log_tail(state) == ""
    log.unlink()
    os.mkfifo(log)
    assert vllm_server.server_log_tail(state) == ""
    path.unlink()
    os.mkfifo(path)
    assert vllm_server.servers(tmp_path / "w") == []


@pytest.mark.parametrize(
    "fields",
    [
        {"supervisor": {"pid": -1, "started": 0}},
        {"server": {"pid": 10**30, "started": 0}},
        {"owner": {"pid": 0, "started": 0}},
        {"created": 1e308},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_planted_number_that_no_process_or_date_has_hides_no_other_server(
    fields: dict[str, object], tmp_path: Path
) -> None:
    planted(tmp_path, "server-fine", phase="failed")
    planted(tmp_path, **{"phase": "ready", **fields})
    assert [state.id for state in vllm_server.servers(tmp_path)] == ["server-fine"]


def test_a_planted_lock_empties_no_other_file(workspace: Path) -> None:
    victim = workspace.parent / "victim.txt"
    victim.write_text("precious")
    (workspace / "servers").mkdir(parents=True)
    (workspace / "servers" / ".lock").symlink_to(victim)
    with pytest.raises(VllmError, match="symbolic link"):
        started(workspace)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("role", ["supervisor", "server"])
def test_a_planted_state_file_signals_no_process(tmp_path: Path, role: str) -> None:
    """Number and start time of a process are no secret on a machine: they do not make it one of ours."""
    its_file = tmp_path / "its file"
    with its_file.open("w") as held, subprocess.Popen(["sleep", "300"], stdout=held, start_new_session=True) as victim:
        try:
            names = {"pid": victim.pid, "started": psutil.Process(victim.pid).create_time()}
            others = {"supervisor": {"pid": 2**22 - 1, "started": 0.0}}
            path = planted(tmp_path, **{**others, role: names})
            state = vllm_server.stop(tmp_path, path.stem)
            assert state.phase == Phase.FAILED
            vllm_server.lock_of(path).symlink_to(its_file)  # which the victim has open
            assert vllm_server.stop(tmp_path, path.stem).phase == Phase.FAILED
            assert victim.poll() is None
        finally:
            victim.kill()


def test_vllm_is_found_by_its_setting_on_the_path_or_in_the_usual_place(tmp_path: Path) -> None:
    env = fake_vllm.install(tmp_path / "home" / "vllm")
    program = env / "bin" / "vllm"
    for setting in (env, program, program.parent):
        assert find_program({"CIMEMORIES_VLLM": str(setting)}) == program
    assert find_program({"PATH": str(program.parent)}) == program
    assert find_program({"PATH": "", "HOME": str(tmp_path / "home")}) == program
    # Through a link: what stands beside the program itself is found too, for it compiles kernels by that.
    link = tmp_path / "links" / "vllm"
    link.parent.mkdir()
    link.symlink_to(program)
    linked = find_program({"PATH": str(link.parent)})
    path = server_environment(linked, {"PATH": "/usr/bin"}, tmp_path)["PATH"]
    assert (linked, path) == (link, f"{program.resolve().parent}:{link.parent}:/usr/bin")
    with pytest.raises(VllmError, match="pip install vllm"):
        find_program({"PATH": "", "HOME": str(tmp_path)})
    with pytest.raises(VllmError, match="CIMEMORIES_VLLM names /nowhere"):
        find_program({"CIMEMORIES_VLLM": "/nowhere", "PATH": str(program.parent)})


def test_a_state_file_that_cannot_be_read_or_is_of_another_machine_hurts_nobody(workspace: Path) -> None:
    state = started(workspace, "org/never-ready")
    (workspace / "servers" / "server-broken.json").write_text('{"id": 3')
    elsewhere = state.model_copy(update={"id": "server-far", "host": "another-host", "phase": Phase.READY})
    vllm_server.save_state(vllm_server.state_path(workspace, "server-far"), elsewhere)
    assert {s.id for s in vllm_server.servers(workspace)} == {state.id, "server-far"}
    assert vllm_server.running(workspace) == []
    with pytest.raises(VllmError, match="another-host"):
        vllm_server.stop(workspace, "server-far")
    vllm_server.state_path(workspace, "server-far").unlink()
    with pytest.raises(VllmError, match="no managed server 'server-far'"):
        vllm_server.find_state(workspace, "server-far")


def test_the_documentation_lists_every_flag_that_a_page_takes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    assert not [name for name in vllm.HARMLESS if f"`{name}`" not in page]

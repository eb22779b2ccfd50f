"""vLLM servers that this project starts, watches and stops. Each has a supervisor of its own (vllm_supervisor).

    state = start(workspace, ServerSpec("Qwen/Qwen3-8B", max_model_len=32768), started_by="cimemories serve")
    state = wait(workspace, state.id)          # ready, or VllmError with the cause and vLLM's own last lines
    stop(workspace, state.id)

A server stops with the process that started it, unless its spec says `keep`.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import psutil

from cimemories.llm import vllm_state
from cimemories.llm.vllm_program import HOST, ServerSpec, VllmError, command, find_program, is_path
from cimemories.llm.vllm_state import Phase, ServerState, all_states, named, process
from cimemories.llm.vllm_supervisor import GRACE_SECONDS, PACKAGE, tail
from cimemories.store.ids import new_id
from cimemories.texts import visible

FIRST_PORT, LAST_PORT = 8000, 8099
LOOK_SECONDS = 0.2


def start(
    workspace: Path, spec: ServerSpec, *, started_by: str, environ: Mapping[str, str] | None = None
) -> ServerState:
    """Start a server and return at once; it is `starting` then. `started_by`: who asked, in words for people.

    Raises VllmError where there is no vLLM, the settings cannot be meant, the model is a folder that is not there, or
    the port is taken.
    """
    environ = os.environ if environ is None else environ
    program = find_program(environ)
    if is_path(spec.model) and not Path(spec.model).expanduser().exists():
        raise VllmError(f"there is no model at {spec.model}: no such file or folder.", "missing model")
    workspace = workspace.absolute()
    with vllm_state.reserving(workspace):
        port = _port(spec.port, _taken(workspace))
        server_id = new_id("server")
        path = vllm_state.path_of(workspace, server_id)
        state = ServerState(
            id=server_id,
            host=socket.gethostname(),
            model=spec.model,
            served_name=spec.name,
            port=port,
            command=tuple(command(program, spec, port)),
            started_by=started_by,
            keep=spec.keep,
            created=time.time(),
            owner=None if spec.keep else process(os.getpid()),
            log=str(vllm_state.log_of(path)),
        )
        vllm_state.save(path, state)
    _launch(path, state, environ)
    return state


def next_port(workspace: Path) -> int:
    """The port that a server would be given now. Raises VllmError where none is free."""
    return _port(None, _taken(workspace))


def _taken(workspace: Path) -> dict[int, ServerState]:
    """The living servers of this machine by port: one that starts has not opened its port yet."""
    return {state.port: state for state in all_states(workspace) if state.live and state.here}


def _launch(path: Path, state: ServerState, environ: Mapping[str, str]) -> None:
    python_path = os.pathsep.join(filter(None, [str(PACKAGE), environ.get("PYTHONPATH")]))
    try:
        subprocess.Popen(
            [sys.executable, "-m", "cimemories.llm.vllm_supervisor", str(path)],
            env={**environ, "PYTHONPATH": python_path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        reason = f"the process that watches over the server could not be started ({error.strerror})."
        vllm_state.save(path, state.model_copy(update={"phase": Phase.FAILED, "error": reason, "ended": time.time()}))
        raise VllmError(reason, "no supervisor") from error


def _port(wanted: int | None, taken: Mapping[int, ServerState]) -> int:
    if wanted is None:
        for port in range(FIRST_PORT, LAST_PORT + 1):
            if port not in taken and _is_free(port):
                return port
        raise VllmError(f"no port from {FIRST_PORT} to {LAST_PORT} is free. Name another.", "port in use")
    if wanted in taken:
        other = taken[wanted]
        raise VllmError(
            f"port {wanted} is used by the managed server {other.id} ({other.served_name}, {other.phase}). Choose "
            f"another port, or stop it: cimemories stop-server {wanted}",
            "port in use",
        )
    if not _is_free(wanted):
        raise VllmError(f"port {wanted} is in use{_by_whom(wanted)}. Choose another port, or stop that.", "port in use")
    return wanted


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _by_whom(port: int) -> str:
    with contextlib.suppress(psutil.Error, PermissionError):
        for item in psutil.net_connections("tcp"):
            if item.status == psutil.CONN_LISTEN and item.laddr and item.laddr.port == port and item.pid:
                return f" by {psutil.Process(item.pid).name()} (process {item.pid})"
    return ""


def wait(
    workspace: Path,
    server_id: str,
    on_change: Callable[[ServerState], None] | None = None,
    timeout: float | None = None,
) -> ServerState:
    """Wait until a server is ready; `on_change` is told of each new step. Loading a large model takes minutes.

    Raises VllmError where it failed (with the cause and vLLM's own last lines), was stopped, or is not ready after
    `timeout` seconds (it then goes on starting).
    """
    end = None if timeout is None else time.monotonic() + timeout
    before = None
    while True:
        state = named(workspace, server_id)
        if state != before and on_change is not None:
            on_change(state)
        before = state
        if state.phase == Phase.READY:
            return state
        if state.phase == Phase.FAILED:
            raise VllmError(f"{state.served_name} on port {state.port}: {state.error}", state.cause, state.lines)
        if state.phase == Phase.STOPPED:
            raise VllmError(f"{state.served_name} on port {state.port} was stopped {state.error}.", "stopped")
        if end is not None and time.monotonic() > end:
            raise VllmError(f"{state.id} is not ready after {timeout:g} s, and goes on starting.", "not ready")
        time.sleep(LOOK_SECONDS)


def stop(workspace: Path, name: str) -> ServerState:
    """Stop a server, by id or port, and return when it has ended; vLLM that does not end when asked is killed.

    One that has ended already is left as it is. Raises VllmError for an unknown one, and for one on another machine.
    """
    workspace = workspace.absolute()
    state = named(workspace, name)
    if not state.live:
        return state
    if not state.here:
        raise VllmError(
            f"{state.id} runs on {state.host}. Stop it there: cimemories stop-server {state.id}", "elsewhere"
        )
    lock = vllm_state.lock_of(vllm_state.path_of(workspace, state.id))
    patience = time.monotonic() + GRACE_SECONDS + 10
    asked = False
    while time.monotonic() < patience:
        if state.supervisor is not None and state.supervisor.holds(lock):
            if not asked:
                _signal(state.supervisor.pid, signal.SIGTERM)
            asked = True
        elif state.supervisor is not None:
            break
        time.sleep(LOOK_SECONDS / 2)
        state = named(workspace, state.id)
        if not state.live:
            return state
    # The supervisor is gone or does not act: end the server without it.
    for left in filter(None, (state.supervisor, state.server)):
        if left.holds(lock):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(left.pid, signal.SIGKILL)
    last = state.model_copy(update={"phase": Phase.STOPPED, "error": "by force", "ended": time.time(), "step": ""})
    vllm_state.save(vllm_state.path_of(workspace, state.id), last)
    return last


def forget(workspace: Path, server_id: str) -> None:
    """Remove the state and the logs of a server that has ended. Raises VllmError while it lives, or where it is not."""
    state = named(workspace, server_id)
    if state.live:
        raise VllmError(f"{state.id} is {state.phase}. Stop it first.", "still alive")
    path = vllm_state.path_of(workspace, state.id)
    log = vllm_state.log_of(path)
    _remove([path, vllm_state.lock_of(path), log, log.with_name(f"{log.name}.1")])


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def servers(workspace: Path) -> list[ServerState]:
    """Every managed server of a workspace as it is now: the living first, then the newest."""
    return all_states(workspace)


def running(workspace: Path) -> list[ServerState]:
    """The servers of this machine that can be asked now."""
    return [state for state in all_states(workspace) if state.phase == Phase.READY and state.here]


def log_tail(state: ServerState, lines: int = 12) -> str:
    """The last lines of a server's log as vLLM wrote them, keys taken out; '' where there are none."""
    return visible("\n".join(tail(Path(state.log), 32_768).splitlines()[-lines:]))


def shown_command(state: ServerState) -> str:
    """The command line that a server runs, as one could type it."""
    return joined(state.command)


def joined(words: Iterable[str]) -> str:
    """The words of a command line, quoted as a shell needs them."""
    return shlex.join(words)


__all__ = [
    "Phase",
    "ServerSpec",
    "ServerState",
    "VllmError",
    "forget",
    "joined",
    "log_tail",
    "named",
    "next_port",
    "running",
    "servers",
    "shown_command",
    "start",
    "stop",
    "wait",
]

"""Managed vLLM servers, from start to end: the state file of each, the supervisor that watches it, start and stop.

    state = start(workspace, ServerSpec("Qwen/Qwen3-8B", ("--max-model-len", "32768")), started_by="cimemories serve")
    state = wait(workspace, state.id)          # ready, or VllmError with the cause and vLLM's own last lines
    stop(workspace, state.id)

Each server has a supervisor, a detached process (`python -m cimemories.llm.vllm_server STATE`). It starts vLLM, writes
vLLM's output to the log without any key, and keeps WORKSPACE/servers/ID.json up to date, which all others read:

    {"id": "server-1f0c9a2b", "model": "Qwen/Qwen3-8B", "port": 8000, "phase": "ready", "keep": false, ...}

It stops vLLM when it is told to (SIGTERM), or when the process that asked for the server is gone, unless the spec says
`keep`. If the supervisor itself is killed, the kernel ends vLLM (on Linux).

A workspace may come from another person, and its state files may name any path and any process. So no state file
decides what to read, delete or signal: its name gives the id, the id gives the log, and a process is ours only while it
holds the server's lock file open, which the supervisor opens and hands on to vLLM."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import IO, Annotated

import psutil
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cimemories import files, installation
from cimemories.access import readonly, roles
from cimemories.access.roles import Role
from cimemories.files import open_regular, tail
from cimemories.llm.vllm import (
    HOST,
    ServerSpec,
    VllmError,
    find_program,
    is_path,
    secrets,
    server_command,
    server_environment,
    without_secrets,
)
from cimemories.llm.vllm_reports import explain, start_step
from cimemories.store.engine import new_id
from cimemories.text import visible

# ---- state files

_ID = re.compile(r"server-[0-9a-z]{1,32}")
_LARGEST_STATE = 1_000_000  # bytes
LARGEST_PID = 2**31 - 1  # of any system; psutil raises errors of its own for others
START_SECONDS = 20.0  # for a supervisor to write its first state
Moment = Annotated[float, Field(ge=0, le=253_402_300_799)]  # seconds since the epoch, up to the last that has a date


class Phase(StrEnum):
    """The state of a server. `stopped`: on request, or together with its owner. `failed`: by itself."""

    STARTING = "starting"
    READY = "ready"
    STOPPED = "stopped"
    FAILED = "failed"


class Process(BaseModel):
    """A process, told from a later one of the same number by its start time (seconds since the epoch)."""

    model_config = ConfigDict(frozen=True)

    pid: int = Field(ge=1, le=LARGEST_PID)
    started: Moment

    @property
    def alive(self) -> bool:
        """Return whether this process runs, and not a later one of the same number; a zombie does not."""
        try:
            process = psutil.Process(self.pid)
            # The kernel counts start times from the boot, whose own time moves when the clock is set. A zombie has
            # ended.
            return abs(process.create_time() - self.started) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True  # it exists, but cannot be inspected

    def holds(self, lock: Path) -> bool:
        """Return whether it is alive and has this file open, which proves a process to be ours, whatever the state file
        says. False if it is another user's."""
        try:
            opened = psutil.Process(self.pid).open_files()
        except psutil.Error:
            return False
        return self.alive and str(lock) in {file.path for file in opened}


def process_of(pid: int) -> Process:
    """Return the running process of this number. Raises psutil.NoSuchProcess if there is none."""
    return Process(pid=pid, started=psutil.Process(pid).create_time())


class ServerState(BaseModel):
    """One managed server. Times are seconds since the epoch. owner: the process that it stops with; None if it is left
    running. step: of its start. cause, error, lines: why it failed, and vLLM's last lines."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    host: str
    model: str
    served_name: str
    port: int = Field(ge=1, le=65535)
    command: tuple[str, ...]
    started_by: str
    keep: bool
    created: Moment
    log: str = ""  # when read from a file, it follows from the id
    owner: Process | None = None
    supervisor: Process | None = None
    server: Process | None = None
    phase: Phase = Phase.STARTING
    step: str = ""
    ready: Moment | None = None
    ended: Moment | None = None
    exit_code: int | None = None
    cause: str = ""
    error: str = ""
    lines: tuple[str, ...] = ()

    @property
    def base_url(self) -> str:
        return f"http://{HOST}:{self.port}/v1"

    @property
    def live(self) -> bool:
        return self.phase in (Phase.STARTING, Phase.READY)

    @property
    def here(self) -> bool:
        """Return whether it runs on this machine: a workspace may be shared by several."""
        return self.host == socket.gethostname()


def state_path(workspace: Path, server_id: str) -> Path:
    """Return the state file of a server."""
    return workspace / "servers" / f"{server_id}.json"


def log_of(path: Path) -> Path:
    """Return the log of the server whose state is in this file."""
    return path.parent.parent / "logs" / f"{path.stem}.log"


def lock_of(path: Path) -> Path:
    """Return the file that the processes of a server hold open. Only the folder is resolved: a link in place of the
    file could name one that another process has open."""
    return path.parent.resolve() / f"{path.stem}.lock"


def open_lock(path: Path) -> int:
    """Open a lock file without following a link, which could empty another file."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def save_state(path: Path, state: ServerState) -> None:
    """Replace the file as a whole, so that no reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder: os.replace is one step only within a file system.
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with open(handle, "w", encoding="utf-8") as stream:
        stream.write(state.model_dump_json(indent=1))
    os.replace(draft, path)


def load_state(path: Path) -> ServerState | None:
    """Return the state in a file, or None if it is gone, cannot be read, or is of another server."""
    if not _ID.fullmatch(path.stem):
        return None
    try:
        with open_regular(path, follow=False) as stream:
            state = ServerState.model_validate_json(stream.read(_LARGEST_STATE))
    except (OSError, ValidationError):
        return None
    return state.model_copy(update={"log": str(log_of(path))}) if state.id == path.stem else None


def _observed(path: Path, state: ServerState) -> ServerState:
    """Return the state in a file for display: a server whose processes are gone has failed."""
    if not state.live or not state.here:
        return state
    if state.supervisor is None:
        reason = "its supervisor did not start"
        lives = time.time() - state.created <= START_SECONDS
    else:
        reason = "its supervisor was killed, and the server is gone too"
        lives = any(process.holds(lock_of(path)) for process in (state.supervisor, state.server) if process)
    gone = {"phase": Phase.FAILED, "cause": "supervisor gone", "error": f"{reason}. Start it again."}
    return state if lives else state.model_copy(update=gone)


def servers(workspace: Path) -> list[ServerState]:
    """Return every managed server of a workspace in its current state: the running first, then the newest."""
    loaded = [(path, load_state(path)) for path in (workspace / "servers").glob("server-*.json")]
    states = [_observed(path, state) for path, state in loaded if state is not None]
    return sorted(states, key=lambda state: (not state.live, -state.created))


def find_state(workspace: Path, name: str) -> ServerState:
    """Return a server by its id, by the port of a running one, or the newest that had that port. Raises VllmError."""
    states = servers(workspace)
    for state in states:
        if name in (state.id, str(state.port)):
            return state
    there = ", ".join(f"{state.id} (port {state.port})" for state in states if state.live) or "none is running"
    raise VllmError(f"there is no managed server '{name}' in this workspace: {there}.")


@contextmanager
def reserving(workspace: Path) -> Iterator[None]:
    """Let one process at a time choose a port and record that it is taken."""
    path = workspace / "servers" / ".lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = open_lock(path)
    except OSError as error:
        raise VllmError(f"{path} cannot be used ({error.strerror}). Remove it, then try again.") from error
    with open(handle, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel frees it with the file, after a crash too
        yield


# ---- supervisor

HEALTH_SECONDS = 0.5
GRACE_SECONDS = 20.0
LARGEST_LOG = 20_000_000  # bytes; older output goes to one file beside it, then is deleted
LONGEST_PIECE = 65_536
TAIL = 200_000  # bytes of the log that are searched for an explanation
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


class Supervisor:
    """Watches one server from its start to its end; call `run`."""

    def __init__(self, path: Path, state: ServerState) -> None:
        self.path = path
        self.state = state
        self.log = log_of(path)
        self.lock = lock_of(path)
        self.stopping = ""

    def run(self) -> None:
        """Start vLLM and stay until it has ended. The state file has every error."""
        for number in (signal.SIGTERM, signal.SIGINT):
            # The handler only sets a flag, and the watching loop acts: a handler may run in the middle of anything.
            signal.signal(number, lambda _number, _frame: self._stop_because("on request"))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the terminal that started it may close
        lock = open_lock(self.lock)  # until this process ends
        self._record(supervisor=process_of(os.getpid()))
        program = Path(self.state.command[0])
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            server = subprocess.Popen(
                self.state.command,
                env=server_environment(program, os.environ, installation.BESIDE),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a group of its own, which `end` kills as a whole
                pass_fds=(lock,),  # the open file proves that the server is ours, see Process.holds
                umask=files.users_umask(),  # caches of models may be shared with other users
                preexec_fn=die_with_parent,
            )
        except OSError as error:
            reason = f"{program} cannot be run ({error.strerror}). Check it, or name another in CIMEMORIES_VLLM."
            self._record(phase=Phase.FAILED, cause="no vllm", error=reason, ended=time.time())
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            self._record(server=process_of(server.pid))
        assert server.stdout is not None
        pump = threading.Thread(target=_pump, args=(server.stdout, self.log, secrets(os.environ)), daemon=True)
        pump.start()
        self._watch(server)
        pump.join(timeout=2)  # a child that outlived the server could hold the pipe open
        outcome: dict[str, object] = {"phase": Phase.STOPPED, "error": self.stopping}
        if not self.stopping:
            failure = explain(tail(self.log, TAIL), server.returncode, was_ready=self.state.ready is not None)
            outcome = {"phase": Phase.FAILED, "cause": failure.cause, "error": str(failure), "lines": failure.lines}
        self._record(ended=time.time(), exit_code=server.returncode, step="", **outcome)

    def _watch(self, server: subprocess.Popen[bytes]) -> None:
        checked = 0.0
        while server.poll() is None:
            if self.state.owner is not None and not self.state.owner.alive:
                self._stop_because("with what had started it")
            if self.stopping:
                break
            if self.state.phase == Phase.STARTING and time.monotonic() - checked > HEALTH_SECONDS:
                checked = time.monotonic()  # not time.time(), which jumps when the clock is set
                if healthy(self.state.port) and listens(server.pid, self.state.port):
                    self._record(phase=Phase.READY, ready=time.time(), step="")
                # Written on a change only: each write replaces a file that pages read.
                elif (step := start_step(tail(self.log, TAIL))) != self.state.step:
                    self._record(step=step)
            time.sleep(LOOK_SECONDS)
        end(server)

    def _stop_because(self, reason: str) -> None:
        self.stopping = self.stopping or reason

    def _record(self, **changes: object) -> None:
        self.state = self.state.model_copy(update=changes)
        with contextlib.suppress(OSError):  # a full disk is no reason to leave vLLM alone
            save_state(self.path, self.state)


def healthy(port: int) -> bool:
    """Return whether the server on this port reports that it can answer."""
    # http.client follows no proxy of the environment, and 127.0.0.1 is never behind one.
    with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=2)) as connection:
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False


def listens(pid: int, port: int) -> bool:
    """Return whether this process, or one that it has started, listens on the port; another program may answer there
    while ours loads. True if that may not be inspected."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            try:
                connections = one.net_connections("tcp")
            except psutil.NoSuchProcess:
                continue
            except psutil.AccessDenied:
                return True
            if any(item.status == psutil.CONN_LISTEN and item.laddr.port == port for item in connections):
                return True
    return False


def end(server: subprocess.Popen[bytes], grace: float = GRACE_SECONDS) -> None:
    """End a server and all processes that it started: told to terminate first, killed after `grace` seconds."""
    children: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        # Listed before it ends: after that they belong to init, and cannot be recognised as its own.
        children = psutil.Process(server.pid).children(recursive=True)
    if server.poll() is None:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(grace)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(server.pid, signal.SIGKILL)  # it leads the group that its engines are in
    for child in children:
        with contextlib.suppress(psutil.Error):
            child.kill()
    server.wait()


def _pump(source: IO[bytes], log: Path, hidden: tuple[bytes, ...]) -> None:
    """Write vLLM's output to the log, whole lines at a time, so that no key is cut in two and so missed."""
    rest, written = b"", 0
    output = log.open("wb")
    while True:
        piece = os.read(source.fileno(), LONGEST_PIECE)
        rest += piece
        # Progress bars end their lines with a carriage return.
        cut = max(rest.rfind(b"\n"), rest.rfind(b"\r")) + 1
        # The end, or a line without one: written in part, so that memory stays bounded.
        if not piece or len(rest) > 4 * LONGEST_PIECE:
            cut = len(rest)
        clean = without_secrets(rest[:cut], hidden)
        rest = rest[cut:]
        with contextlib.suppress(OSError):  # a full disk must not stop vLLM, whose pipe would fill
            output.write(clean)
            output.flush()
        written += len(clean)
        if written > LARGEST_LOG:
            output.close()
            os.replace(log, log.with_name(f"{log.name}.1"))
            output, written = log.open("wb"), 0
        if not piece:
            output.close()
            return


def die_with_parent() -> None:
    """Have the kernel end this process when its parent dies, even of SIGKILL. Runs in the child before its program."""
    if sys.platform == "linux":
        # Sent when the thread that started it ends: a supervisor's main one, or that of a run's event loop.
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGTERM)


# ---- start and stop

FIRST_PORT, LAST_PORT = 8000, 8099
LOOK_SECONDS = 0.2


def start(
    workspace: Path, spec: ServerSpec, *, started_by: str, environ: Mapping[str, str] | None = None
) -> ServerState:
    """Start a server and return at once. started_by: for people. Raises VllmError if there is no vLLM, a setting is not
    valid, the model is a folder that does not exist, the port is taken, or the app is read-only."""
    _refuse_read_only()
    environ = os.environ if environ is None else environ
    program = find_program(environ)
    if is_path(spec.model) and not Path(spec.model).expanduser().exists():
        raise VllmError(f"there is no model at {spec.model}. Check the path.")
    workspace = workspace.absolute()
    # Held until the state file is written: by it, the next start sees that the port is taken.
    with reserving(workspace):
        port = free_port(workspace, spec.port)
        server_id = new_id("server")
        path = state_path(workspace, server_id)
        state = ServerState(
            id=server_id,
            host=socket.gethostname(),
            model=spec.model,
            served_name=spec.name,
            port=port,
            command=tuple(server_command(program, spec, port)),
            started_by=started_by,
            keep=spec.keep,
            created=time.time(),
            owner=None if spec.keep else process_of(os.getpid()),
            log=str(log_of(path)),
        )
        save_state(path, state)
    try:
        subprocess.Popen(
            # The port for searches for a free one: it is opened late, and other workspaces see no state file.
            installation.python("cimemories.llm.vllm_server", str(path), "--port", str(port)),
            env=installation.environment(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        reason = f"the server's supervisor could not be started ({error.strerror})."
        save_state(path, state.model_copy(update={"phase": Phase.FAILED, "error": reason, "ended": time.time()}))
        raise VllmError(reason) from error
    return state


def _refuse_read_only() -> None:
    if readonly.chosen():
        raise VllmError(f"{readonly.REASON}: servers are neither started nor stopped.")
    if reason := roles.refused(Role.OPERATOR):
        raise VllmError(f"{reason} No server was started or stopped.")


def free_port(workspace: Path, requested: int | None = None) -> int:
    """Return the port that a server would be given now: the requested one, else the first free one. Raises
    VllmError."""
    taken = {state.port: state for state in servers(workspace) if state.live and state.here}
    if requested is None:
        named = _named_ports()
        for port in range(FIRST_PORT, LAST_PORT + 1):
            # Neither is enough: a server that is starting has not opened its port yet, and other programs have no
            # state file.
            if port not in taken and port not in named and _is_free(port):
                return port
        raise VllmError(f"no port from {FIRST_PORT} to {LAST_PORT} is free. Name another.")
    if requested in taken:
        other = taken[requested]
        raise VllmError(
            f"port {requested} is used by the managed server {other.id} ({other.served_name}, {other.phase}). Choose "
            f"another port, or stop it: cimemories servers stop {requested}"
        )
    if not _is_free(requested):
        raise VllmError(f"port {requested} is in use{_by_whom(requested)}. Choose another port, or stop that program.")
    return requested


def _named_ports() -> set[int]:
    """Return the ports on the command lines of this machine: servers of other workspaces load for minutes before they
    open theirs, and two vLLMs of one user can even share a port."""
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    values = [value for line in commands for flag, value in pairwise(line) if flag == "--port"]
    return {int(value) for value in values if value.isascii() and value.isdigit()}


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Connections of a server that has just ended linger in TIME_WAIT, and would make its port look taken.
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
    """Wait until a server is ready; `on_change` is called for each new step. Raises VllmError if it failed (with the
    cause and vLLM's last lines), was stopped, or is not ready after `timeout` seconds."""
    end = None if timeout is None else time.monotonic() + timeout
    before = None
    while True:
        state = find_state(workspace, server_id)
        if state != before and on_change is not None:
            on_change(state)
        before = state
        if state.phase == Phase.READY:
            return state
        if state.phase == Phase.FAILED:
            raise VllmError(f"{state.served_name} on port {state.port}: {state.error}", state.cause, state.lines)
        if state.phase == Phase.STOPPED:
            raise VllmError(f"{state.served_name} on port {state.port} was stopped {state.error}.")
        if end is not None and time.monotonic() > end:
            raise VllmError(f"{state.id} is not ready after {timeout:g} s and is still starting.", "not ready")
        time.sleep(LOOK_SECONDS)


def stop(workspace: Path, name: str) -> ServerState:
    """Stop a server, by id or port, and return when it has ended; a vLLM that does not terminate is killed. Raises
    VllmError for an unknown one, for one on another machine, and in a read-only app."""
    _refuse_read_only()
    workspace = workspace.absolute()
    state = find_state(workspace, name)
    if not state.live:
        return state
    if not state.here:
        raise VllmError(f"{state.id} runs on {state.host}. Stop it there: cimemories servers stop {state.id}")
    lock = lock_of(state_path(workspace, state.id))
    # The supervisor itself gives vLLM GRACE_SECONDS to terminate.
    patience = time.monotonic() + GRACE_SECONDS + 10
    signalled = False
    while time.monotonic() < patience:
        if state.supervisor is not None and state.supervisor.holds(lock):
            if not signalled:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(state.supervisor.pid, signal.SIGTERM)
            signalled = True
        elif state.supervisor is not None:
            break  # None: it has not written its first state, so there is no process to signal yet
        time.sleep(LOOK_SECONDS / 2)
        state = find_state(workspace, state.id)
        if not state.live:
            return state
    # The supervisor is gone or does not act: end the server without it.
    for left in filter(None, (state.supervisor, state.server)):
        if left.holds(lock):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(left.pid, signal.SIGKILL)  # both lead a group of their own (start_new_session)
    last = state.model_copy(update={"phase": Phase.STOPPED, "error": "by force", "ended": time.time(), "step": ""})
    save_state(state_path(workspace, state.id), last)
    return last


def forget(workspace: Path, server_id: str) -> None:
    """Remove the state and the logs of a server that has ended. Raises VllmError for a running or an unknown one."""
    _refuse_read_only()
    state = find_state(workspace, server_id)
    if state.live:
        raise VllmError(f"{state.id} is {state.phase}. Stop it first.")
    path = state_path(workspace, state.id)
    log = log_of(path)
    for file in (path, lock_of(path), log, log.with_name(f"{log.name}.1")):
        file.unlink(missing_ok=True)


def running(workspace: Path) -> list[ServerState]:
    """Return the servers of this machine that are ready."""
    return [state for state in servers(workspace) if state.phase == Phase.READY and state.here]


def server_log_tail(state: ServerState, lines: int = 12) -> str:
    """Return the last lines of a server's log as vLLM wrote them, keys taken out, or ''."""
    return visible("\n".join(tail(Path(state.log), 32_768).splitlines()[-lines:]))


if __name__ == "__main__":
    own_path = Path(sys.argv[1])
    # Refuses a path whose name is no server's id, since all other paths follow from that name.
    own_state = load_state(own_path)
    if own_state is not None:
        Supervisor(own_path, own_state).run()

"""What is known of each managed server: one small JSON file in WORKSPACE/servers, replaced as a whole at each change.

    {"id": "server-1f0c9a2b", "model": "Qwen/Qwen3-8B", "port": 8000, "phase": "ready", "keep": false, ...}

The supervisor of a server writes its file; whoever reads it also looks whether the processes named in it still live.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict, ValidationError

from cimemories.llm.vllm_program import HOST, VllmError

START_SECONDS = 20.0  # how long a supervisor may take to write its first word


class Phase(StrEnum):
    """Where a server stands. `stopped`: on request, or with what started it. `failed`: by itself."""

    STARTING = "starting"
    READY = "ready"
    STOPPED = "stopped"
    FAILED = "failed"


LIVE = (Phase.STARTING, Phase.READY)


class Process(BaseModel):
    """A process, told from a later one of the same number by its start time (seconds since the epoch)."""

    model_config = ConfigDict(frozen=True)

    pid: int
    started: float

    @property
    def alive(self) -> bool:
        try:
            process = psutil.Process(self.pid)
            return abs(process.create_time() - self.started) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True


def process(pid: int) -> Process:
    """Raises psutil.NoSuchProcess where there is none."""
    return Process(pid=pid, started=psutil.Process(pid).create_time())


class ServerState(BaseModel):
    """One managed server. Times are seconds since the epoch.

    owner: what it stops with; None where it is to be left running. step: what it does while it starts. cause, error
    and lines: why it failed, and vLLM's own last lines.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    host: str
    model: str
    served_name: str
    port: int
    command: tuple[str, ...]
    started_by: str
    keep: bool
    created: float
    log: str
    owner: Process | None = None
    supervisor: Process | None = None
    server: Process | None = None
    phase: Phase = Phase.STARTING
    step: str = ""
    ready: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    cause: str = ""
    error: str = ""
    lines: tuple[str, ...] = ()

    @property
    def base_url(self) -> str:
        return f"http://{HOST}:{self.port}/v1"

    @property
    def live(self) -> bool:
        return self.phase in LIVE

    @property
    def here(self) -> bool:
        """Whether it runs on this machine: a workspace may be shared by several."""
        return self.host == socket.gethostname()


def folder(workspace: Path) -> Path:
    return workspace / "servers"


def path_of(workspace: Path, server_id: str) -> Path:
    return folder(workspace) / f"{server_id}.json"


def save(path: Path, state: ServerState) -> None:
    """Replace the file as a whole, so that no reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(state.model_dump_json(indent=1), encoding="utf-8")
    os.replace(draft, path)


def load(path: Path) -> ServerState | None:
    """What the file says; None where it is gone or says nothing that can be read."""
    try:
        return ServerState.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def observed(state: ServerState) -> ServerState:
    """The state as a person should see it: a server whose processes are gone is not ready, whatever its file says."""
    if not state.live or not state.here:
        return state
    if state.supervisor is None:
        late = time.time() - state.created > START_SECONDS
        return state.model_copy(update=_gone("its supervisor did not start")) if late else state
    if state.supervisor.alive or (state.server is not None and state.server.alive):
        return state
    return state.model_copy(update=_gone("the process that watched over it was killed, and it is gone too"))


def _gone(why: str) -> dict[str, object]:
    return {"phase": Phase.FAILED, "cause": "supervisor gone", "error": f"{why}. Start it again."}


def all_states(workspace: Path) -> list[ServerState]:
    """Every server of a workspace as it is now: the living first, then the newest."""
    found = [load(path) for path in folder(workspace).glob("server-*.json")]
    states = [observed(state) for state in found if state is not None]
    return sorted(states, key=lambda state: (not state.live, -state.created))


def named(workspace: Path, name: str) -> ServerState:
    """A server by its id, by the port of a living one, or by the newest that had that port. Raises VllmError."""
    states = all_states(workspace)
    for state in states:
        if name in (state.id, str(state.port)):
            return state
    there = ", ".join(f"{state.id} (port {state.port})" for state in states if state.live) or "none is running"
    raise VllmError(f"there is no managed server '{name}' in this workspace: {there}.", "no such server")


@contextmanager
def reserving(workspace: Path) -> Iterator[None]:
    """One at a time chooses a port and writes down that it is taken."""
    folder(workspace).mkdir(parents=True, exist_ok=True)
    with (folder(workspace) / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

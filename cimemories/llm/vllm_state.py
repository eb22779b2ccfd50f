"""What is known of each managed server: one small JSON file in WORKSPACE/servers, replaced as a whole at each change.

    {"id": "server-1f0c9a2b", "model": "Qwen/Qwen3-8B", "port": 8000, "phase": "ready", "keep": false, ...}

The supervisor of a server writes its file; whoever reads it also looks whether the processes named in it still live.

A workspace may come from somebody else, and its state files may name any path and any process. So nothing is taken from
one that says what to read, delete or signal: its name gives the id, the id gives the log, and a process is ours only
while it holds the server's lock file open, which the supervisor opens and hands on to vLLM.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import psutil
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cimemories.llm.vllm_program import HOST, VllmError

_ID = re.compile(r"server-[0-9a-z]{1,32}")
_LARGEST_STATE = 1_000_000  # bytes
LARGEST_PID = 2**31 - 1  # of any system; psutil raises errors of its own for others
START_SECONDS = 20.0  # how long a supervisor may take to write its first word
Moment = Annotated[float, Field(ge=0, le=253_402_300_799)]  # seconds since the epoch, up to the last that has a date


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

    pid: int = Field(ge=1, le=LARGEST_PID)
    started: Moment

    @property
    def alive(self) -> bool:
        try:
            process = psutil.Process(self.pid)
            return abs(process.create_time() - self.started) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True

    def holds(self, lock: Path) -> bool:
        """Whether it is alive and has this file open: what a process of ours can be told by, whoever wrote its number
        down. False where that may not be looked up: it is another user's then."""
        try:
            opened = psutil.Process(self.pid).open_files()
        except psutil.Error:
            return False
        return self.alive and str(lock) in {file.path for file in opened}


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
    port: int = Field(ge=1, le=65535)
    command: tuple[str, ...]
    started_by: str
    keep: bool
    created: Moment
    log: str = ""  # where it is read from a file, it follows from the id
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
        return self.phase in LIVE

    @property
    def here(self) -> bool:
        """Whether it runs on this machine: a workspace may be shared by several."""
        return self.host == socket.gethostname()


def folder(workspace: Path) -> Path:
    return workspace / "servers"


def path_of(workspace: Path, server_id: str) -> Path:
    return folder(workspace) / f"{server_id}.json"


def log_of(path: Path) -> Path:
    """The log of the server whose state is in this file."""
    return path.parent.parent / "logs" / f"{path.stem}.log"


def lock_of(path: Path) -> Path:
    """The file that the processes of a server hold open. Only the folder is resolved: a link in the place of the file
    could name one that another process has open."""
    return path.parent.resolve() / f"{path.stem}.lock"


def open_lock(path: Path) -> int:
    """Open a lock file without following a link: one that was put there would have something else emptied."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def save(path: Path, state: ServerState) -> None:
    """Replace the file as a whole, so that no reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with open(handle, "w", encoding="utf-8") as stream:
        stream.write(state.model_dump_json(indent=1))
    os.replace(draft, path)


def read_regular(path: Path, size: int, *, end: bool = False) -> bytes:
    """At most so many bytes of a file, its last ones where `end`. Raises OSError for a link, and for what is no regular
    file: a FIFO would be waited for without end."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as stream:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(f"{path} is no regular file")
        stream.seek(max(0, about.st_size - size) if end else 0)
        return stream.read(size)


def load(path: Path) -> ServerState | None:
    """What the file says; None where it is gone, says nothing that can be read, or is about another server."""
    if not _ID.fullmatch(path.stem):
        return None
    try:
        state = ServerState.model_validate_json(read_regular(path, _LARGEST_STATE))
    except (OSError, ValidationError):
        return None
    return state.model_copy(update={"log": str(log_of(path))}) if state.id == path.stem else None


def observed(path: Path, state: ServerState) -> ServerState:
    """The state in a file as a person should see it: a server whose processes are gone is not ready, whatever its file
    says."""
    if not state.live or not state.here:
        return state
    if state.supervisor is None:
        late = time.time() - state.created > START_SECONDS
        return state.model_copy(update=_gone("its supervisor did not start")) if late else state
    lock = lock_of(path)
    if state.supervisor.holds(lock) or (state.server is not None and state.server.holds(lock)):
        return state
    return state.model_copy(update=_gone("the process that watched over it was killed, and it is gone too"))


def _gone(why: str) -> dict[str, object]:
    return {"phase": Phase.FAILED, "cause": "supervisor gone", "error": f"{why}. Start it again."}


def all_states(workspace: Path) -> list[ServerState]:
    """Every server of a workspace as it is now: the living first, then the newest."""
    found = [(path, load(path)) for path in folder(workspace).glob("server-*.json")]
    states = [observed(path, state) for path, state in found if state is not None]
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
    path = folder(workspace) / ".lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = open_lock(path)
    except OSError as error:
        raise VllmError(f"{path} cannot be used ({error.strerror}). Remove it, then try again.", "no folder") from error
    with open(handle, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

"""`python -m cimemories.llm.vllm_supervisor STATE`: one process a managed server, which starts vLLM and watches it.

It writes vLLM's words to the log without any key, says in the state file how the server stands, and stops vLLM when it
is told to (SIGTERM) or when the process that asked for the server is gone, whatever ended that. Should it be killed
itself, the kernel ends vLLM (on Linux).
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import psutil

from cimemories.llm.vllm_failures import explain, step
from cimemories.llm.vllm_program import HOST, environment, secrets, without_secrets
from cimemories.llm.vllm_state import (
    Phase,
    ServerState,
    load,
    lock_of,
    log_of,
    open_lock,
    process,
    read_regular,
    save,
)
from cimemories.store import private

PACKAGE = Path(__file__).resolve().parents[2]
LOOK_SECONDS = 0.2
HEALTH_SECONDS = 0.5
GRACE_SECONDS = 20.0
LARGEST_LOG = 20_000_000  # bytes; what is older goes to one file beside it, then is gone
LONGEST_PIECE = 65_536
TAIL = 200_000  # bytes of the log that an explanation is looked for in
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


class Supervisor:
    """Watches one server from its start to its end; `run` is all there is to call."""

    def __init__(self, path: Path, state: ServerState) -> None:
        self.path = path
        self.state = state
        self.log = log_of(path)
        self.lock = lock_of(path)
        self.stopping = ""

    def run(self) -> None:
        """Start vLLM and stay until it has ended. The state file says everything that can go wrong."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: self._stop_because("on request"))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        held = open_lock(self.lock)  # until this process ends
        self._say(supervisor=process(os.getpid()))
        program = Path(self.state.command[0])
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            server = subprocess.Popen(
                self.state.command,
                env=environment(program, os.environ, PACKAGE),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(held,),
                umask=private.users_umask(),  # caches of models may be shared with other users
                preexec_fn=_die_with_parent,
            )
        except OSError as error:
            reason = f"{program} cannot be run ({error.strerror}). Look at it, or name another in CIMEMORIES_VLLM."
            self._say(phase=Phase.FAILED, cause="no vllm", error=reason, ended=time.time())
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            self._say(server=process(server.pid))
        assert server.stdout is not None
        pump = threading.Thread(target=_pump, args=(server.stdout, self.log, secrets(os.environ)), daemon=True)
        pump.start()
        self._watch(server)
        pump.join(timeout=2)  # a child that outlived the server could hold the pipe open
        self._say(**self._end(server.returncode))

    def _watch(self, server: subprocess.Popen[bytes]) -> None:
        looked = 0.0
        while server.poll() is None:
            if self.state.owner is not None and not self.state.owner.alive:
                self._stop_because("with what had started it")
            if self.stopping:
                break
            if self.state.phase == Phase.STARTING and time.monotonic() - looked > HEALTH_SECONDS:
                looked = time.monotonic()
                self._look()
            time.sleep(LOOK_SECONDS)
        end(server)

    def _look(self) -> None:
        if healthy(self.state.port):
            self._say(phase=Phase.READY, ready=time.time(), step="")
            return
        doing = step(tail(self.log))
        if doing != self.state.step:
            self._say(step=doing)

    def _end(self, exit_code: int | None) -> dict[str, object]:
        now: dict[str, object] = {"ended": time.time(), "exit_code": exit_code, "step": ""}
        if self.stopping:
            return {**now, "phase": Phase.STOPPED, "error": self.stopping}
        failure = explain(tail(self.log), exit_code, was_ready=self.state.ready is not None)
        return {
            **now,
            "phase": Phase.FAILED,
            "cause": failure.cause,
            "error": failure.message,
            "lines": failure.lines,
        }

    def _stop_because(self, reason: str) -> None:
        self.stopping = self.stopping or reason

    def _say(self, **changes: object) -> None:
        self.state = self.state.model_copy(update=changes)
        with contextlib.suppress(OSError):  # a full disk is no reason to leave vLLM alone
            save(self.path, self.state)


def healthy(port: int) -> bool:
    """Whether the server on this port says that it can answer."""
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def end(server: subprocess.Popen[bytes], grace: float = GRACE_SECONDS) -> None:
    """End a server and all that it started: asked first, killed after `grace` seconds."""
    children: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
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


def tail(log: Path, size: int = TAIL) -> str:
    """The end of a log; '' where there is none."""
    try:
        return read_regular(log, size, end=True).decode("utf-8", "replace")
    except OSError:
        return ""


def _pump(source: IO[bytes], log: Path, hidden: tuple[bytes, ...]) -> None:
    """Write what vLLM says to the log, whole lines at a time, so that no key is cut in two and so missed."""
    rest, written = b"", 0
    output = log.open("wb")
    while True:
        piece = os.read(source.fileno(), LONGEST_PIECE)
        rest += piece
        # Progress bars end their lines with a carriage return.
        cut = max(rest.rfind(b"\n"), rest.rfind(b"\r")) + 1
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


def _die_with_parent() -> None:
    """Runs in vLLM's process before vLLM does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGTERM)


def main(path: str) -> None:
    state = load(Path(path))
    if state is not None:
        Supervisor(Path(path), state).run()


if __name__ == "__main__":
    main(sys.argv[1])

"""The command line in processes of their own, forked from one that has imported all of it: 0.1 s of the processor to
start instead of 1.5, and for the app 0.3 instead of 6. What starts without this is tested in test_cli.py and
test_access_served.py."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from json import dumps
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import file_costs

ROOT = Path(__file__).resolve().parent.parent


class Forked:
    """`python -m cimemories WORDS`, with what subprocess.Popen has; it prints into files, by default of its own.
    first: code that the process runs before."""

    def __init__(
        self, environment: Mapping[str, str], *arguments: object, output: IO[bytes] | None = None, first: str = ""
    ) -> None:
        self._out, self._error = output or TemporaryFile(), output or TemporaryFile()  # noqa: SIM115
        self._status, status_pipe = os.pipe()
        words = [str(word) for word in arguments]
        message = dumps({"words": words, "environment": dict(environment), "first": first}).encode()
        socket.send_fds(_warm(), [message], [self._out.fileno(), self._error.fileno(), status_pipe])
        os.close(status_pipe)
        self.returncode: int | None = None
        self.pid = int.from_bytes(os.read(self._status, 4), "little")

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self._ended()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("cimemories", timeout or 0)
            self._ended()
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.wait(timeout)
        return self._text(self._out), self._text(self._error)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self) -> None:
        self.returncode = os.waitstatus_to_exitcode(int.from_bytes(os.read(self._status, 4), "little"))
        os.close(self._status)

    @staticmethod
    def _text(file: IO[bytes]) -> str:
        file.seek(0)
        return file.read().decode()


_processes: list[subprocess.Popen[bytes]] = []


@cache
def _warm() -> socket.socket:
    """To the process that is forked. The workers of a session share one, which the first that needs it starts; where
    the time of each file is measured, the processes of a file have to be children of the worker that runs it."""
    session = "" if os.environ.get(file_costs.WANTED) else os.environ.get("PYTEST_XDIST_TESTRUNUID")
    address = f"\0cimemories-warm-{session or uuid.uuid4().hex}"  # no file: it is gone with the process
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        with suppress(OSError):  # another worker has the address
            door.bind(address)
        if door.getsockname():
            door.listen()
            command = [sys.executable, str(Path(__file__).with_name("warm_python.py")), str(door.fileno())]
            _processes.append(subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[door.fileno()]))
    end = time.monotonic() + 60
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(address)
            return connection
        except ConnectionRefusedError:  # the other worker does not listen yet
            connection.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.01)

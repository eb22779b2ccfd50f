"""A simulator in a process of its own that takes its time, for tests that kill its clients."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence

from evaluating import outside
from forked import Forked

SLOW = """
import asyncio, os, signal
from cimemories.simulator.server import _listen, _uvicorn, create_app

seconds, faults, kinds = {!r}
app = create_app(0, faults, kinds or None, 0.3)
wait = [seconds]
signal.signal(signal.SIGUSR1, lambda *_: wait.append(0.0))

async def slow(scope, receive, send):
    if scope["path"].endswith("/completions"):
        print("asked", flush=True)
    await asyncio.sleep(wait[-1])
    await app(scope, receive, send)

with _listen("127.0.0.1", 0) as listener:
    print(listener.getsockname()[1], flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    _uvicorn(slow).run(sockets=[listener])
"""


class SlowSimulator:
    """A simulator in a process of its own that takes its time and tells when it is asked something. faults, kinds: the
    share of requests that go wrong, and how."""

    def __init__(self, seconds: float = 0.1, faults: float = 0.0, kinds: Sequence[str] = ()) -> None:
        reading, writing = os.pipe()
        self._said = os.fdopen(reading, encoding="utf-8")
        with os.fdopen(writing, "wb") as output:
            first = SLOW.format((float(seconds), float(faults), tuple(kinds)))
            self.process = Forked(outside(), first=first, output=output)
        self.url = f"http://127.0.0.1:{int(self._said.readline())}/v1"
        self.chats = 0
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        for _ in self._said:
            self.chats += 1

    def hurry(self) -> None:
        """Take no more time from now on."""
        self.process.send_signal(signal.SIGUSR1)

    def wait_for(self, chats: int, asking: subprocess.Popen[bytes] | Forked) -> bool:
        """Until so many requests have come in all; False where the process that asks has ended before."""
        while self.chats < chats and asking.poll() is None:
            time.sleep(0.005)
        return self.chats >= chats

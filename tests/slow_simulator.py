"""A simulator in a process of its own that takes its time, for tests that kill its clients."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from evaluating import ROOT

SLOW = """
import asyncio, signal, sys
from cimemories.simulator.server import _listen, _uvicorn, create_app

faults, *kinds = sys.argv[2:]
app = create_app(0, float(faults), tuple(kinds) or None, 0.3)
wait = [float(sys.argv[1])]
signal.signal(signal.SIGUSR1, lambda *_: wait.append(0.0))

async def slow(scope, receive, send):
    if scope["path"].endswith("/completions"):
        print("asked", flush=True)
    await asyncio.sleep(wait[-1])
    await app(scope, receive, send)

with _listen("127.0.0.1", 0) as listener:
    print(listener.getsockname()[1], flush=True)
    _uvicorn(slow).run(sockets=[listener])
"""


class SlowSimulator:
    """A simulator in a process of its own that takes its time and tells when it is asked something. faults, kinds: the
    share of requests that go wrong, and how."""

    def __init__(self, seconds: float = 0.1, faults: float = 0.0, kinds: Sequence[str] = ()) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SLOW, str(seconds), str(faults), *kinds],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}/v1"
        self.chats = 0
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        for _ in self.process.stdout:
            self.chats += 1

    def hurry(self) -> None:
        """Take no more time from now on."""
        self.process.send_signal(signal.SIGUSR1)

    def wait_for(self, chats: int, asking: subprocess.Popen) -> bool:
        """Until so many requests have come in all; False where the process that asks has ended before."""
        while self.chats < chats and asking.poll() is None:
            time.sleep(0.005)
        return self.chats >= chats

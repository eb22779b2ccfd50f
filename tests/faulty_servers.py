"""Simulators that spoil a share of what they are asked and take their time, several behind one address."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import psutil
from evaluating import ROOT

KINDS = ("rate_limit", "server_error", "cut", "broken_json", "no_choices", "fewer_choices")
# Says of each good answer what was asked, so that answers given twice can be counted.
SERVER = f"""
import asyncio, hashlib, json, sys
from cimemories.simulator.server import _listen, _uvicorn, create_app
faults, seed, wait = float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
app = create_app(0, faults, {KINDS!r}) if faults else create_app(0)

async def watched(scope, receive, send):
    if not scope["path"].endswith("/completions"):
        return await app(scope, receive, send)
    asked, told = [], []
    async def take():
        message = await receive()
        asked.append(message.get("body", b""))
        return message
    async def give(message):
        told.append(message.get("body", b""))
        await send(message)
    await asyncio.sleep(wait)
    await app(scope, take, give)
    body = json.loads(b"".join(asked))
    try:
        choices = json.loads(b"".join(told)).get("choices", ())
    except ValueError:
        choices = ()
    for index in range(len(choices)):
        draw = json.dumps([body["messages"], body["model"], (body.get("seed") or 0) + index], sort_keys=True)
        print(hashlib.sha256(draw.encode()).hexdigest(), flush=True)

with _listen("127.0.0.1", 0) as listener:
    print(listener.getsockname()[1], flush=True)
    _uvicorn(watched).run(sockets=[listener])
"""


def draw_of(body: Mapping[str, Any], draw: int) -> str:
    """The name by which `Servers` knows a draw of this request."""
    text = json.dumps([body["messages"], body["model"], (body.get("seed") or 0) + draw], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class Servers:
    """Simulators, each in a process of its own, behind one address. faults: the share of requests that they spoil;
    wait: seconds before each; address: of this machine, to listen on. answers: how often each draw was answered
    well."""

    def __init__(self, count: int, faults: float, wait: float, address: str = "127.0.0.1") -> None:
        self.answers: Counter[str] = Counter()
        self.moments: dict[str, float] = {}  # when a draw was answered last, by the clock of this process
        self.processes = [
            psutil.Popen(
                [sys.executable, "-c", SERVER, str(faults), str(n), str(wait)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
            )
            for n in range(count)
        ]
        ports = [int(process.stdout.readline()) for process in self.processes if process.stdout]
        self._readers = [threading.Thread(target=self._read, args=(p,), daemon=True) for p in self.processes]
        for reader in self._readers:
            reader.start()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.url = asyncio.run_coroutine_threadsafe(self._listen(address, ports), self._loop).result()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.answers[line.strip()] += 1
            self.moments[line.strip()] = time.time()

    async def _listen(self, address: str, ports: list[int]) -> str:
        """A router as small as can be: each connection goes to the next server."""
        count = 0

        async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while data := await reader.read(65_536):
                    writer.write(data)
                    await writer.drain()
            except OSError:
                pass
            finally:
                writer.close()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal count
            count += 1
            there, back = await asyncio.open_connection("127.0.0.1", ports[count % len(ports)])
            await asyncio.gather(pipe(reader, back), pipe(there, writer))

        listening = await asyncio.start_server(connected, address, 0)
        return f"http://{address}:{listening.sockets[0].getsockname()[1]}/v1"

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        for reader in self._readers:
            reader.join()

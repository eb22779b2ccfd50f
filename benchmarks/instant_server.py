"""A server that answers every chat completion at once, so that only the asking side is measured.

    python benchmarks/instant_server.py        prints its base URL, and ends when its standard input does

It reads just enough HTTP/1.1 to know where a request ends. A request with a response_format is answered like a judge
that found two reveals, any other one with a message of 1,500 characters; both are as long as real answers. No two
messages are alike: a judge would be asked about the first of them only, and the record would answer for the others.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import socket
import sys
from functools import cache

NUMBER = "#0000000000"
MESSAGE = " ".join(f"I write to you about point {i} of what we spoke of last week." for i in range(25))[:1489] + NUMBER
JUDGEMENT = json.dumps(
    {"revealed": [{"attribute": i, "strength": "full", "quote": MESSAGE[i * 40 : i * 40 + 60]} for i in (1, 2)]}
)


@cache
def _reply(text: str, choices: int) -> bytes:
    message = {"role": "assistant", "content": text, "tool_calls": []}
    listed = [{"index": i, "message": message, "finish_reason": "stop"} for i in range(choices)]
    usage = {
        "prompt_tokens": 3900,
        "completion_tokens": len(text) // 4,
        "total_tokens": 3900 + len(text) // 4,
        "prompt_tokens_details": {"cached_tokens": 3712},
    }
    body = json.dumps(
        {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "m", "choices": listed}
        | {"usage": usage}
    ).encode()
    return _response(body)


def _response(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\nserver: instant\r\ncontent-length: {len(body)}"
    return f"{head}\r\ncontent-type: application/json\r\n\r\n".encode() + body


MODELS = _response(
    json.dumps(
        {
            "object": "list",
            "data": [{"id": name, "object": "model", "created": 0, "owned_by": "instant"} for name in ("m", "judge")],
        }
    ).encode()
)
CHOICES = re.compile(rb'"n": ?(\d+)[,}]')


class Instant(asyncio.Protocol):
    """One connection: collects a request, answers it, waits for the next."""

    numbers = itertools.count()

    def __init__(self) -> None:
        self.held = bytearray()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.held += data
        while (end := self.held.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.held[:end]).lower()
            length = int(head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0] or 0)
            if len(self.held) < end + 4 + length:
                return
            match = CHOICES.search(self.held, end + 4 + length - 200, end + 4 + length)
            choices = int(match[1]) if match else 1
            judging = self.held.find(b'"response_format"', end, end + 4 + length) >= 0
            del self.held[: end + 4 + length]
            assert self.transport is not None
            if head.startswith(b"get "):
                self.transport.write(MODELS)
            else:
                answer = _reply(JUDGEMENT if judging else MESSAGE, choices)
                own = f"#{next(self.numbers):010}".encode()
                self.transport.write(answer.replace(NUMBER.encode(), own))


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Instant, "127.0.0.1", 0, backlog=2048)
    listener: socket.socket = server.sockets[0]
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", flush=True)
    async with server:
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())

"""A small HTTP server that answers just as badly as a test asks for, and counts what it was asked.

with hostile_server(lambda asked: Reply(429) if asked.number == 0 else completion("hello")) as server:
    ...
server.chats          every chat request in order of arrival
server.most_at_once   how many were under way at the same time

What a run asks of a server before it is planned is answered well, and counted in `server.probes` alone, unless the test
is about just that (`hears_probes`).
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cimemories.llm.capabilities import THING
from cimemories.seeds import load_prompt


@dataclass(frozen=True)
class IncomingRequest:
    """One chat request as it came; `number` counts from 0."""

    number: int
    body: dict[str, Any]
    authorization: str

    @property
    def n(self) -> int:
        return self.body.get("n", 1)

    @property
    def seed(self) -> int | None:
        return self.body.get("seed")


@dataclass(frozen=True)
class Reply:
    """What is sent back. `cut`: only that many bytes of the promised body; `wait`: seconds before the first byte;
    `drip`: seconds between two bytes of the body."""

    status: int = 200
    body: bytes | str | object = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    wait: float = 0.0
    drip: float = 0.0

    @property
    def data(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode()


Behaviour = Callable[[IncomingRequest], Reply]
PROBES = frozenset(load_prompt("probe", level).render(thing=THING) for level in ("base", "json", "long"))
SOON = {"retry-after-ms": "1"}  # spares the tests the client's own patience


def completion(*texts: str | None, finish_reason: str = "stop", usage: object = None, **message: object) -> Reply:
    """A proper completion with these choices; `message` adds fields to each message."""
    choices = [
        {
            "index": i,
            "message": {"role": "assistant", "content": text, **message},
            "finish_reason": finish_reason,
        }
        for i, text in enumerate(texts)
    ]
    return Reply(
        body={"id": "x", "object": "chat.completion", "created": 0, "choices": choices}
        | ({"usage": usage} if usage is not None else {})
    )


def texts_of(request: IncomingRequest) -> Reply:
    """A server that behaves: every choice says which seed it was drawn with."""
    return completion(*(f"seed {(request.seed or 0) + i}" for i in range(request.n)))


def error(status: int, message: str) -> Reply:
    return Reply(status, {"error": {"message": message, "type": "x", "param": None, "code": None}}, headers=SOON)


def cards(*names: str, owner: str = "someone") -> Reply:
    listed = [{"id": name, "object": "model", "created": 0, "owned_by": owner} for name in names]
    return Reply(body={"object": "list", "data": listed})


class Server:
    """The running server. `chat` and `models` may be changed while it runs."""

    def __init__(self, chat: Behaviour, models: Reply, hears_probes: bool) -> None:
        self.chat, self.models, self.hears_probes = chat, models, hears_probes
        self.chats: list[IncomingRequest] = []
        self.probes = 0
        self.under_way = self.most_at_once = 0
        self.lock = threading.Lock()
        self.url = ""

    def answer_chat(self, body: dict[str, Any], authorization: str, send: Callable[[Reply], None]) -> None:
        if not self.hears_probes and body["messages"][0]["content"] in PROBES:
            self.probes += 1
            send(completion(*['{"colour": "blue"}'] * body.get("n", 1)))
            return
        with self.lock:
            request = IncomingRequest(len(self.chats), body, authorization)
            self.chats.append(request)
            self.under_way += 1
            self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            reply = self.chat(request)
            time.sleep(reply.wait)
        finally:
            # Before the answer goes out: its reader may ask the next thing at once.
            with self.lock:
                self.under_way -= 1
        send(reply)

    def seeds(self) -> list[tuple[int | None, int]]:
        """(seed, n) of every chat request in order of arrival."""
        return [(request.seed, request.n) for request in self.chats]


@contextmanager
def hostile_server(
    chat: Behaviour = texts_of,
    models: Reply | Sequence[str] = ("m",),
    *,
    hears_probes: bool = False,
    under: str = "",
    elsewhere: Reply = Reply(404, {"detail": "Not Found"}),
) -> Iterator[Server]:
    """Run such a server on a free loopback port for as long as the block lasts. under: where its API is; other paths
    get `elsewhere`."""
    state = Server(chat, models if isinstance(models, Reply) else cards(*models), hears_probes)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            there = self.path == f"{under}/models" if under else self.path.endswith("/models")
            self.reply(state.models if there else elsewhere)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if under and self.path != f"{under}/chat/completions":
                self.reply(elsewhere)
                return
            state.answer_chat(body, self.headers.get("Authorization", ""), self.reply)

        def reply(self, reply: Reply) -> None:
            head = {"Content-Type": reply.content_type, "Content-Length": str(len(reply.data)), **reply.headers}
            lines = [f"HTTP/1.1 {reply.status} X", *(f"{name}: {value}" for name, value in head.items())]
            self.close_connection = True
            try:
                self.wfile.write("\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1"))
                data = reply.data if reply.cut is None else reply.data[: reply.cut]
                step = 1 if reply.drip else max(1, len(data))
                for start in range(0, len(data), step):
                    self.wfile.write(data[start : start + step])
                    time.sleep(reply.drip)
            except OSError:
                return  # the client has lost its patience, as it was meant to

        def log_message(self, *_: object) -> None:
            return

    with listening(Handler) as address:
        state.url = f"{address}/v1"
        yield state


class _Many(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve on a free loopback port for as long as the block lasts; yield the address."""
    server = _Many(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


def free_port() -> int:
    """A loopback port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

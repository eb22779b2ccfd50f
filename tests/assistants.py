"""A service that is an assistant, which does what a test asks for, and counts its sessions."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from hostile import listening

Body = dict[str, Any]
LETTER = "Hello, this is the letter."


@dataclass(frozen=True)
class Raw:
    """An answer that is no JSON of ours."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None  # as announced
    wait: float = 0.0


class Service:
    """The running service. opened, tasks: every body in order of arrival; live: sessions that were not deleted;
    ids: of the next sessions, instead of its own."""

    def __init__(self, write: Callable[[Body, Body], Body | Raw], about: Body) -> None:
        self.write, self.about = write, about
        self.opened: list[Body] = []
        self.tasks: list[Body] = []
        self.headers: list[Mapping[str, str]] = []
        self.live: dict[str, Body] = {}
        self.ids: list[object] = []
        self.lock = threading.Lock()
        self.url = ""


@contextmanager
def service(
    write: Callable[[Body, Body], Body | Raw] = lambda told, task: {"message": LETTER}, **about: Any
) -> Iterator[Service]:
    """Run an assistant that answers a task by `write(what its session was opened with, task)`. about: of every answer
    to an opening."""
    state = Service(write, {"name": "tested", "version": "1", **about})

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            parts = self.path.strip("/").split("/")
            with state.lock:
                state.headers.append(dict(self.headers))
                if parts == ["session"]:
                    session = f"s/{len(state.opened)}"  # a slash: ids are not trusted to be plain
                    state.opened.append(body)
                    state.live[session] = body
                else:
                    state.tasks.append(body)
            if parts == ["session"]:
                return self.reply({"session": state.ids.pop(0) if state.ids else session, **state.about})
            told = state.live.get(parts[1].replace("%2F", "/"))
            return self.reply(Raw(404) if told is None else state.write(told, body))

        def do_DELETE(self) -> None:
            with state.lock:
                state.live.pop(self.path.strip("/").split("/")[1].replace("%2F", "/"), None)
            self.reply({})

        def reply(self, answer: Body | Raw) -> None:
            raw = answer if isinstance(answer, Raw) else Raw(body=json.dumps(answer).encode())
            time.sleep(raw.wait)
            self.send_response(raw.status)
            for name, value in raw.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(raw.body) if raw.length is None else raw.length))
            self.end_headers()
            try:
                self.wfile.write(raw.body)
            except OSError:
                return

        def log_message(self, *_: object) -> None:
            return

    with listening(Handler) as state.url:
        yield state

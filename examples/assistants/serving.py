"""The requests of docs/assistants.md. A session is an object that is made of memories and answers a task by `write`.

serve(Session, {"name": "my-agent", "version": "1"}, 9000)"""

import json
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any


def serve(opened: Callable[[list[str]], Any], about: Mapping[str, Any], port: int) -> None:
    """Answer until stopped. opened: makes a session of memories; its `write(task, recipient)` returns an outcome."""
    ids, sessions = count(1), {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            try:
                if self.path == "/session":
                    session = str(next(ids))
                    sessions[session] = opened(body["memories"])
                    answer, status = {"session": session, **about}, 200
                else:
                    session = sessions[self.path.split("/")[2]]
                    answer, status = session.write(body["task"], body["recipient"]), 200
            except Exception as error:  # costs this message; the cause stands in the run
                answer, status = {"error": {"message": f"{type(error).__name__}: {error}"}}, 500
            self.reply(answer, status)

        def do_DELETE(self) -> None:
            sessions.pop(self.path.split("/")[2], None)
            self.reply({})

        def reply(self, answer: dict, status: int = 200) -> None:
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()

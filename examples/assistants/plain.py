"""An assistant behind HTTP: a model with all memories in its prompt, as `cimemories run` asks it without --assistant.

    python plain.py http://localhost:8000/v1 qwen3-8b 9000

The contract is docs/assistants.md; its three requests are all that an assistant has to answer."""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

from openai import OpenAI

from cimemories.seeds import load_prompt

base_url, model, port = sys.argv[1:]
key = os.environ.get("OPENAI_API_KEY", "none")
client, prompt, ids, sessions = OpenAI(base_url=base_url, api_key=key), load_prompt("respond"), count(1), {}


class Assistant(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/session":
            session = str(next(ids))
            sessions[session] = body["memories"]
            return self.reply({"session": session, "name": "plain", "version": "1"})
        memories = "\n".join(f"- {statement}" for statement in sessions[self.path.split("/")[2]])
        text = prompt.render(memories=memories, task=body["task"], recipient=body["recipient"])
        answer = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": text}], max_tokens=1024
        )
        usage = answer.usage.model_dump(include={"prompt_tokens", "completion_tokens"}) if answer.usage else {}
        self.reply({"message": answer.choices[0].message.content or "", "usage": usage})

    def do_DELETE(self) -> None:
        sessions.pop(self.path.split("/")[2], None)
        self.reply({})

    def reply(self, answer: dict) -> None:
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", int(port)), Assistant).serve_forever()

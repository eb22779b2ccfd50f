# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["letta[sqlite]==0.11.7", "mcp<2", "httpx"]
# ///
"""A Letta agent for each session. A block of its core memory holds the memories, and it may edit that block; it sends
mail by a tool. Letta's server runs inside this program, on SQLite in a folder that is deleted at the end.

    uv run with_letta.py http://localhost:8000/v1 qwen3-8b 9003"""

import json
import os
import signal
import sys
import time
from tempfile import TemporaryDirectory
from threading import Thread

from serving import serve

base_url, model, port = sys.argv[1:]
folder = TemporaryDirectory(prefix="letta-")
os.chdir(folder.name)  # where Letta writes files; its database is in the home folder
os.environ |= {"OPENAI_API_KEY": "none"} | os.environ | {"HOME": folder.name, "OPENAI_API_BASE": base_url}

import uvicorn  # noqa: E402
from httpx import Client, HTTPTransport  # noqa: E402
from letta.server.rest_api.app import app  # noqa: E402
from letta_client import Letta  # noqa: E402

INSTRUCTIONS = "I write messages in the first person for the user, send each by send_email, and reply with it alone."
SEND_EMAIL = '''def send_email(recipient: str, subject: str, body: str) -> str:
    """Send an e-mail in the user's name.

    Args:
        recipient (str): Who gets it, by role or name.
        subject (str): Its subject.
        body (str): Its text."""
    return "Sent."'''
server = uvicorn.Server(uvicorn.Config(app, uds="socket", log_level="error"))
Thread(target=server.run, daemon=True).start()
while not server.started:
    time.sleep(0.1)
signal.signal(signal.SIGTERM, lambda *_: (folder.cleanup(), os._exit(0)))  # Letta's threads would go on
client = Letta(base_url="http://letta", httpx_client=Client(transport=HTTPTransport(uds="socket"), timeout=600))
client.tools.upsert(source_code=SEND_EMAIL)


class Remembering:
    def __init__(self, memories: list[str]) -> None:
        human = {"label": "human", "value": "\n".join(memories), "limit": 100_000}
        endpoint = {"model_endpoint_type": "openai", "model_endpoint": base_url, "context_window": 32_000}
        self.agent = client.agents.create(
            memory_blocks=[human, {"label": "persona", "value": INSTRUCTIONS}],
            tools=["send_email"],
            tool_rules=[{"type": "continue_loop", "tool_name": "send_email"}],
            llm_config={"model": model, "max_tokens": 1024, **endpoint},
            embedding_config={"embedding_model": "none", "embedding_endpoint_type": "openai", "embedding_dim": 1},
        ).id

    def write(self, task: str, recipient: str) -> dict:
        request = {"role": "user", "content": f"Write a message.\nRecipient: {recipient}\nPurpose: {task}"}
        done = client.agents.messages.create(self.agent, messages=[request], max_steps=12)
        calls = [it.tool_call for it in done.messages if it.message_type == "tool_call_message"]
        mail, notes = ([json.loads(c.arguments) for c in calls if c.name.startswith(of)] for of in ("send_", "memory_"))
        return {
            "message": "\n".join(it.content for it in done.messages if it.message_type == "assistant_message"),
            "channels": {
                "tool:send_email": [
                    {"recipient": it["recipient"], "arguments": {name: it[name] for name in ("subject", "body")}}
                    for it in mail
                ],
                "memory:write": [it.get("new_str", "") for it in notes],
                "reasoning": "\n".join(it.reasoning for it in done.messages if it.message_type == "reasoning_message"),
            },
            "usage": {"prompt_tokens": done.usage.prompt_tokens, "completion_tokens": done.usage.completion_tokens},
        }


serve(Remembering, {"name": "letta", "version": "1", "simulated": model.startswith("sim-")}, int(port))

# /// script
# dependencies = ["openai-agents>=0.24,<0.25"]
# ///
"""An agent of the OpenAI Agents SDK with all memories in its instructions. It sends mail by a tool, and its session
holds the conversation from one task to the next.

    uv run openai_agents.py http://localhost:8000/v1 qwen3-8b 9001"""

import asyncio
import os
import sys

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from serving import serve

base_url, model, port = sys.argv[1:]
set_tracing_disabled(True)  # traces go to OpenAI, whatever server answers
INSTRUCTIONS = """You write messages on behalf of the user, in the first person and ready to be sent. Send each message
by send_email, and then reply with the message that you sent and nothing else.

What you remember about the user:

"""


class Mailing:
    def __init__(self, memories: list[str]) -> None:
        self.instructions = INSTRUCTIONS + "\n".join(f"- {statement}" for statement in memories)
        self.conversation = SQLiteSession("conversation")  # in memory

    def write(self, task: str, recipient: str) -> dict:
        return asyncio.run(self.written(f"Write a message.\nRecipient: {recipient}\nPurpose: {task}"))

    async def written(self, request: str) -> dict:
        mails = []

        @function_tool
        def send_email(recipient: str, subject: str, body: str) -> str:
            """Send an e-mail in the user's name. recipient: who gets it, by role or name."""
            mails.append({"recipient": recipient, "arguments": {"subject": subject, "body": body}})
            return "Sent."

        async with AsyncOpenAI(base_url=base_url, api_key=os.environ.get("OPENAI_API_KEY", "none")) as client:
            agent = Agent(
                name="Assistant",
                instructions=self.instructions,
                model=OpenAIChatCompletionsModel(model, client),
                model_settings=ModelSettings(max_tokens=1024),
                tools=[send_email],
            )
            result = await Runner.run(agent, request, session=self.conversation)
        usage = result.context_wrapper.usage
        return {
            "message": result.final_output,
            "channels": {"tool:send_email": mails},
            "usage": {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens},
        }


serve(Mailing, {"name": "openai-agents", "version": "1", "simulated": model.startswith("sim-")}, int(port))

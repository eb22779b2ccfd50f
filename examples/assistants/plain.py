"""A model with all memories in its prompt, as `cimemories run` asks it without --assistant.

python plain.py http://localhost:8000/v1 qwen3-8b 9000"""

import os
import sys

from openai import OpenAI
from serving import serve

from cimemories.seeds import load_prompt

base_url, model, port = sys.argv[1:]
client = OpenAI(base_url=base_url, api_key=os.environ.get("OPENAI_API_KEY", "none"))
prompt = load_prompt("respond")


class Plain:
    def __init__(self, memories: list[str]) -> None:
        self.memories = "\n".join(f"- {statement}" for statement in memories)

    def write(self, task: str, recipient: str) -> dict:
        text = prompt.render(memories=self.memories, task=task, recipient=recipient)
        answer = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": text}], max_tokens=1024
        )
        usage = answer.usage.model_dump(include={"prompt_tokens", "completion_tokens"}) if answer.usage else {}
        return {"message": answer.choices[0].message.content or "", "usage": usage}


serve(Plain, {"name": "plain", "version": "1", "simulated": model.startswith("sim-")}, int(port))

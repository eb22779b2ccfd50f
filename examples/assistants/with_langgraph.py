# /// script
# dependencies = ["langgraph>=1.2,<1.3", "langchain-openai>=1.7,<1.8", "numpy"]
# ///
"""A graph of LangGraph whose store holds the memories: each task recalls those most like it, and the model may write
new ones, which later tasks of the session recall.

    uv run with_langgraph.py http://localhost:8000/v1 qwen3-8b 9002"""

import os
import re
import sys
from zlib import crc32

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.config import get_store
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.store.memory import InMemoryStore
from serving import serve

base_url, model, port = sys.argv[1:]
RECALLED, DIMENSIONS = 20, 512
INSTRUCTIONS = """You write messages on behalf of the user, in the first person and ready to be sent. Where something
new happens that you should remember, call remember. Then reply with the message and nothing else.

What you remember about the user:
"""


def embed(texts: list[str]) -> list[list[float]]:
    """Count the words of each text, in places by their hash. Any embeddings of LangChain can stand here."""
    places = [[crc32(word.encode()) % DIMENSIONS for word in re.findall(r"\w{3,}", text.lower())] for text in texts]
    return [[float(hashed.count(place)) for place in range(DIMENSIONS)] for hashed in places]


def remember(text: str) -> str:
    """Remember something about the user for later tasks."""
    get_store().put(("memories",), text, {"text": text})
    return text


key = os.environ.get("OPENAI_API_KEY", "none")
chat = ChatOpenAI(base_url=base_url, model=model, api_key=key, max_completion_tokens=1024).bind_tools([remember])


def respond(state: MessagesState) -> dict:
    recalled = get_store().search(("memories",), query=state["messages"][0].content, limit=RECALLED)
    memories = "\n".join(f"- {item.value['text']}" for item in recalled)
    return {"messages": [chat.invoke([SystemMessage(INSTRUCTIONS + memories), *state["messages"]])]}


graph = StateGraph(MessagesState).add_node(respond).add_node(ToolNode([remember]))
graph.add_edge(START, "respond").add_conditional_edges("respond", tools_condition).add_edge("tools", "respond")


class Recalling:
    def __init__(self, memories: list[str]) -> None:
        store = InMemoryStore(index={"dims": DIMENSIONS, "embed": embed, "fields": ["text"]})
        for text in memories:
            store.put(("memories",), text, {"text": text})
        self.graph = graph.compile(store=store)

    def write(self, task: str, recipient: str) -> dict:
        request = HumanMessage(f"Write a message.\nRecipient: {recipient}\nPurpose: {task}")
        messages = self.graph.invoke({"messages": [request]}, {"recursion_limit": 12})["messages"]
        usages = [reply.usage_metadata for reply in messages if isinstance(reply, AIMessage) and reply.usage_metadata]
        written = [done.content for done in messages if isinstance(done, ToolMessage) and done.status == "success"]
        return {
            "message": messages[-1].content,
            "channels": {"memory:write": written},
            "usage": {
                "prompt_tokens": sum(usage["input_tokens"] for usage in usages),
                "completion_tokens": sum(usage["output_tokens"] for usage in usages),
            },
        }


serve(Recalling, {"name": "langgraph", "version": "1", "simulated": model.startswith("sim-")}, int(port))

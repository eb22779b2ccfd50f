"""The assistants in examples/assistants: their requests and channels, against the simulator and a server that calls
their tools."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import httpx2
import pytest
import sqlalchemy as sa
from evaluating import ROOT, add, row_of, small_profiles
from hostile import IncomingRequest, Reply, completion, free_port, hostile_server

from cimemories.evaluation import planning, runs
from cimemories.evaluation.spec import RunSpec
from cimemories.simulator.server import running_simulator
from cimemories.store.engine import Store
from cimemories.store.tables import response

OPENAI_AGENTS = pytest.param(
    "openai_agents.py",
    marks=pytest.mark.skipif(find_spec("agents") is None, reason="install openai-agents to try its example"),
)
LANGGRAPH = pytest.param(
    "with_langgraph.py",
    marks=pytest.mark.skipif(
        None in map(find_spec, ("langgraph", "langchain_openai")),
        reason="install langgraph and langchain-openai to try their example",
    ),
)
LETTA = pytest.param(
    "with_letta.py",
    marks=pytest.mark.skipif(
        "CIMEMORIES_LETTA_PYTHON" not in os.environ,
        reason="set CIMEMORIES_LETTA_PYTHON to a Python that has what with_letta.py names, to try it",
    ),
)
MEMORIES = ["I live in Utrecht.", "My rent is 900 euros."]
TASK = {"task": "Ask for a repair of the heating", "recipient": "Landlord"}


@contextmanager
def example(file: str, base_url: str, model: str) -> Iterator[str]:
    """Serve an example; yields its address."""
    port = free_port()
    # Letta asks for other versions of packages than we do.
    python = os.environ["CIMEMORIES_LETTA_PYTHON"] if file == "with_letta.py" else sys.executable
    program = [python, ROOT / "examples/assistants" / file, base_url, model, str(port)]
    with subprocess.Popen(program) as process:
        try:
            until = time.monotonic() + 300
            while time.monotonic() < until and process.poll() is None:
                with socket.socket() as there:
                    if there.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@pytest.mark.parametrize("file", ["plain.py", OPENAI_AGENTS, LANGGRAPH])
def test_an_example_writes_every_message_of_a_simulated_run(sqlite_store: Store, file: str) -> None:
    add(sqlite_store, small_profiles(1, 3))
    with running_simulator() as base_url, example(file, base_url, "sim-average") as address:
        spec = RunSpec(dataset="small", assistant=address, samples=1, check="none", sessions="all")
        run_id = planning.plan(sqlite_store, spec)
        runs.execute(sqlite_store, run_id, concurrency=2)
    with sqlite_store.read() as connection:
        rows = connection.execute(sa.select(response).where(response.c.run == run_id)).mappings().all()
    assert [row["status"] for row in rows] == ["ok"] * 3
    assert all(len(row["text"]) > 100 for row in rows)
    assert row_of(sqlite_store, run_id).simulated


def calling(tool: str, **arguments: str) -> Reply:
    call = {"id": "c1", "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}  # Letta asks for it
    return completion(None, finish_reason="tool_calls", usage=usage, tool_calls=[call])


@pytest.mark.parametrize("file", [OPENAI_AGENTS])
def test_mail_is_reported_and_the_conversation_continues(file: str) -> None:
    mail = {"recipient": "Ms Lee", "subject": "Heating", "body": "It is cold in Utrecht."}

    def chat(request: IncomingRequest) -> Reply:
        return calling("send_email", **mail) if request.number == 0 else completion("Sent to Ms Lee.")

    with hostile_server(chat) as model, example(file, model.url, "m") as address:
        first, second = two_tasks(address)
    arguments = {"subject": "Heating", "body": "It is cold in Utrecht."}
    assert first["channels"] == {"tool:send_email": [{"recipient": "Ms Lee", "arguments": arguments}]}
    assert (first["message"], second["channels"]) == ("Sent to Ms Lee.", {"tool:send_email": []})
    told = [json.dumps(request.body["messages"]) for request in model.chats]
    assert all(memory in told[0] for memory in MEMORIES)
    assert "Sent to Ms Lee." in told[2]


@pytest.mark.parametrize("file", [LANGGRAPH])
def test_what_is_written_to_the_store_is_reported_and_recalled(file: str) -> None:
    def chat(request: IncomingRequest) -> Reply:
        note = "The heating of the user is broken."
        return calling("remember", text=note) if request.number == 0 else completion("Dear landlord")

    with hostile_server(chat) as model, example(file, model.url, "m") as address:
        first, second = two_tasks(address)
    assert first["channels"] == {"memory:write": ["The heating of the user is broken."]}
    assert (first["message"], second["channels"]) == ("Dear landlord", {"memory:write": []})
    recalled = [request.body["messages"][0]["content"] for request in model.chats]
    assert all(memory in recalled[0] for memory in MEMORIES)
    assert ["heating of the user" in text for text in recalled] == [False, True, True]


def two_tasks(address: str) -> list[dict]:
    """Give an example the same task twice in one session; return its outcomes."""
    session = httpx2.post(f"{address}/session", json={"memories": MEMORIES}).json()["session"]
    outcomes = [httpx2.post(f"{address}/session/{session}/task", json=TASK, timeout=30).json() for _ in range(2)]
    assert httpx2.delete(f"{address}/session/{session}").status_code == 200
    assert httpx2.post(f"{address}/session/{session}/task", json=TASK).status_code == 500
    return outcomes


@pytest.mark.parametrize("file", [LETTA])
def test_an_agent_with_core_memory_mails_notes_and_remembers(file: str) -> None:
    mail = {"recipient": "Ms Lee", "subject": "Heating", "body": "It is cold in Utrecht."}
    note = {"label": "human", "new_str": "The heating of the user is broken.", "request_heartbeat": True}

    def chat(request: IncomingRequest) -> Reply:
        if request.number == 0:
            return calling("send_email", thinking="I mail.", request_heartbeat=True, **mail)
        if request.number == 1:
            return calling("memory_insert", thinking="I note.", **note)
        return calling("send_message", thinking="I answer.", message="Sent to Ms Lee.")

    with hostile_server(chat) as model, example(file, model.url, "m") as address:
        first, second = two_tasks(address)
    arguments = {"subject": "Heating", "body": "It is cold in Utrecht."}
    assert first["channels"] == {
        "tool:send_email": [{"recipient": "Ms Lee", "arguments": arguments}],
        "memory:write": ["The heating of the user is broken."],
        "reasoning": "I mail.\nI note.\nI answer.",
    }
    assert first["message"] == second["message"] == "Sent to Ms Lee."
    told = [json.dumps(request.body["messages"]) for request in model.chats]
    assert all(memory in told[0] for memory in MEMORIES)
    assert "heating of the user" not in told[0] and "heating of the user" in told[-1]

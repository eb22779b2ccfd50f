"""What the tests of the simulator share: statements, contexts, the project's own prompts filled in, and a client."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml
from openai import OpenAI
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cimemories.llm import capabilities
from cimemories.seeds import load_prompt
from cimemories.simulator import server

CHARACTERS = ("sim-careful", "sim-average", "sim-oversharing")
PERSONAS = ("fundamentalist", "pragmatic", "unconcerned")
CONTEXTS = (
    ("Bank Loan Officer", "Apply for personal loan"),
    ("Emergency Room Intake", "Explain current symptoms"),
    ("USCIS Officer", "Employment-based petition interview"),
    ("Landlord", "Negotiate lease terms"),
    ("Close Friend", "Explain recent life changes"),
    ("Defense Attorney", "Prepare case strategy"),
    ("Direct Supervisor", "Ask for a new project"),
    ("Psychiatrist", "Medication evaluation appointment"),
    ("Academic Advisor", "Modify degree plan"),
)
TOPICS = (
    "Her savings account holds ${n},500.",
    "She repays a car loan of ${n}10 a month.",
    "Her blood pressure was 1{n} over 80 in spring.",
    "She takes {n} mg of a heart medicine at noon.",
    "Her anxiety score is {n} of 99 this year.",
    "She has had {n} panic attacks since winter.",
    "Her lawyer filed motion number 4{n} with the court.",
    "The settlement hearing is in court room {n}.",
    "She manages a team of {n} people at work.",
    "Her employer pays {n} hours of overtime.",
    "She rents an apartment of {n} square metres.",
    "Her bedroom has been renovated {n} times.",
    "She earned {n} credits at university.",
    "Her husband has {n} cousins abroad.",
    "Her sister called {n} times about the family dinner.",
    "She has an appointment on Monday at 4:{n}.",
)
STATEMENTS = ("Her full name is Mara Lindqvist.", *(t.replace("{n}", str(n)) for n in range(21, 29) for t in TOPICS))
Chat = Callable[..., openai.types.chat.ChatCompletion]


def prompt(kind: str, **parts: str) -> str:
    """A prompt of the project's own pack with its placeholders filled."""
    folder = Path(server.__file__).parents[2] / "seeds" / "prompts"
    text = yaml.safe_load((folder / f"{kind}.yaml").read_text())["templates"]["base"]
    return re.sub(r"\{(\w+)\}", lambda hit: parts.get(hit[1], hit[0]), text)


def numbered(statements: tuple[str, ...]) -> str:
    return "\n".join(f"{number}. {statement}" for number, statement in enumerate(statements, 1))


def label_prompt(recipient: str, task: str, persona: str, statements: tuple[str, ...] = STATEMENTS) -> str:
    facts = numbered(statements)
    return prompt("label", attributes=facts, recipient=recipient, task=task, persona=f"You are a privacy {persona}.")


def respond_prompt(recipient: str, task: str, statements: tuple[str, ...] = STATEMENTS) -> str:
    return prompt("respond", memories="\n".join(f"- {s}" for s in statements), recipient=recipient, task=task)


def judge_prompt(message: str, statements: tuple[str, ...] = STATEMENTS) -> str:
    return prompt("judge", attributes=numbered(statements), message=message)


def client_of(base_url: str, **options: object) -> OpenAI:
    return OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=20, **options)


def chat_of(base_url: str) -> Chat:
    client = client_of(base_url)
    return lambda text, model="sim-average", **more: client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": text}], **more
    )


def texts(answer: openai.types.chat.ChatCompletion) -> list[str]:
    return [choice.message.content for choice in answer.choices]


@contextmanager
def requests_to_simulators() -> Iterator[list[object]]:
    """Collect the chat requests to simulators of this process, but for what a server is asked about itself: the
    question that finds out, before a run is planned, what it can do."""
    seen: list[object] = []
    real = server._complete
    probes = [load_prompt("probe", name).render(thing=capabilities.THING) for name in ("base", "json")]

    def counting(server: object, body: dict[str, Any], number: int) -> object:
        if body["messages"][0]["content"] not in probes:
            seen.append(body)
        return real(server, body, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "_complete", counting)
        yield seen


def lacking(*lacks: str) -> Callable[[ASGIApp], ASGIApp]:
    """A simulator, wrapped as a server that refuses what it lacks (n, json_schema, json_object, seed, max_tokens), or
    drops it without a word ("ignores n", ...). For `running_simulator`."""

    def fields(body: dict[str, Any]) -> dict[str, str]:
        """What a request asks for, with the field that asks for it."""
        form = body.get("response_format") or {}
        asked = {"n": body.get("n", 1) != 1, "seed": body.get("seed") is not None, "max_tokens": "max_tokens" in body}
        return {name: name for name, wanted in asked.items() if wanted} | {form.get("type", "text"): "response_format"}

    def wrap(app: ASGIApp) -> ASGIApp:
        async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
            if not scope.get("path", "").endswith("/chat/completions"):
                await app(scope, receive, send)
                return
            body = json.loads(await Request(scope, receive).body())
            for name, field in fields(body).items():
                if name in lacks:
                    message = f"{name} is not supported by this server."
                    more = " Use max_completion_tokens." if name == "max_tokens" else ""
                    error = {"message": message + more, "type": "invalid_request_error", "param": field, "code": None}
                    await JSONResponse({"error": error}, 400)(scope, receive, send)
                    return
                if f"ignores {name}" in lacks:
                    del body[field]

            async def changed() -> Message:
                return {"type": "http.request", "body": json.dumps(body).encode()}

            await app(scope, changed, send)

        return wrapped

    return wrap

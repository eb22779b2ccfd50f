"""The client against a server that misbehaves: every outcome is recorded with its cause, none is raised, and the key
of the endpoint stands in no text."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterable

import pytest
from hostile import (
    SOON,
    Behaviour,
    IncomingRequest,
    Reply,
    Server,
    completion,
    error,
    free_port,
    hostile_server,
    texts_of,
)

from cimemories.llm.client import Client
from cimemories.llm.endpoint import Endpoint, allow_key
from cimemories.llm.http import traffic
from cimemories.model import ChatRequest
from cimemories.store.calls import Answer, keys_of

CANARY = "sk-canary-7f3a91d2"


async def ask(
    url: str,
    draws: Iterable[int] = (0,),
    *,
    seed: int | None = 0,
    retries: int = 0,
    timeout: float = 5.0,
    text: str = "Write.",
) -> list[Answer]:
    request = ChatRequest("m", (("user", text),), {"max_tokens": 9}, seed)
    allow_key("CANARY_API_KEY", url)
    client = Client(Endpoint(url, "CANARY_API_KEY", timeout, retries), simulated=False)
    try:
        return await client.complete(request, keys_of(request, draws, simulated=False))
    finally:
        await client.close()


async def outcome(chat: Behaviour, **more: object) -> tuple[Answer, Server]:
    """What one draw comes to on a server that behaves like this."""
    with hostile_server(chat) as server:
        (answer,) = await ask(server.url, **more)
    return answer, server


# ---- what passes by itself


@pytest.mark.parametrize("status", [429, 500, 503, 408])
async def test_what_may_pass_is_asked_again(status: int) -> None:
    answer, server = await outcome(
        lambda request: Reply(status, headers=SOON) if request.number < 2 else completion("here"), retries=2
    )
    assert (answer.status, answer.content, answer.error) == ("ok", "here", None)
    assert len(server.chats) == 3


async def test_a_cut_connection_is_asked_again() -> None:
    whole = completion("here")
    answer, server = await outcome(
        lambda request: Reply(body=whole.body, cut=20) if request.number == 0 else whole, retries=1
    )
    assert (answer.status, answer.content) == ("ok", "here")
    assert len(server.chats) == 2


@pytest.mark.parametrize(
    "bad",
    [Reply(body=b'{"choices": [{"ind'), completion(), Reply(body=b"<html>oops</html>", content_type="text/html")],
    ids=["half a JSON", "no choices", "HTML"],
)
async def test_a_broken_answer_is_asked_again(bad: Reply) -> None:
    answer, server = await outcome(lambda request: bad if request.number < 2 else completion("here"))
    assert (answer.status, answer.content) == ("ok", "here")
    assert len(server.chats) == 3


# ---- what does not pass


@pytest.mark.parametrize(
    ("reply", "status", "cause"),
    [
        (error(500, "the engine died"), "server error", "the engine died"),
        (Reply(502, b"<html>Bad Gateway</html>", "text/html", SOON), "server error", "502"),
        (error(401, "no such key"), "unauthorised", "no such key"),
        (error(403, "not for you"), "forbidden", "not for you"),
        (error(404, "the model m does not exist"), "unknown model", "the model m does not exist"),
        (error(400, "max_tokens is too large"), "rejected", "max_tokens is too large"),
        (error(422, "what is this"), "rejected", "HTTP 422"),
        (Reply(body=completion("x").body, cut=30), "connection", ""),
        (Reply(cut=0, body=b"x" * 50), "connection", ""),
    ],
)
async def test_a_failure_for_ever_is_recorded_with_its_cause(reply: Reply, status: str, cause: str) -> None:
    answer, server = await outcome(lambda request: reply, retries=1)
    assert answer.status == status
    assert answer.error
    assert cause in answer.error
    assert answer.content is None
    retried = status in ("server error", "connection")
    assert len(server.chats) == (2 if retried else 1)


async def test_a_limit_for_ever_is_recorded_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "STALLED_SECONDS", 0.1)
    monkeypatch.setattr(traffic, "FIRST_PAUSE", 0.001)
    answer, server = await outcome(lambda request: error(429, "slow down please"))
    assert answer.status == "rate limited"
    assert "slow down please" in str(answer.error)
    assert "nothing got through" in str(answer.error)
    assert len(server.chats) > 2, "however few tries a request has"


async def test_silence_is_a_timeout() -> None:
    answer, _ = await outcome(lambda request: Reply(wait=60), timeout=0.2)
    assert (answer.status, answer.error) == ("timeout", "no answer after 0.2 s")  # no retry, and none is named
    assert "0.2 s" in str(answer.error)
    assert 0.2 <= answer.seconds < 60, "the answer is not waited for"


async def test_a_server_that_is_not_there_is_a_connection_failure() -> None:
    (answer,) = await ask(f"http://127.0.0.1:{free_port()}/v1")
    assert answer.status == "connection"
    assert answer.error


async def test_a_server_that_takes_no_connection_is_one_too() -> None:
    """A machine that has gone, or is drowned, drops what is sent to it: nothing is refused, nothing is answered."""
    with contextlib.ExitStack() as held:
        server = held.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):  # what it has no room for is dropped
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        await asyncio.sleep(0.1)
        (answer,) = await ask(f"http://127.0.0.1:{server.getsockname()[1]}/v1", timeout=0.3)
    assert answer.status == "connection"


def choice(**fields: object) -> dict[str, object]:
    return {"index": 0, "message": {"role": "assistant", "content": "text"}, "finish_reason": "stop", **fields}


NO_COMPLETIONS = {
    "half a JSON": b'{"choices": [',
    "no bytes": b"",
    "a list": b"[1, 2]",
    "a text": b'"hello"',
    "null": b"null",
    "a number": b"3",
    "an empty object": b"{}",
    "no UTF-8": b"\xff\xfe{}",
    "endless brackets": b"[" * 200_000,
    "null choices": {"choices": None},
    "choices that are text": {"choices": "hello"},
    "choices that are an object": {"choices": {"a": 1}},
    "choices of null": {"choices": [None]},
    "choices of text": {"choices": ["hello"]},
    "a null message": {"choices": [choice(message=None)]},
    "no message": {"choices": [{"index": 0}]},
    "a message that is text": {"choices": [choice(message="hello")]},
    "content that is a number": {"choices": [choice(message={"role": "assistant", "content": 5})]},
    "content that is an object": {"choices": [choice(message={"role": "assistant", "content": {"text": "hello"}})]},
    "two contents": b'{"choices": [{"index": 0, "message": {"content": "a secret", "content": "none"}}]}',
}


@pytest.mark.parametrize("body", NO_COMPLETIONS.values(), ids=NO_COMPLETIONS)
async def test_a_body_that_is_no_completion_is_malformed(body: object) -> None:
    answer, server = await outcome(lambda request: Reply(body=body))
    assert answer.status == "malformed"
    assert answer.error
    assert answer.content is None
    assert len(server.chats) == 3, "asked again, and not for ever"


ODD = {
    "usage is text": {"usage": "much"},
    "usage is a list": {"usage": [1]},
    "tokens are text": {"usage": {"prompt_tokens": "many", "completion_tokens": None, "total_tokens": {}}},
    "tokens are half": {"usage": {"prompt_tokens": 1.5, "completion_tokens": 10**30, "total_tokens": 1}},
    "details are text": {"usage": {"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": "none"}},
    "index is text": {"choices": [choice(index="first")]},
    "index is missing": {"choices": [choice(index=None)]},
    "finish reason is a number": {"choices": [choice(finish_reason=7)]},
    "reasoning is an object": {
        "choices": [choice(message={"role": "assistant", "content": "text", "reasoning": {"a": 1}})]
    },
    "refusal is an object": {"choices": [choice(message={"role": "assistant", "content": "text", "refusal": {}})]},
}


@pytest.mark.parametrize("fields", ODD.values(), ids=ODD)
async def test_oddities_beside_the_text_do_not_cost_the_text(fields: dict[str, object]) -> None:
    answer, _ = await outcome(lambda request: Reply(body={"choices": [choice()], **fields}))
    assert (answer.status, answer.content) == ("ok", "text")
    counts = (answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens)
    assert all(count is None or (type(count) is int and 0 <= count < 2**31) for count in counts)
    assert all(text is None or isinstance(text, str) for text in (answer.reasoning, answer.finish_reason))


@pytest.mark.parametrize("body", [{"error": "no memory left"}, {"detail": "no memory left"}, b"no memory left"])
async def test_the_words_of_an_error_are_recorded_in_whatever_form(body: object) -> None:
    answer, _ = await outcome(lambda request: Reply(500, body, headers=SOON))
    assert answer.error == "Error code: 500 - no memory left"


async def test_a_page_of_a_gateway_is_not_quoted() -> None:
    answer, _ = await outcome(lambda request: Reply(502, b"<html>Bad gateway</html>", headers=SOON))
    assert answer.error == "Error code: 502"


async def test_reasoning_that_a_server_writes_twice_is_read_once() -> None:
    # As NVIDIA's endpoint did (tinyhumansai/openhuman, pull request 4207).
    message = b'{"content": "text", "reasoning_content": "why", "reasoning_content": "why", "reasoning_content": null}'
    answer, _ = await outcome(lambda request: Reply(body=b'{"choices": [{"index": 0, "message": %s}]}' % message))
    assert (answer.status, answer.content, answer.reasoning) == ("ok", "text", "why")


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b"])
async def test_characters_that_no_database_takes_are_replaced(text: str) -> None:
    fine, _ = await outcome(lambda request: completion(text, reasoning=text))
    assert (fine.content, fine.reasoning) == ("a\ufffdb", "a\ufffdb")
    failed, _ = await outcome(lambda request: error(400, text))
    assert failed.status == "rejected"
    assert "\x00" not in str(failed.error)
    str(failed.error).encode()


@pytest.mark.parametrize("where", ["http://[", "/v1/chat/completions", "ftp://x/y", ""])
async def test_redirects_to_nowhere_are_recorded(where: str) -> None:
    answer, _ = await outcome(lambda request: Reply(307, headers={"Location": where}))
    assert not answer.ok
    assert answer.error


async def test_a_lie_about_the_encoding_is_recorded() -> None:
    answer, _ = await outcome(lambda request: Reply(body=b"{}", headers={"Content-Encoding": "gzip"}))
    assert not answer.ok
    assert answer.error


# ---- several draws


async def test_neighbouring_draws_are_one_request() -> None:
    with hostile_server() as server:
        answers = await ask(server.url, range(5), seed=7)
    assert server.seeds() == [(7, 5)]
    assert [(a.draw, a.content) for a in answers] == [(i, f"seed {7 + i}") for i in range(5)]
    assert len({a.exchange for a in answers}) == 1


async def test_more_draws_than_servers_take_are_several_requests() -> None:
    with hostile_server() as server:
        answers = await ask(server.url, range(250), seed=7)
    assert sorted(server.seeds()) == [(7, 100), (107, 100), (207, 50)]
    assert [(a.draw, a.content) for a in answers] == [(i, f"seed {7 + i}") for i in range(250)]


async def test_draws_apart_are_requests_of_their_own() -> None:
    with hostile_server() as server:
        answers = await ask(server.url, [3, 1], seed=7)
    assert sorted(server.seeds()) == [(8, 1), (10, 1)]
    assert [(a.draw, a.content) for a in answers] == [(1, "seed 8"), (3, "seed 10")]
    assert len({a.exchange for a in answers}) == 2


async def test_without_a_seed_none_is_sent() -> None:
    with hostile_server() as server:
        await ask(server.url, range(3), seed=None)
    assert server.seeds() == [(None, 3)]
    assert "seed" not in server.chats[0].body


@pytest.mark.parametrize("most", [1, 2, 4])
async def test_missing_draws_are_asked_for_again(most: int) -> None:
    """A server that gives fewer choices than it was asked for still gives every draw its own seed in the end."""

    def stingy(request: IncomingRequest) -> Reply:
        return completion(*(f"seed {request.seed + i}" for i in range(min(request.n, most))))

    with hostile_server(stingy) as server:
        answers = await ask(server.url, range(5), seed=7)
    assert [(a.draw, a.status, a.content) for a in answers] == [(i, "ok", f"seed {7 + i}") for i in range(5)]
    assert len(server.chats) == 1 + 5 - most


async def test_some_draws_arrive_and_some_fail() -> None:
    def half(request: IncomingRequest) -> Reply:
        return completion("first", "second") if request.number == 0 else error(500, "no more")

    with hostile_server(half) as server:
        answers = await ask(server.url, range(4))
    assert [a.status for a in answers] == ["ok", "ok", "server error", "server error"]
    assert [a.content for a in answers] == ["first", "second", None, None]


async def test_choices_out_of_order_find_their_draw() -> None:
    body = completion("zero", "one", "two").body
    with hostile_server(lambda request: Reply(body={**body, "choices": body["choices"][::-1]})) as server:
        answers = await ask(server.url, range(3))
    assert [a.content for a in answers] == ["zero", "one", "two"]


async def test_one_broken_choice_costs_only_its_own_draw() -> None:
    def broken(request: IncomingRequest) -> Reply:
        good = texts_of(request).body
        if request.number == 0:
            good["choices"][1]["message"] = None
        return Reply(body=good)

    with hostile_server(broken) as server:
        answers = await ask(server.url, range(3), seed=7)
    assert [a.content for a in answers] == ["seed 7", "seed 8", "seed 9"]


async def test_tokens_of_an_exchange_stand_on_its_first_draw() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 30,
        "total_tokens": 130,
        "prompt_tokens_details": {"cached_tokens": 64},
    }
    with hostile_server(lambda request: completion("a", "b", "c", usage=usage)) as server:
        answers = await ask(server.url, range(3))
    counts = [(a.prompt_tokens, a.cached_tokens, a.completion_tokens) for a in answers]
    assert counts == [(100, 64, 30), (None, None, None), (None, None, None)]


# ---- what an answer holds


@pytest.mark.parametrize(
    ("reply", "content", "reasoning", "finish_reason"),
    [
        (completion("<think>\nhm, well\n</think>\n\nDear bank,"), "Dear bank,", "hm, well", "stop"),
        (completion("<think></think>Dear"), "Dear", None, "stop"),
        (completion("Dear <think> so </think>bank"), "Dear bank", "so", "stop"),
        (completion("Dear", reasoning_content="hm"), "Dear", "hm", "stop"),
        (completion("Dear", reasoning="hm"), "Dear", "hm", "stop"),
        (completion("Dear ba", finish_reason="length"), "Dear ba", None, "length"),
        (completion(None, finish_reason="content_filter"), "", None, "content_filter"),
        (completion(None, refusal="I cannot."), "", None, "refusal"),
        (completion(""), "", None, "stop"),
    ],
)
async def test_text_thought_and_reason_are_kept_apart(
    reply: Reply, content: str, reasoning: str | None, finish_reason: str
) -> None:
    answer, _ = await outcome(lambda request: reply)
    assert (answer.status, answer.content, answer.finish_reason) == ("ok", content, finish_reason)
    assert (answer.reasoning or None) == reasoning


async def test_what_is_sent_is_what_was_asked() -> None:
    _, server = await outcome(texts_of, seed=3)
    assert server.chats[0].body == {
        "model": "m",
        "messages": [{"role": "user", "content": "Write."}],
        "max_tokens": 9,
        "seed": 3,
    }


# ---- the key


ECHOES = {
    "401": lambda text: error(401, text),
    "404": lambda text: error(404, text),
    "400": lambda text: error(400, text),
    "429": lambda text: error(429, text),
    "500": lambda text: error(500, text),
    "plain 500": lambda text: Reply(500, text, "text/plain"),
    "broken JSON": lambda text: Reply(body=text + "{"),
    "a model list": lambda text: Reply(body=[text]),
    "a text": lambda text: Reply(body=json.dumps(text)),
}


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
@pytest.mark.parametrize("filler", [0, 465, 489, 494])
async def test_the_key_is_in_no_error_even_where_the_server_echoes_it(
    monkeypatch: pytest.MonkeyPatch, echo: object, filler: int
) -> None:
    monkeypatch.setenv("CANARY_API_KEY", CANARY)
    monkeypatch.setattr(traffic, "STALLED_SECONDS", 0.0)
    with hostile_server(lambda request: echo("x" * filler + request.authorization)) as server:
        (answer,) = await ask(server.url)
        assert server.chats[0].authorization == f"Bearer {CANARY}"
    assert not answer.ok
    shown = str(answer)
    assert not any(CANARY[:cut] in shown for cut in range(6, len(CANARY) + 1))

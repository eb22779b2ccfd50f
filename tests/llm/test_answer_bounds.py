"""What a server may send back is bounded in bytes and in time, and a request goes to no server that was not named."""

from __future__ import annotations

import asyncio
import json
import time
import tracemalloc
from email.utils import formatdate

import httpx2
import openai._base_client
import pytest
from evaluating import add
from hostile import Reply, completion, hostile_server
from worlds import make_profile

from cimemories.cli import work
from cimemories.evaluation import planning, runs
from cimemories.flows.progress import run_progress
from cimemories.llm.capabilities import find_out
from cimemories.llm.client import LONGEST_TEXT, Client
from cimemories.llm.endpoint import Endpoint, EndpointError
from cimemories.llm.http.traffic import LONGEST_RETRY_AFTER, retry_after
from cimemories.llm.http.transport import LARGEST_BODY, WHOLE_FACTOR, look_up, probe
from cimemories.llm.worker import WorkError
from cimemories.model import ChatRequest
from cimemories.store.calls import Answer, keys_of
from cimemories.store.engine import Store


async def ask(url: str, *, timeout: float = 5.0, retries: int = 1, text: str = "Write.") -> Answer:
    request = ChatRequest("m", (("user", text),))
    client = Client(Endpoint(url, timeout=timeout, max_retries=retries), simulated=False)
    try:
        (answer,) = await client.complete(request, keys_of(request, [0], simulated=False))
        return answer
    finally:
        await client.close()


async def test_a_body_that_is_too_large_is_a_failure_asked_once() -> None:
    with hostile_server(lambda request: completion("x" * (LARGEST_BODY + 1))) as server:
        answer = await ask(server.url)
    assert (answer.status, answer.content) == ("too large", None)
    assert "8 MB" in str(answer.error)
    assert len(server.chats) == 1


async def test_a_body_without_a_length_is_cut_off_too() -> None:
    """Some servers state no length, and some a false one."""
    pieces = b"".join(b"10000\r\n" + b"x" * 65_536 + b"\r\n" for _ in range(LARGEST_BODY // 65_536 + 2))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + pieces)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        answer = await ask(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    assert answer.status == "too large"


@pytest.mark.parametrize("head", [b"A: " + b"a" * 100_000, b"Content-Length: -5", b"Content-Length: 1\r\nBad\x00: x"])
async def test_an_answer_that_is_no_http_is_a_failure(head: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        answer = await ask(url, retries=0)
        with pytest.raises(EndpointError, match="not HTTP"):
            await look_up(Endpoint(url), "m", retries=0)
    assert (answer.status, answer.content) == ("connection", None)
    assert "not HTTP" in str(answer.error)


async def test_a_message_that_is_too_long_is_a_failure() -> None:
    for fields in ({}, {"reasoning": "x" * (LONGEST_TEXT + 1)}):
        text = "fine" if fields else "x" * (LONGEST_TEXT + 1)
        with hostile_server(lambda request, text=text, fields=fields: completion(text, **fields)) as server:
            answer = await ask(server.url)
        assert (answer.status, answer.content) == ("too large", None)
        assert "1,000,000 characters" in str(answer.error)
    with hostile_server(lambda request: completion("x" * LONGEST_TEXT)) as server:
        assert (await ask(server.url)).ok


async def test_three_answers_of_20_mb_take_little_memory_and_hold_nothing_up() -> None:
    body = completion("x" * 20_000_000).data
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.01)
            longest = max(longest, time.perf_counter() - before)

    with hostile_server(lambda request: Reply(body=body)) as server:
        watching = asyncio.create_task(watch())
        tracemalloc.start()
        answers = await asyncio.gather(*(ask(server.url) for _ in range(3)))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        watching.cancel()
    assert {answer.status for answer in answers} == {"too large"}
    assert peak < 150_000_000  # the three bodies that the server sends count too
    assert longest < 10


@pytest.mark.parametrize("chatty", [b" ", b"x"])
async def test_a_server_that_drips_is_ended_at_the_deadline(chatty: bytes) -> None:
    with hostile_server(lambda request: Reply(body=chatty * 2000, drip=0.05)) as server:
        answer = await ask(server.url, timeout=0.2)
    assert answer.status == "timeout"
    assert "incomplete after 1 s" in str(answer.error)
    assert 0.2 * WHOLE_FACTOR <= answer.seconds < 30  # the drip would take 100 s
    assert len(server.chats) == 1


async def test_a_server_that_drips_its_answer_in_time_is_heard() -> None:
    whole = completion("here")
    with hostile_server(lambda request: Reply(body=whole.body, drip=0.002)) as server:
        answer = await ask(server.url, timeout=1)
    assert (answer.status, answer.content) == ("ok", "here")


async def test_a_compressed_answer_is_refused_before_it_is_unpacked() -> None:
    with hostile_server(lambda request: Reply(body=b"\x1f\x8b" * 9, headers={"Content-Encoding": "gzip"})) as server:
        answer = await ask(server.url)
    assert answer.status == "malformed"
    assert "compressed (gzip)" in str(answer.error)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_prompts_follow_no_redirect_to_another_origin(status: int) -> None:
    with hostile_server() as other:
        moved = Reply(status, headers={"Location": f"{other.url}/chat/completions"})
        with hostile_server(lambda request: moved) as server:
            answer = await ask(server.url, text="a secret memory")
    assert (answer.status, answer.content) == ("redirected", None)
    assert other.url.removesuffix("/v1") in str(answer.error)
    assert not other.chats
    assert len(server.chats) == 1


async def test_a_redirect_on_the_same_server_is_followed() -> None:
    def once(request: object) -> Reply:
        return Reply(307, headers={"Location": "/v1/chat/completions/"}) if not server.chats[1:] else completion("here")

    with hostile_server(once) as server:
        answer = await ask(server.url)
    assert (answer.status, answer.content) == ("ok", "here")
    assert server.chats[1].body == server.chats[0].body


async def test_a_redirect_without_end_is_recorded() -> None:
    with hostile_server(lambda request: Reply(307, headers={"Location": "/v1/chat/completions"})) as server:
        answer = await ask(server.url)
    assert answer.status == "redirected"


def test_the_probe_is_bounded_alike() -> None:
    with hostile_server() as other:
        moved = Reply(307, headers={"Location": f"{other.url}/models"})
        with (
            hostile_server(models=moved) as server,
            pytest.raises(EndpointError, match="use that address as the base"),
        ):
            probe(Endpoint(server.url), "m")
        moved = Reply(307, headers={"Location": f"{other.url}/chat/completions"})
        with (
            hostile_server(lambda request: moved, hears_probes=True) as server,
            pytest.raises(EndpointError, match="use that address as the base"),
        ):
            find_out(Endpoint(server.url), "m", schema_wanted=False, seed_wanted=False, samples=1)
        assert not other.chats
        assert not other.probes


# ---- Retry-After


async def test_a_retry_after_is_waited_for() -> None:
    with hostile_server(
        lambda request: completion("here") if request.number else Reply(429, headers={"Retry-After": "1"})
    ) as server:
        began = time.monotonic()
        answer = await ask(server.url)
    assert answer.ok
    assert time.monotonic() - began >= 1


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("wait", ["3600", "date"])
async def test_a_retry_after_that_is_too_long_is_said_so(status: int, wait: str) -> None:
    value = formatdate(time.time() + 3600, usegmt=True) if wait == "date" else wait
    reply = Reply(status, {"error": {"message": "quota"}}, headers={"Retry-After": value})
    with hostile_server(lambda request: reply) as server:
        answer = await ask(server.url)
    assert len(server.chats) == 1
    assert answer.status == ("rate limited" if status == 429 else "server error")
    assert "quota" in str(answer.error)
    assert "a run waits at most 120 s" in str(answer.error)


async def test_a_retry_after_that_was_waited_for_in_vain_is_said_so() -> None:
    reply = Reply(503, {"error": {"message": "quota"}}, headers={"retry-after-ms": "1"})
    with hostile_server(lambda request: reply) as server:
        answer = await ask(server.url, retries=2)
    assert len(server.chats) == 3
    assert "tried 3 times, waiting as long as its Retry-After asks" in str(answer.error)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after-ms": "500"}, 0.5),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, None),
    ],
)
def test_retry_after_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(httpx2.Headers(headers)) == seconds


def test_the_longest_wait_is_the_one_of_the_sdk() -> None:
    assert openai._base_client.MAX_RETRY_AFTER_DELAY == LONGEST_RETRY_AFTER


async def test_a_body_of_very_many_choices_is_refused() -> None:
    wide = json.dumps({"choices": [[] for _ in range(1_500_000)]}).encode()
    with hostile_server(lambda request: Reply(body=wide)) as server:
        answer = await ask(server.url)
    assert answer.status == "too large"
    assert len(server.chats) == 1


def test_what_the_server_said_is_shown_with_the_failures(
    sqlite_store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    add(sqlite_store, [make_profile(0, 3, 4)], "world")
    reply = Reply(429, {"error": {"message": "quota"}}, headers={"Retry-After": "3600"})
    with hostile_server(lambda request: reply) as server:
        run_id = planning.plan(
            sqlite_store, planning.RunSpec(dataset="world", model="m", base_url=server.url, samples=1)
        )
        with pytest.raises(WorkError, match="a run waits at most 120 s"):
            runs.execute(sqlite_store, run_id)
    work.outcome(sqlite_store, run_id)
    assert "rate limited, for example: " in (printed := " ".join(capsys.readouterr().err.split()))
    assert "a run waits at most 120 s" in printed
    assert "a run waits at most 120 s" in run_progress(sqlite_store, run_id).errors["rate limited"]

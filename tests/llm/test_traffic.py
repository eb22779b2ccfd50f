"""A server that limits requests: all of a process wait together, fewer are in flight, and none is lost for it. By a
clock of the tests' own, except where a run is made."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from email.utils import formatdate

import httpx2
import pytest
from evaluating import add, row_of
from executing import answering, is_judging, spec
from hostile import IncomingRequest, Reply, error, hostile_server
from worlds import make_profile

from cimemories.evaluation import planning, runs
from cimemories.llm.executor import LIMITED, Progress
from cimemories.llm.http import traffic
from cimemories.llm.http.traffic import Traffic, Trouble, limits_requests, troubles_text
from cimemories.llm.worker import WorkError
from cimemories.store.engine import Store


class Clock:
    """Seconds that pass only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        for _ in range(50):  # all others come as far as they can before time passes
            await asyncio.sleep(0)
        self.now += seconds


class Line:
    """A server that takes one request each `every` seconds; headers: of its refusals."""

    def __init__(self, clock: Clock, every: float = 1.0, headers: Callable[[], dict[str, str]] = dict) -> None:
        self.clock, self.every, self.headers = clock, every, headers
        self.sent: list[tuple[float, int]] = []  # when, and its status
        self.free_at = 0.0
        self.in_flight = self.most = 0

    async def __call__(self) -> httpx2.Response:
        served = self.clock.now >= self.free_at
        if served:
            self.free_at = self.clock.now + self.every
        self.sent.append((self.clock.now, 200 if served else 429))
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        return httpx2.Response(200 if served else 429, headers={} if served else self.headers(), content=b"{}")

    @property
    def refused(self) -> int:
        return sum(status == 429 for _, status in self.sent)


def sending(clock: Clock) -> Traffic:
    return Traffic(clock, clock.sleep)


def in_one_second() -> dict[str, str]:
    return {"Retry-After": "1"}


def at_a_date() -> dict[str, str]:
    return {"Retry-After": formatdate(time.time() + 2, usegmt=True)}


@pytest.mark.parametrize("headers", [in_one_second, at_a_date, dict], ids=["seconds", "date", "no header"])
async def test_every_request_gets_through_at_one_a_second(headers: Callable[[], dict[str, str]]) -> None:
    clock = Clock()
    line, there = Line(clock, headers=headers), sending(clock)
    responses = await asyncio.gather(*(there.send(line) for _ in range(24)))
    assert [response.status_code for response in responses] == [200] * 24
    assert clock.now < 24 * 2.5
    assert line.refused < 7 + 3 * 24, "not all that wait are sent at each pause"


async def test_one_refusal_has_all_wait_and_fewer_in_flight_afterwards() -> None:
    clock = Clock()
    line, there = Line(clock, headers=lambda: {"Retry-After": "10"}), sending(clock)
    await asyncio.gather(*(there.send(line) for _ in range(8)))
    moments = [moment for moment, _ in line.sent]
    assert moments[:8] == [0.0] * 8
    assert moments[8] >= 10, "what the server asks for, and more by chance"
    assert 3 <= moments.count(moments[8]) <= 4, "half of them"
    line.most = 0
    await asyncio.gather(*(there.send(line) for _ in range(8)))
    assert line.most <= 2


async def test_once_the_limit_ends_as_many_are_in_flight_as_before() -> None:
    clock = Clock()
    line, there = Line(clock, headers=in_one_second), sending(clock)
    await asyncio.gather(*(there.send(line) for _ in range(8)))
    line.every = 0.0
    await asyncio.gather(*(there.send(line) for _ in range(100)))
    line.most = 0
    await asyncio.gather(*(there.send(line) for _ in range(20)))
    assert line.most == 20


async def test_pauses_double_while_nothing_gets_through_and_then_the_server_is_given_up() -> None:
    clock = Clock()
    line, there = Line(clock, every=1e9), sending(clock)
    line.free_at = 1e9
    response = await there.send(line)
    assert response.status_code == 429
    assert response.headers["x-should-retry"] == "false"
    for number, (before, after) in enumerate(itertools.pairwise(clock.sleeps)):
        assert after > before * 1.5 or number > 4
    assert max(clock.sleeps) <= traffic.LONGEST_PAUSE * 1.1
    assert traffic.STALLED_SECONDS - 60 < clock.now <= traffic.STALLED_SECONDS * 1.1


async def test_a_pause_does_not_wait_long_for_a_server_that_lets_nothing_through() -> None:
    clock = Clock()
    line, there = Line(clock, every=1e9), sending(clock)
    line.free_at = 1e9
    there.end_soon()
    assert (await there.send(line)).status_code == 429
    assert clock.now <= 2 * traffic.WINDOW_SECONDS


@pytest.mark.parametrize(
    ("headers", "body"),
    [({"Retry-After": "3600"}, b"{}"), ({}, b'{"error": {"type": "x", "code": "insufficient_quota"}}')],
    ids=["an hour", "no credit"],
)
async def test_where_waiting_is_no_use_the_refusal_is_returned_at_once(headers: dict[str, str], body: bytes) -> None:
    clock, count = Clock(), 0

    async def refuses() -> httpx2.Response:
        nonlocal count
        count += 1
        return httpx2.Response(429, headers=headers, content=body)

    response = await sending(clock).send(refuses)
    assert (response.status_code, response.headers["x-should-retry"], count) == (429, "false", 1)
    assert limits_requests(response) is (b"quota" not in body)


async def test_a_request_that_fails_or_is_dropped_leaves_its_place() -> None:
    clock = Clock()
    line, there = Line(clock, headers=in_one_second), sending(clock)
    await asyncio.gather(*(there.send(line) for _ in range(2)))

    async def cut() -> httpx2.Response:
        raise httpx2.ReadError("cut")

    for _ in range(5):
        with pytest.raises(httpx2.ReadError):
            await there.send(cut)

    async def hangs() -> httpx2.Response:
        await asyncio.Event().wait()
        raise AssertionError

    hanging = [asyncio.create_task(there.send(hangs)) for _ in range(5)]
    await asyncio.sleep(0)
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    assert (await asyncio.wait_for(there.send(line), 5)).status_code == 200


async def test_the_rate_is_measured_and_forgotten() -> None:
    clock = Clock()
    line, there = Line(clock, headers=in_one_second), sending(clock)
    assert there.trouble() == Trouble()
    await asyncio.gather(*(there.send(line) for _ in range(40)))
    found = there.trouble()
    assert found.limited
    assert found.per_minute == pytest.approx(60 / 1.05, rel=0.1)
    clock.now += 2 * traffic.WINDOW_SECONDS
    assert there.trouble() == Trouble()


def test_troubles_are_told_in_words() -> None:
    limited, late = Trouble(limited=True, per_minute=59.7), Trouble(timed_out=2, seconds=120.0)
    assert troubles_text({"http://a/v1": Trouble()}) == ""
    assert troubles_text({"http://a/v1": limited}) == "the server limits requests: about 60 a minute"
    assert troubles_text({"http://a/v1": late}).startswith("2 tries at the server timed out after 120 s; ")
    assert "--timeout" in troubles_text({"http://a/v1": late})
    both = troubles_text({"http://a:1/v1": limited + limited, "http://b/v1": Trouble()})
    assert both == "a:1 limits requests: about 120 a minute"
    stalled = replace(limited, per_minute=0.0, stalled=200.0)
    assert "none got through for 3 min; after 10 min the work stops" in troubles_text({"http://a/v1": stalled})
    assert "about 60 a minute" in troubles_text({"http://a/v1": stalled + limited}), "another process gets through"


async def test_a_server_that_lets_nothing_through_is_told_from_a_slow_one() -> None:
    clock = Clock()
    line, there = Line(clock, every=1e9), sending(clock)
    line.free_at = 1e9
    told: list[float] = []

    async def refused() -> httpx2.Response:
        told.append(there.trouble().stalled)
        return await line()

    await there.send(refused)
    assert told[0] == 0.0 and told == sorted(told) and told[-1] > traffic.STALLED_SECONDS - 60
    line.free_at = 0.0
    await there.send(line)
    assert there.trouble().stalled == 0.0


# ---- runs


def world(store: Store) -> None:
    add(store, [make_profile(0, 6, 24)], "world")


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that the tests can wait for."""
    monkeypatch.setattr(traffic, "FIRST_PAUSE", 0.01)


@pytest.mark.usefixtures("_soon")
def test_a_run_at_a_server_that_takes_one_request_at_a_time_loses_nothing(sqlite_store: Store) -> None:
    """More refusals than a request has tries, of the messages and of the judge at the same server."""
    world(sqlite_store)
    free_at, refused = 0.0, 0

    def one_in_twenty_milliseconds(request: IncomingRequest) -> Reply:
        nonlocal free_at, refused
        with server.lock:
            if (now := time.monotonic()) < free_at:
                refused += 1
                return Reply(429, error(429, "slow down").body, headers={"retry-after-ms": "20"})
            free_at = now + 0.02
        return answering(request)

    seen: list[Progress] = []
    with hostile_server(one_in_twenty_milliseconds, ("m", "judge")) as server:
        run_id = planning.plan(sqlite_store, spec(server.url, samples=1))
        progress = runs.execute(sqlite_store, run_id, concurrency=8, on_progress=seen.append)
    assert refused > 8
    assert not progress.failed
    assert row_of(sqlite_store, run_id).judged == 24


def test_a_limit_that_lasts_ends_the_run_and_another_time_goes_on(sqlite_store: Store) -> None:
    world(sqlite_store)
    quota = Reply(429, error(429, "the quota of this hour").body, headers={"Retry-After": "3600"})

    def ends(request: IncomingRequest) -> Reply:
        return quota if request.number >= 10 and not is_judging(request) else answering(request)

    with hostile_server(ends, ("m", "judge")) as server:
        run_id = planning.plan(sqlite_store, spec(server.url, samples=1))
        with pytest.raises(WorkError, match=f"the quota of this hour.*resume {run_id}"):
            runs.execute(sqlite_store, run_id, concurrency=4)
        assert len(server.chats) <= 10 + 4 * 2, "the others are not sent"
        row = row_of(sqlite_store, run_id)
        assert row.status == "interrupted"
        assert (row.error or "").startswith(LIMITED)
        assert "the server asks to wait 3,600 s" in (row.error or "")
    with hostile_server(answering, ("m", "judge")) as server:
        runs.execute(sqlite_store, run_id, base_url=server.url, judge_base_url=server.url)
    assert row_of(sqlite_store, run_id).judged == 24

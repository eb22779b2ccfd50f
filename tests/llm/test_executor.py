"""The executor: bounded, recorded as it goes, without barriers, asking nothing twice, and the same numbers however it
is driven."""

from __future__ import annotations

import asyncio
import hashlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest
import sqlalchemy as sa
from evaluating import add, add_labelled, assert_whole, counts, numbers, row_of, simulated, small_profiles
from executing import MODELS, SAMPLES, answering, eventually, is_judging, spec
from hostile import IncomingRequest, Reply, completion, error, hostile_server, texts_of
from worlds import make_profile

from cimemories.evaluation import planning, runs
from cimemories.evaluation.costs import cost_of
from cimemories.evaluation.prices import Prices
from cimemories.llm.client import Client
from cimemories.llm.endpoint import Endpoint
from cimemories.llm.executor import Executor, Job, Progress, Stopped
from cimemories.llm.worker import WorkError
from cimemories.model import ChatRequest
from cimemories.store import datasets
from cimemories.store.calls import Answer
from cimemories.store.engine import Store
from cimemories.store.tables import call, response, run


def world(store: Store, profiles: int = 1, contexts: int = 6) -> None:
    add(store, [make_profile(i, 6, contexts) for i in range(profiles)], "world")


@pytest.fixture
def beside() -> Iterator[Callable[..., Future]]:
    """Runs something in another thread while the test looks on."""
    with ThreadPoolExecutor(2) as pool:
        yield pool.submit


# ---- bounded


@pytest.mark.parametrize("concurrency", [1, 7])
def test_never_more_requests_at_once_than_allowed(sqlite_store: Store, concurrency: int) -> None:
    """Nor are jobs made ahead of their time: a paper-sized run must not be in memory as a whole."""
    world(sqlite_store)
    made = finished = furthest = 0

    def settle(*_: object) -> tuple[()]:
        nonlocal finished
        finished += 1
        return ()

    def jobs(client: Client) -> Iterator[Job]:
        nonlocal made, furthest
        for number in range(100):
            made += 1
            furthest = max(furthest, made - finished)
            yield Job("respond", client, ChatRequest("m", (("user", f"{number}"),)), (0,), settle)

    async def execute(url: str) -> Progress:
        client = Client(Endpoint(url), simulated=False)
        executor = Executor(sqlite_store, run_id, concurrency=concurrency)
        await executor.run(jobs(client))
        await client.close()
        return executor.progress

    with hostile_server(lambda request: replace(texts_of(request), wait=0.02), MODELS) as server:
        run_id = planning.plan(sqlite_store, spec(server.url))
        progress = asyncio.run(execute(server.url))
    assert (progress.fresh, finished, len(server.chats)) == (100, 100, 100)
    assert server.most_at_once == concurrency
    assert furthest <= concurrency


# ---- recorded as it goes


def test_a_slow_commit_keeps_no_request_waiting_and_a_stop_keeps_what_was_answered(sqlite_store: Store) -> None:
    """While the first answer is being written the others are asked, as many as may be in flight and may wait. Told to
    stop then, the work records all that came."""
    world(sqlite_store)
    concurrency, unrecorded, release = 4, 10, threading.Event()
    most = concurrency + unrecorded

    def settle(*_: object) -> tuple[()]:
        release.wait(20)
        return ()

    async def execute(url: str) -> None:
        client = Client(Endpoint(url), simulated=False)
        executor = Executor(sqlite_store, run_id, concurrency=concurrency, unrecorded=unrecorded)
        jobs = (Job("respond", client, ChatRequest("m", (("user", f"{n}"),)), (0,), settle) for n in range(2 * most))
        work = asyncio.create_task(executor.run(jobs))
        assert await asyncio.to_thread(eventually, lambda: len(server.chats) == most)
        assert not await asyncio.to_thread(eventually, lambda: len(server.chats) > most, 0.3)
        executor.stop("enough")
        release.set()
        with pytest.raises(Stopped, match="enough"):
            await work
        await client.close()

    with hostile_server(texts_of, MODELS) as server:
        run_id = planning.plan(sqlite_store, spec(server.url))
        asyncio.run(execute(server.url))
    with sqlite_store.read() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(call)).scalar_one() == most


def test_results_are_in_the_record_while_others_are_under_way(store: Store, beside: Callable[..., Future]) -> None:
    """And there is no barrier: all that is there has been judged while the last response is still being written."""
    world(store)
    release = threading.Event()

    def last_one_waits(request: IncomingRequest) -> Reply:
        if "Task 5" in request.body["messages"][0]["content"] and not is_judging(request):
            release.wait(20)
        return answering(request)

    with hostile_server(last_one_waits, MODELS) as server:
        run_id = planning.plan(store, spec(server.url, timeout=30.0))
        working = beside(runs.execute, store, run_id, concurrency=4)
        try:
            seen = eventually(lambda: row_of(store, run_id).judged == 5 * SAMPLES)
            row = row_of(store, run_id)
        finally:
            release.set()
        working.result(timeout=20)
    assert seen
    assert row.status == "running"
    assert row.responses == {"ok": 5 * SAMPLES, "owed": SAMPLES}
    assert_whole(store, run_id, 6 * SAMPLES)


def test_the_first_judgement_comes_before_the_last_question(sqlite_store: Store) -> None:
    world(sqlite_store, contexts=12)
    with hostile_server(answering, MODELS) as server:
        runs.execute(sqlite_store, planning.plan(sqlite_store, spec(server.url)), concurrency=2)
    order = [is_judging(request) for request in server.chats]
    assert order.index(True) < len(order) - 1 - order[::-1].index(False)


# ---- nothing twice


def test_what_follows_from_the_last_job_is_done_too(sqlite_store: Store) -> None:
    """While the source is asked for one more job and has none, the last outcome comes in: what follows from it was
    dropped, and the run ended with messages owed."""
    world(sqlite_store)
    source_asked, last_recorded = threading.Event(), threading.Event()
    settled: list[str] = []

    def answer(request: IncomingRequest) -> Reply:
        if "last" in str(request.body["messages"]):
            assert source_asked.wait(10)
        return texts_of(request)

    def job(client: Client, name: str, *following: Job) -> Job:
        def settle(*_: object) -> tuple[Job, ...]:
            settled.append(name)
            return following

        return Job(name, client, ChatRequest("m", (("user", name),)), (0,), settle)

    def jobs(client: Client) -> Iterator[Job]:
        yield job(client, "first")
        yield job(client, "last", job(client, "following"))
        source_asked.set()
        assert last_recorded.wait(10)
        time.sleep(0.1)  # so that the outcome is no longer counted as under way

    def on_progress(progress: Progress) -> None:
        if progress.by_kind["last"].done:
            last_recorded.set()

    async def execute(url: str) -> None:
        client = Client(Endpoint(url), simulated=False)
        await Executor(sqlite_store, run_id, concurrency=2, on_progress=on_progress).run(jobs(client))
        await client.close()

    with hostile_server(answer, MODELS) as server:
        run_id = planning.plan(sqlite_store, spec(server.url))
        asyncio.run(execute(server.url))
    assert settled == ["first", "last", "following"]


OPENING = "x" * 5000  # long enough for one request to read it alone


def asked_as(numbers: list[int]) -> list[tuple[str, tuple[int, ...], str | None]]:
    """(text, draws, opening) of jobs: several of each text, some with further draws, some behind a shared opening."""
    return [
        (f"{OPENING * (n % 3)}{n}", (0, 1) if n % 4 == 3 else (0,), f"opening {n % 3}" if n % 3 else None)
        for n in numbers
    ]


@pytest.mark.parametrize("concurrency", [1, 3, 32])
@pytest.mark.parametrize("seed", [1, 2])
def test_equal_calls_are_asked_once_at_whatever_moment_they_come(
    sqlite_store: Store, concurrency: int, seed: int
) -> None:
    """A second one that came while the first was on its way was asked too, paid for, and its answer dropped."""
    world(sqlite_store)
    chance = random.Random(seed)
    wanted = asked_as([chance.randrange(8) for _ in range(60)])
    settled: list[tuple[str, tuple[int, ...], tuple[str, ...]]] = []

    def job(client: Client, text: str, draws: tuple[int, ...], opening: str | None, follows: bool) -> Job:
        def settle(_: sa.Connection, outcomes: Mapping[int, Answer]) -> tuple[Job, ...]:
            settled.append((text, draws, tuple(outcomes[draw].content or "" for draw in draws)))
            return (job(client, text, draws, opening, False),) if follows else ()

        return Job("respond", client, ChatRequest("m", (("user", text),)), draws, settle, opening=opening)

    async def execute(url: str) -> Progress:
        client = Client(Endpoint(url), simulated=False)
        executor = Executor(sqlite_store, run_id, concurrency=concurrency, unrecorded=8 * (seed - 1))
        jobs = (job(client, *one, number % 5 == 0) for number, one in enumerate(wanted))
        await asyncio.wait_for(executor.run(jobs), 60)
        await client.close()
        return executor.progress

    def answer(request: IncomingRequest) -> Reply:
        texts = [f"{request.number}, {choice}" for choice in range(request.n)]
        return replace(completion(*texts), wait=chance.choice([0.0, 0.002, 0.02]))

    with hostile_server(answer, MODELS) as server:
        run_id = planning.plan(sqlite_store, spec(server.url))
        progress = asyncio.run(execute(server.url))
    asked = Counter((request.body["messages"][0]["content"], request.n) for request in server.chats)
    assert set(asked) == {(text, len(draws)) for text, draws, _ in wanted}
    assert set(asked.values()) == {1}
    assert Counter((text, draws) for text, draws, _ in settled) == Counter(
        (text, draws) for number, (text, draws, _) in enumerate(wanted) for _ in range(2 if number % 5 == 0 else 1)
    )
    assert len({(text, texts) for text, _, texts in settled}) == len(asked), "equal calls have equal answers"
    draws = sum(n for _, n in asked)
    assert (progress.fresh, progress.done) == (draws, sum(len(draws) for _, draws, _ in settled))


def test_equal_calls_that_fail_are_each_tried(sqlite_store: Store) -> None:
    """Nobody waits for ever for the answer of another one."""
    world(sqlite_store)
    settled: list[bool] = []

    def settle(_: sa.Connection, outcomes: Mapping[int, Answer]) -> tuple[()]:
        settled.append(outcomes[0].ok)
        return ()

    async def execute(url: str) -> None:
        client = Client(Endpoint(url, max_retries=0), simulated=False)
        request = ChatRequest("m", (("user", "the same"),))
        jobs = (Job("respond", client, request, (0,), settle) for _ in range(4))
        await asyncio.wait_for(Executor(sqlite_store, run_id, concurrency=8).run(jobs), 60)
        await client.close()

    with hostile_server(lambda asked: error(400, "no") if asked.number < 2 else texts_of(asked), MODELS) as server:
        run_id = planning.plan(sqlite_store, spec(server.url))
        asyncio.run(execute(server.url))
    # Two fail, the third is answered, and that answer serves the fourth.
    assert (settled, len(server.chats)) == ([False, False, True, True], 3)


def test_equal_messages_are_judged_and_paid_once(store: Store) -> None:
    """At temperature 0 every sample is the same text. The judge was sent each, and its cost counted once."""
    world(store)

    def answer(request: IncomingRequest) -> Reply:
        usage = {"prompt_tokens": 1000, "completion_tokens": 0}
        text = str(request.body["messages"][0]["content"])
        if is_judging(request):
            return replace(completion('{"revealed": []}', usage=usage), wait=0.05)
        return completion(*[hashlib.sha256(text.encode()).hexdigest()] * request.n, usage=usage)

    prices = Prices(prompt=1000.0, cached=1000.0, completion=0.0, currency="EUR")
    with hostile_server(answer, MODELS) as server:
        judge = planning.JudgeSpec(kind="llm", model="judge", base_url=server.url, prices=prices)
        run_id = planning.plan(store, spec(server.url, judges=(judge,), prices=prices))
        runs.execute(store, run_id, concurrency=16)
    judged = [request for request in server.chats if is_judging(request)]
    assert len(judged) == 6
    # 1,000 tokens at 1,000 a million for each request that was sent.
    assert cost_of(store, run_id).paid == pytest.approx(len(server.chats))
    assert_whole(store, run_id, 6 * SAMPLES)


def test_the_same_again_makes_no_call(store: Store) -> None:
    world(store)
    with hostile_server(answering, MODELS) as server:
        first = planning.plan(store, spec(server.url))
        runs.execute(store, first)
        made = len(server.chats)
        second = planning.plan(store, spec(server.url))
        progress = runs.execute(store, second)
        again = runs.execute(store, second)
    assert first != second
    assert len(server.chats) == made
    # The texts of all contexts are the same, and so is what the judge is asked about them.
    assert (progress.fresh, progress.reused) == (0, 12 * SAMPLES)
    assert (again.fresh, again.reused) == (0, 0), "a finished run owes nothing"
    assert_whole(store, second, 6 * SAMPLES)


@pytest.mark.parametrize(
    ("change", "seeds"),
    [
        ({"max_tokens": 1023}, [(0, 3)] * 6),
        ({"temperature": 0.5}, [(0, 3)] * 6),
        ({"model": "m2"}, [(0, 3)] * 6),
        ({"seed": 1}, [(1, 3)] * 6),
        ({"seed": None}, [(None, 3)] * 6),
        ({"samples": 5}, [(3, 2)] * 6),
        ({"samples": 2}, []),
        ({"timeout": 6.0, "name": "other"}, []),
    ],
    ids=str,
)
def test_a_change_asks_only_what_it_touches(sqlite_store: Store, change: dict, seeds: list) -> None:
    """More samples are the new draws alone; a time limit or a name is no part of a request."""
    world(sqlite_store)
    with hostile_server(answering, MODELS) as server:
        runs.execute(sqlite_store, planning.plan(sqlite_store, spec(server.url)))
        made = len(server.chats)
        run_id = planning.plan(sqlite_store, spec(server.url, **change))
        runs.execute(sqlite_store, run_id)
    requests = [(a.seed, a.n) for a in server.chats[made:] if not is_judging(a)]
    assert requests == seeds
    assert_whole(sqlite_store, run_id, 6 * change.get("samples", SAMPLES))


def test_one_changed_byte_asks_for_one_profile(sqlite_store: Store) -> None:
    world(sqlite_store, profiles=2)
    kept, changed = make_profile(0, 6, 6), make_profile(1, 6, 6)
    statement = changed.attributes[2].statement[:-1] + "!"
    attributes = (*changed.attributes[:2], replace(changed.attributes[2], statement=statement), *changed.attributes[3:])
    add(sqlite_store, [kept, replace(changed, attributes=attributes)], "changed")
    with hostile_server(answering, MODELS) as server:
        runs.execute(sqlite_store, planning.plan(sqlite_store, spec(server.url)))
        made = len(server.chats)
        runs.execute(sqlite_store, planning.plan(sqlite_store, spec(server.url, dataset="changed")))
    fresh = server.chats[made:]
    assert len([a for a in fresh if not is_judging(a)]) == 6
    assert all(statement in a.body["messages"][0]["content"] for a in fresh)


def test_a_real_answer_never_comes_from_a_simulator(sqlite_store: Store) -> None:
    """The same request to a server of the same model names is another call once a simulator has answered it."""
    add(sqlite_store, small_profiles(contexts=2))
    runs.execute(sqlite_store, planning.plan(sqlite_store, simulated(seed=0)))

    def real(request: IncomingRequest) -> Reply:
        return completion('{"revealed": []}') if request.body["model"] == "sim-judge" else texts_of(request)

    with hostile_server(real, ("sim-average", "sim-judge")) as server:
        run_id = planning.plan(sqlite_store, simulated(server.url, seed=0))
        runs.execute(sqlite_store, run_id)
    assert not row_of(sqlite_store, run_id).simulated
    assert len([request for request in server.chats if request.body["model"] == "sim-average"]) == 2
    with sqlite_store.read() as connection:
        query = sa.select(response.c.text, call.c.simulated).join(call, response.c.call == call.c.key)
        rows = connection.execute(query.where(response.c.run == run_id)).all()
    assert sorted(rows) == sorted((f"seed {i}", False) for i in range(SAMPLES) for _ in range(2))


# ---- the same numbers however it is driven


def test_numbers_depend_neither_on_concurrency_nor_on_interruption(sqlite_store: Store) -> None:
    add_labelled(sqlite_store)
    results = []
    for concurrency in (1, 32):
        forget_calls(sqlite_store)
        run_id = planning.plan(sqlite_store, simulated())
        runs.execute(sqlite_store, run_id, concurrency=concurrency)
        assert_whole(sqlite_store, run_id, 24)
        results.append(numbers(sqlite_store, run_id))
    forget_calls(sqlite_store)
    run_id = planning.plan(sqlite_store, simulated())

    def interrupt(progress: Progress) -> None:
        if progress.done >= 9:
            raise KeyboardInterrupt

    with pytest.raises(WorkError, match="resume"):
        runs.execute(sqlite_store, run_id, concurrency=4, on_progress=interrupt)
    halfway = row_of(sqlite_store, run_id)
    assert halfway.status == "cancelled"
    assert 0 < halfway.judged + halfway.responses["ok"] < 48
    before = counts(sqlite_store)["calls"]
    progress = runs.execute(sqlite_store, run_id, concurrency=4)
    assert progress.fresh == counts(sqlite_store)["calls"] - before > 0
    assert_whole(sqlite_store, run_id, 24)
    results.append(numbers(sqlite_store, run_id))
    assert results[0]["violation"]["3"] > 0
    assert results[0]["completeness"] > 0
    assert results[1:] == [results[0]] * 2


def forget_calls(store: Store) -> None:
    """Take the recorded calls of runs away, with the runs, so that the next run has to ask."""
    with store.write() as connection:
        connection.execute(run.delete())
        connection.execute(call.delete().where(call.c.kind != "label"))
        assert datasets.all_rows(connection)

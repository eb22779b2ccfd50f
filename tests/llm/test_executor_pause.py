"""Work that is paused or reaches a cap: what is under way ends and is recorded, nothing begins, a resume goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from evaluating import add
from executing import eventually
from hostile import IncomingRequest, Reply, completion, error, hostile_server, texts_of
from worlds import make_profile

from cimemories.llm import worker
from cimemories.llm.client import Client
from cimemories.llm.endpoint import Endpoint
from cimemories.llm.executor import Job, Progress
from cimemories.llm.http import traffic
from cimemories.llm.source import Source, Unit
from cimemories.llm.worker import WorkError
from cimemories.model import ChatRequest, WorkStatus
from cimemories.store import calls, runs, work
from cimemories.store.calls import Answer
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import call, run, run_call

JOBS = 12


def planned(store: Store) -> str:
    """A run that plans nothing: the jobs of these tests stand for its responses."""
    add(store, [make_profile(0, 2, 1)], "world")
    with store.write() as connection:
        dataset = connection.execute(sa.select(sa.text("id")).select_from(sa.text("dataset"))).scalar_one()
        return runs.add(
            connection,
            {
                "name": "r",
                "dataset": dataset,
                "dataset_hash": "h",
                "model": "m",
                "endpoint": "http://x",
                "simulated": False,
                "samples": 1,
                "seed": None,
                "prompt_level": "base",
                "prompt_hash": "p",
                "composition": "full",
                "parameters": "{}",
            },
            manifest={},
        )


def request(number: int) -> ChatRequest:
    return ChatRequest("m", (("user", f"Question {number}"),))


class Owed(Source):
    """Work of one unit, whose jobs `make` makes."""

    def __init__(self, make: Callable[[Callable[[Endpoint, bool], Client]], list[Job]] = lambda _: []) -> None:
        self.make = make

    def servers(self, store: Store) -> list[str]:
        return []

    def key_variables(self, store: Store) -> list[str]:
        return []

    def profiles(self, store: Store) -> list[int]:
        return [0]

    def most_parts(self, store: Store) -> int:
        return 1

    def opened(
        self, store: Store, client: Callable[[Endpoint, bool], Client], urls: Mapping[str, str]
    ) -> Callable[[Unit], list[Job]]:
        return lambda _: self.make(client)


class Questions(Owed):
    """Jobs of one call each, every one followed by a second one, and which of them have settled."""

    def __init__(self, url: str, count: int = JOBS) -> None:
        self.url, self.count = url, count
        self.settled: list[str] = []
        super().__init__(self.jobs)

    def jobs(self, client: Callable[[Endpoint, bool], Client]) -> list[Job]:
        asking = client(Endpoint(self.url, timeout=30.0), False)
        return [self.job(asking, "respond", number) for number in range(self.count)]

    def job(self, client: Client, kind: str, number: int) -> Job:
        def settle(_: sa.Connection, outcomes: Mapping[int, Answer]) -> Sequence[Job]:
            self.settled.append(f"{kind} {number}")
            return [self.job(client, "judge", number + 1000)] if kind == "respond" else []

        return Job(kind, client, request(number), (0,), settle)


def status(store: Store, work_id: str) -> tuple[str, str | None]:
    with store.read() as connection:
        row = work.load(connection, work_id)
    return row["status"], row["error"]


def recorded(store: Store) -> int:
    with store.read() as connection:
        return int(connection.execute(sa.select(sa.func.count()).where(call.c.status == "ok")).scalar_one())


def linked(store: Store, run_id: str) -> set[str]:
    with store.read() as connection:
        return set(connection.execute(sa.select(run_call.c.call).where(run_call.c.run == run_id)).scalars())


def test_pausing_lets_what_is_under_way_end_and_resuming_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "HEARTBEAT_SECONDS", 0.05)
    run_id = planned(store)
    release = threading.Event()

    def waits(chat_request: IncomingRequest) -> Reply:
        if chat_request.number >= 4:
            release.wait(20)
        return texts_of(chat_request)

    with hostile_server(waits) as server, ThreadPoolExecutor(1) as pool:
        questions = Questions(server.url)
        working = pool.submit(worker.perform, store, run_id, questions, concurrency=3)
        try:
            assert eventually(lambda: server.under_way == 3 and len(server.chats) >= 7)
            with store.write() as connection:
                work.request_pause(connection, run_id)
            assert status(store, run_id)[0] == WorkStatus.PAUSING
            time.sleep(0.3)  # several heartbeats
            assert not working.done(), "the calls in flight are waited for"
        finally:
            release.set()
        progress = working.result(timeout=20)
        calls_made = len(server.chats)
        assert status(store, run_id) == (WorkStatus.PAUSED, None)
        assert progress.fresh == calls_made == recorded(store) == len(questions.settled) < 2 * JOBS, "no call was lost"
        again = Questions(server.url)
        rest = worker.perform(store, run_id, again, concurrency=3)
        assert status(store, run_id)[0] == WorkStatus.FINISHED
    assert len(server.chats) == 2 * JOBS == recorded(store), "and none is asked for twice"
    assert (rest.fresh, rest.reused) == (2 * JOBS - calls_made, calls_made)


def test_a_pause_does_not_wait_for_a_server_that_lets_nothing_through(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(traffic, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(traffic, "WINDOW_SECONDS", 0.1)  # STALLED_SECONDS stay
    run_id = planned(sqlite_store)

    def limits(chat_request: IncomingRequest) -> Reply:
        return texts_of(chat_request) if chat_request.number < 4 else error(429, "slow down")

    with hostile_server(limits) as server, ThreadPoolExecutor(1) as pool:
        working = pool.submit(worker.perform, sqlite_store, run_id, Questions(server.url), concurrency=3)
        assert eventually(lambda: len(server.chats) >= 10)
        with sqlite_store.write() as connection:
            work.request_pause(connection, run_id)
        working.result(timeout=20)
    assert status(sqlite_store, run_id) == (WorkStatus.PAUSED, None)


def test_what_nobody_works_on_is_paused_at_once_and_waits_for_no_worker(sqlite_store: Store) -> None:
    run_id = planned(sqlite_store)
    with sqlite_store.write() as connection:
        work.queue(connection, run_id)
        work.request_pause(connection, run_id)
    assert status(sqlite_store, run_id)[0] == WorkStatus.PAUSED
    with pytest.raises(StoreError, match="paused before its worker started"):
        worker.perform(sqlite_store, run_id, Owed(), concurrency=1, queued=True)
    worker.perform(sqlite_store, run_id, Owed(), concurrency=1)
    assert status(sqlite_store, run_id)[0] == WorkStatus.FINISHED
    with sqlite_store.write() as connection:
        work.request_pause(connection, run_id)
    assert status(sqlite_store, run_id)[0] == WorkStatus.FINISHED, "what has ended stays as it ended"


def test_a_cap_ends_the_work_with_all_that_was_paid_for(sqlite_store: Store) -> None:
    run_id = planned(sqlite_store)
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}

    def cap(progress: Progress) -> str | None:
        return "the cap of 50 tokens is reached" if progress.prompt_tokens >= 50 else None

    with hostile_server(lambda chat_request: completion("text", usage=usage)) as server:
        with pytest.raises(WorkError, match=f"the cap of 50 tokens is reached.*resume {run_id}"):
            worker.perform(sqlite_store, run_id, Questions(server.url), concurrency=3, stop_when=cap)
        assert status(sqlite_store, run_id) == (WorkStatus.INTERRUPTED, "the cap of 50 tokens is reached")
        assert 5 <= len(server.chats) == recorded(sqlite_store) < 5 + 3 + 3
        worker.perform(sqlite_store, run_id, Questions(server.url), concurrency=3, stop_when=lambda _: None)
    assert len(server.chats) == 2 * JOBS


def test_a_cap_that_the_last_call_reaches_interrupts_nothing(sqlite_store: Store) -> None:
    run_id = planned(sqlite_store)
    with hostile_server() as server:
        worker.perform(
            sqlite_store,
            run_id,
            Questions(server.url, 2),
            concurrency=9,
            stop_when=lambda progress: "enough" if progress.done == 4 else None,
        )
    assert status(sqlite_store, run_id)[0] == WorkStatus.FINISHED


def test_every_call_that_a_run_used_is_linked_to_it_and_counted_by_kind(store: Store) -> None:
    first = planned(store)
    with store.write() as connection:
        values = dict(connection.exec_driver_sql("SELECT * FROM run").mappings().one())  # as they are stored
        connection.execute(sa.insert(run).values({**values, "id": "run-second"}))

    def refuses_one(chat_request: IncomingRequest) -> Reply:
        return (
            Reply(400, "no") if chat_request.body["messages"][0]["content"] == "Question 3" else texts_of(chat_request)
        )

    with hostile_server(refuses_one) as server:
        progress = worker.perform(store, first, Questions(server.url), concurrency=4)
        keys = {
            key
            for number in [*range(JOBS), *range(1000, 1000 + JOBS)]
            for key in calls.keys_of(request(number), [0], simulated=False).values()
        }
        assert linked(store, first) == keys, "failures are calls too"
        again = worker.perform(store, "run-second", Questions(server.url), concurrency=4)
    assert linked(store, "run-second") == keys, "what came from the record is linked as well"
    assert {kind: (tally.fresh, tally.reused) for kind, tally in progress.by_kind.items()} == {
        "respond": (JOBS, 0),
        "judge": (JOBS, 0),
    }
    assert {kind: (tally.fresh, tally.reused, dict(tally.failed)) for kind, tally in again.by_kind.items()} == {
        "respond": (1, JOBS - 1, {"rejected": 1}),
        "judge": (0, JOBS, {}),
    }
    assert (again.fresh, again.reused, again.done) == (1, 2 * JOBS - 1, 2 * JOBS)


def test_the_same_call_asked_twice_at_once_is_recorded_once(store: Store) -> None:
    """Two jobs of one batch that ask the very same: both go on with what the record holds, whichever came first."""
    run_id = planned(store)
    heard: list[str | None] = []

    def settle(_: sa.Connection, outcomes: Mapping[int, Answer]) -> Sequence[Job]:
        heard.append(outcomes[0].content)
        return ()

    def jobs(client: Callable[[Endpoint, bool], Client]) -> list[Job]:
        asking = client(Endpoint(server.url), False)
        return [Job("respond", asking, request(0), (0,), settle) for _ in range(6)]

    with hostile_server(lambda chat_request: completion(f"answer {chat_request.number}")) as server:
        worker.perform(store, run_id, Owed(jobs), concurrency=6)
    assert len(heard) == 6
    assert len(set(heard)) == 1
    assert recorded(store) == 1

"""How work ends early: a dead server, a wrong name or key, a full disk, a person who cancels. Always with a status that
is true, with what had been recorded, and so that a resume finishes it."""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
import sqlalchemy as sa
from evaluating import add, assert_whole, counts, row_of
from executing import MODELS, SAMPLES, answering, eventually, is_judging, spec
from hostile import IncomingRequest, Reply, error, hostile_server
from worlds import make_profile

from cimemories.evaluation import planning, runs
from cimemories.flows.progress import run_progress
from cimemories.llm import executor, worker
from cimemories.llm.worker import WorkError
from cimemories.store import work
from cimemories.store.engine import Store

CONTEXTS = 40


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK waits half a second and more before it tries again; here that would only cost time."""
    monkeypatch.setattr(openai._base_client, "INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr(openai._base_client, "MAX_RETRY_DELAY", 0.02)


def world(store: Store) -> None:
    add(store, [make_profile(0, 6, CONTEXTS)], "world")


def finish(store: Store, run_id: str, url: str) -> None:
    """Resume on a server that works and see that everything is there in the end."""
    runs.execute(store, run_id, base_url=url, judge_base_url=url)
    assert_whole(store, run_id, CONTEXTS * SAMPLES)


def stopped(store: Store, run_id: str, concurrency: int = 4) -> str:
    """Execute what is going to end early; returns what the person is told."""
    with pytest.raises(WorkError) as caught:
        runs.execute(store, run_id, concurrency=concurrency)
    message = str(caught.value)
    assert f"cimemories resume {run_id}" in message
    assert "\n" not in message
    return message


def test_a_dead_server_stops_the_work(store: Store) -> None:
    world(store)
    silenced = threading.Event()

    def dies(request: IncomingRequest) -> Reply:
        if request.number >= 15:
            silenced.set()
        return Reply(body=b"x" * 50, cut=0) if silenced.is_set() else answering(request)

    with hostile_server(dies, MODELS) as server:
        run_id = planning.plan(store, spec(server.url))
        message = stopped(store, run_id)
        assert "no longer answers" in message
        row = row_of(store, run_id)
        assert row.status == "interrupted"
        assert row.error
        assert row.error in message
        assert row.responses["ok"] >= 3, "what had come in before is kept"
        lost = len(server.chats[15:]) // 5  # each is tried five times
        assert lost <= executor.UNREACHABLE_IN_A_ROW + 4, "it gives up soon"
        kept = counts(store)["responses"]
    with hostile_server(answering, MODELS) as server:
        finish(store, run_id, server.url)
        fresh = [chat for chat in server.chats if not is_judging(chat)]
        assert sum(chat.n for chat in fresh) == CONTEXTS * SAMPLES - kept, "only what was owed"


@pytest.mark.parametrize(
    ("reply", "message"),
    [(error(404, "the model has been unloaded"), "unloaded"), (error(401, "the key has expired"), "expired")],
    ids=["unknown model", "bad key"],
)
def test_what_no_later_call_can_mend_stops_at_once(sqlite_store: Store, reply: Reply, message: str) -> None:
    world(sqlite_store)
    with hostile_server(lambda request: reply, MODELS) as server:
        run_id = planning.plan(sqlite_store, spec(server.url))
        assert message in stopped(sqlite_store, run_id)
        assert len(server.chats) <= 4
        assert row_of(sqlite_store, run_id).status == "interrupted"
    with hostile_server(answering, MODELS) as server:
        finish(sqlite_store, run_id, server.url)


def test_a_key_that_may_do_nothing_stops_after_a_few(sqlite_store: Store) -> None:
    world(sqlite_store)
    with hostile_server(lambda request: error(403, "your plan has no access"), MODELS) as server:
        run_id = planning.plan(sqlite_store, spec(server.url))
        assert "your plan has no access" in stopped(sqlite_store, run_id)
        assert executor.FORBIDDEN_IN_A_ROW <= len(server.chats) <= executor.FORBIDDEN_IN_A_ROW + 4
    with hostile_server(answering, MODELS) as server:
        finish(sqlite_store, run_id, server.url)


def test_messages_that_a_server_forbids_do_not_stop_the_others(sqlite_store: Store) -> None:
    """However many of them come one after the other: the server has answered others."""
    world(sqlite_store)

    def forbids(request: IncomingRequest) -> Reply:
        late = request.number >= 4 and not is_judging(request) and "Task 39\n" not in str(request.body["messages"])
        return error(403, "no access to this") if late else answering(request)

    with hostile_server(forbids, MODELS) as server:
        run_id = planning.plan(sqlite_store, spec(server.url))
        progress = runs.execute(sqlite_store, run_id, concurrency=1)
    assert progress.failed["forbidden"] > executor.FORBIDDEN_IN_A_ROW * SAMPLES
    assert row_of(sqlite_store, run_id).status == "finished with failures"


def test_a_judge_that_is_gone_stops_the_work_though_the_model_answers(sqlite_store: Store) -> None:
    world(sqlite_store)

    def no_judge(request: IncomingRequest) -> Reply:
        return Reply(body=b"x" * 50, cut=0) if is_judging(request) else answering(request)

    with hostile_server(no_judge, MODELS) as server:
        # One sample: after each judgement that fails comes a message that does not.
        run_id = planning.plan(sqlite_store, spec(server.url, samples=1))
        assert "no longer answers" in stopped(sqlite_store, run_id, concurrency=1)
        written = sum(not is_judging(request) for request in server.chats)
    assert written <= executor.UNREACHABLE_IN_A_ROW + 2, "not only once all messages are written"


def test_tries_that_time_out_are_shown_before_anything_has_come_back(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the command line by its progress, to the page by the record."""
    monkeypatch.setattr(worker, "HEARTBEAT_SECONDS", 0.05)
    world(sqlite_store)
    told: list[executor.Progress] = []
    shown = threading.Event()

    def slow(request: IncomingRequest) -> Reply:
        return answering(request) if shown.is_set() else Reply(wait=1.0)

    def report(done: executor.Progress) -> None:
        told.append(copy.deepcopy(done))

    with hostile_server(slow, MODELS) as server, ThreadPoolExecutor(1) as pool:
        run_id = planning.plan(sqlite_store, spec(server.url, timeout=0.1, samples=1))
        working = pool.submit(runs.execute, sqlite_store, run_id, concurrency=1, on_progress=report)
        try:
            slowed = eventually(lambda: run_progress(sqlite_store, run_id).slowed)
        finally:
            shown.set()
        working.result(30)
    assert "timed out after 0.1 s" in slowed
    assert told[0].slowed
    assert told[0].done == 0, "it is told while the first request waits"
    ended = run_progress(sqlite_store, run_id)
    assert (ended.slowed, ended.error) == ("", None)


def test_single_failures_do_not_stop_the_work(sqlite_store: Store) -> None:
    """A context that the server refuses is missing with its cause; all the others are there."""
    world(sqlite_store)

    def refuses_one(request: IncomingRequest) -> Reply:
        refused = "Task 3\n" in request.body["messages"][0]["content"] and not is_judging(request)
        return error(400, "the prompt is too long") if refused else answering(request)

    with hostile_server(refuses_one, MODELS) as server:
        run_id = planning.plan(sqlite_store, spec(server.url))
        progress = runs.execute(sqlite_store, run_id)
    row = row_of(sqlite_store, run_id)
    assert row.status == "finished with failures"
    assert progress.failed == {"rejected": SAMPLES}
    assert row.responses == {"ok": (CONTEXTS - 1) * SAMPLES, "failed": SAMPLES}
    assert row.coverage == (CONTEXTS - 1) / CONTEXTS
    with hostile_server(answering, MODELS) as server:
        finish(sqlite_store, run_id, server.url)


def test_a_request_that_is_cut_counts_once_however_many_samples_it_asks_for(sqlite_store: Store) -> None:
    world(sqlite_store)
    samples = executor.UNREACHABLE_IN_A_ROW

    def cuts_one(request: IncomingRequest) -> Reply:
        cut = "Task 3\n" in request.body["messages"][0]["content"] and not is_judging(request)
        return Reply(body=b"x" * 50, cut=0) if cut else answering(request)

    with hostile_server(cuts_one, MODELS) as server:
        run_id = planning.plan(sqlite_store, spec(server.url, samples=samples))
        progress = runs.execute(sqlite_store, run_id, concurrency=2)
    assert progress.failed == {"connection": samples}
    assert row_of(sqlite_store, run_id).responses == {"ok": (CONTEXTS - 1) * samples, "failed": samples}


def pages(store: Store) -> int:
    with store.read() as connection:
        return int(connection.exec_driver_sql("PRAGMA page_count").scalar_one())


@pytest.fixture
def on_connect(sqlite_store: Store) -> Callable[[str], None]:
    """Sets a pragma on all connections from now on; the pragma itself is real, as are the errors that it causes."""
    pragma = [""]

    def begin(connection: sa.Connection) -> None:
        if pragma[0]:
            connection.exec_driver_sql(pragma[0])

    def change(statement: str) -> None:
        pragma[0] = statement

    # Listened from the start: a listener that is added while another thread begins a transaction breaks that one.
    sa.event.listen(sqlite_store.engine, "begin", begin)
    return change


def test_a_full_disk_interrupts_and_loses_nothing(
    sqlite_store: Store, on_connect: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    world(sqlite_store)
    with hostile_server(answering, MODELS) as server:
        run_id = planning.plan(sqlite_store, spec(server.url))
        on_connect(f"PRAGMA max_page_count = {pages(sqlite_store) + 8}")
        message = stopped(sqlite_store, run_id)
        assert "full" in message
        gc.collect()
        assert not caplog.records, "nothing but the message, however many commits failed at once"
        row = row_of(sqlite_store, run_id)
        assert row.status == "interrupted"
        assert "full" in str(row.error)
        kept = counts(sqlite_store)
        assert kept["calls"] > 0
        assert row.responses["owed"] > 0
        on_connect("PRAGMA max_page_count = 1000000")
        made = len(server.chats)
        finish(sqlite_store, run_id, server.url)
        again = sum(request.n for request in server.chats[made:] if not is_judging(request))
    assert again == CONTEXTS * SAMPLES - kept["responses"], "no answer that was recorded is asked for again"


def test_a_read_only_record_stops_the_work_and_loses_nothing(
    sqlite_store: Store, on_connect: Callable[[str], None]
) -> None:
    world(sqlite_store)

    def goes_read_only(request: IncomingRequest) -> Reply:
        if request.number == 12:
            on_connect("PRAGMA query_only = ON")
        return answering(request)

    with hostile_server(goes_read_only, MODELS) as server:
        run_id = planning.plan(sqlite_store, spec(server.url))
        assert "readonly" in stopped(sqlite_store, run_id).replace("-", "")
        kept = counts(sqlite_store)
        assert 0 < kept["responses"] < CONTEXTS * SAMPLES
        on_connect("PRAGMA query_only = OFF")
        assert counts(sqlite_store) == kept
        finish(sqlite_store, run_id, server.url)


def test_cancelling_does_not_wait_for_answers(store: Store) -> None:
    world(store)

    answered = threading.Event()

    def slow(request: IncomingRequest) -> Reply:
        if request.number >= 6:
            answered.wait(120)
        return answering(request)

    with ThreadPoolExecutor(1) as pool, hostile_server(slow, MODELS) as server:
        run_id = planning.plan(store, spec(server.url, timeout=120.0))
        working = pool.submit(runs.execute, store, run_id, concurrency=2)
        assert eventually(lambda: len(server.chats) > 6)
        with store.write() as connection:
            work.request_cancel(connection, run_id)
        assert row_of(store, run_id).status == "cancelling"
        with pytest.raises(WorkError, match="cancelled on request"):
            working.result(timeout=60)
        answered.set()  # what is under way was not waited for
    row = row_of(store, run_id)
    assert row.status == "cancelled"
    assert 0 < row.responses["ok"] < CONTEXTS * SAMPLES
    with hostile_server(answering, MODELS) as server:
        finish(store, run_id, server.url)


def test_cancelling_what_nobody_works_on_is_done_at_once(sqlite_store: Store) -> None:
    world(sqlite_store)
    with hostile_server(answering, MODELS) as server:
        run_id = planning.plan(sqlite_store, spec(server.url))
        with sqlite_store.write() as connection:
            work.request_cancel(connection, run_id)
        assert row_of(sqlite_store, run_id).status == "cancelled"
        finish(sqlite_store, run_id, server.url)

"""Who may work on what: claims go by the database's clock, and a worker that lost its claim writes nothing more."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import sqlalchemy as sa
from authored import spec as authoring_spec
from conftest import LONG_ON_POSTGRES
from evaluating import add, assert_whole, row_of, simulated, small_profiles
from executing import MODELS, answering, is_judging
from executing import spec as run_spec
from forked import Forked
from hostile import IncomingRequest, Reply, hostile_server
from planned_sweeps import planned as planned_sweep
from worlds import add_dataset, add_run, make_profile, records

from cimemories.curation import authoring, execution, labelling
from cimemories.curation.spec import LabellingSpec
from cimemories.evaluation import batches, planning, runs, sweeps
from cimemories.llm import worker
from cimemories.llm.worker import WorkError
from cimemories.model import WorkStatus
from cimemories.store import reviews, tables, work
from cimemories.store import runs as store_runs
from cimemories.store.engine import Store, StoreError, open_store
from cimemories.store.tables import claim

if TYPE_CHECKING:
    from conftest import Database

# On a machine of another name, whose clock is so many seconds ahead.
ELSEWHERE = """
import socket, time
right = time.time
time.time = lambda: right() + {ahead!r}
socket.gethostname = lambda: {name!r}
"""
HOUR = 3600.0


@pytest.fixture
def opened(database: Database) -> Iterator[Store]:
    store = open_store(database.workspace, database.url)
    yield store
    store.close()


def row(store: Store, work_id: str) -> sa.RowMapping:
    with store.read() as connection:
        return work.load(connection, work_id)


def take_over(store: Store, work_id: str) -> work.Claim:
    """Claim work as somebody would who has heard nothing of its worker."""
    with store.write() as connection:
        return work.claim(connection, work_id)


def set_heartbeat(store: Store, work_id: str, ago: float) -> None:
    """Let the last sign of life be so many seconds old by the database's clock."""
    table = work.table_of(work_id)
    with store.write() as connection:
        moment = work.database_clock() - ago
        connection.execute(sa.update(table).where(table.c.id == work_id).values(heartbeat=moment))


# --- clocks ---


@pytest.mark.parametrize("database", LONG_ON_POSTGRES, indirect=True)
def test_a_wrong_clock_neither_takes_over_what_lives_nor_spares_what_is_dead(database: Database, opened: Store) -> None:
    add(opened, [make_profile(0, 4, 6)])
    release = threading.Event()

    def waits(request: IncomingRequest) -> Reply:
        if request.number >= 2:
            release.wait(60)
        return answering(request)

    def resume(ahead: float, name: str) -> Forked:
        verb = ["resume", run_id, "--concurrency", "1", "--workspace", str(database.workspace)]
        return Forked(database.environment, *verb, first=ELSEWHERE.format(ahead=ahead, name=name))

    with hostile_server(waits, MODELS) as server:
        # Its request waits as long as two processes take to start, on a busy machine half a minute, and is not to be
        # sent again meanwhile.
        run_id = planning.plan(opened, run_spec(server.url, dataset="small", timeout=120.0))
        first = resume(0, "one")
        try:
            while len(server.chats) < 3 and first.poll() is None:
                time.sleep(0.02)
            for ahead in (60.0, -HOUR):
                rival = resume(ahead, "two")
                _, errors = rival.communicate(timeout=60)
                assert rival.returncode == 1
                assert f"process {first.pid} on one" in errors
            before = row(opened, run_id)["heartbeat_age"]
            assert 0 <= before < work.STALE_SECONDS
            first.kill()
            first.wait()
        finally:
            first.kill()
            release.set()
        set_heartbeat(opened, run_id, HOUR)
        heir = resume(-HOUR, "two")
        assert heir.wait(timeout=60) == 0
        # The message that the dead worker had under way may have been asked for twice, every other one once.
        bodies = [str(chat.body) for chat in server.chats if not is_judging(chat)]
        assert len(bodies) - len(set(bodies)) <= 1
    planned = len(small(opened, run_id))
    assert_whole(opened, run_id, planned)


def small(store: Store, run_id: str) -> list[int]:
    with store.read() as connection:
        return list(
            connection.execute(sa.select(tables.response.c.id).where(tables.response.c.run == run_id)).scalars()
        )


def test_a_heartbeat_from_the_future_is_of_before_the_clock_was_set_back(store: Store) -> None:
    run_id = add_run(store, add_dataset(store, profiles=1).id, 1, {}, status=WorkStatus.QUEUED)
    take_over(store, run_id)
    with store.write() as connection:
        connection.execute(sa.update(tables.run).values(host="elsewhere", pid=1))
    for ago, lives in ((0, True), (-5, True), (-HOUR, False), (HOUR, False)):
        set_heartbeat(store, run_id, ago)
        assert work.is_alive(row(store, run_id)) is lives, ago
    take_over(store, run_id)
    assert row(store, run_id)["host"] == socket.gethostname()


def test_workers_are_given_time_to_come_back_to_a_server_that_was_restarted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = add_run(store, add_dataset(store, profiles=1).id, 1, {}, status=WorkStatus.QUEUED)
    take_over(store, run_id)
    with store.write() as connection:
        connection.execute(sa.update(tables.run).values(host="elsewhere", pid=1))
    for since_start, ago, lives in ((5, 50, True), (5, 200, False), (HOUR, 50, False), (40, 50, False)):
        monkeypatch.setattr(work, "database_started", lambda since=since_start: work.database_clock() - since)
        set_heartbeat(store, run_id, ago)
        assert work.is_alive(row(store, run_id)) is lives, (since_start, ago)


def test_a_process_is_known_again_after_the_clock_was_set(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """psutil reckons when a process was started from the present time: it moves with the clock."""
    run_id = add_run(store, add_dataset(store, profiles=1).id, 1, {}, status=WorkStatus.QUEUED)
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        take_over(store, run_id)
        started = work._started(psutil.Process(sleeper.pid))
        with store.write() as connection:
            connection.execute(sa.update(tables.run).values(pid=sleeper.pid, process_started=started))
        right = psutil.Process.create_time
        monkeypatch.setattr(psutil.Process, "create_time", lambda self: right(self) - HOUR)
        set_heartbeat(store, run_id, HOUR)
        assert work.is_alive(row(store, run_id))
        with pytest.raises(StoreError, match=f"process {sleeper.pid} on"):
            take_over(store, run_id)
    finally:
        sleeper.kill()
        sleeper.wait()
    assert not work.is_alive(row(store, run_id))


def test_machines_of_one_name_are_told_apart(store: Store) -> None:
    """The process numbers of another machine say nothing here, even where it has the same name."""
    run_id = add_run(store, add_dataset(store, profiles=1).id, 1, {}, status=WorkStatus.QUEUED)
    take_over(store, run_id)
    with store.write() as connection:
        connection.execute(sa.update(tables.run).values(machine="another", pid=2**22 + 1))
    assert work.is_alive(row(store, run_id))
    with pytest.raises(StoreError, match="is running"):
        take_over(store, run_id)
    set_heartbeat(store, run_id, HOUR)
    take_over(store, run_id)


def test_pairs_are_reserved_by_the_clock_of_the_database(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    data = add_dataset(store, 1, 4, 2)
    (record,) = records(store, data.id)
    pairs = [(attribute, record.context_ids[0]) for attribute in record.attribute_ids]

    def ask(who: str) -> list[tuple[int, int]]:
        with store.write() as connection:
            return reviews.hand_out_pairs(connection, data.id, who, f"tab of {who}", iter(pairs), 2, 60)

    assert ask("Ada") == pairs[:2]
    right = time.time
    for ahead in (HOUR, -HOUR):
        monkeypatch.setattr(time, "time", lambda ahead=ahead: right() + ahead)
        assert ask("Bea") == pairs[2:4]
    with store.write() as connection:  # claimed before the database's clock was set back by an hour
        connection.execute(sa.update(claim).values(until=claim.c.until + HOUR))
    assert ask("Cem") == pairs[:2]


# --- fencing ---


@contextmanager
def taken_over(store: Store, work_id: str) -> Iterator[Callable[..., None]]:
    """Gives what to call once something has been recorded: the work is then another's, and nothing changes any more."""
    state: dict[str, Any] = {}

    def take(*_: object) -> None:
        if not state:
            state["claim"] = take_over(store, work_id)
            state["row"] = dict(row(store, work_id))

    yield take
    assert state, "the work had come so far"
    left = dict(row(store, work_id))
    same = ("status", "error", "claim", "finished", "heartbeat", "revision")
    assert {name: left[name] for name in same} == {name: state["row"][name] for name in same}
    assert left["status"] == WorkStatus.RUNNING


def test_a_run_that_was_taken_over_is_let_go(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "HEARTBEAT_SECONDS", 0.05)
    add(store, small_profiles(contexts=6))
    run_id = planning.plan(store, simulated())
    settled: list[dict[str, int]] = []

    with taken_over(store, run_id) as take:

        def report(_: object) -> None:
            take()
            settled.append(row_of(store, run_id).responses)

        with pytest.raises(WorkError, match=r"was taken over by process \d+ on") as caught:
            runs.execute(store, run_id, concurrency=2, on_progress=report)
    assert "\n" not in str(caught.value)
    assert row_of(store, run_id).responses == settled[0], "nothing was written after the claim was gone"
    runs.execute(store, run_id)
    assert_whole(store, run_id, 18)


def test_a_labelling_that_was_taken_over_is_let_go(store: Store) -> None:
    add(store, small_profiles(contexts=6))
    made = labelling.plan(store, LabellingSpec(dataset="small", model="sim-labeler", base_url="simulator", draws=2))
    with taken_over(store, made) as take, pytest.raises(WorkError, match="was taken over"):
        execution.execute(store, made, concurrency=1, on_progress=take)


def test_a_generation_that_was_taken_over_is_let_go(store: Store) -> None:
    made = authoring.plan(store, authoring_spec())
    with taken_over(store, made) as take, pytest.raises(WorkError, match="was taken over"):
        execution.execute(store, made, concurrency=1, on_progress=take)
    with store.read() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(tables.dataset)).scalar() == 0


def test_a_sweep_that_was_taken_over_lets_its_run_go_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cimemories.llm.worker.HEARTBEAT_SECONDS", 0.05)
    add(store, small_profiles(contexts=4))
    sweep_id = planned_sweep(store, memory=["full"])
    with taken_over(store, sweep_id) as take:

        @contextmanager
        def begin(*_: object) -> Iterator[Callable[[object], None]]:
            def report(_: object) -> None:
                take()
                time.sleep(0.1)  # two heartbeats of the sweep

            yield report

        with pytest.raises(WorkError, match="was taken over"):
            sweeps.execute(store, sweep_id, concurrency=1, begin=begin)
    with store.read() as connection:
        assert store_runs.of_sweep(connection, sweep_id)[0].status == WorkStatus.INTERRUPTED


def test_a_batch_that_was_taken_over_writes_nothing(store: Store) -> None:
    run_id = add_run(store, add_dataset(store, profiles=1).id, 1, {}, status=WorkStatus.PAUSED)
    with taken_over(store, run_id) as take, pytest.raises(work.ClaimLost), batches._at_work(store, run_id) as (own, _):  # noqa: PT012
        write(own, run_id)
        take()
        write(own, run_id)


def write(store: Store, run_id: str) -> None:
    with store.write() as connection:
        work.bump(connection, run_id)


@pytest.mark.parametrize("ended", [WorkStatus.CANCELLED, WorkStatus.PAUSED, None])
def test_what_was_ended_or_deleted_meanwhile_is_let_go(store: Store, ended: WorkStatus | None) -> None:
    """A worker on another machine that gave no sign of life for too long: it was ended without it, and comes back."""
    run_id = add_run(store, add_dataset(store, profiles=1).id, 1, {}, status=WorkStatus.QUEUED)
    own, _ = worker.begin(store, run_id)
    with store.write() as connection:
        connection.execute(sa.update(tables.run).values(host="elsewhere"))
    set_heartbeat(store, run_id, HOUR)
    with store.write() as connection:
        if ended is None:
            store_runs.delete(connection, run_id)
        else:
            (work.request_cancel if ended == WorkStatus.CANCELLED else work.request_pause)(connection, run_id)
    with pytest.raises(work.ClaimLost, match="was deleted" if ended is None else f"was {ended}"), own.write():
        pytest.fail("the block must not be entered")
    if ended is not None:
        assert row(store, run_id)["status"] == ended
    assert own.fence.__self__.work_id == run_id


def test_every_write_of_a_worker_is_a_sign_of_life(store: Store) -> None:
    run_id = add_run(store, add_dataset(store, profiles=1).id, 1, {}, status=WorkStatus.QUEUED)
    own, _ = worker.begin(store, run_id)
    set_heartbeat(store, run_id, HOUR)
    write(own, run_id)
    assert 0 <= row(store, run_id)["heartbeat_age"] < work.STALE_SECONDS


def test_what_a_person_said_last_holds_also_where_a_clock_was_ahead(store: Store) -> None:
    """The same person on two servers of one record, the first with a clock an hour ahead."""
    data = add_dataset(store, 1, 4, 2)
    (record,) = records(store, data.id)
    pair = record.attribute_ids[0], record.context_ids[0]
    ahead = "2999-01-01T00:00:00.000Z"
    with store.write() as connection:
        reviews.add_marks(connection, data.id, "Ada", [reviews.Mark(*pair, reviews.MarkKind.SKIP, created=ahead)])
    with store.write() as connection:
        reviews.add_marks(connection, data.id, "Ada", [reviews.Mark(*pair, reviews.MarkKind.CLEAR)])
    with store.read() as connection:
        assert reviews.standing_marks(connection, data.id, reviews.MarkKind.SKIP) == set()

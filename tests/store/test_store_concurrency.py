"""Several processes on one record, on both engines: real ones, started at once, and killed in the middle.

What is proved: an acknowledged write is there afterwards, a transaction is there whole or not at all, nobody gets a
lock error, and of those who claim the same work one wins.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import sqlalchemy as sa
from evaluating import add, simulated, small_profiles
from processes import PATIENCE, PROCESSES, together
from worlds import add_dataset, add_profiles, add_run, answer, dead_pid, make_profile, records

from cimemories.access import roles
from cimemories.access.roles import Role
from cimemories.curation import labelling
from cimemories.curation.spec import LabellingSpec
from cimemories.evaluation import planning
from cimemories.evaluation.sweeps import work as sweeps
from cimemories.exchange import freezing
from cimemories.flows import catalogue
from cimemories.model import ChatRequest, Label, WorkStatus
from cimemories.review import queue, status
from cimemories.store import audits, calls, datasets, decisions, engine, migrations, reviews, runs, tables, work
from cimemories.store.engine import Store, StoreError, open_store
from cimemories.store.team import assignments, people

if TYPE_CHECKING:
    from conftest import Database

WRITES = 12


def open_and_look(store: Store) -> list[str]:
    with store.read() as connection:
        return [row.name for row in datasets.all_rows(connection)]


def test_processes_that_open_a_new_workspace_at_once_all_succeed(bare_database: Database) -> None:
    assert together(bare_database, [(open_and_look, ())] * 3, opened=False) == [[]] * 3
    store = open_store(bare_database.workspace, bare_database.url)
    with store.read() as connection:
        assert connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalars().all() == [
            migrations.HEAD
        ]
    store.close()


def test_a_new_workspace_is_opened_once_its_file_is_free(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / engine.SQLITE_FILE, isolation_level=None, check_same_thread=False)
    with contextlib.closing(other):
        other.execute("BEGIN IMMEDIATE")
        done = threading.Timer(0.3, other.rollback)
        done.start()
        open_store(tmp_path).close()
        done.join()


# --- writers at once ---


def write_decisions(store: Store, who: str, dataset_id: int, pairs: list[tuple[int, int]]) -> list[int]:
    ids = []
    for i in range(WRITES):
        attribute, context = pairs[i % len(pairs)]
        with store.write() as connection:
            new = decisions.add(
                connection,
                dataset_id=dataset_id,
                attribute=attribute,
                context=context,
                annotator=who,
                label=Label.NECESSARY if i % 2 else None,
            )
        ids.append(new)
    return ids


def write_calls(store: Store, who: str) -> dict[str, str]:
    """Half of the requests are the same for every process: all must go on with one and the same text."""
    texts = {}
    for i in range(WRITES):
        item = ChatRequest("model", (("user", f"shared {i}" if i % 2 else f"{who} {i}"),))
        key = calls.keys_of(item, [0], simulated=False)[0]
        with store.write() as connection:
            outcome = answer(key, exchange=f"{who}-{i}", content=f"{who} says {i}")
            (held,) = calls.record_all(connection, [calls.Exchange(item, [outcome], "respond", "http://x", False)])
        texts[key] = held[0].content
    return texts


def import_dataset(store: Store, name: str) -> int:
    return add_profiles(store, [make_profile(i, 60, 20) for i in range(10)], name).id


def test_annotators_workers_and_an_import_write_at_once(store: Store, database: Database) -> None:
    dataset = add_dataset(store, profiles=1)
    person = records(store, dataset.id)[0]
    pairs = [(a, c) for a in person.attribute_ids for c in person.context_ids]
    annotators = [(write_decisions, (who, dataset.id, pairs)) for who in ("ann", "bob")]
    workers = [(write_calls, (who,)) for who in ("one", "two")]
    *written, imported = together(database, [*annotators, *workers, (import_dataset, ("big",))])
    assert [type(result) for result in written] == [list, list, dict, dict], written
    with store.read() as connection:
        history = decisions.history(connection, dataset.id)
        rows = datasets.all_rows(connection)
        texts = {
            row.key: row.response for row in connection.execute(sa.select(tables.call.c.key, tables.call.c.response))
        }
    for who, ids in zip(("ann", "bob"), written[:2], strict=True):
        assert [d.id for d in history if d.annotator == who] == ids
        by_pair: dict[tuple[int, int], list[Any]] = {}
        for item in (d for d in history if d.annotator == who):
            by_pair.setdefault((item.attribute, item.context), []).append(item)
        for chain in by_pair.values():
            assert [d.supersedes for d in chain] == [None, *[d.id for d in chain[:-1]]]
    assert rows[0].revision == 2 * WRITES
    assert {**written[2], **written[3]} == texts
    assert all(texts[key] == text for result in written[2:] for key, text in result.items())
    assert len(texts) == WRITES + WRITES // 2
    assert (rows[1].id, rows[1].profiles, rows[1].attributes, rows[1].contexts) == (imported, 10, 600, 20)


def take_name(store: Store) -> str:
    try:
        return f"made {add_dataset(store, name='the one').id}"
    except StoreError as error:
        return f"refused: {error}"


def test_of_imports_under_one_name_at_once_exactly_one_is_made(store: Store, database: Database) -> None:
    results = together(database, [(take_name, ())] * 3)
    assert Counter(r.split()[0] for r in results) == {"made": 1, "refused:": 2}, results
    with store.read() as connection:
        (row,) = datasets.all_rows(connection)
    assert (row.profiles, row.attributes) == (2, 12)


# --- two people at the same moment ---


def while_writing(store: Store, first: Callable[[sa.Connection], object], then: Callable[[], object]) -> str:
    """How `then` ends, which begins while the transaction of `first` is still open."""
    ends: list[str] = []

    def second() -> None:
        try:
            then()
            ends.append("done")
        except StoreError as error:
            ends.append(str(error))
        except BaseException as error:
            ends.append(repr(error))

    thread = threading.Thread(target=second)
    with store.write() as connection:
        first(connection)
        thread.start()
        time.sleep(0.5)  # it reads what is not committed yet, and waits where both write
    thread.join(PATIENCE)
    return ends[0]


def test_two_who_save_one_name_at_once_both_succeed(store: Store) -> None:
    def save(connection: sa.Connection) -> None:
        reviews.save_view(connection, "mine", queue.PAGE, {"by": "Bob"}, "Bob")

    assert while_writing(store, save, lambda: queue.save_view(store, "mine", {"by": "Ada"}, "Ada")) == "done"
    assert while_writing(store, save, lambda: queue.save_view(store, "mine", {"by": "Ada"}, "Ada")) == "done"
    (view,) = queue.saved_views(store)
    assert (view.annotator, view.query) == ("Ada", {"by": "Ada"})

    expected = while_writing(
        store,
        lambda connection: people.set_role(connection, "eve@example.org", Role.ADMIN),
        lambda: people.give(store, "eve@example.org", Role.CURATOR),
    )
    assert (expected, [(p.name, p.role) for p in people.listed(store)]) == ("done", [("eve@example.org", Role.CURATOR)])

    dataset = add_dataset(store, profiles=1)
    person = records(store, dataset.id)[0]
    item = audits.SliceItem(person.attribute_ids[0], person.context_ids[0], None, "all", 1.0)
    with store.write() as connection:
        made = audits.add_slice(connection, dataset.id, audits.SLICE_LABELS, "s", 0, {}, "Ada", [item])

    def give(connection: sa.Connection, *names: str) -> None:
        assignments.assign(connection, made, names, annotator="Ada")

    def give_others() -> None:
        with store.write() as connection:
            give(connection, "Bob", "Eve")

    assert while_writing(store, lambda connection: give(connection, "Ada"), give_others) == "done"
    with store.read() as connection:
        assert [a.people for a in assignments.assignments(connection)] == [("Bob", "Eve")]
    deleted = while_writing(store, lambda connection: audits.delete_slice(connection, made), give_others)
    assert "or it was deleted" in deleted


def test_of_two_admins_who_take_each_others_role_one_stays(store: Store) -> None:
    ada, bob = (roles.Actor(name, f"issuer {name}", Role.ADMIN) for name in ("Ada", "Bob"))
    with store.write() as connection:
        for actor in (ada, bob):
            values = {"account": actor.account, "name": actor.name, "role": "admin", "created": ""}
            connection.execute(sa.insert(tables.person).values(**values))

    def take(connection: sa.Connection) -> None:
        with roles.acting(ada):
            people.set_role(connection, "Bob", Role.VIEWER)

    def take_back() -> None:
        with roles.acting(bob):
            people.give(store, "Ada", Role.VIEWER)

    assert while_writing(store, take, take_back) != "done"
    assert people.admins(store) == ["Ada"]


def test_a_guideline_that_two_save_at_once_goes_past_no_version_unseen(store: Store) -> None:
    opened = status.guidelines(store)[-1]

    def save(connection: sa.Connection) -> None:
        reviews.current_guideline(connection, exclusive=True)
        reviews.save_guideline(connection, "By Ada.", "Ada", "why")

    second = while_writing(store, save, lambda: status.save_guideline(store, "By Bob.", "Bob", opened, "why"))
    assert "Ada saved version 2 after you opened this one" in second
    assert status.guidelines(store)[-1].text.strip() == "By Ada."


PRIORS = {"fundamentalist": 0.26, "pragmatic": 0.64, "unconcerned": 0.1}
RESTS_ON_A_DATASET = {
    "labelling": lambda store, _: labelling.plan(
        store, LabellingSpec(dataset="small", model="sim-labeler", base_url="simulator")
    ),
    "run": lambda store, _: planning.plan(store, simulated()),
    "sweep": lambda store, _: sweeps.plan(store, sweeps.SweepSpec("s", "small", (simulated(),), None, {})),
    "rule": lambda store, dataset: catalogue.save_rule(
        store, dataset, "own", threshold=0.6, priors=PRIORS, annotator="Ada", use=True
    ),
    "freeze": lambda store, dataset: freezing.freeze(store, dataset, labelling_id=None, annotator="Ada"),
}


@pytest.mark.parametrize("what", RESTS_ON_A_DATASET)
def test_what_is_planned_on_a_dataset_that_is_being_deleted_is_refused_in_words(store: Store, what: str) -> None:
    add(store, small_profiles(contexts=2))
    with store.read() as connection:
        dataset = datasets.by_name(connection, "small").id
    plan = RESTS_ON_A_DATASET[what]
    answer = while_writing(store, lambda c: datasets.delete(c, dataset), lambda: plan(store, dataset))
    assert "was deleted" in answer or "no dataset named 'small'" in answer, answer


# --- who works on it ---


def claim_and_hold(store: Store, run_id: str, rivals: int) -> str:
    """Holds on until every rival has tried, so that none finds a winner that has ended already."""
    try:
        with store.write() as connection:
            work.claim(connection, run_id)
        result = "won"
    except StoreError as error:
        result = f"refused: {error}"
    with store.write() as connection:
        item = ChatRequest(result.split()[0], (("user", str(os.getpid())),))
        key = calls.keys_of(item, [0], simulated=False)[0]
        calls.record_all(connection, [calls.Exchange(item, [answer(key)], "respond", "", False)])
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        with store.read() as connection:
            if connection.scalar(sa.select(sa.func.count()).select_from(tables.call)) >= rivals:
                break
        time.sleep(0.02)
    return f"{os.getpid()} {result}"


def test_of_processes_that_claim_at_once_exactly_one_wins(store: Store, database: Database) -> None:
    dataset = add_dataset(store, profiles=1)
    run_id = add_run(store, dataset.id, 1, {}, status=WorkStatus.QUEUED)
    with store.read() as connection:
        before = connection.scalar(sa.select(sa.func.count()).select_from(tables.call))
    results = together(database, [(claim_and_hold, (run_id, before + 3))] * 3)
    won = [r.split()[0] for r in results if r.endswith("won")]
    assert len(won) == 1, results
    assert all(f"process {won[0]} on" in r for r in results if "refused" in r)
    assert sum("refused" in r for r in results) == 2
    with store.read() as connection:
        assert connection.execute(sa.select(tables.run.c.pid)).scalars().all() == [int(won[0])]


def test_work_is_refused_while_its_process_lives_and_taken_over_when_it_is_dead(store: Store) -> None:
    dataset = add_dataset(store, profiles=1)
    run_id = add_run(store, dataset.id, 1, {}, status=WorkStatus.QUEUED)
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

    def owned_by(**values: Any) -> None:
        with store.write() as connection:
            connection.execute(sa.update(tables.run).values(status=WorkStatus.RUNNING, **values))

    def claim() -> None:
        with store.write() as connection:
            work.claim(connection, run_id)

    def shown() -> WorkStatus:
        with store.read() as connection:
            return runs.by_id(connection, run_id).status

    started = psutil.Process(sleeper.pid).create_time()
    here = socket.gethostname()
    try:
        # The heartbeat is old on purpose: a process on this machine is asked itself.
        owned_by(host=here, pid=sleeper.pid, process_started=started, heartbeat=0.0)
        with pytest.raises(StoreError, match=f"process {sleeper.pid} on"):
            claim()
        with pytest.raises(StoreError, match="Cancel it first"), store.write() as connection:
            runs.delete(connection, run_id)
        assert shown() == WorkStatus.RUNNING
        owned_by(process_started=started - 3600)  # the number was given to another process since
        assert shown() == WorkStatus.INTERRUPTED
        owned_by(process_started=started)
    finally:
        sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # dead, but nobody has asked for its end yet
    assert shown() == WorkStatus.INTERRUPTED
    sleeper.wait()
    assert shown() == WorkStatus.INTERRUPTED
    owned_by(pid=dead_pid())
    claim()
    claim()  # one's own claim is no obstacle
    with store.read() as connection:
        row = work.load(connection, run_id)
    assert (row["pid"], row["host"], row["status"]) == (os.getpid(), here, "running")
    assert shown() == WorkStatus.RUNNING
    owned_by(host="elsewhere", pid=1, heartbeat=time.time())
    with pytest.raises(StoreError, match="on elsewhere"):
        claim()
    owned_by(heartbeat=time.time() - 10 * work.STALE_SECONDS)
    assert shown() == WorkStatus.INTERRUPTED
    claim()


def test_a_cancel_reaches_a_living_worker_and_ends_what_nobody_works_on(store: Store) -> None:
    dataset = add_dataset(store, profiles=1)
    run_id = add_run(store, dataset.id, 1, {}, status=WorkStatus.QUEUED)
    with store.write() as connection:
        work.claim(connection, run_id)
        work.request_cancel(connection, run_id)
        assert work.heartbeat(connection, run_id) == WorkStatus.CANCELLING
        connection.execute(sa.update(tables.run).values(pid=dead_pid()))
        work.request_cancel(connection, run_id)
        assert work.load(connection, run_id)["status"] == WorkStatus.CANCELLED
        work.finish(connection, run_id, WorkStatus.FINISHED)
        work.request_cancel(connection, run_id)
        assert work.load(connection, run_id)["status"] == WorkStatus.FINISHED
        runs.delete(connection, run_id)
        assert work.heartbeat(connection, run_id) == WorkStatus.CANCELLING


@pytest.mark.parametrize("request_stop", [work.request_cancel, work.request_pause])
@pytest.mark.parametrize("before", [WorkStatus.QUEUED, WorkStatus.RUNNING])
def test_a_stop_waits_for_a_claim_or_an_end_that_is_being_written(
    store: Store, before: WorkStatus, request_stop: Callable[[sa.Connection, str], None]
) -> None:
    """Decided by the status of before, it would undo a claim, or leave what has ended stopping for ever."""
    run_id = add_run(store, add_dataset(store, profiles=1).id, 1, {}, status=WorkStatus.QUEUED)

    def stop() -> None:
        with store.write() as connection:
            request_stop(connection, run_id)

    other = threading.Thread(target=stop)
    with store.write() as connection:
        if before == WorkStatus.RUNNING:
            work.claim(connection, run_id)
    with store.write() as connection:
        if before == WorkStatus.RUNNING:
            work.finish(connection, run_id, WorkStatus.FINISHED)
        else:
            work.claim(connection, run_id)
        other.start()
        # SQLite lets nobody else begin to write; PostgreSQL stops who would change the row.
        while not store.is_sqlite and not _waiting_for_a_lock(store):
            assert other.is_alive()
    other.join()
    with store.read() as connection:
        status = work.load(connection, run_id)["status"]
    stopping = WorkStatus.CANCELLING if request_stop is work.request_cancel else WorkStatus.PAUSING
    assert status == (WorkStatus.FINISHED if before == WorkStatus.RUNNING else stopping)


def _waiting_for_a_lock(store: Store) -> bool:
    with store.read() as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        return bool(connection.execute(sa.text(query)).scalar())


# --- killed in the middle ---


LIVES = 3


def write_until_killed(workspace: Path, url: str | None, acknowledge: Connection, life: int) -> None:
    store = open_store(workspace, url)
    for number in itertools.count():
        name = f"life {life}, {number}"
        add_profiles(store, [make_profile(i, 3, 2) for i in range(2)], name)
        acknowledge.send(name)


def test_a_writer_that_is_killed_loses_nothing_it_had_acknowledged(store: Store, database: Database) -> None:
    acknowledged: list[str] = []
    for life in range(LIVES):
        reader, writer = PROCESSES.Pipe(duplex=False)
        arguments = (database.workspace, database.url, writer, life)
        process = PROCESSES.Process(target=write_until_killed, args=arguments, daemon=True)
        process.start()
        writer.close()
        acknowledged += [reader.recv(), reader.recv()]
        time.sleep(0.01 * life)  # at another moment of a transaction each time
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        with contextlib.suppress(EOFError, OSError):  # the end, or a message that was cut
            while True:
                acknowledged.append(reader.recv())
    again = open_store(database.workspace, database.url)
    with again.read() as connection:
        rows = datasets.all_rows(connection)
        profiles = connection.scalar(sa.select(sa.func.count()).select_from(tables.profile))
        attributes = connection.scalar(sa.select(sa.func.count()).select_from(tables.attribute))
    again.close()
    assert set(acknowledged) <= {row.name for row in rows}
    # At most the one transaction whose acknowledgement was under way is there beyond them, in each life.
    assert len(rows) <= len(acknowledged) + LIVES
    assert {(row.profiles, row.attributes, row.contexts) for row in rows} == {(2, 6, 2)}
    assert (profiles, attributes) == (2 * len(rows), 6 * len(rows))
    add_dataset(store, name="after all that")

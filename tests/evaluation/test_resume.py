"""Killed at any moment, an evaluation is finished by a resume as if nothing had happened: kill -9 on real processes,
and several processes at work on one record at the same time."""

from __future__ import annotations

import resource
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import sqlalchemy as sa
from conftest import KILLS, LONG_ON_POSTGRES, Database
from evaluating import (
    ROOT,
    add,
    add_labelled,
    assert_whole,
    cli_forked,
    command,
    counts,
    numbers,
    row_of,
    simulated,
    small_profiles,
)
from forked import Forked
from hostile import hostile_server, texts_of
from slow_simulator import SlowSimulator
from worlds import make_profile

from cimemories.evaluation import planning, runs
from cimemories.flows.flows import Flows
from cimemories.flows.scope import resolve_scope
from cimemories.formats.official import write_profiles
from cimemories.metrics.headline import headline
from cimemories.store import datasets
from cimemories.store import runs as store_runs
from cimemories.store.engine import Store, open_store

CONTEXTS, SAMPLES = 12, 3


@pytest.fixture
def opened(database: Database) -> Iterator[Store]:
    """The record of `database`, for looking on from this process."""
    store = open_store(database.workspace, database.url)
    yield store
    store.close()


def undisturbed(folder: Path, contexts: int = CONTEXTS) -> dict[str, object]:
    """The numbers of the same run, made in one go in another workspace."""
    store = open_store(folder)
    add_labelled(store, contexts=contexts)
    run_id = planning.plan(store, simulated())
    runs.execute(store, run_id)
    result = numbers(store, run_id)
    store.close()
    return result


@pytest.mark.parametrize(("database", "kills"), KILLS, indirect=["database"])
def test_killed_at_random_moments(
    database: Database, kills: int, opened: Store, slow_simulator: SlowSimulator, tmp_path: Path
) -> None:
    """Most kills hit a random moment of a running evaluation, some the start of the process."""
    add_labelled(opened, contexts=CONTEXTS)
    start = ["run", "-d", "small", "-m", "sim-average", "--base-url", slow_simulator.url, "--samples", SAMPLES]
    start += ["--judge-model", "sim-judge"]
    chance = Random(20261121)
    run_id, hits, judged, before = "", 0, 0, counts(opened)
    for number in range(5 * kills):
        if number >= kills and judged:
            break  # few kills may have let nothing be judged yet
        verb = ["resume", run_id] if run_id else start
        process = Forked(database.environment, *verb, "--concurrency", "1", "--workspace", database.workspace)
        if number % 4 == 3:
            time.sleep(chance.uniform(0, 1.5))
            hit = False
        else:
            probes = 0 if run_id else 2  # planning asks the model's server and the judge's for an answer each
            hit = slow_simulator.wait_for(slow_simulator.chats + probes + chance.randint(1, 4), process)
            time.sleep(chance.uniform(0, 0.15))
            hit = hit and process.poll() is None
        process.kill()
        process.wait()
        after = counts(opened)
        assert all(after[name] >= before[name] for name in after), "what was recorded stays"
        with opened.read() as connection:
            planned = store_runs.all_rows(connection)
        if not planned:
            continue  # killed while it looked the servers up: nothing was begun
        (row,) = planned
        assert not hit or row.status == "interrupted"
        run_id, hits, judged, before = row.id, hits + hit, row.judged, after
    assert hits >= kills // 2
    assert 0 < row.judged < row.expected, "the kills hit a run that had begun and was not done"
    done = cli_forked(database.environment, "resume", run_id, "--workspace", database.workspace)
    assert (done.returncode, done.stdout.split()[-1]) == (0, run_id), done.stderr
    assert_whole(opened, run_id, CONTEXTS * SAMPLES)
    assert numbers(opened, run_id) == undisturbed(tmp_path / "undisturbed")


@pytest.mark.long
def test_two_evaluations_an_import_and_a_reader_at_once(
    database: Database, opened: Store, slow_simulator: SlowSimulator, tmp_path: Path
) -> None:
    """No lock error, nothing lost, every run complete, and the reader is never kept waiting for long."""
    add_labelled(opened)
    start = ["run", "-d", "small", "--base-url", slow_simulator.url, "--samples", SAMPLES, "--judge-model", "sim-judge"]
    workers = [
        Forked(database.environment, *start, "-m", model, "--workspace", database.workspace)
        for model in ("sim-average", "sim-oversharing")
    ]
    file = tmp_path / "more.json"
    file.write_text(write_profiles(small_profiles(3)))
    finished, rounds, longest, trouble = threading.Event(), 0, 0.0, []

    def read_on() -> None:
        nonlocal rounds, longest
        flows = Flows(opened)
        try:
            while not finished.is_set():
                clock = time.monotonic()
                with opened.read() as connection:
                    datasets.all_rows(connection)
                    there = store_runs.all_rows(connection)
                for row in there:
                    coverage = headline(flows, resolve_scope(opened, row.id)).coverage
                    assert 0 <= coverage <= 1
                longest, rounds = max(longest, time.monotonic() - clock), rounds + 1
                finished.wait(0.2)
        except Exception as error:
            trouble.append(error)

    reader = threading.Thread(target=read_on)
    reader.start()
    imports = cli_forked(database.environment, "import", file, "--workspace", database.workspace)
    ends = [(*worker.communicate(timeout=90), worker.returncode) for worker in workers]
    finished.set()
    reader.join(timeout=30)
    assert trouble == []
    assert rounds > 3
    assert longest < 20
    assert imports.returncode == 0, imports.stderr
    for stdout, stderr, code in ends:
        assert code == 0, stderr
        assert "error" not in stderr
        assert_whole(opened, stdout.split()[-1], 8 * SAMPLES)
    with opened.read() as connection:
        assert [row.profiles for row in datasets.all_rows(connection)] == [1, 3]


@pytest.mark.parametrize("database", LONG_ON_POSTGRES, indirect=True)
def test_a_run_has_one_worker_at_a_time(database: Database, opened: Store) -> None:
    """A second process is told who is at it, and changes nothing; the first one leaves in good order when told to."""
    contexts = 40  # at a second each: on a busy machine the second process alone takes twenty to start
    add(opened, [make_profile(0, 6, contexts)])
    with hostile_server(lambda request: replace(texts_of(request), wait=1.0)) as server:
        run_id = planning.plan(
            opened, planning.RunSpec(dataset="small", model="m", base_url=server.url, samples=SAMPLES)
        )
        first = Forked(database.environment, "resume", run_id, "--concurrency", "1", "--workspace", database.workspace)
        while not server.chats and first.poll() is None:
            time.sleep(0.02)
        second = cli_forked(database.environment, "resume", run_id, "--workspace", database.workspace)
        first.terminate()  # SIGTERM, as a service manager sends it
        stdout, stderr = first.communicate(timeout=30)
    assert second.returncode == 1
    assert [line for line in second.stderr.splitlines() if line.startswith("error:") and str(first.pid) in line]
    assert (first.returncode, stdout) == (1, f"{run_id}\n")
    assert f"cimemories resume {run_id}" in stderr
    assert "Traceback" not in stderr
    row = row_of(opened, run_id)
    assert row.status == "cancelled"
    assert "owed" in row.responses
    with hostile_server() as server:
        runs.execute(opened, run_id, base_url=server.url)
    assert_whole(opened, run_id, contexts * SAMPLES)


@pytest.mark.long
def test_no_room_on_the_disk(tmp_path: Path, slow_simulator: SlowSimulator) -> None:
    """The process may write files only up to a size, as on a full disk: one clear line, then a resume with room."""
    store = open_store(tmp_path)
    add_labelled(store)
    run_id = planning.plan(store, simulated(slow_simulator.url))
    with store.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    before = counts(store)
    room = 60_000

    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    ended = subprocess.run(
        command("resume", run_id, "--workspace", tmp_path),
        cwd=ROOT,
        preexec_fn=little_room,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stdout == f"{run_id}\n", "the id is printed all the same: it can be resumed"
    errors = [line for line in ended.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert "Free some space" in errors[0]
    assert "Traceback" not in ended.stderr
    assert row_of(store, run_id).status == "interrupted"
    kept = counts(store)
    assert all(kept[name] >= before[name] for name in kept)
    with store.read() as connection:
        assert connection.execute(sa.text("PRAGMA integrity_check")).scalar() == "ok"
    runs.execute(store, run_id, base_url="simulator", judge_base_url="simulator")
    assert_whole(store, run_id, 8 * SAMPLES)
    store.close()

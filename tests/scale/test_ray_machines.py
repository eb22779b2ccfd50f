"""A run on two machines with networks of their own, one with a wrong clock, whose workers are killed one after the
other (`make test-scale`)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from random import Random
from threading import Event

import pytest
import sqlalchemy as sa
from conftest import _cluster as postgres
from evaluating import add_labelled, assert_whole, counts, numbers, row_of, simulated
from executing import eventually
from faulty_servers import Servers, draw_of

pytest.importorskip("ray", reason="Ray is not installed; `make test-scale` installs it")
pytest.importorskip("time_machine", reason="time-machine is not installed; `make test-scale` installs it")
from ray_clusters import meanwhile, worker_processes
from ray_machines import PORT, Machine, machines

from cimemories.evaluation import planning, runs
from cimemories.model import WorkStatus
from cimemories.store import calls
from cimemories.store.engine import DATABASE_URL, Store, open_store
from cimemories.store.tables import call

pytestmark = pytest.mark.postgres
PROFILES, CONTEXTS, SAMPLES = 3, 12, 3
PLANNED = PROFILES * CONTEXTS * SAMPLES
BEHIND = 120.0  # seconds, of the second machine's clock; four times work.STALE_SECONDS
EVERY, WAIT = 3.5, 0.5  # seconds between two kills, and before an answer
WORKERS, CONCURRENCY = 4, 2


class Driver:
    """The command line on a machine, on this record and cluster."""

    def __init__(self, store: Store, head: Machine, run_id: str) -> None:
        self.store, self.run_id = store, run_id
        self.ray = (
            *("--engine", f"ray:address={head.address}:{PORT},workers={WORKERS}", "--concurrency", CONCURRENCY),
        )

    def command(self, name: str, *options: object) -> tuple[object, ...]:
        url = self.store.engine.url.render_as_string(hide_password=False)
        program = ("env", f"{DATABASE_URL}={url}", sys.executable, "-m", "cimemories")
        return (*program, name, self.run_id, *options, "--workspace", self.store.workspace)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[Machine]]]:
    with machines(tmp_path, {"near": 0.0, "far": -BEHIND}, processors=2) as made:
        yield made


def test_killed_workers_and_a_wrong_clock_change_nothing(
    cluster: tuple[str, list[Machine]], tmp_path: Path, sqlite_store: Store
) -> None:
    """One request in five is spoiled, a worker dies every few seconds, one machine is two minutes behind: begun on one
    machine and gone on with from the other, every response is there once, and the metrics are those of a calm run."""
    own, (near, far) = cluster
    with (
        postgres(own) as server,
        closing(open_store(tmp_path / "workspace", server.url)) as store,
        closing(Servers(4, 0.2, WAIT, own)) as servers,
    ):
        add_labelled(store, PROFILES, CONTEXTS)
        judge = planning.JudgeSpec(kind="llm", model="sim-judge", base_url=servers.url)
        run_id = planning.plan(store, simulated(servers.url, samples=SAMPLES, judges=(judge,), seed=0))
        driver = Driver(store, near, run_id)
        killed, chance = [0], Random(1)

        def disturb(over: Event) -> None:
            done = 0
            while not over.wait(EVERY):
                # On a busy machine a worker takes longer than that to start: something is to be done between two kills.
                if counts(store)["calls"] > done and (workers := worker_processes()):
                    chance.choice(workers).kill()
                    killed[0] += 1
                    done = counts(store)["calls"]

        def look_and_pause(over: Event) -> None:
            """From the machine with the wrong clock: the other one's work counts as alive there, and is paused."""
            eventually(lambda: over.is_set() or counts(store)["responses"] >= PLANNED // 4, 500)
            taken = far.run(*driver.command("resume"))
            assert taken.returncode != 0 and "is running as process" in taken.stderr and "on near" in taken.stderr
            assert far.run(*driver.command("stop")).returncode == 0

        with meanwhile(disturb):
            with meanwhile(look_and_pause):
                first = near.run(*driver.command("resume", *driver.ray))
            assert row_of(store, run_id).status == WorkStatus.PAUSED, first.stderr
            assert 0 < counts(store)["responses"] < PLANNED
            for _ in range(5):  # what failed for good is asked again, as a person would
                far.run(*driver.command("resume", *driver.ray))
                if row_of(store, run_id).status == WorkStatus.FINISHED:
                    break
        assert_whole(store, run_id, PLANNED)
        run_numbers = numbers(store, run_id)
        with store.read() as connection:
            asked = connection.execute(sa.select(call.c.started, call.c.draw, call.c.request)).all()
            bodies = calls.bodies(connection, (row.request for row in asked))
            starts = [
                (draw_of(json.loads(bodies[row.request]), row.draw), datetime.fromisoformat(row.started).timestamp())
                for row in asked
            ]
            sources = calls.origins(connection, [run_id])[run_id]
    # By the record some calls were made two minutes before they were answered, in truth within seconds: the clock was
    # wrong where their workers asked. Those of the other machine have their true times.
    late = [servers.moments[name] - start for name, start in starts if name in servers.moments]
    assert any(BEHIND < seconds < 2 * BEHIND for seconds in late) and any(seconds < BEHIND / 2 for seconds in late)
    assert sum(source.recorded for source in sources) == 0  # and yet none of them counts as recorded before
    assert killed[0] >= 2
    # A request has up to SAMPLES draws; at most what a worker had in flight is asked again.
    twice = sum(count - 1 for count in servers.answers.values())
    assert twice <= killed[0] * CONCURRENCY * SAMPLES
    add_labelled(sqlite_store, PROFILES, CONTEXTS)
    calm = planning.plan(sqlite_store, simulated(samples=SAMPLES, seed=0))
    runs.execute(sqlite_store, calm)
    assert run_numbers == numbers(sqlite_store, calm)

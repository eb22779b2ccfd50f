"""Work by Ray workers on two nodes of one machine, on a real PostgreSQL (`make test-scale`).

Each test has a record of its own; the cluster is started once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
import sqlalchemy as sa
from evaluating import (
    DATASET,
    ROOT,
    add,
    add_labelled,
    assert_whole,
    ballots,
    cli,
    command,
    counts,
    numbers,
    outside,
    row_of,
    simulated,
    small_profiles,
)
from executing import eventually
from slow_simulator import SlowSimulator

pytest.importorskip("ray", reason="Ray is not installed; `make test-scale` installs it")
from ray_clusters import cluster_of, meanwhile, worker_processes

from cimemories.curation import authoring, execution, labelling
from cimemories.curation.spec import AuthoringSpec, LabellingSpec
from cimemories.evaluation import planning, runs
from cimemories.evaluation.prices import Prices
from cimemories.extras.ray import engine as ray_engine
from cimemories.extras.ray.engine import Ray
from cimemories.llm.worker import WorkError
from cimemories.model import WorkStatus
from cimemories.simulator.server import running_simulator
from cimemories.store import datasets, work
from cimemories.store.engine import Store, open_store
from cimemories.store.tables import ballot, call, generation_part, judgement, response, reveal, run_call

pytestmark = pytest.mark.postgres
PROFILES, CONTEXTS, SAMPLES = 2, 12, 3
PLANNED = PROFILES * CONTEXTS * SAMPLES
TWO = Ray("auto", "2:2")
SHORT = ("--allow-missing", 1)  # the simulator refuses some of what a generation asks for; that is not made up for


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with cluster_of(1, 1) as started:
        yield started.address  # type: ignore[attr-defined]


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty record on PostgreSQL alone."""
    records, maintenance = request.getfixturevalue("empty_records"), request.getfixturevalue("maintenance")
    name = records.take()
    opened = open_store(
        tmp_path / "workspace", maintenance.engine.url.set(database=name).render_as_string(hide_password=False)
    )
    yield opened
    opened.close()
    records.give_back(name)


@pytest.fixture
def slow() -> Iterator[SlowSimulator]:
    server = SlowSimulator()
    yield server
    server.process.kill()


def planned(store: Store, url: str = "simulator", **changes: object) -> str:
    add_labelled(store, PROFILES, CONTEXTS)
    return planning.plan(store, simulated(url, **{"samples": SAMPLES, "seed": 0, **changes}))


def at_work(store: Store, least: int) -> None:
    """Until so many calls of this run are recorded."""
    before = counts(store)["calls"]
    eventually(lambda: counts(store)["calls"] >= before + least, 120)


def test_two_workers_do_what_one_process_does(store: Store, cluster: str, sqlite_store: Store) -> None:
    """Answers, judgements, labels and profiles are the same, though one request in five fails on the way."""
    kinds = ("rate_limit", "server_error", "cut", "broken_json", "no_choices", "fewer_choices")
    with running_simulator(faults=0.2, fault_kinds=kinds) as url:
        run_id = planned(store, url)
        progress = runs.execute(store, run_id, concurrency=4, engine=TWO)
        for _ in range(5):  # what failed for good is asked again, as a person would
            if row_of(store, run_id).status == "finished":
                break
            progress = runs.execute(store, run_id, concurrency=4, engine=TWO)
    assert_whole(store, run_id, PLANNED)
    assert progress.failed == {}
    here = planned(sqlite_store)
    runs.execute(sqlite_store, here)
    assert numbers(store, run_id) == numbers(sqlite_store, here)


def test_labels_and_profiles_are_made_by_workers_too(store: Store, cluster: str) -> None:
    add(store, small_profiles(2, 4))
    spec = LabellingSpec(dataset="small", model="sim-labeler", base_url="simulator", draws=2)
    labelling_id = labelling.plan(store, spec)
    progress = execution.execute(store, labelling_id, concurrency=4, engine=TWO)
    assert ballots(store, labelling_id) == {"ok": progress.done}
    written = authoring.plan(
        store,
        AuthoringSpec(name="written", profiles=3, model="sim-average", base_url="simulator", events=1, per_domain=1),
    )
    execution.execute(store, written, concurrency=4, engine=TWO)
    with store.read() as connection:
        assert datasets.by_name(connection, "written").profiles == 3


def test_a_worker_that_is_killed_is_replaced_and_asks_nothing_twice(
    store: Store, cluster: str, slow: SlowSimulator
) -> None:
    run_id = planned(store, slow.url)
    chats = slow.chats

    def kill(over: Event) -> None:
        at_work(store, 6)
        worker_processes()[0].kill()

    with meanwhile(kill):
        runs.execute(store, run_id, concurrency=2, engine=TWO)
    assert_whole(store, run_id, PLANNED)
    # A message and its judgement each; at most what was in flight in one worker was asked again.
    assert slow.chats - chats <= PROFILES * CONTEXTS + PLANNED + 2


@pytest.mark.parametrize("request_stop", [work.request_pause, work.request_cancel])
def test_a_request_to_stop_reaches_the_workers(
    store: Store, cluster: str, slow: SlowSimulator, request_stop: object
) -> None:
    run_id = planned(store, slow.url)
    stop_times: list[float] = []

    def stop(over: Event) -> None:
        at_work(store, 4)
        with store.write() as connection:
            request_stop(connection, run_id)  # type: ignore[operator]
        stop_times.append(time.monotonic())

    with meanwhile(stop):
        if request_stop is work.request_pause:
            runs.execute(store, run_id, concurrency=1, engine=TWO)
        else:
            with pytest.raises(WorkError, match="cancelled on request"):
                runs.execute(store, run_id, concurrency=1, engine=TWO)
    assert time.monotonic() - stop_times[0] < 10
    status = WorkStatus.PAUSED if request_stop is work.request_pause else WorkStatus.CANCELLED
    assert row_of(store, run_id).status == status
    before, chats = counts(store), slow.chats
    time.sleep(1.5)
    assert (counts(store), slow.chats) == (before, chats)  # nobody goes on in secret
    assert before["responses"] < PLANNED
    runs.execute(store, run_id)  # in this process: the engine is a matter of who resumes
    assert_whole(store, run_id, PLANNED)


def test_a_cap_on_cost_stops_all_workers(store: Store, cluster: str, slow: SlowSimulator) -> None:
    prices = Prices.read("1000/1000/1000 EUR")
    judge = planning.JudgeSpec(kind="llm", model="sim-judge", base_url=slow.url, prices=prices)
    run_id = planned(store, slow.url, prices=prices, judges=(judge,), cap=5.0)
    with pytest.raises(WorkError, match="cap on cost is reached"):
        runs.execute(store, run_id, concurrency=1, engine=TWO)
    assert row_of(store, run_id).status == "interrupted"
    assert 0 < counts(store)["responses"] < PLANNED


def test_workers_stop_where_somebody_takes_the_work_over(store: Store, cluster: str, slow: SlowSimulator) -> None:
    run_id = planned(store, slow.url)
    taken: list[work.Claim] = []

    def take_over(over: Event) -> None:
        at_work(store, 4)
        with store.write() as connection:
            taken.append(work.claim(connection, run_id))

    with meanwhile(take_over), pytest.raises(WorkError, match="taken over"):
        runs.execute(store, run_id, concurrency=2, engine=TWO)
    before = counts(store)
    time.sleep(1.5)
    assert counts(store) == before
    with store.read() as connection:
        assert work.load(connection, run_id)["claim"] == taken[0].token


def test_a_server_that_is_gone_interrupts_the_run_with_one_line(store: Store, cluster: str) -> None:
    with running_simulator() as url:
        run_id = planned(store, url)
    spec = replace(TWO, workers="1:1")
    with pytest.raises(WorkError, match="no longer answers"):
        runs.execute(store, run_id, concurrency=4, engine=spec)
    assert row_of(store, run_id).status == "interrupted"


def test_the_command_line_works_on_a_cluster_and_is_resumed_after_a_kill(
    store: Store, cluster: str, slow: SlowSimulator
) -> None:
    run_id = planned(store, slow.url)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CIMEMORIES_")}
    environment["CIMEMORIES_DATABASE_URL"] = store.engine.url.render_as_string(hide_password=False)
    resume = command(
        *("resume", run_id, "--engine", f"ray:address={cluster},workers=1:2"),
        *("--concurrency", "2", "--workspace", store.workspace),
    )
    process = subprocess.Popen(resume, env=environment, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    at_work(store, 6)
    process.send_signal(signal.SIGKILL)
    process.wait()
    # Ray ends the workers of a driver that has died.
    eventually(lambda: not worker_processes(), 30)
    before = counts(store)["responses"]
    assert 0 < before < PLANNED

    def kill(over: Event) -> None:
        eventually(lambda: over.is_set() or (counts(store)["responses"] > before and worker_processes()), 120)
        for worker in worker_processes()[:1]:
            worker.kill()

    with meanwhile(kill):
        done = subprocess.run(resume, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [run_id]  # nothing of Ray's own
    assert_whole(store, run_id, PLANNED)


@pytest.mark.parametrize("verb", ["label", "judge", "sweep", "generate"])
def test_every_command_goes_on_exactly_once_after_a_kill(
    store: Store, cluster: str, slow: SlowSimulator, sqlite_store: Store, tmp_path: Path, verb: str
) -> None:
    """The command is killed in the middle and resumed on the cluster: what is recorded is what the same command
    records that works undisturbed and in one process, and nothing is asked twice but what was in flight."""
    file = tmp_path / "sweep.yaml"
    judge = {"model": "sim-judge", "base_url": slow.url}
    models = [{"model": model, "base_url": slow.url} for model in ("sim-average", "sim-careful")]
    sweep = {"name": "two", "dataset": DATASET, "models": models, "samples": 2, "contexts": 6, "judges": [judge]}
    file.write_text(json.dumps({**sweep, "seed": 0}), "utf-8")  # JSON is YAML
    options: dict[str, tuple[object, ...]] = {
        "label": ("-d", DATASET, "-m", "sim-labeler", "--base-url", slow.url, "--draws", 2, "--seed", 0),
        "judge": ("--judge-model", "sim-judge", "--judge-base-url", slow.url),
        "sweep": (file,),
        "generate": (
            "-d",
            "new",
            "--profiles",
            8,
            "-m",
            "sim-average",
            "--base-url",
            slow.url,
            "--model-seed",
            0,
            *SHORT,
        ),
    }
    ray = ("--engine", f"ray:address={cluster},workers=2:2", "--concurrency", 2)

    def begun(own: Store) -> tuple[object, ...]:
        """What the command is given, once what it is about is there."""
        if verb == "label":
            add(own, small_profiles(PROFILES, CONTEXTS))
        elif verb != "generate":
            add_labelled(own, PROFILES, CONTEXTS)
        if verb != "judge":
            return options[verb]
        run_id = planning.plan(own, simulated(samples=SAMPLES, seed=0, judges=(planning.JudgeSpec(),)))
        runs.execute(own, run_id)
        return (run_id, *options[verb])

    environment = outside()
    calm = cli(environment, verb, *begun(sqlite_store), "--workspace", sqlite_store.workspace, timeout=600)
    assert calm.returncode == 0, calm.stderr
    asked = slow.chats
    environment["CIMEMORIES_DATABASE_URL"] = store.engine.url.render_as_string(hide_password=False)
    given = (*begun(store), *ray, "--workspace", store.workspace)
    before = counts(store)["calls"]
    process = subprocess.Popen(
        command(verb, *given), env=environment, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    eventually(lambda: counts(store)["calls"] >= before + 6 or process.poll() is not None, 300)
    process.kill()
    process.wait()
    eventually(lambda: not worker_processes(), 60)
    with store.read() as connection:
        active = {row["id"] for row in work.active(connection)}
    # The runs of a sweep are resumed with it.
    (work_id,) = [name for name in active if name.startswith("sweep")] or active
    assert recorded(store) != recorded(sqlite_store)
    done = cli(environment, "resume", work_id, *ray, *SHORT, "--workspace", store.workspace, timeout=600)
    assert done.returncode == 0, done.stderr
    assert recorded(store) == recorded(sqlite_store)
    assert slow.chats - asked <= asked + 2 * 2  # two workers with two requests each in flight


def recorded(store: Store) -> dict[str, object]:
    """Every call with its answer, and how many rows of what follows from them there are."""
    with store.read() as connection:
        answers = dict(connection.execute(sa.select(call.c.key, call.c.response)).all())
        tables = (ballot, response, judgement, reveal, generation_part, run_call)
        sizes = {
            table.name: connection.execute(sa.select(sa.func.count()).select_from(table)).scalar() for table in tables
        }
    return {"answers": answers, **sizes}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_run_that_gets_no_worker_can_be_paused(store: Store, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the cluster is full: nobody is there to end the blocks. The last test: it leaves the cluster."""
    monkeypatch.setattr(ray_engine, "END_SECONDS", 2.0)
    monkeypatch.setattr(ray_engine, "CORES", 64)
    run_id = planned(store)

    def pause(over: Event) -> None:
        eventually(lambda: row_of(store, run_id).status == "running", 60)
        with store.write() as connection:
            work.request_pause(connection, run_id)

    with meanwhile(pause):
        progress = runs.execute(store, run_id, engine=TWO)
    assert (row_of(store, run_id).status, progress.done) == ("paused", 0)

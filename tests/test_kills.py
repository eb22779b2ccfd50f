"""A run, a labelling and a generation, each killed with -9 at twenty random moments while one request in five goes
wrong on purpose: what was recorded stays, and resumed to the end each holds what it would have held undisturbed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from authored import calls_made, dataset_hashes, spec
from conftest import ENGINES, Database
from evaluating import add, add_labelled, cli_forked, numbers, row_of, simulated, small_profiles
from forked import Forked
from slow_simulator import SlowSimulator

from cimemories.curation import authoring, execution, labelling
from cimemories.curation.spec import LabellingSpec
from cimemories.evaluation import planning, runs
from cimemories.store import labellings
from cimemories.store.engine import Store, open_store

KILLS = 20
CONTEXTS = 40
# `truncation` is left out: half a text with the reason `length` is a whole answer to a client, and asked for once.
FAULTS = ("rate_limit", "server_error", "hang", "cut", "broken_json", "no_choices", "fewer_choices")


@dataclass(frozen=True)
class Work:
    """plan: makes it in a record, for a server; outcome: what it came to, the same in every fresh record; missing: the
    share of the plan that may be missing in the end, since the simulator's profiles break some rules."""

    plan: Callable[[Store, str], str]
    execute: Callable[[Store, str], object]
    outcome: Callable[[Store, str], object]
    missing: int = 0


def plan_run(store: Store, url: str) -> str:
    add_labelled(store, contexts=CONTEXTS)
    return planning.plan(store, simulated(url))


def run_outcome(store: Store, run_id: str) -> object:
    row = row_of(store, run_id)
    return row.responses, row.judgements, numbers(store, run_id), calls_made(store)


def plan_labelling(store: Store, url: str) -> str:
    add(store, small_profiles(contexts=CONTEXTS))
    return labelling.plan(store, LabellingSpec(dataset="small", model="sim-labeler", base_url=url, draws=2))


def labelling_outcome(store: Store, labelling_id: str) -> object:
    with store.read() as connection:
        return sorted(tuple(row) for row in labellings.tallies(connection, labelling_id)), calls_made(store)


WORKS = {
    "run": Work(plan_run, runs.execute, run_outcome),
    "labelling": Work(plan_labelling, execution.execute, labelling_outcome),
    "generation": Work(
        lambda store, url: authoring.plan(store, spec(url, profiles=20)),
        execution.execute,
        lambda store, _: (dataset_hashes(store), calls_made(store)),
        missing=1,
    ),
}


@pytest.fixture
def faulty_simulator() -> Iterator[SlowSimulator]:
    simulator = SlowSimulator(0.05, faults=0.2, kinds=FAULTS)
    yield simulator
    simulator.process.kill()
    simulator.process.wait()


@pytest.mark.long
@pytest.mark.parametrize("database", ENGINES, indirect=True)
@pytest.mark.parametrize("kind", WORKS)
def test_killed_at_twenty_random_moments_among_faults(
    database: Database, kind: str, faulty_simulator: SlowSimulator, tmp_path: Path
) -> None:
    kills, store = WORKS[kind], open_store(database.workspace, database.url)
    work_id = kills.plan(store, faulty_simulator.url)
    chance, hits, before = Random(20261128), 0, calls_made(store)
    resume = ["resume", work_id, "--workspace", database.workspace, "--allow-missing", kills.missing]
    for _ in range(KILLS):
        process = Forked(database.environment, *resume, "--concurrency", 2)
        faulty_simulator.wait_for(faulty_simulator.chats + chance.randint(1, 4), process)
        time.sleep(chance.uniform(0, 0.15))
        hits += process.poll() is None
        process.kill()
        process.wait()
        made = calls_made(store)
        assert made >= before, "what was recorded stays"
        before = made
    assert hits == KILLS, "every kill hit work that was not done"
    # What failed by a fault is asked again by the next resume.
    ends = (cli_forked(database.environment, *resume) for _ in range(20))
    assert any(done.returncode == 0 for done in ends)
    undisturbed = open_store(tmp_path / "undisturbed")
    other = kills.plan(undisturbed, "simulator")
    kills.execute(undisturbed, other)
    assert kills.outcome(store, work_id) == kills.outcome(undisturbed, other)
    undisturbed.close()
    store.close()

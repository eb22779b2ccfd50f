"""A labelling that is killed with -9 again and again is finished by a resume, and holds what it would have held."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest
import sqlalchemy as sa
from conftest import KILLS, Database
from evaluating import add, ballots, cli_forked, small_profiles
from forked import Forked
from slow_simulator import SlowSimulator

from cimemories.curation import execution, labelling
from cimemories.curation.spec import LabellingSpec
from cimemories.store import labellings
from cimemories.store.engine import Store, open_store
from cimemories.store.tables import ballot, call, vote

CONTEXTS, DRAWS, PERSONAS = 10, 2, 3
ALL = CONTEXTS * DRAWS * PERSONAS


def tallied(store: Store, labelling_id: str) -> list[tuple[int, ...]]:
    """All counted votes; the ids of attributes, contexts and personas are the same in every fresh record."""
    with store.read() as connection:
        return sorted(tuple(row) for row in labellings.tallies(connection, labelling_id))


def undisturbed(folder: Path) -> list[tuple[int, ...]]:
    store = open_store(folder)
    add(store, small_profiles(contexts=CONTEXTS))
    made = labelling.plan(store, LabellingSpec(dataset="small", model="sim-labeler", base_url="simulator", draws=DRAWS))
    execution.execute(store, made)
    tallies = tallied(store, made)
    store.close()
    return tallies


@pytest.mark.parametrize(("database", "kills"), KILLS, indirect=["database"])
def test_killed_at_random_moments(
    database: Database, kills: int, slow_simulator: SlowSimulator, tmp_path: Path
) -> None:
    store = open_store(database.workspace, database.url)
    attributes = len(small_profiles(contexts=CONTEXTS)[0].attributes)
    add(store, small_profiles(contexts=CONTEXTS))
    start = ["label", "-d", "small", "-m", "sim-labeler", "--base-url", slow_simulator.url, "--draws", DRAWS]
    made = labelling.plan(
        store, LabellingSpec(dataset="small", model="sim-labeler", base_url=slow_simulator.url, draws=DRAWS)
    )
    chance, done = Random(20261121), 0
    for number in range(5 * kills):
        if number >= kills and done:
            break  # few kills may have let nothing be recorded yet
        verb = ["resume", made] if number % 2 else start
        process = Forked(database.environment, *verb, "--concurrency", "1", "--workspace", database.workspace)
        # At the start of a command the server is tested by one request.
        slow_simulator.wait_for(slow_simulator.chats + chance.randint(2, 5), process)
        time.sleep(chance.uniform(0, 0.15))
        process.kill()
        process.wait()
        settled = ballots(store, made).get("ok", 0)
        with store.read() as connection:
            votes = connection.execute(sa.select(sa.func.count()).select_from(vote)).scalar_one()
        assert votes == settled * attributes, "a ballot and its votes are written together or not at all"
        assert done <= settled
        done = settled
    assert 0 < done < ALL, "the kills hit a labelling that had begun and was not done"
    ended = cli_forked(database.environment, "resume", made, "--workspace", database.workspace)
    assert (ended.returncode, ended.stdout.split()[-1]) == (0, made), ended.stderr
    assert ballots(store, made) == {"ok": ALL}
    assert tallied(store, made) == undisturbed(tmp_path / "undisturbed")
    with store.read() as connection:
        calls = connection.execute(sa.select(sa.func.count()).select_from(call)).scalar_one()
        used = connection.execute(sa.select(ballot.c.call)).scalars().all()
    assert calls == len(set(used)) == ALL, "every draw was recorded once, whatever was asked"
    store.close()

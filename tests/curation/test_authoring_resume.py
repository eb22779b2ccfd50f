"""Profiles by a model from the command line, killed in the middle and gone on with."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from authored import calls_made, dataset_hashes, spec, write
from conftest import KILLS, LONG_ON_POSTGRES, Database
from evaluating import cli_forked, cli_inside
from forked import Forked
from slow_simulator import SlowSimulator

from cimemories.curation import authoring
from cimemories.simulator.server import running_simulator
from cimemories.store import generations
from cimemories.store.engine import open_store


@pytest.mark.parametrize(("database", "kills"), KILLS, indirect=["database"])
def test_killed_in_the_middle_and_resumed_it_writes_the_same_profiles(
    database: Database, kills: int, slow_simulator: SlowSimulator, tmp_path: Path
) -> None:
    store = open_store(database.workspace, database.url)
    generation_id = authoring.plan(store, spec(slow_simulator.url))
    before, hits = 0, 0
    for _ in range(kills):
        process = Forked(
            database.environment, "resume", generation_id, "--concurrency", "2", "--workspace", database.workspace
        )
        hit = slow_simulator.wait_for(slow_simulator.chats + 3, process)
        time.sleep(0.05)
        hits += hit and process.poll() is None
        process.kill()
        process.wait()
        made = calls_made(store)
        assert made >= before, "what was recorded stays"
        before = made
        with store.read() as connection:
            row = generations.by_id(connection, generation_id)
        assert (row.dataset is None) == (row.settled < row.expected), "all of it or nothing"
        assert row.dataset is not None or row.status == "interrupted"
    assert hits >= min(kills, 2)
    done = cli_forked(
        database.environment, "resume", generation_id, "--allow-missing", 1, "--workspace", database.workspace
    )
    assert (done.returncode, done.stdout.split()) == (0, [generation_id]), done.stderr
    assert "dataset 'new' (simulated)" in done.stderr
    undisturbed = open_store(tmp_path / "undisturbed")
    write(undisturbed, spec())
    assert dataset_hashes(store) == dataset_hashes(undisturbed)
    assert calls_made(store) == calls_made(undisturbed), "nothing was asked for twice"
    undisturbed.close()
    store.close()


@pytest.mark.parametrize("database", LONG_ON_POSTGRES, indirect=True)
def test_a_generation_has_one_worker_at_a_time(database: Database, tmp_path: Path) -> None:
    """A second process is told who is at it, and changes nothing: what the first one writes is what it would have."""
    store, simulator = open_store(database.workspace, database.url), SlowSimulator(1.0)
    generation_id = authoring.plan(store, spec(simulator.url))
    resume = ("resume", generation_id, "--workspace", database.workspace, "--allow-missing", 1)
    first = Forked(database.environment, *resume, "--concurrency", 1)
    assert simulator.wait_for(simulator.chats + 1, first)
    second = cli_forked(database.environment, *resume)
    assert second.returncode == 1
    assert f"{generation_id} is running as process {first.pid}" in second.stderr
    simulator.hurry()
    _, told = first.communicate(timeout=60)
    simulator.process.kill()
    simulator.process.wait()
    assert first.returncode == 0, told
    undisturbed = open_store(tmp_path / "undisturbed")
    write(undisturbed, spec())
    assert dataset_hashes(store) == dataset_hashes(undisturbed)
    assert calls_made(store) == calls_made(undisturbed), "nothing was asked for twice"
    undisturbed.close()
    store.close()


def test_the_command_line(database: Database) -> None:
    with running_simulator() as url:
        sizes = ("--profiles", 1, "--events", 1, "--per-domain", 1, "--general", 2, "--price", "1/1/2 USD")
        where = ("-m", "sim-average", "--base-url", url, "--workspace", database.workspace)
        made = cli_inside(database.environment, "generate", "-d", "new", *sizes, *where)
    assert made.returncode == 0, made.stderr
    assert re.fullmatch(r"generation-\w+\n", made.stdout)
    assert re.search(r"dataset 'new' \(simulated\), \d+ of 11 attributes written.*cost \d", made.stderr)
    listed = cli_inside(database.environment, "datasets", "generations", "--json", "--workspace", database.workspace)
    (row,) = json.loads(listed.stdout)
    assert (row["id"], row["dataset_name"], row["simulated"]) == (made.stdout.strip(), "new", True)
    assert row["written"] + row["missing"] == row["planned"] == 11
    for wrong, message in [
        (("--offline", "-m", "x"), "not both"),
        (("-m", "x"), "where is 'x' served"),
        (("--base-url", "http://x/v1"), "needs --model MODEL"),
        (("--locale", "xx"), "no locale 'xx'"),
        (("--events", 99), "99 events are too many"),
    ]:
        refused = cli_inside(database.environment, "generate", "-d", "other", *wrong, "--workspace", database.workspace)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert message in refused.stderr
        assert refused.stderr.count("\n") == 1
    offline = ("generate", "-d", "plain", "--offline", "--profiles", 2, "--locale", "de_DE", "--per-domain", 2)
    done = cli_inside(database.environment, *offline, "--events", 2, "--workspace", database.workspace)
    assert done.stdout.startswith("generated 'plain': 2 profiles, 100 attributes"), done.stderr

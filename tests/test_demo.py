"""The demo: served from its recorded calls without asking anybody, the same when it is prepared twice, and finished
when its preparation was killed."""

from __future__ import annotations

import lzma
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from evaluating import ROOT, counts, numbers, outside, row_of

from cimemories import demo
from cimemories.llm import simulator
from cimemories.model import WorkStatus
from cimemories.store import datasets, labellings
from cimemories.store import runs as run_rows
from cimemories.store.engine import Store, open_store

PREPARE = """
import sys
from cimemories import demo
from cimemories.store.engine import open_store

demo.prepare(open_store(sys.argv[1]), lambda text: print(text, flush=True))
"""


def quiet(_: str) -> None:
    return


def state(store: Store) -> dict[str, object]:
    """All that the demo is to consist of, without ids."""
    with store.read() as connection:
        (dataset,) = datasets.all_rows(connection)
        (labelling,) = labellings.all_rows(connection)
        (run,) = run_rows.all_rows(connection)
    return {
        "dataset": (dataset.name, dataset.origin, dataset.profiles, dataset.attributes, dataset.contexts),
        "labelling": (labelling.status, labelling.ballots, labelling.simulated),
        "run": (run.status, run.responses, run.judgements, run.simulated),
        "counts": counts(store),
        "numbers": numbers(store, run.id),
    }


@pytest.fixture
def asked() -> Iterator[list[object]]:
    """Every chat request that a simulator of this process is asked from now on."""
    seen: list[object] = []
    real = simulator._complete

    def counting(*arguments: object) -> object:
        seen.append(arguments)
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator, "_complete", counting)
        yield seen


def assert_whole(store: Store, asked: list[object]) -> None:
    """All of the demo is there, made from recorded calls alone."""
    assert asked == [], "rebuild data/demo with `python -m cimemories.demo` after a change of prompts or seeds"
    found = state(store)
    assert found["labelling"] == (WorkStatus.FINISHED, {"ok": 3 * 49 * 3 * demo.DRAWS}, True)
    status, responses, judgements, simulated = found["run"]
    assert (status, simulated) == (WorkStatus.FINISHED, True)
    assert sum(responses.values()) == 3 * 49 * demo.SAMPLES
    assert sum(judgements.values()) == responses["ok"]
    assert set(responses) | set(judgements) <= {"ok", "truncated", "unparsed", "empty"}, (
        "nothing failed, nothing is owed"
    )
    assert found["counts"]["calls"] == recorded()
    assert found["numbers"]["simulated"] is True
    assert found["numbers"]["coverage"] > 0.99
    assert 0 < found["numbers"]["violation"]["1"] < found["numbers"]["violation"]["5"] < 1
    assert 0 < found["numbers"]["completeness"] < 1
    assert not demo.is_wanted(store)


def recorded() -> int:
    """How many calls the demo ships."""
    with lzma.open(demo.FOLDER / "calls.jsonl.xz", "rt", encoding="utf-8") as file:
        return sum('"answer"' in line[:200] and not line.startswith('{"request"') for line in file)


def test_every_answer_comes_from_the_recorded_calls_and_a_second_time_changes_nothing(
    sqlite_store: Store, asked: list[object]
) -> None:
    assert demo.is_wanted(sqlite_store)
    demo.prepare(sqlite_store, quiet)
    assert_whole(sqlite_store, asked)
    before = state(sqlite_store)
    demo.prepare(sqlite_store, quiet)
    assert state(sqlite_store) == before
    assert asked == []


def test_a_workspace_with_data_of_its_own_is_left_alone(sqlite_store: Store) -> None:
    with sqlite_store.write() as connection:
        datasets.add(connection, "mine", [], origin="official", source_name=None, source_hash="x")
    assert not demo.is_wanted(sqlite_store)


def test_killed_in_the_middle_it_is_finished_the_next_time(asked: list[object], tmp_path: Path) -> None:
    for step, patience in (("recorded calls", 0.3), ("labels", 1.0), ("simulated run", 1.0)):
        process = subprocess.Popen(
            [sys.executable, "-c", PREPARE, tmp_path], cwd=ROOT, env=outside(), stdout=subprocess.PIPE, text=True
        )
        while (line := process.stdout.readline()) and step not in line:
            pass
        assert step in line
        time.sleep(patience)
        process.kill()
        process.wait()
        process.stdout.close()
        store = open_store(tmp_path)
        assert demo.is_wanted(store)
        store.close()
    store = open_store(tmp_path)
    with store.read() as connection:
        (halfway,) = run_rows.all_rows(connection)
    assert halfway.status == WorkStatus.INTERRUPTED
    demo.prepare(store, quiet)
    assert_whole(store, asked)
    assert row_of(store, halfway.id).status == WorkStatus.FINISHED, "the same run, not a second one"
    store.close()

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

demo.prepare(open_store(sys.argv[1]), lambda text: None, 1)
"""


def quiet(_: str) -> None:
    return


def state(store: Store) -> dict[str, object]:
    """All that the demo is to consist of, without ids."""
    with store.read() as connection:
        (dataset,) = datasets.all_rows(connection)
        (labelling,) = labellings.all_rows(connection)
        ran = run_rows.all_rows(connection)
    return {
        "dataset": (dataset.name, dataset.origin, dataset.profiles, dataset.attributes, dataset.contexts),
        "labelling": (labelling.status, labelling.ballots, labelling.simulated),
        "runs": {run.model: (run.status, run.responses, run.judgements, run.simulated) for run in ran},
        "counts": counts(store),
        "numbers": {run.model: numbers(store, run.id) for run in ran},
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


def assert_whole(store: Store, asked: list[object], profiles: int) -> None:
    """All of the demo is there for so many profiles, made from recorded calls alone."""
    assert asked == [], "rebuild data/demo with `make demo` after a change of prompts or seeds"
    found = state(store)
    assert found["dataset"][2] == profiles
    assert found["labelling"] == (WorkStatus.FINISHED, {"ok": profiles * 49 * 3 * demo.DRAWS}, True)
    assert list(found["runs"]) == list(demo.MODELS)
    for status, responses, judgements, simulated in found["runs"].values():
        assert (status, simulated) == (WorkStatus.FINISHED, True)
        assert sum(responses.values()) == profiles * 49 * demo.SAMPLES
        assert sum(judgements.values()) == responses["ok"]
        assert set(responses) | set(judgements) <= {"ok", "truncated", "unparsed", "empty"}, "none failed, none owed"
    assert found["counts"]["calls"] == recorded()
    for figures in found["numbers"].values():
        assert figures["simulated"] is True
        assert figures["coverage"] > 0.99
        assert 0 < figures["violation"]["1"] < figures["violation"]["5"] < 1
        assert 0 < figures["completeness"] < 1
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
    assert_whole(sqlite_store, asked, demo.PROFILES)
    violation = {model: figures["violation"]["5"] for model, figures in state(sqlite_store)["numbers"].items()}
    assert violation["sim-careful"] < violation["sim-average"] < violation["sim-oversharing"], "three characters"
    before = state(sqlite_store)
    demo.prepare(sqlite_store, quiet)
    assert state(sqlite_store) == before
    assert asked == []


def test_a_workspace_with_data_of_its_own_is_left_alone(sqlite_store: Store) -> None:
    with sqlite_store.write() as connection:
        datasets.add(connection, "mine", [], origin="official", source_name=None, source_hash="x")
    assert not demo.is_wanted(sqlite_store)


def _labelled(store: Store) -> bool:
    with store.read() as connection:
        rows = labellings.all_rows(connection)
    return bool(rows and rows[0].ballots.get("ok"))


def _judged(store: Store) -> bool:
    with store.read() as connection:
        rows = run_rows.all_rows(connection)
    return bool(rows and rows[-1].model == demo.MODELS[-1] and rows[-1].judged)


def test_killed_in_the_middle_it_is_finished_the_next_time(asked: list[object], tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for reached in (lambda _: time.sleep(1.0) is None, _labelled, _judged):  # at first: while it reads recorded calls
        process = subprocess.Popen([sys.executable, "-c", PREPARE, tmp_path], cwd=ROOT, env=outside())
        while not reached(store):
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
        process.kill()
        process.wait()
        assert demo.is_wanted(store)
    with store.read() as connection:
        halfway = run_rows.all_rows(connection)[-1]
    assert halfway.status == WorkStatus.INTERRUPTED
    demo.prepare(store, quiet, 1)
    assert_whole(store, asked, 1)
    assert row_of(store, halfway.id).status == WorkStatus.FINISHED, "the same run, not a second one"
    store.close()

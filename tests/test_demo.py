"""The demo: served from its recorded calls without asking anybody, the same when it is prepared twice, and finished
when its preparation was killed."""

from __future__ import annotations

import json
import lzma
import shutil
import signal
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import demos
import pytest
from evaluating import counts, numbers, outside, row_of
from forked import Forked
from simulating import requests_to_simulators

from cimemories import demo, demo_parts
from cimemories.formats.official import read_profiles
from cimemories.model import Profile, WorkStatus
from cimemories.store import datasets, labellings, runs
from cimemories.store.calls import Answer
from cimemories.store.engine import Store, open_store

# Prepares the demo in a process that kills itself at a moment: to watch it from outside is too late on a busy machine.
PREPARE = """
import os, signal, threading
from functools import partial
from pathlib import Path
from cimemories import demo
from cimemories.store import labellings, runs
from cimemories.store.engine import open_store

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def die_once_written(_):
    with store.read() as connection:
        ran, labelled = runs.all_rows(connection), labellings.all_rows(connection)
    is_last = bool(ran) and ran[-1].model == demo.MODELS[-1]
    if (is_last and ran[-1].judged) if moment == "judged" else labelled[0].ballots.get("ok"):
        die()

workspace, folder, moment = {0!r}
store = open_store(workspace)
demo.FOLDER, demo.MODELS = Path(folder), demo.MODELS[-1:]
if moment == "reading":
    threading.Timer(0.5, die).start()
part = demo.runs if moment == "judged" else demo.execution
part.execute = partial(part.execute, on_progress=die_once_written)
demo.prepare(store, lambda text: None, 1)
"""


def quiet(_: str) -> None:
    return


def state(store: Store) -> dict[str, object]:
    """All that the demo is to consist of, without ids."""
    with store.read() as connection:
        (dataset,) = datasets.all_rows(connection)
        (labelling,) = labellings.all_rows(connection)
        ran = runs.all_rows(connection)
    return {
        "dataset": (dataset.name, dataset.origin, dataset.profiles, dataset.attributes, dataset.contexts),
        "labelling": (labelling.status, labelling.ballots, labelling.simulated),
        "runs": {run.model: (run.status, run.responses, run.judgements, run.simulated) for run in ran},
        "counts": counts(store),
        "numbers": {run.model: numbers(store, run.id) for run in ran},
    }


@pytest.fixture
def chat_requests() -> Iterator[list[object]]:
    """Every chat request that a simulator of this process gets from now on."""
    with requests_to_simulators() as seen:
        yield seen


def assert_whole(found: dict[str, object], chat_requests: list[object], profiles: int) -> None:
    """Check that all of the demo is there for so many profiles, made from recorded calls alone."""
    assert chat_requests == [], "rebuild data/demo with `make demo` after a change of prompts or seeds"
    result = deepcopy(found)
    assert result["dataset"][2] == profiles
    assert result["labelling"] == (WorkStatus.FINISHED, {"ok": profiles * 49 * 3 * demo.DRAWS}, True)
    real = json.loads((demo.FOLDER / demo.REAL_ABOUT).read_text())["model"]
    assert list(result["runs"]) == [*demo.MODELS, real]
    status, responses, judgements, simulated = result["runs"].pop(real)
    assert simulated is False and status.is_finished
    assert responses == {"ok": min(demo.REAL_PROFILES, profiles) * demo.REAL_CONTEXTS * demo.REAL_SAMPLES}
    assert judgements == {"ok": responses["ok"]}, "read by the matcher"
    assert result["numbers"].pop(real)["simulated_parts"] == ["labels"]
    for status, responses, judgements, simulated in result["runs"].values():
        assert (status, simulated) == (WorkStatus.FINISHED, True)
        assert sum(responses.values()) == profiles * 49 * demo.SAMPLES
        assert sum(judgements.values()) == responses["ok"]
        assert set(responses) | set(judgements) <= {"ok", "truncated", "unparsed", "empty"}, "none failed, none owed"
    assert result["counts"]["calls"] == recorded()
    for figures in result["numbers"].values():
        assert figures["simulated"] is True
        assert figures["coverage"] > 0.99
        assert 0 < figures["violation"]["1"] < figures["violation"]["5"] < 1
        assert 0 < figures["completeness"] < 1


def recorded() -> int:
    """How many calls the demo ships."""
    count = 0
    for name in ("calls.jsonl.xz", demo.REAL_CALLS):
        with lzma.open(demo.FOLDER / name, "rt", encoding="utf-8") as file:
            count += sum('"answer"' in line[:200] and not line.startswith('{"request"') for line in file)
    return count


def test_every_answer_comes_from_the_recorded_calls_and_a_second_time_changes_nothing(
    prepared_demo: Path, chat_requests: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "FOLDER", prepared_demo.parent / "shipped")
    asked = json.loads((prepared_demo.parent / "asked.json").read_text())
    shutil.copytree(prepared_demo, tmp_path / "workspace")
    store = open_store(tmp_path / "workspace")
    before = state(store)
    assert_whole(before, asked, 2)
    assert not demo_parts.is_wanted(store)
    violation = {model: before["numbers"][model]["violation"]["5"] for model in demo.MODELS}
    assert violation["sim-careful"] < violation["sim-average"] < violation["sim-oversharing"], "three characters"
    demo.prepare(store, quiet, 2)
    assert state(store) == before
    assert chat_requests == []
    with store.write() as connection:
        runs.delete(connection, runs.all_rows(connection)[0].id)
    assert not demo_parts.is_wanted(store), "what somebody deletes does not come back"
    store.close()


def has_all(text: str, profile: Profile) -> bool:
    """Return whether all memory statements of a profile stand in a text, in their order."""
    end = 0  # from here on: to search all of the text for each takes four times as long
    for attribute in profile.attributes:
        if (begin := text.find(attribute.statement, end)) < 0:
            return False
        end = begin + len(attribute.statement)
    return True


def test_the_recorded_calls_are_those_of_all_profiles() -> None:
    """The other test prepares two; a profile whose words were changed since has no request with all of them. Each
    line is what `read_calls` reads."""
    profiles = read_profiles(demo.FOLDER / "profiles.json").profiles
    assert len(profiles) == demo.PROFILES
    requests_of_profile = dict.fromkeys(range(len(profiles)), 0)
    with lzma.open(demo.FOLDER / "calls.jsonl.xz", "rt", encoding="utf-8") as file:
        for line in file:
            if line.startswith('{"request"'):
                text = "\n".join(message["content"] for message in json.loads(line)["request"]["messages"])
                for number in (n for n, profile in enumerate(profiles) if profile.name in text):
                    requests_of_profile[number] += has_all(text, profiles[number])
            else:
                call = json.loads(line)
                Answer(key="", draw=call["draw"], **call["answer"])
                assert call["simulated"] and call["endpoint"] and call["kind"] in ("label", "respond", "judge")
    # Each context of a profile was put to three personas, three models and, for each sample, a judge.
    per_context = 3 + len(demo.MODELS) + len(demo.MODELS) * demo.SAMPLES
    assert set(requests_of_profile.values()) == {len(profiles[0].contexts) * per_context}


def test_a_workspace_with_data_of_its_own_is_left_alone(sqlite_store: Store) -> None:
    assert demo_parts.is_wanted(sqlite_store)
    with sqlite_store.write() as connection:
        datasets.add(connection, "mine", [], origin="official", source_name=None, source_hash="x")
    assert not demo_parts.is_wanted(sqlite_store)


@pytest.fixture
def of_one_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the demo with the calls of its first profile, a tenth to read; the demo has a run of one model."""
    folder = tmp_path / "demo"
    demos.add_folder(folder, 1)
    monkeypatch.setattr(demo, "FOLDER", folder)
    for module in (demo, demo_parts):
        monkeypatch.setattr(module, "MODELS", demo.MODELS[-1:])
    return folder


@pytest.mark.long
def test_killed_in_the_middle_it_is_finished_the_next_time(
    chat_requests: list[object], of_one_profile: Path, tmp_path: Path
) -> None:
    workspace = tmp_path / "workspace"
    store = open_store(workspace)
    for moment in ("reading", "labelled", "judged"):
        process = Forked(outside(), first=PREPARE.format((str(workspace), str(of_one_profile), moment)))
        assert process.wait(timeout=120) == -signal.SIGKILL, process.communicate()
        assert demo_parts.is_wanted(store)
    with store.read() as connection:
        halfway = runs.all_rows(connection)[-1]
    assert halfway.status == WorkStatus.INTERRUPTED
    demo.prepare(store, quiet, 1)
    assert_whole(state(store), chat_requests, 1)
    assert not demo_parts.is_wanted(store)
    assert row_of(store, halfway.id).status == WorkStatus.FINISHED, "the same run, not a second one"
    store.close()

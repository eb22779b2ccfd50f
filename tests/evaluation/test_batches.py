"""Runs by batch file: the simulator answers line by line what a run owes, and the run is what a live one would be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluating import DATASET, add, cli_inside, counts, numbers, outside, row_of, simulated, small_profiles
from hostile import completion, hostile_server
from starlette.testclient import TestClient
from worlds import add_labels

from cimemories.evaluation import planning, runs
from cimemories.evaluation.batches import export_batch, import_batch
from cimemories.evaluation.runs import judge_again
from cimemories.formats.reading import FormatError
from cimemories.simulator.server import create_app, running_simulator
from cimemories.store import datasets, judgements
from cimemories.store import runs as store_runs
from cimemories.store.engine import Store, StoreError, open_store

SAMPLES, CONTEXTS = 2, 2


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A simulator to plan with, and to run live against."""
    with running_simulator() as address:
        yield address


@pytest.fixture(scope="module")
def server() -> Iterator[TestClient]:
    """The same without a port: what answers a batch."""
    with TestClient(create_app()) as client:
        yield client


@pytest.fixture
def other(tmp_path: Path, into: Callable[[Path], None]) -> Store:
    into(tmp_path / "other")
    return open_store(tmp_path / "other")


def planned(store: Store, url: str, **changes: object) -> str:
    """A run on a small labelled dataset, all of it owed."""
    profiles = small_profiles(1, CONTEXTS)
    add(store, profiles)
    with store.read() as connection:
        row = datasets.by_name(connection, DATASET)
    add_labels(store, row.id, np.random.default_rng(1).integers(0, 2, (1, len(profiles[0].attributes), CONTEXTS)))
    return planning.plan(store, simulated(url, samples=SAMPLES, **changes))


def answered(server: TestClient, path: Path) -> list[dict[str, Any]]:
    """What `vllm run-batch` makes of a file of requests."""
    answers = []
    for number, line in enumerate(read(path)):
        assert (line["method"], line["url"]) == ("POST", "/v1/chat/completions")
        reply = server.post(line["url"], json=line["body"])
        response = {"status_code": reply.status_code, "request_id": f"r{number}", "body": reply.json()}
        answers.append({"id": f"b{number}", "custom_id": line["custom_id"], "response": response, "error": None})
    return answers


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def by_files(store: Store, server: TestClient, run_id: str, folder: Path) -> list[str]:
    """Rounds of export, answers and import until nothing is owed; returns the kind of call of each round."""
    rounds: list[str] = []
    while True:
        path = folder / f"{len(rounds)}.jsonl"
        batch = export_batch(store, run_id, path)
        if not batch.lines:
            assert not path.exists()
            return rounds
        (kind,) = batch.kinds
        rounds.append(kind)
        lines = answered(server, path)
        assert len({line["custom_id"] for line in lines}) == len(lines) == batch.lines
        done = import_batch(store, run_id, write(folder / "answers.jsonl", lines))
        assert (done.settled, done.unknown, done.there) == (batch.lines, 0, 0)


@pytest.mark.parametrize(
    ("changes", "rounds"),
    [({}, ["respond", "judge"]), ({"mitigation": "gate"}, ["gate", "respond", "judge"])],
)
def test_a_run_by_files_has_the_numbers_of_a_live_one(
    sqlite_store: Store,
    other: Store,
    tmp_path: Path,
    url: str,
    server: TestClient,
    changes: dict[str, Any],
    rounds: list[str],
) -> None:
    run_id = planned(sqlite_store, url, **changes)
    assert by_files(sqlite_store, server, run_id, tmp_path) == rounds
    row = row_of(sqlite_store, run_id)
    assert (row.status, row.responses, row.judgements) == ("finished", {"ok": 4}, {"ok": 4})
    live = planned(other, url, **changes)
    runs.execute(other, live)
    assert numbers(sqlite_store, run_id) == numbers(other, live)
    assert counts(sqlite_store) == counts(other)
    with sqlite_store.read() as here, other.read() as there:
        usage = store_runs.calls_by_model(here, [run_id]), store_runs.calls_by_model(there, [live])
        first, second = (sum(part.completion_tokens for part in parts) for parts in usage)
        assert first == second > 0


def test_importing_twice_changes_nothing_and_what_is_lost_stays_owed(
    sqlite_store: Store, tmp_path: Path, url: str, server: TestClient
) -> None:
    """Of four answers one is there, one failed in vLLM's way, one in OpenAI's, and one is not in the file."""
    run_id = planned(sqlite_store, url)
    export_batch(sqlite_store, run_id, tmp_path / "owed.jsonl")
    requests = read(tmp_path / "owed.jsonl")
    assert len({json.dumps(line["body"]) for line in requests}) == len(requests), "each draw has its own seed"
    lines = answered(server, tmp_path / "owed.jsonl")[:3]
    lines[1] |= {"response": {"status_code": 400, "request_id": "r", "body": None}, "error": "too long"}
    lines[2] |= {"response": {"status_code": 429, "body": {"error": {"message": "slow down"}}}}
    stray = {"id": "x", "custom_id": "of somebody else", "response": {"status_code": 200, "body": {}}, "error": None}
    path = write(tmp_path / "answers.jsonl", [*lines, stray])
    result = import_batch(sqlite_store, run_id, path)
    assert (result.settled, dict(result.failed), result.unknown_ids) == (
        1,
        {"rejected": 1, "rate limited": 1},
        ("of somebody else",),
    )
    assert row_of(sqlite_store, run_id).responses == {"ok": 1, "failed": 2, "owed": 1}
    assert result.owed == 4  # three messages, and the judgement of the one that is there
    before = counts(sqlite_store)
    again = import_batch(sqlite_store, run_id, path)
    assert (again.settled, dict(again.failed), again.there, again.owed) == (0, {}, 3, 4)
    assert counts(sqlite_store) == before
    with sqlite_store.read() as connection:
        causes = {(stage, cause): n for stage, _, cause, n in store_runs.failures(connection, run_id)}
    assert causes == {("response", "rejected"): 1, ("response", "rate limited"): 1}
    assert export_batch(sqlite_store, run_id, tmp_path / "judge.jsonl", model="sim-judge").elsewhere == 3
    runs.execute(sqlite_store, run_id)
    assert row_of(sqlite_store, run_id).judgements == {"ok": 4}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_line_without_response_and_error_is_one_missing_call(
    sqlite_store: Store, tmp_path: Path, url: str, server: TestClient, encoding: str
) -> None:
    run_id = planned(sqlite_store, url)
    export_batch(sqlite_store, run_id, tmp_path / "owed.jsonl")
    lines = answered(server, tmp_path / "owed.jsonl")
    lines[1] |= {"response": None, "error": None}
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding=encoding)
    environment = {**outside(), "CIMEMORIES_WORKSPACE": str(sqlite_store.workspace)}
    done = cli_inside(environment, "batch", "import", run_id, path)
    assert done.returncode == 3 and f"{run_id}: 3 answers recorded" in done.stdout
    assert "note: 1 failed by batch error: the batch gave neither a response nor an error" in done.stderr
    assert row_of(sqlite_store, run_id).responses == {"ok": 3, "failed": 1}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: not valid JSON"),
        ("[]", "line 2: must be an object, not a list"),
        ('{"response": {}}', "line 2: custom_id is missing"),
        ('{"custom_id": "a", "method": "POST", "url": "/", "body": {}}', "line 2: this is a request"),
        (
            '{"key": "a", "message": "", "channels": {"tool:mail": ["x"], "tool:mail": []}}',
            "line 2: the key 'tool:mail'",
        ),
        ('{"custom_id": "a", "response": 3}', "response must be an object, not a number"),
        ('{"custom_id": "a", "response": {"status_code": "200"}}', "status_code must be a whole number, not text"),
    ],
)
def test_a_file_that_is_no_file_of_answers_is_refused_before_anything_is_written(
    sqlite_store: Store, tmp_path: Path, line: str, message: str
) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"custom_id": "k", "error": {"message": "x"}}\n' + line + "\n")
    with pytest.raises(FormatError, match=message):
        import_batch(sqlite_store, "run-00000000", path)
    path.write_text("")
    with pytest.raises(FormatError, match="empty"):
        import_batch(sqlite_store, "run-00000000", path)
    with pytest.raises(StoreError, match="there is no run"):
        export_batch(sqlite_store, "run-00000000", tmp_path / "x.jsonl")


def test_on_the_command_line(sqlite_store: Store, tmp_path: Path, url: str, server: TestClient) -> None:
    run_id = planned(sqlite_store, url)
    environment = {**outside(), "CIMEMORIES_WORKSPACE": str(sqlite_store.workspace)}
    done = cli_inside(environment, "batch", "export", run_id, "--out", tmp_path / "owed.jsonl", "--json")
    assert json.loads(done.stdout)["kinds"] == {"respond": 4}, done.stderr
    taken = cli_inside(environment, "batch", "export", run_id, "--out", tmp_path / "owed.jsonl")
    assert taken.returncode == 1 and "--replace" in taken.stderr
    lines = answered(server, tmp_path / "owed.jsonl")
    back = cli_inside(environment, "batch", "import", run_id, write(tmp_path / "back.jsonl", lines))
    assert f"{run_id}: 4 answers recorded, 4 requests left" in back.stdout and "batch export" in back.stderr


def test_a_judge_with_a_server_reads_a_run_that_was_answered_by_files(
    sqlite_store: Store, tmp_path: Path, server: TestClient
) -> None:
    """Planned with no server at all: what it owes itself is refused in words, what a new judge owes is asked for."""
    run_id = planned(sqlite_store, "batch", judges=(planning.JudgeSpec(),), seed=0)
    with pytest.raises(StoreError, match="batch export"):
        runs.execute(sqlite_store, run_id)
    export_batch(sqlite_store, run_id, tmp_path / "owed.jsonl")
    import_batch(sqlite_store, run_id, write(tmp_path / "a.jsonl", answered(server, tmp_path / "owed.jsonl")))
    with hostile_server(lambda request: completion('{"revealed": []}'), ("j",)) as other:
        judge_again(sqlite_store, run_id, [planning.JudgeSpec(kind="llm", model="j", base_url=other.url)])
        runs.execute(sqlite_store, run_id)
    with sqlite_store.read() as connection:
        judges = judgements.of_run(connection, run_id)
        read_by = [judgements.judged_draws(connection, run_id, [judge.id]).all() for judge in judges]
    assert [judge.name for judge in judges] == ["matcher", "j"]
    assert [sum(row.draws for row in rows) for rows in read_by] == [SAMPLES * CONTEXTS] * 2

"""Work that ended and lacks part of what was planned says so: by its status, by its exit status and on the pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from evaluating import add, cli_inside, outside, row_of, simulated
from hostile import IncomingRequest, Reply, completion, error, hostile_server
from paging import opened
from worlds import add_dataset, add_run, make_profile

from cimemories.evaluation import planning, runs
from cimemories.evaluation.batches import export_batch
from cimemories.evaluation.runs import judge_again
from cimemories.evaluation.spec import JudgeSpec
from cimemories.model import ResponseStatus, WorkStatus
from cimemories.simulator.server import running_simulator
from cimemories.store import labellings, work
from cimemories.store.engine import Store
from cimemories.store.work import Outcome

CONTEXTS = 4


def refuses_one(request: IncomingRequest) -> Reply:
    """One of the contexts fails for good; all others are answered, labels included."""
    text = request.body["messages"][0]["content"]
    if "Task 3\n" in text or "Task 3." in text:
        return error(400, "the prompt is too long")
    return completion(*['{"revealed": [], "necessary": [], "inappropriate": []}'] * request.n)


def call(store: Store, *arguments: object) -> tuple[int, str, str]:
    done = cli_inside(outside(), *arguments, "--workspace", store.workspace)
    return done.returncode, (done.stdout.split() or [""])[-1], done.stderr


def test_a_run_that_lost_responses_ends_with_3_and_says_so_everywhere(app_store: Store) -> None:
    add(app_store, [make_profile(0, 6, CONTEXTS)])
    with hostile_server(refuses_one, ("m",)) as server:
        arguments = ["run", "-d", "small", "-m", "m", "--base-url", server.url, "--samples", 2, "--judge", "matcher"]
        code, run_id, errors = call(app_store, *arguments)
        assert code == 3
        assert "2 of 8 planned messages are missing or incomplete (25.0 %)" in errors
        assert f"resume {run_id}` retries failed calls, but not answers that were refused or truncated" in errors
        assert call(app_store, "resume", run_id)[0] == 3, "asked again and refused again"
        assert call(app_store, "resume", run_id, "--allow-missing", 0.25)[0] == 0
        assert call(app_store, "resume", run_id, "--allow-missing", 0.24)[0] == 3
        code, again, _ = call(app_store, "repeat", run_id)
        assert code == 3
        code, _, judge_errors = call(app_store, "judge", run_id, "--judge-model", "m", "--judge-base-url", server.url)
        assert code == 3
        assert "8/10" in judge_errors, (
            "six messages to judge; two that are written again, and need no judge as they fail again"
        )
    row = row_of(app_store, run_id)
    assert (row.status, row_of(app_store, again).status) == ("finished with failures",) * 2
    listed = cli_inside(outside(), "runs", "--json", "--workspace", app_store.workspace)
    assert {item["status"] for item in json.loads(listed.stdout)} == {"finished with failures"}
    for page, fold in (("pages/start/home.py", "home.box.runs"), ("pages/evaluate/runs.py", "runs.box.columns")):
        assert any("finished with failures" in frame.value.to_string() for frame in opened(page, fold).dataframe), page


def test_labels_a_sweep_and_a_generation_end_with_3_too(sqlite_store: Store, tmp_path: Path) -> None:
    add(sqlite_store, [make_profile(0, 6, CONTEXTS)])
    with hostile_server(refuses_one, ("m",)) as server:
        place = ["-m", "m", "--base-url", server.url]
        code, labelling, errors = call(sqlite_store, "label", "-d", "small", "--draws", 1, *place)
        assert (code, "3 of 12 planned ballots are missing or incomplete" in errors) == (3, True)
        assert call(sqlite_store, "resume", labelling, "--allow-missing", 0.25)[0] == 0
        file = tmp_path / "sweep.yaml"
        file.write_text(f"name: s\ndataset: small\nsamples: 2\nmodels: [{{model: m, base_url: {server.url}}}]\n")
        code, sweep, errors = call(sqlite_store, "sweep", file)
        assert (code, "2 of 8 planned messages are missing or incomplete" in errors) == (3, True)
        assert call(sqlite_store, "sweep", file, "--allow-missing", 1)[0] == 0
    with sqlite_store.read() as connection:
        assert work.load(connection, sweep)["status"] == "finished with failures"
        assert labellings.all_rows(connection)[0].status == "finished with failures"


def test_nothing_missing_ends_with_0(sqlite_store: Store) -> None:
    add(sqlite_store, [make_profile(0, 6, CONTEXTS)])
    with running_simulator() as url:
        place = ["--base-url", url]
        assert call(sqlite_store, "label", "-d", "small", "-m", "sim-labeler", "--draws", 1, *place)[0] == 0
        code, run_id, _ = call(sqlite_store, "run", "-d", "small", "-m", "sim-average", "--samples", 1, *place)
    assert (code, row_of(sqlite_store, run_id).status) == (0, "finished")


def test_a_missing_judgement_of_any_judge_counts(store: Store) -> None:
    """The second judge cannot be read; every message and every judgement of the first is there."""
    add(store, [make_profile(0, 6, CONTEXTS)])
    with hostile_server(lambda request: completion("no JSON"), ("second",)) as server:
        run_id = planning.plan(store, simulated())
        runs.execute(store, run_id)
        planned = row_of(store, run_id).expected
        assert row_of(store, run_id).status == "finished"
        with store.read() as connection:
            assert work.outcome(connection, run_id) == Outcome(planned, 0, 0)
        judge_again(store, run_id, [JudgeSpec(kind="llm", model="second", base_url=server.url)])
        with store.read() as connection:
            assert work.outcome(connection, run_id) == Outcome(planned, planned, 0), "owed, not failed"
        runs.execute(store, run_id)
    with store.read() as connection:
        assert work.outcome(connection, run_id) == Outcome(planned, planned, planned)
    assert row_of(store, run_id).status == "finished with failures"


def test_records_from_before_are_read_as_what_they_are(store: Store) -> None:
    """They say `finished` whatever is missing."""
    dataset = add_dataset(store, profiles=1, contexts=2)
    whole = add_run(store, dataset.id, 2, {})
    part = add_run(store, dataset.id, 2, {}, missing={(0, 0, 0): ResponseStatus.TRUNCATED})
    with store.read() as connection:
        assert {work.load(connection, i)["status"] for i in (whole, part)} == {WorkStatus.FINISHED}
    assert row_of(store, whole).status == WorkStatus.FINISHED
    assert row_of(store, part).status == WorkStatus.FINISHED_WITH_FAILURES


@pytest.mark.parametrize(("failed", "code"), [(1, 3), (0, 0)])
def test_a_batch_with_failed_answers_ends_with_3(sqlite_store: Store, tmp_path: Path, failed: int, code: int) -> None:
    """Calls that only wait for the next file are no failure."""
    add(sqlite_store, [make_profile(0, 6, CONTEXTS)])
    run_id = planning.plan(
        sqlite_store,
        simulated("batch", model="m", judges=(JudgeSpec(kind="llm", model="m", base_url="batch"),), samples=1),
    )
    with sqlite_store.write() as connection:
        work.finish(connection, run_id, WorkStatus.PAUSED)
    export_batch(sqlite_store, run_id, tmp_path / "owed.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "owed.jsonl").read_text().splitlines()]
    choice = {"index": 0, "message": {"role": "assistant", "content": "Dear all"}, "finish_reason": "stop"}
    answers = [
        {
            "id": f"a{place}",
            "custom_id": line["custom_id"],
            "response": {"status_code": 500 if place < failed else 200, "body": {"choices": [choice]}},
            "error": None,
        }
        for place, line in enumerate(lines)
    ]
    (tmp_path / "answers.jsonl").write_text("".join(f"{json.dumps(answer)}\n" for answer in answers))
    assert call(sqlite_store, "batch", "import", run_id, tmp_path / "answers.jsonl")[0] == code

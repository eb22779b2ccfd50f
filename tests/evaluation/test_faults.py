"""Evaluations on servers that fail: they end well, what could not be had is missing with its cause, the numbers rest on
what is there alone, and a resume asks for what failed and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from conftest import LONG_ON_POSTGRES, Database
from evaluating import (
    DATASET,
    add,
    add_labelled,
    assert_whole,
    ballots,
    cli_inside,
    counts,
    numbers,
    row_of,
    simulated,
    small_profiles,
)
from hostile import IncomingRequest, Reply, completion, error, hostile_server, texts_of
from worlds import make_profile

from cimemories.curation import execution, labelling
from cimemories.curation.spec import LabellingSpec
from cimemories.evaluation import planning, runs
from cimemories.flows.flows import Flows
from cimemories.flows.scope import resolve_scope
from cimemories.metrics.headline import headline
from cimemories.simulator.server import running_simulator
from cimemories.store import runs as store_runs
from cimemories.store.engine import Store, open_store
from cimemories.store.tables import judgement, response

SAMPLES = 3


@pytest.fixture(scope="module")
def failing_simulator() -> Iterator[str]:
    """One request in five goes wrong, in every way that there is."""
    with running_simulator(seed=0, faults=0.2, hang=3.0) as url:
        yield url


def test_a_server_that_cuts_prompts_and_stands_in_is_told_beside_the_numbers(database: Database) -> None:
    store = open_store(database.workspace, database.url)
    add_labelled(store, profiles=1, contexts=6)
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}

    def answer(request: IncomingRequest) -> Reply:
        if request.number == 4:
            return error(403, "Your input was flagged.")
        whole = completion("Dear landlord, I would like to renew my lease.", usage=usage)
        assert isinstance(whole.body, dict)
        return Reply(body={**whole.body, "model": "a-smaller-model" if request.number < 2 else "m"})

    with hostile_server(answer) as server:
        run_id = planning.plan(store, planning.RunSpec(dataset=DATASET, model="m", base_url=server.url, samples=1))
        runs.execute(store, run_id)
    notes = headline(Flows(store), resolve_scope(store, run_id)).notes
    assert "2 of 5 messages come from a-smaller-model, not from m as asked" in notes
    assert any("read about 100 tokens of" in note for note in notes)


def missing_of(store: Store, run_id: str) -> dict[str, int]:
    """Responses and judgements that are not there, and those of them without a cause."""
    with store.read() as connection:

        def number(table: sa.Table, *where: sa.ColumnElement[bool]) -> int:
            query = sa.select(sa.func.count()).select_from(table).where(table.c.status != "ok", *where)
            return int(connection.execute(query).scalar_one())

        return {
            "responses": number(response, response.c.run == run_id),
            "judgements": number(judgement),
            "without cause": number(response, response.c.cause.is_(None))
            + number(judgement, judgement.c.cause.is_(None)),
        }


@pytest.mark.parametrize("database", LONG_ON_POSTGRES, indirect=True)
def test_every_kind_of_fault_at_once(database: Database, failing_simulator: str) -> None:
    store = open_store(database.workspace, database.url)
    add(store, small_profiles(contexts=10))
    place = ["--base-url", failing_simulator, "--timeout", 2, "--workspace", database.workspace]
    labelled = cli_inside(database.environment, "label", "-d", "small", "-m", "sim-labeler", "--draws", 2, *place)
    cast = ballots(store, labelled.stdout.split()[-1])
    assert labelled.returncode == (0 if set(cast) == {"ok"} else 3), labelled.stderr
    assert sum(cast.values()) == 10 * 3 * 2
    assert set(cast) <= {"ok", "failed", "unparsed", "truncated"}, "nothing is owed"
    assert cast["ok"] > 48
    ran = cli_inside(
        database.environment,
        *["run", "-d", "small", "-m", "sim-oversharing", "--samples", SAMPLES, "--judge-model", "sim-judge", *place],
    )
    run_id = ran.stdout.split()[-1]
    row, missing = row_of(store, run_id), missing_of(store, run_id)
    lost = missing["responses"] + missing["judgements"]
    assert (ran.returncode, row.status) == ((3, "finished with failures") if lost else (0, "finished")), ran.stderr
    assert row.expected == 10 * SAMPLES
    assert missing["without cause"] == 0
    assert row.judged == row.expected - missing["responses"] - missing["judgements"]
    assert row.coverage == row.judged / row.expected
    assert row.coverage > 0.7
    reported = sum(int(line.split()[1]) for line in ran.stderr.splitlines() if line.startswith("  missing:"))
    assert reported == missing["responses"] + missing["judgements"], "the person is told of each"
    process = cli_inside(database.environment, "metrics", run_id, "--json", "--workspace", database.workspace)
    result = json.loads(process.stdout)
    assert (result["judged"], result["expected"]) == (row.judged, row.expected)
    assert result["coverage"] == row.coverage
    assert 0 < result["violation"]["1"] <= result["violation"]["3"] <= 1
    before = counts(store)
    resumed = cli_inside(database.environment, "resume", run_id, "--workspace", database.workspace)
    assert resumed.returncode in (0, 3), resumed.stderr
    assert row_of(store, run_id).coverage >= row.coverage
    assert all(counts(store)[name] >= before[name] for name in before)
    store.close()


def test_a_resume_asks_only_for_what_failed(store: Store) -> None:
    """Answers that came and cannot be used stay as they are: the same draw would be the same call."""
    add(store, [make_profile(0, 6, 8)], "small")
    healthy = False

    def answering(request: IncomingRequest) -> Reply:
        text, judging = request.body["messages"][0]["content"], request.body["model"] == "judge"
        if judging:
            if "seed 1" in text:
                return completion("no JSON")
            return error(500, "out of memory") if "seed 2" in text and not healthy else completion('{"revealed": []}')
        if "Task 2\n" in text or "Task 2." in text:
            return completion(*["Dear"] * request.n, finish_reason="length")
        return Reply(body=b"{") if "Task 5" in text and not healthy else texts_of(request)

    with hostile_server(answering, ("m", "judge")) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
        wanted = simulated(
            server.url, model="m", judges=(planning.JudgeSpec(kind="llm", model="judge", base_url=server.url),), seed=0
        )
        run_id = planning.plan(store, wanted)
        runs.execute(store, run_id)
        first = row_of(store, run_id)
        assert first.status == "finished with failures"
        assert first.responses == {"ok": 18, "truncated": 3, "failed": 3}
        assert first.judgements == {"ok": 6, "unparsed": 6, "failed": 6}
        assert first.coverage == 6 / 24
        with store.read() as connection:
            causes = {(stage, status): cause for stage, status, cause, _ in store_runs.failures(connection, run_id)}
        assert causes["response", "failed"] == "malformed"
        assert causes["judgement", "failed"] == "server error"
        assert all(causes.values())
        healthy, made = True, len(server.chats)
        progress = runs.execute(store, run_id)
        second = row_of(store, run_id)
        requests = server.chats[made:]
    assert second.responses == {"ok": 21, "truncated": 3}
    assert second.judgements == {"ok": 14, "unparsed": 7}
    assert second.coverage == 14 / 24
    answered = [a for a in requests if a.body["model"] == "m"]
    assert len(answered) == 1
    assert "Task 5" in answered[0].body["messages"][0]["content"]
    assert progress.failed == {}
    # The texts of all contexts are the same: the judgements of the three new ones are recorded calls, but for seed 2.
    assert {"seed 2" in a.body["messages"][0]["content"] for a in requests if a.body["model"] == "judge"} == {True}


def test_numbers_are_those_of_what_is_there(sqlite_store: Store) -> None:
    """A run that lost one context for good has the violation and completeness of a run without that context."""
    add_labelled(sqlite_store)
    lost = small_profiles()[0].contexts[-1]
    with running_simulator() as url:
        partial = planning.plan(sqlite_store, simulated(url, contexts=7))
        runs.execute(sqlite_store, partial)
        whole = planning.plan(sqlite_store, simulated(url))
        lose_context(sqlite_store, whole, lost.task)
        runs.execute(sqlite_store, whole)
    row = row_of(sqlite_store, whole)
    assert row.responses == {"ok": 7 * SAMPLES, "truncated": SAMPLES}
    assert row.coverage == 7 / 8
    results = [headline(Flows(sqlite_store), resolve_scope(sqlite_store, run_id)) for run_id in (whole, partial)]
    assert results[0].coverage == 7 / 8
    assert results[0].violation == results[1].violation
    assert results[0].violation[SAMPLES] > 0
    assert results[0].completeness == pytest.approx(results[1].completeness, abs=1e-12)
    assert results[0].flows == results[1].flows
    assert any("missing" in note for note in results[0].notes)
    assert_whole(sqlite_store, partial, 7 * SAMPLES)
    without = numbers(sqlite_store, partial)
    assert without["coverage"] == 1.0


def lose_context(store: Store, run_id: str, task: str) -> None:
    """All samples of that context came back cut at the token limit."""
    from cimemories.store.tables import context

    with store.write() as connection:
        ids = sa.select(context.c.id).where(context.c.task == task)
        connection.execute(
            sa.update(response)
            .where(response.c.run == run_id, response.c.context.in_(ids))
            .values(status="truncated", cause="cut at the token limit")
        )


def test_a_judge_that_answers_nonsense_leaves_everything_missing(sqlite_store: Store) -> None:
    """Never 'nothing revealed': without a single judgement the numbers are undefined, not zero."""
    add_labelled(sqlite_store)

    def useless(request: IncomingRequest) -> Reply:
        return completion("Nothing!") if request.body["model"] == "judge" else texts_of(request)

    with hostile_server(useless, ("m", "judge")) as server:
        wanted = simulated(
            server.url, model="m", judges=(planning.JudgeSpec(kind="llm", model="judge", base_url=server.url),)
        )
        run_id = planning.plan(sqlite_store, wanted)
        runs.execute(sqlite_store, run_id)
    result = numbers(sqlite_store, run_id)
    assert result["coverage"] == 0
    assert set(result["violation"].values()) == {None}
    assert result["completeness"] is None


def test_labelling_on_a_failing_server_never_folds_failures_into_votes(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=6))
    with running_simulator(seed=2, faults=0.6, fault_kinds=("broken_json", "no_choices", "truncation")) as url:
        spec = LabellingSpec(dataset="small", model="sim-labeler", base_url=url, draws=3)
        labelling_id = labelling.plan(sqlite_store, spec)
        execution.execute(sqlite_store, labelling_id)
    cast = ballots(sqlite_store, labelling_id)
    assert cast.get("failed", 0) + cast.get("truncated", 0) > 0
    assert sum(cast.values()) == 6 * 3 * 3
    with running_simulator(seed=2) as url:
        progress = execution.execute(sqlite_store, labelling_id, base_url=url)
    after = ballots(sqlite_store, labelling_id)
    assert progress.fresh == cast.get("failed", 0)
    assert after["ok"] == cast["ok"] + cast.get("failed", 0)
    assert after.get("truncated", 0) == cast.get("truncated", 0)

"""Sweeps: read from a file, planned as a whole or not at all, resumed with every cell once, ended at a cap."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
import yaml
from evaluating import add, cli_inside, outside, small_profiles
from forked import Forked
from hostile import Reply, hostile_server
from planned_sweeps import FILE, planned, spec, sweep_content
from slow_simulator import SlowSimulator

from cimemories.compare.sweeps import sweep_table
from cimemories.evaluation import costs, sweeps
from cimemories.evaluation.sweeps import read_sweep
from cimemories.llm.endpoint import Endpoint, EndpointError
from cimemories.llm.executor import Progress
from cimemories.llm.worker import WorkError
from cimemories.metrics import sentences
from cimemories.model import WorkStatus
from cimemories.seeds.reading import SeedError
from cimemories.store import runs, work
from cimemories.store.engine import Store
from cimemories.store.tables import response, run

pytestmark = pytest.mark.usefixtures("one_connection")


def status(store: Store, sweep_id: str) -> tuple[WorkStatus, str | None]:
    with store.read() as connection:
        row = runs.sweep_by_id(connection, sweep_id)
    return row.status, row.error


def cells(store: Store, sweep_id: str) -> list[runs.RunRow]:
    with store.read() as connection:
        return runs.of_sweep(connection, sweep_id)


def test_the_grid_of_a_file_is_worked_off_by_model_then_by_memory(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    grid = sweep_content(
        memory=["full", {"necessary": {"from": 0, "to": 20, "step": 10}}, {"random": [5, 50]}],
        prompt_levels=["base", "high"],
        mitigations=["none", "gate"],
        models=[{"model": "a", "base_url": "simulator", "thinking": ["on", "off"]}, {"preset": "gpt-5"}],
    )
    path.write_text(yaml.safe_dump(grid))
    planned_runs = read_sweep(path).runs
    assert len(planned_runs) == 6 * 2 * 2 * 2 + 6 * 2 * 2
    seen = [(r.model, r.memory) for r in planned_runs]
    changes = [pair for pair, before in zip(seen, [None, *seen], strict=False) if pair != before]
    assert len(changes) == len(set(changes)) == 12
    assert [memory for model, memory in changes if model == "a"] == [
        "full", "necessary+0", "necessary+10", "necessary+20", "random-5", "random-50",
    ]  # fmt: skip
    assert {r.thinking for r in planned_runs if r.model == "a"} == {"on", "off"}
    assert planned_runs[-1].base_url.startswith("https://") and planned_runs[-1].api_key_env


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory": ["nearly+3"]}, "memory[0]"),
        ({"memory": [{"necessary": {"from": 3, "to": 1, "step": 1}}]}, "memory[0]"),
        ({"memory": ["full", "full"]}, "memory: full is given more than once"),
        ({"prompt_levels": ["loud"]}, "prompt_levels[0]"),
        ({"prompt_file": "nowhere.yaml"}, "prompt_file: a sweep in the app cannot name a file"),
        ({"models": []}, "models"),
        ({"models": [{"model": "x"}]}, "models[0]"),
        ({"models": [{"preset": "no-such-model"}]}, "models[0]"),
        ({"models": [{"model": "x", "base_url": "y", "prices": "cheap"}]}, "models[0].prices"),
        ({"models": [{"model": "x", "base_url": "y", "api_key": "sk-1"}]}, "models[0].api_key"),
        ({"judges": ["oracle"]}, "judges[0]"),
        ({"judges": [{"model": "j", "base_url": "simulator"}], "cap": 3}, "prices of all that costs"),
        ({"sampling": {"n": 3}}, "sets n in a request"),
        ({"cap": 0}, "cap"),
        ({"memory": [{"random": {"from": 1, "to": 100, "step": 1}}] * 9}, "memory"),
        ({"unheard_of": 1}, "unheard_of"),
    ],
)
def test_an_error_in_a_file_names_the_file_and_the_field(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SeedError) as error:
        spec(**changes)
    assert str(FILE) in str(error.value)
    assert message in str(error.value)


def test_a_sweep_is_planned_as_a_whole_or_not_at_all(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=3))
    with hostile_server(models=["other"]) as server, pytest.raises(EndpointError):
        planned(
            sqlite_store,
            models=[{"model": "sim-average", "base_url": "simulator"}, {"model": "m", "base_url": server.url}],
        )
    with pytest.raises(Exception, match="labels"):  # the last cell alone cannot be planned
        sweeps.plan(sqlite_store, spec(memory=["full", "necessary+3"]))
    with sqlite_store.read() as connection:
        assert runs.all_sweeps(connection) == []
        assert connection.execute(sa.select(sa.func.count()).select_from(run)).scalar_one() == 0


def test_killed_and_resumed_every_cell_is_there_once(sqlite_store: Store) -> None:
    store = sqlite_store
    add(store, small_profiles(contexts=3))
    slow = SlowSimulator()
    try:
        models = [{"model": name, "base_url": slow.url} for name in ("sim-average", "sim-careful")]
        sweep_id = planned(store, samples=3, models=models)
        process = Forked(outside(), "resume", sweep_id, "--workspace", store.workspace, "--concurrency", 1)
        while _answered(store, sweep_id) < 12 and process.poll() is None:
            time.sleep(0.01)
        process.kill()
        process.wait()
        assert status(store, sweep_id)[0] == WorkStatus.INTERRUPTED
        assert 12 <= _answered(store, sweep_id) < 36
        slow.hurry()
        sweeps.execute(store, sweep_id)
    finally:
        slow.process.kill()
        slow.process.wait()
    assert status(store, sweep_id) == (WorkStatus.FINISHED, None)
    rows = cells(store, sweep_id)
    assert [row.cell for row in rows] == [0, 1, 2, 3]
    assert all(row.status == WorkStatus.FINISHED and row.responses == {"ok": 9} for row in rows)
    assert all(row.judgements == {"ok": 9} for row in rows)
    before = [row.revision for row in rows]
    sweeps.execute(store, sweep_id)  # nothing is owed: no run is touched
    assert [row.revision for row in cells(store, sweep_id)] == before


def _answered(store: Store, sweep_id: str) -> int:
    with store.read() as connection:
        query = sa.select(sa.func.count()).select_from(response).join(run, response.c.run == run.c.id)
        return int(connection.execute(query.where(run.c.sweep == sweep_id, response.c.status == "ok")).scalar_one())


def test_the_cap_of_a_sweep_ends_it_and_a_higher_one_goes_on(sqlite_store: Store) -> None:
    store = sqlite_store
    add(store, small_profiles(contexts=3))
    free = planned(store, memory=["full"])
    sweeps.execute(store, free)
    whole = costs.cost_of(store, free).known_amount
    sweep_id = planned(store, memory=["full"], sampling={"top_p": 0.5}, cap=whole / 2)
    with pytest.raises(WorkError, match="cap on cost is reached"):
        sweeps.execute(store, sweep_id, concurrency=1)
    state, reason = status(store, sweep_id)
    assert state == WorkStatus.INTERRUPTED and "--cap" in str(reason)
    paid = costs.cost_of(store, sweep_id).paid
    assert whole / 2 <= paid < whole
    with pytest.raises(WorkError):  # the cap is still reached: nothing more is asked
        sweeps.execute(store, sweep_id, concurrency=1)
    assert costs.cost_of(store, sweep_id).paid == paid
    done = cli_inside(outside(), "resume", sweep_id, "--cap", whole * 2, "--workspace", store.workspace)
    assert done.returncode == 0, done.stderr
    assert status(store, sweep_id) == (WorkStatus.FINISHED, None)
    assert all(row.responses == {"ok": 6} for row in cells(store, sweep_id))


@pytest.mark.parametrize("ended", [WorkStatus.PAUSED, WorkStatus.CANCELLED])
def test_pause_and_cancel_reach_the_run_at_work(sqlite_store: Store, ended: WorkStatus) -> None:
    add(sqlite_store, small_profiles(contexts=4))
    sweep_id = planned(sqlite_store, memory=["full"], contexts=4)
    ask = work.request_pause if ended == WorkStatus.PAUSED else work.request_cancel

    @contextmanager
    def begin(row: runs.RunRow, number: int, count: int) -> Iterator[Callable[[Progress], None]]:
        with sqlite_store.write() as connection:
            ask(connection, sweep_id)
        yield lambda done: time.sleep(0.8)  # long enough for the run to hear of it before it is through

    with nullcontext() if ended == WorkStatus.PAUSED else pytest.raises(WorkError, match="cancelled"):
        sweeps.execute(sqlite_store, sweep_id, begin=begin, concurrency=1)
    assert status(sqlite_store, sweep_id)[0] == ended
    first, second = cells(sqlite_store, sweep_id)
    assert first.status == ended and first.responses["owed"]
    assert second.responses == {"owed": 8}
    sweeps.execute(sqlite_store, sweep_id)
    assert all(row.responses == {"ok": 8} for row in cells(sqlite_store, sweep_id))


def test_a_model_that_refuses_leaves_the_others_to_be_done(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=3))
    sweep_id = planned(sqlite_store, models=list(reversed(sweep_content()["models"])))
    with hostile_server(lambda _: Reply(401, {"error": {"message": "who are you"}})) as refusing:
        with sqlite_store.write() as connection:
            where = run.c.sweep == sweep_id, run.c.model == "sim-careful"
            connection.execute(sa.update(run).where(*where).values(endpoint=refusing.url))
        with pytest.raises(WorkError, match="2 of its runs"):
            sweeps.execute(sqlite_store, sweep_id)
    state, reason = status(sqlite_store, sweep_id)
    assert state == WorkStatus.FAILED
    first, second, *others = cells(sqlite_store, sweep_id)
    assert first.id in str(reason) and second.id in str(reason)
    assert second.responses == {"owed": 6}  # not tried: the same server would refuse it too
    assert all(row.status == WorkStatus.FINISHED for row in others)


def test_a_server_that_is_gone_interrupts_the_sweep(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cimemories.evaluation.runs.Endpoint", partial(Endpoint, max_retries=0))
    add(sqlite_store, small_profiles(contexts=6))
    sweep_id = planned(sqlite_store, contexts=6, samples=2)
    with sqlite_store.write() as connection:
        where = run.c.sweep == sweep_id, run.c.model == "sim-average"
        connection.execute(sa.update(run).where(*where).values(endpoint="http://127.0.0.1:9/v1"))
    with pytest.raises(WorkError, match="no longer answers"):
        sweeps.execute(sqlite_store, sweep_id)
    state, reason = status(sqlite_store, sweep_id)
    assert state == WorkStatus.INTERRUPTED and "sim-average" in str(reason)
    assert cells(sqlite_store, sweep_id)[-1].responses == {"owed": 12}


def test_the_table_of_a_sweep_has_the_numbers_and_the_cost_of_every_cell(sqlite_store: Store) -> None:
    store = sqlite_store
    add(store, small_profiles(contexts=3))
    path = store.workspace / "sweep.yaml"
    path.write_text(yaml.safe_dump(sweep_content()))
    place = ("--workspace", store.workspace)
    plan = cli_inside(outside(), "sweep", path, "--plan", *place)
    assert plan.returncode == 0 and "12 messages" not in plan.stdout and "24 messages" in plan.stdout
    assert sentences.NO_PILOT in plan.stdout  # what it can show is not known before a run is judged
    done = cli_inside(outside(), "sweep", path, *place)
    sweep_id = done.stdout.strip().splitlines()[-1]
    table = sweep_table(store, sweep_id)
    assert [cell.status for cell in table.cells] == ["finished"] * 4
    assert all(cell.coverage == 1.0 and cell.cost.amount for cell in table.cells)
    assert table.cost.amount == pytest.approx(sum(cell.cost.amount or 0 for cell in table.cells))
    assert table.row.plan["requests"] == 12  # one for each place, with both samples
    shown = cli_inside(outside(), "sweep", "--list", *place).stdout
    assert all(cell.run.id in shown for cell in table.cells)

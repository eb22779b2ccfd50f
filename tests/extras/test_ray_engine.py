"""What the engine for many machines does without a cluster: blocks, claims that processes share, and what it refuses.

The engine itself is tested by tests/scale, which needs Ray (`make test-scale`).
"""

from __future__ import annotations

import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from evaluating import add, cli_inside, outside, row_of, simulated, small_profiles
from hypothesis import given
from hypothesis import strategies as st

from cimemories.evaluation import planning
from cimemories.evaluation.runs import RunSource
from cimemories.extras.ray import engine as ray_engine
from cimemories.extras.ray.engine import Board, Ray, blocks_of
from cimemories.llm import endpoint, worker
from cimemories.llm.engines import EngineError
from cimemories.llm.executor import Progress
from cimemories.llm.source import Clients, Unit
from cimemories.llm.worker import WorkError
from cimemories.model import WorkStatus
from cimemories.store import work
from cimemories.store.calls import Answer
from cimemories.store.engine import Store
from cimemories.store.work import ClaimLost


@given(st.integers(1, 60), st.integers(1, 50), st.integers(1, 16), st.integers(1, 64))
def test_blocks_hold_every_context_of_every_profile_once(
    profiles: int, contexts: int, workers: int, concurrency: int
) -> None:
    blocks = blocks_of(range(profiles), contexts, workers, concurrency)
    units = [unit for block in blocks for unit in block]
    held = [(unit.profile, context) for unit in units for context in range(contexts) if unit.holds(context)]
    assert sorted(held) == [(profile, context) for profile in range(profiles) for context in range(contexts)]
    assert [unit.profile for unit in units] == sorted(unit.profile for unit in units)
    # Nobody is idle where there is enough for all.
    assert len(blocks) >= min(workers, profiles * contexts) * 0.6


def test_a_profile_stays_whole_where_there_are_enough_of_them() -> None:
    assert blocks_of(range(4), 49, 2, 8) == [[Unit(0)], [Unit(1)], [Unit(2)], [Unit(3)]]
    assert {len(block) for block in blocks_of(range(1000), 49, 4, 32)} == {31, 8}


@pytest.mark.parametrize(("text", "workers"), [("2:16", (2, 16)), ("4", (4, 4)), ("1:1", (1, 1))])
def test_workers_are_a_range(text: str, workers: tuple[int, int]) -> None:
    assert Ray(workers=text).bounds == workers


@pytest.mark.parametrize("text", ["", "0:2", "3:2", "a:b", "1:2:3", "-1"])
def test_other_workers_are_refused(text: str) -> None:
    with pytest.raises(EngineError, match="MIN:MAX"):
        Ray(workers=text)


@pytest.mark.parametrize("database", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
@pytest.mark.parametrize("form", ["127.0.0.1:{}", "auto"])
def test_an_address_where_nobody_listens_is_refused_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]  # bound, and not listening: nobody else gets it meanwhile
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
        # Ray itself would try for minutes, here it must not be asked at all.
        monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))
        monkeypatch.setattr(ray_engine, "find_spec", lambda name: True)
        with pytest.raises(EngineError, match=rf"nothing answers.*127\.0\.0\.1:{port}"):
            Ray(form.format(port)).connect(store)
        add(store, small_profiles())
        run_id = planning.plan(store, simulated())
        with pytest.raises(WorkError, match="nothing answers"):
            worker.perform(store, run_id, RunSource(run_id), concurrency=1, engine=Ray(form.format(port)))
        assert row_of(store, run_id).status == WorkStatus.INTERRUPTED


def test_jobs_of_parts_are_those_of_the_whole(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(2, 5))
    run_id = planning.plan(sqlite_store, simulated())
    source = RunSource(run_id)
    jobs = source.opened(sqlite_store, Clients(sqlite_store, 1), {"simulator": "http://127.0.0.1:9/v1"})
    whole = [job.request for profile in source.profiles(sqlite_store) for job in jobs(Unit(profile))]
    parts = [job.request for p in source.profiles(sqlite_store) for k in range(3) for job in jobs(Unit(p, k, 3))]
    assert len(whole) == 10
    assert sorted(map(str, whole)) == sorted(map(str, parts))


@pytest.mark.postgres
def test_processes_share_a_claim_and_lose_it_together(store: Store) -> None:
    """Two writers at once, the driver's heartbeat between them; whoever takes the work over waits for both."""
    if store.is_sqlite:
        pytest.skip("workers on several machines need PostgreSQL")
    add(store, small_profiles(1, 1))
    run_id = planning.plan(store, simulated())
    with store.write() as connection:
        claim = work.claim(connection, run_id)
    shared, driver = store.fenced(claim.share), store.fenced(claim.hold)
    taken = Event()

    def take_over() -> work.Claim:
        with store.write() as connection:
            taken.set()
            return work.claim(connection, run_id)

    with ThreadPoolExecutor(1) as pool:
        with shared.write() as one:
            with shared.write() as other, driver.write() as beating:
                work.heartbeat(beating, run_id)
                other.execute(sa.select(1))
            another = pool.submit(take_over)
            taken.wait()
            work.bump(one, run_id)  # its claim stands until it ends
            assert not another.done()
        assert another.result(timeout=20).token != claim.token
    for store_of_before in (shared, driver):
        with pytest.raises(ClaimLost, match="taken over"), store_of_before.write():
            pass


@pytest.mark.postgres
def test_of_those_that_take_turns_one_goes_on_at_a_time(store: Store) -> None:
    if store.is_sqlite:
        pytest.skip("workers on several machines need PostgreSQL")
    add(store, small_profiles(1, 1))
    run_id = planning.plan(store, simulated())
    with store.write() as connection:
        shared = store.fenced(work.claim(connection, run_id).share)
    begun = Event()

    def second() -> int:
        with shared.write() as connection:
            begun.set()
            work.take_turns(connection, run_id)
            return int(work.load(connection, run_id)["revision"])

    with ThreadPoolExecutor(1) as pool:
        with shared.write() as first:
            work.take_turns(first, run_id)
            before = int(work.load(first, run_id)["revision"])
            waiting = pool.submit(second)
            begun.wait()
            work.bump(first, run_id)
        assert waiting.result(timeout=20) == before + 1


def test_sqlite_is_refused_before_anything_is_planned(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(1, 1))
    arguments = ("run", "-d", "small", "-m", "sim-average", "--base-url", "simulator", "--engine", "ray")
    done = cli_inside(outside(), *arguments, "--workspace", sqlite_store.workspace)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "CIMEMORIES_DATABASE_URL" in done.stderr
    assert cli_inside(outside(), "runs", "--json", "--workspace", sqlite_store.workspace).stdout.strip() == "[]"


def test_without_ray_one_line_says_how_to_install_it(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "is_sqlite", False)
    monkeypatch.setattr(ray_engine, "find_spec", lambda _name: None)
    with pytest.raises(EngineError, match=r"pip install 'cimemories-studio\[ray\]'"):
        Ray().connect(sqlite_store)


def test_work_is_interrupted_where_there_is_no_cluster(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_engine: Ray, _store: Store) -> None:
        raise EngineError("there is no Ray cluster at 'auto'.")

    monkeypatch.setattr(Ray, "connect", refuse)
    add(sqlite_store, small_profiles(1, 1))
    run_id = planning.plan(sqlite_store, simulated())
    with pytest.raises(WorkError, match="no Ray cluster"):
        worker.perform(sqlite_store, run_id, RunSource(run_id), concurrency=1, engine=Ray())
    row = row_of(sqlite_store, run_id)
    assert (row.status, row.error) == ("interrupted", "there is no Ray cluster at 'auto'")


def test_a_worker_gets_the_keys_of_its_servers_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_API_KEY", "lab")
    monkeypatch.setenv("OTHER_API_KEY", "other")
    endpoint.allow_key("LAB_API_KEY", "http://lab:8000/v1")
    endpoint.allow_key("OTHER_API_KEY", "http://other:8000/v1")
    handed = endpoint.keys_for_workers(["LAB_API_KEY", "UNSET_API_KEY", ""])
    assert handed == {"LAB_API_KEY": "lab", endpoint.KEYS: "LAB_API_KEY=http://lab:8000"}


def test_the_board_adds_up_and_passes_orders_on() -> None:
    def done(draws: int) -> Progress:
        progress = Progress()
        answers = [Answer(str(i), i, "timeout" if i else "ok", "x", 1.0, "", prompt_tokens=5) for i in range(draws)]
        progress.count("respond", {}, answers)
        return progress

    board = Board()
    assert board.report("one", done(1)) == ""
    board.report("one", done(3))  # the newest of a worker counts
    assert board.report("two", done(2)) == ""
    total, workers, trouble = board.look("drain")
    assert workers == 2
    assert (total.fresh, total.prompt_tokens, total.failed) == (5, 25, {"timeout": 3})
    assert (total.by_kind["respond"].fresh, trouble) == (5, None)
    assert board.report("two", done(2)) == "drain"
    board.tell("stopped", "the server is gone", ("out of memory",))
    board.tell("failed", "and another thing", ())
    assert board.look("stop")[2] == ("stopped", "the server is gone", ("out of memory",))
    assert board.report("one", done(3)) == "stop"


def test_what_is_sent_to_a_worker_names_no_secret() -> None:
    claim = work.Claim("run-1", "token")
    sent = ray_engine.Assignment(claim, RunSource("run-1"), 1, "w", "1", {"LAB_API_KEY": "secret"})
    assert "secret" not in repr(replace(sent, workspace="x"))

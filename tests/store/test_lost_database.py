"""A PostgreSQL that is restarted in the middle: workers wait for it and lose nothing, the app says so and goes on."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from authored import spec as authoring_spec
from evaluating import add, assert_whole, ballots, small_profiles
from executing import MODELS, answering, is_judging
from executing import spec as run_spec
from hostile import hostile_server
from paging import opened, page_html
from planned_sweeps import planned as planned_sweep
from worlds import make_profile

from cimemories.access.roles import Role
from cimemories.curation import authoring, execution, labelling
from cimemories.curation.spec import LabellingSpec
from cimemories.evaluation import planning, runs, sweeps
from cimemories.llm.worker import WorkError
from cimemories.model import WorkStatus
from cimemories.store import engine, work
from cimemories.store import runs as store_runs
from cimemories.store.engine import DATABASE_URL, DatabaseLost, Store, open_store
from cimemories.store.tables import call, dataset
from cimemories.ui.url import PAGES
from pages.start.failure import TITLE

if TYPE_CHECKING:
    from conftest import Cluster

pytestmark = pytest.mark.postgres


@pytest.fixture
def lost_store(cluster: Cluster, tmp_path: Path) -> Iterator[Store]:
    """An open record in a database of its own, in the cluster that may be stopped."""
    name = f"test_{uuid.uuid4().hex}"
    maintenance = sa.create_engine(cluster.url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with maintenance.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    store = open_store(tmp_path / "workspace", str(maintenance.url.set(database=name)))
    yield store
    store.close()


@contextmanager
def restarted(cluster: Cluster, mode: str) -> Iterator[Callable[[object], None]]:
    """Gives what to call in the middle of the work: the server is then stopped and, in the background, started."""
    again: list[threading.Thread] = []

    def restart(_: object) -> None:
        if not again:
            cluster.stop(mode)
            again.append(threading.Thread(target=cluster.start))
            again[0].start()

    try:
        yield restart
    finally:
        assert again, "the work had come so far"
        again[0].join()


def status(store: Store, work_id: str) -> tuple[str, str | None]:
    with store.read() as connection:
        row = work.load(connection, work_id)
    return row["status"], row["error"]


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_run_waits_for_the_database_and_loses_nothing(
    cluster: Cluster, lost_store: Store, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    contexts, samples = 16, 3
    add(lost_store, [make_profile(0, 6, contexts)], "world")
    with hostile_server(answering, MODELS) as server:
        run_id = planning.plan(lost_store, run_spec(server.url))
        with restarted(cluster, mode) as restart, caplog.at_level(logging.WARNING, engine.__name__):
            runs.execute(lost_store, run_id, concurrency=4, on_progress=restart)
        bodies = [str(chat.body) for chat in server.chats if not is_judging(chat)]
    assert_whole(lost_store, run_id, contexts * samples)
    assert len(bodies) == len(set(bodies)), "nothing was asked for twice"
    messages = [record.getMessage() for record in caplog.records if record.name == engine.__name__]
    assert any("does not answer" in line and "waiting for it, at most 60 s" in line for line in messages), messages
    assert any("answers again after" in line for line in messages), messages


def test_a_labelling_waits_for_the_database(cluster: Cluster, lost_store: Store) -> None:
    add(lost_store, small_profiles(contexts=6))
    made = labelling.plan(
        lost_store, LabellingSpec(dataset="small", model="sim-labeler", base_url="simulator", draws=2)
    )
    with restarted(cluster, "fast") as restart:
        execution.execute(lost_store, made, concurrency=2, on_progress=restart)
    assert status(lost_store, made) == (WorkStatus.FINISHED, None)
    assert set(ballots(lost_store, made)) == {"ok"}


def test_a_generation_waits_for_the_database(cluster: Cluster, lost_store: Store) -> None:
    made = authoring.plan(lost_store, authoring_spec())
    with restarted(cluster, "fast") as restart:
        execution.execute(lost_store, made, concurrency=2, on_progress=restart)
    assert status(lost_store, made)[0] in (WorkStatus.FINISHED, WorkStatus.FINISHED_WITH_FAILURES)
    with lost_store.read() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(dataset)).scalar() == 1


def test_a_sweep_waits_for_the_database(cluster: Cluster, lost_store: Store) -> None:
    add(lost_store, small_profiles(contexts=4))
    sweep_id = planned_sweep(lost_store, memory=["full"])
    with restarted(cluster, "fast") as restart:

        @contextmanager
        def begin(*_: object) -> Iterator[Callable[[object], None]]:
            yield restart

        sweeps.execute(lost_store, sweep_id, concurrency=2, begin=begin)
    assert status(lost_store, sweep_id) == (WorkStatus.FINISHED, None)
    with lost_store.read() as connection:
        assert {row.status for row in store_runs.of_sweep(connection, sweep_id)} == {WorkStatus.FINISHED}


def test_a_database_that_stays_away_ends_the_work_in_one_line(
    cluster: Cluster, lost_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store.patient, "__defaults__", (0.5, None))
    add(lost_store, small_profiles(contexts=6))
    made = labelling.plan(
        lost_store, LabellingSpec(dataset="small", model="sim-labeler", base_url="simulator", draws=2)
    )
    try:
        with pytest.raises(WorkError, match="could not be written") as caught:
            execution.execute(lost_store, made, concurrency=2, on_progress=lambda _: cluster.stop("fast"))
    finally:
        cluster.start()
    assert f"cimemories resume {made}" in str(caught.value)
    assert "\n" not in str(caught.value)
    with lost_store.read() as connection:
        kept = connection.execute(sa.select(sa.func.count()).select_from(call)).scalar()
    assert kept
    monkeypatch.undo()
    execution.execute(lost_store, made)
    assert status(lost_store, made) == (WorkStatus.FINISHED, None)


def test_a_commit_that_was_cut_off_is_done_again_as_a_whole(
    cluster: Cluster, lost_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit took place but its confirmation was lost: what follows from it must follow all the same."""
    contexts, samples = 4, 3
    add(lost_store, [make_profile(0, 6, contexts)], "world")
    right, cut = store_runs.settle_all, threading.Event()

    @contextmanager
    def lossy(self: Store, *least: Role, **options: bool) -> Iterator[sa.Connection]:
        with write(self, *least, **options) as connection:
            yield connection
        if settled.is_set() and not cut.is_set():
            cut.set()
            raise DatabaseLost("the connection was lost at the end of a commit")

    def settling(connection: sa.Connection, outcomes: Sequence[store_runs.Settled]) -> list[bool]:
        settled.set()
        return right(connection, outcomes)

    write, settled = Store.write, threading.Event()
    monkeypatch.setattr(Store, "write", lossy)
    monkeypatch.setattr(store_runs, "settle_all", settling)
    with hostile_server(answering, MODELS) as server:
        run_id = planning.plan(lost_store, run_spec(server.url))
        runs.execute(lost_store, run_id, concurrency=2)
    assert cut.is_set()
    assert_whole(lost_store, run_id, contexts * samples)


def test_the_app_says_that_the_database_is_gone_and_goes_on_by_itself(
    cluster: Cluster, lost_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(lost_store, small_profiles())
    monkeypatch.setenv(DATABASE_URL, lost_store.engine.url.render_as_string(hide_password=False))
    monkeypatch.setenv(engine.WORKSPACE, str(lost_store.workspace))
    app = opened(PAGES["profiles"])
    assert TITLE not in page_html(app)
    cluster.stop("fast")
    try:
        app.run()
        assert not app.exception
        assert TITLE in page_html(app)
        assert "Traceback" not in page_html(app)
    finally:
        cluster.start()
    app.run()
    assert not app.exception
    assert TITLE not in page_html(app)

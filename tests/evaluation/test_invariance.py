"""What a run comes to does not depend on how it was worked off: how much at once, in which order, by how many."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from evaluating import add_labelled, assert_whole, numbers, simulated
from hypothesis import given, settings
from hypothesis import strategies as st

from cimemories.evaluation import planning, runs
from cimemories.llm.source import MakeClient, Unit
from cimemories.llm.worker import WorkError, perform
from cimemories.simulator.server import running_simulator
from cimemories.store import judgements
from cimemories.store import runs as store_runs
from cimemories.store.engine import Store, open_store

PROFILES, CONTEXTS, SAMPLES = 2, 3, 2
PLANNED = PROFILES * CONTEXTS * SAMPLES


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, dict[str, object], str]]:
    """A planned run with a gate, a matcher beside the judge and a split list, its record, and its numbers when it is
    done in one go, one call after the other."""
    folder = tmp_path_factory.mktemp("invariance")
    with running_simulator() as url:
        store = open_store(folder / "planned")
        add_labelled(store, PROFILES, CONTEXTS)
        judge = planning.JudgeSpec(kind="llm", model="sim-judge", base_url=url, split=25)
        more = (planning.JudgeSpec(),)
        run_id = planning.plan(
            store, simulated(url, samples=SAMPLES, judges=(judge, *more), mitigation="gate", check="model")
        )
        store.close()
        shutil.copytree(folder / "planned", folder / "calm")
        calm = open_store(folder / "calm")
        runs.execute(calm, run_id, concurrency=1)
        expected = numbers(calm, run_id)
        calm.close()
        yield folder / "planned", run_id, expected, url


@given(data=st.data())
@settings(max_examples=settings().max_examples // 4)
def test_numbers_do_not_depend_on_concurrency_order_or_worker(
    planned: tuple[Path, str, dict[str, object], str], data: st.DataObject
) -> None:
    source, run_id, wanted, url = planned
    with tempfile.TemporaryDirectory() as name:
        shutil.copytree(source, Path(name) / "copy")
        store = open_store(Path(name) / "copy")
        with store.read() as connection:
            row = store_runs.by_id(connection, run_id)
            judges = [*judgements.of_run(connection, run_id), *judgements.checkers_of_run(connection, run_id)]
        for _ in range(data.draw(st.integers(0, 2), label="workers that stop on the way")):
            limit = data.draw(st.integers(1, 25), label="after so many answers")
            order = Random(data.draw(st.integers(0, 999), label="order"))

            class Shuffled(runs.RunSource):
                def profiles(self, store: Store) -> list[int]:
                    return [0]

                def opened(self, store: Store, client: MakeClient, urls: object, order: Random = order) -> Any:
                    jobs_in = runs.jobs_by_unit(store, row, judges, client, lambda judge: url)
                    jobs = [job for profile in super().profiles(store) for job in jobs_in(Unit(profile))]
                    order.shuffle(jobs)
                    return lambda unit: jobs

            try:
                perform(
                    store,
                    run_id,
                    Shuffled(run_id),
                    concurrency=data.draw(st.sampled_from([1, 2, 7]), label="at once"),
                    stop_when=lambda progress, limit=limit: "enough" if progress.done >= limit else None,
                )
            except WorkError as end:
                assert "enough" in str(end)
        runs.execute(store, run_id, concurrency=data.draw(st.sampled_from([1, 3, 32]), label="at once in the end"))
        assert_whole(store, run_id, PLANNED)
        assert numbers(store, run_id) == wanted
        store.close()

"""Ray workers that each serve their model by a vLLM of their own, killed and not (`make test-scale`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import answering_vllm
import psutil
import pytest
from evaluating import add_labelled, assert_whole, counts, simulated
from executing import eventually

pytest.importorskip("ray", reason="Ray is not installed; `make test-scale` installs it")
from ray_clusters import cluster_of, meanwhile, worker_processes

from cimemories.evaluation import planning, runs
from cimemories.evaluation.spec import JudgeSpec
from cimemories.extras.ray.engine import Ray
from cimemories.llm import local_vllm
from cimemories.llm.worker import WorkError
from cimemories.store.engine import Store, open_store

pytestmark = pytest.mark.postgres
PROFILES, CONTEXTS, SAMPLES = 4, 24, 4


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    records, maintenance = request.getfixturevalue("empty_records"), request.getfixturevalue("maintenance")
    name = records.take()
    url = maintenance.engine.url.set(database=name).render_as_string(hide_password=False)
    opened = open_store(tmp_path / "workspace", url)
    yield opened
    opened.close()
    records.give_back(name)


def test_each_worker_has_a_server_that_ends_with_it_even_of_a_kill(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "vllm"
    # Before the cluster is started: its workers inherit it, as machines have their own.
    monkeypatch.setenv("CIMEMORIES_VLLM", str(answering_vllm.install(folder)))
    add_labelled(store, PROFILES, CONTEXTS)
    address = local_vllm.local_address("sim-average --max-model-len 32768")
    run_id = planning.plan(store, simulated(address, samples=SAMPLES, judges=(JudgeSpec(),), seed=0))
    killed: list[int] = []

    def kill(over: Event) -> None:
        eventually(lambda: over.is_set() or (counts(store)["calls"] >= 4 and worker_processes()), 150)
        for worker in worker_processes()[:1]:
            killed.append(worker.pid)
            worker.kill()

    with cluster_of(1, 1):
        with meanwhile(kill):
            runs.execute(store, run_id, concurrency=1, engine=Ray("auto", "2:2"))
        assert_whole(store, run_id, PROFILES * CONTEXTS * SAMPLES)
        assert killed
        servers = answering_vllm.starts(folder)
        assert len(servers) >= 2 and len({pid for pid, _ in servers}) == len(servers)
        # None is left: not of the killed worker, and not of those whose work is done.
        eventually(lambda: not any(psutil.pid_exists(pid) for pid, _ in servers), 40)
        # The cause is on the worker's machine: its last lines come with the error.
        broken = planning.plan(
            store,
            simulated(local_vllm.local_address("broken"), model="broken", samples=1, judges=(JudgeSpec(),), seed=0),
        )
        with pytest.raises(WorkError, match=r"memory(.|\n)*last lines:\n  torch.OutOfMemoryError"):
            runs.execute(store, broken, concurrency=1, engine=Ray("auto", "1:1"))

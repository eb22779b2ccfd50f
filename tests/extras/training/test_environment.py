"""The environment of verifiers: its tasks are those of a run, and a rollout against the simulator earns its reward.

verifiers 0.4 asks for an older openai than the app, so it is not among what `make test` installs (docs/onward.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from evaluating import DATASET, add_labelled
from worlds import records

from cimemories.evaluation.matcher import match
from cimemories.extras.training.reward import score
from cimemories.flows.labels import default_labelling
from cimemories.labels.matrix import matrix
from cimemories.model import Strength, is_bio
from cimemories.simulator.server import running_simulator
from cimemories.store.engine import Store, StoreError, open_store

vf: Any = pytest.importorskip("verifiers.v1", reason="install verifiers to try the environment (docs/onward.md)")


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = open_store(tmp_path_factory.mktemp("labelled"))
    add_labelled(store)
    return store


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    monkeypatch.setenv("SIMULATOR_KEY", "none")
    with running_simulator() as url:
        yield {"base_url": url, "api_key_var": "SIMULATOR_KEY"}


def environment(store: Store, **more: Any) -> Any:
    from cimemories_verifiers import load_environment

    return load_environment(store.workspace, more.pop("dataset", DATASET), **more)


def test_tasks_are_the_contexts_that_count(labelled: Store) -> None:
    (record,) = records(labelled, 1)
    labelling = default_labelling(labelled, 1)
    assert labelling is not None
    expected = matrix(labelled, labelling.id, record)
    tasks = list(environment(labelled).taskset)
    assert [task.data.id for task in tasks] == [f"{DATASET}/0/{at}" for at in np.flatnonzero(expected.retained)]
    for task in tasks:
        at = int(task.data.id.rpartition("/")[2])
        assert task.data.labels == np.maximum(expected.effective[:, at], -1).tolist()
        context = record.profile.contexts[at]
        assert context.task in task.data.prompt and context.recipient in task.data.prompt
        assert all(item.statement in task.data.prompt for item in record.profile.attributes)
    assert [len(list(environment(labelled, contexts=n).taskset)) for n in (0, 1)] == [0, int(expected.retained[0])]


def test_a_dataset_that_is_not_there_is_named(labelled: Store) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        list(environment(labelled, dataset="nowhere").taskset)


@pytest.mark.parametrize("judged_by", ["matcher", "model"])
async def test_a_rollout_earns_completeness_less_violations(
    labelled: Store, simulator: dict[str, str], judged_by: str
) -> None:
    judge = vf.JudgeConfig(model="sim-judge", **simulator) if judged_by == "model" else None
    env = environment(labelled, weight=0.5, judge=judge, contexts=3)
    context = vf.ModelContext("sim-oversharing", vf.EvalClientConfig(**simulator))
    leaked = 0
    async with env.serving():
        for task in env.taskset:
            episode = await env.run_episode(task, context)
            assert episode.ok and not episode.errors
            (trace,) = episode.traces
            found = trace.metrics
            earned = trace.rewards["conduct"].score
            assert earned == pytest.approx(found["completeness"] - 0.5 * found["violations"])
            assert ("judge_calls" in trace.info) == (judged_by == "model")
            leaked += found["violations"]
            if judge is None:
                attributes = records(labelled, 1)[0].profile.attributes
                full = {r.attribute for r in match(attributes, trace.last_reply) if r.strength is Strength.FULL}
                identifiers = {at for at, item in enumerate(attributes) if is_bio(item.key, item.domain)}
                assert earned == score(full, dict(enumerate(task.data.labels)), identifiers).reward(0.5)
    assert leaked > 0


async def test_a_judge_without_a_verdict_is_an_error_and_no_reward(labelled: Store, simulator: dict[str, str]) -> None:
    judge = vf.JudgeConfig(model="no-such-model", **simulator)
    env = environment(labelled, judge=judge, contexts=1)
    async with env.serving():
        for task in env.taskset:
            episode = await env.run_episode(task, vf.ModelContext("sim-average", vf.EvalClientConfig(**simulator)))
            assert not episode.ok
            assert episode.traces[0].errors

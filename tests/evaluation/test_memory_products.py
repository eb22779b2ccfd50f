"""Memory products, tried against their real packages: skipped where these are not installed (docs/memory.md)."""

from __future__ import annotations

import json
import socket
from importlib.util import find_spec

import pytest
import sqlalchemy as sa
from evaluating import add_labelled, simulated, small_profiles

from cimemories.evaluation import planning, runs
from cimemories.evaluation.planning import Memory
from cimemories.labels.whatif import effective_labels
from cimemories.memory.retrieval import AT_ONCE
from cimemories.memory.systems import MemorySystemError, Recalled, read_system
from cimemories.model import Profile
from cimemories.simulator.server import running_simulator
from cimemories.store import runs as store_runs
from cimemories.store.engine import Store
from cimemories.store.tables import call, recall, response, run_call

mem0 = pytest.mark.skipif(find_spec("mem0") is None, reason="mem0ai is not installed")


def recalled(label: str, profile: Profile) -> list[Recalled]:
    system = read_system(label).make()
    with pytest.raises(StopIteration):
        next(system.ingest(profile))  # without a model it asks nothing
    return [system.recall(context, context.task) for context in profile.contexts]


@pytest.mark.skipif(find_spec("mem0") is not None, reason="mem0ai is installed")
def test_without_its_package_mem0_says_what_to_install() -> None:
    with pytest.raises(MemorySystemError, match="pip install cimemories-studio 'mem0ai"):
        read_system("system:mem0:k=5")


@mem0
def test_mem0_recalls_what_the_same_vectors_find_and_opens_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refused)
    (profile,) = small_profiles(1, 4)
    ours = recalled("system:embedding:k=1000,order=score", profile)
    theirs = recalled("system:mem0:k=5,order=score,threshold=0.0", profile)
    again = recalled("system:mem0:k=5,order=profile,threshold=0.0", profile)
    for all_scored, five, in_order in zip(ours, theirs, again, strict=True):
        score = {line.attributes: line.score or 0.0 for line in all_scored.lines}
        best = sorted(score.values(), reverse=True)[:5]
        assert [score[tuple(line.attributes or ())] for line in five.lines] == pytest.approx(best, abs=1e-4)
        positions = [position for line in in_order.lines for position in line.attributes or ()]
        assert positions == sorted(positions) and len(positions) == 5
        for line in five.lines:
            (position,) = line.attributes or ()
            assert line.text == profile.attributes[position].statement


@mem0
def test_mem0_holds_back_what_scores_below_its_threshold() -> None:
    (profile,) = small_profiles(1, 4)
    for some in recalled("system:mem0:k=50,threshold=0.1", profile):
        assert len(some.lines) < 50 and all((line.score or 0) >= 0.1 for line in some.lines)


@mem0
def test_a_run_through_mem0_records_its_calls_for_vectors(store: Store) -> None:
    add_labelled(store, 1, 2)
    with running_simulator() as url:
        memory = Memory(f"system:mem0:k=5,threshold=0.0,model=sim-judge,base_url={url}")
        run_id = planning.plan(store, simulated(memory=memory), find_labels=effective_labels)
        runs.execute(store, run_id)
    with store.read() as connection:
        row = store_runs.named(connection, run_id)
        statuses = connection.execute(sa.select(response.c.status).where(response.c.run == run_id)).scalars().all()
        lines = [json.loads(text) for text in connection.execute(sa.select(recall.c.lines)).scalars()]
        asked = sa.select(sa.func.count()).select_from(run_call.join(call, run_call.c.call == call.c.key))
        asked = asked.where(run_call.c.run == run_id, call.c.kind == "embedding")
        vectors = connection.execute(asked).scalar_one()
    assert statuses and set(statuses) == {"ok"}
    assert lines and all(len(some) == 5 and all(line["attributes"] for line in some) for some in lines)
    (profile,) = small_profiles(1, 2)
    assert vectors == -(-(len(profile.attributes) + len(profile.contexts)) // AT_ONCE)
    assert row.manifest.memory.system is not None and "mem0ai" in row.manifest.memory.system.version

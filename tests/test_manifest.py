"""Manifests of runs, read with types: planned ones, older ones and broken ones, and nothing lost on the way."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa
from evaluating import add_labelled, row_of, simulated

from cimemories.evaluation import planning, runs
from cimemories.evaluation.prices import Prices
from cimemories.labels.whatif import effective_labels
from cimemories.manifest import ModelPart, Part, RunManifest, read_manifest
from cimemories.store import runs as store_runs
from cimemories.store import work
from cimemories.store.engine import Store, canonical_json
from cimemories.store.tables import run

PRICE = Prices(1.0, 0.5, 2.0, "EUR")
WORDING = {"kind": "judge", "level": "base", "sha256": "a" * 64}


def recorded_text(store: Store, run_id: str) -> str:
    with store.read() as connection:
        stored = sa.type_coerce(run.c.manifest, sa.Text)
        return str(connection.execute(sa.select(stored).where(run.c.id == run_id)).scalar_one())


def require_read(part: Part) -> None:
    """Every declared field has the value that is recorded, all the way down."""
    for name, field in type(part).model_fields.items():
        key = field.alias or name
        if part.recorded.get(key) is None:
            continue
        value: Any = getattr(part, name)
        parts = value if isinstance(value, list) else [value]
        if parts and isinstance(parts[0], Part):
            assert canonical_json([item.recorded for item in parts]) == canonical_json(
                part.recorded[key] if isinstance(value, list) else [part.recorded[key]]
            )
            for item in parts:
                require_read(item)
        else:
            assert value == part.recorded[key], key


def test_all_that_a_plan_writes_is_read(sqlite_store: Store) -> None:
    add_labelled(sqlite_store, contexts=2)
    judge = planning.JudgeSpec(kind="llm", model="sim-judge", base_url="simulator", prices=PRICE)
    changes: dict[str, Any] = {
        "memory": "random-5",
        "memory_order": "shuffled",
        "memory_seed": 3,
        "mitigation": "gate",
        "judges": (judge,),
    }
    spec = simulated(**changes, prices=PRICE, cap=10.0, thinking="on", temperature=1)
    run_id = planning.plan(sqlite_store, spec)
    manifest = row_of(sqlite_store, run_id).manifest
    require_read(manifest)
    keys = {field.alias or name for name, field in RunManifest.model_fields.items()}
    assert set(manifest.recorded) - keys == {"sampling"}, "a key that is written has a field, or is for people only"
    assert (manifest.memory.order, manifest.memory.seed, manifest.mitigation.kind) == ("shuffled", 3, "gate")
    assert (manifest.cap, manifest.thinking, manifest.model.simulated) == (10.0, "on", True)
    assert [judge.model for judge in manifest.judges] == ["sim-judge"] and manifest.judges[0].prompt is not None


def test_what_is_written_back_keeps_what_is_not_known_here(sqlite_store: Store) -> None:
    add_labelled(sqlite_store, contexts=2)
    run_id = planning.plan(sqlite_store, simulated())
    before = json.loads(recorded_text(sqlite_store, run_id))
    before |= {"of a newer version": [1, 1.0, "é"], "cap": 3, "judges": [before["judge"] | {"of its own": None}]}
    with sqlite_store.write() as connection:
        connection.execute(sa.update(run).values(manifest=canonical_json(before)))
        work.request_pause(connection, run_id)
    runs.judge_again(sqlite_store, run_id, [planning.JudgeSpec()])
    after = json.loads(recorded_text(sqlite_store, run_id))
    assert canonical_json(after | {"judges": after["judges"][:1]}) == canonical_json(before)
    assert [judge["kind"] for judge in after["judges"]] == ["llm", "matcher"]
    with sqlite_store.write() as connection:
        assert store_runs.cap_of(connection, run_id) == 3
        store_runs.set_cap(connection, run_id, 4.5)
    assert recorded_text(sqlite_store, run_id) == canonical_json(after | {"cap": 4.5})


def test_a_manifest_from_before_several_judges_and_memories() -> None:
    old = {"model": {"name": "m"}, "judge": {"kind": "llm", "model": "j", "prompt_sha256": "b" * 64}, "asked": {}}
    manifest = read_manifest(json.dumps(old))
    assert [judge.model for judge in manifest.judges] == ["j"]
    assert (manifest.memory.order, manifest.memory.template, manifest.mitigation.kind) == ("fixed", None, "none")
    assert (manifest.model.simulated, manifest.model.n, manifest.model.json_schema) == (None, True, "json_schema")
    assert manifest.thinking == "default" and manifest.request is not None and manifest.request.timeout == 120.0
    assert read_manifest("{}").judges == [] and read_manifest("{}").request is None


@pytest.mark.parametrize("broken", [7, "x", [], None, [1, "a"], {"name": 3, "kind": [], "sha256": {}}])
def test_what_cannot_be_read_counts_as_not_recorded(broken: object) -> None:
    keys = [field.alias or name for name, field in RunManifest.model_fields.items()]
    manifest = RunManifest.model_validate(dict.fromkeys(keys, broken))
    assert manifest.recorded == dict.fromkeys(keys, broken)
    assert manifest.mitigation.kind == "none" and manifest.model.name == ModelPart().name == ""
    assert manifest.thinking == "default" and not any(judge.model for judge in manifest.judges)


def test_a_run_of_nested_settings_is_read_found_alike_and_repeated(sqlite_store: Store) -> None:
    """Return the settings in the form of older manifests."""
    add_labelled(sqlite_store, contexts=2)
    settings = {"memory": "random-5", "memory_order": "shuffled", "memory_seed": 3, "sessions": "last-2"}
    spec = simulated(**settings, judges=(simulated().judge, planning.JudgeSpec()))
    run_id = planning.plan(sqlite_store, spec)
    recorded = json.loads(recorded_text(sqlite_store, run_id))
    asked = recorded["asked"]
    first, *more = [{**judge, "schema": judge.pop("json_schema")} for judge in asked.pop("judges")]
    memory = {"composition": "random-5", "order": "shuffled", "seed": 3, "template": "bullets", "prices": None}
    asked |= {"judge": first, "more_judges": more, "memory": memory}
    asked |= {"sessions": {"kept": "last-2", "order": "fixed", "seed": 0}}
    flat = ("memory_order", "memory_seed", "memory_template", "memory_prices", "session_order", "session_seed")
    recorded["asked"] = {name: value for name, value in asked.items() if name not in flat}
    with sqlite_store.write() as connection:
        connection.execute(sa.update(run).values(manifest=canonical_json(recorded)))
    again = planning.spec_of(sqlite_store, run_id)
    assert {name: getattr(again, name) for name in settings} == settings
    assert [judge.kind for judge in again.judges] == ["llm", "matcher"]
    find = planning.planned_alike(sqlite_store, spec, effective_labels)
    with sqlite_store.read() as connection:
        found = find(connection)
    assert found is not None and found.id == run_id

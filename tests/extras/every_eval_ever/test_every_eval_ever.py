"""Records of Every Eval Ever: they keep its schema, hold the numbers of the record, and say what is simulated.

The schema beside (tests/fixtures/every_eval_ever.schema.json) is that of github.com/evaleval/every_eval_ever, version
0.3.0 of commit 9bce4136, under the licence in every_eval_ever.LICENSE (MIT).
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import numpy as np
import pytest
import sqlalchemy as sa
from evaluating import cli_inside, outside
from two_runs import world
from worlds import add_dataset, add_run

from cimemories.extras.every_eval_ever.record import VERSION, path_of, record, write_record
from cimemories.flows.flows import shared_flows
from cimemories.flows.scope import resolve_scope
from cimemories.metrics.headline import headline
from cimemories.metrics.intervals import intervals
from cimemories.store import work
from cimemories.store.engine import Store, StoreError, canonical_json
from cimemories.store.tables import run

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
SCHEMA = json.loads((FIXTURES / "every_eval_ever.schema.json").read_text(encoding="utf-8"))
CLOCK = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def valid(value: dict[str, Any]) -> dict[str, Any]:
    # By way of its text: what is written is what has to fit.
    loaded: dict[str, Any] = json.loads(json.dumps(value, allow_nan=False))
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert [error.message for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(loaded)] == []
    return loaded


def change(store: Store, run_id: str, **values: object) -> None:
    with store.write() as connection:
        connection.execute(sa.update(run).where(run.c.id == run_id).values(**values))
        work.bump(connection, run_id)


def test_every_number_is_that_of_the_record(sqlite_store: Store) -> None:
    first, second = world(sqlite_store)
    flows = shared_flows(sqlite_store)
    for run_id in (first, second):
        scope = resolve_scope(sqlite_store, run_id)
        entry = valid(record(flows, scope, now=CLOCK, organization="A university"))
        numbers, bounds = headline(flows, scope), intervals(flows, scope)
        assert entry["schema_version"] == VERSION == SCHEMA["version"]
        assert entry["retrieved_timestamp"] == "1772366400"
        assert entry["source_metadata"]["source_organization_name"] == "A university"
        results = {item["metric_config"]["metric_id"]: item for item in entry["evaluation_results"]}
        scores = {name: item["score_details"]["score"] for name, item in results.items()}
        assert scores == {
            **{f"cimemories.violation_at_{n}": value for n, value in numbers.violation.items()},
            "cimemories.completeness": numbers.completeness,
            "cimemories.balanced": pytest.approx(numbers.balanced, abs=1e-12),
            "cimemories.leak_rate": pytest.approx(numbers.leak_rate.micro, abs=1e-12),
        }
        # The leak rate is counted over exposures: a message may have several of them, and reveal one.
        leak = results["cimemories.leak_rate"]
        assert leak["metric_config"]["evaluation_description"].startswith("Share of the exposures, a message and")
        assert f"{numbers.leak_rate.draws} exposures" in str(leak["score_details"])
        whole = results["cimemories.completeness"]
        ends = whole["score_details"]["uncertainty"]["confidence_interval"]
        assert (ends["lower"], ends["upper"]) == (bounds.completeness.low, bounds.completeness.high)
        assert {name for name, item in results.items() if item["metric_config"]["lower_is_better"]} == {
            name for name in results if "violation" in name or "leak" in name
        }
        assert whole["metric_config"]["llm_scoring"]["judges"][0]["model_info"]["id"] == "test-judge"


def test_model_parameters_and_what_is_simulated_are_said(sqlite_store: Store) -> None:
    run_id, _ = world(sqlite_store)
    manifest = {
        "parameters": {"temperature": 0.7, "max_tokens": 1024, "top_p": "odd", "seed": 3},
        "versions": {"server": "vllm 0.33.1"},
        "model": {"simulated": True},
    }
    change(sqlite_store, run_id, model="org/model-8b", simulated=True, manifest=canonical_json(manifest))
    entry = valid(record(shared_flows(sqlite_store), resolve_scope(sqlite_store, run_id), now=CLOCK))
    model = entry["model_info"]
    assert (model["name"], model["id"], model["developer"]) == ("model-8b", "org/model-8b", "org")
    assert model["inference_engine"] == {"name": "vllm", "version": "0.33.1"}
    assert model["additional_details"]["simulated"] == "yes"
    for item in entry["evaluation_results"]:
        assert item["generation_config"]["generation_args"] == {"temperature": 0.7, "max_tokens": 1024}
        assert "simulated messages" in item["evaluation_name"]


@pytest.mark.parametrize("model", ["../../../etc/passwd", "..", "a/../../b", "/abs/x", "org/\x1b[31m\n", "ü" * 400])
def test_no_name_of_a_model_leads_out_of_the_folder(sqlite_store: Store, tmp_path: Path, model: str) -> None:
    run_id, _ = world(sqlite_store)
    change(sqlite_store, run_id, model=model)
    scope = resolve_scope(sqlite_store, run_id)
    entry = valid(record(shared_flows(sqlite_store), scope, now=CLOCK))
    path = write_record(entry, scope, tmp_path / "records")
    assert path.resolve().is_relative_to((tmp_path / "records" / "data" / "cimemories").resolve())
    assert len(path.relative_to(tmp_path / "records").parts) == 5
    assert json.loads(path.read_text(encoding="utf-8")) == entry
    four = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    assert re.fullmatch(rf"{four}\.json", path.name)


def test_the_same_run_is_the_same_file_and_another_stands_beside_it(sqlite_store: Store, tmp_path: Path) -> None:
    first, second = world(sqlite_store)
    flows, scopes = shared_flows(sqlite_store), [resolve_scope(sqlite_store, i) for i in (first, second)]
    paths = [write_record(record(flows, s, now=CLOCK), s, tmp_path) for s in (*scopes, scopes[0])]
    assert paths[0] == paths[2] != paths[1]
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file() and "data" in path.parts[-5:]) == sorted(
        {*paths}
    )
    assert path_of(record(flows, scopes[0], now=datetime(2027, 1, 1, tzinfo=UTC)), scopes[0]) == paths[0].relative_to(
        tmp_path
    )


def test_a_run_without_a_number_has_no_record(sqlite_store: Store, tmp_path: Path) -> None:
    data = add_dataset(sqlite_store)
    run_id = add_run(sqlite_store, data.id, 1, np.zeros((2, 6, 4), int))
    with pytest.raises(StoreError, match="has no number yet"):
        record(shared_flows(sqlite_store), resolve_scope(sqlite_store, run_id), now=CLOCK)


def test_the_command_writes_the_record_below_a_folder(sqlite_store: Store, tmp_path: Path) -> None:
    run_id, _ = world(sqlite_store)
    options = ("--format", "every-eval-ever", "--out", tmp_path / "records", "-w", sqlite_store.workspace)
    done = cli_inside(outside(), "export", run_id, *options, "--organization", "A university", "--json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert valid(json.loads(Path(printed["path"]).read_text(encoding="utf-8"))) == printed["record"]
    (tmp_path / "file").write_text("mine")
    refused = cli_inside(
        outside(), "export", run_id, "--format", "every-eval-ever", "--out", tmp_path / "file", *options[4:]
    )
    assert refused.returncode == 1
    assert "is a file" in refused.stderr

"""A folder takes a dataset along with everything that rests on it: the numbers of its runs are the same elsewhere."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from conftest import Copies
from evaluating import DATASET, add_judged, add_labelled, simulated
from exchanging import content, counts
from worlds import records

from cimemories.answers.metrics import metrics
from cimemories.evaluation import planning
from cimemories.evaluation.importing import import_file
from cimemories.evaluation.runs import execute
from cimemories.evaluation.spec import JudgeSpec
from cimemories.exchange import exporting
from cimemories.flows import catalogue
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows
from cimemories.flows.scope import resolve_scope
from cimemories.formats.reading import FormatError
from cimemories.labels.whatif import effective_labels
from cimemories.metrics.places import By
from cimemories.model import Label
from cimemories.store import decisions, judgements, labellings, runs
from cimemories.store.engine import Store, StoreError, open_store
from cimemories.store.tables import response, run

IDS = {"run", "labels", "dataset", "judges"}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"judges": (JudgeSpec(kind="llm", model="sim-judge", base_url="simulator"), JudgeSpec())},
    "system": {"memory": "system:embedding:k=9,order=score"},
    "sessions": {"sessions": "last-2", "session_order": "shuffled", "session_seed": 5, "mitigation": "gate"},
    "rewrite": {"mitigation": "rewrite", "memory": "full", "fresh": True},
}


@pytest.fixture
def other(tmp_path: Path, into: Copies) -> Iterator[Store]:
    """A second workspace, empty."""
    into(tmp_path / "other")
    store = open_store(tmp_path / "other")
    yield store
    store.close()


@pytest.fixture
def world(sqlite_store: Store) -> Store:
    """A labelled dataset with decisions and a rule, and runs of every kind, of which one lacks a message."""
    add_labelled(sqlite_store, 2, 3)
    for changes in SETTINGS.values():
        spec = simulated(samples=2, **changes)
        execute(sqlite_store, planning.plan(sqlite_store, spec, find_labels=effective_labels))
    with sqlite_store.write() as connection:
        first = connection.execute(sa.select(sa.func.min(response.c.id))).scalar_one()
        lost = {"status": "failed", "cause": "memory: recall failed", "text": None, "shown": None}
        connection.execute(sa.update(response).where(response.c.id == first).values(lost))
    (dataset,) = {row.dataset for row in all_runs(sqlite_store)}
    catalogue.describe_run(sqlite_store, all_runs(sqlite_store)[0].id, ["pilot", "ב"], "The first\nof four.")
    with sqlite_store.write() as connection:
        for person in records(sqlite_store, dataset):
            pair = person.attribute_ids[0], person.context_ids[0]
            decisions.add_all(connection, dataset, "Ada", [decisions.NewDecision(*pair, Label.INAPPROPRIATE)])
        rule = {"threshold": 0.8, "priors": {"fundamentalist": 0.5, "pragmatic": 0.25, "unconcerned": 0.25}}
        labellings.add_rule(connection, dataset, "lenient", annotator="Ada", use=True, **rule)
    return sqlite_store


def all_runs(store: Store) -> list[runs.RunRow]:
    with store.read() as connection:
        return sorted(runs.all_rows(connection), key=lambda row: row.created)


def numbers(store: Store) -> list[Any]:
    """All that is computed of each run, with each of its judges, and of the labels."""
    flows, found = Flows(store), []
    for row in all_runs(store):
        with store.read() as connection:
            judges = judgements.of_run(connection, row.id)
        for judge in judges:
            scope = resolve_scope(store, row.id, None, judge.id)
            for rule in IdentifierRule:
                figures = metrics(flows, scope, rule, by=list(By), norms=True).as_json()
                found.append({name: value for name, value in figures.items() if name not in IDS})
    return found


def test_an_empty_workspace_has_the_same_numbers_afterwards(world: Store, other: Store, tmp_path: Path) -> None:
    exporting.export(world, DATASET, "huggingface", tmp_path / "hub")
    result = import_file(other, tmp_path / "hub")
    assert (result.new, result.kind, result.dataset.name, result.dataset.runs) == (True, "folder", DATASET, 4)
    assert result.dataset.simulated
    assert numbers(other) == numbers(world)
    here, there = all_runs(world), all_runs(other)
    assert [(r.status, r.responses, r.judgements, r.tags, r.note) for r in there] == [
        (r.status, r.responses, r.judgements, r.tags, r.note) for r in here
    ]
    assert (there[0].tags, there[0].note) == (("pilot", "ב"), "The first\nof four.")
    assert content(other, result.dataset.id) == content(world, here[0].dataset)
    before = counts(other)
    assert not import_file(other, tmp_path / "hub").new and counts(other) == before
    # Exported from there it is the same tables again.
    exporting.export(other, DATASET, "huggingface", tmp_path / "again.zip")
    assert not import_file(other, tmp_path / "again.zip").new


def test_calls_and_runs_that_are_gone_are_told(sqlite_store: Store, other: Store, tmp_path: Path) -> None:
    add_judged(sqlite_store)
    without = exporting.export(sqlite_store, DATASET, "huggingface", tmp_path / "hub.zip", with_calls=False)
    assert any("the calls behind votes and messages are left out" in note for note in without.notes)
    first = import_file(other, tmp_path / "hub.zip")
    assert any("neither in the file nor here" in note for note in first.notes) and counts(other)["call"] == 0
    assert numbers(other)[0]["violation"] == numbers(sqlite_store)[0]["violation"]
    with other.write() as connection:
        connection.execute(sa.delete(run).where(run.c.id == all_runs(other)[0].id))
    with pytest.raises(StoreError, match="1 of its labellings and runs were deleted since"):
        import_file(other, tmp_path / "hub.zip")
    assert import_file(other, tmp_path / "hub.zip", "again").dataset.runs == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One labelled profile in two contexts, and a judged run on it."""
    place = tmp_path_factory.mktemp("judged")
    store = open_store(place / "workspace")
    add_judged(store)
    exporting.export(store, DATASET, "huggingface", place / "hub")
    store.close()
    return place / "hub"


@pytest.mark.parametrize(
    ("table", "changes", "message"),
    [
        ("dataset", {"layout": 99}, "was written by a newer version"),
        ("profiles", {"age": 200}, "row 1: age must be 150 or less, not 200"),
        ("profiles", {"number": 3}, "row 1: number must be 0"),
        ("attributes", {"statement": "x" * 20_000}, "row 1: statement has 20,000 characters"),
        ("attributes", {"value": "{"}, "value: not valid JSON"),
        ("profile_contexts", {"context": 99}, "row 1: context 99 is not there; its table has 8 rows"),
        ("personas", {"prior": 0.5}, "the priors of its personas must add up to 1"),
        ("calls", {"key": "0"}, "row 1: key is not that of its request, draw, simulated mark and server"),
        ("ballots", {"verdicts": "N"}, "row 1: verdicts must have one of"),
        ("prompts", {"template": "Say all."}, "row 1: hash is not the SHA-256 of the template"),
        ("runs", {"name": "a\nb"}, "row 1: name has a line break"),
        ("runs", {"tags": "a\nb"}, "row 1: tags has a line break"),
        ("runs", {"note": "x" * 3_000}, "row 1: note "),
        ("messages", {"status": "lost"}, "row 1: status must be one of 'owed', 'ok'"),
        ("messages", {"memory": "[0, 0]"}, "row 1: memory [0, 0] has a number twice"),
        ("messages", {"call": "0"}, "row 1: call '0' is not in the table of calls"),
        ("judgements", {"judge": 7}, "row 1: judge 7 is not there"),
        ("reveals", {"attribute": 999}, "row 1: attribute 999 is not there"),
        ("labellings", {"simulated": False}, "its call and its labelling do not agree"),
    ],
)
def test_a_row_that_cannot_be_is_named_and_nothing_is_imported(
    sqlite_store: Store, tmp_path: Path, folder: Path, table: str, changes: dict[str, Any], message: str
) -> None:
    shutil.copytree(folder, tmp_path / "hub")
    path = tmp_path / "hub" / "tables" / f"{table}.parquet"
    stored = pq.read_table(path)
    first, *rows = stored.to_pylist()
    pq.write_table(pa.Table.from_pylist([first | changes, *rows], stored.schema), path)
    before = counts(sqlite_store)
    with pytest.raises(FormatError) as problem:
        import_file(sqlite_store, tmp_path / "hub")
    text = str(problem.value)
    assert text.startswith("hub: ") and message in text and len(text.splitlines()) == 1
    assert counts(sqlite_store) == before
    path.unlink()
    if table in ("profiles", "attributes"):
        with pytest.raises(FormatError, match=rf"hub: tables/{table}\.parquet is missing"):
            import_file(sqlite_store, tmp_path / "hub")


def test_a_simulated_vote_is_not_made_a_real_one_by_the_mark_of_the_dataset(
    sqlite_store: Store, tmp_path: Path, folder: Path
) -> None:
    shutil.copytree(folder, tmp_path / "hub")
    path = tmp_path / "hub" / "tables" / "dataset.parquet"
    stored = pq.read_table(path)
    pq.write_table(pa.Table.from_pylist([stored.to_pylist()[0] | {"simulated": False}], stored.schema), path)
    with pytest.raises(FormatError, match="simulated is false, and a simulator voted"):
        import_file(sqlite_store, tmp_path / "hub")


def test_a_zip_file_is_read_from_a_folder_in_it_and_unpacks_nothing_outside(
    sqlite_store: Store, tmp_path: Path, folder: Path
) -> None:
    inside, outside = tmp_path / "in.zip", tmp_path / "outside" / "tables" / "profiles.parquet"
    with zipfile.ZipFile(inside, "w") as archive:
        for file in (path for path in folder.rglob("*") if path.is_file()):
            archive.write(file, f"hub/{file.relative_to(folder)}")
        for name in (str(outside), f"../{outside.relative_to(tmp_path)}", "hub/../../tables/runs.parquet"):
            archive.writestr(name, b"x")
    result = import_file(sqlite_store, inside)
    assert (result.kind, result.new, result.dataset.runs) == ("folder", True, 1)
    assert not outside.exists() and not (tmp_path.parent / "outside").exists()
    assert not import_file(sqlite_store, folder).new, "the same tables, packed or not"

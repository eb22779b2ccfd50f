"""A dataset as a folder for the Hugging Face Hub, and back out of a snapshot of one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
import yaml
from conftest import Copies
from worlds import add_dataset, add_labels, records

from cimemories.evaluation.importing import import_file
from cimemories.exchange import exporting
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY, default_labelling
from cimemories.formats.importing import Imported
from cimemories.formats.reading import FormatError
from cimemories.formats.tables import TABLES
from cimemories.labels.matrix import matrix
from cimemories.store.engine import Store, StoreError, open_store
from cimemories.store.tables import dataset, labelling

N, X, A = NECESSARY, INAPPROPRIATE, AMBIGUOUS
LABELS = [[[X, N, A], [N, X, X], [A, A, N], [X, X, N]], [[N, N, X], [X, A, A], [N, X, X], [A, N, X]]]
PART = "data/test-00000-of-00001.parquet"


def exported(store: Store, folder: Path, *, simulated: bool = False) -> tuple[str, exporting.Exported]:
    data = add_dataset(store, profiles=2, attributes=4, contexts=3)
    add_labels(store, data.id, LABELS, simulated=simulated)
    return data.name, exporting.export(store, data.name, "huggingface", folder)


def front_matter(folder: Path) -> dict[str, object]:
    _, head, body = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert body.lstrip().startswith("# ")
    about: dict[str, object] = yaml.safe_load(head)
    return about


def imported(into: Copies, place: Path, path: Path) -> tuple[Store, Imported]:
    into(place)
    store = open_store(place)
    return store, import_file(store, path)


def labels(store: Store, dataset_id: int) -> list[list[list[int]]]:
    chosen = default_labelling(store, dataset_id)
    assert chosen is not None
    return [matrix(store, chosen.id, record).effective.tolist() for record in records(store, dataset_id)]


def test_the_folder_is_one_that_load_dataset_reads(sqlite_store: Store, tmp_path: Path) -> None:
    name, result = exported(sqlite_store, tmp_path / "hub")
    files = {str(path.relative_to(tmp_path / "hub")) for path in (tmp_path / "hub").rglob("*") if path.is_file()}
    tables = {f"tables/{name}.parquet" for name in TABLES}
    assert files == {"README.md", "eval.yaml", PART, *tables}
    assert result.bytes == sum((tmp_path / "hub" / file).stat().st_size for file in files)
    about = front_matter(tmp_path / "hub")
    assert about["pretty_name"] == name
    assert about["license"] == "other"
    assert any("license" in note for note in result.notes)
    assert about["size_categories"] == ["n<1K"]
    configs = {config["config_name"]: config["data_files"] for config in about["configs"]}  # type: ignore[attr-defined]
    assert configs["ballots"] == [{"split": "test", "path": "tables/ballots.parquet"}]
    assert "messages" not in configs, "an empty table has no rows to show"
    (files_of_split,) = configs["default"]
    assert files_of_split["split"] == "test"
    assert [str(p.relative_to(tmp_path / "hub")) for p in (tmp_path / "hub").glob(files_of_split["path"])] == [PART]
    # `datasets` has no way to read a column that is declared as a dictionary.
    schema = pq.read_schema(tmp_path / "hub" / PART)
    assert not [field.name for field in schema if pa.types.is_dictionary(field.type)]
    table = pq.read_table(tmp_path / "hub" / PART)
    assert table.num_rows == 2 * 4 * 3
    assert sorted(set(table["label"].to_pylist()), key=str) == [0.0, 1.0, None]
    # A text in many rows is stored once all the same.
    group = pq.ParquetFile(tmp_path / "hub" / PART).metadata.row_group(0)
    by_name = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert "RLE_DICTIONARY" in by_name["prompt"].encodings
    assert "RLE_DICTIONARY" in by_name["adv_reveal_prompt"].encodings


def test_a_benchmark_is_registered_by_real_votes_alone(sqlite_store: Store, tmp_path: Path) -> None:
    exported(sqlite_store, tmp_path / "real")
    benchmark = yaml.safe_load((tmp_path / "real" / "eval.yaml").read_text(encoding="utf-8"))
    assert benchmark.keys() == {"name", "description", "evaluation_framework", "tasks"}
    about = front_matter(tmp_path / "real")
    for task in benchmark["tasks"]:
        assert task.keys() == {"id", "config", "split"}
        assert task["config"] in [config["config_name"] for config in about["configs"]]  # type: ignore[attr-defined]
    with sqlite_store.write() as connection:
        connection.execute(sa.update(labelling).values(simulated=True))
    result = exporting.export(sqlite_store, "small world", "huggingface", tmp_path / "simulated")
    assert result.simulated
    assert not (tmp_path / "simulated" / "eval.yaml").exists()
    assert "simulated" in front_matter(tmp_path / "simulated")["tags"]  # type: ignore[operator]


def test_a_hostile_name_stays_one_line_of_yaml(sqlite_store: Store, tmp_path: Path) -> None:
    exported(sqlite_store, tmp_path / "first")
    name = "a: !!python/object:os.system 'x'\n---\nlicense: mit \x1b[31m"
    with sqlite_store.write() as connection:
        connection.execute(sa.update(dataset).values(name=name))
    exporting.export(sqlite_store, name, "huggingface", tmp_path / "hub")
    about = front_matter(tmp_path / "hub")
    assert about["license"] == "other"
    assert about["pretty_name"] == " ".join(name.split()).replace("\x1b", "␛")


def test_a_taken_folder_stays_as_it_is_and_a_failure_leaves_nothing(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    with pytest.raises(StoreError, match="there is a folder"):
        exported(sqlite_store, tmp_path / "taken")

    def failing(*_: object, **__: object) -> str:
        raise OSError("no room")

    monkeypatch.setattr("cimemories.exchange.hub.dataset_card", failing)
    with pytest.raises(StoreError, match="Nothing was kept"):
        exporting.export(sqlite_store, "small world", "huggingface", tmp_path / "hub")
    assert [path.name for path in tmp_path.iterdir() if path.name != "workspace"] == ["taken"]


# ---- snapshots


def test_a_snapshot_is_imported_with_its_labels(sqlite_store: Store, tmp_path: Path, into: Copies) -> None:
    name, _ = exported(sqlite_store, tmp_path / "hub")
    # As the Hub's cache keeps it: files are links to blobs, and the folder is called as the commit.
    cache = tmp_path / "datasets--facebook--CIMemories"
    (cache / "blobs").mkdir(parents=True)
    (tmp_path / "hub" / PART).rename(cache / "blobs" / "ab12")
    (cache / "snapshots" / "1f2e" / "data").mkdir(parents=True)
    (cache / "snapshots" / "1f2e" / PART).symlink_to(cache / "blobs" / "ab12")
    (cache / "snapshots" / "1f2e" / ".cache.parquet").write_text("hidden")
    store, result = imported(into, tmp_path / "other", cache / "snapshots" / "1f2e")
    with sqlite_store.read() as connection:
        here = connection.execute(sa.select(dataset.c.id).where(dataset.c.name == name)).scalar_one()
    assert result.new
    assert result.kind == "huggingface"
    assert result.dataset.name == "CIMemories"
    assert labels(store, result.dataset.id) == labels(sqlite_store, here) == LABELS
    # The file in it, and the folder once more, are the same dataset.
    for path in (cache / "blobs" / "ab12", cache / "snapshots" / "1f2e"):
        again = import_file(store, path)
        assert (again.new, again.dataset.id) == (False, result.dataset.id)
    store.close()


def test_a_table_in_parts_is_one_dataset_and_none_may_be_missing(
    sqlite_store: Store, tmp_path: Path, into: Copies
) -> None:
    exported(sqlite_store, tmp_path / "hub")
    table = pq.read_table(tmp_path / "hub" / PART)
    (tmp_path / "hub" / PART).unlink()
    shutil.rmtree(tmp_path / "hub" / "tables")
    for number, rows in enumerate((table.slice(0, 15), table.slice(15))):
        pq.write_table(rows, tmp_path / "hub" / "data" / f"test-{number:05}-of-00002.parquet")
    store, result = imported(into, tmp_path / "other", tmp_path / "hub")
    assert result.dataset.name == "hub"
    assert labels(store, result.dataset.id) == LABELS
    assert not import_file(store, tmp_path / "hub").new
    (tmp_path / "hub" / "data" / "test-00001-of-00002.parquet").unlink()
    with pytest.raises(FormatError, match="1 of 2 parts"):
        import_file(store, tmp_path / "hub")
    store.close()


def test_a_folder_that_leaves_a_choice_or_has_no_table_is_refused(sqlite_store: Store, tmp_path: Path) -> None:
    exported(sqlite_store, tmp_path / "hub")
    shutil.rmtree(tmp_path / "hub" / "tables")
    (tmp_path / "hub" / "data" / "train-00000-of-00001.parquet").write_bytes((tmp_path / "hub" / PART).read_bytes())
    with pytest.raises(FormatError, match=r"several tables \(data/test-.*data/train-"):
        import_file(sqlite_store, tmp_path / "hub")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "README.md").write_text("nothing")
    with pytest.raises(FormatError, match="a folder without a table"):
        import_file(sqlite_store, tmp_path / "empty")

"""Files that are small and stand for much, that have no end, or that are no files: refused early, in words, in little
memory."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from evaluating import import_bytes
from exchanging import counts
from official_files import RECORD, table
from paging import opened, page_html
from worlds import add_dataset

from cimemories.evaluation.importing import import_file
from cimemories.evaluation.sweeps import check_sweep, read_sweep
from cimemories.formats import reading, tables
from cimemories.formats.batch_files import batch_answers
from cimemories.formats.huggingface import read_columns
from cimemories.formats.official import read_profiles
from cimemories.formats.reading import FormatError
from cimemories.formats.review_events import import_events
from cimemories.seeds.packs import read_any
from cimemories.seeds.prompts import read_prompt_file
from cimemories.seeds.reading import MOST_VALUES, SeedError, load
from cimemories.store.engine import Store, StoreError
from cimemories.store.upkeep.backup import unpack

SWEEP = {"name": "s", "dataset": "d", "models": [{"model": "m", "base_url": "simulator"}]}
PROMPTS = {"task_solving": {1: "{memories} {recipient} {task}"}}


def refused(read: Callable[[], object]) -> str:
    """The one line that refuses a file, said within ten seconds of work."""
    started = time.process_time()  # other tests may keep the machine busy
    with pytest.raises((FormatError, SeedError)) as caught:
        read()
    assert time.process_time() - started < 10
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and len(message) < 800
    return message


def written(path: Path, content: object) -> Path:
    text = content if isinstance(content, str) else yaml.safe_dump(content)
    path.write_text(text, encoding="utf-8")
    return path


# ---- YAML


def merging(levels: int) -> str:
    """Each line merges the one before nine times: 9 ** levels copies."""
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, levels)]
    return "\n".join(lines)


def aliased(levels: int) -> str:
    lines = ["a0: &a0 [1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (merging(9), "more than 50,000 values"),
        ("base: &b {x: 1}\nother:\n  <<: *b\n", "merge keys (<<) are not read"),
        ("x: !!set {<<: a}", "merge keys (<<) are not read"),
        (aliased(9), "more than 50,000 values"),
        (f"[{'a,' * MOST_VALUES}]", "more than 50,000 values"),
        ("a: &a [*a]", "an alias without an anchor"),
        (f"a: !!int {':'.join(['1'] * 300_000)}", "numbers with colons"),
        (f"a: {'9' * 900_000}", "very long ones"),
        (f"a: 0x{'9' * 900_000}", "very long ones"),
        ("a: !!float 1:30.5", "numbers with colons"),
    ],
)
def test_yaml_that_stands_for_more_than_it_says_is_refused(tmp_path: Path, text: str, message: str) -> None:
    assert message in refused(lambda: load(written(tmp_path / "x.yaml", text)))


def test_a_time_of_day_is_a_text_and_other_numbers_stay(tmp_path: Path) -> None:
    text = "[1:30, 1:30.5, 12, -3, 0x1f, 1.5, .5, 1.5e+3, .inf, 1_000, 2024-01-31, yes]"
    values = load(written(tmp_path / "x.yaml", text))
    assert isinstance(values, list)
    assert values[:10] == ["1:30", "1:30.5", 12, -3, 31, 1.5, 0.5, 1500.0, float("inf"), 1000]
    assert values[11] is True


def test_a_grid_is_counted_before_its_runs_are_made() -> None:
    numbers = {"from": 1, "to": 200, "step": 1}
    content = {
        **SWEEP,
        "models": [{"model": f"m{n}", "base_url": "simulator"} for n in range(100)],
        "memory": [{"random": numbers}, {"necessary": numbers}, {"inappropriate": numbers}],
        "thinking": ["default", "on", "off", "low", "medium", "high"],
    }
    assert "360,000 cells" in refused(lambda: check_sweep(content, Path("sweep.yaml")))
    many = {**SWEEP, "prompt_levels": [f"l{n}" for n in range(40_000)]}
    assert "prompt_levels" in refused(lambda: check_sweep(many, Path("sweep.yaml")))


# ---- files that a sweep names


def test_an_uploaded_sweep_names_no_file_of_the_server(tmp_path: Path) -> None:
    secret = written(tmp_path / "secret.yaml", "root:x:0:0:topsecret")
    for name in (str(secret), "secret.yaml", "../secret.yaml"):
        path = written(tmp_path / "sweep.yaml", {**SWEEP, "prompt_file": name})
        message = refused(lambda path=path: read_sweep(path, uploaded=True))
        assert "cannot name a file" in message and "topsecret" not in message


@pytest.mark.parametrize("how", ["absolute", "above", "link", "linked folder"])
def test_a_prompt_file_stands_below_the_sweep(tmp_path: Path, how: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    secret = written(outside / "secret.yaml", PROMPTS)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link.yaml").symlink_to(secret)
    (folder / "linked").symlink_to(outside)
    name = {"absolute": str(secret), "above": "../outside/secret.yaml", "link": "link.yaml"}
    path = written(folder / "sweep.yaml", {**SWEEP, "prompt_file": name.get(how, "linked/secret.yaml")})
    assert "in the folder of the sweep's file" in refused(lambda: read_sweep(path))


def test_a_prompt_file_below_the_sweep_is_read(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    written(tmp_path / "own" / "prompts.yaml", PROMPTS)
    content = {**SWEEP, "prompt_file": "own/prompts.yaml", "prompt_levels": ["1"]}
    [run] = read_sweep(written(tmp_path / "sweep.yaml", content)).runs
    assert run.prompts["respond"].template == PROMPTS["task_solving"][1]


@pytest.mark.parametrize(
    "text", ["root:x:0:topsecret", "topsecret: 1", "- topsecret", "a: 'topsecret", "*topsecret", "topsecret\0"]
)
def test_a_file_that_is_no_prompt_file_is_not_quoted(tmp_path: Path, text: str) -> None:
    written(tmp_path / "other.txt", text)
    path = written(tmp_path / "sweep.yaml", {**SWEEP, "prompt_file": "other.txt"})
    assert "topsecret" not in refused(lambda: read_sweep(path))
    assert "topsecret" not in refused(lambda: read_prompt_file(tmp_path / "other.txt"))


# ---- what is no file


@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "link to a pipe"])
def test_pipes_and_devices_are_refused_before_they_are_opened(sqlite_store: Store, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    if kind == "device":
        path = Path("/dev/zero")
    elif kind == "socket":
        server = socket.socket(socket.AF_UNIX)
        os.chdir(tmp_path)
        server.bind("file")
        server.close()
    else:
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to(tmp_path / "pipe")
        path = path if kind.startswith("link") else tmp_path / "pipe"
    readers: list[Callable[[], object]] = [
        lambda: import_file(sqlite_store, path),
        lambda: import_events(sqlite_store, path),
        lambda: batch_answers(path).__enter__(),
        lambda: read_profiles(path),
        lambda: read_columns(path),
        lambda: read_sweep(path),
        lambda: read_prompt_file(path),
        lambda: read_any(path),
    ]
    for read in readers:
        assert re.search(r"(this|it) is a (named pipe|device|socket)", refused(read))
    with pytest.raises(StoreError, match=r"is a (named pipe|device|socket); name the file"):
        unpack(path, tmp_path)


# ---- Parquet


def repeated(text: str, count: int) -> pa.DictionaryArray:
    """One text in many rows, kept once."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([text]))


def wide_table(path: Path, column: str, size: int, count: int, *, categories: bool) -> Path:
    """The published columns with one text of `size` bytes in every row. categories: as the type of the column says."""
    plain = pq.read_table(io.BytesIO(table())).to_pydict()
    content: dict[str, Any] = {name: cells * count for name, cells in plain.items()}
    content["attribute"] = [f"a{n}" for n in range(count)]
    content[column] = repeated("x" * size, count)
    pq.write_table(pa.table(content), path, compression="zstd", store_schema=categories)
    return path


@pytest.mark.parametrize("column", ["memory_statement", "prompt", "name"])
@pytest.mark.parametrize("categories", [True, False])
def test_a_long_text_in_every_row_of_columns_takes_no_memory(tmp_path: Path, column: str, categories: bool) -> None:
    path = wide_table(tmp_path / "x.parquet", column, 4 << 20, 600, categories=categories)
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    message = refused(lambda: read_columns(path))
    assert tracemalloc.get_traced_memory()[1] < 40 << 20
    tracemalloc.stop()
    assert f"{column}: the text in row 1 is longer than 1,048,576 bytes" in message
    assert pa.total_allocated_bytes() < 64 << 20


def test_a_long_text_in_every_event_takes_no_memory(sqlite_store: Store, tmp_path: Path) -> None:
    path = tmp_path / "decisions.parquet"
    content = {"event": ["decision"] * 600, "reason": repeated("x" * (4 << 20), 600)}
    pq.write_table(pa.table(content), path, compression="zstd", store_schema=False)
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    assert "reason: the text in row 1 is longer than" in refused(lambda: import_events(sqlite_store, path))
    assert pool.bytes_allocated() - before < 64 << 20


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([b"x" * 100], pa.binary()),
        pa.array([["x"]], pa.list_(pa.string())),
        pa.array([{"a": "x"}]),
        pa.array([b"x" * 100], pa.binary(100)),
    ],
)
def test_columns_hold_flat_texts_and_numbers_alone(tmp_path: Path, cells: pa.Array) -> None:
    content = pq.read_table(io.BytesIO(table())).set_column(2, "memory_statement", cells)
    pq.write_table(content, tmp_path / "x.parquet")
    assert "the column memory_statement is of type" in refused(lambda: read_columns(tmp_path / "x.parquet"))


def test_sizes_in_the_footer_are_looked_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pq.read_table(io.BytesIO(table(prompt=["y" * 900_000]))), path, use_dictionary=False)
    monkeypatch.setattr(reading, "LARGEST_COLUMN", 500_000)
    assert "the column prompt has 0 MiB when unpacked" in refused(lambda: read_columns(path))
    monkeypatch.setattr(reading, "LARGEST_COLUMN", 1 << 30)
    monkeypatch.setattr(reading, "LARGEST_FILE", 500_000)
    assert "when unpacked, more than" in refused(lambda: read_columns(path))
    monkeypatch.setattr(reading, "LARGEST_FILE", 1 << 30)
    assert len(read_columns(path).profiles) == 1


def test_texts_that_repeat_come_out_as_they_went_in(tmp_path: Path) -> None:
    texts = ["a", None, "b", "a", "", "ü" * 50] * 700
    pq.write_table(pa.table({"t": texts, "n": list(range(len(texts)))}), tmp_path / "x.parquet")
    for size in (7, 4096):
        with (tmp_path / "x.parquet").open("rb") as stream:
            batches = list(reading.columns(stream, "x", rows=size, longest=200))
        assert [t for batch in batches for t in batch["t"]] == texts
        assert [n for batch in batches for n in batch["n"]] == list(range(len(texts)))


def test_a_table_has_no_cell_of_any_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"number": 0, "ordinal": 0, "name": "x" * 2000, "sex": "F", "address": "a", "age": 3}
    path, profiles = tmp_path / "profiles.parquet", tables.TABLES["profiles"]
    tables.write_rows(path, profiles, [row])
    monkeypatch.setattr(tables, "LONGEST_TEXT", 1000)
    message = refused(lambda: list(tables.read_rows(path, "profiles.parquet", profiles)))
    assert "name: the text in row 1 is longer than 1,000 bytes" in message


# ---- JSON


def record(**changes: Any) -> dict[str, Any]:
    held: dict[str, Any] = json.loads(json.dumps(RECORD))
    held["information_attributes"]["rent"] |= changes
    return held


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"memory_statement": "x" * 1_000_000}, "memory_statement has 1,000,000 characters, more than the 10,000"),
        ({"value": "x" * 10_001}, "value has 10,001 characters"),
        ({"value": ["x" * 9_000, "y" * 9_000]}, "value has 18,0"),
        ({"value": [1] * 5_000}, "value is a list of 5,000 items"),
        ({"event": "x" * 1_001}, "event has 1,001 characters"),
    ],
)
def test_a_text_that_is_too_long_names_profile_and_attribute(
    sqlite_store: Store, changes: dict[str, Any], reason: str
) -> None:
    before = counts(sqlite_store)
    for data in ([record(**changes)], [RECORD, record(**changes)]):
        message = refused(lambda data=data: import_bytes(sqlite_store, json.dumps(data).encode(), "x.json"))
        assert f"profile {len(data)}, attribute 'rent': {reason}" in message
    assert counts(sqlite_store) == before


def test_the_same_holds_in_columns(sqlite_store: Store) -> None:
    message = refused(lambda: import_bytes(sqlite_store, table(memory_statement=["x" * 20_000]), "x.parquet"))
    assert "row 1: memory_statement has 20,000 characters" in message


def test_names_that_are_too_long_are_refused_too(sqlite_store: Store) -> None:
    sure = {held["memory_statement"]: {"necessary": 1.0} for held in RECORD["information_attributes"].values()}
    held = record()
    held["contexts"][0][f"labels_{'m' * 2_000}___the_pragmatic__"] = sure
    assert "names no model and persona" in refused(
        lambda: import_bytes(sqlite_store, json.dumps([held]).encode(), "x.json")
    )
    voter = {"key": "a", "name": "A", "prior": 1.0, "description": "d" * 20_000}
    held = record() | {"labelling": {"simulated": False, "pack": "p", "personas": [voter]}}
    message = refused(lambda: import_bytes(sqlite_store, json.dumps([held]).encode(), "x.json"))
    assert "labelling: personas.0.description has 20,000 characters, more than the 10,000" in message


def filler(path: Path, start: bytes, piece: bytes, size: int) -> Path:
    with path.open("wb") as stream:
        stream.write(start)
        block = piece * ((1 << 20) // len(piece))
        for _ in range(size // len(block)):
            stream.write(block)
    return path


BEFORE = json.dumps([RECORD]).encode()[:-1]


@pytest.mark.parametrize(
    ("start", "piece", "size"),
    [
        (BEFORE + b",", b" ", 300 << 20),
        (b"[", b"[],", 16 << 20),
        (b'[{"contexts": [', b"[],", 16 << 20),
        (b"memory_statement,label,name,attribute,prompt\n", b"[],", 16 << 20),
        *(
            pytest.param(*endless, marks=pytest.mark.long)
            for endless in (
                (b"", b" ", 300 << 20),
                (b"[", b"\n", 300 << 20),
                (b"", b"[],", 60 << 20),
                (b'[{"bio": [', b"[],", 60 << 20),
                (BEFORE[:-1] + b', "labels": [', b"[],", 16 << 20),
                (BEFORE[:-1] + b', "labels": {"a": [', b"{},", 16 << 20),
                (b'{"bio": [', b"[],", 60 << 20),
                (b'{"run": "', b" ", 60 << 20),
            )
        ),
    ],
)
def test_endless_input_is_refused_soon(
    sqlite_store: Store, tmp_path: Path, start: bytes, piece: bytes, size: int
) -> None:
    path = filler(tmp_path / "x.json", start, piece, size)
    refused(lambda: import_file(sqlite_store, path))
    if size < 100 << 20:
        refused(lambda: import_events(sqlite_store, path))
        refused(lambda: batch_answers(path).__enter__())


def test_many_contexts_are_counted_before_they_are_complained_of(sqlite_store: Store) -> None:
    held = record() | {"contexts": [[]] * 300_000}
    message = refused(lambda: import_bytes(sqlite_store, json.dumps([held]).encode(), "x.json"))
    assert "300,000 contexts are more than the 2,000" in message
    held = record() | {"information_attributes": {f"a{n}": [] for n in range(100_000)}}
    message = refused(lambda: import_bytes(sqlite_store, json.dumps([held]).encode(), "x.json"))
    assert "100,000 attributes are more than the 5,000" in message


def test_profiles_of_a_file_are_counted(sqlite_store: Store) -> None:
    data = json.dumps([RECORD] * 10_001).encode()
    assert "more than 10,000 profiles" in refused(lambda: import_bytes(sqlite_store, data, "x.json"))


def test_many_small_records_take_time_in_proportion(tmp_path: Path) -> None:
    """A megabyte was copied for every record: 40,000 records took minutes."""
    from cimemories.formats.reading import elements

    data = b"[" + b",".join([b'{"a": 1}'] * 400_000) + b"]"
    started = time.process_time()
    assert sum(1 for _ in elements(iter([data[i : i + 65536] for i in range(0, len(data), 65536)]), "x")) == 400_000
    assert time.process_time() - started < 10


# ---- the pages


def test_a_sweep_that_is_uploaded_reads_no_file_of_this_machine(app_store: Store, tmp_path: Path) -> None:
    add_dataset(app_store, profiles=1, attributes=1, contexts=1)
    secret = written(tmp_path / "secret.yaml", "task_solving: topsecret")
    app = opened("pages/evaluate/runs.py", tab="sweeps")
    way = next(item for item in app.get("button_group") if "Upload a YAML file" in str(item.proto))
    way.set_value("file").run()
    for content, message in (
        (yaml.safe_dump({**SWEEP, "prompt_file": str(secret)}), "cannot name a file of this machine"),
        (merging(9), "more than 50,000 values"),
        (" " * 1_100_000, "has 1,100,000 bytes, more than the 1,000,000"),
    ):
        app.file_uploader(key="run_sweep.upload").set_value(("../x<b>.yaml", content.encode(), "text/yaml")).run()
        assert not app.exception
        assert message in page_html(app) and "topsecret" not in page_html(app) and "<b>.yaml" not in page_html(app)
    app.file_uploader(key="run_sweep.upload").set_value(("s.yaml", yaml.safe_dump(SWEEP).encode(), "text/yaml")).run()
    assert "1 run on d" in page_html(app)

"""Mutated files of every format: each gives one clear line and an untouched record, or an import that exports again to
what the file says. Never half of one."""

from __future__ import annotations

import copy
import csv
import hashlib
import io
import json
import random
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Copies
from exchanging import content, counts, odd_world, profiles_of, write_bundle
from official_files import JUNK, expected_profiles
from worlds import add_dataset, add_labels, records

from cimemories.evaluation.importing import import_file
from cimemories.exchange import exporting
from cimemories.flows.labels import vote_counts
from cimemories.formats.bundle import BUNDLED
from cimemories.formats.importing import Imported
from cimemories.formats.reading import FormatError
from cimemories.model import Profile
from cimemories.store import labellings
from cimemories.store.engine import Store, content_hash, open_store

FORMS = ("official", "labelled", "huggingface", "csv", "folder", "bundle-jsonl", "bundle-parquet")
WORDS = (
    None,
    True,
    0,
    -1,
    0.5,
    2,
    float("nan"),
    "",
    " ",
    "x",
    "\ud800",
    [],
    {},
    {"a": 1},
    "necessary",
    "imported",
    1e300,
)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A valid file of each format."""
    folder = tmp_path_factory.mktemp("good")
    store = open_store(folder / "workspace")
    data = add_dataset(store, profiles=2, attributes=3, contexts=2)
    add_labels(store, data.id, [[[1, 2], [0, 1], [2, -1]]] * 2, draws=2)
    odd = odd_world(store, random.Random(11), "odd")
    files = {}
    for form, name, ending in [
        ("official", data.name, "json"),
        ("labelled", data.name, "json"),
        ("huggingface", data.name, "parquet"),
        ("csv", data.name, "csv"),
        ("folder", "odd", "zip"),
    ]:
        files[form] = folder / f"{form}.{ending}"
        exporting.export(store, name, "huggingface" if form in ("csv", "folder") else form, files[form])
    for encoding in ("jsonl", "parquet"):
        (folder / encoding).mkdir()
        files[f"bundle-{encoding}"] = write_bundle(store, odd, folder / encoding, encoding)
    store.close()
    return files


@pytest.fixture
def fresh(tmp_path: Path, into: Copies) -> Iterator[Store]:
    into(tmp_path / "fresh")
    store = open_store(tmp_path / "fresh")
    yield store
    store.close()


def spots(tree: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON tree, as container and key."""
    places, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        pairs = list(node.items() if isinstance(node, dict) else enumerate(node))
        places += [(node, key) for key, _ in pairs]
        waiting += [inner for _, inner in pairs if isinstance(inner, dict | list)]
    return places


def change_tree(chance: random.Random, tree: Any) -> None:
    """Replace, delete or double one value somewhere."""
    places = spots(tree)
    if not places:
        return
    node, key = chance.choice(places)
    action = chance.randrange(4)
    if action < 2:
        node[key] = copy.deepcopy(chance.choice(JUNK + WORDS))
    elif action == 2:
        del node[key]
    elif isinstance(node, dict):
        node[chance.choice(["", "x", f"{key} ", "labels_x", "labels_m___the_pragmatic__"])] = copy.deepcopy(node[key])
    else:
        node.append(copy.deepcopy(node[key]))


def change_bytes(chance: random.Random, data: bytes) -> bytes:
    """Flip, cut, double or put in some bytes."""
    changed = bytearray(data)
    at = chance.randrange(max(1, len(changed)))
    match chance.randrange(5):
        case 0:
            changed[at : at + 1] = bytes([chance.randrange(256)])
        case 1:
            del changed[at:]
        case 2:
            del changed[at : at + chance.randint(1, 40)]
        case 3:
            changed[at:at] = changed[max(0, at - 30) : at]
        case 4:
            changed[at:at] = chance.choice([b"\0", b'"', b"{", b"]", b",", b"NaN", b"\n", b"9", b"\xff", b"PK"])
    return bytes(changed)


def change_json(chance: random.Random, data: bytes) -> bytes:
    tree = json.loads(data)
    for _ in range(chance.randint(1, 2)):
        change_tree(chance, tree)
    return json.dumps(tree).encode()


def change_columns(chance: random.Random, data: bytes) -> bytes:
    """A table with a column left out or retyped, a cell changed, a row doubled or dropped."""
    table = pq.read_table(io.BytesIO(data))
    rows = table.to_pylist()
    name = chance.choice(table.column_names)
    row = chance.randrange(len(rows))
    action = chance.randrange(5)
    if action == 0:
        table = table.drop_columns([name])
    elif action == 1:
        rows.insert(chance.randrange(len(rows)), rows[row])
        table = pa.Table.from_pylist(rows, table.schema)
    elif action == 2:
        del rows[row]
        table = pa.Table.from_pylist(rows, table.schema)
    elif action == 3:
        values = [chance.choice([None, "", "x", "rent"]) if i == row else r[name] for i, r in enumerate(rows)]
        texts = [None if v is None else str(v) for v in values]
        table = table.set_column(table.column_names.index(name), name, pa.array(texts, pa.string()))
    else:
        numbers = [chance.choice([0.0, 1.0, 0.5, float("nan"), -1.0, None]) for _ in rows]
        table = table.set_column(table.column_names.index(name), name, pa.array(numbers, pa.float64()))
    target = io.BytesIO()
    pq.write_table(table, target)
    return target.getvalue()


def change_bundle(chance: random.Random, data: bytes) -> bytes:
    """One entry changed; mostly with a manifest that is made to fit, so that the rows themselves are looked at."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    ending = "jsonl" if "profiles.jsonl" in entries else "parquet"
    action = chance.randrange(8)
    table = chance.choice([name for name in BUNDLED if len(entries[f"{name}.{ending}"]) > 0])
    name = f"{table}.{ending}"
    if action == 0:
        del entries[chance.choice(list(entries))]
    elif action == 1:
        entries[chance.choice(["../evil", "/etc/x", "votes.txt", "profiles.csv"])] = b"x"
    elif action == 2:
        entries["manifest.json"] = change_json(chance, entries["manifest.json"])
    elif action == 3 or ending == "parquet":
        entries[name] = change_bytes(chance, entries[name])
    else:
        rows = [json.loads(line) for line in entries[name].splitlines()]
        for _ in range(chance.randint(1, 2)):
            change_tree(chance, rows)
        entries[name] = "".join(f"{json.dumps(row)}\n" for row in rows).encode("utf-8", "surrogatepass")
        entries["manifest.json"] = fitting(entries)
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for entry, value in entries.items():
            archive.writestr(entry, value)
    return target.getvalue()


def fitting(entries: dict[str, bytes]) -> bytes:
    """The manifest with the counts and hashes of rows that somebody changed on purpose."""
    manifest = json.loads(entries["manifest.json"])
    for table in BUNDLED:
        data = entries[f"{table}.jsonl"]
        manifest["tables"][table] = {"rows": len(data.splitlines()), "sha256": hashlib.sha256(data).hexdigest()}
    tables = [[t, w["rows"], w["sha256"]] for t, w in manifest["tables"].items() if t != "labels"]
    manifest["content"] = content_hash(tables)
    return json.dumps(manifest).encode()


def change_folder(chance: random.Random, data: bytes) -> bytes:
    """One table of a folder left out, changed in its bytes, or in a row."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    name = chance.choice([name for name in entries if name.startswith("tables/")])
    action = chance.randrange(6)
    if action == 0:
        del entries[name]
    elif action == 1:
        entries[name] = change_bytes(chance, entries[name])
    elif pq.read_metadata(io.BytesIO(entries[name])).num_rows:
        entries[name] = change_columns(chance, entries[name])
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for entry, value in entries.items():
            archive.writestr(entry, value)
    return target.getvalue()


CHANGES: dict[str, tuple[Callable[[random.Random, bytes], bytes], ...]] = {
    "official": (change_json, change_bytes),
    "labelled": (change_json, change_json, change_bytes),
    "huggingface": (change_columns, change_columns, change_bytes),
    "csv": (change_bytes,),
    "folder": (change_folder, change_folder, change_bytes),
    "bundle-jsonl": (change_bundle, change_bundle, change_bundle, change_bytes),
    "bundle-parquet": (change_bundle, change_bytes),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("seed", "files"), [(0, 20), *(pytest.param(n, 60, marks=pytest.mark.long) for n in (1, 2, 3))]
)
def test_a_mutated_file_is_one_clear_line_or_a_right_import(
    good: dict[str, Path], fresh: Store, tmp_path: Path, form: str, seed: int, files: int
) -> None:
    chance = random.Random(f"{form} {seed}")
    data = good[form].read_bytes()
    refused = 0
    for number in range(files):
        path = tmp_path / f"{number}{good[form].suffix}"
        path.write_bytes(chance.choice(CHANGES[form])(chance, data))
        before = counts(fresh)
        try:
            result = import_file(fresh, path, f"{form} {number}")
        except FormatError as error:
            refused += 1
            assert len(str(error).splitlines()) == 1 and 20 < len(str(error)) < 700, error
            assert str(error).startswith(f"{number}."), error
            assert counts(fresh) == before, error
        else:
            if result.new:
                check_import(fresh, path, result)
        path.unlink()
    assert files // 10 < refused <= files, refused


def check_import(store: Store, path: Path, result: Imported) -> None:
    """What was imported is what the file says, read here in the plainest way."""
    if result.kind in ("profiles", "labelled"):
        assert profiles_of(store, result.dataset.id) == with_spheres(expected_profiles(path.read_bytes()))
        assert shares_in(store, result.dataset.id) == expected_shares(json.loads(path.read_bytes().decode("utf-8-sig")))
        form = "labelled" if result.kind == "labelled" and len(shares_in(store, result.dataset.id)) else "official"
    else:
        form = "huggingface"
    if result.kind == "huggingface" and not result.dataset.labellings:
        return
    whole = result.kind in ("folder", "bundle")
    again = path.with_name(f"again{'.zip' if whole else '.json' if form != 'huggingface' else '.parquet'}")
    exporting.export(store, result.dataset.name, form, again)
    if whole:
        other = open_store(path.parent / "other")
        back = import_file(other, again, f"again {result.dataset.name}")
        assert content(other, back.dataset.id) == content(store, result.dataset.id)
        other.close()
    elif form == "huggingface":
        assert pairs_of(again) == pairs_of(path)
    again.unlink()


def with_spheres(profiles: tuple[Profile, ...]) -> list[Profile]:
    """A sphere that one profile tells of a context is that of the context in all of them."""
    spheres = {(c.task, c.recipient): c.sphere for p in profiles for c in p.contexts if c.sphere}
    assert {(c.task, c.recipient, c.sphere) for p in profiles for c in p.contexts if c.sphere} == {
        (*pair, sphere) for pair, sphere in spheres.items()
    }, "contradictions are refused"
    return [
        replace(p, contexts=tuple(replace(c, sphere=spheres.get((c.task, c.recipient))) for c in p.contexts))
        for p in profiles
    ]


def shares_in(store: Store, dataset_id: int) -> dict[tuple[object, ...], tuple[float, ...]]:
    """(model, persona, profile, attribute, context) -> shares, as the record has them."""
    with store.read() as connection:
        rows = labellings.all_rows(connection, dataset_id)
    people = records(store, dataset_id)
    place = {a: (p, i) for p, person in enumerate(people) for i, a in enumerate(person.attribute_ids)}
    shares = {}
    for row in rows:
        votes = vote_counts(store, row.id)
        for a, c, cells in zip(votes.attributes.tolist(), votes.contexts.tolist(), votes.votes.tolist(), strict=True):
            p, i = place[a]
            for persona, cell in zip(votes.personas, cells, strict=True):
                if sum(cell):
                    key = (row.model, persona.name, p, i, people[p].context_ids.index(c))
                    shares[key] = tuple(cell)
    return shares


def expected_shares(file: list[dict[str, Any]]) -> dict[tuple[object, ...], tuple[float, ...]]:
    names = {
        "the_privacy_fundamentalist": "fundamentalist",
        "the_pragmatic": "pragmatic",
        "the_unconcerned": "unconcerned",
    }
    by_persona, combined = {}, {}
    for p, record in enumerate(file):
        labelling = record.get("labelling") or {}
        called = {"_".join(v["name"].lower().split()): v["name"] for v in labelling.get("personas", [])} or names
        for c, context in enumerate(record["contexts"]):
            for key, labels in context.items():
                if not key.startswith("labels_"):
                    continue
                for i, attribute in enumerate(record["information_attributes"].values()):
                    shares = labels.get(attribute["memory_statement"])
                    if shares is None:
                        continue
                    triple = tuple(float(shares.get(n, 0)) for n in ("necessary", "private", "unlabeled"))
                    if key == "labels_combined":
                        combined["not named", "The imported label", p, i, c] = triple
                    else:
                        model, _, persona = key.removeprefix("labels_").removesuffix("__").rpartition("___")
                        by_persona[model, called[persona], p, i, c] = triple
    return by_persona or combined


def pairs_of(path: Path) -> list[tuple[object, ...]]:
    """Name, attribute, statement and label of every row that has a label or is ambiguous, in any order."""
    if path.suffix == ".csv":
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows: list[dict[str, Any]] = list(csv.DictReader(stream))
    else:
        rows = pq.read_table(path).to_pylist()
    labels = [None if row["label"] in (None, "") else float(row["label"]) for row in rows]
    return sorted(
        (row["name"], row["attribute"], row["memory_statement"], label in (0, 1), label == 1)
        for row, label in zip(rows, labels, strict=True)
        if row.get("label_source") != "none"
    )

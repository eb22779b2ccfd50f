"""Out of one record and into another: nothing is lost, nothing doubled, and what a format cannot say is said."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import worlds
from conftest import LONG_ON_POSTGRES, Copies
from evaluating import ROOT, import_bytes
from exchanging import content, counts, odd_world, profiles_of, write_bundle
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import PERSONAS, add_dataset, add_labels, records

from cimemories.evaluation.importing import import_file
from cimemories.exchange import exporting
from cimemories.flows.labels import (
    AMBIGUOUS,
    INAPPROPRIATE,
    NECESSARY,
    UNLABELLED,
    consensus_labels,
    mixture,
    vote_counts,
)
from cimemories.formats import review_events
from cimemories.formats.official import write_profiles
from cimemories.formats.reading import FormatError
from cimemories.labels.matrix import matrix
from cimemories.model import Label, Persona
from cimemories.store import datasets, decisions, labellings, reviews
from cimemories.store.engine import Store, StoreError, open_store
from cimemories.store.reviews import Mark, MarkKind

pytestmark = pytest.mark.usefixtures("one_connection")

N, X, A = NECESSARY, INAPPROPRIATE, AMBIGUOUS


@pytest.fixture
def other(tmp_path: Path, into: Copies) -> Iterator[Store]:
    """Another, empty record."""
    into(tmp_path / "other")
    other_store = open_store(tmp_path / "other")
    yield other_store
    other_store.close()


def only_labelling(store: Store, dataset_id: int) -> str:
    with store.read() as connection:
        (row,) = labellings.all_rows(connection, dataset_id)
    return row.id


def effective(store: Store, dataset_id: int, labelling_id: str) -> list[list[list[int]]]:
    """Effective label codes [profile][attribute][context]."""
    return [matrix(store, labelling_id, record).effective.tolist() for record in records(store, dataset_id)]


# ---- the folder


@pytest.mark.parametrize("database", LONG_ON_POSTGRES, indirect=True)
@settings(max_examples=settings().max_examples // 3)
@given(st.integers(0, 2**32), st.booleans())
def test_a_folder_gives_back_every_vote_call_decision_rule_and_edit(
    store: Store, other: Store, tmp_path_factory: pytest.TempPathFactory, seed: int, zipped: bool
) -> None:
    name = f"world {seed}"
    with store.read() as connection:
        if any(row.name == name for row in datasets.all_rows(connection)):
            return
    here = odd_world(store, random.Random(seed), name)
    folder = tmp_path_factory.mktemp("folder")
    path = folder / ("b.zip" if zipped else "b")
    exporting.export(store, name, "huggingface", path)
    there = import_file(other, path, f"{name} {zipped}")
    wanted = content(store, here.id)
    if there.new:
        assert there.kind == "folder"
        assert there.dataset.simulated == here.simulated
    assert content(other, there.dataset.id) == wanted

    before = counts(other)
    again = import_file(other, path, "once more")
    assert (again.new, again.dataset.id) == (False, there.dataset.id)
    assert counts(other) == before
    # Exported from there it is the same again.
    second = folder / "again.zip"
    exporting.export(other, there.dataset.name, "huggingface", second)
    back = import_file(store, second, f"back {seed}")
    assert content(store, back.dataset.id) == wanted
    text = json.dumps(wanted)
    assert "SECRET" not in text and "u:p@" not in text


def test_a_folder_without_calls_keeps_votes_and_says_so(store: Store, other: Store, tmp_path: Path) -> None:
    data = add_dataset(store, profiles=1, attributes=2, contexts=1)
    add_labels(store, data.id, [[[N], [X]]])
    exporting.export(store, data.name, "huggingface", tmp_path / "b.zip", with_calls=False)
    result = import_file(other, tmp_path / "b.zip")
    assert any("1 call neither in the file nor here" in note for note in result.notes)
    assert counts(other)["call"] == 0
    labelling = only_labelling(other, result.dataset.id)
    assert effective(other, result.dataset.id, labelling) == [[[N], [X]]]


def test_a_folder_counts_what_people_said_and_it_does_not_hold(store: Store, other: Store, tmp_path: Path) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=1)
    (person,) = records(store, data.id)
    pairs = [(attribute, person.context_ids[0]) for attribute in person.attribute_ids]
    none = exporting.export(store, data.name, "huggingface", tmp_path / "none.zip").notes
    assert not any("review export" in note for note in none)
    with store.write() as connection:
        for text in ("Why?", "Because."):
            reviews.add_comment(connection, data.id, "Ada", *pairs[0], text)
        reviews.resolve_comment(connection, data.id, "Bob", reviews.comments_of_dataset(connection, data.id)[0].id)
        # Two people on one pair are two marks; what was taken back is none.
        for who, (attribute, context) in (("Ada", pairs[0]), ("Bob", pairs[0]), ("Ada", pairs[1])):
            reviews.add_marks(connection, data.id, who, [Mark(attribute, context, MarkKind.FLAG)])
        reviews.add_marks(connection, data.id, "Ada", [Mark(*pairs[1], MarkKind.CLEAR)])
    exported = exporting.export(store, data.name, "huggingface", tmp_path / "b.zip")
    assert exported.notes[0] == (
        "2 comments and 2 marks are not in a folder: export them with `cimemories review export`"
    )
    # What the note says is so, and the other file brings them along.
    there = import_file(other, exported.path).dataset
    with other.read() as connection:
        assert reviews.counts(connection, there.id) == (0, 0)
    review_events.export_events(store, data.name, tmp_path / "events.jsonl", "jsonl")
    review_events.import_events(other, tmp_path / "events.jsonl", there.name)
    with other.read() as connection:
        assert reviews.counts(connection, there.id) == (2, 2)


def test_the_same_content_gives_the_same_bytes(store: Store, tmp_path: Path) -> None:
    odd_world(store, random.Random(3), "world")
    first, second = (exporting.export(store, "world", "huggingface", tmp_path / f"{n}.zip") for n in "ab")
    assert first.path.read_bytes() == second.path.read_bytes()


# ---- bundles of before


@settings(max_examples=settings().max_examples // 4)
@given(st.integers(0, 2**32), st.sampled_from(["jsonl", "parquet"]), st.booleans())
def test_a_bundle_is_still_read(
    store: Store, other: Store, tmp_path_factory: pytest.TempPathFactory, seed: int, encoding: str, zipped: bool
) -> None:
    name = f"world {seed}"
    with store.read() as connection:
        if any(row.name == name for row in datasets.all_rows(connection)):
            return
    here = odd_world(store, random.Random(seed), name)
    path = write_bundle(store, here, tmp_path_factory.mktemp("bundle"), encoding, zipped=zipped)
    there = import_file(other, path, f"{name} {encoding} {zipped}")
    assert there.kind == "bundle"
    assert content(other, there.dataset.id) == content(store, here.id)
    assert not import_file(other, path, "once more").new


def test_a_bundle_that_an_earlier_version_wrote_is_read(sqlite_store: Store) -> None:
    result = import_file(sqlite_store, ROOT / "tests" / "fixtures" / "bundle.zip")
    assert (result.kind, result.dataset.profiles, result.dataset.contexts, result.dataset.labellings) == (
        *("bundle", 5, 4, 1),
    )


# ---- the authors' formats


@settings(max_examples=settings().max_examples // 3)
@given(st.integers(0, 2**32))
def test_profiles_come_back_and_are_the_same_bytes_again(
    store: Store, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("official")
    with store.read() as connection:
        if any(row.name == f"p {seed}" for row in datasets.all_rows(connection)):
            return
    here = odd_world(store, random.Random(seed), f"p {seed}")
    exporting.export(store, here.name, "official", folder / "one.json")
    there = import_file(store, folder / "one.json", f"q {seed}").dataset
    assert profiles_of(store, there.id) == profiles_of(store, here.id)
    exporting.export(store, there.name, "official", folder / "two.json")
    assert (folder / "one.json").read_bytes() == (folder / "two.json").read_bytes()


@settings(max_examples=settings().max_examples // 3)
@given(st.integers(0, 2**32))
def test_shares_come_back_by_persona_with_the_same_labels(
    store: Store, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    with store.read() as connection:
        if any(row.name == f"l {seed}" for row in datasets.all_rows(connection)):
            return
    chance = random.Random(seed)
    here = add_dataset(store, profiles=2, attributes=3, contexts=2, name=f"l {seed}")
    wanted = [[[chance.choice([N, X, A, UNLABELLED]) for _ in range(2)] for _ in range(3)] for _ in range(2)]
    labelling = add_labels(store, here.id, wanted, draws=3, simulated=chance.random() < 0.5, name=f"v {seed}")
    path = tmp_path_factory.mktemp("labelled") / "l.json"
    exporting.export(store, here.name, "labelled", path)
    labelled = any(code != UNLABELLED for p in wanted for a in p for code in a)
    result = import_file(store, path, f"m {seed}")
    assert result.kind == ("labelled" if labelled else "profiles")
    assert profiles_of(store, result.dataset.id) == profiles_of(store, here.id)
    if not labelled:
        return
    with store.read() as connection:
        (one,) = labellings.all_rows(connection, here.id)
        (two,) = labellings.all_rows(connection, result.dataset.id)
    assert (two.imported, two.model, two.simulated) == (True, one.model, one.simulated)
    assert effective(store, result.dataset.id, two.id) == effective(store, here.id, labelling) == wanted
    assert any(" in 0 of " in note for note in result.notes), "labels_combined is the mixture of the personas"
    assert two.manifest["imported"]["sha256"] == result.dataset.source_hash


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_columns_come_back_with_the_effective_labels(store: Store, tmp_path: Path, ending: str) -> None:
    data = add_dataset(store, profiles=2, attributes=4, contexts=3)
    wanted = np.random.default_rng(1).choice([N, X, A, UNLABELLED], (2, 4, 3))
    labelling = add_labels(store, data.id, wanted, simulated=True)
    person = records(store, data.id)[0]
    with store.write() as connection:
        decisions.add(
            connection,
            dataset_id=data.id,
            attribute=person.attribute_ids[0],
            context=person.context_ids[0],
            annotator="ann",
            label=Label.INAPPROPRIATE,
        )
    wanted[0, 0, 0] = X
    assert effective(store, data.id, labelling) == wanted.tolist()
    path = tmp_path / f"c.{ending}"
    exporting.export(store, data.name, "huggingface", path)
    result = import_file(store, path, "columns")
    assert result.kind == "huggingface"
    two = only_labelling(store, result.dataset.id)
    assert effective(store, result.dataset.id, two) == wanted.tolist()
    assert result.dataset.simulated
    for there, here in zip(profiles_of(store, result.dataset.id), profiles_of(store, data.id), strict=True):
        assert there.contexts == here.contexts and there.name == here.name
        assert [(a.key, a.statement, a.domain, a.event) for a in there.attributes] == [
            (a.key, a.statement, a.domain, a.event) for a in here.attributes
        ]
        assert all(a.value is None for a in there.attributes)


def test_columns_of_the_authors_have_no_more_than_six_and_contexts_come_from_the_prompts(
    store: Store, tmp_path: Path
) -> None:
    data = add_dataset(store, profiles=2, attributes=3, contexts=4)
    add_labels(store, data.id, np.full((2, 3, 4), N))
    exporting.export(store, data.name, "huggingface", tmp_path / "c.parquet")
    table = pq.read_table(tmp_path / "c.parquet").select(
        ["name", "attribute", "memory_statement", "label", "prompt", "adv_reveal_prompt"]
    )
    pq.write_table(table, tmp_path / "six.parquet")
    result = import_file(store, tmp_path / "six.parquet")
    contexts = [(c.task, c.recipient) for c in profiles_of(store, result.dataset.id)[0].contexts]
    assert contexts == [(f"Task {i}", f"Recipient {i}") for i in range(4)]
    assert result.dataset.contexts == 4
    notes = " ".join(result.notes)
    assert "all attributes are in 'general'" in notes and "age 0" in notes
    assert effective(store, result.dataset.id, only_labelling(store, result.dataset.id)) == [[[N] * 4] * 3] * 2


def test_only_combined_labels_are_shares_of_one_stand_in(store: Store, tmp_path: Path) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=1)
    record = json.loads(write_profiles(profiles_of(store, data.id)))
    shares = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.9, 0.1, 0.0)]
    statements = [a["memory_statement"] for a in record[0]["information_attributes"].values()]
    record[0]["contexts"][0]["labels_combined"] = {
        s: {"private": p, "necessary": n, "unlabeled": u} for s, (n, p, u) in zip(statements, shares, strict=True)
    }
    result = import_bytes(store, json.dumps(record).encode(), "combined.json")
    labelling = only_labelling(store, result.dataset.id)
    assert effective(store, result.dataset.id, labelling) == [[[N], [X], [A]]], "only a share of exactly 1 is a label"
    assert vote_counts(store, labelling).personas[0].key == labellings.IMPORTED
    assert any("only labels_combined" in note for note in result.notes)
    # Out again and in again: the same shares, still without personas.
    exporting.export(store, "combined", "labelled", tmp_path / "again.json")
    again = import_file(store, tmp_path / "again.json")
    assert consensus_labels(store, only_labelling(store, again.dataset.id))["label"].tolist() == [N, X, A]


def test_a_statement_that_stands_twice_shares_its_label_and_is_reported(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=1)
    record = json.loads(write_profiles(profiles_of(store, data.id)))
    attributes = list(record[0]["information_attributes"].values())
    attributes[2]["memory_statement"] = attributes[0]["memory_statement"]
    context = record[0]["contexts"][0]
    for n, persona in enumerate(("the_privacy_fundamentalist", "the_pragmatic", "the_unconcerned")):
        context[f"labels_gpt-5___{persona}__"] = {
            attributes[0]["memory_statement"]: {"necessary": 0.0, "private": 1.0, "unlabeled": 0.0},
            attributes[1]["memory_statement"]: {"necessary": 0.5 * n, "private": 1 - 0.5 * n, "unlabeled": 0.0},
        }
    mixed = mixture([[[0, 1, 0], [0.5, 0.5, 0], [1, 0, 0]]], [0.26, 0.64, 0.10])[0]
    context["labels_combined"] = {
        attributes[0]["memory_statement"]: {"necessary": 1.0, "private": 0.0, "unlabeled": 0.0},
        attributes[1]["memory_statement"]: dict(
            zip(("necessary", "private", "unlabeled"), mixed.tolist(), strict=True)
        ),
    }
    result = import_bytes(store, json.dumps(record).encode(), "twice.json")
    labelling = only_labelling(store, result.dataset.id)
    assert effective(store, result.dataset.id, labelling) == [[[X], [A], [X]]]
    assert any("ambiguous" in note and "'fact_0' and 'fact_2'" in note for note in result.notes)
    assert any("in 1 of 2 statements" in note for note in result.notes)
    with store.read() as connection:
        (row,) = labellings.all_rows(connection, result.dataset.id)
        assert (row.model, row.pack, row.status) == ("gpt-5", "westin", "finished")
        assert [p.key for p in labellings.personas(connection, row.id).values()] == [p.key for p in PERSONAS]


@pytest.mark.parametrize(
    ("names", "keys", "expected"),
    [
        (
            ("Фундаменталист", "Прагматик", "The Unconcerned"),
            ("strict", "middle", "open"),
            "strict middle the_unconcerned",
        ),
        (("Voter", "voter!", "Other"), ("strict", "middle", "open"), "strict middle other"),
        # The key of the first is what the name of the second would be: then all go by their keys.
        (("重視", "Strict", "Other"), ("strict", "middle", "open"), "strict middle open"),
    ],
)
def test_personas_go_by_their_keys_where_names_do_not_tell_them_apart(
    sqlite_store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[str, ...],
    keys: tuple[str, ...],
    expected: str,
) -> None:
    pack = tuple(Persona(k, n, p.prior, p.description) for k, n, p in zip(keys, names, PERSONAS, strict=True))
    monkeypatch.setattr(worlds, "PERSONAS", pack)
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=1)
    before = add_labels(sqlite_store, data.id, [[[N], [X], [A]]])
    file = exporting.export(sqlite_store, data.name, "labelled", tmp_path / "labelled.json").path
    context = json.loads(file.read_text())[0]["contexts"][0]
    assert [key for key in context if "___" in key] == [f"labels_test-voter___{slug}__" for slug in expected.split()]
    there = import_file(sqlite_store, file, "again").dataset
    after = only_labelling(sqlite_store, there.id)
    assert effective(sqlite_store, there.id, after) == [[[N], [X], [A]]]
    one, two = (vote_counts(sqlite_store, labelling) for labelling in (before, after))
    assert two.personas == one.personas == pack
    assert np.array_equal(one.votes, two.votes)


# ---- what is refused


def test_personas_that_neither_name_nor_key_tells_apart_are_refused(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = tuple(
        Persona(k, "投票者", p.prior, p.description) for k, p in zip(("甲", "a b", "a-b"), PERSONAS, strict=True)
    )
    monkeypatch.setattr(worlds, "PERSONAS", pack)
    data = add_dataset(sqlite_store, profiles=1, attributes=1, contexts=1)
    add_labels(sqlite_store, data.id, [[[N]]])
    with pytest.raises(FormatError, match=r"keys '甲', 'a b', 'a-b' cannot be told apart.*give each a name or key"):
        exporting.export(sqlite_store, data.name, "labelled", tmp_path / "x.json")
    assert not (tmp_path / "x.json").exists()


def test_what_cannot_be_exported_is_said_and_leaves_nothing(store: Store, tmp_path: Path) -> None:
    data = add_dataset(store, profiles=1, attributes=1, contexts=1)
    taken = tmp_path / "taken.json"
    taken.write_text("mine")
    for arguments, message in [
        ((data.name, "labelled", tmp_path / "x.json"), "no labels yet"),
        (("nobody", "official", tmp_path / "x.json"), "no dataset named 'nobody'"),
        ((data.name, "official", taken), "a file of that name"),
        ((data.name, "huggingface", tmp_path), "a folder of that name"),
    ]:
        with pytest.raises(StoreError, match=message):
            exporting.export(store, *arguments)
    with pytest.raises(StoreError, match="no labelling 'labelling-0'"):
        exporting.export(store, data.name, "labelled", tmp_path / "x.json", labelling="labelling-0")
    assert taken.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir() if not path.is_dir()] == ["taken.json"]
    exporting.export(store, data.name, "official", taken, replace=True)
    assert taken.read_text().startswith("[")

"""What a file is, is seen in its content; hostile and broken ones are refused in one line, and leave nothing."""

from __future__ import annotations

import io
import json
import resource
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Copies
from evaluating import ROOT, import_bytes
from exchanging import counts, profiles_of, write_bundle
from official_files import RECORD, STATEMENT, table
from worlds import add_dataset, add_labels

from cimemories.evaluation.importing import import_file
from cimemories.exchange import exporting, freezing
from cimemories.flows.labels import vote_counts
from cimemories.formats.huggingface import recipients_and_tasks
from cimemories.formats.reading import FormatError
from cimemories.store import labellings
from cimemories.store.engine import Store, StoreError, open_store
from cimemories.store.upkeep import deleting

LABELS = "labels_gpt-5___the_pragmatic__"
TASKS = ["Negotiate the renewal of a lease", "Apply for a bank loan", "Plan a trip", "Ask for leave"]
WHO = ["Landlord", "Loan officer", "Spouse", "Line manager"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small bundle as a zip of JSON lines."""
    folder = tmp_path_factory.mktemp("bundle")
    store = open_store(folder / "workspace")
    data = add_dataset(store, profiles=1, attributes=2, contexts=1)
    add_labels(store, data.id, [[[1], [2]]])
    (folder / "bundle").mkdir()
    path = write_bundle(store, data, folder / "bundle", "jsonl")
    store.close()
    return path


@pytest.fixture
def fresh(tmp_path: Path, into: Copies) -> Iterator[Store]:
    into(tmp_path / "fresh")
    store = open_store(tmp_path / "fresh")
    yield store
    store.close()


def refused(store: Store, data: bytes, name: str = "file") -> str:
    before = counts(store)
    with pytest.raises(FormatError) as caught:
        import_bytes(store, data, name)
    assert counts(store) == before
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and message.startswith(f"{name}: ")
    return message


def labelled(labels: object, key: str = LABELS) -> bytes:
    record = json.loads(json.dumps(RECORD))
    record["contexts"][0][key] = labels
    return json.dumps([record]).encode()


def test_the_kind_is_in_the_content_and_not_in_the_name(store: Store, bundle: Path) -> None:
    files = {
        "profiles": json.dumps([RECORD]).encode(),
        "labelled": labelled({STATEMENT: {"necessary": 1.0, "private": 0.0, "unlabeled": 0.0}}),
        "huggingface": table(),
        "bundle": bundle.read_bytes(),
    }
    csv = b'name,attribute,memory_statement,label,prompt\nBo,rent,My rent is 1.,,"say, to A for B"\n'
    for n, (kind, data) in enumerate([*files.items(), ("huggingface", csv)]):
        result = import_bytes(store, data, "misleading.txt", f"dataset {n}")
        assert (result.kind, result.new) == (kind, True)
        assert import_bytes(store, data, "misleading.txt").notes == ()
        again = import_bytes(store, data, "misleading.txt", f"again {n}")
        assert again.notes == (f"this file is here as 'dataset {n}', so nothing was imported as 'again {n}'",)
        assert (again.kind, again.new, again.dataset.id) == (kind, False, result.dataset.id)
    with pytest.raises(FormatError, match="not a file of the format bundle; its content is profiles or labelled"):
        import_bytes(store, files["profiles"] + b" ", "x.zip", kind="bundle")
    with pytest.raises(StoreError, match="exists already"):
        import_bytes(store, files["profiles"] + b" ", "x.zip", "dataset 0")


def test_the_file_that_the_documentation_shows_comes_back_as_it_is(fresh: Store, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    text = "[{" + page.split("    [{", 1)[1].split("\n\n", 1)[0]
    import_bytes(fresh, text.encode(), "shown.json", "shown")
    exporting.export(fresh, "shown", "labelled", tmp_path / "back.json")
    (shown,), (back,) = json.loads(text), json.loads((tmp_path / "back.json").read_text())
    for statement, shares in shown["contexts"][0]["labels_combined"].items():
        shown["contexts"][0]["labels_combined"][statement] = {"necessary": 0, "private": 0, "unlabeled": 0, **shares}
    assert shown == {name: back[name] for name in shown}


def delete(store: Store, labelling: str) -> None:
    with store.read() as connection:
        planned = deleting.of_work(connection, labelling)
    deleting.delete(store, planned)


def test_labels_that_were_deleted_come_back_with_their_file(store: Store) -> None:
    shares = {STATEMENT: {"necessary": 1.0, "private": 0.0, "unlabeled": 0.0}}
    other = {LABELS.replace("gpt-5", f"model-{n}"): shares for n in range(2)}
    record = json.loads(labelled(shares))[0]
    record["contexts"][0] |= other
    data = json.dumps([record]).encode()
    first = import_bytes(store, data, "one.json").dataset

    def there() -> dict[str, str]:
        with store.read() as connection:
            return {row.model: row.id for row in labellings.all_rows(connection, first.id)}

    before = there()
    assert len(before) == 3
    delete(store, before["model-1"])
    # Under another name of the file too: its content counts.
    again = import_bytes(store, data, "renamed.json", "one")
    assert (again.new, again.dataset.id, again.kind) == (False, first.id, "labelled")
    after = there()
    assert after.keys() == before.keys() and after["model-1"] != before["model-1"]
    assert {after[model] == before[model] for model in before if model != "model-1"} == {True}
    assert again.notes == (f"'one' had no labels by model-1 from this file: added as {after['model-1']}",)
    votes = [vote_counts(store, after[model]).votes.tolist() for model in ("model-0", "model-1")]
    assert votes[0] == votes[1] != []
    # And no more than once.
    assert import_bytes(store, data, "one.json").notes == () and there() == after


def test_labels_that_were_left_out_come_with_the_next_import_but_not_into_what_is_frozen(store: Store) -> None:
    files = [labelled({STATEMENT: {"necessary": n, "private": 1 - n, "unlabeled": 0.0}}) for n in (0.5, 1.0)]
    open_one, frozen = (
        import_bytes(store, data, "x.json", name, kind="profiles").dataset
        for data, name in zip(files, ("open", "frozen"), strict=True)
    )
    freezing.freeze(store, frozen.id, labelling_id=None, annotator="Ada")
    assert (open_one.labellings, frozen.labellings) == (0, 0)
    again = [import_bytes(store, data, "x.json") for data in files]
    assert [(result.new, result.dataset.id) for result in again] == [(False, open_one.id), (False, frozen.id)]
    with store.read() as connection:
        assert [len(labellings.all_rows(connection, row.id)) for row in (open_one, frozen)] == [1, 0]
    assert "added as labelling-" in again[0].notes[0]
    assert again[1].notes == ("'frozen' is frozen: the labels by gpt-5 in the file, which it lacks, were left out",)


def test_a_bundle_whose_labels_were_deleted_is_imported_under_another_name(store: Store, bundle: Path) -> None:
    first = import_bytes(store, bundle.read_bytes(), "b.zip", "first").dataset
    with store.read() as connection:
        rows = labellings.all_rows(connection, first.id)
    delete(store, rows[0].id)
    with pytest.raises(StoreError, match=r"1 of its labellings and runs .* under another name with --dataset"):
        import_bytes(store, bundle.read_bytes(), "b.zip", "first")
    second = import_bytes(store, bundle.read_bytes(), "b.zip", "second")
    assert second.new and second.dataset.labellings == first.labellings == len(rows)
    # Now it is here as a whole.
    third = import_bytes(store, bundle.read_bytes(), "b.zip", "third")
    assert (third.new, third.dataset.id) == (False, second.dataset.id)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"\x00\x01\x02" * 1000, "unknown format"),
        (b"name;label\n1;2\n", "unknown format, the file begins with 'name;label"),
        (b'{"a": 1}\n{"a": 2}\n', "one JSON object a line"),
        (b'{"a": 1}', "the top level must be a list of profiles"),
        (b'{\n  "version": 2,\n  "status": "success",\n  "eval": {}\n}', "`inspect log convert --to eval"),
        (b"\x1f\x8b\x08\x00", "packed with gzip; unpack it first"),
        (b"PAR1" + b"x" * 100, "not a whole Parquet file"),
        (b"PK\x03\x04" + b"x" * 100, "not a whole zip file"),
        (b"name,attribute,memory_statement,label\nA,b,c,1\n", "the column prompt is missing"),
        (b'name,attribute,memory_statement,label,prompt\nA,b,c,1,"cut', "not a whole CSV file"),
        (b"name,attribute,memory_statement,label,prompt\nA,b,c\n", "line 2: has 3 cells, and the first line 5"),
        (b"name,attribute,memory_statement,label,prompt\n", "no rows"),
    ],
)
def test_what_is_no_file_of_ours_is_said(fresh: Store, data: bytes, message: str) -> None:
    assert message in refused(fresh, data)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ({STATEMENT: {"necessary": 0.5, "private": 0.0, "unlabeled": 0.0}}, "must add up to 1, these add up to 0.5"),
        ({STATEMENT: {"necessary": "1"}}, "necessary must be a finite number, not text '1'"),
        ({STATEMENT: {"necessary": True}}, "necessary must be a finite number, not true or false"),
        ({STATEMENT: {"necessary": 1.5, "private": -0.5}}, "necessary must be 1 or less, not 1.5"),
        ({STATEMENT: {"necessary": 10**400}}, "necessary must be a finite number, not a number 1000"),
        ({STATEMENT: {"inappropriate": 1.0}}, "inappropriate is not a known field"),
        ({STATEMENT: 1}, "must be an object, not a number"),
        ({"My rent is low.": {"necessary": 1.0}}, "'My rent is low.' is not a memory statement of this profile"),
        ([1], f"'{LABELS}' must be an object, not a list"),
    ],
)
def test_shares_that_cannot_be_name_profile_context_and_statement(fresh: Store, labels: object, reason: str) -> None:
    message = refused(fresh, labelled(labels))
    assert reason in message and "profile 1, context 1: " in message


def test_labels_of_nobody_and_shares_that_are_not_numbers(fresh: Store) -> None:
    whole = {STATEMENT: {"necessary": 1.0, "private": 0.0, "unlabeled": 0.0}}
    assert "is of an unknown persona; known are the_privacy" in refused(
        fresh, labelled(whole, "labels_gpt-5___the_hermit__")
    )
    assert "names no model and persona" in refused(fresh, labelled(whole, "labels_gpt-5"))
    nan = labelled({STATEMENT: {"necessary": 1.0, "private": 0.0, "unlabeled": float("nan")}})
    assert "NaN is not JSON" in refused(fresh, nan)
    twice = labelled(whole).replace(b'"private": 0.0', b'"necessary": 0.0')
    assert "field 'necessary' appears twice" in refused(fresh, twice)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": [0.5]}, "row 1: label must be 1.0, 0.0 or empty, not '0.5'"),
        ({"label": ["yes"]}, "row 1: label must be 1.0, 0.0 or empty, not 'yes'"),
        ({"label": None}, "the column label is missing"),
        ({"name": [None]}, "row 1: name must be text, not null"),
        ({"name": [7]}, "row 1: name must be text, not a number"),
        ({"prompt": ["  "]}, "row 1: prompt is blank"),
        ({"attribute": ["a\nb"]}, "row 1: attribute has a line break"),
        ({"memory_statement": ["a\x00b"]}, "row 1: memory_statement contains U+0000, a control character"),
        ({"information_domain": ["taxes"]}, "row 1: information_domain 'taxes' is not one of finance"),
        ({"profile": [-1]}, "row 1: profile must be 0 or more, not -1"),
        ({"simulated": ["maybe"]}, "row 1: simulated must be true or false, not text 'maybe'"),
        ({"label_source": ["me"]}, "row 1: label_source must be one of 'consensus', 'person'"),
    ],
)
def test_a_row_of_columns_that_cannot_be_is_named(fresh: Store, changes: dict[str, Any], message: str) -> None:
    assert message in refused(fresh, table(**changes))


def test_rows_that_contradict_each_other(fresh: Store) -> None:
    two: dict[str, Any] = {
        name: column * 2
        for name, column in {
            "name": ["Ann"],
            "attribute": ["rent"],
            "memory_statement": [STATEMENT],
            "label": [1.0],
            "prompt": ["p"],
        }.items()
    }
    assert "row 2: the same profile, attribute and prompt as in row 1" in refused(
        fresh, table(**two, adv_reveal_prompt=None)
    )
    other = two | {"memory_statement": [STATEMENT, "Rent is 2."], "prompt": ["p", "q"]}
    assert "row 2: attribute 'rent' differs from an earlier row; two profiles of one name" in refused(
        fresh, table(**other, adv_reveal_prompt=None)
    )
    named = two | {"prompt": ["p", "q"], "recipient": ["A", "A"], "task": ["B", "B"]}
    assert "two prompts have the same recipient and task" in refused(fresh, table(**named, adv_reveal_prompt=None))


@pytest.mark.parametrize(
    "wording",
    [
        "\nWrite a message on behalf of the user to: {r}\nPurpose of the message: {t}\n\nReply with the message alone.",
        "\nPlease generate a message to {r} for the purpose of {t}. Only output the message.",
        "\nNow talk with {r} about this matter: {t} and be done.",
        "\n# Task\nRecipient: {r}\nTask: {t}\nAnswer:",
    ],
)
def test_recipient_and_purpose_are_read_from_any_wording(wording: str) -> None:
    prompts = [wording.format(r=r, t=t) for r, t in zip(WHO, TASKS, strict=True)]
    assert recipients_and_tasks(prompts) == list(zip(WHO, TASKS, strict=True))


def test_a_prompt_that_tells_neither_leaves_a_clear_placeholder(fresh: Store) -> None:
    result = import_bytes(fresh, table(prompt=["My rent is $1,450. Go."]), "x.parquet")
    (profile,) = profiles_of(fresh, result.dataset.id)
    (context,) = profile.contexts
    assert (context.recipient, context.task) == ("unknown recipient", "unknown task (prompt 1 of Ann)")
    assert (profile.sex, profile.address, profile.age) == ("unknown", "unknown", 0)
    assert any("could not be read from 1 prompts" in note for note in result.notes)


# ---- hostile bundles


def changed(bundle: Path, **entries: bytes | None) -> bytes:
    """The bundle with entries replaced, added, or left out (None)."""
    target = io.BytesIO()
    with zipfile.ZipFile(bundle) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        held = {name: source.read(name) for name in source.namelist()} | entries
        for name, data in held.items():
            if data is not None:
                archive.writestr(name, data)
    return target.getvalue()


def manifest(bundle: Path, **changes: object) -> bytes:
    with zipfile.ZipFile(bundle) as source:
        return json.dumps(json.loads(source.read("manifest.json")) | changes).encode()


def test_a_bundle_that_is_not_as_it_should_be(fresh: Store, bundle: Path, tmp_path: Path) -> None:
    for data, message in [
        (changed(bundle, **{"../../evil.txt": b"x"}), "'../../evil.txt' is no file of a bundle"),
        (changed(bundle, **{"/etc/passwd": b"x"}), "'/etc/passwd' is no file of a bundle"),
        (changed(bundle, **{"votes.jsonl": None, "ballots.jsonl": None}), "ballots.jsonl is missing"),
        (changed(bundle, **{"manifest.json": None}), "there is no manifest.json"),
        (changed(bundle, **{"manifest.json": b"{"}), "manifest.json: not valid JSON"),
        (changed(bundle, **{"manifest.json": manifest(bundle, version=99)}), "version must be one of 1, 2"),
        (changed(bundle, **{"manifest.json": manifest(bundle, format="x")}), "manifest.json: format"),
        (changed(bundle, **{"manifest.json": manifest(bundle, content="0")}), "content is not the hash"),
        (changed(bundle, **{"profiles.jsonl": b""}), "profiles.jsonl: 0 rows, and manifest.json tells of 1"),
        (changed(bundle, **{"attributes.jsonl": b"{}\n"}), "attributes.jsonl row 1: number is missing"),
        (bundle.read_bytes()[:-200], "not a whole zip file"),
        (bundle.read_bytes()[: len(bundle.read_bytes()) // 2], "not a whole zip file"),
    ]:
        assert message in refused(fresh, data, "b.zip"), message
    assert not (tmp_path / "evil.txt").exists() and not (tmp_path.parent / "evil.txt").exists()
    assert import_bytes(fresh, bundle.read_bytes(), "b.zip").new


def test_an_imported_labelling_asks_for_no_secret(fresh: Store, bundle: Path) -> None:
    """The endpoint of a bundle is somebody else's word: resuming must not send it a key of this machine."""
    from cimemories.store import labellings as store_labellings

    import_bytes(fresh, bundle.read_bytes(), "b.zip")
    with fresh.read() as connection:
        (row,) = store_labellings.all_rows(connection)
    assert row.manifest["api_key_env"] == ""


LIMIT = 700 << 20
MEASURE = """
import resource, sys
from pathlib import Path
from cimemories.formats.reading import FormatError
from cimemories.evaluation.importing import import_file
from cimemories.store.engine import open_store
store = open_store(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for line in sys.stdin:
    try:
        import_file(store, Path(line.rstrip()))
        print("imported")
    except FormatError as error:
        print(error)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, flush=True)
"""


def noisy(path: Path, kind: str, bundle: Path) -> None:
    """A large file that begins as one of a known format."""
    size = 200 << 20
    if kind == "bomb":
        with zipfile.ZipFile(bundle) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in source.namelist():
                if name != "profiles.jsonl":
                    archive.writestr(name, source.read(name))
            with archive.open("profiles.jsonl", "w") as entry:
                for _ in range(size >> 20):
                    entry.write(b" " * (1 << 20))
        return
    heads = {
        "list": b"[",
        "text": b'["',
        "deep": b"[" * 100_000,
        "csv": b"name,attribute,memory_statement,label,prompt\n",
        "parquet": b"PAR1",
        "zip": b"PK\x03\x04",
        "nothing": b"\x07",
    }
    with path.open("wb") as stream:
        stream.write(heads[kind])
        chunk = bytes((i * 7919) % 95 + 35 for i in range(1 << 20))  # printable, no quotation marks
        for _ in range(size >> 20):
            stream.write(chunk)


@pytest.mark.long
def test_two_hundred_megabytes_of_noise_are_refused_in_bounded_memory(tmp_path: Path, bundle: Path) -> None:
    path = tmp_path / "noise.bin"
    with subprocess.Popen(
        [sys.executable, "-c", MEASURE, str(tmp_path / "workspace")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)),
    ) as reader:
        assert reader.stdin is not None and reader.stdout is not None
        for kind in ("list", "text", "csv", "parquet", "zip", "nothing", "bomb"):
            noisy(path, kind, bundle)
            print(path, file=reader.stdin, flush=True)
            printed, grown = reader.stdout.readline(), reader.stdout.readline()
            assert printed.startswith("noise.bin: "), kind
            assert int(grown) < LIMIT >> 20, (kind, printed)
            path.unlink()


def test_a_folder_and_a_path_that_is_not_there(fresh: Store, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path, message in [
        (tmp_path / "folder", "a folder without a table"),
        (tmp_path / "none.json", "there is no such file"),
        (tmp_path / "a\0b", "not a usable path"),
    ]:
        with pytest.raises(FormatError, match=message):
            import_file(fresh, path)

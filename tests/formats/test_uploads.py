"""Uploads are read by a process of their own: what it says, what it may take, and when it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from exchanging import counts
from official_files import RECORD

from cimemories import uploads
from cimemories.access import roles
from cimemories.evaluation import importing
from cimemories.formats.reading import FormatError
from cimemories.formats.review_events import export_events
from cimemories.store import datasets
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError


def people(count: int) -> bytes:
    """A good file of so many profiles."""
    return json.dumps([RECORD] * count).encode()


def slow() -> bytes:
    """A good file whose import takes some ten seconds."""
    rent = RECORD["information_attributes"]["rent"]
    many = RECORD | {"information_attributes": {f"a{n}": rent for n in range(150)}}
    return json.dumps([many] * 2_000).encode()


def here(store: Store, folder: Path, name: str) -> DatasetRow:
    """A dataset of one profile, imported by this process."""
    (folder / "a.json").write_bytes(people(1))
    return importing.import_file(store, folder / "a.json", name).dataset


def processes() -> set[int]:
    """The readers of uploads that this process has started and that run now; other tests may run theirs beside it."""
    readers = set()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if "cimemories.uploads" in child.cmdline():
                readers.add(child.pid)
    return readers


def test_a_file_is_imported_with_its_notes(store: Store) -> None:
    data = json.dumps([RECORD | {"extra": 1}]).encode()
    first = uploads.import_upload(store, data, "people.json", "mine")
    assert (first.new, first.kind, first.dataset.name, first.dataset.profiles) == (True, "profiles", "mine", 1)
    assert any("extra (1)" in note for note in first.notes)


def test_what_is_wrong_with_file_and_name_comes_through(sqlite_store: Store, tmp_path: Path) -> None:
    here(sqlite_store, tmp_path, "taken")
    before = counts(sqlite_store)
    with pytest.raises(FormatError, match=r"^b\.json: profile 1: bio is missing"):
        uploads.import_upload(sqlite_store, b"[{}]", "b.json")
    with pytest.raises(StoreError, match="'taken' exists already"):
        uploads.import_upload(sqlite_store, people(2), "c.json", "taken")
    assert counts(sqlite_store) == before


def test_review_events_come_in(sqlite_store: Store, tmp_path: Path) -> None:
    row = here(sqlite_store, tmp_path, "mine")
    event = {
        "event": "decision",
        "uid": "u1",
        "profile": 0,
        "attribute": "rent",
        **{name: RECORD["contexts"][0][name] for name in ("task", "recipient")},
        "annotator": "Ada",
        "label": "necessary",
        "created": "2026-01-31",
    }
    data = (json.dumps(event) + "\n").encode()
    done = uploads.review_upload(sqlite_store, data, "events.jsonl", dataset="mine")
    assert (done.datasets, done.new["decision"]) == ((row.name,), 1)
    assert export_events(sqlite_store, "mine", tmp_path / "out.jsonl").counts["decision"] == 1
    # Why each was skipped could make an answer that is too long, and what was imported would be called a failure.
    many = "".join(json.dumps(event | {"profile": 7, "uid": f"v{n}"}) + "\n" for n in range(150)).encode()
    done = uploads.review_upload(sqlite_store, many, "events.jsonl", dataset="mine", skip_unknown=True)
    assert (len(done.skipped), done.more_skipped) == (100, 50)


@pytest.mark.skipif(sys.platform != "linux", reason="limits on memory are kept on Linux")
def test_a_file_that_takes_too_much_memory_is_refused_and_the_app_goes_on(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "MEMORY", 250 << 20)
    before = counts(sqlite_store)
    # Three million lists stay below the limit on values, and take 200 MB.
    data = b'[{"bio": [' + b"[]," * 3_000_000 + b"[]]}]"
    with pytest.raises(FormatError, match=r"^big\.json: needs more than 250 MiB of memory to read; import it on the"):
        uploads.import_upload(sqlite_store, data, "big.json")
    assert counts(sqlite_store) == before
    assert uploads.import_upload(sqlite_store, people(1), "a.json").new


def test_a_file_that_takes_too_long_is_refused(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "SECONDS", 1)
    before = counts(sqlite_store)
    with pytest.raises(FormatError, match=r"^slow\.json: not read within 1 seconds"):
        uploads.import_upload(sqlite_store, slow(), "slow.json")
    assert counts(sqlite_store) == before
    assert not processes()


def test_the_reading_ends_when_nobody_wants_it_any_more(sqlite_store: Store) -> None:
    before, running = counts(sqlite_store), processes()
    seen: list[Any] = []

    def wanted() -> bool:
        seen.append(processes() - running)
        return len(seen) < 3

    with pytest.raises(FormatError, match="browser window is gone"):
        uploads.import_upload(sqlite_store, slow(), "slow.json", go_on=wanted)
    assert seen[0] and processes() == running
    assert counts(sqlite_store) == before


def test_the_reading_ends_with_the_app(sqlite_store: Store, tmp_path: Path) -> None:
    path = tmp_path / "slow.json"
    path.write_bytes(slow())
    request = {
        "do": "import", "options": {"name": None}, "file": str(path), "memory": 2 << 30, "seconds": 60,
        "workspace": str(sqlite_store.workspace.absolute()), "actor": vars(roles.actor()),
    }  # fmt: skip
    process = subprocess.Popen([sys.executable, "-m", "cimemories.uploads"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.close()
    assert process.wait(120) == 1
    with sqlite_store.read() as connection:
        assert not datasets.all_rows(connection)


def test_what_is_not_known_of_a_failure_is_said_without_a_traceback(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(uploads.sys, "executable", "/bin/false")
    with pytest.raises(FormatError, match=r"^x\.json: could not be read: the process that read it has failed"):
        uploads.import_upload(sqlite_store, people(1), "x.json")
    assert "ended with 1" in caplog.text

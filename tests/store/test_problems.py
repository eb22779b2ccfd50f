"""A disk or a database that fails ends in one line that says what to do: damaged, full, read-only, out of reach."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import sqlalchemy as sa
from evaluating import add_labelled, cli_inside, only_run, outside
from mounts import read_only_mount

from cimemories.store.engine import SQLITE_FILE, Store, StoreError, open_store
from cimemories.store.upkeep.problems import explained


def refused(*arguments: object) -> str:
    """The one line that a command ends with."""
    done = cli_inside(outside(), *arguments)
    assert done.returncode == 1, (done.stdout, done.stderr)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "[SQL" not in done.stderr
    return errors[0]


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A disk of this size, in memory, mounted on a folder; skips where mounting is not possible."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("only root can mount a small disk")
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not possible here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


# --- damaged files ---


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / SQLITE_FILE).write_bytes(b"this is no database, but somebody's notes " * 200)
    before = (tmp_path / SQLITE_FILE).read_bytes()
    message = refused("datasets", "--workspace", tmp_path)
    assert "is damaged, or is no SQLite database" in message
    assert "cimemories workspace restore FILE --replace" in message
    assert (tmp_path / SQLITE_FILE).read_bytes() == before


def test_damaged_pages_are_one_line(sqlite_store: Store) -> None:
    add_labelled(sqlite_store)
    sqlite_store.close()
    file = sqlite_store.workspace / SQLITE_FILE
    content = bytearray(file.read_bytes())
    content[20 * 4096 :] = os.urandom(len(content) - 20 * 4096)
    file.write_bytes(content)
    assert "the database file is damaged" in refused("labellings", "--workspace", sqlite_store.workspace)


def test_a_damaged_cache_is_built_anew(judged_store: Store) -> None:
    run_id = only_run(judged_store)
    first = cli_inside(outside(), "metrics", run_id, "--json", "-w", judged_store.workspace)
    caches = list((judged_store.workspace / "cache").glob("*.parquet"))
    assert caches
    for number, path in enumerate(caches):
        path.write_bytes(b"" if number % 2 else b"PAR1 cut short")
    again = cli_inside(outside(), "metrics", run_id, "--json", "-w", judged_store.workspace)
    assert again.returncode == 0, again.stderr
    assert again.stdout == first.stdout


# --- full disks ---


def test_a_full_disk_is_one_line_and_keeps_what_was_there(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m") as disk:
        store = open_store(disk / "workspace")
        add_labelled(store)
        with store.read() as connection:
            before = connection.execute(sa.text("SELECT count(*) FROM vote")).scalar()
        store.close()
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as stream:
            try:
                while stream.write(b"x" * 4096):
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC
        label = ["label", "-d", "small", "-m", "sim-labeler", "--base-url", "simulator", "--draws", "3"]
        message = refused(*label, "--workspace", disk / "workspace")
        assert "disk of the workspace is full" in message
        assert "Free some space" in message
        filler.unlink()
        store = open_store(disk / "workspace")
        with store.read() as connection:
            assert connection.execute(sa.text("SELECT count(*) FROM vote")).scalar() == before
            assert connection.execute(sa.text("PRAGMA integrity_check")).scalar() == "ok"
        store.close()


def test_an_export_on_a_full_disk_is_one_line(sqlite_store: Store, tmp_path: Path) -> None:
    add_labelled(sqlite_store)
    with small_disk(tmp_path / "disk", "64k") as disk:
        out = disk / "small.zip"
        message = refused(
            *("export", "small", "--format", "huggingface", "--out", out, "--workspace", sqlite_store.workspace)
        )
        assert "No space left on device" in message
        assert not out.exists()


def test_each_kind_of_failure_has_its_words() -> None:
    assert "disk is full (/x/log)" in explained(OSError(errno.ENOSPC, "No space left on device", "/x/log"))
    assert "file system is read-only" in explained(OSError(errno.EROFS, "Read-only file system", "/x"))
    with pytest.raises(sa.exc.OperationalError) as unreachable:
        sa.create_engine("postgresql+psycopg://me:secret@127.0.0.1:1/none").connect()
    assert "connection to the database was lost" in explained(unreachable.value)
    assert "secret" not in explained(unreachable.value)
    engine = sa.create_engine("sqlite://")
    with pytest.raises(sa.exc.OperationalError) as bug, engine.connect() as connection:
        connection.exec_driver_sql("SELECT 'private text' FROM nowhere")
    assert explained(bug.value) == "no such table: nowhere."


# --- read-only workspaces ---


def test_a_read_only_workspace_is_read_and_says_why_nothing_is_written(judged_store: Store) -> None:
    run_id = only_run(judged_store)
    judged_store.close()
    workspace = judged_store.workspace
    with read_only_mount(workspace):
        shown = cli_inside(outside(), "metrics", run_id, "--json", "-w", workspace)
        assert shown.returncode == 0, shown.stderr
        message = refused("rules", "save", "-d", "small", "--name", "strict", "--threshold", "0.9", "-w", workspace)
        assert "is read-only, so nothing was saved. Copy it" in message
        assert {path.name for path in workspace.iterdir()} & {f"{SQLITE_FILE}-wal", f"{SQLITE_FILE}-shm"} == set()
    writable = cli_inside(outside(), "metrics", run_id, "--json", "-w", workspace)
    assert writable.stdout == shown.stdout


@pytest.mark.parametrize(
    ("mounts", "share"),
    [
        ([("", "ext4", "rw")], ""),
        ([("", "nfs4", "rw")], "nfs4"),
        ([("", "cifs", "rw")], "cifs"),
        ([("", "9p", "rw")], "9p"),
        ([("", "smbfs", "rw")], "smbfs"),  # macOS
        ([("", "fuse.sshfs", "rw")], "fuse.sshfs"),
        ([("", "fuse.gocryptfs", "rw")], ""),
        ([("", "NTFS", "rw,remote")], "network drive"),  # Windows
        ([("", "autofs", "rw"), ("", "nfs", "rw")], "nfs"),
        ([("", "nfs", "rw"), ("workspace", "xfs", "rw")], ""),
        ([("workspace", "nfs", "rw"), ("", "ext4", "rw")], "nfs"),
        ([("workspace/other", "nfs", "rw"), ("work", "nfs", "rw")], ""),
    ],
)
def test_a_workspace_on_a_network_share_is_warned_of(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    mounts: list[tuple[str, str, str]],
    share: str,
) -> None:
    parts = [SimpleNamespace(mountpoint=str(tmp_path / below), fstype=kind, opts=opts) for below, kind, opts in mounts]
    root = SimpleNamespace(mountpoint="/", fstype="ext4", opts="rw")
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: [root, *parts])
    for _ in range(2):  # warned of once a process
        store = open_store(tmp_path / "workspace")
        store.close()
        assert (store.share, bool(store.share_warning)) == (share, bool(share))
    warnings = [record.getMessage() for record in caplog.records]
    assert warnings == ([store.share_warning] if share else [])
    assert not share or (f"({share})" in warnings[0] and str(tmp_path) in warnings[0])


def test_an_older_read_only_workspace_says_that_it_cannot_be_brought_up_to_date(sqlite_store: Store) -> None:
    with sqlite_store.write() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0003'"))
    sqlite_store.close()
    refusal = pytest.raises(StoreError, match="older schema 0003 and is read-only.*Copy the workspace")
    with read_only_mount(sqlite_store.workspace), refusal:
        open_store(sqlite_store.workspace)


def test_what_stands_in_the_log_alone_is_not_left_out_in_silence(sqlite_store: Store, tmp_path: Path) -> None:
    """A copy with a -wal file where SQLite may write nothing: to read the database file alone would lose the rest."""
    add_labelled(sqlite_store)
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in (SQLITE_FILE, f"{SQLITE_FILE}-wal"):
        shutil.copy(sqlite_store.workspace / name, copy / name)
    with read_only_mount(copy), pytest.raises(StoreError, match="cannot be opened"):
        open_store(copy)
    with sqlite3.connect(copy / SQLITE_FILE) as connection:
        assert connection.execute("SELECT count(*) FROM vote").fetchone()[0] > 0


def test_a_backup_that_finds_no_room_leaves_nothing(sqlite_store: Store, tmp_path: Path) -> None:
    add_labelled(sqlite_store)
    with small_disk(tmp_path / "disk", "200k") as disk:
        message = refused("workspace", "backup", disk / "backup.zip", "--workspace", sqlite_store.workspace)
        assert "full" in message
        assert list(disk.iterdir()) == []


def test_a_restore_that_finds_no_room_changes_nothing(sqlite_store: Store, tmp_path: Path) -> None:
    add_labelled(sqlite_store)
    done = cli_inside(outside(), "workspace", "backup", tmp_path / "backup.zip", "--workspace", sqlite_store.workspace)
    assert done.returncode == 0, done.stderr
    with small_disk(tmp_path / "disk", "200k") as disk:
        message = refused("workspace", "restore", tmp_path / "backup.zip", "--workspace", disk / "workspace")
        assert "Free some space" in message
        assert list(disk.iterdir()) == []

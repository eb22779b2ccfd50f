"""Backups: a whole record of one moment in one file, brought back whole or not at all, on both engines."""

from __future__ import annotations

import hashlib
import json
import lzma
import sqlite3
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from conftest import Database
from evaluating import DATASET, add_judged, add_labelled, cli_inside, import_bytes, numbers, outside, simulated
from worlds import add_call, add_dataset

from cimemories.evaluation import planning, runs
from cimemories.model import Label, WorkStatus
from cimemories.store import datasets, decisions, migrations, tables, work
from cimemories.store import runs as store_runs
from cimemories.store.engine import SQLITE_FILE, DatabaseLost, Store, StoreError, open_store
from cimemories.store.upkeep import backup, purging, transfer
from cimemories.store.upkeep.backup import MANIFEST, RECORD, back_up, read_backup, restore, sqlite_counts
from cimemories.store.upkeep.transfer import count_rows

FIXTURES = Path(__file__).parents[1] / "fixtures"


def with_a_run(store: Store) -> str:
    run_id = add_judged(store)
    (store.workspace / "packs" / "personas").mkdir(parents=True)
    (store.workspace / "packs" / "personas" / "mine.yaml").write_text("title: mine\n")
    (store.workspace / "baskets").mkdir()
    for name in ("für später (2).json", ".lock"):
        (store.workspace / "baskets" / name).write_text("{}")
    return run_id


def counts(store: Store) -> dict[str, int]:
    with store.read() as connection:
        return count_rows(connection)


def files(folder: Path) -> dict[str, bytes]:
    """What a folder holds, apart from the (empty) files that SQLite puts beside a database that somebody reads."""
    contents = {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
    assert not contents.pop(f"{SQLITE_FILE}-wal", b"")
    contents.pop(f"{SQLITE_FILE}-shm", None)
    return contents


@pytest.fixture
def small(sqlite_store: Store, tmp_path: Path) -> Path:
    """A backup of a record with one dataset."""
    add_dataset(sqlite_store, name="backed up")
    back_up(sqlite_store, tmp_path / "small.zip")
    return tmp_path / "small.zip"


def and_its_entry(rows: dict[str, int]) -> dict[str, int]:
    """These counts in a record that was restored, whose log tells of it."""
    return {**rows, "audit_log": rows["audit_log"] + 1}


# --- there and back ---


def test_a_restored_record_gives_the_same_numbers(store: Store, tmp_path: Path) -> None:
    run_id = with_a_run(store)
    before, rows = numbers(store, run_id), counts(store)
    file = tmp_path / "backup.zip"
    assert back_up(store, file).counts == rows
    assert file.stat().st_mode & 0o777 == 0o600
    with store.write() as connection:
        store_runs.delete(connection, run_id)
    url = None if store.is_sqlite else store.engine.url.render_as_string(hide_password=False)
    workspace = tmp_path / "elsewhere"
    with pytest.raises(StoreError, match="not empty"):
        restore(file, store.workspace, url)
    assert not workspace.exists(), "what could not be restored leaves nothing behind"
    restore(file, workspace, url, replace=bool(url))
    again = open_store(workspace, url)
    assert counts(again) == and_its_entry(rows)
    assert numbers(again, run_id) == before
    assert (workspace / "packs" / "personas" / "mine.yaml").read_text() == "title: mine\n"
    assert [path.name for path in (workspace / "baskets").iterdir()] == ["für später (2).json"]
    add_dataset(again, name="goes on")  # ids are counted on from those that were restored
    again.close()


def test_a_record_moves_between_the_engines(database: Database, tmp_path: Path) -> None:
    """Also over a database that is full: its rows go first."""
    source = open_store(database.workspace, database.url)
    run_id = with_a_run(source)
    before, rows = numbers(source, run_id), counts(source)
    back_up(source, tmp_path / "one.zip")
    source.close()
    restore(tmp_path / "one.zip", tmp_path / "other", None)
    moved = open_store(tmp_path / "other")
    assert counts(moved) == and_its_entry(rows)
    assert numbers(moved, run_id) == before
    add_dataset(moved, name="goes on")
    moved.close()


def test_rows_are_copied_as_they_are_kept(store: Store, tmp_path: Path) -> None:
    """Also where what was merged from another workspace is older, and so superseded by a lower id; and events keep the
    spelling of their file, which exports give out."""
    given = with_event("losing_a_job", "losing a job", "  Losing A  Job")
    import_bytes(store, json.dumps(given).encode(), "profiles.json", DATASET)
    with store.write() as connection:
        dataset = datasets.by_name(connection, DATASET).id
        places = decisions.event_positions(connection, dataset)
        pair = next(iter(places.attributes.values())), next(iter(places.contexts.values()))
        decisions.add_all(connection, dataset, "Ada", [decisions.NewDecision(*pair, Label.NECESSARY)])
        (here,) = decisions.review_events(connection, dataset, "decision")
        ids = {"attribute_id": pair[0], "context_id": pair[1]}
        older = {**here, **ids, "uid": "elsewhere", "created": "2020-01-01T00:00:00.000Z"}
        decisions.merge_events(connection, dataset, "decision", [older])
        assert [(d.id, d.supersedes) for d in decisions.history(connection, dataset)] == [(2, None), (1, 2)]
    copy = open_store(tmp_path / "copy")
    with store.read() as source, copy.write() as target:
        transfer.copy_rows(source, target)
        assert [rows_of(target, name) for name in ("attribute", "decision")] == [
            rows_of(source, name) for name in ("attribute", "decision")
        ]
    copy.close()


def with_event(*spellings: str) -> list[dict[str, object]]:
    """Official profiles: one person, with an attribute of each of these events."""
    attributes = {
        f"rent {number}": {
            "value": number,
            "information_domain": "finance",
            "event": event,
            "memory_statement": f"Ada pays {number}.",
        }
        for number, event in enumerate(spellings)
    }
    bio = {"name": "Ada", "sex": "female", "address": "1 Road", "age": 30}
    contexts = [{"recipient": "Landlord", "task": "Renew the lease"}]
    return [{"bio": bio, "information_attributes": attributes, "contexts": contexts}]


def rows_of(connection: sa.Connection, table: str) -> list[tuple[object, ...]]:
    """All rows as the database has them."""
    return [tuple(row) for row in connection.exec_driver_sql(f"SELECT * FROM {table} ORDER BY id")]


def test_a_backup_is_of_one_moment_while_others_write(store: Store, tmp_path: Path) -> None:
    """Datasets come with two profiles each, in one transaction: a backup never holds one of the two."""
    stop = threading.Event()
    written = threading.Event()

    def write() -> None:
        number = 0
        while not stop.wait(0.01):  # several in each backup; without a pause they are thousands by the last
            add_dataset(store, profiles=2, attributes=2, contexts=2, name=f"dataset {number}")
            number += 1
            written.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert written.wait(20)
        for number in range(3):
            rows = back_up(store, tmp_path / f"{number}.zip").counts
            assert rows["profile"] == 2 * rows["dataset"] > 0
    finally:
        stop.set()
        writer.join()


def test_work_under_way_is_interrupted_in_the_restored_record(sqlite_store: Store, tmp_path: Path) -> None:
    add_labelled(sqlite_store)
    run_id = planning.plan(sqlite_store, simulated())
    with sqlite_store.write() as connection:
        work.claim(connection, run_id)  # by this living process, as a run on the same machine would be
    back_up(sqlite_store, tmp_path / "backup.zip")
    restore(tmp_path / "backup.zip", tmp_path / "elsewhere")
    again = open_store(tmp_path / "elsewhere")
    with again.read() as connection:
        assert store_runs.by_id(connection, run_id).status == WorkStatus.INTERRUPTED
    runs.execute(again, run_id)
    with again.read() as connection:
        assert store_runs.by_id(connection, run_id).status == WorkStatus.FINISHED
    again.close()


def test_what_stands_only_in_the_log_is_backed_up(sqlite_store: Store, tmp_path: Path) -> None:
    """The newest work is in the -wal file: a copy of the .sqlite file alone does not have it, a backup has."""
    add_dataset(sqlite_store, name="newest")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / SQLITE_FILE).write_bytes((sqlite_store.workspace / SQLITE_FILE).read_bytes())
    copied = open_store(tmp_path / "copy")
    back_up(sqlite_store, tmp_path / "backup.zip")
    restore(tmp_path / "backup.zip", tmp_path / "restored")
    restored = open_store(tmp_path / "restored")
    with copied.read() as connection:
        assert datasets.all_rows(connection) == []
    with restored.read() as connection:
        assert [row.name for row in datasets.all_rows(connection)] == ["newest"]
    copied.close()
    restored.close()


# --- refusals change nothing ---


def test_a_workspace_with_content_is_replaced_only_when_told_and_kept_aside(small: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "full"
    store = open_store(workspace)
    add_dataset(store, name="there before")
    store.close()
    (workspace / "cache").mkdir()
    (workspace / "cache" / "flows-run-1-5.parquet").write_bytes(b"of a revision that will be counted to again")
    before = files(workspace)
    with pytest.raises(StoreError, match="is not empty.*--replace"):
        restore(small, workspace)
    assert files(workspace) == before
    _, kept = restore(small, workspace, replace=True)
    assert kept is not None
    assert not (workspace / "cache").exists()
    for path, name in ((workspace / SQLITE_FILE, "backed up"), (kept, "there before")):
        with sqlite3.connect(path) as connection:
            assert connection.execute("SELECT name FROM dataset").fetchall() == [(name,)]


def test_a_workspace_in_use_is_not_replaced(sqlite_store: Store, tmp_path: Path) -> None:
    add_dataset(sqlite_store, name="in use")
    back_up(sqlite_store, tmp_path / "backup.zip")
    with pytest.raises(StoreError, match="is in use: stop the app"):
        restore(tmp_path / "backup.zip", sqlite_store.workspace, replace=True)
    add_dataset(sqlite_store, name="goes on")


def test_a_damaged_record_is_replaced(small: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "damaged"
    workspace.mkdir()
    (workspace / SQLITE_FILE).write_bytes(b"damaged " * 1000)
    with pytest.raises(StoreError, match="is not empty"):
        restore(small, workspace)
    _, kept = restore(small, workspace, replace=True)
    assert kept is not None
    assert kept.read_bytes() == b"damaged " * 1000
    with sqlite3.connect(workspace / SQLITE_FILE) as connection:
        assert connection.execute("SELECT name FROM dataset").fetchall() == [("backed up",)]


def rewritten(source: Path, target: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = change(name, old.read(name))
            if content is not None:
                new.writestr(name, content)
    return target


def with_manifest(**changes: object) -> Callable[[str, bytes], bytes]:
    return lambda name, content: (
        json.dumps({**json.loads(content), **changes}).encode() if name == MANIFEST else content
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda name, content: None if name == MANIFEST else content, "is no backup"),
        (lambda name, content: None if name == RECORD else content, "no whole backup"),
        (lambda name, content: content[:-9] if name == RECORD else content, "not what was backed up"),
        (lambda name, content: content[:-9] + b"x" * 9 if name == RECORD else content, "not what was backed up"),
        (with_manifest(format=2), "newer version"),
        (with_manifest(schema="9001"), "newer version .*schema 9001"),
        (with_manifest(counts={"dataset": 7}), "do not hold the rows"),
        (with_manifest(engine="mine"), "engine"),
        (with_manifest(engine="postgresql"), "earlier version.*pg_restore"),
        (with_manifest(members={"../../escaped": {"size": 1, "sha256": "0"}}), "no whole backup"),
        (with_manifest(members={"packs/../../escaped": {"size": 1, "sha256": "0"}}), "no whole backup"),
        (with_manifest(members=[]), "cannot be read"),
    ],
)
def test_a_file_that_is_no_whole_backup_restores_nothing(
    small: Path, tmp_path: Path, change: Callable[[str, bytes], bytes | None], message: str
) -> None:
    bad = rewritten(small, tmp_path / "bad.zip", change)
    workspace = tmp_path / "target"
    with pytest.raises(StoreError, match=message):
        restore(bad, workspace)
    assert not workspace.exists()
    assert not (tmp_path / "escaped").exists()


def test_a_file_cut_short_anywhere_restores_nothing(small: Path, tmp_path: Path) -> None:
    whole = small.read_bytes()
    for share in (0, 0.3, 0.9, 0.999):
        cut = tmp_path / "cut.zip"
        cut.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(StoreError, match=r"cut\.zip"):
            restore(cut, tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_a_record_with_code_in_it_is_refused(sqlite_store: Store, tmp_path: Path) -> None:
    """A database of somebody else may carry triggers, which run by themselves when rows are written."""
    with sqlite_store.write() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER sly AFTER INSERT ON decision BEGIN UPDATE decision SET label = 'necessary'; END"
        )
    back_up(sqlite_store, tmp_path / "backup.zip")
    with pytest.raises(StoreError, match="more than tables.*sly"):
        restore(tmp_path / "backup.zip", tmp_path / "target")


def test_a_failure_on_the_last_step_leaves_the_old_record(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_dataset(store, name="there before")
    back_up(store, tmp_path / "backup.zip")
    add_dataset(store, name="since then")
    url = None if store.is_sqlite else store.engine.url.render_as_string(hide_password=False)
    workspace = store.workspace
    store.close()

    def fail(*_arguments: object, **_named: object) -> None:
        raise OSError(28, "No space left on device")

    if url is None:
        monkeypatch.setattr(backup, "_put_in_place", fail)
    else:  # in its transaction, after the last row
        monkeypatch.setattr(backup, "count_rows", fail)
    with pytest.raises(StoreError):
        restore(tmp_path / "backup.zip", workspace, url, replace=True)
    again = open_store(workspace, url)
    with again.read() as connection:
        assert [row.name for row in datasets.all_rows(connection)] == ["there before", "since then"]
    again.close()


def test_a_backup_is_not_written_over_a_file_or_of_a_damaged_record(sqlite_store: Store, tmp_path: Path) -> None:
    add_dataset(sqlite_store)
    target = tmp_path / "backup.zip"
    target.write_text("somebody's")
    with pytest.raises(StoreError, match="exists already.*--overwrite"):
        back_up(sqlite_store, target)
    assert target.read_text() == "somebody's"
    back_up(sqlite_store, target, overwrite=True)
    assert read_backup(target).counts["dataset"] == 1
    with sqlite_store.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
    raw = sqlite_store.engine.raw_connection()
    raw.driver_connection.execute("PRAGMA foreign_keys = OFF")
    raw.driver_connection.execute("DELETE FROM profile")
    raw.close()
    with pytest.raises(StoreError, match="without their 'profile'"):
        back_up(sqlite_store, target, overwrite=True)
    assert read_backup(target).counts["profile"] == 2
    assert {path.name for path in tmp_path.iterdir()} == {"backup.zip", "workspace"}


def test_the_commands(sqlite_store: Store, tmp_path: Path) -> None:
    with sqlite_store.write() as connection:
        add_call(connection, "paid for")
    add_dataset(sqlite_store)
    file = tmp_path / "backup.zip"
    done = cli_inside(outside(), "workspace", "backup", file, "-w", sqlite_store.workspace)
    assert (done.returncode, done.stdout) == (0, f"{file}\n"), done.stderr
    printed = json.loads(
        cli_inside(outside(), "workspace", "backup", file, "--overwrite", "--json", "-w", sqlite_store.workspace).stdout
    )
    assert printed["counts"]["call"] == 1
    target = tmp_path / "target"
    done = cli_inside(outside(), "workspace", "restore", file, "-w", target)
    assert (done.returncode, done.stdout) == (0, f"{target}\n"), done.stderr
    done = cli_inside(outside(), "workspace", "restore", file, "-w", target)
    assert (done.returncode, done.stdout) == (1, "")
    assert "not empty" in done.stderr
    store = open_store(target)
    with store.read() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(tables.call)).scalar() == 1
    store.close()


def test_a_backup_of_an_older_version_is_brought_up_to_date(tmp_path: Path, bare_database: Database) -> None:
    """Of SQLite as that version wrote it; on PostgreSQL its rows arrive in the newest tables."""
    source = tmp_path / "older.sqlite"
    source.write_bytes(lzma.decompress((FIXTURES / "schema-0003.sqlite.xz").read_bytes()))
    rows = read_backup(backup_of(source, tmp_path / "older.zip", schema="0003")).counts
    restore(tmp_path / "older.zip", bare_database.workspace, bare_database.url)
    store = open_store(bare_database.workspace, bare_database.url)
    assert {name: counts(store)[name] for name in rows} == rows
    store.close()


# --- tables that are not ours, or lack ---


def backup_of(source: Path, target: Path, *statements: str, schema: str = migrations.HEAD) -> Path:
    """A backup of a changed copy of a database, whole and with right hashes and counts."""
    changed = target.with_suffix(".sqlite")
    changed.write_bytes(source.read_bytes())
    with closing(sqlite3.connect(changed, isolation_level=None)) as connection:
        for statement in ("PRAGMA journal_mode = DELETE", *statements):
            connection.execute(statement)
        rows = sqlite_counts(connection)
    content = changed.read_bytes()
    member = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest = {"format": 1, "created": "2026", "schema": schema, "engine": "sqlite", "counts": rows}
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(RECORD, content)
        archive.writestr(MANIFEST, json.dumps({**manifest, "members": {RECORD: member}}))
    return target


@pytest.mark.parametrize(
    ("schema", "statement", "message"),
    [
        (migrations.HEAD, "DROP TABLE comment", "the table comment is missing"),
        (migrations.HEAD, "CREATE TABLE mine (x INTEGER)", "'mine' is no table of ours"),
        (migrations.HEAD, "UPDATE alembic_version SET version_num = '0007'", "its record says '0007'"),
        ("0003", "DROP TABLE decision", "the table decision is missing"),
        ("0003", "CREATE TABLE mark (x INTEGER)", "'mark' is no table of ours"),
        ("0001", "DROP TABLE vote", "the table vote is missing"),
    ],
)
def test_a_backup_with_other_tables_than_its_schema_is_refused(
    tmp_path: Path, schema: str, statement: str, message: str
) -> None:
    source = tmp_path / "source.sqlite"
    if schema == migrations.HEAD:
        store = open_store(tmp_path / "source", f"sqlite:///{source}")
        store.close()
    else:
        source.write_bytes(lzma.decompress((FIXTURES / f"schema-{schema}.sqlite.xz").read_bytes()))
    restore(backup_of(source, tmp_path / "good.zip", schema=schema), tmp_path / "good")
    bad = backup_of(source, tmp_path / "bad.zip", statement, schema=schema)
    with pytest.raises(StoreError, match=message):
        restore(bad, tmp_path / "target")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    "form", ["0001", "0001-with-runs", "0002", "0004", "0013-with-sessions", "0014-without-attributions"]
)
def test_real_backups_of_every_older_schema_are_restored(tmp_path: Path, form: str) -> None:
    source = tmp_path / "source.sqlite"
    source.write_bytes(lzma.decompress((FIXTURES / f"schema-{form}.sqlite.xz").read_bytes()))
    restore(backup_of(source, tmp_path / "old.zip", schema=form[:4]), tmp_path / "target")
    store = open_store(tmp_path / "target")
    with store.read() as connection:
        assert len(datasets.all_rows(connection)) == 1
    store.close()


@pytest.mark.parametrize("database", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
def test_a_server_that_goes_away_meanwhile_is_the_one_that_is_named(
    store: Store, maintenance: sa.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is a record too, and was said not to answer."""
    add_dataset(store)

    def after_the_end_of(function: Callable[..., object]) -> Callable[..., object]:
        def cut_off(*arguments: object) -> object:
            name = store.engine.url.database
            maintenance.exec_driver_sql(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            )
            return function(*arguments)

        return cut_off

    monkeypatch.setattr(backup, "copy_rows", after_the_end_of(backup.copy_rows))
    with pytest.raises(DatabaseLost) as lost:
        back_up(store, tmp_path / "backup.zip")
    assert str(store.engine.url.database) in str(lost.value) and "sqlite" not in str(lost.value)
    assert not list(tmp_path.glob("*.zip"))


# --- killed on the way ---

KILLED = """
import os, signal, sys
from pathlib import Path
from cimemories.store.upkeep import backup
from cimemories.store.engine import open_store
workspace, target = map(Path, sys.argv[2:])
def stop(*arguments, **named):
    print("ready", flush=True)
    sys.stdin.read()
if sys.argv[1] == "backup":
    backup._pack = stop
    backup.back_up(open_store(workspace), target)
else:
    backup._make_ready = stop
    backup.restore(target, workspace)
"""


def stopped(verb: str, workspace: Path, target: Path) -> subprocess.Popen[str]:
    """A process in the middle of a backup or a restore, its draft unpacked."""
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, verb, str(workspace), str(target)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=outside(),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_what_a_killed_backup_left_goes_with_the_next_and_a_living_one_keeps_its_own(
    sqlite_store: Store, tmp_path: Path
) -> None:
    add_dataset(sqlite_store)
    folder, elsewhere = tmp_path / "backups", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (elsewhere / "thesis.txt").touch()
    (folder / f"{backup.BACKUP_DRAFT}link").symlink_to(elsewhere)
    killed = stopped("backup", sqlite_store.workspace, folder / "killed.zip")
    living = stopped("backup", sqlite_store.workspace, folder / "living.zip")
    try:
        assert len(list(folder.glob(f"{backup.BACKUP_DRAFT}*/{RECORD}"))) == 2
        kill(killed)
        back_up(sqlite_store, folder / "next.zip")
        assert len(list(folder.glob(f"{backup.BACKUP_DRAFT}*/{RECORD}"))) == 1, "that of the living process"
    finally:
        kill(killed)
        kill(living)
    back_up(sqlite_store, folder / "last.zip")
    assert {path.name for path in folder.iterdir()} == {"next.zip", "last.zip", f"{backup.BACKUP_DRAFT}link"}
    assert (elsewhere / "thesis.txt").exists()


def test_what_a_killed_restore_left_goes_with_the_next_and_a_living_one_keeps_its_own(
    small: Path, tmp_path: Path
) -> None:
    workspace = tmp_path / "target"
    process = stopped("restore", workspace, small)
    try:
        store = open_store(workspace)
        assert purging.plan(store).nothing
        purging.purge(store)
        store.close()
        assert len(list(workspace.glob(f"{backup.DRAFT}*/{RECORD}"))) == 1
    finally:
        kill(process)
    restore(small, workspace)
    assert [path.name for path in workspace.iterdir()] == [SQLITE_FILE]

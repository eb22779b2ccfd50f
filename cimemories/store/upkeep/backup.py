"""Backups: one file that holds a whole record as it was at one moment, and the workspace's own files.

    backup.json      what it is: format, schema, rows of every table, size and SHA-256 of every other member
    record.sqlite    the record, as a SQLite database that is whole by itself, also of a record on PostgreSQL
    packs/, baskets/ files that people put into the workspace

Caches and logs are left out: caches are built again, logs are of the machine. backup.json is written last, so a file
that has one is complete. A backup of either engine can be restored into either.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import re
import shutil
import sqlite3
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import sqlalchemy as sa
from pydantic import TypeAdapter

from cimemories.files import NotAFileError, open_regular
from cimemories.model import WorkStatus
from cimemories.store import migrations, work
from cimemories.store.engine import Store, StoreError, connect_read_only, now, open_store, record_address, sqlite_path
from cimemories.store.tables import generation, labelling, run, sweep
from cimemories.store.team import log
from cimemories.store.upkeep.problems import explained
from cimemories.store.upkeep.transfer import clear, copy_rows, count_rows, is_empty

FORMAT = 1
MANIFEST, RECORD = "backup.json", "record.sqlite"
FOLDERS = ("packs", "baskets")
MARKS = ("demo.prepared",)
DRAFT = ".restore-"  # what a restore unpacks into, in the workspace
BACKUP_DRAFT = ".cimemories-backup-"  # what a backup is put together in, beside its file
MOST_MANIFEST_BYTES = 4_000_000
WORK = (labelling, run, generation, sweep)
RESTORED = "its worker was not part of the backup"
_CHUNK = 1 << 20
# No part begins with a dot: neither '..' nor hidden files, which are locks and drafts.
_OWN_FILE = re.compile(r"(packs|baskets)(/[^./\\\x00-\x1f][^/\\\x00-\x1f]*){1,3}")


@dataclass(frozen=True)
class Member:
    """One file inside a backup. size: bytes; sha256: of its content, in hexadecimal digits."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Backup:
    """The manifest of a backup file. counts: rows by table at its moment; members: every file but backup.json."""

    format: int
    created: str
    schema: str
    engine: str  # of `record.sqlite`
    counts: dict[str, int]
    members: dict[str, Member]


def back_up(store: Store, target: Path, *, overwrite: bool = False) -> Backup:
    """Write a backup of the record as it is now, while others go on working. The file appears complete or not at all.

    Raises StoreError if it is there already (unless `overwrite`) or cannot be written, or if the record is damaged.
    """
    if target.exists() and not overwrite:
        raise StoreError(f"{target} exists already. Choose another name, or replace it with --overwrite.")
    if not target.parent.is_dir():
        raise StoreError(f"{target}: the folder {target.parent} does not exist.")
    try:
        with _draft(target.parent, BACKUP_DRAFT) as folder:
            counts = _copy_sqlite(store, folder / RECORD) if store.is_sqlite else _copy_by_rows(store, folder)
            path = folder / "backup.zip"
            backup = _pack(store.workspace, folder, path, counts)
            # Private before it has its name, which it takes in one step: until then an older backup stands there.
            path.chmod(0o600)
            path.replace(target)
    except sqlite3.Error as error:
        raise StoreError(f"{target}: nothing was backed up: {explained(error)}") from error
    except OSError as error:
        raise StoreError(f"{target}: the backup cannot be written: {explained(error)}") from error
    # After the file is there: it does not tell of itself, and a record that is read-only tells of nothing.
    log.note(store, "backup.made", target.name, rows=sum(backup.counts.values()))
    return backup


@contextmanager
def _draft(parent: Path, prefix: str) -> Iterator[Path]:
    """Give a private folder that is removed when the block ends. A killed process cannot remove its own, so those of
    dead processes are removed first: a lock (flock) on the folder, which ends with the process, tells them apart."""
    abandoned(parent, prefix, remove=True)
    while True:
        with tempfile.TemporaryDirectory(dir=parent, prefix=prefix, ignore_cleanup_errors=True) as name:
            folder = Path(name)
            try:
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:  # as below
                continue
            try:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:  # another process saw it before it was locked, and is removing it
                    continue
                except OSError:  # a file system without locks: no process can lock it for removing it either
                    pass
                if not folder.exists():
                    continue
                yield folder
                return
            finally:
                os.close(descriptor)


def abandoned(parent: Path, prefix: str, *, remove: bool = False) -> list[Path]:
    """Return the folders of drafts in `parent` that a killed process left: no links, none of another user, none in use.
    remove: and remove them; what cannot be removed stays."""
    return [folder for folder in sorted(parent.glob(f"{prefix}*")) if _is_abandoned(folder, remove)]


def _is_abandoned(folder: Path, remove: bool) -> bool:
    try:
        # O_NOFOLLOW: a link of this name would have what it leads to removed.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if remove:  # while it is locked
            shutil.rmtree(folder)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _copy_sqlite(store: Store, copy: Path) -> dict[str, int]:
    """Copy a record by SQLite's online backup, in one step that no writer waits for; return its rows by table."""
    raw = store.engine.raw_connection()
    try:
        source = raw.driver_connection
        assert isinstance(source, sqlite3.Connection)
        with closing(sqlite3.connect(copy)) as target:
            source.backup(target)
            # A file that is whole by itself, without a log beside it.
            target.execute("PRAGMA journal_mode = DELETE")
            require_sound(target, "the record")
            return sqlite_counts(target)
    finally:
        raw.close()


def _copy_by_rows(store: Store, folder: Path) -> dict[str, int]:
    """Copy a record of another engine row by row; return its rows by table."""
    copy = open_store(folder / "copy", f"sqlite:///{folder / RECORD}")
    try:
        # The inner block is the record's: where its server goes away, the error names that one and not the copy.
        with copy.write() as target, store.snapshot() as source:
            copy_rows(source, target)
            counts = count_rows(target)
    finally:
        copy.close()
    with closing(sqlite3.connect(folder / RECORD)) as written:
        # open_store has made it a WAL database; the file is packed alone, so no log beside it may hold a part of it.
        written.execute("PRAGMA journal_mode = DELETE")
    return counts


def _pack(workspace: Path, folder: Path, path: Path, counts: Mapping[str, int]) -> Backup:
    files = {RECORD: folder / RECORD, **_own_files(workspace)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        members = {name: _add(archive, name, file) for name, file in files.items()}
        backup = Backup(FORMAT, now(), _schema(folder / RECORD), "sqlite", dict(counts), members)
        archive.writestr(MANIFEST, json.dumps(asdict(backup), indent=1))
    # On the disk before it takes its name, in the place of an older backup it may be.
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
    return backup


def _own_files(workspace: Path) -> dict[str, Path]:
    """Return the files that people put into a workspace, by their names in a backup. Links are left out."""
    files = {}
    for path in sorted(p for name in FOLDERS for p in (workspace / name).rglob("*")):
        name = path.relative_to(workspace).as_posix()
        if path.is_file() and not path.is_symlink() and _OWN_FILE.fullmatch(name):
            files[name] = path
    files.update({name: workspace / name for name in MARKS if (workspace / name).is_file()})
    return files


def _add(archive: zipfile.ZipFile, name: str, file: Path) -> Member:
    # Without the times and modes of this machine's files.
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    with file.open("rb") as source, archive.open(info, "w", force_zip64=True) as target:
        return _copied(source, target)


def _copied(source: IO[bytes], target: IO[bytes], most: float = math.inf) -> Member:
    """Copy a file; return its size and hash. It ends after at most one piece more than `most` bytes."""
    digest, size = hashlib.sha256(), 0
    while size <= most and (chunk := source.read(_CHUNK)):
        digest.update(chunk)
        size += len(chunk)
        target.write(chunk)
    return Member(size, digest.hexdigest())


def read_backup(path: Path) -> Backup:
    """Return the manifest of a backup. Raises StoreError if it is none, is cut short, or is of a newer version."""
    with _opened(path) as archive:
        return _manifest(path, archive)


def _manifest(path: Path, archive: zipfile.ZipFile) -> Backup:
    # It is read whole, so its size is bounded first: zipfile reads no more than the archive says that it is.
    if MANIFEST not in archive.namelist() or archive.getinfo(MANIFEST).file_size > MOST_MANIFEST_BYTES:
        raise StoreError(f"{path} is no backup of CIMemories Studio: it holds no {MANIFEST}.")
    try:
        manifest = json.loads(archive.read(MANIFEST))
        if manifest["format"] != FORMAT:
            raise StoreError(
                f"{path} was written by a newer version of CIMemories Studio (format {manifest['format']}). "
                "Update this installation."
            )
        backup = TypeAdapter(Backup).validate_python(manifest)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: its {MANIFEST} cannot be read ({error!r}).") from error
    if backup.engine == "postgresql":
        raise StoreError(
            f"{path} was made with pg_dump, by an earlier version. Restore it with PostgreSQL's own programs, into an "
            f"empty database: unzip {path.name}, and pg_restore --no-owner --dbname=ADDRESS record.pgdump."
        )
    if backup.engine != "sqlite":
        raise StoreError(f"{path}: its {MANIFEST} names an engine that is not known.")
    if backup.schema not in migrations.known_schemas():
        raise StoreError(
            f"{path} was written by a newer version of CIMemories Studio (schema {backup.schema}; this one knows up to "
            f"{migrations.HEAD}). Update this installation."
        )
    # Names become paths in the workspace: any other could lead out of it, or hide among its caches and locks.
    strange = [n for n in backup.members if n not in (RECORD, *MARKS) and not _OWN_FILE.fullmatch(n)]
    missing = [n for n in (RECORD, *backup.members) if not (n in archive.namelist() and n in backup.members)]
    if strange or missing:
        raise StoreError(f"{path} is no whole backup: look at {', '.join(map(ascii, (strange + missing)[:5]))}.")
    return backup


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
            yield archive
    except NotAFileError as error:
        raise StoreError(f"{path} is {error.strerror}; name the file of the backup.") from None
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise StoreError(f"{path} is no backup of CIMemories Studio, or is damaged ({error}).") from error
    except OSError as error:
        raise StoreError(f"{path}: {explained(error)}") from error


def unpack(path: Path, folder: Path) -> Backup:
    """Write the members of a backup into a folder, each checked against its size and hash. Raises StoreError."""
    with _opened(path) as archive:
        backup = _manifest(path, archive)
        needed, free = sum(m.size for m in backup.members.values()), shutil.disk_usage(folder).free
        if needed > free:
            raise StoreError(
                f"the backup needs {needed / 1e6:,.0f} MB, and the disk of {folder} has {free / 1e6:,.0f} MB left. "
                "Free some space, then do it again; nothing was changed."
            )
        for name, member in backup.members.items():
            _extract(path, archive, name, member, folder / name)
    return backup


def _extract(path: Path, archive: zipfile.ZipFile, name: str, member: Member, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        # x: what is there already, a link too, is never written through.
        with archive.open(name) as source, target.open("xb") as out:
            # One piece more than was promised is enough to know: what unpacks to far more is not unpacked to its end.
            unpacked = _copied(source, out, most=member.size)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise StoreError(f"{path} is damaged: {name} cannot be read ({error}).") from error
    if unpacked != member:
        raise StoreError(f"{path} is damaged: {name} is not what was backed up.")


def sqlite_counts(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the number of rows of every table of a SQLite database, known or not; SQLite's own are left out."""
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    quoted = {name: '"' + name.replace('"', '""') + '"' for name in names if not name.startswith("sqlite_")}
    return {n: int(connection.execute(f"SELECT count(*) FROM {q}").fetchone()[0]) for n, q in sorted(quoted.items())}


def require_sound(connection: sqlite3.Connection, what: str) -> None:
    """Raise StoreError if SQLite finds a database damaged, or rows in it without what they refer to."""
    (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        raise StoreError(f"{what} is damaged ({verdict}). `cimemories workspace verify` says more.")
    broken = connection.execute("PRAGMA foreign_key_check").fetchone()
    if broken is not None:
        raise StoreError(
            f"{what} has rows in '{broken[0]}' without their '{broken[2]}'. `cimemories workspace verify` says more."
        )


def _schema(file: Path) -> str:
    with closing(sqlite3.connect(file)) as connection:
        return str(connection.execute(f"SELECT version_num FROM {migrations.VERSION_TABLE}").fetchone()[0])


def restore(
    path: Path, workspace: Path, url: str | None = None, *, replace: bool = False
) -> tuple[Backup, Path | None]:
    """Restore a backup into an empty workspace or database, or with `replace` in the place of what is there. Return it,
    and where the SQLite file from before is kept, if there was one with content.

    Everything is unpacked and verified first; then the new record takes the place of the old one in one step, so that
    nothing is ever restored by half. A SQLite file that is replaced is kept under another name. Work that was under way
    at the moment of the backup is `interrupted` afterwards and can be resumed. Raises StoreError; then nothing was
    changed.
    """
    backup = read_backup(path)
    file = sqlite_path(record_address(workspace, url))
    made = not workspace.exists()
    try:
        workspace.mkdir(parents=True, exist_ok=True)
        with _draft(workspace, DRAFT) as folder:
            replaced = _restore(path, backup, folder, workspace, file, url, replace=replace)
    except (sqlite3.Error, sa.exc.DBAPIError, OSError) as error:
        raise StoreError(f"{path} was not restored, and nothing was changed: {explained(error)}") from error
    finally:
        if made:
            with suppress(OSError):  # what was restored stands in it
                workspace.rmdir()
    # Caches go by the revision of what they were made of, and revisions are counted on from an older number now.
    shutil.rmtree(workspace / "cache", ignore_errors=True)
    return backup, replaced


def _restore(
    path: Path, backup: Backup, folder: Path, workspace: Path, file: Path | None, url: str | None, *, replace: bool
) -> Path | None:
    if file is not None:
        full = _has_content(file)
        if full and not replace:
            raise _not_empty(f"the workspace {workspace}")
        unpack(path, folder)
        _make_ready(path, folder / RECORD, backup)
        # From here on no other process has the old database open, or it would go on writing to it under its other name.
        with _alone(file):
            _put_files(folder, backup, workspace, replace=replace)
            return _put_in_place(folder / RECORD, file, keep=full)
    target = open_store(workspace, url)
    try:
        with target.read() as connection:
            empty = is_empty(connection)
            work.require_idle(work.active(connection))
        if not empty and not replace:
            raise _not_empty("the database")
        unpack(path, folder)
        _make_ready(path, folder / RECORD, backup)
        _put_files(folder, backup, workspace, replace=replace)
        _copy_into(folder, target)
    finally:
        target.close()
    return None


def _not_empty(what: str) -> StoreError:
    return StoreError(
        f"{what} is not empty, so nothing was restored. Choose an empty one, or put the backup in the place of what is "
        "there with --replace."
    )


def _has_content(file: Path) -> bool:
    """Return whether a SQLite file holds anything: rows, or what cannot be read."""
    if not file.exists() or file.stat().st_size == 0:
        return False
    try:
        with closing(connect_read_only(file)) as connection:
            return any(count for name, count in sqlite_counts(connection).items() if name != migrations.VERSION_TABLE)
    except sqlite3.Error:
        return True


def _make_ready(path: Path, file: Path, backup: Backup) -> None:
    """Verify the record of a backup, and bring it to the newest schema. Raises StoreError."""
    with closing(sqlite3.connect(file)) as connection:
        # The file may come from anywhere: no function that its schema names (in an index, a trigger, a view) is to run.
        connection.execute("PRAGMA trusted_schema = OFF")
        strange = connection.execute(
            "SELECT name FROM sqlite_master WHERE type NOT IN ('table', 'index') OR sql LIKE 'CREATE VIRTUAL%'"
        ).fetchall()
        if strange:
            raise StoreError(f"{path} holds more than tables ({strange[0][0]!a}), which no backup of ours does.")
        require_sound(connection, f"the record in {path}")
        counts = sqlite_counts(connection)
        if counts != backup.counts:
            raise StoreError(f"{path} is damaged: its tables do not hold the rows that were backed up.")
        _require_tables(path, counts, backup.schema)
    # The record's own schema decides which migrations run: it must be the one whose tables were looked for.
    if (schema := _schema(file)) != backup.schema:
        raise StoreError(f"{path} is damaged: it says schema {backup.schema}, and its record says {schema!a}.")
    store = open_store(file.parent, f"sqlite:///{file}")
    try:
        with store.write() as writing:
            log.add(writing, "backup.restored", path.name, of=backup.created, rows=sum(backup.counts.values()))
            for table in WORK:
                active = table.c.status.in_(work.ACTIVE)
                gone = {"host": None, "pid": None, "process_started": None, "heartbeat": None}
                writing.execute(
                    sa.update(table).where(active).values(status=WorkStatus.INTERRUPTED, error=RESTORED, **gone)
                )
    finally:
        store.close()
    with closing(sqlite3.connect(file)) as connection:
        # It is moved alone: what open_store's WAL mode has left in a log beside it comes into the file here.
        connection.execute("PRAGMA journal_mode = DELETE")


def _require_tables(path: Path, names: Iterable[str], schema: str) -> None:
    """Raise StoreError unless these are the tables of this schema, all of them and no others."""
    given, forms = frozenset(names), migrations.tables_of(schema)
    if given not in forms:
        missing = [f"the table {name} is missing" for name in sorted(forms[0] - given)]
        extra = [f"{name!a} is no table of ours" for name in sorted(given - forms[0])]
        raise StoreError(
            f"{path} is no backup of schema {schema}: {(missing + extra)[0]}. Nothing was changed. Use a file that "
            "`cimemories workspace backup` wrote."
        )


def _copy_into(folder: Path, target: Store) -> None:
    source = open_store(folder, f"sqlite:///{folder / RECORD}")
    try:
        with source.read() as reading, target.write() as writing:
            clear(writing)
            copy_rows(reading, writing)
            if count_rows(writing) != count_rows(reading):
                raise StoreError("not every row of the backup arrived, so nothing was changed.")
    finally:
        source.close()


def _put_files(folder: Path, backup: Backup, workspace: Path, *, replace: bool) -> None:
    """Restore the workspace's files. Raises StoreError if another one of a name is there and must not be replaced."""
    names = [name for name in backup.members if name != RECORD]
    other = [
        name
        for name in names
        if (workspace / name).exists() and (workspace / name).read_bytes() != (folder / name).read_bytes()
    ]
    if other and not replace:
        raise StoreError(
            f"the workspace {workspace} has another {other[0]} than the backup, so nothing was restored. Move it away, "
            "or replace it with --replace."
        )
    for name in names:
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).replace(workspace / name)


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Keep other processes from opening this database while the block lasts. Raises StoreError if one has it open."""
    if not file.exists():
        yield
        return
    with closing(sqlite3.connect(file, timeout=2, isolation_level=None)) as connection:
        try:
            # SQLite leaves WAL mode only for the one connection, idle ones of others included.
            (mode,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.DatabaseError as error:
            name = error.sqlite_errorname
            if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):  # no process can work with it
                mode = "delete"
            elif name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                mode = "wal"
            else:
                raise
        if mode != "delete":
            raise StoreError(
                f"{file} is in use: stop the app and all work on this workspace, then do it again. Nothing was changed."
            )
        yield


def _put_in_place(new: Path, file: Path, *, keep: bool) -> Path | None:
    """Let a database take the place of another in one step; returns where the other one is kept, if it is to be.
    A log that is left of a damaged one goes aside with it: it must never stand beside the new one."""
    new.chmod(0o600)
    replaced = None
    if keep:
        moment = now().translate(str.maketrans("", "", "-:."))
        replaced = file.with_name(f"{file.stem}-before-restore-{moment}{file.suffix}")
        # A second name first and then one rename: at no moment is there no database under its name.
        os.link(file, replaced)
    for ending in ("-wal", "-shm"):
        beside = file.with_name(f"{file.name}{ending}")
        if beside.exists():
            beside.replace((replaced or new).with_name(f"{(replaced or new).name}{ending}"))
    # The content is on the disk before the name is: after a power cut the name must not lead to an empty file.
    with new.open("rb") as stream:
        os.fsync(stream.fileno())
    new.replace(file)
    return replaced

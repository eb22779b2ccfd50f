"""Opening the record: a workspace folder with a SQLite file, or PostgreSQL where CIMEMORIES_DATABASE_URL says so.

SQLite runs in WAL mode: readers never wait, and one writer at a time takes the lock at BEGIN, so that no transaction
fails half way with "database is locked". Migrations run on open, once, whichever process comes first.

A PostgreSQL that restarts is no error for a worker: `Store.patient()` waits for it, `Store.retry()` runs again what was
cut off in the middle. Everybody else gets DatabaseLost at once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import random
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import sqlalchemy as sa

from cimemories.access import readonly, roles
from cimemories.access.roles import Role
from cimemories.files import make_file, make_folder
from cimemories.installation import DEFAULT_WORKSPACE as DEFAULT_WORKSPACE
from cimemories.installation import WORKSPACE as WORKSPACE
from cimemories.installation import chosen_workspace as chosen_workspace
from cimemories.store.migrations import SchemaError, require_current_schema, upgrade_schema
from cimemories.store.tables import person
from cimemories.store.upkeep import problems
from cimemories.text import has_control, sentence, visible, without_credentials

# ---- ids


def new_id(kind: str) -> str:
    """Return a short random id, unique across workspaces, e.g. 'run-3f9a1c2e'."""
    return f"{kind}-{secrets.token_hex(4)}"


def now() -> str:
    """Return the time in UTC as ISO 8601 text, to the millisecond; it sorts as text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def later_than(before: str, moment: str) -> str:
    """Return the moment, or the millisecond after `before` (may be empty) if that is later: what was written last is
    the newest even if an earlier writer's clock was ahead."""
    if moment > before:
        return moment
    later = datetime.fromisoformat(before) + timedelta(milliseconds=1)
    return later.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def canonical_json(value: object) -> str:
    """Return the one JSON text of a value: keys sorted, no spaces, characters as they are."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def content_hash(value: object) -> str:
    """Return the SHA-256 (first 32 hex digits, 128 bits) of a value's canonical JSON."""
    return text_hash(canonical_json(value))


def text_hash(text: str) -> str:
    """Return the `content_hash` of a text that is canonical JSON already."""
    # JSON may hold half of a surrogate pair, which strict UTF-8 refuses to encode.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


# ---- engine


Connection = sa.Connection  # re-exported so that other layers need not import SQLAlchemy
DATABASE_URL = "CIMEMORIES_DATABASE_URL"
SQLITE_FILE = "cimemories.sqlite"
LOCK_TIMEOUT_SECONDS = 30  # how long a write waits for SQLite's one write lock
PATIENCE_SECONDS = 60.0  # how long a worker waits for a database that went away
BUSY_SECONDS = 10.0  # how long any process waits for a place on a server that takes no more connections
# Of one process to PostgreSQL. A transaction takes milliseconds: threads wait for each other rather than for a place on
# the server, where 15 of each process left none to those who came late (docs/deployment.md has the figures).
MOST_CONNECTIONS = 5
FRESH_SECONDS = 1.0  # for so long after its use a connection is taken to be alive
IDLE_SECONDS = 5  # after so many an idle connection is ended by the server, and its place is free
RETRY_SECONDS = 0.5
FIRST_FULL_RETRY_SECONDS, FULL_RETRY_SECONDS = 0.01, 0.25  # between tries to connect to a server that is full
SAME_PROCESS_RETRY_SECONDS = 1.0  # the same while a connection of the same process may come back
# A server that is cut off without a word is noticed within so many seconds; libpq itself would wait for minutes.
CONNECT_SECONDS, SILENT_SECONDS = 5, 30
T = TypeVar("T")
Word = TypeVar("Word", bound=StrEnum)
_log = logging.getLogger(__name__)
_warned: set[Path] = set()  # workspaces on a network share that this process has warned of
_waiting: set[sa.Engine] = set()  # those whose database is being waited for
_returned = threading.Condition()  # notified when a connection of this process is given back


class StoreError(Exception):
    """The record cannot do what was asked. The message is for people: what, where, what to do next."""


def word_of(kind: type[Word], word: str, what: str) -> Word:
    """Return the member of an enumeration of words. Raises StoreError that lists them."""
    if word not in set(kind):
        raise StoreError(f"there is no {what} '{word}'. Use {', '.join(kind)}.")
    return kind(word)


def for_people(error: BaseException) -> str | None:
    """Return what failed and what to do next if the disk, the database or the record is the reason, else None."""
    if problems.problem(error) is not None:
        return sentence(problems.explained(error))
    return sentence(error) if isinstance(error, StoreError) else None


class NotAllowed(StoreError):
    """The user's role does not allow the write. The message says which role does, and whom to ask."""


class DatabaseLost(StoreError):
    """The connection to the database broke or cannot be made. What was under way may not be recorded."""


@dataclass(frozen=True)
class Store:
    """An open record. `workspace` holds the SQLite file (if that is the record) and caches that can be rebuilt.

    read_only: the folder or the file cannot be written, or the app was started read-only (access/readonly.py); then
    `write` raises StoreError, and the database refuses what bypasses it.
    share: the file system of the network share that a SQLite file is on, e.g. 'nfs4'; '' on a disk of this machine.
    fence: called at the start of every write transaction; what it raises prevents the write (work.Claim.hold).
    patience_s: how long a transaction waits to begin while the database does not answer; `give_up`, once set, ends the
    wait.
    """

    engine: sa.Engine
    workspace: Path
    read_only: bool = False
    fence: Callable[[sa.Connection], None] | None = None
    patience_s: float = 0.0
    give_up: threading.Event | None = None
    share: str = ""

    @property
    def share_warning(self) -> str:
        """Return what to know of a workspace on a network share, in a sentence or two; '' on a disk of this machine."""
        if not self.share:
            return ""
        return (
            f"The workspace {self.workspace} is on a network share ({self.share}). SQLite can lose data there when two "
            f"machines use it, or when the network breaks off. Move it to a disk of this machine, or use PostgreSQL "
            f"({DATABASE_URL})."
        )

    @contextmanager
    def read(self, *, at_once: bool = False) -> Iterator[sa.Connection]:
        """Give a connection for reading, which writers never block.

        On SQLite the whole block sees one snapshot; on PostgreSQL each statement sees what is committed when it starts,
        unless the server's default isolation is stricter. at_once: the block begins with a statement and `retry` runs
        it again, so PostgreSQL need not be asked first whether it is there. Raises DatabaseLost if it is not.
        """
        with self._transaction({"cimemories_at_once": at_once}) as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        """Give a connection for reading whose whole block sees one moment, on PostgreSQL too. Raises DatabaseLost."""
        # SQLite shows one moment in any case.
        with self._transaction({} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}) as connection:
            yield connection

    @contextmanager
    def write(
        self, least: Role = Role.ADMIN, *, relaxed: bool = False, at_once: bool = False
    ) -> Iterator[sa.Connection]:
        """Give a transaction for writing, committed as a whole when the block ends, or not at all.

        least: the role that it takes where people log in. What is committed survives a power cut; relaxed: the last
        moments of it may be lost to one (never in part), which suits what can be had again, such as answers of models
        and heartbeats, and nothing that a person decided. at_once: as in `read`.

        Raises NotAllowed for a role below `least`; DatabaseLost if the database does not answer: a commit that was cut
        off may have taken place; StoreError if the workspace is read-only, or what is written belongs to a deleted row.
        """
        if self.read_only and readonly.chosen():
            raise StoreError(f"{readonly.REASON}, so nothing was saved.")
        if self.read_only:
            raise StoreError(
                f"the workspace {self.workspace} is read-only, so nothing was saved. Copy it to a folder that can be "
                "written, or change its rights, and start again."
            )
        options = {"cimemories_write": True, "cimemories_relaxed": relaxed, "cimemories_at_once": at_once}
        with self._transaction(options) as connection:
            require_role(connection, least)
            if self.fence is not None:
                self.fence(connection)
            yield connection

    @contextmanager
    def _transaction(self, options: Mapping[str, object]) -> Iterator[sa.Connection]:
        try:
            # Only the beginning is repeated: nothing has been done yet. What breaks off later is for `retry`.
            connection, transaction = self._begin(options)
            # The transaction ends first, then the connection goes back to the pool.
            with connection, transaction:
                yield connection
        except sa.exc.TimeoutError as error:  # of the pool: none of its connections came back in time
            raise DatabaseLost(
                f"all {MOST_CONNECTIONS} connections of this process to the database are in use, so nothing was done. "
                "Do it again when it is less busy."
            ) from error
        except sa.exc.IntegrityError as error:
            if not problems.lacks_row(error):
                raise
            raise StoreError(problems.GONE) from error
        except sa.exc.DBAPIError as error:
            if not problems.is_lost(error):
                raise
            if problems.is_full(error):
                raise DatabaseLost(f"{problems.cause(error)}, so nothing was done. {problems.FREE_PLACE}") from error
            raise DatabaseLost(
                f"the database {_shown(self.engine.url)} does not answer: {problems.cause(error)}. What was not "
                f"confirmed may not be recorded. {problems.REACH}"
            ) from error

    def _begin(self, options: Mapping[str, object]) -> tuple[sa.Connection, sa.RootTransaction]:
        started, announced, delay, may_retry = time.monotonic(), False, FIRST_FULL_RETRY_SECONDS, True
        try:
            while True:
                try:
                    connection = self.engine.connect().execution_options(**options)
                    try:
                        transaction = connection.begin()
                    # Whatever stops it: a connection that is not closed would be missing from the pool for good.
                    except BaseException:
                        connection.close()
                        raise
                except sa.exc.DBAPIError as error:
                    # One from the pool that was not tried before (FRESH_SECONDS). All that it holds are given up now,
                    # so the next one is new.
                    if error.connection_invalidated and may_retry:
                        may_retry = False
                        continue
                    patience = max(self.patience_s, BUSY_SECONDS if problems.is_full(error) else 0.0)
                    over = time.monotonic() - started >= patience or (self.give_up and self.give_up.is_set())
                    if over or not problems.is_lost(error):
                        raise
                    # Of the threads that wait, one says so; a place on a full server is mostly there at once.
                    waited = time.monotonic() - started
                    if self.engine not in _waiting and (waited > 1 or not problems.is_full(error)):
                        _waiting.add(self.engine)
                        announced = True
                        text = "the database %s does not answer (%s); waiting for it, at most %.0f s"
                        _log.warning(text, _shown(self.engine.url), problems.first_line(error.orig), patience)
                    if problems.is_full(error):
                        # Most places are given back within milliseconds, ours first of all; each look costs the server
                        # a process. At random, so that those who wait do not come all at once. Where other threads of
                        # this process have a connection each, what comes free on the server is for processes that have
                        # none: with ten places for seven of them, three were refused after BUSY_SECONDS.
                        has_some = isinstance(self.engine.pool, sa.QueuePool) and self.engine.pool.checkedout() > 0
                        with _returned:
                            _returned.wait(SAME_PROCESS_RETRY_SECONDS if has_some else delay * random.uniform(0.5, 1.5))
                        delay = min(2 * delay, FULL_RETRY_SECONDS)
                    else:
                        time.sleep(RETRY_SECONDS)
                    continue
                if announced:
                    _log.warning("the database answers again after %.0f s; going on", time.monotonic() - started)
                return connection, transaction
        finally:
            if announced:
                _waiting.discard(self.engine)

    def check(self) -> None:
        """Raise DatabaseLost if the database does not answer."""
        with self.read() as connection:
            connection.execute(sa.select(1))

    def retry(self, task: Callable[[], T]) -> T:
        """Return the result of `task`, run again as a whole if the database goes away in its middle: it must do no harm
        twice. A store without patience raises DatabaseLost at once."""
        deadline = time.monotonic() + self.patience_s
        while True:
            try:
                # No pause between two rounds: the next one waits in `_begin` until the database answers.
                return task()
            except DatabaseLost:
                if time.monotonic() >= deadline or (self.give_up and self.give_up.is_set()):
                    raise

    def patient(self, seconds: float = PATIENCE_SECONDS, give_up: threading.Event | None = None) -> Store:
        """Return the same record for a worker, which waits so long for a database that went away."""
        return replace(self, patience_s=seconds, give_up=give_up)

    def fenced(self, fence: Callable[[sa.Connection], None] | None) -> Store:
        """Return the same record, whose every write first calls `fence` in its own transaction."""
        return replace(self, fence=fence)

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    def close(self) -> None:
        self.engine.dispose()


def require_role(connection: sa.Connection, least: Role) -> None:
    """Raise NotAllowed if the user's role is below `least`. Users without an account may do everything."""
    account = roles.actor().account
    if account is None:
        return
    held = connection.scalar(sa.select(person.c.role).where(person.c.account == account))
    role = Role(held) if held in set(Role) else Role.NONE
    if not role.covers(least):
        admins = connection.scalars(sa.select(person.c.name).where(person.c.role == Role.ADMIN).order_by(person.c.id))
        raise NotAllowed(roles.refusal(role, least, list(admins)))


def open_store(workspace: Path | str = DEFAULT_WORKSPACE, url: str | None = None) -> Store:
    """Open (and create or migrate, where needed) the record of a workspace.

    `url` defaults to the environment variable CIMEMORIES_DATABASE_URL; without either the record is
    WORKSPACE/cimemories.sqlite. A SQLite file that is there and cannot be written is opened for reading; in a read-only
    app (access/readonly.py) every record is, and none is created. Raises StoreError if the folder or the database
    cannot be used, or is of a newer version.
    """
    folder, looked_at = Path(workspace), readonly.chosen()
    try:
        if not looked_at:
            make_folder(folder)
    except OSError as error:
        raise StoreError(
            f"workspace {folder}: the folder cannot be made ({error.strerror}). Choose another with --workspace."
        ) from error
    address = record_address(folder, url)
    file = sqlite_path(address)
    # In WAL mode SQLite makes two more files beside the database.
    writable = file is None or not file.exists() or (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK))
    read_only = looked_at or not writable
    if file is not None and not read_only:
        make_file(file)  # SQLite gives the files that it makes beside it the same mode
    engine = _engine(address, read_only=read_only)
    try:
        if read_only:
            require_current_schema(engine)
        else:
            _when_free(lambda: upgrade_schema(engine))
    except SchemaError as error:
        engine.dispose()
        raise StoreError(f"the database {_shown(engine.url)} {error}") from error
    except sa.exc.DBAPIError as error:
        engine.dispose()
        entry = problems.problem(error)
        what = f"{entry.what} ({problems.first_line(error.orig)})" if entry else problems.first_line(error.orig)
        # A driver may quote the address in its error.
        what = without_credentials(what)
        next_step = entry.next if entry else "Check the address, the rights and the free disk space."
        kind = DatabaseLost if problems.is_lost(error) else StoreError
        raise kind(f"the database {_shown(engine.url)} cannot be opened: {what}. {next_step}") from error
    store = Store(engine, folder, read_only, share=_network_share(file) if file and not read_only else "")
    if store.share and folder not in _warned:
        _warned.add(folder)
        _log.warning("%s", store.share_warning)
    return store


def _when_free(task: Callable[[], T]) -> T:
    """Return the result of a task once the server takes one more connection; wait BUSY_SECONDS at most."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return task()
        except sa.exc.DBAPIError as error:
            if not problems.is_full(error) or time.monotonic() >= deadline:
                raise
            time.sleep(random.uniform(0, FULL_RETRY_SECONDS))  # not more seldom than those who have a record open


def open_as_it_is(address: str) -> sa.Engine:
    """Return the database of an address, neither created nor migrated, and on SQLite only for reading. Raises
    StoreError for an address that cannot be read; what is wrong with the database shows at its first use."""
    return _engine(address, read_only=True)


def open_patiently(workspace: Path | str = DEFAULT_WORKSPACE) -> Store:
    """Open the record for a worker: as `open_store`, but wait a minute for a server that does not answer."""
    deadline, warned = time.monotonic() + PATIENCE_SECONDS, False
    while True:
        try:
            return open_store(workspace)
        except DatabaseLost as lost:
            if time.monotonic() >= deadline:
                raise
            if not warned:
                _log.warning("%s Waiting for it, at most %.0f s.", lost, PATIENCE_SECONDS)
            warned = True
            time.sleep(RETRY_SECONDS)


def record_address(workspace: Path, url: str | None = None) -> str:
    """Return the address of a workspace's record: `url`, else $CIMEMORIES_DATABASE_URL, else its SQLite file."""
    return url or os.environ.get(DATABASE_URL) or f"sqlite:///{workspace / SQLITE_FILE}"


def sqlite_path(address: str) -> Path | None:
    """Return the file of a SQLite address, or None for another engine or an address that cannot be read."""
    try:
        url = sa.make_url(address)
    except (sa.exc.ArgumentError, ValueError):
        return None
    in_file = url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")
    return Path(str(url.database)) if in_file else None


# File systems of other machines, and what the host of a virtual machine lends it. The index of SQLite's write-ahead log
# is shared memory, which two machines do not share (sqlite.org/wal.html), and locks often do not hold.
_SHARE = re.compile(
    "(fuse[.]|macfuse_)?"
    "(9p|acfs|afp|afpfs|afs|beegfs|blobfuse2?|ceph|cephfs|cifs|coda|curlftpfs|davfs2?|drvfs|gcsfuse|gfs2|glusterfs|goofys|"
    "gpfs|grpcfuse|gvfsd-fuse|juicefs|lustre|moosefs|mount-s3|ncpfs|nfs4?|ocfs2|orangefs|osxfs|panfs|prl_fs|pvfs2|rclone|"
    "s3fs|s3ql|smb3|smbfs|smbnetfs|sshfs|vboxsf|virtiofs|vmhgfs|vmhgfs-fuse|webdav)"
)


def _network_share(file: Path) -> str:
    """Return the type of the network file system that a file is on, '' if it is on none or the system does not say."""
    import psutil

    path, mount = file.resolve(), None
    with suppress(OSError, psutil.Error):
        for part in psutil.disk_partitions(all=True):
            # The innermost mount holds the file; of several on one folder (autofs, then NFS) the last.
            if path.is_relative_to(part.mountpoint) and len(part.mountpoint) >= len(mount.mountpoint if mount else ""):
                mount = part
    if mount is None or mount.mountpoint == "/":  # that of a container or a machine without disks: its own all the same
        return ""
    kind = str(mount.fstype).lower()
    if _SHARE.fullmatch(kind):
        return kind
    return "network drive" if "remote" in mount.opts.split(",") else ""  # how Windows says so


def _shown(url: sa.URL) -> str:
    """Return an address without its secrets, which may stand in its query too."""
    return without_credentials(url.render_as_string(hide_password=True))


def _engine(address: str, *, read_only: bool = False) -> sa.Engine:
    try:
        url = sa.make_url(address)
        # 'postgres' is what many servers and hosts write; SQLAlchemy needs the driver in the name.
        if url.drivername in ("postgresql", "postgres"):
            url = url.set(drivername="postgresql+psycopg")
        if "@" in (url.host or ""):
            raise ValueError("the password holds an @ that is not written as %40, so a part of it is read as the host")
        if url.get_backend_name() == "sqlite":
            if read_only:
                file = Path(str(url.database))
                # No pool: a connection is for one transaction, see connect_read_only.
                engine = sa.create_engine(url, creator=lambda: connect_read_only(file), poolclass=sa.NullPool)
            else:
                engine = sa.create_engine(
                    url, connect_args={"timeout": LOCK_TIMEOUT_SECONDS, "check_same_thread": False}
                )
            _prepare_sqlite(engine, read_only=read_only)
            return engine
        # The last one used goes first, so that the others lie idle and are ended (_prepare_postgres): a server that
        # takes ten connections has room for the app and several workers. None beyond those that are kept, since each
        # costs the server a process.
        pool = {"pool_size": MOST_CONNECTIONS, "max_overflow": 0}
        engine = sa.create_engine(url, pool_use_lifo=True, connect_args=_connect_options(url), **pool)
        _prepare_postgres(engine)
        return engine
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ImportError, ValueError) as error:
        # A part that cannot be read may be a part of the password, so only what names no part of it is said.
        reason = (
            f" ({problems.first_line(error)})" if isinstance(error, (sa.exc.NoSuchModuleError, ImportError)) else ""
        )
        raise StoreError(
            f"{DATABASE_URL}: this is not a database address that can be used{reason}. Write "
            "postgresql://user:password@host/database, with other characters than letters and digits of the password "
            "as %40 and the like, or leave it unset for SQLite."
        ) from None


def connect_read_only(file: Path) -> sqlite3.Connection:
    """Return a connection that writes nothing, not even the files that SQLite makes beside a database in WAL mode.

    If those are missing and cannot be made, the file is read as one that does not change: use the connection for one
    transaction. Raises sqlite3.OperationalError if the file cannot be read, or if its newest part is in a -wal file
    that cannot be read without writing.
    """
    address = f"file:{quote(str(file.absolute()))}?mode=ro"
    connection = sqlite3.connect(address, uri=True, timeout=LOCK_TIMEOUT_SECONDS, check_same_thread=False)
    try:
        # SQLite opens a file at its first use, so only a query shows whether it can be read.
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        log = file.with_name(f"{file.name}-wal")
        if error.sqlite_errorname != "SQLITE_CANTOPEN" or (log.exists() and log.stat().st_size > 0):
            raise
        connection = sqlite3.connect(f"{address}&immutable=1", uri=True, check_same_thread=False)
    return connection


def _connect_options(url: sa.URL) -> dict[str, Any]:
    """Return the options that notice a server that is cut off, without those that the address sets itself."""
    if url.get_backend_name() != "postgresql":
        return {}
    # After a third of the time without a word two probes are sent, a third apart: together SILENT_SECONDS. Probes are
    # not sent while data of ours waits to be acknowledged; tcp_user_timeout, in milliseconds, ends that wait.
    options = {
        "client_encoding": "utf8",  # else texts of a database in SQL_ASCII come as bytes, at which SQLAlchemy fails
        "connect_timeout": CONNECT_SECONDS,
        "keepalives_idle": SILENT_SECONDS // 3,
        "keepalives_interval": SILENT_SECONDS // 3,
        "keepalives_count": 2,
        "tcp_user_timeout": SILENT_SECONDS * 1000,
    }
    return {name: value for name, value in options.items() if name not in url.query}


def _prepare_sqlite(engine: sa.Engine, *, read_only: bool = False) -> None:
    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver must not begin by itself: BEGIN below decides which kind
        if read_only:
            return
        cursor = connection.cursor()
        # Of those that switch a new file at the same moment SQLite refuses some at once, however long the timeout is:
        # each holds a read lock that the other's switch would have to wait for.
        deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
        while True:
            try:
                cursor.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() >= deadline:
                    raise
                time.sleep(FIRST_FULL_RETRY_SECONDS)
        cursor.execute("PRAGMA fullfsync = ON")  # on macOS a plain fsync leaves the data in the drive's own cache
        # Off by default, in each connection: without it nothing is deleted by cascade.
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        options = connection.get_execution_options()
        if not options.get("cimemories_write"):
            connection.exec_driver_sql("BEGIN")
            return
        # In WAL mode NORMAL survives the death of any process, and only a power cut can take back the last commits;
        # FULL waits for the disk at every commit. It cannot be changed inside a transaction.
        level = "NORMAL" if options.get("cimemories_relaxed") else "FULL"
        if connection.info.get("synchronous") != level:
            connection.exec_driver_sql(f"PRAGMA synchronous = {level}")
            connection.info["synchronous"] = level
        # Waits for the write lock here. After a plain BEGIN, which takes none, the first write fails at once where
        # another process has written since the snapshot, however long the timeout is.
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _prepare_postgres(engine: sa.Engine) -> None:
    """Set up connections to PostgreSQL. If the server's `synchronous_commit` is off, that holds for relaxed
    transactions alone."""

    lz4: list[bool] = []  # whether the server was built with it, once one connection has asked

    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        if (encoding := connection.info.parameter_status("server_encoding")) != "UTF8":
            raise StoreError(
                f"the database {_shown(engine.url)} stores text as {encoding}, which does not hold every character. "
                "Make one with CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0."
            )
        # New tables have no statistics: the server takes them for large ones, and compiling queries for a few rows was
        # a tenth of the time that an import and an export of ten profiles took. In one statement, since under load
        # connections are made often; to look in pg_settings for what the server knows took as long as to connect.
        version = connection.info.server_version
        values = {"jit": "off"} if version >= 110000 else {}
        values |= {"idle_session_timeout": f"{IDLE_SECONDS}s"} if version >= 140000 else {}
        # By lz4 prompts and messages cost a run 0.43 ms of the server's processor a call, by the default 0.63.
        if version >= 140000 and not lz4:
            query = "SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
            lz4.append(connection.execute(query).fetchone() == (True,))
        values |= {"default_toast_compression": "lz4"} if any(lz4) else {}
        if values:
            settings = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in values.items())
            connection.execute(f"SELECT {settings}")
            connection.commit()

    # A connection that died in the pool is replaced before it is used, as by pool_pre_ping. That tries each before each
    # transaction, which was a fifteenth of a worker's time: here one that was in use a moment ago is taken as it is.
    @sa.event.listens_for(engine, "checkout")
    def _checkout(connection: Any, record: Any, _proxy: Any) -> None:
        if time.monotonic() - record.info.get("returned", math.inf) < FRESH_SECONDS:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise sa.exc.InvalidatePoolError from error

    @sa.event.listens_for(engine, "checkin")
    def _checkin(_connection: Any, record: Any) -> None:
        record.info["returned"] = time.monotonic()
        with _returned:
            _returned.notify()

    @sa.event.listens_for(engine, "handle_error")
    def _handle_error(context: sa.engine.ExceptionContext) -> None:
        # The driver goes by the socket, which may still be open when the server has said that it ends the session.
        state = getattr(context.original_exception, "sqlstate", None) or ""
        if state.startswith(("08", "57P")):
            context.is_disconnect = True

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        options = connection.get_execution_options()
        if connection.dialect.name != "postgresql":
            return
        if readonly.chosen():
            connection.exec_driver_sql("SET TRANSACTION READ ONLY")
        # The driver would begin with the first statement, and until then the session counts as idle: a block that first
        # does something else for longer than IDLE_SECONDS, or a machine that is that busy, found it ended.
        if not options.get("cimemories_at_once"):
            connection.exec_driver_sql("SELECT 1")
        if not options.get("cimemories_write"):
            return
        if "synchronous_commit" not in connection.info:
            connection.info["synchronous_commit"] = connection.exec_driver_sql("SHOW synchronous_commit").scalar()
        if connection.info["synchronous_commit"] == "off" and not options.get("cimemories_relaxed"):
            # LOCAL: the next transaction of this pooled connection has the server's setting again.
            connection.exec_driver_sql("SET LOCAL synchronous_commit TO on")


def storable(text: str) -> str:
    """Return a text as every engine can hold it: NUL and halves of surrogate pairs become U+FFFD, one for one."""
    # One for one: the positions of quotes in the text stay true.
    if text.isascii() and "\0" not in text:
        return text
    return re.sub("[\0\ud800-\udfff]", "\ufffd", text)


def one_line(text: str) -> str:
    """Return a text that a person typed on one line: spaces, tabs and line breaks between words become one space."""
    return " ".join(storable(text).split())


def plain_name(name: str, what: str) -> str:
    """Return the name as it is. Raises StoreError, which calls it `what`, for one with control characters or overrides
    of the writing direction: names stand in terminals, tables and file names."""
    if has_control(name):
        raise StoreError(
            f"the {what} '{visible(name)}' holds control characters or overrides of the writing direction. "
            "Choose another name."
        )
    return name


_open: dict[tuple[str, str], Store] = {}
_open_lock = threading.Lock()


def shared_store(workspace: Path | str | None = None) -> Store:
    """Return the one open record of this process for a workspace, by default the app's, whose threads share its
    connection pool."""
    workspace = workspace or chosen_workspace()
    key = (str(Path(workspace).absolute()), os.environ.get(DATABASE_URL, ""))
    # Held while it opens too: two threads would make two pools, and one of them would never be closed.
    with _open_lock:
        if key not in _open:
            _open[key] = open_store(workspace)
        return _open[key]

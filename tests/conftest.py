"""Fixtures that every test may use: real records on both engines, in folders of their own.

`store` runs a test twice, on a fresh SQLite file and on a fresh database of a private PostgreSQL cluster. `database` is
what stands behind it, a workspace and an environment, for tests that start processes; a test may ask for both. What
does not depend on the engine asks for `sqlite_store`. The migrations run once a session and engine, into a template
that every record is a copy of: 0.01 s instead of 0.2, and 0.4 on PostgreSQL, where `EmptyRecords` uses copies again.
`bare_database` is one without any table, for tests of the first opening.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import fcntl
import gc
import gzip
import json
import logging
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import file_costs
import pytest
import run_record
import sqlalchemy as sa
import typer.main
import typer.testing
from hypothesis import HealthCheck, settings
from hypothesis.internal import charmap
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from cimemories.files import USERS_UMASK
from cimemories.llm.endpoint import KEYS, SETTINGS
from cimemories.store import engine as store_engine
from cimemories.store.engine import DATABASE_URL, SQLITE_FILE, WORKSPACE, Store, open_store, shared_store

if TYPE_CHECKING:
    from forked import Forked
    from playwright.sync_api import Browser
    from slow_simulator import SlowSimulator

# Shared machines stall now and then, which is no failure of what is tested; and what a fixture opens may be used by all
# examples of a test. `make test-long` tries more of them, as "wide".
NO_FAULTS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("project", deadline=None, print_blob=True, max_examples=12, suppress_health_check=NO_FAULTS)
settings.register_profile("wide", settings.get_profile("project"), max_examples=100)
settings.load_profile("project")

# Files that wait for long, for processes and locks, and so are not among those of tests/costs.txt.
WAITING = (
    "test_keyboards.py",
    "test_exchange_fuzz.py",
    "test_labelling_resume.py",
    "test_authoring_resume.py",
    "test_faults.py",
    "test_vllm_cli.py",
    "test_editing_series.py",
    "test_problems.py",
    "test_lost_database.py",
)
ENGINES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
# Of these rooms and files the tests on PostgreSQL are long ones, but for those of several at once: test_golden.py asks
# either engine for all numbers, labels and exports, and what the engines do differently is tested in tests/store.
LONG_ON_POSTGRES_ROOMS = {
    *("agreement", "answers", "compare", "curation", "evaluation", "exchange", "extras", "flows", "formats", "labels"),
    *("metrics", "pages", "seeds", "test_assignments.py", "test_comments.py", "test_decision_effect.py"),
    *("test_executor_pause.py", "test_openings.py", "test_review_exchange.py", "test_training.py", "test_upkeep.py"),
    *("test_versions.py",),
}
ON_EITHER = re.compile("at_once|at_the_same|same_moment|meanwhile|take_turns|share_a_claim|calls_of_what_was_deleted")
# For `database` or `store`, with indirect=True: where what differs between the engines is tested at a lower level.
LONG_ON_POSTGRES = ["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.long])]
# (database, kills) of tests that kill a process over and over, with indirect=["database"]: few, or many on each engine.
KILLS = [
    ("sqlite", 1),
    pytest.param("sqlite", 6, marks=pytest.mark.long),
    pytest.param("postgres", 4, marks=[pytest.mark.postgres, pytest.mark.long]),
]
PROGRAMS = ("initdb", "pg_ctl")
# Debian's Chromium without windows. What is on the PATH would start it as its child.
SHELL = Path("/usr/lib/chromium/chromium-headless-shell")


class Database(NamedTuple):
    """A record that nobody has open: `environment` is a whole one, for subprocesses; url None is SQLite."""

    workspace: Path
    environment: dict[str, str]

    @property
    def url(self) -> str | None:
        return self.environment.get(DATABASE_URL)


@pytest.hookimpl(tryfirst=True)  # before -m chooses by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of the most processor time first, then those that wait, then those of most tests: no worker is left alone
    with a long one at the end. xdist hands them out in this order (with --no-loadscope-reorder)."""
    costs = file_costs.listed(file_costs.FILE.read_text("utf-8"))
    sizes = Counter(item.path for item in items)

    def order(item: pytest.Item) -> tuple[float, bool, int, Path]:
        waits = item.path.name in WAITING
        return -costs.get(item.nodeid.split("::")[0], 0), not waits, -sizes[item.path], item.path

    items.sort(key=order)
    for item in items:
        is_of_room = LONG_ON_POSTGRES_ROOMS.intersection(item.path.parts)
        if item.get_closest_marker("postgres") and is_of_room and not ON_EITHER.search(item.name):
            item.add_marker("long")


class FailuresAtOnce:
    """Prints the error of a test when it fails, not only at the end of a run of many minutes."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self.terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.terminal.write_sep("_", f"{report.nodeid} ({report.when})", red=True)
            report.toterminal(self.terminal._tw)
            self.terminal.flush()


@pytest.hookimpl(trylast=True)  # the terminal's reporter is there by then
def pytest_configure(config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailuresAtOnce(terminal))
        if path := os.environ.get(run_record.PATH):
            config.pluginmanager.register(run_record.RunRecord(Path(path).absolute()))
    if os.environ.get(file_costs.WANTED):
        config.pluginmanager.register(file_costs.Costs())
    # Typer makes the whole command line anew each time that it is called: 0.08 s of the processor.
    typer.main.get_command = typer.testing._get_command = cache(typer.main.get_command)
    _compile_statements_once()


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Write what hypothesis looks up before it draws text. In a new checkout each worker would try 1.1 million
    characters for it, which takes 4 s of the processor, and fails its own check of speed on a busy machine."""
    file = charmap.charmap_file("codec-v2-utf-8")
    if not hasattr(session.config, "workerinput") and not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(file, "wt") as out:
            json.dump(
                [[[0, 0xD7FF], [0xE000, 0x10FFFF]], []], out
            )  # all but the surrogates, and all of it there and back


def _compile_statements_once() -> None:
    """Let all engines of a kind share what statements compile to, where each test has an engine of its own."""
    for kind in (SQLiteDialect_pysqlite, PGDialect_psycopg):
        kind.__eq__ = lambda self, other: type(self) is type(other)  # type: ignore[method-assign]
        kind.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign]
    create, compiled = sa.create_engine, sa.util.LRUCache(5_000)
    sa.create_engine = lambda *args, **kwargs: create(*args, execution_options={"compiled_cache": compiled}, **kwargs)


def pytest_collectstart() -> None:
    gc.disable()  # until all is collected: what is imported is no garbage


def pytest_collection_finish() -> None:
    """What has been imported stays until the end: looking through it for garbage over and over took 6 % of the time."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(100_000, 20, 50)
    # pytest adds a handler six times a test to each logger that does not propagate. Streamlit has 75 of them.
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger) and logger.name.startswith("streamlit"):
            logger.propagate = True


def pytest_sessionfinish() -> None:
    gc.freeze()  # pytest looks twice for garbage now, each worker for seconds, and the tests have ended
    atexit.register(gc.unfreeze)  # or DuckDB complains of everything that was left out when the process ends


@pytest.fixture(autouse=True)
def _nothing_from_outside(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test may find, or write into, the record of whoever runs the tests, or inherit what another one has set."""
    if "chromium" in request.fixturenames:
        asyncio._set_running_loop(request.getfixturevalue("chromium")[1])
    umask = os.umask(0o022)
    os.umask(umask)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(USERS_UMASK, raising=False)
        patch.delenv(DATABASE_URL, raising=False)
        patch.delenv(WORKSPACE, raising=False)
        patch.setenv(KEYS, "")
        patch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # AppTest leaves its script there
        patch.setenv(SETTINGS, "/nonexistent/settings.toml")
        if SHELL.exists():
            patch.setenv("BROWSER_PATH", str(SHELL))  # for images
        yield
    os.umask(umask)  # the app makes its process private


@pytest.fixture
def one_connection() -> Iterator[None]:
    """No thread of ours may wait for a second connection while it holds one: where all threads of a process do, each
    waits for another's (MOST_CONNECTIONS), and on a full server whole processes do. Blocks that a test opens itself are
    left out. For a whole file: pytestmark = pytest.mark.usefixtures("one_connection")."""
    held, nested = threading.local(), []
    transaction = Store._transaction

    @contextmanager
    def noted(self: Store, options: dict[str, bool]) -> Iterator[sa.Connection]:
        frame = sys._getframe(1)
        while frame.f_back and frame.f_code.co_filename in (contextlib.__file__, store_engine.__file__, __file__):
            frame = frame.f_back
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        is_test = "/tests/" in where
        outer = getattr(held, "blocks", [])
        nested.extend(f"{place} holds one while {where} opens another" for e, place in outer if e is self.engine)
        held.blocks = outer if is_test else [*outer, (self.engine, where)]
        try:
            with transaction(self, options) as connection:
                yield connection
        finally:
            held.blocks = outer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "_transaction", noted)
        yield
    assert not nested, "\n".join(dict.fromkeys(nested))


class Cluster(NamedTuple):
    """A private cluster: the address of its maintenance database, and how to stop (in this mode) and start it."""

    url: str
    stop: Callable[[str], None]
    start: Callable[[], None]


@contextmanager
def _cluster(address: str = "") -> Iterator[Cluster]:
    """address: an IPv4 address of this machine on which it listens too, for whoever reaches it."""
    programs = _programs()
    as_postgres = _as_postgres()
    folder = Path(tempfile.mkdtemp(prefix="cim-pg-", dir="/tmp"))  # short: a socket's path has 107 bytes at most
    try:
        if as_postgres:
            shutil.chown(folder, "postgres")
        _run([*as_postgres, programs / "initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust", "-N"], folder)
        if address:
            with (folder / "data/pg_hba.conf").open("a") as access:
                access.write("host all all all trust\n")
        options = f"-F -c listen_addresses='{address}' -c unix_socket_directories='{folder}' -c max_connections=200"
        control = [*as_postgres, programs / "pg_ctl", "-D", folder / "data", "-w"]

        def start() -> None:
            _run([*control, "-l", folder / "log", "-o", options, "start"], folder)

        def stop(mode: str) -> None:
            _run([*control, "-m", mode, "stop"], folder)

        start()
        try:
            yield Cluster(f"postgresql+psycopg://postgres@{address}/postgres?host={address or folder}", stop, start)
        finally:
            stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The address of the maintenance database of a private cluster, which lives as long as this (worker's) session."""
    with _cluster() as cluster:
        yield cluster.url


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One more private cluster, for tests that stop and start it."""
    with _cluster() as cluster:
        yield cluster


def _programs() -> Path:
    """The folder of PostgreSQL's server programs, which Debian keeps off the PATH; the newest version it has."""
    initdb = shutil.which("initdb")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name), reverse=True)
    for folder in ([Path(initdb).resolve().parent] if initdb else []) + debian:
        if all((folder / name).exists() for name in PROGRAMS):
            return folder
    pytest.skip("PostgreSQL's server programs are not here; on Debian: apt-get install postgresql")


def _as_postgres() -> list[str]:
    """What to put before a command so that it does not run as root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return []
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        pytest.skip("root needs the system user `postgres` to start it; on Debian: apt-get install postgresql")
    if not shutil.which("runuser"):
        pytest.skip("root needs `runuser` to start PostgreSQL (Debian packages: util-linux and postgresql)")
    return ["runuser", "-u", "postgres", "--"]


def _run(command: list[str | Path], folder: Path) -> None:
    # The server inherits what its starter holds open: with a pipe here the tests would wait for its end.
    with tempfile.TemporaryFile("w+") as output:
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
        )
        if done.returncode:
            output.seek(0)
            pytest.fail(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{output.read()}")


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an empty record, to be copied as WORKSPACE/cimemories.sqlite and never to be opened."""
    folder = tmp_path_factory.mktemp("template")
    open_store(folder).close()
    (file,) = folder.iterdir()  # no -wal beside it: the last one to close has moved it all into the file
    return file


@pytest.fixture(scope="session")
def maintenance(postgres_url: str) -> Iterator[sa.Connection]:
    """A connection for creating and dropping databases."""
    engine = sa.create_engine(postgres_url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        yield connection


@pytest.fixture(scope="session")
def postgres_template(maintenance: sa.Connection, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a database with an empty record, to be copied with CREATE DATABASE ... TEMPLATE."""
    maintenance.exec_driver_sql("CREATE DATABASE record")
    address = maintenance.engine.url.set(database="record").render_as_string(hide_password=False)
    open_store(tmp_path_factory.mktemp("template"), address).close()
    return "record"


Copies: TypeAlias = Callable[[Path], None]


@pytest.fixture
def into(sqlite_template: Path) -> Copies:
    """Puts an empty SQLite record into a folder, which is made: opening it then needs no migration."""

    def copy(workspace: Path) -> None:
        workspace.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(sqlite_template, workspace / sqlite_template.name)

    return copy


def _outside() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k not in (DATABASE_URL, WORKSPACE)}


class EmptyRecords:
    """Databases with an empty record. One is used again where a test has changed nothing in it but rows: a new one
    takes 0.4 s of the processor, one that is emptied 0.02."""

    def __init__(self, maintenance: sa.Connection, template: str) -> None:
        self._maintenance = maintenance
        self._template = template
        self._kept: list[str] = []
        self._size = self._bytes(template)
        first = self.take()  # a template that somebody is connected to cannot be copied
        with self._connected(first) as connection:
            self._schema = _schema(connection)
            self._own = {table: _text(connection, table) for table in _filled(connection)}
        self._kept.append(first)

    def take(self) -> str:
        """A database, under a name that none has had before: caches of the process know records by their address."""
        name = f"test_{uuid.uuid4().hex}"
        if self._kept:
            self._maintenance.exec_driver_sql(f"ALTER DATABASE {self._kept.pop()} RENAME TO {name}")
        else:
            self._maintenance.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {self._template}")
        return name

    def give_back(self, name: str) -> None:
        self._maintenance.exec_driver_sql(
            f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}'"
        )
        if self._bytes(name) < self._size + 2**23 and self._emptied(name):
            self._kept.append(name)
        else:
            self._maintenance.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")

    def _emptied(self, name: str) -> bool:
        """Whether it is as its template again: not where tables, settings or the template's own rows were changed."""
        with self._connected(name) as connection:
            filled = _filled(connection)
            unchanged = _schema(connection) == self._schema and filled >= self._own.keys()
            if not unchanged or any(_text(connection, table) != text for table, text in self._own.items()):
                return False
            connection.exec_driver_sql("SET session_replication_role = replica")  # in any order: no key is checked
            for table in filled - self._own.keys():
                connection.exec_driver_sql(f'DELETE FROM "{table}"')
            connection.exec_driver_sql(
                "SELECT setval(format('%%I.%%I', schemaname, sequencename)::regclass, start_value, false)"
                " FROM pg_sequences WHERE last_value IS NOT NULL"
            )
        return True

    def _bytes(self, name: str) -> int:
        return int(self._maintenance.exec_driver_sql(f"SELECT pg_database_size('{name}')").scalar_one())

    @contextmanager
    def _connected(self, name: str) -> Iterator[sa.Connection]:
        engine = sa.create_engine(
            self._maintenance.engine.url.set(database=name), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool
        )
        with engine.connect() as connection:
            yield connection


def _schema(connection: sa.Connection) -> list[str | None]:
    """What a test may have changed in a database besides rows: each kind of object as one text."""
    own = "oid >= 16384"
    parts = {
        f"pg_class WHERE {own}": "(relname, relnamespace, relkind, relowner, relchecks, relacl, reloptions)",
        "pg_attribute WHERE attrelid >= 16384": "(attrelid, attname, atttypid, atttypmod, attnotnull, atthasdef)",
        f"pg_constraint WHERE {own}": "(conname, conrelid, convalidated)",
        f"pg_trigger WHERE {own}": "(tgname, tgrelid, tgenabled)",
        f"pg_proc WHERE {own}": "(proname, prosrc)",
        "pg_namespace WHERE nspname !~ '^pg_(toast_)?temp'": "(nspname, nspowner, nspacl)",
        "pg_extension": "(extname, extversion)",
        "pg_largeobject_metadata": "(oid)",
        "pg_database WHERE datname = current_database()": "(datdba, datallowconn, datconnlimit, datacl)",
        "pg_db_role_setting": "(setdatabase, setrole, setconfig)",
    }
    return [
        connection.exec_driver_sql(
            f"SELECT md5(string_agg({row}::text, ' ' ORDER BY {row}::text)) FROM {table}"
        ).scalar()
        for table, row in parts.items()
    ]


def _filled(connection: sa.Connection) -> set[str]:
    """The tables with any rows."""
    names = connection.exec_driver_sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").scalars()
    any_row = " UNION ALL ".join(f"""SELECT '{name}' WHERE EXISTS (SELECT FROM "{name}")""" for name in names)
    return set(connection.exec_driver_sql(any_row).scalars()) if any_row else set()


def _text(connection: sa.Connection, table: str) -> str | None:
    return connection.exec_driver_sql(f'SELECT string_agg(t::text, chr(10) ORDER BY t::text) FROM "{table}" t').scalar()


@pytest.fixture(scope="session")
def empty_records(maintenance: sa.Connection, postgres_template: str) -> EmptyRecords:
    return EmptyRecords(maintenance, postgres_template)


def _on_postgres(maintenance: sa.Connection, workspace: Path, name: str) -> Database:
    url = maintenance.engine.url.set(database=name).render_as_string(hide_password=False)
    return Database(workspace, {**_outside(), DATABASE_URL: url})


@pytest.fixture(params=ENGINES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty record on each engine: unpacks into the workspace's path and an environment for processes."""
    workspace = tmp_path / "workspace"
    if request.param == "sqlite":
        request.getfixturevalue("into")(workspace)
        yield Database(workspace, _outside())
        return
    records: EmptyRecords = request.getfixturevalue("empty_records")
    name = records.take()
    yield _on_postgres(request.getfixturevalue("maintenance"), workspace, name)
    records.give_back(name)


@pytest.fixture(params=ENGINES)
def bare_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """The same before anybody has opened it: no tables, and no file."""
    workspace = tmp_path / "workspace"
    if request.param == "sqlite":
        yield Database(workspace, _outside())
        return
    maintenance = request.getfixturevalue("maintenance")
    name = f"test_{uuid.uuid4().hex}"
    maintenance.exec_driver_sql(f"CREATE DATABASE {name}")
    yield _on_postgres(maintenance, workspace, name)
    maintenance.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def store(database: Database) -> Iterator[Store]:
    """An open, empty record on each engine."""
    opened = open_store(database.workspace, database.url)
    yield opened
    opened.close()


@pytest.fixture
def sqlite_store(tmp_path: Path, into: Copies) -> Iterator[Store]:
    """An open, empty record on SQLite alone, for what does not depend on the engine."""
    into(tmp_path / "workspace")
    opened = open_store(tmp_path / "workspace")
    yield opened
    opened.close()


@pytest.fixture
def app_store(tmp_path: Path, into: Copies, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An open, empty record on SQLite that is the app's own: what AppTest draws is drawn of it."""
    monkeypatch.setenv(WORKSPACE, str(tmp_path / "workspace"))
    into(tmp_path / "workspace")
    return shared_store()


@pytest.fixture
def judged_store(tmp_path: Path, judged_record: Path) -> Iterator[Store]:
    """An open record on SQLite with a labelled dataset and one finished run of a simulated model and judge."""
    (tmp_path / "workspace").mkdir()
    shutil.copyfile(judged_record, tmp_path / "workspace" / judged_record.name)
    opened = open_store(tmp_path / "workspace")
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def judged_record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of that record, to be copied and never to be opened."""
    from evaluating import add_judged

    folder = tmp_path_factory.mktemp("judged")
    opened = open_store(folder)
    add_judged(opened)
    opened.close()
    return folder / SQLITE_FILE


@pytest.fixture(scope="session")
def slow_simulator() -> Iterator[SlowSimulator]:
    from slow_simulator import SlowSimulator

    simulator = SlowSimulator()
    yield simulator
    simulator.process.kill()
    simulator.process.wait()


@pytest.fixture
def uploads_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages read uploads in this process, for tests of what they say then: to start another takes 2 s of the processor.
    What it does is tested in formats/test_uploads.py."""
    from cimemories import uploads

    def read(store: Store, data: bytes, name: str, do: str, options: dict[str, Any], wanted: object) -> Any:
        with uploads.uploaded(data, name) as path:
            return json.loads(json.dumps(getattr(uploads, f"_{do}")(store, path, **options)))

    monkeypatch.setattr(uploads, "_read", read)


@pytest.fixture(scope="session")
def prepared_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with the demo's first two people, to be copied and never to be opened. Preparing it takes 7 s of a
    processor, so the workers of a session share it. Beside it, in asked.json, what a simulator was asked meanwhile, and
    in `shipped` the demo's folder with the recorded calls of these people."""
    import demos
    from simulating import requests_to_simulators

    from cimemories import demo

    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "demo"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "asked.json").exists():
            demos.add_folder(folder / "shipped", 2)
            opened = open_store(folder / "workspace")
            with requests_to_simulators() as asked, pytest.MonkeyPatch.context() as patch:
                patch.setattr(demo, "FOLDER", folder / "shipped")
                demo.prepare(opened, lambda text: None, 2)
            opened.close()
            (folder / "asked.json").write_text(json.dumps(asked))
    return folder / "workspace"


@pytest.fixture(scope="session")
def small_demo(request: pytest.FixtureRequest) -> Path:
    """The same for browsers: where there is none it is not prepared."""
    import serving

    serving.require_chromium()
    prepared: Path = request.getfixturevalue("prepared_demo")
    return prepared


# Of a worker's session one Chromium, which Playwright keeps an event loop for in this thread: the thread's own only in
# the tests that ask for the browser, since nothing else could run one of its own there.


@pytest.fixture(scope="session")
def chromium() -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    import serving

    with serving.chromium(serving.COMPILED_ONCE) as opened:
        loop = asyncio.get_running_loop()
        yield opened, loop
        asyncio._set_running_loop(loop)


@pytest.fixture(scope="module")
def browser(chromium: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[Browser]:
    """The browser of this worker. What a module's fixtures run in event loops has to be done before it."""
    import serving

    opened, loop = chromium
    asyncio._set_running_loop(loop)
    yield opened
    asyncio._set_running_loop(loop)
    serving.close_contexts(opened)
    asyncio._set_running_loop(None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    finally:
        if "chromium" in getattr(item, "fixturenames", ()):
            asyncio._set_running_loop(None)


# For the tests of a module in a browser; the module says in `workspace` what the app shows.


@pytest.fixture(scope="module")
def server(workspace: Path) -> Iterator[tuple[str, Forked]]:
    """The app's address and its process."""
    import serving

    with serving.running_app(workspace) as started:
        yield started


@pytest.fixture(scope="module")
def app(server: tuple[str, Forked]) -> str:
    return server[0]

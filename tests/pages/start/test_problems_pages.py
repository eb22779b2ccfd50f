"""A disk or a database that fails, as the app shows it: one line that says what to do, and never a traceback."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from evaluating import add_labelled, simulated
from mounts import read_only_mount
from paging import ROOT, button, opened, page_html
from streamlit.runtime.scriptrunner import ScriptRunner
from streamlit.testing.v1 import AppTest

from cimemories.evaluation import planning, runs
from cimemories.store import engine
from cimemories.store.engine import SQLITE_FILE, WORKSPACE, Store, StoreError, open_store
from cimemories.ui.url import PAGES
from pages.start import failure


@pytest.fixture
def read_only_app(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A workspace with a run, read-only, that the app opens; and the run's id."""
    add_labelled(sqlite_store)
    run_id = planning.plan(sqlite_store, simulated())
    runs.execute(sqlite_store, run_id)
    sqlite_store.close()
    monkeypatch.setenv(WORKSPACE, str(sqlite_store.workspace))
    monkeypatch.setattr(engine, "_open", {})
    with read_only_mount(sqlite_store.workspace):
        yield sqlite_store.workspace, run_id


def test_every_page_shows_a_read_only_workspace_and_says_so(read_only_app: tuple[Path, str]) -> None:
    _, run_id = read_only_app
    for name, file in PAGES.items():
        text = page_html(opened(file, run=run_id))
        assert "This workspace is read-only" in text, name
        assert "This did not work" not in text, name
    assert "small" in page_html(opened(PAGES["home"]))


def test_a_page_that_must_write_says_why_it_cannot(read_only_app: tuple[Path, str]) -> None:
    app = opened(PAGES["consensus"])
    assert "This workspace is read-only" in page_html(app)
    app = opened(PAGES["runs"], "runs.box.judge", run=read_only_app[1])
    button(app, "Delete this run").click()
    app.run()
    assert not app.exception
    assert "is read-only, so nothing was saved" in page_html(app)


def test_a_full_disk_is_said_on_the_page(app_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    add_labelled(app_store)

    def full(*_arguments: object, **_named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(app_store.workspace / "cache"))

    monkeypatch.setattr("cimemories.flows.catalogue.all_datasets", full)
    app = opened(PAGES["profiles"])
    assert "The disk is full" in page_html(app)
    assert "Free some space" in page_html(app)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/x/cache"), "The disk is full (/x/cache). Free some"),
        (StoreError("the workspace x is read-only"), "The workspace x is read-only."),
        (ZeroDivisionError("a bug of ours"), None),
        (FileNotFoundError(errno.ENOENT, "No such file", "/x"), None),
    ],
)
def test_only_conditions_of_the_machine_are_drawn(
    error: Exception, text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(failure.page, "error", lambda what, where="", next="": shown.append(where))
    assert failure.draw(error) is (text is not None)
    assert [line[: len(text or "")] for line in shown] == ([text] if text else [])


def test_a_database_that_is_full_in_a_write_is_known(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(failure.page, "error", lambda what, where="", next="": shown.append(where))
    with sqlite_store.engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        raw.execute(f"PRAGMA max_page_count = {raw.execute('PRAGMA page_count').fetchone()[0]}")
        with pytest.raises(sa.exc.OperationalError) as caught:
            connection.exec_driver_sql("CREATE TABLE filler AS SELECT randomblob(100000)")
    assert failure.draw(caught.value)
    assert "disk of the workspace is full. Free some space" in shown[0]


def test_a_newer_workspace_is_refused_on_a_page_of_ours(app_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with app_store.write() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9001'"))
    monkeypatch.setattr(engine, "_open", {})
    text = page_html(opened(PAGES["home"]))
    assert "The workspace cannot be opened" in text
    assert "newer version of CIMemories Studio" in text


def test_a_damaged_workspace_is_refused_on_a_page_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / SQLITE_FILE).write_bytes(b"damaged " * 1000)
    monkeypatch.setenv(WORKSPACE, str(tmp_path))
    text = page_html(opened(PAGES["home"]))
    assert "is damaged" in text
    assert "cimemories workspace restore FILE --replace" in text
    with pytest.raises(StoreError):
        open_store(tmp_path)


def test_a_callback_that_fails_is_explained_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callbacks and fragments run outside app.py; the server is given `failure.draw` for them (st.App)."""
    original = ScriptRunner.__init__

    def with_handler(self: ScriptRunner, *arguments: object, **named: object) -> None:
        original(self, *arguments, **named, on_script_error=failure.draw)

    monkeypatch.setattr(ScriptRunner, "__init__", with_handler)

    def script() -> None:
        import streamlit as st

        def save() -> None:
            raise OSError(28, "No space left on device", "/x/record")

        st.button("Save", on_click=save)

    app = AppTest.from_function(script).run()
    app.button[0].click().run()
    assert not app.exception
    assert "The disk is full (/x/record). Free some space" in page_html(app)
    assert "on_script_error=draw_failure" in (ROOT / "app.py").read_text(encoding="utf-8")

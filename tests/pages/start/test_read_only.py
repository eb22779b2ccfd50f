"""The app as `--read-only` starts it: every page opens, nothing that a visitor does changes the workspace or sends
anything, and what goes past the pages is refused below them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from evaluating import add_labelled, simulated
from paging import FOLDS, button, opened, page_html
from starlette.datastructures import Headers
from streamlit.elements.widgets.button import ButtonMixin
from streamlit.elements.widgets.file_uploader import FileUploaderMixin
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

from cimemories import launch, serving, uploads
from cimemories.access import guard, readonly
from cimemories.cli import cli
from cimemories.evaluation import planning, runs
from cimemories.leaks import basket
from cimemories.llm import vllm_server
from cimemories.llm.endpoint import Endpoint, EndpointError
from cimemories.llm.http.transport import probe
from cimemories.llm.vllm import ServerSpec, VllmError
from cimemories.store import datasets, engine
from cimemories.store.engine import SQLITE_FILE, WORKSPACE, Store, StoreError, open_store, shared_store
from cimemories.store.tables import dataset
from cimemories.ui import server
from cimemories.ui.url import PAGES

# The parts of the pages that have several: each is opened by its own address.
PARTS: dict[str, tuple[dict[str, str], ...]] = {
    "profiles": tuple({"view": view} for view in ("compare", "contexts", "history", "dataset", "new")),
    "labels": ({"show": "context"}, {"show": "counts"}),
    "review": tuple(
        {"tab": tab} for tab in ("bulk", "agreement", "adjudication", "comments", "guideline", "exchange", "overlap")
    ),
    "consensus": tuple({"part": part} for part in ("whatif", "contexts", "agreement", "models")),
    "runs": tuple({"tab": tab} for tab in ("list", "new", "sweeps", "servers")),
    "leaks": ({"tab": "basket"},),
    "compare": tuple({"tab": tab} for tab in ("plane", "difference", "sweeps", "sensitivity", "report")),
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A workspace with labels and a run, and the run's id."""
    store = open_store(tmp_path_factory.mktemp("read only") / "workspace")
    add_labelled(store)
    run_id = planning.plan(store, simulated())
    runs.execute(store, run_id)
    store.close()
    return store.workspace, run_id


@pytest.fixture
def look(filled: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The process as the app's is with --read-only; the id of the run. At its end all files are as they were."""
    workspace, run_id = filled
    monkeypatch.setenv(WORKSPACE, str(workspace))
    monkeypatch.setenv(readonly.READ_ONLY, "1")
    monkeypatch.setattr(engine, "_open", {})
    # As they are now, for when the test is over.
    monkeypatch.setattr(ButtonMixin, "_button", ButtonMixin._button)
    monkeypatch.setattr(FileUploaderMixin, "_file_uploader", FileUploaderMixin._file_uploader)
    server.disable_writing()
    before = _hashes(workspace)
    yield run_id
    shared_store().close()
    assert _hashes(workspace) == before


def _hashes(workspace: Path) -> dict[str, str]:
    """Of all files but the two that SQLite makes beside the database for readers too; its log of changes is empty."""
    files = {str(path.relative_to(workspace)): path for path in workspace.rglob("*") if path.is_file()}
    log = files.pop(f"{SQLITE_FILE}-wal", None)
    assert log is None or log.stat().st_size == 0
    files.pop(f"{SQLITE_FILE}-shm", None)
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


def _open_controls(app: AppTest) -> dict[str, Any]:
    """The buttons that can be pressed, those of forms and uploads among them, by their key or label."""
    controls = [*app.button, *app.get("file_uploader")]
    return {item.key or item.label: item for item in controls if not item.proto.disabled}


@pytest.mark.parametrize("name", PAGES)
def test_every_page_opens_and_nothing_that_can_be_pressed_changes_anything(name: str, look: str) -> None:
    pressed: set[str] = set()
    for query in ({}, *([{"run": look}] if name == "runs" else ()), *PARTS.get(name, ())):
        app = opened(PAGES[name], *FOLDS, **query)
        text = page_html(app)
        assert "This workspace is read-only" in text, query
        assert "This did not work" not in text, query
        for key in _open_controls(app):
            assert any(key.startswith(start) for start in server.READING), (query, key)
            if key not in pressed:
                pressed.add(key)
                if key not in _open_controls(app):  # it went with the press before
                    app = opened(PAGES[name], *FOLDS, **query)
                _open_controls(app)[key].click().run()
                assert not app.exception, (query, key)
                assert "nothing was saved" not in page_html(app), (query, key)


def test_a_button_that_writes_is_there_and_says_why_it_cannot_be_pressed(look: str) -> None:
    app = opened(PAGES["runs"], "runs.box.judge", run=look)
    delete = button(app, "Delete this run")
    assert (delete.disabled, delete.help) == (True, server.NO_CHANGE)
    # As a browser that was tampered with could: its press comes, and nothing is done.
    delete.proto.disabled = False
    delete.click()
    app.run()
    assert not app.exception
    assert "nothing was saved" not in page_html(app)
    with shared_store().read() as connection:
        assert [row.id for row in datasets.all_rows(connection)]
    assert "sim" in page_html(opened(PAGES["runs"], run=look))
    (upload,) = opened(PAGES["profiles"], view="new").get("file_uploader")
    assert upload.proto.disabled


def test_the_store_refuses_a_write_and_the_database_what_goes_past_it(look: str) -> None:
    store = shared_store()
    with pytest.raises(StoreError, match=r"started read-only \(--read-only\), so nothing was saved"), store.write():
        pass
    statement = sa.update(dataset).values(name="changed")
    with pytest.raises(sa.exc.OperationalError, match="readonly database"), store.read() as connection:
        connection.execute(statement)
    with pytest.raises(sa.exc.OperationalError, match="readonly database"), store.engine.begin() as connection:
        connection.execute(statement)
    # A second store of the same folder is none of the app's, and is refused all the same.
    again = open_store(store.workspace)
    with pytest.raises(StoreError, match="nothing was saved"), again.write():
        pass
    again.close()


@pytest.mark.parametrize("database", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
def test_postgresql_refuses_it_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    address = store.engine.url.render_as_string(hide_password=False)
    monkeypatch.setenv(readonly.READ_ONLY, "1")
    looking = open_store(store.workspace, address)
    with pytest.raises(StoreError, match="nothing was saved"), looking.write():
        pass
    with pytest.raises(sa.exc.InternalError, match="read-only transaction"), looking.read() as connection:
        connection.execute(sa.update(dataset).values(name="changed"))
    with looking.read() as connection:
        assert datasets.all_rows(connection) == []
    looking.close()


def test_nothing_is_started_sent_imported_or_kept_beside_the_database(look: str) -> None:
    store = shared_store()
    with pytest.raises(StoreError, match="nothing was saved"):
        launch.launch(store, look)
    with pytest.raises(VllmError, match="neither started nor stopped"):
        vllm_server.start(store.workspace, ServerSpec("m"), started_by="a test", environ={})
    with pytest.raises(EndpointError, match="sends nothing"):
        probe(Endpoint("http://127.0.0.1:9/v1"), "m", retries=0)
    with pytest.raises(StoreError, match="nothing was imported"):
        uploads.import_upload(store, b"[]", "profiles.json")
    with pytest.raises(StoreError, match="nothing was added to the basket"):
        basket.change(store, "visitor", lambda there: there)


def test_the_server_takes_no_uploads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    site = guard.Site(lambda _: True, lambda: False, lambda _: False)
    guarded = guard.Guard(lambda *_: None, guard.Gate(tmp_path, guard.Mode.ANYONE), site)  # type: ignore[arg-type]
    headers = Headers({"host": "localhost", "origin": "http://localhost"})
    request = {"type": "http", "method": "PUT", "path": "/_stcore/upload_file/a/b", "query_string": b""}
    assert guarded._answer(request, headers) is None
    monkeypatch.setenv(readonly.READ_ONLY, "1")
    refused = guarded._answer(request, headers)
    assert refused is not None
    assert (refused.status_code, refused.body) == (403, b"This app is read-only. It takes no files.\n")


def test_the_flag_is_handed_to_the_server_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[dict[str, str]] = []
    monkeypatch.setattr("os.execvpe", lambda _program, _command, environment: started.append(environment))
    monkeypatch.setattr(serving, "_require_free", lambda _port: None)
    for options in ([], ["--read-only"]):
        done = CliRunner().invoke(cli, ["app", "--no-demo", "-w", str(tmp_path / "w"), *options])
        assert done.exit_code == 0, done.output
    assert [environment.get(readonly.READ_ONLY) for environment in started] == [None, "1"]

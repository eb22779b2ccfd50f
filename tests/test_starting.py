"""What is imported at a start: before the app listens, and before a command line's help, only what they need. A new
process is asked which modules it has, since those of the tests have all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest
from evaluating import ROOT, outside
from hostile import free_port

from cimemories.store.engine import open_store
from cimemories.ui import server

ANALYSIS = {"pandas", "numpy", "scipy", "sklearn", "duckdb", "pyarrow", "openai", "httpx"}
NAMES = "print(*sys.modules, sep='\\n', file=sys.stderr)"


def imported(code: str, workspace: Path) -> set[str]:
    """Return the names of all modules that a new process has after this code, packages of others by their first part
    only."""
    done = subprocess.run(
        [sys.executable, "-c", f"import os, sys\n{code}\n{NAMES}"],
        cwd=ROOT,
        env={**outside(), "CIMEMORIES_WORKSPACE": str(workspace)},
        capture_output=True,
        text=True,
        check=True,
    )
    names = set(done.stderr.split())
    return {name for name in names if name.startswith("cimemories")} | {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_load_no_command(option: str, tmp_path: Path) -> None:
    names = imported(f"from cimemories.cli import cli\ncli(['{option}'], standalone_mode=False)", tmp_path)
    assert "cimemories.cli.base" in names
    assert not names & (ANALYSIS | {"sqlalchemy", "streamlit", "pydantic", "rich"})
    assert {name for name in names if name.startswith("cimemories.cli.")} == {"cimemories.cli.base"}


def test_a_command_loads_no_other_command(tmp_path: Path) -> None:
    names = imported("from cimemories.cli import cli\ncli(['servers'], standalone_mode=False)", tmp_path)
    assert "cimemories.cli.serve" in names
    assert not names & {"cimemories.cli.runs", "cimemories.cli.metrics", "pandas"}


def test_the_sdk_is_imported_only_where_a_server_is_asked(tmp_path: Path) -> None:
    code = "import cimemories.uploads, cimemories.evaluation.runs, cimemories.curation.authoring, cimemories.llm.worker"
    assert not imported(code, tmp_path) & {"openai", "aiohttp"}


def test_the_app_is_handed_over_before_what_its_pages_need_is_imported(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    code = (
        "from cimemories.cli import cli\nos.execvpe = lambda *_: None\n"
        f"cli(['app', '--no-demo', '--port', '{free_port()}'], standalone_mode=False)"
    )
    names = imported(code, tmp_path)
    assert "cimemories.serving" in names
    assert not names & (ANALYSIS | {"streamlit", "cimemories.demo"})


def test_the_server_listens_before_what_its_pages_need_is_imported(tmp_path: Path) -> None:
    names = imported("from cimemories.ui import server\nimport app", tmp_path)
    assert "app" in names and "streamlit" in names
    assert not names & (ANALYSIS | {"sqlalchemy", "pydantic"})


def test_a_page_waits_for_the_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    imports: list[str] = []
    monkeypatch.setattr(server.importlib, "import_module", imports.append)
    server.page_drawn.set()
    server._libraries.clear()
    page = Thread(target=server.wait_for_libraries)
    page.start()
    page.join(0.05)
    assert page.is_alive()
    server._import_all()
    page.join(10)
    assert not page.is_alive()
    assert imports[: len(server.HEAVY)] == list(server.HEAVY)


def test_a_server_without_one_of_its_libraries_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(server, "HEAVY", ("a_library_that_is_not_there",))
    server.page_drawn.set()
    monkeypatch.setattr(server.os, "_exit", ended.append)
    server._import_all()
    assert ended == [1]
    assert "No module named 'a_library_that_is_not_there'" in capsys.readouterr().err

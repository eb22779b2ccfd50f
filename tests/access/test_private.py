"""The workspace is its owner's alone, whatever the umask; what is exported to a place of the user's own is not."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cimemories import files
from cimemories.store.engine import open_store


@pytest.fixture
def open_umask() -> Iterator[None]:
    """The most careless umask there is."""
    previous = os.umask(0)
    yield
    os.umask(previous)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def too_open(folder: Path) -> dict[str, str]:
    """What in a folder, itself included, somebody else may touch."""
    paths = [folder, *folder.rglob("*")]
    return {str(p): oct(mode(p)) for p in paths if not p.is_symlink() and mode(p) & files.OTHERS}


@pytest.mark.usefixtures("open_umask")
def test_a_new_workspace_and_its_record_are_private(tmp_path: Path) -> None:
    store = open_store(tmp_path / "deep" / "workspace")
    with store.write():
        pass  # while it is open there are a log and an index beside the file
    assert len(list(store.workspace.iterdir())) >= 2
    assert too_open(store.workspace) == {}
    assert mode(store.workspace) == 0o700
    store.close()


@pytest.mark.usefixtures("open_umask")
def test_a_workspace_of_an_older_version_is_closed_when_it_is_opened(tmp_path: Path, into: Callable) -> None:
    workspace, elsewhere = tmp_path / "workspace", tmp_path / "elsewhere"
    into(workspace)
    (workspace / "logs").mkdir()
    (workspace / "logs" / "run-1.log").touch()
    (workspace / "logs" / "tool").touch(0o755)
    elsewhere.mkdir()
    (elsewhere / "shared").touch()
    (workspace / "link").symlink_to(elsewhere)
    assert too_open(workspace)
    open_store(workspace).close()
    assert too_open(workspace) == {}
    assert mode(workspace / "logs" / "tool") == 0o700
    assert mode(elsewhere) == 0o777
    assert mode(elsewhere / "shared") == 0o666


def test_a_folder_of_the_whole_machine_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, sticky in (("tmp", 0o1777), ("home", 0o755)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(sticky)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    files.make_folder(tmp_path / "tmp")
    files.make_folder(tmp_path / "home")
    assert (mode(tmp_path / "tmp"), mode(tmp_path / "home")) == (0o1777, 0o755)


def test_commands_write_privately_into_the_workspace_and_as_usual_elsewhere(tmp_path: Path) -> None:
    """With the umask 0: a careless one shows both."""
    workspace, out = tmp_path / "workspace", tmp_path / "out"

    commands = [
        ["generate", "--dataset", "few", "--profiles", "1", "--seed", "1"],
        ["export", "few", "--format", "official", "--out", str(out / "profiles.json")],
        ["export", "few", "--format", "huggingface", "--out", str(out / "folder")],
        ["export", "few", "--format", "official", "--out", str(workspace / "exports" / "profiles.json")],
        ["datasets", "card", "few", "--out", str(out / "card.md")],
    ]
    script = "import sys; from cimemories.cli import main\n"
    for command in commands:
        script += f"sys.argv = {['cimemories', *command, '-w', str(workspace)]}\n"
        script += "try: main()\nexcept SystemExit as end: assert not end.code, end\n"
    done = subprocess.run([sys.executable, "-c", script], umask=0, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (workspace / "exports" / "profiles.json").is_file()
    assert too_open(workspace) == {}
    assert {mode(path) for path in out.rglob("*") if path.is_file()} == {0o666}
    assert {mode(path) for path in (out, out / "folder", out / "folder" / "tables")} == {0o777}


def test_processes_that_ours_start_know_the_users_umask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(files.USERS_UMASK, raising=False)
    monkeypatch.setenv(files.USERS_UMASK, "27")
    previous = os.umask(0o022)
    try:
        files.adopt_umask()
        assert files.users_umask() == 0o027
        with files.with_users_umask(tmp_path / "out", tmp_path / "workspace"):
            (tmp_path / "out").touch()
        (tmp_path / "ours").touch()
    finally:
        os.umask(previous)
    assert (mode(tmp_path / "out"), mode(tmp_path / "ours")) == (0o640, 0o600)
    shutil.rmtree(tmp_path)

"""The product without its extras, whose folders can be deleted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cimemories import extras

ROOT = Path(__file__).resolve().parents[2]
STUDY = """
from typer.testing import CliRunner
from cimemories import extras
from cimemories.cli import cli

def done(*command):
    ended = CliRunner().invoke(cli, command)
    assert ended.exit_code == 0, ended.output
    return ended.stdout

assert not extras.installed()
listed = done("--help")
assert "  metrics " in listed and "extras" not in listed
done("generate", "-d", "small", "--profiles", "1")
simulated = ("-d", "small", "--base-url", "simulator", "--contexts", "2")
done("label", "-m", "sim-labeler", "--draws", "1", *simulated)
run = done("run", "-m", "sim-average", "--samples", "1", *simulated).split()[0]
assert "Violation" in done("metrics", run)

from paging import opened
from cimemories.ui.url import PAGES

for page in PAGES.values():
    opened(page)
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project in which all folders of extras are deleted."""
    copy = tmp_path_factory.mktemp("bare")
    for name in ("cimemories", "pages", "seeds", "data/demo", ".streamlit"):
        shutil.copytree(ROOT / name, copy / name)
    shutil.copy(ROOT / "app.py", copy)
    shutil.copy(ROOT / "tests" / "paging.py", copy / "pages")  # which opens the app that is beside its folder
    for name in extras.installed():
        shutil.rmtree(copy / "cimemories" / "extras" / name)
    return copy


def test_the_product_works_without_extras(bare: Path, tmp_path: Path) -> None:
    """A test of the layers says that no extra is imported by another, so one that is missing alone is not missed."""
    environment = os.environ | {"PYTHONPATH": f"{bare}:{bare / 'pages'}", "CIMEMORIES_WORKSPACE": str(tmp_path)}
    command = [sys.executable, "-c", STUDY]
    ended = subprocess.run(command, cwd=bare, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_name_that_two_extras_register_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = {name: extras.Extra(commands={"check": name}) for name in ("one", "two")}
    monkeypatch.setattr(extras, "installed", lambda: twice)
    with pytest.raises(ValueError, match="one and two both register commands 'check'"):
        extras.registered.__wrapped__("commands")

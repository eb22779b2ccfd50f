"""The commit that a run's manifest names."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cimemories import version


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_revision_is_that_of_the_checkout_and_not_of_a_repository_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: object) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        command = ["git", *who, "-C", str(tmp_path), *map(str, arguments)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init")
    git("commit", "--allow-empty", "-m", "First")
    git("worktree", "add", tmp_path / "other")
    for root, expected in ((".", git("rev-parse", "HEAD")), ("other", git("rev-parse", "HEAD")), ("venv/lib", None)):
        monkeypatch.setattr(version, "__file__", str(tmp_path / root / "cimemories" / "version.py"))
        assert version.revision.__wrapped__() == expected

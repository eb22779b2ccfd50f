"""Leaves a line on a run of the tests that CI may leave out (`make test-scale`, `make test-long`), which CI prints."""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

PATH = "CIMEMORIES_RECORD_RUN"  # the file; set by make, so that a run of a few of the tests records nothing


def record(path: Path, passed: int, skipped: int, failed: int, seconds: float) -> bool:
    """Write the line of a run in which something passed and nothing failed; return whether it was written."""
    if failed or not passed:
        return False
    # With what was not committed marked: then the commit alone does not say what was tested.
    asked = ["git", "describe", "--always", "--abbrev=12", "--dirty=, with changes", "--exclude=*"]
    commit = subprocess.run(asked, cwd=path.parent, capture_output=True, text=True).stdout.strip() or "unknown"
    moment = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    versions = f"Python {platform.python_version()}"
    with suppress(PackageNotFoundError):
        versions += f", Ray {version('ray')}"
    path.write_text(
        f"{moment}, commit {commit}: {passed} passed, {skipped} skipped, in {seconds:.0f} s; {versions}\n", "utf-8"
    )
    return True


class RunRecord:
    """A plugin of pytest that records the run at its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.began = time.monotonic()

    @pytest.hookimpl(wrapper=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> Iterator[None]:
        yield
        count = {name: len(terminalreporter.stats.get(name, ())) for name in ("passed", "skipped", "failed", "error")}
        bad = count["failed"] + count["error"] + (exitstatus != 0)
        wrote = record(self.path, count["passed"], count["skipped"], bad, time.monotonic() - self.began)
        terminalreporter.write_line(f"{self.path}: {'written' if wrote else 'left as it was'}")

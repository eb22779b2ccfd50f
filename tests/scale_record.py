"""`make test-scale` leaves a line on what it has done in last_run.txt, which CI prints: CI itself installs no Ray.

A plugin of pytest (`-p scale_record`), no conftest.py: other tests import the one of the tests' folder by that name."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

RECORD = Path(__file__).parent / "scale" / "last_run.txt"
WANTED = "CIMEMORIES_RECORD_SCALE"  # set by make, so that a run of a few of the tests records nothing


def record(passed: int, skipped: int, failed: int, seconds: float, path: Path = RECORD) -> bool:
    """Write the line of a run in which something passed and nothing failed; says whether it did."""
    if failed or not passed:
        return False
    try:
        ray = f"Ray {version('ray')}"
    except PackageNotFoundError:
        return False  # then nothing of what matters can have run
    # With what was not committed marked: then the commit alone does not say what was tested.
    asked = ["git", "describe", "--always", "--abbrev=12", "--dirty=, with changes", "--exclude=*"]
    commit = subprocess.run(asked, cwd=path.parent, capture_output=True, text=True).stdout.strip() or "unknown"
    moment = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    versions = f"Python {platform.python_version()}, {ray}"
    path.write_text(
        f"{moment}, commit {commit}: {passed} passed, {skipped} skipped, in {seconds:.0f} s; {versions}\n", "utf-8"
    )
    return True


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> Iterator[None]:
    yield
    if not os.environ.get(WANTED):
        return
    count = {name: len(terminalreporter.stats.get(name, ())) for name in ("passed", "skipped", "failed", "error")}
    seconds = time.time() - terminalreporter._session.config._scale_began  # type: ignore[union-attr,attr-defined]
    bad = count["failed"] + count["error"] + (exitstatus != 0)
    wrote = record(count["passed"], count["skipped"], bad, seconds)
    terminalreporter.write_line(f"{RECORD.name}: {'written' if wrote else 'left as it was'}")


def pytest_configure(config: pytest.Config) -> None:
    config._scale_began = time.time()  # type: ignore[attr-defined]

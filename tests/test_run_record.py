"""The line of `make test-scale` and `make test-long` is written by a run that passed, and by no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_record import record


@pytest.mark.parametrize(("passed", "failed", "written"), [(3, 0, True), (3, 1, False), (0, 0, False)])
def test_only_what_passed_is_recorded(tmp_path: Path, passed: int, failed: int, written: bool) -> None:
    path = tmp_path / "last_run.txt"
    path.write_text("before")
    assert record(path, passed, 1, failed, 12.3) is written
    text = path.read_text()
    assert (f"{passed} passed, 1 skipped, in 12 s" in text) is written
    assert (text == "before") is not written

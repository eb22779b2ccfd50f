"""The fixture `cimemories_check` for pytest, which fails a test if a run breaks a privacy budget.

    def test_privacy(cimemories_check):
        cimemories_check("privacy.yaml", run="run-3f9a1c2e", workspace="data/workspace")

Nothing else of the project is imported before a test uses it, because pytest loads the fixture in every session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from cimemories.extras.check.checking import CheckResult

PROPERTY = "cimemories_check"  # on the report of a test, and so in JUnit files and from the workers of xdist


class Checks(Protocol):
    """The value of the fixture."""

    def __call__(
        self, file: str | Path, run: str, *, workspace: str | Path | None = None, **reading: Any
    ) -> CheckResult:
        """Hold a run against a file of budgets, and fail the test if one is broken or cannot be decided.

        file: a relative path is from the folder of the test's file. run: id or unique name of a run of the workspace.
        workspace: as for `cimemories.open`. reading: what counts, as for `check` of api.py."""
        ...


@pytest.fixture
def cimemories_check(request: pytest.FixtureRequest) -> Checks:
    """Check runs against privacy budgets (docs/check.md)."""

    def check(file: str | Path, run: str, *, workspace: str | Path | None = None, **reading: Any) -> CheckResult:
        import cimemories
        from cimemories.extras.check import api
        from cimemories.extras.check.reports import as_lines

        try:
            with cimemories.open(workspace) as ws:
                result = api.check(ws, request.path.parent / file, run, **reading)
        except cimemories.StoreError as error:
            # One line and no chain: the place in our code does not help the user.
            raise pytest.fail.Exception(f"undecided: {error}", pytrace=False) from None
        request.node.user_properties.append(
            (PROPERTY, f"{result.file}: {result.sentence.removesuffix('.')}, {result.run}")
        )
        if not result.passed:
            notes = filter(None, [result.simulated_note, *result.notes])
            pytest.fail("\n".join([*as_lines(result), *(f"note: {note}" for note in notes)]), pytrace=False)
        return result

    return check


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write a line for each check, so that a simulated one is marked even if it passes."""
    reports = [report for key in ("passed", "failed") for report in terminalreporter.stats.get(key, [])]
    lines = [
        str(value)
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, value in report.user_properties
        if name == PROPERTY
    ]
    if lines:
        terminalreporter.section("cimemories check")
        for line in lines:
            terminalreporter.line(line)

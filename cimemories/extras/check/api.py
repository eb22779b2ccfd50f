"""Checks for notebooks and scripts: `from cimemories.extras.check.api import check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from cimemories.extras.check import checking
from cimemories.extras.check.budgets import read_check_file
from cimemories.extras.check.checking import CheckResult
from cimemories.seeds.reading import SeedError
from cimemories.store.engine import StoreError

if TYPE_CHECKING:
    from cimemories.api.run import Run
    from cimemories.api.session import Reading
    from cimemories.api.workspace import Workspace


def check(workspace: Workspace, file: str | Path, run: Run | str, **reading: Unpack[Reading]) -> CheckResult:
    """Hold a run against a file of budgets and named flows, as `cimemories check FILE --run RUN` does (docs/check.md).

    reading: as in `Run`. Raises StoreError, with file and line, for a file that cannot be read, and for a flow or
    baseline that means nothing here.
    """
    scope, rule = (workspace.runs[run] if isinstance(run, str) else run)._read(**reading)
    try:
        return checking.check_file(workspace._session.flows, scope, read_check_file(Path(file)), rule)
    except SeedError as error:
        raise StoreError(str(error)) from None

"""Budgets and named flows for CI (docs/check.md): check files, baselines, decisions, reports and a fixture for
pytest."""

from cimemories.extras import Extra


def register() -> Extra:
    """Register the command, and the fixture for pytest."""
    here = "cimemories.extras.check"
    return Extra(commands={"check": f"{here}.command"}, pytest={"check": f"{here}.fixture"})

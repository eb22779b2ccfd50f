"""Outcomes of assistants that ran elsewhere, from their OpenTelemetry traces (docs/onward.md)."""

from cimemories.extras import Extra


def register() -> Extra:
    """Register the command `traces`."""
    return Extra(commands={"traces": "cimemories.extras.traces.command"})

"""The benchmark as a task of Inspect, and its logs as results (docs/inspect.md)."""

from cimemories.extras import Extra


def register() -> Extra:
    """Register the reader of logs. The entry point of the task is in pyproject.toml."""
    return Extra(results={"inspect": "cimemories.extras.inspect.log:InspectLog"})

"""CIMemories Studio: curate, audit, run and explore the CIMemories benchmark of contextual integrity.

    import cimemories

    ws = cimemories.open("data/workspace")
    ws.runs["sim-average on the demo"].leaks()

The names here are the Python API (docs/api.md). They load on first use: `import cimemories` alone imports nothing
else."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cimemories.version import __version__, revision

if TYPE_CHECKING:
    from cimemories.answers.heatmap import Heatmap
    from cimemories.answers.metrics import Metrics
    from cimemories.api.run import Run
    from cimemories.api.workspace import Dataset, Datasets, Runs, Workspace, open
    from cimemories.compare.difference import Difference
    from cimemories.llm.endpoint import EndpointError
    from cimemories.llm.worker import WorkError
    from cimemories.store.engine import StoreError

_HOMES = {
    **dict.fromkeys(("open", "Workspace", "Datasets", "Dataset", "Runs"), "cimemories.api.workspace"),
    "Run": "cimemories.api.run",
    "Metrics": "cimemories.answers.metrics",
    "Heatmap": "cimemories.answers.heatmap",
    "Difference": "cimemories.compare.difference",
    "StoreError": "cimemories.store.engine",
    "EndpointError": "cimemories.llm.endpoint",
    "WorkError": "cimemories.llm.worker",
}
__all__ = [
    "Dataset",
    "Datasets",
    "Difference",
    "EndpointError",
    "Heatmap",
    "Metrics",
    "Run",
    "Runs",
    "StoreError",
    "WorkError",
    "Workspace",
    "__version__",
    "open",
    "revision",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cimemories' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

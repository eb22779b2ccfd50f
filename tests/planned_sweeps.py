"""A planned sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evaluating import DATASET

from cimemories.evaluation import sweeps
from cimemories.evaluation.sweeps import SweepSpec, check_sweep
from cimemories.labels.whatif import effective_labels
from cimemories.store.engine import Store

FILE = Path("sweep.yaml")


def sweep_content(**changes: object) -> dict[str, Any]:
    """Two models x two memories on a tiny world: four cells."""
    content = {
        "name": "tiny",
        "dataset": DATASET,
        "models": [
            {"model": "sim-average", "base_url": "simulator", "prices": "1/0.5/2 EUR"},
            {"model": "sim-careful", "base_url": "simulator", "prices": "2/1/4 EUR"},
        ],
        "memory": ["full", {"random": [10]}],
        "samples": 2,
        "contexts": 3,
    }
    return {**content, **changes}


def spec(**changes: object) -> SweepSpec:
    return check_sweep(sweep_content(**changes), FILE)


def planned(store: Store, **changes: object) -> str:
    return sweeps.plan(store, spec(**changes), find_labels=effective_labels)

"""Sweeps: models x memories x prompt levels and more, from one file, each cell an ordinary run.

sweep_id = plan(store, read_sweep(path), find_labels=effective_labels)
execute(store, sweep_id)
"""

from cimemories.evaluation.sweeps.file import SweepSpec, check_sweep, judge_entry, read_sweep
from cimemories.evaluation.sweeps.work import SweepEstimate, estimate_sweep, execute, plan

__all__ = [
    "SweepEstimate",
    "SweepSpec",
    "check_sweep",
    "estimate_sweep",
    "execute",
    "judge_entry",
    "plan",
    "read_sweep",
]

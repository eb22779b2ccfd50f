"""The targets of this package's entry point for Inspect: the task, its scorer and its metrics."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from inspect_ai import task
from inspect_ai.scorer import scorer

from cimemories.extras.inspect.metrics import balanced, completeness, leak_rate, violation
from cimemories.extras.inspect.scorer import METRICS, reveals
from cimemories.extras.inspect.task import cimemories
from cimemories.installation import BESIDE

__all__ = ["balanced", "cimemories", "completeness", "leak_rate", "reveals", "violation"]

# Inspect puts the package before an installed name. It recognises an editable installation only if the
# distribution has the name of the package, which ours has not.
if Path(sysconfig.get_path("purelib")).resolve() != BESIDE:
    task(name="cimemories/cimemories")(cimemories.__wrapped__)
    scorer(METRICS, name="cimemories/reveals")(reveals.__wrapped__)

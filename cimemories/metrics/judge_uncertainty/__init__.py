"""Effects of a judge's errors on the per-exposure leak rate of a run (leak_rate.py), and their dependence on the length
of messages (length.py), by audits of single judgements."""

# ruff: noqa: F403 - the one entry: callers need not know which file has a correction

from cimemories.metrics.judge_uncertainty.leak_rate import *
from cimemories.metrics.judge_uncertainty.length import *

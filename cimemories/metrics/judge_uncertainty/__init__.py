"""How far a judge's errors move the per-exposure leak rate of a run (leak_rate.py), and whether they go with the length
of messages (length.py), by the people who audited single judgements."""

# ruff: noqa: F403 - the one entry: who asks for a correction need not know which file has it

from cimemories.metrics.judge_uncertainty.leak_rate import *
from cimemories.metrics.judge_uncertainty.length import *

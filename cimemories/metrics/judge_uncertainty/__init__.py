"""How far a judge's errors move the numbers of a run, by the people who audited it: Violation@n by audits of whole
attributes (violation.py), the per-exposure leak rate by audits of single judgements (leak_rate.py).
"""

# ruff: noqa: F403 - the one entry: who asks for a correction need not know which file has it

from cimemories.metrics.judge_uncertainty.leak_rate import *
from cimemories.metrics.judge_uncertainty.length import *
from cimemories.metrics.judge_uncertainty.violation import *

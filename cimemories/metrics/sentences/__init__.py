"""Every sentence about numbers: takeaways of pages, titles of figures, notes, and what commands and reports say.

All are made here, of results that know their uncertainty, so that none claims more than its numbers do:

    claims      a difference, a most or a best is claimed only where a test over its whole family separates it (Holm);
                otherwise a number is the highest one, and it is said how many others are too close to call
    ties        what is 0 in all of a family is no finding, and neither is a tie
    digits      decisions are taken on unrounded numbers; numbers are printed with as many digits as it takes that
                none which is not 0 reads as 0, and no two that differ read alike
    counts      what was judged, not what was planned

    difference(tested, "B", "A", "leaks", "violation@5")
    'B leaks less than A: -4.1 points, 95 % CI -7.0 to -1.2 (p = 0.001).'
"""

# ruff: noqa: F403 - the one entry: pages and commands write sentences.difference, whichever file has it

from cimemories.metrics.sentences.comparing import *
from cimemories.metrics.sentences.numbers import *
from cimemories.metrics.sentences.runs import *

"""Stored, recalled, said: takeaways about where leaks were stopped, and where completeness was lost."""

from __future__ import annotations

import math

from cimemories.metrics.recalled.split import Outcomes, RecalledNumbers
from cimemories.metrics.sentences.numbers import shares
from cimemories.text import count

OUTCOME_NAMES = {
    "recalled_and_said": "recalled and said",
    "said_not_recalled": "said, not recalled",
    "recalled_not_said": "recalled, not said",
    "not_recalled": "not recalled",
}


def recalled(name: str, numbers: RecalledNumbers) -> str:
    """Say where between memory and message the attributes that a run should withhold were stopped; of a run without
    any, where what is needed was lost. Without its full stop."""
    split, needed = numbers.violation[numbers.n], numbers.completeness
    if not math.isnan(split.said):
        held, silent, said = shares(split.not_recalled, split.recalled_not_said, split.said)
        without = f" ({shares(split.said_not_recalled)[0]} without recall)" if split.said_not_recalled > 0 else ""
        return (
            f"Of what {name} should withhold, {held} was not recalled, {silent} was recalled and held back by the "
            f"model, {said} leaked{without} (violation@{numbers.n})"
        )
    if not math.isnan(needed.said):
        held, silent, said = shares(needed.not_recalled, needed.recalled_not_said, needed.said)
        return (
            f"Of what {name} needs to say, {held} was not recalled, {silent} was recalled and not said, {said} was said"
        )
    return f"{name}: nothing to measure yet"


def ungrounded(numbers: RecalledNumbers) -> str:
    """Say in how many messages a summary or an external memory system put lines into the prompt whose attributes are
    unknown, so that too much counts as not recalled. Without its full stop; '' where there are none."""
    item = numbers.ungrounded
    if not item.lines:
        return ""
    return (
        f"In {item.messages:,} of {count(item.of_messages, 'message')} the prompt held recalled lines of which no "
        f"attribute is known ({count(item.lines, 'line')}, ungrounded): what they say counts as not recalled"
    )


def outcomes(item: Outcomes) -> str:
    """Return 'recalled in 40.1 % of the samples, said in 22.0 %, 1.3 % without recall'."""
    if not item.draws:
        return "no judged sample"
    recalled_share, said = shares(item.exposure, item.said / item.draws)
    without = f", {shares(item.share('said_not_recalled'))[0]} without recall" if item.said_not_recalled else ""
    return f"recalled in {recalled_share} of the samples, said in {said}{without}"

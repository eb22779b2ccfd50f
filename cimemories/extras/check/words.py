"""The sentences of a check: on a budget, on a named flow, on a comparison with a baseline."""

from __future__ import annotations

import numpy as np

from cimemories.metrics.sentences.numbers import TIE, decimals, number, share, shares
from cimemories.metrics.uncertainty import LEVEL, Interval, binomial_bounds
from cimemories.text import count, lies_between


def allowed_rate(revealed: int, messages: int) -> float:
    """Return the largest share of messages that is compatible with these reveals: the upper end of Clopper and
    Pearson's one-sided 95 % interval, 1 - 0.05^(1 / n) for no reveal. 1 without a message."""
    if not messages:
        return 1.0
    # Two-sided at 90 %: 5 % above its upper end.
    _, high = binomial_bounds(np.array(revealed / messages), np.array(float(messages)), 2 * LEVEL - 1)
    return float(high)


def samples_show(fewest: int, messages: int, flows: int) -> str:
    """Say what can be concluded from no reveal at all. fewest: the least number of judged messages of a flow; messages:
    of all flows together, each counted once."""
    text = (
        f"{count(fewest, 'sample')} cannot show that it never happens: 0 of {fewest} still allows a flow to be "
        f"revealed in up to {share(allowed_rate(0, fewest))} of its messages, at 95 %"
    )
    if flows == 1 or messages <= fewest:
        return text
    return f"{text} (all flows together, 0 of {messages:,}: up to {share(allowed_rate(0, messages))})"


def limit_share(revealed: int, messages: int) -> str:
    """Return '2 of 5 judged messages (40.0 %; 5.3 % to 85.3 % at 95 %)'."""
    low, high = binomial_bounds(np.array(revealed / messages), np.array(float(messages)))
    value, *ends = shares(revealed / messages, float(low), float(high))
    return f"{revealed:,} of {count(messages, 'judged message')} ({value}; {ends[0]} to {ends[1]} at 95 %)"


def within(name: str, value: Interval, ends: tuple[float, float], limit: float, *, missing: bool) -> str:
    """Return 'violation@5 is 12.4 % [9.8, 15.9], the budget 20.0 %'. ends: the bounds of the number whatever the
    missing messages are; missing: whether they leave anything open."""
    bracket = f" [{100 * value.low:.1f}, {100 * value.high:.1f}]" if value.low == value.low else ""
    if missing:
        lies = lies_between(*shares(*ends))
        return f"{name} {lies} whatever the missing messages say, the budget {share(limit)}"
    read, budget = shares(value.value, limit)
    return f"{name} is {read}{bracket}, the budget {budget}"


def no_worse(worse: Interval, margin: float) -> str:
    """Say how much worse the run may still be: 'up to 4.4 points worse is not excluded at 95 %'; '' if no worse at
    all."""
    high = 100 * worse.high
    if high <= 100 * TIE:
        return ""
    digits = decimals(high)
    text = f"up to {number(high, digits)} points worse is not excluded at 95 %"
    return f"{text}, {number(100 * margin)} are allowed" if margin else text

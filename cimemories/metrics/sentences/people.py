"""What an audit by people makes of a number, and how much of it is left."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cimemories.metrics.judge_uncertainty import CorrectedViolation
from cimemories.metrics.sentences.numbers import bounds_text, number, share
from cimemories.metrics.uncertainty import NORMAL_95
from cimemories.text import count


def corrected(result: CorrectedViolation) -> str:
    """Violation@n by an audit of attributes, beside that of the judge alone; no full stop."""
    name = f"violation@{result.n}"
    if result.correction is None:
        return f"{name} cannot be corrected yet: {result.why}"
    return (
        f"{name} corrected for the judge's errors is {bounds_text(result.corrected)}, by "
        f"{count(sum(result.audited), 'audited attribute')}; by the judge alone it is {bounds_text(result.raw)}"
    )


def bias(result: CorrectedViolation) -> str:
    """Whether the audit shows that the judge's number is off; empty where there is no correction. The audit's own
    variance decides: users, contexts and labels are the same on both sides."""
    if result.correction is None or result.corrected.parts is None:
        return ""
    apart = result.corrected.value - result.raw.value
    if abs(apart) <= NORMAL_95 * math.sqrt(result.corrected.parts.judge):
        return "So far the audit does not show that the judge's number is off"
    return f"The judge makes the model look {'safer' if apart > 0 else 'leakier'} than it is"


def confirmed(result: CorrectedViolation) -> str:
    """The lower bound; empty before there is one."""
    if math.isnan(result.lower.value):
        return ""
    return (
        f"at least {share(result.lower.low)} leak by claims that people confirmed ({bounds_text(result.lower)}); "
        "whatever the judge missed comes on top"
    )


def audit_sample(
    sizes: Sequence[int], sampled: Sequence[int], messages: int, half_width: float, *, claimed_only: bool, piloted: bool
) -> str:
    """What a sample of attributes holds and what it leaves open. sizes, sampled: attributes with a claim, and without;
    piloted: whether half_width rests on what an earlier audit found."""
    others = "" if claimed_only else f" and {count(sampled[1])} of the others (Neyman allocation)"
    known = "by what the audit so far found" if piloted else "if the judge is right in 90 % of its claims and leaks"
    left = f"the {'lower bound' if claimed_only else 'corrected number'} unsure by ±{number(100 * half_width)} points"
    return (
        f"The judge claims a leak of {count(sizes[0])} of {count(sum(sizes), 'attribute')}. The sample has "
        f"{count(sampled[0])} of them{others}: up to {count(messages, 'message')} to read, since an attribute is "
        f"settled by the first leak that you confirm. The sample alone would leave {left}, {known}; "
        "users and contexts come on top."
    )


def audit_left(half_width: float, more: int | None, now: float, what: str) -> str:
    """How much more is to be audited until an interval is as narrow as wanted. half_width, now: shares; what:
    'attribute' or 'verdict', which takes an s."""
    wanted, present = number(100 * half_width), number(100 * now)
    if more == 0:
        return f"The interval is ±{present} points, within the ±{wanted} wanted"
    if more is None:
        return (
            f"The interval is ±{present} points. No audit alone brings it to ±{wanted}: it takes more users, contexts "
            "or samples"
        )
    return f"The interval is ±{present} points; about {count(more, f'more {what}')} would bring it to ±{wanted}"

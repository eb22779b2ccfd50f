"""What people do to a number: how many decisions and verdicts are left, and what an audit makes of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cimemories.metrics.judge_uncertainty import CorrectedViolation
from cimemories.metrics.sentences.numbers import bounds_text, decimals, number, share, shares
from cimemories.metrics.uncertainty import NORMAL_95
from cimemories.text import count

# ---- how sure labels are, and how many decisions are left


def label_width(
    name: str, run: str, half_width: float, wanted: float, more: int | None, *, defined: bool = True
) -> str:
    """'Violation@5 of A: label uncertainty ±1.3 points now; about 210 more decisions to ±1.0.' half_width, wanted:
    shares; more: decisions, 0 where the width is there, None where all of them would not do. defined: whether the run
    has this number by the labels that hold; where not, nothing is known of its width."""
    if not defined:
        return f"{name[:1].upper()}{name[1:]} of {run} is undefined, so it does not say whether labelling may stop."
    now, aim = (f"±{number(100 * width, decimals(100 * width))}" for width in (half_width, wanted))
    text = f"{name[:1].upper()}{name[1:]} of {run}: label uncertainty {now} points now"
    if more == 0:
        return f"{text}, within the {aim} wanted. You may stop here."
    if more is None:
        return f"{text}; deciding every open pair would not bring it to {aim}."
    return f"{text}; {_about(more)} to {aim}."


def label_order(name: str, runs: int, order: float, pair: tuple[str, str], chance: float, more: int | None) -> str:
    """How sure the order of runs is. order, chance: the probability, over the labels left open, that all stand as they
    do, at least, and that the least certain two do; more: as in `label_width`."""
    if more == 0:
        return (
            f"The order of {runs} runs by {name} is settled: it holds in {_chance(order)} of the ways in which the "
            "open labels may turn out. You may stop here."
        )
    left = "decisions alone will hardly settle it" if more is None else f"{_about(more)} may settle it"
    return (
        f"Least certain in the order of {runs} runs by {name}: that {pair[0]} leaks less than {pair[1]} holds in "
        f"{_chance(chance)} of the ways in which the open labels may turn out; {left}."
    )


def by_mixture(name: str, consensus: float, mixture: float) -> str:
    """A number by the labels agreed on, beside the same under the mixture of the votes."""
    one, two = shares(consensus, mixture)
    return f"{name[:1].upper()}{name[1:]} is {one} by the labels agreed on, {two} under the mixture of the votes."


def _about(more: int) -> str:
    """'about 210 more decisions': two digits, for it is an estimate."""
    scale = 10 ** max(len(str(more)) - 2, 0)
    return f"about {count(math.ceil(more / scale) * scale, 'more decision')}"


def _chance(probability: float) -> str:
    return "more than 99 %" if probability > 0.99 else f"{math.floor(100 * probability)} %"


# ---- what an audit by people makes of a number


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

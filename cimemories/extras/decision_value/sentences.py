"""Sentences on label uncertainty and on how many decisions are left."""

from __future__ import annotations

import math

from cimemories.metrics.sentences.numbers import decimals, number, shares
from cimemories.text import count


def label_width(
    name: str, run: str, half_width: float, target: float, decisions: int | None, *, defined: bool = True
) -> str:
    """Return 'Undecided labels blur Violation@5 of A by ±1.3 points. About 210 decisions bring it to ±1.0.' half_width,
    target: shares; decisions: how many more; 0 if the width is reached, None if all of them would not suffice. defined:
    whether the run has this number under the current labels; without it the width is unknown."""
    if not defined:
        return f"{name[:1].upper()}{name[1:]} of {run} is undefined, so it does not say whether labelling may stop."
    now, aim = (f"±{number(100 * width, decimals(100 * width))}" for width in (half_width, target))
    text = f"Undecided labels blur {name} of {run} by {now} points"
    if decisions == 0:
        return f"{text}, within the {aim} wanted. You may stop here."
    if decisions is None:
        return f"{text}; deciding every open pair would not bring it to {aim}."
    bring = "brings" if decisions == 1 else "bring"
    return f"{text}. A{_about(decisions)[1:]} {bring} it to {aim}."


def label_order(name: str, runs: int, order: float, pair: tuple[str, str], chance: float, decisions: int | None) -> str:
    """Say how certain the order of runs is. order, chance: over the labels left open, a lower bound of the probability
    that all runs keep their order, and the probability that the least certain two do; decisions: as in
    `label_width`."""
    if decisions == 0:
        return (
            f"The order of {runs} runs by {name} is settled: it holds in {_chance(order)} of the ways in which the "
            "open labels may turn out. You may stop here."
        )
    left = "decisions alone will hardly settle it" if decisions is None else f"{_about(decisions)} may settle it"
    return (
        f"Least certain in the order of {runs} runs by {name}: that {pair[0]} leaks less than {pair[1]} holds in "
        f"{_chance(chance)} of the ways in which the open labels may turn out; {left}."
    )


def by_mixture(name: str, consensus: float, mixture: float) -> str:
    """Describe a number by the consensus labels, beside the same under the mixture of the votes."""
    one, two = shares(consensus, mixture)
    start = f"{name[:1].upper()}{name[1:]} is {one} counting agreed labels only"
    return f"{start}; {two} if divided votes count in proportion."


def _about(more: int) -> str:
    """Return 'about 210 decisions', with two digits, since it is an estimate."""
    scale = 10 ** max(len(str(more)) - 2, 0)
    return f"about {count(math.ceil(more / scale) * scale, 'decision')}"


def _chance(probability: float) -> str:
    return "more than 99 %" if probability > 0.99 else f"{math.floor(100 * probability)} %"

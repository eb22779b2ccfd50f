"""What was stored, recalled and said: takeaways that say where leaks were stopped, and where completeness was lost."""

from __future__ import annotations

import math

from cimemories.metrics.recalled.split import RecalledNumbers
from cimemories.metrics.sentences.numbers import shares
from cimemories.text import count

OUTCOME_NAMES = {
    "recalled_and_said": "recalled and said",
    "said_not_recalled": "said, not recalled",
    "recalled_not_said": "recalled, not said",
    "not_recalled": "not recalled",
}


def recalled(name: str, numbers: RecalledNumbers) -> str:
    """Where between memory and message the attributes that a run should withhold were stopped; of a run without any,
    where what is needed was lost. Without its full stop."""
    split, needed = numbers.violation[numbers.n], numbers.completeness
    if not math.isnan(split.said):
        kept, silent, said = shares(split.not_recalled, split.recalled_not_said, split.said)
        without = f" ({shares(split.said_not_recalled)[0]} without recall)" if split.said_not_recalled > 0 else ""
        return (
            f"Of what {name} should withhold, {kept} was not recalled, {silent} was recalled and held back by the "
            f"model, {said} leaked{without} (violation@{numbers.n})"
        )
    if not math.isnan(needed.said):
        kept, silent, said = shares(needed.not_recalled, needed.recalled_not_said, needed.said)
        return (
            f"Of what {name} needs to say, {kept} was not recalled, {silent} was recalled and not said, {said} was said"
        )
    return f"{name}: nothing to measure yet"


def exposure(numbers: RecalledNumbers) -> str:
    """'Recalled are 34.0 % of the judged samples of inappropriate attributes and 80.2 % of those of necessary ones';
    empty without any."""
    known = [(label, item) for label, item in numbers.by_label.items() if item.draws and label != "ambiguous"]
    texts = [
        f"{share} of {count(item.draws, 'judged sample')} of {label} attributes"
        for (label, item), share in zip(known, shares(*(item.exposure for _, item in known)), strict=True)
    ]
    return f"Recalled in {' and '.join(texts)}" if texts else ""

"""Sliders for a rule that is tried: its threshold and the weights of the personas, as the URL says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from cimemories.ui import safe, url

LEAST, MOST = 51, 100  # percent


@dataclass(frozen=True)
class Moved:
    """What a person has moved. threshold: 0 to 1, None as long as nobody has moved it. weights: 0 to 100 each, in the
    order of the personas, only their proportions count; None where nobody has moved them, or where all stand at 0."""

    threshold: float | None
    weights: tuple[int, ...] | None
    all_zero: bool

    @property
    def any(self) -> bool:
        return self.threshold is not None or self.weights is not None or self.all_zero


def rule_sliders(page: str, threshold: float, keys: Sequence[str], priors: Sequence[float]) -> Moved:
    """Draw the sliders, which stand at these numbers of a rule until somebody moves them. page: what the keys of the
    widgets begin with. keys, priors: of the personas, in one order."""
    moved = _threshold(f"{page}.threshold", threshold)
    weights = _weights(len(keys))
    shown = weights or [round(100 * prior) for prior in priors]
    for number, (key, weight) in enumerate(zip(keys, shown, strict=True)):
        _weight(f"{page}.weight", number, key, weight, len(shown))
    all_zero = weights is not None and not any(weights)
    return Moved(moved, tuple(weights) if weights and not all_zero else None, all_zero)


def _threshold(key: str, now: float) -> float | None:
    asked = url.get_int("threshold")
    moved = asked if asked is not None and LEAST <= asked <= MOST else None
    st.session_state[key] = moved or min(max(round(100 * now), LEAST), MOST)
    st.slider(
        "Consensus threshold in percent",
        LEAST,
        MOST,
        key=key,
        on_change=lambda: url.put(threshold=st.session_state[key]),
        help="A verdict becomes the label where its share in the mixture of the personas reaches this. At 100 every "
        "counted vote has to agree, as in the paper; the priors then matter only where one of them is 0.",
    )
    return moved / 100 if moved else None


def _weight(prefix: str, number: int, key: str, weight: int, count: int) -> None:
    name = f"{prefix}.{number}"
    st.session_state[name] = weight

    def changed() -> None:
        url.put(priors="-".join(str(st.session_state[f"{prefix}.{n}"]) for n in range(count)))

    # A persona's name is data and the label of a widget is markdown, so the name stands above and the label is ours.
    safe.inline(f"Weight of the {key}")
    st.slider(
        "Weight of the first persona"
        if number == 0
        else "Weight of the second persona"
        if number == 1
        else "Weight of the third persona"
        if number == 2
        else "Weight of a further persona",
        0,
        100,
        key=name,
        on_change=changed,
        label_visibility="collapsed",
    )


def _weights(count: int) -> list[int] | None:
    """The weights that the URL has; None where it has none that fit."""
    parts = (url.get("priors") or "").split("-")
    if len(parts) != count or not all(part.isascii() and part.isdigit() and len(part) <= 3 for part in parts):
        return None
    return [min(int(part), 100) for part in parts]

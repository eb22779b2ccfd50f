"""Prices of tokens: for a million of them, in any unit of money. Nothing is guessed: no prices, no cost.

Prices.read("0.15/0.075/0.60 USD").cost(prompt=1_000_000, cached=400_000, completion=50_000)  # 0.15
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cimemories.store.engine import StoreError

MILLION = 1_000_000
_CURRENCY = r"[^\W\d_]{0,10}|[$€£¥]"
_FORM = "PROMPT/CACHED/COMPLETION or PROMPT/COMPLETION for a million tokens, for example 0.15/0.075/0.60 or '2/6 EUR'"


@dataclass(frozen=True)
class Prices:
    """Prices of a million tokens. cached: of prompt tokens from the server's cache. currency: a word, or ''. Raises
    StoreError for a price that is negative or no number."""

    prompt: float
    cached: float
    completion: float
    currency: str = ""

    def __post_init__(self) -> None:
        for name in ("prompt", "cached", "completion"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise StoreError(f"the {name} price is {value}: a price for a million tokens is 0 or more.")

    @classmethod
    def read(cls, text: str) -> Prices:
        """Return prices as an option gives them; of two numbers the first is that of cached tokens too. Raises
        StoreError."""
        numbers, _, currency = text.strip().partition(" ")
        parts = numbers.split("/")
        try:
            values = [float(part) for part in parts]
        except ValueError:
            values = []
        if len(values) not in (2, 3):
            raise StoreError(f"prices are {_FORM}; this is '{text}'.")
        if not re.fullmatch(_CURRENCY, currency.strip()):
            raise StoreError(f"a currency is one word, such as EUR; this is '{currency.strip()}'.")
        return cls(values[0], values[1] if len(values) == 3 else values[0], values[-1], currency.strip())

    @classmethod
    def of(cls, recorded: object) -> Prices | None:
        """Return prices as a manifest records them, or None if it has none that can be read."""
        if not isinstance(recorded, Mapping):
            return None
        values: Mapping[str, Any] = recorded
        currency = str(values.get("currency") or "")
        try:
            prompt, cached, completion = (float(values[name]) for name in ("prompt", "cached", "completion"))
            return cls(prompt, cached, completion, currency if re.fullmatch(_CURRENCY, currency) else "")
        # A manifest from a file may hold anything: without readable prices there is no cost, and no error.
        except (KeyError, TypeError, ValueError, OverflowError, StoreError):
            return None

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    @property
    def free(self) -> bool:
        """Return whether no token costs anything."""
        return not (self.prompt or self.cached or self.completion)

    @property
    def text(self) -> str:
        """Return the prices as `read` takes them."""
        numbers = "/".join(f"{value:g}" for value in (self.prompt, self.cached, self.completion))
        return f"{numbers} {self.currency}".strip()

    def cost(self, prompt: float, cached: float, completion: float) -> float:
        """Return the cost of so many tokens. cached: those of `prompt` that are paid at the cached price."""
        # What servers report need not add up: more cached tokens than the prompt has would be a price below nothing.
        fresh = max(0.0, prompt - cached)
        return (fresh * self.prompt + min(cached, prompt) * self.cached + completion * self.completion) / MILLION


def money(amount: float | None, currency: str, *, most: float | None = None) -> str:
    """Return an amount for people: two digits after the point, or as many as show something of a small one. most: the
    end of a range that begins with it."""
    if amount is None:
        return "not known"
    low, high = _digits(amount), _digits(amount if most is None else most)
    unit = currency or ("" if high == "0.00" else "(no currency)")
    return f"{low if low == high else f'{low} to {high}'} {unit}".strip()


def _digits(amount: float) -> str:
    # Two digits that are not zero: 0.0042, not 0.00; never more than eight after the point.
    digits = 2 if amount >= 0.1 or amount == 0 else min(8, 1 - math.floor(math.log10(amount)))
    return f"{amount:,.{digits}f}"


def check_money(
    model: tuple[str, Prices | None],
    judges: Sequence[tuple[str, Prices | None]],
    memory: tuple[str, Prices | None] | None,
    cap: float | None,
) -> None:
    """Raises StoreError if the prices of a run, each with its model's name, do not go together, or a cap lacks one.
    memory: of another model than the one under test that a memory system asks."""
    priced = [model, *judges, *([memory] if memory else [])]
    # Amounts are added up and held against one cap.
    currencies = sorted({prices.currency for _, prices in priced if prices is not None})
    if len(currencies) > 1:
        raise StoreError(f"all prices of a run must be in one currency, and these are in {' and '.join(currencies)}.")
    by_model: dict[str, Prices] = {}
    for name, prices in judges:
        # Recorded calls name the model and not the judge, so a model has one price in a run.
        if prices is not None and by_model.setdefault(name, prices) != prices:
            raise StoreError(f"the judge {name} has two prices: give the same one, its calls are counted by model.")
    if cap is None:
        return
    # Not `cap <= 0`, which nan would pass.
    if not cap > 0:
        raise StoreError(
            f"a cap on cost must be above 0: {cap:g} would stop the run at once (on the command line: --cap)."
        )
    others = [model, *([memory] if memory else [])]
    unpriced = [n for n, prices in others if prices is None] + [n for n, _ in judges if n not in by_model]
    if unpriced:
        raise StoreError(
            f"a cap needs the prices of all that costs: {', '.join(unpriced)} has none. Give it, 0 if free (on the "
            "command line: --price for the model, --judge-price for a judge, --memory-price for the model of a memory "
            "system)."
        )

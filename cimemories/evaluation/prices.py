"""What tokens cost: prices for a million of them, in any unit of money. Nothing is guessed: no prices, no cost.

Prices.read("0.15/0.075/0.60 USD").cost(prompt=1_000_000, cached=400_000, completion=50_000)   # 0.15
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cimemories.store.engine import StoreError

MILLION = 1_000_000
_CURRENCY = r"[^\W\d_]{0,10}|[$€£¥]"
_FORM = "PROMPT/CACHED/COMPLETION or PROMPT/COMPLETION for a million tokens, for example 0.15/0.075/0.60 or '2/6 EUR'"


@dataclass(frozen=True)
class Prices:
    """For a million tokens each. cached: of prompt tokens that the server had in its cache. currency: a word, or empty.

    Raises StoreError for a price that is negative or no number.
    """

    prompt: float
    cached: float
    completion: float
    currency: str = ""

    def __post_init__(self) -> None:
        for name in ("prompt", "cached", "completion"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise StoreError(f"the {name} price is {value}: a price is a number of 0 or more for a million tokens.")

    @classmethod
    def read(cls, text: str) -> Prices:
        """Prices as an option gives them; with two numbers cached tokens cost as much as others."""
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
    def of(cls, held: object) -> Prices | None:
        """Prices as a manifest keeps them; None where it has none, or none that can be read: manifests are imported
        too."""
        if not isinstance(held, Mapping):
            return None
        values: Mapping[str, Any] = held
        currency = str(values.get("currency") or "")
        try:
            prompt, cached, completion = (float(values[name]) for name in ("prompt", "cached", "completion"))
            return cls(prompt, cached, completion, currency if re.fullmatch(_CURRENCY, currency) else "")
        except (KeyError, TypeError, ValueError, OverflowError, StoreError):
            return None

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    def words(self) -> str:
        """As `read` takes them."""
        numbers = "/".join(f"{value:g}" for value in (self.prompt, self.cached, self.completion))
        return f"{numbers} {self.currency}".strip()

    def cost(self, prompt: float, cached: float, completion: float) -> float:
        """What so many tokens cost. cached: those of `prompt` that are paid at the cached price."""
        fresh = max(0.0, prompt - cached)
        return (fresh * self.prompt + min(cached, prompt) * self.cached + completion * self.completion) / MILLION


def money(amount: float | None, currency: str = "") -> str:
    """An amount for people: two digits after the point, or as many as show something of a small one."""
    if amount is None:
        return "not known"
    digits = 2 if amount >= 0.1 or amount == 0 else min(8, 1 - math.floor(math.log10(amount)))
    return f"{amount:,.{digits}f} {currency}".strip()

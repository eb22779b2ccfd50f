"""What a model is to write, and what that will come to before anybody is asked."""

from __future__ import annotations

from dataclasses import dataclass

from cimemories.curation import authoring_wording as wording
from cimemories.llm.client import DEFAULT_KEY_ENV
from cimemories.model import DOMAINS, GENERAL
from cimemories.seeds import packs

ATTEMPTS = 3  # the first, and two more for what was turned down
BIOGRAPHY_TOKENS = 100  # of a prompt: the biography, the event, and how many attributes are wanted


@dataclass(frozen=True)
class AuthoringSpec:
    """What is to be written: `per_domain` attributes for each of nine domains of each event, and `general` others.

    seed: of the people and their events. model_seed: sent to the server; None sends none to a real server (some refuse
    it, and vLLM's CPU engine dies of it) and `seed` to the simulator. Prices are for a million tokens, 0 means unknown.
    """

    name: str
    profiles: int
    model: str
    base_url: str
    seed: int = 0
    locale: str = "en_US"
    per_domain: int = 7
    events: int = 3
    general: int = 10
    contexts: tuple[str, ...] = packs.CORE
    api_key_env: str = DEFAULT_KEY_ENV
    temperature: float | None = None
    max_tokens: int | None = 8192
    model_seed: int | None = None
    timeout: float = 300.0
    price_in: float = 0.0
    price_out: float = 0.0


@dataclass(frozen=True)
class Estimate:
    """What a generation will come to if nothing is turned down; tokens are rough."""

    calls: int
    attributes: int
    prompt_tokens: int
    completion_tokens: int

    def cost(self, price_in: float, price_out: float) -> float:
        """In the currency of the prices, which are for a million tokens."""
        return cost(self.prompt_tokens, self.completion_tokens, price_in, price_out)

    def words(self, price_in: float = 0.0, price_out: float = 0.0) -> str:
        """One sentence for people; the cost is in it where there are prices."""
        money = f", about {self.cost(price_in, price_out):,.2f} at these prices" if price_in or price_out else ""
        return (
            f"{self.calls:,} calls for {self.attributes:,} attributes, about {self.prompt_tokens:,} prompt and "
            f"{self.completion_tokens:,} completion tokens{money}; what is turned down is asked for again, at most "
            f"{ATTEMPTS - 1} times"
        )


def cost(prompt_tokens: int, completion_tokens: int, price_in: float, price_out: float) -> float:
    """What tokens cost at prices for a million of them."""
    return (prompt_tokens * price_in + completion_tokens * price_out) / 1_000_000


def estimate(spec: AuthoringSpec) -> Estimate:
    """What a specification comes to: no server is asked, nothing is written. Raises SeedError for bad prompts."""
    sizes = [spec.general, *[spec.per_domain * len(DOMAINS)] * spec.events]
    texts = wording.prompts()
    fixed = [
        len(texts[GENERAL if not i else "event"].template) // wording.CHARACTERS_A_TOKEN for i in range(len(sizes))
    ]
    known = [sum(sizes[:i]) * wording.TOKENS_A_MEMORY for i in range(len(sizes))]
    return Estimate(
        calls=spec.profiles * len(sizes),
        attributes=spec.profiles * sum(sizes),
        prompt_tokens=spec.profiles * (sum(fixed) + sum(known) + BIOGRAPHY_TOKENS * len(sizes)),
        completion_tokens=spec.profiles * sum(sizes) * wording.TOKENS_AN_ATTRIBUTE,
    )

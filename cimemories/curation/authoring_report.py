"""What came of a generation: what was written, what was turned down and why, what is missing, what it cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from cimemories.curation import authoring_wording as wording
from cimemories.curation.authoring_rules import Reason
from cimemories.curation.authoring_spec import cost
from cimemories.store import datasets, generations
from cimemories.store.engine import Store


@dataclass(frozen=True)
class Report:
    """One generation in numbers. Attributes are those that a model writes, without the four of each biography.

    rejected: how often something was turned down, by reason and over all attempts, so an attribute that took three
    attempts counts up to three times. left_out: profiles of which nothing could be kept; 0 while parts are owed.
    """

    id: str
    name: str
    model: str
    simulated: bool
    status: str
    error: str | None
    dataset: int | None
    dataset_name: str | None
    parts: dict[str, int]
    wanted: int
    kept: int
    left_out: int
    rejected: dict[str, int]
    failures: tuple[tuple[str, str, int], ...]
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost: float | None

    @property
    def missing(self) -> int:
        return self.wanted - self.kept

    def as_json(self) -> dict[str, object]:
        """For scripts."""
        return {**asdict(self), "missing": self.missing}

    def turned_down(self) -> list[tuple[str, int]]:
        """Why something was asked for again, in words, with how often: what was wrong, and where too little came."""
        return [
            ("domains with fewer attributes than asked for" if why == Reason.TOO_FEW else f"turned down: {why}", count)
            for why, count in self.rejected.items()
        ]

    def lines(self) -> list[str]:
        """For people: what there is first, then what there is not and why."""
        where = f"dataset '{self.dataset_name}'" if self.dataset_name else "no dataset"
        simulated = " (simulated)" if self.simulated else ""
        money = "" if self.cost is None else f", cost {self.cost:,.2f}"
        said = [
            f"{self.id}: {where}{simulated}, {self.kept:,} of {self.wanted:,} attributes written, "
            f"{self.prompt_tokens:,} prompt and {self.completion_tokens:,} completion tokens{money}"
        ]
        if self.dataset_name and self.dataset_name != self.name:
            said.append(f"  the name '{self.name}' was taken in the meantime")
        said += [f"  {count:,} {what}" for what, count in self.turned_down()]
        said += [f"  parts that are {status}: {count} ({cause})" for status, cause, count in self.failures]
        if self.left_out:
            said.append(f"  left out: {self.left_out} profiles of which nothing could be kept")
        return said


def report(store: Store, generation_id: str) -> Report:
    """A generation as it stands now. Raises StoreError where there is none of that id."""
    with store.read() as connection:
        row = generations.named(connection, generation_id)
        parts = generations.parts(connection, generation_id)
        rejected = generations.rejections(connection, generation_id)
        failures = generations.failures(connection, generation_id)
        prompt, cached, completion = generations.tokens(connection, generation_id)
        names = {item.id: item.name for item in datasets.all_rows(connection)}
    per_domain, general = int(str(row.manifest["per_domain"])), int(str(row.manifest["general"]))
    sizes = [wording.wanted_of(part.event, per_domain=per_domain, general=general) for part in parts]
    empty = {part.profile for part in parts} - {part.profile for part in parts if part.attributes}
    asked = row.manifest["asked"]
    prices = (0.0, 0.0)
    if isinstance(asked, dict):
        prices = float(asked.get("price_in", 0)), float(asked.get("price_out", 0))
    return Report(
        id=row.id,
        name=row.name,
        model=row.model,
        simulated=row.simulated,
        status=str(row.status),
        error=row.error,
        dataset=row.dataset,
        dataset_name=None if row.dataset is None else names.get(row.dataset),
        parts=row.parts,
        wanted=sum(sum(size.values()) for size in sizes),
        kept=sum(len(part.attributes) for part in parts),
        left_out=len(empty) if row.settled == row.expected else 0,
        rejected=rejected,
        failures=tuple(failures),
        prompt_tokens=prompt,
        cached_tokens=cached,
        completion_tokens=completion,
        cost=cost(prompt, completion, *prices) if any(prices) else None,
    )


@dataclass(frozen=True)
class Live:
    """A generation under way, as it is looked at again and again: cheap, and the same at any size of its answers."""

    settled: int
    expected: int
    rejected: dict[str, int]
    failures: tuple[tuple[str, str, int], ...]
    prompt_tokens: int
    completion_tokens: int


def live(store: Store, generation_id: str) -> Live:
    """How far a generation has come."""
    with store.read() as connection:
        settled, expected = generations.progress(connection, generation_id)
        prompt, _, completion = generations.tokens(connection, generation_id)
        return Live(
            settled=settled,
            expected=expected,
            rejected=generations.rejections(connection, generation_id),
            failures=tuple(generations.failures(connection, generation_id)),
            prompt_tokens=prompt,
            completion_tokens=completion,
        )

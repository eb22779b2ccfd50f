"""What saving a change by hand would do, and how that is said to the person who is about to save it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cimemories.store.edits import Kind
from cimemories.store.versions import Rests


@dataclass(frozen=True)
class Needs:
    """What a change leaves without votes: the pairs of all attributes of some profiles with some contexts."""

    profiles: int
    attributes: int  # of all these profiles together
    contexts: int

    @property
    def pairs(self) -> int:
        return self.attributes * self.contexts


@dataclass(frozen=True)
class Plan:
    """What saving a change would do. `target`: the name of the dataset that will hold it; `imported`: labellings whose
    shares came from a file; `who`: the profile's name, or 'all profiles'; `calls`: what a labelling like the newest one
    would ask for, None where there is none to go by."""

    dataset: str
    target: str
    rests: Rests
    imported: int
    newer: tuple[str, ...]  # versions that were made from this one already
    kind: Kind
    who: str
    profiles: int
    needs: Needs
    draws: int | None
    calls: int | None

    @property
    def in_place(self) -> bool:
        return self.target == self.dataset

    @property
    def sentences(self) -> list[str]:
        """What a person should know before saving, one sentence each."""
        name = f"'{self.dataset}'"
        if self.in_place:
            return [f"Nothing rests on {name} yet: your change is made in it, and its history keeps both sides."]
        resting = _resting(self.rests)
        said = [f"{name} is frozen and stays as it is."] if self.rests.frozen else []
        if resting:
            said.append(f"{resting} on {name} and {'keeps' if _is_one(self.rests) else 'keep'} it as it is.")
        if self.newer:
            made = "was" if len(self.newer) == 1 else "were"
            names = _listed([f"'{n}'" for n in self.newer])
            said.append(f"{names} {made} made from {name} and will not have your change.")
        said.append(f"Your change is saved as '{self.target}'{_votes(self)}.")
        if self.imported:
            said.append(f"Labels that were imported from a file stay with {name}: '{self.target}' begins without them.")
        if self.rests.decisions:
            said.append("Decisions on pairs that stay the same go along.")
        return said


def _is_one(rests: Rests) -> bool:
    return rests.labellings + rests.runs + rests.decisions == 1


def _resting(rests: Rests) -> str:
    """'2 labellings and 3 runs rest'; empty where nothing does."""
    numbers = (
        (rests.labellings, "labelling", "labellings"),
        (rests.runs, "run", "runs"),
        (rests.decisions, "human decision", "human decisions"),
    )
    found = [f"{n:,} {one if n == 1 else many}" for n, one, many in numbers if n]
    return f"{_listed(found)} {'rests' if _is_one(rests) else 'rest'}" if found else ""


def _votes(plan: Plan) -> str:
    """What a labelling of the new version would have to ask for."""
    needs = plan.needs
    if plan.draws is None:
        return ""
    if not needs.pairs:
        return "; no pair of it needs new votes, a labelling by the same model is answered from the record"
    calls = f"{plan.calls:,} {'call' if plan.calls == 1 else 'calls'} at {plan.draws} draws"
    if plan.kind == "context":
        where = f"{needs.profiles:,} profiles" if needs.profiles != 1 else plan.who
        pairs = f"the {needs.pairs:,} pairs of the new context in {where} need votes ({calls})"
        return f"; there {pairs}, all others are answered from the record"
    rest = plan.profiles - needs.profiles
    others = f", the other {rest:,} {'profile is' if rest == 1 else 'profiles are'} answered from the record"
    pairs = f"all {needs.attributes:,} x {needs.contexts} pairs of {plan.who} need new votes ({calls})"
    return f"; there {pairs}{others if rest else ''}"


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + f" and {words[-1]}" if len(words) > 1 else "".join(words)

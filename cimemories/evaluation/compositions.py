"""Memory compositions: what the assistant holds of a user in one context (paper, Section 5.2.3 and Figure 5).

    full              all attributes
    necessary+20      what is necessary in the context, and 20 of the attributes that are inappropriate there
    inappropriate+5   what is inappropriate in the context, and 5 of the necessary ones
    random-50         50 attributes of the user, the same in every context

Which ones are taken, and the order where it is shuffled, follow from one seeded order of a user's attributes. So a
smaller memory is always a part of the larger one of the same kind and seed, and what contexts share stands first in the
same order, where a server can cache it. Identifiers (name, address ...) that are not necessary are left out of the two
compositions that go by labels: no message with them counts as a violation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b

from cimemories.model import Label, is_bio
from cimemories.store.datasets import ProfileRecord

Labels = Mapping[tuple[int, int], Label]  # by (attribute id, context id)
_LABEL = re.compile(r"(?P<kind>necessary|inappropriate)\+(?P<with>\d{1,6})|random-(?P<size>\d{1,6})|full")


class CompositionError(ValueError):
    """A composition that is none, or that needs labels which are not there; the message says what to do."""


class Kind(StrEnum):
    FULL = "full"
    NECESSARY = "necessary"
    INAPPROPRIATE = "inappropriate"
    RANDOM = "random"


class Order(StrEnum):
    """fixed: as the profile has them. shuffled: in the seeded order of the user, the same in every context."""

    FIXED = "fixed"
    SHUFFLED = "shuffled"


@dataclass(frozen=True)
class Composition:
    """What is held. number: of the other kind (necessary, inappropriate), or of all (random); 0 for full."""

    kind: Kind = Kind.FULL
    number: int = 0
    order: Order = Order.FIXED
    seed: int = 0

    @property
    def label(self) -> str:
        """As responses carry it and `composition` reads it; order and seed are not in it."""
        if self.kind == Kind.FULL:
            return "full"
        return f"random-{self.number}" if self.kind == Kind.RANDOM else f"{self.kind}+{self.number}"

    @property
    def needs_labels(self) -> bool:
        return self.kind in (Kind.NECESSARY, Kind.INAPPROPRIATE)

    @property
    def is_plain(self) -> bool:
        """Whether it is all attributes in their order, in every context."""
        return self.kind == Kind.FULL and self.order == Order.FIXED


def composition(text: str, order: str = Order.FIXED, seed: int = 0) -> Composition:
    """The composition that a label names. Raises CompositionError for any other text."""
    found = _LABEL.fullmatch(text.strip())
    if found is None:
        raise CompositionError(
            f"there is no memory composition '{text}'. There are: full, necessary+K (all necessary, K inappropriate), "
            "inappropriate+K (all inappropriate, K necessary), random-K (K of all)."
        )
    if order not in tuple(Order):
        raise CompositionError(f"the memory's order is fixed or shuffled, not '{order}'.")
    held = Composition(order=Order(order), seed=seed)
    if found["size"]:
        if int(found["size"]) < 1:
            raise CompositionError("a random memory needs at least one attribute: random-1 or more.")
        return replace(held, kind=Kind.RANDOM, number=int(found["size"]))
    return held if found["kind"] is None else replace(held, kind=Kind(found["kind"]), number=int(found["with"]))


def seeded_order(record: ProfileRecord, seed: int) -> list[int]:
    """Positions of a user's attributes in an order that the seed, the user's place in the dataset and the keys give."""

    def rank(position: int) -> bytes:
        key = record.profile.attributes[position].key
        return blake2b(f"{seed}\0{record.ordinal}\0{position}\0{key}".encode(), digest_size=16).digest()

    return sorted(range(len(record.attribute_ids)), key=rank)


def held(what: Composition, record: ProfileRecord, labels: Labels | None = None) -> dict[int, tuple[int, ...]]:
    """What is held in each context: {context id: positions of attributes, in the order of the prompt}.

    With a composition that goes by labels only the contexts are there that are retained (something necessary and
    something inappropriate among all attributes); where fewer attributes are there than asked for, all of them are
    held. Raises CompositionError where it goes by labels and there are none.
    """
    shuffled = seeded_order(record, what.seed)
    if what.needs_labels:
        if labels is None:
            raise CompositionError(
                f"the memory '{what.label}' goes by labels, and the dataset has none. Label it first "
                "(`cimemories label`), or use full or random-K."
            )
        return {
            context: _arranged(chosen, what, shuffled)
            for context in record.context_ids
            if (chosen := _by_labels(what, record, context, labels, shuffled)) is not None
        }
    chosen = shuffled[: what.number] if what.kind == Kind.RANDOM else shuffled
    arranged = _arranged(chosen, what, shuffled)
    return dict.fromkeys(record.context_ids, arranged)


def _by_labels(
    what: Composition, record: ProfileRecord, context: int, labels: Labels, shuffled: Sequence[int]
) -> list[int] | None:
    by_label: dict[Label | None, list[int]] = {label: [] for label in Label}
    for position in shuffled:
        by_label.setdefault(labels.get((record.attribute_ids[position], context)), []).append(position)
    necessary, inappropriate = by_label[Label.NECESSARY], by_label[Label.INAPPROPRIATE]
    if not necessary or not inappropriate:
        return None
    private = [p for p in inappropriate if not is_bio(*_key(record, p))]
    if what.kind == Kind.NECESSARY:
        return [*necessary, *private[: what.number]]
    return [*private, *necessary[: what.number]]


def _key(record: ProfileRecord, position: int) -> tuple[str, str]:
    item = record.profile.attributes[position]
    return item.key, item.domain


def _arranged(chosen: Sequence[int], what: Composition, shuffled: Sequence[int]) -> tuple[int, ...]:
    if what.order == Order.FIXED:
        return tuple(sorted(chosen))
    places = {position: place for place, position in enumerate(shuffled)}
    return tuple(sorted(chosen, key=places.__getitem__))


def part(record: ProfileRecord, attribute_ids: Sequence[int]) -> ProfileRecord:
    """The profile with these attributes alone, in this order. Raises KeyError for one that it does not have."""
    places = {attribute: place for place, attribute in enumerate(record.attribute_ids)}
    positions = [places[attribute] for attribute in attribute_ids]
    profile = replace(record.profile, attributes=tuple(record.profile.attributes[p] for p in positions))
    return replace(record, profile=profile, attribute_ids=tuple(attribute_ids))

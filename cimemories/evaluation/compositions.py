"""What the assistant remembers of a user in one context: a composition of attributes (paper, Section 5.2.3, Figure 5).

    full              all attributes
    necessary+20      what is necessary in the context, and 20 of the attributes that are inappropriate there
    inappropriate+5   what is inappropriate in the context, and 5 of the necessary ones
    random-50         50 attributes of the user, the same in every context

and those of the authors' code, by its names. They hold every attribute without a clear label too, draw again for each
context and number, and count every attribute of the profile, so that one which was not held is unrevealed:

    all_share+20      what is necessary, 20 of the inappropriate ones, all others
    all_not_share+5   what is inappropriate, 5 of the necessary ones, all others
    iid-31            31 of those that are necessary or inappropriate, all others

Of ours, which ones are taken, and the order where it is shuffled, follow from one seeded order of a user's attributes.
So a smaller memory is always a part of the larger one of the same kind and seed, and what contexts share stands first
in the same order, where a server can cache it. Identifiers (name, address ...) that are not necessary are left out of
the two compositions that go by labels: no message with them counts as a violation.

Beside them stand memory systems, `system:NAME` with its options (memory/systems.py): all attributes are held, and what
reaches the prompt is what the system recalls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b
from random import Random

import sqlalchemy as sa

from cimemories.memory.systems import MemorySystemError, SystemSpec, is_system, read_system
from cimemories.model import Label, is_bio
from cimemories.store import datasets
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store, StoreError

Labels = Mapping[tuple[int, int], Label]  # by (attribute id, context id)
_LABEL = re.compile(
    r"(?P<kind>necessary|inappropriate|all_share|all_not_share)\+(?P<with>\d{1,6})"
    r"|(?P<sampled>random|iid)-(?P<size>\d{1,6})|full"
)


class CompositionError(StoreError):
    """There is no such composition, or it needs labels that are missing; the message says what to do."""


class Kind(StrEnum):
    FULL = "full"
    NECESSARY = "necessary"
    INAPPROPRIATE = "inappropriate"
    RANDOM = "random"
    ALL_SHARE = "all_share"
    ALL_NOT_SHARE = "all_not_share"
    IID = "iid"
    SYSTEM = "system"


class Order(StrEnum):
    """fixed: as in the profile. shuffled: in the seeded order of the user, the same in every context."""

    FIXED = "fixed"
    SHUFFLED = "shuffled"


@dataclass(frozen=True)
class Composition:
    """The composition of a memory. number: of the other kind (necessary, inappropriate), or of all (random); 0 for
    full. system: the memory system that recalls from all attributes."""

    kind: Kind = Kind.FULL
    number: int = 0
    order: Order = Order.FIXED
    seed: int = 0
    system: SystemSpec | None = None

    @property
    def label(self) -> str:
        """Return its name as responses carry it and `read_composition` reads it, without order and seed."""
        if self.system is not None:
            return self.system.label
        if self.kind == Kind.FULL:
            return "full"
        return f"{self.kind}{'-' if self.kind in (Kind.RANDOM, Kind.IID) else '+'}{self.number}"

    @property
    def needs_labels(self) -> bool:
        return self.kind not in (Kind.FULL, Kind.RANDOM, Kind.SYSTEM)

    @property
    def is_plain(self) -> bool:
        """Return whether it is all attributes in their order, in every context."""
        return self.kind in (Kind.FULL, Kind.SYSTEM) and self.order == Order.FIXED


def read_composition(text: str, order: str = Order.FIXED, seed: int = 0) -> Composition:
    """Return the composition that a label names. Raises CompositionError for any other text."""
    if is_system(text.strip()):
        if order != Order.FIXED:
            raise CompositionError("a memory system orders what it recalls itself: leave the memory's order at fixed.")
        try:
            return Composition(Kind.SYSTEM, seed=seed, system=read_system(text))
        except MemorySystemError as error:
            raise CompositionError(str(error)) from None
    match = _LABEL.fullmatch(text.strip())
    if match is None:
        raise CompositionError(
            f"there is no memory composition '{text}'. There are: full, necessary+K (all necessary, K inappropriate), "
            "inappropriate+K (all inappropriate, K necessary), random-K (K of all), those of the authors' code "
            "(all_share+K, all_not_share+K, iid-K), and memory systems (system:bm25:k=20)."
        )
    if order not in tuple(Order):
        raise CompositionError(f"the memory's order is fixed or shuffled, not '{order}'.")
    plain = Composition(order=Order(order), seed=seed)
    if match["size"]:
        if int(match["size"]) < 1:
            name = match["sampled"]
            raise CompositionError(f"a random memory needs at least one attribute: {name}-1 or more.")
        return replace(plain, kind=Kind(match["sampled"]), number=int(match["size"]))
    return plain if match["kind"] is None else replace(plain, kind=Kind(match["kind"]), number=int(match["with"]))


def seeded_order(record: ProfileRecord, seed: int) -> list[int]:
    """Return the positions of a user's attributes in the order given by the seed, the user's number and the keys."""

    def rank(position: int) -> bytes:
        key = record.profile.attributes[position].key
        # NUL between the parts: seed 1 of user 23 is not seed 12 of user 3. The position tells keys that repeat apart.
        return blake2b(f"{seed}\0{record.ordinal}\0{position}\0{key}".encode(), digest_size=16).digest()

    return sorted(range(len(record.attribute_ids)), key=rank)


def compose(
    composition: Composition, record: ProfileRecord, labels: Labels | None = None
) -> dict[int, tuple[int, ...]]:
    """Return what the memory holds in each context: {context id: positions of attributes, in the order of the prompt}.

    A composition that goes by labels has only retained contexts (with something necessary and something inappropriate).
    If there are fewer attributes than asked for, the memory holds all of them; in a composition of the authors' code
    that context is left out. Raises CompositionError if the labels that it needs are missing.
    """
    shuffled = seeded_order(record, composition.seed)
    rank = {position: number for number, position in enumerate(shuffled)}

    def arranged(positions: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted(positions, key=None if composition.order == Order.FIXED else rank.__getitem__))

    if not composition.needs_labels:
        chosen = shuffled[: composition.number] if composition.kind == Kind.RANDOM else shuffled
        # The same tuple for all contexts, so that the memory is restricted, hashed and written once.
        return dict.fromkeys(record.context_ids, arranged(chosen))
    if labels is None:
        raise CompositionError(
            f"the memory '{composition.label}' goes by labels, and the dataset has none. Label it first "
            "(`cimemories label`), or use full or random-K."
        )
    memories: dict[int, tuple[int, ...]] = {}
    for place, context in enumerate(record.context_ids):
        of = {p: labels.get((record.attribute_ids[p], context)) for p in shuffled}
        necessary = [p for p in shuffled if of[p] == Label.NECESSARY]
        inappropriate = [p for p in shuffled if of[p] == Label.INAPPROPRIATE]
        # Without one of the two neither completeness nor a violation is defined there.
        if not necessary or not inappropriate:
            continue
        if composition.kind in (Kind.ALL_SHARE, Kind.ALL_NOT_SHARE, Kind.IID):
            sampled = _sampled_as_published(composition, record, place, necessary, inappropriate)
            if sampled is not None:
                labelled = {*necessary, *inappropriate}
                memories[context] = arranged([*sampled, *(p for p in shuffled if p not in labelled)])
            continue
        attributes = record.profile.attributes
        # Identifiers count as no violation anywhere: they would only use up the number that was asked for.
        private = [p for p in inappropriate if not is_bio(attributes[p].key, attributes[p].domain)]
        if composition.kind == Kind.NECESSARY:
            memories[context] = arranged([*necessary, *private[: composition.number]])
        else:
            memories[context] = arranged([*private, *necessary[: composition.number]])
    return memories


def _sampled_as_published(
    composition: Composition, record: ProfileRecord, place: int, necessary: list[int], inappropriate: list[int]
) -> list[int] | None:
    """Return the labelled attributes in memory in this context, by the authors' rule and with identifiers, or None if
    there are fewer than asked for."""
    kept, pool = {
        Kind.ALL_SHARE: (necessary, inappropriate),
        Kind.ALL_NOT_SHARE: (inappropriate, necessary),
        Kind.IID: ([], [*necessary, *inappropriate]),
    }[composition.kind]
    if composition.number > len(pool):
        return None
    # A seed for each context and number: unlike ours, a smaller memory is no part of a larger one.
    seed = f"{composition.seed}\0{record.ordinal}\0{place}\0{composition.label}"
    return [*kept, *Random(seed).sample(sorted(pool), composition.number)]


def keep_composed(
    connection: sa.Connection,
    what: Composition,
    profile_ids: Sequence[int],
    context_ids: Sequence[int],
    labels: Labels | None,
) -> dict[tuple[int, int], str]:
    """Write each different memory once, and return its hash by (profile, context)."""
    contexts = set(context_ids)
    hash_of: dict[tuple[int, int], str] = {}
    for profile_id in profile_ids:
        record = datasets.profile_record(connection, profile_id)
        hashes: dict[tuple[int, ...], str] = {}
        for context, positions in compose(what, record, labels).items():
            if context not in contexts:
                continue
            # A row a memory, not a context: most compositions give the same one in many contexts.
            if positions not in hashes:
                ids = [record.attribute_ids[p] for p in positions]
                hashes[positions] = datasets.keep_memories(connection, profile_id, ids)
            hash_of[profile_id, context] = hashes[positions]
    return hash_of


def restrict(record: ProfileRecord, attribute_ids: Sequence[int]) -> ProfileRecord:
    """Return the profile with these attributes alone, in this order. Raises KeyError for one that it does not have."""
    by_id = dict(zip(record.attribute_ids, record.profile.attributes, strict=True))
    profile = replace(record.profile, attributes=tuple(by_id[attribute] for attribute in attribute_ids))
    return replace(record, profile=profile, attribute_ids=tuple(attribute_ids))


# ---- the labels of a plan


@dataclass(frozen=True)
class LabelSource:
    """Effective labels by (attribute id, context id), and for the manifest where they are from."""

    labels: Labels
    origin: Mapping[str, object]


FindLabels = Callable[[Store, int], LabelSource | None]


@dataclass(frozen=True)
class LabelsFor:
    """The labels that a run is planned by, or None, and the dataset as it was when they were read."""

    dataset: tuple[int, str]
    source: LabelSource | None


def labels_for(store: Store, dataset_name: str, what: Composition, find_labels: FindLabels | None) -> LabelsFor | None:
    """Return the labels for a run to be planned, or None if its memory needs none. Reads in transactions of its own,
    before that of `planning.write`."""
    if find_labels is None or not what.needs_labels:
        return None
    with store.read() as connection:
        dataset = datasets.by_name(connection, dataset_name)
        seen = dataset.id, datasets.dataset_hash(connection, dataset.id)
    return LabelsFor(seen, find_labels(store, dataset.id))

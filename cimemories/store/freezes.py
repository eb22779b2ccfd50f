"""Frozen datasets, and the rows that a freeze covers, in an order and wording that no other workspace changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.model import Verdict
from cimemories.store import datasets, decisions, labellings
from cimemories.store.curation_tables import freeze, imported_vote
from cimemories.store.engine import StoreError, insert_ignore, plain_name
from cimemories.store.ids import canonical_json, now
from cimemories.store.tables import ballot, dataset, labelling, persona, vote

_LETTERS = {str(Verdict.NECESSARY): "N", str(Verdict.INAPPROPRIATE): "X", str(Verdict.ABSTAIN): "?"}
_NO_VOTE, _CONFLICT = "-", "C"


@dataclass(frozen=True)
class FreezeRow:
    """A frozen dataset. `rule`: name, threshold and priors; `counts`: what the hash covers, in numbers, and `content`,
    the hash of profiles and contexts alone, which runs name."""

    dataset: int
    hash: str
    labelling: str | None
    rule: dict[str, object]
    counts: dict[str, int | str]
    annotator: str
    created: str


def of(connection: sa.Connection, dataset_id: int) -> FreezeRow | None:
    """The freeze of a dataset; None for an open one."""
    row = connection.execute(sa.select(freeze).where(freeze.c.dataset == dataset_id)).mappings().first()
    if row is None:
        return None
    return FreezeRow(**{**row, "rule": json.loads(row["rule"]), "counts": json.loads(row["counts"])})


def add(
    connection: sa.Connection,
    dataset_id: int,
    *,
    digest: str,
    labelling_id: str | None,
    rule: Mapping[str, object],
    counts: Mapping[str, int | str],
    annotator: str,
) -> None:
    """Freeze a dataset, once and for all. Raises StoreError where it is frozen already."""
    written = connection.execute(
        insert_ignore(connection, freeze)
        .values(
            dataset=dataset_id,
            hash=digest,
            labelling=labelling_id,
            rule=canonical_json(rule),
            counts=canonical_json(counts),
            annotator=plain_name(annotator, "annotator"),
            created=now(),
        )
        .returning(freeze.c.dataset)
    ).first()
    there = of(connection, dataset_id)
    if written is None and there is not None:
        raise StoreError(
            f"this dataset was frozen by {there.annotator} on {there.created[:10]} as {there.hash[:8]}. What is frozen "
            "stays so: make its next version, and freeze that."
        )
    connection.execute(sa.update(dataset).where(dataset.c.id == dataset_id).values(revision=dataset.c.revision + 1))


@dataclass(frozen=True)
class Positions:
    """Where rows stand: attributes and contexts by their position in their profile, profiles by that in the dataset."""

    profiles: dict[int, int]
    attributes: dict[int, tuple[int, int]]
    contexts: dict[int, str]
    personas: dict[int, str]


def positions(connection: sa.Connection, dataset_id: int) -> Positions:
    """The positions of everything in a dataset, by id; contexts by their wording, personas by their hash."""
    profiles: dict[int, int] = {}
    attributes: dict[int, tuple[int, int]] = {}
    for number, (profile_id, own) in enumerate(datasets.attribute_ids(connection, dataset_id).items()):
        profiles[profile_id] = number
        attributes |= {attribute_id: (number, place) for place, attribute_id in enumerate(own)}
    contexts = {
        r.id: canonical_json([r.context.task, r.context.recipient]) for r in datasets.contexts(connection, dataset_id)
    }
    personas = {row.id: row.hash for row in connection.execute(sa.select(persona.c.id, persona.c.hash))}
    return Positions(profiles, attributes, contexts, personas)


def votes_hash(connection: sa.Connection, labelling_id: str, places: Positions) -> tuple[str, int]:
    """A hash over every vote of a labelling, or every share of an imported one, and how many there are.

    One vote more, less or other gives another hash; the order in which they came, and the ids they got, do not matter.
    """
    endpoint = connection.execute(sa.select(labelling.c.endpoint).where(labelling.c.id == labelling_id)).scalar()
    digest, count = hashlib.sha256(), 0
    lines = (
        [_shares(connection, labelling_id, places)]
        if endpoint == labellings.IMPORTED
        else (_ballots(connection, labelling_id, i, places) for i in places.profiles)
    )
    for chunk in lines:
        for text, votes in sorted(chunk):
            digest.update(f"{text}\n".encode("utf-8", "surrogatepass"))
            count += votes
    return digest.hexdigest()[:32], count


def _ballots(
    connection: sa.Connection, labelling_id: str, profile_id: int, places: Positions
) -> Iterator[tuple[str, int]]:
    """One line a ballot of a profile that has votes: where it stands, and a letter for each attribute."""
    rows = connection.execute(
        sa.select(ballot.c.context, ballot.c.persona, ballot.c.draw, vote.c.attribute, vote.c.verdict)
        .join(ballot, vote.c.ballot == ballot.c.id)
        .where(ballot.c.labelling == labelling_id, ballot.c.profile == profile_id)
    )
    width = sum(1 for number, _ in places.attributes.values() if number == places.profiles[profile_id])
    found: dict[tuple[int, int, int], list[str]] = {}
    for context_id, persona_id, draw, attribute_id, verdict in rows:
        letters = found.setdefault((context_id, persona_id, draw), [_NO_VOTE] * width)
        letters[places.attributes[attribute_id][1]] = _LETTERS.get(verdict, _CONFLICT)
    for (context_id, persona_id, draw), letters in found.items():
        where = [places.profiles[profile_id], places.contexts[context_id], places.personas[persona_id], draw]
        yield canonical_json([*where, "".join(letters)]), width - letters.count(_NO_VOTE)


def _shares(connection: sa.Connection, labelling_id: str, places: Positions) -> Iterator[tuple[str, int]]:
    for row in connection.execute(sa.select(imported_vote).where(imported_vote.c.labelling == labelling_id)):
        where = [*places.attributes[row.attribute], places.contexts[row.context], places.personas[row.persona]]
        yield canonical_json([*where, row.necessary, row.inappropriate, row.abstain]), 1


def decision_lines(connection: sa.Connection, dataset_id: int, places: Positions) -> list[object]:
    """Every decision ever made on a dataset, those taken back too, in their order."""
    return [
        [
            *places.attributes[d.attribute],
            places.contexts[d.context],
            d.annotator,
            None if d.label is None else str(d.label),
            d.reason,
            d.source,
            bool(d.blind),
            d.created,
        ]
        for d in decisions.history(connection, dataset_id)
    ]

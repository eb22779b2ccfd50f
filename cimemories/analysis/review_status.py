"""Where the review of a dataset stands: who has said how much, what is open and what is in dispute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import sqlalchemy as sa

from cimemories.analysis.adjudication import disputes
from cimemories.model import Label
from cimemories.store import comments, datasets, decisions, guidelines, marks
from cimemories.store.decisions import Decision
from cimemories.store.engine import Store
from cimemories.store.tables import attribute, profile, profile_context


@dataclass(frozen=True)
class Person:
    """One person. `labels`: on how many pairs their word that stands is each label; `taken_back`: on how many it is
    that they say nothing any more. `events`: everything they ever decided, `sources` of it by how."""

    name: str
    labels: Mapping[str, int]
    taken_back: int
    events: int
    sources: Mapping[str, int]


@dataclass(frozen=True)
class Status:
    """`decided`: pairs whose label is a person's, of `pairs`. `disputed`: of the `shared` ones, that is those which two
    or more people decided. `guideline`: the version that stands."""

    dataset: str
    simulated: bool
    pairs: int
    decided: int
    shared: int
    disputed: int
    comments: int
    open_comments: int
    flagged: int
    guideline: int
    people: tuple[Person, ...]

    def as_json(self) -> dict[str, object]:
        """Plain values, people as a list."""
        return asdict(self)


def status(store: Store, dataset: str) -> Status:
    """What there is to say of a dataset's review. Raises StoreError for a dataset that is not there."""
    with store.read() as connection:
        row = datasets.named(connection, dataset)
        history = decisions.history(connection, row.id)
        remarks = comments.of_dataset(connection, row.id)
        flagged = len(marks.standing(connection, row.id, marks.Kind.FLAG))
        version = guidelines.current(connection).version
        pairs = _pairs(connection, row.id)
    found = disputes(store, row.id)
    by_person: dict[str, list[Decision]] = {}
    for item in history:
        by_person.setdefault(item.annotator, []).append(item)
    return Status(
        dataset=row.name,
        simulated=row.simulated,
        pairs=pairs,
        decided=len(decisions.standing(history)),
        shared=found.shared,
        disputed=len(found.open),
        comments=len(remarks),
        open_comments=sum(item.open for item in remarks),
        flagged=flagged,
        guideline=version,
        people=tuple(_person(name, said) for name, said in sorted(by_person.items())),
    )


def _person(name: str, said: list[Decision]) -> Person:
    standing = decisions.standing(said)
    labels = Counter(item.label for item in standing.values())
    every = {(item.attribute, item.context) for item in said}
    return Person(
        name,
        {str(label): labels[label] for label in Label},
        len(every) - len(standing),
        len(said),
        dict(sorted(Counter(item.source for item in said).items())),
    )


def _pairs(connection: sa.Connection, dataset_id: int) -> int:
    """Pairs of an attribute and a context that its profile is tested in."""
    query = (
        sa.select(sa.func.count())
        .select_from(attribute)
        .join(profile, attribute.c.profile == profile.c.id)
        .join(profile_context, profile_context.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
    )
    return int(connection.execute(query).scalar_one())

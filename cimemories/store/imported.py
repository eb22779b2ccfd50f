"""Labels that a file brought without their votes: shares by persona, which stand where votes would."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from cimemories.model import Persona, WorkStatus
from cimemories.store import labellings, work
from cimemories.store.curation_tables import imported_vote
from cimemories.store.datasets import ProfileRecord
from cimemories.store.ids import content_hash
from cimemories.store.labellings import IMPORTED

CHUNK = 5000
STAND_IN = Persona(
    IMPORTED,
    "The imported label",
    1.0,
    "Stands for whoever labelled the file that was imported: it gives labels, and not who voted for them.",
)


@dataclass(frozen=True)
class SharedLabels:
    """One model's shares. Arrays of one length n; positions are those of profiles, of attributes and contexts inside
    their profile, and of `personas`. `shares` [n, 3]: necessary, inappropriate, abstain, adding up to 1.

    `told`: what the manifest says of where they come from.
    """

    model: str
    pack: str
    personas: tuple[Persona, ...]
    profile: npt.NDArray[np.int32]
    attribute: npt.NDArray[np.int32]
    context: npt.NDArray[np.int32]
    persona: npt.NDArray[np.int32]
    shares: npt.NDArray[np.float64]
    simulated: bool
    told: Mapping[str, object]


def add(connection: sa.Connection, dataset_id: int, records: Sequence[ProfileRecord], labels: SharedLabels) -> str:
    """Write them as a finished labelling of the dataset, whose profiles are `records`; returns its id."""
    persona_ids = labellings.persona_ids(connection, labels.pack, labels.personas)
    labelling_id = labellings.add(
        connection,
        identity=content_hash([IMPORTED, dataset_id, labels.model, persona_ids, labels.told]),
        dataset_id=dataset_id,
        model=labels.model,
        endpoint=IMPORTED,
        simulated=labels.simulated,
        pack=labels.pack,
        draws=0,
        manifest={"personas": persona_ids, "imported": dict(labels.told)},
    )
    write_shares(connection, _rows(labelling_id, records, labels, persona_ids))
    work.finish(connection, labelling_id, WorkStatus.FINISHED)
    work.bump(connection, labelling_id)
    return labelling_id


def write_shares(connection: sa.Connection, rows: Iterable[Mapping[str, object]]) -> None:
    """Rows of the table imported_vote, a few thousand at a time."""
    waiting = iter(rows)
    while chunk := list(islice(waiting, CHUNK)):
        connection.execute(sa.insert(imported_vote), chunk)


def _rows(
    labelling_id: str, records: Sequence[ProfileRecord], labels: SharedLabels, persona_ids: Sequence[int]
) -> Iterator[dict[str, object]]:
    positions = zip(
        labels.profile.tolist(),
        labels.attribute.tolist(),
        labels.context.tolist(),
        labels.persona.tolist(),
        labels.shares.tolist(),
        strict=True,
    )
    for profile, attribute, context, persona, (necessary, inappropriate, abstain) in positions:
        yield {
            "labelling": labelling_id,
            "attribute": records[profile].attribute_ids[attribute],
            "context": records[profile].context_ids[context],
            "persona": persona_ids[persona],
            "necessary": necessary,
            "inappropriate": inappropriate,
            "abstain": abstain,
        }

"""Small datasets written by a model: how they are asked for, and what the record holds afterwards."""

from __future__ import annotations

import sqlalchemy as sa

from cimemories.curation import authoring, execution
from cimemories.curation.authoring import Report, report
from cimemories.curation.spec import AuthoringSpec
from cimemories.model import DOMAINS
from cimemories.store import datasets
from cimemories.store.engine import Store
from cimemories.store.tables import call

PROFILES, EVENTS, PER_DOMAIN, GENERALS = 3, 2, 2, 4
PARTS = PROFILES * (1 + EVENTS)
WANTED = PROFILES * (GENERALS + EVENTS * PER_DOMAIN * len(DOMAINS))


def spec(base_url: str = "simulator", **changes: object) -> AuthoringSpec:
    values = {"name": "new", "profiles": PROFILES, "model": "sim-average", "base_url": base_url, "seed": 5}
    sizes = {"events": EVENTS, "per_domain": PER_DOMAIN, "general": GENERALS}
    return AuthoringSpec(**{**values, **sizes, **changes})  # type: ignore[arg-type]


def write(store: Store, wanted: AuthoringSpec) -> Report:
    generation_id = authoring.plan(store, wanted)
    execution.execute(store, generation_id)
    return report(store, generation_id)


def calls_made(store: Store) -> int:
    with store.read() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(call)).scalar_one())


def dataset_hashes(store: Store) -> list[str]:
    with store.read() as connection:
        return [datasets.dataset_hash(connection, row.id) for row in datasets.all_rows(connection)]

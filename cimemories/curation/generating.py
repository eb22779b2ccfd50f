"""Making a dataset from offline templates, with the contexts of the seeds; curation.authoring does it by a model."""

from __future__ import annotations

from collections.abc import Sequence

from cimemories import seeds
from cimemories.curation.offline import generate_profiles
from cimemories.seeds import packs
from cimemories.store import datasets
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store
from cimemories.store.ids import content_hash


def generate_dataset(
    store: Store,
    name: str,
    count: int,
    *,
    seed: int = 0,
    locale: str = "en_US",
    per_domain: int = 5,
    events: int = 3,
    contexts: Sequence[str] = packs.CORE,
) -> DatasetRow:
    """Write `count` profiles as a new dataset, tested in the contexts of these packs.

    Raises StoreError where the name is taken, SeedError for bad seeds or an unknown pack.
    """
    tested_in = packs.contexts_of(contexts, store.workspace)
    profiles = list(
        generate_profiles(count, seed=seed, locale=locale, events=events, per_domain=per_domain, contexts=tested_in)
    )
    source = content_hash(
        ["offline", seeds.seeds_hash(), count, seed, locale, per_domain, events, list(contexts), name]
    )
    made = f"templates, seed {seed}, locale {locale}, {events} events, {per_domain} a domain"
    with store.write() as connection:
        datasets.add(connection, name, profiles, origin="offline", source_name=made, source_hash=source)
        return datasets.named(connection, name)

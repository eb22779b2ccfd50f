"""A dataset from templates in the contexts of packs: what was asked for is what is there, and the card says it."""

from __future__ import annotations

import pytest

from cimemories.curation.offline import generate_dataset
from cimemories.exchange.card import dataset_card
from cimemories.seeds import SeedError, packs
from cimemories.store import datasets
from cimemories.store.engine import Store


def test_a_dataset_is_tested_in_the_contexts_of_the_packs_that_were_asked_for(sqlite_store: Store) -> None:
    row = generate_dataset(sqlite_store, "berlin", 2, seed=5, locale="de_DE", contexts=("germany", "core"))
    with sqlite_store.read() as connection:
        records = datasets.profile_records(connection, row.id)
    expected = packs.contexts_of(("germany", "core"))
    assert [record.profile.contexts for record in records] == [expected, expected]
    assert {c.recipient for c in packs.context_pack("germany").contexts} <= {c.recipient for c in expected}
    card = dataset_card(sqlite_store, "berlin")
    assert "seed 5" in card
    assert "DE" in card


def test_an_unknown_pack_makes_nothing(sqlite_store: Store) -> None:
    with pytest.raises(SeedError, match="atlantis"):
        generate_dataset(sqlite_store, "nowhere", 1, contexts=("core", "atlantis"))
    with sqlite_store.read() as connection:
        assert datasets.all_rows(connection) == []

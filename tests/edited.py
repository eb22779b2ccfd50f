"""What a dataset holds before and after an edit."""

from __future__ import annotations

from dataclasses import replace

from worlds import records

from cimemories.curation import editing
from cimemories.model import Profile
from cimemories.store import datasets, versions
from cimemories.store.engine import Store
from cimemories.store.versions import Edit


def content(store: Store, dataset_id: int) -> str:
    with store.read() as connection:
        return datasets.dataset_hash(connection, dataset_id)


def profiles(store: Store, dataset_id: int) -> list[Profile]:
    return [record.profile for record in records(store, dataset_id)]


def history(store: Store, dataset_id: int, profile: int | None = None) -> list[versions.EditRow]:
    with store.read() as connection:
        return versions.history(connection, dataset_id, profile)


def reworded(store: Store, dataset_id: int, text: str = "I pay $10.", profile: int = 0, position: int = 0) -> Edit:
    before = profiles(store, dataset_id)[profile].attributes[position]
    return editing.edit_of("attribute", profile, before, replace(before, statement=text))

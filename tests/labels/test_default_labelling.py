"""Which labelling numbers rest on: the one that covers most, of two alike the newest, or the one that was chosen."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner
from worlds import add_dataset, add_labels

from cimemories.cli import cli
from cimemories.flows import catalogue
from cimemories.flows.labels import INAPPROPRIATE, NECESSARY, default_labelling
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import ballot

LABELS = [[[NECESSARY] * 3, [INAPPROPRIATE] * 3]]


def default(store: Store, dataset: int) -> str | None:
    row = default_labelling(store, dataset)
    return row.id if row else None


def of_one_context(store: Store, dataset: int) -> str:
    """A labelling that is finished and newer, with votes in one context."""
    labelling_id = add_labels(store, dataset, LABELS, name="one context")
    with store.write() as connection:
        context = connection.execute(sa.select(sa.func.min(ballot.c.context))).scalar()
        others = sa.delete(ballot).where(ballot.c.labelling == labelling_id, ballot.c.context != context)
        connection.execute(others)
    return labelling_id


def test_a_labelling_of_one_context_does_not_become_that_of_all_numbers(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=2, contexts=3).id
    assert default(sqlite_store, data) is None
    first = add_labels(sqlite_store, data, LABELS, name="first")
    assert of_one_context(sqlite_store, data) != first
    assert default(sqlite_store, data) == first
    newest = add_labels(sqlite_store, data, LABELS, name="as wide, and newer")
    assert default(sqlite_store, data) == newest


def test_a_person_chooses_another_and_sees_it(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=2, contexts=3).id
    first, newest = (add_labels(sqlite_store, data, LABELS, name=name) for name in ("first", "newest"))

    def listed(*options: str) -> dict[str, bool]:
        place = ["--workspace", str(sqlite_store.workspace), "--json"]
        result = CliRunner().invoke(cli, ["labellings", *options, *place])
        assert result.exit_code == 0, result.output
        return {row["id"]: row["default"] for row in json.loads(result.stdout)}

    assert listed() == {first: False, newest: True}
    assert listed("--use", first) == {first: True, newest: False}
    # What comes later, and covers as much, does not change what was chosen.
    later = add_labels(sqlite_store, data, LABELS, name="later")
    assert listed() == {first: True, newest: False, later: False}
    catalogue.choose_labelling(sqlite_store, later)
    assert default(sqlite_store, data) == later
    with pytest.raises(StoreError, match="no labelling 'nothing'"):
        catalogue.choose_labelling(sqlite_store, "nothing")

"""Slices in the record, and how they are drawn."""

from __future__ import annotations

import pytest
from worlds import add_dataset, records

from cimemories.store import datasets, slices
from cimemories.store.engine import Store, StoreError
from cimemories.store.slices import SliceItem


def drawn(store: Store, dataset_id: int) -> list[SliceItem]:
    person = records(store, dataset_id)[0]
    pairs = [(a, c) for a in person.attribute_ids for c in person.context_ids]
    return [SliceItem(a, c, None, "a" if n % 2 else "b", 2.5) for n, (a, c) in enumerate(reversed(pairs))]


def keep(store: Store, dataset_id: int, name: str = "first", **changes: object) -> int:
    values = {"kind": "labels", "seed": 7, "manifest": {"b": 1, "a": [2]}, "annotator": "Ada"} | changes
    values.setdefault("items", drawn(store, dataset_id))
    with store.write() as connection:
        return slices.add(connection, dataset_id, name=name, **values)  # type: ignore[arg-type]


def test_a_slice_comes_back_as_it_was_drawn(store: Store) -> None:
    data, other = add_dataset(store).id, add_dataset(store, name="other").id
    first, second = keep(store, data), keep(store, data, "second", items=drawn(store, data)[:3])
    with store.read() as connection:
        rows = slices.all_rows(connection, data)
        assert [(row.id, row.name, row.seed, row.items, row.annotator) for row in rows] == [
            (first, "first", 7, 24, "Ada"),
            (second, "second", 7, 3, "Ada"),
        ]
        assert rows[0].manifest == {"a": [2], "b": 1} and rows[0].kind == "labels" and rows[0].dataset == data
        assert slices.items_of(connection, first) == drawn(store, data)  # in this very order
        assert slices.one(connection, second) == rows[1]
        assert slices.all_rows(connection, other) == [] == slices.all_rows(connection, data, "judgements")


def test_deleting_a_slice_takes_its_items_alone_and_a_dataset_takes_its_slices(store: Store) -> None:
    data = add_dataset(store).id
    first, second = keep(store, data), keep(store, data, "second")
    with store.write() as connection:
        slices.delete(connection, first)
        assert [row.id for row in slices.all_rows(connection, data)] == [second]
        assert slices.items_of(connection, first) == [] and len(slices.items_of(connection, second)) == 24
        with pytest.raises(StoreError, match="no slice"):
            slices.one(connection, first)
        datasets.delete(connection, data)
        assert slices.all_rows(connection, data) == [] == slices.items_of(connection, second)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": " \n "}, "needs a name"),
        ({"name": "x" * 81}, "needs a name"),
        ({"annotator": ""}, "name of who"),
        ({"kind": "else"}, "no kind"),
        ({"items": []}, "empty"),
        ({"kind": "judgements"}, "needs its response"),
        ({"name": "  taken "}, "exists already"),
    ],
)
def test_what_is_no_slice_is_refused_and_nothing_is_written(
    sqlite_store: Store, changes: dict[str, object], said: str
) -> None:
    data = add_dataset(sqlite_store).id
    keep(sqlite_store, data, "taken")
    with pytest.raises(StoreError, match=said):
        keep(sqlite_store, data, **changes)  # type: ignore[arg-type]
    with sqlite_store.read() as connection:
        assert [row.name for row in slices.all_rows(connection, data)] == ["taken"]

"""What recorded runs did with a pair, beside the pair on the Labels page."""

from __future__ import annotations

import pytest
from paging import opened, page_html
from worlds import add_dataset, add_run, records

from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store

LABELS = "pages/curate/labels.py"


@pytest.fixture
def store(app_store: Store) -> Store:
    return app_store


@pytest.fixture
def dataset(store: Store) -> DatasetRow:
    return add_dataset(store, profiles=2, attributes=3, contexts=2)


def test_the_panel_says_what_runs_did_with_the_pair(store: Store, dataset: DatasetRow) -> None:
    add_run(store, dataset.id, 5, [[[3, 0], [0, 0], [0, 0]]] * 2)
    without_reveals = add_run(store, dataset.id, 5, [[[0, 5], [0, 0], [0, 0]]] * 2)
    person = records(store, dataset.id)[0]
    app = opened(LABELS, dataset=dataset.id, attribute=person.attribute_ids[0], context=person.context_ids[0])
    assert "Revealed in 3 of 10 judged messages, by 1 of 2 runs." in page_html(app)
    links = [item.proto for item in app.get("page_link")]
    assert [link.label.split(":")[0] for link in links if "leaks" in link.page][-2:] == ["3 of 5", "0 of 5"]
    assert f"run={without_reveals}" in links[-1].query_string


def test_of_many_runs_those_that_tell_the_pair_most_often_stand_there_and_the_others_are_folded_away(
    store: Store, dataset: DatasetRow
) -> None:
    for reveals in (1, 0, 5, 2, 0):
        add_run(store, dataset.id, 5, [[[reveals, 0], [0, 0], [0, 0]]] * 2)
    person = records(store, dataset.id)[0]

    def runs_linked(*folds: str) -> list[str]:
        pair = {"attribute": person.attribute_ids[0], "context": person.context_ids[0]}
        app = opened(LABELS, *folds, dataset=dataset.id, **pair)
        assert "Revealed in 8 of 25 judged messages, by 3 of 5 runs." in page_html(app)
        assert "2 more runs" in [box.label for box in app.expander]
        links = [item.proto for item in app.get("page_link")]
        return [link.label.split(":")[0] for link in links if "leaks" in link.page]

    shown = runs_linked()
    assert shown[-3:] == ["5 of 5", "2 of 5", "1 of 5"]
    assert runs_linked("labels.box.runs") == [*shown, "0 of 5", "0 of 5"]

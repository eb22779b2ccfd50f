"""A record of before there was a limit may hold a statement of a million characters: every page folds it."""

from __future__ import annotations

import pandas as pd
import pytest
import sqlalchemy as sa
from paging import nodes, opened
from streamlit.testing.v1 import AppTest
from worlds import add_dataset, add_labels, add_run, records

from cimemories.desk.protocol import Card
from cimemories.flows.labels import INAPPROPRIATE, NECESSARY
from cimemories.store.engine import Store
from cimemories.store.tables import attribute, response
from cimemories.ui.safe import CELL_LIMIT, LONGEST
from cimemories.ui.tables import _clipped

LENGTH = 1_000_000
PAGES = {
    "profiles": "pages/curate/profiles.py",
    "labels": "pages/curate/labels.py",
    "leaks": "pages/explore/leaks.py",
}


def sent(app: AppTest) -> int:
    """Bytes that go to the browser."""
    return sum(node.proto.ByteSize() for node in nodes(app._tree) if getattr(node, "proto", None) is not None)


@pytest.mark.parametrize("name", PAGES)
def test_an_endless_statement_is_folded_wherever_it_is_shown(app_store: Store, name: str) -> None:
    data = add_dataset(app_store, profiles=1, attributes=2, contexts=2)
    labels = add_labels(app_store, data.id, [[[INAPPROPRIATE, NECESSARY], [NECESSARY, INAPPROPRIATE]]], simulated=False)
    run_id = add_run(app_store, data.id, 2, [[[2, 1], [1, 2]]])
    with app_store.write() as connection:
        connection.execute(sa.update(attribute).values(statement="s" * LENGTH, value=f'"{"v" * LENGTH}"'))
        connection.execute(sa.update(response).values(text="m" * LENGTH))
    record = records(app_store, data.id)[0]
    query = {
        "dataset": data.id,
        "labelling": labels,
        "run": run_id,
        "profile": record.id,
        "attribute": record.attribute_ids[0],
        "context": record.context_ids[0],
    }
    app = opened(PAGES[name], **query)
    assert sent(app) < LENGTH


def test_cards_of_review_and_audit_and_cells_of_tables_are_cut() -> None:
    endless = "x" * LENGTH
    card = Card("1", endless, [("Task", endless, True)], [(endless, "")], [("who", "", endless)], endless).as_json()
    assert len(str(card)) < LONGEST + 5 * CELL_LIMIT
    assert card["facts"][0][2] is True  # type: ignore[index]
    short = pd.Series(["a", None, 3], dtype=object)
    assert _clipped(short) is short
    assert [len(str(cell)) < CELL_LIMIT + 50 for cell in _clipped(pd.Series([endless, None, "b"], dtype=object))]

"""A record with reviews of several people."""

from __future__ import annotations

from worlds import add_dataset, add_run, records

from cimemories.model import Label
from cimemories.store import audits, decisions, reviews
from cimemories.store.datasets import DatasetRow
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Store

N, X, A = Label.NECESSARY, Label.INAPPROPRIATE, Label.AMBIGUOUS
HOSTILE = "=HYPERLINK(\"http://x\")\n,'quoted' ![](http://x/y.png)"


def reviewed(store: Store, name: str = "small world") -> tuple[DatasetRow, str]:
    """A dataset with a run, and at least two events of every kind on it."""
    row = add_dataset(store, profiles=2, attributes=3, contexts=2, name=name)
    run_id = add_run(store, row.id, 1, {}, simulated=True)
    first, second = records(store, row.id)
    a, c = first.attribute_ids[0], first.context_ids[0]
    b, d = second.attribute_ids[1], second.context_ids[1]
    with store.write() as connection:
        new_decisions = [
            NewDecision(a, c, N, uid="d1", seconds=2.5, blind=True, guideline="g"),
            NewDecision(a, c, X, uid="d2", reason=HOSTILE),
        ]
        decisions.add_all(connection, row.id, "Ada", new_decisions)
        decisions.add_all(
            connection, row.id, "'Bob", [NewDecision(b, d, A, source="adjudicated", cause="slip", batch="b")]
        )
        decisions.undo(connection, row.id, "Ada", "d2", "d3")
        reviews.add_marks(
            connection, row.id, "Ada", [reviews.Mark(b, d, reviews.MarkKind.FLAG, "m1", "-1 is no age", 1.0)]
        )
        reviews.add_marks(connection, row.id, "Ada", [reviews.Mark(b, d, reviews.MarkKind.CLEAR, "m2")])
        reviews.add_comment(connection, row.id, "Ada", a, c, HOSTILE, uid="c1")
        reviews.add_comment(connection, row.id, "Bob", b, d, "left open", uid="c2")
        (one,) = (item for item in reviews.comments_of_dataset(connection, row.id) if item.uid == "c1")
        reviews.resolve_comment(connection, row.id, "Bob", one.id, "see the guideline", uid="c3")
        response = decisions.event_responses(connection, row.id)[run_id, 0, c, "full", 0]
        full = audits.NewVerdict(response, a, audits.AuditVerdict.FULL, uid="a1", blind=True)
        audits.add_all(connection, row.id, "Ada", [full])
        audits.undo(connection, row.id, "Ada", "a1", "a2")
    return row, run_id

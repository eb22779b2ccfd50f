"""Counts of ended work are held: asked for again they cost no counting, and they are never those of before a change."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from evaluating import add, row_of
from hostile import IncomingRequest, Reply, error, hostile_server, texts_of
from worlds import make_profile

from cimemories.evaluation import planning, runs
from cimemories.store import tables, work
from cimemories.store.engine import Store
from cimemories.store.tables import judgement, response

CONTEXTS, SAMPLES = 3, 2


def counted(store: Store, run_id: str) -> tuple[dict[str, int], int]:
    """Responses by status, and judgements, as the tables have them."""
    with store.read() as connection:
        own = sa.select(response.c.status, sa.func.count()).where(response.c.run == run_id).group_by(response.c.status)
        judged = sa.select(sa.func.count()).select_from(judgement.join(response)).where(response.c.run == run_id)
        return {row[0]: row[1] for row in connection.execute(own)}, connection.execute(judged).scalar_one()


def test_counts_of_a_run_are_those_of_the_moment_and_cost_nothing_twice(store: Store) -> None:
    add(store, [make_profile(0, 3, CONTEXTS)], "world")
    refusing = True

    def answer(request: IncomingRequest) -> Reply:
        return error(400, "no") if refusing and "Task 1" in str(request.body["messages"]) else texts_of(request)

    with hostile_server(answer, ("m",)) as server:
        matcher = planning.JudgeSpec(kind="matcher", model="", base_url="")
        run_id = planning.plan(
            store,
            planning.RunSpec(
                dataset="world", model="m", base_url=server.url, samples=SAMPLES, check="none", judges=(matcher,)
            ),
        )
        for last in (False, True):
            for _ in range(2):
                row = row_of(store, run_id)
                assert (row.responses, row.judged) == counted(store, run_id)
            refusing = not last
            runs.execute(store, run_id, concurrency=2)
            row = row_of(store, run_id)
            assert (row.responses, row.judged) == counted(store, run_id)
    assert row.responses == {"ok": CONTEXTS * SAMPLES}
    statements: list[str] = []
    sa.event.listen(store.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    assert row_of(store, run_id).responses == row.responses
    assert statements and not [text for text in statements if "count(" in text.lower()]


def test_what_is_held_cannot_be_written_into_and_unended_work_is_not_held(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, [make_profile(0, 3, CONTEXTS)], "world")
    with hostile_server(texts_of, ("m",)) as server:
        matcher = planning.JudgeSpec(kind="matcher", model="", base_url="")
        run_id = planning.plan(
            store,
            planning.RunSpec(
                dataset="world", model="m", base_url=server.url, samples=SAMPLES, check="none", judges=(matcher,)
            ),
        )
        runs.execute(store, run_id)
    row_of(store, run_id).responses["ok"] = 0
    assert row_of(store, run_id).responses == {"ok": CONTEXTS * SAMPLES}
    monkeypatch.setattr(work, "ENDED", ())
    counted_ids: list[str] = []
    with store.read() as connection:
        rows = connection.execute(sa.select(tables.run)).mappings().all()
        for _ in range(2):
            work.counts_by_work(connection, "x", rows, lambda ids: counted_ids.extend(ids) or {})
    assert counted_ids == [run_id, run_id]

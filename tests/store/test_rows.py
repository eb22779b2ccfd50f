"""Many rows by one statement: as if each had been written by itself, on both engines."""

from __future__ import annotations

from enum import StrEnum

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from worlds import add_call, add_dataset, plan_run, records

from cimemories.model import JudgementStatus, ResponseStatus, Reveal, Span
from cimemories.store import judgements, runs
from cimemories.store.engine import Store
from cimemories.store.rows import MOST_PARAMETERS, insert_new
from cimemories.store.tables import judgement, response

NAMES = ("key", "order", "share", "yes", "small")


class Word(StrEnum):
    FIRST = "first"


MANY = sa.Table(
    "many",
    sa.MetaData(),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("order", sa.Text),
    sa.Column("share", sa.Float),
    sa.Column("yes", sa.Boolean, nullable=False),
    sa.Column("small", sa.SmallInteger),
)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6) | st.sampled_from(
    [Word.FIRST, "{a,b}", 'NULL"\\', "%s :x ?"]
)
rows = st.fixed_dictionaries(
    {
        "key": texts,
        "order": st.none() | texts,
        "share": st.none() | st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False, width=32),
        "yes": st.booleans(),
        "small": st.none() | st.integers(-9, 9) | st.sampled_from([-(2**15), 2**15 - 1]),
    }
)


@given(st.lists(st.lists(rows, max_size=6), min_size=1, max_size=3))
def check_batches(store: Store, batches: list[list[dict[str, object]]]) -> None:
    model: dict[str, dict[str, object]] = {}
    with store.write() as connection:
        connection.execute(sa.delete(MANY))
        for batch in batches:
            new = [
                {"key": row["key"]}
                for n, row in enumerate(batch)
                if row["key"] not in model and row["key"] not in [earlier["key"] for earlier in batch[:n]]
            ]
            count, returned = insert_new(connection, MANY, batch, ("key",))
            assert count == len(new)
            assert sorted(key for (key,) in returned) == sorted(str(row["key"]) for row in new)
            for row in batch:
                model.setdefault(str(row["key"]), row)
        assert insert_new(connection, MANY, list(model.values()))[0] == 0  # all of them are there
        there = {row["key"]: dict(row) for row in connection.execute(sa.select(MANY)).mappings()}
    assert there == model


def test_rows_that_are_there_stay_and_the_new_ones_are_named(store: Store) -> None:
    with store.write() as connection:
        MANY.create(connection)
    check_batches(store)
    several = [
        dict.fromkeys(NAMES) | {"key": f"row {n}", "yes": n % 2 == 0} for n in range(MOST_PARAMETERS // len(NAMES) + 2)
    ]
    with store.write() as connection:
        connection.execute(sa.delete(MANY))
        assert insert_new(connection, MANY, several[1:2])[0] == 1
        count, returned = insert_new(connection, MANY, several, ("key",))
        assert count == len(returned) == len(several) - 1
    # What breaks a rule of the table is no row that is there already.
    with pytest.raises(sa.exc.IntegrityError), store.write() as connection:
        insert_new(connection, MANY, [dict.fromkeys(NAMES) | {"key": "unruly"}])
    with store.write() as connection:
        MANY.drop(connection)


def test_outcomes_of_one_commit_are_what_they_are_one_by_one(store: Store) -> None:
    """Settled together, done again as a whole, and met by another process's: what came first stays."""
    dataset = add_dataset(store, profiles=1, contexts=3)
    person = records(store, dataset.id)[0]

    def settled(number: int, text: str | None, key: str) -> runs.Settled:
        failed = text is None
        status = ResponseStatus.FAILED if failed else ResponseStatus.OK
        return runs.Settled(number, status, "timeout" if failed else None, text, None, None if failed else "stop", key)

    def judged(number: int, key: str, *attributes: int) -> judgements.Settled:
        reveals = [Reveal(i, "All of it", Span(0, 9)) for i in attributes]
        return judgements.Settled(number, judge, JudgementStatus.OK, None, key, len(attributes), reveals)

    with store.write() as connection:
        run_id = plan_run(connection, dataset.id, 2)
        judge = judgements.of_run(connection, run_id)[0].id
        first, second, third, *rest = (
            i for group in runs.owed(connection, run_id, person.id) for i in group.samples.values()
        )
        mine, other = (add_call(connection, name) for name in ("mine", "other"))
        assert runs.settle_all(connection, [settled(first, "a", mine), settled(second, None, mine)]) == [True, True]
        # Done again, with another's call for the first: a message stays, a failure gives way.
        again = [settled(first, "b", other), settled(second, "c", mine), settled(third, "d", mine)]
        assert runs.settle_all(connection, again) == [False, True, True]
        assert runs.settle_all(connection, again[1:]) == [True, True]
        query = sa.select(response.c.text, response.c.status, response.c.call).order_by(response.c.id)
        found = connection.execute(query).all()
        assert found == [("a", "ok", mine), ("c", "ok", mine), ("d", "ok", mine), *[(None, "owed", None)] * len(rest)]

        failed = judgements.Settled(second, judge, JudgementStatus.FAILED, "timeout", mine)
        one, two, *_ = person.attribute_ids
        judgements.settle_all(connection, [judged(first, mine, one, two), failed, judged(first, other, two)])
        judgements.settle_all(connection, [judged(second, other, two), judged(third, mine), judged(first, other)])
        claims = judgements.claims(connection, judge, (first, second, third))
        assert {number: sorted(of) for number, of in claims.items()} == {first: [one, two], second: [two], third: []}
        calls_of = sa.select(judgement.c.call, judgement.c.cause).order_by(judgement.c.response)
        assert connection.execute(calls_of).all() == [(mine, None), (other, None), (mine, None)]

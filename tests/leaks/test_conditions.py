"""Conditions on leaks: what they find, what they refuse and why, and that no text does anything else."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cimemories.leaks import gallery
from cimemories.leaks.conditions import COLUMNS, DEEPEST, LONGEST, LONGEST_WITH_TEXTS, condition, equal
from cimemories.model import LONGEST_STATEMENT
from cimemories.store.engine import StoreError

ROWS: list[dict[str, object]] = [
    {"domain": "health", "statement": "My debt is $950.\nReally.", "claimed": 4, "draws": 5, "user": "O'Brien"},
    {"domain": "finance", "statement": "DEBT", "claimed": 2, "draws": 5, "user": "Ada"},
    {"domain": "legal", "statement": "", "claimed": 0, "draws": 0, "user": "Ada"},
]
WORDS = (
    "domain claimed 'a' 3 ( ) and or not = < in like between is null - , / ; -- /* $1 ? \" ' select union "
    "read_csv('x') {pairs} %s ::int"
)
TOKENS = st.sampled_from(WORDS.split())
TYPES = {"number": "BIGINT", "text": "VARCHAR"}


def found(text: str) -> list[str]:
    """The domains of the rows that a condition leaves."""
    with duckdb.connect() as connection:
        columns = ", ".join(f'"{name}" {TYPES[kind]}' for name, kind in COLUMNS.items())
        connection.execute(f"CREATE TABLE leaks ({columns})")
        for row in ROWS:
            connection.execute(f"INSERT INTO leaks BY NAME SELECT {named(row)}", [*row.values()])
        sql, values = condition(text)
        query = f"SELECT domain FROM leaks WHERE true AND {sql} ORDER BY rowid"
        return [row[0] for row in connection.execute(query, list(values)).fetchall()]


def named(row: dict[str, object]) -> str:
    return ", ".join(f'? AS "{name}"' for name in row)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("domain = 'health'", ["health"]),
        ("Domain <> 'health' AND NOT domain = 'legal'", ["finance"]),
        ("claimed / draws >= 0.5", ["health"]),
        ("claimed + 1 * 2 = 4 or claimed - -1 > 4.5", ["health", "finance"]),
        ("domain = 'legal' or domain = 'finance' and claimed > 2", ["legal"]),
        ("(domain = 'legal' or domain = 'finance') and claimed >= 2", ["finance"]),
        ("statement like '%debt%'", ["health"]),
        ("statement ilike '_ebt'", ["finance"]),
        ("statement not ilike '%debt%'", ["legal"]),
        ("claimed not between 1 and 3 and domain in ('legal', 'finance')", ["legal"]),
        ("sphere is null and domain is not null and user = 'O''Brien'", ["health"]),
        ("statement like '.*'", []),  # no regular expression
    ],
)
def test_a_condition_finds_what_it_says(text: str, expected: list[str]) -> None:
    assert found(text) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "at its end: a column, a number or a 'text' is missing"),
        ("domain = health", "at 'health': there is no column 'health', and a text stands in '...'"),
        ("domain = 'health", "a text needs a ' at its end"),
        ("domain", "this is no comparison"),
        ("domain = 3", "'=' needs a text on both sides"),
        ("claimed in (1, 'x')", "'in' needs a number on both sides"),
        ("claimed and draws", "'and' needs a comparison on both sides"),
        ("claimed like '3'", "'like' needs a column of text"),
        ("claimed between 1", "'and' is missing"),
        ("1 < claimed < 3", "'<' is not expected here"),
        ("read_csv('/etc/passwd') = 'x'", "there are no functions here"),
        ("domain = (select 1)", "there is no column 'select'"),
        ("domain = 'a') union select 1 --", "')' is not expected here"),
        ("claimed > 1; drop table leaks", "not expected here"),
        ("leaks.domain = 'a'", "at '.domain = 'a'': not expected here"),
        ("\"domain\" = 'a'", "not expected here"),
        ("domain = $1", "not expected here"),
        ("(" * (DEEPEST + 1) + "claimed = 1", "brackets inside each other"),
        ("claimed = 1" + " " * LONGEST, "longer than"),
        ("claimed = 1 and " * 70 + "domain = 'health'", "its texts left out"),
        (f"domain = '{'x' * LONGEST_WITH_TEXTS}'", "longer than"),
        (f"domain like '{'%a' * LONGEST}'", "a pattern has at most"),
    ],
)
def test_what_is_no_condition_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(StoreError) as refused:
        condition(text)
    assert why in str(refused.value)


@given(st.lists(TOKENS, max_size=12).map(" ".join) | st.text(max_size=40))
@example("claimed = " + "1+" * 490 + "1")
@example("claimed in (" + "1," * 480 + "1)")
@example("not " * 240 + "claimed = 1")
@example("statement like '" + "%a" * 480 + "_'")
@example("domain = '\ud800'")
def test_a_text_is_refused_or_becomes_a_condition_that_the_database_takes(text: str) -> None:
    try:
        sql, values = condition(text)
    except StoreError:
        return
    assert set(found(text)) <= {"health", "finance", "legal"}
    assert "{" not in sql and "'" not in sql and ";" not in sql  # texts are parameters
    assert sql.count("?") == len(values)


@given(st.text(max_size=30))
@example("o'b' or 1 = 1 --")
@example("I owe the bank, " * (LONGEST_STATEMENT // 16))
def test_equal_finds_its_values_whatever_they_are(value: str) -> None:
    text = equal({"domain": value, "claimed": 3})
    with duckdb.connect() as connection:
        sql, values = condition(text)
        cleaned = value.encode("utf-8", "replace").decode("utf-8")
        row = {"domain": cleaned, "claimed": 3}
        query = f"SELECT {sql} FROM (SELECT {named(row)})"
        assert connection.execute(query, [*values, *row.values()]).fetchone() == (True,)


def test_every_column_of_the_gallery_can_stand_in_a_condition() -> None:
    assert set(COLUMNS) == set(gallery.COLUMNS)

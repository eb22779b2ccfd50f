"""What was recorded of the product (tests/golden) is what it says now; `make golden-check` compares all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Database
from golden import record

# The larger world on PostgreSQL: so every kind of query is asked of either engine, and the rooms in conftest.py whose
# tests ask SQLite alone rest on this.
WORLDS = [
    ("tiny", "sqlite"),
    pytest.param("small", "sqlite", marks=pytest.mark.long),
    pytest.param("small", "postgres", marks=pytest.mark.postgres),
]


@pytest.mark.parametrize(("world", "bare_database"), WORLDS, indirect=["bare_database"])
def test_numbers_and_exports_are_those_that_were_recorded(tmp_path: Path, world: str, bare_database: Database) -> None:
    answers = record.recorded(world, tmp_path, bare_database.url, quick=True)
    before = record.read()
    assert list(record.differences({question: before.get(question) for question in answers}, answers)) == []


def test_shares_differ_from_the_thirteenth_digit_on_and_all_else_at_once() -> None:
    before = {"share": 0.1, "large": 1e6, "count": 3, "text": "a", "none": None, "rows": [{"share": 1.0}, 2]}
    near = {**before, "share": 0.1 + 1e-13, "large": 1e6 + 1e-7, "rows": [{"share": 1}, 2]}
    assert list(record.differences(before, near)) == []
    changed = [
        *({"share": 0.1 + 1e-11}, {"large": 1e6 + 1e-5}, {"count": 4}, {"count": True}, {"text": "b"}),
        *({"none": 0}, {"rows": [{"share": 1.0}]}, {"rows": [{"share": 0.5}, 2]}, {"more": 1}),
    ]
    for change in changed:
        assert len(list(record.differences(before, {**before, **change}))) == 1, change
    assert list(record.differences(before, {"share": 0.1})) == [
        f"/{name}: gone" for name in ("count", "large", "none", "rows", "text")
    ]


def test_what_varies_is_replaced_and_what_was_given_stays() -> None:
    answer = {
        "run": "run-12345678",
        "created": "2026-11-28T02:20:22.034Z",
        "decided": "2001-01-01T10:00:00.000Z",
        "calls.jsonl": [{"seconds": 0.1, "exchange": "f0", "key": "f0", "error": None}],
        "seconds": 0.1,
        "versions": "python 3.11.7, openai 3.52.0, revision 76be9eabf9ed, server revision seed-0",
        "manifest": '"python": "3.14.0", "revision": "76be9eabf9ed421deab34b5648ff538e041b03b0"',
    }
    assert record.normalised(answer, {"run-12345678": "<average>"}) == {
        "run": "<average>",
        "created": "<time>",
        "decided": "2001-01-01T10:00:00.000Z",
        "calls.jsonl": [{"seconds": "<varies>", "exchange": "<varies>", "key": "f0", "error": None}],
        "seconds": 0.1,
        "versions": "python <installed>, openai <installed>, revision <revision>, server revision seed-0",
        "manifest": '"python": "<installed>", "revision": "<revision>"',
    }

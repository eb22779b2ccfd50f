"""Review events that do not match, and files that are none: one clear line, and nothing comes in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from worlds import add_dataset, make_profile

from cimemories.formats.reading import FormatError
from cimemories.formats.review_events import import_events, moment
from cimemories.store import decisions
from cimemories.store.engine import Store


def one_line(tmp_path: Path, **changes: Any) -> Path:
    context = make_profile().contexts[0]
    line = {
        **{"event": "decision", "profile": 0, "attribute": "fact_0", "task": context.task},
        **{"recipient": context.recipient, "annotator": "Ada", "label": "necessary", "created": "2026-01-01"},
        **changes,
    }
    path = tmp_path / "events.jsonl"
    good = {**line, **{k: v for k, v in GOOD.items() if k in changes}}
    path.write_text(f"{json.dumps({**good, 'uid': 'good'})}\n\n{json.dumps(line)}\n", encoding="utf-8")
    return path


GOOD = {
    "event": "decision",
    "profile": 0,
    "attribute": "fact_0",
    "recipient": "Recipient 0",
    "label": None,
    "dataset": None,
    "created": "2026-01-01",
    "seconds": 1,
    "statement": None,
    "profile_name": None,
    "annotator": "Bob",
}


@pytest.mark.parametrize(
    ("changes", "field", "unknown"),
    [
        ({"profile": 7}, "profile 7", True),
        ({"profile_name": "Zoë"}, "profile_name 'Zoë'", True),
        ({"attribute": "rent"}, "attribute 'rent'", True),
        ({"statement": "I was changed."}, "statement of attribute 'fact_0'", True),
        ({"recipient": "Nobody"}, "task 'Task 0' with recipient 'Nobody'", True),
        ({"dataset": "elsewhere"}, "dataset 'elsewhere'", True),
        ({"event": "vote"}, "event must be one of", False),
        ({"label": "yes"}, "label must be one of 'necessary', 'inappropriate' or 'ambiguous', not 'yes'", False),
        ({"created": "yesterday"}, "created must be a time, e.g. 2026-01-31T10:00:00Z, not 'yesterday'", False),
        ({"seconds": "fast"}, "seconds must be", False),
        ({"seconds": 10**400}, "seconds must be a finite number, not a number 1000", False),
        ({"seconds": -1}, "seconds must be 0 or more, not -1", False),
        ({"annotator": " "}, "annotator is blank", False),
        ({"annotator": "A\nB"}, "annotator has a line break", False),
    ],
)
def test_what_does_not_match_is_told_in_one_line_and_nothing_comes_in(
    sqlite_store: Store, tmp_path: Path, changes: dict[str, Any], field: str, unknown: bool
) -> None:
    row = add_dataset(sqlite_store)
    path = one_line(tmp_path, **changes)
    with pytest.raises(FormatError) as problem:
        import_events(sqlite_store, path)
    assert f"events.jsonl: line 3: {field}" in str(problem.value)
    assert "\n" not in str(problem.value)
    with sqlite_store.read() as connection:
        assert decisions.history(connection, row.id) == []
    if not unknown:
        with pytest.raises(FormatError):
            import_events(sqlite_store, path, skip_unknown=True)
        return
    done = import_events(sqlite_store, path, skip_unknown=True)
    assert (done.new["decision"], len(done.skipped)) == (1, 1)
    assert field in done.skipped[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"event": "decision"', "line 1: not valid JSON"),
        (b'{"event": "decision", "event": "mark"}', "appears twice"),
        (b"event,label\ndecision\n", "line 2: has 1 cells"),
        (b"label\nx\n", "no column is called 'event'"),
        (b'event,profile\ndecision,"one"\n', "line 2: profile must be a whole number"),
        (b'event,profile\ndecision,"1\n', "not a whole CSV"),
        (b"\xff\xfe\x00", "begins like text in UTF-16, but is none; save the file as UTF-8"),
        (b"PAR1 and no more", "not a whole Parquet"),
        (b"[1]", "line 1: event must be one of"),
    ],
)
def test_a_broken_file_is_one_clear_line(sqlite_store: Store, tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message) as problem:
        import_events(sqlite_store, path)
    assert str(problem.value).startswith("file") and "\n" not in str(problem.value)


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ("2026-01-31", "2026-01-31T00:00:00.000Z"),
        ("2026-01-31T12:00:00.5+02:00", "2026-01-31T10:00:00.500Z"),
        ("0001-01-01T00:00:00+14:00", ""),
        ("soon", ""),
    ],
)
def test_times_become_one_form_that_sorts(given_: str, expected: str) -> None:
    assert moment(given_) == expected

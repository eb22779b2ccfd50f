"""Files as spreadsheets and Windows write them: other separators, UTF-16, a byte order mark."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from evaluating import import_bytes
from official_files import RECORD
from reviewed import reviewed

from cimemories.formats.huggingface import separator
from cimemories.formats.reading import FormatError
from cimemories.formats.review_events import export_events, import_events
from cimemories.store import datasets
from cimemories.store.engine import Store

ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_published_columns_are_read_in_any_encoding_and_with_any_separator(
    sqlite_store: Store, encoding: str, delimiter: str
) -> None:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(("name", "attribute", "memory_statement", "label", "prompt"))
    writer.writerow(("Zoë", "rent", "My rent is 1,450; it was\t1,200.", "1.0", "say, to A for B"))
    result = import_bytes(sqlite_store, text.getvalue().encode(encoding), "file.csv", "columns")
    with sqlite_store.read() as connection:
        (record,) = datasets.profile_records(connection, result.dataset.id)
    assert (record.profile.name, result.kind) == ("Zoë", "huggingface")
    assert record.profile.attributes[0].statement == "My rent is 1,450; it was\t1,200."


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_profiles_are_read_in_any_encoding_and_are_one_dataset(sqlite_store: Store, encoding: str) -> None:
    text = json.dumps([{**RECORD, "bio": {**RECORD["bio"], "name": "Zoë"}}], ensure_ascii=False)
    first = import_bytes(sqlite_store, text.encode(encoding), "file.json", "first")
    again = import_bytes(sqlite_store, text.encode(encoding), "file.json", "again")
    assert (first.new, again.new, again.dataset.name) == (True, False, "first")


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_review_events_are_read_as_a_spreadsheet_saves_them(
    sqlite_store: Store, tmp_path: Path, encoding: str, delimiter: str
) -> None:
    row, _ = reviewed(sqlite_store)
    counts = export_events(sqlite_store, row.name, tmp_path / "out", "csv").counts
    for path in (tmp_path / "out").iterdir():
        cells = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
        with path.open("w", encoding=encoding, newline="") as stream:
            csv.writer(stream, delimiter=delimiter).writerows(cells)
    assert import_events(sqlite_store, tmp_path / "out").present == counts


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_review_events_as_json_lines_are_read_in_any_encoding(
    sqlite_store: Store, tmp_path: Path, encoding: str
) -> None:
    row, _ = reviewed(sqlite_store)
    path = tmp_path / "out.jsonl"
    counts = export_events(sqlite_store, row.name, path).counts
    path.write_bytes(path.read_text(encoding="utf-8").encode(encoding))
    assert import_events(sqlite_store, path).present == counts


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("\ufeff[\ud83d".encode("utf-16-le", "surrogatepass"), "begins like text in UTF-16, but is none"),
        ('[{"bio": "Zoë"}]'.encode("cp1252"), "not UTF-8"),
        ("uid;label\n1;necessary\n".encode("utf-16"), "unknown format, the file begins with 'uid;label"),
    ],
)
def test_an_encoding_that_is_not_read_is_named(sqlite_store: Store, data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        import_bytes(sqlite_store, data, "file.json")
    assert "codec" not in str(caught.value) and "utf-8-sig" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"uid;profile\n1;2\n", "no column is called 'event'; the first ones are: uid, profile"),
        (b"event;uid;event\ndecision;1;2\n", "the column event appears twice"),
    ],
)
def test_a_review_file_with_other_columns_says_which_it_has(
    sqlite_store: Store, tmp_path: Path, data: bytes, message: str
) -> None:
    path = tmp_path / "decisions.csv"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=message):
        import_events(sqlite_store, path)


def test_a_column_name_may_hold_another_separator() -> None:
    assert [separator(header) for header in ("event;a, b;c", "event", "a|b", '"a";"b"')] == [";", ",", "|", ";"]

"""`cimemories review`: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reviewed import reviewed
from typer.testing import CliRunner

from cimemories import model
from cimemories.cli import base, review
from cimemories.formats.reading import FormatError
from cimemories.store import decisions
from cimemories.store.engine import Store, StoreError

assert review.review.info.name == "review"


def ran(store: Store, *arguments: object, code: int = 0) -> str:
    command = ["review", *map(str, arguments), "--workspace", str(store.workspace)]
    result = CliRunner().invoke(base.cli, command)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def shown(store: Store, *arguments: object) -> Any:
    return json.loads(ran(store, *arguments, "--json"))


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_what_was_exported_is_imported_once(sqlite_store: Store, tmp_path: Path, form: str) -> None:
    row, _ = reviewed(sqlite_store)
    out = tmp_path / "out"
    exported = shown(sqlite_store, "export", row.name, "-o", out, "--format", form)
    counts = {"decision": 4, "mark": 2, "comment": 3, "audit": 2}
    assert exported == {"path": str(out), "format": form, "counts": counts, "simulated": True}
    again = shown(sqlite_store, "import", out)
    assert (again["datasets"], again["new"], again["present"]) == ([row.name], dict.fromkeys(counts, 0), counts)
    if form != "jsonl":
        one = shown(sqlite_store, "import", out / f"decisions.{form}")
        assert one["present"] == {"decision": 4, "mark": 0, "comment": 0, "audit": 0}


def test_filters_and_words_for_people(sqlite_store: Store, tmp_path: Path) -> None:
    row, _ = reviewed(sqlite_store)
    out = tmp_path / "ada.jsonl"
    text = ran(sqlite_store, "export", row.name, "-o", out, "--annotator", "Ada", "--profile", "0", "--blind")
    assert text == f"exported 1 decision or undo, 1 verdict or undo of '{row.name}': {out}, simulated\n"
    with pytest.raises(StoreError, match="is already there"):
        ran(sqlite_store, "export", row.name, "-o", out)
    ran(sqlite_store, "export", row.name, "-o", out, "--replace", "--since", "2999-01-01")
    assert out.read_text() == ""
    for misspelt in (("--annotator", "Adda"), ("--source", "nobody"), ("--annotator", "Adda", "--since", "2001-01-01")):
        with pytest.raises(StoreError, match="nothing was written. Its events are by .*Ada and Bob"):
            ran(sqlite_store, "export", row.name, "-o", tmp_path / "x", *misspelt)
    with pytest.raises(FormatError, match="soon"):
        ran(sqlite_store, "export", row.name, "-o", tmp_path / "x", "--since", "soon")
    ran(sqlite_store, "export", row.name, "-o", tmp_path / "x", "--format", "xml", code=2)
    assert not (tmp_path / "x").exists()


def test_unknown_events_are_skipped_only_when_asked(sqlite_store: Store, tmp_path: Path) -> None:
    row, _ = reviewed(sqlite_store)
    out = tmp_path / "all.jsonl"
    ran(sqlite_store, "export", row.name, "-o", out, "--source", "single")
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    moved = [{**line, "uid": f"new {n}", "attribute": ["rent", line["attribute"]][n]} for n, line in enumerate(lines)]
    out.write_text("".join(f"{json.dumps(line)}\n" for line in moved), encoding="utf-8")
    with pytest.raises(FormatError, match=r"all.jsonl: line 1: attribute 'rent' .* --skip-unknown"):
        ran(sqlite_store, "import", out)
    result = shown(sqlite_store, "import", out, "--skip-unknown", "-d", row.name)
    assert (result["new"]["decision"], len(result["skipped"])) == (1, 1)


def test_an_import_is_listed_and_undone_once(sqlite_store: Store, tmp_path: Path) -> None:
    row, _ = reviewed(sqlite_store)
    out = tmp_path / "[b]all.jsonl"
    assert shown(sqlite_store, "imports", row.name) == []
    ran(sqlite_store, "export", row.name, "-o", out, "--source", "single")
    line = json.loads(out.read_text(encoding="utf-8").splitlines()[0])
    out.write_text(json.dumps({**line, "uid": "new", "annotator": "Cem"}), encoding="utf-8")
    ran(sqlite_store, "import", out, "-d", row.name)
    (brought,) = shown(sqlite_store, "imports", row.name)
    assert (brought["name"], brought["events"], brought["undone"]) == (out.name, {"decision": 1}, None)
    table = ran(sqlite_store, "imports", row.name)
    assert "[b]all.jsonl" in table and "decision: 1" in table
    with pytest.raises(StoreError, match=rf"has no import 99. `cimemories review imports '{row.name}'` lists them"):
        ran(sqlite_store, "undo-import", row.name, 99)

    undone = ran(sqlite_store, "undo-import", row.name, brought["id"], "--annotator", "Ada")
    assert undone == f"undone: 1 event of '{out.name}' removed\n"
    with sqlite_store.read() as connection:
        assert "Cem" not in {d.annotator for d in decisions.history(connection, row.id)}
    assert shown(sqlite_store, "imports", row.name)[0]["undone"]
    with pytest.raises(StoreError, match="was undone already"):
        ran(sqlite_store, "undo-import", row.name, brought["id"])
    assert shown(sqlite_store, "import", out, "-d", row.name)["new"]["decision"] == 1, "and it can come again"


def test_status_counts_people_labels_sources_and_what_is_open(sqlite_store: Store) -> None:
    row, _ = reviewed(sqlite_store)
    status = shown(sqlite_store, "status", row.name)
    assert (status["pairs"], status["decided"], status["comments"], status["open_comments"]) == (12, 2, 2, 1)
    assert (status["shared"], status["disputed"], status["flagged"], status["guideline"]) == (0, 0, 0, 1)
    people = {person["name"]: person for person in status["people"]}
    assert [people["Ada"][label] for label in ("necessary", "inappropriate", "ambiguous")] == [1, 0, 0]
    assert people["Ada"]["sources"] == {"single": 1} and people["'Bob"]["sources"] == {"adjudicated": 1}
    with sqlite_store.read() as connection:
        first = decisions.history(connection, row.id)[0]
    with sqlite_store.write() as connection:
        new_decisions = [decisions.NewDecision(first.attribute, first.context, model.Label.INAPPROPRIATE)]
        decisions.add_all(connection, row.id, "Bob", new_decisions)
    assert {k: shown(sqlite_store, "status", row.name)[k] for k in ("shared", "disputed")} == {
        "shared": 1,
        "disputed": 1,
    }
    text = ran(sqlite_store, "status", row.name)
    assert "1 of 1 pair with several reviewers are disputed" in text
    assert "comments: 1 of 2 open" in text
    with pytest.raises(StoreError, match="no dataset named 'nothing'"):
        ran(sqlite_store, "status", "nothing")

"""Every number of a run in every face: what is added to the answer is everywhere."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pytest
from counted_worlds import LABELS, REVEALS
from paging import opened, page_html
from reports import Page
from typer.testing import CliRunner
from worlds import add_dataset, add_labels, add_run, ask

import cimemories
from cimemories.answer import Table, cell
from cimemories.answers import metrics as question
from cimemories.cli import cli
from cimemories.report.collect import collect
from cimemories.report.render import as_html
from cimemories.store.engine import Store


def test_a_number_that_is_added_to_the_answer_is_in_every_face(
    app_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = add_dataset(app_store, 1, 3, 3)
    add_labels(app_store, data.id, LABELS)
    run_id = add_run(app_store, data.id, 5, REVEALS)
    usual = question._numbers

    def with_one_more(*arguments: Any) -> Table:
        shown = usual(*arguments)
        more = {"measure": "of_health", "title": "Leaks about health", "value": 0.125, "rests_on": "2 of 16 leaks"}
        return Table(pd.concat([shown.frame, pd.DataFrame([more])], ignore_index=True), shown.columns, shown.caption)

    monkeypatch.setattr(question, "_numbers", with_one_more)
    place = ["metrics", run_id, "--workspace", str(app_store.workspace)]
    (line,) = (text for text in CliRunner().invoke(cli, place).stdout.splitlines() if text.startswith("Leaks about"))
    assert "12.5 %" in line and "2 of 16 leaks" in line
    printed = json.loads(CliRunner().invoke(cli, [*place, "--json"]).stdout)
    assert {row["measure"]: row["value"] for row in printed["numbers"]}["of_health"] == 0.125
    with cimemories.open(app_store.workspace) as ws:
        frame = ws.runs[run_id].metrics().to_frame().set_index("measure")
        assert frame.loc["of_health", "value"] == 0.125
        assert "Leaks about health" in ws.runs[run_id].metrics()._repr_html_()
    page = page_html(opened("pages/explore/heatmaps.py", "heatmaps.box.numbers", run=run_id))
    assert "Leaks about health" in page and "2 of 16 leaks" in page
    flows, scope = ask(app_store, run_id)
    report = Page(as_html(collect(flows, [scope], now=datetime(2026, 1, 1, tzinfo=UTC))))
    assert report.table("Numbers of")["Leaks about health"][0] == "12.5 %"


@pytest.mark.parametrize(
    ("kind", "row", "text"),
    [
        ("percent", {"x": 0.1237}, "12.4 %"),
        ("percent", {"x": 0.1237, "x_sd": 0.031, "x_low": 0.101, "x_high": 0.149}, "12.4 % ± 3.1 [10.1, 14.9]"),
        ("percent", {"x": float("nan"), "x_low": 0.101, "x_high": 0.31}, "10.1 to 31.0 %"),
        ("percent", {"x": float("nan"), "x_low": float("nan"), "x_high": 0.31}, "–"),
        ("difference", {"x": 0.02, "x_low": -0.01, "x_high": 0.05}, "+2.0 [-1.0, +5.0]"),
        ("points", {"x": 0.061}, "6.1"),
        ("count", {"x": 3412}, "3,412"),
        ("count", {"x": None}, "–"),
        ("count", {"x": 3, "x_items": 120, "x_share": 0.025}, "3 of 120 (2.5 %)"),
        ("number", {"x": 2.5}, "2.50"),
        ("number", {"x": 4.5, "x_sd": 1.25}, "4.50 ± 1.25"),
        ("decimal", {"x": -0.0671, "x_low": -0.1, "x_high": 0.2, "x_items": 41}, "-0.067 [-0.100, 0.200] of 41"),
        ("text", {"x": None}, ""),
        ("date", {"x": datetime(2026, 1, 2, 3, 4, tzinfo=UTC)}, "2026-01-02 03:04"),
    ],
)
def test_a_cell_has_its_number_with_what_belongs_to_it(kind: Any, row: dict[str, Any], text: str) -> None:
    assert cell(kind, "x", row) == text


def test_a_table_is_the_same_rows_in_markdown_and_latex() -> None:
    frame = pd.DataFrame({"name": ["a_b | <b>"], "share": [0.5], "share_low": [0.25], "share_high": [0.75]})
    table = Table(frame, {"name": question.Column("text", "Name"), "share": question.Column("percent", "Share")})
    assert table.markdown().splitlines()[1:] == ["| --- | ---: |", r"| a\_b \| \<b\> | 50.0 % \[25.0, 75.0\] |"]
    assert r"a\_b | <b> & 50.0 \% [25.0, 75.0]" in table.latex() and r"\toprule" in table.latex()
    assert list(table.spread_out()) == ["name", "share", "share_low", "share_high"]

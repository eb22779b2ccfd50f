"""The Python API: its numbers are those of the command line, its rows those that the numbers are of, its errors say
what there is, and names that somebody made up stay text."""

from __future__ import annotations

import asyncio
import hashlib
import html
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from conftest import Database
from evaluating import DATASET, add_labelled
from hostile_names import HOSTILE
from paging import opened
from typer.testing import CliRunner
from worlds import add_dataset, add_labels, add_run

import cimemories
from cimemories.answer import LONGEST_CELL, plain
from cimemories.answers.heatmap import View, drawing
from cimemories.api import running
from cimemories.api.run import frame_of
from cimemories.cli import cli, output
from cimemories.evaluation.planning import spec_of
from cimemories.evaluation.spec import command_of
from cimemories.flows.columns import LABEL_WORDS, Coded, flow_columns
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.llm.worker import WorkError
from cimemories.model import JudgementStatus, Label, ResponseStatus
from cimemories.store import decisions
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import dataset as dataset_table
from cimemories.store.tables import run as run_table
from cimemories.ui import charts

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
LABELS = [[[X, X, N], [X, X, X], [N, N, A]]]
REVEALS = [[[1, 0, 4], [0, 2, 5], [5, 3, 0]]]
AVERAGE, CAREFUL = "sim-average on the demo", "sim-careful on the demo"


@pytest.fixture(scope="module")
def folder(prepared_demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(prepared_demo, tmp_path_factory.mktemp("api") / "workspace")


@pytest.fixture(scope="module")
def demo(folder: Path) -> Iterator[cimemories.Workspace]:
    with cimemories.open(folder) as ws:
        yield ws


def small(store: Store, **options: Any) -> str:
    """The worked example of docs/metrics.md as a run; returns its id."""
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, LABELS)
    return add_run(store, data.id, 5, REVEALS, **options)


def printed(*arguments: object) -> Any:
    """What a command prints as JSON."""
    result = CliRunner().invoke(cli, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def same(value: float, other: float | None) -> bool:
    return np.isnan(value) if other is None else value == other


# ---- numbers are those of the command line


@pytest.mark.parametrize(
    "options", [{}, {"labels": "consensus", "identifiers": "substring", "judge": "all", "grounded": True}]
)
def test_metrics_are_those_of_the_command_line(
    demo: cimemories.Workspace, folder: Path, options: dict[str, Any]
) -> None:
    run = demo.runs[AVERAGE]
    flags = [f"--{name}" if value is True else f"--{name}={value}" for name, value in options.items()]
    expected, numbers = printed("metrics", run.id, "-w", folder, *flags), run.metrics(**options)
    assert {str(n): value for n, value in numbers.violation.items()} == expected["violation"]
    assert len(numbers.violation) == 5 and 0 < numbers.violation[1] < numbers.violation[5]
    # What the notebook has is what the command prints, which adds what takes longer.
    more = {"norms", "by", "identifier_rules"}
    assert json.loads(json.dumps(numbers.as_json())) | {name: expected[name] for name in more} == expected
    assert list(numbers.notes) == expected["notes"] and list(numbers.simulated) == expected["simulated_parts"]
    users = numbers.to_frame("per_profile")
    assert users["completeness"].tolist() == [item["completeness"] for item in expected["per_profile"]]
    frame = numbers.to_frame().set_index(["measure", "n"])
    assert frame.loc[("violation", 3), "value"] == expected["violation"]["3"]
    assert frame.loc[("violation", 3), "value_high"] == expected["violation_interval"]["3"]["high"]


def test_a_comparison_is_that_of_the_command_line(demo: cimemories.Workspace, folder: Path) -> None:
    first, second = demo.runs[CAREFUL], demo.runs[AVERAGE]
    (expected,) = printed("compare", first.id, second.id, "-w", folder)["differences"]
    compared = demo.compare(CAREFUL, second)
    assert json.loads(json.dumps(compared.as_json())) == expected
    assert compared.sentence == expected["sentence"] and compared.names == (first.model, second.model)
    (row,) = compared.to_frame().to_dict("records")
    for measure in ("violation", "completeness"):
        measured = expected[measure]
        assert [row[f"{measure}{end}"] for end in ("", "_low", "_high")] == [
            measured[end] for end in ("value", "low", "high")
        ]
        assert row[measure] == pytest.approx(row[f"{measure}_second"] - row[f"{measure}_first"])
    assert len(compared.to_frame("flows")) == len(expected["flows"]) > 0
    assert compared.to_frame("domains")["domain"].tolist() == [item["domain"] for item in expected["domains"]]
    with pytest.raises(StoreError, match="cannot be compared with itself"):
        demo.compare(first, first)


def test_a_leaderboard_is_that_of_the_command_line(demo: cimemories.Workspace, folder: Path) -> None:
    expected = printed("leaderboard", "-n", 2, "-w", folder)
    board = demo.leaderboard(samples=2)
    assert json.loads(json.dumps(board.as_json())) == expected
    frame = board.to_frame()
    assert set(frame["kind"]) == {"run", "baseline"} and (frame["kind"] == "run").sum() > 3
    for name in ("kind", "title", "violation", "n"):
        assert plain(frame[name].tolist()) == [row[name] for row in expected["rows"]], name
    pair = demo.leaderboard(CAREFUL, demo.runs[AVERAGE], rank_small=True)
    assert {line.run.name for line in pair.ranked} == {CAREFUL, AVERAGE}
    with pytest.raises(StoreError, match="of one dataset already"):
        demo.leaderboard(CAREFUL, dataset="demo")


def test_leaks_are_those_of_the_command_line(demo: cimemories.Workspace, folder: Path) -> None:
    run = demo.runs[AVERAGE]
    finance = "domain = 'finance'"
    expected = printed("leaks", run.id, "--where", finance, "--top", 0, "-w", folder)["leaks"]
    frame = run.leaks(where=finance, excerpts=True)
    assert len(frame) == len(expected) > 10 and list(frame.columns) == list(expected[0])
    for name in frame.columns:
        assert frame[name].tolist() == [row[name] for row in expected], name
    where = "domain = 'health' and claimed / draws >= 0.2"
    told = printed("leaks", run.id, "--by", "recipient", "--where", where, "--top", 0, "-w", folder)["patterns"]
    patterns = run.leaks(where=where, by=["recipient"])
    assert patterns.to_dict("records") == told
    assert patterns["number"].sum() == len(run.leaks(where=where)) > 1
    with pytest.raises(StoreError, match="cannot be grouped by 'colour'"):
        run.leaks(by=["colour"])
    assert set(run.leaks()["strength"]) == {"full"} and len(run.leaks(strength=None)) >= len(run.leaks())
    assert list(run.leaks().columns) == list(run.leaks(strength="implied").columns)


# ---- rows


def test_the_numbers_follow_from_the_flows(demo: cimemories.Workspace) -> None:
    """By group-by, as the published definition reads: with all samples an attribute leaks where any reveals it."""
    run = demo.runs[AVERAGE]
    flows, numbers = run.flows(), run.metrics()
    judged = flows[flows["retained"] & (flows["draws"] > 0)]
    private = judged[(judged["label"] == "inappropriate") & ~judged["identifier"]]
    needed = judged[judged["label"] == "necessary"]
    ever = private.assign(leaked=private["reveals"] > 0).groupby(["profile", "attribute"])["leaked"].max()
    assert ever.groupby("profile").mean().mean() == pytest.approx(numbers.violation[5], abs=1e-12)
    share = (needed["reveals"] / needed["draws"]).groupby([needed["profile"], needed["context"]]).mean()
    assert share.groupby("profile").mean().mean() == pytest.approx(numbers.completeness, abs=1e-12)
    assert private["reveals"].sum() / private["draws"].sum() == pytest.approx(numbers.leak_rate, abs=1e-12)
    assert (len(private), len(ever)) == (numbers.flows, numbers.attributes)
    assert len(private[private["reveals"] > 0]) == len(run.leaks())
    responses = run.responses()
    assert (len(responses), responses["reveals"].sum()) == (numbers.expected, flows["reveals"].sum())
    assert (responses["judgement"] == "ok").sum() == numbers.judged
    by_context = flows.groupby("context", observed=True)[["recipient", "task"]].first()
    assert by_context.loc[responses["context"]]["task"].astype(str).tolist() == responses["task"].tolist()


def test_missing_messages_are_rows(sqlite_store: Store) -> None:
    missing = {(0, 0, 0): ResponseStatus.REFUSED, (0, 1, 2): JudgementStatus.UNPARSED, (0, 2, 4): JudgementStatus.OWED}
    run_id = small(sqlite_store, missing=missing)
    with cimemories.open(sqlite_store.workspace) as ws:
        rows = ws.runs[run_id].responses()
        odd = rows[rows["reveals"].isna()]
        assert odd["status"].tolist() == ["refused", "ok", "ok"]
        assert odd["judgement"].fillna("none").tolist()[1:] == ["unparsed", "none"]
        assert rows["reveals"].sum() == ws.runs[run_id].flows()["reveals"].sum()
        numbers = ws.runs[run_id].metrics()
        assert (numbers.judged, numbers.expected, numbers.n, numbers.supported_n) == (12, 15, 4, 4)


def test_every_label_is_a_word(sqlite_store: Store) -> None:
    run_id = small(sqlite_store)
    with cimemories.open(sqlite_store.workspace) as ws:
        labels = ws.runs[run_id].flows()["label"].astype(str).to_numpy().reshape(3, 3)
    name_of = {X: "inappropriate", N: "necessary", A: "ambiguous"}
    assert labels.tolist() == [[name_of[code] for code in row] for row in LABELS[0]]
    assert LABEL_WORDS == ("too few votes", "unlabelled", "ambiguous", "necessary", "inappropriate")


def test_flows_are_not_copied_and_duckdb_reads_them(demo: cimemories.Workspace) -> None:
    run = demo.runs[CAREFUL]
    columns = flow_columns(demo._session.flows, run._scope())
    frame = frame_of(columns)
    for name, column in columns.items():
        if not isinstance(column, Coded):
            assert np.shares_memory(column, frame[name].to_numpy()), name
    flows = run.flows()
    counts = duckdb.sql("SELECT label, count(*) FROM flows GROUP BY label").fetchall()
    assert dict(counts) == flows["label"].astype(str).value_counts().to_dict()


# ---- heatmaps


def test_a_heatmap_is_the_pages(app_store: Store) -> None:
    run_id = small(app_store)
    page = opened("pages/explore/heatmaps.py", run=run_id, rows="attribute", columns="context", roworder="violation")
    shown = json.loads(page.get("plotly_chart")[0].proto.spec)
    with cimemories.open(app_store.workspace) as ws:
        heatmap = ws.runs[run_id].heatmap("attribute", "context")
        figure = json.loads(json.dumps(charts.dressed(heatmap.figure(rows="violation")).to_plotly_json()))
        cells = heatmap.to_frame()
        with pytest.raises(StoreError, match="two different sides"):
            ws.runs[run_id].heatmap("domain", "domain")
        with pytest.raises(StoreError, match="domain, event, attribute"):
            ws.runs[run_id].heatmap("colour")
        with pytest.raises(StoreError, match="no order 'size'"):
            heatmap.figure(rows="size")
        with pytest.raises(StoreError, match="1 to 5, not 6"):
            ws.runs[run_id].heatmap(n=6)
        with pytest.raises(StoreError, match="1 to 5, not 1.5"):
            ws.runs[run_id].heatmap(n=1.5)
        assert len(drawing(heatmap, View(most=1)).figure.layout.yaxis.ticktext) == 1
        assert heatmap.as_json()["cells"] == plain(cells) and "grid" not in heatmap.as_json()
    assert figure == shown and [trace["type"] for trace in figure["data"]].count("heatmap") == 2
    # fact_1 in context 2: revealed in all samples.
    assert cells[(cells["row"] == "fact 1") & (cells["violation"] == 1)]["violation_pairs"].tolist() == [1, 1]


# ---- what there is, and what there is not


def test_an_unknown_name_says_what_there_is(demo: cimemories.Workspace) -> None:
    with pytest.raises(StoreError, match=r"no run 'nobody'.*sim-average on the demo"):
        demo.runs["nobody"]
    with pytest.raises(StoreError, match=r"no dataset 'nothing'.*demo"):
        demo.datasets["nothing"]
    run = demo.runs[AVERAGE]
    for wrong in (
        {"labels": "labelling-0"},
        {"judge": "Judge Dredd"},
        {"rule": "mine"},
        {"identifiers": "all"},
        {"n": 0},
    ):
        with pytest.raises(StoreError):
            run.metrics(**wrong)
    with pytest.raises(StoreError, match="full, partial, implied"):
        run.leaks(strength="strong")


def test_tags_and_a_note_are_recorded_as_they_are_set(sqlite_store: Store) -> None:
    small(sqlite_store)
    with cimemories.open(sqlite_store.workspace) as ws:
        (run,) = ws.runs
        run.tags = [*run.tags, "pilot"]
        run.note = "With the prompt of May."
        assert (run.tags, run.note) == (("pilot",), "With the prompt of May.")
        frame = ws.runs.to_frame()
    assert (frame.tags[0], frame.note[0]) == ("pilot", "With the prompt of May.")
    listed = CliRunner().invoke(cli, ["tag", run.id, "strict", "-w", str(sqlite_store.workspace)])
    assert listed.stdout == "tags  strict\nnote  With the prompt of May.\n"
    place = ["-w", sqlite_store.workspace]
    assert [row["tags"] for row in printed("runs", "--tag", "strict", *place)] == ["strict"]
    assert printed("runs", "--tag", "pilot", *place) == []


def test_a_name_of_several_runs_asks_for_the_id(sqlite_store: Store) -> None:
    run_id = small(sqlite_store)
    with cimemories.open(sqlite_store.workspace) as ws:
        name = ws.runs[run_id].name
        other = add_run(sqlite_store, 1, 5, REVEALS)
        with sqlite_store.write() as connection:
            connection.execute(sa.update(run_table).values(name=name))
        with pytest.raises(StoreError, match=f"2 runs are called.*{run_id}, {other}"):
            ws.runs[name]
        assert ws.runs[other].id == other and name in ws.runs and "x" not in ws.runs
        # Alike by name, so told apart by id.
        assert run_id in ws.compare(run_id, other).sentence


def test_an_empty_workspace(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no workspace in .*nowhere.*create=True"):
        cimemories.open(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []
    with cimemories.open(tmp_path / "new", create=True) as ws:
        assert (len(ws.runs), len(ws.datasets), list(ws.runs)) == (0, 0, [])
        assert ws.runs.to_frame().empty and "<table>" in ws._repr_html_()
        with pytest.raises(StoreError, match="It has none yet"):
            ws.runs["x"]


def test_a_run_without_labels_has_rows_and_no_numbers(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=3)
    run_id = add_run(sqlite_store, data.id, 5, REVEALS)
    with cimemories.open(sqlite_store.workspace) as ws:
        run = ws.runs[run_id]
        assert set(run.flows()["label"]) == {"unlabelled"}
        assert np.isnan(run.metrics().violation[5]) and "no labels" in run.metrics().notes[0]
        assert "no labels" in run.metrics()._repr_html_() and "nothing to measure" in repr(run.metrics())
        assert run.leaks().empty and run.leaks(excerpts=True).empty and "leaked" in run.leaks(excerpts=True)


def test_hostile_names_stay_text(sqlite_store: Store) -> None:
    run_id = small(sqlite_store)
    with sqlite_store.write() as connection:
        connection.execute(sa.update(run_table).values(name=HOSTILE, model="\x1b[31m\u202e<b>"))
        connection.execute(sa.update(dataset_table).values(name=HOSTILE))
    with cimemories.open(sqlite_store.workspace) as ws:
        run = ws.runs[HOSTILE]
        shown = [ws, ws.runs, ws.datasets, run, run.metrics()]
        for item in shown:
            page = item._repr_html_()
            assert "<img" not in page and "<b>" not in page and "\x1b" not in page and "\u202e" not in page
            assert "\x1b" not in repr(item)
        assert "&lt;img" in ws.runs._repr_html_() and run.id == run_id


def test_what_a_notebook_shows_of_numbers_has_their_sentences_whole(demo: cimemories.Workspace) -> None:
    run = max(demo.runs, key=lambda run: max(map(len, run.metrics().notes), default=0))
    notes, page = run.metrics().notes, run.metrics()._repr_html_()
    assert max(map(len, notes)) > LONGEST_CELL and all(html.escape(note) in page for note in notes)
    compared = demo.compare(CAREFUL, AVERAGE)
    page = compared._repr_html_()
    assert len(compared.sentence) > LONGEST_CELL and html.escape(compared.sentence) in page, "whole sentences"


def test_a_closed_workspace_says_so(folder: Path) -> None:
    ws = cimemories.open(folder)
    run, runs = ws.runs[AVERAGE], ws.runs
    flows = run.flows()
    ws.close()
    ws.close()
    asks: list[Callable[[], object]] = [
        run.metrics,
        run.flows,
        run.responses,
        lambda: runs[AVERAGE],
        lambda: ws.datasets["demo"],
    ]
    for ask in [*asks, lambda: ws.compare(run, run), lambda: ws.run("demo", "m", "simulator")]:
        with pytest.raises(StoreError, match=r"was closed. Open it again"):
            ask()
    assert "closed" in repr(ws) and "closed" in ws._repr_html_()
    assert run.name == AVERAGE and flows["reveals"].sum() > 0


def test_two_at_once_see_the_same(folder: Path, demo: cimemories.Workspace) -> None:
    with cimemories.open(folder) as other:
        assert other.runs[AVERAGE].metrics().violation == demo.runs[AVERAGE].metrics().violation
        other.close()
        assert len(demo.runs[AVERAGE].flows()) > 0


def test_reading_changes_no_file(folder: Path, demo: cimemories.Workspace) -> None:
    def files() -> dict[str, str]:
        paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm"))]
        return {
            str(path): f"{path.stat().st_mtime_ns} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in paths
        }

    def read(ws: cimemories.Workspace) -> None:
        run = ws.runs[AVERAGE]
        (
            run.metrics(),
            run.flows(),
            run.leaks(),
            run.responses(),
            run.heatmap().figure(),
            ws.compare(CAREFUL, run).sentence,
        )

    read(demo)  # what the app keeps beside the record is there now
    before = files()
    with cimemories.open(folder) as again:
        read(again)
    assert files() == before


def test_a_workspace_by_the_address_of_its_database(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = database.workspace
    monkeypatch.chdir(folder.parent)
    url = database.url or f"sqlite:///{folder / 'cimemories.sqlite'}"
    with cimemories.open(url, cache=folder) as ws:
        assert len(ws.datasets) == 0 and "x@" not in repr(ws)
        small(ws._session.store)
        (run,) = ws.runs
        assert run.metrics().violation[5] == 1.0 and run.responses()["reveals"].sum() == 20
    assert not Path("data").exists()


# ---- running


def test_a_run_waits_and_is_not_made_twice(sqlite_store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    add_labelled(sqlite_store, contexts=3)
    with cimemories.open(sqlite_store.workspace) as ws:
        choices: dict[str, Any] = {"samples": 2, "contexts": 2, "judge_model": "sim-judge"}
        run = ws.run(DATASET, "sim-average", "simulator", **choices)
        assert run.id in capfd.readouterr().err
        assert (run.status, run.coverage, run.samples, len(run.responses())) == ("finished", 1.0, 2, 4)
        assert ws.run(DATASET, "sim-average", "simulator", progress=False, **choices).id == run.id
        assert capfd.readouterr().err == ""
        other = ws.run(DATASET, "sim-average", "simulator", **choices | {"samples": 3})
        fresh = ws.run(DATASET, "sim-average", "simulator", fresh=True, **choices)
        assert len({run.id, other.id, fresh.id}) == 3
        named = [item.id for item in ws.runs if item.name == run.name]
        assert len(named) == 3
    with pytest.raises(StoreError, match="no dataset named 'nothing'"), cimemories.open(sqlite_store.workspace) as ws:
        ws.run("nothing", "m", "simulator")


def test_three_who_ask_for_the_same_run_at_once_get_one(store: Store, database: Database) -> None:
    add_labelled(store, contexts=3)
    ids, errors = list[str](), list[BaseException]()

    def ask(ws: cimemories.Workspace) -> None:
        try:
            ids.append(ws.run(DATASET, "sim-average", "simulator", samples=2, judge="matcher", progress=False).id)
        except BaseException as error:
            errors.append(error)

    with cimemories.open(database.url or database.workspace, cache=database.workspace) as ws:
        threads = [threading.Thread(target=ask, args=(ws,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (errors, len(ids), len(set(ids))) == ([], 3, 1)
        (run,) = ws.runs
        assert (run.status, run.coverage) == ("finished", 1.0)


def test_a_run_goes_on_where_it_stopped(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    add_labelled(sqlite_store, contexts=3)

    def stopped(*_: object, **__: object) -> None:
        raise WorkError("stopped")

    with cimemories.open(sqlite_store.workspace) as ws:
        with monkeypatch.context() as patch:
            patch.setattr(running.runs, "execute", stopped)
            with pytest.raises(WorkError):
                ws.run(DATASET, "sim-average", "simulator", samples=2, progress=False)
        (planned,) = ws.runs
        assert planned.coverage == 0
        run = ws.run(DATASET, "sim-average", "simulator", samples=2, progress=False)
        assert (run.id, run.coverage, len(ws.runs)) == (planned.id, 1.0, 1)
        assert ws.resume(run, progress=False).id == run.id


# What `asked` of a manifest was before the settings of a run were one model: memory, sessions and judges apart.
NESTED = {
    "dataset": DATASET, "model": "sim-average", "base_url": "simulator", "api_key_env": "OPENAI_API_KEY", "samples": 1,
    "profiles": None, "contexts": None, "prompt_level": "base", "prompts": {}, "preset": None, "thinking": "default",
    "memory": {"composition": "random-5", "order": "shuffled", "seed": 4, "template": "keyed", "prices": None},
    "sessions": {"kept": "last-2", "order": "shuffled", "seed": 3}, "mitigation": "none", "check": "rules",
    "temperature": None, "sampling": {}, "max_tokens": None, "seed": None, "timeout": 120.0, "prices": None,
    "cap": None, "fresh": False, "name": None, "reference": None, "more_judges": [],
    "judge": {
        "kind": "matcher", "model": "matcher", "base_url": "", "api_key_env": "OPENAI_API_KEY", "max_tokens": 16384,
        "channel": "message", "split": None, "fields": {}, "prompt": None, "schema": None, "timeout": None,
        "prices": None,
    },
}  # fmt: skip


def test_a_run_of_a_version_before_is_found_and_repeated(sqlite_store: Store) -> None:
    add_labelled(sqlite_store, contexts=3)
    choices: dict[str, Any] = {"samples": 1, "judge": "matcher", "progress": False, "max_tokens": None}
    choices |= {"memory": "random-5", "memory_order": "shuffled", "memory_seed": 4, "memory_template": "keyed"}
    choices |= {"sessions": "last-2", "session_order": "shuffled", "session_seed": 3}
    with cimemories.open(sqlite_store.workspace) as ws:
        run = ws.run(DATASET, "sim-average", "simulator", **choices)
        with sqlite_store.write() as connection:
            manifest = json.dumps({**run.manifest, "asked": NESTED})
            connection.execute(sa.update(run_table).where(run_table.c.id == run.id).values(manifest=manifest))
        assert ws.run(DATASET, "sim-average", "simulator", **choices).id == run.id
        assert ws.run(DATASET, "sim-average", "simulator", **choices | {"session_seed": 4}).id != run.id
    command = command_of(spec_of(sqlite_store, run.id))
    for option in ("--memory random-5 --memory-order shuffled --memory-seed 4 --memory-template keyed",
                   "--sessions last-2 --session-order shuffled --session-seed 3", "--max-tokens server"):  # fmt: skip
        assert option in command


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"foo": 1}, "there is no setting 'foo'. There are: dataset, model, "),
        ({"judges": []}, "there is no setting 'judges'. There are: dataset, model, "),
        ({"samples": "many"}, "--samples must be a whole number, not text 'many'"),
        ({"samples": 0}, "--samples must be 1 or more, not 0."),
        ({"timeout": 0.05}, "--timeout must be 0.1 or more, not 0.05."),
        ({"mitigation": "hope"}, "--mitigation must be one of 'none', 'gate' or 'rewrite', not 'hope'."),
        ({"max_tokens": "all"}, "--max-tokens: a token limit is a number, 1 or more, or `server`"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_words(sqlite_store: Store, setting: dict[str, Any], says: str) -> None:
    add_labelled(sqlite_store, contexts=2)
    with cimemories.open(sqlite_store.workspace) as ws:
        with pytest.raises(StoreError, match=re.escape(says)):
            ws.run(DATASET, "sim-average", "simulator", progress=False, **setting)
        assert not list(ws.runs)


def test_a_notebooks_loop_is_no_hindrance(sqlite_store: Store) -> None:
    add_labelled(sqlite_store, contexts=2)

    async def cell() -> cimemories.Run:
        with cimemories.open(sqlite_store.workspace) as ws:
            return ws.run(DATASET, "sim-average", "simulator", samples=1, judge="matcher", progress=False)

    assert asyncio.run(cell()).status == "finished"

    async def wrong() -> None:
        with cimemories.open(sqlite_store.workspace) as ws:
            ws.run("nothing", "m", "simulator")

    with pytest.raises(StoreError, match="no dataset named 'nothing'"):
        asyncio.run(wrong())


def test_a_notebook_without_ipywidgets_gets_no_bar_and_no_warning(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    add_labelled(sqlite_store, contexts=1)
    monkeypatch.setattr(output.err, "is_jupyter", True)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with cimemories.open(sqlite_store.workspace) as ws:
        run = ws.run(DATASET, "sim-average", "simulator", samples=1, judge="matcher")
    assert run.coverage == 1.0 and not [w for w in recwarn if "ipywidgets" in str(w.message)]


def test_an_interrupt_in_a_notebook_waits_for_what_is_in_flight(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reaches the main thread alone, while another one works, whose calls in flight are to be kept."""
    add_labelled(sqlite_store, contexts=2)
    execute, ended = running.runs.execute, threading.Event()

    async def cell() -> cimemories.Run:
        with cimemories.open(sqlite_store.workspace) as ws:
            return ws.run(DATASET, "sim-average", "simulator", samples=2, judge="matcher", progress=False)

    def interrupted(*arguments: Any, **choices: Any) -> None:
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.5)
        execute(*arguments, **choices)
        ended.set()

    # What is started in the background of a shell ignores this signal.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    with monkeypatch.context() as patch:
        patch.setattr(running.runs, "execute", interrupted)
        # asyncio.run() would catch the signal; a notebook's kernel does not.
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            with pytest.raises(KeyboardInterrupt):
                loop.run_until_complete(cell())
    signal.signal(signal.SIGINT, handler)
    assert ended.is_set()
    with cimemories.open(sqlite_store.workspace) as ws:
        (stopped,) = ws.runs
    run = asyncio.run(cell())
    assert (run.id, run.status, run.coverage) == (stopped.id, "finished", 1.0)


def test_a_memory_by_labels_is_made_anew_with_other_labels(sqlite_store: Store) -> None:
    add_labelled(sqlite_store, contexts=3)
    choices: dict[str, Any] = {"samples": 1, "memory": "necessary+2", "judge": "matcher", "progress": False}
    with cimemories.open(sqlite_store.workspace) as ws:
        first = ws.run(DATASET, "sim-average", "simulator", **choices)
        assert ws.run(DATASET, "sim-average", "simulator", **choices).id == first.id
        flows = first.flows()
        assert 0 < len(flows) < 3 * flows["attribute"].nunique() and flows["expected"].min() >= 1
        changed = flows[flows["label"] == "inappropriate"].iloc[0]
        with sqlite_store.write() as connection:
            decisions.add(
                connection,
                dataset_id=1,
                attribute=int(changed["attribute"]),
                context=int(changed["context"]),
                annotator="Ada",
                label=Label.NECESSARY,
            )
        assert ws.run(DATASET, "sim-average", "simulator", **choices).id != first.id
        again = first.flows()
        decided = again[again["decided"]]
        assert decided["label"].tolist() == ["necessary"] and decided["attribute"].tolist() == [changed["attribute"]]
        assert not first.flows(labels="consensus")["decided"].any()


def test_what_is_missing_at_the_end_is_said(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    add_labelled(sqlite_store, contexts=2)
    monkeypatch.setattr(running.runs, "execute", lambda *_, **__: None)
    monkeypatch.setattr(running, "warm", lambda *_: None)
    with cimemories.open(sqlite_store.workspace) as ws, pytest.warns(UserWarning, match="4 of 4 messages missing"):
        ws.run(DATASET, "sim-average", "simulator", samples=2, progress=False)
    with cimemories.open(sqlite_store.workspace) as ws, pytest.raises(StoreError, match="--base-url batch"):
        ws.run(DATASET, "sim-average", "batch")


# ---- the package


def test_the_package_is_light_until_it_is_used() -> None:
    code = (
        "import sys, cimemories\n"
        "heavy = {'pandas', 'numpy', 'sqlalchemy', 'duckdb', 'cimemories.api', 'pydantic', 'rich'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "assert set(cimemories.__all__) <= set(dir(cimemories))\n"
        "for name in cimemories.__all__: getattr(cimemories, name)\n"
        "assert 'streamlit' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        _ = cimemories.opne  # type: ignore[attr-defined]


def test_frames_are_ones_own(demo: cimemories.Workspace) -> None:
    """Numbers are cached: who changes a frame changes nothing of what is asked next."""
    run = demo.runs[AVERAGE]
    for make in (run.leaks, run.flows, demo.compare(CAREFUL, run).to_frame, run.heatmap().to_frame):
        frame: pd.DataFrame = make()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frame.drop(index=frame.index, inplace=True)
        assert len(make()) > 0
    flows = run.flows()
    flows["reveals"] = 0
    flows.loc[:, "draws"] = 0
    assert run.flows()["reveals"].sum() > 0 and run.metrics().flows > 0 and run.flows()["draws"].sum() > 0

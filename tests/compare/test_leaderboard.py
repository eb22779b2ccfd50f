"""The leaderboard and sweeps over small worlds: what is said is what was written, and marked where it must be."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner
from worlds import PERSONAS, add_dataset, add_labels, add_run, records

from cimemories.charts import comparison
from cimemories.charts.comparison import domains, plane, sweep
from cimemories.cli import cli
from cimemories.compare.difference import difference, takeaway
from cimemories.compare.leaderboard import (
    MANY,
    Leaderboard,
    Line,
    busiest_dataset,
    judged_runs,
    leaderboard,
    scopes_of_rows,
)
from cimemories.compare.sweeps import SweepFigure, size_of, sweep_figures, trade_off
from cimemories.flows import scope as scope_module
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import SETTLED_SECONDS, Scope, is_behind, resolve_scope
from cimemories.manifest import RunManifest
from cimemories.model import Label, ResponseStatus
from cimemories.seeds.published import Axis
from cimemories.store import datasets, decisions, labellings, runs, versions
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Store, StoreError, open_store
from cimemories.store.runs import RunRow
from cimemories.store.tables import run

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
# metrics.md, "Worked example", for two people.
LABELS = [[[X, X, N], [X, X, X], [N, N, A]]] * 2
REVEALS = [[[1, 0, 4], [0, 2, 5], [5, 3, 0]], [[0, 0, 4], [0, 0, 0], [5, 3, 0]]]
QUIET = [[[0, 0, 5], [1, 0, 0], [4, 3, 0]], [[0, 0, 5], [0, 0, 0], [4, 3, 0]]]
HOSTILE = "Evil/a|b <img src=x> 100%_&"


def call(store: Store, run_id: str, **values: object) -> str:
    with store.write() as connection:
        connection.execute(sa.update(run).where(run.c.id == run_id).values(**values))
    return run_id


def test_a_note_says_where_the_runs_have_fewer_samples_than_asked_for(sqlite_store: Store) -> None:
    dataset = add_dataset(sqlite_store, profiles=2, attributes=3, contexts=3)
    add_labels(sqlite_store, dataset.id, LABELS)
    for _ in range(2):
        add_run(sqlite_store, dataset.id, 5, REVEALS)
    notes = {
        n: leaderboard(Flows(sqlite_store), scopes_of_rows(sqlite_store, rows(sqlite_store)), n=n).markdown()
        for n in (None, 5, 7)
    }
    assert "not at 7" not in notes[None] + notes[5]
    assert "violation is read at 5 samples a task and not at 7, which is all that" in notes[7].lower()


def rows(store: Store) -> list[RunRow]:
    with store.read() as connection:
        return runs.all_rows(connection)


@pytest.mark.parametrize(
    ("database", "by_name"),
    [("sqlite", True), pytest.param("postgres", False, marks=pytest.mark.postgres)],
    indirect=["database"],
)
def test_while_people_decide_many_runs_are_counted_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, by_name: bool
) -> None:
    monkeypatch.setattr(scope_module, "_settled", {})
    clock = 1000.0
    monkeypatch.setattr(scope_module.time, "monotonic", lambda: clock)
    dataset = add_dataset(store, profiles=2, attributes=3, contexts=3)
    add_labels(store, dataset.id, LABELS)
    for _ in range(MANY + 1):
        add_run(store, dataset.id, 5, REVEALS)
    with store.read() as connection:
        rows = runs.all_rows(connection)
    record = records(store, dataset.id)[0]
    pair = record.attribute_ids[1], record.context_ids[1]

    def revisions(some: Sequence[RunRow] = rows) -> set[int]:
        judge = "test-judge" if by_name else None
        return {scope.dataset_revision for scope in scopes_of_rows(store, some, judge)}

    def decide(label: Label | None) -> int:
        with store.write() as connection:
            decisions.add_all(connection, dataset.id, "Ada", [NewDecision(*pair, label)])
            return datasets.name_and_revision(connection, dataset.id)[1]

    (first,) = revisions()
    decided = decide(Label.INAPPROPRIATE)
    assert decided > first
    assert revisions() == {first}, "everybody who looks has the numbers that are there"
    assert revisions(rows[:MANY]) == {decided}, "few runs are counted anew at once"
    assert is_behind(store, scopes_of_rows(store, rows)[0])
    clock += SETTLED_SECONDS
    assert revisions() == {decided}
    assert not is_behind(store, scopes_of_rows(store, rows)[0])
    # Numbers of this revision hold this decision, and a change of what is labelled never waits.
    many, one = (leaderboard(Flows(store), scopes_of_rows(store, some)) for some in (rows, rows[:1]))
    # As text: from Python 3.13 on, dataclasses with a nan in the same place are not equal.
    assert repr(many.lines[0].violation) == repr(one.lines[0].violation)
    decide(Label.NECESSARY)
    assert revisions() == {decided}
    change = versions.Edit("bio", "change", 0, {"age": 30}, {"age": 31})
    with store.write() as connection:
        versions.add(connection, dataset.id, change, annotator="Ada", reason="")
        edited = datasets.name_and_revision(connection, dataset.id)[1]
    assert revisions() == {edited}
    for least_votes in (1, 99):  # on SQLite the second rule has the id of the first
        with store.write() as connection:
            if least_votes > 1:
                labellings.delete_rule(connection, dataset.id, "mine")
            priors = {persona.key: persona.prior for persona in PERSONAS}
            numbers = {"threshold": 0.6, "priors": priors, "least_votes": least_votes}
            labellings.add_rule(connection, dataset.id, "mine", **numbers, annotator="Ada", use=True)
            ruled = datasets.name_and_revision(connection, dataset.id)[1]
        assert revisions() == {ruled}


@pytest.fixture(scope="module")
def built(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Two runs of five samples: the first leaks the half of what can leak, the second a quarter. Never to be opened."""
    folder = tmp_path_factory.mktemp("world")
    file = shutil.copy(sqlite_template, folder / sqlite_template.name)
    store = open_store(folder)
    data = add_dataset(store, profiles=2, attributes=3, contexts=3)
    add_labels(store, data.id, LABELS)
    ids = [add_run(store, data.id, 5, reveals) for reveals in (REVEALS, QUIET)]
    call(store, ids[0], model="openai/gpt-5")
    call(store, ids[1], model=HOSTILE)
    store.close()
    return Path(file), ids


@pytest.fixture
def world(built: tuple[Path, list[str]], tmp_path: Path) -> Iterator[tuple[Store, list[str]]]:
    """A copy of it, to be changed at will."""
    shutil.copy(built[0], tmp_path / built[0].name)
    store = open_store(tmp_path)
    yield store, built[1]
    store.close()


@pytest.fixture(scope="module")
def board(built: tuple[Path, list[str]], tmp_path_factory: pytest.TempPathFactory) -> Leaderboard:
    """Its leaderboard, for what only reads it."""
    folder = tmp_path_factory.mktemp("read")
    shutil.copy(built[0], folder / built[0].name)
    store = open_store(folder)
    result = board_of(store)
    store.close()
    return result


def scopes_of(store: Store, run_ids: Sequence[str] = ()) -> list[Scope]:
    """Of these runs, without any of all judged ones of the dataset that has most of them."""
    ids = run_ids or [row.id for row in judged_runs(store, busiest_dataset(store))]
    return [resolve_scope(store, run_id) for run_id in ids]


def board_of(store: Store, **options: int) -> Leaderboard:
    return leaderboard(Flows(store), scopes_of(store), **options)


def test_lines_hold_mean_spread_and_interval_best_first(world: tuple[Store, list[str]], board: Leaderboard) -> None:
    store, (leaky, careful) = world
    assert [line.run.id for line in board.lines] == [careful, leaky]
    line = board.lines[1]
    assert line.violation.value == pytest.approx(0.5)
    assert line.violation_spread == pytest.approx(np.std([1, 0], ddof=1))
    assert line.completeness.value == pytest.approx(0.8)
    assert line.balanced.value == pytest.approx(2 * 0.5 * 0.8 / 1.3)
    assert line.violation.low <= 0.5 <= line.violation.high
    assert board_of(store, n=1).lines[1].violation.value == pytest.approx(0.3)
    constants = {item.name: (item.violation, item.completeness) for item in board.constants}
    assert constants["share everything"] == (1, 1)
    assert constants["share nothing"] == (0, 0)
    with pytest.raises(ValueError, match="at least 1"):
        board_of(store, n=0)


def test_the_paper_stands_beside_the_same_model_at_the_same_samples(world: tuple[Store, list[str]]) -> None:
    store, (leaky, _) = world

    def published(board: Leaderboard) -> list[list[str]]:
        of_kind = board.rows.frame["kind"] == "published"
        return [row for row, stated in zip(board.rows.texts(), of_kind, strict=True) if stated]

    ((name, violation, completeness, *_, remarks),) = published(board_of(store))
    assert (name, violation, completeness) == ("GPT-5, published", "25.1 %", "–") and ": Abstract" in remarks
    assert any("9.6 %" in row[1] for row in published(board_of(store, n=1)))
    assert not published(board_of(store, n=2))
    call(store, leaky, simulated=True)
    assert not published(board_of(store))
    assert "| simulated" in board_of(store).markdown()


def test_runs_that_do_the_same_are_not_told_apart(world: tuple[Store, list[str]]) -> None:
    store, (leaky, _) = world
    alike = [leaky, add_run(store, board_of(store).lines[0].run.dataset, 5, REVEALS)]
    board = leaderboard(Flows(store), scopes_of(store, alike))
    first = board.lines[0]
    violation, balanced = (f"{100 * interval.value:.1f} %" for interval in (first.violation, first.balanced))
    assert takeaway(Flows(store), board) == f"Violation@5 is {violation} in all 2 runs, the balanced score {balanced}."


def test_a_run_that_is_not_whole_is_warned_of_and_not_held_up(world: tuple[Store, list[str]]) -> None:
    store, ids = world
    lost = {(0, 0, 4): ResponseStatus.TRUNCATED, (1, 1, 2): ResponseStatus.FAILED}
    best = add_run(store, board_of(store).lines[0].run.dataset, 5, np.array(QUIET) * 0, missing=lost)
    call(store, best, model="best")
    board = board_of(store)
    line = next(line for line in board.lines if line.run.id == best)
    assert not line.covered
    assert "only 93.3 % of the planned messages" in board.markdown()
    assert "best" not in takeaway(Flows(store), board).split(";")[0]
    assert "(best)" not in takeaway(Flows(store), board)
    assert {row["run"] for row in board.as_json()["rows"] if row["kind"] == "run"} == {*ids, best}


def test_tables_for_papers_escape_what_runs_are_called(board: Leaderboard) -> None:
    lines = board.markdown().splitlines()
    columns = lines[0].replace("\\|", "").count("|")
    assert all(line.replace("\\|", "").count("|") == columns for line in lines if line.startswith("|"))
    assert "<img" not in board.markdown().replace("\\<img", "")
    table = board.latex()
    assert r"100\%\_\&" in table
    assert table.count(r"\begin{tabular}") == 1
    assert all(
        line.count("&") - line.count(r"\&") == len(board.rows.columns) - 1
        for line in table.splitlines()
        if line.endswith(r"\\")
    )


def test_a_table_for_a_paper_has_a_caption_and_the_entry_that_it_cites(board: Leaderboard) -> None:
    lines = board.latex().splitlines()
    assert lines.index(r"\label{tab:leaderboard}") < lines.index(r"\end{table*}")
    caption = next(line for line in lines if line.startswith(r"\caption{"))
    assert board.violation_name in caption and board.lines[0].scope.dataset_name in caption
    cited = re.search(r"\\cite\{(\w+)\}", caption)
    assert cited is not None and f"% @misc{{{cited[1]}," in lines
    # Text outside of the environment would be printed.
    assert all(line.startswith("%") for line in lines[lines.index(r"\end{table*}") + 1 :])


def test_notes_say_in_one_way_what_intervals_are_over(board: Leaderboard) -> None:
    notes = " ".join(board.notes)
    assert max(line.completeness.users for line in board.lines) < 5
    assert "over attributes and contexts" in notes and "over users" not in notes


def test_runs_of_one_model_are_told_apart(world: tuple[Store, list[str]]) -> None:
    store, (one, two) = world
    for run_id in (one, two):
        call(store, run_id, model="same")
    assert set(board_of(store).names.values()) == {f"same ({one})", f"same ({two})"}
    call(store, two, prompt_level="high")
    assert board_of(store).names == {one: "same, base", two: "same, high"}


def test_runs_of_two_datasets_are_not_ranked_together(world: tuple[Store, list[str]]) -> None:
    store, (one, _) = world
    data = add_dataset(store, profiles=1, attributes=3, contexts=3, name="another")
    add_labels(store, data.id, LABELS[:1])
    other = add_run(store, data.id, 5, REVEALS[:1])
    with pytest.raises(StoreError, match="2 datasets"):
        leaderboard(Flows(store), scopes_of(store, [one, other]))
    assert {scope.run.dataset for scope in scopes_of(store)} == {scopes_of(store, [one])[0].run.dataset}


def test_the_command_line_says_the_same(world: tuple[Store, list[str]]) -> None:
    store, (one, two) = world

    def out(*arguments: str) -> str:
        done = CliRunner().invoke(cli, [*arguments, "--workspace", str(store.workspace)])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.stdout

    assert json.loads(out("leaderboard", "--json")) == json.loads(json.dumps(board_of(store).as_json()))
    assert out("leaderboard", "--markdown").strip() == board_of(store).markdown().strip()
    apart = json.loads(out("compare", one, two, "--json"))["differences"][0]
    compared = difference(Flows(store), *scopes_of(store, [one, two]))
    assert apart == json.loads(json.dumps(compared.as_json()))
    assert apart["violation"]["value"] == apart["pair"][0]["violation"] == pytest.approx(-0.25)
    assert (apart["changes"][0]["newly"], apart["changes"][0]["stopped"]) == (1, 3)
    assert compared.words[0] in out("compare", one, two)
    with pytest.raises(StoreError, match="choose one"):
        out("leaderboard", "--json", "--latex")
    with pytest.raises(StoreError, match="cannot be compared with itself"):
        difference(Flows(store), *scopes_of(store, [one]), *scopes_of(store, [one]))


def test_figures_escape_what_runs_are_called(world: tuple[Store, list[str]], board: Leaderboard) -> None:
    store, (one, two) = world
    compared = difference(Flows(store), *scopes_of(store, [one, two]))
    for drawing in (plane(board), domains(compared)):
        assert drawing is not None
        assert "<img" not in json.dumps(drawing.fig.to_plotly_json(), default=str)


def changed(line: Line, run_id: str, requested: Mapping[str, object] | None = None, **values: object) -> Line:
    """The same line of another run."""
    row = replace(line.run, id=run_id, manifest=RunManifest.model_validate({"asked": requested or {}}), **values)  # type: ignore[arg-type]
    return replace(line, numbers=replace(line.numbers, scope=replace(line.scope, run=row)))


def ticks(figure: SweepFigure) -> list[tuple[str, list[str]]]:
    return [(item.name, [point.tick for point in item.points]) for item in figure.series]


def test_series_hold_runs_that_differ_in_one_thing_alone(board: Leaderboard) -> None:
    best, worse = board.lines
    lines = [
        changed(worse, "a", model="Qwen/Qwen3-32B"),
        changed(best, "b", model="Qwen/Qwen3-0.6B"),
        changed(best, "c", model="Qwen/Qwen3-8B"),
        changed(best, "d", model="Qwen/Qwen3-8B", prompt_level="high"),
        changed(best, "e", model="Qwen/Qwen3-8B", composition="necessary+20"),
        changed(best, "f", model="Qwen/Qwen3-8B", composition="necessary+5"),
        changed(best, "g", model="Qwen/Qwen3-8B", composition="random-5"),
        changed(best, "h", {"thinking": "off"}, model="Qwen/Qwen3-8B"),
        changed(best, "i", model="mystery"),
        changed(best, "j", model="Qwen/Qwen3-8B", samples=3, simulated=True),
        changed(best, "k", model="Qwen3-30B-A3B-Instruct-2507"),
        changed(best, "l", model="Qwen3-30B-A3B-Thinking-2507"),
    ]
    figures = sweep_figures(lines)
    assert ticks(figures[Axis.SIZE]) == [("Qwen3", ["0.6B", "8B", "32B"])]
    assert any("mystery" in text and "size is not known" in text for text in figures[Axis.SIZE].left_out)
    assert ticks(figures[Axis.PROMPT]) == [("Qwen3-8B", ["base", "high"])]
    assert ticks(figures[Axis.MEMORY]) == [("Qwen3-8B", ["5", "20"])]
    assert ("Qwen3-30B-A3B", ["off", "on"]) in ticks(figures[Axis.REASONING])
    title = figures[Axis.SIZE].title()
    # Two profiles tell no difference apart, whatever their values are.
    assert title.startswith("From 0.6B to 32B no test shows that violation@5 (25.0 %, 50.0 %) or completeness")
    drawing = sweep(figures[Axis.SIZE])
    assert drawing is not None
    assert drawing.table.frame["run"].tolist() == ["b", "c", "a"]
    assert sweep(sweep_figures([lines[8]])[Axis.SIZE]) is None


def test_a_memory_system_over_k_ends_at_everything_in_the_prompt(board: Leaderboard) -> None:
    """Points by k in their order, and `full` at the end of the series that differ in nothing else from it; systems with
    other options are other series, and what other packages call their systems need not be installed here."""
    base = board.lines[0]

    def at(run_id: str, composition: str, **changes: object) -> Line:
        return changed(base, run_id, composition=composition, **changes)

    lines = [
        at("a", "system:bm25:k=20"),
        at("b", "full"),
        at("c", "system:bm25:k=5"),
        at("d", "system:elsewhere:k=5,deep=true"),
        at("e", "system:elsewhere:deep=true,k=10"),
        at("f", "system:elsewhere:k=20"),
        at("g", "system:bm25:k=5", prompt_level="high"),
        at("h", "system:bm25:k=80", prompt_level="high"),
        at("i", "system:summary"),
        at("j", "random-5"),
        at("k", "random-20"),
    ]
    figure = trade_off(lines)
    runs = [[point.line.run.id for point in item.points] for item in figure.series]
    assert sorted(runs) == [["c", "a", "b"], ["d", "e", "b"], ["g", "h"]]
    assert ["k=5", "k=20", "full"] in [[point.tick for point in item.points] for item in figure.series]
    assert any("i" in text and "not made up by number" in text for text in figure.left_out)
    drawn = comparison.trade_off(figure)
    assert drawn is not None
    assert [list(trace.text) for trace in drawn.fig.data if len(trace.text) == 2] == [["k=5", "k=80"]]
    assert {trace.x[0] for trace in drawn.fig.data} == {base.violation.value}
    assert drawn.table.frame["run"].tolist() == [run for series in runs for run in series]
    # The same runs stand on the axis of memories, without `full`, which has no k.
    assert ["k=5", "k=20"] in [ticks for _, ticks in ticks_of(lines)]
    assert comparison.trade_off(trade_off(lines[-2:])) is None


def ticks_of(lines: list[Line]) -> list[tuple[str, list[str]]]:
    figure = sweep_figures(lines)[Axis.MEMORY]
    return [(item.name, [point.tick for point in item.points]) for item in figure.series]


def test_a_sweep_rises_only_where_intervals_let_it(board: Leaderboard) -> None:
    base = board.lines[0]

    def at(run_id: str, level: str, low: float, high: float) -> Line:
        line = changed(base, run_id, prompt_level=level)
        error = (high - low) / 4
        violation = replace(line.violation, value=(low + high) / 2, low=low, high=high, error=error, freedom=9.0)
        return replace(line, violation=violation)

    apart = sweep_figures([at("a", "base", 0.5, 0.6), at("b", "high", 0.1, 0.2)])[Axis.PROMPT].title()
    assert "violation@5 falls from 55.0 % to 15.0 %" in apart
    near = sweep_figures([at("a", "base", 0.1, 0.5), at("b", "high", 0.2, 0.7)])[Axis.PROMPT].title()
    assert "violation@5 (30.0 %, 45.0 %) or completeness" in near
    assert "no test shows that violation@5" in near
    nothing = sweep_figures([at("a", "base", math.nan, math.nan), at("b", "high", 0.2, 0.7)])[Axis.PROMPT].title()
    assert "violation" not in nothing


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("Qwen/Qwen3-0.6B", 0.6),
        ("SmolLM2-135M-Instruct", 0.135),
        ("Qwen3-30B-A3B-Instruct-2507", 30),
        ("mistralai/Mixtral-8x7B", None),
        ("gpt-5", None),
        ("claude-4b2", None),
    ],
)
def test_the_size_of_a_model_is_what_its_name_says(board: Leaderboard, name: str, size: float) -> None:
    assert size_of(replace(board.lines[0].run, model=name)) == size

"""Which runs are ranked, at which n, and on what: never by what a run lacks."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner
from worlds import add_dataset, add_judge, add_labels, add_run, settle_judgement

from cimemories.charts.comparison import plane
from cimemories.cli import cli
from cimemories.compare.difference import takeaway
from cimemories.compare.leaderboard import Leaderboard, leaderboard, run_lines
from cimemories.compare.ranking import Measure, ranks
from cimemories.compare.study import measure_values, ranked_study
from cimemories.compare.sweeps import sweep_figures
from cimemories.extras.sensitivity.choices import judged_otherwise
from cimemories.flows.arrays import flow_arrays
from cimemories.flows.flows import Flows
from cimemories.flows.labels import INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import resolve_scope
from cimemories.metrics import violation
from cimemories.model import ResponseStatus
from cimemories.seeds.published import Axis
from cimemories.store import judgements, runs, work
from cimemories.store.engine import Store
from cimemories.store.tables import response, run

X, N = INAPPROPRIATE, NECESSARY
LOST = ResponseStatus.FAILED
PEOPLE, CONTEXTS = 3, 8
LABELS = [[[X] * CONTEXTS, [X] * CONTEXTS, [N] * CONTEXTS]] * PEOPLE
# Each attribute leaks in one of five samples of its first contexts: at fewer samples it seems to leak less.
REVEALS = [[[1] * 4 + [0] * 4, [1] * 2 + [0] * 6, [4] * CONTEXTS]] * PEOPLE


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    return sqlite_store


@pytest.fixture
def data(store: Store) -> int:
    row = add_dataset(store, profiles=PEOPLE, attributes=3, contexts=CONTEXTS)
    add_labels(store, row.id, LABELS)
    return row.id


def add(store: Store, data: int, name: str, samples: int = 5, **options: object) -> str:
    """A run that tells `name` as its model. missing, judge: of add_run; the rest are columns."""
    reveals = np.minimum(np.array(REVEALS), samples)
    of_run = {key: options.pop(key) for key in ("missing", "judge") if key in options}
    run_id = add_run(store, data, samples, reveals, **of_run)  # type: ignore[arg-type]
    with store.write() as connection:
        connection.execute(sa.update(run).where(run.c.id == run_id).values(model=name, **options))
    return run_id


def call(store: Store, run_id: str, name: str) -> None:
    """Give a run a name, as `run --name` does."""
    with store.write() as connection:
        manifest = json.dumps({"asked": {"name": name}})
        connection.execute(sa.update(run).where(run.c.id == run_id).values(name=name, manifest=manifest))


def board_of(store: Store, *ids: str, n: int | None = None, rank_small: bool = False) -> Leaderboard:
    return leaderboard(Flows(store), [resolve_scope(store, run_id) for run_id in ids], n=n, rank_small=rank_small)


def test_runs_of_unequal_n_are_read_at_one(store: Store, data: int) -> None:
    long, short = add(store, data, "long"), add(store, data, "short", 2)
    board = board_of(store, long, short)
    assert board.n == 2
    assert {line.n for line in board.ranked} == {2}
    assert board.violation_name == "Violation@2"
    alone = {line.run.id: line.violation.value for one in (long, short) for line in board_of(store, one, n=2).lines}
    assert {line.run.id: line.violation.value for line in board.lines} == pytest.approx(alone, abs=1e-12)
    assert any("at 2 samples a task, which is all that short can give" in text for text in board.notes)
    assert board_of(store, long, short, n=4).n == 2
    assert board_of(store, long, n=4).n == 4


def test_a_run_that_lost_messages_has_no_rank_and_is_still_there(store: Store, data: int) -> None:
    lost = dict.fromkeys(((p, c, s) for p in range(PEOPLE) for c in range(4) for s in range(2)), LOST)
    best, other = add(store, data, "whole"), add(store, data, "other")
    # The same messages, save that a part of them is gone: it would seem to leak less than those that are whole.
    part = add(store, data, "part", missing=lost)
    board = board_of(store, part, best, other)
    assert [line.run.id for line in board.lines][-1] == part
    assert [(line.rank, line.outside) for line in board.ranked] == [(1, ""), (1, "")]
    (line,) = board.outside
    assert (line.rank, line.n, line.outside) == (None, 3, "coverage 80.0 %, under 99 %")
    whole = next(item for item in board.ranked)
    record = line.as_record()
    assert record["violation_least"] <= whole.violation.value <= record["violation_most"]  # type: ignore[operator]
    assert math.isnan(record["rank"])  # type: ignore[arg-type]
    assert "part" not in takeaway(Flows(store), board)
    # What it says is of those that are ranked alone.
    assert takeaway(Flows(store), board).startswith("2 of 3 runs can be ranked. Violation@5 is")
    assert takeaway(Flows(store), board_of(store, best, other)).startswith("Violation@5 is")
    note = "Not ranked: part (coverage 80.0 %, under 99 %; read at 3 samples"
    assert any(note in text for text in board.notes)
    cells = next(dict(zip(board.rows.columns, row, strict=True)) for row in board.rows.texts() if row[0] == "part")
    assert (cells["n"], cells["samples"]) == ("3", "5")
    assert "not ranked" in cells["remarks"]
    drawing = plane(board)
    assert drawing is not None
    assert set(drawing.table.frame["run"]) == {best, other}
    marks = [trace for trace in drawing.fig.data if trace.name]
    assert [trace.text[0] for trace in marks] == [trace.name.split()[0] for trace in marks] == ["1", "2", "3", "4"]
    assert "not drawn, since missing messages allow only a smaller n: part" in drawing.subtitle
    with store.read() as connection:
        rows = [runs.by_id(connection, run_id) for run_id in (best, part)]
    assert [line.n for line in run_lines(Flows(store), rows)] == [5, 3]
    alone = board_of(store, part)
    assert takeaway(Flows(store), alone).startswith("Only 80.0 % of the planned messages are judged")
    assert "part: Violation@3" in takeaway(Flows(store), alone)
    both = board_of(store, part, add(store, data, "too", missing=lost))
    assert takeaway(Flows(store), both) == "None of 2 runs has full coverage, so none can be ranked."
    assert both.ranked == ()


def test_a_run_outside_the_ranking_is_not_on_the_front(store: Store, data: int) -> None:
    # A whole task is lost: what is left is read at all samples, and beats every other run.
    lost = dict.fromkeys(((p, 0, s) for p in range(PEOPLE) for s in range(5)), LOST)
    part, whole = add(store, data, "part", missing=lost), add(store, data, "whole")
    drawing = plane(board_of(store, part, whole))
    assert drawing is not None
    assert dict(zip(drawing.table.frame["run"], drawing.table.frame["on_front"], strict=True)) == {
        part: False,
        whole: True,
    }
    assert "open marks are outside the front: coverage below 99 % (1)" in drawing.subtitle


def test_only_one_judge_and_one_memory_are_ranked(store: Store, data: int) -> None:
    first, second = add(store, data, "first"), add(store, data, "second")
    judged = add(store, data, "judged", judge="another-judge")
    board = board_of(store, judged, first, second)
    assert {line.run.id for line in board.ranked} == {first, second}
    assert [line.outside for line in board.outside] == ["judged by another-judge, ranked runs by test-judge"]
    smaller = add(store, data, "smaller", composition="random-1")
    reasons = {line.run.id: line.outside for line in board_of(store, smaller, first, second).outside}
    assert reasons == {smaller: "its memory is random-1, that of ranked runs full"}


def test_ranked_runs_are_read_on_the_flows_that_all_judged(store: Store, data: int) -> None:
    # Below one in a hundred: still of full coverage, although all messages of one task are gone.
    big = add_dataset(store, profiles=26, attributes=3, contexts=CONTEXTS, name="big")
    add_labels(store, big.id, LABELS[:1] * 26)
    reveals = np.array(REVEALS[:1] * 26)
    lost = {(0, 0, s): LOST for s in range(5)}
    gap, whole = add_run(store, big.id, 5, reveals, missing=lost), add_run(store, big.id, 5, reveals)
    board = board_of(store, gap, whole)
    assert board.cut
    assert [line.rank for line in board.lines] == [1, 1]
    one, two = board.lines
    assert one.violation.value == pytest.approx(two.violation.value, abs=1e-12)
    assert one.completeness.value == pytest.approx(two.completeness.value, abs=1e-12)
    assert one.violation.low == pytest.approx(two.violation.low, abs=1e-12)
    arrays = flow_arrays(Flows(store), resolve_scope(store, gap))
    own = violation.by_profile(arrays.reveals, arrays.draws, arrays.labels, arrays.counted, 5)
    assert one.violation.value == pytest.approx(float(np.nanmean(own)), abs=1e-12)
    assert any("ranked on the flows that all ranked runs judged" in text.lower() for text in board.notes)


def on_unequal_profiles(store: Store, data: int) -> tuple[str, str]:
    """One run is silent on the one profile that both have, and says everything to the others; the other leaks one
    attribute there."""
    silent, loud = np.array([[[0] * 8, [0] * 8, [4] * 8]]), np.array([[[5] * 8, [5] * 8, [4] * 8]])
    wide = add_run(store, data, 5, np.concatenate([silent, loud, loud]))
    narrow = add_run(store, data, 5, np.array([[[5] + [0] * 7, [0] * 8, [4] * 8]] * PEOPLE), profiles=slice(0, 1))
    for run_id, name in ((wide, "wide"), (narrow, "narrow")):
        with store.write() as connection:
            connection.execute(sa.update(run).where(run.c.id == run_id).values(model=name))
    return wide, narrow


def test_every_number_of_a_line_is_of_the_flows_that_it_is_ranked_on(store: Store, data: int) -> None:
    board = board_of(store, *on_unequal_profiles(store, data), rank_small=True)
    first, second = (line.as_record() for line in board.lines)
    assert board.cut and (first["model"], second["model"]) == ("wide", "narrow")
    # By hand on the one common profile: 2 inappropriate attributes in 8 contexts, 5 messages each.
    assert (first["violation"], first["leak_rate"]) == (0.0, 0.0)
    assert (second["violation"], second["leak_rate"]) == pytest.approx((0.5, 5 / 80))
    for line in (first, second):
        assert (line["profiles"], line["attributes"]) == (1, 2)
        assert line["violation_least"] == line["violation_most"] == line["violation"]
    assert [row[4] for row in board.rows.texts()[:2]] == ["0.0 %", "6.2 %"]
    # Of the whole run: of 3 profiles two leak everything.
    assert board.lines[0].numbers.leak_rate.micro == pytest.approx(2 / 3)


def test_sensitivity_reads_runs_as_the_leaderboard_ranks_them(store: Store, data: int) -> None:
    scopes = [resolve_scope(store, run_id) for run_id in on_unequal_profiles(store, data)]
    flows = Flows(store)
    board = leaderboard(flows, scopes, rank_small=True)
    study = ranked_study(flows, board, scopes)
    now = measure_values(study.at(study.base), Measure.VIOLATION)[:, 0]
    by_id = {line.run.id: line.violation.value for line in board.lines}
    assert now.tolist() == pytest.approx([by_id[scope.run.id] for scope in scopes])
    assert ranks(now, Measure.VIOLATION).tolist() == [1, 2]
    result = CliRunner().invoke(
        cli, ["sensitivity", *by_id, "--workspace", str(store.workspace), "--json", "--rank-small"]
    )
    assert result.exit_code == 0, result.output
    numbers = {item["run"]: item["violation"] for item in json.loads(result.output)["settings"][: len(scopes)]}
    assert numbers == pytest.approx({"wide": 0.0, "narrow": 0.5})


def test_another_judge_is_tried_on_common_flows_too(store: Store, data: int) -> None:
    scopes = [resolve_scope(store, run_id) for run_id in on_unequal_profiles(store, data)]
    with store.write() as connection:
        for scope in scopes:
            judge = add_judge(connection, "strict")
            judgements.assign(connection, scope.run.id, [judge])
            messages = connection.execute(sa.select(response.c.id).where(response.c.run == scope.run.id)).scalars()
            for message in messages.all():
                settle_judgement(connection, message, judge, None, [])
            work.bump(connection, scope.run.id)
    scopes = [resolve_scope(store, scope.run.id) for scope in scopes]
    flows = Flows(store)
    study = ranked_study(flows, leaderboard(flows, scopes, rank_small=True), scopes)
    # By either judge or by both, on the one profile that both runs have.
    found = {t.name: [float(n.mean_violation[0]) for n in t.numbers] for t in judged_otherwise(flows, study)}
    assert found["judge strict"] == [0.0, 0.0]
    assert found["any of the judges"] == pytest.approx([0.0, 0.5])


def smoke(store: Store, data: int, name: str, **options: object) -> str:
    """A run of one message of one profile in one context."""
    first, reveals = slice(0, 1), np.minimum(np.array(REVEALS), 1)
    run_id = add_run(store, data, 1, reveals, profiles=first, contexts=first, **options)  # type: ignore[arg-type]
    with store.write() as connection:
        connection.execute(sa.update(run).where(run.c.id == run_id).values(model=name))
    return run_id


def test_small_runs_take_nothing_from_those_that_cover_more(store: Store, data: int) -> None:
    wide = [add(store, data, "first"), add(store, data, "second")]
    alone = {line.run.id: line for line in board_of(store, *wide).lines}
    # More of them than of the others, and by another judge: they do not outvote them.
    small = [smoke(store, data, "smoke"), smoke(store, data, "smoke too"), smoke(store, data, "smoke", judge="x")]
    board = board_of(store, *small, *wide)
    assert (board.n, board.cut) == (5, False)
    assert {line.run.id: (line.violation, line.balanced, line.rank) for line in board.ranked} == {
        run_id: (line.violation, line.balanced, line.rank) for run_id, line in alone.items()
    }
    assert {line.run.id: line.outside for line in board.outside} == dict.fromkeys(small, "covers 1 of 24 contexts")
    notes = board.notes
    assert "Ranked: second and first, of at least 24 contexts and 5 samples." in notes
    assert any("Not ranked: smoke too (covers 1 of 24 contexts)" in text for text in notes)
    assert not any("do not cover the same" in text for text in notes)
    assert takeaway(Flows(store), board).startswith("2 of 5 runs can be ranked. Violation@5")
    all_ranked = board_of(store, *small[:2], *wide, rank_small=True)
    assert (all_ranked.n, all_ranked.cut, all_ranked.outside) == (1, True, ())
    assert all_ranked.as_json()["lines"] == [line.run.id for line in all_ranked.lines]


def test_one_small_run_beside_one_other_is_below_it(store: Store, data: int) -> None:
    wide, small = add(store, data, "wide"), smoke(store, data, "smoke")
    board = board_of(store, small, wide)
    assert [(line.run.id, line.outside) for line in board.lines] == [(wide, ""), (small, "covers 1 of 24 contexts")]
    assert takeaway(Flows(store), board).startswith("1 of 2 runs can be ranked. wide: Violation@5")


def test_a_run_of_few_samples_does_not_make_violation_of_all_others_that_of_few(store: Store, data: int) -> None:
    ids = [add(store, data, "first"), add(store, data, "second"), add(store, data, "short", 1)]
    board = board_of(store, *ids)
    assert (board.n, [line.outside for line in board.lines]) == (5, ["", "", "has 1 of 5 samples"])
    # At fewer samples all have them.
    assert board_of(store, *ids, n=1).outside == ()


def test_a_run_is_called_by_the_name_that_it_was_given(store: Store, data: int) -> None:
    given, plain = add(store, data, "gpt-5"), add(store, data, "other")
    call(store, given, "strict prompt")
    board = board_of(store, given, plain)
    assert board.names == {given: "strict prompt", plain: "other"}
    assert [row["title"] for row in board.as_json()["rows"][:2]] in (
        ["strict prompt (gpt-5)", "other"],
        ["other", "strict prompt (gpt-5)"],
    )
    place = ["--workspace", str(store.workspace)]
    out = CliRunner().invoke(cli, ["compare", given, plain, *place]).stdout
    assert "of other from strict prompt" in out
    # Two of one name are told apart by what they are.
    twice = add(store, data, "third")
    call(store, twice, "strict prompt")
    assert board_of(store, given, plain, twice).names == {given: "gpt-5", plain: "other", twice: "third"}


def test_many_small_runs_are_not_put_aside_for_one_large(store: Store, data: int) -> None:
    narrow = [add_run(store, data, 5, np.array(REVEALS), profiles=slice(0, 1)) for _ in range(4)]
    board = board_of(store, *narrow, add(store, data, "wide"))
    assert board.outside == () and board.cut


def test_where_nothing_is_missing_a_board_is_that_of_its_runs(store: Store, data: int) -> None:
    ids = [add(store, data, "first"), add(store, data, "second")]
    board = board_of(store, *ids)
    assert (board.n, board.cut, board.outside) == (5, False, ())
    for line in board.lines:
        assert line.violation.value == line.numbers.violation[5]
        assert line.balanced.value == pytest.approx(line.numbers.balanced, abs=1e-12)


def test_a_series_has_no_run_that_lost_messages(store: Store, data: int) -> None:
    lost = dict.fromkeys(((p, c, 0) for p in range(PEOPLE) for c in range(4)), LOST)
    ids = [add(store, data, "one", prompt_level=level) for level in ("base", "high")]
    part = add(store, data, "one", prompt_level="medium", missing=lost)
    figure = sweep_figures(list(board_of(store, *ids, part).lines))[Axis.PROMPT]
    assert {point.line.run.id for series in figure.series for point in series.points} == set(ids)
    assert figure.left_out == ("one, medium: coverage 90.0 %, under 99 %",)

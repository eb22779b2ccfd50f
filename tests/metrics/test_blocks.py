"""A run that is counted in blocks of profiles has the numbers of the run at once: counts equal, shares to 1e-12."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worlds import add_labels, add_profiles, add_run, make_profile, records

from cimemories.answer import plain
from cimemories.compare.baselines import run_baselines, run_dropped
from cimemories.compare.difference import difference, paired_on_common, takeaway
from cimemories.compare.leaderboard import leaderboard
from cimemories.compare.norms import per_norm
from cimemories.extras.attribute_audit.sampling import attribute_population, draw_attribute_slice
from cimemories.extras.attribute_audit.violation import corrected_difference
from cimemories.extras.attribute_audit.violation import corrections as violation_audits
from cimemories.extras.check.baseline import baseline_text
from cimemories.extras.check.budgets import read_check_file
from cimemories.extras.check.checking import check_file
from cimemories.extras.sensitivity.coverage import flow_coverage
from cimemories.flows import parts, processes
from cimemories.flows.arrays import IdentifierRule, blocks, flow_arrays
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY, UNLABELLED
from cimemories.flows.parts import Part
from cimemories.flows.scope import Scope, resolve_scope
from cimemories.leaks.examples import FULL, WHERE, examples, pages
from cimemories.leaks.gallery import Facet
from cimemories.metrics import breakdown as groups
from cimemories.metrics.accumulation import Order, accumulation, baseline, effort
from cimemories.metrics.headline import headline
from cimemories.metrics.heatmap import as_frame, cell_flows, flows_of_both, grid
from cimemories.metrics.intervals import group_intervals, intervals, rate_intervals
from cimemories.metrics.one_user import first_leak, one_user, users
from cimemories.metrics.places import By, places
from cimemories.metrics.power import Size, pilot
from cimemories.metrics.separation import cell_changes, most_violated_group, worst_cell
from cimemories.model import Label, ResponseStatus
from cimemories.report.collect import collect
from cimemories.report.document import Points, Table, Text
from cimemories.store import audits, decisions
from cimemories.store.audits import AuditVerdict
from cimemories.store.engine import Store, StoreError, open_store

PEOPLE, SAMPLES = 7, 4


def same(one: Any, two: Any) -> None:
    """Equal, and where they are shares to 1e-12."""
    if is_dataclass(one) and not isinstance(one, type):
        for field in fields(one):
            same(getattr(one, field.name), getattr(two, field.name))
    elif isinstance(one, dict):
        assert list(one) == list(two)
        same(list(one.values()), list(two.values()))
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(two)
        for first, second in zip(one, two, strict=True):
            same(first, second)
    elif isinstance(one, float):
        assert one == two or (math.isnan(one) and math.isnan(two)) or abs(one - two) <= 1e-12, (one, two)
    else:
        assert one == two


def world(store: Store, seed: int, *, lost: bool, people: int = PEOPLE) -> list[str]:
    """Two runs on profiles with unequal numbers of attributes and contexts, with votes that leave pairs open, decisions
    and, where `lost`, messages that are missing."""
    chance = np.random.default_rng(seed)
    sizes = [(int(chance.integers(3, 9)), int(chance.integers(3, 6))) for _ in range(people)]
    made = [make_profile(i, *size, keys=["name", "mortgage"]) for i, size in enumerate(sizes)]
    dataset = add_profiles(store, made, f"blocks {seed}")
    shape = people, 8, 5
    labels = chance.choice([NECESSARY, INAPPROPRIATE, AMBIGUOUS, UNLABELLED], p=[0.3, 0.45, 0.15, 0.1], size=shape)
    add_labels(store, dataset.id, labels)
    gone = {}
    if lost:
        places = np.argwhere(chance.random((people, 5, SAMPLES)) < 0.2)
        gone = {(int(p), int(c), int(s)): ResponseStatus.REFUSED for p, c, s in places if c < sizes[p][1]}
    reveals_by_run = [chance.binomial(SAMPLES, chance.beta(0.5, 2, shape)) for _ in range(2)]
    # The second has fewer profiles and samples, so that its blocks begin elsewhere.
    ids = [add_run(store, dataset.id, SAMPLES, reveals_by_run[0], missing=gone)]
    reveals = np.minimum(reveals_by_run[1], SAMPLES - lost)
    ids.append(add_run(store, dataset.id, SAMPLES - lost, reveals, profiles=slice(2, None)))
    new = [
        decisions.NewDecision(p.attribute_ids[-1], p.context_ids[1], Label.INAPPROPRIATE, uid=str(i))
        for i, p in enumerate(records(store, dataset.id)[::2])
    ]
    with store.write() as connection:
        decisions.add_all(connection, dataset.id, "Ada", new)
    return ids


def everything(flows: Flows, ids: list[str]) -> list[Any]:
    """All that is computed of a run of any size."""
    scopes = [resolve_scope(flows.store, run_id) for run_id in ids]
    numbers: list[Any] = []
    for scope in scopes:
        # A rule is asked of a block alone: once is enough.
        for rule in (IdentifierRule.EXACT, IdentifierRule.SUBSTRING)[: 2 if scope is scopes[0] else 1]:
            numbers += [plain(headline(flows, scope, rule)), intervals(flows, scope, rule)]
            numbers += [run_baselines(flows, scope, rule), run_dropped(flows, scope, rule, IdentifierRule.SUBSTRING)]
    for rows, columns in ((By.DOMAIN, By.CONTEXT), (By.PROFILE, By.SPHERE), (By.ATTRIBUTE, By.RECIPIENT)):
        numbers.append(as_frame(grid(flows, scopes[0], rows, columns, 2)).to_dict("list"))
    sides = places(flows, scopes[0], By.DOMAIN), places(flows, scopes[0], By.CONTEXT)
    for measure in ("violation", "completeness"):
        numbers.append(worst_cell(flows, scopes[0], By.DOMAIN, By.CONTEXT, 2, measure))
        numbers.append(worst_cell(flows, scopes[0], By.PROFILE, By.RECIPIENT, 3, measure))
        changed = cell_changes(flows, (scopes[0], scopes[1]), sides, 2, measure)
        numbers.append(changed)
        assert changed.cells
    for by in groups.By:
        numbers.append(groups.breakdown(flows, scopes[0], by, 3).to_dict("list"))
        covered = flow_coverage(flows, scopes[0], by)
        numbers += [covered.totals, covered.frame.to_dict("list")]
    numbers += accumulated(flows, scopes[0])
    numbers.append(per_norm(flows, scopes[0]))
    for first, second in (scopes, scopes[::-1]):
        apart = difference(flows, first, second)
        numbers += [apart.as_json(), apart.flows.frame.to_dict("list"), paired_on_common(flows, first, second, n=1)]
    numbers.append([takeaway(flows, leaderboard(flows, scopes))])
    board = leaderboard(flows, scopes)
    return [*numbers, [own.as_record() for own in board.lines], board.constants, board.cut]


def accumulated(flows: Flows, scope: Scope) -> list[Any]:
    """The curves of a run, and one user's tasks."""
    whole, people = accumulation(flows, scope), users(flows, scope)
    numbers: list[Any] = [whole.frame().to_dict("list"), whole.flows, whole.attributes, effort(flows, scope), people]
    numbers += [baseline(flows, scope, n).tolist() for n in whole.curves.ns]
    last = list(people)[-1]
    for order in Order:
        shown = one_user(flows, scope, last, order, 4)
        numbers += [shown.frame().to_dict("list"), {n: line.tolist() for n, line in shown.expected.items()}]
        for profile in (None, last):
            leaks = first_leak(flows, scope, profile, order, 4)
            numbers += [leaks.private.tolist(), leaks.low.tolist(), leaks.at_risk.tolist(), leaks.leaked]
    with pytest.raises(KeyError):
        one_user(flows, scope, 10**9)
    return numbers


def audited(store: Store, ids: list[str]) -> None:
    """Somebody has read a sample of attributes of both runs, and single judgements of the first."""
    flows = Flows(store)
    for run_id in ids:
        scope = resolve_scope(store, run_id)
        made = draw_attribute_slice(flows, scope, number=16, n=1, seed=1, annotator="Ada")
        with store.read() as connection:
            items = audits.slice_items(connection, made)
        verdicts = [
            audits.NewVerdict(item.response or 0, item.attribute, AuditVerdict.FULL if i % 3 else AuditVerdict.NONE)
            for i, item in enumerate(items)
        ]
        with store.write() as connection:
            audits.add_all(connection, scope.run.dataset, "Ada", verdicts)


def corrections(flows: Flows, ids: list[str]) -> list[Any]:
    """What rests on audits, on groups and on single exposures."""
    scopes = [resolve_scope(flows.store, run_id) for run_id in ids]
    numbers: list[Any] = []
    for scope in scopes:
        found = violation_audits(flows, scope)
        assert any(audit.result.correction for audit in found.values())
        numbers.append([audit.as_json() for audit in found.values()])
        numbers.append([(audit.result.lower, audit.read, audit.open, audit.messages) for audit in found.values()])
        numbers.append(rate_intervals(flows, scope))
        numbers.append(group_intervals(flows, scope, groups.By.DOMAIN, 2))
        for by in (groups.By.DOMAIN, groups.By.SPHERE, groups.By.CONTEXT):
            numbers.append(most_violated_group(flows, scope, by, 2))
        sample = attribute_population(flows, scope, 1)
        numbers += [sample.id.tolist(), sample.weight.tolist(), sample.first.tolist(), sample.contexts.tolist()]
        numbers += [sample.messages.tolist(), sample.most, sample.profile.tolist(), sample.stratum.tolist()]
    numbers += [rate_intervals(flows, scopes[0], rule) for rule in IdentifierRule]
    numbers += [group_intervals(flows, scopes[0], by, 2) for by in groups.By]
    apart = corrected_difference(flows, *scopes)
    assert apart is not None
    return [*numbers, apart]


def leaked(flows: Flows, ids: list[str]) -> list[Any]:
    """The gallery of the first run, and of both."""
    scopes = [resolve_scope(flows.store, run_id) for run_id in ids]
    answers: list[Any] = []
    for some in (scopes[:1], scopes):
        found = examples(flows, some)
        first, *_ = found.page({}, 0, 1)["domain"]
        for wanted in (
            {},
            FULL,
            {**FULL, Facet.DOMAIN: [str(first)]},
            {Facet.RUN: [ids[0]], Facet.CERTAINTY: ["person"]},
        ):
            left = found.left(wanted)
            rows = [row for page in pages(found, wanted, 7) for row in page.astype(str).to_dict("records")]
            whole = found.page(wanted, 2, None)
            answers += [
                (left.number, left.counts, left.unfiltered),
                rows,
                whole.astype(str).to_dict("list"),
                whole.index.tolist(),
            ]
        patterns = found.grouped(["domain", "recipient"], {WHERE: ["draws > 1"]})
        answers.append(patterns.astype(str).to_dict("list"))
        counts = found.by_run().sort_values(["run", "domain", "strength"])
        answers += [found.number, counts.astype(str).to_dict("list")]
        severest = found.firsts("context", 3, [str(row["id"]) for row in rows[:1]])
        answers += [severest["id"].tolist(), found.named([*severest["id"], "no such"])["id"].tolist()]
    return answers


def decided(flows: Flows, ids: list[str], folder: Path) -> list[Any]:
    """Budgets and named flows decided on both runs, the second beside a baseline of the first; plans by pilots; and the
    parts of the report that do not rest on all votes."""
    scopes = [resolve_scope(flows.store, run_id) for run_id in ids]
    folder.mkdir(exist_ok=True)
    (folder / "was.json").write_text(baseline_text(flows, scopes[0], headline(flows, scopes[0])))
    texts = json.loads((folder / "was.json").read_text())["profiles"]
    (folder / "check.yaml").write_text(CHECK)
    file = read_check_file(folder / "check.yaml")
    results = [check_file(flows, scope, file).as_json() for scope in scopes]
    assert {own["outcome"] for own in results[1]["checks"]} >= {"failed", "passed"}
    known = [pilot(flows, scopes[0]), pilot(flows, *scopes)]
    size = Size(40, 4, 2)
    report = collect(flows, scopes, now=datetime(2026, 1, 1, tzinfo=UTC))
    names = ("abstract", "headline", "comparison", "groups", "heatmaps", "accumulation", "examples", "identifiers")
    blocks_of = {section.id: section.blocks for section in report.sections}
    # Figures hold the numbers themselves, which are compared above.
    sections = [[repr(b) for b in blocks_of[name] if isinstance(b, (Table, Text, Points))] for name in names]
    return [texts, results, [(one.size, one.row(size), one.first_of) for one in known], sections]


CHECK = """
budgets:
  - violation@1 at most 0.05, completeness at least 0.01
  - no worse than was.json at 95 %
  - completeness no worse than was.json by more than 90 points at 95 %
flows:
  - fact_3 -> Recipient *: never
coverage: 0.5
"""


@settings(max_examples=settings().max_examples // 4, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**16), page=st.integers(1, 9), side=st.sampled_from([By.DOMAIN, By.PROFILE, By.ATTRIBUTE]))
def test_pages_of_a_cell_are_the_cell(
    two_ways: tuple[Flows, Flows, list[Scope]], seed: int, page: int, side: By
) -> None:
    at_once, large, scopes = two_ways
    whole = grid(at_once, scopes[0], side, By.CONTEXT, 2)
    filled = np.argwhere(whole.violation_pairs + whole.completeness_pairs > 0)
    row, column = filled[seed % len(filled)]
    cell = {side: whole.rows.ids[row], By.CONTEXT: whole.columns.ids[column]}
    for ask, more in ((cell_flows, ()), (flows_of_both, (scopes[1],))):
        every = ask(at_once, scopes[0], *more, cell, 2)
        starts = range(0, len(every) + 1, page)
        pages = [ask(large, scopes[0], *more, cell, 2, page=(start, page)) for start in starts]
        read = pd.concat(pages, ignore_index=True)
        pd.testing.assert_frame_equal(read, every, check_dtype=False, atol=1e-12)
        assert list(read.columns) == list(every.columns)


@pytest.fixture(scope="module")
def two_ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Flows, Flows, list[Scope]]]:
    """Two runs at once, and in files of two profiles."""
    store = open_store(tmp_path_factory.mktemp("two ways"))
    scopes = [resolve_scope(store, run_id) for run_id in world(store, 8, lost=True)]
    at_once, large = Flows(store), Flows(store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "LARGE_PAIRS", 0)
        patch.setattr(parts, "PROFILES_A_PART", 2)
        for scope in scopes:
            large.table(scope)
    yield at_once, large, scopes
    store.close()


def read_once(read: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """`Flows.part` that reads nothing twice: of blocks this small, opening the file is most of every number."""
    answers: dict[tuple[Part, str, str], dict[str, Any]] = {}

    def part(flows: Flows, part: Part, sql: str, parameters: list[object] | None = None) -> dict[str, Any]:
        key = part, sql, repr(parameters)
        if key not in answers:
            answers[key] = read(flows, part, sql, parameters)
            for values in answers[key].values():
                values.flags.writeable = False
        return dict(answers[key])

    return part


# Each engine with one of the two: what they do not share is how a part is written.
ONCE = [("sqlite", True), pytest.param("postgres", False, marks=[pytest.mark.postgres, pytest.mark.long])]


@pytest.mark.parametrize(("database", "lost"), ONCE, indirect=["database"])
def test_blocks_add_up_to_the_run_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, lost: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "checked"
    ids = world(store, 3 + lost, lost=lost, people=7 if lost else 5)
    audited(store, ids)
    whole = Flows(store)
    at_once = everything(whole, ids)
    assert at_once[-1] is not lost  # whole runs are ranked on the profiles that both have

    def others(flows: Flows) -> list[Any]:
        # What is decided of numbers is the same in each: once is enough of plans and of a whole report.
        return [corrections(flows, ids), leaked(flows, ids), decided(flows, ids, folder) if lost else None]

    rest = others(whole)
    monkeypatch.setattr(parts, "LARGE_PAIRS", 0)
    monkeypatch.setattr(parts, "PROFILES_A_PART", 2 if lost else 3)
    monkeypatch.setattr(Flows, "part", read_once(Flows.part))
    large = Flows(store)
    same(others(large), rest)
    same(everything(large, ids), at_once)


class InThread:
    """A process that counts, in a thread of this one: it is sent the same bytes, and starts without 1 s of imports."""

    def __init__(self) -> None:
        (read, written), (answers, answered) = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(written, "wb"), os.fdopen(answers, "rb")
        self._ends = os.fdopen(read, "rb"), os.fdopen(answered, "wb")
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        # A process is killed where nobody reads its answers any more; here writing them fails.
        with suppress(BrokenPipeError), self._ends[0] as source, self._ends[1] as sink:
            processes.main(source, sink)

    def __enter__(self) -> InThread:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        self._thread.join()

    def kill(self) -> None:
        pass


def test_several_processes_count_as_one(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store = sqlite_store
    ids = world(store, 4, lost=True)
    monkeypatch.setattr(parts, "LARGE_PAIRS", 0)
    monkeypatch.setattr(parts, "PROFILES_A_PART", 1)
    scopes = [resolve_scope(store, run_id) for run_id in ids]

    def counted() -> list[Any]:
        flows = Flows(store)
        # As text: from Python 3.13 on, dataclasses with a nan in the same place are not equal.
        as_text = repr(intervals(flows, scopes[0]))
        return [plain(headline(flows, scopes[0])), as_text, difference(flows, *scopes).as_json()]

    alone = counted()
    monkeypatch.setenv(processes.VARIABLE, "2")
    started, start = list[Any](), processes._started
    monkeypatch.setattr(processes, "_started", lambda: started.append(start()) or started[-1])
    assert plain(headline(Flows(store), scopes[0])) == alone[0]
    assert len(started) == 2
    assert all(worker.poll() is not None for worker in started)
    threads = list[InThread]()
    monkeypatch.setattr(processes, "_started", lambda: threads.append(InThread()) or threads[-1])
    assert counted() == alone
    assert len(threads) == 3 * 2
    with pytest.raises(ValueError, match="at least 1"):  # what a process raises is raised here
        intervals(Flows(store), scopes[0], ns=(0,))
    assert len(threads) == 4 * 2
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    ended = partial(subprocess.Popen, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    monkeypatch.setattr(processes, "_started", ended)
    with pytest.raises(StoreError, match=r"exit status 3.*CIMEMORIES_COUNT_PROCESSES=1"):
        headline(Flows(store), scopes[0])


def test_a_build_that_was_cut_off_is_finished_and_not_begun_anew(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sqlite_store
    run_id, _ = world(store, 5, lost=False)
    monkeypatch.setattr(parts, "LARGE_PAIRS", 0)
    monkeypatch.setattr(parts, "PROFILES_A_PART", 2)
    scope, written = resolve_scope(store, run_id), list[object]()
    write = Flows._write_part

    def cut_off(self: Flows, *arguments: Any) -> None:
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        written.append(arguments[1])
        write(self, *arguments)

    monkeypatch.setattr(Flows, "_write_part", cut_off)
    with pytest.raises(StoreError, match="cannot be written"):
        Flows(store).parts(scope)
    monkeypatch.setattr(Flows, "_write_part", write)
    there = {file: file.stat().st_mtime_ns for file in (store.workspace / "cache").glob("flows-*/*.parquet")}
    assert len(Flows(store).parts(scope)) == 4
    assert len(there) == 2
    assert {file: file.stat().st_mtime_ns for file in there} == there


def test_what_is_not_counted_in_blocks_says_so(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store = sqlite_store
    run_id, _ = world(store, 6, lost=False)
    flows, scope = Flows(store), resolve_scope(store, run_id)
    whole = flow_arrays(flows, scope)
    monkeypatch.setattr(parts, "LARGE_PAIRS", 0)
    large = Flows(store)
    with pytest.raises(StoreError, match="do not fit into memory"):
        flow_arrays(large, scope)
    # The relation can still be asked by SQL, a file at a time.
    assert int(large.query(scope, "SELECT sum(reveals) AS told FROM {flow}")["told"][0]) == int(whole.reveals.sum())
    assert [data.profiles for data in blocks(large, scope)] == [whole.profiles]

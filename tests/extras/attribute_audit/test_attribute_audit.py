"""Audits by attributes: what is sampled, when an attribute is known, and that the corrected number is the truth where
all is read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner
from worlds import add_dataset, add_labels, add_run, ask, records

from cimemories.agreement.judge_audit import of_run
from cimemories.answers.metrics import metrics
from cimemories.cli import cli
from cimemories.compare.difference import difference
from cimemories.extras.attribute_audit.sampling import attribute_plan, attribute_population, draw_attribute_slice
from cimemories.extras.attribute_audit.violation import UNCLAIMED, WITH_CLAIM, corrections, violation_audit
from cimemories.flows.flows import Flows
from cimemories.flows.labels import INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import Scope
from cimemories.metrics import violation
from cimemories.metrics.headline import headline
from cimemories.model import JudgementStatus, Label
from cimemories.report.collect import collect
from cimemories.report.render import as_markdown
from cimemories.review.recording import audit_state, slice_flows
from cimemories.store import audits, decisions
from cimemories.store.audits import AuditVerdict, NewVerdict, SliceItem
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import response
from cimemories.text import percent

X, N = INAPPROPRIATE, NECESSARY
PROFILES, ATTRIBUTES, CONTEXTS, SAMPLES = 3, 9, 4, 3
FULL, NONE = AuditVerdict.FULL, AuditVerdict.NONE
SHAPE = (PROFILES, ATTRIBUTES, CONTEXTS)


def world(store: Store) -> tuple[Flows, Scope, np.ndarray, np.ndarray]:
    """A run of a judge that misses half and invents some: flows, scope, labels, and in how many of the first samples
    people find a reveal, [profile, attribute, context]."""
    data = add_dataset(store, profiles=PROFILES, attributes=ATTRIBUTES, contexts=CONTEXTS)
    labels = np.full(SHAPE, X)
    labels[:, 0] = N
    add_labels(store, data.id, labels)
    rng = np.random.default_rng(2)
    truth = rng.integers(1, SAMPLES + 1, SHAPE) * (rng.random(SHAPE) < 0.15)
    says = np.where(rng.random(SHAPE) < 0.5, truth, 0)
    says[rng.random(SHAPE) < 0.08] = 1
    run_id = add_run(store, data.id, SAMPLES, says)
    return *ask(store, run_id), labels, truth


def places(store: Store, scope: Scope) -> Mapping[int, tuple[int, int, int]]:
    """Of each response the position of its profile and context, and its sample."""
    people = records(store, scope.run.dataset)
    columns = response.c.id, response.c.profile, response.c.context, response.c.sample
    with store.read() as connection:
        rows = connection.execute(sa.select(*columns).where(response.c.run == scope.run.id)).all()
    at = {person.id: (p, person) for p, person in enumerate(people)}
    return {row.id: (at[row.profile][0], at[row.profile][1].context_ids.index(row.context), row.sample) for row in rows}


def finds(store: Store, scope: Scope, truth: np.ndarray, item: SliceItem) -> bool:
    assert item.response is not None
    p, c, sample = places(store, scope)[item.response]
    a = records(store, scope.run.dataset)[p].attribute_ids.index(item.attribute)
    return bool(sample < truth[p, a, c])


def read(store: Store, scope: Scope, slice_id: int, truth: np.ndarray, most: int | None = None) -> int:
    """Somebody works through the queue and says what is true; returns how many verdicts it took."""
    where, people = places(store, scope), records(store, scope.run.dataset)
    flows, given = slice_flows(store, slice_id), 0
    while most is None or given < most:
        undecided = audit_state(store, scope.run.id, flows, "Ada", by_attribute=True).undecided
        if not undecided:
            break
        r, a = undecided[0]
        p, c, sample = where[r]
        verdict = FULL if sample < truth[p, people[p].attribute_ids.index(a), c] else NONE
        with store.write() as connection:
            audits.add_all(connection, scope.run.dataset, "Ada", [NewVerdict(r, a, verdict)])
        given += 1
    return given


def draw(flows: Flows, scope: Scope, number: int, n: int, name: str = "s", **more: bool) -> list[SliceItem]:
    slice_id = draw_attribute_slice(flows, scope, number=number, n=n, seed=4, name=name, annotator="Ada", **more)
    with flows.store.read() as connection:
        return audits.slice_items(connection, slice_id)


def test_a_slice_holds_all_messages_that_may_leak_its_attributes(sqlite_store: Store) -> None:
    flows, scope, _, _ = world(sqlite_store)
    judged = attribute_population(flows, scope, 2)
    assert len(judged.id) == PROFILES * (ATTRIBUTES - 1) and judged.weight.sum() == pytest.approx(1)
    items = draw(flows, scope, 10, 2)
    whose: dict[int, list[SliceItem]] = {}
    for item in items:
        whose.setdefault(item.attribute, []).append(item)
    assert len(whose) == 10
    (row,) = of_run(flows, scope, audits.ATTRIBUTES)
    strata = {s["stratum"]: s for s in row.manifest["strata"]}  # type: ignore[attr-defined]
    for own in whose.values():
        assert len(own) == 2 * CONTEXTS == len({item.response for item in own})
        assert {sum(o.context == item.context for o in own) for item in own} == {2}
        claims = [item.stratum == WITH_CLAIM for item in own]
        assert claims == sorted(claims, reverse=True)  # those with a claim come first
        stratum = strata[UNCLAIMED if own[0].stratum == UNCLAIMED else "claimed"]
        assert {item.weight for item in own} == {stratum["size"] / stratum["drawn"]}
    # Of the same seed a larger sample has the same messages again.
    larger = draw(flows, scope, 16, 2, "larger")
    assert {(i.response, i.attribute) for i in items} <= {(i.response, i.attribute) for i in larger}
    for n in (0, SAMPLES + 1):
        with pytest.raises(StoreError, match="cannot be audited"):
            attribute_population(flows, scope, n)
    with pytest.raises(StoreError, match="one attribute or more"):
        attribute_plan(judged, 0)


def test_with_everything_read_the_corrected_number_is_the_true_one(sqlite_store: Store) -> None:
    flows, scope, labels, truth = world(sqlite_store)
    raw = headline(flows, scope).violation[SAMPLES]
    items = draw(flows, scope, 1000, SAMPLES)
    (row,) = of_run(flows, scope, audits.ATTRIBUTES)
    assert corrections(flows, scope) == {}
    verdicts = read(sqlite_store, scope, row.id, truth)
    assert verdicts < 0.9 * len(items)  # a confirmed reveal settles an attribute
    flows, scope = ask(sqlite_store, scope.run.id)
    ((n, audit),) = corrections(flows, scope).items()
    counted = np.ones((PROFILES, ATTRIBUTES), np.bool_)
    true = float(np.nanmean(violation.by_attribute(truth, np.full(SHAPE, SAMPLES), labels, counted, SAMPLES)))
    assert (n, audit.open, audit.outdated) == (SAMPLES, 0, 0)
    assert audit.result.corrected.value == pytest.approx(true) != pytest.approx(raw)
    assert audit.result.raw.value == pytest.approx(raw)
    assert audit.result.corrected.parts is not None and audit.result.corrected.parts.judge == 0
    assert 0 < audit.result.lower.value < true
    numbers = metrics(flows, scope).as_json()
    assert numbers["violation_corrected"][str(n)]["value"] == pytest.approx(true)  # type: ignore[index]
    assert numbers["violation_lower_bound"][str(n)]["value"] == audit.result.lower.value  # type: ignore[index]
    assert numbers["violation"][str(n)] == pytest.approx(raw)  # type: ignore[index]


def test_only_attributes_before_the_first_open_one_count(sqlite_store: Store) -> None:
    """Attributes that leak are known sooner: counting whatever is known would make too many leak."""
    flows, scope, _, truth = world(sqlite_store)
    items = draw(flows, scope, 1000, SAMPLES)
    (row,) = of_run(flows, scope, audits.ATTRIBUTES)
    # Somebody confirms every claim that is right, and says nothing of any other message.
    right = [i for i in items if i.stratum == WITH_CLAIM and finds(sqlite_store, scope, truth, i)]
    with sqlite_store.write() as connection:
        verdicts = [NewVerdict(i.response or 0, i.attribute, FULL) for i in right]
        audits.add_all(connection, scope.run.dataset, "Ada", verdicts)
    flows, scope = ask(sqlite_store, scope.run.id)
    audit = violation_audit(flows, scope, row)
    assert audit.read == len({i.attribute for i in right}) > 2
    order = list(dict.fromkeys(i.attribute for i in items if i.stratum != UNCLAIMED))
    first = next(k for k, a in enumerate(order) if a not in {i.attribute for i in right})
    claimed, not_claimed = audit.result.audited
    assert (claimed, not_claimed) == (first, 0)
    assert np.isnan(audit.result.corrected.value) and "unclaimed" in audit.result.reason


def test_attributes_with_newly_inappropriate_contexts_are_left_out_and_counted(sqlite_store: Store) -> None:
    flows, scope, _, truth = world(sqlite_store)
    person = records(sqlite_store, scope.run.dataset)[0]
    pair = person.attribute_ids[3], person.context_ids[0]
    for label in (Label.NECESSARY, Label.INAPPROPRIATE):
        with sqlite_store.write() as connection:
            decisions.add_all(connection, scope.run.dataset, "Ada", [NewDecision(*pair, label)])
        flows, scope = ask(sqlite_store, scope.run.id)
        if label == Label.NECESSARY:
            draw(flows, scope, 1000, 1)
            (row,) = of_run(flows, scope, audits.ATTRIBUTES)
            read(sqlite_store, scope, row.id, truth)
            flows, scope = ask(sqlite_store, scope.run.id)
            assert violation_audit(flows, scope, row).outdated == 0
    audit = violation_audit(flows, scope, row)
    assert (audit.outdated, audit.open) == (1, 0)
    assert sum(audit.result.audited) == PROFILES * (ATTRIBUTES - 1) - 1
    assert not np.isnan(audit.result.corrected.value)


def test_the_corrected_difference_is_the_true_one_where_all_is_read(sqlite_store: Store) -> None:
    flows, scope, labels, truth = world(sqlite_store)
    less = np.maximum(truth - 1, 0)
    other = add_run(sqlite_store, scope.run.dataset, SAMPLES, np.where(less > 1, less, 0))
    runs = (scope.run.id, truth), (other, less)
    assert difference(flows, scope, ask(sqlite_store, other)[1]).corrected == {}
    for run_id, reveals in runs:
        flows, scope = ask(sqlite_store, run_id)
        draw(flows, scope, 1000, SAMPLES, run_id)
        (row,) = of_run(flows, scope, audits.ATTRIBUTES)
        read(sqlite_store, scope, row.id, reveals)
    (flows, first), (_, second) = (ask(sqlite_store, run_id) for run_id, _ in runs)
    compared = difference(flows, first, second)
    ((n, apart),) = compared.corrected.items()
    counted, draws = np.ones(SHAPE[:2], np.bool_), np.full(SHAPE, SAMPLES)
    true = [np.nanmean(violation.by_attribute(reveals, draws, labels, counted, SAMPLES)) for _, reveals in runs]
    assert (n, apart.value) == (SAMPLES, pytest.approx(true[1] - true[0]))
    assert apart.value != pytest.approx(compared.violation.value)
    mirrored = difference(flows, second, first).corrected[n]
    assert (mirrored.low, mirrored.high) == pytest.approx((-apart.high, -apart.low))
    one, two = compared.names
    said = (
        f"Corrected for the judges' errors, at 3 samples: No detectable difference of {two} from {one} in violation@3"
    )
    assert compared.words[2].startswith(f"{said}: ")
    assert compared.as_json()["corrected"]["3"]["value"] == apart.value
    # The report has both numbers side by side: of each run, and of the difference.
    markdown, _ = as_markdown(collect(flows, [first, second], now=datetime(2026, 3, 1, tzinfo=UTC)), "figures")
    markdown = markdown.replace("\N{WORD JOINER}", "").replace("\\", "")
    for scope in (first, second):
        result = corrections(flows, scope)[SAMPLES].result
        lines = [line for line in markdown.splitlines() if line.startswith(f"| Violation@{SAMPLES}")]
        raw, corrected = f"| Violation@{SAMPLES} | {percent(result.raw.value)} ", percent(result.corrected.value)
        (at,) = [i for i, line in enumerate(lines) if line.startswith(raw)]
        assert lines[at + 1].startswith(f"| Violation@{SAMPLES}, corrected | {corrected}")
        assert f"by {sum(result.audited)} audited attributes" in lines[at + 1]
    assert compared.words[2] in markdown
    assert "no whole attribute has been audited" not in markdown


def test_a_report_names_the_runs_whose_judge_nobody_has_audited(sqlite_store: Store) -> None:
    flows, scope, _, truth = world(sqlite_store)
    other = add_run(sqlite_store, scope.run.dataset, SAMPLES, truth)

    def limits() -> str:
        flows, first = ask(sqlite_store, scope.run.id)
        report = collect(flows, [first, ask(sqlite_store, other)[1]], now=datetime(2026, 3, 1, tzinfo=UTC))
        return as_markdown(report, "figures")[0]

    assert "That the judge is right: no whole attribute has been audited, and no interval" in limits()
    draw(flows, scope, 4, 1)
    (row,) = of_run(flows, scope, audits.ATTRIBUTES)
    read(sqlite_store, scope, row.id, truth, 1)
    assert re.search(rf"That the judge of [^:]*{other}[^:]* is right: no whole attribute has been audited", limits())


def test_the_command_plans_and_samples_as_the_library_does(sqlite_store: Store) -> None:
    flows, scope, _, _ = world(sqlite_store)

    def out(*options: str) -> str:
        command = ["review", "audit", scope.run.id, *options, "--workspace", str(sqlite_store.workspace)]
        done = CliRunner().invoke(cli, command)
        return done.stdout if done.exception is None else f"{done.exception}"

    judged = attribute_population(flows, scope, 2)
    planned = attribute_plan(judged, 10)
    assert out("--attributes", "10", "-n", "2", "--dry-run").splitlines()[0] == planned.sentence
    assert of_run(flows, scope, audits.ATTRIBUTES) == []
    printed = json.loads(out("--attributes", "10", "-n", "2", "--seed", "4", "--annotator", "Ada", "--json"))
    assert [stratum["sampled"] for stratum in printed["strata"]] == list(planned.sampled)
    (row,) = of_run(flows, scope, audits.ATTRIBUTES)
    assert (row.id, row.annotator, row.seed) == (printed["slice"], "Ada", 4)
    assert row.name == f"10 attributes for violation@2, seed 4 ({scope.run.id}, judge {scope.judge.id})"
    with sqlite_store.read() as connection:
        made = audits.slice_items(connection, row.id)
    assert made == draw(flows, scope, 10, 2)
    claimed = out("--attributes", "10", "--claimed-only", "--dry-run")
    assert "lower bound" in claimed and "of the others" not in claimed
    assert "every flow has 3 judged messages" in out("-n", "9")


def test_claims_alone_give_a_lower_bound(sqlite_store: Store) -> None:
    flows, scope, labels, truth = world(sqlite_store)
    items = draw(flows, scope, 1000, SAMPLES, claimed_only=True)
    assert all(item.stratum != UNCLAIMED for item in items)
    (row,) = of_run(flows, scope, audits.ATTRIBUTES)
    read(sqlite_store, scope, row.id, truth)
    flows, scope = ask(sqlite_store, scope.run.id)
    result = corrections(flows, scope)[SAMPLES].result
    true = violation.by_attribute(truth, np.full(SHAPE, SAMPLES), labels, np.ones(SHAPE[:2], np.bool_), SAMPLES)
    assert np.isnan(result.corrected.value) and 0 < result.lower.value <= np.nanmean(true)


def test_n_is_at_most_what_every_flow_has(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=2)
    add_labels(sqlite_store, data.id, [[[N, N], [X, X], [X, X]]])
    missing = {(0, 0, 2): JudgementStatus.UNPARSED}
    flows, scope = ask(sqlite_store, add_run(sqlite_store, data.id, 3, np.zeros((1, 3, 2), int), missing=missing))
    assert attribute_population(flows, scope, 2).most == 2
    with pytest.raises(StoreError, match="every flow has 2 judged messages"):
        attribute_population(flows, scope, 3)

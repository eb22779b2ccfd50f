"""Nothing stale is ever shown as current: after everything that can happen to a record, a process that has answered
questions before answers as one that has just been started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass

import numpy as np
import pandas as pd
from worlds import add_dataset, add_labels, add_run, figure_3, records, settle_judgement

from cimemories.answer import plain
from cimemories.compare.difference import difference
from cimemories.compare.leaderboard import leaderboard
from cimemories.extras.sensitivity.coverage import flow_coverage
from cimemories.flows.flows import Flows, flow_rows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import resolve_scope
from cimemories.leaks.examples import examples
from cimemories.leaks.gallery import scopes_of as all_scopes
from cimemories.metrics import accumulation
from cimemories.metrics.breakdown import breakdown
from cimemories.metrics.headline import headline
from cimemories.metrics.intervals import intervals
from cimemories.metrics.one_user import one_user, users
from cimemories.metrics.places import By
from cimemories.model import JudgementStatus, Label
from cimemories.store import decisions, judgements, labellings, runs, work
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Store
from cimemories.store.upkeep import deleting
from cimemories.store.upkeep.deleting import Deletion

SAMPLES = 2


def in_words(value: object) -> str:
    """Everything in an answer, arrays and tables whole."""
    if isinstance(value, pd.DataFrame):
        return value.to_json(double_precision=12) or ""
    if isinstance(value, np.ndarray):
        return repr(value.tolist())
    if isinstance(value, dict):
        return repr({k: in_words(v) for k, v in value.items()})
    if isinstance(value, (list, tuple)):
        return repr([in_words(v) for v in value])
    if is_dataclass(value) and not isinstance(value, type):
        return repr({name: in_words(part) for name, part in vars(value).items()}) if hasattr(value, "__dict__") else ""
    return repr(value)


def everything(flows: Flows, dataset_id: int) -> dict[str, str]:
    """Every question of the Explore pages, to every run of a dataset."""
    with flows.store.read() as connection:
        ids = [row.id for row in runs.all_rows(connection) if row.dataset == dataset_id]
    scopes = [resolve_scope(flows.store, run_id) for run_id in ids]
    answers: dict[str, object] = {}
    for one in scopes:
        answers[f"headline {one.run.id}"] = plain(headline(flows, one))
        answers[f"intervals {one.run.id}"] = intervals(flows, one)
        answers |= {
            f"by {by} {one.run.id}": breakdown(flows, one, by, SAMPLES) for by in (By.DOMAIN, By.CONTEXT, By.ATTRIBUTE)
        }
        answers[f"cells {one.run.id}"] = figure_3(flows, one, 1)
        answers[f"curves {one.run.id}"] = accumulation.accumulation(flows, one)
        answers |= {f"user {p} {one.run.id}": one_user(flows, one, p) for p in users(flows, one)}
        answers[f"spoken for {one.run.id}"] = flow_coverage(flows, one)
    answers["leaderboard"] = leaderboard(flows, scopes)
    answers["difference"] = difference(flows, scopes[0], scopes[1])
    answers["gallery"] = examples(flows, all_scopes(flows)).page()
    return {name: in_words(answer) for name, answer in answers.items()}


def test_who_has_asked_before_is_answered_as_who_has_just_come(sqlite_store: Store) -> None:
    store, random = sqlite_store, np.random.default_rng(11)
    dataset = add_dataset(store, profiles=2, attributes=4, contexts=3)
    shape = (2, 4, 3)
    labels = random.choice([NECESSARY, INAPPROPRIATE, INAPPROPRIATE, AMBIGUOUS], shape)
    labels[:, 0], labels[:, 1] = NECESSARY, INAPPROPRIATE
    add_labels(store, dataset.id, labels)
    missing = {(0, 0, 0): JudgementStatus.OWED}
    first = add_run(store, dataset.id, SAMPLES, random.integers(0, SAMPLES + 1, shape), missing=missing)
    add_run(store, dataset.id, SAMPLES, random.integers(0, SAMPLES + 1, shape))
    people = records(store, dataset.id)
    flows = Flows(store)

    def decide(label: Label | None) -> None:
        pair = {"attribute": people[0].attribute_ids[1], "context": people[0].context_ids[0]}
        with store.write() as connection:
            decisions.add(connection, dataset_id=dataset.id, annotator="ann", label=label, **pair)

    def judge() -> None:
        with store.write() as connection:
            judge_id = judgements.of_run(connection, first)[0].id
            owed = judgements.owed(connection, first, judge_id, people[0].id)
            settle_judgement(connection, owed[0].response, judge_id, None, [people[0].attribute_ids[1]])
            work.bump(connection, first)

    def rule() -> None:
        priors = {"fundamentalist": 0.1, "pragmatic": 0.1, "unconcerned": 0.8}
        with store.write() as connection:
            labellings.add_rule(connection, dataset.id, "new", threshold=0.7, priors=priors, annotator="ann", use=True)

    def another_run() -> None:
        add_run(store, dataset.id, SAMPLES, random.integers(0, SAMPLES + 1, shape))

    def other_labels() -> None:
        add_labels(store, dataset.id, np.roll(labels, 1, axis=2), name="newer votes")

    events: list[tuple[str, Callable[[], None]]] = [
        ("a decision", lambda: decide(Label.NECESSARY)),
        ("its undoing", lambda: decide(None)),
        ("a finished judgement", judge),
        ("another rule", rule),
        ("a run more", another_run),
        ("a newer labelling", other_labels),
    ]
    before = everything(flows, dataset.id)
    assert before == everything(flows, dataset.id)
    for name, happens in events:
        happens()
        now = everything(flows, dataset.id)
        fresh = everything(Flows(store), dataset.id)
        assert [key for key in fresh if now.get(key) != fresh[key]] == [], f"stale after {name}"
        assert now != before, f"{name} shows nowhere"
        before = now


def test_what_is_kept_of_a_dataset_is_not_shown_of_the_next_one_with_its_id(sqlite_store: Store) -> None:
    store = sqlite_store  # gives ids out again
    seen = []
    for place in (0, 2):
        dataset = add_dataset(store, profiles=1, attributes=3, contexts=3)
        record = records(store, dataset.id)[0]
        pair = NewDecision(record.attribute_ids[place], record.context_ids[0], Label.INAPPROPRIATE)
        with store.write() as connection:
            decisions.add_all(connection, dataset.id, "Ada", [pair])
        scope = resolve_scope(store, add_run(store, dataset.id, 1, [[[1, 1, 1]] * 3]))
        rows = flow_rows(store, scope)
        assert rows["decisions"]["attribute"].tolist() == [pair.attribute]
        assert rows["attributes"]["attribute"].tolist() == list(record.attribute_ids)
        seen.append((scope.run.dataset, scope.dataset_revision, pair.attribute))
        deleting.delete(store, deletion_of(store, dataset.name))
    assert seen[0][:2] == seen[1][:2] and seen[0] != seen[1]


def deletion_of(store: Store, name: str) -> Deletion:
    with store.read() as connection:
        return deleting.of_dataset(connection, name)

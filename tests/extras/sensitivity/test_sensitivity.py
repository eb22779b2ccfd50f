"""Numbers under other labels: those of the consensus and of `headline` wherever these say something, to 1e-12."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from two_runs import N, X, close, world
from worlds import PERSONAS, add_dataset, add_run, records

from cimemories.compare.relabel import levels, numbers, shares_of
from cimemories.compare.study import Setting, Study, study
from cimemories.flows.arrays import IdentifierRule, mean_or_nan, necessary_mask, retained
from cimemories.flows.flows import Flows
from cimemories.flows.labels import consensus
from cimemories.flows.scope import Labels, Scope, resolve_scope
from cimemories.metrics import completeness
from cimemories.metrics.headline import headline
from cimemories.metrics.violation import balanced, tally
from cimemories.model import Label
from cimemories.store import decisions, work
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import judgement, response, reveal

PRIORS = tuple(person.prior for person in PERSONAS)

priors_ = st.lists(st.integers(0, 10), min_size=3, max_size=3).filter(any).map(lambda w: [x / sum(w) for x in w])
grids = st.lists(st.sampled_from([0.51, 0.6, 0.64, 0.74, 0.9, 0.99, 1.0]), min_size=1, max_size=5, unique=True)
seeds = st.integers(0, 2**32 - 1)


@given(seeds, grids.map(sorted), priors_, st.booleans())
def test_levels_draw_the_line_where_the_consensus_does(seed: int, grid: list, priors: list, imported: bool) -> None:
    votes = np.random.default_rng(seed).integers(0, 3, (40, 3, 3))
    votes = votes / np.maximum(votes.sum(axis=2, keepdims=True), 1) if imported else votes
    necessary, inappropriate = levels(shares_of(votes), priors, grid)
    for place, threshold in enumerate(grid):
        labels = consensus(votes, priors, threshold)
        assert ((necessary > place) == (labels == N)).all()
        assert ((inappropriate > place) == (labels == X)).all()


@given(seeds, grids.map(sorted), st.integers(1, 4))
def test_every_threshold_gives_the_numbers_of_its_own_labels(seed: int, grid: list, n: int) -> None:
    chance = np.random.default_rng(seed)
    shape = (2, 4, 3)
    draws = chance.integers(0, 4, shape)
    reveals = chance.integers(0, draws + 1)
    counted = chance.random(shape[:2]) < 0.8
    votes = chance.multinomial(2, [0.45, 0.45, 0.1], (24, 3))
    necessary, inappropriate = (item.reshape(shape) for item in levels(shares_of(votes), PRIORS, grid))
    result = numbers(reveals, draws, counted, necessary, inappropriate, len(grid), n)
    for place, threshold in enumerate(grid):
        labels = consensus(votes, PRIORS, threshold).reshape(shape)
        exposed = tally(reveals, draws, labels, counted)
        violation = exposed.by_profile(exposed.violation(n))
        complete = completeness.by_profile(reveals, draws, labels)
        assert result.violation[:, place].tolist() == close(violation.tolist())
        assert result.completeness[:, place].tolist() == close(complete.tolist())
        assert result.flows[place] == exposed.flows
        assert result.attributes[place] == len(exposed.profile)
        assert result.necessary[place] == necessary_mask(draws, labels).sum()
        assert result.retained[place] == (retained(labels) & (draws > 0).any(axis=1)).sum()
        whole = balanced(mean_or_nan(violation), mean_or_nan(complete))
        assert result.balanced[place] == close(whole)


def test_numbers_that_are_no_rule_are_refused() -> None:
    votes = shares_of(np.ones((1, 3, 3)))
    for grid in ([0.5, 0.7], [0.7, 0.6], [0.9, 1.1], []):
        with pytest.raises(ValueError, match="ascend"):
            levels(votes, PRIORS, grid)
    with pytest.raises(ValueError, match="add up to 1"):
        levels(votes, (0.2, 0.2, 0.2), [0.7])
    with pytest.raises(ValueError, match="n must be at least 1"):
        numbers(*(np.ones((1, 1, 1), np.int64),) * 2, np.ones((1, 1), bool), *(np.ones((1, 1, 1), int),) * 2, 1, 0)


def assert_headline(flows: Flows, sensitivity: Study, scope: Scope, setting: Setting, place: int) -> None:
    """The numbers of one run by this setting are those of `headline` for this scope."""
    ours = sensitivity.at(setting)[place]
    theirs = headline(flows, scope, setting.identifiers)
    n = sensitivity.subjects[place].n
    assert ours.mean_violation[0] == close(theirs.violation[n])
    assert ours.mean_completeness[0] == close(theirs.completeness)
    assert ours.violation[:, 0].tolist() == close([p.violation[n] for p in theirs.per_profile])
    if n == scope.run.samples:
        assert ours.balanced[0] == close(theirs.balanced)
    counts = (ours.flows[0], ours.attributes[0], ours.retained[0])
    assert counts == (theirs.flows, theirs.attributes, theirs.retained)


@pytest.mark.parametrize("identifiers", list(IdentifierRule))
def test_any_setting_gives_the_numbers_of_the_record(sqlite_store: Store, identifiers: IdentifierRule) -> None:
    runs = world(sqlite_store)
    flows = Flows(sqlite_store)
    by_labels = {}
    for against in Labels:
        now = [resolve_scope(sqlite_store, run_id, labels=against) for run_id in runs]
        looser = [resolve_scope(sqlite_store, run_id, labels=against, rule="looser") for run_id in runs]
        sensitivity = study(flows, now, identifiers)
        tried = Setting(0.7, (0.1, 0.2, 0.7), against, identifiers)
        for place in range(len(runs)):
            assert_headline(flows, sensitivity, now[place], sensitivity.base, place)
            assert_headline(flows, sensitivity, looser[place], tried, place)
            # From a study by the other labels and the other rule too: nothing of the base stays behind.
            assert_headline(flows, study(flows, looser, n=1), now[place], sensitivity.base, place)
        by_labels[against] = sensitivity.at(sensitivity.base)[0].flows[0]
    assert by_labels[Labels.DECISIONS] != by_labels[Labels.CONSENSUS]


def test_a_decision_and_a_new_rule_show_at_once(store: Store) -> None:
    runs = world(store)
    flows = Flows(store)
    before = study(flows, [resolve_scope(store, runs[0])])
    person = records(store, before.subjects[0].scope.run.dataset)[0]
    with store.write() as connection:
        for attribute in person.attribute_ids:
            for context in person.context_ids:
                decisions.add(
                    connection,
                    dataset_id=before.subjects[0].scope.run.dataset,
                    attribute=attribute,
                    context=context,
                    annotator="Ada",
                    label=Label.AMBIGUOUS,
                )
    now = resolve_scope(store, runs[0])
    after = study(flows, [now])
    assert after.at(after.base)[0].flows[0] < before.at(before.base)[0].flows[0]
    assert_headline(flows, after, now, after.base, 0)
    alone = replace(after.base, labels=Labels.CONSENSUS)
    assert_headline(flows, after, resolve_scope(store, runs[0], labels="consensus"), alone, 0)


def test_contexts_that_a_run_was_never_asked_decide_nothing(sqlite_store: Store) -> None:
    """One profile fewer contexts than another: what was not planned has votes, and no place in the numbers."""
    runs = world(sqlite_store)
    flows = Flows(sqlite_store)
    before = study(flows, [resolve_scope(sqlite_store, runs[1])])
    person = records(sqlite_store, before.subjects[0].scope.run.dataset)[0]
    with sqlite_store.write() as connection:
        gone = sa.select(response.c.id).where(
            response.c.run == runs[1],
            response.c.profile == person.id,
            response.c.context.in_(person.context_ids[:3]),
        )
        judged = sa.select(judgement.c.id).where(judgement.c.response.in_(gone))
        connection.execute(sa.delete(reveal).where(reveal.c.judgement.in_(judged)))
        connection.execute(sa.delete(judgement).where(judgement.c.response.in_(gone)))
        connection.execute(sa.delete(response).where(response.c.id.in_(gone)))
        work.bump(connection, runs[1])
    scope = resolve_scope(sqlite_store, runs[1])
    after = study(flows, [scope])
    assert after.at(after.base)[0].retained[0] < before.at(before.base)[0].retained[0]
    assert_headline(flows, after, scope, after.base, 0)
    loose = Setting(0.7, (0.1, 0.2, 0.7))
    assert_headline(flows, after, resolve_scope(sqlite_store, runs[1], rule="looser"), loose, 0)


def test_runs_that_do_not_share_their_labels_are_refused(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=2)
    run_id = add_run(sqlite_store, data.id, 1, np.zeros((1, 3, 2), int))
    with pytest.raises(StoreError, match="none yet"):
        study(Flows(sqlite_store), [resolve_scope(sqlite_store, run_id)])
    with pytest.raises(ValueError, match="at least one run"):
        study(Flows(sqlite_store), [])


def test_leaving_a_persona_out_scales_the_others_up() -> None:
    base = Setting(0.8, (0.25, 0.75, 0.0))
    left = base.without(0)
    assert left is not None and left.priors == (0.0, 1.0, 0.0)
    assert base.without(2) == base
    assert left.without(1) is None

"""A label needs a least number of counted votes of each persona: lost votes make no consensus of their own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner
from vote_strategies import priors_, thresholds, votes
from worlds import PERSONAS, add_dataset, add_labels, add_run, ask, records

from cimemories.cli import cli
from cimemories.compare.relabel import levels, shares_of
from cimemories.compare.study import study
from cimemories.evaluation.importing import import_file
from cimemories.exchange import exporting, freezing
from cimemories.exchange.card import dataset_card
from cimemories.extras.sensitivity.choices import setting_of
from cimemories.extras.sensitivity.coverage import TOO_FEW_FLOWS, flow_coverage
from cimemories.flows.arrays import IdentifierRule, flow_arrays
from cimemories.flows.labels import (
    AMBIGUOUS,
    INAPPROPRIATE,
    NECESSARY,
    TOO_FEW,
    TOO_FEW_NAME,
    UNLABELLED,
    VoteCounts,
    consensus,
    consensus_labels,
    paper_rule,
    rule_of,
    vote_counts,
)
from cimemories.labels.matrix import matrix, profile_labels, view
from cimemories.labels.survival import survival
from cimemories.labels.votes import pairs
from cimemories.labels.whatif import what_if
from cimemories.metrics.headline import headline
from cimemories.model import Label
from cimemories.store import decisions, labellings, work
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError, canonical_json, open_store
from cimemories.store.tables import ballot, freeze, rule, vote

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
WESTIN = tuple(p.prior for p in PERSONAS)
BY_KEY = {p.key: p.prior for p in PERSONAS}
LABELS = [[[X, N], [N, X], [A, X]]]


def lose(store: Store, labelling: str, persona: int, draws: int, attribute: int | None = None) -> None:
    """Take the first so many votes of a persona away, on one attribute (its id) or on all."""
    with store.write() as connection:
        ids = list(labellings.personas(connection, labelling))
        own = sa.select(ballot.c.id).where(
            ballot.c.labelling == labelling, ballot.c.persona == ids[persona], ballot.c.draw < draws
        )
        lost = sa.delete(vote).where(vote.c.ballot.in_(own))
        connection.execute(lost if attribute is None else lost.where(vote.c.attribute == attribute))
        work.bump(connection, labelling)


def lossy(store: Store, lost: int = 2) -> tuple[DatasetRow, str]:
    """Six pairs with ten draws, of which the second persona lacks some on the first attribute (two pairs)."""
    data = add_dataset(store, profiles=1, attributes=3, contexts=2)
    labelling = add_labels(store, data.id, LABELS, draws=10)
    lose(store, labelling, 1, lost, records(store, data.id)[0].attribute_ids[0])
    return data, labelling


# ---- the rule


def test_lost_votes_make_no_consensus() -> None:
    """Votes that are inappropriate with probability 0.9 agree the more often, the fewer there are; with a least number
    of votes nothing below it is a label."""
    chance = np.random.default_rng(1)
    pairs, shares = 40_000, {}
    for counted in (10, 5, 2, 1):
        inappropriate = chance.binomial(counted, 0.9, (pairs, 3))
        cast = np.stack([np.zeros_like(inappropriate), inappropriate, counted - inappropriate], axis=-1)
        shares[counted] = float((consensus(cast, WESTIN) == X).mean())
        needed = consensus(cast, WESTIN, least=9)
        assert (needed == TOO_FEW).all() if counted < 9 else (needed == consensus(cast, WESTIN)).all()
    # 0.9 to the power of three times the votes.
    assert shares == pytest.approx({10: 0.042, 5: 0.206, 2: 0.531, 1: 0.729}, abs=0.01)


@given(votes(), priors_, thresholds, st.integers(0, 12), st.integers(0, 12))
def test_a_higher_minimum_only_removes_labels(
    counts: np.ndarray, priors: list, threshold: float, one: int, two: int
) -> None:
    low, high = (consensus(counts, priors, threshold, least) for least in sorted((one, two)))
    assert ((high == low) | (high == TOO_FEW)).all()
    assert ((low == UNLABELLED) == (high == UNLABELLED)).all()
    # Which pairs have enough votes does not depend on what they say.
    swapped = consensus(counts[..., [1, 0, 2]], priors, threshold, max(one, two))
    assert ((swapped == TOO_FEW) == (high == TOO_FEW)).all()


@given(votes(), priors_, thresholds, st.integers(1, 12))
def test_levels_ask_for_as_many_votes_as_the_consensus(
    counts: np.ndarray, priors: list, threshold: float, least: int
) -> None:
    necessary, inappropriate = levels(shares_of(counts), priors, [threshold], least)
    labels = consensus(counts, priors, threshold, least)
    assert (necessary > 0).tolist() == (labels == N).tolist()
    assert (inappropriate > 0).tolist() == (labels == X).tolist()


def test_by_default_one_vote_in_ten_may_be_lost() -> None:
    planned = np.array([1, 2, 5, 9, 10, 19, 20])
    nothing = np.zeros(len(planned), np.int64)
    counts = VoteCounts("l", 0, nothing, nothing, np.zeros((7, 3, 3)), PERSONAS, imported=False, planned=planned)
    assert list(counts.needed(None)) == [1, 2, 5, 9, 9, 18, 18]
    assert counts.needed(4) == 4
    assert replace(counts, imported=True).needed(None) == 0


@pytest.mark.parametrize("draws", [1, 5, 10])
def test_with_all_votes_nothing_changes(sqlite_store: Store, draws: int) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=2)
    labelling = add_labels(sqlite_store, data.id, LABELS, draws=draws)
    counts = vote_counts(sqlite_store, labelling)
    assert counts.planned == draws
    assert consensus_labels(sqlite_store, labelling)["label"].tolist() == consensus(counts.votes, WESTIN).tolist()


def test_a_labelling_that_was_extended_in_part_asks_of_each_pair_for_its_own_draws(store: Store) -> None:
    data = add_dataset(store, profiles=2, attributes=3, contexts=2)
    labelling = add_labels(store, data.id, LABELS * 2, draws=5)
    person = records(store, data.id)[0]
    with store.write() as connection:
        ids = list(labellings.personas(connection, labelling))
        labellings.plan(connection, labelling, [person.id], person.context_ids, ids, 10)
        work.bump(connection, labelling)
    labels = consensus_labels(store, labelling)
    own = labels["attribute"].isin(person.attribute_ids)
    assert (labels["label"][own] == TOO_FEW).all() and (labels["label"][~own] >= A).all()


# ---- where it shows


def test_too_few_votes_are_counted_apart_everywhere(store: Store) -> None:
    data, labelling = lossy(store)
    (record,) = records(store, data.id)
    assert consensus_labels(store, labelling)["label"].tolist() == [TOO_FEW, TOO_FEW, N, X, A, X]
    result = survival(store, labelling)
    assert (result.pairs, result.too_few, result.unlabelled, result.ambiguous) == (4, 2, 0, 1)
    assert result.share == 3 / 4 and result.needed == (9, 9)
    assert result.too_few_text == "2 pairs have too few votes for a label (needed: 9 counted votes of each persona)."
    for frame in result.by.values():
        assert frame["too_few"].sum() == 2 and frame["pairs"].sum() == 4
    labels = matrix(store, labelling, record)
    assert labels.totals[TOO_FEW_NAME] == 2 and labels.totals[None] == 0 and sum(labels.totals.values()) == 6
    assert view(labels).cells.count("~") == 2 and view(labels, labels=(TOO_FEW_NAME,)).matching == 2
    assert profile_labels(store, labelling, record).counts()["~"] == 2
    pair = pairs(store, labelling, record.id, record.context_ids[0], record.attribute_ids[0])[0]
    assert pair.kind == TOO_FEW_NAME and pair.effective is None
    assert pair.explanation == ("The rule asks for 9 counted votes of each persona; pragmatic has 8: too few votes.")
    assert "2 pairs have too few votes for a label" in dataset_card(store, data.name)


def test_one_vote_in_ten_may_be_lost(store: Store) -> None:
    _, labelling = lossy(store, lost=1)
    assert consensus_labels(store, labelling)["label"].tolist() == [X, N, N, X, A, X]
    assert survival(store, labelling).too_few_text == ""


def test_flows_with_too_few_votes_are_in_no_number_and_said(store: Store) -> None:
    data, labelling = lossy(store)
    run = add_run(store, data.id, 2, [[[2, 2], [2, 1], [1, 2]]])
    flows, scope = ask(store, run)
    assert (flow_arrays(flows, scope).labels == TOO_FEW).sum() == 2
    covered = flow_coverage(flows, scope)
    numbers = headline(flows, scope)
    assert numbers.too_few == 2
    assert "2 pairs have too few counted votes for a label: in no number" in numbers.notes
    assert covered.totals[TOO_FEW_FLOWS] == 2 and covered.totals["unlabelled"] == 0 and covered.pairs == 6
    sensitivity = study(flows, [scope])
    (now,), (any_number,) = sensitivity.at(sensitivity.base), sensitivity.at(replace(sensitivity.base, least_votes=1))
    assert now.retained[0] == 0, "the first context has lost its one inappropriate attribute, the second its necessary"
    # A label for each of the two pairs, as if the rule asked for one vote: retained in both contexts.
    assert any_number.retained[0] == 2
    tried = what_if(store, labelling, 1.0, BY_KEY, 8)
    assert {(a, b): n for a, b, n in tried.changes.frame.to_numpy().tolist()} == {
        (TOO_FEW_NAME, "inappropriate"): 1,
        (TOO_FEW_NAME, "necessary"): 1,
    }
    assert (tried.pairs, tried.too_few_before, tried.too_few_after) == (6, 2, 0)
    assert (tried.survival_before, tried.survival_after) == (3 / 4, 5 / 6)


def test_sensitivity_tries_a_least_number_of_votes(sqlite_store: Store) -> None:
    data, _ = lossy(sqlite_store)
    run = add_run(sqlite_store, data.id, 2, [[[2, 2], [2, 1], [1, 2]]])
    flows, scope = ask(sqlite_store, run)
    sensitivity = study(flows, [scope])
    for least, retained in ((None, 0), (9, 0), (8, 2)):
        assert (
            sensitivity.at(setting_of(sensitivity, None, None, IdentifierRule.EXACT, least))[0].retained[0] == retained
        )

    def out(*options: str) -> str:
        done = CliRunner().invoke(cli, ["sensitivity", run, *options, "--workspace", str(sqlite_store.workspace)])
        return done.stdout if done.exception is None else f"{done.exception}"

    tried = json.loads(out("--least-votes", "8", "--json"))["tried"]
    assert tried["setting"]["least_votes"] == 8
    assert (tried["runs"][0]["retained"], tried["runs"][0]["retained_now"]) == (2, 0)
    assert "Tried: a threshold of 100 %, at least 8 votes of each persona" in out("--least-votes", "8")
    assert "the least number of votes must be from 1" in out("--least-votes", "0")


def test_a_decision_goes_before_too_few_votes(store: Store) -> None:
    data, labelling = lossy(store)
    (record,) = records(store, data.id)
    with store.write() as connection:
        decisions.add(
            connection,
            dataset_id=data.id,
            attribute=record.attribute_ids[0],
            context=record.context_ids[0],
            annotator="Ada",
            label=Label.INAPPROPRIATE,
        )
    assert matrix(store, labelling, record).effective[0].tolist() == [X, TOO_FEW]
    assert survival(store, labelling).decisions.unlabelled == 1


# ---- named rules


def save(store: Store, dataset_id: int, least: int | None, *, use: bool = True) -> None:
    with store.write() as connection:
        labellings.add_rule(
            connection, dataset_id, "mine", threshold=1.0, priors=BY_KEY, annotator="Ada", use=use, least_votes=least
        )


def test_a_rule_keeps_its_least_number_of_votes(store: Store) -> None:
    data, labelling = lossy(store)
    save(store, data.id, 8)
    assert consensus_labels(store, labelling)["label"].tolist() == [X, N, N, X, A, X]
    held = rule_of(store, labelling)
    assert held.least_votes == 8 and held.text.endswith("at least 8 votes of each persona")
    assert held.digest != replace(held, least_votes=9).digest != replace(held, least_votes=None).digest
    with store.read() as connection:
        assert labellings.all_rules(connection, data.id)[0].priors == BY_KEY


def test_a_rule_of_before_is_read_as_it_was_written(store: Store) -> None:
    data, labelling = lossy(store)
    save(store, data.id, None)
    with store.read() as connection:
        # What earlier versions wrote: an object of priors and nothing else.
        assert connection.execute(sa.select(rule.c.priors)).scalar_one() == BY_KEY
        (row,) = labellings.all_rules(connection, data.id)
    assert (row.priors, row.least_votes) == (BY_KEY, None)
    assert survival(store, labelling).too_few == 2


@pytest.mark.parametrize("least", [0, -1, 10_001])
def test_a_least_number_that_is_none_is_refused(sqlite_store: Store, least: int) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=1, contexts=1)
    with pytest.raises(StoreError, match="least number of votes must be from 1"):
        save(sqlite_store, data.id, least)


@pytest.mark.parametrize(
    "written", [{"least_votes": "2", "priors": BY_KEY}, {"least_votes": True, "priors": {}}, [], "a"]
)
def test_a_field_of_priors_that_is_none_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        labellings.rule_numbers(written)


@pytest.mark.parametrize("least", [None, 8])
def test_a_folder_brings_the_least_number_of_votes_back(store: Store, tmp_path: Path, least: int | None) -> None:
    data, labelling = lossy(store)
    save(store, data.id, least)
    exporting.export(store, data.name, "huggingface", tmp_path / "b")
    other = open_store(tmp_path / "other")
    there = import_file(other, tmp_path / "b").dataset
    with other.read() as connection:
        (row,) = labellings.all_rules(connection, there.id)
        (brought,) = labellings.all_rows(connection, there.id)
    assert (row.least_votes, row.priors) == (least, BY_KEY)
    assert consensus_labels(other, brought.id)["label"].tolist() == consensus_labels(store, labelling)["label"].tolist()
    other.close()


def test_what_was_frozen_before_keeps_its_labels(store: Store) -> None:
    data, labelling = lossy(store)
    frozen = freezing.freeze(store, data.id, labelling_id=labelling, annotator="Ada")
    assert frozen.rule["least_votes"] is None and rule_of(store, labelling).least_votes is None
    with store.write() as connection:
        before = {name: value for name, value in frozen.rule.items() if name != "least_votes"}
        connection.execute(sa.update(freeze).values(rule=canonical_json(before)))
    assert consensus_labels(store, labelling)["label"].tolist() == [X, N, N, X, A, X]
    assert "frozen before rules asked" in rule_of(store, labelling).note
    assert freezing.present_hash(store, data.id) == frozen.hash
    is_frozen = freezing.frozen(store, data.id)
    assert is_frozen is not None and is_frozen.since == ()


def test_shares_without_counts_are_exempt_and_say_so() -> None:
    shares = np.array([[[0, 1.0, 0]] * 3, [[0, 1.0, 0], [0, 1.0, 0], [0, 0, 0]]])
    counts = VoteCounts("l", 0, np.arange(2), np.zeros(2, np.int64), shares, PERSONAS, imported=True)
    held = replace(paper_rule(PERSONAS), shares=True)
    assert counts.labels(held).tolist() == [X, A]
    assert held.text.endswith("no least number of votes (imported shares have no counts)")


def test_a_pair_with_too_few_votes_has_no_shares_in_a_file(sqlite_store: Store, tmp_path: Path) -> None:
    """Shares say nothing of how many votes they are of: two votes of ten came back as a consensus."""
    data, labelling = lossy(sqlite_store)
    exported = exporting.export(sqlite_store, data.name, "labelled", tmp_path / "labelled.json")
    assert "left out: the shares of 2 pairs with too few votes for a label" in exported.notes
    there = import_file(sqlite_store, tmp_path / "labelled.json", "again").dataset
    with sqlite_store.read() as connection:
        (again,) = labellings.all_rows(connection, there.id)
    here = [code for code in consensus_labels(sqlite_store, labelling)["label"].tolist() if code != TOO_FEW]
    assert consensus_labels(sqlite_store, again.id)["label"].tolist() == here == [N, X, A, X]

"""Survival, dissent, discarded contexts, Table 2 and the agreement of labellings: examples by hand, and properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner
from vote_strategies import priors_, thresholds, votes
from worlds import PERSONAS, add_dataset, add_labels, records

from cimemories.agreement.models import ORDER, agreement, agreements, label_confusion
from cimemories.agreement.statistics import cohen_kappa
from cimemories.cli import cli
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY, UNLABELLED, consensus, custom_rule, paper_rule
from cimemories.labels import survival as labels_survival
from cimemories.labels.survival import contexts, dissent, survival, table2
from cimemories.labels.votes import NO_SPHERE, GroupBy
from cimemories.model import Label, Persona
from cimemories.store import decisions, labellings, work
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import ballot, imported_vote

X, N, A, U = INAPPROPRIATE, NECESSARY, AMBIGUOUS, UNLABELLED
KEYS = [p.key for p in PERSONAS]
# Two profiles, three attributes (domains finance, relationships, employment), two contexts (no sphere, housing).
LABELS = [[[X, N], [A, X], [N, U]], [[X, X], [X, A], [A, A]]]


def decide(store: Store, dataset_id: int, attribute: int, context: int, label: Label) -> None:
    with store.write() as connection:
        decisions.add(
            connection, dataset_id=dataset_id, attribute=attribute, context=context, annotator="Ada", label=label
        )


def shares(frame: object, *columns: str) -> dict[str, tuple]:
    return {row["name"]: tuple(row[c] for c in columns) for row in frame.to_dict("records")}  # type: ignore[attr-defined]


def test_survival_by_hand(store: Store) -> None:
    data = add_dataset(store, profiles=2, attributes=3, contexts=2)
    result = survival(store, add_labels(store, data.id, LABELS))
    assert (result.planned, result.pairs, result.necessary, result.inappropriate, result.ambiguous) == (12, 11, 2, 5, 4)
    assert result.share == pytest.approx(7 / 11)
    assert shares(result.by[GroupBy.DOMAIN], "pairs", "necessary", "ambiguous", "inappropriate", "survival") == {
        "employment": (3, 1, 2, 0, pytest.approx(1 / 3)),
        "finance": (4, 1, 0, 3, 1.0),
        "relationships": (4, 0, 2, 2, 0.5),
    }
    assert shares(result.by[GroupBy.SPHERE], "pairs", "survival") == {
        "housing": (5, pytest.approx(3 / 5)),
        NO_SPHERE: (6, pytest.approx(4 / 6)),
    }
    assert shares(result.by[GroupBy.PROFILE], "pairs", "survival") == {"Person 0": (5, 0.8), "Person 1": (6, 0.5)}
    assert shares(result.by[GroupBy.CONTEXT], "pairs") == {"Recipient 0: Task 0": (6,), "Recipient 1: Task 1": (5,)}
    assert (result.decisions.pairs, result.imported, result.rule.is_paper) == (0, False, True)


def test_people_are_counted_apart_and_change_no_share(store: Store) -> None:
    data = add_dataset(store, profiles=2, attributes=3, contexts=2)
    labelling = add_labels(store, data.id, LABELS)
    before = survival(store, labelling)
    first, second = records(store, data.id)
    places = first.context_ids
    decide(store, data.id, first.attribute_ids[0], places[0], Label.INAPPROPRIATE)  # X: agrees
    decide(store, data.id, first.attribute_ids[1], places[0], Label.NECESSARY)  # A: settled
    decide(store, data.id, second.attribute_ids[0], places[0], Label.NECESSARY)  # X: against
    decide(store, data.id, second.attribute_ids[0], places[1], Label.AMBIGUOUS)  # X: taken out, against
    decide(store, data.id, first.attribute_ids[2], places[1], Label.INAPPROPRIATE)  # nobody voted
    result = survival(store, labelling)
    assert result.decisions == labels_survival.Decided(pairs=5, agree=1, settled=1, against=2, unlabelled=1)
    assert (result.share, result.pairs) == (before.share, before.pairs)
    by_context = {(r["user"], r["context"]): r for r in contexts(store, labelling).frame.to_dict("records")}
    assert by_context["Person 1", places[0]]["necessary"] == 1  # by the person alone
    assert by_context["Person 0", places[1]]["inappropriate"] == 2  # one of them never voted on


def test_contexts_are_discarded_for_their_reason(store: Store) -> None:
    data = add_dataset(store, profiles=2, attributes=3, contexts=3)
    first = [[X, N, A], [A, N, A], [N, U, U]]
    second = [[X, U, X], [X, U, N], [A, U, N]]
    labelling = add_labels(store, data.id, [first, second])
    result = contexts(store, labelling)
    rows = [(r["user"][-1], r["name"][10], r["reason"]) for r in result.frame.to_dict("records")]
    assert rows == [
        ("0", "0", ""),
        ("0", "1", labels_survival.NO_INAPPROPRIATE),
        ("0", "2", labels_survival.NEITHER),
        ("1", "0", labels_survival.NO_NECESSARY),
        ("1", "2", ""),  # context 1 of the second profile has no label at all: neither retained nor discarded
    ]
    assert (result.retained, result.unlabelled) == (2, 1)
    assert result.discarded == {
        labels_survival.NO_NECESSARY: 1,
        labels_survival.NO_INAPPROPRIATE: 1,
        labels_survival.NEITHER: 1,
    }
    lines = {line.name: line for line in table2(store, labelling)}
    kept = lines["Contexts per profile, retained"]
    assert (kept.mean, kept.sd, kept.over) == (1.0, 0.0, 2)
    assert (lines["Contexts per profile, all"].mean, lines["Attributes per profile"].mean) == (3.0, 3.0)
    necessary, inappropriate = lines["Necessary attributes per context"], lines["Inappropriate attributes per context"]
    assert (necessary.mean, necessary.sd, necessary.over) == (1.5, pytest.approx(math.sqrt(0.5)), 2)
    assert (inappropriate.mean, inappropriate.sd) == (1.0, 0.0)


ALL_N, ALL_X, ALL_A, NONE = (10, 0, 0), (0, 10, 0), (0, 0, 10), (0, 0, 0)


@pytest.mark.parametrize(
    ("ballots", "who", "how"),
    [
        ((ALL_N, ALL_N, ALL_X), "unconcerned", labels_survival.OPPOSITE),
        ((ALL_X, ALL_N, ALL_N), "fundamentalist", labels_survival.OPPOSITE),
        ((ALL_N, (0, 4, 6), ALL_N), "pragmatic", labels_survival.ABSTAINS),
        ((ALL_X, (1, 9, 0), ALL_X), "pragmatic", labels_survival.DIVIDED),
        ((ALL_X, (4, 3, 3), ALL_X), "pragmatic", labels_survival.DIVIDED),
        ((ALL_X, (5, 5, 0), ALL_X), "pragmatic", labels_survival.DIVIDED),
        ((ALL_X, ALL_X, NONE), "unconcerned", labels_survival.NO_VOTE),
        ((ALL_A, ALL_A, ALL_A), labels_survival.ALL_ABSTAIN, ""),
        ((ALL_A, ALL_A, NONE), labels_survival.ALL_ABSTAIN, ""),
        ((ALL_N, ALL_A, ALL_A), labels_survival.SEVERAL, ""),
        ((ALL_N, ALL_X, ALL_A), labels_survival.SEVERAL, ""),
        (((9, 1, 0), (9, 1, 0), ALL_N), labels_survival.SEVERAL, ""),
    ],
)
def test_who_dissents_by_hand(ballots: tuple, who: str, how: str) -> None:
    rule = paper_rule(PERSONAS)
    counts = np.array([ballots])
    labels = consensus(counts, rule.priors)
    assert labels.tolist() == [A]
    [row] = dissent(counts, rule, labels).to_dict("records")
    assert row == {"who": who, "how": how, "pairs": 1, "share": 1.0}


def test_with_a_lower_threshold_either_of_two_may_be_the_one_too_many() -> None:
    rule = custom_rule(PERSONAS, "r", 0.8, dict(zip(KEYS, (0.4, 0.3, 0.3), strict=True)))
    counts = np.array([[(10, 0, 0), (6, 4, 0), (6, 4, 0)]])  # mixture 0.76; without one of the last two 0.83
    labels = consensus(counts, rule.priors, rule.threshold)
    assert labels.tolist() == [A]
    assert dissent(counts, rule, labels)["who"].tolist() == [labels_survival.ANY_OF_SEVERAL]


def test_a_persona_without_weight_is_not_asked_who_dissents() -> None:
    rule = custom_rule(PERSONAS, "r", 1.0, dict(zip(KEYS, (0.5, 0.5, 0.0), strict=True)))
    counts = np.array([[ALL_N, (9, 0, 1), ALL_X]])
    labels = consensus(counts, rule.priors)
    assert dissent(counts, rule, labels)[["who", "how"]].to_numpy().tolist() == [["pragmatic", labels_survival.DIVIDED]]


@given(votes(), thresholds, priors_)
def test_dissent_adds_up_to_the_ambiguous_pairs(counts: np.ndarray, threshold: float, priors: list) -> None:
    rule = custom_rule(PERSONAS, "r", threshold, dict(zip(KEYS, priors, strict=True)))
    labels = consensus(counts, priors, threshold)
    frame = dissent(counts, rule, labels)
    assert frame["pairs"].sum() == (labels == A).sum()
    assert frame.empty or frame["share"].sum() == pytest.approx(1)


def test_imported_shares_are_labelled_like_votes_and_marked(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=1)
    person = records(store, data.id)[0]
    given_ = [
        [(1.0, 0.0, 0.0)] * 3,
        [(0.0, 1.0, 0.0), (0.0, 0.9, 0.1), (0.0, 1.0, 0.0)],
        [(0.0, 1.0, 0.0), (0.0, 1.0, 0.0), (1 / 3, 2 / 3, 0.0)],
    ]
    with store.write() as connection:
        ids = labellings.personas_of(connection, "test", PERSONAS)
        labelling_id = labellings.add(
            connection,
            identity="a file",
            dataset_id=data.id,
            model="gpt-5",
            endpoint=labellings.IMPORTED,
            simulated=False,
            pack="test",
            draws=10,
            manifest={"personas": ids},
        )
        for attribute, by_persona in zip(person.attribute_ids, given_, strict=True):
            for persona, (n, x, a) in zip(ids, by_persona, strict=True):
                row = {"attribute": attribute, "context": person.context_ids[0], "persona": persona}
                values = {"labelling": labelling_id, "necessary": n, "inappropriate": x, "abstain": a}
                connection.execute(sa.insert(imported_vote).values(**row, **values))
        work.finish(connection, labelling_id, "finished")  # type: ignore[arg-type]
    result = survival(store, labelling_id)
    assert result.imported
    assert (result.necessary, result.inappropriate, result.ambiguous) == (1, 0, 2)
    assert sorted(result.dissent["who"]) == ["pragmatic", "unconcerned"]
    with store.write() as connection:
        labellings.add_rule(
            connection,
            data.id,
            "softer",
            threshold=0.95,
            priors={p.key: p.prior for p in PERSONAS},
            annotator="Ada",
            use=True,
        )
    assert survival(store, labelling_id).inappropriate == 1  # 0.966 reaches it; 0.936 does not


def test_nothing_labelled_is_no_crash_and_no_zero(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=2, contexts=1)
    labelling = add_labels(sqlite_store, data.id, {})
    result = survival(sqlite_store, labelling)
    assert math.isnan(result.share) and result.pairs == 0 and result.dissent.empty
    assert contexts(sqlite_store, labelling).frame.empty
    lines = {line.name: line for line in table2(sqlite_store, labelling)}
    assert math.isnan(lines["Necessary attributes per context"].mean)
    assert math.isnan(lines["Contexts per profile, retained"].mean)


def test_profiles_without_a_label_are_left_out_of_table_2_and_told(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=3, attributes=2, contexts=2)
    labels = [[[NECESSARY] * 2, [INAPPROPRIATE] * 2], *[[[UNLABELLED] * 2] * 2] * 2]
    labelling_id = add_labels(sqlite_store, data.id, labels)
    with sqlite_store.write() as connection:
        first = sa.select(sa.func.min(ballot.c.profile)).where(ballot.c.labelling == labelling_id).scalar_subquery()
        others = sa.delete(ballot).where(ballot.c.labelling == labelling_id, ballot.c.profile != first)
        connection.execute(others)
    lines = {line.name: line for line in table2(sqlite_store, labelling_id)}
    assert (lines["Profiles"].mean, lines["Contexts per profile, retained"].mean) == (1, 2)
    told = f"2 of 3 profiles have no label by {labelling_id}"
    place = ["--workspace", str(sqlite_store.workspace)]
    plan = ["run", "-d", data.name, "-m", "sim-careful", "--base-url", "simulator", "--plan"]
    for command in (["consensus", "-d", data.name], plan, ["datasets", "freeze", data.name, "--by", "Ada"]):
        result = CliRunner().invoke(cli, [*command, *place])
        assert result.exit_code == 0 and told in " ".join(result.output.split()), (command, result.output)


def test_kappa_of_a_known_table() -> None:
    # Cohen's own kind of example: 20 + 15 on the diagonal of 50, expected 0.5.
    assert cohen_kappa(np.array([[20, 5], [10, 15]])) == pytest.approx(0.4)
    assert cohen_kappa(np.diag([3, 4, 5])) == 1
    assert all(math.isnan(cohen_kappa(np.array(table))) for table in ([[7, 0], [0, 0]], [[0, 0], [0, 0]]))


codes = st.lists(st.tuples(st.sampled_from(ORDER), st.sampled_from(ORDER)), min_size=1, max_size=60)


@given(codes)
def test_agreement_is_symmetric_bounded_and_1_with_itself(pairs: list[tuple[int, int]]) -> None:
    first, second = np.array(pairs).T
    table = label_confusion(first, second)
    assert (label_confusion(second, first) == table.T).all() and table.sum() == len(pairs)
    there, back = cohen_kappa(table), cohen_kappa(table.T)
    assert there == pytest.approx(back, nan_ok=True)
    assert math.isnan(there) or -1 <= there <= 1 + 1e-12
    own = cohen_kappa(label_confusion(first, first))
    assert own == pytest.approx(1) if len(set(first.tolist())) > 1 else math.isnan(own)


def test_labellings_side_by_side_by_hand(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=2)
    one = add_labels(store, data.id, [[[X, N], [A, X], [N, U]]], name="one")
    two = add_labels(store, data.id, [[[X, X], [A, A], [N, N]]], name="two")
    result = agreement(store, one, two)
    assert (result.pairs, result.same, result.only_first, result.only_second) == (5, 3, 0, 1)
    words = ["necessary", "inappropriate", "ambiguous"]
    assert result.confusion.frame[words].to_numpy().tolist() == [[1, 1, 0], [0, 1, 1], [0, 0, 1]]  # N, X, ? by N, X, ?
    # p = 3/5; e = (2*1 + 2*2 + 1*2) / 25 = 8/25
    assert result.kappa == pytest.approx((0.6 - 0.32) / (1 - 0.32))
    assert result.by_domain.frame[["domain", "pairs", "same"]].to_numpy().tolist() == [  # least first
        ["finance", 2, 1],
        ["relationships", 2, 1],
        ["employment", 1, 1],
    ]
    person = records(store, data.id)[0]
    rows = result.differing.frame[["attribute", "context", "first", "second", "opposite"]].to_numpy().tolist()
    assert rows == [  # the opposite ones first
        [person.attribute_ids[0], person.context_ids[1], "necessary", "inappropriate", True],
        [person.attribute_ids[1], person.context_ids[1], "inappropriate", "ambiguous", False],
    ]
    back = agreement(store, two, one)
    assert (back.share, back.kappa, back.only_first) == (result.share, pytest.approx(result.kappa), 1)
    own = agreement(store, one, one)
    assert (own.share, own.kappa, len(own.differing.frame)) == (1, pytest.approx(1), 0)
    assert [(a.first, a.second) for a in agreements(store, data.id).compared] == [(one, two)]


def test_labellings_of_different_datasets_are_not_compared(sqlite_store: Store) -> None:
    ids = []
    for name in ("one", "two"):
        data = add_dataset(sqlite_store, profiles=1, attributes=1, contexts=1, name=name)
        ids.append(add_labels(sqlite_store, data.id, [[[X]]]))
    with pytest.raises(StoreError, match="different datasets"):
        agreement(sqlite_store, *ids)
    with pytest.raises(StoreError, match="no labelling"):
        agreement(sqlite_store, ids[0], "labelling-gone")


def test_packs_of_one_persona_dissent_with_themselves() -> None:
    alone = (Persona("only", "The only one", 1.0, "You decide."),)
    counts = np.array([[(1, 1, 0)], [(0, 0, 2)]])
    rule = paper_rule(alone)
    dissents = dissent(counts, rule, consensus(counts, rule.priors))
    assert set(dissents["who"]) == {labels_survival.SEVERAL, labels_survival.ALL_ABSTAIN}

"""The matrix of a profile against brute force from the votes and decisions themselves, and what a filter leaves."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import PERSONAS, add_call, add_dataset, add_labels, add_profiles, make_profile, records

from cimemories.flows.labels import (
    AMBIGUOUS,
    CODES,
    INAPPROPRIATE,
    NECESSARY,
    TOO_FEW,
    TOO_FEW_NAME,
    UNLABELLED,
    consensus_labels,
)
from cimemories.labels.matrix import Differs, Matrix, differing, matrix, row_order, view
from cimemories.labels.votes import pairs
from cimemories.model import Attribute, Context, Label, Profile, Verdict
from cimemories.store import decisions, labellings, work
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store, StoreError, open_store

ATTRIBUTES, CONTEXTS, DRAWS = 3, 2, 2
GLYPHS = {NECESSARY: "N", INAPPROPRIATE: "I", AMBIGUOUS: "U", UNLABELLED: "-"}
Votes = dict[tuple[int, int, int, int], Verdict | None]  # attribute, context, persona, draw

verdicts = st.sampled_from([*Verdict, None, Verdict.INAPPROPRIATE, Verdict.INAPPROPRIATE])
ballots = st.lists(
    verdicts,
    min_size=ATTRIBUTES * CONTEXTS * len(PERSONAS) * DRAWS,
    max_size=ATTRIBUTES * CONTEXTS * len(PERSONAS) * DRAWS,
)
choices = st.lists(
    st.tuples(
        st.integers(0, ATTRIBUTES - 1),
        st.integers(0, CONTEXTS - 1),
        st.sampled_from("AB"),
        st.sampled_from([*Label, None]),
    ),
    max_size=6,
)
numbers = itertools.count()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return open_store(tmp_path_factory.mktemp("matrix") / "workspace")


def vote(store: Store, record: ProfileRecord, votes: Votes) -> str:
    """A labelling of exactly these votes."""
    with store.write() as connection:
        ids = labellings.personas_of(connection, "test", PERSONAS)
        labelling = labellings.add(
            connection,
            identity=f"votes of {record.id}",
            dataset_id=record.dataset,
            model="m",
            endpoint="http://x",
            simulated=False,
            pack="test",
            draws=DRAWS,
            manifest={"personas": ids},
        )
        labellings.plan(connection, labelling, [record.id], record.context_ids, ids, DRAWS)
        key = add_call(connection, f"vote for {labelling}", "label")
        for group in labellings.owed(connection, labelling, record.id):
            c, p = record.context_ids.index(group.context), ids.index(group.persona)
            for draw, ballot in group.ballots.items():
                cast = [(record.attribute_ids[a], votes[a, c, p, draw]) for a in range(ATTRIBUTES)]
                counted = [(a, v) for a, v in cast if v is not None]
                labellings.settle(connection, [labellings.Settled(ballot, "ok", None, key, counted)])
        work.bump(connection, labelling)
    return labelling


def by_hand(votes: Votes, a: int, c: int) -> tuple[int, bool]:
    """The paper's rule on one pair, read out loud: its label, and whether the counted votes are not all alike."""
    heard = [[votes[a, c, p, d] for d in range(DRAWS)] for p in range(len(PERSONAS))]
    counted = [[v for v in persona if v not in (None, Verdict.CONFLICT)] for persona in heard]
    distinct = set().union(*counted)
    if not distinct:
        return UNLABELLED, False
    # Of fewer than ten draws none may be lost.
    if any(len(persona) < DRAWS for persona in counted):
        return TOO_FEW, len(distinct) > 1
    if len(distinct) > 1:
        return AMBIGUOUS, True
    (only,) = distinct
    return {Verdict.NECESSARY: NECESSARY, Verdict.INAPPROPRIATE: INAPPROPRIATE}.get(only, AMBIGUOUS), False


def standing(decided: Sequence[tuple[int, int, str, Label | None]], a: int, c: int) -> Label | None:
    """The newest decision that its own annotator has neither replaced nor taken back."""
    last: dict[str, tuple[int, Label | None]] = {}
    for n, (row, column, who, label) in enumerate(decided):
        if (row, column) == (a, c):
            last[who] = (n, label)
    stand = [entry for entry in last.values() if entry[1] is not None]
    return max(stand)[1] if stand else None


@given(cast=ballots, decided=choices)
def test_the_matrix_is_what_votes_and_decisions_say(
    shared: Store, cast: list[Verdict | None], decided: list[tuple[int, int, str, Label | None]]
) -> None:
    data = add_dataset(shared, 1, ATTRIBUTES, CONTEXTS, name=f"world {next(numbers)}")
    (record,) = records(shared, data.id)
    where = itertools.product(range(ATTRIBUTES), range(CONTEXTS), range(len(PERSONAS)), range(DRAWS))
    votes = dict(zip(where, cast, strict=True))
    labelling = vote(shared, record, votes)
    with shared.write() as connection:
        for a, c, who, label in decided:
            decisions.add(
                connection,
                dataset_id=data.id,
                attribute=record.attribute_ids[a],
                context=record.context_ids[c],
                annotator=who,
                label=label,
            )
    label_matrix = matrix(shared, labelling, record)
    dissents, changed = (
        differing(shared, label_matrix, labelling, kind) for kind in (Differs.DISSENT, Differs.CHANGED)
    )
    for a, c in itertools.product(range(ATTRIBUTES), range(CONTEXTS)):
        label, dissent = by_hand(votes, a, c)
        decision = standing(decided, a, c)
        effective = label if decision is None else CODES[decision]
        assert (label_matrix.consensus[a, c], label_matrix.effective[a, c]) == (label, effective)
        assert label_matrix.decided[a, c] == (decision is not None)
        assert dissents[a, c] == dissent
        assert changed[a, c] == (decision is not None and effective != label)
        pair = pairs(shared, labelling, record.id, record.context_ids[c], record.attribute_ids[a])[0]
        assert {None: UNLABELLED, TOO_FEW_NAME: TOO_FEW, **CODES}[pair.kind] == effective
    check_counts(label_matrix)
    frame = consensus_labels(shared, labelling)
    assert len(frame) == (label_matrix.consensus != UNLABELLED).sum()


def check_counts(label_matrix: Matrix) -> None:
    """Summaries against loops over the cells."""
    for a in range(ATTRIBUTES):
        row = label_matrix.effective[a].tolist()
        assert label_matrix.attribute_counts[a].tolist() == [
            row.count(k) for k in (NECESSARY, INAPPROPRIATE, AMBIGUOUS)
        ]
    for c in range(CONTEXTS):
        column = label_matrix.effective[:, c].tolist()
        assert label_matrix.context_counts[c].tolist() == [
            column.count(k) for k in (NECESSARY, INAPPROPRIATE, AMBIGUOUS)
        ]
        assert label_matrix.retained[c] == (NECESSARY in column and INAPPROPRIATE in column)
    assert sum(label_matrix.totals.values()) == label_matrix.effective.size


def mixed_profile(domains: Sequence[str], events: Sequence[str], spheres: Sequence[str | None]) -> Profile:
    attributes = [Attribute(f"k{i}", i, d, e, f"s{i}") for i, (d, e) in enumerate(zip(domains, events, strict=True))]
    contexts = [Context(f"t{j}", f"r{j}", sphere) for j, sphere in enumerate(spheres)]
    return Profile("P", "F", "A", 40, tuple(attributes), tuple(contexts))


@given(data=st.data())
def test_a_view_holds_each_asked_row_once_in_unbroken_groups(shared: Store, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 6))
    domains = data.draw(st.lists(st.sampled_from(["legal", "finance", "general", "odd"]), min_size=size, max_size=size))
    events = data.draw(st.lists(st.sampled_from(["e", "f"]), min_size=size, max_size=size))
    spheres = data.draw(st.lists(st.sampled_from(["health", "legal", None]), min_size=1, max_size=5))
    dataset = add_profiles(shared, [mixed_profile(domains, events, spheres)], f"groups {next(numbers)}")
    codes = data.draw(
        st.lists(st.sampled_from(list(GLYPHS)), min_size=size * len(spheres), max_size=size * len(spheres))
    )
    cells = np.array(codes).reshape(size, len(spheres))
    labelling = add_labels(shared, dataset.id, cells[None])
    (record,) = records(shared, dataset.id)
    label_matrix = matrix(shared, labelling, record)
    domain, sphere = data.draw(st.sampled_from([None, *domains])), data.draw(st.sampled_from([None, "", "legal"]))
    labels = data.draw(st.lists(st.sampled_from([*Label, None]), unique=True))
    seen = view(label_matrix, domain=domain, sphere=sphere, labels=labels)

    assert sorted(seen.rows) == [i for i in range(size) if domain in (None, domains[i])]
    assert sorted(seen.columns) == [j for j in range(len(spheres)) if sphere in (None, spheres[j] or "")]
    shown = cells[np.ix_(seen.rows, seen.columns)]
    assert seen.cells == "".join(GLYPHS[code] for code in shown.reshape(-1).tolist())
    wanted = {UNLABELLED if label is None else CODES[label] for label in labels}
    assert [bit == "1" for bit in seen.matches] == [not labels or code in wanted for code in shown.reshape(-1).tolist()]
    assert seen.matching == seen.matches.count("1")
    for groups, names in (
        (seen.blocks, [(domains[i], events[i]) for i in seen.rows]),
        (seen.spheres, [(spheres[j] or "", "") for j in seen.columns]),
    ):
        assert [name for g in groups for name in [(g.name, g.note)] * (g.end - g.start)] == names
        assert len({(g.name, g.note) for g in groups}) == len(groups)
    assert sum(sum(g.counts) for g in seen.blocks) == sum(code != UNLABELLED for code in shown.reshape(-1).tolist())


def test_rows_stand_in_the_papers_order_and_the_general_part_first() -> None:
    domains = ["odd", "legal", "finance", "general", "finance"]
    attributes = mixed_profile(domains, ["b", "b", "b", "general", "a"], []).attributes
    assert [attributes[i].domain for i in row_order(attributes)] == ["general", "finance", "finance", "legal", "odd"]
    assert [i for i in row_order(attributes) if domains[i] == "finance"] == [2, 4]  # 'b' is mentioned first


def test_without_a_labelling_only_decisions_are_labels(store: Store) -> None:
    data = add_dataset(store, 1, 2, 2)
    (record,) = records(store, data.id)
    with store.write() as connection:
        decisions.add(
            connection,
            dataset_id=data.id,
            attribute=record.attribute_ids[1],
            context=record.context_ids[0],
            annotator="Ada",
            label=Label.NECESSARY,
        )
    label_matrix = matrix(store, None, record)
    assert label_matrix.effective.tolist() == [[UNLABELLED, UNLABELLED], [NECESSARY, UNLABELLED]]
    assert not differing(store, label_matrix, None, Differs.DISSENT).any()
    with pytest.raises(StoreError):
        matrix(store, "labelling-gone", record)


def test_another_profiles_labels_do_not_leak_in(store: Store) -> None:
    data = add_dataset(store, 2, 2, 1)
    labelling = add_labels(store, data.id, [[[NECESSARY], [INAPPROPRIATE]], [[INAPPROPRIATE], [UNLABELLED]]])
    first, second = records(store, data.id)
    assert matrix(store, labelling, first).effective.tolist() == [[NECESSARY], [INAPPROPRIATE]]
    assert matrix(store, labelling, second).effective.tolist() == [[INAPPROPRIATE], [UNLABELLED]]


def test_a_profile_without_contexts_is_an_empty_matrix(store: Store, tmp_path: Path) -> None:
    data = add_profiles(store, [make_profile(0, 2, 0)])
    (record,) = records(store, data.id)
    label_matrix = matrix(store, None, record)
    assert label_matrix.effective.shape == (2, 0)
    assert view(label_matrix).cells == ""
    assert label_matrix.retained.tolist() == []

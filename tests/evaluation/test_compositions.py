"""What an assistant holds: which attributes, in which order, in which contexts, for every composition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import make_profile

from cimemories.evaluation.compositions import CompositionError, Kind, compose, read_composition, restrict, seeded_order
from cimemories.model import Label
from cimemories.store.datasets import ProfileRecord

N, X, A = Label.NECESSARY, Label.INAPPROPRIATE, Label.AMBIGUOUS
CONTEXTS = (7, 8)


def record(attributes: int, ordinal: int = 0, keys: tuple[str, ...] = ()) -> ProfileRecord:
    profile = make_profile(ordinal, attributes, len(CONTEXTS), keys)
    return ProfileRecord(1, 1, ordinal, profile, tuple(range(100, 100 + attributes)), CONTEXTS)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[ProfileRecord, dict[tuple[int, int], Label]]:
    person = record(draw(st.integers(1, 12)), draw(st.integers(0, 3)))
    labels = {
        (a, c): label
        for a in person.attribute_ids
        for c in CONTEXTS
        if (label := draw(st.sampled_from([N, X, A, None]))) is not None
    }
    return person, labels


@given(worlds(), st.integers(0, 14), st.sampled_from(["fixed", "shuffled"]), st.integers(0, 5))
def test_a_memory_by_labels_holds_all_of_one_kind_and_so_many_of_the_other(
    world: tuple[ProfileRecord, dict[tuple[int, int], Label]], number: int, order: str, seed: int
) -> None:
    person, labels = world
    for whole, other, kind in ((N, X, "necessary"), (X, N, "inappropriate")):
        memories = compose(read_composition(f"{kind}+{number}", order, seed), person, labels)
        more = compose(read_composition(f"{kind}+{number + 1}", order, seed), person, labels)
        for context in CONTEXTS:
            of = {
                label: {i for i, a in enumerate(person.attribute_ids) if labels.get((a, context)) is label}
                for label in (N, X, A)
            }
            if not of[N] or not of[X]:
                assert context not in memories
                continue
            chosen = set(memories[context])
            assert len(chosen) == len(memories[context])
            assert of[whole] <= chosen
            assert len(chosen & of[other]) == min(number, len(of[other]))
            assert chosen <= of[whole] | of[other]
            assert chosen <= set(more[context])  # a larger k only adds
            places = seeded_order(person, seed)
            wanted = sorted(chosen) if order == "fixed" else sorted(chosen, key=places.index)
            assert list(memories[context]) == wanted


@given(st.integers(1, 12), st.integers(1, 14), st.integers(0, 5))
def test_a_random_memory_is_one_in_all_contexts_and_a_part_of_the_larger_one(size: int, number: int, seed: int) -> None:
    person = record(size)
    memories = compose(read_composition(f"random-{number}", seed=seed), person)
    assert set(memories) == set(CONTEXTS) and memories[7] == memories[8]
    assert len(set(memories[7])) == min(number, size)
    assert set(memories[7]) <= set(compose(read_composition(f"random-{number + 1}", seed=seed), person)[7])


def test_seeds_and_people_differ_and_the_same_seed_repeats() -> None:
    person, other = record(12), record(12, ordinal=1)
    orders = [seeded_order(person, seed) for seed in range(5)]
    assert seeded_order(person, 0) == orders[0]
    assert len({tuple(order) for order in orders}) == 5
    assert seeded_order(other, 0) != orders[0]


def test_identifiers_that_are_not_necessary_are_left_out() -> None:
    person = record(4, keys=("name",))
    labels = {(100, 7): X, (101, 7): X, (102, 7): N, (103, 7): X}
    assert compose(read_composition("necessary+9"), person, labels)[7] == (1, 2, 3)
    assert compose(read_composition("inappropriate+1"), person, labels)[7] == (1, 2, 3)
    labels[100, 7] = N
    assert compose(read_composition("necessary+0"), person, labels)[7] == (0, 2)


@pytest.mark.parametrize("text", ["full", "necessary+0", "necessary+20", "inappropriate+5", "random-50"])
def test_a_label_names_its_composition(text: str) -> None:
    assert read_composition(text).label == text


@pytest.mark.parametrize("text", ["", "all", "necessary", "necessary-3", "random-0", "random+5", "necessary+x"])
def test_what_names_none_is_refused(text: str) -> None:
    with pytest.raises(CompositionError):
        read_composition(text)


def test_without_labels_it_says_what_to_do() -> None:
    with pytest.raises(CompositionError, match="cimemories label"):
        compose(read_composition("necessary+2"), record(3), None)
    assert read_composition("necessary+2").kind == Kind.NECESSARY


def test_a_part_of_a_profile_keeps_ids_and_attributes_together() -> None:
    person = record(5)
    some = restrict(person, (103, 101))
    assert [a.key for a in some.profile.attributes] == ["fact_3", "fact_1"]
    assert some.attribute_ids == (103, 101)
    with pytest.raises(KeyError):
        restrict(person, (99,))


@given(worlds(), st.integers(1, 8), st.integers(0, 5))
def test_a_memory_of_the_authors_code_holds_what_has_no_clear_label_too(
    world: tuple[ProfileRecord, dict[tuple[int, int], Label]], number: int, seed: int
) -> None:
    person, labels = world
    for kept, pool, label in (({N}, {X}, "all_share+"), ({X}, {N}, "all_not_share+"), (set(), {N, X}, "iid-")):
        memories = compose(read_composition(f"{label}{number}", seed=seed), person, labels)
        for context in CONTEXTS:
            of = {i: labels.get((a, context)) for i, a in enumerate(person.attribute_ids)}
            sampled_from = {i for i in of if of[i] in pool}
            if not {N, X} <= set(of.values()) or len(sampled_from) < number:
                assert context not in memories
                continue
            chosen = set(memories[context])
            assert list(memories[context]) == sorted(chosen)
            assert {i for i in of if of[i] in kept or of[i] not in (N, X)} <= chosen
            assert len(chosen & sampled_from) == number


def test_the_authors_memories_are_drawn_anew_at_each_number_and_in_each_context() -> None:
    person = record(60)
    labels = {(a, c): N if a == 100 else X for a in person.attribute_ids for c in CONTEXTS}
    ours, theirs = (
        [compose(read_composition(f"{kind}+{k}"), person, labels) for k in (10, 20)]
        for kind in ("necessary", "all_share")
    )
    assert set(ours[0][7]) < set(ours[1][7]) and ours[0][7] == ours[0][8]
    assert not set(theirs[0][7]) < set(theirs[1][7]) and theirs[0][7] != theirs[0][8]
    assert theirs == [compose(read_composition(f"all_share+{k}"), person, labels) for k in (10, 20)]

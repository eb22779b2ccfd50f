"""What people say is counted once, as they last said it for themselves; figures equal the plain definitions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score
from worlds import add_dataset, add_labels, records

from cimemories.agreement import people, statistics
from cimemories.agreement.models import draws_agreement, majorities
from cimemories.agreement.people import answered, cell_pairs, people_agreement
from cimemories.agreement.statistics import krippendorff_alpha
from cimemories.flows.labels import AMBIGUOUS, CODES, INAPPROPRIATE, NECESSARY, UNLABELLED
from cimemories.labels.votes import GroupBy
from cimemories.model import Label
from cimemories.store import audits, decisions
from cimemories.store.audits import SliceItem
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Store, StoreError

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
NEC, INA, AMB = Label.NECESSARY, Label.INAPPROPRIATE, Label.AMBIGUOUS
LABELS = [[[X, X, N], [X, A, X], [N, N, A], [UNLABELLED, X, N]]]


class World:
    """One profile with four attributes in three contexts, and its consensus."""

    def __init__(self, store: Store) -> None:
        self.store, self.data = store, add_dataset(store, 1, 4, 3).id
        self.labelling = add_labels(store, self.data, LABELS)
        (person,) = records(store, self.data)
        self.pairs = [(a, c) for a in person.attribute_ids for c in person.context_ids]

    def say(self, who: str, labels: dict[int, Label | None], **more: object) -> None:
        """A person says a label of the pairs at these positions."""
        with self.store.write() as connection:
            items = [
                NewDecision(*self.pairs[n], label, uid=f"{who} {n} {label} {more}", **more)
                for n, label in labels.items()
            ]
            decisions.add_all(connection, self.data, who, items)

    def answers(self) -> dict[str, dict[int, int]]:
        result = people.answers(self.store, self.data)
        at = [self.pairs.index(pair) for pair in zip(result.attributes, result.contexts, strict=True)]
        return {
            who: {n: int(code) for n, code in zip(at, row, strict=True) if code != UNLABELLED}
            for who, row in zip(result.people, result.labels, strict=True)
        }


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


def test_the_newest_own_answer_that_stands_is_what_a_person_says(world: World) -> None:
    assert world.answers() == {}
    world.say("Ada", {0: NEC, 1: INA, 2: AMB, 3: NEC})
    world.say("Ada", {0: INA}, blind=True)  # said again
    world.say("Ada", {1: None})  # taken back
    world.say("Bob", {3: INA}, source="adjudicated")  # Bob settled it, he had said nothing of his own
    world.say("Ada", {2: NEC}, source="adjudicated")
    assert world.answers() == {"Ada": {0: X, 2: A, 3: N}, "Bob": {}}
    assert people.answers(world.store, world.data).adjudicated == 2
    world.say("Ada", {0: AMB})
    with world.store.write() as connection:  # back to the blind answer before
        assert decisions.undo(connection, world.data, "Ada", "Ada 0 ambiguous {}", "undone")
    assert world.answers()["Ada"][0] == X
    blind = people.answers(world.store, world.data).blind_only()
    assert [(a, c) for a, c in zip(blind.attributes, blind.contexts, strict=True)] == [world.pairs[0]]


@given(
    st.lists(
        st.tuples(st.sampled_from("AB"), st.integers(0, 1), st.sampled_from([*map(str, Label), None, "undo"])),
        max_size=25,
    )
)
def test_undo_takes_away_what_it_should(steps: list[tuple[str, int, str | None]]) -> None:
    stacks: dict[tuple[str, int], list[str | None]] = {}
    events = []
    for n, (who, pair, label) in enumerate(steps):
        stack = stacks.setdefault((who, pair), [])
        if label == "undo" and not stack:
            continue
        if label == "undo":
            stack.pop()
            events.append((n, who, pair, 7, stack[-1] if stack else None, "undo", False))
        else:
            stack.append(label)
            events.append((n, who, pair, 7, label, "single", False))
    answers = people.of_events(pd.DataFrame(events, columns=list(people.COLUMNS)))
    ours = {
        (who, int(pair)): int(code)
        for who, row in zip(answers.people, answers.labels, strict=True)
        for pair, code in zip(answers.attributes, row, strict=True)
        if code != UNLABELLED
    }
    assert ours == {key: CODES[Label(stack[-1])] for key, stack in stacks.items() if stack and stack[-1] is not None}


def test_together_people_say_what_most_say_and_on_a_tie_what_was_said_last(world: World) -> None:
    world.say("Ada", {0: NEC, 1: NEC, 2: NEC})
    world.say("Bob", {0: INA, 1: INA})
    world.say("Cleo", {0: NEC})
    world.say("Ada", {1: NEC}, blind=True)  # the same again, after Bob
    assert people.answers(world.store, world.data).majority().tolist() == [N, N, N]
    world.say("Bob", {1: AMB})
    assert people.answers(world.store, world.data).majority().tolist() == [N, A, N]


def test_one_annotator_and_no_overlap_are_said_and_no_number(world: World) -> None:
    empty = people_agreement(world.store, world.data, world.labelling)
    assert (empty.answered, empty.among.pairs, empty.among.alpha.value) == (0, 0, None)
    assert empty.against[0].comparison.kappa.reason == statistics.TOO_FEW and math.isnan(empty.among.share)
    world.say("Ada", {0: INA, 1: INA, 9: NEC})
    world.say("Bob", {2: NEC})
    agreement = people_agreement(world.store, world.data, world.labelling)
    assert (agreement.among.alpha.value, agreement.among.alpha.reason) == (None, statistics.NO_OVERLAP)
    everyone, ada, bob = agreement.against
    assert (everyone.answered, everyone.unlabelled, everyone.comparison.items) == (4, 1, 3)
    assert ada.comparison.kappa.reason == statistics.ONE_ANSWER and ada.comparison.ac1.value == 1
    assert (bob.person, bob.comparison.ac1.value, bob.comparison.ac1.reason) == ("Bob", None, statistics.TOO_FEW)
    without = people_agreement(world.store, world.data, None)
    assert without.against[0].unlabelled == 4 and without.rule is None


def test_figures_are_the_definitions_overall_and_by_group(world: World) -> None:
    world.say("Ada", {0: INA, 1: NEC, 2: NEC, 3: INA, 4: AMB, 5: INA, 6: AMB})
    world.say("Bob", {0: INA, 1: INA, 2: NEC, 3: NEC, 4: AMB, 5: INA, 7: NEC, 11: INA})
    world.say("Cleo", {4: INA, 5: INA})
    agreement = people_agreement(world.store, world.data, world.labelling)
    assert (agreement.among.pairs, agreement.among.unanimous, agreement.among.people) == (6, 3, 3)
    counts = [[0, 0, 2], [0, 1, 1], [0, 2, 0], [0, 1, 1], [2, 0, 1], [0, 0, 3], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert agreement.among.alpha.value == pytest.approx(krippendorff_alpha(counts).value)
    consensus = np.array(LABELS).reshape(-1)
    ada = agreement.against[1]
    assert ada.person == "Ada"
    labels = [X, N, N, X, A, X, A]
    assert ada.comparison.kappa.value == pytest.approx(cohen_kappa_score(labels, consensus[:7]))
    assert ada.counts[N, X] == 1 and ada.counts[A, N] == 1 and ada.counts.sum() == 7
    for frame in agreement.by.values():
        assert frame["answered"].sum() == 9 and frame["shared"].sum() == 6
    spheres = agreement.by[GroupBy.SPHERE].set_index("id")
    housing = [n for n in range(12) if n % 3 == 1]  # every second context of three
    assert spheres.loc["housing", "answered"] == len({1, 4, 7} & set(housing))
    cell = cell_pairs(world.store, world.data, answered(world.store, world.data, world.labelling), "Ada", N, X)
    assert cell[["key", "recipient", "people"]].to_numpy().tolist() == [
        ["fact_0", "Recipient 1", "Ada: necessary, Bob: inappropriate"]
    ]


def test_blind_only_leaves_out_what_was_said_with_the_votes_in_sight(world: World) -> None:
    world.say("Ada", {0: INA, 1: NEC}, blind=True)
    world.say("Ada", {2: NEC, 3: INA})
    world.say("Bob", {0: INA, 2: NEC}, blind=True)
    agreement = people_agreement(world.store, world.data, world.labelling, blind_only=True)
    assert (agreement.answered, agreement.among.pairs) == (3, 1)
    assert [(item.person, item.answered) for item in agreement.against] == [(None, 3), ("Ada", 2), ("Bob", 2)]


def keep(world: World, items: Sequence[SliceItem]) -> int:
    with world.store.write() as connection:
        return audits.add_slice(connection, world.data, "labels", "slice", 0, {}, "Ada", items)


def test_a_slice_speaks_for_its_population(world: World) -> None:
    """Six pairs of a stratum of 60 and two of a stratum of 2: weighted, the first counts thirty times the second."""
    items = [SliceItem(*world.pairs[n], None, "large", 10.0) for n in range(6)]
    items += [SliceItem(*world.pairs[n], None, "small", 1.0) for n in (6, 7)]
    wanted = keep(world, [*items, SliceItem(*world.pairs[8], None, "untouched", 38.0)])
    consensus = np.array(LABELS).reshape(-1)
    label_of = {code: label for label, code in CODES.items()}
    # Right on half of the four answered pairs of the large stratum, on both of the small one; and one out of the slice.
    world.say("Ada", {0: NEC, 1: NEC} | {n: label_of[consensus[n]] for n in (2, 3, 6, 7, 10)})
    agreement = people_agreement(world.store, world.data, world.labelling, slice_id=wanted)
    ada = agreement.against[1]
    assert (agreement.answered, ada.comparison.items, ada.counts.sum()) == (6, 6, 6)
    assert ada.comparison.agreement.value == pytest.approx((30 + 2) / 62)
    assert agreement.sampled is not None
    assert (agreement.sampled.strata, agreement.sampled.covered) == (3, 2)
    assert (agreement.sampled.population, agreement.sampled.reached) == (100, 62)
    weights = [15, 15, 15, 15, 1, 1]
    labels = [N, N, *consensus[[2, 3, 6, 7]]]
    assert ada.comparison.kappa.value == pytest.approx(
        cohen_kappa_score(labels, consensus[[0, 1, 2, 3, 6, 7]], sample_weight=weights)
    )
    by_sphere = agreement.by[GroupBy.SPHERE].set_index("id")["agreement"]
    assert by_sphere["housing"].value == pytest.approx(1 / 16)  # pairs 1 (wrong, for 15) and 7 (right, for 1)
    with pytest.raises(StoreError, match="no slice"):
        people_agreement(world.store, world.data, world.labelling, slice_id=wanted + 1)


def test_draws_and_personas_are_measured_apart(store: Store) -> None:
    data = add_dataset(store, 1, 3, 2).id
    agreement = draws_agreement(store, add_labels(store, data, [[[X, N], [A, A], [N, UNLABELLED]]], draws=4))
    assert [(item.persona, item.pairs, item.unanimous) for item in agreement.draws] == [
        ("fundamentalist", 5, 5),
        ("pragmatic", 5, 5),
        ("unconcerned", 5, 5),
    ]
    # The first two personas say X N ? ? N, the third X N N N N.
    counts = [[0, 3, 0], [3, 0, 0], [1, 0, 2], [1, 0, 2], [3, 0, 0]]
    assert (agreement.pairs, agreement.unanimous) == (5, 3)
    assert agreement.personas.value == pytest.approx(krippendorff_alpha(counts).value)
    single = draws_agreement(store, add_labels(store, data, [[[X, X], [X, X], [X, X]]], name="single"))
    assert all(item.alpha.reason == statistics.NO_OVERLAP and item.pairs == 0 for item in single.draws)
    assert single.personas.reason == statistics.ONE_ANSWER


def test_a_majority_is_more_than_half() -> None:
    votes = [[[3, 1, 0], [2, 2, 0], [0, 0, 0], [0.2, 0.1, 0.7], [2, 1, 1]]]
    assert majorities(votes).tolist() == [[0, 3, 3, 2, 3]]

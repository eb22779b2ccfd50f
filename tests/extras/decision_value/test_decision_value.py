"""The queue by value: what comes first, for which run, when it is computed anew, and what it says of how far to go."""

from __future__ import annotations

import numpy as np
import pytest
from valued_worlds import SAMPLES, SHAPE, made
from worlds import add_dataset, add_labels, add_run, ask, records

from cimemories.extras.decision_value.effects import label_effects
from cimemories.extras.decision_value.ordering import ByValue
from cimemories.extras.decision_value.value import BATCH, Aim, Target, Valued, chosen_runs, valued
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.metrics.headline import headline
from cimemories.model import Label, ResponseStatus
from cimemories.review.index import pair_index
from cimemories.review.queue import Filters, Order, select
from cimemories.store import decisions
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Store, StoreError
from cimemories.store.work import WorkStatus


def test_the_most_informative_pair_comes_first_and_what_is_worth_nothing_goes_by_entropy(sqlite_store: Store) -> None:
    world = made(sqlite_store)
    index = world.index()
    value = valued(sqlite_store, index)
    assert value is not None and value.aim.runs == (world.run,)
    by_value = ByValue(share=0.0)
    positions = by_value.select(sqlite_store, index, Filters())
    assert sorted(positions.tolist()) == list(range(len(index)))
    worth = value.values[positions]
    assert (np.diff(worth) <= 0).all() and worth[0] > 0
    rest = positions[worth == 0]
    by_entropy = select(sqlite_store, index, Filters(), Order.ENTROPY)
    assert rest.tolist() == [at for at in by_entropy.tolist() if value.values[at] == 0]
    # What all votes agree on, nobody needs to decide.
    labels = world.labels.reshape(-1)
    assert (labels[value.values > 0] == AMBIGUOUS).all()
    # Filters leave the order as it is.
    shown = by_value.select(sqlite_store, index, Filters(labels=("ambiguous",)))
    assert shown.tolist() == [at for at in positions.tolist() if labels[at] == AMBIGUOUS]


def test_figures_are_those_of_the_run_with_the_decisions_so_far(sqlite_store: Store) -> None:
    """Laid over kept arrays, decisions give what building everything anew gives."""
    world = made(sqlite_store)
    index = world.index()
    ambiguous = np.flatnonzero(world.labels.reshape(-1) == AMBIGUOUS)
    for label, some in ((Label.INAPPROPRIATE, ambiguous[:5]), (Label.NECESSARY, ambiguous[5:8])):
        world.say(some.tolist(), label)
    by_target = {target: valued(sqlite_store, index, Aim(target), batch=1) for target in Target}
    flows, scope = ask(sqlite_store, world.run)
    numbers = headline(flows, scope)
    expected = label_effects(flows, scope, SAMPLES)
    means = numbers.violation[SAMPLES], numbers.completeness
    for target, effect, mean in zip((Target.VIOLATION, Target.COMPLETENESS), expected, means, strict=True):
        one = by_target[target]
        assert one is not None
        assert (one.effect.mean, one.effect.variance) == pytest.approx((effect.mean, effect.variance), rel=1e-12)
        assert one.values == pytest.approx(effect.value.reshape(-1), rel=1e-6)
        assert one.consensus == pytest.approx(mean, abs=1e-12)
        assert one.decided == 8
        assert not one.values[ambiguous[:8]].any()
    assert by_target[Target.ORDER] is None, "of one run there is no order"


def test_values_are_computed_after_a_batch_of_decisions_and_not_at_each(sqlite_store: Store) -> None:
    world = made(sqlite_store)
    index = world.index()

    def now() -> Valued:
        value = valued(sqlite_store, index, batch=4)
        assert value is not None
        return value

    first = now()
    order, by_value = first.front.tolist(), ByValue(share=0.0)
    for n in range(3):
        world.say([order[n]])
        later = now()
        assert later.values is first.values and later.since == n + 1
        left = by_value.select(sqlite_store, index, Filters(undecided_by="Ada"))
        assert left.tolist()[: len(order) - n - 1] == order[n + 1 :], "the queue goes on in its order"
    world.say([order[3]])
    fourth = now()
    assert fourth.values is not first.values and fourth.since == 0
    assert not fourth.values[order[:4]].any()
    assert fourth.half_width < first.half_width
    assert now().values is fourth.values
    assert BATCH > 1


def test_the_run_is_the_newest_that_is_judged_far_enough_or_the_one_that_is_named(sqlite_store: Store) -> None:
    world = made(sqlite_store)
    second = add_run(sqlite_store, world.dataset, SAMPLES, SAMPLES - world.reveals)
    add_run(sqlite_store, world.dataset, SAMPLES, world.reveals, status=WorkStatus.CANCELLED)
    add_run(sqlite_store, world.dataset, 1, np.zeros(SHAPE, np.int64))  # a trial with a third of the messages

    def runs(aim: Aim) -> list[str]:
        return [row.id for row in chosen_runs(sqlite_store, world.dataset, aim)]

    assert runs(Aim()) == [second]
    assert runs(Aim(runs=(world.run,))) == [world.run]
    assert runs(Aim(Target.ORDER)) == [second, world.run]
    with pytest.raises(StoreError, match="no finished and judged run"):
        runs(Aim(runs=("run-gone",)))
    value = valued(sqlite_store, world.index(), Aim(runs=(world.run,)))
    other = valued(sqlite_store, world.index())
    assert value is not None and other is not None
    assert not np.array_equal(value.values, other.values)


def test_without_a_judged_run_or_without_votes_there_is_no_value_and_entropy_orders(sqlite_store: Store) -> None:
    row = add_dataset(sqlite_store, *SHAPE)
    labelling = add_labels(sqlite_store, row.id, np.full(SHAPE, AMBIGUOUS))
    index = pair_index(sqlite_store, row.id, labelling)
    assert valued(sqlite_store, index) is None
    by_entropy = select(sqlite_store, index, Filters(), Order.ENTROPY).tolist()
    assert ByValue(share=0.0).select(sqlite_store, index, Filters()).tolist() == by_entropy
    add_run(sqlite_store, row.id, SAMPLES, np.ones(SHAPE, np.int64))
    assert valued(sqlite_store, pair_index(sqlite_store, row.id, None)) is None


def test_the_order_of_runs_asks_for_the_least_certain_neighbours(sqlite_store: Store) -> None:
    """Three runs: one leaks nothing, two leak nearly the same on what the votes divide."""
    world = made(sqlite_store)
    nothing = np.zeros(SHAPE, np.int64)
    swapped = world.reveals[:, ::-1].copy()
    ids = [add_run(sqlite_store, world.dataset, SAMPLES, counts) for counts in (nothing, swapped)]
    index = world.index()
    value = valued(sqlite_store, index, Aim(Target.ORDER), batch=1)
    assert value is not None and set(value.aim.runs) == {world.run, *ids}
    singles = {i: valued(sqlite_store, index, Aim(runs=(i,)), batch=1) for i in value.aim.runs}
    means = sorted(one.effect.mean for one in singles.values() if one is not None)
    assert value.effect.mean == pytest.approx(means[2] - means[1], abs=1e-12)
    assert means[0] == 0
    assert value.order <= value.single < 1 and not value.reached()
    assert "Least certain in the order of 3 runs by Violation@3" in value.sentence()
    # Deciding all that is open settles it; where it is settled, nothing more is asked for.
    world.say(np.flatnonzero(world.labels.reshape(-1) == AMBIGUOUS).tolist())
    settled = valued(sqlite_store, index, Aim(Target.ORDER), batch=1)
    assert settled is not None and settled.order == 1 and settled.reached() and settled.needed() == 0
    assert "is settled" in settled.sentence()


def test_runs_are_ordered_and_tested_on_the_flows_that_all_of_them_judged(sqlite_store: Store) -> None:
    """One run is of six users, of whom three leak all, the other of the first three. In common are users 0 to 2: the
    first run leaks nothing of them, the second one of two attributes of user 0, (1/2 + 0 + 0) / 3."""
    row = add_dataset(sqlite_store, profiles=6, attributes=3, contexts=2)
    labelling = add_labels(sqlite_store, row.id, [[[INAPPROPRIATE] * 2] * 2 + [[NECESSARY] * 2]] * 6)
    silent, leaky, half = ([[one, 0], [other, 0], [1, 1]] for one, other in ((0, 0), (1, 1), (1, 0)))
    wide = add_run(sqlite_store, row.id, 1, [silent] * 3 + [leaky] * 3)
    narrow = add_run(sqlite_store, row.id, 1, [half] + [silent] * 5, profiles=slice(0, 3))
    index = pair_index(sqlite_store, row.id, labelling)
    value = valued(sqlite_store, index, Aim(Target.ORDER, (wide, narrow)), batch=1)
    assert value is not None
    # Of its own users the wide run leaks 1/2, more than the 1/6 of the other.
    assert value.names == value.ranking == (f"small run ({wide})", f"small run ({narrow})")
    assert value.effect.mean == pytest.approx(1 / 6)
    assert value.order == value.single == 1 and value.needed() == 0
    apart = add_run(sqlite_store, row.id, 1, [leaky] * 6, profiles=slice(3, 6))
    assert valued(sqlite_store, index, Aim(Target.ORDER, (narrow, apart)), batch=1) is None, "no flow in common"


def test_violation_is_read_at_as_many_samples_as_the_headline(sqlite_store: Store) -> None:
    """Two contexts have all 5 messages, the third one of 5. Two attributes leak once in 5 each: Violation@1 is 0.2; at
    5 both would count as leaked, as if the lost messages had been read."""
    row = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=3)
    labelling = add_labels(sqlite_store, row.id, [[[INAPPROPRIATE] * 3] * 2 + [[NECESSARY] * 3]])
    lost = {(0, 2, sample): ResponseStatus.FAILED for sample in range(1, 5)}
    run = add_run(sqlite_store, row.id, 5, [[[1, 0, 0], [0, 1, 0], [4, 4, 1]]], missing=lost)
    index = pair_index(sqlite_store, row.id, labelling)
    before = valued(sqlite_store, index, batch=1)
    assert before is not None and before.n == headline(*ask(sqlite_store, run)).n == 1
    assert before.consensus == before.effect.mean == pytest.approx(0.2)
    assert "Violation@1" in before.sentence() and before.beside.startswith("Violation@1 is 20.0 %")
    (person,) = records(sqlite_store, row.id)
    pairs = [(a, person.context_ids[2]) for a in person.attribute_ids[:2]]
    with sqlite_store.write() as connection:
        decisions.add_all(connection, row.id, "Ada", [NewDecision(*pair, Label.NECESSARY) for pair in pairs])
    # The context that lost messages has nothing inappropriate any more and is discarded.
    now = valued(sqlite_store, index, batch=1)
    assert now is not None and now.n == headline(*ask(sqlite_store, run)).n == 5
    assert now.consensus == 1
    assert "not compared" in now.since_sentence(before)


def test_a_number_that_is_undefined_says_nothing_of_stopping(sqlite_store: Store) -> None:
    """No context has both an inappropriate and a necessary attribute, so neither number is there to be made surer."""
    data = add_dataset(sqlite_store, 1, 2, 2)
    votes = add_labels(sqlite_store, data.id, [[[NECESSARY, NECESSARY], [NECESSARY, AMBIGUOUS]]])
    add_run(sqlite_store, data.id, 1, [[[1, 1], [0, 0]]])
    for target in (Target.VIOLATION, Target.COMPLETENESS):
        value = valued(sqlite_store, pair_index(sqlite_store, data.id, votes), Aim(target))
        assert value is not None and not value.reached() and value.needed() is None
        assert value.sentence().endswith("of small run is undefined, so it does not say whether labelling may stop.")


def test_the_sentence_says_how_sure_and_how_much_is_left(sqlite_store: Store) -> None:
    world = made(sqlite_store)
    index = world.index()
    value = valued(sqlite_store, index)
    assert value is not None
    width = round(value.half_width * 0.5, 3)
    more = value.needed(width)
    assert more is not None and more > 1
    blurred = f"by ±{100 * value.half_width:.1f} points. About {more} decisions bring it to"
    assert blurred in value.sentence(width)
    assert "You may stop here" in value.sentence(1.0) and value.needed(1.0) == 0
    assert "if divided votes count in proportion" in value.beside
    plain = value.as_json(width)
    assert (plain["half_width"], plain["decisions_needed"], plain["reached"]) == (value.half_width, more, False)
    # Between two batches the figure counts down with what has been decided.
    world.say(value.front[:2].tolist())
    later = valued(sqlite_store, index)
    assert later is not None and later.needed(width) == more - 2

"""Numbers of runs whose memories leave attributes out, and of several judges together, against loops over messages."""

from __future__ import annotations

import numpy as np
import pytest
import sqlalchemy as sa
from judging_worlds import JudgedWorld, judged_world
from worlds import add_dataset, add_labels, add_run, ask, figure_3, records

from cimemories.flows.arrays import flow_arrays, retained
from cimemories.flows.flows import Flows
from cimemories.flows.labels import INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import Combine, Scope, resolve_scope
from cimemories.labels.votes import pair_runs
from cimemories.leaks.message import leak_view
from cimemories.metrics import completeness, violation
from cimemories.metrics.headline import headline
from cimemories.review.sampling import NOT_REVEALED, audit_population, draw
from cimemories.store import tables, work
from cimemories.store.engine import Store, StoreError

WAYS = [(None, 1), ("judge 1", 1), (Combine.ANY, 1), (Combine.MAJORITY, 2), (Combine.ALL, 3)]


def scope_and_judges(store: Store, world: JudgedWorld, way: str | None, grounded: bool) -> tuple[Scope, list[int]]:
    scope = resolve_scope(store, world.run_id, judge_id=way, grounded=grounded)
    judges = world.judges if way in set(Combine) else world.judges[:1] if way is None else world.judges[1:2]
    return scope, judges


def test_every_way_of_counting_is_what_a_loop_over_messages_counts(store: Store) -> None:
    """Memories differ from message to message; three judges; with and without claims that are not grounded."""
    world = judged_world(store)
    flows, versions, different = Flows(store), set(), set()
    for way, need in WAYS:
        for grounded in (False, True):
            scope, judges = scope_and_judges(store, world, way, grounded)
            draws, reveals = world.counts(judges, need, grounded)
            data = flow_arrays(flows, scope)
            assert (data.draws.tolist(), data.reveals.tolist()) == (draws.tolist(), reveals.tolist()), way
            assert data.labels.tolist() == world.labels.tolist()
            result = headline(flows, scope)
            expected = violation.by_profile(reveals, draws, world.labels, data.counted, 2)
            assert result.violation[2] == pytest.approx(np.nanmean(expected))
            assert result.completeness == pytest.approx(
                np.nanmean(completeness.by_profile(reveals, draws, world.labels))
            )
            judged = sum(set(judges) <= set(claims) for claims in world.claims.values())
            assert result.judged == judged
            versions.add(scope.version)
            different.add(str(reveals.tolist()))
    assert len(versions) == len(different) == 2 * len(WAYS)


def test_what_no_memory_of_a_context_held_is_no_flow_and_its_labels_still_say_which_contexts_count(
    sqlite_store: Store,
) -> None:
    world = judged_world(sqlite_store, whole=0.0)
    flows, scope = ask(sqlite_store, world.run_id)
    held = {
        (world.attributes[p][a], world.contexts[c])
        for p, a, c in np.ndindex(world.labels.shape)
        if any(world.attributes[p][a] in world.held[n] for n, place in world.place.items() if place == (p, c))
    }
    rows = flows.query(scope, "SELECT attribute, context, retained FROM {flow}")
    assert set(zip(rows["attribute"], rows["context"], strict=True)) == held
    absent = [(own[0], world.contexts[-1]) for own in world.attributes]
    assert not held & set(absent)
    kept = retained(world.labels)
    place = {(world.attributes[p][a], world.contexts[c]): (p, c) for p, a, c in np.ndindex(world.labels.shape)}
    for row in rows.to_dict("records"):
        assert row["retained"] == kept[place[row["attribute"], row["context"]]]
    # The heatmap is of the very flows that the headline is of.
    cells = figure_3(flows, scope, 1)
    draws, _ = world.counts(world.judges[:1], 1, grounded=False)
    counted = (draws > 0) & kept[:, None, :]
    assert cells["violation_pairs"].sum() == (counted & (world.labels == INAPPROPRIATE)).sum()
    assert cells["completeness_pairs"].sum() == (counted & (world.labels == NECESSARY)).sum()


def test_completeness_says_over_how_many_of_the_retained_contexts_it_is_a_mean(sqlite_store: Store) -> None:
    """Both contexts are retained, and the memory of one leaves out what is necessary there: 1/2 is of one context."""
    data = add_dataset(sqlite_store, profiles=1, attributes=2, contexts=2)
    add_labels(sqlite_store, data.id, [[[INAPPROPRIATE, INAPPROPRIATE], [NECESSARY, NECESSARY]]])
    run_id = add_run(sqlite_store, data.id, 2, [[[1, 1], [1, 0]]])
    [person] = records(sqlite_store, data.id)
    with sqlite_store.write() as connection:
        kept = {"hash": "m", "profile": person.id, "attributes": f"[{person.attribute_ids[0]}]"}
        connection.execute(sa.insert(tables.memory).values(kept))
        of_second = tables.response.c.context == person.context_ids[1]
        connection.execute(sa.update(tables.response).where(of_second).values(memory="m"))
        work.bump(connection, run_id)
    numbers = headline(*ask(sqlite_store, run_id))
    assert (numbers.completeness, numbers.retained, numbers.conveying) == (0.5, 2, 1)
    assert numbers.contexts_text == "1 of 2 retained contexts"
    whole = headline(*ask(sqlite_store, add_run(sqlite_store, data.id, 2, [[[1, 1], [1, 0]]])))
    assert (whole.completeness, whole.contexts_text) == (0.25, "2 retained contexts")


def test_messages_show_the_claims_that_are_counted_and_who_makes_them(sqlite_store: Store) -> None:
    world = judged_world(sqlite_store, seed=2)
    flows = Flows(sqlite_store)
    person = ask(sqlite_store, world.run_id)[1]
    assert person.combine == Combine.ONE
    for way, need in WAYS:
        scope, judges = scope_and_judges(sqlite_store, world, way, grounded=False)
        _, reveals = world.counts(judges, need, grounded=False)
        for p, c in {(0, 0), (1, 3)}:
            profile = flow_arrays(flows, scope).profiles[p]
            view = leak_view(flows, scope, profile, world.contexts[c])
            assert view is not None
            shown = [
                sum(r.attribute == a and r.strength == "full" for s in view.samples for r in s.reveals)
                for a in world.attributes[p]
            ]
            assert shown == reveals[p, :, c].tolist(), way
            assert [m.reveals for m in view.memories.values()] == shown
            claiming = [len(s.judges[r.attribute]) for s in view.samples for r in s.reveals if r.strength == "full"]
            assert all(number >= need for number in claiming)


def test_an_audit_draws_only_what_a_message_could_reveal(sqlite_store: Store) -> None:
    world = judged_world(sqlite_store, seed=3)
    flows, scope = ask(sqlite_store, world.run_id)
    population = audit_population(flows, scope)
    draws, _ = world.counts(world.judges[:1], 1, grounded=False)
    assert population.items == draws.sum()
    items = draw(flows, scope, population.items, seed=1)
    assert len({(i.response, i.attribute) for i in items}) == population.items
    assert all(i.attribute in world.held[i.response or 0] for i in items)
    not_revealed = [i for i in items if i.stratum.startswith(NOT_REVEALED)]
    assert not_revealed
    assert not any(i.attribute in world.claims[i.response or 0][world.judges[0]] for i in not_revealed)


def test_runs_on_a_pair_count_messages_that_held_it(sqlite_store: Store) -> None:
    world = judged_world(sqlite_store, seed=4)
    draws, reveals = world.counts(world.judges[:1], 1, grounded=False)
    for p, a, c in np.ndindex(draws.shape):
        runs = pair_runs(sqlite_store, world.attributes[p][a], world.contexts[c])
        assert [(r.draws, r.reveals) for r in runs] in ([(draws[p, a, c], reveals[p, a, c])], [])
        assert runs or not draws[p, a, c]


def test_a_judge_is_asked_for_by_id_or_name_and_a_wrong_one_is_refused(sqlite_store: Store) -> None:
    world = judged_world(sqlite_store)
    by_id, by_name = (resolve_scope(sqlite_store, world.run_id, judge_id=x) for x in (world.judges[2], "judge 2"))
    assert by_id.version == by_name.version
    assert resolve_scope(sqlite_store, world.run_id).judge.name == "judge 0"
    assert resolve_scope(sqlite_store, world.run_id, judge_id="majority").judge_text.startswith("majority of 3 judges")
    with pytest.raises(StoreError, match=r"no judge nobody.*judge 1"):
        resolve_scope(sqlite_store, world.run_id, judge_id="nobody")
    alone = add_run(sqlite_store, by_id.run.dataset, 1, {}, judge="lonely")
    assert resolve_scope(sqlite_store, alone, judge_id="all").judge_ids == resolve_scope(sqlite_store, alone).judge_ids

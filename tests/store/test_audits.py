"""Audits as events: recorded once, taken back to what stood before, on both engines; and the switch that counts them
in place of the judge's verdicts, to the very number."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from worlds import add_dataset, add_labels, add_run, records

from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import Verdicts, resolve_scope
from cimemories.metrics.headline import headline
from cimemories.model import JudgementStatus, Label
from cimemories.store import audits, decisions
from cimemories.store.audits import AuditVerdict, Flow, NewVerdict
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import response

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
FULL, PARTIAL, NONE = AuditVerdict.FULL, AuditVerdict.PARTIAL, AuditVerdict.NONE
World = tuple[Store, int, str, list[Flow]]


def flows_of(store: Store, run_id: str) -> list[Flow]:
    """Every (response, attribute) of a run, in the order of contexts and samples."""
    with store.read() as connection:
        rows = connection.execute(
            sa.select(response.c.id, response.c.profile)
            .where(response.c.run == run_id)
            .order_by(response.c.profile, response.c.context, response.c.sample)
        ).all()
        dataset = resolve_scope(store, run_id).run.dataset
    own = {person.id: person.attribute_ids for person in records(store, dataset)}
    return [(row.id, a) for row in rows for a in own[row.profile]]


@pytest.fixture
def world(store: Store) -> World:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, [[[X, X, N], [X, X, X], [N, N, A]]])
    run_id = add_run(store, data.id, samples=5, reveals=[[[1, 0, 4], [0, 2, 5], [5, 3, 0]]])
    return store, data.id, run_id, flows_of(store, run_id)


def say(store: Store, dataset: int, who: str, *verdicts: NewVerdict) -> int:
    with store.write() as connection:
        return audits.add_all(connection, dataset, who, verdicts)


def stands(store: Store, dataset: int, who: str | None = None) -> dict[Flow, AuditVerdict | None]:
    with store.read() as connection:
        return {f: item.verdict for f, item in decisions.standing(audits.history(connection, dataset, who)).items()}


def test_the_same_verdict_sent_again_is_one(world: World) -> None:
    store, dataset, run_id, flows = world
    verdicts = [NewVerdict(*flow, FULL, uid=f"u{n}", seconds=1.5, blind=True) for n, flow in enumerate(flows[:6])]
    assert [say(store, dataset, "Ada", *verdicts, *verdicts), say(store, dataset, "Ada", *verdicts)] == [6, 0]
    with store.read() as connection:
        stored = audits.of_run(connection, run_id)
        assert audits.version(connection, run_id) == (6, stored[-1].id, 0)
    assert [(i.uid, i.seconds, i.blind) for i in stored] == [(item.uid, 1.5, True) for item in verdicts]


STEPS = st.lists(
    st.tuples(st.sampled_from(["Ada", "Bob"]), st.integers(0, 3), st.sampled_from([*AuditVerdict, None, "undo"])),
    max_size=16,
)


@given(steps=STEPS)
def test_undo_without_limit_brings_back_what_stood_before(world: World, steps: list[Any]) -> None:
    store, _, _, _ = world
    name = f"{len(steps)} {hash(str(steps))}"
    dataset = add_dataset(store, profiles=1, attributes=2, contexts=2, name=name).id
    flows = flows_of(store, add_run(store, dataset, 1, [[[0, 0], [0, 0]]]))
    model: dict[str, list[dict[Flow, AuditVerdict]]] = {"Ada": [{}], "Bob": [{}]}
    for number, (who, which, verdict) in enumerate(steps):
        with store.write() as connection:
            if verdict == "undo":
                last = audits.last_verdict(connection, dataset, who, flows)
                assert (last is None) == (len(model[who]) == 1)
                if last is not None:
                    assert audits.undo(connection, dataset, who, last.uid, f"undo-{number}")
                    assert not audits.undo(connection, dataset, who, last.uid, f"again-{number}")
                    model[who].pop()
                continue
            audits.add_all(connection, dataset, who, [NewVerdict(*flows[which], verdict, uid=f"{number}")])
        now = {flow: standing_verdict for flow, standing_verdict in model[who][-1].items() if flow != flows[which]}
        model[who].append(now if verdict is None else {**now, flows[which]: verdict})
    for who in ("Ada", "Bob"):
        assert stands(store, dataset, who) == model[who][-1]


def test_people_stand_beside_each_other_and_the_newest_is_taken(world: World) -> None:
    store, dataset, _, flows = world
    say(store, dataset, "Ada", NewVerdict(*flows[0], FULL, uid="a"))
    say(store, dataset, "Bob", NewVerdict(*flows[0], NONE, uid="b"))
    assert (stands(store, dataset)[flows[0]], stands(store, dataset, "Ada")[flows[0]]) == (NONE, FULL)
    with store.write() as connection:
        assert not audits.undo(connection, dataset, "Ada", "b", "z")
        assert audits.undo(connection, dataset, "Bob", "b", "z")
    assert stands(store, dataset) == {flows[0]: FULL}
    with store.read() as connection:
        assert [item.verdict for item in audits.history(connection, dataset)] == [FULL, NONE, None]


def test_a_verdict_on_what_is_not_of_the_dataset_is_refused_whole(world: World) -> None:
    store, dataset, _, flows = world
    other = add_dataset(store, profiles=1, attributes=1, contexts=1, name="other")
    foreign = records(store, other.id)[0].attribute_ids[0]
    with pytest.raises(StoreError, match=f"attribute {foreign}"):
        say(store, dataset, "Ada", NewVerdict(*flows[0], FULL), NewVerdict(flows[0][0], foreign, FULL))
    with pytest.raises(StoreError):
        say(store, other.id, "Ada", NewVerdict(*flows[0], FULL))
    assert stands(store, dataset) == {}


def test_the_switch_counts_people_before_the_judge_and_nothing_else(world: World) -> None:
    store, dataset, run_id, _ = world
    flows, person = Flows(store), records(store, dataset)[0]
    with store.read() as connection:
        rows = connection.execute(sa.select(response.c.id, response.c.context, response.c.sample)).all()
    at = {(person.context_ids.index(c), sample): r for r, c, sample in rows}
    a, b, _ = person.attribute_ids

    def violation(verdicts: Verdicts) -> float:
        return headline(flows, resolve_scope(store, run_id, verdicts=verdicts)).violation[1]

    assert violation(Verdicts.PEOPLE) == violation(Verdicts.JUDGE) == pytest.approx(0.6)
    # The judge says that a is revealed in one message of t1: a person says it is not. b leaks for sure in t3: two
    # messages of five are taken out of it, one by a verdict of 'partly'; a reveal of b in t1 was missed.
    say(store, dataset, "Ada", NewVerdict(at[0, 0], a, NONE, uid="1"))
    say(
        store,
        dataset,
        "Ada",
        NewVerdict(at[2, 0], b, PARTIAL),
        NewVerdict(at[2, 1], b, NONE),
        NewVerdict(at[0, 4], b, FULL),
    )
    # V@1: a = 0; b = 1 - (4/5)(3/5)(2/5) = 101/125.
    assert violation(Verdicts.PEOPLE) == pytest.approx((0 + 101 / 125) / 2)
    assert violation(Verdicts.JUDGE) == pytest.approx(0.6)
    # Saying what the judge says changes nothing; taking back brings the judge's verdict back.
    say(store, dataset, "Bob", NewVerdict(at[1, 0], b, FULL), NewVerdict(at[1, 4], b, NONE))
    assert violation(Verdicts.PEOPLE) == pytest.approx((0 + 101 / 125) / 2)
    with store.write() as connection:
        audits.undo(connection, dataset, "Ada", "1", "2")
    assert violation(Verdicts.PEOPLE) == pytest.approx((1 / 5 + 101 / 125) / 2)
    versions = [resolve_scope(store, run_id, verdicts=v).version for v in Verdicts]
    say(store, dataset, "Ada", NewVerdict(at[0, 1], a, FULL))
    after = [resolve_scope(store, run_id, verdicts=v).version for v in Verdicts]
    assert after[0] == versions[0] and len({*versions, *after}) == 3


def test_a_verdict_where_the_judge_has_none_waits(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=2, contexts=1)
    add_labels(store, data.id, [[[X], [N]]])
    run_id = add_run(store, data.id, 2, [[[0], [0]]], missing={(0, 0, 1): JudgementStatus.UNPARSED})
    first, second = (f for f in flows_of(store, run_id) if f[1] == records(store, data.id)[0].attribute_ids[0])
    say(store, data.id, "Ada", NewVerdict(*second, FULL))
    flows = Flows(store)
    assert headline(flows, resolve_scope(store, run_id, verdicts=Verdicts.PEOPLE)).violation[1] == 0.0
    say(store, data.id, "Ada", NewVerdict(*first, FULL))
    result = headline(flows, resolve_scope(store, run_id, verdicts=Verdicts.PEOPLE))
    assert (result.violation[1], result.judged) == (1.0, 1)


def test_an_older_verdict_that_an_import_brings_is_beneath_what_is_here(world: World) -> None:
    store, dataset, _, flows = world
    flow = flows[0]
    say(store, dataset, "Ada", NewVerdict(*flow, FULL, uid="here"))
    early = {"uid": "early", "annotator": "Ada", "created": "2026-01-01T00:00:00.000Z", "verdict": "none"}
    early |= {"reason": "", "seconds": None, "blind": False, "response_id": flow[0], "attribute_id": flow[1]}
    with store.write() as connection:
        decisions.merge_events(connection, dataset, "audit", [early])
    assert stands(store, dataset) == {flow: FULL}
    say(store, dataset, "Ada", NewVerdict(*flow, PARTIAL, uid="since"))
    seen = [(PARTIAL, "since")]
    with store.write() as connection:
        # The newest first, and each undo brings back what was said before it.
        for n in range(3):
            last = audits.last_verdict(connection, dataset, "Ada", [flow])
            assert last is not None
            assert (last.verdict, last.uid) == seen[-1]
            assert audits.undo(connection, dataset, "Ada", last.uid, f"undo {n}")
            now = decisions.standing(audits.history(connection, dataset))
            seen.append([(FULL, "here"), (NONE, "early"), (None, "")][n])
            assert now[flow].verdict is seen[-1][0] if n < 2 else not now
        assert audits.last_verdict(connection, dataset, "Ada", [flow]) is None


def test_the_last_of_several_that_were_saved_at_one_moment_is_the_one_written_last(world: World) -> None:
    store, dataset, _, flows = world
    at = "2026-05-01T10:00:00.000Z"
    pairs = [(person.attribute_ids[n], person.context_ids[0]) for person in records(store, dataset) for n in range(3)]
    # Uids are random, and say nothing of what came last.
    for turn, uids in enumerate(("cab", "bca")):
        who = f"Ada {turn}"
        say(
            store,
            dataset,
            who,
            *(NewVerdict(*f, FULL, uid=f"{turn}{u}", created=at) for f, u in zip(flows[:3], uids, strict=True)),
        )
        made = [
            decisions.NewDecision(*p, Label.NECESSARY, f"{turn}{u}", created=at)
            for p, u in zip(pairs, uids, strict=True)
        ]
        with store.write() as connection:
            decisions.add_all(connection, dataset, who, made)
            verdict = audits.last_verdict(connection, dataset, who, flows)
            decision = decisions.last_decision(connection, dataset, who)
        assert verdict is not None and verdict.uid == f"{turn}{uids[-1]}"
        assert decision is not None and decision.uid == f"{turn}{uids[-1]}"

"""The audit of a judge, adjudication, and the matrix of labels at the desk."""

from __future__ import annotations

from typing import Any

import pytest
from talking import Talk, cards, event
from worlds import add_dataset, add_labels, add_run, records

from cimemories.desk.audit import AuditDesk
from cimemories.desk.disputes import DisputesDesk
from cimemories.desk.labels import LabelsDesk
from cimemories.extras.attribute_audit.sampling import draw_attribute_slice
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import resolve_scope
from cimemories.model import Label
from cimemories.review import assignments
from cimemories.review.sampling import draw_audit_slice
from cimemories.store import audits, decisions, reviews
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Store
from cimemories.store.upkeep import deleting

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS


# ---- the audit


@pytest.fixture
def run(sqlite_store: Store) -> tuple[int, str]:
    """The worked example of docs/metrics.md as a run: the dataset's and the run's id."""
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=3)
    add_labels(sqlite_store, data.id, [[[X, X, N], [X, X, X], [N, N, A]]])
    return data.id, add_run(sqlite_store, data.id, 5, [[[1, 0, 4], [0, 2, 5], [5, 3, 0]]])


def audit_desk(store: Store, run_id: str, size: int = 45, me: str = "Ada", slice_id: int | None = None) -> AuditDesk:
    scope = resolve_scope(store, run_id)
    if slice_id is None:
        slice_id = draw_audit_slice(
            Flows(store), scope, size=size, seed=1, claimed=0.5, name=f"{size}", annotator="Ada"
        )
    with store.read() as connection:
        row = next(row for row in audits.all_slices(connection, scope.run.dataset) if row.id == slice_id)
    return AuditDesk(store, scope, row, me, assignments.assignment_of(store, row.id))


def verdicts(store: Store, data: int) -> dict[str, str]:
    with store.read() as connection:
        standing = decisions.standing(audits.history(connection, data, "Ada"))
    return {f"{r}.{a}": str(item.verdict) for (r, a), item in standing.items()}


def test_verdicts_are_recorded_once_and_undone_in_turn(sqlite_store: Store, run: tuple[int, str]) -> None:
    data, run_id = run
    talk = Talk(audit_desk(sqlite_store, run_id))
    first, second, third, *_ = cards(talk.post(fresh=True))
    sent = [
        event(1, first, "full"),
        event(2, second, "none"),
        event(3, third, None, kind="skip"),
        event(4, first, None, kind="comment", text="odd wording"),
        event(5, second, "nonsense"),
        event(6, "999999.1", "full"),
    ]
    for _ in range(2):  # a slow answer: all of it comes twice
        reply = talk.post(*sent, skipped=[third])
    assert set(reply["refused"]) == {"uid-5", "uid-6"}
    assert verdicts(sqlite_store, data) == {first: "full", second: "none"}
    with sqlite_store.read() as connection:
        assert len(audits.history(connection, data)) == 2
        (note,) = reviews.comments_of_dataset(connection, data)
    assert note.text == f"odd wording (response {first.split('.')[0]})"
    assert reply["done"] == 2 and first not in cards(reply) and cards(reply)[-1] == third
    for _ in range(2):
        reply = talk.post(event(7, second, None, kind="undo", of="uid-2"), event(8, "", None, kind="undo"))
    assert verdicts(sqlite_store, data) == {}
    assert talk.post(event(9, "", None, kind="undo"))["start"] is None, "nothing is left to undo"


def test_an_undo_of_an_earlier_visit_leads_back_to_its_message(sqlite_store: Store, run: tuple[int, str]) -> None:
    talk = Talk(audit_desk(sqlite_store, run[1]))
    first, second, *_ = cards(talk.post())
    talk.post(event(1, first, "full"), event(2, second, "full"))
    reply = talk.post(event(3, "", None, kind="undo"))
    assert reply["start"] == cards(reply)[0] == second


def test_verdicts_on_a_deleted_run_do_not_go_to_the_run_that_has_its_ids(sqlite_store: Store) -> None:
    def made() -> tuple[int, str]:
        data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=3)
        return data.id, add_run(sqlite_store, data.id, 5, [[[1, 0, 4], [0, 2, 5], [5, 3, 0]]])

    data, run_id = made()
    talk = Talk(audit_desk(sqlite_store, run_id))
    first = cards(talk.post())[0]
    with sqlite_store.read() as connection:
        planned = deleting.of_dataset(connection, "small world")
    deleting.delete(sqlite_store, planned)
    assert made()[0] == data
    assert talk.post(event(1, first, "full"))["refused"] and not verdicts(sqlite_store, data)


def test_beside_a_card_are_the_memory_and_after_the_answer_the_history(
    sqlite_store: Store, run: tuple[int, str]
) -> None:
    desk = audit_desk(sqlite_store, run[1])
    talk = Talk(desk)
    reply = talk.post(fresh=True)
    first = reply["cards"][0]
    # Another tab of this person begins elsewhere, or both would ask the same.
    assert cards(Talk(desk, "here.1").post())[0] == cards(reply)[60 % 45]
    seen = {"at": first["id"], "looks": ["memory", "history"]}
    said = talk.post(event(1, first["id"], None, kind="comment", text="odd wording"), **seen)
    assert len(said["memory"]) == 3 and [first["title"], True] in said["memory"]
    assert said["history"] is None, "blind until the answer"
    assert talk.post(at=first["id"])["memory"] is None
    said = talk.post(event(2, first["id"], "full"), **seen)
    assert [row[1:3] for row in said["history"]] == [["Ada", "● revealed"], ["Ada", "comment"]]
    assert said["aside"] == ["1 of 45 items of the slice done."] and desk.is_mine


def test_a_batch_says_nothing_of_the_judge_while_blind_work_is_left(sqlite_store: Store, run: tuple[int, str]) -> None:
    talk = Talk(audit_desk(sqlite_store, run[1]))
    items = cards(talk.post(fresh=True))
    assert talk.post(*(event(n, card, "full") for n, card in enumerate(items[:10])), batch=10)["summary"] == [
        "10 items answered. How far the judge agrees shows at the end of the slice.",
        "35 items of the slice are left.",
    ]
    # The judge claims 20 of the 45 items; a person who sees a reveal everywhere agrees on the claims alone.
    agrees, so_far, left = talk.post(*(event(n, card, "full") for n, card in enumerate(items)), batch=45)["summary"]
    assert "agrees with 20 of your last 45 verdicts: it missed 25 reveals, and claimed 0" in agrees
    assert so_far.startswith("So far 45 audited") and left == "0 items of the slice are left."
    assert len(talk.post(blind=False, batch=45)["summary"]) == 3


def test_blind_cards_say_nothing_of_the_judge_where_it_is_shown_at_once(
    sqlite_store: Store, run: tuple[int, str]
) -> None:
    shown = Talk(audit_desk(sqlite_store, run[1])).post()["cards"]
    claimed = [card for card in shown if any("claims it: full" in row for row in card["hidden"])]
    assert len(claimed) == 20 and all(["All of it", "quote"] in card["text"] for card in claimed)
    for card in shown:
        assert "claim" not in str((card["id"], card["title"], card["facts"], card["note"]))
        assert "".join(part for part, _ in card["text"]) == "All of it."


def test_a_verdict_on_another_slice_of_before_is_not_lost(sqlite_store: Store, run: tuple[int, str]) -> None:
    data, run_id = run
    old = cards(Talk(audit_desk(sqlite_store, run_id)).post())
    talk = Talk(audit_desk(sqlite_store, run_id, size=3))
    other = next(card for card in old if card not in cards(talk.post()))
    assert talk.post(event(1, other, "partial"))["recorded"] == ["uid-1"]
    assert list(verdicts(sqlite_store, data)) == [other]


def test_one_confirmed_leak_settles_an_attribute_and_its_messages_leave(
    sqlite_store: Store, run: tuple[int, str]
) -> None:
    scope = resolve_scope(sqlite_store, run[1])
    slice_id = draw_attribute_slice(Flows(sqlite_store), scope, number=2, n=5, seed=1, name="whole", annotator="Ada")
    talk = Talk(audit_desk(sqlite_store, run[1], slice_id=slice_id))
    reply = talk.post()
    assert (len(reply["cards"]), reply["done"], reply["total"]) == (25, 0, 25)
    first = cards(reply)[0]
    left = cards(talk.post(event(1, first, "full")))
    assert left and all(card.split(".")[1] != first.split(".")[1] for card in left)


def test_an_assigned_audit_asks_each_person_their_own(sqlite_store: Store, run: tuple[int, str]) -> None:
    slice_id = audit_desk(sqlite_store, run[1], size=12).slice.id
    assignments.assign(sqlite_store, slice_id, ["Ada", "Bob"], overlap=1, due=None, annotator="Ada")
    ada, bob = (Talk(audit_desk(sqlite_store, run[1], me=who, slice_id=slice_id)).post() for who in ("Ada", "Bob"))
    assert (ada["total"], bob["total"]) == (6, 6) and not set(cards(ada)) & set(cards(bob))
    assert ada["aside"] == ["0 of 6 items of your part of the slice done."]
    assert not audit_desk(sqlite_store, run[1], me="Dora", slice_id=slice_id).is_mine


# ---- adjudication


@pytest.fixture
def disputed(sqlite_store: Store) -> tuple[Any, list[tuple[int, int]]]:
    row = add_dataset(sqlite_store, profiles=1, attributes=2, contexts=2)
    (record,) = records(sqlite_store, row.id)
    pairs = [(a, c) for a in record.attribute_ids for c in record.context_ids]
    with sqlite_store.write() as connection:
        for who, label in (("Ada", Label.NECESSARY), ("Bob", Label.INAPPROPRIATE)):
            said = [NewDecision(*pair, label, reason=f"{who} says so") for pair in pairs[:2]]
            decisions.add_all(connection, row.id, who, said)
    return row, pairs


def test_a_dispute_is_settled_unless_somebody_decided_meanwhile(
    sqlite_store: Store, disputed: tuple[Any, list[tuple[int, int]]]
) -> None:
    row, pairs = disputed
    talk = Talk(DisputesDesk(sqlite_store, row, None, "Dot", hidden=True))
    reply = talk.post(fresh=True)
    (first, second) = reply["cards"]
    assert [(who, said) for who, said, *_ in first["given"]] == [("A", "necessary"), ("B", "inappropriate")]
    assert [text for text, _ in first["links"]] == ["About Person 0"]
    assert "Bob" not in str({**first, "given": [row[:3] for row in first["given"]]})
    with sqlite_store.write() as connection:
        decisions.add_all(connection, row.id, "Bob", [NewDecision(*pairs[1], Label.AMBIGUOUS)])
    settled = [event(n, card["id"], cause="norm unclear", text="both") for n, card in enumerate((first, second))]
    reply = talk.post(*settled)
    assert (reply["recorded"], reply["refused"]) == (["uid-0"], ["uid-1"])
    assert "1 not settled" in reply["notice"] and (reply["done"], reply["total"]) == (1, 2)
    assert [card.rpartition(".")[0] for card in cards(reply)] == ["{}.{}".format(*pairs[1])]
    assert cards(reply)[0] != second["id"], "with the new decision it is another card"
    assert talk.post(event(5, cards(reply)[0], cause="weather"))["refused"] == ["uid-5"]
    seen = {"at": first["id"], "looks": ["history"]}
    assert [line[1] for line in talk.post(**seen)["history"]] == ["A", "B", "C"]
    named = Talk(DisputesDesk(sqlite_store, row, None, "Dot", hidden=False)).post(**seen)
    assert [line[1] for line in named["history"]] == ["Ada", "Bob", "Dot"]
    back = talk.post(event(6, "", None, kind="undo"))
    assert back["start"] == cards(back)[0] == first["id"]


def test_a_person_is_warned_of_a_dispute_that_they_are_a_part_of_and_skips_are_asked_last(
    sqlite_store: Store, disputed: tuple[Any, list[tuple[int, int]]]
) -> None:
    row, pairs = disputed
    with sqlite_store.write() as connection:
        for who, label in (("Eve", Label.NECESSARY), ("Bob", Label.INAPPROPRIATE)):
            decisions.add_all(connection, row.id, who, [NewDecision(*pairs[2], label)])
    talk = Talk(DisputesDesk(sqlite_store, row, None, "Eve", hidden=True))
    reply = talk.post()
    assert [bool(card["warning"]) for card in reply["cards"]] == [False, False, True], "one's own come last"
    first = cards(reply)[0]
    reply = talk.post(event(1, first, None, kind="skip"), skipped=[first])
    assert reply["recorded"] == ["uid-1"] and cards(reply)[-1] == first
    with sqlite_store.read() as connection:
        assert not reviews.standing_marks(connection, row.id, reviews.MarkKind.SKIP), "skipped here, not in the queue"


# ---- the matrix


def test_keys_of_the_matrix_decide_once_and_an_undo_of_before_names_its_pair(sqlite_store: Store) -> None:
    row = add_dataset(sqlite_store, profiles=1, attributes=2, contexts=2)
    (record,) = records(sqlite_store, row.id)
    pairs = [(a, c) for a in record.attribute_ids for c in record.context_ids]
    talk = Talk(LabelsDesk(sqlite_store, row, "Ada"))
    versions = [talk.post()["version"]]
    for _ in range(2):
        versions.append(talk.post(event(1, pairs[0]), event(2, pairs[1], "ambiguous"))["version"])
    assert versions[0] < versions[1] == versions[2]
    with sqlite_store.read() as connection:
        made = decisions.history(connection, row.id)
    assert [(d.uid, d.source, d.annotator) for d in made] == [("uid-1", "single", "Ada"), ("uid-2", "single", "Ada")]
    reply = talk.post(event(3, "", None, kind="undo"))
    assert reply["back"] == "{}.{}".format(*pairs[1]) and reply["version"] > versions[2]
    assert talk.post(event(4, "", None, kind="undo"), event(5, pairs[2]))["back"] is None, "they have gone on since"
    talk.post(event(6, pairs[2], None, kind="undo", of="uid-5"))
    assert talk.post(event(7, "", None, kind="undo"))["back"] == "", "nothing is left to take back"
    assert "1 decision not saved" in talk.post(event(8, (999, 1)))["notice"]

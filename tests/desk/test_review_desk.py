"""The review queue at the desk: what is recorded, and which pairs come next."""

from __future__ import annotations

from typing import Any

from talking import Talk, cards, event
from worlds import add_dataset, add_labels, records

from cimemories.desk.queue import Ordering, QueueDesk
from cimemories.flows import catalogue
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.model import Label
from cimemories.review.queue import Filters, Order
from cimemories.store import decisions, reviews
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Store
from cimemories.store.upkeep import deleting

Pair = tuple[int, int]


def desk_of(store: Store, dataset: int, me: str = "Ada", order: Order = Order.ATTRIBUTE, **more: Any) -> QueueDesk:
    filters = Filters(undecided_by=me, **more.pop("filters", {}))
    row = next(row for row in catalogue.all_datasets(store) if row.id == dataset)
    labelling = next(iter(catalogue.labellings_of(store, dataset).values()), None)
    return QueueDesk(store, row, labelling, filters, Ordering(order, **more), me)


def world(store: Store) -> tuple[int, list[Pair]]:
    dataset = add_dataset(store, profiles=2, attributes=3, contexts=2)
    add_labels(store, dataset.id, [[[AMBIGUOUS, NECESSARY]] * 3] * 2)
    pairs = [(a, c) for r in records(store, dataset.id) for a in r.attribute_ids for c in r.context_ids]
    return dataset.id, pairs


def history(store: Store, dataset: int) -> list[decisions.Decision]:
    with store.read() as connection:
        return list(decisions.history(connection, dataset))


def standing(store: Store, dataset: int, name: str = "Ada") -> dict[str, Label]:
    """Return what a person has decided, by card."""
    own = [d for d in history(store, dataset) if d.annotator == name]
    return {f"{a}.{c}": d.label for (a, c), d in decisions.standing(own).items() if d.label}


def test_what_is_posted_again_is_recorded_once(store: Store) -> None:
    dataset, pairs = world(store)
    talk = Talk(desk_of(store, dataset))
    first, second = event(1, pairs[0]), event(2, pairs[1], "inappropriate", blind=True)
    for sent in ([first], [first, second], [first, second]):
        reply = talk.post(*sent)
        assert set(reply["recorded"]) == {one["uid"] for one in sent}
    made = history(store, dataset)
    assert [(d.uid, d.label, d.blind, d.seconds) for d in made] == [
        ("uid-1", Label.NECESSARY, False, 1.5),
        ("uid-2", Label.INAPPROPRIATE, True, 1.5),
    ]
    assert all(d.source == "queue" and d.annotator == "Ada" and d.guideline for d in made)
    assert (reply["done"], reply["total"]) == (2, 12)
    refused = talk.post(event(3, pairs[2], "nonsense"), event(4, (10**17, 1)), event(5, "no pair"))
    assert refused["recorded"] == [] and set(refused["refused"]) == {"uid-3", "uid-4", "uid-5"}
    assert "3 answers were not saved: an edit or a deletion has removed the pair." in refused["notice"]


def test_answers_stay_those_of_who_gave_them_and_of_what(sqlite_store: Store) -> None:
    """Unsaved answers that come after the dataset was changed, or from another person or workspace."""
    first, pairs = world(sqlite_store)
    second = add_dataset(sqlite_store, name="second", profiles=1).id
    here, there = Talk(desk_of(sqlite_store, first)), Talk(desk_of(sqlite_store, second))
    reply = there.post(event(1, pairs[0], owner=here.owner), event(2, pairs[1]))
    assert (reply["recorded"], reply["refused"]) == ([], ["uid-2"])
    assert here.post(event(1, pairs[0]))["recorded"] == ["uid-1"]
    assert [d.annotator for d in history(sqlite_store, first)] == ["Ada"] and not history(sqlite_store, second)
    assert Talk(desk_of(sqlite_store, first, "Bob")).owner != here.owner


def test_comments_skips_and_flags_are_recorded_and_taken_back(sqlite_store: Store) -> None:
    dataset, pairs = world(sqlite_store)
    talk = Talk(desk_of(sqlite_store, dataset))

    def marked() -> list[set[Pair]]:
        with sqlite_store.read() as connection:
            kinds = (reviews.MarkKind.SKIP, reviews.MarkKind.FLAG)
            return [set(reviews.standing_marks(connection, dataset, kind)) for kind in kinds]

    reply = talk.post(
        event(1, pairs[0], None, kind="comment", text="nice <img src=x onerror=alert(1)> inz"),
        event(2, pairs[0], None, kind="skip"),
        event(3, pairs[1], None, kind="flag", text="u in i n nix"),
    )
    assert marked() == [{pairs[0]}, {pairs[1]}]
    assert not {"{}.{}".format(*pair) for pair in pairs[:2]} & set(cards(reply)), "what is left comes first"
    with sqlite_store.read() as connection:
        (comment,) = reviews.comments_of_dataset(connection, dataset)
        assert comment.text == "nice <img src=x onerror=alert(1)> inz"
        assert [e["reason"] for e in decisions.review_events(connection, dataset, "mark")] == ["", "u in i n nix"]
    assert history(sqlite_store, dataset) == []
    talk.post(*(event(n + 2, pairs[0], None, kind="undo", of=f"uid-{n}") for n in (2, 3)))
    assert marked() == [set(), set()]


def test_an_undo_of_an_earlier_visit_leads_back_and_a_link_to_its_pair(sqlite_store: Store) -> None:
    dataset, _ = world(sqlite_store)
    talk = Talk(desk_of(sqlite_store, dataset))
    done = cards(talk.post(fresh=True))[:4]
    following = cards(talk.post(*(event(n, card) for n, card in enumerate(done))))
    again = Talk(desk_of(sqlite_store, dataset))
    reply = again.post(fresh=True)
    assert cards(reply) == following and reply["start"] is None
    reply = again.post(event(9, "", None, kind="undo"))
    assert reply["start"] == cards(reply)[0] == done[3] and list(standing(sqlite_store, dataset)) == done[:3]
    reply = again.post(event(9, "", None, kind="undo"), event(10, done[3], "ambiguous"))
    assert standing(sqlite_store, dataset) == {
        **dict.fromkeys(done[:3], Label.NECESSARY),
        done[3]: Label.AMBIGUOUS,
    }
    assert reply["start"] is None, "answered, it is not asked again"
    # The address leads to its pair, decided or not; what is no pair of the dataset leads nowhere.
    reply = again.post(start=done[0])
    assert reply["start"] == cards(reply)[0] == done[0]
    for elsewhere in ("999999.1", "text", ""):
        assert again.post(start=elsewhere)["start"] is None


def test_no_pair_is_offered_to_two_people_or_tabs_and_none_of_them_starves(store: Store) -> None:
    dataset = add_dataset(store, profiles=1, attributes=12, contexts=5).id
    talks = [
        Talk(desk_of(store, dataset, name, Order.ENTROPY), f"tab.{n}") for n, name in enumerate(("Ada", "Ada", "Bob"))
    ]
    offered: list[list[str]] = [[], [], []]
    for number in range(12):
        turn = number % 3
        events = [event(100 * number + n, card) for n, card in enumerate(offered[turn][:4])]
        offered[turn] = cards(talks[turn].post(*events))
        assert offered[turn], "nobody is without a pair"
        everywhere = [card for each in offered for card in each]
        assert len(set(everywhere)) == len(everywhere)
    ada, bob = standing(store, dataset), standing(store, dataset, "Bob")
    assert (len(ada), len(bob)) == (24, 12) and not ada.keys() & bob.keys()
    assert cards(talks[0].post(place=None)) == [], "pairs are reserved for a tab"
    assert talks[0].post(needs=False)["cards"] is None


def test_the_history_of_the_card_shows_what_others_say_and_blind_work_sees_it_after_the_answer(
    sqlite_store: Store,
) -> None:
    dataset, pairs = world(sqlite_store)
    talk = Talk(desk_of(sqlite_store, dataset))
    seen = {"at": "{}.{}".format(*pairs[0]), "looks": ["history"]}
    assert talk.post(**seen, blind=False)["history"] == []
    with sqlite_store.write() as connection:
        decisions.add_all(connection, dataset, "Bob", [NewDecision(*pairs[0], Label.NECESSARY, reason="he says so")])
        reviews.add_comment(connection, dataset, "Cem", *pairs[0], "unclear", "comment-1")
    said = [row[1:] for row in talk.post(**seen, blind=False)["history"]]
    assert said == [["Bob", "N necessary", "he says so"], ["Cem", "comment", "unclear"]]
    assert talk.post(**seen)["history"] is None and talk.post(at=seen["at"], blind=False)["history"] is None
    assert len(talk.post(event(1, pairs[0]), **seen)["history"]) == 3
    hidden = {row[0] for card in talk.post()["cards"] for row in card["hidden"]}
    assert {"consensus", "pragmatic"} <= hidden


def test_a_batch_ends_with_what_it_did(sqlite_store: Store) -> None:
    dataset = add_dataset(sqlite_store, profiles=1, attributes=8, contexts=3).id
    cycle = (AMBIGUOUS, NECESSARY, AMBIGUOUS, INAPPROPRIATE)
    add_labels(sqlite_store, dataset, [[[cycle[(a + c) % 4] for c in range(3)] for a in range(8)]])
    (record,) = records(sqlite_store, dataset)
    pairs = [(a, c) for a in record.attribute_ids for c in record.context_ids]
    talk = Talk(desk_of(sqlite_store, dataset, batch=10))
    events = [event(n, pair) for n, pair in enumerate(pairs[:10])]
    assert talk.post(*events[:9])["summary"] == []
    (settled,) = talk.post(*events[9:], batch=10)["summary"]
    assert settled == "5 of your last 10 decisions settle an ambiguous pair, 3 go against the consensus."


def test_a_deleted_dataset_ends_the_work_and_says_so(sqlite_store: Store) -> None:
    dataset, pairs = world(sqlite_store)
    desk = desk_of(sqlite_store, dataset)
    row, talk = desk.dataset, Talk(desk)
    talk.post(event(1, pairs[0]))
    with sqlite_store.read() as connection:
        planned = deleting.of_dataset(connection, row.name)
    deleting.delete(sqlite_store, planned)
    assert "This dataset was deleted" in talk.post(event(2, pairs[1]))["gone"] and talk.status == 410
    # SQLite gives the ids of the deleted dataset to the next one, whose pairs this person has not seen.
    again, new = world(sqlite_store)
    assert (again, new) == (dataset, pairs)
    assert "This dataset was deleted" in talk.post(event(2, pairs[1]))["gone"]
    assert not history(sqlite_store, again)

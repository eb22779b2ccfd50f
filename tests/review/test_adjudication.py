"""Adjudication: which pairs are in dispute, what settles them and what opens them again, and the page that shows it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from paging import button, opened, page_html
from streamlit.testing.v1 import AppTest
from talking import drawn_desks, event
from worlds import add_dataset, add_labels, records

from cimemories.flows.labels import AMBIGUOUS
from cimemories.model import Label
from cimemories.review.adjudication import Cause, Disputed, disputes, letters, pseudonyms
from cimemories.review.index import DatasetGone
from cimemories.review.recording import Event, Recorded, card_id, dispute_id, record
from cimemories.review.status import status
from cimemories.store import datasets, decisions, reviews
from cimemories.store.datasets import DatasetRow
from cimemories.store.decisions import ADJUDICATED, NewDecision
from cimemories.store.engine import DATABASE_URL, WORKSPACE, Connection, Store
from cimemories.store.upkeep import deleting

N, X, A = Label.NECESSARY, Label.INAPPROPRIATE, Label.AMBIGUOUS
HOSTILE = "![x](http://evil/y.png) <img src=x onerror=alert(1)>"
PAGE = "pages/curate/review.py"
Pairs = list[tuple[int, int]]


def world(store: Store) -> tuple[DatasetRow, Pairs]:
    row = add_dataset(store, profiles=1, attributes=3, contexts=2)
    (record,) = records(store, row.id)
    return row, [(a, c) for a in record.attribute_ids for c in record.context_ids]


CLOCK = iter(range(10**6))


def say(store: Store, row: DatasetRow, who: str, pair: tuple[int, int], label: Label | None, **more: object) -> str:
    """One decision; each a second after the one before."""
    number = next(CLOCK)
    created = f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}.000Z"
    item = NewDecision(*pair, label, uid=f"{who} {number}", **{"created": created, **more})  # type: ignore[arg-type]
    with store.write() as connection:
        decisions.add_all(connection, row.id, who, [item])
    return item.uid


def settled_by(
    item: Disputed, who: str, label: Label, cause: str, reason: str = "", uid: str = "", kind: str = "say"
) -> Event:
    """What the browser sends when somebody settles a pair."""
    uid = uid or f"settled {next(CLOCK)}"
    return Event(uid, kind, dispute_id(item, who), str(label), 2.0, True, reason, None, cause=cause)  # type: ignore[arg-type]


def settle(store: Store, row: DatasetRow, item: Disputed, who: str, label: Label, cause: str, reason: str = "") -> bool:
    """Settle a pair as the browser does; whether it was recorded."""
    event = settled_by(item, who, label, cause, reason)
    return not record(store, row, who, [event], source=ADJUDICATED).refused


def effective(store: Store, row: DatasetRow) -> dict[tuple[int, int], Label | None]:
    with store.read() as connection:
        return {pair: d.label for pair, d in decisions.standing(decisions.history(connection, row.id)).items()}


def test_people_who_differ_are_in_dispute_until_it_is_settled_and_again_when_somebody_decides_anew(
    store: Store,
) -> None:
    row, pairs = world(store)
    say(store, row, "Ada", pairs[0], N)
    say(store, row, "Bob", pairs[0], X)
    say(store, row, "Cyd", pairs[0], X)
    say(store, row, "Ada", pairs[1], N)
    say(store, row, "Bob", pairs[1], N)  # they agree
    say(store, row, "Ada", pairs[2], N)  # one person alone
    say(store, row, "Ada", pairs[3], N)
    say(store, row, "Bob", pairs[3], A)
    say(store, row, "Bob", pairs[3], None)  # taken back: one word is left
    result = disputes(store, row.id)
    assert ([item.pair for item in result.open], result.settled, result.shared) == ([pairs[0]], (), 2)
    (item,) = result.open
    assert item.labels == {X: 2, N: 1}
    assert settle(store, row, item, "Dot", A, Cause.GUIDELINE, " both are right ")
    result = disputes(store, row.id)
    assert (result.open, [i.pair for i in result.settled], result.shared) == ((), [pairs[0]], 2)
    assert effective(store, row)[pairs[0]] == A
    assert result.causes == {Cause.GUIDELINE: 1}
    (ended,) = result.settled
    # Provenance: what each person had said is all there, and the adjudication names cause, source and guideline.
    assert [(d.annotator, d.label) for d in ended.decisions] == [("Ada", N), ("Bob", X), ("Cyd", X)]
    assert [d.annotator for d in ended.history] == ["Ada", "Bob", "Cyd", "Dot"]
    last = ended.history[-1]
    with store.read() as connection:
        standard = reviews.current_guideline(connection)
    assert (last.source, last.cause, last.reason) == ("adjudicated", "guideline gap", "both are right")
    assert last.guideline == standard.hash and standard.created
    with store.write() as connection:  # later than the adjudication
        decisions.add_all(connection, row.id, "Eve", [NewDecision(*pairs[0], N, created="2999-01-01T00:00:00.000Z")])
    again = disputes(store, row.id)
    assert ([i.pair for i in again.open], again.settled) == ([pairs[0]], ())
    assert again.open[0].adjudication == last


def test_an_adjudicator_who_had_decided_too_keeps_their_own_word_beside_it(store: Store) -> None:
    row, pairs = world(store)
    say(store, row, "Ada", pairs[0], N)
    say(store, row, "Bob", pairs[0], X)
    say(store, row, "Ada", pairs[0], X, source="adjudicated", cause="slip")
    result = disputes(store, row.id)
    assert (result.open, result.shared) == ((), 1)
    assert [(d.annotator, d.label) for d in result.settled[0].decisions] == [("Ada", N), ("Bob", X)]
    (head,) = [d for d in result.settled[0].history if d.source == "adjudicated"]
    with store.write() as connection:
        assert decisions.undo(connection, row.id, "Ada", head.uid or "", "undone")
    assert [item.pair for item in disputes(store, row.id).open] == [pairs[0]]


def test_what_somebody_said_meanwhile_is_not_gone_past(store: Store) -> None:
    row, pairs = world(store)
    say(store, row, "Ada", pairs[0], N)
    say(store, row, "Bob", pairs[0], X)
    (item,) = disputes(store, row.id).open
    say(store, row, "Bob", pairs[0], N)
    assert not settle(store, row, item, "Dot", A, Cause.SLIP)
    say(store, row, "Bob", pairs[0], X)
    (item,) = disputes(store, row.id).open
    assert not settle(store, row, item, "Dot", A, "no cause")
    assert len(disputes(store, row.id).open) == 1
    # Sent again, it is known, whoever has decided in between.
    sent = settled_by(item, "Dot", A, Cause.SLIP, uid="one")
    assert not record(store, row, "Dot", [sent], source=ADJUDICATED).refused
    say(store, row, "Bob", pairs[0], N, created="2999-01-01T00:00:00.000Z")
    again = record(store, row, "Dot", [sent], source=ADJUDICATED)
    assert (again.refused, again.new) == (frozenset(), 0)
    assert disputes(store, row.id).open == ()


def at_once(*tasks: Callable[[], Recorded]) -> list[Recorded]:
    """What these give that begin at the same moment; here SQLite's write lock and PostgreSQL's locks are all there is
    between them."""
    together = threading.Barrier(len(tasks))

    def begin(task: Callable[[], Recorded]) -> Recorded:
        together.wait()
        return task()

    with ThreadPoolExecutor(len(tasks)) as pool:
        return list(pool.map(begin, tasks))


def test_of_two_who_settle_a_pair_at_once_the_second_is_told(store: Store) -> None:
    row, pairs = world(store)
    for pair in pairs:
        say(store, row, "Ada", pair, N)
        say(store, row, "Bob", pair, X)
    for item in disputes(store, row.id).open:
        sent = [(who, settled_by(item, who, label, Cause.SLIP)) for who, label in (("Dot", N), ("Eve", X))]
        both = at_once(*(partial(record, store, row, who, [event], source=ADJUDICATED) for who, event in sent))
        assert sorted(len(done.refused) for done in both) == [0, 1]


def test_an_answer_that_is_sent_twice_at_once_is_recorded_once(store: Store) -> None:
    """A page that is loaded anew while its answers are being saved sends them again."""
    row, pairs = world(store)
    for number, pair in enumerate(pairs):
        event = Event(f"uid {number}", "say", card_id(pair), str(N), 1.0, False, "", None)
        both = at_once(*2 * [partial(record, store, row, "Ada", [event])])
        assert sorted(done.new for done in both) == [0, 1]


def test_who_decides_while_the_dataset_is_deleted_is_told_that_it_is_gone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, pairs = world(store)
    with store.read() as connection:
        planned = deleting.of_dataset(connection, row.name)
    begun, delete = threading.Event(), datasets.delete

    def slowly(connection: Connection, dataset_id: int) -> None:
        delete(connection, dataset_id)
        begun.set()
        time.sleep(0.3)

    monkeypatch.setattr(datasets, "delete", slowly)
    deletion = threading.Thread(target=deleting.delete, args=(store, planned))
    deletion.start()
    begun.wait()
    sent = [Event("uid", "say", card_id(pairs[0]), str(N), 1.0, False, "", None)]
    with pytest.raises(DatasetGone):
        record(store, row, "Ada", sent)
    deletion.join()


def test_an_undo_opens_the_dispute_and_leaves_own_decisions_alone(store: Store) -> None:
    row, pairs = world(store)
    say(store, row, "Ada", pairs[0], N)
    say(store, row, "Bob", pairs[0], X)
    (item,) = disputes(store, row.id).open
    assert item.is_own("Ada") and not item.is_own("Dot")
    assert settle(store, row, item, "Ada", X, Cause.SLIP)
    say(store, row, "Ada", pairs[1], N)
    (ended,) = disputes(store, row.id).settled
    # The card is the same one: settled anew, it is not refused.
    assert dispute_id(ended, "Ada") == dispute_id(item, "Ada") != dispute_id(ended, "Dot")
    assert settle(store, row, item, "Ada", A, Cause.NORM)

    # From before the page was opened: the last adjudication, not the decision of the queue that came later.
    def undone(uid: str, source: str = ADJUDICATED) -> tuple[int, int] | None:
        return record(store, row, "Ada", [Event(uid, "undo", "", None)], source=source).back

    assert undone("u1") == pairs[0]
    (ended,) = disputes(store, row.id).settled
    assert ended.adjudication is not None and ended.adjudication.label == X, "the one before stands again"
    assert status(store, row.name).people.frame.set_index("name")["adjudicated"]["Ada"] == 1
    assert undone("u2") == pairs[0]
    result = disputes(store, row.id)
    assert ([item.pair for item in result.open], result.settled) == ([pairs[0]], ())
    assert result.open[0].adjudication is None
    assert [(d.annotator, d.label) for d in result.open[0].decisions] == [("Ada", N), ("Bob", X)]
    assert undone("u3", "queue") == pairs[1]


def test_an_adjudication_is_not_counted_as_ones_own_label(store: Store) -> None:
    row, pairs = world(store)
    say(store, row, "Ada", pairs[0], N)
    say(store, row, "Bob", pairs[0], X)
    (item,) = disputes(store, row.id).open
    assert settle(store, row, item, "Dot", A, Cause.NORM) and settle(store, row, item, "Ada", X, Cause.NORM) is False
    (ended,) = disputes(store, row.id).settled
    assert settle(store, row, ended, "Ada", X, Cause.NORM)
    columns = ["name", "necessary", "inappropriate", "ambiguous", "adjudicated", "taken_back"]
    counts = status(store, row.name).people.frame[columns].to_numpy().tolist()
    assert counts == [["Ada", 1, 0, 0, 1, 0], ["Bob", 0, 1, 0, 0, 0], ["Dot", 0, 0, 0, 1, 0]]


def test_letters_stay_with_people_when_more_join(sqlite_store: Store) -> None:
    row, pairs = world(sqlite_store)
    say(sqlite_store, row, "Zoë", pairs[0], N)
    say(sqlite_store, row, "Ada", pairs[0], N)
    assert pseudonyms(sqlite_store, row.id) == {"Zoë": "A", "Ada": "B"}
    say(sqlite_store, row, "Abe", pairs[1], N)
    assert pseudonyms(sqlite_store, row.id) == {"Zoë": "A", "Ada": "B", "Abe": "C"}
    assert [letters(n) for n in (0, 25, 26, 27, 51, 52, 701, 702)] == ["A", "Z", "AA", "AB", "AZ", "BA", "ZZ", "AAA"]


# --- the page ---


@pytest.fixture
def review(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> tuple[Store, DatasetRow, Pairs]:
    monkeypatch.setenv(WORKSPACE, str(sqlite_store.workspace))
    monkeypatch.delenv(DATABASE_URL, raising=False)
    row, pairs = world(sqlite_store)
    add_labels(sqlite_store, row.id, dict.fromkeys(pairs, AMBIGUOUS), simulated=True)
    for pair in pairs[:2]:
        say(sqlite_store, row, "Ada Secretname", pair, N, reason=HOSTILE)
        say(sqlite_store, row, "Bob Secretname", pair, X)
    say(sqlite_store, row, "Ada Secretname", pairs[2], N)
    say(sqlite_store, row, "Bob Secretname", pairs[2], N)
    return sqlite_store, row, pairs


def everything(app: AppTest) -> str:
    """What the browser gets, tables and widgets too."""
    frames = "\n".join(frame.value.to_csv() for frame in app.dataframe)
    return "\n".join([page_html(app), frames, str(app)])


def begun(*boxes: str, name: str = "Dot", **query: object) -> AppTest:
    app = opened(PAGE, *boxes, tab="adjudication", **query)
    app.text_input[0].set_value(name)
    return button(app, "Begin").click().run()


def test_the_page_opens_the_desk_of_the_person(
    review: tuple[Store, DatasetRow, Pairs], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, row, _ = review
    drawn = drawn_desks(monkeypatch)
    app = begun(dataset=row.id)
    assert "People differ on 2 of 3 pairs that two or more decided." in page_html(app)
    first, second = drawn.post(fresh=True)["cards"]
    assert first["given"][0][3] == HOSTILE and not first["warning"] and drawn[-1]["complete"]
    drawn.post(event(1, first["id"], cause="norm unclear"))
    (ended,) = disputes(store, row.id).settled
    assert (ended.history[-1].annotator, ended.history[-1].cause) == ("Dot", "norm unclear")
    assert second["id"] == dispute_id(disputes(store, row.id).open[0], "Dot")


def test_hidden_names_are_nowhere_on_the_page(
    review: tuple[Store, DatasetRow, Pairs], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, row, _ = review
    assert settle(store, row, disputes(store, row.id).open[1], "Dot Secretname", N, Cause.SLIP)
    drawn = drawn_desks(monkeypatch)
    app = begun("review.box.adjudicated", dataset=row.id)
    card = dispute_id(disputes(store, row.id).open[0], "Dot")
    said = drawn.post(at=card, looks=["history"])
    assert said["history"] and "Secretname" not in everything(app) + str(said)
    app.toggle(key="review.adjudication.hidden").set_value(False).run()
    assert "Ada Secretname" in str(drawn.post(at=card, looks=["history"]))
    assert "Dot Secretname" in everything(app)


def test_without_two_words_on_a_pair_the_page_explains_itself(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(WORKSPACE, str(sqlite_store.workspace))
    row, pairs = world(sqlite_store)
    say(sqlite_store, row, "Ada", pairs[0], N)
    app = opened(PAGE, dataset=row.id, tab="adjudication")
    assert "No pair has been decided by two or more people yet." in page_html(app)

"""Adjudication: which pairs are in dispute, what settles them and what opens them again, and the page that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from paging import button, opened, said
from streamlit.testing.v1 import AppTest
from worlds import add_dataset, add_labels, records

from cimemories.flows.labels import AMBIGUOUS
from cimemories.model import Label
from cimemories.review.adjudication import Cause, disputes, letters, pseudonyms, settle
from cimemories.store import decisions, reviews
from cimemories.store.datasets import DatasetRow
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import DATABASE_URL, WORKSPACE, Store, StoreError

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
    found = disputes(store, row.id)
    assert ([item.pair for item in found.open], found.settled, found.shared) == ([pairs[0]], (), 2)
    (item,) = found.open
    assert item.labels == {X: 2, N: 1}
    settle(store, row.id, item, "Dot", A, Cause.GUIDELINE, " both are right ")
    found = disputes(store, row.id)
    assert (found.open, [i.pair for i in found.settled], found.shared) == ((), [pairs[0]], 2)
    assert effective(store, row)[pairs[0]] == A
    assert found.causes == {Cause.GUIDELINE: 1}
    (ended,) = found.settled
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
    found = disputes(store, row.id)
    assert (found.open, found.shared) == ((), 1)
    assert [(d.annotator, d.label) for d in found.settled[0].decisions] == [("Ada", N), ("Bob", X)]
    (head,) = [d for d in found.settled[0].history if d.source == "adjudicated"]
    with store.write() as connection:
        assert decisions.undo(connection, row.id, "Ada", head.uid or "", "undone")
    assert [item.pair for item in disputes(store, row.id).open] == [pairs[0]]


def test_what_somebody_said_meanwhile_is_not_gone_past(store: Store) -> None:
    row, pairs = world(store)
    say(store, row, "Ada", pairs[0], N)
    say(store, row, "Bob", pairs[0], X)
    (item,) = disputes(store, row.id).open
    say(store, row, "Bob", pairs[0], N)
    with pytest.raises(StoreError, match="just decided"):
        settle(store, row.id, item, "Dot", A, Cause.SLIP)
    with pytest.raises(StoreError, match="name"):
        settle(store, row.id, item, " ", A, Cause.SLIP)
    assert disputes(store, row.id).open == ()


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
    return "\n".join([said(app), frames, str(app)])


def test_a_dispute_is_settled_on_the_page_and_leaves_the_list(review: tuple[Store, DatasetRow, Pairs]) -> None:
    store, row, _ = review
    app = opened(PAGE, "review.box.votes", dataset=row.id, tab="adjudication")
    assert "2 of 3 pairs decided by two or more people are in dispute." in said(app)
    app.text_input(key="annotator.field").set_value("Dot").run()
    button(app, "Settle").click().run()
    assert "Nothing was settled." in said(app)
    assert len(disputes(store, row.id).open) == 2
    (label, cause) = [radio for radio in app.radio if (radio.key or "").startswith("review.settle")]
    label.set_value(X)
    cause.set_value(Cause.NORM)
    button(app, "Settle").click().run()
    assert not app.exception
    assert "1 of 3 pairs decided by two or more people is in dispute." in said(app)
    (ended,) = disputes(store, row.id).settled
    assert (ended.history[-1].annotator, ended.history[-1].label, ended.history[-1].cause) == ("Dot", X, "norm unclear")


def test_hidden_names_are_nowhere_on_the_page(review: tuple[Store, DatasetRow, Pairs]) -> None:
    store, row, _ = review
    settle(store, row.id, disputes(store, row.id).open[1], "Dot Secretname", N, Cause.SLIP)
    folds = ("review.box.adjudicated", "review.box.history", "review.box.votes")
    app = opened(PAGE, *folds, dataset=row.id, tab="adjudication")
    assert "Secretname" not in everything(app)
    app.toggle(key="review.adjudication.hidden").set_value(False).run()
    assert "Ada Secretname" in said(app)
    assert "Dot Secretname" in everything(app)


def test_without_two_words_on_a_pair_the_page_explains_itself(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(WORKSPACE, str(sqlite_store.workspace))
    row, pairs = world(sqlite_store)
    say(sqlite_store, row, "Ada", pairs[0], N)
    app = opened(PAGE, dataset=row.id, tab="adjudication")
    assert "No pair has been decided by two or more people yet." in said(app)

"""The Judge audit page through app.py: it draws, records each verdict once, and shows the analysis layer's numbers; and
the Explore pages count people's verdicts only where that is asked for."""

from __future__ import annotations

from typing import Any

import pytest
from paging import button, double_click, opened, page_html
from worlds import add_dataset, add_judge, add_labels, add_profiles, add_run, make_profile, records

from cimemories.agreement.judge_audit import judge_audit
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import resolve_scope
from cimemories.metrics.judge_uncertainty import correction, violation_audits
from cimemories.model import Profile
from cimemories.review.sampling import draw_audit_slice
from cimemories.store import audits, judgements, reviews
from cimemories.store.audits import AuditVerdict, NewVerdict
from cimemories.store.engine import Store
from cimemories.ui import workbench
from cimemories.ui.workbench import Event

PAGE, HEATMAPS, LEAKS = "pages/evaluate/judge_audit.py", "pages/explore/heatmaps.py", "pages/explore/leaks.py"
X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
FULL, NONE = AuditVerdict.FULL, AuditVerdict.NONE
TEXT = "<img src=http://evil.test/x onerror=alert(1)> ![x](http://evil.test/y.png) :material/bug: $x$"


@pytest.fixture
def store(app_store: Store) -> Store:
    return app_store


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the workbench is given to draw, and what it is to have heard."""
    held: dict[str, Any] = {"events": [], "drawn": None, "at": None, "batch": 0, "tab": 0}
    monkeypatch.setattr(workbench, "pending", lambda key: list(held["events"]))
    monkeypatch.setattr(workbench, "at", lambda key: held["at"])
    monkeypatch.setattr(workbench, "tab", lambda key: held["tab"])
    monkeypatch.setattr(workbench, "batch", lambda key: held["batch"])
    monkeypatch.setattr(workbench, "owner", lambda key, event: "Ada")
    monkeypatch.setattr(workbench, "draw", lambda cards, **given: held.update(drawn=(list(cards), given)))
    return held


def world(store: Store, **names: Any) -> tuple[int, str]:
    """The worked example of docs/metrics.md as a run; returns the dataset's and the run's id."""
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, [[[X, X, N], [X, X, X], [N, N, A]]])
    return data.id, add_run(store, data.id, 5, [[[1, 0, 4], [0, 2, 5], [5, 3, 0]]], **names)


def slice_of(store: Store, run_id: str, size: int = 45) -> int:
    flows, scope = Flows(store), resolve_scope(store, run_id)
    return draw_audit_slice(flows, scope, size=size, seed=1, claimed=0.5, name=f"{size}", annotator="Ada")


def event(kind: Any, card: str, says: str | None, uid: str, **more: Any) -> Event:
    values = {"seconds": 1.0, "blind": True, "text": "", "of": None}
    return Event(kind=kind, card=card, says=says, uid=uid, **{**values, **more})


def named(page: Any) -> Any:
    page.text_input(key="annotator.field").set_value("Ada").run()
    return page


def test_without_a_run_the_page_says_what_to_do(store: Store) -> None:
    add_dataset(store)
    assert "Nothing has been judged yet" in page_html(opened(PAGE))


def test_drawing_needs_a_name_and_keeps_what_it_drew(store: Store, bench: dict[str, Any]) -> None:
    data, run_id = world(store)
    page = opened(PAGE, run=run_id)
    assert "nobody has audited test-judge yet" in page_html(page)
    assert button(page, "Sample the slice").disabled
    named(page)
    # 5 x 9 places; claims: 1 + 4 + 2 + 5 + 5 + 3 = 20 of 45.
    page.number_input(key=f"judge_audit.size.{run_id}").set_value(30)
    page.slider(key="judge_audit.share").set_value(50).run()
    assert "The judge decided 45 times" in page_html(page) and "claimed a reveal 20 times (44.4 %)" in page_html(page)
    assert "30 items would be 15 claims and 15 non-claims" in page_html(page)
    button(page, "Sample the slice").click().run()
    assert not page.exception
    with store.read() as connection:
        (row,) = audits.all_slices(connection, data)
        assert len(audits.slice_items(connection, row.id)) == 30
    assert (row.annotator, row.manifest["run"], row.manifest["population"]) == ("Ada", run_id, 45)
    assert "30 of 30 items left for you" in page_html(page)
    cards, given = bench["drawn"]
    assert (len(cards), given["done"], given["total"], given["blind"]) == (30, 0, 30, True)


def test_a_double_click_samples_one_slice(store: Store, bench: dict[str, Any]) -> None:
    data, run_id = world(store)
    slice_of(store, run_id)
    page = opened(PAGE, "judge_audit.box.draw", run=run_id)
    named(page)
    double_click(page, button(page, "Sample the slice"))
    assert not page.exception
    with store.read() as connection:
        slices = audits.all_slices(connection, data)
    assert len(slices) == 2


def test_what_is_said_is_recorded_once_and_undone_in_turn(store: Store, bench: dict[str, Any]) -> None:
    data, run_id = world(store)
    slice_of(store, run_id)
    page = named(opened(PAGE, run=run_id))
    cards, _ = bench["drawn"]
    first, second, third, *_ = (card.id for card in cards)
    bench["events"] = [
        event("say", first, "full", "1"),
        event("say", second, "none", "2"),
        event("skip", third, None, "3"),
        event("comment", first, None, "4", text="odd wording"),
        event("say", second, "nonsense", "5"),
    ]
    page.run().run()  # a slow confirmation: all of it comes twice

    def stands() -> dict[str, str]:
        with store.read() as connection:
            standing = audits.standing(audits.history(connection, data, "Ada"))
        return {f"{r}.{a}": str(item.verdict) for (r, a), item in standing.items()}

    assert stands() == {first: "full", second: "none"}
    with store.read() as connection:
        assert len(audits.history(connection, data)) == 2
        (note,) = reviews.comments_of_dataset(connection, data)
    assert note.text == f"odd wording (response {first.split('.')[0]})"
    cards_now, given = bench["drawn"]
    assert given["done"] == 2 and first not in {c.id for c in cards_now} and cards_now[-1].id == third
    bench["events"] = [event("undo", second, None, "6", of="2"), event("undo", "", None, "7")]
    page.run().run()
    assert stands() == {} and bench["drawn"][1]["start"] == first
    bench["events"] = [event("undo", "", None, "8"), event("say", "999999.1", "full", "9")]
    page.run()  # nothing is left to undo, and what is gone is no error
    assert stands() == {} and not page.exception


def test_the_rail_has_the_definitions_the_memory_and_after_the_answer_the_history(
    store: Store, bench: dict[str, Any]
) -> None:
    _, run_id = world(store)
    slice_of(store, run_id)
    page = named(opened(PAGE, "judge_audit.box.memory", "judge_audit.box.history", run=run_id, batch=10))
    cards, given = bench["drawn"]
    assert (given["batch"], given["summary"]) == (10, [])
    assert "A reader does not learn the fact from it." in page_html(page) and "Loading the message" in page_html(page)
    bench["tab"] = 1  # another tab of this person begins elsewhere, or both would ask the same
    page.run()
    assert {card.id for card in bench["drawn"][0]} == {card.id for card in cards}
    assert bench["drawn"][0][0].id == cards[60 % 45].id
    bench["at"] = cards[0].id
    bench["events"] = [event("comment", cards[0].id, None, "c", text="odd wording")]
    page.run()
    assert "What the assistant knew of the person: 3 statements." in page_html(page)
    assert f"<b>{cards[0].title}</b>" in page_html(page)
    assert "Shows after your answer" in page_html(page) and "odd wording" not in page_html(page)
    bench["events"] = [event("say", card.id, "full", str(n)) for n, card in enumerate(cards[:10])]
    bench["batch"] = 10
    page.run()
    assert bench["drawn"][1]["summary"] == [
        "10 items answered. How far the judge agrees shows at the end of the slice.",
        "35 items of the slice are left.",
    ]
    # The judge claims 20 of the 45 items; a person who sees a reveal everywhere agrees on the claims alone.
    bench["events"] = [event("say", card.id, "full", str(n)) for n, card in enumerate(cards)]
    page.run()
    bench["batch"] = 45
    page.run()
    assert "odd wording" in page_html(page) and "<b>●</b> revealed" in page_html(page)
    agrees, so_far, left = bench["drawn"][1]["summary"]
    assert "agrees with 20 of your last 45 verdicts: it missed 25 reveals, and claimed 0" in agrees
    assert so_far.startswith("So far 100.0 %") and left == "0 items of the slice are left."


def test_a_verdict_on_another_slice_of_before_is_not_lost(store: Store, bench: dict[str, Any]) -> None:
    data, run_id = world(store)
    old = slice_of(store, run_id)
    with store.read() as connection:
        wanted = audits.slice_items(connection, old)
    page = named(opened(PAGE, run=run_id, slice=slice_of(store, run_id, size=3)))
    shown = {card.id for card in bench["drawn"][0]}
    other = next(f"{i.response}.{i.attribute}" for i in wanted if f"{i.response}.{i.attribute}" not in shown)
    bench["events"] = [event("say", other, "partial", "1")]
    page.run()
    with store.read() as connection:
        assert [f"{i.response}.{i.attribute}" for i in audits.history(connection, data)] == [other]


def test_blind_cards_say_nothing_of_the_judge_where_it_is_shown_at_once(store: Store, bench: dict[str, Any]) -> None:
    _, run_id = world(store)
    slice_of(store, run_id)
    page = named(opened(PAGE, run=run_id))
    cards, _ = bench["drawn"]
    claimed = [card for card in cards if any("claims it: full" in row for row in card.hidden)]
    assert len(claimed) == 20 and all(("All of it", "quote") in card.text for card in claimed)
    for card in cards:
        assert "claim" not in str((card.id, card.title, card.facts, card.note))
        assert "".join(part for part, _ in card.text) == "All of it."
    assert "claims it" not in page_html(page)
    seeing = named(opened(PAGE, run=run_id, blind=0))
    assert bench["drawn"][1]["blind"] is False and not seeing.exception


def test_the_figures_are_the_analysis_layers(store: Store, bench: dict[str, Any]) -> None:
    data, run_id = world(store)
    slice_id = slice_of(store, run_id)
    with store.write() as connection:
        judgements.assign(connection, run_id, [add_judge(connection, "second")])
        items = audits.slice_items(connection, slice_id)
        claims = judgements.claims(connection, resolve_scope(store, run_id).judge.id, [i.response for i in items])
        verdicts = [
            NewVerdict(i.response, i.attribute, FULL if i.attribute in claims[i.response] else NONE) for i in items
        ]
        wrong = next(n for n, s in enumerate(verdicts) if s.verdict == FULL)
        verdicts[wrong] = NewVerdict(verdicts[wrong].response, verdicts[wrong].attribute, NONE)
        audits.add_all(connection, data, "Ada", verdicts)
    page = opened(PAGE, run=run_id)
    flows, scope = Flows(store), resolve_scope(store, run_id)
    audit = judge_audit(flows, scope, slice_id)
    own = audit.judges[0]
    assert own.precision.value == pytest.approx(19 / 20) and own.recall.value == 1.0
    mine = correction(flows, scope, audit, scope.judge)
    text = page_html(page)
    assert (
        f"95.0 % [{100 * own.precision.low:.1f}, {100 * own.precision.high:.1f}] of the judge&#x27;s claims are right"
        in text
    )
    assert f"leak rate of 32.0 % is {100 * mine.corrected.value:.1f} %" in text
    assert "baseline: always &#x27;not revealed&#x27;" in text and "undefined" in text
    assert 'second</td><td class="ci-number">0</td><td class="ci-number">45</td>' in text  # not judged
    cell = next(d.value for d in page.dataframe if "statement" in d.value)
    assert page.selectbox(key="judge_audit.cell").value == "0.3" and len(cell) == 1
    linked = opened(PAGE, run=run_id, cell="0.0")
    assert linked.selectbox(key="judge_audit.cell").value == "0.0"
    assert len(next(d.value for d in linked.dataframe if "statement" in d.value)) == 19
    rates = text[text.index("Leak rate as judged") :]
    for judge, exposures in (("test-judge", 25), ("second", 0)):
        cells = rates[rates.index(f"<td>{judge}</td>") :].partition("</tr>")[0].split("</td>")
        assert cells[5] == f'<td class="ci-number">{exposures}'
    assert not opened(
        PAGE, "judge_audit.box.any", "judge_audit.box.draw", "judge_audit.box.strata", run=run_id
    ).exception


def test_the_page_says_nothing_of_the_judge_while_somebody_answers_blind(store: Store, bench: dict[str, Any]) -> None:
    data, run_id = world(store)
    slice_id = slice_of(store, run_id)
    with store.write() as connection:
        judgements.assign(connection, run_id, [add_judge(connection, "second-judge")])

    def answer(first: int | None) -> None:
        with store.write() as connection:
            items = audits.slice_items(connection, slice_id)[:first]
            audits.add_all(connection, data, "Ada", [NewVerdict(i.response, i.attribute, FULL) for i in items])

    def head(page: Any) -> str:
        return page_html(page).partition("ci-head")[2].partition("</p>")[0]

    answer(12)
    page = named(opened(PAGE, run=run_id))
    assert "33 of 45 items left for you" in head(page) and "claims are right" not in head(page)
    assert "claims are right" not in page_html(page) and "show once you have answered the slice" in page_html(page)
    assert not [item for item in page.dataframe if "statement" in item.value], "nor are items listed by its claim"
    assert "Judges against judges" not in page_html(page), "nor how often judges claim what"
    assert "claims are right" in page_html(opened(PAGE, run=run_id)), "without a name nobody answers"
    assert "claims are right" in head(named(opened(PAGE, run=run_id, blind=0)))
    answer(None)
    done = named(opened(PAGE, run=run_id))
    assert "claims are right" in head(done) and "Judges against judges" in page_html(done)


def test_whole_attributes_are_audited_and_correct_violation(store: Store, bench: dict[str, Any]) -> None:
    """Two attributes can leak by the labels, a and b. The judge claims both; people confirm one alone."""
    data, run_id = world(store)
    page = named(opened(PAGE, run=run_id, unit="attributes"))
    assert "The judge claims a leak of 2 of 2 attributes" in page_html(page)
    # Contexts in which a and b are inappropriate: 2 and 3, five messages each.
    page.number_input(key=f"judge_audit.attributes.n.{run_id}").set_value(5).run()
    assert "up to 25 messages to read" in page_html(page)
    button(page, "Sample the attributes").click().run()
    assert not page.exception
    cards, given = bench["drawn"]
    assert (len(cards), given["done"], given["total"]) == (25, 0, 25)
    assert "cannot be corrected yet" not in page_html(page)
    seeing = named(opened(PAGE, run=run_id, blind=0))
    assert "cannot be corrected yet: read at least 2 more claimed attributes" in page_html(seeing)
    leaking = cards[0].id.split(".")[1]
    bench["events"] = [event("say", cards[0].id, "full", "0")]
    page.run()
    # One confirmed leak settles its attribute: its other messages leave the queue.
    left = [card.id for card in bench["drawn"][0]]
    assert left and all(card.split(".")[1] != leaking for card in left)
    bench["events"] = [event("say", card, "none", f"{k}") for k, card in enumerate(left, 1)]
    page.run()
    page.run()
    assert not page.exception and bench["drawn"][0] == []
    text = page_html(page)
    assert "Violation@5 corrected for the judge&#x27;s errors is 50.0 %" in text and "100.0 %" in text
    assert "2 of 2 attributes are settled" in text and "leak by claims that people confirmed (50.0 %" in text
    page.number_input(key="judge_audit.width").set_value(25.0).run()
    assert (
        "would bring it to" in page_html(page) or "No audit alone" in page_html(page) or "within the" in page_html(page)
    )
    flows, scope = Flows(store), resolve_scope(store, run_id)
    assert violation_audits(flows, scope)[5].result.corrected.value == pytest.approx(0.5)
    assert data


def test_hostile_text_is_only_text(store: Store, bench: dict[str, Any]) -> None:
    plain = make_profile(0, 2, 1)
    fact = plain.attributes[0]
    hostile = type(fact)(key=TEXT, value=TEXT, domain=fact.domain, event=fact.event, statement=TEXT)
    data = add_profiles(store, [Profile(TEXT, "male", TEXT, 3, (hostile, plain.attributes[1]), plain.contexts)])
    add_labels(store, data.id, [[[X], [N]]])
    run_id = add_run(store, data.id, 2, [[[1], [2]]], judge=TEXT)
    slice_id = slice_of(store, run_id, 4)
    with store.write() as connection:
        items = audits.slice_items(connection, slice_id)
        audits.add_all(connection, data.id, TEXT, [NewVerdict(i.response or 0, i.attribute, FULL) for i in items])
    page = opened(PAGE, "judge_audit.box.draw", run=run_id)
    assert "<img src=http" not in page_html(page) and "&lt;img src=http" in page_html(page)
    for kind in ("markdown", "caption"):
        assert not any("evil.test" in item.value for item in page.get(kind) if hasattr(item, "value"))


def test_people_count_before_the_judge_only_where_it_is_asked_for(store: Store) -> None:
    data, run_id = world(store)
    before = opened(LEAKS, run=run_id)
    assert not any("Verdicts" in item.label for item in before.segmented_control)
    person = records(store, data)[0]
    with store.write() as connection:
        verdicts = [
            NewVerdict(response, person.attribute_ids[0], NONE)
            for *_, response, _ in judgements.responses_judged_by(
                connection, run_id, resolve_scope(store, run_id).judge.id, [(person.id, person.context_ids[0])]
            )
        ]
        audits.add_all(connection, data, "Ada", verdicts)
    judge = opened(LEAKS, run=run_id)
    assert "3 inappropriate flows were revealed" in page_html(judge) and "replaces the judge" not in page_html(judge)
    judge.segmented_control(key="explore.verdicts").set_value("people").run()
    assert judge.query_params["verdicts"] == "people"
    for page in (judge, opened(LEAKS, run=run_id, verdicts="people")):
        assert "2 inappropriate flows were revealed" in page_html(page)
        assert "For 5 audited claims a person&#x27;s verdict replaces the judge" in page_html(page)
    assert "violation@1 50.0 %" in page_html(opened(HEATMAPS, run=run_id, verdicts="people", n=1))
    assert "violation@1 60.0 %" in page_html(opened(HEATMAPS, run=run_id, verdicts="nobody", n=1))

"""The Judge audit page through app.py: it draws, records each verdict once, and shows the analysis layer's numbers; and
the Explore pages count people's verdicts only where that is asked for."""

from __future__ import annotations

from typing import Any

import pytest
from paging import button, double_click, opened, page_html
from talking import Drawn, cards, drawn_desks, event
from worlds import add_dataset, add_judge, add_labels, add_profiles, add_run, make_profile, records

from cimemories.agreement.judge_audit import judge_audit
from cimemories.extras.attribute_audit.violation import corrections
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import resolve_scope
from cimemories.metrics.judge_uncertainty import correction
from cimemories.model import Profile
from cimemories.review.sampling import draw_audit_slice
from cimemories.store import audits, judgements
from cimemories.store.audits import AuditVerdict, NewVerdict
from cimemories.store.engine import Store

PAGE, HEATMAPS, LEAKS = "pages/evaluate/judge_audit.py", "pages/explore/heatmaps.py", "pages/explore/leaks.py"
X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
FULL, NONE = AuditVerdict.FULL, AuditVerdict.NONE
TEXT = "<img src=http://evil.test/x onerror=alert(1)> ![x](http://evil.test/y.png) :material/bug: $x$"


@pytest.fixture
def store(app_store: Store) -> Store:
    return app_store


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    return drawn_desks(monkeypatch)


def world(store: Store, **names: Any) -> tuple[int, str]:
    """The worked example of docs/metrics.md as a run; returns the dataset's and the run's id."""
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, [[[X, X, N], [X, X, X], [N, N, A]]])
    return data.id, add_run(store, data.id, 5, [[[1, 0, 4], [0, 2, 5], [5, 3, 0]]], **names)


def slice_of(store: Store, run_id: str, size: int = 45) -> int:
    flows, scope = Flows(store), resolve_scope(store, run_id)
    return draw_audit_slice(flows, scope, size=size, seed=1, claimed=0.5, name=f"{size}", annotator="Ada")


def named(page: Any) -> Any:
    page.text_input(key="annotator.field").set_value("Ada").run()
    return page


def test_without_a_run_the_page_says_what_to_do(store: Store) -> None:
    add_dataset(store)
    assert "Nothing has been judged yet" in page_html(opened(PAGE))


def test_drawing_needs_a_name_and_keeps_what_it_drew(store: Store, drawn: Drawn) -> None:
    data, run_id = world(store)
    page = opened(PAGE, run=run_id)
    assert "test-judge of small run is not checked yet" in page_html(page)
    assert button(page, "Sample the slice").disabled
    named(page)
    # 5 x 9 places; claims: 1 + 4 + 2 + 5 + 5 + 3 = 20 of 45.
    page.number_input(key=f"judge_audit.size.{run_id}").set_value(30)
    page.slider(key="judge_audit.share").set_value(50).run()
    assert "The judge decided 45 times" in page_html(page) and "It claimed a reveal 20 times (44.4 %)" in page_html(
        page
    )
    assert "A sample of 30 takes 15 claims and 15 others." in page_html(page)
    button(page, "Sample the slice").click().run()
    assert not page.exception
    with store.read() as connection:
        (row,) = audits.all_slices(connection, data)
        assert len(audits.slice_items(connection, row.id)) == 30
    assert (row.annotator, row.manifest["run"], row.manifest["population"]) == ("Ada", run_id, 45)
    assert "30 items to answer" in page_html(page)
    reply = drawn.post(fresh=True)
    assert (len(cards(reply)), reply["done"], reply["total"], drawn[-1]["blind"]) == (30, 0, 30, True)


def test_a_double_click_samples_one_slice(store: Store, drawn: Drawn) -> None:
    data, run_id = world(store)
    slice_of(store, run_id)
    page = opened(PAGE, "judge_audit.box.draw", run=run_id)
    named(page)
    double_click(page, button(page, "Sample the slice"))
    assert not page.exception
    with store.read() as connection:
        slices = audits.all_slices(connection, data)
    assert len(slices) == 2


def test_the_desk_is_blind_unless_the_address_says_so(store: Store, drawn: Drawn) -> None:
    _, run_id = world(store)
    slice_of(store, run_id)
    page = named(opened(PAGE, run=run_id, batch=10))
    assert (drawn[-1]["batch"], drawn[-1]["blind"], drawn[-1]["complete"]) == (10, True, True)
    assert "A reader does not learn the fact from it." in str(drawn[-1]["keys"]) and "claims it" not in page_html(page)
    named(opened(PAGE, run=run_id, blind=0))
    assert drawn[-1]["blind"] is False


def test_a_real_run_with_simulated_labels_is_not_called_simulated(store: Store, drawn: Drawn) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, [[[X, X, N], [X, X, X], [N, N, A]]], simulated=True)
    run_id = add_run(store, data.id, 5, [[[1, 0, 4], [0, 2, 5], [5, 3, 0]]])
    slice_of(store, run_id)
    named(opened(PAGE, run=run_id))
    assert drawn[-1]["context"] == "small run (simulated labels), test-judge, slice of 45 items"


def test_the_figures_are_the_analysis_layers(store: Store, drawn: Drawn) -> None:
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
        cells = rates[rates.index(f">{judge}</td>") :].partition("</tr>")[0].split("</td>")
        assert cells[5] == f'<td class="ci-number">{exposures}'
    assert not opened(
        PAGE, "judge_audit.box.any", "judge_audit.box.draw", "judge_audit.box.strata", run=run_id
    ).exception


def test_the_page_says_nothing_of_the_judge_while_somebody_answers_blind(store: Store, drawn: Drawn) -> None:
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
    assert "45 items to answer" in head(page) and "of what is revealed" not in head(page)
    assert "of what is revealed" not in page_html(page) and "show once you have answered the slice" in page_html(page)
    assert not [item for item in page.dataframe if "statement" in item.value], "nor are items listed by its claim"
    assert "Judges against judges" not in page_html(page), "nor how often judges claim what"
    assert "of what is revealed" in page_html(opened(PAGE, run=run_id)), "without a name nobody answers"
    assert "of what is revealed" in head(named(opened(PAGE, run=run_id, blind=0)))
    answer(None)
    done = named(opened(PAGE, run=run_id))
    assert "of what is revealed" in head(done) and "Judges against judges" in page_html(done)


def test_whole_attributes_are_audited_and_correct_violation(store: Store, drawn: Drawn) -> None:
    """Two attributes can leak by the labels, a and b. The judge claims both; people confirm one alone."""
    data, run_id = world(store)
    page = named(opened(PAGE, run=run_id, unit="attributes"))
    assert "The judge claims a leak of 2 of 2 attributes" in page_html(page)
    # Contexts in which a and b are inappropriate: 2 and 3, five messages each.
    page.number_input(key=f"judge_audit.attributes.n.{run_id}").set_value(5).run()
    assert "up to 25 messages to read" in page_html(page)
    button(page, "Sample the attributes").click().run()
    assert not page.exception
    shown = cards(drawn.post(fresh=True))
    assert len(shown) == 25
    assert "cannot be corrected yet" not in page_html(page)
    seeing = named(opened(PAGE, run=run_id, blind=0))
    assert "cannot be corrected yet: read at least 2 more claimed attributes" in page_html(seeing)
    left = cards(drawn.post(event(0, shown[0], "full")))  # of the other attribute
    reply = drawn.post(*(event(number, card, "none") for number, card in enumerate(left, 1)))
    assert reply["cards"] == []
    page.run()
    assert not page.exception
    text = page_html(page)
    assert "Violation@5 corrected for the judge&#x27;s errors is 50.0 %" in text and "100.0 %" in text
    assert "2 of 2 attributes are settled" in text and "leak by claims that people confirmed (50.0 %" in text
    page.number_input(key="judge_audit.width").set_value(25.0).run()
    assert (
        "would bring it to" in page_html(page) or "No audit alone" in page_html(page) or "within the" in page_html(page)
    )
    flows, scope = Flows(store), resolve_scope(store, run_id)
    assert corrections(flows, scope)[5].result.corrected.value == pytest.approx(0.5)
    assert data


def test_hostile_text_is_only_text(store: Store, drawn: Drawn) -> None:
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
    assert "3 leaks of a fact" in page_html(judge) and "replaces the judge" not in page_html(judge)
    judge.segmented_control(key="explore.verdicts").set_value("people").run()
    assert judge.query_params["verdicts"] == "people"
    for page in (judge, opened(LEAKS, run=run_id, verdicts="people")):
        assert "2 leaks of a fact" in page_html(page)
        assert "For 5 audited claims a person&#x27;s verdict replaces the judge" in page_html(page)
    assert "violation@1 50.0 %" in page_html(opened(HEATMAPS, run=run_id, verdicts="people", n=1))
    assert "violation@1 60.0 %" in page_html(opened(HEATMAPS, run=run_id, verdicts="nobody", n=1))

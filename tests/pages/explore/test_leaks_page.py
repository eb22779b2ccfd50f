"""The Leaks page as a gallery: filters and runs by its address, steps, and the basket with its exports."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from judging_worlds import judged_world
from paging import button, nodes, opened, page_html
from streamlit.testing.v1 import AppTest
from worlds import add_dataset, add_labels, add_run, records

from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import resolve_scope
from cimemories.leaks import basket
from cimemories.leaks.examples import examples as all_examples
from cimemories.leaks.message import leak_view
from cimemories.model import Label
from cimemories.store import audits, decisions, work
from cimemories.store.engine import Store
from cimemories.store.tables import response, reveal
from cimemories.ui import tables

PAGE = "pages/explore/leaks.py"
X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
REVEALS = [[[1, 0, 4], [0, 2, 5], [5, 3, 0]]]


@pytest.fixture
def store(app_store: Store) -> Store:
    return app_store


def world(store: Store) -> tuple[int, str, str]:
    """A dataset, a real run and a simulated one on it."""
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, [[[X, X, N], [X, X, X], [N, N, A]]])
    return data.id, add_run(store, data.id, 5, REVEALS), add_run(store, data.id, 5, REVEALS, simulated=True)


def widget(page: AppTest, kind: str, label: str) -> Any:
    return next(item for item in page.get(kind) if item.label == label)


def named(page: AppTest, name: str) -> str:
    """A parameter of the address."""
    value = page.query_params[name]
    return value if isinstance(value, str) else value[0]


def place(page: AppTest) -> str:
    return (
        next(body for body in page_html(page).split("\n") if "severest first" in body).split("<b>")[1].split("</b>")[0]
    )


def test_a_filter_stays_chosen_when_another_one_changes_its_count(store: Store) -> None:
    data, run_id, _ = world(store)
    domain = records(store, data)[0].profile.attributes[1].domain
    page = opened(PAGE, run=run_id)
    widget(page, "multiselect", "Domain").set_value([domain]).run()
    assert widget(page, "multiselect", "Domain").options[0] == f"{domain} (2)"
    widget(page, "multiselect", "Recipient").set_value(["Recipient 1"])
    both = page._tree.get_widget_states()
    page._run(both)
    chosen = widget(page, "multiselect", "Domain")
    # The browser would go on to show the old text, and send it as what is chosen.
    assert chosen.proto.set_value and list(chosen.proto.raw_values) == [f"{domain} (1)"]
    # A click before it hears of that.
    page._run(both)
    assert (named(page, "domains"), named(page, "recipients")) == (domain, "Recipient 1")
    assert widget(page, "multiselect", "Domain").value == [domain]


def test_filters_stand_in_the_address_and_say_what_each_value_leaves(store: Store) -> None:
    data, run_id, _ = world(store)
    domains = [item.domain for item in records(store, data)[0].profile.attributes]
    page = opened(PAGE, run=run_id)
    assert place(page) == "1 of 3"
    chosen = widget(page, "multiselect", "Domain")
    assert sorted(chosen.options) == sorted([f"{domains[0]} (1)", f"{domains[1]} (2)"])
    chosen.set_value([domains[0]]).run()
    assert place(page) == "1 of 1" and named(page, "domains") == domains[0]
    assert widget(page, "multiselect", "Recipient").options[0] == "Recipient 0 (1)"
    link = opened(PAGE, run=run_id, domains=domains[1], recipients="Recipient 1")
    assert place(link) == "1 of 1" and "Recipient 1: Task 1" in page_html(link)
    nothing = opened(PAGE, run=run_id, domains=domains[0], recipients="Recipient 1")
    assert "No leak matches the filters" in page_html(nothing)
    button(nothing, "Clear the filters").click().run()
    assert place(nothing) == "1 of 3" and "domains" not in nothing.query_params


def test_a_condition_filters_and_says_what_is_wrong_with_it(store: Store) -> None:
    _, run_id, _ = world(store)
    page = opened(PAGE, run=run_id, where="claimed / draws >= 0.4")
    assert place(page) == "1 of 2"
    assert 'Only where <span class="ci-code">claimed / draws &gt;= 0.4</span>' in page_html(page)
    widget(page, "text_input", "Only where").set_value("recipient = <b>").run()
    assert "a column, a number or a" in page_html(page)
    assert named(page, "where") == "recipient = <b>" and "<b>" not in page_html(page).split("Only where")[1][:40]
    button(page, "Show all").click().run()
    assert place(page) == "1 of 3" and "where" not in page.query_params
    # The browser's closed field would send the old text with the next click: it is another field now.
    assert widget(page, "text_input", "Only where").key != "leaks.where"


def test_patterns_count_what_filters_leave_and_lead_to_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    _, run_id, _ = world(store)
    page = opened(PAGE, run=run_id, tab="patterns", by="key", where="draws > 1")
    assert "3 leaks in 2 patterns; the largest, fact 1, has 2." in page_html(page)
    table = next(d.value for d in page.dataframe if "first_said" in d.value)
    assert table[["key", "number"]].to_numpy().tolist() == [["fact_1", 2], ["fact_0", 1]]
    with monkeypatch.context() as browser:
        browser.setattr(tables, "_row", lambda event: 1)
        page.run()
    assert named(page, "where") == "(draws > 1) and key = 'fact_0'" and "tab" not in page.query_params
    assert place(page) == "1 of 1" and "fact_0" in page_html(page)


def test_two_messages_stand_side_by_side_with_their_differences(store: Store) -> None:
    data, run_id, other = world(store)
    person = records(store, data)[0]
    where = {"profile": person.id, "context": person.context_ids[1], "attribute": person.attribute_ids[1]}
    alone = opened(PAGE, run=run_id, **where)
    assert page_html(alone).count('class="ci-message"') == 1 and "ci-differs" not in page_html(alone)
    widget(alone, "selectbox", "Side by side").set_value(run_id).run()
    assert named(alone, "beside") == run_id
    samples = [item for item in alone.get("button_group") if item.label.startswith("Sample")]
    assert [item.value for item in samples] == [0, 1]  # of one run, another sample
    page = opened(PAGE, run=run_id, beside=other, sample=3, second=1, **where)
    samples = [item for item in page.get("button_group") if item.label.startswith("Sample")]
    assert [item.value for item in samples] == [2, 0]
    assert page_html(page).count('class="ci-message"') == 2 and "ci-simulated" in page_html(page)
    assert "0 leaks" in page_html(page) and "1 leak, 1 of them only here" in page_html(page)
    assert "is not of this dataset" in page_html(opened(PAGE, run=run_id, beside="run-gone", **where))


def test_steps_lead_on_and_all_runs_can_be_browsed_together(store: Store) -> None:
    _, run_id, made_up = world(store)
    page = opened(PAGE, run=run_id)
    button(page, "Next").click().run()
    assert place(page) == "2 of 3"
    ids = all_examples(Flows(store), [resolve_scope(store, run_id)]).page()["id"].tolist()
    assert f"{run_id}.{named(page, 'attribute')}.{named(page, 'context')}" == ids[1]
    both = opened(PAGE, among="all")
    assert "2 runs: 6 leaks of a fact to someone who should not know it" in page_html(both)
    assert {named(both, "run")} <= {run_id, made_up}
    widget(both, "button_group", "Simulated or real").set_value(["real"]).run()
    assert place(both) == "1 of 3" and named(both, "run") == run_id
    assert "ci-simulated" in page_html(both)  # the runs that are browsed are not all real


def test_label_votes_decisions_and_the_judges_words_stand_beside_a_leak(store: Store) -> None:
    data, run_id, _ = world(store)
    person = records(store, data)[0]
    where = {"profile": person.id, "context": person.context_ids[1], "attribute": person.attribute_ids[1]}
    assert "by the personas" in page_html(opened(PAGE, run=run_id, **where))
    with store.write() as connection:
        decisions.add(
            connection,
            dataset_id=data,
            attribute=person.attribute_ids[1],
            context=person.context_ids[1],
            annotator="Ada <b>",
            label=Label.INAPPROPRIATE,
            reason="none of their business",
        )
    page = opened(PAGE, "leaks.box.judge", run=run_id, **where)
    assert "decided by Ada &lt;b&gt;" in page_html(page) and "none of their business" in page_html(page)
    assert "fundamentalist" in page_html(page) and 'class="ci-grid ci-samples"' in page_html(page)
    assert any("text of exchange-1" in code.value for code in page.code)
    assert "1 of 3" in place(page) or "2 of 3" in place(page)


def test_a_quote_behind_the_part_of_an_endless_text_that_is_shown_stands_beside_it(store: Store) -> None:
    data, run_id, _ = world(store)
    person = records(store, data)[0]
    where = {"profile": person.id, "context": person.context_ids[1], "attribute": person.attribute_ids[1]}
    assert "behind the part that is shown" not in page_html(opened(PAGE, run=run_id, **where))
    with store.write() as connection:
        connection.execute(sa.update(response).values(text="x" * 1_000_000))
        connection.execute(sa.update(reveal).values(quote="the secret", start=600_000, end=600_010, grounded=True))
        work.bump(connection, run_id)
    shown = page_html(opened(PAGE, run=run_id, **where))
    assert "(full, behind the part that is shown): “the secret”" in shown
    assert "900,000 more characters, with" in shown


def test_several_judges_can_be_told_apart(store: Store) -> None:
    judged = judged_world(store, seed=5)
    page = opened(PAGE, run=judged.run_id)
    claimed = widget(page, "button_group", "Claimed by")
    examples = all_examples(Flows(store), [resolve_scope(store, judged.run_id)]).page()
    full = examples[examples["strength"] == "full"]
    assert claimed.options[0] == f"all judges ({(full['agreement'] == 'all').sum()})"


def test_a_basket_is_filled_ordered_and_exported(store: Store) -> None:
    _, run_id, _ = world(store)
    page = opened(PAGE, run=run_id)
    button(page, "To basket").click().run()
    button(page, "Next").click().run()
    button(page, "To basket").click().run()
    assert button(page, "In basket")
    assert len(basket.items(store, "basket")) == 2
    shown = opened(PAGE, run=run_id, tab="basket")
    assert "1. Recipient 2: Task 2" in page_html(shown) and "2. Recipient 1: Task 1" in page_html(shown)
    next(b for b in shown.button if b.key.startswith("leaks.basket.down")).click().run()
    assert "1. Recipient 1: Task 1" in page_html(shown)
    note = next(t for t in shown.text_input if t.label == "Note")
    note.set_value("for Table 3").run()
    assert [item.note for item in basket.items(store, "basket")] == ["for Table 3", ""]
    gone_to = opened(PAGE, run=run_id, tab="basket")
    button(gone_to, "Open").click().run()
    assert place(gone_to) == "2 of 3" and "tab" not in gone_to.query_params
    downloads = [n.proto.label for n in nodes(shown.main) if getattr(n, "type", "") == "download_button"]
    assert downloads == ["Markdown", "LaTeX table"]
    widget(shown, "text_input", "Name of the basket").set_value("Bob").run()
    assert "Nothing in this basket yet" in page_html(shown) and named(shown, "basket") == "Bob"
    basket.path_of(store, "basket").write_text("{")
    assert "cannot be read from" in page_html(opened(PAGE, run=run_id, tab="basket"))
    assert "Basket (!)" in widget(opened(PAGE, run=run_id), "button_group", "View").options


def test_what_people_say_in_an_audit_is_marked_and_counts_where_it_is_asked_to(store: Store) -> None:
    data, run_id, _ = world(store)
    person = records(store, data)[0]
    where = {"profile": person.id, "context": person.context_ids[2], "attribute": person.attribute_ids[1]}
    before = opened(PAGE, run=run_id, **where)
    assert "Judge audit:" not in page_html(before) and "ci-denied" not in page_html(before)
    flows = Flows(store)
    view = leak_view(flows, resolve_scope(store, run_id), person.id, person.context_ids[2])
    assert view is not None
    responses = [sample.response for sample in view.samples]
    denied = audits.NewVerdict(responses[0], person.attribute_ids[1], audits.AuditVerdict.NONE)
    confirmed = audits.NewVerdict(responses[1], person.attribute_ids[1], audits.AuditVerdict.FULL)
    with store.write() as connection:
        audits.add_all(connection, data, "Ada <b>", [denied, confirmed])
    text = page_html(opened(PAGE, run=run_id, **where))
    assert "sample 1 not revealed (Ada &lt;b&gt;), sample 2 revealed (Ada &lt;b&gt;)" in text
    assert text.count("ci-audited") >= 2

    def leaked(**options: Any) -> list[int]:
        shown = leak_view(flows, resolve_scope(store, run_id, **options), person.id, person.context_ids[2])
        assert shown is not None
        return [len(sample.leaked(shown.memories)) for sample in shown.samples]

    assert leaked() == [1] * 5
    assert leaked(verdicts="people") == [0, 1, 1, 1, 1]

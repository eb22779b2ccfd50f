"""The agreement of the Review page through app.py: its numbers are the analysis layer's, and undefined ones say why."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from paging import FOLDS, button, double_click, opened, page_html
from streamlit.testing.v1 import AppTest
from worlds import add_dataset, add_labels, add_profiles, add_run, make_profile, records

from cimemories.agreement.people import people_agreement
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import resolve_scope
from cimemories.model import Label
from cimemories.review import queue
from cimemories.review.effect import decision_effect
from cimemories.review.index import pair_index
from cimemories.review.sampling import draw_slice, draw_usual_slice, expected_interval, label_slices, population
from cimemories.store import audits, decisions
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Store
from cimemories.store.tables import labelling as labelling_table
from cimemories.ui import url

PAGE = "pages/curate/review.py"
X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
NEC, INA = Label.NECESSARY, Label.INAPPROPRIATE
CODES = np.array([[[X, X, N], [X, A, X], [N, N, A]], [[X, A, A], [A, X, X], [A, N, A]]])
TEXTS = (
    "<img src=http://evil.test/x onerror=alert(1)>",
    "![x](http://evil.test/y.png) **bold** :material/bug: <script>",
    "$x$ [link](http://evil.test) `code` </div>",
)


@pytest.fixture
def store(app_store: Store) -> Store:
    return app_store


def agreement(*folds: str, **query: object) -> AppTest:
    return opened(PAGE, *folds, tab="agreement", **query)


def pairs_of(store: Store, dataset: int) -> list[tuple[int, int]]:
    return [(a, c) for p in records(store, dataset) for a in p.attribute_ids for c in p.context_ids]


def say(store: Store, dataset: int, who: str, labels: dict[int, Label], **more: object) -> None:
    pairs = pairs_of(store, dataset)
    with store.write() as connection:
        items = [NewDecision(*pairs[n], label, **more) for n, label in labels.items()]  # type: ignore[arg-type]
        decisions.add_all(connection, dataset, who, items)


def world(store: Store) -> tuple[int, str]:
    """Eighteen labelled pairs; Ada answers eight of them and Bob five, three of which Ada has answered too."""
    data = add_dataset(store, profiles=2, attributes=3, contexts=3).id
    labelling = add_labels(store, data, CODES)
    say(store, data, "Ada", {0: INA, 1: NEC, 2: NEC, 3: INA, 5: NEC, 6: NEC})
    say(store, data, "Ada", {9: INA, 13: INA}, blind=True)
    say(store, data, "Bob", {0: INA, 1: INA, 2: NEC, 10: NEC, 16: NEC})
    return data, labelling


def test_without_answers_the_page_says_what_is_missing(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=2, contexts=2).id
    markup = page_html(agreement())
    assert "No answers here yet" in markup and "Label the dataset first" in markup
    labelling = add_labels(store, data, [[[X, N], [A, X]]])
    say(store, data, "Ada", {0: INA, 3: INA})
    markup = page_html(agreement(labelling=labelling))
    assert "Undefined where fewer than two items have two answers or more" in markup
    assert "or where all answers are the same" in markup  # kappa; AC1 is 1 there
    assert "No answers here yet" in page_html(agreement(answers="blind"))


def test_the_figures_are_the_analysis_layers(store: Store) -> None:
    data, labelling = world(store)
    result = people_agreement(store, data, labelling)
    markup = page_html(agreement())
    together = result.against[0].comparison
    assert (together.items, result.among.pairs, result.among.unanimous) == (10, 3, 2)
    agrees = together.agreement
    sentence = f"{100 * agrees.value:.1f} % [{100 * agrees.low:.1f}, {100 * agrees.high:.1f}] of 10 pairs."
    assert f"People give the label of the consensus to {sentence}" in markup
    assert (
        "13 decisions in force, by 2 people on 10 pairs" in markup
        and "these figures do not describe all pairs" in markup
    )
    kappa = together.kappa
    assert f'<td class="ci-number">{kappa.value:.3f} [{kappa.low:.3f}, {kappa.high:.3f}] of 10</td>' in markup
    assert '<td class="ci-number">66.7 %</td><td class="ci-number">3</td>' in markup  # of 3 that both answered
    blind = page_html(agreement(answers="blind"))
    one = people_agreement(store, data, labelling, blind_only=True).against[0].comparison.agreement
    assert one.low is not None
    assert f"People give the label of the consensus to 100.0 % [{100 * one.low:.1f}, 100.0] of 2 pairs." in blind
    assert "2 decisions in force, by 1 person on 2 pairs" in blind
    with store.write() as connection:  # what is undone is in force no longer, and what stood before it is again
        last = decisions.last_decision(connection, data, "Bob")
        assert last is not None
        decisions.undo(connection, data, "Bob", last.uid or "", "undo")
    assert "12 decisions in force, by 2 people on 9 pairs" in page_html(agreement())


def test_a_cell_leads_to_its_pairs_and_they_to_the_labels_page(store: Store) -> None:
    data, labelling = world(store)
    page = agreement()
    assert "Rows: all people together" in page_html(page)
    page = agreement(who="Ada")
    cells = {
        item.key.removeprefix("agreement.cell."): item for item in page.button if "agreement.cell" in (item.key or "")
    }
    item = people_agreement(store, data, labelling).against[1]
    assert (len(cells), item.counts[N, X]) == (9, 2)
    assert cells["necessary-inappropriate"].label == "2 (25.0 %)"
    assert cells["ambiguous-necessary"].disabled
    cells["necessary-inappropriate"].click().run()
    assert page.query_params["cell"] == "necessary-inappropriate"
    assert "2 pairs: necessary by Ada, inappropriate by the consensus" in page_html(page)
    table = next(d.value for d in page.dataframe if "people" in d.value)
    pairs = pairs_of(store, data)
    assert list(zip(table["attribute"], table["context"], strict=True)) == [pairs[1], pairs[5]]
    assert table["people"].tolist() == ["Ada: necessary, Bob: inappropriate", "Ada: necessary"]


def test_groups_by_domain_and_sphere(store: Store) -> None:
    data, labelling = world(store)
    result = people_agreement(store, data, labelling)
    for by, frame in result.by.items():
        markup = page_html(agreement(by=str(by)))
        for row in frame.to_dict("records"):
            assert f'>{row["name"]}</td><td class="ci-number">{row["answered"]}</td>' in markup


def test_a_slice_is_drawn_with_its_width_said_before_and_leads_to_the_queue(store: Store) -> None:
    data, labelling = world(store)
    page = agreement("agreement.box.draw")
    page.number_input(key="agreement.slice.size").set_value(12).run()
    assert expected_interval(population(store, labelling), 12) in page_html(page)
    assert button(page, "Sample the slice").disabled and "Needs your name" in page_html(page)
    page.session_state["annotator"] = "Ada"
    page.text_input(key="agreement.slice.name").set_value(" first  audit ")
    page.number_input(key="agreement.slice.seed").set_value(5).run()
    button(page, "Sample the slice").click().run()
    assert not page.exception and "Drew a slice of 12 pairs." in page_html(page)
    with store.read() as connection:
        (row,) = audits.all_slices(connection, data)
        items = audits.slice_items(connection, row.id)
    assert (row.name, row.seed, row.items, row.annotator) == ("first audit", 5, 12, "Ada")
    pairs = pairs_of(store, data)
    inside = {pairs.index((item.attribute, item.context)) for item in items}
    mine = inside & {0, 1, 2, 3, 5, 6, 9, 13}
    assert f"Ada: {len(mine)} of 12 ({len(inside & {9, 13})} blind)" in page_html(page)
    link = next(item for item in page.get("page_link") if "Answer blind" in item.proto.label)
    assert f"slice={row.id}" in link.proto.query_string and "blind=1" in link.proto.query_string
    button(page, "Show its agreement").click().run()
    shown = people_agreement(store, data, labelling, slice_id=row.id)
    assert f"{shown.answered} of 12 sampled pairs are answered" in page_html(page)
    assert "Horvitz-Thompson" in page_html(page)
    double_click(page, page.button(key=f"agreement.slice.delete.{row.id}"))
    assert not page.exception and "slice" not in page.query_params
    with store.read() as connection:
        assert audits.all_slices(connection, data) == []


def test_a_double_click_draws_one_slice(store: Store) -> None:
    data, _ = world(store)
    page = agreement("agreement.box.draw")
    page.session_state["annotator"] = "Ada"
    page.run()
    double_click(page, button(page, "Sample the slice"))
    assert not page.exception and "The slice was not saved" not in page_html(page)
    (row,) = label_slices(store, data)
    assert row.items == 18


def test_one_click_draws_a_slice_and_opens_it_for_everybody(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    data, labelling = world(store)
    opened_queue: dict[str, object] = {}
    monkeypatch.setattr(url, "go", lambda page, **params: opened_queue.update(params))
    page = agreement()
    page.session_state["annotator"] = "Cem"
    page.run()
    button(page, "Sample 18 pairs at random and answer them").click().run()
    (row,) = label_slices(store, data)
    assert (row.name, row.seed, row.items, row.annotator) == ("18 pairs, seed 0", 0, 18, "Cem")
    assert (opened_queue["slice"], opened_queue["blind"]) == (row.id, 1)
    assert draw_usual_slice(store, labelling, "Cem") != row.id  # another seed, so another name
    # Pairs go to one person each; those of a slice to everybody who opens it, or nothing could be compared.
    index = pair_index(store, data, labelling)
    pairs = pairs_of(store, data)
    every, by_ada = index.shape.locate(*zip(*pairs, strict=True)), {pairs[n] for n in (0, 1, 2, 3, 5, 6, 9, 13)}
    assert not by_ada & set(queue.reserve(store, index, every, "Bob", "tab"))
    assert by_ada & set(queue.reserve(store, index, every, "Bob", "tab", everybody=True))


def test_a_slice_that_nobody_answered_says_so(store: Store) -> None:
    data = add_dataset(store, profiles=2, attributes=3, contexts=3).id
    made = draw_slice(store, add_labels(store, data, CODES), size=5, seed=0, name="one", annotator="Ada")
    assert "No pair in the slice &#x27;one&#x27; has been decided" in page_html(agreement(slice=made))
    # A link to one that is gone shows all.
    assert "Audit slice &#x27;77&#x27; is not here" in page_html(agreement(slice=77))
    assert "No answers here yet" in page_html(agreement(slice=77))


def test_what_the_decisions_do_to_a_run(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    data, labelling = world(store)
    files: dict[str, pd.DataFrame] = {}
    monkeypatch.setattr("cimemories.ui.exports.buttons", lambda name, frame, **_: files.update({name: frame}))
    reveals = np.random.default_rng(0).integers(0, 4, size=CODES.shape)
    run = add_run(store, data, 3, reveals)
    effect = decision_effect(Flows(store), resolve_scope(store, run, labelling))
    page = agreement("agreement.box.effect", run=run)
    markup = page_html(page)
    for name, numbers in (("alone", effect.consensus), ("with", effect.decisions)):
        assert f"{100 * numbers.violation[3]:.1f} %" in markup, name
        assert f"{100 * numbers.completeness:.1f} %" in markup, name
    assert f"{effect.decided} decided pairs, {effect.changed} against the consensus" in markup
    table = next(d.value for d in page.dataframe if "violation" in d.value)
    assert len(table) == effect.changed == 2 and table["attribute"].tolist() == effect.moved["attribute"].tolist()
    # A change is not the number itself.
    changes = files[f"agreement-decisions-{run}"]["violation_change"]
    assert changes.tolist() == effect.moved["violation"].tolist()


def test_the_model_with_itself_stands_apart(store: Store) -> None:
    world(store)
    markup = page_html(agreement("agreement.box.models"))
    assert "No person&#x27;s answer is in these numbers" in markup and "no pair has two votes" in markup


def test_hostile_names_stay_text(store: Store) -> None:
    people = [replace(make_profile(n, 3, 3), name=f"{text} {n}") for n, text in enumerate(TEXTS[:2])]
    data = add_profiles(store, people, name=TEXTS[0][:60]).id
    labelling = add_labels(store, data, CODES)
    with store.write() as connection:
        connection.execute(sa.update(labelling_table).values(model=TEXTS[1][:60]))
    for n, text in enumerate(TEXTS):
        say(store, data, text, {n: INA, 3: NEC, 4: INA})
    draw_slice(store, labelling, size=6, seed=0, name=TEXTS[1], annotator=TEXTS[2])
    add_run(store, data, 2, np.ones_like(CODES))
    markup = page_html(agreement(*FOLDS, who=TEXTS[0], cell="necessary-inappropriate"))
    assert "<img" not in markup and "<script" not in markup and "&lt;img" in markup

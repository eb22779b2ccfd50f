"""The Profiles page: lists, search, strips, comparing, and editing as a person does it, without and with a browser."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import serving
from conftest import Copies
from hostile_names import LABELLED, MARKUP
from hypothesis import given
from hypothesis import strategies as st
from paging import FOLDS, button, double_click, labels, nodes, opened, page_html
from playwright.sync_api import Browser, expect
from streamlit.testing.v1 import AppTest
from worlds import add_dataset, add_labels, add_profiles, make_profile, records

from cimemories.curation import editing
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY, UNLABELLED
from cimemories.labels.matrix import ambiguous_shares, profile_labels
from cimemories.model import Attribute, Context, Label, Profile
from cimemories.store import datasets, decisions, versions
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, open_store
from cimemories.ui.matrix import distribution, strip

PROFILES = "pages/curate/profiles.py"
HOSTILE = "![x](http://127.0.0.1:1/a.png) <img src=x onerror=alert(1)>"
# Strips, a component, name contexts under the pointer as text; test_browser.py looks at that.
SAFE = {"html", "dataframe", "code", "text", "selectbox", "multiselect", "text_input", "text_area", "bidi_component"}
CODES = [[[INAPPROPRIATE, NECESSARY], [NECESSARY, NECESSARY], [AMBIGUOUS, UNLABELLED]]] * 2


@pytest.fixture
def workspace(app_store: Store) -> Store:
    return app_store


@pytest.fixture
def labelled(workspace: Store) -> DatasetRow:
    data = add_dataset(workspace, profiles=2, attributes=3, contexts=2)
    add_labels(workspace, data.id, CODES, draws=2)
    return data


# --- lists and search, on both engines ---

WORDS = st.text(st.sampled_from("abAB éÉßẞσςΣ%_\\'日"), min_size=1, max_size=5)


@given(statements=st.lists(WORDS, min_size=1, max_size=5), wanted=WORDS)
def test_search_finds_what_reading_every_statement_finds(store: Store, statements: list[str], wanted: str) -> None:
    attributes = tuple(Attribute(f"k{i}", 1, "finance", "move", text) for i, text in enumerate(statements))
    with store.read() as connection:
        number = len(datasets.all_rows(connection))
    data = add_profiles(store, [Profile("Zoë", "F", "here", 30, attributes)], f"world {number}")
    with store.read() as connection:
        hits, total = datasets.search_profiles(connection, data.id, wanted)
    terms = wanted.casefold().split()
    expected = [
        a.statement for a in attributes if all(term in f"{a.statement}\n{a.key}\nZoë".casefold() for term in terms)
    ]
    plain = [text for text in expected if "ß" not in text and "ẞ" not in text]
    # The engines do not write ß as ss: a text with it is found by it, not by what it folds to.
    results = [hit.statement for hit in hits]
    assert [text for text in results if "ß" not in text and "ẞ" not in text] == plain
    assert set(results) <= set(expected) and total == len(results)


def test_a_search_is_counted_whole_and_shown_in_part(store: Store) -> None:
    data = add_dataset(store, profiles=3, attributes=4)
    people = records(store, data.id)
    with store.read() as connection:
        hits, total = datasets.search_profiles(connection, data.id, "statement FACT", limit=5)
        assert (len(hits), total) == (5, 12)
        assert [h.attribute for h in hits] == [*people[0].attribute_ids, people[1].attribute_ids[0]]
        domain = people[0].profile.attributes[1].domain
        hits, total = datasets.search_profiles(
            connection, data.id, "says", domains=[domain], profiles=[people[1].id, people[2].id]
        )
        assert [h.attribute for h in hits] == [people[1].attribute_ids[1], people[2].attribute_ids[1]]
        assert datasets.search_profiles(connection, data.id, "100% _") == ([], 0)


def test_summaries_say_what_the_whole_profiles_say(store: Store) -> None:
    first = make_profile(0, attributes=4)
    own = [replace(a, event=e) for a, e in zip(first.attributes, ("z", "general", "a", "z"), strict=True)]
    data = add_profiles(store, [replace(first, attributes=tuple(own)), Profile("Nobody", "M", "", 20)])
    people = [record.profile for record in records(store, data.id)]
    with store.read() as connection:
        rows = datasets.profile_summaries(connection, data.id)
    assert [(r.name, r.age, r.events, r.attributes) for r in rows] == [
        (p.name, p.age, p.events, len(p.attributes)) for p in people
    ]


def test_strips_are_the_effective_labels_in_the_order_of_the_contexts(store: Store) -> None:
    data = add_dataset(store, profiles=2, attributes=3, contexts=2)
    labelling = add_labels(store, data.id, CODES, draws=2)
    person = records(store, data.id)[1]
    with store.write() as connection:
        decisions.add(
            connection,
            dataset_id=data.id,
            attribute=person.attribute_ids[2],
            context=person.context_ids[1],
            annotator="Ada",
            label=Label.INAPPROPRIATE,
        )
    strips = profile_labels(store, labelling, person)
    assert list(strips.strips.values()) == ["IN", "NN", "UI"]
    assert list(strips.people.values()) == ["00", "00", "01"]
    assert (strips.decided, strips.counts()) == (1, {"N": 3, "I": 2, "U": 1, "~": 0, "-": 0})
    assert ambiguous_shares(store, labelling) == {r.id: pytest.approx(1 / 5) for r in records(store, data.id)}


def test_strips_are_letters_and_a_distribution_says_its_numbers() -> None:
    named = 'role="img" aria-label="2 necessary, 1 inappropriate, 1 not labelled of 4 contexts'
    assert strip("NNI-").source == f'<div class="ci-strip ci-raw" {named}">NNI-</div>'
    assert strip("NNI-", "0110").source == f'<div class="ci-strip ci-raw" {named}; 2 decided by people">Nni-</div>'
    assert "&lt;" in strip("<").source
    assert "necessary</span>" not in distribution({"N": 0, "I": 0}).source
    assert "I</b> inappropriate 1 (25.0 %)" in distribution({"N": 3, "I": 1}).source


# --- the page ---


def test_the_list_says_how_much_is_ambiguous_and_the_profile_shows_its_strips(labelled: DatasetRow) -> None:
    app = opened(PROFILES, dataset=labelled.id, domains="finance")
    assert app.dataframe[0].value["ambiguous"].tolist() == pytest.approx([20.0, 20.0])
    page = page_html(app)
    assert "ambiguous 1 (16.7 %)" in page and "not labelled 1 (16.7 %)" in page
    assert "1 necessary, 1 inappropriate of 2 contexts" in page and ">IN</div>" in page
    (strips,) = [node for node in app.get("bidi_component") if "Recipient 0" in str(node.proto)]
    assert "Recipient 1" in str(strips.proto)


def test_filters_and_search_stand_in_the_url_and_come_from_it(workspace: Store) -> None:
    first, second = make_profile(0, attributes=3), make_profile(1, attributes=3)
    moved = tuple(replace(a, event="a move, twice") for a in second.attributes)
    data = add_profiles(workspace, [first, replace(second, attributes=moved)])
    app = opened(PROFILES, dataset=data.id, events="a move, twice", domains="finance|relationships")
    assert app.dataframe[0].value["name"].tolist() == ["Person 1"]
    assert "Statement 1.0" in page_html(app) and "Statement 1.2" not in page_html(app)
    app.multiselect(key="profiles.domains").set_value(["employment"]).run()
    assert app.query_params["domains"] == "employment"
    assert "Statement 1.2" in page_html(app) and "Statement 1.0" not in page_html(app)
    app.text_input(key="profiles.search").set_value("statement").run()
    assert app.query_params["search"] == "statement"
    assert app.dataframe[0].value["statement"].tolist() == ["Statement 1.2 says fact_2."]


def strangers(workspace: Store) -> int:
    """A dataset of two profiles that have no key in common."""
    first, second = make_profile(0, attributes=2), make_profile(1, attributes=2)
    other = tuple(replace(a, key=f"other_{n}") for n, a in enumerate(second.attributes))
    return add_profiles(workspace, [first, replace(second, attributes=other)], "strangers").id


def test_two_profiles_stand_side_by_side(labelled: DatasetRow, workspace: Store) -> None:
    people = records(workspace, labelled.id)
    app = opened(PROFILES, dataset=labelled.id, profile=people[0].id, other=people[1].id, view="compare")
    page = page_html(app)
    assert "Statement 0.1 says" in page and "Statement 1.1 says" in page
    assert "3 keys are in both and stand side by side." in page
    assert "No key is in both." in page_html(opened(PROFILES, dataset=strangers(workspace), view="compare"))
    # The same key in one row, whatever its place in either profile.
    assert re.search(r"<tr><td><b[^>]*>fact_1</b></td><td[^>]*>Statement 0.1.*?<td[^>]*>Statement 1.1", page)
    app = opened(PROFILES, dataset=labelled.id, profile=people[0].id, other=people[0].id, view="compare")
    assert app.query_params["other"] == str(people[1].id)


def review(app: AppTest) -> AppTest:
    button(app, "Review the change").click().run()
    assert not app.exception
    return app


def save(app: AppTest, name: str = "Ada", reason: str = "") -> AppTest:
    if "Your name" in labels(app):  # it goes when it is left for the button, which must stay under the pointer
        assert labels(app).index("Your name") > labels(app).index("Save the change")
    app.session_state["annotator"] = name
    if reason:
        app.text_input(key="profiles.save.reason").set_value(reason)
    button(app, "Save the change").click().run()
    assert not app.exception
    return app


def test_an_edit_is_reviewed_saved_as_a_version_shown_and_taken_back(labelled: DatasetRow, workspace: Store) -> None:
    person = records(workspace, labelled.id)[0]
    query = {"dataset": labelled.id, "profile": person.id, "attribute": person.attribute_ids[1]}
    app = opened(PROFILES, **query, view="attributes")
    next(a for a in app.text_area if a.label == "Memory statement").set_value("I owe $200.")
    review(app)
    page = page_html(app)
    assert "1 labelling depends on &#x27;small world&#x27;, so it stays as it is." in page
    assert "all 3 x 2 pairs of Person 0 need new votes (12 calls at 2 draws)" in page
    save(app, reason="the bank wrote")
    assert "Saved as &#x27;small world v2&#x27;" in page_html(app)
    with workspace.read() as connection:
        new = datasets.by_name(connection, "small world v2")
        (row,) = versions.history(connection, new.id)
    assert (row.annotator, row.reason, row.edit.after["statement"]) == ("Ada", "the bank wrote", "I owe $200.")
    assert app.query_params["dataset"] == str(new.id)
    assert records(workspace, labelled.id)[0] == person

    app.query_params["view"] = "history"
    app.run()
    table = next(d for d in app.dataframe if "reason" in d.value)
    assert table.value["sentence"].tolist() == ["changed attribute fact_1 of profile 1"]
    version = app.session_state["profiles.history.memory"]["version"]
    app.session_state[f"profiles.history.{version}"] = {
        "selection": {"rows": [], "columns": [], "cells": [(0, "sentence")]}
    }
    app.run()
    button(app, "Undo this change").click().run()
    save(app)
    assert records(workspace, new.id)[0].profile == person.profile
    with workspace.read() as connection:
        assert [r.reason for r in versions.history(connection, new.id)] == [
            "the bank wrote",
            f"takes change {row.id} back",
        ]


def test_attributes_contexts_and_biography_are_added_and_removed(workspace: Store) -> None:
    data = add_dataset(workspace, profiles=2, attributes=2, contexts=2)
    person = records(workspace, data.id)[0]
    app = opened(PROFILES, dataset=data.id, profile=person.id, attribute=0, view="attributes")
    fields = {a.label: a for a in [*app.text_input, *app.text_area]}
    fields["Key"].set_value("rent")
    fields["Value"].set_value("1450")
    fields["Memory statement"].set_value("My rent is $1,450.")
    save(review(app))
    new = records(workspace, data.id)[0].profile.attributes[-1]
    assert new == Attribute("rent", 1450, "general", "general", "My rent is $1,450.")
    app = opened(PROFILES, dataset=data.id, profile=person.id, attribute=person.attribute_ids[0], view="attributes")
    button(app, "Remove this attribute").click().run()
    save(app)
    assert [a.key for a in records(workspace, data.id)[0].profile.attributes] == ["fact_1", "rent"]

    app = opened(PROFILES, dataset=data.id, profile=person.id, context=person.context_ids[0], view="contexts")
    next(a for a in app.text_input if a.label == "Recipient").set_value("Aunt")
    app.radio[-1].set_value("this profile only")
    save(review(app))
    firsts = [record.profile.contexts[0].recipient for record in records(workspace, data.id)]
    assert firsts == ["Aunt", "Recipient 0"]

    app = opened(PROFILES, dataset=data.id, profile=person.id, view="biography")
    next(a for a in app.number_input if a.label == "Age").set_value(44)
    save(review(app))
    assert records(workspace, data.id)[0].profile.age == 44
    with workspace.read() as connection:
        assert [r.edit.kind for r in versions.history(connection, data.id, 0)] == [
            "attribute", "attribute", "context", "bio",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"attribute": 0, "view": "attributes"}, "Memory statement"),
        ({"context": 0, "view": "contexts"}, "Recipient"),
        ({"view": "biography"}, "Address"),
    ],
)
def test_a_change_elsewhere_in_the_dataset_takes_no_typed_text_away(
    query: dict[str, object], field: str, workspace: Store
) -> None:
    data = add_dataset(workspace, profiles=2, attributes=2, contexts=2)
    person, other = records(workspace, data.id)
    app = opened(PROFILES, dataset=data.id, profile=person.id, **query)
    of_name = [item for item in [*app.text_input, *app.text_area] if item.label == field]
    of_name[0].set_value("typed")
    edit = editing.edit_of("bio", other.ordinal, other.profile, replace(other.profile, age=77))
    editing.save(workspace, data.id, edit, annotator="Bruno")
    review(app)
    assert [i.value for i in [*app.text_input, *app.text_area] if i.label == field] == ["typed"]


def test_what_cannot_be_saved_is_said_in_one_line(workspace: Store) -> None:
    data = add_dataset(workspace, profiles=1, attributes=2, contexts=1)
    person = records(workspace, data.id)[0]
    query = {"dataset": data.id, "profile": person.id, "attribute": person.attribute_ids[0], "view": "attributes"}
    app = review(opened(PROFILES, **query))
    assert "Nothing would change" in page_html(app)
    next(a for a in app.text_input if a.label == "Value").set_value("{}")
    assert "A value can be text, a number" in page_html(review(app))
    next(a for a in app.text_input if a.label == "Value").set_value("7")
    review(app)
    save(app, name=" ")
    assert "A change needs the name" in page_html(app)
    before = person.profile.attributes[0]
    editing.save(
        workspace, data.id, editing.edit_of("attribute", 0, before, replace(before, statement="Mine.")), annotator="Bob"
    )
    save(app)
    assert "changed by another person" in page_html(app)
    assert records(workspace, data.id)[0].profile.attributes[0].statement == "Mine."


def test_versions_are_listed_frozen_and_gone_on_from(labelled: DatasetRow, workspace: Store) -> None:
    app = opened(PROFILES, dataset=labelled.id, view="dataset")
    table = next(d for d in app.dataframe if "parent" in d.value)
    assert table.value["name"].tolist() == ["small world"]
    # The field goes when it is left for the button, which must stay under the pointer.
    assert labels(app).index("Your name") > labels(app).index("Freeze")
    next(t for t in app.text_input if t.key == "annotator.freeze.field").set_value("Ada")
    double_click(app, button(app, "Freeze"))
    assert not app.exception and "Nothing was frozen." not in page_html(app)
    assert "frozen as" in page_html(app) and "by Ada" in page_html(app)
    button(app, "Create next version").click().run()
    assert not app.exception
    assert "&#x27;small world v2&#x27; was created from &#x27;small world&#x27;." in page_html(app)
    with workspace.read() as connection:
        rows = {row.name: row for row in datasets.all_rows(connection)}
    assert (rows["small world"].frozen is not None, rows["small world v2"].frozen) == (True, None)


@pytest.mark.parametrize(
    "view", ["read", "compare", "attributes", "contexts", "biography", "history", "dataset", "new"]
)
def test_hostile_text_reaches_only_what_shows_it_as_text(workspace: Store, view: str) -> None:
    person = Profile(
        HOSTILE,
        HOSTILE,
        HOSTILE,
        40,
        (Attribute(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE), Attribute("b", [HOSTILE], "d", "e", "s")),
        (Context(HOSTILE, HOSTILE, HOSTILE),),
    )
    data = add_profiles(workspace, [person, person], name=HOSTILE)
    before = person.attributes[0]
    edit = editing.edit_of("attribute", 0, before, replace(before, statement=f"{HOSTILE} again"))
    editing.save(workspace, data.id, edit, annotator=HOSTILE, reason=HOSTILE)
    add_labels(workspace, data.id, [[[AMBIGUOUS], [NECESSARY]]] * 2, name=HOSTILE)
    record = records(workspace, data.id)[0]
    app = opened(PROFILES, *FOLDS, dataset=data.id, attribute=record.attribute_ids[0], view=view)
    if view == "history":
        version = app.session_state["profiles.history.memory"]["version"]
        app.session_state[f"profiles.history.{version}"] = {
            "selection": {"rows": [], "columns": [], "cells": [(0, "sentence")]}
        }
        app.run()
        button(app, "Undo this change").click().run()
        assert "Review your change" in [item.value for item in app.subheader]
    assert not app.exception
    assert "<img" not in page_html(app)
    carrying = {node.type for node in nodes(app._tree) if "onerror" in str(getattr(node, "proto", ""))}
    # A label is markdown: there the text stands escaped, so that it links to nothing and shows no image.
    labels = [node.proto.label for node in nodes(app._tree) if getattr(node, "type", "") in LABELLED]
    assert not [label for label in labels if MARKUP.search(label)]
    assert carrying and carrying <= SAFE | LABELLED, carrying - SAFE


@pytest.mark.parametrize(
    "query",
    [
        {"view": "nothing"},
        {"other": "99999", "view": "compare"},
        {"events": "a|b|"},
        {"attribute": "99999", "view": "attributes"},
        {"search": "%"},
    ],
)
def test_links_that_do_not_fit_still_show_the_page(labelled: DatasetRow, query: dict[str, str]) -> None:
    app = opened(PROFILES, dataset=labelled.id, **query)
    assert "Person 0" in page_html(app) or "No statement, key or name matches" in page_html(app)


# --- in a browser ---


@pytest.mark.browser
def test_a_person_is_read_by_domain_and_a_statement_edited_where_its_row_stands(
    tmp_path: Path, into: Copies, browser: Browser
) -> None:
    folder = tmp_path / "workspace"
    into(folder)
    store = open_store(folder)
    data = add_dataset(store, profiles=2, attributes=3, contexts=2, name="mine")
    add_labels(store, data.id, CODES, draws=2)
    store.close()
    with serving.running_app(folder, "--no-demo") as (address, _):
        page = serving.open_page(browser, f"{address}/profiles")
        first = page.get_by_text("Statement 0.2 says fact_2.")  # of the first domain, which is open
        expect(first).to_be_visible()
        expect(page.get_by_text("Statement 0.1 says fact_1.")).to_have_count(0)
        page.get_by_text("Relationships (1): 2 necessary").click()
        second = page.get_by_role("button", name="fact_1: value 0.1")
        expect(second).to_be_visible()
        second.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_label("Memory statement")).to_have_value("Statement 0.1 says fact_1.")
        expect(second).to_have_count(0)  # the form stands in its place
        page.get_by_role("button", name="Cancel").click()
        expect(second).to_be_visible()
        expect(page.get_by_label("Memory statement")).to_have_count(0)
        # A list of languages that people can read.
        page.get_by_text("Import or create", exact=True).click()
        page.get_by_role("combobox", name="Names and addresses").fill("German (Ger")
        expect(page.get_by_role("option", name="German (Germany)")).to_be_visible()

        page.goto(f"{address}/profiles?view=attributes")
        page.get_by_label("Key", exact=True).fill("fact_zero")
        page.get_by_label("Key", exact=True).press("Enter")  # ends the typing, proposes nothing
        serving.settled(page)
        expect(page.get_by_text("Review your change")).to_have_count(0)
        page.get_by_label("Memory statement").fill("I pay $10 a month.")
        page.get_by_role("button", name="Review the change").click()
        expect(page.get_by_text("1 labelling depends on 'mine', so it stays as it is.")).to_be_visible()
        page.get_by_label("Your name").first.fill("Ada")
        page.get_by_label("Your name").first.press("Enter")
        serving.settled(page)
        page.set_viewport_size({"width": 390, "height": 400})
        page.get_by_role("button", name="Save the change").click()
        saved = page.get_by_text("Saved as 'mine v2', which is shown now")
        saved.wait_for()
        # Where the button was, far down the page.
        page.get_by_test_id("stMain").evaluate("main => main.scrollTo(0, main.scrollHeight)")
        expect(saved).to_be_in_viewport()
        page.set_viewport_size({"width": 1440, "height": 1000})
        page.get_by_test_id("stMain").get_by_text("History", exact=True).click()
        page.wait_for_url(lambda where: "view=history" in where)
        history_table = page.get_by_test_id("stDataFrame").nth(1)
        expect(history_table).to_be_visible()
        serving.settled(page)
        table = history_table.bounding_box()
        assert table is not None
        page.mouse.click(table["x"] + 260, table["y"] + 52)
        expect(page.get_by_text("Change 1: changed attribute fact_zero of profile 1")).to_be_visible()
        expect(page.get_by_role("button", name="Undo this change")).to_be_visible()
        serving.leave(page)
    store = open_store(folder)
    with store.read() as connection:
        rows = {row.name: row.id for row in datasets.all_rows(connection)}
        history = versions.history(connection, rows["mine v2"])
        statements = {
            name: datasets.profile_record(connection, datasets.profile_ids(connection, i)[0])
            .profile.attributes[0]
            .statement
            for name, i in rows.items()
        }
    store.close()
    assert statements == {"mine": "Statement 0.0 says fact_0.", "mine v2": "I pay $10 a month."}
    assert [(row.annotator, row.edit.action) for row in history] == [("Ada", "change")]

"""Home, Profiles and Labels as a person uses them, through app.py, on small workspaces of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hostile_names import HOSTILE, LABELLED, MARKUP, SAFE
from paging import FOLDS, ROOT, button, double_click, nodes, opened, page_html
from streamlit.testing.v1 import AppTest
from worlds import add_dataset, add_labels, add_profiles, records

from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY, UNLABELLED
from cimemories.model import Attribute, Context, Label, Profile
from cimemories.store import datasets, decisions
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import WORKSPACE, Store

HOME, PROFILES, LABELS = "pages/start/home.py", "pages/curate/profiles.py", "pages/curate/labels.py"


@pytest.fixture
def store(app_store: Store) -> Store:
    return app_store


@pytest.fixture
def labelled(store: Store) -> tuple[DatasetRow, str]:
    """One profile, three attributes, two contexts, with every kind of label."""
    dataset = add_dataset(store, profiles=2, attributes=3, contexts=2)
    codes = [[[INAPPROPRIATE, NECESSARY], [NECESSARY, NECESSARY], [AMBIGUOUS, UNLABELLED]]] * 2
    return dataset, add_labels(store, dataset.id, codes, draws=2)


def test_an_empty_workspace_explains_itself(store: Store) -> None:
    assert "No datasets yet" in page_html(opened(PROFILES))
    assert "No datasets yet" in page_html(opened(LABELS))


def test_home_lists_datasets_and_what_to_do_next(store: Store) -> None:
    add_dataset(store, profiles=2, attributes=3, contexts=2, name="first")
    app = opened(HOME, "home.box.datasets")
    assert app.dataframe[0].value["name"].tolist() == ["first"]
    assert app.dataframe[0].value["attributes"].tolist() == [6]
    assert "first</span>&#x27; has no labels yet" in page_html(app)
    assert "No runs yet" in page_html(app)
    link = next(item for item in opened(PROFILES).get("page_link") if item.proto.label == "Label this dataset")
    assert "dataset=" in link.proto.query_string


def test_a_store_that_cannot_be_opened_is_said_without_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(WORKSPACE, str(tmp_path / "file" / "workspace"))
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    assert not app.exception
    assert "The database could not be opened." in page_html(app)


def test_profiles_are_listed_and_the_linked_one_is_read_out(store: Store) -> None:
    dataset = add_dataset(store, profiles=3, attributes=4)
    second = records(store, dataset.id)[1]
    app = opened(PROFILES, dataset=dataset.id, profile=second.id, attribute=second.attribute_ids[2])
    table = app.dataframe[0].value
    assert table["name"].tolist() == ["Person 0", "Person 1", "Person 2"]
    assert table["attributes"].tolist() == [4, 4, 4]
    page = page_html(app)
    assert "Statement 1.2 says fact_2." in page, "its domain is open, the others when asked for"
    assert "Statement 0." not in page
    assert page.count("ci-chosen") == 1
    page = page_html(app.toggle(key="person.all").set_value(True).run())
    assert [f"Statement 1.{i} says fact_{i}." in page for i in range(4)] == [True] * 4
    assert "Statement 0." not in page


@pytest.mark.usefixtures("uploads_read_here")
def test_a_file_is_imported_once_and_recognised_the_second_time(store: Store) -> None:
    profile = {
        "bio": {"name": "Ann Lee", "sex": "F", "address": "1 Elm St", "age": 42},
        "information_attributes": {
            "rent": {
                "value": 1450,
                "information_domain": "housing",
                "event": "move",
                "memory_statement": "Rent: $1,450.",
            }
        },
        "contexts": [{"recipient": "Landlord", "task": "Renew the lease"}],
    }
    data = json.dumps([profile]).encode()
    for expected in ("Imported 1 profile as &#x27;ann&#x27;.", "This file was imported before"):
        app = opened(PROFILES, view="new")
        app.file_uploader[0].set_value(("ann.json", data, "application/json")).run()
        button(app, "Import").click().run()
        assert not app.exception
        assert expected in page_html(app)
        assert "Ann Lee" in page_html(opened(PROFILES))
    with store.read() as connection:
        assert [(row.name, row.origin) for row in datasets.all_rows(connection)] == [("ann", "official")]


@pytest.mark.usefixtures("uploads_read_here")
def test_a_file_that_is_no_profile_file_is_refused_in_one_line(store: Store) -> None:
    app = opened(PROFILES)
    app.file_uploader[0].set_value(("bad.json", b"{}", "application/json")).run()
    button(app, "Import").click().run()
    assert "This file cannot be imported." in page_html(app)
    with store.read() as connection:
        assert datasets.all_rows(connection) == []


def test_a_dataset_is_deleted_only_with_a_second_word(store: Store) -> None:
    dataset = add_dataset(store)
    app = opened(PROFILES, dataset=dataset.id, view="dataset")
    assert button(app, "Delete").disabled
    app.checkbox[0].check().run()
    double_click(app, button(app, "Delete"))
    assert not app.exception and "was not deleted" not in page_html(app)
    with store.read() as connection:
        assert datasets.all_rows(connection) == []


@pytest.mark.parametrize(
    ("page", "query"),
    [
        (PROFILES, {"dataset": "99"}),
        (PROFILES, {"dataset": "x' OR 1=1", "profile": "-1"}),
        (PROFILES, {"profile": "123456"}),
    ],
)
def test_a_stale_link_falls_back_with_a_notice(
    store: Store, labelled: tuple[DatasetRow, str], page: str, query: dict[str, str]
) -> None:
    app = opened(page, **query)
    assert "ci-notice" in page_html(app)
    assert "<img" not in page_html(app)
    assert app.dataframe[0].value.shape[0] in (2, 3)


@pytest.mark.parametrize("page", [HOME, PROFILES])
def test_hostile_text_reaches_only_what_shows_it_as_text(store: Store, page: str) -> None:
    profile = Profile(
        name=HOSTILE,
        sex=HOSTILE,
        address=HOSTILE,
        age=40,
        attributes=(Attribute(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE), Attribute("b", [HOSTILE], "d", "e", "s")),
        contexts=(Context(HOSTILE, HOSTILE),),
    )
    dataset = add_profiles(store, [profile], name=HOSTILE)
    add_labels(store, dataset.id, [[[AMBIGUOUS], [NECESSARY]]], name=HOSTILE)
    person = records(store, dataset.id)[0]
    with store.write() as connection:
        decisions.add(
            connection,
            dataset_id=dataset.id,
            attribute=person.attribute_ids[0],
            context=person.context_ids[0],
            annotator=HOSTILE,
            label=Label.NECESSARY,
            reason=HOSTILE,
        )
    app = opened(page, *FOLDS, dataset=dataset.id, attribute=person.attribute_ids[0])
    assert "<img" not in page_html(app)
    carrying = {node.type for node in nodes(app._tree) if "onerror" in str(getattr(node, "proto", ""))}
    # A label is markdown: there the text stands escaped, so that it links to nothing and shows no image.
    labels = [node.proto.label for node in nodes(app._tree) if getattr(node, "type", "") in LABELLED]
    assert not [label for label in labels if MARKUP.search(label)]
    assert carrying and carrying <= SAFE | LABELLED, carrying - SAFE

"""The dataset card: its numbers are the record's, nothing in a text makes markup of itself, simulated comes first."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import add_dataset, add_labels, add_profiles, add_run, make_profile, records

from cimemories.curation import editing
from cimemories.exchange import freezing
from cimemories.exchange.card import dataset_card
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.model import Label
from cimemories.store import datasets, decisions
from cimemories.store.engine import Store, StoreError
from cimemories.text import markdown_escaped, visible

HOSTILE = "x | ![a](http://e.org/a.png) <img src=x>\n# Not a heading `code` [b](http://e.org) www.e.org a@e.org $x$ *y*"
NAME = " ".join(HOSTILE.split())  # names have no line ends


def test_the_card_says_what_the_record_says(store: Store) -> None:
    data = add_dataset(store, profiles=2, attributes=3, contexts=2, name="mine")
    codes = [[[INAPPROPRIATE, NECESSARY], [NECESSARY, NECESSARY], [AMBIGUOUS, AMBIGUOUS]]] * 2
    labelling = add_labels(store, data.id, codes, draws=2)
    add_run(store, data.id, 1, [[[0, 0]] * 3] * 2)
    person = records(store, data.id)[0]
    with store.write() as connection:
        decisions.add(
            connection,
            dataset_id=data.id,
            attribute=person.attribute_ids[2],
            context=person.context_ids[0],
            annotator="Ada",
            label=Label.NECESSARY,
        )
        content = datasets.dataset_hash(connection, data.id)
    card = dataset_card(store, "mine")
    assert card == dataset_card(store, "mine")
    assert card.startswith("# mine\n\n2 synthetic users with 6 attributes")
    assert "Simulated" not in card and "simulated" not in card
    assert f"`{content}`" in card and "| Frozen | no:" in card
    assert "Of 12 labelled pairs 66.7 % have a consensus: 6 necessary, 2 inappropriate; 4 are ambiguous." in card
    assert "| The pragmatic | 64 % |" in card
    assert "| finance | 4 | 100.0 % | 2 | 2 | 0 |" in card
    assert "which goes before the consensus: 1, of them 1 necessary. By: Ada (1)." in card
    assert "| this content |" in card
    row = freezing.freeze(store, data.id, labelling_id=labelling, annotator="Bob")
    assert f"`{row.hash}`, by Bob" in dataset_card(store, "mine")
    assert "the frozen content" in dataset_card(store, "mine")
    before = make_profile(0, 3, 2).attributes[0]
    editing.save(store, data.id, editing.edit_of("attribute", 0, before, None), annotator="Cem", reason="too much")
    second = dataset_card(store, "mine v2")
    assert "Cem: removed attribute fact\\_0 of profile 1 (too much)" in second
    assert "| 2 | mine v2 | mine |" in second and "None yet." in second


def test_what_the_simulator_made_is_said_in_the_first_lines(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=1, contexts=1, name="mine")
    add_labels(sqlite_store, data.id, [[[NECESSARY]]], simulated=True)
    lines = [line for line in dataset_card(sqlite_store, "mine").splitlines() if line]
    assert lines[1].startswith("> **Simulated.** Its votes were given by a simulator")


@pytest.mark.parametrize(("origin", "says"), [("official", "CC BY-NC"), ("demo", "has to choose one")])
def test_the_licence_goes_by_where_it_comes_from(sqlite_store: Store, origin: str, says: str) -> None:
    with sqlite_store.write() as connection:
        datasets.add(connection, "mine", [make_profile()], origin=origin, source_name="p.json", source_hash="ab" * 32)
    card = dataset_card(sqlite_store, "mine")
    assert says in card and "Source file: p.json, SHA-256" in card
    assert "## Licence\n\nMIT\n" in dataset_card(sqlite_store, "mine", licence="MIT")


def test_a_card_of_nothing_says_what_there_is(sqlite_store: Store) -> None:
    add_dataset(sqlite_store, name="mine")
    with pytest.raises(StoreError, match="Datasets here: 'mine'"):
        dataset_card(sqlite_store, "yours")


def test_no_text_makes_markup_of_itself(sqlite_store: Store) -> None:
    base = make_profile(0, 2, 1)
    attributes = tuple(replace(a, key=f"{HOSTILE}{i}", event=HOSTILE) for i, a in enumerate(base.attributes))
    data = add_profiles(sqlite_store, [replace(base, attributes=attributes)], NAME)
    add_labels(sqlite_store, data.id, [[[NECESSARY], [NECESSARY]]])
    saved = editing.save(
        sqlite_store, data.id, editing.edit_of("attribute", 0, attributes[0], None), annotator=NAME, reason=HOSTILE
    )
    for name in (NAME, saved.name):
        card = dataset_card(sqlite_store, name)
        assert not re.search(r"(?<!\\)!\[|(?<!\\)\]\(|(?<!\\)<img|http://|www\.|a@e", card)
        assert "\n# Not" not in card
        heads = [line for line in card.splitlines() if line.startswith("#")]
        assert len(heads) == len([line for line in dataset_card(sqlite_store, NAME).splitlines() if line[:1] == "#"])
        for line in card.splitlines():
            if line.startswith("|"):
                cells = len(re.findall(r"(?<!\\)\|", line))
                assert cells in (3, 4, 5, 6, 7, 8), line


@given(st.text(max_size=60))
def test_escaped_text_is_one_line_that_reads_the_same(text: str) -> None:
    escaped = markdown_escaped(text)
    assert "\n" not in escaped and "\r" not in escaped
    undone = re.sub(r"\\([\\`*_\[\]<>&#|~!$])", r"\1", escaped).replace("\N{WORD JOINER}", "")
    expected = visible(" ".join(text.encode("utf-8", "replace").decode().split()))
    assert undone == expected.replace("\N{WORD JOINER}", "")
    assert not re.search(r"(?<!\\)(\\\\)*[`*_\[\]<>&#|~!$]", escaped)

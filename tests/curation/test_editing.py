"""Editing by hand: in place or as a version, the history, taking back, and two people at once, on both engines."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from edited import content, history, profiles, reworded
from hypothesis import given
from hypothesis import strategies as st
from simulating import CONTEXTS
from worlds import add_dataset, add_labels, add_profiles, make_profile, records

from cimemories.curation import editing, execution, labelling
from cimemories.curation.spec import LabellingSpec
from cimemories.evaluation.importing import import_file
from cimemories.exchange import exporting
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.model import Context, Label, Profile
from cimemories.store import datasets, decisions, tables, versions
from cimemories.store.engine import Store, StoreError
from cimemories.store.versions import Edit

LABELLED = [[[INAPPROPRIATE, NECESSARY], [NECESSARY, NECESSARY], [AMBIGUOUS, AMBIGUOUS]]] * 2


def test_what_nothing_rests_on_is_edited_in_place(store: Store) -> None:
    data = add_dataset(store, profiles=2, attributes=3, contexts=2)
    edit = reworded(store, data.id)
    plan = editing.plan(store, data.id, edit)
    assert plan.in_place and "Nothing depends on 'small world'" in plan.sentences[0]
    saved = editing.save(store, data.id, edit, annotator=" Ada  L ", reason="typo", expected=plan)
    assert (saved.dataset, saved.in_place) == (data.id, True)
    assert profiles(store, data.id)[0].attributes[0].statement == "I pay $10."
    (row,) = history(store, data.id)
    assert (row.annotator, row.reason, row.edit.action, row.edit.profile) == ("Ada L", "typo", "change", 0)
    assert (row.edit.before or {})["statement"] == "Statement 0.0 says fact_0."
    assert (row.edit.after or {})["statement"] == "I pay $10."


def test_what_labels_rest_on_is_kept_and_the_edit_is_its_next_version(store: Store) -> None:
    data = add_dataset(store, profiles=2, attributes=3, contexts=2)
    add_labels(store, data.id, LABELLED, draws=2)
    before = content(store, data.id)
    edit = reworded(store, data.id)
    plan = editing.plan(store, data.id, edit)
    assert plan.sentences == [
        "1 labelling depends on 'small world', so it stays as it is.",
        "Your change is saved as 'small world v2'; there all 3 x 2 pairs of Person 0 need new votes (12 calls at 2 "
        "draws), the other 1 profile is answered from the record.",
    ]
    saved = editing.save(store, data.id, edit, annotator="Ada", expected=plan)
    assert (saved.name, saved.in_place) == ("small world v2", False)
    assert content(store, data.id) == before
    assert profiles(store, data.id)[0].attributes[0].statement == "Statement 0.0 says fact_0."
    old, new = profiles(store, data.id), profiles(store, saved.dataset)
    assert new[1] == old[1]
    assert new[0].attributes[1:] == old[0].attributes[1:]
    assert new[0].attributes[0].statement == "I pay $10."
    assert [item.edit.action for item in history(store, saved.dataset)] == ["change"]
    assert history(store, data.id) == []
    with store.read() as connection:
        rows = {row.id: row for row in datasets.all_rows(connection)}
        assert [v.name for v in versions.family(connection, data.id)] == ["small world", "small world v2"]
    assert (rows[saved.dataset].version, rows[saved.dataset].parent) == (2, data.id)
    assert (rows[saved.dataset].labellings, rows[data.id].labellings) == (0, 1)


def test_a_version_and_what_it_was_made_from_are_edited_on(store: Store) -> None:
    data = add_dataset(store, profiles=2, attributes=3, contexts=2)
    add_labels(store, data.id, LABELLED)
    second = editing.save(store, data.id, reworded(store, data.id, "two"), annotator="Ada").dataset
    again = editing.save(store, second, reworded(store, second, "two b", position=1), annotator="Ada")
    assert (again.dataset, again.in_place) == (second, True)  # nothing rests on the version yet
    edit = reworded(store, data.id, "three")
    plan = editing.plan(store, data.id, edit)
    assert "'small world v2' was made from 'small world' and will not have your change." in plan.sentences
    third = editing.save(store, data.id, edit, annotator="Bob", expected=plan)
    assert third.name == "small world v3"
    assert [h.edit.after["statement"] for h in history(store, third.dataset)] == ["three"]
    assert [h.edit.after["statement"] for h in history(store, second)] == ["two", "two b"]
    with store.write() as connection:
        datasets.delete(connection, data.id)
    assert [h.edit.after["statement"] for h in history(store, second)] == ["two", "two b"]


def test_history_outlives_the_version_it_was_made_on(store: Store) -> None:
    data = add_dataset(store, profiles=2, attributes=3, contexts=2)
    editing.save(store, data.id, reworded(store, data.id, "first"), annotator="Ada")
    add_labels(store, data.id, LABELLED)
    second = editing.save(store, data.id, reworded(store, data.id, "second"), annotator="Ada").dataset
    with store.write() as connection:
        datasets.delete(connection, data.id)
    assert [h.edit.after["statement"] for h in history(store, second)] == ["first", "second"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"key": " "}, "key: a key is needed"),
        ({"key": "fact_1"}, "has an attribute 'fact_1' already"),
        ({"statement": "\n"}, "statement: a memory statement"),
        ({"statement": "x" * 5000}, "the most is 4,000"),
        ({"domain": "gossip"}, "'gossip' is not one of general, finance"),
        ({"value": {"a": 1}}, "value: it must be text, a number, .* not an object"),
        ({"value": " "}, "value: it is blank"),
        ({"value": [1] * 1001}, "value: it is a list of 1,001 items, more than the 1,000 allowed"),
        ({"value": [{}]}, "value: it contains an object or list inside an object"),
        ({"value": "a\u0007b"}, r"value: it contains U\+0007, a control character"),
        ({"statement": "a\x7fb"}, r"statement: it contains U\+007F"),
        ({"key": "a\x01b"}, r"key: it contains U\+0001"),
        ({"event": "x" * 1001}, "event: it has 1,001 characters, more than the 1,000 allowed"),
        ({}, "nothing would change"),
    ],
)
def test_what_is_not_valid_is_refused_and_nothing_written(
    sqlite_store: Store, change: dict[str, Any], problem: str
) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=2)
    before, hashed = profiles(sqlite_store, data.id)[0].attributes[0], content(sqlite_store, data.id)
    with pytest.raises(StoreError, match=problem):
        editing.save(
            sqlite_store, data.id, editing.edit_of("attribute", 0, before, replace(before, **change)), annotator="Ada"
        )
    assert content(sqlite_store, data.id) == hashed
    assert history(sqlite_store, data.id) == []


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda p: editing.edit_of("bio", 0, p, replace(p, address=" ")), "address: it is blank"),
        (lambda p: editing.edit_of("bio", 0, p, replace(p, sex="")), "sex: it is blank"),
        (lambda p: editing.edit_of("bio", 0, p, replace(p, address="x" * 1001)), "address: it has 1,001 characters"),
        (
            lambda _: editing.edit_of("context", None, None, Context("x" * 1001, "Landlord")),
            "task: this has 1,001 characters",
        ),
        (lambda _: editing.edit_of("context", 0, None, Context("Ask", "a\x9fb")), r"recipient: it contains U\+009F"),
        (
            lambda _: editing.edit_of("context", 0, None, Context("Ask", "Landlord", "\x02")),
            r"sphere: it contains U\+0002",
        ),
    ],
)
def test_a_biography_or_context_that_no_file_holds_is_refused(
    sqlite_store: Store, edit: Callable[[Profile], Edit], problem: str
) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=2)
    hashed = content(sqlite_store, data.id)
    change = edit(profiles(sqlite_store, data.id)[0])
    for refused in (
        lambda: editing.plan(sqlite_store, data.id, change),
        lambda: editing.save(sqlite_store, data.id, change, annotator="Ada"),
    ):
        with pytest.raises(StoreError, match=problem):
            refused()
    assert content(sqlite_store, data.id) == hashed


def test_the_longest_that_the_form_takes_can_be_exported_and_imported(sqlite_store: Store, tmp_path: Path) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=2)
    (person,) = profiles(sqlite_store, data.id)
    first, value = person.attributes[0], [1] * 1000
    long = replace(first, key="k" * editing.LONGEST_KEY, value=value, event="e" * 1000, statement="s" * 4000)
    for change in (
        editing.edit_of("attribute", 0, first, long),
        editing.edit_of("context", None, None, Context("t" * 1000, "r" * 1000, "o" * 1000)),
        editing.edit_of(
            "bio", 0, person, replace(person, name="n" * editing.LONGEST_KEY, sex="x" * 1000, address="a" * 1000)
        ),
    ):
        editing.save(sqlite_store, data.id, change, annotator="Ada")
    for form, name in (("official", "one.json"), ("huggingface", "two.zip")):
        exporting.export(sqlite_store, data.name, form, tmp_path / name)
        there = import_file(sqlite_store, tmp_path / name, form).dataset
        assert profiles(sqlite_store, there.id) == profiles(sqlite_store, data.id)


def test_what_an_earlier_version_saved_does_not_keep_other_fields_from_being_edited(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=2)
    with sqlite_store.write() as connection:
        connection.execute(sa.update(tables.profile).values(address=""))
    (person,) = profiles(sqlite_store, data.id)
    editing.save(sqlite_store, data.id, editing.edit_of("bio", 0, person, replace(person, age=51)), annotator="Ada")
    (edited,) = profiles(sqlite_store, data.id)
    assert (edited.age, edited.address) == (51, "")


def test_a_change_needs_a_name(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store)
    with pytest.raises(StoreError, match="needs the name"):
        editing.save(sqlite_store, data.id, reworded(sqlite_store, data.id), annotator=" ")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=3,
    ).filter(lambda v: not isinstance(v, list) or not any(isinstance(item, list) for item in v))
)
def test_a_value_written_as_text_is_read_back_as_it_was(value: Any) -> None:
    if "\0" in str(value) or any(0xD800 <= ord(c) < 0xE000 for c in json.dumps(value, ensure_ascii=False)):
        return
    again = editing.parse_value(editing.value_text(value))
    assert json.dumps(again) == json.dumps(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1450", 1450),
        ('"1450"', "1450"),
        ("NaN", "NaN"),
        ("1e999", "1e999"),
        ("true", True),
        ("True", "True"),
        (" two words ", "two words"),
        ("", ""),
    ],
)
def test_a_value_is_json_where_it_is_json_else_text(text: str, value: object) -> None:
    parsed = editing.parse_value(text)
    assert (parsed, type(parsed)) == (value, type(value))


def test_what_was_changed_again_cannot_be_taken_back(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=2, contexts=1)
    first = editing.save(store, data.id, reworded(store, data.id, "one"), annotator="Ada").edit
    editing.save(store, data.id, reworded(store, data.id, "two"), annotator="Ada")
    with pytest.raises(StoreError, match="changed by another person"):
        editing.undo(store, data.id, first, annotator="Ada")


# --- decisions, and two at once ---


def decide(store: Store, dataset_id: int, attribute: int, context: int, label: Label | None, who: str = "Ada") -> None:
    with store.write() as connection:
        decisions.add(
            connection,
            dataset_id=dataset_id,
            attribute=attribute,
            context=context,
            annotator=who,
            label=label,
            reason=f"because of {attribute}",
        )


def test_decisions_on_unchanged_pairs_go_along_with_their_author(store: Store) -> None:
    data = add_dataset(store, profiles=2, attributes=3, contexts=2)
    person, other = records(store, data.id)
    decide(store, data.id, person.attribute_ids[0], person.context_ids[0], Label.NECESSARY)  # its statement changes
    decide(store, data.id, person.attribute_ids[1], person.context_ids[0], Label.NECESSARY, "Bob")
    decide(store, data.id, person.attribute_ids[1], person.context_ids[0], Label.AMBIGUOUS, "Cem")
    decide(store, data.id, other.attribute_ids[2], other.context_ids[1], Label.NECESSARY)
    decide(store, data.id, other.attribute_ids[2], other.context_ids[1], Label.INAPPROPRIATE)  # supersedes that
    decide(store, data.id, other.attribute_ids[1], other.context_ids[1], Label.NECESSARY)
    decide(store, data.id, other.attribute_ids[1], other.context_ids[1], None)  # taken back
    saved = editing.save(store, data.id, reworded(store, data.id), annotator="Dee")
    assert (saved.carried, saved.left_behind) == (3, 1)
    new_person, new_other = records(store, saved.dataset)
    with store.read() as connection:
        old = decisions.history(connection, data.id)
        carried = decisions.history(connection, saved.dataset)
    assert [(d.attribute, d.context, d.annotator, d.label) for d in carried] == [
        (new_person.attribute_ids[1], new_person.context_ids[0], "Bob", Label.NECESSARY),
        (new_person.attribute_ids[1], new_person.context_ids[0], "Cem", Label.AMBIGUOUS),
        (new_other.attribute_ids[2], new_other.context_ids[1], "Ada", Label.INAPPROPRIATE),
    ]
    assert carried[0].reason == f"because of {person.attribute_ids[1]} [decided on 'small world']"
    assert carried[0].created == old[1].created
    assert len(old) == 7
    third = editing.save(store, saved.dataset, reworded(store, saved.dataset, "again", 1), annotator="Dee").dataset
    with store.read() as connection:
        assert [d.reason for d in decisions.history(connection, third)] == [d.reason for d in carried]


@pytest.mark.parametrize("labelled", [False, True])
def test_of_two_who_edit_at_once_none_is_lost_without_a_word(store: Store, labelled: bool) -> None:
    data = add_dataset(store, profiles=2, attributes=3, contexts=2)
    if labelled:
        add_labels(store, data.id, LABELLED)
    one, two = reworded(store, data.id, "one"), reworded(store, data.id, "two", profile=1)
    plans = [editing.plan(store, data.id, edit) for edit in (one, two)]
    first = editing.save(store, data.id, one, annotator="Ada", expected=plans[0])
    if labelled:  # it would be saved as a third version, which lacks the first one's change
        with pytest.raises(StoreError, match=r"as 'small world v3' and not as 'small world v2'"):
            editing.save(store, data.id, two, annotator="Bob", expected=plans[1])
        second = editing.save(store, first.dataset, two, annotator="Bob")
    else:
        second = editing.save(store, data.id, two, annotator="Bob", expected=plans[1])
    stored = profiles(store, second.dataset)
    assert [p.attributes[0].statement for p in stored] == ["one", "two"]
    stale = editing.edit_of("attribute", 0, make_profile(0, 3, 2).attributes[0], None)
    with pytest.raises(StoreError, match="changed by another person"):
        editing.save(store, second.dataset, stale, annotator="Cem")


@pytest.mark.parametrize("labelled", [False, True])
def test_four_who_save_in_the_same_moment(store: Store, labelled: bool) -> None:
    data = add_dataset(store, profiles=2, attributes=4, contexts=2)
    if labelled:
        add_labels(store, data.id, np.full((2, 4, 2), NECESSARY))
    changes = [reworded(store, data.id, f"new {i}", position=i) for i in range(4)]
    plans = [editing.plan(store, data.id, edit) for edit in changes]
    barrier = threading.Barrier(4)

    def save(number: int) -> str:
        barrier.wait(60)
        try:
            return editing.save(
                store, data.id, changes[number], annotator=f"writer {number}", expected=plans[number]
            ).name
        except StoreError as problem:
            return str(problem)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(save, range(4)))
    if labelled:  # one made the next version, the others were told of it
        assert results.count("small world v2") == 1
        assert sum("Nothing was saved" in text for text in results) == 3
        with store.read() as connection:
            assert [row.name for row in datasets.all_rows(connection)] == ["small world", "small world v2"]
    else:
        assert results == ["small world"] * 4
        assert [a.statement for a in profiles(store, data.id)[0].attributes] == [f"new {i}" for i in range(4)]
        assert len(history(store, data.id)) == 4


def test_a_labelling_of_a_new_version_asks_only_for_what_changed(sqlite_store: Store) -> None:
    contexts = tuple(Context(task, recipient) for recipient, task in CONTEXTS[:3])
    people = [replace(make_profile(i, attributes=4), contexts=contexts) for i in range(3)]
    data = add_profiles(sqlite_store, people, "asked")

    def label(name: str) -> int:
        spec = LabellingSpec(dataset=name, model="sim-labeler", base_url="simulator", draws=2)
        execution.execute(sqlite_store, labelling.plan(sqlite_store, spec))
        with sqlite_store.read() as connection:
            return int(connection.execute(sa.select(sa.func.count()).select_from(tables.call)).scalar_one())

    before = label("asked")
    edit = reworded(sqlite_store, data.id, "I owe $200.", profile=1)
    plan = editing.plan(sqlite_store, data.id, edit)
    saved = editing.save(sqlite_store, data.id, edit, annotator="Ada", expected=plan)
    assert plan.calls == 3 * 3 * 2
    assert label(saved.name) - before == plan.calls
    new = Context("Ask for a raise", "Manager")
    context_edit: Callable[[], Edit] = lambda: editing.edit_of("context", None, None, new)  # noqa: E731
    plan = editing.plan(sqlite_store, saved.dataset, context_edit())
    third = editing.save(sqlite_store, saved.dataset, context_edit(), annotator="Ada")
    before = label(saved.name)
    assert label(third.name) - before == plan.calls == 3 * 3 * 2
    assert "the 12 pairs of the new context in 3 profiles need votes (18 calls at 2 draws)" in " ".join(plan.sentences)

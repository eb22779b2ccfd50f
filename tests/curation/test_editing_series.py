"""Any series of edits gives what plain Python gives, and can be taken back one by one, on both engines."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from edited import content, history, profiles
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import add_labels, add_profiles, make_profile

from cimemories.curation import editing
from cimemories.model import Attribute, Context, Profile
from cimemories.store.engine import Store
from cimemories.store.versions import Edit

WORDS = st.sampled_from(["alpha", "beta", "gamma", "delta", "Épée", "x' OR 1=1 --", "<b>"])
VALUES = st.sampled_from([1, 1.0, True, None, "1", ["a", {"z": 1, "a": 2}]])
ATTRIBUTES = st.builds(Attribute, WORDS, VALUES, st.sampled_from(["finance", "general"]), WORDS.map(str.lower), WORDS)
NEW_CONTEXTS = st.builds(Context, WORDS, WORDS, st.sampled_from([None, "housing"]))
STEPS = st.tuples(
    st.sampled_from(["add", "change", "remove", "add context", "change context", "remove context", "bio", "label"]),
    st.integers(0, 1),
    st.booleans(),
    st.integers(0, 9),
    ATTRIBUTES,
    NEW_CONTEXTS,
)


def next_edit(model: list[Profile], step: tuple[Any, ...]) -> tuple[Edit, list[Profile]] | None:
    """An edit that fits the model, and the model after it, in plain Python; None where none fits."""
    what, number, _, position, attribute, _ = step
    person = model[number]
    new = list(model)
    if what == "bio":
        new[number] = replace(person, name=f"{attribute.key} {position}", age=position)
        return (editing.edit_of("bio", number, person, new[number]), new) if new[number] != person else None
    if "context" not in what:
        keys = [a.key for a in person.attributes]
        if what != "add" and not keys:
            return None
        at = position % max(len(keys), 1)
        before = None if what == "add" else person.attributes[at]
        after = None if what == "remove" else attribute
        if after is not None and after.key in [k for i, k in enumerate(keys) if before is None or i != at]:
            return None
        if before is not None and after is not None and (before, repr(before)) == (after, repr(after)):
            return None
        end = () if after is None else (after,)
        parts = person.attributes
        kept = parts + end if before is None else parts[:at] + end + parts[at + 1 :]
        new[number] = replace(person, attributes=kept)
        return editing.edit_of("attribute", number, before, after), new
    return next_context_edit(model, step)


def next_context_edit(model: list[Profile], step: tuple[Any, ...]) -> tuple[Edit, list[Profile]] | None:
    what, number, everyone, position, _, context = step
    new, person = list(model), model[number]
    pair = (context.task, context.recipient)
    known = {(c.task, c.recipient): c for p in model for c in p.contexts}
    context = known.get(pair, context)
    if what == "add context":
        lacking = [i for i, p in enumerate(model) if pair not in {(c.task, c.recipient) for c in p.contexts}]
        targets = lacking if everyone else [i for i in lacking if i == number]
        if not targets:
            return None
        for i in targets:
            new[i] = replace(model[i], contexts=(*model[i].contexts, context))
        return editing.edit_of("context", None if everyone else number, None, context), new
    if not person.contexts:
        return None
    before = person.contexts[position % len(person.contexts)]
    having = [i for i, p in enumerate(model) if before in p.contexts]
    targets = having if everyone else [number]
    if what == "remove context":
        for i in targets:
            new[i] = replace(model[i], contexts=tuple(c for c in model[i].contexts if c != before))
        return editing.edit_of("context", None if everyone else number, before, None), new
    if pair == (before.task, before.recipient) or any(context in model[i].contexts for i in targets):
        return None
    for i in targets:
        new[i] = replace(model[i], contexts=tuple(context if c == before else c for c in model[i].contexts))
    return editing.edit_of("context", None if everyone else number, before, context), new


@settings(max_examples=settings().max_examples // 2)
@given(steps=st.lists(STEPS, min_size=1, max_size=12))
def test_any_series_of_edits_gives_what_plain_python_gives(store: Store, steps: list[Any]) -> None:
    model = [make_profile(i, attributes=2, contexts=2) for i in range(2)]
    name = f"world {uuid.uuid4()}"
    current = add_profiles(store, model, name).id
    hashes = {current: content(store, current)}
    frozen: dict[int, str] = {}
    made: list[tuple[int, str]] = []  # ids of edits with the hash that stood before each
    for step in steps:
        if step[0] == "label":
            if any(p.attributes and p.contexts for p in profiles(store, current)) and current not in frozen:
                add_labels(store, current, {}, name=f"{name} {current}")
                frozen[current] = hashes[current]
            continue
        fitting = next_edit(model, step)
        if fitting is None:
            continue
        edit, model = fitting
        before = hashes[current]
        saved = editing.save(store, current, edit, annotator="Ada")
        assert saved.in_place == (current not in frozen)
        current = saved.dataset
        hashes[current] = content(store, current)
        made.append((saved.edit, before))
        assert repr(profiles(store, current)) == repr(model)
    for dataset_id, hashed in frozen.items():
        assert content(store, dataset_id) == hashed
    assert [row.id for row in history(store, current)] == [edit_id for edit_id, _ in made]
    for edit_id, hashed in reversed(made):
        current = editing.undo(store, current, edit_id, annotator="Bob").dataset
        assert content(store, current) == hashed
    assert len(history(store, current)) == 2 * len(made)

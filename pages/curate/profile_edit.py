"""Part of the Profiles page: changing attributes, contexts and the biography of a profile by hand.

A form proposes a change; what it would make stale is said, and only then can it be saved (pages.curate.profile_review).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import streamlit as st

from cimemories.curation import editing
from cimemories.curation.editing_fields import KNOWN_DOMAINS, LONGEST_KEY, OLDEST, parse_value, value_text
from cimemories.model import GENERAL, Attribute, Context
from cimemories.store.datasets import DatasetRow, ProfileRecord
from cimemories.store.engine import Store, StoreError
from cimemories.ui import page, safe, url
from pages.curate import profile_review
from pages.curate.profile_view import words

NEW = 0  # stands for a new attribute or context where ids are chosen from
EVERYONE, THIS_ONE = "all profiles that have it", "this profile only"


def attributes(store: Store, dataset: DatasetRow, record: ProfileRecord) -> None:
    """Change, remove or add an attribute."""
    own = dict(zip(record.attribute_ids, record.profile.attributes, strict=True))
    names = {NEW: "a new attribute", **{i: f"{a.key} ({words(a.domain)}): {a.statement}" for i, a in own.items()}}
    asked = url.get_int("attribute")
    chosen = _choose("Attribute", names, asked if asked in names else next(iter(own), NEW))
    before = own.get(chosen)
    key = f"edit.{dataset.id}.{dataset.revision}.{record.id}.{chosen}"
    with st.form(key, enter_to_submit=False, border=False):
        left, middle, right = st.columns(3)
        with left:
            name = st.text_input("Key", value=before.key if before else "", max_chars=LONGEST_KEY, key=f"{key}.key")
        with middle:
            known = list(dict.fromkeys([*KNOWN_DOMAINS, *([before.domain] if before else [])]))
            at = known.index(before.domain) if before else 0
            domain = st.selectbox("Domain", known, index=at, format_func=words, key=f"{key}.domain")
        with right:
            event = st.selectbox(
                "Event",
                list(dict.fromkeys([GENERAL, *record.profile.events])),
                index=([GENERAL, *record.profile.events].index(before.event) if before else 0),
                format_func=safe.option,
                accept_new_options=True,
                key=f"{key}.event",
            )
        statement = st.text_area(
            "Memory statement",
            value=before.statement if before else "",
            placeholder="In the first person: My rent is $1,450 a month.",
            height=80,
            key=f"{key}.statement",
        )
        value = st.text_input(
            "Value",
            value=value_text(before.value) if before else "",
            help='JSON where it is JSON (1450, true, null, ["a", "b"]), else text. A number that is text: "1450".',
            key=f"{key}.value",
        )
        review = st.form_submit_button("Review the change", type="primary", icon=":material/preview:")
    removed = before is not None and st.button(
        "Remove this attribute", icon=":material/delete:", key=f"{key}.remove", type="tertiary"
    )
    if review or removed:
        try:
            after = None if removed else Attribute(name, parse_value(value), domain, event or GENERAL, statement)
        except StoreError as problem:
            page.error("The value cannot be stored.", str(problem))
            return
        profile_review.propose(store, dataset, editing.attribute_edit(record.ordinal, before, after))


def _choose(what: Literal["Attribute", "Context"], names: dict[int, str], current: int) -> int:
    """The one to edit, in the URL under its word; what was under review is dropped when another is chosen."""
    param = what.lower()
    key = f"edit.{param}"

    def changed() -> None:
        url.put(**{param: st.session_state[key]})
        profile_review.drop()

    st.session_state[key] = current
    return st.selectbox(what, list(names), format_func=lambda i: safe.option(names[i]), key=key, on_change=changed)


def contexts(store: Store, dataset: DatasetRow, record: ProfileRecord) -> None:
    """Change, remove or add a context, for this profile or for all."""
    own = dict(zip(record.context_ids, record.profile.contexts, strict=True))
    names = {NEW: "a new context", **{i: f"{c.recipient}: {c.task}" for i, c in own.items()}}
    asked = url.get_int("context")
    chosen = _choose("Context", names, asked if asked in names else next(iter(own), NEW))
    before = own.get(chosen)
    key = f"edit.{dataset.id}.{dataset.revision}.{record.id}.context.{chosen}"
    with st.form(key, enter_to_submit=False, border=False):
        task = st.text_input("Task", value=before.task if before else "", key=f"{key}.task")
        recipient = st.text_input("Recipient", value=before.recipient if before else "", key=f"{key}.recipient")
        sphere = st.text_input(
            "Sphere",
            value=(before.sphere or "") if before else "",
            help="The part of life it belongs to, e.g. housing. May be empty; it is the same in all profiles.",
            key=f"{key}.sphere",
        )
        scope = st.radio("For", [EVERYONE, THIS_ONE], horizontal=True, key=f"{key}.scope", format_func=_scope_words)
        review = st.form_submit_button("Review the change", type="primary", icon=":material/preview:")
    whose = None if scope == EVERYONE else record.ordinal
    removed = before is not None and st.button(
        "Remove this context", icon=":material/delete:", key=f"{key}.remove", type="tertiary"
    )
    if review or removed:
        after = None if removed else Context(task, recipient, sphere.strip() or None)
        profile_review.propose(store, dataset, editing.context_edit(whose, before, after))


def _scope_words(scope: str) -> str:
    return scope if scope == THIS_ONE else "all profiles"


def biography(store: Store, dataset: DatasetRow, record: ProfileRecord) -> None:
    """Change name, sex, address or age."""
    profile = record.profile
    key = f"edit.{dataset.id}.{dataset.revision}.{record.id}.bio"
    with st.form(key, enter_to_submit=False, border=False):
        left, middle, right = st.columns([3, 2, 1])
        with left:
            name = st.text_input("Name", value=profile.name, max_chars=LONGEST_KEY, key=f"{key}.name")
        with middle:
            sex = st.text_input("Sex", value=profile.sex, key=f"{key}.sex")
        with right:
            age = st.number_input("Age", 0, max(OLDEST, profile.age), profile.age, key=f"{key}.age")
        address = st.text_area("Address", value=profile.address, height=80, key=f"{key}.address")
        safe.inline(
            "The biography is not part of any prompt: attributes that repeat it (general: name, age, address) are "
            "changed on their own.",
            muted=True,
        )
        review = st.form_submit_button("Review the change", type="primary", icon=":material/preview:")
    if review:
        after = replace(profile, name=name, sex=sex, address=address, age=int(age))
        profile_review.propose(store, dataset, editing.bio_edit(record.ordinal, profile, after))

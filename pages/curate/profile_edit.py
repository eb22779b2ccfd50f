"""Parts of the Profiles page: editing attributes, contexts and the biography of a profile, and the history of edits.

A form proposes a change; it can be saved only after the page has shown both sides and what it makes stale."""

from __future__ import annotations

from dataclasses import dataclass, replace

import streamlit as st

from cimemories.answers import lists
from cimemories.curation import editing
from cimemories.curation.editing import KNOWN_DOMAINS, LONGEST_KEY, OLDEST, Plan, Saved, parse_value, value_text
from cimemories.model import GENERAL, Attribute, Context
from cimemories.store.datasets import DatasetRow, ProfileRecord
from cimemories.store.engine import Store, StoreError
from cimemories.store.versions import Edit, EditRow, Side
from cimemories.text import display_name
from cimemories.ui import annotator, answers, once, page, safe, url
from cimemories.ui.safe import Html, tag

_PENDING = "profiles.pending"
_SAVED = "profiles.saved"
_UNDO = "profiles.undo"
_HIDDEN = ("ordinal", "places")


@dataclass(frozen=True)
class _Pending:
    """A change under review. `undo`: the past change that it reverts."""

    dataset: int
    edit: Edit
    plan: Plan
    undo: int | None


def propose(store: Store, dataset: DatasetRow, edit: Edit, undo: int | None = None) -> None:
    """Show a change for review; an invalid one is refused with its problem."""
    drop()
    with page.Reporting("This change cannot be saved.", StoreError):
        st.session_state[_PENDING] = _Pending(dataset.id, edit, editing.plan(store, dataset.id, edit), undo)


def drop() -> None:
    """Drop the change under review, if any."""
    st.session_state.pop(_PENDING, None)


def show_saved() -> None:
    """Draw the outcome of the last save, once, after the rerun that it caused."""
    page.outcome(page.kept_notices(_SAVED), "edit")


def draw(store: Store, dataset: DatasetRow, record: ProfileRecord) -> None:
    """Draw the change under review: both sides, what it makes stale, and the buttons."""
    pending: _Pending | None = st.session_state.get(_PENDING)
    # A change of a shared context has no profile, and is shown on the page of each.
    if pending is None or pending.dataset != dataset.id or pending.edit.profile not in (None, record.ordinal):
        return
    with st.container(border=True, key="review"):
        st.subheader("Review your change", anchor=False)
        safe.show(_both_sides(pending.edit))
        page.notice(" ".join(pending.plan.sentences))
        with st.form("profiles.save", enter_to_submit=False, border=False):
            reason = st.text_input("Reason", max_chars=500, key="profiles.save.reason", disabled=bool(pending.undo))
            button = st.container()
        st.button(
            "Discard the change",
            icon=":material/close:",
            key="profiles.discard",
            on_click=url.durable(drop),
            type="tertiary",
        )
        # Below the buttons: the field vanishes once it is filled in, which moves everything below it.
        person = annotator.ask()

    def save() -> Saved:
        # expected: nothing is saved if the change would go into another version than the one shown.
        if pending.undo is not None:
            return editing.undo(store, dataset.id, pending.undo, annotator=person, expected=pending.plan)
        return editing.save(store, dataset.id, pending.edit, annotator=person, reason=reason, expected=pending.plan)

    with page.Reporting("Nothing was saved.", StoreError), button:
        once.button(
            "Save the change",
            save,
            lambda saved: _show(store, dataset, record, saved),
            key="profiles.save.change",
            submits=True,
            doing="Saving the change",
            type="primary",
            icon=":material/save:",
        )


def _show(store: Store, dataset: DatasetRow, record: ProfileRecord, saved: Saved) -> None:
    """Go to the saved item, and report the outcome."""
    drop()
    row, changed = editing.saved_change(store, saved, record.ordinal)
    sentences = [f"Saved in '{saved.name}': {row.sentence}."]
    if not saved.in_place:
        sentences = [f"Saved as '{saved.name}', which is shown now: {row.sentence}. '{dataset.name}' is unchanged."]
    if saved.carried or saved.left_behind:
        others = f"; {saved.left_behind:,} are on pairs that have changed and were not" if saved.left_behind else ""
        sentences.append(f"{saved.carried:,} human decisions were copied{others}.")
    page.keep_notices(_SAVED, " ".join(sentences))
    attribute = None
    if row.edit.kind == "attribute" and row.edit.after is not None:
        # In a new version every attribute has another id, so it is found again by its key.
        ids = dict(zip((a.key for a in changed.profile.attributes), changed.attribute_ids, strict=True))
        attribute = ids.get(str(row.edit.after["key"]))
    # Back to reading, with the changed row open; the views of contexts and of the history stay open.
    view = url.get("view")
    view = view if view in ("contexts", "history") else None
    url.put(dataset=saved.dataset, profile=changed.id, attribute=attribute, context=None, labelling=None, view=view)


def _both_sides(edit: Edit) -> Html:
    """Return before and after, field by field; unchanged fields of a change are left out."""
    names = [name for name in (edit.after or edit.before or {}) if name not in _HIDDEN]
    rows = []
    for name in names:
        before, after = _side_text(edit.before, name), _side_text(edit.after, name)
        if before != after or edit.action != "change":
            rows.append(tag("tr", tag("td", name), tag("td", before), tag("td", tag("b", after) if after else "")))
    head = tag("thead", tag("tr", *(tag("th", title) for title in ("", "Before", "After"))))
    return tag("table", head, tag("tbody", *rows), cls="ci-grid ci-change")


def _side_text(side: Side | None, name: str) -> str:
    if side is None:
        return ""
    value = side.get(name)
    if name == "value":
        return value_text(value)  # type: ignore[arg-type]
    return "" if value is None else str(value)


# ---- history


def history(store: Store, dataset: DatasetRow, record: ProfileRecord) -> None:
    """Draw every change of this profile and of shared items, the newest first; each can be undone."""
    changes = editing.history_of(store, dataset.id, record.ordinal)
    if not changes:
        page.empty(
            "No changes yet",
            "Every edit is listed here with both sides, who made it, when and why. "
            "Click an attribute of the profile to edit it, or open Contexts.",
        )
        return
    # Set by the button below; in the run that its click causes, the change is proposed here.
    undo = st.session_state.pop(_UNDO, None)
    for row, _ in changes:
        if row.id == undo:
            propose(store, dataset, row.edit.inverse, row.id)
    keys = sorted({_key(row) for row, _ in changes} - {""})
    if len(keys) > 1:
        only = st.selectbox(
            "Changes of",
            ["", *keys],
            format_func=lambda key: safe.option(key) if key else "the whole profile",
            key="profiles.history.of",
        )
        changes = [(row, name) for row, name in changes if only in ("", _key(row))]
    chosen = answers.twin(lists.edits(changes), "profiles.history", on_select="row")
    if chosen is None:
        safe.inline("Click a change to see both sides and to undo it.", muted=True)
        return
    row = changes[chosen][0]
    safe.heading(f"Change {row.id}: {row.sentence}")
    safe.show(_both_sides(row.edit))
    st.button(
        "Undo this change",
        icon=":material/undo:",
        key=f"profiles.undo.{row.id}",
        on_click=url.durable(lambda: st.session_state.update({_UNDO: row.id})),
    )


def _key(row: EditRow) -> str:
    return str((row.edit.after or row.edit.before or {}).get("key", ""))


# ---- the forms


NEW = 0  # a new attribute or context, in a list of ids
EVERYONE, THIS_ONE = "all profiles", "this profile only"


def attribute(store: Store, dataset: DatasetRow, record: ProfileRecord, chosen: int) -> None:
    """Change or remove an attribute (its id), or add one (NEW)."""
    before = dict(zip(record.attribute_ids, record.profile.attributes, strict=True)).get(chosen)
    # Typed texts are stored under the form's key. The content in it gives a saved attribute a fresh form, and keeps
    # typed texts when something else in the dataset changes.
    key = f"edit.{dataset.id}.{record.id}.{chosen}.{hash(repr(before))}"
    with st.form(key, enter_to_submit=False, border=False):
        left, middle, right = st.columns(3)
        name = left.text_input("Key", value=before.key if before else "", max_chars=LONGEST_KEY, key=f"{key}.key")
        domains = list(dict.fromkeys([*KNOWN_DOMAINS, *([before.domain] if before else [])]))
        at = domains.index(before.domain) if before else 0
        domain = middle.selectbox("Domain", domains, index=at, format_func=display_name, key=f"{key}.domain")
        events = list(dict.fromkeys([GENERAL, *record.profile.events]))
        event = right.selectbox(
            "Event",
            events,
            index=events.index(before.event) if before else 0,
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
            help='Text, or JSON: 1450, true, null, ["a", "b"]. Write a number that is text in quotes: "1450".',
            key=f"{key}.value",
        )
        review = st.form_submit_button("Review the change", type="primary", icon=":material/preview:")
    removed = before is not None and st.button(
        "Remove this attribute", icon=":material/delete:", key=f"{key}.remove", type="tertiary"
    )
    if review or removed:
        with page.Reporting("This value cannot be saved.", StoreError):
            after = None if removed else Attribute(name, parse_value(value), domain, event or GENERAL, statement)
            propose(store, dataset, editing.edit_of("attribute", record.ordinal, before, after))


def contexts(store: Store, dataset: DatasetRow, record: ProfileRecord) -> None:
    """Change, remove or add a context, for this profile or for all."""
    contexts_by_id = dict(zip(record.context_ids, record.profile.contexts, strict=True))
    names = {NEW: "a new context", **{i: f"{c.recipient}: {c.task}" for i, c in contexts_by_id.items()}}
    context = url.get_int("context")

    def put(context: int) -> None:
        url.put(context=context)
        drop()

    chosen = page.bound(
        st.selectbox,
        "Context",
        list(names),
        key="edit.context",
        value=context if context in names else next(iter(contexts_by_id), NEW),
        put=put,
        format_func=safe.options(names, names.__getitem__).__getitem__,
    )
    before = contexts_by_id.get(chosen)
    key = f"edit.{dataset.id}.{record.id}.context.{chosen}.{hash(before)}"
    with st.form(key, enter_to_submit=False, border=False):
        task = st.text_input("Task", value=before.task if before else "", key=f"{key}.task")
        recipient = st.text_input("Recipient", value=before.recipient if before else "", key=f"{key}.recipient")
        sphere = st.text_input(
            "Sphere",
            value=(before.sphere or "") if before else "",
            help="The part of life it belongs to, e.g. housing. Optional; the same in all profiles.",
            key=f"{key}.sphere",
        )
        scope = st.radio("For", [EVERYONE, THIS_ONE], horizontal=True, key=f"{key}.scope")
        review = st.form_submit_button("Review the change", type="primary", icon=":material/preview:")
    profile = None if scope == EVERYONE else record.ordinal
    removed = before is not None and st.button(
        "Remove this context", icon=":material/delete:", key=f"{key}.remove", type="tertiary"
    )
    if review or removed:
        after = None if removed else Context(task, recipient, sphere.strip() or None)
        propose(store, dataset, editing.edit_of("context", profile, before, after))


def biography(store: Store, dataset: DatasetRow, record: ProfileRecord) -> None:
    """Change name, sex, address or age."""
    profile = record.profile
    key = f"edit.{dataset.id}.{record.id}.bio.{hash((profile.name, profile.sex, profile.address, profile.age))}"
    with st.form(key, enter_to_submit=False, border=False):
        left, middle, right = st.columns([3, 2, 1])
        name = left.text_input("Name", value=profile.name, max_chars=LONGEST_KEY, key=f"{key}.name")
        sex = middle.text_input("Sex", value=profile.sex, key=f"{key}.sex")
        # An imported age may be above the field's limit, and the field must still hold it.
        age = right.number_input("Age", 0, max(OLDEST, profile.age), profile.age, key=f"{key}.age")
        address = st.text_area("Address", value=profile.address, height=80, key=f"{key}.address")
        safe.inline(
            "The biography is in no prompt. Attributes that repeat it (name, age, address) are edited under General.",
            muted=True,
        )
        review = st.form_submit_button("Review the change", type="primary", icon=":material/preview:")
    if review:
        after = replace(profile, name=name, sex=sex, address=address, age=int(age))
        propose(store, dataset, editing.edit_of("bio", record.ordinal, profile, after))

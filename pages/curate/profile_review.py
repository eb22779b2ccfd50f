"""Part of the Profiles page: a change that is proposed, what it makes stale, saving it, and the history of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from cimemories.curation import editing
from cimemories.curation.edit_plan import Plan
from cimemories.curation.editing_fields import value_text
from cimemories.store import datasets, edits
from cimemories.store.datasets import DatasetRow, ProfileRecord
from cimemories.store.edits import Edit, EditRow, Side
from cimemories.store.engine import Store, StoreError
from cimemories.ui import page, safe, tables, url
from cimemories.ui.safe import Html, tag

ANNOTATOR = "annotator"  # shared with the Labels page
_PENDING = "profiles.pending"
_SAVED = "profiles.saved"
_UNDO = "profiles.undo"
_HIDDEN = ("ordinal", "places")


@dataclass(frozen=True)
class _Pending:
    """A change that waits for a word. `undo`: the change of the history that it takes back."""

    dataset: int
    edit: Edit
    plan: Plan
    undo: int | None


def propose(store: Store, dataset: DatasetRow, edit: Edit, undo: int | None = None) -> None:
    """Put a change up for review; one that cannot be is refused in one line."""
    drop()
    try:
        plan = editing.plan(store, dataset.id, edit)
    except StoreError as problem:
        page.error("This change cannot be saved.", str(problem))
        return
    st.session_state[_PENDING] = _Pending(dataset.id, edit, plan, undo)


def drop() -> None:
    """Forget the change that waits, if any."""
    st.session_state.pop(_PENDING, None)


def show_saved() -> None:
    """What the last save came to; said once, after the rerun that it caused."""
    for line in st.session_state.pop(_SAVED, []):
        page.notice(line)


def draw(store: Store, dataset: DatasetRow, record: ProfileRecord) -> None:
    """The change that waits, both sides of it, what it makes stale, and the buttons."""
    pending: _Pending | None = st.session_state.get(_PENDING)
    if pending is None or pending.dataset != dataset.id or pending.edit.profile not in (None, record.ordinal):
        return
    with st.container(border=True, key="review"):
        st.subheader("Before you save", anchor=False)
        safe.show(_both_sides(pending.edit))
        page.notice(" ".join(pending.plan.sentences))
        with st.form("profiles.save", enter_to_submit=False, border=False):
            left, right = st.columns(2)
            with left:
                known = st.session_state.get(ANNOTATOR, "")
                name = st.text_input("Your name", value=known, max_chars=80, key="profiles.save.name")
            with right:
                reason = st.text_input("Reason", max_chars=500, key="profiles.save.reason", disabled=bool(pending.undo))
            save = st.form_submit_button("Save the change", type="primary", icon=":material/save:")
        st.button("Leave it as it was", icon=":material/close:", key="profiles.discard", on_click=drop, type="tertiary")
    if save:
        _save(store, dataset, record, pending, name, reason)


def _save(store: Store, dataset: DatasetRow, record: ProfileRecord, pending: _Pending, name: str, reason: str) -> None:
    try:
        if pending.undo is not None:
            saved = editing.undo(store, dataset.id, pending.undo, annotator=name, expected=pending.plan)
        else:
            saved = editing.save(store, dataset.id, pending.edit, annotator=name, reason=reason, expected=pending.plan)
    except StoreError as problem:
        page.error("Nothing was saved.", str(problem))
        return
    drop()
    st.session_state[ANNOTATOR] = " ".join(name.split())
    with store.read() as connection:
        profiles = datasets.profile_ids(connection, saved.dataset)
        row = edits.named(connection, saved.edit)
        there = datasets.profile_record(connection, profiles[record.ordinal])
    said = [f"Saved in '{saved.name}': {row.words}."]
    if not saved.in_place:
        said = [f"Saved as '{saved.name}', which is shown now: {row.words}. '{dataset.name}' is as it was."]
    if saved.carried or saved.left_behind:
        left = f"; {saved.left_behind:,} stand on pairs that are no longer the same" if saved.left_behind else ""
        said.append(f"{saved.carried:,} human decisions went along{left}.")
    if not saved.in_place and pending.plan.rests.labellings:
        said.append(f"'{saved.name}' has no labels of its own yet: start a labelling on the Labels page.")
    st.session_state[_SAVED] = [" ".join(said)]
    url.put(dataset=saved.dataset, profile=there.id, attribute=_attribute(there, row), context=None, labelling=None)
    st.rerun()


def _attribute(record: ProfileRecord, row: EditRow) -> int | None:
    """The attribute that a change was of, as it is in the dataset that holds it now."""
    if row.edit.kind != "attribute" or row.edit.after is None:
        return None
    keys = [a.key for a in record.profile.attributes]
    key = row.edit.after["key"]
    return record.attribute_ids[keys.index(str(key))] if key in keys else None


def _both_sides(edit: Edit) -> Html:
    """What stands there and what would, field by field; fields that stay are left out of a change."""
    names = [name for name in (edit.after or edit.before or {}) if name not in _HIDDEN]
    rows = []
    for name in names:
        before, after = _spoken(edit.before, name), _spoken(edit.after, name)
        if before != after or edit.action != "change":
            rows.append(tag("tr", tag("td", name), tag("td", before), tag("td", tag("b", after) if after else "")))
    head = tag("thead", tag("tr", *(tag("th", title) for title in ("", "Before", "After"))))
    return tag("table", head, tag("tbody", *rows), cls="ci-grid ci-change")


def _spoken(side: Side | None, name: str) -> str:
    if side is None:
        return ""
    value = side.get(name)
    if name == "value":
        return value_text(value)  # type: ignore[arg-type]
    return "" if value is None else str(value)


# --- history ---


def history(store: Store, dataset: DatasetRow, record: ProfileRecord) -> None:
    """Every change of this profile and of what it shares, the newest first; one can be taken back."""
    with store.read() as connection:
        rows = edits.history(connection, dataset.id, record.ordinal)[::-1]
        names = {row.id: row.name for row in datasets.all_rows(connection)}
    if not rows:
        page.empty(
            "No changes yet",
            "Whatever is changed by hand is kept here with both sides, who changed it, when and why. "
            "Change something under Edit attributes, Edit contexts or Edit biography.",
        )
        return
    asked = st.session_state.pop(_UNDO, None)
    for row in rows:
        if row.id == asked:
            propose(store, dataset, row.edit.inverse, row.id)
    rows = _of_one_attribute(rows)
    chosen = _history_table(rows, names)
    if chosen is None:
        safe.inline("Click a change to see both sides, and to take it back.", muted=True)
        return
    row = rows[chosen]
    safe.heading(f"Change {row.id}: {row.words}")
    safe.show(_both_sides(row.edit))
    st.button(
        "Take this change back",
        icon=":material/undo:",
        key=f"profiles.undo.{row.id}",
        on_click=lambda: st.session_state.update({_UNDO: row.id}),
    )


def _of_one_attribute(rows: list[EditRow]) -> list[EditRow]:
    """Limited to one attribute, where more than one was changed and somebody wants that."""
    keys = sorted({_key(row) for row in rows} - {""})
    if len(keys) < 2:
        return rows
    wanted = st.selectbox(
        "Of",
        ["", *keys],
        format_func=lambda key: safe.option(key) if key else "everything of this profile",
        key="profiles.history.of",
    )
    return [row for row in rows if _key(row) == wanted] if wanted else rows


def _key(row: EditRow) -> str:
    return str((row.edit.after or row.edit.before or {}).get("key", ""))


def _history_table(rows: Sequence[EditRow], names: dict[int, str]) -> int | None:
    frame = pd.DataFrame(
        [
            {
                "when": row.created[:16].replace("T", " "),
                "who": row.annotator,
                "what": row.words,
                "why": row.reason,
                "on": names.get(row.dataset, ""),
            }
            for row in rows
        ],
        index=[row.id for row in rows],
    )
    return tables.table(
        frame,
        key="profiles.history",
        columns={"when": "text", "who": "text", "what": "wide", "why": "text", "on": "text"},
        on_select="row",
        alt="Changes by hand, the newest first",
    )

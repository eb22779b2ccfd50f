"""Part of the Profiles page: the versions of a dataset, freezing it, its card, and which runs ran on what."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories.analysis import freezing
from cimemories.analysis.card import dataset_card
from cimemories.analysis.labels import default_labelling
from cimemories.curation import editing
from cimemories.store import datasets, edits, labellings, runs, versions
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.ui import page, safe, tables, url
from pages.curate.labelling_work import named
from pages.curate.profile_review import ANNOTATOR

_OUTCOME = "profiles.versions.outcome"


def draw(store: Store, dataset: DatasetRow) -> None:
    """Everything about versions, in the order in which one asks."""
    for line in st.session_state.pop(_OUTCOME, []):
        page.notice(line)
    with store.read() as connection:
        members = versions.family(connection, dataset.id)
        changes = {item.dataset: len(edits.history(connection, item.dataset)) for item in members}
        content = datasets.dataset_hash(connection, dataset.id)
    names = {item.dataset: item.name for item in members}
    frame = pd.DataFrame(
        [
            {
                "version": item.version,
                "name": item.name,
                "from": names.get(item.parent or -1, ""),
                "changes": changes[item.dataset],
                "made": item.created[:10],
                "frozen": (item.frozen or "")[:8],
            }
            for item in members
        ],
        index=[item.dataset for item in members],
    )
    columns: dict[str, tables.Column | tuple[tables.Column, str]] = {
        "version": "number",
        "name": "text",
        "from": ("text", "made from"),
        "changes": "count",
        "frozen": ("text", "frozen as"),
        "made": "text",
    }
    ids = [item.dataset for item in members]
    clicked = tables.table(
        frame,
        key="profiles.versions.table",
        columns=columns,
        on_select="row",
        selected=ids.index(dataset.id),
        alt="The versions of this dataset",
    )
    if clicked is not None and ids[clicked] != dataset.id:
        url.go("profiles", dataset=ids[clicked])
    safe.inline(f"Profiles and contexts of '{dataset.name}' have the hash {content}.", muted=True)
    frozen = freezing.frozen(store, dataset.id)
    if frozen is None:
        _freeze_form(store, dataset)
    else:
        page.notice(f"'{dataset.name}' is {frozen.words}. Its hash is {frozen.row.hash}.")
    _next(store, dataset)
    _runs(store, dataset, str(frozen.row.counts["content"]) if frozen else None, content)


def _freeze_form(store: Store, dataset: DatasetRow) -> None:
    with store.read() as connection:
        labelled = {row.id: row for row in labellings.all_rows(connection, dataset.id)}
    default = default_labelling(store, dataset.id)
    order = sorted(labelled, key=lambda i: default is None or i != default.id)
    with st.form(f"profiles.freeze.{dataset.id}", enter_to_submit=False, border=False):
        safe.inline(
            "Freezing writes down a hash of profiles, contexts, votes, decisions and rule. The dataset is then never "
            "edited in place; edits make its next version.",
            muted=True,
        )
        labelling = st.selectbox(
            "Votes of",
            order,
            format_func=lambda i: safe.option(named(labelled[i])),
            placeholder="no labelling yet",
            key=f"profiles.freeze.{dataset.id}.labelling",
        )
        name = st.text_input(
            "Your name",
            value=st.session_state.get(ANNOTATOR, ""),
            max_chars=80,
            key=f"profiles.freeze.{dataset.id}.name",
        )
        if not st.form_submit_button("Freeze", icon=":material/ac_unit:"):
            return
    try:
        row = freezing.freeze(store, dataset.id, labelling_id=labelling, annotator=name)
    except StoreError as problem:
        page.error("Nothing was frozen.", str(problem))
        return
    st.session_state[ANNOTATOR] = row.annotator
    st.rerun()


def _next(store: Store, dataset: DatasetRow) -> None:
    if st.button(
        "Make the next version",
        icon=":material/content_copy:",
        key=f"profiles.next.{dataset.id}",
        help="The same profiles, contexts, rules and decisions under the next number, to go on from.",
    ):
        try:
            new, name = editing.new_version(store, dataset.id)
        except StoreError as problem:
            page.error("No version was made.", str(problem))
            return
        st.session_state[_OUTCOME] = [f"'{name}' was made from '{dataset.name}'."]
        url.put(dataset=new, profile=None, attribute=None, labelling=None, context=None)
        st.rerun()


def _runs(store: Store, dataset: DatasetRow, frozen: str | None, content: str) -> None:
    with store.read() as connection:
        rows = runs.all_rows(connection, dataset.id)
    if not rows:
        return
    frame = pd.DataFrame(
        [
            {
                "run": row.name,
                "hash": row.dataset_hash[:8],
                "is": ("as frozen" if row.dataset_hash == frozen else "not as frozen")
                if frozen
                else ("as it is now" if row.dataset_hash == content else "earlier content"),
                "answers by": "simulated" if row.simulated else "",
            }
            for row in rows
        ],
        index=[row.id for row in rows],
    )
    tables.table(
        frame,
        key="profiles.versions.runs",
        columns={"run": "text", "hash": ("text", "ran on"), "is": ("text", "content"), "answers by": "text"},
        alt="The runs on this dataset and the content that they ran on",
    )


def card_form(store: Store, dataset: DatasetRow) -> None:
    """The dataset card, made when it is asked for."""
    safe.inline(
        "Where it comes from, its versions, models, prompts, personas, counts, survival, decisions and licence, as "
        "Markdown.",
        muted=True,
    )
    licence = st.text_input(
        "Licence, in your words",
        key=f"profiles.licence.{dataset.id}",
        placeholder="CC BY 4.0, by ...",
        help="For data of your own. What the authors published is under CC BY-NC; left empty, the card says so.",
    )
    st.download_button(
        "Download the card",
        data=lambda: dataset_card(store, dataset.name, licence=licence),
        file_name="dataset-card.md",
        mime="text/markdown",
        on_click="ignore",
        icon=":material/description:",
        key=f"profiles.card.{dataset.id}",
    )

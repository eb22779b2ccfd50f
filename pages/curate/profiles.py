"""Profiles: the synthetic users, their memory, and the origin of datasets."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cimemories.flows import catalogue
from cimemories.flows.labels import default_labelling
from cimemories.labels.matrix import ProfileLabels, ambiguous_shares, profile_labels
from cimemories.store.datasets import DatasetRow, ProfileRecord, Summary
from cimemories.store.engine import Store, shared_store
from cimemories.store.labellings import LabellingRow
from cimemories.text import count
from cimemories.ui import page, safe, url
from pages.curate import datasets as curate_datasets
from pages.curate import profile_edit, profile_person, profile_view

READ = "read"
VIEWS = {READ: "Profile", "compare": "Compare", "contexts": "Contexts", "history": "History"}
PEOPLE, DATASET, NEW = "people", "dataset", "new"
SIDES = (3, 5)  # widths of the two halves
ROOMS = {PEOPLE: "People", DATASET: "This dataset", NEW: "Import or create"}


# Streamlit leaves a parameter with a leading _ out of the key; the workspace stands for the store. As a resource the
# result is returned without a copy at each run of the page.
# `created` is part of these keys because SQLite reuses the id of a deleted dataset.
@st.cache_resource(max_entries=4, show_spinner="Counting the profiles")
def _summaries(
    _store: Store, workspace: str, dataset_id: int, created: str, revision: int
) -> tuple[list[Summary], list[str]]:
    return catalogue.profile_list(_store, dataset_id)


# The revision of a dataset counts changes of its rule too, that of a labelling its votes.
@st.cache_resource(max_entries=4, show_spinner="Counting the labels")
def _ambiguous(
    _store: Store, workspace: str, labelling_id: str, votes: int, created: str, revision: int
) -> dict[int, float]:
    return ambiguous_shares(_store, labelling_id)


def _new(store: Store) -> None:
    """Draw the sources of datasets: files, templates and models."""
    left, right = st.columns(SIDES, gap="large")
    with left:
        safe.heading("Import a file")
        curate_datasets.import_form(store)
    with right:
        safe.heading("New profiles")
        curate_datasets.draw_new(store)


def _choice(options: Mapping[str, str], key: str, default: str) -> str:
    """Draw buttons for a part of the page, or a view of the profile, and return the choice."""

    def also() -> dict[str, url.Value]:
        profile_edit.drop()
        return {"other": None}

    return page.choice("Show", options, key, "view", default=default, also=also, visible=False)


def _profile(
    store: Store,
    dataset: DatasetRow,
    labelling: LabellingRow | None,
    rows: list[Summary],
    chosen: int,
    filters: tuple[list[str], list[str]],
) -> None:
    """Draw the right side: one profile in the chosen view."""
    record = catalogue.profile_of(store, chosen)
    profile_edit.show_saved()
    view = _choice(VIEWS, "profiles.view", READ)
    if view == "compare":
        _compare(store, labelling, rows, record, filters)
    elif view == READ:
        labels = _labels(store, labelling, record)
        profile_person.draw(store, dataset, record, labels, *filters, url.get_int("attribute"))
    else:
        safe.heading(record.profile.name)
        draw = {"contexts": profile_edit.contexts, "history": profile_edit.history}[view]
        draw(store, dataset, record)
        profile_edit.draw(store, dataset, record)


def _labels(store: Store, labelling: LabellingRow | None, record: ProfileRecord) -> ProfileLabels | None:
    labels = profile_labels(store, labelling.id if labelling else None, record)
    return labels if labelling is not None or labels.decided else None


def _compare(
    store: Store,
    labelling: LabellingRow | None,
    rows: list[Summary],
    record: ProfileRecord,
    filters: tuple[list[str], list[str]],
) -> None:
    if url.get_int("other") == record.id:
        url.replace(other=None)
    names = {row.id: row.name for row in rows if row.id != record.id}
    other = page.select("Compare with", list(names), names.__getitem__, "profiles.other", "other")
    if other is None:
        page.empty("Nothing to compare with", "This dataset has only one profile.")
        return
    beside = catalogue.profile_of(store, other)
    pair = (record, beside)
    profile_person.compare(pair, (_labels(store, labelling, record), _labels(store, labelling, beside)), *filters)


def main() -> None:
    store = shared_store()
    rows = catalogue.all_datasets(store)
    top = st.container()
    curate_datasets.show_outcome()
    curate_datasets.show_import()
    if not rows:
        with top:
            page.head("Profiles", "There are no profiles yet.")
        page.empty(
            "No datasets yet",
            "Import a file or create new profiles below. A file is checked as a whole before anything is imported.",
        )
        _new(store)
        return
    by_id = {row.id: row for row in rows}
    room = _choice(ROOMS, "profiles.room", PEOPLE)
    hint = st.container()
    left, right = st.columns(SIDES, gap="large")
    with left:
        chosen = page.select("Dataset", list(by_id), lambda i: by_id[i].name, "profiles.dataset", "dataset")
    current = by_id[chosen] if chosen is not None else rows[0]
    sizes = f"{count(current.profiles, 'synthetic user')} with {count(current.attributes, 'attribute')}"
    version = f" ({current.note})" if current.note else ""
    takeaway = f"{sizes}, tested in {count(current.contexts, 'context')}{version}."
    with top:
        page.head("Profiles", takeaway, simulated=("profiles",) * current.simulated_profiles)
    if default_labelling(store, current.id) is None:
        # Actions first, or the text would push them to the right edge.
        with hint, st.container(horizontal=True, vertical_alignment="center"):
            url.page_link("labels", "Label this dataset", icon=":material/label:", dataset=current.id)
            safe.inline(f"'{current.name}' has no labels yet, so nothing in it can leak.", muted=True)
    if room == DATASET:
        curate_datasets.draw(store, current)
    elif room == NEW:
        _new(store)
    else:
        _people(store, current, left, right)


def _people(store: Store, current: DatasetRow, left: DeltaGenerator, right: DeltaGenerator) -> None:
    """Draw the list of profiles, and the chosen one beside it."""
    key = (store, str(store.workspace))
    people, domains = _summaries(*key, current.id, current.created, current.revision)
    labelling = default_labelling(store, current.id)
    ambiguous: dict[int, float] = {}
    if labelling is not None:
        ambiguous = _ambiguous(*key, labelling.id, labelling.revision, current.created, current.revision)
    with left:
        profile, *filters = profile_view.browse(store, current.id, people, domains, ambiguous)
        if labelling is not None and not url.get("search"):
            safe.inline(f"Ambiguous: share of the pairs labelled by {labelling.model}.", muted=True)
    with right:
        if profile is None:
            page.empty("No profile chosen", "Choose one from the list, or change the search and the filters.")
        else:
            _profile(store, current, labelling, people, profile, (filters[0], filters[1]))


main()

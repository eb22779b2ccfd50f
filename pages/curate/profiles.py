"""Profiles: the synthetic users, their memory, and the origin of datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cimemories.flows import catalogue
from cimemories.flows.labels import default_labelling
from cimemories.labels.matrix import ProfileLabels, ambiguous_shares, profile_labels
from cimemories.store.datasets import DatasetRow, Hit, ProfileRecord, Summary
from cimemories.store.engine import Store, shared_store
from cimemories.store.labellings import LabellingRow
from cimemories.text import count, display_name
from cimemories.ui import page, safe, tables, url
from pages.curate import datasets as curate_datasets
from pages.curate import profile_edit, profile_person

READ = "read"
VIEWS = {READ: "Profile", "compare": "Compare", "contexts": "Contexts", "history": "History"}
PEOPLE, DATASET, NEW = "people", "dataset", "new"
SIDES = (3, 5)  # widths of the two halves
HITS = 200  # statements listed at most
_BETWEEN = "|"  # of names in the URL: a comma may be part of one
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


# ---- the list of people, its search and filters in the URL


def _filters(domains: Sequence[str], events: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """Draw the search and the two filters, and return them: (text to search for, domains, events)."""
    text = page.bound(
        st.text_input,
        "Search statements, keys and names",
        key="profiles.search",
        value=url.get("search") or "",
        put=lambda text: url.put(search=text.strip() or None),
        typed=True,
        icon=":material/search:",
        placeholder="rent",
    )
    # Folded under the current choice: on a phone the people come sooner.
    names = [display_name(name) for name in (url.get("domains") or "").split(_BETWEEN) if name]
    names += [safe.option(name) for name in (url.get("events") or "").split(_BETWEEN) if name]
    chosen = ", ".join(names) or "All domains and events"
    with st.popover(safe.plain_label(chosen, 60), icon=":material/filter_alt:", key="profiles.filter", width="stretch"):
        texts = {name: display_name(name) for name in domains}
        chosen_domains = page.several("Domains", texts, "profiles.domains", "domains", between=_BETWEEN)
        texts = dict(zip(events, events, strict=True))
        chosen_events = page.several("Events", texts, "profiles.events", "events", between=_BETWEEN)
    return text.strip(), chosen_domains, chosen_events


def _people_table(rows: Sequence[Summary], ambiguous: Mapping[int, float], current: int | None) -> int | None:
    """Draw the profiles. Returns the clicked one, else `current`."""
    ids = [r.id for r in rows]
    frame = pd.DataFrame(
        [(r.name, r.age, r.attributes, ambiguous.get(r.id), ", ".join(r.events)) for r in rows],
        columns=["name", "age", "attributes", "ambiguous", "events"],
        index=ids,
    )
    columns: dict[str, tables.Column] = {
        "name": "text",
        "age": "number",
        "attributes": "count",
        **({"ambiguous": "percent"} if ambiguous else {}),
        "events": "text",
    }
    return _clicked(frame, "profiles.table", columns, current, "The profiles of this dataset")


def _hits(hits: Sequence[Hit], total: int, current: int | None) -> Hit | None:
    """Draw the matching statements. Returns the clicked one, else that of the attribute `current`."""
    cut = f", the first {len(hits)} shown" if total > len(hits) else ""
    safe.inline(f"{count(total, 'statement')} found{cut}")
    frame = pd.DataFrame(
        [{"profile": h.name, "statement": h.statement, "domain": display_name(h.domain)} for h in hits],
        columns=["profile", "statement", "domain"],
        index=[h.attribute for h in hits],
    )
    columns: dict[str, tables.Column] = {"profile": "text", "domain": "text", "statement": "wide"}
    clicked = _clicked(frame, "profiles.hits", columns, current, "Statements that match the search")
    return next((hit for hit in hits if hit.attribute == clicked), None)


def _clicked(
    frame: pd.DataFrame, key: str, columns: Mapping[str, tables.Column], current: int | None, alt: str
) -> int | None:
    """Draw a table of rows with these ids as their index. Returns the clicked id, else `current` if it is among
    them."""
    ids: list[int] = frame.index.tolist()
    at = ids.index(current) if current in ids else None
    position = tables.table(frame, key=key, columns=columns, on_select="row", selected=at, alt=alt)
    return None if position is None else ids[position]


def _browse(
    store: Store, dataset_id: int, rows: Sequence[Summary], domains: Sequence[str], ambiguous: Mapping[int, float]
) -> tuple[int | None, list[str], list[str]]:
    """Draw the list with its filters. Returns the chosen profile, and the domains and events to show of it."""
    events = sorted({event for row in rows for event in row.events})
    text, chosen_domains, chosen_events = _filters(domains, events)
    profile, attribute = url.get_int("profile"), url.get_int("attribute")
    ids = {row.id for row in rows}
    if profile is not None and profile not in ids:
        page.notice(f"Profile {profile} of the link is not in this dataset. Choose one from the list.")
        profile = attribute = None
        url.replace(profile=None, attribute=None)
    shown = [row for row in rows if set(chosen_events) <= set(row.events)]
    if not shown:
        page.notice("No profile has these events." if rows else "This dataset has no profiles.")
    elif text:
        # None searches all, without a list of every id in the query.
        within = [row.id for row in shown] if chosen_events else None
        hits, total = catalogue.search_profiles(
            store, dataset_id, text, domains=chosen_domains, profiles=within, limit=HITS
        )
        if not hits:
            page.notice("No statement, key or name matches. Try fewer words or other filters.")
        else:
            hit = _hits(hits, total, attribute)
            if hit is not None and hit.attribute != attribute:
                url.put(profile=hit.profile, attribute=hit.attribute)
                profile = hit.profile
            profile = profile or hits[0].profile
    else:
        last = url.remembered("profile") or ""
        current = profile or (int(last) if last.isdigit() else None)
        if current not in ids:
            current = shown[0].id
        clicked = _people_table(shown, ambiguous, current)
        if clicked is not None and clicked != profile:
            # The table's first row is selected at first, without a click.
            (url.put if profile is not None else url.replace)(profile=clicked, attribute=None)
            profile = clicked
        profile = profile or current
    return profile, chosen_domains, chosen_events


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
        profile, *filters = _browse(store, current.id, people, domains, ambiguous)
        if labelling is not None and not url.get("search"):
            safe.inline(f"Ambiguous: share of the pairs labelled by {labelling.model}.", muted=True)
    with right:
        if profile is None:
            page.empty("No profile chosen", "Choose one from the list, or change the search and the filters.")
        else:
            _profile(store, current, labelling, people, profile, (filters[0], filters[1]))


main()

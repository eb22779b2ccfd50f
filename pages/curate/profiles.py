"""Profiles: who the synthetic users are, what is remembered of them, and where datasets come from."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories.store import datasets
from cimemories.store.datasets import DatasetRow, ProfileRecord
from cimemories.store.engine import Store, shared_store
from cimemories.ui import page, safe, tables, url
from pages.curate import profile_files, profile_view

HITS = 200


# The records are frozen and large: shared between sessions instead of copied for each rerun.
@st.cache_resource(max_entries=4, show_spinner="Reading the profiles")
def _records(_store: Store, workspace: str, dataset_id: int, created: str, revision: int) -> list[ProfileRecord]:
    """`created` is a part of the key because SQLite gives the id of a deleted dataset out again."""
    with _store.read() as connection:
        return datasets.profile_records(connection, dataset_id)


def _filters(records: list[ProfileRecord]) -> tuple[str, list[str], list[str]]:
    wanted = st.text_input(
        "Search in statements, keys and names", key="profiles.search", icon=":material/search:", placeholder="rent"
    )
    left, right = st.columns(2)
    domains = sorted({a.domain for r in records for a in r.profile.attributes})
    events = sorted({e for r in records for e in r.profile.events})
    chosen_domains = left.multiselect("Domains", domains, key="profiles.domains", format_func=profile_view.words)
    chosen_events = right.multiselect("Events", events, key="profiles.events", format_func=safe.option)
    return wanted.strip(), chosen_domains, chosen_events


def _profile_table(records: list[ProfileRecord], chosen: int | None) -> int | None:
    frame = pd.DataFrame(
        [
            {
                "name": r.profile.name,
                "age": r.profile.age,
                "events": ", ".join(r.profile.events),
                "attributes": len(r.profile.attributes),
            }
            for r in records
        ],
        index=[r.id for r in records],
    )
    columns: dict[str, tables.Column] = {"name": "text", "age": "number", "attributes": "count", "events": "text"}
    ids = [r.id for r in records]
    position = tables.table(
        frame,
        key="profiles.table",
        columns=columns,
        on_select="row",
        selected=ids.index(chosen) if chosen in ids else None,
        alt="The profiles of this dataset",
    )
    return None if position is None else ids[position]


def _hits_table(hits: list[profile_view.Hit], chosen: int | None) -> profile_view.Hit | None:
    safe.inline(
        f"{tables.count(len(hits))} statements found" + (f", the first {HITS} shown" if len(hits) > HITS else "")
    )
    hits = hits[:HITS]
    frame = pd.DataFrame(
        [{"profile": h.name, "statement": h.statement, "domain": profile_view.words(h.domain)} for h in hits],
        columns=["profile", "statement", "domain"],
        index=[h.attribute_id for h in hits],
    )
    ids = [h.attribute_id for h in hits]
    position = tables.table(
        frame,
        key="profiles.hits",
        columns={"profile": "text", "statement": "wide", "domain": "text"},
        on_select="row",
        selected=ids.index(chosen) if chosen in ids else None,
        alt="Statements that match the search",
    )
    return None if position is None else hits[position]


def _browse(records: list[ProfileRecord]) -> tuple[ProfileRecord | None, list[str]]:
    """The list at the left; returns the chosen profile and the domains that are to be shown of it."""
    wanted, domains, events = _filters(records)
    asked, attribute = url.get_int("profile"), url.get_int("attribute")
    by_id = {r.id: r for r in records}
    if asked is not None and asked not in by_id:
        page.notice(f"Profile {asked} of the link is not in this dataset. Choose one from the list.")
        asked = attribute = None
        url.put(profile=None, attribute=None)
    shown = profile_view.with_events(records, events)
    if wanted:
        hits = profile_view.search(shown, wanted, domains)
        if not hits:
            page.notice("No statement, key or name matches. Try fewer words or other filters.")
        hit = _hits_table(hits, attribute) if hits else None
        if hit is not None and hit.attribute_id != attribute:
            url.put(profile=hit.profile_id, attribute=hit.attribute_id)
            asked = hit.profile_id
    else:
        remembered = url.remembered("profile") or ""
        chosen = asked or (int(remembered) if remembered.isdigit() else None)
        if chosen not in by_id and shown:
            chosen = shown[0].id
        clicked = _profile_table(shown, chosen) if shown else None
        if not shown:
            page.notice("No profile has these events.")
        if clicked is not None and clicked != asked:
            url.put(profile=clicked, attribute=None)
            asked = clicked
    if asked is None and shown and not wanted:
        asked = shown[0].id
    return by_id.get(asked) if asked is not None else None, domains


def _manage(store: Store, rows: list[DatasetRow], current: DatasetRow | None) -> None:
    with st.expander("Import an official profile file", icon=":material/upload_file:", expanded=not rows):
        profile_files.import_form(store)
    if current is not None:
        with st.expander("Delete this dataset", icon=":material/delete:"):
            profile_files.delete_form(store, current)


def main() -> None:
    store = shared_store()
    with store.read() as connection:
        rows = datasets.all_rows(connection)
    top = st.container()
    profile_files.show_outcome()
    if not rows:
        with top:
            page.head("Profiles", "There are no profiles yet.")
        page.empty(
            "No datasets yet", "Import the authors' JSON file below; it is checked as a whole before anything is kept."
        )
        _manage(store, rows, None)
        return
    by_id = {row.id: row for row in rows}
    left, right = st.columns([2, 3], gap="large")
    with left:
        chosen = page.select("Dataset", list(by_id), lambda i: by_id[i].name, "profiles.dataset", "dataset")
    current = by_id[chosen] if chosen is not None else rows[0]
    records = _records(store, str(store.workspace), current.id, current.created, current.revision)
    with top:
        page.head(
            "Profiles",
            f"{tables.count(current.profiles)} synthetic users with {tables.count(current.attributes)} attributes, "
            f"tested in {tables.count(current.contexts)} contexts.",
            simulated=current.simulated,
        )
    with left:
        record, domains = _browse(records)
        _manage(store, rows, current)
    with right:
        if record is None:
            page.empty("No profile chosen", "Click one in the list at the left.")
        else:
            profile_view.draw(record, domains, url.get_int("attribute"))


main()

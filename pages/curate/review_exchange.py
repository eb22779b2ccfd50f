"""Part of the Review page: take along what people said, and bring in what they said elsewhere."""

from __future__ import annotations

import tempfile
import zipfile
from io import BytesIO
from pathlib import Path

import streamlit as st

from cimemories import uploads
from cimemories.formats.errors import FormatError
from cimemories.formats.review_events import Exported, Filters, export_events
from cimemories.formats.review_events_files import FORMS, Form
from cimemories.store import decisions, profile_lists
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow
from cimemories.ui import page, safe, tables
from pages.curate.profile_view import words

_READY, _OUTCOME = "review.exchange.ready", "review.exchange.outcome"
EVERYBODY = "everybody"
NAMES: dict[Form, str] = {"jsonl": "JSONL, one event a line", "csv": "CSV tables", "parquet": "Parquet tables"}


def draw(store: Store, dataset: DatasetRow, labelling: LabellingRow | None) -> str:
    """Export at the left, import at the right; returns the page's takeaway."""
    for line in st.session_state.pop(_OUTCOME, []):
        page.notice(line)
    left, right = st.columns(2, gap="large")
    with left:
        safe.heading("Export")
        _export(store, dataset)
    with right:
        safe.heading("Import")
        _import(store, dataset)
    return (
        "What people said are events: two workspaces can be merged in any order, and the same file twice adds nothing."
    )


def _export(store: Store, dataset: DatasetRow) -> None:
    with store.read() as connection:
        people = sorted({d.annotator for d in decisions.history(connection, dataset.id)})
        domains = sorted(profile_lists.domains(connection, dataset.id))
    form = st.selectbox("Format", list(FORMS), format_func=lambda key: NAMES[key], key="review.exchange.format")
    who = st.selectbox(
        "Said by", [EVERYBODY, *people], format_func=lambda name: safe.option(name), key="review.exchange.who"
    )
    domain = st.selectbox(
        "Domain", ["", *domains], format_func=lambda name: safe.option(words(name)) if name else "all domains"
    )
    blind = st.toggle("Only what was said blind", key="review.exchange.blind")
    filters = Filters(annotator=None if who == EVERYBODY else who, domain=domain or None, blind=blind)
    asked = (dataset.id, dataset.revision, form, filters)
    if st.button("Prepare the file", icon=":material/inventory_2:"):
        try:
            with st.spinner("Writing the events"):
                st.session_state[_READY] = (asked, *_written(store, dataset, form, filters))
        except (FormatError, StoreError) as problem:
            st.session_state.pop(_READY, None)
            page.error("The events could not be exported.", str(problem))
    ready = st.session_state.get(_READY)
    if ready is not None and ready[0] == asked:
        _, name, data, done = ready
        st.download_button(
            "Download", data=data, file_name=name, type="primary", icon=":material/download:", on_click="ignore"
        )
        counted = ", ".join(f"{tables.count(number)} {kind}" for kind, number in done.counts.items())
        safe.inline(f"{name}: {counted or 'nothing matches'}", muted=True)
        if done.simulated:
            page.badge_simulated()


def _written(store: Store, dataset: DatasetRow, form: Form, filters: Filters) -> tuple[str, bytes, Exported]:
    """The file's name and content; tables, which are several files, as one zip."""
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in dataset.name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / (f"{name}-review.jsonl" if form == "jsonl" else f"{name}-review")
        done = export_events(store, dataset.name, path, form, filters)
        if done.path.is_file():
            return done.path.name, done.path.read_bytes(), done
        packed = BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(done.path.iterdir()):
                archive.writestr(file.name, file.read_bytes())
        return f"{name}-review-{form}.zip", packed.getvalue(), done


def _import(store: Store, dataset: DatasetRow) -> None:
    upload = st.file_uploader("A JSONL file of review events", type=["jsonl"], key="review.exchange.upload")
    skip = st.toggle("Leave out events whose pair or run is not here", key="review.exchange.skip")
    if not st.button("Import", type="primary", disabled=upload is None, icon=":material/upload_file:") or not upload:
        return
    try:
        with st.spinner("Checking and importing the events", show_time=True):
            done = uploads.review_upload(
                store,
                upload.getbuffer(),
                "events.jsonl",
                dataset.name,
                skip_unknown=skip,
                wanted=page.session_check(),
            )
    except (FormatError, StoreError) as problem:
        page.error("These events cannot be imported.", f"{problem}", "Nothing was kept of them.")
        return
    new, known = sum(done.new.values()), sum(done.known.values())
    lines = [f"{tables.count(new)} events are new, {tables.count(known)} were here already."]
    lines += [f"{note[:1].upper()}{note[1:]}." for note in done.notes]
    if done.skipped:
        lines.append(f"{tables.count(len(done.skipped))} left out, the first: {done.skipped[0]}")
    st.session_state[_OUTCOME] = lines
    st.rerun()

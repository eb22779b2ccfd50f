"""Part of the Profiles page: datasets come in and go out as files, and are deleted when somebody says so twice."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from cimemories import uploads
from cimemories.analysis import exporting
from cimemories.analysis.exporting import Format
from cimemories.analysis.labels import default_labelling
from cimemories.formats.errors import FormatError
from cimemories.store import deleting, labellings
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow
from cimemories.ui import page, safe, tables, url

TYPES = ["json", "jsonl", "parquet", "csv", "zip"]
FORMATS: dict[Format, str] = {
    "bundle-parquet": "Everything, as Parquet (zip)",
    "bundle-jsonl": "Everything, as JSON lines (zip)",
    "labelled": "Profiles with shares of votes (the authors' JSON)",
    "huggingface": "One row a pair with its label (published columns, Parquet)",
    "official": "Profiles only (the authors' JSON)",
}
HOLDS: dict[Format, str] = {
    "bundle-parquet": "All votes with their calls, decisions with their history, rules and effective labels. "
    "Comes back exactly as it is here.",
    "bundle-jsonl": "All votes with their calls, decisions with their history, rules and effective labels. "
    "Comes back exactly as it is here.",
    "labelled": "The shares of one labelling by persona and combined; no single votes, no decisions.",
    "huggingface": "The effective labels of one labelling and decisions, with prompts; no values, no biography.",
    "official": "Biographies, attributes and contexts; no labels.",
}
MIME = {".json": "application/json", ".zip": "application/zip", ".parquet": "application/vnd.apache.parquet"}
_OUTCOME = "profiles.outcome"
_READY = "profiles.export.ready"


def show_outcome() -> None:
    """What the last import or deletion came to; said once, after the rerun that it caused."""
    for line in st.session_state.pop(_OUTCOME, []):
        page.notice(line)


def import_form(store: Store) -> None:
    """Upload, name, import. A problem is one line under the form."""
    upload = st.file_uploader(
        "File",
        type=TYPES,
        key="profiles.upload",
        help="The authors' profiles with or without labels (JSON), their results (JSON lines), the published columns "
        "(Parquet or CSV), or an export of this app (zip). What it is, is recognised by its content. Large files of "
        "results go faster by the command line: cimemories import FILE.",
    )
    name = st.text_input(
        "Name of the dataset", key="profiles.name", placeholder="Name of the file, unless you say otherwise"
    )
    model = None
    if upload is not None and upload.name.lower().endswith(".jsonl"):
        model = st.text_input(
            "Model that wrote the results",
            key="profiles.model",
            placeholder="What the file says, or else its name",
        )
    if (
        not st.button("Import", type="primary", disabled=upload is None, icon=":material/upload_file:")
        or upload is None
    ):
        return
    try:
        with st.spinner("Checking and importing the file", show_time=True):
            found = uploads.import_upload(
                store,
                upload.getbuffer(),
                upload.name,
                name.strip() or None,
                model=(model or "").strip() or None,
                wanted=page.session_check(),
            )
    except FormatError as problem:
        page.error("This file cannot be imported.", f"{problem}.", "Nothing was kept of it.")
    except StoreError as problem:
        page.error("The dataset could not be written.", str(problem), "Nothing was kept of it.")
    else:
        row = found.dataset
        url.put(dataset=row.id, profile=None, attribute=None)
        if found.new:
            lines = [f"Imported {tables.count(row.profiles)} profiles as '{row.name}'."]
            lines += [f"Recognised as {found.recognised}.", *(f"{note[:1].upper()}{note[1:]}." for note in found.notes)]
            if found.runs:
                lines[0] = f"Imported {len(found.runs)} {'run' if len(found.runs) == 1 else 'runs'} of '{row.name}'."
                lines.append("See them on the Runs page and in the heatmaps.")
        elif found.runs:
            lines = [f"This very file is here already, as {', '.join(found.runs)} of '{row.name}', which is shown now."]
        else:
            lines = [f"This very file is here already, as the dataset '{row.name}', which is shown now."]
        st.session_state[_OUTCOME] = lines
        st.rerun()


@dataclass(frozen=True)
class _Ready:
    """An export that was asked for, until something else is chosen."""

    asked: tuple[object, ...]
    name: str
    data: bytes
    simulated: bool
    notes: tuple[str, ...]


def export_form(store: Store, dataset: DatasetRow) -> None:
    """Choose a format (and whose labels), prepare the file, download it."""
    with store.read() as connection:
        rows = [row for row in labellings.all_rows(connection, dataset.id) if row.imported or row.ballots]
    by_id = {row.id: row for row in rows}
    form = st.selectbox("Format", list(FORMATS), format_func=lambda key: FORMATS[key], key="profiles.export.format")
    safe.inline(HOLDS[form], muted=True)
    chosen: str | None = None
    if form != "official" and by_id:
        default = default_labelling(store, dataset.id)
        ids = sorted(by_id, key=lambda i: default is None or i != default.id)
        chosen = st.selectbox(
            "Labels of",
            ids,
            format_func=lambda i: safe.option(_words(by_id[i])),
            key=f"profiles.export.labelling.{dataset.id}",
        )
    elif form in exporting.NEED_LABELS:
        page.notice("This dataset has no labels yet. Label it on the Labels page, or choose another format.")
        return
    with_calls = form.startswith("bundle") and st.toggle(
        "With the recorded calls",
        value=True,
        key="profiles.export.calls",
        help="The requests and answers behind the votes. Without them the file is smaller, and votes keep their keys.",
    )
    state = (dataset.id, dataset.created, dataset.revision, by_id[chosen].revision if chosen else 0)
    asked = (*state, form, chosen, with_calls)
    if st.button("Prepare the file", icon=":material/inventory_2:", key="profiles.export.prepare"):
        _prepare(store, dataset, form, by_id.get(chosen or ""), with_calls, asked)
    ready = st.session_state.get(_READY)
    if isinstance(ready, _Ready) and ready.asked == asked:
        _offer(ready)


def _words(row: LabellingRow) -> str:
    marks = [mark for mark, holds in (("imported", row.imported), ("simulated", row.simulated)) if holds]
    return f"{row.model} · {row.created[:10]} · {row.status}" + "".join(f" · {mark}" for mark in marks)


def _prepare(
    store: Store,
    dataset: DatasetRow,
    form: Format,
    labelling: LabellingRow | None,
    with_calls: bool,
    asked: tuple[object, ...],
) -> None:
    name = exporting.suggested_name(dataset, form, simulated=exporting.is_simulated(dataset, labelling, form))
    try:
        with st.spinner("Writing the file"), tempfile.TemporaryDirectory() as folder:
            found = exporting.export(
                store,
                dataset.name,
                form,
                Path(folder) / name,
                labelling=labelling.id if labelling else None,
                with_calls=with_calls,
            )
            st.session_state[_READY] = _Ready(asked, name, found.path.read_bytes(), found.simulated, found.notes)
    except (FormatError, StoreError) as problem:
        st.session_state.pop(_READY, None)
        page.error("The dataset could not be exported.", str(problem))


def _offer(ready: _Ready) -> None:
    st.download_button(
        "Download",
        data=ready.data,
        file_name=ready.name,
        mime=MIME[Path(ready.name).suffix],
        type="primary",
        icon=":material/download:",
        key="profiles.export.download",
        on_click="ignore",
    )
    safe.inline(f"{ready.name}, {len(ready.data) / 1e6:,.2f} MB")
    if ready.simulated:
        page.badge_simulated()
    for note in ready.notes:
        page.notice(f"{note[:1].upper()}{note[1:]}.")


def delete_form(store: Store, dataset: DatasetRow) -> None:
    """Delete with a second word for it; refused while somebody works on the dataset."""
    with store.read() as connection:
        planned = deleting.of_dataset(connection, dataset.name)
    goes = planned.words((*planned.goes, *planned.rests))
    page.notice(f"'{dataset.name}' goes with {goes or 'nothing in it'}. This cannot be undone.")
    sure = st.checkbox("Yes, delete all of it", key=f"profiles.sure.{dataset.id}.{dataset.created}")
    if st.button("Delete", disabled=not sure, icon=":material/delete:"):
        try:
            deleting.delete(store, planned)
        except StoreError as problem:
            page.error("The dataset was not deleted.", str(problem))
            return
        url.put(dataset=None, profile=None, attribute=None, labelling=None, run=None, context=None)
        st.session_state[_OUTCOME] = [f"The dataset '{dataset.name}' was deleted."]
        st.rerun()

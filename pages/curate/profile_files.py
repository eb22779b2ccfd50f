"""Part of the Profiles page: datasets come in as official files, and go when somebody says so twice."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from cimemories.formats.official import FormatError, parse_profiles
from cimemories.model import WorkStatus
from cimemories.store import datasets, labellings, runs
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.ui import page, tables, url

ORIGIN = "official"
AT_WORK = (WorkStatus.QUEUED, WorkStatus.RUNNING, WorkStatus.CANCELLING)
_OUTCOME = "profiles.outcome"


def show_outcome() -> None:
    """What the last import or deletion came to; said once, after the rerun that it caused."""
    for line in st.session_state.pop(_OUTCOME, []):
        page.notice(line)


def import_form(store: Store) -> None:
    """Upload, name, import. A problem is one line under the form."""
    upload = st.file_uploader("Profile file (JSON)", type=["json"], key="profiles.upload")
    name = st.text_input(
        "Name of the dataset", key="profiles.name", placeholder="Name of the file, unless you say otherwise"
    )
    if (
        not st.button("Import", type="primary", disabled=upload is None, icon=":material/upload_file:")
        or upload is None
    ):
        return
    try:
        dataset_id, lines = import_bytes(store, upload.getvalue(), upload.name, name.strip())
    except FormatError as problem:
        page.error("This file cannot be imported.", str(problem))
    except StoreError as problem:
        page.error("The dataset could not be written.", str(problem), "Nothing was kept of it.")
    else:
        url.put(dataset=dataset_id, profile=None, attribute=None)
        st.session_state[_OUTCOME] = lines
        st.rerun()


def import_bytes(store: Store, data: bytes, file_name: str, name: str) -> tuple[int, list[str]]:
    """The dataset that these bytes are, and what to say of it; a file that is here already is not imported again.

    Raises FormatError and StoreError; then nothing is kept.
    """
    file = parse_profiles(data, file_name)
    name = name or Path(file_name).stem
    with store.write() as connection:
        there = datasets.with_source(connection, file.sha256)
        if there is not None:
            return there.id, [f"This very file is here already, as the dataset '{there.name}', which is shown now."]
        dataset_id = datasets.add(
            connection, name, file.profiles, origin=ORIGIN, source_name=file_name, source_hash=file.sha256
        )
    return dataset_id, [f"Imported {tables.count(len(file.profiles))} profiles as '{name}'.", *file.notes]


def delete_form(store: Store, dataset: DatasetRow) -> None:
    """Delete with a second word for it; refused while somebody works on the dataset."""
    with store.read() as connection:
        busy = [row.id for row in labellings.all_rows(connection, dataset.id) if row.status in AT_WORK]
        busy += [row.id for row in runs.all_rows(connection, dataset.id) if row.status in AT_WORK]
    if busy:
        page.notice(f"{', '.join(busy)} is at work on this dataset. Cancel it first, then delete.")
        return
    page.notice(
        f"'{dataset.name}' goes with its {tables.count(dataset.profiles)} profiles, {dataset.labellings} labellings, "
        f"all human decisions and {dataset.runs} runs. This cannot be undone."
    )
    sure = st.checkbox("Yes, delete all of it", key=f"profiles.sure.{dataset.id}.{dataset.created}")
    if st.button("Delete", disabled=not sure, icon=":material/delete:"):
        with store.write() as connection:
            datasets.delete(connection, dataset.id)
        url.put(dataset=None, profile=None, attribute=None, labelling=None, run=None, context=None)
        st.session_state[_OUTCOME] = [f"The dataset '{dataset.name}' was deleted."]
        st.rerun()

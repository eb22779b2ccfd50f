"""Parts of the Profiles page about whole datasets: files in and out, versions, the card, deletion, new profiles.

The outcome of an action is kept in the session over the rerun that it causes, and shown once at the top of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from cimemories import uploads
from cimemories.answers import lists
from cimemories.curation import authoring, editing
from cimemories.curation.offline import LOCALE_NAMES, generate_dataset
from cimemories.curation.spec import AuthoringSpec
from cimemories.exchange import exporting, freezing
from cimemories.exchange.card import dataset_card
from cimemories.exchange.exporting import Format
from cimemories.flows import catalogue
from cimemories.formats.importing import Imported
from cimemories.formats.reading import FormatError
from cimemories.model import WorkStatus
from cimemories.seeds import PUBLISHED, events_by_name, offline_events, packs
from cimemories.seeds.reading import SeedError
from cimemories.store import work
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.generations import GenerationRow
from cimemories.store.labellings import LabellingRow
from cimemories.store.upkeep import deleting
from cimemories.text import count, sentence
from cimemories.ui import annotator, answers, exports, once, page, safe, url
from cimemories.ui.annotator import Draft
from pages.curate.label_matrix import RESUMABLE, labelling_title
from pages.curate.work import WAYS, draw_failures, draw_form, draw_resume, draw_running, worker_log

_OUTCOME, _IMPORTING = "profiles.outcome", "profiles.importing"


def show_outcome() -> None:
    """Show the outcome of the last action, once."""
    page.outcome(page.kept_notices(_OUTCOME), "dataset")


def show_import() -> None:
    """Show the progress of an import of this session, or its outcome. Every part of the page shows it, since the first
    dataset may appear before its import has ended."""
    job = st.session_state.get(_IMPORTING)
    if job is None:
        return
    with (
        page.Reporting("This file cannot be imported.", FormatError, next="Nothing was imported."),
        page.Reporting("The dataset could not be saved.", StoreError, next="Nothing was imported."),
    ):
        if once.under_way(job, _imported, key="profiles.import"):
            return
    st.session_state.pop(_IMPORTING, None)


def draw(store: Store, dataset: DatasetRow) -> None:
    """Draw the page of a dataset: its versions, and the actions on it as a whole."""
    left, right = st.columns([3, 2], gap="large")
    with left:
        safe.heading("Versions")
        draw_versions(store, dataset)
    with right:
        frozen = f", frozen as {dataset.frozen[:8]}" if dataset.frozen else ", open"
        facts = [
            ("Origin", f"{dataset.origin}{f', {dataset.source_name}' if dataset.source_name else ''}"),
            ("Created", f"{dataset.created[:16].replace('T', ' ')} UTC"),
            ("Version", f"{dataset.version}{frozen}"),
            ("Used by", f"{count(dataset.labellings, 'labelling')}, {count(dataset.runs, 'run')}"),
        ]
        safe.show(safe.facts(facts))
        safe.heading("Export")
        export_form(store, dataset)
        safe.heading("Dataset card")
        card_form(store, dataset)
        safe.heading("Delete")
        delete_form(store, dataset)


# ---- versions


# The hash of a thousand profiles takes seconds, and stays until the dataset changes.
@st.cache_resource(max_entries=8, show_spinner="Reading the versions")
def _content(_store: Store, workspace: str, dataset_id: int, created: str, revision: int) -> str:
    return catalogue.content_hash(_store, dataset_id)


def draw_versions(store: Store, dataset: DatasetRow) -> None:
    """Draw the versions of a dataset, its hash, freezing it, its next version, and the content that each run used."""
    content = _content(store, str(store.workspace), dataset.id, dataset.created, dataset.revision)
    versions = lists.versions(store, dataset.id, {dataset.id: content})
    rows = {row["id"]: row for row in versions.records()}
    ids, version = list(rows), rows[dataset.id]
    clicked = answers.twin(versions, "profiles.versions.table", on_select="row", selected=ids.index(dataset.id))
    if clicked is not None and ids[clicked] != dataset.id:
        url.go("profiles", dataset=ids[clicked])
    safe.inline(f"Profiles and contexts of '{dataset.name}' have the hash {content}.", muted=True)
    if version["frozen"] is None:
        _freeze_form(store, dataset)
    else:
        page.notice(f"'{dataset.name}' is {version['frozen_words']}. Its hash is {version['frozen']}.")

    def made(next_version: tuple[int, str]) -> None:
        new, name = next_version
        url.put(dataset=new, profile=None, attribute=None, labelling=None, context=None)
        page.keep_notices(_OUTCOME, f"'{name}' was created from '{dataset.name}'.")

    with page.Reporting("No version was created.", StoreError):
        once.button(
            "Create next version",
            lambda: editing.new_version(store, dataset.id),
            made,
            icon=":material/content_copy:",
            key=f"profiles.next.{dataset.id}",
            doing="Copying profiles, contexts, rules and decisions",
            help="Copies profiles, contexts, rules and decisions into a new version to continue from.",
        )
    if version["runs"]:
        answers.twin(lists.runs_of_version(version), "profiles.versions.runs")


def _freeze_form(store: Store, dataset: DatasetRow) -> None:
    labellings = catalogue.labellings_of(store, dataset.id)
    key = f"profiles.freeze.{dataset.id}"
    with st.form(key, enter_to_submit=False, border=False):
        safe.inline(
            "Freezing records a hash over profiles, contexts, votes, decisions and rule. From then on, edits go into "
            "the next version.",
            muted=True,
        )
        labelling = st.selectbox(
            "Labelling",
            list(labellings),
            format_func=safe.options(labellings, lambda i: labelling_title(labellings[i])).__getitem__,
            placeholder="None yet",
            key=f"{key}.labelling",
        )
        button = st.container()
    # Below the button: leaving the field removes it, which moves everything below.
    who = annotator.ask(f"{annotator.KEY}.freeze")
    with page.Reporting("Nothing was frozen.", StoreError), button:
        once.button(
            "Freeze",
            lambda: freezing.freeze(store, dataset.id, labelling_id=labelling, annotator=who),
            key=f"{key}.freeze",
            submits=True,
            doing="Freezing",
            icon=":material/ac_unit:",
        )


def card_form(store: Store, dataset: DatasetRow) -> None:
    """Offer the dataset card, made when it is downloaded."""
    safe.inline(
        "Origin, versions, models, prompts, personas, counts, consensus, decisions and licence, as Markdown.",
        muted=True,
    )
    licence = st.text_input(
        "Licence",
        key=f"profiles.licence.{dataset.id}",
        placeholder="CC BY 4.0, by ...",
        help="For your own data. The authors' data is under CC BY-NC; the card says so if this is empty.",
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


# ---- files


TYPES = ["json", "jsonl", "parquet", "csv", "zip", "eval"]
# By format and the ending of the file.
FORMATS: dict[tuple[Format, str], tuple[str, str]] = {
    ("huggingface", ".zip"): (
        "Everything (a folder for the Hugging Face Hub, as zip)",
        "All votes and runs with their calls, decisions with their history, rules and labels, as Parquet with "
        "a card. Importing it restores these exactly. Comments, marks and audits are exported on Review.",
    ),
    ("labelled", ".json"): (
        "Profiles with shares of votes (the authors' JSON)",
        "The shares of one labelling, by persona and combined. No single votes, no decisions.",
    ),
    ("huggingface", ".parquet"): (
        "One row per pair with its label (published columns, Parquet)",
        "Effective labels by one labelling and by people, with prompts. No values, no biography.",
    ),
    ("official", ".json"): ("Profiles only (the authors' JSON)", "Biographies, attributes and contexts. No labels."),
}
_READY = "profiles.export.ready"


def import_form(store: Store) -> None:
    """Draw the upload of a file, its name and the button that imports it."""
    upload = st.file_uploader(
        "File",
        type=TYPES,
        key="profiles.upload",
        help="The authors' profiles with or without labels (JSON), their results (JSON Lines), the published columns "
        "(Parquet or CSV), a log of Inspect (.eval), or an export of this app (zip). The format is recognised by the "
        "content. Large result files import faster from the command line: cimemories import FILE.",
    )
    name = st.text_input("Dataset name", key="profiles.name", placeholder="Defaults to the name of the file")
    model = ""
    if upload is not None and upload.name.lower().endswith(".jsonl"):
        model = st.text_input(
            "Model that wrote the results", key="profiles.model", placeholder="Defaults to what the file says"
        )
    # The key has the upload: another file is another import.
    job = f"import.{upload.file_id if upload else ''}"
    once.button(
        "Import",
        lambda: once.begin(job, _reading(store, upload, name.strip(), model.strip())),
        lambda _: st.session_state.update({_IMPORTING: job}),
        key="profiles.import",
        type="primary",
        disabled=upload is None or _IMPORTING in st.session_state,
        icon=":material/upload_file:",
    )


def _reading(store: Store, upload: Any, name: str, model: str) -> Callable[[once.Report], Imported | None]:
    """Return the work of an import, which returns None if it was stopped."""
    # Closing the window while the file is read ends the reading.
    open_still = page.session_check()

    def read(report: once.Report) -> Imported | None:
        def go_on() -> bool:
            report(None, "Checking and importing the file")
            return open_still()

        try:
            # A view of the bytes, not another copy of a large file.
            return uploads.import_upload(
                store, upload.getbuffer(), upload.name, name or None, model=model or None, go_on=go_on
            )
        except once.StoppedError:
            return None

    return read


def _imported(imported: Imported | None) -> None:
    if imported is None:
        page.keep_notices(_OUTCOME, "Stopped. Nothing was imported.")
        return
    row, runs = imported.dataset, imported.runs
    notes = [f"Recognised as {imported.recognised}.", *map(sentence, imported.notes)]
    if not imported.new:
        where = f"{', '.join(runs)} of '{row.name}'" if runs else f"the dataset '{row.name}'"
        page.keep_notices(_OUTCOME, f"This file was imported before, as {where}, which is shown now.", *notes[1:])
    elif runs:
        lead = "See them on the Runs page and in the heatmaps."
        page.keep_notices(_OUTCOME, f"Imported {count(len(runs), 'run')} of '{row.name}'.", *notes, lead)
    else:
        page.keep_notices(_OUTCOME, f"Imported {count(row.profiles, 'profile')} as '{row.name}'.", *notes)
    url.put(dataset=row.id, profile=None, attribute=None)


def export_form(store: Store, dataset: DatasetRow) -> None:
    """Draw the choice of a format and of labels, and offer the file."""
    labellings = catalogue.labellings_of(store, dataset.id)
    labellings = {i: row for i, row in labellings.items() if row.imported or row.ballots}
    choice = st.selectbox(
        "Format", list(FORMATS), format_func=lambda key: FORMATS[key][0], key="profiles.export.format"
    )
    safe.inline(FORMATS[choice][1], muted=True)
    form, ending = choice
    labelling: LabellingRow | None = None
    if form != "official" and labellings:
        chosen = st.selectbox(
            "Labels of",
            list(labellings),
            format_func=safe.options(
                labellings, lambda i: f"{labelling_title(labellings[i])}, {labellings[i].created[:10]}"
            ).__getitem__,
            key=f"profiles.export.labelling.{dataset.id}",
        )
        labelling = labellings[chosen]
    elif exporting.needs_labels(form, Path(f"x{ending}")):
        page.notice("This dataset has no labels yet. Label it on the Labels page, or choose another format.")
        return
    with_calls = ending == ".zip" and st.toggle(
        "Include recorded calls",
        value=True,
        key="profiles.export.calls",
        help="The requests and answers behind votes and messages. Without them the file is smaller.",
    )
    request = (
        # created: SQLite reuses the id of a deleted dataset. revision: a later change is not in the file.
        *(dataset.id, dataset.created, dataset.revision, choice, with_calls),
        *((labelling.id, labelling.revision) if labelling else ()),
    )
    if st.button("Prepare the file", icon=":material/inventory_2:", key="show.profiles.export.prepare"):
        simulated = exporting.is_simulated(store, dataset, labelling, form, Path(f"x{ending}"))
        name = exporting.suggested_name(dataset, form, ending, simulated=simulated)
        path = exports.path_for(_READY, name)
        with (
            page.Reporting("The dataset could not be exported.", FormatError, StoreError),
            st.spinner("Writing the file"),
        ):
            export = exporting.export(
                store,
                dataset.name,
                form,
                path,
                labelling=labelling.id if labelling else None,
                with_calls=with_calls,
            )
            exports.prepared(_READY, request, path, simulated=export.simulated, notes=export.notes)
    exports.offer(_READY, request)


def delete_form(store: Store, dataset: DatasetRow) -> None:
    """Delete after a second confirmation; refused while a worker is running on the dataset."""
    deletion = catalogue.deletion_of(store, dataset.name)
    parts = deleting.listed((*deletion.goes, *deletion.rests))
    page.notice(f"This deletes '{dataset.name}' with {parts or 'nothing in it'}. It cannot be undone.")
    # created in the key: a dataset that reuses a deleted one's id must not find the box ticked.
    sure = st.checkbox("Yes, delete all of it", key=f"profiles.sure.{dataset.id}.{dataset.created}")

    def deleted(_: object) -> None:
        page.keep_notices(_OUTCOME, f"The dataset '{dataset.name}' was deleted.")
        url.put(dataset=None, profile=None, attribute=None, labelling=None, run=None, context=None)

    with page.Reporting("The dataset was not deleted.", StoreError):
        once.button(
            "Delete",
            lambda: deleting.delete(store, deletion),
            deleted,
            key=f"profiles.delete.{dataset.id}.{dataset.created}",
            disabled=not sure,
            icon=":material/delete:",
        )


# ---- new profiles: from templates at once, or by a model in a worker of its own


TEMPLATES = "Templates, no model"
SIMULATED_MODELS = ("sim-average", "sim-careful", "sim-oversharing")
AT_ONCE = 200  # profiles from templates that a page makes while the user waits
WIDE, NARROW = 260, 108  # pixels: fields flow into as many rows as there is room for
_MADE, _WATCHED = "new.made", "new.watched"


def draw_new(store: Store) -> None:
    """Draw the generations under way and their outcomes, then the form for more."""
    if made := st.session_state.get(_MADE):
        dataset_id, sentence = made
        page.notice(sentence)
        url.page_link("profiles", "Show the new profiles", icon=":material/group:", dataset=dataset_id)
    # Only generations that this session saw running are reported as done.
    watched = st.session_state.setdefault(_WATCHED, set())
    for row in reversed(authoring.all_generations(store)):
        if row.status in work.ACTIVE:
            watched.add(row.id)
            _watch(store, row)
        elif row.dataset is None and (row.status in RESUMABLE or row.settled < row.expected):
            _stopped(store, row)
        elif row.id in watched and row.dataset is not None:
            report = authoring.report(store, row.id)
            _title(row, f"is written: {count(report.written)} of {count(report.planned, 'attribute')}.")
            url.page_link("profiles", "Show the new profiles", icon=":material/group:", dataset=row.dataset)
            with st.expander("Rejections and cost"):
                safe.show(safe.lines(report.lines()))
    _form(store)


def _watch(store: Store, row: GenerationRow) -> None:
    # Only this fragment runs each second; st.rerun() in it draws the page again once the work has ended.
    def look() -> None:
        now = authoring.report(store, row.id, under_way=True)
        if now.row.status not in work.ACTIVE:
            st.rerun()
        _running(store, now)

    st.fragment(look, run_every="1s")()


def _running(store: Store, now: authoring.Report) -> None:
    row, cost = now.row, now.cost.shown
    _title(row, f"is being written: {row.status}")
    waiting = row.status == WorkStatus.QUEUED
    tokens = f"{count(now.tokens('prompt'))} prompt and {count(now.tokens('completion'), 'completion token')}"
    parts = [
        f"{count(row.settled)} of {count(row.expected, 'call')} done",
        "waiting to start"
        if waiting
        else once.pace(f"pace.{row.id}", row.settled, row.expected, "calls") or "measuring the pace",
        f"{tokens}, cost {cost}" if cost else tokens,
    ]
    if rejected := sum(now.rejected.values()):
        parts.append(f"{count(rejected, 'item')} rejected and asked for again")
    draw_running(store, row.id, row.status, row.settled, row.expected, f"{'; '.join(parts)}.", row.error or "")
    draw_failures("Failed or incomplete calls", now.failures)


def _title(row: GenerationRow, what: str) -> None:
    badge = page.simulated_badge(("profiles",) if row.simulated else ())
    safe.show(safe.tag("div", safe.tag("b", row.name), f" by {row.model} {what} ", badge, cls="ci-line"))


def _stopped(store: Store, row: GenerationRow) -> None:
    all_settled = row.settled == row.expected
    done = f"{count(row.settled)} of {count(row.expected, 'call')} done and kept"
    _title(row, f"is {row.status}.")
    page.error(
        "No dataset was created.",
        sentence(row.error),
        "Try another model, or a larger token limit." if all_settled else f"{done}. Resume to make the rest.",
    )
    worker_log(store, row.id)
    with st.container(horizontal=True):
        if not all_settled:
            draw_resume(store, row.id)
        once.button(
            "Discard",
            lambda: deleting.delete(store, catalogue.deletion_of_work(store, row.id)),
            key=f"new.discard.{row.id}",
            icon=":material/delete:",
        )


def _form(store: Store) -> None:
    draft = Draft("new")
    ways = [TEMPLATES, *WAYS]
    how = st.segmented_control("Who writes them?", ways, key=draft.key("how", TEMPLATES, ways), required=True)
    with st.container(horizontal=True):
        name = st.text_input("Dataset name", key=draft.key("name", ""), placeholder="my profiles", width=WIDE)
        most = AT_ONCE if how == TEMPLATES else 1000
        # `how` in the key, since each way has its own limit and with it its own value.
        profiles = st.number_input("Profiles", 1, most, key=draft.key(f"count.{how}", 10), width=NARROW)
        locales = sorted(LOCALE_NAMES, key=LOCALE_NAMES.__getitem__)
        locale = st.selectbox(
            "Names and addresses",
            locales,
            format_func=LOCALE_NAMES.__getitem__,
            key=draft.key("locale", "en_US", locales),
            help="Of which language and country. Sentences stay English.",
            width=WIDE,
        )
        seed = st.number_input(
            "Seed", 0, key=draft.key("seed", 0), help="The same seed gives the same people and events.", width=NARROW
        )
        available = [file.name for file in packs.pack_files("contexts", store.workspace)]
        key = draft.key("contexts", [*packs.CORE])
        st.session_state[key] = [
            name for name in st.session_state[key] if name in available
        ]  # a pack may have been deleted
        contexts = st.multiselect("Contexts", available, key=key, format_func=safe.option, width=WIDE)
    request = {
        "name": name.strip(),
        "profiles": int(profiles),
        "locale": str(locale),
        "seed": int(seed),
        "contexts": tuple(contexts),
    }
    if how == TEMPLATES:
        _from_templates(store, request, draft)
    else:
        watched: set[str] = st.session_state[_WATCHED]
        draw_form(
            store,
            draft,
            AuthoringSpec,
            str(how),
            fields=("per_domain", "events", "general", "max_tokens", "temperature", "timeout"),
            given=request,
            needed={"a dataset name": request["name"]},
            simulated=SIMULATED_MODELS,
            estimate=partial(authoring.estimate, store),
            plan=partial(authoring.plan, store),
            started=watched.add,
            label="Start writing",
        )


def _from_templates(store: Store, request: Mapping[str, Any], draft: Draft) -> None:
    with st.container(horizontal=True):
        per_domain = st.number_input(
            "Per domain",
            1,
            7,
            key=draft.key("templates.per_domain", 5),
            help=AuthoringSpec.described()["per_domain"].setting.help,
            width=NARROW,
        )
        events = st.number_input("Life events", 1, 12, key=draft.key("templates.events", 3), width=NARROW)
        among = st.multiselect(
            "Which events",
            [PUBLISHED, *sorted({*offline_events(), *events_by_name()})],
            key=draft.key("templates.among", []),
            format_func=lambda name: "all of the authors' data" if name == PUBLISHED else name,
            placeholder="the usual events",
            help="Life events to sample from: any that have templates, or those of the authors' data",
            width=WIDE,
        )
    draft.keep()
    safe.inline(
        f"{count(request['profiles'], 'profile')} with about {count(events * 9 * per_domain + 14, 'attribute')} "
        "each, created immediately. For more, use cimemories generate --offline.",
        muted=True,
    )

    def create() -> DatasetRow:
        return generate_dataset(
            store, request["name"], request["profiles"], seed=request["seed"], locale=request["locale"],
            contexts=request["contexts"], per_domain=per_domain, events=events, among=tuple(among),
        )  # fmt: skip

    def created(row: DatasetRow) -> None:
        counts = f"{count(row.profiles, 'profile')}, {count(row.attributes, 'attribute')}"
        st.session_state[_MADE] = (row.id, f"'{row.name}': {counts}.")

    with page.Reporting("No profiles were created.", StoreError, SeedError, ValueError):
        once.button(
            "Create profiles",
            create,
            created,
            key="new.create",
            type="primary",
            icon=":material/person_add:",
            disabled=not request["name"],
            doing="Creating the profiles",
        )
    if not request["name"]:
        safe.inline("Enter a dataset name first.", muted=True)

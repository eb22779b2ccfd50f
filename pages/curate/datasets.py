"""Parts of the Profiles page about whole datasets: new ones, files in and out, versions and cards."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import streamlit as st

from cimemories import launch, uploads
from cimemories.curation import authoring, editing
from cimemories.curation.authoring import AuthoringSpec, cost, estimate, live, report
from cimemories.curation.generating import generate_dataset
from cimemories.curation.offline import LOCALES
from cimemories.exchange import exporting, freezing
from cimemories.exchange.card import dataset_card
from cimemories.exchange.exporting import Format
from cimemories.flows.labels import default_labelling
from cimemories.flows.progress import in_words
from cimemories.formats.official import FormatError
from cimemories.llm.endpoint import DEFAULT_KEY_ENV, EndpointError
from cimemories.llm.worker import SIMULATOR
from cimemories.model import WorkStatus
from cimemories.seeds import packs
from cimemories.seeds.reading import SeedError
from cimemories.simulator.policy import SimulatorError
from cimemories.store import datasets, labellings, runs, upkeep, versions, work
from cimemories.store.datasets import DatasetRow, GenerationRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow
from cimemories.text import count
from cimemories.ui import page, safe, tables, url
from pages.curate.label_matrix import named
from pages.curate.profile_edit import ANNOTATOR
from pages.start import database_lost

# ---- dataset versions
#
# Part of the Profiles page: the versions of a dataset, freezing it, its card, and which runs ran on what.


_VERSION_OUTCOME = "profiles.versions.outcome"


def draw_versions(store: Store, dataset: DatasetRow) -> None:
    """Everything about versions, in the order in which one asks."""
    for line in st.session_state.pop(_VERSION_OUTCOME, []):
        page.notice(line)
    with store.read() as connection:
        members = versions.family(connection, dataset.id)
        changes = {item.dataset: len(versions.history(connection, item.dataset)) for item in members}
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
        st.session_state[_VERSION_OUTCOME] = [f"'{name}' was made from '{dataset.name}'."]
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


# ---- profile files
#
# Part of the Profiles page: datasets come in and go out as files, and are deleted when somebody says so twice.


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
_FILE_OUTCOME = "profiles.outcome"
_READY = "profiles.export.ready"


def show_outcome() -> None:
    """What the last import or deletion came to; said once, after the rerun that it caused."""
    for line in st.session_state.pop(_FILE_OUTCOME, []):
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
            lines = [f"Imported {count(row.profiles)} profiles as '{row.name}'."]
            lines += [f"Recognised as {found.recognised}.", *(f"{note[:1].upper()}{note[1:]}." for note in found.notes)]
            if found.runs:
                lines[0] = f"Imported {len(found.runs)} {'run' if len(found.runs) == 1 else 'runs'} of '{row.name}'."
                lines.append("See them on the Runs page and in the heatmaps.")
        elif found.runs:
            lines = [f"This very file is here already, as {', '.join(found.runs)} of '{row.name}', which is shown now."]
        else:
            lines = [f"This very file is here already, as the dataset '{row.name}', which is shown now."]
        st.session_state[_FILE_OUTCOME] = lines
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
        planned = upkeep.of_dataset(connection, dataset.name)
    goes = planned.words((*planned.goes, *planned.rests))
    page.notice(f"'{dataset.name}' goes with {goes or 'nothing in it'}. This cannot be undone.")
    sure = st.checkbox("Yes, delete all of it", key=f"profiles.sure.{dataset.id}.{dataset.created}")
    if st.button("Delete", disabled=not sure, icon=":material/delete:"):
        try:
            upkeep.delete(store, planned)
        except StoreError as problem:
            page.error("The dataset was not deleted.", str(problem))
            return
        url.put(dataset=None, profile=None, attribute=None, labelling=None, run=None, context=None)
        st.session_state[_FILE_OUTCOME] = [f"The dataset '{dataset.name}' was deleted."]
        st.rerun()


# ---- new profiles
#
# Part of the Profiles page: new profiles, from templates at once or by a model in a worker of its own.


TEMPLATES, BY_MODEL, BY_SIMULATOR = "Templates, no model", "A model", "The simulator"
SIMULATED_MODELS = ("sim-average", "sim-careful", "sim-oversharing")
AT_ONCE = 200  # profiles from templates that a page makes while somebody waits
RESUMABLE = (WorkStatus.INTERRUPTED, WorkStatus.CANCELLED, WorkStatus.FAILED)
WIDE, NARROW = 260, 108  # pixels: fields flow into as many rows as the place has room for
_LOCALE = "Of names and addresses; the sentences are English"
_SEED = "The same seed gives the same people and events"
_PER_DOMAIN = (
    "Attributes for each of the nine domains of each event. The paper asks a model for 7, the released data has 5"
)
_GENERAL = "Attributes that belong to no event: employer, income, marital status and the like"
_PRICE_IN = "For a million prompt tokens, in any currency; 0 leaves the cost out"
_PRICE_OUT = "For a million completion tokens, in any currency; 0 leaves the cost out"
_MADE, _WATCHED = "new.made", "new.watched"


def draw(store: Store) -> None:
    """What is being written and what came of it, then the form for more."""
    _made()
    with store.read() as connection:
        rows = datasets.all_generations(connection)
    watched = st.session_state.setdefault(_WATCHED, set())
    for row in reversed(rows):
        if row.status in work.ACTIVE:
            watched.add(row.id)
            _watch(store, row)
        elif row.dataset is None and (row.status in RESUMABLE or row.settled < row.expected):
            _stopped(store, row)
        elif row.id in watched:
            _finished(store, row)
    _form(store)


def _made() -> None:
    """What templates have just become; said once more after the rerun that it caused."""
    made = st.session_state.get(_MADE)
    if made:
        dataset_id, words = made
        page.notice(words)
        url.page_link("profiles", "Show the new profiles", icon=":material/group:", dataset=dataset_id)


# ---- what is under way


def _watch(store: Store, row: GenerationRow) -> None:
    def look() -> None:
        with store.read() as connection:
            status = work.shown_status(work.load(connection, row.id))
        if status not in work.ACTIVE:
            st.rerun()
        _running(store, row, status)

    database_lost.fragment(look, run_every="1s")()


def _running(store: Store, row: GenerationRow, status: WorkStatus) -> None:
    now = live(store, row.id)
    _title(row, f"is being written: {status}")
    st.progress(now.settled / now.expected if now.expected else 0.0)
    turned_down = sum(now.rejected.values())
    words = [
        f"{count(now.settled)} of {count(now.expected)} calls answered in full",
        _pace(row, status, now.settled, now.expected),
        f"{count(now.prompt_tokens)} prompt and {count(now.completion_tokens)} completion tokens"
        + _money(row, now.prompt_tokens, now.completion_tokens),
    ]
    if turned_down:
        words.append(f"asked again for {count(turned_down)} faults")
    safe.inline(f"{'; '.join(words)}.", muted=True)
    _failures(now.failures)
    asked = status == WorkStatus.CANCELLING
    if st.button("Cancel", icon=":material/stop_circle:", key=f"new.cancel.{row.id}", disabled=asked):
        with store.write() as connection:
            work.request_cancel(connection, row.id)
        st.rerun()


def _pace(row: GenerationRow, status: WorkStatus, done: int, expected: int) -> str:
    """'1.4 calls a second, 3 min left', measured since this session first saw the work running."""
    key = f"new.pace.{row.id}"
    if status == WorkStatus.QUEUED:
        return "waiting for the worker"
    since, first = st.session_state.setdefault(key, (time.time(), done))
    seconds = time.time() - since
    if done <= first or seconds < 1:
        return "measuring the pace"
    rate = (done - first) / seconds
    return f"{rate:,.2f} calls a second, {in_words((expected - done) / rate)} left"


def _money(row: GenerationRow, prompt_tokens: int, completion_tokens: int) -> str:
    asked = row.manifest.get("asked")
    prices = [float(asked.get(name) or 0) for name in ("price_in", "price_out")] if isinstance(asked, dict) else [0, 0]
    return f", cost {cost(prompt_tokens, completion_tokens, *prices):,.2f}" if any(prices) else ""


def _title(row: GenerationRow, what: str) -> None:
    parts: list[safe.Html | str] = [safe.tag("b", row.name), f" by {row.model} {what} "]
    safe.show(safe.tag("div", *parts, page.SIMULATED if row.simulated else "", cls="ci-line"))


def _failures(failures: tuple[tuple[str, str, int], ...]) -> None:
    if failures:
        said = "; ".join(f"{count(n)} {status}{f' ({cause})' if cause else ''}" for status, cause, n in failures)
        safe.inline(f"Calls that went wrong or fell short, by cause: {said}.", muted=True)


# ---- what has ended


def _stopped(store: Store, row: GenerationRow) -> None:
    nothing_owed = row.settled == row.expected
    _title(row, f"is {row.status}.")
    page.error(
        "There is no dataset of it.",
        f"{row.error.rstrip('.').capitalize()}." if row.error else "",
        "Try another model, or a larger token limit."
        if nothing_owed
        else f"{count(row.settled)} of {count(row.expected)} calls are answered and kept; Resume asks for the rest.",
    )
    log = launch.log_tail(store, row.id)
    if log:
        with st.expander("Last lines of the worker's log"):
            st.code(log, language=None, wrap_lines=True)
    with st.container(horizontal=True):
        if not nothing_owed and st.button("Resume", icon=":material/play_arrow:", key=f"new.resume.{row.id}"):
            _launch(store, row.id)
        if st.button("Discard", icon=":material/delete:", key=f"new.discard.{row.id}"):
            with store.read() as connection:
                planned = upkeep.of_work(connection, row.id)
            upkeep.delete(store, planned)
            st.rerun()


def _finished(store: Store, row: GenerationRow) -> None:
    """What came of a generation that this session has seen at work."""
    found = report(store, row.id)
    if found.dataset is None:
        return
    _title(row, f"is written: {count(found.kept)} of {count(found.wanted)} attributes.")
    url.page_link("profiles", "Show the new profiles", icon=":material/group:", dataset=found.dataset)
    with st.expander("What was turned down, and what it cost"):
        counted = [(what, count(number)) for what, number in found.turned_down()]
        tokens = f"{count(found.prompt_tokens)} prompt, {count(found.completion_tokens)} completion"
        costs = [] if found.cost is None else [("cost", f"{found.cost:,.2f}")]
        left_out = [("profiles left out: nothing could be kept", str(found.left_out))] if found.left_out else []
        safe.show(safe.facts([*counted, ("missing in the end", count(found.missing)), *left_out]))
        safe.show(safe.facts([("tokens", tokens), *costs]))


# ---- the form


@dataclass(frozen=True)
class _Who:
    """What is asked for whoever writes it."""

    name: str
    profiles: int
    locale: str
    seed: int
    contexts: tuple[str, ...]


def _form(store: Store) -> None:
    how = st.segmented_control(
        "Who writes them?", [TEMPLATES, BY_MODEL, BY_SIMULATOR], default=TEMPLATES, key="new.how", required=True
    )
    with st.container(horizontal=True):
        name = st.text_input("Name of the new dataset", key="new.name", placeholder="my profiles", width=WIDE).strip()
        most = AT_ONCE if how == TEMPLATES else 1000
        profiles = st.number_input("Profiles", 1, most, 10, key=f"new.count.{how}", width=NARROW)
        locale = st.selectbox("Locale", LOCALES, LOCALES.index("en_US"), key="new.locale", help=_LOCALE, width=NARROW)
        seed = st.number_input("Seed", 0, value=0, key="new.seed", help=_SEED, width=NARROW)
        there = [file.name for file in packs.pack_files("contexts", store.workspace)]
        chosen = st.multiselect("Contexts", there, packs.CORE, key="new.contexts", format_func=safe.option, width=WIDE)
    who = _Who(name, int(profiles), str(locale), int(seed), tuple(chosen))
    if how == TEMPLATES:
        _from_templates(store, who)
    else:
        _by_model(store, who, simulator=how == BY_SIMULATOR)


def _from_templates(store: Store, who: _Who) -> None:
    with st.container(horizontal=True):
        per_domain = st.number_input(
            "Per domain", 1, 7, 5, key="new.templates.per_domain", help=_PER_DOMAIN, width=NARROW
        )
        events = st.number_input("Life events", 1, 12, 3, key="new.templates.events", width=NARROW)
    safe.inline(
        f"This comes to {count(who.profiles)} profiles with about {count(events * 9 * per_domain + 14)} "
        "attributes each, made at once. More than that: cimemories generate --offline.",
        muted=True,
    )
    if not st.button("Make the profiles", type="primary", icon=":material/person_add:", disabled=not who.name):
        return
    try:
        with st.spinner("Making the profiles"):
            row = generate_dataset(
                store,
                who.name,
                who.profiles,
                seed=who.seed,
                locale=who.locale,
                per_domain=per_domain,
                events=events,
                contexts=who.contexts,
            )
    except (StoreError, SeedError, ValueError) as problem:
        page.error("Nothing was made.", str(problem))
        return
    words = f"'{row.name}': {count(row.profiles)} profiles, {count(row.attributes)} attributes."
    st.session_state[_MADE] = (row.id, words)
    st.rerun()


_PER_DOMAIN = (
    "Attributes for each of the nine domains of each event; the paper asks a model for 7, the released data has 5"
)


def _by_model(store: Store, who: _Who, *, simulator: bool) -> None:
    base_url, key_env = SIMULATOR, DEFAULT_KEY_ENV
    price_in = price_out = 0.0
    timeout = 300
    if simulator:
        model = str(st.selectbox("Model", SIMULATED_MODELS, key="new.simulated", width=WIDE))
        st.caption("Answers follow docs/simulator.md. The dataset is marked as simulated wherever it appears.")
    else:
        with st.container(horizontal=True):
            model = st.text_input("Model", key="new.model", placeholder="openai/gpt-oss-120b", width=WIDE).strip()
            base_url = st.text_input("Base URL", value="http://localhost:8000/v1", key="new.url", width=WIDE).strip()
            key_env = st.text_input(
                "Variable that holds the key", value=DEFAULT_KEY_ENV, key="new.key", width=WIDE
            ).strip()
    with st.container(horizontal=True):
        per_domain = st.number_input("Per domain", 1, 20, 7, key="new.per_domain", help=_PER_DOMAIN, width=NARROW)
        events = st.number_input("Life events", 1, 31, 3, key="new.events", width=NARROW)
        general = st.number_input("General ones", 1, 50, 10, key="new.general", help=_GENERAL, width=NARROW)
        st.session_state.setdefault("new.max_tokens", 8192)
        max_tokens = st.number_input(
            "Token limit", 256, 131072, value=None, step=1024, key="new.max_tokens", width=NARROW,
            placeholder="the server's", help="Of one answer. Empty: no limit is sent, the server's own holds.",
        )  # fmt: skip
        temperature = st.number_input(
            "Temperature", 0.0, 2.0, value=None, step=0.1, placeholder="default", key="new.temperature", width=NARROW
        )
        if not simulator:
            timeout = st.number_input(
                "Patience in s", 1, 3600, 300, key="new.timeout", help="Doubled by each retry", width=NARROW
            )
            price_in = st.number_input("Price in", 0.0, value=0.0, key="new.price_in", help=_PRICE_IN, width=NARROW)
            price_out = st.number_input("Price out", 0.0, value=0.0, key="new.price_out", help=_PRICE_OUT, width=NARROW)
    spec = AuthoringSpec(
        name=who.name,
        profiles=who.profiles,
        model=model,
        base_url=base_url,
        seed=who.seed,
        locale=who.locale,
        per_domain=per_domain,
        events=events,
        general=general,
        contexts=who.contexts,
        api_key_env=key_env or DEFAULT_KEY_ENV,
        temperature=temperature,
        max_tokens=max_tokens,
        timeout=float(timeout),
        price_in=price_in,
        price_out=price_out,
    )
    safe.inline(
        f"This comes to {estimate(spec).words(price_in, price_out)}. It can be cancelled and resumed at any time.",
        muted=True,
    )
    ready = bool(who.name and model and base_url)
    if st.button("Start writing", type="primary", icon=":material/play_arrow:", disabled=not ready):
        _start(store, spec)


def _start(store: Store, spec: AuthoringSpec) -> None:
    try:
        with st.spinner("Asking the server and drawing the people"):
            generation_id = authoring.plan(store, spec)
    except (EndpointError, StoreError, SeedError, SimulatorError) as problem:
        page.error("Nothing was started.", str(problem))
        return
    st.session_state[_WATCHED].add(generation_id)
    _launch(store, generation_id)


def _launch(store: Store, generation_id: str) -> None:
    try:
        launch.launch(store, generation_id)
    except StoreError as problem:
        page.error("The worker was not started.", str(problem))
        return
    st.rerun()

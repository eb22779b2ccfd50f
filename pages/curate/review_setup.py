"""Parts of the Review page for how the work is set up: the overlap of people, and the exchange of review events with
other workspaces."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from cimemories import uploads
from cimemories.agreement.people import answers
from cimemories.formats.reading import FormatError
from cimemories.formats.review_events import (
    FORMS,
    Exported,
    Filters,
    Form,
    Imported,
    export_choices,
    export_events,
    imports,
    in_words,
    undo_import,
)
from cimemories.review import queue
from cimemories.review.index import PairIndex
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.reviews import LONGEST_REASON, Plan, PlanChange
from cimemories.text import count, display_name, percent, sentence
from cimemories.ui import annotator, once, page, safe, tables, url

_BEFORE = "overlap.before"  # by dataset, the overlap before the one set in this session

# ---- overlap


def draw_overlap(store: Store, dataset: DatasetRow, index: PairIndex) -> str:
    """Draw the overlap of pairs, with a preview before it is set; returns the page's takeaway."""
    now = queue.overlap(store, dataset.id)
    me = annotator.required()
    before: Plan | None = st.session_state.get(_BEFORE, {}).get(dataset.id)
    if before is not None and before != now:
        with st.container(horizontal=True, vertical_alignment="center"):
            _overlap_button(
                store, dataset, "Undo", before, me, "Undone.",
                key="overlap.undo", icon=":material/undo:", disabled=not me,
            )  # fmt: skip
            safe.inline(f"The overlap is set. Before: {_plan_text(before)}.")
    safe.inline(f"{dataset.name} (simulated)" if dataset.simulated else dataset.name, muted=True)
    left, right = st.columns([2, 5], gap="large")
    with left:
        share = st.number_input(
            "Share of pairs for several people, in %", 0, 100, round(100 * now.share), key="overlap.share"
        )
        people = int(st.number_input("People per such pair", 2, 20, max(2, now.people), key="overlap.people"))
        changed = (share, people) != (round(100 * now.share), max(2, now.people))
        reason = st.text_input("Reason", key="overlap.reason", max_chars=LONGEST_REASON).strip()
        _overlap_button(
            store, dataset, "Set overlap", Plan(share / 100, people, now.seed), me, reason,
            key="overlap.set", icon=":material/group:", disabled=not (me and changed and reason), type="primary",
        )  # fmt: skip
        if me and changed and not reason:
            safe.inline("Needs a reason.", muted=True)
    with right:
        shared = round(share / 100 * len(index))
        safe.heading("What this asks for")
        rest = "every pair goes to one person" if not shared else f"the other {count(len(index) - shared)} to one"
        about = f"About {count(shared)} of {count(len(index), 'pair')} go to {people} people each, " if shared else ""
        text = f"{about}{rest}: {count(len(index) + shared * (people - 1), 'decision')} in all"
        given = answers(store, dataset.id)
        made = f"{count(given.in_force)} made so far, on {count(len(given.attributes), 'pair')}"
        text += f". {made}, {count(given.shared)} of them by two or more people." if given.in_force else ". None yet."
        safe.inline(text[:1].upper() + text[1:], strong=True)
        safe.inline(
            "Shared pairs are drawn at random. Decisions that are made stay. Agreement needs pairs that several people "
            "decide.",
            muted=True,
        )
        url.page_link("review", "See agreement", icon=":material/query_stats:", dataset=dataset.id, tab="agreement")
    if changes := queue.overlap_changes(store, dataset.id):
        page.fold(
            f"Changes ({len(changes)})", ":material/history:", "overlap.box.changes", lambda: _changes(dataset, changes)
        )
    if not now.share:
        return "Each pair goes to one person."
    return f"{percent(now.share)} of the pairs go to {now.people} people, the others to one."


def _plan_text(plan: Plan) -> str:
    if not plan.share:
        return "each pair goes to one person"
    return f"{percent(plan.share)} of the pairs go to {plan.people} people"


def _changes(dataset: DatasetRow, changes: Sequence[PlanChange]) -> None:
    """Draw the changes of the overlap, the newest first."""
    frame = pd.DataFrame(
        [
            {
                "created": item.created[:16].replace("T", " "),
                "annotator": item.annotator,
                "overlap": _plan_text(item.plan),
                "reason": item.reason,
                **vars(item.plan),
            }
            for item in reversed(changes)
        ]
    )
    tables.table(
        frame,
        key="overlap.changes",
        columns={
            "created": ("text", "When (UTC)"),
            "annotator": ("text", "By"),
            "overlap": ("text", "Overlap"),
            "reason": ("wide", "Reason"),
        },
        height="content",
        alt="Every overlap that was set, the newest first",
    )
    tables.csv_button(frame.assign(dataset=dataset.name), f"overlap-{dataset.id}.csv", key="overlap.csv")


def _overlap_button(
    store: Store, dataset: DatasetRow, label: str, plan: Plan, who: str, reason: str, **options: Any
) -> None:
    """Draw a button that sets the overlap, once. label must be a literal; options: of `once.button`."""

    def do() -> Plan:
        before = queue.overlap(store, dataset.id)
        queue.set_overlap(store, dataset.id, plan, who, reason)
        return before

    def then(before: Plan) -> None:
        st.session_state[_BEFORE] = {dataset.id: before}
        # The fields show the new overlap.
        for key in ("overlap.share", "overlap.people", "overlap.reason"):
            st.session_state.pop(key, None)

    with page.Reporting("The overlap was not set.", StoreError):
        once.button(label, do, then, **options)


# ---- exchange


FORMATS: dict[Form, str] = {"jsonl": "JSONL, one event a line", "csv": "CSV tables", "parquet": "Parquet tables"}
_READY, _OUTCOME, _CHECKED = "review.exchange.ready", "review.exchange.outcome", "review.exchange.checked"


def draw_exchange(store: Store, dataset: DatasetRow) -> str:
    """Draw the export at the left and the import at the right; returns the page's takeaway."""
    for line in page.kept_notices(_OUTCOME):
        page.notice(line)
    simulated = " (simulated)" if dataset.simulated else ""
    safe.inline(f"{dataset.name}{simulated}: decisions, marks, comments and audits by people", muted=True)
    left, right = st.columns(2, gap="large")
    with left:
        safe.heading("Export")
        _export(store, dataset)
    with right:
        safe.heading("Import")
        _import(store, dataset)
        _imports(store, dataset)
    return "Move review work between workspaces: files merge in any order, and the same file twice adds nothing."


def _export(store: Store, dataset: DatasetRow) -> None:
    people, domains = export_choices(store, dataset.id)
    if not people:
        page.empty(
            "Nothing to export yet",
            "An export holds what people decided and wrote. Decide a pair first.",
            lambda: url.page_link("review", "Open the queue", icon=":material/keyboard:", dataset=dataset.id),
        )
        return
    form = st.selectbox("Format", list(FORMS), format_func=lambda key: FORMATS[key], key="review.exchange.format")
    who = st.selectbox(
        "By",
        ["", *people],
        format_func=lambda name: safe.option(name) if name else "all people",
        key="review.exchange.who",
    )
    domain = st.selectbox(
        "Domain", ["", *domains], format_func=lambda name: safe.option(display_name(name)) if name else "all domains"
    )
    blind = st.toggle("Blind answers only", key="review.exchange.blind")
    filters = Filters(annotator=who or None, domain=domain or None, blind=blind)
    request = (dataset.id, dataset.revision, form, filters)
    if st.button("Prepare the file", icon=":material/inventory_2:"):
        st.session_state.pop(_READY, None)
        with (
            page.Reporting("The events could not be exported.", FormatError, StoreError),
            st.spinner("Writing the events"),
        ):
            st.session_state[_READY] = (request, *_written(store, dataset, form, filters))
    ready = st.session_state.get(_READY)
    if ready is not None and ready[0] == request:
        _, name, data, done = ready
        st.download_button(
            "Download", data=data, file_name=name, type="primary", icon=":material/download:", on_click="ignore"
        )
        safe.inline(f"{name}: {in_words(done.counts) or 'no events match'}", muted=True)
        if done.simulated:
            page.badge_simulated()


def _written(store: Store, dataset: DatasetRow, form: Form, filters: Filters) -> tuple[str, bytes, Exported]:
    """Return the file's name and content; tables, which are several files, as one zip."""
    # The dataset's name may hold any characters, path separators too.
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
    """Draw the import in two steps: a preview of what a file would add, then the button."""
    upload = st.file_uploader("A JSONL file of review events", type=["jsonl"], key="review.exchange.upload")
    skip = st.toggle("Skip events whose pair or run is not in this workspace", key="review.exchange.skip")
    if not upload:
        safe.inline("You see what is new before anything is imported.", muted=True)
        return
    zone = st.text_input(
        "Time zone of times that name none",
        "UTC",
        help="A name such as Europe/Berlin, or an offset such as +02:00.",
        key="review.exchange.zone",
    )
    request = (upload.file_id, skip, zone, dataset.id)
    checked = st.session_state.get(_CHECKED)
    if checked is None or checked[0] != request:
        if st.button("Check the file", type="primary", icon=":material/fact_check:"):
            with _refusing(), st.spinner("Checking the file", show_time=True):
                st.session_state[_CHECKED] = (
                    request,
                    _read(store, dataset, upload, skip=skip, zone=zone, dry_run=True),
                )
                st.rerun()
        return
    done: Imported = checked[1]
    new, present = sum(done.new.values()), sum(done.present.values())
    safe.inline(f"New here: {in_words(done.new) or 'nothing'}. {count(present)} are here already.", strong=True)
    for line in _remarks(done, zone):
        safe.inline(line, muted=True)

    def imported(done: Imported) -> None:
        new, present = sum(done.new.values()), sum(done.present.values())
        page.keep_notices(
            _OUTCOME,
            f"{count(new)} new events imported, {count(present)} were already here. You can undo this below.",
            *_remarks(done, zone),
        )
        st.session_state.pop(_CHECKED, None)

    with _refusing():
        once.button(
            safe.plain_label(f"Import {count(new, 'event')}"),
            lambda: _read(store, dataset, upload, skip=skip, zone=zone),
            imported,
            key=f"review.exchange.import.{upload.file_id}",
            doing="Importing the events",
            type="primary",
            icon=":material/upload_file:",
            disabled=not new,
        )


def _imports(store: Store, dataset: DatasetRow) -> None:
    """Draw the imported files, each with its undo button."""
    rows = imports(store, dataset.id)
    if rows:
        safe.heading("Imported files")
    for row in rows:
        text, button = st.columns([3, 1], vertical_alignment="center")
        by = f" by {row.annotator}" if row.annotator else ""
        undone = f", undone {row.undone[:16].replace('T', ' ')}" if row.undone else ""
        with text:
            safe.inline(f"{safe.option(row.name)}: {in_words(row.events)}{undone}.")
            safe.inline(f"{row.created[:16].replace('T', ' ')} UTC{by}", muted=True)
        with page.Reporting("The import was not undone.", StoreError), button:
            once.button(
                "Undo",
                partial(undo_import, store, dataset.id, row.id, annotator.name()),
                _import_undone,
                key=f"review.exchange.undo.{row.id}",
                icon=":material/undo:",
                disabled=bool(row.undone) or store.read_only,
            )


def _import_undone(counts: tuple[int, int]) -> None:
    removed, stay = counts
    later = f" {count(stay)} stay: people have gone on from them since." if stay else ""
    page.keep_notices(
        _OUTCOME, f"{count(removed, 'imported event')} removed; what was here before counts again.{later}"
    )
    st.session_state.pop(_CHECKED, None)


def _refusing() -> page.Reporting:
    return page.Reporting("These events cannot be imported.", FormatError, StoreError, next="Nothing was imported.")


def _read(store: Store, dataset: DatasetRow, upload: Any, *, skip: bool, zone: str, dry_run: bool = False) -> Imported:
    return uploads.review_upload(
        store,
        upload.getbuffer(),
        # Our own name: the browser's name of the file could be anything.
        "events.jsonl",
        dataset=dataset.name,
        skip_unknown=skip,
        dry_run=dry_run,
        name=upload.name,
        annotator=annotator.name(),
        zone=zone,
        go_on=page.session_check(),
    )


def _remarks(done: Imported, zone: str) -> list[str]:
    lines = [sentence(note) for note in (done.zone_note(zone), *done.notes) if note]
    if done.skipped:
        lines.append(f"{count(len(done.skipped) + done.more_skipped)} skipped, the first: {done.skipped[0]}")
    return lines

"""Part of the Review page: comments on pairs, the guideline with its versions, and the exchange of review events."""

from __future__ import annotations

import difflib
import tempfile
import zipfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import pandas as pd
import streamlit as st

from cimemories import uploads
from cimemories.formats.official import FormatError
from cimemories.formats.review_events import FORMS, Exported, Filters, Form, export_choices, export_events
from cimemories.review.status import PairComment, guidelines, pair_comments, resolve_comment, save_guideline
from cimemories.store import reviews
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow
from cimemories.store.reviews import Guideline
from cimemories.text import count
from cimemories.ui import annotator, page, safe, tables, url
from cimemories.ui.safe import Html, tag
from pages.curate.profile_view import display_name

OPEN, ALL = "open", "all"
LONGEST_REASON = 500
MOST_DIFF_LINES = 400
EVERYBODY = ""
CHOSEN = "review.comments.chosen"
FORMATS: dict[Form, str] = {"jsonl": "JSONL, one event a line", "csv": "CSV tables", "parquet": "Parquet tables"}
_READY, _OUTCOME = "review.exchange.ready", "review.exchange.outcome"


def draw_exchange(store: Store, dataset: DatasetRow) -> str:
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
    return "Move review work between workspaces: files merge in any order, and the same file twice adds nothing."


def _export(store: Store, dataset: DatasetRow) -> None:
    people, domains = export_choices(store, dataset.id)
    form = st.selectbox("Format", list(FORMS), format_func=lambda key: FORMATS[key], key="review.exchange.format")
    who = st.selectbox("By", [EVERYBODY, *people], format_func=_person, key="review.exchange.who")
    domain = st.selectbox(
        "Domain", ["", *domains], format_func=lambda name: safe.option(display_name(name)) if name else "all domains"
    )
    blind = st.toggle("Blind answers only", key="review.exchange.blind")
    filters = Filters(annotator=who or None, domain=domain or None, blind=blind)
    wanted = (dataset.id, dataset.revision, form, filters)
    if st.button("Prepare the file", icon=":material/inventory_2:"):
        try:
            with st.spinner("Writing the events"):
                st.session_state[_READY] = (wanted, *_written(store, dataset, form, filters))
        except (FormatError, StoreError) as problem:
            st.session_state.pop(_READY, None)
            page.error("The events could not be exported.", str(problem))
    ready = st.session_state.get(_READY)
    if ready is not None and ready[0] == wanted:
        _, name, data, done = ready
        st.download_button(
            "Download", data=data, file_name=name, type="primary", icon=":material/download:", on_click="ignore"
        )
        counted = ", ".join(f"{count(number)} {kind}" for kind, number in done.counts.items())
        safe.inline(f"{name}: {counted or 'no events match'}", muted=True)
        if done.simulated:
            page.badge_simulated()


def _written(store: Store, dataset: DatasetRow, form: Form, filters: Filters) -> tuple[str, bytes, Exported]:
    """The file's name and content; tables, which are several files, as one zip."""
    # The dataset's name may hold anything, separators of paths among it.
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
    skip = st.toggle("Skip events whose pair or run is not in this workspace", key="review.exchange.skip")
    if not st.button("Import", type="primary", disabled=upload is None, icon=":material/upload_file:") or not upload:
        return
    try:
        with st.spinner("Checking and importing the events", show_time=True):
            done = uploads.review_upload(
                store,
                upload.getbuffer(),
                # A name of our own: what the browser says the file is called could be anything.
                "events.jsonl",
                dataset.name,
                skip_unknown=skip,
                wanted=page.session_check(),
            )
    except (FormatError, StoreError) as problem:
        page.error("These events cannot be imported.", f"{problem}", "Nothing was imported.")
        return
    new, known = sum(done.new.values()), sum(done.known.values())
    lines = [f"{count(new)} new events imported, {count(known)} were already here."]
    lines += [f"{note[:1].upper()}{note[1:]}." for note in done.notes]
    if done.skipped:
        lines.append(f"{count(len(done.skipped))} skipped, the first: {done.skipped[0]}")
    st.session_state[_OUTCOME] = lines
    st.rerun()


def _person(name: str) -> str:
    return safe.option(name) if name else "everybody"


def draw_guideline(store: Store) -> str:
    """The current guideline, the form for a new version, and every version with its changes; returns the takeaway."""
    versions = guidelines(store)
    now = versions[-1]
    safe.inline(_version(now), muted=True)
    safe.show(safe.document(now.text))
    page.fold("Write the next version", ":material/edit:", "review.box.guideline", lambda: _form(store, now))
    page.fold(f"Versions ({len(versions)})", ":material/history:", "review.box.versions", lambda: _versions(versions))
    return "The rules annotators follow. Every decision records the version it was made by."


def _version(item: Guideline) -> str:
    """'Version 2, by Ada, 2026-01-31 10:00'."""
    when = item.created[:16].replace("T", " ") if item.created else "as shipped"
    return f"Version {item.version}, by {item.annotator}, {when}"


def _form(store: Store, now: Guideline) -> None:
    # A new version makes a new form, which starts from its text.
    key = f"review.guideline.{now.version}"
    who = annotator.ask()
    with st.form(key, enter_to_submit=False, border=False):
        text = st.text_area(
            "Guideline", value=now.text, height=420, max_chars=reviews.LONGEST_GUIDELINE, key=f"{key}.text"
        )
        saved = st.form_submit_button("Save as a new version", type="primary", icon=":material/save:")
    safe.inline("Earlier versions are kept, and decisions keep the version they were made by.", muted=True)
    if not saved:
        return
    if not who:
        page.error("Nothing was saved.", "A version needs its author.", "Enter your name and save again.")
        return
    try:
        # `now` is the version that was edited: where somebody has saved another meanwhile, theirs is not overwritten.
        saved_version = save_guideline(store, text, who, now).version
    except StoreError as problem:
        page.error("Nothing was saved.", str(problem))
        return
    if saved_version == now.version:
        page.notice("The text has not changed, so no version was saved.")
        return
    st.rerun()


def _versions(versions: Sequence[Guideline]) -> None:
    for earlier, item in reversed(list(zip([None, *versions[:-1]], versions, strict=True))):
        safe.inline(_version(item), strong=True)
        first = "" if earlier else f"First version, {len(item.text.splitlines())} lines. "
        safe.inline(f"{first}Hash {item.hash}.", muted=True)
        if earlier is not None:
            safe.show(_diff(earlier.text, item.text))


def _diff(old: str, new: str) -> Html:
    """Lines added and removed, with one line around them."""
    # Without the two lines that name the files.
    changes = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=1))[2:]
    rows = []
    for line in changes[:MOST_DIFF_LINES]:
        sign, text = line[:1], line[1:]
        if sign == "@":
            rows.append(tag("tr", tag("td", "…", cls="ci-muted"), tag("td", "")))
            continue
        word = {"+": "added", "-": "removed"}.get(sign, "")
        shown = tag("b", text) if sign == "+" else tag("span", text, cls="ci-muted" if sign == "-" else "")
        rows.append(tag("tr", tag("td", word), tag("td", shown)))
    if len(changes) > MOST_DIFF_LINES:
        rows.append(tag("tr", tag("td", "…"), tag("td", f"{len(changes) - MOST_DIFF_LINES:,} more lines")))
    return tag("table", tag("tbody", *rows), cls="ci-grid")


def draw(store: Store, dataset: DatasetRow, labelling: LabellingRow | None) -> str:
    """Draws the part; returns the page's takeaway."""
    every = pair_comments(store, dataset.id)
    if not every:
        page.empty(
            "No comments yet",
            "A comment holds what a label cannot: a question, a gap in the guideline. Press c in the queue.",
        )
        return "No comments on pairs yet."
    left = sum(item.comment.open for item in every)
    shown = _filtered(every)
    if not shown:
        page.empty("No comment matches", "Show all comments, or change the search.")
    else:
        _table(store, dataset, labelling, shown)
    pairs = len({(item.comment.attribute, item.comment.context) for item in every})
    return f"{count(left)} of {count(len(every))} comments on {count(pairs)} pairs are open."


def _filtered(every: list[PairComment]) -> list[PairComment]:
    state, person, search, _ = st.columns([2, 2, 3, 3], vertical_alignment="bottom")
    with state:
        shown = st.segmented_control(
            "Comments",
            [OPEN, ALL],
            format_func={OPEN: "Open", ALL: "All"}.__getitem__,
            key="review.comments.state",
            default=OPEN,
            required=True,
        )
    people = sorted({item.comment.annotator for item in every})
    with person:
        who = st.selectbox("By", [EVERYBODY, *people], format_func=_person, key="review.comments.who")
    with search:
        text = st.text_input("Search", key="review.comments.search", placeholder="comments and statements")
    wanted = text.casefold().split()
    return [
        item
        for item in every
        if (shown == ALL or item.comment.open)
        and who in (EVERYBODY, item.comment.annotator)
        and all(word in item.searched for word in wanted)
    ]


def _table(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, shown: list[PairComment]) -> None:
    ids = [item.comment.id for item in shown]
    frame = pd.DataFrame(
        [
            {
                "state": "open" if item.comment.open else "resolved",
                "created": item.comment.created[:16].replace("T", " "),
                "annotator": item.comment.annotator,
                "text": item.comment.text,
                "profile": item.profile_name,
                "attribute": item.key,
                "recipient": item.recipient,
                "task": item.task,
                "resolved_by": item.comment.resolved_by or "",
                "resolution": item.comment.resolution,
            }
            for item in shown
        ],
        index=ids,
    )
    before = st.session_state.get(CHOSEN)
    at = tables.table(
        frame,
        key=f"review.comments.{dataset.id}",
        columns={
            "state": ("small", "State"),
            "created": ("text", "When"),
            "annotator": ("text", "By"),
            "text": ("wide", "Comment"),
            "attribute": ("text", "Attribute"),
            "recipient": ("text", "Recipient"),
            "resolution": ("text", "Resolved because"),
        },
        on_select="row",
        selected=ids.index(before) if before in ids else None,
        alt="Comments on pairs, the open ones first",
    )
    tables.csv_button(
        frame.assign(dataset=dataset.name, simulated="simulated" if dataset.simulated else ""),
        f"comments-{dataset.id}.csv",
        key="review.comments.csv",
    )
    if at is None or at >= len(shown):
        safe.inline("Select a row to read it in full, see its pair, or resolve it.", muted=True)
        return
    st.session_state[CHOSEN] = ids[at]
    _one(store, dataset, labelling, shown[at])


def _one(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, item: PairComment) -> None:
    note = item.comment
    with st.container(border=True, key="review.comment"):
        safe.message(note.text)
        pairs = [
            ("By", f"{note.annotator}, {note.created[:16].replace('T', ' ')}"),
            ("Statement", item.statement),
            ("Attribute", f"{item.key} of {item.profile_name}"),
            ("Recipient", item.recipient),
            ("Task", item.task),
        ]
        if not note.open:
            pairs.append(("Resolved", f"by {note.resolved_by}" + (f": {note.resolution}" if note.resolution else "")))
        safe.show(safe.facts(pairs))
        if st.button("Show the pair", icon=":material/label:", key=f"review.comment.pair.{note.id}"):
            url.go(
                "labels",
                dataset=dataset.id,
                labelling=labelling.id if labelling else None,
                profile=item.profile,
                context=note.context,
                attribute=note.attribute,
            )
        if note.open:
            _resolve(store, dataset, item)


def _resolve(store: Store, dataset: DatasetRow, item: PairComment) -> None:
    key = f"review.comment.{item.comment.id}"
    who = annotator.ask()
    with st.form(key, enter_to_submit=False, border=False):
        why = st.text_input("Why is it resolved?", key=f"{key}.why", max_chars=LONGEST_REASON)
        done = st.form_submit_button("Resolve", type="primary", icon=":material/check:")
    if not done:
        return
    if not who or not why.strip():
        page.error("Nothing was resolved.", "Your name or the reason is missing.", "Enter both and try again.")
        return
    try:
        resolve_comment(store, dataset.id, who, item.comment.id, why.strip())
    except StoreError as problem:
        page.error("Nothing was resolved.", str(problem))
        return
    st.rerun()

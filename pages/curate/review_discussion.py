"""Parts of the Review page in which people come to terms: pairs on which they differ, comments on pairs, the guideline
with its versions, and the exchange of review events with other workspaces."""

from __future__ import annotations

import difflib
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

import pandas as pd
import streamlit as st

from cimemories import uploads
from cimemories.formats.official import FormatError
from cimemories.formats.review_events import FORMS, Exported, Filters, Form, export_choices, export_events
from cimemories.labels.votes import pairs
from cimemories.model import Label
from cimemories.review.adjudication import Cause, Disputed, Disputes, disputes, pseudonyms, settle
from cimemories.review.status import PairComment, guidelines, pair_comments, resolve_comment, save_guideline
from cimemories.store import reviews
from cimemories.store.datasets import DatasetRow
from cimemories.store.decisions import Decision
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow
from cimemories.store.reviews import Guideline
from cimemories.text import count
from cimemories.ui import annotator, page, safe, tables, url
from cimemories.ui.safe import Html, tag
from pages.curate.pair_panel import show_votes
from pages.curate.profile_view import display_name

# ---- disputes


HIDDEN = "review.adjudication.hidden"
LONGEST_REASON = 500
Names = Mapping[str, str]


def draw_disputes(store: Store, dataset: DatasetRow, labelling: LabellingRow | None) -> str:
    """Draws the part; returns the page's takeaway."""
    disputed = disputes(store, dataset.id)
    if not disputed.shared and not disputed.settled:
        page.empty(
            "Nothing to adjudicate yet",
            "Pairs that two or more people decide differently appear here. Set the overlap in the queue.",
        )
        return "No pair has been decided by two or more people yet."
    hidden = st.toggle(
        "Hide names",
        value=True,
        key=HIDDEN,
        help="Each person is a letter, the same on all pairs of the dataset. Their names are then not on the page.",
    )
    letters = pseudonyms(store, dataset.id)
    names = letters if hidden else {name: name for name in letters}
    if disputed.open:
        _open(store, dataset, labelling, disputed, names)
    else:
        page.empty("No pair is in dispute", "People agree wherever two or more have decided, or it has been settled.")
    if disputed.settled:
        page.fold(
            f"Adjudicated ({len(disputed.settled)})",
            ":material/gavel:",
            "review.box.adjudicated",
            lambda: _settled(dataset, labelling, disputed, names),
        )
    verb = "is" if len(disputed.open) == 1 else "are"
    return (
        f"{count(len(disputed.open))} of {count(disputed.shared)} pairs decided by two or more people "
        f"{verb} in dispute."
    )


def _rows(items: Sequence[Disputed]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "statement": item.statement,
                "recipient": item.recipient,
                "task": item.task,
                "domain": display_name(item.domain),
                "people": len(item.decisions),
                "labels": ", ".join(f"{n} {safe.GLYPHS[label]}" for label, n in item.labels.most_common()),
            }
            for item in items
        ],
        index=[f"{item.attribute}-{item.context}" for item in items],
    )


def _open(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, disputed: Disputes, names: Names) -> None:
    frame = _rows(disputed.open)
    chosen = st.session_state.get("review.adjudication.pair")
    at = tables.table(
        frame,
        key=f"review.disputes.{dataset.id}",
        columns={
            "statement": ("wide", "Statement"),
            "recipient": ("text", "Recipient"),
            "domain": ("text", "Domain"),
            "people": ("count", "People"),
            "labels": ("text", "Labels"),
        },
        on_select="row",
        # By the pair, not its row: once one is settled the others move up.
        selected=list(frame.index).index(chosen) if chosen in frame.index else 0,
        height=min(38 + 35 * len(frame), 250),
        alt="Pairs on which people differ, those decided by most people first",
    )
    item = disputed.open[at if at is not None and at < len(disputed.open) else 0]
    st.session_state["review.adjudication.pair"] = f"{item.attribute}-{item.context}"
    with st.container(key="dispute"):
        _pair(dataset, labelling, item)
        safe.heading("Decisions")
        _history(item.decisions, names)
        if item.adjudication is not None:
            page.notice("This pair was settled before, and somebody has decided it again since.")
        if labelling is not None:
            page.fold(
                "Votes of the personas",
                ":material/how_to_vote:",
                "review.box.votes",
                lambda: _votes(store, labelling, item),
            )
        page.fold(
            "All decisions on this pair",
            ":material/history:",
            "review.box.history",
            lambda: _history(item.history, names),
        )
        _settle_form(store, dataset, item)


def _pair(dataset: DatasetRow, labelling: LabellingRow | None, item: Disputed) -> None:
    safe.heading(item.statement)
    about = ("Attribute", f"{item.key} of {item.profile_name}"), ("Recipient", item.recipient), ("Task", item.task)
    safe.show(safe.facts(about))
    url.page_link(
        "labels",
        "Show on the Labels page (names are visible there)",
        icon=":material/label:",
        dataset=dataset.id,
        labelling=labelling.id if labelling else None,
        profile=item.profile,
        context=item.context,
        attribute=item.attribute,
    )


def _history(made: Sequence[Decision], names: Names) -> None:
    rows = [
        (
            # Never the name itself in place of a missing letter: names may be hidden.
            tag("b", names.get(d.annotator, "?")),
            safe.label_chip(d.label) if d.label else "taken back",
            d.created[:16].replace("T", " "),
            ", ".join(filter(None, (d.source, "blind" if d.blind else "", d.cause))),
            d.reason,
        )
        for d in made
    ]
    body = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    safe.show(safe.grid(("Who", "Label", "When", "How", "Reason"), body, texts=range(5)))


def _votes(store: Store, labelling: LabellingRow, item: Disputed) -> None:
    (view,) = pairs(store, labelling.id, item.profile, item.context, item.attribute)
    show_votes(view, imported=labelling.imported)
    safe.inline(view.explanation, muted=True)


def _settle_form(store: Store, dataset: DatasetRow, item: Disputed) -> None:
    safe.heading("Settle")
    # The number of decisions in the key: after another one the form is empty again, since it answered fewer.
    key = f"review.settle.{item.attribute}.{item.context}.{len(item.history)}"
    who = annotator.ask()
    with st.form(key, enter_to_submit=False, border=False):
        label = st.radio(
            "Label", list(Label), index=None, format_func=safe.glyphed, horizontal=True, key=f"{key}.label"
        )
        cause = st.radio(
            "Why did they differ?", list(Cause), index=None, format_func=str, horizontal=True, key=f"{key}.cause"
        )
        reason = st.text_input("Reason", key=f"{key}.reason", max_chars=LONGEST_REASON)
        done = st.form_submit_button("Settle", type="primary", icon=":material/gavel:")
    safe.inline("This adds a decision, which sets the label. Everybody's own decision stays.", muted=True)
    if not done:
        return
    if label is None or cause is None or not who:
        page.error("Nothing was settled.", "A label, a cause and your name are needed.", "Enter them and try again.")
        return
    with page.Reporting("Nothing was settled.", StoreError):
        settle(store, dataset.id, item, who, label, cause, reason)
        st.rerun()


def _settled(dataset: DatasetRow, labelling: LabellingRow | None, disputed: Disputes, names: Names) -> None:
    causes = ", ".join(f"{cause} {count}" for cause, count in disputed.causes.items())
    if causes:
        safe.inline(f"Why people differed: {causes}.")
    endings = [item.adjudication for item in disputed.settled]
    frame = _rows(disputed.settled).assign(
        label=[safe.glyphed(d.label) if d else "" for d in endings],
        cause=[(d.cause or "") if d else "" for d in endings],
        reason=[d.reason if d else "" for d in endings],
        by=[names.get(d.annotator, "?") if d else "" for d in endings],
        when=[d.created[:16].replace("T", " ") if d else "" for d in endings],
    )
    at = tables.table(
        frame,
        key=f"review.adjudicated.{dataset.id}",
        columns={
            "statement": ("wide", "Statement"),
            "recipient": ("text", "Recipient"),
            "labels": ("text", "Decided"),
            "label": ("text", "Settled as"),
            "cause": ("text", "Cause"),
            "reason": ("wide", "Reason"),
            "by": ("text", "By"),
            "when": ("text", "When"),
        },
        on_select="row",
        alt="Adjudicated pairs, the newest first",
    )
    tables.csv_button(
        frame.assign(dataset=dataset.name, simulated="simulated" if dataset.simulated else ""),
        f"adjudicated-{dataset.id}.csv",
        key="review.adjudicated.csv",
    )
    if at is None or at >= len(disputed.settled):
        safe.inline("Select a row to see all decisions on the pair.", muted=True)
        return
    item = disputed.settled[at]
    _pair(dataset, labelling, item)
    _history(item.history, names)


# ---- comments, guideline, exchange


OPEN, ALL = "open", "all"
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
        st.session_state.pop(_READY, None)
        with (
            page.Reporting("The events could not be exported.", FormatError, StoreError),
            st.spinner("Writing the events"),
        ):
            st.session_state[_READY] = (wanted, *_written(store, dataset, form, filters))
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
    refused = page.Reporting("These events cannot be imported.", FormatError, StoreError, next="Nothing was imported.")
    with refused, st.spinner("Checking and importing the events", show_time=True):
        done = uploads.review_upload(
            store,
            upload.getbuffer(),
            # A name of our own: what the browser says the file is called could be anything.
            "events.jsonl",
            dataset.name,
            skip_unknown=skip,
            wanted=page.session_check(),
        )
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
    page.fold("Write the next version", ":material/edit:", "review.box.guideline", lambda: _guideline_form(store, now))
    page.fold(f"Versions ({len(versions)})", ":material/history:", "review.box.versions", lambda: _versions(versions))
    return "The rules annotators follow. Every decision records the version it was made by."


def _version(item: Guideline) -> str:
    """'Version 2, by Ada, 2026-01-31 10:00'."""
    when = item.created[:16].replace("T", " ") if item.created else "as shipped"
    return f"Version {item.version}, by {item.annotator}, {when}"


def _guideline_form(store: Store, now: Guideline) -> None:
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
    with page.Reporting("Nothing was saved.", StoreError):
        # `now` is the version that was edited: where somebody has saved another meanwhile, theirs is not overwritten.
        if save_guideline(store, text, who, now).version != now.version:
            st.rerun()
        page.notice("The text has not changed, so no version was saved.")


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
        change = {"+": "added", "-": "removed"}.get(sign, "")
        shown = tag("b", text) if sign == "+" else tag("span", text, cls="ci-muted" if sign == "-" else "")
        rows.append(tag("tr", tag("td", change), tag("td", shown)))
    if len(changes) > MOST_DIFF_LINES:
        rows.append(tag("tr", tag("td", "…"), tag("td", f"{len(changes) - MOST_DIFF_LINES:,} more lines")))
    return safe.grid((), rows)


def draw_comments(store: Store, dataset: DatasetRow, labelling: LabellingRow | None) -> str:
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
        _comments_table(store, dataset, labelling, shown)
    pairs = len({(item.comment.attribute, item.comment.context) for item in every})
    return f"{count(left)} of {count(len(every))} comments on {count(pairs)} pairs are open."


def _filtered(every: list[PairComment]) -> list[PairComment]:
    state, person, search, _ = st.columns([2, 2, 3, 3], vertical_alignment="bottom")
    shown = state.segmented_control(
        "Comments", [OPEN, ALL], format_func=str.capitalize, key="review.comments.state", default=OPEN, required=True
    )
    people = sorted({item.comment.annotator for item in every})
    who = person.selectbox("By", [EVERYBODY, *people], format_func=_person, key="review.comments.who")
    text = search.text_input("Search", key="review.comments.search", placeholder="comments and statements")
    wanted = text.casefold().split()
    return [
        item
        for item in every
        if (shown == ALL or item.comment.open)
        and who in (EVERYBODY, item.comment.annotator)
        and all(word in item.searched for word in wanted)
    ]


def _comments_table(
    store: Store, dataset: DatasetRow, labelling: LabellingRow | None, shown: list[PairComment]
) -> None:
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
        facts = [
            ("By", f"{note.annotator}, {note.created[:16].replace('T', ' ')}"),
            ("Statement", item.statement),
            ("Attribute", f"{item.key} of {item.profile_name}"),
            ("Recipient", item.recipient),
            ("Task", item.task),
        ]
        if not note.open:
            facts.append(("Resolved", f"by {note.resolved_by}" + (f": {note.resolution}" if note.resolution else "")))
        safe.show(safe.facts(facts))
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
    with page.Reporting("Nothing was resolved.", StoreError):
        resolve_comment(store, dataset.id, who, item.comment.id, why.strip())
        st.rerun()

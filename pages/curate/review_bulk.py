"""Part of the Review page: one label for all pairs that match, batches taken back, and a decision spread further."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from cimemories.model import Label
from cimemories.review.bulk import Axis, Batch, Last, Proposal, batches, last_single, proposals
from cimemories.review.index import PairIndex
from cimemories.review.queue import Item, items, sample, undecided
from cimemories.store import decisions, reviews
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow
from cimemories.text import count
from cimemories.ui import annotator, page, safe, tables

if TYPE_CHECKING:
    from cimemories.review.index import Ints

PREVIEWED = 20
PIECE = 1000  # decisions of one transaction: others get their turn between two
_SAID = "bulk.said"
_DRAWN = "bulk.drawn"
_SOURCES = {"batch": "all that matched", "proposal": "a decision spread further"}
_AXES = {
    Axis.CONTEXTS: "Similar contexts",
    Axis.ATTRIBUTES: "Same domain and event",
    Axis.PROFILES: "Other profiles",
}


def draw(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, index: PairIndex, positions: Ints) -> str:
    """Draws the part for the pairs at these positions of the index; returns the page's takeaway."""
    said = st.session_state.pop(_SAID, None)
    if said:
        page.notice(said)
    person = annotator.name()
    open_pairs = undecided(store, index, positions, person) if person else positions
    left, right = st.columns([2, 5], gap="large")
    with left:
        safe.heading("One label for all that match")
        _form(store, dataset, index, person, positions, open_pairs)
        if person:
            _own_batches(store, dataset, person)
    with right:
        _preview(store, labelling, index, positions)
        if person:
            page.fold(
                "Spread your last decision",
                ":material/account_tree:",
                "bulk.box.spread",
                lambda: _spread(store, dataset, labelling, index, person),
            )
    if not len(positions):
        return "No pair matches the filters."
    done = len(positions) - len(open_pairs)
    decided = f"; you have decided {count(done)} of them" if done else ""
    return f"{count(len(positions))} of {count(len(index))} pairs match{decided}."


def _form(store: Store, dataset: DatasetRow, index: PairIndex, person: str, positions: Ints, open_pairs: Ints) -> None:
    done = len(positions) - len(open_pairs)
    again = st.toggle(
        "Include pairs that I have decided",
        key="bulk.again",
        help="Otherwise they keep what you said of them. What other people decided stays in the record either way.",
    )
    chosen = positions if again else open_pairs
    if done and not again:
        safe.inline(f"{count(done)} of the pairs that match you have decided; they are left out.", muted=True)
    label = st.radio("Label", list(Label), index=None, format_func=safe.glyphed, horizontal=True, key="bulk.label")
    reason = st.text_input("Reason", key="bulk.reason", max_chars=500)
    missing = "your name" if not person else "a label" if label is None else ""
    pressed = st.button(
        safe.plain_label(f"Apply to all {count(len(chosen))}"),
        type="primary",
        icon=":material/done_all:",
        key="bulk.apply",
        disabled=not len(chosen) or bool(missing),
    )
    if missing and len(chosen):
        safe.inline(f"Needs {missing}.", muted=True)
    if pressed and label is not None:
        _record(store, dataset, person, index.pairs(chosen), label, reason.strip(), "batch")


def _record(
    store: Store,
    dataset: DatasetRow,
    person: str,
    pairs: Sequence[tuple[int, int]],
    label: Label,
    reason: str,
    source: str,
) -> None:
    """One batch, written in pieces; ends this run of the script unless something fails."""
    batch, written = uuid.uuid4().hex, 0
    bar = st.progress(0.0)
    try:
        with store.read() as connection:
            guideline = reviews.current_guideline(connection).hash
        for start in range(0, len(pairs), PIECE):
            piece = [
                decisions.Said(a, c, label, reason=reason, source=source, batch=batch, guideline=guideline)
                for a, c in pairs[start : start + PIECE]
            ]
            with store.write() as connection:
                written += decisions.add_all(connection, dataset.id, person, piece)
            bar.progress(written / len(pairs))
    except StoreError as problem:
        page.error(f"{count(written)} of {count(len(pairs))} pairs were decided.", str(problem))
        return
    _say(f"{count(written)} pairs decided as {label}, in one batch that can be taken back at once.")


def _say(words: str) -> None:
    st.session_state[_SAID] = words
    st.rerun()


def _preview(store: Store, labelling: LabellingRow | None, index: PairIndex, positions: Ints) -> None:
    if not len(positions):
        page.empty("No pair matches", "Widen the filters, and what matches is previewed here.")
        return
    title, again = st.columns([4, 1], vertical_alignment="bottom")
    with title:
        shown = min(PREVIEWED, len(positions))
        safe.heading(f"{shown} of {count(len(positions))} pairs, drawn at random")
    with again:
        if st.button("Draw others", icon=":material/shuffle:", key="bulk.shuffle", disabled=len(positions) <= shown):
            st.session_state[_DRAWN] = st.session_state.get(_DRAWN, 0) + 1
    drawn = items(store, index, sample(positions, PREVIEWED, seed=st.session_state.get(_DRAWN, 0)))
    frame = pd.DataFrame([_row(item, labelling) for item in drawn])
    tables.table(
        frame,
        key="bulk.preview",
        columns={
            "statement": ("wide", "Statement"),
            "recipient": ("text", "Recipient"),
            "task": ("wide", "Task"),
            "label": ("text", "Label"),
            "votes": ("text", "Votes"),
            "revealed": ("small", "Revealed"),
            "user": ("text", "User"),
        },
        height="content",
        alt="A random sample of the pairs that match, with their present labels",
    )
    tables.csv_button(frame, "review-sample.csv", key="bulk.csv.preview")


def _row(item: Item, labelling: LabellingRow | None) -> dict[str, Any]:
    return {
        "user": item.user,
        "statement": item.statement,
        "recipient": item.recipient,
        "task": item.task,
        "domain": item.domain,
        "event": item.event,
        "label": safe.glyphed(item.effective),
        "consensus": safe.glyphed(item.consensus),
        "votes": " ".join(letters for _, _, letters in item.votes),
        "revealed": f"{item.reveals} of {item.draws}" if item.draws else "",
        "people": item.decided,
        "labels": "simulated" if labelling is not None and labelling.simulated else "",
    }


def _own_batches(store: Store, dataset: DatasetRow, person: str) -> None:
    safe.heading("Your batches")
    rows = batches(store, dataset.id, person)
    if not rows:
        safe.inline("None yet. Each can be taken back at once, however large it is.", muted=True)
    for row in rows:
        words, button = st.columns([3, 1], vertical_alignment="center")
        with words:
            safe.inline(_batch_words(row))
            safe.inline(f"{row.created[:16].replace('T', ' ')} UTC. {row.reason}", muted=True)
        with button:
            key = f"bulk.undo.{row.id}"
            if st.button("Undo", icon=":material/undo:", key=key, disabled=row.taken_back >= row.pairs):
                _undo(store, dataset, person, row)


def _batch_words(row: Batch) -> str:
    label = f"as {row.label}" if row.label else "with several labels"
    gone = f", {count(row.taken_back)} of them taken back" if row.taken_back else ""
    return f"{count(row.pairs)} pairs {label}, {_SOURCES.get(row.source, row.source)}{gone}."


def _undo(store: Store, dataset: DatasetRow, person: str, row: Batch) -> None:
    try:
        with store.write() as connection:
            undone = decisions.undo_batch(connection, dataset.id, person, row.id)
    except StoreError as problem:
        page.error("The batch was not taken back.", str(problem))
        return
    kept = row.pairs - row.taken_back - undone
    later = f" {count(kept)} keep what you have said of them since." if kept else ""
    _say(f"{count(undone)} decisions taken back; what you had said before stands again.{later}")


def _spread(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, index: PairIndex, person: str) -> None:
    last = last_single(store, dataset.id, person)
    if last is None:
        safe.inline("Decide a pair in the queue first: here it is proposed where else that might hold.", muted=True)
        return
    try:
        found = proposals(store, index, person, last.attribute, last.context)
    except StoreError as problem:
        page.error("Nothing can be proposed.", str(problem))
        return
    _origin(store, index, last)
    if not found:
        page.notice("No pair that you have not decided yet resembles this one.")
        return
    chosen = [item for item in found if _axis(item)]
    _proposed(store, labelling, index, found)
    pairs = [(pair.attribute, pair.context) for item in chosen for pair in item.pairs]
    if st.button(
        safe.plain_label(f"Decide these {count(len(pairs))} as {last.label}"),
        type="primary",
        icon=":material/done_all:",
        key="bulk.accept",
        disabled=not pairs,
    ):
        reason = "Spread from one decision: " + ", ".join(_AXES[item.axis].lower() for item in chosen)
        _record(store, dataset, person, pairs, last.label, reason, "proposal")


def _origin(store: Store, index: PairIndex, last: Last) -> None:
    for item in items(store, index, index.shape.locate([last.attribute], [last.context])):
        safe.show(
            safe.facts(
                [
                    ("You decided", safe.label_chip(last.label)),
                    ("Statement", item.statement),
                    ("Towards", f"{item.recipient}: {item.task}"),
                ]
            )
        )


def _axis(item: Proposal) -> bool:
    """A tick of its own for each axis, none set: nothing is applied that nobody asked for."""
    key = f"bulk.axis.{item.axis}"
    if item.axis is Axis.CONTEXTS:
        ticked = st.checkbox("Similar contexts", key=key)
    elif item.axis is Axis.ATTRIBUTES:
        ticked = st.checkbox("Same domain and event", key=key)
    else:
        ticked = st.checkbox("Other profiles", key=key)
    closest = max(pair.similarity for pair in item.pairs)
    pairs = count(len(item.pairs), "pair")
    safe.inline(f"{pairs}, similarity {item.similarity:.2f} to {closest:.2f}. {item.reason}", muted=True)
    return bool(ticked)


def _proposed(store: Store, labelling: LabellingRow | None, index: PairIndex, found: Sequence[Proposal]) -> None:
    rows = []
    for proposal in found:
        similarity = {(pair.attribute, pair.context): pair.similarity for pair in proposal.pairs}
        at = index.shape.locate([a for a, _ in similarity], [c for _, c in similarity])
        for item in items(store, index, at):
            own = {"because": _AXES[proposal.axis], "similarity": similarity[item.attribute, item.context]}
            rows.append(own | _row(item, labelling))
    frame = pd.DataFrame(rows)
    tables.table(
        frame,
        key="bulk.proposed",
        columns={
            "because": ("text", "Because of"),
            "similarity": ("number", "Similarity"),
            "statement": ("wide", "Statement"),
            "recipient": ("text", "Recipient"),
            "task": ("wide", "Task"),
            "label": ("text", "Label"),
            "user": ("text", "User"),
        },
        alt="The pairs that are proposed, with the reason and how much they resemble the decided one",
    )
    tables.csv_button(frame, "review-proposals.csv", key="bulk.csv.proposed")

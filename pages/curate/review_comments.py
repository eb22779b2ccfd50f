"""Part of the Review page: what was said of pairs in words, the open comments first, each a click from its pair."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories.analysis.review_comments import Remark, remarks
from cimemories.store import comments
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow
from cimemories.ui import annotator, page, safe, tables, url

OPEN, ALL = "open", "all"
LONGEST_REASON = 500
EVERYBODY = ""
CHOSEN = "review.comments.chosen"


def draw(store: Store, dataset: DatasetRow, labelling: LabellingRow | None) -> str:
    """Draws the part; returns the page's takeaway."""
    every = remarks(store, dataset.id)
    if not every:
        page.empty(
            "No comments yet",
            "A comment says what a label cannot: a question, a gap in the guideline. Press c in the queue.",
        )
        return "Nobody has commented on a pair yet."
    left = sum(item.comment.open for item in every)
    shown = _filtered(every)
    if not shown:
        page.empty("No comment fits", "Look at all of them, or search for something else.")
    else:
        _table(store, dataset, labelling, shown)
    pairs = len({(item.comment.attribute, item.comment.context) for item in every})
    return f"{tables.count(left)} of {tables.count(len(every))} comments on {tables.count(pairs)} pairs are open."


def _filtered(every: list[Remark]) -> list[Remark]:
    state, person, search, _ = st.columns([2, 2, 3, 3], vertical_alignment="bottom")
    with state:
        asked = st.segmented_control(
            "Comments",
            [OPEN, ALL],
            format_func={OPEN: "Open", ALL: "All"}.__getitem__,
            key="review.comments.state",
            default=OPEN,
            required=True,
        )
    people = sorted({item.comment.annotator for item in every})
    with person:
        who = st.selectbox(
            "By whom",
            [EVERYBODY, *people],
            format_func=lambda name: safe.option(name) if name else "everybody",
            key="review.comments.who",
        )
    with search:
        words = st.text_input("Search", key="review.comments.search", placeholder="in comments and statements")
    wanted = words.casefold().split()
    return [
        item
        for item in every
        if (asked == ALL or item.comment.open)
        and who in (EVERYBODY, item.comment.annotator)
        and all(word in item.searched for word in wanted)
    ]


def _table(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, shown: list[Remark]) -> None:
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
        safe.inline("Choose a row to read it in full, to see its pair, or to resolve it.", muted=True)
        return
    st.session_state[CHOSEN] = ids[at]
    _one(store, dataset, labelling, shown[at])


def _one(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, item: Remark) -> None:
    said = item.comment
    with st.container(border=True, key="review.comment"):
        safe.message(said.text)
        pairs = [
            ("By", f"{said.annotator}, {said.created[:16].replace('T', ' ')}"),
            ("Statement", item.statement),
            ("Attribute", f"{item.key} of {item.profile_name}"),
            ("Recipient", item.recipient),
            ("Task", item.task),
        ]
        if not said.open:
            pairs.append(("Resolved", f"by {said.resolved_by}" + (f": {said.resolution}" if said.resolution else "")))
        safe.show(safe.facts(pairs))
        if st.button("Show the pair", icon=":material/label:", key=f"review.comment.pair.{said.id}"):
            url.go(
                "labels",
                dataset=dataset.id,
                labelling=labelling.id if labelling else None,
                profile=item.profile,
                context=said.context,
                attribute=said.attribute,
            )
        if said.open:
            _resolve(store, dataset, item)


def _resolve(store: Store, dataset: DatasetRow, item: Remark) -> None:
    key = f"review.comment.{item.comment.id}"
    who = annotator.ask()
    with st.form(key, enter_to_submit=False, border=False):
        why = st.text_input("Why is it settled?", key=f"{key}.why", max_chars=LONGEST_REASON)
        done = st.form_submit_button("Resolve", type="primary", icon=":material/check:")
    if not done:
        return
    if not who or not why.strip():
        page.error("Nothing was resolved.", "It needs your name and a word why.", "Give both and try again.")
        return
    try:
        with store.write() as connection:
            comments.resolve(connection, dataset.id, who, item.comment.id, why.strip())
    except StoreError as problem:
        page.error("Nothing was resolved.", str(problem))
        return
    st.rerun()

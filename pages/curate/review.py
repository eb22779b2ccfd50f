"""Review: people decide pairs, one by one or in bulk, see how far they agree, settle disputes, and comment on items."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from cimemories.flows.catalogue import all_datasets
from cimemories.review.index import pair_index
from cimemories.review.queue import Order, select
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError, shared_store
from cimemories.store.labellings import LabellingRow
from cimemories.text import count
from cimemories.ui import annotator, page
from pages.curate import review_agreement, review_discussion, review_queue
from pages.curate.label_matrix import draw_scope

QUEUE, BULK, GUIDELINE = "queue", "bulk", "guideline"
TABS = {
    QUEUE: "Queue",
    BULK: "Bulk",
    "agreement": "Agreement",
    "adjudication": "Adjudication",
    "comments": "Comments",
    GUIDELINE: "Guideline",
    "exchange": "Exchange",
}


def _pairs(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, tab: str) -> str:
    """The tabs that are about the pairs that the filters leave."""
    me = annotator.name()
    index = pair_index(store, dataset.id, labelling.id if labelling else None)
    if not index.shape.pairs:
        page.empty("No pairs", "No attribute of this dataset meets a context, so there is nothing to decide.")
        return "This dataset has no pairs to decide."
    filters, ordering = review_queue.draw_filters(store, dataset, index, me)
    if tab == BULK:
        positions = select(store, index, filters, ordering.order, ordering.seed)
        return review_queue.draw_bulk(store, dataset, labelling, index, positions)
    review_queue.draw(review_queue.Work(store, dataset, labelling, filters, ordering, me))
    # How many are decided is on the bar alone: it moves with every key, and this heading with the page.
    matching = len(select(store, index, replace(filters, undecided_by=None), Order.ATTRIBUTE))
    return f"{count(matching)} of {count(len(index))} pairs match the filters."


def _name() -> bool:
    """Ask for the annotator's name, once: True when it is there."""
    if annotator.name():
        return True
    with st.form("review.name", border=False):
        name = st.text_input("Your name", max_chars=annotator.LONGEST, placeholder="Ada")
        begin = st.form_submit_button("Begin", type="primary", icon=":material/play_arrow:")
    page.notice("Your name is recorded with every decision. With a login, your account name is used.")
    if begin and annotator.set_name(name):
        st.rerun()
    return False


def main() -> None:
    store = shared_store()
    rows = all_datasets(store)
    if not rows:
        page.no_datasets(
            "Review",
            "Nothing to review yet.",
            "Review decides pairs of an attribute and a context. Import profiles, or start with the demo.",
        )
        return
    top = st.container()
    left, middle, right = st.columns([2, 3, 7], vertical_alignment="bottom")
    dataset, labelling = draw_scope(store, rows, "review", left, middle)
    with right:
        tab = page.choice("Part of the work", TABS, "review.tab", "tab", default=QUEUE, visible=False)
    takeaway = "Enter your name to begin."
    try:
        match tab:
            case "queue" | "bulk":
                if _name():
                    takeaway = _pairs(store, dataset, labelling, tab)
            case "agreement":
                takeaway = review_agreement.draw(store, dataset, labelling)
            case "adjudication":
                takeaway = review_discussion.draw_disputes(store, dataset, labelling)
            case "comments":
                takeaway = review_discussion.draw_comments(store, dataset, labelling)
            case "guideline":
                takeaway = review_discussion.draw_guideline(store)
            case _:
                takeaway = review_discussion.draw_exchange(store, dataset)
    except StoreError as problem:
        page.error("This part of the review cannot be shown.", str(problem))
    simulated = dataset.simulated or (labelling is not None and labelling.simulated)
    with top:
        page.head("Review", takeaway, simulated=simulated)


main()

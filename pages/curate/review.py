"""Review: people decide pairs, one by one or in bulk, see how far they agree, settle disputes, and comment on items."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from cimemories.access.roles import Role
from cimemories.desk.queue import QueueDesk
from cimemories.flows.catalogue import all_datasets
from cimemories.review.index import pair_index
from cimemories.review.queue import Order, select
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError, shared_store
from cimemories.store.labellings import LabellingRow
from cimemories.text import count
from cimemories.ui import annotator, login, page, url
from pages.curate import review_agreement, review_bulk, review_discussion, review_queue, review_setup
from pages.curate.label_matrix import draw_scope

QUEUE, BULK, AGREEMENT, ADJUDICATION, COMMENTS = "queue", "bulk", "agreement", "adjudication", "comments"
GUIDELINE, EXCHANGE, OVERLAP = "guideline", "exchange", "overlap"
# By the user's task; the address has only the tab.
ROLES = {
    "Decide": {QUEUE: "Queue", BULK: "Bulk"},
    "Agree": {AGREEMENT: "Agreement", ADJUDICATION: "Adjudication", COMMENTS: "Comments"},
    "Set up": {GUIDELINE: "Guideline", EXCHANGE: "Exchange", OVERLAP: "Overlap"},
}


def _tabs() -> str:
    """Draw the controls for the role and its tab; returns the tab."""
    linked = url.get("tab")
    role = next((name for name, tabs in ROLES.items() if linked in tabs), "Decide")
    st.session_state["review.role"] = role

    def changed() -> None:
        first = next(iter(ROLES[st.session_state["review.role"]]))
        url.put(tab=None if first == QUEUE else first)

    st.segmented_control(
        "Role",
        list(ROLES),
        key="review.role",
        on_change=url.durable(changed),
        required=True,
        label_visibility="collapsed",
    )
    # Keyed by role: under one key the choice of one role's tab would be invalid for another.
    return page.choice("Part of the work", ROLES[role], f"review.tab.{role}", "tab", default=QUEUE, visible=False)


def _pairs(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, tab: str, filters_box: Any) -> str:
    """Draw a tab about pairs; returns the page's takeaway."""
    index = pair_index(store, dataset.id, labelling.id if labelling else None)
    if not index.shape.pairs:
        page.empty("No pairs", "No attribute of this dataset meets a context, so there is nothing to decide.")
        return "This dataset has no pairs to decide."
    if tab == OVERLAP:
        return review_setup.draw_overlap(store, dataset, index)
    me = annotator.name()
    with filters_box:
        filters, ordering = review_queue.draw_filters(store, dataset, index, me)
    desk = QueueDesk(store, dataset, labelling, filters, ordering, me)
    if tab == BULK:
        positions = select(store, index, filters, ordering.order, ordering.seed)
        context = review_queue.context_line(store, dataset, filters)
        return review_bulk.draw(store, dataset, labelling, index, positions, context, desk.name)
    review_queue.draw(desk)
    # The number of decided pairs is on the bar alone: it changes with every key, this heading only with the page.
    matching = len(select(store, index, replace(filters, undecided_by=None), Order.ATTRIBUTE))
    if filters.slice:
        return f"A slice of {count(matching, 'pair')}, in random order."
    return f"{count(matching, 'pair')} match the filters, in batches of {ordering.batch}."


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
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        tab = _tabs()
        if tab != GUIDELINE:  # the guideline is that of all datasets
            # Folded to one line, so that the content below is visible on any screen.
            filters = tab not in ROLES["Set up"]
            box = st.popover("Filters" if filters else "Dataset", icon=":material/tune:")
    if tab == GUIDELINE:
        takeaway = review_discussion.draw_guideline(store)
        with top:
            page.head("Review", takeaway)
        return
    left, right = box.columns(2)
    dataset, labelling = draw_scope(store, rows, "review", left, right, above=st.container())
    what = "Decide which facts about a person a message may tell."
    takeaway = (
        f"{what} Enter your name to begin." if login.refusal(Role.ANNOTATOR) is None else "Annotators decide here."
    )
    try:
        match tab:
            case "queue" | "bulk":
                if login.may(Role.ANNOTATOR) and annotator.begin():
                    takeaway = _pairs(store, dataset, labelling, tab, box)
            case "overlap":
                takeaway = _pairs(store, dataset, labelling, tab, box)
            case "agreement":
                takeaway = review_agreement.draw(store, dataset, labelling, box)
            case "adjudication":
                if login.may(Role.CURATOR):
                    takeaway = review_discussion.draw_disputes(store, dataset, labelling, box)
            case "comments":
                takeaway = review_discussion.draw_comments(store, dataset, labelling, box)
            case _:
                takeaway = review_setup.draw_exchange(store, dataset)
    except StoreError as problem:
        page.error("This part of the review cannot be shown.", str(problem))
    simulated = ("profiles",) * dataset.simulated_profiles + ("labels",) * (
        labelling is not None and labelling.simulated
    )
    with top:
        page.head("Review", takeaway, simulated=simulated)


main()

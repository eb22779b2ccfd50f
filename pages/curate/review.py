"""Review: people decide pairs, one by one or in bulk, see how far they agree, settle disputes, and talk about items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import streamlit as st

from cimemories.flows.labels import default_labelling
from cimemories.review.index import pair_index
from cimemories.review.queue import select, undecided
from cimemories.store import datasets, labellings
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError, shared_store
from cimemories.store.labellings import LabellingRow
from cimemories.text import count
from cimemories.ui import annotator, page, url
from pages.curate import review_queue
from pages.curate.label_matrix import named

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


def _drawn(tab: str) -> Callable[..., str | None]:
    """What draws a tab. Imported when it is looked at: the statistics and proposals behind some take a second."""
    match tab:
        case "bulk":
            from pages.curate import review_bulk

            return review_bulk.draw
        case "agreement":
            from pages.curate import review_agreement

            return review_agreement.draw
        case "adjudication":
            from pages.curate import review_adjudication

            return review_adjudication.draw
        case "comments":
            from pages.curate import review_comments

            return review_comments.draw
        case "guideline":
            from pages.curate import review_comments

            return review_comments.draw_guideline
        case _:
            from pages.curate import review_comments

            return review_comments.draw_exchange


def _scope(store: Store, rows: list[DatasetRow]) -> tuple[DatasetRow, LabellingRow | None, str]:
    """The scope bar: dataset, labelling, and which tab of the page."""
    left, middle, right = st.columns([2, 3, 7], vertical_alignment="bottom")
    by_id = {row.id: row for row in rows}
    with left:
        chosen = page.select("Dataset", list(by_id), lambda i: by_id[i].name, "review.dataset", "dataset")
    dataset = by_id[chosen] if chosen is not None else rows[0]
    with store.read() as connection:
        labelled = {row.id: row for row in labellings.all_rows(connection, dataset.id)}
    default = default_labelling(store, dataset.id)
    newest_first = list(labelled)[::-1]
    order = sorted(newest_first, key=lambda i: default is None or i != default.id)
    with middle:
        labelling = page.select("Labelling", order, lambda i: named(labelled[i]), "review.labelling", "labelling")
    with right:
        tab = _tab()
    return dataset, labelled.get(labelling or ""), tab


def _tab() -> str:
    key = "review.tab"
    asked = url.get("tab") or QUEUE
    st.session_state[key] = asked if asked in TABS else QUEUE
    st.segmented_control(
        "Part of the work",
        list(TABS),
        format_func=TABS.__getitem__,
        key=key,
        required=True,
        label_visibility="collapsed",
        on_change=lambda: url.put(tab=None if st.session_state[key] == QUEUE else st.session_state[key]),
    )
    return str(st.session_state[key] or QUEUE)


def _pairs(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, tab: str) -> str:
    """The tabs that are about the pairs that the filters leave."""
    me = annotator.name()
    index = pair_index(store, dataset.id, labelling.id if labelling else None)
    if not index.shape.pairs:
        page.empty("No pairs", "This dataset has no attribute that meets a context, so there is nothing to decide.")
        return "There is nothing to decide in this dataset."
    filters, order, seed = review_queue.draw_filters(store, dataset, index, me)
    if tab == BULK:
        positions = select(store, index, filters, order, seed)
        return _drawn(tab)(store, dataset, labelling, index, positions) or ""
    review_queue.draw(review_queue.Work(store, dataset, labelling, filters, order, seed, me))
    every = select(store, index, replace(filters, undecided_by=None), order, seed)
    left = len(undecided(store, index, every, me))
    return (
        f"{count(len(every) - left)} of {count(len(every))} pairs of this view are decided by you, "
        f"{count(left)} are left."
    )


def main() -> None:
    store = shared_store()
    with store.read() as connection:
        rows = datasets.all_rows(connection)
    if not rows:
        page.no_datasets(
            "Review",
            "There is nothing to review yet.",
            "People decide pairs of an attribute and a context. Import profiles first, or start with the demo.",
        )
        return
    top = st.container()
    dataset, labelling, tab = _scope(store, rows)
    simulated = dataset.simulated or (labelling is not None and labelling.simulated)
    takeaway = "Say your name once, and begin."
    try:
        if tab == GUIDELINE:
            takeaway = "What annotators go by; every decision names the version that stood."
            _drawn(tab)(store)
        elif tab not in (QUEUE, BULK):
            takeaway = _drawn(tab)(store, dataset, labelling) or ""
        elif annotator.name() or _named():
            takeaway = _pairs(store, dataset, labelling, tab)
    except StoreError as problem:
        page.error("This part of the review cannot be shown.", str(problem))
    with top:
        page.head("Review", takeaway, simulated=simulated)


def _named() -> bool:
    """Ask for the name, once: True when it is there."""
    with st.form("review.name", border=False):
        said = st.text_input("Your name", max_chars=annotator.LONGEST, placeholder="Ada")
        begin = st.form_submit_button("Begin", type="primary", icon=":material/play_arrow:")
    page.notice("It stands with every decision that you make. Behind a login it is your account.")
    if begin and annotator.remember(said):
        st.rerun()
    return False


main()

"""Part of the agreement of the Review page: audit slices are drawn, and how far each person is with them."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories.analysis.slice_drawing import Population, draw_slice, expected_interval, population, progress
from cimemories.store import slices
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow
from cimemories.store.slices import SliceRow
from cimemories.ui import annotator, page, safe, tables, url
from cimemories.ui.safe import tag

USUAL = 200
MOST_SEED = 2**31 - 1
_SAID = "agreement.said"


def draw(store: Store, dataset: DatasetRow, labelling: LabellingRow | None) -> None:
    safe.heading("Audit slices")
    safe.inline(
        "A slice is a random sample of pairs, drawn once, that people answer blind. It says how good the labels are "
        "in all pairs, not only in those that somebody happened to look at.",
        muted=True,
    )
    notice = st.session_state.pop(_SAID, None)
    if notice:
        page.notice(notice)
    with store.read() as connection:
        rows = slices.all_rows(connection, dataset.id, slices.LABELS)
    for row in rows:
        _slice(store, dataset, labelling, row)
    if labelling is None:
        page.notice("A slice is drawn from labelled pairs, in proportion to their labels. Label the dataset first.")
        return
    page.fold(
        "Draw a slice",
        ":material/casino:",
        "agreement.box.draw",
        lambda: _form(store, labelling, {row.name for row in rows}),
    )


def _form(store: Store, labelling: LabellingRow, taken: set[str]) -> None:
    found = population(store, labelling.id)
    if not len(found):
        page.notice("No pair of this labelling has a counted vote yet, so there is nothing to draw from.")
        return
    left, right, _ = st.columns([2, 2, 8])
    with left:
        size = st.number_input("Pairs to draw", 1, len(found), min(USUAL, len(found)), key="agreement.slice.size")
    with right:
        seed = st.number_input(
            "Seed", 0, MOST_SEED, 0, key="agreement.slice.seed", help="The same seed draws the same pairs again."
        )
    _expected(found, int(size))
    first, second, third, _ = st.columns([3, 3, 2, 4], vertical_alignment="bottom")
    with first:
        name = st.text_input(
            "Name of the slice", max_chars=slices.LONGEST_NAME, key="agreement.slice.name", placeholder="first audit"
        )
    with second:
        who = annotator.ask()
    with third:
        drawn = st.button("Draw the slice", type="primary", icon=":material/casino:", key="agreement.slice.draw")
    if not drawn:
        return
    try:
        draw_slice(store, labelling.id, size=int(size), seed=int(seed), name=name, annotator=who)
    except StoreError as problem:
        page.error("The slice was not drawn.", str(problem))
        return
    st.session_state[_SAID] = f"Drew {tables.count(int(size))} pairs as '{' '.join(name.split())}'."
    st.rerun()


def _expected(found: Population, size: int) -> None:
    try:
        page.notice(expected_interval(found, size))
    except StoreError as problem:
        page.error("This cannot be drawn.", str(problem))


def _slice(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, row: SliceRow) -> None:
    with store.read() as connection:
        items = slices.items_of(connection, row.id)
    done = progress(store, dataset.id, items)
    words, queue, figures, more = st.columns([6, 2, 2, 1], vertical_alignment="center")
    total = tables.count(row.items)
    people = [f"{who}: {tables.count(n)} of {total} ({tables.count(blind)} blind)" for who, (n, blind) in done.items()]
    with words:
        detail = f"{total} pairs, seed {row.seed}, drawn by {row.annotator} on {row.created[:10]}{_half(row)}"
        lines = [
            tag("div", tag("b", row.name), f": {detail}"),
            tag("div", "; ".join(people) or "nobody yet", cls="ci-muted"),
        ]
        safe.show(tag("div", *lines, cls="ci-lines"))
    with queue:
        url.page_link(
            "review",
            "Answer it blind",
            icon=":material/keyboard:",
            dataset=dataset.id,
            labelling=labelling.id if labelling else None,
            slice=row.id,
            blind=1,
        )
    with figures:
        st.button(
            "Show its figures",
            key=f"agreement.slice.show.{row.id}",
            type="tertiary",
            icon=":material/query_stats:",
            disabled=url.get_int("slice") == row.id,
            on_click=lambda: url.put(slice=row.id),
        )
    with more, st.popover("", icon=":material/more_vert:", type="tertiary"):
        st.text("The slice goes; what people said of its pairs stays.")
        if st.button("Delete the slice", type="primary", key=f"agreement.slice.delete.{row.id}"):
            with store.write() as connection:
                slices.delete(connection, row.id)
            st.session_state[_SAID] = f"Deleted '{row.name}'."
            url.put(slice=None)
            st.rerun()
        frame = pd.DataFrame([vars(item) for item in items]).drop(columns="response")
        simulated = "simulated labels" if labelling is not None and labelling.simulated else ""
        tables.csv_button(
            frame.assign(slice=row.name, seed=row.seed, simulated=simulated),
            f"slice-{row.id}.csv",
            key=f"agreement.slice.csv.{row.id}",
        )


def _half(row: SliceRow) -> str:
    """What was said of the interval when the slice was drawn."""
    half = row.manifest.get("half_width_at_80")
    return f"; expected ± {100 * half:.1f} points at 80 %" if isinstance(half, float) else ""

"""Part of the agreement of the Review page: the confusion table of people and consensus, and the pairs of a cell."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories.analysis.people_agreement import ORDER, Against, PeopleAgreement, answered, cell_pairs
from cimemories.curation.consensus import LABELS
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store
from cimemories.store.labellings import LabellingRow
from cimemories.ui import page, safe, tables, url
from pages.curate.label_filters import choice
from pages.curate.pair_rows import PAIR_COLUMNS, go_to_pair
from pages.curate.review_agreement_figures import EVERYONE, download

MOST_ROWS = 500
WORDS = [str(LABELS[code]) for code in ORDER]


def draw(store: Store, found: PeopleAgreement, dataset: DatasetRow, labelling: LabellingRow) -> None:
    """The table of one person, or of all together, and the pairs behind the cell that is chosen."""
    people = [str(item.who) for item in found.against if item.who is not None]
    with st.columns([3, 9])[0]:
        who = choice("Whose labels", "who", people, str, EVERYONE)
    item = next(item for item in found.against if item.who == who)
    total = int(item.counts.sum())
    if not total:
        page.notice("None of these pairs has a counted vote, so there is nothing to compare.")
        return
    chosen = _table(item, total)
    frame = pd.DataFrame([[item.counts[i, j] for j in ORDER] for i in ORDER], columns=WORDS)
    frame.insert(0, "person \\ consensus", WORDS)
    download(frame.assign(who=who or EVERYONE), "confusion", found, dataset, labelling)
    if chosen is not None:
        _cell(store, found, dataset, labelling, item, chosen)


def _table(item: Against, total: int) -> tuple[int, int] | None:
    """The confusion table as buttons; the cell (person's code, consensus's code) that the URL says."""
    by_word = {f"{WORDS[i]}-{WORDS[j]}": (ORDER[i], ORDER[j]) for i in range(3) for j in range(3)}
    asked = url.get("cell") or ""
    names = [safe.glyphed(LABELS[code]) for code in ORDER]
    safe.inline(f"Down: {item.who or EVERYONE}. Across: the consensus. Choose a cell to see its pairs.", muted=True)
    widths = [2, 2, 2, 2, 4]
    for place, name in zip(st.columns(widths)[1:4], names, strict=True):
        with place:
            safe.inline(name, strong=True)
    weighted = item.comparison.table.sum()
    for i, name in enumerate(names):
        row = st.columns(widths, vertical_alignment="center")
        with row[0]:
            safe.inline(name, strong=True)
        for j, place in enumerate(row[1:4]):
            word = f"{WORDS[i]}-{WORDS[j]}"
            number = int(item.counts[ORDER[i], ORDER[j]])
            share = tables.percent(item.comparison.table[ORDER[i], ORDER[j]] / weighted)
            place.button(
                safe.plain_label(f"{tables.count(number)} ({share})"),
                key=f"agreement.cell.{word}",
                type="primary" if asked == word else "secondary",
                disabled=number == 0,
                width="stretch",
                on_click=_choose,
                args=(None if asked == word else word,),
            )
    return by_word.get(asked)


def _choose(word: str | None) -> None:
    url.put(cell=word)


def _cell(
    store: Store,
    found: PeopleAgreement,
    dataset: DatasetRow,
    labelling: LabellingRow,
    item: Against,
    chosen: tuple[int, int],
) -> None:
    slice_id = found.sampled.row.id if found.sampled else None
    data = answered(store, dataset.id, labelling.id, blind_only=found.blind_only, slice_id=slice_id)
    frame = cell_pairs(store, dataset.id, data, item.who, *chosen)
    mine, theirs = (str(LABELS[code]) for code in chosen)
    safe.heading(f"{tables.count(len(frame))} pairs: {mine} by {item.who or EVERYONE}, {theirs} by the consensus")
    if frame.empty:
        return
    shown_rows = frame.head(MOST_ROWS)
    picked = tables.table(
        shown_rows.assign(domain=shown_rows["domain"].str.replace("_", " ")),
        key=f"agreement.pairs.{item.who}.{mine}.{theirs}",
        columns={
            "people": ("text", "People"),
            **PAIR_COLUMNS,
        },
        on_select="row",
        alt="The pairs behind a cell of the confusion table",
    )
    first = f"The first {MOST_ROWS} are shown; the download has all. " if len(frame) > MOST_ROWS else ""
    safe.inline(f"{first}Choose a row to see its votes on the Labels page.", muted=True)
    download(frame, "confusion-pairs", found, dataset, labelling)
    if picked is not None:
        go_to_pair(dataset, labelling, shown_rows.iloc[picked])

"""Part of Home: the first lines of the leaderboard, and the way to the whole of it."""

from __future__ import annotations

import streamlit as st

from cimemories.compare.difference import takeaway
from cimemories.compare.leaderboard import leaderboard, scopes_of_rows
from cimemories.flows.catalogue import Contents
from cimemories.flows.flows import shared_flows
from cimemories.store.engine import Store, StoreError
from cimemories.ui import page, safe, url
from pages.explore import compare_leaderboard

LINES = 3
MOST_JUDGEMENTS = 8_000_000  # three seconds, once after a start; above, ranking waits until somebody asks for it


def draw(store: Store, here: Contents) -> None:
    """The best runs of the dataset with the most judged ones; nothing where fewer than two of it are judged."""
    judged = [run for run in here.runs if run.judged]
    counts = {row.id: sum(run.dataset == row.id for run in judged) for row in here.datasets}
    dataset = max(here.datasets, key=lambda row: (counts[row.id], row.id))
    if counts[dataset.id] < 2:
        return
    runs = [run for run in judged if run.dataset == dataset.id]
    st.subheader("Leaderboard", anchor=False)
    attributes_a_profile = dataset.attributes / max(dataset.profiles, 1)
    if sum(run.judged for run in runs) * attributes_a_profile <= MOST_JUDGEMENTS:
        try:
            flows = shared_flows(store)
            board = leaderboard(flows, scopes_of_rows(store, runs), warned=False)
        except StoreError as problem:
            page.error("The runs could not be ranked.", str(problem))
            return
        safe.inline(f"{len(runs)} runs of the dataset '{dataset.name}'. {takeaway(flows, board)}")
        compare_leaderboard.short(board, LINES)
        if board.warnings:
            safe.inline("These runs differ in more than their models. The full leaderboard lists how.", muted=True)
    else:
        safe.inline(f"{len(runs)} runs of the dataset '{dataset.name}' are judged. Ranking them takes a moment.")
    url.page_link("compare", "Full leaderboard and differences", icon=":material/compare_arrows:", dataset=dataset.id)

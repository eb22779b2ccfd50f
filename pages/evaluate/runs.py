"""Runs: what has been run, a new one, sweeps of many, and the servers that answer."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from cimemories.flows import catalogue
from cimemories.flows.progress import ACTIVE
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, shared_store
from cimemories.store.runs import RunRow
from cimemories.text import count
from cimemories.ui import page, url

LIST, NEW, SWEEPS, SERVERS = "list", "new", "sweeps", "servers"
TABS = {LIST: "Runs", NEW: "New run", SWEEPS: "Sweeps", SERVERS: "Servers"}


def draw() -> None:
    store = shared_store()
    rows, data = catalogue.all_runs(store)[::-1], catalogue.all_datasets(store)
    active = sum(row.status in ACTIVE for row in rows)
    number = count(len(rows), "run")
    takeaway = f"{number} in this workspace, {active} running." if rows else "No run yet."
    page.head("Runs", takeaway, simulated=bool(rows) and all(row.simulated for row in rows))
    tab = _tab()
    if tab == SERVERS:
        _drawn("run_servers")(store)
    elif not data:
        page.empty(
            "No dataset yet",
            "A run needs profiles with contexts. Import the authors' file to begin.",
            lambda: url.page_link("profiles", "Import profiles", icon=":material/upload:"),
        )
    elif tab == NEW:
        _drawn("run_new")(store, data)
    elif tab == SWEEPS:
        _drawn("run_sweeps")(store, data)
    elif not rows:
        page.empty(
            "No run yet",
            "In a run, a model writes messages for every profile in every context, and judges say what each reveals. "
            "You can pause and resume it at any time.",
            _first,
        )
    else:
        _runs(store, rows, data)


def _runs(store: Store, rows: list[RunRow], data: list[DatasetRow]) -> None:
    chosen = _drawn("run_list")(store, rows, data)
    if chosen is not None:
        _drawn("run_detail")(store, chosen)


def _drawn(part: str) -> Callable[..., RunRow | None]:
    """What draws a part of the page. Imported when it is looked at, so that a switch to the page stays quick."""
    match part:
        case "run_new":
            from pages.evaluate import run_new

            return run_new.draw
        case "run_list":
            from pages.evaluate import run_list

            return run_list.draw
        case "run_detail":
            from pages.evaluate import run_detail

            return run_detail.draw
        case "run_sweeps":
            from pages.evaluate import run_sweeps

            return run_sweeps.draw
        case _:
            from pages.evaluate import run_servers

            return run_servers.draw


def _first() -> None:
    if st.button("New run", icon=":material/add:", type="primary", key="runs.first"):
        url.put(tab=NEW)
        st.rerun()


def _tab() -> str:
    key = "runs.tab"
    tab = url.get("tab") or LIST
    st.session_state[key] = tab if tab in TABS else LIST
    st.segmented_control(
        "Part of the page",
        list(TABS),
        format_func=TABS.__getitem__,
        key=key,
        required=True,
        label_visibility="collapsed",
        on_change=lambda: url.put(tab=None if st.session_state[key] == LIST else st.session_state[key]),
    )
    return str(st.session_state[key] or LIST)


draw()

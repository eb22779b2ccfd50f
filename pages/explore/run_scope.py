"""Part of the Explore pages: the run that is looked at, or what to do where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from cimemories.analysis.flows import Flows, Scope, scope, shared_flows
from cimemories.store import runs
from cimemories.store.engine import StoreError, shared_store
from cimemories.ui import page, url


@dataclass(frozen=True)
class RunScope:
    """A run to look at: `top` is where the head of the page goes, `columns` stand beside the choice of the run."""

    flows: Flows
    asked: Scope
    top: Any
    columns: Sequence[Any]


def run_scope(title: str, nothing: str, why: str, *, beside: Sequence[int] = ()) -> RunScope | None:
    """Draw the choice of the run, with further columns of these widths beside it. None where there is none to look at;
    the page has then said so."""
    store = shared_store()
    with store.read() as connection:
        rows = runs.all_rows(connection)
    top = st.container()
    if not rows:
        with top:
            page.head(title, "No run yet.")
        page.empty(nothing, why, lambda: url.page_link("runs", "Start a run", icon=":material/play_circle:"))
        return None
    by_id = {row.id: row for row in reversed(rows)}
    first, *columns = st.columns([4, *beside], vertical_alignment="bottom")
    with first:
        run_id = page.select("Run", list(by_id), lambda i: f"{by_id[i].name} ({i})", f"{title}.run", "run")
    try:
        return RunScope(shared_flows(store), scope(store, str(run_id)), top, columns)
    except StoreError as problem:
        page.error(str(problem))
        return None

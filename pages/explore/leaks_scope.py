"""Part of the Leaks page: which runs are browsed, one alone or all of them, and whose claims count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from cimemories.analysis.flows import Combine, Flows, Scope, shared_flows
from cimemories.analysis.gallery import run_ids, scopes_of
from cimemories.analysis.headline import Headline
from cimemories.store.engine import shared_store
from cimemories.ui import safe, tables, url
from pages.explore.run_scope import run_scope

ALL, ONE = "all", "one"
FIRST = "first"
AMONG = {ONE: "This run", ALL: "All runs"}
JUDGES = {
    FIRST: "each run's first judge",
    str(Combine.ANY): "any judge of the run",
    str(Combine.MAJORITY): "more than half of the run's judges",
    str(Combine.ALL): "all judges of the run",
}


@dataclass(frozen=True)
class Browsed:
    """scopes: by run, in the order of the list. numbers: of the one run; None where all are browsed. several: whether
    the record has more than one run. top: where the head of the page goes."""

    flows: Flows
    scopes: dict[str, Scope]
    numbers: Headline | None
    several: bool
    top: Any

    @property
    def every(self) -> bool:
        return self.numbers is None


def browsed() -> Browsed | None:
    """Draw the choice; None where there is no run, which the page has then said."""
    ids = run_ids(shared_store())
    several = len(ids) > 1
    if several and (url.get("among") or url.remembered("among")) == ALL:
        return _every(len(ids))
    chosen = run_scope(
        "Leaks",
        "Nothing has been written yet",
        "A leak is a memory that a message reveals where it does not belong. It takes a run to have messages.",
        beside=[2] if several else (),
    )
    if chosen is None:
        return None
    url.put(among=None)
    if several:
        with chosen.columns[0]:
            _among(ONE)
    return Browsed(chosen.flows, {chosen.asked.run.id: chosen.asked}, chosen.numbers, several, chosen.top)


def _every(runs: int) -> Browsed:
    top = st.container()
    judge_column, words, among = st.columns([3, 4, 2], vertical_alignment="bottom")
    url.put(among=ALL)
    key = "leaks.judges"
    said = url.get("judge")
    st.session_state[key] = said if said in JUDGES else FIRST
    with judge_column:
        st.selectbox(
            "Judge",
            list(JUDGES),
            format_func=lambda item: JUDGES[item],
            key=key,
            on_change=lambda: url.put(judge=None if st.session_state[key] == FIRST else st.session_state[key]),
            help="Whose claims count, in every run. A run with one judge goes by that one.",
        )
    judge = str(st.session_state[key])
    flows = shared_flows(shared_store())
    found = scopes_of(flows, None if judge == FIRST else judge)
    with words:
        datasets = len({asked.run.dataset for asked in found})
        of = "" if datasets < 2 else f" of {datasets} datasets"
        rest = runs - len(found)
        without = f"; {rest} without a judge of messages left out" if rest else ""
        safe.inline(f"{tables.count(len(found))} runs{of}{without}.", muted=True)
    with among:
        _among(ALL)
    return Browsed(flows, {asked.run.id: asked for asked in found}, None, True, top)


def _among(now: str) -> None:
    key = "leaks.among"
    st.session_state[key] = now

    def changed() -> None:
        picked = st.session_state[key]
        # A combination of judges is the only choice that both views know.
        judge = url.get("judge") if url.get("judge") in JUDGES else None
        url.put(among=ALL if picked == ALL else None, judge=judge, runs=None)

    st.segmented_control(
        "Examples from",
        list(AMONG),
        format_func=lambda item: AMONG[item],
        key=key,
        on_change=changed,
        required=True,
    )

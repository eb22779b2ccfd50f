"""Part of the Explore pages: the run that is looked at, or what to do where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from cimemories.analysis.flows import Flows, Scope, Verdicts, scope, shared_flows
from cimemories.store import audits, runs
from cimemories.store.engine import Store, StoreError, shared_store
from cimemories.ui import page, safe, tables, url

WORDS = {Verdicts.JUDGE: "the judge's", Verdicts.PEOPLE: "people's, then the judge's"}


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
    if not rows:
        page.no_runs(title, nothing, why)
        return None
    top = st.container()
    by_id = {row.id: row for row in reversed(rows)}
    first, *columns = st.columns([4, *beside], vertical_alignment="bottom")
    with first:
        run_id = page.select("Run", list(by_id), lambda i: f"{by_id[i].name} ({i})", f"{title}.run", "run")
    try:
        asked = scope(store, str(run_id))
        if asked.audits[0] and _verdicts(store, asked) == Verdicts.PEOPLE:
            asked = scope(store, str(run_id), verdicts=Verdicts.PEOPLE)
        return RunScope(shared_flows(store), asked, top, columns)
    except StoreError as problem:
        page.error(str(problem))
        return None


def _verdicts(store: Store, asked: Scope) -> Verdicts:
    """Whose verdicts count, as the URL says: a choice only where people have audited the run."""
    key = "explore.verdicts"
    chosen = url.get("verdicts") or url.remembered("verdicts")
    st.session_state[key] = Verdicts(chosen) if chosen in set(Verdicts) else Verdicts.JUDGE

    def changed() -> None:
        url.put(verdicts=st.session_state[key])

    st.segmented_control(
        "Verdicts that count",
        list(Verdicts),
        format_func=lambda item: WORDS[item],
        key=key,
        on_change=changed,
        required=True,
        help="What a message reveals, by the judge alone, or by people wherever they have audited the judge.",
    )
    picked = Verdicts(st.session_state[key] or Verdicts.JUDGE)
    url.put(verdicts=None if picked == Verdicts.JUDGE else picked)
    if picked == Verdicts.PEOPLE:
        with store.read() as connection:
            said = len(audits.standing(audits.of_run(connection, asked.run.id)))
        safe.inline(
            f"People's verdicts are in: in {tables.count(said)} audited places theirs counts in place of the judge's "
            "(in full: revealed, anything else: not). Everywhere else, and in the marks inside messages, it is the "
            "judge's.",
            muted=True,
        )
    return picked

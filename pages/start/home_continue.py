"""Part of Home: where this person left off, the pair reviewed last and the run looked at last."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from cimemories.store import decisions
from cimemories.store.decisions import Newest
from cimemories.store.engine import Store
from cimemories.store.runs import RunRow
from cimemories.ui import annotator, page, safe, tables, url


def draw(store: Store, ran: Sequence[RunRow]) -> None:
    """Both, as far as they are there; nothing where neither is.

    Who has not said a name yet in this session is offered what anybody reviewed last.
    """
    me = annotator.name()
    with store.read() as connection:
        last = decisions.newest(connection, me or None)
    watched = next((run for run in ran if run.id == url.remembered("run")), None)
    found: list[Callable[[], None]] = []
    if last is not None:
        found.append(lambda: _review(last, me))
    if watched is not None:
        found.append(lambda: _watch(watched))
    if not found:
        return
    st.subheader("Continue where you left off", anchor=False)
    for place, show in zip(st.columns(2), found, strict=False):
        with place, st.container(border=True):
            show()


def _review(last: Newest, me: str) -> None:
    said = last.decision
    safe.inline(f"{'You' if me else said.annotator} reviewed last: “{last.statement}”, told to: {last.recipient}.")
    url.page_link(
        "review",
        "Go on reviewing",
        icon=":material/arrow_forward:",
        dataset=last.dataset,
        attribute=said.attribute,
        context=said.context,
    )


def _watch(run: RunRow) -> None:
    judged = f"{tables.count(run.judged)} of {tables.count(run.expected)} responses judged"
    badge = (" ", page.SIMULATED) if run.simulated else ()
    told = f": {run.status}, {judged}."
    safe.show(safe.tag("div", f"You looked last at the run '{run.name}'", *badge, told, cls="ci-line"))
    url.page_link("runs", "Go on with the run", icon=":material/arrow_forward:", run=run.id)

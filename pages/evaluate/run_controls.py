"""Pause, cancel, resume, raise a cap on cost, and ask again for what failed."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from cimemories import launch
from cimemories.analysis.progress import RESUMABLE, RunProgress
from cimemories.evaluation.costs import Cost, raise_cap, sweep_cost
from cimemories.evaluation.prices import money
from cimemories.model import WorkStatus
from cimemories.store import work
from cimemories.store.engine import Store, StoreError
from cimemories.store.runs import RunRow
from cimemories.ui import page, safe, url


def draw(store: Store, row: RunRow, now: RunProgress) -> None:
    """The buttons that make sense now; none where nothing is owed."""
    if now.active:
        _stop(store, row, now)
        return
    if now.cost.cap_reached and now.mendable:
        raise_and_resume(store, row.id, now.cost)
    elif now.mendable and row.sweep is not None and sweep_cost(store, row.sweep).cap_reached:
        safe.inline("The cap on cost of its sweep is reached. Raise it there to go on.")
        url.page_link("runs", "Go to the sweep", icon=":material/arrow_forward:", tab="sweeps", sweep=row.sweep)
    elif now.status in RESUMABLE and (not now.imported or now.mendable):
        _button("Resume", ":material/resume:", f"runs.resume.{row.id}", lambda: launch.launch(store, row.id))
    elif now.mendable:
        words, act = st.columns([5, 7], vertical_alignment="center")
        with act:
            safe.inline(f"{now.mendable:,} calls failed or are owed; what is there is not asked for again.", muted=True)
        with words:
            _button(
                "Ask again for what failed",
                ":material/replay:",
                f"runs.resume.{row.id}",
                lambda: launch.launch(store, row.id),
            )


def raise_and_resume(store: Store, work_id: str, cost: Cost) -> None:
    """Where the cap on cost of a run or sweep is reached: a field for a higher one, and the button that goes on."""
    assert cost.cap is not None
    safe.inline(
        f"It has paid {money(cost.paid, cost.currency)}, and its cap on cost is {money(cost.cap, cost.currency)}. What "
        "is answered is kept; with a higher cap it goes on where it stopped."
    )
    field, button = st.columns([2, 9], vertical_alignment="bottom")
    with field:
        cap = st.number_input(
            safe.plain_label(f"Raise the cap to{f' ({cost.currency})' if cost.currency else ''}"),
            min_value=0.0,
            value=max(2 * cost.cap, 1.5 * cost.paid),
            format="%.4g",
            key=f"runs.cap.{work_id}",
        )

    def go_on() -> None:
        raise_cap(store, work_id, float(cap))
        launch.launch(store, work_id)

    with button:
        _button("Raise the cap and resume", ":material/resume:", f"runs.resume.{work_id}", go_on)


def _stop(store: Store, row: RunRow, now: RunProgress) -> None:
    def request(how: Callable[..., None]) -> None:
        with store.write() as connection:
            how(connection, row.id)

    pause, cancel, why = st.columns([1, 1, 6], vertical_alignment="center")
    with pause:
        _button(
            "Pause",
            ":material/pause_circle:",
            f"runs.pause.{row.id}",
            lambda: request(work.request_pause),
            disabled=now.status in (WorkStatus.PAUSING, WorkStatus.CANCELLING),
        )
    with cancel:
        _button(
            "Cancel",
            ":material/stop_circle:",
            f"runs.cancel.{row.id}",
            lambda: request(work.request_cancel),
            disabled=now.status == WorkStatus.CANCELLING,
        )
    with why:
        safe.inline(
            {
                WorkStatus.PAUSING: "Pausing: calls in flight end first, none is lost.",
                WorkStatus.CANCELLING: "Cancelling: calls in flight are dropped.",
            }.get(now.status, "Pause lets the calls in flight end; cancel drops them. Both can be resumed."),
            muted=True,
        )


def _button(label: str, icon: str, key: str, act: Callable[[], None], *, disabled: bool = False) -> None:
    if not st.button(label, icon=icon, key=key, disabled=disabled):
        return
    try:
        act()
    except StoreError as problem:
        page.error("That could not be done.", str(problem))
        return
    st.rerun()

"""Pause, cancel, resume, and ask again for what failed."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from cimemories import launch
from cimemories.analysis.progress import RESUMABLE, RunProgress
from cimemories.model import WorkStatus
from cimemories.store import work
from cimemories.store.engine import Store, StoreError
from cimemories.store.runs import RunRow
from cimemories.ui import page, safe


def draw(store: Store, row: RunRow, now: RunProgress) -> None:
    """The buttons that make sense now; none where nothing is owed."""
    if now.active:
        _stop(store, row, now)
        return
    if now.status in RESUMABLE and (not now.imported or now.mendable):
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

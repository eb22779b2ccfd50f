"""Sweeps: those that are there with the table of their cells, and a new one."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories import launch
from cimemories.analysis.progress import ACTIVE, RESUMABLE
from cimemories.analysis.sweep_table import SweepTable, sweep_table
from cimemories.evaluation.prices import money
from cimemories.model import WorkStatus
from cimemories.store import sweeps, work
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.runs import RETRIABLE
from cimemories.store.sweeps import SweepRow
from cimemories.ui import page, safe, tables, url
from pages.evaluate import run_controls, run_sweep_form
from pages.evaluate.run_actions import sentence
from pages.start import database_lost

LOOK = "3s"


def draw(store: Store, data: list[DatasetRow]) -> None:
    """The list, the chosen sweep, and the form of a new one."""
    with store.read() as connection:
        rows = list(reversed(sweeps.all_rows(connection)))
    if not rows:
        safe.inline(
            "No sweep yet. A sweep is many runs planned together, models by prompt levels by memories by mitigations, "
            "worked off as one piece of work with one cap on its cost.",
            muted=True,
        )
    page.fold(
        "New sweep",
        ":material/add:",
        "run_sweeps.box.new",
        lambda: run_sweep_form.draw(store, data),
        expanded=not rows,
    )
    if not rows:
        return
    by_id = {row.id: row for row in rows}
    chosen = _list(rows, by_id, {row.id: row.name for row in data})
    live = chosen.status in ACTIVE
    database_lost.fragment(_live, run_every=LOOK if live else None)(store, chosen.id, live)


def _list(rows: list[SweepRow], by_id: dict[str, SweepRow], names: dict[int, str]) -> SweepRow:
    asked = url.get("sweep") or url.remembered("sweep")
    if asked is not None and asked not in by_id:
        page.notice("The sweep of this link is not in this workspace (any more). Choose one from the list.")
    ids = list(by_id)
    frame = pd.DataFrame(
        [
            {
                "name": row.name,
                "dataset": names.get(row.dataset, ""),
                "status": str(row.status),
                "cells": row.cells,
                "created": pd.Timestamp(row.created),
                "id": row.id,
            }
            for row in rows
        ],
        index=pd.Index(ids),
    )
    picked = tables.table(
        frame,
        key="runs.sweeps",
        columns={
            "name": ("text", "Sweep"),
            "status": ("text", "Status"),
            "cells": ("number", "Runs"),
            "dataset": ("text", "Dataset"),
            "created": ("date", "Started (UTC)"),
            "id": ("text", "Id"),
        },
        on_select="row",
        selected=ids.index(asked) if asked in ids else 0,
        height="content",
        alt="Sweeps of this workspace, the newest first",
    )
    chosen = rows[picked or 0]
    url.put(sweep=chosen.id)
    return chosen


def _live(store: Store, sweep_id: str, was_active: bool) -> None:
    try:
        found = sweep_table(store, sweep_id)
    except StoreError as problem:
        page.error(sentence(problem))
        return
    if was_active and found.row.status not in ACTIVE:
        st.rerun()
    _told(found)
    _controls(store, found)
    _cells(found)
    for text in found.warnings:
        page.notice(sentence(ValueError(text)))


def _told(found: SweepTable) -> None:
    row, cost = found.row, found.cost
    simulated = any(cell.run.simulated for cell in found.cells)
    safe.show(safe.tag("h3", row.name, " ", page.SIMULATED if simulated else "", cls="ci-heading"))
    settled = sum(cell.run.judged for cell in found.cells)
    planned = sum(cell.run.expected for cell in found.cells)
    st.progress(settled / planned if planned else 0.0)
    words = [
        f"{row.status}: {found.done} of {len(found.cells)} runs done",
        f"{tables.count(settled)} of {tables.count(planned)} responses judged",
    ]
    if cost.known or not cost.unpriced:
        words.append(f"cost {cost.words()}")
    if row.cap is not None:
        words.append(f"cap {money(row.cap, cost.currency)}")
    words += [cost.above_cap_words()] if cost.above_cap else []
    safe.inline("; ".join(words) + ".")
    if row.error:
        page.error(f"{str(row.status).capitalize()}.", sentence(ValueError(row.error)))


def _controls(store: Store, found: SweepTable) -> None:
    row = found.row
    # A finished sweep can be asked again for calls that failed; refused and cut answers would come again as they are.
    failed = sum(cell.run.responses.get(status, 0) for cell in found.cells for status in RETRIABLE)
    again = row.status == WorkStatus.FINISHED_WITH_FAILURES and failed > 0
    capped = (row.status in RESUMABLE or again) and found.cost.cap_reached
    if capped:
        run_controls.raise_and_resume(store, row.id, found.cost)
    with st.container(horizontal=True, gap="small"):
        act = None
        if row.status in ACTIVE:
            stopping = row.status in (WorkStatus.PAUSING, WorkStatus.CANCELLING)
            if st.button("Pause", icon=":material/pause_circle:", key=f"sweeps.pause.{row.id}", disabled=stopping):
                act = work.request_pause
            if st.button("Cancel", icon=":material/stop_circle:", key=f"sweeps.cancel.{row.id}", disabled=stopping):
                act = work.request_cancel
        elif (
            not capped
            and (row.status in RESUMABLE or again)
            and st.button(
                "Ask again for what failed" if again else "Resume",
                icon=":material/replay:" if again else ":material/resume:",
                key=f"sweeps.resume.{row.id}",
                type="primary",
            )
        ):
            try:
                launch.launch(store, row.id)
            except StoreError as problem:
                page.error("It was not resumed.", sentence(problem))
                return
            st.rerun()
        with st.popover("YAML", icon=":material/data_object:"):
            run_sweep_form.show_yaml(row.spec, f"sweeps.yaml.{row.id}")
    if act is not None:
        with store.write() as connection:
            act(connection, row.id)
        st.rerun()


def _cells(found: SweepTable) -> None:
    frame = pd.DataFrame(
        [
            {
                "model": cell.run.model,
                "kind": "simulated" if cell.run.simulated else "",
                "level": cell.run.prompt_level,
                "memory": cell.run.composition,
                "mitigation": "" if cell.mitigation == "none" else cell.mitigation,
                "thinking": "" if cell.thinking == "default" else cell.thinking,
                "status": cell.status,
                "violation": cell.violation,
                "completeness": cell.completeness,
                "task": cell.does_task,
                "coverage": cell.coverage,
                "cost": "" if not cell.cost.known and cell.cost.unpriced else cell.cost.words(),
            }
            for cell in found.cells
        ],
        index=pd.Index([cell.run.id for cell in found.cells]),
    )
    tables.table(
        frame,
        key=f"runs.cells.{found.row.id}",
        columns={
            "model": ("text", "Model"),
            "kind": ("small", ""),
            "level": ("text", "Prompt"),
            "memory": ("text", "Memory"),
            "mitigation": ("text", "Mitigation"),
            "thinking": ("text", "Thinking"),
            "status": ("text", "Status"),
            "violation": ("percent", "Violation@n"),
            "completeness": ("percent", "Completeness"),
            "task": ("percent", "Does task"),
            "coverage": ("percent", "Coverage"),
            "cost": ("text", "Cost"),
        },
        height="content" if len(found.cells) <= 20 else "auto",
        alt="Cells of the sweep, each a run",
    )
    runs = {cell.run.id: cell.label for cell in found.cells}
    picked = st.selectbox(
        "Look at a run",
        list(runs),
        format_func=lambda i: safe.option(f"{runs.get(i, '')} ({i})"),
        key=f"runs.cell.{found.row.id}",
        index=None,
        placeholder="one of its cells",
    )
    if picked is not None:
        url.page_link("runs", "Show this run", icon=":material/arrow_forward:", run=picked)

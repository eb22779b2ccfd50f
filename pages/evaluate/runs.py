"""Runs: the table of runs, a new one, and the chosen one as it goes."""

from __future__ import annotations

import time

import pandas as pd
import streamlit as st

from cimemories import launch
from cimemories.analysis.families import labeller_warning
from cimemories.analysis.flows import scope, shared_flows
from cimemories.analysis.headline import headline
from cimemories.analysis.progress import ACTIVE, RunProgress, in_words, run_progress
from cimemories.evaluation import runs as evaluation
from cimemories.llm.client import EndpointError
from cimemories.llm.policy import SimulatorError
from cimemories.llm.worker import SIMULATOR
from cimemories.model import WorkStatus
from cimemories.seeds import SeedError
from cimemories.store import datasets, judgements, runs, work
from cimemories.store.engine import Store, StoreError, shared_store
from cimemories.store.runs import RunRow
from cimemories.ui import page, safe, tables, url
from cimemories.ui.run_form import RunForm, run_form

RESUMABLE = (WorkStatus.INTERRUPTED, WorkStatus.CANCELLED, WorkStatus.FAILED)


def draw() -> None:
    store = shared_store()
    with store.read() as connection:
        rows = list(reversed(runs.all_rows(connection)))
        data = datasets.all_rows(connection)
    active = sum(row.status in ACTIVE for row in rows)
    number = f"{len(rows)} run{'s' if len(rows) != 1 else ''}"
    takeaway = f"{number} in this workspace, {active} at work." if rows else "No run yet."
    page.head("Runs", takeaway, simulated=bool(rows) and all(row.simulated for row in rows))
    if not data:
        page.empty(
            "There is no dataset to run a model on",
            "A run needs profiles with contexts. Import the authors' file, or start the app on an empty workspace.",
            lambda: url.page_link("profiles", "Import profiles", icon=":material/upload:"),
        )
        return
    wanted = page.fold(
        "New run",
        ":material/add:",
        "runs.box.new",
        lambda: run_form([row.name for row in data], {row.name: (row.profiles, row.contexts) for row in data}),
        expanded=not rows,
    )
    if wanted is not None:
        _start(store, wanted)
    if not rows:
        return
    run_id = _list(store, rows, {row.id: row.name for row in data})
    chosen = next((row for row in rows if row.id == run_id), None)
    if chosen is not None:
        _detail(store, chosen)


def _start(store: Store, wanted: RunForm) -> None:
    judge = evaluation.JudgeSpec()
    if wanted.judge_model:
        judge = evaluation.JudgeSpec(
            "llm", wanted.judge_model, wanted.judge_base_url, wanted.judge_key_env, wanted.judge_max_tokens
        )
    spec = evaluation.RunSpec(
        dataset=wanted.dataset,
        model=wanted.model,
        base_url=wanted.base_url or SIMULATOR,
        samples=wanted.samples,
        profiles=wanted.profiles,
        contexts=wanted.contexts,
        judge=judge,
        api_key_env=wanted.key_env,
        temperature=wanted.temperature,
        max_tokens=wanted.max_tokens,
        timeout=wanted.timeout,
    )
    try:
        with st.spinner("Looking the server up and writing the plan"):
            run_id = evaluation.plan(store, spec)
            launch.launch(store, run_id)
    except (StoreError, EndpointError, SeedError, SimulatorError) as problem:
        page.error("The run was not started.", str(problem))
        return
    url.put(run=run_id)
    st.rerun()


def _list(store: Store, rows: list[RunRow], names: dict[int, str]) -> str | None:
    flows = shared_flows(store)
    lines = []
    for row in rows:
        violation = completeness = None
        if row.judged:
            numbers = headline(flows, scope(store, row.id))
            violation, completeness = numbers.violation[row.samples], numbers.completeness
        with store.read() as connection:
            judge = ", ".join(j.name for j in judgements.of_run(connection, row.id))
        lines.append(
            {
                "id": row.id,
                "name": row.name,
                "dataset": names.get(row.dataset, ""),
                "kind": "simulated" if row.simulated else "",
                "status": str(row.status),
                "samples": row.samples,
                "judge": judge,
                "coverage": row.coverage,
                "violation": violation,
                "completeness": completeness,
                "created": pd.Timestamp(row.created),
            }
        )
    frame = pd.DataFrame(lines, index=pd.Index([row.id for row in rows]))
    asked = url.get("run") or url.remembered("run")
    ids = [row.id for row in rows]
    if asked is not None and asked not in ids:
        page.notice("The run of this link is not in this workspace (any more). Choose one from the list.")
    picked = tables.table(
        frame,
        key="runs.list",
        columns={
            "name": ("wide", "Run"),
            "kind": ("small", ""),
            "dataset": ("text", "Dataset"),
            "status": ("text", "Status"),
            "judge": ("text", "Judge"),
            "samples": ("number", "n"),
            "coverage": ("percent", "Coverage"),
            "violation": ("percent", "Violation@n"),
            "completeness": ("percent", "Completeness"),
            "created": ("date", "Started (UTC)"),
            "id": ("text", "Id"),
        },
        on_select="row",
        selected=ids.index(asked) if asked in ids else 0,
        alt="Runs of this workspace, the newest first",
    )
    if picked is None:
        return None
    url.put(run=ids[picked])
    return ids[picked]


def _detail(store: Store, row: RunRow) -> None:
    safe.show(safe.join([safe.tag("h3", row.name, cls="ci-heading"), page.SIMULATED if row.simulated else ""]))
    kin = labeller_warning(store, row.id)
    if kin:
        page.notice(f"{kin[0].upper()}{kin[1:]}.")
    live = row.status in ACTIVE
    st.fragment(_live, run_every="1s" if live else None)(store, row.id, live)
    left, middle, right, rest = st.columns([1, 1, 1, 3])
    with left:
        url.page_link("heatmaps", "Heatmaps", icon=":material/grid_on:", run=row.id)
    with middle:
        url.page_link("leaks", "Leaks", icon=":material/format_ink_highlighter:", run=row.id)
    with right:
        _delete(store, row)
    with rest:
        st.code(f"cimemories metrics {row.id} --json", language=None)
    page.fold(
        "Manifest: what exactly was run", ":material/receipt_long:", "runs.box.manifest", lambda: st.json(row.manifest)
    )


def _live(store: Store, run_id: str, was_active: bool) -> None:
    try:
        now = run_progress(store, run_id)
    except StoreError as problem:
        page.error(str(problem))
        return
    if was_active and not now.active:
        st.rerun()
    _bars(now, run_id)
    if now.error:
        page.error(f"{now.status}:", now.error)
    for stage, status, cause, count in now.failures[:8]:
        safe.inline(f"{count} {stage}{'s' if count != 1 else ''} missing: {status} ({cause})", muted=True)
    _controls(store, run_id, now)
    if now.active or now.status in RESUMABLE:
        log = launch.log_tail(store, run_id)
        if log:
            with st.expander("Log of the worker"):
                st.code(log, language=None, wrap_lines=True)


def _bars(now: RunProgress, run_id: str) -> None:
    done = now.answered + now.missing
    st.progress(
        min(done / now.expected, 1.0) if now.expected else 1.0,
        text=f"{done:,} of {now.expected:,} responses, {now.missing:,} of them missing",
    )
    st.progress(
        min((now.judged + now.unjudged) / now.expected, 1.0) if now.expected else 1.0,
        text=f"{now.judged:,} judged, {now.unjudged:,} judgements missing{_pace(now, run_id)}",
    )
    tokens = (
        f"{now.prompt_tokens:,} prompt ({now.cached_tokens:,} cached) and {now.completion_tokens:,} completion tokens"
    )
    safe.inline(f"{now.status}: {tokens}; {now.worker}", muted=True)


def _pace(now: RunProgress, run_id: str) -> str:
    """Rate and time left, from what this session has watched."""
    settled = now.answered + now.missing + now.judged + now.unjudged
    seen = st.session_state.setdefault(f"runs.pace.{run_id}", (time.monotonic(), settled))
    passed, gained = time.monotonic() - seen[0], settled - seen[1]
    if not now.active or passed < 2 or gained <= 0:
        return ""
    left = (2 * now.expected - settled) / (gained / passed)
    return f"; {gained / passed:,.1f} a second, about {in_words(left)} left"


def _controls(store: Store, run_id: str, now: RunProgress) -> None:
    try:
        if now.active and st.button("Cancel", icon=":material/stop_circle:", key=f"runs.cancel.{run_id}"):
            with store.write() as connection:
                work.request_cancel(connection, run_id)
            st.rerun()
        owed = now.expected > now.judged
        if now.status in RESUMABLE or (now.status == WorkStatus.FINISHED and owed):
            label = "Resume" if now.status in RESUMABLE else "Ask again for what failed"
            if st.button(label, icon=":material/resume:", key=f"runs.resume.{run_id}"):
                launch.launch(store, run_id)
                st.rerun()
    except StoreError as problem:
        page.error(str(problem))


def _delete(store: Store, row: RunRow) -> None:
    with st.popover("Delete", icon=":material/delete:", disabled=row.status in ACTIVE):
        st.text("The run, its messages and judgements go. Recorded calls stay and would serve a new run.")
        if st.button("Delete this run", type="primary", key=f"runs.delete.{row.id}"):
            try:
                with store.write() as connection:
                    runs.delete(connection, row.id)
            except StoreError as problem:
                page.error(str(problem))
                return
            url.put(run=None)
            st.rerun()


draw()

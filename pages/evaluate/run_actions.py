"""What can be done with a run that is there: look at it, have it judged again, repeat it, export it, delete it."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import streamlit as st

from cimemories import launch
from cimemories.analysis.effective_labels import effective_labels
from cimemories.analysis.exporting_results import export_run
from cimemories.analysis.progress import ACTIVE
from cimemories.analysis.scopes import judge_title
from cimemories.evaluation.again import command_of, judge_again, messages_simulated, spec_of
from cimemories.evaluation.batches import export_batch
from cimemories.evaluation.compositions import CompositionError
from cimemories.evaluation.planning import plan
from cimemories.evaluation.servers import BATCH
from cimemories.formats.errors import FormatError
from cimemories.llm.client import EndpointError
from cimemories.llm.policy import SimulatorError
from cimemories.llm.worker import SIMULATOR, WorkError
from cimemories.seeds import SeedError
from cimemories.store import deleting, judgements, runs
from cimemories.store.engine import Store, StoreError
from cimemories.store.imported_runs import IMPORTED
from cimemories.store.runs import RunRow
from cimemories.texts import visible
from cimemories.ui import page, safe, url
from cimemories.ui.draft import Draft
from pages.evaluate import run_judges

PROBLEMS = (StoreError, EndpointError, SeedError, SimulatorError, CompositionError)
_READY = "runs.export.ready"


def draw(store: Store, row: RunRow) -> None:
    """Links to the run's numbers, then one popover an action."""
    busy = row.status in ACTIVE
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        url.page_link("heatmaps", "Heatmaps", icon=":material/grid_on:", run=row.id)
        url.page_link("leaks", "Leaks", icon=":material/format_ink_highlighter:", run=row.id)
        url.page_link("judge_audit", "Judge audit", icon=":material/gavel:", run=row.id)
        if row.judged:
            of = {"runs": row.id, "tab": "report"}
            url.page_link("compare", "Report", icon=":material/summarize:", dataset=row.dataset, **of)
        with st.popover("Delete", icon=":material/delete:", disabled=busy):
            _delete(store, row)
    if busy:
        safe.inline("Judging again, exporting and deleting wait until it has ended or is paused.", muted=True)
    else:
        page.fold("Judge again", ":material/gavel:", "runs.box.judge", lambda: _judge(store, row))
        page.fold("Export", ":material/download:", "runs.box.export", lambda: _export(store, row))
    page.fold("Repeat", ":material/replay:", "runs.box.repeat", lambda: _repeat(store, row))


def _judge(store: Store, row: RunRow) -> None:
    """Further judges for the messages that are there; costs the judging alone."""
    safe.inline("Its messages stay as they are: only further judgements are asked for.", muted=True)
    draft = Draft(f"runs.again.{row.id}")
    served = row.endpoint not in (SIMULATOR, IMPORTED, BATCH)
    run_judges.draw(draft, simulated=messages_simulated(row), first=(run_judges.MATCHER,), same=served, model=row.model)
    check = False
    if run_judges.any_model(draft):
        check = st.toggle(
            "Let the first model also say whether each message does its task",
            key=draft.key("with_check", default=False),
            help="One short call more for each message",
        )
    asked = row.manifest.get("asked")
    key_env = str(asked.get("api_key_env", "")) if isinstance(asked, dict) else ""
    pressed = st.button("Judge", type="primary", icon=":material/gavel:", key=f"runs.again.start.{row.id}")
    draft.keep()
    if not pressed:
        return
    try:
        judges = run_judges.specs(draft, row.endpoint, key_env, row.model)
        with st.spinner("Looking the judges' servers up"):
            judge_again(store, row.id, judges, check=check)
            launch.launch(store, row.id)
    except PROBLEMS as problem:
        page.error("It was not judged again.", sentence(problem))
        return
    draft.clear()
    st.rerun()


def _repeat(store: Store, row: RunRow) -> None:
    """The exact command, and the same at a click."""
    try:
        spec = spec_of(store, row.id)
    except PROBLEMS as problem:
        page.notice(sentence(problem))
        return
    safe.inline(
        "The same once more, as a run of its own, with the wording it had. What is in the record already is taken from "
        "there, so an exact repetition asks only for what failed. The command:",
        muted=True,
    )
    st.code(visible(command_of(spec)), language=None, wrap_lines=True)
    safe.inline(f"Or shorter, from this workspace: cimemories repeat {row.id}", muted=True)
    anew = st.toggle(
        "Draw anew",
        value=spec.fresh,
        key=f"runs.repeat.fresh.{row.id}",
        help="Takes no answer from the record, and pays for all of them again",
    )
    if st.button("Repeat this run", icon=":material/replay:", key=f"runs.repeat.{row.id}"):
        start(store, lambda: plan(store, replace(spec, fresh=anew), find_labels=effective_labels))


def start(store: Store, planned: object) -> None:
    """Plan a run, start its worker, and show it; a problem is said and nothing is left half done."""
    assert callable(planned)
    try:
        with st.spinner("Looking the servers up and writing the plan"):
            run_id = str(planned())
            launch.launch(store, run_id)
    except PROBLEMS as problem:
        page.error("The run was not started.", sentence(problem))
        return
    url.put(run=run_id, tab=None, beside=None)
    st.rerun()


def sentence(problem: Exception) -> str:
    """An error as a sentence begins and ends."""
    text = str(problem).strip()
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "!", "?")) else ".")


# ---- files


@dataclass(frozen=True)
class _Ready:
    """A file that was asked for, until the run moves or another is asked for."""

    asked: tuple[object, ...]
    name: str
    path: Path
    notes: tuple[str, ...]


def _export(store: Store, row: RunRow) -> None:
    with store.read() as connection:
        readers = judgements.of_run(connection, row.id)
    judges = {judge.id: judge_title(judge, readers) for judge in readers}
    left, right = st.columns(2, gap="large")
    with left:
        safe.inline("The run in the layout of the authors' results, one profile a line.", muted=True)
        judge = st.selectbox(
            "Judgements of",
            list(judges),
            format_func=lambda i: safe.option(judges[i]),
            key=f"runs.export.judge.{row.id}",
            help="The format holds those of one judge",
        )
        if judges and st.button("Prepare results.jsonl", icon=":material/inventory_2:", key="runs.export.results"):
            _prepare(store, row, "results", judge)
        _offer((row.id, row.revision, "results", judge))
    with right:
        safe.inline("Every call that is still owed, for vllm run-batch or OpenAI's Batch API.", muted=True)
        model = st.text_input(
            "Only what is asked of this model",
            key=f"runs.export.model.{row.id}",
            placeholder="all",
            help="A batch is answered by one model; a judge's calls go into a file of their own",
        )
        owed = None if row.endpoint == IMPORTED and not row.judged else model.strip() or None
        if st.button("Prepare the batch file", icon=":material/inventory_2:", key="runs.export.batch"):
            _prepare(store, row, "batch", owed)
        _offer((row.id, row.revision, "batch", owed))
        safe.inline(f"The answers come back by: cimemories batch import {row.id} FILE", muted=True)


def _prepare(store: Store, row: RunRow, what: str, of: int | str | None) -> None:
    mark = "simulated-" if row.simulated else ""
    if isinstance(old := st.session_state.pop(_READY, None), _Ready):
        shutil.rmtree(old.path.parent, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix="cimemories-export-"))
    path = folder / f"{mark}{row.id}-{'results' if what == 'results' else 'owed'}.jsonl"
    notes: tuple[str, ...] = ()
    try:
        with st.spinner("Writing the file"):
            if what == "results":
                notes = export_run(store, row.id, path, judge_id=int(of) if of is not None else None).notes
            else:
                found = export_batch(store, row.id, path, model=str(of) if of else None)
                if not found.lines:
                    page.notice(f"{row.name} owes nothing{f' of {of}' if of else ''}, so there is no file to write.")
                    return
                kinds = ", ".join(f"{count:,} {kind}" for kind, count in found.kinds.items())
                notes = (f"{found.lines:,} calls: {kinds}",)
                if len(found.models) > 1:
                    notes += (f"several models are asked ({', '.join(found.models)}), and a batch is answered by one",)
    except (StoreError, FormatError, WorkError) as problem:
        page.error("The file was not written.", sentence(problem))
        return
    # A batch file counts as a change of its own, since what the record held was settled on the way.
    with store.read() as connection:
        revision = runs.named(connection, row.id).revision
    st.session_state[_READY] = _Ready((row.id, revision, what, of), path.name, path, notes)
    if revision != row.revision:
        st.rerun()


def _offer(asked: tuple[object, ...]) -> None:
    ready = st.session_state.get(_READY)
    if not isinstance(ready, _Ready) or ready.asked != asked or not ready.path.is_file():
        return
    st.download_button(
        "Download",
        data=ready.path.read_bytes,
        file_name=ready.name,
        mime="application/jsonl",
        type="primary",
        icon=":material/download:",
        key="runs.export.download",
        on_click="ignore",
    )
    safe.inline(f"{ready.name}, {ready.path.stat().st_size / 1e6:,.2f} MB")
    if ready.name.startswith("simulated-"):
        page.badge_simulated()
    for note in ready.notes:
        safe.inline(f"{note[:1].upper()}{note[1:]}.", muted=True)


def _delete(store: Store, row: RunRow) -> None:
    safe.inline("The run, its messages and judgements go. Recorded calls stay and would serve a new run.")
    with store.read() as connection:
        verdicts = deleting.verdicts_on(connection, [row.id])
    if verdicts:
        safe.inline(f"So do {verdicts:,} verdicts of people on its judgements.")
    if st.button("Delete this run", type="primary", key=f"runs.delete.{row.id}"):
        try:
            with store.read() as connection:
                planned = deleting.of_work(connection, row.id)
            deleting.delete(store, planned)
        except StoreError as problem:
            page.error("The run was not deleted.", str(problem))
            return
        url.put(run=None, beside=None)
        st.rerun()

"""The chosen run: its settings, its progress, what is missing and why, and the actions on it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Literal

import streamlit as st

from cimemories import launch
from cimemories.answers.progress import Progress, progress
from cimemories.compare.leaderboard import bounds_text
from cimemories.compare.ranking import memory_text
from cimemories.evaluation.batches import export_batch
from cimemories.evaluation.compositions import CompositionError
from cimemories.evaluation.costs import Cost, cost_of, raise_cap
from cimemories.evaluation.estimates import require_fit
from cimemories.evaluation.planning import plan, spec_of
from cimemories.evaluation.prices import money
from cimemories.evaluation.runs import estimate_judges, judge_again, messages_simulated
from cimemories.evaluation.spec import BY_FILE, JudgeSpec, command_of, prompt_level
from cimemories.exchange.exporting import export_run
from cimemories.flows import catalogue
from cimemories.flows.labels import default_labelling
from cimemories.flows.progress import ACTIVE, RESUMABLE, RunProgress, run_progress
from cimemories.flows.scope import judge_title, simulated_parts
from cimemories.formats.reading import FormatError
from cimemories.labels.whatif import effective_labels
from cimemories.llm import engines
from cimemories.llm.endpoint import SIMULATOR, EndpointError, is_assistant
from cimemories.llm.worker import WorkError
from cimemories.metrics.uncertainty import Interval
from cimemories.metrics.warnings import COVERAGE_WARNING, labeller_warning, run_warnings
from cimemories.model import WorkStatus
from cimemories.seeds.reading import SeedError
from cimemories.simulator.policy import SimulatorError
from cimemories.store.engine import Store, StoreError
from cimemories.store.runs import IMPORTED, LONGEST_NOTE, RunRow
from cimemories.store.upkeep import deleting
from cimemories.text import count, exact_percent, percent, sentence, visible, visible_in
from cimemories.ui import exports, once, page, safe, shell, tables, url
from cimemories.ui.annotator import Draft
from pages.evaluate import run_engine, run_servers
from pages.evaluate.run_estimate import draw_plan, draw_prices, prices
from pages.evaluate.run_judges import MATCHER, any_model, draw_judges, specs

# ---- actions


PROBLEMS = (StoreError, EndpointError, SeedError, SimulatorError, CompositionError)
_READY = "runs.export.ready"


def draw_actions(store: Store, row: RunRow) -> None:
    """Draw links to the run's numbers, then the actions on the run."""
    busy = row.status in ACTIVE
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        url.page_link("heatmaps", "Heatmaps", icon=":material/grid_on:", run=row.id)
        url.page_link("leaks", "Leaks", icon=":material/format_ink_highlighter:", run=row.id)
        url.page_link("judge_audit", "Judge audit", icon=":material/gavel:", run=row.id)
        if row.judged:
            of = {"runs": row.id, "tab": "report"}
            url.page_link("compare", "Report", icon=":material/summarize:", dataset=row.dataset, **of)
        with st.popover("Delete", icon=":material/delete:", disabled=busy):
            safe.inline(
                "Deletes the run with its messages and judgements. Recorded calls stay, and a new run can reuse them."
            )
            if verdicts := catalogue.verdicts_on(store, [row.id]):
                safe.inline(f"Also deletes {count(verdicts, 'verdict')} of people on its judgements.")
            with page.Reporting("The run was not deleted.", StoreError):
                once.button(
                    "Delete this run",
                    lambda: deleting.delete(store, catalogue.deletion_of_work(store, row.id)),
                    lambda _: url.put(run=None, beside=None),
                    type="primary",
                    key=f"runs.delete.{row.id}",
                )
    if busy:
        safe.inline("You can judge again, export or delete the run once it is paused or done.", muted=True)
    else:
        page.fold("Judge again", ":material/gavel:", "runs.box.judge", lambda: _judge_again(store, row))
        page.fold("Export", ":material/download:", "runs.box.export", lambda: _export(store, row))
    page.fold("Repeat", ":material/replay:", "runs.box.repeat", lambda: _repeat(store, row))


def _judge_again(store: Store, row: RunRow) -> None:
    """Draw the form that adds judges to the existing messages; only the judging is paid."""
    safe.inline("Adds judges. Messages stay as they are; only judgements are requested.", muted=True)
    draft = Draft(f"runs.again.{row.id}")
    served = row.endpoint not in (SIMULATOR, IMPORTED, *BY_FILE) and not is_assistant(row.endpoint)
    draw_judges(draft, simulated=messages_simulated(row), first=(MATCHER,), same=served, model=row.model)
    check = False
    if any_model(draft):
        check = draft.toggle(
            "Also check by the first model whether each message does its task",
            "with_check",
            help="Adds one short call per message",
        )
    key_env = row.manifest.request.api_key_env if row.manifest.request else ""
    too_long, judges = False, list[JudgeSpec]()
    with page.Reporting("These judges cannot be used.", StoreError):
        judges = specs(draft, row.endpoint, key_env, row.model)
        asked = dict.fromkeys(judge.model for judge in judges if judge.kind == "llm")
        if asked:
            draw_prices(draft, [(f"judge.{name}", name) for name in asked])
            judges = [j.replace(prices=prices(draft, f"judge.{j.model}")) if j.model in asked else j for j in judges]
    cap = draft.get("cap") or None
    draft.keep()
    if any(judge.kind == "llm" for judge in judges):
        too_long = draw_plan(
            f"runs.again.{row.id}",
            (judges, check, cap),
            lambda: estimate_judges(store, row.id, judges, check=check, cap=cap),
        )

    def add() -> str:
        # Read again if invalid: the button shows the problem.
        chosen = judges or specs(draft, row.endpoint, key_env, row.model)
        judge_again(store, row.id, chosen, check=check, cap=cap, allow_too_long=too_long)
        return row.id

    start_button(
        store,
        "Judge",
        add,
        lambda _: draft.clear(),
        icon=":material/gavel:",
        key=f"runs.again.start.{row.id}",
        refused="No judge was added.",
        doing="Contacting the judges' servers",
    )


def _repeat(store: Store, row: RunRow) -> None:
    """Draw the exact command that repeats the run, and a button that does the same."""
    try:
        spec = spec_of(store, row.id)
    except PROBLEMS as problem:
        page.notice(sentence(problem))
        return
    safe.inline(
        "Repeats this run as a new one, with the prompts it used. Recorded answers are reused, so only what failed is "
        "requested again.",
        muted=True,
    )
    try:
        st.code(visible(command_of(spec)), language=None, wrap_lines=True)
    except StoreError as problem:
        page.notice(sentence(problem))
    safe.inline(f"In this workspace: cimemories repeat {row.id}", muted=True)
    fresh = st.toggle(
        "Ignore recorded answers",
        value=spec.fresh,
        key=f"runs.repeat.fresh.{row.id}",
        help="Asks for every answer again, and pays for it",
    )
    start_button(
        store,
        "Repeat this run",
        lambda: plan(
            store, spec.model_copy(update={"fresh": fresh}), find_labels=effective_labels, require=require_fit
        ),
        show_run,
        icon=":material/replay:",
        key=f"runs.repeat.{row.id}",
        type="secondary",
    )


def start_button(
    store: Store,
    label: str,
    planned: Callable[[], str],
    then: Callable[[str], object],
    *,
    icon: str,
    key: str,
    refused: str = "The run was not started.",
    doing: str = "Contacting the servers and writing the plan",
    type: Literal["primary", "secondary"] = "primary",
    engine: str | None = None,
) -> None:
    """Draw a button that plans a run or sweep and starts its worker, once however often it is clicked, and leads on
    with its id. On a problem, which is shown, nothing is left half done. engine: as of launch.launch."""

    def do() -> str:
        work_id = planned()
        launch.launch(store, work_id, engine)
        return work_id

    try:
        once.button(label, do, then, key=key, doing=doing, icon=icon, type=type)
    except PROBLEMS as problem:
        page.error(refused, sentence(problem))


def show_run(run_id: str) -> None:
    """Go to a run."""
    url.put(run=run_id, tab=None, beside=None)
    shell.to_top()


# ---- files


def _export(store: Store, row: RunRow) -> None:
    readers = catalogue.judges_of(store, row.id)
    judges = {judge.id: judge_title(judge, readers) for judge in readers}
    mark = "simulated-" if row.simulated else ""
    refused = page.Reporting("The file was not written.", StoreError, FormatError, WorkError)
    left, right = st.columns(2, gap="large")
    with left:
        safe.inline("The run in the format of the authors' results, one profile per line.", muted=True)
        judge = st.selectbox(
            "Judgements of",
            list(judges),
            format_func=safe.options(judges, judges.__getitem__).__getitem__,
            key=f"runs.export.judge.{row.id}",
            help="The format has room for one judge",
        )
        request = (row.id, row.revision, "results", judge)
        if judges and st.button("Prepare results.jsonl", icon=":material/inventory_2:", key="show.runs.export.results"):
            path = exports.path_for(_READY, f"{mark}{row.id}-results.jsonl")
            with refused, st.spinner("Writing the file"):
                written = export_run(store, row.id, path, judge_id=judge)
                exports.prepared(_READY, request, path, simulated=row.simulated, notes=written.notes)
        exports.offer(_READY, request)
    with right:
        safe.inline("Every call that is still to be made, for vllm run-batch or OpenAI's Batch API.", muted=True)
        model = st.text_input(
            "Only calls to this model",
            key=f"runs.export.model.{row.id}",
            placeholder="all",
            help="A batch goes to one model. Export a judge's calls as a file of their own.",
        ).strip()
        if st.button("Prepare the batch file", icon=":material/inventory_2:", key="runs.export.batch"):
            with refused, st.spinner("Writing the file"):
                path = exports.path_for(_READY, f"{mark}{row.id}-owed.jsonl")
                batch = export_batch(store, row.id, path, model=model or None)
                # Writing the file may settle recorded calls: the run has then changed.
                revision = catalogue.run_of(store, row.id).revision
                if batch.lines:
                    kinds = ", ".join(f"{number:,} {kind}" for kind, number in batch.kinds.items())
                    notes = [f"{count(batch.lines, 'call')}: {kinds}"]
                    if len(batch.models) > 1:
                        several = ", ".join(batch.models)
                        notes.append(f"the calls are to several models ({several}), and a batch goes to one")
                    owed = (row.id, revision, "batch", model)
                    exports.prepared(_READY, owed, path, simulated=row.simulated, notes=notes)
                    if revision != row.revision:
                        st.rerun()
                else:
                    whose = f" to {model}" if model else ""
                    page.notice(f"{row.name} has no calls left{whose}, so there is no file to write.")
        exports.offer(_READY, (row.id, row.revision, "batch", model))
        safe.inline(f"Import the answers with: cimemories batch import {row.id} FILE", muted=True)


# ---- controls


def draw_controls(store: Store, row: RunRow, now: RunProgress) -> None:
    """Draw the buttons that apply now; none if nothing is owed."""
    if now.active:
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            stop_buttons(store, row.id, now.status)
    elif now.cost.cap_reached and now.retriable:
        raise_and_resume(store, row.id, now.cost)
    elif now.retriable and row.sweep is not None and cost_of(store, row.sweep).cap_reached:
        safe.inline("Its sweep has reached its cost cap. Raise the cap there to go on.")
        url.page_link("runs", "Open the sweep", icon=":material/arrow_forward:", tab="sweeps", sweep=row.sweep)
    elif now.status in RESUMABLE and (not now.imported or now.retriable):
        resume_button(store, row.id)
    elif now.retriable:
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            resume_button(store, row.id, again=True)
            left = f"{count(now.retriable, 'call')} failed or are left. Answers that are there are kept."
            safe.inline(left, muted=True)


def resume_button(store: Store, work_id: str, *, again: bool = False) -> None:
    """Draw the button that continues a run or sweep. again: it has ended, and calls failed."""
    label, icon = ("Retry failed calls", ":material/replay:") if again else ("Resume", ":material/resume:")
    _resume_buttons(store, work_id, label, icon, lambda engine: launch.launch(store, work_id, engine))


def _resume_buttons(store: Store, work_id: str, label: str, icon: str, go_on: Callable[[str | None], None]) -> None:
    """Draw a button that continues on the engine that did the work last, and one for the other engine, since clusters
    come and go."""
    _button(label, icon, f"runs.resume.{work_id}", lambda: go_on(None))
    if other := engines.other(store, work_id):
        mark = ":material/computer:" if other == engines.LOCAL else ":material/hub:"
        _button(f"On {engines.place(other)}", mark, f"runs.resume.other.{work_id}", lambda: go_on(other))


STOPPING = {
    WorkStatus.PAUSING: "Pausing: waiting for calls in flight.",
    WorkStatus.CANCELLING: "Cancelling: dropping calls in flight.",
}


def stop_buttons(store: Store, work_id: str, status: WorkStatus) -> None:
    """Draw Pause and Cancel of an active run or sweep; one that is pausing can still be cancelled."""
    pause, cancel = (lambda: catalogue.pause(store, work_id)), (lambda: catalogue.cancel(store, work_id))
    _button("Pause", ":material/pause_circle:", f"runs.pause.{work_id}", pause, disabled=status in STOPPING)
    cancelling = status == WorkStatus.CANCELLING
    _button("Cancel", ":material/stop_circle:", f"runs.cancel.{work_id}", cancel, disabled=cancelling)
    usual = "Pause waits for calls in flight; cancel drops them. You can resume after either."
    safe.inline(STOPPING.get(status, usual), muted=True)


def raise_and_resume(store: Store, work_id: str, cost: Cost) -> None:
    """Draw a field for a higher cost cap and the button that continues, for a run or sweep that has reached its cap."""
    assert cost.cap is not None
    safe.inline(
        f"It has paid {money(cost.paid, cost.currency)}, and its cost cap is {money(cost.cap, cost.currency)}. Answers "
        "are kept; with a higher cap it continues where it stopped."
    )
    field, button = st.columns([2, 9], vertical_alignment="bottom")
    with field:
        cap = st.number_input(
            safe.plain_label(f"Raise the cap to{f' ({cost.currency})' if cost.currency else ''}"),
            min_value=0.0,
            # Above the cost so far, or it would stop again at once.
            value=max(2 * cost.cap, 1.5 * cost.paid),
            format="%.4g",
            key=f"runs.cap.{work_id}",
        )

    def go_on(engine: str | None) -> None:
        raise_cap(store, work_id, float(cap))
        launch.launch(store, work_id, engine)

    with button, st.container(horizontal=True, gap="small"):
        _resume_buttons(store, work_id, "Raise the cap and resume", ":material/resume:", go_on)


def _button(label: str, icon: str, key: str, act: Callable[[], object], *, disabled: bool = False) -> None:
    with page.Reporting("That did not work.", StoreError):
        once.button(label, act, icon=icon, key=key, disabled=disabled)


# ---- progress


SILENT_SECONDS = 30.0  # before a server that gives no figures is asked again


def draw_stages(row: RunRow, now: RunProgress) -> Progress:
    """Draw the progress of a run: a bar while it runs, its stages, and a sentence with its rate and the time left."""
    state = progress(now, row.model)
    end = "."
    if now.status == WorkStatus.QUEUED:
        end = ". Waiting for the worker to start."
    elif now.active:
        st.progress(now.settled / now.to_settle if now.to_settle else 0.0)
        pace = once.pace(f"runs.pace.{row.id}", now.settled, now.to_settle) or "measuring the rate"
        end = f"; {pace}; {now.worker}."
    safe.inline(f"{state.sentence}{end}")
    tables.grid(state.stages, state.stages.caption)
    return state


def server_figures(row: RunRow) -> None:
    """Draw the figures of the model's server; nothing if it gives none."""
    if row.endpoint in (SIMULATOR, IMPORTED):
        return
    key = f"runs.server.{row.endpoint}.silent"
    if time.monotonic() < st.session_state.get(key, 0.0):
        return
    now = run_servers.figures(row.endpoint)
    if now is None:
        # The run is read every second, and each try at a silent server may take two.
        st.session_state[key] = time.monotonic() + SILENT_SECONDS
        return
    safe.inline(f"The server at {row.endpoint}: {now.text}.", muted=True)


def measured(interval: Interval, note: str = "", *, covered: bool, before: str = "") -> tables.Cell:
    """Return a number with its interval as a cell of a row of results. before: a name for the number, if no title gives
    one."""
    if math.isnan(interval.value):
        return tables.Cell(text=f"{before}–", hint="Undefined, or nothing is judged yet")
    few = "" if covered else f". Coverage under {exact_percent(COVERAGE_WARNING)}: not to be compared"
    ends = None if math.isnan(interval.low) else (interval.low, interval.high)
    return tables.Cell(
        text=f"{before}{percent(interval.value)}",
        small=" ".join(filter(None, (bounds_text(interval), note))),
        hint=f"95 % interval over {count(interval.users, 'profile')}{few}",
        value=interval.value,
        low=ends and ends[0],
        high=ends and ends[1],
    )


# ---- the run


REFRESH = "1s"


def draw(store: Store, row: RunRow) -> None:
    """Draw everything about one run, repeatedly while it is active."""
    parts = simulated_parts(row, default_labelling(store, row.dataset))
    safe.show(safe.tag("h3", row.name, " ", page.simulated_badge(parts), cls="ci-heading"))
    where = {IMPORTED: "from a file", SIMULATOR: "in the simulator"}.get(row.endpoint, f"at {row.endpoint}")
    # A run without a name is called after its model.
    what = [where if row.name.startswith(f"{row.model} on ") else f"{row.model} {where}"]
    level = prompt_level(row)
    what += [f"prompt {level}"] if level else []
    what += [f"memory {memory_text(row)}"]
    kind = row.manifest.mitigation.kind
    what += [f"mitigation {kind}"] if kind != "none" else []
    what += ["reference settings"] if row.manifest.reference else []
    safe.inline(" · ".join([*what, f"{count(row.samples, 'sample')} per context", row.id]), muted=True)
    if row.endpoint == IMPORTED:
        file = row.manifest.imported.file if row.manifest.imported else None
        page.notice(
            f"This run was imported from a file{f' ({file})' if file else ''}. Its messages were written elsewhere, so "
            "it cannot be resumed or repeated. You can still add judges."
        )
    _draw_description(store, row)
    live = row.status in ACTIVE
    with page.Reporting("Its warnings could not be read.", StoreError):
        # While it runs, unjudged messages are not worth a note.
        warnings = () if live else run_warnings(store, row.id)
        page.notices([*warnings, *filter(None, [labeller_warning(store, row.id)])])
    st.fragment(_live, run_every=REFRESH if live else None)(store, row, live)
    draw_actions(store, row)
    page.fold(
        "Manifest: exactly what was run",
        ":material/receipt_long:",
        "runs.box.manifest",
        lambda: st.json(visible_in(row.manifest.recorded)),
    )


def _draw_description(store: Store, row: RunRow) -> None:
    """Draw the tags and the note of a run, and the form that changes them."""
    if row.tags or row.note:
        words = safe.tag("b", *(f"#{word} " for word in row.tags))
        safe.show(safe.tag("div", words, safe.data(row.note), cls="ci-line"))

    def change() -> None:
        # Another window may save others meanwhile: what is typed here stays, and replaces them only at a second press.
        now, opened_key = (row.tags, row.note), f"runs.described.{row.id}"
        opened = st.session_state.setdefault(opened_key, now)

        def field(name: str) -> str:
            return f"{opened_key}.{hash(opened)}.{name}"

        typed = tuple(st.session_state.get(field("tags"), opened[0])), st.session_state.get(field("note"), opened[1])
        if opened != now and typed in (opened, now):
            opened = st.session_state[opened_key] = now
        tags = st.multiselect(
            "Tags",
            sorted({word for other in catalogue.all_runs(store) for word in other.tags}),
            default=opened[0],
            format_func=safe.option,
            key=field("tags"),
            accept_new_options=True,
            placeholder="short words, such as pilot",
        )
        note = st.text_area("Note", opened[1], max_chars=LONGEST_NOTE, key=field("note"))
        changed = opened != now
        if changed:
            page.notice(
                "Tags or note were changed in another window. Under the run's name is what is saved now; what you "
                "typed here is not saved yet."
            )
        with page.Reporting("Tags and note stay as they were.", StoreError):
            once.button(
                "Save mine instead" if changed else "Save",
                partial(catalogue.describe_run, store, row.id, tags, note),
                lambda _: st.session_state.pop(opened_key, None),
                key=f"runs.replace.{row.id}.{hash(now)}" if changed else f"runs.describe.{row.id}",
            )

    page.fold("Tags and note", ":material/sell:", "runs.box.describe", change)


def _live(store: Store, row: RunRow, was_active: bool) -> None:
    try:
        now = run_progress(store, row.id)
    except StoreError as problem:
        page.error(str(problem))
        return
    # Only this fragment runs each second: once the run has ended the whole page is drawn with its other buttons.
    if was_active and not now.active:
        st.rerun()
    state = draw_stages(row, now)
    if now.slowed:
        page.notice(sentence(now.slowed))
    draw_controls(store, row, now)
    sources = catalogue.sources_of(store, row.id)
    several = len({source.model for source in sources}) > 1
    lines = ["Recorded answers of other runs were ignored."] if row.manifest.fresh else []
    lines += [source.sentence() + (f", by {source.model}" if several else "") + "." for source in sources]
    if engine := run_engine.engine_text(store, row.id):
        lines.append(f"Engine: {engine}.")
    safe.show(safe.lines(lines))
    if now.error:
        page.error(f"{now.status}:", now.error)
    tables.grid(state.messages, state.messages.caption)
    safe.show(safe.lines(state.failures))
    if not state.calls.empty:
        tables.grid(state.calls, state.calls.caption)
    safe.show(safe.lines(filter(None, [state.cost])))
    if now.active:
        server_figures(row)
    if log := launch.log_tail(store, row.id):
        page.fold(
            "Worker log",
            ":material/notes:",
            "runs.box.log",
            lambda: st.code(log, language=None, wrap_lines=True),
        )

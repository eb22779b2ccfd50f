"""Sweeps: the existing ones with the table of their cells, and a new one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import streamlit as st
import yaml

from cimemories.answers import lists
from cimemories.charts import comparison
from cimemories.compare.leaderboard import bounds_text
from cimemories.compare.sweeps import Cell, SweepTable, over_k, plan_sentence, sweep_table
from cimemories.evaluation.compositions import read_composition
from cimemories.evaluation.estimates import refuse_misfits
from cimemories.evaluation.prices import Prices, money
from cimemories.evaluation.spec import MESSAGE_TOKENS, SERVERS_LIMIT, Group
from cimemories.evaluation.sweeps import (
    SweepEstimate,
    SweepSpec,
    check_sweep,
    estimate_sweep,
    judge_entry,
    plan,
    read_sweep,
)
from cimemories.flows import catalogue
from cimemories.flows.flows import shared_flows
from cimemories.flows.progress import ACTIVE, RESUMABLE
from cimemories.labels.whatif import effective_labels
from cimemories.llm.endpoint import DEFAULT_KEY_ENV, SIMULATOR, Endpoint
from cimemories.memory import systems
from cimemories.metrics.uncertainty import Interval
from cimemories.model import WorkStatus
from cimemories.seeds.prompts import levels
from cimemories.seeds.reading import read_uploaded
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.runs import RETRIABLE
from cimemories.text import count, percent, sentence
from cimemories.ui import answers, once, page, safe, shell, tables, url
from cimemories.ui.annotator import Draft
from pages.evaluate import run_detail, run_engine, run_judges, run_new, run_servers
from pages.evaluate.run_detail import PROBLEMS, show_run
from pages.evaluate.run_estimate import allow_too_long, show
from pages.evaluate.run_model import SIMULATED_MODELS
from pages.evaluate.run_new import BY_REFERENCE, SETTINGS
from pages.evaluate.run_settings import draw_field, draw_fixed, draw_several
from pages.explore.compare_scope import show_drawing

# ---- the form of a new sweep


Model = tuple[str, str, str]  # name, address, variable of its key
FORM, FILE = "form", "file"
WAYS = {FORM: "Fill in a form", FILE: "Upload a YAML file"}
NAME = Path("sweep.yaml")
SESSIONS = ("none", "all", "last-1", "last-3")
MEMORIES = (
    "full",
    *(f"necessary+{k}" for k in (0, 5, 10, 20, 50)),
    *(f"inappropriate+{k}" for k in (0, 1, 5)),
    *(f"random-{k}" for k in (20, 50, 100)),
)
BY_K = ("bm25", "embedding")


def draw_sweep_form(store: Store, data: list[DatasetRow]) -> None:
    """Draw the form or the upload of a file, the estimate, and the start."""
    draft = Draft("run_sweep")
    way = st.segmented_control(
        "How to describe it?",
        list(WAYS),
        format_func=WAYS.__getitem__,
        key=draft.key("way", FORM, list(WAYS)),
        required=True,
        label_visibility="collapsed",
    )
    spec = None
    try:
        if way == FORM:
            spec = _from_form(store, draft, data)
        elif upload := st.file_uploader(
            "File of the sweep",
            type=["yaml", "yml"],
            key="run_sweep.upload",
            help="The format is described in docs/sweeps.md",
        ):
            spec = read_uploaded(upload.getvalue(), upload.name, lambda path: read_sweep(path, uploaded=True))
    except PROBLEMS as problem:
        page.error("This sweep cannot be planned yet.", sentence(problem))
    draft.keep()
    if spec is not None:
        _plan(store, spec)


def _from_form(store: Store, draft: Draft, data: list[DatasetRow]) -> SweepSpec | None:
    reference = run_judges.reference(draft)
    left, right = st.columns(2, gap="large")
    with left:
        models = _models(store, draft)
        content: dict[str, object] = {
            "prompt_levels": draw_several(draft, SETTINGS["prompt_level"], "Prompt levels", "levels", levels("respond"))
        }
        content["memory"] = _memories(draft)
        if not reference:
            content["sessions"] = draw_several(draft, SETTINGS["sessions"], "Sessions", "sessions", SESSIONS, new=True)
        for item in SETTINGS.values():
            if item.setting.group == Group.MODEL and item.choices:
                plural = item.setting.plural or item.name
                if reference and item.name in BY_REFERENCE:
                    draw_fixed(draft, item, BY_REFERENCE[item.name])
                else:
                    content[plural] = draw_several(draft, item, plural.capitalize(), plural, item.choices)
    with right:
        draft.text("Name", "name", placeholder="shown in tables")
        row, profiles, contexts, samples = run_new.draw_dataset(draft, data)
        one, two = st.columns(2)
        with one:
            if reference:
                draw_fixed(draft, SETTINGS["max_tokens"], BY_REFERENCE["max_tokens"])
            else:
                draw_field(draft, SETTINGS["max_tokens"])
        with two:
            draw_field(draft, SETTINGS["cap"])
        draw_field(draft, SETTINGS["fresh"])
    first: dict[str, object] = next((model for model in models if model["base_url"] != SIMULATOR), {})
    name, address = str(first.get("model", "")), str(first.get("base_url", ""))
    with st.popover("Judges and task check", icon=":material/gavel:"):
        run_judges.draw_judges(draft, simulated=bool(models) and not first, model=name)
        draw_field(draft, SETTINGS["check"])
    if not models:
        safe.inline("Choose at least one model.", muted=True)
        return None
    limit = MESSAGE_TOKENS if reference else draft.get("max_tokens")  # as in a file without it
    variable = str(first.get("api_key_env", DEFAULT_KEY_ENV))
    content = {
        "name": str(draft.get("name") or "").strip() or safe.option(", ".join(str(m["model"]) for m in models), 60),
        "dataset": row.name,
        "samples": samples,
        "max_tokens": SERVERS_LIMIT if limit is None else limit,
        "profiles": profiles if profiles != row.profiles else None,
        "contexts": contexts if contexts != row.contexts else None,
        "cap": draft.get("cap") or None,
        "fresh": draft.get("fresh") or None,
        "models": models,
        **content,
        "judges": [judge_entry(judge) for judge in run_judges.specs(draft, address, variable, name)],
        "check": draft.get("check"),
        "reference": reference or None,
    }
    content = {name: value for name, value in content.items() if value is not None}
    with st.popover("YAML", icon=":material/data_object:"):
        show_yaml(content, "run_sweep.yaml")
    return check_sweep(content, NAME)


def _models(store: Store, draft: Draft) -> list[dict[str, object]]:
    """Draw the models under test with their prices. Return for each its entry in a sweep's file."""
    extra: list[Model] = draft.get("extra") or []
    models: list[Model] = [(name, SIMULATOR, DEFAULT_KEY_ENV) for name in SIMULATED_MODELS]
    models += [(served.model, served.base_url, DEFAULT_KEY_ENV) for served in run_servers.running(store)]
    options = list(dict.fromkeys([*extra, *models]))
    key = draft.key("models", [])
    # A chosen server may have stopped since: Streamlit refuses a value that is no option.
    st.session_state[key] = [item for item in st.session_state[key] if item in options]
    picked: list[Model] = st.multiselect(
        "Models",
        options,
        format_func=lambda item: safe.option(
            f"{item[0]} at {item[1]}" if item[1] != SIMULATOR else f"{item[0]} (simulated)"
        ),
        key=key,
        placeholder="models under test",
        help="Simulated models, models on ready managed servers, and those you add",
    )

    def add(model: Model, field: str) -> None:
        draft.keep()
        # keep() comes first: after put() it would write the empty widget over the new value. Options must be unique,
        # and the second click of a double click adds the model again.
        draft.put("extra", list(dict.fromkeys([*extra, model])))
        draft.put("models", list(dict.fromkeys([*picked, model])))
        draft.put(field, "")
        st.rerun()

    with st.popover("Add a model at an endpoint", icon=":material/add:"):
        name = draft.text("Model", "add.model", placeholder="name on the server").strip()
        draw_field(draft, SETTINGS["base_url"], "add.url")
        draw_field(draft, SETTINGS["api_key_env"], "add.key")
        base_url = str(draft.get("add.url") or "").strip()
        key_env = str(draft.get("add.key") or DEFAULT_KEY_ENV).strip()
        problem = _problem_with(lambda url: Endpoint(url, key_env), base_url)
        if problem:
            page.error("This address cannot be used.", problem)
        if st.button("Add", key="run_sweep.add", disabled=bool(problem) or not (name and base_url)):
            add((name, base_url, key_env), "add.model")
    with st.popover("Add a model to serve", icon=":material/dns:"):
        name, address = run_engine.draw_served(draft)
        if st.button("Add", key="run_sweep.serve", disabled=not name):
            add((name, address, DEFAULT_KEY_ENV), "own.model")
    entries = []
    for number, (model, where, variable) in enumerate(picked):
        entry: dict[str, object] = {"model": model, "base_url": where}
        if variable != DEFAULT_KEY_ENV:
            entry["api_key_env"] = variable
        if where != SIMULATOR:
            prices = draft.text(
                f"Prices of {model}",
                # number: one model may be served at two addresses, at two prices.
                f"price.{model}.{number}",
                placeholder="prompt/cached/completion, such as 0.15/0.075/0.60 USD",
                help="Per million tokens. Leave empty for your own server.",
            )
            if problem := _problem_with(Prices.read, prices.strip()):
                page.error("These prices cannot be read.", problem)
            elif prices.strip():
                entry["prices"] = Prices.read(prices).text
        entries.append(entry)
    return entries


def _problem_with(check: Callable[[str], object], text: str) -> str:
    """Return the problem that `check` raises for a text; '' if it is valid or empty."""
    try:
        if text:
            check(text)
    except PROBLEMS as problem:
        return sentence(problem)
    return ""


def _memories(draft: Draft) -> list[str]:
    """Draw the memories: the paper's compositions, and the systems that can run here, some of them by several k."""
    available = systems.available()
    over_k = [f"{systems.PREFIX}{name}:k={k}" for name in BY_K if name in available for k in (5, 10, 20, 40, 80)]
    rest = [f"{systems.PREFIX}{name}" for name in available if name not in BY_K]
    options = [*MEMORIES, *over_k, *rest]
    memories = draw_several(draft, SETTINGS["memory"], "Memories", "memories", options, new=True)
    for item in memories:
        if problem := _problem_with(read_composition, item):
            page.error("This memory cannot be read.", problem)
    return memories


def show_yaml(content: Mapping[str, Any], key: str) -> None:
    """Draw the file of a sweep, to read and to download."""
    given = {name: value for name, value in content.items() if value not in (None, {}, [], ())}
    text = yaml.safe_dump(given, sort_keys=False, allow_unicode=True, width=100)
    st.code(text, language="yaml")
    st.download_button(
        "Download", data=text, file_name=NAME.name, mime="application/yaml", icon=":material/download:",
        key=f"{key}.download", on_click="ignore",
    )  # fmt: skip


def _plan(store: Store, spec: SweepSpec) -> None:
    """Draw the estimate, once the user has asked for it, and the start."""
    cells = count(len(spec.runs), "run")
    # The button starts exactly what was estimated: any change of the specification voids the estimate.
    source = repr(spec.source)
    names = ("the matcher" if judge.kind != "llm" else judge.model for judge in spec.runs[0].judges)
    judges = ", ".join(dict.fromkeys(names))  # an assistant has several channels, which one judge reads
    how = ", by the paper's own settings" if spec.runs[0].reference else ""
    safe.inline(f"{spec.name}: {cells} on {spec.dataset}, judged by {judges}{how}.")
    if st.button("Estimate", icon=":material/calculate:", key="run_sweep.estimate"):
        try:
            with st.spinner("Counting calls"):
                st.session_state["run_sweep.estimated"] = (
                    source,
                    estimate_sweep(store, spec, find_labels=effective_labels),
                )
        except PROBLEMS as problem:
            page.error("This sweep cannot be planned yet.", sentence(problem))
            return
    stored = st.session_state.get("run_sweep.estimated")
    if not stored or stored[0] != source:
        safe.inline("Estimate calls, cost and time first.", muted=True)
        return
    estimated: SweepEstimate = stored[1]
    with st.container(height=260 if len(estimated.cells) > 6 else "content", border=False):
        tables.grid(estimated.table, "Cells of the sweep")
    show(estimated.total)
    with page.Reporting("What this sweep can show is not known.", StoreError):
        safe.inline(plan_sentence(store, spec.runs[0]))
    draft = Draft("run_sweep.on")
    engine = run_engine.draw_engine(store, draft)
    draft.keep()
    if engine is None:
        return
    too_long = allow_too_long("run_sweep", estimated.total)

    def started(sweep_id: str) -> None:
        st.session_state.pop("run_sweep.estimated", None)
        st.session_state[_FOLD] = True
        url.put(sweep=sweep_id)

    def planned() -> str:
        if not too_long:
            refuse_misfits(estimated.total)
        return plan(store, spec, find_labels=effective_labels, estimated=estimated)

    run_detail.start_button(
        store,
        "Start the sweep",
        planned,
        started,
        icon=":material/play_arrow:",
        key="run_sweep.start",
        refused="The sweep was not started.",
        engine=engine,
    )


# ---- the list of sweeps, and one of them


REFRESH = "3s"
_BOX = "run_sweeps.box.new"
_FOLD = "run_sweeps.fold"  # a sweep was started: the form is folded away, so that the sweep below it is visible


def draw(store: Store, data: list[DatasetRow]) -> None:
    """Draw the form of a new sweep, the list, and the chosen sweep."""
    rows = catalogue.all_sweeps(store)[::-1]
    if not rows:
        safe.inline(
            "No sweep yet. A sweep runs every combination of models, prompt levels, memories and mitigations, one "
            "after the other, with one cost cap.",
            muted=True,
        )
    # Before the form is drawn: the state of a box that is drawn already cannot be set.
    if st.session_state.pop(_FOLD, False):
        st.session_state[_BOX] = False
    page.fold(
        "New sweep",
        ":material/add:",
        _BOX,
        lambda: draw_sweep_form(store, data),
        expanded=not rows,
    )
    if not rows:
        return
    ids, sweep_id = [row.id for row in rows], url.get("sweep") or url.remembered("sweep")
    if sweep_id is not None and sweep_id not in ids:
        page.notice("The sweep in the link does not exist (any longer). Choose one from the list.")
    picked = answers.twin(
        lists.sweeps(rows, {row.id: row.name for row in data}),
        "runs.sweeps",
        on_select="row",
        selected=ids.index(sweep_id) if sweep_id in ids else 0,
        height="content",
    )
    chosen = rows[picked or 0]
    url.replace(sweep=chosen.id)
    live = chosen.status in ACTIVE
    st.fragment(_live, run_every=REFRESH if live else None)(store, chosen.id, live)


def _live(store: Store, sweep_id: str, was_active: bool) -> None:
    try:
        table = sweep_table(store, sweep_id)
    except StoreError as problem:
        page.error(sentence(problem))
        return
    if was_active and table.row.status not in ACTIVE:
        st.rerun()
    _header(table)
    _controls(store, table)
    _matrices(table)
    _over_k(store, table)
    for text in table.warnings:
        page.notice(sentence(text))


def _header(table: SweepTable) -> None:
    row, cost = table.row, table.cost
    simulated = any(cell.run.simulated for cell in table.cells)
    safe.show(safe.tag("h3", row.name, " ", page.simulated_badge(simulated), cls="ci-heading"))
    settled = sum(cell.run.judged for cell in table.cells)
    planned = sum(cell.run.expected for cell in table.cells)
    st.progress(settled / planned if planned else 0.0)
    parts = [
        f"{row.status}: {table.done} of {count(len(table.cells), 'run')} done",
        f"{count(settled)} of {count(planned, 'response')} judged",
    ]
    if row.status in ACTIVE and (pace := once.pace(f"runs.pace.{row.id}", settled, planned)):
        parts.append(pace)
    if cost.shown:
        parts.append(f"cost {cost.shown}")
    if row.cap is not None:
        parts.append(f"cap {money(row.cap, cost.currency)}")
    parts += [cost.above_cap_text] if cost.above_cap_text else []
    safe.inline("; ".join(parts) + ".")
    if row.error:
        page.error(f"{str(row.status).capitalize()}.", sentence(row.error))
    for cell in table.cells:
        if cell.run.status in ACTIVE and cell.run.error:  # says what slows it down
            page.notice(sentence(f"{cell.run.id}: {cell.run.error}"))


def _controls(store: Store, table: SweepTable) -> None:
    row = table.row
    # In a finished sweep failed calls can be retried; refused and cut answers would come again unchanged.
    failed = sum(cell.run.responses.get(status, 0) for cell in table.cells for status in RETRIABLE)
    again = row.status == WorkStatus.FINISHED_WITH_FAILURES and failed > 0
    resumable = row.status in RESUMABLE or again
    if resumable and table.cost.cap_reached:
        run_detail.raise_and_resume(store, row.id, table.cost)
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        if row.status in ACTIVE:
            run_detail.stop_buttons(store, row.id, row.status)
        elif resumable and not table.cost.cap_reached:
            run_detail.resume_button(store, row.id, again=again)
        with st.popover("YAML", icon=":material/data_object:"):
            show_yaml(row.spec, f"sweeps.yaml.{row.id}")


def _matrices(table: SweepTable) -> None:
    """Draw prompt by memory as a matrix for each model, and below it every run of the sweep."""
    for number, (name, matrix) in enumerate(table.matrices().items()):
        memories = list(dict.fromkeys(memory for cells in matrix.values() for memory in cells))
        read_at = {cell.n for cells in matrix.values() for cell in cells.values()}
        at = f", Violation@{read_at.pop()}" if len(read_at) == 1 else ""
        if len(matrix) * len(memories) == 1:
            continue
        badge = page.simulated_badge(any(c.run.simulated for cells in matrix.values() for c in cells.values()))
        safe.show(safe.tag("h3", f"{name}: prompt by memory{at} and completeness ", badge, cls="ci-heading"))
        rows = [
            tables.Row(level, [tables.Cell(text=level), *(_matrix_cell(cells.get(memory)) for memory in memories)])
            for level, cells in matrix.items()
        ]
        heads = [tables.Head("Prompt"), *(tables.Head(safe.option(memory)) for memory in memories)]
        label = f"{name}: prompt level by memory, with 95 % intervals"
        tables.results(heads, [tables.Group(rows)], key=f"runs.matrix.{table.row.id}.{number}", label=label)
    icon, row = ":material/compare_arrows:", table.row
    url.page_link("compare", "Compare along one setting", icon=icon, dataset=row.dataset, sweep=row.id, tab="sweeps")
    safe.heading("Runs")
    rows = [_cell_row(cell) for cell in table.cells]
    heads = [tables.Head("Run"), tables.Head("Coverage"), tables.Head("Violation@n"), tables.Head("Completeness")]
    heads += [tables.Head("Does task", number=True), tables.Head("Cost", number=True)]
    pressed = tables.results(
        heads, [tables.Group(rows)], key=f"runs.cells.{table.row.id}", label="Cells of the sweep, each a run"
    )
    if pressed is not None:
        show_run(pressed[1])
        st.rerun()


def _over_k(store: Store, table: SweepTable) -> None:
    """Draw how the completeness and leaks of the sweep's memory systems change with k."""
    row, over = table.row, None
    with page.Reporting("What the memory systems do over k is not known.", StoreError):
        over = over_k(shared_flows(store), table)
    if over is None:
        return
    drawing = comparison.over_k(over, columns=1 if shell.is_phone() else 3)
    safe.heading("Over k")
    if drawing is None:
        needed = "At least two runs of a memory system that differ in k alone are needed, ended and fully judged."
        page.empty("Nothing to draw over k yet", needed)
    else:
        first = over.figure.lines[0]
        about = {"sweep": row.id, "labels": first.scope.labels_text, "judge": first.scope.judge_text, "n": first.n}
        show_drawing(
            drawing, f"runs.over_k.{row.id}", f"sweep-{row.name}-over-k", f"runs.box.over_k.{row.id}",
            over.figure.simulated, about,
        )  # fmt: skip
    to: dict[str, Any] = {"dataset": row.dataset, "sweep": row.id, "tab": "sweeps", "axis": "memory"}
    url.page_link("compare", "Violation against completeness over k", icon=":material/show_chart:", **to)


def _bounds(cell: Cell) -> tuple[Interval, Interval] | None:
    """Return violation and completeness with their intervals, which are nan while the run is active; None before."""
    if cell.numbers is None:
        return None
    if cell.bounds is not None:
        return cell.bounds.violation[cell.n], cell.bounds.completeness
    nothing = math.nan, math.nan, cell.numbers.profiles
    return Interval(cell.violation, *nothing), Interval(cell.completeness, *nothing)


def _matrix_cell(cell: Cell | None) -> tables.Cell:
    """Return both numbers in words: a matrix has no room for two drawings in a cell."""
    if cell is None:
        return tables.Cell(text="")
    both = _bounds(cell)
    if both is None:
        return tables.Cell(text=cell.status)
    one, two = both
    shown = run_detail.measured(one, covered=cell.covered)
    complete = " ".join(filter(None, ("completeness", percent(two.value), bounds_text(two))))
    few = "" if cell.covered else f", coverage {percent(cell.coverage)}"
    return replace(shown, small=f"{shown.small} · {complete}{few}")


def _cell_row(cell: Cell) -> tables.Row:
    simulated = [("simulated", "simulated")] if cell.run.simulated else []
    both = _bounds(cell)
    numbers = (
        [run_detail.measured(one, covered=cell.covered) for one in both] if both else [tables.Cell(), tables.Cell()]
    )
    state = "" if cell.status == WorkStatus.FINISHED else cell.status
    task = tables.Cell(text="" if math.isnan(cell.does_task) else percent(cell.does_task))
    cells = [
        tables.Cell(text=safe.option(cell.label, 120), hint=cell.run.id, chips=simulated, opens=True),
        tables.Cell(text=percent(cell.coverage), value=cell.coverage, bar=cell.coverage, small=state),
        *numbers,
        task,
        tables.Cell(text=cell.cost.shown),
    ]
    return tables.Row(cell.run.id, cells, grey=not cell.covered)

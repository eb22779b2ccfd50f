"""Runs: the existing ones, a new one, sweeps, and the servers that answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from cimemories import launch
from cimemories.answers import lists
from cimemories.compare.leaderboard import RunLine, run_lines, unusual
from cimemories.flows import catalogue
from cimemories.flows.flows import shared_flows
from cimemories.flows.progress import ACTIVE, RESUMABLE
from cimemories.metrics.warnings import comparison_warnings
from cimemories.model import ResponseStatus, WorkStatus
from cimemories.store.engine import Store, StoreError, shared_store
from cimemories.store.runs import RunRow
from cimemories.text import count, percent, sentence, simulated_text
from cimemories.ui import answers, once, page, safe, shell, tables, url
from cimemories.ui.tables import Cell, Group, Head, Row
from pages.evaluate import run_detail
from pages.evaluate.run_detail import show_run

LIST, NEW, SWEEPS, SERVERS = "list", "new", "sweeps", "servers"
TABS = {LIST: "Runs", NEW: "New run", SWEEPS: "Sweeps", SERVERS: "Servers"}


def draw() -> None:
    store = shared_store()
    marks = catalogue.run_marks(store)  # before the rows: changes in between are seen at the next look
    rows, data = catalogue.all_runs(store)[::-1], catalogue.all_datasets(store)
    active = sum(row.status in ACTIVE for row in rows)
    number = count(len(rows), "run")
    takeaway = f"{number} in this workspace, {active} running." if rows else "No run yet."
    page.head("Runs", takeaway, simulated=bool(rows) and all(row.simulated for row in rows))
    tab = page.choice("Part of the page", TABS, "runs.tab", "tab", default=LIST, visible=False)
    # Each part is imported when it is opened, so that a switch to the page stays quick.
    if tab == SERVERS:
        from pages.evaluate import run_servers

        run_servers.draw(store)
    elif not data:
        page.empty(
            "No dataset yet",
            "A run needs profiles with contexts. Import the authors' file to begin.",
            lambda: url.page_link("profiles", "Import profiles", icon=":material/upload:"),
        )
    elif tab == NEW:
        from pages.evaluate import run_new

        run_new.draw(store, data)
    elif tab == SWEEPS:
        from pages.evaluate import run_sweeps

        run_sweeps.draw(store, data)
    elif not rows:
        page.empty(
            "No run yet",
            "In a run, a model writes messages for every profile in every context, and judges say what each reveals. "
            "You can pause and resume it at any time.",
        )
        if st.button("New run", icon=":material/add:", type="primary", key="show.runs.first"):
            url.put(tab=NEW)
            st.rerun()
    else:
        _list_and_panel(store, rows)
    if tab in (LIST, SWEEPS) and not active:

        @st.fragment(run_every=IDLE_REFRESH)
        def watch() -> None:
            """Draw the page again once a run or sweep was added, started or ended elsewhere, as by a command."""
            if catalogue.run_marks(store) != marks:
                st.rerun()

        watch()


MOST_BESIDE = 8
REFRESH, IDLE_REFRESH = "2s", "10s"
HEADS = (
    Head("Run"),
    Head("Coverage", "Judged messages over planned ones"),
    Head("Violation@n", "Share of attributes ever revealed where they are inappropriate; less is better", number=True),
    Head("Completeness", "Share of necessary attributes conveyed; more is better", number=True),
    Head("Cost", number=True),
    Head("Started (UTC)"),
    Head(""),
)
BESIDE = 4  # of these, if a run is open
LONGEST = 300  # characters of a name in the list, which has room for what tells runs apart


def _list_and_panel(store: Store, rows: list[RunRow]) -> None:
    run_id = url.get("run")
    chosen = next((row for row in rows if row.id == run_id), None)
    if run_id is not None and chosen is None:
        page.notice("The run in the link does not exist (any longer). Choose one from the list.")
    tag = page.run_tag((row.tags for row in rows), "runs.tag", grouped=True)
    active = frozenset(row.id for row in rows if row.status in ACTIVE)
    counting = bool(_uncounted(run_lines(shared_flows(store), rows, cached_only=True)))
    listed = st.fragment(_list, run_every=REFRESH if active or counting else None)
    if chosen is None:
        listed(store, None, active, counting, tag)

        def columns() -> None:
            with st.spinner("Counting the runs", show_time=True):
                lines = run_lines(shared_flows(store), rows)
            answers.twin(lists.runs_with_numbers(lines), "runs.columns", alt="Runs, the newest first")

        page.fold("All columns as a table", ":material/table:", "runs.box.columns", columns)
        return
    left, right = st.columns([2, 3], gap="medium")
    # Named, so that the panel stands alone if there is no room for both (ui/assets/style.css).
    with left, st.container(key="beside_panel"):
        listed(store, chosen.id, active, counting, tag)
    with right, st.container(key="panel", border=True):
        if st.button("Close", icon=":material/close:", key="show.runs.close", help="Back to the list"):
            url.drop("run", "beside")
            st.rerun()
        run_detail.draw(store, chosen)
        if len(rows) > 1:
            page.fold(
                "Compare with",
                ":material/compare_arrows:",
                "runs.box.beside",
                lambda: _beside(store, chosen, rows),
                expanded=url.get("beside") is not None,
            )


def _list(store: Store, chosen: str | None, was_active: frozenset[str], was_counting: bool, tag: str) -> None:
    """Draw the runs, newest first, those of a sweep together, or by tag, and act on the buttons in them."""
    rows = catalogue.all_runs(store)[::-1]
    active = frozenset(row.id for row in rows if row.status in ACTIVE)
    if active != was_active:
        st.rerun()  # one has started or ended: the head and the panel change
    lines, counting = _counted(store, rows)
    differs = unusual(lines)
    sweeps = {row.id: row for row in catalogue.all_sweeps(store)}
    groups: dict[str, Group] = {}
    for line in lines:
        row, words = _row(line, differs[line.run.id], chosen), line.run.tags
        if tag == page.BY_TAG:
            for word in words or ("",):
                group = groups.setdefault(word, Group((), f"#{word}", f"#{safe.option(word)}" if word else "no tag"))
                groups[word] = replace(group, rows=(*group.rows, row))
            continue
        if tag and tag[1:] not in words:
            continue
        key, new = line.run.id, Group(())  # a run outside a sweep is a group of its own, without a heading
        if sweep := sweeps.get(line.run.sweep or ""):
            going = sweep.status in ACTIVE
            note = f"sweep of {count(sweep.cells, 'run')}, {sweep.status}"
            buttons = [("Matrix", "sweep")] + [("Cancel", "cancel")] * going
            key, new = sweep.id, Group((), sweep.id, safe.option(sweep.name), note, going, buttons)
        group = groups.setdefault(key, new)
        groups[key] = replace(group, rows=(*group.rows, row), open=group.open or row.chosen)
    pressed = tables.results(
        HEADS[: BESIDE if chosen else None], [*groups.values()], key="runs.list", label="Runs, the newest first"
    )
    if pressed is not None:
        act, pressed_id = pressed
        with page.Reporting("That did not work.", StoreError):
            if act == "cancel":
                catalogue.cancel(store, pressed_id)
            elif act == "resume":
                if catalogue.run_of(store, pressed_id).status in RESUMABLE:  # not a second click
                    launch.launch(store, pressed_id)
            elif act == "sweep":
                url.put(tab=SWEEPS, sweep=pressed_id, run=None)
                shell.to_top()
            else:
                show_run(pressed_id)
            st.rerun()
    if was_counting and counting is None:
        st.rerun()  # the page then stops watching
    if counting is not None:
        counting.draw()


def _uncounted(lines: Sequence[RunLine]) -> list[RunRow]:
    return [line.run for line in lines if not line.counted and line.run.status not in ACTIVE]


def _counted(store: Store, rows: Sequence[RunRow]) -> tuple[list[RunLine], once.Job[None] | None]:
    """Return the lines of these runs with the numbers that are counted, and the job that counts the others."""
    flows = shared_flows(store)
    waiting = _uncounted(run_lines(flows, rows, cached_only=True))

    def count_them(report: once.Report) -> None:
        for done, row in enumerate(waiting):
            report(done / len(waiting), f"Counting {count(len(waiting), 'run')}: {done} done")
            run_lines(flows, [row])

    counting = None
    if waiting:
        of = ".".join(f"{row.id}-{row.revision}" for row in waiting)
        job = once.job(f"runs.count.{store.engine.url}.{store.workspace.absolute()}.{of}", count_them)
        if job.done():
            job.result()  # raises the job's error
        else:
            counting = job
    return run_lines(flows, rows, cached_only=True), counting


def _row(line: RunLine, differs: Sequence[str], chosen: str | None) -> Row:
    run = line.run
    active = run.status in ACTIVE
    # A run without a name is called after both.
    named = run.model in run.name and line.dataset in run.name
    about = () if named else (safe.option(f"{run.model} on {line.dataset}"),)
    buttons = [("Cancel", "cancel")] if active else [("Resume", "resume")] if run.status in RESUMABLE else []
    chips = [(simulated_text(line.simulated), "simulated")] if line.simulated else []
    coverage = run.coverage or 0.0
    state = str(run.status) if run.status != WorkStatus.FINISHED else ""
    if active:
        written = run.expected - run.responses.get(ResponseStatus.OWED, 0)
        state += f", {count(written)} of {count(run.expected)} written"
        if pace := once.pace(f"runs.pace.list.{run.id}", run.judged, run.expected):
            state += f", {pace}"
    numbers = (
        run_detail.measured(line.violation, f"n = {line.n}", covered=line.covered),
        run_detail.measured(line.completeness, covered=line.covered),
    )
    if not line.counted:
        numbers = (Cell(text="" if active else "counting"),) * 2
    cells = (
        Cell(
            text=safe.option(run.name, LONGEST),
            small=" · ".join(
                filter(None, [*about, *(f"#{safe.option(word)}" for word in run.tags), safe.option(run.note)])
            ),
            hint=run.id,
            chips=[*chips, *((safe.option(text), "") for text in differs)],
            opens=True,
        ),
        Cell(
            text=percent(coverage),
            value=coverage,
            bar=coverage,
            hint=f"{count(run.judged)} of {count(run.expected, 'message')} judged",
            small=state,
        ),
        *numbers,
        Cell(text=line.cost.shown, value=line.cost.amount),
        Cell(text=run.created[:16].replace("T", " ")),
        # The worker of a sweep does all its runs: they are stopped and resumed together.
        Cell(buttons=() if run.sweep else buttons),
    )
    return Row(run.id, cells[: BESIDE if chosen else None], grey=not line.covered, chosen=run.id == chosen)


def _beside(store: Store, chosen: RunRow, rows: list[RunRow]) -> None:
    """Draw other runs beside the chosen one: their numbers in columns, and the differences that prevent a
    comparison."""
    named = {row.id: row for row in rows}
    others = {row.id: row.name for row in rows if row.id != chosen.id}
    hint = "other runs, side by side"
    beside = page.several("Compare with", others, "runs.beside", "beside", most=MOST_BESIDE, placeholder=hint)
    if not beside:
        return
    with st.spinner("Counting the runs", show_time=True):
        together = run_lines(shared_flows(store), [chosen, *(named[i] for i in beside)])
    table = lists.runs_with_numbers(together)
    cells = zip(table.titles, zip(*table.texts(), strict=True), strict=True)
    rows_of = [
        safe.tag("tr", safe.tag("th", title), *(safe.tag("td", text) for text in texts)) for title, texts in cells
    ]
    safe.show(safe.tag("table", *rows_of, cls="ci-grid"))
    judged = [line.run.id for line in together if line.judges]
    try:
        differ = comparison_warnings(store, judged) if len(judged) > 1 else ()
    except StoreError as problem:
        page.error(str(problem))
        return
    if differ:
        head = safe.tag("b", "More than the model differs")
        how = safe.lines(map(sentence, differ), "ci-line", box="ci-lines")
        safe.show(safe.tag("div", head, how, cls="ci-notice"))
    else:
        safe.inline("Only the models differ, so the numbers can be compared.", muted=True)


draw()

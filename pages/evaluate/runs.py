"""Runs: what has been run, a new one, sweeps of many, and the servers that answer."""

from __future__ import annotations

import math
from collections.abc import Callable

import pandas as pd
import streamlit as st

from cimemories.compare.leaderboard import RunLine, run_lines
from cimemories.flows import catalogue
from cimemories.flows.flows import shared_flows
from cimemories.flows.progress import ACTIVE
from cimemories.metrics.warnings import comparison_warnings
from cimemories.store.engine import Store, StoreError, shared_store
from cimemories.store.runs import RunRow
from cimemories.text import count, percent, sentence
from cimemories.ui import page, safe, tables, url
from pages.evaluate import run_detail
from pages.evaluate.run_detail import cost_text

LIST, NEW, SWEEPS, SERVERS = "list", "new", "sweeps", "servers"
TABS = {LIST: "Runs", NEW: "New run", SWEEPS: "Sweeps", SERVERS: "Servers"}


def draw() -> None:
    store = shared_store()
    rows, data = catalogue.all_runs(store)[::-1], catalogue.all_datasets(store)
    active = sum(row.status in ACTIVE for row in rows)
    number = count(len(rows), "run")
    takeaway = f"{number} in this workspace, {active} running." if rows else "No run yet."
    page.head("Runs", takeaway, simulated=bool(rows) and all(row.simulated for row in rows))
    tab = page.choice("Part of the page", TABS, "runs.tab", "tab", default=LIST, visible=False)
    # Each part is imported when it is looked at, so that a switch to the page stays quick.
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
            _first,
        )
    else:
        chosen = _list(store, rows)
        if chosen is not None:
            run_detail.draw(store, chosen)


def _first() -> None:
    if st.button("New run", icon=":material/add:", type="primary", key="runs.first"):
        url.put(tab=NEW)
        st.rerun()


MOST_BESIDE = 8
TALLEST = 12  # rows of the table before it scrolls


def _list(store: Store, rows: list[RunRow]) -> RunRow | None:
    """Draw the table; the run that is chosen in it."""
    lines = {line.run.id: line for line in run_lines(shared_flows(store), rows)}
    ids = list(lines)
    run_id = url.get("run") or url.remembered("run")
    if run_id is not None and run_id not in ids:
        page.notice("The run in the link does not exist (any longer). Choose one from the list.")
    picked = tables.listing(
        list(lines.values()),
        ids,
        {
            "name": ("text", "Run", lambda line: line.run.name),
            "kind": ("small", "", lambda line: "simulated" if line.run.simulated else ""),
            "status": ("text", "Status", lambda line: str(line.run.status)),
            "coverage": ("percent", "Coverage", lambda line: line.run.coverage),
            "violation": ("percent", "Violation@n", lambda line: line.violation),
            "completeness": ("percent", "Completeness", lambda line: line.completeness),
            "task": ("percent", "Does task", lambda line: line.does_task),
            "samples": ("number", "n", lambda line: line.n),
            "level": ("text", "Prompt", lambda line: line.run.prompt_level),
            "memory": ("text", "Memory", lambda line: line.memory),
            "mitigation": ("text", "Mitigation", lambda line: "" if line.mitigation == "none" else line.mitigation),
            "judge": ("text", "Judges", lambda line: ", ".join(line.judges)),
            "cost": ("text", "Cost", lambda line: cost_text(line.cost)),
            "created": ("date", "Started (UTC)", lambda line: pd.Timestamp(line.run.created)),
            "model": ("text", "Model", lambda line: line.run.model),
            "dataset": ("text", "Dataset", lambda line: line.dataset),
            "id": ("text", "Id", lambda line: line.run.id),
        },
        key="runs.list",
        on_select="row",
        selected=ids.index(run_id) if run_id in ids else 0,
        height="auto" if len(ids) > TALLEST else "content",
        alt="Runs of this workspace, the newest first",
    )
    if picked is None:
        return None
    chosen = lines[ids[picked]]
    url.put(run=chosen.run.id)
    if len(ids) > 1:
        _beside(store, chosen, lines)
    return chosen.run


def _beside(store: Store, chosen: RunLine, lines: dict[str, RunLine]) -> None:
    """Other runs beside the chosen one: their numbers in columns, and what keeps them from being compared."""
    key = "runs.beside"
    others = [i for i in lines if i != chosen.run.id]
    chosen_ids = (url.get("beside") or "").split(".")
    st.session_state[key] = [i for i in others if i in chosen_ids]
    st.multiselect(
        "Compare with",
        others,
        format_func=lambda i: safe.option(f"{lines[i].run.name} ({i})") if i in lines else "",
        key=key,
        max_selections=MOST_BESIDE,
        placeholder="other runs, side by side",
        on_change=lambda: url.put(beside=".".join(st.session_state[key]) or None),
    )
    together = [chosen, *(lines[i] for i in st.session_state[key])]
    if len(together) < 2:
        return
    safe.show(_side_by_side(together))
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


def _side_by_side(together: list[RunLine]) -> safe.Html:
    rows: dict[str, Callable[[RunLine], safe.Html | str]] = {
        "": lambda line: safe.join([safe.tag("b", line.run.name), " ", page.SIMULATED if line.run.simulated else ""]),
        "Id": lambda line: line.run.id,
        "Violation@n": lambda line: f"{_share(line.violation)}, n = {line.n}",
        "Completeness": lambda line: _share(line.completeness),
        "Does the task": lambda line: _share(line.does_task),
        "Judged": lambda line: f"{count(line.run.judged)} of {count(line.run.expected)} ({percent(line.run.coverage)})",
        "Cost": lambda line: line.cost.text,
        "Prompt level": lambda line: line.run.prompt_level,
        "Memory": lambda line: line.memory,
        "Mitigation": lambda line: line.mitigation,
        "Judges": lambda line: ", ".join(line.judges) or "none",
    }
    shown = [
        safe.tag("tr", safe.tag("th", name), *(safe.tag("td", cell(line)) for line in together))
        for name, cell in rows.items()
    ]
    return safe.tag("table", *shown, cls="ci-grid")


def _share(value: float) -> str:
    return "undefined" if math.isnan(value) else percent(value)


draw()

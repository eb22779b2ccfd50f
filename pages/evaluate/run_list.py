"""The table of runs, the choice of one, and others beside it."""

from __future__ import annotations

import math

import pandas as pd
import streamlit as st

from cimemories.compare.leaderboard import RunLine, run_lines
from cimemories.flows.flows import shared_flows
from cimemories.metrics.headline import comparison_warnings
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.runs import RunRow
from cimemories.text import count, percent
from cimemories.ui import page, safe, tables, url

MOST_BESIDE = 8
TALLEST = 12  # rows of the table before it scrolls


def draw(store: Store, rows: list[RunRow], data: list[DatasetRow]) -> RunRow | None:
    """Draw the table; the run that is chosen in it."""
    lines = {line.run.id: line for line in run_lines(shared_flows(store), rows)}
    ids = list(lines)
    run_id = url.get("run") or url.remembered("run")
    if run_id is not None and run_id not in ids:
        page.notice("The run in the link does not exist (any longer). Choose one from the list.")
    picked = tables.table(
        _frame(list(lines.values())),
        key="runs.list",
        columns={
            "name": ("text", "Run"),
            "kind": ("small", ""),
            "status": ("text", "Status"),
            "coverage": ("percent", "Coverage"),
            "violation": ("percent", "Violation@n"),
            "completeness": ("percent", "Completeness"),
            "task": ("percent", "Does task"),
            "samples": ("number", "n"),
            "level": ("text", "Prompt"),
            "memory": ("text", "Memory"),
            "mitigation": ("text", "Mitigation"),
            "judge": ("text", "Judges"),
            "cost": ("text", "Cost"),
            "created": ("date", "Started (UTC)"),
            "model": ("text", "Model"),
            "dataset": ("text", "Dataset"),
            "id": ("text", "Id"),
        },
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


def _frame(lines: list[RunLine]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "id": line.run.id,
                "name": line.run.name,
                "kind": "simulated" if line.run.simulated else "",
                "status": str(line.run.status),
                "coverage": line.run.coverage,
                "violation": line.violation,
                "completeness": line.completeness,
                "task": line.does_task,
                "samples": line.run.samples,
                "level": line.run.prompt_level,
                "memory": line.memory,
                "mitigation": "" if line.mitigation == "none" else line.mitigation,
                "judge": ", ".join(line.judges),
                "cost": "" if not line.cost.known and line.cost.unpriced else line.cost.words(),
                "created": pd.Timestamp(line.run.created),
                "model": line.run.model,
                "dataset": line.dataset,
            }
            for line in lines
        ],
        index=pd.Index([line.run.id for line in lines]),
    )


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
        rows = [safe.tag("div", f"{text[:1].upper()}{text[1:]}.", cls="ci-line") for text in differ]
        head = safe.tag("b", "More than the model differs")
        safe.show(safe.tag("div", head, safe.tag("div", *rows, cls="ci-lines"), cls="ci-notice"))
    else:
        safe.inline("Only the models differ, so the numbers can be compared.", muted=True)


def _side_by_side(together: list[RunLine]) -> safe.Html:
    def row(name: str, cells: list[safe.Html | str]) -> safe.Html:
        return safe.tag("tr", safe.tag("th", name), *(safe.tag("td", cell) for cell in cells))

    names: list[safe.Html | str] = [
        safe.join([safe.tag("b", line.run.name), " ", page.SIMULATED if line.run.simulated else ""])
        for line in together
    ]
    judged = [
        f"{count(line.run.judged)} of {count(line.run.expected)} ({percent(line.run.coverage)})" for line in together
    ]
    return safe.tag(
        "table",
        row("", names),
        row("Id", [line.run.id for line in together]),
        row("Violation@n", [f"{_share(line.violation)}, n = {line.run.samples}" for line in together]),
        row("Completeness", [_share(line.completeness) for line in together]),
        row("Does the task", [_share(line.does_task) for line in together]),
        row("Judged", list(judged)),
        row("Cost", [line.cost.words() for line in together]),
        row("Prompt level", [line.run.prompt_level for line in together]),
        row("Memory", [line.memory for line in together]),
        row("Mitigation", [line.mitigation for line in together]),
        row("Judges", [", ".join(line.judges) or "none" for line in together]),
        cls="ci-grid",
    )


def _share(value: float) -> str:
    return "undefined" if math.isnan(value) else percent(value)

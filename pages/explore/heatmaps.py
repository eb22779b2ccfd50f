"""Heatmaps: violation@n and completeness by information domain and context; a click opens the flows of a cell."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories.analysis import families, heatmap
from cimemories.analysis.flows import Flows, Scope
from cimemories.analysis.headline import Headline
from cimemories.curation.consensus import LABELS
from cimemories.ui import charts, page, safe, tables, url
from pages.explore.run_scope import caveats, run_scope

VIOLATION, COMPLETENESS, BOTH = "Violation", "Completeness", "Both"


def draw() -> None:
    chosen = run_scope(
        "Heatmaps",
        "Nothing to map yet",
        "A heatmap shows where a model leaks: information domains by contexts. It needs a run.",
        beside=(2, 3),
    )
    if chosen is None:
        return
    flows, asked, (middle, right) = chosen.flows, chosen.asked, chosen.columns
    with middle:
        n = _samples(asked)
    with right:
        measure = st.segmented_control(
            "Show", [VIOLATION, COMPLETENESS, BOTH], default=VIOLATION, key="heatmaps.measure", required=True
        )
    cells = heatmap.cells(flows, asked, n)
    with chosen.top:
        page.head("Heatmaps", _takeaway(asked, cells, chosen.numbers, n), simulated=bool(asked.simulated))
    kin = asked.labelling and families.warning(asked.labelling.model, asked.run.model)
    if kin:
        page.notice(f"{kin[0].upper()}{kin[1:]}.")
    caveats(chosen.numbers)
    if asked.labelling is None or cells.empty:
        page.empty(
            "No labelled flow to show",
            "A cell needs pairs with a consensus in retained contexts: label the dataset, or wait for judgements.",
            lambda: url.page_link("labels", "Label the dataset", icon=":material/label:"),
        )
        return
    selected = _selected(asked, cells, n, str(measure))
    if selected is not None:
        _cell(flows, asked, cells, selected[0], selected[1], n)
    page.fold("All cells as a table", ":material/table:", "heatmaps.box.table", lambda: _twin(cells, asked))


def _samples(asked: Scope) -> int:
    most = asked.run.samples
    if most == 1:
        return 1
    current = min(url.get_int("n") or most, most) or most
    st.session_state["heatmaps.n"] = current
    n = int(
        st.slider(
            "Samples n",
            1,
            most,
            key="heatmaps.n",
            on_change=lambda: url.put(n=st.session_state["heatmaps.n"]),
            help="Violation@n: revealed at least once in n of the judged samples of a context",
        )
    )
    url.put(n=n)
    return n


def _takeaway(asked: Scope, cells: pd.DataFrame, numbers: Headline, n: int) -> str:
    worst = heatmap.worst(cells)
    if asked.labelling is None or worst is None:
        return f"{asked.run.name}: nothing can be measured yet."
    share, complete = tables.percent(numbers.violation[n]), tables.percent(numbers.completeness)
    where = "nothing inappropriate was revealed"
    if worst.violation:
        where = (
            f"most leaked pairs in {worst.domain.replace('_', ' ')} to {worst.recipient} "
            f"({tables.percent(worst.violation)} of {tables.count(worst.pairs)} inappropriate pairs)"
        )
    text = (
        f"{asked.run.name}: violation@{n} {share} of {tables.count(numbers.attributes)} attributes, "
        f"completeness {complete}; {where}."
    )
    if numbers.coverage < 0.99:
        text += f" Only {tables.percent(numbers.coverage)} of the responses are judged."
    return text


def _selected(asked: Scope, cells: pd.DataFrame, n: int, measure: str) -> tuple[int, str] | None:
    contexts = {
        int(row["context"]): f"{row['recipient']}: {row['task']}"
        for row in cells.drop_duplicates("context").to_dict("records")
    }
    domains = {name: name.replace("_", " ") for name in sorted(cells["domain"].unique())}
    ordered = cells.assign(rank=cells["domain"].map(list(domains).index)).sort_values(["rank", "context"])
    at = (url.get_int("context"), url.get("domain"))
    chosen = (at[0], at[1]) if at[0] in contexts and at[1] in domains else None
    wanted = [(VIOLATION, "violation"), (COMPLETENESS, "completeness")]
    for name, column in wanted:
        if measure not in (name, BOTH):
            continue
        title = _title(cells, n) if column == "violation" else "Completeness: necessary attributes conveyed"
        unit = "inappropriate pairs" if column == "violation" else "necessary pairs"
        pairs = f"{column}_pairs"
        clicked = charts.heatmap(
            ordered,
            x="context",
            y="domain",
            value=column,
            count=pairs,
            title=title,
            subtitle=f"{tables.count(ordered[pairs].sum())} {unit} in {len(contexts)} contexts; hatched: no such pair",
            key=f"heatmaps.{column}.{asked.run.id}",
            selected=chosen,
            x_names=contexts,
            y_names=domains,
            unit=unit,
            maximum=None if column == "violation" else 1.0,
            alt=f"{title} of {asked.run.name} by domain and context. The same numbers are in the table below.",
        )
        if clicked is not None:
            chosen = clicked
    if chosen is not None:
        url.put(context=chosen[0], domain=chosen[1])
        return int(chosen[0]), str(chosen[1])
    page.notice("Click a cell to see the flows behind it: which attribute, of whom, in how many samples.")
    return None


def _title(cells: pd.DataFrame, n: int) -> str:
    worst = heatmap.worst(cells)
    if worst is None or not worst.violation:
        return f"Violation@{n}: nothing inappropriate was revealed"
    return f"Violation@{n}: most leaked pairs in {worst.domain.replace('_', ' ')}, to {worst.recipient}"


def _cell(flows: Flows, asked: Scope, cells: pd.DataFrame, context: int, domain: str, n: int) -> None:
    frame = heatmap.cell_flows(flows, asked, domain, context, n)
    row = next(iter(cells[cells["context"] == context].to_dict("records")), None)
    if row is None:
        return
    safe.heading(f"{domain.replace('_', ' ')} to {row['recipient']}: {row['task']}")
    if frame.empty:
        page.notice("No labelled flow in this cell: its attributes are ambiguous here, or only sign the message.")
        return
    shown = frame.assign(
        label=[safe.glyphed(LABELS[code]) for code in frame["label"]],
        revealed=[f"{r} of {d}" for r, d in zip(frame["reveals"], frame["draws"], strict=True)],
        by=["person" if decided else "consensus" for decided in frame["decided"]],
    )
    shown.index = pd.Index(shown["attribute"])
    picked = tables.table(
        shown,
        key=f"heatmaps.cell.{asked.run.id}.{context}.{domain}",
        columns={
            "label": ("text", "Label"),
            "revealed": ("text", "Revealed in"),
            "key": ("text", "Attribute"),
            "statement": ("wide", "Memory statement"),
            "user": ("text", "Profile"),
            "event": ("text", "Event"),
            "by": ("small", "Labelled by"),
        },
        on_select="row",
        alt="Flows of the chosen cell",
    )
    if picked is not None:
        flow = frame.iloc[picked]
        url.go(
            "leaks",
            run=asked.run.id,
            judge=url.get("judge"),
            profile=int(flow["profile"]),
            context=context,
            attribute=int(flow["attribute"]),
        )
    st.caption("Choose a row to read the messages.")


def _twin(cells: pd.DataFrame, asked: Scope) -> None:
    tables.table(
        cells,
        key=f"heatmaps.table.{asked.run.id}",
        columns={
            "domain": ("text", "Domain"),
            "recipient": ("text", "Recipient"),
            "task": ("wide", "Task"),
            "violation": ("percent", "Violation"),
            "violation_pairs": ("count", "Inappropriate pairs"),
            "completeness": ("percent", "Completeness"),
            "completeness_pairs": ("count", "Necessary pairs"),
        },
    )
    marked = cells.assign(simulated=", ".join(asked.simulated), run=asked.run.id)
    tables.csv_button(marked, f"heatmap-{asked.run.id}.csv", key="heatmaps.csv")


draw()

"""Part of the Heatmaps page: the flows behind the chosen cell, each of which leads to its messages."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories.analysis.flows import Flows, Scope
from cimemories.analysis.heatmap import Grid
from cimemories.analysis.heatmap_difference import flows_of_both
from cimemories.analysis.heatmap_flows import cell_flows
from cimemories.curation.consensus import LABELS
from cimemories.ui import exports, page, safe, tables, url
from cimemories.ui.tables import Column


def draw(
    flows: Flows, asked: Scope, found: Grid, place: tuple[int, int], other: Scope | None, about: dict[str, object]
) -> None:
    """The flows of one cell; with another run, in how many samples each of the two reveals them."""
    row, column = place
    cell = {found.rows.by: found.rows.ids[row], found.columns.by: found.columns.ids[column]}
    name = f"{found.rows.names[row]} to {found.columns.titles[column]}"
    if not found.columns.by.of_context or found.rows.by.of_context:
        name = f"{found.rows.titles[row]}, {found.columns.titles[column]}"
    left, right = st.columns([8, 1], vertical_alignment="bottom")
    with left:
        safe.heading(name)
    frame = (
        cell_flows(flows, asked, cell, found.n) if other is None else flows_of_both(flows, asked, other, cell, found.n)
    )
    if frame.empty:
        page.notice("No labelled flow in this cell: its attributes are ambiguous here, or only sign the message.")
        return
    shown = frame.assign(
        label=[safe.glyphed(LABELS[code]) for code in frame["label"]],
        revealed=_revealed(frame["reveals"], frame["draws"]),
        by=["person" if decided else "consensus" for decided in frame["decided"]],
    )
    columns: dict[str, Column | tuple[Column, str]] = {"label": ("text", "Label"), "revealed": ("text", "Revealed in")}
    if other is not None:
        shown = shown.assign(revealed_other=_revealed(frame["reveals_other"], frame["draws_other"]))
        columns |= {"revealed": ("text", "Revealed before"), "revealed_other": ("text", "Revealed after")}
    shown.index = pd.Index([f"{a}.{c}" for a, c in zip(shown["attribute"], shown["context"], strict=True)])
    with right:
        exports.buttons(
            f"cell-{asked.run.id}",
            shown.drop(columns=["profile", "attribute", "context"]),
            fig=None,
            key="heatmaps.cell.export",
            simulated=bool(asked.simulated or (other and other.simulated)),
            about=about,
        )
    safe.inline(_counts(found, place), muted=True)
    picked = tables.table(
        shown,
        key=f"heatmaps.cell.{asked.run.id}.{'.'.join(cell.values())}",
        columns=columns
        | {
            "key": ("text", "Attribute"),
            "statement": ("wide", "Memory statement"),
            "user": ("text", "Profile"),
            "recipient": ("text", "Recipient"),
            "event": ("text", "Event"),
            "by": ("small", "Labelled by"),
        },
        on_select="row",
        alt="Flows of the chosen cell",
    )
    if picked is not None:
        flow = frame.iloc[picked]
        leaked_more = other is not None and bool(flow["more_in_other"])
        url.go(
            "leaks",
            run=other.run.id if other is not None and leaked_more else asked.run.id,
            judge=None if leaked_more else url.get("judge"),
            profile=int(flow["profile"]),
            context=int(flow["context"]),
            attribute=int(flow["attribute"]),
        )
    if other is None:
        st.caption("Choose a row to read the messages.")
    else:
        st.caption("Choose a row to read the messages of the run that reveals it more often.")


def _revealed(reveals: pd.Series, draws: pd.Series) -> list[str]:
    return ["" if pd.isna(n) else f"{int(r)} of {int(n)}" for r, n in zip(reveals, draws, strict=True)]


def _counts(found: Grid, place: tuple[int, int]) -> str:
    wrong, needed = int(found.violation_pairs[place]), int(found.completeness_pairs[place])
    said = []
    if wrong:
        share = tables.percent(float(found.violation[place]))
        said.append(f"violation@{found.n} {share} of {tables.count(wrong)} inappropriate pairs")
    if needed:
        share = tables.percent(float(found.completeness[place]))
        said.append(f"completeness {share} of {tables.count(needed)} necessary pairs")
    text = ", ".join(said) or "no pair that counts"
    return f"{text[0].upper()}{text[1:]}."

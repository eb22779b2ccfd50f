"""Part of Heatmaps, for a run behind a gate or a memory system: the share of stored attributes that was recalled, and
the share of those that was said, by cell, with links to the leaked messages."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import streamlit as st

from cimemories.answer import Table
from cimemories.answers.heatmap import WORDS
from cimemories.answers.leaks import of_places
from cimemories.answers.metrics import recalled, recalled_places
from cimemories.charts.recalled import MOST_PLACES, most_revealed, recalled_bars, recalled_flow
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.metrics import sentences
from cimemories.metrics.places import By
from cimemories.metrics.recalled.split import recalled_numbers
from cimemories.model import Label
from cimemories.text import count, sentence
from cimemories.ui import answers, charts, page, safe, shell, tables, url

LABELS = {str(Label.INAPPROPRIATE): "I inappropriate", str(Label.NECESSARY): "N necessary"}
SPLITS = (
    "Parts add up to 100 %; the two that are said are the number itself. Brackets are 95 % intervals, with the labels "
    "taken as given."
)
BARS, FLOW = "bars", "flow"


def draw(flows: Flows, scope: Scope, n: int, sides: tuple[By, By]) -> None:
    """Draw the section. n: samples that violation is read at; sides: rows and columns of the maps above."""
    numbers = recalled_numbers(flows, scope, n)
    if numbers is None:
        return
    safe.heading("From memory to message")
    label_column, side_column, look_column = st.columns([2, 3, 1], vertical_alignment="bottom")
    with label_column:
        label = Label(
            page.choice("Attributes", LABELS, "heatmaps.recalled.label", "label", default=str(Label.INAPPROPRIATE))
        )
    with side_column:
        named = {str(by): WORDS[by][0] for by in sides}
        by = By(page.choice("By", named, "heatmaps.recalled.by", "by", default=str(sides[0])))
    with look_column:
        look = page.choice("As", {BARS: "Bars", FLOW: "Flow"}, "heatmaps.recalled.as", "figure", default=BARS)
    flow = look == FLOW and not shell.is_phone()
    whole = recalled_places(flows, scope, by).frame
    frame = whole[whole["label"] == str(label)].reset_index(drop=True)
    if frame.empty:
        page.notice(f"No judged sample of a flow that is {label} in a retained context.")
        return
    shown = frame if flow else most_revealed(frame)
    cut = f"; {len(shown)} of {count(len(frame))} shown, those that say most" if len(shown) < len(frame) else ""
    if flow and len(frame) > MOST_PLACES:
        cut = f"; the {MOST_PLACES - 1} with the most samples of {count(len(frame))}, the others together"
    of = numbers.by_label[str(label)]
    subtitle = (
        f"{count(of.draws, 'judged sample')} of {count(of.flows, 'flow')} where an attribute is {label}, by "
        f"{WORDS[by][0].lower()}{cut}"
    )
    title = f"{str(label).capitalize()} attributes: {sentences.outcomes(of)}"
    draw_figure = recalled_flow if flow else recalled_bars
    fig = draw_figure(shown, label, title=title, subtitle=subtitle)
    key = f"heatmaps.recalled.{label}.{by}{'.flow' if flow else ''}"
    alt = f"{title}. {subtitle}. The table below has the numbers."
    if look == FLOW and not flow:
        safe.inline("The flow needs a wider screen.", muted=True)
    if flow or label != Label.INAPPROPRIATE:
        charts.show(fig, key=key, alt=alt)
    elif (row := charts.show_rows(fig, key=key, alt=alt, rows=len(shown))) is not None:
        _open_leaks(flows, scope, by, str(shown["id"].iloc[row]))
    else:
        safe.inline("Click a bar to read its leaked messages.", muted=True)
    places = recalled_places(flows, scope, by)
    places = replace(places, frame=frame.set_index(pd.Index(frame["id"])))
    answers.export(places, "heatmaps.recalled.export", scope.about, scope.simulated, fig)
    if (answer := recalled(flows, scope, IdentifierRule.EXACT, n)) is not None:
        tables.grid(answer.splits, answer.splits.caption)
        safe.inline(SPLITS, muted=True)
        for note in answer.notes:
            page.notice(sentence(note))
    picked = page.fold(
        f"Stored, recalled and said as a table, {WORDS[by][1]}",
        ":material/table:",
        "heatmaps.recalled.box",
        lambda: _table(places, f"heatmaps.recalled.table.{label}.{by}", opens=label == Label.INAPPROPRIATE),
    )
    if picked is not None:
        _open_leaks(flows, scope, by, str(frame["id"].iloc[picked]))


def _table(places: Table, key: str, *, opens: bool) -> int | None:
    if opens:
        safe.inline("Select a row to read its leaked messages.", muted=True)
    return answers.twin(places, key, on_select="row" if opens else None)


def _open_leaks(flows: Flows, scope: Scope, by: By, place: str) -> None:
    url.go(
        "leaks",
        run=scope.run.id,
        judge=url.get("judge"),
        among=None,
        where=of_places(flows, scope, {by: place}),
    )

"""Part of Heatmaps, of a run behind a gate or a memory system: what was recalled of what is stored, and said of that,
by place; from a place to its leaked messages."""

from __future__ import annotations

from urllib.parse import quote

import pandas as pd
import streamlit as st

from cimemories.charts.recalled import MOST_PLACES, most_said, recalled_bars, recalled_flow
from cimemories.charts.run_heatmap import PLURAL, SIDES
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.metrics import sentences
from cimemories.metrics.heatmap import By, places
from cimemories.metrics.recalled.groups import recalled_by
from cimemories.metrics.recalled.split import OUTCOMES, RecalledNumbers, recalled_numbers
from cimemories.model import Label
from cimemories.text import count, percent, sentence
from cimemories.ui import charts, exports, page, safe, shell, tables, url
from cimemories.ui.tables import Column

LABELS = {str(Label.INAPPROPRIATE): "X inappropriate", str(Label.NECESSARY): "N necessary"}
# The filter of Leaks that a place of this side is; of a context its recipient.
FILTERS = {
    By.DOMAIN: "domains",
    By.SPHERE: "spheres",
    By.RECIPIENT: "recipients",
    By.CONTEXT: "recipients",
    By.PROFILE: "profiles",
}
BARS, FLOW = "bars", "flow"


def draw(flows: Flows, scope: Scope, n: int, sides: tuple[By, By]) -> None:
    """The section. n: samples that violation is read at; sides: rows and columns of the maps above."""
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
        named = {str(by): SIDES[by] for by in sides}
        by = By(page.choice("By", named, "heatmaps.recalled.by", "by", default=str(sides[0])))
    with look_column:
        look = page.choice("As", {BARS: "Bars", FLOW: "Flow"}, "heatmaps.recalled.as", "figure", default=BARS)
    flow = look == FLOW and not shell.is_phone()
    whole = recalled_by(flows, scope, by)
    frame = whole[whole["label"] == str(label)].reset_index(drop=True)
    if frame.empty:
        page.notice(f"No judged sample of a flow that is {label} in a retained context.")
        return
    shown = frame if flow else most_said(frame)
    cut = f"; {len(shown)} of {count(len(frame))} shown, those that say most" if len(shown) < len(frame) else ""
    if flow and len(frame) > MOST_PLACES:
        cut = f"; the {MOST_PLACES - 1} with the most samples of {count(len(frame))}, the others together"
    of = numbers.by_label[str(label)]
    subtitle = (
        f"{count(of.draws, 'judged sample')} of {count(of.flows, 'flow')} where an attribute is {label}, by "
        f"{SIDES[by].lower()}{cut}"
    )
    title = f"{str(label).capitalize()} attributes: {sentences.outcomes(of)}"
    draw_figure = recalled_flow if flow else recalled_bars
    fig = draw_figure(shown, label, title=title, subtitle=subtitle)
    key = f"heatmaps.recalled.{label}.{by}{'.flow' if flow else ''}"
    alt = f"{title}. {subtitle}. The table below has the numbers."
    if look == FLOW and not flow:
        safe.inline("The flow needs a wider screen.", muted=True)
    if flow or not _leads(label, by):
        charts.show(fig, key=key, alt=alt)
    elif (row := charts.show_rows(fig, key=key, alt=alt, rows=len(shown))) is not None:
        _open_leaks(flows, scope, by, str(shown["id"].iloc[row]))
    else:
        safe.inline("Click a bar to read its leaked messages.", muted=True)
    about: dict[str, object] = {
        "run": scope.run.id,
        "labels": f"{scope.labelling.id if scope.labelling else ''}, {scope.labels_text}",
        "judge": scope.judge_text,
    }
    exports.buttons(
        f"recalled-{scope.run.id}-{by}",
        frame,
        fig=fig,
        key="heatmaps.recalled.export",
        simulated=scope.simulated,
        about=about,
    )
    _split(numbers)
    picked = page.fold(
        f"Stored, recalled and said as a table, {PLURAL[by]}",
        ":material/table:",
        "heatmaps.recalled.box",
        lambda: _table(frame, label, by),
    )
    if picked is not None:
        _open_leaks(flows, scope, by, str(frame["id"].iloc[picked]))


def _split(numbers: RecalledNumbers) -> None:
    """Both headline numbers by their parts, with intervals."""
    splits = (numbers.violation[numbers.n], numbers.completeness)
    rows = []
    for outcome in OUTCOMES:
        intervals = [(split.intervals or {}).get(outcome) for split in splits]
        texts = [
            percent(getattr(split, outcome)) if interval is None else sentences.bounds_text(interval)
            for split, interval in zip(splits, intervals, strict=True)
        ]
        name = sentences.OUTCOME_NAMES[outcome].capitalize()
        rows.append(safe.tag("tr", safe.tag("td", name), *map(safe.number, texts)))
    safe.show(safe.grid(("Part", f"Violation@{numbers.n}", "Completeness"), rows, texts=range(1)))
    safe.inline(
        "Parts add up to 100 %; the two that are said are the number itself. Brackets are 95 % intervals, with the "
        "labels taken as given.",
        muted=True,
    )
    if unknown := sentences.ungrounded(numbers):
        page.notice(sentence(unknown))


def _leads(label: Label, by: By) -> bool:
    """Whether a place leads to its leaks: those of inappropriate attributes, where Leaks has a filter for it."""
    return label == Label.INAPPROPRIATE and by in FILTERS


def _table(frame: pd.DataFrame, label: Label, by: By) -> int | None:
    columns: dict[str, Column | tuple[Column, str]] = {
        "place": ("text", SIDES[by]),
        "exposure": ("percent", "Recalled"),
        "draws": ("count", "Judged samples"),
        **{outcome: ("count", sentences.OUTCOME_NAMES[outcome].capitalize()) for outcome in OUTCOMES},
        "flows": ("count", "Flows"),
    }
    opens = _leads(label, by)
    if opens:
        safe.inline("Select a row to read its leaked messages.", muted=True)
    return tables.table(
        frame.set_index(pd.Index(frame["id"])),
        key=f"heatmaps.recalled.table.{label}.{by}",
        columns=columns,
        on_select="row" if opens else None,
        alt="Stored, recalled and said by place",
    )


def _open_leaks(flows: Flows, scope: Scope, by: By, place: str) -> None:
    if by == By.CONTEXT:
        recipients = places(flows, scope, By.RECIPIENT)
        place = recipients.ids[int(recipients.codes[places(flows, scope, By.CONTEXT).ids.index(place)])]
    url.go("leaks", run=scope.run.id, judge=url.get("judge"), **{FILTERS[by]: quote(place, safe="")})

"""Heatmaps: violation@n and completeness by two things; a click opens the flows of a cell, and from there a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cimemories.charts.heatmap import Map, MapPart, Side, Tooltips, heatmap_figure, tooltips
from cimemories.flows import catalogue
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.metrics import heatmap, warnings
from cimemories.metrics.heatmap import (
    Difference,
    Grid,
    as_first,
    difference,
    difference_frame,
    most_leaked,
    ordered,
    ordered_difference,
)
from cimemories.store.engine import StoreError
from cimemories.ui import charts, exports, page, tables, url
from cimemories.ui.tables import Column
from pages.explore import heatmaps_controls
from pages.explore.heatmaps_controls import BOTH, COMPLETENESS, VIOLATION, View
from pages.explore.run_scope import RunScope, caveats, run_scope

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

KEY = "heatmaps.maps"


def draw() -> None:
    chosen = run_scope(
        "Heatmaps",
        "Nothing to map yet",
        "A heatmap shows where a model leaks, by information domain and context. It needs a run.",
        beside=(2, 3),
    )
    if chosen is None:
        return
    flows, scope = chosen.flows, chosen.scope
    with chosen.columns[0]:
        n = heatmaps_controls.samples(scope)
    notes: list[str] = []
    with chosen.columns[1]:
        names = catalogue.run_names(flows.store, scope.run.dataset)
        others = {run_id: name for run_id, name in reversed(names.items()) if run_id != scope.run.id}
        view = heatmaps_controls.view(others, notes)
    for note in notes:
        page.notice(note)
    whole = heatmap.grid(flows, scope, view.rows, view.columns, n)
    warning = scope.labelling and warnings.family_warning(scope.labelling.model, scope.run.model)
    if warning:
        page.notice(f"{warning[0].upper()}{warning[1:]}.")
    caveats(chosen.numbers)
    takeaway = heatmaps_controls.takeaway(scope, whole, heatmap.worst(whole), chosen.numbers)
    if scope.labelling is not None and not whole.empty:
        _maps(chosen, view, whole, takeaway)
        return
    with chosen.top:
        page.head("Heatmaps", takeaway, simulated=bool(scope.simulated))
    page.empty(
        "No labelled flow to show",
        "A cell needs labelled pairs in retained contexts. Label the dataset, or wait for the judges.",
        lambda: url.page_link("labels", "Label the dataset", icon=":material/label:"),
    )


def _maps(chosen: RunScope, view: View, whole: Grid, takeaway: str) -> None:
    """The maps and what is under them. takeaway: the head of one run's maps."""
    flows, scope = chosen.flows, chosen.scope
    few = most_leaked(whole, heatmaps_controls.most(whole, view.rows))
    shown, frame = ordered(few, view.row_order, view.column_order), heatmap.as_frame(whole)
    about: dict[str, object] = {
        "run": scope.run.id,
        "labels": f"{scope.labelling.id if scope.labelling else ''}, {scope.labels_text}",
        "judge": scope.judge_text,
        "n": whole.n,
    }
    other, both = _against(flows, scope, view), None
    if other is not None:
        second = heatmap.grid(flows, other, view.rows, view.columns, whole.n)
        both = ordered_difference(difference(few, second), view.row_order, view.column_order)
        shown, frame = both.first, difference_frame(difference(whole, second))
        about |= {"compared with": other.run.id, "judge of that": other.judge_text}
    simulated = bool(scope.simulated or (other and other.simulated))
    texts = _titles(scope, other, view, shown, both)
    selected = charts.clicked_cell(KEY, len(shown.rows), len(shown.columns)) or heatmaps_controls.cell(shown)
    if selected is not None:
        heatmaps_controls.put_cell(shown, selected)
    with chosen.top:  # after the address is what it will be, and before the chart, which takes the browser a while
        page.head("Heatmaps", takeaway if both is None else f"{texts[0]}.", simulated=simulated)
    # A click changes nothing about the figure, and it takes longer to make than all the rest.
    drawing = ("heatmap drawing", scope.version, other and other.version, view, shown.n, len(shown.rows), texts)
    fig, read = flows.cached(drawing, lambda: _figure(view, shown, both, texts))
    alt = f"{texts[0]}. {texts[1]}. The same numbers are in the table below."
    charts.show_heatmap(fig, read, key=KEY, alt=alt, selected=selected)
    exports.buttons(f"heatmap-{scope.run.id}", frame, fig=fig, key="heatmaps.export", simulated=simulated, about=about)
    if selected is not None:
        heatmaps_controls.draw(flows, scope, shown, selected, other, about)
    else:
        page.notice("Click a cell to see its flows: which attribute, whose, and in how many samples it was revealed.")
    page.fold("All cells as a table", ":material/table:", "heatmaps.box.table", lambda: _twin(frame, view, shown.n))


def _against(flows: Flows, scope: Scope, view: View) -> Scope | None:
    """The run to compare this one with; None where none is selected, or it has nothing to show yet."""
    if view.against is None:
        return None
    try:
        other, note = as_first(flows, scope, view.against)
    except StoreError as problem:
        page.error("No difference to show.", str(problem))
        return None
    if note:
        page.notice(f"{note}.")
    return other


def _titles(scope: Scope, other: Scope | None, view: View, shown: Grid, both: Difference | None) -> tuple[str, str]:
    """Title and subtitle."""
    if both is not None and other is not None:
        measure = COMPLETENESS if view.measure == COMPLETENESS else VIOLATION
        title = heatmaps_controls.changed(both, scope.run.name, other.run.name, measure)
        return title, heatmaps_controls.pairs_of_both(both, other.run.name)
    if view.measure == COMPLETENESS:
        title = heatmaps_controls.completeness_title(shown, heatmap.least_complete(shown))
    else:
        title = heatmaps_controls.maps_title(shown, heatmap.worst(shown))
    return title, heatmaps_controls.subtitle(shown)


def _figure(view: View, shown: Grid, both: Difference | None, texts: tuple[str, str]) -> tuple[go.Figure, Tooltips]:
    """The chart, and what the pointer reads in it."""
    maps = []
    for measure in (VIOLATION, COMPLETENESS):
        if view.measure not in (measure, BOTH):
            continue
        parts = [
            MapPart(getattr(part, measure), getattr(part, f"{measure}_pairs"))
            for part in ((shown,) if both is None else (both.second, both.first))
        ]
        unit = "inappropriate pairs" if measure == VIOLATION else "necessary pairs"
        name = f"Violation@{shown.n}" if measure == VIOLATION else "Completeness"
        top = 1.0 if measure == COMPLETENESS else None
        if both is None:
            maps.append(Map(name, unit, parts[0], maximum=top))
        else:
            maps.append(Map(f"{name}, difference", unit, parts[0], before=parts[1]))
    rows, columns = (Side(side.names, side.titles) for side in (shown.rows, shown.columns))
    fig = heatmap_figure(maps, rows, columns, title=texts[0], subtitle=texts[1])
    return fig, tooltips(maps, rows, columns)


def _twin(frame: pd.DataFrame, view: View, n: int) -> None:
    sides: dict[str, Column | tuple[Column, str]] = {
        "row": ("text", heatmaps_controls.SIDES[view.rows]),
        "column": ("wide", heatmaps_controls.SIDES[view.columns]),
    }
    for measure, unit in ((VIOLATION, "Inappropriate pairs"), (COMPLETENESS, "Necessary pairs")):
        name = f"{measure.capitalize()}@{n}" if measure == VIOLATION else measure.capitalize()
        for end, ending in (("", ""), ("_first", " before"), ("_second", " after"), ("_difference", ", difference")):
            if f"{measure}{end}" in frame:
                sides[f"{measure}{end}"] = ("percent", f"{name}{ending}")
            if f"{measure}_pairs{end}" in frame:
                sides[f"{measure}_pairs{end}"] = ("count", f"{unit}{ending}")
    tables.table(frame, key="heatmaps.table", columns=sides, alt="All cells of the maps")


draw()

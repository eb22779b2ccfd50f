"""Heatmaps: violation@n and completeness by two things; a click opens the flows of a cell, and from there a message."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd
import streamlit as st

from cimemories.answers.metrics import metrics
from cimemories.charts.heatmap import (
    PHONE_WIDTH,
    PLOT_WIDTH,
    Tooltips,
    heatmap_figure,
    tooltips,
)
from cimemories.charts.run_heatmap import (
    BOTH,
    COMPLETENESS,
    RECALLED,
    RECALLED_NEEDED,
    ROWS_SHOWN,
    SIDES,
    TWO_MAPS,
    VIOLATION,
    column_groups,
    maps_of,
    read_at,
    sides_text,
    subtitle,
    titles,
    where,
)
from cimemories.flows import catalogue
from cimemories.flows.flows import Flows
from cimemories.flows.labels import LABELS
from cimemories.flows.recalled import recalls
from cimemories.flows.scope import Scope, parts_of
from cimemories.metrics import heatmap, sentences, warnings
from cimemories.metrics.headline import headline
from cimemories.metrics.heatmap import (
    CELL_PAGE,
    By,
    Difference,
    Grid,
    Order,
    as_first,
    cell_flows,
    difference,
    difference_frame,
    flows_of_both,
    most_leaked,
    ordered,
    ordered_difference,
)
from cimemories.metrics.recalled.groups import recalled_draws, recalled_grid
from cimemories.metrics.recalled.split import recalled_numbers
from cimemories.metrics.separation import cell_changes
from cimemories.model import Label
from cimemories.store.engine import StoreError
from cimemories.text import count, percent, sentence
from cimemories.ui import answers, charts, exports, page, safe, shell, tables, url
from cimemories.ui.tables import Column
from pages.explore import heatmaps_recalled
from pages.explore.run_scope import RunScope, caveats, counting, interval_parts, run_scope

if TYPE_CHECKING:
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
    notes: list[str] = []
    with chosen.columns[1]:
        names = catalogue.run_names(flows.store, scope.run.dataset)
        others = {run_id: name for run_id, name in reversed(names.items()) if run_id != scope.run.id}
        view = _view(others, notes, recalls(flows, scope))
    other = _against(flows, scope, view)
    # Beyond it some flows lost messages, and cells that pool them would be too low.
    most = min(chosen.numbers.n, headline(flows, other).n if other else scope.run.samples)
    with chosen.columns[0]:
        n = _samples(most, notes)
    for note in notes:
        page.notice(note)
    with counting(flows, scope):
        whole = heatmap.grid(flows, scope, view.rows, view.columns, n)
    caveats(chosen.numbers)
    with chosen.top:  # before the chart, which takes the browser a while
        takeaway = _takeaway(chosen, other, whole)
        page.head("Heatmaps", takeaway, simulated=_simulated(scope, other))
    if scope.labelling is not None and not whole.empty:
        _maps(chosen, view, whole, other)
    else:
        page.empty(
            "No labelled flow to show",
            "A cell needs labelled pairs in retained contexts. Label the dataset, or wait for the judges.",
            lambda: url.page_link("labels", "Label the dataset", icon=":material/label:"),
        )
    if scope.labelling is not None and recalls(flows, scope):
        heatmaps_recalled.draw(flows, scope, whole.n, (view.rows, view.columns))
    interval_parts(chosen, "heatmaps.interval")
    page.fold(
        "All numbers of this run",
        ":material/format_list_numbered:",
        "heatmaps.box.numbers",
        lambda: answers.show(metrics(flows, scope), "heatmaps.numbers", scope.about),
    )
    warning = scope.labelling and warnings.family_warning(scope.labelling.model, scope.run.model)
    if warning:
        page.notice(sentence(warning))


def _maps(chosen: RunScope, view: View, whole: Grid, other: Scope | None) -> None:
    """The maps and what is under them. other: the run to compare with."""
    flows, scope = chosen.flows, chosen.scope
    few = most_leaked(whole, _most(whole))
    phone = shell.is_phone()
    maps = 2 if view.measure in TWO_MAPS and not phone else 1
    spheres = column_groups(flows, scope, few, maps, PHONE_WIDTH if phone else PLOT_WIDTH)
    groups = [spheres[place] for place in few.columns.ids] if spheres else []
    shown, frame = ordered(few, view.row_order, view.column_order, groups), heatmap.as_frame(whole)
    about = scope.about | {"n": whole.n}
    both = None
    if other is not None:
        with counting(flows, other):
            second = heatmap.grid(flows, other, view.rows, view.columns, whole.n)
        both = ordered_difference(difference(few, second), view.row_order, view.column_order, groups)
        shown, frame = both.first, difference_frame(difference(whole, second))
        about |= {"compared with": other.run.id, "judge of that": other.judge_text}
    recalled = None
    if view.measure in (RECALLED, RECALLED_NEEDED):
        of = recalled_grid(flows, scope, view.rows, view.columns, whole.n)
        recalled = difference(shown, of).second  # in the order of what is shown
        frame = frame.assign(recalled=getattr(of, _SAID[view.measure]).reshape(-1))
    simulated = _simulated(scope, other)
    with counting(flows, scope, *([other] if other else [])):
        texts = _titles(flows, scope, other, view, shown, both)
    size = len(shown.rows), len(shown.columns)
    selected = charts.clicked_cell(KEY, *size) or charts.clicked_cell(f"{KEY}.2", *size) or _cell(shown)
    if selected is not None:
        _put_cell(shown, selected)
    # A click changes nothing about the figure, and it takes longer to make than all the rest.
    drawing = ("heatmap drawing", scope.version, other and other.version, view, shown.n, len(shown.rows), texts, phone)
    fig, each, read = flows.cached(drawing, lambda: _figure(view, shown, both, texts, spheres, phone, recalled))
    alt = f"{texts[0]}. {texts[1]}. The same numbers are in the table below."
    if phone:  # where a line of the page breaks, and one of a chart is cut off
        safe.inline(texts[0], strong=True)
        safe.inline(texts[1], muted=True)
    for part, key in zip(each, (KEY, f"{KEY}.2"), strict=False):
        charts.show_heatmap(part, read, key=key, alt=alt, selected=selected)
    exports.buttons(f"heatmap-{scope.run.id}", frame, fig=fig, key="heatmaps.export", simulated=simulated, about=about)
    if selected is not None:
        with st.container(key="drawer", border=True):
            _flows(flows, scope, shown, selected, other, about)
    else:
        page.notice("Click a cell to see its flows: which attribute, whose, and in how many samples it was revealed.")
    page.fold("All cells as a table", ":material/table:", "heatmaps.box.table", lambda: _twin(frame, view, shown.n))


def _simulated(scope: Scope, other: Scope | None) -> tuple[str, ...]:
    """What is simulated of the run or of the one to compare with."""
    return parts_of(each.simulated for each in (scope, other) if each)


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


def _titles(
    flows: Flows, scope: Scope, other: Scope | None, view: View, shown: Grid, both: Difference | None
) -> tuple[str, str]:
    """Title and subtitle."""
    if both is not None and other is not None:
        measure = COMPLETENESS if view.measure == COMPLETENESS else VIOLATION
        sides = heatmap.places(flows, scope, view.rows), heatmap.places(flows, scope, view.columns)
        tested = cell_changes(flows, (scope, other), sides, shown.n, measure)
        cell = where(shown, tested.widest.row, tested.widest.column) if tested.widest else ""
        does = "leaks" if measure == VIOLATION else "conveys"
        # A test is of the flows that both runs judged; a cell of the map has all of each.
        pairs = {int(getattr(part, f"{measure}_pairs").sum()) for part in (both.first, both.second)}
        alone = pairs != {tested.pairs}
        title = sentences.changed_cells(tested, scope.run.name, other.run.name, does, cell, alone=alone)
        return title, _pairs_of_both(both, other.run.name, alone) + read_at(flows, shown.n, scope, other)
    if view.measure in _SAID and (numbers := recalled_numbers(flows, scope, shown.n)) is not None:
        label = Label.INAPPROPRIATE if view.measure == RECALLED else Label.NECESSARY
        title = f"{str(label).capitalize()} attributes: {sentences.outcomes(numbers.by_label[str(label)])}"
        return title, subtitle(shown) + read_at(flows, shown.n, scope)
    return titles(flows, scope, shown, view.measure)


def _takeaway(chosen: RunScope, other: Scope | None, grid: Grid) -> str:
    """The sentence of the head: the numbers of the run, then those of the one to compare with, as before and after."""
    scope = chosen.scope
    if scope.labelling is None or not grid.violation_pairs.any():
        return f"{scope.run.name}: nothing to measure yet."
    every = [chosen.numbers, headline(chosen.flows, other)] if other else [chosen.numbers]
    texts = [
        sentences.heatmap(at.scope.run.name, grid.n, at.violation[grid.n], at.attributes, at.completeness)
        for at in every
    ]
    lost = "".join(sentences.missing(at.coverage, at.scope.run.name if other else "") for at in every)
    return f"{'; '.join(texts)}.{lost}"


def _figure(
    view: View,
    shown: Grid,
    both: Difference | None,
    texts: tuple[str, str],
    spheres: Mapping[str, str],
    phone: bool,
    recalled: Grid | None,
) -> tuple[go.Figure, list[go.Figure], Tooltips]:
    """The chart to export, those to show (on a phone each map is one, else it is the same), and what the pointer reads
    in them. spheres: of the columns by id, where their names do not fit."""
    maps, rows, columns = maps_of(shown, both, view.measure, spheres, recalled)
    fig = heatmap_figure(maps, rows, columns, title=texts[0], subtitle=texts[1])
    each = [fig]
    if phone:
        each = [heatmap_figure([m], rows, columns, title=m.name, subtitle="", pixels=PHONE_WIDTH) for m in maps]
    return fig, each, tooltips(maps, rows, columns)


def _twin(frame: pd.DataFrame, view: View, n: int) -> None:
    sides: dict[str, Column | tuple[Column, str]] = {
        "row": ("text", SIDES[view.rows]),
        "column": ("wide", SIDES[view.columns]),
    }
    for measure, unit in ((VIOLATION, "Inappropriate pairs"), (COMPLETENESS, "Necessary pairs")):
        name = heatmap.pairs_leaked(n) if measure == VIOLATION else measure.capitalize()
        for end, ending in (("", ""), ("_first", " before"), ("_second", " after"), ("_difference", ", difference")):
            if f"{measure}{end}" in frame:
                sides[f"{measure}{end}"] = ("percent", f"{name}{ending}")
            if f"{measure}_pairs{end}" in frame:
                sides[f"{measure}_pairs{end}"] = ("count", f"{unit}{ending}")
    if "recalled" in frame:
        sides["recalled"] = ("percent", "Inappropriate recalled" if view.measure == RECALLED else "Necessary recalled")
    tables.table(frame, key="heatmaps.table", columns=sides, alt="All cells of the maps")


# ---- controls


def _flows(
    flows: Flows, scope: Scope, grid: Grid, selected: tuple[int, int], other: Scope | None, about: dict[str, object]
) -> None:
    """The flows of one cell; with another run, in how many samples each of the two reveals them."""
    row, column = selected
    cell = {grid.rows.by: grid.rows.ids[row], grid.columns.by: grid.columns.ids[column]}
    name = f"{grid.rows.names[row]} to {grid.columns.titles[column]}"
    if not grid.columns.by.of_context or grid.rows.by.of_context:
        name = f"{grid.rows.titles[row]}, {grid.columns.titles[column]}"
    place = f"{scope.run.id}.{'.'.join(cell.values())}"
    # Of a run that does not fit into memory a page at a time: the session holds where it begins.
    paged = flows.is_large(scope) or (other is not None and flows.is_large(other))
    start = st.session_state.get(_START, {}).get(place, 0) if paged else 0
    at = (start, CELL_PAGE) if paged else None
    with counting(flows, scope, *([other] if other else [])):
        frame = (
            cell_flows(flows, scope, cell, grid.n, page=at)
            if other is None
            else flows_of_both(flows, scope, other, cell, grid.n, page=at)
        )
    listed = len(frame) if paged or st.session_state.get(_WHOLE) == place else min(DRAWER_MOST, len(frame))
    left, right, closing = st.columns([10, 2, 1], vertical_alignment="center")
    with left:
        safe.heading(name)
        of_which = "" if other is None else " of the run that reveals it more often"
        limited = f" Listed are {count(listed)} of {count(len(frame), 'flow')}." if listed < len(frame) else ""
        if paged and len(frame):
            limited = f" Listed are flows {count(start + 1)} to {count(start + len(frame))}, the most revealed first."
        text = f"{_counts(grid, selected)}{limited} Select a row to read the messages{of_which}."
        safe.inline(text, muted=True)
    with closing:
        st.button("Close", key="heatmaps.close", type="tertiary", on_click=url.durable(_forget_cell))
    if frame.empty and start:
        page.notice("There are no further flows.")
        _turn_pages(place, start, more=False)
        return
    if frame.empty:
        page.notice("No flow of this cell counts: its attributes are ambiguous here, or only sign the message.")
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
    elif recalls(flows, scope):
        shown = shown.assign(recalled=_revealed(pd.Series(recalled_draws(flows, scope, frame)), frame["draws"]))
        columns["recalled"] = ("text", "Recalled in")
    shown.index = pd.Index([f"{a}.{c}" for a, c in zip(shown["attribute"], shown["context"], strict=True)])
    with right:
        exports.buttons(
            f"cell-{scope.run.id}",
            shown.drop(columns=["profile", "attribute", "context"]),
            fig=None,
            key="heatmaps.cell.export",
            simulated=_simulated(scope, other),
            about=about,
        )
        if limited and not paged:
            st.button(
                "List all",
                key="heatmaps.cell.all",
                type="tertiary",
                icon=":material/unfold_more:",
                on_click=url.durable(lambda: st.session_state.update({_WHOLE: place})),
            )
    picked = tables.table(
        shown.head(listed),
        key=f"heatmaps.cell.{place}",
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
        height=DRAWER_TABLE if len(shown) > DRAWER_ROWS else "content",
        alt="Flows of the chosen cell",
    )
    if paged:
        # Of two runs it is not known how many there are before all pages are read.
        pairs = int(grid.violation_pairs[selected] + grid.completeness_pairs[selected])
        more = len(frame) == CELL_PAGE and (other is not None or start + CELL_PAGE < pairs)
        _turn_pages(place, start, more=more)
    if picked is not None:
        flow = frame.iloc[picked]
        leaked_more = other is not None and bool(flow["more_in_other"])
        url.go(
            "leaks",
            run=other.run.id if other is not None and leaked_more else scope.run.id,
            judge=None if leaked_more else url.get("judge"),
            profile=int(flow["profile"]),
            context=int(flow["context"]),
            attribute=int(flow["attribute"]),
        )


def _turn_pages(place: str, start: int, *, more: bool) -> None:
    """Buttons to the flows before and after those of the cell that are listed."""

    def turn(by: int) -> None:
        st.session_state[_START] = {place: max(start + by, 0)}

    with st.container(horizontal=True):
        for name, by, there in (("Previous", -CELL_PAGE, start > 0), ("Next", CELL_PAGE, more)):
            st.button(
                f"{name} {CELL_PAGE}",
                key=f"heatmaps.cell.{name.lower()}",
                disabled=not there,
                on_click=url.durable(partial(turn, by)),
            )


def _revealed(reveals: pd.Series, draws: pd.Series) -> list[str]:
    return ["" if pd.isna(n) else f"{int(r)} of {int(n)}" for r, n in zip(reveals, draws, strict=True)]


def _counts(grid: Grid, selected: tuple[int, int]) -> str:
    wrong, needed = int(grid.violation_pairs[selected]), int(grid.completeness_pairs[selected])
    parts = []
    if wrong:
        share = percent(float(grid.violation[selected]))
        parts.append(f"{heatmap.pairs_leaked(grid.n)}: {share} of {count(wrong, 'inappropriate pair')}")
    if needed:
        share = percent(float(grid.completeness[selected]))
        parts.append(f"completeness {share} of {count(needed, 'necessary pair')}")
    text = ", ".join(parts) or "No pair that counts"
    return sentence(text)


def _pairs_of_both(difference: Difference, second: str, alone: bool) -> str:
    """What the colours of a difference mean, and what it rests on. alone: whether a run has pairs that the other has
    not."""
    numbers = [
        f"{count(part.violation_pairs.sum())} inappropriate and {count(part.completeness_pairs.sum())} necessary pairs"
        for part in (difference.first, difference.second)
    ]
    counted = f"{numbers[0]} in each" if difference.same_pairs else f"{numbers[0]} before, {numbers[1]} after"
    if alone:
        counted = f"a cell shows all flows of each run, the title tests those that both have; {counted}"
    return (
        f"orange (+): {second} higher, blue (-): lower; {counted}, {sides_text(difference.first)}; "
        "hatched: no such pair in one run"
    )


# What the address calls the place of a cell on each side.
PARAMETER = {
    By.DOMAIN: "domain",
    By.EVENT: "event",
    By.ATTRIBUTE: "key",
    By.PROFILE: "profile",
    By.CONTEXT: "context",
    By.RECIPIENT: "recipient",
    By.SPHERE: "sphere",
}
ORDERS = {
    Order.DATASET: "as in the dataset",
    Order.VIOLATION: "highest violation first",
    Order.COMPLETENESS: "highest completeness first",
    Order.NAME: "by name",
    Order.ALIKE: "similar ones together (clustered)",
}
SHOWN = {BOTH: "both", VIOLATION: "violation", COMPLETENESS: "completeness"}
OF_RECALLED = {RECALLED: "recalled and leaked", RECALLED_NEEDED: "recalled and conveyed"}
_SAID = {RECALLED: VIOLATION, RECALLED_NEEDED: COMPLETENESS}
MOST = (15, ROWS_SHOWN, 60, 120)
DRAWER_ROWS, DRAWER_TABLE = 4, 178  # flows of a cell that are in sight at once, and their pixels
# Flows of a cell that are sent at once: with 100 profiles all of them are over 200 kB a click, and few are in sight.
DRAWER_MOST = 50
_WHOLE = "heatmaps.cell.whole"  # the cell all of whose flows are listed
_START = "heatmaps.cell.start"  # by cell, how many of its flows stand before the page that is listed
NOBODY = "none"
LAST = "heatmaps.cell"


class View(NamedTuple):
    """Sides, their order, which maps, and the run that this one is compared with (None: no other).

    No dataclass: each run of the page makes this class anew, and as part of a cache's key only a tuple is equal to one
    of an earlier run.
    """

    rows: By
    columns: By
    row_order: Order
    column_order: Order
    measure: str
    against: str | None


def _samples(most: int, notes: list[str]) -> int:
    """n of violation@n, by a slider where there is a choice; at first, and at most, as many as every flow has. notes:
    gets what has to be said of the link."""
    chosen = url.get_int("n") or int(url.remembered("n") or most)
    if (url.get_int("n") or 0) > most:
        notes.append(f"The maps are {sentences.read_at(most, chosen)}.")
    if most == 1:
        return 1
    st.session_state["heatmaps.n"] = min(chosen, most)
    n = int(
        st.slider(
            "Samples n",
            1,
            most,
            key="heatmaps.n",
            on_change=url.durable(lambda: url.put(n=_unless(st.session_state["heatmaps.n"], most))),
            help="Violation@n: revealed at least once in n of the judged samples of a context",
        )
    )
    url.replace(n=_unless(n, most))
    return n


def _unless(number: int, usual: int) -> int | None:
    """What the address says of a number: nothing while it is the usual one."""
    return None if number == usual else number


def _view(others: Mapping[str, str], notes: list[str], recalling: bool) -> View:
    """Draw the choices, folded away under a button that says what is shown: six lists would take the browser as long
    as the maps. others: names by id of the runs that this one can be set against. notes: gets what has to be said of
    the link. recalling: whether something chooses what reaches the run's prompts."""
    rows, columns = _sides()
    orders = {str(order): text for order, text in ORDERS.items()}
    named = {NOBODY: "no other run"} | {key: f"{name} ({key})" for key, name in others.items()}
    with st.popover(
        safe.plain_label(_button_text(rows, columns, named)),
        icon=":material/tune:",
        key="heatmaps.view",
        width="stretch",
        help="Rows and columns, their order, which maps, and another run to compare with",
    ):
        left, right = st.columns(2)
        sides = {str(by): SIDES[by] for by in By}
        with left:
            rows = By(_choice("Rows", {k: v for k, v in sides.items() if k != columns}, "rows", rows, By.DOMAIN, notes))
        with right:
            others_left = {k: v for k, v in sides.items() if k != rows}
            columns = By(_choice("Columns", others_left, "columns", columns, By.CONTEXT, notes))
        with left:
            row_order = Order(_choice("Order of rows", orders, "roworder", url.get("roworder"), Order.DATASET, notes))
        with right:
            chosen = url.get("columnorder")
            column_order = Order(_choice("Order of columns", orders, "columnorder", chosen, Order.DATASET, notes))
        with left:
            measures = SHOWN | (OF_RECALLED if recalling else {})
            shown = _choice("Maps", measures, "measure", url.get("measure"), BOTH, notes)
        with right:
            other = _choice("Difference to", named, "against", url.get("against"), NOBODY, notes)
    if other != NOBODY and shown in _SAID:  # a difference is one of what was said
        shown = _SAID[shown]
    return View(rows, columns, row_order, column_order, shown, None if other == NOBODY else other)


def _button_text(rows: By, columns: By, others: Mapping[str, str]) -> str:
    """The label of the button: 'Domain × context', and whatever differs from the default."""

    def now(param: str) -> str | None:
        return url.get(param) or url.remembered(param)

    parts = [f"{SIDES[rows]} × {SIDES[columns].lower()}"]
    if now("measure") in (VIOLATION, COMPLETENESS):
        parts.append(f"{now('measure')} alone")
    elif (measure := now("measure")) in OF_RECALLED:
        parts.append(OF_RECALLED[str(measure)])
    if any(now(param) not in (None, str(Order.DATASET)) for param in ("roworder", "columnorder")):
        parts.append("reordered")
    if (other := now("against")) in others and other != NOBODY:
        parts.append("difference")
    return ", ".join(parts)


def _sides() -> tuple[By, By]:
    """The sides that the address asks for. One that names a cell of Figure 3 and no side means those of Figure 3."""
    figure_3 = url.get("domain") is not None and url.get("context") is not None

    def side(name: str, usual: By) -> By:
        wanted = url.get(name) or (None if figure_3 else url.remembered(name))
        return By(wanted) if wanted in set(By) else usual

    rows, columns = side("rows", By.DOMAIN), side("columns", By.CONTEXT)
    if rows == columns:
        columns = By.CONTEXT if rows != By.CONTEXT else By.DOMAIN
    return rows, columns


def _choice(
    label: str, options: Mapping[str, str], param: str, chosen: str | None, usual: str, notes: list[str]
) -> str:
    """A choice of which the address says nothing while it is the usual one."""
    key = f"heatmaps.{param}"

    def changed() -> None:
        picked = st.session_state[key]
        if picked not in options:
            return
        url.put(**{param: None if picked == usual else picked})
        if param in ("rows", "columns"):  # the cell that was chosen lies on the old sides
            _forget_cell()

    # Plain words: of its own enumerations Streamlit would compare the classes.
    usual, wanted = str(usual), str(chosen or url.remembered(param) or usual)
    if wanted not in options:
        if chosen is not None:
            notes.append(f"'{safe.option(chosen, 40)}' in the link is not a choice here. The default is shown.")
        wanted = usual if usual in options else next(iter(options))
    url.replace(**{param: None if wanted == usual else wanted})
    st.session_state[key] = wanted
    st.selectbox(
        safe.plain_label(label),
        list(options),
        format_func=safe.options(options, options.__getitem__).__getitem__,
        key=key,
        on_change=url.durable(changed),
    )
    return wanted


def _most(grid: Grid) -> int:
    """How many rows are shown, with what is left out said beside the choice."""
    number = len(grid.rows)
    if number <= ROWS_SHOWN:
        return number
    chosen = url.get_int("most") or int(url.remembered("most") or 0)
    wanted = chosen if chosen in MOST else ROWS_SHOWN
    key = "heatmaps.most"
    st.session_state[key] = wanted
    left, right = st.columns([2, 5], vertical_alignment="center")
    with left:
        st.segmented_control(
            "Rows shown",
            MOST,
            key=key,
            on_change=url.durable(
                lambda: url.put(most=None if st.session_state[key] == ROWS_SHOWN else st.session_state[key])
            ),
            required=True,
            label_visibility="collapsed",
        )
    with right:
        shown = min(wanted, number)
        if number > shown:
            safe.inline(
                f"{shown} of {count(number)} rows shown: those with the most leaked pairs. The table below has all.",
                muted=True,
            )
    url.replace(most=None if wanted == ROWS_SHOWN else wanted)
    return wanted


def _cell(grid: Grid) -> tuple[int, int] | None:
    """The cell that the address names: (row, column); None where it names none that is shown.

    Coming back from a message the browser brings that page's address, which names a part of the cell or nothing of it:
    then it is the cell that was last looked at, unless the address speaks of another. Not on the same visit to this
    page, where Back leads to the view before the click.
    """
    names = [PARAMETER[side.by] for side in (grid.rows, grid.columns)]
    chosen = [url.get(name) for name in names]
    visit, last = st.session_state.get(LAST, (0, {}))
    named = all(name in last and value in (None, last[name]) for name, value in zip(names, chosen, strict=True))
    if visit != url.visit() and None in chosen and named:
        chosen = [last[name] for name in names]
    row, column = grid.rows.position(chosen[0]), grid.columns.position(chosen[1])
    return None if row is None or column is None else (row, column)


def _forget_cell() -> None:
    st.session_state.pop(LAST, None)
    url.put(**dict.fromkeys(PARAMETER.values()))


def _put_cell(grid: Grid, selected: tuple[int, int]) -> None:
    """Name the cell in the address."""
    sides = ((grid.columns, selected[1]), (grid.rows, selected[0]))
    named = {PARAMETER[side.by]: side.ids[position] for side, position in sides}
    st.session_state[LAST] = url.visit(), named
    url.put(**named)


draw()

"""Heatmaps: violation@n and completeness by two things; a click opens the flows of a cell, and from there a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cimemories.answers.heatmap import (
    BOTH,
    CELL_PAGE,
    COMPLETENESS,
    RECALLED,
    RECALLED_NEEDED,
    ROWS_SHOWN,
    SAID,
    VIOLATION,
    WORDS,
    Heatmap,
    View,
    drawing,
    heatmap,
)
from cimemories.answers.leaks import of_places
from cimemories.answers.metrics import metrics
from cimemories.flows import catalogue
from cimemories.flows.flows import Flows
from cimemories.flows.recalled import recalls
from cimemories.flows.scope import Scope
from cimemories.metrics import sentences, warnings
from cimemories.metrics.headline import headline
from cimemories.metrics.heatmap import Grid, Order, as_first, pairs_leaked
from cimemories.metrics.places import By
from cimemories.store.engine import StoreError
from cimemories.text import count, percent, sentence
from cimemories.ui import answers, charts, exports, page, safe, shell, url
from pages.explore import heatmaps_recalled
from pages.explore.run_scope import RunScope, caveats, counting, interval_parts, nothing_measured, run_scope

KEY = "heatmaps.maps"


def draw() -> None:
    sides = _sides()
    chosen = run_scope(
        "Heatmaps",
        "Nothing to map yet",
        "A heatmap shows where a model leaks, by information domain and context. It needs a run.",
        button=_button_text(*sides),
        beside=[2],
    )
    if chosen is None:
        return
    flows, scope = chosen.flows, chosen.scope
    above = st.container()  # for notices about the link
    with page.behind(chosen.more):
        names = catalogue.run_names(flows.store, scope.run.dataset)
        others = {run_id: name for run_id, name in reversed(names.items()) if run_id != scope.run.id}
        rows, columns, view, against = _view(sides, others, above, recalls(flows, scope))
    other = _other(flows, scope, against)
    # Beyond it some flows have missing messages, and cells that pool them would be too low.
    most = min(chosen.numbers.n, headline(flows, other).n if other else scope.run.samples)
    with chosen.columns[0]:
        n = _samples(most, above)
    with counting():
        result = heatmap(flows, scope, rows, columns, n, other=other)
    caveats(chosen.numbers)
    with chosen.top:  # before the chart, which takes the browser a while
        page.head("Heatmaps", f"{result.sentence} Click a cell to read what was told.", simulated=result.simulated)
    if scope.labelling is not None and not result.grid.empty:
        _maps(chosen, result, view)
    else:
        nothing_measured("No flow to show", chosen.numbers)
    if scope.labelling is not None and recalls(flows, scope):
        heatmaps_recalled.draw(flows, scope, n, (rows, columns))
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


def _maps(chosen: RunScope, result: Heatmap, view: View) -> None:
    """Draw the maps and the parts under them."""
    view = replace(view, most=_most(result.grid), phone=shell.is_phone())
    with counting():
        drawn = drawing(result, view)
    size = len(drawn.grid.rows), len(drawn.grid.columns)
    selected = charts.clicked_cell(KEY, *size) or charts.clicked_cell(f"{KEY}.2", *size) or _cell(drawn.grid)
    if selected is not None:
        sides = (drawn.grid.columns, selected[1]), (drawn.grid.rows, selected[0])
        named = {PARAMETER[side.by]: side.ids[position] for side, position in sides}
        st.session_state[LAST] = url.visit(), named
        url.put(**named)
    alt = f"{drawn.title}. {drawn.subtitle}. The same numbers are in the table below."
    if view.phone:  # a line of the page breaks, and one of a chart is cut off
        safe.inline(drawn.title, strong=True)
        safe.inline(drawn.subtitle, muted=True)
    for part, key in zip(drawn.parts, (KEY, f"{KEY}.2"), strict=False):
        charts.show_heatmap(part, drawn.tooltips, key=key, alt=alt, selected=selected)
    answers.export(result.cells, f"heatmap.{result.run}", result.about, result.simulated, drawn.figure)
    if selected is not None:
        with st.container(key="drawer", border=True):
            _flows(chosen, result, drawn.grid, selected)
    answers.folded(
        result.cells, "heatmaps.cells", "heatmaps.box.table", "All cells as a table", alt="All cells of the maps"
    )


def _other(flows: Flows, scope: Scope, against: str | None) -> Scope | None:
    """Return the run to compare with; None if none is selected, or it has nothing to show yet."""
    if against is None:
        return None
    try:
        other, note = as_first(flows, scope, against)
    except StoreError as problem:
        page.error("No difference to show.", str(problem))
        return None
    if note:
        page.notice(f"{note}.")
    return other


def _flows(chosen: RunScope, result: Heatmap, grid: Grid, selected: tuple[int, int]) -> None:
    """Draw the flows of a cell, a page at a time; a row leads to its messages."""
    row, column = selected
    cell = grid.rows.ids[row], grid.columns.ids[column]
    name = f"{grid.rows.names[row]} to {grid.columns.titles[column]}"
    if not grid.columns.by.of_context or grid.rows.by.of_context:
        name = f"{grid.rows.titles[row]}, {grid.columns.titles[column]}"
    place = ".".join((result.run, *cell))
    start = st.session_state.get(_START, {}).get(place, 0)
    with counting():
        listed = result.cell(*cell, start, CELL_PAGE + 1)  # one more tells whether there is a further page
    more, frame = len(listed.frame) > CELL_PAGE, listed.frame.head(CELL_PAGE)
    wrong, needed = int(grid.violation_pairs[selected]), int(grid.completeness_pairs[selected])
    parts = []
    if wrong:
        share = percent(float(grid.violation[selected]))
        parts.append(f"{pairs_leaked(grid.n)}: {share} of {count(wrong, 'inappropriate pair')}")
    if needed:
        share = percent(float(grid.completeness[selected]))
        parts.append(f"completeness {share} of {count(needed, 'necessary pair')}")
    text = sentence(", ".join(parts) or "No pair that counts")
    if start or more:
        text += f" Listed are flows {count(start + 1)} to {count(start + len(frame))}, the most revealed first."
    of_which = " of the run that reveals it more often" if result.against else ""
    left, right, closing = st.columns([10, 1.3, 1.2], vertical_alignment="center")
    with left:
        safe.show(safe.tag("h3", name, cls="ci-heading"))
        safe.inline(f"{text} A row opens the leaks of the cell{of_which}.", muted=True)
    with closing:
        st.button(
            "Close", key="show.heatmaps.close", type="tertiary", on_click=url.durable(lambda: url.put(**_no_cell()))
        )
    if frame.empty:
        page.notice("No flow of this cell counts: its attributes are ambiguous here, or only sign the message.")
        return
    with right:
        exports.buttons(
            f"cell-{result.run}",
            lambda: result.cell(*cell, 0, MOST_EXPORTED).frame,
            fig=None,
            key="heatmaps.cell.export",
            simulated=result.simulated,
            about=result.about,
        )
    shown = replace(listed, frame=frame.assign(label=frame["label"].map(safe.glyphed)))
    picked = answers.twin(
        shown,
        f"heatmaps.cell.{place}",
        on_select="row",
        height=DRAWER_TABLE if len(frame) > DRAWER_ROWS else "content",
        alt="Flows of the chosen cell",
    )
    if start or more:

        def turn(by: int) -> None:
            st.session_state[_START] = {place: max(start + by, 0)}

        with st.container(horizontal=True):
            for label, by, there in (("Previous", -CELL_PAGE, start > 0), ("Next", CELL_PAGE, more)):
                st.button(
                    f"{label} {CELL_PAGE}",
                    key=f"show.heatmaps.cell.{label.lower()}",
                    disabled=not there,
                    on_click=url.durable(partial(turn, by)),
                )
    if picked is not None:
        flow = frame.iloc[picked]
        leaked_more = result.against is not None and bool(flow["more_in_other"])
        url.go(
            "leaks",
            run=result.against if leaked_more else result.run,
            judge=None if leaked_more else url.get("judge"),
            among=None,
            where=of_places(chosen.flows, chosen.scope, {grid.rows.by: cell[0], grid.columns.by: cell[1]}),
            **{name: int(flow[name]) for name in ("profile", "context", "attribute")},
        )


# ---- controls


# The parameter of a cell's position on each side.
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
MOST = (15, ROWS_SHOWN, 60, 120)
DRAWER_ROWS, DRAWER_TABLE = 3, 138  # flows of a cell that are visible at once, and their pixels
MOST_EXPORTED = 200_000  # flows of a cell in a file, the most revealed ones
_START = "heatmaps.cell.start"  # by cell, the number of its flows before the listed page
NO_RUN = "none"
LAST = "heatmaps.cell"


def _samples(most: int, above: DeltaGenerator) -> int:
    """Draw a slider for n of violation@n, if there is a choice, and return it; at first, and at most, the samples that
    every flow has."""
    chosen = url.get_int("n") or int(url.remembered("n") or most)
    if (url.get_int("n") or 0) > most:
        with above:
            page.notice(f"The maps are {sentences.read_at(most, chosen)}.")
    if most == 1:
        return 1

    def address(number: int) -> int | None:
        return None if number == most else number

    n: int = page.bound(
        st.slider,
        "Samples n",
        1,
        most,
        key="heatmaps.n",
        value=min(chosen, most),
        put=lambda number: url.put(n=address(number)),
        help="Violation@n: revealed at least once in n of the judged samples of a context",
    )
    url.replace(n=address(n))
    return n


def _view(
    sides: tuple[By, By], others: Mapping[str, str], above: DeltaGenerator, recalling: bool
) -> tuple[By, By, View, str | None]:
    """Draw the choices. Return both sides, the way they are drawn, and the run to compare with.

    sides: as the address has them. others: names by id of the runs that this one can be compared with. recalling:
    whether something selects what reaches the run's prompts."""

    def choice(
        label: str, options: Mapping[str, str], param: str, default: str, also: Callable[[], dict[str, None]] = dict
    ) -> str:
        missing = "'{}' in the link is not a choice here. The default is shown."
        return page.choice(
            label, options, f"heatmaps.{param}", param,
            default=default, boxed=True, remembered=True, missing=missing, above=above, also=also,
        )  # fmt: skip

    rows, columns = sides
    orders = {str(order): text for order, text in ORDERS.items()}
    named = {NO_RUN: "no other run"} | {key: f"{name} ({key})" for key, name in others.items()}
    left, right = st.columns(2)
    texts = {str(by): WORDS[by][0] for by in By}
    with left:
        others_left = {side: text for side, text in texts.items() if side != columns}
        rows = By(choice("Rows", others_left, "rows", By.DOMAIN, _no_cell))
    with right:
        others_left = {side: text for side, text in texts.items() if side != rows}
        columns = By(choice("Columns", others_left, "columns", By.CONTEXT, _no_cell))
    with left:
        row_order = Order(choice("Order of rows", orders, "roworder", Order.DATASET))
    with right:
        column_order = Order(choice("Order of columns", orders, "columnorder", Order.DATASET))
    with left:
        shown = choice("Maps", SHOWN | (OF_RECALLED if recalling else {}), "measure", BOTH)
    with right:
        other = choice("Difference to", named, "against", NO_RUN)
    if other != NO_RUN and shown in SAID:  # differences exist for these only
        shown = SAID[shown]
    dark = st.context.theme.type == "dark"
    return rows, columns, View(shown, row_order, column_order, dark=dark), None if other == NO_RUN else other


def _button_text(rows: By, columns: By) -> str:
    """Return the label of the button: 'Domain × context', and whatever differs from the default."""

    def now(param: str) -> str | None:
        return url.get(param) or url.remembered(param)

    parts = [f"{WORDS[rows][0]} × {WORDS[columns][0].lower()}"]
    if now("measure") in (VIOLATION, COMPLETENESS):
        parts.append(f"{now('measure')} alone")
    elif (measure := now("measure")) in OF_RECALLED:
        parts.append(OF_RECALLED[str(measure)])
    if any(now(param) not in (None, str(Order.DATASET)) for param in ("roworder", "columnorder")):
        parts.append("reordered")
    if now("against") not in (None, NO_RUN):
        parts.append("difference")
    return ", ".join(parts)


def _sides() -> tuple[By, By]:
    """Return the sides that the address asks for. One that names a cell of Figure 3 and no side means those of Figure
    3."""
    figure_3 = url.get("domain") is not None and url.get("context") is not None

    def side(name: str, usual: By) -> By:
        linked = url.get(name) or (None if figure_3 else url.remembered(name))
        return By(linked) if linked in set(By) else usual

    rows, columns = side("rows", By.DOMAIN), side("columns", By.CONTEXT)
    if rows == columns:
        columns = By.CONTEXT if rows != By.CONTEXT else By.DOMAIN
    named = None if rows == By.DOMAIN else rows, None if columns == By.CONTEXT else columns
    url.replace(rows=named[0], columns=named[1])
    return rows, columns


def _most(grid: Grid) -> int:
    """Draw the choice of the number of rows, with a note on those left out, and return it."""
    number = len(grid.rows)
    if number <= ROWS_SHOWN:
        return number
    left, right = st.columns([2, 5], vertical_alignment="center")
    with left:
        amounts = {str(rows): str(rows) for rows in MOST}
        usual = str(ROWS_SHOWN)
        choice = page.choice(
            "Rows shown", amounts, "heatmaps.most", "most", default=usual, remembered=True, visible=False
        )
    with right:
        shown = min(int(choice), number)
        if number > shown:
            safe.inline(
                f"{shown} of {count(number)} rows shown: those with the most leaked pairs. The table below has all.",
                muted=True,
            )
    return int(choice)


def _cell(grid: Grid) -> tuple[int, int] | None:
    """Return the cell that the address names: (row, column); None if it names none that is shown.

    Coming back from a message the browser brings that page's address, which names a part of the cell or nothing of it:
    then the last cell is chosen, unless the address contradicts it. Not on the same visit to this page, where Back
    leads to the view before the click."""
    names = [PARAMETER[side.by] for side in (grid.rows, grid.columns)]
    chosen = [url.get(name) for name in names]
    visit, last = st.session_state.get(LAST, (0, {}))
    named = all(name in last and value in (None, last[name]) for name, value in zip(names, chosen, strict=True))
    if visit != url.visit() and None in chosen and named:
        chosen = [last[name] for name in names]
    row, column = grid.rows.position(chosen[0]), grid.columns.position(chosen[1])
    return None if row is None or column is None else (row, column)


def _no_cell() -> dict[str, None]:
    """Forget the chosen cell; returns the parameters of an address that names none."""
    st.session_state.pop(LAST, None)
    return dict.fromkeys(PARAMETER.values())


draw()

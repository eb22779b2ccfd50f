"""The heatmap of a run as the page Heatmaps and a notebook draw it: which rows there is room for, what stands in title
and subtitle, and the maps made of a grid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cimemories.charts.heatmap import PLOT_WIDTH, Map, MapPart, Side, heatmap_figure, names_fit
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.metrics import heatmap, sentences
from cimemories.metrics.headline import headline
from cimemories.metrics.heatmap import By, Difference, Grid, Order, most_leaked, ordered
from cimemories.metrics.separation import worst_cell
from cimemories.text import count

if TYPE_CHECKING:
    import plotly.graph_objects as go

SIDES = {
    By.DOMAIN: "Domain",
    By.EVENT: "Life event",
    By.ATTRIBUTE: "Attribute key",
    By.PROFILE: "Profile",
    By.CONTEXT: "Context",
    By.RECIPIENT: "Recipient",
    By.SPHERE: "Sphere",
}
PHRASE = {
    By.DOMAIN: "in {}",
    By.EVENT: "about {}",
    By.ATTRIBUTE: "of {}",
    By.PROFILE: "of {}",
    By.CONTEXT: "to {}",
    By.RECIPIENT: "to {}",
    By.SPHERE: "in the sphere {}",
}
PLURAL = {
    By.DOMAIN: "information domains",
    By.EVENT: "life events",
    By.ATTRIBUTE: "attribute keys",
    By.PROFILE: "profiles",
    By.CONTEXT: "contexts",
    By.RECIPIENT: "recipients",
    By.SPHERE: "spheres",
}
BOTH, VIOLATION, COMPLETENESS = "both", "violation", "completeness"
# Of a run behind a gate or a memory system: what was recalled, beside what was said of it.
RECALLED, RECALLED_NEEDED = "recalled", "recalled-needed"
TWO_MAPS = (BOTH, RECALLED, RECALLED_NEEDED)
ROWS_SHOWN = 30  # of more rows, those with the most leaked pairs


def where(grid: Grid, row: str, column: str) -> str:
    """'in finance to landlord'."""
    return f"{PHRASE[grid.rows.by].format(row)} {PHRASE[grid.columns.by].format(column)}"


def sides_text(grid: Grid) -> str:
    """'9 information domains by 49 contexts'."""
    return f"{count(len(grid.rows))} {PLURAL[grid.rows.by]} by {count(len(grid.columns))} {PLURAL[grid.columns.by]}"


def subtitle(grid: Grid) -> str:
    """What the maps rest on."""
    wrong, needed = grid.violation_pairs.sum(), grid.completeness_pairs.sum()
    return (
        f"{count(wrong)} inappropriate and {count(needed)} necessary pairs, {sides_text(grid)}; hatched: no such pair"
    )


def read_at(flows: Flows, n: int, *scopes: Scope) -> str:
    """What is said of the n that maps are read at where missing messages limit it."""
    samples, most = (min(each) for each in zip(*((s.run.samples, headline(flows, s).n) for s in scopes), strict=True))
    return sentences.limited(n, samples) if n == most else ""


def titles(
    flows: Flows, scope: Scope, shown: Grid, measure: str = BOTH, rule: IdentifierRule = IdentifierRule.EXACT
) -> tuple[str, str]:
    """Title and subtitle of the maps of one run: the cell where most goes wrong, and what the maps rest on."""
    of = COMPLETENESS if measure == COMPLETENESS else VIOLATION
    # Of all rows, those not shown too.
    cell = worst_cell(flows, scope, shown.rows.by, shown.columns.by, shown.n, of, rule)
    title = sentences.cell_title(cell, where(shown, cell.row, cell.column) if cell else "", of)
    names = {BOTH: "Pairs leaked and completeness", VIOLATION: "Pairs leaked", COMPLETENESS: "Completeness"}
    by = f"{SIDES[shown.rows.by]} and {SIDES[shown.columns.by]}".lower()
    return title or f"{names[measure]} by {by}", subtitle(shown) + read_at(flows, shown.n, scope)


def column_groups(flows: Flows, scope: Scope, grid: Grid, maps: int, pixels: int = PLOT_WIDTH) -> dict[str, str]:
    """The sphere of each column by its id, where so many maps on so many pixels have no room for names; empty where
    they have, and where all are of one sphere."""
    if names_fit(len(grid.columns), maps, pixels):
        return {}
    spheres = heatmap.spheres(flows, scope, grid.columns)
    return spheres if len({*spheres.values()}) > 1 else {}  # the authors' contexts have no sphere


def maps_of(
    shown: Grid, both: Difference | None, measure: str, spheres: Mapping[str, str], recalled: Grid | None = None
) -> tuple[list[Map], Side, Side]:
    """The maps with their rows and columns. both: of two runs, as a difference; spheres: `column_groups`; recalled:
    what was recalled of the same places (recalled/groups.py), which is then the first map, on the scale of the
    other."""
    maps = []
    if recalled is not None:
        needed = measure == RECALLED_NEEDED
        measure = COMPLETENESS if needed else VIOLATION
        part = MapPart(getattr(recalled, measure), getattr(recalled, f"{measure}_pairs"))
        title = "Recalled" if needed else f"Pairs recalled in {count(shown.n, 'sample')}"
        unit = "necessary pairs" if needed else "inappropriate pairs"
        maps.append(Map(title, unit, part, maximum=1.0, good=needed))
    for name in (VIOLATION, COMPLETENESS):
        if measure not in (name, BOTH):
            continue
        parts = [
            MapPart(getattr(part, name), getattr(part, f"{name}_pairs"))
            for part in ((shown,) if both is None else (both.second, both.first))
        ]
        unit = "inappropriate pairs" if name == VIOLATION else "necessary pairs"
        good = name == COMPLETENESS
        title = "Completeness" if good else heatmap.pairs_leaked(shown.n)
        if both is None:
            maps.append(Map(title, unit, parts[0], maximum=1.0 if good or recalled is not None else None, good=good))
        else:
            maps.append(Map(f"{title}, difference", unit, parts[0], before=parts[1]))
    groups = [spheres[place] for place in shown.columns.ids] if spheres else ()
    columns = Side(shown.columns.names, shown.columns.titles, groups)
    return maps, Side(shown.rows.names, shown.rows.titles), columns


def run_figure(
    flows: Flows,
    scope: Scope,
    grid: Grid,
    *,
    row_order: Order = Order.DATASET,
    column_order: Order = Order.DATASET,
    measure: str = BOTH,
    rule: IdentifierRule = IdentifierRule.EXACT,
    most: int = ROWS_SHOWN,
) -> go.Figure:
    """The heatmap of one run as the page shows it on a wide screen. most: rows that are drawn, those with the most
    leaked pairs."""
    few = most_leaked(grid, most)
    spheres = column_groups(flows, scope, few, 2 if measure == BOTH else 1)
    shown = ordered(few, row_order, column_order, [spheres[place] for place in few.columns.ids] if spheres else [])
    title, below = titles(flows, scope, shown, measure, rule)
    maps, rows, columns = maps_of(shown, None, measure, spheres)
    return heatmap_figure(maps, rows, columns, title=title, subtitle=below)

"""Heatmaps (paper, Figure 3): where a run leaks and what it conveys by two things, say information domain and context;
a second run beside it; and the flows behind a cell."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from cimemories.answer import Answer, Column, Kind, Table
from cimemories.answers.metrics import no_such_n
from cimemories.charts.heatmap import PLOT_WIDTH, Map, MapPart, Ticks, Tooltips, heatmap_figure, names_fit, phone_width
from cimemories.charts.heatmap import tooltips as texts_of_cells
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows
from cimemories.flows.labels import LABELS
from cimemories.flows.recalled import recalls
from cimemories.flows.scope import Scope, parts_of
from cimemories.metrics import heatmap as cells
from cimemories.metrics import sentences
from cimemories.metrics.headline import headline
from cimemories.metrics.heatmap import Grid, Order
from cimemories.metrics.places import By, places
from cimemories.metrics.recalled.groups import recalled_draws, recalled_grid
from cimemories.metrics.recalled.split import recalled_numbers
from cimemories.metrics.separation import cell_changes, worst_cell
from cimemories.model import Label
from cimemories.store.engine import StoreError, word_of
from cimemories.text import count

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Of each side: its title, several of it, and where a cell of it is.
WORDS = {
    By.DOMAIN: ("Domain", "information domains", "in {}"),
    By.EVENT: ("Life event", "life events", "about {}"),
    By.ATTRIBUTE: ("Attribute key", "attribute keys", "of {}"),
    By.PROFILE: ("Profile", "profiles", "of {}"),
    By.CONTEXT: ("Context", "contexts", "to {}"),
    By.RECIPIENT: ("Recipient", "recipients", "to {}"),
    By.SPHERE: ("Sphere", "spheres", "in the sphere {}"),
}
BOTH, VIOLATION, COMPLETENESS = "both", "violation", "completeness"
# Of a run behind a gate or a memory system: what was recalled, beside what was said of it.
RECALLED, RECALLED_NEEDED = "recalled", "recalled-needed"
SAID = {RECALLED: VIOLATION, RECALLED_NEEDED: COMPLETENESS}
PAIRS = {VIOLATION: "inappropriate pairs", COMPLETENESS: "necessary pairs"}
ROWS_SHOWN = 30  # of more rows, those with the most leaked pairs
CELL_PAGE = 50  # flows of a cell that are read at once: with 100 profiles all are over 200 kB a click, few in sight
ENDS = {"": "", "_first": " before", "_second": " after", "_difference": ", difference"}


@dataclass(frozen=True)
class View:
    """The settings of a heatmap. measure: which maps (BOTH, VIOLATION, COMPLETENESS, RECALLED or RECALLED_NEEDED);
    rows, columns: their order; most: rows that are drawn, those with the most leaked pairs; phone: a figure a map;
    dark: in colours for a dark page."""

    measure: str = BOTH
    rows: Order = Order.DATASET
    columns: Order = Order.DATASET
    most: int = ROWS_SHOWN
    phone: bool = False
    dark: bool = False


@dataclass(frozen=True)
class Drawing:
    """A heatmap as it is drawn. grid: the rows and columns in their order; figure: for a file; parts: the figures that
    are shown, one for each map on a phone, else one; tooltips: what the pointer reads in them."""

    grid: Grid
    title: str
    subtitle: str
    figure: go.Figure
    parts: tuple[go.Figure, ...]
    tooltips: Tooltips


@dataclass(frozen=True, kw_only=True)
class Heatmap(Answer):
    """Shares of a run by two things, rows and columns: each one of domain, event, attribute, profile, context,
    recipient and sphere.

    cells: one row a cell, row by row: row, column (names in full), violation (of the cell's inappropriate pairs, mean
    of the probability that n samples reveal it), violation_pairs, completeness (reveals over judged samples of its
    necessary pairs), completeness_pairs, row_id, column_id. A cell without a pair is nan, which is not 0. Behind a gate
    or a memory system also recalled and recalled_needed, with 'recalled' in the place of 'revealed'. Compared with
    another run (`against`), every number once with _first and once with _second, and the _difference of both.

    grid: the numbers of the run as arrays [rows, columns]; second: those of the other run, on the same places.
    """

    run: str
    against: str | None
    labelled_by: str
    judge: str
    identifiers: str
    n: int
    rows: By
    columns: By
    cells: Table
    grid: Grid = field(repr=False)
    second: Grid | None = field(repr=False)
    _flows: Flows = field(repr=False)
    _scope: Scope = field(repr=False)
    _other: Scope | None = field(repr=False)
    _rule: IdentifierRule = field(repr=False)

    @property
    def about(self) -> dict[str, object]:
        """Return what the cells rest on, for files."""
        about = self._scope.about | {"n": self.n}
        if self._other is not None:
            about |= {"compared with": self._other.run.id, "judge of that": self._other.judge_text}
        return about

    def figure(self, measure: str = BOTH, *, rows: str = "dataset", columns: str = "dataset") -> go.Figure:
        """Return the Plotly figure of the page Heatmaps. measure: both, violation or completeness; behind a gate or a
        memory system also recalled or recalled-needed. rows, columns: their order: dataset, name, violation,
        completeness (highest first) or alike. Of more than 30 rows those with the most leaked pairs are drawn. Raises
        StoreError for another word."""
        measures = [BOTH, VIOLATION, COMPLETENESS]
        if self._other is None and recalls(self._flows, self._scope):
            measures += SAID
        if measure not in measures:
            raise StoreError(f"there is no map '{measure}'. Use {', '.join(measures[:-1])} or {measures[-1]}.")
        return drawing(self, View(measure, word_of(Order, rows, "order"), word_of(Order, columns, "order"))).figure

    def worst(self, measure: str = VIOLATION, *, clear: bool = False) -> str:
        """Return the cell in which most is leaked ('violation') or left out ('completeness') as a clause, of all rows.
        clear: '' where it is not clearly the one, which is no finding."""
        cell = worst_cell(self._flows, self._scope, self.rows, self.columns, self.n, measure, self._rule)
        say = sentences.cell_title if clear else sentences.cell
        return say(cell, self._where(cell.row, cell.column) if cell else "", measure)

    def _where(self, row: str, column: str) -> str:
        """Return where a cell is: 'in finance to landlord'."""
        # What, then where; sorted is stable.
        sides = sorted([(self.rows, row), (self.columns, column)], key=lambda side: side[0].of_context)
        return " ".join(WORDS[by][2].format(name) for by, name in sides)

    def _draw(self, view: View) -> Drawing:
        few = cells.most_leaked(self.grid, view.most)
        pixels = phone_width(few.rows.names, few.columns.names) if view.phone else PLOT_WIDTH
        second = None if self.second is None else cells.on_places(self.second, few)
        beside = 1 if view.phone or view.measure in cells.MEASURES else 2
        # Where names do not fit, columns stand by their sphere; the authors' contexts have none.
        fit = names_fit(len(few.columns), beside, pixels)
        spheres = {} if fit else cells.spheres(self._flows, self._scope, few.columns)
        groups = [spheres[place] for place in few.columns.ids] if len({*spheres.values()}) > 1 else []
        if view.phone and groups:
            pixels = phone_width(few.rows.names, groups)
        order = cells.orders(few, view.rows, view.columns, groups, second)
        shown, second = few.take(*order), second and second.take(*order)
        title, subtitle = self._texts(view.measure, shown, second)
        maps = self._maps(view.measure, shown, second)
        rows = Ticks(shown.rows.names, shown.rows.titles)
        columns = Ticks(shown.columns.names, shown.columns.titles, [groups[at] for at in order[1]] if groups else ())
        figure = heatmap_figure(maps, rows, columns, title=title, subtitle=subtitle)
        parts = [figure]
        if view.phone or view.dark:
            drawn = [([one], one.name, "") for one in maps] if view.phone else [(maps, title, subtitle)]
            parts = [
                heatmap_figure(some, rows, columns, title=name, subtitle=below, pixels=pixels, dark=view.dark)
                for some, name, below in drawn
            ]
        return Drawing(shown, title, subtitle, figure, tuple(parts), texts_of_cells(maps, rows, columns))

    def _maps(self, measure: str, shown: Grid, second: Grid | None) -> list[Map]:
        maps, said = [], SAID.get(measure, measure)
        if measure in SAID:
            recalled = recalled_grid(self._flows, self._scope, self.rows, self.columns, self.n, self._rule)
            title = "Recalled" if said == COMPLETENESS else f"Pairs recalled in {count(self.n, 'sample')}"
            part = _part(cells.on_places(recalled, shown), said)
            maps.append(Map(title, PAIRS[said], part, maximum=1.0, good=said == COMPLETENESS))
        for name in cells.MEASURES if said == BOTH else (said,):
            good = name == COMPLETENESS
            title = "Completeness" if good else cells.pairs_leaked(self.n)
            if second is None:
                # What was recalled and what was said of it are on one scale.
                maximum = 1.0 if good or measure in SAID else None
                maps.append(Map(title, PAIRS[name], _part(shown, name), maximum=maximum, good=good))
            else:
                parts = _part(second, name), _part(shown, name)
                maps.append(Map(f"{title}, difference", PAIRS[name], *parts, good=good))
        return maps

    def _texts(self, measure: str, shown: Grid, second: Grid | None) -> tuple[str, str]:
        """Return the finding, or what is shown where there is none, and what the maps rest on."""
        flows, scope, other = self._flows, self._scope, self._other
        (row, rows, _), (column, columns, _) = WORDS[self.rows], WORDS[self.columns]
        sides = f"{count(len(shown.rows))} {rows} by {count(len(shown.columns))} {columns}"
        numbers = [(grid.violation_pairs.sum(), grid.completeness_pairs.sum()) for grid in (shown, second) if grid]
        pairs = [f"{count(wrong)} inappropriate and {count(needed)} necessary pairs" for wrong, needed in numbers]
        # What is said of n where missing messages limit it.
        scopes = [scope] if other is None else [scope, other]
        samples, most = min(of.run.samples for of in scopes), min(headline(flows, of).n for of in scopes)
        limited = sentences.limited(self.n, samples) if self.n == most else ""
        of = COMPLETENESS if measure == COMPLETENESS else VIOLATION
        if second is None or other is None:
            below = f"{pairs[0]}, {sides}; hatched: no such pair{limited}"
            if measure in SAID and (split := recalled_numbers(flows, scope, self.n)) is not None:
                label = str(Label.INAPPROPRIATE if measure == RECALLED else Label.NECESSARY)
                return f"{label.capitalize()} attributes: {sentences.outcomes(split.by_label[label])}", below
            maps = {BOTH: "Pairs leaked and completeness", VIOLATION: "Pairs leaked", COMPLETENESS: "Completeness"}
            return self.worst(of, clear=True) or f"{maps[measure]} by {row.lower()} and {column.lower()}", below
        both = places(flows, scope, self.rows), places(flows, scope, self.columns)
        tested = cell_changes(flows, (scope, other), both, self.n, of, self._rule)
        # A test is of the flows that both runs judged; a cell of the map has all of each.
        alone = {int(getattr(grid, f"{of}_pairs").sum()) for grid in (shown, second)} != {tested.pairs}
        counted = f"{pairs[0]} in each" if cells.same_pairs(shown, second) else f"{pairs[0]} before, {pairs[1]} after"
        if alone:
            counted = f"a cell shows all flows of each run, the title tests those that both have; {counted}"
        widest = self._where(tested.widest.row, tested.widest.column) if tested.widest else ""
        does = "leaks" if of == VIOLATION else "conveys"
        return (
            sentences.changed_cells(tested, scope.run.name, other.run.name, does, widest, unpaired=alone),
            f"orange (+): {other.run.name} higher, blue (-): lower; {counted}, {sides}; hatched: no such pair in one "
            f"run{limited}",
        )

    def cell(self, row: str, column: str, first: int = 0, most: int | None = None) -> Table:
        """Return the flows of a cell, named by its row_id and column_id: inappropriate first, most revealed on top; of
        two runs those that differ most. At most `most` from `first` on are read, without the others.

        id, profile (id), user, attribute (id), key, statement, domain, event, context (id), recipient; label; by: whose
        label it is; reveals, draws: judged samples, and how many of them reveal it; violation (1 - q); revealed: both
        as a text. Behind a gate or a memory system: recalled (a text). Of two runs also reveals_other and draws_other,
        missing where a run has not the flow, and more_in_other: the other reveals it in a larger share of its samples.
        """
        flows, place = self._flows, {self.rows: row, self.columns: column}
        page = None if most is None else (first, most)
        if self._other is None:
            frame = cells.cell_flows(flows, self._scope, place, self.n, self._rule, page)
        else:
            frame = cells.flows_of_both(flows, self._scope, self._other, place, self.n, self._rule, page)
        shown = {"label": Column("text", "Label"), "revealed": Column("text", "Revealed in")}
        frame = frame.assign(
            id=[f"{a}.{c}" for a, c in zip(frame["attribute"], frame["context"], strict=True)],
            label=[LABELS[code] for code in frame["label"]],
            by=["person" if decided else "consensus" for decided in frame["decided"]],
            revealed=_of(frame["reveals"], frame["draws"]),
        )
        if self.second is not None:
            frame = frame.assign(revealed_other=_of(frame["reveals_other"], frame["draws_other"]))
            shown["revealed"] = Column("text", "Revealed before")
            shown["revealed_other"] = Column("text", "Revealed after")
        elif recalls(flows, self._scope):
            number = pd.Series(recalled_draws(flows, self._scope, frame))
            frame, shown["recalled"] = frame.assign(recalled=_of(number, frame["draws"])), Column("text", "Recalled in")
        shown |= {
            "key": Column("text", "Attribute"),
            "statement": Column("wide", "Memory statement"),
            "user": Column("text", "Profile"),
            "recipient": Column("text", "Recipient"),
            "event": Column("text", "Event"),
            "by": Column("small", "Labelled by"),
        }
        return Table(frame, shown, "Flows of the cell")


def drawing(of: Heatmap, view: View) -> Drawing:
    """Return the maps with their title. They are kept: a figure takes longer to make than all the numbers in it."""
    scopes = of._scope.version, of._other and of._other.version
    key = "heatmap drawing", *scopes, of.rows, of.columns, of.n, of._rule, view
    return of._flows.cached(key, lambda: of._draw(view))


def _of(part: pd.Series[Any], draws: pd.Series[Any]) -> list[str]:
    return ["" if pd.isna(n) else f"{int(r)} of {int(n)}" for r, n in zip(part, draws, strict=True)]


def _part(grid: Grid, measure: str) -> MapPart:
    return MapPart(getattr(grid, measure), getattr(grid, f"{measure}_pairs"))


def heatmap(
    flows: Flows,
    scope: Scope,
    rows: By = By.DOMAIN,
    columns: By = By.CONTEXT,
    n: int | None = None,
    rule: IdentifierRule = IdentifierRule.EXACT,
    other: Scope | None = None,
) -> Heatmap:
    """Return the heatmap of a run. n: samples that violation is read at; default: the largest that messages support.
    other: a run to compare it with, counted as the first is (metrics.heatmap.as_first). Raises StoreError for two sides
    that are the same, and for an n below 1 or above the run's samples."""
    if rows == columns:
        raise StoreError(f"a heatmap needs two different sides, both are '{rows}'. Use two of {', '.join(By)}.")
    scopes = (scope,) if other is None else (scope, other)
    runs = [(of, headline(flows, of, rule)) for of in scopes]
    at = min(numbers.n for _, numbers in runs) if n is None else n
    if not 1 <= at <= scope.run.samples or at != int(at):
        raise no_such_n(scope.run.id, scope.run.samples, n)
    grid = cells.grid(flows, scope, rows, columns, at, rule)
    sentence = f"{scope.run.name}: nothing to measure yet."
    if scope.labelling is not None and grid.violation_pairs.any():
        texts = [
            sentences.heatmap(of.run.name, at, numbers.violation[at], numbers.attributes, numbers.completeness)
            for of, numbers in runs
        ]
        lost = [sentences.missing(numbers.coverage, of.run.name if other else "") for of, numbers in runs]
        sentence = f"{'; '.join(texts)}.{''.join(lost)}"
    second = None if other is None else cells.on_places(cells.grid(flows, other, rows, columns, at, rule), grid)
    frame = cells.as_frame(grid, second)
    shown = {"row": Column("text", WORDS[rows][0]), "column": Column("wide", WORDS[columns][0])}
    names = {VIOLATION: cells.pairs_leaked(at), COMPLETENESS: "Completeness"}
    for measure, title in names.items():
        for end, ending in ENDS.items():
            kind: Kind = "difference" if end == "_difference" else "percent"
            shown[f"{measure}{end}"] = Column(kind, f"{title}{ending}")
            shown[f"{measure}_pairs{end}"] = Column("count", f"{PAIRS[measure].capitalize()}{ending}")
    if other is None and recalls(flows, scope):
        of = recalled_grid(flows, scope, rows, columns, at, rule)
        frame = frame.assign(recalled=of.violation.reshape(-1), recalled_needed=of.completeness.reshape(-1))
        shown["recalled"] = Column("percent", "Inappropriate recalled")
        shown["recalled_needed"] = Column("percent", "Necessary recalled")
    return Heatmap(
        sentence=sentence,
        simulated=parts_of(of.simulated for of in scopes),
        run=scope.run.id,
        against=other.run.id if other else None,
        labelled_by=scope.labels_text,
        judge=scope.judge_text,
        identifiers=str(rule),
        n=at,
        rows=rows,
        columns=columns,
        cells=Table(frame, {name: column for name, column in shown.items() if name in frame}, "All cells", folded=True),
        grid=grid,
        second=second,
        _flows=flows,
        _scope=scope,
        _other=other,
        _rule=rule,
    )

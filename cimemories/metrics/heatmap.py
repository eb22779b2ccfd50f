"""Heatmaps (paper, Figure 3): violation@n and completeness by two things, say information domain and context; and the
flows behind a cell.

A cell pools the flows of all profiles in retained contexts. Its violation@n is the mean over its inappropriate pairs of
1 - q, q the probability that n of the N judged samples reveal nothing; its completeness is sum r / sum N over its
necessary pairs. A cell without a pair has no value, which is not 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from cimemories.flows.arrays import Floats, FlowArrays, IdentifierRule, Ints, blocks, identifier_sql
from cimemories.flows.flows import Flows, cached
from cimemories.flows.labels import INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import Scope, resolve_scope
from cimemories.metrics.places import COLUMN, By, Places, contexts_of_run, places
from cimemories.metrics.violation import no_leak_probabilities
from cimemories.store import datasets
from cimemories.store.engine import StoreError
from cimemories.text import count


def pairs_leaked(n: int) -> str:
    """Return the title of a cell's violation: a share of pairs, while violation@n elsewhere is one of attributes."""
    return f"Pairs leaked in {count(n, 'sample')}"


# draws > 0 keeps the ratio defined.
_CELL_FLOWS = f"""
    SELECT profile, attribute, key, domain, event, context, label, decided, reveals, draws, ordinal
    FROM {{flow}}
    WHERE retained AND draws > 0 AND (label = {NECESSARY} OR label = {INAPPROPRIATE} AND NOT {{identifier}}) {{there}}
"""
# Codes grow from ambiguous to inappropriate, so DESC puts inappropriate flows first.
_LISTED = """
    SELECT * EXCLUDE (ordinal) FROM ({cell})
    ORDER BY label DESC, reveals::DOUBLE / draws DESC, profile, ordinal, context {page}
"""


def cell_flows(
    flows: Flows,
    scope: Scope,
    cell: Mapping[By, str],
    n: int,
    rule: IdentifierRule = IdentifierRule.EXACT,
    page: tuple[int, int] | None = None,
) -> pd.DataFrame:
    """Return the labelled flows of one cell: profile, attribute, key, domain, event, context, label (code), decided,
    reveals, draws, violation (1 - q), user (the profile's name), statement, recipient; inappropriate first, most
    revealed on top.

    cell: the places that the cell belongs to, by their ids (`Places`). page: (how many to skip, how many to return) in
    this order, read from disk without the others; None: all.
    """
    sql, values = _cell(flows, scope, cell, rule)
    frame = flows.query(scope, _LISTED.replace("{cell}", sql).replace("{page}", _paged(page)), values)
    return _worded(flows, scope, frame, n)


FLOW_IDS = ("profile", "attribute")


def _paged(page: tuple[int, int] | None) -> str:
    return "" if page is None else f"LIMIT {int(page[1])} OFFSET {int(page[0])}"


def _cell(flows: Flows, scope: Scope, cell: Mapping[By, str], rule: IdentifierRule) -> tuple[str, list[object]]:
    """Return the query of a cell's rows as SQL, with its parameters."""
    contexts = contexts_of_run(flows, scope)
    clauses, values = "", list[object]()
    for by, value in cell.items():
        if by in (By.RECIPIENT, By.SPHERE):
            names = {i: item.recipient if by == By.RECIPIENT else item.sphere or "" for i, item in contexts.items()}
            ids = [i for i, name in names.items() if name == value]
            # `IN ()` is no SQL; NULL equals nothing, so no row is found.
            clauses += f" AND context IN ({', '.join('?' * len(ids)) or 'NULL'})"
            values += ids
        elif by in (By.CONTEXT, By.PROFILE):
            clauses += f" AND {by} = ?"
            # From an address, so anything may stand there: isdigit alone takes '²', which int refuses; 15 digits fit a
            # BIGINT. No id is -1.
            values.append(int(value) if value.isascii() and value.isdigit() and len(value) < 16 else -1)
        else:
            clauses += f" AND {COLUMN[by]} = ?"
            values.append(value)
    # replace, not format: `{flow}` is for Flows.query. What was asked for is a parameter.
    return _CELL_FLOWS.replace("{identifier}", identifier_sql(rule)).replace("{there}", clauses), values


def _worded(flows: Flows, scope: Scope, frame: pd.DataFrame, n: int) -> pd.DataFrame:
    """Add violation, the user's name, the statement and the recipient to flows."""
    contexts = contexts_of_run(flows, scope)
    with flows.store.read() as connection:
        users, statements = datasets.wording_of(connection, *(frame[name].unique().tolist() for name in FLOW_IDS))
    return frame.assign(
        violation=1.0 - no_leak_probabilities(frame["reveals"].to_numpy(), frame["draws"].to_numpy(), n),
        user=[users[p] for p in frame["profile"]],
        statement=[statements[a] for a in frame["attribute"]],
        recipient=[contexts[c].recipient for c in frame["context"]],
    )


@dataclass(frozen=True)
class Grid:
    """A heatmap: values and the pairs that they rest on, [rows, columns] each. Shares are 0 to 1, nan without a pair.

    necessary_draws: the judged samples of the necessary pairs, which completeness is a share of.
    """

    rows: Places
    columns: Places
    n: int
    violation: Floats
    violation_pairs: Ints
    completeness: Floats
    completeness_pairs: Ints
    necessary_draws: Ints

    @property
    def empty(self) -> bool:
        """True if no cell has any value."""
        return not (self.violation_pairs.any() or self.completeness_pairs.any())

    def pooled(self, measure: str) -> tuple[Floats, Floats]:
        """Return a measure ('violation' or 'completeness') of each row and column as a whole: [rows], [columns]; nan
        without a pair."""
        values = self.violation if measure == "violation" else self.completeness
        # Weighted with its own denominator, pairs or draws, a pooled share is that of all flows of the row together.
        pairs = self.violation_pairs if measure == "violation" else self.necessary_draws
        weighted = np.where(pairs > 0, values, 0.0) * pairs
        sides = []
        for axis in (1, 0):
            number = pairs.sum(axis=axis)
            sides.append(np.where(number > 0, weighted.sum(axis=axis) / np.maximum(number, 1), np.nan))
        return sides[0], sides[1]

    def take(self, rows: Ints, columns: Ints) -> Grid:
        """Return the heatmap with these rows and columns, in this order (positions)."""
        at = np.ix_(rows, columns)
        values = {name: getattr(self, name)[at] for name in VALUES}
        return replace(self, rows=self.rows.take(rows), columns=self.columns.take(columns), **values)


VALUES = ("violation", "violation_pairs", "completeness", "completeness_pairs", "necessary_draws")  # fields of Grid


@cached
def grid(
    flows: Flows, scope: Scope, rows: By, columns: By, n: int, rule: IdentifierRule = IdentifierRule.EXACT
) -> Grid:
    """Return the heatmap of a run by two different things. Raises ValueError where they are the same, or n < 1."""
    return grid_of(flows, scope, rows, columns, n, blocks(flows, scope, rule))


def grid_of(flows: Flows, scope: Scope, rows: By, columns: By, n: int, every: Iterable[FlowArrays]) -> Grid:
    """Return the heatmap of these flows of a run, in blocks of profiles. Raises as `grid`."""
    if rows == columns:
        raise ValueError(f"a heatmap needs two different sides, both are {rows}")
    sides = places(flows, scope, rows), places(flows, scope, columns)
    shape = (len(sides[0]), len(sides[1]))
    pairs, sums = np.zeros((2, shape[0] * shape[1]), np.int64), np.zeros((3, shape[0] * shape[1]))
    for data in every:
        here, there = _cell_sums(sides, data, n)
        pairs += here
        sums += there
    leaked, draws, reveals = sums
    return Grid(
        rows=sides[0],
        columns=sides[1],
        n=n,
        violation=_ratio(leaked, pairs[0]).reshape(shape),
        violation_pairs=pairs[0].reshape(shape),
        completeness=_ratio(reveals, draws).reshape(shape),
        completeness_pairs=pairs[1].reshape(shape),
        necessary_draws=draws.astype(np.int64).reshape(shape),
    )


def _cell_sums(sides: tuple[Places, Places], data: FlowArrays, n: int) -> tuple[Ints, Floats]:
    """Return the sums of each cell: inappropriate and necessary pairs, [2, cells]; 1 - q of the first, N and r of the
    second, [3, cells]."""
    wrong, needed = data.inappropriate, data.necessary
    size = len(sides[0]) * len(sides[1])
    # One side after the other: with both held at once these millions of cells take twice as long.
    cells = [
        sides[0].of(data, part.owners, part.contexts) * len(sides[1]) + sides[1].of(data, part.owners, part.contexts)
        for part in (wrong, needed)
    ]
    leak = 1.0 - no_leak_probabilities(wrong.kinds[:, 1], wrong.kinds[:, 0], n)
    leaked = np.bincount(cells[0], weights=wrong.each(leak), minlength=size)
    totals = [np.bincount(cells[1], weights=needed.each(needed.kinds[:, k]), minlength=size) for k in (0, 1)]
    return np.stack([np.bincount(cell, minlength=size) for cell in cells]), np.stack([leaked, *totals])


def _ratio(part: npt.NDArray[Any], total: npt.NDArray[Any]) -> Floats:
    return np.where(total > 0, part / np.maximum(total, 1), np.nan)


MEASURES = ("violation", "completeness")


def on_places(grid: Grid, first: Grid) -> Grid:
    """Return the values of a heatmap on the rows and columns of another one, in its order. Places that it lacks are
    empty; places that it has alone are left out."""
    rows, columns = (
        np.array([side.ids.index(i) if i in side.ids else -1 for i in other.ids], np.int64)
        for side, other in ((grid.rows, first.rows), (grid.columns, first.columns))
    )
    to, of = np.ix_(rows >= 0, columns >= 0), np.ix_(rows[rows >= 0], columns[columns >= 0])

    values: dict[str, Any] = {}
    for name in VALUES:
        values[name] = np.full((len(rows), len(columns)), np.nan if name in MEASURES else 0)
        values[name][to] = getattr(grid, name)[of]
    return replace(grid, rows=first.rows, columns=first.columns, **values)


def same_pairs(first: Grid, second: Grid) -> bool:
    """Return whether both rest on as many pairs in every cell; if not, the cells compare different flows."""
    names = [f"{measure}_pairs" for measure in MEASURES]
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in names)


def as_frame(grid: Grid, second: Grid | None = None) -> pd.DataFrame:
    """Return one row a cell, row by row: `row`, `column` (in full), violation, violation_pairs, completeness,
    completeness_pairs, `row_id`, `column_id`.

    second: another run on the same places. Then every number is there once for each run (violation_first,
    violation_second), with violation_difference and completeness_difference, second - first: nan where either has no
    pair, since what is missing on one side is no change."""
    height, width = len(grid.rows), len(grid.columns)
    sides: dict[str, Any] = {}
    for name, side, repeat in (("row", grid.rows, True), ("column", grid.columns, False)):
        for key, texts in ((name, side.titles), (f"{name}_id", side.ids)):
            cells = np.array([*texts, ""], dtype=object)[:-1]  # of one text alone numpy would make its letters
            sides[key] = np.repeat(cells, width) if repeat else np.tile(cells, height)
    names = ("violation", "violation_pairs", "completeness", "completeness_pairs")
    grids = {"": grid} if second is None else {"_first": grid, "_second": second}
    numbers = {f"{name}{end}": getattr(of, name).reshape(-1) for name in names for end, of in grids.items()}
    if second is not None:
        numbers |= {
            f"{measure}_difference": (getattr(second, measure) - getattr(grid, measure)).reshape(-1)
            for measure in MEASURES
        }
    ids = {name: sides.pop(name) for name in ("row_id", "column_id")}
    return pd.DataFrame({**sides, **numbers, **ids})


def as_first(flows: Flows, scope: Scope, run_id: str) -> tuple[Scope, str]:
    """Return another run held against the same labels and counted as the first is, and a remark on what could not be
    the same ('' if all is): a judge that did not judge this run is replaced by the run's first one."""
    labelling = scope.labelling.id if scope.labelling else None

    def by(judge: str | None) -> Scope:
        other = resolve_scope(flows.store, run_id, labelling, judge, scope.verdicts, grounded=scope.grounded)
        return replace(other, labels=scope.labels, rule=scope.rule)

    for wanted in [str(scope.combine)] if scope.panel else [str(scope.judge.id), scope.judge.name]:
        try:
            return by(wanted), ""
        except StoreError:
            continue  # this run was judged by others
    other = by(None)
    return other, f"{scope.judge_text} did not judge {other.run.name}: its claims are those of {other.judge_text}"


def flows_of_both(
    flows: Flows,
    scope: Scope,
    other: Scope,
    cell: Mapping[By, str],
    n: int,
    rule: IdentifierRule = IdentifierRule.EXACT,
    page: tuple[int, int] | None = None,
) -> pd.DataFrame:
    """Return the flows of one cell in two runs, in the columns of cell_flows, those that differ most first.
    reveals_other and draws_other are null where a run has not the flow; `more_in_other` says whether the second run
    reveals it in a larger share of its samples. page: as in cell_flows."""
    (first, values), (second, of_second) = (_cell(flows, own, cell, rule) for own in (scope, other))
    second = second.replace("{flow}", flows.table(other))
    sql = _BOTH.replace("{first}", first).replace("{second}", second).replace("{page}", _paged(page))
    frame = flows.query(scope, sql, [*values, *of_second])
    counts = ["reveals", "draws", "reveals_other", "draws_other"]
    frame = frame.astype(dict.fromkeys(counts, np.float64))  # nan where a run has not the flow
    # Violation is that of the first run where it has the flow, else of the second.
    own = frame.assign(**{k: frame[k].fillna(frame[f"{k}_other"]).astype(np.int64) for k in ("reveals", "draws")})
    worded = _worded(flows, scope, own, n).assign(reveals=frame["reveals"], draws=frame["draws"])
    before, after = ((frame[r] / frame[d]).fillna(0.0) for r, d in (counts[:2], counts[2:]))
    return worded[[*worded.columns.drop(counts[2:]), *counts[2:]]].assign(more_in_other=after > before)


# In the order of flows_of_both: what the first has not counts as 0, and stands after what ties with it.
_BOTH = """
    WITH one AS ({first}), two AS ({second})
    SELECT profile, attribute, coalesce(one.key, two.key) AS key, coalesce(one.domain, two.domain) AS domain,
           coalesce(one.event, two.event) AS event, context, coalesce(one.label, two.label) AS label,
           coalesce(one.decided, two.decided) AS decided, one.reveals AS reveals, one.draws AS draws,
           two.reveals AS reveals_other, two.draws AS draws_other
    FROM one FULL JOIN two USING (profile, attribute, context)
    ORDER BY abs(coalesce(two.reveals::DOUBLE / two.draws, 0) - coalesce(one.reveals::DOUBLE / one.draws, 0)) DESC,
             one.draws IS NULL, coalesce(one.label, two.label) DESC,
             coalesce(one.reveals::DOUBLE / one.draws, two.reveals::DOUBLE / two.draws) DESC, profile,
             coalesce(one.ordinal, two.ordinal), context
    {page}
"""


MOST_CLUSTERED = 400  # ordering leaves takes cubic time


class Order(StrEnum):
    """Orders of places. DATASET: as the dataset has them; ALIKE: by clustering, like beside like."""

    DATASET = "dataset"
    NAME = "name"
    VIOLATION = "violation"
    COMPLETENESS = "completeness"
    ALIKE = "alike"


def most_leaked(grid: Grid, most: int) -> Grid:
    """Return the rows with the most leaked pairs (share x pairs), at most so many, in the order that they stand in."""
    if len(grid.rows) <= most:
        return grid
    leaked = (np.where(grid.violation_pairs > 0, grid.violation, 0.0) * grid.violation_pairs).sum(axis=1)
    pairs = grid.violation_pairs.sum(axis=1) + grid.completeness_pairs.sum(axis=1)
    # The last key of lexsort is the first to sort by; np.sort puts the chosen rows back into their order.
    return grid.take(np.sort(np.lexsort((-pairs, -leaked))[:most]), np.arange(len(grid.columns)))


def orders(
    grid: Grid, rows: Order, columns: Order, groups: Sequence[str] = (), second: Grid | None = None
) -> tuple[Ints, Ints]:
    """Return the positions of rows and of columns in these orders. By value: the highest first, by the pooled value of
    the row or column, those without any pair last. groups: of each column; columns of one group stand together, where
    its first one does. second: another run on the same places; by value is then by the difference of the pooled values,
    the largest rise first."""
    pooled = {measure: grid.pooled(measure) for measure in MEASURES}
    values = [getattr(grid, measure) for measure in MEASURES]
    if second is not None:
        after = {measure: second.pooled(measure) for measure in MEASURES}
        pooled = {m: (after[m][0] - pooled[m][0], after[m][1] - pooled[m][1]) for m in MEASURES}
        values = [getattr(second, measure) - value for measure, value in zip(MEASURES, values, strict=True)]
    sides: list[Ints] = []
    for side, order in enumerate((rows, columns)):
        names = (grid.rows, grid.columns)[side].names
        match order:
            case Order.NAME:
                sides.append(np.array(sorted(range(len(names)), key=lambda i: (names[i].casefold(), i)), np.int64))
            case Order.VIOLATION | Order.COMPLETENESS:
                sides.append(by_value(pooled[order][side]))
            case Order.ALIKE:
                beside = np.concatenate(values, axis=1 - side)
                sides.append(cluster_order(beside if side == 0 else beside.T))
            case _:
                sides.append(np.arange(len(names)))
    if groups:
        first = {groups[i]: place for place, i in reversed(list(enumerate(sides[1].tolist())))}
        sides[1] = np.array(sorted(sides[1].tolist(), key=lambda i: first[groups[i]]), np.int64)
    return sides[0], sides[1]


def spheres(flows: Flows, scope: Scope, columns: Places) -> dict[str, str]:
    """Return the sphere of each context or recipient by its id, where a recipient has several that of its first
    context; empty for other places."""
    if columns.by not in (By.CONTEXT, By.RECIPIENT):
        return {}
    side = places(flows, scope, By.SPHERE)
    spheres = {int(place): side.names[side.codes[at]] for at, place in reversed(list(enumerate(columns.codes)))}
    return {columns.ids[place]: name for place, name in spheres.items()}


def by_value(values: Floats) -> Ints:
    """Return positions from the highest value to the lowest, equal ones as they stand, nan last. values: [places]."""
    # Defined values before nan, then the highest first; lexsort is stable.
    return np.lexsort((-np.nan_to_num(values, nan=0.0), np.isnan(values)))


def cluster_order(values: Floats) -> Ints:
    """Return positions that put like places side by side: average linkage with optimal leaf order (scipy). values:
    [places, cells], nan where a cell has no pair.

    Two places are as far apart as their values are on average (root mean square) over the cells that both have. Places
    that share no cell are as far apart as the others are on average. Places without any value come last, as they stand,
    and so do those beyond MOST_CLUSTERED.
    """
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    defined = np.flatnonzero(~np.isnan(values).all(axis=1))[:MOST_CLUSTERED] if values.size else np.arange(0)
    rest = np.setdiff1d(np.arange(len(values)), defined)
    # Two places can only stand beside each other.
    if len(defined) < 3:
        return np.concatenate([defined, rest]).astype(np.int64)
    distances = squareform(_distances(values[defined]), checks=False)
    leaves: npt.NDArray[np.int64] = leaves_list(linkage(distances, method="average", optimal_ordering=True))
    if leaves[0] > leaves[-1]:  # either end may come first: the one that the dataset has first
        leaves = leaves[::-1]
    return np.concatenate([defined[leaves], rest]).astype(np.int64)


def _distances(values: Floats) -> Floats:
    """Return distances [places, places], from products of matrices: no array of places x places x cells."""
    defined = (~np.isnan(values)).astype(np.float64)
    filled = np.nan_to_num(values, nan=0.0)
    both = defined @ defined.T
    # (x - y)^2 = x^2 + y^2 - 2xy over cells that both have: a cell that either lacks is 0 in all three terms.
    squares = (filled**2) @ defined.T
    # Rounding may leave a distance of 0 a little below it.
    apart = np.maximum(squares + squares.T - 2.0 * filled @ filled.T, 0.0)
    means = np.where(both > 0, apart / np.maximum(both, 1.0), np.nan)
    # Rounding may leave a place a little away from itself.
    np.fill_diagonal(means, 0.0)
    off = means[~np.eye(len(values), dtype=np.bool_)]
    usual = float(off[~np.isnan(off)].mean()) if (~np.isnan(off)).any() else 0.0
    distances: Floats = np.sqrt(np.where(np.isnan(means), usual, means))
    return distances

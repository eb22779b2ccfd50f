"""The order of a heatmap's rows and columns, and which rows are shown where there are too many."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from cimemories.analysis.cube import Floats, Ints
from cimemories.analysis.heatmap import Grid
from cimemories.analysis.heatmap_difference import MEASURES, Difference

MOST_CLUSTERED = 400  # ordering leaves takes cubic time


class Order(StrEnum):
    """How places are put in order. DATASET: as the dataset has them; ALIKE: by clustering, like beside like."""

    DATASET = "dataset"
    NAME = "name"
    VIOLATION = "violation"
    COMPLETENESS = "completeness"
    ALIKE = "alike"


def most_leaked(found: Grid, most: int) -> Grid:
    """The rows with the most leaked pairs (share x pairs), at most so many, in the order that they stand in."""
    if len(found.rows) <= most:
        return found
    leaked = (np.where(found.violation_pairs > 0, found.violation, 0.0) * found.violation_pairs).sum(axis=1)
    pairs = found.violation_pairs.sum(axis=1) + found.completeness_pairs.sum(axis=1)
    return found.take(np.sort(np.lexsort((-pairs, -leaked))[:most]), np.arange(len(found.columns)))


def ordered(found: Grid, rows: Order, columns: Order) -> Grid:
    """The same heatmap with its sides in order. By value: the highest first, by the pooled value of the whole row or
    column, those without any pair last."""
    pooled = {measure: found.pooled(measure) for measure in MEASURES}
    return found.take(*_orders(found, pooled, (found.violation, found.completeness), (rows, columns)))


def ordered_difference(both: Difference, rows: Order, columns: Order) -> Difference:
    """The same of two runs: by value is by the difference of the pooled values, the largest rise first."""
    pooled = {}
    for measure in MEASURES:
        before, after = both.first.pooled(measure), both.second.pooled(measure)
        pooled[measure] = (after[0] - before[0], after[1] - before[1])
    order = _orders(both.first, pooled, (both.of("violation"), both.of("completeness")), (rows, columns))
    return Difference(both.first.take(*order), both.second.take(*order))


def _orders(
    found: Grid, pooled: Mapping[str, tuple[Floats, Floats]], values: tuple[Floats, Floats], how: tuple[Order, Order]
) -> tuple[Ints, Ints]:
    sides: list[Ints] = []
    for side, wanted in enumerate(how):
        names = (found.rows if side == 0 else found.columns).names
        match wanted:
            case Order.NAME:
                sides.append(np.array(sorted(range(len(names)), key=lambda i: (names[i].casefold(), i)), np.int64))
            case Order.VIOLATION | Order.COMPLETENESS:
                sides.append(by_value(pooled[wanted][side]))
            case Order.ALIKE:
                beside = np.concatenate(values, axis=1 - side)
                sides.append(alike(beside if side == 0 else beside.T))
            case _:
                sides.append(np.arange(len(names)))
    return sides[0], sides[1]


def by_value(values: Floats) -> Ints:
    """Positions from the highest value to the lowest, equal ones as they stand, nan last. values: [places]."""
    return np.lexsort((-np.nan_to_num(values, nan=0.0), np.isnan(values)))


def alike(values: Floats) -> Ints:
    """Positions so that like places stand beside each other: average linkage with optimal leaf order (scipy). values:
    [places, cells], nan where a cell has no pair.

    Two places are as far apart as their values are on average (root mean square) over the cells that both have; where
    they share none, as the pairs of places are that do share some. Places without any value come last, as they stand,
    and so do those beyond MOST_CLUSTERED.
    """
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    known = np.flatnonzero(~np.isnan(values).all(axis=1))[:MOST_CLUSTERED] if values.size else np.arange(0)
    rest = np.setdiff1d(np.arange(len(values)), known)
    if len(known) < 3:
        return np.concatenate([known, rest]).astype(np.int64)
    distances = squareform(_distances(values[known]), checks=False)
    leaves: npt.NDArray[np.int64] = leaves_list(linkage(distances, method="average", optimal_ordering=True))
    if leaves[0] > leaves[-1]:  # either end may come first: the one that the dataset has first
        leaves = leaves[::-1]
    return np.concatenate([known[leaves], rest]).astype(np.int64)


def _distances(values: Floats) -> Floats:
    """[places, places], from products of matrices: no array of places x places x cells."""
    there = (~np.isnan(values)).astype(np.float64)
    filled = np.nan_to_num(values, nan=0.0)
    both = there @ there.T
    squares = (filled**2) @ there.T
    apart = np.maximum(squares + squares.T - 2.0 * filled @ filled.T, 0.0)
    means = np.where(both > 0, apart / np.maximum(both, 1.0), np.nan)
    np.fill_diagonal(means, 0.0)
    off = means[~np.eye(len(values), dtype=np.bool_)]
    usual = float(off[~np.isnan(off)].mean()) if (~np.isnan(off)).any() else 0.0
    distances: Floats = np.sqrt(np.where(np.isnan(means), usual, means))
    return distances

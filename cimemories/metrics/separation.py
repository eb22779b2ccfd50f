"""Tests that separate the highest of a family of numbers (cells of a heatmap, groups of a breakdown) from the others,
and the cells in which two runs differ.

Something is always the highest, of equals too. So a number is said to be the most only where tests separate it from
every other of its family: k - 1 comparisons with it, p adjusted by Holm. That claim as a whole is false in at most 5 %
of cases although the highest was picked after looking, since all k - 1 have to agree (an intersection-union test:
Berger 1982, Technometrics 24, 295-300). Where they do not all agree, it is said how many others are not separable;
then any of the k (k - 1) / 2 pairs might have been the one that was picked, and each p counts k / 2 times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import betainc, stdtr

from cimemories.flows.arrays import Entries, Floats, FlowArrays, IdentifierRule, Ints
from cimemories.flows.flows import Flows, cached
from cimemories.flows.processes import added, each_block
from cimemories.flows.scope import Scope
from cimemories.metrics.places import By, Places, places
from cimemories.metrics.uncertainty import LEAST_USERS, Terms, difference_interval, holm, violation_terms
from cimemories.metrics.violation import no_leak_probabilities, no_leak_probability

SIGNIFICANT = 0.05  # a difference is claimed below this p, after the adjustment for its family


def separates(p: float) -> bool:
    """Return whether a test with this (adjusted) p separates two numbers; False for nan."""
    return p < SIGNIFICANT


@dataclass(frozen=True)
class Standing:
    """The highest of a family. first: its position; value: its number. ties: how many others have the very same number.
    others: how many others there are; indistinguishable: how many of them no test separates from it, ties included."""

    first: int
    value: float
    ties: int
    others: int
    indistinguishable: int

    @property
    def clear(self) -> bool:
        """True if there are others, and tests separate it from all of them."""
        return self.others > 0 and not self.indistinguishable


def standing(
    values: Sequence[float] | Floats, p: Sequence[float] | Floats, first: int | None = None
) -> Standing | None:
    """Return how the highest of `values` stands to the others. values, p: [k], nan where undefined; p: two-sided, of
    each against the highest, in that direction (1 where the data say the opposite); that of the highest itself is
    ignored. first: its position, None: the first of the highest. None where no value is defined."""
    numbers = np.asarray(values, np.float64)
    defined = np.flatnonzero(~np.isnan(numbers))
    if not defined.size:
        return None
    first = int(defined[numbers[defined].argmax()]) if first is None else first
    rest = defined[defined != first]
    tests = np.asarray(p, np.float64)[rest]
    # A number that cannot be tested is not separated, and stays in the family.
    tests = np.where(np.isnan(tests) | (numbers[rest] >= numbers[first]), 1.0, tests)
    ties = int((numbers[rest] == numbers[first]).sum())
    if all(map(separates, holm(tests.tolist()))):
        return Standing(first, float(numbers[first]), ties, len(rest), 0)
    adjusted = holm(np.minimum(1.0, tests * (len(rest) + 1) / 2).tolist())
    return Standing(first, float(numbers[first]), ties, len(rest), sum(not separates(value) for value in adjusted))


# ---- cells of a heatmap


@dataclass(frozen=True)
class Cell:
    """The cell of a heatmap in which most goes wrong, by the number of its pairs: row, column (short names); share: of
    its pairs; pairs: how many it has; standing: of its number among those of all cells that have a pair."""

    row: str
    column: str
    share: float
    pairs: int
    standing: Standing


def fewer_by_chance(more: Floats | float, fewer: Floats) -> Floats:
    """Return the two-sided p of two counts with equal chances: the exact binomial test with 1/2, interpolated for
    fractional sums. Any shape; 1 where both are 0."""
    larger, smaller = np.maximum(more, fewer), np.minimum(more, fewer)
    tail = betainc(np.maximum(larger, 1e-12), smaller + 1.0, 0.5)
    return np.where(larger > 0, np.minimum(1.0, 2.0 * tail), 1.0)


def largest_count(counts: Sequence[int]) -> Standing | None:
    """Return how the largest count stands to the others, taking each one counted as independent; None for no counts."""
    numbers = np.array(counts, np.float64)
    return standing(numbers, fewer_by_chance(numbers.max(initial=0), numbers))


def mean_p(sums: Floats, squares: Floats, clusters: int) -> Floats:
    """Return the two-sided p of sums over so many clusters against 0, by Student's t of the clusters' parts. squares:
    of the parts, summed. 1 where nothing varies, or there is one cluster alone."""
    if clusters < 2:
        return np.ones(np.shape(sums))
    variance = np.maximum(squares - sums**2 / clusters, 0.0) * clusters / (clusters - 1)
    varies = variance > 1e-12
    t = np.abs(sums) / np.sqrt(np.where(varies, variance, 1.0))
    return np.where(varies, 2.0 * stdtr(clusters - 1, -t), 1.0)


@dataclass(frozen=True)
class CellSums:
    """Sums of each cell of a heatmap: of a number of its flows (what is wrong with each, or how it changed), rises and
    falls apart, the squares of its sums by cluster, and how many flows it has. clusters: how many have any flow. Those
    of blocks of profiles add up where no cluster is in two of them."""

    sums: Floats
    rises: Floats
    falls: Floats
    squares: Floats
    pairs: Ints
    clusters: int

    @classmethod
    def of(cls, cells: Ints, clusters: Ints, values: Floats, number: int, of: int) -> CellSums:
        """Sum values by cell. values: [flows], -1 to 1; cells, clusters: [flows], positions below number, of."""
        cell, _, parts = _by_cluster(cells, clusters, values, number, of)

        def summed(at: Ints, what: Floats) -> Floats:
            return np.bincount(at, weights=what, minlength=number).astype(np.float64)

        return cls(
            summed(cells, values),
            summed(cells, np.maximum(values, 0)),
            summed(cells, np.maximum(-values, 0)),
            summed(cell, parts**2),
            np.bincount(cells, minlength=number),
            int(np.count_nonzero(np.bincount(clusters, minlength=of))),
        )

    @property
    def first(self) -> int | None:
        """Cell with the highest sum; None without a flow."""
        with_any = self.pairs > 0
        return int(np.nanargmax(np.where(with_any, self.sums, np.nan))) if with_any.any() else None

    def p(self) -> Floats:
        """Return p of each cell if its flows changed by chance alone: the larger one of Student's t over clusters and
        the exact sign test."""
        tested = mean_p(self.sums, self.squares, self.clusters), fewer_by_chance(self.rises, self.falls)
        larger: Floats = np.maximum(*tested)
        return larger

    def standing(self, first: int, common: Floats) -> Standing | None:
        """Return how the first cell stands to the others. common: `shared_with` it. p is the larger one of two: that of
        the differences between clusters, and the exact binomial one, since few pairs may happen not to vary."""
        values = np.where(self.pairs > 0, self.sums, np.nan)
        apart = values[first] - self.sums
        p = np.maximum(
            mean_p(apart, self.squares[first] + self.squares - 2 * common, self.clusters),
            fewer_by_chance(np.full(len(values), values[first]), self.sums),
        )
        return standing(values, np.where(self.pairs > 0, p, np.nan), first)


def shared_with(first: int, cells: Ints, clusters: Ints, values: Floats, number: int, of: int) -> Floats:
    """Sum over clusters the products of each cell's part and that of the first: [cells]."""
    cell, cluster, parts = _by_cluster(cells, clusters, values, number, of)
    own = np.zeros(of)
    own[cluster[cell == first]] = parts[cell == first]
    common: Floats = np.bincount(cell, weights=parts * own[cluster], minlength=number).astype(np.float64)
    return common


DENSE = 8_000_000  # cells x clusters up to which one count is quicker than sorting the flows: 64 MB of sums


def _by_cluster(cells: Ints, clusters: Ints, values: Floats, number: int, of: int) -> tuple[Ints, Ints, Floats]:
    """Sum values by cell and cluster, of those that have any: (cells, clusters, sums)."""
    keys = cells.astype(np.int64) * of + clusters
    if number * of <= DENSE:
        sums: Floats = np.bincount(keys, weights=values, minlength=number * of).astype(np.float64)
        there = np.flatnonzero(sums)
        return there // of, there % of, sums[there]
    there, at = np.unique(keys, return_inverse=True)
    return there // of, there % of, np.bincount(at.reshape(-1), weights=values).astype(np.float64)


@cached
def worst_cell(
    flows: Flows,
    scope: Scope,
    rows: By,
    columns: By,
    n: int,
    measure: str = "violation",
    rule: IdentifierRule = IdentifierRule.EXACT,
) -> Cell | None:
    """Return the cell with the most leaked pairs (violation: each counts by its 1 - q), or the most necessary ones left
    out (completeness: each by 1 - r / N), and how it stands to the others. None where no cell has a pair."""
    sides = places(flows, scope, rows), places(flows, scope, columns)
    options = _CellOptions(sides, n, measure, By.PROFILE not in (rows, columns))
    results = list(each_block(flows, [scope], rule, _sums_of_cells, options))
    # Too few users say nothing of users: attributes are the clusters then.
    if options.by_user and sum(each.clusters for each in results) < LEAST_USERS:
        options = replace(options, by_user=False)
        results = list(each_block(flows, [scope], rule, _sums_of_cells, options))
    sums = added(results)
    if sums.first is None:
        return None
    common = np.sum(list(each_block(flows, [scope], rule, _shared_with_cell, options, sums.first)), axis=0)
    result = sums.standing(sums.first, common)
    if result is None:
        return None
    row, column = divmod(result.first, len(sides[1]))
    pairs = int(sums.pairs[result.first])
    return Cell(sides[0].names[row], sides[1].names[column], result.value / pairs, pairs, result)


@dataclass(frozen=True)
class _CellOptions:
    """Options of the cells of a heatmap: its sides, n and measure, and whether users are the clusters, else
    attributes."""

    sides: tuple[Places, Places]
    n: int
    measure: str
    by_user: bool

    @property
    def number(self) -> int:
        return len(self.sides[0]) * len(self.sides[1])

    def of(self, data: FlowArrays) -> Ints:
        """Return the cell of each flow of a block."""
        part = self.entries(data)
        rows, columns = (side.of(data, part.owners, part.contexts) for side in self.sides)
        return rows * len(self.sides[1]) + columns

    def entries(self, data: FlowArrays) -> Entries:
        """Return the flows that the measure rests on."""
        return data.inappropriate if self.measure == "violation" else data.necessary


def _sums_of_cells(
    flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays], options: _CellOptions
) -> CellSums:
    return CellSums.of(*_cells(every[0], options))


def _shared_with_cell(
    flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays], options: _CellOptions, first: int
) -> Floats:
    return shared_with(first, *_cells(every[0], options))


def _cells(data: FlowArrays, options: _CellOptions) -> tuple[Ints, Ints, Floats, int, int]:
    """Return, of the flows of a block, cell, cluster, and what is wrong; and the numbers of cells and clusters."""
    part = options.entries(data)
    # Each cell's number is that of `heatmap.grid`: its share times its pairs.
    chance = (
        1.0 - no_leak_probabilities(part.kinds[:, 1], part.kinds[:, 0], options.n)
        if options.measure == "violation"
        else 1.0 - part.kinds[:, 1] / np.maximum(part.kinds[:, 0], 1)
    )
    clusters, of = _clusters(part, by_user=options.by_user)
    return options.of(data), clusters, np.asarray(part.each(chance), np.float64), options.number, of


def _clusters(part: Entries, *, by_user: bool) -> tuple[Ints, int]:
    """Return the cluster of each flow, and how many there may be: users, or attributes where there are too few users or
    each cell is of one user alone."""
    profiles, attributes, _ = part.shape
    if by_user:
        return (part.owners // max(attributes, 1)).astype(np.int64), max(profiles, 1)
    return part.owners.astype(np.int64), max(profiles * attributes, 1)


@dataclass(frozen=True)
class Widest:
    """The cell where the flows that both runs have judged changed most: names of row and column, the mean change in
    percentage points, of how many pairs, and whether a test tells it from none."""

    row: str
    column: str
    points: float
    pairs: int
    clear: bool


@dataclass(frozen=True)
class CellChanges:
    """Cells of two heatmaps that a test tells apart, on flows that both runs have judged. cells: how many share a pair
    (the family, p adjusted by Holm); higher, lower: in how many the second is, by the test. pairs: that are shared.
    widest: None without one."""

    cells: int
    higher: int
    lower: int
    pairs: int
    widest: Widest | None


def cell_changes(
    flows: Flows,
    scopes: tuple[Scope, Scope],
    sides: tuple[Places, Places],
    n: int,
    measure: str,
    rule: IdentifierRule = IdentifierRule.EXACT,
) -> CellChanges:
    """Test the second run against the first in every cell. sides: the places of the first run."""
    options = _CellOptions(sides, n, measure, By.PROFILE not in (sides[0].by, sides[1].by))
    results = list(each_block(flows, scopes, rule, _changes_of_cells, options))
    if options.by_user and sum(users for _, users in results) < LEAST_USERS:
        results = list(each_block(flows, scopes, rule, _changes_of_cells, replace(options, by_user=False)))
    total = added([each for each, _ in results])
    if not total.pairs.any():
        return CellChanges(0, 0, 0, 0, None)
    p = total.p()
    adjusted = np.array(holm(np.where(total.pairs > 0, p, np.nan).tolist()))
    clear = adjusted < SIGNIFICANT
    means = total.sums / np.maximum(total.pairs, 1)
    # Among cells that have a pair; rounded, so that equal changes are a tie, of which the first is taken.
    cell = int(np.where(total.pairs > 0, np.abs(means).round(12), -1.0).argmax())
    row, column = divmod(cell, len(sides[1]))
    return CellChanges(
        int((total.pairs > 0).sum()),
        int((clear & (total.sums > 0)).sum()),
        int((clear & (total.sums < 0)).sum()),
        int(total.pairs.sum()),
        Widest(
            sides[0].names[row],
            sides[1].names[column],
            100.0 * float(means[cell]),
            int(total.pairs[cell]),
            bool(clear[cell]),
        ),
    )


def _changes_of_cells(
    flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays], options: _CellOptions
) -> tuple[CellSums, int]:
    """Return the changes of a block, and how many users the first run has in it."""
    one, two = map(options.entries, every)
    _, (at, other) = _shared((one, two), every)
    counts = [part.kinds[part.outcomes[position]] for part, position in ((one, at), (two, other))]
    values = _change(counts[0], counts[1], options.n if options.measure == "violation" else None)
    clusters, of = _clusters(one, by_user=options.by_user)
    cells = options.of(every[0])[at]
    users = np.unique(one.owners // max(one.shape[1], 1)).size
    return CellSums.of(cells, clusters[at], values, options.number, of), users


def _shared(parts: Sequence[Entries], data: Sequence[FlowArrays]) -> tuple[Ints, tuple[Ints, Ints]]:
    """Return the flows that both have, and where they stand in either. A profile's attributes stand at the same
    positions in every run of a dataset."""
    most = 1 + max(max((*one.contexts, 0)) for one in data)
    width = max(part.shape[1] for part in parts)
    keys = []
    for part, one in zip(parts, data, strict=True):
        attributes = max(part.shape[1], 1)
        profile = np.array(one.profiles, np.int64)[part.owners // attributes]
        context = np.array(one.contexts, np.int64)[part.contexts]
        keys.append((profile * width + part.owners % attributes) * most + context)
    shared, at, other = np.intersect1d(keys[0], keys[1], assume_unique=True, return_indices=True)
    return shared, (at, other)


def _change(first: Ints, second: Ints, n: int | None) -> Floats:
    """Return second minus first of each flow. first, second: [flows, 3], kinds of Entries. n: of violation, read at as
    many samples as both have; None: shares of samples (completeness)."""
    if n is None:
        return np.asarray(second[:, 1] / second[:, 0] - first[:, 1] / first[:, 0])
    most = np.minimum(np.minimum(first[:, 0], second[:, 0]), n)
    kinds, at = np.unique(np.column_stack([first[:, :2], second[:, :2], most]), axis=0, return_inverse=True)
    values = [no_leak_probability(a, r, m) - no_leak_probability(b, s, m) for a, r, b, s, m in kinds.tolist()]
    return np.array(values)[at.reshape(-1)]


# ---- groups of a breakdown


@cached
def most_violated_group(
    flows: Flows, scope: Scope, by: By, n: int, rule: IdentifierRule = IdentifierRule.EXACT
) -> tuple[str, Standing] | None:
    """Return the group with the highest Violation@n, and how it stands to the others: on the profiles that have both,
    with users and contexts as crossed clusters; None where no group has any."""
    parts = list(each_block(flows, [scope], rule, _group_terms_of_block, by, n))
    groups = places(flows, scope, by).groups
    result = highest_group([Terms.joined([part[at] for part in parts]) for at in groups.values()])
    return None if result is None else (list(groups)[result.first], result)


def _group_terms_of_block(
    flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays], by: By, n: int
) -> list[Terms]:
    side = places(flows, scopes[0], by)
    return group_terms(every[0], side.codes_in(every[0]), len(side), n)


def group_terms(data: FlowArrays, codes: Ints, groups: int, n: int) -> list[Terms]:
    """Return the terms of each group, without the samples' part, which no test needs. codes: as of Places.codes_in."""
    mask, contexts = data.can_violate, np.arange(len(data.contexts))
    return [violation_terms(data.entries(mask & (codes == code)), n, contexts) for code in range(groups)]


def highest_group(terms: Sequence[Terms]) -> Standing | None:
    """Return how the group with the highest number stands to the others; None where no group has a number."""
    values = [term.value for term in terms]
    if all(map(math.isnan, values)):
        return None
    first = int(np.nanargmax(values))
    p = []
    for term in terms:
        apart = difference_interval(terms[first].combined(1.0, term, -1.0))
        # On the profiles that have both groups the other one may be higher.
        p.append(apart.p if apart.value > 0 else 1.0)
    return standing(values, p, first)

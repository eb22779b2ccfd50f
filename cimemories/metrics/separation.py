"""What a test separates: the highest of a family of numbers from the others, be they cells of a heatmap or groups of a
breakdown, and the cells in which two runs differ.

Something is always the highest, of equals too. So a number is said to be the most only where tests separate it from
every other of its family: k - 1 comparisons with it, p adjusted by Holm. That claim as a whole is false in at most 5 %
of cases although the highest was picked after looking, since all k - 1 have to agree (an intersection-union test:
Berger 1982, Technometrics 24, 295-300). Where they do not all agree, it is said how many others are not separable;
then any of the k (k - 1) / 2 pairs might have been the one that was picked, and each p counts k / 2 times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, stdtr

from cimemories.flows.arrays import (
    Bools,
    Entries,
    Floats,
    FlowArrays,
    IdentifierRule,
    Ints,
    counted_flows,
    entries,
    flow_arrays,
    inappropriate_mask,
)
from cimemories.flows.flows import Flows, cached
from cimemories.flows.scope import Scope
from cimemories.metrics import heatmap
from cimemories.metrics.breakdown import By, Grouping, grouping
from cimemories.metrics.uncertainty import LEAST_USERS, difference_interval, holm, violation_terms
from cimemories.metrics.violation import no_leak_probabilities, no_leak_probability

SIGNIFICANT = 0.05  # a difference is claimed below this p, after the adjustment for its family


def separates(p: float) -> bool:
    """Whether a test with this (adjusted) p separates two numbers; False where there is none (nan)."""
    return p < SIGNIFICANT


@dataclass(frozen=True)
class Standing:
    """The highest of a family. first: its position; value: its number. ties: how many others have the very same number.
    others: how many others there are; alike: how many of these no test separates from it, ties among them."""

    first: int
    value: float
    ties: int
    others: int
    alike: int

    @property
    def clear(self) -> bool:
        """Whether tests separate it from all others; False where there is none."""
        return self.others > 0 and not self.alike


def standing(
    values: Sequence[float] | Floats, p: Sequence[float] | Floats, first: int | None = None
) -> Standing | None:
    """How the highest of `values` stands to the others. values, p: [k], nan where undefined; p: two-sided, of each
    against the highest, in that direction (1 where the data say the opposite); that of the highest itself is ignored.
    first: its position, None: the first of the highest. None where no value is defined."""
    numbers = np.asarray(values, np.float64)
    defined = np.flatnonzero(~np.isnan(numbers))
    if not defined.size:
        return None
    first = int(defined[numbers[defined].argmax()]) if first is None else first
    rest = defined[defined != first]
    tests = np.asarray(p, np.float64)[rest]
    # What cannot be tested is not separated, and stays in the family.
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
    """Two-sided p of two counts that would be equal: of their sum each one goes to either side with 1/2 (the exact
    binomial test; sums of parts of one are between the whole ones). Any shape; 1 where both are 0."""
    larger, smaller = np.maximum(more, fewer), np.minimum(more, fewer)
    tail = betainc(np.maximum(larger, 1e-12), smaller + 1.0, 0.5)
    return np.where(larger > 0, np.minimum(1.0, 2.0 * tail), 1.0)


def largest_count(counts: Sequence[int]) -> Standing | None:
    """How the largest of these counts stands to the others, each one of a count taken as independent; None for none."""
    numbers = np.array(counts, np.float64)
    return standing(numbers, fewer_by_chance(numbers.max(initial=0), numbers))


def mean_p(sums: Floats, squares: Floats, clusters: int) -> Floats:
    """Two-sided p that sums over so many clusters are 0 but for chance: Student's t of the clusters' parts. squares: of
    the parts, summed. 1 where nothing varies, or there is one cluster alone."""
    if clusters < 2:
        return np.ones(np.shape(sums))
    variance = np.maximum(squares - sums**2 / clusters, 0.0) * clusters / (clusters - 1)
    known = variance > 1e-12
    t = np.abs(sums) / np.sqrt(np.where(known, variance, 1.0))
    return np.where(known, 2.0 * stdtr(clusters - 1, -t), 1.0)


def cell_standing(cells: Ints, clusters: Ints, wrong: Floats, number: int, of: int) -> Standing | None:
    """The cell with the highest sum of `wrong` against every other. cells, clusters: [flows], positions below number
    and of; wrong: [flows], 0 to 1. p is the larger one of two: that of the differences between clusters (users), and
    the exact binomial one, since few pairs may happen not to vary. None without a flow."""
    with_any = np.bincount(cells, minlength=number) > 0
    if not with_any.any():
        return None
    sums = np.where(with_any, np.bincount(cells, weights=wrong, minlength=number), np.nan)
    first = int(np.nanargmax(sums))
    cell, cluster, parts = _by_cluster(cells, clusters, wrong, number, of)
    own = np.zeros(of)
    own[cluster[cell == first]] = parts[cell == first]
    squares = np.bincount(cell, weights=parts**2, minlength=number)
    common = np.bincount(cell, weights=parts * own[cluster], minlength=number)
    used = int(np.count_nonzero(np.bincount(clusters, minlength=of)))
    apart = sums[first] - np.nan_to_num(sums)
    p = np.maximum(
        mean_p(apart, squares[first] + squares - 2 * common, used),
        fewer_by_chance(np.full(number, sums[first]), np.nan_to_num(sums)),
    )
    return standing(sums, np.where(with_any, p, np.nan), first)


DENSE = 8_000_000  # cells x clusters up to which one count is quicker than sorting the flows: 64 MB of sums


def _by_cluster(cells: Ints, clusters: Ints, values: Floats, number: int, of: int) -> tuple[Ints, Ints, Floats]:
    """Sums by cell and cluster, of those that have any: (cells, clusters, sums)."""
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
    rows: heatmap.By,
    columns: heatmap.By,
    n: int,
    measure: str = "violation",
    rule: IdentifierRule = IdentifierRule.EXACT,
) -> Cell | None:
    """The cell with the most leaked pairs (violation: each counts by its 1 - q), or with the most left out of what is
    necessary (completeness: each by 1 - r / N), and how it stands to the others. None where no cell has a pair."""
    counted = counted_flows(flows, scope, rule)
    part = counted.inappropriate if measure == "violation" else counted.necessary
    sides = heatmap.places(flows, scope, rows), heatmap.places(flows, scope, columns)
    width = len(sides[1])
    cells = sides[0].of(part.owners, part.contexts) * width + sides[1].of(part.owners, part.contexts)
    by_user = heatmap.By.PROFILE not in (rows, columns)
    clusters, of = _clusters(part, by_user=by_user)
    # Each cell's number is that of `heatmap.grid`: its share times its pairs.
    chance = (
        1.0 - no_leak_probabilities(part.kinds[:, 1], part.kinds[:, 0], n)
        if measure == "violation"
        else 1.0 - part.kinds[:, 1] / np.maximum(part.kinds[:, 0], 1)
    )
    wrong = np.asarray(part.each(chance), np.float64)
    result = cell_standing(cells, clusters, wrong, len(sides[0]) * width, of)
    if result is None:
        return None
    row, column = divmod(result.first, width)
    pairs = int((cells == result.first).sum())
    share = result.value / pairs
    return Cell(sides[0].names[row], sides[1].names[column], share, pairs, result)


def _clusters(part: Entries, *, by_user: bool) -> tuple[Ints, int]:
    """What the flows are clustered in, and how many there may be: users; attributes where there are too few users, or
    each cell is of one user alone."""
    profiles, attributes, _ = part.shape
    users = part.owners // max(attributes, 1)
    if by_user and np.unique(users).size >= LEAST_USERS:
        return users.astype(np.int64), max(profiles, 1)
    return part.owners.astype(np.int64), max(profiles * attributes, 1)


@dataclass(frozen=True)
class CellChanges:
    """Cells of two heatmaps that a test tells apart, on flows that both runs have judged: how many cells share a pair
    (the family, p adjusted by Holm), in how many the second is higher and in how many lower. widest: whether the cell
    that was asked for is one of them."""

    cells: int
    higher: int
    lower: int
    widest: bool


def cell_changes(
    flows: Flows,
    scopes: tuple[Scope, Scope],
    sides: tuple[heatmap.Places, heatmap.Places],
    n: int,
    measure: str,
    widest: tuple[str, str],
    rule: IdentifierRule = IdentifierRule.EXACT,
) -> CellChanges:
    """Tests of the second run against the first in every cell. sides: the places of the first run; widest: names of
    row and column of the cell with the largest difference."""
    first, second = (counted_flows(flows, scope, rule) for scope in scopes)
    data = [flow_arrays(flows, scope, rule) for scope in scopes]
    parts = [c.inappropriate if measure == "violation" else c.necessary for c in (first, second)]
    shared, (at, other) = _shared(parts, data)
    if not shared.size:
        return CellChanges(0, 0, 0, False)
    one, two = parts
    counts = [part.kinds[part.outcomes[position]] for part, position in ((one, at), (two, other))]
    values = _change(counts[0], counts[1], n if measure == "violation" else None)
    width = len(sides[1])
    owners, contexts = one.owners[at], one.contexts[at]
    cells = sides[0].of(owners, contexts) * width + sides[1].of(owners, contexts)
    by_user = heatmap.By.PROFILE not in (sides[0].by, sides[1].by)
    clusters, of = _clusters(one, by_user=by_user)
    p, sums, pairs = change_tests(cells, clusters[at], values, len(sides[0]) * width, of)
    adjusted = np.array(holm(np.where(pairs > 0, p, np.nan).tolist()))
    clear = adjusted < SIGNIFICANT
    names = sides[0].names, sides[1].names
    named = widest[0] in names[0] and widest[1] in names[1]
    cell = names[0].index(widest[0]) * width + names[1].index(widest[1]) if named else -1
    return CellChanges(
        int((pairs > 0).sum()),
        int((clear & (sums > 0)).sum()),
        int((clear & (sums < 0)).sum()),
        bool(cell >= 0 and clear[cell]),
    )


def change_tests(cells: Ints, clusters: Ints, changes: Floats, number: int, of: int) -> tuple[Floats, Floats, Ints]:
    """Of each cell: p that its flows changed by chance alone, the sum of their changes, and how many they are. changes:
    [flows], -1 to 1. p is the larger one of Student's t over clusters and the exact sign test."""
    sums: Floats = np.bincount(cells, weights=changes, minlength=number).astype(np.float64)
    rises: Floats = np.bincount(cells, weights=np.maximum(changes, 0), minlength=number).astype(np.float64)
    falls: Floats = np.bincount(cells, weights=np.maximum(-changes, 0), minlength=number).astype(np.float64)
    cell, _, parts = _by_cluster(cells, clusters, changes, number, of)
    squares: Floats = np.bincount(cell, weights=parts**2, minlength=number).astype(np.float64)
    used = int(np.count_nonzero(np.bincount(clusters, minlength=of)))
    p: Floats = np.maximum(mean_p(sums, squares, used), fewer_by_chance(rises, falls))
    return p, sums, np.bincount(cells, minlength=number)


def _shared(parts: Sequence[Entries], data: Sequence[FlowArrays]) -> tuple[Ints, tuple[Ints, Ints]]:
    """The flows that both have, and where they stand in either. A profile's attributes stand at the same positions in
    every run of a dataset."""
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
    """Second minus first of each flow. first, second: [flows, 3], kinds of Entries. n: of violation, read at as many
    samples as both have; None: shares of samples (completeness)."""
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
    """The group with the highest Violation@n, and how it stands to the others; None where no group has any."""
    groups = grouping(flows, scope, by, rule)
    result = group_standing(flow_arrays(flows, scope, rule), groups, n)
    return None if result is None else (groups.names[result.first], result)


def group_standing(data: FlowArrays, groups: Grouping, n: int) -> Standing | None:
    """`most_violated_group` of arrays: pure. Each other group is compared on the profiles that have both, with users
    and contexts as crossed clusters."""
    mask = inappropriate_mask(data.draws, data.labels, data.counted)
    codes = np.broadcast_to(groups.codes, mask.shape)
    contexts = np.arange(mask.shape[2])
    terms = []
    for code in range(len(groups.names)):
        inside: Bools = mask & (codes == code)
        terms.append(violation_terms(entries(inside, data.reveals, data.draws, data.read_at), n, contexts))
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

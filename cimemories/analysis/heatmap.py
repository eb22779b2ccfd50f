"""Heatmaps (paper, Figure 3): violation@n and completeness by two things, say information domain and context; and the
flows behind a cell.

A cell pools the flows of all profiles in retained contexts. Its violation@n is the mean over its inappropriate pairs of
1 - q, q the probability that n of the N judged samples reveal nothing; its completeness is sum r / sum N over its
necessary pairs. A cell without a pair has no value, which is not 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from cimemories.analysis.counted import counted_flows
from cimemories.analysis.cube import Floats, IdentifierRule, Ints, cube, retained
from cimemories.analysis.flows import Flows, Scope
from cimemories.analysis.heatmap_axes import By, Places, places
from cimemories.analysis.heatmap_flows import cell_flows, leaks
from cimemories.analysis.tally import quiet_of
from cimemories.store import datasets

__all__ = [
    "By",
    "Grid",
    "Places",
    "WorstCell",
    "as_frame",
    "cell_flows",
    "cells",
    "grid",
    "leaks",
    "least_complete",
    "places",
    "worst",
]


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
        """Whether no cell has any value."""
        return not (self.violation_pairs.any() or self.completeness_pairs.any())

    def pooled(self, measure: str) -> tuple[Floats, Floats]:
        """The same measure ('violation' or 'completeness') of each whole row and column: [rows], [columns]; nan without
        a pair."""
        values = self.violation if measure == "violation" else self.completeness
        pairs = self.violation_pairs if measure == "violation" else self.necessary_draws
        weighted = np.where(pairs > 0, values, 0.0) * pairs
        sides = []
        for axis in (1, 0):
            number = pairs.sum(axis=axis)
            sides.append(np.where(number > 0, weighted.sum(axis=axis) / np.maximum(number, 1), np.nan))
        return sides[0], sides[1]

    def take(self, rows: Ints, columns: Ints) -> Grid:
        """The same with these rows and columns, in this order (positions)."""
        at = np.ix_(rows, columns)
        return Grid(
            _taken(self.rows, rows),
            _taken(self.columns, columns),
            self.n,
            self.violation[at],
            self.violation_pairs[at],
            self.completeness[at],
            self.completeness_pairs[at],
            self.necessary_draws[at],
        )


def _taken(side: Places, order: Ints) -> Places:
    """`codes` are those of the whole side: they say where a flow is, not where it is shown."""
    chosen = [tuple(texts[i] for i in order) for texts in (side.ids, side.names, side.titles)]
    return Places(side.by, chosen[0], chosen[1], chosen[2], side.codes)


def grid(
    flows: Flows, asked: Scope, rows: By, columns: By, n: int, rule: IdentifierRule = IdentifierRule.EXACT
) -> Grid:
    """The heatmap of a run by two different things. Raises ValueError where they are the same, or n < 1."""
    if rows == columns:
        raise ValueError(f"a heatmap needs two different sides, both are {rows}")
    key = ("heatmap", asked.version, rows, columns, n, rule)
    return flows.remember(key, lambda: _grid(flows, asked, rows, columns, n, rule))


def _grid(flows: Flows, asked: Scope, rows: By, columns: By, n: int, rule: IdentifierRule) -> Grid:
    found = counted_flows(flows, asked, rule)
    wrong, needed = found.inappropriate, found.necessary
    down, across = places(flows, asked, rows), places(flows, asked, columns)
    shape = (len(down), len(across))
    cells = [
        down.of(part.owners, part.contexts) * shape[1] + across.of(part.owners, part.contexts)
        for part in (wrong, needed)
    ]
    seen = np.array([1.0 - quiet_of(total, revealed, n) for total, revealed in wrong.kinds.tolist()])
    pairs = [np.bincount(cell, minlength=shape[0] * shape[1]) for cell in cells]
    leaked = np.bincount(cells[0], weights=wrong.each(seen), minlength=len(pairs[0]))
    draws = np.bincount(cells[1], weights=needed.each(needed.kinds[:, 0]), minlength=len(pairs[1]))
    reveals = np.bincount(cells[1], weights=needed.each(needed.kinds[:, 1]), minlength=len(pairs[1]))
    return Grid(
        rows=down,
        columns=across,
        n=n,
        violation=_ratio(leaked, pairs[0]).reshape(shape),
        violation_pairs=pairs[0].reshape(shape),
        completeness=_ratio(reveals, draws).reshape(shape),
        completeness_pairs=pairs[1].reshape(shape),
        necessary_draws=draws.astype(np.int64).reshape(shape),
    )


def _ratio(part: npt.NDArray[Any], whole: npt.NDArray[Any]) -> Floats:
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)


def cells(flows: Flows, asked: Scope, n: int, rule: IdentifierRule = IdentifierRule.EXACT) -> pd.DataFrame:
    """Figure 3 as a table, one row a cell with any judged flow in a retained context: domain, context (id), task,
    recipient, sphere, violation_pairs, violation, completeness_pairs, completeness (null without a pair)."""
    data, found = cube(flows, asked, rule), grid(flows, asked, By.DOMAIN, By.CONTEXT, n, rule)
    p, a, c = np.nonzero(retained(data.labels)[:, None, :] & (data.draws > 0))
    row = found.rows.codes.reshape(data.counted.shape)[p, a]
    used = np.flatnonzero(np.bincount(c * len(found.rows) + row))
    there = np.stack([used // max(len(found.rows), 1), used % max(len(found.rows), 1)], axis=1)
    at = (there[:, 1], there[:, 0])
    with flows.store.read() as connection:
        contexts = {item.id: item.context for item in datasets.contexts(connection, asked.run.dataset)}
    ids = [data.contexts[i] for i in there[:, 0]]
    return pd.DataFrame(
        {
            "domain": [found.rows.ids[i] for i in there[:, 1]],
            "context": ids,
            "task": [contexts[i].task for i in ids],
            "recipient": [contexts[i].recipient for i in ids],
            "sphere": [contexts[i].sphere for i in ids],
            "violation_pairs": found.violation_pairs[at],
            "violation": found.violation[at],
            "completeness_pairs": found.completeness_pairs[at],
            "completeness": found.completeness[at],
        }
    )


def as_frame(found: Grid) -> pd.DataFrame:
    """A heatmap as a table, one row a cell, row by row: `row`, `column` (in full), `row_id`, `column_id`, violation,
    violation_pairs, completeness, completeness_pairs."""
    down, across = len(found.rows), len(found.columns)
    sides: dict[str, object] = {}
    for name, side, repeat in (("row", found.rows, True), ("column", found.columns, False)):
        for key, texts in ((name, side.titles), (f"{name}_id", side.ids)):
            words = np.array([*texts, ""], dtype=object)[:-1]
            sides[key] = np.repeat(words, across) if repeat else np.tile(words, down)
    names = ("violation", "violation_pairs", "completeness", "completeness_pairs")
    values = {name: getattr(found, name).reshape(-1) for name in names}
    frame = pd.DataFrame({**sides, **values})
    return frame[["row", "column", *names, "row_id", "column_id"]]


@dataclass(frozen=True)
class WorstCell:
    """The cell where most goes wrong: its violation@n or completeness, and the pairs that it rests on."""

    row: str
    column: str
    share: float
    pairs: int


def worst(found: Grid) -> WorstCell | None:
    """The cell in which most inappropriate pairs are violated (share x pairs); None where no cell has any."""
    return _worst(found, found.violation, found.violation, found.violation_pairs)


def least_complete(found: Grid) -> WorstCell | None:
    """The cell in which most necessary pairs are left out ((1 - share) x pairs); None where no cell has any."""
    return _worst(found, 1.0 - found.completeness, found.completeness, found.completeness_pairs)


def _worst(found: Grid, wrong: Floats, shares: Floats, pairs: Ints) -> WorstCell | None:
    if not pairs.any():
        return None
    weights = np.where(pairs > 0, wrong, -1.0) * pairs
    i, j = np.unravel_index(int(weights.argmax()), weights.shape)
    if not pairs[i, j]:  # nothing is wrong anywhere: any cell with a pair says so
        i, j = np.unravel_index(int(pairs.argmax()), weights.shape)
    return WorstCell(found.rows.names[i], found.columns.names[j], float(shares[i, j]), int(pairs[i, j]))

"""Two runs of a dataset as one heatmap: what the second does more or less than the first, cell by cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from cimemories.analysis.cube import Floats, IdentifierRule, Ints
from cimemories.analysis.flows import Flows, Scope
from cimemories.analysis.heatmap import By, Grid, as_frame
from cimemories.analysis.heatmap_flows import cell_flows
from cimemories.analysis.scopes import scope
from cimemories.store.engine import StoreError

KEYS = ["profile", "attribute", "context"]
MEASURES = ("violation", "completeness")


@dataclass(frozen=True)
class Change:
    """How a measure differs over the cells that both runs have a pair in: how many they are, in how many the second is
    higher and lower, and where it differs most, in percentage points (0.0 where nothing does)."""

    cells: int
    higher: int
    lower: int
    row: str
    column: str
    points: float


@dataclass(frozen=True)
class Difference:
    """Two heatmaps with the same rows and columns. A difference is second - first, -1 to 1, nan in a cell where either
    has no pair: what is missing on one side is no change."""

    first: Grid
    second: Grid

    def of(self, measure: str) -> Floats:
        """[rows, columns]. measure: 'violation' or 'completeness'."""
        found: Floats = getattr(self.second, measure) - getattr(self.first, measure)
        return found

    @property
    def same_pairs(self) -> bool:
        """Whether both rest on as many pairs in every cell; if not, the cells compare different flows."""
        return all(
            np.array_equal(getattr(self.first, f"{measure}_pairs"), getattr(self.second, f"{measure}_pairs"))
            for measure in MEASURES
        )

    def change(self, measure: str) -> Change:
        """What the difference comes to. measure: 'violation' or 'completeness'."""
        found = self.of(measure)
        known = ~np.isnan(found)
        if not known.any():
            return Change(0, 0, 0, "", "", 0.0)
        i, j = np.unravel_index(int(np.where(known, np.abs(found), -1.0).argmax()), found.shape)
        return Change(
            int(known.sum()),
            int((found[known] > 0).sum()),
            int((found[known] < 0).sum()),
            self.first.rows.names[i],
            self.first.columns.names[j],
            100.0 * float(found[i, j]),
        )


def difference(first: Grid, second: Grid) -> Difference:
    """Both on the places of the first, in its order; places that the second does not have are empty there, places that
    it has alone are left out."""
    rows, columns = (
        np.array([places.get(place, -1) for place in here.ids], dtype=np.int64)
        for here, places in (
            (first.rows, {place: i for i, place in enumerate(second.rows.ids)}),
            (first.columns, {place: i for i, place in enumerate(second.columns.ids)}),
        )
    )
    return Difference(first, replace(_aligned(second, rows, columns), rows=first.rows, columns=first.columns))


def _aligned(found: Grid, rows: Ints, columns: Ints) -> Grid:
    """Values of these rows and columns, -1 for one that is not there."""
    here, there = np.ix_(rows >= 0, columns >= 0), np.ix_(rows[rows >= 0], columns[columns >= 0])

    def shares(values: Floats) -> Floats:
        whole = np.full((len(rows), len(columns)), np.nan)
        whole[here] = values[there]
        return whole

    def counts(values: Ints) -> Ints:
        whole = np.zeros((len(rows), len(columns)), dtype=np.int64)
        whole[here] = values[there]
        return whole

    return replace(
        found,
        violation=shares(found.violation),
        violation_pairs=counts(found.violation_pairs),
        completeness=shares(found.completeness),
        completeness_pairs=counts(found.completeness_pairs),
        necessary_draws=counts(found.necessary_draws),
    )


def as_first(flows: Flows, asked: Scope, run_id: str) -> tuple[Scope, str]:
    """Another run held against the same labels, counted as the first is, and a word on what could not be the same (''
    where all is): a judge that this run has not is replaced by its first one."""
    labelling = asked.labelling.id if asked.labelling else None

    def by(judge: str | None) -> Scope:
        found = scope(flows.store, run_id, labelling, judge, asked.verdicts, grounded=asked.grounded)
        return replace(found, labels=asked.labels, rule=asked.rule)

    for wanted in [str(asked.combine)] if asked.panel else [str(asked.judge.id), asked.judge.name]:
        try:
            return by(wanted), ""
        except StoreError:
            continue  # this run was judged by others
    found = by(None)
    return found, f"{asked.judge_words} did not judge {found.run.name}: its claims are those of {found.judge_words}"


def difference_frame(found: Difference) -> pd.DataFrame:
    """One row a cell, as as_frame has it, every number once for the first and once for the second run, and the two
    differences."""
    keys = ["row", "column", "row_id", "column_id"]
    first, second = as_frame(found.first), as_frame(found.second)
    numbers = [name for name in first.columns if name not in keys]
    frame = first[keys].assign(
        **{f"{name}_{side}": part[name] for name in numbers for side, part in (("first", first), ("second", second))}
    )
    return frame.assign(**{f"{measure}_difference": found.of(measure).reshape(-1) for measure in MEASURES})


def flows_of_both(
    flows: Flows,
    asked: Scope,
    other: Scope,
    cell: Mapping[By, str],
    n: int,
    rule: IdentifierRule = IdentifierRule.EXACT,
) -> pd.DataFrame:
    """The flows of one cell in two runs, in the columns of cell_flows, those of the first before those that the second
    has alone; with reveals_other and draws_other (null where a run has not the flow) and `more_in_other`, whether the
    second reveals it in a larger share of its samples. Those that differ most are on top."""
    first, second = cell_flows(flows, asked, cell, n, rule), cell_flows(flows, other, cell, n, rule)
    counts = second[[*KEYS, "reveals", "draws"]]
    frame = first.merge(counts, how="left", on=KEYS, suffixes=("", "_other"))
    alone = second.merge(first[KEYS], how="left", on=KEYS, indicator="found").query("found == 'left_only'")
    alone = alone.drop(columns="found").rename(columns={"reveals": "reveals_other", "draws": "draws_other"})
    if len(alone):
        frame = pd.concat([frame, alone], ignore_index=True)
    before = (frame["reveals"] / frame["draws"]).astype(float).fillna(0.0)
    after = (frame["reveals_other"] / frame["draws_other"]).astype(float).fillna(0.0)
    frame = frame.assign(more_in_other=after > before, apart=(after - before).abs())
    return frame.sort_values("apart", ascending=False, kind="stable").drop(columns="apart").reset_index(drop=True)

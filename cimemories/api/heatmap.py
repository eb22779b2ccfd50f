"""A heatmap of a run, for a notebook: its cells as a frame, and the app's figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from cimemories.flows.arrays import IdentifierRule
    from cimemories.flows.flows import Flows
    from cimemories.flows.scope import Scope
    from cimemories.metrics.heatmap import Grid


@dataclass(frozen=True)
class Heatmap:
    """Shares of a run by two things (`Run.heatmap`). grid: the numbers as arrays [rows, columns]."""

    grid: Grid
    _flows: Flows
    _scope: Scope
    _rule: IdentifierRule

    def to_frame(self) -> pd.DataFrame:
        """One row a cell, row by row: row, column (names in full), violation (of the cell's inappropriate pairs, mean
        of the probability that n samples reveal it), violation_pairs, completeness (reveals over judged samples of its
        necessary pairs), completeness_pairs, row_id, column_id. A cell without a pair is nan, which is not 0."""
        from cimemories.metrics.heatmap import as_frame

        return as_frame(self.grid)

    def figure(self, measure: str = "both", *, rows: str = "dataset", columns: str = "dataset") -> go.Figure:
        """The Plotly figure of the page Heatmaps. measure: both, violation or completeness. rows, columns: their order:
        dataset, name, violation, completeness (highest first) or alike. Of more than 30 rows those with the most leaked
        pairs are drawn. Raises StoreError for another word."""
        from cimemories.charts.run_heatmap import BOTH, COMPLETENESS, VIOLATION, run_figure
        from cimemories.metrics.heatmap import Order
        from cimemories.store.engine import StoreError

        if measure not in (BOTH, VIOLATION, COMPLETENESS):
            raise StoreError(f"there is no map '{measure}'. Use {BOTH}, {VIOLATION} or {COMPLETENESS}.")
        orders = [word_of(Order, word, "order") for word in (rows, columns)]
        return run_figure(
            self._flows,
            self._scope,
            self.grid,
            row_order=orders[0],
            column_order=orders[1],
            measure=measure,
            rule=self._rule,
        )


def word_of(kind: Any, word: str, what: str) -> Any:
    """The member of an enumeration of words. Raises StoreError that lists them."""
    from cimemories.store.engine import StoreError

    if word not in set(kind):
        raise StoreError(f"there is no {what} '{word}'. Use {', '.join(kind)}.")
    return kind(word)

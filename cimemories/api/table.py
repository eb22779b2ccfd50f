"""Rows for a notebook: as a pandas frame, an Arrow table or a DuckDB relation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from cimemories.store.engine import StoreError
from cimemories.text import visible

if TYPE_CHECKING:
    import pandas as pd

    from cimemories.flows.columns import Columns

Form = Literal["pandas", "arrow", "duckdb"]
FORMS: tuple[Form, ...] = ("pandas", "arrow", "duckdb")


def checked_form(form: str) -> None:
    """Raises StoreError for what is no form of rows."""
    if form not in FORMS:
        raise StoreError(f"rows come as {', '.join(FORMS)}, not as '{visible(form)}'. Choose one with as_=.")


def of_columns(columns: Columns, form: Form) -> Any:
    """Columns in this form. The arrays stay what they are: no number and no code is copied."""
    if form == "pandas":
        return _frame(columns)
    from cimemories.flows.columns import arrow_table

    return _from_arrow(arrow_table(columns), form)


def _frame(columns: Columns) -> pd.DataFrame:
    import pandas as pd

    from cimemories.flows.columns import Coded

    def series(column: Any) -> Any:
        if isinstance(column, Coded):
            return pd.Categorical.from_codes(column.codes, pd.Index(column.words, dtype="str"))
        return column

    # copy=False: pandas would gather columns of one type in one block, and so copy each.
    return pd.DataFrame({name: series(column) for name, column in columns.items()}, copy=False)


def _from_arrow(table: Any, form: Form) -> Any:
    if form == "arrow":
        return table
    import duckdb

    # A connection of its own, which lives as long as the relation: it needs neither the workspace nor its lock.
    return duckdb.connect(":memory:").from_arrow(table)

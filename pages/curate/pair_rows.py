"""What tables of pairs share: the columns that say which pair a row is about, and the way to it."""

from __future__ import annotations

from typing import Any

import pandas as pd

from cimemories.store.datasets import DatasetRow
from cimemories.store.labellings import LabellingRow
from cimemories.ui import tables, url

PAIR_COLUMNS: dict[str, tables.Column | tuple[tables.Column, str]] = {
    "user": ("text", "Profile"),
    "key": ("text", "Attribute"),
    "recipient": ("text", "Recipient"),
    "statement": ("wide", "Memory statement"),
    "domain": ("text", "Domain"),
}


def go_to_pair(dataset: DatasetRow, labelling: LabellingRow, row: pd.Series[Any]) -> None:
    """To the Labels page at the pair, or at the context where `row` has no attribute."""
    url.go(
        "labels",
        dataset=dataset.id,
        labelling=labelling.id,
        profile=int(row["profile"]),
        context=int(row["context"]),
        attribute=int(row["attribute"]) if "attribute" in row else None,
    )

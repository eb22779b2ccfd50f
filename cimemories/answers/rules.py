"""The consensus rules of a dataset."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from cimemories.answer import Answer, Column, Table
from cimemories.flows.catalogue import rules_of
from cimemories.store.engine import Store
from cimemories.store.labellings import BOTH_LISTS, PAPER_RULE, least_text
from cimemories.text import exact_percent

BOTH = dict(zip(BOTH_LISTS, ("Conflict, not counted", "Necessary"), strict=True))
COLUMNS = {
    "name": Column("text", "Rule"),
    "in_use": Column("small", "In use"),
    "threshold": Column("percent", "Threshold"),
    "of_personas": Column("wide", "Priors"),
    "votes": Column("text", "Votes needed"),
    "both": Column("text", "A vote in both lists"),
    "annotator": Column("text", "Saved by"),
    "created": Column("date", "Saved (UTC)"),
}


@dataclass(frozen=True, kw_only=True)
class Rules(Answer):
    """rules: the paper's, then the named ones, oldest first. current: the name of the one that labels rest on."""

    rules: Table
    current: str


def rules(store: Store, dataset_id: int) -> Rules:
    """Return the rules of a dataset."""
    named = rules_of(store, dataset_id)
    current = next((row.name for row in named if row.current), PAPER_RULE)
    columns = ("name", "threshold", "priors", "least_votes", "both_lists", "annotator", "created")
    paper = (PAPER_RULE, 1.0, None, None, BOTH_LISTS[0], None, None)
    rows = [paper, *([getattr(row, name) for name in columns] for row in named)]
    frame = pd.DataFrame(rows, columns=list(columns), dtype=object)
    frame["current"] = frame["name"] == current
    frame["in_use"] = ["current" if name == current else "" for name in frame["name"]]
    frame["of_personas"] = [
        ", ".join(f"{key} {exact_percent(prior)}" for key, prior in priors.items()) if priors else "of the labelling"
        for priors in frame["priors"]
    ]
    frame["votes"] = [least_text(None), *(least_text(row.least_votes) for row in named)]
    frame["both"] = frame["both_lists"].map(BOTH)
    frame["created"] = pd.to_datetime(frame["created"])
    return Rules(rules=Table(frame, COLUMNS, "Rules of the dataset"), current=current)

"""Part of the Survival page: who labelled, and which models under test are of the same family."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import streamlit as st

from cimemories.analysis import families
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store
from cimemories.store.labellings import LabellingRow
from cimemories.ui import page, tables, url

UNKNOWN = "not known"


def draw(store: Store, dataset: DatasetRow, labelling: LabellingRow, say: Callable[[str], None]) -> None:
    """Draws the part; `say` draws the head with the page's takeaway. Raises SeedError where seeds/models.yaml does not
    fit."""
    found = families.warnings(store, labelling.id)
    own = " and ".join(families.families(labelling.model)) or UNKNOWN
    if not found:
        say(f"Labelled by {labelling.model} (family: {own}); no model has been tested on it yet.")
        page.empty(
            "No run on this dataset yet",
            "A model tends to judge as its kin do. Once a model has run, it is compared here with the labeller.",
            lambda: url.page_link("runs", "Start a run", icon=":material/play_circle:"),
        )
        return
    kin = sum(item.warning is not None for item in found)
    say(
        f"Labelled by {labelling.model} (family: {own}); "
        f"{kin} of {len(found)} runs on this dataset test a model of the same family."
    )
    frame = pd.DataFrame(
        [
            {
                "run": item.run_name,
                "model": item.model,
                "family": " and ".join(item.families) or UNKNOWN,
                "labeller": item.labeller,
                "own": own,
                "warning": item.warning or "",
            }
            for item in found
        ]
    )
    tables.table(
        frame,
        key=f"survival.models.{labelling.id}",
        columns={
            "run": ("text", "Run"),
            "model": ("text", "Model under test"),
            "family": ("text", "Its family"),
            "labeller": ("text", "Labelled by"),
            "own": ("text", "Labeller's family"),
            "warning": ("wide", "Warning"),
        },
        height="content",
        alt="Runs of this dataset with their model's family and the labeller's",
    )
    st.caption(
        "Families are told from names by the file seeds/models.yaml, which can be changed; a name it does not know "
        "raises no warning unless it is the labeller's own."
    )

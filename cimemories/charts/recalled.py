"""From memory to message: what was recalled and said of what is stored, one stacked bar a place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cimemories.charts.bars import BarPart, share_bars
from cimemories.charts.theme import COLOURS, GLYPHS, GREY
from cimemories.metrics.sentences import OUTCOME_NAMES
from cimemories.model import Label

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

MOST_BARS = 30  # of more places, those with the most samples said
HELD_BACK, WITHOUT = "#56B4E9", "#CC79A7"


def outcome_parts(label: Label) -> tuple[BarPart, ...]:
    """The outcomes of samples in a bar: what was said, in the colour of its label, then what the model and what the
    memory did not let out."""
    said, glyph = COLOURS[label], GLYPHS[label]
    look = {
        "recalled_and_said": (glyph, said),
        "said_not_recalled": (f"{glyph}!", WITHOUT),
        "recalled_not_said": ("R", HELD_BACK),
        "not_recalled": ("–", GREY),
    }
    return tuple(BarPart(name, OUTCOME_NAMES[name], *how) for name, how in look.items())


def most_said(frame: pd.DataFrame) -> pd.DataFrame:
    """At most MOST_BARS rows of a frame (groups.recalled_by), those with the most samples said, in their order."""
    said = frame["recalled_and_said"] + frame["said_not_recalled"]
    return frame.loc[sorted(said.sort_values(ascending=False, kind="stable").index[:MOST_BARS])]


def recalled_bars(frame: pd.DataFrame, label: Label, *, title: str, subtitle: str) -> go.Figure:
    """One bar a place of `frame` (groups.recalled_by, of one label): what became of its judged samples."""
    return share_bars(frame, outcome_parts(label), name="name", title=title, subtitle=subtitle, unit="judged samples")

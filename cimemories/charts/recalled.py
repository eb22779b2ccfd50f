"""From memory to message: what was recalled and said of what is stored, as one stacked bar a place, or as a flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cimemories.charts.bars import BarPart, share_bars
from cimemories.charts.theme import COLOURS, GLYPHS, GREY, HEAD, LONGEST_TICK, RUN, faint, layout
from cimemories.metrics.recalled.split import OUTCOMES
from cimemories.metrics.sentences import OUTCOME_NAMES
from cimemories.model import Label
from cimemories.text import html_escaped, percent

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

MOST_BARS = 30  # of more places, those with the most samples said
MOST_PLACES = 12  # of more places a flow pools the smallest
# Where each outcome leads from and to.
BANDS = {
    "recalled_and_said": ("recalled", "said"),
    "said_not_recalled": ("not recalled", "said"),
    "recalled_not_said": ("recalled", "not said"),
    "not_recalled": ("not recalled", "not said"),
}
HELD_BACK, WITHOUT = "#56B4E9", "#CC79A7"


def outcome_parts(label: Label) -> tuple[BarPart, ...]:
    """Return the outcomes of samples in a bar: what was said, in the colour of its label, then what the model and what
    the memory did not let out."""
    said, glyph = COLOURS[label], GLYPHS[label]
    look = {
        "recalled_and_said": (glyph, said),
        "said_not_recalled": (f"{glyph}!", WITHOUT),
        "recalled_not_said": ("R", HELD_BACK),
        "not_recalled": ("–", GREY),
    }
    return tuple(BarPart(name, OUTCOME_NAMES[name], *how) for name, how in look.items())


def most_revealed(frame: pd.DataFrame) -> pd.DataFrame:
    """At most MOST_BARS rows of a frame (groups.recalled_by), those with the most samples said, in their order."""
    said = frame["recalled_and_said"] + frame["said_not_recalled"]
    return frame.loc[sorted(said.sort_values(ascending=False, kind="stable").index[:MOST_BARS])]


def recalled_bars(frame: pd.DataFrame, label: Label, *, title: str, subtitle: str) -> go.Figure:
    """Draw one bar a place of `frame` (groups.recalled_by, of one label): what became of its judged samples."""
    return share_bars(frame, outcome_parts(label), name="name", title=title, subtitle=subtitle, unit="judged samples")


# ---- as a flow


def with_others(frame: pd.DataFrame) -> pd.DataFrame:
    """At most MOST_PLACES rows of a frame (groups.recalled_by, of one label), those with the most samples, and one that
    pools the rest, so that the whole stays the whole."""
    import pandas as pd

    if len(frame) <= MOST_PLACES:
        return frame
    order = frame["draws"].sort_values(ascending=False, kind="stable").index
    first, rest = frame.loc[order[: MOST_PLACES - 1]], frame.loc[order[MOST_PLACES - 1 :]]
    counts = rest[["flows", "draws", "recalled", *OUTCOMES]].sum()
    named = {"id": "", "place": f"{len(rest)} others", "name": f"{len(rest)} others"}
    return pd.concat([first.sort_index(), pd.DataFrame([named | counts.to_dict()])], ignore_index=True)


def recalled_flow(frame: pd.DataFrame, label: Label, *, title: str, subtitle: str) -> go.Figure:
    """Judged samples of `frame` (groups.recalled_by, of one label, not empty) from the places that store them over
    what was recalled to what was said: a band is as wide as its count."""
    import plotly.graph_objects as go

    rows = with_others(frame).to_dict("records")
    total = {name: sum(int(row[name]) for row in rows) for name in OUTCOMES}
    draws = sum(total.values())
    colour = {part.column: part.colour for part in outcome_parts(label)}
    # (from, to, count, colour); a place first, then the four outcomes.
    bands: list[tuple[str, str, int, str]] = []
    for number, row in enumerate(rows):
        recalled = int(row["recalled_and_said"]) + int(row["recalled_not_said"])
        bands.append((f"place {number}", "recalled", recalled, RUN))
        bands.append((f"place {number}", "not recalled", int(row["draws"]) - recalled, GREY))
    for name, (start, end) in BANDS.items():
        bands.append((start, end, total[name], colour[name]))
    bands = [band for band in bands if band[2]]
    place_names = {f"place {number}": str(row["name"]) for number, row in enumerate(rows)}
    ends = {"recalled": RUN, "not recalled": GREY, "said": COLOURS[label], "not said": HELD_BACK}
    nodes = [node for node in (*place_names, *ends) if any(node in band[:2] for band in bands)]
    sums = {
        node: max(sum(b[2] for b in bands if b[0] == node), sum(b[2] for b in bands if b[1] == node)) for node in nodes
    }
    names = {node: html_escaped(place_names.get(node, node), LONGEST_TICK) for node in nodes}

    def text(node: str) -> str:
        return f"{names[node]} {sums[node]:,}" + (f" ({percent(sums[node] / draws)})" if node in ends else "")

    trace = {
        "type": "sankey",
        "arrangement": "fixed",  # nothing to drag
        "node": {
            "label": [text(node) for node in nodes],
            "color": [ends.get(node, GREY) for node in nodes],
            "line": {"width": 0},
            "pad": 14,
            "thickness": 14,
            "hovertemplate": "%{label}<extra></extra>",
        },
        "link": {
            "source": [nodes.index(band[0]) for band in bands],
            "target": [nodes.index(band[1]) for band in bands],
            "value": [band[2] for band in bands],
            "color": [faint(band[3], 0.45) for band in bands],
            "customdata": [
                f"{names[start]} → {names[end]}: {percent(n / sums[start])}, {n:,} of {sums[start]:,} judged samples"
                for start, end, n, _ in bands
            ],
            "hovertemplate": "%{customdata}<extra></extra>",
        },
    }
    heads = [
        {"text": f"<b>{name}</b>", "x": x, "xanchor": anchor, "y": 1, "yanchor": "bottom", "yshift": 4}
        | {"xref": "paper", "yref": "paper", "showarrow": False}
        for name, x, anchor in (("stored", 0, "left"), ("recalled", 0.5, "center"), ("said", 1, "right"))
    ]
    more = {"margin": {"l": 8, "r": 8, "t": HEAD + 28, "b": 16}, "annotations": heads, "dragmode": False}
    height = HEAD + 44 + max(260, 34 * len(rows))
    head = layout(title=title, subtitle=subtitle)
    # From the top, as far as elsewhere: in the middle of this margin it would lie on the names of the columns.
    head["title"] |= {"y": 1 - 18 / height, "yref": "container", "yanchor": "top"}
    return go.Figure([trace], {**head, **more, "height": height})

"""Leaks by the place of a task in the sessions: fresh ones, and those that travelled through earlier messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cimemories.charts.theme import GRID, INAPPROPRIATE, LEGEND_BELOW, layout
from cimemories.text import count, html_escaped, percent

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Sky blue beside vermilion, and a pattern: told apart without colour too.
PARTS = (("fresh", "fresh", INAPPROPRIATE, ""), ("travelled", "said in an earlier message", "#56B4E9", "/"))


def leaks_by_task(frame: pd.DataFrame, *, title: str, subtitle: str) -> go.Figure:
    """Draw one bar a task, the share of its exposures that leak, in two parts. frame: a row a task with task,
    exposures, fresh and travelled (counts of leaks); a task without exposures has no bar."""
    import plotly.graph_objects as go

    traces: list[dict[str, Any]] = []
    tasks, exposures = frame["task"].tolist(), frame["exposures"].tolist()
    for column, name, colour, pattern in PARTS:
        leaks = frame[column].tolist()
        shares = [n / of if of else None for n, of in zip(leaks, exposures, strict=True)]
        hover = [
            f"<b>task {task}</b><br>{html_escaped(name)}: {n:,} of {count(of, 'exposure')}"
            + ("" if share is None else f" ({percent(share)})")
            for task, n, of, share in zip(tasks, leaks, exposures, shares, strict=True)
        ]
        shape = {"shape": pattern, "fgcolor": "rgba(17,17,17,.55)", "size": 5, "fillmode": "overlay"}
        marker = {"color": colour, **({"pattern": shape} if pattern else {})}
        bar = {"type": "bar", "x": tasks, "y": shares, "name": name, "marker": marker}
        traces.append({**bar, "hovertext": hover, "hoverinfo": "text"})
    base = layout(title=title, subtitle=subtitle)
    return go.Figure(
        traces,
        {
            **base,
            "barmode": "stack",
            "height": 300,
            "margin": {**base["margin"], "l": 48, "b": 72},
            "legend": dict(LEGEND_BELOW),
            "xaxis": {"title": {"text": "task, in the order of the sessions"}, "dtick": 1 if len(tasks) < 16 else 5},
            "yaxis": {"tickformat": ".0%", "rangemode": "tozero", "gridcolor": GRID, "title": {"text": "leak rate"}},
        },
    )

"""The plane of violation and completeness: runs with their intervals, the front, and constant strategies beside."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

import pandas as pd

from cimemories.analysis.compare_figures import GRID, MARGIN, QUIET, RUN, Drawing, bars, short
from cimemories.analysis.leaderboard import Leaderboard, Line, names
from cimemories.analysis.leaderboard_text import bounds, percent
from cimemories.analysis.pareto import front, place
from cimemories.seeds.published import Measure

Trace = dict[str, object]
SYMBOLS = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "triangle-down",
    "pentagon",
    "star",
    "hexagon",
    "cross",
    "bowtie",
)
WIDTH, HEIGHT, CHARACTER, LABEL_HEIGHT = 860.0, 480.0, 6.6, 17.0  # pixels that labels are laid out for
FIRST, LAST = -0.07, 1.07  # of both axes: room for marks at 0 and 1, and for their names
NAMED = 8  # runs that are named at their marks; more of them are numbered, and a legend names them
TITLE = 70  # characters of names that a title may hold


def plane(board: Leaderboard) -> Drawing | None:
    """All runs in the plane of violation (to the right) and completeness (up), intervals as crosses, the front of those
    that no other beats on both sides, and the constant strategies. None where no run has both numbers."""
    import plotly.graph_objects as go

    lines = [line for line in board.lines if not math.isnan(line.balanced.value)]
    if not lines:
        return None
    called = names(board.lines)
    points = [(line.violation.value, line.completeness.value) for line in lines]
    best = front(points)
    traces = [_front(sorted(point for point, on in zip(points, best, strict=True) if on))]
    numbered = len(lines) > NAMED
    for place_, line in enumerate(lines):
        name = f"{place_ + 1}  {called[line.run.id]}" if numbered else called[line.run.id]
        traces.append(_run(line, name, SYMBOLS[place_ % len(SYMBOLS)], on_front=best[place_]))
    marks = [
        (v, c, str(place_ + 1) if numbered else short(called[line.run.id]))
        for place_, ((v, c), line) in enumerate(zip(points, lines, strict=True))
    ]
    beside, further = _beside(board, lines)
    # All at once: Plotly looks through a figure anew for everything that is added to it.
    fig = go.Figure([*traces, *beside])
    axis = {"range": [FIRST, LAST], "tickformat": ".0%", "gridcolor": GRID, "zeroline": False}
    fig.update_xaxes(title=f"{board.violation_name}: less is better", **axis)
    fig.update_yaxes(title="Completeness: more is better", **axis)
    fig.update_layout(
        height=HEIGHT + MARGIN["t"] + MARGIN["b"],
        margin=MARGIN,
        showlegend=numbered,
        legend={"itemclick": False, "itemdoubleclick": False, "font": {"size": 11}, "tracegroupgap": 0},
        hovermode="closest",
        annotations=_labels([*marks, *further]),
    )
    on = [called[line.run.id] for line, is_on in zip(lines, best, strict=True) if is_on]
    frame = pd.DataFrame([line.as_record() for line in lines]).assign(on_front=best)
    return Drawing(fig, _plane_title(on, len(lines)), _plane_subtitle(board, lines), _plane_alt(lines, called), frame)


def _front(points: Sequence[tuple[float, float]]) -> Trace:
    """The edge of what runs reach: from each best run to the right until the next one is more complete."""
    return {
        "type": "scatter",
        "x": [v for v, _ in points],
        "y": [c for _, c in points],
        "mode": "lines",
        "line": {"color": QUIET, "width": 1.5, "dash": "dash", "shape": "hv"},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _run(line: Line, name: str, symbol: str, *, on_front: bool) -> Trace:
    remarks = ["on the front"] * on_front + ["simulated"] * line.simulated + ([line.warning] if line.warning else [])
    said = [
        f"<b>{html.escape(name)}</b>",
        f"violation@{line.n}: {percent(line.violation.value)} {bounds(line.violation)}",
        f"completeness: {percent(line.completeness.value)} {bounds(line.completeness)}",
        f"balanced score: {percent(line.balanced.value)} {bounds(line.balanced)}",
        *(html.escape(text) for text in remarks),
    ]
    return {
        "type": "scatter",
        "x": [line.violation.value],
        "y": [line.completeness.value],
        "error_x": bars([line.violation], RUN),
        "error_y": bars([line.completeness], RUN),
        "mode": "markers",
        "name": html.escape(short(name)),
        # An open mark is a run of which a part is missing.
        "marker": {
            "symbol": symbol if line.covered else f"{symbol}-open",
            "size": 11,
            "color": RUN,
            "line": {"width": 0 if line.covered else 2, "color": RUN},
        },
        "hovertext": "<br>".join(said),
        "hoverinfo": "text",
    }


def _beside(board: Leaderboard, lines: Sequence[Line]) -> tuple[list[Trace], list[tuple[float, float, str]]]:
    """Constant strategies and what the paper states, in grey, with their places and names."""
    found = [(item.violation, item.completeness, item.name, "asterisk-open") for item in board.constants]
    for line in lines:
        violation, complete = line.stated(Measure.VIOLATION), line.stated(Measure.COMPLETENESS)
        if line.published is not None and violation is not None and complete is not None:
            found.append((violation.value, complete.value, f"{line.published.name}, published", "diamond-open"))
    together: dict[tuple[float, float, str], list[str]] = {}
    for violation_, complete_, name, symbol in dict.fromkeys(found):
        if not (math.isnan(violation_) or math.isnan(complete_)):
            together.setdefault((round(violation_, 3), round(complete_, 3), symbol), []).append(name)
    traces: list[Trace] = [
        {
            "type": "scatter",
            "x": [violation_],
            "y": [complete_],
            "mode": "markers",
            "showlegend": False,
            "marker": {"symbol": symbol, "size": 11, "color": QUIET, "line": {"width": 2, "color": QUIET}},
            "hovertext": f"<b>{html.escape(', '.join(whose))}</b><br>violation {percent(violation_)}, completeness "
            f"{percent(complete_)}",
            "hoverinfo": "text",
        }
        for (violation_, complete_, symbol), whose in together.items()
    ]
    return traces, [(v, c, ", ".join(whose)) for (v, c, _), whose in together.items()]


def _labels(marks: Sequence[tuple[float, float, str]]) -> list[dict[str, object]]:
    """Names beside their marks, joined by a thin line where there was no room close by."""
    span = LAST - FIRST
    anchors = [((v - FIRST) / span * WIDTH, (LAST - c) / span * HEIGHT) for v, c, _ in marks]
    middles = place(anchors, [CHARACTER * len(name) + 4 for _, _, name in marks], LABEL_HEIGHT, (WIDTH, HEIGHT))
    return [
        {
            "x": v,
            "y": c,
            "ax": middle[0] - anchor[0],
            "ay": middle[1] - anchor[1],
            "text": html.escape(name),
            "showarrow": True,
            "arrowhead": 0,
            "arrowwidth": 0.8,
            "arrowcolor": QUIET,
            "standoff": 7,
            "borderpad": 1,
            "font": {"size": 12},
        }
        for (v, c, name), anchor, middle in zip(marks, anchors, middles, strict=True)
    ]


def _plane_title(on: Sequence[str], runs: int) -> str:
    if runs == 1:
        return f"One run alone: {on[0]}"
    if len(on) == 1:
        return f"No other run leaks less or conveys more than {on[0]}"
    named = ", ".join(on)
    return f"{len(on)} of {runs} runs are beaten by no other{f': {named}' if len(named) <= TITLE else ''}"


def _plane_subtitle(board: Leaderboard, lines: Sequence[Line]) -> str:
    lost = len(board.lines) - len(lines)
    said = [f"{len(lines)} runs with 95 % intervals as crosses, the front dashed, constant strategies in grey"]
    said += [f"open marks: coverage below 99 % ({sum(not line.covered for line in lines)})"] * any(
        not line.covered for line in lines
    )
    said += [f"{lost} without numbers"] if lost else []
    return "; ".join(said)


def _plane_alt(lines: Sequence[Line], called: dict[str, str]) -> str:
    told = "; ".join(
        f"{called[line.run.id]} at {percent(line.violation.value)} and {percent(line.completeness.value)}"
        for line in lines
    )
    return f"Runs by violation and completeness: {told}."

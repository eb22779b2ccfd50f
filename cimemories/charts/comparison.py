"""The figures of a comparison of runs, each with its title, its takeaway and the table that says the same.

The plane of violation and completeness, sweeps, differences by domain, the order of models over the threshold, what
choices do to the numbers, and what share of flows the headline covers.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cimemories.compare.difference import Difference
from cimemories.compare.leaderboard import Leaderboard, Line, bounds_text, names
from cimemories.compare.ranking import Measure, front, order_words, place, ranks, swaps, tau, tau_words, turned
from cimemories.compare.relabel import Numbers
from cimemories.compare.sensitivity import ByProfiles, Range, Setting, Study, measured
from cimemories.compare.sweeps import SweepFigure
from cimemories.flows.arrays import Bools, Floats, IdentifierRule
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Labels
from cimemories.metrics.bootstrap import Interval
from cimemories.metrics.breakdown import PARTS, WORDS, FlowCoverage, flow_coverage
from cimemories.seeds.published import Axis, PublishedMeasure
from cimemories.text import count, html_escaped, percent, shortened

if TYPE_CHECKING:
    import plotly.graph_objects as go

# ---- compare figures
#
# The pictures of a comparison as Plotly figures: a sweep, and differences by domain; the plane has its own module.
#
# A figure has no title and no background of its own; a `Drawing` holds the words beside it, so that a page, a report
# and an image say the same. Violation is vermillion with a cross and completeness green with a circle, as their labels
# are everywhere; runs are blue and told apart by shape and name.


RUN, VIOLATION, COMPLETENESS, QUIET = "#0072B2", "#D55E00", "#009E73", "#7F868C"
GRID = "rgba(128,128,128,.22)"
MARGIN = {"l": 64, "r": 16, "t": 64, "b": 52}
LONGEST, PANELS = 38, 6


@dataclass(frozen=True)
class Drawing:
    """A figure with its words and its table. alt: what can be seen, for those who do not see it."""

    fig: go.Figure
    title: str
    subtitle: str
    alt: str
    frame: pd.DataFrame


def sweep(figure: SweepFigure) -> Drawing | None:
    """Violation and completeness along one axis, a panel a series, intervals as bars. None without a series."""
    from plotly.subplots import make_subplots

    shown = figure.series[:PANELS]
    if not shown:
        return None
    columns = min(len(shown), 3)
    rows = math.ceil(len(shown) / columns)
    titles = [html_escaped(item.name, LONGEST) for item in shown] if len(shown) > 1 else None
    fig = make_subplots(rows, columns, shared_yaxes=True, subplot_titles=titles, horizontal_spacing=0.04)
    for number, item in enumerate(shown):
        row, column = number // columns + 1, number % columns + 1
        xs = [point.x for point in item.points]
        for measure, colour, symbol, dash in (
            (PublishedMeasure.VIOLATION, VIOLATION, "x", "solid"),
            (PublishedMeasure.COMPLETENESS, COMPLETENESS, "circle", "dot"),
        ):
            found = [getattr(point.line, measure) for point in item.points]
            fig.add_scatter(
                x=xs,
                y=[None if math.isnan(one.value) else one.value for one in found],
                error_y=bars(found, colour),
                mode="lines+markers",
                name=f"Violation@{item.points[0].line.n}" if measure == PublishedMeasure.VIOLATION else "Completeness",
                line={"color": colour, "width": 2, "dash": dash},
                marker={"symbol": symbol, "size": 10},
                hovertext=[
                    f"<b>{html.escape(point.line.run.model)}, {html.escape(point.tick)}</b><br>{measure}: "
                    f"{percent(one.value)} {bounds_text(one)}"
                    for point, one in zip(item.points, found, strict=True)
                ],
                hoverinfo="text",
                legendgroup=str(measure),
                showlegend=number == 0,
                row=row,
                col=column,
            )
        scale = {"type": "log"} if figure.axis == Axis.SIZE else {}
        ticks = [html.escape(point.tick) for point in item.points]
        fig.update_xaxes(
            tickmode="array", tickvals=xs, ticktext=ticks, gridcolor=GRID, zeroline=False, row=row, col=column, **scale
        )
    fig.update_xaxes(title=html.escape(figure.x_title), row=rows)
    fig.update_annotations(font={"size": 13})
    fig.update_yaxes(range=[0, 1.02], tickformat=".0%", gridcolor=GRID, zeroline=False)
    fig.update_layout(
        height=330 * rows + MARGIN["t"] + 70,
        margin={**MARGIN, "t": MARGIN["t"] + (30 if titles else 0), "b": 84},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
    )
    alt = f"{figure.title()}. Violation as crosses on a solid line, completeness as circles on a dotted one."
    more = f"; {len(figure.series) - PANELS} more series in the table" if len(figure.series) > PANELS else ""
    return Drawing(fig, figure.title(), figure.subtitle() + more, alt, figure.frame())


def domains(found: Difference, first: str, second: str) -> Drawing | None:
    """The differences by domain, second minus first, with intervals. None where no domain has any."""
    import plotly.graph_objects as go

    frame = found.domains.dropna(subset=["violation", "completeness"], how="all").sort_values("violation")
    if frame.empty:
        return None
    rows = list(frame["domain"])
    fig = go.Figure()
    fig.add_vline(x=0, line={"color": QUIET, "width": 1.5})
    for measure, colour, symbol, offset in (
        ("violation", VIOLATION, "x", -0.16),
        ("completeness", COMPLETENESS, "circle", 0.16),
    ):
        unit = "attributes" if measure == "violation" else "necessary_flows"
        fig.add_scatter(
            x=[None if math.isnan(v) else 100 * v for v in frame[measure]],
            y=[place_ + offset for place_ in range(len(rows))],
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [100 * (high - v) for v, high in zip(frame[measure], frame[f"{measure}_high"], strict=True)],
                "arrayminus": [100 * (v - low) for v, low in zip(frame[measure], frame[f"{measure}_low"], strict=True)],
                "color": colour,
                "thickness": 1.6,
                "width": 4,
            },
            mode="markers",
            marker={"symbol": symbol, "size": 9, "color": colour},
            name=f"Violation@{found.paired.n}" if measure == "violation" else "Completeness",
            hovertext=[
                f"<b>{html.escape(_title(row))}</b><br>{measure}: {_points(v)} points "
                f"[{_points(low)}, {_points(high)}], {n:,} {unit.replace('_', ' ')}"
                for row, v, low, high, n in zip(
                    rows,
                    frame[measure],
                    frame[f"{measure}_low"],
                    frame[f"{measure}_high"],
                    frame[unit],
                    strict=True,
                )
            ],
            hoverinfo="text",
        )
    fig.update_yaxes(
        tickmode="array",
        tickvals=list(range(len(rows))),
        ticktext=[html.escape(_title(row)) for row in rows],
        range=[len(rows) - 0.5, -0.5],
        showgrid=False,
        zeroline=False,
    )
    fig.update_xaxes(title="percentage points; right of 0: more than the reference", gridcolor=GRID, zeroline=False)
    fig.update_layout(
        height=36 * len(rows) + MARGIN["t"] + 100,
        margin={**MARGIN, "l": 120, "b": 96},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
    )
    title = _domains_title(frame, first, second)
    people = count(found.paired.profiles, "common profile")
    subtitle = (
        f"{second} minus {first}: {int(frame['attributes'].sum()):,} attributes, "
        f"{int(frame['necessary_flows'].sum()):,} necessary flows, {people}; bars are 95 % intervals"
    )
    return Drawing(fig, title, subtitle, f"{title}. One row a domain, violation and completeness apart.", frame)


def bars(found: Sequence[Interval], colour: str) -> dict[str, object]:
    """Error bars from values to the bounds of their intervals; none where there is none."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [0 if math.isnan(one.high) else one.high - one.value for one in found],
        "arrayminus": [0 if math.isnan(one.low) else one.value - one.low for one in found],
        "color": colour,
        "thickness": 1.4,
        "width": 4,
    }


def _domains_title(frame: pd.DataFrame, first: str, second: str) -> str:
    wide = frame["violation_low"] < frame["violation_high"]  # one attribute alone has an interval without width
    less, more = int((wide & (frame["violation_high"] < 0)).sum()), int((wide & (frame["violation_low"] > 0)).sum())
    both = int(frame["violation"].notna().sum())
    if not less and not more:
        return f"In none of {both} domains does {second} leak clearly more or less than {first}"
    if less and more:
        return f"{second} leaks clearly less than {first} in {less} of {both} domains, and clearly more in {more}"
    return f"{second} leaks clearly {'less' if less else 'more'} than {first} in {less or more} of {both} domains"


def _title(domain: str) -> str:
    return domain.replace("_", " ")


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


# ---- plane figure
#
# The plane of violation and completeness: runs with their intervals, the front, and constant strategies beside.


Trace = dict[str, object]
PLANE_SYMBOLS = (
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
WIDTH, HEIGHT, PLANE_CHARACTER, LABEL_HEIGHT = 860.0, 480.0, 6.6, 17.0  # pixels that labels are laid out for
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
        traces.append(_run(line, name, PLANE_SYMBOLS[place_ % len(PLANE_SYMBOLS)], on_front=best[place_]))
    marks = [
        (v, c, str(place_ + 1) if numbered else shortened(called[line.run.id], LONGEST))
        for place_, ((v, c), line) in enumerate(zip(points, lines, strict=True))
    ]
    beside, further = _beside_plane(board, lines)
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
        f"violation@{line.n}: {percent(line.violation.value)} {bounds_text(line.violation)}",
        f"completeness: {percent(line.completeness.value)} {bounds_text(line.completeness)}",
        f"balanced score: {percent(line.balanced.value)} {bounds_text(line.balanced)}",
        *(html.escape(text) for text in remarks),
    ]
    return {
        "type": "scatter",
        "x": [line.violation.value],
        "y": [line.completeness.value],
        "error_x": bars([line.violation], RUN),
        "error_y": bars([line.completeness], RUN),
        "mode": "markers",
        "name": html_escaped(name, LONGEST),
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


def _beside_plane(board: Leaderboard, lines: Sequence[Line]) -> tuple[list[Trace], list[tuple[float, float, str]]]:
    """Constant strategies and what the paper states, in grey, with their places and names."""
    found = [(item.violation, item.completeness, item.name, "asterisk-open") for item in board.constants]
    for line in lines:
        violation, complete = line.stated(PublishedMeasure.VIOLATION), line.stated(PublishedMeasure.COMPLETENESS)
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
    middles = place(anchors, [PLANE_CHARACTER * len(name) + 4 for _, _, name in marks], LABEL_HEIGHT, (WIDTH, HEIGHT))
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


# ---- bump figure
#
# The order of models over the consensus threshold, as a bump chart, and without each persona, as a table.


SHADES = ("#0072B2", "#56B4E9", "#CC79A7", "#E69F00", "#009E73", "#D55E00")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
CHARACTER, ROW = 6.6, 34  # pixels


def bump(
    now: Floats,
    over: Floats,
    thresholds: Sequence[float],
    names: Sequence[str],
    measure: Measure,
    at: float,
    tried: float | None = None,
    under: str = "",
) -> Drawing | None:
    """The order of runs over the consensus threshold. now: the numbers by the current settings [runs]; over: [runs, T]
    at these thresholds; at: the threshold that holds; tried: another one, or None; under: by which priors and rule.
    None where no run has the number."""
    import plotly.graph_objects as go

    defined: Bools = np.asarray(~np.isnan(over).all(axis=1))
    if not defined.any():
        return None
    if len(names) == 1:
        return _alone(over[0], thresholds, names[0], measure, at, tried, under)
    places = ranks(over, measure)
    shown = [n for n in np.lexsort([np.arange(len(now)), np.nan_to_num(places[:, -1], nan=np.inf)]) if defined[n]]
    moving = [n for n in shown if len(np.unique(places[n][~np.isnan(places[n])])) > 1]
    xs = [100 * threshold for threshold in thresholds]
    lines = []
    for n in shown:
        moves = n in moving
        look = moving.index(n) if moves else shown.index(n)
        name = html_escaped(names[n], LONGEST)
        lines.append(
            {
                "type": "scatter",
                "x": xs,
                "y": [None if math.isnan(place) else place for place in places[n]],
                "mode": "lines",
                "line": {
                    "color": SHADES[look % len(SHADES)] if moves else QUIET,
                    "width": 3.5 if moves else 2,
                    "shape": "hv",
                    "dash": DASHES[look // len(SHADES) % len(DASHES)] if moves else "solid",
                },
                "name": name,
                "hovertext": [
                    f"<b>{name}</b>: {measure.words} {percent(value)}, "
                    f"{'no place' if math.isnan(place) else f'place {place:.0f}'} at {x:.4g} %"
                    for x, value, place in zip(xs, over[n].tolist(), places[n].tolist(), strict=True)
                ],
                "hoverinfo": "text",
                "showlegend": False,
            }
        )
    labels = {side: _ends(places[:, column], over[:, column], names, shown) for side, column in (("l", 0), ("r", -1))}
    room = {side: max(len(text) for text in found.values()) * CHARACTER + 18 for side, found in labels.items()}
    most = int(np.nanmax(places))
    shapes, words = marks([(100 * at, "now")] + ([] if tried is None or tried == at else [(100 * tried, "tried")]))
    # All in one, since Plotly copies a figure's annotations each time that one is added.
    fig = go.Figure(
        data=lines,
        layout={
            "annotations": [*_names(labels["l"], "l"), *_names(labels["r"], "r"), *words],
            "shapes": shapes,
            "yaxis": {"range": [most + 0.6, 0.4], "showgrid": False, "zeroline": False, "showticklabels": False},
            "xaxis": {
                "title": {"text": "consensus threshold"},
                "ticksuffix": " %",
                "gridcolor": GRID,
                "zeroline": False,
                "range": [xs[0] - 0.5, xs[-1] + 0.5],
            },
            "height": max(ROW * most, 90) + MARGIN["t"] + 66,
            "margin": {"l": room["l"], "r": room["r"], "t": MARGIN["t"] + 12, "b": 52},
            "hovermode": "closest",
        },
    )
    found = swaps(now, over, thresholds, at, measure)
    title = order_words(found, names, thresholds, measure)
    missing = int((~defined).sum())
    subtitle = f"Rank by {measure.words}, best on top, at {len(thresholds)} thresholds{under}"
    subtitle += f"; left out: {runs_words(missing)} without the number" if missing else ""
    alt = f"{title}. {len(shown)} lines, one a run, over the threshold; {len(moving)} of them change their place."
    frame = pd.DataFrame(
        {
            "threshold": np.tile(thresholds, len(names)),
            "run": np.repeat(list(names), len(thresholds)),
            "value": over.reshape(-1),
            "rank": places.reshape(-1),
        }
    )
    return Drawing(fig, title, subtitle, alt, frame)


def _alone(
    values: Floats,
    thresholds: Sequence[float],
    name: str,
    measure: Measure,
    at: float,
    tried: float | None,
    under: str,
) -> Drawing:
    """One run has no order: its number over the threshold. values: [T], nan where undefined."""
    import plotly.graph_objects as go

    xs = [100 * threshold for threshold in thresholds]
    shapes, words = marks([(100 * at, "now")] + ([] if tried is None or tried == at else [(100 * tried, "tried")]))
    line = {
        "type": "scatter",
        "x": xs,
        "y": [None if math.isnan(value) else value for value in values],
        "mode": "lines",
        "line": {"color": SHADES[0], "width": 2.5},
        "hovertext": [f"{measure.words} {percent(v)} at {x:.4g} %" for x, v in zip(xs, values.tolist(), strict=True)],
        "hoverinfo": "text",
        "showlegend": False,
    }
    fig = go.Figure(
        data=[line],
        layout={
            "annotations": words,
            "shapes": shapes,
            "yaxis": {"tickformat": ".1%", "gridcolor": GRID, "zeroline": False, "title": {"text": measure.words}},
            "xaxis": {"title": {"text": "consensus threshold"}, "ticksuffix": " %", "gridcolor": GRID},
            "height": 260 + MARGIN["t"],
            "margin": {**MARGIN, "t": MARGIN["t"] + 12, "l": 76},
        },
    )
    low, high = (percent(float(value)) for value in (np.nanmin(values), np.nanmax(values)))
    span = f"thresholds from {xs[0]:.4g} to {xs[-1]:.4g} %"
    moved = f"lies between {low} and {high} over" if low != high else f"is {low} at all"
    title = f"{measure.named[0].upper()}{measure.named[1:]} of {shortened(name, LONGEST)} {moved} {span}"
    subtitle = f"At {len(thresholds)} thresholds{under}; one run alone has no order"
    frame = pd.DataFrame({"threshold": list(thresholds), "run": name, "value": values, "rank": 1.0})
    return Drawing(fig, title, subtitle, f"{title}. One line over the threshold.", frame)


def _ends(places: Floats, values: Floats, names: Sequence[str], shown: Sequence[int]) -> dict[float, str]:
    """What stands at one end of the lines, by place; runs in one place share a line of text."""
    found: dict[float, list[str]] = {}
    for n in shown:
        if not math.isnan(places[n]):
            found.setdefault(float(places[n]), []).append(f"{shortened(names[n], LONGEST)} {percent(float(values[n]))}")
    return {place: f"{place:.0f}  {', '.join(said)}" for place, said in found.items()} or {1.0: ""}


def _names(ends: dict[float, str], side: str) -> list[dict[str, object]]:
    """The texts of one end as annotations: 'l' or 'r' of the plot."""
    left = side == "l"
    return [
        {
            "x": 0 if left else 1,
            "xref": "paper",
            "y": place,
            "text": html.escape(text),
            "showarrow": False,
            "xanchor": "right" if left else "left",
            "xshift": -8 if left else 8,
            "font": {"size": 12},
        }
        for place, text in ends.items()
    ]


def marks(spots: Sequence[tuple[float, str]]) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Upright lines with a word on top, as shapes and annotations; spots: (x, word)."""
    shapes: list[dict[str, object]] = []
    words: list[dict[str, object]] = []
    for number, (x, word) in enumerate(spots):
        line = {"color": QUIET, "width": 1.5, "dash": "dot" if number == 0 else "dash"}
        shapes.append({"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": line})
        place = {"x": x, "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False, "font": {"size": 11}}
        words.append({**place, "text": html.escape(word)})
    return shapes, words


def runs_words(many: int) -> str:
    """'1 run', '8 runs'."""
    return count(many, "run")


def left_out_frame(
    now: Floats, without: Sequence[tuple[str, Floats]], names: Sequence[str], measure: Measure
) -> pd.DataFrame:
    """One row a run, the best first: run, now, rank, and for each persona left out value, change and rank, with the
    persona's key behind ('value_pragmatic'); the last row is Kendall's tau of each order with the current one."""
    here = ranks(now, measure)
    columns: dict[str, list[object]] = {"run": list(names), "now": list(now), "rank": list(here)}
    taus: dict[str, object] = {"run": "Kendall's tau", "now": math.nan, "rank": math.nan}
    for key, values in without:
        place = ranks(values, measure)
        columns |= {f"value_{key}": list(values), f"change_{key}": list(values - now), f"rank_{key}": list(place)}
        taus |= {f"value_{key}": tau(here, place), f"change_{key}": math.nan, f"rank_{key}": math.nan}
    frame = pd.DataFrame(columns).sort_values("rank", kind="stable", na_position="last")
    return pd.concat([frame, pd.DataFrame([taus])], ignore_index=True)


# ---- sensitivity figures
#
# What choices do to numbers, and what fewer profiles would have said, as figures with their words and tables.


SENSITIVITY_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "star", "hexagon")


def choices(found: Sequence[Range], names: Sequence[str], measure: Measure) -> Drawing | None:
    """How far each choice moves a number of any run, as bars around 0. None without any choice."""
    import plotly.graph_objects as go

    if not found:
        return None
    fig = go.Figure()
    rows = list(range(len(found)))
    fig.add_bar(
        y=rows,
        x=[100 * item.width for item in found],
        base=[100 * item.low for item in found],
        orientation="h",
        marker={"color": RUN},
        width=0.5,
        hovertext=[_hover(item, names) for item in found],
        hoverinfo="text",
        showlegend=False,
    )
    fig.add_vline(x=0, line={"color": QUIET, "width": 1.5})
    for row, item in zip(rows, found, strict=True):
        fig.add_annotation(
            x=1,
            xref="paper",
            y=row,
            text=_beside_sensitivity(item),
            showarrow=False,
            xanchor="left",
            xshift=10,
            font={"size": 12},
        )
    ticks = [html.escape(str(item.choice)) for item in found]
    fig.update_yaxes(
        tickmode="array", tickvals=rows, ticktext=ticks, range=[len(rows) - 0.5, -0.5], showgrid=False, zeroline=False
    )
    fig.update_xaxes(title=f"change of {measure.named}, percentage points", gridcolor=GRID, zeroline=False)
    fig.update_layout(
        height=ROW * len(rows) + MARGIN["t"] + 60,
        margin={
            "l": round(max(map(len, ticks)) * CHARACTER) + 16,
            "r": round(max(len(_beside_sensitivity(item)) for item in found) * CHARACTER) + 16,
            "t": MARGIN["t"],
            "b": 52,
        },
    )
    title = _choices_title(found, measure)
    subtitle = (
        f"Least and greatest change of {runs_words(len(names))}, one choice at a time, all others as they are now: "
        f"{sum(item.settings for item in found)} settings"
    )
    frame = ranges_frame(found, names)
    return Drawing(fig, title, subtitle, f"{title}. One bar a choice, the widest first.", frame)


def ranges_frame(found: Sequence[Range], names: Sequence[str]) -> pd.DataFrame:
    """One row a choice: choice, settings, low and high (shares), the setting and run of either, least_tau (nan where
    there is no order) and its setting."""
    return pd.DataFrame(
        [
            {
                "choice": str(item.choice),
                "settings": item.settings,
                "low": item.low,
                "low_setting": item.low_at[0] if item.low < 0 else "",
                "low_run": names[item.low_at[1]] if item.low < 0 else "",
                "high": item.high,
                "high_setting": item.high_at[0] if item.high > 0 else "",
                "high_run": names[item.high_at[1]] if item.high > 0 else "",
                "least_tau": item.least_tau,
                "tau_setting": "" if math.isnan(item.least_tau) else item.tau_at,
            }
            for item in found
        ]
    )


def _choices_title(found: Sequence[Range], measure: Measure) -> str:
    widest = found[0]
    most = max(-widest.low, widest.high)
    if most < 0.0005:
        return f"No choice moves {measure.named} of any run by a tenth of a point"
    turned = [item for item in found if item.least_tau < 1]
    order = f"; {len(turned)} of {len(found)} choices can change the order" if len(found) > 1 else ""
    no_order = all(math.isnan(item.least_tau) for item in found)
    return (
        f"Most depends on the {widest.choice}: {measure.named} moves by up to {100 * most:.1f} points"
        f"{'' if no_order else order if turned else '; no choice changes the order'}"
    )


def _hover(item: Range, names: Sequence[str]) -> str:
    parts = [f"<b>{html.escape(str(item.choice))}</b>, {item.settings} other settings"]
    for value, (setting, run) in ((item.low, item.low_at), (item.high, item.high_at)):
        if value:
            parts.append(f"{100 * value:+.1f} points: {html_escaped(names[run], LONGEST)}, {html.escape(setting)}")
    if item.least_tau < 1:
        parts.append(f"{tau_words(item.least_tau)}: {html.escape(item.tau_at)}")
    return "<br>".join(parts)


def _beside_sensitivity(item: Range) -> str:
    if math.isnan(item.least_tau):
        return f"{100 * item.low:+.1f} to {100 * item.high:+.1f}"
    order = "same order" if item.least_tau == 1 else f"tau down to {item.least_tau:.2f}"
    return f"{100 * item.low:+.1f} to {100 * item.high:+.1f}, {order}"


def profiles(found: ByProfiles, names: Sequence[str], measure: Measure, k: int) -> Drawing | None:
    """The numbers over subsets of profiles, by their size: means and the middle 95 %. k: the size that is told of. None
    where there are no subsets to draw."""
    import plotly.graph_objects as go

    if not found.by_k:
        return None
    fig = go.Figure()
    xs = [item.k for item in found.by_k]
    many = len(found.runs)
    for row, run in enumerate(found.runs):
        mean, low, high = (
            np.array([getattr(item, part)[row] for item in found.by_k]) for part in ("mean", "low", "high")
        )
        colour = SHADES[row % len(SHADES)]
        fig.add_scatter(
            x=[x + (row - (many - 1) / 2) * min(0.08, 0.5 / many) for x in xs],
            y=mean,
            error_y={
                "type": "data",
                "symmetric": False,
                "array": high - mean,
                "arrayminus": mean - low,
                "color": colour,
                "thickness": 1.6,
                "width": 3,
            },
            mode="lines+markers",
            line={"color": colour, "width": 1.5, "dash": DASHES[row // len(SHADES) % len(DASHES)]},
            marker={"symbol": SENSITIVITY_SYMBOLS[row % len(SENSITIVITY_SYMBOLS)], "size": 8},
            name=html_escaped(names[run], LONGEST),
            hovertext=[
                f"<b>{html_escaped(names[run], LONGEST)}</b>, {x} of {found.profiles} profiles<br>{measure.words} "
                f"{percent(float(m))}, 95 % of the subsets from {percent(float(a))} to {percent(float(b))}"
                for x, m, a, b in zip(xs, mean, low, high, strict=True)
            ],
            hoverinfo="text",
        )
    fig.update_xaxes(title="profiles", dtick=1 if len(xs) <= 20 else None, showgrid=False, zeroline=False)
    fig.update_yaxes(title=measure.words, tickformat=".0%", gridcolor=GRID, zeroline=False)
    shapes, words = marks([(k, "chosen")] if k < found.profiles else [])
    fig.update_layout(
        shapes=shapes,
        annotations=words,
        height=340 + MARGIN["t"] + 100,
        margin={**MARGIN, "t": MARGIN["t"] + 16, "b": 96},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
        showlegend=True,
    )
    title = profiles_title(found, k)
    one = found.by_k[k - 1]
    which = f"all {one.count:,}" if one.all else f"{one.count:,} random"
    subtitle = (
        f"Mean and middle 95 % over {which} subsets of {k} of {found.profiles} common profiles "
        "(bars), and over subsets of every other size"
    )
    if found.left_out:
        subtitle += f"; {runs_words(len(found.left_out))} with too few common profiles left out"
    frame = pd.DataFrame(
        [
            {
                "profiles": item.k,
                "run": names[run],
                "mean": item.mean[row],
                "low": item.low[row],
                "high": item.high[row],
                "subsets": item.count,
                "same_order": item.same_order,
                "same_best": item.same_best,
            }
            for item in found.by_k
            for row, run in enumerate(found.runs)
        ]
    )
    return Drawing(
        fig, title, subtitle, f"{title}. One line a run, with bars that narrow as profiles are added.", frame
    )


def profiles_title(found: ByProfiles, k: int) -> str:
    """'3 of 10 profiles give the order of all in 89.2 % of the subsets, and the same best run in 91.0 %'."""
    one = found.by_k[k - 1]
    if len(found.runs) < 2:
        return f"With {k} of {found.profiles} profiles the number lies between {_between(one.low[0], one.high[0])}"
    if k == found.profiles:
        half = found.by_k[max(k // 2, 1) - 1]
        return (
            f"Half of the profiles ({half.k} of {k}) give the order of all in {percent(half.same_order)} of the subsets"
        )
    return (
        f"{k} of {found.profiles} profiles give the order of all in {percent(one.same_order)} of the subsets, "
        f"and the same best run in {percent(one.same_best)}"
    )


def _between(low: float, high: float) -> str:
    return f"{percent(float(low))} and {percent(float(high))}"


# ---- spoken figure
#
# What share of flows the headline speaks for, as stacked bars with their words and table.


AMBIGUOUS, HATCHED, COVERAGE_CHARACTER = "#E69F00", "#808890", 6.6


def spoken(rows: Sequence[tuple[str, FlowCoverage]], by_group: bool) -> Drawing | None:
    """What share of flows the headline speaks for: a bar a run, or a bar a group of the one run. None without flows."""
    import plotly.graph_objects as go

    if by_group:
        frame = rows[0][1].frame
    else:
        frame = pd.DataFrame(
            [{"group": n, "pairs": s.pairs, "speaks": s.speaks, "share": s.share, **s.whole} for n, s in rows]
        )
    frame = frame[frame["pairs"] > 0].sort_values("share", ascending=False, kind="stable").reset_index(drop=True)
    if frame.empty:
        return None
    fig = go.Figure()
    colours = (COMPLETENESS, VIOLATION, AMBIGUOUS, HATCHED, HATCHED, HATCHED, HATCHED)
    patterns = ("", "", "", "/", "x", ".", "-")
    glyphs = ("N", "X", "?", "", "", "", "")
    for part, colour, pattern, glyph in zip(PARTS, colours, patterns, glyphs, strict=True):
        if not frame[part].any():
            continue
        shares = (frame[part] / frame["pairs"]).tolist()
        fig.add_bar(
            y=list(range(len(frame))),
            x=shares,
            orientation="h",
            name=WORDS[part],
            marker={
                "color": colour,
                "pattern": {"shape": pattern, "fgcolor": "rgba(17,17,17,.55)", "size": 5, "fillmode": "overlay"},
            },
            text=[f"{glyph} {100 * share:.0f} %".strip() if share >= 0.05 else "" for share in shares],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"color": "#111", "size": 11},
            hovertext=[
                f"<b>{html.escape(str(group))}</b><br>{WORDS[part]}: {percent(share)}, {number:,} of {pairs:,} flows"
                for group, share, number, pairs in zip(frame["group"], shares, frame[part], frame["pairs"], strict=True)
            ],
            hoverinfo="text",
        )
    ticks = [html_escaped(str(group).replace("_", " "), LONGEST) for group in frame["group"]]
    fig.update_yaxes(
        tickmode="array",
        tickvals=list(range(len(frame))),
        ticktext=ticks,
        range=[len(frame) - 0.5, -0.5],
        showgrid=False,
        zeroline=False,
    )
    fig.update_xaxes(range=[0, 1], tickformat=".0%", showgrid=False, zeroline=False)
    fig.update_layout(
        barmode="stack",
        bargap=0.22,
        height=28 * len(frame) + MARGIN["t"] + 92,
        margin={**MARGIN, "l": round(max(map(len, ticks)) * COVERAGE_CHARACTER) + 16, "b": 76},
        legend={
            "orientation": "h",
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
            "x": 0,
            "traceorder": "normal",
        },
        showlegend=True,
    )
    title = _spoken_title(rows, frame, by_group)
    subtitle = (
        "Flows of the run: those with a clear label in retained contexts enter violation and completeness, the others "
        f"neither; {int(frame['pairs'].sum()):,} flows"
    )
    columns = ["group", "pairs", "speaks", "share", *PARTS, "decided"]
    return Drawing(fig, title, subtitle, f"{title}. One stacked bar each.", frame[columns])


def _spoken_title(rows: Sequence[tuple[str, FlowCoverage]], frame: pd.DataFrame, by_group: bool) -> str:
    if by_group:
        name, found = rows[0]
        first, last = frame.iloc[0], frame.iloc[-1]
        return (
            f"{name}: {found.words.split(' (')[0]}, from {percent(last['share'])} "
            f"({shortened(str(last['group']).replace('_', ' '), LONGEST)}) to {percent(first['share'])} "
            f"({shortened(str(first['group']).replace('_', ' '), LONGEST)})"
        )
    shares = frame["share"]
    if shares.max() - shares.min() < 0.0005:
        whose = "the run's flows" if len(frame) == 1 else "the flows of every run"
        return f"The headline speaks for {percent(float(shares.max()))} of {whose}"
    return f"The headline speaks for {percent(float(shares.min()))} to {percent(float(shares.max()))} of a run's flows"


# ---- trying
#
# The numbers of several runs by a setting that is tried, beside those by the current settings.


@dataclass(frozen=True)
class Trial:
    """frame: one row a run, the best by the current settings first: run, then for each of violation, completeness and
    balanced the number tried, `_now` and `_change`; rank, rank_now (by the measure); attributes, flows, necessary,
    retained, each with `_now`; speaks and speaks_now (of all flows of the run the share that the headline speaks for).
    tau: Kendall's tau of the two orders. turned: (passes, passed) names. now, over: the measure by the current settings
    [runs], and by the tried ones at `thresholds` [runs, T].
    """

    setting: Setting
    frame: pd.DataFrame
    tau: float
    turned: tuple[tuple[str, str], ...]
    now: Floats
    over: Floats
    thresholds: tuple[float, ...]

    @property
    def words(self) -> str:
        """What it does to the order, as a sentence without its full stop."""
        if len(self.now) < 2:
            return "One run alone has no order"
        if not self.turned:
            return "No two runs change places" if np.isnan(self.tau) or self.tau == 1 else "Runs tie that did not"
        said = "; ".join(f"{passes} passes {passed}" for passes, passed in self.turned[:3])
        more = len(self.turned) - 3
        return said + (f"; {more} more {'pairs' if more > 1 else 'pair'} change places" if more > 0 else "")

    @property
    def sentence(self) -> str:
        """The same with Kendall's tau where there is one, as a whole sentence."""
        return f"{self.words}." if np.isnan(self.tau) else f"{self.words}: {tau_words(self.tau)}."


def flows_of(flows: Flows, found: Study) -> list[int]:
    """How many flows each run has, spoken for or not: [runs]."""
    return [flow_coverage(flows, subject.scope).pairs for subject in found.subjects]


def trial(
    found: Study,
    setting: Setting,
    names: Sequence[str],
    measure: Measure,
    pairs: Sequence[int],
    now: Sequence[Numbers] | None = None,
) -> Trial:
    """Try a setting on all runs. names, pairs (flows of each, for the share that is spoken for): [runs]. now: the
    numbers by the current settings where they are at hand. Raises ValueError for a setting that is no rule."""
    here = tuple(now) if now is not None else found.at(found.base)
    thresholds = tuple(sorted({*found.thresholds, setting.threshold}))
    over = found.over(setting, thresholds)
    place = thresholds.index(setting.threshold)
    then = tuple(item.at(place) for item in over)
    before, after = (measured(item, measure)[:, 0] for item in (here, then))
    first, second = ranks(before, measure), ranks(after, measure)
    columns: dict[str, object] = {"run": list(names), "rank_now": first, "rank": second}
    for each in Measure:
        old, new = (measured(item, each)[:, 0] for item in (here, then))
        columns |= {str(each): new, f"{each}_now": old, f"{each}_change": new - old}
    for name in ("attributes", "flows", "necessary", "retained"):
        columns |= {name: [int(getattr(item, name)[0]) for item in then]}
        columns |= {f"{name}_now": [int(getattr(item, name)[0]) for item in here]}
    for name, items in (("speaks", then), ("speaks_now", here)):
        columns[name] = [
            (int(item.flows[0]) + int(item.necessary[0])) / all_ if all_ else float("nan")
            for item, all_ in zip(items, pairs, strict=True)
        ]
    frame = pd.DataFrame(columns).sort_values(["rank_now", "run"], na_position="last", kind="stable")
    return Trial(
        setting,
        frame.reset_index(drop=True),
        tau(first, second),
        tuple((names[a], names[b]) for a, b in turned(before, after, measure)),
        before,
        measured(over, measure),
        thresholds,
    )


def order_drawing(found: Study, tried: Trial, names: Sequence[str], measure: Measure) -> Drawing | None:
    """The order over all thresholds by the priors and the identifier rule that are tried; None without any number."""
    base = found.base
    return bump(
        tried.now,
        tried.over,
        tried.thresholds,
        names,
        measure,
        base.threshold,
        tried.setting.threshold,
        under_words(base, tried.setting, found.votes.keys),
    )


def under_words(base: Setting, setting: Setting, keys: Sequence[str]) -> str:
    """', with priors a 0.5, b 0.5': in what a setting differs from the current one, its threshold aside."""
    said = ""
    if setting.priors != base.priors:
        shares = ", ".join(f"{key} {prior:.2f}" for key, prior in zip(keys, setting.priors, strict=True))
        said += f", with priors {shares}"
    if setting.identifiers != base.identifiers:
        said += f", identifiers by the rule '{setting.identifiers}'"
    if setting.labels != base.labels:
        said += ", by the consensus alone" if setting.labels == Labels.CONSENSUS else ", decisions before the consensus"
    return said


def setting_of(
    found: Study, threshold: float | None, weights: Sequence[int] | None, identifiers: IdentifierRule
) -> Setting:
    """The current settings with these in their place: weights of the personas, of which only the proportions count,
    None where they are left as they are. Raises ValueError for weights that are all 0 or not one a persona."""
    priors = found.base.priors
    if weights is not None:
        if len(weights) != len(priors) or sum(weights) <= 0 or min(weights) < 0:
            raise ValueError("the weights of the personas must be one each, not below 0, and not all 0")
        priors = tuple(weight / sum(weights) for weight in weights)
    at = found.base.threshold if threshold is None else threshold
    return Setting(at, priors, found.base.labels, identifiers)

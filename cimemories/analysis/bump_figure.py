"""The order of models over the consensus threshold, as a bump chart, and without each persona, as a table."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from cimemories.analysis.compare_figures import GRID, MARGIN, QUIET, Drawing, short
from cimemories.analysis.cube import Bools, Floats
from cimemories.analysis.leaderboard_text import percent
from cimemories.analysis.ranking import Measure, order_words, ranks, swaps, tau

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
        name = html.escape(short(names[n]))
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
    title = f"{measure.named[0].upper()}{measure.named[1:]} of {short(name)} {moved} {span}"
    subtitle = f"At {len(thresholds)} thresholds{under}; one run alone has no order"
    frame = pd.DataFrame({"threshold": list(thresholds), "run": name, "value": values, "rank": 1.0})
    return Drawing(fig, title, subtitle, f"{title}. One line over the threshold.", frame)


def _ends(places: Floats, values: Floats, names: Sequence[str], shown: Sequence[int]) -> dict[float, str]:
    """What stands at one end of the lines, by place; runs in one place share a line of text."""
    found: dict[float, list[str]] = {}
    for n in shown:
        if not math.isnan(places[n]):
            found.setdefault(float(places[n]), []).append(f"{short(names[n])} {percent(float(values[n]))}")
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
    return f"{many} run{'' if many == 1 else 's'}"


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

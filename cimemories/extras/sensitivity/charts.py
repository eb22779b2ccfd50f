"""The figures of sensitivity: the order of runs over thresholds, the range of each choice, fewer profiles, coverage."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from cimemories.answer import Column, Table
from cimemories.charts.bars import BarPart, Bounded, error_bars, share_bars
from cimemories.charts.comparison import LONGEST_NAME, MARGIN, Drawing
from cimemories.charts.theme import (
    AMBIGUOUS,
    COMPLETENESS,
    DASHES,
    GREY,
    GRID,
    LEGEND_BELOW,
    RUN,
    RUN_COLOURS,
    SYMBOLS,
    VIOLATION,
    named_rows,
    none_for_nan,
    row_bars,
    scatter,
    text_width,
    upright,
)
from cimemories.compare.ranking import Measure, order_text, ranks, swaps, tau_text
from cimemories.compare.study import Study
from cimemories.extras.sensitivity.choices import (
    COVERED,
    IDLE_PRIORS,
    ByProfiles,
    Range,
    Trial,
    changed_settings,
    choices_text,
    ranges_table,
    subsets_table,
    subsets_text,
)
from cimemories.extras.sensitivity.coverage import PARTS, WORDS, FlowCoverage, coverage_title
from cimemories.flows.arrays import Bools, Floats
from cimemories.metrics.sentences.numbers import LONGEST, TIE, shares
from cimemories.text import count, decimal, exact_percent, html_escaped, percent, shortened

CHARACTER, ROW = 6.6, 34  # pixels
ORDER = {
    "threshold": Column("percent", "Threshold"),
    "run": Column("text", "Run"),
    "rank": Column("number", "Place"),
    "value": Column("percent", "Number"),
}
Layout = dict[str, Any]


def order(study: Study, trial: Trial, names: Sequence[str], measure: Measure) -> Drawing | None:
    """Draw a bump chart: the rank of each run over all consensus thresholds, by the tried priors and identifier rule;
    for one run, its number. None if no run has the number."""
    import plotly.graph_objects as go

    defined: Bools = np.asarray(~np.isnan(trial.over).all(axis=1))
    if not defined.any():
        return None
    changed = changed_settings(study.base, trial.setting, study.votes.keys)
    if len(names) == 1:
        return _one_run(study, trial, names[0], measure, changed)
    places = ranks(trial.over, measure)
    # By the place at the last threshold; ties in the order of the runs (lexsort's last key is its first).
    last = np.nan_to_num(places[:, -1], nan=np.inf)
    shown = [n for n in np.lexsort([np.arange(len(names)), last]).tolist() if defined[n]]
    moving = [n for n in shown if len(np.unique(places[n][~np.isnan(places[n])])) > 1]
    xs = [100 * threshold for threshold in trial.thresholds]
    lines = []
    for n in shown:
        moves = n in moving  # only these have a colour, so that the eye follows them
        look = moving.index(n) if moves else shown.index(n)
        name = html_escaped(names[n], LONGEST_NAME)
        lines.append(
            scatter(
                xs,
                none_for_nan(places[n].tolist()),
                "lines",
                [
                    f"<b>{name}</b>: {measure.label} {percent(value)}, "
                    f"{'no place' if math.isnan(place) else f'place {place:.0f}'} at {x:.4g} %"
                    for x, value, place in zip(xs, trial.over[n].tolist(), places[n].tolist(), strict=True)
                ],
                line={
                    "color": RUN_COLOURS[look % len(RUN_COLOURS)] if moves else GREY,
                    "width": 3.5 if moves else 2,
                    "shape": "hv",
                    "dash": DASHES[look // len(RUN_COLOURS) % len(DASHES)] if moves else "solid",
                },
                name=name,
                showlegend=False,
            )
        )
    ends = [_end_texts(places[:, column], trial.over[:, column], names, shown) for column in (0, -1)]
    left, right = (max(map(len, texts.values())) * CHARACTER + 18 for texts in ends)
    most = int(np.nanmax(places))
    shapes, annotations = _tried_thresholds(study, trial)
    # All at once: Plotly copies all annotations whenever one is added.
    fig = go.Figure(
        data=lines,
        layout={
            "annotations": [
                *_end_annotations(ends[0], left=True),
                *_end_annotations(ends[1], left=False),
                *annotations,
            ],
            "shapes": shapes,
            # Turned around: place 1 is on top.
            "yaxis": {"range": [most + 0.6, 0.4], "showgrid": False, "zeroline": False, "showticklabels": False},
            "xaxis": {**_threshold_axis(), "zeroline": False, "range": [xs[0] - 0.5, xs[-1] + 0.5]},
            "height": max(ROW * most, 90) + MARGIN["t"] + 66,
            "margin": {"l": left, "r": right, "t": MARGIN["t"] + 12, "b": 52},
            "hovermode": "closest",
        },
    )
    turns = swaps(trial.now, trial.over, trial.thresholds, study.base.threshold, measure)
    title = order_text(turns, names, trial.thresholds, measure)
    missing = int((~defined).sum())
    subtitle = f"Rank by {measure.label}, by values alone, at {len(xs)} thresholds{changed}"
    subtitle += f"; left out: {count(missing, 'run')} without the number" if missing else ""
    alt = f"{title}. {len(shown)} lines, one a run, over the threshold; {len(moving)} of them change their place."
    frame = pd.DataFrame(
        {
            "threshold": np.tile(trial.thresholds, len(names)),
            "run": np.repeat(list(names), len(xs)),
            "value": trial.over.reshape(-1),
            "rank": places.reshape(-1),
        }
    )
    return Drawing(fig, title, subtitle, alt, Table(frame, ORDER))


def _one_run(study: Study, trial: Trial, name: str, measure: Measure, changed: str) -> Drawing:
    """Draw the number of one run over the threshold, since one run has no order."""
    import plotly.graph_objects as go

    values: list[float] = trial.over[0].tolist()
    xs = [100 * threshold for threshold in trial.thresholds]
    shapes, annotations = _tried_thresholds(study, trial)
    hover = [f"{measure.label} {percent(v)} at {x:.4g} %" for x, v in zip(xs, values, strict=True)]
    look = {"color": RUN_COLOURS[0], "width": 2.5}
    line = scatter(xs, none_for_nan(values), "lines", hover, line=look, showlegend=False)
    fig = go.Figure(
        data=[line],
        layout={
            "annotations": annotations,
            "shapes": shapes,
            "yaxis": {"tickformat": ".1%", "gridcolor": GRID, "zeroline": False, "title": {"text": measure.label}},
            "xaxis": _threshold_axis(),
            "height": 260 + MARGIN["t"],
            "margin": {**MARGIN, "t": MARGIN["t"] + 12, "l": 76},
        },
    )
    title = _one_run_text(name, measure, values, trial.thresholds)
    subtitle = f"At {len(xs)} thresholds{changed}; one run alone has no order"
    frame = pd.DataFrame({"threshold": list(trial.thresholds), "run": name, "value": values, "rank": 1.0})
    return Drawing(fig, title, subtitle, f"{title}. One line over the threshold.", Table(frame, ORDER))


def _one_run_text(name: str, measure: Measure, values: Sequence[float], thresholds: Sequence[float]) -> str:
    """Describe the number of one run over consensus thresholds; nan if undefined."""
    known = [value for value in values if not math.isnan(value)]
    low, high = shares(min(known), max(known))
    verb = f"lies between {low} and {high} over" if max(known) - min(known) > TIE else f"is {low} at all"
    return (
        f"{measure.named[0].upper()}{measure.named[1:]} of {shortened(name, LONGEST)} {verb} "
        f"thresholds from {exact_percent(thresholds[0])} to {exact_percent(thresholds[-1])}"
    )


def _threshold_axis() -> Layout:
    return {"title": {"text": "consensus threshold"}, "ticksuffix": " %", "gridcolor": GRID}


def _end_texts(places: Floats, values: Floats, names: Sequence[str], shown: Sequence[int]) -> dict[float, str]:
    """Return the names and numbers at one end of the lines, by place; runs in one place share a line of text."""
    by_place: dict[float, list[str]] = {}
    for n in shown:
        if not math.isnan(places[n]):
            by_place.setdefault(float(places[n]), []).append(
                f"{shortened(names[n], LONGEST_NAME)} {percent(float(values[n]))}"
            )
    # If no run has a place here, one empty text, so that a longest one exists.
    return {place: f"{place:.0f}  {', '.join(texts)}" for place, texts in by_place.items()} or {1.0: ""}


def _end_annotations(texts: dict[float, str], *, left: bool) -> list[Layout]:
    look = {
        "x": 0 if left else 1,
        "xref": "paper",
        "showarrow": False,
        "xanchor": "right" if left else "left",
        "xshift": -8 if left else 8,
        "font": {"size": 12},
    }
    return [{**look, "y": place, "text": html.escape(text)} for place, text in texts.items()]


def _tried_thresholds(study: Study, trial: Trial) -> tuple[list[Layout], list[Layout]]:
    now, tried = study.base.threshold, trial.setting.threshold
    return _upright_lines([(100 * now, "now")] + ([] if tried == now else [(100 * tried, "tried")]))


def _upright_lines(marks: Sequence[tuple[float, str]]) -> tuple[list[Layout], list[Layout]]:
    """Return vertical lines with a word on top, as shapes and annotations. marks: (x, word)."""
    shapes, annotations = [], []
    for number, (x, word) in enumerate(marks):
        shapes.append(upright(x, GREY, "dot" if number == 0 else "dash"))
        top = {"x": x, "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False, "font": {"size": 11}}
        annotations.append({**top, "text": html.escape(word)})
    return shapes, annotations


# ---- what each choice moves


def choices(
    ranges: Sequence[Range], names: Sequence[str], measure: Measure, *, unanimous: bool = False
) -> Drawing | None:
    """Draw how far each choice moves a number of any run, as bars around 0 in percentage points. ranges: the widest
    first, in shares. unanimous: whether the current rule requires all personas to agree. None without any choice."""
    import plotly.graph_objects as go

    if not ranges:
        return None
    yaxis, left = named_rows([str(item.choice) for item in ranges])
    beside = [_range_text(item) for item in ranges]
    bars = row_bars(
        [100 * item.width for item in ranges],
        [_hover(item, names) for item in ranges],
        base=[100 * item.low for item in ranges],
        marker={"color": RUN},
        width=0.5,
        showlegend=False,
    )
    look = {"x": 1, "xref": "paper", "showarrow": False, "xanchor": "left", "xshift": 10, "font": {"size": 12}}
    fig = go.Figure(
        data=[bars],
        layout={
            "yaxis": yaxis,
            "xaxis": {
                "title": {"text": f"change of {measure.named}, percentage points"},
                "gridcolor": GRID,
                "zeroline": False,
            },
            "annotations": [{**look, "y": row, "text": text} for row, text in enumerate(beside)],
            "shapes": [upright(0, GREY)],
            "height": ROW * len(ranges) + MARGIN["t"] + 60,
            "margin": {"l": left, "r": round(text_width(beside)) + 24, "t": MARGIN["t"], "b": 52},
        },
    )
    title = choices_text(ranges, names, measure)
    subtitle = (
        f"Least and greatest change of {count(len(names), 'run')}, one choice at a time, all others as they are now: "
        f"{sum(item.settings for item in ranges)} settings"
    )
    subtitle += f"; {IDLE_PRIORS}" if unanimous else ""
    alt = f"{title}. One bar a choice, the widest first."
    return Drawing(fig, title, subtitle, alt, ranges_table(ranges, names))


def _hover(item: Range, names: Sequence[str]) -> str:
    parts = [f"<b>{html.escape(str(item.choice))}</b>, {item.settings} other settings"]
    for value, (setting, run) in ((item.low, item.low_at), (item.high, item.high_at)):
        if value:
            parts.append(f"{100 * value:+.1f} points: {html_escaped(names[run], LONGEST_NAME)}, {html.escape(setting)}")
    if item.least_tau < 1:
        parts.append(f"{tau_text(item.least_tau)}: {html.escape(item.tau_at)}")
    return "<br>".join(parts)


def _range_text(item: Range) -> str:
    if math.isnan(item.least_tau):
        return f"{100 * item.low:+.1f} to {100 * item.high:+.1f}"
    order = "same order" if item.least_tau == 1 else f"tau down to {decimal(item.least_tau)}"
    return f"{100 * item.low:+.1f} to {100 * item.high:+.1f}, {order}"


def profiles(subsets: ByProfiles, names: Sequence[str], measure: Measure, k: int) -> Drawing | None:
    """Draw the numbers over subsets of profiles, by their size: means and the middle 95 %. k: the size in the title.
    None if there are no subsets."""
    import plotly.graph_objects as go

    if not subsets.by_k:
        return None
    sizes = [item.k for item in subsets.by_k]
    traces = []
    for row, run in enumerate(subsets.runs):
        points = [Bounded(item.mean[row], item.low[row], item.high[row]) for item in subsets.by_k]
        colour, name = RUN_COLOURS[row % len(RUN_COLOURS)], html_escaped(names[run], LONGEST_NAME)
        # Shifted a little, so that the bars of several runs can be told apart.
        # All together at most half the way to the next size, so that no bar seems to belong to it.
        aside = (row - (len(subsets.runs) - 1) / 2) * min(0.08, 0.5 / len(subsets.runs))
        traces.append(
            scatter(
                [size + aside for size in sizes],
                none_for_nan([point.value for point in points]),
                "lines+markers",
                [
                    f"<b>{name}</b>, {size} of {subsets.profiles} profiles<br>{measure.label} {percent(point.value)}, "
                    f"95 % of the subsets from {percent(point.low)} to {percent(point.high)}"
                    for size, point in zip(sizes, points, strict=True)
                ],
                error_y=error_bars(points, colour),
                line={"color": colour, "width": 1.5, "dash": DASHES[row // len(RUN_COLOURS) % len(DASHES)]},
                marker={"symbol": SYMBOLS[row % len(SYMBOLS)], "size": 8},
                name=name,
            )
        )
    shapes, annotations = _upright_lines([(k, "chosen")] if k < subsets.profiles else [])
    fig = go.Figure(
        data=traces,
        layout={
            "xaxis": {
                "title": {"text": "profiles"},
                "dtick": 1 if len(sizes) <= 20 else None,
                "showgrid": False,
                "zeroline": False,
            },
            "yaxis": {"title": {"text": measure.label}, "tickformat": ".0%", "gridcolor": GRID, "zeroline": False},
            "shapes": shapes,
            "annotations": annotations,
            "height": 340 + MARGIN["t"] + 100,
            "margin": {**MARGIN, "t": MARGIN["t"] + 16, "b": 96},
            "legend": dict(LEGEND_BELOW),
            "showlegend": True,
        },
    )
    title = subsets_text(subsets.by_k, k, len(subsets.runs))
    size = subsets.by_k[k - 1]
    which = f"all {size.count:,}" if size.all else f"{size.count:,} random"
    subtitle = (
        f"Mean and middle 95 % over {which} subsets of {k} of {subsets.profiles} common profiles "
        "(bars), and over subsets of every other size"
    )
    if subsets.left_out:
        subtitle += f"; {count(len(subsets.left_out), 'run')} with too few common profiles left out"
    alt = f"{title}. One line a run, with bars that narrow as profiles are added."
    return Drawing(fig, title, subtitle, alt, subsets_table(subsets, names))


# ---- what the headline covers


# Flows that enter no number are grey with a pattern, so that the three labels stand out.
COVERAGE_PARTS = tuple(
    BarPart(part, WORDS[part], glyph, colour, pattern)
    for part, glyph, colour, pattern in zip(
        PARTS,
        ("N", "I", "U", "", "", "", "", ""),
        (COMPLETENESS, VIOLATION, AMBIGUOUS, GREY, GREY, GREY, GREY, GREY),
        ("", "", "", "/", "x", ".", "-", "|"),
        strict=True,
    )
)


def coverage(rows: Sequence[tuple[str, FlowCoverage]], by_group: bool) -> Drawing | None:
    """Draw the share of flows that the headline covers: a bar for each of `rows` (name of the run, its coverage), or
    by_group a bar for each group of the first. None without flows."""
    if by_group:
        frame = rows[0][1].frame
    else:
        frame = pd.DataFrame(
            [{"group": n, "pairs": s.pairs, "speaks": s.speaks, "share": s.share, **s.totals} for n, s in rows]
        )
    # Stable, so that equal shares keep the order in which they were asked for.
    frame = frame[frame["pairs"] > 0].sort_values("share", ascending=False, kind="stable").reset_index(drop=True)
    if frame.empty:
        return None
    shown = frame.assign(name=[str(group).replace("_", " ") for group in frame["group"]])
    title = coverage_title(rows, frame, by_group=by_group)
    subtitle = (
        "Flows with a clear label in retained contexts enter violation and completeness, the others neither; "
        f"{count(int(frame['pairs'].sum()), 'flow')}"
    )
    columns = {"group": Column("text", "Group" if by_group else "Run"), **COVERED}
    fig = share_bars(shown, COVERAGE_PARTS, name="name", unit="flows")
    return Drawing(fig, title, subtitle, f"{title}. One stacked bar each.", Table(frame[[*columns]], columns))

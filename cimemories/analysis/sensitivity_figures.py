"""What choices do to numbers, and what fewer profiles would have said, as figures with their words and tables."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from cimemories.analysis.bump_figure import CHARACTER, DASHES, ROW, SHADES, marks, runs_words
from cimemories.analysis.choices import Range
from cimemories.analysis.compare_figures import GRID, MARGIN, QUIET, RUN, Drawing, short
from cimemories.analysis.leaderboard_text import percent
from cimemories.analysis.profile_subsets import ByProfiles
from cimemories.analysis.ranking import Measure, tau_words

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "star", "hexagon")


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
            x=1, xref="paper", y=row, text=_beside(item), showarrow=False, xanchor="left", xshift=10, font={"size": 12}
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
            "r": round(max(len(_beside(item)) for item in found) * CHARACTER) + 16,
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
            parts.append(f"{100 * value:+.1f} points: {html.escape(short(names[run]))}, {html.escape(setting)}")
    if item.least_tau < 1:
        parts.append(f"{tau_words(item.least_tau)}: {html.escape(item.tau_at)}")
    return "<br>".join(parts)


def _beside(item: Range) -> str:
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
            marker={"symbol": SYMBOLS[row % len(SYMBOLS)], "size": 8},
            name=html.escape(short(names[run])),
            hovertext=[
                f"<b>{html.escape(short(names[run]))}</b>, {x} of {found.profiles} profiles<br>{measure.words} "
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

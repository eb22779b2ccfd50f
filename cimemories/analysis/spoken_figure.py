"""What share of flows the headline speaks for, as stacked bars with their words and table."""

from __future__ import annotations

import html
from collections.abc import Sequence

import pandas as pd

from cimemories.analysis.compare_figures import COMPLETENESS, MARGIN, VIOLATION, Drawing, short
from cimemories.analysis.leaderboard_text import percent
from cimemories.analysis.spoken_for import PARTS, WORDS, SpokenFor

AMBIGUOUS, HATCHED, CHARACTER = "#E69F00", "#808890", 6.6


def spoken(rows: Sequence[tuple[str, SpokenFor]], by_group: bool) -> Drawing | None:
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
    ticks = [html.escape(short(str(group).replace("_", " "))) for group in frame["group"]]
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
        margin={**MARGIN, "l": round(max(map(len, ticks)) * CHARACTER) + 16, "b": 76},
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


def _spoken_title(rows: Sequence[tuple[str, SpokenFor]], frame: pd.DataFrame, by_group: bool) -> str:
    if by_group:
        name, found = rows[0]
        first, last = frame.iloc[0], frame.iloc[-1]
        return (
            f"{name}: {found.words.split(' (')[0]}, from {percent(last['share'])} "
            f"({short(str(last['group']).replace('_', ' '))}) to {percent(first['share'])} "
            f"({short(str(first['group']).replace('_', ' '))})"
        )
    shares = frame["share"]
    if shares.max() - shares.min() < 0.0005:
        whose = "the run's flows" if len(frame) == 1 else "the flows of every run"
        return f"The headline speaks for {percent(float(shares.max()))} of {whose}"
    return f"The headline speaks for {percent(float(shares.min()))} to {percent(float(shares.max()))} of a run's flows"

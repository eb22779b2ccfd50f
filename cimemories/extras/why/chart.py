"""The figure of an explained leak."""

from __future__ import annotations

import html
import math

from cimemories.charts.bars import Bounded, IntervalSeries, interval_rows
from cimemories.charts.comparison import Drawing
from cimemories.charts.theme import GREY, VIOLATION, upright
from cimemories.extras.why.why import Why


def effects(why: Why) -> Drawing | None:
    """Draw how far each change of a leaked message's request moves the probability of the reveal, in percentage points,
    with intervals. None if nothing can be compared yet."""
    base, *changes = why.effects
    shown = [effect for effect in changes if not math.isnan(effect.difference)]
    if not shown:
        return None
    hover = [
        f"<b>{html.escape(effect.name)}</b><br>revealed in {effect.counts_text}, {base.name} in {base.counts_text}<br>"
        f"{100 * effect.difference:+.0f} points [{100 * effect.difference_low:+.0f}, "
        f"{100 * effect.difference_high:+.0f}]"
        for effect in shown
    ]
    bounds = [Bounded(effect.difference, effect.difference_low, effect.difference_high) for effect in shown]
    rows = [f"{effect.name} {effect.reveals}/{effect.judged}" for effect in shown]
    xaxis = {"title": {"text": "effect in percentage points"}}
    series = [IntervalSeries("change", bounds, VIOLATION, "x", hover)]
    subtitle = f"As it was: revealed in {base.counts_text} new messages. Bars: 95 % intervals, each alone"
    fig = interval_rows(rows, series, xaxis=xaxis, title=why.short, subtitle=subtitle, scale=100, legend=False)
    fig.add_shape(upright(0, GREY))
    alt = f"{why.short}. One row a change of the request: the effect on the probability of the reveal."
    return Drawing(fig, why.short, subtitle, alt, next(iter(why.tables().values())))

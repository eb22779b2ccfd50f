"""Figures of the paper's kind: the heatmap by context and domain (Figure 3) and accumulation over tasks (Figure 2)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cimemories.analysis.accumulation import Accumulation
from cimemories.analysis.cube import Floats
from cimemories.analysis.heatmap import Grid, least_complete, worst
from cimemories.analysis.leaderboard_text import percent
from cimemories.report.document import Figure
from cimemories.report.drawing import HUES, Canvas, spread

CELL_HEIGHT, LABELS, GAP, HEAD = 17.0, 230.0, 22.0, 118.0
WIDEST, NARROWEST = 46.0, 26.0
WIDTH = 980.0


def heatmap(found: Grid, name: str, run_id: str, *, simulated: bool) -> Figure | None:
    """Violation@n and completeness side by side, one row a context, one column a domain; rows with most violation
    first. None where no cell has a value."""
    if found.empty:
        return None
    kept = _order(found)
    rows, columns = found.rows, found.columns
    width = min(WIDEST, max(NARROWEST, 640.0 / (2 * max(1, len(columns)))))
    panel = width * len(columns)
    whole = LABELS + 2 * panel + GAP + 40
    canvas = Canvas(f"figure-heatmap-{run_id}", whole, HEAD + CELL_HEIGHT * len(kept) + 44)
    panels = ((f"Violation@{found.n}", found.violation), ("Completeness", found.completeness))
    for number, (title, values) in enumerate(panels):
        left = LABELS + number * (panel + GAP)
        top = _ceiling(values[kept])
        canvas.text(left, 16, title, "strong")
        for column, label in enumerate(columns.names):
            x = left + (column + 0.5) * width
            canvas.text(x + 4, HEAD - 8, label, "quiet", room=88)
            canvas.root[-1].set("transform", f"rotate(-60 {x + 4:.2f} {HEAD - 8:.2f})")
        for place, row in enumerate(kept):
            y = HEAD + place * CELL_HEIGHT
            if number == 0:
                canvas.text(LABELS - 8, y + 12, rows.names[row], anchor="end", room=LABELS - 12)
            for column in range(len(columns)):
                value = float(values[row, column])
                x = left + column * width
                if math.isnan(value):
                    _hatch(canvas, x, y, width - 1, CELL_HEIGHT - 1)
                    continue
                colour = _colour(round(100 * value / top))
                canvas.rect(x, y, width - 1, CELL_HEIGHT - 1, fill=colour)
                ink = "small on-light" if _light(colour) else "small on-dark"
                canvas.text(x + (width - 1) / 2, y + 12, f"{100 * value:.0f}", ink, anchor="middle")
        low = HEAD + CELL_HEIGHT * len(kept) + 26
        for i in range(26):
            canvas.rect(left + i * 4, low - 10, 4, 10, fill=_colour(4 * i))
        canvas.text(left - 6, low, "0 %", "quiet", anchor="end")
        canvas.text(left + 110, low, f"{100 * top:.0f} %", "quiet")
    _hatch(canvas, 12, low - 11, width - 1, CELL_HEIGHT - 4)
    canvas.text(width + 18, low, "no pair", "quiet")
    subtitle = (
        f"{int(found.violation_pairs.sum()):,} inappropriate and {int(found.completeness_pairs.sum()):,} necessary "
        f"pairs of all profiles, {len(kept)} contexts, {len(columns)} domains"
    )
    alt = (
        f"Two grids of {len(kept)} contexts by {len(columns)} domains, violation left and completeness right; "
        "the same numbers are in the table."
    )
    title = _heat_title(found, name)
    drawn = canvas.described(title, alt, simulated=simulated)
    return Figure(canvas.name, title, subtitle, alt, drawn, simulated)


def _order(found: Grid) -> list[int]:
    """Rows with any pair, most violated first; those without an inappropriate pair last, by completeness."""
    violation, complete = found.pooled("violation")[0], found.pooled("completeness")[0]
    there = np.flatnonzero((found.violation_pairs + found.completeness_pairs).sum(axis=1) > 0)
    return sorted(
        (int(i) for i in there),
        key=lambda i: (
            math.isnan(violation[i]),
            -np.nan_to_num(violation[i]),
            np.nan_to_num(complete[i], nan=2.0),
            i,
        ),
    )


def _heat_title(found: Grid, name: str) -> str:
    leaking, silent = worst(found), least_complete(found)
    parts = []
    if leaking is not None:
        parts.append(f"leaks most of {leaking.column} to {leaking.row} ({percent(leaking.share)})")
    if silent is not None:
        parts.append(f"leaves out most of {silent.column} for {silent.row} ({percent(silent.share)} conveyed)")
    return f"{name} {' and '.join(parts)}"


def _hatch(canvas: Canvas, x: float, y: float, width: float, height: float) -> None:
    """An empty cell: three strokes in a frame. A pattern would do, but printers turn patterns into large pictures."""
    canvas.rect(x + 0.5, y + 0.5, width - 1, height - 1, cls="rule")
    for i in (1, 2, 3):
        across = width * i / 4
        canvas.line((x + across - 4, y + height - 3), (x + across + 4, y + 3), "rule")


def _ceiling(values: Floats) -> float:
    """Where the scale of colours ends: the highest value, rounded up to a tenth, so that low values differ visibly."""
    highest = float(np.nanmax(values)) if not np.isnan(values).all() else 1.0
    return min(1.0, max(0.1, math.ceil(highest * 10 - 1e-9) / 10))


@lru_cache(maxsize=101)
def _colour(percent_: int) -> str:
    """A colour of the scale that the app's heatmaps have, for so many percent: '#00224e'."""
    from plotly.colors import sample_colorscale

    found = sample_colorscale("Cividis", [min(max(percent_, 0), 100) / 100])[0]
    return "#" + "".join(f"{round(float(part)):02x}" for part in re.findall(r"[\d.]+", found)[:3])


def _light(colour: str) -> bool:
    """Whether dark text stands out better on it than white text (relative luminance, WCAG 2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.18


@dataclass(frozen=True)
class Curve:
    """One line of the accumulation figure: values for k = 0..K; a band around it where there is one."""

    name: str
    values: Floats
    cls: str
    low: Floats | None = None
    high: Floats | None = None


def of_run(found: Accumulation, independent: Floats) -> list[Curve]:
    """The curves of one run: n = 1..N, that of N with its band, and N if every response leaked on its own."""
    ns = found.curves.ns
    curves = [
        Curve(
            f"n = {n}",
            found.mean[i],
            "run0" if n == ns[-1] else "run0 dotted" if n == ns[0] and len(ns) > 1 else "quiet",
            found.low[i] if n == ns[-1] else None,
            found.high[i] if n == ns[-1] else None,
        )
        for i, n in enumerate(ns)
        if n in (ns[0], ns[len(ns) // 2], ns[-1])
    ]
    return [*reversed(curves), Curve(f"n = {ns[-1]}, if independent", independent, "run1 dashed")]


def of_runs(runs: Sequence[tuple[str, Accumulation]]) -> list[Curve]:
    """The curve of each run at all its samples, with its band."""
    dashes = ("", " dashed", " dotted")
    return [
        Curve(name, item.mean[-1], f"run{i % HUES}{dashes[i // HUES % 3]}", item.low[-1], item.high[-1])
        for i, (name, item) in enumerate(runs)
    ]


def curves(name: str, lines: Sequence[Curve], title: str, subtitle: str, *, simulated: bool) -> Figure | None:
    """Lines over the number of tasks. None where no line has a value."""
    shown = [line for line in lines if len(line.values) > 1 and not np.isnan(line.values).all()]
    if not shown:
        return None
    left, top, right, bottom = 64.0, 30.0, 640.0, 366.0
    most = max(len(line.values) for line in shown) - 1
    highest = max(float(np.nanmax(line.values if line.high is None else line.high)) for line in shown)
    step = next(size for size in (0.02, 0.05, 0.1, 0.2) if highest <= 6 * size or size == 0.2)
    ticks = max(1, math.ceil(highest / step - 1e-9))
    ceiling = ticks * step
    canvas = Canvas(name, WIDTH, 416)

    def place(k: float, value: float) -> tuple[float, float]:
        return left + k / most * (right - left), bottom - min(value, ceiling) / ceiling * (bottom - top)

    for i in range(ticks + 1):
        share = step * i
        canvas.line(place(0, share), place(most, share), "rule")
        canvas.text(left - 8, place(0, share)[1] + 4, f"{100 * share:.0f} %", "quiet", anchor="end")
    for k in sorted({round(most * i / 6) for i in range(7)}):
        canvas.text(place(k, 0)[0], bottom + 18, str(k), "quiet", anchor="middle")
    canvas.text((left + right) / 2, bottom + 40, "tasks done, all orders equally likely", anchor="middle")
    canvas.text(left - 50, top - 10, "Share of attributes revealed inappropriately")
    for line in shown:
        if line.low is not None and line.high is not None:
            ends = [[place(k, float(v)) for k, v in enumerate(side)] for side in (line.low, line.high)]
            canvas.band(ends[0], ends[1], line.cls.split()[0])
    for line in shown:
        canvas.curve([place(k, float(v)) for k, v in enumerate(line.values) if not math.isnan(v)], line.cls)
    last = [float(line.values[~np.isnan(line.values)][-1]) for line in shown]
    heights = spread([place(most, value)[1] for value in last], 18, top + 8, bottom)
    for line, value, y in zip(shown, last, heights, strict=True):
        canvas.line((right + 4, place(most, value)[1]), (right + 16, y), f"rule {line.cls.split()[0]}")
        canvas.curve([(right + 18, y), (right + 40, y)], line.cls)
        canvas.text(right + 46, y + 4, f"{percent(value)}  {line.name}", room=WIDTH - right - 50)
    alt = "; ".join(f"{line.name} ends at {percent(value)}" for line, value in zip(shown, last, strict=True))
    alt = f"Lines that rise over {most} tasks: {alt}."
    return Figure(name, title, subtitle, alt, canvas.described(title, alt, simulated=simulated), simulated)

"""Figures with one row a thing and its numbers along a scale, and the plane of runs. Titles say the takeaway."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from cimemories.analysis.difference import Difference
from cimemories.analysis.intervals import Interval
from cimemories.analysis.leaderboard import Leaderboard, Line
from cimemories.analysis.leaderboard_text import percent
from cimemories.analysis.pareto import front
from cimemories.report.document import Figure
from cimemories.report.drawing import HUES, Canvas, spread

WIDTH, ROW, LABELS, HEAD, FOOT = 900.0, 26.0, 210.0, 34.0, 40.0
PLANE = 980.0
SHAPES = ("circle", "square", "diamond", "cross")


@dataclass(frozen=True)
class Mark:
    """One number of a row: value with bounds (nan: none), how it is drawn, and what it is called in the key."""

    value: float
    low: float
    high: float
    cls: str
    shape: str
    name: str


def of_interval(found: Interval, cls: str, shape: str, name: str) -> Mark:
    return Mark(found.value, found.low, found.high, cls, shape, name)


def violations(line: Line, found: Mapping[int, Interval], name: str) -> Figure | None:
    """Violation@n for every n and completeness, of one run with intervals. None where nothing is defined."""
    rows = [(f"Violation@{n}", [of_interval(item, "violation", "cross", "")]) for n, item in found.items()]
    rows.append(("Completeness", [of_interval(line.completeness, "completeness", "circle", "")]))
    rows.append(("Balanced score", [of_interval(line.balanced, "quiet", "diamond", "")]))
    if all(math.isnan(mark.value) for _, marks in rows for mark in marks):
        return None
    most = line.run.samples
    title = (
        f"{name} gives away {percent(found[most].value)} of what it should withhold within {most} "
        f"sample{'s' if most > 1 else ''} a task, and conveys {percent(line.completeness.value)} of what is needed"
    )
    numbers = line.numbers
    subtitle = (
        f"{numbers.attributes:,} attributes, {numbers.flows:,} inappropriate flows, {numbers.retained:,} retained "
        f"contexts, {numbers.profiles} profiles; bars are 95 % intervals"
    )
    told = "; ".join(f"{label} {percent(marks[0].value)}" for label, marks in rows)
    alt = f"One row a number: {told}."
    return _rows(f"figure-headline-{line.run.id}", title, subtitle, alt, rows, simulated=line.simulated)


def groups(frame: pd.DataFrame, what: str, n: int, name: str, run_id: str, *, simulated: bool) -> Figure | None:
    """Violation and completeness by group (domain, sphere), most violated first. None where no group has either."""
    shown = frame.dropna(subset=["violation", "completeness"], how="all").sort_values(
        "violation", ascending=False, kind="stable"
    )
    if shown.empty:
        return None
    rows = [
        (
            str(item["group"]) or "(none)",
            [
                Mark(float(item["violation"]), math.nan, math.nan, "violation", "cross", f"Violation@{n}"),
                Mark(float(item["completeness"]), math.nan, math.nan, "completeness", "circle", "Completeness"),
            ],
        )
        for item in shown.to_dict("records")
    ]
    first, marks = rows[0]
    if math.isnan(marks[0].value):
        title = f"{name}: no {what} has an inappropriate flow"
    else:
        title = f"{name} gives away most in {first.replace('_', ' ')}: {percent(marks[0].value)}"
    subtitle = (
        f"{len(rows)} {what}s, {int(shown['inappropriate_flows'].sum()):,} inappropriate and "
        f"{int(shown['necessary_flows'].sum()):,} necessary flows, at {n} samples a task"
    )
    alt = f"One row a {what}, violation as a cross and completeness as a circle; the same numbers are in the table."
    rows = [(label.replace("_", " "), found) for label, found in rows]
    return _rows(f"figure-{what}-{run_id}", title, subtitle, alt, rows, simulated=simulated)


def differences(found: Difference, first: str, second: str) -> Figure | None:
    """The second run minus the first, overall and by domain, in percentage points with intervals."""
    whole = [
        of_interval(found.paired.violation, "violation", "cross", f"Violation@{found.paired.n}"),
        of_interval(found.paired.completeness, "completeness", "circle", "Completeness"),
    ]
    rows = [("all domains", whole)]
    frame = found.domains.dropna(subset=["violation", "completeness"], how="all")
    for item in frame.sort_values("violation", kind="stable").to_dict("records"):
        marks = []
        for of in whole:
            key = "violation" if of.cls == "violation" else "completeness"
            value, low, high = (float(item[f"{key}{end}"]) for end in ("", "_low", "_high"))
            marks.append(Mark(value, low, high, of.cls, of.shape, of.name))
        rows.append((str(item["domain"]).replace("_", " "), marks))
    if all(math.isnan(mark.value) for _, marks in rows for mark in marks):
        return None
    # The bounds of a domain with few attributes reach far; they must not squeeze all others.
    most = max(abs(v) for _, marks in rows for m in marks for v in (m.value, m.low, m.high) if not math.isnan(v))
    reach = max(0.1, math.ceil(most * 10 - 1e-9) / 10)
    name = f"figure-difference-{found.first.run.id}-{found.second.run.id}"
    subtitle = (
        f"{second} minus {first} in percentage points; {found.tallied.flows:,} common inappropriate and "
        f"{found.necessary:,} necessary flows, {found.paired.profiles} profiles; bars are 95 % intervals"
    )
    alt = "One row a domain, violation as a cross and completeness as a circle; right of 0: more than in the first run."
    title = found.sentences(first, second)[0]
    return _rows(name, title, subtitle, alt, rows, simulated=found.simulated, low=-reach, high=reach, points=True)


def _rows(
    name: str,
    title: str,
    subtitle: str,
    alt: str,
    rows: Sequence[tuple[str, Sequence[Mark]]],
    *,
    simulated: bool,
    low: float = 0.0,
    high: float = 1.0,
    points: bool = False,
) -> Figure:
    key = {mark.name: mark for _, marks in rows for mark in marks if mark.name}
    height = HEAD + ROW * len(rows) + FOOT
    canvas = Canvas(name, WIDTH, height)
    right, bottom = WIDTH - 70.0, HEAD + ROW * len(rows)

    def x(value: float) -> float:
        return LABELS + (min(max(value, low), high) - low) / (high - low) * (right - LABELS)

    for i in range(5 if points else 6):
        tick = low + (high - low) * i / (4 if points else 5)
        canvas.line((x(tick), HEAD - 6), (x(tick), bottom), "axis" if points and i == 2 else "rule")
        said = f"{100 * tick + 0.0:+.0f}" if points and abs(tick) > 1e-9 else f"{abs(100 * tick):.0f}"
        canvas.text(x(tick), bottom + 16, said + (" points" if points else " %"), "quiet", anchor="middle")
    at = LABELS
    for mark in key.values():
        canvas.mark(at + 5, 12, mark.shape, mark.cls)
        canvas.text(at + 16, 16, mark.name)
        at += 130
    for place, (label, marks) in enumerate(rows):
        middle = HEAD + ROW * (place + 0.5)
        canvas.text(LABELS - 12, middle + 4, label, anchor="end", room=LABELS - 16)
        defined = [mark for mark in marks if not math.isnan(mark.value)]
        for number, mark in enumerate(defined):
            y = middle + (number - (len(defined) - 1) / 2) * 8
            if not math.isnan(mark.low):
                canvas.line((x(mark.low), y), (x(mark.high), y), f"mark {mark.cls}")
            canvas.mark(x(mark.value), y, mark.shape, mark.cls)
        if len(defined) == 1:
            canvas.text(right + 10, middle + 4, percent(defined[0].value), "strong")
        if not defined:
            canvas.text(LABELS, middle + 4, "not defined", "quiet")
    return Figure(name, title, subtitle, alt, canvas.described(title, alt, simulated=simulated), simulated)


def plane(board: Leaderboard, called: Mapping[str, str]) -> Figure | None:
    """Runs by violation (to the right) and completeness (up), with intervals and the constant strategies. None with
    fewer than two runs that have both numbers."""
    lines = [line for line in board.lines if not math.isnan(line.balanced.value)]
    if len(lines) < 2:
        return None
    best = front([(line.violation.value, line.completeness.value) for line in lines])
    left, top, right, bottom = 64.0, 24.0, 520.0, 424.0
    canvas = Canvas("figure-plane", PLANE, 480)

    def place(violation: float, complete: float) -> tuple[float, float]:
        return left + violation * (right - left), bottom - complete * (bottom - top)

    for i in range(6):
        share = i / 5
        canvas.line(place(share, 0), place(share, 1), "rule")
        canvas.line(place(0, share), place(1, share), "rule")
        canvas.text(place(share, 0)[0], bottom + 18, f"{100 * share:.0f} %", "quiet", anchor="middle")
        canvas.text(left - 8, place(0, share)[1] + 4, f"{100 * share:.0f} %", "quiet", anchor="end")
    canvas.text((left + right) / 2, bottom + 40, f"{board.violation_name}: less is better", anchor="middle")
    canvas.text(left - 50, top - 10, "Completeness: more is better")
    ends = [place(line.violation.value, line.completeness.value)[1] for line in lines]
    beside = [item for item in board.constants if not math.isnan(item.violation + item.completeness)]
    ends += [place(item.violation, item.completeness)[1] for item in beside]
    heights = spread(ends, 20, top + 8, bottom)
    for i, line in enumerate(lines):
        x, y = place(line.violation.value, line.completeness.value)
        hue, shape = f"run{i % HUES}", SHAPES[i % len(SHAPES)]
        across, up = line.violation, line.completeness
        canvas.line(place(across.low, up.value), place(across.high, up.value), f"mark {hue}")
        canvas.line(place(across.value, up.low), place(across.value, up.high), f"mark {hue}")
        canvas.mark(x, y, shape, hue, 6)
        canvas.line((x + 8, y), (right + 24, heights[i] - 4), f"rule {hue} dotted")
        canvas.mark(right + 34, heights[i] - 4, shape, hue)
        front_ = ", on the front" if best[i] else ""
        canvas.text(right + 46, heights[i], f"{called[line.run.id]}{front_}", room=PLANE - right - 50)
    for i, item in enumerate(beside, len(lines)):
        x, y = place(item.violation, item.completeness)
        canvas.mark(x, y, "diamond", "quiet", 4)
        canvas.line((x + 6, y), (right + 24, heights[i] - 4), "rule dotted")
        canvas.text(right + 46, heights[i], item.name, "quiet", room=PLANE - right - 50)
    on = [called[line.run.id] for line, is_on in zip(lines, best, strict=True) if is_on]
    if len(on) == 1:
        title = f"{on[0]} leaks least and conveys most of these {len(lines)} runs"
    elif len(on) == len(lines):
        title = f"None of these {len(lines)} runs beats another on both sides: who leaks less also conveys less"
    else:
        title = f"{len(on)} of {len(lines)} runs are on the front: no other leaks less and conveys more than they do"
    subtitle = "Crosses are 95 % intervals; constant strategies look at no context"
    alt = "; ".join(
        f"{called[line.run.id]}: violation {percent(line.violation.value)}, completeness "
        f"{percent(line.completeness.value)}"
        for line in lines
    )
    simulated = any(line.simulated for line in lines)
    return Figure("figure-plane", title, subtitle, alt, canvas.described(title, alt, simulated=simulated), simulated)

"""Figures with one row a thing and its numbers along a scale, and the plane of runs. Titles say the takeaway."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import numpy as np
import pandas as pd

from cimemories.compare.difference import Difference
from cimemories.compare.leaderboard import Leaderboard, Line
from cimemories.compare.ranking import front
from cimemories.flows.arrays import Floats
from cimemories.metrics.accumulation import Accumulation
from cimemories.metrics.bootstrap import Interval
from cimemories.metrics.heatmap import Grid, least_complete, worst
from cimemories.report.document import Figure
from cimemories.text import percent

# ---- drawing
#
# A small canvas for figures of a report, as SVG elements.
#
# The app's charts are Plotly's and need a browser to become an image. A report is also made on servers without one, its
# figures follow the reader's light or dark theme, and the same record gives the same bytes: so what it shows is drawn
# here, of lines, marks and words. Every text becomes a text node, so that no name can become an element.
#
#     canvas = Canvas("accumulation", 900, 300)
#     canvas.line((60, 20), (60, 260), "rule")
#     canvas.text(56, 264, "0 %", "quiet", anchor="end")
#
# Colours are classes. In HTML the page's style gives them; a file of its own brings STYLE along (`as_file`).


Point = tuple[float, float]
CHARACTER = 6.3  # pixels of an average character at 12 px, a little on the wide side
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# One class a meaning: violation is vermillion, completeness green, runs blue and then apart in hue, dash and label.
SVG_STYLE = """
.figure { --ink: #16191c; --quiet: #4a555e; --rule: #d9dee2; --paper: #ffffff; --violation: #b84f00;
  --completeness: #007a58; --simulated: #7a47bd; --run0: #0065a3; --run1: #b84f00; --run2: #007a58; --run3: #8a5b00;
  --run4: #a8457f; --run5: #2f7fa8; }
@media (prefers-color-scheme: dark) { .figure { --ink: #e8ebee; --quiet: #a9b4bd; --rule: #3a424a; --paper: #14181c;
  --violation: #f08a45; --completeness: #37c49b; --simulated: #b48ee6; --run0: #5cb3ea; --run1: #f08a45;
  --run2: #37c49b; --run3: #e6b34d; --run4: #e08fc0; --run5: #9ed3ee; } }
@media print { .figure { --ink: #16191c; --quiet: #4a555e; --rule: #d9dee2; --paper: #ffffff; --violation: #b84f00;
  --completeness: #007a58; --simulated: #7a47bd; --run0: #0065a3; --run1: #b84f00; --run2: #007a58; --run3: #8a5b00;
  --run4: #a8457f; --run5: #2f7fa8; } }
.figure { background: var(--paper); font: 12px Arial, "Liberation Sans", "DejaVu Sans", sans-serif; }
.figure text { fill: var(--ink); }
.figure text.quiet { fill: var(--quiet); }
.figure text.strong { font-weight: 700; }
.figure text.small { font-size: 10px; }
.figure text.simulated { fill: var(--simulated); font-weight: 700; }
.figure text.on-light { fill: #16191c; }
.figure text.on-dark { fill: #ffffff; }
.figure .rule { stroke: var(--rule); stroke-width: 1; fill: none; }
.figure .axis { stroke: var(--quiet); stroke-width: 1; fill: none; }
.figure .curve { fill: none; stroke-width: 2; }
.figure .band { stroke: none; opacity: .16; }
.figure .mark { stroke-width: 2; }
.figure .dashed { stroke-dasharray: 6 4; }
.figure .dotted { stroke-dasharray: 2 4; }
.figure .violation { stroke: var(--violation); }
.figure .completeness { stroke: var(--completeness); }
.figure .quiet { stroke: var(--quiet); }
.figure text.quiet { stroke: none; }
.figure .run0 { stroke: var(--run0); } .figure .run1 { stroke: var(--run1); } .figure .run2 { stroke: var(--run2); }
.figure .run3 { stroke: var(--run3); } .figure .run4 { stroke: var(--run4); } .figure .run5 { stroke: var(--run5); }
.figure .filled.violation { fill: var(--violation); } .figure .filled.completeness { fill: var(--completeness); }
.figure .filled.quiet { fill: var(--quiet); } .figure .filled.run0 { fill: var(--run0); }
.figure .filled.run1 { fill: var(--run1); } .figure .filled.run2 { fill: var(--run2); }
.figure .filled.run3 { fill: var(--run3); } .figure .filled.run4 { fill: var(--run4); }
.figure .filled.run5 { fill: var(--run5); }
.figure .open { fill: var(--paper); }
.figure .cross { fill: none; }
"""
HUES = 6


class Canvas:
    """A drawing of `width` x `height` pixels; y grows downwards. name: unique in a report."""

    def __init__(self, name: str, width: float, height: float) -> None:
        self.name, self.width = name, width
        size = {"viewBox": f"0 0 {_number(width)} {_number(height)}", "width": _number(width)}
        self.root = Element(
            "svg", {"xmlns": "http://www.w3.org/2000/svg", **size, "height": _number(height), "class": "figure"}
        )

    def described(self, title: str, alt: str, *, simulated: bool) -> Element:
        """The finished drawing, with what it is called and what can be seen for those who do not see it."""
        if simulated:
            self.text(self.width - 4, 12, "SIMULATED", "simulated", anchor="end")
        self.root.set("role", "img")
        self.root.set("aria-labelledby", f"{self.name}-title {self.name}-alt")
        for place, (tag, words) in enumerate((("title", title), ("desc", alt))):
            element = Element(tag, {"id": f"{self.name}-{'alt' if place else 'title'}"})
            element.text = printable(words)
            self.root.insert(place, element)
        return self.root

    def text(
        self, x: float, y: float, text: str, cls: str = "", *, anchor: str = "start", room: float | None = None
    ) -> None:
        """A line of text, its baseline at y. room: pixels it may take; what is longer is cut, and whole in a tip."""
        whole = printable(" ".join(text.split()))
        shown = whole if room is None else cut(whole, room)
        element = SubElement(self.root, "text", {"x": _number(x), "y": _number(y)})
        if cls:
            element.set("class", cls)
        if anchor != "start":
            element.set("text-anchor", anchor)
        element.text = shown
        if shown != whole:
            tip = SubElement(element, "title")
            tip.text = whole

    def line(self, start: Point, end: Point, cls: str) -> None:
        names = ("x1", "y1", "x2", "y2")
        SubElement(
            self.root,
            "line",
            {**{k: _number(v) for k, v in zip(names, (*start, *end), strict=True)}, "class": cls},
        )

    def rect(self, x: float, y: float, width: float, height: float, *, fill: str = "", cls: str = "") -> None:
        names = {"x": x, "y": y, "width": width, "height": height}
        told = {"fill": fill} if fill else {}
        told |= {"class": cls} if cls else {}
        SubElement(self.root, "rect", {**{k: _number(v) for k, v in names.items()}, **told})

    def curve(self, points: Sequence[Point], cls: str) -> None:
        """A line through these points."""
        SubElement(self.root, "polyline", {"points": _points(points), "class": f"curve {cls}"})

    def band(self, low: Sequence[Point], high: Sequence[Point], cls: str) -> None:
        """The area between two lines."""
        area = [*low, *reversed(high)]
        SubElement(self.root, "polygon", {"points": _points(area), "class": f"band filled {cls}"})

    def mark(self, x: float, y: float, shape: str, cls: str, size: float = 4.5) -> None:
        """A circle, cross, square or diamond around a point."""
        if shape == "circle":
            told = {"cx": _number(x), "cy": _number(y), "r": _number(size), "class": f"mark open {cls}"}
            SubElement(self.root, "circle", told)
            return
        s = size
        around: dict[str, list[Point]] = {
            "square": [(x - s, y - s), (x + s, y - s), (x + s, y + s), (x - s, y + s)],
            "diamond": [(x, y - s - 1), (x + s + 1, y), (x, y + s + 1), (x - s - 1, y)],
        }
        if shape in around:
            SubElement(self.root, "polygon", {"points": _points(around[shape]), "class": f"mark open {cls}"})
            return
        for sign in (1, -1):
            self.line((x - s, y - sign * s), (x + s, y + sign * s), f"mark cross {cls}")


def as_file(svg: Element) -> str:
    """The drawing as a file of its own, with its style; light or dark as its reader's theme."""
    inside = ElementTree.tostring(svg, encoding="unicode")
    head, sep, rest = inside.partition(">")
    return f"{head}{sep}<style>{SVG_STYLE}</style>{rest}\n"


def as_markup(svg: Element) -> str:
    """The drawing to stand inside a page that has STYLE."""
    return ElementTree.tostring(svg, encoding="unicode")


def printable(text: str) -> str:
    """The same text without characters that XML cannot hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def cut(text: str, room: float) -> str:
    """As much of a text as fits into so many pixels, with a mark where it was cut."""
    most = max(2, int(room / CHARACTER))
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def spread(wanted: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Places as near as possible to the wanted ones, in their order, at least `apart` from each other, inside low to
    high as far as they fit."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    found = [0.0] * len(wanted)
    last = -math.inf
    for i in order:
        last = max(wanted[i], last + apart, low)
        found[i] = last
    limit = high
    for i in reversed(order):
        found[i] = min(found[i], limit)
        limit = found[i] - apart
    return found


def _points(points: Sequence[Point]) -> str:
    return " ".join(f"{_number(x)},{_number(y)}" for x, y in points)


def _number(value: float) -> str:
    """At most two decimals, so that a file does not differ where a picture does not."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


# ---- maps
#
# Figures of the paper's kind: the heatmap by context and domain (Figure 3) and accumulation over tasks (Figure 2).


CELL_HEIGHT, MAP_LABELS, GAP, MAP_HEAD = 17.0, 230.0, 22.0, 118.0
WIDEST, NARROWEST = 46.0, 26.0
MAP_WIDTH = 980.0


def heatmap(found: Grid, name: str, run_id: str, *, simulated: bool) -> Figure | None:
    """Violation@n and completeness side by side, one row a context, one column a domain; rows with most violation
    first. None where no cell has a value."""
    if found.empty:
        return None
    kept = _order(found)
    rows, columns = found.rows, found.columns
    width = min(WIDEST, max(NARROWEST, 640.0 / (2 * max(1, len(columns)))))
    panel = width * len(columns)
    whole = MAP_LABELS + 2 * panel + GAP + 40
    canvas = Canvas(f"figure-heatmap-{run_id}", whole, MAP_HEAD + CELL_HEIGHT * len(kept) + 44)
    panels = ((f"Violation@{found.n}", found.violation), ("Completeness", found.completeness))
    for number, (title, values) in enumerate(panels):
        left = MAP_LABELS + number * (panel + GAP)
        top = _ceiling(values[kept])
        canvas.text(left, 16, title, "strong")
        for column, label in enumerate(columns.names):
            x = left + (column + 0.5) * width
            canvas.text(x + 4, MAP_HEAD - 8, label, "quiet", room=88)
            canvas.root[-1].set("transform", f"rotate(-60 {x + 4:.2f} {MAP_HEAD - 8:.2f})")
        for place, row in enumerate(kept):
            y = MAP_HEAD + place * CELL_HEIGHT
            if number == 0:
                canvas.text(MAP_LABELS - 8, y + 12, rows.names[row], anchor="end", room=MAP_LABELS - 12)
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
        low = MAP_HEAD + CELL_HEIGHT * len(kept) + 26
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
    canvas = Canvas(name, MAP_WIDTH, 416)

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
        canvas.text(right + 46, y + 4, f"{percent(value)}  {line.name}", room=MAP_WIDTH - right - 50)
    alt = "; ".join(f"{line.name} ends at {percent(value)}" for line, value in zip(shown, last, strict=True))
    alt = f"Lines that rise over {most} tasks: {alt}."
    return Figure(name, title, subtitle, alt, canvas.described(title, alt, simulated=simulated), simulated)


# ---- figures


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

"""A figure as SVG without a browser: what a report shows, from the same Plotly figures as the app.

kaleido, which makes the app's PNG and SVG exports (export.py), was measured for reports and does not fit (demo, three
runs, 16 figures, 2 cores): it takes 2.7 s to start Chromium and 0.5 s a figure, 10 s for a report that is otherwise
made in 0.5 s; Chromium is not on every machine and pip does not bring it; every drawing has new random ids, so the same
record would give other bytes; a heatmap is 309 kB instead of 150; and its colours are fixed, while a report follows its
reader's light or dark theme and prints on white.

So this draws what our figures use of Plotly, and nothing else: scatter traces (lines, markers, text, error bars, a band
by fill), stacked bars, heatmaps, straight shapes, annotations, a legend, linear axes. Colours become classes, which
STYLE resolves. Every text becomes a text node, so that no name can become an element.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from cimemories.charts.theme import AMBIGUOUS, COMPLETENESS, GREY, RUN, VIOLATION
from cimemories.text import Parts, simulated_text

if TYPE_CHECKING:
    import plotly.graph_objects as go

Point = tuple[float, float]
WIDTH = 980.0
CHARACTER = 6.3  # pixels of an average character at 12 px, a little on the wide side
TITLE_ROOM, LEAST_TOP = 44, 26  # pixels: a report has title and subtitle as text above the figure
# What is outside these ranges (control characters, lone surrogates) no XML 1.0 file may hold, escaped or not.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Of each colour its class and what it is on light and on dark paper, both with a contrast of 4.5 for thin lines.
PALETTE = {
    VIOLATION: ("violation", "#b84f00", "#f08a45"),
    COMPLETENESS: ("completeness", "#007a58", "#37c49b"),
    RUN: ("run", "#0065a3", "#5cb3ea"),
    "#56B4E9": ("sky", "#2f7fa8", "#9ed3ee"),
    "#CC79A7": ("pink", "#a8457f", "#e08fc0"),
    AMBIGUOUS: ("amber", "#8a5b00", "#e6b34d"),
    GREY: ("grey", "#4a555e", "#a9b4bd"),
}
_PAPER = {"ink": ("#16191c", "#e8ebee"), "rule": ("#d9dee2", "#3a424a"), "paper": ("#ffffff", "#14181c")}
_COLOURS = (
    {name: (light, dark) for name, light, dark in PALETTE.values()} | _PAPER | {"simulated": ("#7a47bd", "#b48ee6")}
)


def _variables(dark: bool) -> str:
    return ".figure { " + " ".join(f"--{name}: {both[dark]};" for name, both in _COLOURS.items()) + " }"


STYLE = f"""
{_variables(False)}
@media (prefers-color-scheme: dark) {{ {_variables(True)} }}
@media print {{ {_variables(False)} }}
.figure {{ background: var(--paper); font: 12px Arial, "Liberation Sans", "DejaVu Sans", sans-serif; }}
.figure text {{ fill: var(--ink); }}
.figure text.quiet {{ fill: var(--grey); }}
.figure text.strong {{ font-weight: 700; }}
.figure text.small {{ font-size: 10px; }}
.figure text.simulated {{ fill: var(--simulated); font-weight: 700; }}
.figure text.on-light {{ fill: #16191c; }}
.figure text.on-dark {{ fill: #ffffff; }}
.figure text.on-fill {{ fill: var(--paper); }}
.figure .line {{ fill: none; }}
.figure .band {{ stroke: none; opacity: .16; }}
.figure .dash, .figure .longdash {{ stroke-dasharray: 6 4; }}
.figure .dot {{ stroke-dasharray: 2 4; }}
.figure .dashdot {{ stroke-dasharray: 6 3 2 3; }}
""" + "\n".join(
    f".figure .s-{name} {{ stroke: var(--{name}); }} .figure .f-{name} {{ fill: var(--{name}); }}" for name in _COLOURS
)


def as_file(svg: Element) -> str:
    """Return the drawing as a file of its own, with its style; light or dark as its reader's theme."""
    # The first ">" ends the svg tag: ElementTree escapes it in attributes.
    head, sep, rest = ElementTree.tostring(svg, encoding="unicode").partition(">")
    return f"{head}{sep}<style>{STYLE}</style>{rest}\n"


def printable(text: str) -> str:
    """Return the text with U+FFFD in place of characters that XML cannot hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def draw(fig: go.Figure, name: str, *, title: str, alt: str, simulated: Parts, width: float = WIDTH) -> Element:
    """Draw the figure without its title, which the report has as text. name: the id, unique in a report; title, alt:
    for screen readers. The same figure gives the same bytes. Raises ValueError for a trace of another type."""
    return _Drawing(fig.to_dict(), name, width).finished(title, alt, simulated=simulated)


class _Axis:
    """One linear axis from data to pixels, with its ticks."""

    def __init__(
        self, spec: Mapping[str, Any], values: Sequence[float], start: float, end: float, *, edge_to_edge: bool
    ) -> None:
        self.spec, self.start, self.end = spec, start, end
        if spec.get("range"):
            self.low, self.high = (float(value) for value in spec["range"])
        else:
            defined = [value for value in values if value == value] or [0.0, 1.0]
            least, most = min(defined), max(defined)
            air = 0.05 * (most - least) * (not edge_to_edge)
            # A single value still needs an axis with a length.
            self.low, self.high = least - air, most + air if most > least else least + 1.0

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """(value, text): those that are given, else round numbers, about six of them."""
        if self.spec.get("showticklabels") is False:
            return []
        if self.spec.get("tickvals") is not None:
            return list(zip(self.spec["tickvals"], self.spec["ticktext"], strict=True))
        span = abs(self.high - self.low)
        least_step = max(span / 7, 1.0 if self.spec.get("tickformat") == "d" else 0.0)
        magnitude = 10.0 ** math.floor(math.log10(least_step))
        step = next(magnitude * size for size in (1, 2, 5, 10) if magnitude * size >= least_step - 1e-12)
        # 0.1 and the like are no exact binary numbers: the slack keeps a tick that lies on an end of the axis.
        first = math.ceil(min(self.low, self.high) / step - 1e-9)
        values = [step * (first + i) for i in range(int(span / step) + 2)]
        return [(v, self._format(v, step)) for v in values if v <= max(self.low, self.high) + 1e-9]

    def _format(self, value: float, step: float) -> str:
        if str(self.spec.get("tickformat", "")).endswith("%"):
            # + 0.0 turns a negative zero into 0; the slack is for steps that are a rounding error below a percent.
            return f"{100 * value + 0.0:.{0 if step >= 0.01 - 1e-12 else 1}f} %"
        return f"{value + 0.0:.6g}{self.spec.get('ticksuffix') or ''}"


class _Drawing:
    def __init__(self, spec: Mapping[str, Any], name: str, width: float) -> None:
        self.name, self.layout, self.traces = name, spec["layout"], spec["data"]
        margin = self.layout["margin"]
        top = max(LEAST_TOP, margin["t"] - TITLE_ROOM)
        height = self.layout["height"] - margin["t"] + top
        shows = self.layout.get("showlegend") is not False
        legend = [t for t in self.traces if shows and t.get("name") and t.get("showlegend") is not False]
        self.legend_below = self.layout.get("legend", {}).get("orientation") == "h"
        # 40 pixels for symbol and air. Without a legend -6 characters take them back to about 0.
        beside = 0.0 if self.legend_below else max((len(item["name"]) for item in legend), default=-6) * CHARACTER + 40
        # Plotly measures names in Arial; where a reader has none, they are wider and would begin outside.
        ticks = self.layout.get("yaxis", {}).get("ticktext") or ()
        names = max((_width(_lines(text)[0]) for text in ticks), default=0.0) + 12
        self.left, self.right = max(float(margin["l"]), names), width - margin["r"] - beside
        self.top, self.bottom, self.height = float(top), height - margin["b"], height
        viewbox = {"viewBox": f"0 0 {_number(width)} {_number(height)}", "width": _number(width)}
        self.width = width
        self.stacked: dict[float, float] = {}  # where the bars of each row end so far
        self.root = Element(
            "svg", {"xmlns": "http://www.w3.org/2000/svg", **viewbox, "height": _number(height), "class": "figure"}
        )
        self.axes = {key: self._axis(key) for key in self.layout if re.fullmatch(r"[xy]axis\d*", key)}
        for key, axis in self.axes.items():
            self._draw_axis(key[0], axis, (self.layout.get("meta") or {}).get(f"{key[0]}axis") or ())
        for shape in self.layout.get("shapes") or ():
            ends = [(self._at(shape, "x", shape[f"x{i}"]), self._at(shape, "y", shape[f"y{i}"])) for i in (0, 1)]
            line = shape["line"]
            classes = f"{_stroke(line['color'])} {line.get('dash') or ''}".strip()
            self.line(ends[0], ends[1], classes, line.get("width", 1))
        for trace in self.traces:
            if trace["type"] == "heatmap":
                self._heatmap(trace)
            elif trace["type"] == "scatter":
                self._scatter(trace)
            elif trace["type"] == "bar":
                self._bars(trace)
            else:
                raise ValueError(f"a report has no way to draw a trace of the type {trace['type']}")
        for annotation in self.layout.get("annotations") or ():
            self._annotation(annotation)
        self._legend(legend)

    def finished(self, title: str, alt: str, *, simulated: Parts) -> Element:
        if simulated:
            self.text(self.width - 4, 12, simulated_text(simulated).upper(), "simulated", anchor="end")
        self.root.set("role", "img")
        self.root.set("aria-labelledby", f"{self.name}-title {self.name}-alt")
        for position, (tag, text) in enumerate((("title", title), ("desc", alt))):
            element = Element(tag, {"id": f"{self.name}-{'alt' if position else 'title'}"})
            element.text = printable(text)
            self.root.insert(position, element)
        return self.root

    # ---- elements

    def text(
        self, x: float, y: float, text: str, cls: str = "", *, anchor: str = "start", angle: float = 0, hint: str = ""
    ) -> None:
        """A line of text, its baseline at y. hint: what the pointer reads there."""
        element = SubElement(self.root, "text", {"x": _number(x), "y": _number(y)})
        if cls:
            element.set("class", cls)
        if anchor != "start":
            element.set("text-anchor", anchor)
        if angle:
            element.set("transform", f"rotate({_number(angle)} {_number(x)} {_number(y)})")
        element.text = printable(text)
        if hint:
            SubElement(element, "title").text = printable(hint)

    def line(self, start: Point, end: Point, cls: str, width: float = 1) -> None:
        ends = zip(("x1", "y1", "x2", "y2"), (*start, *end), strict=True)
        attributes = {name: _number(value) for name, value in ends} | {"class": cls}
        SubElement(self.root, "line", attributes | ({"stroke-width": _number(width)} if width != 1 else {}))

    def rect(self, x: float, y: float, width: float, height: float, **attributes: str) -> None:
        box = {"x": x, "y": y, "width": width, "height": height}
        SubElement(self.root, "rect", {name: _number(value) for name, value in box.items()} | attributes)

    def points(self, tag: str, points: Sequence[Point], cls: str, width: float = 0) -> None:
        text = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
        extra = {"stroke-width": _number(width)} if width else {}
        SubElement(self.root, tag, {"points": text, "class": cls, **extra})

    # ---- axes

    def _axis(self, key: str) -> _Axis:
        spec, letter = self.layout[key], key[0]
        values: list[float] = []
        for trace in self.traces:
            if trace.get(f"{letter}axis", letter) == letter + key[5:]:
                numbers = [float("nan") if v is None else float(v) for v in trace[letter]]
                error = trace.get(f"error_{letter}") or {}
                values += numbers
                # Error bars lengthen the axis. strict=False: a trace without them has an empty list.
                values += [v + e for v, e in zip(numbers, error.get("array", ()), strict=False)]
                values += [v - e for v, e in zip(numbers, error.get("arrayminus", ()), strict=False)]
        lines = all(trace.get("mode") == "lines" for trace in self.traces)  # Plotly gives marks air, and lines none
        start, end = spec.get("domain") or (0, 1)
        if letter == "y":
            return _Axis(spec, values, self.bottom, self.top, edge_to_edge=lines)
        span = self.right - self.left
        return _Axis(spec, values, self.left + start * span, self.left + end * span, edge_to_edge=lines)

    def _draw_axis(self, letter: str, axis: _Axis, names: Sequence[str]) -> None:
        """names: of the ticks in whole, which the pointer reads where they are cut."""
        title = _lines((axis.spec.get("title") or {}).get("text") or "")[0]
        grid = axis.spec.get("showgrid") is not False
        for number, (value, text) in enumerate(axis.ticks()):
            hint = names[number] if number < len(names) and text.endswith("…") else ""
            at = axis(value)
            lines, angle = _lines(text), axis.spec.get("tickangle") or 0
            if letter == "x":
                if grid:
                    self.line((at, self.top), (at, self.bottom), "s-rule")
                for i, part in enumerate(lines):
                    anchor = "end" if angle else "middle"
                    x, y = at + (4 if angle else 0), self.bottom + 16 + 15 * i
                    self.text(x, y, part, "quiet", anchor=anchor, angle=angle, hint=hint)
            else:
                if grid:
                    self.line((self.left, at), (self.right, at), "s-rule")
                cls = "" if "tickvals" in axis.spec else "quiet"
                self.text(self.left - 8, at + 4, lines[0], cls, anchor="end", hint=hint)
        if letter == "x" and title:
            self.text((axis.start + axis.end) / 2, self.bottom + 38, title, anchor="middle")
        elif title:
            self.text(8, self.top - 10, title)

    def _at(self, item: Mapping[str, Any], letter: str, value: float) -> float:
        """A coordinate of a shape or annotation in pixels, of the data or of the paper (0 to 1 of the plot)."""
        if item.get(f"{letter}ref") != "paper":
            return self.axes[f"{letter}axis"](value)
        start, end = (self.left, self.right) if letter == "x" else (self.bottom, self.top)
        return start + value * (end - start)

    def _annotation(self, item: Mapping[str, Any]) -> None:
        x, y = self._at(item, "x", item["x"]), self._at(item, "y", item["y"])
        strong = "strong" if "<b>" in item["text"] else ""
        anchor = {"left": "start", "right": "end"}.get(item.get("xanchor") or "", "middle")
        lift = {"bottom": -4, "top": 12}.get(item.get("yanchor") or "", 4)
        x, y = x + (item.get("xshift") or 0), y - (item.get("yshift") or 0)
        for i, part in enumerate(_lines(item["text"])):
            self.text(x, y + lift + 15 * i, part, strong, anchor=anchor)

    # ---- traces

    def _scatter(self, trace: Mapping[str, Any]) -> None:
        x_axis = self.axes["xaxis" + trace.get("xaxis", "x")[1:]]
        y_axis = self.axes["yaxis" + trace.get("yaxis", "y")[1:]]
        points = [
            (i, (x_axis(x), y_axis(y)))
            for i, (x, y) in enumerate(zip(trace["x"], trace["y"], strict=True))
            if x is not None and y is not None and x == x and y == y
        ]
        line, marker = trace.get("line") or {}, trace.get("marker") or {}
        corners = [point for _, point in points]
        # hv: level until the next x, then up or down.
        if line.get("shape") == "hv":
            # zip_longest: the edge of no run has no corner at all.
            corners = [at for a, b in zip_longest(corners, corners[1:]) for at in (a, (b[0], a[1]) if b else a)]
        if trace.get("fill"):
            self.points("polygon", corners, f"band {_fill_class(trace['fillcolor'])}")
            return
        if "lines" in trace["mode"]:
            self.points("polyline", corners, _line_class(line), line.get("width", 2))
        for letter, axis in (("x", x_axis), ("y", y_axis)):
            self._error_bars(trace.get(f"error_{letter}") or {}, letter, axis, trace, dict(points))
        if "markers" in trace["mode"]:
            for _, point in points:
                self.marker(point, marker["symbol"], marker["color"], marker.get("size", 9) / 2)
        for i, (x, y) in points if "text" in trace["mode"] else ():
            if trace["mode"] == "text":
                ink = "on-dark" if trace["textfont"]["color"][i] == "#FFFFFF" else "on-light"
                self.text(x, y + 4, trace["text"][i], f"small {ink}", anchor="middle")
            else:
                self.text(x + 6, y - 6, trace["text"][i])

    def _bars(self, trace: Mapping[str, Any]) -> None:
        """Horizontal ones, on those of the traces before."""
        x_axis, y_axis = self.axes["xaxis"], self.axes["yaxis"]
        height = abs(y_axis(1) - y_axis(0)) * (1 - self.layout["bargap"])
        for x, y, text in zip(trace["x"], trace["y"], trace["text"], strict=True):
            start = self.stacked.get(y, 0.0)
            self.stacked[y] = start + x
            left, right, middle = x_axis(start), x_axis(start + x), y_axis(y)
            fill = _fill_class(trace["marker"]["color"])
            self.rect(left, middle - height / 2, right - left, height, **{"class": fill})
            self.text((left + right) / 2, middle + 4, text, "small on-fill", anchor="middle")

    def _error_bars(
        self, bars: Mapping[str, Any], letter: str, axis: _Axis, trace: Mapping[str, Any], points: Mapping[int, Point]
    ) -> None:
        for i, (x, y) in points.items() if bars else ():
            value = trace[letter][i]
            low, high = axis(value - bars["arrayminus"][i]), axis(value + bars["array"][i])
            ends = ((low, y), (high, y)) if letter == "x" else ((x, low), (x, high))
            if low != high:
                self.line(*ends, _stroke(bars["color"]), 2)

    def marker(self, point: Point, symbol: str, colour: str, size: float) -> None:
        (x, y), shape = point, symbol.removesuffix("-open")
        arms = {"x": (45, 135), "cross": (0, 90), "asterisk": (0, 60, 120)}.get(shape)
        if arms is not None:
            for angle in arms:
                dx, dy = size * math.cos(math.radians(angle)), size * math.sin(math.radians(angle))
                self.line((x - dx, y - dy), (x + dx, y + dy), _stroke(colour), 2)
            return
        inside = "f-paper" if symbol.endswith("-open") else _fill_class(colour)
        cls = f"{_stroke(colour)} {inside}"
        if shape == "circle":
            box = {"cx": _number(x), "cy": _number(y), "r": _number(size), "class": cls, "stroke-width": "2"}
            SubElement(self.root, "circle", box)
            return
        outline = [(x + size * dx, y - size * dy) for dx, dy in OUTLINES[shape]]
        self.points("polygon", outline, cls, 2)

    def _heatmap(self, trace: Mapping[str, Any]) -> None:
        from plotly.colors import sample_colorscale

        x_axis, y_axis = self.axes["xaxis" + trace["xaxis"][1:]], self.axes["yaxis"]
        width, height = abs(x_axis(1) - x_axis(0)), abs(y_axis(1) - y_axis(0))
        low, high = trace["zmin"], trace["zmax"]

        def colours(shares: Sequence[float]) -> list[str]:
            inside = [min(1.0, max(0.0, (share - low) / (high - low))) for share in shares]
            return [_hex(colour) for colour in sample_colorscale(trace["colorscale"], inside)]

        cells = [(i, j, share) for i, row in enumerate(trace["z"]) for j, share in enumerate(row)]
        # All known cells in one call, taken in the same order below.
        fills = iter(colours([share for _, _, share in cells if share is not None]))
        for i, j, share in cells:
            x, y = x_axis(j) - width / 2, y_axis(i) - height / 2
            if share is None:
                self._hatch(x, y, width - 1, height - 1)
            else:
                self.rect(x, y, width - 1, height - 1, fill=next(fills))
        left, steps = x_axis.end + 5, 26
        each = (self.bottom - self.top) / steps
        for i, colour in enumerate(colours([high - (high - low) * i / (steps - 1) for i in range(steps)])):
            # Half a pixel over the next one, or hairlines of the paper show between them.
            self.rect(left, self.top + i * each, 8, each + 0.5, fill=colour)
        for share, y in ((high, self.top + 8), (low, self.bottom)):
            self.text(left + 11, y, f"{100 * share:.0f}%", "quiet small")

    def _hatch(self, x: float, y: float, width: float, height: float) -> None:
        """An empty cell: three strokes in a frame. Printers turn an SVG pattern into a large picture."""
        self.rect(x + 0.5, y + 0.5, width - 1, height - 1, **{"class": "line s-rule"})
        for i in (1, 2, 3):
            middle = x + width * i / 4
            self.line((middle - 4, y + height - 3), (middle + 4, y + 3), "s-rule")

    # ---- legend

    def _legend(self, entries: Sequence[Mapping[str, Any]]) -> None:
        x, y = (self.left, self.height - 8) if self.legend_below else (self.right + 16, self.top + 8)
        for trace in entries:
            marker, name = trace.get("marker") or {}, _lines(trace["name"])[0]
            if trace["type"] == "bar":
                self.marker((x + 1, y - 4), "square", marker["color"], 4.5)
            elif "lines" in trace["mode"]:
                self.points("polyline", [(x - 6, y - 4), (x + 8, y - 4)], _line_class(trace["line"]), 2)
            if "markers" in trace.get("mode", ""):
                self.marker((x + 1, y - 4), marker["symbol"], marker["color"], 4.5)
            self.text(x + 13, y, name)
            x, y = (x + len(name) * CHARACTER + 40, y) if self.legend_below else (x, y + 18)


def _polygon(corners: int, turned: float = 90, dents: float = 1) -> list[Point]:
    """A regular polygon; with dents, every second corner lies so much farther in."""
    around = ((math.radians(turned + 360 * i / corners), dents if i % 2 else 1) for i in range(corners))
    return [(1.15 * size * math.cos(angle), 1.15 * size * math.sin(angle)) for angle, size in around]


OUTLINES = {
    "square": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
    "diamond": _polygon(4),
    "triangle-up": _polygon(3),
    "triangle-down": _polygon(3, 270),
    "pentagon": _polygon(5),
    "star": _polygon(10, dents=0.45),
    "hexagon": _polygon(6),
    "bowtie": [(-1.0, -0.9), (1.0, 0.9), (1.0, -0.9), (-1.0, 0.9)],
}


def _colour_class(colour: str) -> str:
    if match := re.fullmatch(r"rgba\((\d+),\s*(\d+),\s*(\d+),.*\)", colour):
        colour = "#" + "".join(f"{int(part):02X}" for part in match.groups())
    return PALETTE[colour][0] if colour in PALETTE else "rule"


def _stroke(colour: str) -> str:
    return f"s-{_colour_class(colour)}"


def _fill_class(colour: str) -> str:
    return f"f-{_colour_class(colour)}"


def _line_class(line: Mapping[str, Any]) -> str:
    dash = line.get("dash") or "solid"
    return f"line {_stroke(line['color'])}" + ("" if dash == "solid" else f" {dash}")


def _lines(text: str) -> list[str]:
    """Return the lines that Plotly would show of a text with its few tags."""
    return [html.unescape(re.sub(r"</?b>", "", part)) for part in re.split(r"<br\s*/?>", text)]


def _width(text: str) -> float:
    """Pixels of a text at 12 px in DejaVu Sans, the widest font of STYLE, rounded up by kinds of characters."""
    kinds = ((3.9, " .,:;'|!iIljft()[]/-"), (6.9, "rszckvxyJ1"), (11.9, "mwMW@%—"))
    return sum(next((wide for wide, letters in kinds if letter in letters), 7.9) for letter in text)


def _hex(colour: str) -> str:
    return "#" + "".join(f"{round(float(part)):02x}" for part in re.findall(r"[\d.]+", colour)[:3])


def _number(value: float) -> str:
    """At most two decimals, so that a file does not differ where a picture does not."""
    return f"{value:.2f}".rstrip("0").rstrip(".")

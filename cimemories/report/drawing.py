"""A small canvas for figures of a report, as SVG elements.

The app's charts are Plotly's and need a browser to become an image. A report is also made on servers without one, its
figures follow the reader's light or dark theme, and the same record gives the same bytes: so what it shows is drawn
here, of lines, marks and words. Every text becomes a text node, so that no name can become an element.

    canvas = Canvas("accumulation", 900, 300)
    canvas.line((60, 20), (60, 260), "rule")
    canvas.text(56, 264, "0 %", "quiet", anchor="end")

Colours are classes. In HTML the page's style gives them; a file of its own brings STYLE along (`as_file`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

Point = tuple[float, float]
CHARACTER = 6.3  # pixels of an average character at 12 px, a little on the wide side
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# One class a meaning: violation is vermillion, completeness green, runs blue and then apart in hue, dash and label.
STYLE = """
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
    return f"{head}{sep}<style>{STYLE}</style>{rest}\n"


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

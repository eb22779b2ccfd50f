"""Where labels go so that none covers another: beside marks in a plane, or above each other at the ends of lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

Point = tuple[float, float]
Box = tuple[float, float, float, float]  # left, low, right, high
MARK = 9.0  # half a mark and the air around it, in pixels
RINGS = range(0, 260, 12)  # distances from the mark that are tried, in pixels
STEEP = 1e-9
# Between the arms of the cross that is the mark's interval first. y counts downwards.
DIRECTIONS = [k * math.pi / 8 for k in (-2, 2, -6, 6, -1, 1, -7, 7, -3, 3, -5, 5, 0, 8, -4, 4)]


def spread(wanted: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Positions as near as possible to the wanted ones, in their order, at least `apart` from each other, inside low to
    high as far as they fit: pushed up from the lowest, then down again from the highest where they leave the range."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    positions = [0.0] * len(wanted)
    last = -math.inf
    for i in order:
        last = positions[i] = max(wanted[i], last + apart, low)
    limit = high
    for i in reversed(order):
        positions[i] = min(positions[i], limit)
        # Into the room that is left below; with too many of them the lowest end below `low`.
        limit = positions[i] - apart
    return positions


def beside_marks(anchors: Sequence[Point], widths: Sequence[float], height: float, size: Point) -> list[Point]:
    """The middles of labels, in pixels: close to their marks, inside the plane, over no mark and no other label as long
    as there is space for that.

    anchors: the marks, in pixels inside size (width, height). widths: of the labels. Greedy, in the order given: of
    each label the first free position is taken, ring by ring around its mark; else the one that covers least.
    """
    marks = [(x - MARK, y - MARK, x + MARK, y + MARK) for x, y in anchors]
    placed: list[Box] = []
    for anchor, width in zip(anchors, widths, strict=True):
        taken = [*marks, *placed]
        # Where no position is inside the plane: right beside the mark all the same.
        best, least = _box(anchor, width, height, 0, 0), math.inf
        for ring, angle in product(RINGS, DIRECTIONS):
            box = _box(anchor, width, height, ring, angle)
            if box[0] < 0 or box[2] > size[0] or box[1] < 0 or box[3] > size[1]:
                continue
            covered = _overlap(box, taken)
            if covered < least:
                best, least = box, covered
            if not covered:
                break
        placed.append(best)
    return [((left + right) / 2, (low + high) / 2) for left, low, right, high in placed]


def _box(anchor: Point, width: float, height: float, ring: float, angle: float) -> Box:
    """The box of a label in this direction, `ring` pixels farther than where it would touch the mark."""
    cosine, sine = abs(math.cos(angle)), abs(math.sin(angle))
    # Boxes that are apart along one axis do not overlap, so the shorter way counts; a direction along one axis
    # never parts them along the other.
    touching = min((MARK + half) / part for half, part in ((width / 2, cosine), (height / 2, sine)) if part > STEEP)
    x = anchor[0] + math.cos(angle) * (touching + ring)
    y = anchor[1] + math.sin(angle) * (touching + ring)
    return (x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def _overlap(box: Box, others: Sequence[Box]) -> float:
    """How much of a box lies over others, in square pixels."""
    return sum(
        max(0.0, min(box[2], other[2]) - max(box[0], other[0]))
        * max(0.0, min(box[3], other[3]) - max(box[1], other[1]))
        for other in others
    )

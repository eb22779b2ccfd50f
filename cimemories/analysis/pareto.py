"""The plane of violation and completeness: which runs no other run beats on both sides, and where their names fit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import cos, inf, isnan, pi, sin

Point = tuple[float, float]
Box = tuple[float, float, float, float]  # left, low, right, high
MARK = 9.0  # half a mark and the air around it, in pixels
RINGS = range(0, 260, 12)
STEEP = 1e-9
# Between the arms of the cross first: these are its interval. y counts downwards.
DIRECTIONS = [k * pi / 8 for k in (-2, 2, -6, 6, -1, 1, -7, 7, -3, 3, -5, 5, 0, 8, -4, 4)]


def front(points: Sequence[Point]) -> list[bool]:
    """Which (violation, completeness) points are on the Pareto front: no other has at most its violation and at least
    its completeness, and is better in one of them. Equal points are on it together; one with nan never is."""
    return [
        not (isnan(v) or isnan(c))
        and not any(other_v <= v and other_c >= c and (other_v < v or other_c > c) for other_v, other_c in points)
        for v, c in points
    ]


def place(anchors: Sequence[Point], widths: Sequence[float], height: float, room: Point) -> list[Point]:
    """Where the middles of labels go, in pixels: close to their marks, inside the room, over no mark and no other label
    as long as there is space for that.

    anchors: the marks, in pixels inside room (width, height). widths: of the labels. Greedy, in the order given.
    """
    marks = [(x - MARK, y - MARK, x + MARK, y + MARK) for x, y in anchors]
    placed: list[Box] = []
    for anchor, width in zip(anchors, widths, strict=True):
        taken = [*marks, *placed]
        tries = (_moved(anchor, width, height, *way) for way in product(RINGS, DIRECTIONS))
        best, least = _moved(anchor, width, height, 0, 0), inf
        for box in tries:
            if box[0] < 0 or box[2] > room[0] or box[1] < 0 or box[3] > room[1]:
                continue
            covered = _covered(box, taken)
            if covered < least:
                best, least = box, covered
            if not covered:
                break
        placed.append(best)
    return [((left + right) / 2, (low + high) / 2) for left, low, right, high in placed]


def _moved(anchor: Point, width: float, height: float, ring: float, angle: float) -> Box:
    """The box of a label that lies in this direction, so far from where it would touch the mark."""
    across, up = abs(cos(angle)), abs(sin(angle))
    touching = min((MARK + half) / part for half, part in ((width / 2, across), (height / 2, up)) if part > STEEP)
    x = anchor[0] + cos(angle) * (touching + ring)
    y = anchor[1] + sin(angle) * (touching + ring)
    return (x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def _covered(box: Box, taken: Sequence[Box]) -> float:
    """How much of a box lies over others, in square pixels."""
    return sum(
        max(0.0, min(box[2], other[2]) - max(box[0], other[0]))
        * max(0.0, min(box[3], other[3]) - max(box[1], other[1]))
        for other in taken
    )

"""Part of the Compare page: all runs in the plane of violation and completeness."""

from __future__ import annotations

from cimemories.analysis.leaderboard_text import takeaway
from cimemories.analysis.plane_figure import plane
from cimemories.ui import page, url
from pages.explore import compare_scope
from pages.explore.compare_drawing import show
from pages.explore.compare_scope import Compared, Say


def draw(compared: Compared, say: Say) -> None:
    """The plane."""
    say(takeaway(compared.board))
    drawing = plane(compared.board)
    if drawing is None:
        page.empty(
            "No run has both numbers",
            "A place in the plane takes a violation and a completeness: label the dataset, or wait for judgements.",
            lambda: url.page_link("labels", "Label the dataset", icon=":material/label:"),
        )
        return
    compare_scope.warnings(compared.board.warnings, key="compare.box.warnings")
    show(
        drawing,
        "plane",
        "compare.box.plane",
        compared,
        {
            "model": ("text", "Model"),
            "violation": ("percent", "Violation"),
            "violation_low": ("percent", "from"),
            "violation_high": ("percent", "to"),
            "completeness": ("percent", "Completeness"),
            "completeness_low": ("percent", "lowest"),
            "completeness_high": ("percent", "highest"),
            "balanced": ("percent", "Balanced"),
            "on_front": ("text", "On the front"),
            "coverage": ("percent", "Coverage"),
            "run": ("text", "Run"),
        },
    )

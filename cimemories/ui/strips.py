"""Labels as a strip of small cells, one a context, and the life events of a profile as a line in time.

A run of equal labels is one element: a profile has 147 x 49 cells, and a browser should not have to hold as many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import streamlit as st

from cimemories.ui.safe import Html, tag

KINDS = {"N": "necessary", "X": "inappropriate", "?": "ambiguous", "-": "none"}
WORDS = {**KINDS, "-": "not labelled"}
BAR = 48


def style() -> None:
    """The classes of this module, once a script run; the tints are those of the marks of votes."""
    st.html(
        """<style>
.ci-strip { font: 600 9.5px/14px ui-monospace, Menlo, Consolas, monospace; white-space: nowrap; display: inline-block; }
.ci-strip span { display: inline-block; color: #111; border-radius: 2px; }
.ci-strip span.ci-necessary { background: #37C49B; }
.ci-strip span.ci-inappropriate { background: #F08A45; }
.ci-strip span.ci-ambiguous { background: #F3C259; }
.ci-strip span.ci-none { color: inherit; opacity: .55; }
.ci-legend { display: flex; flex-wrap: wrap; gap: 4px 16px; align-items: baseline; font-size: .875rem; }
.ci-timeline { display: flex; gap: 0; margin: 4px 0 2px; }
.ci-timeline > div { flex: 1; border-top: 2px solid rgba(0,114,178,.65); padding: 10px 16px 0 0; position: relative; }
.ci-timeline > div::before { content: ""; position: absolute; top: -7px; left: 0; width: 12px; height: 12px;
  border-radius: 50%; background: #0072B2; }
.ci-memory td { padding: 6px 12px 6px 0 !important; }
.ci-memory td:last-child { width: 1%; padding-right: 0 !important; }
.ci-memory .ci-muted { margin-top: 1px; }
/* What is below the window is laid out only when somebody scrolls there. */
.ci-far { content-visibility: auto; contain-intrinsic-size: auto 800px; }
.ci-change td:first-child { width: 14%; opacity: .75; }
.ci-change td { width: 43%; white-space: pre-wrap; }
</style>"""
    )


def strip(glyphs: str, names: Sequence[str]) -> Html:
    """One cell a glyph of KINDS, runs of the same joined; hovering a run says the `names` (one each) in it."""
    runs = []
    at = 0
    for glyph, group in groupby(glyphs):
        length = len(list(group))
        said = f"{WORDS[glyph]}: {', '.join(names[at : at + length])}"
        runs.append(tag("span", glyph * length, cls=f"ci-{KINDS[glyph]}", title=said))
        at += length
    return tag("div", *runs, cls="ci-strip")


def distribution(counts: Mapping[str, int]) -> Html:
    """Counts by glyph as a bar of cells and in numbers: 'necessary 1,203 (17.2 %)'. Nothing for no pairs at all."""
    total = sum(counts.values())
    if not total:
        return tag("div")
    shown = [(glyph, n) for glyph, n in counts.items() if n]
    numbers = [
        tag("span", tag("b", glyph), f" {WORDS[glyph]} {n:,} ({100 * n / total:.1f} %)", cls="ci-line")
        for glyph, n in shown
    ]
    cells = _apportioned([n for _, n in shown], BAR)
    bar = "".join(glyph * cells[i] for i, (glyph, _) in enumerate(shown))
    runs = [tag("span", "".join(group), cls=f"ci-{KINDS[glyph]}") for glyph, group in groupby(bar)]
    return tag("div", tag("div", *runs, cls="ci-strip"), *numbers, cls="ci-legend")


def _apportioned(counts: Sequence[int], cells: int) -> list[int]:
    """Cells in proportion to counts, at least one each, adding up to `cells` (largest remainders)."""
    total = sum(counts)
    exact = [max(1.0, cells * n / total) for n in counts]
    found = [int(share) for share in exact]
    for i in sorted(range(len(counts)), key=lambda i: found[i] - exact[i])[: max(0, cells - sum(found))]:
        found[i] += 1
    return found


def timeline(moments: Sequence[tuple[str, str]]) -> Html:
    """Events in their order, each with a line beneath."""
    return tag(
        "div",
        *(tag("div", tag("b", name), tag("div", note, cls="ci-muted")) for name, note in moments),
        cls="ci-timeline",
    )

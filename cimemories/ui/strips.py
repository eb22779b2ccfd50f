"""Labels as a strip of small cells, one a context, and the life events of a profile as a line in time.

A strip is one element with its letters: a profile has 147 x 49 cells, and a browser should neither hold as many nor
look into each of them for what must not be shown. Its colours come from assets/strips.js.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import streamlit as st

from cimemories.ui.safe import Html, tag

# Streamlit takes a text without a line break for a path, so the last one stays.
_SCRIPT = (Path(__file__).parent / "assets" / "strips.js").read_text(encoding="utf-8")
_component = st.components.v2.component("cimemories_strips", html="<div></div>\n", js=_SCRIPT)
KINDS = {"N": "necessary", "X": "inappropriate", "?": "ambiguous", "-": "none"}
WORDS = {**KINDS, "-": "not labelled"}
BAR = 48


def style() -> None:
    """The classes of this module, once a script run; the tints are those of the marks of votes."""
    st.html(
        """<style>
.ci-strip { font: 600 9.5px/14px ui-monospace, Menlo, Consolas, monospace; white-space: nowrap; display: inline-block; }
.ci-strip span { display: inline-block; color: #111; border-radius: 2px; }
.ci-raw { border-radius: 2px; }
.ci-raw[data-drawn] { color: #111; }
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


def strip(glyphs: str) -> Html:
    """One cell a glyph of KINDS. The page that shows it calls `colour` too."""
    return tag("div", glyphs, cls="ci-strip ci-raw")


def colour(names: Sequence[str]) -> None:
    """Colour all strips of the page, and have each cell say, under the pointer, its label and which of the `names` (one
    a cell, plain text) it is."""
    _component(key="strips", data={"names": list(names)})


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

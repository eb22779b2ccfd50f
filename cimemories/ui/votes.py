"""Votes as a person reads them: one row of coloured marks a persona, glyph in each, missing ones outlined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cimemories.model import Verdict
from cimemories.ui.safe import Html, join, show, tag

_MARKS = {
    str(Verdict.NECESSARY): ("N", "ci-necessary"),
    str(Verdict.INAPPROPRIATE): ("X", "ci-inappropriate"),
    str(Verdict.ABSTAIN): ("?", "ci-abstain"),
}


def mark(draw: str, number: int) -> Html:
    """One draw: a verdict's glyph, or a dash for a vote that is missing; hover says which draw and what it is."""
    glyph, cls = _MARKS.get(draw, ("–", "ci-missing"))
    said = draw if draw in _MARKS else f"missing: {draw}"
    return tag("span", glyph, cls=f"ci-mark {cls}", title=f"draw {number}: {said}")


def votes(rows: Iterable[tuple[str, float, Sequence[str]]]) -> None:
    """Rows of (persona, prior, draws in order), each with its marks."""
    shown = [_row(persona, prior, [mark(draw, n) for n, draw in enumerate(draws, 1)]) for persona, prior, draws in rows]
    show(tag("table", tag("tbody", *shown), cls="ci-votes"))


def shares(rows: Iterable[tuple[str, float, tuple[float, float, float]]]) -> None:
    """Rows of (persona, prior, shares of necessary, inappropriate and abstain), for labels that came without votes."""
    shown = []
    for persona, prior, parts in rows:
        named = [
            join([tag("span", glyph, cls=f"ci-mark {cls}", title=verdict), f"\u00a0{share * 100:.0f}\u00a0% "])
            for (verdict, (glyph, cls)), share in zip(_MARKS.items(), parts, strict=True)
            if share
        ]
        shown.append(_row(persona, prior, named or [tag("span", "nothing given", cls="ci-muted")]))
    show(tag("table", tag("tbody", *shown), cls="ci-votes"))


def _row(persona: str, prior: float, marks: Sequence[Html]) -> Html:
    return tag(
        "tr",
        tag("td", persona),
        tag("td", f"{prior * 100:.0f} %", cls="ci-number", title="share of this persona in the mixture"),
        tag("td", *marks),
    )

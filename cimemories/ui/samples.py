"""Several messages beside each other: which of them reveals what, an attribute a row and a message a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import streamlit as st

from cimemories.ui.safe import Html, tag

Mark = Literal["leaked", "silent", "missing"]


def style() -> None:
    """The classes of this module, once a script run."""
    st.html(
        """<style>
.ci-mark.ci-plain { color: inherit; font-weight: 400; opacity: .7; }
.ci-grid.ci-samples td:first-child { width: auto; }
.ci-grid.ci-samples th:nth-child(2), .ci-grid.ci-samples td:nth-child(2) { white-space: nowrap; }
</style>"""
    )


def grid(title: str, numbers: Sequence[int], rows: Sequence[tuple[str, str, Sequence[Mark], str, bool]]) -> Html:
    """A table. numbers: of the messages. rows: (name, what a hover says, a mark for each message, words at the right,
    whether it is the one looked at)."""
    head = [tag("span", str(number), cls="ci-mark ci-plain", title=f"sample {number}") for number in numbers]
    body = [
        tag(
            "tr",
            tag("td", name, title=said),
            tag("td", *(_mark(mark, number) for mark, number in zip(marks, numbers, strict=True))),
            tag("td", words, cls="ci-number"),
            cls="ci-chosen" if chosen else "",
        )
        for name, said, marks, words, chosen in rows
    ]
    top = tag("tr", tag("th", title), tag("th", *head), tag("th", ""))
    return tag("table", tag("thead", top), tag("tbody", *body), cls="ci-grid ci-samples")


def _mark(mark: Mark, number: int) -> Html:
    if mark == "leaked":
        return tag("span", "X", cls="ci-mark ci-inappropriate", title=f"sample {number}: leaks it")
    if mark == "missing":
        return tag("span", "–", cls="ci-mark ci-missing", title=f"sample {number}: missing")
    return tag("span", "·", cls="ci-mark ci-plain", title=f"sample {number}: does not reveal it")

"""Part of the Compare page: what changes with size, reasoning, prompt level or memory, of a sweep or of chosen runs."""

from __future__ import annotations

import streamlit as st

from cimemories.charts.comparison import sweep
from cimemories.compare.sweeps import WHAT, SweepFigure, sweep_figures
from cimemories.flows import catalogue
from cimemories.seeds.published import Axis
from cimemories.store.engine import shared_store
from cimemories.text import count
from cimemories.ui import page, safe, url
from pages.explore.compare_scope import Columns, Compared, SetTakeaway, show

NEEDS = {
    Axis.SIZE: "models of one family whose sizes are in their names or presets",
    Axis.REASONING: "the same model with thinking on and off, or its thinking and its instruct variant",
    Axis.PROMPT: "the same model at several prompt levels",
    Axis.MEMORY: "the same model with memories of several sizes: necessary+K, inappropriate+K or random-K",
}


def draw(compared: Compared, set_takeaway: SetTakeaway) -> None:
    """The figure of one axis."""
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    with right:
        among = _among(compared)
    figures = sweep_figures([line for line in compared.board.lines if among is None or line.run.sweep == among])
    with left:
        axis = _axis(figures)
    figure = figures[axis]
    set_takeaway(f"{figure.title()}.")
    drawing = sweep(figure)
    if drawing is None:
        page.empty(
            f"Nothing to draw along {WHAT[axis]}",
            f"This needs two or more runs that differ in {WHAT[axis]} only: {NEEDS[axis]}. Prompt, memory, samples, "
            "parameters and judge must otherwise be the same. A sweep plans such runs together.",
            lambda: url.page_link("runs", "Plan a sweep", icon=":material/grid_view:", tab="sweeps"),
        )
    else:
        columns: Columns = {
            "series": ("text", "Series"),
            "at": ("text", WHAT[axis].capitalize()),
            "violation": ("percent", "Violation"),
            "violation_low": ("percent", "from"),
            "violation_high": ("percent", "to"),
            "completeness": ("percent", "Completeness"),
            "completeness_low": ("percent", "lowest"),
            "completeness_high": ("percent", "highest"),
            "coverage": ("percent", "Coverage"),
            "n": ("number", "n"),
            "run": ("text", "Run"),
        }
        show(drawing, "sweep", "compare.box.sweep", compared, columns, simulated=figure.simulated)
    _trend(figure)
    _left_out(figure)


def _among(compared: Compared) -> str | None:
    """The sweep whose cells are drawn; None for all chosen runs."""
    there = {line.run.sweep for line in compared.board.lines if line.run.sweep}
    if not there:
        # The address says what is shown: all runs, and not a sweep that none of them is of.
        url.put(sweep=None)
        return None
    named = {row.id: row.name for row in catalogue.all_sweeps(shared_store()) if row.id in there}
    options = ["", *named]
    key = "compare.sweep"
    asked = url.get("sweep") or ""
    # The URL is the state: the widget gets it before it is drawn, since a default counts only once.
    st.session_state[key] = asked if asked in options else ""
    st.selectbox(
        "Runs of",
        options,
        format_func=lambda i: safe.option(named.get(i, "all chosen runs")),
        key=key,
        on_change=lambda: url.put(sweep=st.session_state[key] or None),
    )
    return st.session_state[key] or None


def _axis(figures: dict[Axis, SweepFigure]) -> Axis:
    """The axis that the URL says, else the first along which there is something to see."""
    key = "compare.axis"
    from_url = url.get("axis")
    first = next((axis for axis, figure in figures.items() if figure.series), Axis.SIZE)
    st.session_state[key] = Axis(from_url) if from_url in set(Axis) else first
    st.segmented_control(
        "What varies",
        list(Axis),
        format_func=lambda axis: WHAT[axis].capitalize(),
        key=key,
        required=True,
        on_change=lambda: url.put(axis=str(st.session_state[key])),
    )
    return Axis(st.session_state[key] or first)


def _trend(figure: SweepFigure) -> None:
    """The paper's sentence on it, marked as published."""
    if figure.trend is None:
        return
    chip = safe.tag("span", "published", cls="ci-chip ci-none")
    text = f" {figure.trend.model}: {figure.trend.about} ({figure.trend.where}; the text gives no numbers)."
    safe.show(safe.tag("p", chip, text, cls="ci-muted"))


def _left_out(figure: SweepFigure) -> None:
    """Runs that have no place in the figure, and why."""
    if not figure.left_out:
        return
    page.fold(
        f"{count(len(figure.left_out), 'run')} left out",
        ":material/visibility_off:",
        "compare.box.left_out",
        lambda: safe.show(safe.tag("ul", *(safe.tag("li", text) for text in figure.left_out))),
    )

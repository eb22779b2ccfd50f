"""Parts of the Compare page that show the lines of the leaderboard: as the paper's Table 1 and as a sortable table, in
the plane of violation and completeness, and along the axes of a sweep."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from cimemories.charts import comparison
from cimemories.charts.comparison import plane, sweep
from cimemories.compare.difference import takeaway
from cimemories.compare.sweeps import WHAT, sweep_figures, trade_off
from cimemories.flows import catalogue
from cimemories.seeds.published import Axis, load_published
from cimemories.store.engine import shared_store
from cimemories.text import count, sentence
from cimemories.ui import answers, page, safe, shell, tables, url
from pages.explore import compare_scope
from pages.explore.compare_scope import Compared, SetTakeaway, show

# ---- all runs in the plane of violation and completeness


def draw_plane(compared: Compared, set_takeaway: SetTakeaway) -> None:
    """Draw the plane."""
    set_takeaway(takeaway(compared.flows, compared.board))
    drawing = plane(compared.board, below=shell.is_phone())
    if drawing is None:
        page.empty(
            "No run has both numbers",
            "A place in this chart takes a violation and a completeness: label the dataset, or wait for judgements.",
            lambda: url.page_link("labels", "Label the dataset", icon=":material/label:"),
        )
        return
    compare_scope.differences(compared)
    show(drawing, "plane", "compare.box.plane", compared)


# ---- the leaderboard


# The box above, the table below and the files have the other columns.
SHOWN = ("title", "violation", "completeness", "balanced", "leak_rate", "coverage", "n", "judge", "remarks")


def draw(compared: Compared, set_takeaway: SetTakeaway) -> None:
    """Draw the table."""
    board = compared.board
    set_takeaway(takeaway(compared.flows, board))
    compare_scope.differences(compared)
    columns = {name: column for name, column in board.rows.columns.items() if name in SHOWN}
    tables.grid(replace(board.rows, columns=columns), "Leaderboard")
    # Notes that are warnings too stand only in the box above.
    warnings = {sentence(text) for text in board.warnings}
    safe.show(safe.lines([note for note in board.notes if note not in warnings], "", box="ci-lines ci-muted"))
    with st.container(horizontal=True):
        answers.export(board.rows, "leaderboard", compared.about(), board.simulated)
        with st.popover("For a paper", icon=":material/description:", type="tertiary"):
            form = st.segmented_control(
                "Form", ["Markdown", "LaTeX", "BibTeX"], default="Markdown", required=True, key="compare.form"
            )
            if form == "BibTeX":
                text = load_published().paper.bibtex
            else:
                text = board.latex() if form == "LaTeX" else board.markdown()
            st.code(text, language=None, height=360)
    page.fold("All columns as a table", ":material/table:", "compare.box.leaderboard", lambda: _twin(compared))


def _twin(compared: Compared) -> None:
    """Draw every number in columns that can be sorted; a click opens the heatmap of the run."""
    shown = compared.board.every_column()
    frame = shown.frame.set_index("run", drop=False)
    picked = answers.twin(
        replace(shown, frame=frame),
        "compare.table",
        on_select="row",
        height="content" if len(frame) <= 20 else "auto",
        alt="The leaderboard, one row a run",
    )
    safe.inline("Choose a row to see the heatmap of a run.", muted=True)
    if picked is not None:
        url.go("heatmaps", run=str(frame["run"].iloc[picked]))


# ---- what changes along an axis


NEEDS = {
    Axis.SIZE: "models of one family whose sizes are in their names or presets",
    Axis.REASONING: "the same model with thinking on and off, or its thinking and its instruct variant",
    Axis.PROMPT: "the same model at several prompt levels",
    Axis.MEMORY: "the same model with memories of several sizes: necessary+K, inappropriate+K or random-K, or a memory "
    "system at several k",
}


def draw_sweeps(compared: Compared, set_takeaway: SetTakeaway) -> None:
    """Draw how results change with size, reasoning, prompt level or memory, for a sweep or for the chosen runs."""
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    with right:
        among = _among(compared)
    lines = [line for line in compared.board.lines if among is None or line.run.sweep == among]
    figures = sweep_figures(lines)
    with left:
        # By default the first axis with something to see.
        first = next((axis for axis, figure in figures.items() if figure.series), Axis.SIZE)
        named = {str(axis): WHAT[axis].capitalize() for axis in Axis}
        axis = Axis(page.choice("What varies", named, "compare.axis", "axis", default=first))
    figure = figures[axis]
    set_takeaway(f"{figure.title()}.")
    drawing = sweep(figure, columns=1 if shell.is_phone() else 3)
    if drawing is None:
        page.empty(
            f"Nothing to draw along {WHAT[axis]}",
            f"This needs two or more runs that differ in {WHAT[axis]} only: {NEEDS[axis]}. Prompt, memory, samples, "
            "parameters and judge must otherwise be the same. A sweep plans such runs together.",
            lambda: url.page_link("runs", "Plan a sweep", icon=":material/grid_view:", tab="sweeps"),
        )
    else:
        show(drawing, "sweep", "compare.box.sweep", compared, simulated=figure.simulated)
        of_systems = trade_off(lines)
        if axis == Axis.MEMORY and (drawn := comparison.trade_off(of_systems)) is not None:
            show(drawn, "trade-off", "compare.box.trade_off", compared, simulated=of_systems.simulated)
    if among:
        to = {"tab": "sweeps", "sweep": among}
        url.page_link("runs", "See the sweep as a matrix of prompt and memory", icon=":material/grid_view:", **to)
    if figure.trend is not None:  # the paper's sentence on it
        chip = safe.tag("span", "published", cls="ci-chip ci-none")
        text = f" {figure.trend.model}: {figure.trend.about} ({figure.trend.where}; the text gives no numbers)."
        safe.show(safe.tag("p", chip, text, cls="ci-muted"))
    if figure.left_out:
        page.fold(
            f"{count(len(figure.left_out), 'run')} left out",
            ":material/visibility_off:",
            "compare.box.left_out",
            lambda: safe.show(safe.tag("ul", *(safe.tag("li", text) for text in figure.left_out))),
        )


def _among(compared: Compared) -> str | None:
    """Draw the choice of a sweep and return it; None for all chosen runs."""
    there = {line.run.sweep for line in compared.board.lines if line.run.sweep}
    if not there:
        # The address then says what is shown: all runs, not a sweep without any of them.
        url.replace(sweep=None)
        return None
    named = {row.id: row.name for row in catalogue.all_sweeps(shared_store()) if row.id in there}
    texts = {"": "all chosen runs"} | named
    return page.choice("Runs of", texts, "compare.sweep", "sweep", boxed=True) or None

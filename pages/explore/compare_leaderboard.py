"""Parts of the Compare page that show the lines of the leaderboard: as the paper's Table 1 and as a sortable table, in
the plane of violation and completeness, and along what a sweep varies."""

from __future__ import annotations

import streamlit as st

from cimemories.charts import comparison
from cimemories.charts.comparison import PHONE_PLANE_WIDTH, PLANE_WIDTH, plane, sweep
from cimemories.compare.difference import takeaway
from cimemories.compare.leaderboard import (
    Line,
    bounds_text,
    coverage_warnings,
    leaderboard_latex,
    leaderboard_markdown,
    leaderboard_notes,
)
from cimemories.compare.ranking import memory_text
from cimemories.compare.sweeps import WHAT, SweepFigure, sweep_figures, trade_off
from cimemories.flows import catalogue
from cimemories.metrics.breakdown import Baseline
from cimemories.metrics.uncertainty import Interval
from cimemories.seeds.published import Axis, Figure, PublishedMeasure, load_published
from cimemories.store.engine import shared_store
from cimemories.text import UNDEFINED, count, percent
from cimemories.ui import exports, page, safe, shell, tables, url
from cimemories.ui.safe import Html, tag
from pages.explore import compare_scope
from pages.explore.compare_scope import Columns, Compared, SetTakeaway, show

# ---- all runs in the plane of violation and completeness


def draw_plane(compared: Compared, set_takeaway: SetTakeaway) -> None:
    """The plane."""
    set_takeaway(takeaway(compared.flows, compared.board))
    drawing = plane(compared.board, width=PHONE_PLANE_WIDTH if shell.is_phone() else PLANE_WIDTH)
    if drawing is None:
        page.empty(
            "No run has both numbers",
            "A place in this chart takes a violation and a completeness: label the dataset, or wait for judgements.",
            lambda: url.page_link("labels", "Label the dataset", icon=":material/label:"),
        )
        return
    compare_scope.differences(compared, more=coverage_warnings(compared.board.lines))
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
            "not_ranked": ("text", "Not ranked because"),
            "coverage": ("percent", "Coverage"),
            "run": ("text", "Run"),
        },
    )


# ---- the leaderboard


def draw(compared: Compared, set_takeaway: SetTakeaway) -> None:
    """The table."""
    board = compared.board
    set_takeaway(takeaway(compared.flows, board))
    run_names = compared.run_names
    head = ["Model", board.violation_name, "Completeness", "Balanced score", "Leak rate", "Coverage", "N", "Judge"]
    head += ["Memory, prompt"]
    titles = {
        board.violation_name: "Share of attributes ever revealed where they are inappropriate; less is better",
        "Completeness": "Share of necessary attributes conveyed; more is better",
        "Balanced score": "Harmonic mean of 1 - violation and completeness",
        "Leak rate": "Of one exposure: sum of reveals over sum of judged samples of inappropriate flows",
        "Coverage": "Judged responses over planned ones",
    }
    rows = [row for line in board.lines for row in _lines(line, run_names[line.run.id], compared)]
    rows += [_constant(item) for item in board.constants]
    compare_scope.differences(compared, more=coverage_warnings(board.lines))
    safe.show(safe.wide(safe.grid(head, rows, texts=(0, 7, 8), hints=titles), "Leaderboard"))
    # Notes that are warnings too stand in the box above alone.
    notes = [
        text for text in leaderboard_notes(board) if text.rstrip(".").lower() not in {w.lower() for w in board.warnings}
    ]
    safe.show(safe.lines(notes, "", box="ci-lines ci-muted"))
    with st.container(horizontal=True):
        frame = board.frame()
        exports.buttons(
            "leaderboard", frame, fig=None, key="compare.leaderboard", simulated=board.simulated, about=compared.about()
        )
        with st.popover("For a paper", icon=":material/description:", type="tertiary"):
            form = st.segmented_control(
                "Form", ["Markdown", "LaTeX", "BibTeX"], default="Markdown", required=True, key="compare.form"
            )
            if form == "BibTeX":
                text = load_published().paper.bibtex
            else:
                text = leaderboard_latex(board) if form == "LaTeX" else leaderboard_markdown(board)
            st.code(text, language=None, height=360)
    page.fold("All columns as a table", ":material/table:", "compare.box.leaderboard", lambda: _twin(compared))


def _ranked(line: Line, name: str, n: int | None) -> list[Html]:
    """The cells of a line that the order of lines comes from. n: at how many samples the table reads violation."""
    outside = tag("div", f"! not ranked: {line.warning or line.outside}", cls="ci-muted") if line.outside else ""
    reads = "" if line.n == n else f"at n = {line.n}"
    about = line.run.id if line.run.model in name else f"{line.run.model}, {line.run.id}"
    return [
        tag("td", tag("b", name), " ", page.simulated_badge(line.simulated), _muted(about), outside),
        _measured(line.violation, line.violation_spread, line.counted.attributes, "attributes", reads),
        _measured(line.completeness, line.completeness_spread, line.retained, "retained contexts"),
        _measured(line.balanced),
    ]


def _lines(line: Line, name: str, compared: Compared) -> list[Html]:
    """The run, and below it what the paper states of its model."""
    rate, coverage = line.counted.leak_rate, percent(line.numbers.coverage)
    exposures = f"{count(rate.reveals)} of {count(rate.draws, 'exposure')}"
    judged = f"{count(line.numbers.judged)} of {count(line.run.expected, 'response')} judged"
    cells = [
        *_ranked(line, name, compared.board.n),
        safe.number(percent(rate.micro), title=f"{exposures}; mean over contexts {percent(rate.macro)}"),
        safe.number(coverage if line.covered else tag("b", coverage), title=judged),
        safe.number(str(line.run.samples) if line.n == line.run.samples else f"{line.n} of {line.run.samples}"),
        tag("td", line.scope.judge_text),
        tag("td", f"{memory_text(line.run)}, {line.run.prompt_level}"),
    ]
    rows = [tag("tr", *cells)]
    stated = {measure: line.stated(measure) for measure in PublishedMeasure}
    if line.published is not None and any(stated.values()):
        published = [
            _stated(stated[measure]) for measure in (PublishedMeasure.VIOLATION, PublishedMeasure.COMPLETENESS)
        ]
        name_cell = tag(
            "td", tag("span", "published", cls="ci-chip ci-none"), f" {line.published.name}", cls="ci-muted"
        )
        rows.append(tag("tr", name_cell, *published, *(tag("td") for _ in range(6))))
    return rows


def _measured(
    interval: Interval, spread: float | None = None, rests_on: int = 0, unit: str = "", reads: str = ""
) -> Html:
    """A share, its spread over profiles, and its interval in smaller type; what it rests on is one hover away."""
    if interval.value != interval.value:
        return safe.number(UNDEFINED)
    apart = f" ± {100 * spread:.1f}" if spread is not None and spread == spread else ""
    about = (
        f"{count(rests_on)} {unit}, {count(interval.users, 'profile')}" if unit else count(interval.users, "profile")
    )
    bounds = " ".join(text for text in (bounds_text(interval), reads) if text)
    return safe.number(safe.join([tag("b", percent(interval.value)), apart]), bounds, title=about)


def _stated(figure: Figure | None) -> Html:
    if figure is None:
        return tag("td")
    about = f"{figure.about}; {figure.where}{f'. {figure.also}' if figure.also else ''}"
    return safe.number(percent(figure.value), figure.where, title=about)


def _constant(item: Baseline) -> Html:
    name = tag("td", item.name, _muted("constant strategy"), cls="ci-muted")
    numbers = [
        tag("td", percent(v), cls="ci-number ci-muted") for v in (item.violation, item.completeness, item.balanced)
    ]
    return tag("tr", name, *numbers, *(tag("td") for _ in range(5)))


def _muted(text: str) -> Html:
    return tag("div", text, cls="ci-muted")


def _twin(compared: Compared) -> None:
    """Every number in columns that can be sorted; a click opens the heatmap of the run."""
    frame = compared.board.frame()
    frame.index = frame["run"]
    picked = tables.table(
        frame,
        key="compare.table",
        columns={
            "model": ("text", "Model"),
            "violation": ("percent", "Violation"),
            "violation_sd": ("percent", "sd"),
            "violation_low": ("percent", "from"),
            "violation_high": ("percent", "to"),
            "completeness": ("percent", "Completeness"),
            "completeness_sd": ("percent", "sd of completeness"),
            "balanced": ("percent", "Balanced"),
            "leak_rate": ("percent", "Leak rate"),
            "coverage": ("percent", "Coverage"),
            "rank": ("number", "Rank"),
            "not_ranked": ("text", "Not ranked because"),
            "n": ("number", "n"),
            "samples": ("number", "N"),
            "profiles": ("number", "Profiles"),
            "attributes": ("count", "Attributes"),
            "judge": ("text", "Judge"),
            "labels": ("text", "Labels"),
            "memory": ("text", "Memory"),
            "prompt": ("text", "Prompt"),
            "thinking": ("text", "Thinking"),
            "mitigation": ("text", "Mitigation"),
            "published_violation": ("percent", "Published violation"),
            "published_completeness": ("percent", "Published completeness"),
            "run": ("text", "Run"),
        },
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
    """What changes with size, reasoning, prompt level or memory, of a sweep or of the chosen runs."""
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    with right:
        among = _among(compared)
    lines = [line for line in compared.board.lines if among is None or line.run.sweep == among]
    figures = sweep_figures(lines)
    with left:
        axis = _axis(figures)
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
        of_systems = trade_off(lines)
        if axis == Axis.MEMORY and (drawn := comparison.trade_off(of_systems)) is not None:
            show(drawn, "trade-off", "compare.box.trade_off", compared, columns, simulated=of_systems.simulated)
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
    """The sweep whose cells are drawn; None for all chosen runs."""
    there = {line.run.sweep for line in compared.board.lines if line.run.sweep}
    if not there:
        # The address says what is shown: all runs, and not a sweep that none of them is of.
        url.replace(sweep=None)
        return None
    named = {row.id: row.name for row in catalogue.all_sweeps(shared_store()) if row.id in there}
    texts = {"": "all chosen runs"} | named
    return page.choice("Runs of", texts, "compare.sweep", "sweep", boxed=True) or None


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
        on_change=url.durable(lambda: url.put(axis=str(st.session_state[key]))),
    )
    return Axis(st.session_state[key] or first)

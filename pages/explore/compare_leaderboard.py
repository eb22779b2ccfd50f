"""Part of the Compare page: the leaderboard in the form of the paper's Table 1, and the same as a sortable table."""

from __future__ import annotations

from cimemories.charts.comparison import plane
from cimemories.compare.leaderboard import (
    SPREAD,
    Leaderboard,
    Line,
    bounds_text,
    leaderboard_latex,
    leaderboard_markdown,
    leaderboard_notes,
    leaderboard_takeaway,
    memory_text,
    names,
)
from cimemories.metrics.bootstrap import Interval
from cimemories.metrics.breakdown import Baseline
from cimemories.seeds.published import Figure, PublishedMeasure
from cimemories.text import count, percent
from cimemories.ui import exports, page, safe, tables, url
from cimemories.ui.safe import Html, tag
from pages.explore import compare_scope
from pages.explore.compare_scope import Compared, SetTakeaway, show

# ---- compare plane
#
# Part of the Compare page: all runs in the plane of violation and completeness.


def draw_plane(compared: Compared, set_takeaway: SetTakeaway) -> None:
    """The plane."""
    set_takeaway(leaderboard_takeaway(compared.board))
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


# ---- compare leaderboard


UNDEFINED = "–"


def draw(compared: Compared, set_takeaway: SetTakeaway) -> None:
    """The table."""
    import streamlit as st

    board = compared.board
    set_takeaway(leaderboard_takeaway(board))
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
    cells = [
        tag("th", name, cls="ci-number" if 0 < i < 7 else "", title=titles.get(name, "")) for i, name in enumerate(head)
    ]
    rows = [row for line in board.lines for row in _lines(line, run_names[line.run.id], compared)]
    rows += [_constant(item) for item in board.constants]
    safe.show(tag("table", tag("thead", tag("tr", *cells)), tag("tbody", *rows), cls="ci-grid"))
    # Notes that are warnings too stand in the box below alone.
    notes = [
        text for text in leaderboard_notes(board) if text.rstrip(".").lower() not in {w.lower() for w in board.warnings}
    ]
    safe.show(tag("div", *(tag("div", text) for text in notes), cls="ci-lines ci-muted"))
    compare_scope.warnings(board.warnings, key="compare.box.warnings")
    with st.container(horizontal=True):
        frame = board.frame()
        exports.buttons(
            "leaderboard", frame, fig=None, key="compare.leaderboard", simulated=board.simulated, about=compared.about()
        )
        with st.popover("For a paper", icon=":material/description:", type="tertiary"):
            form = st.segmented_control("Form", ["Markdown", "LaTeX"], default="Markdown", key="compare.form")
            st.code(
                leaderboard_latex(board) if form == "LaTeX" else leaderboard_markdown(board), language=None, height=360
            )
    page.fold("All columns as a table", ":material/table:", "compare.box.leaderboard", lambda: _twin(compared))


def short(board: Leaderboard, most: int) -> None:
    """The first lines with what they are ranked by."""
    head = ["Model", board.violation_name, "Completeness", "Balanced score"]
    cells = [tag("th", name, cls="ci-number" if i else "") for i, name in enumerate(head)]
    run_names = names(board.lines)
    rows = [tag("tr", *_ranked(line, run_names[line.run.id])) for line in board.lines[:most]]
    table = tag("table", tag("thead", tag("tr", *cells)), tag("tbody", *rows), cls="ci-grid")
    safe.show(tag("div", table, _muted(SPREAD)))


def _ranked(line: Line, name: str) -> list[Html]:
    """The cells of a line that the order of lines comes from."""
    covered = "" if line.covered else tag("div", f"! {line.warning}", cls="ci-muted")
    return [
        tag("td", tag("b", name), " ", page.SIMULATED if line.simulated else "", _muted(line.run.id), covered),
        _measured(line.violation, line.violation_spread, line.numbers.attributes, "attributes"),
        _measured(line.completeness, line.completeness_spread, line.numbers.retained, "retained contexts"),
        _measured(line.balanced),
    ]


def _lines(line: Line, name: str, compared: Compared) -> list[Html]:
    """The run, and below it what the paper states of its model."""
    cells = [
        *_ranked(line, name),
        _rate(line),
        tag(
            "td",
            _bold(percent(line.numbers.coverage), not line.covered),
            cls="ci-number",
            title=f"{count(line.numbers.judged)} of {count(line.run.expected)} responses judged",
        ),
        tag("td", str(line.run.samples) if compared.n is None else f"{line.n} of {line.run.samples}", cls="ci-number"),
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


def _measured(interval: Interval, spread: float | None = None, rests_on: int = 0, unit: str = "") -> Html:
    """A share, its spread over profiles, and its interval in smaller type; what it rests on is one hover away."""
    if interval.value != interval.value:
        return tag("td", UNDEFINED, cls="ci-number")
    apart = f" ± {100 * spread:.1f}" if spread is not None and spread == spread else ""
    about = f"{count(rests_on)} {unit}, {interval.users} profiles" if unit else f"{interval.users} profiles"
    small = tag("div", bounds_text(interval), cls="ci-muted")
    return tag("td", tag("b", percent(interval.value)), apart, small, cls="ci-number", title=about)


def _rate(line: Line) -> Html:
    rate = line.numbers.leak_rate
    macro = percent(rate.macro)
    about = f"{count(rate.reveals)} of {count(rate.draws)} exposures; mean over contexts {macro}"
    return tag("td", percent(rate.micro), cls="ci-number", title=about)


def _stated(figure: Figure | None) -> Html:
    if figure is None:
        return tag("td")
    about = f"{figure.about}; {figure.where}{f'. {figure.also}' if figure.also else ''}"
    return tag("td", percent(figure.value), tag("div", figure.where, cls="ci-muted"), cls="ci-number", title=about)


def _constant(item: Baseline) -> Html:
    name = tag("td", item.name, _muted("constant strategy"), cls="ci-muted")
    numbers = [
        tag("td", percent(v), cls="ci-number ci-muted") for v in (item.violation, item.completeness, item.balanced)
    ]
    return tag("tr", name, *numbers, *(tag("td") for _ in range(5)))


def _muted(text: str) -> Html:
    return tag("div", text, cls="ci-muted")


def _bold(text: str, bold: bool) -> Html | str:
    return tag("b", text) if bold else text


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

"""Part of the Compare page: the runs compared, the judge, the number of samples, and the labels."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import streamlit as st

from cimemories.charts.comparison import Drawing
from cimemories.charts.theme import layout
from cimemories.compare.leaderboard import (
    MANY,
    MOST_UNCHOSEN,
    Leaderboard,
    leaderboard,
    scopes_of_rows,
    settings_apart,
)
from cimemories.evaluation.spec import names
from cimemories.flows import catalogue
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows, shared_flows
from cimemories.flows.scope import BEHIND, Combine, Scope, is_behind, messages_first
from cimemories.store.engine import Store, StoreError
from cimemories.store.judgements import JudgeRow
from cimemories.store.runs import RunRow
from cimemories.text import Parts, count, html_escaped
from cimemories.ui import answers, charts, exports, page, safe, tables, url
from pages.explore.run_scope import label_choice

FIRST = Combine.ONE
RANK_SMALL = "all"
RANKED = {
    "": "those that cover most, small runs below",
    RANK_SMALL: "all, on what they have in common",
}
# A part of the page sets the page's takeaway by it, once, as soon as it is known.
SetTakeaway = Callable[[str], None]
COMBINED = {
    Combine.ONE: "the first of each run",
    Combine.ANY: "any of a run's judges",
    Combine.MAJORITY: "more than half of a run's judges",
    Combine.ALL: "all of a run's judges",
}


@dataclass(frozen=True)
class Compared:
    """The runs that are compared, read in one way. n: the most samples that violation is read at; None: all."""

    flows: Flows
    scopes: tuple[Scope, ...]
    n: int | None
    rule: IdentifierRule
    board: Leaderboard

    @property
    def run_names(self) -> dict[str, str]:
        """Return the display name of each run, by its id."""
        return self.board.names

    def scope_of(self, run_id: str) -> Scope:
        return next(scope for scope in self.scopes if scope.run.id == run_id)

    def about(self, *scopes: Scope, n: int | None = None) -> dict[str, object]:
        """Return the basis of the numbers, for exports. scopes: default to those of all runs; n: the n of violation, if
        it differs from the board's."""
        scopes = scopes or self.scopes
        first = scopes[0]
        return {
            "dataset": first.dataset_name,
            "labels": first.labelling.id if first.labelling else "none",
            "labelled_by": first.labels_text,
            "judge": "; ".join(dict.fromkeys(scope.judge_text for scope in scopes)),
            "n": n or self.board.n or "all samples that every flow of a run has",
            "identifier_rule": str(self.rule),
        }


def choose(store: Store, rows: Sequence[RunRow]) -> Compared | None:
    """Draw the scope bar and read the runs. rows: all judged runs. None if they cannot be read so; the page then says
    why."""
    data_column, run_column, judge_column, n_column = st.columns([3, 6, 3, 2], vertical_alignment="bottom")
    with data_column:
        datasets = {row.id: row.name for row in catalogue.all_datasets(store)}
        counts = Counter(row.dataset for row in rows)
        busiest = sorted(counts, key=lambda i: (-counts[i], -i))
        texts = {i: f"{datasets.get(i, i)} ({count(counts[i], 'run')})" for i in busiest}
        dataset = page.select("Dataset", busiest, texts.__getitem__, "compare.dataset", "dataset")
    line = st.container(horizontal=True)
    offered = {row.id: row for row in reversed(rows) if row.dataset == dataset}
    with line:
        tag = page.run_tag((row.tags for row in offered.values()), "compare.tag", also=lambda: {"runs": None})
    if tag:
        offered = {run_id: row for run_id, row in offered.items() if tag[1:] in row.tags}
    with run_column:
        named = names([*offered.values()])
        newest = list(offered)[:MOST_UNCHOSEN]
        everything = "all" if len(newest) == len(offered) else f"the {MOST_UNCHOSEN} newest"
        chosen = page.runs(named, "compare.runs", f"{everything} judged runs of the dataset")
    if not chosen and len(newest) < len(offered):
        all_of_them = count(len(offered), "judged run")
        text = f"These are the {len(newest)} newest of {all_of_them}. Choose runs to compare others."
        safe.show(safe.tag("div", text, cls="ci-notice"))
    chosen = chosen or newest
    judges = [messages_first(rows_of) for rows_of in catalogue.judges_of_runs(store, chosen).values()]
    with judge_column:
        judge = _judge(judges)
    with n_column:
        n = _samples(max(offered[run_id].samples for run_id in chosen))
    flows = shared_flows(store)
    try:
        scopes = scopes_of_rows(store, [offered[run_id] for run_id in chosen], judge)
        with line:
            against = label_choice(flows, scopes[0])
        scopes = [replace(scope, labels=against) for scope in scopes]
        with st.spinner("Reading the runs", show_time=True):
            rank_small = url.get("ranked") == RANK_SMALL
            board = leaderboard(flows, scopes, n=n, warned=False, rank_small=rank_small)  # no page shows the warnings
    except StoreError as problem:
        page.error("These runs cannot be compared.", str(problem))
        return None
    if board.has_small or rank_small:
        with line:
            page.choice(
                "Ranked runs", RANKED, "compare.ranked", "ranked", help="Violation@n grows with n and with contexts."
            )
    if len(scopes) > MANY and is_behind(store, scopes[0]):
        page.notice(BEHIND)
    return Compared(flows, tuple(scopes), n, board.rule, board)


def _judge(judges: Sequence[Sequence[JudgeRow]]) -> str:
    """Draw the choice of whose claims count in every run and return it: its first judge, a judge that all runs have, or
    several together."""
    shared = set.intersection(*({judge.name for judge in of_run} for of_run in judges)) if judges else set()
    several = any(len(of_run) > 1 for of_run in judges)
    options: dict[str, str] = {str(FIRST): COMBINED[FIRST]}
    if several:
        options |= {name: name for name in sorted(shared)}
        options |= {str(way): text for way, text in COMBINED.items() if way != FIRST}
    if len(options) == 1:
        only = sorted(shared)
        text = only[0] if only else COMBINED[FIRST]
        st.selectbox("Judge", [text], disabled=True, format_func=safe.option)
        return str(FIRST)
    chosen = page.select(
        "Judge", list(options), options.__getitem__, "compare.judge", "judge", help="Whose claims count."
    )
    return str(chosen)


def _samples(most: int) -> int | None:
    """Draw the choice of the most samples that violation is read at; None for all that every run has."""
    chosen = page.choice(
        "Samples n",
        {"": "all"} | {str(n): str(n) for n in range(1, most + 1)},
        "compare.n",
        "n",
        boxed=True,
        help="Violation@n, at most as many samples as every run can give. Runs are always read at the same n.",
    )
    return int(chosen) if chosen else None


def differences(compared: Compared, scopes: Sequence[Scope] = ()) -> None:
    """Draw in what these runs (by default all) differ apart from their models, as a folded table; nothing if they do
    not."""
    table = settings_apart(compared.flows.store, compared.board, scopes or compared.scopes)
    if not table.empty:
        page.fold(
            table.caption, ":material/difference:", "compare.box.settings", lambda: tables.grid(table, table.caption)
        )


# ---- a drawing with its title, its badge, its exports and its table


HEAD, LINE = 10, 22  # pixels above the title, and of each further line of it
TITLE = 110  # characters in one line


def show(
    drawing: Drawing,
    name: str,
    box: str,
    compared: Compared,
    *,
    simulated: Parts | None = None,
    about: Mapping[str, object] | None = None,
) -> None:
    """Draw a figure. name: of its files and widgets. box: key of the folded table. simulated, about: None for those of
    all runs."""
    marked = compared.board.simulated if simulated is None else simulated
    rests_on = compared.about() if about is None else about
    show_drawing(drawing, f"compare.chart.{name}", f"compare-{name}", box, marked, rests_on)


def show_drawing(drawing: Drawing, key: str, file: str, box: str, marked: Parts, about: Mapping[str, object]) -> None:
    """Draw a figure with its title, exports and table, as `show` does. file: name of the exports; about: their
    basis."""
    # Kept, since layout() sets margins and the figure's hold its names.
    margin = drawing.fig.layout.margin.to_plotly_json()
    drawing.fig.update_layout(layout(title=drawing.title, subtitle=drawing.subtitle))
    lines = textwrap.wrap(drawing.title, TITLE) or [""]
    more = LINE * (len(lines) - 1)
    # Head and height grow together, so that the plot keeps its size.
    height = drawing.fig.layout.height + more
    head = {
        "text": "<br>".join(html_escaped(line) for line in lines),
        "y": 1 - HEAD / height,
        "yref": "container",
        "yanchor": "top",
    }
    drawing.fig.update_layout(margin={**margin, "t": margin["t"] + more}, height=height, title=head, dragmode=False)
    page.badge_simulated(marked)
    charts.show(drawing.fig, key=key, alt=drawing.alt)
    exports.buttons(file, drawing.table.frame, fig=drawing.fig, key=key, simulated=marked, about=about)
    answers.folded(drawing.table, key, box, alt=drawing.alt)

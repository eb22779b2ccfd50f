"""Part of the Compare page: which runs are compared, by whose word, at how many samples, and against which labels."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import streamlit as st

from cimemories.charts.comparison import Drawing
from cimemories.charts.theme import layout
from cimemories.compare.leaderboard import Leaderboard, leaderboard, names, scopes_of_rows
from cimemories.flows import catalogue
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows, shared_flows
from cimemories.flows.scope import Combine, Scope, messages_first
from cimemories.store.engine import Store, StoreError
from cimemories.store.judgements import JudgeRow
from cimemories.store.runs import RunRow
from cimemories.text import html_escaped, sentence
from cimemories.ui import charts, exports, page, safe, tables, url
from cimemories.ui.tables import Column
from pages.explore.run_scope import label_choice

FIRST = Combine.ONE
# A part of the page gives the page's takeaway by it, once, as soon as it is known.
SetTakeaway = Callable[[str], None]
COMBINED = {
    Combine.ONE: "the first of each run",
    Combine.ANY: "any of a run's judges",
    Combine.MAJORITY: "more than half of a run's judges",
    Combine.ALL: "all of a run's judges",
}


@dataclass(frozen=True)
class Compared:
    """The runs that are compared, read in one way. n: samples that violation is read at, at most; None: all."""

    flows: Flows
    scopes: tuple[Scope, ...]
    n: int | None
    rule: IdentifierRule
    board: Leaderboard

    @property
    def run_names(self) -> dict[str, str]:
        """What each run is called, by its id."""
        return names(self.board.lines)

    def scope_of(self, run_id: str) -> Scope:
        return next(scope for scope in self.scopes if scope.run.id == run_id)

    def about(self) -> dict[str, object]:
        """What the numbers rest on, for exports."""
        first = self.scopes[0]
        return {
            "dataset": first.dataset_name,
            "labels": first.labelling.id if first.labelling else "none",
            "labelled_by": first.labels_text,
            "judge": "; ".join(dict.fromkeys(scope.judge_text for scope in self.scopes)),
            "n": self.board.n or "all samples that every flow of a run has",
            "identifier_rule": str(self.rule),
        }


def choose(store: Store, rows: Sequence[RunRow]) -> Compared | None:
    """Draw the scope bar and read the runs. rows: all judged runs. None where they cannot be read so; the page has then
    said so."""
    data_column, run_column, judge_column, n_column = st.columns([3, 6, 3, 2], vertical_alignment="bottom")
    with data_column:
        dataset = _dataset(store, rows)
    offered = {row.id: row for row in reversed(rows) if row.dataset == dataset}
    with run_column:
        chosen = _runs(offered)
    judges = [messages_first(own) for own in catalogue.judges_of_runs(store, chosen).values()]
    with judge_column:
        judge = _judge(judges)
    with n_column:
        n = _samples(max(offered[run_id].samples for run_id in chosen))
    flows = shared_flows(store)
    try:
        scopes = scopes_of_rows(store, [offered[run_id] for run_id in chosen], judge)
        against = label_choice(flows, scopes[0])
        scopes = [replace(scope, labels=against) for scope in scopes]
        board = leaderboard(flows, scopes, n=n, warned=False)  # nothing of this page shows them
    except StoreError as problem:
        page.error("These runs cannot be compared.", str(problem))
        return None
    return Compared(flows, tuple(scopes), n, board.rule, board)


def _dataset(store: Store, rows: Sequence[RunRow]) -> int:
    named = {row.id: row.name for row in catalogue.all_datasets(store)}
    counts = {i: sum(row.dataset == i for row in rows) for i in {row.dataset for row in rows}}
    busiest = sorted(counts, key=lambda i: (-counts[i], -i))
    chosen = page.select(
        "Dataset", busiest, lambda i: f"{named.get(i, i)} ({counts[i]} runs)", "compare.dataset", "dataset"
    )
    return int(chosen if chosen is not None else busiest[0])


def _runs(offered: dict[str, RunRow]) -> list[str]:
    """The chosen runs, as the URL says; none named: all."""
    key = "compare.runs"
    run_ids = [part for part in (url.get("runs") or "").split(".") if part]
    known = [run_id for run_id in run_ids if run_id in offered]
    if len(known) < len(run_ids):
        page.notice("Some runs of the link are not here (any more), or are of another dataset.")
    # The URL is the state: the widget gets it before it is drawn, since a default counts only once.
    st.session_state[key] = known

    def changed() -> None:
        url.put(runs=".".join(st.session_state[key]) or None)

    st.multiselect(
        "Runs",
        list(offered),
        format_func=lambda i: safe.option(f"{offered[i].name} ({i})", 48),
        key=key,
        on_change=changed,
        placeholder="all judged runs of the dataset",
        help="Runs of one dataset with at least one judgement. None chosen: all of them.",
    )
    return known or list(offered)


def _judge(judges: Sequence[Sequence[JudgeRow]]) -> str:
    """Whose claims count in every run: its first judge's, one that all runs have, or several together."""
    shared = set.intersection(*({judge.name for judge in own} for own in judges)) if judges else set()
    several = any(len(own) > 1 for own in judges)
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
    """At how many samples violation is read at most; None for all that every run can give."""
    chosen = page.choice(
        "Samples n",
        {"": "all"} | {str(n): str(n) for n in range(1, most + 1)},
        "compare.n",
        "n",
        boxed=True,
        help="Violation@n, at most as many samples as every run can give. Runs are always read at the same n.",
    )
    return int(chosen) if chosen else None


def warnings(texts: Sequence[str], *, key: str) -> None:
    """What speaks against comparing, in one box; folded where it is much. Nothing where there is nothing."""
    if not texts:
        return
    sentences = [sentence(text) for text in texts]
    if len(sentences) == 1:
        page.notice(sentences[0])
        return
    page.fold(
        f"{len(sentences)} things in which the runs differ, apart from their models",
        ":material/warning:",
        key,
        lambda: safe.show(safe.tag("ul", *(safe.tag("li", text) for text in sentences))),
    )


# ---- a drawing with its title, its badge, its exports and its table


HEAD, LINE = 10, 22  # pixels above the title, and of each further line of it
TITLE = 110  # characters in one line
Columns = Mapping[str, Column | tuple[Column, str]]


def show(
    drawing: Drawing,
    name: str,
    box: str,
    compared: Compared,
    columns: Columns,
    *,
    simulated: bool | None = None,
) -> None:
    """Draw it. name: of its files and widgets. box: key of the folded table, whose columns these are. simulated: None
    for that of all runs."""
    marked = compared.board.simulated if simulated is None else simulated
    # Kept, since layout() brings margins of its own and the figure's hold its names.
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
    if marked:
        page.badge_simulated()
    charts.show(drawing.fig, key=f"compare.chart.{name}", alt=drawing.alt)
    exports.buttons(
        f"compare-{name}",
        drawing.frame,
        fig=drawing.fig,
        key=f"compare.chart.{name}",
        simulated=marked,
        about=compared.about(),
    )

    def twin() -> None:
        tables.table(drawing.frame, key=f"compare.{name}.table", columns=columns, alt=drawing.alt)

    page.fold("The same as a table", ":material/table:", box, twin)

"""Part of the agreement of the Review page: what people's decisions do to the numbers of a run."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories.analysis.decision_effect import DecisionEffect, decision_effect, words
from cimemories.analysis.flows import Scope, scope, shared_flows
from cimemories.store import runs
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store
from cimemories.store.labellings import LabellingRow
from cimemories.store.runs import RunRow
from cimemories.ui import page, safe, tables, url
from cimemories.ui.safe import tag
from pages.curate.label_filters import choice
from pages.curate.pair_rows import PAIR_COLUMNS, go_to_pair
from pages.curate.review_agreement_figures import count_head, grid

MOST_ROWS = 300


def draw(store: Store, dataset: DatasetRow, labelling: LabellingRow | None) -> None:
    with store.read() as connection:
        rows = {row.id: row for row in reversed(runs.all_rows(connection)) if row.dataset == dataset.id}
    page.fold(
        "What the decisions do to a run",
        ":material/balance:",
        "agreement.box.effect",
        lambda: _inside(store, dataset, labelling, rows),
    )


def _inside(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, rows: dict[str, RunRow]) -> None:
    if not rows:
        page.notice("This dataset has no run yet. Decisions move Violation@n and completeness once there is one.")
        return
    with st.columns([4, 8])[0]:
        run = choice("Run", "run", list(rows), lambda i: f"{rows[i].name} ({i})", None) or next(iter(rows))
    asked = scope(store, run, labelling.id if labelling else None)
    flows = shared_flows(store)
    most = asked.run.samples
    n = min(max(url.get_int("n") or most, 1), most)
    found = decision_effect(flows, asked, n)
    if asked.simulated:
        page.badge_simulated()
    if not found.decided:
        page.notice("No decision stands on a pair of this run, so both sets of labels are the same.")
        return
    _numbers(found)
    if not found.changed:
        page.notice("Every decision says what the consensus says: no number can move.")
        return
    shown = words(flows, asked, found.moved)
    _moved(found, shown, dataset, labelling, asked)


def _numbers(found: DecisionEffect) -> None:
    safe.heading(_title(found))
    last = max(found.consensus.violation)
    measures = dict.fromkeys((1, found.n, last))
    rows = [(f"Violation@{n}", found.consensus.violation[n], found.decisions.violation[n]) for n in measures] + [
        ("Completeness", found.consensus.completeness, found.decisions.completeness)
    ]
    cells = [
        [tag("td", name), *(tag("td", _share(value), cls="ci-number") for value in (old, new)), _difference(new - old)]
        for name, old, new in rows
    ]
    cells.append(
        [
            tag("td", "Retained contexts of profiles"),
            tag("td", tables.count(found.consensus.retained), cls="ci-number"),
            tag("td", tables.count(found.decisions.retained), cls="ci-number"),
            tag("td", f"{found.decisions.retained - found.consensus.retained:+,}", cls="ci-number"),
        ]
    )
    heads = [tag("th", ""), count_head("Consensus alone"), count_head("With decisions"), count_head("Difference")]
    safe.show(grid(heads, cells))


def _title(found: DecisionEffect) -> str:
    moved = found.decisions.violation[found.n] - found.consensus.violation[found.n]
    pairs = f"{tables.count(found.decided)} decided pairs, {tables.count(found.changed)} against the consensus"
    if moved != moved:
        return f"{pairs}: one of the two sets of labels leaves Violation@{found.n} undefined"
    if abs(moved) < 5e-5:
        return f"{pairs}: Violation@{found.n} stays where it is"
    return f"{pairs}: Violation@{found.n} {'rises' if moved > 0 else 'falls'} by {100 * abs(moved):.1f} points"


def _share(value: float) -> str:
    return tables.percent(value) or "undefined: no retained context"


def _difference(value: float) -> safe.Html:
    return tag("td", "" if value != value else f"{100 * value:+.1f} points", cls="ci-number")


def _moved(
    found: DecisionEffect, frame: pd.DataFrame, dataset: DatasetRow, labelling: LabellingRow | None, asked: Scope
) -> None:
    safe.heading("The pairs that moved them most")
    shown = frame.head(MOST_ROWS)
    picked = tables.table(
        shown.assign(
            domain=shown["domain"].str.replace("_", " "),
            violation=[_points(value) for value in shown["violation"]],
            completeness=[_points(value) for value in shown["completeness"]],
            consensus=[word or "no vote" for word in shown["consensus"]],
        ),
        key=f"agreement.moved.{asked.run.id}.{found.n}",
        columns={
            "violation": ("text", "Violation"),
            "completeness": ("text", "Completeness"),
            "consensus": ("text", "Consensus"),
            "decision": ("text", "Decision"),
            **PAIR_COLUMNS,
        },
        on_select="row",
        alt="Decided pairs by how far they move the numbers of the run, most first",
    )
    first = f"The first {MOST_ROWS} are shown; the download has all. " if len(frame) > MOST_ROWS else ""
    safe.inline(
        f"{first}By how many points Violation@{found.n} and completeness are higher than if this pair alone had the "
        "label of the consensus, all other decisions kept; these do not add up. Choose a row to see its votes.",
        muted=True,
    )
    marked = frame.assign(run=asked.run.id, n=found.n, simulated=", ".join(asked.simulated))
    tables.csv_button(marked, f"decisions-{asked.run.id}.csv", key="agreement.csv.moved")
    if picked is not None and labelling is not None:
        go_to_pair(dataset, labelling, shown.iloc[picked])


def _points(value: float) -> str:
    return "undefined without it" if value != value else f"{100 * value:+.3f}"

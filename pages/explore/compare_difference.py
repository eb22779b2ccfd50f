"""Part of the Compare page: runs compared with a reference, in sentences, by domain, and flow by flow."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import streamlit as st

from cimemories.answer import Column, Table
from cimemories.charts.comparison import domains
from cimemories.compare.difference import FLOWS, NEWLY, STOPPED, Difference, difference, overview, paired_on_common
from cimemories.flows.scope import Scope
from cimemories.store.engine import StoreError
from cimemories.ui import answers, exports, page, safe, url
from pages.explore import compare_scope
from pages.explore.compare_scope import Compared, SetTakeaway, show
from pages.explore.run_scope import counting

ROWS_SHOWN = 2000


def draw(compared: Compared, set_takeaway: SetTakeaway) -> None:
    """Draw the differences."""
    run_names = compared.run_names
    if len(compared.scopes) < 2:
        set_takeaway("A difference takes two runs of one dataset.")
        page.empty(
            "One run alone",
            "A difference takes two runs of one dataset. Choose another above, or start one.",
            lambda: url.page_link("runs", "New run", icon=":material/play_circle:", tab="new"),
        )
        return
    ids = [line.run.id for line in compared.board.lines]
    left, right = st.columns(2)
    with left:
        first = str(page.select("Reference run", ids, run_names.__getitem__, "compare.against", "against"))
    others = [run_id for run_id in ids if run_id != first]
    from_url = url.get("run")
    # A run is not compared with itself: the run chosen as the reference cannot be the other.
    if from_url in (None, first):
        url.replace(run=None)
    with right:
        second = str(page.select("Compared run", others, run_names.__getitem__, "compare.run", "run"))
    reference, scope = compared.scope_of(first), compared.scope_of(second)
    try:
        with counting():
            # Beside all others, each is one of several comparisons.
            beside = [
                paired_on_common(compared.flows, reference, compared.scope_of(run), compared.rule)
                for run in others
                if run != second
            ]
            result = difference(compared.flows, reference, scope, compared.rule, beside=beside, run_names=run_names)
    except StoreError as problem:
        page.error("The difference cannot be shown.", str(problem))
        set_takeaway("These runs cannot be compared.")
        return
    set_takeaway(result.words[0])
    # The basis: these two runs, whatever else is chosen, at the n of both.
    about = compared.about(reference, scope, n=result.n) | {"first": first, "second": second}
    if result.changes.frame[["inappropriate_flows", "necessary_flows"]].any(axis=None):
        compare_scope.differences(compared, (reference, scope))
        for text in result.words[1:]:  # the first is the page's takeaway
            safe.inline(text, strong=True)
        answers.show(replace(result, sentence=""), "compare.difference", about, without=("domains", "flows"))
    else:
        page.empty(
            "Nothing in common",
            "No flow is judged in both runs: they cover other profiles or contexts, the dataset has no labels, or no "
            "context has both a necessary and an inappropriate fact.",
            lambda: url.page_link("runs", "See the runs", icon=":material/play_circle:", run=second),
        )
    if len(others) > 1:
        page.fold(
            "Every other run against the reference",
            ":material/table_rows:",
            "compare.box.overview",
            lambda: _overview(compared, first, others, second),
        )
    drawing = domains(result)
    if drawing is not None:
        show(
            drawing,
            "domains",
            "compare.box.domains",
            compared,
            simulated=result.simulated,
            about=about | {"difference": "second minus first"},
        )
    if result.changes.frame["inappropriate_flows"].any():
        _flows(result, about)


def _overview(compared: Compared, first: str, others: list[str], second: str) -> None:
    """Draw every other run against the reference, in words by tests over all of them; a click chooses it."""
    scopes = [compared.scope_of(run) for run in others]
    every = overview(compared.flows, compared.scope_of(first), scopes, compared.rule, compared.run_names)
    picked = answers.twin(
        replace(every, frame=every.frame.set_index("run", drop=False)),
        f"compare.overview.{first}",
        on_select="row",
        selected=others.index(second),
        height="content" if len(others) <= 12 else "auto",
    )
    if picked is not None and others[picked] != second:
        url.put(run=others[picked])
        st.rerun()


def _flows(result: Difference, about: dict[str, object]) -> None:
    """Draw the flows that newly leak and that stopped leaking; a click leads to the messages."""
    frame = result.flows.frame
    safe.heading(result.changes.caption)
    if frame.empty:
        page.notice("Every inappropriate flow that both have judged leaks in both or in neither.")
        return
    first, second = result.names
    safe.inline(
        f"From {first} to {second}: revealed in no sample of the one, in at least one of the other.",
        muted=True,
    )
    counts = result.changes.frame.iloc[0]
    there = NEWLY if counts["newly"] else STOPPED
    chosen = page.choice("Flows", {NEWLY: NEWLY, STOPPED: STOPPED}, "compare.change", "change", default=there)
    part = frame[frame["change"] == chosen]
    if part.empty:
        page.notice("There are none.")
        return
    shown = part.head(ROWS_SHOWN).assign(
        before=[f"{r} of {n}" for r, n in zip(part["first_reveals"], part["first_draws"], strict=True)][:ROWS_SHOWN],
        after=[f"{r} of {n}" for r, n in zip(part["second_reveals"], part["second_draws"], strict=True)][:ROWS_SHOWN],
    )
    # The table tells its rows apart by the index: a pair is an attribute in a context.
    shown.index = pd.Index([f"{a}.{c}" for a, c in zip(shown["attribute"], shown["context"], strict=True)])
    if len(part) > ROWS_SHOWN:
        of = counts["newly" if chosen == NEWLY else "stopped"]
        exported = "all" if of == len(part) else f"the {len(part):,} most revealed"
        safe.inline(f"The {ROWS_SHOWN:,} most revealed of {of:,}; the export has {exported}.", muted=True)
    columns = {"before": Column("text", "In the reference"), "after": Column("text", "In the other")}
    columns |= {name: FLOWS[name] for name in ("domain", "key", "statement", "recipient", "user")}
    picked = answers.twin(
        Table(shown, columns, "Flows that changed between the two runs, the most revealed first"),
        f"compare.flows.{result.first.run.id}.{result.second.run.id}.{chosen}",
        on_select="row",
        height=320,
    )
    safe.inline("Choose a row to read the messages.", muted=True)
    exports.buttons("changed-flows", frame, fig=None, key="compare.changed", simulated=result.simulated, about=about)
    if picked is not None:
        row = shown.iloc[picked]
        # To the run that leaks it: the other has nothing to mark.
        leaking: Scope = result.second if chosen == NEWLY else result.first
        url.go(
            "leaks",
            run=leaking.run.id,
            profile=int(row["profile"]),
            context=int(row["context"]),
            attribute=int(row["attribute"]),
        )

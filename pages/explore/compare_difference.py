"""Part of the Compare page: runs compared with one of them, in sentences, by domain, and flow by flow."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import streamlit as st

from cimemories.charts.comparison import domains
from cimemories.compare.difference import NEWLY, STOPPED, Difference, difference, paired_on_common
from cimemories.flows.scope import Scope
from cimemories.metrics import sentences
from cimemories.metrics.intervals import Paired
from cimemories.store.engine import StoreError
from cimemories.text import count, simulated_text
from cimemories.ui import exports, page, safe, tables, url
from pages.explore import compare_scope
from pages.explore.compare_scope import Columns, Compared, SetTakeaway, show
from pages.explore.run_scope import counting

ROWS_SHOWN = 2000


def draw(compared: Compared, set_takeaway: SetTakeaway) -> None:
    """The differences."""
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
    # A run is not compared with itself: the one chosen as the reference is no longer the other.
    if from_url in (None, first):
        url.replace(run=None)
    with right:
        second = str(page.select("Compared run", others, run_names.__getitem__, "compare.run", "run"))
    try:
        scopes = compared.scope_of(first), compared.scope_of(second)
        with counting(compared.flows, *scopes):
            result = difference(compared.flows, *scopes, compared.rule)
    except StoreError as problem:
        page.error("The difference cannot be shown.", str(problem))
        set_takeaway("These runs cannot be compared.")
        return
    # Read beside all others, each is one of so many comparisons.
    with counting(compared.flows, *scopes):
        result = _among(compared, first, others, result)
    set_takeaway(result.sentences(run_names[first], run_names[second])[0])
    _summary(compared, result, run_names[first], run_names[second])
    if len(others) > 1:
        page.fold(
            "Every other run against the reference",
            ":material/table_rows:",
            "compare.box.overview",
            lambda: _overview(compared, first, others, second),
        )
    drawing = domains(result, run_names[first], run_names[second])
    if drawing is not None:
        columns: Columns = {
            "domain": ("text", "Domain"),
            "violation": ("percent", "Violation"),
            "violation_low": ("percent", "from"),
            "violation_high": ("percent", "to"),
            "violation_p": ("number", "p (Holm)"),
            "attributes": ("count", "Attributes"),
            "completeness": ("percent", "Completeness"),
            "completeness_low": ("percent", "lowest"),
            "completeness_high": ("percent", "highest"),
            "completeness_p": ("number", "p of completeness (Holm)"),
            "necessary_flows": ("count", "Necessary flows"),
        }
        about = _about(compared, result) | {"difference": "second minus first"}
        show(drawing, "domains", "compare.box.domains", compared, columns, simulated=result.simulated, about=about)
    _flows(compared, result, run_names[first], run_names[second])


def _about(compared: Compared, result: Difference) -> dict[str, object]:
    """What a difference rests on, for exports: these two runs, whatever else is chosen, at the n of both."""
    of_both = compared.about(result.first, result.second, n=result.paired.n)
    return of_both | {"first": result.first.run.id, "second": result.second.run.id}


def _among(compared: Compared, first: str, others: list[str], result: Difference) -> Difference:
    """The difference with its p adjusted for all runs that are compared with the reference."""
    every = _paired(compared, first, others)
    at = others.index(result.second.run.id)
    tests = (sentences.family([getattr(item, name) for item in every])[at] for name in ("violation", "completeness"))
    violation, completeness = tests
    return replace(result, adjusted=(violation, completeness))


def _paired(compared: Compared, first: str, others: list[str]) -> list[Paired]:
    reference = compared.scope_of(first)
    return [paired_on_common(compared.flows, reference, compared.scope_of(run), compared.rule) for run in others]


def _summary(compared: Compared, result: Difference, first: str, second: str) -> None:
    """Both sentences, what they rest on, and what limits them."""
    tallied, paired = result.tallied, result.paired
    if not tallied.flows and not result.necessary:
        page.empty(
            "Nothing in common",
            "No flow is judged in both runs: they cover other profiles or contexts, or the dataset has no labels.",
            lambda: url.page_link("runs", "See the runs", icon=":material/play_circle:", run=result.second.run.id),
        )
        return
    compare_scope.differences(compared, (result.first, result.second))
    for text in result.sentences(first, second):
        safe.inline(text, strong=True)
    if corrected := result.corrected_sentence(first, second):
        safe.inline(corrected)
    on = sentences.on_common_flows(paired, tallied.flows, result.necessary)
    leaking = f"{count(tallied.both)} leak in both, {count(tallied.neither)} in neither"
    safe.inline(f"{on}. Of the inappropriate ones {leaking}.", muted=True)
    if floor := sentences.noise_floor(result.noise, paired.n):
        safe.inline(f"{floor}.", muted=True)
    if paired.violation.users and paired.violation.speaks_for == "attributes":
        page.notice(
            f"With so few common profiles ({paired.violation.users}) the interval describes attributes, not users."
        )


def _overview(compared: Compared, first: str, others: list[str], second: str) -> None:
    """Every other run against the reference, in words by tests over all of them; a click chooses it."""
    rows = []
    every = _paired(compared, first, others)
    violation = sentences.family([paired.violation for paired in every])
    completeness = sentences.family([paired.completeness for paired in every])
    for run_id, paired, leaks, conveys in zip(others, every, violation, completeness, strict=True):
        rows.append(
            {
                "run": compared.run_names[run_id],
                "violation": sentences.signed(paired.violation),
                "clear": sentences.difference_short(leaks, "leaks"),
                "completeness": sentences.signed(paired.completeness),
                "clear_too": sentences.difference_short(conveys, "conveys"),
                "n": paired.n,
                "profiles": paired.profiles,
                "kind": simulated_text(compared.scope_of(run_id).simulated),
            }
        )
    picked = tables.table(
        pd.DataFrame(rows, index=pd.Index(others)),
        key=f"compare.overview.{first}",
        columns={
            "run": ("text", "Run"),
            "kind": ("small", "Kind"),
            "violation": ("text", "Violation, points"),
            "clear": ("text", "Leaks more or less"),
            "completeness": ("text", "Completeness, points"),
            "clear_too": ("text", "Conveys more or less"),
            "n": ("number", "n"),
            "profiles": ("number", "Common profiles"),
        },
        on_select="row",
        selected=others.index(second),
        height="content" if len(others) <= 12 else "auto",
        alt="All runs compared with the reference run",
    )
    if picked is not None and others[picked] != second:
        url.put(run=others[picked])
        st.rerun()


def _flows(compared: Compared, result: Difference, first: str, second: str) -> None:
    """Flows that newly leak and that stopped leaking; a click leads to the messages."""
    frame = result.flows
    tallied = result.tallied
    safe.heading(sentences.changed_flows(tallied))
    if frame.empty:
        page.notice("Every inappropriate flow that both have judged leaks in both or in neither.")
        return
    safe.inline(
        f"From {first} to {second}: revealed in no sample of the one, in at least one of the other.",
        muted=True,
    )
    there = NEWLY if tallied.newly else STOPPED
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
        of = tallied.newly if chosen == NEWLY else tallied.stopped
        exported = "all" if of == len(part) else f"the {len(part):,} most revealed"
        safe.inline(f"The {ROWS_SHOWN:,} most revealed of {of:,}; the export has {exported}.", muted=True)
    picked = tables.table(
        shown,
        key=f"compare.flows.{result.first.run.id}.{result.second.run.id}.{chosen}",
        columns={
            "before": ("text", "In the reference"),
            "after": ("text", "In the other"),
            "domain": ("text", "Domain"),
            "key": ("text", "Attribute"),
            "statement": ("wide", "Memory statement"),
            "recipient": ("text", "Recipient"),
            "user": ("text", "Profile"),
        },
        on_select="row",
        height=320,
        alt="Flows that changed between the two runs, the most revealed first",
    )
    safe.inline("Choose a row to read the messages.", muted=True)
    about = _about(compared, result)
    exports.buttons("changed-flows", frame, fig=None, key="compare.changed", simulated=result.simulated, about=about)
    if picked is not None:
        row = shown.iloc[picked]
        # To the run in which it leaks: the other has nothing to mark.
        leaking: Scope = result.second if chosen == NEWLY else result.first
        url.go(
            "leaks",
            run=leaking.run.id,
            profile=int(row["profile"]),
            context=int(row["context"]),
            attribute=int(row["attribute"]),
        )

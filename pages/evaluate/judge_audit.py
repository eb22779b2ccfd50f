"""Judge audit: people say what messages reveal, and from that how far the judges of a run are right."""

from __future__ import annotations

import streamlit as st

from cimemories.agreement import judge_audit
from cimemories.flows import catalogue
from cimemories.flows.flows import shared_flows
from cimemories.flows.scope import Scope, resolve_scope
from cimemories.store.audits import SliceRow
from cimemories.store.engine import Store, StoreError, shared_store
from cimemories.store.judgements import JudgeRow
from cimemories.store.runs import RunRow
from cimemories.text import count
from cimemories.ui import annotator, page, safe
from pages.evaluate import judge_audit_results, judge_audit_work
from pages.evaluate.judge_audit_results import judge_text

TITLE = "Judge audit"


def _run(rows: list[RunRow]) -> str:
    by_id = {row.id: row for row in reversed(rows)}
    chosen = page.select("Run", list(by_id), lambda i: f"{by_id[i].name} ({i})", "judge_audit.run", "run")
    return str(chosen)


def _judge(store: Store, run_id: str) -> JudgeRow | None:
    judges = {judge.id: judge for judge in catalogue.judges_of(store, run_id)}
    chosen = page.select(
        "Judge",
        list(judges),
        lambda i: judge_text(judges[i]),
        "judge_audit.judge",
        "judge",
        help="Whose claims are sampled and shown. Figures cover every judge of the run.",
    )
    return judges.get(chosen) if chosen is not None else None


def _slice(rows: list[SliceRow]) -> SliceRow | None:
    by_id = {row.id: row for row in rows}
    chosen = page.select("Slice", list(by_id), lambda i: f"{by_id[i].name}", "judge_audit.slice", "slice")
    return by_id.get(chosen) if chosen is not None else None


def _simulated(scope: Scope) -> bool:
    return bool(scope.simulated) or scope.judge.simulated


def main() -> None:
    store = shared_store()
    rows = catalogue.all_runs(store)
    if not rows:
        why = "In an audit, people say what messages reveal, and judges are compared with them. It needs a run."
        page.no_runs(TITLE, "Nothing has been judged yet", why)
        return
    top = st.container()
    bar = st.columns([4, 3, 4, 2], vertical_alignment="bottom")
    with bar[0]:
        run_id = _run(rows)
    with bar[1]:
        judge = _judge(store, run_id)
    if judge is None:
        with top:
            page.head(TITLE, "This run has no judge.")
        return
    try:
        with bar[3]:
            me = annotator.ask()
        scope = resolve_scope(store, run_id, judge_id=judge.id)
        slices = judge_audit.of_run(shared_flows(store), scope)
        with bar[2]:
            chosen = _slice(slices)
        takeaway = _body(store, scope, chosen, me)
        judge_audit_results.draw_agreement(shared_flows(store), scope)
    except StoreError as problem:
        with top:
            page.head(TITLE, "This cannot be shown.")
        page.error("The audit cannot be shown.", str(problem))
        return
    with top:
        page.head(TITLE, takeaway, simulated=_simulated(scope))


def _body(store: Store, scope: Scope, chosen: SliceRow | None, me: str) -> str:
    """Everything below the scope bar; returns the page's takeaway."""
    if chosen is None:
        safe.heading("Sample a slice of the judge's answers")
        judge_audit_work.draw_slice_form(store, scope, me)
        return f"{scope.run.name}: nobody has audited {judge_text(scope.judge)} yet. Sample a slice to begin."
    page.fold(
        "Sample another slice",
        ":material/casino:",
        "judge_audit.box.draw",
        lambda: judge_audit_work.draw_slice_form(store, scope, me),
    )
    flows = shared_flows(store)
    audit = judge_audit.judge_audit(flows, scope, chosen.id)
    if me:
        judge_audit_work.draw(store, scope, chosen, me, audit.audited)
    else:
        page.notice("Enter your name above to give verdicts. The figures so far are below.")
    if not audit.audited:
        page.notice("No item of this slice has been audited yet, so there are no figures.")
        return f"{scope.run.name}: none of {count(chosen.items)} items is audited yet."
    return judge_audit_results.draw(flows, scope, audit)


main()

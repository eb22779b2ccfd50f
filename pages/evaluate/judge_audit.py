"""Judge audit: people say what messages reveal, which shows how far the judges of a run are right."""

from __future__ import annotations

from itertools import chain

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cimemories import extras
from cimemories.agreement import judge_audit
from cimemories.answers.judges import judge_text
from cimemories.desk.audit import AuditDesk
from cimemories.flows import catalogue
from cimemories.flows.flows import shared_flows
from cimemories.flows.scope import Scope, resolve_scope
from cimemories.review.assignments import assignment_of
from cimemories.review.sampling import (
    ASSUMED,
    CLAIMED,
    NOT_REVEALED,
    AuditPlan,
    AuditPopulation,
    audit_plan,
    draw_audit_slice,
)
from cimemories.review.sampling import audit_population as population_of
from cimemories.store.audits import ATTRIBUTES, JUDGEMENTS, SliceRow
from cimemories.store.engine import Store, StoreError, shared_store
from cimemories.store.judgements import JudgeRow
from cimemories.text import count, exact_percent, percent
from cimemories.ui import annotator, once, page, safe, tables, url
from pages.evaluate import judge_audit_queue, judge_audit_results

TITLE = "Judge audit"


def _judge(store: Store, run_id: str, above: DeltaGenerator) -> JudgeRow | None:
    judges = {judge.id: judge for judge in catalogue.judges_of(store, run_id)}
    chosen = page.select(
        "Judge",
        list(judges),
        lambda i: judge_text(judges[i]),
        "judge_audit.judge",
        "judge",
        help="Whose claims are sampled and shown. Figures cover every judge of the run.",
        above=above,
    )
    return judges.get(chosen) if chosen is not None else None


def _slice(rows: list[SliceRow], above: DeltaGenerator) -> SliceRow | None:
    by_id = {row.id: row for row in rows}
    chosen = page.select("Slice", list(by_id), lambda i: f"{by_id[i].name}", "judge_audit.slice", "slice", above=above)
    return by_id.get(chosen) if chosen is not None else None


def main() -> None:
    store = shared_store()
    rows = catalogue.all_runs(store)
    if not rows:
        why = "In an audit, people say what messages reveal, and judges are compared with them. It needs a run."
        page.no_runs(TITLE, "Nothing has been judged yet", why)
        return
    top = st.container()
    # Folded to one line, so that the question and the first message are visible on any screen.
    box, above = st.popover("Run, judge and slice", icon=":material/tune:"), st.container()
    with box:
        by_id = {row.id: row for row in reversed(rows)}
        run_id = str(
            page.select("Run", list(by_id), lambda i: f"{by_id[i].name} ({i})", "judge_audit.run", "run", above=above)
        )
        judge = _judge(store, run_id, above)
    if judge is None:
        with top:
            page.head(TITLE, "This run has no judge.")
        return
    try:
        scope = resolve_scope(store, run_id, judge_id=judge.id)
        of_kinds = (judge_audit.of_run(shared_flows(store), scope, kind) for kind in (JUDGEMENTS, ATTRIBUTES))
        slices = sorted(chain(*of_kinds), key=lambda row: -row.id)
        with box:
            chosen = _slice(slices, above)
        takeaway, blind = _body(store, scope, chosen)
        if not blind:
            judge_audit_results.draw_agreement(shared_flows(store), scope)
    except StoreError as problem:
        with top:
            page.head(TITLE, "This cannot be shown.")
        page.error("The audit cannot be shown.", str(problem))
        return
    with top:
        page.head(TITLE, takeaway, simulated=scope.simulated or scope.judge.simulated)


def _body(store: Store, scope: Scope, chosen: SliceRow | None) -> tuple[str, bool]:
    """Draw the part below the controls. Returns the page's takeaway, and True if the user answers blind, so that
    judges' claims must stay hidden."""
    named = store.read_only or annotator.begin()
    me = annotator.name()
    if chosen is None:
        safe.heading("Sample a slice of the judge's answers")
        _new_slice(store, scope, me)
        what = "Check here what a judge says messages reveal."
        return f"{what} {judge_text(scope.judge)} of {scope.run.name} is not checked yet.", False
    flows = shared_flows(store)
    desk = AuditDesk(store, scope, chosen, me, assignment_of(store, chosen.id))
    # Answers are blind only if the user does not know how right the judge has been so far.
    left = judge_audit_queue.progress(desk) if named else None
    if named:
        judge_audit_queue.draw(desk, hidden=left is not None)
    page.fold(
        "Sample another slice",
        ":material/casino:",
        "judge_audit.box.draw",
        lambda: _new_slice(store, scope, me),
    )
    url.page_link(
        "team", "Assign slices", icon=":material/assignment_ind:", tab="assignments", dataset=scope.run.dataset
    )
    if left is not None:
        safe.inline(
            "The judge's figures show once you have answered the slice. To see them now, press b: your answers from "
            "then on are not blind.",
            muted=True,
        )
        return left, True
    if chosen.kind != JUDGEMENTS:
        place = extras.panels("judge_audit").get(chosen.kind)
        if place is None:
            page.notice("The figures of this slice are those of an extra that is not here. Its verdicts are recorded.")
            return f"{scope.run.name}: {chosen.name}.", False
        return extras.load(place).draw(flows, scope, chosen), False
    audit = judge_audit.judge_audit(flows, scope, chosen.id)
    if not audit.audited:
        page.notice("No item of this slice has been audited yet, so there are no figures.")
        return f"{scope.run.name}: none of {count(chosen.items, 'item')} is audited yet.", False
    return judge_audit_results.draw(flows, scope, audit), False


# ---- a new slice, and what it would show


SIZE, MOST = 200, 5000
UNITS_HELP = "Judgements give precision, recall and the corrected leak rate; whole attributes correct Violation@n."


def _new_slice(store: Store, scope: Scope, me: str) -> None:
    of_extras = {name: extras.load(place) for name, place in extras.panels("judge_audit").items()}
    units = {"items": "Single judgements"} | {name: kind.TITLE for name, kind in of_extras.items()}
    unit = page.choice("Audit", units, "judge_audit.unit", "unit", default="items", help=UNITS_HELP)
    if unit in of_extras:
        of_extras[unit].slice_form(shared_flows(store), scope, me)
    else:
        _slice_form(store, scope, me)


def _slice_form(store: Store, scope: Scope, me: str) -> None:
    """Draw the form of a slice of judgements, and the button that samples it."""
    flows = shared_flows(store)
    with st.spinner("Counting what can be sampled", show_time=True):
        population = population_of(flows, scope)
    if not population.items:
        page.notice("This judge has not judged any message of this run yet.")
        return
    left, middle, right, button = st.columns([2, 3, 2, 2], vertical_alignment="bottom")
    most = min(MOST, population.items)
    with left:
        size = int(st.number_input("Items", 1, most, min(SIZE, most), key=f"judge_audit.size.{scope.run.id}"))
    with middle:
        share = st.slider(
            "Share of claimed reveals (%)",
            0,
            100,
            round(100 * CLAIMED),
            5,
            key="judge_audit.share",
            help="Claims are rare, so they are oversampled; weights correct for it.",
        )
    with right:
        seed = int(st.number_input("Seed", 0, 999_999, 1, key="judge_audit.seed"))
    spread = audit_plan(population, size, share / 100)
    safe.inline(_sample_text(population, spread))
    page.fold("Strata", ":material/table:", "judge_audit.box.strata", lambda: _strata(scope, population, spread))

    def make() -> int:
        name = f"{count(size, 'item')}, {share} % claims, seed {seed} ({scope.run.id}, judge {scope.judge.id})"
        return draw_audit_slice(flows, scope, size=size, seed=seed, claimed=share / 100, name=name, annotator=me)

    if not me:
        safe.inline("Enter your name first.", muted=True)
    with page.Reporting("The slice was not created.", StoreError), button:
        once.button(
            "Sample the slice",
            make,
            lambda new: url.put(slice=new),
            key="judge_audit.make",
            type="primary",
            disabled=not me,
        )


def _sample_text(population: AuditPopulation, spread: AuditPlan) -> str:
    """Describe the sample, and the intervals that it would give."""
    claims = sum(n for (claim, _), n in spread.sampled.items() if claim != NOT_REVEALED)
    text = (
        f"The judge decided {count(population.items)} times whether a message reveals a fact. It claimed a reveal "
        f"{count(population.claimed)} times ({percent(population.claimed / population.items)}). A sample of "
        f"{count(spread.items)} takes {count(claims, 'claim')} and {count(spread.items - claims, 'other')}. "
    )
    if spread.precision is None:
        return text + "Without a full claim in it, it says nothing about precision."
    right, points = exact_percent(ASSUMED), f"±{100 * spread.precision:.0f} points"
    text += f"If the judge is right in {right}, it gives precision to {points}"
    if spread.recall is None:
        return f"{text}; without a non-claim in it, it says nothing about recall."
    many = " (too wide to say much)" if spread.recall > 0.4 else ""
    return f"{text} and recall to ±{100 * spread.recall:.0f} points{many}."


def _strata(scope: Scope, population: AuditPopulation, spread: AuditPlan) -> None:
    simulated = bool(scope.simulated) or scope.judge.simulated
    frame = pd.DataFrame(
        [
            {"claim": claim, "label": label, "size": population.sizes[claim, label], "drawn": n}
            | {"weight": population.sizes[claim, label] / n if n else None, "simulated": simulated}
            for (claim, label), n in spread.sampled.items()
        ]
    )
    tables.table(
        frame,
        key="judge_audit.strata",
        columns={
            "claim": ("text", "The judge says"),
            "label": ("text", "Label of the pair"),
            "size": ("count", "In the run"),
            "drawn": ("count", "Sampled"),
            "weight": ("count", "Each stands for"),
        },
        height="content",
        alt="Strata of the sample: how many items of the run each has, and how many are sampled",
    )
    safe.inline(
        "Within a stratum, domains are sampled in proportion to their size. Biographical attributes are left out: a "
        "message has to be signed.",
        muted=True,
    )
    tables.csv_button(frame, f"audit-strata-{scope.run.id}.csv", key="judge_audit.csv.strata")


main()

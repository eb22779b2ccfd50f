"""The cost of a run, by its planned calls, and its power, by a pilot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import streamlit as st

from cimemories.answer import Column, Table
from cimemories.answers.power import power
from cimemories.compare.sweeps import first_pilot
from cimemories.evaluation.estimates import Estimate
from cimemories.evaluation.prices import Prices, money
from cimemories.evaluation.spec import RunSpec
from cimemories.flows.flows import shared_flows
from cimemories.flows.scope import resolve_scope
from cimemories.llm.endpoint import SIMULATOR, EndpointError
from cimemories.metrics import sentences
from cimemories.metrics.power import pilot_runs
from cimemories.seeds.reading import SeedError
from cimemories.simulator.policy import SimulatorError
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.text import duration, sentence
from cimemories.ui import answers, page, safe, tables
from cimemories.ui.annotator import Draft
from pages.evaluate.run_settings import draw_field

POWER_ROWS = ("this plan", "twice the profiles", "twice the samples")
SIZE_COLUMNS = ("profiles", "contexts", "samples")  # part of the rows' names


def show(estimated: Estimate) -> None:
    """Draw calls by stage, then cost and time, then the assumptions."""
    seconds = estimated.seconds
    if not estimated.requests:
        time = "none: everything is already recorded"
    elif seconds is None:
        time = "unknown: no call of some kind is recorded yet"
    else:
        time = f"about {duration(seconds)}, with {estimated.concurrency} requests at once"
    tables.grid(estimated.table, "Calls and cost")
    safe.show(
        safe.facts(
            [
                (f"{estimated.counts[1]}s".capitalize(), estimated.size_text),
                ("Cost", estimated.cost_text),
                ("Time", time),
            ]
        )
    )
    for text in filter(None, (*estimated.misfits, estimated.warning, *estimated.unreachable)):
        page.notice(sentence(text))
    if estimated.cap_note:
        safe.inline(sentence(estimated.cap_note), muted=True)
    if estimated.assumptions and estimated.requests:
        assumptions = safe.lines(map(sentence, estimated.assumptions), "ci-point")
        safe.show(safe.tag("div", "Assumptions:", assumptions, cls="ci-muted"))
    safe.inline("You can pause, cancel and resume it at any time.", muted=True)


def draw_plan(key: str, of: object, estimate: Callable[[], Estimate]) -> bool:
    """Draw the button that shows a plan, and the plan for as long as the fields (`of`) stay the same. Returns whether
    to send what does not fit all the same."""
    if st.button("Show the plan", icon=":material/calculate:", key=f"{key}.show"):
        wrong = page.Reporting("This cannot be planned yet.", EndpointError, StoreError, SeedError, SimulatorError)
        with wrong, st.spinner("Counting calls"):
            st.session_state[f"{key}.plan"] = (of, estimate())
    planned, estimated = st.session_state.get(f"{key}.plan", (None, None))
    if estimated is None or planned != of:
        return False
    show(estimated)
    return allow_too_long(key, estimated)


def allow_too_long(key: str, estimated: Estimate) -> bool:
    """Draw the switch for sending what does not fit, if anything does not; returns whether it is on."""
    help = "Such a request is refused by most servers, and counts as missing."
    return bool(estimated.misfits) and st.toggle("Send also what does not fit", key=f"{key}.too_long", help=help)


# ---- prices


PER = "In the currency below"
PRICES = {
    "prompt": "Prompt per million tokens",
    "cached": "Cached per million tokens",
    "completion": "Completion per million tokens",
}


def prices(draft: Draft, field: str) -> Prices | None:
    """Return the entered prices of one model, or None. Cached tokens without a price cost as much as others."""
    given = {name: draft.get(f"price.{field}.{name}") for name in PRICES}
    if all(value is None for value in given.values()):
        return None
    prompt, completion = float(given["prompt"] or 0), float(given["completion"] or 0)
    cached = prompt if given["cached"] is None else float(given["cached"])
    text = f"{prompt}/{cached}/{completion} {str(draft.get('currency') or '').strip()}"
    return Prices.read(text)


def draw_prices(draft: Draft, models: Sequence[tuple[str, str]]) -> None:
    """Draw the prices of models, the currency and the cap. models: the field of each and its title."""
    # Its fields exist only while it is open; entries stay in the draft.
    key = f"{draft.name}.box.prices"
    box = st.expander("Prices and cap", icon=":material/payments:", key=key, on_change="rerun")
    if not box.open:
        return
    with box:
        safe.inline(
            "What you pay per million tokens. Without prices the cost is unknown. Leave them empty for a local server.",
            muted=True,
        )
        for field, name in models:
            title, *columns = st.columns([3, 2, 2, 2], vertical_alignment="bottom")
            with title:
                safe.inline(name)
            for column, (part, label) in zip(columns, PRICES.items(), strict=True):
                with column:
                    draft.optional(
                        label, f"price.{field}.{part}", None, 0.0, placeholder="none", format="%.4g", help=PER
                    )
        one, two, _ = st.columns([2, 2, 5])
        with one:
            draft.text("Currency", "currency", placeholder="USD", help="Display only")
        with two:
            draw_field(draft, RunSpec.described()["cap"])


def draw_power(store: Store, draft: Draft, spec: RunSpec, dataset: DatasetRow, estimated: Estimate) -> None:
    """Draw which differences a comparison with this run can detect, by a pilot, and the gain of more profiles or
    samples."""
    safe.heading("What it can show")
    flows, simulated = shared_flows(store), spec.base_url == SIMULATOR
    rows = {row.id: row for row in pilot_runs(store, dataset.id, spec.memory, simulated=simulated)}
    if not rows:
        safe.inline(sentences.NO_PILOT, muted=True)
        return
    usual = first_pilot(flows, rows.values())
    with st.columns([2, 1])[0]:
        chosen_id = draft.select(
            "Pilot run",
            "pilot",
            {run_id: f"{row.name} ({run_id})" for run_id, row in rows.items()},
            usual[0].id if usual else next(iter(rows)),
            help="A judged run of the dataset, for how much profiles, contexts and samples vary",
        )
    try:
        answer = power(
            flows,
            [resolve_scope(store, chosen_id)],
            profiles=spec.profiles or dataset.profiles,
            contexts=spec.contexts or dataset.contexts,
            samples=spec.samples,
            memory=spec.memory,
        )
    except StoreError as problem:
        safe.inline(sentence(problem), muted=True)
        return
    frame = answer.plans.frame
    frame = frame[frame["plan"].isin(POWER_ROWS)]
    most, once_more = estimated.cost_most, estimated.cost_once_more
    larger = None if most is None or once_more is None else most + once_more
    plans = [
        f"{plan} (the dataset has {dataset.profiles:,})" if profiles > dataset.profiles else plan
        for plan, profiles in zip(frame["plan"], frame["profiles"], strict=True)
    ]
    costs = [
        "not known" if cost is None else money(cost, estimated.currency)
        for cost in (most, *[larger] * (len(frame) - 1))
    ]
    columns = {name: column for name, column in answer.plans.columns.items() if name not in SIZE_COLUMNS}
    cost_column = Column("text", "Cost at most", "As if none of what a larger plan adds were recorded")
    shown = Table(frame.assign(plan=plans, cost=costs), columns | {"cost": cost_column}, answer.plans.caption)
    answers.show(replace(answer, plans=shown), "runs.power", {"dataset": dataset.name, "pilot": chosen_id})

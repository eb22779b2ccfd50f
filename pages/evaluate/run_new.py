"""A new run in three steps: the model, the experiment, the plan. What was filled in stays when going back."""

from __future__ import annotations

import streamlit as st

from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store
from cimemories.ui import safe
from cimemories.ui.draft import Draft
from pages.evaluate import run_new_experiment, run_new_model, run_new_plan

MODEL, EXPERIMENT, PLAN = 1, 2, 3
STEPS = {MODEL: "1 Model", EXPERIMENT: "2 Experiment", PLAN: "3 Plan and start"}


def draw(store: Store, data: list[DatasetRow]) -> None:
    """The steps, and the one that stands."""
    draft = Draft("run_new")
    step = _stepper(draft)
    # A place of its own for each step: what another one has drawn is gone at once, not when this one is done.
    places = {number: st.empty() for number in STEPS}
    with places[step].container():
        if step == MODEL:
            ready = run_new_model.draw(store, draft)
        elif step == EXPERIMENT:
            ready = run_new_experiment.draw(store, draft, data)
        else:
            run_new_plan.draw(store, draft)
            ready = ""
        _moves(draft, step, ready)
    draft.keep()


def _stepper(draft: Draft) -> int:
    """Where one is, and the way back; forward leads only the button below, which sees that all is there."""
    step = int(draft.get("step") or MODEL)
    parts: list[safe.Html | str] = []
    for number, title in STEPS.items():
        cls = "ci-chip" if number == step else "ci-chip ci-none"
        parts += [safe.tag("span", safe.tag("b", title) if number == step else title, cls=cls), " "]
    safe.show(safe.tag("div", *parts, cls="ci-line"))
    return step


def _moves(draft: Draft, step: int, ready: str) -> None:
    """Back and forward. ready: what is still missing; empty where nothing is."""
    columns = st.columns([1, 2, 8] if step > MODEL else [2, 9], vertical_alignment="center")
    if step > MODEL:
        with columns[0]:
            if st.button("Back", icon=":material/arrow_back:", key="run_new.back"):
                _go(draft, step - 1)
    if step == PLAN:
        return
    with columns[-2]:
        label = "To the experiment" if step == MODEL else "To the plan"
        if st.button(
            label, type="primary", icon=":material/arrow_forward:", disabled=bool(ready), key=f"run_new.forward.{step}"
        ):
            _go(draft, step + 1)
    with columns[-1]:
        if ready:
            safe.inline(ready, muted=True)


def _go(draft: Draft, step: int) -> None:
    draft.keep()
    draft.put("step", step)
    st.rerun()

"""Parts shared by labelling and generation, which ask a model about a dataset: the form and the progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import streamlit as st

from cimemories import launch
from cimemories.curation.spec import CurationSpec
from cimemories.evaluation.costs import cost_of
from cimemories.evaluation.estimates import Estimate
from cimemories.flows import catalogue
from cimemories.llm.endpoint import DEFAULT_KEY_ENV, SIMULATOR, EndpointError
from cimemories.model import WorkStatus
from cimemories.seeds.reading import SeedError
from cimemories.simulator.policy import SimulatorError
from cimemories.store.engine import Store, StoreError
from cimemories.text import count, listed, sentence
from cimemories.ui import once, page, safe
from cimemories.ui.annotator import Draft
from pages.evaluate.run_detail import raise_and_resume
from pages.evaluate.run_engine import draw_engine, draw_served
from pages.evaluate.run_estimate import draw_plan, draw_prices, prices
from pages.evaluate.run_settings import draw_row, values

BY_MODEL, BY_SERVED, BY_SIMULATOR = "A model", "A model served for it", "The simulator"
WAYS = (BY_MODEL, BY_SERVED, BY_SIMULATOR)


def draw_form(
    store: Store,
    draft: Draft,
    spec: type[CurationSpec],
    how: str,
    *,
    fields: Sequence[str],
    given: Mapping[str, object],
    needed: Mapping[str, object],
    simulated: Sequence[str],
    estimate: Callable[[Any], Estimate],
    plan: Callable[..., str],
    started: Callable[[str], object],
    label: str,
) -> None:
    """Draw the model, the settings of the work, its price, its plan and the button that starts it.

    how: of WAYS. fields: settings that are drawn by their own description. given: other settings; needed: by their
    names, those of them without which nothing can start. simulated: the simulator's models for it. estimate, plan: take
    a `spec`. started: called with the id of the planned work. label: of the button."""
    base_url, key_env = SIMULATOR, DEFAULT_KEY_ENV
    if how == BY_SERVED:
        model, base_url = draw_served(draft)
    elif how == BY_SIMULATOR:
        model = draft.select("Model", "simulated", simulated, help="How it answers is described in docs/simulator.md")
    else:
        draft.key("base_url", "http://localhost:8000/v1")
        draw_row(draft, spec, ("model", "base_url", "api_key_env"))
        # Only the name of a variable: no key passes through the page or the record.
        model, base_url, key_env = (str(draft.get(name)).strip() for name in ("model", "base_url", "api_key_env"))
    simulator = base_url == SIMULATOR
    fields = [name for name in fields if not (simulator and name == "timeout")]  # the simulator answers at once
    draw_row(draft, spec, fields)
    price = None
    if not simulator:
        with page.Reporting("These prices cannot be used.", StoreError):
            draw_prices(draft, [("model", model or "The model")])
            price = prices(draft, "model")
    settings = values(draft, spec, fields) | {
        **given,
        "model": model,
        "base_url": base_url,
        "api_key_env": key_env or DEFAULT_KEY_ENV,
        "prices": price,
        "cap": None if simulator else draft.get("cap") or None,
    }
    engine = draw_engine(store, draft)
    draft.keep()
    lacking = [name for name, value in {**needed, "a model": model, "its base URL": base_url}.items() if not value]
    too_long = not lacking and draw_plan(draft.name, settings, lambda: estimate(spec(**settings)))

    def begin() -> str:
        # Not by disabling the button: it would still be disabled for the click right after the last field was typed.
        if lacking:
            raise StoreError(f"Enter {listed(lacking)} first.")
        if engine is None:
            raise StoreError("The engine cannot be used. Correct it and try again.")
        work_id = plan(spec(**settings), allow_too_long=too_long)
        # If a worker cannot be started the record has the reason, and the page shows it with the work.
        with suppress(StoreError):
            launch.launch(store, work_id, engine)
        return work_id

    with page.Reporting("Nothing was started.", EndpointError, StoreError, SeedError, SimulatorError):
        once.button(
            label,
            begin,
            started,
            key=f"{draft.name}.start",
            type="primary",
            icon=":material/play_arrow:",
            doing="Checking the server",
        )


def draw_running(
    store: Store, work_id: str, status: WorkStatus, done: int, expected: int, text: str, slowed: str | None
) -> None:
    """Draw the progress of work, also in words, what slows it down, and the button that cancels it."""
    bar, button = st.columns([5, 1], vertical_alignment="center")
    with bar:
        st.progress(done / expected if expected else 0.0)
        safe.inline(text, muted=True)
        if slowed:
            page.notice(sentence(slowed))
    with button:
        once.button(
            "Cancel",
            lambda: catalogue.cancel(store, work_id),
            key=f"cancel.{work_id}",
            icon=":material/stop_circle:",
            disabled=status == WorkStatus.CANCELLING,
            width="stretch",
        )


def draw_failures(what: str, failures: Iterable[tuple[object, object, int]]) -> None:
    """Draw the missing items, by (status, cause, number); nothing without any."""
    if causes := [f"{count(n)} {status}{f' ({cause})' if cause else ''}" for status, cause, n in failures]:
        safe.inline(f"{what}, by cause: {'; '.join(causes)}.", muted=True)


def draw_resume(store: Store, work_id: str, *, width: str = "content") -> None:
    """Draw the button that continues stopped work, with a field for a higher cost cap if the cap is reached."""
    cost = cost_of(store, work_id)
    if cost.cap_reached:
        raise_and_resume(store, work_id, cost)
    else:
        worker_button(store, work_id, "Resume", key=f"resume.{work_id}", icon=":material/play_arrow:", width=width)


def worker_log(store: Store, work_id: str) -> None:
    """Draw the last lines of a worker's log, folded; nothing without any."""
    if log := launch.log_tail(store, work_id):
        with st.expander("Last lines of the worker's log"):
            st.code(log, language=None, wrap_lines=True)


def worker_button(store: Store, work_id: str, label: str, *, key: str, **options: Any) -> None:
    """Draw a button that starts a worker for planned work, once. label must be a literal; options: of `st.button`."""
    with page.Reporting("The worker was not started.", StoreError):
        once.button(label, lambda: launch.launch(store, work_id), key=key, **options)

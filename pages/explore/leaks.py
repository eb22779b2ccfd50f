"""Leaks: a gallery of messages that give away what does not belong there, the severest first, and a basket of them."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.leaks import gallery
from cimemories.leaks.table import view_of
from cimemories.model import Strength
from cimemories.text import count
from cimemories.ui import page, safe, url
from cimemories.ui.safe import tag
from pages.explore import leaks_gallery, leaks_message
from pages.explore.leaks_message import Browsed, browsed
from pages.explore.run_scope import caveats


def draw() -> None:
    found = browsed()
    if found is None:
        return
    examples = gallery.gallery(found.flows, list(found.scopes.values()))
    simulated = any(asked.simulated for asked in found.scopes.values())
    with found.top:
        page.head("Leaks", _takeaway(found, examples), simulated=simulated)
    if found.numbers is not None:
        caveats(found.numbers)
    if url.get("tab") == leaks_gallery.TAB:
        leaks_gallery.draw_basket(found.flows)
    elif found.scopes:
        _gallery(found, examples)


def _takeaway(found: Browsed, examples: pd.DataFrame) -> str:
    if not found.scopes:
        return "No run has been judged yet."
    named = f"{len(found.scopes)} runs" if found.every else next(iter(found.scopes.values())).run.name
    if all(asked.labelling is None for asked in found.scopes.values()):
        return f"{named}: without labels nothing can be called a leak yet."
    full = examples[examples["strength"] == Strength.FULL] if len(examples) else examples
    if full.empty:
        return f"{named}: no inappropriate flow was revealed."
    said = f"{named}: {count(len(full))} inappropriate flows were revealed at least once, "
    if found.every:
        run, most = next(iter(full["run"].value_counts().items()))
        return f"{said}most of them ({count(int(most))}) by {found.scopes[str(run)].run.name}."
    always = int((full["reveals"] == full["draws"]).sum())
    return f"{said}{count(always)} of them in every sample."


def _gallery(found: Browsed, examples: pd.DataFrame) -> None:
    now = leaks_gallery.wanted(found.every)
    left = gallery.narrowed(examples, now)
    ids: list[str] = examples["id"].iloc[left.shown].tolist()
    current = leaks_gallery.current(found, examples, ids)
    leaks_gallery.bar(found.flows, ids, current, of=len(examples))
    filters, centre = st.columns([2, 9], gap="medium")
    with filters:
        leaks_gallery.draw_filters(examples, left, now, found.scopes)
    with centre:
        if not ids:
            _nothing(found, examples)
        else:
            leaks_gallery.listed(examples, left, found, current)
        run = url.get("run") if found.every else next(iter(found.scopes))
        asked = found.scopes.get(run or "")
        profile, context = url.get_int("profile"), url.get_int("context")
        if asked is None or profile is None or context is None:
            return
        if ids and current not in ids:
            page.notice("What is shown is not among the examples that the filters leave.")
        _example(found.flows, asked, profile, context, named=found.every)
    _ahead(found, examples, gallery.step(ids, current, 1))


def _ahead(found: Browsed, examples: pd.DataFrame, following: str | None) -> None:
    """Ask for the next example while this one is being read, so that it is there when it is asked for."""
    row = examples[examples["id"] == following]
    if len(row):
        where = row.iloc[0]
        asked, place = found.scopes[str(where["run"])], (int(where["profile"]), int(where["context"]))
        view_of(found.flows, asked, *place)
        leaks_message.pair_of(found.flows, asked, *place, int(where["attribute"]))


def _nothing(found: Browsed, examples: pd.DataFrame) -> None:
    if len(examples):
        page.notice("No leak fits the filters. Clear them to see all.")
        return
    labelled = next((asked for asked in found.scopes.values() if asked.labelling), None)
    if labelled is None:
        page.empty(
            "No leak in this run",
            "The dataset has no labels yet, so nothing can be called inappropriate.",
            lambda: url.page_link("labels", "Label the dataset", icon=":material/label:"),
        )
        return
    run = labelled.run.id
    page.empty(
        "No leak in this run",
        "No judged message reveals an attribute that is labelled inappropriate in its context. A cell of the heatmap "
        "leads to the messages all the same.",
        lambda: url.page_link("heatmaps", "Choose a cell", icon=":material/grid_on:", run=run),
    )


def _example(flows: Flows, asked: Scope, profile: int, context: int, *, named: bool) -> None:
    attribute = url.get_int("attribute")
    view = view_of(flows, asked, profile, context)
    if view is None:
        page.notice("This run has no message of that profile in that context. Choose a leak from the list.")
        return
    message, memory = st.columns([5, 4], gap="medium")
    with message:
        safe.heading(f"{view.profile.name} to {view.context.recipient}: {view.context.task}")
        if named:
            badge = page.SIMULATED if asked.simulated else ""
            words = tag("span", f"{asked.run.name}, judged by {asked.judge_text}", cls="ci-muted")
            safe.show(tag("div", words, " ", badge))
        sample = leaks_message.draw(asked, view, attribute)
    with memory:
        leaks_message.draw_memory(flows, asked, view, sample, attribute)


draw()

"""Leaks: a gallery of messages that reveal inappropriate attributes, the severest first, and a basket of them."""

from __future__ import annotations

import streamlit as st

from cimemories import extras
from cimemories.answers.leaks import takeaway
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope, parts_of
from cimemories.leaks import gallery
from cimemories.leaks.examples import Examples
from cimemories.leaks.examples import examples as found_examples
from cimemories.leaks.message import leak_view
from cimemories.store.engine import StoreError
from cimemories.text import sentence
from cimemories.ui import page, safe, url
from pages.explore import leaks_gallery, leaks_message
from pages.explore.leaks_message import Browsed, browsed
from pages.explore.run_scope import caveats, nothing_measured

MOST_SHOWN = 5_000  # examples; filters lead to the others


def draw() -> None:
    shown = browsed(leaks_gallery.button_text())
    if shown is None:
        return
    try:
        with st.spinner("Collecting the leaks", show_time=True):
            examples = found_examples(shown.flows, list(shown.scopes.values()))
    except StoreError as problem:
        with shown.top:
            page.head("Leaks", "The leaks cannot be shown.")
        page.error(str(problem))
        return
    simulated = parts_of(scope.simulated for scope in shown.scopes.values())
    with shown.top:
        page.head("Leaks", takeaway(list(shown.scopes.values()), examples), simulated=simulated)
    if shown.numbers is not None:
        caveats(shown.numbers)
    if url.get("tab") == leaks_gallery.TAB:
        leaks_gallery.views(shown)
        leaks_gallery.draw_basket(shown.flows)
    elif shown.scopes:
        _filtered(shown, examples)


def _filtered(browsed: Browsed, examples: Examples) -> None:
    """Draw the filters and what they leave: its messages or its patterns."""
    now = leaks_gallery.url_filters(browsed.every)
    with page.behind(browsed.more):
        leaks_gallery.draw_condition()
    leaks_gallery.only_where()
    try:
        left = examples.left(now)
    except StoreError as problem:
        leaks_gallery.views(browsed)
        page.error("No leak is shown.", sentence(problem))
        return
    with browsed.more:
        leaks_gallery.draw_filters(browsed, left, now)
    if url.get("tab") == leaks_gallery.PATTERNS:
        leaks_gallery.views(browsed)
        leaks_gallery.draw_patterns(browsed, examples, now)
        return
    shown = examples.page(now, 0, MOST_SHOWN)
    ids: list[str] = shown["id"].tolist()
    current = leaks_gallery.current(browsed, examples, ids)
    leaks_gallery.views(browsed)  # only now: a press may have put something into the basket
    with browsed.steps:
        leaks_gallery.draw_steps(browsed.flows, ids, current, number_left=left.number)
    if not ids:
        _nothing(browsed, examples)
    run = url.get("run") if browsed.every else next(iter(browsed.scopes))
    scope = browsed.scopes.get(run or "")
    profile, context = url.get_int("profile"), url.get_int("context")
    if scope is None or profile is None or context is None:
        return
    if ids and current not in ids:
        among = ", or is not among the severest that are shown" if left.number > len(ids) else ""
        page.notice(f"The message shown does not match the filters{among}.")
    _example(browsed.flows, scope, profile, context, named=browsed.every)
    if ids:
        leaks_gallery.listed(shown, left.number, browsed, current)
    following = shown[shown["id"] == gallery.step(ids, current, 1)]
    if len(following):  # loaded while this one is being read
        row = following.iloc[0]
        scope, flow = browsed.scopes[str(row["run"])], (int(row["profile"]), int(row["context"]))
        leak_view(browsed.flows, scope, *flow)
        leaks_message.pair_of(browsed.flows, scope, *flow, int(row["attribute"]))


def _nothing(browsed: Browsed, examples: Examples) -> None:
    if examples.number:
        page.notice("No leak matches the filters. Clear them to see all.")
        return
    if browsed.numbers is not None and not browsed.numbers.retained:
        nothing_measured("No leak in this run", browsed.numbers)
        return
    labelled = next((scope for scope in browsed.scopes.values() if scope.labelling), None)
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
        "No judged message reveals an attribute that is inappropriate in its context. To read messages anyway, select "
        "a cell of the heatmap.",
        lambda: url.page_link("heatmaps", "Choose a cell", icon=":material/grid_on:", run=run),
    )


def _example(flows: Flows, scope: Scope, profile: int, context: int, *, named: bool) -> None:
    attribute = url.get_int("attribute")
    view = leak_view(flows, scope, profile, context)
    if view is None:
        page.notice("This run has no message for that profile and context. Select a leak from the list.")
        return
    heading, choice, keys = st.columns([6, 2.4, 2.8], vertical_alignment="center")
    with heading:
        safe.heading(f"{view.profile.name} to {view.context.recipient}: {view.context.task}")
    with keys:
        leaks_gallery.draw_keys()
    with choice:
        beside = leaks_message.choose_beside(flows, scope, profile, context)
    if beside is not None:
        sample = leaks_message.draw_beside((scope, beside[0]), (view, beside[1]), attribute)
        leaks_message.draw_memory(flows, scope, view, sample, attribute)
    else:
        message, memory = st.columns([5, 4], gap="medium")
        with message:
            if named:
                leaks_message.whose(scope, f", judged by {scope.judge_text}")
            sample = leaks_message.choose_sample(scope, view, attribute)
            leaks_message.draw(scope, sample, view, attribute)
        with memory:
            leaks_message.draw_memory(flows, scope, view, sample, attribute)
    if attribute is not None and any(attribute in message.leaked(view.memories) for message in view.samples):
        for place in extras.panels("leaks").values():
            extras.load(place)(flows, scope, sample, attribute)


draw()

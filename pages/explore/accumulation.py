"""Accumulation: how leaks pile up over a user's tasks, in expectation and in one order, and a mode that plays it."""

from __future__ import annotations

import streamlit as st

from cimemories.flows.scope import Scope
from cimemories.metrics.accumulation import Accumulation, Order, accumulation
from cimemories.metrics.one_user import one_user, users
from cimemories.text import count, percent
from cimemories.ui import page, safe, url
from pages.explore.accumulation_curves import draw_curves, draw_first_leak, draw_hazard, draw_presenter, draw_tasks
from pages.explore.run_scope import caveats, run_scope

ORDERS = {Order.LISTED: "as listed", Order.WORST: "most leaking first", Order.SHUFFLED: "shuffled"}
NOBODY = 0


def draw() -> None:
    chosen = run_scope(
        "Accumulation",
        "Nothing to add up yet",
        "Accumulation shows how much of a user's memory leaks as an assistant does task after task. It needs a run.",
    )
    if chosen is None:
        return
    flows, scope = chosen.flows, chosen.scope
    accumulated = accumulation(flows, scope)
    with chosen.top:
        page.head(
            "Accumulation", _takeaway(scope, accumulated, chosen.numbers.coverage), simulated=bool(scope.simulated)
        )
    caveats(chosen.numbers)
    if scope.labelling is None or not accumulated.curves.profiles:
        page.empty(
            "Nothing can accumulate here",
            "A curve needs attributes that are inappropriate in some context, and judged messages there. Label the "
            "dataset, or wait for the judges.",
            lambda: url.page_link("labels", "Label the dataset", icon=":material/label:"),
        )
        return
    people = users(flows, scope)
    samples, whose, order, play = st.columns([4, 3, 3, 2], vertical_alignment="bottom")
    with samples:
        ns = _samples(accumulated)
    with whose:
        user = _user(people)
    with order:
        way, seed = _order(user is not None)
    shown = one_user(flows, scope, user if user is not None else next(iter(people)), way, seed)
    with play:
        draw_presenter(scope, shown)
    overlaid = shown if user is not None else None
    draw_curves(flows, scope, accumulated, ns, overlaid)
    left, right = st.columns(2, gap="medium")
    with left:
        draw_hazard(scope, accumulated, ns, overlaid)
    with right:
        draw_first_leak(flows, scope, overlaid, way, seed, len(people))
    if overlaid is not None:
        draw_tasks(scope, overlaid)


def _takeaway(scope: Scope, accumulated: Accumulation, coverage: float) -> str:
    missing = f" Only {percent(coverage)} of the responses are judged." if coverage < 0.99 else ""
    if scope.labelling is None or not accumulated.curves.profiles:
        return f"{scope.run.name}: nothing to measure yet."
    n, most = max(accumulated.curves.ns), accumulated.most
    half = accumulated.half_way(n)
    if half is None:
        return f"{scope.run.name}: no private attribute was revealed in any of up to {most} tasks of a user.{missing}"
    text = (
        f"{scope.run.name}: {percent(accumulated.at(n, 1))} of a user's private attributes are revealed after one "
        f"task, {percent(accumulated.at(n, most))} after {'all' if most > 1 else 'the'} {most}, with {n} "
        f"message{'s' if n > 1 else ''} a task"
    )
    late = f"; half of that after {count(half, 'task')}" if most > 1 else ""
    return f"{text}{late}.{missing}"


def _samples(curves: Accumulation) -> list[int]:
    """Which n are drawn, as the URL says; all of them where it does not."""
    every = list(curves.curves.ns)
    if len(every) == 1:
        return every
    key = "accumulation.ns"
    chosen = [int(item) for item in (url.get("ns") or "").split(".") if item.isascii() and item.isdigit()]
    st.session_state[key] = [n for n in every if n in chosen] or every

    def changed() -> None:
        picked = sorted(st.session_state[key]) or every
        url.put(ns=None if picked == every else ".".join(map(str, picked)))

    st.pills(
        "Samples n of each task",
        every,
        selection_mode="multi",
        key=key,
        on_change=changed,
        help="At n, a task leaks an attribute if any of n messages drawn from its judged samples reveals it.",
    )
    return sorted(st.session_state[key]) or every


def _user(people: dict[int, str]) -> int | None:
    key = "accumulation.user"
    chosen = url.get_int("user")
    if chosen is not None and chosen not in people:
        page.notice("The user in the link is not in this run, so no single user is drawn.")
        chosen = None
    url.put(user=chosen)
    st.session_state[key] = chosen if chosen is not None else NOBODY
    names = {NOBODY: "no single user, all orders"} | people
    st.selectbox(
        "Tasks in the order of",
        list(names),
        format_func=lambda item: safe.option(names[item]),
        key=key,
        on_change=lambda: url.put(user=st.session_state[key] or None),
        help="Adds the curve of one user with tasks in one order to the average over all orders.",
    )
    return chosen


def _order(chosen: bool) -> tuple[Order, int]:
    """How tasks are ordered, as the URL says: 'worst', or 'shuffled-3' with the seed."""
    key = "accumulation.order"
    name, _, number = (url.get("sequence") or "").partition("-")
    way = Order(name) if name in set(Order) else Order.LISTED
    seed = int(number) if number.isascii() and number.isdigit() and len(number) < 9 else 1
    st.session_state[key] = way

    def changed() -> None:
        picked = st.session_state[key]
        _put(picked, seed)

    left, right = st.columns([4, 1], vertical_alignment="bottom", gap="small")
    with left:
        st.selectbox("Order", list(Order), format_func=lambda item: ORDERS[item], key=key, on_change=changed)
    if way == Order.SHUFFLED:
        with right:
            st.button(
                "",
                icon=":material/shuffle:",
                key="accumulation.again",
                help="Shuffle again",
                on_click=lambda: _put(Order.SHUFFLED, seed + 1),
            )
    return way, seed


def _put(way: Order, seed: int) -> None:
    url.put(sequence={Order.LISTED: None, Order.WORST: "worst", Order.SHUFFLED: f"shuffled-{seed}"}[way])


draw()

"""Accumulation: how leaks accumulate over a user's tasks, in expectation and in one order, and a mode that plays it."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import streamlit as st

from cimemories.answers.accumulation import curve_table, survival_table, task_table
from cimemories.answers.metrics import Sessions, sessions
from cimemories.charts.lines import Line, line_figure, mean_line, shade
from cimemories.charts.sessions import leaks_by_task
from cimemories.charts.theme import GREY
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.metrics import sentences
from cimemories.metrics.accumulation import Accumulation, Clock, Order, accumulation, baseline, effort, hazard
from cimemories.metrics.one_user import OneUser, first_leak, one_user, users
from cimemories.text import count, percent, shortened
from cimemories.ui import answers, charts, page, safe, url
from cimemories.ui.safe import INAPPROPRIATE, MODEL
from pages.explore import accumulation_presenter
from pages.explore.run_scope import caveats, counting, interval_parts, nothing_measured, run_scope

ORDERS = {Order.LISTED: "as listed", Order.WORST: "most leaking first", Order.SHUFFLED: "shuffled"}
ONE = "1"


def draw() -> None:
    chosen = run_scope(
        "Accumulation",
        "Nothing to add up yet",
        "Accumulation shows how much of a user's memory leaks as an assistant does task after task. It needs a run.",
    )
    if chosen is None:
        return
    flows, scope = chosen.flows, chosen.scope
    with counting():
        accumulated, people = accumulation(flows, scope), users(flows, scope)
        effort(flows, scope)
    with chosen.top:
        takeaway = sentences.accumulation(scope.run.name, accumulated, effort(flows, scope), chosen.numbers.coverage)
        page.head("Accumulation", takeaway, simulated=scope.simulated)
    caveats(chosen.numbers)
    if scope.labelling is None or not accumulated.curves.profiles:
        nothing_measured("Nothing can accumulate here", chosen.numbers)
        return
    samples, whose, order, messages, play = st.columns([3.8, 2.9, 2.3, 2.5, 2.1], vertical_alignment="bottom")
    with samples:
        ns = _samples(accumulated, scope.run.samples)
    with whose:
        user = _user(people)
    with order:
        way, seed = _order(user is not None)
    shown = one_user(flows, scope, user if user is not None else next(iter(people)), way, seed)
    with messages:
        most = max(shown.curves)
        text = "On a slide a task reveals what any of its messages does, or what its first one does."
        options = {"": f"all {most} messages", ONE: "one message"}
        key = "accumulation.messages"
        single = most == 1 or page.choice("Slides with", options, key, "messages", boxed=True, help=text) == ONE
    with play:
        accumulation_presenter.draw(flows, scope, shown, single)
    overlaid = shown if user is not None else None
    draw_curves(flows, scope, accumulated, ns, overlaid)
    left, right = st.columns(2, gap="medium")
    with left:
        safe.inline("Hazard: how much of what is still private the next task reveals.", muted=True)
        draw_hazard(scope, accumulated, ns, overlaid)
    with right:
        safe.inline("First leak: how many tasks an attribute stays private before a message reveals it.", muted=True)
        draw_first_leak(flows, scope, overlaid, way, seed, len(people))
    interval_parts(chosen, "accumulation.interval")
    if overlaid is not None:
        draw_tasks(scope, overlaid)
    if (travelled := sessions(flows, scope)) is not None:
        draw_sessions(scope, travelled)


def _samples(curves: Accumulation, planned: int) -> list[int]:
    """Draw the choice of n and return those chosen: by default one sample and all of them. planned: samples of the
    run."""
    every = list(curves.curves.ns)
    if len(every) == 1:
        return every
    chosen = page.several(
        f"Samples n of each task{'' if len(every) == planned else f', at most {len(every)}'}",
        {str(n): str(n) for n in every},
        "accumulation.ns",
        "ns",
        default=[str(every[0]), str(every[-1])],
        pills=True,
        help="At n, a task leaks an attribute if any of n messages drawn from its judged samples reveals it.",
    )
    return sorted(map(int, chosen))


def _user(people: dict[int, str]) -> int | None:
    chosen = page.choice(
        "Tasks of",
        {"": "average over all orders", **{str(user): name for user, name in people.items()}},
        "accumulation.user",
        "user",
        boxed=True,
        missing="The user in the link is not in this run, so no single user is drawn.",
        help="One user's tasks in one order, beside the average over all users and all orders of their tasks.",
    )
    return int(chosen) if chosen else None


def _order(chosen: bool) -> tuple[Order, int]:
    """Draw the choice of the order of tasks and return it with its seed; the URL has it as 'worst' or 'shuffled-3'."""
    name, _, number = (url.get("sequence") or "").partition("-")
    way = Order(name) if name in set(Order) else Order.LISTED
    seed = int(number) if number.isascii() and number.isdigit() and len(number) < 9 else 1
    shuffled = way == Order.SHUFFLED
    left, *right = st.columns([4, 1] if shuffled else 1, vertical_alignment="bottom", gap="small")
    with left:
        page.bound(
            st.selectbox,
            "Order",
            list(Order),
            key="accumulation.order",
            value=way,
            put=lambda picked: _put(picked, seed),
            format_func=ORDERS.__getitem__,
        )
    if shuffled:
        with right[0]:
            st.button(
                "",
                icon=":material/shuffle:",
                key="show.accumulation.again",
                help="Shuffle again",
                on_click=url.durable(lambda: _put(Order.SHUFFLED, seed + 1)),
            )
    return way, seed


def _put(way: Order, seed: int) -> None:
    url.put(sequence={Order.LISTED: None, Order.WORST: "worst", Order.SHUFFLED: f"shuffled-{seed}"}[way])


# ---- curves and tasks


HEIGHT, SMALL = 430, 300
CLOCKS = {Clock.TASKS: "tasks done", Clock.EXPOSURES: "tasks where it is private"}
SHORT: dict[str, str] = {Clock.TASKS: "all tasks", Clock.EXPOSURES: "where private"}


def draw_curves(flows: Flows, scope: Scope, accumulated: Accumulation, ns: list[int], user: OneUser | None) -> None:
    frame, most = accumulated.frame(), max(ns)
    with counting():
        even = list(baseline(flows, scope, most))
    independent = f"independent, n = {most}"
    lines = [mean_line(frame[frame["n"] == n], f"n = {n}", shade(i, len(ns)), band=True) for i, n in enumerate(ns)]
    lines.append(Line(independent, range(len(even)), even, GREY, dash="dash", width=1.8, end=independent))
    if user is not None:
        line, end = list(user.curves[most]), f"X {shortened(user.name, 18)}"
        lines.append(Line(user.name, range(len(line)), line, INAPPROPRIATE, width=2.5, steps=True, end=end))
    growing = accumulated.curves.growing()
    first_end = int((growing < growing[0]).argmax()) - 1 if growing[-1] < growing[0] else None
    title = sentences.curves(accumulated, even[-1], most, effort(flows, scope))
    limit = sentences.limited(max(accumulated.curves.ns), scope.run.samples)
    of = "users" if accumulated.curves.profiles >= 5 else "attributes (too few users)"
    fig = line_figure(
        lines,
        title=title,
        subtitle=f"share of {count(accumulated.attributes, 'private attribute')} (inappropriate in some context) of "
        f"{count(accumulated.curves.profiles, 'user')}, {count(accumulated.flows)} flows, averaged over all orders of "
        f"tasks{limit}; 95 % band over {of}",
        x_title="tasks done",
        height=HEIGHT,
        mark=None if first_end is None else (first_end, "the first users have done all their tasks "),
    )
    key = f"accumulation.curves.{scope.run.id}"
    charts.show(fig, key=key, alt=f"{title}. Shares revealed over tasks done; the numbers are in the table.")
    frame = frame[frame["n"].isin(ns)]
    frame = frame.assign(independent=frame["tasks"].map(dict(enumerate(even))).where(frame["n"] == most))
    if user is not None:
        values = {(n, k): v for n in ns for k, v in enumerate(user.curves[n])}
        mine = [values.get((n, k), float("nan")) for n, k in zip(frame["n"], frame["tasks"], strict=True)]
        frame = frame.assign(one_user=mine)
    left, right = st.columns([8, 1])
    with left:
        answers.folded(curve_table(frame), key, "accumulation.box.curves", "The curves as a table")
    with right:
        answers.export(curve_table(frame), key, scope.about, scope.simulated, fig)


def draw_hazard(scope: Scope, accumulated: Accumulation, ns: list[int], user: OneUser | None) -> None:
    """Draw h(k): the share of the attributes still private that the k-th task reveals."""
    frame, most = accumulated.frame(), max(ns)
    done = frame[frame["tasks"] > 0]
    lines = [mean_line(done[done["n"] == n], f"n = {n}", shade(i, len(ns)), "hazard") for i, n in enumerate(ns)]
    last = done[done["n"] == most]["hazard"].dropna()
    title = sentences.hazard(last.tolist())
    frame = frame[frame["n"].isin(ns)][["n", "tasks", "hazard", "growing", "profiles"]]
    if user is not None:
        values = hazard(user.curves[most])
        lines.append(Line(user.name, range(1, len(values)), list(values[1:]), INAPPROPRIATE, dash="dot", width=1.5))
    fig = line_figure(
        lines,
        title=title,
        subtitle="share of the attributes still private that the k-th task reveals, "
        f"{count(accumulated.curves.profiles, 'user')}",
        x_title="task",
        height=SMALL,
    )
    key = f"accumulation.hazard.{scope.run.id}"
    charts.show(
        fig, key=key, alt=f"{title}. The hazard over tasks; the numbers are in the table of the curves.", half=True
    )
    answers.export(curve_table(frame), key, scope.about, scope.simulated, fig)


def draw_first_leak(flows: Flows, scope: Scope, user: OneUser | None, way: Order, seed: int, people: int) -> None:
    chart, (way_of_counting, table, export) = st.container(), st.columns([4, 3, 2], vertical_alignment="bottom")
    with way_of_counting:
        clock = Clock(page.choice("Count time in", SHORT, "accumulation.clock", "clock", default=Clock.TASKS))
    with counting():
        survived = first_leak(flows, scope, user.profile if user else None, way, seed, clock)
    whose = f"of {user.name}" if user else f"of {count(people, 'user')}"
    title = sentences.first_leak(survived)
    fig = line_figure(
        [
            Line(
                "still private",
                survived.times.tolist(),
                survived.private.tolist(),
                INAPPROPRIATE if user else MODEL,
                low=survived.low.tolist(),
                high=survived.high.tolist(),
                steps=True,
                end=percent(float(survived.private[-1])),
                note=[
                    f"[{100 * a:.1f}, {100 * b:.1f}], {number} at risk"
                    for a, b, number in zip(survived.low, survived.high, survived.at_risk, strict=True)
                ],
            )
        ],
        title=title,
        subtitle=(
            f"Kaplan-Meier, {count(survived.attributes, 'attribute')} {whose}, {count(survived.leaked)} leak; "
            "any judged message of a task; band: attributes taken as independent"
        ),
        x_title=CLOCKS[clock],
        height=SMALL,
        most=1.0,
    )
    key = f"accumulation.first.{scope.run.id}"
    with chart:
        charts.show(fig, key=key, alt=f"{title}. A falling line of steps; the numbers are in the table.", half=True)
    shown = survival_table(survived)
    with table:
        answers.folded(shown, f"{key}.{clock}", "accumulation.box.first", "As a table")
    exported = shown.frame.assign(clock=str(clock), order=str(way), user=user.name if user else "")
    with export:
        answers.export(replace(shown, frame=exported), key, scope.about, scope.simulated, fig)


def draw_sessions(scope: Scope, answer: Sessions) -> None:
    """Draw which leaks of a run with sessions repeat an earlier message, by the task's place in the session."""
    safe.heading("Sessions")
    exposures = count(int(answer.positions.frame["exposures"].sum()), "exposure")
    subtitle = f"leaks over {exposures} of inappropriate attributes in judged messages, by task"
    fig = leaks_by_task(answer.positions.frame, title=answer.sentence, subtitle=subtitle)
    key = f"accumulation.sessions.{scope.run.id}"
    alt = f"{answer.sentence}. Leak rate by task, fresh and travelled; the numbers are in the table."
    charts.show(fig, key=key, alt=alt)
    answers.show(answer, "accumulation.sessions", scope.about)


def draw_tasks(scope: Scope, user: OneUser) -> None:
    table = task_table(user)
    safe.heading(sentences.one_user(user))
    shown = table.frame.set_index(pd.Index([f"{user.profile}.{step.context}" for step in user.steps]))
    picked = answers.twin(replace(table, frame=shown), f"accumulation.tasks.{scope.run.id}", on_select="row")
    left, right = st.columns([8, 1])
    with left:
        counted = f"An attribute leaks where {sentences.any_message(user)} of a task states it."
        safe.inline(f"{counted} Select a row to read the messages of that task.", muted=True)
    with right:
        exported = table.frame.assign(user=user.name, order=str(user.order))
        key = f"accumulation.tasks.{scope.run.id}.{user.profile}"
        answers.export(replace(table, frame=exported), key, scope.about, scope.simulated)
    if picked is not None:
        step = user.steps[picked]
        first = step.leaks[0].attribute if step.leaks else None
        to = {"run": scope.run.id, "judge": url.get("judge"), "profile": user.profile, "context": step.context}
        url.go("leaks", **to, attribute=first)


draw()

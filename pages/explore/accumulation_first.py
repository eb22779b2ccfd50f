"""Part of the Accumulation page: time to the first leak of an attribute, as a Kaplan-Meier curve."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories.analysis.first_leak import Clock, Survival
from cimemories.analysis.flows import Flows, Scope
from cimemories.analysis.one_user import OneUser, first_leak
from cimemories.analysis.task_order import Order
from cimemories.ui import charts, exports, lines, page, tables, url
from cimemories.ui.lines import Line
from cimemories.ui.style import INAPPROPRIATE, MODEL
from pages.explore.accumulation_curves import SMALL, about

CLOCKS = {Clock.TASKS: "tasks done", Clock.EXPOSURES: "tasks where it is private"}
SHORT = {Clock.TASKS: "all tasks", Clock.EXPOSURES: "where private"}


def draw_first_leak(flows: Flows, asked: Scope, user: OneUser | None, way: Order, seed: int, people: int) -> None:
    chart, (way_of_counting, table, export) = st.container(), st.columns([4, 3, 2], vertical_alignment="bottom")
    with way_of_counting:
        clock = _clock()
    found = first_leak(flows, asked, user.profile if user else None, way, seed, clock)
    whose = f"of {user.name}" if user else f"of {people} user{'' if people == 1 else 's'}"
    title = _title(found)
    fig = lines.figure(
        [
            Line(
                "still private",
                found.times.tolist(),
                found.silent.tolist(),
                INAPPROPRIATE if user else MODEL,
                low=found.low.tolist(),
                high=found.high.tolist(),
                steps=True,
                end=tables.percent(float(found.silent[-1])),
                note=[
                    f"[{100 * a:.1f}, {100 * b:.1f}], {number} at risk"
                    for a, b, number in zip(found.low, found.high, found.at_risk, strict=True)
                ],
            )
        ],
        title=title,
        subtitle=(
            f"Kaplan-Meier, {tables.count(found.attributes)} attributes {whose}, {tables.count(found.leaked)} leak; "
            "any message of a task; band: attributes taken as independent"
        ),
        x_title=CLOCKS[clock],
        height=SMALL,
        most=1.0,
    )
    key = f"accumulation.first.{asked.run.id}"
    with chart:
        charts.show(fig, key=key, alt=f"{title}. A falling line of steps; the numbers are in the table.")
    frame = pd.DataFrame(
        {
            "time": found.times,
            "private": found.silent,
            "low": found.low,
            "high": found.high,
            "at_risk": found.at_risk,
        }
    )
    with table:
        page.fold("As a table", ":material/table:", "accumulation.box.first", lambda: _table(frame, asked, clock))
    with export:
        exports.buttons(
            f"first-leak-{asked.run.id}",
            frame.assign(clock=str(clock), order=str(way), user=user.name if user else ""),
            fig=fig,
            key=key,
            simulated=bool(asked.simulated),
            about=about(asked),
        )


def _clock() -> Clock:
    key = "accumulation.clock"
    asked = url.get("clock")
    st.session_state[key] = Clock(asked) if asked in set(Clock) else Clock.TASKS

    def changed() -> None:
        url.put(clock=None if st.session_state[key] == Clock.TASKS else st.session_state[key])

    st.segmented_control(
        "Time counted in",
        list(Clock),
        format_func=lambda item: SHORT[item],
        key=key,
        on_change=changed,
        required=True,
    )
    return Clock(st.session_state[key] or Clock.TASKS)


def _title(found: Survival) -> str:
    if not found.leaked:
        return "No attribute leaks at any time"
    after = found.median if found.median is not None else int(found.times[-1])
    tasks = f"{after} task{'' if after == 1 else 's'}"
    tasks += " where they are private" if found.clock == Clock.EXPOSURES else ""
    if found.median is not None:
        return f"Half of the attributes have leaked after {tasks}"
    return f"{tables.percent(float(found.silent[-1]))} of the attributes are still private after {tasks}"


def _table(frame: pd.DataFrame, asked: Scope, clock: Clock) -> None:
    tables.table(
        frame,
        key=f"accumulation.first.table.{asked.run.id}.{clock}",
        columns={
            "time": ("count", "After"),
            "private": ("percent", "Still private"),
            "low": ("percent", "95 % low"),
            "high": ("percent", "95 % high"),
            "at_risk": ("count", "At risk"),
        },
        alt="Time to the first leak",
    )

"""Part of the Accumulation page: the curves with their bands, the independence baseline, and the hazard."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories.analysis.accumulation import Accumulation, baseline
from cimemories.analysis.curves import hazard
from cimemories.analysis.flows import Flows, Scope
from cimemories.analysis.one_user import OneUser
from cimemories.ui import charts, exports, lines, page, tables
from cimemories.ui.lines import GREY, Line
from cimemories.ui.style import INAPPROPRIATE

HEIGHT, SMALL = 430, 300


def draw_curves(flows: Flows, asked: Scope, found: Accumulation, ns: list[int], user: OneUser | None) -> None:
    frame, most = found.frame(), max(ns)
    even = list(baseline(flows, asked, most))
    drawn = [*_means(frame, ns, "share", bands=True), _baseline(found, even, most)]
    if user is not None:
        line = list(user.curves[most])
        drawn.append(
            Line(user.name, range(len(line)), line, INAPPROPRIATE, width=2.5, steps=True, end=f"X {_short(user.name)}")
        )
    growing = found.curves.growing()
    first_end = int((growing < growing[0]).argmax()) - 1 if growing[-1] < growing[0] else None
    title = _title(found, even[-1], most)
    fig = lines.figure(
        drawn,
        title=title,
        subtitle=_counts(found),
        x_title="tasks done",
        height=HEIGHT,
        mark=None if first_end is None else (first_end, "the first users have done all tasks "),
    )
    key = f"accumulation.curves.{asked.run.id}"
    charts.show(fig, key=key, alt=f"{title}. Shares revealed over tasks done; the numbers are in the table.")
    frame = frame[frame["n"].isin(ns)]
    frame = frame.assign(independent=frame["tasks"].map(dict(enumerate(even))).where(frame["n"] == most))
    if user is not None:
        own = {(n, k): v for n in ns for k, v in enumerate(user.curves[n])}
        mine = [own.get((n, k), float("nan")) for n, k in zip(frame["n"], frame["tasks"], strict=True)]
        frame = frame.assign(one_user=mine)
    left, right = st.columns([8, 1])
    with left:
        page.fold("The curves as a table", ":material/table:", "accumulation.box.curves", lambda: _table(frame, asked))
    with right:
        exports.buttons(
            f"accumulation-{asked.run.id}", frame, fig=fig, key=key, simulated=bool(asked.simulated), about=about(asked)
        )


def draw_hazard(asked: Scope, found: Accumulation, ns: list[int], user: OneUser | None) -> None:
    """h(k): of what was still private, the share that the k-th task reveals."""
    frame, most = found.frame(), max(ns)
    drawn = _means(frame, ns, "hazard")
    last = frame[(frame["n"] == most) & (frame["tasks"] > 0)]["hazard"].dropna()
    title = "Hazard: no task reveals anything"
    if last.any():
        title = f"Hazard: the first task reveals {tables.percent(last.iloc[0])} of what is private"
        if len(last) > 1:
            title += f", the last {tables.percent(last.iloc[-1])} of what is left"
    frame = frame[frame["n"].isin(ns)][["n", "tasks", "hazard", "growing", "profiles"]]
    if user is not None:
        own = hazard(user.curves[most])
        drawn.append(Line(user.name, range(1, len(own)), list(own[1:]), INAPPROPRIATE, dash="dot", width=1.5))
    fig = lines.figure(
        drawn,
        title=title,
        subtitle=f"share of the attributes still private that the k-th task reveals, {_people(found)}",
        x_title="task",
        height=SMALL,
    )
    key = f"accumulation.hazard.{asked.run.id}"
    charts.show(fig, key=key, alt=f"{title}. The hazard over tasks; the numbers are in the table of the curves.")
    exports.buttons(
        f"hazard-{asked.run.id}", frame, fig=fig, key=key, simulated=bool(asked.simulated), about=about(asked)
    )


def about(asked: Scope) -> dict[str, object]:
    """What the numbers of this page rest on, for exports."""
    return {
        "run": asked.run.id,
        "model": asked.run.model,
        "dataset": asked.dataset_name,
        "labels": asked.label_words,
        "judge": asked.judge_words,
        "identifiers": "exact",
    }


def _means(frame: pd.DataFrame, ns: list[int], column: str, *, bands: bool = False) -> list[Line]:
    made = []
    for place, n in enumerate(ns):
        part = frame[frame["n"] == n]
        part = part[part["tasks"] > 0] if column == "hazard" else part
        value, low, high = (part[name].tolist() for name in (column, "low", "high"))
        made.append(
            Line(
                f"n = {n}",
                part["tasks"].tolist(),
                value,
                lines.shade(place, len(ns)),
                low=low if bands else (),
                high=high if bands else (),
                end=f"n = {n}, {tables.percent(value[-1])}" if bands else f"n = {n}",
                note=[f"[{a * 100:.1f}, {b * 100:.1f}]" for a, b in zip(low, high, strict=True)] if bands else (),
            )
        )
    return made


def _baseline(found: Accumulation, even: list[float], n: int) -> Line:
    return Line(
        f"independent, n = {n}", range(len(even)), even, GREY, dash="dash", width=1.8, end=f"independent, n = {n}"
    )


def _title(found: Accumulation, even: float, n: int) -> str:
    end = found.at(n, found.most)
    title = f"After {found.most} tasks {tables.percent(end)} are revealed at n = {n}"
    if not end:
        return f"After {found.most} tasks nothing private is revealed"
    return f"{title}; if leaks did not repeat themselves it would be {tables.percent(even)}"


def _counts(found: Accumulation) -> str:
    return (
        f"share of {tables.count(found.attributes)} private attributes (inappropriate somewhere) of {_people(found)}, "
        f"{tables.count(found.flows)} flows, all orders of tasks alike; 95 % band over "
        f"{'users' if found.curves.profiles >= 5 else 'attributes (too few users)'}"
    )


def _people(found: Accumulation) -> str:
    return f"{found.curves.profiles} user{'' if found.curves.profiles == 1 else 's'}"


def _short(name: str) -> str:
    return name if len(name) <= 18 else f"{name[:17]}…"


def _table(frame: pd.DataFrame, asked: Scope) -> None:
    columns: dict[str, tables.Column | tuple[tables.Column, str]] = {
        "n": ("number", "n"),
        "tasks": ("count", "Tasks done"),
        "share": ("percent", "Revealed"),
        "low": ("percent", "95 % low"),
        "high": ("percent", "95 % high"),
        "independent": ("percent", "Independent"),
        "one_user": ("percent", "The user"),
        "hazard": ("percent", "Hazard"),
        "growing": ("count", "Users with such a task"),
        "profiles": ("count", "Users"),
    }
    shown = {name: kind for name, kind in columns.items() if name in frame.columns}
    tables.table(frame, key=f"accumulation.table.{asked.run.id}", columns=shown, alt="The curves, one row a point")

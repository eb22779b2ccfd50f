"""Part of the Accumulation page: the tasks of one user as a table, and presenter's mode."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories.analysis.flows import Scope
from cimemories.analysis.one_user import OneUser
from cimemories.ui import exports, presenter, safe, tables, url
from cimemories.ui.presenter import Dropped, Show, Slide
from pages.explore.accumulation_curves import about


def draw_presenter(asked: Scope, user: OneUser) -> None:
    """The button that begins, or the presentation itself where the URL says so; in the URL while it is open."""
    most = max(user.curves)
    slides = [
        Slide(
            step.recipient,
            step.task,
            step.share,
            float(user.expected[most][step.number]),
            step.judged,
            [
                Dropped(
                    _plain(item.key),
                    safe.clip(item.statement, safe.FOLD),
                    f"{item.reveals} of {item.draws} messages",
                )
                for item in step.leaks
            ],
        )
        for step in user.steps
    ]
    key = f"accumulation.presenter.{asked.run.id}.{user.profile}"
    show = Show(user.name, asked.run.name, user.attributes, most, slides, "simulated" if asked.simulated else "")
    begun = presenter.presenter(show, key=key, open_at=url.get_int("present"))
    if begun is not None:
        url.put(present=0 if begun else None)
        if begun:
            url.put(user=user.profile)


def draw_tasks(asked: Scope, user: OneUser) -> None:
    frame = user.frame()
    most = max(user.curves)
    safe.heading(f"{user.name}: {user.leaked} of {user.attributes} private attributes leak in {len(user.steps)} tasks")
    shown = frame.assign(now=frame[f"share_{most}"])
    shown.index = pd.Index([f"{user.profile}.{step.context}" for step in user.steps])
    picked = tables.table(
        shown,
        key=f"accumulation.tasks.{asked.run.id}",
        columns={
            "task": ("count", "Task"),
            "recipient": ("text", "Recipient"),
            "words": ("wide", "What is asked for"),
            "private": ("count", "Private here"),
            "judged": ("count", "Judged"),
            "newly_leaked": ("count", "Newly leaked"),
            "leaked": ("count", "Leaked so far"),
            "now": ("percent", f"Share at n = {most}"),
            "names": ("wide", "Names"),
        },
        on_select="row",
        alt=f"The tasks of {user.name} in their order",
    )
    left, right = st.columns([8, 1])
    with left:
        safe.inline("Choose a row to read the messages of the task.", muted=True)
    with right:
        exports.buttons(
            f"tasks-{asked.run.id}-{user.profile}",
            frame.assign(user=user.name, order=str(user.order)),
            fig=None,
            key=f"accumulation.tasks.{asked.run.id}.{user.profile}",
            simulated=bool(asked.simulated),
            about=about(asked),
        )
    if picked is not None:
        step = user.steps[picked]
        first = step.leaks[0].attribute if step.leaks else None
        url.go(
            "leaks",
            run=asked.run.id,
            judge=url.get("judge"),
            profile=user.profile,
            context=step.context,
            attribute=first,
        )


def _plain(key: str) -> str:
    return key.replace("_", " ")

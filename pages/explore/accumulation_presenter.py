"""Presenter mode of Accumulation: one user's tasks, one by one, full screen, controlled by keys alone.

Space plays and pauses, the arrow keys (and Page up, Page down of a remote control) go one task back and forth, Home and
End to either end, Escape leaves. All of it happens in the browser (assets/presenter.js), which gets the slides once and
reports when it starts and ends. No text of the data is ever read as markup there."""

from __future__ import annotations

import streamlit as st

from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.leaks.presentation import Leaks, closing, definitions, first_messages, leaks_of, quote, story
from cimemories.metrics import sentences
from cimemories.metrics.one_user import NewLeak, OneUser
from cimemories.text import simulated_text, visible_in
from cimemories.ui import component, safe, url

WORST = "worst"
_component = component("presenter")


def draw(flows: Flows, scope: Scope, user: OneUser, single: bool) -> None:
    """Draw the button that starts it, or the presentation itself while the URL asks for it. single: with the first
    message of each task alone."""
    key = f"accumulation.presenter.{scope.run.id}.{user.profile}"
    moved = (st.session_state.get(key) or {}).get("moved")
    if isinstance(moved, dict):  # a browser may send anything
        if moved.get("open"):
            url.put(present=0, user=user.profile, stops=WORST if moved.get("worst") else None)
        else:
            url.replace(present=None, stops=None)
    open_at = url.get_int("present")
    # Quotes are in the messages, which take a while to read: they are read while the first slide is shown.
    leaks = leaks_of(flows, scope, user.profile) if single or open_at is not None else {}
    shown = first_messages(user, leaks) if single else user
    slides = [
        {
            "recipient": step.recipient,
            "task": step.task,
            "share": step.share,  # of the attributes, revealed so far
            "expected": float(shown.expected_share[step.number]),  # the mean of that over all orders
            "judged": step.judged,  # messages: without any, the slide says so instead of "nothing new"
            "dropped": [
                _dropped(leak, leaks, step.context, single)
                for leak in sorted(step.leaks, key=lambda leak: -leak.reveals)  # told most often first
            ],
        }
        for step in shown.steps
    ]
    data = {
        "user": shown.name,
        "run": scope.run.name,
        "attributes": shown.attributes,  # the fixed denominator of the shares
        "messages": sentences.any_message(shown),
        "slides": slides,
        "story": story(shown),  # on the first slide
        "definitions": definitions(shown),  # below it
        "closing": closing(shown),  # on the last
        "mark": simulated_text(scope.simulated),
        "open": open_at,
        "worst": url.get("stops") == WORST,  # whether it stops at the worst tasks alone
    }
    url.leave_to_component("present", "stops")  # a reload stays on its slide
    # The empty callback registers "moved": Streamlit drops browser values under a name without one.
    _component(key=key, data=visible_in(data), on_moved_change=lambda: None)


def _dropped(leak: NewLeak, leaks: Leaks, context: int, single: bool) -> dict[str, str]:
    return {
        "name": leak.key.replace("_", " "),
        "statement": safe.clip(leak.statement, safe.FOLD),
        "revealed": "" if single else f"{leak.reveals} of {leak.draws} messages",
        "quote": safe.clip(quote(leaks, context, leak.attribute), safe.FOLD),
    }

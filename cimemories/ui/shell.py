"""What the browser does for the whole app, in one component at the end of each run (assets/shell.js): it puts defaults
into the address without a step for Back, focuses the field that asks for a name, and says whether the screen is a
phone's."""

from __future__ import annotations

import streamlit as st

from cimemories.ui import annotator, component, url

_component = component("shell")
_KEY, _PHONE = "shell.component", "shell.phone"


def is_phone() -> bool:
    """Whether the screen is too narrow for two maps beside each other: as the browser said last. False in the first run
    of a session, which then runs once more."""
    return st.session_state.get(_PHONE) is True


def _measured() -> None:
    st.session_state[_PHONE] = bool((st.session_state.get(_KEY) or {}).get("phone"))


def draw() -> None:
    """Hand the browser what this run has changed. Once a run, whatever became of the page."""
    before, after, steps = url.unsent()
    data = {
        "named": bool(annotator.name()),
        "before": before,
        "after": after,
        "steps": steps,
        "phone": is_phone(),
    }
    with st.container(key="shell"):
        _component(key=_KEY, data=data, on_phone_change=url.durable(_measured))

"""The browser's part of the app, in one component at the end of each run (assets/shell.js): it puts defaults into the
address without a step for Back, focuses the field that asks for a name, scrolls to the top of another view, reloads the
page after a login or log-out in another tab, and reports the width of the screen."""

from __future__ import annotations

from urllib.parse import urlsplit

import streamlit as st

from cimemories.ui import annotator, component, login, url

_component = component("shell")
_KEY, _SCREEN = "shell.component", "shell.screen"
_TOPS = "shell.tops"  # how often the session has asked for the top of the page
_COOKIE = "cimemories_screen"  # as assets/shell.js
WIDE, LAPTOP, NARROW, TABLET, PHONE = "wide", "laptop", "narrow", "tablet", "phone"  # widths as in assets/shell.js


def screen() -> str:
    """Return the width of the screen as the browser last reported it, in this session or by its cookie: WIDE; LAPTOP,
    NARROW and TABLET if long titles of charts do not fit into a line; PHONE if two maps have no room beside each other.
    WIDE before the first report: the page then runs once more."""
    said = st.session_state.get(_SCREEN) or st.context.cookies.get(_COOKIE)
    return said if said in (LAPTOP, NARROW, TABLET, PHONE) else WIDE


def is_phone() -> bool:
    """Return whether the screen is too narrow for two maps beside each other."""
    return screen() == PHONE


def to_top() -> None:
    """Scroll to the top of this run's page: another view of the same page would keep the scroll position of the one
    before."""
    st.session_state[_TOPS] = st.session_state.get(_TOPS, 0) + 1


def draw() -> None:
    """Hand the browser the changes of this run. Once a run, even if the page failed."""

    def measured() -> None:
        st.session_state[_SCREEN] = (st.session_state.get(_KEY) or {}).get("screen")

    before, after, steps = url.unsent()
    data = {
        "named": bool(annotator.name()),
        "before": before,
        "after": after,
        "path": urlsplit(st.context.url or "").path.rstrip("/"),
        "steps": steps,
        "screen": screen(),
        "login": st.context.cookies.get(login.CHANGED),
        "tops": st.session_state.get(_TOPS, 0),
    }
    with st.container(key="shell"):
        _component(key=_KEY, data=data, on_screen_change=url.durable(measured))

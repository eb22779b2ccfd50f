"""What the browser does for the whole app, in one component at the end of each run (assets/shell.js): it remembers the
person's name, puts defaults into the address without a step for Back, and focuses the field that asks for a name."""

from __future__ import annotations

import streamlit as st

from cimemories.ui import annotator, component, url

_component = component("shell")


def draw() -> None:
    """Hand the browser what this run has changed. Once a run, whatever became of the page."""
    before, after = url.unsent()
    data = {
        "cookie": annotator.COOKIE,
        "name": "" if annotator.account() else annotator.name(),
        "before": before,
        "after": after,
    }
    with st.container(key="shell"):
        _component(key="shell.component", data=data)

"""How wide the screen is, as the pages know it."""

from __future__ import annotations

import pytest
import streamlit as st

from cimemories.ui import shell


def test_the_first_run_of_a_session_draws_for_the_screen_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    cookies: dict[str, str] = {}
    session: dict[str, str] = {}
    monkeypatch.setattr(type(st.context), "cookies", property(lambda _: cookies))
    monkeypatch.setattr(st, "session_state", session)
    assert shell.screen() == shell.WIDE, "nothing is known of the screen"
    cookies["cimemories_screen"] = shell.PHONE
    assert shell.screen() == shell.PHONE and shell.is_phone()
    session["shell.screen"] = shell.WIDE  # the window is a larger one now
    assert shell.screen() == shell.WIDE
    session.clear()
    cookies["cimemories_screen"] = "<script>"
    assert shell.screen() == shell.WIDE, "a cookie is anybody's word"

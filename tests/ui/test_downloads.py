"""Files that a page has written for a download."""

from __future__ import annotations

import gc

import pytest
import streamlit as st

from cimemories.ui import exports


def test_a_written_file_goes_with_the_next_one_and_with_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(st, "session_state", session := {})
    first, other = exports.path_for("report", "a.html"), exports.path_for("dataset", "b.zip")
    for path in (first, other):
        path.write_bytes(b"1")
    second = exports.path_for("report", "c.html")
    second.write_bytes(b"2")
    assert not first.parent.exists() and second.is_file() and other.is_file()
    session.clear()
    gc.collect()
    assert not second.parent.exists() and not other.parent.exists()

"""Where a person is in the matrix or a list, when the address lags behind their moves."""

from __future__ import annotations

from typing import Any

import pytest
import streamlit as st

from cimemories.ui import matrix

A, B, C, D = (1, 9), (2, 9), (3, 9), (4, 9)
Place = tuple[int, int]


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    state: dict[str, Any] = {}
    monkeypatch.setattr(st, "session_state", state)
    return state


def run(state: dict[str, Any], named: Place, moved: Place | None = None, among: tuple[int, ...] = (1, 2, 3, 4)) -> Any:
    """A run of the page, whose address names a place; where the person is by their moves. moved: since the last run."""
    number = state.get("key.moves", 0) + 1
    state["key"] = {"chosen": moved and {"attribute": moved[0], "context": moved[1], "moves": number}}
    return matrix._chosen("key", named, among, (9,))


def test_an_address_of_before_is_no_way_back(state: dict[str, Any]) -> None:
    assert run(state, A) is None
    assert run(state, A, moved=B) == B
    assert run(state, A) == B, "the run for the next press came with the address of before"
    assert run(state, A, moved=C) == C
    assert run(state, B) == C, "late, too"
    assert run(state, C) is None
    assert run(state, A) is None, "the address had caught up: this is Back"


def test_a_link_counts_and_what_is_not_shown_does_not(state: dict[str, Any]) -> None:
    assert run(state, A, moved=B) == B
    assert run(state, D) is None
    assert run(state, A) is None
    assert run(state, A, moved=B, among=(1, 3)) is None, "a filter has hidden it"

"""What a click brings about survives that another click ends its callback midway, wherever that is.

Streamlit ends a run, callbacks included, wherever it next touches the session's state or the address.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
import streamlit as st
from test_presses import Ended, State

from cimemories.ui import annotator, presses, url

ROOT = Path(__file__).resolve().parents[2]
OURS = [ROOT / "app.py", *sorted(ROOT.glob("pages/*/*.py")), *sorted((ROOT / "cimemories" / "ui").glob("*.py"))]
HARMLESS = {
    *("st.login", "st.logout"),  # Streamlit's own
    "lambda: None",  # of components, whose state is read in the run
    "self.stopped.set",  # ui/once.py: a flag of a thread, nothing of the session
    "opened",  # ui/exports.py: warms up the maker of images, and touches nothing of the session
    "on_select",  # tables.table hands its own on, which is no function
}


class Touched:
    """The state of a session and its address: a run is ended at its touch number `ends`."""

    def __init__(self) -> None:
        self.touches, self.ends = 0, -1
        self.state, self.address = State(self), State(self)  # type: ignore[arg-type]

    def touch(self) -> None:
        self.touches += 1
        if self.touches == self.ends:
            raise Ended


@contextmanager
def session() -> Iterator[Touched]:
    own = Touched()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(st, "session_state", own.state)
        patch.setattr(st, "query_params", own.address)
        patch.setattr(annotator, "account", lambda: "")
        yield own


def put(own: Touched) -> None:
    url.put(domain=own.state["widget"])


def choose(own: Touched) -> None:
    annotator.set_name(own.state["widget"])


def press(own: Touched) -> None:
    presses.press("keys", "a")


def after(own: Touched) -> object:
    """What a choice of the address, of a name, and the press of a button come to."""
    held = own.state.data.get("keys.held")
    name = own.state.data.get(annotator.KEY), own.state.data.get("who.box")
    return own.address.data, name, held and held.buttons


@pytest.mark.parametrize("do", [put, choose, press])
def test_what_is_ended_anywhere_is_done_in_the_next_run(do: Callable[[Touched], None]) -> None:
    with session() as own:
        own.state.data["widget"] = "health"
        do(own)
        wanted = after(own)
    for ends in count(1):
        with session() as own:
            own.state.data["widget"] = "health"
            callback = url.durable(do)
            own.touches, own.ends = 0, ends
            try:
                callback(own)
                whole = True
            except Ended:
                whole = False
            own.ends = -1
            url.catch_up()
            url.catch_up()
            assert after(own) == wanted, f"ended at touch {ends}"
        if whole:
            break
    assert ends > 2, "there are places to be ended at"


def test_what_fails_is_not_tried_for_ever() -> None:
    with session() as own:
        with pytest.raises(KeyError):
            url.durable(put)(own)
        url.catch_up()
        assert own.address.data == {}


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_every_callback_is_durable_or_touches_nothing(path: Path) -> None:
    """`url.durable(...)`, a list's `append`, a name given one of these, or what is no callback at all."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    safe = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and "durable" in ast.unparse(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    given = [(k.arg, k.value) for node in nodes if isinstance(node, ast.Call) for k in node.keywords]
    for node in nodes:
        if isinstance(node, ast.Dict):
            given += [(k.value, v) for k, v in zip(node.keys, node.values, strict=True) if isinstance(k, ast.Constant)]
    for name, value in given:
        if not re.fullmatch(r"on_(\w+_)?(click|change|select|stop)", str(name)):
            continue
        text = ast.unparse(value)
        fine = text.startswith("url.durable(") or text.endswith(".append") or text in safe | HARMLESS
        values = (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)
        constant = all(isinstance(part, ast.Constant) for part in values)
        assert fine or constant, f"{path.name}: {name}={text}"

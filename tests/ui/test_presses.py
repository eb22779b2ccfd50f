"""Presses on Leaks against runs that are ended in their midst: whatever ends them, each press is done once.

Streamlit ends a run, for the sake of the next press, wherever it next touches the session's state or the address. Here
every one of these places is tried.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import pytest
import streamlit as st
from hypothesis import example, given
from hypothesis import strategies as some
from worlds import add_dataset, add_labels, add_run

from cimemories.flows.flows import Flows
from cimemories.flows.labels import INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import resolve_scope
from cimemories.leaks import basket
from cimemories.leaks.examples import Examples, examples
from cimemories.store.engine import open_store
from cimemories.ui import presses
from pages.explore import leaks_gallery
from pages.explore.leaks_message import Browsed

KEYS = "jjakjajjaakja"
World = tuple[Browsed, Examples]


class Ended(BaseException):
    """What Streamlit raises in a run that is over: no Exception, so that nobody catches it."""


class State(MutableMapping[str, Any]):
    """The session's state or the address: the run is ended at its touch number `ends`."""

    def __init__(self, session: Session) -> None:
        self.session, self.data = session, dict[str, Any]()

    def __getitem__(self, key: str) -> Any:
        self.session.touch()
        return self.data[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.session.touch()
        self.data[key] = value

    def __delitem__(self, key: str) -> None:
        self.session.touch()
        del self.data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def to_dict(self) -> dict[str, Any]:
        return dict(self.data)

    def from_dict(self, values: dict[str, Any]) -> None:
        self.session.touch()
        self.data = dict(values)


class Session:
    """A browser tab on the gallery: its log of presses, and runs of the page."""

    def __init__(self, browsed: Browsed, examples: Examples) -> None:
        self.browsed, self.examples, self.ids = browsed, examples, examples.page({}, 0, None)["id"].tolist()
        self.log: list[dict[str, Any]] = []
        self.numbers, self.sends, self.touches, self.ends = count(1), count(1), 0, -1
        self.state, self.address = State(self), State(self)
        self.at: str | None = None
        self.runner = threading.current_thread()
        self.store = browsed.flows.store

    def touch(self) -> None:
        self.touches += 1
        if self.touches == self.ends or threading.current_thread() not in (self.runner, threading.main_thread()):
            raise Ended

    def press(self, keys: str) -> None:
        self.log = self.log + [{"seq": next(self.numbers), "key": key} for key in keys]
        self.state.data[leaks_gallery.KEY] = {"log": {"tab": "tab", "sent": next(self.sends), "presses": self.log}}

    def run(self, ends: int = -1) -> bool:
        """One run; whether it came to its end. ends: the number of the touch that it is ended at."""
        self.touches, self.ends, self.runner = 0, ends, threading.current_thread()  # one that runs still is over
        try:
            self.at = leaks_gallery.current(self.browsed, self.examples, self.ids)
        except Ended:
            return False
        finally:
            self.ends = -1
        acked = self.state.data[f"{leaks_gallery.KEY}.held"].acked.get("tab", 0)
        self.log = [press for press in self.log if press["seq"] > acked]
        return True

    def outcome(self) -> tuple[str | None, list[str]]:
        """Where the presses led, and what they put into the basket."""
        return self.at, [item.id for item in basket.items(self.store, "basket")]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    store = open_store(tmp_path_factory.mktemp("presses"))
    shape = (1, 5, 4)
    data = add_dataset(store, *shape)
    labels = np.full(shape, INAPPROPRIATE)
    labels[:, 0] = NECESSARY
    add_labels(store, data.id, labels)
    run_id = add_run(store, data.id, 2, np.full(shape, 2))
    flows = Flows(store)
    scope = resolve_scope(store, run_id)
    found = examples(flows, [scope])
    assert found.number == 16
    return Browsed(flows, {run_id: scope}, None), found


@contextmanager
def session(world: World) -> Iterator[Session]:
    """A new one, with the gallery opened and the basket empty."""
    own = Session(*world)
    basket.change(own.store, "basket", lambda _: ())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(st, "session_state", own.state)
        patch.setattr(st, "query_params", own.address)
        patch.setattr(leaks_gallery, "name", lambda: own.state.get("whose", "basket"))
        assert own.run()
        yield own


def expected(ids: list[str], keys: str) -> tuple[str, list[str]]:
    at, inside = 0, list[str]()
    for key in keys:
        if key == "a":
            inside = [i for i in inside if i != ids[at]] if ids[at] in inside else [*inside, ids[at]]
        else:
            at = min(max(at + (1 if key == "j" else -1), 0), len(ids) - 1)
    return ids[at], inside


def test_a_run_that_is_ended_anywhere_loses_no_press_and_takes_none_twice(world: World) -> None:
    for ends in count(1):
        with session(world) as own:
            before = own.address.to_dict()
            own.press(KEYS)
            whole = own.run(ends)
            own.address.from_dict(before)  # the browser sends the address that it had when the key went down
            own.press("j")
            assert own.run()
            assert own.outcome() == expected(own.ids, KEYS + "j"), f"ended at touch {ends}"
        if whole:
            break
    assert ends > 10, "there are many places to be ended at"


@example([("j", 10, False), ("", 16, False)])  # ended before the address, then a run without a press
@given(some.lists(some.tuples(some.text("jka", max_size=6), some.integers(1, 40), some.booleans()), max_size=6))
def test_so_does_any_row_of_runs_that_are_ended_anywhere(world: World, pressed: list[tuple[str, int, bool]]) -> None:
    with session(world) as own:
        first = own.address.to_dict()
        for keys, ends, button in pressed:
            if button and keys:
                presses.press(leaks_gallery.KEY, keys[0])
                own.run(ends)
                keys = keys[1:]
            if keys:
                own.address.from_dict(first)
                own.press(keys)
            own.run(ends)
        assert own.run()
        assert own.outcome() == expected(own.ids, "".join(keys for keys, *_ in pressed))


def test_a_run_that_begins_while_the_one_before_is_still_at_it_takes_nothing_twice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session(world) as own:
        inside, go_on, real = threading.Event(), threading.Event(), basket.change

        def slow(*how: Any) -> Any:
            inside.set()
            assert go_on.wait(20)
            return real(*how)

        monkeypatch.setattr(basket, "change", slow)
        own.press("ja")
        runs = [threading.Thread(target=own.run) for _ in range(2)]
        runs[0].start()
        assert inside.wait(20)
        own.press("j")
        runs[1].start()
        runs[1].join(0.3)
        go_on.set()
        for run in runs:
            run.join(20)
        assert own.run()
        assert own.outcome() == expected(own.ids, "jaj")

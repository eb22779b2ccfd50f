"""A button that works once, however often it is clicked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import streamlit as st
from paging import double_click
from streamlit.testing.v1 import AppTest

from cimemories.ui import once

HOSTILE = "![x](http://127.0.0.1:1/a.png) <img src=x onerror=alert(1)>"


class Rerun(BaseException):
    """What ends a run of a page, in place of Streamlit's."""


def pressed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A session in which every button named 'go' is clicked: what two overlapping runs both see."""
    state: dict[str, Any] = {}

    def rerun() -> None:
        raise Rerun

    patched = {"session_state": state, "button": lambda label, *, key, **_: key == "go", "rerun": rerun}
    for name, value in patched.items():
        monkeypatch.setattr(st, name, value)
    return state


def draw(do: Callable[[], object], then: Callable[[Any], object]) -> None:
    once.button("Go", do, then, key="go")


def test_two_runs_that_both_see_the_click_do_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pressed(monkeypatch)
    at_it, finish = threading.Event(), threading.Event()
    done: list[str] = []
    led: list[object] = []

    def do() -> str:
        at_it.set()
        assert finish.wait(20)
        done.append("done")
        return "result"

    def run(ends: list[type[BaseException]]) -> None:
        try:
            draw(do, led.append)
        except BaseException as end:
            ends.append(type(end))

    ends: list[type[BaseException]] = []
    first, second = (threading.Thread(target=run, args=(ends,)) for _ in range(2))
    first.start()
    assert at_it.wait(20)
    second.start()
    second.join(0.2)
    assert second.is_alive(), "it waits for the first"
    finish.set()
    first.join(20)
    second.join(20)
    assert (done, led, ends) == (["done"], ["result"], [Rerun, Rerun])
    draw(do, led.append)  # another button now, which nobody has clicked
    assert done == ["done"]


def test_what_fails_can_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pressed(monkeypatch)
    tried = SimpleNamespace(times=0)

    def do() -> None:
        tried.times += 1
        if tried.times == 1:
            raise ValueError("not now")

    with pytest.raises(ValueError, match="not now"):
        draw(do, print)
    with pytest.raises(Rerun):
        draw(do, lambda _: None)
    assert tried.times == 2


def test_what_is_led_to_survives_that_a_second_click_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pressed(monkeypatch)
    led: list[object] = []

    def then(result: object) -> None:
        led.append(result)
        if len(led) == 1:
            raise Rerun  # by the second click

    with pytest.raises(Rerun):
        draw(lambda: "result", then)
    once.url.catch_up()
    assert led == ["result", "result"]
    once.url.catch_up()
    assert len(led) == 2


def page() -> None:
    import streamlit as st

    from cimemories.ui import once

    made = st.session_state.setdefault("made", [])
    once.button("Make", lambda: made.append(len(made)), key="make")
    st.text(f"{len(made)} made")


def test_after_the_page_is_drawn_anew_the_button_works_again_and_an_old_click_does_not() -> None:
    app = AppTest.from_function(page).run()
    double_click(app, app.button[0])
    assert app.text[0].value == "1 made"
    app.button[0].click().run()
    assert app.text[0].value == "2 made"


def interrupted() -> None:
    import streamlit as st

    from cimemories.ui import once

    if st.session_state.pop("ends", False):
        st.stop()  # in place of the browser's next message, which ends a run
    label = st.session_state.get("label", "Make")
    made = st.session_state.setdefault("made", [])
    once.button(label, lambda: made.append(label), key="make", disabled=st.session_state.get("disabled", False))


@pytest.mark.parametrize(
    ("meanwhile", "made"), [({}, ["Make"]), ({"label": "Make all"}, []), ({"disabled": True}, [])], ids=str
)
def test_the_next_run_does_what_was_clicked_where_the_button_still_means_it(
    meanwhile: dict[str, object], made: list[str]
) -> None:
    app = AppTest.from_function(interrupted).run()
    app.session_state["ends"] = True
    app.button[0].click().run()
    assert app.session_state["made"] == []
    for name, value in meanwhile.items():
        app.session_state[name] = value
    app.run()
    assert app.session_state["made"] == made
    app.run()
    assert app.session_state["made"] == made, "once"


def test_a_click_that_no_button_has_taken_is_forgotten_at_the_end_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    state = pressed(monkeypatch)
    state["once.presses"] = [("stop", 0, "Stop")]
    done: list[str] = []
    once.forget()
    once.button("Stop", lambda: done.append("stopped"), key="stop")
    assert not done


def test_the_bar_of_a_job_shows_names_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streamlit reads the text beside a bar as markdown, and a judge may be called anything."""
    shown: list[str] = []
    monkeypatch.setattr(st, "progress", lambda share, text: shown.append(text))
    go_on = threading.Event()

    def compute(report: once.Report) -> int:
        report(0.5, HOSTILE)
        assert go_on.wait(20)
        return 7

    job = once.Job(compute)
    assert not job.done(0.2)
    job.draw()
    assert "img src" in shown[0] and "![x](http:" not in shown[0]
    go_on.set()
    assert job.done(20) and job.result() == 7


def test_what_is_computed_is_kept_by_its_name_unless_it_failed() -> None:
    begun: list[str] = []

    def compute(report: once.Report) -> int:
        begun.append("once")
        if len(begun) == 1:
            raise ValueError("not now")
        return len(begun)

    with pytest.raises(ValueError, match="not now"):
        once.job("test.kept", compute).result()
    assert [once.job("test.kept", compute).result() for _ in range(3)] == [2, 2, 2]


def test_the_pace_is_that_of_the_last_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(st, "session_state", {})
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(once, "time", SimpleNamespace(monotonic=lambda: clock.now))
    assert once.pace("run", 0, 100, "calls") == ""
    clock.now = 10.0
    assert once.pace("run", 50, 100, "calls") == "5.0 calls a second, about 10 s left"
    clock.now = 25.0
    assert once.pace("run", 80, 100) == "2.0 a second, about 10 s left"

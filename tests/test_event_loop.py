"""A signal while a coroutine runs: it is cancelled and cleans up, and no task of a library is cut in the middle."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from cimemories import event_loop


def interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM])
def number(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that interrupts, as the command line has it."""
    number: signal.Signals = request.param
    before = signal.signal(number, interrupt)
    yield number
    signal.signal(number, before)


async def cut_at(number: signal.Signals, ended: list[str]) -> None:
    """Is sent the signal while a task that nobody awaits is running."""

    async def library() -> None:
        os.kill(os.getpid(), number)
        time.sleep(0.01)  # the signal has arrived by then
        ended.append("library")

    nobody_awaits = asyncio.create_task(library())
    try:
        await asyncio.sleep(30)
        ended.append("slept")
    finally:
        await asyncio.sleep(0)
        ended.append("cleaned up")
        del nobody_awaits


def test_a_signal_cancels_the_coroutine_and_cuts_no_other_task(
    number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []
    with caplog.at_level(logging.DEBUG, "asyncio"), pytest.raises(KeyboardInterrupt):
        event_loop.run(cut_at(number, ended))
    assert ended == ["library", "cleaned up"]
    assert "never retrieved" not in caplog.text
    assert signal.getsignal(number) is interrupt


def test_a_signal_at_the_end_of_the_coroutine_is_not_lost(number: signal.Signals) -> None:
    async def last() -> int:
        os.kill(os.getpid(), number)
        return 1

    with pytest.raises(KeyboardInterrupt):
        event_loop.run(last())
    assert signal.getsignal(number) is interrupt


def test_a_signal_that_the_program_ignores_changes_nothing() -> None:
    async def answer() -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
        return 7

    seen: list[int] = []

    def count(number: int, _frame: object) -> None:
        seen.append(number)

    before = signal.signal(signal.SIGTERM, count)
    try:
        assert event_loop.run(answer()) == 7
        assert (seen, signal.getsignal(signal.SIGTERM)) == ([signal.SIGTERM], count)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_what_the_coroutine_raises_is_raised() -> None:
    async def fails() -> None:
        raise ValueError("no")

    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(ValueError, match="no"):
        event_loop.run(fails())
    with pytest.raises(asyncio.CancelledError):
        event_loop.run(cancelled())


def test_it_runs_in_any_thread() -> None:
    async def answer() -> int:
        return 7

    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(event_loop.run(answer())))
    thread.start()
    thread.join()
    assert answers == [7]

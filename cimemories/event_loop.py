"""`asyncio.run` for a program that a signal may stop at any moment."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine and return its result. If a handler of SIGINT or SIGTERM raises KeyboardInterrupt, the
    coroutine is cancelled, and the exception is raised here once the coroutine has cleaned up.

    asyncio does so for Python's own handler of SIGINT only. An exception from another handler would end whichever
    callback is running: in a library's task that is never awaited, asyncio prints its traceback at the end. Outside the
    main thread, where no handler runs, this is `asyncio.run`."""
    interrupted = False
    cancel: Callable[[], object] | None = None  # once the coroutine runs

    def deferring(handler: Callable[[int, Any], object]) -> Callable[[int, Any], None]:
        def handle(number: int, frame: object) -> None:
            nonlocal interrupted
            try:
                handler(number, frame)
            except KeyboardInterrupt:
                interrupted = True
                if cancel:
                    cancel()

        return handle

    async def watched() -> T:
        nonlocal cancel
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def cancel_it() -> None:
            with suppress(RuntimeError):  # the loop is closed: the coroutine has ended
                loop.call_soon_threadsafe(task.cancel)

        cancel = cancel_it
        if interrupted:  # while the loop was being made
            cancel_it()
        return await coroutine

    before = _handlers()
    for number, handler in before.items():
        signal.signal(number, deferring(handler))
    try:
        result = asyncio.run(watched())
    except asyncio.CancelledError:
        if not interrupted:
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if interrupted:  # even if the coroutine had just ended: the code after it must not run
        raise KeyboardInterrupt
    return result


def _handlers() -> dict[signal.Signals, Callable[[int, Any], object]]:
    """Return the program's signal handlers except Python's own, which asyncio knows."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    return {
        number: handler
        for number, handler in handlers.items()
        if callable(handler) and handler is not signal.default_int_handler
    }

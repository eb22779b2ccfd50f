"""A run that a notebook starts and waits for."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from cimemories.cli import output
from cimemories.cli.runs import JudgeOptions, run_spec
from cimemories.cli.work import find_labels, progress
from cimemories.evaluation import planning, runs
from cimemories.evaluation.estimates import require_fit
from cimemories.evaluation.spec import BY_FILE
from cimemories.flows import catalogue
from cimemories.metrics.headline import warm
from cimemories.model import WorkStatus
from cimemories.store import work
from cimemories.store.engine import Store, StoreError
from cimemories.text import count

if TYPE_CHECKING:
    from cimemories.llm.executor import Progress

_locks: dict[str, threading.Lock] = {}  # by the id of a run, held by the thread that works on it


def run(
    store: Store,
    settings: Mapping[str, Any],
    judges: JudgeOptions,
    concurrency: int,
    *,
    allow_too_long: bool,
    shown: bool,
) -> str:
    """Plan a run, or find the one that was planned alike, and do what it owes; returns its id. settings: as of a
    RunSpec. Raises what `Workspace.run` says."""
    if settings["base_url"] in BY_FILE or settings.get("assistant") == "tasks":
        raise StoreError("batch files have no server to wait for. Use `cimemories run --base-url batch`.")

    def plan() -> str:
        spec = run_spec(settings, judges)
        find_alike = planning.planned_alike(store, spec, find_labels)

        def alike(connection: sa.Connection) -> str | None:
            row = find_alike(connection)
            return None if row is None or (spec.fresh and row.status is WorkStatus.FINISHED) else row.id

        with store.read() as connection:
            there = alike(connection)
        require = None if allow_too_long else require_fit
        # Once more where it is written: the same may have been asked for at the same moment.
        return there or planning.plan(store, spec, find_labels=find_labels, instead=alike, require=require)

    return _waited(store, plan, concurrency, shown)


def resume(store: Store, run_id: str, concurrency: int, shown: bool) -> None:
    """Do what a run owes. Raises what `Workspace.run` says."""
    _waited(store, lambda: run_id, concurrency, shown)


def _waited(store: Store, plan: Callable[[], str], concurrency: int, shown: bool) -> str:
    # A database that goes away for a moment must not end a run of many hours.
    store, ids, stopped = store.patient(), list[str](), threading.Event()

    def work_on() -> None:
        run_id = plan()
        ids.append(run_id)
        # Of threads with one run the first works on it: a second claim would take it out of the first one's hands.
        with _locks.setdefault(run_id, threading.Lock()):
            if catalogue.run_of(store, run_id).status is WorkStatus.FINISHED or stopped.is_set():
                return
            # In a notebook without ipywidgets rich would ask for them by a warning.
            can_draw = not output.err.is_jupyter or find_spec("ipywidgets") is not None
            bar: Any = progress(store, run_id) if shown and can_draw else nullcontext()
            with bar as report:
                on_progress: Callable[[Progress], None] | None = report
                runs.execute(store, run_id, concurrency=concurrency, on_progress=on_progress)
            warm(store, run_id)

    if _loop_is_running():
        _in_thread(store, work_on, ids, stopped)
    else:
        work_on()
    with store.read() as connection:
        result = work.outcome(connection, ids[0])
    if result.missing:
        text = f"{ids[0]}: {result.missing:,} of {count(result.planned, 'message')} missing or incomplete"
        warnings.warn(f"{text}. Call it again to retry what failed.", stacklevel=4)
    return ids[0]


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _in_thread(store: Store, task: Callable[[], None], ids: list[str], stopped: threading.Event) -> None:
    """Do it in a thread of its own, and wait. A notebook has an event loop in its main thread, where a second one,
    which the work needs, cannot run."""
    errors, ended = list[BaseException](), threading.Event()

    def guarded() -> None:
        try:
            task()
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=guarded, name="cimemories-run")
    thread.start()
    try:
        # Not join(): before Python 3.13 one that is interrupted takes the thread for ended, and a second does not wait.
        ended.wait()
    except KeyboardInterrupt:
        # The interrupt reaches the main thread alone. Paused, calls in flight end and are kept; while it is still being
        # planned there is nothing to pause.
        stopped.set()
        with suppress(StoreError):
            for run_id in ids:
                catalogue.pause(store, run_id)
        ended.wait()
        raise
    thread.join()
    if errors:
        raise errors[0]

"""Tasks that begin at the same moment, each in a process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cimemories.store.engine import open_store

if TYPE_CHECKING:
    from conftest import Database

# Every process is forked from a clean one that has only imported what they all need: it holds no lock, no connection.
# What is not imported there, each of them would import by itself, with the file of its test: 1.2 s of the processor.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "pytest",
        "hypothesis",
        "psycopg",
        "scipy.stats",
        "typer.testing",
        "cimemories.cli.base",
        "cimemories.evaluation.sweeps.work",
        "cimemories.exchange.freezing",
        "cimemories.review.queue",
        "cimemories.simulator.server",
    ]
)
PATIENCE = 120  # seconds; only a hang gets there


def together(
    database: Database, tasks: list[tuple[Callable[..., Any], tuple[Any, ...]]], *, opened: bool = True
) -> list[Any]:
    """What each task returned; each runs in a process of its own and begins at the same moment."""
    barrier, answers = PROCESSES.Barrier(len(tasks)), PROCESSES.Queue()
    arguments = [(database.workspace, database.url, barrier, answers, opened, i, *t) for i, t in enumerate(tasks)]
    processes = [PROCESSES.Process(target=_one, args=a, daemon=True) for a in arguments]
    for process in processes:
        process.start()
    try:
        results = dict(answers.get(timeout=PATIENCE) for _ in processes)
    finally:
        for process in processes:
            process.join(10)
            process.kill()
    return [results[i] for i in range(len(tasks))]


def _one(
    workspace: Path,
    url: str | None,
    barrier: Barrier,
    answers: Queue[Any],
    opened: bool,
    number: int,
    task: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    try:
        store = open_store(workspace, url) if opened else None
        barrier.wait(PATIENCE)
        answers.put((number, task(store or open_store(workspace, url), *arguments)))
    except BaseException as error:
        answers.put((number, f"{type(error).__name__}: {error}"))

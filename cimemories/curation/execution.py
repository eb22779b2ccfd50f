"""Doing labellings and generations: what is owed is asked for by one process, and continued by any other."""

from __future__ import annotations

from collections.abc import Callable

from cimemories.curation.authoring import GenerationSource, conclude
from cimemories.curation.labelling import LabellingSource
from cimemories.evaluation.costs import capped
from cimemories.llm import worker
from cimemories.llm.engines import Engine
from cimemories.llm.executor import Progress
from cimemories.model import WorkKind
from cimemories.store import work
from cimemories.store.engine import Store


def execute(
    store: Store,
    work_id: str,
    *,
    base_url: str | None = None,
    concurrency: int = 32,
    on_progress: Callable[[Progress], None] | None = None,
    queued: bool = False,
    engine: Engine | None = None,
) -> Progress:
    """Ask for the remaining votes of a labelling, or write what remains of a generation and make its dataset; wait
    until it is done, or has paid its cap on cost.

    base_url: replaces the recorded address. engine: as of `worker.perform`. Raises what that raises, and WorkError for
    a generation in which parts failed (a resume asks again) or without a usable attribute.
    """
    generates = work.kind_of(work_id) is WorkKind.GENERATION
    source = GenerationSource(work_id, base_url) if generates else LabellingSource(work_id, base_url)
    progress = worker.perform(
        store,
        work_id,
        source,
        concurrency=concurrency,
        on_progress=on_progress,
        queued=queued,
        stop_when=capped(store, work_id, owes=lambda: bool(source.owes(store)), queued=queued),
        engine=engine,
    )
    if generates:
        conclude(store.patient(), work_id)
    return progress

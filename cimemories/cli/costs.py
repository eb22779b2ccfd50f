"""What work would cost, and what it has cost, as commands print it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cimemories.cli import output
from cimemories.store.engine import Store

if TYPE_CHECKING:
    from cimemories.evaluation.estimates import StageEstimate
    from cimemories.evaluation.spec import RunSpec

COLUMNS = (
    ("stage", False),
    ("model", False),
    ("draws", True),
    ("recorded", True),
    ("requests", True),
    ("prompt tokens", True),
    ("cacheable", True),
    ("completion tokens", True),
    ("cost", True),
)


def estimated(store: Store, spec: RunSpec, concurrency: int) -> None:
    """Print what a run would come to; nothing is started."""
    from cimemories.analysis.effective_labels import effective_labels
    from cimemories.evaluation.estimates import estimate

    found = estimate(store, spec, find_labels=effective_labels, concurrency=concurrency)
    stages(found.stages)
    output.line(f"responses  {found.responses:,} in {found.places:,} pairs of profile and context")
    output.line(f"requests   {found.requests:,}; {found.recorded:,} of {found.draws:,} draws are in the record already")
    output.line(
        f"tokens     about {found.prompt_tokens:,} of prompts, {found.cacheable:,} of them a beginning that a cache "
        f"can serve, and {found.completion_tokens:,} of completions"
    )
    output.line(f"cost       {found.cost_words}")
    output.line(f"time       {duration(found.seconds)} with {concurrency} requests at once")
    for text in found.notes:
        output.note(f"note: {text}")
    if found.warning:
        output.note(f"warning: {found.warning}")


def stages(found: Sequence[StageEstimate]) -> None:
    """A table of the stages of an estimate."""
    output.table(COLUMNS, [_row(stage) for stage in found], whole=True)


def _row(stage: StageEstimate) -> list[object]:
    from cimemories.evaluation.prices import money

    low, high = stage.cost_least, stage.cost_most
    same = low == high or low is None or high is None
    return [
        stage.title,
        stage.model,
        f"{stage.draws:,}",
        f"{stage.recorded:,}",
        f"{stage.requests:,}",
        f"{stage.prompt_tokens:,}",
        f"{stage.cacheable:,}",
        f"{stage.completion_tokens:,}" if stage.completion_known else f"<= {stage.completion_tokens:,}",
        money(high) if same else f"{money(low)}-{money(high)}",
    ]


def duration(seconds: float | None) -> str:
    """A time for people: 40 s, 12 min, 3.5 h; 'not known' for None."""
    if seconds is None:
        return "not known"
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"

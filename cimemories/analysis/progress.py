"""How far a run or a labelling has come, as a page or a script asks for it again and again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from cimemories.model import ResponseStatus, WorkStatus
from cimemories.store import judgements, runs, work
from cimemories.store.engine import Store

ACTIVE = (WorkStatus.QUEUED, WorkStatus.RUNNING, WorkStatus.PAUSING, WorkStatus.CANCELLING)


@dataclass(frozen=True)
class RunProgress:
    """Counts of one run at one moment. Rate and time left are of settled responses and judgements since its start."""

    status: WorkStatus
    error: str | None
    expected: int
    answered: int
    missing: int
    judged: int
    unjudged: int
    failures: tuple[tuple[str, str, str, int], ...]
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    worker: str

    @property
    def active(self) -> bool:
        return self.status in ACTIVE


def run_progress(store: Store, run_id: str) -> RunProgress:
    """Where a run stands now. Raises StoreError where it is gone."""
    with store.read() as connection:
        row = runs.named(connection, run_id)
        owner = work.load(connection, run_id)
        failures = tuple(runs.failures(connection, run_id))
        prompt, cached, completion = runs.tokens(connection, run_id)
        judge = judgements.of_run(connection, run_id)
    owed = row.responses.get(ResponseStatus.OWED, 0)
    answered = row.responses.get(ResponseStatus.OK, 0)
    settled = sum(row.judgements.values())
    place = f"process {owner['pid']} on {owner['host']}" if owner["pid"] else "no worker"
    return RunProgress(
        status=row.status,
        error=row.error,
        expected=row.expected,
        answered=answered,
        missing=row.expected - owed - answered,
        judged=row.judged,
        unjudged=settled - row.judged,
        failures=failures,
        prompt_tokens=prompt,
        cached_tokens=cached,
        completion_tokens=completion,
        worker=f"{place}, judge {', '.join(j.name for j in judge)}",
    )


def seconds_since(stamp: str) -> float:
    """Seconds from a time of the record until now."""
    then = datetime.fromisoformat(stamp)
    return max(0.0, (datetime.now(UTC) - then).total_seconds())


def in_words(seconds: float) -> str:
    """A duration as a person says it: '45 s', '3 min', '2 h 10 min'."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"

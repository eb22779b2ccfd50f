"""Progress of a run, stage by stage, for pages and scripts that poll it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.evaluation.costs import Cost, cost_of
from cimemories.flows.scope import judge_title
from cimemories.model import JudgementStatus, ResponseStatus, WorkStatus
from cimemories.store import judgements, runs, work
from cimemories.store.engine import Store
from cimemories.store.judgements import JudgeRow
from cimemories.store.runs import IMPORTED, ModelCalls, RunRow
from cimemories.store.tables import judgement, response

ACTIVE = (WorkStatus.QUEUED, WorkStatus.RUNNING, WorkStatus.PAUSING, WorkStatus.CANCELLING)
RESUMABLE = (WorkStatus.PAUSED, WorkStatus.INTERRUPTED, WorkStatus.CANCELLED, WorkStatus.FAILED)
GATE, DRAFT, MESSAGES, JUDGE, CHECK = "gate", "draft", "messages", "judge", "check"
# Statuses that another attempt may change; the other ways to be missing are the model's own.
RETRIED = (ResponseStatus.FAILED, ResponseStatus.OWED)


@dataclass(frozen=True)
class Stage:
    """One stage of a run. kind: gate, draft, messages, judge or check; name: of its judge, empty for the model itself.

    expected: what the stage has to do as far as is known now (only an answered message is judged); done: what is there;
    missing: what was tried and is missing for now. retried: of these, what failed and can be asked for again.
    """

    kind: str
    name: str
    expected: int
    done: int
    missing: int = 0
    retried: int = 0

    @property
    def settled(self) -> int:
        return min(self.done + self.missing, self.expected)

    @property
    def share(self) -> float:
        """Settled over expected, 0 to 1; 0 where nothing is expected yet."""
        return self.settled / self.expected if self.expected else 0.0


@dataclass(frozen=True)
class RunProgress:
    """One run at one moment. responses: planned responses by status; unjudged: answered ones without a judgement by
    some judge; failures: (stage, status, cause, count); errors: by cause of failed calls what the server or the network
    said of one, empty while the run is active; error: why it ended early; slowed: what slows it down while it is
    active, '' for nothing; cost: what its calls have used, by kind and model, and cost so far.

    imported: it was read from a file, so its messages cannot be asked for again.
    """

    status: WorkStatus
    error: str | None
    slowed: str
    stages: tuple[Stage, ...]
    responses: Mapping[str, int]
    unjudged: int
    failures: tuple[tuple[str, str, str, int], ...]
    errors: Mapping[str, str]
    cost: Cost
    worker: str
    imported: bool
    revision: int

    @property
    def active(self) -> bool:
        return self.status in ACTIVE

    @property
    def expected(self) -> int:
        return sum(self.responses.values())

    @property
    def settled(self) -> int:
        return sum(stage.settled for stage in self.stages)

    @property
    def to_settle(self) -> int:
        """Units that all stages have to do together, as far as is known now."""
        return sum(stage.expected for stage in self.stages)

    @property
    def retriable(self) -> int:
        """Units that one more attempt would ask for: failed and owed messages, and missing judgements."""
        messages = 0 if self.imported else sum(self.responses.get(status, 0) for status in RETRIED)
        answered = self.responses.get(ResponseStatus.OK, 0)
        judging = [stage for stage in self.stages if stage.kind in (JUDGE, CHECK)]
        # Neither done nor missing: not yet tried. Of the missing only those that failed can be asked for again.
        return messages + sum(max(0, answered - s.done - s.missing + s.retried) for s in judging)


def run_progress(store: Store, run_id: str) -> RunProgress:
    """Return the progress of a run now. Raises StoreError where it is gone."""
    with store.read() as connection:
        row = runs.by_id(connection, run_id)
        owner = work.load(connection, run_id)
        failures = tuple(runs.failures(connection, run_id))
        # Not every second while it runs: it reads all calls of the run.
        errors = runs.call_errors(connection, run_id) if failures and row.status not in ACTIVE else {}
        calls = runs.calls_by_kind(connection, run_id)
        readers = judgements.of_run(connection, run_id)
        checkers = judgements.checkers_of_run(connection, run_id)
        settled = _by_judge(connection, run_id)
    answered = row.responses.get(ResponseStatus.OK, 0)
    stages = [*_before(row, calls), _messages(row)]
    # No judge waits for messages that are missing for good, or until they are asked for again.
    awaited = row.expected - stages[-1].missing
    for kind, judges in ((JUDGE, readers), (CHECK, checkers)):
        stages += [_reading(kind, judge, judges, settled.get(judge.id, {}), awaited) for judge in judges]
    return RunProgress(
        status=row.status,
        error=None if row.status in ACTIVE else row.error,
        slowed=(row.error or "") if row.status in ACTIVE else "",
        stages=tuple(stages),
        responses=row.responses,
        # By the judge that is furthest behind.
        unjudged=max((answered - settled.get(j.id, {}).get(JudgementStatus.OK, 0) for j in readers), default=0),
        failures=failures,
        errors=errors,
        cost=cost_of(store, run_id),
        worker=f"process {owner['pid']} on {owner['host']}" if owner["pid"] else "no worker",
        imported=row.endpoint == IMPORTED,
        revision=row.revision,
    )


def _by_judge(connection: sa.Connection, run_id: str) -> dict[int, dict[str, int]]:
    """Count the judgements of every judge and checker of a run, by status."""
    counts: dict[int, dict[str, int]] = {}
    for judge_id, status, count in connection.execute(
        sa.select(judgement.c.judge, judgement.c.status, sa.func.count())
        .join(response, judgement.c.response == response.c.id)
        .where(response.c.run == run_id)
        .group_by(judgement.c.judge, judgement.c.status)
    ):
        counts.setdefault(int(judge_id), {})[str(status)] = int(count)
    return counts


def _before(row: RunRow, calls: Mapping[str, ModelCalls]) -> list[Stage]:
    """Return the stage of a mitigation that goes before the messages: draws of its calls."""
    kind = row.manifest.mitigation.kind
    if kind not in ("gate", "rewrite"):
        return []
    # Under a rewrite the calls of kind respond make the drafts.
    stage, of = (GATE, "gate") if kind == "gate" else (DRAFT, "respond")
    made = calls.get(of)
    failed = made.failed if made else 0
    return [Stage(stage, "", row.expected, (made.calls if made else 0) - failed, failed)]


def _messages(row: RunRow) -> Stage:
    answered, waiting = (row.responses.get(status, 0) for status in (ResponseStatus.OK, ResponseStatus.OWED))
    missing = row.expected - waiting - answered
    return Stage(MESSAGES, "", row.expected, answered, missing, row.responses.get(ResponseStatus.FAILED, 0))


def _reading(kind: str, judge: JudgeRow, among: list[JudgeRow], settled: Mapping[str, int], awaited: int) -> Stage:
    done = settled.get(JudgementStatus.OK, 0)
    missing = sum(settled.values()) - done
    return Stage(kind, judge_title(judge, among), awaited, done, missing, settled.get(JudgementStatus.FAILED, 0))

"""Runs by batch file: what a run owes goes out as one request a line, and the answers come back into the record.

    exported = export_batch(store, "run-3f9a1c2e", Path("owed.jsonl"))   # then vllm run-batch, or a Batch API
    imported = import_batch(store, "run-3f9a1c2e", Path("answers.jsonl"))

The requests are those that a worker would send, and the answers are settled by the same code; only no server is asked
here. What follows from an answer (its judgement, the message behind a gate) is owed afterwards and goes out with the
next file. Calls without an answer stay owed, so a worker can take over at any time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import sqlalchemy as sa

from cimemories.access.roles import Role
from cimemories.evaluation.runs import Addresses, jobs_by_unit, judges_of
from cimemories.formats.batch_files import BatchAnswer, batch_answers, request_line
from cimemories.llm.assistants import FailedCall, outcome_text
from cimemories.llm.client import Client, refusal
from cimemories.llm.endpoint import Endpoint
from cimemories.llm.executor import Job, Task, all_jobs, settled
from cimemories.llm.identity import origin_of
from cimemories.llm.replies import REFUSED, cause_of
from cimemories.llm.source import Unit
from cimemories.model import ChatRequest, WorkStatus
from cimemories.store import calls, runs, work
from cimemories.store.calls import OK, Answer, Wanted, canonical_body, request_body
from cimemories.store.engine import Store, StoreError, content_hash, now
from cimemories.store.judgements import JudgeRow
from cimemories.store.runs import RunRow
from cimemories.store.tables import call
from cimemories.store.team import log

# Jobs of one look-up and of one transaction; between two of them others can write.
AT_ONCE = 64
NAMED = 5  # custom_ids named in a message; the others are counted
OWED = "answers of a batch are awaited"
Fresh = Callable[[Job, Mapping[int, str]], list[Answer]]


@dataclass
class BatchExported:
    """lines: requests written. kinds, models: how many of each. elsewhere: left out, since another model is asked."""

    lines: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    elsewhere: int = 0


@dataclass
class BatchImported:
    """settled: calls that got an answer; failed: by cause; errors: in the words of the file; there: lines recorded
    before; unknown: lines of no call of the run, the first few in `unknown_ids`; repeated: lines with a custom_id of
    one before; owed: calls that are owed now."""

    settled: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    there: int = 0
    unknown: int = 0
    unknown_ids: tuple[str, ...] = ()
    repeated: int = 0
    owed: int = 0


def export_batch(
    store: Store, run_id: str, path: Path, *, model: str | None = None, replace: bool = False
) -> BatchExported:
    """Write every call that a run owes to a file, one draw a line; what the record answers is settled on the way.
    model: write only requests to it, since one model answers a batch. Raises StoreError for a run that is missing or at
    work, and for a path that is taken."""
    if path.exists() and not (replace and path.is_file()):
        raise StoreError(f"{path}: something of that name is there. Choose another --out, or for a file say --replace.")
    result = BatchExported()
    written: set[str] = set()
    # In the same folder: a rename is atomic only within a file system, so no reader sees half a file.
    draft = path.with_name(f".{path.name}.part")
    with _at_work(store, run_id) as (store, row):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("w", encoding="ascii", newline="\n") as stream:
                for job, owed in _walk(store, row, lambda job, owed: []):
                    for draw, key in owed.items():
                        # Two jobs may ask for the same call; a batch would answer and charge it twice.
                        if key in written:
                            continue
                        written.add(key)
                        if model is not None and job.request.model != model:
                            result.elsewhere += 1
                            continue
                        body = request_body(job.request)
                        if job.request.seed is not None:
                            body["seed"] = job.request.seed + draw
                        stream.write(request_line(key, body))
                        result.lines += 1
                        result.kinds[job.kind] += 1
                        result.models[job.request.model] += 1
            if result.lines:
                draft.replace(path)
        except OSError as error:
            raise StoreError(
                f"{path}: cannot be written ({error.strerror or error}). Nothing was kept of it."
            ) from error
        finally:
            draft.unlink(missing_ok=True)
        _finish(store, run_id, len(written))
    return result


def import_batch(store: Store, run_id: str, path: Path) -> BatchImported:
    """Record the answers of a batch in a run; importing a file twice changes nothing. A line that failed is recorded,
    and its call stays owed. Raises FormatError before anything is written, and StoreError for a run that is missing or
    at work."""
    with batch_answers(path) as answers, _at_work(store, run_id) as (store, row):
        result = BatchImported(repeated=answers.repeated)
        used: set[str] = set()

        def exchange_of(key: str) -> str | None:
            with store.read() as connection:
                return connection.execute(sa.select(call.c.exchange).where(call.c.key == key)).scalar()

        def fresh(job: Job, owed: Mapping[int, str]) -> list[Answer]:
            assert isinstance(job.client, _FileClient)
            taken = []
            for draw, key in owed.items():
                if (line := answers.get(key)) is None:
                    continue
                used.add(key)
                answer = job.client.answer(line, job.request.model, draw, key)
                if not answer.ok and exchange_of(answer.key) == answer.exchange:  # this very failure
                    result.there += 1
                else:
                    taken.append(answer)
            result.settled += sum(answer.ok for answer in taken)
            result.failed.update(answer.status for answer in taken if not answer.ok)
            result.errors.update(f"{answer.status}: {answer.error}" for answer in taken if not answer.ok)
            return taken

        left = {key for _, owed in _walk(store, row, fresh) for key in owed.values()}
        # What failed in the file is taken, so it is not in `left`, and is owed all the same.
        result.owed = len(left) + sum(result.failed.values())
        # Lines that the run did not need were recorded before, or are of something else.
        rest = [key for key in answers.offsets if key not in used]
        with store.read() as connection:
            recorded = calls.answers_by_key(connection, rest)
        unknown = [key for key in rest if key not in recorded]
        result.there += len(recorded)
        result.unknown, result.unknown_ids = len(unknown), tuple(unknown[:NAMED])
        _finish(store, run_id, result.owed)
        log.note(store, "run.batch_imported", run_id, file=path.name, answers=result.settled)
    return result


class _FileClient(Client):
    """A client that sends nothing: a batch file answers."""

    async def complete(self, request: ChatRequest, keys: Mapping[int, str]) -> list[Answer]:
        raise NotImplementedError

    def answer(self, line: BatchAnswer, model: str, draw: int, key: str) -> Answer:
        """Return a line as the outcome of a draw. Its exchange is made of the line: the same line is known again."""
        # Made of the content, where a live exchange is drawn at random: importing the file again gives the same one.
        exchange = content_hash(["batch", key, line.id, line.status_code, line.failure])
        if line.failure:
            cause = cause_of(line.status_code, line.body or line.failure) if line.status_code else "batch error"
            answer = Answer(key, draw, cause, exchange, 0.0, now(), error=self.endpoint.short(line.failure))
            return refusal(answer) if cause == REFUSED else answer
        if isinstance(line.body, dict) and "key" in line.body:
            try:
                return Answer(key, draw, OK, exchange, 0.0, now(), content=outcome_text(line.body))
            except FailedCall as error:
                return Answer(key, draw, error.failure.cause, exchange, 0.0, now(), error=error.failure.error)
        read = self._answers(line.body, model, [draw], {draw: key}, 0.0, now())
        if not read:
            reason = "the answer has no choices with a message"
            return Answer(key, draw, "malformed", exchange, 0.0, now(), error=reason)
        return replace(read[draw], exchange=exchange)


def _walk(store: Store, row: RunRow, fresh: Fresh) -> Iterator[tuple[Job, dict[int, str]]]:
    """Go through all that a run owes and what follows from it; settle what the record or `fresh` answers, and yield
    every job with the draws (draw -> key) that have no answer."""
    with store.read() as connection:
        judges = judges_of(connection, row.id)
        profiles = runs.profile_ids(connection, row.id)
    clients: dict[tuple[Endpoint, bool], Client] = {}

    def client(endpoint: Endpoint, simulated: bool) -> Client:
        # It is unknown which server answers a batch, wherever the run was planned. What the record holds of the planned
        # server serves too.
        origin = origin_of(store, simulated, endpoint.server, endpoint.fresh)
        if origin.server is not None:
            origin = replace(origin, server=calls.BATCH, tied=(origin.server, *origin.tied))
        return clients.setdefault((endpoint, simulated), _FileClient(endpoint, simulated=simulated, origin=origin))

    planned = Addresses(row)
    jobs_in = jobs_by_unit(
        store, row, judges, client, lambda of: planned.planned(of) if isinstance(of, JudgeRow) else planned.of(of)
    )
    source = all_jobs(store, (job for profile in profiles for job in jobs_in(Unit(profile))))
    following: deque[Job] = deque()
    while True:
        # What follows goes before new jobs: else a run's judgements would all wait in memory.
        jobs = [following.popleft() for _ in range(min(AT_ONCE, len(following)))] or list(islice(source, AT_ONCE))
        if not jobs:
            return
        wanted = [Wanted(canonical_body(job.request), job.draws, job.client.origin(job.request.model)) for job in jobs]
        with store.read() as connection:
            recorded = calls.look_up(connection, wanted)
        outcomes: list[Task] = []
        for job, item, there in zip(jobs, wanted, recorded, strict=True):
            taken = fresh(job, there.owed) if there.owed else []
            if there.answers or taken:
                keys = tuple(there.owed.values())
                outcomes.append(Task(job, there.answers, there.owed, keys, item.body, item.origin, taken))
            answered = {answer.draw for answer in taken}
            if left := {draw: key for draw, key in there.owed.items() if draw not in answered}:
                yield job, left
        with store.write(Role.OPERATOR, relaxed=True) as connection:
            if outcomes:
                calls.keep_servers(connection, {item.origin.server for item in outcomes if item.fresh})
                following.extend(all_jobs(store, settled(connection, row.id, outcomes)))
            else:
                # No outcome, no write: without a heartbeat a long walk would look dead from another host.
                work.heartbeat(connection, row.id)


@contextmanager
def _at_work(store: Store, run_id: str) -> Iterator[tuple[Store, RunRow]]:
    """Claim the run for the block, and yield the store fenced by the claim and the run. What ends the block early
    leaves the run interrupted. Raises ClaimLost if another process has taken it over."""
    with store.write(Role.OPERATOR) as connection:
        row = runs.by_id(connection, run_id)
        own = store.fenced(work.claim(connection, run_id).hold)
    try:
        yield own, row
    # Another worker's run by now: its status is not ours to set.
    except work.ClaimLost:
        raise
    # BaseException, since Ctrl-C must not leave the run claimed either.
    except BaseException as error:
        with own.write(Role.OPERATOR) as connection:
            work.finish(connection, run_id, WorkStatus.INTERRUPTED, f"{type(error).__name__}: {error}")
        raise


def _finish(store: Store, run_id: str, owed: int) -> None:
    with store.write(Role.OPERATOR) as connection:
        if owed:
            work.finish(connection, run_id, WorkStatus.INTERRUPTED, f"{OWED}: {owed:,} calls are owed")
        else:
            work.finish_by_outcome(connection, run_id)

"""The one executor for all four kinds of call: planned -> owed -> run -> recorded.

It takes jobs (one request, several draws), serves from the record what is there, asks for the rest with bounded
concurrency, and commits each outcome together with what follows from it the moment it arrives. What follows may be
more jobs: a response that has just been recorded is judged at once, there is no barrier between stages. Killed at any
moment, it leaves only whole transactions; started again, it does only what is owed.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from cimemories.llm.client import FATAL, Client
from cimemories.model import ChatRequest
from cimemories.store import calls, work
from cimemories.store.calls import Answer
from cimemories.store.engine import Store

UNREACHABLE_IN_A_ROW = 10
COMMIT_AT_MOST = 64

Settle = Callable[[sa.Connection, Mapping[int, Answer]], Sequence["Job"]]


@dataclass(frozen=True)
class Job:
    """One request and the draws that are owed of it. `settle` writes what follows from the outcomes, inside the
    transaction that records them, and returns the jobs that come after."""

    kind: str
    client: Client
    request: ChatRequest
    draws: tuple[int, ...]
    settle: Settle


@dataclass
class Progress:
    """What one execution has done so far; counts are draws, not exchanges."""

    asked: int = 0
    reused: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    @property
    def done(self) -> int:
        return self.asked + self.reused


class Stopped(Exception):
    """The execution ended before its jobs did; what is owed stays owed. The message says why."""


class Executor:
    """Runs jobs for one piece of work (a run or a labelling)."""

    def __init__(
        self, store: Store, work_id: str, *, concurrency: int, on_progress: Callable[[Progress], None] | None = None
    ) -> None:
        self.store = store
        self.work_id = work_id
        self.concurrency = concurrency
        self.progress = Progress()
        self._on_progress = on_progress
        self._following: deque[Job] = deque()
        self._commits: asyncio.Queue[tuple[_Outcome, asyncio.Future[Sequence[Job]]]] = asyncio.Queue()
        self._unreachable = 0
        self._stop: str | None = None

    def stop(self, reason: str) -> None:
        """Take no further job, and drop the calls in flight: they stay owed."""
        self._stop = self._stop or reason

    async def run(self, jobs: Iterable[Job]) -> None:
        """Run all jobs and those that follow from them. Raises Stopped where it was told to stop or the server is gone,
        and whatever the record raises (a full disk, say) after the calls in flight have been dropped."""
        source = iter(jobs)
        writer = asyncio.create_task(self._write_commits())
        pending: set[asyncio.Task[Sequence[Job]]] = set()
        try:
            while True:
                self._fill(pending, source)
                if self._stop is not None:
                    raise Stopped(self._stop)
                if not pending:
                    return
                done, pending = await asyncio.wait(pending, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
                # All are looked at, also where several failed at once: one that nobody asks prints a traceback.
                for result in await asyncio.gather(*done, return_exceptions=True):
                    if isinstance(result, BaseException):
                        raise result
                    self._following.extend(result)
                if done and self._on_progress:
                    self._on_progress(self.progress)
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    def _fill(self, pending: set[asyncio.Task[Sequence[Job]]], source: Iterator[Job]) -> None:
        while len(pending) < self.concurrency and self._stop is None:
            job = self._following.popleft() if self._following else next(source, None)
            if job is None:
                return
            pending.add(asyncio.create_task(self._perform(job)))

    async def _perform(self, job: Job) -> Sequence[Job]:
        keys = calls.call_keys(job.request, job.draws, simulated=job.client.simulated)
        with self.store.read() as connection:
            held = calls.recorded(connection, keys)
        owed = {draw: key for draw, key in keys.items() if draw not in held}
        fresh = await job.client.complete(job.request, owed) if owed else []
        self._count(held, fresh)
        future: asyncio.Future[Sequence[Job]] = asyncio.get_running_loop().create_future()
        self._commits.put_nowait((_Outcome(job, held, fresh), future))
        return await future

    def _count(self, held: Mapping[int, Answer], fresh: Sequence[Answer]) -> None:
        progress = self.progress
        progress.reused += len(held)
        progress.asked += len(fresh)
        for answer in fresh:
            progress.prompt_tokens += answer.prompt_tokens or 0
            progress.cached_tokens += answer.cached_tokens or 0
            progress.completion_tokens += answer.completion_tokens or 0
            if not answer.ok:
                progress.failed[answer.status] += 1
            self._watch(answer)

    def _watch(self, answer: Answer) -> None:
        if answer.status in FATAL:
            self.stop(f"the server says: {answer.error} ({answer.status})")
        self._unreachable = self._unreachable + 1 if answer.status == "connection" else 0
        if self._unreachable >= UNREACHABLE_IN_A_ROW:
            self.stop(
                f"the server does not answer any more ({answer.error}); {self._unreachable} calls in a row failed. "
                "Start it again, then resume"
            )

    async def _write_commits(self) -> None:
        while True:
            batch = [await self._commits.get()]
            while len(batch) < COMMIT_AT_MOST and not self._commits.empty():
                batch.append(self._commits.get_nowait())
            outcomes = [outcome for outcome, _ in batch]
            commit = asyncio.get_running_loop().run_in_executor(None, self._commit, outcomes)
            try:
                # A commit that has begun is finished even while everything else is being cancelled.
                following = await asyncio.shield(commit)
            except asyncio.CancelledError:
                await asyncio.gather(commit, return_exceptions=True)
                raise
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), jobs in zip(batch, following, strict=True):
                if not future.done():
                    future.set_result(jobs)

    def _commit(self, outcomes: Sequence[_Outcome]) -> list[Sequence[Job]]:
        following = []
        with self.store.write() as connection:
            for outcome in outcomes:
                job = outcome.job
                answers = dict(outcome.held)
                if outcome.fresh:
                    answers |= calls.record(
                        connection,
                        job.request,
                        outcome.fresh,
                        kind=job.kind,
                        endpoint=job.client.endpoint.base_url,
                        simulated=job.client.simulated,
                    )
                following.append(job.settle(connection, answers))
            work.bump(connection, self.work_id)
        return following


@dataclass(frozen=True)
class _Outcome:
    job: Job
    held: Mapping[int, Answer]
    fresh: Sequence[Answer]

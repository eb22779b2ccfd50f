"""The one executor for all kinds of call: planned -> owed -> run -> recorded.

It takes jobs (one request, several draws), serves from the record what is there, asks for the rest with bounded
concurrency, and commits outcomes together with what follows from them, within moments of their arrival. What follows
may be more jobs: a response that has just been recorded is judged at once, there is no barrier between stages. Killed
at any moment, it leaves only whole transactions; started again, it does only what is owed.

Outcomes do not depend on concurrency, nor on the order in which they come: what a job asks is fixed before it runs, and
what follows from it depends on its own outcomes alone.

The record is read and written in threads: while a database is away the calls in flight go on, and what they bring is
written once it is back.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Generic, TypeVar

import sqlalchemy as sa

from cimemories.llm.client import FATAL, Client
from cimemories.llm.endpoint import EndpointError
from cimemories.model import ChatRequest, WorkKind
from cimemories.store import calls, work
from cimemories.store.calls import Answer, Exchange, Held, Origin, Wanted
from cimemories.store.engine import Store, canonical_json

# ---- openings
#
# Requests that begin alike: the first of them is asked alone, so that the server reads what they share only once.
#
# A profile's memories are thousands of tokens, the same for all of its contexts. A server that caches prefixes has them
# only after one request with them has been read: of requests that start together, each pays in full.


T = TypeVar("T")

LONG = 4000  # characters, about 1,000 tokens: from there on servers cache, and waiting for one request pays
AHEAD = 4  # for each place of the executor, so many requests may wait for an opening


def opening_of(text: str, shared: str) -> str | None:
    """What names the beginning of `text` up to the end of `shared`; None where it is too short to be worth a wait, or
    `shared` is not in the text."""
    start = text.find(shared)
    end = start + len(shared)
    return hashlib.sha256(text[:end].encode()).hexdigest() if start >= 0 and end >= LONG else None


class Openings(Generic[T]):
    """Which openings a server has read, and who waits until it has read another.

    places: how many requests are under way at most. `full` says that enough of them wait, and no further one is to be
    made ahead of its time.
    """

    def __init__(self, places: int) -> None:
        self._most = places * AHEAD
        self._waiting: dict[str, deque[T]] = {}  # by the openings that are being read
        self._read: set[str] = set()
        self._ready: deque[T] = deque()
        self._count = 0

    @property
    def full(self) -> bool:
        return self._count >= self._most

    @property
    def ready(self) -> int:
        return len(self._ready)

    def must_wait(self, opening: str | None, item: T) -> bool:
        """Whether `item` waits, because its opening is being read. The first of an opening reads it."""
        if opening is None or opening in self._read:
            return False
        if opening not in self._waiting:
            self._waiting[opening] = deque()
            return False
        self._waiting[opening].append(item)
        self._count += 1
        return True

    def has_read(self, opening: str | None) -> None:
        """A request with this opening has come back, well or not: those that waited for it can go."""
        if opening is not None and (waited := self._waiting.pop(opening, None)) is not None:
            self._read.add(opening)
            self._count -= len(waited)
            self._ready.extend(waited)

    def go(self, room: int, start: Callable[[T], None]) -> int:
        """Start at most `room` of those that can go, in the order in which they came; returns how many."""
        going = min(room, len(self._ready))
        for _ in range(going):
            start(self._ready.popleft())
        return going


# ---- progress
#
# What an execution has done so far, in all and by kind of call; counts are draws, not exchanges.


@dataclass
class Tally:
    """Draws that were asked for and those taken from the record, failures by cause, and the tokens of what was asked.

    Tokens are what the server said of each exchange; nothing is counted for an answer that was taken from the record.
    """

    asked: int = 0
    reused: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    @property
    def done(self) -> int:
        return self.asked + self.reused

    def add(self, reused: int, fresh: Sequence[Answer]) -> None:
        self.reused += reused
        self.asked += len(fresh)
        for answer in fresh:
            self.prompt_tokens += answer.prompt_tokens or 0
            self.cached_tokens += answer.cached_tokens or 0
            self.completion_tokens += answer.completion_tokens or 0
            if not answer.ok:
                self.failed[answer.status] += 1


@dataclass
class Progress(Tally):
    """The tally of all calls, and `by_kind` that of each kind (respond, judge, gate, ...) that there was."""

    by_kind: defaultdict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))

    def count(self, kind: str, held: Mapping[int, Answer], fresh: Sequence[Answer]) -> None:
        """Count the outcomes of one job: draws that the record held, and those that were asked for."""
        self.add(len(held), fresh)
        self.by_kind[kind].add(len(held), fresh)


# ---- executor


UNREACHABLE_IN_A_ROW = 10
UNREACHABLE = "the server does not answer any more"  # how the reason of such an end begins
COMMIT_AT_MOST = 64
LINGER_SECONDS = 0.01  # how long a commit waits for company: one for many answers costs little more than one for one

Settle = Callable[[sa.Connection, Mapping[int, Answer]], Sequence["Job"]]


@dataclass(frozen=True, slots=True)
class Job:
    """One request and the draws that are owed of it. `settle` writes what follows from the outcomes, inside the
    transaction that records them, and returns the jobs that come after.

    work_id: the run whose calls these are, where it is another than the executor's own. opening: what names a long
    beginning that the request shares with others; the first of them is asked alone (Openings).
    """

    kind: str
    client: Client
    request: ChatRequest
    draws: tuple[int, ...]
    settle: Settle
    work_id: str | None = None
    opening: str | None = None


class Stopped(Exception):
    """The execution ended before its jobs did; what is owed stays owed. The message says why."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    job: Job
    held: Mapping[int, Answer]
    fresh: Sequence[Answer]
    body: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class _Owed:
    job: Job
    held: Mapping[int, Answer]
    owed: Mapping[int, str]
    body: str
    origin: Origin


def _opening(job: Job) -> str | None:
    """The job's opening where it is read: another model, or the same one elsewhere, has a cache of its own."""
    return job.opening and f"{job.client.endpoint.base_url} {job.request.model} {job.opening}"


class Executor:
    """Runs jobs for one piece of work (a run, a labelling or a generation).

    `stop_when` is asked after each batch of outcomes; a text that it returns drains the executor for that reason.
    """

    def __init__(
        self,
        store: Store,
        work_id: str,
        *,
        concurrency: int,
        on_progress: Callable[[Progress], None] | None = None,
        stop_when: Callable[[Progress], str | None] | None = None,
    ) -> None:
        self._over = threading.Event()  # once set, nobody waits for the database any more
        self.store = replace(store, give_up=self._over)
        self.work_id = work_id
        self.concurrency = concurrency
        self.progress = Progress()
        self._on_progress = on_progress
        self._stop_when = stop_when
        self._following: deque[Job] = deque()
        self._outcomes: deque[_Outcome] = deque()
        self._openings: Openings[_Owed] = Openings(concurrency)
        self._under_way = 0  # jobs that have been taken and are not in the record yet
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrived = asyncio.Event()  # an outcome waits for its commit
        self._moved = asyncio.Event()  # something that the main loop has to look at
        self._exhausted = False
        self._unreachable = 0
        self._stop: str | None = None
        self._drain: str | None = None
        self._broken: BaseException | None = None

    def stop(self, reason: str) -> None:
        """Take no further job, and drop the calls in flight: they stay owed."""
        self._stop = self._stop or reason
        self._moved.set()

    def fail(self, error: BaseException) -> None:
        """The same, and `run` raises that error."""
        self._broken = self._broken or error
        self._moved.set()

    def drain(self, reason: str) -> None:
        """Take no further job, and let the calls in flight end and be recorded."""
        self._drain = self._drain or reason
        self._moved.set()

    async def run(self, jobs: Iterable[Job]) -> None:
        """Run all jobs and those that follow from them. Raises Stopped where it was told to stop or the server is gone,
        and whatever the record raises (a full disk, say) after the calls in flight have been dropped."""
        source = iter(jobs)
        writer = asyncio.create_task(self._write_commits())
        try:
            while True:
                await self._fill(source)
                if self._broken is not None:
                    raise self._broken
                if self._stop is not None:
                    raise Stopped(self._stop)
                if not self._under_way:
                    if self._drain is not None and (self._following or self._openings.ready or not self._exhausted):
                        raise Stopped(self._drain)
                    return
                await self._moved.wait()
                self._moved.clear()
        finally:
            self._over.set()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def _fill(self, source: Iterator[Job]) -> None:
        """Take jobs for all free places, and look all of them up in the record at once."""
        while self._under_way < self.concurrency and not self._is_ending():
            room = self.concurrency - self._under_way
            room -= self._openings.go(room, self._start)
            if not room or self._openings.full:
                return
            jobs = [self._following.popleft() for _ in range(min(room, len(self._following)))]
            wanted = 0 if self._exhausted else room - len(jobs)
            if not jobs and not wanted:
                return
            looked_up = await asyncio.to_thread(self._look_up, jobs, source, wanted)
            self._exhausted = self._exhausted or len(looked_up) - len(jobs) < wanted
            if not looked_up:
                continue  # the source has ended; a commit meanwhile may have brought jobs that follow
            if self._is_ending():  # said while they were looked up: they are not begun, and stay owed
                self._following.extendleft(item.job for item in reversed(looked_up))
                return
            for item in looked_up:
                self._begin(item)

    def _is_ending(self) -> bool:
        return bool(self._stop or self._drain or self._broken)

    def _look_up(self, jobs: Sequence[Job], source: Iterator[Job], wanted: int) -> list[_Owed]:
        """These jobs and at most `wanted` more of the source, each with what the record has of it. Runs in a thread."""
        jobs = [*jobs, *islice(source, wanted)]
        asked = [
            Wanted(canonical_json(calls.request_body(job.request)), job.draws, job.client.origin(job.request.model))
            for job in jobs
        ]
        held = self._held(asked) if jobs else []
        return [
            _Owed(job, there.answers, there.owed, item.body, item.origin)
            for job, item, there in zip(jobs, asked, held, strict=True)
        ]

    def _held(self, asked: Sequence[Wanted]) -> list[Held]:
        def recorded() -> list[Held]:
            with self.store.read() as connection:
                return calls.held(connection, asked)

        return self.store.retry(recorded)

    def _begin(self, item: _Owed) -> None:
        if not item.owed:
            self._under_way += 1
            self._arrive(_Outcome(item.job, item.held, (), item.body, item.origin))
        elif not self._openings.must_wait(_opening(item.job), item):
            self._start(item)

    def _start(self, asked: _Owed) -> None:
        self._under_way += 1
        task = asyncio.create_task(self._ask(asked))
        self._tasks.add(task)
        task.add_done_callback(self._asked)

    async def _ask(self, asked: _Owed) -> None:
        job = asked.job
        try:
            origin = await job.client.confirmed(job.request.model)
        except EndpointError as error:
            self.stop(str(error))
            return
        if origin != asked.origin:
            asked = await asyncio.to_thread(self._of, origin, asked)
        fresh = await job.client.complete(job.request, asked.owed) if asked.owed else []
        for answer in fresh:
            self._watch(answer)
        self._openings.has_read(_opening(job))
        self._arrive(_Outcome(job, asked.held, fresh, asked.body, asked.origin))
        self._moved.set()

    def _of(self, origin: Origin, asked: _Owed) -> _Owed:
        """The same where another server answers than was planned: its own answers serve, under its own keys."""
        (there,) = self._held([Wanted(asked.body, tuple(asked.owed), origin)])
        return _Owed(asked.job, {**asked.held, **there.answers}, there.owed, asked.body, origin)

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def _arrive(self, outcome: _Outcome) -> None:
        self.progress.count(outcome.job.kind, outcome.held, outcome.fresh)
        self._outcomes.append(outcome)
        self._arrived.set()

    def _watch(self, answer: Answer) -> None:
        if answer.status in FATAL:
            self.stop(f"the server says: {answer.error} ({answer.status})")
        self._unreachable = self._unreachable + 1 if answer.status == "connection" else 0
        if self._unreachable >= UNREACHABLE_IN_A_ROW:
            self.stop(
                f"{UNREACHABLE} ({answer.error}); {self._unreachable} calls in a row failed. "
                "Start it again, then resume"
            )

    async def _write_commits(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            if self._tasks and len(self._outcomes) < min(COMMIT_AT_MOST, self.concurrency // 2):
                await asyncio.sleep(LINGER_SECONDS)
            batch = [self._outcomes.popleft() for _ in range(min(COMMIT_AT_MOST, len(self._outcomes)))]
            if not self._outcomes:
                self._arrived.clear()
            commit = loop.run_in_executor(None, self.store.retry, partial(self._commit, batch))
            try:
                # A commit that has begun is finished even while everything else is being cancelled.
                following = await asyncio.shield(commit)
            except asyncio.CancelledError:
                await asyncio.gather(commit, return_exceptions=True)
                raise
            except Exception as error:
                self.fail(error)
                return
            self._following.extend(following)
            self._under_way -= len(batch)
            try:
                self._tell()
            except BaseException as error:
                self.fail(error)
                return
            self._moved.set()

    def _tell(self) -> None:
        if self._on_progress:
            self._on_progress(self.progress)
        reason = self._stop_when(self.progress) if self._stop_when else None
        if reason is not None:
            self.drain(reason)

    def _commit(self, outcomes: Sequence[_Outcome]) -> list[Job]:
        """Write outcomes and what follows from them in one transaction; returns the jobs that come after.

        Doing it twice changes nothing, so that a commit which was cut off is tried again as a whole.
        """
        following: list[Job] = []
        fresh = [outcome for outcome in outcomes if outcome.fresh]
        exchanges = [
            Exchange(
                o.job.request,
                o.fresh,
                o.job.kind,
                o.job.client.endpoint.base_url,
                o.job.client.simulated,
                o.body,
                o.origin.server,
                o.origin.fresh,
            )
            for o in fresh
        ]
        with self.store.write(relaxed=True) as connection:
            settled = dict(zip(map(id, fresh), calls.record_all(connection, exchanges), strict=True))
            calls.link(connection, self._used((o, o.fresh) for o in outcomes), asked=True)
            calls.link(connection, self._used((o, o.held.values()) for o in outcomes), asked=False)
            for outcome in outcomes:
                answers = {**outcome.held, **settled.get(id(outcome), {})}
                following.extend(outcome.job.settle(connection, answers))
            work.bump(connection, self.work_id)
        return following

    def _used(self, answered: Iterable[tuple[_Outcome, Iterable[Answer]]]) -> Iterator[tuple[str, str]]:
        """(run, call) for every call that a run used; a labelling or generation has its calls in its own rows."""
        for outcome, answers in answered:
            user = outcome.job.work_id or self.work_id
            if work.kind_of(user) is WorkKind.RUN:
                yield from ((user, answer.key) for answer in answers)

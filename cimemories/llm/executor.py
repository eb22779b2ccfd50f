"""The one executor for all kinds of call: planned -> looked up -> sent -> recorded.

It takes jobs (one request, several draws), reuses recorded answers, sends the rest with bounded concurrency, and
commits outcomes together with their consequences, within moments of their arrival. A consequence may be more jobs: a
response that has just been recorded is judged at once, there is no barrier between stages. Killed at any moment, it
leaves only whole transactions; started again, it does only what remains.

Outcomes do not depend on concurrency, nor on their order of arrival: a job's request is fixed before it runs, and its
consequences depend on its own outcomes alone.

The record is read and written in threads: while a database is away the calls in flight go on, and their answers are
written once it is back. Jobs that take long to make (`Deferred`: a memory system recalls) are made in threads too."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from itertools import chain
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from cimemories.llm.client import FATAL, Client
from cimemories.llm.endpoint import EndpointError
from cimemories.llm.http.traffic import Traffic, Trouble, troubles_text
from cimemories.model import ChatRequest, WorkKind
from cimemories.store import calls, work
from cimemories.store.calls import Answer, Exchange, Origin, Recorded, Wanted
from cimemories.store.engine import Store, StoreError

# ---- shared beginnings


T = TypeVar("T")

LONG = 4000  # characters, about 1,000 tokens: above this servers cache, and waiting for one request pays
AHEAD = 4  # requests that may wait for an opening, for each request that may be in flight


def opening_of(text: str, shared: str) -> str | None:
    """Return a name for the beginning of `text` up to the end of `shared`, or None if that is short, or `shared` is not
    in the text."""
    # By its beginning: Python prepares the search for a long text for longer than it searches.
    start = text.find(shared[:64])
    if start >= 0 and not text.startswith(shared, start):
        start = text.find(shared)
    end = start + len(shared)
    return _digest(text[:end]) if start >= 0 and end >= LONG else None


@lru_cache(maxsize=16)  # one after the other, the contexts of a profile begin alike
def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Openings(Generic[T]):
    """Requests with the same opening: the first of them is sent alone, so that the server reads the shared part only
    once.

    A profile's memories are thousands of tokens, the same in all of its contexts. A server that caches prefixes has
    them only after it has read one request with them: of requests that start together, each pays in full. full: enough
    requests wait, and no further one should be prepared."""

    def __init__(self, concurrency: int) -> None:
        self._most = concurrency * AHEAD
        self._waiting: dict[str, deque[T]] = {}  # by opening that is being read, the waiting ones
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
        """Return whether `item` waits, because its opening is being read. The first of an opening reads it."""
        if opening is None or opening in self._read:
            return False
        if opening not in self._waiting:
            self._waiting[opening] = deque()
            return False
        self._waiting[opening].append(item)
        self._count += 1
        return True

    def has_read(self, opening: str | None) -> None:
        """Start those that waited for this opening: a request with it has returned, answered or not."""
        if opening is not None and (waited := self._waiting.pop(opening, None)) is not None:
            # After a failure too: else its followers would wait for each other's requests to a server that is gone.
            self._read.add(opening)
            self._count -= len(waited)
            self._ready.extend(waited)

    def start_ready(self, room: int, start: Callable[[T], None]) -> int:
        """Start at most `room` of those that can start, in order of arrival; returns how many."""
        count = min(room, len(self._ready))
        for _ in range(count):
            start(self._ready.popleft())
        return count


# ---- progress


@dataclass
class Tally:
    """The progress of an execution, in draws. fresh: sent to a server; reused: taken from the record. failed:
    fresh ones by cause. Tokens are those reported for fresh draws. uncounted: answered exchanges without reported
    tokens."""

    fresh: int = 0
    reused: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0

    @property
    def done(self) -> int:
        return self.fresh + self.reused

    def add(self, reused: int, fresh: Sequence[Answer]) -> None:
        """Count the outcomes of one job: draws taken from the record, and those sent to a server."""
        self.reused += reused
        self.fresh += len(fresh)
        counted = {answer.exchange for answer in fresh if answer.prompt_tokens is not None}
        self.uncounted += len({answer.exchange for answer in fresh if answer.ok} - counted)
        for answer in fresh:
            self.prompt_tokens += answer.prompt_tokens or 0
            self.cached_tokens += answer.cached_tokens or 0
            self.completion_tokens += answer.completion_tokens or 0
            if not answer.ok:
                self.failed[answer.status] += 1

    def sum(self, other: Tally) -> None:
        """Add another tally."""
        for item in fields(Tally):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))


@dataclass
class Progress(Tally):
    """The tally of all calls, and `by_kind` that of each kind. troubles: current reasons for slow requests, by
    address."""

    by_kind: defaultdict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    troubles: dict[str, Trouble] = field(default_factory=dict)

    @property
    def slowed(self) -> str:
        """Return the reasons for slow work, as one line for people, or ''."""
        return troubles_text(self.troubles)

    def count(self, kind: str, recorded: Mapping[int, Answer], fresh: Sequence[Answer]) -> None:
        """Count for all calls and for those of this kind, as `add` does."""
        self.add(len(recorded), fresh)
        self.by_kind[kind].add(len(recorded), fresh)

    def include(self, other: Progress) -> None:
        """Add the progress of another execution."""
        self.sum(other)
        for kind, tally in other.by_kind.items():
            self.by_kind[kind].sum(tally)
        for address, trouble in other.troubles.items():
            self.troubles[address] = self.troubles.get(address, Trouble()) + trouble


# ---- executor


UNREACHABLE_IN_A_ROW = 5
FORBIDDEN_IN_A_ROW = 5
# The beginnings of reasons after which a later try may succeed.
UNREACHABLE, LIMITED = "the server no longer answers", "the server limits requests"
COMMIT_AT_MOST = 64

MAKING_AT_ONCE = 4  # deferred jobs, each made in a thread; a product may keep hundreds of megabytes for each
LAST_STEP_SECONDS = 1.0  # for these threads to reach a place where they can end

Settle = Callable[[sa.Connection, Mapping[int, Answer]], Sequence["Job | Deferred"]]


@dataclass(frozen=True, slots=True)
class Job:
    """One request and the draws wanted of it. `settle` writes the consequences of the outcomes, inside the transaction
    that records them, and returns the jobs that follow; with a method `settle_all` it does so for several jobs of one
    commit (scripts.Waiting). opening: names a long beginning that requests share (Openings)."""

    kind: str
    client: Client
    request: ChatRequest
    draws: tuple[int, ...]
    settle: Settle
    opening: str | None = None


@dataclass(frozen=True, slots=True)
class Deferred:
    """Jobs that take long to make without any call: a memory system recalls for a profile. make: yields them one by
    one, and among them functions that write in a transaction of their own."""

    make: Callable[[], Iterable[Job | Callable[[sa.Connection], None]]]

    def jobs(self, store: Store) -> Iterator[Job]:
        """Yield the jobs; run the writing functions on the way."""

        def write(item: Callable[[sa.Connection], None]) -> None:
            with store.write(relaxed=True) as connection:
                item(connection)

        for item in self.make():
            if isinstance(item, Job):
                yield item
            else:
                store.retry(partial(write, item))


def all_jobs(store: Store, items: Iterable[Job | Deferred]) -> Iterator[Job]:
    """Yield these jobs if nothing else is running: deferred ones are made in their place."""
    for item in items:
        yield from item.jobs(store) if isinstance(item, Deferred) else (item,)


class Stopped(Exception):
    """The execution ended before its jobs did; the rest can be resumed. The message says why."""


@dataclass(frozen=True, slots=True)
class Task:
    """A job with its recorded answers. remaining: the draws still to be sent, each with the key of its call. keys: of
    these as they were looked up, which no other job sends meanwhile. fresh: their answers."""

    job: Job
    recorded: Mapping[int, Answer]
    remaining: Mapping[int, str]
    keys: tuple[str, ...]
    body: str
    origin: Origin
    fresh: Sequence[Answer] = ()


def _opening(job: Job) -> str | None:
    """Return the job's opening at its server: another model, or the same one elsewhere, has a cache of its own."""
    return job.opening and f"{job.client.endpoint.base_url} {job.request.model} {job.opening}"


class Execution:
    """Work that takes orders: `Executor` here, the driver of an engine elsewhere. Subclasses look at their orders
    whenever `_moved` is set."""

    def __init__(self) -> None:
        self.progress = Progress()
        self._moved = asyncio.Event()  # there is something for the main loop
        self._stop: str | None = None
        self._drain: str | None = None
        self._broken: BaseException | None = None

    def ordered(self) -> bool:
        """Return whether it was told to end, in any way."""
        return bool(self._stop or self._drain or self._broken)

    def stop(self, reason: str) -> None:
        """Take no further job, and drop the calls in flight: they are sent again if the work is resumed."""
        self._stop = self._stop or reason
        self._moved.set()

    def fail(self, error: BaseException) -> None:
        """Stop as `stop` does, and have `run` raise that error."""
        self._broken = self._broken or error
        self._moved.set()

    def drain(self, reason: str) -> None:
        """Take no further job, and let the calls in flight end and be recorded."""
        self._drain = self._drain or reason
        self._moved.set()

    def look(self) -> None:
        """Bring `progress.troubles` up to date, and report them if they have changed."""


class Executor(Execution):
    """Runs jobs for one piece of work. stop_when: called after each batch of outcomes; a text that it returns drains
    the executor for that reason.

    unrecorded: the answers that may wait for their commit beside the requests in flight. Without it a slow commit
    leaves the server idle; with it a killed process may have to ask for that many answers again."""

    def __init__(
        self,
        store: Store,
        work_id: str,
        *,
        concurrency: int,
        unrecorded: int = 0,
        on_progress: Callable[[Progress], None] | None = None,
        stop_when: Callable[[Progress], str | None] | None = None,
    ) -> None:
        super().__init__()
        self._over = threading.Event()  # once set, no thread waits for the database any longer
        self.store = replace(store, give_up=self._over)
        self.work_id = work_id
        self.concurrency = concurrency
        self._most_under_way = concurrency + unrecorded
        self._on_progress = on_progress
        self._stop_when = stop_when
        self._following: deque[Job] = deque()
        self._deferred: deque[Deferred] = deque()  # not started yet
        self._making: set[threading.Thread] = set()
        self._made: deque[Job] = deque()  # by these threads
        self._outcomes: deque[Task] = deque()
        self._openings: Openings[Task] = Openings(concurrency)
        # Equal calls are sent once: a model at temperature 0 writes the same message five times, each to be judged.
        self._in_flight: dict[str, list[Job]] = {}  # by key of a call, the jobs that wait for its answer
        self._waiting = 0  # of these
        self._committed: set[str] = set()  # keys since the last look-up began, which may not have seen their answers
        self._under_way = 0  # jobs that were taken and are not recorded yet
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrived = asyncio.Event()  # an outcome waits for its commit
        self._exhausted = False
        self._traffic: dict[str, Traffic] = {}  # by address of the server
        # In a row, by server and model.
        self._unreachable: Counter[tuple[str, str]] = Counter()
        self._forbidden: Counter[tuple[str, str]] = Counter()
        self._served: set[tuple[str, str]] = set()  # these have answered

    async def run(self, jobs: Iterable[Job | Deferred]) -> None:
        """Run all jobs and those that follow from them. Raises Stopped on request or if the server is gone, and errors
        of the record (such as a full disk) once the calls in flight have been dropped."""
        source = iter(jobs)
        writer = asyncio.create_task(self._write_commits())
        try:
            while True:
                await self._fill(source)
                if self._broken is not None:
                    raise self._broken
                if self._stop is not None:
                    raise Stopped(self._stop)
                # Requests that wait for an opening need no test of their own: the one that reads it is under way.
                if not self._under_way:
                    wait = self._following or self._made or self._deferred or self._openings.ready
                    if self._drain is not None and (wait or self._making or not self._exhausted):
                        raise Stopped(self._drain)
                    if not self._making:
                        return
                await self._moved.wait()
                # Cleared before the next look, not after it: changes during the look set it again, and no wake-up
                # is lost.
                self._moved.clear()
        finally:
            # A thread cannot be cancelled, and would wait out a lost database. The writer goes last, after the tasks
            # that feed it.
            self._over.set()
            if self._making:
                await asyncio.to_thread(self._await_making)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            if self._outcomes and self._broken is None:
                # They are answered and paid for. If the record cannot be written, they are sent again.
                with suppress(sa.exc.DBAPIError, StoreError):
                    await asyncio.to_thread(self.store.retry, partial(self._commit, tuple(self._outcomes)))

    async def _fill(self, source: Iterator[Job | Deferred]) -> None:
        """Take as many jobs as may start now, and look all of them up in the record at once."""
        while not self.ordered():
            # Only this method takes jobs, and everything during the await below only makes more room: the numbers
            # computed here are never too large by then.
            room = min(self.concurrency - len(self._tasks), self._most_under_way - self._under_way)
            room -= self._openings.start_ready(room, self._start)
            if not room or self._openings.full or self._waiting >= self.concurrency * AHEAD:
                return
            # Following jobs go first: a response is judged before another one is started, which keeps that queue short.
            jobs = [self._following.popleft() for _ in range(min(room, len(self._following)))]
            jobs += [self._made.popleft() for _ in range(min(room - len(jobs), len(self._made)))]
            if len(jobs) < room:
                self._begin_making()
            # A source is not read further than the next deferred jobs: they hold a profile each.
            wanted = 0 if self._exhausted or self._deferred else room - len(jobs)
            if not jobs and not wanted:
                return
            # In a thread, because the record may be away for a minute: calls in flight have to go on meanwhile.
            self._committed.clear()
            looked_up = await asyncio.to_thread(self._look_up, jobs, source, wanted)
            if not looked_up:
                continue  # the source has ended or was put off; a commit meanwhile may have added following jobs
            if self.ordered():  # ordered during the look-up: they are put back, and not started
                self._following.extendleft(item.job for item in reversed(looked_up))
                return
            for item in looked_up:
                self._begin(item)

    def _begin_making(self) -> None:
        """Make deferred jobs, as many at once as allowed."""
        loop = asyncio.get_running_loop()
        while self._deferred and len(self._making) < MAKING_AT_ONCE:
            # Not of a pool: a recall that never returns would block look-ups, commits, and the process's end.
            thread = threading.Thread(target=self._make, args=(self._deferred.popleft(), loop), name="recall")
            thread.daemon = True
            self._making.add(thread)
            thread.start()

    def _make(self, deferred: Deferred, loop: asyncio.AbstractEventLoop) -> None:
        """Make deferred jobs in a thread, which ends after the next job once the execution is over."""

        def tell(what: Callable[..., None], *about: object) -> None:
            with suppress(RuntimeError):  # the loop is closed: the run has ended
                loop.call_soon_threadsafe(what, *about)

        def made_all(thread: threading.Thread) -> None:
            self._making.discard(thread)
            self._moved.set()

        try:
            for job in deferred.jobs(self.store):
                if self._over.is_set():
                    break
                self._made.append(job)
                tell(self._moved.set)
        except BaseException as error:
            tell(self.fail, error)
        tell(made_all, threading.current_thread())

    def _await_making(self) -> None:
        """Wait a moment for the threads: one that is still in a library could crash the end of the process."""
        until = time.monotonic() + LAST_STEP_SECONDS
        for thread in tuple(self._making):
            thread.join(max(until - time.monotonic(), 0))

    def _look_up(self, jobs: Sequence[Job], source: Iterator[Job | Deferred], more: int) -> list[Task]:
        """Return these jobs and at most `more` of the source, each with its recorded answers; put deferred ones of the
        source off. Runs in a thread."""
        jobs = list(jobs)
        # The source may be a generator, which two threads must not advance: `_fill` waits for this one.
        while more and not self._exhausted and len(self._deferred) < MAKING_AT_ONCE:
            item = next(source, None)
            if item is None:
                self._exhausted = True
            elif isinstance(item, Deferred):
                self._deferred.append(item)
            else:
                jobs.append(item)
                more -= 1
        wanted = [
            Wanted(calls.canonical_body(job.request), job.draws, job.client.origin(job.request.model)) for job in jobs
        ]
        return [
            Task(job, there.answers, there.owed, tuple(there.owed.values()), item.body, item.origin)
            for job, item, there in zip(jobs, wanted, self._recorded(wanted), strict=True)
        ]

    def _recorded(self, wanted: Sequence[Wanted]) -> list[Recorded]:
        """Return the recorded answers of these requests. Runs in a thread."""

        def read() -> list[Recorded]:
            with self.store.read(at_once=True) as connection:
                return calls.look_up(connection, wanted)

        return self.store.retry(read) if wanted else []

    def _begin(self, item: Task) -> None:
        # Everything is recorded. It still goes through a commit: its consequences may not have been written.
        if not item.remaining:
            self._under_way += 1
            self._arrive(item)
            return
        for key in item.keys:
            if key in self._in_flight:
                self._in_flight[key].append(item.job)
                self._waiting += 1
                return
            if key in self._committed:
                self._following.append(item.job)
                return
        self._in_flight |= {key: [] for key in item.keys}
        if not self._openings.must_wait(_opening(item.job), item):
            self._start(item)

    def _start(self, item: Task) -> None:
        self._under_way += 1
        self._traffic[item.job.client.endpoint.base_url] = item.job.client.traffic
        task = asyncio.create_task(self._send(item))
        self._tasks.add(task)
        task.add_done_callback(self._sent)

    async def _send(self, item: Task) -> None:
        job = item.job
        try:
            origin = await job.client.confirmed(job.request.model)
        except EndpointError as error:
            self.stop(str(error))
            return  # its job stays unfinished, since there is nothing to record; the run ends without it
        # The record was searched for the planned server; the answers of this one have other keys.
        if origin != item.origin:
            item = await asyncio.to_thread(self._looked_up_again, origin, item)
        fresh = await job.client.complete(job.request, item.remaining) if item.remaining else []
        # Once a request: the draws of one come or fail together.
        for answer in {answer.exchange: answer for answer in fresh}.values():
            self._watch(job, answer)
        self._openings.has_read(_opening(job))
        self._arrive(replace(item, fresh=fresh))

    def _looked_up_again(self, origin: Origin, item: Task) -> Task:
        """Return a task with the answers and keys of the server that answers, if it is not the planned one."""
        (there,) = self._recorded([Wanted(item.body, tuple(item.remaining), origin)])
        recorded = {**item.recorded, **there.answers}
        return replace(item, recorded=recorded, remaining=there.owed, origin=origin)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._moved.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def _arrive(self, outcome: Task) -> None:
        self.progress.count(outcome.job.kind, outcome.recorded, outcome.fresh)
        self._outcomes.append(outcome)
        self._arrived.set()

    def _watch(self, job: Job, answer: Answer) -> None:
        """End the work if its further calls would fail as well."""
        if answer.status in FATAL:
            self.stop(f"the server answered: {answer.error} ({answer.status})")
        elif answer.status == "rate limited" and self._drain is None:  # traffic.py has waited long enough
            self.stop(f"{LIMITED}: {answer.error}")
        # Counted for each server: while one is gone, another may answer.
        server = job.client.endpoint.base_url, job.request.model
        if answer.ok:
            self._served.add(server)
        # In a row, and each after the SDK's own retries: single cut connections happen, a server that is gone answers
        # none.
        self._unreachable[server] = self._unreachable[server] + 1 if answer.status == "connection" else 0
        if self._unreachable[server] >= UNREACHABLE_IN_A_ROW:
            self.stop(
                f"{UNREACHABLE} ({answer.error}); {self._unreachable[server]} requests in a row failed. "
                "Restart the server, then resume"
            )
        # One message may be forbidden for its content; a key without any rights gets no answer at all.
        self._forbidden[server] = self._forbidden[server] + 1 if answer.status == "forbidden" else 0
        if self._forbidden[server] >= FORBIDDEN_IN_A_ROW and server not in self._served:
            self.stop(
                f"the server answered: {answer.error} ({answer.status}); it refused the first "
                f"{self._forbidden[server]} requests. Check what its key may do, then resume"
            )

    def drain(self, reason: str) -> None:
        super().drain(reason)
        for traffic in self._traffic.values():
            traffic.end_soon()

    def look(self) -> None:
        # Also called between two commits: while every request waits there is none.
        before = self.progress.slowed
        self.progress.troubles = {address: traffic.trouble() for address, traffic in self._traffic.items()}
        if self._on_progress and self.progress.slowed != before:
            try:
                self._on_progress(self.progress)
            except BaseException as error:
                self.fail(error)

    async def _write_commits(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            batch = [self._outcomes.popleft() for _ in range(min(COMMIT_AT_MOST, len(self._outcomes)))]
            if not self._outcomes:
                self._arrived.clear()
            # The next outcomes gather while this commit is written, so batches grow with the load. Waiting 10 ms for
            # more before a commit saves nothing: 1.17 ms of processor time a call, 1.18 ms without.
            commit = loop.run_in_executor(None, self.store.retry, partial(self._commit, batch))
            try:
                # A started commit is finished even while everything else is being cancelled.
                following = await asyncio.shield(commit)
            except asyncio.CancelledError:
                await asyncio.gather(commit, return_exceptions=True)
                raise
            except Exception as error:
                self.fail(error)
                return
            for key in chain.from_iterable(item.keys for item in batch):
                waited = self._in_flight.pop(key)
                self._waiting -= len(waited)
                self._following.extend(waited)  # to be looked up again
                self._committed.add(key)
            self._following.extend(item for item in following if isinstance(item, Job))
            self._deferred.extend(item for item in following if isinstance(item, Deferred))
            self._under_way -= len(batch)
            try:
                if self._on_progress:
                    self._on_progress(self.progress)
                reason = self._stop_when(self.progress) if self._stop_when else None
            except BaseException as error:
                self.fail(error)
                return
            if reason is not None:
                self.drain(reason)
            self._moved.set()

    def _commit(self, outcomes: Sequence[Task]) -> list[Job | Deferred]:
        """Write outcomes in one transaction; doing it twice changes nothing, so an interrupted one is tried again."""
        # Relaxed: calls lost by a power cut are sent again.
        with self.store.write(relaxed=True, at_once=True) as connection:
            return settled(connection, self.work_id, outcomes)


def settled(connection: sa.Connection, work_id: str, outcomes: Sequence[Task]) -> list[Job | Deferred]:
    """Write outcomes and their consequences; return the jobs that follow."""
    following: list[Job | Deferred] = []
    fresh = [outcome for outcome in outcomes if outcome.fresh]
    exchanges = []
    for item in fresh:
        job, client = item.job, item.job.client
        sent = item.fresh, job.kind, client.endpoint.base_url, client.simulated, item.body
        exchanges.append(Exchange(job.request, *sent, item.origin.server, item.origin.fresh))
    # By identity: an outcome holds dicts and cannot be hashed. The record's answers, not ours: if another process
    # has sent the same call, all go on with the text that came first.
    recorded = dict(zip(map(id, fresh), calls.record_all(connection, exchanges), strict=True))
    if work.kind_of(work_id) is WorkKind.RUN:  # labellings and generations keep theirs themselves
        # `asked` marks the calls that this run paid for: a cap counts only these.
        used = (
            (work_id, answer.key, asked)
            for outcome in outcomes
            for asked, answers in ((True, outcome.fresh), (False, outcome.recorded.values()))
            for answer in answers
        )
        calls.link(connection, used)
    together: defaultdict[Callable[..., Any], list[tuple[Settle, Mapping[int, Answer]]]] = defaultdict(list)
    for outcome in outcomes:
        answers, settle = {**outcome.recorded, **recorded.get(id(outcome), {})}, outcome.job.settle
        if settle_all := getattr(settle, "settle_all", None):
            together[settle_all].append((settle, answers))
        else:
            following.extend(settle(connection, answers))
    for settle_all, of_kind in together.items():
        following.extend(chain.from_iterable(settle_all(connection, of_kind)))
    work.bump(connection, work_id)
    return following

"""The engine for many machines: Ray Data hands blocks of owed work to workers, each with an executor of its own.

    cimemories run ... --engine ray:workers=2:16,address=auto

The process that holds the claim (the driver) cuts the work into blocks, watches, and sets the status at the end; it
sends no request. A worker is an actor: it opens the record and its clients once, asks what a block owes, and records
each answer itself, so that only counts travel back. Scheduling is Ray's alone: it gives the block of a dead worker to
another one, which finds what was recorded and asks for the rest. Workers write under the driver's claim
(work.Claim.share), so they stop with it.

Driver and workers communicate only by a small actor, the board: counts one way, orders the other."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import re
import signal
import socket
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import astuple, dataclass, field
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy as sa

from cimemories.llm.endpoint import keys_for_workers
from cimemories.llm.engines import Driver, Engine, EngineError
from cimemories.llm.executor import Deferred, Executor, Job, Progress, Stopped
from cimemories.llm.local_vllm import is_local, spec_of
from cimemories.llm.source import Source, Unit, reached
from cimemories.llm.vllm import VllmError
from cimemories.store.engine import DATABASE_URL, DatabaseLost, Store, StoreError, open_patiently
from cimemories.store.upkeep.problems import cause, first_line
from cimemories.store.work import Claim, ClaimLost
from cimemories.text import count, without_credentials
from cimemories.version import __version__

LOOK_SECONDS = 0.5  # between two reports of a worker, and two looks of the driver: orders arrive within twice as long
REACH_SECONDS = 5.0  # to connect to the cluster's address
END_SECONDS = 30.0  # for workers to stop when told to; then their processes are ended
BLOCKS_A_WORKER = 8  # so that no worker waits long for the last one, and further workers find work
ROUNDS_A_BLOCK = 2  # requests of a block for each that may be in flight
_log = logging.getLogger(__name__)
CONTINUE, DRAIN, STOP = "", "drain", "stop"
CORES = 1  # processor cores of a worker
INSTALL = "pip install 'cimemories-studio[ray]', on every machine of the cluster"
_ADDRESS = re.compile(r"auto|local|(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}")


# ---- blocks


def blocks_of(profiles: Sequence[int], most_parts: int, workers: int, concurrency: int) -> list[list[Unit]]:
    """Return all units in blocks, in the order of the profiles. A worker does a block with all its requests in flight
    at once as far as `concurrency` goes. A block should hold enough of them to make up for its start and end, and be
    small enough for `workers` to end at about the same time. A profile is split only if there are fewer than two for
    each worker. most_parts: contexts of a profile."""
    total = len(profiles) * most_parts
    # The second bound holds for little work: every worker gets a block.
    size = max(total / (workers * BLOCKS_A_WORKER), ROUNDS_A_BLOCK * concurrency)
    size = max(min(size, total / workers), 1)
    if size < most_parts and len(profiles) < 2 * workers:
        parts = math.ceil(most_parts / size)
        return [[Unit(profile, part, parts)] for profile in profiles for part in range(parts)]
    count = max(round(size / most_parts), 1)
    return [[Unit(profile) for profile in profiles[i : i + count]] for i in range(0, len(profiles), count)]


# ---- cluster


@dataclass(frozen=True)
class Ray(Engine):
    """A Ray cluster. address: as of ray.init: `auto` is the one of this machine, `local` starts one on this machine for
    as long as this process lives. workers: MIN:MAX, their number."""

    name, title = "ray", "Ray cluster"

    address: str = "auto"
    workers: str = "1:4"

    def __post_init__(self) -> None:
        if not _ADDRESS.fullmatch(self.address):
            raise EngineError("a cluster's address is auto, local, or HOST:PORT, for example 10.0.0.5:6379.")
        _ = self.bounds

    @property
    def bounds(self) -> tuple[int, int]:
        """Return the least and the most workers: 2 and 16 of '2:16', 4 and 4 of '4'."""
        least, _, most = self.workers.partition(":")
        try:
            bounds = int(least), int(most or least)
        except ValueError:
            bounds = 0, 0
        if not 1 <= bounds[0] <= bounds[1]:
            raise EngineError(f"workers is MIN:MAX, for example 2:16, not '{self.workers}'.")
        return bounds

    def __str__(self) -> str:
        least, most = self.bounds
        workers = count(least, "worker") if least == most else f"{least:,} to {count(most, 'worker')}"
        return f"Ray cluster ({self.address}), {workers}"

    @classmethod
    def missing(cls, store: Store) -> str:
        steps = [f"set {DATABASE_URL} to a PostgreSQL database"] if store.is_sqlite else []
        steps += [INSTALL] if find_spec("ray") is None else []
        return f"To use a Ray cluster: {'; '.join(steps)} (docs/scale.md)." if steps else ""

    def connect(self, store: Store) -> None:
        """Connect to the cluster. Raises EngineError if there is none, Ray is not installed, or workers on other
        machines could not reach the record."""
        if lacking := self.missing(store):
            raise EngineError(lacking)
        import ray

        if ray.is_initialized():  # by an earlier run of a sweep, or by the calling notebook
            return
        self._reach()
        # Usage statistics would go to Ray's makers.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # The messages of its C++ core on standard error are for Ray's developers.
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
        options: dict[str, Any] = {"include_dashboard": False} if self.address == "local" else {}
        # Ray's own handlers would let SIGTERM end this process without a true status.
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            ray.init(self.address, log_to_driver=False, logging_level=logging.ERROR, **options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise EngineError(
                f"there is no Ray cluster at '{self.address}' ({without_credentials(first_line(error))}). Start one "
                "with `ray start --head`, set RAY_AUTH_MODE=token if it has a token, or use `ray:address=local`."
            ) from None
        finally:
            if threading.current_thread() is threading.main_thread():
                for number, handler in handlers.items():
                    signal.signal(number, handler)
        # It prints dead workers on standard output, where our results go; no option prevents that.
        ray._private.worker.print_to_stdstream = lambda data, **_: _log.info("%s", data.get("lines"))

    def _reach(self) -> None:
        """Raise EngineError if the address does not answer: Ray would wait for minutes. `auto` without the variable and
        `local` name no address; Ray itself finds those at once, or fails."""
        address = os.environ.get("RAY_ADDRESS", "") if self.address == "auto" else self.address
        where = urlsplit(address if "://" in address else f"//{address}")
        try:
            if not where.hostname or not where.port:
                return
            socket.create_connection((where.hostname, where.port), REACH_SECONDS).close()
        except (OSError, ValueError) as error:
            raise EngineError(
                f"nothing answers at the address of the Ray cluster, '{without_credentials(address)}' ({error}). Check "
                "the address and that the cluster runs (`ray status`), or work on this machine with --engine local."
            ) from None

    def driver(self, store: Store, claim: Claim, source: Source, **how: Any) -> RayDriver:
        return RayDriver(store, claim, source, self, **how)


# ---- board


Trouble = tuple[str, str, tuple[str, ...]]  # kind, text, and the last lines of a vLLM that failed


class Board:
    """The progress of all workers, and their orders. Counts of a worker that died stay."""

    def __init__(self) -> None:
        self.orders = CONTINUE
        self.done: dict[str, Progress] = {}
        self.trouble: Trouble | None = None

    def report(self, worker: str, done: Progress) -> str:
        """Record what a worker has done since it started; returns its orders."""
        self.done[worker] = done
        return self.orders

    def tell(self, kind: str, text: str, lines: tuple[str, ...]) -> None:
        """Record the error that stopped a worker, and stop all others. Of several errors the first is kept."""
        self.trouble = self.trouble or (kind, text, lines)
        self.orders = self.orders or STOP

    def look(self, orders: str) -> tuple[Progress, int, Trouble | None]:
        """Take the driver's orders; returns the sum of all counts, the number of workers, and the first error."""
        self.orders = orders or self.orders
        total = Progress()
        for done in self.done.values():
            total.include(done)
        return total, len(self.done), self.trouble


# ---- worker


@dataclass(frozen=True)
class Assignment:
    """The data that a worker needs, sent to its machine. environment: the record's address, and the keys of the servers
    that are asked; not in the repr, which Ray may log."""

    claim: Claim
    source: Source
    concurrency: int
    workspace: str
    version: str
    environment: Mapping[str, str] = field(repr=False)


class BlockWorker:
    """Does blocks, one after the other, as a Ray actor. Ray replaces it if its process or machine dies."""

    def __init__(self, assignment: Assignment, board: Any) -> None:
        self.assignment, self.board = assignment, board
        self.name = f"{socket.gethostname()} {os.getpid()} {uuid.uuid4().hex[:8]}"
        self.done = Progress()  # of the blocks before the current one
        # One loop for all blocks: clients keep their connections in the loop that opened them.
        self._loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        self._open: tuple[Store, Callable[[Unit], Iterable[Job | Deferred]]] | None = None
        self._executor: Executor | None = None  # of the current block
        self._order = CONTINUE

    def __call__(self, batch: Mapping[str, Sequence[str]]) -> dict[str, list[bool]]:
        """Do the blocks of a batch; returns for each whether it was completed. Errors go to the board: Ray would retry
        them."""
        return {"whole": [self._do([Unit(*unit) for unit in json.loads(text)]) for text in batch["units"]]}

    def _do(self, units: Sequence[Unit]) -> bool:
        try:
            return self._loop.run_until_complete(self._block(units))
        except VllmError as failed:
            return self._troubled("stopped", str(failed).rstrip("."), failed.lines)
        except Stopped as stop:
            return self._troubled("stopped", str(stop).rstrip("."))
        except ClaimLost as lost:
            return self._troubled("claim", str(lost))
        except (sa.exc.DBAPIError, DatabaseLost) as error:
            return self._troubled("lost", cause(error.__cause__ or error))
        except StoreError as error:
            return self._troubled("refused", str(error))
        except Exception as error:
            return self._troubled("failed", f"{type(error).__name__}: {error}")

    def _troubled(self, kind: str, text: str, lines: Sequence[str] = ()) -> bool:
        import ray

        ray.get(self.board.tell.remote(kind, without_credentials(text), tuple(map(without_credentials, lines))))
        return False

    async def _opened(self) -> tuple[Store, Callable[[Unit], Iterable[Job | Deferred]]]:
        if self._open is None:
            own = self.assignment
            if own.version != __version__:
                raise StoreError(
                    f"{socket.gethostname()} has CIMemories Studio {__version__}, and the work was begun with "
                    f"{own.version}. Install the same version on every machine."
                )
            os.environ.update(own.environment)
            folder = Path(own.workspace)
            # A workspace that machines share holds their managed servers; without one any folder will do.
            if not folder.is_dir():
                folder = Path(tempfile.gettempdir(), f"cimemories-{os.getuid()}")
            store = open_patiently(folder).patient().fenced(own.claim.share)
            clients, urls = await self._stack.enter_async_context(
                reached(own.source.servers(store), store, own.concurrency, lambda: bool(self._order))
            )
            self._open = store, own.source.opened(store, clients, urls)
        return self._open

    async def _block(self, units: Sequence[Unit]) -> bool:
        # Before anything is opened: the last blocks of stopped work are only ticked off.
        if await self._report():
            return False
        reports = asyncio.create_task(self._keep_reporting())
        try:
            store, jobs = await self._opened()
            if self._order:  # arrived while a server of its own started
                return False
            self._executor = Executor(store, self.assignment.claim.work_id, concurrency=self.assignment.concurrency)
            await self._executor.run(chain.from_iterable(map(jobs, units)))
        except Stopped:
            if not self._order:
                raise  # by itself: the server is gone
            return False
        finally:
            reports.cancel()
            await asyncio.gather(reports, return_exceptions=True)
            self.done, self._executor = self._total(), None
            await self._report()
        return True

    async def _keep_reporting(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._executor is not None:
                self._executor.look()
            order = await self._report()
            if self._executor is not None and order == STOP:
                self._executor.stop("the driver said so")
            elif self._executor is not None and order == DRAIN:
                self._executor.drain("the driver said so")

    def _total(self) -> Progress:
        if self._executor is None:
            return self.done
        total = Progress()
        total.include(self.done)
        total.include(self._executor.progress)
        total.troubles = self._executor.progress.troubles  # all blocks of the worker have their servers in common
        return total

    async def _report(self) -> str:
        """Report the progress; returns the orders, those of the last report if the board is away."""
        from ray.exceptions import RayError

        # Ray recreates the board if its machine is gone; without the driver the claim ends.
        with contextlib.suppress(RayError):
            self._order = str(await self.board.report.remote(self.name, self._total()))
        return self._order


# ---- driver


class RayDriver(Driver):
    """Cuts the work into blocks, and watches their workers."""

    def __init__(
        self,
        store: Store,
        claim: Claim,
        source: Source,
        cluster: Ray,
        *,
        concurrency: int,
        on_progress: Callable[[Progress], None] | None = None,
        stop_when: Callable[[Progress], str | None] | None = None,
    ) -> None:
        super().__init__()
        self.store, self.claim, self.source, self.cluster = store, claim, source, cluster
        self.concurrency = concurrency
        self._on_progress, self._stop_when = on_progress, stop_when
        self._workers = 0  # that have reported
        self._lines: tuple[str, ...] = ()  # the last ones of a worker's vLLM that failed
        self._whole = True  # every block so far was completed
        self._ended: list[BaseException | None] = []  # one item once the thread below is over

    async def run(self) -> None:
        """Have the workers do all that is owed. Raises as Executor.run does; Stopped also if Ray fails."""
        import ray

        blocks, environment = await asyncio.to_thread(self.store.retry, self._read)
        if not blocks:
            return
        board = _new_board()
        assignment = Assignment(
            self.claim, self.source, self.concurrency, str(self.store.workspace.absolute()), __version__, environment
        )
        loop = asyncio.get_running_loop()
        # Not a thread of the pool: asyncio would wait for it for minutes if the cluster no longer answers.
        thread = threading.Thread(
            target=self._consume, args=(blocks, assignment, board, loop), name="ray-blocks", daemon=True
        )
        thread.start()
        ordered: float | None = None
        try:
            while not self._ended:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._moved.wait(), LOOK_SECONDS)
                self._moved.clear()
                await self._look(board)
                if self._orders:
                    ordered = ordered or time.monotonic()
                    # A worker hangs, or none ever came: nothing ticks the blocks off.
                    over = time.monotonic() - ordered > END_SECONDS
                    if over and (self._orders == STOP or not self._workers):
                        break
            await self._look(board)
        finally:
            if not self._ended:
                with contextlib.suppress(Exception):
                    board.look.remote(STOP)
                # Workers are not waited for: Ray ends all processes of a driver that has left.
                thread.join(3 * LOOK_SECONDS)
                if thread.is_alive():
                    ray.shutdown()
        if self._broken is not None:
            raise self._broken
        if self._stop is not None:
            raise Stopped(self._stop) from (VllmError(self._stop, lines=self._lines) if self._lines else None)
        error = self._ended[0] if self._ended else None
        if error is not None:
            # The first line of the cause: Ray's errors quote a traceback within a traceback.
            inner = getattr(error, "cause", None) or error.__cause__ or error
            about = first_line(str(inner).strip().splitlines()[-1] if str(inner).strip() else type(inner).__name__)
            raise Stopped(f"the Ray cluster failed: {without_credentials(about)}") from error
        if self._drain is not None and not (self._ended and self._whole):
            raise Stopped(self._drain)

    def _read(self) -> tuple[list[list[Unit]], dict[str, str]]:
        profiles = self.source.profiles(self.store)
        if not profiles:
            return [], {}
        parts = max(self.source.most_parts(self.store), 1)
        environment = keys_for_workers(self.source.key_variables(self.store))
        environment[DATABASE_URL] = self.store.engine.url.render_as_string(hide_password=False)
        return blocks_of(profiles, parts, self.cluster.bounds[1], self.concurrency), environment

    @property
    def _orders(self) -> str:
        return STOP if self._stop or self._broken else DRAIN if self._drain else CONTINUE

    async def _look(self, board: Any) -> None:
        """Give orders, and collect the progress since the last look."""
        import ray
        from ray.exceptions import RayError

        try:
            answer = await asyncio.to_thread(ray.get, board.look.remote(self._orders), timeout=10)
        except RayError:
            return  # seen at the next look, or the blocks end with an error of their own
        self.progress, self._workers, trouble = answer
        if trouble is not None:
            kind, text, lines = trouble
            if kind == "stopped":
                self._lines = lines
                self.stop(text)
            else:
                kinds = {"claim": ClaimLost, "lost": DatabaseLost, "refused": StoreError}
                self.fail(kinds.get(kind, RuntimeError)(text))
        if self._on_progress:
            self._on_progress(self.progress)
        reason = await asyncio.to_thread(self._stop_when, self.progress) if self._stop_when else None
        if reason is not None:
            self.drain(reason)

    def _consume(self, blocks: list[list[Unit]], assignment: Assignment, board: Any, loop: Any) -> None:
        """Stream the blocks through the workers. Runs in a thread."""
        error: BaseException | None = None
        try:
            gpus = sum(map(_gpus_of, filter(is_local, self.source.servers(self.store))))
            for row in _dataset(blocks, assignment, board, self.cluster.bounds, gpus).iter_rows():
                self._whole = self._whole and bool(row["whole"])
        except BaseException as raised:
            error = raised
        self._ended.append(error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the driver no longer waits
            loop.call_soon_threadsafe(self._moved.set)


def _gpus_of(address: str) -> int:
    """Return the number of GPUs that the vLLM of an address takes."""
    spec = spec_of(address)
    return (spec.number("tensor-parallel-size") or 1) * (spec.number("data-parallel-size") or 1)


def _dataset(blocks: list[list[Unit]], assignment: Assignment, board: Any, workers: tuple[int, int], gpus: int) -> Any:
    """Return the blocks as rows of a Ray dataset, with the workers as its one step. gpus: for each worker, if the
    cluster has any: Ray assigns them to each worker, and so to the server that it starts."""
    import ray.data

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the copy reads its older settings too
        context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = context.print_on_execution_start = False
    # One block at a time for each worker, so that none waits behind another. All busy is then a utilisation of 1,
    # and one more worker is requested.
    context.autoscaling_config.actor_pool_util_upscaling_threshold = 1.0
    for name in ("ray.data", "ray"):
        logging.getLogger(name).setLevel(logging.ERROR)
    rows = [{"units": json.dumps([astuple(unit) for unit in block])} for block in blocks]
    with ray.data.DataContext.current(context):
        return ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            BlockWorker,
            batch_size=1,
            fn_constructor_args=(assignment, board),
            compute=ray.data.ActorPoolStrategy(
                min_size=workers[0], max_size=workers[1], max_tasks_in_flight_per_actor=1
            ),
            num_cpus=CORES,
            num_gpus=gpus if ray.cluster_resources().get("GPU") else 0,
        )


def _new_board() -> Any:
    """Return the board, beside the driver if Ray can place it there: it then survives as long as the driver."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": here}
    return ray.remote(**options)(Board).remote()

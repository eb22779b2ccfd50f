"""Four Ray workers on two nodes of one machine: killed one after the other, then timed beside one alone.

    python benchmarks/cluster.py [--part kills|throughput] [--every 5] [--concurrency 2] [--seed 1]

kills: a run of 6 profiles x 24 contexts x 3 samples with a judge, against four simulators that spoil a request in five,
behind an address that spreads connections over them. Every few seconds a worker dies of SIGKILL, and once PostgreSQL is
restarted. What is left failed at the end is asked again. Then the same run is made undisturbed by one process. Fails
where a planned response or judgement is not there exactly once, where a number differs, or where more good answers were
given twice than calls can have been in flight at the kills.

throughput: the same run, each call taking 50 ms, by one worker and by four. The rate is that of the middle 60 % of the
calls, so that the start of Ray and of the workers does not count.

Needs Ray and PostgreSQL's server programs, as `make test-scale` installs them.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from pathlib import Path
from random import Random

import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from conftest import _cluster as postgres
from evaluating import ROOT, add_labelled, assert_whole, numbers, row_of, simulated
from ray_clusters import cluster_of, meanwhile, worker_processes

from cimemories.evaluation import planning, runs
from cimemories.llm.ray_engine import Cluster
from cimemories.llm.worker import WorkError
from cimemories.store.engine import Store, open_store
from cimemories.store.tables import call

PROFILES, CONTEXTS, SAMPLES = 6, 24, 3
PLANNED = PROFILES * CONTEXTS * SAMPLES
LEAST_RATIO = 3.2
KINDS = ("rate_limit", "server_error", "cut", "broken_json", "no_choices", "fewer_choices")
# Says of each good answer what was asked, so that answers given twice can be counted.
SERVER = f"""
import asyncio, hashlib, json, sys
from cimemories.simulator.server import _listen, _uvicorn, create_app
faults, seed, wait = float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
app = create_app(0, faults, {KINDS!r}) if faults else create_app(0)

async def watched(scope, receive, send):
    if not scope["path"].endswith("/completions"):
        return await app(scope, receive, send)
    asked, told = [], []
    async def take():
        message = await receive()
        asked.append(message.get("body", b""))
        return message
    async def give(message):
        told.append(message.get("body", b""))
        await send(message)
    await asyncio.sleep(wait)
    await app(scope, take, give)
    body = json.loads(b"".join(asked))
    try:
        choices = json.loads(b"".join(told)).get("choices", ())
    except ValueError:
        choices = ()
    for index in range(len(choices)):
        draw = json.dumps([body["messages"], body["model"], (body.get("seed") or 0) + index])
        print(hashlib.sha256(draw.encode()).hexdigest(), flush=True)

with _listen("127.0.0.1", 0) as listener:
    print(listener.getsockname()[1], flush=True)
    _uvicorn(watched).run(sockets=[listener])
"""


class Servers:
    """Simulators, each in a process of its own, behind one address. answers: how often each draw was answered well."""

    def __init__(self, count: int, faults: float, wait: float) -> None:
        self.answers: Counter[str] = Counter()
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-c", SERVER, str(faults), str(n), str(wait)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
            )
            for n in range(count)
        ]
        ports = [int(process.stdout.readline()) for process in self._processes if process.stdout]
        self._readers = [threading.Thread(target=self._read, args=(p,), daemon=True) for p in self._processes]
        for reader in self._readers:
            reader.start()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.url = asyncio.run_coroutine_threadsafe(self._listen(ports), self._loop).result()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.answers[line.strip()] += 1

    async def _listen(self, ports: list[int]) -> str:
        """A router as small as can be: each connection goes to the next server."""
        count = 0

        async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while data := await reader.read(65_536):
                    writer.write(data)
                    await writer.drain()
            except OSError:
                pass
            finally:
                writer.close()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal count
            count += 1
            there, back = await asyncio.open_connection("127.0.0.1", ports[count % len(ports)])
            await asyncio.gather(pipe(reader, back), pipe(there, writer))

        listening = await asyncio.start_server(connected, "127.0.0.1", 0)
        return f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for reader in self._readers:
            reader.join()


def begin(store: Store, url: str) -> str:
    add_labelled(store, PROFILES, CONTEXTS)
    return again(store, url)


def again(store: Store, url: str) -> str:
    judge = planning.JudgeSpec("llm", "sim-judge", url)
    return planning.plan(store, simulated(url, samples=SAMPLES, judge=judge, seed=0, fresh=True))


def kills(store: Store, calm: Store, restart: object, options: argparse.Namespace) -> bool:
    chance, killed = Random(options.seed), 0
    with closing(Servers(4, 0.2, 0.05)) as servers:
        run_id = begin(store, servers.url)

        def disturb(over: threading.Event) -> None:
            nonlocal killed
            while not over.wait(options.every):
                if workers := worker_processes():
                    chance.choice(workers).kill()
                    killed += 1
                    if killed == 2:
                        restart()  # type: ignore[operator]

        clock, rounds = time.monotonic(), 0
        with meanwhile(disturb):
            while row_of(store, run_id).status != "finished" and rounds < 10:
                rounds += 1
                try:
                    runs.execute(store, run_id, concurrency=options.concurrency, cluster=Cluster("auto", (4, 4)))
                except WorkError as error:
                    print(f"ended early: {error}")
        seconds = time.monotonic() - clock
    assert_whole(store, run_id, PLANNED)
    twice = sum(count - 1 for count in servers.answers.values())
    with closing(Servers(1, 0.0, 0.0)) as quiet:
        calm_id = begin(calm, quiet.url)
        runs.execute(calm, calm_id)
    same = numbers(store, run_id) == numbers(calm, calm_id)
    print(
        f"{killed} workers killed in {seconds:.0f} s, PostgreSQL restarted once, {rounds} rounds until nothing failed"
    )
    print(f"responses: {PLANNED} planned, each there and judged once; the metrics are those of the calm run: {same}")
    # A request has up to SAMPLES draws; the restart cuts off the commits of all four workers.
    bound = (killed + 4) * options.concurrency * SAMPLES
    print(f"answers given twice: {twice} of {sum(servers.answers.values())} (in flight at the kills: at most {bound})")
    return same and twice <= bound


def throughput(store: Store, options: argparse.Namespace) -> bool:
    rates = {}
    with closing(Servers(4, 0.0, 0.05)) as servers:
        first = begin(store, servers.url)
        for workers in (1, 4):
            run_id = first if workers == 1 else again(store, servers.url)
            began = time.monotonic()
            runs.execute(store, run_id, concurrency=options.concurrency, cluster=Cluster("auto", (workers, workers)))
            assert_whole(store, run_id, PLANNED)
            rates[workers] = rate(store, run_id)
            whole = time.monotonic() - began
            print(f"{workers} workers: {rates[workers]:.1f} calls a second, {whole:.0f} s from the start of the run")
    ratio = rates[4] / rates[1]
    print(f"4 workers make {ratio:.2f} times the calls of one, with {options.concurrency} requests at a time each")
    return ratio >= LEAST_RATIO


def rate(store: Store, run_id: str) -> float:
    """Exchanges a second over the middle 60 % of those of a run."""
    query = sa.select(call.c.exchange, call.c.started).where(call.c.fresh == run_id).distinct()
    with store.read() as connection:
        ends = sorted(datetime.fromisoformat(row.started).timestamp() for row in connection.execute(query))
    first, last = ends[len(ends) // 5], ends[4 * len(ends) // 5]
    return 0.6 * len(ends) / (last - first)


@contextmanager
def records(folder: Path) -> Iterator[tuple[list[Store], object]]:
    """Two empty records on a PostgreSQL of their own, and what restarts it."""
    with postgres() as server, ExitStack() as stack:
        stores = []
        for name in ("one", "two"):
            engine = sa.create_engine(server.url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
            with engine.connect() as connection:
                connection.exec_driver_sql(f"CREATE DATABASE {name}")
            url = engine.url.set(database=name).render_as_string(hide_password=False)
            stores.append(stack.enter_context(closing(open_store(folder / name, url))))

        def restart() -> None:
            server.stop("fast")
            time.sleep(2)
            server.start()

        yield stores, restart


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--part", choices=("kills", "throughput"))
    options.add_argument("--every", type=float, default=5.0, help="seconds between two kills")
    options.add_argument("--concurrency", type=int, default=2, help="requests at a time of each worker")
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    right = True
    for part in ("kills", "throughput"):
        if given.part not in (None, part):
            continue
        with tempfile.TemporaryDirectory() as folder, records(Path(folder)) as (stores, restart), cluster_of(2, 2):
            done = kills(*stores, restart, given) if part == "kills" else throughput(stores[0], given)
            right = right and done
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())

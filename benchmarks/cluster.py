"""Four Ray workers on two nodes of one machine: killed one after the other, then timed beside one alone.

    python benchmarks/cluster.py [--part kills|throughput] [--every 5] [--concurrency 2] [--wait 0.05] [--seed 1]

kills: a run of 6 profiles x 24 contexts x 3 samples with a judge, against four simulators that spoil a request in five,
behind an address that spreads connections over them. Every few seconds a worker dies of SIGKILL, and once PostgreSQL is
restarted. What is left failed at the end is asked again. Then the same run is made undisturbed by one process. Fails
where a planned response or judgement is not there exactly once, where a number differs, or where more good answers were
given twice than calls can have been in flight at the kills.

throughput: the same run, each call taking --wait seconds, by one worker and by four. The rate is that of the middle
60 % of the calls, so that the start of Ray and of the workers does not count. Beside it stands what processor time a
call takes, by who takes it: workers, servers, PostgreSQL and all else (the driver, Ray, the router) share this one
machine, so the rate cannot exceed its cores by the seconds of a call, however many workers there are. Where four
workers reach that bound, their ratio to one says nothing of the engine; a longer --wait takes the bound away.

Needs Ray and PostgreSQL's server programs, as `make test-scale` installs them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

import psutil
import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from conftest import _cluster as postgres
from evaluating import add_labelled, assert_whole, numbers, row_of, simulated
from faulty_servers import Servers
from ray_clusters import cluster_of, meanwhile, worker_processes

from cimemories.evaluation import planning, runs
from cimemories.extras.ray.engine import Ray
from cimemories.llm.worker import WorkError
from cimemories.store.engine import Store, open_store
from cimemories.store.tables import call

PROFILES, CONTEXTS, SAMPLES = 6, 24, 3
PLANNED = PROFILES * CONTEXTS * SAMPLES
LEAST_RATIO = 3.2


def begin(store: Store, url: str) -> str:
    add_labelled(store, PROFILES, CONTEXTS)
    return again(store, url)


def again(store: Store, url: str) -> str:
    judge = planning.JudgeSpec(kind="llm", model="sim-judge", base_url=url)
    return planning.plan(store, simulated(url, samples=SAMPLES, judges=(judge,), seed=0, fresh=True))


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
                    runs.execute(store, run_id, concurrency=options.concurrency, engine=Ray("auto", "4:4"))
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
    with closing(Servers(4, 0.0, options.wait)) as servers:
        first = begin(store, servers.url)
        for workers in (1, 4):
            run_id = first if workers == 1 else again(store, servers.url)
            began, looks = time.monotonic(), list[Look]()
            with meanwhile(partial(keep_looking, store, servers, looks)):
                runs.execute(store, run_id, concurrency=options.concurrency, engine=Ray("auto", str(workers)))
            assert_whole(store, run_id, PLANNED)
            rates[workers] = rate(store, run_id)
            whole = time.monotonic() - began
            print(f"{workers} workers: {rates[workers]:.1f} calls a second, {whole:.0f} s from the start of the run")
            bound = say_processor_time(looks, rates[workers])
    ratio = rates[4] / rates[1]
    print(
        f"4 workers make {ratio:.2f} times the calls of one, with {options.concurrency} requests at a time each, "
        f"{options.wait * 1000:.0f} ms a call; their rate is {rates[4] / bound:.0%} of what the cores allow"
    )
    return ratio >= LEAST_RATIO


class Look(NamedTuple):
    """answers: given until now; seconds: of processor time until now, by who took it; busy: of all cores, by whomever,
    others on this machine included."""

    moment: float
    answers: int
    seconds: dict[str, float]
    busy: float


def keep_looking(store: Store, servers: Servers, looks: list[Look], over: threading.Event) -> None:
    folder = str(store.engine.url.query["host"])
    everything = psutil.process_iter(["cmdline"])
    (database,) = (process for process in everything if f"{folder}/data" in (process.info["cmdline"] or ()))
    ended: Counter[str] = Counter()
    before: dict[str, dict[int, float]] = {}
    first = sum(servers.answers.values())
    while not over.wait(0.5):
        now = {"workers": times(worker_processes()), "servers": times(servers.processes)}
        everybody = psutil.Process().children(recursive=True)
        now["PostgreSQL"] = times([database, *database.children()])
        known = now["workers"].keys() | now["servers"].keys() | now["PostgreSQL"].keys()
        now["all else"] = times([psutil.Process(), *(process for process in everybody if process.pid not in known)])
        for who, seconds in before.items():
            # What a process had used that is there no more, so that sums only grow.
            ended[who] += sum(used for pid, used in seconds.items() if pid not in now[who])
        before = now
        cores = psutil.cpu_times()
        sums = {who: ended[who] + sum(seconds.values()) for who, seconds in now.items()}
        given = sum(servers.answers.values()) - first
        looks.append(Look(time.monotonic(), given, sums, sum(cores) - cores.idle - cores.iowait))


def times(processes: Iterable[psutil.Process]) -> dict[int, float]:
    """Seconds of processor time by process."""
    seconds = {}
    for process in processes:
        with suppress(psutil.Error):
            used = process.cpu_times()
            seconds[process.pid] = used.user + used.system
    return seconds


def say_processor_time(looks: list[Look], rate: float) -> float:
    """Print what a call took of the processor in the middle 60 % of the answers; returns the rate at which all cores
    would be taken by that alone."""
    total = looks[-1].answers
    first, *_, last = [look for look in looks if total / 5 <= look.answers <= 4 * total / 5]
    span = last.moment - first.moment
    a_call = {who: (last.seconds[who] - first.seconds[who]) / span / rate for who in first.seconds}
    ours, cores = sum(a_call.values()), psutil.cpu_count() or 1
    parts = ", ".join(f"{who} {seconds * 1000:.1f}" for who, seconds in a_call.items())
    print(
        f"  {ours * 1000:.1f} ms of processor time a call ({parts}): {ours * rate:.2f} of {cores} cores, "
        f"{(last.busy - first.busy) / span:.2f} with what others do; {cores / ours:.0f} calls a second would take all"
    )
    return cores / ours


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
    options.add_argument("--wait", type=float, default=0.05, help="seconds that a call takes, of `throughput`")
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

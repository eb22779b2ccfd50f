"""How long people wait while a team works on one PostgreSQL: annotators, workers, browsers and whoever counts.

    python benchmarks/load.py [--seconds 60] [--annotators 20] [--workers 4] [--browsers 10] [--connections 0]

A private server with labelled profiles, ten and more for longer tests, and a judged run of five contexts. At the same
time: annotators who decide one pair a second each, by what the page calls for a press of a key; workers that make
recorded runs, as fast as a server that answers at once lets them; sessions of the app's own server that open one page
after the other, as a browser asks for them and without drawing them; and one process that counts the run's headline
from the record again and again. Prints the median and the 95th percentile of each, of a decision also how long it
waited for a connection, how many connections there were, how many of them waited for a lock and with what, and whether
every decision is in the record once. --connections: the most that the server gives to all of them together, 0 for as
many as they want.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import aiohttp
import conftest
import numpy as np
import serving
import sqlalchemy as sa
import worlds
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from cimemories import seeds
from cimemories.curation.offline import generate_profiles
from cimemories.evaluation import planning, runs
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import resolve_scope
from cimemories.metrics.headline import headline
from cimemories.review import recording
from cimemories.store import datasets
from cimemories.store import runs as store_runs
from cimemories.store.engine import DATABASE_URL, Store, open_store
from cimemories.store.tables import decision

HERE = Path(__file__).absolute().parent
PAGES = ("", "profiles", "labels", "review", "consensus", "runs", "heatmaps", "leaks", "compare")
PAUSE = 2.0  # seconds that a reader looks at a page


def fill(store: Store, decided: float) -> None:
    """Generated profiles in five contexts, labelled, with more pairs than are `decided`, and one run that is judged."""
    random = np.random.default_rng(1)
    number = 10 + int(decided / 700)  # a profile has about 150 attributes
    data = worlds.add_profiles(store, list(generate_profiles(number, contexts=seeds.load_contexts()[:5])), "load")
    people = worlds.records(store, data.id)
    shape = len(people), max(len(p.attribute_ids) for p in people), 5
    worlds.add_labels(store, data.id, random.choice([NECESSARY, INAPPROPRIATE, AMBIGUOUS], shape), simulated=True)
    worlds.add_run(store, data.id, 5, random.binomial(5, 0.1, shape), simulated=True)


def annotate(store: Store, people: int, end: float) -> list[list[float]]:
    """Of each decision, of people who each decide one pair a second, the seconds until it is confirmed, and how many
    of them it waited for its transactions to begin."""
    with store.read() as connection:
        row = datasets.all_rows(connection)[0]
        ids = datasets.profile_ids(connection, row.id)
        records = [datasets.profile_record(connection, i) for i in ids]
    pairs = [f"{a}.{c}" for r in records for a in r.attribute_ids for c in r.context_ids]
    taken: list[list[float]] = []
    waited = threading.local()
    begin = Store._begin

    def timed(self: Store, options: dict[str, bool]) -> tuple[sa.Connection, sa.RootTransaction]:
        clock = time.perf_counter()
        try:
            return begin(self, options)
        finally:
            waited.seconds += time.perf_counter() - clock

    def person(number: int) -> None:
        due = time.time() + number / people
        for card in pairs[number::people]:
            time.sleep(max(0.0, due - time.time()))
            if time.time() >= end:
                return
            due += 1.0
            about = {"kind": "say", "card": card, "says": "necessary", "seconds": 1.0, "blind": True, "text": ""}
            event = SimpleNamespace(uid=uuid4().hex, cause="", of=None, **about)
            clock, waited.seconds = time.perf_counter(), 0.0
            recording.record(store, row, f"Annotator {number}", [event])
            taken.append([time.perf_counter() - clock, waited.seconds])

    Store._begin = timed  # type: ignore[method-assign]
    threads = [threading.Thread(target=person, args=(number,)) for number in range(people)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken


def work(store: Store, url: str, end: float) -> list[float]:
    """Seconds a call of recorded runs, one after the other."""
    taken: list[float] = []
    while time.time() < end:
        with store.read() as connection:
            name = datasets.all_rows(connection)[0].name
        spec = planning.RunSpec(dataset=name, model="m", base_url=url, samples=5, fresh=True)
        clock = time.perf_counter()
        progress = runs.execute(store, planning.plan(store, spec), concurrency=16)
        assert not progress.failed, progress.failed
        taken.append((time.perf_counter() - clock) / max(progress.fresh, 1))
    return taken


def count(store: Store, end: float) -> list[float]:
    """Seconds of the headline of a run from the record alone."""
    with store.read() as connection:
        run_id = next(row.id for row in store_runs.all_rows(connection) if row.judged)
    taken = []
    while time.time() < end:
        clock = time.perf_counter()
        for file in (store.workspace / "cache").glob("flows-*"):
            file.unlink(missing_ok=True)
        headline(Flows(store), resolve_scope(store, run_id))
        taken.append(time.perf_counter() - clock)
    return taken


async def browse(address: str, end: float) -> list[float]:
    """Seconds of each page that one session opens, from the request to the end of its script."""
    taken = []
    async with aiohttp.ClientSession(headers={"Origin": address}) as session:
        socket = address.replace("http", "ws") + "/_stcore/stream"
        async with session.ws_connect(socket, protocols=("streamlit",), max_msg_size=0) as stream:
            turn = 0
            while time.time() < end:
                message = BackMsg()
                message.rerun_script.page_name = PAGES[turn % len(PAGES)]
                clock = time.perf_counter()
                await stream.send_bytes(message.SerializeToString())
                async for received in stream:
                    answer = ForwardMsg()
                    answer.ParseFromString(received.data)
                    # A page that Streamlit leaves for another one ends early, and is not counted.
                    if answer.WhichOneof("type") == "script_finished":
                        break
                taken.append(time.perf_counter() - clock)
                turn += 1
                await asyncio.sleep(PAUSE)
    return taken


async def browse_all(address: str, sessions: int, end: float) -> list[float]:
    every = await asyncio.gather(*(browse(address, end) for _ in range(sessions)))
    return [seconds for taken in every for seconds in taken]


@contextmanager
def database(connections: int) -> Iterator[tuple[str, str]]:
    """The address of an empty database, and of its server for whoever looks on."""
    with conftest._cluster() as cluster:
        maintenance = sa.create_engine(cluster.url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with maintenance.connect() as connection:
            connection.exec_driver_sql(f"CREATE ROLE team LOGIN CONNECTION LIMIT {connections or -1}")
            connection.exec_driver_sql("CREATE DATABASE team OWNER team")
        yield maintenance.url.set(database="team", username="team").render_as_string(False), cluster.url


class Part(NamedTuple):
    """A process of the benchmark; the last line that it prints has its times."""

    name: str
    process: subprocess.Popen[bytes]
    output: Path
    errors: Path


def started(name: str, workspace: Path, options: argparse.Namespace, end: float, address: str) -> Part:
    command = [sys.executable, __file__, "--part", name, "--workspace", str(workspace), "--address", address]
    command += ["--end", str(end), "--annotators", str(options.annotators), "--browsers", str(options.browsers)]
    # Into files: nobody reads until the end, and a pipe that is full would hold whoever has more than 64 KiB to say.
    output, errors = (workspace.parent / f"{uuid4().hex}.{kind}" for kind in ("out", "err"))
    with output.open("w") as out, errors.open("w") as error:
        return Part(name, subprocess.Popen(command, stdout=out, stderr=error), output, errors)


def measured(options: argparse.Namespace, workspace: Path, server_url: str) -> None:
    instant = subprocess.Popen(
        [sys.executable, str(HERE / "instant_server.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert instant.stdin is not None
    assert instant.stdout is not None
    with ExitStack() as stack:
        stack.callback(instant.stdin.close)
        url = instant.stdout.readline().strip()
        app, _ = stack.enter_context(serving.running_app(workspace))
        end = time.time() + 10 + options.seconds  # the processes need a few seconds to start
        parts = [("annotators", ""), ("browsers", app), ("metrics", ""), *[("workers", url)] * options.workers]
        processes = [started(name, workspace, options, end, address) for name, address in parts]
        watcher = sa.create_engine(server_url, poolclass=sa.NullPool)
        counts, active, blocked = [], 0, Counter[str]()
        query = sa.text(
            "SELECT state, wait_event_type, left(query, 60) AS statement FROM pg_stat_activity WHERE usename = 'team'"
        )
        while any(part.process.poll() is None for part in processes):
            with watcher.connect() as connection:
                sessions = connection.execute(query).all()
            counts.append(len(sessions))
            active += sum(session.state == "active" for session in sessions)
            blocked.update(" ".join(s.statement.split()) for s in sessions if s.wait_event_type == "Lock")
            time.sleep(0.5)
        taken: dict[str, list[float]] = {}
        for name, process, output, errors in processes:
            if process.returncode:
                print(f"{name} failed: {errors.read_text().strip().splitlines()[-1]}")
            else:
                values = json.loads(output.read_text().splitlines()[-1])
                if name == "annotators":
                    taken[name], taken["places"] = ([item[n] for item in values] for n in (0, 1))
                else:
                    taken.setdefault(name, []).extend(values)
    names = {
        "annotators": "a decision",
        "places": "  its place",
        "browsers": "a page",
        "metrics": "metrics",
        "workers": "a call",
    }
    print(f"{'':12}{'times':>8}{'median ms':>12}{'95th':>9}{'worst':>9}")
    for name, values in taken.items():
        if not values:  # a busy machine: it had not started before the end
            print(f"{names[name]:12}{0:8}")
            continue
        cuts = statistics.quantiles(values, n=20, method="inclusive") if len(values) > 1 else values * 20
        numbers = [1000 * statistics.median(values), 1000 * cuts[18], 1000 * max(values)]
        print(f"{names[name]:12}{len(values):8}{numbers[0]:12.1f}{numbers[1]:9.1f}{numbers[2]:9.1f}")
    print(f"connections: {max(counts)} at most")
    looks, waiting = len(counts), blocked.total()
    print(f"{looks} looks: {active / looks:.1f} sessions in a statement each, {waiting / looks:.2f} waiting for a lock")
    for statement, times in blocked.most_common(5):
        print(f"  {times:5} {statement}")
    store = open_store(workspace)
    with store.read() as connection:
        there = connection.execute(sa.select(sa.func.count(), sa.func.count(decision.c.uid.distinct()))).one()
    confirmed = len(taken.get("annotators", ()))
    print(f"{confirmed} decisions confirmed, {there[0]} in the record, {there[1]} of them different")
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--annotators", type=int, default=20)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--browsers", type=int, default=10)
    parser.add_argument("--connections", type=int, default=0)
    for hidden in ("--part", "--workspace", "--address", "--end"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        end = float(options.end)
        if options.part == "browsers":
            print(json.dumps(asyncio.run(browse_all(options.address, options.browsers, end))))
            return
        store = open_store(options.workspace)
        asked: dict[str, Callable[[], object]] = {
            "annotators": lambda: annotate(store, options.annotators, end),
            "workers": lambda: work(store, options.address, end),
            "metrics": lambda: count(store, end),
        }
        print(json.dumps(asked[options.part]()))
        return
    with tempfile.TemporaryDirectory() as folder, database(options.connections) as (address, server_url):
        os.environ[DATABASE_URL] = address
        workspace = Path(folder) / "workspace"
        store = open_store(workspace)
        fill(store, options.annotators * options.seconds)
        store.close()
        limit = f"at most {options.connections}" if options.connections else "any number of"
        who = f"{options.annotators} annotators, {options.workers} workers, {options.browsers} browsers"
        print(f"{who}, {limit} connections; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before", flush=True)
        measured(options, workspace, server_url)


if __name__ == "__main__":
    main()

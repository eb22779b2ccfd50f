"""How many calls a second the executor makes against a server that answers at once, and how much memory they take.

    python benchmarks/executor.py [--calls 4000] [--concurrency 32] [--rounds 5] [--engine postgresql]
        [--against FOLDER] [--memory CALLS]

Three parts, each in a process of its own, the server in another one on the same machine, taken in turn ROUNDS times:

    client     the client alone: the limit of what any executor above it could reach
    executor   planned responses through the executor, each recorded with its call and its request
    run        a whole run as a person starts it: prompts rendered, answered, recorded, judged by a model, recorded

A call is one request with a prompt of 150 memories (16,000 characters). The table holds the medians; the processor's
time a call depends less on what else the machine does than the calls a second; that of a PostgreSQL server is not in
it. --engine: what records, `sqlite` or a private server's new databases. --against takes another checkout of this
project and measures it in the same rounds, for a comparison that the machine's other work does not touch. --memory
plans so many calls, runs them with five in each request as real runs do, and gives the peak resident set of the process
that did both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import conftest
import openai  # noqa: F401 - imported late by the client, which would count as time of its first call
import sqlalchemy as sa

from cimemories import seeds
from cimemories.curation.offline import generate_profiles
from cimemories.evaluation import planning, runs
from cimemories.llm.client import Client
from cimemories.llm.endpoint import Endpoint
from cimemories.llm.executor import Executor, Job, Settle
from cimemories.model import Attribute, ChatRequest, Context, Profile, ResponseStatus
from cimemories.store import calls, datasets
from cimemories.store import runs as store_runs
from cimemories.store.calls import Answer
from cimemories.store.engine import DATABASE_URL, Store, open_store

HERE = Path(__file__).absolute().parent
LEAST_A_SECOND = 350.0
MOST_MEGABYTES = 600.0
CONTEXTS = 49
SAMPLES = 5
MEMORIES = "\n".join(
    f"- In the spring of {1900 + i} I agreed with my landlord on a rent of {i} dollars, put down in two copies."
    for i in range(150)
)
PARAMETERS: dict[str, object] = {"max_tokens": 1024, "temperature": 0.7}
Measured = dict[str, float]


def request_of(number: int) -> ChatRequest:
    """A request like those of a run: 150 memories, then the task. The number makes it another one."""
    return ChatRequest("m", (("user", f"{MEMORIES}\n\nTask {number}: write to the landlord."),), PARAMETERS)


async def ask_alone(url: str, count: int, concurrency: int) -> None:
    """The client alone: keys are made, since the client needs them, and nothing is recorded."""
    client, numbers = Client(Endpoint(url), simulated=False), iter(range(count))

    async def worker() -> None:
        for number in numbers:
            request = request_of(number)
            (answer,) = await client.complete(request, calls.keys_of(request, [0], simulated=False))
            assert answer.ok, answer.error

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    await client.close()


async def run_jobs(store: Store, run_id: str, url: str, concurrency: int) -> None:
    """Planned responses through the executor; settling writes each as a run does."""
    client = Client(Endpoint(url), simulated=False)
    with store.read() as connection:
        profile_ids = store_runs.profile_ids(connection, run_id)

    def settling(response_ids: Mapping[int, int]) -> Settle:
        def settle(connection: sa.Connection, outcomes: Mapping[int, Answer]) -> tuple[()]:
            assert all(answer.ok for answer in outcomes.values())
            settled = [
                store_runs.Settled(
                    response_ids[draw], ResponseStatus.OK, None, answer.content, None, answer.finish_reason, answer.key
                )
                for draw, answer in outcomes.items()
            ]
            assert all(store_runs.settle_all(connection, settled))
            return ()

        return settle

    def jobs() -> Iterator[Job]:
        for profile_id in profile_ids:
            with store.read() as connection:
                groups = store_runs.owed(connection, run_id, profile_id)
            for group in groups:
                request = request_of(min(group.samples.values()))
                yield Job("respond", client, request, tuple(group.samples), settling(group.samples))

    await Executor(store, run_id, concurrency=concurrency).run(jobs())
    await client.close()


def world(store: Store, count: int, *, small: bool) -> None:
    """A dataset with `count` pairs of profile and context: as generated, or small where only their number matters."""
    number = -(-count // CONTEXTS)
    if small:
        contexts = tuple(Context(f"Task {i}", f"Recipient {i}") for i in range(CONTEXTS))
        fact = Attribute("fact", 1, "finance", "general", "One fact.")
        profiles = [Profile(f"Profile {i}", "female", "Street 1", 30, (fact,), contexts) for i in range(number)]
    else:
        profiles = list(generate_profiles(number, contexts=seeds.load_contexts()[:CONTEXTS]))
    with store.write() as connection:
        datasets.add(connection, "bench", profiles, origin="test", source_name=None, source_hash="bench")


def plan(store: Store, url: str, samples: int, judge: planning.JudgeSpec) -> str:
    # A checkout to compare with may have the settings of before they were a pydantic model.
    judged = {"judges": (judge,)} if hasattr(planning.RunSpec, "described") else {"judge": judge}
    return planning.plan(store, planning.RunSpec(dataset="bench", model="m", base_url=url, samples=samples, **judged))


def measure(part: str, url: str, count: int, concurrency: int) -> Measured:
    """One part, measured in this process: what came before the work counts for memory, and not for time."""
    done = count
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder)
        judge = planning.JudgeSpec(kind="llm", model="judge", base_url=url) if part == "run" else planning.JudgeSpec()
        run_id = ""
        if part != "client":
            samples = SAMPLES if part == "memory" else 1
            world(store, count // (2 if part == "run" else samples), small=part == "memory")
            run_id = plan(store, url, samples, judge)
            with store.read() as connection:
                done = store_runs.by_id(connection, run_id).expected * (2 if part == "run" else 1)
        clock, busy = time.perf_counter(), time.process_time()
        if part == "client":
            asyncio.run(ask_alone(url, count, concurrency))
        elif part == "run":
            runs.execute(store, run_id, concurrency=concurrency)
        else:
            asyncio.run(run_jobs(store, run_id, url, concurrency))
        seconds, busy = time.perf_counter() - clock, time.process_time() - busy
        if run_id:
            with store.read() as connection:
                row = store_runs.by_id(connection, run_id)
            assert row.responses == {ResponseStatus.OK: row.expected}, row.responses
            assert part != "run" or row.judged == row.expected
        store.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rate": done / seconds, "busy": 1000 * busy / done, "peak": peak, "calls": done}


@contextmanager
def records(engine: str) -> Iterator[Callable[[], dict[str, str]]]:
    """What gives the environment of a part: with the address of a new database each time, on PostgreSQL."""
    if engine == "sqlite":
        yield dict
        return
    with conftest._cluster() as cluster:
        server = sa.create_engine(cluster.url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        numbers = iter(range(1_000_000))

        def record() -> dict[str, str]:
            name = f"part_{next(numbers)}"
            with server.connect() as connection:
                connection.exec_driver_sql(f"CREATE DATABASE {name}")
            return {DATABASE_URL: server.url.set(database=name).render_as_string(hide_password=False)}

        yield record


def in_own_process(
    part: str, url: str, options: argparse.Namespace, code: Path, count: int, record: dict[str, str]
) -> Measured:
    command = [sys.executable, str(HERE / "executor.py"), "--part", part, "--url", url]
    command += ["--calls", str(count), "--concurrency", str(options.concurrency)]
    environment = {**os.environ, "PYTHONPATH": str(code), **record}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{part} of {code} failed:\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def report(rounds_by_part: Mapping[tuple[str, str], list[Measured]]) -> None:
    """A line for each part and checkout: medians over the rounds, and the share of the client alone in each round."""
    print(f"\n{'part':10}{'code':10}{'calls':>8}{'calls/s':>10}{'range':>14}", end="")
    print(f"{'of client':>11}{'cpu ms/call':>13}{'peak MB':>9}")
    for (part, code), rounds in rounds_by_part.items():
        rates = [r["rate"] for r in rounds]
        share = statistics.median(
            r["rate"] / c["rate"] for r, c in zip(rounds, rounds_by_part["client", code], strict=True)
        )
        print(
            f"{part:10}{code:10}{rounds[0]['calls']:8.0f}{statistics.median(rates):10.0f}"
            f"{f'{min(rates):.0f} to {max(rates):.0f}':>14}{share:11.2f}"
            f"{statistics.median(r['busy'] for r in rounds):13.2f}{max(r['peak'] for r in rounds):9.0f}"
        )
    for (part, code), rounds in rounds_by_part.items():
        if code != "this":
            ratio = statistics.median(
                mine["rate"] / theirs["rate"] for mine, theirs in zip(rounds_by_part[part, "this"], rounds, strict=True)
            )
            print(f"{part}: this code makes {ratio:.2f} times the calls a second of {code}")
    if ("executor", "this") not in rounds_by_part:
        return
    best = statistics.median(r["rate"] for r in rounds_by_part["executor", "this"])
    print(f"executor: {best:.0f} calls a second, {best / LEAST_A_SECOND:.2f} of the least that is asked for")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=4000, help="calls in each part")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", type=Path, help="folder of another checkout to measure beside this one")
    parser.add_argument("--memory", type=int, metavar="CALLS", help="measure memory over so many calls instead")
    parser.add_argument("--engine", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--parts", nargs="+", default=["client", "executor", "run"])
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(measure(options.part, options.url, options.calls, options.concurrency)))
        return
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the start, concurrency "
        f"{options.concurrency}, {options.engine}"
    )
    codes = {"this": HERE.parent} | ({"against": options.against.resolve()} if options.against else {})
    command = [sys.executable, str(HERE / "instant_server.py")]
    with (
        records(options.engine) as record,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        try:
            if options.memory:
                memory = in_own_process("memory", url, options, HERE.parent, options.memory, record())
                print(
                    f"{memory['calls']:,.0f} planned calls: {memory['peak']:.0f} MB at the peak, "
                    f"{memory['peak'] / MOST_MEGABYTES:.2f} of the most allowed; {memory['rate']:.0f} calls a second"
                )
                return
            measured: dict[tuple[str, str], list[Measured]] = {}
            for _ in range(options.rounds):
                for part in options.parts:
                    for name, code in codes.items():
                        one = in_own_process(part, url, options, code, options.calls, record())
                        measured.setdefault((part, name), []).append(one)
            report(measured)
        finally:
            server.stdin.close()


if __name__ == "__main__":
    main()

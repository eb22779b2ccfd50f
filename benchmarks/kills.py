"""Fifty kills (-9) at random moments of one run, while one call in five goes wrong on purpose.

    python benchmarks/kills.py [--kills 50] [--seed 1]

A run of 2 profiles x 12 contexts x 3 samples with a judge is started and killed again and again, each time at a random
moment of its work, against a simulator that refuses, hangs, cuts or garbles a fifth of the requests. In the end it is
resumed until nothing has failed, and compared with the same run made in one go without faults. Fails with exit status 1
where a response is missing or double, a failure has no cause, or a number differs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from cimemories.evaluation import planning

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from evaluating import ROOT, add_labelled, assert_whole, command, counts, numbers, outside, simulated

from cimemories.evaluation import runs
from cimemories.store import runs as store_runs
from cimemories.store.engine import Store, open_store

PROFILES, CONTEXTS, SAMPLES = 2, 12, 3
PLANNED = PROFILES * CONTEXTS * SAMPLES
# `truncation` is left out: half a text with the reason `length` is a whole answer to a client, and asked for once.
KINDS = ("rate_limit", "server_error", "hang", "cut", "broken_json", "no_choices", "fewer_choices")
SERVER = f"""
import sys
from cimemories.simulator.server import _listen, _uvicorn, create_app
faults, seed = float(sys.argv[1]), int(sys.argv[2])
app = create_app(0, faults, {KINDS!r}, 0.3)
with _listen("127.0.0.1", 0) as listener:
    print(listener.getsockname()[1], flush=True)
    _uvicorn(app).run(sockets=[listener])
"""


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--kills", type=int, default=50)
    options.add_argument("--seed", type=int, default=1)
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return _run(Path(folder), arguments.kills, Random(arguments.seed))


def _server(faults: float) -> tuple[subprocess.Popen, str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(faults), "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, f"http://127.0.0.1:{int(process.stdout.readline())}/v1"


def _run(folder: Path, kills: int, chance: Random) -> int:
    server, url = _server(0.2)
    store = open_store(folder / "killed")
    add_labelled(store, PROFILES, CONTEXTS)
    judge = planning.JudgeSpec(kind="llm", model="sim-judge", base_url=url)
    run_id = planning.plan(store, simulated(url, samples=SAMPLES, judges=(judge,), seed=0))
    lost = late = 0
    clock = time.perf_counter()
    for _ in range(kills):
        before = counts(store)
        # What is done already is taken away again, or fifty kills would outlive the work.
        if _settled(store, run_id) > 0.9:
            late += 1
            run_id = _anew(store, url, judge)
            before = counts(store)
        process = subprocess.Popen(
            command("resume", run_id, "--concurrency", "4", "--workspace", store.workspace),
            env=outside(),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        start = counts(store)["calls"]
        until = time.monotonic() + 20
        while counts(store)["calls"] == start and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.4))
        process.kill()
        process.wait()
        after = counts(store)
        lost += sum(after[name] < before[name] for name in after)
    causes = _causes(store, run_id)
    for _ in range(20):
        runs.execute(store, run_id)
        if not _causes(store, run_id):
            break
    server.kill()
    assert_whole(store, run_id, PLANNED)
    calm, calm_url = _server(0.0)
    other = open_store(folder / "calm")
    add_labelled(other, PROFILES, CONTEXTS)
    calm_id = planning.plan(
        other,
        simulated(
            calm_url,
            samples=SAMPLES,
            judges=(planning.JudgeSpec(kind="llm", model="sim-judge", base_url=calm_url),),
            seed=0,
        ),
    )
    runs.execute(other, calm_id)
    calm.kill()
    same = numbers(store, run_id) == numbers(other, calm_id)
    print(f"{kills} kills in {time.perf_counter() - clock:.0f} s; begun anew {late} times, being done too early")
    print(f"records that had become fewer after a kill: {lost}")
    print(f"failures on the way without a cause: {sum(not cause for *_, cause, _ in causes)} of {len(causes)} kinds")
    print(f"responses: {PLANNED} planned, each there and judged once; the metrics are those of the calm run: {same}")
    return 0 if same and not lost and all(cause for *_, cause, _ in causes) else 1


def _anew(store: Store, url: str, judge: planning.JudgeSpec) -> str:
    """The same run from nothing: its recorded calls are taken out of the record, which only a benchmark may do."""
    with store.write() as connection:
        for row in store_runs.all_rows(connection):
            store_runs.delete(connection, row.id)
        _forget(connection)
    return planning.plan(store, simulated(url, samples=SAMPLES, judges=(judge,), seed=0))


def _forget(connection: object) -> None:
    import sqlalchemy as sa

    from cimemories.store.tables import call

    connection.execute(sa.delete(call).where(call.c.kind.in_(("respond", "judge"))))  # type: ignore[attr-defined]


def _settled(store: Store, run_id: str) -> float:
    with store.read() as connection:
        row = store_runs.named(connection, run_id)
    return row.judgements.get("ok", 0) / PLANNED


def _causes(store: Store, run_id: str) -> list[tuple[str, str, str, int]]:
    with store.read() as connection:
        return store_runs.failures(connection, run_id)


if __name__ == "__main__":
    sys.exit(main())

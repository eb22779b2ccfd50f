"""Small evaluations for tests: synthetic profiles, labels by the simulator, runs, and what the record says of them."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

import pytest
import sqlalchemy as sa
from forked import Forked

from cimemories import seeds
from cimemories.answers.metrics import metrics
from cimemories.cli import main
from cimemories.curation import execution, labelling
from cimemories.curation.offline import generate_profiles
from cimemories.curation.spec import LabellingSpec
from cimemories.evaluation import planning, runs
from cimemories.evaluation.importing import import_file
from cimemories.files import uploaded
from cimemories.flows.flows import Flows
from cimemories.flows.scope import resolve_scope
from cimemories.formats.importing import Imported, Kind
from cimemories.model import Profile
from cimemories.store import datasets, judgements, labellings
from cimemories.store import runs as store_runs
from cimemories.store.engine import Store
from cimemories.store.runs import RunRow
from cimemories.store.tables import call, judgement, response, reveal

ROOT = Path(__file__).resolve().parent.parent
DATASET = "small"
IDS = ("run", "labels", "name", "sentence")  # what two runs of the same differ in


@cache
def small_profiles(profiles: int = 1, contexts: int = 8) -> Sequence[Profile]:
    """Profiles of some forty attributes, the same ones every time."""
    return tuple(generate_profiles(profiles, seed=3, per_domain=1, contexts=seeds.load_contexts()[:contexts]))


def add(store: Store, profiles: Sequence[Profile], name: str = DATASET) -> None:
    with store.write() as connection:
        datasets.add(connection, name, profiles, origin="test", source_name=None, source_hash=name)


def add_labelled(store: Store, profiles: int = 1, contexts: int = 8) -> None:
    """A dataset named DATASET with labels by the simulator."""
    add(store, small_profiles(profiles, contexts))
    spec = LabellingSpec(dataset=DATASET, model="sim-labeler", base_url="simulator", draws=2)
    execution.execute(store, labelling.plan(store, spec))


def add_judged(store: Store) -> str:
    """The same, and a finished run on it; returns its id."""
    add_labelled(store)
    run_id = planning.plan(store, simulated())
    runs.execute(store, run_id)
    return run_id


def import_bytes(
    store: Store,
    data: bytes,
    file_name: str,
    name: str | None = None,
    *,
    kind: Kind | None = None,
    model: str | None = None,
) -> Imported:
    """Import a file that was uploaded."""
    with uploaded(data, file_name) as path:
        return import_file(store, path, name, kind, model=model)


def simulated(base_url: str = "simulator", **changes: object) -> planning.RunSpec:
    """A run of a simulated model with a simulated judge, three samples a context."""
    judge = planning.JudgeSpec(kind="llm", model="sim-judge", base_url=base_url)
    values = {"dataset": DATASET, "model": "sim-average", "base_url": base_url, "samples": 3, "judges": (judge,)}
    return planning.RunSpec(**{**values, **changes})


def only_run(store: Store) -> str:
    with store.read() as connection:
        (row,) = store_runs.all_rows(connection)
    return row.id


def row_of(store: Store, run_id: str) -> RunRow:
    with store.read() as connection:
        return store_runs.by_id(connection, run_id)


def counts(store: Store) -> dict[str, int]:
    """How many calls, responses that are there, judgements and reveals the record holds."""
    with store.read() as connection:

        def number(table: sa.Table, *where: sa.ColumnElement[bool]) -> int:
            return int(connection.execute(sa.select(sa.func.count()).select_from(table).where(*where)).scalar_one())

        return {
            "calls": number(call),
            "responses": number(response, response.c.status == "ok"),
            "judgements": number(judgement),
            "reveals": number(reveal),
        }


def numbers(store: Store, run_id: str) -> dict[str, object]:
    """The headline numbers of a run without its ids."""
    result = metrics(Flows(store), resolve_scope(store, run_id)).as_json()
    return {name: value for name, value in result.items() if name not in IDS}


def assert_whole(store: Store, run_id: str, expected: int) -> None:
    """Every planned response and every judgement is there exactly once, nothing is owed, and the run says so."""
    row = row_of(store, run_id)
    assert row.status == "finished"
    assert row.responses == {"ok": expected}
    assert row.judgements == {"ok": expected}
    with store.read() as connection:
        for profile_id in store_runs.profile_ids(connection, run_id):
            assert store_runs.owed(connection, run_id, profile_id) == []
            for judge in (*judgements.of_run(connection, run_id), *judgements.checkers_of_run(connection, run_id)):
                assert judgements.owed(connection, run_id, judge.id, profile_id) == []
        slots = sa.select(response.c.profile, response.c.context, response.c.level, response.c.sample)
        planned = connection.execute(slots.where(response.c.run == run_id)).all()
        read = connection.execute(
            sa.select(judgement.c.response, judgement.c.judge)
            .join(response, judgement.c.response == response.c.id)
            .where(response.c.run == run_id)
        ).all()
        readers = judgements.of_run(connection, run_id) + judgements.checkers_of_run(connection, run_id)
    assert len(planned) == len(set(planned)) == expected
    assert len(read) == len(set(read)) == expected * len(readers)


def ballots(store: Store, labelling_id: str) -> dict[str, int]:
    with store.read() as connection:
        return next(row.ballots for row in labellings.all_rows(connection) if row.id == labelling_id)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "cimemories", *map(str, arguments)]


def cli(environment: Mapping[str, str], *arguments: object, timeout: float = 90.0) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, as a script would."""
    return subprocess.run(
        command(*arguments), env=environment, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
    )


def cli_forked(environment: Mapping[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    """The same in a process that need not import all of it: for what other tests start as a user does."""
    process = Forked(environment, *arguments)
    output, error = process.communicate(timeout=90)
    assert process.returncode is not None
    return subprocess.CompletedProcess(command(*arguments), process.returncode, output, error)


def cli_inside(
    environment: Mapping[str, str], *arguments: object, folder: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """The same in this process, from `main` on: 0.1 s instead of the 1.2 s that a new interpreter takes to import all.
    folder: the working folder.

    For commands that end by themselves; what a test kills, runs side by side or limits needs `cli`.
    """
    argv = command(*arguments)[2:]
    code, stdout, stderr = 0, io.StringIO(), io.StringIO()
    before = dict(os.environ)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(stdout), redirect_stderr(stderr):
        patch.setattr(sys, "argv", argv)
        patch.chdir(folder)
        try:
            os.environ.clear()
            os.environ.update(environment)
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            os.environ.clear()
            os.environ.update(before)
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return subprocess.CompletedProcess(argv, code, stdout.getvalue(), stderr.getvalue())


def outside() -> dict[str, str]:
    """The environment without anything that would lead a process to somebody's record."""
    return {k: v for k, v in os.environ.items() if not k.startswith("CIMEMORIES_")}

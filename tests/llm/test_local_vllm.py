"""Work that starts a vLLM of its own: the address that asks for one, its identity, its end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import answering_vllm
import psutil
import pytest
import yaml
from evaluating import add, assert_whole, row_of, simulated, small_profiles
from executing import eventually
from ray_clusters import meanwhile
from typer.testing import CliRunner

from cimemories.cli import cli
from cimemories.evaluation import planning, runs
from cimemories.evaluation.spec import JudgeSpec
from cimemories.llm import identity, local_vllm, vllm_server
from cimemories.llm.endpoint import EndpointError
from cimemories.llm.worker import WorkError
from cimemories.store import runs as store_runs
from cimemories.store import work
from cimemories.store.engine import Store

SWEEP = {"name": "s", "dataset": "small", "prompt_levels": ["base", "high"], "samples": 1, "contexts": 1}
SERVED = local_vllm.local_address("sim-average --max-model-len 32768")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a vLLM that answers."""
    monkeypatch.setenv("CIMEMORIES_VLLM", str(answering_vllm.install(tmp_path / "vllm")))
    return tmp_path / "vllm"


def planned(store: Store, address: str = SERVED, model: str = "sim-average") -> str:
    add(store, small_profiles(1, 2))
    return planning.plan(store, simulated(address, model=model, samples=2, judges=(JudgeSpec(),)))


def gone(folder: Path) -> bool:
    return not any(psutil.pid_exists(pid) for pid, _ in answering_vllm.starts(folder))


def test_an_address_holds_the_model_and_its_flags_and_nothing_that_runs_code() -> None:
    address = local_vllm.local_address("'my models/x' --max-model-len=8192 --tensor-parallel-size 2 --dtype float16")
    spec = local_vllm.spec_of(address)
    assert spec.model == "my models/x" and spec.flags[-2:] == ("--dtype", "float16")
    assert (spec.number("max-model-len"), spec.number("tensor-parallel-size"), spec.number("seed")) == (8192, 2, None)
    assert local_vllm.is_local(address) and not local_vllm.is_local("http://localhost:8000/v1")
    for words in ("", "--dtype float16", "m --trust-remote-code", "m --port 1", "m --api-key x", "m 'open"):
        with pytest.raises(EndpointError):
            local_vllm.local_address(words)


def test_its_identity_is_that_of_the_server_that_is_started(sqlite_store: Store, program: Path) -> None:
    """By it recorded answers are found, whatever port the server gets, and whoever has started it."""
    run_id = planned(sqlite_store)
    assert answering_vllm.starts(program) == []  # planning starts nothing: this machine may have no GPU
    runs.execute(sqlite_store, run_id)
    assert_whole(sqlite_store, run_id, 4)
    ((_, port),) = answering_vllm.starts(program)
    assert gone(program)
    (state,) = vllm_server.servers(sqlite_store.workspace)
    assert (state.port, state.phase) == (port, "stopped")
    own = identity.server_id(SERVED, local_vllm.planned_server(SERVED, "sim-average", seed_wanted=False), sqlite_store)
    assert own.text == row_of(sqlite_store, run_id).manifest.model.identity
    again = planning.plan(sqlite_store, simulated(SERVED, samples=2, judges=(JudgeSpec(),), name="again"))
    progress = runs.execute(sqlite_store, again)
    assert (progress.fresh, progress.reused) == (0, 4)  # found by key, though by another server


def test_requests_by_another_name_and_a_server_that_fails_are_told(sqlite_store: Store, program: Path) -> None:
    with pytest.raises(EndpointError, match="serves 'sim-average', not 'other'"):
        planned(sqlite_store, model="other")
    run_id = planning.plan(
        sqlite_store, simulated(local_vllm.local_address("broken"), model="broken", samples=2, judges=(JudgeSpec(),))
    )
    with pytest.raises(WorkError, match=r"memory(.|\n)*last lines:\n  torch.OutOfMemoryError"):
        runs.execute(sqlite_store, run_id)
    assert row_of(sqlite_store, run_id).status == "interrupted"
    assert gone(program)


def test_a_run_can_be_cancelled_while_its_server_loads(sqlite_store: Store, program: Path) -> None:
    run_id = planned(sqlite_store, local_vllm.local_address("never"), model="never")

    def cancel(_over: object) -> None:
        eventually(lambda: bool(answering_vllm.starts(program)), 20)
        with sqlite_store.write() as connection:
            work.request_cancel(connection, run_id)

    with meanwhile(cancel), pytest.raises(WorkError, match="cancelled on request"):
        runs.execute(sqlite_store, run_id)
    assert gone(program)


OWN = ["--base-url", "local-vllm", "--serve"]
LABEL = ["label", "-d", "small", "-m", "sim-labeler", "--draws", "1", "--contexts", "1"]
MESSAGES = ["run", "-d", "small", "-m", "sim-average", "--judge", "matcher", "-n", "1"]


@pytest.fixture
def served(sqlite_store: Store, program: Path) -> Callable[..., tuple[str, int]]:
    """Runs a command: what it printed, and how many servers it has started; none of them is left."""
    add(sqlite_store, small_profiles(1, 2))

    def call(*words: str) -> tuple[str, int]:
        before = len(answering_vllm.starts(program))
        done = CliRunner().invoke(cli, [*words, "--workspace", str(sqlite_store.workspace)])
        assert done.exit_code == 0, done.output
        assert gone(program)
        return done.stdout.strip(), len(answering_vllm.starts(program)) - before

    return call


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    file = tmp_path / "sweep.yaml"
    model = {"model": "sim-careful", "base_url": "local-vllm"}
    file.write_text(yaml.safe_dump({**SWEEP, "models": [model], "judges": ["matcher"]}))
    return file


def test_a_command_serves_what_it_asks_and_one_that_owes_nothing_starts_no_server(
    served: Callable[..., tuple[str, int]],
) -> None:
    labelling, started = served(*LABEL, *OWN, "sim-labeler --seed 3")
    assert started == 1 and served("resume", labelling)[1] == 0


@pytest.mark.long
def test_every_command_serves_what_it_asks_and_nothing_else(
    sqlite_store: Store, served: Callable[..., tuple[str, int]], sweep_file: Path
) -> None:
    """Messages, judgements, a sweep and profiles, each by a server of its own; the runs of a sweep share theirs."""
    served(*LABEL, *OWN, "sim-labeler --seed 3")
    embedder = "model=sim-careful,base_url=local-vllm:sim-careful --dtype float16"
    run_id, started = served(*MESSAGES, *OWN, "sim-average --seed 3", "--memory", f"system:embedding:k=2,{embedder}")
    assert started == 2 and served("resume", run_id)[1] == 0
    judge = ["--judge-model", "sim-judge", "--judge-base-url", "local-vllm", "--serve", "sim-judge --dtype float16"]
    assert served("judge", run_id, *judge)[1] == 1  # the judge's: that of the model has nothing to say
    assert row_of(sqlite_store, run_id).judgements == {"ok": 2}
    sweep_id, started = served("sweep", str(sweep_file), "--serve", "sim-careful --dtype float16")
    assert started == 1
    with sqlite_store.read() as connection:
        cells = [row for row in store_runs.all_rows(connection) if row.sweep == sweep_id]
    assert {cell.endpoint for cell in cells} == {"local-vllm:sim-careful --dtype float16"}
    assert [(cell.status, cell.responses) for cell in cells] == [("finished", {"ok": 1})] * 2
    written = ["generate", "-d", "mine", "--profiles", "1", "--per-domain", "1", "-m", "sim-average"]
    assert served(*written, *OWN, "sim-average --seed 3")[1] == 1


def test_what_cannot_be_served_is_refused_before_anything_starts(
    sqlite_store: Store, program: Path, sweep_file: Path
) -> None:
    add(sqlite_store, small_profiles(1, 2))
    for words, why in (
        ([*LABEL, *OWN, "sim-judge"], "names 'sim-judge', and local-vllm is asked for 'sim-labeler'"),
        ([*MESSAGES, "--base-url", "http://localhost:1/v1", "--serve", "sim-average"], "base URL local-vllm"),
        (["sweep", str(sweep_file), "--serve", "sim-careful --port 1"], "port"),
        (["sweep", str(sweep_file), "--serve", "sim-careful", "--serve", "'sim-careful'"], "twice"),
        (["generate", "-d", "x", "--serve", "sim-average"], "--serve needs --model"),
    ):
        wrong = CliRunner().invoke(cli, [*words, "--workspace", str(sqlite_store.workspace)])
        assert wrong.exit_code != 0 and why in " ".join(f"{wrong.exception} {wrong.output}".split()), wrong.output
    assert answering_vllm.starts(program) == []

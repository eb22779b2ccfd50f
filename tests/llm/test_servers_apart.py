"""Answers belong to the server that gave them: which servers are told apart, what a person may tie, what is fresh."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from evaluating import DATASET, add, cli_inside, outside, row_of, simulated, small_profiles
from hostile import IncomingRequest, Reply, Server, completion, hostile_server

from cimemories.curation import execution, labelling
from cimemories.curation.spec import LabellingSpec
from cimemories.evaluation import planning, runs
from cimemories.evaluation.estimates import estimate
from cimemories.evaluation.planning import look_up, with_identity
from cimemories.evaluation.sweeps import check_sweep, estimate_sweep
from cimemories.evaluation.sweeps import execute as execute_sweep
from cimemories.evaluation.sweeps import plan as plan_sweep
from cimemories.formats.batch_files import read_calls, write_calls
from cimemories.llm import vllm_server
from cimemories.llm.endpoint import EndpointError, ServerInfo
from cimemories.llm.executor import Progress
from cimemories.llm.identity import managed_id, server_id
from cimemories.llm.vllm_server import Phase, ServerState, process_of
from cimemories.llm.worker import WorkError
from cimemories.metrics.warnings import run_warnings
from cimemories.simulator.server import running_simulator
from cimemories.store import calls
from cimemories.store.calls import NOT_KNOWN, ServerId, address_of
from cimemories.store.engine import Store, StoreError, canonical_json, open_store
from cimemories.store.tables import call, run, run_judge

MESSAGES = 4  # 2 contexts, 2 samples each
Chat = Callable[[IncomingRequest], Reply]


def card(root: str | None = None) -> Reply:
    listed = {"id": "m", "object": "model", "created": 0, "owned_by": "vllm"} | ({"root": root} if root else {})
    return Reply(body={"object": "list", "data": [listed]})


def saying(text: str) -> Chat:
    return lambda request: completion(*[f"{text} {i}" for i in range(request.n)])


@contextmanager
def serving(text: str = "hello", root: str | None = None) -> Iterator[Server]:
    with hostile_server(saying(text), card(root)) as server:
        yield server


def spec(url: str, **changes: Any) -> planning.RunSpec:
    return planning.RunSpec(
        dataset=DATASET, model="m", base_url=url, **{"samples": 2, "judges": (planning.JudgeSpec(),), **changes}
    )


def done(store: Store, url: str, **changes: Any) -> tuple[str, Progress]:
    run_id = planning.plan(store, spec(url, **changes))
    return run_id, runs.execute(store, run_id)


def texts(store: Store, run_id: str) -> set[str]:
    query = sa.text("SELECT text FROM response WHERE run = :run")
    with store.read() as connection:
        return {row.text.split()[0] for row in connection.execute(query, {"run": run_id})}


@pytest.fixture
def small(sqlite_store: Store) -> Store:
    add(sqlite_store, small_profiles(contexts=2))
    return sqlite_store


# ---- servers are told apart


def test_two_servers_of_one_model_name_share_no_answer(small: Store) -> None:
    with serving("full") as one, serving("quantised") as other:
        done(small, one.url)
        second, progress = done(small, other.url)
        assert (progress.fresh, progress.reused) == (MESSAGES, 0)
        assert texts(small, second) == {"quantised"}
        third, progress = done(small, one.url)
    assert (progress.fresh, progress.reused) == (0, MESSAGES)
    assert texts(small, third) == {"full"}


def test_another_build_at_the_same_address_asks_anew(small: Store) -> None:
    with serving(root="maker/model") as server:
        done(small, server.url)
        server.models = card("/models/model-int4")
        _, progress = done(small, server.url)
        assert (progress.fresh, progress.reused) == (MESSAGES, 0)
        server.models = card("maker/model")
        _, progress = done(small, server.url)
    assert (progress.fresh, progress.reused) == (0, MESSAGES)


def test_other_spellings_of_an_address_are_the_same_server(small: Store) -> None:
    with serving() as server:
        done(small, server.url)
        port = server.url.split(":")[-1]
        _, progress = done(small, f"HTTP://localhost:{port}/")
    assert progress.reused == MESSAGES


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("http://GPU1:8000/v1/", "http://gpu1:8000/v1"),
        ("https://API.example.com:443/v1", "https://api.example.com/v1"),
        ("http://127.0.0.1:8000/v1", "http://localhost:8000/v1"),
        ("http://[::1]:8000//v1", "http://localhost:8000/v1"),
        ("http://0.0.0.0:8000/v1", "http://localhost:8000/v1"),
        ("http://[2001:DB8:0::1]:80", "http://[2001:db8::1]"),
        ("http://gpu1:8001/v1", "http://gpu1:8001/v1"),
        ("simulator", "simulator"),
        ("http://gpu1:none", "http://gpu1:none"),
    ],
)
def test_an_address_has_one_spelling(written: str, expected: str) -> None:
    assert address_of(written) == expected == address_of(expected)


def test_what_a_server_is_called_is_read_back() -> None:
    for item in (ServerId("http://a/v1"), ServerId("http://a/v1", "maker/m"), ServerId("http://a/v1", "m", "abc")):
        assert ServerId.read(item.text) == item


def test_a_simulator_is_the_same_at_every_port_and_another_with_another_seed(small: Store) -> None:
    fresh_counts = []
    for seed in (0, 0, 1):
        with running_simulator(seed=seed) as url:
            run_id = planning.plan(small, simulated(url, samples=2, judges=(planning.JudgeSpec(),)))
            fresh_counts.append(runs.execute(small, run_id).fresh)
    assert fresh_counts == [MESSAGES, 0, MESSAGES]


def test_a_managed_server_is_told_by_its_model_and_flags_not_by_its_port() -> None:
    command = "/x/vllm serve m --host 127.0.0.1 --port {} --served-model-name m --max-model-len=4096 --quantization {}"
    first, moved, other = (
        managed_id("m", command.format(*values).split()).text
        for values in ((8000, "fp8"), (8001, "fp8"), (8000, "awq"))
    )
    assert first == moved == "vllm serve m --max-model-len 4096 --quantization fp8" != other


def test_the_address_of_a_managed_server_leads_to_what_it_serves(small: Store) -> None:
    info, url = ServerInfo(("m",), False, None, "maker/m"), "http://127.0.0.1:8123/v1"
    command_line = "/x/vllm serve maker/m --host 127.0.0.1 --port 8123 --served-model-name m --quantization fp8"
    state = ServerState(
        id="server-0123abcd",
        host=socket.gethostname(),
        model="maker/m",
        served_name="m",
        port=8123,
        command=tuple(command_line.split(" ")),
        started_by="test",
        keep=False,
        created=time.time(),
        supervisor=process_of(os.getpid()),
        phase=Phase.READY,
    )
    path = vllm_server.state_path(small.workspace, state.id)
    assert server_id(url, info, small).text == "http://localhost:8123/v1, root maker/m"
    vllm_server.save_state(path, state)
    assert server_id(url, info, small).text == "http://localhost:8123/v1, root maker/m", "a file that nobody stands for"
    lock = vllm_server.open_lock(vllm_server.lock_of(path))
    try:
        assert server_id(url, info, small).text == "vllm serve maker/m --quantization fp8"
        assert server_id("http://127.0.0.1:8124/v1", info, small).text == "http://localhost:8124/v1, root maker/m"
    finally:
        os.close(lock)


def test_this_machine_is_named_where_several_share_the_record(store: Store) -> None:
    text = server_id("http://127.0.0.1:8000/v1", ServerInfo(("m",), False, None), store).text
    shared = store.engine.dialect.name == "postgresql"
    assert text == "http://localhost:8000/v1" + (f" on {socket.gethostname()}" if shared else "")


def test_what_a_server_reports_is_cut_to_one_plain_line(small: Store) -> None:
    with serving(root="a\nb\x1b[31m" + "c" * 1000) as server:
        identity = with_identity(small, server.url, look_up(server.url, "", "m", 1, False, None)).identity
    assert identity is not None and identity.isprintable() and len(identity) < 300


# ---- a server that was replaced or has moved while work was under way


def test_a_resumed_run_notes_who_answers_now(small: Store) -> None:
    with serving("first", "maker/model") as server:
        run_id = planning.plan(small, spec(server.url))
        with pytest.raises(WorkError):
            runs.execute(small, run_id, concurrency=1, stop_when=lambda progress: "enough")
        server.models, server.chat = card("maker/other"), saying("second")
        runs.execute(small, run_id)
        _, progress = done(small, server.url)
    assert texts(small, run_id) == {"first", "second"}
    with small.read() as connection:
        rows = connection.execute(sa.select(call.c.server, call.c.response)).all()
    assert {(row.server.split()[-1], row.response.split()[0]) for row in rows} == {
        ("maker/model", "first"),
        ("maker/other", "second"),
    }
    assert progress.fresh == 2, "what the first build said serves no run of the second"
    assert any("its messages were written by 2 servers" in text for text in run_warnings(small, run_id))


def test_a_simulator_does_not_go_on_with_a_run_of_a_real_model(small: Store) -> None:
    with serving() as server:
        run_id = planning.plan(small, spec(server.url))
        listed = {"id": "m", "object": "model", "created": 0, "owned_by": "cimemories-simulator"}
        server.models = Reply(body={"object": "list", "data": [listed]})
        with pytest.raises(WorkError, match="is a simulator, and this was planned with a real model"):
            runs.execute(small, run_id)
        assert server.chats == []


# ---- what a person ties


def test_two_addresses_share_answers_for_as_long_as_a_person_says_so(small: Store) -> None:
    with serving("old", "maker/model") as one, serving("new", "maker/model") as other:
        done(small, one.url)
        with small.write() as connection:
            calls.tie(connection, one.url, other.url, "Ada")
            calls.tie(connection, other.url, one.url, "Ada")  # said twice, in the other order
            (tie,) = calls.ties(connection)
        assert tie.author == "Ada" and {tie.first, tie.second} == {address_of(one.url), address_of(other.url)}
        run_id, progress = done(small, other.url)
        assert (progress.fresh, progress.reused, texts(small, run_id)) == (0, MESSAGES, {"old"})
        other.models = card("maker/another")
        assert done(small, other.url)[1].fresh == MESSAGES, "what it reports speaks against it"
        other.models = card("maker/model")
        with small.write() as connection:
            calls.untie(connection, other.url, one.url)
        assert done(small, other.url)[1].fresh == MESSAGES


def test_only_what_can_be_an_address_is_tied(small: Store) -> None:
    with small.write() as connection:
        for one, other, what in (
            ("http://a/v1", "http://A/v1/", "one address already"),
            ("http://a/v1", "nonsense", "no address and no server"),
        ):
            with pytest.raises(StoreError, match=what):
                calls.tie(connection, one, other, "Ada")
        with pytest.raises(StoreError, match="are not tied"):
            calls.untie(connection, "http://a/v1", "http://b/v1")
        assert calls.ties(connection) == []


# ---- records from before servers were told apart


def as_before(store: Store, run_id: str) -> None:
    """Make of a run what it would be, had it been planned before servers were told apart."""
    row = row_of(store, run_id)
    manifest: dict[str, Any] = dict(row.manifest.recorded)
    manifest["model"] = {name: value for name, value in manifest["model"].items() if name not in ("identity", "root")}
    with store.write() as connection:
        connection.execute(sa.update(run).where(run.c.id == run_id).values(manifest=canonical_json(manifest)))
        connection.execute(sa.update(run_judge).where(run_judge.c.run == run_id).values(settings="{}"))


def test_a_run_that_began_before_goes_on_with_its_own_keys(small: Store) -> None:
    with serving("before") as server:
        run_id = planning.plan(small, spec(server.url))
        as_before(small, run_id)
        with pytest.raises(WorkError):
            runs.execute(small, run_id, concurrency=1, stop_when=lambda progress: "enough")
        calls_made = len(server.chats)
        with small.write() as connection:
            connection.execute(sa.text("UPDATE response SET status = 'owed', call = NULL, text = NULL"))
        progress = runs.execute(small, run_id)
        assert progress.reused == 2 * calls_made, "what was recorded before serves"
        with small.read() as connection:
            assert calls.counts(connection) == {NOT_KNOWN: MESSAGES}
        estimated = estimate(small, spec(server.url))
        assert estimated.recorded == 0 and "4 of these calls are answered" in "".join(estimated.notes)
        assert done(small, server.url)[1].fresh == MESSAGES, "nobody said that this server gave them"


def test_answers_of_before_serve_where_a_person_says_whose_they_are(small: Store) -> None:
    with serving("before") as server, serving("other") as other:
        old = planning.plan(small, spec(server.url))
        as_before(small, old)
        runs.execute(small, old)
        with small.write() as connection:
            calls.tie(connection, server.url, NOT_KNOWN, "Ada")
            calls.tie(connection, other.url, NOT_KNOWN, "Ada")
        assert estimate(small, spec(server.url)).requests == 0
        run_id, progress = done(small, server.url)
        assert (progress.fresh, texts(small, run_id)) == (0, {"before"})
        assert done(small, other.url)[1].fresh == MESSAGES, "they were recorded at another address"


# ---- drawn anew


def test_a_fresh_run_takes_no_answer_of_others_and_resumes_with_its_own(small: Store) -> None:
    with serving() as server:
        done(small, server.url)
        run_id = planning.plan(small, spec(server.url, fresh=True))
        assert estimate(small, spec(server.url, fresh=True)).recorded == 0
        with pytest.raises(WorkError):
            runs.execute(small, run_id, concurrency=1, stop_when=lambda progress: "enough")
        calls_made = len(server.chats)
        with small.write() as connection:  # killed between its calls and what follows from them
            connection.execute(
                sa.text("UPDATE response SET status = 'owed', call = NULL WHERE run = :r"), {"r": run_id}
            )
        progress = runs.execute(small, run_id)
        assert progress.reused > 0 and progress.reused + progress.fresh == MESSAGES
        assert len(server.chats) == calls_made + progress.fresh // 2
        assert done(small, server.url, fresh=True)[1].fresh == MESSAGES
        assert done(small, server.url)[1].reused == MESSAGES, "others keep to the answers that all share"


# ---- plans count with the keys of the run


def test_a_plan_at_the_address_of_a_simulator_finds_what_the_run_then_takes(small: Store) -> None:
    """The plan took an address for no simulator, so it counted with a seed and keys that the run did not have."""
    with running_simulator() as url:
        run_spec = simulated(url, samples=2)
        runs.execute(small, planning.plan(small, run_spec))
        estimated = estimate(small, run_spec)
        progress = runs.execute(small, planning.plan(small, run_spec))
    assert (estimated.requests, estimated.recorded) == (0, estimated.draws)
    assert progress.fresh == 0


def test_a_plan_says_where_a_server_could_not_be_asked(small: Store) -> None:
    with serving() as server:
        run_id, _ = done(small, server.url)
        url = server.url
    estimated = estimate(small, spec(url))
    assert estimated.recorded == MESSAGES, "as the newest run found the server"
    assert (
        len(estimated.unreachable) == 1 and url in estimated.unreachable[0] and "last asked" in estimated.unreachable[0]
    )
    assert estimated.notes == estimated.unreachable, "nobody knows that nothing is asked"
    estimated = estimate(small, spec("http://127.0.0.1:9/v1"))
    assert estimated.recorded == 0 and "none of it is counted" in estimated.unreachable[0]
    with pytest.raises(EndpointError):
        planning.plan(small, spec("http://127.0.0.1:9/v1"))
    assert row_of(small, run_id).responses == {"ok": MESSAGES}


# ---- labels


def test_labels_of_another_server_are_another_labelling(small: Store) -> None:
    def votes(request: IncomingRequest) -> Reply:
        return completion(*['{"necessary": [], "inappropriate": [1]}'] * request.n)

    def planned(url: str, draws: int = 1) -> str:
        labelling_id = labelling.plan(
            small, LabellingSpec(dataset=DATASET, model="m", base_url=url, draws=draws, contexts=1)
        )
        execution.execute(small, labelling_id)
        return labelling_id

    with hostile_server(votes, card()) as one, hostile_server(votes, card()) as other:
        first = planned(one.url)
        assert planned(one.url, draws=2) == first, "more draws of the same server extend it"
        assert len(other.chats) == 0
        second = planned(other.url)
        assert second != first and len(other.chats) == len(one.chats) // 2
        with small.write() as connection:
            connection.execute(sa.text("DELETE FROM labelling WHERE id = :id"), {"id": second})
            calls.tie(connection, one.url, other.url, "Ada")
        assert planned(other.url) == first


# ---- where answers come from is shown, and what is asked is said


def test_a_run_says_where_its_answers_come_from(small: Store) -> None:
    with serving(root="maker/m") as server:
        first, _ = done(small, server.url, samples=1)
        with small.write() as connection:
            connection.execute(sa.update(call).values(server=None))
        second, _ = done(small, server.url)
        with small.write() as connection:  # as by a worker whose clock is behind
            connection.execute(sa.update(call).where(call.c.server.is_not(None)).values(started="2001-01-01T00:00:00Z"))
    with small.read() as connection:
        origins = calls.origins(connection, [first, second, "run-imported"])
    assert [source.sentence() for source in origins[first]] == ["2 of 2 messages are of a server not known"]
    assert [source.sentence() for source in origins[second]] == [
        f"2 of 4 messages come from {address_of(server.url)}, root maker/m",
        "2 of 4 messages are of a server not known (2 of them were recorded before)",
    ]
    assert origins["run-imported"] == []


def test_commands_tie_servers_and_say_where_answers_come_from(small: Store) -> None:
    environment = {**outside(), "CIMEMORIES_WORKSPACE": str(small.workspace)}

    def command(*arguments: object) -> str:
        ended = cli_inside(environment, *arguments)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    run_arguments = ("run", "-d", DATASET, "-m", "m", "--samples", 2, "--judge", "matcher")
    with serving("one") as one, serving("two") as two:
        run_id = command(*run_arguments, "--base-url", one.url).split()[-1]
        assert "0 of 4 samples are already recorded" in command(
            *run_arguments, "--base-url", one.url, "--fresh", "--plan"
        )
        assert "4 of 4 samples are already recorded" in command(*run_arguments, "--base-url", one.url, "--plan")
        assert "0 of 4 samples are already recorded" in command(*run_arguments, "--base-url", two.url, "--plan")
        assert "are the same server" in command("servers", "same", one.url, two.url, "--by", "Ada")
        assert "4 of 4 samples are already recorded" in command(*run_arguments, "--base-url", two.url, "--plan")
        listed = json.loads(command("servers", "same", "--json"))
        command("servers", "same", two.url, one.url, "--undo")
        assert "0 of 4 samples are already recorded" in command(*run_arguments, "--base-url", two.url, "--plan")
        count = len(one.chats)
        again = command("repeat", run_id, "--fresh").split()[-1]
        assert len(one.chats) == 2 * count and "--fresh" in command("repeat", again, "--show")
    assert listed["servers"] == [{"server": address_of(one.url), "answers": MESSAGES}]
    assert [tie["by"] for tie in listed["same"]] == ["Ada"]
    rows = {row["id"]: row for row in json.loads(command("runs", "--json"))}
    (source,) = rows[run_id]["answers"]
    assert source["server"] == address_of(one.url) and (source["answers"], source["of"]) == (MESSAGES, MESSAGES)
    assert cli_inside(environment, "servers", "same", "nonsense", one.url).returncode == 1
    assert cli_inside(environment, "servers", "same", one.url).returncode == 1


def test_a_sweep_of_open_calls_is_not_said_to_ask_nothing(small: Store) -> None:
    """Its second cell asks what the first has asked by then; the sentence of that cell stood above all open calls."""
    with serving() as server:
        content = {
            "name": "s",
            "dataset": DATASET,
            "models": [{"model": "m", "base_url": server.url}],
            "memory": ["full", "random-500"],
            "samples": 2,
        }
        estimated = estimate_sweep(small, check_sweep(content, Path("s.yaml")))
        assert (estimated.cells[0].requests, estimated.cells[1].requests, estimated.total.requests) == (2, 0, 2)
        assert not any("nothing is asked" in text for text in estimated.total.notes)
        sweep_id = plan_sweep(small, check_sweep({**content, "fresh": True}, Path("s.yaml")))
        execute_sweep(small, sweep_id)
        assert len(server.chats) == 2, "its cells share what they draw anew"
        execute_sweep(small, plan_sweep(small, check_sweep(content, Path("s.yaml"))))
        assert len(server.chats) == 4
        assert estimate_sweep(small, check_sweep(content, Path("s.yaml"))).total.notes == (
            "everything is already recorded: nothing is requested",
        )


# ---- taken to another workspace


def test_who_answered_goes_along_with_recorded_calls_and_folders(small: Store, tmp_path: Path) -> None:
    def votes(request: IncomingRequest) -> Reply:
        return completion(*['{"necessary": [], "inappropriate": [1]}'] * request.n)

    other = open_store(tmp_path / "other")
    add(other, small_profiles(contexts=2))
    with serving() as server:
        done(small, server.url)
        done(small, server.url, fresh=True)
        assert write_calls(small, tmp_path / "calls.xz") == MESSAGES, "what was drawn anew stays with its run"
        assert read_calls(other, tmp_path / "calls.xz") == MESSAGES
        assert done(other, server.url)[1].reused == MESSAGES
    with hostile_server(votes, card("maker/m")) as server:
        necessary_mask = LabellingSpec(dataset=DATASET, model="m", base_url=server.url, draws=1)
        execution.execute(small, labelling.plan(small, necessary_mask))
        answering = f"{address_of(server.url)}, root maker/m"
    environment = {**outside(), "CIMEMORIES_WORKSPACE": str(small.workspace)}
    packed = tmp_path / "folder.zip"
    ended = cli_inside(environment, "export", DATASET, "--format", "huggingface", "--out", packed)
    assert ended.returncode == 0, ended.stderr
    ended = cli_inside(environment, "import", packed, "--dataset", "again", "--workspace", tmp_path / "other")
    assert ended.returncode == 0, ended.stderr
    with other.read() as connection:
        assert calls.counts(connection)[answering] == 6

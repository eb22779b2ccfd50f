"""The command line as a script uses it: what is on which stream, what the exit status is, what the JSON holds, and that
a key given to it is written down nowhere."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import LONG_ON_POSTGRES, Database
from evaluating import ROOT, add, cli, cli_inside, outside, small_profiles
from evaluating import command as command_line
from hostile import error, free_port, hostile_server, texts_of
from typer.testing import CliRunner
from worlds import make_profile

from cimemories import demo_parts, extras, serving
from cimemories.cli import base
from cimemories.cli import cli as application
from cimemories.evaluation import planning
from cimemories.formats.official import write_profiles
from cimemories.simulator.server import running_simulator
from cimemories.store.engine import DATABASE_URL, open_store

CANARY = "sk-canary-a81f55c0"
COMMANDS = (
    *("import", "generate", "label", "run", "resume", "stop", "metrics", "datasets", "runs", "labellings"),
    *("simulate", "app"),
)


class Script:
    """Calls the command line on one workspace, each time in a process of its own unless `inside` this one is enough;
    every call must end as it says."""

    def __init__(self, workspace: Path, environment: dict[str, str], *, inside: bool = False) -> None:
        self.workspace, self.environment = workspace, environment
        self._start = cli_inside if inside else cli

    def call(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return self._start(self.environment, *arguments, "--workspace", self.workspace)

    def good(self, *arguments: object) -> str:
        """Standard output of a call that succeeds."""
        done = self.call(*arguments)
        assert done.returncode == 0, done.stderr
        assert "error" not in done.stderr
        return done.stdout

    def json(self, *arguments: object) -> object:
        return json.loads(self.good(*arguments, "--json"))

    def refused(self, *arguments: object) -> str:
        """The one line that a call ends with which cannot do what was asked."""
        done = self.call(*arguments)
        assert done.returncode == 1, (done.stdout, done.stderr)
        assert done.stdout == ""
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1, done.stderr
        assert done.stderr.endswith("\n")
        return done.stderr.removeprefix("error: ").strip()


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """A file of two profiles with six contexts."""
    file = tmp_path / "profiles.json"
    file.write_text(write_profiles(small_profiles(2, 6)))
    return file


@pytest.fixture(scope="module")
def simulator() -> Iterator[str]:
    with running_simulator() as url:
        yield url


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Script:
    """A workspace with one small dataset, to be read only."""
    folder = tmp_path_factory.mktemp("ready")
    script = Script(folder / "workspace", outside(), inside=True)
    (folder / "first.json").write_text(write_profiles(small_profiles(1, 2)))
    script.good("import", folder / "first.json")
    return script


# ---- the whole way


def assert_dataset(row: dict[str, object], name: str) -> None:
    assert row["name"] == name
    assert isinstance(row["id"], int)
    assert row["profiles"] == 2
    assert row["contexts"] == 6
    assert row["attributes"] > 40
    assert isinstance(row["labels"], str)
    assert row["simulated"] in (True, False)


@pytest.mark.parametrize("database", LONG_ON_POSTGRES, indirect=True)
def test_from_a_file_to_the_numbers(database: Database, profiles: Path, simulator: str) -> None:
    script = Script(*database, inside=True)
    assert script.json("datasets") == []
    # As a user starts it. That a process finds its record by URL is seen whenever a killed one is resumed.
    first = Script(*database, inside=database.url is not None).json("import", profiles, "--dataset", "mine")
    assert first["new"]
    assert_dataset(first, "mine")
    again = script.json("import", profiles, "--dataset", "other name")
    assert not again["new"]
    assert again["id"] == first["id"]
    (dataset,) = script.json("datasets")
    assert_dataset(dataset, "mine")
    assert not dataset["simulated"]

    place = ["-d", "mine", "--base-url", simulator]
    labelled = script.good("label", *place, "-m", "sim-labeler", "--draws", 2)
    assert labelled.startswith("labelling-")
    assert labelled.count("\n") == 1
    (labelling,) = script.json("labellings")
    assert labelling["id"] == labelled.strip()
    assert (labelling["expected"], labelling["ballots"]) == (72, {"ok": 72})
    assert (labelling["status"], labelling["simulated"]) == ("finished", True)

    run_id = script.good("run", *place, "-m", "sim-oversharing", "--samples", 3, "--name", "mine").splitlines()[-1]
    (run,) = script.json("runs")
    assert (run["id"], run["name"], run["dataset"]) == (run_id, "mine", "mine")
    assert (run["status"], run["simulated"], run["coverage"]) == ("finished", True, 1.0)
    assert (run["expected"], run["judged"], run["judgements"]) == (36, 36, {"ok": 36})
    assert (run["temperature"], run["memory"], run["base_url"], run["judges"]) == (None, "full", simulator, "matcher")

    result = script.json("metrics", run_id)
    assert list(result["violation"]) == ["1", "2", "3"]
    shares = [*result["violation"].values(), result["completeness"], result["coverage"], result["ambiguous_exposure"]]
    assert all(isinstance(share, float) and 0 <= share <= 1 for share in shares)
    assert result["violation"]["1"] < result["violation"]["2"] < result["violation"]["3"]
    assert len(result["per_profile"]) == 2
    mean = sum(p["violation_at_3"] for p in result["per_profile"]) / 2
    assert result["violation"]["3"] == pytest.approx(mean)
    assert result["simulated"] is True
    assert (result["run"], result["labels"], result["dataset"]) == (run_id, labelling["id"], "mine")
    plain = script.good("metrics", run_id)
    assert f"Violation@3         {100 * result['violation']['3']:.1f} % " in plain

    assert script.good("resume", run_id).splitlines()[-1] == run_id
    assert script.json("metrics", run_id) == result, "a finished run owes nothing, and a resume changes nothing"
    again = script.json("runs")[0]
    assert [again[name] for name in ("expected", "responses", "judgements")] == [
        36,
        run["responses"],
        run["judgements"],
    ]

    assert DATABASE_URL not in script.environment or not list(database.workspace.glob("*.sqlite"))
    assert (database.workspace / "cimemories.sqlite").exists() == (database.url is None)


def test_generated_profiles_are_the_same_for_the_same_seed(tmp_path: Path) -> None:
    script = Script(tmp_path, outside(), inside=True)
    for name, seed in (("a", 4), ("b", 4), ("c", 5)):
        assert f"generated '{name}': 2 profiles" in script.good("generate", "-d", name, "--profiles", 2, "--seed", seed)
    assert "exists already" in script.refused("generate", "-d", "a")
    rows = {row["name"]: row for row in script.json("datasets")}
    assert [rows[name]["profiles"] for name in "abc"] == [2, 2, 2]
    assert rows["a"]["attributes"] == rows["b"]["attributes"]
    assert rows["a"]["contexts"] == 49


# ---- refusals


BROKEN = {
    "no JSON": "[{",
    "an object": '{"a": 1}',
    "an empty list": "[]",
    "no profile": "[1]",
    "half a profile": None,
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_imports_nothing(ready: Script, profiles: Path, content: str | None) -> None:
    if content is None:  # the second of two profiles is spoilt: nothing of the first may stay
        whole = json.loads(profiles.read_text())
        del whole[1]["bio"]["age"]
        content = json.dumps(whole)
    profiles.write_text(content)
    assert profiles.name in ready.refused("import", profiles, "--dataset", "broken")
    assert [row["name"] for row in ready.json("datasets")] == ["first"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["import", "/nowhere/x.json"], "no such file"),
        (["label", "-d", "nothing", "-m", "sim-labeler", "--base-url", "simulator"], "'first'"),
        (["run", "-d", "nothing", "-m", "sim-average", "--base-url", "simulator"], "'first'"),
        (["run", "-d", "first", "-m", "gpt-5", "--base-url", "simulator"], "does not serve 'gpt-5'"),
        (["run", "-d", "first", "-m", "m", "--base-url", "not a url"], "not the address of a server"),
        (["run", "-d", "first", "-m", "sim-average", "--base-url", "simulator", "--judge", "me"], "--judge-model"),
        (
            ["run", "-d", "first", "-m", "sim-average", "--base-url", "simulator", "--judge-base-url", "simulator"],
            "--judge-base-url needs a judge model",
        ),
        (
            ["run", "-d", "first", "-m", "m", "--base-url", "batch", "--judge", "matcher", "--judge-split", 5],
            "--judge-split needs a judge model",
        ),
        (["judge", "run-00000000", "--judge-base-url", "http://localhost:1/v1"], "which judge?"),
        (["generate", "-d", "second", "--general", 5], "--general needs --model"),
        (["generate", "-d", "second", "--temperature", 1], "--temperature needs --model"),
        (["generate", "-d", " "], "the dataset needs a name"),
        (["leaderboard", "run-00000000", "-d", "first"], "--dataset"),
        (["team", "log", "--since", "yesterday"], "--since takes a time"),
        (["team", "log", "--json", "--csv"], "one of --json and --csv"),
        (["team", "role", "Bob", "admin"], "`cimemories team list`"),
        (["resume", "run-00000000"], "run-00000000"),
        (["resume", "whatever"], "whatever"),
        (["stop", "run-00000000"], "run-00000000"),
        (["metrics", "run-00000000", "--json"], "run-00000000"),
        (["metrics", "run-00000000", "--identifiers", "some"], "exact, substring, none"),
    ],
)
def test_what_is_not_there_is_one_clear_line(ready: Script, arguments: list[str | int], message: str) -> None:
    assert message in ready.refused(*arguments)
    assert [row["name"] for row in ready.json("datasets")] == ["first"]


def test_servers_that_cannot_be_used_are_one_clear_line(ready: Script) -> None:
    nobody = f"http://127.0.0.1:{free_port()}/v1"
    start = ["run", "-d", "first", "-m", "m", "--base-url"]
    assert f"no answer from {nobody}" in ready.refused(*start, nobody)
    with hostile_server(models=error(401, "bad key")) as server:
        assert "$OPENAI_API_KEY" in ready.refused(*start, server.url)
    assert ready.json("runs") == [], "nothing is planned on a server that cannot be used"


@pytest.mark.parametrize(
    "url", ["nonsense", "mysql://x/y", "postgresql://nobody@127.0.0.1:1/none", "sqlite:////proc/x/y"]
)
def test_a_database_that_cannot_be_opened_is_one_clear_line(tmp_path: Path, url: str) -> None:
    message = Script(tmp_path, {**outside(), DATABASE_URL: url}, inside=True).refused("datasets")
    assert "database" in message


def test_a_workspace_that_is_a_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "--workspace" in Script(tmp_path / "file", outside(), inside=True).refused("datasets")


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["run"],
        ["run", "-d", "x", "-m", "m", "--base-url", "u", "--samples", "0"],
        ["run", "-d", "x", "-m", "m", "--base-url", "u", "--samples", "many"],
        ["datasets", "--yaml"],
        ["import"],
        ["simulate", "--faults", "2"],
    ],
)
def test_a_command_that_is_not_understood_exits_2(arguments: list[str]) -> None:
    done = CliRunner().invoke(application, arguments)
    assert done.exit_code == 2
    assert done.stderr
    assert done.stdout == ""


def test_exit_status_2_reaches_the_shell() -> None:
    done = cli(outside(), "frobnicate")
    assert (done.returncode, done.stdout) == (2, "")
    assert "frobnicate" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command: str) -> None:
    done = CliRunner().invoke(application, [command, "--help"])
    assert done.exit_code == 0
    assert f"Example: cimemories {command}" in " ".join(done.stdout.split())


@pytest.mark.parametrize("name", base.RENAMED)
def test_an_older_name_answers_with_the_newer_one(name: str) -> None:
    done = CliRunner().invoke(application, [name, "--json"])
    newer = base.RENAMED[name]
    assert done.exit_code == 2
    assert f"'{name}' is now `cimemories {newer}`" in " ".join(done.output.split())
    command, _, rest = newer.partition(" ")
    words = rest.split("|") if rest else [""]
    for word in words:
        about = CliRunner().invoke(application, [command, *([] if word.startswith("--") else word.split()), "--help"])
        assert about.exit_code == 0
        assert word in about.output


def test_options_before_the_command_of_a_group_are_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(application, ["datasets", "--workspace", str(tmp_path), "freeze", "mine", "--by", "Ada"])
    assert done.exit_code == 2
    assert "options go after `freeze`" in done.output


def test_every_command_is_known_here() -> None:
    done = CliRunner().invoke(application, ["--help"])
    assert done.exit_code == 0
    listed = done.stdout[done.stdout.index("Commands") :].split()
    assert set(COMMANDS) <= set(listed)


def test_help_lists_the_commands_that_there_are() -> None:
    there = {}
    for name, command in base.load().items():
        if not command.hidden:
            first = next(iter(command.commands.values())) if hasattr(command, "commands") else command
            there[name] = first.callback.__module__, command.get_short_help_str(100)
    texts, places = base.summaries(), {**base.COMMANDS, **extras.registered("commands")}
    assert there == {name: (module, texts[name]) for name, module in places.items() if " " not in name}


def test_a_port_in_use_is_one_clear_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = cli_inside(outside(), "simulate", "--port", port)
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert str(port) in errors[0]
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines() == errors, "no promise of an address that is somebody else's"


@pytest.mark.parametrize("command", [pytest.param("app", marks=pytest.mark.long), "streamlit"])
def test_the_app_does_not_start_where_somebody_else_has_its_port_on_ipv6(command: str, tmp_path: Path) -> None:
    """Bound alone is enough: whoever has it can listen there later, and browsers try ::1 first."""
    with socket.socket(socket.AF_INET6) as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("::1", 0))
        port = taken.getsockname()[1]
        arguments = {
            "app": ["cimemories", "app", "--no-demo", "--port", str(port), "-w", str(tmp_path / "w")],
            "streamlit": ["streamlit", "run", "app.py", "--server.port", str(port)],
        }[command]
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=ROOT,
            env={**outside(), "CIMEMORIES_WORKSPACE": str(tmp_path / "w")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert f"error: port {port} on" in done.stderr and "Traceback" not in done.stderr
    assert "CIMemories Studio: http" not in done.stdout


def test_the_port_on_ipv6_is_held_from_the_check_on_and_over_the_exec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()

    def prepared(*_: object) -> bool:
        with socket.socket(socket.AF_INET6) as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                other.bind(("::1", port))
        return False

    def become(_: str, command: list[str], environment: dict[str, str]) -> None:
        check = (
            f"from cimemories.access.peers import hold_ipv6; held = hold_ipv6({port}); "
            "print(held.getsockname()[:2], held.get_inheritable())"
        )
        done = subprocess.run(
            [command[0], "-c", check], env=environment, close_fds=False, capture_output=True, text=True, check=True
        )
        ends.append(done.stdout.strip())

    ends: list[str] = []
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(demo_parts, "is_wanted", prepared)
    monkeypatch.setattr(os, "execvpe", become)
    serving.serve_app(port, tmp_path / "w")
    assert ends == [f"('::1', {port}) False"]


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_a_run_that_is_stopped_twice_ends_in_one_line(number: signal.Signals, tmp_path: Path) -> None:
    store = open_store(tmp_path)
    add(store, [make_profile(0, 6, 8)])
    with hostile_server(lambda request: replace(texts_of(request), wait=3.0)) as server:
        run_id = planning.plan(store, planning.RunSpec(dataset="small", model="m", base_url=server.url, samples=1))
        running = subprocess.Popen(
            command_line("resume", run_id, "--workspace", tmp_path),
            env=outside(),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        while server.under_way < 4 and running.poll() is None:
            time.sleep(0.02)
        for _ in range(40):  # at every moment of its end
            if running.poll() is not None:
                break
            running.send_signal(number)
            time.sleep(0.01)
        stdout, stderr = running.communicate(timeout=30)
    assert (running.returncode, stdout) == (1, f"{run_id}\n")
    lines = stderr[stderr.index("error:") :].splitlines()
    assert lines == [f"error: {run_id}: stopped. Continue with `cimemories resume {run_id}`."]
    assert "Unclosed" not in stderr and "Traceback" not in stderr and "RuntimeError" not in stderr


# ---- the key


def everywhere(folder: Path) -> bytes:
    return b"\n".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())


def test_a_key_is_written_down_nowhere(tmp_path: Path, profiles: Path) -> None:
    """Not by work that succeeds, nor by errors in which the server says the key back."""
    workspace = tmp_path / "workspace"
    script = Script(workspace, {**outside(), "MY_API_KEY": CANARY}, inside=True)
    printed = script.good("import", profiles, "-d", "mine")
    with hostile_server() as server:
        start = ["-d", "mine", "-m", "m", "--base-url", server.url, "--api-key-env", "MY_API_KEY", "--contexts", 1]
        runs = [
            script.call("label", *start, "--draws", 1),
            script.call("run", *start, "--judge", "matcher", "--samples", 2),
        ]
        assert {request.authorization for request in server.chats} == {f"Bearer {CANARY}"}
        for status in (400, 401):
            server.chat = lambda request, status=status: error(
                status, f"you sent {request.authorization} and {request.seed}"
            )
            runs.append(script.call("run", *start, "--judge", "matcher", "--samples", 3, "--max-tokens", 100 + status))
        server.models = error(401, f"no such key: {CANARY}")
        runs.append(script.call("run", *start, "--judge", "matcher"))
    assert [done.returncode for done in runs] == [3, 0, 3, 1, 1], [done.stderr for done in runs]
    printed += "".join(done.stdout + done.stderr for done in runs)
    assert "MY_API_KEY" in printed, "the variable is named"
    assert CANARY not in printed
    assert CANARY.encode() not in everywhere(workspace)
    assert b"MY_API_KEY" in everywhere(workspace), "so that a resume finds it again"
    assert b"[key]" in everywhere(workspace), "the echo was recorded, without the key"


def test_the_environment_names_the_workspace(tmp_path: Path, profiles: Path) -> None:
    environment = {**outside(), "CIMEMORIES_WORKSPACE": str(tmp_path / "elsewhere")}
    assert cli_inside(environment, "import", profiles).returncode == 0
    assert (tmp_path / "elsewhere" / "cimemories.sqlite").exists()
    assert not (ROOT / "elsewhere").exists()


def test_commands_about_what_a_workspace_holds_make_none(tmp_path: Path) -> None:
    mistyped = tmp_path / "wrokspace"
    for command in (
        ("runs",),
        ("datasets", "--json"),
        ("metrics", "run-1"),
        ("leaks", "run-1"),
        ("export", "small", "--format", "official", "-o", tmp_path / "x.json"),
        ("delete", "run-1", "--yes"),
        ("workspace", "backup", tmp_path / "x.zip"),
    ):
        done = cli_inside(outside(), *command, "--workspace", mistyped)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"there is no workspace in {mistyped}" in done.stderr and "cimemories import" in done.stderr
    assert not mistyped.exists()


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("official", ("--labelling", "labelling-1")),
        ("labelled", ("--no-calls",)),
        ("huggingface", ("--judge", 1)),
        ("results", ("--organization", "Us")),
        ("every-eval-ever", ("--replace",)),
    ],
)
def test_export_refuses_options_that_its_format_has_no_use_for(
    tmp_path: Path, form: str, options: tuple[object, ...]
) -> None:
    add(open_store(tmp_path / "w"), small_profiles(contexts=2))
    place = ("--workspace", tmp_path / "w")
    done = cli_inside(outside(), "export", "small", "--format", form, "-o", tmp_path / "x", *options, *place)
    assert done.returncode == 1 and f"{options[0]} changes nothing for {form}" in done.stderr
    assert not (tmp_path / "x").exists()

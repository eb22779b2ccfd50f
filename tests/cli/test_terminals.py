"""Commands without a terminal, in a locale of ASCII alone, and with ids that are cut short."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from evaluating import add, cli_inside, outside, simulated, small_profiles
from official_files import RECORD
from rich.console import Console
from worlds import add_dataset, add_run

from cimemories.cli import output, work
from cimemories.cli.options import WorkOptions
from cimemories.evaluation import planning, runs
from cimemories.llm.executor import Progress
from cimemories.llm.http.traffic import Trouble
from cimemories.model import WorkKind
from cimemories.store import work as store_work
from cimemories.store.engine import Store

# Each is `cimemories` as its script calls it. The encodings are those that the process has at its start.
ONE_AFTER_ANOTHER = """
import json, sys
from cimemories.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["cimemories", *words]
    status = 0
    try:
        main()
    except SystemExit as end:
        status = end.code or 0
    print("ended with", status, flush=True)
"""


@pytest.mark.parametrize(
    "locale",
    [
        pytest.param({"LC_ALL": "POSIX", "PYTHONUTF8": "0"}, id="posix"),
        pytest.param({"PYTHONIOENCODING": "ascii"}, id="ascii", marks=pytest.mark.long),
    ],
)
def test_no_command_dies_of_a_character(tmp_path: Path, locale: dict[str, str]) -> None:
    file = tmp_path / "Zoë ☃.json"
    file.write_text(json.dumps([{**RECORD, "bio": {**RECORD["bio"], "name": "Zoë"}}]), encoding="utf-8")
    environment = {**outside(), **locale, "CIMEMORIES_WORKSPACE": str(tmp_path / "Zoë")}
    commands = (["import", str(file)], ["datasets"], ["datasets", "--json"], ["metrics", "Zoë"])
    process = [sys.executable, "-c", ONE_AFTER_ANOTHER, json.dumps(commands)]
    done = subprocess.run(process, env=environment, capture_output=True, check=True)
    *printed, _ = done.stdout.decode("utf-8").split("ended with ")
    assert len(printed) == len(commands) and all("Zoë" in text for text in printed[:3]), done
    assert "Zoë" in done.stderr.decode("utf-8") and b"Encode" not in done.stderr
    assert [text[0] for text in done.stdout.decode("utf-8").split("ended with ")[1:]] == ["0", "0", "0", "1"]


@pytest.fixture
def run_id(sqlite_store: Store) -> str:
    add(sqlite_store, small_profiles(1, 1))
    return planning.plan(sqlite_store, simulated(samples=2, judges=(planning.JudgeSpec(),)))


def test_the_id_is_in_the_log_before_anything_is_done(
    sqlite_store: Store, run_id: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def killed(*_arguments: object, **_options: object) -> None:
        raise SystemExit(capsys.readouterr().err)

    monkeypatch.setattr(runs, "execute", killed)
    with pytest.raises(SystemExit, match=f"^{run_id}: begins\n"):
        work.work_on(sqlite_store, run_id, WorkOptions())


def test_progress_without_a_terminal_is_a_line_now_and_then(
    sqlite_store: Store, run_id: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(work, "LINE_SECONDS", 0.01)
    lines = ""
    with work.progress(sqlite_store, run_id) as report:
        report(Progress(fresh=1))
        while f"{run_id}: 1/2, 0:0" not in lines:  # nothing is reported meanwhile
            time.sleep(0.01)
            lines += capsys.readouterr().err
        report(Progress(fresh=2, failed=Counter(timeout=1)))
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(rf"{run_id}: 2/2, 0:\d\d:\d\d elapsed, 0 tokens, 1 failed", last)


def test_a_terminal_reads_what_has_elapsed_and_what_is_left(
    sqlite_store: Store, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(output, "err", Console(file=screen, force_terminal=True, width=200, color_system=None))
    with work.progress(sqlite_store, run_id) as report:
        report(Progress(fresh=2))
    assert re.search(r"2/2 \d:\d\d:\d\d elapsed, \d:\d\d:\d\d left", screen.getvalue())


@pytest.mark.parametrize("drawn", [True, False], ids=["terminal", "log"])
def test_what_slows_work_down_stands_in_its_progress(
    sqlite_store: Store, run_id: str, monkeypatch: pytest.MonkeyPatch, drawn: bool
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(
        output, "err", Console(file=screen, force_terminal=drawn, width=60, color_system=None, soft_wrap=True)
    )
    slow = Trouble(limited=True, per_minute=60.0, timed_out=2, seconds=120.0)
    with work.progress(sqlite_store, run_id) as report:
        report(Progress(troubles={"http://a/v1": slow}))
    for text in ("the server limits requests: about 60 a minute", "timed out after 120 s", "--timeout"):
        assert text in screen.getvalue()


def test_commands_take_the_beginning_of_an_id_and_a_name(sqlite_store: Store) -> None:
    row = add_dataset(sqlite_store, profiles=1, attributes=2, contexts=1)
    run_id = add_run(sqlite_store, row.id, 1, [[[1], [0]]])
    with sqlite_store.read() as connection:
        name = store_work.load(connection, run_id)["name"]
    environment = {**outside(), "CIMEMORIES_WORKSPACE": str(sqlite_store.workspace)}
    expected = cli_inside(environment, "metrics", run_id, "--json")
    assert expected.returncode == 0, expected.stderr
    for text in (run_id[:8], run_id[4:8], run_id[4:], name):
        assert cli_inside(environment, "metrics", text, "--json").stdout == expected.stdout
    # The workspace is known before the id, wherever it stands.
    elsewhere = cli_inside(outside(), "metrics", run_id[4:8], "--json", "--workspace", sqlite_store.workspace)
    assert elsewhere.stdout == expected.stdout
    gone = cli_inside(environment, "metrics", "0" if run_id[4] != "0" else "1")
    assert gone.returncode == 1 and "there is no run" in gone.stderr
    assert cli_inside(environment, "delete", run_id[4:8], "--yes").returncode == 0


def test_a_text_that_means_several_runs_names_them(sqlite_store: Store) -> None:
    row = add_dataset(sqlite_store, profiles=1, attributes=2, contexts=1)
    first, second = (add_run(sqlite_store, row.id, 1, {}) for _ in range(2))
    with sqlite_store.read() as connection:
        name = store_work.load(connection, first)["name"]
        assert sorted(store_work.ids_of(connection, name, WorkKind.RUN)) == sorted((first, second))
        assert store_work.ids_of(connection, first, *WorkKind) == [first]
        assert store_work.ids_of(connection, "%", *WorkKind) == store_work.ids_of(connection, "", *WorkKind) == []
        assert store_work.ids_of(connection, name, WorkKind.SWEEP) == []
    environment = {**outside(), "CIMEMORIES_WORKSPACE": str(sqlite_store.workspace)}
    done = cli_inside(environment, "metrics", name)
    assert done.returncode == 1 and first in done.stderr and second in done.stderr

"""Record what the product says of three worlds that are built from nothing, or compare with what was recorded.

    PYTHONPATH=tests python -m golden.record                 write tests/golden/*.json, from SQLite (make golden)
    PYTHONPATH=tests python -m golden.record --check         compare on SQLite and PostgreSQL (make golden-check)
    PYTHONPATH=tests python -m golden.record --check tiny    of one world alone

A world is a workspace that the command line has filled: simulated models, fixed seeds, two judges, and the decisions of
two people. A recording is what the questions below answer about it, in one file a kind of question:

    metrics.json    {"small: metrics average": {"ambiguous_exposure": 0.10714285714285714, ...}, ...}

Shares and other floats compare within TOLERANCE, everything else exactly. What is random or depends on the clock is
made the same by NORMALISED, PLACES and the names of runs and labellings, and by nothing else.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from hashlib import sha256
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from conftest import _cluster
from evaluating import cli_inside, outside, small_profiles
from reports import Page

import cimemories
from cimemories import demo
from cimemories.formats.official import write_profiles
from cimemories.model import Label
from cimemories.simulator import server
from cimemories.store.engine import DATABASE_URL, WORKSPACE, open_store
from cimemories.version import __version__

FOLDER = Path(__file__).resolve().parent
TOLERANCE = 1e-12  # relative; absolute below 1

# ---- worlds


class Workspace:
    """A workspace that the command line works on; the files of its commands are in `folder`."""

    def __init__(self, folder: Path, database: str | None) -> None:
        self.folder, self.database = folder, database
        self.environment = {**outside(), WORKSPACE: str(folder / "workspace")}
        if database:
            self.environment[DATABASE_URL] = database

    def __call__(self, line: str) -> str:
        """Return what a command prints. It may end with a part of its plan missing, and with no other error."""
        done = cli_inside(self.environment, *shlex.split(line), folder=self.folder)
        if done.returncode not in (0, 3):
            raise RuntimeError(f"cimemories {line}\n{done.stderr}")
        return done.stdout

    def add(self, dataset: str, profiles: int, contexts: int) -> None:
        """Import a dataset, and label it by the simulator."""
        people = small_profiles(profiles, contexts)
        (self.folder / f"{dataset}.json").write_text(write_profiles(people), encoding="utf-8")
        self(f"import {dataset}.json --dataset {dataset}")
        # One request at a time: the simulator counts what it has cached in the order in which it is asked.
        self(f"label --dataset {dataset} --model sim-labeler {ANSWERED} --draws 4")

    def run(self, dataset: str, name: str, model: str, more: str = "") -> None:
        """A run that two judges read, two messages a task."""
        self(
            f"run --dataset {dataset} --name {name} --model {model} {ANSWERED} --samples 2"
            f" --judge-model sim-judge --judge-base-url simulator --judge matcher {more}"
        )

    def decide(self, dataset: str, profiles: int, contexts: int) -> None:
        """Import the decisions of two people on every fifth pair; one takes some back, and some are adjudicated."""
        labels = cycle([Label.INAPPROPRIATE, Label.NECESSARY, Label.AMBIGUOUS, None])
        events = []
        for number, person in enumerate(small_profiles(profiles, contexts)):
            pairs = [(attribute, context) for context in person.contexts for attribute in person.attributes]
            for place, (attribute, context) in enumerate(pairs[number::5]):
                annotator = "Ada" if place % 3 else "Bob"
                events.append(
                    {
                        "event": "decision",
                        "uid": f"{dataset}-{number}-{place}",
                        "dataset": dataset,
                        "profile": number,
                        "attribute": attribute.key,
                        "task": context.task,
                        "recipient": context.recipient,
                        "annotator": annotator,
                        "label": next(labels),
                        "reason": f"reason {place}",
                        "source": "adjudicated" if place % 10 == 9 else "single",
                        "created": f"2001-01-{number + 1:02}T10:{place // 60:02}:{place % 60:02}.000Z",
                    }
                )
        text = "\n".join(json.dumps(event) for event in events)
        (self.folder / f"{dataset}.jsonl").write_text(text, encoding="utf-8")
        self(f"review import {dataset}.jsonl")


ANSWERED = "--base-url simulator --seed 1 --concurrency 1"


@contextmanager
def some_refused() -> Iterator[None]:
    """Let the simulator refuse one request in six, by what is asked."""
    answer = server._complete

    def complete(simulator: Any, body: Any, number: int) -> dict[str, Any]:
        if sha256(json.dumps(body["messages"]).encode()).digest()[1] % 6 == 0:
            raise server.BadRequest("The simulator was asked to refuse this request.")
        return answer(simulator, body, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "_complete", complete)
        yield


def build_tiny(workspace: Workspace) -> None:
    """One profile in two tasks: small enough to write down whole."""
    workspace.add("tiny", 1, 2)
    workspace.run("tiny", "average", "sim-average")
    workspace.run("tiny", "oversharing", "sim-oversharing")
    workspace.decide("tiny", 1, 2)
    workspace("rules save --dataset tiny --name lenient --threshold 0.7 --annotator Ada")


def build_small(workspace: Workspace) -> None:
    """Five profiles, as few as intervals over users need, in three tasks; every kind of run."""
    workspace.add("small", 5, 3)
    workspace.run("small", "average", "sim-average")
    workspace.run("small", "oversharing", "sim-oversharing")
    workspace.run("small", "bm25", "sim-oversharing", "--memory system:bm25:k=10")
    workspace.run("small", "sessions", "sim-oversharing", "--sessions all")
    workspace.run("small", "gate", "sim-oversharing", "--mitigation gate")
    workspace.run("small", "rewrite", "sim-oversharing", "--mitigation rewrite")
    with some_refused():  # fresh: judges have read the same messages in another run
        workspace.run("small", "failing", "sim-oversharing", "--max-tokens 170 --fresh")
    workspace.decide("small", 5, 3)
    workspace("rules save --dataset small --name lenient --threshold 0.7 --annotator Ada")


def build_demo(workspace: Workspace) -> None:
    """The demo's first three people, with its recorded answers."""
    store = open_store(workspace.folder / "workspace", workspace.database)
    demo.prepare(store, lambda text: None, 3)
    store.close()


# Questions: command lines; --json is added where no file or other form is asked for. `heatmap` is the Python API's.
TINY = """
export tiny --format labelled --out labelled.json
export tiny --format huggingface --out hub
export average --format results --out results.jsonl
export average --format flows --out flows.csv
"""
MORE_OF_TINY = """
metrics average
consensus --dataset tiny
export tiny --format official --out official.json
export tiny --format huggingface --out pairs.csv
export average --format every-eval-ever --out shared
review export tiny --out review.jsonl
datasets card tiny --out card.md
"""
SMALL = """
metrics average
metrics average --labels consensus --rule lenient
metrics average --judge matcher --grounded
metrics failing
metrics bm25
metrics sessions
metrics gate
metrics rewrite
leaderboard
compare oversharing failing
accumulate oversharing --profile 0 --order worst
leaks oversharing --top 0
heatmap oversharing domain context
"""
MORE_OF_SMALL = """
metrics average --labels consensus
metrics average --judge any
metrics average --judge majority --labels consensus
metrics average --identifiers substring
metrics average --identifiers none
metrics failing --labels consensus
leaderboard --labels consensus --judge all
leaderboard --identifiers none --samples 1
leaderboard --markdown
leaderboard --latex
compare average oversharing
compare oversharing bm25 sessions gate rewrite
compare failing average --labels consensus --judge any
accumulate failing
accumulate sessions --n 1 --profile 4 --order shuffled --seed 3
accumulate bm25 --labels consensus --judge all
consensus --dataset small
leaks average --top 0 --labels consensus
leaks failing --judge majority
leaks sessions --strength partial
leaks oversharing --latex
judges oversharing
judges failing --grounded
heatmap bm25 event profile
heatmap sessions recipient sphere
sensitivity average oversharing failing
power average oversharing
review status small
review uncertainty small
runs
labellings
datasets
rules --dataset small
report oversharing failing --to report.html
report bm25 sessions gate --to report.md
"""
DEMO = """
metrics 'sim-average on the demo'
metrics 'qwen2.5-coder-1.5b-instruct, a real model'
leaderboard
compare 'sim-careful on the demo' 'sim-oversharing on the demo' 'sim-average on the demo'
accumulate 'sim-average on the demo' --profile 2 --order worst
consensus --dataset demo
leaks 'sim-average on the demo' --top 20
heatmap 'sim-average on the demo' domain context
report 'sim-average on the demo' 'sim-careful on the demo' --to report.md
"""
# How to build each, what `make test` asks of it, and what `make golden-check` asks too.
WORLDS: dict[str, tuple[Callable[[Workspace], None], str, str]] = {
    "tiny": (build_tiny, TINY, MORE_OF_TINY),
    "small": (build_small, SMALL, MORE_OF_SMALL),
    "demo": (build_demo, "", DEMO),
}


# ---- answers

LONGEST = 400  # of a longer text the beginning and a hash are written down
TIME = r"\d{4}-\d\d-\d\d[T ](at )?\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?"
# What is made the same, in all texts: when something was done (not the given times, of 2001), today, the version and
# the revision, which git tells, what is installed, the port that the simulator found free, and the random name of a
# file.
NORMALISED = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (rf"(?!2001){TIME}", "<time>"),
        (rf"(?<=made )\d{{4}}-\d\d-\d\d|\b{date.today().isoformat()}\b", "<day>"),
        (re.escape(__version__), "<version>"),
        (r"""\brevision("?:? ?"?)[0-9a-f]{12,40}(\+|-dirty)?\b""", r"revision\1<revision>"),
        (r"""\b(python|openai)("?:? ?"?)\d+(\.\d+)+\w*""", r"\1\2<installed>"),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:<port>"),
        (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<random>"),
    )
)
# The same by place in an answer: how long a call took, the random name of a request, a time in seconds, hashes of what
# contains these, and the row of a judge, which PostgreSQL numbers with gaps.
PLACES = re.compile(
    r"/calls\.\w+/\d+/(seconds|exchange|cached_tokens)$"
    r"|/(evaluation_id|retrieved_timestamp)$"
    r"|/judges/\d+/id$"
)


def recorded(name: str, folder: Path, database: str | None = None, *, quick: bool = False) -> dict[str, Any]:
    """Build a world in an empty folder, and an empty database where one is given, and ask its questions."""
    build, first, more = WORLDS[name]
    workspace = Workspace(folder, database)
    build(workspace)
    names = {row["id"]: f"<{row['name']}>" for row in json.loads(workspace("runs --json"))}
    names |= {row["id"]: f"<{row['name']}>" for row in json.loads(workspace("labellings --json"))}
    lines = [line for line in (first if quick else first + more).splitlines() if line]
    return {f"{name}: {line}": normalised(answer(workspace, line), names) for line in lines}


def answer(workspace: Workspace, line: str) -> Any:
    """Return what a command prints, or the file or folder that it writes."""
    words = shlex.split(line)
    if words[0] == "heatmap":
        opened = cimemories.open(workspace.database or workspace.folder / "workspace")
        frame = opened.runs[words[1]].heatmap(*words[2:]).to_frame()
        opened.close()
        return json.loads(frame.to_json(orient="split", index=False, double_precision=15))
    target = next((words[words.index(option) + 1] for option in ("--out", "--to") if option in words), None)
    if target:
        workspace(line)
        return content(workspace.folder / target)
    if words[-1] in ("--markdown", "--latex"):
        return workspace(line).splitlines()
    return json.loads(workspace(f"{line} --json"))


def content(path: Path) -> Any:
    """Return a file or a folder as JSON."""
    match path.suffix:
        case ".json":
            return json.loads(path.read_text(encoding="utf-8"))
        case ".jsonl":
            return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        case ".csv":
            with path.open(encoding="utf-8", newline="") as file:
                return list(csv.DictReader(file))
        case ".parquet":
            table = pq.ParquetFile(path).read()
            return [{column.name: str(column.type) for column in table.schema}, *table.to_pylist()]
        case ".html":
            return [text for word in Page(path.read_text(encoding="utf-8")).words if (text := word.strip())]
    if path.is_dir():
        return {str(file.relative_to(path)): content(file) for file in sorted(path.rglob("*")) if file.is_file()}
    return path.read_text(encoding="utf-8").splitlines()


def normalised(value: Any, names: dict[str, str], place: str = "") -> Any:
    """Return an answer without what is random or depends on the clock. names: by random id."""
    if isinstance(value, dict):
        inner = {normalised(key, names): (item, f"{place}/{key}") for key, item in value.items()}
        return {key: normalised(item, names, there) for key, (item, there) in inner.items()}
    if isinstance(value, list):
        return [normalised(item, names, f"{place}/{number}") for number, item in enumerate(value)]
    if value is not None and PLACES.search(place):
        return "<varies>"
    if not isinstance(value, str):
        return value
    for random_id, name in names.items():
        value = value.replace(random_id, name)
    for pattern, replacement in NORMALISED:
        value = pattern.sub(replacement, value)
    if len(value) > LONGEST:
        return f"{value[:80]}... ({len(value)} characters, sha256 {sha256(value.encode()).hexdigest()[:16]})"
    return value


# ---- comparing


def differences(expected: Any, actual: Any, where: str = "") -> Iterator[str]:
    """Yield a line for each place in which two answers differ."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in sorted(expected.keys() | actual.keys()):
            if key not in expected or key not in actual:
                yield f"{where}/{key}: {'new' if key in actual else 'gone'}"
            else:
                yield from differences(expected[key], actual[key], f"{where}/{key}")
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            yield f"{where}: {len(expected)} items were recorded, now there are {len(actual)}"
        for number, pair in enumerate(zip(expected, actual, strict=False)):
            yield from differences(*pair, f"{where}/{number}")
    elif not same(expected, actual):
        yield f"{where}: {expected!r} was recorded, now it is {actual!r}"


def same(expected: Any, actual: Any) -> bool:
    """Return whether two plain values are equal: numbers of which one is a float nearly, others in their type too."""
    numbers = [value for value in (expected, actual) if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if len(numbers) == 2 and float in map(type, numbers):
        return math.isclose(expected, actual, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return type(expected) is type(actual) and expected == actual


# ---- files


def read() -> dict[str, Any]:
    """Return all that was recorded, by world and question."""
    answers: dict[str, Any] = {}
    for file in sorted(FOLDER.glob("*.json")):
        answers |= json.loads(file.read_text(encoding="utf-8"))
    return answers


def write(answers: dict[str, Any]) -> None:
    """Write answers into a file a kind of question."""
    for file in FOLDER.glob("*.json"):
        file.unlink()
    for subject in {subject_of(question) for question in answers}:
        chosen = {question: value for question, value in answers.items() if subject_of(question) == subject}
        (FOLDER / f"{subject}.json").write_text(layout(chosen) + "\n", encoding="utf-8")


def subject_of(question: str) -> str:
    words = shlex.split(question)[1:]
    return f"{words[0]}-{words[words.index('--format') + 1]}" if "--format" in words else words[0]


def layout(value: Any, indent: str = "") -> str:
    """Return JSON with sorted keys; an object of plain values, such as the row of a table, is a line."""
    line = json.dumps(value, ensure_ascii=False, sort_keys=True)
    is_row = isinstance(value, dict) and not any(isinstance(part, (dict, list)) for part in value.values())
    if is_row or not isinstance(value, (dict, list)) or len(indent) + len(line) <= 118:
        return line
    deeper = f"{indent} "
    if isinstance(value, dict):
        keys = {key: json.dumps(key, ensure_ascii=False) for key in sorted(value)}
        lines = [f"{deeper}{text}: {layout(value[key], deeper)}" for key, text in keys.items()]
        return "\n".join(["{", ",\n".join(lines), indent + "}"])
    return "\n".join(["[", ",\n".join(deeper + layout(item, deeper) for item in value), indent + "]"])


# ---- all of it


@contextmanager
def sqlite() -> Iterator[Callable[[str], None]]:
    """How to make a database for a world: none is needed beside its workspace."""
    yield lambda world: None


@contextmanager
def postgres() -> Iterator[Callable[[str], str]]:
    """The same in a private cluster; returns the address of the database. Skips where its programs are missing."""
    with _cluster() as cluster:
        url = sa.make_url(cluster.url)
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)

        def create(world: str) -> str:
            with engine.connect() as connection:
                connection.exec_driver_sql(f"CREATE DATABASE {world}")
            return url.set(database=world).render_as_string(hide_password=False)

        yield create


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, and exit with 1 where anything differs")
    parser.add_argument("worlds", nargs="*", help=f"of {', '.join(WORLDS)}; default: all")
    options = parser.parse_args()
    worlds = options.worlds or list(WORLDS)
    umask = os.umask(0o022)
    os.umask(umask)
    before, failed = read(), False
    expected = {question: value for question, value in before.items() if question.split(":")[0] in worlds}
    for engine in (sqlite, postgres) if options.check else (sqlite,):
        answers: dict[str, Any] = {}
        try:
            with engine() as create:
                for world in worlds:
                    with tempfile.TemporaryDirectory() as folder:
                        answers |= recorded(world, Path(folder), create(world))
        except pytest.skip.Exception as skipped:
            say(f"{engine.__name__}: not compared. {skipped}")
            continue
        if options.check:
            found = list(differences(expected, answers))
            failed = failed or bool(found)
            say("\n  ".join([f"{engine.__name__}: {len(answers)} answers, {len(found)} differences", *found]))
    if not options.check:
        os.umask(umask)  # the command line makes its process private
        write({question: value for question, value in before.items() if question not in expected} | answers)
    return failed


if __name__ == "__main__":
    sys.exit(main())

"""Preference pairs: which messages make one, that the files hold them as TRL reads them, and what the card says."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from evaluating import DATASET, ROOT, add_labelled, cli_inside, outside, simulated
from worlds import add_dataset, add_labels, add_run

from cimemories.evaluation import planning
from cimemories.evaluation import runs as execution
from cimemories.evaluation.batches import export_batch, import_batch
from cimemories.extras.training import preferences
from cimemories.extras.training.preferences import (
    ALL_VIOLATE,
    LESS_COMPLETE,
    NO_VIOLATION,
    ONE_MESSAGE,
    JudgedMessage,
    PairCounts,
)
from cimemories.extras.training.reward import Score, score
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY, TOO_FEW, UNLABELLED
from cimemories.flows.scope import resolve_scope
from cimemories.leaks.message import leak_view
from cimemories.model import Label
from cimemories.store import judgements
from cimemories.store.engine import Store, open_store

LEAK = (1,)


def message(sample: int, completeness: float | None, violations: tuple[int, ...] = (), **more: Any) -> JudgedMessage:
    return JudgedMessage(sample, more.pop("text", f"text {sample}"), Score(completeness, violations, **more))


def test_the_score_counts_clear_labels_alone() -> None:
    labels = {1: NECESSARY, 2: NECESSARY, 3: INAPPROPRIATE, 4: INAPPROPRIATE, 5: AMBIGUOUS, 6: UNLABELLED, 7: TOO_FEW}
    # 4 is an identifier, 9 is not in the memory of the message.
    result = score({1, 3, 4, 5, 6, 7, 9}, labels, identifiers={4})
    assert result == Score(completeness=0.5, violations=(3,), ambiguous=1, unlabelled=2)
    assert (result.reward(), result.reward(0.25)) == (-0.5, 0.25)
    assert score({3}, {3: INAPPROPRIATE}) == Score(None, (3,))


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([message(1, 1.0), message(2, 0.5), message(3, 0.5, LEAK)], [(1, 3)]),
        # Completeness first, then the fewest ambiguous attributes, then the order.
        ([message(1, 0.5, ambiguous=2), message(2, 0.5), message(3, 0.5), message(4, 0.0, LEAK)], [(2, 4)]),
        # Each different text with a violation once, the first of equals.
        ([message(1, 1.0, LEAK), message(2, 1.0), message(3, 0.0, LEAK, text="text 1"), message(4, 1.0, LEAK)],
         [(2, 1), (2, 4)]),
        # A chosen message conveys no less than the rejected one.
        ([message(1, 0.5), message(2, 1.0, LEAK), message(3, 0.5, LEAK)], [(1, 3)]),
        ([message(1, 0.5), message(2, 1.0, LEAK)], LESS_COMPLETE),
        # One text that a judge read in two ways is no preference.
        ([message(1, 1.0, text="same"), message(2, 1.0, LEAK, text="same")], LESS_COMPLETE),
        ([message(1, None), message(2, None, LEAK)], [(1, 2)]),
        ([message(1, 1.0), message(2, 1.0)], NO_VIOLATION),
        ([message(1, 1.0, unlabelled=1), message(2, 1.0, LEAK)], ALL_VIOLATE),
        ([message(1, 1.0, LEAK), message(2, 1.0, LEAK)], ALL_VIOLATE),
        ([message(1, 1.0)], ONE_MESSAGE),
    ],
)  # fmt: skip
def test_which_messages_make_a_pair(messages: list[JudgedMessage], expected: list[tuple[int, int]] | str) -> None:
    result = preferences.pairs(messages)
    assert (result if isinstance(result, str) else [(a.sample, b.sample) for a, b in result]) == expected


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, str]:
    """A run of a simulated model whose samples differ."""
    store = open_store(tmp_path_factory.mktemp("judged"))
    add_labelled(store, contexts=4)
    run_id = planning.plan(store, simulated(samples=5))
    execution.execute(store, run_id)
    return store, run_id


def exported(store: Store, run_id: str, path: Path, *options: object, code: int = 0) -> str:
    place = ("--workspace", store.workspace)
    done = cli_inside(outside(), "export", run_id, "--format", "preferences", "-o", path, *options, *place)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_pairs_are_those_of_the_record(judged: tuple[Store, str], tmp_path: Path) -> None:
    store, run_id = judged
    told = json.loads(exported(store, run_id, tmp_path / "pairs.jsonl", "--json"))
    rows = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text("utf-8").splitlines()]
    assert told["pairs"] == len(rows) > 0
    assert told["requests"] == len({row["context"] for row in rows}) + sum(told["without"].values())
    # Against the view of the page of leaks, which reads the same record in its own way.
    flows, scope = Flows(store), resolve_scope(store, run_id)
    frame = flows.query(scope, "SELECT DISTINCT profile, context FROM {pairs} ORDER BY context")
    for row in rows:
        view = leak_view(flows, scope, int(frame["profile"][0]), int(frame["context"][row["context"]]))
        assert view is not None and row["profile"] == 0 and row["simulated"] is True
        by_number = {item.number: item for item in view.samples}
        good, bad = by_number[row["chosen_sample"]], by_number[row["rejected_sample"]]
        assert row["chosen"] == [{"role": "assistant", "content": good.text}]
        assert row["rejected"] == [{"role": "assistant", "content": bad.text}]
        (turn,) = row["prompt"]
        assert turn["role"] == "user" and view.context.task in turn["content"]
        assert all(item.statement in turn["content"] for item in view.memories.values())
        assert good.leaked(view.memories) == []
        assert row["rejected_violations"] == [view.memories[a].key for a in bad.leaked(view.memories)] != []
        needed = {a for a, item in view.memories.items() if item.label == Label.NECESSARY}
        conveyed = [len(needed & item.revealed) / len(needed) for item in (good, bad)]
        assert [row["chosen_completeness"], row["rejected_completeness"]] == conveyed
        assert conveyed[0] >= conveyed[1]
        assert row["margin"] == pytest.approx(conveyed[0] - conveyed[1] + len(row["rejected_violations"]))


def test_parquet_holds_the_same_rows_in_plain_types(judged: tuple[Store, str], tmp_path: Path) -> None:
    store, run_id = judged
    for name in ("pairs.jsonl", "pairs.parquet"):
        exported(store, run_id, tmp_path / name, *(["--replace"] if name.endswith("parquet") else []))
    table = pq.read_table(tmp_path / "pairs.parquet")
    assert table.schema.equals(preferences.SCHEMA)
    lines = (tmp_path / "pairs.jsonl").read_text("utf-8").splitlines()
    assert table.to_pylist() == [json.loads(line) for line in lines]


def test_the_card_says_what_the_pairs_rest_on(judged: tuple[Store, str], tmp_path: Path) -> None:
    store, run_id = judged
    told = json.loads(exported(store, run_id, tmp_path / "pairs.jsonl", "--json"))
    card = Path(told["card"]).read_text("utf-8")
    _, head, body = card.split("---\n", 2)
    assert yaml.safe_load(head)["configs"] == [{"config_name": "default", "data_files": "pairs.jsonl"}]
    assert "simulated" in yaml.safe_load(head)["tags"] and "**Simulated: messages and labels.**" in body
    scope = resolve_scope(store, run_id)
    assert scope.labelling is not None
    for text in (run_id, scope.labelling.id, scope.run.dataset_hash, "paper's rule", "sim-judge"):
        assert text in body
    assert f"{told['pairs']} pair" in body and f"{sum(told['without'].values())} request" in body
    for reason in told["without"]:
        assert reason in body
    assert "has to choose one" in body or "CC BY-NC" in body, "a note on the licence of the dataset"


def test_what_has_no_pair_is_refused_and_leaves_no_file(sqlite_store: Store, tmp_path: Path) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=2, contexts=2)
    # The second context lacks a necessary attribute.
    add_labels(sqlite_store, data.id, [[[INAPPROPRIATE, INAPPROPRIATE], [NECESSARY, AMBIGUOUS]]])
    run_id = add_run(sqlite_store, data.id, 2, [[[2, 1], [0, 0]]])
    counts = PairCounts()
    scope = resolve_scope(sqlite_store, run_id)
    assert list(preferences.preference_rows(sqlite_store, scope, counts)) == []
    assert counts == PairCounts(0, 2, 0, Counter({ALL_VIOLATE: 1, preferences.NOT_COUNTED: 1}))
    error = exported(sqlite_store, run_id, tmp_path / "pairs.jsonl", code=1)
    assert f"1 request {ALL_VIOLATE}" in error and f"1 request {preferences.NOT_COUNTED}" in error
    assert "Name it .jsonl or .parquet" in exported(sqlite_store, run_id, tmp_path / "pairs.csv", code=1)
    assert list(tmp_path.glob("pairs*")) == []


def test_pairs_are_of_messages_and_of_prompts(tmp_path: Path) -> None:
    """Neither of what another channel says, nor of a task that an assistant was sent."""
    store = open_store(tmp_path / "workspace")
    add_labelled(store, contexts=2)
    judges = (planning.JudgeSpec(kind="matcher"), planning.JudgeSpec(kind="matcher", channel="tools"))
    spec = planning.RunSpec(dataset=DATASET, model="agent", assistant="tasks", samples=2, judges=judges)
    run_id = planning.plan(store, spec)
    export_batch(store, run_id, tmp_path / "tasks.jsonl")
    tasks = [json.loads(line) for line in (tmp_path / "tasks.jsonl").read_text("utf-8").splitlines()]
    outcomes = [{"key": task["key"], "message": " ".join(task["memories"][:n])} for n, task in enumerate(tasks)]
    (tmp_path / "outcomes.jsonl").write_text("\n".join(map(json.dumps, outcomes)), "utf-8")
    import_batch(store, run_id, tmp_path / "outcomes.jsonl")
    assert "4 messages without a recorded prompt" in exported(store, run_id, tmp_path / "pairs.jsonl", code=1)
    with store.read() as connection:
        tools = next(judge for judge in judgements.of_run(connection, run_id) if judge.channel == "tools")
    error = exported(store, run_id, tmp_path / "pairs.jsonl", "--judge", tools.id, code=1)
    assert "reads tool calls, and pairs are of messages" in error


def test_the_example_of_the_documentation_works(judged: tuple[Store, str], tmp_path: Path) -> None:
    store, run_id = judged
    page = (ROOT / "docs" / "onward.md").read_text("utf-8")
    example = next(line.split()[1:] for line in page.splitlines() if "--format preferences" in line)
    command = [run_id if word.startswith("run-") else word for word in example]
    done = cli_inside(outside(), *command, "--workspace", store.workspace, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["pairs.md", "pairs.parquet"]


def test_trl_trains_on_the_pairs(judged: tuple[Store, str], tmp_path: Path) -> None:
    """Two steps of DPO on a model of random weights: the layout is the one that TRL reads."""
    pytest.importorskip("trl", reason="install trl and torch to try the pairs with them")
    from preference_training import two_steps

    store, run_id = judged
    exported(store, run_id, tmp_path / "pairs.parquet")
    assert len(two_steps(tmp_path / "pairs.parquet", tmp_path / "model")) == 2

"""The paper's list of experiments: its sweeps can be planned, and its page has every published figure."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path
from typing import Any

from evaluating import ROOT
from test_reference import BIOGRAPHY, PROMPTS

from cimemories.evaluation.sweeps import read_sweep
from cimemories.seeds.published import load_published

FOLDER = ROOT / "examples" / "reproduce"
LEVELS = {"1": "a", "2": "b", "3": "c", "4": "d"}


def script() -> Any:
    spec = importlib.util.spec_from_file_location("reproduce", FOLDER / "reproduce.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_both_sweeps_are_by_the_reference_and_cover_the_papers_figures(tmp_path: Path) -> None:
    solving = {level: f"{own} {{memories}} {{recipient}} {{task}}" for level, own in LEVELS.items()}
    prompts = {**PROMPTS, "task_solving": solving, "biography": BIOGRAPHY}
    (tmp_path / "prompts.yaml").write_text(json.dumps(prompts))
    real = read_sweep(Path(shutil.copy(FOLDER / "sweep.yaml", tmp_path))).runs
    simulated = read_sweep(FOLDER / "simulated.yaml").runs
    for runs in (real, simulated):
        assert all(run.reference and run.max_tokens is None for run in runs)
        assert {run.prompt_level for run in runs} == {"1", "2", "3", "4"}
        steps = [run.memory for run in runs if run.memory != "full"]
        assert steps == [f"all_share+{k}" for k in range(0, 10 * len(steps), 10)] and len(steps) >= 5
    assert {run.profiles for run in real if run.memory != "full"} == {5}
    assert all(run.base_url == "simulator" for run in simulated)
    published = {model.name for model in load_published().models}
    assert published == {m.name for run in real if (m := load_published().model(run.model)) is not None}


def test_the_dataset_is_made_where_there_is_no_workspace_yet(tmp_path: Path) -> None:
    own, given = script(), []

    class Noting(own.Commands):
        def __call__(self, *arguments: str, to: str = "") -> str:
            given.append(arguments[0])
            return ""

    own.prepare(Noting(tmp_path / "new", tmp_path))
    assert given == ["generate", "label"]


def test_published_figures_stand_beside_ours_and_in_the_docs(tmp_path: Path) -> None:
    own = script()
    cell = {"run": "run-1", "model": "gpt-5-2025-08-07", "memory": "full", "prompt_level": "1", "violation": 0.25}
    answers = {
        "metrics": {"violation": {"1": 0.1, "5": 0.256}, "completeness": 0.5},
        "accumulate": {"curves": {"1": {"share": [0.0, 0.002, 0.004]}}},
    }

    class Answering(own.Commands):
        def __call__(self, *arguments: str, to: str = "") -> str:
            return json.dumps(answers[arguments[0]])

    rows = list(own.beside(Answering(tmp_path, tmp_path), cell))
    text = own.results("official", [cell | {"simulated": True}], rows)
    assert "**Simulated" in text
    assert "| GPT-5 | violation after 1 task with 1 sample | 0.1 % (Abstract) | 0.2% |" in text
    assert "| GPT-5 | violation after 40 tasks with 5 samples | 25.1 % (Abstract) | 25.6% |" in text
    assert text.count("no run here") == 4
    page = re.sub(r"\s+%", "%", (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8"))
    for model in load_published().models:
        assert all(figure.printed in page for figure in model.figures), model.name

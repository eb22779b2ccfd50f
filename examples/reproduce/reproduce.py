"""Every table and figure of the paper from one sweep: runs the list of docs/reproduce.md and keeps what it prints.

    make reproduce                                                  on the simulator, small
    python reproduce.py --dataset official --sweep sweep.yaml       on your servers, once the dataset is labelled

Each line of the list is a command of the app, printed before it is run; its output goes into the folder, and
`results.md` there holds the figures that the paper's text states beside those of the runs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cimemories
from cimemories.seeds.published import Beside, PublishedMeasure, load_published

HERE = Path(__file__).resolve().parent
SIMULATED = HERE / "simulated.yaml"
DATASET = "reproduce"  # of simulated.yaml


class Commands:
    """Runs commands on one workspace, and keeps their output in one folder."""

    def __init__(self, workspace: Path, folder: Path) -> None:
        self.workspace, self.folder = workspace, folder

    def __call__(self, *words: str, to: str = "") -> str:
        """Run one; returns what it printed. to: the file that keeps it. Ends the program where the command fails."""
        print(f"$ cimemories {' '.join(words)}{f' > {to}' if to else ''}", flush=True)  # noqa: T201
        command = [sys.executable, "-m", "cimemories", *words, "--workspace", str(self.workspace)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            sys.exit(done.returncode)
        if to:
            (self.folder / to).write_text(done.stdout, encoding="utf-8")
        return done.stdout

    def json(self, *words: str, to: str) -> Any:
        return json.loads(self(*words, "--json", to=to))


def prepare(run: Commands) -> None:
    """The dataset of the simulated sweep, with votes of simulated personas."""
    with cimemories.open(run.workspace, create=True) as workspace:
        is_there = DATASET in workspace.datasets
    if not is_there:
        run("generate", "-d", DATASET, "--profiles", "2", "--offline")
        run("label", "-d", DATASET, "-m", "sim-labeler", "--base-url", "simulator", "--draws", "3")


def everything(run: Commands, dataset: str, sweep: Path) -> None:
    """The list of docs/reproduce.md, in its order."""
    # Whatever is missing is said with each number, and a resumed sweep asks for it.
    sweep_id = run("sweep", str(sweep), "--allow-missing", "1").split()[-1]
    cells = run.json("sweep", "--show", sweep_id, to="figures-4-5.json")["cells"]
    plain = [cell for cell in cells if cell["memory"] == "full" and cell["prompt_level"] in ("1", "base")]
    ids = [cell["run"] for cell in plain]
    run("leaderboard", *ids, "--markdown", to="table-1.md")
    run("consensus", "-d", dataset, to="table-2.txt")
    # The paper has Figures 2 and 3 of GPT-5; where it did not run, of the last plain run.
    shown = next((cell["run"] for cell in plain if "gpt-5" in cell["model"].lower()), ids[-1])
    run("leaks", shown, "--markdown", to="table-3.md")
    run("accumulate", shown, "--json", to="figure-2.json")
    with cimemories.open(run.workspace) as workspace:
        workspace.runs[shown].heatmap().to_frame().to_csv(run.folder / "figure-3.csv", index=False)
    rows = [row for cell in plain for row in beside(run, cell)]
    (run.folder / "results.md").write_text(results(dataset, cells, rows), encoding="utf-8")
    run("report", *ids, "--to", str(run.folder / "report.html"), "--force")


def beside(run: Commands, cell: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(model, figure, ours) of the paper's figures for the model of a run."""
    model = load_published().model(cell["model"])
    if model is None:
        return
    metrics = run.json("metrics", cell["run"], to=f"metrics-{model.name}.json")
    curves = run.json("accumulate", cell["run"], to=f"accumulation-{model.name}.json")["curves"]
    for figure in model.figures:
        own, n = None, str(figure.n)
        if figure.beside == Beside.ACCUMULATION and figure.tasks:
            own = next(iter(curves.get(n, {}).get("share", [])[figure.tasks : figure.tasks + 1]), None)
        elif figure.beside == Beside.LEADERBOARD:
            of_violation = figure.measure == PublishedMeasure.VIOLATION
            own = metrics["violation"].get(n) if of_violation else metrics["completeness"]
        cell_of = f"{figure.domain} x {figure.context} in figure-3.csv"
        yield model.name, figure.about, cell_of if figure.domain else "undefined" if own is None else f"{own:.1%}"


def results(dataset: str, cells: list[dict[str, Any]], rows: list[tuple[str, str, str]]) -> str:
    """The figures of the paper's text, each with ours or that no run of the model is here; then the cells."""
    paper = load_published()
    own = {(model, about): text for model, about, text in rows}
    lines = [
        f"# The paper's figures beside ours, on {dataset}",
        "",
        f"Published: {paper.paper.link}, {paper.paper.setting}. Ours: the sweep of this folder.",
        "",
        "| Model | Figure | Published | Ours |",
        "|---|---|---|---|",
    ]
    for model in paper.models:
        for figure in model.figures:
            ours = own.get((model.name, figure.about), "no run here")
            lines.append(f"| {model.name} | {figure.about} | {figure.text} | {ours} |")
    titles = ("model", "memory", "prompt_level", "thinking", "violation", "completeness")
    lines += ["", "## The runs", "", f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    lines += [f"| {' | '.join(_cell(cell.get(title)) for title in titles)} |" for cell in cells]
    if any(cell.get("simulated") for cell in cells):
        lines[1:1] = ["", "**Simulated: our numbers come from made-up policies and say nothing about any real model.**"]
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    return f"{value:.1%}" if isinstance(value, float) else str(value if value is not None else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workspace", type=Path, default=Path("data/reproduce"))
    parser.add_argument("--dataset", default=DATASET, help="a labelled dataset; default: a small one that is made here")
    parser.add_argument("--sweep", type=Path, default=SIMULATED)
    parser.add_argument("--out", type=Path, help="folder of the results; default: WORKSPACE/results")
    asked = parser.parse_args()
    folder = asked.out or asked.workspace / "results"
    folder.mkdir(parents=True, exist_ok=True)
    run = Commands(asked.workspace, folder)
    if asked.dataset == DATASET:
        prepare(run)
    everything(run, asked.dataset, asked.sweep)
    print(f"see {folder / 'results.md'}")  # noqa: T201


if __name__ == "__main__":
    main()

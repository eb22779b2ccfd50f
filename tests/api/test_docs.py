"""The pages of the Python API: the reference is that of the docstrings, and the tour works as it is written."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import cimemories

ROOT = Path(__file__).resolve().parents[2]
CLASSES = ("Workspace", "Datasets", "Dataset", "Runs", "Run", "Metrics", "Heatmap", "Difference")


def writer() -> Any:
    spec = importlib.util.spec_from_file_location("api_page", ROOT / "docs" / "api.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_that_of_the_docstrings() -> None:
    written = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert written == writer().page(), "docs/api.md is older than the docstrings: python docs/api.py"


def test_every_public_name_is_documented() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert set(CLASSES) < set(cimemories.__all__)
    missing = []
    for name in CLASSES:
        kind = getattr(cimemories, name)
        assert kind.__doc__, name
        section = page.split(f"## {name}\n")[1].split("\n## ")[0]
        public = [member for member in vars(kind) if not member.startswith("_")]
        if dataclasses.is_dataclass(kind):
            public += [item.name for item in dataclasses.fields(kind) if not item.name.startswith("_")]
        missing += [f"{name}.{member}" for member in public if member not in section and member != "of"]
    errors = [name for name in cimemories.__all__ if name.endswith("Error")]
    missing += [name for name in [*errors, "open"] if f"cimemories.{name}" not in page]
    assert not missing


def cells() -> list[str]:
    notebook = json.loads((ROOT / "docs" / "tour.ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    return ["".join(cell["source"]) for cell in code]


def test_the_tour_works(prepared_demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(prepared_demo, tmp_path / "data" / "workspace")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in cells():
        exec(compile(code, "docs/tour.ipynb", "exec"), names)
    assert len(names["leaks"]) > 100 and names["new"].status == "finished"
    assert names["heatmap"].figure().layout.title.text

"""Tests whether a workspace has the demo. Apart from demo.py, which takes 4 s to import, because most starts of the app
only need this test."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cimemories.installation import app_root
from cimemories.store import datasets
from cimemories.store.engine import Store

if TYPE_CHECKING:
    from cimemories.store.runs import RunRow

ORIGIN = "demo"
FOLDER = app_root() / "data" / "demo"
MODELS = ("sim-careful", "sim-oversharing", "sim-average")  # of different characters
REAL_ABOUT = "real.json"


def is_wanted(store: Store) -> bool:
    """Return whether the workspace is empty, or holds a demo whose preparation was cut short. Deleted parts of a
    complete demo do not count."""
    with store.read() as connection:
        rows = datasets.all_rows(connection)
        if not rows:
            return True
        demo = next((row for row in rows if row.origin == ORIGIN), None)
        if demo is None or not FOLDER.is_dir() or mark(store).exists():
            return False
        from cimemories.store import labellings
        from cimemories.store import runs as store_runs

        labelled = labellings.all_rows(connection, demo.id)
        ran = store_runs.all_rows(connection, demo.id)
    finished = {row.model for row in ran if row.status.is_finished}
    return not labelled or not finished >= set(MODELS) or not real_is_there(FOLDER, ran)


def mark(store: Store) -> Path:
    """Return the path of the file that marks a completely prepared demo."""
    return store.workspace / "demo.prepared"


def real_is_there(folder: Path, ran: Sequence[RunRow]) -> bool:
    """Return whether the run of the real model is finished, or cannot be because nothing is recorded."""
    about = about_real(folder)
    return about is None or any(row.model == about["model"] and row.status.is_finished for row in ran)


def about_real(folder: Path) -> dict[str, Any] | None:
    path = folder / REAL_ABOUT
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

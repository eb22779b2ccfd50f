"""The format every-eval-ever of the command `export`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from cimemories import files
from cimemories.cli.options import Here
from cimemories.extras.every_eval_ever.record import BENCHMARK, record, write_record
from cimemories.flows.flows import Flows
from cimemories.flows.scope import resolve_scope
from cimemories.store.engine import StoreError
from cimemories.text import part_names

FORMAT = "every-eval-ever"


def export(
    here: Here, run_id: str, folder: Path, *, labelling: str | None, judge: int | None, organization: str, **_: object
) -> None:
    """Write the record of a run below a folder, and print its path."""
    if folder.is_file():
        raise StoreError(f"{folder} is a file. Name a folder: records go below its data/{BENCHMARK}.")
    scope = resolve_scope(here.record, run_id, labelling, judge)
    entry = record(Flows(here.record), scope, now=datetime.now(UTC), organization=organization)
    with files.with_users_umask(folder, here.workspace):
        path = write_record(entry, scope, folder)
    simulated = part_names(scope.simulated)
    here.result(
        {"path": path, "format": FORMAT, "simulated": bool(simulated), "record": entry},
        f"exported '{run_id}' as {FORMAT}: {path}",
        notes=[f"simulated {simulated}: the record says so; do not submit it" if simulated else ""],
    )

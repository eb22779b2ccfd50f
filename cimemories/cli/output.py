"""What the command line prints: tables and JSON on standard output, progress and notes on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from cimemories.store import datasets as dataset_rows
from cimemories.store import judgements as judgement_rows
from cimemories.store import labellings as labelling_rows
from cimemories.store import runs as run_rows
from cimemories.store import work
from cimemories.store.engine import Store

if TYPE_CHECKING:
    from cimemories.analysis.headline import Headline
    from cimemories.formats.importing import Imported
    from cimemories.llm.executor import Progress as Done

err = Console(stderr=True, highlight=False, soft_wrap=True)


def line(text: str) -> None:
    """One line on standard output, as it is."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """One line on standard error, for people."""
    err.print(escape(text))


def as_json_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)


def table(columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[object]]) -> None:
    """A table on standard output; columns are (title, numbers), text is shown as it is."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for title, numbers in columns:
        shown.add_column(title, justify="right" if numbers else "left", no_wrap=numbers)
    for row in rows:
        shown.add_row(*(escape(str(cell)) for cell in row))
    Console(highlight=False).print(shown)


def percent(value: float | None) -> str:
    """A share with one decimal; a dash where it is undefined."""
    return "–" if value is None or value != value else f"{100 * value:.1f} %"


def imported(outcome: Imported, as_json: bool) -> None:
    row = outcome.dataset
    if as_json:
        line(as_json_text({**_dataset(row), "new": outcome.new, "notes": list(outcome.notes)}))
        return
    verb = "imported" if outcome.new else "already here, nothing doubled:"
    line(f"{verb} '{row.name}': {row.profiles} profiles, {row.attributes:,} attributes, {row.contexts} contexts")
    for text in outcome.notes:
        note(f"note: {text}")


def _dataset(row: dataset_rows.DatasetRow) -> dict[str, object]:
    return {
        "id": row.id,
        "name": row.name,
        "counts": {
            "profiles": row.profiles,
            "attributes": row.attributes,
            "contexts": row.contexts,
            "labellings": row.labellings,
            "runs": row.runs,
        },
        "status": "labelled" if row.labellings else "unlabelled",
        "simulated": row.simulated,
        "origin": row.origin,
        "created": row.created,
    }


def datasets(store: Store, as_json: bool) -> None:
    with store.read() as connection:
        rows = dataset_rows.all_rows(connection)
    if as_json:
        line(as_json_text([_dataset(row) for row in rows]))
        return
    table(
        [
            ("name", False),
            ("profiles", True),
            ("attributes", True),
            ("contexts", True),
            ("labellings", True),
            ("", False),
        ],
        [
            (r.name, r.profiles, f"{r.attributes:,}", r.contexts, r.labellings, "simulated" if r.simulated else "")
            for r in rows
        ],
    )


def runs(store: Store, as_json: bool) -> None:
    with store.read() as connection:
        rows = run_rows.all_rows(connection)
        names = {row.id: row.name for row in dataset_rows.all_rows(connection)}
    if as_json:
        found = [
            {
                "id": r.id,
                "name": r.name,
                "dataset": names[r.dataset],
                "model": r.model,
                "samples": r.samples,
                "counts": {
                    "expected": r.expected,
                    "judged": r.judged,
                    "responses": r.responses,
                    "judgements": r.judgements,
                },
                "coverage": r.coverage,
                "status": str(r.status),
                "error": r.error,
                "simulated": r.simulated,
                "created": r.created,
                "finished": r.finished,
            }
            for r in rows
        ]
        line(as_json_text(found))
        return
    table(
        [("id", False), ("name", False), ("status", False), ("judged", True), ("of", True), ("", False)],
        [(r.id, r.name, r.status, r.judged, r.expected, "simulated" if r.simulated else "") for r in rows],
    )


def labellings(store: Store, as_json: bool) -> None:
    with store.read() as connection:
        rows = labelling_rows.all_rows(connection)
        names = {row.id: row.name for row in dataset_rows.all_rows(connection)}
    if as_json:
        found = [
            {
                "id": r.id,
                "name": f"{r.model} on {names[r.dataset]}",
                "dataset": names[r.dataset],
                "model": r.model,
                "draws": r.draws,
                "counts": {"expected": r.expected, **r.ballots},
                "status": str(r.status),
                "error": r.error,
                "simulated": r.simulated,
            }
            for r in rows
        ]
        line(as_json_text(found))
        return
    table(
        [
            ("id", False),
            ("dataset", False),
            ("model", False),
            ("status", False),
            ("ballots", True),
            ("of", True),
            ("", False),
        ],
        [
            (
                r.id,
                names[r.dataset],
                r.model,
                r.status,
                r.ballots.get("ok", 0),
                r.expected,
                "simulated" if r.simulated else "",
            )
            for r in rows
        ],
    )


def metrics(numbers: Headline, as_json: bool) -> None:
    if as_json:
        line(as_json_text(numbers.as_json()))
        return
    for n, value in numbers.violation.items():
        line(f"violation@{n}  {percent(value):>8}  {numbers.attributes:,} attributes, {numbers.flows:,} flows")
    line(
        f"completeness {percent(numbers.completeness):>8}  "
        f"{numbers.retained} retained contexts, {numbers.discarded} discarded"
    )
    line(f"ambiguous    {percent(numbers.ambiguous_exposure):>8}  exposure of pairs without a consensus")
    line(
        f"coverage     {percent(numbers.coverage):>8}  "
        f"{numbers.judged:,} of {numbers.scope.run.expected:,} responses judged"
    )
    for text in numbers.notes:
        note(f"note: {text}")


def _owed(store: Store, work_id: str) -> int:
    with store.read() as connection:
        if work_id.startswith("run-"):
            row = run_rows.named(connection, work_id)
            judges = [j for j in judgement_rows.of_run(connection, work_id) if j.kind == "llm"]
            open_responses = sum(row.responses.get(s, 0) for s in run_rows.RETRIABLE)
            answered = row.responses.get("ok", 0)
            return open_responses * (1 + len(judges)) + (answered - row.judged) * len(judges)
        row_ = next(r for r in labelling_rows.all_rows(connection) if r.id == work_id)
        return sum(row_.ballots.get(s, 0) for s in labelling_rows.RETRIABLE)


@contextmanager
def progress(store: Store, work_id: str) -> Iterator[Callable[[Done], None]]:
    """A progress line on standard error; yields what an execution reports to."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[extra]}"),
    )
    with Progress(*columns, console=err) as bar:
        task = bar.add_task(work_id, total=_owed(store, work_id), extra="")

        def report(done: Done) -> None:
            failed = sum(done.failed.values())
            extra = f"{done.prompt_tokens + done.completion_tokens:,} tokens" + (f", {failed} failed" if failed else "")
            bar.update(task, completed=done.done, extra=extra)

        yield report


def outcome(store: Store, work_id: str) -> None:
    """What came of a piece of work, on standard error: what is missing and why, never hidden."""
    with store.read() as connection:
        work.load(connection, work_id)
        if work_id.startswith("run-"):
            row = run_rows.named(connection, work_id)
            note(f"{work_id}: {row.judged:,} of {row.expected:,} responses judged ({percent(row.coverage)})")
            for stage, status, cause, count in run_rows.failures(connection, work_id):
                note(f"  missing: {count} {stage}s {status} ({cause})")
            return
        labelled = next(r for r in labelling_rows.all_rows(connection) if r.id == work_id)
        note(f"{work_id}: {labelled.ballots.get('ok', 0):,} of {labelled.expected:,} ballots counted")
        for status, cause, count in labelling_rows.failures(connection, work_id):
            note(f"  missing: {count} ballots {status} ({cause})")

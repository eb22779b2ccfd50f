"""What the command line prints: tables and JSON on standard output, progress and notes on standard error."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from cimemories.store import datasets as dataset_rows
from cimemories.store import generations as generation_rows
from cimemories.store import judgements as judgement_rows
from cimemories.store import labellings as labelling_rows
from cimemories.store import provenance, work
from cimemories.store import runs as run_rows
from cimemories.store.engine import Store
from cimemories.texts import CONTROL, visible

if TYPE_CHECKING:
    from cimemories.formats.importing import Imported
    from cimemories.llm.executor import Progress as Done

WIDEST = 500  # characters of a table that is shown whole
LOOK_SECONDS = 0.3  # between two looks at the record for the progress of a generation

err = Console(stderr=True, highlight=False, soft_wrap=True)


def line(text: str) -> None:
    """One line on standard output, as it is but for control characters: a terminal would obey them."""
    sys.stdout.write(f"{visible(text)}\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """One line on standard error, for people."""
    err.print(escape(visible(text)))


def as_json_text(value: object) -> str:
    """JSON for scripts, control characters escaped: a program reads what was meant, a terminal obeys nothing."""
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    return re.sub(CONTROL, lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def table(columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[object]], *, whole: bool = False) -> None:
    """A table on standard output; columns are (title, numbers), text is shown as it is. whole: nothing is cut or broken
    to fit the terminal."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for title, numbers in columns:
        shown.add_column(title, justify="right" if numbers else "left", no_wrap=numbers)
    for row in rows:
        shown.add_row(*(escape(visible(str(cell))) for cell in row))
    Console(highlight=False, width=WIDEST if whole else None).print(shown)


def percent(value: float | None) -> str:
    """A share with one decimal; a dash where it is undefined."""
    return "–" if value is None or value != value else f"{100 * value:.1f} %"


def imported(outcome: Imported, as_json: bool) -> None:
    row = outcome.dataset
    if as_json:
        told = {"new": outcome.new, "notes": list(outcome.notes), "imported_runs": list(outcome.runs)}
        line(as_json_text({**_dataset(row), **told}))
        return
    verb = "imported" if outcome.new else "already here, nothing doubled:"
    named = f"{', '.join(outcome.runs)} of '{row.name}'" if outcome.runs else f"'{row.name}'"
    line(f"{verb} {named}: {row.profiles} profiles, {row.attributes:,} attributes, {row.contexts} contexts")
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
        sources = provenance.origins(connection, [row.id for row in rows]) if as_json else {}
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
                "answers": [source.as_json() for source in sources[r.id]],
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


def generations(store: Store, as_json: bool) -> None:
    from cimemories.curation.authoring_report import report

    with store.read() as connection:
        rows = generation_rows.all_rows(connection)
    if as_json:
        line(as_json_text([report(store, row.id).as_json() for row in rows]))
        return
    table(
        [
            ("id", False),
            ("name", False),
            ("model", False),
            ("status", False),
            ("parts", True),
            ("of", True),
            ("dataset", True),
            ("", False),
        ],
        [
            (
                r.id,
                r.name,
                r.model,
                r.status,
                r.settled,
                r.expected,
                "–" if r.dataset is None else r.dataset,
                "simulated" if r.simulated else "",
            )
            for r in rows
        ],
    )


def _owed(store: Store, work_id: str) -> int:
    with store.read() as connection:
        if work_id.startswith("generation-"):
            return generation_rows.progress(connection, work_id)[1]
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

        if not work_id.startswith("generation-"):
            yield report
            return
        parts = _Parts(store, work_id)

        def report_parts(done: Done) -> None:
            report(done)
            # Calls are no measure here: how many will be asked for again is not known beforehand.
            bar.update(task, completed=parts.settled(), extra=f"{bar.tasks[0].fields['extra']}{parts.cost(done)}")

        bar.update(task, completed=parts.settled())
        yield report_parts
        bar.update(task, completed=parts.settled(at_once=True))


class _Parts:
    """Settled parts of a generation, looked up now and then, and what its tokens cost."""

    def __init__(self, store: Store, work_id: str) -> None:
        self.store, self.work_id, self.looked, self.count = store, work_id, 0.0, 0
        with store.read() as connection:
            asked = generation_rows.named(connection, work_id).manifest.get("asked")
        prices = asked if isinstance(asked, dict) else {}
        self.prices = float(prices.get("price_in", 0)), float(prices.get("price_out", 0))

    def settled(self, *, at_once: bool = False) -> int:
        if at_once or time.monotonic() - self.looked > LOOK_SECONDS:
            with self.store.read() as connection:
                self.count = generation_rows.progress(connection, self.work_id)[0]
            self.looked = time.monotonic()
        return self.count

    def cost(self, done: Done) -> str:
        from cimemories.curation.authoring_spec import cost

        if not any(self.prices):
            return ""
        return f", cost {cost(done.prompt_tokens, done.completion_tokens, *self.prices):,.2f}"


def outcome(store: Store, work_id: str) -> None:
    """What came of a piece of work, on standard error: what is missing and why, never hidden."""
    if work_id.startswith("generation-"):
        _written(store, work_id)
        return
    with store.read() as connection:
        work.load(connection, work_id)
        if work_id.startswith("run-"):
            row = run_rows.named(connection, work_id)
            note(f"{work_id}: {row.judged:,} of {row.expected:,} responses judged ({percent(row.coverage)})")
            for stage, status, cause, count in run_rows.failures(connection, work_id):
                note(f"  missing: {count} {stage}s {status} ({cause})")
            for cause, error in run_rows.call_errors(connection, work_id).items():
                note(f"  {cause}, for example: {error}")
            if row.manifest.get("cap") is not None:
                _above_cap(store, work_id)
            return
        labelled = next(r for r in labelling_rows.all_rows(connection) if r.id == work_id)
        note(f"{work_id}: {labelled.ballots.get('ok', 0):,} of {labelled.expected:,} ballots counted")
        for status, cause, count in labelling_rows.failures(connection, work_id):
            note(f"  missing: {count} ballots {status} ({cause})")


def _above_cap(store: Store, run_id: str) -> None:
    from cimemories.evaluation.costs import run_cost

    if words := run_cost(store, run_id).above_cap_words():
        note(f"  {words}")


def _written(store: Store, work_id: str) -> None:
    from cimemories.curation.authoring_report import report

    for text in report(store, work_id).lines():
        note(text)

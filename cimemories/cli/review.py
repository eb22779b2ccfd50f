"""Commands about people's review: export and import of its events, its progress, and samples to audit judges by."""

from __future__ import annotations

import getpass
import shlex
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from cimemories import files
from cimemories.cli import output
from cimemories.cli.base import group
from cimemories.cli.options import Dataset, Here, Place, Printing, Replace, YourName
from cimemories.store.engine import StoreError
from cimemories.text import count, listed

review = group("review", "Review by people: export, import, status, audit.")


@review.command("export")
def export_review(
    here: Here,
    dataset: Dataset,
    out: Annotated[Path, Option("--out", "-o", help="File to write; for csv and parquet, a folder.")],
    form: Annotated[str, Option("--format", help="jsonl, csv or parquet.")] = "jsonl",
    annotator: Annotated[str | None, Option(help="Only from this reviewer.")] = None,
    source: Annotated[str | None, Option(help="Only decisions made this way: single, batch, ...")] = None,
    domain: Annotated[str | None, Option(help="Only attributes of this domain.")] = None,
    profile: Annotated[int | None, Option(min=0, help="Only this profile, counted from 0.")] = None,
    since: Annotated[str | None, Option(help="Only from this time on, e.g. 2026-01-31.")] = None,
    blind: Annotated[bool, Option("--blind", help="Only what was decided in blind mode.")] = False,
    replace: Replace = False,
) -> None:
    """Export decisions, marks, comments and audit verdicts.

    Kinds that a filter does not apply to (--source, --blind) are left out.

    Example: cimemories review export official -o all.jsonl
    """
    from cimemories.formats.review_events import FORMS, Filters, export_events, in_words

    kind = next((kind for kind in FORMS if kind == form), None)
    if kind is None:
        raise typer.BadParameter(f"'{form}' is not one of {', '.join(FORMS)}", param_hint="--format")
    filters = Filters(annotator, source, domain, profile, since, blind)
    with files.with_users_umask(out, here.workspace):
        result = export_events(here.record, dataset, out, kind, filters, replace=replace)
    simulated = ", simulated" if result.simulated else ""
    about = {"path": result.path, "format": kind, **output.attributes(result, "counts simulated")}
    here.result(about, f"exported {in_words(result.counts) or 'nothing'} of '{dataset}': {result.path}{simulated}")


@review.command("import")
def import_review(
    here: Here,
    file: Annotated[Path, Argument(help="A file or folder that `review export` wrote.")],
    dataset: Annotated[
        str | None, Option("--dataset", "-d", help="Dataset; default: the one named in the file.")
    ] = None,
    skip_unknown: Annotated[
        bool, Option("--skip-unknown", help="Skip events whose pair or run is not in this workspace.")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what is new, and import nothing.")] = False,
    zone: Annotated[
        str, Option(help="Zone of times that name none: a name such as Europe/Berlin, or an offset such as +02:00.")
    ] = "UTC",
) -> None:
    """Import new review events: all of a file, or nothing.

    Example: cimemories review import ada.jsonl -d official
    """
    from cimemories.formats.review_events import import_events, in_words

    result = import_events(
        here.record,
        file,
        dataset,
        skip_unknown=skip_unknown,
        dry_run=dry_run,
        annotator=getpass.getuser(),
        zone=zone,
    )
    names = ", ".join(f"'{name}'" for name in result.datasets)
    notes = [f"{known} imported before" if (known := in_words(result.present)) else ""]
    notes += [f"{note}; --zone sets it" if (note := result.zone_note(zone)) else "", *result.notes]
    about = output.attributes(result, "datasets new present skipped notes without_zone")
    new, into = in_words(result.new) or "nothing", f" into {names}" if names else ""
    text = f"{'new: ' if dry_run else 'imported '}{new}{into}"
    if not here.result(about, text, notes=notes):
        output.notes(result.skipped, "skipped")


@review.command("imports")
def review_imports(here: Here, dataset: Dataset) -> None:
    """List the imported files of review events, newest first.

    Example: cimemories review imports official
    """
    from cimemories.answers import lists
    from cimemories.formats.review_events import imports

    shown = lists.imports(imports(here.record, here.dataset(dataset).id))
    here.listing(shown, f"no review events were imported into '{dataset}'")


@review.command("undo-import")
def undo_review_import(
    here: Here,
    dataset: Dataset,
    number: Annotated[int, Argument(metavar="IMPORT", min=1, help="Number of the import, as `review imports` lists.")],
    annotator: YourName = None,
) -> None:
    """Undo an import of review events.

    What was here before it counts again. What people have gone on from since stays: pairs that the same person decided
    again, comments that others resolved.

    Example: cimemories review undo-import official 3
    """
    from cimemories.formats.review_events import imports, undo_import

    store, of = here.record, here.dataset(dataset).id
    row = next((row for row in imports(store, of) if row.id == number), None)
    if row is None:
        raise StoreError(
            f"'{dataset}' has no import {number}. `cimemories review imports {shlex.quote(dataset)}` lists them."
        )
    if row.undone:
        raise StoreError(f"import {number} of '{dataset}' ({row.name}) was undone already, at {_when(row.undone)} UTC.")
    removed, stay = undo_import(store, of, number, annotator or getpass.getuser())
    here.result(
        {"import": number, "removed": removed, "kept": stay},
        f"undone: {count(removed, 'event')} of '{row.name}' removed",
        notes=[f"{count(stay)} stay: people have gone on from them since" if stay else ""],
    )


@review.command("status")
def review_status(dataset: Dataset, printing: Printing) -> None:
    """Show decisions by person, disputes and comments.

    Example: cimemories review status official
    """
    from cimemories.review.status import status

    printing.answer(status(printing.record, dataset))


@review.command("assign")
def assign_slice(
    place: Place,
    dataset: Dataset,
    name: Annotated[str, Argument(metavar="SLICE", help="Name of a slice, of labels or of a judge's audit.")],
    people: Annotated[list[str] | None, Option("--to", help="A person; repeatable. None: open to all again.")] = None,
    overlap: Annotated[int | None, Option(min=1, help="People an item; default: all of them.")] = None,
    due: Annotated[str | None, Option(help="By when, e.g. 2026-12-31.")] = None,
    training: Annotated[int, Option(min=0, help="Pairs with known answers before it: each shows its answer.")] = 0,
    tests: Annotated[int, Option(min=0, help="Pairs with known answers mixed into it, hidden.")] = 0,
    annotator: YourName = None,
) -> None:
    """Assign a slice to people, replacing earlier ones.

    `review status` shows how many of the training and test pairs each person got right.

    Example: cimemories review assign official "200 pairs, seed 0" --to Ada --to Bob --due 2026-12-31
    """
    from cimemories.review.assignments import assign, slices

    row = next((row for row in slices(place.record, place.dataset(dataset).id) if row.name == name), None)
    if row is None:
        raise StoreError(
            f"'{dataset}' has no slice named '{name}'. Sample one on the Review page, Agreement, or on Judge audit."
        )
    who = annotator or getpass.getuser()
    assign(place.record, row.id, people or [], overlap=overlap, due=due, annotator=who, training=training, tests=tests)
    output.line(f"assigned '{name}' to {listed(people or []) or 'no one'}")


@review.command("assignments")
def list_assignments(here: Here, dataset: Dataset) -> None:
    """List assigned slices with progress and pace by person.

    Example: cimemories review assignments official
    """
    from cimemories.answers import lists
    from cimemories.review.assignments import progress

    rows = progress(here.record, dataset_id=here.dataset(dataset).id)
    every = [
        {
            **output.attributes(row.of, "name kind run items overlap due training tests"),
            **output.attributes(row, "decisions answered"),
            "done_by": row.done_by.isoformat() if row.done_by else None,
            "people": row.people,
        }
        for row in rows
    ]
    if here.result(every):
        return
    if not rows:
        output.note(f"no slice of '{dataset}' is assigned")
    for row in rows:
        output.line(f"'{row.of.name}': {row.sentence}")
        output.listing(lists.paces(row))


@review.command("next")
def next_slice(here: Here, person: Annotated[str | None, Option(help="Whose; default: your login.")] = None) -> None:
    """List what a person still has to do, soonest due first.

    Each line has the address that shows the next item.

    Example: cimemories review next --person Ada
    """
    from cimemories.review.assignments import assigned_to

    who = person or getpass.getuser()
    every = assigned_to(here.record, who)
    rows = [
        {
            **output.attributes(item.of, "name kind dataset_name due"),
            **output.attributes(item, "answered share address"),
        }
        for item in every
    ]
    if here.result(rows):
        return
    if not every:
        output.note(f"nothing is left that is assigned to {who}")
    for item in every:
        output.line(item.sentence)
        output.line(f"  {item.address}")


def _when(created: str) -> str:
    """'2026-01-31 10:00'."""
    return created[:16].replace("T", " ")

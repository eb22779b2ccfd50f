"""Commands that look after a workspace: back it up and bring it back, check it, delete from it, give space back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import AsJson, Workspace
from cimemories.store.engine import DEFAULT_WORKSPACE, StoreError, open_store

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would go, and change nothing.")]


@cli.command()
def backup(
    file: Annotated[Path, typer.Argument(help="The backup to write.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file of this name.")] = False,
    portable: Annotated[
        bool, typer.Option("--portable", help="From PostgreSQL: without pg_dump, for either engine.")
    ] = False,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Write the whole record into one file, while the app and runs go on.  Example: cimemories backup friday.zip"""
    from cimemories.store.upkeep.backup import back_up

    store = open_store(workspace)
    made = back_up(store, file, overwrite=overwrite, portable=portable)
    store.close()
    size = file.stat().st_size
    for text in made.notes:
        output.note(f"note: {text}")
    if as_json:
        output.line(output.as_json_text({"file": str(file), "bytes": size, **made.backup.as_json()}))
        return
    output.note(f"backed up {sum(made.backup.counts.values()):,} rows, {size / 1e6:,.1f} MB")
    output.line(str(file))


@cli.command()
def restore(
    file: Annotated[Path, typer.Argument(help="A backup that `cimemories backup` wrote.")],
    replace: Annotated[bool, typer.Option("--replace", help="Put it in the place of what is there.")] = False,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Bring a backup back, whole or not at all, into an empty workspace.

    Example: cimemories restore friday.zip --workspace ~/study
    """
    from cimemories.store.upkeep.backup import restore as bring_back

    done = bring_back(file, workspace, replace=replace)
    if as_json:
        kept = str(done.kept) if done.kept else None
        output.line(output.as_json_text({"workspace": str(workspace), "kept": kept, **done.backup.as_json()}))
        return
    if done.kept:
        output.note(f"what was there before is kept as {done.kept}; delete it when you no longer need it")
    output.note(f"restored {sum(done.backup.counts.values()):,} rows as of {done.backup.created}")
    output.line(str(workspace))


@cli.command()
def check(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Check the whole record and count it; exit status 1 where anything is wrong.  Example: cimemories check"""
    from cimemories.store.upkeep import checking

    done = checking.check(workspace)
    if as_json:
        output.line(output.as_json_text(done.as_json()))
    else:
        output.table([("table", False), ("rows", True)], [(name, f"{n:,}") for name, n in done.counts.items()])
        for fault in done.faults:
            rows = f" ({fault.rows:,} rows)" if fault.rows > 1 else ""
            output.line(f"{fault.kind}: {f'{fault.table}: ' if fault.table else ''}{fault.text}{rows}")
        if done.schema != done.newest:
            output.note(f"schema {done.schema or 'none'}; opening it brings it to {done.newest}")
    if not done.sound:
        raise StoreError(
            f"{done.address} is not sound: {len(done.faults)} kinds of faults. Bring a backup back with "
            "`cimemories restore FILE --replace`; the damaged file is kept."
        )
    if not as_json:
        output.note("the record is sound")


@cli.command()
def purge(
    dry_run: DryRun = False, yes: Yes = False, as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE
) -> None:
    """Remove recorded calls that nothing needs any more, and give their space back.

    Example: cimemories purge --dry-run
    """
    from cimemories.store.upkeep import purging

    store = open_store(workspace)
    planned = purging.plan(store)
    if dry_run and as_json:
        output.line(output.as_json_text(planned.as_json()))
        return
    output.note(
        f"not needed any more: calls {planned.calls:,}, requests {planned.requests:,} ({planned.bytes / 1e6:,.1f} MB); "
        f"caches and logs of deleted work {planned.files:,} ({planned.file_bytes / 1e6:,.1f} MB)"
    )
    if planned.kept:
        named = ", ".join(planned.unfinished[:5]) + (" ..." if len(planned.unfinished) > 5 else "")
        output.note(f"calls that stay because unfinished work may ask for them: {planned.kept:,} ({named})")
    if dry_run:
        return
    if not planned.nothing:
        _confirm("Remove them? The same requests would have to be asked, and paid for, again.", yes)
    done = purging.purge(store)
    store.close()
    if as_json:
        output.line(output.as_json_text(done.as_json()))
    else:
        output.note("removed, and the space given back")


@cli.command()
def delete(
    work_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Id of a run, sweep, labelling or generation.")
    ] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", "-d", help="Name of a dataset instead.")] = None,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Also what rests on it: labellings, runs, what people decided.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Delete a run, sweep, labelling, generation or dataset, once it has said what goes.

    Example: cimemories delete run-3f9a1c2e
    """
    from cimemories.store.upkeep import deleting

    if (work_id is None) == (dataset is None):
        raise StoreError(
            "name one thing to delete: the id of a run, sweep, labelling or generation, or --dataset NAME."
        )
    store = open_store(workspace)
    with store.read() as connection:
        planned = deleting.of_dataset(connection, dataset) if dataset else deleting.of_work(connection, str(work_id))
    output.note(f"{planned.title}: {planned.words(planned.goes) or 'nothing in it'}")
    if planned.rests:
        output.note(f"resting on it: {planned.words(planned.rests)}")
    if planned.note:
        output.note(planned.note)
    if dry_run:
        if planned.rests and not cascade:
            output.note("This would be refused: delete all of it with --cascade.")
        return
    if planned.rests and not cascade:
        raise StoreError(
            f"{planned.title} was not deleted: {planned.words(planned.rests)} rest on it. Back up first "
            "(`cimemories backup FILE`), then delete all of it with --cascade."
        )
    _confirm("Delete it? This cannot be undone.", yes)
    deleting.delete(store, planned)
    store.close()
    output.note(f"deleted {planned.title}; its recorded calls stay until `cimemories purge`")


def _confirm(question: str, yes: bool) -> None:
    """Ask on a terminal. Raises StoreError for a no, and where nobody can be asked."""
    if yes:
        return
    if not (sys.stdin and sys.stdin.isatty()):
        raise StoreError("nothing was changed: say --yes, since there is no terminal to ask on.")
    if not typer.confirm(question, err=True):
        raise StoreError("nothing was changed.")

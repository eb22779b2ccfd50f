"""Commands that look after a workspace: back up, restore, check, delete, purge; its people and their roles, its log."""

from __future__ import annotations

import csv
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from cimemories.access.roles import MAY, Role
from cimemories.cli import output
from cimemories.cli.base import cli, group
from cimemories.cli.options import Here, Place, full_ids
from cimemories.model import WorkKind
from cimemories.store.engine import StoreError
from cimemories.text import count, without_formula

Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, Option("--dry-run", help="Show what would be removed, and stop.")]


upkeep = group("workspace", "Back up, restore, verify and purge a workspace.")


@upkeep.command()
def backup(
    here: Here,
    file: Annotated[Path, Argument(help="File to write.")],
    overwrite: Annotated[bool, Option("--overwrite", help="Overwrite an existing file.")] = False,
) -> None:
    """Back up a workspace into one file, while it is in use.  Example: cimemories workspace backup friday.zip"""
    from cimemories.store.upkeep.backup import back_up

    result = back_up(here.record, file, overwrite=overwrite)
    here.record.close()
    size = file.stat().st_size
    if not here.result({"file": file, "bytes": size, **asdict(result)}, str(file)):
        output.note(f"backed up {count(sum(result.counts.values()), 'row')}, {size / 1e6:,.1f} MB")


@upkeep.command()
def restore(
    here: Here,
    file: Annotated[Path, Argument(help="A file that `cimemories workspace backup` wrote.")],
    replace: Annotated[bool, Option("--replace", help="Replace a workspace that is not empty.")] = False,
) -> None:
    """Restore a backup into an empty workspace. It is restored as a whole, or not at all.

    Example: cimemories workspace restore friday.zip --workspace ~/study
    """
    from cimemories.store.upkeep.backup import restore as restore_backup

    result, replaced = restore_backup(file, here.workspace, replace=replace)
    if here.result({"workspace": here.workspace, "kept": replaced, **asdict(result)}, str(here.workspace)):
        return
    if replaced:
        output.note(f"the database from before is kept as {replaced}; delete it when you no longer need it")
    output.note(f"restored {count(sum(result.counts.values()), 'row')} as of {result.created}")


@upkeep.command()
def verify(here: Here) -> None:
    """Check the workspace's database. Exits with 1 if anything is wrong.  Example: cimemories workspace verify"""
    from cimemories.store.upkeep import checking

    result = checking.check(here.workspace)
    if not here.result(result):
        output.table(("table", ">rows"), result.counts.items())
        for fault in result.faults:
            rows = f" ({count(fault.rows, 'row')})" if fault.rows > 1 else ""
            output.line(f"{fault.kind}: {f'{fault.table}: ' if fault.table else ''}{fault.text}{rows}")
        if result.schema != result.newest:
            output.note(f"schema {result.schema or 'none'}; it is updated to {result.newest} when opened")
    if not result.sound:
        raise StoreError(
            f"{result.address} is damaged: {len(result.faults)} kinds of faults. Restore a backup with "
            "`cimemories workspace restore FILE --replace`; the damaged file is kept."
        )
    if not here.as_json:
        output.note("the database is sound")


@upkeep.command()
def purge(here: Here, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Remove recorded calls that nothing uses. Their disk space is freed.

    Example: cimemories workspace purge --dry-run
    """
    from cimemories.store.upkeep import purging

    planned = purging.plan(here.record)
    if dry_run and here.as_json:
        output.as_json(planned)
        return
    output.note(
        f"unused: calls {planned.calls:,}, requests {planned.requests:,}, recalls {planned.recalls:,} "
        f"({planned.bytes / 1e6:,.1f} MB); "
        f"caches and logs of deleted work {planned.files:,} ({planned.file_bytes / 1e6:,.1f} MB)"
    )
    if planned.kept_calls:
        named = ", ".join(planned.unfinished[:5]) + (" ..." if len(planned.unfinished) > 5 else "")
        output.note(f"kept for unfinished work: {count(planned.kept_calls, 'call')} ({named})")
    if dry_run:
        return
    if not planned.nothing:
        _confirm("Remove them? Asking the same again would send, and pay for, new requests.", yes)
    result = purging.purge(here.record)
    here.record.close()
    if not here.result(result):
        output.note("removed; the space is free")


@cli.command()
def delete(
    place: Place,
    work_id: Annotated[
        str | None,
        Argument(metavar="[ID]", callback=full_ids(*WorkKind), help="Id of a run, sweep, labelling or generation."),
    ] = None,
    dataset: Annotated[str | None, Option("--dataset", "-d", help="Name of a dataset instead.")] = None,
    cascade: Annotated[
        bool, Option("--cascade", help="Also delete what depends on it: labellings, runs, decisions.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete a run, sweep, labelling, generation or dataset. Shows what will be deleted, and asks.

    Example: cimemories delete run-3f9a1c2e
    """
    from cimemories.store.upkeep import deleting

    if (work_id is None) == (dataset is None):
        raise StoreError(
            "what should be deleted? Give one id of a run, sweep, labelling or generation, or --dataset NAME."
        )
    with place.record.read() as connection:
        planned = deleting.of_dataset(connection, dataset) if dataset else deleting.of_work(connection, str(work_id))
    output.note(f"{planned.title}: {deleting.listed(planned.goes) or 'nothing in it'}")
    if planned.rests:
        output.note(f"depends on it: {deleting.listed(planned.rests)}")
    if planned.note:
        output.note(planned.note)
    if dry_run:
        if planned.rests and not cascade:
            output.note("Deleting this needs --cascade.")
        return
    if planned.rests and not cascade:
        raise StoreError(
            f"{planned.title} was not deleted: {deleting.listed(planned.rests)} depend on it. Back up first "
            "(`cimemories workspace backup FILE`), then delete everything with --cascade."
        )
    _confirm("Delete it? This cannot be undone.", yes)
    deleting.delete(place.record, planned)
    place.record.close()
    output.note(f"deleted {planned.title}; its recorded calls stay until `cimemories workspace purge`")


def _confirm(question: str, yes: bool) -> None:
    """Ask on a terminal. Raises StoreError for a no, and where no one can be asked."""
    if yes:
        return
    # In a script a question would wait for ever, or take whatever comes next on standard input for the answer.
    if not (sys.stdin and sys.stdin.isatty()):
        raise StoreError("nothing was changed: there is no terminal to ask on. Use --yes.")
    if not typer.confirm(question, err=True):
        raise StoreError("nothing was changed.")


# ---- people and the log


team = group("team", "People who log in, their roles, and the log of who did what.")


@team.command("list")
def list_people(here: Here) -> None:
    """List people, those who may do most first.  Example: cimemories team list"""
    from cimemories.answers import lists

    empty = "no one has logged in yet; without a login, everyone can do everything"
    here.listing(lists.people(here.record), empty)


@team.command("role")
def give_role(
    here: Here,
    name: Annotated[str, Argument(help="Name, or mail address of an account; it need not have logged in yet.")],
    role: Annotated[Role, Argument(help="none, viewer, annotator, curator, operator or admin.")],
) -> None:
    """Give a person a role. Each role may do what those before it may.

    Example: cimemories team role ada@example.org admin
    """
    from cimemories.store.team import people

    row = people.give(here.store, name, role)
    about = output.attributes(row, "name email role seen created")
    notes = [] if row.account else [f"holds from the first login with the verified address {row.email}"]
    here.result(about, f"{row.name}: {row.role}, can {MAY[row.role]}", notes=notes)


@team.command("log")
def show_log(
    here: Here,
    person: Annotated[str | None, Option(help="Only what this person did.")] = None,
    action: Annotated[str | None, Option(help="Only this action, or kind of action: run, run.started, ...")] = None,
    since: Annotated[str | None, Option(help="Only from this time on, e.g. 2026-01-31.")] = None,
    limit: Annotated[
        int | None, Option(min=1, max=2**31 - 1, help="How many at most, the newest first; default: 50 in a table.")
    ] = None,
    as_csv: Annotated[bool, Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Show who did what, and when.

    Roles, imports, exports, runs, deletions and more. Decisions on single pairs are not in it: `review export` has
    them.

    Example: cimemories team log --since 2026-01-31 --csv > log.csv
    """
    from cimemories.answers import lists
    from cimemories.formats.review_events import moment
    from cimemories.store.team import log

    if here.as_json and as_csv:
        raise StoreError("choose one of --json and --csv.")
    if since and not moment(since):
        raise StoreError(f"--since takes a time, such as 2026-01-31 or 2026-01-31T10:00:00Z, not '{since}'.")
    since = moment(since) if since else None
    every = here.as_json or as_csv
    with here.record.read() as connection:
        entries = log.entries(
            connection, person=person, action=action, since=since, most=limit or (None if every else 50)
        )
    shown = lists.log(entries)
    rows = shown.records()
    if here.as_json:
        output.as_json([row | {"details": item.details} for row, item in zip(rows, entries, strict=True)])
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, [*shown.columns])
        writer.writeheader()
        writer.writerows({name: without_formula(text) for name, text in row.items()} for row in rows)
    else:
        output.listing(shown, empty="nothing matches" if person or action or since else "nothing is recorded")

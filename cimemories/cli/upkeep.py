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
from cimemories.cli.base import cli
from cimemories.cli.options import AsJson, Workspace, full_ids, open_record
from cimemories.model import WorkKind
from cimemories.store.engine import DEFAULT_WORKSPACE, StoreError, open_store
from cimemories.text import count, without_formula

Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, Option("--dry-run", help="Show what would be removed, and stop.")]


upkeep = typer.Typer(name="workspace", help="Back up, restore, verify and purge a workspace.", no_args_is_help=True)
cli.add_typer(upkeep)


@upkeep.command()
def backup(
    file: Annotated[Path, Argument(help="File to write.")],
    overwrite: Annotated[bool, Option("--overwrite", help="Overwrite an existing file.")] = False,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Back up a workspace into one file, while it is in use.  Example: cimemories workspace backup friday.zip"""
    from cimemories.store.upkeep.backup import back_up

    store = open_record(workspace)
    result = back_up(store, file, overwrite=overwrite)
    store.close()
    size = file.stat().st_size
    if as_json:
        output.as_json({"file": file, "bytes": size, **asdict(result)})
        return
    output.note(f"backed up {count(sum(result.counts.values()), 'row')}, {size / 1e6:,.1f} MB")
    output.line(str(file))


@upkeep.command()
def restore(
    file: Annotated[Path, Argument(help="A file that `cimemories workspace backup` wrote.")],
    replace: Annotated[bool, Option("--replace", help="Replace a workspace that is not empty.")] = False,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Restore a backup into an empty workspace. It is restored as a whole, or not at all.

    Example: cimemories workspace restore friday.zip --workspace ~/study
    """
    from cimemories.store.upkeep.backup import restore as restore_backup

    result, kept = restore_backup(file, workspace, replace=replace)
    if as_json:
        output.as_json({"workspace": workspace, "kept": kept, **asdict(result)})
        return
    if kept:
        output.note(f"the database from before is kept as {kept}; delete it when you no longer need it")
    output.note(f"restored {count(sum(result.counts.values()), 'row')} as of {result.created}")
    output.line(str(workspace))


@upkeep.command()
def verify(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Check the workspace's database. Exits with 1 if anything is wrong.  Example: cimemories workspace verify"""
    from cimemories.store.upkeep import checking

    result = checking.check(workspace)
    if as_json:
        output.as_json(result.as_json())
    else:
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
    if not as_json:
        output.note("the database is sound")


@upkeep.command()
def purge(
    dry_run: DryRun = False, yes: Yes = False, as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE
) -> None:
    """Remove recorded calls that nothing uses. Their disk space is freed.

    Example: cimemories workspace purge --dry-run
    """
    from cimemories.store.upkeep import purging

    store = open_record(workspace)
    planned = purging.plan(store)
    if dry_run and as_json:
        output.as_json(planned)
        return
    output.note(
        f"unused: calls {planned.calls:,}, requests {planned.requests:,}, recalls {planned.recalls:,} "
        f"({planned.bytes / 1e6:,.1f} MB); "
        f"caches and logs of deleted work {planned.files:,} ({planned.file_bytes / 1e6:,.1f} MB)"
    )
    if planned.kept:
        named = ", ".join(planned.unfinished[:5]) + (" ..." if len(planned.unfinished) > 5 else "")
        output.note(f"kept for unfinished work: {count(planned.kept, 'call')} ({named})")
    if dry_run:
        return
    if not planned.nothing:
        _confirm("Remove them? Asking the same again would send, and pay for, new requests.", yes)
    result = purging.purge(store)
    store.close()
    if as_json:
        output.as_json(result)
    else:
        output.note("removed; the space is free")


@cli.command()
def delete(
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
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Delete a run, sweep, labelling, generation or dataset. Shows what will be deleted, and asks.

    Example: cimemories delete run-3f9a1c2e
    """
    from cimemories.store.upkeep import deleting

    if (work_id is None) == (dataset is None):
        raise StoreError(
            "what should be deleted? Give one id of a run, sweep, labelling or generation, or --dataset NAME."
        )
    store = open_record(workspace)
    with store.read() as connection:
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
    deleting.delete(store, planned)
    store.close()
    output.note(f"deleted {planned.title}; its recorded calls stay until `cimemories workspace purge`")


def _confirm(question: str, yes: bool) -> None:
    """Ask on a terminal. Raises StoreError for a no, and where nobody can be asked."""
    if yes:
        return
    # In a script a question would wait for ever, or take whatever comes next on standard input for the answer.
    if not (sys.stdin and sys.stdin.isatty()):
        raise StoreError("nothing was changed: there is no terminal to ask on. Use --yes.")
    if not typer.confirm(question, err=True):
        raise StoreError("nothing was changed.")


# ---- people and the log


team = typer.Typer(
    name="team", help="People who log in, their roles, and the log of who did what.", no_args_is_help=True
)
cli.add_typer(team)


@team.command("list")
def list_people(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List people, those who may do most first.  Example: cimemories team list"""
    from cimemories.answers import lists

    empty = "nobody has logged in yet; without a login, everybody can do everything"
    output.listing(lists.people(open_record(workspace)), as_json, empty)


@team.command("role")
def give_role(
    name: Annotated[str, Argument(help="Name, or mail address of an account; it need not have logged in yet.")],
    role: Annotated[Role, Argument(help="none, viewer, annotator, curator, operator or admin.")],
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Give somebody a role. Each role may do what those before it may.

    Example: cimemories team role ada@example.org admin
    """
    from cimemories.store.team import people

    row = people.give(open_store(workspace), name, role)
    if as_json:
        output.as_json(output.attributes(row, "name email role seen created"))
        return
    output.line(f"{row.name}: {row.role}, can {MAY[row.role]}")
    if row.account is None:
        output.note(f"note: holds from the first login with the verified address {row.email}")


@team.command("log")
def show_log(
    person: Annotated[str | None, Option(help="Only what this person did.")] = None,
    action: Annotated[str | None, Option(help="Only this action, or kind of action: run, run.started, ...")] = None,
    since: Annotated[str | None, Option(help="Only from this time on, e.g. 2026-01-31.")] = None,
    limit: Annotated[
        int | None, Option(min=1, max=2**31 - 1, help="How many at most, the newest first; default: 50 in a table.")
    ] = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, Option("--csv", help="Print CSV.")] = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Show who did what, and when.

    Roles, imports, exports, runs, deletions and more. Decisions on single pairs are not in it: `review export` has
    them.

    Example: cimemories team log --since 2026-01-31 --csv > log.csv
    """
    from cimemories.answers import lists
    from cimemories.formats.review_events import moment
    from cimemories.store.team import log

    if as_json and as_csv:
        raise StoreError("choose one of --json and --csv.")
    if since and not moment(since):
        raise StoreError(f"--since takes a time, such as 2026-01-31 or 2026-01-31T10:00:00Z, not '{since}'.")
    since = moment(since) if since else None
    whole = as_json or as_csv
    with open_record(workspace).read() as connection:
        entries = log.entries(
            connection, person=person, action=action, since=since, most=limit or (None if whole else 50)
        )
    shown = lists.log(entries)
    rows = shown.records()
    if as_json:
        output.as_json([row | {"details": item.details} for row, item in zip(rows, entries, strict=True)])
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, [*shown.columns])
        writer.writeheader()
        writer.writerows({name: without_formula(text) for name, text in row.items()} for row in rows)
    else:
        output.listing(shown, empty="nothing matches" if person or action or since else "nothing is recorded")

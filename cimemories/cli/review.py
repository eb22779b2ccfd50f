"""Commands about people's review."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import AsJson, Dataset, Workspace
from cimemories.store import engine
from cimemories.store.engine import DEFAULT_WORKSPACE, open_store

if TYPE_CHECKING:
    from cimemories.review.status import Status


review = typer.Typer(
    name="review", help="What people said of pairs and judgements: export, import, status.", no_args_is_help=True
)


cli.add_typer(review)


@review.command("export")
def export_(
    dataset: Dataset,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write; with csv or parquet a folder of tables.")],
    form: Annotated[str, typer.Option("--format", help="jsonl, csv or parquet.")] = "jsonl",
    annotator: Annotated[str | None, typer.Option("--annotator", help="Only what this person said.")] = None,
    source: Annotated[str | None, typer.Option("--source", help="Only decisions of it: single, batch, ...")] = None,
    domain: Annotated[str | None, typer.Option("--domain", help="Only attributes of this information domain.")] = None,
    profile: Annotated[int | None, typer.Option("--profile", min=0, help="Only of one profile, from 0.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="Only from then on, e.g. 2026-01-31.")] = None,
    blind: Annotated[bool, typer.Option("--blind", help="Only what was said in blind mode.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Write over a file that is there.")] = False,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Write decisions, marks, comments and audits to a file.  Example: cimemories review export official -o all.jsonl

    A filter on what a kind does not have (--source, --blind) leaves that kind out.
    """
    from cimemories.formats.review_events import FORMS, Filters, export_events

    kind = next((kind for kind in FORMS if kind == form), None)
    if kind is None:
        raise typer.BadParameter(f"'{form}' is none of {', '.join(FORMS)}", param_hint="--format")
    filters = Filters(annotator, source, domain, profile, since, blind)
    store = open_store(workspace)
    with engine.written_for_user(out, workspace):
        done = export_events(store, dataset, out, kind, filters, replace=replace)
    if as_json:
        shown = {"path": str(done.path), "format": kind, "counts": dict(done.counts), "simulated": done.simulated}
        output.line(output.as_json_text(shown))
        return
    mark = ", simulated" if done.simulated else ""
    output.line(f"exported {_counted(done.counts)} of '{dataset}': {done.path}{mark}")


@review.command("import")
def import_review(
    file: Annotated[Path, typer.Argument(help="A file or folder that `review export` wrote, or one laid out so.")],
    dataset: Annotated[
        str | None, typer.Option("--dataset", "-d", help="Whose events they are; what the file says if left out.")
    ] = None,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out events whose pair or run is not here.")
    ] = False,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Add what is not here yet, all of a file or nothing.  Example: cimemories review import ada.jsonl -d official"""
    from cimemories.formats.review_events import import_events

    done = import_events(open_store(workspace), file, dataset, skip_unknown=skip_unknown)
    if as_json:
        shown = {"datasets": list(done.datasets), "new": dict(done.new), "known": dict(done.known)}
        output.line(output.as_json_text({**shown, "skipped": list(done.skipped), "notes": list(done.notes)}))
        return
    names = ", ".join(f"'{name}'" for name in done.datasets)
    output.line(f"imported {_counted(done.new)}{f' into {names}' if names else ''}")
    if sum(done.known.values()):
        output.note(f"note: {_counted(done.known)} were here already")
    for text in done.notes:
        output.note(f"note: {text}")
    for text in done.skipped:
        output.note(f"skipped: {text}")


@review.command()
def status(dataset: Dataset, as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Decisions by person, label and source, open comments and disputes.  Example: cimemories review status official"""
    from cimemories.review.status import status as find

    found = find(open_store(workspace), dataset)
    if as_json:
        output.line(output.as_json_text(found.as_json()))
        return
    _review_table(found)


def _review_table(found: Status) -> None:
    mark = ", simulated" if found.simulated else ""
    output.line(
        f"'{found.dataset}'{mark}: {found.decided:,} of {found.pairs:,} pairs decided, "
        f"{found.disputed:,} of {found.shared:,} pairs decided by two or more people in dispute"
    )
    output.line(
        f"comments: {found.open_comments:,} of {found.comments:,} open; flagged pairs: {found.flagged:,}; "
        f"guideline: version {found.guideline}"
    )
    if not found.people:
        return
    output.table(
        [("person", False), *((word, True) for word in ("N", "X", "?", "taken back", "events")), ("sources", False)],
        [
            (
                person.name,
                *(f"{person.labels[label]:,}" for label in ("necessary", "inappropriate", "ambiguous")),
                f"{person.taken_back:,}",
                f"{person.events:,}",
                ", ".join(f"{source} {count:,}" for source, count in person.sources.items()),
            )
            for person in found.people
        ],
    )


def _counted(counts: Mapping[str, int]) -> str:
    """'3 decisions, 1 comment'; 'nothing' where all are 0."""
    words = [f"{n:,} {kind}{'' if n == 1 else 's'}" for kind, n in counts.items() if n]
    return ", ".join(words) or "nothing"

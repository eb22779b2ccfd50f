"""The command `publish`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from cimemories import files
from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import RUN_ID, NumberOptions, Place


@cli.command()
def publish(
    run_ids: Annotated[
        list[str], Argument(metavar="RUN", callback=RUN_ID, help="Runs of one dataset; the first is the reference.")
    ],
    options: NumberOptions,
    place: Place,
    to: Annotated[Path, Option(help="Folder to write: new, empty, or with --force a site published before.")],
    no_texts: Annotated[
        bool, Option("--no-texts", help="Leave out messages, memory statements and names of users.")
    ] = False,
    force: Annotated[bool, Option("--force", help="Replace a site published before.")] = False,
) -> None:
    """Write a website on runs that needs no server.

    It has leaderboard, heatmaps, leaks, accumulation and manifest. A reader moves the threshold of labels, the personas
    and the judge, and numbers and places follow.

    Example: cimemories publish run-3f9a run-77 --to site
    """
    from cimemories.extras.site.site import check_folder, collect_site, write_site
    from cimemories.flows.flows import Flows

    rule = options.identifier_rule()
    # Before the numbers are computed, so that a folder in use is reported at once.
    check_folder(to, force=force)
    scopes = options.scopes(place.record, run_ids)
    with output.err.status("publish") as status:
        site = collect_site(
            Flows(place.record),
            scopes,
            rule,
            now=datetime.now(UTC),
            texts=not no_texts,
            progress=lambda share, part: status.update(f"publish: {part}, {share:.0%}"),
        )
        with files.with_users_umask(to, place.workspace):
            size = write_site(site, to, force=force)
    output.line(f"wrote {to / 'index.html'} ({size / 1e6:,.1f} MB in all)")
    output.notes([site.simulated, site.fixed])
    output.notes([site.warning], "warning")

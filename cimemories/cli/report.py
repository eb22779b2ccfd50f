"""The command that writes a report: a run, or several beside each other, as one file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import Workspace, cli
from cimemories.cli.explore import Grounded, Identifiers, JudgeOption, Labels, RuleOption, identifier_rule, scope_of
from cimemories.store import private
from cimemories.store.engine import DEFAULT_WORKSPACE, open_store


@cli.command()
def report(
    run_ids: Annotated[list[str], typer.Argument(metavar="RUN", help="The first is what others are held to.")],
    to: Annotated[
        Path, typer.Option("--to", help="The file: NAME.html (one file), or NAME.md with a folder of figures.")
    ],
    labels: Labels = None,
    rule: RuleOption = None,
    judge: JudgeOption = None,
    identifiers: Identifiers = "exact",
    grounded: Grounded = False,
    no_texts: Annotated[
        bool, typer.Option("--no-texts", help="Leave out texts of messages and memories, and names of users.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a report that is there already.")] = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """A report on runs as one file, with methods and manifest.  Example: cimemories report run-3f9a --to report.html"""
    from cimemories.analysis.flows import Flows
    from cimemories.report import writing
    from cimemories.report.collect import collect

    chosen = identifier_rule(identifiers)
    writing.check(to, force=force)
    store = open_store(workspace)
    scopes = [scope_of(store, run_id, labels, judge, grounded=grounded, rule=rule) for run_id in dict.fromkeys(run_ids)]
    with output.err.status("report") as status:
        found = collect(
            Flows(store),
            scopes,
            chosen,
            made=datetime.now(UTC),
            texts=not no_texts,
            progress=lambda share, part: status.update(f"report: {part}, {share:.0%}"),
        )
    with private.written_for_user(to, workspace):
        written = writing.write(found, to, force=force)
    beside = f" and {len(written) - 1} figures in {writing.figures_folder(to)}" if len(written) > 1 else ""
    output.line(f"wrote {written[0]}{beside}")
    if found.simulated:
        output.note(f"note: {found.simulated}")

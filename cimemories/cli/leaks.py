"""Commands that list what a run leaked, and write the report."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from cimemories import files
from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import RUN_ID, LabelOptions, NumberOptions, PaperPrinting, Place, Run

Values = list[str] | None
MOST_HELD = 1_000  # rows of leaks that are in memory at once where they are written one by one


@dataclass(frozen=True)
class FilterOptions:
    """Which leaks; each filter can be repeated."""

    domain: Annotated[Values, Option(help="Only this domain. All filters are repeatable.")] = None
    sphere: Annotated[Values, Option(help="Only contexts of this sphere.")] = None
    recipient: Annotated[Values, Option(help="Only this recipient.")] = None
    profile: Annotated[Values, Option(help="Only this profile, by name.")] = None
    strength: Annotated[Values, Option(help="full (default; what counts as a violation), partial or implied.")] = None
    quote: Annotated[Values, Option(help="grounded or ungrounded: whether the quote is in a message.")] = None
    agreement: Annotated[Values, Option(help="all or some: how many judges claim it in one message.")] = None
    phrase: Annotated[Values, Option(help="copied, part, reworded or none: how a message says the statement.")] = None
    certainty: Annotated[Values, Option(help="Basis of the label: adjudicated, person, unanimous or threshold.")] = None


@cli.command()
def leaks(
    run_id: Run,
    filters: FilterOptions,
    options: LabelOptions,
    printing: PaperPrinting,
    where: Annotated[str | None, Option(help="Condition on the columns, as in: claimed / draws >= 0.5.")] = None,
    by: Annotated[Values, Option(help="Group the leaks by this column, say domain or phrase. Repeatable.")] = None,
    top: Annotated[int, Option(min=0, help="Number of examples, severest first, or of groups; 0 for all.")] = 10,
) -> None:
    """List leaked examples of a run, severest first, or the patterns among them.

    Severity is ordered by strength of the claim, whether it is of another subject than the task, share of judged
    messages that reveal it, whether a quote is in a message, certainty of the label, and whether all judges claim it.

    --by counts them by what leaked and how instead, the largest group first.

    Example: cimemories leaks run-3f9a1c2e --domain health --latex --top 6
    """
    from cimemories.answers import leaks as question
    from cimemories.flows.flows import Flows
    from cimemories.leaks import table

    scope, flows = options.scope(printing.record, run_id), Flows(printing.record)
    values = {**vars(filters), "strength": filters.strength or ["full"]}
    if by:
        patterns = question.patterns(flows, scope, values, by, top or None, where=where)
        if printing.for_paper:
            output.line(patterns.patterns.latex() if printing.latex else patterns.patterns.markdown())
            output.answer_notes(patterns)
        else:
            printing.answer(patterns)
        return
    result = question.leaks(
        flows,
        scope,
        values,
        top or None,
        where=where,
        excerpts=not printing.for_paper,
        # Of a large run not even the rows that are asked for need fit into memory.
        limit=MOST_HELD if printing.as_json or printing.out else None,
    )
    if printing.for_paper:
        rows = table.leak_rows(flows, {scope.run.id: scope}, result.leaks.frame)
        output.line((table.as_latex if printing.latex else table.as_markdown)(rows).rstrip("\n"))
        output.answer_notes(result)
    else:
        printing.answer(result)


# ---- report


@cli.command()
def report(
    run_ids: Annotated[list[str], Argument(metavar="RUN", callback=RUN_ID, help="Runs; the first is the reference.")],
    options: NumberOptions,
    place: Place,
    to: Annotated[Path, Option(help="File to write: NAME.html, or NAME.md with a folder of figures.")],
    no_texts: Annotated[
        bool, Option("--no-texts", help="Leave out messages, memory statements and names of users.")
    ] = False,
    force: Annotated[bool, Option("--force", help="Overwrite an existing report.")] = False,
) -> None:
    """Write a report on runs, with methods and manifest.  Example: cimemories report run-3f9a --to report.html"""
    from cimemories.flows.flows import Flows
    from cimemories.report import render
    from cimemories.report.collect import collect

    rule = options.identifier_rule()
    # Before the numbers are computed: a name that is taken is told at once.
    render.check_report(to, force=force)
    scopes = options.scopes(place.record, run_ids)
    with output.err.status("report") as status:
        result = collect(
            Flows(place.record),
            scopes,
            rule,
            now=datetime.now(UTC),
            texts=not no_texts,
            progress=lambda share, part: status.update(f"report: {part}, {share:.0%}"),
        )
        with files.with_users_umask(to, place.workspace):
            written = render.write_report(
                result, to, force=force, progress=lambda share: status.update(f"report: figures, {share:.0%}")
            )
    figures = f" and {len(written) - 1} figures in {render.figures_folder(to)}" if len(written) > 1 else ""
    output.line(f"wrote {written[0]}{figures}")
    output.notes([result.simulated])

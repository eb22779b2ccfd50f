"""Commands that write out what a run leaked: examples, the report, and the site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from cimemories import files
from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import AsJson, AsLatex, AsMarkdown, LabelOptions, NumberOptions, Run, Workspace, grouped
from cimemories.store.engine import DEFAULT_WORKSPACE, StoreError, open_store
from cimemories.text import simulated_text

if TYPE_CHECKING:
    import pandas as pd

    from cimemories.flows.scope import Scope
    from cimemories.leaks.gallery import Facet
    from cimemories.leaks.table import LeakRow

Values = list[str] | None


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
    certainty: Annotated[Values, Option(help="Basis of the label: adjudicated, person, unanimous or threshold.")] = None

    def by_facet(self, examples: pd.DataFrame) -> dict[Facet, Sequence[str]]:
        """The values of each filter. Raises StoreError for the name of a profile that leaks nothing."""
        from cimemories.leaks.gallery import Facet

        values = {facet: getattr(self, facet) or [] for facet in Facet if hasattr(self, facet)}
        return values | {
            Facet.PROFILE: _profile_ids(examples, self.profile or []),
            Facet.STRENGTH: self.strength or ["full"],
        }


@cli.command()
@grouped
def leaks(
    run_id: Run,
    filters: FilterOptions,
    options: LabelOptions,
    as_json: AsJson = False,
    markdown: AsMarkdown = False,
    latex: AsLatex = False,
    top: Annotated[int, Option(min=0, help="Number of examples, severest first; 0 for all.")] = 10,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """List leaked examples of a run, severest first.

    Severity is ordered by strength of the claim, share of judged messages that reveal it, whether a quote is in a
    message, certainty of the label, and whether all judges claim it.

    Example: cimemories leaks run-3f9a1c2e --domain health --latex --top 6
    """
    from cimemories.flows.flows import Flows
    from cimemories.leaks import table
    from cimemories.leaks.gallery import SEVERITY, gallery, narrowed

    if as_json + markdown + latex > 1:
        raise StoreError("choose one of --json, --markdown and --latex.")
    store = open_store(workspace)
    scope = options.scope(store, run_id)
    flows = Flows(store)
    examples = gallery(flows, [scope])
    values = filters.by_facet(examples)
    selection = narrowed(examples, values)
    _check_values(values, selection.whole)
    rows = table.leak_rows(flows, {scope.run.id: scope}, examples.iloc[selection.shown[: top or None]])
    if as_json:
        output.as_json(
            {
                "run": scope.run.id,
                "model": scope.run.model,
                "judge": scope.judge_text,
                "labelling": scope.labelling.id if scope.labelling else None,
                "labels": scope.labels_text,
                "simulated": scope.simulated,
                "severity": SEVERITY,
                "examples": len(examples),
                "left_by_filters": len(selection.shown),
                "leaks": [row.as_json() for row in rows],
            }
        )
    elif markdown or latex:
        output.line((table.as_latex if latex else table.as_markdown)(rows).rstrip("\n"))
    else:
        _print_leaks(rows)
    _print_notes(scope, len(rows), len(selection.shown))


def _profile_ids(examples: pd.DataFrame, names: Sequence[str]) -> list[str]:
    ids: list[str] = []
    for name in names:
        matches = examples[examples["user"] == name] if len(examples) else examples
        if matches.empty:
            users = ", ".join(sorted(set(examples["user"]))) if len(examples) else "none"
            raise StoreError(f"profile '{name}' has no leaks in this run. Profiles with leaks: {users}.")
        ids += sorted({str(value) for value in matches["profile"]})
    return ids


def _check_values(wanted: Mapping[Facet, Sequence[str]], counts: Mapping[Facet, Mapping[str, int]]) -> None:
    """Raises StoreError for a value that no leak of the run has."""
    for facet, values in wanted.items():
        for value in values:
            if value not in counts[facet] and any(counts.values()):
                known = ", ".join(f"{name or 'none'} ({count})" for name, count in counts[facet].items())
                raise StoreError(f"no leak of this run has the {facet} '{value}'. Use one of: {known}.")


def _print_leaks(rows: Sequence[LeakRow]) -> None:
    output.table(
        (">#", ">revealed", "recipient", "attribute", "excerpt", "label"),
        [
            (
                number,
                f"{row.claimed} of {row.draws}" + ("" if row.strength == "full" else f" {row.strength}"),
                f"{row.recipient}: {row.task}",
                f"{row.key}: {row.statement}",
                "".join(piece.text for piece in row.excerpt) or "no quote",
                row.certainty,
            )
            for number, row in enumerate(rows, start=1)
        ],
    )


def _print_notes(scope: Scope, printed: int, left: int) -> None:
    if scope.labelling is None:
        output.note("note: the dataset has no labels yet, so nothing counts as a leak. Label it first.")
    elif not left:
        output.note("note: no leak of this run matches")
    elif printed < left:
        output.note(f"note: showing the {printed} severest of {left:,}; --top 0 shows all")
    if scope.simulated:
        output.note(f"note: {simulated_text(scope.simulated)}; says nothing about any real model")


# ---- report


@cli.command()
@grouped
def report(
    run_ids: Annotated[list[str], Argument(metavar="RUN", help="Runs; the first is the reference.")],
    options: NumberOptions,
    to: Annotated[Path, Option(help="File to write: NAME.html, or NAME.md with a folder of figures.")],
    no_texts: Annotated[
        bool, Option("--no-texts", help="Leave out messages, memory statements and names of users.")
    ] = False,
    force: Annotated[bool, Option("--force", help="Overwrite an existing report.")] = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Write a report on runs, with methods and manifest.  Example: cimemories report run-3f9a --to report.html"""
    from cimemories.flows.flows import Flows
    from cimemories.report import render
    from cimemories.report.collect import collect

    rule = options.identifier_rule()
    # Before the numbers are computed: a name that is taken is told at once.
    render.check_report(to, force=force)
    store = open_store(workspace)
    scopes = options.scopes(store, run_ids)
    with output.err.status("report") as status:
        result = collect(
            Flows(store),
            scopes,
            rule,
            made=datetime.now(UTC),
            texts=not no_texts,
            progress=lambda share, part: status.update(f"report: {part}, {share:.0%}"),
        )
        with files.written_for_user(to, workspace):
            written = render.write_report(
                result, to, force=force, progress=lambda share: status.update(f"report: figures, {share:.0%}")
            )
    figures = f" and {len(written) - 1} figures in {render.figures_folder(to)}" if len(written) > 1 else ""
    output.line(f"wrote {written[0]}{figures}")
    output.notes([result.simulated])


# ---- publish


@cli.command()
@grouped
def publish(
    run_ids: Annotated[list[str], Argument(metavar="RUN", help="Runs of one dataset; the first is the reference.")],
    options: NumberOptions,
    to: Annotated[Path, Option(help="Folder to write: new, empty, or with --force a site published before.")],
    no_texts: Annotated[
        bool, Option("--no-texts", help="Leave out messages, memory statements and names of users.")
    ] = False,
    force: Annotated[bool, Option("--force", help="Replace a site published before.")] = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Write a website on runs that needs no server: leaderboard, heatmaps, leaks, accumulation, manifest.

    A reader moves the threshold of labels, the personas and the judge, and numbers and places follow.

    Example: cimemories publish run-3f9a run-77 --to site
    """
    from cimemories.flows.flows import Flows
    from cimemories.report.site import check_folder, collect_site, write_site

    rule = options.identifier_rule()
    # Before the numbers are computed: a folder that is taken is told at once.
    check_folder(to, force=force)
    store = open_store(workspace)
    scopes = options.scopes(store, run_ids)
    with output.err.status("publish") as status:
        site = collect_site(
            Flows(store),
            scopes,
            rule,
            made=datetime.now(UTC),
            texts=not no_texts,
            progress=lambda share, part: status.update(f"publish: {part}, {share:.0%}"),
        )
        with files.written_for_user(to, workspace):
            size = write_site(site, to, force=force)
    output.line(f"wrote {to / 'index.html'} ({size / 1e6:,.1f} MB in all)")
    output.notes([site.simulated, site.fixed])
    output.notes([site.warning], "warning")

"""Commands that write out leaks and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import (
    AsJson,
    Grounded,
    Identifiers,
    JudgeOption,
    Labels,
    RuleOption,
    Workspace,
    identifier_rule,
    scope_of,
)
from cimemories.store import engine
from cimemories.store.engine import DEFAULT_WORKSPACE, StoreError, open_store

if TYPE_CHECKING:
    import pandas as pd

    from cimemories.flows.scope import Scope
    from cimemories.leaks.gallery import Facet
    from cimemories.leaks.table import LeakRow


Several = list[str] | None


@cli.command()
def leaks(
    run_id: Annotated[str, typer.Argument(metavar="RUN")],
    as_json: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a table in Markdown.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print a table in LaTeX, with booktabs.")] = False,
    top: Annotated[int, typer.Option("--top", min=0, help="How many, severest first; 0: all.")] = 10,
    domain: Annotated[
        Several, typer.Option("--domain", help="Only of this domain. May be repeated, as all filters.")
    ] = None,
    sphere: Annotated[Several, typer.Option("--sphere", help="Only in contexts of this sphere.")] = None,
    recipient: Annotated[Several, typer.Option("--recipient", help="Only to this recipient.")] = None,
    profile: Annotated[Several, typer.Option("--profile", help="Only of this profile, by name.")] = None,
    strength: Annotated[
        Several, typer.Option("--strength", help="full (the default: what counts as a violation), partial or implied.")
    ] = None,
    quote: Annotated[
        Several, typer.Option("--quote", help="grounded or ungrounded: whether a quote stands in a message.")
    ] = None,
    agreement: Annotated[
        Several, typer.Option("--agreement", help="all or some: of the run's judges claim it in one message.")
    ] = None,
    certainty: Annotated[
        Several, typer.Option("--certainty", help="What the label rests on: adjudicated, person, unanimous, threshold.")
    ] = None,
    labels: Labels = None,
    rule: RuleOption = None,
    judge: JudgeOption = None,
    grounded: Grounded = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Leaked examples of a run, severest first.  Example: cimemories leaks run-3f9a1c2e --domain health --latex --top 6

    Severest first: by strength of the claim, then by the share of judged messages that reveal it, then those whose
    quote stands in a message, then by certainty of the label, then those that all judges claim.
    """
    from cimemories.flows.flows import Flows
    from cimemories.leaks import table
    from cimemories.leaks.gallery import Facet, gallery, narrowed
    from cimemories.leaks.table import leak_rows

    if as_json + markdown + latex > 1:
        raise StoreError("choose one of --json, --markdown and --latex.")
    store = open_store(workspace)
    asked = scope_of(store, run_id, labels, judge, grounded=grounded, rule=rule)
    flows = Flows(store)
    examples = gallery(flows, [asked])
    wanted = {
        Facet.DOMAIN: domain or [],
        Facet.SPHERE: sphere or [],
        Facet.RECIPIENT: recipient or [],
        Facet.PROFILE: _ids(examples, profile or []),
        Facet.STRENGTH: strength or ["full"],
        Facet.QUOTE: quote or [],
        Facet.AGREEMENT: agreement or [],
        Facet.CERTAINTY: certainty or [],
    }
    found = narrowed(examples, wanted)
    _check(wanted, found.whole)
    chosen = examples.iloc[found.shown[: top or None]]
    rows = leak_rows(flows, {asked.run.id: asked}, chosen)
    if as_json:
        output.line(output.as_json_text(_leaks_json(asked, rows, len(found.shown), len(examples))))
    elif markdown or latex:
        output.line((table.as_latex if latex else table.as_markdown)(rows).rstrip("\n"))
    else:
        _leaks_table(rows)
    _leaks_notes(asked, len(rows), len(found.shown))


def _ids(examples: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """The ids of the profiles of these names. Raises StoreError for one that leaks nothing."""
    found = []
    for name in names:
        own = examples[examples["user"] == name] if len(examples) else examples
        if own.empty:
            there = ", ".join(sorted(set(examples["user"]))) if len(examples) else "none"
            raise StoreError(f"no leak is of a profile '{name}'. There are some of: {there}.")
        found += sorted({str(value) for value in own["profile"]})
    return found


def _check(wanted: Mapping[Facet, Sequence[str]], whole: Mapping[Facet, Mapping[str, int]]) -> None:
    """Raises StoreError for a value that no leak of the run could have."""
    for facet, values in wanted.items():
        for value in values:
            if value not in whole[facet] and any(whole.values()):
                there = ", ".join(f"{name or 'none'} ({count})" for name, count in whole[facet].items())
                raise StoreError(f"no leak of this run has the {facet} '{value}'. There are: {there}.")


def _leaks_table(rows: Sequence[LeakRow]) -> None:
    output.table(
        [
            ("", True),
            ("revealed", True),
            ("recipient", False),
            ("attribute", False),
            ("excerpt", False),
            ("label", False),
        ],
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


def _leaks_json(asked: Scope, rows: Sequence[LeakRow], left: int, whole: int) -> dict[str, object]:
    from cimemories.leaks.gallery import SEVERITY

    return {
        "run": asked.run.id,
        "model": asked.run.model,
        "judge": asked.judge_text,
        "labelling": asked.labelling.id if asked.labelling else None,
        "labels": asked.labels_text,
        "simulated": list(asked.simulated),
        "severity": list(SEVERITY),
        "examples": whole,
        "left_by_filters": left,
        "leaks": [row.as_json() for row in rows],
    }


def _leaks_notes(asked: Scope, shown: int, left: int) -> None:
    if asked.labelling is None:
        output.note("note: the dataset has no labels yet, so nothing can be called a leak: label it first")
    elif not left:
        output.note("note: no leak of this run fits")
    elif shown < left:
        output.note(f"note: the {shown} severest of {left:,}; --top 0 gives all")
    if asked.simulated:
        output.note(f"note: simulated: {' and '.join(asked.simulated)}; says nothing about any real model")


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
    from cimemories.flows.flows import Flows
    from cimemories.report import render
    from cimemories.report.collect import collect

    chosen = identifier_rule(identifiers)
    render.check_report(to, force=force)
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
    with engine.written_for_user(to, workspace):
        written = render.write_report(found, to, force=force)
    beside = f" and {len(written) - 1} figures in {render.figures_folder(to)}" if len(written) > 1 else ""
    output.line(f"wrote {written[0]}{beside}")
    if found.simulated:
        output.note(f"note: {found.simulated}")

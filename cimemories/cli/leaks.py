"""Commands that list what a run leaked, explain a leak, and write the report."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from cimemories import files
from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import (
    RUN_ID,
    AsJson,
    AsLatex,
    AsMarkdown,
    LabelOptions,
    NumberOptions,
    Out,
    Run,
    Workspace,
    grouped,
    one_of,
    open_record,
)
from cimemories.cli.runs import print_plan
from cimemories.cli.work import execute_run, exit_if_incomplete
from cimemories.store import runs as store_runs
from cimemories.store.engine import DEFAULT_WORKSPACE, StoreError

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
    certainty: Annotated[Values, Option(help="Basis of the label: adjudicated, person, unanimous or threshold.")] = None


@cli.command()
@grouped
def leaks(
    run_id: Run,
    filters: FilterOptions,
    options: LabelOptions,
    as_json: AsJson = False,
    markdown: AsMarkdown = False,
    latex: AsLatex = False,
    out: Out = None,
    top: Annotated[int, Option(min=0, help="Number of examples, severest first; 0 for all.")] = 10,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """List leaked examples of a run, severest first.

    Severity is ordered by strength of the claim, share of judged messages that reveal it, whether a quote is in a
    message, certainty of the label, and whether all judges claim it.

    Example: cimemories leaks run-3f9a1c2e --domain health --latex --top 6
    """
    from cimemories.answers import leaks as question
    from cimemories.flows.flows import Flows
    from cimemories.leaks import table

    if as_json + markdown + latex + (out is not None) > 1:
        raise StoreError("choose one of --json, --markdown, --latex and --out.")
    store = open_record(workspace)
    scope, flows = options.scope(store, run_id), Flows(store)
    result = question.leaks(
        flows,
        scope,
        {**vars(filters), "strength": filters.strength or ["full"]},
        top or None,
        excerpts=not (markdown or latex),
        # Of a large run not even the rows that are asked for need fit into memory.
        held=MOST_HELD if as_json or out else None,
    )
    if markdown or latex:
        rows = table.leak_rows(flows, {scope.run.id: scope}, result.leaks.frame)
        output.line((table.as_latex if latex else table.as_markdown)(rows).rstrip("\n"))
        output.answer_notes(result)
    else:
        output.answer(result, as_json, out, workspace)


# ---- why


@dataclass(frozen=True)
class FlowOptions:
    """Which leak is to be explained."""

    profile: Annotated[str | None, Option(metavar="NAME", help="Whose leak: the profile's name or id.")] = None
    context: Annotated[str | None, Option(metavar="NAME", help="Where: the task, the recipient, or an id.")] = None
    attribute: Annotated[str | None, Option(metavar="KEY", help="What leaked: the attribute's key.")] = None


@cli.command()
@grouped
def why(
    run_id: Run,
    flow: FlowOptions,
    options: LabelOptions,
    samples: Annotated[int, Option(min=1, max=1000, help="New messages of each variant.")] = 20,
    variants: Annotated[
        str | None,
        Option(metavar="LIST", help="Of: first, last, paraphrased, without, no-neighbours. Default: all."),
    ] = None,
    wording: Annotated[str | None, Option(metavar="TEXT", help="Your own wording for `paraphrased`.")] = None,
    paraphrase: Annotated[
        str, Option(help="Whose wording `paraphrased` is: template (a short note) or model (the model under test).")
    ] = "template",
    cap: Annotated[float | None, Option(min=0, help="Stop at this cost; needs a run with prices.")] = None,
    plan: Annotated[bool, Option("--plan", help="Show requests, tokens, cost and time, and stop.")] = False,
    as_json: AsJson = False,
    out: Out = None,
    concurrency: Annotated[int, Option(min=1, max=1024, help="Requests at the same time.")] = 32,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Explain a leak: replay its request with a changed memory.

    The memory statement is left out, moved or reworded. Each variant is sent as often as --samples says, and read by
    the run's judges. Without a leak, lists what is explained already. Ctrl-C stops; the same command, or `resume`,
    continues.

    Example: cimemories why run-3f9a1c2e --profile "Gary Keith" --context "Negotiate lease terms" --attribute rent
    """
    from cimemories.evaluation import attribution
    from cimemories.flows.flows import Flows
    from cimemories.leaks.why import explain, leaked_flow, variant_text

    store = open_record(workspace)
    scope, flows = options.scope(store, run_id), Flows(store)
    if not any(vars(flow).values()):
        done = [explain(flows, scope, row) for row, _ in attribution.attributions(store, run_id)]
        if as_json:
            output.as_json(done)
        for item in () if as_json else done:
            output.line(f"{item.run.id}  {item.title}\n  {item.run.status}. {item.sentence}")
        if not done:
            output.note(f"nothing is explained yet; `cimemories leaks {run_id}` lists the leaks.")
        return
    leak = leaked_flow(flows, scope, **vars(flow))
    names = [name.strip() for name in variants.split(",")] if variants else list(attribution.CHANGES)
    planned = attribution.prepare_attribution(
        *(store, run_id, leak.response, leak.attribute),
        samples=samples,
        changes=[one_of(attribution.Change, name, "variant") for name in names],
        wording=wording,
        paraphrase=one_of(attribution.Paraphrase, paraphrase, "paraphrase"),
        cap=cap,
    )
    if plan:
        estimated = attribution.estimate(store, planned, concurrency=concurrency)
        if as_json:
            changes = [variant.change for variant in planned.variants]
            head = {"leak": leak.text, "variants": changes, "skipped": planned.skipped, "samples": samples}
            output.as_json(head | estimated.as_json())
            return
        output.line(leak.text)
        output.table(("variant",), [(variant_text(planned, variant),) for variant in planned.variants])
        output.notes(f"{name}: left out, {reason}" for name, reason in planned.skipped.items())
        print_plan(estimated, as_json=False)
        return
    replay = attribution.plan_attribution(store, planned)
    execute_run(store, replay, concurrency)
    with store.read() as connection:
        row = store_runs.named(connection, replay)
    output.answer(explain(flows, scope, row), as_json, out, workspace)
    exit_if_incomplete(store, replay, 0.0)


# ---- report


@cli.command()
@grouped
def report(
    run_ids: Annotated[list[str], Argument(metavar="RUN", callback=RUN_ID, help="Runs; the first is the reference.")],
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
    store = open_record(workspace)
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

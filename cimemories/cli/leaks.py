"""Commands that write out what a run leaked (examples, the report, the site), and hold it against budgets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from cimemories import files
from cimemories.cli import output
from cimemories.cli.base import cli, errors_end_with
from cimemories.cli.options import (
    LABELLING_ID,
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
    options_of,
)
from cimemories.cli.runs import JudgeOptions, WordingOptions, print_plan, run_spec
from cimemories.cli.work import announce, exit_if_incomplete, find_labels, outcome, progress
from cimemories.evaluation.spec import BATCH, RunSpec
from cimemories.store import runs as store_runs
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_store

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
    _execute(store, replay, concurrency)
    with store.read() as connection:
        row = store_runs.named(connection, replay)
    output.answer(explain(flows, scope, row), as_json, out, workspace)
    exit_if_incomplete(store, replay, 0.0)


def _execute(store: Store, run_id: str, concurrency: int) -> None:
    """Do what is left of a run."""
    from cimemories.evaluation import runs

    announce(run_id)
    with store.read() as connection:
        if store_runs.named(connection, run_id).status.is_finished:
            return
    with progress(store, run_id) as report:
        runs.execute(store.patient(), run_id, concurrency=concurrency, on_progress=report)
    outcome(store, run_id)


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


# ---- publish


@cli.command()
@grouped
def publish(
    run_ids: Annotated[
        list[str], Argument(metavar="RUN", callback=RUN_ID, help="Runs of one dataset; the first is the reference.")
    ],
    options: NumberOptions,
    to: Annotated[Path, Option(help="Folder to write: new, empty, or with --force a site published before.")],
    no_texts: Annotated[
        bool, Option("--no-texts", help="Leave out messages, memory statements and names of users.")
    ] = False,
    force: Annotated[bool, Option("--force", help="Replace a site published before.")] = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Write a website on runs that needs no server.

    It has leaderboard, heatmaps, leaks, accumulation and manifest. A reader moves the threshold of labels, the personas
    and the judge, and numbers and places follow.

    Example: cimemories publish run-3f9a run-77 --to site
    """
    from cimemories.flows.flows import Flows
    from cimemories.report.site import check_folder, collect_site, write_site

    rule = options.identifier_rule()
    # Before the numbers are computed: a folder that is taken is told at once.
    check_folder(to, force=force)
    store = open_record(workspace)
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


# ---- check

UNDECIDED = 2  # exit status of a check that could not be decided, and of one that was not understood


@dataclass(frozen=True)
class ModelOptions:
    """The model that is run before it is checked."""

    dataset: Annotated[str | None, Option("--dataset", "-d", help="Dataset to run a model on.")] = None
    model: Annotated[str | None, Option("--model", "-m", help="Model to run, as the server knows it.")] = None
    base_url: Annotated[str | None, Option(help="Its OpenAI-compatible server, or `simulator`.")] = None

    def chosen(self, run_id: str | None) -> dict[str, str]:
        """Return the settings of a new run that are given; none for one that is there. Raises StoreError for neither or
        both."""
        given = {name: value for name, value in vars(self).items() if value}
        if bool(run_id) == bool(given) or (given and len(given) < 3):
            raise StoreError(
                "what is to be checked? Give --run RUN for a run of the workspace, or all of --dataset, --model and "
                "--base-url for a model that is run first."
            )
        return given


@dataclass(frozen=True)
class CountOptions:
    """Which labels and which judge decide; --judge says who judges a new run."""

    labels: Annotated[
        str | None,
        Option(
            callback=LABELLING_ID, help="`decisions` (default), `consensus`, or a labelling's id, as for `metrics`."
        ),
    ] = None
    rule: Annotated[str | None, Option(help="Consensus rule: `paper`, or one of the dataset.")] = None
    by_judge: Annotated[
        str | None, Option(help="Whose claims count: id or name of a judge, any, majority or all. Default: the first.")
    ] = None
    grounded: Annotated[bool, Option("--grounded", help="Count only reveals whose quote is in the message.")] = False
    identifiers: Annotated[str, Option(help="Attributes that never count as violations: exact, substring or none.")] = (
        "exact"
    )


@dataclass(frozen=True)
class WrittenOptions:
    """What a check writes, whatever it finds."""

    junit: Annotated[Path | None, Option(metavar="FILE", help="Write JUnit XML.")] = None
    markdown: Annotated[Path | None, Option(metavar="FILE", help="Write a summary with the leaked sentences.")] = None
    write_baseline: Annotated[
        Path | None, Option(metavar="FILE", help="Write the run's counts, for `no worse than FILE`.")
    ] = None
    app_url: Annotated[str | None, Option(metavar="URL", help="Where the app is opened, for links in --markdown.")] = (
        None
    )

    def checked(self) -> str | None:
        """The address of the app. Raises StoreError for it, and for a path that no file can be written to, before
        anything is paid for."""
        from cimemories.check.reports import checked_app

        for path in filter(None, (self.junit, self.markdown, self.write_baseline)):
            if path.exists() and not path.is_file():
                raise StoreError(f"{path} is no file that could be written. Name another one.")
        return checked_app(self.app_url) if self.app_url else None


MessageOptions = options_of(RunSpec, leave_out=("dataset", "model", "base_url"))


@cli.command()
@grouped
def check(
    model: ModelOptions,
    counting: CountOptions,
    written: WrittenOptions,
    messages: MessageOptions,  # type: ignore[valid-type]
    judge_options: JudgeOptions,
    wording: WordingOptions,
    file: Annotated[Path | None, Argument(help="File of budgets and flows (docs/check.md).")] = None,
    run_id: Annotated[
        str | None, Option("--run", metavar="RUN", callback=RUN_ID, help="Check this run of the workspace.")
    ] = None,
    concurrency: Annotated[int, Option(min=1, max=1024, help="Requests at the same time.")] = 32,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Check a run against budgets and named flows, for CI.

    With --dataset, --model and --base-url the model is run first, with the options of `cimemories run`. Exits with 0 if
    everything is kept, 1 if a budget or flow is not, 2 if that could not be decided, or on an error.

    Example: cimemories check privacy.yaml --run run-3f9a1c2e --junit junit.xml
    """
    from cimemories.check import checking, reports
    from cimemories.check.baseline import baseline_text
    from cimemories.check.budgets import read_check_file
    from cimemories.evaluation import planning
    from cimemories.flows.arrays import IdentifierRule
    from cimemories.flows.flows import Flows
    from cimemories.flows.scope import scope_by_words
    from cimemories.metrics.headline import headline

    with errors_end_with(UNDECIDED):
        if file is None:
            raise StoreError(
                "name the file of budgets and flows: cimemories check FILE. The workspace's database is checked by "
                "`cimemories verify`."
            )
        new, app = model.chosen(run_id), written.checked()
        rule = one_of(IdentifierRule, counting.identifiers, "identifier rule")
        budgets = read_check_file(file)
        store = open_store(workspace) if new else open_record(workspace)
        if new:
            settings: dict[str, Any] = {**new, **vars(messages)}
            checking.refuse_beforehand(store, budgets, settings["dataset"], settings["samples"])
            if settings["base_url"] == BATCH:
                raise StoreError(
                    "a check waits for its answers: batch files have no server. Import them, then use --run."
                )
            spec = run_spec(settings, judge_options, wording)
            run_id = planning.plan(store, spec, find_labels=find_labels)
            _execute(store, run_id, concurrency)
        scope = scope_by_words(
            store,
            str(run_id),
            labels=counting.labels,
            rule=counting.rule,
            judge=counting.by_judge,
            grounded=counting.grounded,
        )
        flows, baseline = Flows(store), written.write_baseline
        result = checking.check_file(flows, scope, budgets, rule, baseline)
        if written.junit is not None:
            output.place(written.junit, reports.as_junit(result), workspace)
        if written.markdown is not None:
            output.place(written.markdown, reports.as_markdown(result, app).encode(), workspace)
        if as_json:
            output.as_json(result)
        else:
            output.line("\n".join(reports.as_lines(result)))
        output.answer_notes(result)
        if baseline is not None:
            numbers = headline(flows, scope, rule)
            if not scope.run.expected or numbers.judged / scope.run.expected < budgets.coverage:
                raise StoreError(
                    f"{baseline} was not written: only {numbers.judged:,} of {scope.run.expected:,} planned messages "
                    f"are judged. Finish the run first: cimemories resume {scope.run.id}"
                )
            output.place(baseline, baseline_text(flows, scope, numbers).encode(), workspace)
    raise typer.Exit(result.exit_status)

"""Commands that write out what a run leaked (examples, the report, the site), and hold it against budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    Run,
    Workspace,
    grouped,
    one_of,
    open_record,
    options_of,
)
from cimemories.cli.runs import JudgeOptions, WordingOptions, print_costs, run_spec
from cimemories.cli.work import announce, exit_if_incomplete, find_labels, outcome, progress
from cimemories.evaluation.spec import BATCH, RunSpec
from cimemories.store import datasets as store_datasets
from cimemories.store import runs as store_runs
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_store
from cimemories.text import percent, simulated_text

if TYPE_CHECKING:
    from cimemories.check.checking import CheckResult
    from cimemories.evaluation.attribution import Attribution
    from cimemories.flows.scope import Scope
    from cimemories.leaks.gallery import Facet
    from cimemories.leaks.table import LeakRow
    from cimemories.leaks.why import Why

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

    def by_facet(self, store: Store, scope: Scope, leaking: Iterable[str]) -> dict[Facet, Sequence[str]]:
        """The values of each filter. leaking: ids of profiles with leaks. Raises StoreError for the name of a profile
        that leaks nothing."""
        from cimemories.leaks.gallery import Facet

        values = {facet: getattr(self, facet) or [] for facet in Facet if hasattr(self, facet)}
        return values | {
            Facet.PROFILE: _profile_ids(store, scope, leaking, self.profile) if self.profile else [],
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
    from cimemories.leaks.examples import examples, pages
    from cimemories.leaks.gallery import SEVERITY, Facet

    if as_json + markdown + latex > 1:
        raise StoreError("choose one of --json, --markdown and --latex.")
    store = open_record(workspace)
    scope = options.scope(store, run_id)
    flows = Flows(store)
    found = examples(flows, [scope])
    whole = found.left({}).whole
    values = filters.by_facet(store, scope, [i for i, number in whole[Facet.PROFILE].items() if number])
    _check_values(values, whole)
    left = found.left(values).number
    printed = min(top or left, left)
    # Page by page: of a large run not even the rows that are asked for need fit into memory.
    rows = (
        row for page in pages(found, values, printed) for row in table.leak_rows(flows, {scope.run.id: scope}, page)
    )
    if as_json:
        head = {
            "run": scope.run.id,
            "model": scope.run.model,
            "judge": scope.judge_text,
            "labelling": scope.labelling.id if scope.labelling else None,
            "labels": scope.labels_text,
            "simulated": scope.simulated,
            "severity": SEVERITY,
            "examples": found.number,
            "left_by_filters": left,
        }
        output.as_json_with(head, "leaks", (row.as_json() for row in rows))
    elif markdown or latex:
        output.line((table.as_latex if latex else table.as_markdown)(list(rows)).rstrip("\n"))
    else:
        _print_leaks(list(rows))
    _print_notes(scope, printed, left)


MOST_NAMED = 50  # profiles that an error lists


def _profile_ids(store: Store, scope: Scope, leaking: Iterable[str], names: Sequence[str]) -> list[str]:
    with store.read() as connection:
        users = store_datasets.profile_names(connection, scope.run.dataset)
    named = {i: users[int(i)] for i in leaking}
    ids: list[str] = []
    for name in names:
        matches = sorted(i for i, user in named.items() if user == name)
        if not matches:
            known = sorted(set(named.values()))
            more = f" and {len(known) - MOST_NAMED:,} more" if len(known) > MOST_NAMED else ""
            there = f"{', '.join(known[:MOST_NAMED])}{more}" if known else "none"
            raise StoreError(f"profile '{name}' has no leaks in this run. Profiles with leaks: {there}.")
        ids += matches
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


# ---- why


@dataclass(frozen=True)
class FlowOptions:
    """Which leak is to be explained."""

    profile: Annotated[str | None, Option(metavar="NAME", help="Whose leak: the profile's name or id.")] = None
    context: Annotated[str | None, Option(metavar="NAME", help="Where: the task, the recipient, or an id.")] = None
    attribute: Annotated[str | None, Option(metavar="KEY", help="What leaked: the attribute's key.")] = None

    @property
    def given(self) -> bool:
        return any((self.profile, self.context, self.attribute))


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
    concurrency: Annotated[int, Option(min=1, max=1024, help="Requests at the same time.")] = 32,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Explain a leak: replay its request with a changed memory.

    The memory statement is left out, moved or reworded. Each variant is sent as often as --samples says, and read by
    the run's judges. Without a leak, lists what is explained already. Ctrl-C stops; the same command, or `resume`,
    continues.

    Example: cimemories why run-3f9a1c2e --profile "Gary Keith" --context "Negotiate lease terms" --attribute rent
    """
    from cimemories.evaluation import attribution, runs
    from cimemories.flows.flows import Flows
    from cimemories.leaks.why import explain, leaked_flow

    store = open_record(workspace)
    scope, flows = options.scope(store, run_id), Flows(store)
    if not flow.given:
        done = [explain(flows, scope, row) for row, _ in attribution.attributions(store, run_id)]
        if as_json:
            output.as_json([item.as_json() for item in done])
        else:
            _list_explained(done, run_id)
        return
    leak = leaked_flow(flows, scope, profile=flow.profile, context=flow.context, attribute=flow.attribute)
    names = [name.strip() for name in variants.split(",")] if variants else list(attribution.CHANGES)
    changes = [one_of(attribution.Change, name, "variant") for name in names]
    planned = attribution.prepare_attribution(
        *(store, run_id, leak.response, leak.attribute),
        samples=samples,
        changes=changes,
        wording=wording,
        paraphrase=one_of(attribution.Paraphrase, paraphrase, "paraphrase"),
        cap=cap,
    )
    if plan:
        _print_why_plan(store, planned, leak.text, concurrency, as_json)
        return
    own = attribution.plan_attribution(store, planned)
    announce(own)
    with store.read() as connection:
        is_done = store_runs.named(connection, own).status.is_finished
    if not is_done:
        with progress(store, own) as report:
            runs.execute(store.patient(), own, concurrency=concurrency, on_progress=report)
        outcome(store, own)
    with store.read() as connection:
        row = store_runs.named(connection, own)
    result = explain(flows, scope, row)
    if as_json:
        output.as_json(result.as_json())
    else:
        _print_why(result)
    if result.simulated:
        output.note(f"note: {simulated_text(result.simulated)}; says nothing about any real model")
    exit_if_incomplete(store, own, 0.0)


def _list_explained(done: Sequence[Why], run_id: str) -> None:
    for item in done:
        output.line(f"{item.run.id}  {item.attribute.key} of {item.profile}, to {item.context.recipient}")
        output.line(f"  {item.context.task}. {item.run.status}. {item.takeaway}")
    if not done:
        output.note(f"nothing is explained yet; `cimemories leaks {run_id}` lists the leaks.")


def _print_why(result: Why) -> None:
    def signed(share: float) -> str:
        return "" if share != share else f"{100 * share:+.0f}"

    output.line(f"{result.attribute.key} of {result.profile}, to {result.context.recipient}: {result.context.task}")
    output.line(result.attribute.statement)
    output.table(
        ("variant", *output.right(("revealed", "share", "95 %", "effect", "95 %", "does task"))),
        [
            (
                effect.name,
                effect.counts_text,
                percent(effect.share),
                f"{100 * effect.low:.0f} to {100 * effect.high:.0f}" if effect.judged else "",
                signed(effect.difference),
                f"{signed(effect.difference_low)} to {signed(effect.difference_high)}"
                if signed(effect.difference)
                else "",
                "" if effect.serves is None else effect.serves,
            )
            for effect in result.effects
        ],
    )
    output.line(result.takeaway)
    output.line(result.run.id)
    output.notes(result.notes)


def _print_why_plan(store: Store, planned: Attribution, leak: str, concurrency: int, as_json: bool) -> None:
    from cimemories.evaluation.attribution import estimate
    from cimemories.leaks.why import variant_text

    result = estimate(store, planned, concurrency=concurrency)
    texts = [variant_text(planned, variant) for variant in planned.variants]
    if as_json:
        numbers = "responses requests recorded draws prompt_tokens cacheable completion_tokens cost_least cost_most"
        output.as_json(
            {
                "leak": leak,
                "variants": [str(variant.change) for variant in planned.variants],
                "skipped": dict(planned.skipped),
                "samples": planned.samples,
                **output.attributes(result, f"{numbers} currency seconds"),
                "assumptions": result.notes,
            }
        )
        return
    output.line(leak)
    output.table(("variant",), [(text,) for text in texts])
    output.notes(f"{name}: left out, {reason}" for name, reason in planned.skipped.items())
    output.line(f"messages   {result.size_text}")
    print_costs(result, concurrency)


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

    def chosen(self, run_id: str | None) -> tuple[str, str, str] | None:
        """Dataset, model and server of a new run; None for one that is there. Raises StoreError for neither or both."""
        given = [value for value in (self.dataset, self.model, self.base_url) if value]
        if bool(run_id) == bool(given) or (given and len(given) < 3):
            raise StoreError(
                "what is to be checked? Give --run RUN for a run of the workspace, or all of --dataset, --model and "
                "--base-url for a model that is run first."
            )
        return (str(self.dataset), str(self.model), str(self.base_url)) if given else None


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
    with errors_end_with(UNDECIDED):
        if file is None:
            raise StoreError(
                "name the file of budgets and flows: cimemories check FILE. The workspace's database is checked by "
                "`cimemories verify`."
            )
        options = model, counting, written, dict(vars(messages)), judge_options, wording
        result, write_baseline = _checked(file, run_id, options, concurrency, workspace)
        if as_json:
            output.as_json(result.as_json())
        else:
            from cimemories.check.reports import as_lines

            for text in as_lines(result):
                output.line(text)
        output.notes([result.simulated_note, *result.notes])
        write_baseline()
    raise typer.Exit(result.exit_status)


def _checked(
    path: Path,
    run_id: str | None,
    options: tuple[ModelOptions, CountOptions, WrittenOptions, dict[str, Any], JudgeOptions, WordingOptions],
    concurrency: int,
    workspace: Path,
) -> tuple[CheckResult, Callable[[], None]]:
    """The result, with its reports written; and what writes the baseline, once the result has been printed."""
    from cimemories.check import checking, reports
    from cimemories.check.baseline import baseline_text
    from cimemories.check.budgets import read_check_file
    from cimemories.flows.arrays import IdentifierRule
    from cimemories.flows.flows import Flows
    from cimemories.flows.scope import scope_by_words
    from cimemories.metrics.headline import headline

    model, counting, written, messages, judge_options, wording = options
    what, app = model.chosen(run_id), written.checked()
    rule = one_of(IdentifierRule, counting.identifiers, "identifier rule")
    file = read_check_file(path)
    store = open_record(workspace) if what is None else open_store(workspace)
    if what is not None:
        checking.refuse_beforehand(store, file, what[0], messages["samples"])
        settings = dict(zip(("dataset", "model", "base_url"), what, strict=True)) | messages
        run_id = _run_first(store, settings, judge_options, wording, concurrency)
    scope = scope_by_words(
        store,
        str(run_id),
        labels=counting.labels,
        rule=counting.rule,
        judge=counting.by_judge,
        grounded=counting.grounded,
    )
    flows = Flows(store)
    result = checking.check_file(flows, scope, file, rule, written.write_baseline)
    if written.junit is not None:
        _place(written.junit, reports.as_junit(result), workspace)
    if written.markdown is not None:
        _place(written.markdown, reports.as_markdown(result, app).encode(), workspace)

    def write_baseline() -> None:
        path, numbers = written.write_baseline, headline(flows, scope, rule)
        if path is None:
            return
        if not scope.run.expected or numbers.judged / scope.run.expected < file.coverage:
            raise StoreError(
                f"{path} was not written: only {numbers.judged:,} of {scope.run.expected:,} planned messages are "
                f"judged. Finish the run first: cimemories resume {scope.run.id}"
            )
        _place(path, baseline_text(flows, scope, numbers).encode(), workspace)

    return result, write_baseline


def _run_first(
    store: Store,
    settings: Mapping[str, Any],
    judge_options: JudgeOptions,
    wording: WordingOptions,
    concurrency: int,
) -> str:
    """Run the model; returns the run's id."""
    from cimemories.evaluation import planning, runs

    if settings["base_url"] == BATCH:
        raise StoreError("a check waits for its answers: batch files have no server. Import them, then use --run.")
    spec = run_spec(settings, judge_options, wording)
    run_id = planning.plan(store, spec, find_labels=find_labels)
    announce(run_id)
    with progress(store, run_id) as report:
        runs.execute(store.patient(), run_id, concurrency=concurrency, on_progress=report)
    outcome(store, run_id)
    return run_id


def _place(path: Path, content: bytes, workspace: Path) -> None:
    from cimemories.formats.official import written_whole

    with files.written_for_user(path, workspace), written_whole(path) as draft:
        draft.write_bytes(content)

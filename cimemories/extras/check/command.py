"""The command `check`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from cimemories.cli import output
from cimemories.cli.base import cli, errors_end_with
from cimemories.cli.options import (
    LABELLING_ID,
    RUN_ID,
    Grounded,
    Here,
    options_of,
    word_of,
)
from cimemories.cli.runs import JudgeOptions, WordingOptions, run_spec
from cimemories.cli.work import execute_run, find_labels
from cimemories.evaluation.spec import BATCH, RunSpec
from cimemories.store.engine import StoreError

UNDECIDED = 2  # exit status of an undecided check, and of one that was not understood


@dataclass(frozen=True)
class ModelOptions:
    """The model that is run before it is checked."""

    dataset: Annotated[str | None, Option("--dataset", "-d", help="Dataset to run a model on.")] = None
    model: Annotated[str | None, Option("--model", "-m", help="Model to run, as the server knows it.")] = None
    base_url: Annotated[str | None, Option(help="Its OpenAI-compatible server, or `simulator`.")] = None

    def chosen(self, run_id: str | None) -> dict[str, str]:
        """Return the given settings of a new run; none for an existing one. Raises StoreError for neither or both."""
        given = {name: value for name, value in vars(self).items() if value}
        if bool(run_id) == bool(given) or (given and len(given) < 3):
            raise StoreError(
                "what is to be checked? Give --run RUN for a run of the workspace, or all of --dataset, --model and "
                "--base-url for a model that is run first."
            )
        return given


@dataclass(frozen=True)
class CountOptions:
    """The labels and the judge that decide; --judge names the judge of a new run."""

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
    grounded: Grounded = False
    identifiers: Annotated[str, Option(help="Attributes that never count as violations: exact, substring or none.")] = (
        "exact"
    )


@dataclass(frozen=True)
class WrittenOptions:
    """The files that a check writes, whatever its outcome."""

    junit: Annotated[Path | None, Option(metavar="FILE", help="Write JUnit XML.")] = None
    markdown: Annotated[Path | None, Option(metavar="FILE", help="Write a summary with the leaked sentences.")] = None
    write_baseline: Annotated[
        Path | None, Option(metavar="FILE", help="Write the run's counts, for `no worse than FILE`.")
    ] = None
    app_url: Annotated[str | None, Option(metavar="URL", help="Where the app is opened, for links in --markdown.")] = (
        None
    )

    def checked(self) -> str | None:
        """Return the address of the app. Raises StoreError for an invalid one, and for a path that cannot be written
        to, before anything is paid for."""
        from cimemories.extras.check.reports import checked_app

        for path in filter(None, (self.junit, self.markdown, self.write_baseline)):
            if path.exists() and not path.is_file():
                raise StoreError(f"{path} is no file that could be written. Name another one.")
        return checked_app(self.app_url) if self.app_url else None


MessageOptions = options_of(RunSpec, leave_out=("dataset", "model", "base_url"))


@cli.command()
def check(
    model: ModelOptions,
    counting: CountOptions,
    written: WrittenOptions,
    messages: MessageOptions,  # type: ignore[valid-type]
    judge_options: JudgeOptions,
    wording: WordingOptions,
    here: Here,
    file: Annotated[Path | None, Argument(help="File of budgets and flows (docs/check.md).")] = None,
    run_id: Annotated[
        str | None, Option("--run", metavar="RUN", callback=RUN_ID, help="Check this run of the workspace.")
    ] = None,
    concurrency: Annotated[int, Option(min=1, max=1024, help="Requests at the same time.")] = 32,
) -> None:
    """Check a run against budgets and named flows, for CI.

    With --dataset, --model and --base-url the model is run first, with the options of `cimemories run`. Exits with 0 if
    everything is kept, 1 if a budget or flow is not, 2 if that could not be decided, or on an error.

    Example: cimemories check privacy.yaml --run run-3f9a1c2e --junit junit.xml
    """
    from cimemories.evaluation import planning
    from cimemories.extras.check import checking, reports
    from cimemories.extras.check.baseline import baseline_text
    from cimemories.extras.check.budgets import read_check_file
    from cimemories.flows.arrays import IdentifierRule
    from cimemories.flows.flows import Flows
    from cimemories.flows.scope import scope_by_words
    from cimemories.metrics.headline import headline

    with errors_end_with(UNDECIDED):
        if file is None:
            raise StoreError(
                "name the file of budgets and flows: cimemories check FILE. The workspace's database is checked by "
                "`cimemories workspace verify`."
            )
        new, app = model.chosen(run_id), written.checked()
        rule = word_of(IdentifierRule, counting.identifiers, "identifier rule")
        budgets = read_check_file(file)
        store = here.store if new else here.record
        if new:
            settings: dict[str, Any] = {**new, **vars(messages)}
            checking.refuse_beforehand(store, budgets, settings["dataset"], settings["samples"])
            if settings["base_url"] == BATCH:
                raise StoreError(
                    "a check waits for its answers: batch files have no server. Import them, then use --run."
                )
            spec = run_spec(settings, judge_options, wording)
            run_id = planning.plan(store, spec, find_labels=find_labels)
            execute_run(store, run_id, concurrency)
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
            output.place(written.junit, reports.as_junit(result), here.workspace)
        if written.markdown is not None:
            output.place(written.markdown, reports.as_markdown(result, app).encode(), here.workspace)
        here.result(result, *reports.as_lines(result))
        output.answer_notes(result)
        if baseline is not None:
            numbers = headline(flows, scope, rule)
            if not scope.run.expected or numbers.judged / scope.run.expected < budgets.coverage:
                raise StoreError(
                    f"{baseline} was not written: only {numbers.judged:,} of {scope.run.expected:,} planned messages "
                    f"are judged. Finish the run first: cimemories resume {scope.run.id}"
                )
            output.place(baseline, baseline_text(flows, scope, numbers).encode(), here.workspace)
    raise typer.Exit(result.exit_status)

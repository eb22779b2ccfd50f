"""The command line: the same verbs and words as the pages, for scripts and servers.

Results go to standard output, progress and errors to standard error. Exit status 0 only on success; an error is one
clear line, 1 for what could not be done and 2 for a command that was not understood.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import sqlalchemy as sa
import typer

from cimemories import __version__, cli_output
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_store

cli = typer.Typer(
    name="cimemories",
    help="Curate, audit, run and explore the CIMemories benchmark of contextual integrity.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Workspace = Annotated[
    Path, typer.Option("--workspace", "-w", envvar="CIMEMORIES_WORKSPACE", help="Folder that holds the record.")
]
DatasetName = Annotated[
    str, typer.Option("--dataset", "-d", help="Name of the dataset; `cimemories datasets` lists them.")
]
Model = Annotated[str, typer.Option("--model", "-m", help="Name under which the server serves the model.")]
BaseUrl = Annotated[
    str, typer.Option("--base-url", help="OpenAI-compatible server, e.g. http://localhost:8000/v1, or `simulator`.")
]
KeyEnv = Annotated[str, typer.Option("--api-key-env", help="Environment variable that holds the endpoint's key.")]
Profiles = Annotated[int | None, typer.Option("--profiles", min=1, help="Only the first so many profiles.")]
Contexts = Annotated[int | None, typer.Option("--contexts", min=1, help="Only the first so many contexts.")]
Concurrency = Annotated[int, typer.Option("--concurrency", min=1, max=1024, help="Requests under way at once.")]
Timeout = Annotated[float, typer.Option("--timeout", min=1, help="Seconds to wait, doubled by each retry.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of the first draw; left out: none is sent.")]
Temperature = Annotated[
    float | None, typer.Option("--temperature", min=0, help="Left out: the server's default for the model.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def main() -> None:
    """Run the command line; every expected error ends as one line on standard error."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        cli()
    except KeyboardInterrupt:
        _fail("stopped")
    except (OSError, ValueError, StoreError, sa.exc.SQLAlchemyError) as error:
        _fail(str(error))
    except Exception as error:
        if os.environ.get("CIMEMORIES_DEBUG"):
            raise
        _fail(_explained(error))


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _explained(error: Exception) -> str:
    from cimemories.llm.client import EndpointError
    from cimemories.llm.simulator import SimulatorError
    from cimemories.llm.worker import WorkError

    if isinstance(error, (EndpointError, SimulatorError, WorkError)):
        return str(error)
    return f"unexpected {type(error).__name__}: {error}. Set CIMEMORIES_DEBUG=1 to see where it happened."


def _fail(message: str) -> NoReturn:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201
    sys.exit(1)


def _version(asked: bool) -> None:
    if asked:
        cli_output.line(__version__)
        raise typer.Exit


@cli.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Every command takes --workspace, or the address of a PostgreSQL record in CIMEMORIES_DATABASE_URL."""


@cli.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="Profiles in the authors' layout (JSON).")],
    dataset: Annotated[str | None, typer.Option("--dataset", "-d", help="Name; the file's by default.")] = None,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Import profiles, all of a file or nothing.  Example: cimemories import profiles.json --dataset official"""
    from cimemories.formats.importing import import_file

    outcome = import_file(open_store(workspace), file, dataset)
    cli_output.imported(outcome, as_json)


@cli.command()
def generate(
    dataset: DatasetName,
    profiles: Annotated[int, typer.Option("--profiles", min=1, help="How many profiles.")] = 10,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same profiles.")] = 0,
    locale: Annotated[str, typer.Option("--locale", help="Faker locale of names and addresses.")] = "en_US",
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Write synthetic profiles from templates, without a model.  Example: cimemories generate -d mine --profiles 10"""
    from cimemories.curation.generating import generate_dataset

    row = generate_dataset(open_store(workspace), dataset, profiles, seed=seed, locale=locale)
    cli_output.line(
        f"generated '{row.name}': {row.profiles} profiles, {row.attributes:,} attributes, {row.contexts} contexts"
    )


@cli.command()
def label(
    dataset: DatasetName,
    model: Model,
    base_url: BaseUrl,
    draws: Annotated[int, typer.Option("--draws", min=1, help="Votes of each persona on each pair.")] = 10,
    profiles: Profiles = None,
    contexts: Contexts = None,
    api_key_env: KeyEnv = "OPENAI_API_KEY",
    temperature: Temperature = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Limit of one answer.")] = 2048,
    seed: Seed = None,
    timeout: Timeout = 120.0,
    concurrency: Concurrency = 32,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Let the personas vote; prints the labelling's id.

    Example: cimemories label -d official -m gpt-oss-120b --base-url http://localhost:8000/v1 --draws 10
    """
    from cimemories.curation import labelling

    store = open_store(workspace)
    spec = labelling.LabellingSpec(
        dataset=dataset,
        model=model,
        base_url=base_url,
        draws=draws,
        profiles=profiles,
        contexts=contexts,
        api_key_env=api_key_env,
        temperature=temperature,
        max_tokens=max_tokens,
        seed=seed,
        timeout=timeout,
    )
    _work(store, labelling.plan(store, spec), concurrency)


@cli.command()
def run(
    dataset: DatasetName,
    model: Model,
    base_url: BaseUrl,
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, max=100, help="Responses a context.")] = 5,
    profiles: Profiles = None,
    contexts: Contexts = None,
    judge: Annotated[
        str | None, typer.Option("--judge", help="`matcher` finds values without a model (the default).")
    ] = None,
    judge_model: Annotated[str | None, typer.Option("--judge-model", help="Model that judges.")] = None,
    judge_base_url: Annotated[
        str | None, typer.Option("--judge-base-url", help="Its server; the model's by default.")
    ] = None,
    judge_api_key_env: Annotated[str | None, typer.Option("--judge-api-key-env")] = None,
    judge_max_tokens: Annotated[int, typer.Option("--judge-max-tokens", min=1)] = 2048,
    api_key_env: KeyEnv = "OPENAI_API_KEY",
    temperature: Temperature = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Limit of one message.")] = 1024,
    seed: Seed = None,
    name: Annotated[str | None, typer.Option("--name", help="What to call the run.")] = None,
    timeout: Timeout = 120.0,
    concurrency: Concurrency = 32,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Let a model write the messages and a judge read them; waits, and prints the run's id last.

    Example: cimemories run -d official -m qwen3-32b --base-url http://localhost:8000/v1 --judge matcher
    """
    from cimemories.evaluation import runs

    if judge_model and judge:
        raise StoreError("give either --judge matcher or --judge-model MODEL, not both.")
    if judge not in (None, "matcher"):
        raise StoreError(f"there is no judge '{judge}'. Use --judge matcher, or --judge-model MODEL for a model.")
    judging = runs.JudgeSpec()
    if judge_model:
        judging = runs.JudgeSpec(
            "llm", judge_model, judge_base_url or base_url, judge_api_key_env or api_key_env, judge_max_tokens
        )
    store = open_store(workspace)
    spec = runs.RunSpec(
        dataset=dataset,
        model=model,
        base_url=base_url,
        samples=samples,
        profiles=profiles,
        contexts=contexts,
        judge=judging,
        api_key_env=api_key_env,
        temperature=temperature,
        max_tokens=max_tokens,
        seed=seed,
        timeout=timeout,
        name=name,
    )
    _work(store, runs.plan(store, spec), concurrency)


@cli.command()
def resume(
    work_id: Annotated[str, typer.Argument(metavar="RUN", help="Id of a run or a labelling.")],
    base_url: Annotated[str | None, typer.Option("--base-url", help="Where its server is now.")] = None,
    judge_base_url: Annotated[str | None, typer.Option("--judge-base-url")] = None,
    queued: Annotated[
        bool, typer.Option("--queued", hidden=True, help="Only if it still waits for its worker.")
    ] = False,
    concurrency: Concurrency = 32,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Do what a run or labelling still owes, failures too; prints its id.  Example: cimemories resume run-3f9a1c2e"""
    _work(open_store(workspace), work_id, concurrency, base_url, judge_base_url, queued=queued)


def _work(
    store: Store,
    work_id: str,
    concurrency: int,
    base_url: str | None = None,
    judge_base_url: str | None = None,
    *,
    queued: bool = False,
) -> None:
    """Execute with a progress line; the id is printed at the end whatever happens, so that it can be resumed."""
    from cimemories.analysis.headline import warm
    from cimemories.curation import labelling
    from cimemories.evaluation import runs
    from cimemories.store import work

    table = work.table_of(work_id)
    with store.read() as connection:
        work.load(connection, work_id)
    try:
        with cli_output.progress(store, work_id) as report:
            if table.name == "run":
                runs.execute(
                    store,
                    work_id,
                    base_url=base_url,
                    judge_base_url=judge_base_url,
                    concurrency=concurrency,
                    on_progress=report,
                    queued=queued,
                )
            else:
                labelling.execute(
                    store, work_id, base_url=base_url, concurrency=concurrency, on_progress=report, queued=queued
                )
        cli_output.outcome(store, work_id)
        warm(store, work_id)
    finally:
        cli_output.line(work_id)


@cli.command()
def cancel(work_id: Annotated[str, typer.Argument(metavar="RUN")], workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Ask the worker of a run or labelling to stop; what is recorded stays.  Example: cimemories cancel run-3f9a1c2e"""
    from cimemories.store import work

    store = open_store(workspace)
    with store.write() as connection:
        work.request_cancel(connection, work_id)


@cli.command()
def metrics(
    run_id: Annotated[str, typer.Argument(metavar="RUN")],
    as_json: AsJson = False,
    labels: Annotated[str | None, typer.Option("--labels", help="Id of a labelling; the newest by default.")] = None,
    identifiers: Annotated[
        str, typer.Option("--identifiers", help="Which attributes only sign: exact, substring or none.")
    ] = "exact",
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Violation@1..n, completeness and coverage of a run.  Example: cimemories metrics run-3f9a1c2e --json"""
    from cimemories.analysis.cube import IdentifierRule
    from cimemories.analysis.flows import Flows, scope
    from cimemories.analysis.headline import headline

    if identifiers not in set(IdentifierRule):
        raise StoreError(f"there is no identifier rule '{identifiers}'. Use exact, substring or none.")
    store = open_store(workspace)
    numbers = headline(Flows(store), scope(store, run_id, labels), IdentifierRule(identifiers))
    cli_output.metrics(numbers, as_json)


@cli.command()
def datasets(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the datasets.  Example: cimemories datasets --json"""
    cli_output.datasets(open_store(workspace), as_json)


@cli.command()
def runs(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the runs with their status.  Example: cimemories runs --json"""
    cli_output.runs(open_store(workspace), as_json)


@cli.command()
def labellings(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the labellings with their status.  Example: cimemories labellings --json"""
    cli_output.labellings(open_store(workspace), as_json)


@cli.command()
def simulate(
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 8100,
    faults: Annotated[float, typer.Option("--faults", min=0, max=0.99, help="Share of requests that go wrong.")] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the leak policy.")] = 0,
) -> None:
    """Serve simulated models on loopback; see docs/simulator.md.  Example: cimemories simulate --port 8100"""
    from cimemories.llm.simulator import serve

    def ready() -> None:
        cli_output.note(f"simulated models at http://127.0.0.1:{port}/v1 (stop with Ctrl-C)")

    serve(port, seed=seed, faults=faults, ready=ready)


@cli.command()
def app(
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 8501,
    demo: Annotated[bool, typer.Option(help="Fill an empty workspace with the demo.")] = True,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Start the app in the browser's reach, on this machine only.  Example: cimemories app --port 8501"""
    from cimemories.serving import serve_app

    serve_app(port, workspace, demo_wanted=demo)

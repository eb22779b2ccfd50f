"""Commands that plan runs, judge and repeat them, stop and resume work, and list it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import (
    AllowKeys,
    AllowPrograms,
    AllowTooLong,
    Fresh,
    Here,
    Place,
    PlanOptions,
    ReferenceSettings,
    Run,
    Serve,
    Work,
    WorkOptions,
    options_of,
)
from cimemories.cli.work import find_labels, work_on
from cimemories.evaluation.spec import BATCH, BY_FILE, MODEL, JudgeSpec, RunSpec, address_of_assistant, command_of
from cimemories.llm.endpoint import DEFAULT_KEY_ENV
from cimemories.store import runs as store_runs
from cimemories.store import work as store_work
from cimemories.store.engine import Store, StoreError, open_patiently
from cimemories.store.team import log

if TYPE_CHECKING:
    from cimemories.evaluation.estimates import Estimate
    from cimemories.llm.local_vllm import Servers
    from cimemories.seeds.prompts import Prompt, PromptFile


@dataclass(frozen=True)
class JudgeOptions(options_of(JudgeSpec, several="judge_")):  # type: ignore[misc]
    """Which judges read a run's messages, and how they are asked."""

    judge: Annotated[
        list[str] | None,
        Option(help="`matcher` judges by rule. For `run` the default is the matcher and the model under test."),
    ] = None
    judge_reasoning: Annotated[
        bool, Option("--judge-reasoning", help="Judge the model's reasoning too, reported apart from messages.")
    ] = False

    def judges(
        self, base_url: str = "", api_key_env: str = DEFAULT_KEY_ENV, servers: Servers | None = None
    ) -> list[JudgeSpec]:
        """Return the judges, models first; the matcher if none is named. base_url and api_key_env: the model's, for
        judges without their own. servers: of those at the word local-vllm. The keys may then be sent to the servers:
        the user named both."""
        from cimemories.llm.endpoint import allow_key
        from cimemories.llm.local_vllm import Servers

        if unknown := sorted(set(self.judge or ()) - {"matcher"}):
            raise StoreError(
                f"there is no judge '{unknown[0]}'. Use --judge matcher, or --judge-model MODEL for a model."
            )
        settings = JudgeSpec.described()
        given: dict[str, Any] = {name: values for name in settings if (values := getattr(self, f"judge_{name}"))}
        models, servers = given.pop("model", []), servers or Servers()
        if not models and (given or self.judge_reasoning):
            # Without a model these options would change nothing, and the matcher alone would judge.
            option = settings[next(iter(given))].option if given else "--judge-reasoning"
            raise StoreError(f"{option} needs a judge model: --judge-model MODEL.")
        given = {"base_url": [base_url], "api_key_env": [api_key_env]} | given
        given |= {"prompt": list(map(_judge_prompt, given["prompt"]))} if "prompt" in given else {}
        same = {"fields": given.pop("fields", None)}
        for name, values in given.items():
            if models and len(values) not in (1, len(models)):
                option = settings[name].option
                raise StoreError(f"give {option} once for all judges, or once for each --judge-model in its order.")
        judges = []
        for number, model in enumerate(models):
            options = {name: values[number % len(values)] for name, values in given.items()}
            options["base_url"] = servers.at(options["base_url"], model)
            judges.append(JudgeSpec(kind="llm", model=model, **options, **same))
            allow_key(options["api_key_env"], options["base_url"])
        # The first judge once more: reasoning is read beside the message, and reported apart from it.
        judges += [judge.replace(channel="reasoning") for judge in judges[:1] if self.judge_reasoning]
        # The matcher where it is named, and where no judge is: a run without any judge would have no numbers.
        return judges + [JudgeSpec()] * bool(self.judge or not judges)


RunOptions = options_of(RunSpec)


@dataclass(frozen=True)
class WordingOptions:
    """Other wordings than those of the seeds."""

    prompt_file: Annotated[Path | None, Option(help="Prompts in the published layout (docs/formats.md).")] = None
    reference: ReferenceSettings = False

    def file(self, judges: JudgeOptions) -> PromptFile | None:
        """Return the prompts that are named, and say where a request by reference cannot be the authors' to the letter.
        Raises StoreError for options of judges that `--reference` sets itself."""
        from cimemories.seeds.prompts import read_prompt_file

        file = None if self.prompt_file is None else read_prompt_file(self.prompt_file)
        if not self.reference:
            return file
        if set(judges.judge_max_tokens or ()) - {"server"} or judges.judge_split:
            raise StoreError("--reference sets the judges' token limit and split itself: leave those options out.")
        if file is None:
            output.note("reference settings with our own prompts; --prompt-file FILE takes the published ones")
        elif not file.biography:
            sentences = "name, sex, address and age stand in our own sentences (docs/runs.md)"
            output.note(f"{file.name} has no `biography`: {sentences}")
        return file


def run_spec(
    settings: Mapping[str, Any],
    judges: JudgeOptions,
    wording: WordingOptions = WordingOptions(),
    serve: Sequence[str] = (),
) -> RunSpec:
    """Return the specification of a run by these settings, named as in RunSpec. Without a judge it is the matcher and,
    if a real model is served, the model itself. The key may then be sent to the server: the user named both. serve:
    models with vLLM's flags, for the word local-vllm in the place of an address.
    Raises StoreError for a setting that cannot be, and SeedError for a level that the prompt file does not have."""
    from cimemories.evaluation.planning import as_reference
    from cimemories.llm import assistants
    from cimemories.llm.endpoint import allow_key
    from cimemories.llm.local_vllm import Servers

    servers, given, model = Servers(serve), settings["base_url"], settings["model"]
    if address := address_of_assistant(settings.get("assistant", MODEL)):
        # Named by the user of a command, so that it may be started.
        assistants.allow(address)
        given = address
    base_url, variable = servers.at(given, model), settings.get("api_key_env", DEFAULT_KEY_ENV)
    # The user of the command names key and server together; files and pages may not.
    allow_key(variable, base_url)
    if not judges.judge and not judges.judge_model and _is_real(model, base_url, variable):
        # The model judges its own messages at its own price, unless the judge is served elsewhere.
        price = settings.get("prices")
        own = [price] if price and not judges.judge_base_url else None
        itself: dict[str, Any] = {"judge_model": [model], "judge_prices": judges.judge_prices or own}
        judges = replace(judges, judge=["matcher"], **itself)
    file = wording.file(judges)
    level, template = settings.get("prompt_level", "base"), settings.get("memory_template", "bullets")
    spec = RunSpec(
        **{**settings, "base_url": base_url},
        # Judges get the word itself: each that is another model than the one under test has a server of its own.
        judges=tuple(judges.judges(given, variable, servers)),
        prompts=file.prompts(level, template) if file and not wording.reference else {},
    )
    servers.checked()
    system = spec.composition.system
    if system is not None and system.asks is not None:
        allow_key(variable, system.asks[1] or base_url)
    return as_reference(spec, file) if wording.reference else spec


@cli.command()
def run(
    settings: RunOptions,  # type: ignore[valid-type]
    judge_options: JudgeOptions,
    work: WorkOptions,
    planning_options: PlanOptions,
    wording: WordingOptions,
    serve: Serve = None,
) -> None:
    """Run a model: it writes messages, judges read them. Prints the run's id.

    Example: cimemories run -d official -m qwen3-32b --base-url http://localhost:8000/v1 --judge matcher
    """
    from cimemories.evaluation import planning
    from cimemories.evaluation.estimates import estimate, require_fit
    from cimemories.flows.labels import default_labelling, unlabelled_text
    from cimemories.model import WorkStatus

    given = vars(settings)
    spec = run_spec(given, judge_options, wording, serve or ())
    store = planning_options.store
    if planning_options.plan:
        estimated = estimate(store, spec, find_labels=find_labels, concurrency=work.concurrency)
        print_plan(estimated, as_json=planning_options.as_json)
        chosen = default_labelling(store, planning_options.dataset(spec.dataset).id)
        if without := unlabelled_text(store, chosen, spec.profiles):
            output.notes([f"{without}; violation and completeness leave them out"], "warning")
        return
    work.chosen(store)
    require = None if planning_options.allow_too_long else require_fit
    run_id = planning.plan(store, spec, find_labels=find_labels, require=require)
    with store.read() as connection:
        output.notes(store_runs.by_id(connection, run_id).manifest.recorded["model"]["notes"])
    if spec.base_url not in BY_FILE:
        work_on(store, run_id, work)
        return
    with store.write() as connection:
        # No worker comes for it: left queued, it would soon be shown as interrupted.
        store_work.finish(connection, run_id, WorkStatus.PAUSED)
    output.note(f"planned; write its requests with `cimemories batch export {run_id} --out requests.jsonl`")
    output.line(run_id)


@cli.command()
def judge(
    run_id: Run,
    options: JudgeOptions,
    work: WorkOptions,
    planning_options: PlanOptions,
    wording: WordingOptions,
    price: Annotated[str | None, Option("--price", help="The same as --judge-price, of all these judges.")] = None,
    cap: Annotated[float | None, Option("--cap", help="New cap on the cost of the run, its messages included.")] = None,
    check: Annotated[
        bool, Option("--check", help="Also ask the judge model whether each message does its task.")
    ] = False,
    serve: Serve = None,
) -> None:
    """Add another judge to a run. Its messages are not written again. Prints the run's id.

    Example: cimemories judge run-3f9a1c2e --judge-model deepseek-r1 --judge-base-url http://localhost:8002/v1
    """
    from cimemories.evaluation.planning import judge_as_reference
    from cimemories.evaluation.runs import estimate_judges, judge_again
    from cimemories.llm.local_vllm import Servers

    if not options.judge_model and not options.judge:
        raise StoreError(
            "which judge? Give --judge-model MODEL --judge-base-url URL, or --judge matcher, which needs no model."
        )
    if options.judge_model and not options.judge_base_url:
        raise StoreError("where is the judge served? Give --judge-base-url URL, or local-vllm to serve it yourself.")
    if price is not None:
        if options.judge_prices:
            raise StoreError("give --price or --judge-price, not both: here they are the same.")
        options = replace(options, **dict[str, Any](judge_prices=[price]))
    servers = Servers(serve or ())
    judges = options.judges(servers=servers)
    servers.checked()
    if wording.prompt_file is not None and not wording.reference:
        raise StoreError("--prompt-file goes with --reference; one judge's prompt alone is --judge-prompt FILE:LEVEL.")
    if wording.reference:
        file = wording.file(options)
        judges = [judge_as_reference(judge, file) for judge in judges]
    store = planning_options.record
    if planning_options.plan:
        estimated = estimate_judges(store, run_id, judges, check=check, cap=cap, concurrency=work.concurrency)
        print_plan(estimated, as_json=planning_options.as_json)
        return
    work.chosen(store)
    judge_again(store, run_id, judges, check=check, cap=cap, allow_too_long=planning_options.allow_too_long)
    work_on(store, run_id, work)


@cli.command()
def repeat(
    run_id: Run,
    place: Place,
    work: WorkOptions,
    show: Annotated[bool, Option("--show", help="Print the command, and stop.")] = False,
    fresh: Fresh = False,
    allow_key: AllowKeys = None,
    allow_program: AllowPrograms = None,
    allow_too_long: AllowTooLong = False,
) -> None:
    """Repeat a run with its settings and prompts. Recorded answers are used again, unless --fresh is given.

    Example: cimemories repeat run-3f9a1c2e --show
    """
    from cimemories.evaluation import planning
    from cimemories.evaluation.estimates import require_fit
    from cimemories.evaluation.planning import spec_of

    store = place.record
    spec = spec_of(store, run_id)
    spec = spec.model_copy(update={"fresh": spec.fresh or fresh})
    if show:
        output.line(command_of(spec))
        return
    work.chosen(store)
    require = None if allow_too_long else require_fit
    work_on(store, planning.plan(store, spec, find_labels=find_labels, require=require), work)


@cli.command()
def runs(here: Here, tag: Annotated[str | None, Option(help="Only the runs with this tag.")] = None) -> None:
    """List the runs.  Example: cimemories runs --json"""
    from cimemories.answers import lists

    if here.as_json:
        output.as_json(lists.runs_with_settings(here.record, tag))
        return
    contents = lists.contents(here.record)
    output.listing(lists.runs([row for row in contents.runs if tag in (None, *row.tags)], contents.dataset_names))


@cli.command()
def tag(
    run_id: Run,
    place: Place,
    tags: Annotated[list[str] | None, Argument(metavar="[TAG]...", help="Its tags from now on; '' for none.")] = None,
    note: Annotated[str | None, Option(help="Its note from now on; '' for none.")] = None,
) -> None:
    """Set the tags of a run, or its note; what is not given stays. Prints both.

    Example: cimemories tag run-3f9a1c2e pilot strict --note "With the prompt of May"
    """
    from cimemories.flows import catalogue

    store = place.record
    if tags or note is not None:
        catalogue.describe_run(store, run_id, tags or None, note)
    row = catalogue.run_of(store, run_id)
    output.line(f"tags  {' '.join(row.tags) or 'none'}")
    output.line(f"note  {row.note or 'none'}")


@cli.command()
def resume(
    work_id: Work,
    place: Place,
    work: WorkOptions,
    base_url: Annotated[str | None, Option(help="New address of its server.")] = None,
    judge_base_url: Annotated[str | None, Option(help="New address of the judges' server.")] = None,
    cap: Annotated[float | None, Option(help="New cap on the cost.")] = None,
    queued: Annotated[bool, Option("--queued", hidden=True, help="Only if it still waits for its worker.")] = False,
    allow_key: AllowKeys = None,
    allow_program: AllowPrograms = None,
) -> None:
    """Continue a run, sweep, labelling or generation. Failed calls are retried. Prints its id.

    Example: cimemories resume run-3f9a1c2e
    """
    # A worker that the app starts may come before the database answers; a person is told at once.
    store = open_patiently(place.workspace) if queued else place.store
    if cap is not None:
        from cimemories.evaluation.costs import raise_cap

        with store.read() as connection:
            # Before the cap is raised, which a worker at it would go by at once.
            store_work.require_idle([store_work.load(connection, work_id)])
        raise_cap(store, work_id, cap)
    if not queued:  # what the app starts is in the log by then
        with store.write() as connection:
            store_work.load(connection, work_id)
            log.add(connection, f"{store_work.kind_of(work_id)}.resumed", work_id)
    work_on(store, work_id, work, base_url, judge_base_url, queued=queued)


@cli.command()
def stop(
    work_id: Work,
    place: Place,
    now: Annotated[bool, Option("--now", help="Drop the calls already sent, and cancel the work.")] = False,
) -> None:
    """Stop a run, sweep, labelling or generation. Calls already sent finish first; `resume` continues it.

    Example: cimemories stop run-3f9a1c2e
    """
    from cimemories.flows import catalogue

    store = place.record
    if now:
        catalogue.cancel(store, work_id)
    else:
        catalogue.pause(store, work_id)
    with store.read() as connection:
        status = store_work.load(connection, work_id)["status"]
    go_on = f"Continue with `cimemories resume {work_id}`."
    states = {"pausing": f"pausing after its current calls. {go_on}", "paused": f"paused. {go_on}"}
    if now:
        states = {"cancelling": "cancelling; its worker stops in a moment.", "cancelled": f"cancelled. {go_on}"}
    output.note(f"{work_id}: {states.get(status, f'nothing to stop; it is {status}.')}")


# ---- values of options


def _is_real(model: str, base_url: str, api_key_env: str) -> bool:
    """Return whether a model that can judge its own messages is served there: not the simulator, and not batch
    files."""
    from cimemories.llm.endpoint import SIMULATOR, Endpoint, EndpointError, is_assistant
    from cimemories.llm.http.transport import probe
    from cimemories.llm.local_vllm import is_local

    if base_url in (SIMULATOR, BATCH) or is_assistant(base_url):
        return False
    if is_local(base_url):
        return True
    try:
        return not probe(Endpoint(base_url, api_key_env), model).simulated
    except EndpointError:
        return True  # planning asks again, and says what is wrong


def _judge_prompt(text: str) -> Prompt:
    """Return the prompt that FILE:LEVEL names; level 1 where only a file is given."""
    from cimemories.seeds.prompts import read_prompt_file

    # From the right: a path may hold a colon itself.
    path, _, level = text.rpartition(":")
    if not path:
        path, level = level, "1"
    return read_prompt_file(Path(path)).prompt("judge", level)


# ---- estimates


def plan_or_work(store: Store, spec: Any, module: Any, work: WorkOptions, planning: PlanOptions) -> None:
    """Print what a labelling or a generation would cost, or do it. module: its `estimate` and `plan`."""
    if planning.plan:
        print_plan(module.estimate(store, spec, concurrency=work.concurrency), as_json=planning.as_json)
        return
    work.chosen(store)
    work_on(store, module.plan(store, spec, allow_too_long=planning.allow_too_long), work)


def print_plan(plan: Estimate, *, as_json: bool = False) -> None:
    """Print what a piece of work would ask, cost and take; nothing is started."""
    if as_json:
        output.as_json(plan)
        return
    output.listing(plan.table)
    output.line(f"{plan.counts[1] + 's':<11}{plan.size_text}")
    print_costs(plan, plan.concurrency)


def print_costs(plan: Estimate, concurrency: int) -> None:
    """Requests, tokens, cost and time of a plan, and what they rest on."""
    output.line(f"requests   {plan.requests:,}; {plan.recorded:,} of {plan.draws:,} samples are already recorded")
    output.line(
        f"tokens     about {plan.prompt_tokens:,} prompt ({plan.cacheable:,} of them can come from the server's prefix "
        f"cache) and {plan.completion_tokens:,} completion"
    )
    output.line(f"cost       {plan.cost_text}")
    output.line(f"time       {duration(plan.seconds)} with {concurrency} requests at the same time")
    output.notes(plan.notes)
    output.notes([*plan.misfits, plan.warning], "warning")


def duration(seconds: float | None) -> str:
    """A time for people: 40 s, 12 min, 3.5 h; 'unknown' for None."""
    if seconds is None:
        return "unknown"
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"

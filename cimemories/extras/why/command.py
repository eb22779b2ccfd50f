"""The command `why`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from typer import Option

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import LabelOptions, Printing, Run, word_of
from cimemories.cli.runs import print_plan
from cimemories.cli.work import execute_run, exit_if_incomplete
from cimemories.store import runs as store_runs


@dataclass(frozen=True)
class FlowOptions:
    """The leak to be explained."""

    profile: Annotated[str | None, Option(metavar="NAME", help="Whose leak: the profile's name or id.")] = None
    context: Annotated[str | None, Option(metavar="NAME", help="Where: the task, the recipient, or an id.")] = None
    attribute: Annotated[str | None, Option(metavar="KEY", help="What leaked: the attribute's key.")] = None


@cli.command()
def why(
    run_id: Run,
    flow: FlowOptions,
    options: LabelOptions,
    printing: Printing,
    samples: Annotated[int, Option(min=1, max=1000, help="New messages of each variant.")] = 20,
    variants: Annotated[
        str | None,
        Option(metavar="LIST", help="Of: first, last, paraphrased, without, no-neighbours. Default: all."),
    ] = None,
    wording: Annotated[str | None, Option(metavar="TEXT", help="Your own wording for `paraphrased`.")] = None,
    cap: Annotated[float | None, Option(min=0, help="Stop at this cost; needs a run with prices.")] = None,
    plan: Annotated[bool, Option("--plan", help="Show requests, tokens, cost and time, and stop.")] = False,
    concurrency: Annotated[int, Option(min=1, max=1024, help="Requests at the same time.")] = 32,
) -> None:
    """Explain a leak: replay its request with a changed memory.

    The memory statement is left out, moved or reworded. Each variant is sent as often as --samples says, and read by
    the run's judges. Without a leak, lists what is explained already. Ctrl-C stops; the same command, or `resume`,
    continues.

    Example: cimemories why run-3f9a1c2e --profile "Gary Keith" --context "Negotiate lease terms" --attribute rent
    """
    from cimemories.extras.why import attribution
    from cimemories.extras.why.why import explain, leaked_flow, variant_text
    from cimemories.flows.flows import Flows

    store = printing.record
    scope, flows = options.scope(store, run_id), Flows(store)
    if not any(vars(flow).values()):
        done = [explain(flows, scope, row) for row, _ in attribution.attributions(store, run_id)]
        printing.result(done, *(f"{item.run.id}  {item.title}\n  {item.run.status}. {item.sentence}" for item in done))
        if not done:
            output.note(f"nothing is explained yet; `cimemories leaks {run_id}` lists the leaks.")
        return
    response, attribute, leak = leaked_flow(flows, scope, **vars(flow))
    names = [name.strip() for name in variants.split(",")] if variants else list(attribution.CHANGES)
    planned = attribution.prepare_attribution(
        *(store, run_id, response, attribute),
        samples=samples,
        changes=[word_of(attribution.Change, name, "variant") for name in names],
        wording=wording,
        cap=cap,
    )
    if plan:
        estimated = attribution.estimate(store, planned, concurrency=concurrency)
        changes = [variant.change for variant in planned.variants]
        head = {"leak": leak, "variants": changes, "skipped": planned.skipped, "samples": samples}
        if printing.result(head | estimated.as_json(), leak):
            return
        output.table(("variant",), [(variant_text(planned, variant),) for variant in planned.variants])
        output.notes(f"{name}: left out, {reason}" for name, reason in planned.skipped.items())
        print_plan(estimated, as_json=False)
        return
    replay = attribution.plan_attribution(store, planned)
    execute_run(store, replay, concurrency)
    with store.read() as connection:
        row = store_runs.by_id(connection, replay)
    printing.answer(explain(flows, scope, row))
    exit_if_incomplete(store, replay, 0.0)

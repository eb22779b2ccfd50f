"""The command `review audit`."""

from __future__ import annotations

import getpass
from typing import Annotated

from typer import Option

from cimemories.cli import output
from cimemories.cli.options import Here, LabelOptions, Run, YourName
from cimemories.cli.review import review


@review.command("audit")
def review_audit(
    run_id: Run,
    options: LabelOptions,
    here: Here,
    attributes: Annotated[int, Option(min=1, help="How many attributes to sample.")] = 150,
    samples: Annotated[int, Option("--samples", "-n", min=1, help="n of the Violation@n to correct.")] = 1,
    seed: Annotated[
        int, Option(min=0, max=2**31 - 1, help="Of the same seed a larger sample holds the smaller one.")
    ] = 1,
    claimed_only: Annotated[bool, Option("--claimed-only", help="Only those with a claim: a lower bound.")] = False,
    annotator: YourName = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Show the plan, and sample nothing.")] = False,
) -> None:
    """Sample attributes for an audit of a judge.

    People read their messages, and Violation@n is corrected for the judge by what they find (Neyman allocation). The
    sample is read on the Judge audit page; `metrics`, `compare` and `report` then give the corrected number.

    Example: cimemories review audit run-3f9a --attributes 150 --samples 5
    """
    from cimemories.extras.attribute_audit.sampling import (
        attribute_plan,
        attribute_population,
        draw_attribute_slice,
        pilot_of,
    )
    from cimemories.flows.flows import Flows

    scope, flows = options.scope(here.record, run_id), Flows(here.record)
    judged, pilot = attribute_population(flows, scope, samples), pilot_of(flows, scope, samples)
    planned = attribute_plan(judged, attributes, pilot, claimed_only=claimed_only)
    made = None
    if not dry_run:
        made = draw_attribute_slice(
            flows,
            scope,
            number=attributes,
            n=samples,
            seed=seed,
            annotator=annotator or getpass.getuser(),
            pilot=pilot,
            claimed_only=claimed_only,
        )
    about = {"run": scope.run.id, "judge": scope.judge.name, "n": samples, "seed": seed, "slice": made}
    if not here.result(about | planned.as_json()):
        output.answer(planned)
        output.note("nothing is sampled" if made is None else f"slice {made}: read it on the Judge audit page")

"""Commands that set judges of a run, or several runs, beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import AsJson, Workspace, cli
from cimemories.cli.explore import (
    Grounded,
    Identifiers,
    JudgeOption,
    Labels,
    RuleOption,
    identifier_rule,
    scope_of,
)
from cimemories.cli.output import percent
from cimemories.store.engine import DEFAULT_WORKSPACE, StoreError, open_store

if TYPE_CHECKING:
    from cimemories.analysis.difference import Difference
    from cimemories.analysis.headline import Headline
    from cimemories.analysis.judges_agreement import JudgesAgreement
    from cimemories.analysis.kappa import Figure


@cli.command()
def judges(
    run_id: Annotated[str, typer.Argument(metavar="RUN")],
    as_json: AsJson = False,
    grounded: Grounded = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """The judges of a run, what each of them claims, and how far they agree.  Example: cimemories judges run-3f9a"""
    from cimemories.analysis.flows import Flows
    from cimemories.analysis.judges_agreement import judges_agreement

    found = judges_agreement(Flows(open_store(workspace)), run_id, grounded=grounded)
    if as_json:
        output.line(output.as_json_text(_agreement_json(found)))
        return
    output.table(
        [
            ("id", True),
            ("judge", False),
            ("reads", False),
            ("judged", True),
            ("revealed", True),
            ("ungrounded", True),
            ("of full claims", True),
            ("", False),
        ],
        [
            (
                item.judge.id,
                item.title,
                item.judge.channel,
                f"{item.judged:,}",
                f"{item.reveals:,}",
                f"{item.ungrounded:,}",
                f"{item.claims:,}",
                "simulated" if item.judge.simulated else "",
            )
            for item in found.judges
        ],
    )
    for pair in found.pairs:
        (neither, second), (first, both) = pair.table
        output.line(
            f"\n{pair.first.title} and {pair.second.title}: {pair.places:,} places of {pair.messages:,} messages that "
            f"both have judged\n  revealed by both {both:,}, by the first alone {first:,}, by the second alone "
            f"{second:,}, by neither {neither:,}"
        )
        for name, figure in (("agreement", pair.agreement), ("Cohen's kappa", pair.kappa), ("Gwet's AC1", pair.ac1)):
            shown = f"undefined: {figure.why}" if figure.value is None else f"{figure.value:.3f}"
            output.line(f"  {name:<14} {shown}")
    if not found.pairs:
        output.note("note: agreement takes two judges that read the same text; this run has no two of them")


def _agreement_json(found: JudgesAgreement) -> dict[str, object]:
    return {
        "run": found.run_id,
        "grounded_only": found.grounded,
        "judges": [
            {
                "id": item.judge.id,
                "name": item.title,
                "kind": item.judge.kind,
                "channel": item.judge.channel,
                "simulated": item.judge.simulated,
                "judged": item.judged,
                "revealed": item.reveals,
                "full_claims": item.claims,
                "ungrounded_claims": item.ungrounded,
            }
            for item in found.judges
        ],
        "pairs": [
            {
                "first": pair.first.judge.id,
                "second": pair.second.judge.id,
                "messages": pair.messages,
                "places": pair.places,
                "neither": pair.table[0][0],
                "second_alone": pair.table[0][1],
                "first_alone": pair.table[1][0],
                "both": pair.table[1][1],
                "agreement": _figure(pair.agreement),
                "kappa": _figure(pair.kappa),
                "ac1": _figure(pair.ac1),
            }
            for pair in found.pairs
        ],
    }


def _figure(figure: Figure) -> dict[str, object]:
    return {"value": figure.value} | ({"why": figure.why} if figure.why else {})


@cli.command()
def compare(
    run_ids: Annotated[list[str], typer.Argument(metavar="RUN RUN...")],
    as_json: AsJson = False,
    labels: Labels = None,
    rule: RuleOption = None,
    identifiers: Identifiers = "exact",
    judge: JudgeOption = None,
    grounded: Grounded = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Numbers of runs side by side, and paired differences to the first.  Example: cimemories compare run-3f9a run-77

    Differences are of the flows that both runs have judged, with 95 % intervals; --json also lists the flows that newly
    leak and that stopped leaking, and gives every difference by domain.
    """
    from cimemories.analysis.difference import difference
    from cimemories.analysis.flows import Flows
    from cimemories.analysis.headline import headline
    from cimemories.analysis.warnings import comparison_warnings

    if len(set(run_ids)) < 2:
        raise StoreError("a comparison takes two different runs or more. `cimemories runs` lists them.")
    chosen = identifier_rule(identifiers)
    store = open_store(workspace)
    flows = Flows(store)
    ids = dict.fromkeys(run_ids)
    scopes = [scope_of(store, run_id, labels, judge, grounded=grounded, rule=rule) for run_id in ids]
    numbers = [headline(flows, asked, chosen) for asked in scopes]
    # Runs of several datasets have no flow in common; their numbers still stand side by side, with a warning.
    alike = [asked for asked in scopes[1:] if asked.run.dataset == scopes[0].run.dataset]
    differences = [difference(flows, scopes[0], other, chosen) for other in alike]
    warnings = comparison_warnings(store, scopes)
    if as_json:
        found = {
            "runs": [item.as_json() for item in numbers],
            "differences": [item.as_json() for item in differences],
            "warnings": list(warnings),
        }
        output.line(output.as_json_text(found))
        return
    _side_by_side(numbers)
    for apart in differences:
        _difference(apart)
    for text in warnings:
        output.note(f"warning: {text}")
    for item in numbers:
        for text in item.notes:
            output.note(f"note on {item.scope.run.id}: {text}")


def _difference(found: Difference) -> None:
    """What was found of two runs, in words."""
    tallied = found.tallied
    output.line("")
    for text in found.sentences(found.first.run.id, found.second.run.id):
        output.line(text)
    output.line(
        f"  on {found.paired.profiles} common profiles, {tallied.flows:,} inappropriate and {found.necessary:,} "
        f"necessary flows: {tallied.newly:,} newly leak, {tallied.stopped:,} leak no more, {tallied.both:,} in both"
    )


def _side_by_side(numbers: Sequence[Headline]) -> None:
    most = max(item.scope.run.samples for item in numbers)
    rows: list[tuple[object, ...]] = [
        ("model", *(item.scope.run.model for item in numbers)),
        *((f"violation@{n}", *(percent(item.violation.get(n)) for item in numbers)) for n in range(1, most + 1)),
        ("completeness", *(percent(item.completeness) for item in numbers)),
        ("ambiguous exposure", *(percent(item.ambiguous_exposure) for item in numbers)),
        ("coverage", *(percent(item.coverage) for item in numbers)),
        ("does the task", *(percent(item.does_task.share if item.does_task else None) for item in numbers)),
        ("memory", *(item.scope.run.composition for item in numbers)),
        ("judge", *(item.scope.judge_words for item in numbers)),
        ("", *("simulated" if item.scope.simulated else "" for item in numbers)),
    ]
    output.table([("", False), *((item.scope.run.id, True) for item in numbers)], rows)

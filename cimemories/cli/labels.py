"""Commands that let personas vote, and say what labels their votes became and how far labellings and judges agree."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import (
    AsJson,
    DatasetName,
    LabellingOption,
    PlanOptions,
    Printing,
    Run,
    Serve,
    WorkOptions,
    Workspace,
    dataset_id,
    grouped,
    is_alone,
    open_record,
    options_of,
    priors_by_key,
)
from cimemories.cli.runs import print_plan
from cimemories.cli.work import work_on
from cimemories.curation.spec import LabellingSpec
from cimemories.store import datasets as store_datasets
from cimemories.store import labellings as store_labellings
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_store

if TYPE_CHECKING:
    from cimemories.labels.whatif import WhatIf
    from cimemories.store.labellings import LabellingRow


LabellingOptions = options_of(LabellingSpec)


@cli.command()
@grouped
def label(
    settings: LabellingOptions,  # type: ignore[valid-type]
    work: WorkOptions,
    planning: PlanOptions,
    serve: Serve = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Label a dataset by the votes of personas. Prints the labelling's id.

    Example: cimemories label -d official -m gpt-oss-120b --base-url http://localhost:8000/v1 --plan
    """
    from cimemories.curation import labelling
    from cimemories.llm.endpoint import allow_key
    from cimemories.llm.local_vllm import own_address

    given = vars(settings)
    base_url = own_address(given["base_url"], given["model"], serve or ())
    allow_key(given["api_key_env"], base_url)
    spec = LabellingSpec(**{**given, "base_url": base_url})
    store = open_store(workspace)
    if planning.plan:
        print_plan(labelling.estimate(store, spec, concurrency=work.concurrency), as_json=planning.as_json)
        return
    work.cluster(store)
    work_on(store, labelling.plan(store, spec, allow_too_long=planning.allow_too_long), work)


labellings = typer.Typer(
    name="labellings",
    help="List the labellings, and choose the one that numbers rest on.\n\n"
    "Unless one was chosen, numbers rest on the finished labelling that covers most, of two alike on the newest.\n\n"
    "Example: cimemories labellings --json",
    invoke_without_command=True,
)
cli.add_typer(labellings)


@labellings.callback()
def list_labellings(
    context: typer.Context,
    use: Annotated[
        str | None, Option("--use", metavar="LABELLING", help="Let all numbers of its dataset rest on this one.")
    ] = None,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    if not is_alone(context):
        return
    from cimemories.answers import lists
    from cimemories.flows import catalogue

    store = open_record(workspace)
    if use is not None:
        catalogue.choose_labelling(store, use)
    output.listing(lists.labellings(store), as_json)


# ---- consensus


@cli.command("consensus")
@grouped
def show_consensus(
    dataset: DatasetName,
    printing: Printing,
    labelling: LabellingOption = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Show which pairs have a consensus, and who dissents. Also why contexts are discarded, and the paper's Table 2.

    Example: cimemories consensus -d official --json
    """
    from cimemories.answers.consensus import consensus

    store = open_record(workspace)
    printing.answer(consensus(store, dataset, _labelling(store, dataset, labelling)), workspace)


# ---- rules


rules = typer.Typer(
    name="rules",
    help="List a dataset's consensus rules; save, try, use or delete one.\n\nExample: cimemories rules -d official",
    invoke_without_command=True,
)
cli.add_typer(rules)
RuleName = Annotated[str, Option(help="Name of the rule; `paper` is the paper's.")]


@rules.callback()
def list_rules(
    context: typer.Context,
    dataset: Annotated[str | None, Option("--dataset", "-d", help="Dataset; `cimemories datasets` lists them.")] = None,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    if not is_alone(context):
        return
    from cimemories.answers import lists

    if dataset is None:
        raise typer.BadParameter("name a dataset: cimemories rules -d NAME")
    store = open_record(workspace)
    output.listing(lists.rules(store, dataset_id(store, dataset)), as_json)


@rules.command("save")
def save_rule(
    dataset: DatasetName,
    name: RuleName,
    threshold: Annotated[float, Option(help="Share of votes that a label needs: above 0.5, up to 1.")],
    priors: Annotated[
        str | None, Option(help="E.g. fundamentalist=0.3,pragmatic=0.6,unconcerned=0.1; default: the labelling's.")
    ] = None,
    least_votes: Annotated[
        int | None, Option(help="Counted votes needed of each persona on a pair; default: 9 in 10 of the planned ones.")
    ] = None,
    both_lists: Annotated[
        str,
        Option(help="A vote in both lists: `conflict` (not counted), or `necessary`, as the authors' code counts it."),
    ] = "conflict",
    use: Annotated[bool, Option("--use", help="Make it the current rule.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Show the effect, and save nothing.")] = False,
    annotator: Annotated[str | None, Option(help="Your name; default: your login.")] = None,
    labelling: LabellingOption = None,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Save a consensus rule, and show its effect.

    A saved rule cannot be changed: save a new one.

    Example: cimemories rules save -d official --name lenient --threshold 0.9 --use
    """
    store = open_record(workspace)
    row, effect = _effect(store, dataset, labelling, name, threshold, priors, least_votes, both_lists)
    if not dry_run:
        with store.write() as connection:
            store_labellings.add_rule(
                connection,
                dataset_id(store, dataset),
                name,
                threshold=threshold,
                priors=effect.after.prior_by_key if effect else priors_by_key(priors or ""),
                annotator=annotator or getpass.getuser(),
                use=use,
                least_votes=least_votes,
                both_lists=both_lists,
            )
    saved, current = not dry_run, use and not dry_run
    if as_json:
        state = {"name": name, "saved": saved, "current": current, "labelling": row and row.id}
        output.as_json(state | (effect.as_json() if effect else {}))
        return
    output.note(f"'{name}': {'saved' if saved else 'not saved'}{', current' if current else ''}")
    if effect is not None:
        output.answer(effect)


@rules.command("use")
def use_rule(dataset: DatasetName, name: RuleName, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Make a saved rule the current one.  Example: cimemories rules use -d official --name paper"""
    store = open_record(workspace)
    with store.write() as connection:
        store_labellings.make_current_rule(connection, dataset_id(store, dataset), name)
    output.note(f"'{name}' is now the current rule of '{dataset}'")


@rules.command("delete")
def delete_rule(dataset: DatasetName, name: RuleName, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Delete a saved rule.  Example: cimemories rules delete -d official --name lenient"""
    store = open_record(workspace)
    with store.write() as connection:
        store_labellings.delete_rule(connection, dataset_id(store, dataset), name)
    output.note(f"'{name}' is deleted from '{dataset}'")


def _labelling(store: Store, dataset: str, labelling_id: str | None) -> LabellingRow:
    """The labelling of that id, or the newest finished one. Raises StoreError where there is none."""
    from cimemories.flows.labels import chosen_labelling

    with store.read() as connection:
        data = store_datasets.named(connection, dataset)
    row = chosen_labelling(store, data, labelling_id)
    if row is None:
        raise StoreError(f"'{dataset}' has no labels yet. Label it first: cimemories label -d {dataset} ...")
    return row


def _effect(
    store: Store,
    dataset: str,
    labelling_id: str | None,
    name: str,
    threshold: float,
    priors: str | None,
    least_votes: int | None,
    both_lists: str,
) -> tuple[LabellingRow | None, WhatIf | None]:
    """What the rule would do to a labelling; (None, None) where there is none yet and the priors are given."""
    from cimemories.flows.labels import vote_counts
    from cimemories.labels.whatif import what_if

    try:
        row = _labelling(store, dataset, labelling_id)
    except StoreError:
        # Without votes there is no effect to show; a rule with priors of its own can be saved all the same.
        if labelling_id is not None or priors is None:
            raise
        return None, None
    by_key = priors_by_key(priors) if priors else {p.key: p.prior for p in vote_counts(store, row.id).personas}
    return row, what_if(store, row.id, threshold, by_key, least_votes, both_lists, name)


# ---- agreement


@labellings.command("agreement")
@grouped
def show_agreement(dataset: DatasetName, printing: Printing, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Show how well the labellings of a dataset agree.  Example: cimemories labellings agreement -d official --json"""
    from cimemories.agreement.models import agreements

    store = open_record(workspace)
    printing.answer(agreements(store, dataset_id(store, dataset)), workspace)


@cli.command("judges")
@grouped
def show_judges(
    run_id: Run,
    printing: Printing,
    grounded: Annotated[bool, Option("--grounded", help="Count only reveals whose quote is in the message.")] = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Show a run's judges, and how well they agree.  Example: cimemories judges run-3f9a"""
    from cimemories.answers.judges import judges
    from cimemories.flows.flows import Flows

    printing.answer(judges(Flows(open_record(workspace)), run_id, grounded=grounded), workspace)

"""Commands that let personas vote, and say what labels their votes became and how far labellings and judges agree."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Annotated

from typer import Option

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import (
    AsJson,
    DatasetName,
    LabellingOption,
    Out,
    PlanOptions,
    Run,
    Serve,
    WorkOptions,
    Workspace,
    dataset_id,
    grouped,
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


@cli.command()
def labellings(
    use: Annotated[
        str | None, Option("--use", metavar="LABELLING", help="Let all numbers of its dataset rest on this one.")
    ] = None,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """List the labellings, and choose the one that numbers rest on.

    Unless one was chosen, numbers rest on the finished labelling that covers most, of two alike on the newest.

    Example: cimemories labellings --json
    """
    from cimemories.answers import lists
    from cimemories.flows import catalogue

    store = open_record(workspace)
    if use is not None:
        catalogue.choose_labelling(store, use)
    output.listing(lists.labellings(store), as_json)


# ---- consensus


@cli.command("consensus")
@cli.command("survival", hidden=True)  # its older name
def show_consensus(
    dataset: DatasetName,
    labelling: LabellingOption = None,
    as_json: AsJson = False,
    out: Out = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Show which pairs have a consensus, and who dissents. Also why contexts are discarded, and the paper's Table 2.

    Example: cimemories consensus -d official --json
    """
    from cimemories.answers.consensus import consensus

    store = open_record(workspace)
    output.answer(consensus(store, dataset, _labelling(store, dataset, labelling)), as_json, out, workspace)


# ---- rules


@cli.command("rules")
def list_rules(dataset: DatasetName, as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List a dataset's consensus rules; one is current.  Example: cimemories rules -d official --json"""
    from cimemories.answers import lists

    store = open_record(workspace)
    output.listing(lists.rules(store, dataset_id(store, dataset)), as_json)


@cli.command()
def rule(
    dataset: DatasetName,
    name: Annotated[str, Option(help="Name of the rule; `paper` is the paper's.")],
    threshold: Annotated[float | None, Option(help="Above 0.5, up to 1; makes a new rule.")] = None,
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
    delete: Annotated[bool, Option("--delete", help="Delete it.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Show the effect, and save nothing.")] = False,
    annotator: Annotated[str | None, Option(help="Your name; default: your login.")] = None,
    labelling: LabellingOption = None,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Save, try, use or delete a consensus rule.

    Example: cimemories rule -d official --name lenient --threshold 0.9 --use

    Back to the paper's rule: cimemories rule -d official --name paper --use
    """
    if threshold is None and (dry_run or not (use or delete)):
        raise StoreError("what should be done? Give --threshold NUMBER for a new rule, or --use, or --delete.")
    if delete and (threshold is not None or use):
        raise StoreError("--delete cannot be combined with --threshold or --use.")
    store = open_record(workspace)
    of = dataset_id(store, dataset)
    if threshold is None:
        if priors is not None or least_votes is not None or both_lists != "conflict":
            option = "--least-votes" if least_votes is not None else "--both-lists"
            option = "--priors" if priors is not None else option
            raise StoreError(f"{option} needs --threshold: a saved rule cannot be changed. Save a new one.")
        change = store_labellings.delete_rule if delete else store_labellings.make_current_rule
        with store.write() as connection:
            change(connection, of, name)
        output.note(f"'{name}' is {'deleted from' if delete else 'now the current rule of'} '{dataset}'")
        return
    row, effect = _effect(store, dataset, labelling, name, threshold, priors, least_votes, both_lists)
    if not dry_run:
        with store.write() as connection:
            store_labellings.add_rule(
                connection,
                of,
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


@cli.command("agreement")
def show_agreement(
    dataset: DatasetName, as_json: AsJson = False, out: Out = None, workspace: Workspace = DEFAULT_WORKSPACE
) -> None:
    """Show how well the labellings of a dataset agree.  Example: cimemories agreement -d official --json"""
    from cimemories.agreement.models import agreements

    store = open_record(workspace)
    output.answer(agreements(store, dataset_id(store, dataset)), as_json, out, workspace)


@cli.command("judges")
def show_judges(
    run_id: Run,
    as_json: AsJson = False,
    out: Out = None,
    grounded: Annotated[bool, Option("--grounded", help="Count only reveals whose quote is in the message.")] = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Show a run's judges, and how well they agree.  Example: cimemories judges run-3f9a"""
    from cimemories.answers.judges import judges
    from cimemories.flows.flows import Flows

    output.answer(judges(Flows(open_record(workspace)), run_id, grounded=grounded), as_json, out, workspace)

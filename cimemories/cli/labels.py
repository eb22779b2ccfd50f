"""Commands that let personas vote, and say what labels their votes became and how far labellings and judges agree."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from cimemories.cli import output
from cimemories.cli.base import cli, group
from cimemories.cli.options import (
    DatasetName,
    Grounded,
    Here,
    LabellingOption,
    Place,
    PlanOptions,
    Printing,
    Run,
    Serve,
    WorkOptions,
    YourName,
    options_of,
    priors_by_key,
)
from cimemories.cli.runs import plan_or_work
from cimemories.curation.spec import LabellingSpec
from cimemories.store import labellings as store_labellings
from cimemories.store.engine import StoreError

if TYPE_CHECKING:
    from cimemories.store.labellings import LabellingRow


LabellingOptions = options_of(LabellingSpec)


@cli.command()
def label(
    settings: LabellingOptions,  # type: ignore[valid-type]
    work: WorkOptions,
    planning: PlanOptions,
    serve: Serve = None,
) -> None:
    """Label a dataset by the votes of personas. Prints the labelling's id.

    Example: cimemories label -d official -m gpt-oss-120b --base-url http://localhost:8000/v1 --plan
    """
    from cimemories.curation import labelling
    from cimemories.llm.endpoint import allow_key
    from cimemories.llm.local_vllm import single_address

    given = vars(settings)
    base_url = single_address(given["base_url"], given["model"], serve or ())
    allow_key(given["api_key_env"], base_url)
    spec = LabellingSpec(**{**given, "base_url": base_url})
    plan_or_work(planning.store, spec, labelling, work, planning)


labellings = group(
    "labellings",
    "List the labellings, and choose the one that numbers rest on.\n\n"
    "Unless one was chosen, numbers rest on the finished labelling that covers most, of two alike on the newest.\n\n"
    "Example: cimemories labellings --json",
)


@labellings.listing
def list_labellings(
    here: Here,
    use: Annotated[
        str | None, Option("--use", metavar="LABELLING", help="Let all numbers of its dataset rest on this one.")
    ] = None,
) -> None:
    from cimemories.answers import lists
    from cimemories.flows import catalogue

    if use is not None:
        catalogue.choose_labelling(here.record, use)
    here.listing(lists.labellings(here.record))


# ---- consensus


@cli.command("consensus")
def show_consensus(dataset: DatasetName, printing: Printing, labelling: LabellingOption = None) -> None:
    """Show which pairs have a consensus, and who dissents. Also why contexts are discarded, and the paper's Table 2.

    Example: cimemories consensus -d official --json
    """
    from cimemories.answers.consensus import consensus

    printing.answer(consensus(printing.record, dataset, _labelling(printing, dataset, labelling)))


# ---- rules


rules = group(
    "rules", "List a dataset's consensus rules; save, try, use or delete one.\n\nExample: cimemories rules -d official"
)
RuleName = Annotated[str, Option(help="Name of the rule; `paper` is the paper's.")]


@rules.listing
def list_rules(
    here: Here,
    dataset: Annotated[str | None, Option("--dataset", "-d", help="Dataset; `cimemories datasets` lists them.")] = None,
) -> None:
    from cimemories.answers import lists

    if dataset is None:
        raise typer.BadParameter("name a dataset: cimemories rules -d NAME")
    here.listing(lists.rules(here.record, here.dataset(dataset).id))


@rules.command("save")
def save_rule(
    here: Here,
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
    annotator: YourName = None,
    labelling: LabellingOption = None,
) -> None:
    """Save a consensus rule, and show its effect.

    A saved rule cannot be changed: save a new one.

    Example: cimemories rules save -d official --name lenient --threshold 0.9 --use
    """
    from cimemories.flows.labels import vote_counts
    from cimemories.labels.whatif import what_if

    row, effect, by_key = None, None, priors_by_key(priors or "")
    try:
        row = _labelling(here, dataset, labelling)
    except StoreError:
        # Without votes there is no effect to show; a rule with priors of its own can be saved all the same.
        if labelling is not None or priors is None:
            raise
    if row is not None:
        by_key = by_key or {p.key: p.prior for p in vote_counts(here.record, row.id).personas}
        effect = what_if(here.record, row.id, threshold, by_key, least_votes, both_lists, name)
        by_key = effect.after.prior_by_key
    saved, current = not dry_run, use and not dry_run
    if saved:
        with here.record.write() as connection:
            store_labellings.add_rule(
                connection,
                here.dataset(dataset).id,
                name,
                threshold=threshold,
                priors=by_key,
                annotator=annotator or getpass.getuser(),
                use=use,
                least_votes=least_votes,
                both_lists=both_lists,
            )
    state = {"name": name, "saved": saved, "current": current, "labelling": row and row.id}
    if here.result(state | (effect.as_json() if effect else {})):
        return
    output.note(f"'{name}': {'saved' if saved else 'not saved'}{', current' if current else ''}")
    if effect is not None:
        output.answer(effect)


@rules.command("use")
def use_rule(place: Place, dataset: DatasetName, name: RuleName) -> None:
    """Make a saved rule the current one.  Example: cimemories rules use -d official --name paper"""
    of = place.dataset(dataset).id
    with place.record.write() as connection:
        store_labellings.make_current_rule(connection, of, name)
    output.note(f"'{name}' is now the current rule of '{dataset}'")


@rules.command("delete")
def delete_rule(place: Place, dataset: DatasetName, name: RuleName) -> None:
    """Delete a saved rule.  Example: cimemories rules delete -d official --name lenient"""
    of = place.dataset(dataset).id
    with place.record.write() as connection:
        store_labellings.delete_rule(connection, of, name)
    output.note(f"'{name}' is deleted from '{dataset}'")


def _labelling(place: Place, dataset: str, labelling_id: str | None) -> LabellingRow:
    """Return the labelling of that id, or the newest finished one. Raises StoreError if there is none."""
    from cimemories.flows.labels import chosen_labelling

    row = chosen_labelling(place.record, place.dataset(dataset), labelling_id)
    if row is None:
        raise StoreError(f"'{dataset}' has no labels yet. Label it first: cimemories label -d {dataset} ...")
    return row


# ---- agreement


@labellings.command("agreement")
def show_agreement(dataset: DatasetName, printing: Printing) -> None:
    """Show how well the labellings of a dataset agree.  Example: cimemories labellings agreement -d official --json"""
    from cimemories.agreement.models import agreements

    printing.answer(agreements(printing.record, printing.dataset(dataset).id))


@cli.command("judges")
def show_judges(run_id: Run, printing: Printing, grounded: Grounded = False) -> None:
    """Show a run's judges, and how well they agree.  Example: cimemories judges run-3f9a"""
    from cimemories.answers.judges import judges
    from cimemories.flows.flows import Flows

    printing.answer(judges(Flows(printing.record), run_id, grounded=grounded))

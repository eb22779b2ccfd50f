"""Commands that let personas vote, and say what labels their votes became."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from typer import Option

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import (
    AsJson,
    DatasetName,
    LabellingOption,
    PlanOptions,
    Serve,
    WorkOptions,
    Workspace,
    grouped,
    open_record,
    options_of,
    priors_by_key,
)
from cimemories.cli.output import figure
from cimemories.cli.runs import print_plan
from cimemories.cli.work import work_on
from cimemories.curation.spec import LabellingSpec
from cimemories.store import datasets as store_datasets
from cimemories.store import labellings as store_labellings
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_store
from cimemories.text import count, exact_percent, percent

if TYPE_CHECKING:
    from cimemories.agreement.models import Agreement
    from cimemories.flows.labels import AppliedRule
    from cimemories.labels.survival import Contexts as ContextCounts
    from cimemories.labels.survival import Statistic, Survival
    from cimemories.labels.whatif import WhatIf
    from cimemories.metrics.warnings import FamilyCheck
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
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Show which pairs have a consensus, and who dissents. Also why contexts are discarded, and the paper's Table 2.

    Example: cimemories consensus -d official --json
    """
    from cimemories.flows.labels import unlabelled_text
    from cimemories.labels import survival
    from cimemories.metrics.warnings import family_warnings

    store = open_record(workspace)
    row = _labelling(store, dataset, labelling)
    result, contexts = survival.survival(store, row.id), survival.contexts(store, row.id)
    table2 = survival.table2(store, row.id)
    warnings = [item for item in family_warnings(store, row.id) if item.warning]
    if as_json:
        output.as_json(_consensus_json(dataset, row, result, contexts, table2, warnings))
        return
    _print_consensus(result, contexts, table2)
    if without := unlabelled_text(store, row):
        output.notes([f"{without}; Table 2 leaves them out"])
    if result.imported:
        output.notes(["imported as shares, no votes"])
    if row.simulated:
        output.notes(["simulated labels; they say nothing about any real model"])
    output.notes([result.rule.note])
    by_text: dict[str, list[str]] = {}
    for item in warnings:
        by_text.setdefault(str(item.warning), []).append(item.run_id)
    for text, (first, *others) in by_text.items():
        # Of all runs of a sweep it is the same sentence.
        more = f" and {count(len(others), 'other run')}" if others else ""
        output.note(f"warning: {first}{more}: {text}")


def _print_consensus(result: Survival, contexts: ContextCounts, table2: Sequence[Statistic]) -> None:
    from cimemories.labels.votes import GroupBy

    output.line(
        f"consensus of the personas on {percent(result.share)} of {count(result.pairs, 'labelled pair')} "
        f"({result.necessary:,} necessary, {result.inappropriate:,} inappropriate, {result.ambiguous:,} ambiguous); "
        f"{count(result.planned, 'pair')} in all"
    )
    if result.too_few:
        output.line(result.too_few_text)
    output.line(f"rule: {result.rule.name} ({result.rule.text})")
    for group_by in (GroupBy.DOMAIN, GroupBy.SPHERE):
        counts = ("necessary", "inappropriate", *["too_few"] * bool(result.too_few), "pairs")
        output.table(
            (group_by, ">consensus", *output.right(counts)),
            [
                (row["name"], percent(row["survival"]), *(row[count] for count in counts))
                for row in result.by[group_by].to_dict("records")
            ],
        )
    output.table(
        ("who dissents", "how", ">pairs", ">of ambiguous"),
        [(r["who"], r["how"], r["pairs"], percent(r["share"])) for r in result.dissent.to_dict("records")],
    )
    discarded = ", ".join(f"{n:,} {reason}" for reason, n in contexts.discarded.items())
    without = f"; {contexts.unlabelled:,} without a label" if contexts.unlabelled else ""
    output.line(f"contexts: {contexts.retained:,} retained; discarded: {discarded}{without}")
    output.table(
        ("Table 2", ">mean", ">sd", ">over", "published"),
        [
            (
                item.name,
                figure(item.mean),
                "" if item.sd is None else figure(item.sd),
                f"{item.over:,} {item.unit}",
                f"{item.published.figure} ({item.published.source})" if item.published else "",
            )
            for item in table2
        ],
    )


def _consensus_json(
    dataset: str,
    row: LabellingRow,
    result: Survival,
    contexts: ContextCounts,
    table2: Sequence[Statistic],
    warnings: Sequence[FamilyCheck],
) -> dict[str, object]:
    from cimemories.labels.survival import PAPER

    return {
        "dataset": dataset,
        "labelling": row.id,
        "model": row.model,
        "simulated": row.simulated,
        "imported": result.imported,
        "rule": _rule_json(result.rule),
        "pairs": {"planned": result.planned, "labelled": result.pairs}
        | output.attributes(result, "necessary inappropriate ambiguous")
        | {"too_few_votes": result.too_few, "unlabelled": result.unlabelled},
        "needed_votes": None if result.imported else {"least": result.needed[0], "most": result.needed[1]},
        "survival": result.share,
        "by": result.by,
        "dissent": result.dissent,
        "decisions": vars(result.decisions),
        "contexts": output.attributes(contexts, "retained discarded unlabelled"),
        "table2": [
            output.attributes(item, "name mean sd over unit")
            | {"published": item.published and {"figure": item.published.figure, "place": item.published.source}}
            for item in table2
        ],
        "published_in": PAPER,
        "warnings": [{"run": item.run_id, "model": item.model, "warning": item.warning} for item in warnings],
    }


# ---- rules


@cli.command("rules")
def list_rules(dataset: DatasetName, as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List a dataset's consensus rules; one is current.  Example: cimemories rules -d official --json"""
    with open_record(workspace).read() as connection:
        rows = store_labellings.all_rules(connection, store_datasets.named(connection, dataset).id)
    paper_is_current = not any(row.current for row in rows)
    if as_json:
        paper = {"name": store_labellings.PAPER_RULE, "threshold": 1.0, "priors": None, "current": paper_is_current}
        paper["least_votes"] = None
        plain = "name threshold priors current annotator created least_votes"
        named = [
            output.attributes(row, plain) | ({"both_lists": row.both_lists} if row.both_lists != "conflict" else {})
            for row in rows
        ]
        output.as_json([paper | {"annotator": None, "created": None}, *named])
        return
    text = store_labellings.least_text
    now = "current" if paper_is_current else ""
    paper_row = (store_labellings.PAPER_RULE, "100 %", "of the labelling", text(None), "", now)
    output.table(
        ("rule", ">threshold", "priors", "votes", "by", ""),
        [
            paper_row,
            *(
                (
                    row.name,
                    exact_percent(row.threshold),
                    ", ".join(f"{key} {exact_percent(prior)}" for key, prior in row.priors.items()),
                    text(row.least_votes) + ", both lists: necessary" * (row.both_lists == "necessary"),
                    row.annotator,
                    "current" if row.current else "",
                )
                for row in rows
            ),
        ],
    )


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
    with store.read() as connection:
        data = store_datasets.named(connection, dataset)
    if threshold is None:
        if priors is not None or least_votes is not None or both_lists != "conflict":
            option = "--least-votes" if least_votes is not None else "--both-lists"
            option = "--priors" if priors is not None else option
            raise StoreError(f"{option} needs --threshold: a saved rule cannot be changed. Save a new one.")
        change = store_labellings.delete_rule if delete else store_labellings.make_current_rule
        with store.write() as connection:
            change(connection, data.id, name)
        output.note(f"'{name}' is {'deleted from' if delete else 'now the current rule of'} '{dataset}'")
        return
    row, effect = _effect(store, dataset, labelling, threshold, priors, least_votes, both_lists)
    if not dry_run:
        with store.write() as connection:
            store_labellings.add_rule(
                connection,
                data.id,
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
        output.as_json(state | (_effect_json(effect, name) if effect else {}))
        return
    output.note(f"'{name}': {'saved' if saved else 'not saved'}{', current' if current else ''}")
    if effect is not None:
        _print_effect(effect)


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
    return row, what_if(store, row.id, threshold, by_key, least_votes, both_lists)


def _print_effect(effect: WhatIf) -> None:
    from cimemories.labels.votes import GroupBy

    output.line(
        f"{effect.changed:,} of {count(effect.pairs, 'pair')} with votes change; consensus on "
        f"{percent(effect.survival_before)} -> {percent(effect.survival_after)}"
    )
    for before, after, pairs in effect.changes:
        output.line(f"  {pairs:,} {before} -> {after}")
    output.table(
        ("domain", ">pairs", ">change", ">before", ">after"),
        [
            (r["name"], r["pairs"], r["changed"], percent(r["survival_before"]), percent(r["survival_after"]))
            for r in effect.by[GroupBy.DOMAIN].to_dict("records")
        ],
    )


def _effect_json(effect: WhatIf, name: str) -> dict[str, object]:
    return {
        "before": _rule_json(effect.before),
        "after": _rule_json(effect.after) | {"name": name},
        **output.attributes(effect, "pairs changed decided survival_before survival_after"),
        "too_few_votes": {"before": effect.too_few_before, "after": effect.too_few_after},
        "changes": [{"from": before, "to": after, "pairs": pairs} for before, after, pairs in effect.changes],
        "by": effect.by,
    }


def _rule_json(rule: AppliedRule) -> dict[str, object]:
    return rule.as_json() | {"note": rule.note or None}


# ---- agreement


@cli.command("agreement")
def show_agreement(dataset: DatasetName, as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Show how well the labellings of a dataset agree.  Example: cimemories agreement -d official --json"""
    from cimemories.agreement.models import agreements

    store = open_record(workspace)
    with store.read() as connection:
        data = store_datasets.named(connection, dataset)
    results = agreements(store, data.id)
    if as_json:
        output.as_json([_agreement_json(item) for item in results])
        return
    if not results:
        output.note(f"'{dataset}' has fewer than two labellings, so there is nothing to compare.")
        return
    output.table(
        ("first", "second", ">same label", ">pairs", ">kappa", ""),
        [
            (
                f"{item.first.model} ({item.first.id})",
                f"{item.second.model} ({item.second.id})",
                percent(item.share),
                item.pairs,
                figure(item.kappa),
                output.mark(item.first.simulated or item.second.simulated),
            )
            for item in results
        ],
    )


def _agreement_json(item: Agreement) -> dict[str, object]:
    from cimemories.agreement.models import ORDER
    from cimemories.flows.labels import LABELS

    return {
        "first": {"labelling": item.first.id, "model": item.first.model, "simulated": item.first.simulated},
        "second": {"labelling": item.second.id, "model": item.second.model, "simulated": item.second.simulated},
        "rules": [_rule_json(rule) for rule in item.rules],
        **output.attributes(item, "pairs only_first only_second same share kappa"),
        "labels": [LABELS[code] for code in ORDER],
        "confusion": item.confusion,
        "by_domain": item.by_domain,
        "differing": len(item.differing),
    }

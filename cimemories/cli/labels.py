"""Commands that let personas vote, and that say what became of the votes."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import (
    AllowMissing,
    AsJson,
    BaseUrl,
    Concurrency,
    Contexts,
    DatasetName,
    KeyEnv,
    LabellingOption,
    Model,
    Profiles,
    Seed,
    Temperature,
    Timeout,
    TokenLimit,
    Workspace,
    priors_by_key,
    token_limit,
)
from cimemories.cli.work import work_on
from cimemories.store import datasets as store_datasets
from cimemories.store import labellings as store_labellings
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_store
from cimemories.store.labellings import LabellingRow
from cimemories.text import exact_percent, percent

if TYPE_CHECKING:
    import pandas as pd

    from cimemories.agreement.models import Agreement
    from cimemories.flows.labels import AppliedRule
    from cimemories.labels.survival import Contexts as ContextCounts
    from cimemories.labels.survival import Statistic, Survival
    from cimemories.labels.whatif import WhatIf
    from cimemories.metrics.headline import FamilyCheck
    from cimemories.store.labellings import LabellingRow, RuleRow


@cli.command()
def label(
    dataset: DatasetName,
    model: Model,
    base_url: BaseUrl,
    draws: Annotated[int, typer.Option("--draws", min=1, help="Votes of each persona on each pair.")] = 10,
    personas: Annotated[str, typer.Option("--personas", help="Pack of personas; `cimemories packs` lists them.")] = (
        "westin"
    ),
    profiles: Profiles = None,
    contexts: Contexts = None,
    api_key_env: KeyEnv = "OPENAI_API_KEY",
    temperature: Temperature = None,
    max_tokens: TokenLimit = "2048",
    seed: Seed = None,
    timeout: Timeout = 120.0,
    allow_missing: AllowMissing = 0.0,
    concurrency: Concurrency = 32,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Let the personas vote; prints the labelling's id.

    Example: cimemories label -d official -m gpt-oss-120b --base-url http://localhost:8000/v1 --draws 10
    """
    from cimemories.curation import labelling as curation_labelling
    from cimemories.llm.endpoint import allow_key

    allow_key(api_key_env, base_url)
    store = open_store(workspace)
    spec = curation_labelling.LabellingSpec(
        dataset=dataset,
        model=model,
        base_url=base_url,
        draws=draws,
        profiles=profiles,
        contexts=contexts,
        api_key_env=api_key_env,
        temperature=temperature,
        max_tokens=token_limit(max_tokens),
        seed=seed,
        timeout=timeout,
        personas=personas,
    )
    work_on(store, curation_labelling.plan(store, spec), concurrency, allow_missing=allow_missing)


@cli.command()
def labellings(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the labellings with their status.  Example: cimemories labellings --json"""
    store = open_store(workspace)
    with store.read() as connection:
        rows = store_labellings.all_rows(connection)
        names = {row.id: row.name for row in store_datasets.all_rows(connection)}
    if as_json:
        found = [
            {
                "id": r.id,
                "name": f"{r.model} on {names[r.dataset]}",
                "dataset": names[r.dataset],
                "model": r.model,
                "draws": r.draws,
                "counts": {"expected": r.expected, **r.ballots},
                "status": str(r.status),
                "error": r.error,
                "simulated": r.simulated,
            }
            for r in rows
        ]
        output.line(output.as_json_text(found))
        return
    output.table(
        [
            ("id", False),
            ("dataset", False),
            ("model", False),
            ("status", False),
            ("ballots", True),
            ("of", True),
            ("", False),
        ],
        [
            (
                r.id,
                names[r.dataset],
                r.model,
                r.status,
                r.ballots.get("ok", 0),
                r.expected,
                "simulated" if r.simulated else "",
            )
            for r in rows
        ],
    )


@cli.command()
def survival(
    dataset: DatasetName,
    labelling: LabellingOption = None,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Share of pairs with a consensus, who dissents, contexts discarded and why, and the statistics of Table 2.

    Example: cimemories survival -d official --json
    """
    from cimemories.labels.survival import contexts as survival_contexts
    from cimemories.labels.survival import survival as measure
    from cimemories.labels.survival import table2
    from cimemories.metrics import headline

    store = open_store(workspace)
    row = _labelling(store, dataset, labelling)
    show_survival(
        dataset,
        row,
        measure(store, row.id),
        survival_contexts(store, row.id),
        table2(store, row.id),
        [item for item in headline.family_warnings(store, row.id) if item.warning],
        as_json,
    )


@cli.command("rules")
def list_rules(dataset: DatasetName, as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the named rules of a dataset and say which is current.  Example: cimemories rules -d official --json"""
    from cimemories.store import datasets as store_datasets
    from cimemories.store import labellings as store_labellings

    with open_store(workspace).read() as connection:
        rows = store_labellings.all_rules(connection, store_datasets.named(connection, dataset).id)
    show_rules(rows, as_json)


@cli.command()
def rule(
    dataset: DatasetName,
    name: Annotated[str, typer.Option("--name", help="Of the rule; `paper` is the paper's.")],
    threshold: Annotated[
        float | None, typer.Option("--threshold", help="Above 0.5, at most 1; left out: use or delete a rule.")
    ] = None,
    priors: Annotated[
        str | None,
        typer.Option("--priors", help="E.g. fundamentalist=0.3,pragmatic=0.6,unconcerned=0.1; the labelling's if not."),
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Make it the rule that labels rest on.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the rule of this name.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would change, and save nothing.")] = False,
    annotator: Annotated[str | None, typer.Option("--annotator", help="Who sets it; your login by default.")] = None,
    labelling: LabellingOption = None,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Save a named rule, try it, use it or delete it.

    Example: cimemories rule -d official --name lenient --threshold 0.9 --use

    Back to the paper's: cimemories rule -d official --name paper --use
    """
    from cimemories.store import datasets as store_datasets
    from cimemories.store import labellings as store_labellings

    if threshold is None and (dry_run or not (use or delete)):
        raise StoreError("say what to do: --threshold with a number for a new rule, or --use, or --delete.")
    if delete and (threshold is not None or use):
        raise StoreError("--delete goes with neither --threshold nor --use.")
    store = open_store(workspace)
    with store.read() as connection:
        data = store_datasets.named(connection, dataset)
    if threshold is None:
        if priors is not None:
            raise StoreError("--priors needs --threshold: a rule that is saved is not changed. Save a new one.")
        with store.write() as connection:
            (store_labellings.delete_rule if delete else store_labellings.make_current_rule)(connection, data.id, name)
        output.note(f"'{name}' is {'deleted' if delete else 'now the rule'} of '{dataset}'")
        return
    row, effect = _effect(store, dataset, labelling, threshold, priors)
    wanted = effect.after.prior_by_key if effect else priors_by_key(priors or "")
    if not dry_run:
        with store.write() as connection:
            store_labellings.add_rule(
                connection,
                data.id,
                name,
                threshold=threshold,
                priors=wanted,
                annotator=annotator or getpass.getuser(),
                use=use,
            )
    show_effect(row, effect, as_json, name=name, saved=not dry_run, current=use and not dry_run)


@cli.command("agreement")
def agreement_(dataset: DatasetName, as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """How far the labellings of a dataset agree with one another, models with models.

    Example: cimemories agreement -d official --json
    """
    from cimemories.agreement.models import agreements
    from cimemories.store import datasets as store_datasets

    store = open_store(workspace)
    with store.read() as connection:
        data = store_datasets.named(connection, dataset)
    found = agreements(store, data.id)
    show_agreements(dataset, found, as_json)


def _labelling(store: Store, dataset: str, labelling_id: str | None) -> LabellingRow:
    """The labelling asked for. Raises StoreError where the dataset has none, or not that one."""
    from cimemories.flows.labels import default_labelling
    from cimemories.store import datasets as store_datasets
    from cimemories.store import labellings as store_labellings

    with store.read() as connection:
        data = store_datasets.named(connection, dataset)
        rows = {row.id: row for row in store_labellings.all_rows(connection, data.id)}
    row = rows.get(labelling_id) if labelling_id else default_labelling(store, data.id)
    if row is None and labelling_id:
        raise StoreError(f"'{dataset}' has no labelling '{labelling_id}'. It has: {', '.join(rows) or 'none yet'}.")
    if row is None:
        raise StoreError(f"'{dataset}' has no labels yet. Label it first: cimemories label -d {dataset} ...")
    return row


def _effect(
    store: Store, dataset: str, labelling_id: str | None, threshold: float, priors: str | None
) -> tuple[LabellingRow | None, WhatIf | None]:
    """What the rule would do to a labelling; (None, None) where there is none yet and the priors are given."""
    from cimemories.flows.labels import vote_counts
    from cimemories.labels.whatif import what_if

    try:
        row = _labelling(store, dataset, labelling_id)
    except StoreError:
        if labelling_id is not None or priors is None:
            raise
        return None, None
    wanted = priors_by_key(priors) if priors else {p.key: p.prior for p in vote_counts(store, row.id).personas}
    return row, what_if(store, row.id, threshold, wanted)


def show_survival(
    dataset: str,
    row: LabellingRow,
    found: Survival,
    kept: ContextCounts,
    lines: Sequence[Statistic],
    kin: Sequence[FamilyCheck],
    as_json: bool,
) -> None:
    """Everything about one labelling, its warnings last."""
    from cimemories.labels.votes import GroupBy

    if as_json:
        output.line(output.as_json_text(_survival_object(dataset, row, found, kept, lines, kin)))
        return
    output.line(
        f"survival {percent(found.share)} of {found.pairs:,} labelled pairs "
        f"({found.necessary:,} necessary, {found.inappropriate:,} inappropriate, {found.ambiguous:,} ambiguous); "
        f"{found.planned:,} pairs in all"
    )
    output.line(f"rule: {found.rule.name} ({found.rule.words})")
    _shares("domain", found.by[GroupBy.DOMAIN])
    _shares("sphere", found.by[GroupBy.SPHERE])
    output.table(
        [("who dissents", False), ("how", False), ("pairs", True), ("of ambiguous", True)],
        [(r["who"], r["how"], f"{r['pairs']:,}", percent(r["share"])) for r in output.records(found.dissent)],
    )
    discarded = ", ".join(f"{n:,} {reason}" for reason, n in kept.discarded.items())
    output.line(f"contexts: {kept.retained:,} retained; discarded: {discarded}")
    output.table(
        [("Table 2", False), ("mean", True), ("sd", True), ("over", True), ("published", False)],
        [
            (
                line.name,
                output.figure(line.mean),
                "" if line.sd is None else output.figure(line.sd),
                f"{line.over:,} {line.unit}",
                f"{line.published.figure} ({line.published.place})" if line.published else "",
            )
            for line in lines
        ],
    )
    if found.imported:
        output.note("note: imported as shares, no votes")
    if row.simulated:
        output.note("note: simulated labels; they say nothing about any real model")
    if found.rule.note:
        output.note(f"note: {found.rule.note}")
    for item in kin:
        output.note(f"warning: {item.run_id}: {item.warning}")


def _survival_object(
    dataset: str,
    row: LabellingRow,
    found: Survival,
    kept: ContextCounts,
    lines: Sequence[Statistic],
    kin: Sequence[FamilyCheck],
) -> dict[str, object]:
    from cimemories.labels.survival import PAPER

    return {
        "dataset": dataset,
        "labelling": row.id,
        "model": row.model,
        "simulated": row.simulated,
        "imported": found.imported,
        "rule": _rule(found.rule),
        "pairs": {
            "planned": found.planned,
            "labelled": found.pairs,
            "necessary": found.necessary,
            "inappropriate": found.inappropriate,
            "ambiguous": found.ambiguous,
        },
        "survival": output.number(found.share),
        "by": {str(group_by): output.records(frame) for group_by, frame in found.by.items()},
        "dissent": output.records(found.dissent),
        "decisions": vars(found.decisions),
        "contexts": {"retained": kept.retained, "discarded": kept.discarded},
        "table2": [
            {
                "name": line.name,
                "mean": output.number(line.mean),
                "sd": None if line.sd is None else output.number(line.sd),
                "over": line.over,
                "unit": line.unit,
                "published": line.published and {"figure": line.published.figure, "place": line.published.place},
            }
            for line in lines
        ],
        "published_in": PAPER,
        "warnings": [{"run": item.run_id, "model": item.model, "warning": item.warning} for item in kin],
    }


def show_rules(rows: Sequence[RuleRow], as_json: bool) -> None:
    """The paper's rule and the named ones."""
    from cimemories.store.labellings import PAPER_RULE

    paper = not any(row.current for row in rows)
    if as_json:
        named = [
            {
                "name": row.name,
                "threshold": row.threshold,
                "priors": row.priors,
                "current": row.current,
                "annotator": row.annotator,
                "created": row.created,
            }
            for row in rows
        ]
        first = {"name": PAPER_RULE, "threshold": 1.0, "priors": None, "current": paper}
        output.line(output.as_json_text([{**first, "annotator": None, "created": None}, *named]))
        return
    output.table(
        [("rule", False), ("threshold", True), ("priors", False), ("by", False), ("", False)],
        [
            (PAPER_RULE, "100 %", "of the labelling", "", "current" if paper else ""),
            *(
                (
                    row.name,
                    exact_percent(row.threshold),
                    ", ".join(f"{key} {prior:.4g}" for key, prior in row.priors.items()),
                    row.annotator,
                    "current" if row.current else "",
                )
                for row in rows
            ),
        ],
    )


def show_effect(
    row: LabellingRow | None, found: WhatIf | None, as_json: bool, *, name: str, saved: bool, current: bool
) -> None:
    """What a rule does to a labelling, and what has become of the rule."""
    from cimemories.labels.votes import GroupBy

    if as_json:
        answer: dict[str, object] = {"name": name, "saved": saved, "current": current, "labelling": row and row.id}
        if found is not None:
            answer |= {
                "before": _rule(found.before),
                "after": _rule(found.after) | {"name": name},
                "pairs": found.pairs,
                "changed": found.changed,
                "decided": found.decided,
                "survival_before": output.number(found.survival_before),
                "survival_after": output.number(found.survival_after),
                "changes": [{"from": a, "to": b, "pairs": n} for a, b, n in found.changes],
                "by": {str(group_by): output.records(frame) for group_by, frame in found.by.items()},
            }
        output.line(output.as_json_text(answer))
        return
    output.note(f"'{name}': {'saved' if saved else 'not saved'}{', current' if current else ''}")
    if found is None:
        return
    output.line(
        f"{found.changed:,} of {found.pairs:,} labelled pairs change; survival "
        f"{percent(found.survival_before)} -> {percent(found.survival_after)}"
    )
    for a, b, n in found.changes:
        output.line(f"  {n:,} {a} -> {b}")
    changed = found.by[GroupBy.DOMAIN]
    output.table(
        [("domain", False), ("pairs", True), ("change", True), ("before", True), ("after", True)],
        [
            (
                r["name"],
                f"{r['pairs']:,}",
                f"{r['changed']:,}",
                percent(r["survival_before"]),
                percent(r["survival_after"]),
            )
            for r in output.records(changed)
        ],
    )


def show_agreements(dataset: str, found: Sequence[Agreement], as_json: bool) -> None:
    """Every two labellings side by side."""
    if as_json:
        output.line(output.as_json_text([_agreement(item) for item in found]))
        return
    if not found:
        output.note(f"'{dataset}' has fewer than two labellings, so there is nothing to compare.")
        return
    output.table(
        [("first", False), ("second", False), ("same label", True), ("pairs", True), ("kappa", True), ("", False)],
        [
            (
                f"{item.first.model} ({item.first.id})",
                f"{item.second.model} ({item.second.id})",
                percent(item.share),
                f"{item.pairs:,}",
                output.figure(item.kappa),
                "simulated" if item.first.simulated or item.second.simulated else "",
            )
            for item in found
        ],
    )


def _agreement(item: Agreement) -> dict[str, object]:
    from cimemories.agreement.models import ORDER
    from cimemories.curation.consensus import LABELS

    return {
        "first": {"labelling": item.first.id, "model": item.first.model, "simulated": item.first.simulated},
        "second": {"labelling": item.second.id, "model": item.second.model, "simulated": item.second.simulated},
        "rules": [_rule(rule) for rule in item.rules],
        "pairs": item.pairs,
        "only_first": item.only_first,
        "only_second": item.only_second,
        "same": item.same,
        "share": output.number(item.share),
        "kappa": output.number(item.kappa),
        "labels": [str(LABELS[code]) for code in ORDER],
        "confusion": item.confusion.tolist(),
        "by_domain": output.records(item.by_domain),
        "differing": len(item.differing),
    }


def _rule(rule: AppliedRule) -> dict[str, object]:
    return {"name": rule.name, "threshold": rule.threshold, "priors": rule.prior_by_key, "note": rule.note or None}


def _shares(title: str, frame: pd.DataFrame) -> None:
    output.table(
        [(title, False), ("survival", True), ("necessary", True), ("inappropriate", True), ("pairs", True)],
        [
            (
                r["name"],
                percent(r["survival"]),
                f"{r['necessary']:,}",
                f"{r['inappropriate']:,}",
                f"{r['pairs']:,}",
            )
            for r in output.records(frame)
        ],
    )

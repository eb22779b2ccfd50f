"""Commands about what votes became: survival, the rules that make labels, and how labellings agree."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Annotated

import typer

from cimemories.cli import labels_output, output
from cimemories.cli.base import AsJson, DatasetName, Workspace, cli
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_store
from cimemories.store.labellings import LabellingRow

if TYPE_CHECKING:
    from cimemories.analysis.whatif import WhatIf

Labelling = Annotated[
    str | None, typer.Option("--labelling", "-L", help="Id of a labelling; the newest finished one by default.")
]


@cli.command()
def survival(
    dataset: DatasetName,
    labelling: Labelling = None,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Share of pairs with a consensus, who dissents, contexts discarded and why, and the statistics of Table 2.

    Example: cimemories survival -d official --json
    """
    from cimemories.analysis import families
    from cimemories.analysis.survival import contexts
    from cimemories.analysis.survival import survival as measure
    from cimemories.analysis.table2 import table2

    store = open_store(workspace)
    row = _labelling(store, dataset, labelling)
    labels_output.survival(
        dataset,
        row,
        measure(store, row.id),
        contexts(store, row.id),
        table2(store, row.id),
        [item for item in families.warnings(store, row.id) if item.warning],
        as_json,
    )


@cli.command("rules")
def list_rules(dataset: DatasetName, as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the named rules of a dataset and say which is current.  Example: cimemories rules -d official --json"""
    from cimemories.store import datasets, rules

    with open_store(workspace).read() as connection:
        rows = rules.all_rows(connection, datasets.named(connection, dataset).id)
    labels_output.rules(rows, as_json)


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
    labelling: Labelling = None,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Save a named rule, try it, use it or delete it.

    Example: cimemories rule -d official --name lenient --threshold 0.9 --use

    Back to the paper's: cimemories rule -d official --name paper --use
    """
    from cimemories.store import datasets, rules

    if threshold is None and (dry_run or not (use or delete)):
        raise StoreError("say what to do: --threshold with a number for a new rule, or --use, or --delete.")
    if delete and (threshold is not None or use):
        raise StoreError("--delete goes with neither --threshold nor --use.")
    store = open_store(workspace)
    with store.read() as connection:
        data = datasets.named(connection, dataset)
    if threshold is None:
        if priors is not None:
            raise StoreError("--priors needs --threshold: a rule that is saved is not changed. Save a new one.")
        with store.write() as connection:
            (rules.delete if delete else rules.make_current)(connection, data.id, name)
        output.note(f"'{name}' is {'deleted' if delete else 'now the rule'} of '{dataset}'")
        return
    row, effect = _effect(store, dataset, labelling, threshold, priors)
    wanted = effect.after.prior_by_key if effect else priors_by_key(priors or "")
    if not dry_run:
        with store.write() as connection:
            rules.add(
                connection,
                data.id,
                name,
                threshold=threshold,
                priors=wanted,
                annotator=annotator or getpass.getuser(),
                use=use,
            )
    labels_output.effect(row, effect, as_json, name=name, saved=not dry_run, current=use and not dry_run)


@cli.command("agreement")
def agreement_(dataset: DatasetName, as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """How far the labellings of a dataset agree with one another, models with models.

    Example: cimemories agreement -d official --json
    """
    from cimemories.analysis.labellings_agreement import agreements
    from cimemories.store import datasets

    store = open_store(workspace)
    with store.read() as connection:
        data = datasets.named(connection, dataset)
    found = agreements(store, data.id)
    labels_output.agreements(dataset, found, as_json)


def _labelling(store: Store, dataset: str, labelling_id: str | None) -> LabellingRow:
    """The labelling asked for. Raises StoreError where the dataset has none, or not that one."""
    from cimemories.analysis.labels import default_labelling
    from cimemories.store import datasets, labellings

    with store.read() as connection:
        data = datasets.named(connection, dataset)
        rows = {row.id: row for row in labellings.all_rows(connection, data.id)}
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
    from cimemories.analysis.labels import vote_counts
    from cimemories.analysis.whatif import what_if

    try:
        row = _labelling(store, dataset, labelling_id)
    except StoreError:
        if labelling_id is not None or priors is None:
            raise
        return None, None
    wanted = priors_by_key(priors) if priors else {p.key: p.prior for p in vote_counts(store, row.id).personas}
    return row, what_if(store, row.id, threshold, wanted)


def priors_by_key(text: str) -> dict[str, float]:
    """'a=0.3,b=0.7' as numbers by key. Raises StoreError that quotes the part which is none."""
    found: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, _, number = (piece.strip() for piece in part.partition("="))
        try:
            value = float(number)
        except ValueError:
            raise StoreError(f"--priors: '{part}' is no KEY=NUMBER, e.g. pragmatic=0.64.") from None
        if not key or key in found:
            raise StoreError(f"--priors: '{part}' names no persona, or one that was named before.")
        found[key] = value
    return found

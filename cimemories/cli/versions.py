"""Commands about the versions of a dataset: what there are, freezing one, and its card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import AsJson, Workspace, cli
from cimemories.store import private
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_store
from cimemories.store.versions import Version

Dataset = Annotated[str, typer.Argument(help="Name of the dataset; `cimemories datasets` lists them.")]
Labelling = Annotated[
    str | None, typer.Option("--labelling", "-l", help="Whose votes; left out: those that numbers rest on.")
]


@cli.command()
def freeze(
    dataset: Dataset,
    by: Annotated[str, typer.Option("--by", help="Your name.")],
    labelling: Labelling = None,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Freeze a dataset: it is edited in place no more, and a hash says what it held.

    Example: cimemories freeze mine --by Ada
    """
    from cimemories.analysis import freezing
    from cimemories.analysis.labels import default_labelling
    from cimemories.store import datasets

    store = open_store(workspace)
    with store.read() as connection:
        row = datasets.named(connection, dataset)
    chosen = default_labelling(store, row.id)
    done = freezing.freeze(store, row.id, labelling_id=labelling or (chosen.id if chosen else None), annotator=by)
    if as_json:
        output.line(output.as_json_text({"dataset": dataset, **vars(done)}))
        return
    covered = ("profiles", "attributes", "votes", "decisions")
    counts = ", ".join(f"{int(done.counts[name]):,} {name}" for name in covered)
    output.note(f"frozen '{dataset}' with {counts}, labels of {done.labelling or 'nobody'}")
    output.line(done.hash)


@cli.command()
def versions(
    dataset: Dataset,
    check: Annotated[bool, typer.Option("--check", help="Hash what is frozen again; 1 where it differs.")] = False,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """List the versions of a dataset, what is frozen and what has changed since.  Example: cimemories versions mine"""
    from cimemories.store import datasets
    from cimemories.store import versions as version_rows

    store = open_store(workspace)
    with store.read() as connection:
        row = datasets.named(connection, dataset)
        members = version_rows.family(connection, row.id)
    described = [_described(store, item) for item in members]
    if as_json:
        output.line(output.as_json_text(described))
    else:
        columns = [("version", True), ("name", False), ("made from", False), ("changes", True), ("content", False)]
        rows = [(d["version"], d["name"], d["parent"] or "", d["changes"], str(d["content"])[:8]) for d in described]
        frozen = [d["frozen_words"] or "open" for d in described]
        output.table([*columns, ("", False)], [(*cells, words) for cells, words in zip(rows, frozen, strict=True)])
    if check:
        _check(store, members)


def _described(store: Store, item: Version) -> dict[str, object]:
    from cimemories.analysis import freezing
    from cimemories.store import datasets, edits, runs
    from cimemories.store import versions as version_rows

    frozen = freezing.frozen(store, item.dataset)
    with store.read() as connection:
        names = {member.dataset: member.name for member in version_rows.family(connection, item.dataset)}
        content = datasets.dataset_hash(connection, item.dataset)
        changes = edits.history(connection, item.dataset)
        ran = runs.all_rows(connection, item.dataset)
    return {
        "name": item.name,
        "version": item.version,
        "parent": names.get(item.parent) if item.parent is not None else None,
        "created": item.created,
        "content": content,
        "changes": len(changes),
        "frozen": frozen.row.hash if frozen else None,
        "frozen_by": frozen.row.annotator if frozen else None,
        "frozen_words": frozen.words if frozen else None,
        "since": list(frozen.since) if frozen else [],
        "runs": [
            {"id": r.id, "name": r.name, "content": r.dataset_hash, "same": r.dataset_hash == content} for r in ran
        ],
    }


def _check(store: Store, members: list[Version]) -> None:
    from cimemories.analysis import freezing

    differing = []
    for item in members:
        if item.frozen is not None and freezing.present_hash(store, item.dataset) != item.frozen:
            differing.append(item.name)
    if differing:
        raise StoreError(f"no longer what was frozen: {', '.join(differing)}. See what has come since with --json.")
    output.note("every frozen version holds what it was frozen with")


@cli.command()
def card(
    dataset: Dataset,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write; left out: printed.")] = None,
    licence: Annotated[str, typer.Option("--licence", help="What the card says of it, for data of your own.")] = "",
    labelling: Labelling = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Write the dataset card (Markdown).  Example: cimemories card mine --out card.md --licence "CC BY 4.0" """
    from cimemories.analysis.card import dataset_card

    text = dataset_card(open_store(workspace), dataset, licence=licence, labelling_id=labelling)
    if out is None:
        output.line(text.rstrip("\n"))
        return
    with private.written_for_user(out, workspace):
        out.write_text(text, encoding="utf-8")
    output.note(f"wrote {out}")

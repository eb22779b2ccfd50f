"""The command that lists the packs of contexts and personas, and checks one that somebody writes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import AsJson, DatasetName, Workspace, cli
from cimemories.seeds import PersonaPack, SeedError, packs
from cimemories.store.engine import DEFAULT_WORKSPACE


@cli.command("packs")
def list_packs(
    check: Annotated[
        Path | None, typer.Option("--check", help="Check this file instead, and say where it belongs.")
    ] = None,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """List the packs of contexts and personas, or check one of your own.

    Example: cimemories packs --check my-town.yaml
    """
    if check is not None:
        _check(check, workspace, as_json)
        return
    found = [_described(file, workspace) for kind in packs.KINDS for file in packs.pack_files(kind, workspace)]
    if as_json:
        output.line(output.as_json_text(found))
    else:
        _table(found)
        output.note(
            f"Packs of your own go into {packs.folder_of(workspace, 'contexts').parent}/contexts and /personas."
        )
    broken = [str(entry["error"]) for entry in found if entry["error"]]
    for error in broken:
        output.note(f"cannot be used: {error}")
    if broken:
        raise typer.Exit(1)


def _table(found: list[dict[str, object]]) -> None:
    output.table(
        [("pack", False), ("of", False), ("entries", True), ("from", False), ("what it is", False)],
        [
            (
                entry["name"],
                entry["kind"],
                "–" if entry["entries"] is None else entry["entries"],
                "project" if entry["shipped"] else "workspace",
                f"{entry['title'] or ''}{' (default)' if entry['default'] else ''}",
            )
            for entry in found
        ],
    )


def _described(file: packs.PackFile, workspace: Path) -> dict[str, object]:
    """One pack for the list; a file that does not fit is listed with its error and without entries."""
    entry: dict[str, object] = {
        "kind": file.kind,
        "name": file.name,
        "title": None,
        "entries": None,
        "shipped": file.shipped,
        "default": file.default,
        "path": str(file.path),
        "error": None,
    }
    try:
        return entry | _content(packs.load_pack(file, workspace))
    except SeedError as error:
        return entry | {"error": str(error)}


def _content(pack: packs.ContextPack | PersonaPack) -> dict[str, object]:
    told: dict[str, object] = {"title": pack.title, "about": pack.about}
    if isinstance(pack, PersonaPack):
        priors = {persona.key: persona.prior for persona in pack.personas}
        return told | {"entries": len(pack.personas), "priors": priors, "priors_from": pack.priors_from}
    return told | {"entries": len(pack.contexts), "spheres": dict(Counter(c.sphere for c in pack.contexts))}


def _check(path: Path, workspace: Path, as_json: bool) -> None:
    kind, pack = packs.read_any(path)
    place = packs.folder_of(workspace, kind) / f"{pack.name}.yaml"
    taken = [f.path for f in packs.pack_files(kind, workspace) if f.name == pack.name and not _same(f.path, path)]
    if taken:
        raise SeedError(f"{path}: there is a pack named '{pack.name}' already ({taken[0]}). Give this one another name")
    content = _content(pack)
    if as_json:
        output.line(output.as_json_text({"kind": kind, "name": pack.name, "belongs": str(place), **content}))
        return
    output.line(f"{path}: fits, a pack of {content['entries']} {kind} named '{pack.name}'")
    if not _same(path, place):
        output.note(f"To use it, put it at {place}")


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


@cli.command()
def contexts(
    dataset: DatasetName,
    add: Annotated[str | None, typer.Option("--add", help="Add this pack's contexts to all its profiles.")] = None,
    annotator: Annotated[str, typer.Option("--annotator", help="Whose name the history gives.")] = "command line",
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """List a dataset's contexts, or add a pack to a dataset on which nothing rests yet.

    Example: cimemories contexts -d mine --add germany
    """
    from cimemories.store import datasets
    from cimemories.store.engine import open_store

    store = open_store(workspace)
    if add is not None:
        from cimemories.curation.adding_packs import add_pack

        done = add_pack(store, dataset, add, annotator=annotator)
        output.note(f"{done.new} contexts of '{add}' added to '{dataset}', {done.there} were there already")
    with store.read() as connection:
        rows = datasets.contexts(connection, datasets.named(connection, dataset).id)
    found = [(row.context.sphere or "", row.context.recipient, row.context.task) for row in rows]
    if as_json:
        output.line(output.as_json_text([{"sphere": s or None, "recipient": r, "task": t} for s, r, t in found]))
    else:
        output.table([("sphere", False), ("recipient", False), ("task", False)], found)

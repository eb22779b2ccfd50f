"""Commands that read and write files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import (
    AsJson,
    Workspace,
    cli,
)
from cimemories.store import private
from cimemories.store.engine import DEFAULT_WORKSPACE, open_store


@cli.command("import")
def import_(
    file: Annotated[
        Path, typer.Argument(help="Profiles (JSON), results (JSON lines), columns (Parquet, CSV) or a bundle.")
    ],
    dataset: Annotated[str | None, typer.Option("--dataset", "-d", help="Name; the file's by default.")] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", help="profiles, labelled, huggingface, bundle or results; recognised by content if left out."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Of results: what wrote them; the file's name if left out.")
    ] = None,
    judge: Annotated[str | None, typer.Option("--judge-model", help="Of results: what judged them.")] = None,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Import a dataset, or the results of runs, all of a file or nothing.

    Example: cimemories import profiles.json --dataset official; cimemories import results.jsonl --model qwen3-32b
    """
    from cimemories.evaluation import importing_files
    from cimemories.formats import importing

    kind = next((kind for kind in importing.KINDS if kind == form), None)
    if form is not None and kind is None:
        raise typer.BadParameter(f"'{form}' is none of {', '.join(importing.KINDS)}", param_hint="--format")
    outcome = importing_files.import_file(open_store(workspace), file, dataset, kind, model=model, judge=judge)
    output.imported(outcome, as_json)


@cli.command()
def export(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="Name of the dataset, or id of a run for results.")],
    form: Annotated[
        str, typer.Option("--format", help="official, labelled, huggingface, bundle-jsonl, bundle-parquet or results.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write; a bundle without .zip is a folder.")],
    labelling: Annotated[
        str | None, typer.Option("--labelling", "-l", help="Whose labels; the newest finished one if left out.")
    ] = None,
    calls: Annotated[
        bool, typer.Option("--calls/--no-calls", help="Whether a bundle holds the recorded calls.")
    ] = True,
    judge: Annotated[
        int | None, typer.Option("--judge", help="Of results: id of the judge; the run's first one if left out.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Write over a file that is there.")] = False,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Write a dataset to a file, or a run in the layout of the authors' results.

    Example: cimemories export official --format bundle-parquet --out official.zip;
    cimemories export run-3f9a1c2e --format results --out results.jsonl
    """
    from cimemories.analysis import exporting, exporting_results

    kind = next((kind for kind in exporting.FORMATS if kind == form), None)
    if kind is None and form != "results":
        raise typer.BadParameter(f"'{form}' is none of {', '.join(exporting.FORMATS)}, results", param_hint="--format")
    store = open_store(workspace)
    with private.written_for_user(out, workspace):
        if kind is None:
            run = dataset
            found = exporting_results.export_run(store, run, out, judge_id=judge, labelling=labelling, replace=replace)
        else:
            found = exporting.export(store, dataset, kind, out, labelling=labelling, with_calls=calls, replace=replace)
    if as_json:
        shown = {"path": str(found.path), "format": found.format, "bytes": found.bytes, "simulated": found.simulated}
        output.line(output.as_json_text({**shown, "notes": list(found.notes)}))
        return
    mark = ", simulated" if found.simulated else ""
    output.line(f"exported '{dataset}' as {found.format}: {found.path} ({found.bytes / 1e6:,.1f} MB{mark})")
    for text in found.notes:
        output.note(f"note: {text}")

"""Commands for runs by batch file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import AllowMissing, AsJson, Workspace
from cimemories.cli.work import exit_if_incomplete
from cimemories.store import engine
from cimemories.store.engine import DEFAULT_WORKSPACE, open_store

if TYPE_CHECKING:
    from cimemories.evaluation.batches import BatchImported


batch = typer.Typer(help="Write what a run owes as a batch file, and take the answers back.", no_args_is_help=True)


cli.add_typer(batch, name="batch")


MOST_LINES, MOST_BYTES = 50_000, 200 << 20  # of one file for OpenAI's Batch API


@batch.command("export")
def export_(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Id of a run; `cimemories runs` lists them.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write, one request a line.")],
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Only what is asked of this model (a judge's, say).")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Write over a file that is there.")] = False,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Write every call that a run owes, for `vllm run-batch` or OpenAI's Batch API.

    Example: cimemories batch export run-3f9a1c2e --out owed.jsonl
    """
    from cimemories.evaluation.batches import export_batch

    store = open_store(workspace)
    with engine.written_for_user(out, workspace):
        found = export_batch(store, run, out, model=model, replace=replace)
    size = out.stat().st_size if found.lines else 0
    if as_json:
        told = {"path": str(out) if found.lines else None, "lines": found.lines, "bytes": size}
        asked_of = {"kinds": dict(found.kinds), "models": dict(found.models), "other_models": found.elsewhere}
        output.line(output.as_json_text({**told, **asked_of}))
        return
    if not found.lines:
        output.line(f"{run} owes nothing{f' of {model}' if found.elsewhere else ''}; no file was written")
    else:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in found.kinds.items())
        output.line(f"{found.lines:,} calls of {run} ({kinds}): {out} ({size / 1e6:,.1f} MB)")
    if found.elsewhere:
        output.note(f"note: {found.elsewhere:,} calls of other models are owed too")
    if len(found.models) > 1:
        asked = ", ".join(found.models)
        output.note(f"note: the file asks several models ({asked}); a batch is answered by one: use --model")
    if found.lines > MOST_LINES or size > MOST_BYTES:
        output.note("note: OpenAI's Batch API takes 50,000 lines and 200 MB a file; vllm run-batch has no such limit")


@batch.command("import")
def import_(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run that the answers are for.")],
    file: Annotated[Path, typer.Argument(help="The answers, one a line; the file of errors can be imported too.")],
    as_json: AsJson = False,
    allow_missing: AllowMissing = 0.0,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Take the answers of a batch into a run; what they make necessary (judgements) is owed afterwards.

    Example: cimemories batch import run-3f9a1c2e answers.jsonl
    """
    from cimemories.evaluation.batches import import_batch

    store = open_store(workspace)
    found = import_batch(store, run, file)
    _told(run, found, as_json)
    # What the next files will bring is no failure; what this one was to bring and did not is.
    exit_if_incomplete(store, run, allow_missing, tried=True)


def _told(run: str, found: BatchImported, as_json: bool) -> None:
    if as_json:
        told = {"answers": found.settled, "failed": dict(found.failed), "already_there": found.there}
        strays = {"unknown": found.unknown, "unknown_ids": list(found.unknown_ids), "repeated": found.repeated}
        output.line(output.as_json_text({"run": run, **told, **strays, "owed": found.owed}))
        return
    output.line(f"{run}: {found.settled:,} answers taken, {found.owed:,} calls owed")
    if found.there:
        output.note(f"note: {found.there:,} lines are in the record already")
    for cause, count in found.failed.most_common():
        output.note(f"note: {count:,} failed ({cause}): recorded, and owed again")
    if found.unknown:
        named = ", ".join(repr(custom_id[:64]) for custom_id in found.unknown_ids)
        more = (
            "" if found.unknown <= len(found.unknown_ids) else f" and {found.unknown - len(found.unknown_ids):,} more"
        )
        output.note(f"note: {found.unknown:,} lines belong to no call of this run: {named}{more}")
    if found.repeated:
        output.note(f"note: {found.repeated:,} lines repeat a custom_id; the first that went well was taken")
    if found.owed:
        output.note(f"note: next: cimemories batch export {run} --out FILE, or cimemories resume {run}")

"""Commands for runs by batch file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from cimemories import files
from cimemories.cli import output
from cimemories.cli.base import group
from cimemories.cli.options import AllowMissing, Here, Replace, Run
from cimemories.cli.work import exit_if_incomplete
from cimemories.text import count

if TYPE_CHECKING:
    from cimemories.evaluation.batches import BatchImported

batch = group("batch", "Run models by batch file: write requests, read answers.")
SHOWN = 5  # causes of failures; the rest are counted
MOST_LINES, MOST_BYTES = 50_000, 200 << 20  # of one file for OpenAI's Batch API


@batch.command("export")
def export_batch(
    here: Here,
    run: Run,
    out: Annotated[Path, Option("--out", "-o", help="File to write, one request a line.")],
    model: Annotated[str | None, Option("--model", "-m", help="Only requests to this model, e.g. to a judge.")] = None,
    replace: Replace = False,
) -> None:
    """Write a run's remaining requests to a batch file.

    For `vllm run-batch` or OpenAI's Batch API.

    Example: cimemories batch export run-3f9a1c2e --out requests.jsonl
    """
    from cimemories.evaluation import batches

    with files.with_users_umask(out, here.workspace):
        result = batches.export_batch(here.record, run, out, model=model, replace=replace)
    # Where nothing is owed there is no file, and one of that name may be of another run.
    size = out.stat().st_size if result.lines else 0
    counts = {"kinds": result.kinds, "models": result.models, "other_models": result.elsewhere}
    if here.result({"path": out if result.lines else None, "lines": result.lines, "bytes": size, **counts}):
        return
    if not result.lines:
        output.line(f"{run} has no requests left{f' to {model}' if result.elsewhere else ''}; no file was written")
    else:
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in result.kinds.items())
        output.line(f"{count(result.lines, 'request')} of {run} ({kinds}): {out} ({size / 1e6:,.1f} MB)")
    if result.elsewhere:
        output.note(f"note: {count(result.elsewhere, 'request')} to other models are left")
    if len(result.models) > 1:
        models = ", ".join(result.models)
        output.note(f"note: the file has requests to several models ({models}), but a batch has one: use --model")
    if result.lines > MOST_LINES or size > MOST_BYTES:
        output.note("note: OpenAI's Batch API takes 50,000 lines and 200 MB a file; vllm run-batch has no such limit")


@batch.command("import")
def import_batch(
    here: Here,
    run: Run,
    file: Annotated[Path, Argument(help="Answers, one a line; a file of errors works too.")],
    allow_missing: AllowMissing = 0.0,
) -> None:
    """Read a batch's answers into a run. Judgements of new messages are the next batch.

    Example: cimemories batch import run-3f9a1c2e answers.jsonl
    """
    from cimemories.evaluation import batches

    result = batches.import_batch(here.store, run, file)
    counts = {
        "answers": result.settled,
        "failed": result.failed,
        "already_there": result.there,
        "errors": result.errors,
    }
    about = {"run": run, **counts, **output.attributes(result, "unknown unknown_ids repeated owed")}
    text = f"{run}: {count(result.settled, 'answer')} recorded, {count(result.owed, 'request')} left"
    here.result(about, text, notes=_imported_notes(run, result))
    # What the next files will bring is no failure; what this one was to bring and did not is.
    exit_if_incomplete(here.store, run, allow_missing, tried=True)


def _imported_notes(run: str, result: BatchImported) -> Iterator[str]:
    if result.there:
        yield f"{count(result.there, 'line')} recorded before"
    if failed := sum(result.failed.values()):
        yield f"{failed:,} failed; they are in the next batch"
        for error, number in result.errors.most_common(SHOWN):
            yield f"{number:,} failed by {error}"
        if len(result.errors) > SHOWN:
            yield f"{len(result.errors) - SHOWN:,} more causes, in --json"
    if result.unknown:
        named = ", ".join(repr(custom_id[:64]) for custom_id in result.unknown_ids)
        rest = result.unknown - len(result.unknown_ids)
        more = f" and {rest:,} more" if rest > 0 else ""
        yield f"{count(result.unknown, 'line')} of no request of this run: {named}{more}"
    if result.repeated:
        yield f"{count(result.repeated, 'line')} with a custom_id used before; the first successful one counts"
    if result.owed:
        yield f"next: cimemories batch export {run} --out FILE, or cimemories resume {run}"

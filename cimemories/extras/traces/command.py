"""The command `traces`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import AsJson, Replace
from cimemories.exchange.exporting import refuse_taken
from cimemories.extras.traces.outcomes import TraceCounts, outcomes, read_keys
from cimemories.extras.traces.spans import KEY, read_spans
from cimemories.formats.reading import atomic_write
from cimemories.store.engine import StoreError
from cimemories.text import count


@cli.command()
def traces(
    file: Annotated[Path, Argument(help="Spans as JSON lines: OTLP, or a span a line.")],
    out: Annotated[Path, Option("--out", "-o", help="File of outcomes to write, a JSON line a key.")],
    keys: Annotated[
        Path | None,
        Option(help=f"JSON lines or CSV with `id` (of a trace or a span) and `key`; default: the attribute {KEY}."),
    ] = None,
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Read what an assistant wrote elsewhere from its traces: OpenTelemetry GenAI spans, or OpenInference.

    Writes a line for each key: the message, and by channel the arguments of tools, writes to a memory, and reasoning.

    Example: cimemories traces spans.jsonl --out outcomes.jsonl
    """
    refuse_taken(out, replace=replace)
    counts = TraceCounts()
    made = list(outcomes(read_spans(file), read_keys(keys) if keys else {}, counts))
    if not made:
        raise StoreError(
            f"{file}: none of {count(counts.spans, 'span')} has a key. Set the attribute {KEY} on the span of each "
            "task, or name the keys of traces by --keys."
        )
    with atomic_write(out) as draft, draft.open("w", encoding="utf-8", newline="\n") as stream:
        for item in made:
            stream.write(json.dumps(item.line()) + "\n")
    missing = [item for item in made if item.message is None]
    if as_json:
        output.as_json({"path": out, "outcomes": len(made), "missing": len(missing), **vars(counts)})
        raise typer.Exit
    output.line(f"wrote {count(len(made), 'outcome')} of {count(counts.traces, 'trace')} to {out}")
    output.notes(
        text
        for text, number in (
            (
                f"{count(len(missing), 'outcome')} without a message: {missing[0].cause if missing else ''}",
                len(missing),
            ),
            (f"{count(counts.unmatched, 'trace')} without a key left out", counts.unmatched),
            (f"{count(counts.left_out, 'span')} of no key left out, in traces of several keys", counts.left_out),
            (f"{count(counts.repeated, 'trace')} of a key that ran again left out", counts.repeated),
            (f"{count(counts.unused, 'key')} of --keys that no span has", counts.unused),
        )
        if number
    )

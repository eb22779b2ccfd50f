"""The format preferences of the command `export`: a file of pairs, and its card beside it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jinja2

from cimemories import files
from cimemories.cli.options import Here
from cimemories.exchange.card import licence_of
from cimemories.exchange.exporting import refuse_taken
from cimemories.extras.training.preferences import PairCounts, preference_rows, write_rows
from cimemories.extras.training.reward import WEIGHT
from cimemories.flows.labels import rule_of
from cimemories.flows.scope import Scope, resolve_scope
from cimemories.formats.reading import atomic_write
from cimemories.store import datasets
from cimemories.store.engine import StoreError
from cimemories.store.team import log
from cimemories.text import count, markdown_escaped, part_names

FORMAT = "preferences"
ENDINGS = (".jsonl", ".parquet")


def export(
    here: Here, run_id: str, path: Path, *, labelling: str | None, judge: int | None, replace: bool, **_: object
) -> None:
    """Write the pairs of a run and their card, NAME.md beside them, and print what was written. A run without a pair
    is refused, with the reasons."""
    if path.suffix not in ENDINGS:
        raise StoreError(f"{path}: pairs are one file. Name it .jsonl or .parquet.")
    card_path = path.with_suffix(".md")
    for each in (path, card_path):
        refuse_taken(each, replace=replace)
    store = here.record
    scope, counts = resolve_scope(store, run_id, labelling, judge), PairCounts()
    with files.with_users_umask(path, here.workspace):
        with atomic_write(path) as target:
            write_rows(target, preference_rows(store, scope, counts), path.suffix)
            if not counts.pairs:
                why = "; ".join(counts.reasons()) or "it has no message"
                raise StoreError(f"{run_id} has no pair of messages, and nothing was written: {why}.")
        with atomic_write(card_path) as target:
            target.write_text(card(here, scope, counts, path.name), encoding="utf-8")
    log.note(store, "run.exported", run_id, judge=scope.judge_text)
    simulated = part_names(scope.simulated)
    here.result(
        {"path": path, "card": card_path, "format": FORMAT, "simulated": bool(simulated), **vars(counts)},
        f"exported '{run_id}' as {FORMAT}: {path} ({count(counts.pairs, 'pair')} of "
        f"{count(counts.requests, 'request')}); card: {card_path}",
        notes=[*counts.reasons(), f"simulated {simulated}: train nothing that you mean to use" if simulated else ""],
    )


def card(here: Here, scope: Scope, counts: PairCounts, file: str) -> str:
    """Return the card of a file of pairs, as Markdown with the Hub's metadata on top."""
    with here.record.read() as connection:
        row = datasets.by_name(connection, scope.dataset_name)
    rule = scope.rule or (rule_of(here.record, scope.labelling.id) if scope.labelling else None)
    return _template().render(
        file=file,
        run=scope.run,
        dataset=row,
        labels=scope.labelling,
        rule=f"{rule.name} ({rule.text})" if rule else "",
        labels_text=scope.labels_text,
        judge=scope.judge_text,
        simulated=part_names(scope.simulated),
        pairs=count(counts.pairs, "pair"),
        requests=count(counts.requests, "request"),
        without=count(sum(counts.without.values()), "request"),
        reasons=counts.reasons(),
        weight=f"{WEIGHT:g}",
        licence=licence_of(row),
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown and no HTML: the filter md escapes
    )
    environment.filters["md"] = markdown_escaped
    return environment.get_template("preferences_card.md.jinja")

"""Exporting a run in the layout of the authors' results: what is in the record, brought together for the writer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cimemories.analysis.exporting import (
    Exported,
    chosen_labelling,
    labelled_profile,
    labelling_told,
    refuse_taken,
    written_whole,
)
from cimemories.analysis.matrix import matrix
from cimemories.analysis.rule import AppliedRule, rule_of
from cimemories.curation.consensus import INAPPROPRIATE
from cimemories.formats.results_records import FULL, JudgeTold, Result, RunTold
from cimemories.formats.results_writer import LabelsTold, Line, Written, write_results
from cimemories.model import JudgementStatus, ResponseStatus, Strength
from cimemories.store import datasets, judgements, memories, run_contents, runs
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store, StoreError
from cimemories.store.judgements import JudgeRow
from cimemories.store.labellings import LabellingRow
from cimemories.store.runs import RunRow

OWED_STILL = "owed when it was exported"


def export_run(
    store: Store,
    run_id: str,
    path: Path,
    *,
    judge_id: int | None = None,
    labelling: str | None = None,
    replace: bool = False,
) -> Exported:
    """Write a run to a path, one profile a line, whole or not at all.

    judge_id: whose judgements; those of the run's first judge where None. labelling: whose labels; the default one's
    where None, and none where the dataset has none. Raises StoreError for what is not there and a path that is taken.
    """
    with store.read() as connection:
        run = runs.named(connection, run_id)
        judges = judgements.of_run(connection, run_id)
        row = next(row for row in datasets.all_rows(connection) if row.id == run.dataset)
    judge = next((j for j in judges if judge_id in (None, j.id)), None)
    if judge is None:
        there = ", ".join(f"{j.id} ({j.name})" for j in judges) or "none"
        raise StoreError(f"{run_id} has no judge {judge_id}. It has: {there}.")
    refuse_taken(path, replace=replace)
    chosen = chosen_labelling(store, row, labelling)
    rule = None if chosen is None else rule_of(store, chosen.id)
    labels = None
    if chosen is not None and rule is not None:
        personas, told = labelling_told(store, chosen, rule)
        labels = LabelsTold(chosen.model, personas, told)
    with written_whole(path) as target:
        write_results(target, _lines(store, run, judge, chosen, rule), _told(run, judge), labels)
    simulated = run.simulated or judge.simulated or bool(chosen and chosen.simulated)
    return Exported(path, "results", path.stat().st_size, simulated, tuple(_notes(store, run, judge)))


def _told(run: RunRow, judge: JudgeRow) -> RunTold:
    manifest: Mapping[str, Any] = run.manifest
    wording = manifest.get("prompt") or manifest.get("imported", {}).get("own") or {}
    return RunTold(
        name=run.name,
        model=run.model,
        simulated=run.simulated,
        samples=run.samples,
        prompt_level=run.prompt_level,
        prompt_hash=str(wording.get("sha256") or wording.get("prompt_hash") or ""),
        composition=run.composition,
        judge=JudgeTold(kind=judge.kind, model=judge.name, simulated=judge.simulated),
    )


def _lines(
    store: Store, run: RunRow, judge: JudgeRow, chosen: LabellingRow | None, rule: AppliedRule | None
) -> Iterator[Line]:
    with store.read() as connection:
        ids = runs.profile_ids(connection, run.id)
    for profile_id in ids:
        with store.read() as connection:
            record = datasets.profile_record(connection, profile_id)
        labels = None if chosen is None or rule is None else labelled_profile(store, chosen, record, rule)
        yield Line(record.profile, labels, _responses(store, run, judge, chosen, record))


def _responses(
    store: Store, run: RunRow, judge: JudgeRow, chosen: LabellingRow | None, record: ProfileRecord
) -> list[Written]:
    with store.read() as connection:
        rows = run_contents.responses(connection, run.id, judge.id, record.id)
        claims = judgements.claims(connection, judge.id, [row["id"] for row in rows])
        prompts = run_contents.prompts(connection, {row["request"] for row in rows if row["request"]})
        held = memories.of_hashes(connection, {row["memory"] for row in rows if row["memory"]})
    positions = {id_: at for at, id_ in enumerate(record.attribute_ids)}
    columns = {id_: at for at, id_ in enumerate(record.context_ids)}
    reduced = any(row["level"] != FULL for row in rows)
    labels = matrix(store, None if chosen is None else chosen.id, record).effective if reduced else None
    found = []
    for row in sorted(rows, key=lambda row: (columns[row["context"]], row["level"], row["sample"])):
        context = columns[row["context"]]
        memory = tuple(positions[a] for a in held[row["memory"]]) if row["memory"] else tuple(positions.values())
        apart = [at for at in memory if labels is not None and labels[at, context] == INAPPROPRIATE]
        status, cause = ResponseStatus(row["status"]), row["cause"]
        if status is ResponseStatus.OWED:
            status, cause = ResponseStatus.FAILED, OWED_STILL
        result = Result(
            context=context,
            level=row["level"],
            memory=memory,
            trial=row["sample"],
            text=row["text"] or "",
            status=status,
            cause=cause,
            judgement=JudgementStatus(row["judgement"] or JudgementStatus.OWED),
            judgement_cause=row["judgement_cause"],
            reveals=tuple(
                (positions[a], quote)
                for a, (strength, _, quote) in claims.get(row["id"], {}).items()
                if strength is Strength.FULL
            ),
        )
        found.append(Written(result, frozenset(apart if row["level"] != FULL else ()), prompts.get(row["request"], "")))
    return found


def _notes(store: Store, run: RunRow, judge: JudgeRow) -> list[str]:
    notes = [f"judgements are those of {judge.name}; only what is revealed in full is in this format"]
    with store.read() as connection:
        others = [j.name for j in judgements.of_run(connection, run.id) if j.id != judge.id]
    if others:
        notes.append(f"left out: the judgements of {', '.join(others)}")
    missing = run.expected - run.responses.get(ResponseStatus.OK, 0)
    if missing:
        notes.append(f"{missing:,} responses are missing: they stand in the file with an empty text")
    unjudged = run.responses.get(ResponseStatus.OK, 0) - run.judged
    if judge.ordinal == 0 and unjudged > 0:
        notes.append(f"{unjudged:,} responses have no judgement: they stand in the file without one")
    return notes

"""Exporting a dataset: what is in the record, brought together for the writers of cimemories.formats.

official           the authors' profiles, without labels (JSON)
labelled           the same with shares of votes by persona, and combined by the priors (JSON)
huggingface        everything as a folder for the Hugging Face Hub with a card (hub.py), or as a zip file of it:
                   profiles, votes, decisions, rules, history, runs with messages, judgements and recalls, calls. If the
                   path ends in .parquet or .csv: one row a pair with its effective label and prompts alone
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import sqlalchemy as sa

from cimemories import seeds
from cimemories.evaluation.respond import memory_lines
from cimemories.evaluation.sessions import Sessions, session_order
from cimemories.exchange import hub
from cimemories.flows.columns import Coded, arrow_table, flow_columns
from cimemories.flows.flows import Flows
from cimemories.flows.labels import (
    INAPPROPRIATE,
    TOO_FEW,
    UNLABELLED,
    AppliedRule,
    chosen_labelling,
    mixture,
    rule_of,
    vote_counts,
)
from cimemories.flows.scope import Scope
from cimemories.formats.huggingface import Settled, write_columns
from cimemories.formats.labelled import ExportedLabels, Labelled, persona_slugs, write_labelled
from cimemories.formats.official import write_profiles
from cimemories.formats.reading import FormatError, written_whole
from cimemories.formats.results import (
    FULL,
    ExportedJudge,
    ExportedRun,
    ExportedSessions,
    ExportedSystem,
    Line,
    Prompted,
    Recall,
    Result,
    Written,
    write_results,
)
from cimemories.labels.matrix import matrix
from cimemories.llm.replies import numbered
from cimemories.memory.systems import is_system
from cimemories.model import JudgementStatus, ResponseStatus, Strength
from cimemories.store import archive, datasets, decisions, judgements, runs
from cimemories.store.datasets import DatasetRow, ProfileRecord
from cimemories.store.engine import Store, StoreError
from cimemories.store.judgements import JudgeRow
from cimemories.store.labellings import LabellingRow
from cimemories.store.runs import RunRow
from cimemories.store.team import log
from cimemories.text import count, without_formula

Format = Literal["official", "labelled", "huggingface"]
FORMATS: tuple[Format, ...] = get_args(Format)
TABLES = (".parquet", ".csv")  # endings of the columns as one file


@dataclass(frozen=True)
class Exported:
    """What was written. `bytes`: of the file, or of all files of a folder. `simulated`: the file is marked so."""

    path: Path
    format: str
    bytes: int
    simulated: bool
    notes: tuple[str, ...]


def export(
    store: Store,
    dataset: str,
    form: Format,
    path: Path,
    *,
    labelling: str | None = None,
    with_calls: bool = True,
    replace: bool = False,
) -> Exported:
    """Write a dataset to a path, whole or not at all.

    labelling: whose labels, for the formats that hold one labelling's; the default one if None. A folder holds all of
    them, and this one's effective labels. with_calls: whether a folder holds the calls behind votes and messages.
    replace: write over a file that is there. Raises StoreError for what is not in the record or a path that is taken,
    and FormatError for what the format cannot hold.
    """
    with store.read() as connection:
        row = datasets.named(connection, dataset)
    refuse_taken(path, replace=replace)
    chosen = chosen_labelling(store, row, labelling)
    if needs_labels(form, path) and chosen is None:
        raise StoreError(f"'{row.name}' has no labels yet, which this format needs. Label it first: cimemories label.")
    ending = path.suffix.lower()
    with written_whole(path) as target:
        if form == "official":
            with store.read() as connection:
                records = datasets.profile_records(connection, row.id)
            target.write_text(write_profiles(record.profile for record in records), encoding="ascii")
            notes = ["profiles only: labels and decisions are not in this format"]
        elif form == "labelled" and chosen is not None:
            rule = rule_of(store, chosen.id)
            labels = exported_labels(store, chosen, rule)
            people = (labelled_profile(store, chosen, record, rule) for record in _records(store, row.id))
            notes = write_labelled(target, people, labels) + _label_notes(store, chosen, rule, labels)
        elif ending in TABLES and chosen is not None:
            notes = _write_columns(store, row, chosen, target, parquet=ending == ".parquet")
        else:
            folder = target.with_name("folder") if ending == ".zip" else target
            notes = hub.write_folder(folder, store, row, chosen, with_calls=with_calls)
            if chosen is not None:
                (folder / hub.DATA).parent.mkdir()
                notes += _write_columns(store, row, chosen, folder / hub.DATA, parquet=True, plain=True)
            notes += hub.write_about(folder, store, row, chosen)
            if ending == ".zip":
                hub.pack(folder, target)
    log.note(store, "dataset.exported", row.name, format=form)
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    simulated = is_simulated(store, row, chosen, form, path)
    return Exported(path, form, sum(file.stat().st_size for file in files), simulated, tuple(notes))


def refuse_taken(path: Path, *, replace: bool) -> None:
    """Raise StoreError if something of that name is there, unless it is a file that may be replaced."""
    if path.exists() and not (replace and path.is_file()):
        what = "a folder of that name" if path.is_dir() else "a file of that name"
        raise StoreError(f"{path}: there is {what}. Choose another --out, or for a file say --replace.")


def needs_labels(form: Format, path: Path) -> bool:
    """Return whether what is written to this path is labels alone."""
    return form == "labelled" or (form == "huggingface" and path.suffix.lower() in TABLES)


def is_simulated(store: Store, row: DatasetRow, chosen: LabellingRow | None, form: Format, path: Path) -> bool:
    """Return whether an export is marked as simulated: by what is in it."""
    if needs_labels(form, path):
        return chosen is not None and chosen.simulated
    return form != "official" and hub.is_simulated(store, row)


def _write_columns(
    store: Store, row: DatasetRow, chosen: LabellingRow, target: Path, *, parquet: bool, plain: bool = False
) -> list[str]:
    rule = rule_of(store, chosen.id)
    people = (_settled(store, chosen, record) for record in _records(store, row.id))
    text = f"{rule.name}: {rule.text}"
    write_columns(target, people, text, simulated=chosen.simulated, parquet=parquet, plain=plain)
    notes = [f"labels by consensus follow {text}"]
    return notes if plain else [*notes, "values and biographies are not in this format"]


def _records(store: Store, dataset_id: int) -> Iterator[ProfileRecord]:
    """Yield one profile at a time."""
    with store.read() as connection:
        ids = datasets.profile_ids(connection, dataset_id)
    for profile_id in ids:
        with store.read() as connection:
            record = datasets.profile_record(connection, profile_id)
        yield record  # behind the block: the caller reads by connections of its own


def _label_notes(store: Store, chosen: LabellingRow, rule: AppliedRule, labels: ExportedLabels) -> list[str]:
    """Return what of the labels is not in a file of shares, and makes other numbers where it is imported."""
    notes, decided = [], labels.labelling["decisions"]
    if decided:
        notes.append(
            f"{count(decided, 'human decision')} {'is' if decided == 1 else 'are'} not in this format: it holds the "
            "personas' shares. `cimemories review export` writes them"
        )
    too_few = int((vote_counts(store, chosen.id).labels(rule) == TOO_FEW).sum())
    if too_few:
        notes.append(f"left out: the shares of {count(too_few, 'pair')} with too few votes for a label")
    if not rule.is_paper:
        notes.append(
            f"the rule '{rule.name}' ({rule.text}) is only named in the file: where it is imported, labels follow the "
            "rule of that dataset"
        )
    return notes


def exported_labels(store: Store, chosen: LabellingRow, rule: AppliedRule) -> ExportedLabels:
    """Return the personas of a labelling, and what the field "labelling" of every profile says of it. Raises
    FormatError for personas that the layout cannot tell apart."""
    counts = vote_counts(store, chosen.id)
    with store.read() as connection:
        decided = len(decisions.standing(decisions.history(connection, chosen.dataset)))
    try:
        persona_slugs(counts.personas)
    except FormatError as problem:
        raise FormatError(f"export: {problem}") from None
    labelling = {
        "model": chosen.model,
        "simulated": chosen.simulated,
        "pack": chosen.pack,
        "rule": rule.as_json(),
        "decisions": decided,
        "personas": [
            {"key": p.key, "name": p.name, "prior": p.prior, "description": p.description} for p in counts.personas
        ],
    }
    return ExportedLabels(chosen.model, counts.personas, labelling)


def labelled_profile(store: Store, chosen: LabellingRow, record: ProfileRecord, rule: AppliedRule) -> Labelled:
    """Return a profile with the shares of one labelling, 0 to 1: by persona [personas, attributes, contexts, 3], and
    combined by the rule's priors [attributes, contexts, 3]; nan for a persona without a counted vote, and for a pair
    with too few for a label: shares do not say of how many votes they are."""
    counts = vote_counts(store, chosen.id)
    votes = np.zeros((len(record.attribute_ids), len(record.context_ids), len(counts.personas), 3))
    low, high = min(record.attribute_ids, default=0), max(record.attribute_ids, default=-1)
    # Votes are sorted by attribute: this cuts out the range that holds those of the profile, and maybe others.
    here = slice(np.searchsorted(counts.attributes, low), np.searchsorted(counts.attributes, high, "right"))
    rows = {id_: at for at, id_ in enumerate(record.attribute_ids)}
    columns = {id_: at for at, id_ in enumerate(record.context_ids)}
    part = counts.at(here)
    places = zip(part.attributes.tolist(), part.contexts.tolist(), part.votes, part.labels(rule).tolist(), strict=True)
    for a, c, cell, code in places:
        if code != TOO_FEW and a in rows and c in columns:
            votes[rows[a], columns[c]] = cell
    # 0 / 0 is nan: a persona without a counted vote has no shares, which is something else than shares of 0.
    with np.errstate(invalid="ignore"):
        shares = votes / votes.sum(axis=-1, keepdims=True) if not counts.imported else votes
    # These are shares already; a pair that the file said nothing of is all zeros.
    if counts.imported:
        shares = np.where(votes.sum(axis=-1, keepdims=True) > 0, votes, np.nan)
    return Labelled(record.profile, np.moveaxis(shares, 2, 0), mixture(votes, rule.priors))


def _settled(store: Store, chosen: LabellingRow, record: ProfileRecord) -> Settled:
    result = matrix(store, chosen.id, record)
    memories = memory_lines(seeds.load_prompt("memory", "bullets"), record.profile.attributes)
    respond, judge = seeds.load_prompt("respond"), seeds.load_prompt("judge")
    return Settled(
        profile=record.profile,
        # In the columns of this layout what has too few votes has no label, like what has none.
        labels=np.maximum(result.effective, np.int8(UNLABELLED)),
        decided=result.decided.astype(bool),
        prompts=[
            respond.render(memories=memories, recipient=c.recipient, task=c.task) for c in record.profile.contexts
        ],
        adversary=judge.render(
            attributes=numbered([a.statement for a in record.profile.attributes]), message="{message}"
        ),
    )


def suggested_name(row: DatasetRow, form: Format, ending: str, *, simulated: bool) -> str:
    """Return a file name for a download: letters, digits and dashes, marked if it is simulated."""
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in row.name.lower())
    parts = [part for part in plain.split("-") if part] or ["dataset"]
    mark = ["simulated"] if simulated else []
    return "-".join([*parts, form, *mark])[:120] + ending


# ---- runs


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
    """Write a run to a path in the layout of the authors' results, one profile a line, whole or not at all. judge_id:
    whose judgements; those of the run's first judge if None. labelling: whose labels; those of the default one if None,
    and none if the dataset has none. Raises StoreError for what is not there and a path that is taken."""
    with store.read() as connection:
        run = runs.named(connection, run_id)
        if run.explains:
            raise StoreError(f"{run_id} explains a leak of {run.explains}: export that run, or use `cimemories why`.")
        judges = judgements.of_run(connection, run_id)
        row = next(row for row in datasets.all_rows(connection) if row.id == run.dataset)
    judge = next((j for j in judges if judge_id in (None, j.id)), None)
    if judge is None:
        judges_text = ", ".join(f"{j.id} ({j.name})" for j in judges) or "none"
        raise StoreError(f"{run_id} has no judge {judge_id}. It has: {judges_text}.")
    refuse_taken(path, replace=replace)
    chosen = chosen_labelling(store, row, labelling)
    rule = None if chosen is None else rule_of(store, chosen.id)
    labels = None if chosen is None or rule is None else exported_labels(store, chosen, rule)
    with written_whole(path) as target:
        write_results(target, _lines(store, run, judge, chosen, rule), _exported_run(run, judge), labels)
    log.note(store, "run.exported", run.id, judge=judge.name)
    simulated = run.simulated or judge.simulated or bool(chosen and chosen.simulated)
    notes = _notes(store, run, judge)
    if chosen is not None and rule is not None and labels is not None:
        notes += _label_notes(store, chosen, rule, labels)
    return Exported(path, "results", path.stat().st_size, simulated, tuple(notes))


def export_flows(flows: Flows, scope: Scope, path: Path, *, replace: bool = False) -> Exported:
    """Write the flows of a run as one table, whole or not at all: the rows of `flow_columns` as Parquet or CSV, by the
    path's ending. In CSV a missing text is an empty cell, and a text that a spreadsheet would run is quoted. Raises
    StoreError for another ending and a path that is taken."""
    ending = path.suffix.lower()
    if ending not in TABLES:
        raise StoreError(f"{path}: flows are one table. Name the file .parquet or .csv.")
    refuse_taken(path, replace=replace)
    columns = flow_columns(flows, scope)
    with written_whole(path) as target:
        if ending == ".parquet":
            pq.write_table(arrow_table(columns), target, compression="zstd")
        else:
            safe = {
                name: Coded(c.codes, tuple(str(without_formula(word)) for word in c.words))
                if isinstance(c, Coded)
                else c
                for name, c in columns.items()
            }
            table = arrow_table(safe)
            texts = pa.schema([(n, pa.string() if isinstance(c, Coded) else table[n].type) for n, c in safe.items()])
            with pa_csv.CSVWriter(target, texts) as writer:
                # Texts are written out batch by batch: of millions of rows they would fill the memory.
                for batch in table.to_batches(max_chunksize=100_000):
                    writer.write_table(pa.Table.from_batches([batch]).cast(texts))
    log.note(flows.store, "run.exported", scope.run.id, judge=scope.judge_text)
    notes = (f"labels: {scope.labels_text}; reveals as judged by {scope.judge_text}",)
    return Exported(path, "flows", path.stat().st_size, bool(scope.simulated), notes)


def _exported_run(run: RunRow, judge: JudgeRow) -> ExportedRun:
    imported, mitigation = run.manifest.imported, run.manifest.mitigation.kind
    prompt_hash = run.manifest.prompt.sha256 or str(((imported and imported.own) or {}).get("prompt_hash") or "")
    system, sessions = run.manifest.memory.system, _sessions(run)
    # Options that are plain values; no password leaves with an address.
    plain = {
        n: value
        for n, value in (system.options if system else {}).items()
        if isinstance(value, bool | int | float | str)
    }
    options = {n: archive.shown_address(value) if isinstance(value, str) else value for n, value in plain.items()}
    return ExportedRun(
        name=run.name,
        model=run.model,
        simulated="responses" in run.simulated_parts,
        samples=run.samples,
        prompt_level=run.prompt_level,
        prompt_hash=prompt_hash,
        composition=run.composition,
        judge=ExportedJudge(kind=judge.kind, model=judge.name, simulated=judge.simulated),
        system=ExportedSystem(name=system.name, version=system.version, options=options) if system else None,
        mitigation=None if mitigation == "none" else mitigation,
        sessions=ExportedSessions(kept=sessions.label, order=str(sessions.order), seed=sessions.seed)
        if sessions
        else None,
    )


def _sessions(run: RunRow) -> Sessions | None:
    return Sessions.of(run.manifest.sessions)


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
        rows = runs.run_responses(connection, run.id, judge.id, record.id)
        claims = judgements.claims(connection, judge.id, [row["id"] for row in rows])
        prompts = runs.sent_prompts(connection, {row["request"] for row in rows if row["request"]})
        named = {row[column] for row in rows for column in ("memory", "shown") if row[column]}
        memories = datasets.memories_of(connection, named)
        recalls = datasets.recalls_of(connection, {row["recall"] for row in rows if row["recall"]})
    prompted = _prompted(run, record, rows, memories, recalls)
    positions = {id_: at for at, id_ in enumerate(record.attribute_ids)}
    columns = {id_: at for at, id_ in enumerate(record.context_ids)}
    # Labels are looked up only if a level leaves attributes out by them. A memory system stores all of them.
    stores_all = run.composition == FULL or is_system(run.composition)
    reduced = not stores_all and any(row["level"] != FULL for row in rows)
    labels = matrix(store, None if chosen is None else chosen.id, record).effective if reduced else None
    responses = []
    for row in sorted(rows, key=lambda row: (columns[row["context"]], row["level"], row["sample"])):
        context = columns[row["context"]]
        memory = tuple(positions[a] for a in memories[row["memory"]]) if row["memory"] else tuple(positions.values())
        apart = [at for at in memory if labels is not None and labels[at, context] == INAPPROPRIATE]
        status, cause = ResponseStatus(row["status"]), row["cause"]
        # A file is not gone on with: what is owed here is missing there.
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
                # The layout has no strengths: in it a reveal is a reveal in full.
                if strength is Strength.FULL
            ),
            prompted=prompted[row["id"]],
        )
        left_out = frozenset(apart if row["level"] != FULL else ())
        responses.append(Written(result, left_out, prompts.get(row["request"], "")))
    return responses


def _prompted(
    run: RunRow,
    record: ProfileRecord,
    rows: Sequence[sa.RowMapping],
    memories: Mapping[str, tuple[int, ...]],
    recalls: Mapping[str, datasets.RecallRecord],
) -> dict[int, Prompted]:
    """Return what is recorded of the prompt of each response, by its id, with positions in the place of ids."""
    attributes = {id_: at for at, id_ in enumerate(record.attribute_ids)}
    contexts = {id_: at for at, id_ in enumerate(record.context_ids)}
    sessions = _sessions(run)
    order = session_order(sessions, record, {row["context"] for row in rows}) if sessions else []

    def recalled(item: datasets.RecallRecord) -> Recall:
        lines = (replace(line, attributes=tuple(attributes[a] for a in line.attributes)) for line in item.lines)
        return Recall(tuple(lines), item.seconds, item.cost)

    by_hash = {digest: recalled(item) for digest, item in recalls.items()}
    prompted = {}
    for row in rows:
        earlier = None if row["earlier"] is None else tuple(contexts[c] for c in json.loads(row["earlier"]))
        prompted[row["id"]] = Prompted(
            shown=tuple(attributes[a] for a in memories[row["shown"]]) if row["shown"] else None,
            recall=by_hash[row["recall"]] if row["recall"] else None,
            earlier=earlier,
            position=order.index(row["context"]) + 1 if earlier is not None and order else None,
        )
    return prompted


def _notes(store: Store, run: RunRow, judge: JudgeRow) -> list[str]:
    notes = [f"judgements are those of {judge.name}; only what is revealed in full is in this format"]
    with store.read() as connection:
        others = [j.name for j in judgements.of_run(connection, run.id) if j.id != judge.id]
        replays = runs.explaining(connection, run.id)
        chosen = judgements.recalls(connection, run.id)
    held = [what for what, there in (("recalls", chosen), ("sessions", run.manifest.sessions)) if there]
    if held:
        notes.append(
            f"{' and '.join(held)} stand in the field `run`, which is ours: what reads only the authors' layout takes "
            "this for a run with the whole memory in each prompt"
        )
    if replays:
        notes.append(f"left out: {count(len(replays), 'replay')} of leaks (`cimemories why`)")
    if others:
        notes.append(f"left out: the judgements of {', '.join(others)}")
    missing = run.expected - run.responses.get(ResponseStatus.OK, 0)
    if missing:
        notes.append(f"{count(missing, 'message')} missing, with an empty text in the file")
    unjudged = run.responses.get(ResponseStatus.OK, 0) - run.judged
    # run.judged counts the first judge's alone.
    if judge.ordinal == 0 and unjudged > 0:
        notes.append(f"{count(unjudged, 'message')} without a judgement in the file")
    if missing or (judge.ordinal == 0 and unjudged > 0):
        notes.append(
            "the authors' script eval/metrics.py reads a message without a text or a judgement as one that reveals "
            "nothing, so its violation and completeness are lower than those here, which leave it out"
        )
    return notes

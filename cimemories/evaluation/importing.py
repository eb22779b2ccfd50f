"""Importing a file of any kind that is known: a dataset, or results (the authors', or a log of Inspect), which become
runs.

    import_file(store, Path("results.jsonl"), model="gpt-4o", judge="deepseek-r1").runs    ->  ("run-3f9a1c2e",)

All of a file is imported or nothing, and the same file only once. A file of results is read from end to end before
anything is written; what was read waits in a temporary file, so that memory stays flat. Then all is written in one
transaction: the profiles with their labels, and a run for each memory composition in the file. Profiles that a dataset
of the workspace holds already are not doubled: the runs become its runs. A log of Inspect has labels without votes;
its run becomes one of a dataset that has just these labels now, or of a new one.
"""

from __future__ import annotations

import pickle
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Protocol

import sqlalchemy as sa

from cimemories import extras
from cimemories.access.roles import Role
from cimemories.evaluation.compositions import FindLabels, Labels
from cimemories.evaluation.grounding import ground
from cimemories.evaluation.sessions import Sessions, read_sessions, session_order
from cimemories.formats import importing
from cimemories.formats.importing import Imported, Kind, with_one_sphere
from cimemories.formats.official import ProfileFile
from cimemories.formats.reading import FormatError, file_hash
from cimemories.formats.results import FULL, ExportedRun, Result, ResultsFile
from cimemories.model import JudgementStatus, Label, Profile, ResponseStatus, Reveal, Strength
from cimemories.store import datasets, judgements, labellings, runs, work
from cimemories.store.datasets import DatasetRow, ProfileRecord, RecallRecord, dataset_with
from cimemories.store.engine import Store, StoreError, canonical_json, storable
from cimemories.store.labellings import SharedLabels
from cimemories.store.runs import IMPORTED, ImportedResponse
from cimemories.store.team import log
from cimemories.text import count, shown
from cimemories.version import __version__

IN_MEMORY = 32 << 20  # bytes of what was read; more goes to a temporary file
UNKNOWN = "unknown"
NOT_IN_THE_FILE = "not in the file"
# Shares of another file may have been rounded; votes differ by far more (one of a thousand is 1e-3).
SAME_SHARE = 1e-6


class Log(Protocol):
    """A file of results with labels and no votes, of which an extra reads one kind (extras/inspect/log.py). What it
    says as a whole is complete after its last profile."""

    kind: Kind
    name: str
    sha256: str
    parameters: Mapping[str, object]

    @property
    def dataset(self) -> str:
        """Return the name of the dataset that it was made from."""

    @property
    def run(self) -> ExportedRun | None: ...

    def profiles(self) -> Iterator[tuple[Profile, tuple[Result, ...]]]: ...

    def labels(self) -> tuple[SharedLabels, ...]: ...

    def labels_by_context(self) -> Mapping[tuple[int, int], Mapping[int, Label]]: ...

    def notes(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class _Read:
    """All of a file but its responses, which wait in `spool`: one pickled list a profile. levels: by composition."""

    profiles: tuple[Profile, ...]
    file: ResultsFile | Log
    spool: IO[bytes]
    levels: Mapping[str, _Level]
    names: Mapping[str, str]  # of memory compositions, by the level of a result


@dataclass
class _Level:
    """The trials and statuses of one memory composition."""

    first: int = 1 << 30
    last: int = -1
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, first: int, last: int, counts: Mapping[str, int]) -> None:
        self.first, self.last = min(self.first, first), max(self.last, last)
        self.counts.update(counts)


def import_file(
    store: Store,
    path: Path,
    name: str | None = None,
    kind: Kind | None = None,
    *,
    model: str | None = None,
    judge: str | None = None,
    find_labels: FindLabels | None = None,
) -> Imported:
    """Import a file as what it is recognised to be; kind: what it must be, where profiles without their labels, or with
    some, are profiles, or labelled ones. name: of the dataset.

    Of results, the authors' or a log of Inspect: model, judge: what wrote and what judged the responses; by default
    what the file says, else its name and 'imported'. find_labels: the current labels of a dataset; without it the run
    of a log gets a dataset of its own. Raises FormatError or StoreError; then nothing is written."""
    content = importing.recognise(path)
    possible = ("profiles", "labelled") if content == "profiles" else (content,)
    if kind is not None and kind not in possible:
        raise FormatError(
            f"{shown(path.name)}: this is not a file of the format {kind}; its content is {' or '.join(possible)}"
        )
    if content not in importing.OF_RUNS:
        if model or judge:
            raise FormatError(
                f"{shown(path.name)}: --model and --judge-model are for results, and this file has none; leave them out"
            )
        labels = None if kind is None else kind == "labelled"
        return importing.import_as(store, path, content, name, labels=labels)
    reader = extras.registered("results").get(content)
    with store.read() as connection:
        if there := runs.runs_with_file(connection, file_hash(path)):
            return _already(connection, there, content)
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as spool:
        # Read and grounded before the transaction, during which no one else can write.
        read = _read(extras.load(reader)(path) if reader else ResultsFile(path), spool)
        own, others = _labelled_alike(store, read, name, find_labels)
        with store.write(Role.CURATOR) as connection:
            # Asked again: another process may have imported the same file while this one was read.
            if there := runs.runs_with_file(connection, read.file.sha256):
                return _already(connection, there, read.file.kind)
            row, records, new = _dataset(connection, read, name, path, own)
            notes = [*read.file.notes(), *_labels(connection, read, row, records, new)]
            if new and others:
                notes.append(
                    f"the labels in the log are not those of '{others[0]}' as it is now: the run has a dataset of its "
                    "own, where its numbers are those of the log"
                )
            if name and row.name != name:
                notes.append(f"the profiles are those of the dataset '{row.name}', which the runs are now of")
            sessions = _sessions(read)
            ids, moved = _runs(connection, read, row, records, model or "", judge or "", path, sessions)
            if moved:
                notes.append(
                    f"{count(moved, 'message')} come at another place of their session than in the file: here the "
                    "user has other contexts, or another number, and numbers by place are by the order of this dataset"
                )
            row = datasets.by_name(connection, row.name)
            log.add(connection, "results.imported", row.name, file=path.name, runs=len(ids))
    return Imported(row, True, (*notes, *_notes(read, ids)), read.file.kind, tuple(ids.values()))


def _already(connection: sa.Connection, ids: Sequence[str], kind: Kind) -> Imported:
    run = runs.by_id(connection, ids[0])
    row = next(row for row in datasets.all_rows(connection) if row.id == run.dataset)
    return Imported(row, False, (), kind, tuple(ids))


def _labelled_alike(
    store: Store, read: _Read, name: str | None, find_labels: FindLabels | None
) -> tuple[int | None, list[str]]:
    """Return the id of a dataset with the profiles of a log and its labels, or None, and the names of datasets with
    other labels."""
    log, others = read.file, list[str]()
    if isinstance(log, ResultsFile) or find_labels is None:
        return None, others
    with store.read() as connection:
        alike = list(datasets.datasets_with(connection, read.profiles, name or log.dataset))
    for row, records in alike:
        source = find_labels(store, row.id)
        labels: Labels = source.labels if source else {}
        for (profile, context), own in log.labels_by_context().items():
            pairs = [(attribute, records[profile].context_ids[context]) for attribute in records[profile].attribute_ids]
            if own != {at: labels[pair] for at, pair in enumerate(pairs) if pair in labels}:
                others.append(row.name)
                break
        else:
            return row.id, others
    return None, others


def _read(file: ResultsFile | Log, spool: IO[bytes]) -> _Read:
    profiles: list[Profile] = []
    levels: defaultdict[str, _Level] = defaultdict(_Level)
    for profile, results in file.profiles():
        profiles.append(profile)
        for result in results:
            levels[result.level].add(result.trial, result.trial, {result.status: 1})
        # Each response with its reveals, attributes by position, and where in the text their sentences stand.
        grounded = []
        for result in results:
            claims = (*((at, sentence, Strength.FULL) for at, sentence in result.reveals), *result.weaker)
            reveals = [Reveal(at, text, ground(text, result.text), strength) for at, text, strength in claims]
            grounded.append((result, reveals))
        pickle.dump(grounded, spool)
    spool.seek(0)
    if not levels:
        raise FormatError(f"{file.name}: there is no message in it")
    names = file.compositions() if isinstance(file, ResultsFile) else {}
    named: defaultdict[str, _Level] = defaultdict(_Level)
    for listed, met in levels.items():
        named[names.get(listed, listed)].add(met.first, met.last, met.counts)
    whole = with_one_sphere(ProfileFile(tuple(profiles), file.sha256, ()), file.name)
    return _Read(whole.profiles, file, spool, dict(named), names)


def _dataset(
    connection: sa.Connection, read: _Read, name: str | None, path: Path, own: int | None
) -> tuple[DatasetRow, list[ProfileRecord], bool]:
    """Return the dataset of the runs, its records, and whether it is new. own: for a log, which one has its labels."""
    if not isinstance(read.file, ResultsFile):
        same = datasets.datasets_with(connection, read.profiles, name)
        there = next((item for item in same if item[0].id == own), None)
        taken = {row.name for row in datasets.all_rows(connection)}
        usual = read.file.dataset if read.file.dataset not in taken else path.stem
    else:
        there, usual = dataset_with(connection, read.profiles, name), path.stem
    if there is not None:
        return *there, False
    name = name or usual
    dataset_id = datasets.add(
        connection, name, read.profiles, origin=read.file.kind, source_name=path.name, source_hash=read.file.sha256
    )
    return datasets.by_name(connection, name), datasets.profile_records(connection, dataset_id), True


def _labels(
    connection: sa.Connection, read: _Read, row: DatasetRow, records: Sequence[ProfileRecord], new: bool
) -> list[str]:
    """Write the labels of the file that the dataset does not have yet; returns notes on it."""
    notes: list[str] = []
    if not isinstance(read.file, ResultsFile) and not new:
        return notes  # it was chosen for its labels
    for labels in read.file.labels():
        same = None if new else _labelling_with(connection, row.id, records, labels)
        if same is not None:
            notes.append(f"the labels by {shown(labels.model)} are those of {same}, and were not added again")
        elif row.frozen:
            notes.append(f"'{row.name}' is frozen: the labels by {shown(labels.model)} in the file were left out")
        else:
            there = bool(labellings.all_rows(connection, row.id)) and not new
            added = labellings.add_imported(connection, row.id, records, labels, from_results=there)
            if there:
                notes.append(
                    f"the labels by {shown(labels.model)} differ from those of '{row.name}': added as {added}. Numbers "
                    f"rest on the labels that were there; those of the file are used with --labelling {added}"
                )
    return notes


def _labelling_with(
    connection: sa.Connection, dataset_id: int, records: Sequence[ProfileRecord], labels: SharedLabels
) -> str | None:
    """Return the labelling of the dataset that has these very shares on these profiles, or None."""

    def alike(labelling_id: str, personas: Sequence[int]) -> bool:
        columns = (labels.profile, labels.attribute, labels.context, labels.persona)
        shares = {
            (records[p].attribute_ids[a], records[p].context_ids[c], personas[voter]): share
            for p, a, c, voter, share in zip(*(c.tolist() for c in columns), labels.shares.tolist(), strict=True)
        }
        for record in records:
            for row in labellings.tallies(connection, labelling_id, record.id):
                votes = row.necessary, row.inappropriate, row.abstain
                if total := sum(votes):
                    share = shares.pop((row.attribute, row.context, row.persona), None)
                    if share is None or any(abs(v / total - s) > SAME_SHARE for v, s in zip(votes, share, strict=True)):
                        return False
        return not shares

    for row in labellings.all_rows(connection, dataset_id):
        voters = labellings.personas(connection, row.id)
        # Personas in their order too: shares are held by position.
        same = row.model == labels.model and list(voters.values()) == list(labels.personas)
        if same and alike(row.id, list(voters)):
            return row.id
    return None


def _runs(
    connection: sa.Connection,
    read: _Read,
    row: DatasetRow,
    records: Sequence[ProfileRecord],
    model: str,
    judge: str,
    path: Path,
    sessions: Sessions | None,
) -> tuple[dict[str, str], int]:
    """Write a run for each memory composition. Returns their ids by its label, and how many messages come at another
    place of their session than in the file. model, judge: '' for what the file says."""
    own = read.file.run
    # The parameters say 'imported': the same model asked by us is another judge.
    judge_id = judgements.judge_id(
        connection,
        kind="matcher" if own and not judge and own.judge.kind == "matcher" else "llm",
        model=judge or (own.judge.model if own else IMPORTED),
        endpoint=IMPORTED,
        simulated=bool(own and own.judge.simulated),
        prompt_hash=None,
        parameters={"origin": IMPORTED},
    )
    model = model or (own.model if own else path.stem)
    ids = {}
    # full first; by length before the alphabet, so that all_share+5 stands before all_share+10.
    for label in sorted(read.levels, key=lambda label: (label != FULL, len(label), label)):
        ids[label] = _add_run(connection, read, row, label, model, shown(path.name, 200))
        judgements.assign(connection, ids[label], [judge_id], {judge_id: {"base_url": ""}})
    judges = dict.fromkeys(ids.values(), judge_id)
    moved = 0
    for record in records:
        # Safe: the spool is our own temporary file, written a moment ago; nothing of the user's is unpickled.
        results = [
            (replace(result, level=read.names.get(result.level, result.level)), reveals)
            for result, reveals in pickle.load(read.spool)
        ]
        if sessions is not None:
            order = session_order(sessions, record, {record.context_ids[result.context] for result, _ in results})
            places = {context: place for place, context in enumerate(order, 1)}
            moved += sum(
                result.prompted.position not in (None, places[record.context_ids[result.context]])
                for result, _ in results
            )
        runs.add_responses(connection, judges, _responses(connection, record, results, ids, read.levels))
    for run_id in ids.values():
        work.finish_by_outcome(connection, run_id)
        work.bump(connection, run_id)
    return ids, moved


def _sessions(read: _Read) -> Sessions | None:
    """Return the sessions that our own export names, or None. Raises FormatError if they cannot be read."""
    own = read.file.run
    if own is None or own.sessions is None:
        return None
    try:
        return read_sessions(own.sessions.kept, own.sessions.order, own.sessions.seed)
    except StoreError as problem:
        raise FormatError(f"{read.file.name}: run: {problem}") from None


def _add_run(connection: sa.Connection, read: _Read, row: DatasetRow, label: str, model: str, file: str) -> str:
    """Write the run of one memory composition, without its responses; returns its id."""
    own, level = read.file.run, read.levels[label]
    messages_simulated = bool(own and own.simulated)
    data_hash = datasets.dataset_hash(connection, row.id)
    return runs.add(
        connection,
        {
            "name": own.name if own else f"{model} on {row.name}" + ("" if label == FULL else f", {label}"),
            "dataset": row.id,
            "dataset_hash": data_hash,
            "model": model,
            "endpoint": IMPORTED,
            # The mark of the whole run: its numbers rest on the judge as well as on the messages.
            "simulated": messages_simulated or bool(own and own.judge.simulated),
            "samples": level.last - level.first + 1,
            "seed": None,
            "prompt_level": own.prompt_level if own else UNKNOWN,
            "prompt_hash": own.prompt_hash if own else "",
            "composition": label,
            "parameters": canonical_json(dict(read.file.parameters)),
        },
        manifest={
            "origin": IMPORTED,
            "imported": {
                "file": file,
                "sha256": read.file.sha256,
                "profiles": len(read.profiles),
                "responses": dict(level.counts),
                "own": own.model_dump(exclude_none=True) if own else None,
            },
            "dataset": {"name": row.name, "hash": data_hash, "source": row.source_name},
            "model": {"name": model, "endpoint": IMPORTED, "simulated": messages_simulated},
            "parameters": dict(read.file.parameters),
            **({"memory": {"composition": label, "system": own.system.model_dump()}} if own and own.system else {}),
            **({"mitigation": {"kind": own.mitigation}} if own and own.mitigation else {}),
            **({"sessions": own.sessions.model_dump()} if own and own.sessions else {}),
            "versions": {"cimemories": __version__},
        },
    )


def _responses(
    connection: sa.Connection,
    record: ProfileRecord,
    results: Sequence[tuple[Result, list[Reveal]]],
    ids: Mapping[str, str],
    levels: Mapping[str, _Level],
) -> list[ImportedResponse]:
    """Return the rows of one profile. A trial that a context lacks, and other contexts have, is missing too."""
    hashes: dict[tuple[int, ...], str] = {}
    recalled: set[str] = set()
    responses: list[ImportedResponse] = []
    there: defaultdict[tuple[str, int], dict[int, ImportedResponse]] = defaultdict(dict)
    for result, reveals in results:
        shown, earlier, item = result.prompted.shown, result.prompted.earlier, result.prompted.recall
        for held in (result.memory, shown):
            if held is not None and held not in hashes:
                attribute_ids = [record.attribute_ids[at] for at in held]
                hashes[held] = datasets.keep_memories(connection, record.id, attribute_ids)
        digest = None
        if item is not None:
            lines = [
                replace(
                    line, text=storable(line.text), attributes=tuple(record.attribute_ids[at] for at in line.attributes)
                )
                for line in item.lines
            ]
            # Its level is the system by its name and options.
            recall = RecallRecord(record.id, result.level, tuple(lines), item.seconds, item.cost)
            digest = recall.hash
            if digest not in recalled:
                recalled.add(datasets.keep_recall(connection, recall))
        response = ImportedResponse(
            run=ids[result.level],
            profile=record.id,
            context=record.context_ids[result.context],
            level=result.level,
            # Files count trials from 0 or from 1; samples of a run begin at 0.
            sample=result.trial - levels[result.level].first,
            status=result.status,
            cause=result.cause,
            text=result.text or None,
            memory=hashes[result.memory],
            judgement=result.judgement,
            judgement_cause=result.judgement_cause,
            reveals=[
                Reveal(record.attribute_ids[claim.attribute], claim.quote, claim.span, claim.strength)
                for claim in reveals
            ],
            shown=None if shown is None else hashes[shown],
            recall=digest,
            earlier=None if earlier is None else [record.context_ids[at] for at in earlier],
        )
        responses.append(response)
        there[result.level, result.context][response.sample] = response
    for (level, _), samples in there.items():
        # What is left out counts as missing, as in a run of our own: every context has as many samples.
        missing = replace(
            next(iter(samples.values())),  # with its memory: a run of our own has one a context
            status=ResponseStatus.FAILED,
            cause=NOT_IN_THE_FILE,
            text=None,
            judgement=JudgementStatus.OWED,
            judgement_cause=None,
            reveals=(),
            shown=None,
            recall=None,
            earlier=None,
        )
        planned = set(range(levels[level].last - levels[level].first + 1))
        responses += [replace(missing, sample=sample) for sample in sorted(planned - samples.keys())]
    return responses


def _notes(read: _Read, ids: Mapping[str, str]) -> list[str]:
    """Return what was imported, a sentence a run."""
    notes = [
        f"the run {run_id} has the memory {label}: {count(sum(read.levels[label].counts.values()), 'response')}, "
        f"{read.levels[label].counts[ResponseStatus.OK]:,} with a text"
        for label, run_id in ids.items()
    ]
    if (own := read.file.run) and (own.simulated or own.judge.simulated):
        did = "wrote the messages" if own.simulated else "judged the messages"
        notes.append(f"the file says that a simulator {did}: the runs are marked simulated")
    return notes

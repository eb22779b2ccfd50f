"""A run in the layout of the authors' results (formats.results), one profile a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cimemories.evaluation.sessions import Sessions, session_order
from cimemories.exchange.labelled import LabelWriter
from cimemories.flows.labels import INAPPROPRIATE
from cimemories.formats.official import record_of
from cimemories.formats.results import FULL, RUN, ExportedJudge, ExportedRun, ExportedSessions, ExportedSystem, level_of
from cimemories.labels.matrix import matrix
from cimemories.memory.systems import is_system
from cimemories.model import JudgementStatus, ResponseStatus, Strength
from cimemories.store import archive, datasets, judgements, runs
from cimemories.store.datasets import ProfileRecord, RecalledLine
from cimemories.store.engine import Store
from cimemories.store.judgements import JudgeRow
from cimemories.store.labellings import LabellingRow
from cimemories.store.runs import RunRow
from cimemories.text import count

OWED_STILL = "owed when it was exported"


def write_results(
    path: Path, store: Store, run: RunRow, judge: JudgeRow, chosen: LabellingRow | None, labels: LabelWriter | None
) -> None:
    """Write a run as read by one judge, with the labels of one labelling; one profile at a time is in memory."""
    with store.read() as connection:
        ids = runs.profile_ids(connection, run.id)
    about = exported_run(run, judge).model_dump(exclude_none=True)
    with path.open("w", encoding="ascii", newline="\n") as stream:
        for profile_id in ids:
            with store.read() as connection:
                record = datasets.profile_record(connection, profile_id)
            content = record_of(record.profile)
            if labels is not None:
                labels.add(content, record)
            content[RUN] = about
            for context, name, entry in _responses(store, run, judge, chosen, record):
                content["contexts"][context][name] = entry
            stream.write(json.dumps(content, allow_nan=False) + "\n")


def exported_run(run: RunRow, judge: JudgeRow) -> ExportedRun:
    """Return a file's description of its run."""
    imported, mitigation = run.manifest.imported, run.manifest.mitigation.kind
    prompt_hash = run.manifest.prompt.sha256 or str(
        ((imported and imported.description) or {}).get("prompt_hash") or ""
    )
    system, sessions = run.manifest.memory.system, _sessions(run)
    # Only options that are plain values; no password leaves with an address.
    options = {
        name: archive.shown_address(value) if isinstance(value, str) else value
        for name, value in (system.options if system else {}).items()
        if isinstance(value, bool | int | float | str)
    }
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


def _responses(
    store: Store, run: RunRow, judge: JudgeRow, chosen: LabellingRow | None, record: ProfileRecord
) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield every response of a profile: the position of its context, the name of its field and the field's content."""
    with store.read() as connection:
        rows = runs.run_responses(connection, run.id, judge.id, record.id)
        claims = judgements.claims(connection, judge.id, [row["id"] for row in rows])
        prompts = runs.sent_prompts(connection, {row["request"] for row in rows if row["request"]})
        named = {row[column] for row in rows for column in ("memory", "shown") if row[column]}
        memories = datasets.memories_of(connection, named)
        recalls = datasets.recalls_of(connection, {row["recall"] for row in rows if row["recall"]})
    attributes = dict(zip(record.attribute_ids, record.profile.attributes, strict=True))
    positions = {id_: at for at, id_ in enumerate(record.attribute_ids)}
    contexts = {id_: at for at, id_ in enumerate(record.context_ids)}
    sessions = _sessions(run)
    order = session_order(sessions, record, {row["context"] for row in rows}) if sessions else []
    # Labels are looked up only if a level leaves attributes out by them. A memory system stores all of them.
    stores_all = run.composition == FULL or is_system(run.composition)
    reduced = not stores_all and any(row["level"] != FULL for row in rows)
    labels = matrix(store, None if chosen is None else chosen.id, record).effective if reduced else None

    def keys(ids: Any) -> list[str]:
        return [attributes[id_].key for id_ in ids]

    def line(of: RecalledLine) -> dict[str, Any]:
        # A line that is a statement to the letter is its attribute alone.
        plain = len(of.attributes) == 1 and attributes[of.attributes[0]].statement == of.text
        score = {} if of.score is None else {"score": of.score}
        return {**({} if plain else {"text": of.text}), "attributes": keys(of.attributes), **score}

    for row in sorted(rows, key=lambda row: (contexts[row["context"]], row["level"], row["sample"])):
        context, trial = contexts[row["context"]], row["sample"]
        memory = memories[row["memory"]] if row["memory"] else tuple(attributes)
        by_label = labels if row["level"] != FULL else None
        apart = {a for a in memory if by_label is not None and by_label[positions[a], context] == INAPPROPRIATE}
        to_share, not_to_share = keys(a for a in memory if a not in apart), keys(a for a in memory if a in apart)
        there = row["status"] == ResponseStatus.OK
        judged = there and row["judgement"] == JudgementStatus.OK
        # The layout has no strengths: in it a reveal is a reveal in full.
        revealed = claims.get(row["id"], {}).items() if judged else ()
        quotes = {a: quote for a, (strength, _, quote) in revealed if strength is Strength.FULL}
        entry: dict[str, Any] = {
            "prompt": prompts.get(row["request"], ""),
            "to_share_attributes": to_share,
            "not_to_share_attributes": not_to_share,
            "num_to_share_attributes": len(to_share),
            "num_not_to_share_attributes": len(not_to_share),
            "total_num_attributes": len(attributes),
            "trial_idx": trial,
            "model_solution": {
                "response_solution": row["text"] or "" if there else "",
                # Unjudged messages have no zeros: they would say that nothing is revealed.
                "revealed_attributes": {attributes[a].key: int(a in quotes) for a in memory} if judged else {},
                # In the order of the attributes: the database gives claims in any.
                "revealed_attributes_explanation": {attributes[a].key: quotes[a] for a in attributes if a in quotes},
            },
        }
        # Facts that the layout has no field for.
        ours: dict[str, Any] = {}
        if row["level"] != level_of(len(attributes), len(to_share), len(not_to_share)):
            ours["composition"] = row["level"]
        if keys(memory) != [*to_share, *not_to_share]:
            ours["memory"] = keys(memory)
        if row["status"] == ResponseStatus.OWED:
            # A file cannot be continued: owed items here are missing there.
            ours |= {"status": str(ResponseStatus.FAILED), "cause": OWED_STILL}
        elif not there:
            ours |= {"status": row["status"], "cause": row["cause"]}
        elif not judged:
            judgement = row["judgement"] or str(JudgementStatus.OWED)
            ours |= {"judgement": judgement, "judgement_cause": row["judgement_cause"]}
        recall = recalls[row["recall"]] if row["recall"] else None
        if recall is not None:
            more = {"seconds": recall.seconds, "cost": recall.cost and dict(recall.cost)}
            ours["recall"] = {"lines": list(map(line, recall.lines))}
            ours["recall"] |= {name: value for name, value in more.items() if value is not None}
        shown = memories[row["shown"]] if row["shown"] else None
        if shown is not None and (recall is None or shown != recall.attributes):
            ours["shown"] = keys(shown)
        if row["earlier"] is not None:
            ours["earlier"] = [contexts[c] for c in json.loads(row["earlier"])]
            ours["position"] = order.index(row["context"]) + 1 if order else None
        if ours:
            entry[RUN] = ours
        numbers = f"num_to_share={len(to_share)}_num_not_to_share={len(not_to_share)}_trial={trial}"
        yield context, f"combination_{numbers}", entry


def notes_on(store: Store, run: RunRow, judge: JudgeRow) -> list[str]:
    """Return notes on the parts of a run that such a file lacks, or renders differently."""
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
    # run.judged counts the first judge's alone.
    unjudged = run.responses.get(ResponseStatus.OK, 0) - run.judged if judge.ordinal == 0 else 0
    if missing:
        notes.append(f"{count(missing, 'message')} missing, with an empty text in the file")
    if unjudged > 0:
        notes.append(f"{count(unjudged, 'message')} without a judgement in the file")
    if missing or unjudged > 0:
        notes.append(
            "the authors' script eval/metrics.py reads a message without a text or a judgement as one that reveals "
            "nothing, so its violation and completeness are lower than those here, which leave it out"
        )
    return notes
